/* direct_avx2.h - one row times two panels whose weights become floats on the way, for avx2: linear.c's multiply_direct. For every output the chain of
 * multiply_panels, in its order of k. Weights of eight inputs wait in 1 KB for the sums to come around: with 16 registers, what makes weights and what adds
 * them up do not fit side by side, and sums that go to memory and back between any two products cost twice the time. Included by linear.c alone. */
#ifndef QR_KERNELS_CPU_ISA_DIRECT_AVX2_H
#define QR_KERNELS_CPU_ISA_DIRECT_AVX2_H

#include "kernels/cpu/isa/coded_avx2.h"

#define PAIR 2                            /* panels at once */
#define PAIR_VECTORS (PAIR * QR_PANEL / VF_LEN)
#define PAIR_INPUTS 8                     /* inputs at once */

typedef float pair_weights[PAIR_INPUTS][PAIR_VECTORS * VF_LEN];

/* Sums of PAIR_INPUTS more. */
VF_FN void pair_add(vf acc[PAIR_VECTORS], const float *x, const pair_weights w)
{
    __asm__ volatile("" ::: "memory"); /* the weights are written first, not kept in registers */
#pragma GCC unroll 8
    for (int k = 0; k < PAIR_INPUTS; k++) {
        const vf v = vf_set1(x[k]);
#pragma GCC unroll 4
        for (int j = 0; j < PAIR_VECTORS; j++)
            acc[j] = vf_fma(v, vf_load(w[k] + j * VF_LEN), acc[j]);
    }
}

/* Eight inputs of vector j, whose codes are at w. */
VF_FN void pair_put_coded(const int bits, const bool offset, const bool apart, pair_weights to, const int j, const uint8_t *w, const struct coded_levels *l,
                          const struct coded_scales *c)
{
    const int line_k = coded_line_inputs(bits), line_bytes = coded_line_bytes(bits);
    const vf scale = c->scale, addend = c->offset;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const struct coded_line line = coded_line_at(bits, w + (line_k == 4 ? h * line_bytes : 0));
        vf level[4];
        coded_four(bits, offset, apart, level, line.code[line_k == 4 ? 0 : h], l);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            vf_store(to[4 * h + k] + j * VF_LEN, coded_rounded(vf_fma(level[k], scale, addend)));
    }
}

VF_FN void pair_coded(const struct qr_coded_shape *s, float *sums, const uint8_t *const at[PAIR], const float *x, int32_t n_k, int64_t skip, const int bits,
                      const bool offset, const bool apart)
{
    const int line_bytes = coded_line_bytes(bits), step_bytes = bits == 4 ? line_bytes : 2 * line_bytes;
    const int32_t run = s->f.group < 32 ? s->f.group : 32;
    const int64_t near = s->panel_bytes - QR_QUANT_AHEAD;
    const struct coded_levels levels[PAIR] = {coded_levels_of(bits, at[0]), coded_levels_of(bits, at[1])};
    _Alignas(32) pair_weights w QR_UNINITIALIZED;
    vf acc[PAIR_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < PAIR_VECTORS; j++)
        acc[j] = vf_zero();
    for (int32_t k = 0; k < n_k; k += run) {
        const int32_t in = k & ((1 << s->block_shift) - 1);
        const uint8_t *codes[PAIR];
        struct coded_scales c[PAIR_VECTORS];
        int64_t ahead = 0;
#pragma GCC unroll 2
        for (int i = 0; i < PAIR; i++) {
            const uint8_t *block = qr_coded_block(s, at[i], k);
            codes[i] = block + qr_coded_codes_at(s, k);
            ahead = QR_QUANT_AHEAD + (block - at[i] < near ? 0 : skip);
            if (in == 0)
                coded_ask_scales(s, block, ahead);
            c[2 * i] = coded_scales_at(bits, apart, s, at[i], block, in, 0);
            c[2 * i + 1] = coded_scales_at(bits, apart, s, at[i], block, in, VF_LEN);
        }
        for (int32_t i = 0; i < run / PAIR_INPUTS; i++, x += PAIR_INPUTS) {
            for (int32_t b = 0; b < step_bytes; b += 64) {
                _mm_prefetch((const char *)codes[0] + b + ahead, _MM_HINT_T0);
                _mm_prefetch((const char *)codes[1] + b + ahead, _MM_HINT_T0);
            }
#pragma GCC unroll 4
            for (int j = 0; j < PAIR_VECTORS; j++)
                pair_put_coded(bits, offset, apart, w, j, codes[j / 2] + j % 2 * (line_bytes / 2), &levels[j / 2], &c[j]);
            pair_add(acc, x, w);
            codes[0] += step_bytes;
            codes[1] += step_bytes;
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < PAIR_VECTORS; j++)
        vf_store(sums + j * VF_LEN, acc[j]);
}

/* Panels `panel` and, with a unit, of its ups, else the next, if there are so many. */
static void multiply_pair(const struct product *p, float *sums, int32_t panel, int32_t n_panels)
{
    const uint8_t *const first = panel_at(p, panel), *const at[PAIR] = {first, n_panels == 1 ? first : panel_at(p, panel + (p->up ? p->up : 1))};
    const int32_t n_k = (int32_t)qr_quant_k(p->a->n_in);
    const int64_t skip = p->up ? 0 : p->coded.panel_bytes;
#define OF_CODED(bits, offset, apart) pair_coded(&p->coded, sums, at, p->packed, n_k, skip, bits, offset, apart)
    CODED_BY_FORMAT(p->coded.f, OF_CODED);
#undef OF_CODED
}

#endif
