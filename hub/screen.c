#include "hub/screen.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"

#define PLAIN_EVERY_US 15000000 /* where there is no terminal */

void qr_hub_screen_open(struct qr_hub_screen *s, const char *command, const struct qr_hub_fetch *fetch, int32_t n)
{
    QR_ASSERT(s != NULL && command != NULL);
    QR_ASSERT(fetch != NULL && n > 0);
    *s = (struct qr_hub_screen){.command = command, .fetch = fetch, .n = n, .told = qr_alloc((size_t)n, sizeof *s->told), .told_us = qr_clock_us()};
    qr_progress_open(&s->progress, "fetching");
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

/* "3 of 7 files, 1.2 GiB of 4.8 GiB, 25 %, 45.1 MiB/s, 1m20s left" */
static void put_line(char text[200], const struct qr_hub_screen *s)
{
    char size[3][QR_SIZE_TEXT], left[QR_DURATION_TEXT];
    int32_t n_done = 0, n_waiting = 0;
    for (int32_t i = 0; i < s->n; i++) {
        n_done += s->fetch[i].done;
        n_waiting += s->fetch[i].waits && !s->fetch[i].done;
    }
    const int64_t got = qr_hub_screen_got(s), here = got - s->before;
    const double rate = here > 0 ? (double)here / ((double)(qr_clock_us() - s->progress.began_us) * 1e-6) : 0;
    if (n_waiting > 0 && n_done + n_waiting == s->n) {
        snprintf(text, 200, "another program fetches the same files: waiting for it");
        return;
    }
    const int n = snprintf(text, 200, "%d of %d file%s, %s of %s, %d %%", n_done, s->n, s->n == 1 ? "" : "s", qr_size_text(size[0], got),
                           qr_size_text(size[1], s->total), (int)(100.0 * (double)got / (double)(s->total ? s->total : 1)));
    if (rate > 0)
        snprintf(text + n, 200 - (size_t)n, ", %s/s, %s left", qr_size_text(size[2], (int64_t)rate), qr_duration_text(left, (double)(s->total - got) / rate));
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
    char text[200];
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->n > 0);
    if (s->progress.terminal && qr_progress_due(&s->progress)) {
        put_line(text, s);
        qr_progress_say(&s->progress, "%s", text);
    }
    if (s->progress.terminal)
        return;
    tell_files(s);
    if (qr_clock_us() - s->told_us < PLAIN_EVERY_US)
        return;
    s->told_us = qr_clock_us();
    put_line(text, s);
    fprintf(stderr, "quire %s: %s\n", s->command, text);
}

void qr_hub_screen_close(struct qr_hub_screen *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->told != NULL);
    qr_progress_end(&s->progress);
    if (!s->progress.terminal)
        tell_files(s);
    qr_free(s->told);
    s->told = NULL;
}
