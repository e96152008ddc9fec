/* data_screen.h - what the long commands on data share: Ctrl-C that stops them in good order, and a line of progress on a
 * terminal (stderr). */
#ifndef QR_CLI_DATA_SCREEN_H
#define QR_CLI_DATA_SCREEN_H

#include "cli/cli.h"
#include "cli/train_stop.h"

struct qr_data_screen {
    struct qr_progress line;
    struct qr_train_stop stop;
};

/* In cmd_data.c. */
void qr_data_screen_open(struct qr_data_screen *s, const char *what);
int qr_data_screen_close(struct qr_data_screen *s); /* takes the line away; 128 + the signal, when one came, else 0 */
double qr_data_screen_seconds(const struct qr_data_screen *s);

#endif
