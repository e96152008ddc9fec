/* linear.c - out = x w^T on the tile registers, with bf16 and quantized weights; f32 weights, and few rows of integers, go to the avx512 level's
 * code.
 *
 * bf16 weights lie in panels of 16 outputs, pairs of k side by side, k padded to 32 with zeros (linear_pack.c): 1 KiB of a panel is one tile.
 * int8 weights lie as fours of k, padded to 64 (isa/quant.h): the same. Other formats become tiles in the worker's scratch, a strip at a
 * time (quant.c). Rows of x are first copied to row tiles, [step][rows][64 bytes], as bf16 or rounded to 8 bits: full ones of 16 rows and a
 * last one with the rest. Every bf16 product, down to that of a single row, goes through the same instruction in the same order of k,
 * so a row's result does not depend on its company (tile.h states the arithmetic); integers are exact. A tile of one row costs one
 * row's time; reading the weights is what is left of it.
 *
 * An item of work is some panels against all rows of a chunk. With many rows k is cut into slices, so that a slice of the panels of a block stays
 * in the first-level cache and a slice of the rows in the second-level one; sums wait in the worker's scratch meanwhile, as they are. A block
 * is two row tiles times two panels where k is one slice, and one times four where it is several: rows then come half as often from the
 * second level, which is what bounds it.
 */
#include "base/assert.h"
#include "kernels/cpu/amx/block.h"
#include "kernels/cpu/amx/quant.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/micro.h"
#include "kernels/cpu/isa/quant_vectors.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/tuned.h"

#define GROUP 4                          /* panels of an item come in fours */
#define CHUNK_ROWS 512
#define SLICE_STEPS_MAX 18               /* tiles of k of two panels, 36 KiB; of four panels half as many */
#define STRIP_BYTES (2 * SLICE_STEPS_MAX * QR_TILE_BYTES) /* of weights: most of a first-level cache */
#define ITEM_BYTES ((size_t)512 << 10)   /* weights of one item with few rows */
#define ITEM_PANELS_MAX 256              /* of one item with few rows; their sums need scratch */
#define ITEM_PANELS_MANY 16              /* of one item with many rows */
#define INTEGERS_FEW 4                   /* rows of integers that vectors multiply sooner */
#define PACK_ALONE 32768                 /* elements of x that one thread copies sooner than two would begin */
#define WORK_ALONE 65536                 /* products, likewise: a few us for one row */
#define STREAM_AHEAD 8192                /* bytes: how far ahead weights are asked for that are used once */
_Static_assert(CHUNK_ROWS * (ITEM_PANELS_MANY + 1) * QR_PANEL * sizeof(float) + STRIP_BYTES <= QR_WORKER_SCRATCH_BYTES, "sums of an item");
_Static_assert(2 * QR_TILE_ROWS * (ITEM_PANELS_MAX + 1) * QR_PANEL * sizeof(float) + STRIP_BYTES <= QR_WORKER_SCRATCH_BYTES,
               "sums of an item with few rows");

/* One chunk of rows. A part is a panel of tiles that a panel of weights becomes: one, or two for 12-bit integers. */
struct product {
    const struct qr_linear_args *a;
    struct qr_queue *q;
    const struct qr_tunables *t;
    float *scale;                 /* of each row, where rows are integers */
    int32_t *sum;                 /* of each row, likewise */
    char *packed;                 /* the chunk's x, row tile after row tile */
    bool integers, scaled, unpack; /* what is multiplied; weights have scales; they are unpacked */
    enum qr_dtype type;
    int32_t parts, tile_k;        /* inputs of a tile */
    int32_t row0, n_rows;         /* of the chunk */
    int32_t n_tiles;              /* row tiles */
    int32_t n_steps, slice_steps; /* tiles of k: all, and of a slice */
    int32_t height, width;        /* of a block: row tiles, parts */
    int32_t each;                 /* tiles of sums of a panel: its parts, or those of gates and ups */
    int32_t n_panels, panels_per_item; /* with a gated unit: of gates */
    int32_t up;                   /* panels from gates to their ups; 0: there is no unit */
    int64_t panel_bytes, head_bytes, step_bytes; /* of packed weights: a panel, what is in front of its weights, one step of them */
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

static const char *panel_at(const struct product *p, int32_t panel)
{
    return (const char *)p->a->w->packed + panel * p->panel_bytes;
}

/* Numbers of x as the product meets them: times what the norm says, where there is one. */
VF_FN vf load_x(const float *x, const float *norm_w, vf inverse, int64_t n)
{
    vf v = vf_load_n(x, n);
    return norm_w ? vf_mul(vf_mul(v, inverse), vf_load_n(norm_w, n)) : v;
}

/* 32 numbers from k on, of which n are there, as bf16. Denormal numbers become 0, as they would in the product. */
VF_FN void pack_line(char *dst, const float *x, const float *norm_w, vf inverse, int64_t n)
{
    vf low = load_x(x, norm_w, inverse, vf_min_len(n)), high = vf_zero();
    if (n > VF_LEN)
        high = load_x(x + VF_LEN, norm_w ? norm_w + VF_LEN : NULL, inverse, vf_min_len(n - VF_LEN));
    _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

static void pack_tile(const void *arg, int32_t t, int32_t worker)
{
    const struct product *p = arg;
    const int32_t n = tile_rows(p, t), n_in = p->a->n_in, row = t * QR_TILE_ROWS;
    const float *x = p->a->x + (p->row0 + row) * p->a->x_stride, *w = p->a->norm_w;
    if (p->integers) {
        qr_amx_round_rows(tile_at(p, t, 0), p->scale + row, p->sum + row, p->a, p->row0 + row, n, qr_queue_own(p->q, worker));
        return;
    }
    for (int32_t r = 0; r < n; r++, x += p->a->x_stride) {
        char *dst = tile_at(p, t, 0) + r * QR_TILE_ROW_BYTES;
        const vf inverse = w ? row_inverse_rms(x, n_in, p->a->eps) : vf_zero();
        for (int32_t k = 0; k < n_in; k += QR_TILE_K, dst += n * QR_TILE_ROW_BYTES)
            pack_line(dst, x + k, w ? w + k : NULL, inverse, n_in - k < QR_TILE_K ? n_in - k : QR_TILE_K);
    }
}

/* Some panels of an item and a slice of k, to be multiplied with all rows. */
struct strip {
    const struct product *p;
    char *sums;                  /* of these panels: [row tile][part of a panel][16][16] */
    int64_t sums_tile;           /* bytes from row tile to row tile; 0 when no sum has to wait */
    const char *w;               /* tiles of the first part */
    int64_t w_at[PANELS_MAX];    /* bytes from w to each part */
    int32_t panel, n_panels, n_parts;
    int32_t step, n_steps;
    const char *next;            /* the weights of the next strip, where they are tiles */
};

/* What a panel's outputs have in common. */
struct scales {
    vf scale, bias;
};

VF_FN struct scales scales_of(const struct product *p, int32_t panel, int64_t n)
{
    return (struct scales){p->scaled ? vf_load((const float *)(const void *)panel_at(p, panel)) : vf_zero(),
                           p->a->bias ? vf_load_n(p->a->bias + panel * QR_PANEL, n) : vf_zero()};
}

/* (sum * scales) + bias for row `row` of the chunk. */
VF_FN vf value_at(const struct product *p, const char *sums, int32_t row, const struct scales *s)
{
    vf v = vf_load((const float *)(const void *)sums);
    if (p->integers)
        v = vf_mul(sums_value((const int32_t *)(const void *)sums, QR_TILE_BYTES / 4, p->parts, p->sum[row], p->sum[row]),
                   vf_mul(vf_set1(p->scale[row]), s->scale));
    else if (p->scaled)
        v = vf_mul(v, s->scale);
    return p->a->bias ? vf_add(v, s->bias) : v;
}

/* What becomes of the sums of n_rows rows of panel `panel`; rows of sums are 64 bytes, tiles of 16 rows `below` bytes apart. With a unit,
 * the sums of its ups lie a tile behind. */
static void finish(const struct product *p, const char *sums, int64_t below, int32_t row, int32_t n_rows, int32_t panel)
{
    const struct qr_linear_args *a = p->a;
    const int32_t o = panel * QR_PANEL;
    const int64_t n = vf_min_len(a->n_out - o);
    const struct scales scales = scales_of(p, panel, n), up = scales_of(p, panel + p->up, n);
    for (int32_t r = 0; r < n_rows; r++) {
        const char *at = sums + r / QR_TILE_ROWS * below + r % QR_TILE_ROWS * QR_TILE_ROW_BYTES;
        float *out = a->out + (p->row0 + row + r) * a->out_stride + o;
        vf v = value_at(p, at, row + r, &scales);
        if (p->up)
            v = row_glu(v, value_at(p, at + QR_TILE_BYTES, row + r, &up), a->act);
        if (a->add)
            v = vf_add(v, vf_load_n(out, n));
        vf_store_n(out, v, n);
    }
}

/* Which weights are asked for while the block of row tile t is computed: with few rows those a little further on, which stream from memory;
 * with many the next strip's, an equal part in every block. */
static void plan_ahead(const struct strip *s, int32_t t, struct block *b)
{
    int32_t n_blocks = (s->p->n_tiles + s->p->height - 1) / s->p->height;
    if (s->p->unpack)
        return;
    b->ahead_panels = s->n_parts;
    b->ahead_lines = (QR_TILE_BYTES / 64 + n_blocks - 1) / n_blocks;
    b->ahead = n_blocks == 1 ? b->w + qr_tuned(s->p->t->ahead_lines, STREAM_AHEAD / 64) * (int64_t)64
                             : s->next + (int64_t)(t / s->p->height) * s->n_steps * b->ahead_lines * 64;
}

static void multiply_strip(const struct strip *s)
{
    const struct product *p = s->p;
    const struct qr_linear_args *a = p->a;
    const int32_t o = s->panel * QR_PANEL;
    const int64_t out_bytes = a->out_stride * (int64_t)sizeof(float), tile_bytes = (int64_t)s->n_parts * QR_TILE_BYTES;
    const bool last = s->step + s->n_steps == p->n_steps, whole = o + s->n_panels * QR_PANEL <= a->n_out;
    const bool direct = last && whole && !a->bias && !a->add && !a->glu && !p->scaled; /* sums are results */
    int32_t rows0 = 0, rows1 = 0;
    for (int32_t t = 0; t < p->n_tiles; t += p->height) {
        const int32_t row = t * QR_TILE_ROWS, n_tiles = p->n_tiles - t > 1 ? p->height : 1;
        const int32_t h0 = tile_rows(p, t), h1 = n_tiles > 1 ? tile_rows(p, t + 1) : h0;
        char *out = (char *)(a->out + (p->row0 + row) * a->out_stride + o);
        struct sums sums = {s->sums + t * s->sums_tile, QR_TILE_ROW_BYTES, QR_TILE_BYTES, tile_bytes};
        struct block b = {
            .x = {tile_at(p, t, s->step), n_tiles > 1 ? tile_at(p, t + 1, s->step) : NULL},
            .x_step = {h0 * QR_TILE_ROW_BYTES, h1 * QR_TILE_ROW_BYTES},
            .w = s->w,
            .w_at = s->w_at,
            .to = direct ? (struct sums){out, out_bytes, QR_TILE_ROW_BYTES, QR_TILE_ROWS * out_bytes} : sums,
            .out = last ? out : NULL,
            .out_bytes = out_bytes,
            .n_steps = s->n_steps,
        };
        if (s->step > 0)
            b.from = sums;
        plan_ahead(s, t, &b);
        if (h0 != rows0 || h1 != rows1)
            configure(h0, h1);
        rows0 = h0;
        rows1 = h1;
        run_block(p->integers, n_tiles, s->n_parts, &b);
        for (int32_t i = 0; last && !direct && i < s->n_panels; i++)
            finish(p, sums.at + i * p->each * QR_TILE_BYTES, sums.below, row, n_tiles > 1 ? h0 + h1 : h0, s->panel + i);
    }
}

/* The panel whose weights part i of a strip is. Gates and their ups alternate. */
static int32_t part_panel(const struct strip *s, int32_t i)
{
    return s->p->up ? s->panel + i / 2 + i % 2 * s->p->up : s->panel + i / s->p->parts;
}

/* The strip's weights: where they are tiles, or in scratch as tiles. next_panel and next_step: where the next strip begins. */
static void strip_weights(struct strip *s, char *scratch, int32_t next_panel, int32_t next_step)
{
    const struct product *p = s->p;
    const char *packed = panel_at(p, s->panel) + p->head_bytes + s->step * p->step_bytes;
    const char *next = panel_at(p, next_panel) + p->head_bytes + next_step * p->step_bytes;
    s->w = p->unpack ? scratch : packed;
    s->next = next;
    for (int32_t i = 0; i < s->n_parts; i++)
        s->w_at[i] = p->unpack ? (int64_t)i * s->n_steps * QR_TILE_BYTES : (part_panel(s, i) - s->panel) * p->panel_bytes;
    for (int32_t i = 0; p->unpack && i < s->n_parts; i += p->parts)
        qr_amx_unpack(scratch + s->w_at[i], (int64_t)s->n_steps * QR_TILE_BYTES, p->type, panel_at(p, part_panel(s, i)), p->head_bytes, s->step,
                      s->n_steps, next - packed);
}

static void multiply(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    const int32_t first = item * p->panels_per_item, each = p->each, width = p->width / each;
    const int32_t end = first + p->panels_per_item < p->n_panels ? first + p->panels_per_item : p->n_panels;
    const bool waits = p->slice_steps < p->n_steps;
    char *scratch = qr_queue_own(p->q, worker), *sums = scratch + STRIP_BYTES;
    for (int32_t step = 0; step < p->n_steps; step += p->slice_steps)
        for (int32_t panel = first, n; panel < end; panel += n) {
            for (n = width; n > end - panel;)
                n /= 2;
            const bool more = panel + n < end;
            struct strip s = {
                .p = p,
                .sums = waits ? sums + (int64_t)(panel - first) * each * p->n_tiles * QR_TILE_BYTES : sums,
                .sums_tile = waits ? (int64_t)n * each * QR_TILE_BYTES : 0,
                .panel = panel,
                .n_panels = n,
                .n_parts = n * each,
                .step = step,
                .n_steps = p->slice_steps < p->n_steps - step ? p->slice_steps : p->n_steps - step,
            };
            strip_weights(&s, scratch, more ? panel + n : first, more ? step : step + s.n_steps);
            multiply_strip(&s);
        }
    qr_tile_release();
}

/* Panels of an item whose sums find room when they wait. */
static int32_t sums_fit(const struct product *p)
{
    return (int32_t)((int64_t)(p->q->own_bytes - STRIP_BYTES) / QR_TILE_BYTES / p->n_tiles / p->each);
}

/* How the work is cut; nothing of it shows in a result. */
static void plan_items(struct product *p)
{
    const bool many = p->n_tiles > 2;
    int32_t per_thread = qr_tuned(p->t->items_per_thread, many ? 4 : 6), fair = p->n_panels / (p->q->n_threads * per_thread);
    int32_t cached = (int32_t)((int64_t)ITEM_BYTES / p->panel_bytes), most = (many ? ITEM_PANELS_MANY : ITEM_PANELS_MAX) / p->each;
    most = qr_tuned(p->t->item_panels, cached < most && !many ? cached : most);
    most = sums_fit(p) < most ? sums_fit(p) : most;
    int32_t n = (fair < most ? fair : most) / GROUP * GROUP;
    p->panels_per_item = n > GROUP ? n : GROUP;
    p->height = p->n_tiles == 1 ? 1 : qr_tuned(p->t->block_rows, many && p->n_steps > SLICE_STEPS_MAX ? 16 : 32) <= QR_TILE_ROWS ? 1 : 2;
    p->width = p->height == 1 ? PANELS_MAX : 2;
    int32_t strip_max = STRIP_BYTES / QR_TILE_BYTES / p->width;
    int32_t steps_max = qr_tuned_most(p->t->slice_steps, many || p->unpack ? strip_max : p->n_steps, p->unpack ? strip_max : p->n_steps);
    int32_t n_slices = (p->n_steps + steps_max - 1) / steps_max;
    p->slice_steps = (p->n_steps + n_slices - 1) / n_slices;
}

/* How the weights lie and what is multiplied. */
static void plan_weights(struct product *p)
{
    const struct qr_linear_args *a = p->a;
    const enum qr_dtype type = p->type = a->w->packed_dtype;
    p->parts = 1;
    p->tile_k = QR_TILE_K;
    if (qr_dtype_is_quantized(type)) {
        const struct qr_quant_format f = qr_dtype_format(type);
        p->integers = !f.weight_only;
        p->scaled = true;
        p->unpack = f.group > 0 || f.weight_only;
        p->parts = qr_quant_parts(f);
        p->tile_k = p->integers ? 2 * QR_TILE_K : QR_TILE_K;
        p->panel_bytes = qr_quant_panel_bytes(type, a->n_in);
        p->head_bytes = qr_quant_head_bytes(type, a->n_in);
        p->step_bytes = (int64_t)p->tile_k * QR_PANEL * f.bits / 8;
    }
    p->n_steps = (a->n_in + p->tile_k - 1) / p->tile_k;
    p->up = a->glu ? a->n_out / 2 / QR_PANEL : 0;
    p->each = p->up ? 2 : p->parts;
    p->n_panels = p->up ? p->up : (a->n_out + QR_PANEL - 1) / QR_PANEL;
    if (!p->scaled) {
        p->panel_bytes = (int64_t)p->n_steps * QR_TILE_BYTES;
        p->step_bytes = QR_TILE_BYTES;
    }
}

/* Scratch of a chunk of n rows: scales and sums of whole tiles, then tiles. */
static int64_t chunk_head(int64_t n)
{
    return (n + QR_TILE_ROWS - 1) / QR_TILE_ROWS * QR_TILE_ROWS * (int64_t)(sizeof(float) + sizeof(int32_t));
}

static void multiply_chunk(struct product *p)
{
    const struct qr_linear_args *a = p->a;
    p->n_tiles = (p->n_rows + QR_TILE_ROWS - 1) / QR_TILE_ROWS;
    p->scale = (float *)(void *)p->q->shared;
    p->sum = (int32_t *)(void *)(p->scale + p->n_tiles * QR_TILE_ROWS);
    p->packed = (char *)p->q->shared + chunk_head(p->n_rows);
    plan_items(p);
    qr_tuned_run(p->q, p->t->pack_spread, (int64_t)p->n_rows * a->n_in < PACK_ALONE, pack_tile, p, p->n_tiles);
    int32_t n_items = (p->n_panels + p->panels_per_item - 1) / p->panels_per_item;
    qr_tuned_run(p->q, p->t->spread, (int64_t)p->n_rows * a->n_in * a->n_out < WORK_ALONE, multiply, p, n_items);
}

void qr_amx_linear(struct qr_queue *q, const struct qr_linear_args *a)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(a->n_in > 0 && a->n_in <= qr_linear_inputs_max(a->w->packed_dtype) && a->n_out > 0 && a->n_rows >= 0);
    const bool integers = qr_dtype_is_quantized(a->w->packed_dtype) && !qr_dtype_format(a->w->packed_dtype).weight_only;
    const struct qr_tunables *t = qr_tuned_linear(q, a);
    const bool vectors = qr_tuned(t->unit, a->n_rows <= INTEGERS_FEW ? QR_UNIT_VECTORS : QR_UNIT_TILES) == QR_UNIT_VECTORS;
    if (a->w->packed_dtype == QR_F32 || (integers && vectors)) {
        qr_avx512_linear(q, a);
        return;
    }
    if (a->glu && !qr_linear_pairs(a)) {
        qr_avx512_glu_apart(q, a, qr_amx_linear);
        return;
    }
    struct product p = {.a = a, .q = q, .t = t};
    plan_weights(&p);
    const int32_t chunk_rows = qr_tuned(t->chunk_rows, CHUNK_ROWS);
    const int64_t row_bytes = (int64_t)p.n_steps * QR_TILE_ROW_BYTES, room = (int64_t)q->shared_bytes - chunk_head(chunk_rows);
    int64_t rows_fit = room / row_bytes;
    QR_ASSERT(rows_fit >= 1);
    rows_fit = rows_fit < chunk_rows ? rows_fit : chunk_rows;
    int64_t n_chunks = (a->n_rows + rows_fit - 1) / rows_fit;
    for (int64_t c = 0; c < n_chunks; c++) {
        p.row0 = (int32_t)(a->n_rows * c / n_chunks);
        p.n_rows = (int32_t)(a->n_rows * (c + 1) / n_chunks) - p.row0;
        multiply_chunk(&p);
    }
}
