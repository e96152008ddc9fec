/* linear.c - out = x w^T. Weights lie in panels of 16 outputs (pack.c); rows of x are first copied into blocks of mr rows,
 * [k][mr], rounded to bf16 where the weights are bf16. An item of work is some panels against all rows of a chunk: the weights of an item
 * come from memory once and stay in the L2 cache while the row blocks pass by. Coded weights of E4M3 numbers become bf16 in the worker's scratch, some
 * panels at a time, and from there on are what bf16 weights are; other coded weights are multiplied by integers. */
#include "base/assert.h"
#include "kernels/cpu/isa/coded/e4m3.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/coded/gemm_parts.h"
#include "kernels/cpu/isa/linear/micro.h"
#ifdef QR_ISA_avx2
#include "kernels/cpu/isa/coded/gemv.h"
#include "kernels/cpu/isa/coded/gemm.h"
#endif
#include "kernels/cpu/isa/quant/vectors.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/tuned.h"

#define ROWS_MAX QR_ISA_NAME(micro_rows_max)
#define TILE_ROWS 12                     /* at least ROWS_MAX of every level */
#define TILE_PANELS 4                    /* at least micro_panels of any block */
#define ITEM_BYTES ((size_t)512 << 10)   /* weights of one item: a share of L2 */
#ifdef QR_ISA_avx2
#define PACK_ALONE 8192                  /* elements of x that one thread copies sooner than two would begin */
#define MORE_WAYS NULL                   /* of many rows of coded weights (coded/gemm_parts.h) */
#else
#define PACK_ALONE 32768
#define MORE_WAYS qr_avx512_gemm_ways()
#endif
#define WORK_ALONE 65536                 /* products that one thread computes sooner than two would begin: about 3 us */

/* One chunk of rows. */
struct product {
    const struct qr_linear_args *a;
    struct qr_queue *q;
    float *packed;        /* the chunk's x: block after block */
    int32_t row0, n_rows; /* of the chunk */
    int32_t n_blocks;
    int32_t n_in;         /* padded to pairs for bf16 */
    int32_t n_panels, panels_per_item; /* with a gated unit: of gates */
    int32_t up;           /* panels from gates to their ups; 0: there is no unit */
    size_t panel_bytes;
    bool bf16;
    bool direct;          /* one row: coded weights become floats in registers */
    bool is_coded;
    struct qr_coded_shape coded;
    const struct q16_way *q16; /* coded weights by integers: `packed` holds rows of struct q16_x (coded/gemv.h); else NULL */
#ifdef QR_ISA_avx2
    int32_t n_even;       /* items of nearly one size, as many for each thread; 0: items of panels_per_item */
#endif
};
_Static_assert((size_t)QR_QUANT_INPUTS_MAX_WIDE * QR_PANEL * 2 <= QR_WORKER_SCRATCH_BYTES, "an unpacked panel fits scratch");

/* Row blocks of nearly equal height: the first n_rows % n_blocks have one row more. */
static int32_t block_first(const struct product *p, int32_t b)
{
    int32_t low = p->n_rows / p->n_blocks, more = p->n_rows % p->n_blocks;
    return b * low + (b < more ? b : more);
}

#ifndef QR_ISA_avx2
static void pack_block(const void *arg, int32_t b, int32_t worker)
{
    (void)worker;
    const struct product *p = arg;
    int32_t first = block_first(p, b), mr = block_first(p, b + 1) - first;
    float *dst = p->packed + (int64_t)first * p->n_in;
    for (int32_t r = 0; r < mr; r++) {
        const float *x = p->a->x + (p->row0 + first + r) * p->a->x_stride, *w = p->a->norm_w;
        const vf inverse = w ? row_inverse_rms(x, p->a->n_in, p->a->eps) : vf_zero();
        for (int32_t k = 0; k < p->n_in; k += VF_LEN) {
            int64_t n_valid = vf_min_len(p->a->n_in - k), n = vf_min_len(p->n_in - k);
            vf v = vf_load_n(x + k, n_valid);
            if (w)
                v = vf_mul(vf_mul(v, inverse), vf_load_n(w + k, n_valid));
            if (p->bf16)
                v = vf_round_bf16(v);
            if (mr == 1) {
                vf_store_n(dst + k, v, n);
                continue;
            }
            float part[VF_LEN];
            vf_store(part, v);
            for (int64_t i = 0; i < n; i++)
                dst[(k + i) * mr + r] = part[i];
        }
    }
}
#endif

static const uint8_t *panel_at(const struct product *p, int32_t panel)
{
    return (const uint8_t *)p->a->w->packed + (size_t)panel * p->panel_bytes;
}

/* sum + bias, from number i of panel `panel` on. */
VF_FN vf value_at(const struct product *p, const float *sums, int32_t panel, int32_t i, int64_t len)
{
    const vf v = vf_load(sums);
    return p->a->bias ? vf_add(v, vf_load_n(p->a->bias + panel * QR_PANEL + i, len)) : v;
}

/* What becomes of a row's sums of n columns from panel `panel` on; ups: those of its ups, with a gated unit. */
VF_FN void finish_row(const struct product *p, float *out, const float *sums, const float *ups, int32_t panel, int32_t n)
{
    const struct qr_linear_args *a = p->a;
    for (int32_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        vf v = value_at(p, sums + i, panel, i, len);
        if (p->up)
            v = row_glu(v, value_at(p, ups + i, panel + p->up, i, len), a->act, a->clamp);
        if (a->add)
            v = vf_add(v, vf_load_n(out + i, len));
        vf_store_n(out + i, v, len);
    }
}

/* The same for mr rows. With a unit, the sums of its ups lie a panel behind. */
static void finish(const struct product *p, const float *tile, int32_t row, int32_t mr, int32_t panel, int32_t n)
{
    for (int32_t r = 0; r < mr; r++, tile += TILE_PANELS * QR_PANEL)
        finish_row(p, p->a->out + (row + r) * p->a->out_stride + panel * QR_PANEL, tile, tile + QR_PANEL, panel, n);
}

#ifdef QR_ISA_avx2
#include "kernels/cpu/isa/linear/pieces.h"
#endif

/* Panels [first, end), the first of which lies at w, with all rows. With a gated unit that of a panel's ups is w_panel behind it; blocks of few rows take
 * the panels of gates and ups in turns, so that one row reads as many streams as without a unit. */
static void multiply_panels(const struct product *p, const void *w, size_t w_panel, size_t w_next, int32_t first_panel, int32_t end_panel)
{
#ifdef QR_ISA_avx2
    if (p->n_blocks > 1 || p->n_rows >= PIECE_ROWS_MIN) {
        multiply_pieces(p, w, w_panel, w_next, first_panel, end_panel);
        return;
    }
#endif
    const struct qr_linear_args *a = p->a;
    const enum qr_panel_kind kind = p->bf16 ? QR_PANEL_LINEAR_BF16 : QR_PANEL_LINEAR_F32;
    const int32_t unit = p->up ? 2 : 1;
    QR_UNINITIALIZED float tile[TILE_ROWS * TILE_PANELS * QR_PANEL];
    for (int32_t b = 0; b < p->n_blocks; b++) {
        int32_t first = block_first(p, b), mr = block_first(p, b + 1) - first, nr = QR_ISA_NAME(micro_panels)(mr) / unit;
        nr = nr > 0 ? nr : 1;
        for (int32_t panel = first_panel; panel < end_panel; panel += nr) {
            int32_t n = nr < end_panel - panel ? nr : end_panel - panel, o = panel * QR_PANEL;
            int32_t n_cols = n * QR_PANEL < a->n_out - o ? n * QR_PANEL : a->n_out - o;
            const bool direct = !a->bias && !a->add && !a->glu && n_cols == n * QR_PANEL;
            struct qr_micro_args m = {
                .c = direct ? a->out + (p->row0 + first) * a->out_stride + o : tile,
                .x = p->packed + (int64_t)first * p->n_in,
                .w = (const char *)w + (size_t)(panel - first_panel) * w_next,
                .c_stride = direct ? a->out_stride : TILE_PANELS * QR_PANEL,
                .w_panel = w_panel,
                .w_pair = p->up ? w_next : 0,
                .w_step = QR_PANEL * 4,
                .n_steps = p->bf16 ? p->n_in / 2 : p->n_in,
            };
            QR_ISA_NAME(micro)(kind, mr, n * unit, &m);
            for (int32_t i = 0; i < n && !direct; i += p->up ? 1 : n)
                finish(p, tile + i * unit * QR_PANEL, p->row0 + first, mr, panel + i, p->up ? QR_PANEL : n_cols);
        }
    }
}

#include "kernels/cpu/isa/linear/direct.h"

static void multiply_direct(const struct product *p, int32_t first, int32_t end)
{
    QR_UNINITIALIZED float sums[DIRECT_PANELS * QR_PANEL];
    for (int32_t panel = first, n; panel < end; panel += n) {
        n = p->up || end - panel < DIRECT_PANELS ? 1 : DIRECT_PANELS;
        multiply_floats(p, sums, panel, p->up ? 2 : n);
        const int32_t o = panel * QR_PANEL;
        finish(p, sums, p->row0, 1, panel, n * QR_PANEL < p->a->n_out - o ? n * QR_PANEL : p->a->n_out - o);
    }
}

/* The same from coded weights: as many panels at a time as scratch holds as bf16. */
static void multiply_unpacked(const struct product *p, uint8_t *scratch, int32_t first, int32_t end)
{
    const int32_t n_groups = (int32_t)(qr_quant_k(p->a->n_in) / QR_QUANT_GROUP);
    const size_t unpacked_bytes = (size_t)n_groups * QR_QUANT_GROUP * QR_PANEL * 2;
    int32_t width = (int32_t)(p->q->own_bytes / unpacked_bytes);
    width = width < TILE_PANELS ? width : TILE_PANELS;
    QR_ASSERT(width >= (p->up ? 2 : 1));
    for (int32_t panel = first, n; panel < end; panel += n) {
        n = p->up ? 1 : width < end - panel ? width : end - panel;
        for (int32_t i = 0; i < (p->up ? 2 : n); i++)
            qr_e4m3_unpack(scratch + (size_t)i * unpacked_bytes, &p->coded, panel_at(p, panel + i * (p->up ? p->up : 1)), 0, n_groups, QR_QUANT_AHEAD);
        multiply_panels(p, scratch, unpacked_bytes, unpacked_bytes, panel, panel + n);
    }
}

#ifdef QR_ISA_avx2
/* Panels in pairs: item number `item` begins with this one. */
static int32_t even_first(const struct product *p, int32_t item)
{
    const int64_t n_pairs = (p->n_panels + 1) / 2;
    return (int32_t)(n_pairs * item / p->n_even) * 2;
}

/* As many items for each thread, a little smaller than panels_per_item: with few of them a worker that has one more is waited for by the others. */
static int32_t even_items(const struct qr_queue *q, const struct product *p, int32_t measured)
{
    const int32_t n = (p->n_panels + p->panels_per_item - 1) / p->panels_per_item, pairs = (p->n_panels + 1) / 2;
    if (p->a->stretches || measured || pairs < q->n_threads)
        return 0;
    const int32_t even = (n + q->n_threads - 1) / q->n_threads * q->n_threads;
    return even <= pairs ? even : pairs / q->n_threads * q->n_threads;
}
#endif

static void multiply(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    int32_t first = item * p->panels_per_item, end = first + p->panels_per_item;
#ifdef QR_ISA_avx2
    if (p->n_even) {
        first = even_first(p, item);
        end = even_first(p, item + 1);
    }
#endif
    end = end < p->n_panels ? end : p->n_panels;
#ifdef QR_ISA_avx2
    if (p->q16 && p->n_rows >= Q16_ROWS_MIN)
        multiply_panels(p, panel_at(p, first), (p->up ? (size_t)p->up : 1) * p->panel_bytes, p->panel_bytes, first, end);
    else if (p->q16)
        multiply_q16(p, first, end);
    else
#endif
    if (p->direct)
        multiply_direct(p, first, end);
    else if (p->is_coded)
        multiply_unpacked(p, qr_queue_own(p->q, worker), first, end);
    else
        multiply_panels(p, panel_at(p, first), (p->up ? (size_t)p->up : 1) * p->panel_bytes, p->panel_bytes, first, end);
    if (p->a->stretches)
        row_stretches(p->a, p->row0, p->n_rows, first * QR_PANEL, end * QR_PANEL);
}

/* Panels per item: whole register blocks, small enough for the cache and for a fair share of work to every thread. */
static int32_t item_panels(const struct qr_queue *q, const struct product *p, int32_t measured)
{
    int32_t fair = p->n_panels / (q->n_threads * (measured ? measured : 6));
    size_t panel_bytes = p->panel_bytes;
#ifdef QR_ISA_avx2
    if (p->is_coded && p->coded.f.bits < 4) /* as much work as panels of 4 bits: items that are too large leave a thread without one in the end */
        panel_bytes = panel_bytes * 4 / p->coded.f.bits;
#endif
    int32_t cached = qr_nearly_stretches(p->a, (int32_t)(ITEM_BYTES / panel_bytes));
    int32_t n = fair < cached ? fair : cached;
    n = n / TILE_PANELS * TILE_PANELS;
    return qr_item_panels(p->a, n > TILE_PANELS ? n : TILE_PANELS);
}

static void multiply_integers(struct qr_queue *q, const struct qr_linear_args *a)
{
    const struct qr_quant_ways *ways = QR_ISA_NAME(quant_ways)();
    if (ways)
        QR_ISA_NAME(linear_quant)(q, a, ways, QR_ISA_NAME(quant_norm));
    else
        qr_avx2_linear_quant(q, a, qr_avx2_quant_ways(), QR_ISA_NAME(quant_norm));
}

/* How the weights lie. */
static void plan_weights(struct product *p)
{
    const struct qr_linear_args *a = p->a;
    const enum qr_dtype type = a->w->packed_dtype;
    p->is_coded = qr_dtype_is_coded(type);
    p->bf16 = p->is_coded || type == QR_BF16;
#ifdef QR_ISA_avx2
    p->bf16 = p->bf16 && !p->q16;
#endif
    p->n_in = p->bf16 ? (a->n_in + 1) / 2 * 2 : a->n_in;
    p->up = a->glu ? a->n_out / 2 / QR_PANEL : 0;
    p->n_panels = p->up ? p->up : (a->n_out + QR_PANEL - 1) / QR_PANEL;
    p->panel_bytes = (size_t)p->n_in * QR_PANEL * (p->bf16 ? 2 : 4);
    if (p->is_coded) {
        p->coded = qr_coded_shape_of(type, a->n_in);
        p->panel_bytes = (size_t)p->coded.panel_bytes;
    }
}

/* A row of x, packed. */
static inline size_t row_bytes(const struct product *p)
{
#ifdef QR_ISA_avx2
    if (p->q16)
        return (size_t)q16_units(p->a->n_in) * (sizeof(struct q16_x) + sizeof(struct q16_bytes));
#endif
    return (size_t)p->n_in * sizeof(float);
}

/* way: of coded weights that are multiplied by integers. */
static void multiply_chunks(struct qr_queue *q, const struct qr_linear_args *a, const struct q16_way *way)
{
    struct product p = {.a = a, .q = q, .packed = (float *)q->shared, .q16 = way};
    plan_weights(&p);
    const int32_t measured = qr_tuned_linear(q, a);
    p.panels_per_item = item_panels(q, &p, measured);
    int32_t rows_fit = (int32_t)(q->shared_bytes / row_bytes(&p));
    QR_ASSERT(rows_fit >= 1);
    int32_t n_chunks = (a->n_rows + rows_fit - 1) / rows_fit;
    for (int32_t c = 0; c < n_chunks; c++) {
        p.row0 = (int32_t)((int64_t)a->n_rows * c / n_chunks);
        p.n_rows = (int32_t)((int64_t)a->n_rows * (c + 1) / n_chunks) - p.row0;
        p.n_blocks = (p.n_rows + ROWS_MAX - 1) / ROWS_MAX;
        p.direct = p.is_coded && p.n_rows == 1;
#ifdef QR_ISA_avx2
        p.direct = p.direct && !p.q16;
#endif
        qr_queue_run_if(q, (int64_t)p.n_rows * p.n_in >= PACK_ALONE, pack_block, &p, p.n_blocks);
        if (p.direct) /* whole groups are multiplied */
            memset(p.packed + p.n_in, 0, (size_t)(qr_quant_k(a->n_in) - p.n_in) * sizeof *p.packed);
        int32_t n_items = (p.n_panels + p.panels_per_item - 1) / p.panels_per_item;
#ifdef QR_ISA_avx2
        p.n_even = even_items(q, &p, measured);
        n_items = p.n_even ? p.n_even : n_items;
#endif
        qr_queue_run_if(q, (int64_t)p.n_rows * p.n_in * a->n_out >= WORK_ALONE, multiply, &p, n_items);
    }
}

#ifdef QR_ISA_avx2
void qr_avx2_linear_q16(struct qr_queue *q, const struct qr_linear_args *a, const struct q16_way *way)
{
    QR_ASSERT(qr_dtype_is_coded(a->w->packed_dtype) && !qr_dtype_coded(a->w->packed_dtype).e4m3);
    QR_ASSERT(!a->glu || qr_linear_pairs(a));
    multiply_chunks(q, a, way);
}
#endif

static float sum_of_squares(const float *x, int64_t n)
{
    return row_sum_of_squares(x, n);
}

void QR_ISA_NAME(linear)(struct qr_queue *q, const struct qr_linear_args *a)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(qr_dtype_multiplies(a->w->packed_dtype));
    QR_ASSERT(a->n_in > 0 && a->n_in <= qr_linear_inputs_max(a->w->packed_dtype) && a->n_out > 0 && a->n_rows >= 0);
    QR_ASSERT(!a->glu || (!a->add && a->n_out % 2 == 0));
    QR_ASSERT(!a->stretches || (!a->add && !a->glu));
    if (a->glu && !qr_linear_pairs(a)) {
        QR_ISA_NAME(glu_apart)(q, a, QR_ISA_NAME(linear));
        return;
    }
    if (qr_dtype_is_quantized(a->w->packed_dtype)) {
        multiply_integers(q, a);
        return;
    }
    if (qr_dtype_is_coded(a->w->packed_dtype) && !qr_dtype_coded(a->w->packed_dtype).e4m3) {
        const struct gemm_ways *more = MORE_WAYS;
        const struct q16_way way = {.gemm = more ? more : qr_avx2_gemm_ways(), .sum_of_squares = sum_of_squares};
        qr_avx2_linear_q16(q, a, &way);
        return;
    }
    multiply_chunks(q, a, NULL);
}

void QR_ISA_NAME(chain)(struct qr_queue *q, const struct qr_chain_args *a)
{
    QR_ASSERT(a != NULL && a->linear != NULL);
    QR_ASSERT(a->n >= 1 && a->n <= QR_CHAIN_MAX);
    for (int32_t i = 0; i < a->n; i++)
        QR_ISA_NAME(linear)(q, &a->linear[i]);
    if (a->heads)
        QR_ISA_NAME(qkv)(q, a->heads);
}
