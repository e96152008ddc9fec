/* units.h - whole panels from blocks of 256 inputs with steps (struct qr_coded_blocks, steps_as), a block of 16 rows at a time: steps at every level;
 * codes at level avx2, of them those of 2 and 3 bits at avx512 too, and on tiles (coded.h). Included by blocks.h, whose helpers it uses, and by nobody
 * else. */
#ifndef QR_KERNELS_CPU_ISA_CODED_UNITS_H
#define QR_KERNELS_CPU_ISA_CODED_UNITS_H

/* ---- scales and steps ---- */

/* 16 bytes of 16 rows: v[i] has byte 2 i of each, then byte 2 i + 1. */
VF_FN void turn_sixteen(__m256i v[8], const uint8_t *const row[QR_PANEL], int64_t at)
{
    __m256i a[8] QR_UNINITIALIZED, b[8] QR_UNINITIALIZED;
    for (int32_t i = 0; i < 8; i++) {
        const __m128i *first = (const __m128i *)(const void *)(row[i] + at), *second = (const __m128i *)(const void *)(row[8 + i] + at);
        a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(first)), _mm_loadu_si128(second), 1);
    }
    for (int32_t step = 0; step < 3; step++) { /* the address of a byte in half a register, row and byte, turns left by the row's three bits */
        for (int32_t i = 0; i < 4; i++) {
            b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 4]);
            b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 4]);
        }
        for (int32_t i = 0; i < 8; i++)
            a[i] = b[i];
    }
    for (int32_t i = 0; i < 8; i++)
        v[i] = _mm256_permute4x64_epi64(a[i], _MM_SHUFFLE(3, 1, 2, 0));
}

/* Lower bytes, then upper ones of 16 rows, as numbers. */
VF_FN void put_words_16(uint16_t to[QR_PANEL], __m256i v)
{
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128((__m128i *)(void *)(to + 8), _mm_unpackhi_epi8(low, high));
}

/* Steps of groups 2 i and 2 i + 1. */
VF_FN void put_steps_2(uint8_t *steps, int32_t i, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)(steps + 2 * QR_PANEL * i), v);
}

/* x moved `left` places (less than 0: to the right), of which the bits of `mask` are taken. */
VF_FN __m256i bits_moved(__m256i x, int32_t left, __m256i mask)
{
    return _mm256_and_si256(left > 0 ? _mm256_slli_epi16(x, left) : left < 0 ? _mm256_srli_epi16(x, -left) : x, mask);
}

/* 16 steps of 6 bits, 32 above what they are, and behind them the scale: see gguf_blocks.c. */
VF_FN void take_sixteen(uint8_t *steps, uint16_t *scale, const uint8_t *const row[QR_PANEL], int64_t at)
{
    const __m256i four = _mm256_set1_epi8(15), two = _mm256_set1_epi8(0x30), above = _mm256_set1_epi8(32);
    __m256i v[8] QR_UNINITIALIZED;
    turn_sixteen(v, row, at - 2);
    for (int32_t i = 0; i < 8; i++) {
        const __m256i low = bits_moved(v[1 + i % 4], i < 4 ? 0 : -4, four), high = bits_moved(v[5 + i % 2], 4 - i / 2 * 2, two);
        put_steps_2(steps, i, _mm256_sub_epi8(_mm256_or_si256(low, high), above));
    }
    put_words_16(scale, v[7]);
}

/* Scale and offset, and behind them eight steps of 6 bits of each. */
VF_FN void take_eight_pairs(uint8_t *steps, uint8_t *offset_steps, uint16_t *scale, uint16_t *offset, const uint8_t *const row[QR_PANEL], int64_t at)
{
    const __m256i six = _mm256_set1_epi8(63), four = _mm256_set1_epi8(15), two = _mm256_set1_epi8(0x30);
    __m256i v[8] QR_UNINITIALIZED;
    turn_sixteen(v, row, at - 4);
    put_words_16(scale, v[0]);
    put_words_16(offset, v[1]);
    for (int32_t i = 0; i < 2; i++) {
        const __m256i x = v[2 + i], y = v[4 + i], z = v[6 + i];
        put_steps_2(steps, i, _mm256_and_si256(x, six));
        put_steps_2(steps, 2 + i, _mm256_or_si256(_mm256_and_si256(z, four), bits_moved(x, -2, two)));
        put_steps_2(offset_steps, i, _mm256_and_si256(y, six));
        put_steps_2(offset_steps, 2 + i, _mm256_or_si256(bits_moved(z, -4, four), bits_moved(y, -2, two)));
    }
}

/* Steps of the block at byte `at` of each row to where they stay, its scales and offsets to [16] each. */
VF_FN void take_unit(const struct packing *p, uint8_t *block, uint16_t *half, uint16_t *offset, const uint8_t *const row[QR_PANEL], int64_t at)
{
    const struct qr_coded_blocks *l = p->rows->blocks;
    uint8_t *steps = block + p->shape.step_at, *offset_steps = block + p->shape.offset_step_at;
    __m256i v[8] QR_UNINITIALIZED;
    if (l->steps_as == QR_CODED_STEPS_6_PAIRS) {
        take_eight_pairs(steps, offset_steps, half, offset, row, at + l->steps_at);
        return;
    }
    if (l->steps_as == QR_CODED_STEPS_6) {
        take_sixteen(steps, half, row, at + l->steps_at);
        return;
    }
    turn_sixteen(v, row, at + l->steps_at);
    if (l->steps_as == QR_CODED_STEPS_8) {
        for (int32_t i = 0; i < 8; i++)
            put_steps_2(steps, i, v[i]);
        take_halves(half, row, 1, 0, at + l->scale_at);
        return;
    }
    for (int32_t i = 0; i < 8; i++) {
        put_steps_2(steps, i, _mm256_and_si256(v[i], _mm256_set1_epi8(15)));
        put_steps_2(offset_steps, i, bits_moved(v[i], -4, _mm256_set1_epi8(15)));
    }
    take_pairs(half, offset, row, 1, 0, at + l->scale_at);
}

#ifndef QR_ISA_amx
/* ---- codes, eight rows at a time ---- */

/* Lines of the rows that come later, which are asked for a few at a time between codes; n 0: none are. */
struct asking {
    const char *at;
    int32_t n; /* at a time */
};

VF_FN void ask_lines(struct asking *a)
{
    for (int32_t i = 0; i < a->n; i++, a->at += 64)
        _mm_prefetch(a->at, _MM_HINT_T0);
}

/* Of both the lower two bits in each half of a byte, a's below b's: to a; and the upper ones: to b. */
VF_FN void swap_twos(__m256i *a, __m256i *b)
{
    const __m256i other = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(*a, 2), *b), _mm256_set1_epi8(0x33));
    *b = _mm256_xor_si256(*b, other);
    *a = _mm256_xor_si256(*a, _mm256_slli_epi16(other, 2));
}

#ifdef QR_ISA_avx2
/* Bits 0 and 1, and 2 and 3, likewise. */
VF_FN void swap_ones(__m256i *a, __m256i *b)
{
    const __m256i other = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(*a, 1), *b), _mm256_set1_epi8(0x55));
    *b = _mm256_xor_si256(*b, other);
    *a = _mm256_xor_si256(*a, _mm256_slli_epi16(other, 1));
}
#endif

/* 32 bytes of eight rows in planes of 2/32, as lines of 2 bits: 16 bytes have half the inputs, a line's, of four runs of 32, which are `apart` bytes from each
 * other. */
VF_FN void put_twos_8(uint8_t *to, const uint8_t *const r[8], int64_t low, const int32_t apart, struct asking *next)
{
    for (int32_t line = 0; line < 2; line++) {
        __m256i v[4];
        ask_lines(next);
        turn_eight(v, r, low + 16 * line);
        swap_halves(&v[0], &v[1]);
        swap_halves(&v[2], &v[3]);
        swap_twos(&v[0], &v[2]);
        swap_twos(&v[1], &v[3]);
        const __m256i run[4] = {v[0], v[2], v[1], v[3]};
        for (int32_t i = 0; i < 4; i++)
            _mm256_storeu_si256((__m256i *)(void *)(to + i * apart + line * QR_CODED_LINE), run[i]);
    }
}

/* 32 bytes of eight rows as lines of 4 bits (fours.h): of their lower halves, and of the upper ones. */
VF_FN void turn_lines_8(__m256i lower[FOURS_LINES], __m256i upper[FOURS_LINES], const uint8_t *const r[8], int64_t at)
{
    for (int32_t i = 0; i < FOURS_LINES; i += 2) {
        __m256i v[4];
        turn_eight(v, r, at + 8 * i);
        for (int32_t j = 0; j < 2; j++) {
            swap_halves(&v[2 * j], &v[2 * j + 1]);
            lower[i + j] = v[2 * j];
            upper[i + j] = v[2 * j + 1];
        }
    }
}

/* 32 inputs of eight rows: of lines of 4 bits, the two bits from `twos` on in those of `low`, and above them bit `third` of `high`. */
VF_FN void put_run_3(uint8_t *to, const __m256i low[FOURS_LINES], const int32_t twos, const __m256i high[FOURS_LINES], const int32_t third)
{
    const __m256i two = _mm256_set1_epi8(0x33), one = _mm256_set1_epi8(0x44), top = _mm256_set1_epi8((char)0x88);
    const __m256i fourth[3] = {bits_moved(low[3], 3 - twos, top), bits_moved(low[3], 2 - twos, top), bits_moved(high[3], 3 - third, top)};
    for (int32_t i = 0; i < 3; i++) {
        const __m256i v = _mm256_or_si256(bits_moved(low[i], -twos, two), bits_moved(high[i], 2 - third, one));
        _mm256_storeu_si256((__m256i *)(void *)(to + i * QR_CODED_LINE), _mm256_or_si256(v, fourth[i]));
    }
}

/* A block of eight rows of 3 bits in planes of 2/32 and 1/32. */
VF_FN void put_threes_8(uint8_t *to, const uint8_t *const r[8], int64_t low, int64_t high, struct asking *next)
{
    enum { RUN = 3 * QR_CODED_LINE };
    __m256i third[2][FOURS_LINES] QR_UNINITIALIZED;
    turn_lines_8(third[0], third[1], r, high);
#pragma GCC unroll 2
    for (int32_t part = 0; part < 2; part++, low += 32, to += 4 * RUN) {
        __m256i lower[FOURS_LINES] QR_UNINITIALIZED, upper[FOURS_LINES] QR_UNINITIALIZED;
        turn_lines_8(lower, upper, r, low);
        ask_lines(next);
        put_run_3(to, lower, 0, third[part], 0);
        ask_lines(next);
        put_run_3(to + RUN, lower, 2, third[part], 1);
        ask_lines(next);
        put_run_3(to + 2 * RUN, upper, 0, third[part], 2);
        ask_lines(next);
        put_run_3(to + 3 * RUN, upper, 2, third[part], 3);
    }
}

#ifdef QR_ISA_avx2
/* 32 bytes of eight rows, whose lower halves are 32 inputs and whose upper ones are those `apart` bytes behind. */
VF_FN void put_fours_8(uint8_t *to, const uint8_t *const r[8], int64_t low, const int32_t apart, struct asking *next)
{
    for (int32_t j = 0; j < 2; j++) {
        ask_lines(next);
        put_nibbles_8(to + j * 2 * QR_CODED_LINE, r, low + 16 * j, apart);
    }
}

/* A block of eight rows of 5 bits in planes of 4/32 and 1/32 (apart.h). */
VF_FN void put_fives_8(uint8_t *to, const uint8_t *const r[8], int64_t low, int64_t high, struct asking *next)
{
    enum { RUN = 5 * QR_CODED_LINE };
    __m256i above[2][FOURS_LINES] QR_UNINITIALIZED; /* half a byte of line i: of four runs */
    turn_lines_8(above[0], above[1], r, high);
    for (int32_t i = 0; i < 4; i++)
        put_fours_8(to + 2 * i * RUN, r, low + 32 * i, RUN, next);
    for (int32_t part = 0; part < 2; part++) {
        __m256i *v = above[part];
        swap_twos(&v[0], &v[2]);
        swap_twos(&v[1], &v[3]);
        swap_ones(&v[0], &v[1]);
        swap_ones(&v[2], &v[3]);
        for (int32_t i = 0; i < FOURS_LINES; i++)
            _mm256_storeu_si256((__m256i *)(void *)(to + (4 * part + i) * RUN + APART_ABOVE), v[i]);
    }
}

/* Of 6 bits in planes of 4/64 and 2/32. */
VF_FN void put_sixes_8(uint8_t *to, const uint8_t *const r[8], int64_t low, int64_t high, struct asking *next)
{
    enum { RUN = 6 * QR_CODED_LINE };
    for (int32_t half = 0; half < 2; half++, low += 64, high += 32, to += 4 * RUN) {
        put_fours_8(to, r, low, 2 * RUN, next);
        put_fours_8(to + RUN, r, low + 32, 2 * RUN, next);
        put_twos_8(to + APART_ABOVE, r, high, RUN, next);
    }
}

/* ---- a panel ---- */

/* How many times codes of a block of 16 rows ask. */
static int32_t asked_in_unit(int32_t bits)
{
    return bits == 2 ? 8 : bits == 6 ? 24 : 16;
}

/* Codes of the block at byte `at` of each row. Codes of 5 and 6 bits are less the least in the file as well. */
static void put_unit(const struct packing *p, uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t at, struct asking next)
{
    const struct qr_coded_blocks *l = p->rows->blocks;
    const int32_t bits = l->low.bits + l->high.bits;
    const int64_t low = at + l->low.at, high = at + l->high.at;
    QR_ASSERT(bits < 5 || l->add == qr_coded_least(p->shape.f));
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        uint8_t *to = codes + 4 * o;
        if (bits == 6)
            put_sixes_8(to, r, low, high, &next);
        else if (bits == 5)
            put_fives_8(to, r, low, high, &next);
        else if (bits == 3)
            put_threes_8(to, r, low, high, &next);
        for (int32_t i = 0; bits == 4 && i < 4; i++)
            put_fours_8(to + i * 8 * QR_CODED_LINE, r, low + 32 * i, 4 * QR_CODED_LINE, &next);
        for (int32_t i = 0; bits == 2 && i < 2; i++)
            put_twos_8(to + i * 8 * QR_CODED_LINE, r, low + 32 * i, 2 * QR_CODED_LINE, &next);
    }
}

/* Everything of a panel but scales and offsets, which are collected. */
static void put_units(const struct packing *p, uint8_t *panel, uint16_t *half, uint16_t *offset, const uint8_t *const row[QR_PANEL])
{
    const struct qr_coded_blocks *l = p->rows->blocks;
    const int32_t n_bytes = l->n_bytes, block_bytes = p->shape.block_bytes, times = asked_in_unit(l->low.bits + l->high.bits);
    const int32_t next = p->shape.f.bits > 4 ? block_bytes : 0; /* asked for: with fewer bits it costs more than it gains */
    const int32_t lines = p->rows->asks ? (n_bytes * QR_PANEL / 64 + times - 1) / times : 0;
    const char *rows = (const char *)row[0] + QR_PANEL * p->rows->pitch; /* of the next panel */
    uint8_t *block = panel + p->shape.head_bytes;
    for (int64_t u = 0; u < p->n_in / QR_CODED_UNIT; u++, block += block_bytes) {
        for (int32_t at = 0; at < next; at += 64)
            _mm_prefetch((const char *)block + block_bytes + at, _MM_HINT_T0);
        take_unit(p, block, half + u * QR_PANEL, offset + u * QR_PANEL, row, u * n_bytes);
        put_unit(p, block + p->shape.codes_at, row, u * n_bytes, (struct asking){rows + u * n_bytes * QR_PANEL, lines});
    }
}
#endif
#else
/* ---- codes on tiles, 16 rows at a time ---- */

/* 32 bytes of rows o and o + 2: what they become are the lower and the upper bytes of words. */
VF_FN __m512i units_rows(const uint8_t *const row[QR_PANEL], int32_t o, int64_t at)
{
    const __m256i first = _mm256_loadu_si256((const __m256i *)(const void *)(row[o] + at));
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256((const __m256i *)(const void *)(row[o + 2] + at)), 1);
}

/* Of each 2 n bits (mask: the lower n) the upper ones of a and the lower ones of b change places. */
VF_FN void units_swap(__m512i *a, __m512i *b, const int32_t n, const int32_t mask)
{
    const __m512i low = _mm512_set1_epi8((char)mask), x = *a;
    *a = _mm512_ternarylogic_epi64(low, x, _mm512_slli_epi16(*b, (unsigned)n), TURN_PICK);
    *b = _mm512_ternarylogic_epi64(low, _mm512_srli_epi16(x, (unsigned)n), *b, TURN_PICK);
}

/* Bytes of the lower half and the upper one by turns. */
VF_FN __m512i units_words(__m512i x)
{
    static const uint8_t order[64] = {
         0, 32,  1, 33,  2, 34,  3, 35,  4, 36,  5, 37,  6, 38,  7, 39,
         8, 40,  9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47,
        16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
        24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63,
    };
    return _mm512_permutexvar_epi8(_mm512_loadu_si512(order), x);
}

/* 32 bytes of eight rows from row o on in planes of 2/32: lines of four runs of inputs, a word of each input. In the lower two bits of each half of a byte are
 * rows o to o + 3, above them o + 4 to o + 7. */
VF_FN void units_twos(__m512i run[4], const uint8_t *const row[QR_PANEL], int32_t o, int64_t at)
{
    __m512i v[4] = {units_rows(row, o, at), units_rows(row, o + 4, at), units_rows(row, o + 1, at), units_rows(row, o + 5, at)};
    units_swap(&v[0], &v[2], 4, 0x0f);
    units_swap(&v[1], &v[3], 4, 0x0f);
    units_swap(&v[0], &v[1], 2, 0x33);
    units_swap(&v[2], &v[3], 2, 0x33);
    for (int32_t i = 0; i < 4; i++)
        run[i] = units_words(v[i]);
}

/* 32 bytes of all rows in planes of 1/32: lines of eight runs; bit i of half o % 4 of a word is that of row 4 i + o. */
VF_FN void units_ones(__m512i run[8], const uint8_t *const row[QR_PANEL], int64_t at)
{
    for (int32_t i = 0; i < 8; i++)
        run[i] = units_rows(row, i % 4 * 4 + i / 4, at);
    for (int32_t i = 0; i < 4; i++)
        units_swap(&run[i], &run[i + 4], 4, 0x0f);
    for (int32_t i = 0; i < 4; i++)
        units_swap(&run[i / 2 * 4 + i % 2], &run[i / 2 * 4 + i % 2 + 2], 2, 0x33);
    for (int32_t i = 0; i < 8; i += 2)
        units_swap(&run[i], &run[i + 1], 1, 0x55);
    for (int32_t i = 0; i < 8; i++)
        run[i] = units_words(run[i]);
}

/* Four runs of 2 bits (fours.h). */
VF_FN void units_put_2(uint8_t *to, const uint8_t *const row[QR_PANEL], int64_t low)
{
    for (int32_t line = 0; line < 2; line++, to += QR_CODED_LINE) {
        __m512i run[4] QR_UNINITIALIZED;
        units_twos(run, row, 8 * line, low);
        for (int32_t i = 0; i < 4; i++)
            _mm512_storeu_si512(to + i * 2 * QR_CODED_LINE, run[i]);
    }
}

/* Four runs of 3 bits, the third ones in `third`. */
VF_FN void units_put_3(uint8_t *to, const uint8_t *const row[QR_PANEL], int64_t low, const __m512i third[4])
{
    const __m512i two = _mm512_set1_epi8(0x33), top = _mm512_set1_epi8((char)0x88);
    __m512i a[4] QR_UNINITIALIZED, b[4] QR_UNINITIALIZED; /* rows 0 to 3 and 4 to 7, and the others */
    units_twos(a, row, 0, low);
    units_twos(b, row, 8, low);
    for (int32_t i = 0; i < 4; i++, to += 3 * QR_CODED_LINE) {
        const __m512i first = _mm512_ternarylogic_epi64(two, a[i], _mm512_slli_epi16(third[i], 2), TURN_PICK);
        const __m512i second = _mm512_ternarylogic_epi64(two, _mm512_srli_epi16(a[i], 2), _mm512_slli_epi16(third[i], 1), TURN_PICK);
        _mm512_storeu_si512(to, _mm512_ternarylogic_epi64(top, _mm512_slli_epi16(b[i], 1), first, TURN_PICK));
        _mm512_storeu_si512(to + QR_CODED_LINE, _mm512_ternarylogic_epi64(top, b[i], second, TURN_PICK));
        _mm512_storeu_si512(to + 2 * QR_CODED_LINE, _mm512_ternarylogic_epi64(two, b[i], third[i], TURN_PICK));
    }
}
#endif

#endif
