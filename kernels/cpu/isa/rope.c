/* rope.c - rotary position embedding. */
#include <math.h>

#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/pool.h"

struct rope_table_job {
    const struct qr_rope_table_args *a;
    int64_t rows_per_item;
};

static void rope_table_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct rope_table_job *j = arg;
    const struct qr_rope_table_args *a = j->a;
    int32_t half = a->n_rot / 2;
    int64_t first = item * j->rows_per_item, end = first + j->rows_per_item;
    for (int64_t n = first; n < end && n < a->n_rows; n++) {
        float *row = a->cos_sin + n * a->n_rot;
        for (int32_t i = 0; i < half; i++) {
            double angle = (double)a->pos[n] * a->inv_freq[i];
            row[i] = (float)(cos(angle) * (double)a->attn_factor);
            row[half + i] = (float)(sin(angle) * (double)a->attn_factor);
        }
    }
}

void QR_ISA_NAME(rope_table)(struct qr_queue *q, const struct qr_rope_table_args *a)
{
    QR_ASSERT(a != NULL && a->cos_sin != NULL && a->inv_freq != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0);
    struct rope_table_job j = {a, qr_queue_rows_per_item((int64_t)a->n_rot * 32)}; /* an element costs as much as 32 additions */
    qr_queue_run(q, rope_table_item, &j, (a->n_rows + j.rows_per_item - 1) / j.rows_per_item);
}

struct rope_job {
    const struct qr_rope_args *a;
    int64_t rows_per_item;
};

static void rope_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct rope_job *j = arg;
    const struct qr_rope_args *a = j->a;
    int32_t half = a->n_rot / 2;
    int64_t first = item * j->rows_per_item, end = first + j->rows_per_item;
    for (int64_t n = first; n < end && n < a->n_rows; n++) {
        const float *c = a->cos_sin + n * a->n_rot;
        for (int32_t h = 0; h < a->n_heads; h++)
            row_rotate(a->x + n * a->stride + (int64_t)h * a->head_dim, c, c + half, half);
    }
}

void QR_ISA_NAME(rope)(struct qr_queue *q, const struct qr_rope_args *a)
{
    QR_ASSERT(a != NULL && a->x != NULL && a->cos_sin != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0 && a->n_rot <= a->head_dim);
    struct rope_job j = {a, qr_queue_rows_per_item((int64_t)a->n_heads * a->head_dim)};
    qr_queue_run(q, rope_item, &j, (a->n_rows + j.rows_per_item - 1) / j.rows_per_item);
}
