/* rounding.h - a matrix' rows as few bits with scales: what `quire quantize` stores (quantize.h says in which layout).
 *
 *     INT8   w = scale code, |code| <= 127, a scale for each row
 *     INT4   w = scale code, -8 <= code <= 7, a scale for each group of inputs
 *     FP8    w = scale e4m3(code), a scale for each row
 * Scales are bf16, rounded up, so that no number is cut off where a scale is the largest number's. Pure: no state, any thread.
 */
#ifndef QR_LOADER_ROUNDING_H
#define QR_LOADER_ROUNDING_H

#include <stdbool.h>
#include <stdint.h>

enum qr_rounding { QR_ROUNDING_INT8, QR_ROUNDING_INT4, QR_ROUNDING_FP8 };

/* code [n], scale [n / group] bf16, from w [n]. group divides n. importance [n], or NULL for 1 each: INT4 takes for each group the scale, of the
 * largest number's times 1, 0.95 .. 0.6, with the least sum of importance (w - scale code)^2; of equal ones the largest. `clip` false: always the largest
 * number's. False: a number is not finite, the codes mean nothing. */
bool qr_round_row(int8_t *code, uint16_t *scale, const float *w, const float *importance, int64_t n, int64_t group, enum qr_rounding type, bool clip);

/* What codes stand for, but for the scale. */
float qr_rounded_value(int8_t code, enum qr_rounding type);

#endif
