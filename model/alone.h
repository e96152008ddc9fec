/* alone.h - a model computing one sequence by itself, without an engine: scoring, calibration, samples of a training
 * run. One owning thread.
 */
#ifndef QR_MODEL_ALONE_H
#define QR_MODEL_ALONE_H

#include "model/model.h"

struct qr_alone {
    struct qr_model *model;   /* borrowed */
    struct qr_backend *be;    /* borrowed */
    struct qr_kv_view kv;
    void *kv_mem, *act_mem;   /* owned */
    struct qr_arena act;
    struct qr_exec exec;
    int32_t ctx_max, rows_max, logits_max;
    int32_t *table, *pos, *row; /* owned: identity block table, [rows_max], [rows_max] */
    float *scale;             /* owned [rows_max] 1: sums of stretches are those that log-probabilities are made of */
};

/* For sequences up to ctx_max tokens in steps of up to rows_max, with logits of the last logits_max of them. lora:
 * every row's adapter, borrowed, or NULL. watched: exec.watch may be set, which takes more memory. */
void qr_alone_init(struct qr_alone *a, struct qr_model *m, struct qr_backend *be, const struct qr_lora *lora,
                   int32_t ctx_max, int32_t rows_max, int32_t logits_max, bool watched);

/* The device's memory that this takes, without an adapter and not watched. */
size_t qr_alone_bytes(const struct qr_model *m, int32_t ctx_max, int32_t rows_max, int32_t logits_max);
void qr_alone_release(struct qr_alone *a); /* also of a zeroed one; before the model is closed */

/* Tokens ids[first .. first + n) of a sequence whose tokens before that were computed: logits of the last min(n,
 * logits_max), as qr_model_forward has them, and a->exec.stretches. */
struct qr_tensor qr_alone_step(struct qr_alone *a, const int32_t *ids, int32_t first, int32_t n);

#endif
