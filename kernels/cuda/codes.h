/* codes.h - products of up to 64 rows with codes: one matrix (linear.cu), or a matrix of a stack for each share of rows (experts.cu). For .cu files.
 *
 * Weights are most of the memory traffic, so codes go to shared memory as they are, with the rows, several stages
 * ahead, and become bf16 behind that. A block has all rows, since then each code is decoded once, by the warp whose
 * column it is. Each block reads all rows, from L2: the more columns it has, the less that is beside the codes. The
 * launcher has checked that codes come in pieces of 16 bytes (qr_product_has_pieces). */
#ifndef QR_KERNELS_CUDA_CODES_H
#define QR_KERNELS_CUDA_CODES_H

#include "kernels/cuda/product.h"

#define QR_CODES_ROWS 64
#define QR_CODES_DEPTH 64 /* inputs of a stage */
#define QR_CODES_WARPS 4
#define QR_CODES_THREADS (QR_CODES_WARPS * QR_WARP)

/* ROWS at most of a block, 16 or 64, and COLS of it, 64 or 128. Bytes, but N: tiles of eight columns a warp. */
template <int ROWS, int COLS> struct qr_codes {
    enum {
        N = COLS / QR_CODES_WARPS / 8,
        ROW_BYTES = ROWS * QR_CODES_DEPTH * 2,
        STAGE = ROW_BYTES + COLS * QR_CODES_DEPTH,
        STAGES = COLS == 64 ? 7 : 5,
        DECODED = COLS * QR_CODES_DEPTH * 2,
        ALL = STAGES * STAGE + DECODED
    };
};

template <int ROWS, int COLS>
QR_DEVICE void qr_codes_fetch(uint8_t *stage, const struct qr_product &a, const struct qr_product_place &at, int32_t k0)
{
    const struct qr_coded &c = a.coded;
    const int32_t half = qr_coded_halves(c), shift = 2 - half; /* pieces of a column: four, or two */
    qr_product_fetch_rows<ROWS, QR_CODES_DEPTH, QR_CODES_THREADS, QR_PRODUCT_ANY>((uint16_t *)stage, a, at, k0);
#pragma unroll
    for (int j = 0; j < 4 * COLS / QR_CODES_THREADS; j++) {
        const int32_t i = (int32_t)threadIdx.x + j * QR_CODES_THREADS, r = i >> shift, from = (k0 >> half) + (i & ((1 << shift) - 1)) * 16;
        const bool there = at.col0 + r < a.n_out && from < c.code_bytes;
        if (r < COLS)
            qr_cp_async_16(stage + qr_codes<ROWS, COLS>::ROW_BYTES + i * 16, there ? c.codes + (at.col0 + r) * c.code_bytes + from : c.codes, there ? 16 : 0);
    }
}

/* Eight codes, those of 4 bits in x. */
QR_DEVICE uint2 qr_codes_eight(const uint8_t *codes, int32_t i, bool half)
{
    return half ? make_uint2(*(const uint32_t *)(codes + i * 4), 0) : *(const uint2 *)(codes + i * 8);
}

/* Codes of this warp's COLS columns, the matrix' from `first` on, as bf16. */
template <int COLS> QR_DEVICE void qr_codes_decode(uint16_t *to, const uint8_t *codes, const struct qr_product &a, int32_t first, int32_t k0)
{
    const struct qr_coded &c = a.coded;
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, k = k0 + lane % 8 * QR_CHUNK;
    const int32_t unit = c.form == QR_CODED_STORED ? k / c.unit : 0, group = c.form == QR_CODED_STORED ? k / c.group : 0;
    const bool half = qr_coded_halves(c);
    uint2 next = qr_codes_eight(codes, lane, half);
#pragma unroll 2
    for (int j = 0; j < COLS / 4; j++) { /* four columns at a time; the next ones are loaded first */
        const int32_t r = 4 * j + lane / 8;
        const uint2 now = next;
        next = qr_codes_eight(codes, lane + (4 * j + 4 < COLS ? j + 1 : j) * QR_WARP, half);
        const bool there = first + r < a.n_out && k < a.n_in;
        *(uint4 *)qr_chunk_of<QR_CODES_DEPTH>(to, r, lane % 8) = there ? qr_decode(c, first + r, unit, group, now) : make_uint4(0, 0, 0, 0);
    }
}

/* The first 16 M rows with this warp's columns. */
template <int M, int TILES, int N> QR_DEVICE void qr_codes_multiply(float (&sum)[TILES][N][4], uint16_t *rows, uint16_t *weights)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
#pragma unroll
    for (int k = 0; k < QR_CODES_DEPTH / 16; k++) {
        uint32_t xa[M][4], wb[N / 2][4];
#pragma unroll
        for (int n = 0; n < N / 2; n++)
            qr_ldmatrix<4>(wb[n], qr_chunk_of<QR_CODES_DEPTH>(weights, 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < M; m++)
            qr_ldmatrix<4>(xa[m], qr_chunk_of<QR_CODES_DEPTH>(rows, 16 * m + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++)
                qr_mma_bf16(sum[m][n], xa[m], wb[n / 2] + n % 2 * 2);
    }
}

/* Rows [at.row0, at.end), at most ROWS, with COLS columns from at.col0 on. shared: qr_codes<ROWS, COLS>::ALL bytes; QR_CODES_THREADS threads. */
template <int ROWS, int COLS> QR_DEVICE void qr_codes_tile(uint8_t *shared, const struct qr_product &a, const struct qr_product_place &at)
{
    typedef struct qr_codes<ROWS, COLS> of; /* stages, then what was decoded */
    const int32_t warp = (int32_t)threadIdx.x / QR_WARP, n0 = warp * of::N * 8, n_steps = (a.n_in + QR_CODES_DEPTH - 1) / QR_CODES_DEPTH;
    const int32_t codes_at = of::ROW_BYTES + n0 * (QR_CODES_DEPTH >> (int32_t)qr_coded_halves(a.coded));
    uint16_t *decoded = (uint16_t *)(shared + of::STAGES * of::STAGE) + n0 * QR_CODES_DEPTH;
    float sum[ROWS / 16][of::N][4];
#pragma unroll
    for (int i = 0; i < ROWS / 16 * of::N * 4; i++)
        sum[i / (of::N * 4)][i / 4 % of::N][i % 4] = 0;
    for (int s = 0; s < of::STAGES - 1; s++) {
        if (s < n_steps)
            qr_codes_fetch<ROWS, COLS>(shared + s * of::STAGE, a, at, s * QR_CODES_DEPTH);
        qr_cp_async_commit();
    }
    int32_t stage = 0;
    for (int32_t step = 0; step < n_steps; step++) {
        uint8_t *now = shared + stage * of::STAGE;
        const int32_t next = step + of::STAGES - 1;
        qr_cp_async_wait<of::STAGES - 2>();
        __syncthreads(); /* this stage is there, what was read of the last one is used up */
        if (next < n_steps)
            qr_codes_fetch<ROWS, COLS>(shared + (stage > 0 ? stage - 1 : of::STAGES - 1) * of::STAGE, a, at, next * QR_CODES_DEPTH);
        qr_cp_async_commit();
        qr_codes_decode<8 * of::N>(decoded, now + codes_at, a, at.col0 + n0, step * QR_CODES_DEPTH);
        __syncwarp();
        if (ROWS > 16 && at.end - at.row0 <= ROWS / 2)
            qr_codes_multiply<ROWS == 16 ? 1 : ROWS / 32>(sum, (uint16_t *)now, decoded);
        else
            qr_codes_multiply<ROWS / 16>(sum, (uint16_t *)now, decoded);
        stage = stage + 1 < of::STAGES ? stage + 1 : 0;
    }
    qr_product_put<QR_PRODUCT_ANY>(a, at, 0, n0, sum);
}

#endif
