/* pair.c - two processes as one service. The keeper has one thread and no memory of its own: it waits for two pipes, each of which closes with a process.
 * When the process that decodes ends, however that comes, the other is asked to end, then ended, and the directory goes. When the other dies it is started
 * again, later each time that it did not live long. The process that decodes never waits: it computes prompts itself meanwhile. The keeper and its child are
 * a process group of their own, so that Ctrl-C reaches the first process alone, which decides. */
#include "cli/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/launch.h"

#define PATIENCE_MS 5000     /* with one that was asked to end */
#define AGAIN_MS 100         /* the first time; twice that each further time, */
#define AGAIN_MS_MAX 10000   /* up to this, */
#define LIVED_US 30000000    /* until one has lived so long */

static int make_dir(struct qr_pair *p, struct qr_err *err)
{
    static const char name[] = "quire-XXXXXX";
    char text[128];
    const char *place[] = {getenv("XDG_RUNTIME_DIR"), "/run", "/tmp"};
    for (int i = 0; i < QR_COUNT(place); i++) {
        if (!place[i] || snprintf(p->dir, sizeof p->dir, "%s/%s", place[i], name) >= (int)sizeof p->dir || !mkdtemp(p->dir))
            continue;
        snprintf(p->socket, sizeof p->socket, "unix:%s/peers", p->dir);
        p->peer = p->socket;
        snprintf(p->http, sizeof p->http, "%s/http", p->dir);
        return 0;
    }
    return qr_err_set(err, QR_E_IO, "--pair: cannot make a directory for its sockets in /tmp: %s", qr_errno_text(text, errno));
}

static void remove_dir(const struct qr_pair *p)
{
    unlink(p->socket + strlen("unix:"));
    unlink(p->http);
    rmdir(p->dir);
}

/* Whether the pipe closes within that time; -1: however long it takes. */
static bool closes(int fd, int timeout_ms)
{
    struct pollfd at = {.fd = fd, .events = POLLIN};
    int rc;
    while ((rc = poll(&at, 1, timeout_ms)) < 0 && errno == EINTR)
        ;
    return rc > 0;
}

/* Until one of both has closed. True: the first. */
static bool first_closes(int first, int second)
{
    struct pollfd at[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
    while (poll(at, 2, -1) < 0 && errno == EINTR)
        ;
    return at[0].revents != 0;
}

static void tell_how(int status, int again_ms)
{
    const bool killed = WIFSIGNALED(status);
    qr_log(QR_LOG_WARN, "pair", "the prefill process %s %d; prompts are computed here until it runs again in_ms=%d",
           killed ? "was ended by signal" : "ended with status", killed ? WTERMSIG(status) : WEXITSTATUS(status), again_ms);
}

/* What became of one child: it has died and is to be started again after *again_ms, or the service is over (false). */
static bool attend(pid_t child, int alive, int here, int *again_ms)
{
    const int64_t began_us = qr_clock_us();
    int status = 0;
    const bool over = first_closes(alive, here);
    if (over) {
        kill(child, SIGTERM);
        if (!closes(here, PATIENCE_MS))
            kill(child, SIGKILL);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (over)
        return false;
    if (qr_clock_us() - began_us > LIVED_US)
        *again_ms = AGAIN_MS;
    tell_how(status, *again_ms);
    const bool ends = closes(alive, *again_ms);
    *again_ms = *again_ms < AGAIN_MS_MAX / 2 ? 2 * *again_ms : AGAIN_MS_MAX;
    return !ends;
}

/* Returns in each child that it starts; the keeper itself ends here. */
static void keep(struct qr_pair *p, int alive)
{
    int again_ms = AGAIN_MS, pipe_of[2];
    const pid_t self = getpid();
    setpgid(0, 0);
    qr_thread_set_name("quire-keeper");
    do {
        fflush(NULL);
        const pid_t child = pipe2(pipe_of, O_CLOEXEC) == 0 ? fork() : -1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != self)
                _exit(1);
            close(alive);
            close(pipe_of[0]);
            p->prefill = true; /* and it keeps the pipe's other end for as long as it lives */
            return;
        }
        if (child < 0) {
            qr_log(QR_LOG_ERROR, "pair", "cannot start the prefill process: %s", strerror(errno));
            break;
        }
        close(pipe_of[1]);
        qr_log(QR_LOG_INFO, "pair", "the prefill process starts pid=%d http=unix:%s", (int)child, p->http);
        const bool again = attend(child, alive, pipe_of[0], &again_ms);
        close(pipe_of[0]);
        if (!again)
            break;
    } while (true);
    closes(alive, -1);
    remove_dir(p);
    _exit(0);
}

int qr_pair_begin(struct qr_pair *p, struct qr_err *err)
{
    int pipe_of[2];
    char text[128];
    QR_ASSERT(p != NULL);
    QR_ASSERT(err != NULL);
    *p = (struct qr_pair){.alive = -1};
    int rc = make_dir(p, err);
    if (rc)
        return rc;
    fflush(NULL);
    if (pipe2(pipe_of, O_CLOEXEC) != 0 || (p->keeper = fork()) < 0) {
        rc = qr_err_set(err, QR_E_NO_ROOM, "--pair: cannot start another process: %s", qr_errno_text(text, errno));
        remove_dir(p);
        return rc;
    }
    if (p->keeper == 0) {
        close(pipe_of[1]);
        keep(p, pipe_of[0]);
    } else {
        close(pipe_of[0]);
        p->alive = pipe_of[1];
    }
    qr_comm_share_cpus(p->prefill, 2);
    return 0;
}

void qr_pair_end(struct qr_pair *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->prefill || p->keeper > 0);
    if (p->prefill)
        return;
    close(p->alive);
    while (waitpid(p->keeper, NULL, 0) < 0 && errno == EINTR)
        ;
    remove_dir(p); /* a keeper that was killed has not */
}
