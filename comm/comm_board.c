/* comm_board.c - collectives of ranks that reach each other's memory. Every rank posts where its array lies, all meet,
 * each adds its share out of all arrays, all meet again. Elements are added in comm_tree.h's order. Ranks compare what
 * they started before they touch anything, so a difference is an error on every rank. A waiting rank checks every 100
 * ms whether a rank has died or given up. Called by the comm's thread, or by the caller of qr_comm_run. */
#include "comm/comm_board.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/comm_piece.h"
#include "comm/comm_tree.h"

#define LOOK_US 100000
#define PAUSES_PER_LOOK 8

void qr_board_init(struct qr_board *b, int32_t size)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(size >= 1 && size <= QR_COMM_RANKS_MAX);
    b->size = size; /* the rest is zero already */
}

void qr_board_seat_init(struct qr_board_seat *s, struct qr_board *b, int32_t rank)
{
    QR_ASSERT(s != NULL && b != NULL);
    QR_ASSERT(rank >= 0 && rank < b->size);
    *s = (struct qr_board_seat){.board = b, .rank = rank, .scratch = qr_alloc_aligned(qr_comm_tree_scratch(), 64)};
}

void qr_board_seat_release(struct qr_board_seat *s)
{
    QR_ASSERT(s != NULL);
    qr_free_aligned(s->scratch);
    s->scratch = NULL;
}

/* ---- meeting ---- */

static void ring(struct qr_board_seat *s)
{
    atomic_fetch_add(&s->board->bell, 1);
    if (s->shared)
        qr_futex_wake_shared(&s->board->bell, INT32_MAX);
    else
        qr_futex_wake(&s->board->bell, INT32_MAX);
}

static void sleep_on(struct qr_board_seat *s, uint32_t heard)
{
    if (s->shared)
        qr_futex_wait_shared(&s->board->bell, heard, LOOK_US);
    else
        qr_futex_wait(&s->board->bell, heard, LOOK_US);
}

static bool all_came(const struct qr_board *b, uint64_t meeting)
{
    for (int32_t r = 0; r < b->size; r++)
        if (atomic_load(&b->rank[r].at) < meeting)
            return false;
    return true;
}

/* The post of rank r for the call that is in flight. */
static struct qr_board_post *post(struct qr_board_seat *s, int32_t r)
{
    return &s->board->rank[r].post[s->n_calls & 1];
}

/* Whether a rank gave up; then *err says why. */
static int given_up(struct qr_board_seat *s, struct qr_err *err)
{
    struct qr_board *b = s->board;
    for (int i = 0; atomic_load(&b->word) == 1 && i < 1000; i++)
        qr_futex_wait(&b->word, 1, 1000);
    const uint32_t word = atomic_load(&b->word);
    return word == 0 ? 0 : qr_err_set(err, QR_E_CLOSED, "%s", word == 2 ? b->why : "a rank gave up and died while it said why");
}

void qr_board_abort(struct qr_board_seat *s, const char *why, bool own)
{
    QR_ASSERT(s != NULL && s->board != NULL);
    QR_ASSERT(why != NULL);
    struct qr_board *b = s->board;
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&b->word, &none, 1))
        return;
    if (own)
        snprintf(b->why, sizeof b->why, "rank %d gave up: %s", s->rank, why);
    else
        snprintf(b->why, sizeof b->why, "%s", why);
    atomic_store(&b->word, 2);
    ring(s);
}

/* A rank for which a meeting waits in vain. look: whether a rank died, too, which takes a call of the system for each.
 */
static int missing(struct qr_board_seat *s, uint64_t meeting, bool look, struct qr_err *err)
{
    struct qr_board *b = s->board;
    char text[96];
    qr_comm_describe(text, &post(s, s->rank)->what);
    for (int32_t r = 0; r < b->size; r++) {
        struct qr_board_rank *k = &b->rank[r];
        const bool left = atomic_load(&k->left), dead = !left && look && s->dead && r != s->rank && s->dead(s->user, r);
        if ((!left && !dead) || atomic_load(&k->at) >= meeting) /* in this order: what it did before counts */
            continue;
        return dead ? qr_err_set(err, QR_E_CLOSED, "rank %d (process %d) died; the others waited for it in %s", r, atomic_load(&k->pid), text)
                    : qr_err_set(err, QR_E_CLOSED, "rank %d has closed; the others waited for it in %s", r, text);
    }
    return 0;
}

/* Whether all come within the time that a sleep costs, roughly. */
static bool look_out(struct qr_board_seat *s, uint64_t meeting)
{
    const int64_t until = qr_clock_ns() + s->spin_ns;
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++)
            __builtin_ia32_pause();
        if (all_came(s->board, meeting))
            return true;
    } while (qr_clock_ns() < until);
    return false;
}

int qr_board_meet(struct qr_board_seat *s, struct qr_err *err)
{
    QR_ASSERT(s != NULL && err != NULL);
    struct qr_board *b = s->board;
    QR_ASSERT(s->rank < b->size);
    const uint64_t meeting = ++s->n_met;
    atomic_store(&b->rank[s->rank].at, meeting);
    if (all_came(b, meeting)) {
        ring(s);
        return given_up(s, err);
    }
    if (s->spin_ns > 0 && look_out(s, meeting))
        return given_up(s, err);
    for (bool quiet = false;;) {
        const uint32_t heard = atomic_load(&b->bell);
        int rc = given_up(s, err);
        if (rc || all_came(b, meeting))
            return rc;
        rc = missing(s, meeting, quiet, err);
        if (rc)
            return rc;
        sleep_on(s, heard);
        quiet = atomic_load(&b->bell) == heard;
    }
}

bool qr_board_lost(struct qr_board_seat *s, bool (*dead)(void *user, int32_t rank), struct qr_err *err)
{
    QR_ASSERT(s != NULL && s->board != NULL);
    QR_ASSERT(err != NULL);
    struct qr_board *b = s->board;
    for (int32_t r = 0; dead && r < b->size; r++)
        if (r != s->rank && !atomic_load(&b->rank[r].left) && dead(s->user, r)) {
            qr_err_set(err, QR_E_CLOSED, "rank %d (process %d) died", r, atomic_load(&b->rank[r].pid));
            return true;
        }
    return given_up(s, err) != 0;
}

void qr_board_leave(struct qr_board_seat *s)
{
    QR_ASSERT(s != NULL && s->board != NULL);
    QR_ASSERT(!atomic_load(&s->board->rank[s->rank].left));
    atomic_store(&s->board->rank[s->rank].left, true);
    ring(s);
}

/* ---- what is started ---- */

static struct qr_board_post post_of(struct qr_board_seat *s, const struct qr_comm_call *call)
{
    const size_t n_bytes = (size_t)(call->n_rows > 0 ? call->n_rows : 1) * (size_t)call->n * qr_dtype_bytes(call->dtype);
    return (struct qr_board_post){.what = qr_comm_what(call, s->board->size), .place = n_bytes ? s->place(s->user, call->data, n_bytes) : 0};
}

/* Everybody compares with rank 0, so that everybody says the same. */
static int compare(struct qr_board_seat *s, struct qr_err *err)
{
    int rc = 0;
    for (int32_t r = 1; r < s->board->size && rc == 0; r++)
        rc = qr_comm_compare(&post(s, 0)->what, &post(s, r)->what, r, err);
    return rc;
}

/* ---- the work ---- */

/* This rank's share of a call whose arrays are all reachable: data[r] is rank r's. */
static void work(struct qr_board_seat *s, const struct qr_comm_call *call, char *const *data)
{
    const int32_t size = s->board->size;
    const size_t width = qr_dtype_bytes(call->dtype);
    char *mine = data[s->rank];
    void *at[QR_COMM_RANKS_MAX];
    int64_t first = 0, end = call->n;
    switch (call->kind) {
    case QR_COMM_ALL_REDUCE:
    case QR_COMM_REDUCE_SCATTER:
        if (call->kind == QR_COMM_ALL_REDUCE)
            first = qr_comm_share(call->n, s->rank, size), end = qr_comm_share(call->n, s->rank + 1, size);
        else
            first = call->part[s->rank], end = call->part[s->rank + 1];
        for (int32_t r = 0; r < size; r++)
            at[r] = data[r] + (size_t)first * width;
        if (call->kind == QR_COMM_ALL_REDUCE)
            qr_comm_tree_sum(at, size, (const void *const *)at, size, call->dtype, end - first, s->scratch);
        else
            qr_comm_tree_sum(&at[s->rank], 1, (const void *const *)at, size, call->dtype, end - first, s->scratch);
        break;
    case QR_COMM_ALL_GATHER:
        for (int32_t r = 0; r < size; r++)
            if (r != s->rank)
                qr_copy(mine + (size_t)call->part[r] * width, data[r] + (size_t)call->part[r] * width, (size_t)(call->part[r + 1] - call->part[r]) * width);
        break;
    case QR_COMM_BROADCAST:
        if (s->rank != call->root)
            qr_copy(mine, data[call->root], (size_t)call->n * width);
        break;
    case QR_COMM_GATHER:
        for (int64_t i = 0; s->rank != call->root && i < call->n_rows; i++) {
            const size_t place = (size_t)(i * call->n + call->part[s->rank]) * width;
            qr_copy(data[call->root] + place, mine + place, (size_t)(call->part[s->rank + 1] - call->part[s->rank]) * width);
        }
        break;
    case QR_COMM_BARRIER:
        break;
    }
}

/* Each does its share in everybody's arrays, between the meeting that began the call and another. */
static int direct(struct qr_board_seat *s, const struct qr_comm_call *call, struct qr_err *err)
{
    struct qr_board_rank *me = &s->board->rank[s->rank];
    char *data[QR_COMM_RANKS_MAX];
    for (int32_t r = 0; r < s->board->size; r++)
        data[r] = r == s->rank ? call->data : s->reach(s->user, r, post(s, r)->place);
    atomic_store(&me->busy, true);
    int rc = given_up(s, err);
    if (rc == 0)
        work(s, call, data);
    atomic_store(&me->busy, false);
    return rc ? rc : qr_board_meet(s, err);
}

static bool all_reachable(struct qr_board_seat *s)
{
    for (int32_t r = 0; r < s->board->size; r++)
        if (post(s, r)->place == QR_BOARD_PRIVATE)
            return false;
    return true;
}

/* Through windows rows travel one by one, to everybody: it is the transport that works everywhere, not the one that is fast. */
static int staged(struct qr_board_seat *s, const struct qr_comm_call *call, struct qr_err *err)
{
    int rc = 0;
    if (call->kind != QR_COMM_GATHER)
        return qr_board_staged(s, call, err);
    for (int64_t i = 0; i < call->n_rows && rc == 0; i++) {
        struct qr_comm_call row = *call;
        row.kind = QR_COMM_ALL_GATHER;
        row.data = (char *)call->data + (size_t)(i * call->n) * qr_dtype_bytes(call->dtype);
        rc = i > 0 ? qr_board_meet(s, err) : 0;
        rc = rc ? rc : qr_board_staged(s, &row, err);
    }
    return rc;
}

/* Threads: no other rank touches this rank's array any more, so that it can go away. Processes touch memory that stays.
 */
static void outlast(struct qr_board_seat *s)
{
    for (int32_t r = 0; r < s->board->size && !s->shared; r++)
        while (atomic_load(&s->board->rank[r].busy))
            qr_futex_wait(&s->board->bell, atomic_load(&s->board->bell), 1000);
}

int qr_board_run(struct qr_board_seat *s, const struct qr_comm_call *call, struct qr_err *err)
{
    QR_ASSERT(s != NULL && call != NULL);
    QR_ASSERT(s->reach != NULL && s->place != NULL);
    s->n_calls++;
    *post(s, s->rank) = post_of(s, call);
    int rc = qr_board_meet(s, err);
    rc = rc ? rc : compare(s, err);
    if (rc == 0)
        rc = call->n == 0 ? 0 : all_reachable(s) ? direct(s, call, err) : staged(s, call, err);
    if (rc) {
        qr_board_abort(s, err->msg, false);
        outlast(s);
    }
    return rc;
}
