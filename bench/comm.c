/* comm.c - `quire bench comm`: time of sums and copies between ranks, beside a plain copy of as many bytes. Every round
 * begins behind a barrier on all ranks; the first one does not count, and the median is told. A late rank shows what
 * processor time the waiting of the others takes. Ranks are forked processes or mpirun's. Rank 0 prints. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/samples.h"
#include "comm/launch.h"

#define LATE_US 300000 /* of the last rank, when the cost of waiting is measured */
#define SMALL 2        /* f64: a loss and a number of targets */

/* ---- one rank ---- */

struct sizes {
    int64_t n_bytes;  /* of a rank's array */
    int32_t n_rounds; /* medians of so many */
};

struct bench {
    struct qr_comm *c;
    const struct sizes *k;
    void *data, *other; /* [n_bytes] each */
    int64_t part[QR_COMM_RANKS_MAX + 1];
};

/* Median seconds of a call, all ranks beginning together; a first round is not counted. NULL: of memcpy, what reading and
 * writing as much costs. */
static int time_call(struct bench *b, const struct qr_comm_call *call, double *seconds, struct qr_err *err)
{
    struct qr_samples samples = {0};
    int rc = 0;
    for (int32_t i = -1; i < b->k->n_rounds && rc == 0; i++) {
        rc = qr_comm_barrier(b->c, err);
        const int64_t began = qr_clock_ns();
        if (!call)
            memcpy(b->other, b->data, (size_t)b->k->n_bytes);
        else
            rc = rc ? rc : qr_comm_run(b->c, call, err);
        if (i >= 0)
            qr_samples_add(&samples, (double)(qr_clock_ns() - began));
    }
    *seconds = qr_samples_percentile(&samples, 50) * 1e-9;
    qr_samples_release(&samples);
    return rc;
}

/* Share of a processor that the other ranks use while the last one is late. */
static int time_late(struct bench *b, double *share, struct qr_err *err)
{
    int rc = qr_comm_barrier(b->c, err);
    const clock_t before = clock();
    if (b->c->rank == b->c->size - 1)
        usleep(LATE_US);
    rc = rc ? rc : qr_comm_barrier(b->c, err);
    *share = (double)(clock() - before) * 1e6 / CLOCKS_PER_SEC / LATE_US;
    return rc;
}

static void say(const struct bench *b, const char *what, double seconds)
{
    if (b->c->rank == 0)
        printf("%-34s %9.2f ms %8.2f GB/s\n", what, seconds * 1e3, (double)b->k->n_bytes / seconds * 1e-9);
}

static int time_kinds(struct bench *b, const char *where, struct qr_err *err)
{
    static const struct {
        enum qr_comm_kind kind;
        const char *name;
    } kinds[] = {{QR_COMM_ALL_REDUCE, "all_reduce"}, {QR_COMM_REDUCE_SCATTER, "reduce_scatter"}, {QR_COMM_ALL_GATHER, "all_gather"},
                 {QR_COMM_BROADCAST, "broadcast"}};
    int rc = 0;
    for (int i = 0; i < QR_COUNT(kinds) && rc == 0; i++) {
        struct qr_comm_call call = {.kind = kinds[i].kind, .dtype = QR_F32, .data = b->data, .n = b->k->n_bytes / 4};
        double seconds = 0;
        char what[64];
        if (call.kind == QR_COMM_REDUCE_SCATTER || call.kind == QR_COMM_ALL_GATHER)
            call.part = b->part;
        rc = time_call(b, &call, &seconds, err);
        snprintf(what, sizeof what, "%s, %s", kinds[i].name, where);
        if (rc == 0)
            say(b, what, seconds);
    }
    return rc;
}

static int time_all(struct bench *b, struct qr_err *err)
{
    const bool shared = strcmp(qr_comm_name(b->c), "shm") == 0;
    double seconds = 0, share = 0, numbers[SMALL] = {0};
    const struct qr_comm_call small = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F64, .data = numbers, .n = SMALL};
    void *own = b->other;
    int rc = time_call(b, NULL, &seconds, err);
    if (rc == 0)
        say(b, "memcpy on every rank", seconds);
    rc = rc ? rc : time_kinds(b, shared ? "shared memory" : "any memory", err);
    if (shared && rc == 0) {
        b->other = b->data;
        b->data = own;
        rc = time_kinds(b, "own memory", err);
        b->data = b->other;
        b->other = own;
    }
    rc = rc ? rc : time_call(b, &small, &seconds, err);
    if (rc == 0 && b->c->rank == 0)
        printf("%-34s %9.2f us\n", "all_reduce of two f64", seconds * 1e6);
    rc = rc ? rc : time_late(b, &share, err);
    if (rc == 0 && b->c->rank == 0)
        printf("%-34s %9.2f %% of a processor\n", "waiting for a late rank", share * 100);
    return rc;
}

/* The part of one rank; rank 0 prints. All ranks call it. */
static int measure(struct qr_comm *c, const struct sizes *k, struct qr_err *err)
{
    QR_ASSERT(c != NULL && k != NULL);
    QR_ASSERT(k->n_bytes > 0 && k->n_bytes % 4 == 0 && k->n_rounds > 0 && k->n_rounds <= 64);
    struct bench b = {.c = c, .k = k, .other = qr_alloc_aligned((size_t)k->n_bytes, 64)};
    for (int32_t r = 0; r <= c->size; r++)
        b.part[r] = k->n_bytes / 4 * r / c->size;
    int rc = qr_comm_alloc(c, &b.data, (size_t)k->n_bytes, err);
    if (rc == 0) {
        memset(b.data, 0, (size_t)k->n_bytes);
        memset(b.other, 0, (size_t)k->n_bytes);
        if (c->rank == 0)
            printf("%d ranks, %s, %.1f MiB of f32 on each\n", c->size, qr_comm_name(c), (double)k->n_bytes / (1 << 20));
        rc = time_all(&b, err);
        qr_comm_free(c, b.data);
    }
    qr_free_aligned(b.other);
    fflush(stdout);
    return rc;
}

/* ---- the command ---- */

struct comm_options {
    int64_t ranks, rounds;
    struct qr_comm_meeting meeting;
    double mib;
};

#define AT(field) offsetof(struct comm_options, field)

static const struct qr_option table[] = {
    {.name = "ranks", .brief = true, .type = QR_OPT_INT, .offset = AT(ranks), .builtin = "0", .min = 0, .max = QR_COMM_RANKS_MAX, .arg = "N",
     .help = "Ranks to start; 0: those of mpirun or another launcher, else two."},
    QR_COMM_MEETING_ROWS(struct comm_options, meeting, NULL),
    {.name = "mib", .brief = true, .type = QR_OPT_FLOAT, .offset = AT(mib), .builtin = "64", .min = 0.001, .max = 16384, .arg = "X",
     .help = "MiB of every rank's array."},
    {.name = "rounds", .brief = true, .type = QR_OPT_INT, .offset = AT(rounds), .builtin = "9", .min = 1, .max = 64, .arg = "N",
     .help = "Rounds; medians are printed."}};

static int run_command(struct qr_command_run *r, struct qr_err *err)
{
    const struct comm_options *o = r->options;
    const struct sizes k = {.n_bytes = (int64_t)(o->mib * (1 << 20)) / 4 * 4, .n_rounds = (int32_t)o->rounds};
    struct qr_comm_group started;
    const bool launched = o->meeting.rank >= 0 || qr_comm_group_find(&started);
    const struct qr_comm_launch_options launch = {.n_ranks = o->ranks ? (int32_t)o->ranks : launched ? 0 : 2, .share_cpus = true, .meeting = &o->meeting};
    struct qr_comm_crew *crew;
    struct qr_comm c;
    int rc = qr_comm_launch(&c, &crew, &launch, err);
    if (rc)
        return rc;
    const bool child = c.rank > 0 && !launched;
    rc = measure(&c, &k, err);
    qr_comm_close(&c);
    if (child)
        _exit(rc ? 1 : 0); /* it has nothing to say */
    return qr_comm_crew_end(crew, rc == 0, 0, err);
}

const struct qr_command qr_bench_comm_command = {
    .name = "bench comm", .purpose = "sums and copies between ranks: processes, mpirun",
    .usage = "quire bench comm [flags]\nmpirun -n 2 quire bench comm [flags]",
    .examples = "quire bench comm --ranks 2 --mib 16",
    .args = "", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct comm_options), .run = run_command,
};
