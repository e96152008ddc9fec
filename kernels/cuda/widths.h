/* widths.h - rows that stay in registers: how many threads a row of some width gets, and how many numbers each. It depends on the width alone, so
 * a row's sums are the same in any company. For .cu files. */
#ifndef QR_KERNELS_CUDA_WIDTHS_H
#define QR_KERNELS_CUDA_WIDTHS_H

#include "kernels/cuda/num.h"

#define QR_ROW_THREADS 256   /* of a block of eight rows or of one; the widest rows get up to 1,024 */
#define QR_ROW_THREADS_OF(warps) ((warps) == 1 ? QR_ROW_THREADS : (warps) * QR_WARP)
#define QR_ROW_COLS_MAX 32768

/* The row of this warp or block, and the first number of this thread in it; numbers lie FOURS float4 apart from each other by QR_ROW_STEP(WARPS). */
#define QR_ROW_STEP(warps) ((warps) * QR_WARP * 4)
template <int WARPS> QR_DEVICE int64_t qr_row_of_thread()
{
    return WARPS == 1 ? (int64_t)blockIdx.x * (QR_ROW_THREADS / QR_WARP) + threadIdx.x / QR_WARP : (int64_t)blockIdx.x;
}

template <int WARPS> QR_DEVICE int32_t qr_col_of_thread()
{
    return 4 * (int32_t)(WARPS == 1 ? threadIdx.x % QR_WARP : threadIdx.x);
}

/* Calls MACRO(fours, warps) with the numbers for rows of n_cols. */
#define QR_FOR_WIDTH(n_cols, MACRO)            \
    do {                                       \
        if ((n_cols) <= 128)                   \
            MACRO(1, 1);                       \
        else if ((n_cols) <= 256)              \
            MACRO(2, 1);                       \
        else if ((n_cols) <= 512)              \
            MACRO(4, 1);                       \
        else if ((n_cols) <= 1024)             \
            MACRO(1, 8);                       \
        else if ((n_cols) <= 2048)             \
            MACRO(2, 8);                       \
        else if ((n_cols) <= 4096)             \
            MACRO(4, 8);                       \
        else if ((n_cols) <= 8192)             \
            MACRO(4, 16);                      \
        else if ((n_cols) <= 16384)            \
            MACRO(4, 32);                      \
        else                                   \
            MACRO(8, 32);                      \
    } while (0)

/* LAUNCH(fours, warps, vec), where rows of float4 have kernels made for their width and others (few: odd widths, odd strides) those of a wider one: numbers
 * that are not there add 0 to a thread's chain, so with as many warps the sums are the same. */
#define QR_FOR_ROWS(n_cols, vec, LAUNCH)           \
    do {                                           \
        if (vec)                                   \
            QR_FOR_WIDTH(n_cols, LAUNCH##_FOURS);  \
        else if ((n_cols) <= 512)                  \
            LAUNCH(4, 1, false);                   \
        else if ((n_cols) <= 4096)                 \
            LAUNCH(4, 8, false);                   \
        else if ((n_cols) <= 8192)                 \
            LAUNCH(4, 16, false);                  \
        else                                       \
            LAUNCH(8, 32, false);                  \
    } while (0)

/* The same for sums of rows of a width that is known later, with any number of threads. */
struct qr_row_shape {
    int32_t fours, warps;
};

static inline struct qr_row_shape qr_row_shape_of(int32_t n_cols)
{
    struct qr_row_shape s = {0, 0};
#define SET(f, w) s.fours = f, s.warps = w
    QR_FOR_WIDTH(n_cols, SET);
#undef SET
    return s;
}

/* Blocks and threads of a launch over n rows. */
static inline unsigned int qr_row_blocks(int64_t n_rows, int warps)
{
    return warps == 1 ? qr_blocks(n_rows, QR_ROW_THREADS / QR_WARP) : (unsigned int)n_rows;
}

/* 1 / sqrt(mean + eps) of a row of n numbers, of which this thread has v (zeros behind the end). */
template <int FOURS, int WARPS> QR_DEVICE float qr_inverse_rms(const float4 v[FOURS], int32_t n, float eps, float *partial)
{
    float sum = 0;
    for (int j = 0; j < FOURS; j++)
        sum = qr_dot4(sum, v[j], v[j]);
    sum = qr_block_sum<WARPS>(sum, partial);
    return 1.0f / sqrtf(sum / (float)n + eps);
}

#endif
