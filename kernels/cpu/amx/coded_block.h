/* coded_block.h - one row tile times some panels of coded weights, or up to four times one panel, from the first input to the last: while tiles are
 * multiplied, the next become bf16, which keeps other units busy, and sums stay in tile registers. Weights of 6 and 8 bits are the right operand, as bf16
 * ones are; weights of 4 and 5 bits, whose tiles are rows of outputs, the left one: the rows come transposed (product.h), and sums leave as columns. Inside
 * this folder only. */
#ifndef QR_KERNELS_CPU_AMX_CODED_BLOCK_H
#define QR_KERNELS_CPU_AMX_CODED_BLOCK_H

#include "kernels/cpu/amx/block.h"

#define CODED_TILES_MAX 4 /* row tiles that meet a panel at once: as many as there are tiles of sums */
#define CODED_READ_PAST 64 /* bytes behind the last row tile that may be read: transposed ones are loaded 16 rows wide */

struct coded_block {
    enum qr_dtype type;
    const struct qr_coded_shape *shape;
    const char *x[CODED_TILES_MAX];      /* row tiles */
    int64_t x_step[CODED_TILES_MAX];     /* bytes from k to k */
    const uint8_t *panel[PANELS_MAX];
    char *room;                          /* two or four steps' tiles: a tile is read long after it was written, when it has left the store buffer */
    char *sums;                          /* tile after tile; those of row tiles lie `below` bytes apart */
    int64_t below;
    struct leaving *leaving;             /* of several row tiles: as in struct block */
    int64_t ahead, skip;                 /* bytes: weights that far on are prefetched, behind a panel's end `skip` further: the panels between are at hand */
    int32_t n_tiles, n_rows;             /* row tiles; rows of the first */
    int32_t n_steps, skip_step;          /* tiles of k; from this step on */
};
#define CODED_ROOM_BYTES (2 * PANELS_MAX * QR_TILE_BYTES) /* four steps' of two panels */
#define CODED_SUMS_BYTES (2 * CODED_TILES_MAX * QR_TILE_BYTES) /* of gates and their ups */

/* Tiles as the blocks of weights of 4 and 5 bits with one row tile of n_rows rows expect them. */
void qr_amx_configure_transposed(int32_t n_rows);

/* Tiles as the blocks of weights of 6 and 8 bits with several row tiles expect them; all but the last have 16 rows. */
void qr_amx_configure_below(int32_t n_tiles, int32_t last_rows);

/* nt: panels, 1 or 2, with 6 and 8 bits PANELS_MAX as well, with several row tiles 1. Of three row tiles a fourth's sums are written as well. */
void qr_amx_coded_block(int32_t nt, const struct coded_block *b);

#endif
