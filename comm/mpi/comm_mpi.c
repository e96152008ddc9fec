/* comm_mpi.c - ranks that mpirun started, on one machine or several. The only file that reads mpi.h; it becomes libquire_mpi.so.
 *
 * All of MPI is called by the comm's thread, so the lowest level of thread support is enough. MPI's own waiting spins;
 * here requests are tested and the thread naps between tests, the longer the longer nothing comes. A part is summed by
 * its owner: the others send theirs, it adds them along the tree; with all_reduce what is added goes out while the next
 * pieces come in.
 *
 * A rank that gives up writes to all others, which look for such a letter wherever they wait. A rank that dies is
 * noticed by mpirun, which names it and ends the rest. */
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm_piece.h"
#include "comm/comm_tree.h"
#include "comm/mpi/plugin.h"

enum tag { TAG_WHAT = 1, TAG_SCATTER, TAG_GATHER, TAG_WHY };

#define PIECES_BYTES ((size_t)4 << 20) /* of all ranks together */
#define FAREWELL (-1)                  /* as a kind of call: none will come */
#define NAP_MAX_US 400
#define YIELDS 20                      /* before the first nap */
#define LETTER_US 1000000              /* for letters to go out, and for those of all others to come */
#define LINGER_US 100000               /* mpirun ends the others with the first that fails: they shall have said what they read */

/* Messages that are waited for together. */
struct batch {
    MPI_Request request[2 * QR_COMM_RANKS_MAX];
    int n;
};

struct mpi {
    struct qr_comm_what what, others[QR_COMM_RANKS_MAX];
    struct batch scatter[2], gather[2];
    char *incoming[2];        /* owned: [n_ranks][piece_bytes] */
    size_t piece_bytes;
    void *scratch;            /* owned: for sums */
    MPI_Request letter;       /* the next one */
    char letter_text[480];
    char why[480];            /* of the first letter that was read or written */
    int32_t n_read;
    _Atomic uint32_t giving_up; /* 1: own_text is being written. 2: it is there */
    char own_text[480];
    bool well, written;
};

/* ---- waiting ---- */

static int mpi_error(struct qr_comm *c, int rc, const char *what, struct qr_err *err)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(rc, text, &n) != MPI_SUCCESS)
        n = 0;
    return qr_err_set(err, QR_E_IO, "rank %d: %s: %.*s", c->rank, what, n, text);
}

static int await_letter(struct mpi *m)
{
    return MPI_Irecv(m->letter_text, (int)sizeof m->letter_text, MPI_BYTE, MPI_ANY_SOURCE, TAG_WHY, MPI_COMM_WORLD, &m->letter);
}

static void read_letters(struct mpi *m)
{
    int there = 0;
    while (m->letter != MPI_REQUEST_NULL && MPI_Test(&m->letter, &there, MPI_STATUS_IGNORE) == MPI_SUCCESS && there) {
        if (m->n_read++ == 0 && !m->written)
            memcpy(m->why, m->letter_text, sizeof m->why);
        await_letter(m);
    }
}

/* Whether this rank or another gave up. */
static int given_up(struct qr_comm *c, struct qr_err *err)
{
    struct mpi *m = c->impl;
    if (atomic_load(&m->giving_up) == 2)
        return qr_err_set(err, QR_E_CLOSED, "%s", m->own_text);
    read_letters(m);
    return m->n_read > 0 || m->written ? qr_err_set(err, QR_E_CLOSED, "%s", m->why) : 0;
}

static void nap(int32_t *n_tries)
{
    const int32_t n = (*n_tries)++ - YIELDS;
    if (n < 0)
        sched_yield();
    else
        usleep(n < 8 ? 20 : n < 40 ? 100 : NAP_MAX_US);
}

/* Until all messages of a batch are through. A message that MPI cannot deliver may follow from a letter that is in
 * flight. */
static int finish(struct qr_comm *c, struct batch *b, struct qr_err *err)
{
    int index[2 * QR_COMM_RANKS_MAX], n_done = 0, rc = 0;
    for (int32_t n_tries = 0; b->n > 0 && n_done != MPI_UNDEFINED && rc == 0;) {
        const int code = MPI_Testsome(b->n, b->request, &n_done, index, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS)
            rc = mpi_error(c, code, "MPI_Testsome", err);
        if (n_done > 0)
            n_tries = 0;
        if (rc == 0 && n_done == 0 && (rc = given_up(c, err)) == 0)
            nap(&n_tries);
    }
    if (rc == 0)
        b->n = 0;
    return rc;
}

static int put(struct qr_comm *c, struct batch *b, const void *bytes, size_t n_bytes, int32_t to, enum tag tag, struct qr_err *err)
{
    const int code = MPI_Isend(bytes, (int)n_bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &b->request[b->n]);
    if (code != MPI_SUCCESS)
        return mpi_error(c, code, "MPI_Isend", err);
    b->n++;
    return 0;
}

static int get(struct qr_comm *c, struct batch *b, void *bytes, size_t n_bytes, int32_t from, enum tag tag, struct qr_err *err)
{
    const int code = MPI_Irecv(bytes, (int)n_bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &b->request[b->n]);
    if (code != MPI_SUCCESS)
        return mpi_error(c, code, "MPI_Irecv", err);
    b->n++;
    return 0;
}

/* A receive that was posted and did not arrive must not be written later. */
static void withdraw(struct batch *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->request[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&b->request[i]);
    for (int32_t n_tries = 0, there = 0; n_tries < 200 && b->n > 0 && !there;) {
        if (MPI_Testall(b->n, b->request, &there, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            break;
        nap(&n_tries);
    }
    b->n = 0;
}

/* ---- one call ---- */

/* Everybody tells everybody what it starts. */
static int exchange(struct qr_comm *c, struct qr_err *err)
{
    struct mpi *m = c->impl;
    struct batch *b = &m->scatter[0];
    int rc = 0;
    m->others[c->rank] = m->what;
    for (int32_t r = 0; r < c->size && rc == 0; r++)
        if (r != c->rank) {
            rc = get(c, b, &m->others[r], sizeof m->what, r, TAG_WHAT, err);
            rc = rc ? rc : put(c, b, &m->what, sizeof m->what, r, TAG_WHAT, err);
        }
    return rc ? rc : finish(c, b, err);
}

static int closed(int32_t rank, const struct qr_comm_what *waiting, struct qr_err *err)
{
    char text[96];
    return qr_err_set(err, QR_E_CLOSED, "rank %d has closed; the others waited for it in %s", rank, qr_comm_describe(text, waiting));
}

static int agree(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct mpi *m = c->impl;
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
    struct mpi *m = c->impl;
    struct batch *b = &m->scatter[k & 1];
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
            rc = get(c, b, to, mine, r, TAG_SCATTER, err);
        if (rc == 0 && theirs && (sums || c->rank == t->call->root))
            rc = put(c, b, data + (size_t)p.from[r] * t->width, theirs, r, TAG_SCATTER, err);
    }
    return rc;
}

/* Piece k of this rank's part becomes the sum. */
static void add(struct qr_comm *c, const struct task *t, int64_t k)
{
    struct mpi *m = c->impl;
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
    struct mpi *m = c->impl;
    struct batch *b = &m->gather[k & 1];
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
            rc = get(c, b, data + (size_t)p.from[r] * t->width, theirs, r, TAG_GATHER, err);
        if (rc == 0 && mine)
            rc = put(c, b, data + (size_t)p.from[c->rank] * t->width, mine, r, TAG_GATHER, err);
    }
    return rc;
}

/* Piece k comes in and is added while piece k + 1 is in flight and piece k - 1 goes out. */
static int move(struct qr_comm *c, const struct task *t, struct qr_err *err)
{
    struct mpi *m = c->impl;
    int64_t n_pieces = 0;
    for (int32_t r = 0; r < c->size; r++) {
        const int64_t n = (t->part[r + 1] - t->part[r] + t->most - 1) / t->most;
        n_pieces = n > n_pieces ? n : n_pieces;
    }
    int rc = begin_scatter(c, t, 0, err);
    for (int64_t k = 0; k < n_pieces && rc == 0; k++) {
        rc = begin_scatter(c, t, k + 1, err);
        rc = rc ? rc : finish(c, &m->scatter[k & 1], err);
        if (rc == 0)
            add(c, t, k);
        rc = rc ? rc : finish(c, &m->gather[k & 1], err); /* of piece k - 2 */
        rc = rc ? rc : begin_gather(c, t, k, err);
    }
    rc = rc ? rc : finish(c, &m->gather[0], err);
    return rc ? rc : finish(c, &m->gather[1], err);
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

/* To everybody, why this rank ends: it writes also when it has read, so that all know that all know. */
static void write_letters(struct qr_comm *c, const char *why)
{
    struct mpi *m = c->impl;
    struct batch *b = &m->scatter[0];
    struct qr_err err;
    int there = 0;
    if (m->written)
        return;
    m->written = true;
    if (m->n_read == 0)
        snprintf(m->why, sizeof m->why, "%s", why);
    for (int32_t r = 0; r < c->size; r++)
        if (r != c->rank)
            put(c, b, m->why, sizeof m->why, r, TAG_WHY, &err);
    const int64_t until = qr_clock_us() + LETTER_US;
    for (int32_t n_tries = 0; !there && qr_clock_us() < until; nap(&n_tries))
        if (MPI_Testall(b->n, b->request, &there, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            break;
}

/* Until everybody has written, then a little longer. */
static void linger(struct qr_comm *c)
{
    struct mpi *m = c->impl;
    const int64_t until = qr_clock_us() + LETTER_US;
    for (int32_t n_tries = 0; m->n_read < c->size - 1 && qr_clock_us() < until; nap(&n_tries))
        read_letters(m);
    usleep(LINGER_US);
}

static int run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct mpi *m = c->impl;
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
    for (int i = 0; i < 2; i++) {
        withdraw(&m->scatter[i]);
        withdraw(&m->gather[i]);
    }
    if (err->code == QR_E_IO) { /* such as a message that is longer than expected: the letter that explains it comes soon */
        struct qr_err why;
        for (int32_t n_tries = 0; n_tries < 600; nap(&n_tries))
            if (given_up(c, &why)) {
                *err = why;
                break;
            }
    }
    write_letters(c, err->msg);
    return rc;
}

/* ---- the transport ---- */

static void tell(struct qr_comm *c, const char *why, bool own)
{
    struct mpi *m = c->impl;
    uint32_t none = 0;
    if (!own || !atomic_compare_exchange_strong(&m->giving_up, &none, 1))
        return; /* what is not this rank's own word comes from `run`, which has told it */
    snprintf(m->own_text, sizeof m->own_text, "rank %d gave up: %s", c->rank, why);
    atomic_store(&m->giving_up, 2);
}

static int begin(struct qr_comm *c, struct qr_err *err)
{
    struct mpi *m = c->impl;
    int rank = -1, size = -1, level;
    c->window_bytes = 2 * PIECES_BYTES;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return qr_err_set(err, QR_E_IO, "rank %d: MPI does not start", c->rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != c->rank || size != c->size)
        return qr_err_set(err, QR_E_USAGE, "mpirun's variables say rank %d of %d, MPI says rank %d of %d: was libquire_mpi.so built for another MPI?", c->rank,
                          c->size, rank, size);
    const int code = await_letter(m);
    if (code != MPI_SUCCESS)
        return mpi_error(c, code, "MPI_Irecv", err);
    m->well = true;
    return 0;
}

/* MPI is left in good order only when all ranks leave: it waits for everybody there, and spins. */
static void end(struct qr_comm *c)
{
    struct mpi *m = c->impl;
    struct qr_err err;
    m->what = (struct qr_comm_what){.kind = FAREWELL};
    int rc = m->well ? given_up(c, &err) : 0;
    rc = rc || !m->well ? rc : exchange(c, &err);
    for (int32_t r = 0; r < c->size && rc == 0 && m->well; r++)
        if (m->others[r].kind != FAREWELL)
            rc = closed(c->rank, &m->others[r], &err);
    m->well = m->well && rc == 0;
    if (rc) {
        withdraw(&m->scatter[0]); /* letters have its room */
        write_letters(c, err.msg);
    }
    if (m->well) {
        MPI_Cancel(&m->letter);
        MPI_Wait(&m->letter, MPI_STATUS_IGNORE);
        MPI_Finalize();
    } else {
        linger(c);
    }
}

static void release(struct qr_comm *c)
{
    struct mpi *m = c->impl;
    if (!m->well)
        return; /* MPI may still hold addresses of it */
    qr_free_aligned(m->incoming[0]);
    qr_free_aligned(m->incoming[1]);
    qr_free_aligned(m->scratch);
    qr_free(m);
}

static void *make(int32_t n_ranks)
{
    QR_ASSERT(n_ranks >= 1);
    QR_ASSERT(n_ranks <= QR_COMM_RANKS_MAX);
    struct mpi *m = qr_alloc(1, sizeof *m);
    m->piece_bytes = PIECES_BYTES / (size_t)n_ranks / 64 * 64;
    for (int i = 0; i < 2; i++)
        m->incoming[i] = qr_alloc_aligned((size_t)n_ranks * m->piece_bytes, 64);
    m->scratch = qr_alloc_aligned(qr_comm_tree_scratch(), 64);
    m->letter = MPI_REQUEST_NULL;
    return m;
}

static const struct qr_comm_ops ops = {.name = "mpi", .begin = begin, .run = run, .abort = tell, .end = end, .alloc = qr_comm_plain_alloc,
                                       .free = qr_comm_plain_free, .close = release};

extern const struct qr_comm_mpi_plugin qr_comm_mpi_plugin;
__attribute__((visibility("default"))) const struct qr_comm_mpi_plugin qr_comm_mpi_plugin = {
    .abi = QR_COMM_MPI_ABI, .layout = QR_COMM_MPI_LAYOUT, .version = QUIRE_VERSION, .ops = &ops, .make = make};
