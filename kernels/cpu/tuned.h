/* tuned.h - what a launch asks of the table of tunables (kernels/tune.h). Inside kernels/cpu only. */
#ifndef QR_KERNELS_CPU_TUNED_H
#define QR_KERNELS_CPU_TUNED_H

#include "kernels/batch.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"
#include "kernels/tune.h"

static inline const struct qr_tunables *qr_tuned_linear(const struct qr_queue *q, const struct qr_linear_args *a)
{
    return qr_tune_find(q->tune, (struct qr_tune_key){.op = QR_TUNE_LINEAR, .type = (uint8_t)a->w->packed_dtype,
                                                      .bucket = (uint8_t)qr_tune_bucket(a->n_rows), .a = a->n_in, .b = a->n_out});
}

static inline const struct qr_tunables *qr_tuned_attention(const struct qr_queue *q, const struct qr_kv_view *kv, int32_t n_heads, int32_t n_rows)
{
    return qr_tune_find(q->tune, (struct qr_tune_key){.op = QR_TUNE_ATTENTION, .type = (uint8_t)kv->dtype, .bucket = (uint8_t)qr_tune_bucket(n_rows),
                                                      .a = n_heads, .b = kv->n_kv_heads, .c = kv->head_dim});
}

static inline const struct qr_tunables *qr_tuned_chain(const struct qr_queue *q, const struct qr_chain_args *a)
{
    const struct qr_linear_args *first = &a->linear[0];
    return qr_tune_find(q->tune, (struct qr_tune_key){.op = QR_TUNE_CHAIN, .type = (uint8_t)first->w->packed_dtype,
                                                      .bucket = (uint8_t)qr_tune_bucket(first->n_rows), .a = first->n_in, .b = first->n_out, .c = a->n});
}

/* The measured value, or the kernel's own choice. */
static inline int32_t qr_tuned(int32_t value, int32_t own)
{
    return value ? value : own;
}

/* The same where the kernel has room for no more than `most`. */
static inline int32_t qr_tuned_most(int32_t value, int32_t own, int32_t most)
{
    return value && value < most ? value : value ? most : own;
}

/* Bytes ahead of which weights that stream from memory are asked for, by an item that reads item_bytes of them: what is asked for behind its end is
 * another worker's, so small items look less far. */
static inline int64_t qr_tuned_ahead(int32_t lines, int64_t item_bytes)
{
    const int64_t own = item_bytes / 32 / 64;
    return 64 * (lines ? lines : own < 32 ? 32 : own > 256 ? 256 : own);
}

/* Runs a launch on all workers, or on the caller alone: as measured, else when `small`. */
static inline void qr_tuned_run(struct qr_queue *q, int32_t spread, bool small, qr_job *fn, const void *arg, int64_t n_items)
{
    if (spread == QR_SPREAD_CALLER || (spread == QR_SPREAD_OWN && small))
        qr_queue_run_here(fn, arg, n_items);
    else
        qr_queue_run(q, fn, arg, n_items);
}

#endif
