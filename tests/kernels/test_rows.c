/* The kernels that treat rows one by one: against the double oracle, and the same bits for a row wherever it stands. */
#include "tests/kernels/util.h"

#include "tests/kernels/oracle.h"
#include "tests/ops_cases.h"

#define SEED 99
#define GAP 5

/* Error of `got` over rows of n_cols at `stride`, in units of rel |want| + floor; infinite for a NaN. */
static double worst_of(const float *got, const double *want, int32_t n_rows, int32_t n_cols, int64_t stride, double rel, double floor)
{
    double worst = 0;
    for (int32_t n = 0; n < n_rows; n++)
        for (int32_t i = 0; i < n_cols; i++) {
            double w = want[n * stride + i], e = fabs((double)got[n * stride + i] - w) / (rel * fabs(w) + floor);
            worst = isnan(e) ? INFINITY : fmax(worst, e);
        }
    return worst;
}

/* With so many threads; a device, which has none and takes longer to open, stays. */
static struct qr_backend *reopen(struct qr_backend *be, const char *isa, int32_t n_threads)
{
    if (be && strcmp(be->name, "cpu") != 0)
        return be;
    qr_backend_close(be);
    return open_level(isa, n_threads, 0);
}

/* For every level this machine has and every case marked for checking: body(level name, backend, case, seed). */
typedef void rows_body(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed);

static void for_all(rows_body *body)
{
    const char *names[8];
    int32_t n_levels = device_levels(names);
    printf("seed %d\n", SEED);
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = NULL;
        for (int i = 0; i < QR_COUNT(qr_rows_cases); i++) {
            if (!(qr_rows_cases[i].use & QR_CASE_CHECK))
                continue;
            be = reopen(be, names[l], 1 + i % 3);
            body(names[l], be, qr_rows_cases[i], SEED + (uint64_t)i);
        }
        qr_backend_close(be);
    }
}

/* The sum of squares has positive terms only: relative error gamma_{D+2}, halved by the root. Then a root, a division and two products:
 * gamma_4. */
static void check_norm(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    int64_t stride = c.n_cols + GAP, n = c.n_rows * stride;
    float *x = random_floats(&r, n), *w = random_floats(&r, c.n_cols), *out = poisoned(n), *old = copy_floats(x, n);
    struct qr_norm_args a = {.out = out, .x = x, .w = w, .out_stride = stride, .x_stride = stride,
                             .n_rows = c.n_rows, .n_cols = c.n_cols, .eps = 1e-5f};
    be->k->rms_norm(be->queue, &a);
    cr_assert(same_bits(x, old, n), "%s: x is only read", isa);
    double *wide = widen(x, n), *want = qr_alloc((size_t)n, sizeof *want);
    struct qr_norm_args o = a;
    o.out = (float *)want;
    o.x = (float *)wide;
    oracle->rms_norm(NULL, &o);
    cr_assert_leq(worst_of(out, want, c.n_rows, c.n_cols, stride, gamma_n(c.n_cols + 2) / 2 + gamma_n(4), 0), 1, "%s: D %d", isa, c.n_cols);
    cr_assert(gaps_untouched(out, c.n_rows, c.n_cols, stride));
    for (int32_t row = 0; row < c.n_rows; row++) { /* alone, in place, at another alignment */
        float *one = copy_floats(x + row * stride, c.n_cols);
        struct qr_norm_args s = {.out = one, .x = one, .w = w, .n_rows = 1, .n_cols = c.n_cols, .eps = a.eps};
        be->k->rms_norm(be->queue, &s);
        cr_assert(same_bits(one, out + row * stride, c.n_cols), "%s: row %d alone", isa, row);
        qr_free(one);
    }
    qr_free(x), qr_free(w), qr_free(out), qr_free(old), qr_free(wide), qr_free(want);
}

Test(rms_norm, is_within_the_bound_and_independent_of_the_other_rows)
{
    for_all(check_norm);
}

/* For LayerNorm an oracle in double. With u = 2^-24, A = mean |x - m| <= s, the deviation, and M = max |x - m| / s <= sqrt(D):
 *   the mean errs by gamma_{D+1} mean |x| (a sum in any order, a division), and each d = x - m by that and u |d|;
 *   of the mean square the errors of d make 2 e s at most (e = that of the mean, as sum |d| <= D s), the sum and the rest gamma_{D+4}.
 * So d / s * w is off by w (e / s + |d| / s (e / s + gamma_{D+4} / 2 + gamma_4)) and bias adds u of the result. */
static void check_layer_norm(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    const int64_t stride = c.n_cols + GAP, n = c.n_rows * stride;
    if (!be->k->layer_norm) {
        printf("skipped: %s has no layer_norm\n", isa);
        return;
    }
    float *x = random_floats(&r, n), *w = random_floats(&r, c.n_cols), *bias = random_floats(&r, c.n_cols), *out = poisoned(n);
    for (int64_t i = 0; i < n; i++)
        x[i] += (float)(i / stride % 3) * 5.0f; /* means that are not 0 */
    double *wide = widen(x, n), *want = qr_alloc((size_t)n, sizeof *want);
    const struct qr_layer_norm_args a = {.out = out, .x = x, .w = w, .bias = seed % 2 ? bias : NULL, .out_stride = stride, .x_stride = stride,
                                         .n_rows = c.n_rows, .n_cols = c.n_cols, .eps = 1e-5f};
    struct qr_layer_norm_args o = a;
    o.out = (float *)want;
    o.x = (const float *)wide;
    be->k->layer_norm(be->queue, &a);
    oracle->layer_norm(NULL, &o);
    for (int32_t row = 0; row < c.n_rows; row++) {
        double sum = 0, size = 0, squares = 0;
        for (int32_t i = 0; i < c.n_cols; i++) {
            sum += wide[row * stride + i];
            size += fabs(wide[row * stride + i]);
        }
        for (int32_t i = 0; i < c.n_cols; i++)
            squares += pow(wide[row * stride + i] - sum / c.n_cols, 2);
        const double s = sqrt(squares / c.n_cols + 1e-5), e = gamma_n(c.n_cols + 1) * size / c.n_cols;
        for (int32_t i = 0; i < c.n_cols; i++) {
            const double d = fabs(wide[row * stride + i] - sum / c.n_cols) / s, v = want[row * stride + i];
            const double bound = fabs((double)w[i]) * (e / s + d * (e / s + gamma_n(c.n_cols + 4) / 2 + gamma_n(4))) + U24 * fabs(v);
            cr_assert(fabs((double)out[row * stride + i] - v) <= bound, "%s: D %d, row %d: %.9g, not %.9g within %.3g", isa, c.n_cols, row,
                      (double)out[row * stride + i], v, bound);
        }
        float *one = copy_floats(x + row * stride, c.n_cols); /* alone, in place, at another alignment */
        const struct qr_layer_norm_args alone = {.out = one, .x = one, .w = w, .bias = a.bias, .n_rows = 1, .n_cols = c.n_cols, .eps = a.eps};
        be->k->layer_norm(be->queue, &alone);
        cr_assert(same_bits(one, out + row * stride, c.n_cols), "%s: row %d alone", isa, row);
        qr_free(one);
    }
    cr_assert(gaps_untouched(out, c.n_rows, c.n_cols, stride));
    qr_free(x), qr_free(w), qr_free(bias), qr_free(out), qr_free(wide), qr_free(want);
}

Test(layer_norm, is_within_the_bound_and_independent_of_the_other_rows)
{
    for_all(check_layer_norm);
}

static void check_add(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    int64_t stride = c.n_cols + GAP, n = c.n_rows * stride;
    float *x = random_floats(&r, n), *delta = random_floats(&r, n), *old = copy_floats(x, n);
    struct qr_add_args a = {.x = x, .delta = delta, .x_stride = stride, .delta_stride = stride, .n_rows = c.n_rows, .n_cols = c.n_cols};
    be->k->residual_add(be->queue, &a);
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(x[i], i % stride < c.n_cols ? old[i] + delta[i] : old[i], "%s: x[%ld]", isa, (long)i);
    qr_free(x), qr_free(delta), qr_free(old);
}

Test(residual_add, adds_row_by_row_and_nothing_between_rows)
{
    for_all(check_add);
}

/* SiLU: exp within 1.5 ulp = 3 u, the sum, the division, the product with `up`: gamma_6 relative. e^-x is infinite below -88.72, where
 * the true value is at most 88.8 e^-88.72 = 2.7e-37: the floor.
 * GELU: tanh's argument carries gamma_6 (two products, a fused step, a product, two constants), worth |y| (1 - tanh^2 y) gamma_6 <= 0.45
 * gamma_6; tanh itself 4 ulp = 4 u at most; 1 + tanh cancels for negative x, so all this is absolute, times |x| / 2; then gamma_4.
 * Clamped: SiLU's, but the exponent alpha g carries a rounding, |alpha g| u of its power, and up + 1 one. The powers infinite in
 * f32 are those of gates below -52: 52 e^-88.72 times |up + 1| <= limit + 1. */
static void check_glu(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    int64_t in_stride = 2 * c.n_cols + GAP, stride = c.n_cols + 2, n_in = c.n_rows * in_stride, n = c.n_rows * stride;
    float *in = random_floats(&r, n_in);
    for (int64_t i = 0; i < n_in; i++)
        in[i] *= i % 3 ? 4.0f : 60.0f;
    double *wide = widen(in, n_in), *want = qr_alloc((size_t)n, sizeof *want);
    for (int act = QR_ACT_SILU; act <= QR_ACT_CLAMPED; act++) {
        float *out = poisoned(n);
        struct qr_glu_args a = {.out = out, .gate_up = in, .out_stride = stride, .gate_up_stride = in_stride, .n_rows = c.n_rows,
                                .n_cols = c.n_cols, .act = act, .clamp = {.limit = 7, .alpha = 1.702f}};
        be->k->glu(be->queue, &a);
        struct qr_glu_args o = a;
        o.out = (float *)want;
        o.gate_up = (const float *)wide;
        oracle->glu(NULL, &o);
        for (int32_t row = 0; row < c.n_rows; row++)
            for (int32_t i = 0; i < c.n_cols; i++) {
                double g = fabs(wide[row * in_stride + i]), up = fabs(wide[row * in_stride + c.n_cols + i]), w = want[row * stride + i];
                double bound = act == QR_ACT_SILU      ? gamma_n(6) * fabs(w) + 2.7e-37 * up
                               : act == QR_ACT_CLAMPED ? gamma_n(7 + 1.702 * g) * fabs(w) + 2.7e-37 * 8
                                                       : gamma_n(4) * fabs(w) + g / 2 * up * (0.45 * gamma_n(6) + 4 * U24);
                cr_assert(fabs((double)out[row * stride + i] - w) <= bound, "%s act %d: gate %.9g up %.9g gave %.9g, not %.9g", isa, act,
                          wide[row * in_stride + i], wide[row * in_stride + c.n_cols + i], (double)out[row * stride + i], w);
            }
        cr_assert(gaps_untouched(out, c.n_rows, c.n_cols, stride));
        for (int32_t row = 0; row < c.n_rows; row++) { /* the last column alone: no tail may matter */
            float pair[2] = {in[row * in_stride + c.n_cols - 1], in[row * in_stride + 2 * c.n_cols - 1]}, one;
            struct qr_glu_args s = a;
            s.out = &one, s.gate_up = pair, s.out_stride = 1, s.gate_up_stride = 2, s.n_rows = 1, s.n_cols = 1;
            be->k->glu(be->queue, &s);
            cr_assert(same_bits(&one, out + row * stride + c.n_cols - 1, 1), "%s: row %d", isa, row);
        }
        qr_free(out);
    }
    qr_free(in), qr_free(wide), qr_free(want);
}

Test(glu, is_within_the_bound_for_silu_gelu_and_clamped_gates)
{
    for_all(check_glu);
}

/* The unit of glu with an `up` of 1, bit for bit. */
static void check_unit(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    const int64_t stride = c.n_cols + GAP;
    if (!be->k->unit) {
        printf("skipped: %s has no unit\n", isa);
        return;
    }
    for (int act = QR_ACT_SILU; act <= QR_ACT_GELU_TANH; act++) {
        float *x = random_floats(&r, c.n_rows * stride), *pair = random_floats(&r, (int64_t)c.n_rows * 2 * c.n_cols);
        float *want = poisoned((int64_t)c.n_rows * c.n_cols), *old = copy_floats(x, c.n_rows * stride);
        for (int32_t n = 0; n < c.n_rows; n++)
            for (int32_t i = 0; i < c.n_cols; i++) {
                pair[n * 2 * c.n_cols + i] = x[n * stride + i];
                pair[(n * 2 + 1) * c.n_cols + i] = 1;
            }
        const struct qr_unit_args a = {.x = x, .stride = stride, .n_rows = c.n_rows, .n_cols = c.n_cols, .act = act};
        const struct qr_glu_args g = {.out = want, .gate_up = pair, .out_stride = c.n_cols, .gate_up_stride = 2 * c.n_cols, .n_rows = c.n_rows,
                                      .n_cols = c.n_cols, .act = act};
        be->k->unit(be->queue, &a);
        be->k->glu(be->queue, &g);
        for (int32_t n = 0; n < c.n_rows; n++) {
            cr_assert(same_bits(x + n * stride, want + (int64_t)n * c.n_cols, c.n_cols), "%s act %d: row %d", isa, act, n);
            cr_assert(same_bits(x + n * stride + c.n_cols, old + n * stride + c.n_cols, GAP), "%s act %d: the gap of row %d", isa, act, n);
        }
        qr_free(x), qr_free(pair), qr_free(want), qr_free(old);
    }
}

Test(unit, is_the_activation_of_glu)
{
    for_all(check_unit);
}

/* tanh within 4 ulp = 8 u; its argument x / cap carries u, worth |y| (1 - tanh^2 y) u <= u |tanh y| as sinh y cosh y >= y; the product u: gamma_10 of the
 * result. Cases' rows one after the other are one row here, so that stretches are whole and cut. */
static void check_softcap(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    enum { ROWS = 3 };
    const int32_t n_cols = c.n_rows * c.n_cols, n_stretches = (n_cols + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH;
    const int64_t stride = n_cols + GAP;
    if (!be->k->softcap) {
        printf("skipped: %s has no softcap\n", isa);
        return;
    }
    float *x = random_floats(&r, ROWS * stride), *largest = poisoned(ROWS * n_stretches), *sum = poisoned(ROWS * n_stretches);
    const float cap = 2.5f, scale[ROWS] = {1, 0, 0.3f};
    x[n_cols / 2] = NAN;
    x[n_cols - 1] = 1e30f;
    double *wide = widen(x, ROWS * stride);
    const struct qr_stretches s = {.largest = largest, .sum = sum, .scale = scale, .stride = n_stretches};
    const bool says = be->mem->host; /* of stretches */
    const struct qr_softcap_args a = {.x = x, .stretches = says ? &s : NULL, .stride = stride, .n_rows = ROWS, .n_cols = n_cols, .cap = cap};
    be->k->softcap(be->queue, &a);
    for (int32_t n = 0; n < ROWS; n++)
        for (int32_t j = 0; j < n_stretches; j++) {
            double most = -INFINITY, total = 0;
            const int32_t end = (j + 1) * QR_LINEAR_STRETCH < n_cols ? (j + 1) * QR_LINEAR_STRETCH : n_cols;
            for (int32_t i = j * QR_LINEAR_STRETCH; i < end; i++) {
                const double got = (double)x[n * stride + i], want = (double)cap * tanh(wide[n * stride + i] / (double)cap);
                cr_assert(isnan(want) ? isnan(got) : fabs(got - want) <= gamma_n(10) * fabs(want), "%s: %d of row %d: %.9g, not %.9g", isa, i, n, got, want);
                most = isnan(got) ? most : fmax(most, got);
            }
            for (int32_t i = j * QR_LINEAR_STRETCH; says && i < end; i++)
                total += isnan(x[n * stride + i]) ? 0 : exp((double)scale[n] * ((double)x[n * stride + i] - most));
            const double got = (double)sum[n * n_stretches + j];
            cr_assert(!says || (double)largest[n * n_stretches + j] == most, "%s: stretch %d of row %d", isa, j, n);
            cr_assert(!says || (scale[n] > 0 ? fabs(got - total) <= 0x1p-18 * total : isnan(got)), "%s: the sum of stretch %d of row %d", isa, j, n);
        }
    qr_free(x), qr_free(largest), qr_free(sum), qr_free(wide);
}

Test(softcap, bends_logits_and_says_of_stretches_what_they_became)
{
    for_all(check_softcap);
}

static void check_gather(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    int64_t stride = c.n_cols + GAP;
    float *x = random_floats(&r, c.n_rows * stride), *out = poisoned(c.n_rows * stride);
    int32_t *row = qr_alloc((size_t)c.n_rows, sizeof *row);
    for (int32_t i = 0; i < c.n_rows; i++)
        row[i] = (int32_t)qr_rng_below(&r, (uint32_t)c.n_rows);
    struct qr_gather_args a = {.out = out, .x = x, .row = row, .out_stride = stride, .x_stride = stride, .n_rows = c.n_rows, .n_cols = c.n_cols};
    be->k->gather_rows(be->queue, &a);
    for (int32_t i = 0; i < c.n_rows; i++)
        cr_assert(same_bits(out + i * stride, x + row[i] * stride, c.n_cols), "%s: row %d", isa, i);
    cr_assert(gaps_untouched(out, c.n_rows, c.n_cols, stride));
    qr_free(x), qr_free(out), qr_free(row);
}

Test(gather_rows, copies_the_named_rows)
{
    for_all(check_gather);
}

/* Columns picked with repetitions, fewer and more than there are. */
static void check_pick(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    if (!be->k->pick_columns) {
        fprintf(stderr, "skipped: %s has no pick_columns\n", isa);
        return;
    }
    const int32_t counts[] = {c.n_cols, c.n_cols / 2 + 1, 2 * c.n_cols + 3};
    for (int k = 0; k < 3; k++) {
        const int32_t n = counts[k];
        const int64_t x_stride = c.n_cols + GAP, stride = n + GAP;
        float *x = random_floats(&r, c.n_rows * x_stride), *out = poisoned(c.n_rows * stride);
        int32_t *col = qr_alloc((size_t)n, sizeof *col);
        for (int32_t i = 0; i < n; i++)
            col[i] = (int32_t)qr_rng_below(&r, (uint32_t)c.n_cols);
        struct qr_pick_args a = {.out = out, .x = x, .col = col, .out_stride = stride, .x_stride = x_stride, .n_rows = c.n_rows, .n_cols = n};
        be->k->pick_columns(be->queue, &a);
        for (int64_t i = 0; i < (int64_t)c.n_rows * n; i++)
            cr_assert(same_bits(out + i / n * stride + i % n, x + i / n * x_stride + col[i % n], 1), "%s: row %d, column %d", isa, (int)(i / n), (int)(i % n));
        cr_assert(gaps_untouched(out, c.n_rows, n, stride), "%s", isa);
        qr_free(x), qr_free(out), qr_free(col);
    }
}

Test(pick_columns, copies_the_named_columns_of_every_row)
{
    for_all(check_pick);
}

/* The product of a stored number and the scale is exact in double, so its f32 rounding is the only right answer. */
static void check_embed(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    enum { V = 11 };
    int64_t stride = c.n_cols + GAP;
    uint32_t *raw = qr_alloc((size_t)V * (size_t)c.n_cols, sizeof *raw);
    for (int64_t i = 0; i < V * c.n_cols; i++)
        raw[i] = (uint32_t)qr_rng_next(&r) & 0x3fff3fffu; /* finite as f32, as two bf16 and as two f16 */
    int32_t *ids = qr_alloc((size_t)c.n_rows, sizeof *ids);
    for (int32_t i = 0; i < c.n_rows; i++)
        ids[i] = (int32_t)qr_rng_below(&r, V);
    static const enum qr_dtype types[] = {QR_F32, QR_F16, QR_BF16};
    for (int f = 0; f < 3; f++) {
        struct qr_tensor table = qr_tensor_2d(raw, types[f], V, c.n_cols);
        float *out = poisoned(c.n_rows * stride);
        struct qr_embed_args a = {.out = out, .table = &table, .ids = ids, .out_stride = stride, .n_rows = c.n_rows, .scale = 1.7f};
        be->k->embed(be->queue, &a);
        for (int32_t n = 0; n < c.n_rows; n++)
            for (int32_t i = 0; i < c.n_cols; i++) {
                float want = (float)(1.7f * (double)qr_ref_load(raw, types[f], (size_t)(ids[n] * c.n_cols + i)));
                cr_assert(same_bits(&want, &out[n * stride + i], 1), "%s %s: row %d col %d", isa, qr_dtype_name(types[f]), n, i);
            }
        cr_assert(gaps_untouched(out, c.n_rows, c.n_cols, stride));
        qr_free(out);
    }
    qr_free(raw), qr_free(ids);
}

Test(embed, reads_f32_f16_and_bf16_tables_exactly)
{
    for_all(check_embed);
}

/* 37 rows: the last panel is not whole. */
static void check_embed_packed(const char *isa, struct qr_backend *be, struct qr_rows_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    enum { V = 37 };
    if (!be->k->linear_pack) {
        printf("skipped: %s packs nothing yet\n", isa);
        return;
    }
    float *rows = random_floats(&r, (int64_t)V * c.n_cols), *want = poisoned((int64_t)c.n_rows * c.n_cols), *out = poisoned((int64_t)c.n_rows * c.n_cols);
    int32_t *ids = qr_alloc((size_t)c.n_rows, sizeof *ids);
    for (int32_t i = 0; i < c.n_rows; i++)
        ids[i] = (int32_t)qr_rng_below(&r, V);
    static const enum qr_dtype types[] = {QR_F32, QR_BF16};
    for (int f = 0; f < 2; f++) {
        for (int64_t i = 0; f == 1 && i < (int64_t)V * c.n_cols; i++)
            rows[i] = qr_bf16_to_f32(qr_f32_to_bf16(rows[i]));
        void *packed = be->mem->alloc(be->k->linear_packed_bytes(types[f], V, c.n_cols));
        be->k->linear_pack(be->queue, packed, types[f], V, c.n_cols, 0, rows, QR_F32, V);
        struct qr_tensor table = qr_tensor_2d(rows, QR_F32, V, c.n_cols), none = qr_tensor_2d(NULL, types[f], V, c.n_cols);
        struct qr_embed_args a = {.out = want, .table = &table, .ids = ids, .out_stride = c.n_cols, .n_rows = c.n_rows, .scale = 1.7f};
        be->k->embed(be->queue, &a);
        a.out = out;
        a.table = &none;
        a.packed = packed;
        be->k->embed(be->queue, &a);
        cr_assert(same_bits(want, out, (int64_t)c.n_rows * c.n_cols), "%s %s: %d rows of %d", isa, qr_dtype_name(types[f]), c.n_rows, c.n_cols);
        be->mem->free(packed);
    }
    qr_free(rows), qr_free(want), qr_free(out), qr_free(ids);
}

Test(embed, rows_of_a_packed_matrix_are_those_of_the_table_it_was_made_of)
{
    for_all(check_embed_packed);
}

/* Rounds f16 bit patterns by hand: every one of the 65,536 must come out as it does from the scalar conversion. */
Test(embed, converts_every_f16_and_every_bf16)
{
    const char *names[8];
    int32_t n_levels = device_levels(names), id = 0;
    uint16_t *raw = qr_alloc(65536, sizeof *raw);
    for (int32_t i = 0; i < 65536; i++)
        raw[i] = (uint16_t)i;
    for (int32_t l = 0; l < n_levels; l++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct qr_backend *be = open_level(names[l], 1, 0);
            struct qr_tensor table = qr_tensor_2d(raw, bf16 ? QR_BF16 : QR_F16, 1, 65536);
            float *out = poisoned(65536);
            struct qr_embed_args a = {.out = out, .table = &table, .ids = &id, .out_stride = 65536, .n_rows = 1, .scale = 1};
            be->k->embed(be->queue, &a);
            for (int32_t i = 0; i < 65536; i++) {
                float want = bf16 ? qr_bf16_to_f32(raw[i]) : qr_f16_to_f32(raw[i]);
                cr_assert(isnan(want) ? isnan(out[i]) : same_bits(&want, &out[i], 1), "%s: pattern %04x", names[l], i);
            }
            qr_free(out);
            qr_backend_close(be);
        }
    qr_free(raw);
}

/* Everything about heads: rope's two products and a sum, gamma_3 of their sizes; head_norm as rms_norm. */
static void check_heads(const char *isa, struct qr_backend *be, struct qr_heads_case c, int32_t n_rows)
{
    struct qr_rng r = {.seed = SEED + (uint64_t)c.head_dim};
    int32_t half = c.n_rot / 2, hk = c.n_heads * c.head_dim;
    int64_t stride = hk + GAP, n = n_rows * stride, n_table = (int64_t)n_rows * c.n_rot;
    float *x = random_floats(&r, n), *w = random_floats(&r, c.head_dim), *table = poisoned(n_table), *old = copy_floats(x, n);
    int32_t *pos = qr_alloc((size_t)n_rows, sizeof *pos);
    double *freq = qr_alloc((size_t)half, sizeof *freq), *wide_table = qr_alloc((size_t)n_table, sizeof *wide_table), *wide = widen(x, n);
    for (int32_t i = 0; i < n_rows; i++)
        pos[i] = (int32_t)qr_rng_below(&r, i % 2 ? 100 : 1u << 24);
    for (int32_t i = 0; i < half; i++)
        freq[i] = pow(500000.0, -2.0 * i / c.n_rot);
    struct qr_rope_table_args t = {.cos_sin = table, .pos = pos, .inv_freq = freq, .n_rows = n_rows, .n_rot = c.n_rot, .attn_factor = 1.25f};
    be->k->rope_table(be->queue, &t);
    t.cos_sin = (float *)wide_table;
    oracle->rope_table(NULL, &t);
    for (int64_t i = 0; i < n_table; i++)
        cr_assert_eq(table[i], (float)wide_table[i], "%s: table entry %ld is not the rounded double", isa, (long)i);
    struct qr_rope_args a = {.x = x, .cos_sin = table, .stride = stride, .n_rows = n_rows, .n_heads = c.n_heads, .head_dim = c.head_dim, .n_rot = c.n_rot};
    be->k->rope(be->queue, &a);
    double *rounded = widen(table, n_table);
    a.x = (float *)wide;
    a.cos_sin = (const float *)rounded;
    oracle->rope(NULL, &a);
    for (int64_t i = 0; i < n; i++) {
        int64_t in_head = i % stride < hk ? i % stride % c.head_dim : c.head_dim;
        if (in_head >= c.n_rot) {
            cr_assert(same_bits(&x[i], &old[i], 1), "%s: element %ld is not rotated and must stay", isa, (long)i);
            continue;
        }
        double size = fabs((double)old[i]) + fabs((double)old[in_head < half ? i + half : i - half]);
        cr_assert(fabs((double)x[i] - wide[i]) <= gamma_n(3) * size * 1.25, "%s: element %ld", isa, (long)i);
    }
    double *before = widen(x, n);
    struct qr_head_norm_args h = {.x = x, .w = w, .stride = stride, .n_rows = n_rows, .n_heads = c.n_heads, .head_dim = c.head_dim, .eps = 1e-6f};
    be->k->head_norm(be->queue, &h);
    h.x = (float *)before;
    oracle->head_norm(NULL, &h);
    cr_assert_leq(worst_of(x, before, n_rows, hk, stride, gamma_n(c.head_dim + 2) / 2 + gamma_n(4), 0), 1, "%s: K %d", isa, c.head_dim);
    qr_free(x), qr_free(w), qr_free(table), qr_free(old), qr_free(pos), qr_free(freq), qr_free(wide_table), qr_free(wide), qr_free(rounded), qr_free(before);
}

Test(rope, and_head_norm_are_within_their_bounds_for_every_head_shape)
{
    const char *names[8];
    int32_t n_levels = device_levels(names);
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = NULL;
        for (int i = 0; i < QR_COUNT(qr_heads_cases); i++) {
            be = reopen(be, names[l], 1 + i % 3);
            check_heads(names[l], be, qr_heads_cases[i], 1);
            check_heads(names[l], be, qr_heads_cases[i], 37);
        }
        qr_backend_close(be);
    }
}

/* Numbers whose rounding to bf16 is delicate: ties both ways, the largest finite, infinities, NaN with payload only in the low half. */
static float delicate(struct qr_rng *r)
{
    static const uint32_t bits[] = {0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u, 0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u,
                                    0x7f800001u, 0xff80ffffu, 0x7fffffffu, 0x00000001u, 0x80008000u, 0x00018000u, 0x80000000u};
    uint32_t u = qr_rng_below(r, 3) ? (uint32_t)qr_rng_next(r) : bits[qr_rng_below(r, QR_COUNT(bits))];
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* A head's numbers for the cache: delicate ones, ordinary ones, all too small for a scale, and ties between integers of 8 bits. */
static void head_of(float *x, int32_t n, int32_t kind, struct qr_rng *r)
{
    for (int32_t i = 0; i < n; i++) {
        if (kind == 0)
            x[i] = delicate(r);
        else if (kind == 3)
            x[i] = i == 1 ? -127.0f : (float)qr_rng_below(r, 253) * 0.5f - 63.0f;
        else
            x[i] = kind == 1 ? random_float(r) : (float)qr_rng_below(r, 1000) * 0x1p-130f;
    }
}

/* What kernels.h says that an int8 cache holds. The tiny rows end below 1000 * 2^-130 < 2^-120. */
static void want_int8(int8_t *q, float *scale, const float *x, int32_t n)
{
    float m = 0;
    bool finite = true;
    for (int32_t i = 0; i < n; i++) {
        m = fmaxf(m, fabsf(x[i]));
        finite = finite && isfinite(x[i]);
    }
    *scale = !finite ? NAN : m < 0x1p-120f ? 0 : m / 127;
    for (int32_t i = 0; i < n; i++) {
        q[i] = *scale > 0 ? (int8_t)nearbyintf(x[i] * (127 / m)) : 0;
        cr_assert(!(*scale > 0) || fabs((double)x[i] - (double)q[i] * (double)*scale) <= (double)m * (1.0 / 254 + 0x1p-23) + 0x1p-140);
    }
}

static void check_kv_write(const char *isa, enum qr_dtype type, int32_t head_dim, int32_t block_tokens)
{
    enum { ROWS = 29, G = 3, BLOCKS = 40, LAYERS = 2 };
    struct qr_rng r = {.seed = SEED + (uint64_t)head_dim};
    struct qr_backend *be = open_level(isa, 2, 0);
    struct qr_kv_view kv = {.dtype = type, .n_blocks = BLOCKS, .n_layers = LAYERS, .n_kv_heads = G, .block_tokens = block_tokens, .head_dim = head_dim};
    size_t n_bytes = BLOCKS * qr_kv_block_bytes(&kv);
    uint8_t *want = qr_alloc_aligned(n_bytes, 64);
    kv.base = qr_alloc_aligned(n_bytes, 64);
    memset(kv.base, 0xab, n_bytes);
    memset(want, 0xab, n_bytes);
    int64_t stride = G * head_dim + GAP;
    float *k = random_floats(&r, ROWS * stride), *v = random_floats(&r, ROWS * stride);
    int32_t slot[ROWS];
    for (int32_t n = 0; n < ROWS; n++) {
        slot[n] = (n * 7 + 3) % (BLOCKS * block_tokens);
        for (int32_t g = 0; g < G; g++) {
            float *x[2] = {k + n * stride + g * head_dim, v + n * stride + g * head_dim};
            for (int32_t which = 0; which < 2; which++) {
                head_of(x[which], head_dim, type == QR_I8 ? (n + g + which) % 4 : 0, &r);
                if (type != QR_I8)
                    continue;
                size_t at = qr_kv_offset(&kv, slot[n] / block_tokens, 1, which, g), t = (size_t)(slot[n] % block_tokens);
                float scale;
                want_int8((int8_t *)want + at + t * (size_t)head_dim, &scale, x[which], head_dim);
                memcpy(want + at + (size_t)(block_tokens * head_dim) + 4 * t, &scale, 4);
            }
        }
        for (int32_t i = 0; type != QR_I8 && i < G * head_dim; i++)
            for (int32_t which = 0; which < 2; which++) {
                size_t at = qr_kv_offset(&kv, slot[n] / block_tokens, 1, which, i / head_dim) + (size_t)(slot[n] % block_tokens * head_dim + i % head_dim);
                float x = which ? v[n * stride + i] : k[n * stride + i];
                if (type == QR_F32)
                    memcpy((float *)(void *)want + at, &x, 4);
                else
                    ((uint16_t *)(void *)want)[at] = qr_f32_to_bf16(x);
            }
    }
    struct qr_kv_write_args a = {.kv = &kv, .k = k, .v = v, .slot = slot, .k_stride = stride, .v_stride = stride, .layer = 1, .n_rows = ROWS};
    be->k->kv_write(be->queue, &a);
    cr_assert_eq(memcmp(kv.base, want, n_bytes), 0, "%s %s K %d P %d", isa, qr_dtype_name(type), head_dim, block_tokens);
    struct qr_kv_copy_args copy = {.kv = &kv, .src = 1, .dst = 39};
    be->k->kv_copy(be->queue, &copy);
    memcpy(want + 39 * qr_kv_block_bytes(&kv), want + qr_kv_block_bytes(&kv), qr_kv_block_bytes(&kv));
    cr_assert_eq(memcmp(kv.base, want, n_bytes), 0, "%s: kv_copy", isa);
    qr_free(k), qr_free(v), qr_free_aligned(kv.base), qr_free_aligned(want);
    qr_backend_close(be);
}

Test(kv_write, rounds_to_nearest_even_and_touches_nothing_else)
{
    const char *names[8];
    int32_t n_levels = device_levels(names);
    for (int32_t l = 0; l < n_levels; l++)
        for (int t = 0; t < 3; t++) {
            static const enum qr_dtype types[] = {QR_F32, QR_BF16, QR_I8};
            check_kv_write(names[l], types[t], 8, 16);
            check_kv_write(names[l], types[t], 80, 1);
            check_kv_write(names[l], types[t], 64, 32);
        }
}
