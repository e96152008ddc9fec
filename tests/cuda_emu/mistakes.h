/* mistakes.h - small kernels for the tests of the emulated device: right ones, and one with each kind of mistake. Device pointers, but where said. */
#ifndef QR_TESTS_CUDA_EMU_MISTAKES_H
#define QR_TESTS_CUDA_EMU_MISTAKES_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Right. */
void right_block_sums(cudaStream_t s, float *out, const float *x, int32_t n_blocks);              /* out[b] = sum of x[256 b ..] */
void right_last_block_sum(cudaStream_t s, float *out, float *partial, uint32_t *counter, const float *x, int32_t n_blocks);
void right_product(cudaStream_t s, float *out, const uint16_t *a, const uint16_t *b);           /* [16, 8] = a [16, 32] b [32, 8], bf16 row-major */
void right_product_s8(cudaStream_t s, int32_t *out, const int8_t *a, const int8_t *b);          /* [16, 8] = a [16, 32] b [8, 32] transposed */
void right_product_tf32(cudaStream_t s, float *out, const float *a, const float *b);            /* [16, 8] = a [16, 8] b [8, 8] */
void right_votes(cudaStream_t s, uint32_t *out);                                                /* [8][32] */
void right_atomics(cudaStream_t s, int32_t *out);                                               /* [8] */
void right_add(cudaStream_t s, float *x, float by, int32_t n);
void right_named_barriers(cudaStream_t s, float *out, const float *x);                          /* out[i] = x[127 - i], 128 numbers */

/* Wrong, each in its own way: what[] of which. n: numbers of x, which are in [0, n). */
enum wrong {
    WRONG_NO_BARRIER,
    WRONG_NO_WARP_BARRIER,
    WRONG_OTHER_BARRIER,
    WRONG_LEFT_BEFORE_BARRIER,
    WRONG_BARRIER_NOBODY_ELSE,
    WRONG_SHUFFLE_FULL_MASK,
    WRONG_SHUFFLE_NOT_NAMED,
    WRONG_SHUFFLE_FROM_OUTSIDE,
    WRONG_NO_WAIT_NO_BARRIER,
    WRONG_SHARED_WRITE,
    WRONG_DYNAMIC_READ,
    WRONG_GLOBAL_READ,
    WRONG_ALIGNMENT,
    WRONG_TWO_BLOCKS,
    WRONG_LDMATRIX,
    WRONG_NAMED_BARRIER,
    WRONG_COUNT
};
void wrong_run(cudaStream_t s, enum wrong which, float *out, const float *x, int32_t n);
void wrong_no_wait(cudaStream_t s, float *out, const float *x); /* out[i] = x[i] of 32, but nobody waited */
void wrong_too_much_shared(cudaStream_t s, float *out);         /* 64 KiB that nobody allowed: the launch fails, the error is left for the caller */
void wrong_shared_of_both_kinds(cudaStream_t s, float *out);    /* 24 KiB of arrays beside 32 KiB of the launch: 48 may be had unasked */

/* Kernels of QR_LAUNCH_NEXT: out[i] = w[i] + y[i] behind y[i] = 2 x[i], i < 32; the second right, or wrong in its own way. */
enum early {
    EARLY_RIGHT,
    EARLY_READS,    /* y before it waits */
    EARLY_READS_OF_TWO_BEFORE,
    EARLY_COPIES,   /* likewise by cp.async */
    EARLY_WRITES,   /* x before it waits */
    EARLY_LEAVES,   /* and never waits */
    EARLY_APART,    /* reads y before it waits, but is not launched early */
    EARLY_BULK,     /* lets the copy engine read y behind a fence, which is right */
    EARLY_BULK_UNFENCED,
    EARLY_COUNT
};
void early_run(cudaStream_t s, enum early which, float *out, float *y, float *x, const float *w);

#ifdef __cplusplus
}
#endif
#endif
