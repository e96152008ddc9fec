/* coded_pack.c - rows of coded weights into the panels of coded.h, and single rows of them read back. */
#include "kernels/cpu/isa/coded.h"

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
    int64_t n_in, row0, n_rows;
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

/* 16 levels, of which n are there, zeros behind them: as they are with 8 bits, else their indices. */
static __m128i codes_of(const struct packing *p, const int8_t *level, int64_t n)
{
    _Alignas(16) uint8_t some[16] = {0};
    if (n < 16)
        level = memcpy(some, level, (size_t)n);
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)level);
    if (p->shape.f.bits == 8)
        return v;
    if (p->even)
        return _mm_and_si128(_mm_sub_epi8(v, _mm_set1_epi8(p->rows->levels[0])), _mm_set1_epi8(15));
    _mm_store_si128((__m128i *)(void *)some, v);
    for (int j = 0; j < 16; j++)
        some[j] = p->index[some[j]];
    return _mm_load_si128((const __m128i *)(const void *)some);
}

#ifdef QR_ISA_amx
/* 16 inputs of output o, of which n are there. With 4 bits each is in a word that it shares with three other outputs, which come before or after it. */
static void put_inputs(const struct packing *p, uint8_t *codes, int64_t o, const int8_t *level, int64_t n)
{
    const __m128i codes16 = codes_of(p, level, n);
    if (p->shape.f.bits == 4) {
        const __m128i shift = _mm_cvtsi32_si128((int32_t)(o % 4) * 4);
        const __m256i own = _mm256_sll_epi16(_mm256_set1_epi16(15), shift), here = _mm256_sll_epi16(_mm256_cvtepu8_epi16(codes16), shift);
        __m256i *word = (__m256i *)(void *)(codes + o / 4 * 64);
        _mm256_storeu_si256(word, _mm256_or_si256(_mm256_andnot_si256(own, _mm256_loadu_si256(word)), here));
        return;
    }
    const __m128i v = _mm_shuffle_epi8(codes16, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    uint8_t *to = codes + (o / 8 * QR_PANEL + o % 8 * 2) * 4;
    _mm_storel_epi64((__m128i *)(void *)to, v);
    _mm_storel_epi64((__m128i *)(void *)(to + 2 * QR_PANEL * 4), _mm_unpackhi_epi64(v, v));
}

/* Where the codes of input k of a block begin for put_inputs. */
static int64_t inputs_at(int32_t bits, int64_t k)
{
    return bits == 8 ? k * QR_PANEL : k / 32 * 256 + k % 32 * 2;
}

/* Where input `in` of a block is, and the bit that its code begins at. */
static const uint8_t *code_at(const uint8_t *codes, int32_t bits, int32_t in, int32_t row, int32_t *shift)
{
    *shift = bits == 8 ? 0 : row % 2 * 4;
    if (bits == 8)
        return codes + (in / 16 * 4 + in % 16 / 8 * 2 + row / 8) * 64 + (row % 8 * 2 + in % 2) * 4 + in % 8 / 2;
    return codes + in / 32 * 256 + row / 4 * 64 + in % 32 * 2 + row % 4 / 2;
}
#else
static void put_inputs(const struct packing *p, uint8_t *codes, int64_t o, const int8_t *level, int64_t n)
{
    const __m128i v = codes_of(p, level, n);
    uint32_t *to = (uint32_t *)(void *)codes + o;
    if (p->shape.f.bits == 4) { /* the lower four bytes of each half, and above them the upper four */
        const __m128i w = _mm_or_si128(v, _mm_slli_epi16(_mm_srli_epi64(v, 32), 4));
        to[0] = (uint32_t)_mm_cvtsi128_si32(w);
        to[QR_PANEL] = (uint32_t)_mm_extract_epi32(w, 2);
        return;
    }
    to[0] = (uint32_t)_mm_cvtsi128_si32(v);
    to[QR_PANEL] = (uint32_t)_mm_extract_epi32(v, 1);
    to[2 * QR_PANEL] = (uint32_t)_mm_extract_epi32(v, 2);
    to[3 * QR_PANEL] = (uint32_t)_mm_extract_epi32(v, 3);
}

static int64_t inputs_at(int32_t bits, int64_t k)
{
    return k * QR_PANEL * bits / 8;
}

static const uint8_t *code_at(const uint8_t *codes, int32_t bits, int32_t in, int32_t row, int32_t *shift)
{
    *shift = bits == 8 ? 0 : in % 8 / 4 * 4;
    return codes + ((bits == 8 ? in / 4 : in / 8) * QR_PANEL + row) * 4 + in % 4;
}
#endif

static void put_codes(const struct packing *p, uint8_t *panel, int64_t o, const int8_t *level)
{
    const struct qr_coded_shape *s = &p->shape;
    const int64_t block = (int64_t)1 << s->block_shift;
    for (int64_t b = 0; b < s->n_blocks; b++) {
        const int64_t first = b << s->block_shift, n = p->n_in - first < block ? p->n_in - first : block;
        uint8_t *codes = panel + s->head_bytes + b * s->block_bytes + s->codes_at;
        for (int64_t k = 0; k < n; k += 16)
            put_inputs(p, codes + inputs_at(s->f.bits, k), o, level + first + k, n - k);
    }
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    const struct packing *p = arg;
    const struct qr_coded_format f = p->shape.f;
    const int64_t panel = p->row0 / QR_PANEL + item;
    int64_t first = panel * QR_PANEL, end = first + QR_PANEL;
    first = first > p->row0 ? first : p->row0;
    end = end < p->row0 + p->n_rows ? end : p->row0 + p->n_rows;
    const struct qr_coded_rows rows = qr_coded_rows_in(qr_queue_own(p->q, worker), f, p->n_in, end - first);
    p->rows->fill(p->rows->arg, &rows, first - p->row0, end - first);
    uint8_t *dst = p->dst + panel * p->shape.panel_bytes;
    if (f.bits == 4)
        memcpy(dst + QR_CODED_LEVELS_AT, p->rows->levels, sizeof p->rows->levels);
    for (int64_t i = 0; i < end - first; i++) {
        const struct qr_coded_rows row = qr_coded_row(&rows, f, p->n_in, i);
        const int64_t o = (first + i) % QR_PANEL;
        const float factor = qr_coded_factor(&row, f, p->n_in);
        memcpy(dst + o * (int64_t)sizeof factor, &factor, sizeof factor);
        put_scales(p, dst, o, &row, factor);
        put_codes(p, dst, o, row.level);
    }
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
    if (n_rows > 0)
        qr_queue_run(q, pack_item, &p, (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1);
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
        int32_t shift;
        int32_t level = (int8_t)*code_at(block + s.codes_at, s.f.bits, in, row, &shift);
        if (s.f.bits == 4)
            level = levels[level >> shift & 15];
        out[k] = scale * qr_bf16_to_f32(qr_f32_to_bf16(fmaf(by, (float)level, offset)));
    }
}
