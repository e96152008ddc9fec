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

#define LANES 4 /* sums that are taken side by side, in whatever registers there are */

struct way {
    enum qr_rounding type;
    float scale;
    int32_t zero;
};

/* The code of a number as a whole number. w finite, scale that of its group: the quotient is finite. */
static inline float round_integer(float w, float scale, float zero, float low, float high)
{
    const float x = w / scale + zero;
    return whole(x < low ? low : x > high ? high : x);
}

static void round_all(int8_t *code, const float *w, int64_t n, const struct way *k)
{
    const float scale = k->scale, zero = (float)k->zero, low = k->type == QR_ROUNDING_INT8 ? -127 : -8, high = k->type == QR_ROUNDING_INT8 ? 127 : 7;
    for (int64_t i = 0; k->type == QR_ROUNDING_FP8 && i < n; i++)
        code[i] = (int8_t)qr_f32_to_e4m3(w[i] / scale);
    for (int64_t i = 0; k->type != QR_ROUNDING_FP8 && i < n; i++)
        code[i] = (int8_t)round_integer(w[i], scale, zero, low, high);
}

/* The weighted error of four bits. A group has a multiple of LANES numbers, or what is left of them is added to the first sum. */
static double error_of(const float *w, const float *importance, int64_t n, const struct way *k)
{
    const float scale = k->scale, zero = (float)k->zero;
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        double off[LANES];
        for (int l = 0; l < LANES; l++)
            off[l] = (double)w[i + l] - (double)scale * (double)(round_integer(w[i + l], scale, zero, -8, 7) - zero);
        for (int l = 0; l < LANES; l++)
            sum[l] += (importance ? (double)importance[i + l] : 1) * off[l] * off[l];
    }
    for (; i < n; i++) {
        const double off = (double)w[i] - (double)scale * (double)(round_integer(w[i], scale, zero, -8, 7) - zero);
        sum[0] += (importance ? (double)importance[i] : 1) * off * off;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* That with which so many twentieths of `range` are `codes` steps; numbers as small as 2^-120 are nothing: zeros. */
static uint16_t scale_of(float range, float codes, int32_t twentieths)
{
    const float scale = range / codes * (float)twentieths / 20;
    return bf16_above(scale < 0x1p-120f ? 1 : scale);
}

/* The least and the largest number, and 0. False: one is not finite, or too large. */
static bool find_range(float *least, float *most, const float *w, int64_t n)
{
    float finite = 0;
    *least = *most = 0;
    for (int64_t i = 0; i < n; i++) {
        *least = fminf(*least, w[i]);
        *most = fmaxf(*most, w[i]);
        finite += w[i] * 0; /* NaN stays, infinities become it */
    }
    return finite == 0 && fmaxf(*most, -*least) <= 0x1p120f;
}

/* The code of 0 where so many twentieths of the range are 15 steps of `scale`. */
static int32_t zero_of(float least, float scale, int32_t twentieths)
{
    const float x = -8 - least * (float)twentieths / 20 / scale;
    return (int32_t)whole(x < -8 ? -8 : x > 7 ? 7 : x);
}

/* Of a group whose numbers are from least to most: of the whole range, or of the best share of it. */
static struct way best_way(const float *w, const float *importance, int64_t n, float least, float most, enum qr_rounding type, bool clip)
{
    static const float top[] = {[QR_ROUNDING_INT8] = 127, [QR_ROUNDING_INT4] = 7, [QR_ROUNDING_FP8] = QR_E4M3_MAX, [QR_ROUNDING_INT4Z] = 7};
    const bool zeros = type == QR_ROUNDING_INT4Z;
    const int32_t last = qr_rounding_is_int4(type) && clip ? 12 : 20;
    struct way best = {.type = type, .scale = qr_bf16_to_f32(scale_of(fmaxf(most, -least), top[type], 20))};
    if (last == 20 && !zeros)
        return best;
    double error = error_of(w, importance, n, &best);
    for (int32_t skew = 0; skew <= zeros; skew++)
        for (int32_t share = skew ? 20 : 19; share >= last; share--) {
            const uint16_t scale = skew ? scale_of(most - least, 15, share) : scale_of(fmaxf(most, -least), top[type], share);
            struct way way = {.type = type, .scale = qr_bf16_to_f32(scale)};
            way.zero = skew ? zero_of(least, way.scale, share) : 0;
            const double e = error_of(w, importance, n, &way);
            best = e < error ? way : best;
            error = e < error ? e : error;
        }
    return best;
}

bool qr_round_row(const struct qr_rounded *out, const float *w, const float *importance, int64_t n, int64_t group, enum qr_rounding type, bool clip)
{
    QR_ASSERT(out != NULL && out->code != NULL && out->scale != NULL && w != NULL);
    QR_ASSERT(group > 0 && n % group == 0 && (type != QR_ROUNDING_INT4Z || out->zero != NULL));
    for (int64_t at = 0; at < n; at += group) {
        float least, most;
        if (!find_range(&least, &most, w + at, group))
            return false;
        const struct way best = best_way(w + at, importance ? importance + at : NULL, group, least, most, type, clip);
        round_all(out->code + at, w + at, group, &best);
        out->scale[at / group] = qr_f32_to_bf16(best.scale);
        if (type == QR_ROUNDING_INT4Z)
            out->zero[at / group] = (int8_t)best.zero;
    }
    return true;
}
