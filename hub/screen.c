#include "hub/screen.h"

#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"

#define EVERY_US 100000        /* on a terminal */
#define PLAIN_EVERY_US 15000000 /* elsewhere */

void qr_hub_screen_open(struct qr_hub_screen *s, const char *command, const struct qr_hub_fetch *fetch, int32_t n)
{
    QR_ASSERT(s != NULL && command != NULL);
    QR_ASSERT(fetch != NULL && n > 0);
    *s = (struct qr_hub_screen){.command = command, .fetch = fetch, .n = n, .told = qr_alloc((size_t)n, sizeof *s->told), .began_us = qr_clock_us(),
                                .terminal = isatty(STDERR_FILENO)};
    s->shown_us = s->began_us;
    for (int32_t i = 0; i < n; i++) {
        s->total += fetch[i].file->n_bytes;
        s->before += qr_hub_fetch_cached(fetch[i].cache, fetch[i].name, fetch[i].file);
    }
}

int64_t qr_hub_screen_got(const struct qr_hub_screen *s)
{
    int64_t got = 0;
    QR_ASSERT(s != NULL);
    for (int32_t i = 0; i < s->n; i++)
        got += s->fetch[i].done ? s->fetch[i].file->n_bytes : s->fetch[i].got;
    return got;
}

static const char *time_text(char text[32], double seconds)
{
    const int64_t t = seconds < 1e7 ? (int64_t)(seconds + 0.5) : 10000000;
    if (t < 60)
        snprintf(text, 32, "%d s", (int)t);
    else if (t < 3600)
        snprintf(text, 32, "%d min %02d s", (int)(t / 60), (int)(t % 60));
    else
        snprintf(text, 32, "%d h %02d min", (int)(t / 3600), (int)(t / 60 % 60));
    return text;
}

/* One line without its end: "3 of 7 files   1.2 GiB of 4.8 GiB   25 %   45.1 MiB/s   1 min 20 s left". */
static void print_line(const struct qr_hub_screen *s, int64_t now_us)
{
    char size[3][QR_SIZE_TEXT], left[32];
    int32_t n_done = 0, n_waiting = 0;
    for (int32_t i = 0; i < s->n; i++) {
        n_done += s->fetch[i].done;
        n_waiting += s->fetch[i].waits && !s->fetch[i].done;
    }
    if (n_waiting > 0 && n_done + n_waiting == s->n) {
        fputs("another program fetches the same files: waiting for it", stderr);
        return;
    }
    const int64_t got = qr_hub_screen_got(s), here = got - s->before;
    const double rate = here > 0 ? (double)here / ((double)(now_us - s->began_us) * 1e-6) : 0;
    fprintf(stderr, "%d of %d file%s   %s of %s   %d %%", n_done, s->n, s->n == 1 ? "" : "s", qr_size_text(size[0], got), qr_size_text(size[1], s->total),
            (int)(100.0 * (double)got / (double)(s->total ? s->total : 1)));
    if (rate > 0)
        fprintf(stderr, "   %s/s   %s left", qr_size_text(size[2], (int64_t)rate), time_text(left, (double)(s->total - got) / rate));
}

/* A line for each file that has come since. */
static void tell_files(struct qr_hub_screen *s)
{
    char size[QR_SIZE_TEXT];
    for (int32_t i = 0; i < s->n; i++) {
        if (!s->fetch[i].done || s->told[i])
            continue;
        s->told[i] = true;
        fprintf(stderr, "quire %s: %s, %s\n", s->command, s->fetch[i].file->path, qr_size_text(size, s->fetch[i].file->n_bytes));
    }
}

void qr_hub_screen_tick(void *screen)
{
    struct qr_hub_screen *s = screen;
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->n > 0);
    const int64_t now_us = qr_clock_us();
    if (!s->terminal)
        tell_files(s);
    if (now_us - s->shown_us < (s->terminal ? EVERY_US : PLAIN_EVERY_US))
        return;
    s->shown_us = now_us;
    if (s->terminal)
        fputs("\r\033[K", stderr);
    else
        fprintf(stderr, "quire %s: ", s->command);
    print_line(s, now_us);
    if (!s->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

void qr_hub_screen_close(struct qr_hub_screen *s)
{
    QR_ASSERT(s != NULL);
    if (s->terminal)
        fputs("\r\033[K", stderr);
    else
        tell_files(s);
    qr_free(s->told);
    s->told = NULL;
}
