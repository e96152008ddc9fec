/* pack.c - rows of coded weights (kernels.h, struct qr_coded_rows) into the panels of coded.h, and single rows of them read back.
 *
 * A source fills 16 rows, a byte for each code, into the worker's scratch memory; they stay in L2 while the panel is made of them. Whole panels are transposed
 * in registers. Where a panel begins or ends with rows of another source, or inputs end within a block, rows go one by one.
 * Guarantee: both ways give the same bytes, whatever the rows that share a panel were packed with, and a scale is kept as qr_coded_half keeps it.
 * Thread: items run on the queue's workers, each with panels of its own. */
#include "kernels/cpu/isa/coded/coded.h"

#include "base/mem.h"
#include "kernels/cpu/isa/coded/numbers.h"
#include "kernels/cpu/isa/coded/planes.h"
#include "kernels/cpu/isa/coded/squeeze.h"
#include "kernels/cpu/isa/coded/turn.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

_Static_assert(QR_CODED_ROWS_MAX >= QR_PANEL, "a source fills a panel at once");

#ifdef QR_ISA_avx2
#define LESS_THE_LEAST(bits) ((bits) < 4 || (bits) == 5 || (bits) == 6) /* what codes are of levels */
#else
#define LESS_THE_LEAST(bits) ((bits) < 4)
#endif

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

/* Of E4M3 codes. */
static void put_numbers_scales(const struct packing *p, uint8_t *panel, int64_t o, const struct qr_coded_rows *row)
{
    const struct qr_coded_shape *s = &p->shape;
    for (int64_t u = 0; u < s->n_blocks; u++) {
        const float kept = qr_coded_e4m3_kept(row, s->f, p->n_in, u);
        memcpy(panel + u * s->block_bytes + o * (int64_t)sizeof kept, &kept, sizeof kept);
    }
}

/* Where tables of a scale are computed with (amx/coded_table.h), one that is 0 or no number must not meet codes that add to its exponent. */
static void settle_codes(const struct packing *p, uint8_t *panel, int64_t o)
{
#ifdef QR_ISA_amx
    const struct qr_coded_shape *s = &p->shape;
    for (int64_t u = 0; u < s->n_blocks; u++) {
        uint8_t *block = panel + u * s->block_bytes;
        float kept;
        memcpy(&kept, block + o * (int64_t)sizeof kept, sizeof kept);
        for (int32_t in = 0; (kept == 0 || isnan(kept)) && in < s->f.group; in++)
            block[s->codes_at + turn_pairs_at(in, (int32_t)o)] = kept == 0 ? 0 : 0x08;
    }
#else
    (void)p, (void)panel, (void)o;
#endif
}

/* 16 levels, of which n are there, zeros behind them: as they are, with 4 bits their indices, with less (at avx2 with 5 and 6, too) what they are above the
 * least. */
VF_FN __m128i codes_of(const struct packing *p, const int8_t *level, int64_t n)
{
    _Alignas(16) uint8_t some[16] = {0};
    if (n < 16)
        level = memcpy(some, level, (size_t)n);
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)level);
    if (LESS_THE_LEAST(p->shape.f.bits))
        return _mm_and_si128(_mm_sub_epi8(v, _mm_set1_epi8((char)qr_coded_least(p->shape.f))), _mm_set1_epi8((char)((1 << p->shape.f.bits) - 1)));
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
#elif defined QR_ISA_avx512
/* All codes of a panel with 4 or 8 bits, 64 inputs of 16 rows at a time. False: levels do not rise by one, nothing was written. */
static bool put_whole(const struct packing *p, uint8_t *panel, const int8_t *level, int32_t n)
{
    const struct qr_coded_shape *s = &p->shape;
    const bool four = s->f.bits == 4;
    if (n != QR_PANEL || (four && !p->even) || p->n_in % 64 != 0)
        return false;
    const __m512i least = _mm512_set1_epi8(four ? p->rows->levels[0] : 0), mask = _mm512_set1_epi8(four ? 15 : -1);
    for (int64_t k = 0; k < p->n_in; k += 64) {
        uint8_t *to = panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes + qr_coded_codes_at(s, (int32_t)k);
        vf t[QR_PANEL] QR_UNINITIALIZED; /* t[i]: inputs 4 i to 4 i + 3 of all rows */
        for (int32_t o = 0; o < QR_PANEL; o++)
            t[o] = _mm512_castsi512_ps(_mm512_and_si512(_mm512_sub_epi8(_mm512_loadu_si512(level + o * p->n_in + k), least), mask));
        vf_transpose(t);
        for (int32_t i = 0; i < QR_PANEL && !four; i++)
            _mm512_storeu_si512(to + i * QR_CODED_LINE, _mm512_castps_si512(t[i]));
        for (int32_t i = 0; i < QR_PANEL && four; i += 2)
            _mm512_storeu_si512(to + i / 2 * QR_CODED_LINE,
                                _mm512_or_si512(_mm512_castps_si512(t[i]), _mm512_slli_epi16(_mm512_castps_si512(t[i + 1]), 4)));
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

/* Codes of outputs [o, o + n) of 2, 3, 5 or 6 bits: a block's codes lie in bytes until all are there, of 2 and 3 in halves of bytes. */
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
                put_four(bits < 4 ? 4 : bits, bytes, in, quad, v, false);
            }
        uint8_t *codes = panel + s->head_bytes + b * s->block_bytes + s->codes_at;
        if (bits < 4)
            fours_join(codes, bytes, bits, block / 32, n < QR_PANEL);
        else
#ifdef QR_ISA_avx2
            apart_join(codes, bytes, bits, block / 32, n < QR_PANEL);
#else
            coded_squeeze(codes, bytes, bits, block * QR_PANEL / QR_CODED_LINE, n < QR_PANEL);
#endif
    }
}

/* Of 2 and 3 bits. */
static __attribute__((noinline)) void put_fours(const struct packing *p, uint8_t *panel, const int8_t *level, int32_t o, int32_t n)
{
    if (p->shape.f.bits == 2)
        put_squeezed(p, panel, level, o, n, 2);
    else
        put_squeezed(p, panel, level, o, n, 3);
}

static void pack_rows(const struct packing *p, uint8_t *panel, const struct qr_coded_rows *own, int32_t o, int32_t n)
{
    const struct qr_coded_format f = p->shape.f;
    for (int32_t r = 0; r < n; r++) {
        const struct qr_coded_rows row = qr_coded_row(own, f, p->n_in, r);
        if (f.e4m3) {
            put_numbers_scales(p, panel, o + r, &row);
            continue;
        }
        const float factor = qr_coded_factor(&row, f, p->n_in);
        memcpy(panel + (o + r) * (int32_t)sizeof factor, &factor, sizeof factor);
        put_scales(p, panel, o + r, &row, factor);
    }
    if (f.e4m3) {
        put_levels(p, panel, own->level, o, n, QR_CODED_E4M3);
        for (int32_t r = 0; r < n; r++)
            settle_codes(p, panel, o + r);
        return;
    }
    if (f.bits == 8)
        put_levels(p, panel, own->level, o, n, 8);
    else if (f.bits == 6)
        put_squeezed(p, panel, own->level, o, n, 6);
    else if (f.bits == 5)
        put_squeezed(p, panel, own->level, o, n, 5);
    else if (f.bits < 4)
        put_fours(p, panel, own->level, o, n);
    else
        put_levels(p, panel, own->level, o, n, 4);
}

/* ---- whole panels ---- */

/* What 16 outputs' scales are multiplied by, and which are kept: one by its factor, a power of two. */
struct factors {
    float by[QR_PANEL];
    uint16_t keep[QR_PANEL]; /* 0: the factor is NaN */
};

static void put_factors(const struct packing *p, struct factors *to, uint8_t *panel, const struct qr_coded_rows *rows)
{
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const struct qr_coded_rows row = qr_coded_row(rows, p->shape.f, p->n_in, o);
        const float factor = qr_coded_factor(&row, p->shape.f, p->n_in);
        memcpy(panel + o * (int32_t)sizeof factor, &factor, sizeof factor);
        to->by[o] = isnan(factor) ? 1 : 1 / factor;
        to->keep[o] = isnan(factor) ? 0 : UINT16_MAX;
    }
}

/* x [16][n_units] as halves, from byte `at` of each block on. */
static void put_units(const struct packing *p, uint8_t *panel, int32_t at, const float *x, const struct factors *f)
{
    const struct qr_coded_shape *s = &p->shape;
    const int64_t n_units = qr_coded_n_units(s->f, p->n_in);
    const int32_t units = s->block_shift - s->unit_shift;
    for (int64_t u = 0; u < n_units; u += VF_LEN)
        for (int32_t o = 0; o < QR_PANEL; o += VF_LEN) {
            vf t[VF_LEN] QR_UNINITIALIZED;
            uint16_t keep[VF_LEN];
            memcpy(keep, f->keep + o, sizeof keep);
            for (int32_t r = 0; r < VF_LEN; r++)
                t[r] = vf_load_n(x + (o + r) * n_units + u, n_units - u < VF_LEN ? n_units - u : VF_LEN);
            vf_transpose(t);
            for (int32_t i = 0; i < VF_LEN && u + i < n_units; i++) {
                uint8_t *to = panel + s->head_bytes + ((u + i) >> units) * s->block_bytes + at + (((u + i) & ((1 << units) - 1)) * QR_PANEL + o) * 2;
#ifdef QR_ISA_avx2
                const __m128i half = _mm256_cvtps_ph(vf_mul(t[i], vf_load(f->by + o)), _MM_FROUND_TO_NEAREST_INT);
                _mm_storeu_si128((__m128i *)(void *)to, _mm_and_si128(half, _mm_loadu_si128((const __m128i *)(const void *)keep)));
#else
                const __m256i half = _mm512_cvtps_ph(vf_mul(t[i], vf_load(f->by + o)), _MM_FROUND_TO_NEAREST_INT);
                _mm256_storeu_si256((__m256i *)(void *)to, _mm256_and_si256(half, _mm256_loadu_si256((const __m256i *)(const void *)keep)));
#endif
            }
        }
}

/* step [16][n_groups], from byte `at` of each block on: 16 by 16 bytes at a time. */
static void put_steps(const struct packing *p, uint8_t *panel, int32_t at, const int8_t *step)
{
    const struct qr_coded_shape *s = &p->shape;
    const int64_t n_groups = qr_coded_n_groups(s->f, p->n_in);
    const int32_t groups = s->block_shift - s->group_shift;
    for (int64_t g = 0; g < n_groups; g += 16) {
        const int64_t n = n_groups - g < 16 ? n_groups - g : 16;
        _Alignas(64) int8_t some[16 * 16] = {0};
        uint8_t turned[16 * 16] QR_UNINITIALIZED;
        for (int32_t o = 0; o < QR_PANEL; o++)
            memcpy(some + 16 * o, step + o * n_groups + g, n == 16 ? 16 : (size_t)n);
        turn_bytes(turned, some, 16);
        for (int64_t i = 0; i < n; i++)
            memcpy(panel + s->head_bytes + ((g + i) >> groups) * s->block_bytes + at + ((g + i) & ((1 << groups) - 1)) * QR_PANEL, turned + 16 * i, QR_PANEL);
    }
}

#ifdef QR_ISA_avx512
#define BY_LINES(bits) ((bits) == 5 || (bits) == 6)
#elif defined QR_ISA_amx
#define BY_LINES(bits) ((bits) == 5 || (bits) == 6)
#else
#define BY_LINES(bits) true
#endif

/* 32 codes of a row. */
VF_FN __m256i codes_32(const struct packing *p, const int8_t *level, int32_t bits)
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)level);
    if (bits == 4 && !p->even)
        return _mm256_set_m128i(codes_of(p, level + 16, 16), codes_of(p, level, 16));
    const int32_t least = bits == 4 ? p->rows->levels[0] : LESS_THE_LEAST(bits) ? qr_coded_least(p->shape.f) : 0;
    return _mm256_and_si256(_mm256_sub_epi8(v, _mm256_set1_epi8((char)least)), _mm256_set1_epi8((char)((1 << bits) - 1)));
}

VF_FN void put_lines(const struct packing *p, uint8_t *panel, const int8_t *level, const int32_t bits)
{
    const struct qr_coded_shape *s = &p->shape;
    for (int64_t k = 0; k < p->n_in; k += PLANES_IN) {
        __m256i v[QR_PANEL] QR_UNINITIALIZED;
        for (int32_t o = 0; o < QR_PANEL; o++)
            v[o] = codes_32(p, level + o * p->n_in + k, bits);
        planes_put(bits, panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes + s->codes_at, k & ((1 << s->block_shift) - 1), v);
    }
}

/* The codes of a panel of whole blocks. */
static void put_codes(const struct packing *p, uint8_t *panel, const int8_t *level)
{
    const int32_t bits = p->shape.f.bits;
    if (BY_LINES(5) && bits == 5)
        put_lines(p, panel, level, 5);
    else if (BY_LINES(6) && bits == 6)
        put_lines(p, panel, level, 6);
    else if (BY_LINES(4) && bits == 4)
        put_lines(p, panel, level, 4);
    else if (BY_LINES(8) && bits == 8)
        put_lines(p, panel, level, 8);
    else if (BY_LINES(2) && bits == 2)
        put_lines(p, panel, level, 2);
    else if (BY_LINES(3) && bits == 3)
        put_lines(p, panel, level, 3);
    else if (bits < 4)
        put_fours(p, panel, level, 0, QR_PANEL);
    else if (put_whole(p, panel, level, QR_PANEL))
        return;
    else if (bits == 8)
        put_levels(p, panel, level, 0, QR_PANEL, 8);
    else
        put_levels(p, panel, level, 0, QR_PANEL, 4);
}

static void pack_panel(const struct packing *p, uint8_t *panel, const struct qr_coded_rows *rows)
{
    const struct qr_coded_shape *s = &p->shape;
    QR_UNINITIALIZED struct factors f;
    put_factors(p, &f, panel, rows);
    put_units(p, panel, 0, rows->scale, &f);
    if (s->f.offset)
        put_units(p, panel, s->offset_at, rows->offset, &f);
    if (rows->step)
        put_steps(p, panel, s->step_at, rows->step);
    if (rows->offset_step)
        put_steps(p, panel, s->offset_step_at, rows->offset_step);
    put_codes(p, panel, rows->level);
}

/* ---- whole panels of E4M3 codes ---- */

/* What is kept of the scales of a block, where one of its codes may be no number. */
static void put_kept(const struct packing *p, uint8_t *block, const struct qr_coded_rows *rows, int64_t u)
{
    float kept[QR_PANEL];
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const struct qr_coded_rows row = qr_coded_row(rows, p->shape.f, p->n_in, o);
        kept[o] = qr_coded_e4m3_kept(&row, p->shape.f, p->n_in, u);
    }
    memcpy(block, kept, sizeof kept);
}

static void pack_numbers(const struct packing *p, uint8_t *panel, const struct qr_coded_rows *rows)
{
    const struct qr_coded_shape *s = &p->shape;
    const uint8_t *row[QR_PANEL];
    bool odd = false;
    for (int32_t o = 0; o < QR_PANEL; o++)
        row[o] = (const uint8_t *)rows->level + o * p->n_in;
    for (int64_t u = 0; u < s->n_blocks; u++) {
        uint8_t *block = panel + u * s->block_bytes;
        const int64_t begin = u << s->block_shift, end = begin + s->f.group < p->n_in ? begin + s->f.group : p->n_in;
        float kept[QR_PANEL];
        if (numbers_block(block + s->codes_at, row, begin, end)) {
            put_kept(p, block, rows, u);
            odd = true;
            continue;
        }
        for (int32_t o = 0; o < QR_PANEL; o++) {
            kept[o] = qr_coded_e4m3_scale(row[o], 0, rows->scale[o * s->n_blocks + u]);
            odd = odd || !(fabsf(kept[o]) > 0);
        }
        memcpy(block, kept, sizeof kept);
    }
    for (int32_t o = 0; odd && o < QR_PANEL; o++)
        settle_codes(p, panel, o);
}

/* Rows [first, end) of dst, which the source fills at once. */
static void pack_filled(const struct packing *p, int64_t first, int64_t end, void *own)
{
    const struct qr_coded_format f = p->shape.f;
    const struct qr_coded_rows rows = qr_coded_rows_in(own, f, p->n_in, end - first);
    if (first < end)
        p->rows->fill(p->rows->arg, &rows, first - p->row0, end - first);
    for (int64_t row = first, n; row < end; row += n) {
        const int64_t o = row % QR_PANEL;
        uint8_t *dst = p->dst + row / QR_PANEL * p->shape.panel_bytes;
        n = end - row < QR_PANEL - o ? end - row : QR_PANEL - o;
        if (f.bits == 4)
            memcpy(dst + QR_CODED_LEVELS_AT, p->rows->levels, sizeof p->rows->levels);
        const struct qr_coded_rows some = qr_coded_row(&rows, f, p->n_in, row - first);
        if (n == QR_PANEL && f.e4m3)
            pack_numbers(p, dst, &some);
        else if (n == QR_PANEL && p->n_in % (1 << p->shape.block_shift) == 0)
            pack_panel(p, dst, &some);
        else
            pack_rows(p, dst, &some, (int32_t)o, (int32_t)n);
    }
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    const struct packing *p = arg;
    const int64_t panel = p->row0 / QR_PANEL + item * p->together, end_row = p->row0 + p->n_rows;
    const int64_t first = panel * QR_PANEL, end = first + p->together * QR_PANEL;
    pack_filled(p, first > p->row0 ? first : p->row0, end < end_row ? end : end_row, qr_queue_own(p->q, worker));
}

/* As many panels at once as the source likes, a worker's memory holds, and leave every thread a few items. */
static int64_t panels_together(const struct packing *p, int64_t n_panels)
{
    const int64_t room = (int64_t)p->q->own_bytes / qr_coded_rows_bytes(p->shape.f, p->n_in, QR_PANEL), share = n_panels / (4 * p->q->n_threads);
    int64_t n = p->rows->together < room ? p->rows->together : room;
    n = n < share || p->q->n_threads == 1 ? n : share;
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
    if (s->f.e4m3) {
        *scale = ((const float *)(const void *)block)[row];
        *offset = 0;
        return;
    }
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
    float factor = 1, by = 0, offset = 0;
    if (!s.f.e4m3)
        memcpy(&factor, panel + row * (int32_t)sizeof factor, sizeof factor);
    for (int32_t k = 0; k < n_in; k++) {
        const uint8_t *block = qr_coded_block(&s, panel, k);
        const int32_t in = k & ((1 << s.block_shift) - 1);
        if (k % s.f.group == 0)
            read_scales(&by, &offset, &s, block, in, row, factor);
        const int32_t code = code_of(block + s.codes_at, s.f, in, row), level = s.f.bits == 4 ? levels[code] : code;
        out[k] = scale * qr_bf16_to_f32(qr_f32_to_bf16(fmaf(by, s.f.e4m3 ? qr_e4m3_to_f32((uint8_t)code) : (float)level, offset)));
    }
}
