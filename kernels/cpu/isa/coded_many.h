/* coded_many.h - many rows times coded weights by integers (coded_whole.h), for avx2. Included by linear.c only.
 *
 * What float weights do a piece of k at a time (linear_pieces.h), these do likewise: 256 inputs of a panel become levels of 16 bits in pairs (8 KB), less
 * the zeros of their groups, with the scales and offsets of their runs (2 KB), and stay in the first-level cache while blocks of rows pass by. A block of 6
 * rows and 16 outputs has its sums of integers in 12 registers; what has been summed up before waits in the tile and meets them once for each run. The first
 * blocks ask for the next piece of weights.
 *
 * x lies as [piece][block][unit][MANY_X][mr], so that blocks of a piece are one stream. */
#ifndef QR_KERNELS_CPU_ISA_CODED_MANY_H
#define QR_KERNELS_CPU_ISA_CODED_MANY_H

#include "kernels/cpu/isa/coded_whole.h"

#define WHOLE_ROWS_MIN 5                  /* with fewer rows codes become pairs in registers (coded_few.h) */
#define MANY_ROWS 6                       /* of a block */
#define MANY_INPUTS QR_CODED_BLOCK_MAX    /* of a piece: whole blocks of codes */
#define MANY_RUNS (MANY_INPUTS / 16)
#define MANY_PAIRS (WHOLE_K / 2)
#define MANY_X (MANY_PAIRS + 3)           /* numbers of 32 bits for 32 inputs of a row: pairs, unit, float(S) unit of each run (coded_whole.h) */

/* A piece of one panel. */
struct many_piece {
    _Alignas(64) int16_t w[MANY_INPUTS * QR_PANEL]; /* [k / 2][16][2], pairs in the order of struct whole_x */
    float scale[MANY_RUNS][QR_PANEL], offset[MANY_RUNS][QR_PANEL];
};

/* ---- weights ---- */

/* A run of inputs of eight outputs: pairs to `to`, 64 bytes from pair to pair. zero: what is taken from levels or codes of 4 bits, in each 16 bits. */
VF_FN void many_pairs(const int bits, const bool plain5, const bool even, int16_t *to, const uint8_t *codes, int32_t run, vi zero,
                      const struct whole_levels *l)
{
    const int line_k = coded_line_inputs(bits), line_bytes = coded_line_bytes(bits);
    for (int32_t i = 0; i < run / line_k; i++, codes += line_bytes) {
        vi pairs[4] QR_UNINITIALIZED;
        whole_line(bits, plain5, even, pairs, codes, l);
#pragma GCC unroll 4
        for (int j = 0; j < whole_line_pairs(bits); j++, to += 2 * QR_PANEL)
            VI_STORE(to, bits == 4 ? VI(sub_epi16)(pairs[j], zero) : pairs[j]);
    }
}

/* Units [unit, unit + n) of a panel. */
VF_FN void many_unpack(const int bits, const bool plain5, const bool even, struct many_piece *to, const struct qr_coded_shape *s, const uint8_t *panel,
                       int32_t unit, int32_t n, const struct whole_levels *l)
{
    const int32_t run = whole_run(s);
    for (int32_t i = 0; i < n * WHOLE_K / run; i++) {
        const int32_t k = unit * WHOLE_K + i * run, in = k & ((1 << s->block_shift) - 1);
        const uint8_t *block = qr_coded_block(s, panel, k), *codes = block + qr_coded_codes_at(s, k);
#pragma GCC unroll 2
        for (int o = 0; o < QR_PANEL; o += VF_LEN) {
            const struct whole_scales c = whole_scales_at(s, panel, block, in, o, l->shift);
            const vi zero = s->f.zero ? c.zero : VI(set1_epi32)(-l->shift);
            vf_store(to->scale[i] + o, c.scale);
            vf_store(to->offset[i] + o, c.offset);
            many_pairs(bits, plain5, even, to->w + (i * run / 2 * QR_PANEL + o) * 2, codes + o * coded_line_bytes(bits) / QR_PANEL, run,
                       VI_OR(VI(slli_epi32)(zero, 16), VI_AND(zero, VI(set1_epi32)(0xffff))), l);
        }
    }
}

static void many_piece_of(struct many_piece *to, const struct qr_coded_shape *s, const uint8_t *panel, int32_t unit, int32_t n)
{
    const struct whole_levels l = whole_levels_of(s->f.bits, panel);
#define MANY_UNPACK(bits, plain5, even) many_unpack(bits, plain5, even, to, s, panel, unit, n, &l)
    WHOLE_BY_FORMAT(s->f, l.even, MANY_UNPACK);
#undef MANY_UNPACK
}

/* ---- x ---- */

/* 32 inputs of mr rows to `to` [MANY_X][mr]. short_run: of 16 inputs. Whole vectors are stored where what is behind them is written next. */
VF_FN void many_x_make(int32_t *to, const struct whole_x *x, int32_t mr, bool short_run)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vf v[VF_LEN] QR_UNINITIALIZED;
        for (int32_t r = 0; r < VF_LEN; r++)
            v[r] = r < mr ? VI_AS_FLOATS(VI_LOAD(x[r].x + half * WHOLE_K / 2)) : vf_zero();
        vf_transpose(v);
        for (int32_t i = 0; i < VF_LEN; i++) {
            int32_t *pair = to + (half * VF_LEN + i) * mr;
            if (mr > 1)
                vf_store((float *)(void *)pair, v[i]);
            else
                memcpy(pair, &v[i], sizeof *pair);
        }
    }
    float *rest = (float *)(void *)(to + MANY_PAIRS * mr);
    for (int32_t r = 0; r < mr; r++) {
        rest[r] = x[r].unit;
        rest[mr + r] = short_run ? x[r].half_ones[0] : x[r].ones;
        rest[2 * mr + r] = x[r].half_ones[1];
    }
}

/* ---- products ---- */

/* A block of rows and a piece. */
struct many_args {
    float *c;                /* [mr][QR_PANEL]: sums so far */
    const int32_t *x;        /* [n_units][MANY_X][mr] */
    const struct many_piece *piece;
    const char *ask;         /* weights to ask for: ask_lines of 64 bytes a unit */
    int32_t ask_lines, n_units;
};
typedef void many_fn(const struct many_args *m);

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

static many_fn *many_block_of(const struct qr_coded_shape *s, int32_t mr)
{
#define MANY_WAYS(kind) {many_##kind##_1, many_##kind##_2, many_##kind##_3, many_##kind##_4, many_##kind##_5, many_##kind##_6}
    static many_fn *const ways[2][2][MANY_ROWS] = {{MANY_WAYS(32), MANY_WAYS(32_offset)}, {MANY_WAYS(16), MANY_WAYS(16_offset)}};
#undef MANY_WAYS
    QR_ASSERT(mr >= 1 && mr <= MANY_ROWS);
    return ways[whole_run(s) == 16][s->f.offset][mr - 1];
}

#endif
