/* code_numbers.h - numbers as coded rows: how weights are rounded to a coded type that a name of --quantize stands for (w8a16, w4a16-g64, ..). Each group has a
 * scale, which its number of largest magnitude decides: with 8 bits that becomes 127 or -127, with 4 bits -7, -8, -9 or -10 (-8 is the least that there is),
 * whichever leaves the least sum of squared errors. A group is rounded to the nearest level, even on a tie; one whose largest is below 2^-120 is zeros, one
 * with an infinity or NaN has the scale NaN.
 * Inside kernels/. Static, so that every instruction-set level compiles its own copy; single IEEE operations, so that all give the same bits.
 */
#ifndef QR_KERNELS_CODE_NUMBERS_H
#define QR_KERNELS_CODE_NUMBERS_H

#include <string.h>

#include "base/assert.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

struct qr_numbers {
    const void *rows; /* borrowed: [n, n_in], one after the other */
    enum qr_dtype from; /* f32, f16 or bf16 */
    enum qr_dtype to;   /* qr_dtype_codes_numbers */
    int64_t n_in;
};

#define QR_CODE_GROUP_MAX 128
#define QR_CODE_LEAST_4 (-8) /* levels of 4 bits */

/* The number of largest magnitude, with its sign. */
static inline float qr_code_extreme_of(const float *x, int32_t n)
{
    float most = 0, least = 0;
    for (int32_t i = 0; i < n; i++) {
        most = x[i] > most ? x[i] : most;
        least = x[i] < least ? x[i] : least;
    }
    return -least >= most ? least : most;
}

/* The level of 4 bits nearest to x, as a float. In floats, so that any compiler makes vectors of it. */
static inline float qr_code_level_of(float x)
{
    x = x < QR_CODE_LEAST_4 ? QR_CODE_LEAST_4 : x;
    x = x > QR_CODE_LEAST_4 + 15 ? QR_CODE_LEAST_4 + 15 : x;
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* The sum of the squared errors of n numbers with a scale, in 8 chains, for vectors. n is a multiple of 8. */
static inline float qr_code_error_of(const float *x, int32_t n, float scale)
{
    const float inverse = 1 / scale;
    float part[8] = {0};
    for (int32_t h = 0; h < n; h += 8)
        for (int32_t j = 0; j < 8; j++) {
            const float d = x[h + j] - qr_code_level_of(x[h + j] * inverse) * scale;
            part[j] += d * d;
        }
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

/* A group of n numbers, whole 32s of which the last may be zeros that are none: its levels and its scale. */
static inline float qr_code_group_4(int8_t *level, const float *x, int32_t n)
{
    static const float at[] = {-8, -7, -9, -10}; /* levels that the extreme number becomes; beyond -8 it is cut off */
    float inverse, none = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, n), 1), best = 0, least = 0;
    if (inverse == 0) {
        memset(level, 0, (size_t)n);
        return none;
    }
    const float extreme = qr_code_extreme_of(x, n);
    for (int t = 0; t < QR_COUNT(at); t++) {
        const float scale = extreme / at[t], error = qr_code_error_of(x, n, scale);
        best = t == 0 || error < least ? scale : best;
        least = t == 0 || error < least ? error : least;
    }
    inverse = 1 / best;
    for (int32_t h = 0; h < n; h += QR_QUANT_GROUP)
        for (int32_t j = 0; j < QR_QUANT_GROUP; j++)
            level[h + j] = (int8_t)qr_code_level_of(x[h + j] * inverse);
    return best;
}

static inline float qr_code_group_8(int8_t *level, const float *x, int32_t n)
{
    float inverse;
    const float scale = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, n), QR_Q8_LARGEST);
    qr_quant_int8(level, x, n, inverse);
    return scale;
}

static inline void qr_code_fill(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_numbers *s = arg;
    const struct qr_coded_format f = qr_dtype_coded(s->to);
    const int64_t n_groups = (s->n_in + f.group - 1) / f.group;
    float x[QR_CODE_GROUP_MAX];
    int8_t level[QR_CODE_GROUP_MAX];
    for (int64_t r = 0; r < n; r++) {
        const char *row = (const char *)s->rows + (size_t)((first + r) * s->n_in) * qr_dtype_bytes(s->from);
        for (int64_t g = 0; g < n_groups; g++) {
            const int64_t at = g * f.group;
            const int32_t width = (int32_t)(s->n_in - at < f.group ? s->n_in - at : f.group);
            qr_quant_load(x, f.group, row, s->from, at, width);
            to->scale[r * n_groups + g] = f.bits == 4 ? qr_code_group_4(level, x, f.group) : qr_code_group_8(level, x, f.group);
            memcpy(to->level + r * s->n_in + at, level, (size_t)width);
        }
    }
}

/* As a source for linear_pack_coded, which `numbers` outlives. */
static inline struct qr_coded_source qr_numbers_source(const struct qr_numbers *numbers)
{
    QR_ASSERT(numbers != NULL && numbers->rows != NULL);
    QR_ASSERT(qr_dtype_codes_numbers(numbers->to) && qr_dtype_coded(numbers->to).group <= QR_CODE_GROUP_MAX);
    struct qr_coded_source s = {.fill = qr_code_fill, .arg = numbers};
    for (int i = 0; i < 16; i++)
        s.levels[i] = (int8_t)(QR_CODE_LEAST_4 + i);
    return s;
}

#endif
