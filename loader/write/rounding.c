#include "loader/write/rounding.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/e4m3.h"
#include "base/half.h"
#include "base/mem.h"

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

#define WAYS_MAX 18 /* that are tried for a group: the whole range or eight shares of it, with and without a zero */

/* To the nearest whole number, ties to even, without a call: from 2^23 on f32 has no fractions. |x| < 2^22. */
static inline float whole(float x)
{
    return x + 0x1.8p23f - 0x1.8p23f;
}

static void round_all(int8_t *code, const float *w, int64_t n, enum qr_rounding type, const struct qr_int4_way *k)
{
    const float scale = k->scale, zero = k->zero, low = type == QR_ROUNDING_INT8 ? -127 : -8, high = type == QR_ROUNDING_INT8 ? 127 : 7;
    for (int64_t i = 0; type == QR_ROUNDING_FP8 && i < n; i++)
        code[i] = (int8_t)qr_f32_to_e4m3(w[i] / scale);
    for (int64_t i = 0; type != QR_ROUNDING_FP8 && i < n; i++)
        code[i] = (int8_t)qr_stored_integer(w[i], scale, zero, low, high);
}

/* That with which so many twentieths of `range` are `codes` steps; numbers as small as 2^-120 are nothing: zeros. */
static uint16_t scale_of(float range, float codes, int32_t twentieths)
{
    const float scale = range / codes * (float)twentieths / 20;
    return bf16_above(scale < 0x1p-120f ? 1 : scale);
}

#define LANES 16 /* whose least and largest are found side by side */

/* The least and the largest number, and 0. False: one is not finite, or too large. */
static bool find_range(float *least, float *most, const float *w, int64_t n)
{
    float low[LANES] = {0}, high[LANES] = {0}, finite[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float x = w[i + k];
            low[k] = x < low[k] ? x : low[k];
            high[k] = x > high[k] ? x : high[k];
            finite[k] += x * 0; /* NaN stays, infinities become it */
        }
    for (; i < n; i++) {
        low[0] = w[i] < low[0] ? w[i] : low[0];
        high[0] = w[i] > high[0] ? w[i] : high[0];
        finite[0] += w[i] * 0;
    }
    for (int k = 1; k < LANES; k++) {
        low[0] = low[k] < low[0] ? low[k] : low[0];
        high[0] = high[k] > high[0] ? high[k] : high[0];
        finite[0] += finite[k];
    }
    *least = low[0];
    *most = high[0];
    return finite[0] == 0 && (*most > -*least ? *most : -*least) <= 0x1p120f;
}

/* The code of 0 where so many twentieths of the range are 15 steps of `scale`. */
static float zero_of(float least, float scale, int32_t twentieths)
{
    const float x = -8 - least * (float)twentieths / 20 / scale;
    return whole(x < -8 ? -8 : x > 7 ? 7 : x);
}

/* Of a group whose numbers are from least to most: the ways to try, that of the whole range first. */
static int32_t ways_of(struct qr_int4_way way[WAYS_MAX], float least, float most, enum qr_rounding type, bool clip)
{
    static const float top[] = {[QR_ROUNDING_INT8] = 127, [QR_ROUNDING_INT4] = 7, [QR_ROUNDING_FP8] = QR_E4M3_MAX, [QR_ROUNDING_INT4Z] = 7};
    const int32_t last = qr_rounding_is_int4(type) && clip ? 12 : 20;
    const float size = most > -least ? most : -least;
    int32_t n = 0;
    for (int32_t share = 20; share >= last; share--)
        way[n++] = (struct qr_int4_way){.scale = qr_bf16_to_f32(scale_of(size, top[type], share))};
    for (int32_t share = 20; type == QR_ROUNDING_INT4Z && share >= last; share--) {
        way[n].scale = qr_bf16_to_f32(scale_of(most - least, 15, share));
        way[n].zero = zero_of(least, way[n].scale, share);
        n++;
    }
    return n;
}

/* The best of them, of equal ones the first. */
static struct qr_int4_way best_way(const float *w, const float *importance, int64_t n, const struct qr_int4_way *way, int32_t n_ways,
                                   const struct qr_stored_ops *ops)
{
    double error[WAYS_MAX] = {0};
    int32_t best = 0;
    const bool together = n_ways > 1 && ops && ops->int4_errors && n % QR_STORED_LANES == 0;
    if (together)
        ops->int4_errors(error, w, importance, n, way, n_ways);
    for (int32_t i = 0; n_ways > 1 && i < n_ways; i++) {
        error[i] = together ? error[i] : qr_int4_error(w, importance, n, &way[i]);
        best = error[i] < error[best] ? i : best;
    }
    return way[best];
}

bool qr_round_row(const struct qr_rounded *out, const float *w, const float *importance, int64_t n, int64_t group, enum qr_rounding type, bool clip)
{
    QR_ASSERT(out != NULL && out->code != NULL && out->scale != NULL && w != NULL);
    QR_ASSERT(group > 0 && n % group == 0 && (type != QR_ROUNDING_INT4Z || out->zero != NULL));
    for (int64_t at = 0; at < n; at += group) {
        QR_UNINITIALIZED struct qr_int4_way way[WAYS_MAX];
        float least, most;
        if (!find_range(&least, &most, w + at, group))
            return false;
        const int32_t n_ways = ways_of(way, least, most, type, clip);
        const struct qr_int4_way best = best_way(w + at, importance ? importance + at : NULL, group, way, n_ways, out->ops);
        round_all(out->code + at, w + at, group, type, &best);
        out->scale[at / group] = qr_f32_to_bf16(best.scale);
        if (type == QR_ROUNDING_INT4Z)
            out->zero[at / group] = (int8_t)best.zero;
    }
    return true;
}
