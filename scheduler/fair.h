/* fair.h - whose turn it is: virtual token counters of keys, and inside a key of its users (Sheng et al. 2023, arXiv:2401.00588).
 *
 * A counter is the service that a client got, divided by its weight: QR_FAIR_IN for each prompt token that was not found in a cache, counted when the
 * sequence is admitted for the first time, and QR_FAIR_OUT for each token drawn. Of the keys with a sequence that waits the one with the smallest counter is
 * next, and inside it the user with the smallest one. A client that begins to wait is lifted to the smallest counter of those that wait already; where none
 * does, to the counter of the one that waited last. So idling gains nothing, and what is served while others idle counts against no client.
 *
 * Bound. A client is admitted only while its counter is the smallest, and gains afterwards what that admission and its running sequences give. So no
 * counter is above the smallest of those that wait by more than U = max(QR_FAIR_IN L, QR_FAIR_OUT M): L tokens in the longest prompt, M in a full batch, which
 * is running_max times the longest prompt with its answer. The services of two clients that wait all the time, divided by weight, differ by 2 U at most.
 * Nothing is preempted for fairness: M covers a client that holds every place.
 *
 * Nodes are a tree of root, keys and users in one table that never grows. The client that was idle longest makes room for a new one; a client that is not in
 * the table begins with the highest counter that was forgotten beside it, so being forgotten is no gain. Nor is a name that was never heard of: it begins where
 * the client that stopped waiting last is by now, though not above all that wait, so those that come back are not passed for ever. The scheduler's thread.
 */
#ifndef QR_SCHEDULER_FAIR_H
#define QR_SCHEDULER_FAIR_H

#include <stdbool.h>
#include <stdint.h>

enum { QR_FAIR_IN = 1, QR_FAIR_OUT = 2 };
#define QR_FAIR_IDLE_MAX 128 /* clients that a scheduler remembers beside those that are inside */

/* Who asks. All zero: the one client that there is without keys. */
struct qr_client {
    uint64_t key, user;
    int32_t weight; /* the key's; 0 is 1 */
};

struct qr_fair_node {
    uint64_t id;
    double counter, forgotten;    /* forgotten: the highest counter of a child that is not here any more */
    uint64_t since, used;         /* turns: when it began to wait, which decides between equals; when something of it came or ended */
    int32_t parent, n_children;
    int32_t n_inside, n_waiting;  /* sequences */
    int32_t last;                 /* the child that stopped waiting last, -1: none */
    int32_t weight;
    bool passed;                  /* in this plan: nothing of it can start */
};

struct qr_fair {
    struct qr_fair_node *node; /* owned [n_max]; the root first */
    int32_t n, n_max;
    uint64_t turn;
    bool any_passed;
};

/* For n_inside_max sequences at once, and n_idle_max clients besides that are remembered. */
void qr_fair_init(struct qr_fair *f, int32_t n_inside_max, int32_t n_idle_max);
void qr_fair_release(struct qr_fair *f);
void qr_fair_copy(struct qr_fair *to, const struct qr_fair *from); /* for as many */

/* A sequence comes: the node of its user, which stays while one of its sequences is inside. */
int32_t qr_fair_join(struct qr_fair *f, const struct qr_client *client);
void qr_fair_leave(struct qr_fair *f, int32_t user);

/* One of its sequences begins to wait, or waits no more. */
void qr_fair_wait(struct qr_fair *f, int32_t user);
void qr_fair_unwait(struct qr_fair *f, int32_t user);

/* The user whose turn it is, -1: none is left. A plan begins with begin; a user without a sequence that can start is passed. Such a one could not be served
 * more, so it is lifted when another takes the turn. */
void qr_fair_begin(struct qr_fair *f);
int32_t qr_fair_next(struct qr_fair *f);
void qr_fair_pass(struct qr_fair *f, int32_t user);
void qr_fair_take(struct qr_fair *f, int32_t user); /* it takes the turn */

void qr_fair_charge(struct qr_fair *f, int32_t user, double service);

/* NULL, or what is broken: sums over the tree, and the bound with U = most. */
const char *qr_fair_check(const struct qr_fair *f, double most);

#endif
