/* comm_shm.c - ranks as processes of one machine, over one mapping that a parent made before it forked: the board, a window for each rank, and an area for each
 * rank from which qr_comm_alloc takes memory that all reach. The mapping has no name, so nothing is left of it however the ranks end. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "comm/comm_board.h"

#define WINDOW_BYTES ((size_t)4 << 20)
#define SPIN_NS 50000 /* a futex that another process sleeps on costs about so much until it runs again */
#define AREAS_BYTES ((size_t)1 << 45) /* of all ranks, where the machine's memory is not less: addresses cost nothing */
#define BLOCKS_MAX 256
#define ALIGN ((size_t)2 << 20)       /* of areas: huge pages */

struct qr_comm_shared {
    struct qr_board *board; /* the mapping begins with it */
    size_t n_bytes, area_bytes;
    size_t windows, areas;  /* where they begin */
};

/* Memory taken from the area, in its order. Freed blocks give their pages back at once and their addresses when none behind them is in use. */
struct block {
    size_t at, n_bytes;
    bool used;
};

struct process {
    struct qr_board_seat seat;
    struct qr_comm_shared *shared; /* owned */
    struct block block[BLOCKS_MAX];
    int32_t n_blocks;
    _Atomic size_t top;            /* of the area: written by the owner, read by the comm's thread */
    int pidfd[QR_COMM_RANKS_MAX];  /* -1: not opened yet */
    int owner_pidfd[QR_COMM_RANKS_MAX]; /* the same, for the owner, which asks while the comm's thread may */
    bool roomy;                    /* a processor for each rank: spinning takes no other rank's time */
};

/* ---- the mapping ---- */

int qr_comm_shared_new(struct qr_comm_shared **out, int32_t n_ranks, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    if (n_ranks < 1 || n_ranks > QR_COMM_RANKS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%d ranks, expected 1 to %d", n_ranks, QR_COMM_RANKS_MAX);
    const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), most = AREAS_BYTES / (size_t)n_ranks;
    struct qr_comm_shared s = {.area_bytes = qr_align_up(memory < most ? memory : most, ALIGN)};
    s.windows = qr_align_up(sizeof *s.board, ALIGN);
    s.areas = s.windows + qr_align_up((size_t)n_ranks * WINDOW_BYTES, ALIGN);
    s.n_bytes = s.areas + (size_t)n_ranks * s.area_bytes;
    char text[128];
    const int fd = memfd_create("quire-ranks", MFD_CLOEXEC);
    void *p = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)s.n_bytes) == 0)
        p = mmap(NULL, s.n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    const int cause = errno;
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED)
        return qr_err_set(err, QR_E_NO_ROOM, "no memory that %d ranks could share (%zu bytes of addresses): %s", n_ranks, s.n_bytes,
                          qr_errno_text(text, cause));
    s.board = p;
    qr_board_init(s.board, n_ranks);
    *out = qr_alloc(1, sizeof **out);
    **out = s;
    return 0;
}

void qr_comm_shared_free(struct qr_comm_shared *s)
{
    if (s) {
        munmap(s->board, s->n_bytes);
        qr_free(s);
    }
}

void qr_comm_shared_set_pid(struct qr_comm_shared *s, int32_t rank, int32_t pid)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(rank >= 0 && rank < s->board->size);
    atomic_store(&s->board->rank[rank].pid, pid);
}

/* ---- what the board asks ---- */

static size_t area_of(const struct qr_comm_shared *s, int32_t rank)
{
    return s->areas + (size_t)rank * s->area_bytes;
}

static void *reach(void *user, int32_t rank, uint64_t place)
{
    const struct process *p = user;
    return (char *)p->shared->board + place;
}

static uint64_t place(void *user, const void *data, size_t n_bytes)
{
    struct process *p = user;
    const char *area = (const char *)p->shared->board + area_of(p->shared, p->seat.rank), *at = data;
    if (at < area || at + n_bytes > area + atomic_load(&p->top))
        return QR_BOARD_PRIVATE;
    return (uint64_t)(at - (const char *)p->shared->board);
}

static uint64_t window(void *user, int32_t rank)
{
    const struct process *p = user;
    return p->shared->windows + (size_t)rank * WINDOW_BYTES;
}

/* A pidfd, unlike a signal of 0, tells the living from those whose parent has not asked yet. */
static bool is_dead(struct process *p, int *pidfd, int32_t rank)
{
    const int32_t pid = atomic_load(&p->shared->board->rank[rank].pid);
    if (pid == 0) /* about to be started */
        return false;
    if (*pidfd < 0)
        *pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (*pidfd < 0)
        return errno == ESRCH || (kill(pid, 0) != 0 && errno == ESRCH);
    struct pollfd f = {.fd = *pidfd, .events = POLLIN};
    return poll(&f, 1, 0) > 0;
}

static bool dead(void *user, int32_t rank)
{
    struct process *p = user;
    return is_dead(p, &p->pidfd[rank], rank);
}

static bool dead_to_owner(void *user, int32_t rank)
{
    struct process *p = user;
    return is_dead(p, &p->owner_pidfd[rank], rank);
}

/* ---- the transport ---- */

static int run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err)
{
    struct process *p = c->impl;
    p->seat.spin_ns = c->hurried && p->roomy ? SPIN_NS : 0;
    return qr_board_run(&p->seat, call, err);
}

static void tell(struct qr_comm *c, const char *why, bool own)
{
    struct process *p = c->impl;
    qr_board_abort(&p->seat, why, own);
}

static bool lost(struct qr_comm *c, struct qr_err *err)
{
    struct process *p = c->impl;
    return qr_board_lost(&p->seat, dead_to_owner, err);
}

static void *alloc(struct qr_comm *c, size_t n_bytes)
{
    struct process *p = c->impl;
    const size_t top = atomic_load(&p->top), whole = qr_align_up(n_bytes ? n_bytes : 1, n_bytes >= ALIGN ? ALIGN : (size_t)sysconf(_SC_PAGESIZE));
    const size_t at = qr_align_up(top, n_bytes >= ALIGN ? ALIGN : 1);
    if (n_bytes > p->shared->area_bytes || at + whole > p->shared->area_bytes || p->n_blocks == BLOCKS_MAX)
        return NULL;
    p->block[p->n_blocks++] = (struct block){.at = at, .n_bytes = whole, .used = true};
    atomic_store(&p->top, at + whole);
    char *memory = (char *)p->shared->board + area_of(p->shared, c->rank) + at;
    if (n_bytes >= ALIGN)
        madvise(memory, whole, MADV_HUGEPAGE); /* where the system allows it for shared memory */
    return memory;
}

static void release(struct qr_comm *c, void *memory)
{
    struct process *p = c->impl;
    const size_t at = (size_t)((char *)memory - (char *)p->shared->board) - area_of(p->shared, c->rank);
    int32_t i = 0;
    while (i < p->n_blocks && p->block[i].at != at)
        i++;
    QR_ASSERT(i < p->n_blocks && p->block[i].used);
    p->block[i].used = false;
    int rc = madvise(memory, p->block[i].n_bytes, MADV_REMOVE); /* reads as zeros afterwards */
    QR_ASSERT(rc == 0);
    for (; p->n_blocks > 0 && !p->block[p->n_blocks - 1].used; p->n_blocks--)
        atomic_store(&p->top, p->block[p->n_blocks - 1].at);
}

static void leave(struct qr_comm *c)
{
    struct process *p = c->impl;
    qr_board_leave(&p->seat);
    for (int32_t r = 0; r < c->size; r++) {
        if (p->pidfd[r] >= 0)
            close(p->pidfd[r]);
        if (p->owner_pidfd[r] >= 0)
            close(p->owner_pidfd[r]);
    }
    qr_board_seat_release(&p->seat);
    qr_comm_shared_free(p->shared);
    qr_free(p);
}

void qr_comm_open_shm(struct qr_comm *c, struct qr_comm_shared *s, int32_t rank)
{
    static const struct qr_comm_ops ops = {.name = "shm", .anywhere = true, .run = run, .abort = tell, .lost = lost, .alloc = alloc,
                                           .free = release, .close = leave};
    QR_ASSERT(c != NULL && s != NULL);
    QR_ASSERT(rank >= 0 && rank < s->board->size);
    struct process *p = qr_alloc(1, sizeof *p);
    p->shared = s;
    qr_board_seat_init(&p->seat, s->board, rank);
    p->seat.shared = true;
    p->seat.user = p;
    p->seat.reach = reach;
    p->seat.place = place;
    p->seat.window = window;
    p->seat.window_bytes = WINDOW_BYTES;
    p->seat.dead = dead;
    for (int32_t r = 0; r < s->board->size; r++)
        p->pidfd[r] = p->owner_pidfd[r] = -1;
    p->roomy = sysconf(_SC_NPROCESSORS_ONLN) >= s->board->size;
    qr_comm_shared_set_pid(s, rank, (int32_t)getpid());
    *c = (struct qr_comm){.rank = rank, .size = s->board->size, .window_bytes = (size_t)s->board->size * WINDOW_BYTES, .ops = &ops, .impl = p};
    struct qr_err err;
    int rc = qr_comm_line_open(c, true, &err);
    QR_ASSERT(rc == 0); /* there is no `begin` that could fail */
}
