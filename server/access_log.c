/* access_log.c - two buffers: lines are put into one while the thread writes the other. A reader of a pipe that stands still, or
 * a full disk, costs lines and no time. A write takes no more than a pipe that is ready surely has room for, so it does not
 * block there; a file's may, and only the thread waits. put and reopen: the loop thread; the rest: the log's own. */
#include "server/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#define WRITE_BYTES 4096    /* PIPE_BUF: a pipe that can be written to takes so much at once */
#define POLL_MS 100
#define LAST_US 1000000     /* for what is left at the end */
#define JOIN_S 2            /* a file that a write waits for (NFS) does not keep the process */

struct qr_access_log {
    char path[QR_PATH_MAX];
    pthread_t thread;
    pthread_mutex_t lock;                /* guards what follows, up to the thread's own */
    pthread_cond_t changed;
    char *filling;                       /* owned [QR_ACCESS_LOG_BYTES] */
    size_t n_filling;
    int64_t n_untold;                    /* lines lost since the last line that tells of them */
    bool reopen, closing;
    _Atomic int64_t n_lost;
    /* The thread's own: */
    char *writing;                       /* owned [QR_ACCESS_LOG_BYTES] */
    int fd;
    bool torn;                           /* the file ends in the middle of a line */
    bool failed;                         /* the last write did; it has been logged */
    int64_t until_us;                    /* of the end: 0 before it */
};

const char *qr_access_time(char out[QR_ACCESS_TIME])
{
    struct timespec ts;
    struct tm tm;
    QR_ASSERT(out != NULL);
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    const size_t n = strftime(out, QR_ACCESS_TIME, "%Y-%m-%dT%H:%M:%S", &tm);
    QR_ASSERT(n > 0);
    snprintf(out + n, QR_ACCESS_TIME - n, ".%03dZ", (int)(ts.tv_nsec / 1000000));
    return out;
}

/* ---- the thread ---- */

static int open_file(const char *path)
{
    if (strcmp(path, "-") == 0)
        return STDOUT_FILENO;
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
}

static void close_file(int fd)
{
    if (fd != STDOUT_FILENO)
        close(fd);
}

static void open_again(struct qr_access_log *l)
{
    char why[128];
    const int fd = open_file(l->path);
    if (fd < 0) {
        qr_log_text(QR_LOG_ERROR, "server", "the access log keeps its old file", "reason", qr_errno_text(why, errno));
        return;
    }
    close_file(l->fd);
    l->fd = fd;
    l->torn = false;
}

static bool is_over(struct qr_access_log *l)
{
    if (l->until_us != 0)
        return qr_clock_us() > l->until_us;
    pthread_mutex_lock(&l->lock);
    if (l->closing)
        l->until_us = qr_clock_us() + LAST_US;
    pthread_mutex_unlock(&l->lock);
    return false;
}

/* How many bytes were written. */
static size_t write_bytes(struct qr_access_log *l, const char *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        struct pollfd at = {.fd = l->fd, .events = POLLOUT};
        const int ready = poll(&at, 1, POLL_MS);
        const size_t part = n - done < WRITE_BYTES ? n - done : WRITE_BYTES;
        const ssize_t took = ready > 0 ? write(l->fd, bytes + done, part) : 0;
        if (took < 0 && errno != EAGAIN && errno != EINTR)
            break;
        done += took > 0 ? (size_t)took : 0;
        if (took <= 0 && is_over(l)) {
            errno = EAGAIN;
            break;
        }
    }
    return done;
}

/* Whole lines. Returns how many were not written, as a whole. */
static int64_t write_lines(struct qr_access_log *l, const char *lines, size_t n)
{
    char why[128];
    int64_t n_lost = 0;
    const bool begun = !l->torn || write_bytes(l, "\n", 1) == 1;
    const size_t done = begun ? write_bytes(l, lines, n) : 0;
    if (begun)
        l->torn = done > 0 && lines[done - 1] != '\n';
    if (done < n && !l->failed)
        qr_log_text(QR_LOG_ERROR, "server", "the access log cannot be written, lines are lost", "reason", qr_errno_text(why, errno));
    l->failed = done < n;
    for (const char *at = lines + done; at < lines + n; at++)
        n_lost += *at == '\n';
    return n_lost;
}

/* False: it could not be written. */
static bool tell_lost(struct qr_access_log *l, int64_t n)
{
    char line[100], now[QR_ACCESS_TIME];
    snprintf(line, sizeof line, "{\"time\":\"%s\",\"lost_lines\":%lld}\n", qr_access_time(now), (long long)n);
    return write_lines(l, line, strlen(line)) == 0;
}

/* n lines of `writing`, then how many are missing behind them, those included that cannot be written now. */
static void write_and_tell(struct qr_access_log *l, size_t n, int64_t n_untold)
{
    const int64_t n_lost = n > 0 ? write_lines(l, l->writing, n) : 0;
    atomic_fetch_add(&l->n_lost, n_lost);
    n_untold += n_lost;
    if (n_untold == 0 || (n_lost == 0 && tell_lost(l, n_untold)))
        return;
    pthread_mutex_lock(&l->lock);
    l->n_untold += n_untold;
    pthread_mutex_unlock(&l->lock);
}

static void *run(void *arg)
{
    struct qr_access_log *l = arg;
    bool over = false;
    qr_thread_set_name("quire-access");
    while (!over) {
        pthread_mutex_lock(&l->lock);
        while (l->n_filling == 0 && !l->reopen && !l->closing)
            pthread_cond_wait(&l->changed, &l->lock);
        char *lines = l->filling;
        const size_t n = l->n_filling;
        const bool reopen = l->reopen;
        const int64_t n_untold = l->n_untold;
        over = l->closing && n == 0;
        l->filling = l->writing;
        l->writing = lines;
        l->n_filling = 0;
        l->n_untold = 0;
        l->reopen = false;
        pthread_mutex_unlock(&l->lock);
        write_and_tell(l, n, n_untold);
        if (reopen) /* behind what was put before */
            open_again(l);
    }
    return NULL;
}

/* ---- the loop's side ---- */

int qr_access_log_open(struct qr_access_log **out, const char *path, struct qr_err *err)
{
    char why[128];
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    if (strlen(path) >= QR_PATH_MAX)
        return qr_err_set(err, QR_E_USAGE, "--access-log: a path of %zu bytes is too long", strlen(path));
    const int fd = open_file(path);
    if (fd < 0)
        return qr_err_set(err, QR_E_IO, "cannot open the access log '%s': %s", path, qr_errno_text(why, errno));
    struct qr_access_log *l = qr_alloc(1, sizeof *l);
    snprintf(l->path, sizeof l->path, "%s", path);
    l->fd = fd;
    l->filling = qr_alloc(QR_ACCESS_LOG_BYTES, 1);
    l->writing = qr_alloc(QR_ACCESS_LOG_BYTES, 1);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    qr_thread_start(&l->thread, run, l, "the access log");
    *out = l;
    return 0;
}

void qr_access_log_close(struct qr_access_log *l)
{
    struct timespec until;
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_mutex_unlock(&l->lock);
    pthread_cond_signal(&l->changed);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += JOIN_S;
    if (pthread_timedjoin_np(l->thread, NULL, &until) != 0) /* it waits for its file, and goes with the process */
        return;
    close_file(l->fd);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    qr_free(l->filling);
    qr_free(l->writing);
    qr_free(l);
}

void qr_access_log_put(struct qr_access_log *l, const char *line, size_t n)
{
    QR_ASSERT(l != NULL && line != NULL);
    QR_ASSERT(n > 0 && n < QR_ACCESS_LOG_BYTES && line[n - 1] == '\n');
    pthread_mutex_lock(&l->lock);
    const bool fits = l->n_filling + n <= QR_ACCESS_LOG_BYTES, wake = fits && l->n_filling == 0;
    if (fits) {
        memcpy(l->filling + l->n_filling, line, n);
        l->n_filling += n;
    } else {
        l->n_untold++;
        atomic_fetch_add(&l->n_lost, 1);
    }
    pthread_mutex_unlock(&l->lock);
    if (wake)
        pthread_cond_signal(&l->changed);
}

void qr_access_log_reopen(struct qr_access_log *l)
{
    QR_ASSERT(l != NULL);
    pthread_mutex_lock(&l->lock);
    l->reopen = true;
    pthread_mutex_unlock(&l->lock);
    pthread_cond_signal(&l->changed);
}

int64_t qr_access_log_lost(struct qr_access_log *l)
{
    QR_ASSERT(l != NULL);
    return atomic_load(&l->n_lost);
}
