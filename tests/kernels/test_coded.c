/* linear with coded weights: a level gives the bits of its own bf16 product of the numbers that ref unpacks, whatever the batch, and these are what the
 * formula says; avx2 those of sums of integers. */
#include "tests/kernels/linear_data.h"
#include "tests/kernels/whole_model.h"

#define SEED 5115

/* Widths below, at and beyond a group, a block and a strip; rows below, at and beyond a block and a tile. */
static const struct shape shapes[] = {
    {1, 256, 96, false, false}, {1, 576, 48, true, true},   {1, 31, 17, false, true},  {2, 65, 33, false, false}, {3, 1, 1, true, true},
    {5, 512, 120, false, true}, {16, 300, 47, true, false}, {17, 768, 64, false, false}, {33, 128, 15, true, true}, {70, 257, 33, true, true},
    {9, 1280, 32, false, false}, {50, 288, 40, true, false},
};

struct data {
    struct linear_data l;
    enum qr_dtype type;
    struct coded_source *rows;
    uint16_t *numbers; /* [n_out, n_in] bf16: as ref unpacks them */
};

static struct qr_weight pack(struct qr_backend *be, const struct data *d)
{
    struct qr_weight w = {.packed_dtype = d->type};
    const struct shape *s = &d->l.s;
    w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(d->type, s->n_out, s->n_in), 64);
    const int32_t first = s->n_out * 2 / 3; /* in two pieces, the way fused weights are */
    struct coded_source rest = *d->rows;
    rest.all = qr_coded_row(&d->rows->all, d->rows->f, s->n_in, first);
    rest.source.arg = &rest;
    be->k->linear_pack_coded(be->queue, w.packed, d->type, s->n_out, s->n_in, 0, &d->rows->source, first);
    be->k->linear_pack_coded(be->queue, w.packed, d->type, s->n_out, s->n_in, first, &rest.source, s->n_out - first);
    return w;
}

static struct data make(struct qr_backend *ref, struct shape s, enum qr_dtype type, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct data d = {.l = linear_data_make(&r, s), .type = type};
    d.rows = coded_source_new(&r, type, s.n_out, s.n_in);
    d.numbers = pack(ref, &d).packed;
    return d;
}

static void drop(struct data *d)
{
    coded_source_free(d->rows);
    qr_free_aligned(d->numbers);
    linear_data_drop(&d->l);
}

/* What the level makes of the numbers as bf16 weights. */
static float *bf16_product(struct qr_backend *be, const struct data *d)
{
    struct qr_weight w = {.packed_dtype = QR_BF16};
    w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(QR_BF16, d->l.s.n_out, d->l.s.n_in), 64);
    be->k->linear_pack(be->queue, w.packed, QR_BF16, d->l.s.n_out, d->l.s.n_in, 0, d->numbers, QR_BF16, d->l.s.n_out);
    float *out = product_of(be, &d->l, &w, 0, d->l.s.n_rows);
    qr_free_aligned(w.packed);
    return out;
}

/* What sums of integers give, which is as near to the exact product as it has to be. */
static float *whole_product(const struct data *d)
{
    const struct linear_data *l = &d->l;
    const int64_t n = l->s.n_rows * l->out_stride;
    float *out = l->s.add ? copy_floats(l->old, n) : poisoned(n);
    for (int64_t r = 0; r < l->s.n_rows; r++)
        for (int64_t o = 0; o < l->s.n_out; o++) {
            double exact, most;
            float *to = &out[r * l->out_stride + o], y = whole_sum(&exact, &most, d->rows, o, l->x + r * l->x_stride);
            cr_assert(fabs((double)y - exact) <= most, "%s: %g is %g from the exact sum, more than %g", qr_dtype_name(d->type), (double)y,
                      fabs((double)y - exact), most);
            y = l->s.bias ? y + l->bias[o] : y;
            *to = l->s.add ? y + *to : y;
        }
    return out;
}

static bool has(const struct qr_backend *be, enum qr_dtype type)
{
    return be->k->linear_packed_bytes(type, 16, 256) > 0;
}

/* An emulated device gets each type that it has and each shape once. */
static bool spared(const struct qr_backend *be, int i)
{
    return !has(be, coded_types[i % QR_COUNT(coded_types)]) || (!be->mem->host && i % QR_COUNT(coded_types) % QR_COUNT(shapes) != i / QR_COUNT(coded_types));
}

Test(coded, products_have_the_bits_of_the_bf16_product_of_the_same_numbers_or_where_they_are_by_integers_those_of_these)
{
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    struct qr_backend *level[8];
    printf("seed %d, %d levels\n", SEED, n_levels);
    for (int32_t l = 0; l < n_levels; l++)
        level[l] = open_level(names[l], 2, 0);
    for (int i = 0; i < QR_COUNT(coded_types) * QR_COUNT(shapes); i += UTIL_STEP) {
        struct data d = make(level[0], shapes[i / QR_COUNT(coded_types)], coded_types[i % QR_COUNT(coded_types)], SEED + (uint64_t)i);
        for (int32_t l = 0; l < n_levels; l++) {
            struct qr_backend *be = level[l];
            if (spared(be, i))
                continue;
            struct qr_weight w = pack(be, &d);
            float *want = whole_multiplies(names[l], d.type) ? whole_product(&d) : bf16_product(be, &d), *got = product_of(be, &d.l, &w, 0, d.l.s.n_rows);
            cr_assert(same_rows(&d.l, want, got), "%s %s: %d x %d -> %d differs", names[l], qr_dtype_name(d.type), d.l.s.n_rows, d.l.s.n_in, d.l.s.n_out);
            cr_assert(d.l.s.add || gaps_untouched(got, d.l.s.n_rows, d.l.s.n_out, d.l.out_stride), "%s wrote between rows", names[l]);
            qr_free(want);
            qr_free(got);
            qr_free_aligned(w.packed);
        }
        drop(&d);
    }
    for (int32_t l = 0; l < n_levels; l++)
        qr_backend_close(level[l]);
}

Test(coded, a_row_gets_the_same_bits_alone_and_with_any_number_of_threads)
{
    static const struct shape cases[] = {{37, 512, 200, true, true}, {130, 256, 64, true, false}};
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    struct qr_backend *ref = open_level("ref", 1, 0), *alone[8], *many[8];
    for (int32_t l = 1; l < n_levels; l++) {
        alone[l] = open_level(names[l], 1, 0);
        many[l] = open_level(names[l], 3, 16);
    }
    for (int i = 0; i < QR_COUNT(coded_types) * QR_COUNT(cases); i += UTIL_STEP) {
        struct data d = make(ref, cases[i / QR_COUNT(coded_types)], coded_types[i % QR_COUNT(coded_types)], SEED + 1000 + (uint64_t)i);
        for (int32_t l = 1; l < n_levels; l++) {
            struct qr_backend *one = alone[l], *three = many[l];
            if (!has(one, d.type) || (!one->mem->host && i % 5 != 1))
                continue;
            struct qr_weight w = pack(one, &d), v = pack(three, &d);
            float *a = product_of(one, &d.l, &w, 0, d.l.s.n_rows), *b = product_of(three, &d.l, &v, 0, d.l.s.n_rows);
            cr_assert(same_rows(&d.l, a, b), "%s %s: three threads with little scratch differ from one", names[l], qr_dtype_name(d.type));
            for (int32_t n = 0; n < d.l.s.n_rows; n += one->mem->host ? 5 : 60) {
                float *row = product_of(one, &d.l, &w, n, 1);
                cr_assert(same_bits(row, a + n * d.l.out_stride, d.l.s.n_out), "%s %s: row %d differs alone", names[l], qr_dtype_name(d.type), n);
                qr_free(row);
            }
            qr_free(a);
            qr_free(b);
            qr_free_aligned(w.packed);
            qr_free_aligned(v.packed);
        }
        drop(&d);
    }
    qr_backend_close(ref);
    for (int32_t l = 1; l < n_levels; l++) {
        qr_backend_close(alone[l]);
        qr_backend_close(many[l]);
    }
}

/* Blocks of x of every size: powers of two and what is just below them, where integers saturate, numbers without exponents, zeros; every third row has a number
 * that is none. */
static void fill_sizes(struct qr_rng *r, float *x, int32_t n_rows, int32_t n_in, int64_t stride)
{
    static const float sizes[] = {1, 0x1.fffffep-1f, -1, 0x1p-115f, 0x1p-140f, 0, 0x1.fffp90f, 0x1p-90f};
    for (int32_t n = 0; n < n_rows; n++)
        for (int32_t k = 0; k < n_in; k++) {
            const float size = sizes[(n + k / 32) % QR_COUNT(sizes)];
            x[n * stride + k] = qr_rng_next(r) % 8 == 0 ? size : random_float(r) * 0.25f * size;
        }
    for (int32_t n = 2; n < n_rows; n += 3)
        x[n * stride + n * 7 % n_in] = n % 2 ? INFINITY : NAN;
}

Test(coded, products_by_integers_keep_their_bits_with_rows_of_any_size_and_rows_with_what_is_no_number_have_no_other)
{
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    for (int32_t l = 1; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 2, 0), *ref = open_level("ref", 1, 0);
        for (int t = 0; t < QR_COUNT(coded_types) && whole_multiplies(names[l], coded_types[0]); t++) {
            struct data d = make(ref, (struct shape){11, 330, 40, false, false}, coded_types[t], SEED + 7000 + (uint64_t)t);
            struct qr_rng r = {.seed = SEED + 8000 + (uint64_t)t};
            if (whole_multiplies(names[l], d.type) && has(be, d.type)) {
                fill_sizes(&r, d.l.x, d.l.s.n_rows, d.l.s.n_in, d.l.x_stride);
                struct qr_weight w = pack(be, &d);
                float *got = product_of(be, &d.l, &w, 0, d.l.s.n_rows);
                for (int32_t i = 0; i < d.l.s.n_rows * d.l.s.n_out; i++) {
                    const int32_t n = i / d.l.s.n_out, o = i % d.l.s.n_out;
                    double exact, most;
                    const float want = whole_sum(&exact, &most, d.rows, o, d.l.x + n * d.l.x_stride), y = got[n * d.l.out_stride + o];
                    cr_assert(isnan(want) ? isnan(y) && n % 3 == 2 : same_bits(&want, &y, 1), "%s: row %d, output %d: %g, not %g", qr_dtype_name(d.type), n, o,
                              (double)y, (double)want);
                }
                qr_free(got);
                qr_free_aligned(w.packed);
            }
            drop(&d);
        }
        qr_backend_close(ref);
        qr_backend_close(be);
    }
}

/* Few rows of 4 bits meet weights another way round, so what a gated product leaves for the next one is turned on its way. */
Test(coded, a_gated_product_in_a_chain_gives_the_next_one_the_bits_that_it_writes_alone)
{
    static const enum qr_dtype types[] = {QR_C4_G32, QR_C4_G32_SO, QR_C2_G16_SO, QR_C3_G16_S, QR_C5_G32_SO, QR_C6_G16_S, QR_C8_G32, QR_C8_E4M3};
    static const int32_t n_rows[] = {1, 7, 21, 37, 53};
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names), width = 96;
    struct qr_backend *ref = open_level("ref", 1, 0);
    for (int i = 0; i < QR_COUNT(types) * QR_COUNT(n_rows); i += UTIL_STEP) {
        const int32_t n = n_rows[i / QR_COUNT(types)];
        struct data up = make(ref, (struct shape){n, 64, 2 * width, false, false}, types[i % QR_COUNT(types)], SEED + 3000 + (uint64_t)i);
        struct data down = make(ref, (struct shape){n, width, 48, false, false}, up.type, SEED + 4000 + (uint64_t)i);
        for (int32_t l = 1; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            struct qr_weight w_up = pack(be, &up), w_down = pack(be, &down);
            float *between = poisoned((int64_t)n * width), *out[2] = {poisoned((int64_t)n * 48), poisoned((int64_t)n * 48)};
            struct qr_linear_args a[2] = {
                {.out = between, .x = up.l.x, .w = &w_up, .out_stride = width, .x_stride = up.l.x_stride, .n_rows = n, .n_in = 64, .n_out = 2 * width,
                 .glu = true, .act = QR_ACT_SILU},
                {.out = out[0], .x = between, .w = &w_down, .out_stride = 48, .x_stride = width, .n_rows = n, .n_in = width, .n_out = 48},
            };
            be->k->linear(be->queue, &a[0]);
            be->k->linear(be->queue, &a[1]);
            a[0].passing = true;
            a[1].out = out[1];
            be->k->chain(be->queue, &(struct qr_chain_args){.linear = a, .n = 2});
            cr_assert(same_bits(out[0], out[1], (int64_t)n * 48), "%s %s: %d rows differ in a chain", names[l], qr_dtype_name(up.type), n);
            for (int j = 0; j < 2; j++)
                qr_free(out[j]);
            qr_free_aligned(w_up.packed);
            qr_free_aligned(w_down.packed);
            qr_free(between);
            qr_backend_close(be);
        }
        drop(&up);
        drop(&down);
    }
    qr_backend_close(ref);
}

/* A head of coded weights, whose rows meet a panel one row tile after the other, up to four of them, or strips. */
Test(coded, stretches_of_outputs_have_the_largest_of_these_and_change_none_of_them)
{
    static const enum qr_dtype types[] = {QR_C4_G128_Z, QR_C5_G32, QR_C6_G16_S, QR_C8_G32, QR_C8_E4M3};
    static const int32_t n_rows[] = {1, 21, 37, 64, 70};
    enum { N_OUT = 2 * QR_LINEAR_STRETCH + 72, N = 3 };
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    struct qr_backend *ref = open_level("ref", 1, 0);
    for (int i = 0; i < QR_COUNT(types) * QR_COUNT(n_rows); i += UTIL_STEP) {
        const int32_t n = n_rows[i / QR_COUNT(types)];
        struct data d = make(ref, (struct shape){n, 160, N_OUT, true, false}, types[i % QR_COUNT(types)], SEED + 9000 + (uint64_t)i);
        for (int32_t l = 1; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            struct qr_weight w = pack(be, &d);
            float *plain = product_of(be, &d.l, &w, 0, n), *out = poisoned(n * d.l.out_stride), *largest = poisoned(n * N);
            const struct qr_stretches s = {.largest = largest, .stride = N};
            const struct qr_linear_args a = {.out = out, .x = d.l.x, .w = &w, .bias = d.l.bias, .stretches = &s, .out_stride = d.l.out_stride,
                                             .x_stride = d.l.x_stride, .n_rows = n, .n_in = d.l.s.n_in, .n_out = N_OUT};
            be->k->linear(be->queue, &a);
            cr_assert(same_rows(&d.l, plain, out), "%s %s: %d rows differ", names[l], qr_dtype_name(d.type), n);
            for (int32_t j = 0; j < n * N; j++) {
                const float *row = out + j / N * d.l.out_stride;
                float most = -INFINITY;
                for (int32_t o = j % N * QR_LINEAR_STRETCH; o < N_OUT && o < (j % N + 1) * QR_LINEAR_STRETCH; o++)
                    most = fmaxf(most, row[o]);
                cr_assert(same_bits(&most, &largest[j], 1), "%s %s: row %d of %d, stretch %d", names[l], qr_dtype_name(d.type), j / N, n, j % N);
            }
            qr_free(plain);
            qr_free(out);
            qr_free(largest);
            qr_free_aligned(w.packed);
            qr_backend_close(be);
        }
        drop(&d);
    }
    qr_backend_close(ref);
}

/* In double: what scale, steps, zeros and offsets mean, f16 numbers as they are. All of it is exact there but for the last rounding, so the weight is
 * within one rounding to f32 and one to bf16 of it, 2^-24 and 2^-8 of itself. */
Test(coded, weights_are_what_the_formula_says)
{
    struct qr_backend *ref = open_level("ref", 1, 0);
    for (int t = 0; t < QR_COUNT(coded_types); t++) {
        struct data d = make(ref, (struct shape){1, 600, 20, false, false}, coded_types[t], SEED + 2000 + (uint64_t)t);
        const struct qr_coded_format f = d.rows->f;
        for (int64_t o = 0; o < d.l.s.n_out; o++) {
            const struct qr_coded_rows row = qr_coded_row(&d.rows->all, f, d.l.s.n_in, o);
            for (int64_t i = 0; i < d.l.s.n_in; i++) {
                const int64_t u = f.steps ? i / QR_CODED_UNIT : i / f.group, g = i / f.group;
                const double scale = (double)row.scale[u] * (f.steps ? row.step[g] : 1);
                const double shift = f.offset ? (double)row.offset[u] * (f.steps ? row.offset_step[g] : 1) : 0;
                const double offset = f.zero ? -scale * row.offset_step[g] : shift;
                const double level = f.e4m3 ? (double)qr_e4m3_to_f32((uint8_t)row.level[i]) : row.level[i];
                const double want = scale * level + offset, got = (double)qr_bf16_to_f32(d.numbers[o * d.l.s.n_in + i]);
                cr_assert(fabs(got - want) <= 0x1p-8 * fabs(want) * (1 + 0x1p-14), "%s: weight %d of output %d is %g, not %g",
                          qr_dtype_name(d.type), (int)i, (int)o, got, want);
            }
        }
        drop(&d);
    }
    qr_backend_close(ref);
}

/* Scales far outside of f16: kept with 11 bits, so within 2^-12, and the rounding to bf16 on top. One that is infinite makes its output NaN. */
Test(coded, scales_of_any_size_keep_eleven_bits_and_an_infinite_one_is_no_number)
{
    static const float sizes[] = {0x1p-38f, 1e-6f, 1, 3e9f, 0x1.fffp72f};
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    for (int i = 0; i <= QR_COUNT(sizes); i++) {
        struct qr_rng r = {.seed = SEED + 3000};
        struct data d = {.l = {.s = {1, 128, 16, false, false}, .x_stride = 128, .out_stride = 16}, .type = QR_C8_G32};
        d.rows = coded_source_new(&r, d.type, 16, 128);
        for (int k = 0; k < 16 * 4; k++)
            d.rows->all.scale[k] = (1 + (float)qr_rng_next_unit(&r)) * sizes[i % QR_COUNT(sizes)];
        if (i == QR_COUNT(sizes))
            d.rows->all.scale[5 * 4 + 2] = INFINITY;
        for (int32_t l = 0; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 1, 0);
            struct qr_weight w = pack(be, &d);
            const struct qr_tensor table = qr_tensor_2d(NULL, d.type, 16, 128);
            float out[128];
            for (int32_t o = 0; o < 16; o++) {
                const struct qr_embed_args a = {.out = out, .table = &table, .packed = w.packed, .ids = &o, .out_stride = 128, .n_rows = 1, .scale = 1};
                be->k->embed(be->queue, &a);
                for (int k = 0; k < 128; k++) {
                    const double want = (double)d.rows->all.scale[o * 4 + k / 32] * d.rows->all.level[o * 128 + k];
                    const double most = (0x1p-12 + 0x1p-8) * (1 + 0x1p-10) * fabs(want);
                    const bool good = i == QR_COUNT(sizes) && o == 5 ? isnan(out[k]) : fabs((double)out[k] - want) <= most;
                    cr_assert(good, "%s, case %d: weight %d of output %d is %g, not %g", names[l], i, k, o, (double)out[k], want);
                }
            }
            qr_free_aligned(w.packed);
            qr_backend_close(be);
        }
        coded_source_free(d.rows);
    }
}

/* Whole panels are written at once, rows of a part of one are joined with what the panel has. */
static void pack_by_rows(struct coded_source *s, enum qr_dtype type, int64_t first, int64_t n_out, const char *name)
{
    struct qr_backend *be = open_level(name, 2, 0);
    const size_t n = be->k->linear_packed_bytes(type, first + n_out, s->n_in);
    uint8_t *a = qr_alloc_aligned(n, 64), *b = qr_alloc_aligned(n, 64);
    memset(a, 0, n);
    memset(b, 0, n);
    if (n > 0)
        be->k->linear_pack_coded(be->queue, a, type, first + n_out, s->n_in, first, &s->source, n_out);
    for (int64_t i = 0; n > 0 && i < n_out; i++) {
        struct coded_source one = *s;
        one.all = qr_coded_row(&s->all, s->f, s->n_in, i);
        one.source.arg = &one;
        be->k->linear_pack_coded(be->queue, b, type, first + n_out, s->n_in, first + i, &one.source, 1);
    }
    cr_expect(memcmp(a, b, n) == 0, "%s, %s, %lld inputs, from row %lld", name, qr_dtype_name(type), (long long)s->n_in, (long long)first);
    qr_free_aligned(a);
    qr_free_aligned(b);
    qr_backend_close(be);
}

Test(coded, whole_panels_have_the_bytes_of_rows_that_are_packed_one_by_one)
{
    static const int64_t widths[] = {256, 768, 64, 96, 277}, firsts[] = {0, 8, 7}; /* rows that begin and end in the middle of panels */
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    struct qr_rng r = {.seed = SEED + 5000};
    printf("seed %d, %d levels\n", SEED + 5000, n_levels);
    for (int i = 0; i < QR_COUNT(coded_types) * QR_COUNT(widths); i++) {
        const enum qr_dtype type = coded_types[i % QR_COUNT(coded_types)];
        const struct qr_coded_format f = qr_dtype_coded(type);
        const int64_t n_in = widths[i / QR_COUNT(coded_types)], n_out = 75;
        if (!f.e4m3 && n_in % qr_coded_unit(f) != 0)
            continue;
        struct coded_source *s = coded_source_new(&r, type, n_out, n_in);
        s->all.scale[qr_rng_next(&r) % (uint64_t)(n_out * qr_coded_n_units(s->f, s->n_in))] = INFINITY;
        if (f.e4m3)
            s->all.level[33 * n_in + 20] = 0x7f;
        for (int k = 1; k < n_levels; k++)
            pack_by_rows(s, type, firsts[i % QR_COUNT(firsts)], n_out, names[k]);
        coded_source_free(s);
    }
}

Test(coded, packed_rows_are_read_back_as_the_numbers_they_stand_for)
{
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    struct qr_backend *level[8];
    for (int32_t l = 0; l < n_levels; l++)
        level[l] = open_level(names[l], 2, 0);
    for (int t = 0; t < QR_COUNT(coded_types); t++) {
        struct data d = make(level[0], (struct shape){1, 320, 40, false, false}, coded_types[t], SEED + 4000 + (uint64_t)t);
        const struct qr_tensor table = qr_tensor_2d(NULL, d.type, d.l.s.n_out, d.l.s.n_in);
        const int32_t ids[] = {39, 0, 17, 16, 0};
        for (int32_t l = 0; l < n_levels; l++) {
            struct qr_backend *be = level[l];
            if (!has(be, d.type))
                continue;
            struct qr_weight w = pack(be, &d);
            float out[QR_COUNT(ids) * 320];
            const struct qr_embed_args a = {.out = out, .table = &table, .packed = w.packed, .ids = ids, .out_stride = 320, .n_rows = QR_COUNT(ids),
                                            .scale = 3};
            be->k->embed(be->queue, &a);
            for (int i = 0; i < QR_COUNT(ids) * 320; i++) {
                const float want = 3 * qr_bf16_to_f32(d.numbers[ids[i / 320] * 320 + i % 320]);
                cr_assert(want == out[i], "%s %s: number %d is %g, not %g", names[l], qr_dtype_name(d.type), i, (double)out[i], (double)want);
            }
            qr_free_aligned(w.packed);
        }
        drop(&d);
    }
    for (int32_t l = 0; l < n_levels; l++)
        qr_backend_close(level[l]);
}

/* Rows of pieces that begin and end anywhere in panels. */
static void expect_read_back(struct qr_backend *be, struct data *d, const char *level)
{
    static const int32_t pieces[] = {1, 6, 9, 3, 30, 4};
    const int32_t n_in = d->l.s.n_in, n_out = d->l.s.n_out;
    uint8_t *packed = qr_alloc_aligned(be->k->linear_packed_bytes(d->type, n_out, n_in), 64);
    float *out = qr_alloc((size_t)n_in, sizeof *out);
    for (int32_t i = 0, first = 0; i < QR_COUNT(pieces); first += pieces[i++]) {
        struct coded_source piece = *d->rows;
        piece.all = qr_coded_row(&d->rows->all, d->rows->f, n_in, first);
        piece.source.arg = &piece;
        be->k->linear_pack_coded(be->queue, packed, d->type, n_out, n_in, first, &piece.source, pieces[i]);
    }
    for (int32_t o = 0; o < n_out; o++) {
        const struct qr_tensor table = qr_tensor_2d(NULL, d->type, n_out, n_in);
        const struct qr_embed_args a = {.out = out, .table = &table, .packed = packed, .ids = &o, .out_stride = n_in, .n_rows = 1, .scale = 1};
        be->k->embed(be->queue, &a);
        for (int32_t k = 0; k < n_in; k++) {
            const float want = qr_bf16_to_f32(d->numbers[o * n_in + k]);
            cr_assert(want == out[k], "%s %s: input %d of row %d is %g, not %g", level, qr_dtype_name(d->type), k, o, (double)out[k], (double)want);
        }
    }
    qr_free(out);
    qr_free_aligned(packed);
}

Test(coded, codes_are_read_back_from_every_place_of_rows_that_were_packed_in_any_pieces)
{
    static const int32_t widths[] = {64, 300, 31};
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names), n_out = 53;
    struct qr_backend *ref = open_level("ref", 1, 0);
    for (int32_t l = 1; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 2, 0);
        for (int i = 0; i < QR_COUNT(coded_types) * QR_COUNT(widths); i++) {
            const enum qr_dtype type = coded_types[i / QR_COUNT(widths)];
            const int32_t n_in = widths[i % QR_COUNT(widths)];
            if (!has(be, type))
                continue;
            struct data d = make(ref, (struct shape){1, n_in, n_out, false, false}, type, SEED + 9000 + (uint64_t)i);
            const struct qr_coded_format f = d.rows->f;
            for (int64_t g = 0; f.steps && g < n_out * qr_coded_n_groups(f, n_in); g++) /* no number is 0 whatever its code is */
                d.rows->all.step[g] = (int8_t)(1 + g % 60);
            qr_free_aligned(d.numbers);
            d.numbers = pack(ref, &d).packed;
            expect_read_back(be, &d, names[l]);
            drop(&d);
        }
        qr_backend_close(be);
    }
    qr_backend_close(ref);
}

/* ---- E4M3 ---- */

static struct data make_numbers(int32_t n_out, int32_t n_in, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct data d = {.l = {.s = {1, n_in, n_out, false, false}, .x_stride = n_in, .out_stride = n_out}, .type = QR_C8_E4M3};
    d.rows = coded_source_new(&r, d.type, n_out, n_in);
    return d;
}

static float *row_of(struct qr_backend *be, const struct data *d, const struct qr_weight *w, int32_t id)
{
    const struct qr_tensor table = qr_tensor_2d(NULL, d->type, d->l.s.n_out, d->l.s.n_in);
    float *out = qr_alloc((size_t)d->l.s.n_in, sizeof *out);
    const struct qr_embed_args a = {.out = out, .table = &table, .packed = w->packed, .ids = &id, .out_stride = d->l.s.n_in, .n_rows = 1, .scale = 1};
    be->k->embed(be->queue, &a);
    return out;
}

/* All 256 codes, with scales from the least that is kept to the largest: what a weight is, is computed here from the format's table. */
Test(coded, every_code_of_e4m3_times_a_scale_is_one_rounding_of_the_product_and_what_is_none_takes_its_group_along)
{
    static const float scales[] = {1, 0x1.fffffep-100f, 0x1.234568p-7f, -0.3f, 0x1p75f, 0x1.fp-101f, 0x1.1p75f, INFINITY, NAN, 0};
    const char *names[8];
    const int32_t n_levels = qr_cpu_levels(names);
    struct data d = make_numbers(16, 384, SEED + 5000);
    for (int o = 0; o < 16; o++) {
        for (int i = 0; i < 384; i++)
            d.rows->all.level[o * 384 + i] = (int8_t)(i % 128 + (i >= 128 && i < 256 ? 128 : 0));
        for (int g = 0; g < 3; g++) {
            d.rows->all.level[o * 384 + g * 128 + 127] = (int8_t)(g < 2 ? 0x7e : o % 2 ? 0x7f : 0xff); /* the third group has a code that is no number */
            d.rows->all.scale[o * 3 + g] = scales[o % QR_COUNT(scales)];
        }
    }
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1, 0);
        struct qr_weight w = pack(be, &d);
        for (int o = 0; o < 16; o++) {
            const float scale = scales[o % QR_COUNT(scales)], kept = !(fabsf(scale) <= 0x1p75f) ? NAN : fabsf(scale) < 0x1p-100f ? 0 : scale;
            float *out = row_of(be, &d, &w, o);
            for (int i = 0; i < 384; i++) {
                const int m = d.rows->all.level[o * 384 + i] & 0x7f, sign = d.rows->all.level[o * 384 + i] < 0 ? -1 : 1;
                const float number = (float)(sign * (m < 8 ? m : (8 + m % 8) << (m / 8 - 1))) * 0x1p-9f;
                const float want = i >= 256 ? NAN : qr_bf16_to_f32(qr_f32_to_bf16(number * kept));
                cr_assert(isnan(want) ? isnan(out[i]) : want == out[i], "%s: code %d times %g is %g, not %g", names[l], i, (double)scale, (double)out[i],
                          (double)want);
            }
            qr_free(out);
        }
        qr_free_aligned(w.packed);
        qr_backend_close(be);
    }
    coded_source_free(d.rows);
}
