#include "cli/data_screen.h"

#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

#define SHOW_EVERY_US 200000

void qr_data_screen_open(struct qr_data_screen *s)
{
    QR_ASSERT(s != NULL);
    *s = (struct qr_data_screen){.bar = isatty(STDERR_FILENO), .began_us = qr_clock_us()};
    qr_train_stop_open(&s->stop, "\nstopping; once more ends at once\n");
}

void qr_data_screen_close(struct qr_data_screen *s, int *status)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(status != NULL);
    const int asked = atomic_load(&s->stop.asked);
    if (s->bar)
        fputs("\r\033[K", stderr);
    if (asked)
        *status = 128 + asked;
    qr_train_stop_close(&s->stop);
}

bool qr_data_screen_due(struct qr_data_screen *s)
{
    QR_ASSERT(s != NULL);
    const int64_t now = qr_clock_us();
    const bool due = s->bar && now - s->shown_us >= SHOW_EVERY_US;
    s->shown_us = due ? now : s->shown_us;
    return due;
}

bool qr_data_screen_stopped(const struct qr_data_screen *s)
{
    QR_ASSERT(s != NULL);
    return atomic_load(&s->stop.asked) != 0;
}

double qr_data_screen_seconds(const struct qr_data_screen *s)
{
    QR_ASSERT(s != NULL);
    return (double)(qr_clock_us() - s->began_us) * 1e-6;
}
