/* train_stop.h - Ctrl-C, SIGTERM and a terminal that is closed, for a long run: the first asks for an end in good order, the second ends the process at
 * once (not one that the same process sends within a second of its first: timeout sends each twice). A thread waits for them, so that there is no handler
 * and no state of the process. Open it, or hold the signals, before any other thread is made: they inherit the mask.
 */
#ifndef QR_CLI_TRAIN_STOP_H
#define QR_CLI_TRAIN_STOP_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct qr_train_stop {
    pthread_t thread;
    sigset_t before;
    const char *text;   /* borrowed: what the first signal is answered with */
    _Atomic int asked;  /* the signal, or 0 */
    _Atomic bool over;
};

/* Blocks the signals until a thread receives them, also in threads and processes that are made from now on; *before:
 * what the mask was. */
void qr_train_stop_hold(sigset_t *before);
void qr_train_stop_open(struct qr_train_stop *s, const char *text);
int qr_train_stop_close(struct qr_train_stop *s); /* returns the exit status of what a signal ended: 128 + signal; 0: none came */

#endif
