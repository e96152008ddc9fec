/* coded.h - rows of coded weights (kernels.h, struct qr_coded_rows) on their way to memory: what is kept of scales and
 * offsets, and what a weight then is. For kernels/ and for loaders that fill such rows. Static, so that every
 * instruction-set level compiles its own copy; single IEEE operations, so that all give the same bits. */
#ifndef QR_KERNELS_CODED_H
#define QR_KERNELS_CODED_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/e4m3.h"
#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

#define QR_CODED_EXPONENT 15      /* of an output's largest scale or offset as f16 */
#define QR_CODED_FACTOR_MAX 60    /* |log2| of an output's factor */
#define QR_CODED_HALF_MAX 65520.0f /* from here on f16 is infinite */
#define QR_CODED_ROWS_MAX 16      /* that a source fills at once */
#define QR_CODED_E4M3_LEAST 0x1p-100f /* scales of E4M3 codes: smaller ones are 0 */
#define QR_CODED_E4M3_MOST 0x1p75f    /* larger ones are none */

static inline int64_t qr_coded_unit(struct qr_coded_format f)
{
    return f.steps ? QR_CODED_UNIT : f.group;
}

static inline int64_t qr_coded_n_units(struct qr_coded_format f, int64_t n_in)
{
    return (n_in + qr_coded_unit(f) - 1) / qr_coded_unit(f);
}

static inline int64_t qr_coded_n_groups(struct qr_coded_format f, int64_t n_in)
{
    return (n_in + f.group - 1) / f.group;
}

/* Room for n rows, and the rows in it; `memory` is aligned to 4 bytes. */
static inline int64_t qr_coded_rows_bytes(struct qr_coded_format f, int64_t n_in, int64_t n)
{
    return n * (2 * qr_coded_n_units(f, n_in) * (int64_t)sizeof(float) + 2 * qr_coded_n_groups(f, n_in) + n_in);
}

static inline struct qr_coded_rows qr_coded_rows_in(void *memory, struct qr_coded_format f, int64_t n_in, int64_t n)
{
    const int64_t n_units = n * qr_coded_n_units(f, n_in), n_groups = n * qr_coded_n_groups(f, n_in);
    float *scale = memory;
    int8_t *step = (int8_t *)(scale + 2 * n_units);
    return (struct qr_coded_rows){.level = step + 2 * n_groups,
                                  .scale = scale,
                                  .offset = f.offset ? scale + n_units : NULL,
                                  .step = f.steps ? step : NULL,
                                  .offset_step = (f.steps && f.offset) || f.zero ? step + n_groups : NULL};
}

/* Row i of n. */
static inline struct qr_coded_rows qr_coded_row(const struct qr_coded_rows *r, struct qr_coded_format f, int64_t n_in, int64_t i)
{
    const int64_t n_units = qr_coded_n_units(f, n_in), n_groups = qr_coded_n_groups(f, n_in);
    return (struct qr_coded_rows){.level = r->level + i * n_in,
                                  .scale = r->scale + i * n_units,
                                  .offset = r->offset ? r->offset + i * n_units : NULL,
                                  .step = r->step ? r->step + i * n_groups : NULL,
                                  .offset_step = r->offset_step ? r->offset_step + i * n_groups : NULL,
                                  .words = r->words ? r->words + i : NULL,
                                  .words_pitch = r->words_pitch};
}

/* 2^k, -126 <= k <= 127. */
static inline float qr_coded_power(int32_t k)
{
    const uint32_t bits = (uint32_t)(k + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The power of two that a row's scales and offsets are divided by before they become f16; NaN where one of them has no place. bits: of the absolute value of
 * the largest. */
static inline float qr_coded_factor_of(uint32_t bits)
{
    float most;
    memcpy(&most, &bits, sizeof most);
    int32_t k = (int32_t)(bits >> 23) - 127 - QR_CODED_EXPONENT;
    if (bits >= QR_QUANT_INFINITY_BITS)
        return __builtin_nanf("");
    k = k < -QR_CODED_FACTOR_MAX ? -QR_CODED_FACTOR_MAX : k;
    if (most * qr_coded_power(-k) >= QR_CODED_HALF_MAX)
        k++;
    return k > QR_CODED_FACTOR_MAX ? __builtin_nanf("") : qr_coded_power(k);
}

/* E4M3: what is kept of the scale of n codes. NaN where one of the codes is. */
static inline float qr_coded_e4m3_scale(const uint8_t *code, int64_t n, float scale)
{
    uint8_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = (code[i] & 0x7f) > most ? code[i] & 0x7f : most;
    if (most == 0x7f || !(fabsf(scale) <= QR_CODED_E4M3_MOST))
        return __builtin_nanf("");
    return fabsf(scale) < QR_CODED_E4M3_LEAST ? 0 : scale;
}

/* Its codes, of n_in in all, and what is kept. */
static inline float qr_coded_e4m3_kept(const struct qr_coded_rows *row, struct qr_coded_format f, int64_t n_in, int64_t u)
{
    const int64_t first = u * f.group, n = n_in - first < f.group ? n_in - first : f.group;
    return qr_coded_e4m3_scale((const uint8_t *)row->level + first, n, row->scale[u]);
}

/* 1 with E4M3 codes. */
static inline float qr_coded_factor(const struct qr_coded_rows *row, struct qr_coded_format f, int64_t n_in)
{
    if (f.e4m3)
        return 1;
    const int64_t n = qr_coded_n_units(f, n_in);
    const uint32_t bits = qr_quant_max_bits(0, row->scale, n);
    return qr_coded_factor_of(row->offset ? qr_quant_max_bits(bits, row->offset, n) : bits);
}

/* What is kept of a scale or offset. */
static inline uint16_t qr_coded_half(float x, float factor)
{
    return isnan(factor) ? 0 : qr_f32_to_f16(x / factor);
}

static inline float qr_coded_kept(float x, float factor)
{
    return qr_f16_to_f32(qr_coded_half(x, factor)) * factor;
}

/* Weight i of a row with this factor; scales of E4M3 codes are what is kept of them (qr_coded_e4m3_kept). */
static inline uint16_t qr_coded_weight(const struct qr_coded_rows *row, struct qr_coded_format f, float factor, int64_t i)
{
    if (f.e4m3)
        return qr_f32_to_bf16(row->scale[i / f.group] * qr_e4m3_to_f32((uint8_t)row->level[i]));
    const int64_t u = i / qr_coded_unit(f), g = i / f.group;
    float scale = qr_coded_kept(row->scale[u], factor), offset = f.offset ? qr_coded_kept(row->offset[u], factor) : 0;
    if (f.steps) {
        scale *= (float)row->step[g];
        offset *= f.offset ? (float)row->offset_step[g] : 0;
    }
    if (f.zero)
        offset = -(scale * (float)row->offset_step[g]);
    return qr_f32_to_bf16(fmaf(scale, (float)row->level[i], offset));
}

#endif
