/* tiles.h - rows of which every number is computed on its own: a block takes QR_TILE_FOURS float4 a thread of one row, or of several where rows are short. All
 * are loaded before the first is needed. For .cu files. */
#ifndef QR_KERNELS_CUDA_TILES_H
#define QR_KERNELS_CUDA_TILES_H

#include "kernels/cuda/num.h"

#define QR_TILE_THREADS 256
#define QR_TILE_FOURS 4

struct qr_tiles {
    int32_t n_rows, n_fours; /* float4 of a row, the last one perhaps not whole */
    int32_t lanes;           /* threads side by side in a row: a power of two */
    int32_t per_row;         /* blocks side by side */
};

static inline struct qr_tiles qr_tiles_of(int32_t n_rows, int32_t n_cols)
{
    struct qr_tiles t = {n_rows, (n_cols + 3) / 4, 1, 1};
    while (t.lanes < QR_TILE_THREADS && t.lanes * QR_TILE_FOURS < t.n_fours)
        t.lanes *= 2;
    t.per_row = (t.n_fours + t.lanes * QR_TILE_FOURS - 1) / (t.lanes * QR_TILE_FOURS);
    return t;
}

static inline unsigned int qr_tile_blocks(struct qr_tiles t)
{
    const int64_t rows_of_block = QR_TILE_THREADS / t.lanes;
    return (unsigned int)((t.n_rows + rows_of_block - 1) / rows_of_block * t.per_row);
}

/* The row of this thread (which may be n_rows or more) and its first column; its float4 are 4 * lanes columns apart. */
QR_DEVICE int64_t qr_tile_row(struct qr_tiles t, int32_t *col)
{
    const int32_t beside = (int32_t)blockIdx.x % t.per_row, below = (int32_t)blockIdx.x / t.per_row;
    *col = 4 * (beside * t.lanes * QR_TILE_FOURS + (int32_t)threadIdx.x % t.lanes);
    return (int64_t)below * (QR_TILE_THREADS / t.lanes) + (int32_t)threadIdx.x / t.lanes;
}

#endif
