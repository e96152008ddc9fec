#include "loader/rounding.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/e4m3.h"
#include "base/half.h"

/* The next bf16 that is not less. x >= 0 and finite. */
static uint16_t bf16_above(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u >> 16) + ((u & 0xffffu) != 0));
}

float qr_rounded_value(int8_t code, enum qr_rounding type)
{
    return type == QR_ROUNDING_FP8 ? qr_e4m3_to_f32((uint8_t)code) : (float)code;
}

/* To the nearest whole number, ties to even, without a call: from 2^23 on f32 has no fractions. |x| < 2^22. */
static inline float whole(float x)
{
    return x + 0x1.8p23f - 0x1.8p23f;
}

/* w finite, scale that of its group: the quotient is finite. */
static inline int8_t round_number(float w, float scale, enum qr_rounding type)
{
    const float x = w / scale, low = type == QR_ROUNDING_INT8 ? -127 : -8, high = type == QR_ROUNDING_INT8 ? 127 : 7;
    if (type == QR_ROUNDING_FP8)
        return (int8_t)qr_f32_to_e4m3(x);
    return (int8_t)whole(x < low ? low : x > high ? high : x);
}

/* Returns the weighted error. */
static double round_group(int8_t *code, const float *w, const float *importance, int64_t n, float scale, enum qr_rounding type)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        code[i] = round_number(w[i], scale, type);
        const double off = (double)w[i] - (double)scale * (double)qr_rounded_value(code[i], type);
        sum += (importance ? (double)importance[i] : 1) * off * off;
    }
    return sum;
}

/* That with which so many twentieths of `largest` are the largest code. */
static uint16_t scale_of(float largest, enum qr_rounding type, int32_t twentieths)
{
    static const float top[] = {[QR_ROUNDING_INT8] = 127, [QR_ROUNDING_INT4] = 7, [QR_ROUNDING_FP8] = QR_E4M3_MAX};
    const float scale = largest / top[type] * (float)twentieths / 20;
    return bf16_above(scale < 0x1p-120f ? 1 : scale); /* numbers as small as that are nothing: zeros */
}

bool qr_round_row(int8_t *code, uint16_t *scale, const float *w, const float *importance, int64_t n, int64_t group, enum qr_rounding type, bool clip)
{
    QR_ASSERT(code != NULL && scale != NULL && w != NULL);
    QR_ASSERT(group > 0 && n % group == 0);
    for (int64_t at = 0; at < n; at += group) {
        float largest = 0, finite = 0;
        for (int64_t i = 0; i < group; i++) {
            largest = fmaxf(largest, fabsf(w[at + i]));
            finite += w[at + i] * 0; /* NaN stays, infinities become it */
        }
        if (!(finite == 0) || largest > 0x1p120f)
            return false;
        const float *weight = importance ? importance + at : NULL;
        uint16_t *best = &scale[at / group];
        *best = scale_of(largest, type, 20);
        double least = round_group(code + at, w + at, weight, group, qr_bf16_to_f32(*best), type);
        if (type != QR_ROUNDING_INT4 || !clip)
            continue;
        for (int32_t share = 19; share >= 12; share--) {
            const uint16_t other = scale_of(largest, type, share);
            const double error = round_group(code + at, w + at, weight, group, qr_bf16_to_f32(other), type);
            *best = error < least ? other : *best;
            least = error < least ? error : least;
        }
        round_group(code + at, w + at, weight, group, qr_bf16_to_f32(*best), type);
    }
    return true;
}
