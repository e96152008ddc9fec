/* linear with coded weights: a level gives the bits of its own bf16 product of the numbers that ref unpacks, whatever the batch, and these are what the
 * formula says. */
#include "tests/kernels/coded_source.h"
#include "tests/kernels/linear_data.h"

#define SEED 5115

/* Widths below, at and beyond a group, a block and a strip; rows below, at and beyond a block and a tile. */
static const struct shape shapes[] = {
    {1, 256, 96, false, false}, {1, 576, 48, true, true},   {1, 31, 17, false, true},  {2, 65, 33, false, false}, {3, 1, 1, true, true},
    {5, 512, 120, false, true}, {16, 300, 47, true, false}, {17, 768, 64, false, false}, {33, 128, 15, true, true}, {70, 257, 33, true, true},
    {9, 1280, 32, false, false},
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

/* An emulated device gets each type and each shape once. */
static bool spared(const struct qr_backend *be, int i)
{
    return !be->mem->host && i % QR_COUNT(coded_types) % QR_COUNT(shapes) != i / QR_COUNT(coded_types);
}

Test(coded, products_have_the_bits_of_the_bf16_product_of_the_same_numbers)
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
            float *want = bf16_product(be, &d), *got = product_of(be, &d.l, &w, 0, d.l.s.n_rows);
            cr_assert(same_rows(&d.l, want, got), "%s %s: %d x %d -> %d differs from bf16", names[l], qr_dtype_name(d.type), d.l.s.n_rows, d.l.s.n_in,
                      d.l.s.n_out);
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
            if (!one->mem->host && i % 5 != 1)
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

/* Few rows of 4 bits meet weights another way round, so what a gated product leaves for the next one is turned on its way. */
Test(coded, a_gated_product_in_a_chain_gives_the_next_one_the_bits_that_it_writes_alone)
{
    static const enum qr_dtype types[] = {QR_C4_G32, QR_C4_G32_SO, QR_C4_G16_S, QR_C5_G32_SO, QR_C6_G16_S, QR_C8_G32};
    static const int32_t n_rows[] = {1, 7, 21, 53};
    const char *names[8];
    const int32_t n_levels = qr_cpu_levels(names), width = 96;
    struct qr_backend *ref = open_level("ref", 1, 0);
    for (int i = 0; i < QR_COUNT(types) * QR_COUNT(n_rows); i += UTIL_STEP) {
        const int32_t n = n_rows[i / QR_COUNT(types)];
        struct data up = make(ref, (struct shape){n, 64, 2 * width, false, false}, types[i % QR_COUNT(types)], SEED + 3000 + (uint64_t)i);
        struct data down = make(ref, (struct shape){n, width, 48, false, false}, up.type, SEED + 4000 + (uint64_t)i);
        for (int32_t l = 1; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            struct qr_weight w[2] = {pack(be, &up), pack(be, &down)};
            float *between = poisoned((int64_t)n * width), *out[2] = {poisoned((int64_t)n * 48), poisoned((int64_t)n * 48)};
            struct qr_linear_args a[2] = {
                {.out = between, .x = up.l.x, .w = &w[0], .out_stride = width, .x_stride = up.l.x_stride, .n_rows = n, .n_in = 64, .n_out = 2 * width,
                 .glu = true, .act = QR_ACT_SILU},
                {.out = out[0], .x = between, .w = &w[1], .out_stride = 48, .x_stride = width, .n_rows = n, .n_in = width, .n_out = 48},
            };
            be->k->linear(be->queue, &a[0]);
            be->k->linear(be->queue, &a[1]);
            a[0].passing = true;
            a[1].out = out[1];
            be->k->chain(be->queue, &(struct qr_chain_args){.linear = a, .n = 2});
            cr_assert(same_bits(out[0], out[1], (int64_t)n * 48), "%s %s: %d rows differ in a chain", names[l], qr_dtype_name(up.type), n);
            for (int j = 0; j < 2; j++) {
                qr_free(out[j]);
                qr_free_aligned(w[j].packed);
            }
            qr_free(between);
            qr_backend_close(be);
        }
        drop(&up);
        drop(&down);
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
                const double want = scale * row.level[i] + offset, got = (double)qr_bf16_to_f32(d.numbers[o * d.l.s.n_in + i]);
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
