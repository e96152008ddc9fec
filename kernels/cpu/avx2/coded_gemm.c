/* coded_gemm.c - pieces of coded weights (isa/coded/gemm.h), and rows read back from them. */
#include "kernels/cpu/isa/coded/e4m3.h"
#include "kernels/cpu/isa/coded/gemm.h"

/* ---- weights ---- */

/* Lines of eight outputs: pairs to `to`, 64 bytes from pair to pair; lines from `codes` on that share what they are of
 * are all of 32 inputs. less: what is taken from codes, in each 16 bits. */
VF_FN void gemm_pairs(const int bits, const bool even, int16_t *to, const uint8_t *codes, const int n_lines, vi less,
                      const struct q16_levels *l)
{
    const bool levels = bits == 8 || bits == 6 || bits == 2; /* are what codes are */
#pragma GCC unroll 4
    for (int i = 0; i < n_lines; i++, codes += q16_lines_share(bits) ? 0 : q16_line_bytes(bits)) {
        vi pairs[4] QR_UNINITIALIZED;
        q16_line(bits, even, pairs, codes, i, l);
#pragma GCC unroll 4
        for (int j = 0; j < q16_line_inputs(bits) / 2; j++, to += 2 * QR_PANEL)
            VI_STORE(to, levels ? pairs[j] : VI(sub_epi16)(pairs[j], less));
    }
}

/* Units [unit, unit + n) of a panel. */
VF_FN void gemm_unpack(const int bits, const bool even, struct gemm_piece *to, const struct qr_coded_shape *s,
                       const uint8_t *panel, int32_t unit, int32_t n, const struct q16_levels *l)
{
    const int32_t run = q16_run(s);
    for (int32_t i = 0; i < n * Q16_K / run; i++) {
        const int32_t k = unit * Q16_K + i * run, in = k & ((1 << s->block_shift) - 1);
        const uint8_t *block = qr_coded_block(s, panel, k);
#pragma GCC unroll 2
        for (int o = 0; o < QR_PANEL; o += VF_LEN) {
            const struct q16_scales c = q16_scales_at(s, panel, block, in, o, l->shift);
            const vi zero = s->f.zero ? c.zero : VI(set1_epi32)(-l->shift);
            vf_store(to->scale[i] + o, c.scale);
            vf_store(to->offset[i] + o, c.offset);
            const vi both = VI_OR(VI(slli_epi32)(zero, 16), VI_AND(zero, VI(set1_epi32)(0xffff)));
            if (k % Q16_K == 0)
                gemm_pairs(bits, even, to->w + (i * run / 2 * QR_PANEL + o) * 2,
                           block + qr_coded_codes_at(s, k) + o * q16_line_bytes(bits) / QR_PANEL, Q16_K / q16_line_inputs(bits), both, l);
        }
    }
}

void qr_avx2_gemm_piece(struct gemm_piece *to, const struct qr_coded_shape *s, const uint8_t *panel, int32_t unit,
                        int32_t n)
{
    const struct q16_levels l = q16_levels_of(s->f, panel);
#define GEMM_UNPACK(bits, plain5, even) gemm_unpack(bits, even, to, s, panel, unit, n, &l)
    Q16_BY_FORMAT(s->f, l.even, GEMM_UNPACK);
#undef GEMM_UNPACK
}

/* ---- rows read back ---- */

/* Inputs [k, k + n) of a piece's row. */
static void read_piece(float *out, const struct qr_coded_shape *s, const uint8_t *panel, int32_t row, int32_t k,
                       int32_t n)
{
    struct gemm_piece piece QR_UNINITIALIZED;
    const int32_t n_units = (n + Q16_K - 1) / Q16_K, run = q16_run(s);
    if (s->f.e4m3)
        qr_e4m3_unpack((uint8_t *)piece.w, s, panel, k / Q16_K, n_units, 0);
    else
        qr_avx2_gemm_piece(&piece, s, panel, k / Q16_K, n_units);
    for (int32_t i = 0; i < n; i++) {
        const int32_t pair = s->f.e4m3 ? i / 2 : i / 4 * 2 + i % 2,
                      second = s->f.e4m3 ? i % 2 : i % 4 / 2; /* q16.h */
        const int16_t w = piece.w[(pair * QR_PANEL + row) * 2 + second];
        out[i] = qr_bf16_to_f32(
            s->f.e4m3 ? (uint16_t)w
                      : qr_f32_to_bf16(fmaf(piece.scale[i / run][row], (float)w, piece.offset[i / run][row])));
    }
}

void qr_avx2_coded_row(float *out, enum qr_dtype t, const uint8_t *panel, int32_t row, int64_t n_in, float scale)
{
    const struct qr_coded_shape s = qr_coded_shape_of(t, n_in);
    QR_ASSERT(out != NULL && panel != NULL);
    QR_ASSERT(row >= 0 && row < QR_PANEL);
    for (int64_t k = 0; k < n_in; k += GEMM_INPUTS)
        read_piece(out + k, &s, panel, row, (int32_t)k, (int32_t)(n_in - k < GEMM_INPUTS ? n_in - k : GEMM_INPUTS));
    for (int64_t k = 0; k < n_in; k++)
        out[k] *= scale;
}
