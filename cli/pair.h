/* pair.h - `serve --pair`: a prefill and a decode process of this program on this machine, in one call. The calling process becomes the one that decodes, which
 * the terminal and the service manager know. A keeper between them starts the other, starts it again when it dies, and ends it when the first has ended.
 * Their sockets lie in a directory that is theirs alone. Before the process has threads. */
#ifndef QR_CLI_PAIR_H
#define QR_CLI_PAIR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define QR_PAIR_PATH_MAX 96 /* of a socket: the system takes 107 bytes */

struct qr_pair {
    bool prefill;                  /* this process is the one that computes prompts */
    char dir[QR_PAIR_PATH_MAX / 2];
    char socket[QR_PAIR_PATH_MAX]; /* where it listens for the other, */
    const char *peer;              /* an address of --peer: socket */
    char http[QR_PAIR_PATH_MAX];   /* and for requests, of people who look after it */
    pid_t keeper;                  /* of the process that decodes */
    int alive;                     /* a pipe that closes with it */
};

/* Returns in both processes, in the first at once; each has its share of the processors. QR_E_IO, QR_E_NO_ROOM. */
int qr_pair_begin(struct qr_pair *p, struct qr_err *err);

/* The last thing that both do: in the process that decodes, ends the other and takes the directory away. */
void qr_pair_end(struct qr_pair *p);

#endif
