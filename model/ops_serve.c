/* The verbs for serving: each allocates its result in the step arena, updates in place, and hands pointers and shapes to one
 * kernel (attention: to two). No row depends on another (but through the cache), so nothing here looks at how a batch is made up. */
#include "base/assert.h"
#include "loader/pack/share.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/ops_adapted.h"
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

static struct qr_tensor norm_with_delta(struct qr_exec *x, const struct qr_tensor *h, const struct qr_tensor *delta,
                                        const struct qr_weight *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL && w != NULL);
    QR_ASSERT(h->n_dims == 2 && w->t.data != NULL && w->t.shape[0] == h->shape[1]);
    QR_ASSERT(!delta || (delta->shape[0] == h->shape[0] && delta->shape[1] == h->shape[1]));
    struct qr_tensor out = make(x, h->shape[0], h->shape[1]);
    const struct qr_norm_args a = {.out = out.data, .x = h->data, .delta = delta ? delta->data : NULL, .w = w->t.data,
                                   .out_stride = out.stride[0], .x_stride = h->stride[0],
                                   .delta_stride = delta ? delta->stride[0] : 0, .n_rows = (int32_t)h->shape[0],
                                   .n_cols = (int32_t)h->shape[1], .eps = eps};
    if (a.n_rows > 0)
        x->be->k->rms_norm(x->be->queue, &a);
    return out;
}

static struct qr_tensor serve_norm(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w, float eps)
{
    return norm_with_delta(x, h, NULL, w, eps);
}

static struct qr_tensor serve_residual_norm(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *delta,
                                            const struct qr_weight *w, float eps)
{
    QR_ASSERT(delta != NULL);
    return norm_with_delta(x, h, delta, w, eps);
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

/* What a product with w reads of `in`: its columns in the order in which w has its inputs, where that is not their own. */
static struct qr_tensor in_order(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w)
{
    QR_ASSERT(x != NULL && in != NULL && w != NULL);
    if (!w->inputs.data)
        return *in;
    QR_ASSERT(in->dtype == QR_F32 && in->n_dims == 2 && w->inputs.shape[0] == in->shape[1]);
    struct qr_tensor out = make(x, in->shape[0], in->shape[1]);
    const struct qr_pick_args a = {.out = out.data, .x = in->data, .col = w->inputs.data, .out_stride = out.stride[0], .x_stride = in->stride[0],
                                   .n_rows = (int32_t)in->shape[0], .n_cols = (int32_t)in->shape[1]};
    if (a.n_rows > 0)
        x->be->k->pick_columns(x->be->queue, &a);
    return out;
}

/* And where a norm comes before it, which is the product's own work but for columns to be picked: *norm is NULL then, or where it has a bias. */
static struct qr_tensor normed_in_order(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight **norm, const struct qr_weight *norm_bias,
                                        float eps, const struct qr_weight *w)
{
    const struct qr_weight *n = *norm;
    if (!norm_bias && !w->inputs.data)
        return *h;
    const struct qr_tensor in = norm_bias ? serve_layer_norm(x, h, n, norm_bias, eps) : serve_norm(x, h, n, eps);
    *norm = NULL;
    return in_order(x, &in, w);
}

/* What every product says of its operands; norm may be NULL. */
static struct qr_linear_args product_of(const struct qr_tensor *in, const struct qr_weight *norm, float eps, const struct qr_weight *w,
                                        const struct qr_weight *bias)
{
    QR_ASSERT(in != NULL && w != NULL);
    QR_ASSERT(w->packed != NULL && in->n_dims == 2 && in->shape[1] == w->t.shape[1]);
    QR_ASSERT(!bias || bias->t.shape[0] == w->t.shape[0]);
    QR_ASSERT(!norm || (norm->t.data != NULL && norm->t.shape[0] == in->shape[1]));
    const bool tiles = in->dtype == QR_BF16;
    return (struct qr_linear_args){.x = tiles ? NULL : in->data, .x_tiles = tiles ? in->data : NULL, .w = w, .bias = bias ? bias->t.data : NULL,
                                   .norm_w = norm ? norm->t.data : NULL, .x_stride = in->stride[0], .n_rows = (int32_t)in->shape[0],
                                   .n_in = (int32_t)in->shape[1], .n_out = (int32_t)w->t.shape[0], .eps = eps};
}

static void *make_room(struct qr_exec *x, int64_t n, size_t size)
{
    return qr_arena_alloc(x->act, (size_t)n * size, 64);
}

/* Makes room for a product's result. */
static struct qr_tensor make_out(struct qr_exec *x, struct qr_linear_args *a)
{
    QR_ASSERT(x != NULL && a != NULL);
    QR_ASSERT(!a->add && (!a->glu || a->n_out % 2 == 0));
    struct qr_tensor out = make(x, a->n_rows, a->glu ? a->n_out / 2 : a->n_out);
    a->out = out.data;
    a->out_stride = out.stride[0];
    return out;
}

/* The same for a gated product of a chain, whose result is of no use but to the product with `next`. */
static struct qr_tensor make_passing(struct qr_exec *x, struct qr_linear_args *a, enum qr_act act, const struct qr_weight *next)
{
    QR_ASSERT(x != NULL && a != NULL && next != NULL);
    QR_ASSERT(!a->add && a->n_out % 2 == 0 && next->t.shape[1] == a->n_out / 2);
    a->glu = a->passing = true;
    a->act = act;
    a->out = make_room(x, qr_passing_bytes(x->be->k, a, next), 1);
    a->out_stride = a->n_out / 2;
    return qr_tensor_2d(a->out, QR_F32, a->n_rows, a->out_stride);
}

/* A product without a unit, or one for each of the matrix's parts. */
static void multiply(struct qr_exec *x, const struct qr_linear_args *a)
{
    if (a->w->n_parts == 0) {
        x->be->k->linear(x->be->queue, a);
        return;
    }
    QR_ASSERT(!a->glu && !a->stretches);
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

static struct qr_tensor run_product(struct qr_exec *x, struct qr_linear_args *a)
{
    if (a->w->n_parts > 0 && a->glu) { /* the unit, of outputs of several parts, comes behind them */
        a->glu = false;
        const struct qr_tensor up = run_product(x, a);
        return serve_glu(x, &up, a->act);
    }
    struct qr_tensor out = make_out(x, a);
    if (a->n_rows > 0)
        multiply(x, a);
    return out;
}

static struct qr_tensor serve_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w,
                                     const struct qr_weight *bias)
{
    const struct qr_tensor picked = in_order(x, in, w);
    struct qr_linear_args a = product_of(&picked, NULL, 0, w, bias);
    return run_product(x, &a);
}

/* Outputs of the matrices that were packed into one: q, k, v, or gates and ups, told by their number; returns how many matrices that are. */
static int32_t parts_of(int32_t part[3], const struct qr_model_config *c, int32_t n_out)
{
    const int32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    const bool qkv = n_out == n_q + 2 * n_kv, gated = n_out == 2 * c->n_ffn;
    part[0] = qkv ? n_q : gated ? c->n_ffn : n_out;
    part[1] = qkv ? n_kv : c->n_ffn;
    part[2] = n_kv;
    const int32_t n = qkv ? 3 : gated ? 2 : 1;
    for (int32_t i = 0, first = 0; i < n; i++, first += part[i - 1])
        if (first % QR_LINEAR_PACKED_TOGETHER != 0)
            return 1;
    return n;
}

/* The same in a product for each matrix: what lies at a multiple of so many outputs is packed like a matrix of its own. */
static struct qr_tensor apart_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    if (w->n_parts > 0)
        return serve_linear(x, in, w, bias);
    const struct qr_tensor picked = in_order(x, in, w);
    struct qr_linear_args a = product_of(&picked, NULL, 0, w, bias);
    struct qr_tensor out = make_out(x, &a);
    int32_t part[3], n = parts_of(part, qr_model_config(x->model), a.n_out), first = 0;
    for (int32_t i = 0; n > 1 && i < n && a.n_rows > 0; i++) {
        const struct qr_weight own = {.packed_dtype = w->packed_dtype,
                                      .packed = (char *)w->packed + x->be->k->linear_packed_bytes(w->packed_dtype, first, a.n_in)};
        struct qr_linear_args p = a;
        p.w = &own;
        p.out = a.out + first;
        p.bias = a.bias ? a.bias + first : NULL;
        p.n_out = part[i];
        x->be->k->linear(x->be->queue, &p);
        first += part[i];
    }
    if (n == 1 && a.n_rows > 0)
        x->be->k->linear(x->be->queue, &a);
    return out;
}

/* *h += in w^T + bias. */
static struct qr_linear_args product_onto(const struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    struct qr_linear_args a = product_of(in, NULL, 0, w, bias);
    QR_ASSERT(h->n_dims == 2 && h->shape[0] == in->shape[0] && h->shape[1] == a.n_out);
    a.out = h->data;
    a.out_stride = h->stride[0];
    a.add = true;
    return a;
}

struct qr_tensor qr_serve_norm_linear(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *norm, float eps, const struct qr_weight *w,
                                      const struct qr_weight *bias)
{
    QR_ASSERT(norm != NULL);
    const struct qr_tensor in = normed_in_order(x, h, &norm, NULL, eps, w);
    struct qr_linear_args a = product_of(&in, norm, eps, w, bias);
    return run_product(x, &a);
}

struct qr_tensor qr_serve_norm_gated(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *norm, float eps, const struct qr_weight *w,
                                     const struct qr_weight *bias, enum qr_act act)
{
    QR_ASSERT(norm != NULL);
    const struct qr_tensor in = normed_in_order(x, h, &norm, NULL, eps, w);
    struct qr_linear_args a = product_of(&in, norm, eps, w, bias);
    a.glu = true;
    a.act = act;
    return run_product(x, &a);
}

void qr_serve_linear_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    QR_ASSERT(x != NULL && h != NULL);
    const struct qr_tensor picked = in_order(x, in, w);
    const struct qr_linear_args a = product_onto(h, &picked, w, bias);
    x->be->k->linear(x->be->queue, &a);
}

static void serve_unit(struct qr_exec *x, struct qr_tensor *h, enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(h->n_dims == 2);
    const struct qr_unit_args a = {.x = h->data, .stride = h->stride[0], .n_rows = (int32_t)h->shape[0], .n_cols = (int32_t)h->shape[1], .act = act};
    x->be->k->unit(x->be->queue, &a);
}

/* *h += the norm of delta, which takes its place. */
static void add_normed(struct qr_exec *x, struct qr_tensor *h, struct qr_tensor *delta, const struct qr_weight *norm, float eps)
{
    const struct qr_norm_args a = {.out = delta->data, .x = delta->data, .w = norm->t.data, .out_stride = delta->stride[0], .x_stride = delta->stride[0],
                                   .n_rows = (int32_t)delta->shape[0], .n_cols = (int32_t)delta->shape[1], .eps = eps};
    QR_ASSERT(norm->t.data != NULL && norm->t.shape[0] == delta->shape[1]);
    x->be->k->rms_norm(x->be->queue, &a);
    serve_residual_add(x, h, delta);
}

/* *h += in w^T + bias, or a norm of that. */
static void half_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias,
                      const struct qr_weight *norm, float eps)
{
    if (!norm) {
        qr_serve_linear_onto(x, h, in, w, bias);
        return;
    }
    struct qr_tensor delta = serve_linear(x, in, w, bias);
    add_normed(x, h, &delta, norm, eps);
}

/* What goes into `down`, where something stands between the products. */
static struct qr_tensor feed_up(struct qr_exec *x, const struct qr_tensor *h, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    const struct qr_weight *norm = w->norm;
    const struct qr_tensor in = normed_in_order(x, h, &norm, w->norm_bias, eps, w->gate_up);
    struct qr_linear_args a = product_of(&in, norm, eps, w->gate_up, w->gate_up_bias);
    a.glu = !w->ungated;
    a.act = act;
    struct qr_tensor up = run_product(x, &a);
    if (w->ungated)
        serve_unit(x, &up, act);
    return up;
}

static void feed_in_steps(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    half_onto(x, h, mixed, w->out, w->out_bias, w->out_norm, eps);
    const struct qr_tensor up = feed_up(x, h, w, eps, act);
    half_onto(x, h, &up, w->down, w->down_bias, w->down_norm, eps);
}

static void serve_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL && mixed != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL);
    const bool picks = w->out->inputs.data || w->gate_up->inputs.data || w->down->inputs.data;
    if (picks || !qr_feed_is_chain(w)) {
        feed_in_steps(x, h, mixed, w, eps, act);
        return;
    }
    struct qr_linear_args a[3] = {product_onto(h, mixed, w->out, w->out_bias), product_of(h, w->norm, eps, w->gate_up, w->gate_up_bias)};
    const struct qr_tensor gated = make_passing(x, &a[1], act, w->down);
    a[2] = product_onto(h, &gated, w->down, w->down_bias);
    const struct qr_chain_args chain = {.linear = a, .n = 3};
    x->be->k->chain(x->be->queue, &chain);
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
                                      .gathered = make_room(x, rows * in->shape[1], sizeof(float)),
                                      .gated = make_room(x, rows * down->t.shape[2], sizeof(float)),
                                      .fresh = make_room(x, rows * in->shape[1], sizeof(float)),
                                      .order = make_room(x, n_experts + 1 + pairs, sizeof(int32_t)), .out_stride = h->stride[0], .x_stride = in->stride[0],
                                      .n_rows = (int32_t)n, .n_used = spec->n_used, .act = spec->act};
    x->be->k->route(x->be->queue, &route);
    x->be->k->experts(x->be->queue, &a);
}

static void serve_feed_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_experts_weights *w, float eps,
                               const struct qr_experts_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(mixed != NULL && w != NULL);
    qr_serve_linear_onto(x, h, mixed, w->out, w->out_bias);
    qr_plain_mix_experts(x, h, w, eps, spec);
}

static void serve_qk_norm(struct qr_exec *x, struct qr_tensor *q, const struct qr_weight *w, float eps)
{
    QR_ASSERT(x != NULL && q != NULL && w != NULL);
    QR_ASSERT(q->n_dims == 3 && w->t.data != NULL && w->t.shape[0] == q->shape[2]);
    const struct qr_head_norm_args a = {.x = q->data, .w = w->t.data, .stride = q->stride[0], .n_rows = (int32_t)q->shape[0],
                                        .n_heads = (int32_t)q->shape[1], .head_dim = (int32_t)q->shape[2], .eps = eps};
    x->be->k->head_norm(x->be->queue, &a);
}

static void serve_rope(struct qr_exec *x, struct qr_tensor *q, bool local)
{
    QR_ASSERT(x != NULL && q != NULL);
    const struct qr_tensor *table = local ? &x->local_cos_sin : &x->cos_sin;
    QR_ASSERT(q->n_dims == 3 && table->n_dims == 3 && q->shape[0] == table->shape[0]);
    const struct qr_rope_args a = {.x = q->data, .cos_sin = table->data, .stride = q->stride[0], .n_rows = (int32_t)q->shape[0],
                                   .n_heads = (int32_t)q->shape[1], .head_dim = (int32_t)q->shape[2],
                                   .n_rot = (int32_t)table->shape[2] * 2};
    x->be->k->rope(x->be->queue, &a);
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
    const struct qr_attention_args a = {.out = tiles ? NULL : out.data, .out_tiles = tiles ? out.data : NULL, .q = q, .batch = x->batch,
                                        .kv = x->kv, .out_stride = out.stride[0], .q_stride = q_stride, .layer = spec->layer, .n_heads = spec->n_heads,
                                        .window = spec->window, .scale = spec->scale, .softcap = spec->softcap, .q_bf16 = q_bf16};
    x->be->k->attention(x->be->queue, &a);
    return out;
}

static struct qr_tensor serve_attention(struct qr_exec *x, const struct qr_tensor *q, const struct qr_tensor *k,
                                        const struct qr_tensor *v, const struct qr_attn_spec *spec)
{
    QR_ASSERT(x != NULL && q != NULL && k != NULL && v != NULL && spec != NULL);
    QR_ASSERT(q->shape[1] == spec->n_heads && q->shape[2] == spec->head_dim && k->shape[1] == spec->n_kv_heads);
    const struct qr_kv_write_args write = {.kv = x->kv, .k = k->data, .v = v->data, .slot = x->batch->slot,
                                           .k_stride = k->stride[0], .v_stride = v->stride[0], .layer = spec->layer,
                                           .n_rows = (int32_t)k->shape[0]};
    x->be->k->kv_write(x->be->queue, &write);
    return attend(x, q->data, q->stride[0], false, q->shape[0], spec, NULL);
}

/* From qkv [N, (H + 2 G) K] to the cache. */
static struct qr_qkv_args heads_of(struct qr_exec *x, struct qr_tensor *qkv, const struct qr_attend_weights *w, float eps, const struct qr_attn_spec *spec)
{
    QR_ASSERT(qkv->n_dims == 2 && qkv->shape[1] == (int64_t)(spec->n_heads + 2 * spec->n_kv_heads) * spec->head_dim);
    const struct qr_tensor *table = spec->local ? &x->local_cos_sin : &x->cos_sin;
    QR_ASSERT(table->n_dims == 3 && qkv->shape[0] == table->shape[0]);
    return (struct qr_qkv_args){.x = qkv->data, .q_norm = w->q_norm ? w->q_norm->t.data : NULL, .k_norm = w->k_norm ? w->k_norm->t.data : NULL,
                                .cos_sin = table->data, .kv = x->kv, .slot = x->batch->slot, .stride = qkv->stride[0], .layer = spec->layer,
                                .n_rows = (int32_t)qkv->shape[0], .n_heads = spec->n_heads,
                                .n_rot = spec->unrotated ? 0 : (int32_t)table->shape[2] * 2, .eps = eps,
                                .q_bf16 = qr_takes_bf16_queries(x->be->k, x->kv)};
}

struct qr_tensor qr_serve_attend_from(struct qr_exec *x, struct qr_tensor *qkv, const struct qr_attend_weights *w, float eps, const struct qr_attn_spec *spec)
{
    QR_ASSERT(x != NULL && qkv != NULL);
    QR_ASSERT(w != NULL && spec != NULL);
    const struct qr_qkv_args heads = heads_of(x, qkv, w, eps, spec);
    x->be->k->qkv(x->be->queue, &heads);
    return attend(x, qkv->data, qkv->stride[0], heads.q_bf16, qkv->shape[0], spec, NULL);
}

static struct qr_tensor serve_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                     const struct qr_attn_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL && spec != NULL);
    const struct qr_weight *norm = w->norm;
    const struct qr_tensor in = normed_in_order(x, h, &norm, w->norm_bias, eps, w->qkv);
    struct qr_linear_args a = product_of(&in, norm, eps, w->qkv, w->qkv_bias);
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

static struct qr_tensor serve_select_rows(struct qr_exec *x, const struct qr_tensor *h)
{
    QR_ASSERT(x != NULL && h != NULL);
    const struct qr_batch *b = x->batch;
    QR_ASSERT(h->n_dims == 2 && b->n_logits + b->n_hidden <= h->shape[0]);
    struct qr_tensor out = make(x, b->n_logits + b->n_hidden, h->shape[1]); /* whoever plans memory asks with any number of rows */
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

/* The head's product says what can be said of stretches of logits while they are at hand; of capped ones the cap does. Not a device's: who samples reads
 * rows that were brought. */
static struct qr_tensor run_head(struct qr_exec *x, struct qr_linear_args *a, float cap)
{
    const int64_t n = (a->n_out + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH;
    const struct qr_stretches *known = NULL;
    if (x->be->mem->host) {
        float *largest = make(x, a->n_rows, n).data, *sum = make(x, a->n_rows, n).data;
        x->stretches = (struct qr_stretches){.largest = largest, .sum = x->batch->logit_scale ? sum : NULL, .scale = x->batch->logit_scale, .stride = n};
        known = &x->stretches;
    }
    a->stretches = cap > 0 ? NULL : known;
    struct qr_tensor out = run_product(x, a);
    const struct qr_softcap_args c = {.x = out.data, .stretches = known, .stride = out.stride[0], .n_rows = a->n_rows, .n_cols = a->n_out, .cap = cap};
    if (cap > 0 && c.n_rows > 0)
        x->be->k->softcap(x->be->queue, &c);
    return out;
}

static struct qr_tensor serve_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w)
{
    struct qr_linear_args a = product_of(h, NULL, 0, w, NULL);
    return run_head(x, &a, 0);
}

/* What was said of their stretches is said anew. */
static void serve_softcap(struct qr_exec *x, struct qr_tensor *logits, float cap)
{
    QR_ASSERT(x != NULL && logits != NULL);
    QR_ASSERT(logits->n_dims == 2 && cap > 0);
    const struct qr_softcap_args a = {.x = logits->data, .stretches = x->stretches.largest ? &x->stretches : NULL, .stride = logits->stride[0],
                                      .n_rows = (int32_t)logits->shape[0], .n_cols = (int32_t)logits->shape[1], .cap = cap};
    if (a.n_rows > 0)
        x->be->k->softcap(x->be->queue, &a);
}

static struct qr_tensor serve_norm_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL && w->head != NULL);
    const struct qr_tensor rows = qr_hidden_rows_out(x, h, w, eps), in = w->norm_bias ? serve_layer_norm(x, &rows, w->norm, w->norm_bias, eps) : rows;
    struct qr_linear_args a = product_of(&in, w->norm_bias ? NULL : w->norm, eps, w->head, NULL);
    return run_head(x, &a, w->softcap);
}

/* ---- several ranks ---- */

/* Of in w^T, where each rank has some of w's inputs: rank 0's part goes onto h, with the bias, the others' in its place; the sum over ranks is h + in w^T, and
 * nobody has added anything in a pass of its own. Bits depend on where the inputs were cut, and on nothing else. */
static struct qr_linear_args part_of_sum(struct qr_exec *x, const struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w,
                                         const struct qr_weight *bias)
{
    const bool first = qr_model_share(x->model)->rank == 0;
    struct qr_linear_args a = product_onto(h, in, w, first ? bias : NULL);
    QR_ASSERT(w->split == QR_SPLIT_IN);
    a.add = first;
    return a;
}

static void sum_over_ranks(struct qr_exec *x, const struct qr_tensor *h)
{
    QR_ASSERT(h->stride[0] == h->shape[1]);
    qr_ranks_sum(x->ranks, h->data, qr_tensor_count(h));
}

/* Of a step whose rows have adapters: this rank's term of what they add joins its part of the product. */
static void adapt(struct qr_exec *x, struct qr_tensor *out, const struct qr_tensor *in, const struct qr_weight *w)
{
    if (x->batch->n_groups > 0)
        qr_lora_apply(x, out, in, w);
}

/* *h += in w^T + bias, or a norm of that, which is of the sum. */
static void ranks_half_onto(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias,
                            const struct qr_weight *norm, float eps)
{
    if (!norm) {
        const struct qr_linear_args a = part_of_sum(x, h, in, w, bias);
        x->be->k->linear(x->be->queue, &a);
        adapt(x, h, in, w);
        sum_over_ranks(x, h);
        return;
    }
    QR_ASSERT(w->split == QR_SPLIT_IN);
    struct qr_tensor delta = serve_linear(x, in, w, qr_model_share(x->model)->rank == 0 ? bias : NULL);
    adapt(x, &delta, in, w);
    sum_over_ranks(x, &delta);
    add_normed(x, h, &delta, norm, eps);
}

static void ranks_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL && mixed != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL);
    ranks_half_onto(x, h, mixed, w->out, w->out_bias, w->out_norm, eps);
    if (!qr_feed_is_chain(w)) {
        const struct qr_tensor up = feed_up(x, h, w, eps, act);
        ranks_half_onto(x, h, &up, w->down, w->down_bias, w->down_norm, eps);
        return;
    }
    struct qr_linear_args a[2] = {product_of(h, w->norm, eps, w->gate_up, w->gate_up_bias)};
    const struct qr_tensor gated = make_passing(x, &a[0], act, w->down);
    a[1] = part_of_sum(x, h, &gated, w->down, w->down_bias);
    const struct qr_chain_args chain = {.linear = a, .n = 2};
    x->be->k->chain(x->be->queue, &chain);
    sum_over_ranks(x, h);
}

/* The same one by one, where additions come between a product and what follows. */
static void ranks_adapted_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps,
                               enum qr_act act)
{
    QR_ASSERT(x != NULL && h != NULL && mixed != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL);
    ranks_half_onto(x, h, mixed, w->out, w->out_bias, w->out_norm, eps);
    const struct qr_tensor in = w->norm_bias ? serve_layer_norm(x, h, w->norm, w->norm_bias, eps) : serve_norm(x, h, w->norm, eps);
    struct qr_tensor up = qr_adapted_linear(x, &in, w->gate_up, w->gate_up_bias);
    if (w->ungated)
        serve_unit(x, &up, act);
    else
        up = serve_glu(x, &up, act);
    ranks_half_onto(x, h, &up, w->down, w->down_bias, w->down_norm, eps);
}

/* With a matrix that all ranks have. */
static struct qr_tensor ranks_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(w->split == QR_SPLIT_NONE);
    return serve_linear(x, in, w, bias);
}

static struct qr_tensor ranks_adapted_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(w->split == QR_SPLIT_NONE);
    return qr_adapted_linear(x, in, w, bias);
}

/* Each rank has some columns of every expert. All choose the same ones, as all have the same rows; rank 0's parts go onto h, the others' onto nothing. */
static void ranks_feed_experts(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_experts_weights *w, float eps,
                               const struct qr_experts_spec *spec)
{
    QR_ASSERT(x != NULL && h != NULL && mixed != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL && h->stride[0] == h->shape[1]);
    ranks_half_onto(x, h, mixed, w->out, w->out_bias, NULL, eps);
    const struct qr_tensor in = serve_norm(x, h, w->norm, eps);
    if (x->ranks && qr_model_share(x->model)->rank > 0)
        x->be->mem->zero(x->be->queue, h->data, (size_t)qr_tensor_count(h) * sizeof(float));
    qr_plain_add_experts(x, h, &in, w, spec);
    sum_over_ranks(x, h);
}

/* A rank's product with its part of the head, whose result goes where *a says. */
static void part_of_head(struct qr_exec *x, struct qr_linear_args *a, const struct qr_stretches *known, float cap)
{
    QR_ASSERT(a->w->split == QR_SPLIT_OUT && a->n_out == qr_model_share(x->model)->own.n_vocab);
    a->stretches = cap > 0 ? NULL : known;
    const struct qr_softcap_args c = {.x = a->out, .stretches = known, .stride = a->out_stride, .n_rows = a->n_rows, .n_cols = a->n_out, .cap = cap};
    if (a->n_rows > 0)
        x->be->k->linear(x->be->queue, a);
    if (cap > 0 && a->n_rows > 0)
        x->be->k->softcap(x->be->queue, &c);
}

/* Each rank fills its columns of all rows, and rank 0 collects them. Where these are no whole stretches, nothing is said of stretches. */
static struct qr_tensor collect_logits(struct qr_exec *x, struct qr_linear_args *a, float cap)
{
    const struct qr_share *s = qr_model_share(x->model);
    const int64_t n = (s->whole.n_vocab + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH, first = s->first_vocab / QR_LINEAR_STRETCH;
    float *largest = make(x, a->n_rows, n).data, *sum = make(x, a->n_rows, n).data;
    const struct qr_tensor out = make(x, a->n_rows, s->whole.n_vocab);
    const bool sums = s->whole_stretches && x->batch->logit_scale;
    const struct qr_stretches own = {.largest = largest + first, .sum = sums ? sum + first : NULL, .scale = x->batch->logit_scale, .stride = n};
    a->out = (float *)out.data + s->first_vocab;
    a->out_stride = out.stride[0];
    part_of_head(x, a, s->whole_stretches ? &own : NULL, cap);
    qr_ranks_collect(x->ranks, out.data, s->whole_stretches ? largest : NULL, sums ? sum : NULL, a->n_rows);
    if (s->whole_stretches)
        x->stretches = (struct qr_stretches){.largest = largest, .sum = sums ? sum : NULL, .scale = x->batch->logit_scale, .stride = n};
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
    part_of_head(x, a, NULL, cap);
    qr_ranks_collect_packed(x->ranks, out.data, room.data, a->n_rows);
    return out;
}

static struct qr_tensor ranks_norm_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(w != NULL && w->norm != NULL && w->head != NULL);
    const struct qr_tensor rows = qr_hidden_rows_out(x, h, w, eps), in = w->norm_bias ? serve_layer_norm(x, &rows, w->norm, w->norm_bias, eps) : rows;
    struct qr_linear_args a = product_of(&in, w->norm_bias ? NULL : w->norm, eps, w->head, NULL);
    return qr_model_on_device(x->model) ? collect_packed(x, &a, w->softcap) : collect_logits(x, &a, w->softcap);
}

/* ---- layers, and the tables ---- */

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
}

/* The verbs that are one kernel each, on one rank or on several. */
#define PLAIN_VERBS(product) \
    .embed = serve_embed, \
    .norm = serve_norm, \
    .layer_norm = serve_layer_norm, \
    .add_positions = serve_add_positions, \
    .residual_norm = serve_residual_norm, \
    .residual_add = serve_residual_add, \
    .linear = product, \
    .qk_norm = serve_qk_norm, \
    .rope = serve_rope, \
    .attention = serve_attention, \
    .glu = serve_glu, \
    .experts = serve_experts, \
    .select_rows = serve_select_rows, \
    .scope_begin = serve_scope_begin, \
    .scope_end = serve_scope_end

/* Those of one rank alone. */
#define ALONE_VERBS \
    .unit = serve_unit, \
    .logits = serve_logits, \
    .softcap = serve_softcap

const struct qr_ops qr_ops_serve = {
    PLAIN_VERBS(serve_linear),
    ALONE_VERBS,
    .attend = serve_attend,
    .feed = serve_feed,
    .feed_experts = serve_feed_experts,
    .norm_logits = serve_norm_logits,
};

/* attend is a rank's own heads; of the head no rank has all (norm_logits). */
#define RANKS_VERBS(product) \
    PLAIN_VERBS(product), \
    .feed_experts = ranks_feed_experts, \
    .norm_logits = ranks_norm_logits

const struct qr_ops qr_ops_ranks = {
    RANKS_VERBS(ranks_linear),
    .attend = serve_attend,
    .feed = ranks_feed,
};

const struct qr_ops qr_ops_ranks_adapted = {
    RANKS_VERBS(ranks_adapted_linear),
    .attend = qr_adapted_attend,
    .feed = ranks_adapted_feed,
};

const struct qr_ops qr_ops_plain = {
    PLAIN_VERBS(serve_linear),
    ALONE_VERBS,
    .attend = qr_plain_attend,
    .feed = qr_plain_feed,
    .feed_experts = qr_plain_feed_experts,
    .norm_logits = qr_plain_norm_logits,
};

const struct qr_ops qr_ops_apart = {
    PLAIN_VERBS(apart_linear),
    ALONE_VERBS,
    .attend = qr_plain_attend,
    .feed = qr_plain_feed,
    .feed_experts = qr_plain_feed_experts,
    .norm_logits = qr_plain_norm_logits,
};

const struct qr_ops qr_ops_adapted = {
    PLAIN_VERBS(qr_adapted_linear),
    ALONE_VERBS,
    .attend = qr_adapted_attend,
    .feed = qr_adapted_feed,
    .feed_experts = qr_plain_feed_experts,
    .norm_logits = serve_norm_logits,
};
