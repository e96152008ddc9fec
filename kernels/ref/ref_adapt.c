/* ref_adapt.c - the plain form of adapt, the low-rank products of LoRA (kernels.h, ref.h). */
#include "base/assert.h"
#include "kernels/ref/ref.h"

/* One row and one part. */
static void adapt_row(const struct qr_adapt_args *a, const struct qr_adapt_part *p, real *out, const real *x, real *t)
{
    for (int32_t j = 0; j < p->rank; j++) {
        t[j] = 0;
        for (int32_t i = 0; i < a->n_in; i++)
            t[j] += x[i] * qr_ref_load(p->a, a->dtype, (size_t)j * (size_t)a->n_in + (size_t)i);
    }
    for (int32_t o = 0; o < p->n_out; o++) {
        real sum = 0;
        for (int32_t j = 0; j < p->rank; j++)
            sum += t[j] * qr_ref_load(p->b, a->dtype, (size_t)qr_adapt_b_at(p->rank, o, j));
        out[p->first + o] += (real)p->scale * sum;
    }
}

void QR_REF(adapt)(struct qr_queue *q, const struct qr_adapt_args *a)
{
    (void)q;
    QR_ASSERT(a != NULL && a->out != NULL && a->x != NULL && a->mid != NULL);
    QR_ASSERT(a->dtype == QR_F32 || a->dtype == QR_BF16);
    real *t = (real *)a->mid;
    for (int32_t g = 0; g < a->n_groups; g++) {
        const struct qr_row_group *group = &a->group[g];
        const struct qr_adapt_parts *parts = &a->parts[group->slot];
        for (int32_t r = 0; r < group->n_rows; r++)
            for (int32_t p = 0; p < parts->n; p++)
                adapt_row(a, &parts->part[p], (real *)a->out + group->row[r] * a->out_stride, (const real *)a->x + group->row[r] * a->x_stride, t);
    }
}
