/* coded_pack.c - rows of coded weights into the panels of coded.h, and single rows of them read back. */
#include "kernels/cpu/isa/coded.h"

#include "base/mem.h"
#include "kernels/cpu/isa/coded_squeeze.h"
#include "kernels/cpu/isa/coded_turn.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

_Static_assert(QR_CODED_ROWS_MAX >= QR_PANEL, "a source fills a panel at once");

struct packing {
    uint8_t *dst;
    const struct qr_coded_source *rows;
    struct qr_queue *q;
    struct qr_coded_shape shape;
    uint8_t index[256];   /* of a level, as a byte */
    bool even;            /* levels rise by one */
    int64_t n_in, row0, n_rows, together; /* panels whose rows come at once */
};

size_t QR_ISA_NAME(coded_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_dtype_is_coded(to));
    QR_ASSERT(n_out >= 0 && n_in >= 0);
    return (size_t)((n_out + QR_PANEL - 1) / QR_PANEL) * (size_t)qr_coded_shape_of(to, n_in).panel_bytes;
}

/* qr_coded_half's bits. */
static uint16_t half_of(float x, float factor)
{
    return isnan(factor) ? 0 : _cvtss_sh(x / factor, _MM_FROUND_TO_NEAREST_INT);
}

/* Scales, offsets and steps of output o of a panel. */
static void put_scales(const struct packing *p, uint8_t *panel, int64_t o, const struct qr_coded_rows *row, float factor)
{
    const struct qr_coded_shape *s = &p->shape;
    const int64_t n_units = qr_coded_n_units(s->f, p->n_in), n_groups = qr_coded_n_groups(s->f, p->n_in);
    const int32_t units = s->block_shift - s->unit_shift, groups = s->block_shift - s->group_shift;
    uint8_t *blocks = panel + s->head_bytes;
    for (int64_t u = 0; u < n_units; u++) {
        uint16_t *to = (uint16_t *)(void *)(blocks + (u >> units) * s->block_bytes) + (u & ((1 << units) - 1)) * QR_PANEL + o;
        to[0] = half_of(row->scale[u], factor);
        if (s->f.offset)
            to[s->offset_at / 2] = half_of(row->offset[u], factor);
    }
    for (int64_t g = 0; g < n_groups && (row->step || row->offset_step); g++) {
        uint8_t *to = blocks + (g >> groups) * s->block_bytes + (g & ((1 << groups) - 1)) * QR_PANEL + o;
        if (row->step)
            to[s->step_at] = (uint8_t)row->step[g];
        if (row->offset_step)
            to[s->offset_step_at] = (uint8_t)row->offset_step[g];
    }
}

/* 16 levels, of which n are there, zeros behind them: as they are, with 4 bits their indices. */
VF_FN __m128i codes_of(const struct packing *p, const int8_t *level, int64_t n)
{
    _Alignas(16) uint8_t some[16] = {0};
    if (n < 16)
        level = memcpy(some, level, (size_t)n);
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)level);
    if (p->shape.f.bits != 4)
        return v;
    if (p->even)
        return _mm_and_si128(_mm_sub_epi8(v, _mm_set1_epi8(p->rows->levels[0])), _mm_set1_epi8(15));
    _mm_store_si128((__m128i *)(void *)some, v);
    for (int j = 0; j < 16; j++)
        some[j] = p->index[some[j]];
    return _mm_load_si128((const __m128i *)(const void *)some);
}

/* Codes of outputs [o, o + n) of a panel, whose rows of levels lie one after the other. */
VF_FN void put_levels(const struct packing *p, uint8_t *panel, const int8_t *level, int32_t o, int32_t n, int32_t bits)
{
    const struct qr_coded_shape *s = &p->shape;
    for (int64_t k = 0; k < p->n_in; k += 16) {
        uint8_t *codes = panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes + s->codes_at;
        for (int32_t quad = o / 4; quad * 4 < o + n; quad++) {
            __m128i v[4];
            for (int32_t i = 0, row = quad * 4 - o; i < 4; i++, row++)
                v[i] = row >= 0 && row < n ? codes_of(p, level + row * p->n_in + k, p->n_in - k) : _mm_setzero_si128();
            put_four(bits, codes, k & ((1 << s->block_shift) - 1), quad, v, n < QR_PANEL);
        }
    }
}

#ifdef QR_ISA_amx
/* put_four for 64 inputs: of four outputs' rows. */
VF_FN void put_64(uint8_t *codes, int64_t k, int32_t quad, const int8_t *level, int64_t n_in, __m512i least)
{
    const __m512i half = _mm512_set1_epi8(15);
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_and_si512(_mm512_sub_epi8(_mm512_loadu_si512(level + i * n_in), least), half);
    const __m512i ab = _mm512_or_si512(v[0], _mm512_slli_epi16(v[1], 4)), cd = _mm512_or_si512(v[2], _mm512_slli_epi16(v[3], 4));
    const __m512i first = _mm512_unpacklo_epi8(ab, cd), second = _mm512_unpackhi_epi8(ab, cd);
    uint8_t *to = codes + k / 32 * 256 + quad * 64;
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(first, low, second));
    _mm512_storeu_si512(to + 256, _mm512_permutex2var_epi64(first, high, second));
}

/* All codes of a panel with 4 bits, whose levels rise by one. False: this is none of those, nothing was written. */
static bool put_whole(const struct packing *p, uint8_t *panel, const int8_t *level, int32_t n)
{
    const struct qr_coded_shape *s = &p->shape;
    if (n != QR_PANEL || s->f.bits != 4 || !p->even || p->n_in % 64 != 0)
        return false;
    const __m512i least = _mm512_set1_epi8(p->rows->levels[0]);
    for (int64_t k = 0; k < p->n_in; k += 64) {
        uint8_t *codes = panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes + s->codes_at;
        for (int32_t quad = 0; quad < QR_PANEL / 4; quad++)
            put_64(codes, k & ((1 << s->block_shift) - 1), quad, level + 4 * quad * p->n_in + k, p->n_in, least);
    }
    return true;
}
#else
static bool put_whole(const struct packing *p, uint8_t *panel, const int8_t *level, int32_t n)
{
    (void)p, (void)panel, (void)level, (void)n;
    return false;
}
#endif

/* Codes of outputs [o, o + n) of 5 or 6 bits: a block's codes lie in bytes until all are there. */
VF_FN void put_squeezed(const struct packing *p, uint8_t *panel, const int8_t *level, int32_t o, int32_t n, int32_t bits)
{
    const struct qr_coded_shape *s = &p->shape;
    const int64_t block = (int64_t)1 << s->block_shift;
    _Alignas(64) uint8_t bytes[QR_CODED_BLOCK_MAX * QR_PANEL] QR_UNINITIALIZED;
    for (int64_t b = 0; b < s->n_blocks; b++) {
        for (int64_t in = 0, k = b << s->block_shift; in < block; in += 16, k += 16)
            for (int32_t quad = 0; quad < 4; quad++) {
                __m128i v[4];
                for (int32_t i = 0, row = quad * 4 - o; i < 4; i++, row++)
                    v[i] = row >= 0 && row < n && k < p->n_in ? codes_of(p, level + row * p->n_in + k, p->n_in - k) : _mm_setzero_si128();
                put_four(bits, bytes, in, quad, v, false);
            }
        coded_squeeze(panel + s->head_bytes + b * s->block_bytes + s->codes_at, bytes, bits, block * QR_PANEL / QR_CODED_LINE, n < QR_PANEL);
    }
}

static void pack_rows(const struct packing *p, uint8_t *panel, const struct qr_coded_rows *rows, int64_t i, int32_t o, int32_t n)
{
    const struct qr_coded_format f = p->shape.f;
    const struct qr_coded_rows own = qr_coded_row(rows, f, p->n_in, i);
    for (int32_t r = 0; r < n; r++) {
        const struct qr_coded_rows row = qr_coded_row(&own, f, p->n_in, r);
        const float factor = qr_coded_factor(&row, f, p->n_in);
        memcpy(panel + (o + r) * (int32_t)sizeof factor, &factor, sizeof factor);
        put_scales(p, panel, o + r, &row, factor);
    }
    if (f.bits == 8)
        put_levels(p, panel, own.level, o, n, 8);
    else if (f.bits == 6)
        put_squeezed(p, panel, own.level, o, n, 6);
    else if (f.bits == 5)
        put_squeezed(p, panel, own.level, o, n, 5);
    else if (!put_whole(p, panel, own.level, n))
        put_levels(p, panel, own.level, o, n, 4);
}

/* ---- whole panels from blocks of a file ---- */

/* The numbers of f16 at byte `at` of each block, turned: [n_blocks][16]. */
static void take_halves(uint16_t *to, const uint8_t *const row[QR_PANEL], int64_t n_blocks, int64_t block_bytes, int64_t at)
{
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const uint8_t *from = row[o] + at;
        for (int64_t u = 0; u < n_blocks; u++, from += block_bytes)
            memcpy(to + u * QR_PANEL + o, from, sizeof *to);
    }
}

/* Likewise two numbers, one behind the other, which are read at once: by way of both [n_blocks][16]. */
static void take_pairs(uint16_t *to, uint16_t *second, uint32_t *both, const uint8_t *const row[QR_PANEL], int64_t n_blocks, int64_t block_bytes, int64_t at)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const uint8_t *from = row[o] + at;
        for (int64_t u = 0; u < n_blocks; u++, from += block_bytes)
            memcpy(both + u * QR_PANEL + o, from, sizeof *both);
    }
    for (int64_t i = 0; i < n_blocks * QR_PANEL; i += QR_PANEL) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(both + i)), b = _mm256_loadu_si256((const __m256i *)(const void *)(both + i + 8));
        const __m256i x = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
        const __m256i y = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_permute4x64_epi64(x, _MM_SHUFFLE(3, 1, 2, 0)));
        _mm256_storeu_si256((__m256i *)(void *)(second + i), _mm256_permute4x64_epi64(y, _MM_SHUFFLE(3, 1, 2, 0)));
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

static struct factors factors_of(uint8_t *panel, __m256i most)
{
    struct factors all;
    uint16_t half[QR_PANEL];
    _mm256_storeu_si256((__m256i *)(void *)half, most);
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const float x = qr_f16_to_f32(half[o]);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        const float factor = qr_coded_factor_of(bits);
        memcpy(panel + o * (int32_t)sizeof factor, &factor, sizeof factor);
        all.by[o] = isnan(factor) ? 1 : 1 / factor;
        all.keep[o] = isnan(factor) ? 0 : UINT16_MAX;
    }
    return all;
}

/* No product has more digits than f16 has: it is what half_of gives. */
static void put_halves(uint8_t *to, const uint16_t half[QR_PANEL], const struct factors *f, uint16_t sign)
{
    for (int32_t o = 0; o < QR_PANEL; o += 8) {
        const __m128i stored = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)(half + o)), _mm_set1_epi16((int16_t)sign));
        const __m256 x = _mm256_mul_ps(_mm256_cvtph_ps(stored), _mm256_loadu_ps(f->by + o));
        const __m128i keep = _mm_loadu_si128((const __m128i *)(const void *)(f->keep + o));
        _mm_storeu_si128((__m128i *)(void *)(to + 2 * o), _mm_and_si128(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT), keep));
    }
}

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

/* Rows to be read next are asked for while codes move, else half the time goes into waiting for scales: line i / 16 of row i % 16, as far as bytes were
 * taken of the rows before. Where they are is guessed (mostly right, and no harm is done). */
struct ahead {
    uintptr_t row[QR_PANEL];
    int64_t i;
};

VF_FN void ask(struct ahead *a, int64_t n_bytes)
{
    for (; a->i * 64 < n_bytes * QR_PANEL; a->i++)
        _mm_prefetch((const char *)(a->row[a->i % QR_PANEL] + (uintptr_t)(a->i / QR_PANEL * 64)), _MM_HINT_T0);
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

/* Codes of a block of the file, which begin at byte `at` of each row: from input k of a packed block on. half: blocks->half, known to the compiler. */
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

/* Rows `first` on of the source. */
static void pack_blocks(const struct packing *p, uint8_t *panel, int64_t first, uint16_t *own)
{
    const struct qr_coded_shape *s = &p->shape;
    const struct qr_coded_blocks *l = p->rows->blocks;
    const int64_t n_blocks = p->n_in / l->n_in;
    const uint8_t *row[QR_PANEL];
    struct ahead ahead = {.i = first + 2 * QR_PANEL > p->n_rows ? INT64_MAX / 64 : 0};
    for (int32_t o = 0; o < QR_PANEL; o++)
        row[o] = p->rows->row(p->rows->arg, first + o);
    for (int32_t o = 0; o < QR_PANEL; o++)
        ahead.row[o] = (uintptr_t)row[o] + (uintptr_t)((row[QR_PANEL - 1] - row[0]) / (QR_PANEL - 1) * QR_PANEL);
    uint16_t *half = own, *offset = own + n_blocks * QR_PANEL;
    if (s->f.offset)
        take_pairs(half, offset, (uint32_t *)(void *)(offset + n_blocks * QR_PANEL), row, n_blocks, l->n_bytes, l->scale_at);
    else
        take_halves(half, row, n_blocks, l->n_bytes, l->scale_at);
    const struct factors f = factors_of(panel, most_of(half, s->f.offset ? 2 * n_blocks : n_blocks));
    int8_t *steps = (int8_t *)(offset + n_blocks * QR_PANEL);
    for (int64_t u = 0; s->f.steps && u < n_blocks; u++)
        l->steps(steps + u * 2 * STEPS_BYTES, steps + (2 * u + 1) * STEPS_BYTES, row, u * l->n_bytes);
    for (int64_t u = 0; u < n_blocks; u++) {
        const int64_t k = u * l->n_in, in = k & ((1 << s->block_shift) - 1), at = u * l->n_bytes;
        uint8_t *block = panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes, *unit = block + (in >> s->unit_shift) * 2 * QR_PANEL;
        put_halves(unit, half + u * QR_PANEL, &f, 0);
        if (s->f.offset)
            put_halves(unit + s->offset_at, offset + u * QR_PANEL, &f, l->minus ? 0x8000 : 0);
        if (s->f.steps)
            put_steps(p, block, steps + u * 2 * STEPS_BYTES);
        if (l->half == 0)
            put_stored(block + s->codes_at, row, at + l->codes_at, in, 32, 0, &ahead);
        else if (l->half == 16)
            put_stored(block + s->codes_at, row, at + l->codes_at, in, l->n_in, 16, &ahead);
        else
            put_stored(block + s->codes_at, row, at + l->codes_at, in, l->n_in, 32, &ahead);
    }
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    const struct packing *p = arg;
    const struct qr_coded_format f = p->shape.f;
    const int64_t panel = p->row0 / QR_PANEL + item * p->together, end_row = p->row0 + p->n_rows;
    int64_t first = panel * QR_PANEL, end = first + p->together * QR_PANEL;
    first = first > p->row0 ? first : p->row0;
    end = end < end_row ? end : end_row;
    if (p->rows->blocks && end - first == QR_PANEL) {
        uint8_t *dst = p->dst + panel * p->shape.panel_bytes;
        if (f.bits == 4)
            memcpy(dst + QR_CODED_LEVELS_AT, p->rows->levels, sizeof p->rows->levels);
        pack_blocks(p, dst, first - p->row0, qr_queue_own(p->q, worker));
        return;
    }
    const struct qr_coded_rows rows = qr_coded_rows_in(qr_queue_own(p->q, worker), f, p->n_in, end - first);
    p->rows->fill(p->rows->arg, &rows, first - p->row0, end - first);
    for (int64_t row = first, n; row < end; row += n) {
        const int64_t o = row % QR_PANEL;
        uint8_t *dst = p->dst + row / QR_PANEL * p->shape.panel_bytes;
        n = end - row < QR_PANEL - o ? end - row : QR_PANEL - o;
        if (f.bits == 4)
            memcpy(dst + QR_CODED_LEVELS_AT, p->rows->levels, sizeof p->rows->levels);
        pack_rows(p, dst, &rows, row - first, (int32_t)o, (int32_t)n);
    }
}

/* As many panels at once as the source likes, a worker's memory holds, and leave every thread a few items. */
static int64_t panels_together(const struct packing *p, int64_t n_panels)
{
    const int64_t room = (int64_t)p->q->own_bytes / qr_coded_rows_bytes(p->shape.f, p->n_in, QR_PANEL), share = n_panels / (4 * p->q->n_threads);
    int64_t n = p->rows->blocks ? 1 : p->rows->together;
    n = n < room ? n : room;
    n = n < share ? n : share;
    return n > 1 ? n : 1;
}

void QR_ISA_NAME(linear_pack_coded)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                                    const struct qr_coded_source *rows, int64_t n_rows)
{
    QR_ASSERT(dst != NULL && rows != NULL && rows->fill != NULL);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    QR_ASSERT(qr_dtype_is_coded(to) && n_in > 0 && n_in <= qr_linear_inputs_max(to));
    struct packing p = {.dst = dst, .rows = rows, .q = q, .shape = qr_coded_shape_of(to, n_in), .even = true, .n_in = n_in, .row0 = row0, .n_rows = n_rows};
    QR_ASSERT(qr_coded_rows_bytes(p.shape.f, n_in, QR_PANEL) <= (int64_t)q->own_bytes);
    QR_ASSERT(!rows->blocks || (rows->row && n_in % rows->blocks->n_in == 0 && rows->blocks->n_in == qr_coded_unit(p.shape.f)));
    for (int32_t i = 0; i < QR_COUNT(rows->levels); i++) {
        p.index[(uint8_t)rows->levels[i]] = (uint8_t)i;
        p.even = p.even && rows->levels[i] == rows->levels[0] + i;
    }
    const int64_t n_panels = n_rows > 0 ? (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1 : 0;
    p.together = panels_together(&p, n_panels);
    qr_queue_run(q, pack_item, &p, (n_panels + p.together - 1) / p.together);
}

/* ---- rows read back ---- */

/* What the weights of input k's group are made of, for one output. */
static void read_scales(float *scale, float *offset, const struct qr_coded_shape *s, const uint8_t *block, int32_t in, int32_t row, float factor)
{
    const uint16_t *unit = (const uint16_t *)(const void *)block + (in >> s->unit_shift) * QR_PANEL + row;
    const int8_t *step = (const int8_t *)block + (in >> s->group_shift) * QR_PANEL + row;
    *scale = qr_f16_to_f32(unit[0]) * factor;
    *offset = s->f.offset ? qr_f16_to_f32(unit[s->offset_at / 2]) * factor : 0;
    if (s->f.steps)
        *scale *= step[s->step_at];
    if (s->f.steps && s->f.offset)
        *offset *= step[s->offset_step_at];
    if (s->f.zero)
        *offset = -(*scale * step[s->offset_step_at]);
}

void QR_ISA_NAME(coded_row)(float *out, enum qr_dtype t, const uint8_t *panel, int32_t row, int64_t n_in, float scale)
{
    QR_ASSERT(out != NULL && panel != NULL);
    QR_ASSERT(row >= 0 && row < QR_PANEL);
    const struct qr_coded_shape s = qr_coded_shape_of(t, n_in);
    const int8_t *levels = (const int8_t *)panel + QR_CODED_LEVELS_AT;
    float factor, by = 0, offset = 0;
    memcpy(&factor, panel + row * (int32_t)sizeof factor, sizeof factor);
    for (int32_t k = 0; k < n_in; k++) {
        const uint8_t *block = qr_coded_block(&s, panel, k);
        const int32_t in = k & ((1 << s.block_shift) - 1);
        if (k % s.f.group == 0)
            read_scales(&by, &offset, &s, block, in, row, factor);
        const int32_t code = code_of(block + s.codes_at, s.f, in, row), level = s.f.bits == 4 ? levels[code] : code;
        out[k] = scale * qr_bf16_to_f32(qr_f32_to_bf16(fmaf(by, (float)level, offset)));
    }
}
