/* Sums and copies between the devices of several processes: emulated ones, with a NCCL of their own (tests/cuda_emu/nccl.c). */
#include <signal.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "comm/device_comm.h"
#include "tests/device/device.h"
#include "tests/device/processes.h"
#include "tests/soon.h"

#define SECONDS_MAX TEST_SOON_US(2000000) /* what a lost rank may take to be seen */

#if defined(__SANITIZE_ADDRESS__)
#define SLOWER 5
#else
#define SLOWER 1
#endif

struct rank {
    struct qr_backend *be;
    struct qr_device_comm *d;
    struct qr_comm *comm;
};

static int rank_open(struct rank *r, struct qr_comm *comm, struct qr_err *err)
{
    struct qr_backend_options o = {.device = "cuda", .n_threads = 1, .step_rows_max = 16};
    *r = (struct rank){.comm = comm};
    qr_comm_place(comm, &o.rank, &o.n_ranks);
    int rc = qr_backend_open(&r->be, &o, err);
    rc = rc ? rc : qr_device_comm_open(&r->d, comm, r->be, err);
    if (rc)
        qr_comm_abort(comm, err->msg);
    return rc;
}

static void rank_close(struct rank *r)
{
    qr_device_comm_close(r->d);
    qr_backend_close(r->be);
}

/* Numbers whose sum depends on its order. */
static float *numbers(int32_t rank, int64_t n)
{
    struct qr_rng rng = {.seed = 100 + (uint64_t)rank};
    float *x = qr_alloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(qr_rng_next_unit(&rng) - 0.5) * (i % 3 == 0 ? 1e4f : 1);
    return x;
}

/* Where the part of each rank begins, of n. */
static void uneven(int64_t *part, int32_t size, int64_t n)
{
    for (int32_t r = 0; r <= size; r++)
        part[r] = r == size ? n : n * r * r / (size * size);
}

/* What the devices make of this rank's numbers, in one call of every kind; want: what the comm makes of them. */
static bool same(struct rank *r, int64_t n)
{
    const struct qr_mem_ops *mem = r->be->mem;
    const struct qr_peer_ops *ops = r->d->ops;
    const int32_t size = r->comm->size, me = r->comm->rank;
    struct qr_err err;
    int64_t part[QR_COMM_RANKS_MAX + 1], bytes[QR_COMM_RANKS_MAX + 1], gathered[QR_COMM_RANKS_MAX + 1];
    float *want = numbers(me, n), *own = numbers(me, n), *got = qr_alloc((size_t)n, sizeof *got), *data = mem->alloc((size_t)n * 2 * sizeof *data);
    bool ok = true;
    uneven(part, size, n);
    for (int32_t i = 0; i <= size; i++) {
        bytes[i] = part[i] * (int64_t)sizeof *data;
        gathered[i] = i < 1 ? 0 : bytes[i] - bytes[1];
    }
    mem->put(r->be->queue, data, own, (size_t)n * sizeof *own);
    ops->aside(r->d->peers, true); /* the sum begins behind the copy, and join behind the sum */
    ops->sum(r->d->peers, data, n);
    ops->aside(r->d->peers, false);
    ops->join(r->d->peers);
    mem->get(r->be->queue, got, data, (size_t)n * sizeof *got);
    ok = qr_comm_run(r->comm, &(struct qr_comm_call){.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = want, .n = n}, &err) == 0 && ok;
    ok = memcmp(got, want, (size_t)n * sizeof *got) == 0 && ok;

    mem->put(r->be->queue, data, own, (size_t)n * sizeof *own);
    ops->sum_parts(r->d->peers, data, part); /* then every rank's part on every rank is the sum again */
    ops->share_parts(r->d->peers, data, bytes);
    mem->get(r->be->queue, got, data, (size_t)n * sizeof *got);
    ok = memcmp(got, want, (size_t)n * sizeof *got) == 0 && ok;

    mem->put(r->be->queue, data, own, (size_t)n * sizeof *own);
    ops->broadcast(r->d->peers, data, (size_t)n * sizeof *data);
    mem->get(r->be->queue, got, data, (size_t)n * sizeof *got);
    float *first = numbers(0, n);
    ok = memcmp(got, first, (size_t)n * sizeof *got) == 0 && ok;
    qr_free(first);

    mem->put(r->be->queue, data, own, (size_t)n * sizeof *own); /* what others have from the beginning on comes to rank 0, behind each other */
    ops->gather(r->d->peers, data + n, data, gathered);
    mem->get(r->be->queue, got, data + (me == 0 ? n : 0), (size_t)n * sizeof *got);
    for (int32_t i = 1; me == 0 && i < size; i++) {
        float *theirs = numbers(i, n);
        ok = memcmp((char *)got + gathered[i], theirs, (size_t)(gathered[i + 1] - gathered[i])) == 0 && ok;
        qr_free(theirs);
    }
    mem->free(data);
    qr_free(want), qr_free(own), qr_free(got);
    return ok;
}

static const int64_t sizes[] = {1, 37, 17000}; /* the last is summed in parts by more than two ranks */

static int sums(struct qr_comm *comm, void *arg)
{
    struct rank r;
    struct qr_err err;
    bool ok = rank_open(&r, comm, &err) == 0;
    (void)arg;
    if (!ok)
        return 1;
    for (int i = 0; i < QR_COUNT(sizes); i++)
        ok = same(&r, sizes[i]) && ok;
    rank_close(&r);
    return ok ? 0 : 1;
}

Test(peers, sums_of_2_3_and_4_devices_are_the_bits_of_the_comms_tree_and_copies_are_copies, .timeout = 240)
{
    use_emulated();
    for (int32_t n = 2; n <= 4; n++) {
        struct processes p;
        processes_begin(&p, n, sums, NULL);
        cr_expect_eq(sums(&p.comm, NULL), 0, "rank 0 of %d", n);
        cr_expect_eq(processes_end(&p), 0, "another rank of %d", n);
    }
}

/* ---- what goes wrong ---- */

/* The test's side of a group. */
struct meeting {
    struct processes p;
    struct rank r;
    struct qr_err err;
};

static void meet(struct meeting *m, int32_t n, int (*other)(struct qr_comm *comm, void *arg))
{
    *m = (struct meeting){0};
    use_emulated();
    processes_begin(&m->p, n, other, NULL);
}

static int32_t part(struct meeting *m)
{
    rank_close(&m->r);
    return processes_end(&m->p);
}

/* A sum of n elements, and whether it was given up. */
static bool sum_fails(struct rank *r, int64_t n, struct qr_err *err)
{
    float *data = r->be->mem->alloc((size_t)n * sizeof *data);
    r->d->ops->sum(r->d->peers, data, n);
    r->be->mem->sync(r->be->queue);
    r->be->mem->free(data);
    return qr_device_comm_lost(r->d, err);
}

static int sum_of_another_length(struct qr_comm *comm, void *arg)
{
    struct rank r;
    struct qr_err err;
    (void)arg;
    const bool failed = rank_open(&r, comm, &err) == 0 && sum_fails(&r, 101, &err);
    rank_close(&r);
    return failed ? 0 : 1;
}

Test(peers, ranks_that_call_different_things_all_fail_with_what_the_library_says, .timeout = 240)
{
    struct meeting m;
    meet(&m, 2, sum_of_another_length);
    cr_assert_eq(rank_open(&m.r, &m.p.comm, &m.err), 0, "%s", m.err.msg);
    cr_expect(sum_fails(&m.r, 100, &m.err));
    cr_expect(strstr(m.err.msg, "invalid usage") && strstr(m.err.msg, "AllReduce of 400 bytes") && strstr(m.err.msg, "404"), "%s", m.err.msg);
    cr_expect(sum_fails(&m.r, 100, &m.err), "once is for ever");
    cr_expect_eq(part(&m), 0);
}

static int die(struct qr_comm *comm, void *arg)
{
    struct rank r;
    struct qr_err err;
    (void)arg;
    if (rank_open(&r, comm, &err) == 0 && qr_comm_barrier(comm, &err) == 0)
        kill(getpid(), SIGKILL);
    return 1;
}

Test(peers, a_rank_that_dies_is_missed_soon_whether_the_library_sees_it_or_the_comm_alone, .timeout = 240)
{
    for (int silent = 0; silent < 2; silent++) {
        struct meeting m;
        if (silent)
            setenv("QUIRE_EMU_NCCL", "silent", 1);
        meet(&m, 3, die);
        cr_assert(rank_open(&m.r, &m.p.comm, &m.err) == 0 && qr_comm_barrier(&m.p.comm, &m.err) == 0, "%s", m.err.msg);
        const int64_t began = qr_clock_us();
        cr_expect(sum_fails(&m.r, 100, &m.err));
        const int64_t took = qr_clock_us() - began;
        cr_expect_lt(took, SECONDS_MAX * SLOWER);
        cr_expect(strstr(m.err.msg, "died") != NULL, "%s", m.err.msg);
        printf("%s: after %.0f ms: %s\n", silent ? "the comm alone" : "the library", 1e-3 * (double)took, m.err.msg);
        part(&m);
    }
    unsetenv("QUIRE_EMU_NCCL");
}

/* Hears the group's name, and never joins. */
static int die_before(struct qr_comm *comm, void *arg)
{
    uint8_t id[QR_PEERS_ID_BYTES];
    struct qr_err err;
    (void)arg;
    if (qr_comm_run(comm, &(struct qr_comm_call){.kind = QR_COMM_BROADCAST, .dtype = QR_I8, .data = id, .n = sizeof id}, &err) == 0)
        kill(getpid(), SIGKILL);
    return 1;
}

Test(peers, a_rank_that_dies_before_all_have_come_is_missed, .timeout = 240)
{
    struct meeting m;
    meet(&m, 2, die_before);
    const int64_t began = qr_clock_us();
    cr_expect_eq(rank_open(&m.r, &m.p.comm, &m.err), QR_E_CLOSED);
    cr_expect_lt(qr_clock_us() - began, SECONDS_MAX * SLOWER);
    cr_expect(strstr(m.err.msg, "rank 1") && strstr(m.err.msg, "died"), "%s", m.err.msg);
    part(&m);
}

static int fail_to_open(struct qr_comm *comm, void *arg)
{
    struct rank r;
    struct qr_err err;
    (void)arg;
    const int rc = rank_open(&r, comm, &err);
    rank_close(&r);
    return rc ? 0 : 1;
}

Test(peers, without_a_library_that_fits_or_devices_for_all_nothing_is_opened_and_every_rank_hears_why, .timeout = 240)
{
    static const struct {
        const char *variable, *value, *says;
    } rows[] = {{"QUIRE_NCCL_LIB", "/nowhere/libnccl.so", "NCCL, through which several GPUs compute together, cannot be opened (/nowhere/libnccl.so"},
                {"QUIRE_EMU_NCCL", "old", "NCCL 2.12 ("},
                {"QUIRE_NCCL_LIB", "libm.so.6", "libm.so.6 is no NCCL of 2.14 or newer: it has no nccl"},
                {"QUIRE_EMU_DEVICES", "1", "2 ranks need a GPU each, and there is 1"}};
    for (int i = 0; i < QR_COUNT(rows); i++) {
        struct meeting m;
        meet(&m, 2, fail_to_open);
        setenv(rows[i].variable, rows[i].value, 1);
        cr_expect_eq(rank_open(&m.r, &m.p.comm, &m.err), QR_E_UNSUPPORTED);
        cr_expect(strncmp(m.err.msg, rows[i].says, strlen(rows[i].says)) == 0, "%s", m.err.msg);
        cr_expect_eq(part(&m), 0);
        unsetenv(rows[i].variable);
    }
}

Test(peers, a_list_of_devices_has_one_for_each_rank)
{
    static const struct {
        const char *device, *says; /* says NULL: rank 1 opens it */
        int32_t n_ranks;
    } rows[] = {{"cuda:3,0", NULL, 2},
                {"cuda", NULL, 2},
                {"cuda:0,4", "GPU 4 was asked for, there are 4 (counted from 0)", 2},
                {"cuda:1", "\"cuda:1\" names 1 GPU for 2 ranks; expected one for each", 2},
                {"cuda:0,1", "\"cuda:0,1\" names 2 GPUs for 1 rank; expected one for each", 0},
                {"cuda:0,", "unknown device \"cuda:0,\"; expected auto, cpu, cuda, cuda:N or, for several ranks, cuda:N,M", 2}};
    use_emulated();
    setenv("QUIRE_EMU_DEVICES", "4", 1);
    for (int i = 0; i < QR_COUNT(rows); i++) {
        const struct qr_backend_options o = {.device = rows[i].device, .rank = rows[i].n_ranks ? 1 : 0, .n_ranks = rows[i].n_ranks, .n_threads = 1};
        struct qr_backend *be = NULL;
        struct qr_err err = {0};
        cr_expect_eq(qr_backend_open(&be, &o, &err) == 0, rows[i].says == NULL, "%s: %s", rows[i].device, err.msg);
        cr_expect(!rows[i].says || strcmp(err.msg, rows[i].says) == 0, "%s", err.msg);
        qr_backend_close(be);
    }
}
