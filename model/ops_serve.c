/* The verbs for serving, once for every kind of step. Each allocates its result in the step arena, updates in place, and hands pointers and shapes to kernels.
 *
 * Every product with a weight goes through `project`, which knows what a weight can have beside its numbers: an order of inputs (GPTQ's act-order), adapters
 * of some rows, a part of a sum over ranks. Where nothing has to come between products, attend and feed hand them to a kernel as a chain, norms and gates
 * included; the bits are the same either way (kernels.h).
 *
 * No row depends on another but through the cache, so nothing here looks at how a batch is made up. Runs on the thread that owns the exec. */
#include <stdatomic.h>

#include "base/assert.h"
#include "base/clock.h"
#include "loader/pack/share.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/ranks.h"

static struct qr_tensor make(struct qr_exec *x, int64_t n_rows, int64_t n_cols)
{
    size_t n = (size_t)n_rows * (size_t)n_cols * sizeof(float);
    return qr_tensor_2d(qr_arena_alloc(x->act, n, 64), QR_F32, n_rows, n_cols);
}

static struct qr_tensor serve_embed(struct qr_exec *x, const struct qr_weight *w, float scale)
{
    QR_ASSERT(x != NULL && w != NULL);
    QR_ASSERT((w->t.data != NULL || w->packed != NULL) && w->t.n_dims == 2);
    struct qr_tensor out = make(x, x->batch->n_tokens, w->t.shape[1]);
    const struct qr_embed_args a = {.out = out.data, .table = &w->t, .packed = w->t.data ? NULL : w->packed, .ids = x->batch->ids,
                                    .drawn = x->batch->drawn, .out_stride = out.stride[0], .n_rows = x->batch->n_tokens, .scale = scale};
    x->be->k->embed(x->be->queue, &a);
    return out;
}

/* out = RMSNorm of the first columns of x's rows, as many as w has; out and x may be the same. */
static void norm_columns(struct qr_exec *x, float *out, int64_t out_stride, const float *in, int64_t in_stride, int64_t n_rows,
                         const struct qr_weight *w, float eps)
{
    const struct qr_norm_args a = {.out = out, .x = in, .w = w->t.data, .out_stride = out_stride, .x_stride = in_stride,
                                   .n_rows = (int32_t)n_rows, .n_cols = (int32_t)w->t.shape[0], .eps = eps};
    if (n_rows > 0)
        x->be->k->rms_norm(x->be->queue, &a);
}

static void norm_in_place(struct qr_exec *x, const struct qr_tensor *rows, int64_t first, const struct qr_weight *w, float eps)
{
    float *data = (float *)rows->data + first;
    norm_columns(x, data, rows->stride[0], data, rows->stride[0], rows->shape[0], w, eps);
}

static struct qr_tensor serve_norm(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL && w != NULL);
    QR_ASSERT(h->n_dims == 2 && w->t.data != NULL && w->t.shape[0] == h->shape[1]);
    struct qr_tensor out = make(x, h->shape[0], h->shape[1]);
    norm_columns(x, out.data, out.stride[0], h->data, h->stride[0], h->shape[0], w, eps);
    return out;
}

static void serve_residual_add(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *delta)
{
    QR_ASSERT(x != NULL && h != NULL && delta != NULL);
    QR_ASSERT(h->shape[0] == delta->shape[0] && h->shape[1] == delta->shape[1]);
    const struct qr_add_args a = {.x = h->data, .delta = delta->data, .x_stride = h->stride[0], .delta_stride = delta->stride[0],
                                  .n_rows = (int32_t)h->shape[0], .n_cols = (int32_t)h->shape[1]};
    x->be->k->residual_add(x->be->queue, &a);
}

static struct qr_tensor serve_layer_norm(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w, const struct qr_weight *bias, float eps)
{
    QR_ASSERT(x != NULL && h != NULL && w != NULL && bias != NULL);
    QR_ASSERT(h->n_dims == 2 && w->t.shape[0] == h->shape[1] && bias->t.shape[0] == h->shape[1]);
    struct qr_tensor out = make(x, h->shape[0], h->shape[1]);
    const struct qr_layer_norm_args a = {.out = out.data, .x = h->data, .w = w->t.data, .bias = bias->t.data, .out_stride = out.stride[0],
                                         .x_stride = h->stride[0], .n_rows = (int32_t)h->shape[0], .n_cols = (int32_t)h->shape[1], .eps = eps};
    if (a.n_rows > 0)
        x->be->k->layer_norm(x->be->queue, &a);
    return out;
}

/* Of the batch's positions the table has rows, as no context is longer than it. */
static void serve_add_positions(struct qr_exec *x, struct qr_tensor *h, const struct qr_weight *table)
{
    QR_ASSERT(x != NULL && h != NULL && table != NULL);
    QR_ASSERT(table->t.n_dims == 2 && table->t.shape[1] == h->shape[1] && h->shape[0] == x->batch->n_tokens);
    struct qr_tensor rows = make(x, h->shape[0], h->shape[1]);
    const struct qr_embed_args a = {.out = rows.data, .table = &table->t, .ids = x->batch->pos, .out_stride = rows.stride[0], .n_rows = x->batch->n_tokens,
                                    .scale = 1};
    x->be->k->embed(x->be->queue, &a);
    serve_residual_add(x, h, &rows);
}

static void *make_room(struct qr_exec *x, int64_t n, size_t size)
{
    return qr_arena_alloc(x->act, (size_t)n * size, 64);
}

static struct qr_tensor serve_glu(struct qr_exec *x, const struct qr_tensor *gate_up, enum qr_act act)
{
    QR_ASSERT(x != NULL && gate_up != NULL);
    QR_ASSERT(gate_up->n_dims == 2 && gate_up->shape[1] % 2 == 0);
    struct qr_tensor out = make(x, gate_up->shape[0], gate_up->shape[1] / 2);
    const struct qr_glu_args a = {.out = out.data, .gate_up = gate_up->data, .out_stride = out.stride[0],
                                  .gate_up_stride = gate_up->stride[0], .n_rows = (int32_t)gate_up->shape[0],
                                  .n_cols = (int32_t)out.shape[1], .act = act};
    x->be->k->glu(x->be->queue, &a);
    return out;
}

/* ---- products ---- */

/* A product with what the model has before and behind it. */
struct projection {
    const struct qr_weight *w, *bias;        /* bias may be NULL */
    const struct qr_weight *norm, *norm_bias; /* of the input; NULL: none. With a bias it is LayerNorm */
    float eps;
    bool glu; /* w holds gates and ups: the result is act(gate) * up */
    enum qr_act act;
};

/* Whether each rank has some of w's inputs, so that products with it are terms of a sum over ranks. */
static bool is_summed(const struct qr_exec *x, const struct qr_weight *w)
{
    return w->split == QR_SPLIT_IN && qr_model_share(x->model)->size > 1;
}

static bool is_first_rank(const struct qr_exec *x)
{
    return qr_model_share(x->model)->rank == 0;
}

static void sum_over_ranks(struct qr_exec *x, const struct qr_tensor *h)
{
    QR_ASSERT(h->stride[0] == h->shape[1]);
    qr_ranks_sum(x->ranks, h->data, qr_tensor_count(h));
}

/* The columns of `in` in the order in which w has its inputs. */
static struct qr_tensor pick_columns(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w)
{
    QR_ASSERT(in->dtype == QR_F32 && in->n_dims == 2 && w->inputs.shape[0] == in->shape[1]);
    struct qr_tensor out = make(x, in->shape[0], in->shape[1]);
    const struct qr_pick_args a = {.out = out.data, .x = in->data, .col = w->inputs.data, .out_stride = out.stride[0], .x_stride = in->stride[0],
                                   .n_rows = (int32_t)in->shape[0], .n_cols = (int32_t)in->shape[1]};
    if (a.n_rows > 0)
        x->be->k->pick_columns(x->be->queue, &a);
    return out;
}

/* Fills in the product's operands but for its output, and computes what its kernel does not do on the way: LayerNorm, columns picked, any norm where its
 * result is read by others (x->unfused). Returns the normed input, or `in` where the kernel norms it. */
static struct qr_tensor ready(struct qr_exec *x, struct qr_linear_args *a, const struct projection *p, const struct qr_tensor *in)
{
    const struct qr_weight *w = p->w;
    QR_ASSERT(w->packed != NULL && in->n_dims == 2 && in->shape[1] == w->t.shape[1]);
    QR_ASSERT(!p->bias || p->bias->t.shape[0] == w->t.shape[0]);
    QR_ASSERT(!p->norm || (p->norm->t.data != NULL && p->norm->t.shape[0] == in->shape[1]));
    const bool fused_norm = p->norm && !p->norm_bias && !w->inputs.data && !x->unfused;
    struct qr_tensor normed = *in;
    if (p->norm && !fused_norm)
        normed = p->norm_bias ? serve_layer_norm(x, in, p->norm, p->norm_bias, p->eps) : serve_norm(x, in, p->norm, p->eps);
    const struct qr_tensor read = w->inputs.data ? pick_columns(x, &normed, w) : normed;
    const bool tiles = read.dtype == QR_BF16;
    *a = (struct qr_linear_args){.x = tiles ? NULL : read.data, .x_tiles = tiles ? read.data : NULL, .w = w, .bias = p->bias ? p->bias->t.data : NULL,
                                 .norm_w = fused_norm ? p->norm->t.data : NULL, .x_stride = read.stride[0], .n_rows = (int32_t)read.shape[0],
                                 .n_in = (int32_t)read.shape[1], .n_out = (int32_t)w->t.shape[0], .eps = p->eps,
                                 .glu = p->glu && !x->unfused && w->n_parts == 0, .act = p->act};
    return normed;
}

/* The product's output is a new tensor. */
static struct qr_tensor make_out(struct qr_exec *x, struct qr_linear_args *a)
{
    QR_ASSERT(x != NULL && a != NULL);
    QR_ASSERT(!a->add && (!a->glu || a->n_out % 2 == 0));
    struct qr_tensor out = make(x, a->n_rows, a->glu ? a->n_out / 2 : a->n_out);
    a->out = out.data;
    a->out_stride = out.stride[0];
    return out;
}

/* The product's output is added to h. Of a sum over ranks rank 0 adds its term, and the bias, to h; the other ranks' terms replace their h. So the sum over
 * ranks is h + in w^T without a pass of its own, and its bits depend on where the inputs were cut and on nothing else. */
static void put_onto(struct qr_exec *x, struct qr_linear_args *a, const struct qr_tensor *h)
{
    QR_ASSERT(h->n_dims == 2 && h->shape[0] == a->n_rows && h->shape[1] == a->n_out);
    a->out = h->data;
    a->out_stride = h->stride[0];
    a->add = !is_summed(x, a->w) || is_first_rank(x);
}

/* A product, or one for each of the matrix's parts. */
static void multiply(struct qr_exec *x, const struct qr_linear_args *a)
{
    if (a->w->n_parts == 0)
        x->be->k->linear(x->be->queue, a);
    QR_ASSERT(a->w->n_parts == 0 || (!a->glu && !a->stretches));
    for (int32_t i = 0; i < a->w->n_parts; i++) {
        const struct qr_weight own = qr_weight_of_part(a->w, i);
        const int64_t first = a->w->part[i].first;
        struct qr_linear_args p = *a;
        p.w = &own;
        p.n_out = (int32_t)own.t.shape[0];
        p.out = a->out + first;
        p.bias = a->bias ? a->bias + first : NULL;
        x->be->k->linear(x->be->queue, &p);
    }
}

/* The one way through a weight: input normed, columns picked, product, what adapters add, the sum over ranks. onto: the tensor that the result is added to,
 * or NULL for a new one. Adapters read the normed input in its own order, and their additions come before gates. */
static struct qr_tensor project(struct qr_exec *x, const struct projection *p, const struct qr_tensor *in, const struct qr_tensor *onto)
{
    QR_ASSERT(x != NULL && p != NULL && in != NULL);
    QR_ASSERT(!onto || !p->glu);
    struct qr_linear_args a;
    const bool summed = is_summed(x, p->w);
    const struct qr_tensor read = ready(x, &a, p, in);
    if (summed && !is_first_rank(x))
        a.bias = NULL;
    if (onto)
        put_onto(x, &a, onto);
    struct qr_tensor out = onto ? *onto : make_out(x, &a);
    if (x->watch)
        x->watch(x->watch_user, &read, p->w);
    if (a.n_rows > 0)
        multiply(x, &a);
    if (x->batch->n_groups > 0)
        qr_lora_apply(x, &out, &read, p->w);
    if (summed)
        sum_over_ranks(x, &out);
    return p->glu && !a.glu ? serve_glu(x, &out, p->act) : out;
}

static struct qr_tensor serve_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w,
                                     const struct qr_weight *bias)
{
    return project(x, &(struct projection){.w = w, .bias = bias}, in, NULL);
}

/* *h += in w^T + bias, or an RMSNorm of that. */
static void half_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct projection *p, const struct qr_weight *norm, float eps)
{
    if (!norm) {
        project(x, p, in, h);
        return;
    }
    QR_ASSERT(norm->t.data != NULL && norm->t.shape[0] == h->shape[1]);
    struct qr_tensor delta = project(x, p, in, NULL);
    norm_in_place(x, &delta, 0, norm, eps);
    serve_residual_add(x, h, &delta);
}

/* ---- the MLP and experts ---- */

static void serve_unit(struct qr_exec *x, struct qr_tensor *h, enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(h->n_dims == 2);
    const struct qr_unit_args a = {.x = h->data, .stride = h->stride[0], .n_rows = (int32_t)h->shape[0], .n_cols = (int32_t)h->shape[1], .act = act};
    x->be->k->unit(x->be->queue, &a);
}

/* The whole half of a layer as one chain of products, in which a kernel may keep rows in a thread. Behind a sum over ranks another chain begins. */
static void feed_chained(struct qr_exec *x, const struct qr_tensor *h, const struct qr_tensor *mixed, const struct projection p[3])
{
    struct qr_linear_args a[3];
    const bool summed = is_summed(x, p[0].w);
    if (summed) {
        project(x, &p[0], mixed, h);
    } else {
        ready(x, &a[0], &p[0], mixed);
        put_onto(x, &a[0], h);
    }
    ready(x, &a[1], &p[1], h);
    a[1].passing = true;
    a[1].out = make_room(x, qr_passing_bytes(x->be->k, &a[1], p[2].w), 1);
    a[1].out_stride = a[1].n_out / 2;
    const struct qr_tensor gated = qr_tensor_2d(a[1].out, QR_F32, a[1].n_rows, a[1].out_stride);
    ready(x, &a[2], &p[2], &gated);
    put_onto(x, &a[2], h);
    if (summed && !is_first_rank(x))
        a[2].bias = NULL;
    const struct qr_chain_args chain = {.linear = a + summed, .n = 3 - summed};
    x->be->k->chain(x->be->queue, &chain);
    if (summed)
        sum_over_ranks(x, h);
}

static void serve_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL && mixed != NULL);
    QR_ASSERT(w != NULL);
    const struct projection p[3] = {{.w = w->out, .bias = w->out_bias},
                                    {.w = w->gate_up, .bias = w->gate_up_bias, .norm = w->norm, .norm_bias = w->norm_bias, .eps = eps,
                                     .glu = !w->ungated, .act = act},
                                    {.w = w->down, .bias = w->down_bias}};
    const bool picks = w->out->inputs.data || w->gate_up->inputs.data || w->down->inputs.data;
    const bool whole = w->norm && !w->norm_bias && !w->out_norm && !w->down_norm && !w->ungated && w->gate_up->n_parts == 0;
    if (!x->unfused && !picks && whole) {
        feed_chained(x, h, mixed, p);
        return;
    }
    half_onto(x, h, mixed, &p[0], w->out_norm, eps);
    struct qr_tensor up = project(x, &p[1], h, NULL);
    if (w->ungated)
        serve_unit(x, &up, act);
    half_onto(x, h, &up, &p[2], w->down_norm, eps);
}

static void serve_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_tensor *logits, const struct qr_weight *gate_up,
                          const struct qr_weight *down, const struct qr_experts_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL && in != NULL && logits != NULL && spec != NULL);
    QR_ASSERT(in->shape[0] == h->shape[0] && logits->shape[0] == h->shape[0] && gate_up->t.shape[0] == logits->shape[1]);
    const int64_t n = in->shape[0], n_experts = logits->shape[1], pairs = n * spec->n_used, rows = qr_experts_room_rows(n, spec->n_used);
    const struct qr_route_args route = {.ids = make_room(x, pairs, sizeof(int32_t)), .weights = make_room(x, pairs, sizeof(float)), .logits = logits->data,
                                        .logits_stride = logits->stride[0], .n_rows = (int32_t)n, .n_experts = (int32_t)n_experts, .n_used = spec->n_used,
                                        .sigmoid = spec->sigmoid, .normalize = spec->normalize};
    const struct qr_experts_args a = {.out = h->data, .x = in->data, .ids = route.ids, .weights = route.weights, .gate_up = gate_up, .down = down,
                                      .gate_up_bias = spec->gate_up_bias ? spec->gate_up_bias->t.data : NULL,
                                      .down_bias = spec->down_bias && is_first_rank(x) ? spec->down_bias->t.data : NULL,
                                      .gathered = make_room(x, rows * in->shape[1], sizeof(float)),
                                      .gated = make_room(x, rows * down->t.shape[2], sizeof(float)),
                                      .fresh = make_room(x, rows * in->shape[1], sizeof(float)),
                                      .order = make_room(x, n_experts + 1 + pairs, sizeof(int32_t)), .out_stride = h->stride[0], .x_stride = in->stride[0],
                                      .n_rows = (int32_t)n, .n_used = spec->n_used, .act = spec->act, .clamp = spec->clamp};
    x->be->k->route(x->be->queue, &route);
    x->be->k->experts(x->be->queue, &a);
}

/* Several ranks have some columns of every expert each. All choose the same ones, as all have the same rows; rank 0's terms join h, the others' replace it. */
static void serve_feed_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_experts_weights *w, float eps,
                               const struct qr_experts_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL && mixed != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL && spec != NULL);
    const bool summed = is_summed(x, w->down);
    project(x, &(struct projection){.w = w->out, .bias = w->out_bias}, mixed, h);
    const struct qr_tensor in = serve_norm(x, h, w->norm, eps);
    if (x->ranks && !is_first_rank(x))
        x->be->mem->zero(x->be->queue, h->data, (size_t)qr_tensor_count(h) * sizeof(float));
    struct qr_tensor logits = serve_linear(x, &in, w->router, w->router_bias);
    serve_experts(x, h, &in, &logits, w->gate_up, w->down, spec);
    if (w->shared_gate) {
        const struct qr_experts_spec shared = {.n_used = 1, .sigmoid = true, .act = spec->act};
        logits = serve_linear(x, &in, w->shared_gate, NULL);
        serve_experts(x, h, &in, &logits, w->shared_gate_up, w->shared_down, &shared);
    }
    if (summed)
        sum_over_ranks(x, h);
}

/* ---- attention ---- */

/* The batch with the slots and tables of the blocks that a layer is in. */
static const struct qr_batch *batch_of(const struct qr_exec *x, int32_t layer, struct qr_batch *own)
{
    if (!x->split)
        return x->batch;
    const int32_t part = x->split->of[layer].part;
    *own = *x->batch;
    own->slot += part * x->split->slot_part;
    own->block_table += part * x->split->table_part;
    return own;
}

static int32_t layer_in_block(const struct qr_exec *x, int32_t layer)
{
    return x->split ? x->split->of[layer].layer : layer;
}

/* q [N, H, K] over what the cache has. reader: the weights of the one product that reads the result, which may then be row tiles; or NULL. */
static struct qr_tensor attend(struct qr_exec *x, const float *q, int64_t q_stride, bool q_bf16, int64_t n_rows, const struct qr_attn_spec *spec,
                               const struct qr_weight *reader)
{
    QR_ASSERT(x != NULL && spec != NULL);
    QR_ASSERT(q_stride >= (int64_t)spec->n_heads * spec->head_dim);
    const bool tiles = reader && !reader->inputs.data && qr_takes_row_tiles(x->be->k, reader->packed_dtype, x->kv);
    const enum qr_dtype dtype = tiles ? QR_BF16 : QR_F32;
    const int64_t n_cols = (int64_t)spec->n_heads * spec->head_dim;
    const struct qr_tensor out = qr_tensor_2d(make_room(x, n_rows * n_cols, qr_dtype_bytes(dtype)), dtype, n_rows, n_cols);
    struct qr_batch own;
    const struct qr_attention_args a = {.out = tiles ? NULL : out.data, .out_tiles = tiles ? out.data : NULL, .q = q,
                                        .batch = batch_of(x, spec->layer, &own), .kv = x->kv,
                                        .sinks = spec->sinks ? spec->sinks->t.data : NULL, .out_stride = out.stride[0],
                                        .q_stride = q_stride, .layer = layer_in_block(x, spec->layer), .n_heads = spec->n_heads,
                                        .window = spec->window, .scale = spec->scale, .softcap = spec->softcap,
                                        .q_bf16 = q_bf16};
    x->be->k->attention(x->be->queue, &a);
    return out;
}

/* From qkv [N, (H + 2 G) K] to the cache. */
static struct qr_qkv_args heads_of(struct qr_exec *x, struct qr_tensor *qkv, const struct qr_attend_weights *w, float eps, const struct qr_attn_spec *spec)
{
    QR_ASSERT(qkv->n_dims == 2 && qkv->shape[1] == (int64_t)(spec->n_heads + 2 * spec->n_kv_heads) * spec->head_dim);
    const struct qr_tensor *table = spec->local ? &x->local_cos_sin : &x->cos_sin;
    struct qr_batch own;
    QR_ASSERT(table->n_dims == 3 && qkv->shape[0] == table->shape[0]);
    return (struct qr_qkv_args){.x = qkv->data, .q_norm = w->q_norm ? w->q_norm->t.data : NULL, .k_norm = w->k_norm ? w->k_norm->t.data : NULL,
                                .cos_sin = table->data, .kv = x->kv, .slot = batch_of(x, spec->layer, &own)->slot, .stride = qkv->stride[0],
                                .layer = layer_in_block(x, spec->layer),
                                .n_rows = (int32_t)qkv->shape[0], .n_heads = spec->n_heads,
                                .n_rot = spec->unrotated ? 0 : (int32_t)table->shape[2] * 2, .eps = eps,
                                .q_bf16 = qr_takes_bf16_queries(x->be->k, x->kv)};
}

/* Norms of q and k over all heads of a row at once. Returns the weights without those norms. */
static struct qr_attend_weights norm_rows_of_heads(struct qr_exec *x, const struct qr_tensor *qkv,
                                                   const struct qr_attend_weights *w, float eps,
                                                   const struct qr_attn_spec *spec)
{
    struct qr_attend_weights rest = *w;
    if (!spec->row_norms || !w->q_norm)
        return rest;
    norm_in_place(x, qkv, 0, w->q_norm, eps);
    norm_in_place(x, qkv, w->q_norm->t.shape[0], w->k_norm, eps);
    rest.q_norm = rest.k_norm = NULL;
    return rest;
}

static struct qr_tensor serve_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                     const struct qr_attn_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(w != NULL && spec != NULL);
    const struct projection p = {.w = w->qkv, .bias = w->qkv_bias, .norm = w->norm, .norm_bias = w->norm_bias, .eps = eps};
    if (x->unfused || spec->row_norms || w->qkv->n_parts > 0) {
        struct qr_tensor qkv = project(x, &p, h, NULL);
        const struct qr_attend_weights rest = norm_rows_of_heads(x, &qkv, w, eps, spec);
        const struct qr_qkv_args heads = heads_of(x, &qkv, &rest, eps, spec);
        x->be->k->qkv(x->be->queue, &heads);
        return attend(x, qkv.data, qkv.stride[0], heads.q_bf16, qkv.shape[0], spec, x->unfused ? NULL : w->out);
    }
    struct qr_linear_args a;
    ready(x, &a, &p, h);
    struct qr_tensor qkv = make_out(x, &a);
    const struct qr_qkv_args heads = heads_of(x, &qkv, w, eps, spec);
    const struct qr_chain_args chain = {.linear = &a, .n = 1, .heads = &heads};
    if (w->qkv->n_parts > 0) {
        multiply(x, &a);
        x->be->k->qkv(x->be->queue, &heads);
    } else {
        x->be->k->chain(x->be->queue, &chain);
    }
    return attend(x, qkv.data, qkv.stride[0], heads.q_bf16, qkv.shape[0], spec, w->out);
}

/* ---- the head ---- */

static struct qr_tensor serve_select_rows(struct qr_exec *x, const struct qr_tensor *h)
{
    QR_ASSERT(x != NULL && h != NULL);
    const struct qr_batch *b = x->batch;
    QR_ASSERT(h->n_dims == 2 && b->n_logits + b->n_hidden <= h->shape[0]);
    struct qr_tensor out = make(x, b->n_logits + b->n_hidden, h->shape[1]); /* a plan has any number of rows */
    if (b->n_logits == h->shape[0])
        return *h; /* all of them, as they increase */
    struct qr_gather_args a = {.out = out.data, .x = h->data, .row = b->logit_row, .out_stride = out.stride[0],
                               .x_stride = h->stride[0], .n_rows = b->n_logits, .n_cols = (int32_t)h->shape[1]};
    if (a.n_rows > 0)
        x->be->k->gather_rows(x->be->queue, &a);
    a.out = (float *)out.data + b->n_logits * out.stride[0];
    a.row = b->hidden_row;
    a.n_rows = b->n_hidden;
    if (a.n_rows > 0)
        x->be->k->gather_rows(x->be->queue, &a);
    return out;
}

/* logits = the product with the head or a rank's part of it, capped where cap > 0. `known` gets the maxima and sums of stretches while the logits are in
 * cache: from the product, or from the cap where there is one. */
static void fill_logits(struct qr_exec *x, struct qr_linear_args *a, const struct qr_stretches *known, float cap)
{
    a->stretches = cap > 0 ? NULL : known;
    const struct qr_softcap_args c = {.x = a->out, .stretches = known, .stride = a->out_stride, .n_rows = a->n_rows, .n_cols = a->n_out, .cap = cap};
    if (a->n_rows > 0)
        x->be->k->linear(x->be->queue, a);
    if (cap > 0 && a->n_rows > 0)
        x->be->k->softcap(x->be->queue, &c);
}

/* Room for maxima and sums of the stretches of n_vocab logits. Sums are wanted where the batch has scales for them. */
static struct qr_stretches make_stretches(struct qr_exec *x, int64_t n_rows, int64_t n_vocab, bool sums)
{
    const int64_t n = (n_vocab + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH;
    float *largest = make(x, n_rows, n).data, *sum = make(x, n_rows, n).data;
    return (struct qr_stretches){.largest = largest, .sum = sums && x->batch->logit_scale ? sum : NULL, .scale = x->batch->logit_scale, .stride = n};
}

/* One rank's logits. A device says nothing of stretches: its rows are sampled there, or copied to the host. */
static struct qr_tensor own_logits(struct qr_exec *x, struct qr_linear_args *a, float cap)
{
    if (x->be->mem->host)
        x->stretches = make_stretches(x, a->n_rows, a->n_out, true);
    struct qr_tensor out = make_out(x, a);
    fill_logits(x, a, x->stretches.largest ? &x->stretches : NULL, cap);
    return out;
}

/* Each rank fills its columns of all rows, and rank 0 collects them. Where these are no whole stretches, nothing is said of stretches. */
static struct qr_tensor collect_logits(struct qr_exec *x, struct qr_linear_args *a, float cap)
{
    const struct qr_share *s = qr_model_share(x->model);
    const struct qr_stretches all = make_stretches(x, a->n_rows, s->whole.n_vocab, s->whole_stretches);
    const int64_t first = s->first_vocab / QR_LINEAR_STRETCH;
    const struct qr_tensor out = make(x, a->n_rows, s->whole.n_vocab);
    struct qr_stretches own = all;
    own.largest += first;
    own.sum = all.sum ? all.sum + first : NULL;
    a->out = (float *)out.data + s->first_vocab;
    a->out_stride = out.stride[0];
    fill_logits(x, a, s->whole_stretches ? &own : NULL, cap);
    qr_ranks_collect(x->ranks, out.data, s->whole_stretches ? all.largest : NULL, all.sum, a->n_rows);
    if (s->whole_stretches)
        x->stretches = all;
    return out;
}

/* On a device: copies of rows go to rank 0 packed, and into its rows there. */
static struct qr_tensor collect_packed(struct qr_exec *x, struct qr_linear_args *a, float cap)
{
    const struct qr_share *s = qr_model_share(x->model);
    const struct qr_tensor room = make(x, a->n_rows, s->rank == 0 ? s->whole.n_vocab - s->own.n_vocab : s->own.n_vocab);
    const struct qr_tensor out = s->rank == 0 ? make(x, a->n_rows, s->whole.n_vocab) : room;
    a->out = out.data;
    a->out_stride = out.stride[0];
    fill_logits(x, a, NULL, cap);
    qr_ranks_collect_packed(x->ranks, out.data, room.data, a->n_rows);
    return out;
}

static struct qr_tensor serve_norm_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL && w->head != NULL);
    const struct projection p = {.w = w->head, .norm = w->norm, .norm_bias = w->norm_bias, .eps = eps};
    const struct qr_tensor rows = qr_hidden_rows_out(x, h, w, eps);
    struct qr_linear_args a;
    ready(x, &a, &p, &rows);
    if (qr_model_share(x->model)->size == 1)
        return own_logits(x, &a, w->softcap);
    return qr_model_on_device(x->model) ? collect_packed(x, &a, w->softcap) : collect_logits(x, &a, w->softcap);
}

/* ---- layers, and the table ---- */

static size_t serve_scope_begin(struct qr_exec *x)
{
    QR_ASSERT(x != NULL && x->act != NULL);
    QR_ASSERT(x->act->used <= x->act->size);
    return qr_arena_mark(x->act);
}

/* *h was updated in place, so it lies below the mark and survives the rewind. */
static void serve_scope_end(struct qr_exec *x, struct qr_tensor *h, size_t mark)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT((uintptr_t)h->data < (uintptr_t)x->act->base + mark || mark == 0);
    qr_arena_rewind(x->act, mark);
    if (x->beat_us)
        atomic_store_explicit(x->beat_us, qr_clock_us(), memory_order_relaxed);
}

const struct qr_ops qr_ops_serve = {
    .embed = serve_embed,
    .norm = serve_norm,
    .layer_norm = serve_layer_norm,
    .add_positions = serve_add_positions,
    .residual_add = serve_residual_add,
    .linear = serve_linear,
    .glu = serve_glu,
    .experts = serve_experts,
    .unit = serve_unit,
    .select_rows = serve_select_rows,
    .attend = serve_attend,
    .feed = serve_feed,
    .feed_experts = serve_feed_experts,
    .norm_logits = serve_norm_logits,
    .scope_begin = serve_scope_begin,
    .scope_end = serve_scope_end,
};
