#include "cli/train_screen.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

#define BAR_MAX 40

void qr_train_screen_open(struct qr_train_screen *s, int64_t first, int64_t last)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(first >= 0 && last > 0);
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    struct winsize ws;
    *s = (struct qr_train_screen){.first = first, .last = last, .began_us = qr_clock_us(), .columns = 80};
    s->bar = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    s->colour = s->bar && !(no_colour && *no_colour);
    if (s->bar && ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0)
        s->columns = ws.ws_col;
}

static void erase(const struct qr_train_screen *s)
{
    if (s->bar)
        fputs("\r\033[K", stdout);
}

/* "1h02m", "3m12s", "9s" */
static const char *duration(char text[32], double seconds)
{
    const int64_t n = isfinite(seconds) ? (int64_t)(seconds + 0.5) : 0;
    if (n >= 86400)
        snprintf(text, 32, "%lldd%02lldh", (long long)(n / 86400), (long long)(n / 3600 % 24));
    else if (n >= 3600)
        snprintf(text, 32, "%lldh%02lldm", (long long)(n / 3600), (long long)(n / 60 % 60));
    else if (n >= 60)
        snprintf(text, 32, "%lldm%02llds", (long long)(n / 60), (long long)(n % 60));
    else
        snprintf(text, 32, "%llds", (long long)n);
    return text;
}

/* Of what is left, at the pace so far, evaluations and saving included. */
static double left_s(const struct qr_train_screen *s, int64_t step)
{
    const double gone = (double)(qr_clock_us() - s->began_us) * 1e-6;
    return step > s->first ? gone / (double)(step - s->first) * (double)(s->last - step) : 0;
}

static void put_bar(const struct qr_train_screen *s, int64_t step)
{
    char text[32], tail[96];
    const int n_tail = snprintf(tail, sizeof tail, " %lld/%lld  %lld %%  eta %s", (long long)step, (long long)s->last,
                                (long long)(100 * step / s->last), duration(text, left_s(s, step)));
    int room = s->columns - n_tail - 3;
    room = room > BAR_MAX ? BAR_MAX : room;
    if (room < 4) {
        fputs(tail + 1, stdout);
        return;
    }
    const int full = (int)(room * step / s->last);
    fputs(s->colour ? "[\033[36m" : "[", stdout);
    for (int i = 0; i < room; i++)
        putchar(i < full ? '#' : '.');
    fputs(s->colour ? "\033[0m]" : "]", stdout);
    fputs(tail, stdout);
}

void qr_train_screen_step(struct qr_train_screen *s, const struct qr_train_row *row, bool line)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(row != NULL && row->step <= s->last);
    char text[32];
    erase(s);
    if (line) {
        printf("step %*lld/%lld  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s", (int)snprintf(NULL, 0, "%lld", (long long)s->last), (long long)row->step,
               (long long)s->last, row->loss, row->norm, row->lr, row->tokens_s);
        if (isfinite(row->peak_share))
            printf("  %.1f %% of peak", 100 * row->peak_share);
        if (isfinite(row->waited))
            printf("  waited %.1f %%", 100 * row->waited / row->seconds);
        printf("  eta %s", duration(text, left_s(s, row->step)));
        if (isfinite(row->eval_loss))
            printf("  held-out loss %.4f", row->eval_loss);
        putchar('\n');
    }
    if (s->bar)
        put_bar(s, row->step);
    fflush(stdout);
}

void qr_train_screen_say(struct qr_train_screen *s, const char *fmt, ...)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(fmt != NULL);
    va_list args;
    erase(s);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void qr_train_screen_close(struct qr_train_screen *s)
{
    QR_ASSERT(s != NULL);
    erase(s);
    fflush(stdout);
    s->bar = false;
    QR_ASSERT(s->last > 0);
}
