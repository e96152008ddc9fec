/* comm_mesh.c - the calls of ranks that send each other messages; comm_mesh.h says how. An array is shared out to ranks
 * as parts, and a part goes in pieces: piece k comes in and is added while piece k + 1 is in flight and piece k - 1
 * goes out. Called by the thread that carries calls out. */
#include "comm/comm_mesh.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm_piece.h"
#include "comm/comm_tree.h"

#define FAREWELL (-1)      /* as a kind of call: none will come */
#define LETTER_US 1000000  /* for letters to go out, and for those of all others to come */
#define LINGER_US 100000   /* a launcher ends the others with the first that fails: they shall have said what they read */

enum batch { SCATTER, GATHER = 2 }; /* of even and odd pieces */

/* ---- giving up ---- */

void qr_mesh_note(struct qr_mesh *m, const char *why)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(why != NULL);
    if (m->n_read++ == 0 && !m->written)
        snprintf(m->why, sizeof m->why, "%s", why);
}

int qr_mesh_given_up(struct qr_comm *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL && err != NULL);
    struct qr_mesh *m = c->impl;
    QR_ASSERT(m->ops != NULL);
    if (atomic_load(&m->giving_up) == 2)
        return qr_err_set(err, QR_E_CLOSED, "%s", m->own_text);
    m->ops->read_letters(c);
    return m->n_read > 0 || m->written ? qr_err_set(err, QR_E_CLOSED, "%s", m->why) : 0;
}

void qr_mesh_tell(struct qr_comm *c, const char *why, bool own)
{
    QR_ASSERT(c != NULL && why != NULL);
    struct qr_mesh *m = c->impl;
    uint32_t none = 0;
    QR_ASSERT(m != NULL);
    if (!own || !atomic_compare_exchange_strong(&m->giving_up, &none, 1))
        return; /* what is not this rank's own word comes from `run`, which has told it */
    snprintf(m->own_text, sizeof m->own_text, "rank %d gave up: %s", c->rank, why);
    atomic_store(&m->giving_up, 2);
}

/* To everybody, why this rank ends: it writes also when it has read, so that all know that all know. */
static void write_letters(struct qr_comm *c, const char *why)
{
    struct qr_mesh *m = c->impl;
    if (m->written)
        return;
    m->written = true;
    if (m->n_read == 0)
        snprintf(m->why, sizeof m->why, "%s", why);
    m->ops->write_letters(c, m->why, qr_clock_us() + LETTER_US);
}

/* Until everybody has written or gone, then a little longer. */
static void linger(struct qr_comm *c)
{
    struct qr_mesh *m = c->impl;
    const int64_t until = qr_clock_us() + LETTER_US;
    for (int32_t n_tries = 0; m->n_read + m->n_gone < c->size - 1 && qr_clock_us() < until; m->ops->nap(n_tries++))
        m->ops->read_letters(c);
    if (m->n_gone < c->size - 1)
        usleep(LINGER_US);
}

/* ---- one call ---- */

/* Of another program's memory: a call that there is, or a farewell. */
static bool is_call(const struct qr_comm_what *w)
{
    return w->kind >= FAREWELL && w->kind <= QR_COMM_BARRIER && w->dtype >= 0 && w->dtype < QR_DTYPE_COUNT;
}

/* Everybody tells everybody what it starts. */
static int exchange(struct qr_comm *c, struct qr_err *err)
{
    struct qr_mesh *m = c->impl;
    int rc = 0;
    m->others[c->rank] = m->what;
    for (int32_t r = 0; r < c->size && rc == 0; r++)
        if (r != c->rank) {
            rc = m->ops->get(c, SCATTER, &m->others[r], sizeof m->what, r, QR_MESH_WHAT, err);
            rc = rc ? rc : m->ops->put(c, SCATTER, &m->what, sizeof m->what, r, QR_MESH_WHAT, err);
        }
    rc = rc ? rc : m->ops->finish(c, SCATTER, err);
    for (int32_t r = 0; r < c->size && rc == 0; r++)
        if (!is_call(&m->others[r]))
            rc = qr_err_set(err, QR_E_INVALID, "rank %d started a call of kind %d and type %d, which there is not", r, m->others[r].kind, m->others[r].dtype);
    return rc;
}

static int closed(int32_t rank, const struct qr_comm_what *waiting, struct qr_err *err)
{
    char text[96];
    return qr_err_set(err, QR_E_CLOSED, "rank %d has closed; the others waited for it in %s", rank, qr_comm_describe(text, waiting));
}

static int agree(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct qr_mesh *m = c->impl;
    m->what = qr_comm_what(call, c->size);
    int rc = exchange(c, err);
    for (int32_t r = 0; r < c->size && rc == 0; r++)
        if (m->others[r].kind == FAREWELL)
            rc = closed(r, &m->what, err);
    for (int32_t r = 1; r < c->size && rc == 0; r++)
        rc = qr_comm_compare(&m->others[0], &m->others[r], r, err);
    return rc;
}

struct task {
    const struct qr_comm_call *call;
    const int64_t *part;
    int64_t most;  /* elements of a part in a piece */
    size_t width;
    bool scatters, gathers;
};

/* Sends piece k to the owners of its parts: to be added, or to its place when `root` gives it away. */
static int begin_scatter(struct qr_comm *c, const struct task *t, int64_t k, struct qr_err *err)
{
    struct qr_mesh *m = c->impl;
    const int32_t batch = SCATTER + (int32_t)(k & 1);
    struct qr_comm_piece p = {0};
    const bool sums = t->call->kind != QR_COMM_BROADCAST;
    int rc = 0;
    if (!t->scatters || !qr_comm_cut(&p, t->part, c->size, t->most, k))
        return 0;
    char *data = t->call->data;
    const size_t mine = (size_t)(p.to[c->rank + 1] - p.to[c->rank]) * t->width;
    for (int32_t r = 0; r < c->size && rc == 0; r++) {
        const size_t theirs = (size_t)(p.to[r + 1] - p.to[r]) * t->width;
        char *to = sums ? m->incoming[k & 1] + (size_t)r * m->piece_bytes : data + (size_t)p.from[c->rank] * t->width;
        if (r == c->rank)
            continue;
        if (mine && (sums || r == t->call->root))
            rc = m->ops->get(c, batch, to, mine, r, QR_MESH_SCATTER, err);
        if (rc == 0 && theirs && (sums || c->rank == t->call->root))
            rc = m->ops->put(c, batch, data + (size_t)p.from[r] * t->width, theirs, r, QR_MESH_SCATTER, err);
    }
    return rc;
}

/* Piece k of this rank's part becomes the sum. */
static void add(struct qr_comm *c, const struct task *t, int64_t k)
{
    struct qr_mesh *m = c->impl;
    struct qr_comm_piece p = {0};
    if (!t->scatters || t->call->kind == QR_COMM_BROADCAST || !qr_comm_cut(&p, t->part, c->size, t->most, k))
        return;
    void *mine = (char *)t->call->data + (size_t)p.from[c->rank] * t->width;
    const void *in[QR_COMM_RANKS_MAX];
    for (int32_t r = 0; r < c->size; r++)
        in[r] = r == c->rank ? mine : m->incoming[k & 1] + (size_t)r * m->piece_bytes;
    qr_comm_tree_sum(&mine, 1, in, c->size, t->call->dtype, p.to[c->rank + 1] - p.to[c->rank], m->scratch);
}

/* Piece k of every part from its owner to all. */
static int begin_gather(struct qr_comm *c, const struct task *t, int64_t k, struct qr_err *err)
{
    struct qr_mesh *m = c->impl;
    const int32_t batch = GATHER + (int32_t)(k & 1);
    struct qr_comm_piece p = {0};
    int rc = 0;
    if (!t->gathers || !qr_comm_cut(&p, t->part, c->size, t->most, k))
        return 0;
    char *data = t->call->data;
    const size_t mine = (size_t)(p.to[c->rank + 1] - p.to[c->rank]) * t->width;
    for (int32_t r = 0; r < c->size && rc == 0; r++) {
        const size_t theirs = (size_t)(p.to[r + 1] - p.to[r]) * t->width;
        if (r == c->rank)
            continue;
        if (theirs)
            rc = m->ops->get(c, batch, data + (size_t)p.from[r] * t->width, theirs, r, QR_MESH_GATHER, err);
        if (rc == 0 && mine)
            rc = m->ops->put(c, batch, data + (size_t)p.from[c->rank] * t->width, mine, r, QR_MESH_GATHER, err);
    }
    return rc;
}

/* Piece k comes in and is added while piece k + 1 is in flight and piece k - 1 goes out. */
static int move(struct qr_comm *c, const struct task *t, struct qr_err *err)
{
    struct qr_mesh *m = c->impl;
    int64_t n_pieces = 0;
    for (int32_t r = 0; r < c->size; r++) {
        const int64_t n = (t->part[r + 1] - t->part[r] + t->most - 1) / t->most;
        n_pieces = n > n_pieces ? n : n_pieces;
    }
    int rc = begin_scatter(c, t, 0, err);
    for (int64_t k = 0; k < n_pieces && rc == 0; k++) {
        rc = begin_scatter(c, t, k + 1, err);
        rc = rc ? rc : m->ops->finish(c, SCATTER + (int32_t)(k & 1), err);
        if (rc == 0)
            add(c, t, k);
        rc = rc ? rc : m->ops->finish(c, GATHER + (int32_t)(k & 1), err); /* of piece k - 2 */
        rc = rc ? rc : begin_gather(c, t, k, err);
    }
    rc = rc ? rc : m->ops->finish(c, GATHER, err);
    return rc ? rc : m->ops->finish(c, GATHER + 1, err);
}

/* Rows of a gather travel one by one, to everybody. */
static int move_rows(struct qr_comm *c, const struct task *t, struct qr_err *err)
{
    int rc = 0;
    if (t->call->kind != QR_COMM_GATHER)
        return move(c, t, err);
    for (int64_t i = 0; i < t->call->n_rows && rc == 0; i++) {
        struct qr_comm_call row = *t->call;
        struct task one = *t;
        row.data = (char *)t->call->data + (size_t)(i * t->call->n) * t->width;
        one.call = &row;
        rc = move(c, &one, err);
    }
    return rc;
}

int qr_mesh_run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    QR_ASSERT(c != NULL && call != NULL);
    struct qr_mesh *m = c->impl;
    QR_ASSERT(m->ops != NULL);
    int64_t shares[QR_COMM_RANKS_MAX + 1];
    struct task t = {.call = call, .part = call->part, .width = qr_dtype_bytes(call->dtype),
                     .scatters = call->kind != QR_COMM_ALL_GATHER && call->kind != QR_COMM_GATHER,
                     .gathers = call->kind != QR_COMM_REDUCE_SCATTER};
    t.most = (int64_t)(m->piece_bytes / t.width);
    for (int32_t r = 0; r <= c->size && !call->part; r++)
        shares[r] = qr_comm_share(call->n, r, c->size);
    t.part = call->part ? call->part : shares;
    int rc = agree(c, call, err);
    if (rc == 0 && call->n > 0 && c->size > 1)
        rc = move_rows(c, &t, err);
    if (rc == 0)
        return 0;
    m->well = false;
    m->ops->withdraw(c);
    if (err->code == QR_E_IO) { /* such as a message that is longer than expected: the letter that explains it comes soon */
        struct qr_err why;
        for (int32_t n_tries = 0; n_tries < 600; m->ops->nap(n_tries++))
            if (qr_mesh_given_up(c, &why)) {
                *err = why;
                break;
            }
    }
    write_letters(c, err->msg);
    return rc;
}

/* ---- the end ---- */

void qr_mesh_leave(struct qr_comm *c)
{
    QR_ASSERT(c != NULL);
    struct qr_mesh *m = c->impl;
    struct qr_err err;
    QR_ASSERT(m->ops != NULL);
    m->what = (struct qr_comm_what){.kind = FAREWELL};
    int rc = m->well ? qr_mesh_given_up(c, &err) : 0;
    rc = rc || !m->well ? rc : exchange(c, &err);
    for (int32_t r = 0; r < c->size && rc == 0 && m->well; r++)
        if (m->others[r].kind != FAREWELL)
            rc = closed(c->rank, &m->others[r], &err);
    m->well = m->well && rc == 0;
    if (rc) {
        m->ops->withdraw(c);
        write_letters(c, err.msg);
    }
    if (!m->well)
        linger(c);
}

void qr_mesh_init(struct qr_mesh *m, const struct qr_mesh_ops *ops, int32_t n_ranks)
{
    QR_ASSERT(m != NULL && ops != NULL);
    QR_ASSERT(n_ranks >= 1 && n_ranks <= QR_COMM_RANKS_MAX);
    m->ops = ops;
    m->piece_bytes = QR_MESH_PIECES_BYTES / (size_t)n_ranks / 64 * 64;
    for (int i = 0; i < 2; i++)
        m->incoming[i] = qr_alloc_aligned((size_t)n_ranks * m->piece_bytes, 64);
    m->scratch = qr_alloc_aligned(qr_comm_tree_scratch(), 64);
}

void qr_mesh_release(struct qr_mesh *m)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(m->scratch != NULL);
    qr_free_aligned(m->incoming[0]);
    qr_free_aligned(m->incoming[1]);
    qr_free_aligned(m->scratch);
}
