/* coded_many.c - pieces of coded weights and blocks of many rows (isa/coded_many.h). */
#include "kernels/cpu/isa/coded/many.h"

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

/* The same of lines that share what they are of, of all 32 inputs, from the begin of their codes on: two runs, or one. */
VF_FN void many_pairs_32(const int bits, const bool plain5, int16_t *to, const uint8_t *codes, vi zero, const struct whole_levels *l)
{
    const bool levels = bits == 2 || plain5; /* which codes are */
#pragma GCC unroll 4
    for (int i = 0; i < FOURS_LINES; i++) {
        vi pairs[4] QR_UNINITIALIZED;
        whole_line(bits, plain5, true, pairs, codes, i, l);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++, to += 2 * QR_PANEL)
            VI_STORE(to, levels ? pairs[j] : VI(sub_epi16)(pairs[j], zero));
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
            if (!coded_lines_share(bits))
                many_pairs(bits, plain5, even, w, codes, run, both, l);
            else if (run == WHOLE_K || i % 2 == 0)
                many_pairs_32(bits, plain5, w, codes, both, l);
        }
    }
}

void qr_avx2_many_piece(struct many_piece *to, const struct qr_coded_shape *s, bool apart, const uint8_t *panel, int32_t unit, int32_t n)
{
    const struct whole_levels l = whole_levels_of(s->f, apart, panel);
#define MANY_UNPACK(bits, plain5, even) many_unpack(bits, plain5, even, to, s, panel, unit, n, &l)
    WHOLE_BY_FORMAT(s->f, l.even, apart, MANY_UNPACK);
#undef MANY_UNPACK
}
