/* tuned.h - what a launch looks up in the table of measured choices (kernels/tune.h): once for each launch, on the thread that launches. Inside kernels/cpu
 * only. */
#ifndef QR_KERNELS_CPU_TUNED_H
#define QR_KERNELS_CPU_TUNED_H

#include "kernels/batch.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"
#include "kernels/tune.h"

/* Items that each thread should find in this product; 0: not measured, the kernel's own rule. */
static inline int32_t qr_tuned_linear(const struct qr_queue *q, const struct qr_linear_args *a)
{
    return q->tune ? qr_tune_find(q->tune, qr_tune_linear(a->w->packed_dtype, a->n_rows, a->n_in, a->n_out)) : 0;
}

static inline int32_t qr_tuned_attention(const struct qr_queue *q, const struct qr_kv_view *kv, int32_t n_rows)
{
    return q->tune ? qr_tune_find(q->tune, qr_tune_attention(kv->dtype, n_rows)) : 0;
}

/* Prefetch distance in bytes for weights that stream from memory, in an item of item_bytes: 1/32 of it, as what lies behind the item's end is another
 * thread's. */
static inline int64_t qr_stream_ahead(int64_t item_bytes)
{
    const int64_t lines = item_bytes / 32 / 64;
    return 64 * (lines < 32 ? 32 : lines > 256 ? 256 : lines);
}

#endif
