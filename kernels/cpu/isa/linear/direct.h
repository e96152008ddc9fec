/* direct.h - one row times two panels of E4M3 numbers, which become floats in registers: linear.c's multiply_direct.
 * For every output the chain of multiply_panels, in its order of k. Scales and x are loaded anew for every four inputs
 * of a vector (DIRECT_ANEW): with 16 registers a compiler that keeps these there spills the sums instead, and sums
 * that go to memory and back between products wait for it. Included by linear.c alone. */
#ifndef QR_KERNELS_CPU_ISA_LINEAR_DIRECT_H
#define QR_KERNELS_CPU_ISA_LINEAR_DIRECT_H

#include "kernels/cpu/isa/coded/e4m3.h"

#define DIRECT_PANELS 2                   /* at once; with a unit of gates and of their ups */
#define DIRECT_PARTS (QR_PANEL / VF_LEN)  /* vectors of a panel */
#define DIRECT_VECTORS (DIRECT_PANELS * DIRECT_PARTS)
#define DIRECT_INPUTS 8                   /* at once */

/* What is in memory at p and q, and whatever else a pointer leads to, counts as changed. */
#define DIRECT_ANEW(p, q) __asm__ volatile("" ::"r"(p), "r"(q) : "memory")

/* Four inputs of a vector whose codes these are: its sums so far and the weights times x. */
VF_FN vf direct_add(vf acc, const float *x, vi code, const vf *scale)
{
    DIRECT_ANEW(scale, x);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        acc = vf_fma(vf_set1(x[k]), e4m3_rounded(vf_mul(e4m3_number(code, k), *scale)), acc);
    return acc;
}

VF_FN void direct_panels(const struct qr_coded_shape *s, float *sums, const uint8_t *const at[DIRECT_PANELS],
                         const float *x, int32_t n_k, int64_t skip)
{
    const int32_t run = 32;
    const int64_t near = s->panel_bytes - QR_QUANT_AHEAD;
    vf acc[DIRECT_VECTORS] QR_UNINITIALIZED;
#pragma GCC unroll 4
    for (int j = 0; j < DIRECT_VECTORS; j++)
        acc[j] = vf_zero();
    for (int32_t k = 0; k < n_k; k += run) {
        const int32_t in = k & ((1 << s->block_shift) - 1);
        const uint8_t *codes[DIRECT_PANELS] QR_UNINITIALIZED;
        vf scale[DIRECT_VECTORS] QR_UNINITIALIZED;
        int64_t ahead = 0;
#pragma GCC unroll 2
        for (int i = 0; i < DIRECT_PANELS; i++) {
            const uint8_t *block = qr_coded_block(s, at[i], k);
            codes[i] = block + qr_coded_codes_at(s, k);
            ahead = QR_QUANT_AHEAD + (block - at[i] < near ? 0 : skip);
            if (in == 0)
                qr_coded_prefetch_scales(s, block, ahead);
#pragma GCC unroll 2
            for (int j = 0; j < DIRECT_PARTS; j++)
                scale[DIRECT_PARTS * i + j] = e4m3_scale(s, block, in, j * VF_LEN);
        }
        for (int32_t i = 0; i < run / DIRECT_INPUTS; i++, x += DIRECT_INPUTS) {
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
#pragma GCC unroll 4
                for (int j = 0; j < DIRECT_VECTORS; j++) {
                    const uint8_t *line = codes[j / DIRECT_PARTS] + h * QR_CODED_LINE;
                    if (j % DIRECT_PARTS == 0)
                        _mm_prefetch((const char *)line + ahead, _MM_HINT_T0);
                    acc[j] = direct_add(acc[j], x + 4 * h, e4m3_codes(line, j % DIRECT_PARTS * VF_LEN), &scale[j]);
                }
            }
            codes[0] += 2 * QR_CODED_LINE;
            codes[1] += 2 * QR_CODED_LINE;
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < DIRECT_VECTORS; j++)
        vf_store(sums + j * VF_LEN, acc[j]);
}

/* Panels `panel` and, with a unit, of its ups, else the next, if there are so many. */
static void multiply_floats(const struct product *p, float *sums, int32_t panel, int32_t n_panels)
{
    const uint8_t *const first = panel_at(p, panel), *const at[] = {first,
                                                                    n_panels == 1
                                                                        ? first
                                                                        : panel_at(p, panel + (p->up ? p->up : 1))};
    const int64_t skip = p->up ? 0 : (int64_t)p->panel_bytes; /* what comes after a panel is at hand already */
    direct_panels(&p->coded, sums, at, p->packed, (int32_t)qr_quant_k(p->a->n_in), skip);
}

#endif
