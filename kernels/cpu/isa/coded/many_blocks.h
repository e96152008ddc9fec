/* many_blocks.h - blocks of rows times coded weights by integers (many_parts.h) on 256 bits. Included once by each file that has them for some instructions,
 * which says before how a product joins its sum:
 *     MANY_TARGET                           what else a function is compiled for
 *     many_add(first, &sum, w, x)           sum = or += of eight outputs' pairs w and a row's pair x, in every lane */
#ifndef QR_KERNELS_CPU_ISA_CODED_MANY_BLOCKS_H
#define QR_KERNELS_CPU_ISA_CODED_MANY_BLOCKS_H

#include "kernels/cpu/isa/coded/many.h"

VF_FN vi many_two(const int32_t *x)
{
    int32_t two;
    memcpy(&two, x, sizeof two);
    return VI(set1_epi32)(two);
}

/* The sums of a run's integers and what came before. Scales are read once: behind a store the compiler would read them again. */
MANY_TARGET VF_FN void many_join(const int mr, const bool offset, vi sum[MANY_ROWS][2], float *c, const float *scale, const float *offsets, const float *units,
                     const float *ones_of)
{
    __asm__ volatile("" ::: "memory"); /* sums are read here, and not kept in registers while there is need of them */
    const vf scales[2] = {vf_load(scale), vf_load(scale + VF_LEN)};
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++) {
        const vf unit = vf_set1(units[r]), ones = vf_set1(ones_of[r]);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            float *to = c + r * QR_PANEL + j * VF_LEN;
            vf acc = whole_add(vf_load(to), sum[r][j], unit, scales[j]);
            if (offset)
                acc = whole_add_offset(acc, ones, vf_load(offsets + j * VF_LEN));
            vf_store(to, acc);
        }
    }
}

MANY_TARGET VF_FN void many_block(const int mr, const int run, const bool offset, const struct many_args *m)
{
    enum { PAIR = 2 * QR_PANEL };
    const int n_runs = WHOLE_K / run;
    const int16_t *w = m->piece->w;
    const float *scale = m->piece->scale[0], *offsets = m->piece->offset[0];
    const char *ask = m->ask;
    const int32_t *x = m->x;
    float *const c = m->c;
    for (int32_t n = m->n_units; n > 0; n--, x += MANY_X * mr) {
        const float *units = (const float *)(const void *)(x + MANY_PAIRS * mr);
        for (int32_t i = 0; i < m->ask_lines; i++, ask += 64)
            _mm_prefetch(ask, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int h = 0; h < n_runs; h++, scale += QR_PANEL, offsets += QR_PANEL) {
            vi sum[MANY_ROWS][2] QR_UNINITIALIZED;
#pragma GCC unroll 16
            for (int i = 0; i < run / 2; i++, w += PAIR) {
                const vi w0 = VI_LOAD(w), w1 = VI_LOAD(w + QR_PANEL);
#pragma GCC unroll 6
                for (int r = 0; r < mr; r++) {
                    const vi two = many_two(x + (h * run / 2 + i) * mr + r);
                    many_add(i == 0, &sum[r][0], w0, two);
                    many_add(i == 0, &sum[r][1], w1, two);
                }
            }
            many_join(mr, offset, sum, c, scale, offsets, units, units + (1 + h) * mr);
        }
    }
}

MANY_BLOCKS(MANY_TARGET)

#endif
