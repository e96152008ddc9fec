/* quant_vnni.c - the register block of quant.c for many rows where the processor has AVX-VNNI: vpdpbusd adds four products of a byte w + 128 and a byte of x to
 * 32 bits, which nothing can saturate; sums begin at -128 * the sum of x. Integers are exact, so the bits are those of quant/block.c and quant/pieces.h. */
#include "base/assert.h"
#include "kernels/cpu/isa/quant/quant.h"
#include "kernels/cpu/isa/quant/vectors.h"

#define C_STRIDE (QR_QUANT_PANELS * QR_PANEL)
#define ROWS_MAX 6 /* twelve sums, a panel's two vectors and four bytes of x are fifteen registers */

#ifdef QUIRE_EMULATE_LEVELS
#define VNNI

VF_FN vi four_products(vi sum, vi w, vi x)
{
    const vi even = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(x, 8))));
}
#else
#define VNNI __attribute__((target("avxvnni")))

VNNI VF_FN vi four_products(vi sum, vi w, vi x)
{
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}
#endif

VF_FN vi four_of(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm256_set1_epi32(v);
}

/* mr rows, one panel. */
VNNI VF_FN void block(const int mr, const struct qr_quant_args *b)
{
    vi acc[ROWS_MAX][2] QR_UNINITIALIZED;
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++)
        acc[r][0] = acc[r][1] = _mm256_set1_epi32(-128 * b->sum[r]);
    const uint8_t *w = b->w;
    for (int32_t k = 0; k < b->n_k; k += 4, w += 64) {
        const vi w0 = VI_LOAD(w), w1 = VI_LOAD(w + VI_BYTES);
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++) {
            const vi x = four_of(b->x + r * b->x_stride + k);
            acc[r][0] = four_products(acc[r][0], w0, x);
            acc[r][1] = four_products(acc[r][1], w1, x);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++) {
        VI_STORE(b->c + r * C_STRIDE, acc[r][0]);
        VI_STORE(b->c + r * C_STRIDE + 8, acc[r][1]);
    }
}

#define BLOCK(mr)                                                  \
    VNNI static void block_##mr(const struct qr_quant_args *b)     \
    {                                                              \
        block(mr, b);                                              \
    }
BLOCK(1)
BLOCK(2)
BLOCK(3)
BLOCK(4)
BLOCK(5)
BLOCK(6)

static void multiply(const struct qr_quant_args *b)
{
    static void (*const blocks[ROWS_MAX])(const struct qr_quant_args *) = {block_1, block_2, block_3, block_4, block_5, block_6};
    QR_ASSERT(b->n_rows >= 1 && b->n_rows <= ROWS_MAX);
    QR_ASSERT(b->n_panels == 1 && b->n_k % QR_QUANT_K == 0);
    blocks[b->n_rows - 1](b);
}

const struct qr_quant_block qr_avx2_quant_vnni = {.multiply = multiply, .rows_max = ROWS_MAX, .panels_max = 1, .rows_read = 1};
