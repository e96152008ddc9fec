/* The one kernel that every level has from the same object: numbers that lie anywhere in a row are loaded one by one whatever the vectors. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/pool.h"

static void pick_rows(const void *arg, int64_t first, int64_t end)
{
    const struct qr_pick_args *a = arg;
    for (int64_t n = first; n < end; n++) {
        const float *x = a->x + n * a->x_stride;
        float *restrict out = a->out + n * a->out_stride;
        for (int32_t i = 0; i < a->n_cols; i++)
            out[i] = x[a->col[i]];
    }
}

void qr_cpu_pick_columns(struct qr_queue *q, const struct qr_pick_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->out != NULL);
    QR_ASSERT(a->col != NULL && a->n_rows >= 0 && a->n_cols > 0);
    qr_queue_run_rows(q, pick_rows, a, a->n_rows, a->n_cols);
}
