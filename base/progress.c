#include "base/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/size.h"

#define AFTER_US 1000000
#define EVERY_US 100000
#define LINE_MAX_BYTES 256
#define COLUMNS_USUAL 80

const char *qr_duration_text(char text[QR_DURATION_TEXT], double seconds)
{
    QR_ASSERT(text != NULL);
    const int64_t n = isfinite(seconds) && seconds > 0 ? (int64_t)(fmin(seconds, 1e9) + 0.5) : 0;
    if (n >= 86400)
        snprintf(text, QR_DURATION_TEXT, "%lldd%02lldh", (long long)(n / 86400), (long long)(n / 3600 % 24));
    else if (n >= 3600)
        snprintf(text, QR_DURATION_TEXT, "%lldh%02lldm", (long long)(n / 3600), (long long)(n / 60 % 60));
    else if (n >= 60)
        snprintf(text, QR_DURATION_TEXT, "%lldm%02llds", (long long)(n / 60), (long long)(n % 60));
    else
        snprintf(text, QR_DURATION_TEXT, "%llds", (long long)n);
    return text;
}

void qr_progress_open(struct qr_progress *p, const char *what)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(what != NULL);
    *p = (struct qr_progress){.what = what, .began_us = qr_clock_us(), .terminal = isatty(STDERR_FILENO)};
}

void qr_progress_end(struct qr_progress *p)
{
    QR_ASSERT(p != NULL);
    if (p->shown_us)
        fputs("\r\033[K", stderr);
    p->shown_us = 0;
}

bool qr_progress_due(struct qr_progress *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->began_us > 0);
    const int64_t now = qr_clock_us();
    const bool due = p->terminal && now - p->began_us >= AFTER_US && now - p->shown_us >= EVERY_US;
    p->shown_us = due ? now : p->shown_us;
    return due;
}

/* A line that reaches the last column would be wrapped, and stay. */
void qr_progress_say(struct qr_progress *p, const char *fmt, ...)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(fmt != NULL);
    char line[LINE_MAX_BYTES];
    struct winsize size;
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    fprintf(stderr, "\r\033[K%.*s", (known ? size.ws_col : COLUMNS_USUAL) - 1, line);
    fflush(stderr);
}

double qr_progress_left_s(const struct qr_progress *p, uint64_t done, uint64_t total)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(done <= total);
    return done > 0 ? (double)(qr_clock_us() - p->began_us) * 1e-6 * (double)(total - done) / (double)done : 0;
}

/* size: what `total` is, in words, or "". */
static void show(struct qr_progress *p, uint64_t done, uint64_t total, const char *size)
{
    char left[QR_DURATION_TEXT];
    if (total == 0 || !qr_progress_due(p))
        return;
    qr_duration_text(left, qr_progress_left_s(p, done, total));
    qr_progress_say(p, "%s %d %%%s%s%s%s%s", p->what, (int)(100.0 * (double)done / (double)total), size[0] ? " of " : "", size, done > 0 ? ", " : "",
                    done > 0 ? left : "", done > 0 ? " left" : "");
}

void qr_progress_show(void *progress, uint64_t done, uint64_t total)
{
    QR_ASSERT(progress != NULL);
    QR_ASSERT(done <= total);
    show(progress, done, total, "");
}

void qr_progress_show_bytes(void *progress, uint64_t done, uint64_t total)
{
    char size[QR_SIZE_TEXT];
    QR_ASSERT(progress != NULL);
    QR_ASSERT(done <= total);
    show(progress, done, total, qr_size_text(size, (int64_t)total));
}
