/* blocks.h - whole panels from blocks of a file (struct qr_coded_blocks). Included by pack.c, whose struct packing it reads, and by nobody else. */
#ifndef QR_KERNELS_CPU_ISA_CODED_BLOCKS_H
#define QR_KERNELS_CPU_ISA_CODED_BLOCKS_H

/* Eight rows that stay in registers while a loop goes along them: what is written may be where they begin, for all the compiler knows of a list of them. */
#define EIGHT_ROWS(r, row, o) \
    const uint8_t *const r[8] = {(row)[o], (row)[(o) + 1], (row)[(o) + 2], (row)[(o) + 3], (row)[(o) + 4], (row)[(o) + 5], (row)[(o) + 6], (row)[(o) + 7]}

VF_FN uint16_t half_word(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

VF_FN int32_t whole_word(const uint8_t *p)
{
    int32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* The numbers of f16 at byte `at` of each block, turned: [n_blocks][16]. */
static void take_halves(uint16_t *to, const uint8_t *const row[QR_PANEL], int64_t n_blocks, int64_t block_bytes, int64_t at)
{
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        for (int64_t u = 0, i = at; u < n_blocks; u++, i += block_bytes) {
            __m128i a = _mm_cvtsi32_si128(half_word(r[0] + i)), b = _mm_cvtsi32_si128(half_word(r[4] + i));
            a = _mm_insert_epi16(a, half_word(r[1] + i), 1), b = _mm_insert_epi16(b, half_word(r[5] + i), 1);
            a = _mm_insert_epi16(a, half_word(r[2] + i), 2), b = _mm_insert_epi16(b, half_word(r[6] + i), 2);
            a = _mm_insert_epi16(a, half_word(r[3] + i), 3), b = _mm_insert_epi16(b, half_word(r[7] + i), 3);
            _mm_storeu_si128((__m128i *)(void *)(to + u * QR_PANEL + o), _mm_unpacklo_epi64(a, b));
        }
    }
}

/* Likewise two numbers, one behind the other, which are read at once. */
static void take_pairs(uint16_t *to, uint16_t *second, const uint8_t *const row[QR_PANEL], int64_t n_blocks, int64_t block_bytes, int64_t at)
{
    const __m128i low = _mm_set1_epi32(0xffff);
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        for (int64_t u = 0, i = at; u < n_blocks; u++, i += block_bytes) {
            __m128i a = _mm_cvtsi32_si128(whole_word(r[0] + i)), b = _mm_cvtsi32_si128(whole_word(r[4] + i));
            a = _mm_insert_epi32(a, whole_word(r[1] + i), 1), b = _mm_insert_epi32(b, whole_word(r[5] + i), 1);
            a = _mm_insert_epi32(a, whole_word(r[2] + i), 2), b = _mm_insert_epi32(b, whole_word(r[6] + i), 2);
            a = _mm_insert_epi32(a, whole_word(r[3] + i), 3), b = _mm_insert_epi32(b, whole_word(r[7] + i), 3);
            _mm_storeu_si128((__m128i *)(void *)(to + u * QR_PANEL + o), _mm_packus_epi32(_mm_and_si128(a, low), _mm_and_si128(b, low)));
            _mm_storeu_si128((__m128i *)(void *)(second + u * QR_PANEL + o), _mm_packus_epi32(_mm_srli_epi32(a, 16), _mm_srli_epi32(b, 16)));
        }
    }
}
VF_FN __m128i bytes_of(const uint8_t *row, int64_t at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)(row + at));
}

/* Two bytes, or four, at byte `at` of eight rows, of which 16 are read: to load a register is cheaper than to insert into one. */
VF_FN __m128i halves_of(const uint8_t *const r[8], int64_t at)
{
    const __m128i a = _mm_unpacklo_epi16(bytes_of(r[0], at), bytes_of(r[1], at)), b = _mm_unpacklo_epi16(bytes_of(r[2], at), bytes_of(r[3], at));
    const __m128i c = _mm_unpacklo_epi16(bytes_of(r[4], at), bytes_of(r[5], at)), d = _mm_unpacklo_epi16(bytes_of(r[6], at), bytes_of(r[7], at));
    return _mm_unpacklo_epi64(_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
}

VF_FN __m256i words_of(const uint8_t *const r[8], int64_t at)
{
    const __m128i a = _mm_unpacklo_epi32(bytes_of(r[0], at), bytes_of(r[1], at)), b = _mm_unpacklo_epi32(bytes_of(r[2], at), bytes_of(r[3], at));
    const __m128i c = _mm_unpacklo_epi32(bytes_of(r[4], at), bytes_of(r[5], at)), d = _mm_unpacklo_epi32(bytes_of(r[6], at), bytes_of(r[7], at));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi64(a, b)), _mm_unpacklo_epi64(c, d), 1);
}

/* take_halves of blocks that have 16 bytes from there on. */
static void take_scales(uint16_t *to, const uint8_t *const row[QR_PANEL], int64_t n_blocks, int64_t block_bytes, int64_t at)
{
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        for (int64_t u = 0, i = at; u < n_blocks; u++, i += block_bytes)
            _mm_storeu_si128((__m128i *)(void *)(to + u * QR_PANEL + o), halves_of(r, i));
    }
}

/* take_pairs likewise. */
static void take_scales_and_offsets(uint16_t *to, uint16_t *second, const uint8_t *const row[QR_PANEL], int64_t n_blocks, int64_t block_bytes, int64_t at)
{
    const __m256i sorted = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        for (int64_t u = 0, i = at; u < n_blocks; u++, i += block_bytes) {
            const __m256i v = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words_of(r, i), sorted), _MM_SHUFFLE(3, 1, 2, 0));
            _mm_storeu_si128((__m128i *)(void *)(to + u * QR_PANEL + o), _mm256_castsi256_si128(v));
            _mm_storeu_si128((__m128i *)(void *)(second + u * QR_PANEL + o), _mm256_extracti128_si256(v, 1));
        }
    }
}

/* Bits of the largest absolute value of each output. */
static __m256i most_of(const uint16_t *half, int64_t n_blocks)
{
    __m256i most = _mm256_setzero_si256();
    for (int64_t u = 0; u < n_blocks; u++)
        most = _mm256_max_epu16(most, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(half + u * QR_PANEL)), _mm256_set1_epi16(0x7fff)));
    return most;
}

/* What 16 outputs' scales are multiplied by, and which are kept: one by its factor, a power of two. */
struct factors {
    float by[QR_PANEL];
    uint16_t keep[QR_PANEL]; /* 0: the factor is NaN */
};

/* Of output o, whose largest scale's absolute value has these bits. */
static void set_factor(struct factors *all, uint8_t *panel, int32_t o, uint32_t bits)
{
    const float factor = qr_coded_factor_of(bits);
    memcpy(panel + o * (int32_t)sizeof factor, &factor, sizeof factor);
    all->by[o] = isnan(factor) ? 1 : 1 / factor;
    all->keep[o] = isnan(factor) ? 0 : UINT16_MAX;
}

#ifdef QR_ISA_avx2
/* Of halves, which are never as large as the power above them when they have become numbers below 2^16: the exponent says it all. */
static struct factors factors_of(uint8_t *panel, __m256i most)
{
    QR_UNINITIALIZED struct factors all;
    const __m256i least = _mm256_set1_epi32(127 - QR_CODED_FACTOR_MAX), none = _mm256_castps_si256(_mm256_set1_ps(__builtin_nanf("")));
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        const __m128i half = o ? _mm256_extracti128_si256(most, 1) : _mm256_castsi256_si128(most);
        const __m256i exponent = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtph_ps(half)), 23);
        const __m256i power = _mm256_max_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(QR_CODED_EXPONENT)), least);
        const __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(255), exponent);
        const __m256i factor = _mm256_blendv_epi8(none, _mm256_slli_epi32(power, 23), finite);
        const __m256i by = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254), power), 23);
        _mm256_storeu_si256((__m256i *)(void *)(panel + o * (int32_t)sizeof *all.by), factor);
        _mm256_storeu_ps(all.by + o, _mm256_blendv_ps(_mm256_set1_ps(1), _mm256_castsi256_ps(by), _mm256_castsi256_ps(finite)));
        const __m256i keep = _mm256_permute4x64_epi64(_mm256_packs_epi32(finite, finite), _MM_SHUFFLE(3, 1, 2, 0));
        _mm_storeu_si128((__m128i *)(void *)(all.keep + o), _mm256_castsi256_si128(keep));
    }
    return all;
}
#else
static struct factors factors_of(uint8_t *panel, __m256i most)
{
    struct factors all;
    uint16_t half[QR_PANEL];
    _mm256_storeu_si256((__m256i *)(void *)half, most);
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const float x = qr_f16_to_f32(half[o]);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        set_factor(&all, panel, o, bits);
    }
    return all;
}
#endif

VF_FN void turn_steps(uint8_t *to, const int8_t *from, int32_t n)
{
    if (n == 8)
        turn_bytes(to, from, 8);
    else
        turn_bytes(to, from, 16);
}

#define STEPS_BYTES (QR_PANEL * QR_CODED_UNIT / 16) /* of a block of 16 rows, at most; and as many of offsets */

/* From what the source gave; a block's are written long before, since processors wait where a vector is read of what came in words. */
static void put_steps(const struct packing *p, uint8_t *block, const int8_t *step)
{
    const struct qr_coded_shape *s = &p->shape;
    const int32_t n = 1 << (s->block_shift - s->group_shift);
    turn_steps(block + s->step_at, step, n);
    if (s->f.offset)
        turn_steps(block + s->offset_step_at, step + STEPS_BYTES, n);
}

#include "kernels/cpu/isa/coded/units.h"

#ifdef QR_ISA_avx2
#define STRIP_INPUTS 1024 /* of a panel that is longer: its codes, there and here, and its scales stay in the nearest cache */

/* The fifth bits of 32 inputs of eight rows, input k's in bit k, as apart.h has them: bits 4 and 1, and 3 and 0, of the number of an input change
 * places. */
VF_FN __m256i fifths_apart(__m256i x)
{
    const __m256i a = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi32(x, 14)), _mm256_set1_epi32(0xcccc));
    x = _mm256_xor_si256(x, _mm256_xor_si256(a, _mm256_slli_epi32(a, 14)));
    const __m256i b = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi32(x, 7)), _mm256_set1_epi32(0xaa00aa));
    return _mm256_xor_si256(x, _mm256_xor_si256(b, _mm256_slli_epi32(b, 7)));
}

enum stored_as { STORED_BYTES, STORED_HALVES, STORED_FIVES };

/* Codes of a block of n_in inputs at byte `at` of eight rows, with fifth bits a word in front of them; how and n_in are known to the compiler. */
VF_FN void put_stored_8(uint8_t *to, const uint8_t *const r[8], int64_t at, const enum stored_as as, const int32_t n_in)
{
    if (as == STORED_FIVES) {
        const __m256i fifths = fifths_apart(words_of(r, at - 4));
        put_nibbles_8(to, r, at, 2 * QR_CODED_LINE);
        _mm256_storeu_si256((__m256i *)(void *)(to + APART_ABOVE), fifths);
        return;
    }
    for (int32_t i = 0; as == STORED_HALVES && i < n_in; i += 32, to += 32 * QR_PANEL / 2, at += 16)
        put_nibbles_8(to, r, at, 2 * QR_CODED_LINE);
    for (int32_t i = 0; as == STORED_BYTES && i < n_in; i += 16, to += 16 * QR_PANEL, at += 16)
        put_bytes_8(to, r, at);
}

/* Codes of inputs [begin, end) of rows of such blocks, from a whole packed block on. Blocks of 32 inputs are two in a packed one: nothing but constants
 * is added to find where the second one goes, which took as long as moving its codes. later: as many bytes are asked for from there on; NULL: none. */
VF_FN void put_stored_rows(const struct packing *p, uint8_t *panel, const uint8_t *const row[QR_PANEL], int64_t begin, int64_t end, const enum stored_as as,
                           const int32_t n_in, const char *later)
{
    const struct qr_coded_shape *s = &p->shape;
    const struct qr_coded_blocks *l = p->rows->blocks;
    const int64_t n_bytes = l->n_bytes, block_bytes = s->block_bytes;
    const int64_t first = begin / n_in * n_bytes + l->low.at, last = first + (end - begin) / n_in * n_bytes;
    const int32_t bits = as == STORED_BYTES ? 8 : as == STORED_HALVES ? 4 : 5;
    const int32_t second = n_in * QR_PANEL * bits / 8, together = n_in == 32 ? 2 : 1;
    const int32_t asked = later ? together * l->n_bytes * 8 : 0;
    QR_ASSERT(l->n_in == n_in && 1 << s->block_shift == together * n_in && begin % (together * n_in) == 0);
    QR_ASSERT(bits != 5 || (l->high.at + 4 == l->low.at && l->low.at + 16 == n_bytes && l->add == qr_coded_least(s->f)));
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        uint8_t *to = panel + s->head_bytes + (begin >> s->block_shift) * block_bytes + s->codes_at + 4 * o;
        for (int64_t at = first; at < last; at += together * n_bytes, to += block_bytes, later += asked) {
            for (int32_t i = 0; i < asked; i += 64)
                _mm_prefetch(later + i, _MM_HINT_T0);
            if (as == STORED_FIVES && o == 0) /* as put_units */
#pragma GCC unroll 11
                for (int32_t i = -1; i < 10; i++)
                    _mm_prefetch((const char *)to + 2 * block_bytes + i * QR_CODED_LINE, _MM_HINT_T0);
            put_stored_8(to, r, at, as, n_in);
            if (together == 2 && at + n_bytes < last)
                put_stored_8(to + second, r, at + n_bytes, as, n_in);
        }
    }
}

/* Codes of inputs [begin, end), of blocks as above. */
static void put_strip(const struct packing *p, uint8_t *panel, const uint8_t *const row[QR_PANEL], int64_t begin, int64_t end, const char *later)
{
    const struct qr_coded_blocks *l = p->rows->blocks;
    if (l->high.bits == 1)
        put_stored_rows(p, panel, row, begin, end, STORED_FIVES, 32, later);
    else if (l->low.bits == 8)
        put_stored_rows(p, panel, row, begin, end, STORED_BYTES, 32, later);
    else if (l->n_in == 32)
        put_stored_rows(p, panel, row, begin, end, STORED_HALVES, 32, later);
    else
        put_stored_rows(p, panel, row, begin, end, STORED_HALVES, QR_CODED_UNIT, later);
}

/* Codes, and scales and offsets as the file has them, turned. */
static void put_strips(const struct packing *p, uint8_t *panel, uint16_t *half, uint16_t *offset, const uint8_t *const row[QR_PANEL])
{
    const struct qr_coded_blocks *l = p->rows->blocks;
    const int64_t n_blocks = p->n_in / l->n_in, strip = STRIP_INPUTS / l->n_in;
    QR_ASSERT(l->low.bits == 8 || (l->low.bits == 4 && l->low.width == 16 && (l->high.bits == 0 || l->high.width == 0)));
    QR_ASSERT(l->scale_at + 16 <= l->n_bytes);
    const char *later = p->rows->asks ? (const char *)row[0] + QR_PANEL * p->rows->pitch : NULL; /* rows of the next panel */
    for (int64_t u = 0; u < n_blocks; u += strip) {
        const int64_t n = n_blocks - u < strip ? n_blocks - u : strip, at = u * l->n_bytes + l->scale_at;
        if (p->shape.f.offset)
            take_scales_and_offsets(half + u * QR_PANEL, offset + u * QR_PANEL, row, n, l->n_bytes, at);
        else
            take_scales(half + u * QR_PANEL, row, n, l->n_bytes, at);
        put_strip(p, panel, row, u * l->n_in, (u + n) * l->n_in, later ? later + u * l->n_bytes * QR_PANEL : NULL);
    }
}
#else
/* Rows to be read next are asked for while codes move, else half the time goes into waiting for scales: line i / 16 of row i % 16, as far as bytes were
 * taken of the rows before. Where they are is guessed (mostly right, and no harm is done), also beyond the source's last row: the panel there is most
 * likely packed next. */
struct ahead {
    uintptr_t row[QR_PANEL];
    int64_t i;
};

VF_FN void ask(struct ahead *a, int64_t n_bytes)
{
    for (; a->i * 64 < n_bytes * QR_PANEL; a->i++)
        _mm_prefetch((const char *)(a->row[a->i % QR_PANEL] + (uintptr_t)(a->i / QR_PANEL * 64)), _MM_HINT_T0);
}

/* Where the next packed block will be written: lines that were cleared not long ago. */
VF_FN void ask_place(const uint8_t *block, const struct qr_coded_shape *s)
{
    for (int32_t i = 0; i < s->block_bytes; i += 64)
        _mm_prefetch((const char *)block + s->block_bytes + i, _MM_HINT_T0);
}

static struct ahead ahead_of(const uint8_t *const row[QR_PANEL])
{
    QR_UNINITIALIZED struct ahead ahead;
    ahead.i = 0;
    for (int32_t o = 0; o < QR_PANEL; o++)
        ahead.row[o] = (uintptr_t)row[o] + (uintptr_t)((row[QR_PANEL - 1] - row[0]) / (QR_PANEL - 1) * QR_PANEL);
    return ahead;
}

#ifndef TURN_NIBBLES
/* 16 outputs' 2 `half` inputs, of which byte i of each row from `at` on has i and half + i, from input k of a block on. */
VF_FN void put_nibbles(uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t at, int64_t k, int32_t half)
{
    const __m128i low = _mm_set1_epi8(15);
    for (int32_t j = 0; j < half; j += 16)
        for (int32_t quad = 0; quad < 4; quad++) {
            __m128i lower[4], upper[4];
            for (int32_t o = 0; o < 4; o++) {
                const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(row[4 * quad + o] + at + j));
                lower[o] = _mm_and_si128(v, low);
                upper[o] = _mm_and_si128(_mm_srli_epi16(v, 4), low);
            }
            put_four(4, codes, k + j, quad, lower, false);
            put_four(4, codes, k + half + j, quad, upper, false);
        }
}
#endif

VF_FN void put_bytes(uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t at, int64_t k)
{
    for (int32_t quad = 0; quad < 4; quad++) {
        __m128i v[4];
        for (int32_t o = 0; o < 4; o++)
            v[o] = _mm_loadu_si128((const __m128i *)(const void *)(row[4 * quad + o] + at));
        put_four(8, codes, k, quad, v, false);
    }
}

/* Codes of a block of the file, which begin at byte `at` of each row: from input k of a packed block on. half: width of a plane of 4 bits, known to the
 * compiler; 0: bytes. */
VF_FN void put_stored(uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t at, int64_t k, int32_t n_in, int32_t half, struct ahead *ahead)
{
    for (int32_t i = 0; half && i < n_in; i += 2 * half, at += half) {
        ask(ahead, at + half);
        put_nibbles(codes, row, at, k + i, half);
    }
    for (int32_t i = 0; !half && i < n_in; i += 16, at += 16) {
        ask(ahead, at + 16);
        put_bytes(codes, row, at, k + i);
    }
}

/* Codes of a block of the file in planes as told, known to the compiler (bits and width of each), which begins at byte `at` of each row. */
VF_FN void put_planes(const struct qr_coded_blocks *l, uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t at, int64_t k, struct ahead *ahead,
                      int32_t low, int32_t low_width, int32_t high, int32_t high_width)
{
    const int32_t bits = low + high, n_in = low_width == 16 ? 32 : QR_CODED_UNIT;
    const __m256i add = _mm256_set1_epi8(l->add);
    for (int32_t i = 0; i < n_in; i += PLANES_IN) {
        const struct plane_part lower = plane_part_of(low, low_width, i, 0), upper = plane_part_of(high, high_width, i, low);
        __m256i v[QR_PANEL] QR_UNINITIALIZED;
        ask(ahead, at + (uint32_t)(l->n_bytes * (i + PLANES_IN)) / (uint32_t)n_in);
        for (int32_t o = 0; o < QR_PANEL; o++) {
            const uint8_t *block = row[o] + at;
            v[o] = low_width == 16 ? plane_halves(block + l->low.at) : plane_bits(block + l->low.at, low, 0, &lower);
            if (high)
                v[o] = _mm256_or_si256(v[o], high_width ? plane_bits(block + l->high.at, high, low, &upper) : plane_single(block + l->high.at, low));
            v[o] = _mm256_add_epi8(v[o], add);
        }
        planes_put(bits, codes, k + i, v);
    }
}

/* Codes of 2 and 3 bits of a block of 256 inputs. */
static void put_few(const struct qr_coded_blocks *l, uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t at, struct ahead *ahead)
{
    const int64_t low = at + l->low.at, high = at + l->high.at;
    const int32_t bits = 2 + l->high.bits, part_bytes = QR_CODED_UNIT / 2 * QR_PANEL * bits / 8;
    QR_ASSERT(l->add == 0 && l->low.width == 32 && (bits == 2 || l->high.width == 32));
#ifdef QR_ISA_amx
    __m512i third[8] QR_UNINITIALIZED;
    if (bits == 3)
        units_ones(third, row, high);
    for (int32_t part = 0; part < 2; part++) {
        ask(ahead, at + l->n_bytes * (part + 1) / 2);
        if (bits == 2)
            units_put_2(codes + part * part_bytes, row, low + 32 * part);
        else
            units_put_3(codes + part * part_bytes, row, low + 32 * part, third + 4 * part);
    }
#else
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        struct asking none = {NULL, 0};
        ask(ahead, at + l->n_bytes * (o + 8) / QR_PANEL);
        for (int32_t i = 0; bits == 2 && i < 2; i++)
            put_twos_8(codes + 4 * o + i * part_bytes, r, low + 32 * i, 2 * QR_CODED_LINE, &none);
        if (bits == 3)
            put_threes_8(codes + 4 * o, r, low, high, &none);
    }
#endif
}

#ifdef QR_ISA_avx512
/* 16 bytes of 16 rows: v[i] has bytes 4 i to 4 i + 3 of each. */
VF_FN void turn_sixteens(__m512i v[4], const uint8_t *const row[QR_PANEL], int64_t at)
{
    const __m512i x = turn_gather(row, at, 0), y = turn_gather(row, at, 1), z = turn_gather(row, at, 2), w = turn_gather(row, at, 3);
    const __m512i a = _mm512_unpacklo_epi32(x, y), b = _mm512_unpacklo_epi32(z, w), c = _mm512_unpackhi_epi32(x, y), d = _mm512_unpackhi_epi32(z, w);
    v[0] = _mm512_unpacklo_epi64(a, b);
    v[1] = _mm512_unpackhi_epi64(a, b);
    v[2] = _mm512_unpacklo_epi64(c, d);
    v[3] = _mm512_unpackhi_epi64(c, d);
}

/* Of each word of 32 bits, bits 4 and 1, and 3 and 0, of a bit's number change places: bit 4 i + j comes to byte j, there to bit i / 2 of half i % 2. */
VF_FN __m512i words_apart(__m512i x)
{
    const __m512i a = _mm512_and_si512(_mm512_xor_si512(x, _mm512_srli_epi32(x, 14)), _mm512_set1_epi32(0xcccc));
    x = _mm512_xor_si512(x, _mm512_xor_si512(a, _mm512_slli_epi32(a, 14)));
    const __m512i b = _mm512_and_si512(_mm512_xor_si512(x, _mm512_srli_epi32(x, 7)), _mm512_set1_epi32(0xaa00aa));
    return _mm512_xor_si512(x, _mm512_xor_si512(b, _mm512_slli_epi32(b, 7)));
}

/* 32 inputs whose lower four bits are in halves of 16 bytes, the fifth ones in a word of which (and 12 bytes behind it) is read. */
static void put_fives(const struct qr_coded_blocks *l, uint8_t *to, const uint8_t *const row[QR_PANEL], int64_t at)
{
    const __m512i four = _mm512_set1_epi8(15);
    __m512i v[4] QR_UNINITIALIZED;
    EIGHT_ROWS(first, row, 0);
    EIGHT_ROWS(second, row, 8);
    QR_ASSERT((l->add == 0 || l->add == -16) && l->high.at + 16 <= l->n_bytes);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(words_of(first, at + l->high.at)), words_of(second, at + l->high.at), 1);
    const __m512i fifths = words_apart(l->add ? _mm512_xor_si512(both, _mm512_set1_epi32(-1)) : both); /* less 16 is that bit turned */
    turn_sixteens(v, row, at + l->low.at);
#pragma GCC unroll 8
    for (int32_t i = 0; i < 8; i++, to += QR_CODED_LINE / 8 * 5) {
        const int32_t bit = i % 2 * 4 + i / 2;
        const __m512i low = i < 4 ? v[i] : _mm512_srli_epi16(v[i - 4], 4);
        const __m512i high = bit < 4 ? _mm512_slli_epi32(fifths, (unsigned)(4 - bit)) : _mm512_srli_epi32(fifths, (unsigned)(bit - 4));
        coded_squeeze_codes(to, _mm512_ternarylogic_epi64(four, low, high, TURN_PICK), 5);
    }
}
#endif

/* Codes of block u of the file, from input k of a packed block on. */
static void put_codes(const struct qr_coded_blocks *l, uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t u, int64_t k, struct ahead *ahead)
{
    const struct qr_coded_plane low = l->low, high = l->high;
    const int64_t at = u * l->n_bytes;
    if (low.bits == 8)
        put_stored(codes, row, at + low.at, k, 32, 0, ahead);
    else if (high.bits == 0 && low.width == 16)
        put_stored(codes, row, at + low.at, k, l->n_in, 16, ahead);
    else if (high.bits == 0 && low.bits == 4)
        put_stored(codes, row, at + low.at, k, l->n_in, 32, ahead);
    else if (low.bits == 2)
        put_few(l, codes, row, at, ahead);
    else if (low.width == 16) {
#ifdef QR_ISA_avx512
        ask(ahead, at + l->n_bytes);
        put_fives(l, codes + k * 2 * 5, row, at);
#else
        put_planes(l, codes, row, at, k, ahead, 4, 16, 1, 0);
#endif
    }
    else if (low.width == 32)
        put_planes(l, codes, row, at, k, ahead, 4, 32, 1, 32);
    else
        put_planes(l, codes, row, at, k, ahead, 4, 64, 2, 32);
}

/* Everything of a panel but scales and offsets, which are collected. */
static void put_units(const struct packing *p, uint8_t *panel, uint16_t *half, uint16_t *offset, const uint8_t *const row[QR_PANEL])
{
    const struct qr_coded_blocks *l = p->rows->blocks;
    struct ahead ahead = ahead_of(row);
    uint8_t *block = panel + p->shape.head_bytes;
    for (int64_t u = 0; u < p->n_in / QR_CODED_UNIT; u++, block += p->shape.block_bytes) {
        ask_place(block, &p->shape);
        take_unit(p, block, half + u * QR_PANEL, offset + u * QR_PANEL, row, u * l->n_bytes);
        put_codes(l, block + p->shape.codes_at, row, u, 0, &ahead);
    }
}

/* Codes, and scales and offsets as the file has them, turned. */
static void put_strips(const struct packing *p, uint8_t *panel, uint16_t *half, uint16_t *offset, const uint8_t *const row[QR_PANEL])
{
    const struct qr_coded_shape *s = &p->shape;
    const struct qr_coded_blocks *l = p->rows->blocks;
    const int64_t n_blocks = p->n_in / l->n_in;
    struct ahead ahead = ahead_of(row);
    QR_ASSERT(l->scale_at + 16 <= l->n_bytes);
    if (s->f.offset)
        take_scales_and_offsets(half, offset, row, n_blocks, l->n_bytes, l->scale_at);
    else
        take_scales(half, row, n_blocks, l->n_bytes, l->scale_at);
    for (int64_t u = 0; u < n_blocks; u++) {
        const int64_t k = u * l->n_in, in = k & ((1 << s->block_shift) - 1);
        uint8_t *block = panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes;
        if (in == 0)
            ask_place(block, s);
        put_codes(l, block + s->codes_at, row, u, in, &ahead);
    }
}
#endif

/* Scales of n units, from the first one's place on. No product has more digits than f16 has: it is what half_of gives. */
static void put_all_halves(const struct qr_coded_shape *s, uint8_t *to, const uint16_t *half, int64_t n, const struct factors *f, uint16_t sign)
{
    const __m256 by[2] = {_mm256_loadu_ps(f->by), _mm256_loadu_ps(f->by + 8)};
    const __m128i *kept = (const __m128i *)(const void *)f->keep, keep[2] = {_mm_loadu_si128(kept), _mm_loadu_si128(kept + 1)};
    const __m128i turned = _mm_set1_epi16((int16_t)sign), *from = (const __m128i *)(const void *)half, *const end = from + 2 * n;
    const int64_t block_bytes = s->block_bytes, per_block = (int64_t)1 << (s->block_shift - s->unit_shift);
    for (; from < end; to += block_bytes)
        for (int64_t i = 0; i < per_block && from < end; i++)
            for (int32_t k = 0; k < 2; k++, from++) {
                const __m256 x = _mm256_mul_ps(_mm256_cvtph_ps(_mm_xor_si128(_mm_loadu_si128(from), turned)), by[k]);
                const __m128i put = _mm_and_si128(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT), keep[k]);
                _mm_storeu_si128((__m128i *)(void *)(to + 2 * QR_PANEL * i + 16 * k), put);
            }
}

/* Rows `first` on of the source. */
static void pack_blocks(const struct packing *p, uint8_t *panel, int64_t first, uint16_t *own)
{
    const struct qr_coded_shape *s = &p->shape;
    const struct qr_coded_blocks *l = p->rows->blocks;
    const int64_t n_blocks = p->n_in / l->n_in;
    const bool units = l->steps_as != QR_CODED_STEPS_TOLD;
    const uint8_t *row[QR_PANEL] QR_UNINITIALIZED;
    uint16_t *half = own, *offset = own + n_blocks * QR_PANEL;
    int8_t *steps = (int8_t *)(offset + n_blocks * QR_PANEL);
    row[0] = p->rows->row(p->rows->arg, first);
    for (int32_t o = 1; o < QR_PANEL; o++)
        row[o] = p->rows->pitch ? row[0] + o * p->rows->pitch : p->rows->row(p->rows->arg, first + o);
    if (units)
        put_units(p, panel, half, offset, row);
    else
        put_strips(p, panel, half, offset, row);
    const struct factors f = factors_of(panel, most_of(half, s->f.offset ? 2 * n_blocks : n_blocks));
    for (int64_t u = 0; !units && s->f.steps && u < n_blocks; u++)
        l->steps(steps + u * 2 * STEPS_BYTES, steps + (2 * u + 1) * STEPS_BYTES, row, u * l->n_bytes);
    put_all_halves(s, panel + s->head_bytes, half, n_blocks, &f, 0);
    if (s->f.offset)
        put_all_halves(s, panel + s->head_bytes + s->offset_at, offset, n_blocks, &f, l->minus ? 0x8000 : 0);
    for (int64_t u = 0; s->f.steps && !units && u < n_blocks; u++)
        put_steps(p, panel + s->head_bytes + u * s->block_bytes, steps + u * 2 * STEPS_BYTES);
}

#endif
