/* quant.c - out = x w^T with weights and activations as integers (kernels.h: linear; quant.h: the layout).
 *
 * Rows of x are rounded to 8 bits, each with its scale. Products and sums are integers and exact, so blocks of any shape and any
 * instruction give the same sums, which become floats in one place (finish). An item of work is some panels against all rows of a
 * chunk. Panels with groups become ones of bytes in the worker's scratch, once per item, unless the level multiplies few rows directly. */
#include "kernels/cpu/isa/quant/quant.h"

#include "base/assert.h"
#include "kernels/cpu/isa/quant/vectors.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/tuned.h"

#define ITEM_BYTES ((int64_t)256 << 10) /* weights of one item */
#define CHUNK_BYTES ((int64_t)1536 << 10) /* x of a chunk: most of L2 */
#define ROUND_ALONE 32768               /* elements of x that one thread rounds sooner than two would begin */
#define WORK_ALONE 131072               /* products that one thread computes sooner than two would begin */
#define ROUND_ROWS 4                    /* rows of an item of rounding */
#define C_STRIDE (QR_QUANT_PANELS * QR_PANEL)
_Static_assert((size_t)QR_QUANT_INPUTS_MAX * QR_PANEL <= QR_WORKER_SCRATCH_BYTES, "an unpacked panel fits scratch");

/* One chunk of rows. */
struct product {
    const struct qr_linear_args *a;
    const struct qr_quant_ways *ways;
    qr_quant_norm *norm;
    const struct qr_quant_block *block;
    struct qr_queue *q;
    int32_t items; /* for each thread, as measured (tuned.h); 0: as plan_chunk has it */
    int8_t *x;               /* [n_rows][x_stride], and rows of anything that a block may read */
    float *scale;            /* [n_rows] */
    int32_t *sum;            /* [n_rows] of x */
    int32_t *group;          /* [n_rows][n_groups]: -8 * the sum of each group, only for `direct` */
    int64_t x_stride, panel_bytes, head_bytes, ahead;
    struct qr_quant_format format;
    int32_t row0, n_rows, n_k, n_groups;
    int32_t n_panels, panels_per_item; /* with a gated unit: of gates */
    int32_t up;              /* panels from gates to their ups; 0: there is no unit */
    bool direct;
#ifdef QR_ISA_avx2
    bool pieces;             /* many rows (pieces.h); then x, sum and group lie as they want them */
#endif
};

/* Whether sums of groups of x are wanted. */
static bool has_groups(const struct product *p)
{
#ifdef QR_ISA_avx2
    return p->format.bits == 4;
#else
    return p->direct;
#endif
}

/* What the sums of a group of x begin with (quant.h). */
VF_FN int32_t group_begin(const int8_t *x)
{
#ifdef QR_ISA_avx2
    const vi sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), VI_LOAD(x)); /* pairs, in turns the lower and the upper half's */
    __m128i v = _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    v = _mm_add_epi16(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_add_epi16(v, _mm_shuffle_epi32(v, 0xb1));
    return _mm_cvtsi128_si32(_mm_mullo_epi16(v, _mm_set1_epi16(-8)));
#else
    int32_t sum = 0;
    for (int32_t k = 0; k < QR_QUANT_GROUP; k++)
        sum += x[k];
    return -8 * sum;
#endif
}

/* Row r of the chunk: its scale, bytes to dst, what groups begin with to `group`. Returns the sum. */
static int32_t round_to(const struct product *p, int32_t r, int8_t *dst, int32_t *group, float *scratch)
{
    const float *x = p->a->x + (p->row0 + r) * p->a->x_stride;
    float inverse;
    if (p->a->norm_w) {
        p->norm(scratch, x, p->a->norm_w, p->a->n_in, p->a->eps);
        x = scratch;
    }
    p->scale[r] = qr_quant_scale(&inverse, qr_quant_max_bits(0, x, p->a->n_in), QR_Q8_LARGEST);
    const int32_t total = qr_quant_int8(dst, x, p->a->n_in, inverse);
    memset(dst + p->a->n_in, 0, (size_t)(p->n_k - p->a->n_in));
    for (int32_t g = 0; has_groups(p) && g < p->n_groups; g++)
        group[g] = group_begin(dst + g * QR_QUANT_GROUP);
    return total;
}

static void round_row(const struct product *p, int32_t r, float *scratch)
{
    p->sum[r] = round_to(p, r, p->x + r * p->x_stride, p->group + r * p->n_groups, scratch);
}

static void round_item(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    for (int32_t r = item * ROUND_ROWS; r < (item + 1) * ROUND_ROWS && r < p->n_rows; r++)
        round_row(p, r, qr_queue_own(p->q, worker));
}

/* (sum * (scale of x * scale of w)) + bias of a row, for outputs from number i of a panel on. */
VF_FN vf value_at(const struct product *p, const int32_t *c, int32_t r, int32_t panel, int32_t i, int64_t len, bool offset)
{
    const float *w_scale = qr_quant_scales((const uint8_t *)p->a->w->packed + panel * p->panel_bytes);
    vf v = vf_mul(sums_at(c + i, offset ? 128 * p->sum[r] : 0), vf_mul(vf_set1(p->scale[r]), vf_load(w_scale + i)));
    return p->a->bias ? vf_add(v, vf_load_n(p->a->bias + panel * QR_PANEL + i, len)) : v;
}

/* What becomes of the sums of n_rows rows of a panel at row `row` of the chunk. With a unit, those of its ups lie a panel behind. */
static void finish(const struct product *p, const int32_t *c, int32_t row, int32_t n_rows, int32_t panel, bool offset)
{
    const struct qr_linear_args *a = p->a;
    int32_t o = panel * QR_PANEL, n = QR_PANEL < a->n_out - o ? QR_PANEL : a->n_out - o;
    for (int32_t r = row; r < row + n_rows; r++, c += C_STRIDE) {
        float *out = a->out + (p->row0 + r) * a->out_stride + o;
        for (int32_t i = 0; i < n; i += VF_LEN) {
            int64_t len = vf_min_len(n - i);
            vf v = value_at(p, c, r, panel, i, len, offset);
            if (p->up)
                v = row_glu(v, value_at(p, c + QR_PANEL, r, panel + p->up, i, len, offset), a->act, a->clamp);
            if (a->add)
                v = vf_add(v, vf_load_n(out + i, len));
            vf_store_n(out + i, v, len);
        }
    }
}

/* n panels, whose weights of 8 bits lie at w, with all rows of the chunk: neighbours, or one of gates and that of their ups. */
static void multiply_panels(const struct product *p, const uint8_t *w, int64_t w_panel, int32_t panel, int32_t n)
{
    int32_t QR_UNINITIALIZED c[QR_QUANT_ROWS * C_STRIDE];
    const struct qr_quant_block *block = p->block;
    QR_ASSERT(n <= QR_QUANT_PANELS);
    const int32_t rows_max = block->rows_max;
    for (int32_t row = 0; row < p->n_rows; row += rows_max) {
        int32_t n_rows = p->n_rows - row < rows_max ? p->n_rows - row : rows_max;
        for (int32_t i = 0; i < n; i += block->panels_max) {
            const struct qr_quant_args b = {.c = c + i * QR_PANEL, .x = p->x + row * p->x_stride, .sum = p->sum + row, .w = w + i * w_panel,
                                            .x_stride = p->x_stride, .w_panel = w_panel, .ahead = p->ahead, .n_k = p->n_k, .n_rows = n_rows,
                                            .n_panels = n - i < block->panels_max ? n - i : block->panels_max};
            block->multiply(&b);
        }
        for (int32_t i = 0; i < (p->up ? 1 : n); i++)
            finish(p, c + i * QR_PANEL, row, n_rows, panel + i, block->leaves_offset);
    }
}

static void multiply_direct(const struct product *p, const uint8_t *packed, int32_t panel)
{
    int32_t QR_UNINITIALIZED c[QR_QUANT_ROWS * C_STRIDE];
    for (int32_t i = 0; i < (p->up ? 2 : 1); i++, packed += p->up * p->panel_bytes) {
        const struct qr_quant4_args b = {.c = c + i * QR_PANEL, .x = p->x, .group = p->group, .multiple = qr_quant_multiples(packed),
                                         .w = packed + p->head_bytes, .x_stride = p->x_stride, .group_stride = p->n_groups, .ahead = p->ahead,
                                         .n_k = p->n_k, .n_rows = p->n_rows};
        p->ways->direct(&b);
    }
    finish(p, c, 0, p->n_rows, panel, false);
}

static void multiply_item(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    int32_t first = item * p->panels_per_item, end = first + p->panels_per_item, width = p->block->panels_max;
    end = end < p->n_panels ? end : p->n_panels;
    const int64_t unpacked_bytes = (int64_t)p->n_k * QR_PANEL;
    uint8_t *scratch = qr_queue_own(p->q, worker);
    if (p->up || (p->format.group && width * unpacked_bytes > (int64_t)p->q->own_bytes))
        width = 1;
    if (p->block->begin)
        p->block->begin();
    for (int32_t panel = first, n; panel < end; panel += n) {
        const uint8_t *packed = (const uint8_t *)p->a->w->packed + panel * p->panel_bytes;
        n = p->direct ? 1 : width < end - panel ? width : end - panel;
        if (p->direct) {
            multiply_direct(p, packed, panel);
        } else if (p->format.group) {
            const int32_t n_here = p->up ? 2 : n;
            for (int32_t i = 0; i < n_here; i++) {
                const struct qr_unpack u = qr_unpack_of(packed + i * (p->up ? p->up : 1) * p->panel_bytes, p->head_bytes);
                qr_unpack_4(scratch + i * unpacked_bytes, &u, 0, p->n_groups, u.w + p->ahead);
            }
            multiply_panels(p, scratch, unpacked_bytes, panel, n_here);
        } else {
            multiply_panels(p, packed + p->head_bytes, (p->up ? p->up : 1) * p->panel_bytes, panel, p->up ? 2 : n);
        }
    }
    if (p->block->end)
        p->block->end();
    if (p->a->stretches)
        row_stretches(p->a, p->row0, p->n_rows, first * QR_PANEL, end * QR_PANEL);
}

#ifdef QR_ISA_avx2
#include "kernels/cpu/isa/quant/pieces.h"
#endif

/* Bytes of x for n rows, and of all scratch. */
static int64_t x_bytes(const struct product *p, int64_t n)
{
    return (n + p->block->rows_read - 1) / p->block->rows_read * p->block->rows_read * p->x_stride;
}

static int64_t rows_bytes(const struct product *p, int64_t n)
{
    return x_bytes(p, n) + n * (int64_t)(sizeof *p->scale + sizeof *p->sum) + (has_groups(p) ? n * p->n_groups * (int64_t)sizeof *p->group : 0);
}

static int32_t chunk_rows(const struct product *p)
{
    int64_t n = CHUNK_BYTES / p->x_stride / QR_QUANT_ROWS * QR_QUANT_ROWS, shared = (int64_t)p->q->shared_bytes;
    n = n > QR_QUANT_ROWS ? n : QR_QUANT_ROWS;
#ifdef QR_ISA_avx2
    while (p->pieces && n > QR_QUANT_ROWS && pieces_bytes(n) > p->q->own_bytes)
        n -= QR_QUANT_ROWS;
#endif
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
    int32_t fair = p->n_panels / (p->q->n_threads * (p->items ? p->items : 3));
    int32_t cached = qr_nearly_stretches(p->a, (int32_t)(ITEM_BYTES / p->panel_bytes));
    int32_t n = (fair < cached ? fair : cached) / QR_QUANT_PANELS * QR_QUANT_PANELS;
    p->panels_per_item = qr_item_panels(p->a, n > QR_QUANT_PANELS ? n : QR_QUANT_PANELS);
    p->ahead = qr_stream_ahead(p->panels_per_item * (p->up ? 2 : 1) * p->panel_bytes);
}

void QR_ISA_NAME(quant_norm)(float *out, const float *x, const float *w, int64_t n, float eps)
{
    row_norm(out, x, w, n, eps);
}

void QR_ISA_NAME(linear_quant)(struct qr_queue *q, const struct qr_linear_args *a, const struct qr_quant_ways *ways, qr_quant_norm *norm)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(qr_dtype_is_quantized(a->w->packed_dtype) && ways != NULL && norm != NULL);
    QR_ASSERT(a->n_in > 0 && a->n_in <= qr_linear_inputs_max(a->w->packed_dtype) && a->n_out > 0 && a->n_rows >= 0);
    const enum qr_dtype type = a->w->packed_dtype;
    const bool few = a->n_rows <= ways->few_rows;
    QR_ASSERT(!a->glu || qr_linear_pairs(a));
    struct product p = {.a = a, .ways = ways, .norm = norm, .q = q, .items = qr_tuned_linear(q, a), .format = qr_dtype_format(type),
                        .block = few ? ways->few : ways->many};
    p.direct = p.format.bits == 4 && few && ways->direct;
    p.n_k = (int32_t)qr_quant_k(a->n_in);
    p.n_groups = p.n_k / QR_QUANT_GROUP;
    p.x_stride = p.n_k / 64 % 2 ? p.n_k : p.n_k + 64; /* an odd number of cache lines: rows spread over the cache */
    p.panel_bytes = qr_quant_panel_bytes(type, a->n_in);
    p.head_bytes = qr_quant_head_bytes(type, a->n_in);
    p.up = a->glu ? a->n_out / 2 / QR_PANEL : 0;
    p.n_panels = p.up ? p.up : (a->n_out + QR_PANEL - 1) / QR_PANEL;
#ifdef QR_ISA_avx2
    p.pieces = !few && ways->many == ways->few && (p.format.bits == 4 || a->n_rows > PAIRS_FEW);
    if (p.pieces)
        p.x_stride = p.format.bits == 4 ? p.n_k : 2 * p.n_k;
#endif
    if (rows_bytes(&p, 1) > (int64_t)q->shared_bytes) /* wide rows and little scratch: blocks that read no more than there is */
        p.block = ways->few;
    int32_t rows_fit = chunk_rows(&p), n_chunks = (a->n_rows + rows_fit - 1) / rows_fit;
    for (int32_t c = 0; c < n_chunks; c++) {
        p.row0 = (int32_t)((int64_t)a->n_rows * c / n_chunks);
        p.n_rows = (int32_t)((int64_t)a->n_rows * (c + 1) / n_chunks) - p.row0;
        plan_chunk(&p);
        qr_job *round = round_item, *multiply = multiply_item;
        int32_t n_rounds = (p.n_rows + ROUND_ROWS - 1) / ROUND_ROWS, n_items = (p.n_panels + p.panels_per_item - 1) / p.panels_per_item;
#ifdef QR_ISA_avx2
        if (p.pieces) {
            round = round_block;
            n_rounds = blocks_of(&p);
            multiply = pieces_item;
        }
#endif
        qr_queue_run_if(q, (int64_t)p.n_rows * p.n_k >= ROUND_ALONE, round, &p, n_rounds);
        qr_queue_run_if(q, (int64_t)p.n_rows * p.n_k * a->n_out >= WORK_ALONE, multiply, &p, n_items);
    }
}
