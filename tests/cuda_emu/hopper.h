/* hopper.h - kernels for the tests of what the emulated device knows of compute capability 9.0a: one that is right, and one with each kind of mistake. */
#ifndef QR_TESTS_CUDA_EMU_HOPPER_H
#define QR_TESTS_CUDA_EMU_HOPPER_H

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HOPPER_STEPS 5

enum hopper {
    HOPPER_RIGHT,
    HOPPER_NO_RELEASE,        /* of a stage */
    HOPPER_EARLY_RELEASE,     /* before its product was waited for */
    HOPPER_NO_BYTES,          /* announced */
    HOPPER_NO_FENCE,          /* between ordinary stores and a product of them */
    HOPPER_NO_INIT_FENCE,
    HOPPER_NO_INIT,
    HOPPER_NO_WAIT,           /* before sums are read */
    HOPPER_NO_WGMMA_FENCE,
    HOPPER_OPERAND_WRITTEN,   /* that a product still reads */
    HOPPER_WARPS_DIFFER,
    HOPPER_PRODUCT_LEFT,
    HOPPER_COPY_LEFT,
    HOPPER_REGISTERS,
    HOPPER_MANY_ARRIVALS,
    HOPPER_OTHER_MAP,
    HOPPER_COPY_ALIGNMENT,
    HOPPER_COUNT
};

/* out [64][128] = sum over 5 steps s of bf16(a b_s^T) b_s: a [64][128] f32, b [5 * 64][128] bf16 behind a map of boxes of 16 rows and 64 columns. */
void hopper_run(cudaStream_t s, enum hopper which, float *out, const float *a, const CUtensorMap *b);

/* out[i] = bytes i of 2 * 4096: those of a box as 2-, 3- or 4-dimensional maps bring them, at offset 128 of a tile of 1024 aligned bytes. */
void hopper_box(cudaStream_t s, uint8_t *out, const CUtensorMap *map, int32_t n_dims, const int32_t *at, int32_t n_bytes);

/* out[i] = in[i], 256 bytes, as a bulk copy. */
void hopper_bulk(cudaStream_t s, uint8_t *out, const uint8_t *in);

/* out [64][64] = a [64][16] b^T or b (turned), b of 64 columns n: operands laid out by the manual's pictures for each swizzle of 0, 32, 64, 128 bytes. */
void hopper_layout(cudaStream_t s, float *out, const float *a, const float *b, int32_t swizzle_bytes, int32_t turned);

#ifdef __cplusplus
}
#endif
#endif
