/* linear and linear_pack: against the double oracle within a derived bound, and bit for bit whatever the batch. */
#include "tests/kernels/util.h"

#include "tests/kernels/oracle.h"
#include "tests/ops_cases.h"

#define SEED 4242
#define X_GAP 3 /* rows of x and out do not touch */

struct data {
    struct qr_linear_case c;
    float *x, *old, *bias, *w;
    int64_t x_stride, out_stride;
};

static struct data make(struct qr_linear_case c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct data d = {.c = c, .x_stride = c.n_in + X_GAP, .out_stride = c.n_out + X_GAP};
    d.x = random_floats(&r, c.n_rows * d.x_stride);
    d.old = random_floats(&r, c.n_rows * d.out_stride);
    d.bias = random_floats(&r, c.n_out);
    d.w = random_floats(&r, (int64_t)c.n_out * c.n_in);
    return d;
}

static void drop(struct data *d)
{
    qr_free(d->x);
    qr_free(d->old);
    qr_free(d->bias);
    qr_free(d->w);
}

/* Packs in two pieces, the way fused weights are, from f32. */
static struct qr_weight pack(const struct qr_kernels *k, struct qr_queue *q, const struct data *d)
{
    struct qr_weight w = {.packed_dtype = d->c.w};
    w.packed = qr_alloc_aligned(k->linear_packed_bytes(d->c.w, d->c.n_out, d->c.n_in), 64);
    int32_t first = d->c.n_out * 2 / 3;
    k->linear_pack(q, w.packed, d->c.w, d->c.n_out, d->c.n_in, 0, d->w, QR_F32, first);
    k->linear_pack(q, w.packed, d->c.w, d->c.n_out, d->c.n_in, first, d->w + (int64_t)first * d->c.n_in, QR_F32, d->c.n_out - first);
    return w;
}

static struct qr_linear_args args(const struct data *d, const struct qr_weight *w, void *out, const void *x)
{
    return (struct qr_linear_args){.out = out, .x = x, .w = w, .bias = d->c.bias ? d->bias : NULL, .out_stride = d->out_stride,
                                   .x_stride = d->x_stride, .n_rows = d->c.n_rows, .n_in = d->c.n_in, .n_out = d->c.n_out, .add = d->c.add};
}

static float *run(struct qr_backend *be, const struct data *d)
{
    int64_t n = d->c.n_rows * d->out_stride;
    float *out = d->c.add ? copy_floats(d->old, n) : poisoned(n);
    struct qr_weight w = pack(be->k, be->queue, d);
    struct qr_linear_args a = args(d, &w, out, d->x);
    be->k->linear(be->queue, &a);
    qr_free_aligned(w.packed);
    return out;
}

/* A chain of n_in fused or separate products and sums, the bias and the old value: n_in + 3 roundings at most touch any term, so
 * |error| <= gamma_{n_in+3} (sum |x w| + |bias| + |old|) by Higham, Accuracy and Stability, section 3.1. Both sides round x and w to bf16
 * alike, and products of two bf16 are exact, so bf16 needs nothing on top. Tiles add in another order (chains of 16, their sum, the sum of
 * these), in which fewer roundings touch a term. They take a denormal operand for 0, which costs 2^-126 times the other factor (below 4
 * here), and a denormal result for 0, which costs 2^-126, each at most 2 n_in + 3 times. */
struct truth {
    double *want, *bound; /* owned, [n_rows, out_stride] */
};

static struct truth truth_of(const struct data *d)
{
    const struct qr_linear_case *c = &d->c;
    const int64_t n = c->n_rows * d->out_stride;
    double *x = widen(d->x, c->n_rows * d->x_stride);
    struct truth t = {widen(d->old, n), qr_alloc((size_t)n, sizeof *t.bound)};
    struct qr_weight w = pack(oracle, NULL, d);
    struct qr_linear_args a = args(d, &w, t.want, x);
    oracle->linear(NULL, &a);
    for (int32_t n_row = 0; n_row < c->n_rows; n_row++)
        for (int32_t o = 0; o < c->n_out; o++) {
            const int64_t at = n_row * d->out_stride + o;
            double size = (c->bias ? fabs((double)d->bias[o]) : 0) + (c->add ? fabs((double)d->old[at]) : 0);
            for (int32_t i = 0; i < c->n_in; i++)
                size += fabs(qr_ref_meet(x[n_row * d->x_stride + i], c->w) * (double)qr_ref_load(w.packed, c->w, (size_t)o * (size_t)c->n_in + (size_t)i));
            t.bound[at] = gamma_n(c->n_in + 3) * size + (2 * c->n_in + 3) * 5 * 0x1p-126;
        }
    qr_free_aligned(w.packed);
    qr_free(x);
    return t;
}

static double worst_ratio(const struct data *d, const struct truth *t, const float *got)
{
    double worst = 0;
    for (int32_t n = 0; n < d->c.n_rows; n++)
        for (int32_t o = 0; o < d->c.n_out; o++) {
            const int64_t at = n * d->out_stride + o;
            const double error = fabs((double)got[at] - t->want[at]), bound = t->bound[at];
            const double ratio = error <= bound ? (bound > 0 ? error / bound : 0) : INFINITY; /* of a NaN, too */
            worst = fmax(worst, ratio);
        }
    return worst;
}

/* Threads of an emulated device are fibers. */
static bool is_too_slow(const char *level, const struct qr_linear_case *c)
{
    return strcmp(level, "cuda") == 0 && (int64_t)c->n_rows * c->n_in * c->n_out > 1800000;
}

Test(linear, is_within_the_bound_of_the_double_oracle_at_every_level)
{
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    double worst[QR_COUNT(names)] = {0};
    for (int i = 0; i < QR_COUNT(qr_linear_cases); i += UTIL_STEP) {
        if (!(qr_linear_cases[i].use & QR_CASE_CHECK))
            continue;
        struct data d = make(qr_linear_cases[i], SEED + (uint64_t)i);
        struct truth t = truth_of(&d);
        for (int32_t l = 0; l < n_levels; l++) {
            if (is_too_slow(names[l], &d.c))
                continue;
            struct qr_backend *be = open_level(names[l], 2, 0);
            float *out = run(be, &d);
            double ratio = worst_ratio(&d, &t, out);
            cr_assert_leq(ratio, 1, "%s, case %d, seed %d: error beyond the bound", names[l], i, SEED + i);
            if (!d.c.add)
                cr_assert(gaps_untouched(out, d.c.n_rows, d.c.n_out, d.out_stride), "%s, case %d wrote between rows", names[l], i);
            worst[l] = fmax(worst[l], ratio);
            qr_free(out);
            qr_backend_close(be);
        }
        qr_free(t.want);
        qr_free(t.bound);
        drop(&d);
    }
    for (int32_t l = 0; l < n_levels; l++)
        printf("linear %s: worst error %.3f of the bound\n", names[l], worst[l]);
}

/* Rows of one product computed alone, by one thread, must equal what the batch gave. */
static void check_rows_alone(const char *isa, const struct data *d, const float *whole)
{
    struct qr_backend *be = open_level(isa, 1, 0);
    struct qr_weight w = pack(be->k, be->queue, d);
    for (int32_t n = 0; n < d->c.n_rows; n++) {
        float *out = copy_floats(d->old + n * d->out_stride, d->c.n_out);
        struct qr_linear_args a = args(d, &w, out, d->x + n * d->x_stride);
        a.n_rows = 1;
        be->k->linear(be->queue, &a);
        cr_assert(same_bits(out, whole + n * d->out_stride, d->c.n_out), "%s: row %d of %d (I %d, O %d) differs alone", isa, n,
                  d->c.n_rows, d->c.n_in, d->c.n_out);
        qr_free(out);
    }
    qr_free_aligned(w.packed);
    qr_backend_close(be);
}

Test(linear, gives_a_row_the_same_bits_in_any_batch_and_with_any_number_of_threads)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    struct qr_rng r = {.seed = SEED};
    printf("seed %d\n", SEED);
    for (int round = 0; round < 24; round += UTIL_STEP) {
        struct qr_linear_case c = {.n_rows = 1 + (int32_t)qr_rng_below(&r, 60), .n_in = 1 + (int32_t)qr_rng_below(&r, 400),
                                   .n_out = 1 + (int32_t)qr_rng_below(&r, 400), .w = round % 2 ? QR_BF16 : QR_F32,
                                   .bias = qr_rng_below(&r, 2), .add = qr_rng_below(&r, 2)};
        struct data d = make(c, SEED + 100 + (uint64_t)round);
        for (int32_t l = 0; l < n_levels; l++) {
            float *first = NULL;
            for (int32_t t = 1; t <= 3; t++) {
                struct qr_backend *be = open_level(names[l], t, 0);
                float *out = run(be, &d);
                qr_backend_close(be);
                if (!first) {
                    first = out;
                    continue;
                }
                cr_assert(same_bits(first, out, c.n_rows * d.out_stride), "%s: %d threads differ from one", names[l], t);
                qr_free(out);
            }
            check_rows_alone(names[l], &d, first);
            qr_free(first);
        }
        drop(&d);
    }
}

/* The shapes of blocks on a device change with the number of rows; what a row gets does not. */
Test(linear, gives_a_row_the_same_bits_in_every_shape_of_blocks_on_a_device)
{
    static const int32_t first[] = {0, 0, 3, 0}, n[] = {1, 16, 17, 64};
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    if (strcmp(names[n_levels - 1], "cuda") != 0)
        cr_skip_test("no emulated device");
    for (int vec = 0; vec < 2; vec++) {
        struct data d = make((struct qr_linear_case){.n_rows = 66, .n_in = vec ? 136 : 131, .n_out = 21, .w = QR_BF16, .bias = true, .add = true}, SEED + vec);
        struct qr_backend *be = open_level("cuda", 1, 0);
        float *whole = run(be, &d);
        struct qr_weight w = pack(be->k, be->queue, &d);
        for (int i = 0; i < QR_COUNT(n); i++) {
            float *out = copy_floats(d.old, d.c.n_rows * d.out_stride);
            struct qr_linear_args a = args(&d, &w, out + first[i] * d.out_stride, d.x + first[i] * d.x_stride);
            a.n_rows = n[i];
            be->k->linear(be->queue, &a);
            for (int32_t r = first[i]; r < first[i] + n[i]; r++)
                cr_assert(same_bits(out + r * d.out_stride, whole + r * d.out_stride, d.c.n_out), "row %d of %d", r, n[i]);
            qr_free(out);
        }
        qr_free_aligned(w.packed);
        qr_free(whole);
        drop(&d);
        qr_backend_close(be);
    }
}

/* More rows than a chunk, more than two tiles, inputs of more than one slice, an odd number of panels: how amx/linear.c cuts its work. */
Test(linear, gives_a_row_the_same_bits_alone_and_among_hundreds)
{
    static const struct qr_linear_case cases[] = {
        {33, 1153, 70, QR_BF16, true, false, 0}, {48, 577, 48, QR_BF16, false, true, 0},   {530, 640, 96, QR_BF16, false, false, 0},
        {16, 2048, 33, QR_BF16, false, false, 0}, {130, 1217, 161, QR_BF16, true, true, 0}, {66, 32, 4200, QR_BF16, true, false, 0},
        {32, 32, 4200, QR_BF16, true, false, 0},
    };
    const char *names[8];
    int32_t n_levels = levels_above_ref(names);
    for (int32_t l = 1; l < n_levels; l++)
        for (int i = 0; i < QR_COUNT(cases); i++) {
            struct data d = make(cases[i], SEED + 200 + (uint64_t)i);
            struct qr_backend *be = open_level(names[l], 2, 0);
            float *whole = run(be, &d);
            qr_backend_close(be);
            check_rows_alone(names[l], &d, whole);
            qr_free(whole);
            drop(&d);
        }
}

/* Sign and fraction at random, the exponent from all there are: denormal numbers, products below and sums beyond f32, infinity, NaN. */
static void make_extreme(struct qr_rng *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)qr_rng_next(r);
        if (qr_rng_below(r, 200) != 0 && (u >> 23 & 255u) == 255u)
            u ^= 0x20000000u;
        memcpy(&x[i], &u, 4);
    }
}

Test(linear, gives_a_row_the_same_bits_alone_when_numbers_are_extreme)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    struct qr_rng r = {.seed = SEED};
    int64_t n_finite = 0;
    for (int round = 0; round < 20; round += UTIL_STEP) {
        struct data d = make((struct qr_linear_case){.n_rows = 20 + round, .n_in = 1 + round * 4, .n_out = 50, .w = QR_BF16}, SEED);
        make_extreme(&r, d.x, d.c.n_rows * d.x_stride);
        make_extreme(&r, d.w, (int64_t)d.c.n_out * d.c.n_in);
        for (int32_t l = 0; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            float *whole = run(be, &d);
            qr_backend_close(be);
            check_rows_alone(names[l], &d, whole);
            for (int32_t n = 0; n < d.c.n_rows; n++)
                for (int32_t o = 0; o < d.c.n_out; o++)
                    n_finite += isfinite(whole[n * d.out_stride + o]);
            qr_free(whole);
        }
        drop(&d);
    }
    cr_assert_gt(n_finite, 1000, "only %lld results are numbers", (long long)n_finite);
}

Test(linear, gives_the_same_bits_when_scratch_holds_only_a_part_of_the_rows)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_linear_case c = {.n_rows = 70, .n_in = 11000, .n_out = 40, .w = QR_BF16}; /* 1 MiB of scratch: 23 rows at a time */
        struct data d = make(c, SEED);
        struct qr_backend *small = open_level(names[l], 2, 1), *large = open_level(names[l], 2, 0);
        float *a = run(small, &d), *b = run(large, &d);
        cr_assert(same_bits(a, b, c.n_rows * d.out_stride), "%s", names[l]);
        qr_free(a);
        qr_free(b);
        qr_backend_close(small);
        qr_backend_close(large);
        drop(&d);
    }
}

/* w [n_out, n_in] as stored type `from`, written to `raw`; returns nothing lost: values are small multiples of 1/8. */
static void *stored(const float *w, int64_t n, enum qr_dtype from)
{
    void *raw = qr_alloc((size_t)n, 4);
    for (int64_t i = 0; i < n; i++) {
        float v = (float)(int)(w[i] * 8) / 8;
        uint16_t half = 0;
        if (from == QR_F32)
            ((float *)raw)[i] = v;
        else if (from == QR_BF16)
            ((uint16_t *)raw)[i] = qr_f32_to_bf16(v);
        else {
            uint32_t u; /* small multiples of 1/8 are normal in f16 and keep all their bits */
            memcpy(&u, &v, 4);
            half = v == 0 ? 0 : (uint16_t)(((u >> 16) & 0x8000u) | ((((u >> 23) & 255u) - 112u) << 10) | ((u >> 13) & 1023u));
            ((uint16_t *)raw)[i] = half;
        }
    }
    return raw;
}

Test(linear, packs_f32_f16_and_bf16_rows_to_the_same_product)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    static const enum qr_dtype types[] = {QR_F32, QR_F16, QR_BF16};
    for (int32_t l = 0; l < n_levels; l++)
        for (int to = 0; to < 2; to++) {
            struct data d = make((struct qr_linear_case){.n_rows = 5, .n_in = 45, .n_out = 70, .w = to ? QR_BF16 : QR_F32}, SEED);
            struct qr_backend *be = open_level(names[l], 2, 0);
            float *first = NULL;
            for (int f = 0; f < 3; f++) {
                void *raw = stored(d.w, (int64_t)d.c.n_in * d.c.n_out, types[f]);
                float *out = poisoned(d.c.n_rows * d.out_stride);
                struct qr_weight w = {.packed_dtype = d.c.w};
                w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(d.c.w, d.c.n_out, d.c.n_in), 64);
                be->k->linear_pack(be->queue, w.packed, d.c.w, d.c.n_out, d.c.n_in, 0, raw, types[f], d.c.n_out);
                struct qr_linear_args a = args(&d, &w, out, d.x);
                be->k->linear(be->queue, &a);
                cr_assert(!isnan(out[0]));
                if (first)
                    cr_assert(same_bits(first, out, d.c.n_rows * d.out_stride), "%s from %s", names[l], qr_dtype_name(types[f]));
                qr_free(raw);
                qr_free_aligned(w.packed);
                if (!first)
                    first = out;
                else
                    qr_free(out);
            }
            qr_free(first);
            qr_backend_close(be);
            drop(&d);
        }
}

Test(linear, does_nothing_for_no_rows)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    for (int32_t l = 0; l < n_levels; l++) {
        struct data d = make((struct qr_linear_case){.n_rows = 1, .n_in = 16, .n_out = 16}, SEED);
        struct qr_backend *be = open_level(names[l], 2, 0);
        struct qr_weight w = pack(be->k, be->queue, &d);
        float *out = poisoned(d.out_stride);
        struct qr_linear_args a = args(&d, &w, out, d.x);
        a.n_rows = 0;
        be->k->linear(be->queue, &a);
        cr_assert(gaps_untouched(out, 1, 0, d.out_stride));
        qr_free(out);
        qr_free_aligned(w.packed);
        qr_backend_close(be);
        drop(&d);
    }
}
