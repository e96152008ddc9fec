#include "base/clock.h"

#include <time.h>

int64_t qr_clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t qr_clock_us(void)
{
    return qr_clock_ns() / 1000;
}

int64_t qr_clock_wall_s(void)
{
    return (int64_t)time(NULL);
}
