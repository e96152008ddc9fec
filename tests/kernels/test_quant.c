/* linear with quantized weights: every level gives the bits of ref, whatever the batch, and the distance to the product that was not rounded is within what
 * rounding can do. */
#include "tests/kernels/linear_data.h"

#include "kernels/quant.h"
#include "tests/kernels/golden_quant.h"

#define SEED 8383

/* Widths below, at and beyond a group, a tile and a strip; rows below, at and beyond few, a tile and a block. */
static const struct shape shapes[] = {
    {1, 64, 96, false, false},  {3, 1, 1, true, true},       {2, 17, 33, false, true},   {5, 64, 344, false, true}, {7, 172, 64, true, true},
    {13, 160, 80, true, false}, {16, 31, 47, true, false},   {17, 32, 16, false, false}, {33, 33, 15, true, true},  {4, 255, 17, false, false},
    {100, 257, 65, true, true}, {40, 1221, 100, true, true}, {9, 576, 200, false, true}, {1, 1536, 576, true, false}, {66, 65, 160, false, false},
};

static const enum qr_dtype formats[] = {QR_Q8, QR_Q4};
#define N_FORMATS QR_COUNT(formats)

/* And types of codes that numbers are rounded to (test_code_numbers.c). */
static const enum qr_dtype packs[] = {QR_Q8, QR_Q4, QR_C8_G32, QR_C4_G32, QR_C4_G64, QR_C4_G128};
#define N_PACKS QR_COUNT(packs)

struct data {
    struct linear_data l;
    enum qr_dtype to;
    float *w;
};

static struct data make(struct shape s, enum qr_dtype to, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct data d = {.l = linear_data_make(&r, s), .to = to};
    d.w = random_floats(&r, (int64_t)s.n_out * s.n_in);
    for (int64_t i = 0; i < (int64_t)s.n_out * s.n_in; i += 7) /* weights of a wide range */
        d.w[i] *= (float)qr_rng_next_unit(&r) * 0.1f;
    return d;
}

static void drop(struct data *d)
{
    linear_data_drop(&d->l);
    qr_free(d->w);
}

/* Packs in two pieces, the way fused weights are. */
static struct qr_weight pack(struct qr_backend *be, const struct data *d, const void *rows, enum qr_dtype from)
{
    struct qr_weight w = {.packed_dtype = d->to};
    const struct shape *s = &d->l.s;
    w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(d->to, s->n_out, s->n_in), 64);
    int32_t first = s->n_out * 2 / 3;
    be->k->linear_pack(be->queue, w.packed, d->to, s->n_out, s->n_in, 0, rows, from, first);
    be->k->linear_pack(be->queue, w.packed, d->to, s->n_out, s->n_in, first, (const char *)rows + (size_t)first * (size_t)s->n_in * qr_dtype_bytes(from),
                       from, s->n_out - first);
    return w;
}

/* All rows, the weights packed for it. */
static float *product(struct qr_backend *be, const struct data *d, const void *rows, enum qr_dtype from)
{
    struct qr_weight w = pack(be, d, rows, from);
    float *out = product_of(be, &d->l, &w, 0, d->l.s.n_rows);
    qr_free_aligned(w.packed);
    return out;
}

static float *run(const char *isa, int32_t n_threads, int32_t step_rows_max, const struct data *d)
{
    struct qr_backend *be = open_level(isa, n_threads, step_rows_max);
    float *out = product(be, d, d->w, QR_F32);
    qr_backend_close(be);
    return out;
}

Test(quant, every_level_gives_the_bits_of_ref)
{
    const char *names[8];
    int32_t n_levels = levels_above_ref(names);
    printf("seed %d, %d levels\n", SEED, n_levels);
    for (int i = 0; i < N_FORMATS * QR_COUNT(shapes); i += UTIL_STEP) {
        struct data d = make(shapes[i / N_FORMATS], formats[i % N_FORMATS], SEED + (uint64_t)i);
        float *want = run("ref", 1, 0, &d);
        for (int32_t l = 1; l < n_levels; l++) {
            float *got = run(names[l], 2, 0, &d);
            cr_assert(same_rows(&d.l, want, got), "%s %s: %d x %d -> %d differs from ref", names[l], qr_dtype_name(d.to), d.l.s.n_rows, d.l.s.n_in,
                      d.l.s.n_out);
            cr_assert(d.l.s.add || gaps_untouched(got, d.l.s.n_rows, d.l.s.n_out, d.l.out_stride), "%s wrote between rows", names[l]);
            qr_free(got);
        }
        qr_free(want);
        drop(&d);
    }
}

/* Whole multiples of a number that no float has exactly: errors of two multiples of a group are often the same but for roundings, which decide. */
Test(quant, every_level_gives_the_bits_of_ref_where_two_multiples_are_equally_good)
{
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names), n_in = 1280, n_out = 64;
    struct data d = make((struct shape){.n_rows = 2, .n_in = n_in, .n_out = n_out}, QR_Q4, SEED);
    struct qr_rng r = {.seed = SEED};
    for (int32_t k = 0; k < n_in * n_out; k++) {
        const int32_t n = qr_rng_next_unit(&r) < 0.2 ? (int32_t)(qr_rng_next_unit(&r) * 141) - 70 : 0;
        d.w[k] = (float)(k % n_in ? n : 105) * 0.0123f;
    }
    float *want = run("ref", 1, 0, &d);
    for (int32_t l = 1; l < n_levels; l++) {
        float *got = run(names[l], 2, 0, &d);
        cr_assert(same_rows(&d.l, want, got), "%s %s differs from ref", names[l], qr_dtype_name(d.to));
        qr_free(got);
    }
    qr_free(want);
    drop(&d);
}

Test(quant, gives_a_row_the_same_bits_alone_and_with_any_number_of_threads)
{
    static const struct shape cases[] = {{70, 300, 200, true, true}, {5, 1000, 50, false, false}, {130, 640, 64, true, false}};
    const char *names[8];
    int32_t n_levels = levels_above_ref(names);
    for (int i = 0; i < N_FORMATS * QR_COUNT(cases); i += UTIL_STEP) {
        struct data d = make(cases[i / N_FORMATS], formats[i % N_FORMATS], SEED + 100 + (uint64_t)i);
        for (int32_t l = 1; l < n_levels; l++) {
            float *one = run(names[l], 1, 0, &d), *three = run(names[l], 3, 0, &d);
            cr_assert(same_rows(&d.l, one, three), "%s: three threads differ from one", names[l]);
            struct qr_backend *be = open_level(names[l], 1, 0);
            struct qr_weight w = pack(be, &d, d.w, QR_F32);
            for (int32_t n = 0; n < d.l.s.n_rows; n += 3) {
                float *alone = product_of(be, &d.l, &w, n, 1);
                cr_assert(same_bits(alone, one + n * d.l.out_stride, d.l.s.n_out), "%s %s: row %d differs alone", names[l], qr_dtype_name(d.to), n);
                qr_free(alone);
            }
            qr_free_aligned(w.packed);
            qr_backend_close(be);
            qr_free(one);
            qr_free(three);
        }
        drop(&d);
    }
}

Test(quant, gives_the_same_bits_when_scratch_holds_only_a_part_of_the_rows)
{
    const char *names[8];
    int32_t n_levels = levels_above_ref(names);
    for (int i = 0; i < N_FORMATS; i += UTIL_STEP) { /* 1 MiB of scratch: some 30 rows at a time, of bf16 or floats fewer */
        const int32_t most = qr_linear_inputs_max(formats[i]), n_in = most < 33000 ? most : 33000;
        struct data d = make((struct shape){.n_rows = 70, .n_in = n_in, .n_out = 40}, formats[i], SEED);
        for (int32_t l = 1; l < n_levels; l++) {
            float *small = run(names[l], 2, 1, &d), *large = run(names[l], 2, 0, &d);
            cr_assert(same_rows(&d.l, small, large), "%s %s", names[l], qr_dtype_name(d.to));
            qr_free(small);
            qr_free(large);
        }
        drop(&d);
    }
}

/* Values that f32, f16 and bf16 hold alike: multiples of 1/8 up to 3. */
Test(quant, packs_f32_f16_and_bf16_rows_to_the_same_weights)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    for (int32_t l = 0; l < n_levels; l++)
        for (int i = 0; i < N_PACKS; i++) {
            struct data d = make((struct shape){.n_rows = 5, .n_in = 45, .n_out = 70}, packs[i], SEED);
            int64_t n = (int64_t)d.l.s.n_in * d.l.s.n_out;
            uint16_t *f16 = qr_alloc((size_t)n, sizeof *f16), *bf16 = qr_alloc((size_t)n, sizeof *bf16);
            for (int64_t k = 0; k < n; k++) {
                float v = d.w[k] = (float)(int)(d.w[k] * 8) / 8;
                uint32_t u;
                memcpy(&u, &v, sizeof u);
                bf16[k] = qr_f32_to_bf16(v);
                f16[k] = v == 0 ? 0 : (uint16_t)(((u >> 16) & 0x8000u) | ((((u >> 23) & 255u) - 112u) << 10) | ((u >> 13) & 1023u));
            }
            struct qr_backend *be = open_level(names[l], 2, 0);
            float *a = product(be, &d, d.w, QR_F32), *b = product(be, &d, f16, QR_F16), *c = product(be, &d, bf16, QR_BF16);
            cr_assert(same_rows(&d.l, a, b) && same_rows(&d.l, a, c), "%s %s", names[l], qr_dtype_name(d.to));
            qr_backend_close(be);
            qr_free(a);
            qr_free(b);
            qr_free(c);
            qr_free(f16);
            qr_free(bf16);
            drop(&d);
        }
}

/* How far the weights of row o can be from what they became, times |x|, summed, in one group (see the test below). */
static double weight_error(const struct data *d, const float *x, const float *w, int32_t from, int32_t n, double largest)
{
    const struct qr_quant_format f = qr_dtype_format(d->to);
    double sum = 0, group = 0, squares = 0;
    for (int32_t i = from; i < from + n; i++) {
        sum += fabs((double)x[i]);
        group = fmax(group, fabs((double)w[i]));
        squares += (double)x[i] * (double)x[i];
    }
    if (!f.group)
        return sum * largest / 127 / 2;
    return sqrt(squares) * sqrt(f.group) * (group / 7 + largest / 105) / 2;
}

static double row_max(const float *x, int32_t n)
{
    double most = 0;
    for (int32_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* x' = x + e, w' = w + f, so |x' w' - x w| <= |x| |f| + |w| |e| + |e f|. Activations: |e| <= max|x| / 254. Weights: without groups |f| <= max|w| / 254. With
 * them the smallest multiple m that holds the group's largest weight has |f| <= m s / 2 everywhere, where m s <= max_group / 7 + s and s = max|w| / 105; the m
 * that is chosen has no larger sum of squares, so by Cauchy and Schwarz a group's sum of |x| |f| is at most |x|_2 sqrt(G) m s / 2. Roundings of single numbers,
 * the scales and the result move each bound by some 2^-22 of itself or of the result. */
static double bound_of(const struct data *d, const float *x, const float *w)
{
    const struct qr_quant_format f = qr_dtype_format(d->to);
    const int32_t n_in = d->l.s.n_in, group = f.group ? f.group : 32;
    double bound = 0, e = row_max(x, n_in) / 254, largest = row_max(w, n_in);
    float *moved = qr_alloc((size_t)n_in, sizeof *moved);
    for (int32_t k = 0; k < n_in; k++) {
        moved[k] = (float)e;
        bound += fabs((double)w[k]) * e;
    }
    for (int32_t k = 0; k < n_in; k += group) {
        int32_t len = n_in - k < group ? n_in - k : group;
        bound += weight_error(d, x, w, k, len, largest) + weight_error(d, moved, w, k, len, largest);
    }
    qr_free(moved);
    return bound * (1 + 0x1p-18);
}

Test(quant, is_as_close_to_the_product_as_rounding_allows)
{
    for (int i = 0; i < N_FORMATS * QR_COUNT(shapes); i += UTIL_STEP) {
        struct data d = make(shapes[i / N_FORMATS], formats[i % N_FORMATS], SEED + 500 + (uint64_t)i);
        d.l.s.bias = d.l.s.add = false;
        float *got = run("ref", 1, 0, &d);
        double worst = 0;
        for (int32_t n = 0; n < d.l.s.n_rows; n++)
            for (int32_t o = 0; o < d.l.s.n_out; o++) {
                const float *x = d.l.x + n * d.l.x_stride, *w = d.w + (int64_t)o * d.l.s.n_in;
                double exact = 0;
                for (int32_t k = 0; k < d.l.s.n_in; k++)
                    exact += (double)x[k] * (double)w[k];
                double bound = bound_of(&d, x, w) + fabs(exact) * 0x1p-20, error = fabs((double)got[n * d.l.out_stride + o] - exact);
                cr_assert_leq(error, bound, "%s %d x %d -> %d", qr_dtype_name(d.to), d.l.s.n_rows, d.l.s.n_in, d.l.s.n_out);
                worst = fmax(worst, error / bound);
            }
        printf("%s %d x %d -> %d: worst error %.3f of the bound\n", qr_dtype_name(d.to), d.l.s.n_rows, d.l.s.n_in, d.l.s.n_out, worst);
        qr_free(got);
        drop(&d);
    }
}

/* n numbers of a type, some of them ties of a format or equal to a row's largest; row 5 of 16 small, and `zeros`: row 3 nothing but zeros. */
static void random_rows(char *to, enum qr_dtype type, struct qr_rng *r, int32_t n_out, int32_t n_in, bool zeros)
{
    for (int64_t i = 0; i < (int64_t)n_out * n_in; i++) {
        const int64_t o = i / n_in;
        float x = ((float)qr_rng_next_unit(r) + (float)qr_rng_next_unit(r) - 1) * (o == 5 ? 0x1p-10f : 1);
        if (i % 11 == 0)
            x = i % 3 ? 1 : ldexpf((float)(i % 15), -4);
        if (zeros && o == 3)
            x = 0;
        const uint16_t half = type == QR_BF16 ? qr_f32_to_bf16(x) : qr_f32_to_f16(x);
        memcpy(to + (size_t)i * qr_dtype_bytes(type), type == QR_F32 ? (const void *)&x : &half, qr_dtype_bytes(type));
    }
}

/* Of a panel that comes at once all rows are rounded side by side, of pieces each alone. */
Test(quant, panels_have_the_same_bytes_whether_their_rows_come_together_or_in_pieces)
{
    static const int32_t widths[] = {128, 256, 576, 97, 30, 64, 290};
    static const enum qr_dtype types[] = {QR_F32, QR_BF16, QR_F16};
    enum { n_out = 32 };
    struct qr_rng r = {.seed = SEED + 7};
    const char *names[8];
    for (int32_t l = 1, n_levels = levels_above_ref(names); l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 2, 0);
        for (int i = 0; i < N_PACKS * QR_COUNT(widths) * QR_COUNT(types); i += UTIL_STEP) {
            const enum qr_dtype to = packs[i % N_PACKS], from = types[i / N_PACKS % QR_COUNT(types)];
            const int32_t n_in = widths[i / N_PACKS / QR_COUNT(types)], cut = 1 + i % 15;
            const size_t n_bytes = be->k->linear_packed_bytes(to, n_out, n_in), row = (size_t)n_in * qr_dtype_bytes(from);
            char *rows = qr_alloc(n_out * row, 1), *whole = qr_alloc_aligned(n_bytes, 64), *pieces = qr_alloc_aligned(n_bytes, 64);
            random_rows(rows, from, &r, n_out, n_in, i % 4 == 0);
            be->k->linear_pack(be->queue, whole, to, n_out, n_in, 0, rows, from, n_out);
            for (int32_t o = 0, n; o < n_out; o += n) {
                n = o % QR_LINEAR_PACKED_TOGETHER ? QR_LINEAR_PACKED_TOGETHER - cut : cut;
                be->k->linear_pack(be->queue, pieces, to, n_out, n_in, o, rows + (size_t)o * row, from, n);
            }
            for (size_t k = 0; k < n_bytes; k++)
                cr_assert_eq(whole[k], pieces[k], "seed %d %s %s from %s, %d inputs: byte %zu", SEED, names[l], qr_dtype_name(to), qr_dtype_name(from),
                             n_in, k);
            qr_free(rows);
            qr_free_aligned(whole);
            qr_free_aligned(pieces);
        }
        qr_backend_close(be);
    }
}

/* Number i of tools/golden/quant.py. */
static float golden_number(uint32_t i)
{
    float x = (float)((int32_t)((i * 2654435761u + 12345) >> 12) - (1 << 19)) / (float)(1 << 19);
    return i % 7 == 0 ? x / 16 : x;
}

Test(quant, gives_what_another_implementation_of_the_formats_gave)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    const struct shape s = {.n_rows = GOLDEN_ROWS, .n_in = GOLDEN_INPUTS, .n_out = GOLDEN_OUTPUTS};
    cr_assert_eq(QR_COUNT(golden), N_FORMATS);
    for (int i = 0; i < QR_COUNT(golden) * n_levels; i++) {
        const int f = i / n_levels;
        const char *isa = names[i % n_levels];
        struct data d = make(s, golden[f].to, SEED);
        for (int32_t k = 0; k < GOLDEN_INPUTS; k++) {
            for (int32_t r = 0; r < GOLDEN_ROWS; r++)
                d.l.x[r * d.l.x_stride + k] = golden_number((uint32_t)(r * GOLDEN_INPUTS + k));
            for (int32_t o = 0; o < GOLDEN_OUTPUTS; o++)
                d.w[o * GOLDEN_INPUTS + k] = golden_number((uint32_t)(100000 + o * GOLDEN_INPUTS + k));
        }
        float *got = run(isa, 2, 0, &d), inverse;
        for (int32_t o = 0; o < GOLDEN_OUTPUTS; o++) {
            const float scale = qr_quant_scale(&inverse, qr_quant_row_max(d.w + o * GOLDEN_INPUTS, QR_F32, GOLDEN_INPUTS),
                                               qr_quant_largest(qr_dtype_format(d.to)));
            cr_expect(same_bits(&scale, &golden[f].scale[o], 1), "%s: scale %d", qr_dtype_name(d.to), o);
        }
        for (int32_t r = 0; r < GOLDEN_ROWS; r++)
            for (int32_t o = 0; o < GOLDEN_OUTPUTS; o++)
                cr_assert_eq((double)got[r * d.l.out_stride + o], golden[f].want[r][o], "%s %s: row %d output %d is %a, expected %a", isa,
                             qr_dtype_name(d.to), r, o, (double)got[r * d.l.out_stride + o], golden[f].want[r][o]);
        qr_free(got);
        drop(&d);
    }
}

Test(quant, rows_of_zeros_give_zero_and_rows_without_a_largest_number_give_nan_to_themselves_only)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    for (int32_t l = 0; l < n_levels; l++)
        for (int i = 0; i < 2 * N_FORMATS; i++) {
            struct data d = make((struct shape){.n_rows = i < N_FORMATS ? 4 : 40, .n_in = 70, .n_out = 20}, formats[i % N_FORMATS], SEED);
            float *row1 = d.l.x + d.l.x_stride, *row2 = row1 + d.l.x_stride;
            memset(d.l.x, 0, 70 * sizeof *d.l.x);
            row1[69] = NAN;
            row2[3] = -INFINITY;
            memset(d.w + 5 * 70, 0, 70 * sizeof *d.w);
            d.w[6 * 70] = 0x1p-140f;
            float *out = run(names[l], 2, 0, &d);
            for (int32_t o = 0; o < 20; o++) {
                float nan = out[d.l.out_stride + o], infinity = out[2 * d.l.out_stride + o];
                cr_assert(out[o] == 0 && isnan(nan) && isnan(infinity), "%s output %d", names[l], o);
                cr_assert(isfinite(out[3 * d.l.out_stride + o]), "%s output %d", names[l], o);
            }
            cr_assert_eq(out[3 * d.l.out_stride + 5], 0);
            qr_free(out);
            drop(&d);
        }
}

/* An INT8 checkpoint with --quantize int8: code times scale is exact in f32, and so is max / 127 = scale. */
Test(quant, rows_that_were_rounded_before_up_to_the_code_of_127_keep_their_codes_and_scale)
{
    enum { N = 200, ROWS = 500 };
    struct qr_rng r = {.seed = SEED + 9};
    for (int row = 0; row < ROWS; row++) {
        const float stored = qr_bf16_to_f32(qr_f32_to_bf16(ldexpf((float)qr_rng_next_unit(&r) + 0.5f, -(int)qr_rng_below(&r, 20))));
        int8_t code[N], again[N];
        float x[N], inverse;
        for (int i = 0; i < N; i++) {
            code[i] = (int8_t)(i == row % N ? (row % 2 ? 127 : -127) : (int)qr_rng_below(&r, 255) - 127);
            x[i] = stored * code[i];
        }
        const float scale = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, N), QR_Q8_LARGEST);
        qr_quant_int8(again, x, N, inverse);
        cr_assert(scale == stored && memcmp(code, again, N) == 0, "seed %d row %d: %a, %a", SEED + 9, row, (double)scale, (double)stored);
    }
}
