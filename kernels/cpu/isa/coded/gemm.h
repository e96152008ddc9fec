/* gemm.h - many rows times coded weights by integers (q16.h), for avx2: what linear.c has of avx2/coded_gemm.c.
 *
 * As with float weights (linear/pieces.h), k goes by in pieces: 256 inputs of a panel become levels of 16 bits in
 * pairs (8 KB), less the zeros of their groups, with the scales and offsets of their runs (2 KB), and stay in L1 while
 * blocks of rows pass by. A block of 6 rows and 16 outputs has its sums of integers in 12 registers; what has been
 * summed up before waits in the tile and meets them once for each run. The first blocks prefetch the next piece of
 * weights.
 *
 * x lies as [piece][block][unit][GEMM_X][mr], so that blocks of a piece are one stream. */
#ifndef QR_KERNELS_CPU_ISA_CODED_GEMM_H
#define QR_KERNELS_CPU_ISA_CODED_GEMM_H

#include "kernels/cpu/isa/coded/q16.h"
#include "kernels/cpu/isa/coded/gemm_parts.h"

#define Q16_ROWS_MIN 5                  /* with fewer rows codes become pairs in registers (gemv.h) */

/* ---- x ---- */

/* 32 inputs of mr rows to `to` [GEMM_X][mr]. short_run: of 16 inputs. Whole vectors are stored where what is behind
 * them is written next. */
VF_FN void gemm_x_make(int32_t *to, const struct q16_x *x, int32_t mr, bool short_run)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vf v[VF_LEN] QR_UNINITIALIZED;
        for (int32_t r = 0; r < VF_LEN; r++)
            v[r] = r < mr ? VI_AS_FLOATS(VI_LOAD(x[r].x + half * Q16_K / 2)) : vf_zero();
        vf_transpose(v);
        for (int32_t i = 0; i < VF_LEN; i++) {
            int32_t *pair = to + (half * VF_LEN + i) * mr;
            if (mr > 1)
                vf_store((float *)(void *)pair, v[i]);
            else
                memcpy(pair, &v[i], sizeof *pair);
        }
    }
    float *rest = (float *)(void *)(to + GEMM_PAIRS * mr);
    for (int32_t r = 0; r < mr; r++) {
        rest[r] = x[r].unit;
        rest[mr + r] = short_run ? x[r].half_ones[0] : x[r].ones;
        rest[2 * mr + r] = x[r].half_ones[1];
    }
}

/* ---- weights ---- */

/* Units [unit, unit + n) of a panel to `to`. */
void qr_avx2_gemm_piece(struct gemm_piece *to, const struct qr_coded_shape *s, const uint8_t *panel, int32_t unit, int32_t n);

#endif
