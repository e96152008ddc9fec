/* trace.h - where a training step's time goes, as a Chrome trace (chrome://tracing, ui.perfetto.dev): steps, layers, verbs with their bytes, operations
 * and share of the machine's peak. Everything is a complete event on one track; what is inside another lies inside its time. One owning thread.
 */
#ifndef QR_TRAIN_TRACE_H
#define QR_TRAIN_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "train/tape.h"

struct qr_train_peak {
    double ops_s, bytes_s; /* 0: unknown */
};

/* What a verb takes: operations, and bytes if everything were read and written once. */
struct qr_train_cost {
    double ops, bytes;
};
struct qr_train_cost qr_train_cost_of(const struct qr_tape_op *op, const struct qr_batch *b);

struct qr_train_trace; /* opaque */

/* Writes to `path` while it is open. `what` is the run's name. */
int qr_train_trace_open(struct qr_train_trace **out, const char *path, const char *what, const struct qr_train_peak *peak, struct qr_err *err);

/* Looks on at a tape from now on; params name its weights. Both borrowed until the trace is closed or another tape is watched. */
void qr_train_trace_watch(struct qr_train_trace *trace, struct qr_tape *t, const struct qr_params *params);

/* A stretch of time with a name; stretches nest. trace NULL: nothing happens. number, where >= 0, is put behind the name. */
void qr_train_trace_begin(struct qr_train_trace *trace, const char *name, int64_t number);
void qr_train_trace_end(struct qr_train_trace *trace);

/* Ends the file and looks away. Errors: QR_E_IO. NULL is fine. */
int qr_train_trace_close(struct qr_train_trace *trace, struct qr_err *err);

#endif
