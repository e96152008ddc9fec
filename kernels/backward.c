#include "kernels/backward.h"

#include "base/assert.h"

double qr_sum_tree(double *leaf, int64_t n_leaves)
{
    QR_ASSERT(n_leaves >= 0);
    QR_ASSERT(leaf != NULL || n_leaves == 0);
    for (int64_t n = n_leaves; n > 1; n = (n + 1) / 2)
        for (int64_t i = 0; i < (n + 1) / 2; i++)
            leaf[i] = 2 * i + 1 < n ? leaf[2 * i] + leaf[2 * i + 1] : leaf[2 * i];
    return n_leaves > 0 ? leaf[0] : 0;
}

/* Element `at` of an array of the tables' type. */
static void *element(const void *base, int64_t at, enum qr_dtype real)
{
    return base ? (char *)(uintptr_t)base + at * (int64_t)qr_dtype_bytes(real) : NULL;
}

void qr_linear_cross_entropy(const struct qr_kernels *k, const struct qr_backward *b, struct qr_queue *q, const struct qr_linear_ce_args *a)
{
    QR_ASSERT(k != NULL && b != NULL && a != NULL && a->logits != NULL && a->loss != NULL);
    QR_ASSERT(a->chunk_rows > 0 && (a->dx == NULL) == (a->dw == NULL));
    const int64_t stride = qr_logits_stride(a->n_vocab);
    for (int32_t at = 0; at < a->n_rows; at += a->chunk_rows) {
        const int32_t n = a->n_rows - at < a->chunk_rows ? a->n_rows - at : a->chunk_rows;
        const float *x = element(a->x, at * a->x_stride, a->real);
        const struct qr_linear_args head = {.out = a->logits, .x = x, .w = a->w, .out_stride = stride, .x_stride = a->x_stride,
                                            .n_rows = n, .n_in = a->n_in, .n_out = a->n_vocab};
        const struct qr_cross_entropy_args ce = {.logits = a->logits, .loss = a->loss + at, .target = a->target + at, .stride = stride,
                                                 .n_rows = n, .n_cols = a->n_vocab, .scale = a->scale};
        k->linear(q, &head);
        if (a->rows)
            a->rows(a->user, &ce, at);
        else
            b->cross_entropy(q, &ce);
        if (!a->dx)
            continue;
        const struct qr_linear_dx_args dx = {.dx = element(a->dx, at * a->dx_stride, a->real), .dy = a->logits, .w = a->w,
                                             .dx_stride = a->dx_stride, .dy_stride = stride, .n_rows = n, .n_in = a->n_in,
                                             .n_out = a->n_vocab, .fresh = a->fresh_dx};
        const struct qr_linear_dw_args dw = {.dw = a->dw, .dy = a->logits, .x = x, .dy_stride = stride, .x_stride = a->x_stride,
                                             .n_rows = n, .n_in = a->n_in, .n_out = a->n_vocab, .product = a->w->t.dtype,
                                             .fresh = a->fresh_dw && at == 0};
        b->linear_dx(q, &dx);
        b->linear_dw(q, &dw);
    }
}
