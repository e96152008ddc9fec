/* block.c - the register blocks of quant.c: bytes of x times bytes of w + 128.
 *
 * AVX2: vpmaddubsw adds pairs of 16-bit products with saturation, which |x| times w with the sign of x cannot reach: 2 * 127 * 127 < 2^15. For few
 * rows, which wait for weights; more go another way (pieces.h, avx2/quant_vnni.c).
 * AVX512-VNNI: vpdpbusd adds four products of an unsigned and a signed byte to 32 bits, modulo 2^32; sums begin at -128 * the sum of x.
 * Several chains of sums per output hide the latency of the instruction; integers do not mind their order. */
#include "base/assert.h"
#include "kernels/cpu/isa/quant/quant.h"
#include "kernels/cpu/isa/simd.h"
#ifdef QR_ISA_avx2
#include "kernels/cpu/isa/quant/vectors.h"
#endif

#define C_STRIDE (QR_QUANT_PANELS * QR_PANEL)

/* Four bytes of x as one number. */
VF_FN int32_t four_of(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return v;
}

#ifdef QR_ISA_avx2

#define ROWS_MAX 4
#define PANEL_VECTORS 2 /* of 8 outputs */

/* A vector's outputs: four products each, of bytes of x, whose size is `size`, and w. */
VF_FN vi products_of(vi w, vi x, vi size)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(size, _mm256_sign_epi8(w, x)), _mm256_set1_epi16(1));
}

/* Bytes w + 128 of four k and one panel, with a prefetch of what lies `ahead` bytes further on. */
VF_FN void load_bytes(vi v[PANEL_VECTORS], const uint8_t *w, int64_t ahead)
{
    _mm_prefetch(w + ahead, _MM_HINT_T0);
#pragma GCC unroll 2
    for (int j = 0; j < PANEL_VECTORS; j++)
        v[j] = _mm256_xor_si256(VI_LOAD(w + j * VI_BYTES), _mm256_set1_epi8(-128));
}

/* mr rows, one panel. */
VF_FN void block(const int mr, const struct qr_quant_args *b)
{
    vi acc[ROWS_MAX][PANEL_VECTORS];
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    const uint8_t *w = b->w;
    for (int32_t k = 0; k < b->n_k; k += 4, w += 64) {
        vi v[PANEL_VECTORS];
        load_bytes(v, w, b->ahead);
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++) {
            const vi x = _mm256_set1_epi32(four_of(b->x + r * b->x_stride + k)), size = _mm256_abs_epi8(x);
            add_onto_32(&acc[r][0], products_of(v[0], x, size));
            add_onto_32(&acc[r][1], products_of(v[1], x, size));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++) {
        VI_STORE(b->c + r * C_STRIDE, acc[r][0]);
        VI_STORE(b->c + r * C_STRIDE + 8, acc[r][1]);
    }
}

static void multiply(const struct qr_quant_args *b)
{
    QR_ASSERT(b->n_rows >= 1 && b->n_rows <= ROWS_MAX);
    QR_ASSERT(b->n_panels == 1 && b->n_k % QR_QUANT_K == 0);
    if (b->n_rows == 1)
        block(1, b);
    else if (b->n_rows == 2)
        block(2, b);
    else if (b->n_rows == 3)
        block(3, b);
    else
        block(4, b);
}

/* One panel's: the other half of a row may be another's. */
VF_FN void clear_sums(const int mr, int32_t *c)
{
    for (int r = 0; r < mr; r++)
        memset(c + r * C_STRIDE, 0, QR_PANEL * sizeof *c);
}

/* c += a group's sums times its multiples. */
VF_FN void add_group(int32_t *c, vi v)
{
    VI_STORE(c, _mm256_add_epi32(VI_LOAD(c), v));
}

/* int4: halves times bytes of x, 15 * 127 * 2 at most for a pair, add up in 16 bits, begun at -8 times the sum of x: 8 * 16 * 127 < 2^15. */
VF_FN void direct4_block(const int mr, const struct qr_quant4_args *b)
{
    const vi low_half = _mm256_set1_epi8(15);
    const uint8_t *w = b->w;
    const int8_t *x = b->x;
    clear_sums(mr, b->c);
    for (int32_t g = 0; g < b->n_k / QR_QUANT_GROUP; g++) {
        const uint8_t *multiple = b->multiple + g * QR_PANEL;
        vi sum[ROWS_MAX][PANEL_VECTORS];
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++)
            sum[r][0] = sum[r][1] = _mm256_set1_epi32(b->group[r * b->group_stride + g]);
        for (int32_t i = 0; i < QR_QUANT_GROUP / 8; i++, w += 64, x += 8) {
            vi low[PANEL_VECTORS], high[PANEL_VECTORS];
            _mm_prefetch(w + b->ahead, _MM_HINT_T0);
#pragma GCC unroll 2
            for (int j = 0; j < PANEL_VECTORS; j++) {
                const vi v = VI_LOAD(w + j * VI_BYTES);
                low[j] = _mm256_and_si256(v, low_half);
                high[j] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low_half);
            }
#pragma GCC unroll 4
            for (int r = 0; r < mr; r++) {
                const vi first = _mm256_set1_epi32(four_of(x + r * b->x_stride)), second = _mm256_set1_epi32(four_of(x + r * b->x_stride + 4));
#pragma GCC unroll 2
                for (int j = 0; j < PANEL_VECTORS; j++) {
                    add_onto_16(&sum[r][j], _mm256_maddubs_epi16(low[j], first));
                    add_onto_16(&sum[r][j], _mm256_maddubs_epi16(high[j], second));
                }
            }
        }
        const vi m[PANEL_VECTORS] = {twice(VI_MULTIPLES(multiple)), twice(VI_MULTIPLES(multiple + 8))};
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
            for (int j = 0; j < PANEL_VECTORS; j++)
                add_group(b->c + r * C_STRIDE + j * 8, _mm256_madd_epi16(sum[r][j], m[j]));
    }
}

static void direct4(const struct qr_quant4_args *b)
{
    QR_ASSERT(b->n_rows >= 1 && b->n_rows <= ROWS_MAX);
    QR_ASSERT(b->n_k % QR_QUANT_K == 0);
    if (b->n_rows == 1)
        direct4_block(1, b);
    else if (b->n_rows == 2)
        direct4_block(2, b);
    else if (b->n_rows == 3)
        direct4_block(3, b);
    else
        direct4_block(4, b);
}

const struct qr_quant_ways *qr_avx2_quant_ways(void)
{
    static const struct qr_quant_block only = {.multiply = multiply, .rows_max = ROWS_MAX, .panels_max = 1, .rows_read = 1};
    static const struct qr_quant_ways plain = {.few = &only, .many = &only, .few_rows = ROWS_MAX, .direct = direct4};
    static const struct qr_quant_ways vnni = {.few = &only, .many = &qr_avx2_quant_vnni, .few_rows = ROWS_MAX, .direct = direct4};
    return qr_avx2_has_vnni() ? &vnni : &plain;
}

#else

#define ROWS_MAX 8
#define FEW_ROWS 4
#ifdef __AVX512VNNI__
#define VNNI
#else
#define VNNI __attribute__((target("avx512vnni")))
#endif

/* mr rows, nr panels, n_chains sums for each in turn of k. */
VNNI VF_FN void block(const int mr, const int nr, const int n_chains, const struct qr_quant_args *b)
{
    __m512i acc[16];
#pragma GCC unroll 16
    for (int i = 0; i < mr * nr * n_chains; i++)
        acc[i] = i % n_chains ? _mm512_setzero_si512() : _mm512_set1_epi32(-128 * b->sum[i / n_chains / nr]);
    const uint8_t *w = b->w;
    const int8_t *x = b->x;
    const int64_t x_stride = b->x_stride, w_panel = b->w_panel, ahead = b->ahead;
    for (int32_t k = 0; k < b->n_k; k += 4 * n_chains, w += 64 * n_chains, x += 4 * n_chains) {
#pragma GCC unroll 8
        for (int chain = 0; chain < n_chains; chain++) {
            __m512i wv[2];
#pragma GCC unroll 2
            for (int j = 0; j < nr; j++) {
                wv[j] = _mm512_loadu_si512(w + j * w_panel + chain * 64);
                if (mr <= FEW_ROWS)
                    _mm_prefetch(w + j * w_panel + chain * 64 + ahead, _MM_HINT_T1);
            }
#pragma GCC unroll 8
            for (int r = 0; r < mr; r++) {
                __m512i xv = _mm512_set1_epi32(four_of(x + r * x_stride + chain * 4));
#pragma GCC unroll 2
                for (int j = 0; j < nr; j++)
                    acc[(r * nr + j) * n_chains + chain] = _mm512_dpbusd_epi32(acc[(r * nr + j) * n_chains + chain], wv[j], xv);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < mr * nr; i++) {
        __m512i sum = acc[i * n_chains];
#pragma GCC unroll 8
        for (int chain = 1; chain < n_chains; chain++)
            sum = _mm512_add_epi32(sum, acc[i * n_chains + chain]);
        _mm512_storeu_si512(b->c + (i / nr) * C_STRIDE + (i % nr) * QR_PANEL, sum);
    }
}

#define BLOCK(mr, nr, n_chains)                                                                                         \
    VNNI static void block_##mr##_##nr(const struct qr_quant_args *b)                                                   \
    {                                                                                                                   \
        block(mr, nr, n_chains, b);                                                                                     \
    }
BLOCK(1, 1, 8)
BLOCK(2, 1, 4)
BLOCK(3, 1, 4)
BLOCK(4, 1, 4)
BLOCK(5, 1, 2)
BLOCK(6, 1, 2)
BLOCK(7, 1, 2)
BLOCK(8, 1, 2)
BLOCK(1, 2, 8)
BLOCK(2, 2, 4)
BLOCK(3, 2, 2)
BLOCK(4, 2, 2)
BLOCK(5, 2, 1)
BLOCK(6, 2, 1)
BLOCK(7, 2, 1)
BLOCK(8, 2, 1)

static void multiply(const struct qr_quant_args *b)
{
    static void (*const blocks[2][ROWS_MAX])(const struct qr_quant_args *) = {
        {block_1_1, block_2_1, block_3_1, block_4_1, block_5_1, block_6_1, block_7_1, block_8_1},
        {block_1_2, block_2_2, block_3_2, block_4_2, block_5_2, block_6_2, block_7_2, block_8_2},
    };
    QR_ASSERT(b->n_rows >= 1 && b->n_rows <= ROWS_MAX && b->n_k % QR_QUANT_K == 0);
    QR_ASSERT(b->n_panels == 1 || b->n_panels == 2);
    blocks[b->n_panels - 1][b->n_rows - 1](b);
}

/* int4: a group's sum of halves times x, begun at -8 times the sum of x, fits 16 bits (8 * 32 * 127 < 2^15), so vpdpwssd multiplies it by the
 * group's multiple and adds: the other 16 bits meet zeros. */
VNNI VF_FN void direct_block(const int mr, const struct qr_quant4_args *b)
{
    const __m512i low_half = _mm512_set1_epi8(15);
    __m512i acc[FEW_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++)
        acc[r] = _mm512_setzero_si512();
    const uint8_t *w = b->w, *multiple = b->multiple;
    const int64_t ahead = b->ahead;
    const int8_t *x = b->x;
    for (int32_t g = 0; g < b->n_k / QR_QUANT_GROUP; g++, x += QR_QUANT_GROUP) {
        const __m128i *shared = (const __m128i *)(const void *)(multiple + g * QR_PANEL);
        __m512i m = _mm512_cvtepu8_epi32(_mm_loadu_si128(shared)), sum[FEW_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++)
            sum[r] = _mm512_set1_epi32(b->group[r * b->group_stride + g]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++, w += 64) {
            __m512i v = _mm512_loadu_si512(w), low = _mm512_and_si512(v, low_half), high = _mm512_and_si512(_mm512_srli_epi16(v, 4), low_half);
            _mm_prefetch(w + ahead, _MM_HINT_T1);
#pragma GCC unroll 4
            for (int r = 0; r < mr; r++) {
                const int8_t *at = x + r * b->x_stride + i * 8;
                sum[r] = _mm512_dpbusd_epi32(sum[r], low, _mm512_set1_epi32(four_of(at)));
                sum[r] = _mm512_dpbusd_epi32(sum[r], high, _mm512_set1_epi32(four_of(at + 4)));
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++)
            acc[r] = _mm512_dpwssd_epi32(acc[r], sum[r], m);
    }
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++)
        _mm512_storeu_si512(b->c + r * C_STRIDE, acc[r]);
}

VNNI static void direct(const struct qr_quant4_args *b)
{
    QR_ASSERT(b->n_rows >= 1 && b->n_rows <= FEW_ROWS);
    QR_ASSERT(b->n_k % QR_QUANT_K == 0);
    if (b->n_rows == 1)
        direct_block(1, b);
    else if (b->n_rows == 2)
        direct_block(2, b);
    else if (b->n_rows == 3)
        direct_block(3, b);
    else
        direct_block(4, b);
}

const struct qr_quant_ways *qr_avx512_quant_ways(void)
{
    static const struct qr_quant_block only = {.multiply = multiply, .rows_max = ROWS_MAX, .panels_max = QR_QUANT_PANELS, .rows_read = 1};
    static const struct qr_quant_ways ways = {.few = &only, .many = &only, .few_rows = FEW_ROWS, .direct = direct};
    return __builtin_cpu_supports("avx512vnni") ? &ways : NULL;
}

#endif
