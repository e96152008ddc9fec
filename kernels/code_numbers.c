#include "kernels/code_numbers.h"

#include <string.h>

#include "base/assert.h"
#include "kernels/quant.h"

#define GROUP_MAX 128
#define LEAST_4 (-8) /* levels of 4 bits */

/* The number of largest magnitude, with its sign. */
static float extreme_of(const float *x, int32_t n, uint32_t most_bits)
{
    float most;
    memcpy(&most, &most_bits, sizeof most);
    for (int32_t i = 0; i < n; i++)
        if (x[i] == -most)
            return -most;
    return most;
}

/* Levels of 4 bits of n numbers with a scale; returns the sum of the squares of their errors, in 8 chains, for vectors. n is a multiple of 8. */
static float try_scale(int8_t *level, const float *x, int32_t n, float scale)
{
    const float inverse = 1 / scale;
    float part[8] = {0};
    for (int32_t h = 0; h < n; h += 8)
        for (int32_t j = 0; j < 8; j++) {
            int32_t k = qr_quant_round(x[h + j] * inverse);
            k = k < LEAST_4 ? LEAST_4 : k;
            k = k > LEAST_4 + 15 ? LEAST_4 + 15 : k;
            const float d = x[h + j] - (float)k * scale;
            part[j] += d * d;
            level[h + j] = (int8_t)k;
        }
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

/* A group of n numbers, in a place of whole 32s that ends in zeros: its levels and its scale. */
static float code_group_4(int8_t level[GROUP_MAX], const float *x, int32_t n)
{
    static const float at[] = {-8, -7, -9, -10}; /* levels that the extreme number becomes; beyond -8 it is cut off */
    const uint32_t most = qr_quant_max_bits(0, x, n);
    float inverse, none = qr_quant_scale(&inverse, most, 1), best = 0, least = 0;
    if (inverse == 0) {
        memset(level, 0, (size_t)n);
        return none;
    }
    const float extreme = extreme_of(x, n, most);
    for (int t = 0; t < QR_COUNT(at); t++) {
        int8_t tried[GROUP_MAX];
        const float scale = extreme / at[t], error = try_scale(tried, x, n, scale);
        if (t > 0 && !(error < least))
            continue;
        least = error;
        best = scale;
        memcpy(level, tried, (size_t)n);
    }
    return best;
}

static float code_group_8(int8_t *level, const float *x, int32_t n)
{
    float inverse;
    const float scale = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, n), QR_Q8_LARGEST);
    qr_quant_int8(level, x, n, inverse);
    return scale;
}

static void fill(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_numbers *s = arg;
    const struct qr_coded_format f = qr_dtype_coded(s->to);
    const int64_t n_groups = (s->n_in + f.group - 1) / f.group;
    float x[GROUP_MAX];
    int8_t level[GROUP_MAX];
    for (int64_t r = 0; r < n; r++) {
        const char *row = (const char *)s->rows + (size_t)((first + r) * s->n_in) * qr_dtype_bytes(s->from);
        for (int64_t g = 0; g < n_groups; g++) {
            const int64_t at = g * f.group;
            const int32_t width = (int32_t)(s->n_in - at < f.group ? s->n_in - at : f.group);
            qr_quant_load(x, f.group, row, s->from, at, width);
            to->scale[r * n_groups + g] = f.bits == 4 ? code_group_4(level, x, f.group) : code_group_8(level, x, f.group);
            memcpy(to->level + r * s->n_in + at, level, (size_t)width);
        }
    }
}

struct qr_coded_source qr_numbers_source(const struct qr_numbers *numbers)
{
    QR_ASSERT(numbers != NULL && numbers->rows != NULL);
    QR_ASSERT(qr_dtype_codes_numbers(numbers->to) && qr_dtype_coded(numbers->to).group <= GROUP_MAX);
    struct qr_coded_source s = {.fill = fill, .arg = numbers};
    for (int i = 0; i < 16; i++)
        s.levels[i] = (int8_t)(LEAST_4 + i);
    return s;
}
