/* train_screen.h - what a training run shows: a line for each step, and on a terminal a bar below them that is drawn anew in place. To stdout. */
#ifndef QR_CLI_TRAIN_SCREEN_H
#define QR_CLI_TRAIN_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "train/config.h"
#include "train/log.h"

struct qr_train_screen {
    bool bar, colour;     /* stdout is a terminal; and NO_COLOR is not set */
    int32_t columns;
    int64_t first, last;  /* steps already done when the run began, and in all */
    int64_t began_us;
};

void qr_train_screen_open(struct qr_train_screen *s, int64_t first, int64_t last);

/* A step's line (or, with `line` false, the bar alone). */
void qr_train_screen_step(struct qr_train_screen *s, const struct qr_train_row *row, bool line);

/* Any other line. */
void qr_train_screen_say(struct qr_train_screen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What there was, in all: steps, time, tokens, and the losses that are known (NaN: not so). best_step is that of the lowest held-out loss. */
struct qr_train_sum {
    int64_t n_steps, n_tokens, best_step;
    double seconds, loss, eval_loss, best_loss;
};
void qr_train_screen_sum(const struct qr_train_sum *sum);

/* A line where steps are longer than the data, or the run is many times that long. An epoch has epoch_steps steps; 0: the run ends before the data does. */
void qr_train_screen_hint(const struct qr_train_config *c, int64_t n_steps, double epoch_steps, int64_t n_tokens);

/* Takes the bar away. */
void qr_train_screen_close(struct qr_train_screen *s);

#endif
