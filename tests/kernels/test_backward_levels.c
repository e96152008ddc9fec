/* The gradients of every level against the same in f64, for the forward tests' own case table, and the same bits whatever the threads.
 *
 * f32: a sum of m products of either sign, each with a relative error of 2^-24, errs by about sqrt(m) 2^-24 times their sum of magnitudes, which is
 * sqrt(m) times the typical result: m 2^-24 of the norm. Where m is small, some 32 roundings of what is around the sum count instead (roots,
 * exponentials, a difference of equals such as dP - D, which is sqrt(K) times smaller than its terms).
 * bf16: rounding errs by 2^-9 a factor; cosine >= 0.999 and a norm within 1 % are what the product's users ask for. */
#include "tests/full.h"
#include "tests/kernels/attn_world.h"
#include "tests/kernels/util.h"
#include "tests/ops_cases.h"

#include "tests/kernels/wide_oracle.h"

#define EMULATED_PRODUCTS_MAX 500000 /* threads of an emulated device are fibers */
#define SEED 90125

/* Of all values of one gradient. */
static void compare(const float *got, const double *want, int64_t n, double m, bool bf16, const char *isa, const char *what, const char *which)
{
    double dot = 0, gg = 0, ww = 0, off = 0;
    for (int64_t i = 0; i < n; i++) {
        dot += (double)got[i] * want[i];
        gg += (double)got[i] * (double)got[i];
        ww += want[i] * want[i];
        off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    }
    cr_assert(isfinite(gg) && ww > 0, "%s: %s of %s is not finite, or nothing", isa, which, what);
    if (bf16) {
        cr_assert(dot / sqrt(gg * ww) >= 0.999, "%s: %s of %s: cosine %.6f", isa, which, what, dot / sqrt(gg * ww));
        cr_assert(fabs(sqrt(gg / ww) - 1) <= 0.01, "%s: %s of %s: norm off by %.2f %%", isa, which, what, 100 * fabs(sqrt(gg / ww) - 1));
    } else {
        const double bound = fmax(m, 32) * U24;
        cr_assert(sqrt(off / ww) <= bound, "%s: %s of %s: off by %.3g of the norm, bound %.3g", isa, which, what, sqrt(off / ww), bound);
    }
}

/* Calls body for every level but ref, which is what all others are compared with in the end. */
static void for_levels(void (*body)(const char *isa, struct qr_backend *be, struct qr_backend *threads), bool on_device)
{
    const char *names[8];
    int32_t n_levels = on_device ? device_levels(names) : qr_cpu_levels(names);
    printf("seed %d\n", SEED);
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1, 0), *threads = open_level(names[l], 3, 0);
        body(names[l], be, threads);
        qr_backend_close(be);
        qr_backend_close(threads);
    }
}

/* ---- linear ---- */

struct linear_data {
    float *x, *dy, *w, *dx, *dw, *dbias;
    uint16_t *half;
    struct qr_weight weight;
};

static struct linear_data linear_new(struct qr_linear_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    const int64_t n_x = (int64_t)c.n_rows * c.n_in, n_w = (int64_t)c.n_out * c.n_in;
    struct linear_data d = {.x = random_floats(&r, n_x), .dy = random_floats(&r, (int64_t)c.n_rows * c.n_out), .w = random_floats(&r, n_w),
                            .dx = random_floats(&r, n_x), .dw = random_floats(&r, n_w), .dbias = random_floats(&r, c.n_out),
                            .half = qr_alloc((size_t)n_w, 2)};
    for (int64_t i = 0; i < n_w; i++) {
        d.half[i] = qr_f32_to_bf16(d.w[i]);
        d.w[i] = c.w == QR_BF16 ? qr_bf16_to_f32(d.half[i]) : d.w[i];
    }
    d.weight.t = qr_tensor_2d(c.w == QR_BF16 ? (void *)d.half : d.w, c.w, c.n_out, c.n_in);
    return d;
}

/* The same again, with results of its own. */
static struct linear_data linear_copy(const struct linear_data *d, struct qr_linear_case c)
{
    struct linear_data o = *d;
    o.dx = copy_floats(d->dx, (int64_t)c.n_rows * c.n_in), o.dw = copy_floats(d->dw, (int64_t)c.n_out * c.n_in), o.dbias = copy_floats(d->dbias, c.n_out);
    return o;
}

static void linear_drop_results(struct linear_data *d)
{
    qr_free(d->dx), qr_free(d->dw), qr_free(d->dbias);
}

static void linear_drop(struct linear_data *d)
{
    linear_drop_results(d);
    qr_free(d->x), qr_free(d->dy), qr_free(d->w), qr_free(d->half);
}

/* rows_at_once: how the batch is cut into calls; all rows of dx and the whole dw are the same bits in the end. fresh: dx and dw hold nothing yet. */
static void linear_run(struct qr_backend *be, struct linear_data *d, struct qr_linear_case c, int32_t rows_at_once, bool fresh)
{
    for (int32_t row = 0; row < c.n_rows; row += rows_at_once) {
        const int32_t n = c.n_rows - row < rows_at_once ? c.n_rows - row : rows_at_once;
        const struct qr_linear_dx_args x = {.dx = d->dx + (int64_t)row * c.n_in, .dy = d->dy + (int64_t)row * c.n_out, .w = &d->weight, .dx_stride = c.n_in,
                                            .dy_stride = c.n_out, .n_rows = n, .n_in = c.n_in, .n_out = c.n_out, .fresh = fresh};
        const struct qr_linear_dw_args w = {.dw = d->dw, .dbias = d->dbias, .dy = x.dy, .x = d->x + (int64_t)row * c.n_in, .dy_stride = c.n_out,
                                            .x_stride = c.n_in, .n_rows = n, .n_in = c.n_in, .n_out = c.n_out, .product = c.w,
                                            .fresh = fresh && row == 0};
        be->b->linear_dx(be->queue, &x);
        be->b->linear_dw(be->queue, &w);
    }
}

static void linear_want(const struct linear_data *d, struct qr_linear_case c, double **dx, double **dw, double **dbias)
{
    const int64_t n_x = (int64_t)c.n_rows * c.n_in, n_w = (int64_t)c.n_out * c.n_in;
    double *x = widen(d->x, n_x), *dy = widen(d->dy, (int64_t)c.n_rows * c.n_out), *w = widen(d->w, n_w);
    struct qr_weight weight = {.t = qr_tensor_2d(w, QR_F64, c.n_out, c.n_in)};
    *dx = widen(d->dx, n_x), *dw = widen(d->dw, n_w), *dbias = widen(d->dbias, c.n_out);
    const struct qr_linear_dx_args ax = {.dx = (float *)*dx, .dy = (float *)dy, .w = &weight, .dx_stride = c.n_in, .dy_stride = c.n_out,
                                         .n_rows = c.n_rows, .n_in = c.n_in, .n_out = c.n_out};
    const struct qr_linear_dw_args aw = {.dw = (float *)*dw, .dbias = (float *)*dbias, .dy = (float *)dy, .x = (float *)x, .dy_stride = c.n_out,
                                         .x_stride = c.n_in, .n_rows = c.n_rows, .n_in = c.n_in, .n_out = c.n_out, .product = QR_F64};
    wide_back->linear_dx(NULL, &ax);
    wide_back->linear_dw(NULL, &aw);
    qr_free(x), qr_free(dy), qr_free(w);
}

/* Under sanitizers the emulated device does each thing once: a second time has the same accesses, and whether it has the same bits is asked in release. */
static bool runs_few(const char *isa)
{
    return UTIL_STEP > 1 && strcmp(isa, "cuda") == 0;
}

/* Added to zeros, and `fresh` onto what must not be read: the same bits, whether dw begins on a cache line or not. */
static void check_fresh_linear(const char *isa, struct qr_backend *be, struct qr_backend *threads, const struct linear_data *d, struct qr_linear_case c)
{
    const int64_t n_x = (int64_t)c.n_rows * c.n_in, n_w = (int64_t)c.n_out * c.n_in;
    const bool few = runs_few(isa);
    struct linear_data zeros = *d, fresh = *d;
    zeros.dx = qr_alloc((size_t)n_x, 4), zeros.dw = qr_alloc((size_t)n_w, 4), zeros.dbias = qr_alloc((size_t)c.n_out, 4);
    linear_run(be, &zeros, c, c.n_rows, false);
    char *room = qr_alloc_aligned((size_t)n_w * 4 + 64, 64);
    for (int off = few ? 4 : 0; off <= 4; off += 4) {
        memset(room, 0xff, (size_t)n_w * 4 + 64);
        fresh.dx = poisoned(n_x), fresh.dw = (float *)(void *)(room + off), fresh.dbias = qr_alloc((size_t)c.n_out, 4);
        linear_run(threads, &fresh, c, 32, true);
        cr_assert(same_bits(zeros.dx, fresh.dx, n_x), "%s: fresh dx, linear %d x %d -> %d", isa, c.n_rows, c.n_in, c.n_out);
        cr_assert(same_bits(zeros.dw, fresh.dw, n_w), "%s: fresh dw, linear %d x %d -> %d", isa, c.n_rows, c.n_in, c.n_out);
        qr_free(fresh.dx), qr_free(fresh.dbias);
    }
    qr_free_aligned(room);
    linear_drop_results(&zeros);
}

struct linear_want {
    double *dx, *dw, *dbias;
};

static void check_linear(const char *isa, const struct linear_data *d, const struct linear_want *want, struct qr_linear_case c)
{
    struct qr_backend *be = open_level(isa, 1, 0), *threads = open_level(isa, 3, 0);
    struct linear_data a = linear_copy(d, c), b = linear_copy(d, c), cut = linear_copy(d, c);
    const bool few = runs_few(isa);
    char what[64];
    snprintf(what, sizeof what, "linear %d x %d -> %d, %s", c.n_rows, c.n_in, c.n_out, qr_dtype_name(c.w));
    linear_run(be, &a, c, c.n_rows, false);
    if (!few) {
        linear_run(threads, &b, c, c.n_rows, false);
        linear_run(threads, &cut, c, 32, false);
    }
    compare(a.dx, want->dx, (int64_t)c.n_rows * c.n_in, c.n_out + 1, c.w == QR_BF16, isa, what, "dx");
    compare(a.dw, want->dw, (int64_t)c.n_out * c.n_in, c.n_rows + 1, c.w == QR_BF16, isa, what, "dw");
    compare(a.dbias, want->dbias, c.n_out, c.n_rows + 1, false, isa, what, "dbias");
    for (int k = 0; k < 2 && !few; k++) {
        const struct linear_data *o = k ? &cut : &b;
        cr_assert(same_bits(a.dx, o->dx, (int64_t)c.n_rows * c.n_in), "%s: dx of %s, %s", isa, what, k ? "cut" : "3 threads");
        cr_assert(same_bits(a.dw, o->dw, (int64_t)c.n_out * c.n_in), "%s: dw of %s, %s", isa, what, k ? "cut" : "3 threads");
        cr_assert(same_bits(a.dbias, o->dbias, c.n_out), "%s: dbias of %s, %s", isa, what, k ? "cut" : "3 threads");
    }
    check_fresh_linear(isa, be, threads, d, c);
    linear_drop_results(&a), linear_drop_results(&b), linear_drop_results(&cut);
    qr_backend_close(be);
    qr_backend_close(threads);
}

Test(backward_levels, linear_agrees_with_double_and_neither_threads_nor_calls_of_32_rows_show)
{
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(qr_linear_cases); i += UTIL_STEP) {
        const struct qr_linear_case c = qr_linear_cases[i];
        if (!(c.use & QR_CASE_CHECK) || (c.w != QR_F32 && c.w != QR_BF16))
            continue;
        struct linear_data d = linear_new(c, SEED + (uint64_t)i);
        struct linear_want want;
        linear_want(&d, c, &want.dx, &want.dw, &want.dbias);
        for (int32_t l = 0; l < n_levels; l++)
            if (strcmp(names[l], "cuda") != 0 || (int64_t)c.n_rows * c.n_in * c.n_out <= EMULATED_PRODUCTS_MAX)
                check_linear(names[l], &d, &want, c);
        qr_free(want.dx), qr_free(want.dw), qr_free(want.dbias);
        linear_drop(&d);
    }
}

/* ---- rows ---- */

/* What a rows kernel reads and writes, as floats or as doubles: five arrays of n and two of n_cols; which of them are outputs the kernel knows. */
struct rows_data {
    float *f[5], *w, *dw;
    double *g[5], *wide_w, *wide_dw;
};

static struct rows_data rows_new(int64_t n, int64_t n_cols, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct rows_data d = {.w = random_floats(&r, n_cols), .dw = random_floats(&r, n_cols)};
    for (int k = 0; k < 5; k++) {
        d.f[k] = random_floats(&r, n);
        d.g[k] = widen(d.f[k], n);
    }
    d.wide_w = widen(d.w, n_cols), d.wide_dw = widen(d.dw, n_cols);
    return d;
}

static void rows_drop(struct rows_data *d)
{
    for (int k = 0; k < 5; k++)
        qr_free(d->f[k]), qr_free(d->g[k]);
    qr_free(d->w), qr_free(d->dw), qr_free(d->wide_w), qr_free(d->wide_dw);
}

static struct qr_norm_back_args norm_args(struct qr_rows_case c, void *const *x, void *w, void *dw)
{
    return (struct qr_norm_back_args){.dx = x[0], .dy = x[1], .x = x[2], .w = w, .dw = dw, .dx_stride = c.n_cols,
                                      .dy_stride = c.n_cols, .x_stride = c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols, .eps = 0x1p-10f};
}

static void check_norm(const char *isa, struct qr_backend *be, struct qr_backend *threads, struct qr_rows_case c, uint64_t seed)
{
    const int64_t n = (int64_t)c.n_rows * c.n_cols;
    struct rows_data d = rows_new(n, c.n_cols, seed), t = rows_new(n, c.n_cols, seed);
    struct qr_norm_back_args a = norm_args(c, (void **)d.f, d.w, d.dw), b = norm_args(c, (void **)t.f, t.w, t.dw);
    struct qr_norm_back_args o = norm_args(c, (void **)d.g, d.wide_w, d.wide_dw);
    be->b->rms_norm(be->queue, &a);
    threads->b->rms_norm(threads->queue, &b);
    wide_back->rms_norm(NULL, &o);
    compare(d.f[0], d.g[0], n, c.n_cols, false, isa, "norm", "dx");
    compare(d.dw, d.wide_dw, c.n_cols, c.n_rows + c.n_cols, false, isa, "norm", "dw");
    cr_assert(same_bits(d.f[0], t.f[0], n) && same_bits(d.dw, t.dw, c.n_cols), "%s: norm, 3 threads", isa);
    rows_drop(&d), rows_drop(&t);
}

static void check_glu(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    const int64_t n = (int64_t)c.n_rows * c.n_cols;
    for (int act = QR_ACT_SILU; act <= QR_ACT_GELU_TANH; act++) {
        struct rows_data d = rows_new(2 * n, 1, seed);
        struct qr_glu_back_args a = {.dgate_up = d.f[0], .dout = d.f[1], .gate_up = d.f[2], .dgate_up_stride = 2 * c.n_cols, .dout_stride = c.n_cols,
                                     .gate_up_stride = 2 * c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols, .act = act}, o = a;
        o.dgate_up = (float *)d.g[0], o.dout = (float *)d.g[1], o.gate_up = (float *)d.g[2];
        be->b->glu(be->queue, &a);
        wide_back->glu(NULL, &o);
        compare(d.f[0], d.g[0], 2 * n, 1, false, isa, act ? "gelu" : "silu", "dgate_up");
        rows_drop(&d);
    }
}

/* Added to zeros, and `fresh` onto what must not be read. */
static void check_fresh_rows(const char *isa, struct qr_backend *be, struct qr_backend *threads, struct qr_rows_case c, uint64_t seed)
{
    const int64_t n = (int64_t)c.n_rows * c.n_cols;
    struct rows_data d = rows_new(2 * n, 1, seed), t = rows_new(2 * n, 1, seed);
    memset(d.f[0], 0, 2 * (size_t)n * 4);
    memset(t.f[0], 0xff, 2 * (size_t)n * 4);
    struct qr_glu_back_args g = {.dgate_up = d.f[0], .dout = d.f[1], .gate_up = d.f[2], .dgate_up_stride = 2 * c.n_cols, .dout_stride = c.n_cols,
                                 .gate_up_stride = 2 * c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols, .act = QR_ACT_SILU}, h = g;
    h.dgate_up = t.f[0], h.fresh = true;
    be->b->glu(be->queue, &g);
    threads->b->glu(threads->queue, &h);
    cr_assert(same_bits(d.f[0], t.f[0], 2 * n), "%s: glu, fresh", isa);
    rows_drop(&d), rows_drop(&t);
}

/* Rows met several times, so that the order of additions counts: it is that of the rows, in ref as everywhere, and embed and scatter end in the same sums. */
static void check_picked(const char *isa, struct qr_backend *be, struct qr_backend *threads, struct qr_rows_case c, uint64_t seed)
{
    const int64_t n = (int64_t)c.n_rows * c.n_cols;
    struct rows_data d = rows_new(n, 1, seed), t = rows_new(n, 1, seed);
    int32_t *row = qr_alloc((size_t)c.n_rows, sizeof *row);
    for (int32_t i = 0; i < c.n_rows; i++)
        row[i] = i * 7 % (1 + c.n_rows / 3);
    struct qr_embed_back_args e = {.dtable = d.f[0], .dout = d.f[1], .ids = row, .dout_stride = c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols,
                                   .n_vocab = c.n_rows, .scale = 1.5f}, et = e, eo = e;
    struct qr_scatter_args s = {.dx = d.f[2], .dout = d.f[3], .row = row, .dx_stride = c.n_cols, .dout_stride = c.n_cols, .n_rows = c.n_rows,
                                .n_cols = c.n_cols}, so = s;
    et.dtable = t.f[0], et.dout = t.f[1];
    eo.dtable = (float *)d.g[0], eo.dout = (float *)d.g[1];
    so.dx = (float *)d.g[2], so.dout = (float *)d.g[3];
    be->b->embed(be->queue, &e);
    threads->b->embed(threads->queue, &et);
    wide_back->embed(NULL, &eo);
    be->b->scatter_rows(be->queue, &s);
    wide_back->scatter_rows(NULL, &so);
    compare(d.f[0], d.g[0], n, c.n_rows, false, isa, "embed", "dtable");
    compare(d.f[2], d.g[2], n, c.n_rows, false, isa, "scatter_rows", "dx");
    cr_assert(same_bits(d.f[0], t.f[0], n), "%s: embed, 3 threads", isa);
    qr_free(row);
    rows_drop(&d), rows_drop(&t);
}

/* The loss itself: the sum of exponentials errs by D + 4 roundings, its logarithm by that absolutely, beside the rounding of logit - maximum (<= 8). */
static void check_loss(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct rows_data d = rows_new((int64_t)c.n_rows * c.n_cols, 1, seed);
    int32_t *target = qr_alloc((size_t)c.n_rows, sizeof *target);
    double *loss = qr_alloc((size_t)c.n_rows, sizeof *loss), *want = qr_alloc((size_t)c.n_rows, sizeof *want);
    for (int32_t i = 0; i < c.n_rows; i++)
        target[i] = i % 4 == 3 ? -1 : i * 13 % c.n_cols;
    struct qr_cross_entropy_args a = {.logits = d.f[0], .loss = loss, .target = target, .stride = c.n_cols, .n_rows = c.n_rows, .n_cols = c.n_cols,
                                      .scale = 0.25f}, o = a;
    o.logits = (float *)d.g[0], o.loss = want;
    be->b->cross_entropy(be->queue, &a);
    wide_back->cross_entropy(NULL, &o);
    for (int32_t i = 0; i < c.n_rows; i++)
        cr_assert(fabs(loss[i] - want[i]) <= gamma_n(c.n_cols + 12), "%s: loss %.12g, expected %.12g", isa, loss[i], want[i]);
    if (c.n_cols > 1)
        compare(d.f[0], d.g[0], (int64_t)c.n_rows * c.n_cols, c.n_cols, false, isa, "cross_entropy", "dlogits");
    qr_free(target), qr_free(loss), qr_free(want);
    rows_drop(&d);
}

static void check_rows(const char *isa, struct qr_backend *be, struct qr_backend *threads)
{
    for (int i = 0; i < QR_COUNT(qr_rows_cases); i += UTIL_STEP) {
        struct qr_rows_case c = qr_rows_cases[i];
        if (!(c.use & QR_CASE_CHECK))
            continue;
        if (strcmp(isa, "cuda") == 0 && c.n_rows > 9 && c.n_cols > 1000 && !full_size()) /* emulated: as many rows as another case has */
            c.n_rows = 9;
        if (c.n_cols > 1) /* one number's norm is its sign: the gradient is what rounding leaves */
            check_norm(isa, be, threads, c, SEED + (uint64_t)i);
        check_glu(isa, be, c, SEED + (uint64_t)i);
        check_fresh_rows(isa, be, threads, c, SEED + (uint64_t)i);
        check_picked(isa, be, threads, c, SEED + (uint64_t)i);
        check_loss(isa, be, c, SEED + (uint64_t)i);
    }
}

Test(backward_levels, what_treats_rows_one_by_one_agrees_with_double)
{
    for_levels(check_rows, true);
}

static void check_heads(const char *isa, struct qr_backend *be, struct qr_backend *threads)
{
    enum { ROWS = 5 };
    for (int i = 0; i < QR_COUNT(qr_heads_cases); i++) {
        const struct qr_heads_case c = qr_heads_cases[i];
        const int32_t width = c.n_heads * c.head_dim;
        const int64_t n = (int64_t)ROWS * width;
        struct rows_data d = rows_new(n, width, SEED + (uint64_t)i), t = rows_new(n, width, SEED + (uint64_t)i);
        struct qr_head_norm_back_args a = {.dx = d.f[0], .dw = d.dw, .dy = d.f[1], .x = d.f[2], .w = d.w, .dx_stride = width, .dy_stride = width,
                                           .x_stride = width, .n_rows = ROWS, .n_heads = c.n_heads, .head_dim = c.head_dim, .eps = 0x1p-10f}, b = a, o = a;
        b.dx = t.f[0], b.dw = t.dw, b.dy = t.f[1], b.x = t.f[2], b.w = t.w;
        o.dx = (float *)d.g[0], o.dw = (float *)d.wide_dw, o.dy = (float *)d.g[1], o.x = (float *)d.g[2], o.w = (float *)d.wide_w;
        be->b->head_norm(be->queue, &a);
        threads->b->head_norm(threads->queue, &b);
        wide_back->head_norm(NULL, &o);
        compare(d.f[0], d.g[0], n, c.head_dim, false, isa, "head_norm", "dx");
        compare(d.dw, d.wide_dw, c.head_dim, ROWS * c.n_heads + c.head_dim, false, isa, "head_norm", "dw");
        cr_assert(same_bits(d.f[0], t.f[0], n) && same_bits(d.dw, t.dw, c.head_dim), "%s: head_norm, 3 threads", isa);
        struct qr_rope_args ra = {.x = d.f[3], .cos_sin = d.f[4], .stride = width, .n_rows = ROWS, .n_heads = c.n_heads, .head_dim = c.head_dim,
                                  .n_rot = c.n_rot}, ro = ra;
        ro.x = (float *)d.g[3], ro.cos_sin = (float *)d.g[4];
        be->b->rope(be->queue, &ra);
        wide_back->rope(NULL, &ro);
        compare(d.f[3], d.g[3], n, 2, false, isa, "rope", "dx");
        rows_drop(&d), rows_drop(&t);
    }
}

Test(backward_levels, heads_agree_with_double)
{
    for_levels(check_heads, true);
}

/* ---- attention ---- */

/* The level's own forward makes out and lse; then both sides get what it made, and the same cache. */
static void check_attention_case(const char *isa, struct qr_backend *be, struct qr_backend *threads, struct qr_attention_case c, uint64_t seed)
{
    const int32_t n_long = (c.window > 200 && UTIL_STEP == 1) || c.head_dim <= 8 ? (full_size() ? 330 : 280) : (full_size() ? 150 : 131), none[4] = {0};
    const bool emulated = strcmp(isa, "cuda") == 0, few = runs_few(isa);
    const int32_t two_tiles = c.head_dim > 128 || c.kv == QR_F32 ? 34 : 66, n_seqs = few ? 2 : 4;
    const int32_t len[4] = {3, !emulated ? n_long : full_size() ? 100 : two_tiles, emulated ? 20 : 64, emulated ? 1 : 65};
    const int32_t hk = c.n_heads * c.head_dim, gk = c.n_kv_heads * c.head_dim;
    struct world w = world_new(c, n_seqs, len, len, seed);
    struct step st = step_new(&w, c.block_tokens, none, len, seed);
    struct qr_attention_case wc = c;
    wc.kv = QR_F64;
    w.c = wc;
    struct step wst = step_new(&w, c.block_tokens, none, len, seed);
    w.c = c;
    const int32_t n = st.batch.n_tokens;
    struct rows_data d = rows_new((int64_t)n * hk, 1, seed), t = rows_new((int64_t)n * hk, 1, seed);
    float *made = step_run(be, &w, &st);
    const int64_t n_out = n * st.q_stride;
    double *out = widen(made, n_out), *lse = widen(made + n_out, (int64_t)n * c.n_heads), *q = widen(st.q, n_out);
    for (int64_t i = 0; i < (int64_t)(st.kv.n_blocks * (qr_kv_block_bytes(&st.kv) / qr_dtype_bytes(c.kv))); i++)
        ((double *)wst.kv.base)[i] = c.kv == QR_F32 ? (double)((float *)st.kv.base)[i] : (double)qr_bf16_to_f32(((uint16_t *)st.kv.base)[i]);
    struct qr_attention_back_args a = {.dq = d.f[0], .dk = d.f[1], .dv = d.f[2], .dout = d.f[3], .out = made, .q = st.q, .lse = made + n_out,
                                       .batch = &st.batch, .kv = &st.kv, .dq_stride = hk, .dk_stride = gk, .dv_stride = gk, .dout_stride = hk,
                                       .out_stride = st.q_stride, .q_stride = st.q_stride, .layer = WORLD_LAYER, .n_heads = c.n_heads,
                                       .window = c.window, .scale = (float)(1 / sqrt((double)c.head_dim)), .softcap = c.softcap}, b = a, o = a;
    b.dq = t.f[0], b.dk = t.f[1], b.dv = t.f[2], b.dout = t.f[3];
    o.dq = (float *)d.g[0], o.dk = (float *)d.g[1], o.dv = (float *)d.g[2], o.dout = (float *)d.g[3], o.out = (float *)out, o.lse = (float *)lse;
    o.q = (float *)q, o.kv = &wst.kv;
    be->b->attention(be->queue, &a);
    if (!few)
        threads->b->attention(threads->queue, &b);
    wide_back->attention(NULL, &o);
    const double m = 2.0 * c.head_dim + len[1] * (c.n_heads / c.n_kv_heads);
    compare(d.f[0], d.g[0], (int64_t)n * hk, m, c.kv == QR_BF16, isa, "attention", "dq");
    compare(d.f[1], d.g[1], (int64_t)n * gk, m, c.kv == QR_BF16, isa, "attention", "dk");
    compare(d.f[2], d.g[2], (int64_t)n * gk, m, c.kv == QR_BF16, isa, "attention", "dv");
    cr_assert(few || (same_bits(d.f[0], t.f[0], (int64_t)n * hk) && same_bits(d.f[1], t.f[1], (int64_t)n * gk) &&
                      same_bits(d.f[2], t.f[2], (int64_t)n * gk)), "%s: attention, 3 threads", isa);
    for (int k = 0; k < 3; k++) {
        memset(d.f[k], 0, (size_t)n * (size_t)(k ? gk : hk) * 4);
        memset(t.f[k], 0xff, (size_t)n * (size_t)(k ? gk : hk) * 4);
    }
    b.fresh = true;
    if (!few)
        be->b->attention(be->queue, &a);
    threads->b->attention(threads->queue, &b);
    cr_assert(few || (same_bits(d.f[0], t.f[0], (int64_t)n * hk) && same_bits(d.f[1], t.f[1], (int64_t)n * gk) &&
                      same_bits(d.f[2], t.f[2], (int64_t)n * gk)), "%s: attention, fresh", isa);
    qr_free(made), qr_free(out), qr_free(lse), qr_free(q);
    rows_drop(&d), rows_drop(&t);
    step_drop(&st), step_drop(&wst);
    world_drop(&w);
}

/* Few heads for threads that are fibers: each size of tile, a window, a cap. */
static const struct qr_attention_case emulated_cases[] = {
    {3, 1, 24, 16, 40, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {2, 2, 80, 32, 0, 50.0f, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {1, 1, 256, 64, 0, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {4, 2, 16, 1, 40, 30.0f, QR_F32, 0, 0, 0, QR_CASE_CHECK},
};

static void check_attention(const char *isa, struct qr_backend *be, struct qr_backend *threads)
{
    for (int i = 0; i < QR_COUNT(emulated_cases) && strcmp(isa, "cuda") == 0; i++)
        check_attention_case(isa, be, threads, emulated_cases[i], SEED + (uint64_t)i);
    if (strcmp(isa, "cuda") == 0)
        return;
    const bool own = strcmp(isa, "ref") != 0 && strcmp(isa, "amx") != 0; /* one is plain loops, the other has avx512's way back behind a way of its own */
    for (int i = UTIL_STEP > 1 ? 3 : 0; i < QR_COUNT(qr_attention_cases); i += UTIL_STEP > 1 ? UTIL_STEP * UTIL_STEP : own ? 1 : 3)
        if ((qr_attention_cases[i].use & QR_CASE_CHECK) && !qr_kv_has_scales(qr_attention_cases[i].kv))
            check_attention_case(isa, be, threads, qr_attention_cases[i], SEED + (uint64_t)i);
}

Test(backward_levels, attention_agrees_with_double)
{
    emulated_set_shared(EMULATED_SHARED_LEAST);
    for_levels(check_attention, true);
}
