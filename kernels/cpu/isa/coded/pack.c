/* pack.c - rows of coded weights (kernels.h, struct qr_coded_rows) into the panels of coded.h. Compiled for avx2,
 * whose panels avx512 has as well, and amx.
 *
 * A source fills 16 rows, a byte for each code, into the worker's scratch memory; they stay in L2 while the panel is
 * made of them, block by block. The codes of 32 inputs are interleaved in registers, or are words already. Where a panel begins or ends with
 * rows of another source, a block is made of zeros and what is there, and then joined with what the panel has.
 * Guarantee: the bytes are the same whatever rows share a call, and a scale is kept as qr_coded_half keeps it. Thread:
 * items run on the queue's workers, each with panels of its own. */
#include "kernels/cpu/isa/coded/coded.h"

#include "base/mem.h"
#ifdef QR_ISA_amx
#include "kernels/cpu/amx/coded_interleave.h"
#else
#include "kernels/cpu/isa/coded/interleave.h"
#endif
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/pool.h"

_Static_assert(QR_CODED_ROWS_MAX >= QR_PANEL, "a source fills a panel at once");

#define BLOCK_BYTES_MAX (2 * QR_CODED_BLOCK_MAX * QR_PANEL) /* codes of 8 bits, and less of scales and steps */
#define E4M3_SOME 0x08 /* 2^-6: a code of a group that is NaN */

struct packing {
    uint8_t *dst;
    const struct qr_coded_source *rows;
    struct qr_queue *q;
    struct qr_coded_shape shape;
    uint8_t index[256];   /* of a level, as a byte */
    int8_t least;         /* what codes are levels less of, but with 4 bits whose levels do not rise by one */
    bool even;            /* levels rise by one */
    bool words;           /* the source fills words, which panels have as they are */
    int64_t n_in, row0, n_rows, together; /* panels whose rows come at once */
};

/* Outputs [first, first + n) of a panel. */
struct strip {
    const struct packing *p;
    struct qr_coded_rows rows; /* of output `first` on */
    int32_t first, n;
    float by[QR_PANEL];        /* what scales are multiplied by; 0 where one of them has no place */
};

size_t QR_CODED_NAME(coded_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_dtype_is_coded(to));
    QR_ASSERT(n_out >= 0 && n_in >= 0);
    return qr_coded_elsewhere(to)
               ? 0
               : (size_t)((n_out + QR_PANEL - 1) / QR_PANEL) * (size_t)qr_coded_shape_of(to, n_in).panel_bytes;
}

/* Unit u of x [n][n_units] as f16, qr_coded_half's bits: factors are powers of two. */
static void put_halves(uint8_t *to, const struct strip *s, const float *x, int64_t u)
{
    const int64_t n_units = qr_coded_n_units(s->p->shape.f, s->p->n_in);
    float v[QR_PANEL] = {0};
    for (int32_t r = 0; s->n < QR_PANEL && r < s->n; r++)
        v[s->first + r] = x[r * n_units + u];
    for (int32_t i = 0; i < QR_PANEL; i += 8) {
        const float *row = x + i * n_units + u; /* of a whole strip: joined in registers, for memory waits for each of its parts */
        const __m256 unit = s->n < QR_PANEL ? _mm256_loadu_ps(v + i)
                                            : _mm256_setr_ps(row[0], row[n_units], row[2 * n_units], row[3 * n_units], row[4 * n_units],
                                                             row[5 * n_units], row[6 * n_units], row[7 * n_units]);
        const __m256 kept = _mm256_mul_ps(unit, _mm256_loadu_ps(s->by + i));
        _mm_storeu_si128((__m128i *)(void *)(to + i * 2), _mm256_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT));
    }
}

/* n bytes of each of 16 rows, column by column: with every round the eight bits that say where a byte lies, four of its row
 * and four of its column, turn by one. */
VF_FN void transpose_16(uint8_t *to, const int8_t *from, int64_t pitch, int64_t n)
{
    __m128i a[QR_PANEL], b[QR_PANEL];
    for (int32_t i = 0; i < QR_PANEL; i++)
        a[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + i * pitch));
    for (int32_t round = 0; round < 4; round++) {
        for (int32_t i = 0; i < QR_PANEL / 2; i++) {
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + QR_PANEL / 2]);
            b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + QR_PANEL / 2]);
        }
        memcpy(a, b, sizeof a);
    }
    for (int32_t i = 0; i < n; i++)
        _mm_storeu_si128((__m128i *)(void *)(to + i * QR_PANEL), a[i]);
}

/* Groups [g, end) of step [n][n_groups]. What is read behind the last of them lies in front of the levels. */
static void put_steps(uint8_t *to, const struct strip *s, const int8_t *step, int64_t g, int64_t end)
{
    const int64_t n_groups = qr_coded_n_groups(s->p->shape.f, s->p->n_in);
    if (s->n == QR_PANEL && end - g >= 8) {
        transpose_16(to, step + g, n_groups, end - g);
        return;
    }
    for (int64_t i = g; i < end; i++, to += QR_PANEL)
        for (int32_t r = 0; r < s->n; r++)
            to[s->first + r] = (uint8_t)step[r * n_groups + i];
}

static void put_e4m3_scales(uint8_t *to, const struct strip *s, int64_t u)
{
    const struct packing *p = s->p;
    for (int32_t r = 0; r < s->n; r++) {
        const struct qr_coded_rows row = qr_coded_row(&s->rows, p->shape.f, p->n_in, r);
        const float kept = qr_coded_e4m3_kept(&row, p->shape.f, p->n_in, u);
        memcpy(to + (s->first + r) * (int32_t)sizeof kept, &kept, sizeof kept);
    }
}

/* 32 levels, of which n are there, as codes. */
VF_FN __m256i codes_32(const struct packing *p, const int8_t *level, int64_t n)
{
    const struct qr_coded_format f = p->shape.f;
    int8_t some[32] QR_UNINITIALIZED;
    if (n < 32) {
        memset(some, 0, sizeof some);
        level = memcpy(some, level, (size_t)n);
    }
    for (int32_t i = 0; f.bits == 4 && !p->even && i < 32; i++)
        some[i] = (int8_t)p->index[(uint8_t)level[i]];
    if (f.bits == 4 && !p->even)
        return _mm256_loadu_si256((const __m256i *)(const void *)some);
    const __m256i v =
        _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(const void *)level), _mm256_set1_epi8(p->least));
    return _mm256_and_si256(v, _mm256_set1_epi8((char)((1 << f.bits) - 1)));
}

/* Of 32 inputs, of which n are there, and of INTERLEAVED outputs from `first` on. Those of an E4M3 group whose scale is 0
 * or none are 0 or E4M3_SOME: nothing depends on them, and where tables of a scale are computed with (amx/coded_table.h),
 * they must not add to its exponent. */
VF_FN void some_codes(__m256i v[INTERLEAVED], const struct strip *s, int64_t k, int64_t n, int32_t first,
                      const float *e4m3_scale)
{
    const struct packing *p = s->p;
    for (int32_t i = 0; i < INTERLEAVED; i++) {
        const int32_t o = first + i, r = o - s->first;
        v[i] = r >= 0 && r < s->n ? codes_32(p, s->rows.level + r * p->n_in + k, n) : _mm256_setzero_si256();
        if (p->shape.f.e4m3 && !(fabsf(e4m3_scale[o]) > 0))
            v[i] = _mm256_set1_epi8(e4m3_scale[o] == 0 ? 0 : E4M3_SOME);
    }
}

/* Codes of inputs [k, end), the first of a block. Two times 32 are taken of some rows before the next rows: L1 has room
 * for few lines of rows that lie powers of two apart. */
static void put_codes(uint8_t *to, const struct strip *s, int64_t k, int64_t end, const float *e4m3_scale)
{
    const struct packing *p = s->p;
    const struct qr_coded_format f = p->shape.f;
    const bool plain = s->n == QR_PANEL && !f.e4m3 && (f.bits != 4 || p->even);
    const __m256i least = _mm256_set1_epi8(p->least), mask = _mm256_set1_epi8((char)((1 << f.bits) - 1));
    for (int64_t at = k; at < end; at += 64)
        for (int32_t o = 0; o < QR_PANEL; o += INTERLEAVED)
            for (int64_t in = at; in < at + 64 && in < end; in += 32) {
                __m256i v[INTERLEAVED] QR_UNINITIALIZED;
                const int8_t *level = s->rows.level + o * p->n_in + in;
                for (int32_t i = 0; plain && end - in >= 32 && i < INTERLEAVED; i++, level += p->n_in)
                    v[i] = _mm256_and_si256(
                        _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(const void *)level), least), mask);
                if (!plain || end - in < 32)
                    some_codes(v, s, in, end - in, o, e4m3_scale);
                interleave_32(to + (in - k) * 2 * f.bits, f, v, o);
            }
}

/* The same of words. */
static void put_words(uint8_t *to, const struct strip *s, int64_t k, int64_t end)
{
    const uint32_t *from = s->rows.words + k / 8 * s->rows.words_pitch;
    for (int64_t i = k; i < end; i += 8, to += QR_CODED_LINE, from += s->rows.words_pitch)
        if (s->n == QR_PANEL)
            memcpy(to, from, QR_CODED_LINE);
        else
            memcpy(to + s->first * (int32_t)sizeof *from, from, (size_t)s->n * sizeof *from);
}

/* What the strip has of block b. */
static void put_block(uint8_t *to, const struct strip *s, int64_t b)
{
    const struct qr_coded_shape *h = &s->p->shape;
    const int64_t k = b << h->block_shift, left = s->p->n_in - k,
                  end = left < 1 << h->block_shift ? s->p->n_in : k + (1 << h->block_shift);
    const int64_t group = k >> h->group_shift, end_group = (end + (1 << h->group_shift) - 1) >> h->group_shift;
    uint8_t *at = to;
    for (int64_t u = k >> h->unit_shift; u << h->unit_shift < end && !h->f.e4m3; u++, at += 2 * QR_PANEL) {
        put_halves(at, s, s->rows.scale, u);
        if (h->f.offset)
            put_halves(at + h->offset_at, s, s->rows.offset, u);
    }
    if (h->f.e4m3)
        put_e4m3_scales(to, s, b);
    if (s->rows.step)
        put_steps(to + h->step_at, s, s->rows.step, group, end_group);
    if (s->rows.offset_step)
        put_steps(to + h->offset_step_at, s, s->rows.offset_step, group, end_group);
    if (s->rows.words)
        put_words(to + h->codes_at, s, k, end);
    else
        put_codes(to + h->codes_at, s, k, end, (const float *)(const void *)to);
}

/* Outputs [first, first + n) of a panel. */
static void pack_panel(const struct packing *p, uint8_t *panel, const struct qr_coded_rows *rows, int32_t first,
                       int32_t n)
{
    const struct qr_coded_shape *h = &p->shape;
    struct strip s = {.p = p, .rows = *rows, .first = first, .n = n};
    for (int32_t r = 0; r < n && !h->f.e4m3; r++) {
        const struct qr_coded_rows row = qr_coded_row(rows, h->f, p->n_in, r);
        const float factor = qr_coded_factor(&row, h->f, p->n_in);
        memcpy(panel + (first + r) * (int32_t)sizeof factor, &factor, sizeof factor);
        s.by[first + r] = isnan(factor) ? 0 : 1 / factor;
    }
    if (h->f.bits == 4)
        memcpy(panel + QR_CODED_LEVELS_AT, p->rows->levels, sizeof p->rows->levels);
    panel += h->head_bytes;
    for (int64_t b = 0; b < h->n_blocks; b++, panel += h->block_bytes) {
        _Alignas(64) uint8_t part[BLOCK_BYTES_MAX] QR_UNINITIALIZED;
        if (n == QR_PANEL) {
            put_block(panel, &s, b);
            continue;
        }
        memset(part, 0, (size_t)h->block_bytes);
        put_block(part, &s, b);
        for (int32_t i = 0; i < h->block_bytes; i++)
            panel[i] |= part[i];
    }
}

/* Rows [first, end) of dst, which the source fills at once. */
static void pack_filled(const struct packing *p, int64_t first, int64_t end, void *own)
{
    const struct qr_coded_format f = p->shape.f;
    struct qr_coded_rows rows = qr_coded_rows_in(own, f, p->n_in, end - first);
    if (p->words) { /* half as long as levels, in whose place they lie */
        rows.words = (uint32_t *)(void *)(((uintptr_t)rows.level + 3) / 4 * 4);
        rows.words_pitch = end - first;
    }
    if (first < end)
        p->rows->fill(p->rows->arg, &rows, first - p->row0, end - first);
    for (int64_t row = first, n; row < end; row += n) {
        const int64_t o = row % QR_PANEL;
        uint8_t *dst = p->dst + row / QR_PANEL * p->shape.panel_bytes;
        n = end - row < QR_PANEL - o ? end - row : QR_PANEL - o;
        const struct qr_coded_rows some = qr_coded_row(&rows, f, p->n_in, row - first);
        pack_panel(p, dst, &some, (int32_t)o, (int32_t)n);
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
    const int64_t room = (int64_t)p->q->own_bytes / qr_coded_rows_bytes(p->shape.f, p->n_in, QR_PANEL),
                  share = n_panels / (4 * p->q->n_threads);
    int64_t n = p->rows->together < room ? p->rows->together : room;
    n = n < share || p->q->n_threads == 1 ? n : share;
    return n > 1 ? n : 1;
}

void QR_CODED_NAME(linear_pack_coded)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in,
                                      int64_t row0, const struct qr_coded_source *rows, int64_t n_rows)
{
    QR_ASSERT(dst != NULL && rows != NULL && rows->fill != NULL);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    QR_ASSERT(qr_dtype_is_coded(to) && !qr_coded_elsewhere(to) && n_in > 0 && n_in <= qr_linear_inputs_max(to));
    struct packing p = {.dst = dst,
                        .rows = rows,
                        .q = q,
                        .shape = qr_coded_shape_of(to, n_in),
                        .least = (int8_t)INTERLEAVE_LEAST(qr_dtype_coded(to)),
                        .even = true,
                        .n_in = n_in,
                        .row0 = row0,
                        .n_rows = n_rows};
    QR_ASSERT(qr_coded_rows_bytes(p.shape.f, n_in, QR_PANEL) <= (int64_t)q->own_bytes);
    for (int32_t i = 0; i < QR_COUNT(rows->levels); i++) {
        p.index[(uint8_t)rows->levels[i]] = (uint8_t)i;
        p.even = p.even && rows->levels[i] == rows->levels[0] + i;
    }
    if (p.shape.f.bits == 4)
        p.least = rows->levels[0];
#ifndef QR_ISA_amx
    p.words = rows->words && p.shape.f.bits == 4 && n_in % 32 == 0 && row0 % 8 == 0 && n_rows % 8 == 0;
#endif
    const int64_t n_panels = n_rows > 0 ? (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1 : 0;
    p.together = panels_together(&p, n_panels);
    qr_queue_run(q, pack_item, &p, (n_panels + p.together - 1) / p.together);
}
