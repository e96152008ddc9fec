/* Attention over caches of 8 bits (kernels.h, attention: int8 and fp8) for every architecture: the tiles of attend_tiles.h, whose keys and values stay bytes in
 * memory and in shared memory and become bf16, which holds them exactly, in registers in front of each product. A key's scale multiplies its finished scores, a
 * value's the probabilities that meet it. Sums are of two levels: a piece's by itself in the accumulators, pieces joined in f32.
 *
 * Both kinds of code have one kernel, which asks in front of a tile's products what it has: two of each would take
 * ptxas twice as long. E4M3 becomes bf16 by shifts and a product on every architecture: the instruction that 8.9 has
 * for it makes f16, and queries and probabilities times a scale may be larger than that holds. Codes are finite: what
 * is not has the scale NaN, so no kernel needs to look for such values among the loaded ones. */
#include "kernels/cuda/attend_tiles.h"

/* Four codes as bf16: bytes 0 and 2 in *even, 1 and 3 in *odd. */
template <bool E4M3> QR_DEVICE void widen(uint32_t codes, uint32_t *even, uint32_t *odd)
{
    if (E4M3) {
        /* 2^120: the exponent was that much too small */
        *even = qr_mul_bf16x2((codes << 8 & 0x80008000u) | (codes << 4 & 0x07f007f0u), 0x7b807b80u);
        *odd = qr_mul_bf16x2((codes & 0x80008000u) | (codes >> 4 & 0x07f007f0u), 0x7b807b80u);
        return;
    }
    /* 128 + the low seven bits, minus 128 or, as the sign's bit is the lowest of bf16's exponent, 256 */
    const uint32_t upper = codes >> 8;
    *even = qr_sub_bf16x2((codes & 0x007f007fu) | 0x43004300u, (codes & 0x00800080u) | 0x43004300u);
    *odd = qr_sub_bf16x2((upper & 0x007f007fu) | 0x43004300u, (upper & 0x00800080u) | 0x43004300u);
}

template <class of, bool E4M3>
QR_DEVICE void multiply_keys(float s[of::MINE][of::EIGHTS][4], const struct rows<of> &w, uint16_t *queries, uint8_t *keys)
{
#pragma unroll 1
    for (int k = 0; k < of::D / 32; k++) {
        uint32_t key[4]; /* of 32 positions and 16 numbers, or of 16 and 32 */
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t q[of::MINE][4];
            if (of::EIGHTS == 4)
                qr_ldmatrix<4>(key, stage_at<of>(keys, w.beside * of::KEYS + w.lane, 2 * k + half));
            else if (half == 0)
                qr_ldmatrix<4>(key, stage_at<of>(keys, w.beside * of::KEYS + w.lane / 16 * 8 + w.lane % 8, 2 * k + w.lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < of::MINE; m++)
                qr_ldmatrix<4>(q[m], qr_chunk_at<of::D>(queries, (w.down * of::MINE + m) * 16 + w.lane % 16, 4 * k + 2 * half + w.lane / 16));
#pragma unroll
            for (int n = 0; n < of::EIGHTS; n++) {
                uint32_t b[2];
                widen<E4M3>(key[of::EIGHTS == 4 ? n : 2 * n + half], &b[0], &b[1]);
#pragma unroll
                for (int m = 0; m < of::MINE; m++)
                    qr_mma_bf16(s[m][n], q[m], b);
            }
        }
    }
}

template <class of>
QR_DEVICE void add_scores(float s[of::MINE][of::EIGHTS][4], const struct rows<of> &w, const struct attention &a, uint16_t *queries, uint8_t *keys)
{
    if (a.e4m3)
        multiply_keys<of, true>(s, w, queries, keys);
    else
        multiply_keys<of, false>(s, w, queries, keys);
    const float *scales = (const float *)(keys + TILE * of::ROW_BYTES) + w.beside * of::KEYS + w.lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < of::EIGHTS; n++) {
        const float2 scale = *(const float2 *)(scales + n * 8);
#pragma unroll
        for (int i = 0; i < 4 * of::MINE; i++)
            s[i / 4][n][i % 4] *= i % 2 ? scale.y : scale.x;
    }
}

template <class of, bool E4M3>
QR_DEVICE void multiply_values(float out[of::MINE][of::OUT_EIGHTS][4], const struct rows<of> &w, uint16_t *weights, uint8_t *values, int32_t tile)
{
    const int32_t chunk = w.beside * of::COLS / 16;
#pragma unroll 1
    for (int k = 0; k < TILE / 16; k++) {
        uint32_t p[of::MINE][4];
        load_weights<of>(p, w, weights, tile, k);
        uint32_t v[4]; /* of 16 columns, or of 32 */
#pragma unroll
        for (int n = 0; n < of::OUT_EIGHTS; n += 2) {
            uint32_t even[2], odd[2];
            if (of::COLS == 16)
                qr_ldmatrix_trans<2>(v, stage_at<of>(values, k * 16 + w.lane % 16, chunk));
            else if (n % 4 == 0)
                qr_ldmatrix_trans<4>(v, stage_at<of>(values, k * 16 + w.lane % 16, chunk + n / 2 + w.lane / 16));
            widen<E4M3>(v[n % 4], &even[0], &odd[0]);
            widen<E4M3>(v[n % 4 + 1], &even[1], &odd[1]);
#pragma unroll
            for (int m = 0; m < of::MINE; m++) {
                qr_mma_bf16(out[m][n], p[m], even);
                qr_mma_bf16(out[m][n + 1], p[m], odd);
            }
        }
    }
}

template <class of>
QR_DEVICE void add_values(float out[of::MINE][of::OUT_EIGHTS][4], const struct rows<of> &w, const struct attention &a, const struct item &it, uint16_t *weights,
                          uint8_t *values, int32_t tile)
{
    (void)it;
    if (a.e4m3)
        multiply_values<of, true>(out, w, weights, values, tile);
    else
        multiply_values<of, false>(out, w, weights, values, tile);
}

/* ---- the host's side ---- */

void attention_codes(struct qr_queue *q, const struct attention *a, const struct qr_kv_view *kv, const struct qr_batch *host)
{
    QR_ASSERT(q != NULL && a != NULL && kv != NULL && host != NULL);
    QR_ASSERT(kv->dtype == QR_I8 || kv->dtype == QR_E4M3);
    QR_ASSERT(a->e4m3 == (kv->dtype == QR_E4M3));
    if (kv->head_dim <= 64) {
        launch_tiles<shape<64, 1, 1>>(q, *a, host);
        launch_tiles<shape<64, 4, 1>>(q, *a, host);
    } else if (kv->head_dim <= 128) {
        launch_tiles<shape<128, 1, 1>>(q, *a, host);
        launch_tiles<shape<128, 4, 1>>(q, *a, host);
    } else {
        launch_tiles<shape<256, 1, 1>>(q, *a, host);
        launch_tiles<shape<256, 2, 1>>(q, *a, host);
    }
}

QR_STOPS(attention_codes)
