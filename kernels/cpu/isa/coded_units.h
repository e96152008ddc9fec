/* coded_units.h - level avx2: whole panels from blocks of 256 inputs with steps (struct qr_coded_blocks, steps_as), a block of 16 rows at a time. Included by
 * coded_blocks.h, whose helpers it uses, and by nobody else. */
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
    take_pairs(half, offset, NULL, row, 1, 0, at + l->scale_at);
}

/* ---- codes of 2 to 4 bits, eight rows at a time ---- */

/* Of both the lower two bits in each half of a byte, a's below b's: to a; and the upper ones: to b. */
VF_FN void swap_twos(__m256i *a, __m256i *b)
{
    const __m256i other = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(*a, 2), *b), _mm256_set1_epi8(0x33));
    *b = _mm256_xor_si256(*b, other);
    *a = _mm256_xor_si256(*a, _mm256_slli_epi16(other, 2));
}

/* A block of eight rows of 2 bits in planes of 32: 16 bytes have half the inputs, a line's, of four runs of 32. */
VF_FN void put_twos_8(uint8_t *to, const uint8_t *const r[8], int64_t low)
{
    enum { RUN = 2 * QR_CODED_LINE };
    for (int32_t part = 0; part < 2; part++, low += 32, to += 4 * RUN)
        for (int32_t line = 0; line < 2; line++) {
            __m256i v[4];
            turn_eight(v, r, low + 16 * line);
            swap_halves(&v[0], &v[1]);
            swap_halves(&v[2], &v[3]);
            swap_twos(&v[0], &v[2]);
            swap_twos(&v[1], &v[3]);
            const __m256i run[4] = {v[0], v[2], v[1], v[3]};
            for (int32_t i = 0; i < 4; i++)
                _mm256_storeu_si256((__m256i *)(void *)(to + i * RUN + line * QR_CODED_LINE), run[i]);
        }
}

/* 32 bytes of eight rows as lines of 4 bits (coded_fours.h): of their lower halves, and of the upper ones. */
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
VF_FN void put_threes_8(uint8_t *to, const uint8_t *const r[8], int64_t low, int64_t high)
{
    enum { RUN = 3 * QR_CODED_LINE };
    __m256i third[2][FOURS_LINES] QR_UNINITIALIZED;
    turn_lines_8(third[0], third[1], r, high);
#pragma GCC unroll 2
    for (int32_t part = 0; part < 2; part++, low += 32, to += 4 * RUN) {
        __m256i lower[FOURS_LINES] QR_UNINITIALIZED, upper[FOURS_LINES] QR_UNINITIALIZED;
        turn_lines_8(lower, upper, r, low);
        put_run_3(to, lower, 0, third[part], 0);
        put_run_3(to + RUN, lower, 2, third[part], 1);
        put_run_3(to + 2 * RUN, upper, 0, third[part], 2);
        put_run_3(to + 3 * RUN, upper, 2, third[part], 3);
    }
}

/* Likewise in halves of bytes, in planes of 32. */
VF_FN void put_fours_8(uint8_t *to, const uint8_t *const r[8], int64_t low)
{
    for (int32_t i = 0; i < 4; i++, low += 32, to += 64 * QR_PANEL / 2)
        for (int32_t j = 0; j < 32; j += 16)
            put_nibbles_8(to + j * (QR_PANEL / 2), r, low + j, 32);
}

/* ---- codes of 5 and 6 bits: the halves of a register have inputs of two lines ---- */

/* 32 bytes of four rows: to[4 i] gets bytes 4 i to 4 i + 3 of each, and in its upper half bytes 16 + 4 i and so on. */
VF_FN void turn_four(__m256i *to, const uint8_t *const row[4], int64_t at)
{
    __m256i x[4];
    for (int32_t i = 0; i < 4; i++)
        x[i] = _mm256_loadu_si256((const __m256i *)(const void *)(row[i] + at));
    const __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpacklo_epi32(x[2], x[3]);
    const __m256i c = _mm256_unpackhi_epi32(x[0], x[1]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    to[0] = _mm256_unpacklo_epi64(a, b);
    to[4] = _mm256_unpackhi_epi64(a, b);
    to[8] = _mm256_unpacklo_epi64(c, d);
    to[12] = _mm256_unpackhi_epi64(c, d);
}

/* Both halves, `apart` bytes from each other. */
VF_FN void put_both(uint8_t *to, __m256i v, int32_t apart)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(void *)(to + apart), _mm256_extracti128_si256(v, 1));
}

VF_FN __m256i shuffled(__m256i v, int8_t b0, int8_t b1, int8_t b2, int8_t b3, int8_t b4, int8_t b5, int8_t b6, int8_t b7, int8_t b8, int8_t b9, int8_t b10,
                       int8_t b11, int8_t b12, int8_t b13, int8_t b14, int8_t b15)
{
    return _mm256_shuffle_epi8(
        v, _mm256_broadcastsi128_si256(_mm_setr_epi8(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15)));
}

/* Two lines of 6 bits, the second one four lines behind: four inputs of four rows in each half of v[i], rows 4 i and on. Each becomes 12 bytes, which are
 * put where they lie in the line's three times 16. */
VF_FN void put_lines_6(uint8_t *to, const __m256i v[4])
{
    const int32_t apart = 4 * QR_CODED_LINE / 8 * 6;
    __m256i x[4];
    for (int32_t i = 0; i < 4; i++)
        x[i] = _mm256_madd_epi16(_mm256_maddubs_epi16(v[i], _mm256_set1_epi16(1 | 1 << 14)), _mm256_set1_epi32(1 | 1 << 28));
    const __m256i a = shuffled(x[0], 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i b = shuffled(x[1], 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4);
    const __m256i c = shuffled(x[2], 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8, 9);
    const __m256i d = shuffled(x[3], -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14);
    put_both(to, _mm256_blend_epi32(a, b, 0x88), apart);
    put_both(to + 16, _mm256_blend_epi32(b, c, 0xcc), apart);
    put_both(to + 32, _mm256_blend_epi32(c, d, 0xee), apart);
}

/* Likewise of 5 bits: v has rows 0, 2, 4, 6, rows 1, 3, 5, 7, and so on. Of two rows' 20 bits the second one's begin in the middle of a byte, as which both
 * are put where they lie: five bytes, of which the third one has some of both. */
VF_FN void put_lines_5(uint8_t *to, const __m256i v[4])
{
    const int32_t apart = 4 * QR_CODED_LINE / 8 * 5;
    __m256i x[4];
    for (int32_t i = 0; i < 4; i++)
        x[i] = _mm256_madd_epi16(_mm256_maddubs_epi16(v[i], _mm256_set1_epi16(1 | 1 << 13)), _mm256_set1_epi32(i % 2 ? 1 << 4 | 1 << 30 : 1 | 1 << 26));
    const __m256i even = _mm256_blend_epi32(x[2], x[0], 0x88), odd = _mm256_blend_epi32(x[3], x[1], 0x88); /* rows 6, 8, 10, 12 and 7, 9, 11, 13 */
    const __m256i a = shuffled(x[0], 0, 1, 2, -1, -1, 4, 5, 6, -1, -1, 8, 9, 10, -1, -1, 12);
    const __m256i b = shuffled(x[1], -1, -1, 0, 1, 2, -1, -1, 4, 5, 6, -1, -1, 8, 9, 10, -1);
    const __m256i c = shuffled(even, 13, 14, -1, -1, 0, 1, 2, -1, -1, 4, 5, 6, -1, -1, 8, 9);
    const __m256i d = shuffled(odd, -1, 12, 13, 14, -1, -1, 0, 1, 2, -1, -1, 4, 5, 6, -1, -1);
    const __m256i e = shuffled(x[2], 10, -1, -1, 12, 13, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i f = shuffled(x[3], 8, 9, 10, -1, -1, 12, 13, 14, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i last = _mm256_or_si256(e, f);
    put_both(to, _mm256_or_si256(a, b), apart);
    put_both(to + 16, _mm256_or_si256(c, d), apart);
    _mm_storel_epi64((__m128i *)(void *)(to + 32), _mm256_castsi256_si128(last));
    _mm_storel_epi64((__m128i *)(void *)(to + 32 + apart), _mm256_extracti128_si256(last, 1));
}

/* A block of 16 rows, of 5 bits in planes of 4/32 and 1/32. Loops are not unrolled but for a line's runs: as one run of instructions that is too long for what
 * processors keep of decoded ones, it takes twice as long. */
static void put_fives_16(uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t low, int64_t high)
{
    enum { RUN = 32 * QR_PANEL / 8 * 5 };
    const __m256i four = _mm256_set1_epi8(15), fifth = _mm256_set1_epi8(16);
    __m256i t[5][4][4] QR_UNINITIALIZED;
#pragma GCC unroll 1
    for (int32_t quad = 0; quad < 4; quad++) {
        const int32_t first = quad / 2 * 8 + quad % 2;
        const uint8_t *const r[4] = {row[first], row[first + 2], row[first + 4], row[first + 6]};
#pragma GCC unroll 1
        for (int32_t i = 0; i < 4; i++)
            turn_four(&t[i][0][quad], r, low + 32 * i);
        turn_four(&t[4][0][quad], r, high);
    }
#pragma GCC unroll 1
    for (int32_t i = 0; i < 4; i++)
#pragma GCC unroll 8
        for (int32_t run = 0; run < 8; run++) {
            __m256i v[4];
            for (int32_t quad = 0; quad < 4; quad++)
                v[quad] = _mm256_or_si256(bits_moved(t[run / 2][i][quad], run % 2 * -4, four), bits_moved(t[4][i][quad], 4 - run, fifth));
            put_lines_5(codes + run * RUN + i * (QR_CODED_LINE / 8 * 5), v);
        }
}

/* Likewise of 6 bits in planes of 4/64 and 2/32. A level is the code less 32: the uppermost of six bits is turned over. Half bytes of one byte and what is
 * above them are runs 0 and 2, of the next 32 bytes runs 1 and 3. */
static void put_sixes_16(uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t low, int64_t high)
{
    enum { RUN = 32 * QR_PANEL / 8 * 6 };
    const __m256i sign = _mm256_set1_epi8((char)0xaa), two = _mm256_set1_epi8(0x33);
#pragma GCC unroll 1
    for (int32_t half = 0; half < 2; half++, low += 64, high += 32, codes += 4 * RUN) {
        __m256i t[3][4][4] QR_UNINITIALIZED;
#pragma GCC unroll 1
        for (int32_t quad = 0; quad < 4; quad++) {
            const uint8_t *const r[4] = {row[4 * quad], row[4 * quad + 1], row[4 * quad + 2], row[4 * quad + 3]};
            turn_four(&t[0][0][quad], r, low);
            turn_four(&t[1][0][quad], r, low + 32);
            turn_four(&t[2][0][quad], r, high);
        }
#pragma GCC unroll 1
        for (int32_t i = 0; i < 4; i++) {
            uint8_t *to = codes + i * (QR_CODED_LINE / 8 * 6);
#pragma GCC unroll 2
            for (int32_t run = 0; run < 2; run++) {
                __m256i v[4], upper[4];
                for (int32_t quad = 0; quad < 4; quad++) {
                    v[quad] = t[run][i][quad];
                    upper[quad] = bits_moved(_mm256_xor_si256(t[2][i][quad], sign), -2 * run, two);
                    swap_halves(&v[quad], &upper[quad]);
                }
                put_lines_6(to + run * RUN, v);
                put_lines_6(to + (run + 2) * RUN, upper);
            }
        }
    }
}

/* ---- a panel ---- */

/* Codes of the block at byte `at` of each row. */
static void put_unit(const struct qr_coded_blocks *l, uint8_t *codes, const uint8_t *const row[QR_PANEL], int64_t at)
{
    const int32_t bits = l->low.bits + l->high.bits;
    if (bits == 6)
        put_sixes_16(codes, row, at + l->low.at, at + l->high.at);
    else if (bits == 5)
        put_fives_16(codes, row, at + l->low.at, at + l->high.at);
    for (int32_t o = 0; bits <= 4 && o < QR_PANEL; o += 8) {
        EIGHT_ROWS(r, row, o);
        if (bits == 4)
            put_fours_8(codes + 4 * o, r, at + l->low.at);
        else if (bits == 3)
            put_threes_8(codes + 4 * o, r, at + l->low.at, at + l->high.at);
        else
            put_twos_8(codes + 4 * o, r, at + l->low.at);
    }
}

/* Everything of a panel but scales and offsets, which are collected. */
static void put_units(const struct packing *p, uint8_t *panel, uint16_t *half, uint16_t *offset, const uint8_t *const row[QR_PANEL])
{
    const struct qr_coded_blocks *l = p->rows->blocks;
    uint8_t *block = panel + p->shape.head_bytes;
    const int32_t next = p->shape.f.bits > 4 ? p->shape.block_bytes : 0; /* of 5 and 6 bits all lines of a block are begun before one is whole: asked for */
    for (int64_t u = 0; u < p->n_in / QR_CODED_UNIT; u++, block += p->shape.block_bytes) {
        for (int32_t at = 0; at < next; at += 64)
            _mm_prefetch((const char *)block + next + at, _MM_HINT_T0);
        take_unit(p, block, half + u * QR_PANEL, offset + u * QR_PANEL, row, u * l->n_bytes);
        put_unit(l, block + p->shape.codes_at, row, u * l->n_bytes);
    }
}

#endif
