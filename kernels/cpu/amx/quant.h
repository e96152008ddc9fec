/* quant.h - quantized weights and activations on their way to tiles. Inside this folder only. */
#ifndef QR_KERNELS_CPU_AMX_QUANT_H
#define QR_KERNELS_CPU_AMX_QUANT_H

#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/kernels.h"

/* Whether coded weights are the left operand for few rows of x; `bits` may be QR_CODED_E4M3. */
static inline bool coded_bits_left(const int bits)
{
    return bits <= 5 || bits == QR_CODED_E4M3;
}

static inline bool coded_is_left(const struct qr_coded_shape *s)
{
    return coded_bits_left(s->f.e4m3 ? QR_CODED_E4M3 : s->f.bits);
}

/* Rows [row, row + n_rows) of a->x, after their norm where there is one, rounded to 8 bits (kernels/quant.h): tiles of n_rows rows at dst, one
 * every 64 inputs, zeros where there is no input. scale, sum [n_rows]: each row's scale, and the sum of its integers. scratch: room for a row. */
void qr_amx_round_rows(char *dst, float *scale, int32_t *sum, const struct qr_linear_args *a, int32_t row, int32_t n_rows, float *scratch);

/* Tiles [step, step + n_steps) of a packed panel's weights of 4 bits as bytes. dst: tile after tile. Prefetches weights `ahead_bytes` further on. */
void qr_amx_unpack(char *dst, const char *panel, int64_t head_bytes, int32_t step, int32_t n_steps, int64_t ahead_bytes);

/* The same of coded weights, which are bf16. */
void qr_amx_unpack_coded(char *dst, const struct qr_coded_shape *s, const char *panel, int32_t step, int32_t n_steps, int64_t ahead_bytes);

#endif
