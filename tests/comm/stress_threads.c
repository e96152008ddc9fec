/* Ranks as threads that reach each other's memory, and as threads with a stream between every two, as ranks of several machines have: random calls of 1 to 64
 * ranks are the serial tree's sums, bit for bit; 1, 2, 4 and 8 ranks give the same sum of the same leaves; ranks that start different calls, leave or give up
 * end everybody's wait with a word about it. A plain program, so that the thread sanitizer can run it. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/comm/rig.h"
#include "tests/comm/threads.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_CALLS = 40, N_MAX = 9000 };
#else
enum { N_CALLS = 150, N_MAX = 20000 };
#endif

struct rank {
    struct qr_comm *c;
    void (*body)(struct qr_comm *c, void *arg);
    void *arg;
    pthread_t thread;
};

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    r->body(r->c, r->arg);
    qr_comm_close(r->c);
    return NULL;
}

static void open_streams(struct qr_comm *c, int32_t n)
{
    static struct qr_comm_link link[QR_COMM_RANKS_MAX][QR_COMM_RANKS_MAX];
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = i + 1, pair[2]; j < n; j++) {
            CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
            link[i][j].fd = pair[0];
            link[j][i].fd = pair[1];
        }
    for (int32_t i = 0; i < n; i++)
        qr_comm_open_tcp(&c[i], i, n, link[i]);
}

static const struct transport {
    const char *name;
    void (*open)(struct qr_comm *c, int32_t n);
    int32_t odd; /* as many ranks as there may be, or a number of them that is no power of two */
} transports[] = {{"memory", open_threads, QR_COMM_RANKS_MAX}, {"streams", open_streams, 13}};

/* body(c, arg) by n ranks, each a thread. */
static void with_ranks(const struct transport *t, int32_t n, void (*body)(struct qr_comm *c, void *arg), void *arg)
{
    struct qr_comm c[QR_COMM_RANKS_MAX];
    struct rank r[QR_COMM_RANKS_MAX];
    t->open(c, n);
    for (int32_t i = 0; i < n; i++) {
        r[i] = (struct rank){.c = &c[i], .body = body, .arg = arg};
        CHECK(pthread_create(&r[i].thread, NULL, run_rank, &r[i]) == 0);
    }
    for (int32_t i = 0; i < n; i++)
        pthread_join(r[i].thread, NULL);
}

static void random_calls(struct qr_comm *c, void *arg)
{
    rig_run(c, *(const uint64_t *)arg + (uint64_t)c->size, N_CALLS, N_MAX);
}

/* As many as there may be, and an odd number. */
static void few_calls(struct qr_comm *c, void *arg)
{
    rig_run(c, *(const uint64_t *)arg + (uint64_t)c->size, 5, 300);
}

/* ---- leaves ---- */

enum { LEAVES = 16, N_LEAF = 3001 };

struct leaves {
    float sum[N_LEAF];
};

/* Sums of a rank's own leaves, by twos. */
static void subtree(float *out, int32_t first, int32_t end)
{
    static const struct rig_call k = {.seed = 5};
    float right[N_LEAF];
    if (end - first == 1) {
        for (int64_t i = 0; i < N_LEAF; i++)
            out[i] = (float)rig_number(&k, first, i);
        return;
    }
    subtree(out, first, (first + end) / 2);
    subtree(right, (first + end) / 2, end);
    for (int64_t i = 0; i < N_LEAF; i++)
        out[i] += right[i];
}

static void add_leaves(struct qr_comm *c, void *arg)
{
    struct leaves *out = arg;
    struct qr_err err;
    float own[N_LEAF];
    const int32_t each = LEAVES / c->size;
    subtree(own, c->rank * each, (c->rank + 1) * each);
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = own, .n = N_LEAF};
    CHECK_OK(qr_comm_run(c, &call, &err));
    if (c->rank == c->size - 1)
        memcpy(out->sum, own, sizeof own);
}

static void same_sum_of_leaves(const struct transport *t)
{
    struct leaves one, many;
    struct qr_comm single;
    qr_comm_open_single(&single);
    add_leaves(&single, &one);
    qr_comm_close(&single);
    for (int32_t n = 1; n <= LEAVES; n *= 2) {
        with_ranks(t, n, add_leaves, &many);
        CHECK(memcmp(&one, &many, sizeof one) == 0);
    }
}

/* ---- faults ---- */

struct fault {
    int32_t kind;
    char said[8][500];
    _Atomic int32_t n_said;
};

enum { OTHER_SIZE, OTHER_KIND, OTHER_PARTS, OTHER_ROOT, LEAVES_EARLY, GIVES_UP, GIVES_UP_LATE, CLOSES_UNDER_WAY, N_FAULTS };

/* Rank 2 of 4 does something else in call 3. */
static void faulty(struct qr_comm *c, void *arg)
{
    struct fault *f = arg;
    struct qr_err err;
    float *data = malloc(1000 * sizeof *data);
    int64_t part[] = {0, 250, 500, 750, 1000}, ticket = 0;
    memset(data, 0, 1000 * sizeof *data);
    int rc = 0;
    const int64_t began = qr_clock_us();
    for (int i = 0; i < 5 && rc == 0; i++) {
        struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = data, .n = 1000};
        const bool odd = i == 3 && c->rank == 2;
        if (f->kind == OTHER_PARTS)
            call.kind = QR_COMM_ALL_GATHER, call.part = part, part[2] += odd;
        if (f->kind == OTHER_ROOT)
            call.kind = QR_COMM_BROADCAST, call.root = odd ? 1 : 3;
        if (f->kind == OTHER_SIZE)
            call.n -= odd;
        if (f->kind == OTHER_KIND && odd)
            call = (struct qr_comm_call){.kind = QR_COMM_BARRIER};
        if (f->kind == LEAVES_EARLY && odd)
            break;
        if (f->kind == GIVES_UP && odd)
            qr_comm_abort(c, "the disk is full");
        rc = qr_comm_start(c, &call, &ticket, &err);
        if (f->kind == CLOSES_UNDER_WAY && odd)
            break;
        if (f->kind == GIVES_UP_LATE && odd)
            qr_comm_abort(c, "the disk is full");
        rc = rc ? rc : qr_comm_wait(c, ticket, &err);
        while (f->kind == CLOSES_UNDER_WAY && i == 2 && c->rank == 3 && atomic_load(&f->n_said) < 2)
            usleep(1000); /* so that call 3 is under way when rank 2 closes */
    }
    if (rc) {
        struct qr_err again;
        CHECK(qr_comm_barrier(c, &again) == rc && strcmp(again.msg, err.msg) == 0); /* it stays */
        CHECK(qr_clock_us() - began < SOON_US);
        snprintf(f->said[atomic_fetch_add(&f->n_said, 1)], 500, "%s", err.msg);
    }
    free(data); /* at once: nobody uses it any more */
}

static void faults(const struct transport *t)
{
    static const char *const said[N_FAULTS] = {
        "ranks started different calls: rank 0 all_reduce of 1000 f32, rank 2 all_reduce of 999 f32",
        "ranks started different calls: rank 0 all_reduce of 1000 f32, rank 2 barrier",
        "ranks started different calls: all_gather of 1000 f32 is parted differently on ranks 0 and 2",
        "ranks started different calls: broadcast of 1000 f32 from rank 3 on rank 0, from rank 1 on rank 2",
        "rank 2 has closed; the others waited for it in all_reduce of 1000 f32",
        "rank 2 gave up: the disk is full",
        "rank 2 gave up: the disk is full",
        "rank 2 gave up: it closed with calls under way"};
    for (int32_t kind = 0; kind < N_FAULTS; kind++)
        for (int32_t round = 0; round < 3; round++) {
            struct fault f = {.kind = kind};
            with_ranks(t, 4, faulty, &f);
            const int32_t n = atomic_load(&f.n_said), all = kind == LEAVES_EARLY || kind == CLOSES_UNDER_WAY ? 3 : 4;
            CHECK(kind == GIVES_UP_LATE || n == all); /* late: the call may be through */
            for (int32_t i = 0; i < n; i++)
                if (strncmp(f.said[i], said[kind], strlen(said[kind])) != 0) {
                    fprintf(stderr, "fault %d: \"%s\", expected \"%s\"\n", kind, f.said[i], said[kind]);
                    exit(1);
                }
        }
}

/* A signal that the process's own threads keep out stays out, although the comm's thread was there before they did. */
static void signals_are_for_others(void)
{
    struct qr_comm c;
    sigset_t stop, before, pending;
    open_threads(&c, 1);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stop, &before);
    kill(getpid(), SIGTERM); /* would end the process in a thread that lets it in */
    usleep(20000);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGTERM));
    CHECK(sigwaitinfo(&stop, NULL) == SIGTERM);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    qr_comm_close(&c);
}

int main(void)
{
    const char *text = getenv("QUIRE_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20261121;
    printf("seed %llu\n", (unsigned long long)seed);
    struct qr_comm single;
    qr_comm_open_single(&single);
    rig_run(&single, seed, N_CALLS, N_MAX);
    qr_comm_close(&single);
    for (int i = 0; i < QR_COUNT(transports); i++) {
        const struct transport *t = &transports[i];
        for (int32_t n = 1; n <= 8; n++)
            with_ranks(t, n, random_calls, &seed);
        with_ranks(t, 13, few_calls, &seed);
        with_ranks(t, t->odd, few_calls, &seed);
        printf("PASS random calls of 1 to %d ranks are the serial tree's (%s)\n", t->odd, t->name);
        same_sum_of_leaves(t);
        printf("PASS 1 to 16 ranks add 16 leaves to the same bits (%s)\n", t->name);
        faults(t);
        printf("PASS whoever does otherwise, leaves or gives up is named to all (%s)\n", t->name);
    }
    signals_are_for_others();
    printf("PASS a comm's thread takes no signals\n7 passed, 0 failed, 0 skipped\n");
    return 0;
}
