/* quant.c - quantized weights and activations on their way to tiles (isa/quant.h: the layout). */
#include "kernels/cpu/amx/quant.h"

#include "base/assert.h"
#include "kernels/cpu/amx/coded_table.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/row.h"

#define BYTES_K (2 * QR_TILE_K) /* inputs of a tile of bytes */

/* The largest magnitude, as bits: they order like the numbers (quant.h). */
static uint32_t row_max(const float *x, int32_t n)
{
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int32_t k = 0; k < n; k += VF_LEN)
        most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(vf_load_n(x + k, vf_min_len(n - k))), size));
    return _mm512_reduce_max_epu32(most);
}

/* 64 inputs of a row, of which n are there. The conversion rounds as quant.h does: to nearest, ties to even. */
VF_FN __m512i round_line(char *dst, const float *x, int32_t n, vf inverse)
{
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int32_t i = 0; i < BYTES_K; i += VF_LEN) {
        vf v = n - i >= VF_LEN ? vf_load(x + i) : n > i ? vf_load_n(x + i, n - i) : vf_zero();
        __m512i q = _mm512_cvtps_epi32(vf_mul(v, inverse));
        _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm512_cvtepi32_epi8(q));
        sum = _mm512_add_epi32(sum, q);
    }
    return sum;
}

void qr_amx_round_rows(char *dst, float *scale, int32_t *sum, const struct qr_linear_args *a, int32_t row, int32_t n_rows, float *scratch)
{
    QR_ASSERT(dst != NULL && scale != NULL && sum != NULL && a != NULL);
    QR_ASSERT(n_rows >= 1 && n_rows <= QR_TILE_ROWS && row >= 0 && row + n_rows <= a->n_rows);
    const int64_t step = n_rows * QR_TILE_ROW_BYTES;
    const int32_t n_in = a->n_in;
    for (int32_t r = 0; r < n_rows; r++, dst += QR_TILE_ROW_BYTES) {
        const float *x = a->x + (row + r) * a->x_stride;
        if (a->norm_w) {
            row_norm(scratch, x, a->norm_w, n_in, a->eps);
            x = scratch;
        }
        float inverse;
        scale[r] = qr_quant_scale(&inverse, row_max(x, n_in), QR_Q8_LARGEST);
        const vf by = vf_set1(inverse);
        __m512i all = _mm512_setzero_si512();
        char *line = dst;
        for (int32_t k = 0; k < n_in; k += BYTES_K, line += step) {
            if (inverse == 0) /* infinity times 0 is no number */
                memset(line, 0, BYTES_K);
            else
                all = _mm512_add_epi32(all, round_line(line, x + k, n_in - k, by));
        }
        sum[r] = _mm512_reduce_add_epi32(all);
    }
}

void qr_amx_unpack(char *dst, const char *panel, int64_t head_bytes, int32_t step, int32_t n_steps, int64_t ahead_bytes)
{
    QR_ASSERT(dst != NULL && panel != NULL);
    QR_ASSERT(step >= 0 && n_steps >= 1);
    const struct qr_unpack u = qr_unpack_of((const uint8_t *)panel, head_bytes);
    const int32_t per_step = BYTES_K / QR_QUANT_GROUP;
    qr_unpack_4((uint8_t *)dst, &u, step * per_step, n_steps * per_step, u.w + (int64_t)step * per_step * QR_QUANT_GROUP * QR_PANEL / 2 + ahead_bytes);
}

void qr_amx_unpack_coded(char *dst, const struct qr_coded_shape *s, const char *panel, int32_t step, int32_t n_steps, int64_t ahead_bytes)
{
    QR_ASSERT(dst != NULL && s != NULL && panel != NULL);
    QR_ASSERT(step >= 0 && n_steps >= 1);
    uint8_t *to = (uint8_t *)dst;
    const uint8_t *from = (const uint8_t *)panel;
    const bool adds = s->f.offset || s->f.zero;
#define UNPACK(bits, adds) coded_tiles_of_pairs(bits, adds, to, s, from, step, n_steps, ahead_bytes)
    if (!coded_is_left(s))
        qr_unpack_coded(to, s, from, step, n_steps, ahead_bytes);
    else if (s->f.e4m3)
        UNPACK(QR_CODED_E4M3, false);
    else if (s->f.bits == 5 && adds)
        UNPACK(5, true);
    else if (s->f.bits == 5)
        UNPACK(5, false);
    else if (s->f.bits == 2)
        UNPACK(2, true);
    else if (s->f.bits == 3)
        UNPACK(3, false);
    else if (adds)
        UNPACK(4, true);
    else
        UNPACK(4, false);
#undef UNPACK
}

void qr_amx_coded_row(float *out, enum qr_dtype t, const uint8_t *panel, int32_t row, int64_t n_in, float scale)
{
    const struct qr_coded_shape s = qr_coded_shape_of(t, n_in);
    uint16_t tile[QR_TILE_BYTES / sizeof(uint16_t)] __attribute__((aligned(64))); /* [16][16][2] */
    QR_ASSERT(out != NULL && panel != NULL);
    QR_ASSERT(row >= 0 && row < QR_PANEL);
    for (int64_t k = 0; k < n_in; k++) {
        if (k % QR_TILE_K == 0)
            qr_amx_unpack_coded((char *)tile, &s, (const char *)panel, (int32_t)(k / QR_TILE_K), 1, 0);
        out[k] = scale * qr_bf16_to_f32(tile[(k % QR_TILE_K / 2 * QR_PANEL + row) * 2 + k % 2]);
    }
}
