/* account.h - the memory that one request holds, and the budget of all requests.
 *
 * A thread that works for a request does so in the request's account. What qr_alloc and qr_realloc give it is charged there, at the size that malloc made of
 * it, and taken off when qr_free gets it back in the same account. An account takes what it holds from the budget, all but the first QR_ACCOUNT_FREE_BYTES.
 *
 * Where the budget or the system has no more, the account has failed, and so does each further allocation in it. What that means to the code that asked:
 *   in qr_account_run              the function does not return: it ends there, and all that it allocated is freed
 *   between enter and leave        the result is NULL; buffers (buf.h) leave out what they have no room for
 *   in no account                  the process ends with status 5 (mem.h)
 * The code that entered, or ran, reads `failure` and answers the request.
 *
 * An account is used by one thread at a time, a budget by any.
 */
#ifndef QR_BASE_ACCOUNT_H
#define QR_BASE_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QR_ACCOUNT_FREE_BYTES (16 << 10) /* a request's fixed allowance: not charged, so that an error can always be written */

struct qr_budget {
    _Atomic int64_t used_bytes;
    int64_t max_bytes;
};

enum qr_account_failure {
    QR_ACCOUNT_OK,
    QR_ACCOUNT_FULL,      /* the budget has no room beside what others hold */
    QR_ACCOUNT_TOO_LARGE, /* this account alone would need more than the budget */
    QR_ACCOUNT_NO_MEMORY, /* the system gives no more */
};

struct qr_account_scope; /* of qr_account_run */

struct qr_account {
    struct qr_budget *budget;        /* borrowed; NULL: nothing is bounded, but running out of memory is a failure, too */
    int64_t held_bytes;              /* in use */
    int64_t kept_bytes;              /* taken from the budget beforehand: what is held later is a part of it */
    int64_t granted_bytes;           /* taken from the budget */
    enum qr_account_failure failure; /* the first one */
    struct qr_account_scope *scope;  /* borrowed: while qr_account_run runs */
};

void qr_account_init(struct qr_account *a, struct qr_budget *budget);

/* Gives back to the budget what the account took, whichever thread frees the blocks. */
void qr_account_close(struct qr_account *a);

/* The calling thread works in `a` until it leaves. Returns the account it was in, for qr_account_leave; NULL: none. */
struct qr_account *qr_account_enter(struct qr_account *a);
void qr_account_leave(struct qr_account *before);

/* Calls fn(arg) in `a`. False: the account failed; then nothing is left of what fn allocated, and pointers to that which it stored are not valid. fn holds no
 * lock while it allocates, and guards what has to be undone, as it may end there. */
bool qr_account_run(struct qr_account *a, void (*fn)(void *arg), void *arg);

/* For code that may be in a run or not, and is not made for memory that is missing: between enter and leave the same as qr_account_run in the thread's account,
 * otherwise fn(arg) as it is. False: the account failed. */
bool qr_account_try(void (*fn)(void *arg), void *arg);

/* For what is no memory (a file, a mapping, a state): where the run ends early fn(arg, n) is called, the last one first, unless unguarded before. In no run
 * nothing happens. */
void qr_account_guard(void (*fn)(void *arg, size_t n), void *arg, size_t n);
void qr_account_unguard(const void *arg);

/* In a run, between on and off: blocks are charged as ever, but it is a guard that frees them where the run ends early. For many that belong to one thing. */
void qr_account_loose(bool on);

/* Takes n_bytes from the budget ahead of their use, in place of what was taken so before; false: it has no room, and nothing has changed. most_bytes: how far
 * the budget may be filled by that, at most its max_bytes. */
bool qr_account_keep(struct qr_account *a, int64_t n_bytes, int64_t most_bytes);

/* A block of the thread's account becomes to's, which cannot fail; NULL is fine. */
void qr_account_give(struct qr_account *to, const void *block);

/* For mem.c. In an account: take, a block of malloc's is the account's, false where it fails; drop, before such a block is freed; swap, one became another;
 * charge, n_bytes of no such block; missing, what an allocation that failed ends with (does it return, the result is NULL; false: the thread is in none). */
bool qr_account_take(void *block);
void qr_account_drop(void *block);
bool qr_account_charge(int64_t n_bytes);
void qr_account_swap(uintptr_t before, void *after);
bool qr_account_missing(bool by_system);
int64_t qr_account_size(const void *block); /* 0: the thread is in no account, or the block is NULL */
bool qr_account_is_open(void);              /* the thread is in one */

#endif
