/* linear.c - out = x w^T on the tile registers, with bf16 and quantized weights; f32 weights, and few rows of integers, go to the avx512 level's
 * code.
 *
 * bf16 weights lie in panels of 16 outputs, pairs of k side by side, k padded to 32 with zeros (linear/pack.c): 1 KiB of a panel is one tile.
 * int8 weights lie as fours of k, padded to 64 (isa/quant.h): the same. Other formats become tiles in the worker's scratch, a strip at a
 * time (quant.c). Rows of x are first copied to row tiles, [step][rows][64 bytes], as bf16 or rounded to 8 bits: full ones of 16 rows and a
 * last one with the rest. Every bf16 product, down to that of a single row, goes through the same instruction in the same order of k,
 * so a row's result does not depend on its company (tile.h states the arithmetic); integers are exact. A tile of one row costs one
 * row's time; reading the weights is what is left of it.
 *
 * An item of work is some panels against all rows of a chunk. With many rows k is cut into slices, so that a slice of the panels of a block stays
 * in L1 and a slice of the rows in L2; sums wait in the worker's scratch meanwhile, as they are. A block
 * is two row tiles times two panels where k is one slice, and one times four where it is several: rows then come half as often from the
 * second level, which is what bounds it.
 *
 * With many rows for each thread an item is some rows instead, which one thread takes through all products of a chain (`multiply_owned`): packed
 * rows and results stay in its L2, and weights pass by, each panel prefetched while the one before it is multiplied.
 */
#include "base/assert.h"
#include "kernels/cpu/amx/block.h"
#include "kernels/cpu/amx/coded_block.h"
#include "kernels/cpu/amx/product.h"
#include "kernels/cpu/amx/quant.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/quant/quant.h"
#include "kernels/cpu/isa/row.h"
#include "kernels/cpu/tuned.h"

#define GROUP 4                          /* panels of an item come in fours */
#define CHUNK_ROWS 512
#define CHUNK_ROWS_STRETCH 256           /* where an item is a whole stretch of outputs */
#define MOST_BYTES (CHUNK_ROWS_STRETCH * QR_TILE_ROW_BYTES) /* of the largest outputs of a stretch, for each row of a chunk */
#define OWNED_ROWS 256                   /* of an item whose rows one thread owns: weights, from the third level, are read once for each */
#define OWNED_ROWS_MIN 96                /* with fewer for each thread they would be read too often */
#define OWNED_ROWS_MIN_LARGE 160         /* the same of a matrix that no cache keeps from step to step */
#define OWNED_WEIGHTS_LARGE ((size_t)16 << 20)
#define OWNED_BYTES (1 << 20)            /* of packed rows, half of L2: a slice of k */
#define SLICE_STEPS_MAX 18               /* tiles of k of two panels, 36 KiB; of four panels half as many */
#define STRIP_BYTES (2 * SLICE_STEPS_MAX * QR_TILE_BYTES) /* of weights: most of L1 */
#define ITEM_BYTES ((size_t)512 << 10)   /* weights of one item with few rows */
#define ITEM_PANELS_MAX 256              /* of one item with few rows; their sums need scratch */
#define ITEM_PANELS_MANY 16              /* of one item with many rows */
#define BLOCK_SUMS (4 * QR_TILE_BYTES)   /* of a block */
#define INTEGERS_FEW 4                   /* rows of integers that vectors multiply sooner */
#define PACK_ALONE 8192                  /* elements of x that one thread copies sooner than two would begin */
#define ROUND_ALONE 12288                /* and rounds to integers */
#define WORK_ALONE 65536                 /* and products: a few us for one row */
_Static_assert(CHUNK_ROWS * (ITEM_PANELS_MANY + 1) * QR_PANEL * sizeof(float) + STRIP_BYTES + MOST_BYTES <= QR_WORKER_SCRATCH_BYTES, "sums of an item");
_Static_assert(CHUNK_ROWS_STRETCH * 2 * QR_LINEAR_STRETCH * sizeof(float) + STRIP_BYTES + MOST_BYTES <= QR_WORKER_SCRATCH_BYTES,
               "sums of a stretch in two parts");
_Static_assert(2 * QR_TILE_ROWS * (ITEM_PANELS_MAX + 1) * QR_PANEL * sizeof(float) + STRIP_BYTES <= QR_WORKER_SCRATCH_BYTES,
               "sums of an item with few rows");

/* Some panels of an item and a slice of k, to be multiplied with all rows. */
struct strip {
    const struct product *p;
    float *most;                 /* of the stretch of outputs at hand, for each row */
    char *sums;                  /* of these panels: [row tile][part of a panel][16][16] */
    int64_t sums_tile;           /* bytes from row tile to row tile; 0 when no sum has to wait */
    const char *w;               /* tiles of the first part */
    int64_t w_at[PANELS_MAX];    /* bytes from w to each part */
    int32_t panel, n_panels, n_parts;
    int32_t step, n_steps;
    const char *next;            /* the weights of the next strip, where they are tiles */
};

/* Which weights are prefetched while the block of row tile t is computed: with few rows those a little further on, which stream from memory;
 * with many the next strip's, an equal part in every block. */
static void plan_ahead(const struct strip *s, int32_t t, struct block *b)
{
    int32_t n_blocks = (s->p->n_tiles + s->p->height - 1) / s->p->height;
    if (s->p->unpack)
        return;
    b->ahead_panels = s->n_parts;
    b->ahead_lines = (QR_TILE_BYTES / 64 + n_blocks - 1) / n_blocks;
    b->ahead = n_blocks == 1 ? b->w + qr_stream_ahead(s->p->panels_per_item * (s->p->up ? 2 : 1) * s->p->panel_bytes)
                             : s->next + (int64_t)(t / s->p->height) * s->n_steps * b->ahead_lines * 64;
}

static void multiply_strip(const struct strip *s, struct leaving *leaving)
{
    const struct product *p = s->p;
    const struct qr_linear_args *a = p->a;
    const int32_t o = s->panel * QR_PANEL;
    const int64_t out_bytes = a->out_stride * (int64_t)sizeof(float), tile_bytes = (int64_t)s->n_parts * QR_TILE_BYTES;
    const bool last = s->step + s->n_steps == p->n_steps, whole = o + s->n_panels * QR_PANEL <= a->n_out;
    const bool direct = last && whole && !a->bias && !a->add && !a->glu && !a->stretches && !p->integers; /* sums are results */
    int32_t rows0 = 0, rows1 = 0;
    for (int32_t t = 0; t < p->n_tiles; t += p->height) {
        const int32_t row = t * QR_TILE_ROWS, n_tiles = p->n_tiles - t > 1 ? p->height : 1;
        const int32_t h0 = tile_rows(p, t), h1 = n_tiles > 1 ? tile_rows(p, t + 1) : h0;
        char *out = (char *)(a->out + (p->row0 + row) * a->out_stride + o);
        char *at = s->sums_tile ? s->sums + t * s->sums_tile : leaving->sums == s->sums ? s->sums + BLOCK_SUMS : s->sums;
        struct sums sums = {at, QR_TILE_ROW_BYTES, QR_TILE_BYTES, tile_bytes};
        struct block b = {
            .x = {tile_at(p, t, s->step), n_tiles > 1 ? tile_at(p, t + 1, s->step) : NULL},
            .x_step = {h0 * QR_TILE_ROW_BYTES, h1 * QR_TILE_ROW_BYTES},
            .w = s->w,
            .w_at = s->w_at,
            .to = direct ? (struct sums){out, out_bytes, QR_TILE_ROW_BYTES, QR_TILE_ROWS * out_bytes} : sums,
            .out = last && !p->next ? out : NULL,
            .out_bytes = out_bytes,
            .n_steps = s->n_steps,
            .leaving = leaving,
        };
        plan_leaving(leaving, s->n_steps);
        if (s->step > 0)
            b.from = sums;
        plan_ahead(s, t, &b);
        if (h0 != rows0 || h1 != rows1)
            configure(h0, h1);
        rows0 = h0;
        rows1 = h1;
        run_block(p->integers, n_tiles, s->n_parts, &b);
        qr_amx_finish_some(leaving, INT32_MAX);
        if (last && !direct)
            *leaving = (struct leaving){.p = p, .sums = at, .below = tile_bytes, .most = s->most, .row = row,
                                        .n_rows = n_tiles > 1 ? h0 + h1 : h0, .panel = s->panel, .n_panels = s->n_panels};
    }
}

/* The panel whose weights part i of a strip is. Gates and their ups alternate. */
static int32_t part_panel(const struct strip *s, int32_t i)
{
    return s->p->up ? s->panel + i / 2 + i % 2 * s->p->up : s->panel + i;
}

/* The strip's weights: where they are tiles, or in scratch as tiles. next_panel and next_step: where the next strip begins. */
static void strip_weights(struct strip *s, char *scratch, int32_t next_panel, int32_t next_step)
{
    const struct product *p = s->p;
    const char *packed = weights_at(p, s->panel, s->step), *next = weights_at(p, next_panel, next_step);
    s->w = p->unpack ? scratch : packed;
    s->next = next;
    for (int32_t i = 0; i < s->n_parts; i++)
        s->w_at[i] = p->unpack ? (int64_t)i * s->n_steps * QR_TILE_BYTES : (part_panel(s, i) - s->panel) * p->panel_bytes;
    for (int32_t i = 0; p->is_coded && i < s->n_parts; i++)
        qr_amx_unpack_coded(scratch + s->w_at[i], &p->coded, panel_at(p, part_panel(s, i)), s->step, s->n_steps, next - packed);
    for (int32_t i = 0; p->unpack && !p->is_coded && i < s->n_parts; i++)
        qr_amx_unpack(scratch + s->w_at[i], panel_at(p, part_panel(s, i)), p->head_bytes, s->step, s->n_steps, next - packed);
}

/* Panels [first, end) of coded weights with one row tile. Those of 4 and 5 bits come one by one, as one stream from memory: two and four are
 * slower. */
static void multiply_coded(const struct product *p, int32_t first, int32_t end, char *scratch)
{
    const int32_t h = tile_rows(p, 0);
    const int64_t ahead = qr_stream_ahead(p->panels_per_item * (p->up ? 2 : 1) * p->panel_bytes);
    if (p->transposed)
        qr_amx_configure_transposed(h);
    else
        configure(h, h);
    for (int32_t panel = first, n; panel < end; panel += n) {
        for (n = p->transposed ? 1 : PANELS_MAX / p->each; n > end - panel;)
            n /= 2;
        struct strip s = {.p = p, .panel = panel, .n_panels = n, .n_parts = n * p->each};
        struct coded_block b = {.type = p->type, .shape = &p->coded, .x = {tile_at(p, 0, 0)}, .x_step = {(int64_t)h * QR_TILE_ROW_BYTES}, .room = scratch,
                                .sums = scratch + CODED_ROOM_BYTES, .ahead = ahead, .skip = (n - 1) * p->panel_bytes, .n_tiles = 1,
                                .n_rows = h, .n_steps = p->n_steps, .skip_step = p->n_steps - (int32_t)(ahead * p->n_steps / p->panel_bytes)};
        for (int32_t i = 0; i < s.n_parts; i++)
            b.panel[i] = (const uint8_t *)panel_at(p, part_panel(&s, i));
        qr_amx_coded_block(s.n_parts, &b);
        struct leaving leaving = {.p = p, .sums = b.sums, .most = (float *)(void *)(scratch + p->q->own_bytes - MOST_BYTES), .n_rows = h, .panel = panel,
                                  .n_panels = n};
        qr_amx_finish_some(&leaving, INT32_MAX);
    }
}

/* Panels [first, end) of coded weights with up to CODED_TILES_MAX row tiles; results follow while the next panel is computed. */
static void multiply_coded_tiles(const struct product *p, int32_t first, int32_t end, char *scratch)
{
    const int64_t ahead = qr_stream_ahead(p->panels_per_item * (p->up ? 2 : 1) * p->panel_bytes);
    float *most = (float *)(void *)(scratch + p->q->own_bytes - MOST_BYTES);
    struct leaving leaving = {0};
    struct coded_block b = {.type = p->type, .shape = &p->coded, .room = scratch, .below = p->each * QR_TILE_BYTES, .leaving = &leaving, .ahead = ahead,
                            .n_tiles = p->n_tiles, .n_rows = QR_TILE_ROWS, .n_steps = p->n_steps,
                            .skip_step = p->n_steps - (int32_t)(ahead * p->n_steps / p->panel_bytes)};
    QR_ASSERT(p->n_tiles > 1 && p->n_tiles <= CODED_TILES_MAX);
    for (int32_t t = 0; t < p->n_tiles; t++) {
        b.x[t] = tile_at(p, t, 0);
        b.x_step[t] = (int64_t)tile_rows(p, t) * QR_TILE_ROW_BYTES;
    }
    if (p->transposed)
        configure(QR_TILE_ROWS, QR_TILE_ROWS);
    else
        qr_amx_configure_below(p->n_tiles, tile_rows(p, p->n_tiles - 1));
    for (int32_t panel = first; panel < end; panel++) {
        const struct strip s = {.p = p, .panel = panel, .n_panels = 1, .n_parts = p->each};
        char *sums = scratch + CODED_ROOM_BYTES + panel % 2 * CODED_SUMS_BYTES;
        for (int32_t i = 0; i < p->each; i++) {
            b.panel[0] = (const uint8_t *)panel_at(p, part_panel(&s, i));
            b.sums = sums + i * QR_TILE_BYTES;
            plan_leaving(&leaving, p->n_steps);
            qr_amx_coded_block(1, &b);
        }
        qr_amx_finish_some(&leaving, INT32_MAX);
        leaving = (struct leaving){.p = p, .sums = sums, .below = b.below, .most = most, .n_rows = p->n_rows, .panel = panel, .n_panels = 1};
    }
    qr_amx_finish_some(&leaving, INT32_MAX);
}

/* Whether coded weights become tiles while those before them are multiplied. */
static bool streams(const struct product *p)
{
    return p->transposed || (p->is_coded && p->n_tiles <= CODED_TILES_MAX && !coded_is_left(&p->coded));
}

static void multiply(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    const int32_t first = item * p->panels_per_item, each = p->each, width = p->width / each;
    const int32_t end = first + p->panels_per_item < p->n_panels ? first + p->panels_per_item : p->n_panels;
    const bool waits = p->slice_steps < p->n_steps;
    const int32_t after = end < p->n_panels ? end : first; /* a thread that owns its rows goes on there */
    char *scratch = qr_queue_own(p->q, worker), *sums = scratch + STRIP_BYTES;
    struct leaving leaving = {0};
    const bool coded = streams(p);
    if (coded)
        (p->n_tiles == 1 ? multiply_coded : multiply_coded_tiles)(p, first, end, scratch);
    for (int32_t step = 0; !coded && step < p->n_steps; step += p->slice_steps)
        for (int32_t panel = first, n; panel < end; panel += n) {
            for (n = width; n > end - panel;)
                n /= 2;
            const bool more = panel + n < end;
            struct strip s = {
                .p = p,
                .most = (float *)(void *)(scratch + p->q->own_bytes - MOST_BYTES),
                .sums = waits ? sums + (int64_t)(panel - first) * each * p->n_tiles * QR_TILE_BYTES : sums,
                .sums_tile = waits ? (int64_t)n * each * QR_TILE_BYTES : 0,
                .panel = panel,
                .n_panels = n,
                .n_parts = n * each,
                .step = step,
                .n_steps = p->slice_steps < p->n_steps - step ? p->slice_steps : p->n_steps - step,
            };
            const bool done = !more && step + s.n_steps == p->n_steps;
            strip_weights(&s, scratch, more ? panel + n : done ? after : first, more ? step : done ? 0 : step + s.n_steps);
            multiply_strip(&s, &leaving);
        }
    qr_amx_finish_some(&leaving, INT32_MAX);
    qr_tile_release();
    if (p->a->stretches && p->a->stretches->sum)
        row_sums(p->a, p->row0, p->n_rows, first * QR_PANEL, end * QR_PANEL);
}

/* Panels of an item whose sums find room when they wait. */
static int32_t sums_fit(const struct product *p)
{
    return (int32_t)((int64_t)(p->q->own_bytes - STRIP_BYTES - MOST_BYTES) / QR_TILE_BYTES / p->n_tiles / p->each);
}

/* How the work is cut; nothing of it shows in a result. */
static void plan_items(struct product *p)
{
    const bool many = p->n_tiles > 2 && !streams(p);
    const int32_t per_thread = p->items ? p->items : many ? 4 : 3, fair = p->n_panels / (p->q->n_threads * per_thread);
    int32_t cached = qr_nearly_stretches(p->a, (int32_t)((int64_t)ITEM_BYTES / p->panel_bytes)), most = (many ? ITEM_PANELS_MANY : ITEM_PANELS_MAX) / p->each;
    most = cached < most && !many ? cached : most;
    most = sums_fit(p) < most ? sums_fit(p) : most;
    int32_t n = (fair < most ? fair : most) / GROUP * GROUP;
    p->panels_per_item = qr_item_panels(p->a, n > GROUP ? n : GROUP);
    p->height = p->n_tiles == 1 || (many && p->n_steps > SLICE_STEPS_MAX) ? 1 : 2;
    p->width = p->height == 1 ? PANELS_MAX : 2;
    int32_t strip_max = STRIP_BYTES / QR_TILE_BYTES / p->width;
    int32_t steps_max = many || p->unpack ? strip_max : p->n_steps;
    int32_t n_slices = (p->n_steps + steps_max - 1) / steps_max;
    p->slice_steps = (p->n_steps + n_slices - 1) / n_slices;
}

/* Weights of 4 and 5 bits meet few row tiles as the left operand (coded_table.h). Of a single step's tiles more might be read than a buffer of results has. */
static bool transposes(const struct product *p)
{
    return p->is_coded && coded_is_left(&p->coded) && (p->n_tiles == 1 || (p->n_tiles <= CODED_TILES_MAX && p->n_steps > 1));
}

static void transpose_one(const void *arg, int32_t t, int32_t worker)
{
    (void)worker;
    qr_amx_transpose_tile(arg, t);
}

static void pack_chunk(struct product *p)
{
    p->n_tiles = (p->n_rows + QR_TILE_ROWS - 1) / QR_TILE_ROWS;
    p->transposed = transposes(p);
    p->scale = (float *)(void *)p->q->shared;
    p->sum = (int32_t *)(void *)(p->scale + p->n_tiles * QR_TILE_ROWS);
    p->packed = (char *)p->q->shared + chunk_head(p->n_rows);
    if (p->a->x_tiles && !p->transposed) {
        p->packed = given_tiles(p);
        return;
    }
    const bool small = (int64_t)p->n_rows * p->a->n_in < (p->integers ? ROUND_ALONE : PACK_ALONE);
    qr_queue_run_if(p->q, !small, qr_amx_pack_tile, p, p->n_tiles);
}

static void multiply_chunk(struct product *p)
{
    plan_items(p);
    const int32_t n_items = (p->n_panels + p->panels_per_item - 1) / p->panels_per_item;
    qr_queue_run_if(p->q, (int64_t)p->n_rows * p->a->n_in * p->a->n_out >= WORK_ALONE, multiply, p, n_items);
}

/* Products in a row of which one thread does all for some rows, from packing to results: these stay in its L2, weights pass by. */
struct chain {
    const struct qr_chain_args *a;
    struct product p[QR_CHAIN_MAX];
    int64_t bytes;      /* of an item's scratch: row tiles of the product at hand, their scales and sums */
    int32_t rows;       /* of an item; a multiple of two row tiles */
};

/* As plan_items: x in slices that stay in L2 while some panels pass by. */
static void plan_owned(struct product *p)
{
    p->n_tiles = (p->n_rows + QR_TILE_ROWS - 1) / QR_TILE_ROWS;
    p->panels_per_item = ITEM_PANELS_MANY / p->each;
    p->height = p->n_tiles > 1 ? 2 : 1;
    p->width = p->height == 1 ? PANELS_MAX : 2;
    const int32_t cached = OWNED_BYTES / QR_TILE_BYTES / p->n_tiles;
    const int32_t strip_max = STRIP_BYTES / QR_TILE_BYTES / p->width;
    const int32_t steps_max = p->unpack ? strip_max : cached;
    const int32_t n_slices = (p->n_steps + steps_max - 1) / steps_max;
    p->slice_steps = (p->n_steps + n_slices - 1) / n_slices;
}

/* The last line of a row's tiles has a half that no result becomes. */
static void clear_last_step(const struct product *p)
{
    for (int32_t t = 0; t < p->n_tiles; t++)
        memset(tile_at(p, t, p->n_steps - 1), 0, (size_t)tile_rows(p, t) * QR_TILE_ROW_BYTES);
}

/* Whether a gated product's results become the row tiles of the product with `next`, which is the only one to read them. Whatever the number of rows, as
 * room is made for no more than that. */
static bool passes_tiles(const struct qr_linear_args *a, const struct qr_weight *next)
{
    const enum qr_dtype type[] = {a->w->packed_dtype, next->packed_dtype};
    for (int32_t i = 0; i < 2; i++)
        if (type[i] == QR_F32 || qr_dtype_is_quantized(type[i]))
            return false;
    return a->glu && qr_linear_pairs(a);
}

/* Of a row's tiles with n_in inputs. */
static int64_t tiled_row_bytes(int64_t n_in)
{
    return (n_in + QR_TILE_K - 1) / QR_TILE_K * QR_TILE_ROW_BYTES;
}

int64_t qr_amx_passing_bytes(const struct qr_linear_args *a, const struct qr_weight *next)
{
    QR_ASSERT(a != NULL && a->w != NULL && next != NULL);
    QR_ASSERT(a->n_rows >= 0 && a->n_out % 2 == 0);
    const int64_t n_cols = a->n_out / 2;
    if (passes_tiles(a, next))
        return a->n_rows * tiled_row_bytes(n_cols) + CODED_READ_PAST;
    return a->n_rows * n_cols * (int64_t)sizeof(float);
}

/* Where the tiles of rows from row0 on begin, which belong to one item or chunk. */
static char *passed_tiles(const struct qr_linear_args *a, int32_t row0)
{
    return (char *)a->out + row0 * tiled_row_bytes(a->n_out / 2);
}

/* Rows of a product come in chunks of which the tiles find room. */
struct chunks {
    int64_t unit, n_units, n; /* chunks are whole row tiles, where one fits */
    int32_t n_rows;
};

static struct chunks cut_rows(const struct product *p, int32_t chunk_rows)
{
    const struct qr_linear_args *a = p->a;
    const int64_t row_bytes = (int64_t)p->n_steps * QR_TILE_ROW_BYTES, room = (int64_t)p->q->shared_bytes - chunk_head(chunk_rows) - CODED_READ_PAST;
    const int64_t fit = room / row_bytes;
    QR_ASSERT(fit >= (a->x_tiles ? QR_TILE_ROWS : 1));
    struct chunks c = {.unit = fit >= QR_TILE_ROWS ? QR_TILE_ROWS : 1, .n_rows = a->n_rows};
    const int64_t units_fit = (fit < chunk_rows ? fit : chunk_rows) / c.unit;
    c.n_units = (a->n_rows + c.unit - 1) / c.unit;
    c.n = (c.n_units + units_fit - 1) / units_fit;
    return c;
}

static void take_chunk(struct product *p, const struct chunks *c, int64_t i)
{
    const int64_t end = c->n_units * (i + 1) / c->n * c->unit;
    p->row0 = (int32_t)(c->n_units * i / c->n * c->unit);
    p->n_rows = (int32_t)(end < c->n_rows ? end : c->n_rows) - p->row0;
}

/* A chunk of a gated product, whose results become row tiles, and the product that reads them. */
static void pass_chunk(struct product p[2])
{
    p[1].n_tiles = (p[1].n_rows + QR_TILE_ROWS - 1) / QR_TILE_ROWS;
    p[1].packed = passed_tiles(p[0].a, p[0].row0);
    p[1].transposed = false;
    clear_last_step(&p[1]);
    pack_chunk(&p[0]);
    multiply_chunk(&p[0]);
    p[1].transposed = transposes(&p[1]);
    if (p[1].transposed)
        qr_queue_run_if(p[1].q, (int64_t)p[1].n_rows * p[1].a->n_in >= PACK_ALONE, transpose_one, &p[1], p[1].n_tiles);
    multiply_chunk(&p[1]);
}

/* A gated product and the one that reads nothing but its results: these become that one's row tiles at once. False: nothing was done. */
static bool run_passing(struct qr_queue *q, const struct qr_linear_args *a)
{
    if (!a[0].passing || !passes_tiles(&a[0], a[1].w))
        return false;
    QR_UNINITIALIZED struct product p[2];
    for (int32_t i = 0; i < 2; i++) {
        p[i] = (struct product){.a = &a[i], .q = q, .items = qr_tuned_linear(q, &a[i])};
        qr_amx_plan_product(&p[i]);
    }
    p[0].next = &p[1];
    qr_amx_plan_finish(&p[0]);
    const struct chunks c = cut_rows(&p[0], CHUNK_ROWS);
    for (int64_t i = 0; i < c.n; i++) {
        take_chunk(&p[0], &c, i);
        take_chunk(&p[1], &c, i);
        pass_chunk(p);
    }
    return true;
}

static void multiply_owned(const void *arg, int32_t item, int32_t worker)
{
    const struct chain *c = arg;
    const int32_t n_all = c->a->linear[0].n_rows, row0 = item * c->rows, n_rows = n_all - row0 < c->rows ? n_all - row0 : c->rows;
    char *scratch = (char *)c->p[0].q->shared + item * c->bytes;
    QR_UNINITIALIZED struct product p[QR_CHAIN_MAX];
    for (int32_t i = 0; i < c->a->n; i++) {
        p[i] = c->p[i];
        p[i].row0 = row0;
        p[i].n_rows = n_rows;
        p[i].scale = (float *)(void *)scratch;
        p[i].sum = (int32_t *)(void *)(p[i].scale + c->rows);
        p[i].packed = i > 0 && c->p[i - 1].next ? passed_tiles(p[i - 1].a, row0) : (char *)(p[i].sum + c->rows);
        plan_owned(&p[i]);
        if (p[i].a->x_tiles)
            p[i].packed = given_tiles(&p[i]);
    }
    for (int32_t i = 0; i < c->a->n; i++) {
        if (c->p[i].next) {
            p[i].next = &p[i + 1];
            qr_amx_plan_finish(&p[i]);
            clear_last_step(p[i].next);
        }
        const bool given = c->a->linear[i].x_tiles || (i > 0 && c->p[i - 1].next);
        for (int32_t t = 0; t < p[i].n_tiles && !given; t++)
            qr_amx_pack_tile(&p[i], t, worker);
        for (int32_t first = 0; first < p[i].n_panels; first += p[i].panels_per_item)
            multiply(&p[i], first / p[i].panels_per_item, worker);
    }
    if (c->a->heads)
        qr_amx_qkv_rows(c->a->heads, row0, row0 + n_rows);
}

/* Rows for each thread from which it is worth while that every thread reads all weights. */
static int32_t owned_rows_min(const struct qr_chain_args *a)
{
    for (int32_t i = 0; i < a->n; i++)
        if (qr_amx_linear_packed_bytes(a->linear[i].w->packed_dtype, a->linear[i].n_out, a->linear[i].n_in) > OWNED_WEIGHTS_LARGE)
            return OWNED_ROWS_MIN_LARGE;
    return OWNED_ROWS_MIN;
}

/* Rows of an item: nearly OWNED_ROWS, as many items for each thread. 0: too few rows. */
static int32_t owned_rows(const struct qr_queue *q, const struct qr_chain_args *a)
{
    const int32_t block = 2 * QR_TILE_ROWS, n_threads = q->n_threads, n_rows = a->linear[0].n_rows;
    if (n_rows < n_threads * OWNED_ROWS_MIN || n_rows < n_threads * owned_rows_min(a))
        return 0;
    const int32_t rounds = (n_rows + n_threads * OWNED_ROWS - 1) / (n_threads * OWNED_ROWS), each = (n_rows - 1) / (n_threads * rounds) + 1;
    return (each + block - 1) / block * block;
}

/* Whether this product can be one of a chain; then it is planned. */
static bool plan_link(struct chain *c, int32_t i, struct qr_queue *q)
{
    const struct qr_linear_args *a = &c->a->linear[i];
    const int64_t rows = c->rows;
    if (a->w->packed_dtype == QR_F32 || (a->glu && !qr_linear_pairs(a)) || a->stretches)
        return false;
    struct product *p = &c->p[i];
    *p = (struct product){.a = a, .q = q};
    qr_amx_plan_product(p);
    const int64_t bytes = rows * (int64_t)(sizeof *p->scale + sizeof *p->sum) + rows * p->n_steps * QR_TILE_ROW_BYTES;
    if (i > 0 && a[-1].passing && passes_tiles(&a[-1], a->w))
        p[-1].next = p;
    else
        c->bytes = bytes > c->bytes ? bytes : c->bytes;
    return true;
}

/* False: nothing was done. */
static bool run_owned(struct qr_queue *q, const struct qr_chain_args *a)
{
    struct chain c = {.a = a, .rows = owned_rows(q, a)};
    if (c.rows == 0)
        return false;
    for (int32_t i = 0; i < a->n; i++)
        if (!plan_link(&c, i, q))
            return false;
    const int32_t n_items = (a->linear[0].n_rows + c.rows - 1) / c.rows;
    if (c.bytes * n_items > (int64_t)q->shared_bytes)
        return false;
    qr_queue_run(q, multiply_owned, &c, n_items);
    return true;
}

void qr_amx_linear(struct qr_queue *q, const struct qr_linear_args *a)
{
    QR_ASSERT(a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(a->n_in > 0 && a->n_in <= qr_linear_inputs_max(a->w->packed_dtype) && a->n_out > 0 && a->n_rows >= 0);
    QR_ASSERT(!a->stretches || (!a->add && !a->glu));
    QR_ASSERT(!a->x_tiles || (!a->norm_w && !a->glu && a->w->packed_dtype != QR_F32));
    const bool integers = qr_dtype_is_quantized(a->w->packed_dtype);
    if (a->w->packed_dtype == QR_F32 || (integers && a->n_rows <= INTEGERS_FEW)) {
        qr_avx512_linear(q, a);
        return;
    }
    if (a->glu && !qr_linear_pairs(a)) {
        qr_avx512_glu_apart(q, a, qr_amx_linear);
        return;
    }
    const struct qr_chain_args alone = {.linear = a, .n = 1};
    if (run_owned(q, &alone))
        return;
    struct product p = {.a = a, .q = q, .items = qr_tuned_linear(q, a)};
    qr_amx_plan_product(&p);
    const int32_t chunk_rows = a->stretches ? CHUNK_ROWS_STRETCH : CHUNK_ROWS;
    const struct chunks c = cut_rows(&p, chunk_rows);
    for (int64_t i = 0; i < c.n; i++) {
        take_chunk(&p, &c, i);
        pack_chunk(&p);
        multiply_chunk(&p);
    }
}

void qr_amx_chain(struct qr_queue *q, const struct qr_chain_args *a)
{
    QR_ASSERT(a != NULL && a->n >= 1 && a->n <= QR_CHAIN_MAX);
    if (run_owned(q, a))
        return;
    for (int32_t i = 0; i < a->n; i++)
        if (i + 1 < a->n && run_passing(q, &a->linear[i]))
            i++;
        else
            qr_amx_linear(q, &a->linear[i]);
    if (a->heads)
        qr_amx_qkv(q, a->heads);
}

void qr_amx_experts(struct qr_queue *q, const struct qr_experts_args *a)
{
    qr_avx512_experts_by(q, a, qr_amx_linear);
}
