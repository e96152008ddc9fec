/* coded.h - weights as codes, as they lie on the device. Inside kernels/cuda/ only, C and C++.
 *
 * fp8 (kernels.h, linear): E4M3 numbers, row by row, each row padded with zeros to a multiple of 16, in which cuBLASLt
 * reads them; then scales. Coded ones (kernels.h, linear_pack_coded): codes row by row, padded to 8, those of 5 and 6
 * bits in a byte each as those of 8 (not packed as on processors: more room than there), then what the format has of
 * scales and offsets (f16), their steps, a factor for each output, and for 4 bits what the 16 codes stand for, for every
 * 16 outputs. Each of these begins at a multiple of 16 bytes. */
#ifndef QR_KERNELS_CUDA_CODED_H
#define QR_KERNELS_CUDA_CODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

enum qr_coded_form { QR_CODED_NONE, QR_CODED_STORED, QR_CODED_EIGHTS };

struct qr_coded {
    enum qr_coded_form form;  /* coded; E4M3 */
    bool zero;                /* offsets are -(scale * offset_step) */
    int32_t group, unit;      /* inputs of one */
    int64_t code_bytes, n_groups, n_units; /* of a row */
    const uint8_t *codes;     /* [n_out][code_bytes]: a byte each, or two of 4 bits a byte, the even one in the lower bits */
    const float *scale;       /* [n_out]; NULL with coded ones */
    const uint16_t *half, *half_offset;   /* [n_out][n_units]; NULL where the format has none, as the next two */
    const int8_t *step, *offset_step;     /* [n_out][n_groups] */
    const float *factor;                  /* [n_out] */
    const int8_t *level;                  /* [ceil(n_out / 16)][16]; NULL with more bits */
    size_t n_bytes;           /* of all */
};

/* Types that numbers are packed to here (linear_pack), and all whose weights lie as described here. */
static inline bool qr_coded_is(enum qr_dtype t)
{
    return t == QR_F8 || qr_dtype_codes_numbers(t);
}

static inline bool qr_coded_lies(enum qr_dtype t)
{
    return qr_coded_is(t) || (qr_dtype_is_coded(t) && t >= QR_C4_G32 && t != QR_C8_E4M3); /* fewer than 4 bits are kept as 4 (loader/pack/coded_rows.h) */
}

struct qr_coded qr_coded_of(const void *packed, enum qr_dtype t, int64_t n_out, int64_t n_in);

/* pack_eights.cu: rows of the device's memory as rows row0 on of an fp8 matrix; tolerance: qr_f8_tolerance(from). */
void qr_cuda_pack_eights(struct qr_queue *q, const struct qr_coded *c, int64_t row0, int64_t n_in, const void *rows, enum qr_dtype from, int64_t n_rows,
                         float tolerance);

/* As linear_pack, n_rows > 0. Waits for the device, but for fp8. */
void qr_coded_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows, enum qr_dtype from,
                   int64_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
