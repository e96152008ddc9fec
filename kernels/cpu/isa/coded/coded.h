/* coded.h - products with coded weights (kernels.h, linear_pack_coded): what pack.c, linear/pack.c, linear.c and amx/
 * share. Inside kernels/cpu only.
 *
 * Packed weights: panels of 16 outputs, a head and blocks of 64, 128 (groups of 128) or 256 inputs (with steps), each
 * of which is one piece, so that a panel is read from its begin to its end.
 *     head     16 factors (f32), not with E4M3 codes; with 4 bits the 16 levels (int8) in 64 bytes more
 *     block    [units][16] scales (f16, of E4M3 codes f32); offsets of the same form; [groups][16] steps (int8); steps
 *              of offsets, or zeros, of the same form; padded to 64 bytes; then codes
 *              8 bits: [k / 4] lines of 64 codes [16][4], each a level in two's complement
 *              4 bits: [k / 8][16][4] bytes: low half the index of k = 8 i + t, high half that of k = 8 i + 4 + t
 *              6 bits: [k / 4] lines of 48 bytes: levels [16][4], code c from bit 6 c on
 *              2, 3 and 5 bits: 32 inputs are as many lines, made of what they would be with 4 bits (lines.h)
 *              E4M3 codes: [k / 4] lines [2][16][2]: k % 4 / 2; output, k % 2
 * On tiles (amx) codes lie otherwise, 64 to a line; code c of a line of 5 or 6 bits begins at bit `bits` c of it:
 *              6 and 8 bits, where two vectors of 8 outputs by two inputs become a row of pairs at once: levels,
 *              [k / 8][2] lines [8][2][4]: k / 8, half of the outputs; output, k % 2, k % 8 / 2
 *              5 bits, which become rows of 32 inputs of one output: levels, without a sign where there are offsets,
 *              [k / 32][8] lines [8][2][4]: two outputs; k % 32 / 4, output, k % 4
 *              4 bits: [k / 32][4][32] words: four outputs, the first in the lowest 4 bits; 2 and 3 bits: of these
 *              E4M3 codes as those of 5 bits, a byte each: the upper three bits of the exponent, sign, lowest bit of
 *              the exponent, mantissa
 * Missing outputs have the factor 0; missing inputs meet zeros of x.
 */
#ifndef QR_KERNELS_CPU_ISA_CODED_CODED_H
#define QR_KERNELS_CPU_ISA_CODED_CODED_H

#include "base/assert.h"
#include "kernels/coded.h"
#include "kernels/cpu/isa/linear/micro.h"

#define QR_CODED_LEVELS_AT (QR_PANEL * (int32_t)sizeof(float))
#define QR_CODED_K 64 /* inputs of the smallest block */
#define QR_CODED_LINE 64 /* bytes of a line, and on tiles codes */
#define QR_CODED_BLOCK_MAX 256 /* inputs of a block */
#define QR_CODED_E4M3 9 /* in place of `bits` where these are known to the compiler: 8, and codes are E4M3 numbers */

/* Where the parts of a panel lie; in bytes but for the shifts (log2 of inputs). */
struct qr_coded_shape {
    struct qr_coded_format f;
    int32_t block_shift, unit_shift, group_shift;
    int32_t offset_at, step_at, offset_step_at, codes_at, block_bytes, head_bytes; /* in a block; of a block; in front of them */
    int64_t n_blocks, panel_bytes;
};

/* All but what the number of inputs says. */
static inline struct qr_coded_shape qr_coded_shape_of_format(const struct qr_coded_format f)
{
    struct qr_coded_shape s = {.f = f, .head_bytes = f.e4m3 ? 0 : f.bits == 4 ? 2 * QR_CODED_LEVELS_AT : QR_CODED_LEVELS_AT};
    s.group_shift = __builtin_ctz((unsigned)f.group);
    s.unit_shift = __builtin_ctz((unsigned)qr_coded_unit(f));
    s.block_shift = f.steps ? s.unit_shift : f.group > QR_CODED_K ? s.group_shift : __builtin_ctz(QR_CODED_K);
    const int32_t block = 1 << s.block_shift, units = (f.e4m3 ? 4 : 2) * QR_PANEL * (block >> s.unit_shift), steps = QR_PANEL * (block >> s.group_shift);
    s.offset_at = units;
    s.step_at = s.offset_at + (f.offset ? units : 0);
    s.offset_step_at = s.step_at + (f.steps ? steps : 0);
    s.codes_at = (s.offset_step_at + ((f.steps && f.offset) || f.zero ? steps : 0) + 63) / 64 * 64;
    s.block_bytes = s.codes_at + block * QR_PANEL * f.bits / 8;
    return s;
}

static inline struct qr_coded_shape qr_coded_shape_of(enum qr_dtype t, int64_t n_in)
{
    struct qr_coded_shape s = qr_coded_shape_of_format(qr_dtype_coded(t));
    s.n_blocks = (n_in + (1 << s.block_shift) - 1) >> s.block_shift;
    s.panel_bytes = s.head_bytes + s.n_blocks * s.block_bytes;
    return s;
}

/* Types that only devices have: what they make of 2 and 3 bits. */
static inline bool qr_coded_elsewhere(enum qr_dtype t)
{
    return t == QR_C4_G16_S || t == QR_C4_G16_SO;
}

/* The block of input k, and where in it the codes of k begin, a multiple of 8. */
static inline const uint8_t *qr_coded_block(const struct qr_coded_shape *s, const uint8_t *panel, int32_t k)
{
    return panel + s->head_bytes + (int64_t)(k >> s->block_shift) * s->block_bytes;
}

static inline int64_t qr_coded_codes_at(const struct qr_coded_shape *s, int32_t k)
{
    return s->codes_at + (int64_t)(k & ((1 << s->block_shift) - 1)) * QR_PANEL * s->f.bits / 8;
}

/* Prefetches the scales that lie `ahead` bytes behind a block's. */
static inline __attribute__((always_inline)) void qr_coded_prefetch_scales(const struct qr_coded_shape *s,
                                                                           const uint8_t *block, int64_t ahead)
{
    for (int32_t at = 0; at < s->codes_at; at += 64)
        __builtin_prefetch(block + at + ahead);
}

#define QR_CODED_DECLARE(isa)                                                                                              \
    size_t qr_##isa##_coded_packed_bytes(enum qr_dtype to, int64_t n_out, int64_t n_in);                                   \
    void qr_##isa##_linear_pack_coded(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in,        \
                                      int64_t row0, const struct qr_coded_source *rows, int64_t n_rows);                   \
    /* Row `row` of 16 in a panel, times scale. */                                                                         \
    void qr_##isa##_coded_row(float *out, enum qr_dtype t, const uint8_t *panel, int32_t row, int64_t n_in, float scale);
QR_CODED_DECLARE(avx2) /* and avx512, whose panels are avx2's */
QR_CODED_DECLARE(amx)
#ifdef QR_ISA_amx
#define QR_CODED_NAME(name) qr_amx_##name
#else
#define QR_CODED_NAME(name) qr_avx2_##name
#endif

#endif
