/* rounding.h - a matrix' rows as few bits with scales: what `quire quantize` stores (quantize.h says in which layout).
 *
 *     INT8   w = scale code, |code| <= 127, a scale for each row
 *     INT4   w = scale code, -8 <= code <= 7, a scale for each group of inputs
 *     INT4Z  w = scale (code - zero), both from -8 to 7, a scale and a zero for each group
 *     FP8    w = scale e4m3(code), a scale for each row
 * Scales are bf16, rounded up, so that no number is cut off where a scale is the largest number's. Pure: no state, any thread.
 */
#ifndef QR_LOADER_WRITE_ROUNDING_H
#define QR_LOADER_WRITE_ROUNDING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/stored.h"

enum qr_rounding { QR_ROUNDING_INT8, QR_ROUNDING_INT4, QR_ROUNDING_FP8, QR_ROUNDING_INT4Z };

static inline bool qr_rounding_is_int4(enum qr_rounding type)
{
    return type == QR_ROUNDING_INT4 || type == QR_ROUNDING_INT4Z;
}

/* Where a row's codes go. */
struct qr_rounded {
    int8_t *code;    /* [n] */
    uint16_t *scale; /* [n / group] bf16 */
    int8_t *zero;    /* [n / group], INT4Z only */
    const struct qr_stored_ops *ops; /* or NULL: the same bits, in more time */
};

/* w [n], group divides n. importance [n], or NULL for 1 each: INT4 takes for each group the scale, of the largest number's times 1, 0.95 .. 0.6, with the least
 * sum of importance (w - rounded)^2; of equal ones the largest. INT4Z does so with the range from the least to the largest number (and 0, which is always a
 * code), and takes INT4's way, zero 0, where that is no worse. `clip` false: always the whole range. False: a number is not finite, the codes mean nothing. */
bool qr_round_row(const struct qr_rounded *out, const float *w, const float *importance, int64_t n, int64_t group, enum qr_rounding type, bool clip);

/* What codes stand for, but for the scale, and for what INT4Z takes away before. */
float qr_rounded_value(int8_t code, enum qr_rounding type);

#endif
