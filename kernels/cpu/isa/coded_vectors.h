/* coded_vectors.h - coded weights of one panel (coded.h) on their way to a product. Included by files that are compiled for a level. */
#ifndef QR_KERNELS_CPU_ISA_CODED_VECTORS_H
#define QR_KERNELS_CPU_ISA_CODED_VECTORS_H

#include "kernels/cpu/isa/coded.h"
#include "kernels/cpu/isa/quant_vectors.h"

/* A float's exponent alone, as a power of two; 0 for a zero. */
VF_FN vf exponent_of(vf x)
{
#ifdef QR_ISA_avx2
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000)));
#else
    return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000)));
#endif
}

/* The nearest bf16, even on a tie, of a number of at most 2^100: beside 1.5 * 2^16 of its own power of two, which ends where bf16 does, it
 * loses what lies below. NaN stays NaN. */
VF_FN vf coded_rounded(vf x)
{
    const vf power = exponent_of(x), large = vf_set1(0x1.8p16f);
    return vf_fnma(power, large, vf_fma(power, large, x));
}

/* What levels are looked up in; codes of a line: of 8 inputs with 4 bits, of 4 with 8. */
#ifdef QR_ISA_avx2
struct coded_levels {
    vi table;
};
struct coded_line {
    vi level[2]; /* four bytes in each lane */
};

VF_FN struct coded_levels coded_levels_of(const int bits, const uint8_t *panel)
{
    return (struct coded_levels){bits == 4 ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(panel + QR_CODED_LEVELS_AT)))
                                           : _mm256_setzero_si256()};
}

VF_FN struct coded_line coded_line_at(const int bits, const uint8_t *codes, const struct coded_levels *l)
{
    const vi low_half = VI(set1_epi8)(15), v = VI_LOAD(codes);
    if (bits == 8)
        return (struct coded_line){{v, v}};
    return (struct coded_line){{VI(shuffle_epi8)(l->table, VI_AND(v, low_half)), VI(shuffle_epi8)(l->table, VI_AND(VI(srli_epi16)(v, 4), low_half))}};
}

VF_FN vf coded_level(const int bits, const struct coded_line *line, const int k, const struct coded_levels *l)
{
    (void)bits;
    (void)l;
    return vf_quads_at(line->level[k / 4], k % 4);
}
#else
struct coded_levels {
    vf table;
};
struct coded_line {
    vi code;
};

VF_FN struct coded_levels coded_levels_of(const int bits, const uint8_t *panel)
{
    return (struct coded_levels){
        bits == 4 ? _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(panel + QR_CODED_LEVELS_AT)))) : vf_zero()};
}

VF_FN struct coded_line coded_line_at(const int bits, const uint8_t *codes, const struct coded_levels *l)
{
    (void)bits;
    (void)l;
    return (struct coded_line){VI_LOAD(codes)};
}

VF_FN vf coded_level(const int bits, const struct coded_line *line, const int k, const struct coded_levels *l)
{
    if (bits == 8)
        return vf_quads_at(line->code, k);
    return _mm512_permutexvar_ps(k == 0 ? line->code : VI(srli_epi32)(line->code, (unsigned)(8 * (k % 4) + 4 * (k / 4))), l->table);
}
#endif

/* What the weights of a group are made of, for the outputs of a vector. */
struct coded_scales {
    vf scale, offset;
};

/* From input `in` of the block and output `o` of the panel on. */
VF_FN struct coded_scales coded_scales_at(const struct qr_coded_shape *s, const uint8_t *panel, const uint8_t *block, int32_t in, int32_t o)
{
    const vf factor = vf_load((const float *)(const void *)panel + o);
    const uint16_t *unit = (const uint16_t *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + o;
    const int8_t *step = (const int8_t *)block + (in >> s->group_shift) * QR_PANEL + o;
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

/* A block's scales, asked for `ahead` bytes before their time. */
VF_FN void coded_ask_scales(const struct qr_coded_shape *s, const uint8_t *block, int64_t ahead)
{
    for (int32_t at = 0; at < s->codes_at; at += 64)
        _mm_prefetch((const char *)block + at + ahead, _MM_HINT_T0);
}

/* n inputs from k on, 16 or 32, which share scales, as rows of pairs. */
#ifdef QR_ISA_amx
/* Scales of outputs in twos: those of the panel's first and of its second half. */
VF_FN struct coded_scales coded_twice(const struct coded_scales *c, const int half)
{
    const __m512i twos = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), _mm512_set1_epi32(8 * half));
    return (struct coded_scales){_mm512_permutexvar_ps(twos, c->scale), _mm512_permutexvar_ps(twos, c->offset)};
}

/* Of 8 bits: 4 become rows of outputs first (amx/coded_table.h). Numbers below 2^-126, which the conversion takes for 0, are none here: weights are whole
 * multiples of 2^-84. */
VF_FN void coded_unpack_run(const int bits, const int n, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k,
                            const struct coded_levels *l, int64_t ahead)
{
    const int line_pairs = 4;
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        coded_ask_scales(s, block, ahead);
    const struct coded_scales c = coded_scales_at(s, panel, block, in, 0), low = coded_twice(&c, 0), high = coded_twice(&c, 1);
    for (int i = 0; i < n / 2 / line_pairs; i++) {
        const struct coded_line a = coded_line_at(bits, codes + i * 128, l), b = coded_line_at(bits, codes + i * 128 + 64, l);
        _mm_prefetch((const char *)codes + i * 128 + ahead, _MM_HINT_T1);
        _mm_prefetch((const char *)codes + i * 128 + 64 + ahead, _MM_HINT_T1);
#pragma GCC unroll 8
        for (int t = 0; t < line_pairs; t++) {
            const vf first = vf_fma(coded_level(bits, &a, t, l), low.scale, low.offset), second = vf_fma(coded_level(bits, &b, t, l), high.scale, high.offset);
            VI_STORE(dst + (i * line_pairs + t) * 64, (__m512i)_mm512_cvtne2ps_pbh(second, first));
        }
    }
}
#else
/* Pairs of bf16 of two k. */
VF_FN vi coded_pair(vf first, vf second)
{
    return VI_OR(VI(srli_epi32)(VI_OF_FLOATS(coded_rounded(first)), 16), VI_OF_FLOATS(coded_rounded(second)));
}

VF_FN void coded_unpack_run(const int bits, const int n, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k,
                            const struct coded_levels *l, int64_t ahead)
{
    const int line_k = bits == 4 ? 8 : 4;
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        coded_ask_scales(s, block, ahead);
    for (int32_t at = 0; at < 64; at += VI_BYTES) {
        const struct coded_scales c = coded_scales_at(s, panel, block, in, at / 4);
        for (int i = 0; i < n / line_k; i++) {
            const struct coded_line line = coded_line_at(bits, codes + i * 64 + at, l);
            _mm_prefetch((const char *)codes + i * 64 + ahead, _MM_HINT_T1);
#pragma GCC unroll 4
            for (int j = 0; j < line_k; j += 2) {
                const vf first = coded_level(bits, &line, j, l), second = coded_level(bits, &line, j + 1, l);
                VI_STORE(dst + (i * line_k + j) * 32 + at, coded_pair(vf_fma(first, c.scale, c.offset), vf_fma(second, c.scale, c.offset)));
            }
        }
    }
}
#endif

VF_FN void coded_unpack_32(const int bits, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k, const struct coded_levels *l,
                           int64_t ahead)
{
    if (s->group_shift > 4) {
        coded_unpack_run(bits, 32, dst, s, panel, k, l, ahead);
        return;
    }
    coded_unpack_run(bits, 16, dst, s, panel, k, l, ahead);
    coded_unpack_run(bits, 16, dst + 16 * QR_PANEL * 2, s, panel, k + 16, l, ahead);
}

/* Groups of 32 inputs [block, block + n) of a panel as bf16, [k / 2][16][2], from dst's begin on. Weights `ahead` bytes further on are asked for. */
static inline void qr_unpack_coded(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t block, int32_t n, int64_t ahead)
{
    const struct coded_levels l = s->f.bits == 4 ? coded_levels_of(4, panel) : coded_levels_of(8, panel);
    for (int32_t k = block * 32; k < (block + n) * 32; k += 32, dst += 32 * QR_PANEL * 2)
        if (s->f.bits == 4)
            coded_unpack_32(4, dst, s, panel, k, &l, ahead);
        else
            coded_unpack_32(8, dst, s, panel, k, &l, ahead);
}

#endif
