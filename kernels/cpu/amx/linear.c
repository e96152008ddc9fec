/* linear.c - out = x w^T with bf16 weights on the tile registers; f32 weights go to the avx512 level's code.
 *
 * Weights lie in panels of 16 outputs, pairs of k side by side, k padded to 32 with zeros (linear_pack.c): 1 KiB of a panel is one tile. Rows
 * of x are first copied to row tiles, [k / 32][rows][32] bf16: full ones of 16 rows and a last one with the rest. Every product, down
 * to that of a single row, goes through the same instruction in the same order of k, so a row's result does not depend on its company
 * (tile.h states the arithmetic). A tile of one row costs one row's time; reading the weights is what is left of it.
 *
 * An item of work is some panels against all rows of a chunk. With many rows k is cut into slices, so that a slice of two panels stays
 * in the first-level cache and a slice of the rows in the second-level one; sums wait in the worker's scratch meanwhile, as they are.
 */
#include "base/assert.h"
#include "kernels/cpu/amx/quant.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/micro.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define GROUP 4                          /* panels of an item come in fours */
#define CHUNK_ROWS 512
#define SLICE_STEPS_MAX 18               /* tiles of k: two panels' slice is 36 KiB */
#define ITEM_BYTES ((size_t)512 << 10)   /* weights of one item with few rows */
#define ITEM_PANELS_MAX 256              /* of one item with few rows; their sums need scratch */
#define ITEM_PANELS_MANY 16              /* of one item with many rows */
#define PACK_ALONE 32768                 /* elements of x that one thread copies sooner than two would begin */
#define WORK_ALONE 65536                 /* products, likewise: a few us for one row */
#define STREAM_AHEAD 8192                /* bytes: how far ahead weights are asked for that are used once */
_Static_assert(CHUNK_ROWS * (ITEM_PANELS_MANY + 1) * QR_PANEL * sizeof(float) <= QR_WORKER_SCRATCH_BYTES, "sums of an item");
_Static_assert(2 * QR_TILE_ROWS * (ITEM_PANELS_MAX + 1) * QR_PANEL * sizeof(float) <= QR_WORKER_SCRATCH_BYTES, "sums of an item with few rows");

/* One chunk of rows. */
struct product {
    const struct qr_linear_args *a;
    struct qr_queue *q;
    char *packed;                 /* the chunk's x, row tile after row tile */
    int32_t row0, n_rows;         /* of the chunk */
    int32_t n_tiles;              /* row tiles */
    int32_t n_steps, slice_steps; /* tiles of k: all, and of a slice */
    int32_t n_panels, panels_per_item;
    int64_t panel_bytes;
    int64_t sums_stride;          /* floats; a panel more than there are, against cache aliasing */
};

/* One or two row tiles against up to four or two panels, over a slice of k. */
struct block {
    const char *x[2], *w;
    int64_t x_step[2];   /* bytes from a row tile's k to the next */
    float *c;
    int64_t c_bytes;     /* from row to row of c */
    int64_t w_panel;     /* bytes from panel to panel */
    const char *ahead;   /* weights that come later: per step, ahead_lines cache lines of each of ahead_panels panels are asked for */
    int32_t ahead_lines, ahead_panels;
    const char *out;     /* where two row tiles' results will be written: asked for meanwhile; NULL: not yet */
    int64_t out_bytes;   /* from row to row of out */
    int32_t n_steps;
    bool onto;           /* add to c instead of starting from 0 */
};

static int32_t tile_rows(const struct product *p, int32_t t)
{
    int32_t rest = p->n_rows - t * QR_TILE_ROWS;
    return rest < QR_TILE_ROWS ? rest : QR_TILE_ROWS;
}

/* Row tile t at its k number `step`. */
static char *tile_at(const struct product *p, int32_t t, int32_t step)
{
    return p->packed + ((int64_t)t * QR_TILE_ROWS * p->n_steps + (int64_t)step * tile_rows(p, t)) * QR_TILE_ROW_BYTES;
}

/* 32 numbers from k on, of which n are there, as bf16. Denormal numbers become 0, as they would in the product. */
static void pack_line(char *dst, const float *x, int64_t n)
{
    vf low = vf_load_n(x, vf_min_len(n)), high = n > VF_LEN ? vf_load_n(x + VF_LEN, vf_min_len(n - VF_LEN)) : vf_zero();
    _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

static void pack_tile(const void *arg, int32_t t, int32_t worker)
{
    (void)worker;
    const struct product *p = arg;
    int32_t n = tile_rows(p, t), n_in = p->a->n_in;
    for (int32_t r = 0; r < n; r++) {
        const float *x = p->a->x + (p->row0 + t * QR_TILE_ROWS + r) * p->a->x_stride;
        char *dst = tile_at(p, t, 0) + r * QR_TILE_ROW_BYTES;
        for (int32_t k = 0; k < n_in; k += QR_TILE_K, dst += n * QR_TILE_ROW_BYTES)
            pack_line(dst, x + k, n_in - k < QR_TILE_K ? n_in - k : QR_TILE_K);
    }
}

/* Tiles 0-3 are sums, 4 and 5 rows of x, 6 and 7 panels of w. The sums of two row tiles lie 0 1 above 2 3. */
static void configure(int32_t rows0, int32_t rows1)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = QR_TILE_ROW_BYTES;
        c.rows[t] = (uint8_t)(t >= 6 ? QR_TILE_ROWS : t == 2 || t == 3 || t == 5 ? rows1 : rows0);
    }
    qr_tile_configure(&c);
}

VF_FN void ask_ahead(const struct block *b, int32_t step)
{
    const char *p = b->ahead + (int64_t)step * b->ahead_lines * 64;
    for (int32_t j = 0; j < b->ahead_panels; j++, p += b->w_panel)
        for (int32_t i = 0; i < b->ahead_lines; i++)
            _mm_prefetch(p + i * 64, _MM_HINT_T1);
}

/* The rows of out, spread over the steps: a store to a line that is not at hand would wait for it. */
VF_FN void ask_out(const struct block *b, int32_t step)
{
    const int32_t first = step * 2 * QR_TILE_ROWS / b->n_steps, end = (step + 1) * 2 * QR_TILE_ROWS / b->n_steps;
    if (!b->out)
        return;
    for (int32_t r = first; r < end; r++) {
        __builtin_prefetch(b->out + r * b->out_bytes, 1, 3);
        __builtin_prefetch(b->out + r * b->out_bytes + 64, 1, 3);
    }
}

/* One row tile against nt panels. */
VF_FN void block_1(const int nt, const struct block *b)
{
    char *c = (char *)b->c;
    const char *x = b->x[0], *w = b->w;
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    if (b->onto) {
        qr_tile_load(0, c, b->c_bytes);
        if (nt > 1)
            qr_tile_load(1, c + 64, b->c_bytes);
    }
    for (int32_t k = 0; k < b->n_steps; k++, x += b->x_step[0], w += QR_TILE_BYTES) {
        qr_tile_load(4, x, QR_TILE_ROW_BYTES);
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);
        qr_tile_dp(0, 4, 6);
        if (nt > 1) {
            qr_tile_load(7, w + b->w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(1, 4, 7);
        }
        if (nt > 2) {
            qr_tile_load(6, w + 2 * b->w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(2, 4, 6);
            qr_tile_load(7, w + 3 * b->w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(3, 4, 7);
        }
        ask_ahead(b, k);
    }
    qr_tile_store(0, c, b->c_bytes);
    if (nt > 1)
        qr_tile_store(1, c + 64, b->c_bytes);
    if (nt > 2) {
        qr_tile_store(2, c + 128, b->c_bytes);
        qr_tile_store(3, c + 192, b->c_bytes);
    }
}

/* Two row tiles against nt panels. */
VF_FN void block_2(const int nt, const struct block *b)
{
    char *c = (char *)b->c, *below = c + QR_TILE_ROWS * b->c_bytes;
    const char *x0 = b->x[0], *x1 = b->x[1], *w = b->w;
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    if (b->onto) {
        qr_tile_load(0, c, b->c_bytes);
        qr_tile_load(2, below, b->c_bytes);
        if (nt > 1) {
            qr_tile_load(1, c + 64, b->c_bytes);
            qr_tile_load(3, below + 64, b->c_bytes);
        }
    }
    for (int32_t k = 0; k < b->n_steps; k++, x0 += b->x_step[0], x1 += b->x_step[1], w += QR_TILE_BYTES) {
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);
        qr_tile_load(4, x0, QR_TILE_ROW_BYTES);
        qr_tile_dp(0, 4, 6);
        qr_tile_load(5, x1, QR_TILE_ROW_BYTES);
        qr_tile_dp(2, 5, 6);
        if (nt > 1) {
            qr_tile_load(7, w + b->w_panel, QR_TILE_ROW_BYTES);
            qr_tile_dp(1, 4, 7);
            qr_tile_dp(3, 5, 7);
        }
        ask_ahead(b, k);
        ask_out(b, k);
    }
    qr_tile_store(0, c, b->c_bytes);
    qr_tile_store(2, below, b->c_bytes);
    if (nt > 1) {
        qr_tile_store(1, c + 64, b->c_bytes);
        qr_tile_store(3, below + 64, b->c_bytes);
    }
}

static void run_block(int32_t n_tiles, int32_t n_panels, const struct block *b)
{
    QR_ASSERT(n_tiles == 1 || (n_tiles == 2 && n_panels <= 2));
    QR_ASSERT(n_panels == 1 || n_panels == 2 || (n_panels == GROUP && !b->onto));
    if (n_tiles == 2 && n_panels == 2)
        block_2(2, b);
    else if (n_tiles == 2)
        block_2(1, b);
    else if (n_panels == GROUP)
        block_1(GROUP, b);
    else if (n_panels == 2)
        block_1(2, b);
    else
        block_1(1, b);
}

/* (sum + bias) + old for n_rows rows of n columns at output o. */
static void finish(const struct qr_linear_args *a, const float *sums, int64_t stride, int32_t row, int32_t n_rows, int32_t o, int32_t n)
{
    for (int32_t r = 0; r < n_rows; r++) {
        float *out = a->out + (row + r) * a->out_stride + o;
        for (int32_t i = 0; i < n; i += VF_LEN) {
            int64_t len = vf_min_len(n - i);
            vf v = vf_load(sums + r * stride + i);
            if (a->bias)
                v = vf_add(v, vf_load_n(a->bias + o + i, len));
            if (a->add)
                v = vf_add(v, vf_load_n(out + i, len));
            vf_store_n(out + i, v, len);
        }
    }
}

/* Some panels of an item and a slice of k, to be multiplied with all rows. */
struct strip {
    const struct product *p;
    float *sums;                 /* of the item's panels, at these */
    int32_t panel, n_panels;
    int32_t step, n_steps;
    const char *next;            /* the weights of the next strip */
};

/* Which weights are asked for while row tiles t and t + 1 are computed: with few rows those a little further on, which stream from memory;
 * with many the next strip's, an equal part in every block. */
static void plan_ahead(const struct strip *s, int32_t t, struct block *b)
{
    int32_t n_blocks = (s->p->n_tiles + 1) / 2;
    b->ahead_panels = s->n_panels;
    b->ahead_lines = (QR_TILE_BYTES / 64 + n_blocks - 1) / n_blocks;
    b->ahead = n_blocks == 1 ? b->w + STREAM_AHEAD : s->next + (int64_t)(t / 2) * s->n_steps * b->ahead_lines * 64;
}

static void multiply_strip(const struct strip *s)
{
    const struct product *p = s->p;
    const struct qr_linear_args *a = p->a;
    int32_t o = s->panel * QR_PANEL, all = s->n_panels * QR_PANEL, n_cols = all < a->n_out - o ? all : a->n_out - o;
    bool last = s->step + s->n_steps == p->n_steps, direct = !a->bias && !a->add && n_cols == all && s->n_steps == p->n_steps;
    int32_t rows0 = 0, rows1 = 0;
    for (int32_t t = 0; t < p->n_tiles; t += 2) {
        int32_t row = p->row0 + t * QR_TILE_ROWS, n_tiles = p->n_tiles - t > 1 ? 2 : 1;
        int32_t h0 = tile_rows(p, t), h1 = n_tiles > 1 ? tile_rows(p, t + 1) : h0;
        float *sums = s->sums + t * QR_TILE_ROWS * p->sums_stride;
        struct block b = {
            .x = {tile_at(p, t, s->step), n_tiles > 1 ? tile_at(p, t + 1, s->step) : NULL},
            .x_step = {h0 * QR_TILE_ROW_BYTES, h1 * QR_TILE_ROW_BYTES},
            .w = (const char *)a->w->packed + s->panel * p->panel_bytes + (int64_t)s->step * QR_TILE_BYTES,
            .c = direct ? a->out + row * a->out_stride + o : sums,
            .c_bytes = (direct ? a->out_stride : p->sums_stride) * (int64_t)sizeof(float),
            .w_panel = p->panel_bytes,
            .out = last ? (const char *)(a->out + row * a->out_stride + o) : NULL,
            .out_bytes = a->out_stride * (int64_t)sizeof(float),
            .n_steps = s->n_steps,
            .onto = s->step > 0,
        };
        plan_ahead(s, t, &b);
        if (h0 != rows0 || h1 != rows1)
            configure(h0, h1);
        rows0 = h0;
        rows1 = h1;
        run_block(n_tiles, s->n_panels, &b);
        if (last && !direct)
            finish(a, sums, p->sums_stride, row, n_tiles > 1 ? h0 + h1 : h0, o, n_cols);
    }
}

static void multiply(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    int32_t first = item * p->panels_per_item, end = first + p->panels_per_item, width = p->n_tiles == 1 ? GROUP : 2;
    end = end < p->n_panels ? end : p->n_panels;
    float *sums = qr_queue_own(p->q, worker);
    for (int32_t step = 0; step < p->n_steps; step += p->slice_steps)
        for (int32_t panel = first, n; panel < end; panel += n) {
            for (n = width; n > end - panel;)
                n /= 2;
            bool more = panel + n < end;
            struct strip s = {
                .p = p,
                .sums = sums + (panel - first) * QR_PANEL,
                .panel = panel,
                .n_panels = n,
                .step = step,
                .n_steps = p->slice_steps < p->n_steps - step ? p->slice_steps : p->n_steps - step,
            };
            s.next = (const char *)p->a->w->packed + (more ? panel + n : first) * p->panel_bytes;
            s.next += (int64_t)(more ? step : step + s.n_steps) * QR_TILE_BYTES;
            multiply_strip(&s);
        }
    qr_tile_release();
}

/* How the work is cut; nothing of it shows in a result. */
static void plan_items(struct product *p)
{
    int32_t per_thread = p->n_tiles > 2 ? 4 : 6, fair = p->n_panels / (p->q->n_threads * per_thread);
    int32_t cached = (int32_t)((int64_t)ITEM_BYTES / p->panel_bytes), most = p->n_tiles > 2 ? ITEM_PANELS_MANY : ITEM_PANELS_MAX;
    most = cached < most && p->n_tiles <= 2 ? cached : most;
    int32_t n = (fair < most ? fair : most) / GROUP * GROUP;
    p->panels_per_item = n > GROUP ? n : GROUP;
    p->sums_stride = (p->panels_per_item + 1) * QR_PANEL;
    int32_t n_slices = p->n_tiles > 2 ? (p->n_steps + SLICE_STEPS_MAX - 1) / SLICE_STEPS_MAX : 1;
    p->slice_steps = (p->n_steps + n_slices - 1) / n_slices;
}

void qr_amx_linear(struct qr_queue *q, const struct qr_linear_args *a)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(a->n_in > 0 && a->n_out > 0 && a->n_rows >= 0);
    if (qr_dtype_is_quantized(a->w->packed_dtype)) {
        qr_amx_linear_quant(q, a);
        return;
    }
    if (a->w->packed_dtype != QR_BF16) {
        qr_avx512_linear(q, a);
        return;
    }
    struct product p = {.a = a, .q = q, .packed = (char *)q->shared, .n_steps = (a->n_in + QR_TILE_K - 1) / QR_TILE_K};
    p.n_panels = (a->n_out + QR_PANEL - 1) / QR_PANEL;
    p.panel_bytes = (int64_t)p.n_steps * QR_TILE_BYTES;
    int64_t rows_fit = (int64_t)q->shared_bytes / ((int64_t)p.n_steps * QR_TILE_ROW_BYTES);
    QR_ASSERT(rows_fit >= 1);
    rows_fit = rows_fit < CHUNK_ROWS ? rows_fit : CHUNK_ROWS;
    int64_t n_chunks = (a->n_rows + rows_fit - 1) / rows_fit;
    for (int64_t c = 0; c < n_chunks; c++) {
        p.row0 = (int32_t)(a->n_rows * c / n_chunks);
        p.n_rows = (int32_t)(a->n_rows * (c + 1) / n_chunks) - p.row0;
        p.n_tiles = (p.n_rows + QR_TILE_ROWS - 1) / QR_TILE_ROWS;
        plan_items(&p);
        if ((int64_t)p.n_rows * a->n_in < PACK_ALONE)
            qr_queue_run_here(pack_tile, &p, p.n_tiles);
        else
            qr_queue_run(q, pack_tile, &p, p.n_tiles);
        int32_t n_items = (p.n_panels + p.panels_per_item - 1) / p.panels_per_item;
        if ((int64_t)p.n_rows * a->n_in * a->n_out < WORK_ALONE)
            qr_queue_run_here(multiply, &p, n_items);
        else
            qr_queue_run(q, multiply, &p, n_items);
    }
}
