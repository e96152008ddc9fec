/* Low-rank additions: within a bound of the double oracle, and the same bits for a row whatever else is in the batch. */
#include "tests/kernels/util.h"

#include "tests/kernels/oracle.h"

#define SEED 4711
#define GAP 3
#define SLOTS 3

/* Widths that break every multiple; ranks below, at and beyond what a tile takes; n_part: outputs of each part, 0: there are fewer. */
struct adapt_case {
    int32_t n_rows, n_in, n_part[QR_ADAPT_PARTS_MAX], rank[QR_ADAPT_PARTS_MAX];
    enum qr_dtype dtype;
};

static const struct adapt_case cases[] = {
    {1, 64, {96}, {8}, QR_F32},
    {9, 1, {1}, {1}, QR_F32},
    {7, 31, {33, 5, 47}, {3, 1, 2}, QR_F32},
    {23, 172, {64, 32, 32}, {4, 9, 4}, QR_BF16},
    {5, 257, {100}, {17}, QR_BF16},
    {18, 576, {700, 700}, {16, 16}, QR_BF16},
    {13, 1100, {576}, {64}, QR_F32},
};

/* Everything a case needs, by slot: slot 0 adapts all parts, slot 1 all but the first, slot 2 nothing. */
struct world {
    struct adapt_case c;
    struct qr_adapt_args args;
    struct qr_adapt_parts parts[SLOTS];
    struct qr_row_group group[SLOTS];
    int32_t *row, *slot_of;  /* [n_rows] rows by group; the slot of each row, -1: none */
    float *x, *out, *mid, *a[SLOTS][QR_ADAPT_PARTS_MAX], *b[SLOTS][QR_ADAPT_PARTS_MAX];
    int32_t n_out, ranks;
};

static void *as_stored(const float *x, int64_t n, enum qr_dtype dtype)
{
    uint16_t *half = qr_alloc((size_t)n, sizeof *half);
    for (int64_t i = 0; i < n && dtype == QR_BF16; i++)
        half[i] = qr_f32_to_bf16(x[i]);
    if (dtype == QR_BF16)
        return half;
    qr_free(half);
    return copy_floats(x, n);
}

static struct qr_adapt_part random_part(struct qr_rng *r, const struct adapt_case *c, int32_t k, int32_t first)
{
    const int32_t rank = c->rank[k];
    float *a = random_floats(r, (int64_t)rank * c->n_in), *b = qr_alloc((size_t)qr_adapt_b_elements(rank, c->n_part[k]), sizeof *b);
    for (int32_t o = 0; o < c->n_part[k]; o++)
        for (int32_t j = 0; j < rank; j++)
            b[qr_adapt_b_at(rank, o, j)] = random_float(r);
    struct qr_adapt_part p = {.a = as_stored(a, (int64_t)rank * c->n_in, c->dtype), .b = as_stored(b, qr_adapt_b_elements(rank, c->n_part[k]), c->dtype),
                              .first = first, .n_out = c->n_part[k], .rank = rank, .scale = 0.3f};
    qr_free(a), qr_free(b);
    return p;
}

/* Rows take slots in turn, every fourth none. */
static void make_groups(struct world *w)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->c.n_rows; i++)
        w->slot_of[i] = i % (SLOTS + 1) - 1;
    if (w->c.n_rows == 1)
        w->slot_of[0] = 0;
    for (int32_t s = 0; s < SLOTS; s++) {
        struct qr_row_group *g = &w->group[s];
        *g = (struct qr_row_group){.row = w->row + n, .slot = s};
        for (int32_t i = 0; i < w->c.n_rows; i++)
            if (w->slot_of[i] == s)
                w->row[n++] = i, g->n_rows++;
    }
}

static void world_init(struct world *w, const struct adapt_case *c, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    *w = (struct world){.c = *c, .row = qr_alloc((size_t)c->n_rows, 4), .slot_of = qr_alloc((size_t)c->n_rows, 4)};
    for (int32_t k = 0; k < QR_ADAPT_PARTS_MAX && c->rank[k] > 0; k++) {
        for (int32_t s = 0; s < 2; s++)
            if (k >= s)
                w->parts[s].part[w->parts[s].n++] = random_part(&r, c, k, w->n_out);
        w->n_out += c->n_part[k];
        w->ranks += c->rank[k];
    }
    make_groups(w);
    const int64_t stride = w->n_out + GAP;
    w->x = random_floats(&r, (int64_t)c->n_rows * (c->n_in + GAP));
    w->out = random_floats(&r, c->n_rows * stride);
    w->mid = poisoned((int64_t)c->n_rows * (w->ranks + GAP));
    w->args = (struct qr_adapt_args){.out = w->out, .x = w->x, .mid = w->mid, .group = w->group, .parts = w->parts, .out_stride = stride,
                                     .x_stride = c->n_in + GAP, .mid_stride = w->ranks + GAP, .n_groups = SLOTS, .n_in = c->n_in, .dtype = c->dtype};
}

static void world_release(struct world *w)
{
    for (int32_t s = 0; s < SLOTS; s++)
        for (int32_t k = 0; k < w->parts[s].n; k++)
            qr_free((void *)(uintptr_t)w->parts[s].part[k].a), qr_free((void *)(uintptr_t)w->parts[s].part[k].b);
    qr_free(w->row), qr_free(w->slot_of), qr_free(w->x), qr_free(w->out), qr_free(w->mid);
}

typedef void adapt_body(const char *isa, struct qr_backend *be, struct world *w);

static void for_all(adapt_body *body)
{
    const char *names[8];
    int32_t n_levels = device_levels(names);
    printf("seed %d\n", SEED);
    for (int32_t l = 0; l < n_levels; l++)
        for (int i = 0; i < (strcmp(names[l], "cuda") == 0 ? 5 : QR_COUNT(cases)); i++) { /* an emulated device is slow: not the wide ones */
            struct qr_backend *be = open_level(names[l], 1 + i % 3, 0);
            struct world w;
            world_init(&w, &cases[i], SEED + (uint64_t)i);
            body(names[l], be, &w);
            world_release(&w);
            qr_backend_close(be);
        }
}

/* What the errors of a row's outputs are relative to: scale * sum |x a| |b|. To be freed. */
static double *magnitudes(const struct world *w, int32_t row)
{
    const struct qr_adapt_parts *parts = &w->parts[w->slot_of[row]];
    double *sum = qr_alloc((size_t)w->n_out, sizeof *sum);
    for (int32_t k = 0; k < parts->n; k++) {
        const struct qr_adapt_part *p = &parts->part[k];
        for (int32_t j = 0; j < p->rank; j++) {
            double t = 0;
            for (int32_t i = 0; i < w->c.n_in; i++)
                t += fabs((double)w->x[row * w->args.x_stride + i] * qr_ref_load(p->a, w->c.dtype, (size_t)j * (size_t)w->c.n_in + (size_t)i));
            for (int32_t o = 0; o < p->n_out; o++)
                sum[p->first + o] += t * fabs(qr_ref_load(p->b, w->c.dtype, (size_t)qr_adapt_b_at(p->rank, o, j))) * (double)p->scale;
        }
    }
    return sum;
}

/* A number of t has at most n_in + 1 roundings on top of each other, the sum over ranks as many as there are and a product, scale and the last addition two
 * more; the last addition rounds what was there, too. */
static void check_bound(const char *isa, struct qr_backend *be, struct world *w)
{
    const int64_t n = w->c.n_rows * w->args.out_stride;
    double *x = widen(w->x, (int64_t)w->c.n_rows * w->args.x_stride), *want = widen(w->out, n), *mid = qr_alloc((size_t)(w->c.n_rows * w->args.mid_stride), 8);
    float *old = copy_floats(w->out, n);
    struct qr_adapt_args o = w->args;
    o.x = (const float *)x, o.out = (float *)want, o.mid = (float *)mid;
    oracle->adapt(NULL, &o);
    be->k->adapt(be->queue, &w->args);
    for (int32_t row = 0; row < w->c.n_rows; row++) {
        double *size = w->slot_of[row] < 0 ? NULL : magnitudes(w, row);
        for (int64_t i = 0; i < w->args.out_stride; i++) {
            const int64_t at = row * w->args.out_stride + i;
            if (w->slot_of[row] < 0 || i >= w->n_out) {
                cr_assert(same_bits(&w->out[at], &old[at], 1), "%s: row %d, output %ld has no adapter", isa, row, (long)i);
                continue;
            }
            const double bound = gamma_n(w->c.n_in + w->ranks + 5) * size[i] + U24 * fabs(want[at]);
            cr_assert_leq(fabs((double)w->out[at] - want[at]), bound, "%s: n_in %d, row %d, output %ld: %g, expected %g", isa, w->c.n_in, row, (long)i,
                          (double)w->out[at], want[at]);
        }
        qr_free(size);
    }
    qr_free(x), qr_free(want), qr_free(mid), qr_free(old);
}

Test(adapt, is_within_the_bound_and_leaves_other_rows_alone)
{
    for_all(check_bound);
}

static void check_alone(const char *isa, struct qr_backend *be, struct world *w)
{
    float *old = copy_floats(w->out, w->c.n_rows * w->args.out_stride);
    be->k->adapt(be->queue, &w->args);
    for (int32_t row = 0; row < w->c.n_rows; row++) {
        const int32_t first = 0;
        if (w->slot_of[row] < 0)
            continue;
        const struct qr_row_group one = {.row = &first, .n_rows = 1, .slot = w->slot_of[row]};
        struct qr_adapt_args a = w->args;
        a.group = &one;
        a.n_groups = 1;
        a.x = w->x + row * a.x_stride;
        a.out = old + row * a.out_stride;
        be->k->adapt(be->queue, &a);
        cr_assert(same_bits(a.out, w->out + row * a.out_stride, w->n_out), "%s: n_in %d, row %d alone", isa, w->c.n_in, row);
    }
    qr_free(old);
}

Test(adapt, gives_a_row_the_same_bits_alone_and_among_others)
{
    for_all(check_alone);
}

/* x w^T as the level's own product. To be freed. */
static float *product(struct qr_backend *be, const struct world *w, const float *matrix)
{
    const int32_t n_in = w->c.n_in, n_out = w->n_out;
    void *packed = qr_alloc_aligned(be->k->linear_packed_bytes(QR_F32, n_out, n_in), 64);
    float *out = qr_alloc((size_t)(w->c.n_rows * w->args.out_stride), sizeof *out);
    const struct qr_weight weight = {.packed = packed, .packed_dtype = QR_F32};
    const struct qr_linear_args a = {.out = out, .x = w->x, .w = &weight, .out_stride = w->args.out_stride, .x_stride = w->args.x_stride,
                                     .n_rows = w->c.n_rows, .n_in = n_in, .n_out = n_out};
    be->k->linear_pack(be->queue, packed, QR_F32, n_out, n_in, 0, matrix, QR_F32, n_out);
    be->k->linear(be->queue, &a);
    qr_free_aligned(packed);
    return out;
}

/* W + scale B A of slot 0, in double and then once rounded. To be freed. */
static float *merged(const struct world *w, const float *matrix)
{
    const int32_t n_in = w->c.n_in;
    float *m = copy_floats(matrix, (int64_t)w->n_out * n_in);
    for (int32_t k = 0; k < w->parts[0].n; k++) {
        const struct qr_adapt_part *p = &w->parts[0].part[k];
        for (int32_t o = 0; o < p->n_out; o++)
            for (int32_t i = 0; i < n_in; i++) {
                double sum = 0;
                for (int32_t j = 0; j < p->rank; j++)
                    sum += qr_ref_load(p->b, w->c.dtype, (size_t)qr_adapt_b_at(p->rank, o, j)) *
                           qr_ref_load(p->a, w->c.dtype, (size_t)j * (size_t)n_in + (size_t)i);
                float *to = &m[(int64_t)(p->first + o) * n_in + i];
                *to = (float)((double)*to + (double)p->scale * sum);
            }
    }
    return m;
}

/* Either way has at most n_in + ranks + 6 roundings on top of each other of terms that are at most |x| |W| and scale |x| |A| |B|. */
static void check_merged(const char *isa, struct qr_backend *be, struct world *w)
{
    struct qr_rng r = {.seed = SEED + 100};
    float *matrix = random_floats(&r, (int64_t)w->n_out * w->c.n_in), *sum = merged(w, matrix), *want = product(be, w, sum), *got = product(be, w, matrix);
    struct qr_adapt_args a = w->args;
    a.out = got;
    be->k->adapt(be->queue, &a);
    for (int32_t row = 0; row < w->c.n_rows; row++) {
        double *size = w->slot_of[row] == 0 ? magnitudes(w, row) : NULL;
        for (int32_t o = 0; o < w->n_out && size; o++) {
            for (int32_t i = 0; i < w->c.n_in; i++)
                size[o] += fabs((double)w->x[row * w->args.x_stride + i] * (double)matrix[(int64_t)o * w->c.n_in + i]);
            const int64_t at = row * w->args.out_stride + o;
            cr_assert_leq(fabs((double)got[at] - (double)want[at]), 2 * gamma_n(w->c.n_in + w->ranks + 6) * size[o], "%s: n_in %d, row %d, output %d: %g, "
                          "merged %g", isa, w->c.n_in, row, o, (double)got[at], (double)want[at]);
        }
        qr_free(size);
    }
    qr_free(matrix), qr_free(sum), qr_free(want), qr_free(got);
}

Test(adapt, behind_a_product_is_the_merged_matrixs_product_within_the_bound)
{
    for_all(check_merged);
}
