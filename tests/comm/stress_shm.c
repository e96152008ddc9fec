/* Ranks as processes over one mapping: random calls in shared and in own memory are the serial tree's sums, bit for bit; a rank that is killed, gives up or
 * does something else is named to all within two seconds, and how a child ended is said by its parent; children do not outlive their parent; nothing is left
 * behind. A plain program, because it forks itself. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpus.h"
#include "comm/launch.h"
#include "tests/comm/rig.h"

#if defined(__SANITIZE_ADDRESS__)
enum { N_CALLS = 15, N_MAX = 5000 };
#else
enum { N_CALLS = 60, N_MAX = 20000 };
#endif
enum { N_LARGE = 1500000 }; /* more than two pieces */

/* body by n ranks. A child exits with what body returns; the parent gets body's and, in err, what became of the children. */
static int with_ranks(int32_t n, int (*body)(struct qr_comm *c, const void *arg, struct qr_err *err), const void *arg, struct qr_err *err)
{
    struct qr_comm c;
    struct qr_comm_crew *crew;
    const struct qr_comm_launch_options o = {.n_ranks = n, .share_cpus = false};
    CHECK(qr_comm_launch(&c, &crew, &o, err) == 0);
    const int32_t rank = c.rank;
    int rc = body(&c, arg, err);
    qr_comm_close(&c);
    if (rank > 0)
        _exit(rc ? 3 : 0);
    return qr_comm_crew_end(crew, rc == 0, 0, err);
}

/* ---- what must work ---- */

struct random_run {
    uint64_t seed;
    int64_t n_calls, n_max;
};

static int random_calls(struct qr_comm *c, const void *arg, struct qr_err *err)
{
    const struct random_run *r = arg;
    (void)err;
    rig_run(c, r->seed + (uint64_t)c->size, r->n_calls, r->n_max);
    return 0;
}

static int memory_is_clean(struct qr_comm *c, const void *arg, struct qr_err *err)
{
    void *p[3];
    const size_t n_bytes[3] = {100, (size_t)5 << 20, 0};
    (void)arg;
    for (int round = 0; round < 300; round++) { /* more than there are blocks to remember */
        for (int i = 0; i < 3; i++) {
            CHECK(qr_comm_alloc(c, &p[i], n_bytes[i], err) == 0);
            CHECK((uintptr_t)p[i] % 64 == 0);
            for (size_t k = 0; k < n_bytes[i]; k += 4096 * 32)
                CHECK(((char *)p[i])[k] == 0);
            if (n_bytes[i])
                memset(p[i], 7, n_bytes[i] < 5000 ? n_bytes[i] : 5000);
        }
        for (int i = 0; i < 3; i++)
            qr_comm_free(c, p[(i + round) % 3]);
    }
    qr_comm_free(c, NULL);
    CHECK(qr_comm_alloc(c, &p[0], SIZE_MAX / 2, err) == QR_E_NO_ROOM);
    return 0;
}

static int mapping_has_no_name(struct qr_comm *c, const void *arg, struct qr_err *err)
{
    char line[1000];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        CHECK(!strstr(line, " rw-s ") || !strstr(line, "/dev/shm/"));
        n += strstr(line, " rw-s ") && strstr(line, "/memfd:quire-ranks (deleted)");
    }
    fclose(maps);
    CHECK(n > 0);
    return qr_comm_barrier(c, err);
}

static int share_is_own(struct qr_comm *c, const void *arg, struct qr_err *err)
{
    const struct qr_cpus *all = arg;
    struct qr_cpus mine;
    double has[QR_CPUS_MAX] = {0};
    qr_comm_share_cpus(c->rank, c->size);
    qr_cpus_allowed(&mine);
    for (int32_t i = 0; i < mine.n; i++)
        has[mine.cpu[i]] = 1;
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F64, .data = has, .n = QR_CPUS_MAX};
    CHECK(qr_comm_run(c, &call, err) == 0);
    for (int32_t i = 0; i < all->n; i++) /* each belongs to one rank, or all to all; with a quota some to none */
        CHECK(has[all->cpu[i]] == (all->n >= c->size ? 1 : c->size) || (qr_cpus_quota("") > 0 && has[all->cpu[i]] == 0));
    CHECK(mine.n > 0);
    return 0;
}

/* ---- what goes wrong ---- */

enum { KILLED_BEFORE, KILLED_INSIDE, GIVES_UP, OTHER_CALL, ENDS_BADLY, N_FAULTS };

static int faulty(struct qr_comm *c, const void *arg, struct qr_err *err)
{
    const int kind = *(const int *)arg;
    float data[1000] = {0};
    int rc = 0;
    for (int i = 0; i < 4 && rc == 0; i++) {
        struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = data, .n = 1000};
        const bool odd = c->rank == 2 && i == 2;
        int64_t ticket;
        if (odd && kind == KILLED_BEFORE)
            raise(SIGKILL);
        if (odd && kind == GIVES_UP)
            qr_comm_abort(c, "the disk is full");
        if (odd && kind == OTHER_CALL)
            call.n = 7;
        if (odd && kind == ENDS_BADLY)
            return -1;
        rc = qr_comm_start(c, &call, &ticket, err);
        if (odd && kind == KILLED_INSIDE)
            raise(SIGKILL);
        rc = rc ? rc : qr_comm_wait(c, ticket, err);
    }
    return rc;
}

static void faults(void)
{
    static const char *const said[N_FAULTS][2] = {
        {" died; the others waited for it in all_reduce of 1000 f32", "; rank 2 was ended by signal 9 (Killed)"},
        {" died", "; rank 2 was ended by signal 9 (Killed)"},
        {"rank 2 gave up: the disk is full", ""},
        {"ranks started different calls: rank 0 all_reduce of 1000 f32, rank 2 all_reduce of 7 f32", ""},
        {"rank 2 has closed; the others waited for it in all_reduce of 1000 f32", ""}};
    for (int kind = 0; kind < N_FAULTS; kind++) {
        struct qr_err err;
        const int64_t began = qr_clock_us();
        int rc = with_ranks(4, faulty, &kind, &err);
        if (rc >= 0 || !strstr(err.msg, said[kind][0]) || !strstr(err.msg, said[kind][1]) || !strstr(err.msg, "rank 2") ||
            qr_clock_us() - began > SOON_US) {
            fprintf(stderr, "fault %d after %lld us: %d \"%s\", expected \"%s\" and \"%s\"\n", kind, (long long)(qr_clock_us() - began), rc, rc ? err.msg : "",
                    said[kind][0], said[kind][1]);
            exit(1);
        }
    }
}

static int ends_with(struct qr_comm *c, const void *arg, struct qr_err *err)
{
    int rc = qr_comm_barrier(c, err);
    if (c->rank == 1)
        _exit(*(const int *)arg);
    return rc;
}

/* A child that is gone before it opened. */
static void dies_at_once(void)
{
    struct qr_comm_shared *shared;
    struct qr_comm c;
    struct qr_err err;
    CHECK_OK(qr_comm_shared_new(&shared, 2, &err));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(0);
    qr_comm_shared_set_pid(shared, 1, (int32_t)pid);
    qr_comm_open_shm(&c, shared, 0);
    CHECK(qr_comm_barrier(&c, &err) == QR_E_CLOSED && strstr(err.msg, "rank 1 (process "));
    qr_comm_close(&c);
    waitpid(pid, NULL, 0);
}

/* The children of a parent that is killed are gone soon: when the last has ended, nobody holds the pipe any more. */
static void children_follow(void)
{
    int pipe_of[2];
    char byte;
    CHECK(pipe(pipe_of) == 0);
    fflush(NULL);
    const pid_t parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        struct qr_comm c;
        struct qr_comm_crew *crew;
        struct qr_err err;
        const struct qr_comm_launch_options o = {.n_ranks = 4};
        CHECK_OK(qr_comm_launch(&c, &crew, &o, &err));
        CHECK_OK(qr_comm_barrier(&c, &err));
        CHECK(write(pipe_of[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    close(pipe_of[1]);
    for (int i = 0; i < 4; i++)
        CHECK(read(pipe_of[0], &byte, 1) == 1);
    const int64_t began = qr_clock_us();
    kill(parent, SIGKILL);
    CHECK(read(pipe_of[0], &byte, 1) == 0);
    CHECK(qr_clock_us() - began < SOON_US);
    close(pipe_of[0]);
    waitpid(parent, NULL, 0);
}

int main(void)
{
#if defined(__SANITIZE_THREAD__)
    printf("SKIP stress_shm: the thread sanitizer does not see other processes\n0 passed, 0 failed, 1 skipped\n");
    return 0;
#endif
    const char *text = getenv("QUIRE_TEST_SEED");
    struct random_run run = {.seed = text ? strtoull(text, NULL, 0) : 20261122, .n_calls = N_CALLS, .n_max = N_MAX};
    const int bad = 5, fine = 0;
    struct qr_err err;
    struct qr_cpus cpus;
    printf("seed %llu\n", (unsigned long long)run.seed);
    for (int32_t n = 2; n <= 8; n += n < 5 ? 1 : 3)
        CHECK_OK(with_ranks(n, random_calls, &run, &err));
    run = (struct random_run){.seed = run.seed, .n_calls = 12, .n_max = N_LARGE};
    CHECK_OK(with_ranks(2, random_calls, &run, &err));
    printf("PASS random calls of 2 to 8 processes are the serial tree's\n");
    CHECK_OK(with_ranks(2, memory_is_clean, NULL, &err));
    printf("PASS memory that ranks reach is zeroed, also when it was used before\n");
    qr_cpus_allowed(&cpus);
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int32_t n = 2; n <= 4; n++) {
        CHECK_OK(with_ranks(n, share_is_own, &cpus, &err));
        sched_setaffinity(0, sizeof all, &all); /* rank 0 was this process */
    }
    printf("PASS every processor belongs to one rank\n");
    faults();
    dies_at_once();
    CHECK(with_ranks(3, ends_with, &bad, &err) == QR_E_CLOSED && strcmp(err.msg, "rank 1 exited with status 5") == 0);
    CHECK(with_ranks(3, ends_with, &fine, &err) == 0);
    printf("PASS whoever dies, gives up or does otherwise is named to all within two seconds\n");
    children_follow();
    printf("PASS children do not outlive their parent\n");
    CHECK_OK(with_ranks(2, mapping_has_no_name, NULL, &err));
    printf("PASS what ranks share has no name that could be left over\n6 passed, 0 failed, 0 skipped\n");
    return 0;
}
