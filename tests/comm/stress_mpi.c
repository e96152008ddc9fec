/* Ranks that mpirun started: random calls are the serial tree's sums, bit for bit; a rank that gives up, leaves or starts something else is named to all, one
 * that is killed by mpirun. Started plainly, this program has mpirun start it again; it is skipped where there is no mpirun or no libquire_mpi.so. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/library.h"
#include "comm/launch.h"
#include "tests/comm/rig.h"

#if defined(__SANITIZE_ADDRESS__)
enum { N_CALLS = 20, N_MAX = 5000 };
#else
enum { N_CALLS = 60, N_MAX = 20000 };
#endif
enum { N_LARGE = 400000, SEED = 20261123 };

/* ---- a rank ---- */

/* Rank 1 does something else in call 2. What the others hear goes to standard output. */
static int faulty(struct qr_comm *c, const char *kind, struct qr_err *err)
{
    float data[3000] = {0};
    int rc = 0;
    for (int i = 0; i < 4 && rc == 0; i++) {
        struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = data, .n = 3000};
        const bool odd = c->rank == 1 && i == 2;
        if (odd && strcmp(kind, "leaves") == 0)
            return 0;
        if (odd && strcmp(kind, "is-killed") == 0)
            raise(SIGKILL);
        if (odd && strcmp(kind, "gives-up") == 0)
            qr_comm_abort(c, "the disk is full");
        if (odd && strcmp(kind, "differs") == 0)
            call.n = 10;
        rc = qr_comm_run(c, &call, err);
    }
    return rc;
}

static int be_rank(const char *what)
{
    struct qr_comm c;
    struct qr_comm_crew *crew;
    struct qr_err err;
    struct qr_comm_launch_options o = {.n_ranks = 5};
    CHECK(qr_comm_launch(&c, &crew, &o, &err) == QR_E_USAGE && strstr(err.msg, "5 ranks asked for, but mpirun started"));
    o.n_ranks = 0;
    CHECK_OK(qr_comm_launch(&c, &crew, &o, &err));
    CHECK(strcmp(qr_comm_name(&c), "mpi") == 0 && crew == NULL);
    int rc = 0;
    if (strcmp(what, "random") == 0) {
        rig_run(&c, SEED, N_CALLS, N_MAX);
        rig_run(&c, SEED + 1, 12, N_LARGE);
        CHECK_OK(qr_comm_barrier(&c, &err));
    } else {
        rc = faulty(&c, what, &err);
    }
    const int32_t rank = c.rank;
    char line[600];
    const int n = snprintf(line, sizeof line, "rank %d heard: %s\n", rank, rc ? err.msg : "nothing");
    CHECK(write(STDOUT_FILENO, line, (size_t)n) == n);
    qr_comm_close(&c);
    return rc ? 4 : 0;
}

/* ---- who starts them ---- */

struct job {
    const char *n, *what, *said[4];
    bool well;
    pid_t pid;
    int out;
};

static void start(struct job *j)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    j->out = memfd_create("said", MFD_CLOEXEC);
    CHECK(j->out >= 0 && length > 0);
    self[length] = 0;
    j->pid = fork();
    CHECK(j->pid >= 0);
    if (j->pid > 0)
        return;
    dup2(j->out, STDOUT_FILENO);
    dup2(j->out, STDERR_FILENO);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI's own */
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0); /* containers forbid it, and Open MPI says so on every rank */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0); /* more ranks than processors: who waits without a pause takes them from who works */
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0); /* seconds that mpirun gives the rest when a rank failed */
    execlp("mpirun", "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", j->n, self, j->what, (char *)NULL);
    _exit(127);
}

/* One job after the other: ranks of mpirun look for messages without a pause, and many at once would take the processors from each other. */
static void check(struct job *j)
{
    char text[10000];
    int status;
    const int64_t began = qr_clock_us();
    start(j);
    CHECK(waitpid(j->pid, &status, 0) == j->pid);
    const ssize_t size = pread(j->out, text, sizeof text - 1, 0);
    CHECK(size >= 0);
    text[size] = 0;
    close(j->out);
    bool good = (WIFEXITED(status) && WEXITSTATUS(status) == 0) == j->well && (j->well || qr_clock_us() - began < 2 * SOON_US);
    for (int i = 0; i < 4 && j->said[i]; i++)
        good = good && strstr(text, j->said[i]);
    if (!good) {
        fprintf(stderr, "mpirun of %s with \"%s\" ended with status %d after %lld us:\n%s\n", j->n, j->what, status, (long long)(qr_clock_us() - began), text);
        exit(1);
    }
}

static bool mpirun_is_there(void)
{
    char path[QR_PATH_MAX];
    if (!qr_library_find(path, "libquire_mpi.so"))
        return false;
    return system("mpirun --version >/dev/null 2>&1") == 0;
}

int main(int argc, char **argv)
{
    struct qr_comm_group g;
    if (qr_comm_group_find(&g))
        return be_rank(argc > 1 ? argv[1] : "random");
    if (!mpirun_is_there()) {
        printf("SKIP stress_mpi: no libquire_mpi.so or no mpirun here (apt-get install libopenmpi-dev openmpi-bin)\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    struct job job[] = {
        {.n = "3", .what = "random", .said = {"rank 0 heard: nothing", "rank 1 heard: nothing", "rank 2 heard: nothing"}, .well = true},
        {.n = "2", .what = "leaves", .said = {"rank 0 heard: rank 1 has closed; the others waited for it in all_reduce of 3000 f32"}},
        {.n = "3", .what = "gives-up", .said = {"rank 0 heard: rank 1 gave up: the disk is full", "rank 2 heard: rank 1 gave up: the disk is full"}},
        {.n = "2", .what = "differs", .said = {"heard: ranks started different calls: rank 0 all_reduce of 3000 f32, rank 1 all_reduce of 10 f32"}},
        {.n = "3", .what = "is-killed", .said = {"rank 1", "signal 9"}}};
    check(&job[0]);
    printf("PASS random calls of 3 ranks of mpirun are the serial tree's\n");
    for (int i = 1; i < 5; i++)
        check(&job[i]);
    printf("PASS whoever dies, leaves, gives up or does otherwise is named\n2 passed, 0 failed, 0 skipped\n");
    return 0;
}
