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

/* A group of n numbers, in a place of GROUP_MAX: its levels and its scale. */
static float code_group(int8_t *level, const float *x, int32_t n, int bits)
{
    const uint32_t most = qr_quant_max_bits(0, x, n);
    float inverse, scale = qr_quant_scale(&inverse, most, bits == 8 ? QR_Q8_LARGEST : -(float)LEAST_4);
    if (bits == 4 && inverse != 0 && extreme_of(x, n, most) > 0) {
        scale = -scale;
        inverse = -inverse;
    }
    qr_quant_int8(level, x, n, inverse);
    for (int32_t i = 0; bits == 4 && i < n; i++)
        level[i] = level[i] > LEAST_4 + 15 ? LEAST_4 + 15 : level[i];
    return scale;
}

static void fill(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct qr_numbers *s = arg;
    const struct qr_coded_format f = qr_dtype_coded(s->to);
    const int64_t n_groups = (s->n_in + f.group - 1) / f.group;
    float x[GROUP_MAX];
    for (int64_t r = 0; r < n; r++) {
        const char *row = (const char *)s->rows + (size_t)((first + r) * s->n_in) * qr_dtype_bytes(s->from);
        for (int64_t g = 0; g < n_groups; g++) {
            const int64_t at = g * f.group;
            const int32_t width = (int32_t)(s->n_in - at < f.group ? s->n_in - at : f.group);
            qr_quant_load(x, f.group, row, s->from, at, width);
            to->scale[r * n_groups + g] = code_group(to->level + r * s->n_in + at, x, width, f.bits);
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
