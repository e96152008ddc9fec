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
#include "base/progress.h"

#define BAR_MAX 40
#define MANY_EPOCHS 20 /* the first four are about as good as new text, after some 40 nothing is learnt (Muennighoff et al. 2023, arXiv:2305.16264) */

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
                                (long long)(100 * step / s->last), qr_duration_text(text, left_s(s, step)));
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
        if (!s->bar) /* which says it */
            printf("  eta %s", qr_duration_text(text, left_s(s, row->step)));
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

void qr_train_screen_sum(const struct qr_train_sum *sum)
{
    QR_ASSERT(sum != NULL);
    QR_ASSERT(sum->n_steps >= 0 && sum->n_tokens >= 0);
    char text[32];
    printf("%lld step%s, %lld tokens in %s", (long long)sum->n_steps, sum->n_steps == 1 ? "" : "s", (long long)sum->n_tokens,
           qr_duration_text(text, sum->seconds));
    if (sum->seconds >= 1)
        printf(" (%.0f tokens/s)", (double)sum->n_tokens / sum->seconds);
    if (isfinite(sum->loss))
        printf("; loss %.4f", sum->loss);
    if (isfinite(sum->eval_loss))
        printf("; held-out loss %.4f", sum->eval_loss);
    if (isfinite(sum->best_loss) && sum->best_step < sum->n_steps)
        printf("; the lowest held-out loss was %.4f, after step %lld", sum->best_loss, (long long)sum->best_step);
    putchar('\n');
}

void qr_train_screen_hint(const struct qr_train_config *c, int64_t n_steps, double epoch_steps, int64_t n_tokens)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(n_steps > 0 && n_tokens > 0);
    const int64_t half = n_tokens / 2, step = half > c->data.sequence ? half : c->data.sequence; /* half of an epoch, and room for a piece */
    const double epochs = epoch_steps > 0 ? (double)n_steps / epoch_steps : 0;
    if (epochs > (double)n_steps)
        printf("one step is %.1f epochs of this data: ", epochs / (double)n_steps);
    if (epochs > (double)n_steps && step < c->batch.tokens * c->batch.micro)
        printf("set batch.tokens%s to %lld or fewer\n", c->batch.micro > 1 ? " times batch.micro" : "", (long long)step);
    else if (epochs > (double)n_steps)
        printf("bring more text, or set data.sequence and batch.tokens to less\n");
    else if (c->epochs == 0 && epochs > MANY_EPOCHS)
        printf("the run is %.0f epochs of this data: set steps to %.0f (%d epochs) or fewer, unless it is to be learnt by heart\n", epochs,
               ceil(MANY_EPOCHS * epoch_steps), MANY_EPOCHS);
}

void qr_train_screen_close(struct qr_train_screen *s)
{
    QR_ASSERT(s != NULL);
    erase(s);
    fflush(stdout);
    s->bar = false;
    QR_ASSERT(s->last > 0);
}
