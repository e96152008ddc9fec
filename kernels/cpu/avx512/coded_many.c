/* coded_many.c - level avx512 multiplies coded weights as avx2 does (isa/coded_whole.h), and these are its blocks of many rows where the processor has
 * AVX512-VNNI: a pair of inputs of a panel's 16 outputs is one vector, and vpdpwssd multiplies and adds it. Sums are exact, so the bits are avx2's. */
#include "kernels/cpu/isa/coded/many_parts.h"
#include "kernels/cpu/isa/row.h"

#ifdef __AVX512VNNI__
#define VNNI
#else
#define VNNI __attribute__((target("avx512vnni")))
#endif

/* A row's sums take turns: each waits for the one before, longer than six rows' products take. */
VNNI VF_FN void many_block(const int mr, const int run, const bool offset, const struct many_args *m)
{
    const int n_runs = WHOLE_K / run;
    const int16_t *w = m->piece->w;
    const float *scale = m->piece->scale[0], *offsets = m->piece->offset[0];
    const char *ask = m->ask;
    const int32_t *x = m->x;
    for (int32_t n = m->n_units; n > 0; n--, x += MANY_X * mr) {
        const float *units = (const float *)(const void *)(x + MANY_PAIRS * mr);
        for (int32_t i = 0; i < m->ask_lines; i++, ask += 64)
            _mm_prefetch(ask, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int h = 0; h < n_runs; h++, scale += QR_PANEL, offsets += QR_PANEL) {
            __m512i sum[MANY_ROWS][2] QR_UNINITIALIZED;
#pragma GCC unroll 16
            for (int i = 0; i < run / 2; i++, w += 2 * QR_PANEL) {
                const __m512i pairs = _mm512_loadu_si512(w);
#pragma GCC unroll 6
                for (int r = 0; r < mr; r++) {
                    const __m512i two = _mm512_set1_epi32(x[(h * run / 2 + i) * mr + r]);
                    sum[r][i % 2] = i < 2 ? _mm512_madd_epi16(pairs, two) : _mm512_dpwssd_epi32(sum[r][i % 2], pairs, two);
                }
            }
#pragma GCC unroll 6
            for (int r = 0; r < mr; r++) {
                float *to = m->c + r * QR_PANEL;
                const vf whole = _mm512_cvtepi32_ps(_mm512_add_epi32(sum[r][0], sum[r][1]));
                vf acc = vf_fma(vf_mul(whole, vf_set1(units[r])), vf_load(scale), vf_load(to));
                if (offset)
                    acc = vf_fma(vf_set1(units[(1 + h) * mr + r]), vf_load(offsets), acc);
                vf_store(to, acc);
            }
        }
    }
}

MANY_BLOCKS(VNNI)

const struct many_ways *qr_avx512_many_ways(void)
{
    static const struct many_ways ways = MANY_TABLE;
    return __builtin_cpu_supports("avx512vnni") ? &ways : NULL;
}
