/* coded_vectors.h - coded weights of one panel (isa/coded/coded.h) on their way to tiles: what all formats have in
 * common, and 6 and 8 bits. Inside this folder only. */
#ifndef QR_KERNELS_CPU_AMX_CODED_VECTORS_H
#define QR_KERNELS_CPU_AMX_CODED_VECTORS_H

#include "kernels/cpu/isa/coded/lines.h"

VF_FN int coded_line_bytes(const int bits)
{
    return bits <= 4 || bits >= 8 ? 64 : QR_CODED_LINE / 8 * bits;
}

/* A line of less than 8 bits, of `bits` bytes each the lanes' codes in pairs of lanes; what is loaded ends where the
 * line does, and begins in the same panel. */
VF_FN vi coded_widened(const int bits, const uint8_t *codes)
{
    const __m512i six = _mm512_set_epi64(0x3f3e3d3c3b3a, 0x393837363534, 0x333231302f2e, 0x2d2c2b2a2928, 0x272625242322, 0x21201f1e1d1c, 0x1b1a19181716,
                                         0x151413121110);
    const __m512i five = _mm512_set_epi64(0x3f3e3d3c3b, 0x3a39383736, 0x3534333231, 0x302f2e2d2c, 0x2b2a292827, 0x2625242322, 0x21201f1e1d, 0x1c1b1a1918);
    return _mm512_permutexvar_epi8(bits == 6 ? six : five, VI_LOAD(codes + 8 * bits - 64));
}

VF_FN vi coded_line_at(const int bits, const uint8_t *codes)
{
    return bits == 5 || bits == 6 ? coded_widened(bits, codes) : VI_LOAD(codes);
}

/* What the weights of a group are made of, for the 16 outputs. */
struct coded_scales {
    vf scale, offset;
};

/* From input `in` of the block on. */
VF_FN struct coded_scales coded_scales_at(const struct qr_coded_shape *s, const uint8_t *panel, const uint8_t *block, int32_t in)
{
    if (s->f.e4m3)
        return (struct coded_scales){vf_load((const float *)(const void *)block + (in >> s->unit_shift) * QR_PANEL), vf_zero()};
    const vf factor = vf_load((const float *)(const void *)panel);
    const uint16_t *unit = (const uint16_t *)(const void *)block + (in >> s->unit_shift) * QR_PANEL;
    const int8_t *step = (const int8_t *)block + (in >> s->group_shift) * QR_PANEL;
    struct coded_scales c = {vf_mul(vf_load_f16_n(unit, VF_LEN), factor), vf_zero()};
    if (s->f.offset)
        c.offset = vf_mul(vf_load_f16_n(unit + s->offset_at / 2, VF_LEN), factor);
    if (s->f.steps)
        c.scale = vf_mul(c.scale, vf_load_i8_n(step + s->step_at, VF_LEN));
    if (s->f.steps && s->f.offset)
        c.offset = vf_mul(c.offset, vf_load_i8_n(step + s->offset_step_at, VF_LEN));
    if (s->f.zero)
        c.offset = vf_fnma(c.scale, vf_load_i8_n(step + s->offset_step_at, VF_LEN), vf_zero());
    return c;
}

/* Scales of outputs in twos: those of the panel's first and of its second half. */
VF_FN struct coded_scales coded_twice(const struct coded_scales *c, const int half)
{
    const __m512i twos = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), _mm512_set1_epi32(8 * half));
    return (struct coded_scales){_mm512_permutexvar_ps(twos, c->scale), _mm512_permutexvar_ps(twos, c->offset)};
}

/* Codes become floats without a conversion, which would take the port that tile products leave to floats
 * (amx/coded_table.h): a code as the top of the 23 bits behind the exponent of 2^bits is 2^bits and itself, so level k
 * of a lane's four is that less coded_more. 6 and 8 bits. */
VF_FN vf coded_and_more(const int bits, vi line, const int k)
{
    const int at = bits * k - (23 - bits), first = at & 63, second = (at + 4 * bits) & 63; /* bits from which the bytes of a pair of lanes are taken */
    const uint64_t low = (uint64_t)first | (uint64_t)((first + 8) & 63) << 8 | (uint64_t)((first + 16) & 63) << 16 | (uint64_t)((first + 24) & 63) << 24;
    const uint64_t high = (uint64_t)second | (uint64_t)((second + 8) & 63) << 8 | (uint64_t)((second + 16) & 63) << 16 | (uint64_t)((second + 24) & 63) << 24;
    const int32_t mask = ((1 << bits) - 1) << (23 - bits), sign = 1 << 22;
    const __m512i code = _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)(low | high << 32)), line);
    return VI_AS_FLOATS(_mm512_ternarylogic_epi32(code, _mm512_set1_epi32(mask), _mm512_set1_epi32((127 + bits) << 23 | sign), 0x6a)); /* (code & mask) ^ */
}

VF_FN vf coded_more(const int bits)
{
    return vf_set1((float)(3 << (bits - 1)));
}

/* scale level of 6 or 8 bits: an offset takes coded_more scale back, which is exact, as scales have 18 bits at most and
 * coded_more two. n inputs from k on, 16 or 32, which share scales, as rows of pairs. Fewer bits become rows of outputs
 * first (amx/coded_table.h). Numbers below 2^-126, which the conversion takes for 0, are none here: weights are whole
 * multiples of 2^-84. */
VF_FN void coded_unpack_run(const int bits, const int n, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k, int64_t ahead)
{
    const int line_pairs = 4, line = coded_line_bytes(bits);
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        qr_coded_prefetch_scales(s, block, ahead);
    struct coded_scales c = coded_scales_at(s, panel, block, in);
    c.offset = vf_fnma(c.scale, coded_more(bits), vf_zero());
    const struct coded_scales low = coded_twice(&c, 0), high = coded_twice(&c, 1);
    for (int i = 0; i < n / 2 / line_pairs; i++) {
        const vi a = coded_line_at(bits, codes + i * 2 * line), b = coded_line_at(bits, codes + i * 2 * line + line);
        _mm_prefetch((const char *)codes + i * 2 * line + ahead, _MM_HINT_T1);
        _mm_prefetch((const char *)codes + i * 2 * line + line + ahead, _MM_HINT_T1);
#pragma GCC unroll 8
        for (int t = 0; t < line_pairs; t++) {
            const vf first = vf_fma(coded_and_more(bits, a, t), low.scale, low.offset), second = vf_fma(coded_and_more(bits, b, t), high.scale, high.offset);
            VI_STORE(dst + (i * line_pairs + t) * 64, (__m512i)_mm512_cvtne2ps_pbh(second, first));
        }
    }
}

VF_FN void coded_unpack_32(const int bits, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k, int64_t ahead)
{
    if (s->group_shift > 4) {
        coded_unpack_run(bits, 32, dst, s, panel, k, ahead);
        return;
    }
    coded_unpack_run(bits, 16, dst, s, panel, k, ahead);
    coded_unpack_run(bits, 16, dst + 16 * QR_PANEL * 2, s, panel, k + 16, ahead);
}

/* Groups of 32 inputs [block, block + n) of a panel of 6 or 8 bits as bf16, [k / 2][16][2], from dst's begin on.
 * Prefetches weights `ahead` bytes further on. */
static inline void qr_unpack_coded(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t block, int32_t n, int64_t ahead)
{
    QR_ASSERT((s->f.bits == 6 || s->f.bits == 8) && !s->f.offset);
    for (int32_t k = block * 32; k < (block + n) * 32; k += 32, dst += 32 * QR_PANEL * 2)
        if (s->f.bits == 6)
            coded_unpack_32(6, dst, s, panel, k, ahead);
        else
            coded_unpack_32(8, dst, s, panel, k, ahead);
}

#endif
