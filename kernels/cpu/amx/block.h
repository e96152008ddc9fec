/* block.h - one or two row tiles times some panels of tiles, over a slice of k. Inside this folder only.
 *
 * Tiles 0-3 are sums, 4 and 5 rows of x, 6 and 7 panels of w. The sums of two row tiles lie 0 1 above 2 3. Rows of x come from L2
 * past L1, which is left to the weights that the next row tiles meet again. Integers: tdpbsud multiplies
 * signed bytes of x by unsigned bytes of w; else tdpbf16ps (tile.h states its arithmetic). */
#ifndef QR_KERNELS_CPU_AMX_BLOCK_H
#define QR_KERNELS_CPU_AMX_BLOCK_H

#include "base/assert.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/amx/product.h"
#include "kernels/cpu/isa/simd.h"

#define PANELS_MAX 4 /* of a block of one row tile; two row tiles meet two at most */

/* Where sums lie: row by row, panel by panel, and the second row tile, in bytes. */
struct sums {
    char *at;
    int64_t row, panel, below;
};

struct block {
    const char *x[2], *w;
    int64_t x_step[2];   /* bytes from a row tile's k to the next */
    const int64_t *w_at; /* bytes from w to each panel */
    struct sums from;    /* sums to go on with; at NULL: they begin at 0 */
    struct sums to;
    const char *ahead;   /* weights that come later: per step, ahead_lines cache lines of each of ahead_panels panels are prefetched */
    int32_t ahead_lines, ahead_panels;
    const char *out;     /* where two row tiles' results will be written, to prefetch meanwhile; NULL: not yet */
    int64_t out_bytes;   /* from row to row of out */
    struct leaving *leaving; /* sums of the block before: their way out takes turns with this one's products, which keep another unit busy */
    int32_t n_steps;
};

static inline void configure(int32_t rows0, int32_t rows1)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = QR_TILE_ROW_BYTES;
        c.rows[t] = (uint8_t)(t >= 6 ? QR_TILE_ROWS : t == 2 || t == 3 || t == 5 ? rows1 : rows0);
    }
    qr_tile_configure(&c);
}

VF_FN void prefetch_ahead(const struct block *b, int32_t step)
{
    const char *p = b->ahead + (int64_t)step * b->ahead_lines * 64;
    for (int32_t j = 0; j < b->ahead_panels; j++)
        for (int32_t i = 0; i < b->ahead_lines; i++)
            _mm_prefetch(p + b->w_at[j] + i * 64, _MM_HINT_T1);
}

/* The rows of out, spread over the steps: a store to a line that is not at hand would wait for it. */
VF_FN void prefetch_out(const struct block *b, int32_t step)
{
    const int32_t first = step * 2 * QR_TILE_ROWS / b->n_steps, end = (step + 1) * 2 * QR_TILE_ROWS / b->n_steps;
    if (!b->out)
        return;
    for (int32_t r = first; r < end; r++) {
        __builtin_prefetch(b->out + r * b->out_bytes, 1, 3);
        __builtin_prefetch(b->out + r * b->out_bytes + 64, 1, 3);
    }
}

#define MULTIPLY(c, a, b)               \
    do {                                \
        if (integers)                   \
            qr_tile_dp_bytes(c, a, b);  \
        else                            \
            qr_tile_dp(c, a, b);        \
    } while (0)

/* Sums number i at panel j of s, which n panels have. */
#define EACH_SUM(DO, s, nt)                              \
    do {                                                 \
        DO(0, (s).at, (s).row);                          \
        if ((nt) > 1)                                    \
            DO(1, (s).at + (s).panel, (s).row);          \
        if ((nt) > 2) {                                  \
            DO(2, (s).at + 2 * (s).panel, (s).row);      \
            DO(3, (s).at + 3 * (s).panel, (s).row);      \
        }                                                \
    } while (0)

#define EACH_SUM_OF_TWO(DO, s, nt)                                       \
    do {                                                                 \
        DO(0, (s).at, (s).row);                                          \
        DO(2, (s).at + (s).below, (s).row);                              \
        if ((nt) > 1) {                                                  \
            DO(1, (s).at + (s).panel, (s).row);                          \
            DO(3, (s).at + (s).below + (s).panel, (s).row);              \
        }                                                                \
    } while (0)

VF_FN void zero_sums(void)
{
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
}

/* One row tile against nt panels. */
VF_FN void block_1(const bool integers, const int nt, const struct block *b)
{
    const char *x = b->x[0], *w = b->w;
    const int64_t at1 = nt > 1 ? b->w_at[1] : 0, at2 = nt > 2 ? b->w_at[2] : 0, at3 = nt > 2 ? b->w_at[3] : 0;
    zero_sums();
    if (b->from.at)
        EACH_SUM(qr_tile_load, b->from, nt);
    for (int32_t k = 0; k < b->n_steps; k++, x += b->x_step[0], w += QR_TILE_BYTES) {
        qr_tile_load_past(4, x, QR_TILE_ROW_BYTES);
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);
        MULTIPLY(0, 4, 6);
        if (nt > 1) {
            qr_tile_load(7, w + at1, QR_TILE_ROW_BYTES);
            MULTIPLY(1, 4, 7);
        }
        if (nt > 2) {
            qr_tile_load(6, w + at2, QR_TILE_ROW_BYTES);
            MULTIPLY(2, 4, 6);
            qr_tile_load(7, w + at3, QR_TILE_ROW_BYTES);
            MULTIPLY(3, 4, 7);
        }
        finish_now_and_then(b->leaving);
        prefetch_ahead(b, k);
    }
    EACH_SUM(qr_tile_store, b->to, nt);
}

/* Two row tiles against nt panels. */
VF_FN void block_2(const bool integers, const int nt, const struct block *b)
{
    const char *x0 = b->x[0], *x1 = b->x[1], *w = b->w;
    const int64_t at1 = nt > 1 ? b->w_at[1] : 0;
    zero_sums();
    if (b->from.at)
        EACH_SUM_OF_TWO(qr_tile_load, b->from, nt);
    for (int32_t k = 0; k < b->n_steps; k++, x0 += b->x_step[0], x1 += b->x_step[1], w += QR_TILE_BYTES) {
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);
        qr_tile_load_past(4, x0, QR_TILE_ROW_BYTES);
        MULTIPLY(0, 4, 6);
        qr_tile_load_past(5, x1, QR_TILE_ROW_BYTES);
        MULTIPLY(2, 5, 6);
        if (nt > 1) {
            qr_tile_load(7, w + at1, QR_TILE_ROW_BYTES);
            MULTIPLY(1, 4, 7);
            MULTIPLY(3, 5, 7);
        }
        finish_now_and_then(b->leaving);
        prefetch_ahead(b, k);
        prefetch_out(b, k);
    }
    EACH_SUM_OF_TWO(qr_tile_store, b->to, nt);
}

#define RUN_BLOCK(integers)                     \
    do {                                        \
        if (n_tiles == 2 && n_panels == 2)      \
            block_2(integers, 2, b);            \
        else if (n_tiles == 2)                  \
            block_2(integers, 1, b);            \
        else if (n_panels == PANELS_MAX)        \
            block_1(integers, PANELS_MAX, b);   \
        else if (n_panels == 2)                 \
            block_1(integers, 2, b);            \
        else                                    \
            block_1(integers, 1, b);            \
    } while (0)

static inline void run_block(bool integers, int32_t n_tiles, int32_t n_panels, const struct block *b)
{
    QR_ASSERT(n_tiles == 1 || (n_tiles == 2 && n_panels <= 2));
    QR_ASSERT(n_panels == 1 || n_panels == 2 || n_panels == PANELS_MAX);
    if (integers)
        RUN_BLOCK(true);
    else
        RUN_BLOCK(false);
}

#endif
