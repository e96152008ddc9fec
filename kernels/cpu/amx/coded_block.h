/* coded_block.h - one row tile times some panels of coded weights, from the first input to the last: while tiles are multiplied, the next become bf16, which
 * keeps another unit busy, and sums stay in tile registers. Included by linear.c only. */
#ifndef QR_KERNELS_CPU_AMX_CODED_BLOCK_H
#define QR_KERNELS_CPU_AMX_CODED_BLOCK_H

#include "kernels/cpu/amx/block.h"
#include "kernels/cpu/isa/coded_vectors.h"

struct coded_block {
    const struct qr_coded_shape *shape;
    const char *x;                       /* the row tile */
    int64_t x_step;                      /* bytes from k to k */
    const uint8_t *panel[PANELS_MAX];
    char *room;                          /* two steps' tiles: a tile is read long after it was written, when it has left the store buffer */
    char *sums;                          /* tile after tile */
    int64_t ahead, skip;                 /* bytes: weights that far on are asked for, behind a panel's end `skip` further: the panels between are at hand */
    int32_t n_steps, skip_step;          /* from this step on */
};
#define CODED_ROOM_BYTES (2 * PANELS_MAX * QR_TILE_BYTES)

VF_FN void coded_unpack_step(const int bits, const int nt, const struct coded_block *b, const struct coded_levels *levels, int32_t step)
{
    const int64_t ahead = step < b->skip_step ? b->ahead : b->ahead + b->skip;
#pragma GCC unroll 4
    for (int i = 0; i < nt; i++)
        coded_unpack_32(bits, (uint8_t *)b->room + (step % 2 * PANELS_MAX + i) * QR_TILE_BYTES, b->shape, b->panel[i], step * QR_TILE_K, &levels[i], ahead);
}

VF_FN void coded_multiply_step(const int nt, const struct coded_block *b, int32_t step)
{
    const char *w = b->room + step % 2 * PANELS_MAX * QR_TILE_BYTES;
    qr_tile_load(4, b->x + step * b->x_step, QR_TILE_ROW_BYTES);
    qr_tile_load(6, w, QR_TILE_ROW_BYTES);
    qr_tile_dp(0, 4, 6);
    if (nt > 1) {
        qr_tile_load(7, w + QR_TILE_BYTES, QR_TILE_ROW_BYTES);
        qr_tile_dp(1, 4, 7);
    }
    if (nt > 2) {
        qr_tile_load(6, w + 2 * QR_TILE_BYTES, QR_TILE_ROW_BYTES);
        qr_tile_dp(2, 4, 6);
        qr_tile_load(7, w + 3 * QR_TILE_BYTES, QR_TILE_ROW_BYTES);
        qr_tile_dp(3, 4, 7);
    }
}

VF_FN void coded_block_of(const int bits, const int nt, const struct coded_block *b)
{
    struct coded_levels levels[PANELS_MAX];
    const struct sums to = {b->sums, QR_TILE_ROW_BYTES, QR_TILE_BYTES, 0};
    for (int i = 0; i < nt; i++)
        levels[i] = coded_levels_of(bits, b->panel[i]);
    zero_sums();
    coded_unpack_step(bits, nt, b, levels, 0);
    for (int32_t step = 1; step < b->n_steps; step++) {
        coded_unpack_step(bits, nt, b, levels, step);
        coded_multiply_step(nt, b, step - 1);
    }
    coded_multiply_step(nt, b, b->n_steps - 1);
    EACH_SUM(qr_tile_store, to, nt);
}

#define CODED_BLOCK(bits, nt)                                             \
    static void coded_block_##bits##_##nt(const struct coded_block *b)    \
    {                                                                     \
        coded_block_of(bits, nt, b);                                      \
    }
CODED_BLOCK(4, 1)
CODED_BLOCK(4, 2)
CODED_BLOCK(4, 4)
CODED_BLOCK(8, 1)
CODED_BLOCK(8, 2)
CODED_BLOCK(8, 4)

static void run_coded_block(int32_t bits, int32_t nt, const struct coded_block *b)
{
    QR_ASSERT(nt == 1 || nt == 2 || nt == PANELS_MAX);
    QR_ASSERT(bits == 4 || bits == 8);
    if (bits == 4)
        nt == 1 ? coded_block_4_1(b) : nt == 2 ? coded_block_4_2(b) : coded_block_4_4(b);
    else
        nt == 1 ? coded_block_8_1(b) : nt == 2 ? coded_block_8_2(b) : coded_block_8_4(b);
}

#endif
