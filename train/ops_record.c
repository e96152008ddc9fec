/* The verbs for training: each appends a node, computes with the kernels that serve, and says what its way back reads.
 * Updating a tensor means making a new one and pointing the handle at it, so that what a norm has saved stays as it
 * was; only the rotation works in place (no verb's way back reads its input, and its own is the rotation back). */
#include "base/assert.h"
#include "train/record.h"

/* Rows of src to dst, which has as many numbers in a row; heads of a row lie together in both. */
static void copy_rows(const struct qr_tape *t, const struct qr_tensor *dst, const struct qr_tensor *src)
{
    const size_t size = qr_dtype_bytes(t->real), n_bytes = (size_t)(qr_tensor_count(dst) / (dst->shape[0] ? dst->shape[0] : 1)) * size;
    QR_ASSERT(dst->shape[0] == src->shape[0] && qr_tensor_count(dst) == qr_tensor_count(src));
    const struct qr_backend *be = t->exec.be;
    be->mem->copy(be->queue, dst->data, (size_t)dst->stride[0] * size, src->data, (size_t)src->stride[0] * size, n_bytes, dst->shape[0]);
}

/* dst += src, row by row. */
static void add_rows(struct qr_tape *t, const struct qr_tensor *dst, const struct qr_tensor *src)
{
    const struct qr_add_args a = {.x = dst->data, .delta = src->data, .x_stride = dst->stride[0], .delta_stride = src->stride[0],
                                  .n_rows = (int32_t)dst->shape[0], .n_cols = (int32_t)dst->shape[1]};
    t->exec.be->k->residual_add(t->exec.be->queue, &a);
}

static void scale_rows(struct qr_tape *t, const struct qr_tensor *x, double factor)
{
    QR_ASSERT(x->stride[0] == x->shape[1]);
    const struct qr_scale_args a = {.out = x->data, .x = x->data, .n = x->shape[0] * x->shape[1], .scale = factor};
    t->exec.be->b->scale(t->exec.be->queue, &a);
}

/* ---- embed ---- */

static void embed_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_embed_args a = {.out = n->out[0].data, .table = &n->w->t, .ids = t->exec.batch->ids, .out_stride = n->out[0].stride[0],
                                    .n_rows = (int32_t)n->out[0].shape[0], .scale = n->number};
    t->exec.be->k->embed(t->exec.be->queue, &a);
}

static void embed_rows_back(struct qr_tape *t, const struct qr_node *n, const struct qr_tensor *dout, const int32_t *ids)
{
    const struct qr_embed_back_args a = {.dtable = qr_params_grad(t->params, n->w), .dout = dout->data, .ids = ids, .dout_stride = dout->stride[0],
                                         .n_rows = (int32_t)dout->shape[0], .n_cols = (int32_t)dout->shape[1],
                                         .n_vocab = (int32_t)n->w->t.shape[0], .scale = n->number};
    t->exec.be->b->embed(t->exec.be->queue, &a);
}

/* What waited goes first: the order is that of the rows (qr_tape_micro). */
static void embed_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor dout = qr_tape_grad(t, &n->out[0]);
    const int64_t n_rows = dout.shape[0], n_cols = dout.shape[1];
    if (!t->last_micro) {
        QR_ASSERT(t->n_later + n_rows <= t->later_max);
        const struct qr_tensor place = qr_tensor_2d((char *)t->later + (size_t)(t->n_later * n_cols) * qr_dtype_bytes(t->real), t->real, n_rows, n_cols);
        copy_rows(t, &place, &dout);
        const size_t n_bytes = (size_t)n_rows * sizeof *t->later_ids;
        t->exec.be->mem->copy(t->exec.be->queue, t->later_ids + t->n_later, n_bytes, t->exec.batch->ids, n_bytes, n_bytes, 1);
        t->n_later += (int32_t)n_rows;
        t->n_later_peak = t->n_later > t->n_later_peak ? t->n_later : t->n_later_peak;
        return;
    }
    const struct qr_tensor waited = qr_tensor_2d(t->later, t->real, t->n_later, n_cols);
    if (t->n_later > 0)
        embed_rows_back(t, n, &waited, t->later_ids);
    t->n_later = 0;
    embed_rows_back(t, n, &dout, t->exec.batch->ids);
}

static const struct qr_verb verb_embed = {.name = "embed", .run = embed_run, .back = embed_back};

static struct qr_tensor record_embed(struct qr_exec *x, const struct qr_weight *w, float scale)
{
    QR_ASSERT(x != NULL && w != NULL);
    QR_ASSERT(w->t.n_dims == 2);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_embed);
    n->w = w;
    n->number = scale;
    n->out[0] = qr_tape_result(t, n, x->batch->n_tokens, w->t.shape[1]);
    qr_tape_run(t, n);
    return n->out[0];
}

/* ---- norm ---- */

static void norm_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *x = &n->in[0];
    const struct qr_norm_args a = {.out = n->out[0].data, .x = x->data, .w = n->w->t.data, .out_stride = n->out[0].stride[0], .x_stride = x->stride[0],
                                   .n_rows = (int32_t)x->shape[0], .n_cols = (int32_t)x->shape[1], .eps = n->number};
    if (a.n_rows > 0)
        t->exec.be->k->rms_norm(t->exec.be->queue, &a);
}

static void norm_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *x = &n->in[0];
    const struct qr_tensor dx = qr_tape_grad(t, x), dy = qr_tape_grad(t, &n->out[0]);
    double factor;
    const void *w = qr_params_vector(t->params, n->w, &factor);
    if (factor != 1) /* the vector's own gradient, not that of the one that is computed with: its factor goes to what arrives */
        scale_rows(t, &dy, factor);
    const struct qr_norm_back_args a = {.dx = dx.data, .dw = qr_params_grad(t->params, n->w), .dy = dy.data, .x = x->data, .w = w,
                                  .dx_stride = dx.stride[0], .dy_stride = dy.stride[0], .x_stride = x->stride[0],
                                  .n_rows = (int32_t)x->shape[0], .n_cols = (int32_t)x->shape[1], .eps = n->number};
    t->exec.be->b->rms_norm(t->exec.be->queue, &a);
}

static const struct qr_verb verb_norm = {.name = "norm", .run = norm_run, .back = norm_back, .cheap = true};

static struct qr_tensor record_norm(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w, float eps)
{
    QR_ASSERT(x != NULL && h != NULL && w != NULL);
    QR_ASSERT(h->n_dims == 2 && w->t.shape[0] == h->shape[1]);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_norm);
    n->in[0] = *h;
    n->w = w;
    n->number = eps;
    n->out[0] = qr_tape_result(t, n, h->shape[0], h->shape[1]);
    qr_tape_save(t, n, h, "x");
    qr_tape_run(t, n);
    return n->out[0];
}

/* ---- residual_add: in h, delta; out the sum ---- */

static void add_run(struct qr_tape *t, const struct qr_node *n)
{
    copy_rows(t, &n->out[0], &n->in[0]);
    add_rows(t, &n->out[0], &n->in[1]);
}

static void add_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor dsum = qr_tape_grad(t, &n->out[0]), dh = qr_tape_grad(t, &n->in[0]), ddelta = qr_tape_grad(t, &n->in[1]);
    add_rows(t, &dh, &dsum);
    add_rows(t, &ddelta, &dsum);
}

static const struct qr_verb verb_residual_add = {.name = "residual_add", .run = add_run, .back = add_back};

static void record_residual_add(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *delta)
{
    QR_ASSERT(x != NULL && h != NULL && delta != NULL);
    QR_ASSERT(h->shape[0] == delta->shape[0] && h->shape[1] == delta->shape[1]);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_residual_add);
    n->in[0] = *h;
    n->in[1] = *delta;
    n->out[0] = qr_tape_result(t, n, h->shape[0], h->shape[1]);
    qr_tape_run(t, n);
    *h = n->out[0];
}

/* ---- linear ---- */

static void linear_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_linear_args a = {.out = n->out[0].data, .x = n->in[0].data, .w = n->w, .bias = n->bias ? n->bias->t.data : NULL,
                                     .out_stride = n->out[0].stride[0], .x_stride = n->in[0].stride[0], .n_rows = (int32_t)n->in[0].shape[0],
                                     .n_in = (int32_t)n->in[0].shape[1], .n_out = (int32_t)n->w->t.shape[0]};
    if (a.n_rows > 0)
        t->exec.be->k->linear(t->exec.be->queue, &a);
}

static void linear_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *const in = &n->in[0];
    const bool fresh = qr_tape_grads_are_fresh(t, &in, 1);
    const struct qr_tensor dx = qr_tape_grad(t, &n->in[0]), dy = qr_tape_grad(t, &n->out[0]);
    const int32_t n_rows = (int32_t)dx.shape[0], n_in = (int32_t)dx.shape[1], n_out = (int32_t)dy.shape[1];
    const struct qr_linear_dx_args x = {.dx = dx.data, .dy = dy.data, .w = n->w, .dx_stride = dx.stride[0], .dy_stride = dy.stride[0],
                                        .n_rows = n_rows, .n_in = n_in, .n_out = n_out, .fresh = fresh};
    const bool fresh_dw = qr_params_grad_is_fresh(t->params, n->w);
    const struct qr_linear_dw_args w = {.dw = qr_params_grad(t->params, n->w), .dbias = n->bias ? qr_params_grad(t->params, n->bias) : NULL,
                                        .dy = dy.data, .x = n->in[0].data, .dy_stride = dy.stride[0], .x_stride = n->in[0].stride[0],
                                        .n_rows = n_rows, .n_in = n_in, .n_out = n_out, .product = n->w->t.dtype, .fresh = fresh_dw};
    t->exec.be->b->linear_dx(t->exec.be->queue, &x);
    t->exec.be->b->linear_dw(t->exec.be->queue, &w);
}

static const struct qr_verb verb_linear = {.name = "linear", .run = linear_run, .back = linear_back};

static struct qr_tensor record_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias)
{
    QR_ASSERT(x != NULL && in != NULL && w != NULL);
    QR_ASSERT(in->n_dims == 2 && in->shape[1] == w->t.shape[1] && (!bias || bias->t.shape[0] == w->t.shape[0]));
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_linear);
    n->in[0] = *in;
    n->w = w;
    n->bias = bias;
    n->out[0] = qr_tape_result(t, n, in->shape[0], w->t.shape[0]);
    qr_tape_save(t, n, in, "x");
    qr_tape_run(t, n);
    return n->out[0];
}

/* ---- qk_norm ---- */

static void qk_norm_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *y = &n->out[0];
    const struct qr_head_norm_args a = {.x = y->data, .w = n->w->t.data, .stride = y->stride[0], .n_rows = (int32_t)y->shape[0],
                                        .n_heads = (int32_t)y->shape[1], .head_dim = (int32_t)y->shape[2], .eps = n->number};
    copy_rows(t, y, &n->in[0]);
    t->exec.be->k->head_norm(t->exec.be->queue, &a);
}

static void qk_norm_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor dx = qr_tape_grad(t, &n->in[0]), dy = qr_tape_grad(t, &n->out[0]);
    const struct qr_head_norm_back_args a = {.dx = dx.data, .dw = qr_params_grad(t->params, n->w), .dy = dy.data, .x = n->in[0].data,
                                             .w = n->w->t.data, .dx_stride = dx.stride[0], .dy_stride = dy.stride[0],
                                             .x_stride = n->in[0].stride[0], .n_rows = (int32_t)dx.shape[0], .n_heads = (int32_t)dx.shape[1],
                                             .head_dim = (int32_t)dx.shape[2], .eps = n->number};
    t->exec.be->b->head_norm(t->exec.be->queue, &a);
}

static const struct qr_verb verb_qk_norm = {.name = "qk_norm", .run = qk_norm_run, .back = qk_norm_back};

static void record_qk_norm(struct qr_exec *x, struct qr_tensor *q, const struct qr_weight *w, float eps)
{
    QR_ASSERT(x != NULL && q != NULL && w != NULL);
    QR_ASSERT(q->n_dims == 3 && w->t.shape[0] == q->shape[2]);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_qk_norm);
    n->in[0] = *q;
    n->w = w;
    n->number = eps;
    n->out[0] = qr_tape_result(t, n, q->shape[0], q->shape[1] * q->shape[2]);
    n->out[0] = qr_tensor_heads(&n->out[0], q->shape[1], q->shape[2]);
    qr_tape_save(t, n, q, "x");
    qr_tape_run(t, n);
    *q = n->out[0];
}

/* ---- rope: in place ---- */

static struct qr_rope_args rope_args(const struct qr_tape *t, const struct qr_tensor *x)
{
    return (struct qr_rope_args){.x = x->data, .cos_sin = t->exec.cos_sin.data, .stride = x->stride[0], .n_rows = (int32_t)x->shape[0],
                                 .n_heads = (int32_t)x->shape[1], .head_dim = (int32_t)x->shape[2], .n_rot = (int32_t)t->exec.cos_sin.shape[2] * 2};
}

static void rope_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_rope_args a = rope_args(t, &n->in[0]);
    t->exec.be->k->rope(t->exec.be->queue, &a);
}

static void rope_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor dx = qr_tape_grad(t, &n->in[0]);
    const struct qr_rope_args a = rope_args(t, &dx);
    t->exec.be->b->rope(t->exec.be->queue, &a);
}

static const struct qr_verb verb_rope = {.name = "rope", .run = rope_run, .back = rope_back};

static void record_rope(struct qr_exec *x, struct qr_tensor *q, bool local)
{
    QR_ASSERT(!local);
    QR_ASSERT(x != NULL && q != NULL);
    QR_ASSERT(q->n_dims == 3 && x->cos_sin.n_dims == 3 && q->shape[0] == x->cos_sin.shape[0]);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_rope);
    n->in[0] = *q;
    qr_tape_run(t, n);
    qr_tape_touch(t, n, q);
}

/* ---- attention: in q, k, v; out the mixed values, and the log-sum-exp ---- */

static void attention_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *q = &n->in[0], *k = &n->in[1], *v = &n->in[2];
    const struct qr_kv_write_args write = {.kv = t->exec.kv, .k = k->data, .v = v->data, .slot = t->exec.batch->slot, .k_stride = k->stride[0],
                                           .v_stride = v->stride[0], .layer = n->spec.layer, .n_rows = (int32_t)k->shape[0]};
    const struct qr_attention_args a = {.out = n->out[0].data, .q = q->data, .lse = n->out[1].data, .batch = t->exec.batch, .kv = t->exec.kv,
                                        .out_stride = n->out[0].stride[0], .q_stride = q->stride[0], .layer = n->spec.layer,
                                        .n_heads = n->spec.n_heads, .window = n->spec.window, .scale = n->spec.scale, .softcap = n->spec.softcap};
    t->exec.be->k->kv_write(t->exec.be->queue, &write);
    t->exec.be->k->attention(t->exec.be->queue, &a);
}

static void attention_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *const in[] = {&n->in[0], &n->in[1], &n->in[2]};
    const bool fresh = qr_tape_grads_are_fresh(t, in, 3);
    const struct qr_tensor dq = qr_tape_grad(t, &n->in[0]), dk = qr_tape_grad(t, &n->in[1]), dv = qr_tape_grad(t, &n->in[2]);
    const struct qr_tensor dout = qr_tape_grad(t, &n->out[0]);
    const struct qr_attention_back_args a = {.dq = dq.data, .dk = dk.data, .dv = dv.data, .dout = dout.data, .out = n->out[0].data,
                                             .q = n->in[0].data, .lse = n->out[1].data, .batch = t->exec.batch, .kv = t->exec.kv,
                                             .dq_stride = dq.stride[0], .dk_stride = dk.stride[0], .dv_stride = dv.stride[0],
                                             .dout_stride = dout.stride[0], .out_stride = n->out[0].stride[0], .q_stride = n->in[0].stride[0],
                                             .layer = n->spec.layer, .n_heads = n->spec.n_heads, .window = n->spec.window,
                                             .scale = n->spec.scale, .softcap = n->spec.softcap, .fresh = fresh};
    t->exec.be->b->attention(t->exec.be->queue, &a);
}

static const struct qr_verb verb_attention = {.name = "attention", .run = attention_run, .back = attention_back};

/* Keys and values are in the cache, which no verb changes after this one; so only q, the result and its denominators are saved. */
static struct qr_tensor record_attention(struct qr_exec *x, const struct qr_tensor *q, const struct qr_tensor *k, const struct qr_tensor *v,
                                         const struct qr_attn_spec *spec)
{
    QR_ASSERT(x != NULL && q != NULL && k != NULL && v != NULL && spec != NULL);
    QR_ASSERT(q->shape[1] == spec->n_heads && q->shape[2] == spec->head_dim && k->shape[1] == spec->n_kv_heads);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_attention);
    n->in[0] = *q;
    n->in[1] = *k;
    n->in[2] = *v;
    n->spec = *spec;
    n->out[0] = qr_tape_result(t, n, q->shape[0], q->shape[1] * q->shape[2]);
    n->out[1] = qr_tape_result(t, n, q->shape[0], q->shape[1]);
    qr_tape_save(t, n, q, "q");
    qr_tape_save(t, n, &n->out[0], "out");
    qr_tape_save(t, n, &n->out[1], "lse");
    qr_tape_run(t, n);
    return n->out[0];
}

/* ---- glu ---- */

static void glu_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_glu_args a = {.out = n->out[0].data, .gate_up = n->in[0].data, .out_stride = n->out[0].stride[0],
                                  .gate_up_stride = n->in[0].stride[0], .n_rows = (int32_t)n->out[0].shape[0],
                                  .n_cols = (int32_t)n->out[0].shape[1], .act = n->act};
    t->exec.be->k->glu(t->exec.be->queue, &a);
}

static void glu_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *const in = &n->in[0];
    const bool fresh = qr_tape_grads_are_fresh(t, &in, 1);
    const struct qr_tensor d = qr_tape_grad(t, &n->in[0]), dout = qr_tape_grad(t, &n->out[0]);
    const struct qr_glu_back_args a = {.dgate_up = d.data, .dout = dout.data, .gate_up = n->in[0].data, .dgate_up_stride = d.stride[0],
                                       .dout_stride = dout.stride[0], .gate_up_stride = n->in[0].stride[0], .n_rows = (int32_t)dout.shape[0],
                                       .n_cols = (int32_t)dout.shape[1], .act = n->act, .fresh = fresh};
    t->exec.be->b->glu(t->exec.be->queue, &a);
}

static const struct qr_verb verb_glu = {.name = "glu", .run = glu_run, .back = glu_back, .cheap = true};

static struct qr_tensor record_glu(struct qr_exec *x, const struct qr_tensor *gate_up, enum qr_act act)
{
    QR_ASSERT(x != NULL && gate_up != NULL);
    QR_ASSERT(gate_up->n_dims == 2 && gate_up->shape[1] % 2 == 0);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_glu);
    n->in[0] = *gate_up;
    n->act = act;
    n->out[0] = qr_tape_result(t, n, gate_up->shape[0], gate_up->shape[1] / 2);
    qr_tape_save(t, n, gate_up, "gate_up");
    qr_tape_run(t, n);
    return n->out[0];
}

/* ---- select_rows ---- */

static void select_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_gather_args a = {.out = n->out[0].data, .x = n->in[0].data, .row = t->exec.batch->logit_row, .out_stride = n->out[0].stride[0],
                                     .x_stride = n->in[0].stride[0], .n_rows = (int32_t)n->out[0].shape[0], .n_cols = (int32_t)n->in[0].shape[1]};
    if (a.n_rows > 0)
        t->exec.be->k->gather_rows(t->exec.be->queue, &a);
}

static void select_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor dx = qr_tape_grad(t, &n->in[0]), dout = qr_tape_grad(t, &n->out[0]);
    const struct qr_scatter_args a = {.dx = dx.data, .dout = dout.data, .row = t->exec.batch->logit_row, .dx_stride = dx.stride[0],
                                      .dout_stride = dout.stride[0], .n_rows = (int32_t)dout.shape[0], .n_cols = (int32_t)dout.shape[1]};
    t->exec.be->b->scatter_rows(t->exec.be->queue, &a);
}

static const struct qr_verb verb_select_rows = {.name = "select_rows", .run = select_run, .back = select_back};

static struct qr_tensor record_select_rows(struct qr_exec *x, const struct qr_tensor *h)
{
    QR_ASSERT(x != NULL && h != NULL);
    QR_ASSERT(h->n_dims == 2 && x->batch->n_logits <= h->shape[0]);
    struct qr_tape *t = qr_tape_of(x);
    struct qr_node *n = qr_tape_node(t, &verb_select_rows);
    n->in[0] = *h;
    n->out[0] = qr_tape_result(t, n, x->batch->n_logits, h->shape[1]);
    qr_tape_run(t, n);
    return n->out[0];
}

/* ---- logits: with the loss they never exist together, so its gradient is computed on the way ---- */

static void loss_run(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor *const in = &n->in[0];
    qr_tape_open_gradients(t);
    const bool fresh = t->gradients && qr_tape_grads_are_fresh(t, &in, 1), fresh_dw = t->gradients && qr_params_grad_is_fresh(t->params, n->w);
    const struct qr_tensor dx = t->gradients ? qr_tape_grad(t, in) : *in;
    const struct qr_linear_ce_args a = {.dx = t->gradients ? dx.data : NULL, .dw = t->gradients ? qr_params_grad(t->params, n->w) : NULL,
                                        .logits = t->logits, .loss = t->losses, .x = n->in[0].data, .w = n->w, .target = t->target,
                                        .x_stride = n->in[0].stride[0], .dx_stride = dx.stride[0], .n_rows = (int32_t)n->in[0].shape[0],
                                        .n_in = (int32_t)n->in[0].shape[1], .n_vocab = (int32_t)n->w->t.shape[0],
                                        .chunk_rows = t->o.chunk_rows, .real = t->real, .scale = t->scale,
                                        .fresh_dx = fresh, .fresh_dw = fresh_dw, .rows = t->gradients ? t->loss_rows : NULL, .user = t->loss_user};
    qr_linear_cross_entropy(t->exec.be->k, t->exec.be->b, t->exec.be->queue, &a);
}

static void loss_back(struct qr_tape *t, const struct qr_node *n)
{
    QR_ASSERT(n != NULL);
    QR_ASSERT(n->w != NULL);
}

static const struct qr_verb verb_loss = {.name = "loss", .run = loss_run, .back = loss_back};

static struct qr_tensor record_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w)
{
    QR_ASSERT(x != NULL && h != NULL && w != NULL);
    QR_ASSERT(h->n_dims == 2 && h->shape[1] == w->t.shape[1]);
    struct qr_tape *t = qr_tape_of(x);
    if (t->o.logits)
        return record_linear(x, h, w, NULL);
    QR_ASSERT(h->shape[0] == t->n_targets && t->in_scope < 0);
    struct qr_node *n = qr_tape_node(t, &verb_loss);
    n->in[0] = *h;
    n->w = w;
    qr_tape_run(t, n);
    return *h;
}

/* ---- scopes ---- */

static void keep_run(struct qr_tape *t, const struct qr_node *n)
{
    copy_rows(t, &n->out[0], &n->in[0]);
}

static void keep_back(struct qr_tape *t, const struct qr_node *n)
{
    const struct qr_tensor dh = qr_tape_grad(t, &n->in[0]), dkept = qr_tape_grad(t, &n->out[0]);
    add_rows(t, &dh, &dkept);
}

static const struct qr_verb verb_keep = {.name = "scope_end", .run = keep_run, .back = keep_back};

static size_t record_scope_begin(struct qr_exec *x)
{
    QR_ASSERT(x != NULL);
    struct qr_tape *t = qr_tape_of(x);
    QR_ASSERT(t->in_scope < 0);
    qr_tape_scope_begin(t);
    return qr_arena_mark(&t->keep);
}

/* A layer's result outlives it: what would be overwritten by the next layer moves to what is kept. */
static void record_scope_end(struct qr_exec *x, struct qr_tensor *h, size_t mark)
{
    QR_ASSERT(x != NULL && h != NULL);
    struct qr_tape *t = qr_tape_of(x);
    QR_ASSERT(t->in_scope >= 0 && mark <= t->keep.used);
    if (t->o.recompute == QR_RECOMPUTE_FULL) {
        struct qr_node *n = qr_tape_node(t, &verb_keep);
        n->redo = false;
        n->in[0] = *h;
        n->out[0] = qr_tape_result(t, n, h->shape[0], h->shape[1]);
        qr_tape_run(t, n);
        *h = n->out[0];
    }
    qr_tape_scope_end(t);
}

const struct qr_ops qr_ops_record = {
    .embed = record_embed,
    .norm = record_norm,
    .residual_add = record_residual_add,
    .linear = record_linear,
    .qk_norm = record_qk_norm,
    .rope = record_rope,
    .attention = record_attention,
    .glu = record_glu,
    .select_rows = record_select_rows,
    .logits = record_logits,
    .attend = qr_plain_attend,
    .feed = qr_plain_feed,
    .norm_logits = qr_plain_norm_logits,
    .scope_begin = record_scope_begin,
    .scope_end = record_scope_end,
};
