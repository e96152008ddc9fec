/* mailbox.h - ownership moves between two threads. Many may push, one takes. Under the lock: link and unlink, nothing else.
 * A full or closed box refuses at once; the pusher keeps what it wanted to send and answers for it.
 */
#ifndef QR_BASE_MAILBOX_H
#define QR_BASE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct qr_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct qr_node items;
    int32_t n, n_max;
    bool closed, poked;
    void (*wake)(void *arg); /* called after a push into an empty box, outside the lock; may be NULL */
    void *wake_arg;          /* borrowed */
};

void qr_mailbox_init(struct qr_mailbox *m, int32_t n_max, void (*wake)(void *), void *wake_arg);
void qr_mailbox_release(struct qr_mailbox *m); /* the box must be empty */

/* True: the box owns the message now. False: full or closed, and the caller still owns it. */
bool qr_mailbox_push(struct qr_mailbox *m, struct qr_node *node);

/* Like push, but takes no notice of n_max: for messages whose number is bounded elsewhere (cancel, terminal events). */
bool qr_mailbox_push_urgent(struct qr_mailbox *m, struct qr_node *node);

/* Gives away all n messages of `list`, which is empty afterwards, under one lock and without a wake: where *ring becomes true,
 * qr_mailbox_ring has to follow soon, from any thread. Until then pushes by others do not wake either. Takes no notice of n_max, like
 * push_urgent. False: the box is closed, and the caller still owns them. */
bool qr_mailbox_push_list(struct qr_mailbox *m, struct qr_node *list, int32_t n, bool *ring);
void qr_mailbox_ring(struct qr_mailbox *m);

/* Moves all messages to the end of `out` in the order they came; returns their number. Never waits. */
int32_t qr_mailbox_take(struct qr_mailbox *m, struct qr_node *out);

/* Waits up to timeout_us (negative: for ever) until there is a message, a poke, or the box is closed, then takes like above. */
int32_t qr_mailbox_wait(struct qr_mailbox *m, struct qr_node *out, int64_t timeout_us);

/* The thread that waits, or waits next, returns at once: there is something to check that is no message. */
void qr_mailbox_poke(struct qr_mailbox *m);

/* From now on pushes are refused and waiters return. */
void qr_mailbox_close(struct qr_mailbox *m);

#endif
