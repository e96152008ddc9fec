/* coded_many.c - pieces of coded weights and blocks of many rows (isa/coded_many.h). */
#include "kernels/cpu/isa/coded_many.h"

/* ---- weights ---- */

/* A run of inputs of eight outputs: pairs to `to`, 64 bytes from pair to pair. zero: what is taken from levels or codes of 4 bits or less, in each 16 bits. */
VF_FN void many_pairs(const int bits, const bool plain5, const bool even, int16_t *to, const uint8_t *codes, int32_t run, vi zero,
                      const struct whole_levels *l)
{
    const int line_k = coded_line_inputs(bits), line_bytes = coded_line_bytes(bits);
    for (int32_t i = 0; i < run / line_k; i++, codes += line_bytes) {
        vi pairs[4] QR_UNINITIALIZED;
        whole_line(bits, plain5, even, pairs, codes, 0, l);
#pragma GCC unroll 4
        for (int j = 0; j < whole_line_pairs(bits); j++, to += 2 * QR_PANEL)
            VI_STORE(to, bits == 4 ? VI(sub_epi16)(pairs[j], zero) : pairs[j]);
    }
}

/* The same of 2 and 3 bits, and of all 32 inputs, from the begin of their codes on: two runs. */
VF_FN void many_pairs_32(const int bits, int16_t *to, const uint8_t *codes, vi zero, const struct whole_levels *l)
{
#pragma GCC unroll 4
    for (int i = 0; i < FOURS_LINES; i++) {
        vi pairs[4] QR_UNINITIALIZED;
        whole_line(bits, false, true, pairs, codes, i, l);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++, to += 2 * QR_PANEL)
            VI_STORE(to, VI(sub_epi16)(pairs[j], zero));
    }
}

/* Units [unit, unit + n) of a panel. */
VF_FN void many_unpack(const int bits, const bool plain5, const bool even, struct many_piece *to, const struct qr_coded_shape *s, const uint8_t *panel,
                       int32_t unit, int32_t n, const struct whole_levels *l)
{
    const int32_t run = whole_run(s);
    for (int32_t i = 0; i < n * WHOLE_K / run; i++) {
        const int32_t k = unit * WHOLE_K + i * run, in = k & ((1 << s->block_shift) - 1);
        const uint8_t *block = qr_coded_block(s, panel, k);
#pragma GCC unroll 2
        for (int o = 0; o < QR_PANEL; o += VF_LEN) {
            const struct whole_scales c = whole_scales_at(s, panel, block, in, o, l->shift);
            const vi zero = s->f.zero ? c.zero : VI(set1_epi32)(-l->shift);
            vf_store(to->scale[i] + o, c.scale);
            vf_store(to->offset[i] + o, c.offset);
            int16_t *w = to->w + (i * run / 2 * QR_PANEL + o) * 2;
            const vi both = VI_OR(VI(slli_epi32)(zero, 16), VI_AND(zero, VI(set1_epi32)(0xffff)));
            const uint8_t *codes = block + qr_coded_codes_at(s, k) + o * coded_line_bytes(bits) / QR_PANEL;
            if (bits >= 4)
                many_pairs(bits, plain5, even, w, codes, run, both, l);
            else if (i % 2 == 0)
                many_pairs_32(bits, w, codes, both, l);
        }
    }
}

void qr_avx2_many_piece(struct many_piece *to, const struct qr_coded_shape *s, const uint8_t *panel, int32_t unit, int32_t n)
{
    const struct whole_levels l = whole_levels_of(s->f.bits, panel);
#define MANY_UNPACK(bits, plain5, even) many_unpack(bits, plain5, even, to, s, panel, unit, n, &l)
    WHOLE_BY_FORMAT(s->f, l.even, MANY_UNPACK);
#undef MANY_UNPACK
}

/* ---- products ---- */

VF_FN vi many_two(const int32_t *x)
{
    int32_t two;
    memcpy(&two, x, sizeof two);
    return VI(set1_epi32)(two);
}

VF_FN void many_add(const bool first, vi *sum, vi v)
{
    if (first)
        *sum = v;
    else
        add_onto_32(sum, v);
}

/* The sums of a run's integers and what came before. */
VF_FN void many_join(const int mr, const bool offset, vi sum[MANY_ROWS][2], float *c, const float *scale, const float *offsets, const float *units,
                     const float *ones_of)
{
    __asm__ volatile("" ::: "memory"); /* sums are read here, and not kept in registers while there is need of them */
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++) {
        const vf unit = vf_set1(units[r]), ones = vf_set1(ones_of[r]);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            float *to = c + r * QR_PANEL + j * VF_LEN;
            vf acc = whole_add(vf_load(to), sum[r][j], unit, vf_load(scale + j * VF_LEN));
            if (offset)
                acc = whole_add_offset(acc, ones, vf_load(offsets + j * VF_LEN));
            vf_store(to, acc);
        }
    }
}

VF_FN void many_block(const int mr, const int run, const bool offset, const struct many_args *m)
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
                    many_add(i == 0, &sum[r][0], VI(madd_epi16)(w0, two));
                    many_add(i == 0, &sum[r][1], VI(madd_epi16)(w1, two));
                }
            }
            many_join(mr, offset, sum, c, scale, offsets, units, units + (1 + h) * mr);
        }
    }
}

#define MANY_BLOCK(mr)                                                                                                                                \
    static void many_32_##mr(const struct many_args *m)                                                                                               \
    {                                                                                                                                                 \
        many_block(mr, 32, false, m);                                                                                                                 \
    }                                                                                                                                                 \
    static void many_32_offset_##mr(const struct many_args *m)                                                                                        \
    {                                                                                                                                                 \
        many_block(mr, 32, true, m);                                                                                                                  \
    }                                                                                                                                                 \
    static void many_16_##mr(const struct many_args *m)                                                                                               \
    {                                                                                                                                                 \
        many_block(mr, 16, false, m);                                                                                                                 \
    }                                                                                                                                                 \
    static void many_16_offset_##mr(const struct many_args *m)                                                                                        \
    {                                                                                                                                                 \
        many_block(mr, 16, true, m);                                                                                                                  \
    }
MANY_BLOCK(1)
MANY_BLOCK(2)
MANY_BLOCK(3)
MANY_BLOCK(4)
MANY_BLOCK(5)
MANY_BLOCK(6)
#undef MANY_BLOCK

many_fn *qr_avx2_many_block(const struct qr_coded_shape *s, int32_t mr)
{
#define MANY_WAYS(kind) {many_##kind##_1, many_##kind##_2, many_##kind##_3, many_##kind##_4, many_##kind##_5, many_##kind##_6}
    static many_fn *const ways[2][2][MANY_ROWS] = {{MANY_WAYS(32), MANY_WAYS(32_offset)}, {MANY_WAYS(16), MANY_WAYS(16_offset)}};
#undef MANY_WAYS
    QR_ASSERT(mr >= 1 && mr <= MANY_ROWS);
    return ways[whole_run(s) == 16][s->f.offset][mr - 1];
}
