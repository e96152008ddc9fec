/* glu_apart.c - a product whose gated unit is a pass of its own, for widths that keep gates and their ups out of one register block. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/pool.h"

/* Takes half of the launch's scratch away from the product, or what a row needs. */
void QR_ISA_NAME(glu_apart)(struct qr_queue *q, const struct qr_linear_args *a, qr_linear_fn *plain)
{
    QR_ASSERT(q != NULL && a != NULL && plain != NULL);
    QR_ASSERT(a->glu && !a->add && a->n_out % 2 == 0);
    const size_t shared = q->shared_bytes;
    const int64_t row_bytes = a->n_out * (int64_t)sizeof(float);
    int64_t most = (int64_t)shared / 2 / row_bytes;
    most = most > 1 ? most : 1;
    most = most < a->n_rows ? most : a->n_rows;
    const size_t taken = ((size_t)(most * row_bytes) + 63) / 64 * 64;
    QR_ASSERT(taken < shared);
    q->shared_bytes = shared - taken;
    float *both = (float *)(void *)(q->shared + q->shared_bytes);
    struct qr_linear_args part = *a;
    struct qr_glu_args glu = {.out = a->out, .gate_up = both, .out_stride = a->out_stride, .gate_up_stride = a->n_out, .n_cols = a->n_out / 2,
                              .act = a->act, .clamp = a->clamp};
    part.glu = false;
    part.out = both;
    part.out_stride = a->n_out;
    for (int64_t first = 0; first < a->n_rows; first += most) {
        part.n_rows = glu.n_rows = (int32_t)(a->n_rows - first < most ? a->n_rows - first : most);
        plain(q, &part);
        QR_ISA_NAME(glu)(q, &glu);
        part.x += most * a->x_stride;
        glu.out += most * a->out_stride;
    }
    q->shared_bytes = shared;
}
