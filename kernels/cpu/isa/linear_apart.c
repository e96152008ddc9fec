/* linear_apart.c - a product with its norm or its gated unit in passes of their own: for what a level does not do inside of the product. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/pool.h"

/* Rows [first, first + n_rows): norm to `normed`, product to `both`, gated unit from there. */
static void run_chunk(struct qr_queue *q, const struct qr_linear_args *a, qr_linear_fn *plain, float *normed, float *both, int32_t first, int32_t n_rows)
{
    struct qr_linear_args part = *a;
    part.n_rows = n_rows;
    part.x = a->x + first * a->x_stride;
    part.out = a->out + first * a->out_stride;
    if (a->norm_w) {
        const struct qr_norm_args norm = {.out = normed, .x = (float *)(uintptr_t)part.x, .w = a->norm_w, .out_stride = a->n_in, .x_stride = a->x_stride,
                                          .n_rows = n_rows, .n_cols = a->n_in, .eps = a->eps};
        QR_ISA_NAME(rms_norm)(q, &norm);
        part.norm_w = NULL;
        part.x = normed;
        part.x_stride = a->n_in;
    }
    if (!a->glu) {
        plain(q, &part);
        return;
    }
    const struct qr_glu_args glu = {.out = part.out, .gate_up = both, .out_stride = a->out_stride, .gate_up_stride = a->n_out, .n_rows = n_rows,
                                    .n_cols = a->n_out / 2, .act = a->act};
    part.glu = false;
    part.out = both;
    part.out_stride = a->n_out;
    plain(q, &part);
    QR_ISA_NAME(glu)(q, &glu);
}

/* Takes half of the launch's scratch away from the product, or what a row needs. */
void QR_ISA_NAME(linear_apart)(struct qr_queue *q, const struct qr_linear_args *a, qr_linear_fn *plain)
{
    QR_ASSERT(q != NULL && a != NULL && plain != NULL);
    QR_ASSERT(a->norm_w || a->glu);
    QR_ASSERT(!a->glu || (!a->add && a->n_out % 2 == 0));
    const size_t shared = q->shared_bytes;
    const int64_t row = (a->norm_w ? a->n_in : 0) + (a->glu ? a->n_out : 0), row_bytes = row * (int64_t)sizeof(float);
    int64_t most = (int64_t)shared / 2 / row_bytes;
    most = most > 1 ? most : 1;
    most = most < a->n_rows ? most : a->n_rows;
    const size_t taken = ((size_t)(most * row_bytes) + 63) / 64 * 64;
    QR_ASSERT(taken < shared);
    q->shared_bytes = shared - taken;
    float *normed = (float *)(void *)(q->shared + q->shared_bytes), *both = normed + (a->norm_w ? most * a->n_in : 0);
    for (int32_t first = 0; first < a->n_rows; first += (int32_t)most)
        run_chunk(q, a, plain, normed, both, first, a->n_rows - first < most ? a->n_rows - first : (int32_t)most);
    q->shared_bytes = shared;
}
