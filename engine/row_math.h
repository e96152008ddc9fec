/* row_math.h - passes over a row of logits, in stretches. Lanes of 16 and plain operations in a fixed order: whatever vectors a processor has, the
 * same bits. Inside engine/ only.
 */
#ifndef QR_ENGINE_ROW_MATH_H
#define QR_ENGINE_ROW_MATH_H

#include <stdint.h>

#include "base/assert.h"
#include "kernels/kernels.h"

#define QR_STRETCH QR_LINEAR_STRETCH /* numbers that are read, or skipped, together */

struct qr_row_math {
    const char *name;
    /* The largest of x[0..n) and `least`; NaNs are ignored. */
    float (*max)(const float *x, int32_t n, float least);
    /* w[i] = exp((x[i] - best) * inv_t) within 2 ulp, for (x[i] - best) * inv_t <= 0: 0 below -87 and for NaN. Returns
     * the sum of w, added up in double. w may not overlap x. */
    double (*weigh)(float *w, const float *x, int32_t n, float best, float inv_t);
    /* How many of x[0..n) are larger than v. */
    int32_t (*count_above)(const float *x, int32_t n, float v);
    /* at[0..) = the places of what is at least v among x[0..n), in their order; returns how many. NaNs are ignored. at:
     * n places. */
    int32_t (*find)(int32_t *at, const float *x, int32_t n, float v);
    /* The first of these places; n: there is none. */
    int32_t (*first)(const float *x, int32_t n, float v);
    /* The same of all: out[0..) = the numbers, id[0..) = `from` + their places. Room for n each; out may not overlap x. */
    int32_t (*gather)(float *out, int32_t *id, const float *x, int32_t n, float v, int32_t from);
    /* out[i] = x[i] where bit i of mask's words is set, else -infinity, i < n. out may not overlap x. */
    void (*allow)(float *out, const float *x, const uint32_t *mask, int32_t n);
};

/* What at least k of x[0..n) are larger than, none of them larger than best: less than the k-th largest by a 32nd of how far it lies below best, at most, so
 * that a reader of what reaches it reads little in vain. -infinity: there are not so many, or they lie too far away. */
float qr_reached_by(const struct qr_row_math *math, const float *x, int32_t n, int32_t k, float best);

/* The widest that this processor has. */
const struct qr_row_math *qr_row_math_best(void);

/* All that this processor has, for tests; returns their number. */
int32_t qr_row_math_all(const struct qr_row_math *out[2]);

/* exp(x) for x <= 0, as weigh computes it. */
float qr_exp_nonpositive(float x);

#endif
