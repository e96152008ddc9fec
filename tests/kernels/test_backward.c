/* Every entry of backward.h against central finite differences of the forward entry, both in double, for the forward tests' own case table.
 *
 * The derivative along d is taken by the five-point rule, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h. With h = 1e-3 its own error is h^4 / 30
 * times the fifth derivative, 3e-14, and rounding adds some 1e-16 / h = 1e-13 of the outputs: the 1e-7 of the largest gradient that is asked
 * for leaves room for inputs that make higher derivatives large (softmax of steep scores, norms of short rows). */
#include "tests/kernels/attn_world.h"
#include "tests/kernels/util.h"
#include "tests/ops_cases.h"

#include "tests/kernels/wide_oracle.h"

#define SEED 515
#define H 1e-3
#define INPUTS_MAX 4

/* An operation as the checker sees it: inputs with the gradients to be checked, outputs and the weights c of f = sum c . out. */
struct op {
    void (*forward)(void *ctx);
    void *ctx;
    double *in[INPUTS_MAX], *grad[INPUTS_MAX];
    int64_t n_in[INPUTS_MAX], n_out;
    double *out, *c;
    int32_t n_inputs, n_single; /* single elements tried of each input, beside one direction through all of them */
};

static double *random_doubles(struct qr_rng *r, int64_t n)
{
    double *x = qr_alloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)random_float(r);
    return x;
}

static double *zeros(int64_t n)
{
    return qr_alloc((size_t)n + 1, sizeof(double));
}

/* Adds sign * weight * c . out to *sum element by element, so that what does not change cancels exactly. */
static void outputs_at(struct op *o, double *total, int32_t which, const double *saved, const double *dir, double step, double weight)
{
    for (int64_t i = 0; i < o->n_in[which]; i++)
        o->in[which][i] = saved[i] + step * dir[i];
    o->forward(o->ctx);
    for (int64_t i = 0; i < o->n_out; i++)
        total[i] += weight * o->out[i];
}

static double difference(struct op *o, int32_t which, const double *dir)
{
    double *saved = qr_alloc((size_t)o->n_in[which] + 1, sizeof *saved), *total = zeros(o->n_out), sum = 0;
    memcpy(saved, o->in[which], (size_t)o->n_in[which] * sizeof *saved);
    outputs_at(o, total, which, saved, dir, H, 8);
    outputs_at(o, total, which, saved, dir, -H, -8);
    outputs_at(o, total, which, saved, dir, 2 * H, -1);
    outputs_at(o, total, which, saved, dir, -2 * H, 1);
    memcpy(o->in[which], saved, (size_t)o->n_in[which] * sizeof *saved);
    for (int64_t i = 0; i < o->n_out; i++)
        sum += o->c[i] * total[i];
    qr_free(saved), qr_free(total);
    return sum / (12 * H);
}

static void check(struct op *o, const char *what, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    double largest = 0;
    for (int32_t k = 0; k < o->n_inputs; k++)
        for (int64_t i = 0; i < o->n_in[k]; i++)
            largest = fmax(largest, fabs(o->grad[k][i]));
    cr_assert(largest > 0 && isfinite(largest), "%s: gradients are zero or not finite", what);
    for (int32_t k = 0; k < o->n_inputs; k++)
        for (int32_t s = -1; s < o->n_single; s++) {
            double *dir = zeros(o->n_in[k]), want = 0;
            if (s < 0)
                for (int64_t i = 0; i < o->n_in[k]; i++)
                    dir[i] = (qr_rng_below(&r, 2) ? 1 : -1) / sqrt((double)o->n_in[k]);
            else
                dir[qr_rng_below(&r, (uint32_t)o->n_in[k])] = 1;
            for (int64_t i = 0; i < o->n_in[k]; i++)
                want += dir[i] * o->grad[k][i];
            double found = difference(o, k, dir);
            cr_assert(fabs(found - want) <= 1e-7 * largest, "%s, input %d, try %d: the gradient says %.12g, differences %.12g (largest %.3g)",
                      what, k, s, want, found, largest);
            qr_free(dir);
        }
}

static void op_drop(struct op *o)
{
    for (int32_t k = 0; k < o->n_inputs; k++)
        qr_free(o->in[k]), qr_free(o->grad[k]);
    qr_free(o->out), qr_free(o->c);
}

/* n_in random numbers each, room for gradients, outputs and their weights. */
static struct op op_new(struct qr_rng *r, void (*forward)(void *), void *ctx, int32_t n_inputs, const int64_t *n_in, int64_t n_out)
{
    struct op o = {.forward = forward, .ctx = ctx, .n_inputs = n_inputs, .n_out = n_out, .out = zeros(n_out), .n_single = 6};
    for (int32_t k = 0; k < n_inputs; k++) {
        o.n_in[k] = n_in[k];
        o.in[k] = random_doubles(r, n_in[k]);
        o.grad[k] = zeros(n_in[k]);
    }
    o.c = random_doubles(r, n_out);
    return o;
}

/* ---- linear ---- */

static void run_linear(void *ctx)
{
    wide->linear(NULL, ctx);
}

static void check_linear(struct qr_linear_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct qr_weight w = {.packed_dtype = QR_F64};
    struct qr_linear_args a = {.w = &w, .out_stride = c.n_out, .x_stride = c.n_in, .n_rows = c.n_rows, .n_in = c.n_in, .n_out = c.n_out};
    struct op o = op_new(&r, run_linear, &a, 3, (int64_t[]){(int64_t)c.n_rows * c.n_in, (int64_t)c.n_out * c.n_in, c.n_out},
                         (int64_t)c.n_rows * c.n_out);
    w.packed = o.in[1];
    w.t = qr_tensor_2d(o.in[1], QR_F64, c.n_out, c.n_in);
    a.x = (float *)o.in[0], a.bias = (float *)o.in[2], a.out = (float *)o.out;
    o.n_single = 2;
    const struct qr_linear_dx_args dx = {.dx = (float *)o.grad[0], .dy = (float *)o.c, .w = &w, .dx_stride = c.n_in, .dy_stride = c.n_out,
                                         .n_rows = c.n_rows, .n_in = c.n_in, .n_out = c.n_out};
    const struct qr_linear_dw_args dw = {.dw = (float *)o.grad[1], .dbias = (float *)o.grad[2], .dy = (float *)o.c, .x = a.x,
                                         .dy_stride = c.n_out, .x_stride = c.n_in, .n_rows = c.n_rows, .n_in = c.n_in, .n_out = c.n_out,
                                         .product = QR_F64};
    wide_back->linear_dx(NULL, &dx);
    wide_back->linear_dw(NULL, &dw);
    check(&o, "linear", seed);
    op_drop(&o);
}

Test(backward, of_linear_is_what_finite_differences_say)
{
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(qr_linear_cases); i++)
        if (qr_linear_cases[i].use & QR_CASE_CHECK)
            check_linear(qr_linear_cases[i], SEED + (uint64_t)i);
}

/* ---- rows ---- */

static void run_norm(void *ctx)
{
    wide->rms_norm(NULL, ctx);
}

static void check_norm(struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    int64_t n = (int64_t)c.n_rows * c.n_cols;
    struct qr_norm_args a = {.out_stride = c.n_cols, .x_stride = c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols, .eps = 1e-3f};
    struct op o = op_new(&r, run_norm, &a, 2, (int64_t[]){n, c.n_cols}, n);
    a.out = (float *)o.out, a.x = (float *)o.in[0], a.w = (float *)o.in[1];
    const struct qr_norm_back_args b = {.dx = (float *)o.grad[0], .dw = (float *)o.grad[1], .dy = (float *)o.c, .x = a.x, .w = a.w,
                                        .dx_stride = c.n_cols, .dy_stride = c.n_cols, .x_stride = c.n_cols, .n_rows = c.n_rows,
                                        .n_cols = c.n_cols, .eps = a.eps};
    wide_back->rms_norm(NULL, &b);
    check(&o, "norm", seed);
    op_drop(&o);
}

static void run_glu(void *ctx)
{
    wide->glu(NULL, ctx);
}

static void check_glu(struct qr_rows_case c, uint64_t seed)
{
    for (int act = QR_ACT_SILU; act <= QR_ACT_GELU_TANH; act++) {
        struct qr_rng r = {.seed = seed};
        int64_t n = (int64_t)c.n_rows * c.n_cols;
        struct qr_glu_args a = {.out_stride = c.n_cols, .gate_up_stride = 2 * c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols, .act = act};
        struct op o = op_new(&r, run_glu, &a, 1, (int64_t[]){2 * n}, n);
        a.out = (float *)o.out, a.gate_up = (float *)o.in[0];
        const struct qr_glu_back_args b = {.dgate_up = (float *)o.grad[0], .dout = (float *)o.c, .gate_up = a.gate_up,
                                           .dgate_up_stride = 2 * c.n_cols, .dout_stride = c.n_cols, .gate_up_stride = 2 * c.n_cols,
                                           .n_rows = c.n_rows, .n_cols = c.n_cols, .act = act};
        wide_back->glu(NULL, &b);
        check(&o, act == QR_ACT_SILU ? "glu silu" : "glu gelu", seed);
        op_drop(&o);
    }
}

struct rows_ctx {
    struct qr_embed_args embed;
    struct qr_gather_args gather;
    struct qr_tensor table;
    bool is_embed;
};

static void run_rows(void *ctx)
{
    struct rows_ctx *c = ctx;
    if (c->is_embed)
        wide->embed(NULL, &c->embed);
    else
        wide->gather_rows(NULL, &c->gather);
}

/* Rows picked with repetitions: by embed from a table, by gather_rows from other rows. */
static void check_picked(struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    const int32_t n_from = 1 + c.n_rows / 2;
    int64_t n = (int64_t)c.n_rows * c.n_cols;
    int32_t *row = qr_alloc((size_t)c.n_rows, sizeof *row);
    for (int32_t i = 0; i < c.n_rows; i++)
        row[i] = (int32_t)qr_rng_below(&r, (uint32_t)n_from);
    for (int embed = 0; embed < 2; embed++) {
        struct rows_ctx ctx = {.is_embed = embed};
        struct op o = op_new(&r, run_rows, &ctx, 1, (int64_t[]){(int64_t)n_from * c.n_cols}, n);
        ctx.table = qr_tensor_2d(o.in[0], QR_F64, n_from, c.n_cols);
        ctx.embed = (struct qr_embed_args){.out = (float *)o.out, .table = &ctx.table, .ids = row, .out_stride = c.n_cols, .n_rows = c.n_rows, .scale = 1.5f};
        ctx.gather = (struct qr_gather_args){.out = (float *)o.out, .x = (float *)o.in[0], .row = row, .out_stride = c.n_cols,
                                             .x_stride = c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols};
        const struct qr_embed_back_args e = {.dtable = (float *)o.grad[0], .dout = (float *)o.c, .ids = row, .dout_stride = c.n_cols,
                                             .n_rows = c.n_rows, .n_cols = c.n_cols, .n_vocab = n_from, .scale = 1.5f};
        const struct qr_scatter_args s = {.dx = (float *)o.grad[0], .dout = (float *)o.c, .row = row, .dx_stride = c.n_cols,
                                          .dout_stride = c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols};
        if (embed)
            wide_back->embed(NULL, &e);
        else
            wide_back->scatter_rows(NULL, &s);
        check(&o, embed ? "embed" : "gather_rows", seed);
        op_drop(&o);
    }
    qr_free(row);
}

struct ce_ctx {
    struct qr_cross_entropy_args a;
    const double *logits;
    double *work, *out;
    int64_t n;
};

static void run_ce(void *ctx)
{
    struct ce_ctx *c = ctx;
    memcpy(c->work, c->logits, (size_t)c->n * sizeof(double));
    wide_back->cross_entropy(NULL, &c->a);
}

static void check_cross_entropy(struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    int64_t n = (int64_t)c.n_rows * c.n_cols;
    struct ce_ctx ctx = {.n = n, .work = zeros(n)};
    struct op o = op_new(&r, run_ce, &ctx, 1, (int64_t[]){n}, c.n_rows);
    int32_t *target = qr_alloc((size_t)c.n_rows, sizeof *target);
    for (int32_t i = 0; i < c.n_rows; i++) {
        target[i] = i % 4 == 3 ? -1 : (int32_t)qr_rng_below(&r, (uint32_t)c.n_cols);
        o.c[i] = 0.25;
    }
    ctx.logits = o.in[0];
    ctx.a = (struct qr_cross_entropy_args){.logits = (float *)ctx.work, .loss = o.out, .target = target, .stride = c.n_cols, .n_rows = c.n_rows,
                                           .n_cols = c.n_cols, .scale = 0.25f};
    run_ce(&ctx);
    memcpy(o.grad[0], ctx.work, (size_t)n * sizeof(double));
    for (int32_t i = 0; i < c.n_rows; i++)
        if (target[i] < 0)
            cr_assert_eq(o.out[i], 0);
    if (c.n_cols > 1) /* the only word there is has loss 0 and gradient 0 */
        check(&o, "cross_entropy", seed);
    qr_free(target), qr_free(ctx.work);
    op_drop(&o);
}

Test(backward, of_what_treats_rows_one_by_one_is_what_finite_differences_say)
{
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(qr_rows_cases); i++) {
        if (!(qr_rows_cases[i].use & QR_CASE_CHECK))
            continue;
        check_norm(qr_rows_cases[i], SEED + (uint64_t)i);
        check_glu(qr_rows_cases[i], SEED + (uint64_t)i);
        check_picked(qr_rows_cases[i], SEED + (uint64_t)i);
        check_cross_entropy(qr_rows_cases[i], SEED + (uint64_t)i);
    }
}

/* ---- heads ---- */

struct heads_ctx {
    struct qr_head_norm_args norm;
    struct qr_rope_args rope;
    const double *x;
    double *out;
    int64_t n;
};

/* The norm of each head, then its rotation, as Qwen3 does. */
static void run_heads(void *ctx)
{
    struct heads_ctx *c = ctx;
    memcpy(c->out, c->x, (size_t)c->n * sizeof(double));
    wide->head_norm(NULL, &c->norm);
    wide->rope(NULL, &c->rope);
}

static void check_heads(struct qr_heads_case c, uint64_t seed)
{
    enum { ROWS = 3 };
    struct qr_rng r = {.seed = seed};
    const int32_t width = c.n_heads * c.head_dim, pos[ROWS] = {0, 7, 1000};
    struct heads_ctx ctx = {.n = (int64_t)ROWS * width};
    double *cos_sin = zeros((int64_t)ROWS * c.n_rot), *freq = zeros(c.n_rot), *dy = zeros(ctx.n);
    for (int32_t i = 0; i < c.n_rot / 2; i++)
        freq[i] = pow(10000, -2.0 * i / c.n_rot);
    const struct qr_rope_table_args t = {.cos_sin = (float *)cos_sin, .pos = pos, .inv_freq = freq, .n_rows = ROWS, .n_rot = c.n_rot, .attn_factor = 1.25f};
    wide->rope_table(NULL, &t);
    struct op o = op_new(&r, run_heads, &ctx, 2, (int64_t[]){ctx.n, c.head_dim}, ctx.n);
    ctx.x = o.in[0], ctx.out = o.out;
    ctx.norm = (struct qr_head_norm_args){.x = (float *)o.out, .w = (float *)o.in[1], .stride = width, .n_rows = ROWS, .n_heads = c.n_heads,
                                          .head_dim = c.head_dim, .eps = 1e-3f};
    ctx.rope = (struct qr_rope_args){.x = (float *)o.out, .cos_sin = (float *)cos_sin, .stride = width, .n_rows = ROWS, .n_heads = c.n_heads,
                                     .head_dim = c.head_dim, .n_rot = c.n_rot};
    memcpy(dy, o.c, (size_t)ctx.n * sizeof *dy);
    struct qr_rope_args back = ctx.rope;
    back.x = (float *)dy;
    wide_back->rope(NULL, &back);
    const struct qr_head_norm_back_args b = {.dx = (float *)o.grad[0], .dw = (float *)o.grad[1], .dy = (float *)dy, .x = (float *)o.in[0],
                                             .w = (float *)o.in[1], .dx_stride = width, .dy_stride = width, .x_stride = width, .n_rows = ROWS,
                                             .n_heads = c.n_heads, .head_dim = c.head_dim, .eps = 1e-3f};
    wide_back->head_norm(NULL, &b);
    check(&o, "head_norm and rope", seed);
    qr_free(cos_sin), qr_free(freq), qr_free(dy);
    op_drop(&o);
}

Test(backward, of_heads_normed_and_rotated_is_what_finite_differences_say)
{
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(qr_heads_cases); i++)
        check_heads(qr_heads_cases[i], SEED + (uint64_t)i);
}

/* ---- attention ---- */

struct attn_ctx {
    struct qr_kv_write_args write;
    struct qr_attention_args a;
};

static void run_attention(void *ctx)
{
    struct attn_ctx *c = ctx;
    wide->kv_write(NULL, &c->write);
    wide->attention(NULL, &c->a);
}

/* Sequences from position 0 on; a long one where a window or a piece of 256 positions is to be crossed and heads are small. There two heads for each of the
 * cache will do: more are more turns of the same loop, 37 times over. */
static void check_attention(struct qr_attention_case c, uint64_t seed)
{
    const bool is_long = (c.window > 200 && UTIL_STEP == 1) || (c.head_dim <= 16 && c.n_heads <= 16);
    const int32_t ctx_len[3] = {3, is_long ? 270 : 40, 17}, none[3] = {0};
    c.n_heads = is_long && c.n_heads > 2 * c.n_kv_heads ? 2 * c.n_kv_heads : c.n_heads;
    const int32_t hk = c.n_heads * c.head_dim, gk = c.n_kv_heads * c.head_dim;
    struct qr_rng r = {.seed = seed};
    c.kv = QR_F64;
    struct world w = world_new(c, 3, ctx_len, ctx_len, seed);
    struct step st = step_new(&w, c.block_tokens, none, ctx_len, seed);
    const int32_t n = st.batch.n_tokens;
    struct attn_ctx ctx;
    struct op o = op_new(&r, run_attention, &ctx, 3, (int64_t[]){(int64_t)n * hk, (int64_t)n * gk, (int64_t)n * gk}, (int64_t)n * hk);
    double *lse = zeros((int64_t)n * c.n_heads);
    ctx.write = (struct qr_kv_write_args){.kv = &st.kv, .k = (float *)o.in[1], .v = (float *)o.in[2], .slot = st.batch.slot, .k_stride = gk,
                                          .v_stride = gk, .layer = WORLD_LAYER, .n_rows = n};
    ctx.a = step_args(&w, &st, o.out, lse, o.in[0]);
    ctx.a.out_stride = ctx.a.q_stride = hk;
    o.n_single = 2;
    run_attention(&ctx);
    const struct qr_attention_back_args b = {.dq = (float *)o.grad[0], .dk = (float *)o.grad[1], .dv = (float *)o.grad[2], .dout = (float *)o.c,
                                             .out = (float *)o.out, .q = (float *)o.in[0], .lse = (float *)lse, .batch = &st.batch, .kv = &st.kv,
                                             .dq_stride = hk, .dk_stride = gk, .dv_stride = gk, .dout_stride = hk, .out_stride = hk,
                                             .q_stride = hk, .layer = WORLD_LAYER, .n_heads = c.n_heads, .window = c.window,
                                             .scale = ctx.a.scale, .softcap = c.softcap};
    wide_back->attention(NULL, &b);
    check(&o, "attention", seed);
    qr_free(lse);
    op_drop(&o);
    step_drop(&st);
    world_drop(&w);
}

Test(backward, of_attention_is_what_finite_differences_say)
{
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(qr_attention_cases); i += UTIL_STEP * UTIL_STEP)
        if ((qr_attention_cases[i].use & QR_CASE_CHECK) && !qr_kv_has_scales(qr_attention_cases[i].kv)) /* all caches are doubles here */
            check_attention(qr_attention_cases[i], SEED + (uint64_t)i);
}
