/* vectors.h - coded weights of one panel (coded.h) on their way to a product. Included by files that are compiled for a level. */
#ifndef QR_KERNELS_CPU_ISA_CODED_VECTORS_H
#define QR_KERNELS_CPU_ISA_CODED_VECTORS_H

#ifdef QR_ISA_avx2
#include "kernels/cpu/isa/coded/avx2.h"
#else
#include "kernels/cpu/isa/coded/fours.h"

/* A float's exponent alone, as a power of two; 0 for a zero. */
VF_FN vf exponent_of(vf x)
{
    return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000)));
}

/* The nearest bf16, even on a tie, of a number of at most 2^100: beside 1.5 * 2^16 of its own power of two, which ends where bf16 does, it
 * loses what lies below. NaN stays NaN. */
VF_FN vf coded_rounded(vf x)
{
    const vf power = exponent_of(x), large = vf_set1(0x1.8p16f);
    return vf_fnma(power, large, vf_fma(power, large, x));
}

/* What levels are looked up in; codes of a line: of 8 inputs with 4 bits, else of 4; of 2 and 3 bits, of what they are with 4. */
VF_FN int coded_line_inputs(const int bits)
{
    return bits <= 4 ? 8 : 4;
}

VF_FN int coded_line_bytes(const int bits)
{
    return bits <= 4 || bits >= 8 ? 64 : QR_CODED_LINE / 8 * bits;
}

/* Level k of the four whose codes a lane has, from its lowest bit on. */
VF_FN vf coded_four(const int bits, const bool offset, vi codes, const int k)
{
    const vi top = VI(slli_epi32)(codes, (unsigned)(32 - bits * (k % 4 + 1)));
    return VI(cvtepi32_ps)(bits == 5 && offset ? VI(srli_epi32)(top, (unsigned)(32 - bits)) : VI(srai_epi32)(top, (unsigned)(32 - bits)));
}

#ifndef QR_ISA_amx
/* Number k of each output's four E4M3 codes, 2^-8 of what is meant: of two codes in 16 bits one moves to where an f16 has the same sign, exponent and fraction,
 * and processors convert these at full speed, small ones without exponents as well. */
VF_FN vf coded_number(vi codes, const int k)
{
    const vi top = k % 2 ? codes : VI(slli_epi16)(codes, 8), half = VI_AND(VI(srai_epi16)(top, 1), VI(set1_epi16)((int16_t)0xbf80));
    return _mm512_cvtph_ps(k / 2 ? _mm512_extracti64x4_epi64(half, 1) : _mm512_castsi512_si256(half));
}
#endif

struct coded_levels {
    vf table, upper; /* upper: with 5 bits on tiles, of codes from 16 on */
};
struct coded_line {
    vi code;
};

VF_FN struct coded_levels coded_levels_of(const int bits, const uint8_t *panel)
{
    struct coded_levels l = {vf_zero(), vf_zero()};
    if (bits == 4)
        l.table = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(panel + QR_CODED_LEVELS_AT))));
    if (bits < 4) /* of codes that there are */
        l.table = vf_sub(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), vf_set1(bits == 3 ? 4 : 0));
    return l;
}

/* A line of less than 8 bits; what is loaded ends where it does, and begins in the same panel. */
#ifdef QR_ISA_amx
/* Of `bits` bytes each, the lanes' codes in pairs of lanes. */
VF_FN vi coded_widened(const int bits, const uint8_t *codes)
{
    const __m512i six = _mm512_set_epi64(0x3f3e3d3c3b3a, 0x393837363534, 0x333231302f2e, 0x2d2c2b2a2928, 0x272625242322, 0x21201f1e1d1c, 0x1b1a19181716,
                                         0x151413121110);
    const __m512i five = _mm512_set_epi64(0x3f3e3d3c3b, 0x3a39383736, 0x3534333231, 0x302f2e2d2c, 0x2b2a292827, 0x2625242322, 0x21201f1e1d, 0x1c1b1a1918);
    return _mm512_permutexvar_epi8(bits == 6 ? six : five, VI_LOAD(codes + 8 * bits - 64));
}
#else
/* A lane's codes in each; an odd lane of 5 bits begins in the middle of a byte. */
VF_FN vi coded_widened(const int bits, const uint8_t *codes)
{
    const vi words6 = _mm512_set_epi16(0, 0, 31, 30, 29, 28, 27, 26, 0, 0, 25, 24, 23, 22, 21, 20, 0, 0, 19, 18, 17, 16, 15, 14, 0, 0, 13, 12, 11, 10, 9, 8);
    const vi words5 = _mm512_set_epi16(0, 0, 0, 31, 30, 29, 28, 27, 0, 0, 0, 26, 25, 24, 23, 22, 0, 0, 0, 21, 20, 19, 18, 17, 0, 0, 0, 16, 15, 14, 13, 12);
    const __m128i six = _mm_setr_epi8(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12), five = _mm_setr_epi8(0, 1, 2, 3, 2, 3, 4, 5, 5, 6, 7, 8, 7, 8, 9, 10);
    const vi quarters = _mm512_permutexvar_epi16(bits == 6 ? words6 : words5, VI_LOAD(codes + 8 * bits - 64));
    const vi v = _mm512_shuffle_epi8(quarters, _mm512_broadcast_i32x4(bits == 6 ? six : five));
    return bits == 6 ? v : _mm512_srlv_epi32(v, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 4, 0, 4)));
}
#endif

VF_FN struct coded_line coded_line_at(const int bits, const uint8_t *codes, const struct coded_levels *l)
{
    (void)l;
    return (struct coded_line){bits == 5 || bits == 6 ? coded_widened(bits, codes) : VI_LOAD(codes)};
}

/* Of a group of 16 from input `in` of a block on, of 2 or 3 bits: its line i, of two. codes: where the group's would begin if they had their own bytes. */
VF_FN struct coded_line coded_line_of(const int bits, const uint8_t *codes, int32_t in, int i)
{
    if (bits == 2)
        return (struct coded_line){i ? fours_line(2, codes, 1) : fours_line(2, codes, 0)};
    if ((in & 16) == 0)
        return (struct coded_line){i ? fours_line(3, codes, 1) : fours_line(3, codes, 0)};
    codes -= 3 * QR_CODED_LINE / 2;
    return (struct coded_line){i ? fours_line(3, codes, 3) : fours_line(3, codes, 2)};
}

#ifndef QR_ISA_amx
VF_FN vf coded_level(const int bits, const bool offset, const struct coded_line *line, const int k, const struct coded_levels *l)
{
    if (bits == QR_CODED_E4M3)
        return coded_number(line->code, k);
    if (bits > 4)
        return coded_four(bits, offset, line->code, k);
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
    if (s->f.e4m3) {
        const vf scale = vf_load((const float *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + o);
#ifdef QR_ISA_amx
        return (struct coded_scales){scale, vf_zero()};
#else
        return (struct coded_scales){vf_mul(scale, vf_set1(256)), vf_zero()}; /* of coded_number */
#endif
    }
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

/* Codes become floats without a conversion, which would take the port that tile products leave to floats (amx/coded_table.h): a code as the top of the 23 bits
 * behind the exponent of 2^bits is 2^bits and itself, so level k of a lane's four is that less coded_more. 6 and 8 bits. */
VF_FN vf coded_and_more(const int bits, const struct coded_line *line, const int k)
{
    const int at = bits * k - (23 - bits), first = at & 63, second = (at + 4 * bits) & 63; /* bits from which the bytes of a pair of lanes are taken */
    const uint64_t low = (uint64_t)first | (uint64_t)((first + 8) & 63) << 8 | (uint64_t)((first + 16) & 63) << 16 | (uint64_t)((first + 24) & 63) << 24;
    const uint64_t high = (uint64_t)second | (uint64_t)((second + 8) & 63) << 8 | (uint64_t)((second + 16) & 63) << 16 | (uint64_t)((second + 24) & 63) << 24;
    const int32_t mask = ((1 << bits) - 1) << (23 - bits), sign = 1 << 22;
    const __m512i code = _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)(low | high << 32)), line->code);
    return VI_AS_FLOATS(_mm512_ternarylogic_epi32(code, _mm512_set1_epi32(mask), _mm512_set1_epi32((127 + bits) << 23 | sign), 0x6a)); /* (code & mask) ^ */
}

VF_FN vf coded_more(const int bits)
{
    return vf_set1((float)(3 << (bits - 1)));
}

/* scale level + offset. Without an offset there is one that takes coded_more scale back: it is exact, as scales have 18 bits at most and coded_more two. */
VF_FN vf coded_exact(const int bits, const bool offset, const struct coded_line *line, const int k, const struct coded_scales *c)
{
    const vf v = coded_and_more(bits, line, k);
    return vf_fma(offset ? vf_sub(v, coded_more(bits)) : v, c->scale, c->offset);
}

/* Of 6 and 8 bits: fewer become rows of outputs first (amx/coded_table.h). Numbers below 2^-126, which the conversion takes for 0, are none here: weights are
 * whole multiples of 2^-84. */
VF_FN void coded_unpack_run(const int bits, const bool offset, const int n, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k,
                            const struct coded_levels *l, int64_t ahead)
{
    const int line_pairs = 4, line = coded_line_bytes(bits);
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        coded_ask_scales(s, block, ahead);
    struct coded_scales c = coded_scales_at(s, panel, block, in, 0);
    if (!offset)
        c.offset = vf_fnma(c.scale, coded_more(bits), vf_zero());
    const struct coded_scales low = coded_twice(&c, 0), high = coded_twice(&c, 1);
    for (int i = 0; i < n / 2 / line_pairs; i++) {
        const struct coded_line a = coded_line_at(bits, codes + i * 2 * line, l), b = coded_line_at(bits, codes + i * 2 * line + line, l);
        _mm_prefetch((const char *)codes + i * 2 * line + ahead, _MM_HINT_T1);
        _mm_prefetch((const char *)codes + i * 2 * line + line + ahead, _MM_HINT_T1);
#pragma GCC unroll 8
        for (int t = 0; t < line_pairs; t++) {
            const vf first = coded_exact(bits, offset, &a, t, &low), second = coded_exact(bits, offset, &b, t, &high);
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

VF_FN void coded_unpack_run(const int bits, const bool offset, const int n, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k,
                            const struct coded_levels *l, int64_t ahead)
{
    const int line_k = coded_line_inputs(bits), line_bytes = coded_line_bytes(bits);
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t in = k & ((1 << s->block_shift) - 1);
    if (in == 0)
        coded_ask_scales(s, block, ahead);
    for (int32_t at = 0; at < 64; at += VI_BYTES) {
        const struct coded_scales c = coded_scales_at(s, panel, block, in, at / 4);
        for (int i = 0; i < n / line_k; i++) {
            const uint8_t *w = codes + i * line_bytes + at * line_bytes / 64;
            const struct coded_line line = bits < 4 ? coded_line_of(bits, codes, in, i) : coded_line_at(bits, w, l);
            _mm_prefetch((const char *)codes + i * line_bytes + ahead, _MM_HINT_T1);
#pragma GCC unroll 4
            for (int j = 0; j < line_k; j += 2) {
                const vf first = coded_level(bits, offset, &line, j, l), second = coded_level(bits, offset, &line, j + 1, l);
                VI_STORE(dst + (i * line_k + j) * 32 + at, coded_pair(vf_fma(first, c.scale, c.offset), vf_fma(second, c.scale, c.offset)));
            }
        }
    }
}
#endif

VF_FN void coded_unpack_32(const int bits, const bool offset, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k,
                           const struct coded_levels *l, int64_t ahead)
{
    if (s->group_shift > 4) {
        coded_unpack_run(bits, offset, 32, dst, s, panel, k, l, ahead);
        return;
    }
    coded_unpack_run(bits, offset, 16, dst, s, panel, k, l, ahead);
    coded_unpack_run(bits, offset, 16, dst + 16 * QR_PANEL * 2, s, panel, k + 16, l, ahead);
}

/* DO with the bits of format f and whether it has offsets, both known when compiling; not of 2 and 3 bits, on tiles of 6 and 8. */
#ifdef QR_ISA_amx
#define CODED_BY_FORMAT(f, DO)               \
    do {                                     \
        if ((f).bits == 6)                   \
            CODED_BY_OFFSET(6, f, DO);       \
        else                                 \
            CODED_BY_OFFSET(8, f, DO);       \
    } while (0)
#else
#define CODED_BY_FORMAT(f, DO)               \
    do {                                     \
        if ((f).e4m3)                        \
            DO(QR_CODED_E4M3, false);        \
        else if ((f).bits == 4)              \
            DO(4, false);                    \
        else if ((f).bits == 5)              \
            CODED_BY_OFFSET(5, f, DO);       \
        else if ((f).bits == 6)              \
            DO(6, false);                    \
        else                                 \
            DO(8, false);                    \
    } while (0)
#endif
#define CODED_BY_OFFSET(bits, f, DO)         \
    do {                                     \
        if ((f).offset)                      \
            DO(bits, true);                  \
        else                                 \
            DO(bits, false);                 \
    } while (0)

#ifndef QR_ISA_amx
/* As below, of 2 and 3 bits. */
static __attribute__((noinline)) void unpack_fours(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t block, int32_t n, int64_t ahead)
{
    const struct coded_levels two = coded_levels_of(2, panel), three = coded_levels_of(3, panel);
    for (int32_t k = block * 32; k < (block + n) * 32; k += 32, dst += 32 * QR_PANEL * 2)
        if (s->f.bits == 2)
            coded_unpack_32(2, false, dst, s, panel, k, &two, ahead);
        else
            coded_unpack_32(3, false, dst, s, panel, k, &three, ahead);
}
#endif

/* Groups of 32 inputs [block, block + n) of a panel as bf16, [k / 2][16][2], from dst's begin on. Weights `ahead` bytes further on are asked for. */
static inline void qr_unpack_coded(uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel, int32_t block, int32_t n, int64_t ahead)
{
#ifndef QR_ISA_amx
    if (s->f.bits < 4) {
        unpack_fours(dst, s, panel, block, n, ahead);
        return;
    }
#endif
#define UNPACK(bits, offset)                                                                                     \
    do {                                                                                                         \
        const struct coded_levels l = coded_levels_of(bits, panel);                                              \
        for (int32_t k = block * 32; k < (block + n) * 32; k += 32, dst += 32 * QR_PANEL * 2)                    \
            coded_unpack_32(bits, offset, dst, s, panel, k, &l, ahead);                                          \
    } while (0)
    CODED_BY_FORMAT(s->f, UNPACK);
#undef UNPACK
}

#endif
#endif
