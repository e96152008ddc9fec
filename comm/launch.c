/* launch.c - makes ranks of one process: fork before there are threads, or a launcher's group. Rank 0 stays the
 * process that the terminal and the service manager know. Children die with it (PR_SET_PDEATHSIG), and it reports how
 * each of them ended. Each rank may run on its share of the processors. Runs on the main thread, before any other
 * exists. */
#include "comm/launch.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#define PATIENCE_US 5000000    /* with children of a rank 0 that failed */
#define TEAM_PATIENCE_US 300000 /* where they have nothing to put in order, but may say that they died */

struct qr_comm_crew {
    int32_t n;                     /* children are ranks 1 .. n-1 */
    pid_t pid[QR_COMM_RANKS_MAX];  /* 0: ended, and asked how */
    int status[QR_COMM_RANKS_MAX]; /* waitpid's */
    int64_t patience_us;           /* with those of a rank 0 that failed */
    bool silent;                   /* about those that had to be ended */
};

/* ---- processors ---- */

void qr_comm_share_cpus(int32_t rank, int32_t n_ranks)
{
    QR_ASSERT(rank >= 0 && rank < n_ranks);
    QR_ASSERT(n_ranks <= QR_COMM_RANKS_MAX);
    struct qr_cpus c;
    qr_cpus_allowed(&c);
    qr_cpus_examine(&c, "", true); /* the first processors of all cores, then those beside them */
    if (c.n < n_ranks)
        return;
    const bool cores = c.n_cores >= n_ranks;
    const int32_t quota = qr_cpus_quota(""), most = quota > n_ranks ? quota : n_ranks; /* time for so many is all there is */
    int32_t n = cores ? c.n_cores : c.n;
    n = quota > 0 && most < n ? most : n;
    const int32_t first = (int32_t)((int64_t)n * rank / n_ranks), end = (int32_t)((int64_t)n * (rank + 1) / n_ranks);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int32_t i = 0; i < c.n; i++) {
        int32_t at = i;
        if (cores) /* the place of its core among the cores */
            for (at = 0; at < c.n_cores && c.core[at] != c.core[i];)
                at++;
        if (at >= first && at < end && c.cpu[i] < CPU_SETSIZE)
            CPU_SET(c.cpu[i], &set);
    }
    sched_setaffinity(0, sizeof set, &set); /* refused: it runs wherever it may, as before */
}

/* ---- children ---- */

static void end_all(struct qr_comm_crew *crew)
{
    for (int32_t r = 1; r < crew->n; r++)
        if (crew->pid[r] > 0) {
            kill(crew->pid[r], SIGKILL);
            while (waitpid(crew->pid[r], &crew->status[r], 0) < 0 && errno == EINTR)
                ;
            crew->pid[r] = 0;
        }
}

/* A child goes with its parent, also when that died before this was said. */
static void follow(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

/* *rank: which one this process has become. */
static int fork_ranks(struct qr_comm_shared *shared, struct qr_comm_crew *crew, int32_t *rank, struct qr_err *err)
{
    char text[128];
    const pid_t parent = getpid();
    qr_comm_shared_set_pid(shared, 0, (int32_t)parent);
    fflush(NULL); /* or everybody writes what is in the buffers */
    for (int32_t r = 1; r < crew->n; r++) {
        const pid_t pid = fork();
        if (pid < 0) {
            const int cause = errno;
            end_all(crew);
            return qr_err_set(err, QR_E_NO_ROOM, "cannot start rank %d of %d: %s", r, crew->n, qr_errno_text(text, cause));
        }
        if (pid == 0) {
            follow(parent);
            *rank = r;
            return 0;
        }
        crew->pid[r] = pid;
        qr_comm_shared_set_pid(shared, r, (int32_t)pid);
    }
    *rank = 0;
    return 0;
}

static int launch_processes(struct qr_comm *c, struct qr_comm_crew **crew, const struct qr_comm_launch_options *o, struct qr_err *err)
{
    struct qr_comm_shared *shared;
    int32_t rank = 0;
    int rc = qr_comm_shared_new(&shared, o->n_ranks, err);
    if (rc)
        return rc;
    struct qr_comm_crew *mine = qr_alloc(1, sizeof *mine);
    mine->n = o->n_ranks;
    mine->patience_us = PATIENCE_US;
    rc = fork_ranks(shared, mine, &rank, err);
    if (rc || rank > 0) {
        qr_free(mine);
        mine = NULL;
    }
    if (rc) {
        qr_comm_shared_free(shared);
        return rc;
    }
    if (o->share_cpus)
        qr_comm_share_cpus(rank, o->n_ranks);
    qr_comm_open_shm(c, shared, rank);
    *crew = mine;
    return 0;
}

/* Launchers bind ranks to cores unless they are told not to; where none has, ranks of one machine share it as forked ones do. */
static int launch_group(struct qr_comm *c, const struct qr_comm_launch_options *o, const struct qr_comm_group *g, struct qr_err *err)
{
    if (o->n_ranks != 0 && o->n_ranks != g->size)
        return qr_err_set(err, QR_E_USAGE, "%d ranks asked for, but %s started %d: leave it to %s, or start without it", o->n_ranks, g->launcher, g->size,
                          g->launcher);
    if (g->size > QR_COMM_RANKS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%s started %d ranks, expected 1 to %d", g->launcher, g->size, QR_COMM_RANKS_MAX);
    if (o->share_cpus && g->local_size > 1 && qr_cpu_count() >= sysconf(_SC_NPROCESSORS_ONLN))
        qr_comm_share_cpus(g->local_rank, g->local_size);
    return qr_comm_group_open(c, g, o->meeting, err);
}

/* A person said which rank this is. */
static int launch_one(struct qr_comm *c, const struct qr_comm_launch_options *o, struct qr_err *err)
{
    const struct qr_comm_group g = {.launcher = "--rank", .rank = (int32_t)o->meeting->rank, .size = o->n_ranks, .local_size = 1, .at = "127.0.0.1"};
    if (o->n_ranks < 2)
        return qr_err_set(err, QR_E_USAGE, "--rank %d, but of how many is not said: give their number as well, 2 or more", g.rank);
    if (g.rank >= g.size)
        return qr_err_set(err, QR_E_USAGE, "--rank must be from 0 to %d of %d ranks, found %d", g.size - 1, g.size, g.rank);
    return launch_group(c, o, &g, err);
}

int qr_comm_launch(struct qr_comm *c, struct qr_comm_crew **crew, const struct qr_comm_launch_options *o, struct qr_err *err)
{
    QR_ASSERT(c != NULL && crew != NULL);
    QR_ASSERT(o != NULL && err != NULL);
    *crew = NULL;
    if (o->n_ranks < 0 || o->n_ranks > QR_COMM_RANKS_MAX)
        return qr_err_set(err, QR_E_USAGE, "%d ranks, expected 1 to %d", o->n_ranks, QR_COMM_RANKS_MAX);
    struct qr_comm_group g;
    if (o->meeting && o->meeting->rank >= 0)
        return launch_one(c, o, err);
    if (qr_comm_group_find(&g))
        return launch_group(c, o, &g, err);
    if (o->n_ranks > 1)
        return launch_processes(c, crew, o, err);
    qr_comm_open_single(c);
    return 0;
}

/* ---- their end ---- */

/* Asks for as long as there is patience, or without an end. */
static void wait_all(struct qr_comm_crew *crew, bool well)
{
    const int64_t until = qr_clock_us() + crew->patience_us;
    for (int32_t r = 1; r < crew->n; r++)
        while (crew->pid[r] > 0) {
            const pid_t pid = waitpid(crew->pid[r], &crew->status[r], well ? 0 : WNOHANG);
            if (pid == crew->pid[r])
                crew->pid[r] = 0;
            else if (pid < 0 && errno != EINTR)
                qr_panic("waiting for rank %d (process %d): %s", r, (int)crew->pid[r], strerror(errno));
            else if (!well && qr_clock_us() > until)
                break;
            else if (!well)
                usleep(5000);
        }
}

static const char *how(char text[128], int status)
{
    if (WIFSIGNALED(status))
        snprintf(text, 128, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, 128, "exited with status %d", WEXITSTATUS(status));
    return text;
}

int qr_comm_crew_end(struct qr_comm_crew *crew, bool well, int status, struct qr_err *err)
{
    QR_ASSERT(err != NULL);
    QR_ASSERT(crew == NULL || crew->n > 1);
    if (!crew)
        return well ? 0 : (int)err->code;
    char text[128];
    int rc = well ? 0 : (int)err->code;
    wait_all(crew, well);
    for (int32_t r = 1; r < crew->n; r++) {
        const int s = crew->status[r];
        const bool ended = crew->pid[r] == 0, good = ended && WIFEXITED(s) && (WEXITSTATUS(s) == 0 || WEXITSTATUS(s) == status);
        const size_t n = strlen(err->msg);
        if (well && !good) {
            rc = qr_err_set(err, QR_E_CLOSED, "rank %d %s", r, how(text, s));
            break;
        }
        if (!well && ended && WIFSIGNALED(s))
            snprintf(err->msg + n, sizeof err->msg - n, "; rank %d %s", r, how(text, s));
        else if (!well && !ended && !crew->silent)
            snprintf(err->msg + n, sizeof err->msg - n, "; rank %d did not end by itself", r);
    }
    end_all(crew);
    qr_free(crew);
    return rc;
}

/* ---- a team ---- */

int qr_comm_team_begin(struct qr_comm_team *t, const struct qr_comm_launch_options *o, struct qr_err *err)
{
    static const int ending[] = {SIGTERM, SIGHUP, SIGQUIT, SIGINT};
    QR_ASSERT(t != NULL && o->n_ranks >= 1);
    QR_ASSERT(err != NULL);
    *t = (struct qr_comm_team){0};
    const bool by_hand = o->meeting && o->meeting->rank >= 0;
    if (o->n_ranks == 1 && !by_hand)
        return 0;
    int rc = qr_comm_launch(&t->comm, &t->crew, o, err);
    if (rc == 0 && t->crew) {
        t->crew->patience_us = TEAM_PATIENCE_US;
        t->crew->silent = true;
    }
    if (rc || t->comm.rank == 0)
        return rc;
    for (int i = 0; i < QR_COUNT(ending) - by_hand; i++) /* a terminal of its own may end it */
        signal(ending[i], SIG_IGN);
    if (!freopen("/dev/null", "w", stdout))
        qr_panic("cannot open /dev/null: %s", strerror(errno));
    return 0;
}

struct qr_comm *qr_comm_team_comm(struct qr_comm_team *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->comm.size >= 0);
    return t->comm.size > 1 ? &t->comm : NULL;
}

int qr_comm_team_end(struct qr_comm_team *t, int rc, struct qr_err *err)
{
    QR_ASSERT(t != NULL && err != NULL);
    QR_ASSERT(rc == 0 || rc == (int)err->code);
    if (t->comm.size < 2)
        return rc;
    const bool first = t->comm.rank == 0;
    if (rc)
        qr_comm_abort(&t->comm, err->msg);
    const int32_t rank = t->comm.rank;
    const bool apart = qr_comm_apart(&t->comm);
    qr_comm_close(&t->comm);
    if (rc && apart && !first)
        qr_log(QR_LOG_ERROR, "ranks", "rank %d ends: %s", rank, err->msg);
    return first ? qr_comm_crew_end(t->crew, rc == 0, 0, err) : rc;
}
