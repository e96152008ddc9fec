/* coded.h - weights as integers with a scale for each output (kernels.h: w8a16, w4a16, w4a16-gG), as they lie on the device: codes, row by row, each row padded
 * with zeros to 8 codes; then the multiples of its groups; then scales. Inside kernels/cuda/ only, C and C++. */
#ifndef QR_KERNELS_CUDA_CODED_H
#define QR_KERNELS_CUDA_CODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/dtype.h"

struct qr_queue;

struct qr_coded {
    const uint8_t *codes;     /* [n_out][code_bytes]: int8, or two of 4 bits a byte, the even one in the lower bits */
    const uint8_t *multiples; /* [n_out][n_groups] */
    const float *scale;       /* [n_out] */
    int64_t code_bytes, n_groups;
    int32_t group;            /* inputs of one */
    size_t n_bytes;           /* of all */
};

static inline bool qr_coded_is(enum qr_dtype t)
{
    return t == QR_W8 || t == QR_W4 || t == QR_W4_G64 || t == QR_W4_G128;
}

struct qr_coded qr_coded_of(const void *packed, enum qr_dtype t, int64_t n_out, int64_t n_in);

/* As linear_pack, n_rows > 0. Waits for the device. */
void qr_coded_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows, enum qr_dtype from,
                   int64_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
