/* clock.h - time. Only the edges read a clock; scheduler and cache take `now_us` as an argument. */
#ifndef QR_BASE_CLOCK_H
#define QR_BASE_CLOCK_H

#include <stdint.h>

int64_t qr_clock_us(void);      /* monotonic, microseconds */
int64_t qr_clock_ns(void);      /* monotonic, nanoseconds */
int64_t qr_clock_wall_s(void);  /* seconds since 1970, for `created` */

#endif
