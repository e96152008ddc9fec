/* The optimizer's entries and the head with its loss, at every level: the same bits as ref where that is promised, and no trace of how work was cut. */
#include "tests/kernels/util.h"

#include "kernels/ref/ref.h"

#define SEED 7321

struct params {
    float *w, *m, *v, *g;
    uint16_t *half;
    int64_t n;
};

static struct params params_new(int64_t n, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    struct params p = {random_floats(&r, n), random_floats(&r, n), random_floats(&r, n), random_floats(&r, n), qr_alloc((size_t)n, 2), n};
    for (int64_t i = 0; i < n; i++)
        p.v[i] *= p.v[i];
    return p;
}

static void params_drop(struct params *p)
{
    qr_free(p->w), qr_free(p->m), qr_free(p->v), qr_free(p->g), qr_free(p->half);
}

static void step_part(struct qr_backend *be, struct params *p, int64_t first, int64_t n, bool leave_g)
{
    const struct qr_adamw_args a = {.w = p->w + first, .m = p->m + first, .v = p->v + first, .g = p->g + first, .half = p->half + first, .n = n,
                                    .first = first, .step = 3, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .gscale = 0.5,
                                    .seed = SEED, .leave_g = leave_g};
    be->b->adamw(be->queue, &a);
}

static bool params_same(const struct params *a, const struct params *b)
{
    return same_bits(a->w, b->w, a->n) && same_bits(a->m, b->m, a->n) && same_bits(a->v, b->v, a->n) && memcmp(a->half, b->half, (size_t)a->n * 2) == 0 &&
           same_bits(a->g, b->g, a->n);
}

/* 20,011 numbers: more than an item of work, and no multiple of 8 or 16. */
Test(adamw, gives_the_bits_of_ref_at_every_level_whole_or_in_shares)
{
    const char *names[8];
    int32_t n_levels = device_levels(names);
    const int64_t n = 20011;
    struct qr_backend *ref = open_level("ref", 1, 0);
    struct params start = params_new(n, SEED), want = params_new(n, SEED);
    step_part(ref, &want, 0, n, false);
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(want.g[i], 0);
    for (int32_t l = 0; l < n_levels; l++)
        for (int32_t cut = 0; cut < 3; cut++) {
            struct qr_backend *be = open_level(names[l], 1 + cut, 0);
            struct params p = params_new(n, SEED);
            int64_t first = cut == 0 ? n : cut == 1 ? 4099 : 10003;
            step_part(be, &p, 0, first, cut == 2);
            step_part(be, &p, first, n - first, cut == 2);
            for (int64_t i = 0; cut == 2 && i < n; i++) {
                cr_assert_eq(p.g[i], start.g[i], "%s: a gradient that was to be left", names[l]);
                p.g[i] = 0;
            }
            cr_assert(params_same(&want, &p), "%s, cut at %ld", names[l], (long)first);
            params_drop(&p);
            qr_backend_close(be);
        }
    params_drop(&start), params_drop(&want);
    qr_backend_close(ref);
}

/* w stays 1 + d between two neighbours of bf16, 1/128 apart: over 65,536 draws the share that is rounded up is d * 128 within five standard
 * deviations, 5 * sqrt(p (1 - p) / 65536) <= 0.0098. */
Test(adamw, rounds_to_bf16_up_as_often_as_the_distance_says)
{
    enum { N = 65536 };
    struct qr_backend *be = open_level("auto", 1, 0);
    for (int eighth = 0; eighth <= 8; eighth++) {
        struct params p = params_new(N, SEED);
        const float d = (float)eighth / 8 / 128;
        int64_t n_up = 0;
        for (int64_t i = 0; i < N; i++)
            p.w[i] = 1 + d, p.m[i] = 0, p.g[i] = 0;
        const struct qr_adamw_args a = {.w = p.w, .m = p.m, .v = p.v, .g = p.g, .half = p.half, .n = N, .step = 1 + eighth, .lr = 0.1, .beta1 = 0.9,
                                        .beta2 = 0.99, .eps = 1e-8, .gscale = 1, .seed = SEED};
        be->b->adamw(be->queue, &a);
        for (int64_t i = 0; i < N; i++) {
            cr_assert(p.half[i] == 0x3f80 || p.half[i] == 0x3f81);
            n_up += p.half[i] == 0x3f81;
        }
        cr_assert(fabs((double)n_up / N - (double)eighth / 8) <= (eighth % 8 ? 0.0098 : 0), "%d/8: %ld of %d rounded up", eighth, (long)n_up, N);
        params_drop(&p);
    }
    qr_backend_close(be);
}

Test(adamw, keeps_what_is_not_a_number_visible_in_bf16)
{
    struct qr_backend *be = open_level("auto", 1, 0);
    struct params p = params_new(16, SEED);
    p.w[3] = NAN;
    p.w[4] = INFINITY;
    step_part(be, &p, 0, 16, false);
    cr_assert(isnan(qr_bf16_to_f32(p.half[3])) && isinf(qr_bf16_to_f32(p.half[4])));
    params_drop(&p);
    qr_backend_close(be);
}

/* The three passes of Muon, and the second in place. */
static void muon_passes(struct qr_backend *be, struct params *p, int64_t begin, int64_t n)
{
    const struct qr_momentum_args look = {.m = p->m + begin, .g = p->g + begin, .out = p->v + begin, .n = n, .mu = 0.95, .gscale = 0.3};
    const struct qr_scale_args scale = {.out = p->v + begin, .half = p->half + begin, .x = p->v + begin, .n = n, .scale = 0.7,
                                        .half_scale = 0.3};
    const struct qr_move_args move = {.w = p->w + begin, .half = begin ? p->half + begin : NULL, .u = p->v + begin, .n = n, .first = begin, .step = 2,
                                      .keep = 0.99, .rate = 0.01, .seed = SEED};
    be->b->momentum(be->queue, &look);
    be->b->scale(be->queue, &scale);
    be->b->move_by(be->queue, &move);
}

Test(muon_passes, give_the_bits_of_ref_at_every_level)
{
    const char *names[8];
    int32_t n_levels = device_levels(names);
    const int64_t n = 40011, cut = 4099;
    struct qr_backend *ref = open_level("ref", 1, 0);
    struct params want = params_new(n, SEED);
    muon_passes(ref, &want, 0, cut);
    muon_passes(ref, &want, cut, n - cut);
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1 + l % 3, 0);
        struct params p = params_new(n, SEED);
        muon_passes(be, &p, 0, cut);
        muon_passes(be, &p, cut, n - cut);
        cr_assert(params_same(&want, &p), "%s", names[l]);
        params_drop(&p);
        qr_backend_close(be);
    }
    params_drop(&want);
    qr_backend_close(ref);
}

Test(muon_passes, turn_a_matrix_at_every_level)
{
    static const int32_t shape[][2] = {{1, 1}, {16, 16}, {33, 70}, {70, 33}, {1, 130}, {130, 1}, {64, 129}};
    const char *names[8];
    int32_t n_levels = device_levels(names);
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1 + l % 3, 0);
        for (int k = 0; k < QR_COUNT(shape); k++) {
            const int32_t rows = shape[k][0], cols = shape[k][1];
            struct params p = params_new((int64_t)rows * cols, SEED + (uint64_t)k);
            const struct qr_turn_args both = {.out = p.m, .half = p.half, .x = p.w, .n_rows = rows, .n_cols = cols};
            const struct qr_turn_args one = {.out = p.v, .x = p.w, .n_rows = rows, .n_cols = cols};
            be->b->turn(be->queue, &both);
            be->b->turn(be->queue, &one);
            for (int32_t i = 0; i < rows * cols; i++) {
                const int32_t at = i % cols * rows + i / cols;
                cr_assert(p.m[at] == p.w[i] && p.v[at] == p.w[i] && p.half[at] == qr_f32_to_bf16(p.w[i]), "%s: %d x %d, number %d", names[l], rows, cols, i);
            }
            params_drop(&p);
        }
        qr_backend_close(be);
    }
}

/* A sum of n squares in f64: n + 1 roundings at most, and the long double sum's own are 2^11 times smaller. */
Test(sum_squares, is_the_sum_and_the_same_bits_at_every_level)
{
    const char *names[8];
    int32_t n_levels = device_levels(names);
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 100003};
    for (int k = 0; k < QR_COUNT(sizes); k++) {
        const int64_t n = sizes[k];
        struct qr_rng r = {.seed = SEED + (uint64_t)k};
        float *x = random_floats(&r, n + 1);
        double *leaf = qr_alloc((size_t)qr_sum_leaves(n) + 1, sizeof *leaf), first = 0;
        long double want = 0;
        for (int64_t i = 0; i < n; i++)
            want += (long double)x[i] * (long double)x[i];
        for (int32_t l = 0; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 1 + l, 0);
            double sum = -1;
            const struct qr_sum_squares_args a = {.sum = &sum, .leaf = leaf, .x = x, .n = n};
            be->b->sum_squares(be->queue, &a);
            first = l == 0 ? sum : first;
            cr_assert_eq(sum, first, "%s: n %ld", names[l], (long)n);
            cr_assert(fabsl((long double)sum - want) <= (long double)(n + 1) * 0x1p-53L * want, "%s: n %ld", names[l], (long)n);
            qr_backend_close(be);
        }
        qr_free(x), qr_free(leaf);
    }
}

/* ---- the head and its loss ---- */

struct head {
    struct qr_weight w;
    float *rows, *x, *dx, *dw, *logits;
    uint16_t *half;
    double *loss;
    int32_t *target, n_rows, n_in, n_vocab;
};

static struct head head_new(struct qr_backend *be, enum qr_dtype type)
{
    struct head h = {.n_rows = 96, .n_in = 72, .n_vocab = 211};
    struct qr_rng r = {.seed = SEED};
    const int64_t n_w = (int64_t)h.n_vocab * h.n_in, n_x = (int64_t)h.n_rows * h.n_in;
    h.rows = random_floats(&r, n_w), h.x = random_floats(&r, n_x), h.dx = qr_alloc((size_t)n_x, 4), h.dw = qr_alloc((size_t)n_w, 4);
    h.half = qr_alloc((size_t)n_w, 2), h.loss = qr_alloc((size_t)h.n_rows, 8), h.target = qr_alloc((size_t)h.n_rows, 4);
    h.logits = poisoned(h.n_rows * qr_logits_stride(h.n_vocab));
    for (int64_t i = 0; i < n_w; i++)
        h.half[i] = qr_f32_to_bf16(h.rows[i]);
    for (int32_t i = 0; i < h.n_rows; i++)
        h.target[i] = i % 7 == 6 ? -1 : (int32_t)qr_rng_below(&r, (uint32_t)h.n_vocab);
    h.w = (struct qr_weight){.t = qr_tensor_2d(type == QR_BF16 ? (void *)h.half : h.rows, type, h.n_vocab, h.n_in), .packed_dtype = type};
    h.w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(type, h.n_vocab, h.n_in), 64);
    be->k->linear_pack(be->queue, h.w.packed, type, h.n_vocab, h.n_in, 0, h.w.t.data, type, h.n_vocab);
    return h;
}

/* dx and dw are zeros, and `fresh` has to come to the same. */
static void head_run(struct qr_backend *be, struct head *h, int32_t chunk_rows, bool gradients, bool fresh)
{
    memset(h->dx, fresh ? 0xff : 0, (size_t)h->n_rows * (size_t)h->n_in * 4);
    memset(h->dw, fresh ? 0xff : 0, (size_t)h->n_vocab * (size_t)h->n_in * 4);
    const struct qr_linear_ce_args a = {.dx = gradients ? h->dx : NULL, .dw = gradients ? h->dw : NULL, .logits = h->logits, .loss = h->loss,
                                        .x = h->x, .w = &h->w, .target = h->target, .x_stride = h->n_in, .dx_stride = h->n_in,
                                        .n_rows = h->n_rows, .n_in = h->n_in, .n_vocab = h->n_vocab, .chunk_rows = chunk_rows, .scale = 0.125f,
                                        .fresh_dx = fresh, .fresh_dw = fresh};
    qr_linear_cross_entropy(be->k, be->b, be->queue, &a);
}

static void head_drop(struct head *h)
{
    qr_free(h->rows), qr_free(h->x), qr_free(h->dx), qr_free(h->dw), qr_free(h->half), qr_free(h->loss), qr_free(h->target);
    qr_free(h->logits), qr_free_aligned(h->w.packed);
}

Test(linear_cross_entropy, does_not_show_how_it_was_cut_and_can_leave_the_gradients_out)
{
    static const int32_t chunks[] = {96, 64, 32, 1000};
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    for (int32_t l = 0; l < n_levels; l++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            struct head first = head_new(be, bf16 ? QR_BF16 : QR_F32);
            head_run(be, &first, first.n_rows, true, false);
            for (int k = 0; k < 2 * QR_COUNT(chunks); k++) {
                struct head h = head_new(be, bf16 ? QR_BF16 : QR_F32);
                const bool gradients = k % 2;
                head_run(be, &h, chunks[k / 2], gradients, k % 4 == 1);
                cr_assert(memcmp(h.loss, first.loss, (size_t)h.n_rows * sizeof(double)) == 0, "%s: loss, chunk %d", names[l], chunks[k / 2]);
                cr_assert(!gradients || same_bits(h.dx, first.dx, (int64_t)h.n_rows * h.n_in), "%s: dx, chunk %d", names[l], chunks[k / 2]);
                cr_assert(!gradients || same_bits(h.dw, first.dw, (int64_t)h.n_vocab * h.n_in), "%s: dw, chunk %d", names[l], chunks[k / 2]);
                head_drop(&h);
            }
            head_drop(&first);
            qr_backend_close(be);
        }
}
