/* pack.c - rows of coded weights into the panels of coded.h, and single rows of them read back. */
#include "kernels/cpu/isa/coded/coded.h"

#include "base/mem.h"
#include "kernels/cpu/isa/coded/numbers.h"
#include "kernels/cpu/isa/coded/planes.h"
#include "kernels/cpu/isa/coded/squeeze.h"
#include "kernels/cpu/isa/coded/turn.h"
#include "kernels/cpu/isa/coded/words.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/coded/pack_words.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

_Static_assert(QR_CODED_ROWS_MAX >= QR_PANEL, "a source fills a panel at once");

#define ACROSS_PANELS 8 /* that share a line of words of eight outputs */
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
    bool by_words;        /* whole panels are packed from the source's words */
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

static void pack_rows(const struct packing *p, uint8_t *panel, const struct qr_coded_rows *rows, int64_t i, int32_t o, int32_t n)
{
    const struct qr_coded_format f = p->shape.f;
    const struct qr_coded_rows own = qr_coded_row(rows, f, p->n_in, i);
    for (int32_t r = 0; r < n; r++) {
        const struct qr_coded_rows row = qr_coded_row(&own, f, p->n_in, r);
        if (f.e4m3) {
            put_numbers_scales(p, panel, o + r, &row);
            continue;
        }
        const float factor = qr_coded_factor(&row, f, p->n_in);
        memcpy(panel + (o + r) * (int32_t)sizeof factor, &factor, sizeof factor);
        put_scales(p, panel, o + r, &row, factor);
    }
    if (f.e4m3) {
        put_levels(p, panel, own.level, o, n, QR_CODED_E4M3);
        for (int32_t r = 0; r < n; r++)
            settle_codes(p, panel, o + r);
        return;
    }
    if (f.bits == 8)
        put_levels(p, panel, own.level, o, n, 8);
    else if (f.bits == 6)
        put_squeezed(p, panel, own.level, o, n, 6);
    else if (f.bits == 5)
        put_squeezed(p, panel, own.level, o, n, 5);
    else if (f.bits < 4)
        put_fours(p, panel, own.level, o, n);
    else if (!put_whole(p, panel, own.level, n))
        put_levels(p, panel, own.level, o, n, 4);
}

#include "kernels/cpu/isa/coded/blocks.h"

/* ---- whole panels of E4M3 codes, as rows of a file ---- */

/* Whether one of n codes, a multiple of 32, is no number. */
static bool has_none(const uint8_t *code, int64_t n)
{
    const __m256i sign = _mm256_set1_epi8((char)0x80), ones = _mm256_set1_epi8(-1);
    __m256i any = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += 32)
        any = _mm256_or_si256(any, _mm256_cmpeq_epi8(_mm256_or_si256(_mm256_loadu_si256((const __m256i *)(const void *)(code + i)), sign), ones));
    return !_mm256_testz_si256(any, any);
}

/* What is kept of the scales of a block's n inputs, whose codes are at `code` of each row. */
static void put_kept(uint8_t *block, const uint8_t *const row[QR_PANEL], int64_t k, int64_t n, const float *scale, int64_t n_units)
{
    float kept[QR_PANEL];
    for (int32_t o = 0; o < QR_PANEL; o++) {
        const uint8_t *code = row[o] + k;
        const bool none = has_none(code, n / 32 * 32);
        kept[o] = qr_coded_e4m3_scale(code + n / 32 * 32, n % 32, none ? __builtin_nanf("") : scale[o * n_units]);
    }
    memcpy(block, kept, sizeof kept);
}

/* Rows `first` on of the source. own: room for their scales. */
static void pack_numbers(const struct packing *p, uint8_t *panel, int64_t first, float *own)
{
    const struct qr_coded_shape *s = &p->shape;
    const uint8_t *row[QR_PANEL];
    bool odd = false;
    for (int32_t o = 0; o < QR_PANEL; o++)
        row[o] = p->rows->row(p->rows->arg, first + o);
    p->rows->scales(p->rows->arg, own, first, QR_PANEL);
    for (int64_t u = 0; u < s->n_blocks; u++) {
        uint8_t *block = panel + u * s->block_bytes;
        const int64_t begin = u << s->block_shift, end = begin + s->f.group < p->n_in ? begin + s->f.group : p->n_in;
        float kept[QR_PANEL];
        if (numbers_block(block + s->codes_at, row, begin, end)) {
            put_kept(block, row, begin, end - begin, own + u, s->n_blocks);
            odd = true;
            continue;
        }
        for (int32_t o = 0; o < QR_PANEL; o++) {
            kept[o] = qr_coded_e4m3_scale(row[o], 0, own[o * s->n_blocks + u]);
            odd = odd || !(fabsf(kept[o]) > 0);
        }
        memcpy(block, kept, sizeof kept);
    }
    for (int32_t o = 0; odd && o < QR_PANEL; o++)
        settle_codes(p, panel, o);
}

/* ---- whole panels from words of a file ---- */

#define WORDS_MOST 64 /* panels at once */

struct words {
    const struct packing *p;
    const float *scale; /* [groups][rows] */
    const int8_t *zero; /* likewise, or NULL */
    int64_t rows, first;
    struct factors factors[WORDS_MOST];
};

#ifndef QR_ISA_avx2
/* Everything of panel i but its codes. */
static void put_words_scales(struct words *w, uint8_t *panel, int64_t i)
{
    const struct qr_coded_shape *s = &w->p->shape;
    struct factors *f = &w->factors[i];
    __m512i most = _mm512_setzero_si512();
    const int64_t n_groups = w->p->n_in >> s->group_shift;
    const int32_t groups = s->block_shift - s->group_shift;
    uint32_t bits[QR_PANEL];
    for (int64_t g = 0; g < n_groups; g++)
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_loadu_si512(w->scale + g * w->rows + i * QR_PANEL), _mm512_set1_epi32(INT32_MAX)));
    _mm512_storeu_si512(bits, most);
    for (int32_t o = 0; o < QR_PANEL; o++)
        set_factor(f, panel, o, bits[o]);
    memcpy(panel + QR_CODED_LEVELS_AT, w->p->rows->levels, sizeof w->p->rows->levels);
    const __m512 by = _mm512_loadu_ps(f->by);
    const __m256i keep = _mm256_loadu_si256((const __m256i *)(const void *)f->keep);
    for (int64_t g = 0; g < n_groups; g++) {
        const int64_t from = g * w->rows + i * QR_PANEL, in = g & ((1 << groups) - 1);
        uint8_t *block = panel + s->head_bytes + (g >> groups) * s->block_bytes;
        const __m256i half = _mm512_cvtps_ph(_mm512_mul_ps(_mm512_loadu_ps(w->scale + from), by), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)(void *)(block + in * 2 * QR_PANEL), _mm256_and_si256(half, keep));
        if (w->zero)
            memcpy(block + s->offset_step_at + in * QR_PANEL, w->zero + from, QR_PANEL);
    }
}
#else
/* Of panel i; of all panels before any scale is put: a vector that is read of what has just been written number by number waits for it. */
static void put_words_factors(struct words *w, uint8_t *panel, int64_t i)
{
    struct factors *f = &w->factors[i];
    const int64_t n_groups = w->p->n_in >> w->p->shape.group_shift;
    for (int32_t o = 0; o < QR_PANEL; o += VF_LEN) {
        __m256i most = _mm256_setzero_si256();
        uint32_t bits[VF_LEN];
        for (int64_t g = 0; g < n_groups; g++)
            most = _mm256_max_epu32(most, _mm256_castps_si256(vf_abs(vf_load(w->scale + g * w->rows + i * QR_PANEL + o))));
        _mm256_storeu_si256((__m256i *)(void *)bits, most);
        for (int32_t k = 0; k < VF_LEN; k++)
            set_factor(f, panel, o + k, bits[k]);
    }
    memcpy(panel + QR_CODED_LEVELS_AT, w->p->rows->levels, sizeof w->p->rows->levels);
}

/* Everything else of panel i but its codes. */
static void put_words_scales(const struct words *w, uint8_t *panel, int64_t i)
{
    const struct qr_coded_shape *s = &w->p->shape;
    const struct factors *f = &w->factors[i];
    const int64_t n_groups = w->p->n_in >> s->group_shift;
    const int32_t groups = s->block_shift - s->group_shift;
    for (int64_t g = 0; g < n_groups; g++) {
        const int64_t from = g * w->rows + i * QR_PANEL, in = g & ((1 << groups) - 1);
        uint8_t *block = panel + s->head_bytes + (g >> groups) * s->block_bytes;
        for (int32_t o = 0; o < QR_PANEL; o += VF_LEN) {
            const __m128i half = _mm256_cvtps_ph(vf_mul(vf_load(w->scale + from + o), vf_load(f->by + o)), _MM_FROUND_TO_NEAREST_INT);
            const __m128i keep = _mm_loadu_si128((const __m128i *)(const void *)(f->keep + o));
            _mm_storeu_si128((__m128i *)(void *)(block + (in * QR_PANEL + o) * 2), _mm_and_si128(half, keep));
        }
        if (w->zero)
            memcpy(block + s->offset_step_at + in * QR_PANEL, w->zero + from, QR_PANEL);
    }
}
#endif

/* Inputs [k, k + WORDS_INPUTS) of n panels from the one at `panel` on. */
static void put_words(const struct words *w, uint8_t *panel, int64_t n, int64_t k)
{
    const struct qr_coded_shape *s = &w->p->shape;
    const struct qr_coded_words *l = &w->p->rows->words;
    uint8_t *to = panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes + s->codes_at + (k & ((1 << s->block_shift) - 1)) * QR_PANEL / 2;
    for (int64_t i = 0; i < n && !l->across; i++)
        words_along(to + i * s->panel_bytes, l->codes + k / 8 * l->pitch + (w->first + i * QR_PANEL) * 4, l->pitch, true);
    const uint8_t *across = l->codes + k * l->pitch + w->first / 2;
    for (int64_t i = 0; i < n && l->across; i += ACROSS_PANELS)
        words_across(to + i * s->panel_bytes, s->panel_bytes, (int32_t)(n - i < ACROSS_PANELS ? n - i : ACROSS_PANELS), across + i * QR_PANEL / 2, l->pitch,
                     true);
}

/* Everything but codes of n panels of rows `first` on of the source. */
VF_FN void begin_words(struct words *w, const struct packing *p, uint8_t *panel, int64_t first, int64_t n, void *own)
{
    const int64_t n_groups = p->n_in >> p->shape.group_shift, rows = n * QR_PANEL;
    float *scale = own;
    int8_t *zero = p->shape.f.zero ? (int8_t *)(scale + n_groups * rows) : NULL;
    QR_ASSERT(n <= WORDS_MOST && (!p->rows->words.across || first % 8 == 0));
    w->p = p, w->scale = scale, w->zero = zero, w->rows = rows, w->first = first;
    for (int64_t g = 0; g < n_groups; g++)
        p->rows->words.scales(p->rows->arg, scale + g * rows, zero ? zero + g * rows : NULL, first, rows, g);
#ifdef QR_ISA_avx2
    for (int64_t i = 0; i < n; i++)
        put_words_factors(w, panel + i * p->shape.panel_bytes, i);
#endif
    for (int64_t i = 0; i < n; i++)
        put_words_scales(w, panel + i * p->shape.panel_bytes, i);
}

/* n panels of rows `first` on of the source, in the order in which the file has them. */
static void pack_words(const struct packing *p, uint8_t *panel, int64_t first, int64_t n, void *own)
{
    QR_UNINITIALIZED struct words w;
    begin_words(&w, p, panel, first, n, own);
    for (int64_t k = 0; k < p->n_in; k += WORDS_INPUTS)
        put_words(&w, panel, n, k);
}

/* As many panels at once as the source likes and a worker's memory holds; 0: it has no words, or other codes. */
static int64_t words_together(const struct packing *p)
{
    const struct qr_coded_words *l = &p->rows->words;
    if (!l->codes || p->shape.f.bits != 4 || p->n_in % 64 != 0 || p->n_in % p->shape.f.group != 0 || (l->across && p->row0 % 8 != 0))
        return 0;
    const int64_t room = (int64_t)p->q->own_bytes / ((p->n_in >> p->shape.group_shift) * QR_PANEL * (int64_t)(sizeof(float) + 1));
    const int64_t n = l->together < WORDS_MOST ? l->together : WORDS_MOST;
    return n < room ? n : room;
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
        pack_rows(p, dst, &rows, row - first, (int32_t)o, (int32_t)n);
    }
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    const struct packing *p = arg;
    const int64_t panel = p->row0 / QR_PANEL + item * p->together, end_row = p->row0 + p->n_rows;
    void *own = qr_queue_own(p->q, worker);
    int64_t first = panel * QR_PANEL, end = first + p->together * QR_PANEL;
    first = first > p->row0 ? first : p->row0;
    end = end < end_row ? end : end_row;
    const int64_t whole = (first + QR_PANEL - 1) / QR_PANEL, n_whole = end / QR_PANEL - whole;
    uint8_t *dst = p->dst + whole * p->shape.panel_bytes;
    if (p->rows->blocks && end - first == QR_PANEL) {
        if (p->shape.f.bits == 4)
            memcpy(dst + QR_CODED_LEVELS_AT, p->rows->levels, sizeof p->rows->levels);
        pack_blocks(p, dst, first - p->row0, own);
    } else if (p->rows->scales && end - first == QR_PANEL) {
        pack_numbers(p, dst, first - p->row0, own);
    } else if (p->by_words && n_whole > 0) {
        pack_filled(p, first, whole * QR_PANEL, own);
        pack_words(p, dst, whole * QR_PANEL - p->row0, n_whole, own);
        pack_filled(p, (whole + n_whole) * QR_PANEL, end, own);
    } else {
        pack_filled(p, first, end, own);
    }
}

/* As many panels at once as the source likes, a worker's memory holds, and leave every thread a few items. */
static int64_t panels_together(const struct packing *p, int64_t n_panels)
{
    const int64_t room = (int64_t)p->q->own_bytes / qr_coded_rows_bytes(p->shape.f, p->n_in, QR_PANEL);
    int64_t share = n_panels / (4 * p->q->n_threads), n = p->rows->row ? 1 : p->rows->together;
    n = n < room ? n : room;
    n = p->by_words ? words_together(p) : n;
    if (p->by_words && p->rows->words.across) /* a register of words is turned as long where half of it is missing */
        share = share < ACROSS_PANELS ? ACROSS_PANELS : share / ACROSS_PANELS * ACROSS_PANELS;
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
    QR_ASSERT(!rows->scales || (rows->row && p.shape.f.e4m3));
    QR_ASSERT(!rows->blocks || (rows->row && n_in % rows->blocks->n_in == 0 && rows->blocks->n_in == qr_coded_unit(p.shape.f)));
    for (int32_t i = 0; i < QR_COUNT(rows->levels); i++) {
        p.index[(uint8_t)rows->levels[i]] = (uint8_t)i;
        p.even = p.even && rows->levels[i] == rows->levels[0] + i;
    }
    p.by_words = words_together(&p) > 0;
    const int64_t n_panels = n_rows > 0 ? (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1 : 0;
    p.together = panels_together(&p, n_panels);
    qr_queue_run(q, pack_item, &p, (n_panels + p.together - 1) / p.together);
}

#define WORDS_ASKED 1024  /* bytes of a row ahead */
#define ASKED_INPUTS 128  /* whose words are asked for at once */

/* Everything but codes. */
static void begin_item(const void *arg, int32_t item, int32_t worker)
{
    const struct packing *p = arg;
    const int64_t first = item * p->together, left = p->n_rows / QR_PANEL - first;
    QR_UNINITIALIZED struct words w;
    begin_words(&w, p, p->dst + (p->row0 / QR_PANEL + first) * p->shape.panel_bytes, first * QR_PANEL, left < p->together ? left : p->together,
                qr_queue_own(p->q, worker));
}

/* Before inputs k on of panels i on are packed from where a file is mapped: words that come in a while. Along, those of the same row, behind its end of the
 * row that is next; across, those of the same inputs for the next panels, which lie too far apart for the processor to see where it goes on. */
VF_FN void ask_words(const struct qr_coded_words *l, int64_t k, int64_t i, int64_t n_panels)
{
    const int64_t at = i * QR_PANEL * 4 + WORDS_ASKED, row_bytes = n_panels * QR_PANEL * 4;
    const uint8_t *along = l->codes + k / 8 * l->pitch + at + (at < row_bytes ? 0 : WORDS_INPUTS / 8 * l->pitch - row_bytes);
    const uint8_t *across = l->codes + k * l->pitch + (i + 2 * ACROSS_PANELS) * QR_PANEL / 2 - 1;
    for (int32_t r = 0; !l->across && r < WORDS_INPUTS / 8; r++)
        _mm_prefetch((const char *)((uintptr_t)along + (uintptr_t)(r * l->pitch)), _MM_HINT_T0);
    for (int32_t r = 0; l->across && r < WORDS_INPUTS; r++)
        _mm_prefetch((const char *)((uintptr_t)across + (uintptr_t)(r * l->pitch)), _MM_HINT_T1);
}

/* Codes of inputs [begin, end), whose words are in a cache, or asked for: along, row by row of words; across, as few panels at a time as words allow, each
 * one's stretch at once (the other way round cost a tenth of the time along, a fourth more across). */
static void put_stretch(const struct packing *p, int64_t begin, int64_t end)
{
    const struct qr_coded_shape *s = &p->shape;
    const struct qr_coded_words *l = &p->rows->words;
    const int64_t n = p->n_rows / QR_PANEL, step = l->across ? ACROSS_PANELS : 1;
    const int64_t at_once = !l->across ? WORDS_INPUTS : p->rows->asks ? ASKED_INPUTS : end - begin;
    for (int64_t j = begin; j < end; j += at_once)
        for (int64_t i = 0; i < n; i += step)
            for (int64_t k = j; k < j + at_once && k < end; k += WORDS_INPUTS) {
                uint8_t *panel = p->dst + (p->row0 / QR_PANEL + i) * s->panel_bytes;
                uint8_t *to = panel + s->head_bytes + (k >> s->block_shift) * s->block_bytes + qr_coded_codes_at(s, (int32_t)k);
                const int64_t some = n - i < step ? n - i : step;
                if (p->rows->asks)
                    ask_words(l, k, i, n);
                if (l->across)
                    words_across(to, s->panel_bytes, (int32_t)some, l->codes + k * l->pitch + i * QR_PANEL / 2, l->pitch, false);
                else
                    words_along(to, l->codes + k / 8 * l->pitch + i * QR_PANEL * 4, l->pitch, false);
            }
    _mm_sfence(); /* behind lines that were streamed */
}

void QR_ISA_NAME(pack_words)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_source *rows,
                             int64_t n_rows, int64_t first, int64_t n)
{
    QR_ASSERT(dst != NULL && rows != NULL && qr_dtype_is_coded(to));
    QR_ASSERT((uintptr_t)dst % 64 == 0); /* whole lines are streamed */
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out && row0 % QR_PANEL == 0 && n_rows % QR_PANEL == 0);
    QR_ASSERT(first >= 0 && n >= 0 && first + n <= n_in && first % WORDS_INPUTS == 0 && n % WORDS_INPUTS == 0);
    struct packing p = {.dst = dst, .rows = rows, .q = q, .shape = qr_coded_shape_of(to, n_in), .n_in = n_in, .row0 = row0, .n_rows = n_rows};
    p.together = words_together(&p);
    QR_ASSERT(p.together > 0);
    if (n > 0)
        put_stretch(&p, first, first + n);
    else
        qr_queue_run(q, begin_item, &p, (int32_t)((n_rows / QR_PANEL + p.together - 1) / p.together));
}

#define SORTED_PANELS 4 /* at a time */

struct sorting {
    uint8_t *dst; /* of the first panel */
    struct qr_queue *q;
    struct qr_coded_shape shape;
    const int32_t *inputs;
    int64_t n_in, n_panels;
};

/* Up to four panels: first all inputs are turned to where they stay in a cache, then those of each line are picked there. A panel that is missing is the one
 * before it once more. */
static void sorted_item(const void *arg, int32_t item, int32_t worker)
{
    const struct sorting *p = arg;
    const struct qr_coded_shape *s = &p->shape;
    const int64_t first = (int64_t)item * SORTED_PANELS, last = p->n_panels - first - 1, block_inputs = (int64_t)1 << s->block_shift;
    uint8_t *turned = qr_queue_own(p->q, worker), *panel[SORTED_PANELS];
    for (int64_t i = 0; i < SORTED_PANELS; i++)
        panel[i] = p->dst + (first + (i < last ? i : last)) * s->panel_bytes + s->head_bytes + s->codes_at;
    for (int64_t k = 0, block = 0; k < p->n_in; k += block_inputs, block += s->block_bytes)
        for (int64_t in = 0; in < block_inputs; in += WORDS_TURNED_INPUTS) {
            const int64_t at = block + in * QR_PANEL / 2;
            const uint8_t *from[] = {panel[0] + at, panel[1] + at, panel[2] + at, panel[3] + at};
            words_turn(turned + (k + in) * WORDS_TURNED, from);
        }
    for (int64_t k = 0, block = 0; k < p->n_in; k += block_inputs, block += s->block_bytes)
        for (int64_t in = 0; in < block_inputs; in += WORDS_TURNED_INPUTS) {
            const int64_t at = block + in * QR_PANEL / 2;
            uint8_t *to[] = {panel[0] + at, panel[1] + at, panel[2] + at, panel[3] + at};
            words_gather(to, turned, p->inputs + k + in);
        }
}

void QR_ISA_NAME(pack_sorted)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const int32_t *inputs,
                              int64_t n_rows)
{
    QR_ASSERT(dst != NULL && inputs != NULL);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out && row0 % QR_PANEL == 0 && n_rows % QR_PANEL == 0);
    struct sorting p = {.q = q, .shape = qr_coded_shape_of(to, n_in), .inputs = inputs, .n_in = n_in, .n_panels = n_rows / QR_PANEL};
    QR_ASSERT(p.shape.f.bits == 4 && n_in % (1 << p.shape.block_shift) == 0 && n_in * WORDS_TURNED <= (int64_t)q->own_bytes);
    p.dst = (uint8_t *)dst + row0 / QR_PANEL * p.shape.panel_bytes;
    qr_queue_run(q, sorted_item, &p, (p.n_panels + SORTED_PANELS - 1) / SORTED_PANELS);
}

#define STRIP_AHEAD 8 /* rows of words that are asked for; more of them share too few places of the first cache */

struct taking {
    struct sorting by;
    const struct qr_coded_words *words;
};

/* Up to eight panels: all inputs' words are taken to where they stay in a cache, then those of each line are picked there. */
static void taken_item(const void *arg, int32_t item, int32_t worker)
{
    const struct taking *t = arg;
    const struct qr_coded_shape *s = &t->by.shape;
    const int64_t first = (int64_t)item * WORDS_STRIP, left = t->by.n_panels - first, pitch = t->words->pitch, n_in = t->by.n_in;
    const int64_t block_inputs = (int64_t)1 << s->block_shift;
    const int32_t n = left < WORDS_STRIP ? (int32_t)left : WORDS_STRIP;
    uint8_t *taken = qr_queue_own(t->by.q, worker), *codes = t->by.dst + first * s->panel_bytes + s->head_bytes + s->codes_at;
    const uint8_t *from = t->words->codes + first * QR_PANEL * 4;
    for (int64_t k = 0; k < n_in; k += 8, from += pitch) {
        const char *ahead = (const char *)((uintptr_t)from + (uintptr_t)(STRIP_AHEAD * pitch));
        for (int32_t i = 0; i <= n; i++) /* a row's part may begin anywhere in a line */
            _mm_prefetch(ahead + i * 64, _MM_HINT_T0);
        words_take(taken, n_in, k, from, n);
    }
    for (int64_t k = 0, block = 0; k < n_in; k += block_inputs, block += s->block_bytes)
        for (int64_t in = 0; in < block_inputs; in += WORDS_INPUTS)
            words_give(codes + block + in * QR_PANEL / 2, s->panel_bytes, n, taken, n_in, t->by.inputs + k + in, true);
    _mm_sfence(); /* behind lines that were streamed */
}

void QR_ISA_NAME(pack_taken)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_words *words,
                             const int32_t *inputs, int64_t n_rows)
{
    QR_ASSERT(dst != NULL && words != NULL && inputs != NULL);
    QR_ASSERT((uintptr_t)dst % 64 == 0 && words->codes != NULL && !words->across);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out && row0 % QR_PANEL == 0 && n_rows % QR_PANEL == 0);
    struct taking t = {.by = {.q = q, .shape = qr_coded_shape_of(to, n_in), .inputs = inputs, .n_in = n_in, .n_panels = n_rows / QR_PANEL}, .words = words};
    QR_ASSERT(t.by.shape.f.bits == 4 && n_in % (1 << t.by.shape.block_shift) == 0 && n_in <= QR_PACK_TAKEN_INPUTS);
    _Static_assert(QR_PACK_TAKEN_INPUTS * 64 <= QR_WORKER_SCRATCH_BYTES, "all inputs fit");
    t.by.dst = (uint8_t *)dst + row0 / QR_PANEL * t.by.shape.panel_bytes;
    qr_queue_run(q, taken_item, &t, (int32_t)((t.by.n_panels + WORDS_STRIP - 1) / WORDS_STRIP));
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
