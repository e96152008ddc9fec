/* products.h - what products and their gradients share: rows rounded to bf16 in scratch, tiles of 16-byte chunks in shared memory. For .cu files. */
#ifndef QR_KERNELS_CUDA_PRODUCTS_H
#define QR_KERNELS_CUDA_PRODUCTS_H

#include "kernels/cuda/num.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/queue.h"

#define QR_CHUNK 8 /* bf16 numbers of 16 bytes */

/* Rows of x, normed where there is norm_w, as bf16 rows `to_stride` (a multiple of 8) apart, zeros behind the last number. */
struct qr_narrow {
    uint16_t *to;
    const float *x, *norm_w;
    int64_t to_stride, x_stride;
    int32_t n_rows, n_cols;
    float eps;
};
void qr_cuda_narrow(struct qr_queue *q, const struct qr_narrow *a);

/* Rows of x as E4M3 bytes, each with its scale. */
struct qr_eights {
    uint8_t *to;
    float *scale;
    const float *x;
    int64_t to_stride, x_stride; /* to_stride: a multiple of 16 */
    int32_t n_rows, n_cols;
};
void qr_cuda_round_rows(struct qr_queue *q, const struct qr_eights *a);

static inline int64_t qr_whole_chunks(int64_t n)
{
    return (n + QR_CHUNK - 1) / QR_CHUNK * QR_CHUNK;
}

/* Chunk c of row r of a tile of `width` numbers a row, a multiple of 64. Eight neighbouring rows have a chunk in eight different groups of banks. */
QR_DEVICE uint16_t *qr_chunk_in(uint16_t *tile, int width, int r, int c)
{
    return tile + r * width + (c ^ (r & 7)) * QR_CHUNK;
}

template <int WIDTH> QR_DEVICE uint16_t *qr_chunk_of(uint16_t *tile, int r, int c)
{
    static_assert(WIDTH % 64 == 0, "eight chunks a row");
    return qr_chunk_in(tile, WIDTH, r, c);
}

/* A chunk whose row is not aligned to 16 bytes: its first n numbers, then zeros. */
QR_DEVICE void qr_copy_chunk(uint16_t *to, const uint16_t *from, int32_t n)
{
    uint32_t h[QR_CHUNK];
#pragma unroll
    for (int i = 0; i < QR_CHUNK; i++)
        h[i] = i < n ? from[i] : 0;
    *(uint4 *)to = make_uint4(h[0] | h[1] << 16, h[2] | h[3] << 16, h[4] | h[5] << 16, h[6] | h[7] << 16);
}

#endif
