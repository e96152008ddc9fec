#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/utf8.h"

#define LINE_BYTES 1024   /* three times as many are less than what a pipe that can be written to takes at once */
#define PATIENCE_MS 100   /* for a reader that was busy */

static _Atomic int level_now = QR_LOG_INFO; /* the settings a process has */
static const char *process_now = "";        /* borrowed */

/* A reader of stderr may stand still: a pager, a terminal after Ctrl-S, a collector with a full disk. No thread that
 * logs waits for it more than once: lines are lost then, and counted. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* between asking for room and taking it */
static long n_lost;                                      /* under turn */

static void put_line(const char *line, size_t n)
{
    char told[80];
    struct pollfd at = {.fd = STDERR_FILENO, .events = POLLOUT};
    pthread_mutex_lock(&turn);
    if (poll(&at, 1, n_lost > 0 ? 0 : PATIENCE_MS) == 0) {
        n_lost++;
    } else {
        const int m = n_lost > 0 ? snprintf(told, sizeof told, "... %ld lines of the log are lost here: nobody read them\n", n_lost) : 0;
        n_lost = 0;
        ssize_t written = m > 0 ? write(STDERR_FILENO, told, (size_t)m) : 0;
        written = write(STDERR_FILENO, line, n);
        (void)written; /* a log that cannot be written has nowhere to be reported */
    }
    pthread_mutex_unlock(&turn);
}

void qr_log_set_process(const char *name)
{
    QR_ASSERT(name != NULL);
    QR_ASSERT(strlen(name) < 32);
    process_now = name;
}

void qr_log_set_level(enum qr_log_level level)
{
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

bool qr_log_on(enum qr_log_level level)
{
    return (int)level <= atomic_load_explicit(&level_now, memory_order_relaxed);
}

void qr_log(enum qr_log_level level, const char *module, const char *fmt, ...)
{
    static const char *const name[] = {"error", "warn", "info", "debug"};
    QR_ASSERT(module != NULL && strlen(module) < 64); /* room for the message is computed from it */
    QR_ASSERT((int)level >= 0 && (int)level < QR_COUNT(name));
    if (!qr_log_on(level))
        return;
    char line[LINE_BYTES], text[3 * LINE_BYTES];
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    int m = snprintf(line + n, sizeof line - n, ".%03dZ %s %s%s%s ", (int)(ts.tv_nsec / 1000000), name[level], process_now,
                     *process_now ? "/" : "", module);
    n += (size_t)m;
    va_list ap;
    va_start(ap, fmt);
    m = vsnprintf(line + n, sizeof line - n, fmt, ap);
    va_end(ap);
    n += m < 0 ? 0 : (size_t)m;
    if (n > sizeof line - 1) {
        n = sizeof line - 1;
        n -= (size_t)qr_utf8_incomplete_tail(line, n);
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    n = qr_utf8_lossy(text, line, n); /* names from elsewhere, which may also have been cut within a character */
    text[n++] = '\n';
    put_line(text, n);
}

void qr_log_text(enum qr_log_level level, const char *module, const char *fact, const char *key, const char *text)
{
    char quoted[LINE_BYTES - 160]; /* the rest: time, level, module and fact */
    size_t n = 0;
    QR_ASSERT(fact != NULL && key != NULL && text != NULL);
    QR_ASSERT(strlen(fact) + strlen(key) < 60);
    for (; *text && n + 2 < sizeof quoted; text++) {
        if (*text == '"' || *text == '\\')
            quoted[n++] = '\\';
        quoted[n++] = *text;
    }
    if (*text)
        n -= (size_t)qr_utf8_incomplete_tail(quoted, n);
    quoted[n] = 0;
    qr_log(level, module, "%s %s=\"%s\"", fact, key, quoted);
}
