/* What a product says of stretches of its outputs: the largest and the sum of exponentials, at every level, in every format, however it is cut. */
#include "tests/kernels/random_cuts.h"
#include "tests/kernels/util.h"

#define SEED 977
#define REF_WORK 4000000 /* products that the plain form is asked for */

struct shape {
    int32_t n_rows, n_in, n_out;
    enum qr_dtype type;
};

/* One product: what goes in, what comes out, what is said of it. */
struct product {
    struct shape s;
    int64_t out_stride, stride;
    float *x, *bias, *scale, *rows; /* owned */
    float *out, *largest, *sum;     /* owned */
    struct qr_weight w;             /* packed: owned */
};

/* Numbers and, with `strange`, outputs that are infinite or none, by way of the bias. */
static struct product make(struct qr_rng *r, const struct shape *s, bool strange)
{
    struct product p = {.s = *s, .out_stride = s->n_out + 5, .stride = (s->n_out + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH + 2};
    p.x = random_floats(r, (int64_t)s->n_rows * s->n_in);
    p.bias = random_floats(r, s->n_out);
    p.rows = random_floats(r, (int64_t)s->n_out * s->n_in);
    p.scale = qr_alloc((size_t)s->n_rows, sizeof *p.scale);
    for (int32_t n = 0; n < s->n_rows; n++)
        p.scale[n] = n % 3 == 2 ? 0 : 0.01f + 0.1f * (float)qr_rng_below(r, 30);
    for (int32_t o = 0; strange && o < s->n_out; o += 1 + (int32_t)qr_rng_below(r, 40))
        p.bias[o] = o > 600 ? NAN : o > 300 ? -INFINITY : o > 200 ? INFINITY : p.bias[o];
    for (int32_t o = 512; strange && o < 768 && o < s->n_out; o++)
        p.bias[o] = o % 2 ? NAN : -INFINITY;
    return p;
}

static void drop(struct product *p)
{
    float *const owned[] = {p->x, p->bias, p->scale, p->rows, p->out, p->largest, p->sum};
    for (int i = 0; i < QR_COUNT(owned); i++)
        qr_free(owned[i]);
}

static void compute(struct product *p, struct qr_backend *be, bool said)
{
    const struct shape *s = &p->s;
    p->out = poisoned(s->n_rows * p->out_stride);
    p->largest = poisoned(s->n_rows * p->stride);
    p->sum = poisoned(s->n_rows * p->stride);
    p->w = (struct qr_weight){.packed_dtype = s->type};
    p->w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(s->type, s->n_out, s->n_in), 64);
    be->k->linear_pack(be->queue, p->w.packed, s->type, s->n_out, s->n_in, 0, p->rows, QR_F32, s->n_out);
    const struct qr_stretches stretches = {.largest = p->largest, .sum = p->sum, .scale = p->scale, .stride = p->stride};
    const struct qr_linear_args a = {.out = p->out, .x = p->x, .w = &p->w, .bias = p->bias, .stretches = said ? &stretches : NULL,
                                     .out_stride = p->out_stride, .x_stride = s->n_in, .n_rows = s->n_rows, .n_in = s->n_in, .n_out = s->n_out};
    be->k->linear(be->queue, &a);
    qr_free_aligned(p->w.packed);
}

/* The sum is within 2^-18 (kernels.h) of one in double over the outputs as they are. */
static void check_stretch(const struct product *p, int32_t n, int32_t j)
{
    const float *out = p->out + n * p->out_stride;
    const int32_t first = j * QR_LINEAR_STRETCH, end = first + QR_LINEAR_STRETCH < p->s.n_out ? first + QR_LINEAR_STRETCH : p->s.n_out;
    float most = -INFINITY, got = p->sum[n * p->stride + j];
    double want = 0;
    for (int32_t o = first; o < end; o++)
        most = out[o] > most ? out[o] : most;
    cr_assert(p->largest[n * p->stride + j] == most, "row %d, stretch %d: %g is the largest, not %g", n, j, (double)most,
              (double)p->largest[n * p->stride + j]);
    for (int32_t o = first; o < end; o++)
        want += isfinite(out[o]) && isfinite(most) ? exp((double)p->scale[n] * ((double)out[o] - (double)most)) : 0;
    if (p->scale[n] > 0)
        cr_assert(fabs((double)got - want) <= 0x1p-18 * want, "row %d, stretch %d: sum %g, expected %g", n, j, (double)got, want);
    else
        cr_assert(isnan(got), "row %d, stretch %d: a sum that nobody asked for", n, j);
}

static void check(const struct product *p)
{
    const int32_t n_stretches = (p->s.n_out + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH;
    for (int32_t n = 0; n < p->s.n_rows; n++)
        for (int32_t j = 0; j < n_stretches; j++)
            check_stretch(p, n, j);
    cr_assert(gaps_untouched(p->largest, p->s.n_rows, n_stretches, p->stride) && gaps_untouched(p->sum, p->s.n_rows, n_stretches, p->stride));
}

/* One row alone, by one thread: the same bits. */
static void check_alone(const char *level, const struct product *p, int32_t n)
{
    const int32_t n_stretches = (p->s.n_out + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH;
    struct qr_backend *be = open_level(level, 1, 0);
    struct product one = *p;
    one.s.n_rows = 1;
    one.x = p->x + (int64_t)n * p->s.n_in;
    one.scale = p->scale + n;
    compute(&one, be, true);
    cr_assert(same_bits(one.out, p->out + n * p->out_stride, p->s.n_out), "%s, row %d of %d", level, n, p->s.n_rows);
    cr_assert(same_bits(one.largest, p->largest + n * p->stride, n_stretches) && same_bits(one.sum, p->sum + n * p->stride, n_stretches),
              "%s, row %d of %d: stretches", level, n, p->s.n_rows);
    qr_free(one.out);
    qr_free(one.largest);
    qr_free(one.sum);
    qr_backend_close(be);
}

static const struct shape shapes[] = {
    {1, 96, 1000, QR_BF16},    {5, 96, 1000, QR_BF16},     {20, 96, 4400, QR_BF16},    {40, 640, 1290, QR_BF16},   {70, 1300, 800, QR_BF16},
    {300, 64, 1030, QR_BF16},  {9, 64, 70, QR_BF16},       {3, 64, 256, QR_F32},       {17, 96, 1025, QR_F32},     {1, 96, 1000, QR_Q8},
    {3, 96, 1000, QR_Q8},      {40, 640, 1290, QR_Q8},     {300, 64, 800, QR_Q8},      {2, 96, 1000, QR_Q4},   {40, 640, 1290, QR_Q4},
    {270, 128, 800, QR_Q4}, {2, 96, 1000, QR_Q4},      {33, 640, 1290, QR_Q4},     {5, 96, 1000, QR_C8_G32},       {70, 1300, 800, QR_C4_G32},
};

Test(stretches, are_what_the_outputs_say_and_change_none_of_them)
{
    const char *names[8];
    const int32_t n_levels = qr_cpu_levels(names);
    struct qr_rng r = {.seed = SEED};
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(shapes); i += UTIL_STEP)
        for (int32_t l = 0; l < n_levels; l++) {
            const struct shape *s = &shapes[i];
            if (l == 0 && (int64_t)s->n_rows * s->n_in * s->n_out > REF_WORK)
                continue;
            struct qr_backend *be = open_level(names[l], 2, 0);
            struct product p = make(&r, s, i % 2), plain = p;
            compute(&p, be, true);
            compute(&plain, be, false);
            check(&p);
            cr_assert(same_bits(p.out, plain.out, p.s.n_rows * p.out_stride), "%s, shape %d: other outputs", names[l], i);
            check_alone(names[l], &p, (int32_t)qr_rng_below(&r, (uint32_t)p.s.n_rows));
            qr_free(plain.out);
            qr_free(plain.largest);
            qr_free(plain.sum);
            drop(&p);
            qr_backend_close(be);
        }
}

Test(stretches, are_the_same_bits_however_a_product_is_cut)
{
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    struct qr_rng r = {.seed = SEED + 1};
    for (int i = 0; i < QR_COUNT(shapes); i += UTIL_STEP)
        for (int32_t l = 1; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            struct product p = make(&r, &shapes[i], false);
            compute(&p, be, true);
            for (int round = 0; round < 2; round++) {
                struct product other = p;
                random_cuts(be->tune, &r);
                compute(&other, be, true);
                cr_assert(same_bits(p.out, other.out, p.s.n_rows * p.out_stride), "%s, shape %d", names[l], i);
                cr_assert(same_bits(p.largest, other.largest, p.s.n_rows * p.stride) && same_bits(p.sum, other.sum, p.s.n_rows * p.stride),
                          "%s, shape %d: stretches", names[l], i);
                qr_free(other.out);
                qr_free(other.largest);
                qr_free(other.sum);
            }
            drop(&p);
            qr_backend_close(be);
        }
}
