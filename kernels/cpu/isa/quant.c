/* quant.c - out = x w^T with quantized weights (kernels.h: linear, int8 and int4; quant.h: the layout).
 *
 * Rows of x are rounded to 8 bits, each with its scale. Products and sums are integers and exact, so blocks of any shape and any
 * instruction give the same sums, which become floats in one place (finish). An item of work is some panels against all rows of a
 * chunk. int4 panels become 8-bit ones in the worker's scratch, once per item, unless the level multiplies few rows directly. */
#include "kernels/cpu/isa/quant.h"

#include "base/assert.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define ITEM_BYTES ((int64_t)256 << 10) /* weights of one item */
#define CHUNK_BYTES ((int64_t)1536 << 10) /* x of a chunk: most of a second-level cache */
#define ROUND_ALONE 32768               /* elements of x that one thread rounds sooner than two would begin */
#define WORK_ALONE 131072               /* products, likewise */
#define ROUND_ROWS 4                    /* rows of an item of rounding */
#define C_STRIDE (QR_QUANT_PANELS * QR_PANEL)
_Static_assert((size_t)QR_QUANT_INPUTS_MAX * QR_PANEL <= QR_WORKER_SCRATCH_BYTES, "an unpacked panel fits scratch");

/* One chunk of rows. */
struct product {
    const struct qr_linear_args *a;
    const struct qr_quant_ways *ways;
    const struct qr_quant_block *block;
    struct qr_queue *q;
    int8_t *x;               /* [n_rows][x_stride], and rows of anything that a block may read */
    float *scale;            /* [n_rows] */
    int32_t *sum;            /* [n_rows] of x */
    int32_t *group;          /* [n_rows][n_groups]: -8 * the sum of each group, only for `direct` */
    int64_t x_stride, panel_bytes, head_bytes;
    int32_t row0, n_rows, n_k, n_groups, n_panels, panels_per_item;
    bool q4, direct;
};

static void round_row(const struct product *p, int32_t r)
{
    const float *x = p->a->x + (p->row0 + r) * p->a->x_stride;
    int8_t *dst = p->x + r * p->x_stride;
    float inverse;
    p->scale[r] = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, p->a->n_in), QR_Q8_LARGEST);
    p->sum[r] = qr_quant_int8(dst, x, p->a->n_in, inverse);
    memset(dst + p->a->n_in, 0, (size_t)(p->n_k - p->a->n_in));
    for (int32_t g = 0; p->direct && g < p->n_groups; g++) {
        int32_t sum = 0;
        for (int32_t k = 0; k < QR_QUANT_GROUP; k++)
            sum += dst[g * QR_QUANT_GROUP + k];
        p->group[r * p->n_groups + g] = -8 * sum;
    }
}

static void round_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct product *p = arg;
    for (int32_t r = item * ROUND_ROWS; r < (item + 1) * ROUND_ROWS && r < p->n_rows; r++)
        round_row(p, r);
}

/* 16 sums less `minus`, as floats. */
VF_FN vf sums_at(const int32_t *c, int32_t minus)
{
#ifdef QR_ISA_avx512
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512(c), _mm512_set1_epi32(minus)));
#else
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(const void *)c), _mm256_set1_epi32(minus)));
#endif
}

/* ((sum * (scale of x * scale of w)) + bias) + old, for n_rows rows of a panel at row `row` of the chunk. */
static void finish(const struct product *p, const int32_t *c, int32_t row, int32_t n_rows, int32_t panel, bool offset)
{
    const struct qr_linear_args *a = p->a;
    const float *w_scale = (const float *)(const void *)((const char *)a->w->packed + panel * p->panel_bytes);
    int32_t o = panel * QR_PANEL, n = QR_PANEL < a->n_out - o ? QR_PANEL : a->n_out - o;
    for (int32_t r = row; r < row + n_rows; r++, c += C_STRIDE) {
        float *out = a->out + (p->row0 + r) * a->out_stride + o;
        for (int32_t i = 0; i < n; i += VF_LEN) {
            int64_t len = vf_min_len(n - i);
            vf v = vf_mul(sums_at(c + i, offset ? 128 * p->sum[r] : 0), vf_mul(vf_set1(p->scale[r]), vf_load(w_scale + i)));
            if (a->bias)
                v = vf_add(v, vf_load_n(a->bias + o + i, len));
            if (a->add)
                v = vf_add(v, vf_load_n(out + i, len));
            vf_store_n(out + i, v, len);
        }
    }
}

/* Vectors of bytes of as many outputs, four bytes each, as fit. */
#ifdef QR_ISA_avx512
typedef __m512i vi;
#define VI(op) _mm512_##op
#define VI_AND _mm512_and_si512
#define VI_OR _mm512_or_si512
#define VI_LOAD(p) _mm512_loadu_si512(p)
#define VI_STORE(p, v) _mm512_storeu_si512(p, v)
#define VI_MULTIPLES(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#else
typedef __m256i vi;
#define VI(op) _mm256_##op
#define VI_AND _mm256_and_si256
#define VI_OR _mm256_or_si256
#define VI_LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define VI_STORE(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define VI_MULTIPLES(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#endif
#define VI_BYTES ((int32_t)sizeof(vi))

/* What b holds for every output, in all four bytes. */
VF_FN vi four_times(vi b)
{
    b = VI_OR(b, VI(slli_epi32)(b, 8));
    return VI_OR(b, VI(slli_epi32)(b, 16));
}

/* An int4 panel to 8 bits, n * m + 128. Two products of a half and a multiple fit 16 bits side by side: 15 * 15 < 256. */
static void unpack_panel(uint8_t *dst, const uint8_t *multiple, const uint8_t *w, int32_t n_groups)
{
    const vi low_half = VI(set1_epi8)(15), middle = VI(set1_epi32)(128);
    for (int32_t g = 0; g < n_groups; g++)
        for (int32_t at = 0; at < 64; at += VI_BYTES) {
            vi m = VI_MULTIPLES(multiple + g * QR_PANEL + at / 4), add = four_times(VI(sub_epi32)(middle, VI(slli_epi32)(m, 3)));
            vi m16 = VI_OR(m, VI(slli_epi32)(m, 16));
            for (int32_t i = 0; i < 4; i++) {
                vi b = VI_LOAD(w + (g * 4 + i) * 64 + at), low = VI_AND(b, low_half), high = VI_AND(VI(srli_epi16)(b, 4), low_half);
                uint8_t *to = dst + (g * 8 + i * 2) * 64 + at;
                _mm_prefetch(w + (g * 4 + i) * 64 + QR_QUANT_AHEAD, _MM_HINT_T1);
                VI_STORE(to, VI(add_epi8)(VI(mullo_epi16)(low, m16), add));
                VI_STORE(to + 64, VI(add_epi8)(VI(mullo_epi16)(high, m16), add));
            }
        }
}

/* n panels, whose 8-bit weights lie at w, with all rows of the chunk. */
static void multiply_panels(const struct product *p, const uint8_t *w, int64_t w_panel, int32_t panel, int32_t n)
{
    int32_t QR_UNINITIALIZED c[QR_QUANT_ROWS * C_STRIDE];
    const struct qr_quant_block *block = p->block;
    for (int32_t row = 0; row < p->n_rows; row += block->rows_max) {
        int32_t n_rows = p->n_rows - row < block->rows_max ? p->n_rows - row : block->rows_max;
        const struct qr_quant_args b = {.c = c, .x = p->x + row * p->x_stride, .sum = p->sum + row, .w = w, .x_stride = p->x_stride,
                                        .w_panel = w_panel, .n_k = p->n_k, .n_rows = n_rows, .n_panels = n};
        block->multiply(&b);
        for (int32_t i = 0; i < n; i++)
            finish(p, c + i * QR_PANEL, row, n_rows, panel + i, block->leaves_offset);
    }
}

static void multiply_direct(const struct product *p, const uint8_t *packed, int32_t panel)
{
    int32_t QR_UNINITIALIZED c[QR_QUANT_ROWS * C_STRIDE];
    const struct qr_quant4_args b = {.c = c, .x = p->x, .group = p->group, .multiple = packed + QR_PANEL * sizeof(float),
                                     .w = packed + p->head_bytes, .x_stride = p->x_stride, .group_stride = p->n_groups, .n_k = p->n_k,
                                     .n_rows = p->n_rows};
    p->ways->direct(&b);
    finish(p, c, 0, p->n_rows, panel, false);
}

static void multiply_item(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    int32_t first = item * p->panels_per_item, end = first + p->panels_per_item, width = p->block->panels_max;
    end = end < p->n_panels ? end : p->n_panels;
    const int64_t unpacked_bytes = (int64_t)p->n_k * QR_PANEL;
    uint8_t *scratch = qr_queue_own(p->q, worker);
    if (p->q4 && width * unpacked_bytes > (int64_t)p->q->own_bytes)
        width = 1;
    if (p->block->begin)
        p->block->begin();
    for (int32_t panel = first, n; panel < end; panel += n) {
        const uint8_t *packed = (const uint8_t *)p->a->w->packed + panel * p->panel_bytes;
        n = p->direct ? 1 : width < end - panel ? width : end - panel;
        if (p->direct) {
            multiply_direct(p, packed, panel);
        } else if (p->q4) {
            for (int32_t i = 0; i < n; i++)
                unpack_panel(scratch + i * unpacked_bytes, packed + i * p->panel_bytes + QR_PANEL * sizeof(float),
                             packed + i * p->panel_bytes + p->head_bytes, p->n_groups);
            multiply_panels(p, scratch, unpacked_bytes, panel, n);
        } else {
            multiply_panels(p, packed + p->head_bytes, p->panel_bytes, panel, n);
        }
    }
    if (p->block->end)
        p->block->end();
}

/* Bytes of x for n rows, and of all scratch. */
static int64_t x_bytes(const struct product *p, int64_t n)
{
    return (n + p->block->rows_read - 1) / p->block->rows_read * p->block->rows_read * p->x_stride;
}

static int64_t rows_bytes(const struct product *p, int64_t n)
{
    return x_bytes(p, n) + n * (int64_t)(sizeof *p->scale + sizeof *p->sum) + (p->direct ? n * p->n_groups * (int64_t)sizeof *p->group : 0);
}

static int32_t chunk_rows(const struct product *p)
{
    int64_t n = CHUNK_BYTES / p->x_stride / QR_QUANT_ROWS * QR_QUANT_ROWS, shared = (int64_t)p->q->shared_bytes;
    n = n > QR_QUANT_ROWS ? n : QR_QUANT_ROWS;
    while (n > 1 && rows_bytes(p, n) > shared)
        n = n > QR_QUANT_ROWS ? n - QR_QUANT_ROWS : n - 1;
    QR_ASSERT(rows_bytes(p, n) <= shared);
    return (int32_t)n;
}

static void plan_chunk(struct product *p)
{
    p->x = (int8_t *)p->q->shared;
    p->scale = (float *)(void *)(p->x + x_bytes(p, p->n_rows));
    p->sum = (int32_t *)(void *)(p->scale + p->n_rows);
    p->group = p->sum + p->n_rows;
    int32_t fair = p->n_panels / (p->q->n_threads * 6), cached = (int32_t)(ITEM_BYTES / p->panel_bytes);
    int32_t n = (fair < cached ? fair : cached) / QR_QUANT_PANELS * QR_QUANT_PANELS;
    p->panels_per_item = n > QR_QUANT_PANELS ? n : QR_QUANT_PANELS;
}

void QR_ISA_NAME(linear_quant)(struct qr_queue *q, const struct qr_linear_args *a, const struct qr_quant_ways *ways)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(qr_dtype_is_quantized(a->w->packed_dtype) && ways != NULL);
    QR_ASSERT(a->n_in > 0 && a->n_in <= QR_QUANT_INPUTS_MAX && a->n_out > 0 && a->n_rows >= 0);
    const enum qr_dtype type = a->w->packed_dtype;
    const bool few = a->n_rows <= ways->few_rows;
    struct product p = {.a = a, .ways = ways, .q = q, .q4 = type == QR_Q4, .block = few ? ways->few : ways->many};
    p.direct = p.q4 && few && ways->direct;
    p.n_k = (int32_t)qr_quant_k(a->n_in);
    p.n_groups = p.n_k / QR_QUANT_GROUP;
    p.x_stride = p.n_k / 64 % 2 ? p.n_k : p.n_k + 64; /* an odd number of cache lines: rows spread over the cache */
    p.panel_bytes = qr_quant_panel_bytes(type, a->n_in);
    p.head_bytes = qr_quant_head_bytes(type, a->n_in);
    p.n_panels = (a->n_out + QR_PANEL - 1) / QR_PANEL;
    if (rows_bytes(&p, 1) > (int64_t)q->shared_bytes) /* wide rows and little scratch: blocks that read no more than there is */
        p.block = ways->few;
    int32_t rows_fit = chunk_rows(&p), n_chunks = (a->n_rows + rows_fit - 1) / rows_fit;
    for (int32_t c = 0; c < n_chunks; c++) {
        p.row0 = (int32_t)((int64_t)a->n_rows * c / n_chunks);
        p.n_rows = (int32_t)((int64_t)a->n_rows * (c + 1) / n_chunks) - p.row0;
        plan_chunk(&p);
        int32_t n_rounds = (p.n_rows + ROUND_ROWS - 1) / ROUND_ROWS, n_items = (p.n_panels + p.panels_per_item - 1) / p.panels_per_item;
        if ((int64_t)p.n_rows * p.n_k < ROUND_ALONE)
            qr_queue_run_here(round_item, &p, n_rounds);
        else
            qr_queue_run(q, round_item, &p, n_rounds);
        if ((int64_t)p.n_rows * p.n_k * a->n_out < WORK_ALONE)
            qr_queue_run_here(multiply_item, &p, n_items);
        else
            qr_queue_run(q, multiply_item, &p, n_items);
    }
}
