/* comm_mpi.c - ranks that mpirun or srun started, on one machine or several: what carries a mesh's messages
 * (comm_mesh.h). The only file that reads mpi.h; it becomes libquire_mpi.so.
 *
 * All of MPI is called by the comm's thread, so the lowest level of thread support is enough. MPI's own waiting spins;
 * here requests are tested and the thread naps between tests, the longer the longer nothing comes. A rank that dies is
 * noticed by the launcher, which names it and ends the rest. */
#include <mpi.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm_mesh.h"
#include "comm/mpi/plugin.h"

#define NAP_MAX_US 400
#define YIELDS 20 /* before the first nap */

/* Messages that are waited for together. */
struct batch {
    MPI_Request request[2 * QR_COMM_RANKS_MAX];
    int n;
};

struct mpi {
    struct qr_mesh mesh; /* first */
    struct batch batch[QR_MESH_BATCHES];
    MPI_Request letter;  /* the next one */
    char letter_text[QR_MESH_LETTER_BYTES];
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
    return MPI_Irecv(m->letter_text, (int)sizeof m->letter_text, MPI_BYTE, MPI_ANY_SOURCE, QR_MESH_WHY, MPI_COMM_WORLD, &m->letter);
}

static void read_letters(struct qr_comm *c)
{
    struct mpi *m = c->impl;
    int there = 0;
    while (m->letter != MPI_REQUEST_NULL && MPI_Test(&m->letter, &there, MPI_STATUS_IGNORE) == MPI_SUCCESS && there) {
        qr_mesh_note(&m->mesh, m->letter_text);
        await_letter(m);
    }
}

static void nap(int32_t n_tries)
{
    const int32_t n = n_tries - YIELDS;
    if (n < 0)
        sched_yield();
    else
        usleep(n < 8 ? 20 : n < 40 ? 100 : NAP_MAX_US);
}

/* Until all messages of a batch are through. A message that MPI cannot deliver may follow from a letter that is in
 * flight. */
static int finish(struct qr_comm *c, int32_t batch, struct qr_err *err)
{
    struct batch *b = &((struct mpi *)c->impl)->batch[batch];
    int index[2 * QR_COMM_RANKS_MAX], n_done = 0, rc = 0;
    for (int32_t n_tries = 0; b->n > 0 && n_done != MPI_UNDEFINED && rc == 0;) {
        const int code = MPI_Testsome(b->n, b->request, &n_done, index, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS)
            rc = mpi_error(c, code, "MPI_Testsome", err);
        if (n_done > 0)
            n_tries = 0;
        if (rc == 0 && n_done == 0 && (rc = qr_mesh_given_up(c, err)) == 0)
            nap(n_tries++);
    }
    if (rc == 0)
        b->n = 0;
    return rc;
}

static int put(struct qr_comm *c, int32_t batch, const void *bytes, size_t n_bytes, int32_t to, enum qr_mesh_tag tag, struct qr_err *err)
{
    struct batch *b = &((struct mpi *)c->impl)->batch[batch];
    const int code = MPI_Isend(bytes, (int)n_bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &b->request[b->n]);
    if (code != MPI_SUCCESS)
        return mpi_error(c, code, "MPI_Isend", err);
    b->n++;
    return 0;
}

static int get(struct qr_comm *c, int32_t batch, void *bytes, size_t n_bytes, int32_t from, enum qr_mesh_tag tag, struct qr_err *err)
{
    struct batch *b = &((struct mpi *)c->impl)->batch[batch];
    const int code = MPI_Irecv(bytes, (int)n_bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &b->request[b->n]);
    if (code != MPI_SUCCESS)
        return mpi_error(c, code, "MPI_Irecv", err);
    b->n++;
    return 0;
}

/* A receive that was posted and did not arrive must not be written later. */
static void withdraw(struct qr_comm *c)
{
    for (int32_t batch = 0; batch < QR_MESH_BATCHES; batch++) {
        struct batch *b = &((struct mpi *)c->impl)->batch[batch];
        for (int i = 0; i < b->n; i++)
            if (b->request[i] != MPI_REQUEST_NULL)
                MPI_Cancel(&b->request[i]);
        for (int32_t n_tries = 0, there = 0; n_tries < 200 && b->n > 0 && !there;) {
            if (MPI_Testall(b->n, b->request, &there, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
                break;
            nap(n_tries++);
        }
        b->n = 0;
    }
}

/* Letters have the room of the first batch, which was withdrawn. */
static void write_letters(struct qr_comm *c, const char letter[QR_MESH_LETTER_BYTES], int64_t until_us)
{
    struct batch *b = &((struct mpi *)c->impl)->batch[0];
    struct qr_err err;
    int there = 0;
    for (int32_t r = 0; r < c->size; r++)
        if (r != c->rank)
            put(c, 0, letter, QR_MESH_LETTER_BYTES, r, QR_MESH_WHY, &err);
    for (int32_t n_tries = 0; !there && qr_clock_us() < until_us; nap(n_tries++))
        if (MPI_Testall(b->n, b->request, &there, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            break;
}

/* ---- the transport ---- */

static int begin(struct qr_comm *c, struct qr_err *err)
{
    struct mpi *m = c->impl;
    int rank = -1, size = -1, level;
    c->window_bytes = 2 * QR_MESH_PIECES_BYTES;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return qr_err_set(err, QR_E_IO, "rank %d: MPI does not start", c->rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != c->rank || size != c->size)
        return qr_err_set(err, QR_E_USAGE, "the launcher's variables say rank %d of %d, MPI says rank %d of %d: was libquire_mpi.so built for another MPI? "
                          "--ranks-at HOST does without MPI", c->rank, c->size, rank, size);
    const int code = await_letter(m);
    if (code != MPI_SUCCESS)
        return mpi_error(c, code, "MPI_Irecv", err);
    m->mesh.well = true;
    return 0;
}

/* MPI is left in good order only when all ranks leave: it waits for everybody there, and spins. */
static void end(struct qr_comm *c)
{
    struct mpi *m = c->impl;
    qr_mesh_leave(c);
    if (m->mesh.well) {
        MPI_Cancel(&m->letter);
        MPI_Wait(&m->letter, MPI_STATUS_IGNORE);
        MPI_Finalize();
    }
}

static void release(struct qr_comm *c)
{
    struct mpi *m = c->impl;
    if (!m->mesh.well)
        return; /* MPI may still hold addresses of it */
    qr_mesh_release(&m->mesh);
    qr_free(m);
}

static void *make(int32_t n_ranks)
{
    static const struct qr_mesh_ops carry = {.put = put, .get = get, .finish = finish, .withdraw = withdraw, .read_letters = read_letters,
                                             .write_letters = write_letters, .nap = nap};
    QR_ASSERT(n_ranks >= 1);
    QR_ASSERT(n_ranks <= QR_COMM_RANKS_MAX);
    struct mpi *m = qr_alloc(1, sizeof *m);
    qr_mesh_init(&m->mesh, &carry, n_ranks);
    m->letter = MPI_REQUEST_NULL;
    return m;
}

static const struct qr_comm_ops ops = {.name = "mpi", .begin = begin, .run = qr_mesh_run, .abort = qr_mesh_tell, .end = end, .alloc = qr_comm_plain_alloc,
                                       .free = qr_comm_plain_free, .close = release};

extern const struct qr_comm_mpi_plugin qr_comm_mpi_plugin;
__attribute__((visibility("default"))) const struct qr_comm_mpi_plugin qr_comm_mpi_plugin = {
    .abi = QR_COMM_MPI_ABI, .layout = QR_COMM_MPI_LAYOUT, .version = QUIRE_VERSION, .ops = &ops, .make = make};
