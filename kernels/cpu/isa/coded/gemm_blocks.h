/* gemm_blocks.h - blocks of rows times coded weights by integers (gemm_parts.h). Included once by each file that has
 * them for some instructions, which says before how a product joins its sum:
 *     GEMM_TARGET                           what else a function is compiled for
 *     gemm_add(first, &sum, w, x)           sum = or += of a vector of outputs' pairs w and a row's pair x, in every lane
 * With 512 bits a vector is all of a panel's outputs, and sums take turns: each waits for the one before, longer than
 * six rows' products take. */
#ifndef QR_KERNELS_CPU_ISA_CODED_GEMM_BLOCKS_H
#define QR_KERNELS_CPU_ISA_CODED_GEMM_BLOCKS_H

#include "kernels/cpu/isa/coded/gemm_parts.h"
#include "kernels/cpu/isa/quant/vectors.h"

#define GEMM_VECTORS (QR_PANEL / VF_LEN) /* of a panel's outputs */

VF_FN vi gemm_two(const int32_t *x)
{
    int32_t two;
    memcpy(&two, x, sizeof two);
    return VI(set1_epi32)(two);
}

/* The sums of a run's integers and what came before. Scales are read once: behind a store the compiler would read them
 * again. */
GEMM_TARGET VF_FN void gemm_join(const int mr, const bool offset, vi sum[GEMM_ROWS][2], float *c, const float *scale, const float *offsets, const float *units,
                     const float *ones_of)
{
    __asm__ volatile("" ::: "memory"); /* sums are read here, and not kept in registers while there is need of them */
    vf scales[GEMM_VECTORS] QR_UNINITIALIZED;
#pragma GCC unroll 2
    for (int j = 0; j < GEMM_VECTORS; j++)
        scales[j] = vf_load(scale + j * VF_LEN);
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++) {
        const vf unit = vf_set1(units[r]), ones = vf_set1(ones_of[r]);
#pragma GCC unroll 2
        for (int j = 0; j < GEMM_VECTORS; j++) {
            float *to = c + r * QR_PANEL + j * VF_LEN;
            const vi whole = GEMM_VECTORS == 1 ? VI(add_epi32)(sum[r][0], sum[r][1]) : sum[r][j];
            vf acc = vf_fma(vf_mul(VI(cvtepi32_ps)(whole), unit), scales[j], vf_load(to)); /* q16.h: the chain */
            if (offset)
                acc = vf_fma(ones, vf_load(offsets + j * VF_LEN), acc);
            vf_store(to, acc);
        }
    }
}

GEMM_TARGET VF_FN void gemm_block(const int mr, const int run, const bool offset, const struct gemm_args *m)
{
    const int n_runs = Q16_K / run;
    const int16_t *w = m->piece->w;
    const float *scale = m->piece->scale[0], *offsets = m->piece->offset[0];
    const char *ahead = m->ahead;
    const int32_t *x = m->x;
    float *const c = m->c;
    for (int32_t n = m->n_units; n > 0; n--, x += GEMM_X * mr) {
        const float *units = (const float *)(const void *)(x + GEMM_PAIRS * mr);
        for (int32_t i = 0; i < m->ahead_lines; i++, ahead += 64)
            _mm_prefetch(ahead, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int h = 0; h < n_runs; h++, scale += QR_PANEL, offsets += QR_PANEL) {
            vi sum[GEMM_ROWS][2] QR_UNINITIALIZED;
#pragma GCC unroll 16
            for (int i = 0; i < run / 2; i++, w += 2 * QR_PANEL) {
                vi pairs[GEMM_VECTORS] QR_UNINITIALIZED;
#pragma GCC unroll 2
                for (int j = 0; j < GEMM_VECTORS; j++)
                    pairs[j] = VI_LOAD(w + j * 2 * VF_LEN);
#pragma GCC unroll 6
                for (int r = 0; r < mr; r++) {
                    const vi two = gemm_two(x + (h * run / 2 + i) * mr + r);
#pragma GCC unroll 2
                    for (int j = 0; j < GEMM_VECTORS; j++)
                        gemm_add(i * GEMM_VECTORS < 2, &sum[r][GEMM_VECTORS == 1 ? i % 2 : j], pairs[j], two);
                }
            }
            gemm_join(mr, offset, sum, c, scale, offsets, units, units + (1 + h) * mr);
        }
    }
}

GEMM_BLOCKS(GEMM_TARGET)

#endif
