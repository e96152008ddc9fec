#include "train/muon.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"

#define N_ROUNDS 5
#define NORM_EPS 1e-7
#define ALIGN 64

/* A quintic whose slope at 0 is steep and which keeps [0, 1] near 1. */
static const double quintic[3] = {3.4445, -4.7750, 2.0315};

/* ---- memory ---- */

static size_t part(size_t *total, size_t n_bytes)
{
    const size_t at = *total;
    *total += qr_align_up(n_bytes, ALIGN);
    return at;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The largest of everything that any matrix needs. Matrices are worked on as wide ones: rows <= columns. */
struct sizes {
    size_t n, square, packed, packed_turned, packed_square;
};

static struct sizes sizes_of(const struct qr_params *p)
{
    struct sizes z = {0};
    for (int32_t i = 0; i < p->n_params; i++) {
        const struct qr_param *t = &p->param[i];
        if (!qr_param_is_layer_matrix(t))
            continue;
        const int64_t n = t->shape[0] < t->shape[1] ? t->shape[0] : t->shape[1], k = t->shape[0] + t->shape[1] - n;
        z.n = most(z.n, (size_t)(n * k));
        z.square = most(z.square, (size_t)(n * n));
        z.packed = most(z.packed, p->be->k->linear_packed_bytes(p->compute, n, k));
        z.packed_turned = most(z.packed_turned, p->be->k->linear_packed_bytes(p->compute, k, n));
        z.packed_square = most(z.packed_square, p->be->k->linear_packed_bytes(p->compute, n, n));
    }
    return z;
}

/* Sets the object's pointers into `region`, which may be NULL: only the size is wanted then. */
static size_t lay_out(struct qr_muon *mu, const struct qr_params *p, char *region)
{
    const struct sizes z = sizes_of(p);
    const bool rounds = p->compute == QR_BF16;
    size_t total = 0;
    const size_t x = part(&total, z.n * 4), y = part(&total, z.n * 4), a = part(&total, z.square * 4), b = part(&total, z.square * 4);
    const size_t half = part(&total, rounds ? z.n * 2 : 0);
    const size_t packed = part(&total, most(z.packed, z.packed_turned)), square = part(&total, z.packed_square);
    const size_t leaf = part(&total, ((size_t)qr_sum_leaves((int64_t)z.n) + 1) * sizeof(double));
    if (region)
        *mu = (struct qr_muon){.be = p->be, .product = p->compute, .region = region, .x = (float *)(void *)(region + x), .y = (float *)(void *)(region + y),
                               .a = (float *)(void *)(region + a), .b = (float *)(void *)(region + b),
                               .half = rounds ? (uint16_t *)(void *)(region + half) : NULL, .packed = region + packed, .packed_square = region + square,
                               .leaf = (double *)(void *)(region + leaf)};
    return total;
}

size_t qr_muon_bytes(const struct qr_params *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n_params > 0);
    return lay_out(NULL, p, NULL);
}

void qr_muon_init(struct qr_muon *mu, const struct qr_params *p)
{
    QR_ASSERT(mu != NULL && p != NULL);
    QR_ASSERT(p->real == QR_F32);
    lay_out(mu, p, p->be->mem->alloc(qr_muon_bytes(p)));
}

void qr_muon_release(struct qr_muon *mu)
{
    QR_ASSERT(mu != NULL);
    QR_ASSERT(!mu->region || mu->be);
    if (mu->region)
        mu->be->mem->free(mu->region);
    *mu = (struct qr_muon){0};
}

/* ---- the iteration ---- */

static void scale(const struct qr_muon *mu, const struct qr_scale_args *a)
{
    mu->be->b->scale(mu->be->queue, a);
}

/* out [R, C] transposed to [C, R]; half where it is to be rounded. */
static void turn(const struct qr_muon *mu, float *out, uint16_t *half, const float *x, int32_t n_rows, int32_t n_cols)
{
    const struct qr_turn_args a = {.out = out, .half = half, .x = x, .n_rows = n_rows, .n_cols = n_cols};
    mu->be->b->turn(mu->be->queue, &a);
}

/* rows [n_out, n_in] of type `from`. Where matrices are padded, padding must be zeros. */
static void pack(const struct qr_muon *mu, void *dst, const void *rows, enum qr_dtype from, int32_t n_out, int32_t n_in)
{
    const struct qr_kernels *k = mu->be->k;
    const size_t n_bytes = k->linear_packed_bytes(mu->product, n_out, n_in);
    if (n_bytes > (size_t)n_out * (size_t)n_in * qr_dtype_bytes(mu->product))
        mu->be->mem->zero(mu->be->queue, dst, n_bytes);
    k->linear_pack(mu->be->queue, dst, mu->product, n_out, n_in, 0, rows, from, n_out);
}

/* out [n_rows, n_out] = x [n_rows, n_in] times the packed matrix [n_out, n_in] transposed; add: += */
static void multiply(const struct qr_muon *mu, float *out, const float *x, void *packed, int32_t n_rows, int32_t n_in, int32_t n_out, bool add)
{
    const struct qr_weight w = {.t = qr_tensor_2d(NULL, mu->product, n_out, n_in), .packed = packed, .packed_dtype = mu->product};
    const struct qr_linear_args a = {.out = out, .x = x, .w = &w, .out_stride = n_out, .x_stride = n_in, .n_rows = n_rows, .n_in = n_in, .n_out = n_out,
                                     .add = add};
    mu->be->k->linear(mu->be->queue, &a);
}

/* A round on z [n, k], n <= k, which stands for sigma z:  z = z + (c1 sigma^2 a + c2 sigma^4 a a) / c0 z  with a = z z';  sigma grows to c0 sigma. */
static void round_of(const struct qr_muon *mu, float *z, float *spare, int32_t n, int32_t k, double sigma)
{
    const double s2 = sigma * sigma;
    const struct qr_scale_args both = {.out = mu->b, .half = mu->half, .x = mu->a, .n = (int64_t)n * n, .scale = quintic[1] * s2 / quintic[0],
                                       .half_scale = quintic[2] * s2 * s2 / quintic[0]};
    const struct qr_scale_args second = {.out = spare, .x = mu->a, .n = (int64_t)n * n, .scale = both.half_scale};
    const void *rows = mu->half ? (const void *)mu->half : (const void *)spare; /* what is packed behind a pass that rounds it */
    pack(mu, mu->packed, z, QR_F32, n, k);
    multiply(mu, mu->a, z, mu->packed, n, k, n, false);
    scale(mu, &both);
    if (!mu->half)
        scale(mu, &second);
    pack(mu, mu->packed_square, rows, mu->product, n, n);
    multiply(mu, mu->b, mu->a, mu->packed_square, n, n, n, true);
    turn(mu, mu->half ? NULL : spare, mu->half, z, n, k);
    pack(mu, mu->packed, rows, mu->product, k, n);
    multiply(mu, z, mu->b, mu->packed, n, n, k, true);
}

const float *qr_muon_orthogonal(struct qr_muon *mu, double *factor, const float *u, int32_t n_rows, int32_t n_cols)
{
    QR_ASSERT(mu != NULL && factor != NULL && u != NULL);
    QR_ASSERT(n_rows > 0 && n_cols > 0);
    const bool tall = n_rows > n_cols;
    const int64_t n = (int64_t)n_rows * n_cols;
    float *z = tall ? mu->y : mu->x, *spare = tall ? mu->x : mu->y;
    double read, *at = mu->leaf + qr_sum_leaves(n); /* the place behind the leaves */
    const struct qr_sum_squares_args s = {.sum = at, .leaf = mu->leaf, .x = u, .n = n};
    mu->be->b->sum_squares(mu->be->queue, &s);
    const double sum = *(const double *)qr_backend_read(mu->be, &read, at, sizeof read);
    const struct qr_scale_args unit = {.out = mu->x, .x = u, .n = n, .scale = 1 / (sqrt(sum) + NORM_EPS)};
    scale(mu, &unit);
    if (tall)
        turn(mu, z, NULL, mu->x, n_rows, n_cols);
    *factor = 1;
    for (int i = 0; i < N_ROUNDS; i++) {
        round_of(mu, z, spare, tall ? n_cols : n_rows, tall ? n_rows : n_cols, *factor);
        *factor *= quintic[0];
    }
    if (tall)
        turn(mu, mu->x, NULL, z, n_cols, n_rows);
    return mu->x;
}

void qr_muon_move(struct qr_muon *mu, struct qr_params *p, const struct qr_param *t, float *m, const struct qr_muon_step *s)
{
    QR_ASSERT(mu != NULL && p != NULL && t != NULL && m != NULL && s != NULL);
    QR_ASSERT(qr_param_is_layer_matrix(t) && s->step >= 1);
    const struct qr_momentum_args look = {.m = m, .g = (float *)p->grad + t->first, .out = mu->x, .n = t->n, .mu = s->momentum, .gscale = s->gscale};
    p->be->b->momentum(p->be->queue, &look);
    double factor;
    const float *u = qr_muon_orthogonal(mu, &factor, mu->x, (int32_t)t->shape[0], (int32_t)t->shape[1]);
    const double size = factor * 0.2 * sqrt((double)(t->shape[0] > t->shape[1] ? t->shape[0] : t->shape[1]));
    const struct qr_move_args move = {.w = (float *)p->value + t->first, .half = p->half ? p->half + t->first : NULL, .u = u, .n = t->n, .first = t->first,
                                      .step = s->step, .keep = 1 - s->lr * s->decay, .rate = s->lr * size, .seed = s->seed};
    p->be->b->move_by(p->be->queue, &move);
}
