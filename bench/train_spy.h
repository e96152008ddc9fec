/* train_spy.h - a backend that passes every call on and takes its time: where a training step's time goes, kernel by kernel, against the machine's
 * limits. One owning thread, that of the backend. */
#ifndef QR_BENCH_TRAIN_SPY_H
#define QR_BENCH_TRAIN_SPY_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

enum {
    QR_SPY_LINEAR, QR_SPY_LINEAR_HEAD, QR_SPY_ATTENTION, QR_SPY_NORM, QR_SPY_GLU, QR_SPY_ROPE, QR_SPY_CACHE, QR_SPY_EMBED,
    QR_SPY_LOSS, QR_SPY_DX, QR_SPY_DX_HEAD, QR_SPY_DW, QR_SPY_DW_HEAD, QR_SPY_ATTENTION_BACK, QR_SPY_NORM_BACK, QR_SPY_GLU_BACK,
    QR_SPY_ROPE_BACK, QR_SPY_EMBED_BACK, QR_SPY_SUM_SQUARES, QR_SPY_ADAMW, QR_SPY_PACK, QR_SPY_MUON, QR_SPY_OTHER, QR_SPY_ROWS
};

/* What one kind of call has taken since it was last cleared; ops: two a product; bytes: if everything were read and written once. */
struct qr_spy_row {
    int64_t n_calls, ns;
    double ops, bytes;
};

struct qr_spy {
    struct qr_backend be;   /* what the trainer is given; its queue is this struct, which only the tables here know */
    struct qr_backend *real; /* borrowed */
    struct qr_kernels k;
    struct qr_backward b;
    int32_t n_vocab;        /* a product with as many outputs is the head's */
    struct qr_spy_row row[QR_SPY_ROWS];
};

/* s must stay where it is. Matrices must not be quantized: work on a backend's threads outside of kernels is not passed on. */
void qr_spy_init(struct qr_spy *s, struct qr_backend *real, int32_t n_vocab);

/* Prints the rows as a table: times and shares of `steps` steps that took step_ns each; ops_s and bytes_s: the machine's limits. */
void qr_spy_print(const struct qr_spy *s, int64_t steps, double step_ns, double ops_s, double bytes_s);

#endif
