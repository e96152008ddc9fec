/* log.h - what a run writes about itself: log.csv and log.jsonl in its directory, a line each step, the same numbers in both; samples in the latter.
 *
 * A resumed run goes on behind the checkpoint's step: lines of later steps, and a line that was cut off, are removed first, so that there are
 * no doubles. Lines are given to the system at once. One owning thread.
 */
#ifndef QR_TRAIN_LOG_H
#define QR_TRAIN_LOG_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/* A line. NaN: there is none of it; an empty field, and no member. */
struct qr_train_row {
    int64_t step, n_tokens;  /* of this step */
    double loss, eval_loss, norm, lr, tokens_s, peak_share, seconds;
    double waited;           /* of the seconds: rank 0 for other ranks */
};

struct qr_train_log {
    FILE *csv, *jsonl; /* owned */
};

/* Files in `dir`, which must exist. after < 0: new ones; otherwise lines of steps up to `after` stay. */
int qr_train_log_open(struct qr_train_log *log, const char *dir, int64_t after, struct qr_err *err);
int qr_train_log_row(struct qr_train_log *log, const struct qr_train_row *row, struct qr_err *err);
int qr_train_log_sample(struct qr_train_log *log, int64_t step, const char *prompt, const char *text, struct qr_err *err);
void qr_train_log_close(struct qr_train_log *log); /* zeroed is fine */

#endif
