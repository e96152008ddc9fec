/* data_screen.h - what the long commands on data share: Ctrl-C that stops them in good order, and a line of progress on a terminal (stderr). */
#ifndef QR_CLI_DATA_SCREEN_H
#define QR_CLI_DATA_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/train_stop.h"

struct qr_data_screen {
    struct qr_train_stop stop;
    bool bar; /* stderr is a terminal */
    int64_t began_us, shown_us;
};

void qr_data_screen_open(struct qr_data_screen *s);

/* Takes the line away. *status: 128 + the signal, when one came; else as it was. */
void qr_data_screen_close(struct qr_data_screen *s, int *status);

bool qr_data_screen_due(struct qr_data_screen *s); /* a new line should be shown, by the caller: at most five a second */
bool qr_data_screen_stopped(const struct qr_data_screen *s);
double qr_data_screen_seconds(const struct qr_data_screen *s);

#endif
