/* The one kernel that every level has from the same object: numbers that lie anywhere in a row are loaded one by one whatever the vectors. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/pool.h"

#define ITEM 16384 /* numbers of an item: some 10 us */

struct pick_job {
    const struct qr_pick_args *a;
    int32_t rows; /* of an item */
};

static void pick_item(const void *arg, int32_t item, int32_t worker)
{
    const struct pick_job *j = arg;
    const struct qr_pick_args *a = j->a;
    const int64_t first = (int64_t)item * j->rows, end = first + j->rows < a->n_rows ? first + j->rows : a->n_rows;
    (void)worker;
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
    const struct pick_job j = {a, a->n_cols < ITEM ? ITEM / a->n_cols : 1};
    const int64_t n_items = (a->n_rows + j.rows - 1) / j.rows;
    if (n_items < 2)
        qr_queue_run_here(pick_item, &j, n_items);
    else
        qr_queue_run(q, pick_item, &j, n_items);
}
