/* product.h - one product on the tile registers: how its operands lie, rows on their way in, sums on their way out (product.c). Inside this folder only. */
#ifndef QR_KERNELS_CPU_AMX_PRODUCT_H
#define QR_KERNELS_CPU_AMX_PRODUCT_H

#include "base/assert.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

struct piece;
typedef void finish_fn(const struct piece *e);

/* One chunk of rows. A part is a panel of tiles that a panel of weights becomes. */
struct product {
    const struct qr_linear_args *a;
    struct qr_queue *q;
    int32_t items; /* for each thread, as measured (tuned.h); 0: as plan_items has it */
    float *scale;                 /* of each row, where rows are integers */
    int32_t *sum;                 /* of each row's integers */
    char *packed;                 /* the chunk's x, row tile after row tile */
    bool integers, unpack;        /* what is multiplied, with scales; weights are unpacked */
    enum qr_dtype type;
    bool is_coded;
    bool transposed;                  /* row tiles as [16 pairs of k][rows][2] instead of [rows][32]: weights are the left operand */
    struct qr_coded_shape coded;
    int32_t tile_k;               /* inputs of a tile */
    int32_t row0, n_rows;         /* of the chunk */
    int32_t n_tiles;              /* row tiles */
    int32_t n_steps, slice_steps; /* tiles of k: all, and of a slice */
    int32_t height, width;        /* of a block: row tiles, parts */
    int32_t each;                 /* tiles of sums of a panel: one, or those of gates and ups */
    int32_t n_panels, panels_per_item; /* with a gated unit: of gates */
    const struct product *next;   /* whose row tiles the results become; NULL: they go to out */
    finish_fn *finish;
    int32_t n_cols;               /* of out */
    int32_t up;                   /* panels from gates to their ups; 0: there is no unit */
    int64_t panel_bytes, head_bytes, step_bytes; /* of packed weights: a panel, what is in front of its weights, one step of them */
};

static inline int32_t tile_rows(const struct product *p, int32_t t)
{
    int32_t rest = p->n_rows - t * QR_TILE_ROWS;
    return rest < QR_TILE_ROWS ? rest : QR_TILE_ROWS;
}

/* Row tile t at its k number `step`. */
static inline char *tile_at(const struct product *p, int32_t t, int32_t step)
{
    return p->packed + ((int64_t)t * QR_TILE_ROWS * p->n_steps + (int64_t)step * tile_rows(p, t)) * QR_TILE_ROW_BYTES;
}

/* The chunk's row tiles as they were handed over. */
static inline char *given_tiles(const struct product *p)
{
    QR_ASSERT(p->row0 % QR_TILE_ROWS == 0 && p->a->n_in % QR_TILE_K == 0);
    return (char *)(uintptr_t)(p->a->x_tiles + (int64_t)p->row0 * p->a->n_in);
}

static inline const char *panel_at(const struct product *p, int32_t panel)
{
    return (const char *)p->a->w->packed + panel * p->panel_bytes;
}

/* Its weights from that step on. */
static inline const char *weights_at(const struct product *p, int32_t panel, int32_t step)
{
    const char *at = panel_at(p, panel);
    if (!p->is_coded)
        return at + p->head_bytes + step * p->step_bytes;
    const int32_t k = step * QR_TILE_K;
    return (const char *)qr_coded_block(&p->coded, (const uint8_t *)at, k) + qr_coded_codes_at(&p->coded, k);
}

/* A block's sums on their way to results: n_panels panels of n_rows rows from row `row` of the chunk and panel `panel` on. Tiles of 16 rows of
 * sums lie `below` bytes apart. */
struct leaving {
    const struct product *p;
    const char *sums;
    int64_t below;
    float *most;          /* as in struct piece */
    int32_t row, n_rows, panel, n_panels;
    int32_t i, r;         /* the next: panel and row */
    int32_t wait, every, at_once; /* steps of k until some more are finished, from then to then, and how many */
};

/* Plans p, whose a, q and t are set: how the weights lie and what is multiplied. */
void qr_amx_plan_product(struct product *p);
/* The way out for p: anew where p->next came after its plan. */
void qr_amx_plan_finish(struct product *p);
/* Row tile t of a product (struct product) as the product meets it, by any worker. */
void qr_amx_pack_tile(const void *product, int32_t t, int32_t worker);
/* Row tile t from [rows][32] to [16 pairs of k][rows][2], in place. */
void qr_amx_transpose_tile(const struct product *p, int32_t t);
/* The next n rows of panels, of as many as there are. */
void qr_amx_finish_some(struct leaving *l, int32_t n);

/* Spreads what is left over the n_steps steps of a block, some rows at a time. The first wait for the sums to arrive in memory. */
static inline void plan_leaving(struct leaving *l, int32_t n_steps)
{
    const int32_t n = l->n_panels * l->n_rows, least = 4, first = 4;
    l->at_once = (n + n_steps - 1) / n_steps;
    l->at_once = l->at_once < least ? least : (l->at_once + least - 1) / least * least;
    l->every = l->at_once < n ? n_steps / ((n + l->at_once - 1) / l->at_once) : 1;
    l->every = l->every > 1 ? l->every : 1;
    l->wait = n_steps >= 2 * first ? first : 1;
}

VF_FN void finish_now_and_then(struct leaving *l)
{
    if (l->n_panels == 0 || --l->wait > 0)
        return;
    l->wait = l->every;
    qr_amx_finish_some(l, l->at_once);
}

/* Scratch of a chunk of n rows: scales and sums of whole tiles, then tiles. */
static inline int64_t chunk_head(int64_t n)
{
    return (n + QR_TILE_ROWS - 1) / QR_TILE_ROWS * QR_TILE_ROWS * (int64_t)(sizeof(float) + sizeof(int32_t));
}

#endif
