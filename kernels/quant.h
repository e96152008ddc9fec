/* quant.h - small integers with a scale in place of floats: how weights and activations of quantized products are rounded. Inside
 * kernels/ only. Static, so that every instruction-set level compiles its own copy; plain IEEE operations, so that all give the same bits.
 *
 *   8 bits            a row of numbers becomes q * scale, scale = max|x| / 127, q = x * (127 / max|x|) to the nearest even, -127 <= q <= 127
 *   4 bits, groups    a row of weights becomes n * m * scale, scale = max|w| / 105: groups of 32 neighbours share the multiple m, 1 <= m <= 15, and each
 *                     weight is an n, -8 <= n <= 7. So n * m is an integer of 8 bits again, and a product with 4-bit weights is one with 8-bit ones.
 *                     m is the one of the smallest squared error among the smallest that holds the group's largest weight and the two below it.
 *
 * n is a weight times 1 / scale, times 1 / m, each a single operation, to the nearest integer, even on a tie.
 * A row whose largest number is below 2^-120 counts as zeros (scale 0); one with an infinity or NaN gets the scale NaN.
 *
 * Sources: Dettmers et al. 2022 (arXiv:2208.07339) for a scale per row of activations and per output; Lin et al. 2024, QServe
 * (arXiv:2405.04532) for groups with an integer scale beneath one of the channel. */
#ifndef QR_KERNELS_QUANT_H
#define QR_KERNELS_QUANT_H

#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "kernels/dtype.h"

#define QR_QUANT_GROUP 32     /* weights that share a multiple */
#define QR_Q8_LARGEST 127.0f
#define QR_Q4_LARGEST 105.0f  /* 7 * 15 */
#define QR_QUANT_TRIES 3      /* multiples that are tried for a group */
#define QR_QUANT_MULTIPLE_MAX 15

#define QR_QUANT_INFINITY_BITS 0x7f800000u
#define QR_QUANT_SMALLEST_BITS 0x03800000u /* 2^-120 */

/* n <= room numbers of type `from` from element i on, zeros behind. */
static inline void qr_quant_load(float *x, int64_t room, const void *row, enum qr_dtype from, int64_t i, int64_t n)
{
    if (n < room)
        memset(x, 0, (size_t)room * sizeof *x);
    if (from == QR_F32) {
        memcpy(x, (const float *)row + i, (size_t)n * sizeof *x);
        return;
    }
    const uint16_t *h = (const uint16_t *)row + i;
    if (from == QR_BF16)
        for (int64_t j = 0; j < n; j++)
            x[j] = qr_bf16_to_f32(h[j]);
    else
        for (int64_t j = 0; j < n; j++)
            x[j] = qr_f16_to_f32(h[j]);
}

/* The larger of `most` and the largest magnitude, as bits: they order like the numbers, infinity and NaN above all. */
static inline uint32_t qr_quant_max_bits(uint32_t most, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        u &= 0x7fffffffu;
        most = u > most ? u : most;
    }
    return most;
}

/* The scale of a row; *inverse is what its numbers are multiplied by, 0 for rows of zeros or without a finite largest number. */
static inline float qr_quant_scale(float *inverse, uint32_t max_bits, float largest)
{
    float max;
    memcpy(&max, &max_bits, sizeof max);
    *inverse = 0;
    if (max_bits >= QR_QUANT_INFINITY_BITS)
        return __builtin_nanf("");
    if (max_bits < QR_QUANT_SMALLEST_BITS)
        return 0;
    *inverse = largest / max;
    return max / largest;
}

/* To the nearest integer, even on a tie, for |x| < 2^22; any other number becomes some integer. */
static inline int32_t qr_quant_round(float x)
{
    float shifted = x + 0x1.8p23f;
    int32_t i;
    memcpy(&i, &shifted, sizeof i);
    return i - 0x4b400000;
}

/* q = x * inverse rounded; returns the sum of q. A row without a finite largest number becomes zeros. */
static inline int32_t qr_quant_int8(int8_t *q, const float *x, int64_t n, float inverse)
{
    if (inverse == 0) {
        memset(q, 0, (size_t)n);
        return 0;
    }
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t v = qr_quant_round(x[i] * inverse);
        sum += v;
        q[i] = (int8_t)v;
    }
    return sum;
}

/* Squared error of a group whose weights are v (|v| <= 105) with the multiple m; n[] what they become. In 8 chains, for vectors. */
static inline float qr_quant_try(int8_t *n, const float *v, int32_t m)
{
    float inverse = 1.0f / (float)m, part[8] = {0};
    for (int h = 0; h < QR_QUANT_GROUP; h += 8)
        for (int j = 0; j < 8; j++) {
            int32_t k = qr_quant_round(v[h + j] * inverse);
            k = k < -8 ? -8 : k;
            k = k > 7 ? 7 : k;
            float d = v[h + j] - (float)(k * m);
            part[j] += d * d;
            n[h + j] = (int8_t)k;
        }
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

/* The smallest multiple with which 7 of them hold the group's largest |v|. */
static inline int32_t qr_quant_smallest_multiple(const float *v)
{
    uint32_t bits = qr_quant_max_bits(0, v, QR_QUANT_GROUP);
    float max;
    memcpy(&max, &bits, sizeof max);
    int32_t m = 1;
    while (m < QR_QUANT_MULTIPLE_MAX && (float)(7 * m) < max)
        m++;
    return m;
}

/* A group of weights of 4 bits: n[] and the multiple, which is returned. Rows without a finite largest number, or of zeros, become zeros. */
static inline int32_t qr_quant_group(int8_t n[QR_QUANT_GROUP], const float *x, float inverse)
{
    float v[QR_QUANT_GROUP], best = 0;
    if (inverse == 0) {
        memset(n, 0, QR_QUANT_GROUP);
        return 1;
    }
    for (int32_t i = 0; i < QR_QUANT_GROUP; i++)
        v[i] = x[i] * inverse;
    int32_t m = qr_quant_smallest_multiple(v), chosen = 0;
    for (int t = 0; t < QR_QUANT_TRIES && m - t >= 1; t++) {
        int8_t tried[QR_QUANT_GROUP] = {0};
        float error = qr_quant_try(tried, v, m - t);
        if (chosen == 0 || error < best) {
            best = error;
            chosen = m - t;
            memcpy(n, tried, QR_QUANT_GROUP);
        }
    }
    return chosen;
}

/* What the largest weight of an output becomes. */
static inline float qr_quant_largest(struct qr_quant_format f)
{
    return f.bits == 4 ? QR_Q4_LARGEST : QR_Q8_LARGEST;
}

/* The largest magnitude of a stored row, as bits. */
static inline uint32_t qr_quant_row_max(const void *row, enum qr_dtype from, int64_t n)
{
    float x[QR_QUANT_GROUP];
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i += QR_QUANT_GROUP) {
        qr_quant_load(x, QR_QUANT_GROUP, row, from, i, n - i < QR_QUANT_GROUP ? n - i : QR_QUANT_GROUP);
        most = qr_quant_max_bits(most, x, QR_QUANT_GROUP);
    }
    return most;
}

/* A stored row of weights as integers p [n_in], multiples multiplied in; returns the scale: the weight is p times it. */
static inline float qr_quant_row(int16_t *p, enum qr_dtype to, int64_t n_in, const void *row, enum qr_dtype from)
{
    const struct qr_quant_format f = qr_dtype_format(to);
    float x[QR_QUANT_GROUP], inverse;
    const float scale = qr_quant_scale(&inverse, qr_quant_row_max(row, from, n_in), qr_quant_largest(f));
    for (int64_t i = 0; i < n_in; i += QR_QUANT_GROUP) {
        int64_t n = n_in - i < QR_QUANT_GROUP ? n_in - i : QR_QUANT_GROUP;
        int8_t q[QR_QUANT_GROUP];
        int32_t m = 1;
        qr_quant_load(x, QR_QUANT_GROUP, row, from, i, n);
        if (f.group)
            m = qr_quant_group(q, x, inverse);
        else
            qr_quant_int8(q, x, n, inverse);
        for (int64_t j = 0; j < n; j++)
            p[i + j] = (int16_t)(q[j] * m);
    }
    return scale;
}

#endif
