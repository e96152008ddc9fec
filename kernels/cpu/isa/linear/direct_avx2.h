/* direct_avx2.h - one row times two panels whose weights become floats in registers, for avx2: linear.c's multiply_direct. For every output the chain of
 * multiply_panels, in its order of k. What weights are made of (scales, tables, x) is loaded anew for every four inputs of a vector (PAIR_ANEW): with 16
 * registers a compiler that keeps these there spills the sums instead, and sums that go to memory and back between products wait for it. Included by
 * linear.c alone. */
#ifndef QR_KERNELS_CPU_ISA_LINEAR_DIRECT_AVX2_H
#define QR_KERNELS_CPU_ISA_LINEAR_DIRECT_AVX2_H

#include "kernels/cpu/isa/coded/avx2.h"

#define PAIR 2                            /* panels at once */
#define PAIR_VECTORS (PAIR * QR_PANEL / VF_LEN)
#define PAIR_INPUTS 8                     /* inputs at once */

/* What is in memory at p and q, and whatever else a pointer leads to, counts as changed. */
#define PAIR_ANEW(p, q) __asm__ volatile("" ::"r"(p), "r"(q) : "memory")

/* Four inputs of a vector whose E4M3 codes these are: its sums so far and the weights times x. */
VF_FN vf pair_add_e4m3(vf acc, const float *x, vi code, const vf *scale)
{
    PAIR_ANEW(scale, x);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        acc = vf_fma(vf_set1(x[k]), coded_rounded(vf_mul(coded_number(code, k), *scale)), acc);
    return acc;
}

VF_FN void pair_e4m3(const struct qr_coded_shape *s, float *sums, const uint8_t *const at[PAIR], const float *x, int32_t n_k, int64_t skip)
{
    const int32_t run = 32, step_bytes = 2 * QR_CODED_LINE;
    const int64_t near = s->panel_bytes - QR_QUANT_AHEAD;
    vf acc[PAIR_VECTORS] QR_UNINITIALIZED;
#pragma GCC unroll 4
    for (int j = 0; j < PAIR_VECTORS; j++)
        acc[j] = vf_zero();
    for (int32_t k = 0; k < n_k; k += run) {
        const int32_t in = k & ((1 << s->block_shift) - 1);
        const uint8_t *codes[PAIR] QR_UNINITIALIZED;
        vf scale[PAIR_VECTORS] QR_UNINITIALIZED;
        int64_t ahead = 0;
#pragma GCC unroll 2
        for (int i = 0; i < PAIR; i++) {
            const uint8_t *block = qr_coded_block(s, at[i], k);
            codes[i] = block + qr_coded_codes_at(s, k);
            ahead = QR_QUANT_AHEAD + (block - at[i] < near ? 0 : skip);
            if (in == 0)
                coded_ask_scales(s, block, ahead);
            scale[2 * i] = coded_scale_at(s, block, in, 0);
            scale[2 * i + 1] = coded_scale_at(s, block, in, VF_LEN);
        }
        for (int32_t i = 0; i < run / PAIR_INPUTS; i++, x += PAIR_INPUTS) {
            for (int32_t b = 0; b < step_bytes; b += 64) {
                _mm_prefetch((const char *)codes[0] + b + ahead, _MM_HINT_T0);
                _mm_prefetch((const char *)codes[1] + b + ahead, _MM_HINT_T0);
            }
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
#pragma GCC unroll 4
                for (int j = 0; j < PAIR_VECTORS; j++)
                    acc[j] = pair_add_e4m3(acc[j], x + 4 * h, VI_LOAD(codes[j / 2] + j % 2 * VI_BYTES + h * QR_CODED_LINE), &scale[j]);
            codes[0] += step_bytes;
            codes[1] += step_bytes;
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < PAIR_VECTORS; j++)
        vf_store(sums + j * VF_LEN, acc[j]);
}

/* Panels `panel` and, with a unit, of its ups, else the next, if there are so many. */
static void multiply_floats(const struct product *p, float *sums, int32_t panel, int32_t n_panels)
{
    const uint8_t *const first = panel_at(p, panel), *const at[PAIR] = {first, n_panels == 1 ? first : panel_at(p, panel + (p->up ? p->up : 1))};
    const int64_t skip = p->up ? 0 : (int64_t)p->panel_bytes; /* what comes after a panel is at hand already */
    pair_e4m3(&p->coded, sums, at, p->packed, (int32_t)qr_quant_k(p->a->n_in), skip);
}

#endif
