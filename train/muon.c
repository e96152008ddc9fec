#include "train/muon.h"

#include <math.h>
#include <string.h>

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

/* Sets the object's pointers into `region`, which may be NULL: only the size is wanted then. */
static size_t lay_out(struct qr_muon *mu, const struct qr_params *p, char *region)
{
    size_t n = 0, side = 0, packed = 0, total = 0;
    for (int32_t i = 0; i < p->n_params; i++) {
        const struct qr_param *t = &p->param[i];
        if (!qr_param_is_layer_matrix(t))
            continue;
        const size_t rows = (size_t)t->shape[0], cols = (size_t)t->shape[1], less = rows < cols ? rows : cols;
        const size_t bytes = rows <= cols ? p->be->k->linear_packed_bytes(p->compute, t->shape[0], t->shape[1]) : 0;
        n = rows * cols > n ? rows * cols : n;
        side = less > side ? less : side;
        packed = bytes > packed ? bytes : packed;
    }
    const bool rounds = p->compute == QR_BF16;
    const size_t x = part(&total, n * 4), y = part(&total, n * 4), a = part(&total, side * side * 4), b = part(&total, side * side * 4);
    const size_t c = part(&total, side * side * 4), xh = part(&total, rounds ? n * 2 : 0), ah = part(&total, rounds ? side * side * 2 : 0);
    const size_t pk = part(&total, packed), leaf = part(&total, ((size_t)qr_sum_leaves((int64_t)n) + 1) * sizeof(double));
    if (region)
        *mu = (struct qr_muon){.be = p->be, .product = p->compute, .region = region, .x = (float *)(void *)(region + x), .y = (float *)(void *)(region + y),
                               .a = (float *)(void *)(region + a), .b = (float *)(void *)(region + b), .c = (float *)(void *)(region + c),
                               .x_half = rounds ? (uint16_t *)(void *)(region + xh) : NULL, .a_half = rounds ? (uint16_t *)(void *)(region + ah) : NULL,
                               .packed = region + pk, .leaf = (double *)(void *)(region + leaf)};
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

static void scale(const struct qr_muon *mu, float *out, uint16_t *half, const float *x, int64_t n, double by)
{
    const struct qr_scale_args a = {.out = out, .half = half, .x = x, .n = n, .scale = by};
    mu->be->b->scale(mu->be->queue, &a);
}

/* out [n, cols] += rows [n, k] matrix [k, cols]; half: the matrix rounded, where products are bf16. */
static void add_product(const struct qr_muon *mu, float *out, const float *rows, const float *matrix, const uint16_t *half, int32_t n, int32_t k, int32_t cols)
{
    void *data = half ? (void *)(uintptr_t)half : (void *)(uintptr_t)matrix;
    const struct qr_weight w = {.t = qr_tensor_2d(data, mu->product, k, cols), .packed_dtype = mu->product};
    const struct qr_linear_dx_args a = {.dx = out, .dy = rows, .w = &w, .dx_stride = cols, .dy_stride = k, .n_rows = n, .n_in = cols, .n_out = k};
    mu->be->b->linear_dx(mu->be->queue, &a);
}

/* a = x x' of a wide matrix, x' x of a tall one. */
static void square(const struct qr_muon *mu, int32_t n_rows, int32_t n_cols)
{
    if (n_rows <= n_cols) {
        struct qr_backend *be = mu->be;
        struct qr_weight w = {.t = qr_tensor_2d(mu->x, QR_F32, n_rows, n_cols), .packed = mu->packed, .packed_dtype = mu->product};
        memset(mu->packed, 0, be->k->linear_packed_bytes(mu->product, n_rows, n_cols));
        be->k->linear_pack(be->queue, mu->packed, mu->product, n_rows, n_cols, 0, mu->x, QR_F32, n_rows);
        const struct qr_linear_args a = {.out = mu->a, .x = mu->x, .w = &w, .out_stride = n_rows, .x_stride = n_cols, .n_rows = n_rows, .n_in = n_cols,
                                         .n_out = n_rows};
        be->k->linear(be->queue, &a);
        return;
    }
    memset(mu->a, 0, (size_t)n_cols * (size_t)n_cols * sizeof *mu->a);
    const struct qr_linear_dw_args a = {.dw = mu->a, .dy = mu->x, .x = mu->x, .dy_stride = n_cols, .x_stride = n_cols, .n_rows = n_rows, .n_in = n_cols,
                                        .n_out = n_cols, .product = mu->product};
    mu->be->b->linear_dw(mu->be->queue, &a);
}

/* x = c0 x + (c1 a + c2 a^2) x */
static void round_of(struct qr_muon *mu, int32_t n_rows, int32_t n_cols)
{
    const bool wide = n_rows <= n_cols;
    const int32_t side = wide ? n_rows : n_cols;
    const int64_t n = (int64_t)n_rows * n_cols, n_side = (int64_t)side * side;
    square(mu, n_rows, n_cols);
    scale(mu, mu->b, mu->a_half, mu->a, n_side, quintic[1]);
    scale(mu, mu->c, NULL, mu->a, n_side, quintic[2]);
    add_product(mu, mu->b, mu->c, mu->a, mu->a_half, side, side, side);
    scale(mu, mu->y, wide ? mu->x_half : NULL, mu->x, n, quintic[0]);
    if (wide) {
        add_product(mu, mu->y, mu->b, mu->x, mu->x_half, side, side, n_cols);
    } else {
        if (mu->a_half)
            scale(mu, NULL, mu->a_half, mu->b, n_side, 1);
        add_product(mu, mu->y, mu->x, mu->b, mu->a_half, n_rows, side, side);
    }
    float *x = mu->x;
    mu->x = mu->y;
    mu->y = x;
}

const float *qr_muon_orthogonal(struct qr_muon *mu, const float *u, int32_t n_rows, int32_t n_cols)
{
    QR_ASSERT(mu != NULL && u != NULL);
    QR_ASSERT(n_rows > 0 && n_cols > 0);
    const int64_t n = (int64_t)n_rows * n_cols;
    double sum;
    const struct qr_sum_squares_args s = {.sum = &sum, .leaf = mu->leaf, .x = u, .n = n};
    mu->be->b->sum_squares(mu->be->queue, &s);
    scale(mu, mu->x, NULL, u, n, 1 / (sqrt(sum) + NORM_EPS));
    for (int i = 0; i < N_ROUNDS; i++)
        round_of(mu, n_rows, n_cols);
    return mu->x;
}

void qr_muon_move(struct qr_muon *mu, struct qr_params *p, const struct qr_param *t, float *m, const struct qr_muon_step *s)
{
    QR_ASSERT(mu != NULL && p != NULL && t != NULL && m != NULL && s != NULL);
    QR_ASSERT(qr_param_is_layer_matrix(t) && s->step >= 1);
    const struct qr_momentum_args look = {.m = m, .g = (float *)p->grad + t->first, .out = mu->x, .n = t->n, .mu = s->momentum, .gscale = s->gscale};
    p->be->b->momentum(p->be->queue, &look);
    const float *u = qr_muon_orthogonal(mu, mu->x, (int32_t)t->shape[0], (int32_t)t->shape[1]);
    const double size = 0.2 * sqrt((double)(t->shape[0] > t->shape[1] ? t->shape[0] : t->shape[1]));
    const struct qr_move_args move = {.w = (float *)p->value + t->first, .half = p->half ? p->half + t->first : NULL, .u = u, .n = t->n, .first = t->first,
                                      .step = s->step, .keep = 1 - s->lr * s->decay, .rate = s->lr * size, .seed = s->seed};
    p->be->b->move_by(p->be->queue, &move);
}
