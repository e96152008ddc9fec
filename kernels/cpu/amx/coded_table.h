/* coded_table.h - coded weights of 2 to 5 bits on their way to tiles (isa/coded.h: how they lie). Inside this folder only.
 *
 * With 4 bits an output has sixteen weights at most in a group: these are computed and rounded, and 32 codes are looked up among them at a time. What comes
 * of it are rows of outputs, [16][32 inputs], the left operand of a tile product whose right one is x: a product of two numbers does not ask which of them
 * is left, so the sums are those of bf16 weights on the right, bit for bit, but as columns.
 *
 * While tile products run, floats are multiplied and rounded by one port of two only, which vpermw needs as well (docs/kernels.md), so codes
 * are moved by vpmultishiftqb, on the other one, instead of shifts. Scales wait in memory for a whole group, as a load that follows its store too
 * closely would hold up the table. With 5 bits a table is as many numbers as a group, but it does not have to be told which codes it is for, so looking up
 * takes fewer operations than making floats of codes.
 */
#ifndef QR_KERNELS_CPU_AMX_CODED_TABLE_H
#define QR_KERNELS_CPU_AMX_CODED_TABLE_H

#include "base/mem.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/amx/coded_vectors.h"

struct coded_levels {
    vf table, upper; /* upper: with 5 bits of codes from 16 on */
};

/* Of the group at hand and the one after it, by parity: with 2 and 3 bits of two tiles, each of two groups. */
struct coded_tables {
    float scale[2][2][QR_PANEL] __attribute__((aligned(64))), offset[2][2][QR_PANEL];
    uint8_t table[QR_PANEL][32]; /* of the group at hand: bf16 */
    uint16_t number[QR_PANEL][2][32]; /* of E4M3 codes: with exponents and without */
};

/* Halves of what was stored as a whole are loaded, which costs no port that computes; the compiler would take them from the register. */
#define CODED_FROM_MEMORY() __asm__ volatile("" ::: "memory")

/* The parity of input k's group, or of its tile where that has two groups. */
VF_FN int32_t coded_parity(const struct qr_coded_shape *s, int32_t k)
{
    return k >> (1 << s->group_shift < QR_TILE_K ? __builtin_ctz(QR_TILE_K) : s->group_shift) & 1;
}

/* Those of input k, a group's first. */
VF_FN void coded_put_scales(struct coded_tables *t, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k)
{
    const struct coded_scales c = coded_scales_at(s, panel, qr_coded_block(s, panel, k), k & ((1 << s->block_shift) - 1));
    vf_store(t->scale[coded_parity(s, k)][0], c.scale);
    if (s->f.offset || s->f.zero)
        vf_store(t->offset[coded_parity(s, k)][0], c.offset);
}

/* With 2 and 3 bits the two groups of a tile lie in twos of outputs, [output][group] four times over what 128 bits hold: twos 0, 2, .. and then 1, 3, .. */
VF_FN void coded_put_twos(float to[2][QR_PANEL], vf unit, const int8_t *steps)
{
    const vf first = vf_mul(unit, vf_load_i8_n(steps, VF_LEN)), second = vf_mul(unit, vf_load_i8_n(steps + QR_PANEL, VF_LEN));
    vf_store(to[0], _mm512_unpacklo_ps(first, second));
    vf_store(to[1], _mm512_unpackhi_ps(first, second));
}

/* Those of the 32 inputs from k on, which share a unit: the numbers of coded_scales_at. */
VF_FN void coded_put_scales_low(const bool offset, struct coded_tables *t, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k)
{
    const uint8_t *block = qr_coded_block(s, panel, k);
    const int32_t in = k & ((1 << s->block_shift) - 1), parity = coded_parity(s, k);
    const uint16_t *unit = (const uint16_t *)(const void *)block + (in >> s->unit_shift) * QR_PANEL;
    const int8_t *step = (const int8_t *)block + (in >> s->group_shift) * QR_PANEL;
    const vf factor = vf_load((const float *)(const void *)panel);
    coded_put_twos(t->scale[parity], vf_mul(vf_load_f16_n(unit, VF_LEN), factor), step + s->step_at);
    if (offset)
        coded_put_twos(t->offset[parity], vf_mul(vf_load_f16_n(unit + s->offset_at / 2, VF_LEN), factor), step + s->offset_step_at);
}

VF_FN vf coded_twos(const float twos[2][QR_PANEL], int i)
{
    return VI_AS_FLOATS(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)&twos[i % 2][i / 2 * 4])));
}

/* Four levels of outputs 2 i and 2 i + 1 in both groups: [level][output][group]. */
VF_FN vf coded_weights_low(const bool offset, const struct coded_tables *t, vf levels, int32_t parity, int i)
{
    return vf_fma(levels, coded_twos(t->scale[parity], i), offset ? coded_twos(t->offset[parity], i) : vf_zero());
}

VF_FN vf coded_weights(const bool offset, const struct coded_tables *t, const struct coded_levels *l, int32_t parity, int o)
{
    return vf_fma(l->table, vf_set1(t->scale[parity][0][o]), offset ? vf_set1(t->offset[parity][0][o]) : vf_zero());
}

VF_FN void coded_put_tables(const bool offset, struct coded_tables *t, const struct coded_levels *l, int32_t parity)
{
#pragma GCC unroll 8
    for (int o = 0; o < QR_PANEL; o += 2)
        VI_STORE(t->table[o], (__m512i)_mm512_cvtne2ps_pbh(coded_weights(offset, t, l, parity, o + 1), coded_weights(offset, t, l, parity, o)));
    CODED_FROM_MEMORY();
}

/* E4M3 codes of a group: a product's mantissa does not depend on the exponent, so eight mantissas with the exponent's lowest bit and a sign are 32 numbers of
 * bf16, to whose exponents the other bits are added. Numbers without an exponent have mantissas of even ones among these, and smaller exponents. */
VF_FN void coded_put_numbers(struct coded_tables *t, const uint8_t *block)
{
    const float *scale = (const float *)(const void *)block;
    const vf base = _mm512_setr_ps(0x8p-10f, 0x9p-10f, 0xap-10f, 0xbp-10f, 0xcp-10f, 0xdp-10f, 0xep-10f, 0xfp-10f, 0x8p-9f, 0x9p-9f, 0xap-9f, 0xbp-9f,
                                   0xcp-9f, 0xdp-9f, 0xep-9f, 0xfp-9f);
    const __m512i from = _mm512_broadcast_i64x4(_mm256_setr_epi16(0, 0, 0, 4, 0, 2, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i less = _mm512_broadcast_i64x4(_mm256_setr_epi16(0, 2 << 7, 1 << 7, 1 << 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i mantissas = _mm512_add_epi16(from, _mm512_maskz_set1_epi16(0xffff0000u, 16));
#pragma GCC unroll 8
    for (int o = 0; o < QR_PANEL; o++) {
        const vf by = vf_set1(scale[o]);
        const __m512i large = (__m512i)_mm512_cvtne2ps_pbh(vf_mul(base, vf_sub(vf_zero(), by)), vf_mul(base, by));
        VI_STORE(t->number[o][0], large);
        VI_STORE(t->number[o][1], _mm512_sub_epi16(_mm512_maskz_permutexvar_epi16(0x00fe00feu, mantissas, large), less));
    }
    CODED_FROM_MEMORY();
}

/* From input k on, which may be inside a group, to `end`. */
VF_FN void coded_start(const int bits, const bool offset, struct coded_tables *t, const struct qr_coded_shape *s, const uint8_t *panel,
                       const struct coded_levels *l, int32_t k, int32_t end)
{
    const int32_t group = 1 << s->group_shift, first = k & ~(group - 1);
    if (bits < 4) {
        coded_put_scales_low(offset, t, s, panel, k);
        return;
    }
    if (bits == QR_CODED_E4M3) {
        if (k != first)
            coded_put_numbers(t, qr_coded_block(s, panel, k));
        return;
    }
    coded_put_scales(t, s, panel, first);
    if (first == k)
        return;
    coded_put_tables(offset, t, l, coded_parity(s, first));
    if (first + group < end)
        coded_put_scales(t, s, panel, first + group);
}

/* Bits from which bytes are taken that lie `right` of their own, which may be negative. */
VF_FN __m512i coded_from_right(const int right)
{
    uint64_t by = 0;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        by |= (uint64_t)((8 * i + right) & 63) << 8 * i;
    return _mm512_set1_epi64((int64_t)by);
}

/* The next 32 inputs of all 16 outputs, from k on, of 2 or 3 bits; groups are 16 inputs. So few levels leave room in a table for both groups of two outputs
 * (3 bits) or four (2 bits), so half or a quarter of the numbers are computed that 4 bits take. What is looked up, from the lowest bit on: the group, the
 * output's lowest bit, the code and, with 2 bits, the output's second bit. */
VF_FN void coded_tile_low(const int bits, const bool offset, uint8_t *dst, struct coded_tables *t, const struct qr_coded_shape *s, const uint8_t *panel,
                          const struct coded_levels *l, int32_t k, int32_t end, int64_t ahead)
{
    const __m512i group = _mm512_maskz_set1_epi16(0xffff0000u, 1), code = _mm512_set1_epi16(bits == 2 ? 0x0c : 0x1c);
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t parity = coded_parity(s, k);
    if ((k & ((1 << s->block_shift) - 1)) == 0)
        qr_coded_prefetch_scales(s, block, ahead);
    if (k + QR_TILE_K < end)
        coded_put_scales_low(offset, t, s, panel, k + QR_TILE_K);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i line = bits == 2 ? VI_LOAD(codes + i / 2 * QR_CODED_LINE) : i == 3 ? lines_fourth(codes) : VI_LOAD(codes + i * QR_CODED_LINE);
        const vf low = coded_weights_low(offset, t, l->table, parity, 2 * i), other = coded_weights_low(offset, t, l->table, parity, 2 * i + 1);
        __m512i table[2];
        if (bits == 2) {
            table[0] = table[1] = (__m512i)_mm512_cvtne2ps_pbh(other, low);
        } else {
            table[0] = (__m512i)_mm512_cvtne2ps_pbh(coded_weights_low(offset, t, l->upper, parity, 2 * i), low);
            table[1] = (__m512i)_mm512_cvtne2ps_pbh(coded_weights_low(offset, t, l->upper, parity, 2 * i + 1), other);
        }
        if (i < bits)
            _mm_prefetch((const char *)codes + i * QR_CODED_LINE + ahead, _MM_HINT_T1);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m512i place = _mm512_or_si512(group, _mm512_set1_epi16((short)(j % 2 * 2 + (bits == 2 ? j / 2 * 16 : 0))));
            const int right = 4 * j - 2 + (bits == 2 ? i % 2 * 2 : 0);
            const __m512i moved = right == 0 ? line : _mm512_multishift_epi64_epi8(coded_from_right(right), line);
            const __m512i index = _mm512_ternarylogic_epi64(moved, code, place, 0xea); /* (moved & code) | place */
            VI_STORE(dst + (4 * i + j) * QR_TILE_ROW_BYTES, _mm512_permutexvar_epi16(index, table[j / 2]));
        }
    }
}

/* The next 32 inputs of all 16 outputs, from k on, of 4 bits; prefetches codes `ahead` bytes further on. */
VF_FN void coded_tile(const bool offset, uint8_t *dst, struct coded_tables *t, const struct qr_coded_shape *s, const uint8_t *panel,
                      const struct coded_levels *l, int32_t k, int32_t end, int64_t ahead)
{
    const __m512i by[4] = {_mm512_setzero_si512(), _mm512_set1_epi64(0x3c342c241c140c04), _mm512_set1_epi64(0x0038302820181008),
                           _mm512_set1_epi64(0x043c342c241c140c)}; /* bits from which bytes are taken: 4, 8 and 12 beyond their own */
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t group = 1 << s->group_shift;
    if ((k & ((1 << s->block_shift) - 1)) == 0)
        qr_coded_prefetch_scales(s, block, ahead);
    if ((k & (group - 1)) == 0) {
        if (k + group < end)
            coded_put_scales(t, s, panel, k + group);
        coded_put_tables(offset, t, l, coded_parity(s, k));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i line = VI_LOAD(codes + i * 64);
        _mm_prefetch((const char *)codes + i * 64 + ahead, _MM_HINT_T1);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) { /* a table has its 16 entries twice, so that what is beside a code does not matter */
            const __m512i index = j == 0 ? line : _mm512_multishift_epi64_epi8(by[j], line);
            const __m512i table = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)t->table[i * 4 + j]));
            VI_STORE(dst + (i * 4 + j) * QR_TILE_ROW_BYTES, _mm512_permutexvar_epi16(index, table));
        }
    }
}

/* The same of 5 bits; a group is a tile. What is loaded of a line ends where it does. */
VF_FN void coded_tile_5(const bool offset, uint8_t *dst, struct coded_tables *t, const struct qr_coded_shape *s, const uint8_t *panel,
                        const struct coded_levels *l, int32_t k, int32_t end, int64_t ahead)
{
    const __m512i by[2] = {_mm512_set1_epi64(0x0f0f0a0a05050000), _mm512_set1_epi64(0x23231e1e19191414)}; /* bits from which words are taken */
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    const int32_t parity = coded_parity(s, k), line = coded_line_bytes(5);
    if ((k & ((1 << s->block_shift) - 1)) == 0)
        qr_coded_prefetch_scales(s, block, ahead);
    if (k + QR_TILE_K < end)
        coded_put_scales(t, s, panel, k + QR_TILE_K);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m512i wide = coded_widened(5, codes + i * line);
        _mm_prefetch((const char *)codes + i * line + ahead, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const int o = i * 2 + j;
            const vf scale = vf_set1(t->scale[parity][0][o]), add = offset ? vf_set1(t->offset[parity][0][o]) : vf_zero();
            const __m512i table = (__m512i)_mm512_cvtne2ps_pbh(vf_fma(l->upper, scale, add), vf_fma(l->table, scale, add));
            VI_STORE(dst + o * QR_TILE_ROW_BYTES, _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(by[j], wide), table));
        }
    }
}

/* The same of E4M3 codes, two outputs to a line. Bytes are taken from a code's own bits, and from five bits on. */
VF_FN void coded_tile_numbers(uint8_t *dst, struct coded_tables *t, const struct qr_coded_shape *s, const uint8_t *panel, int32_t k, int64_t ahead)
{
    const __m512i by[2] = {_mm512_set1_epi64(0x1d1815100d080500), _mm512_set1_epi64(0x3d3835302d282520)};
    const __m512i upper = _mm512_set1_epi16(0x0700), exponent = _mm512_set1_epi16(0x0708);
    const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
    if ((k & ((1 << s->block_shift) - 1)) == 0) {
        qr_coded_prefetch_scales(s, block, ahead);
        coded_put_numbers(t, block);
    }
#pragma GCC unroll 8
    for (int o = 0; o < QR_PANEL; o++) {
        const __m512i code = _mm512_multishift_epi64_epi8(by[o % 2], VI_LOAD(codes + o / 2 * QR_CODED_LINE));
        if (o % 2 == 0)
            _mm_prefetch((const char *)codes + o / 2 * QR_CODED_LINE + ahead, _MM_HINT_T1);
        const __m512i large = _mm512_add_epi16(_mm512_permutexvar_epi16(code, VI_LOAD(t->number[o][0])), VI_AND(code, upper));
        const __mmask32 small = _mm512_testn_epi16_mask(code, exponent);
        VI_STORE(dst + o * QR_TILE_ROW_BYTES, _mm512_mask_permutexvar_epi16(large, small, code, VI_LOAD(t->number[o][1])));
    }
}

/* What the codes of a panel stand for; nothing of 6 and 8 bits. */
VF_FN struct coded_levels coded_levels_of(const int bits, const bool offset, const uint8_t *panel)
{
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (bits > 5)
        return (struct coded_levels){vf_zero(), vf_zero()};
    if (bits == 4) {
        const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)(panel + QR_CODED_LEVELS_AT));
        return (struct coded_levels){_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(table)), vf_zero()};
    }
    if (bits == 5)
        return (struct coded_levels){_mm512_cvtepi32_ps(first), _mm512_cvtepi32_ps(_mm512_add_epi32(first, _mm512_set1_epi32(offset ? 16 : -16)))};
    const vf four = vf_sub(_mm512_setr_ps(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), vf_set1(bits == 3 ? 4 : 0));
    return (struct coded_levels){four, vf_add(four, vf_set1(4))};
}

VF_FN void coded_rows_of_outputs(const int bits, const bool offset, uint8_t *dst, struct coded_tables *t, const struct qr_coded_shape *s,
                                 const uint8_t *panel, const struct coded_levels *l, int32_t k, int32_t end, int64_t ahead)
{
    if (bits == QR_CODED_E4M3)
        coded_tile_numbers(dst, t, s, panel, k, ahead);
    else if (bits < 4)
        coded_tile_low(bits, offset, dst, t, s, panel, l, k, end, ahead);
    else if (bits == 4)
        coded_tile(offset, dst, t, s, panel, l, k, end, ahead);
    else
        coded_tile_5(offset, dst, t, s, panel, l, k, end, ahead);
}

/* The same for n_steps tiles one after the other, transposed to rows of pairs, [16 pairs of inputs][16 outputs][2], which are a product's right operand. */
VF_FN void coded_tiles_of_pairs(const int bits, const bool offset, uint8_t *dst, const struct qr_coded_shape *s, const uint8_t *panel,
                                int32_t step, int32_t n_steps, int64_t ahead)
{
    const struct coded_levels l = coded_levels_of(bits, offset, panel);
    const int32_t k = step * QR_TILE_K, end = k + n_steps * QR_TILE_K;
    struct coded_tables t QR_UNINITIALIZED;
    uint8_t rows[QR_TILE_BYTES] __attribute__((aligned(64))) QR_UNINITIALIZED;
    vf pairs[QR_PANEL] QR_UNINITIALIZED;
    coded_start(bits, offset, &t, s, panel, &l, k, end);
    for (int32_t i = 0; i < n_steps; i++, dst += QR_TILE_BYTES) {
        coded_rows_of_outputs(bits, offset, rows, &t, s, panel, &l, k + i * QR_TILE_K, end, ahead);
        for (int o = 0; o < QR_PANEL; o++)
            pairs[o] = VI_AS_FLOATS(VI_LOAD(rows + o * QR_TILE_ROW_BYTES));
        vf_transpose(pairs);
        for (int o = 0; o < QR_PANEL; o++)
            VI_STORE(dst + o * QR_TILE_ROW_BYTES, VI_OF_FLOATS(pairs[o]));
    }
}

#endif
