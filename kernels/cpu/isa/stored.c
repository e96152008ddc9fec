/* stored.c - kernels/stored.h at a level. */
#include "kernels/stored.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/simd.h"

#define PART 64 /* numbers after which an error may be enough */

/* One way, the four sums of qr_int4_error in a register. */
struct sums {
    __m128 scale, zero;
    __m256d scales, sum;
};

VF_FN struct sums sums_of(const struct qr_int4_way *way)
{
    return (struct sums){_mm_set1_ps(way->scale), _mm_set1_ps(way->zero), _mm256_set1_pd((double)way->scale), _mm256_setzero_pd()};
}

VF_FN void add_errors(struct sums *s, const float *w, const float *importance)
{
    const __m128 x = _mm_loadu_ps(w), whole = _mm_set1_ps(0x1.8p23f);
    __m128 t = _mm_add_ps(_mm_div_ps(x, s->scale), s->zero);
    t = _mm_min_ps(_mm_max_ps(t, _mm_set1_ps(-8)), _mm_set1_ps(7));
    t = _mm_sub_ps(_mm_sub_ps(_mm_add_ps(t, whole), whole), s->zero);
    const __m256d off = _mm256_fnmadd_pd(s->scales, _mm256_cvtps_pd(t), _mm256_cvtps_pd(x)); /* that product is exact */
    const __m256d by = importance ? _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(importance)), off) : off;
    s->sum = _mm256_add_pd(s->sum, _mm256_mul_pd(by, off));
}

VF_FN double error_of(const struct sums *s)
{
    double lane[4];
    _mm256_storeu_pd(lane, s->sum);
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* Sums only grow: what is no less than the least of those before will not be. */
static void int4_errors(double *error, const float *w, const float *importance, int64_t n, const struct qr_int4_way *way, int32_t n_ways)
{
    QR_ASSERT(error != NULL && w != NULL && way != NULL);
    QR_ASSERT(n % QR_STORED_LANES == 0 && n_ways >= 0);
    double least = INFINITY;
    for (int32_t i = 0; i < n_ways; i++) {
        struct sums s = sums_of(way + i);
        error[i] = 0;
        for (int64_t k = 0; k < n && error[i] < least; k += PART) {
            const int64_t end = n - k < PART ? n : k + PART;
            for (int64_t j = k; j < end; j += QR_STORED_LANES)
                add_errors(&s, w + j, importance ? importance + j : NULL);
            error[i] = error_of(&s);
        }
        least = error[i] < least ? error[i] : least;
    }
}

#ifndef QR_ISA_avx2
/* ---- codes of 4 bits ---- */

#define WORDS 16 /* of a register */
#define BLOCK 64 /* inputs of a register of bytes */
#define AHEAD 256 /* inputs whose words come soon enough */

/* Byte b of x[0..3], b = 0..3, side by side in to[b]. */
VF_FN void gather_bytes(__m512i to[4], const __m512i x[4])
{
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaau;
    const __mmask32 high = 0xaaaaaaaau;
    const __m512i even01 = _mm512_mask_mov_epi8(x[0], odd, _mm512_slli_epi32(x[1], 8)), odd01 = _mm512_mask_mov_epi8(_mm512_srli_epi32(x[0], 8), odd, x[1]);
    const __m512i even23 = _mm512_mask_mov_epi8(x[2], odd, _mm512_slli_epi32(x[3], 8)), odd23 = _mm512_mask_mov_epi8(_mm512_srli_epi32(x[2], 8), odd, x[3]);
    to[0] = _mm512_mask_mov_epi16(even01, high, _mm512_slli_epi32(even23, 16));
    to[1] = _mm512_mask_mov_epi16(odd01, high, _mm512_slli_epi32(odd23, 16));
    to[2] = _mm512_mask_mov_epi16(_mm512_srli_epi32(even01, 16), high, even23);
    to[3] = _mm512_mask_mov_epi16(_mm512_srli_epi32(odd01, 16), high, odd23);
}

/* At most WORDS words of at most BLOCK inputs, while `ahead` inputs' words behind these, which are far from each other, are brought into the cache. */
static void across_block(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_words, int32_t n_in, int32_t ahead,
                         const uint8_t order[8])
{
    const __m512i half = _mm512_set1_epi8(15);
    const __mmask16 there = (__mmask16)((1u << n_words) - 1);
    const __mmask64 kept = n_in == BLOCK ? ~(__mmask64)0 : ((__mmask64)1 << n_in) - 1;
    QR_UNINITIALIZED __m512i place[8][WORDS]; /* [place in a word][four inputs], a lane for each word */
    for (int32_t i = 0; i < ahead; i++)
        _mm_prefetch(words + (BLOCK + i) * words_pitch, _MM_HINT_T0);
    for (int32_t i = 0; i < n_in; i += 4) {
        __m512i low[4], high[4], to[4];
        for (int32_t k = 0; k < 4; k++) {
            const __m512i x = i + k < n_in ? _mm512_maskz_loadu_epi32(there, words + (i + k) * words_pitch) : _mm512_setzero_si512();
            low[k] = _mm512_and_si512(x, half);
            high[k] = _mm512_and_si512(_mm512_srli_epi32(x, 4), half);
        }
        gather_bytes(to, low);
        for (int32_t b = 0; b < 4; b++)
            place[2 * b][i / 4] = to[b];
        gather_bytes(to, high);
        for (int32_t b = 0; b < 4; b++)
            place[2 * b + 1][i / 4] = to[b];
    }
    for (int32_t o = 0; o < 8; o++) {
        QR_UNINITIALIZED vf t[WORDS];
        for (int32_t i = 0; i < WORDS; i++)
            t[i] = i * 4 < n_in ? _mm512_castsi512_ps(place[order[o]][i]) : vf_zero();
        vf_transpose(t);
        for (int32_t k = 0; k < n_words; k++)
            _mm512_mask_storeu_epi8(code + (8 * k + o) * pitch, kept, _mm512_castps_si512(t[k]));
    }
}

/* How many of n inputs the next block has. */
static int32_t block_of(int64_t n)
{
    return n < 0 ? 0 : n < BLOCK ? (int32_t)n : BLOCK;
}

static void across(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_words, int64_t n_in, const uint8_t order[8])
{
    QR_ASSERT(code != NULL && words != NULL && order != NULL);
    QR_ASSERT(n_words >= 0 && n_in >= 0 && n_in <= pitch);
    for (int64_t o = 0; o < n_words; o += WORDS)
        for (int64_t i = 0; i < n_in; i += BLOCK)
            across_block(code + 8 * o * pitch + i, pitch, words + i * words_pitch + 4 * o, words_pitch, (int32_t)(n_words - o < WORDS ? n_words - o : WORDS),
                         block_of(n_in - i), block_of(n_in - i - BLOCK), order);
}

/* x[r] as eight numbers of 64 bits: number c of each, side by side, in x[c]. */
VF_FN void transpose_8x8(__m512i x[8])
{
    __m512i a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm512_unpacklo_epi64(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi64(x[i], x[i + 1]);
    }
    for (int i = 0; i < 2; i++) { /* lanes 0 and 2, 1 and 3 of two rows' pairs each */
        b[i] = _mm512_shuffle_i64x2(a[i], a[i + 2], 0x88);
        b[2 + i] = _mm512_shuffle_i64x2(a[i], a[i + 2], 0xdd);
        b[4 + i] = _mm512_shuffle_i64x2(a[i + 4], a[i + 6], 0x88);
        b[6 + i] = _mm512_shuffle_i64x2(a[i + 4], a[i + 6], 0xdd);
    }
    for (int i = 0; i < 2; i++) {
        x[i] = _mm512_shuffle_i64x2(b[i], b[4 + i], 0x88);
        x[4 + i] = _mm512_shuffle_i64x2(b[i], b[4 + i], 0xdd);
        x[2 + i] = _mm512_shuffle_i64x2(b[2 + i], b[6 + i], 0x88);
        x[6 + i] = _mm512_shuffle_i64x2(b[2 + i], b[6 + i], 0xdd);
    }
}

/* Of each output one word of the inputs in[n]. */
VF_FN __m512i pick(const uint8_t *words, int64_t words_pitch, __mmask16 there, const int32_t *in, int32_t n)
{
    __m512i word = _mm512_setzero_si512();
    for (int32_t k = 0; k < n; k++) {
        const __m512i from = _mm512_maskz_loadu_epi32(there, words + in[k] / 8 * words_pitch);
        const __m512i code = _mm512_srlv_epi32(from, _mm512_set1_epi32(in[k] % 8 * 4)); /* and others above it */
        word = _mm512_or_si512(_mm512_srli_epi32(word, 4), _mm512_slli_epi32(code, 28));
    }
    return n == 8 ? word : _mm512_srlv_epi32(word, _mm512_set1_epi32(32 - 4 * n));
}

/* At most WORDS outputs, of which words of at most BLOCK inputs are there, while those of `ahead` inputs AHEAD further on are
 * prefetched; or of the inputs in[n_in]. */
static void along_block(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_out, int32_t n_in, int32_t ahead,
                        const int32_t *in)
{
    const __m512i half = _mm512_set1_epi8(15);
    const __mmask16 there = (__mmask16)((1u << n_out) - 1);
    const __mmask64 kept = n_in == BLOCK ? ~(__mmask64)0 : ((__mmask64)1 << n_in) - 1;
    QR_UNINITIALIZED __m512i first[8], second[8]; /* of four outputs two each */
    for (int32_t i = 0; i < ahead; i += 8)
        _mm_prefetch(words + (AHEAD + i) / 8 * words_pitch, _MM_HINT_T0);
    for (int32_t r = 0; r < 8; r++) {
        const int32_t left = n_in - 8 * r;
        const __m512i x = left <= 0 ? _mm512_setzero_si512()
                          : in      ? pick(words, words_pitch, there, in + 8 * r, left < 8 ? left : 8)
                                    : _mm512_maskz_loadu_epi32(there, words + r * words_pitch);
        const __m512i low = _mm512_and_si512(x, half), high = _mm512_and_si512(_mm512_srli_epi32(x, 4), half);
        first[r] = _mm512_unpacklo_epi8(low, high);
        second[r] = _mm512_unpackhi_epi8(low, high);
    }
    transpose_8x8(first);
    transpose_8x8(second);
    for (int32_t o = 0; o < n_out; o++)
        _mm512_mask_storeu_epi8(code + o * pitch, kept, (o & 2 ? second : first)[o / 4 * 2 + o % 2]);
}

static void along(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_out, int64_t n_in, const int32_t *in)
{
    QR_ASSERT(code != NULL && words != NULL);
    QR_ASSERT(n_out >= 0 && n_in >= 0 && n_in <= pitch);
    for (int64_t i = 0; i < n_in; i += BLOCK)
        for (int64_t o = 0; o < n_out; o += WORDS)
            along_block(code + o * pitch + i, pitch, words + (in ? 0 : i / 8 * words_pitch) + 4 * o, words_pitch,
                        (int32_t)(n_out - o < WORDS ? n_out - o : WORDS), block_of(n_in - i), in ? 0 : block_of(n_in - i - AHEAD), in ? in + i : NULL);
}

#endif

#ifdef QR_ISA_avx2
#define OUTPUTS 8
#define INPUTS 32

/* Of each of eight outputs, a lane each, the word of the inputs in[n]. */
VF_FN __m256i pick(const uint8_t *words, int64_t words_pitch, __m256i there, const int32_t *in, int32_t n)
{
    __m256i word = _mm256_setzero_si256();
    for (int32_t k = 0; k < n; k++) {
        const __m256i from = _mm256_maskload_epi32((const int *)(const void *)(words + in[k] / 8 * words_pitch), there);
        const __m256i code = _mm256_srlv_epi32(from, _mm256_set1_epi32(in[k] % 8 * 4)); /* and others above it */
        word = _mm256_or_si256(_mm256_srli_epi32(word, 4), _mm256_slli_epi32(code, 28));
    }
    return n == 8 ? word : _mm256_srlv_epi32(word, _mm256_set1_epi32(32 - 4 * n));
}

/* x[r] as four numbers of 64 bits: number c of each, side by side, in x[c]. */
VF_FN void transpose_4x4(__m256i x[4])
{
    const __m256i a = _mm256_unpacklo_epi64(x[0], x[1]), b = _mm256_unpackhi_epi64(x[0], x[1]);
    const __m256i c = _mm256_unpacklo_epi64(x[2], x[3]), d = _mm256_unpackhi_epi64(x[2], x[3]);
    x[0] = _mm256_permute2x128_si256(a, c, 0x20);
    x[1] = _mm256_permute2x128_si256(b, d, 0x20);
    x[2] = _mm256_permute2x128_si256(a, c, 0x31);
    x[3] = _mm256_permute2x128_si256(b, d, 0x31);
}

/* At most OUTPUTS outputs and INPUTS inputs: those of the words, or in[n_in]. */
static void along_block(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_out, int32_t n_in, const int32_t *in)
{
    const __m256i half = _mm256_set1_epi8(15), lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(n_out), lane);
    QR_UNINITIALIZED __m256i first[4], second[4]; /* outputs 0, 1, 4, 5 and 2, 3, 6, 7 */
    QR_UNINITIALIZED uint8_t some[INPUTS];
    for (int32_t r = 0; r < 4; r++) {
        const int32_t left = n_in - 8 * r;
        const __m256i x = left <= 0 ? _mm256_setzero_si256()
                          : in      ? pick(words, words_pitch, there, in + 8 * r, left < 8 ? left : 8)
                                    : _mm256_maskload_epi32((const int *)(const void *)(words + r * words_pitch), there);
        const __m256i low = _mm256_and_si256(x, half), high = _mm256_and_si256(_mm256_srli_epi32(x, 4), half);
        first[r] = _mm256_unpacklo_epi8(low, high);
        second[r] = _mm256_unpackhi_epi8(low, high);
    }
    transpose_4x4(first);
    transpose_4x4(second);
    for (int32_t o = 0; o < n_out; o++) {
        const __m256i row = (o & 2 ? second : first)[o / 4 * 2 + o % 2];
        _mm256_storeu_si256((__m256i *)(void *)(n_in == INPUTS ? code + o * pitch : some), row);
        if (n_in < INPUTS)
            memcpy(code + o * pitch, some, (size_t)n_in);
    }
}

static void along(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_out, int64_t n_in, const int32_t *in)
{
    QR_ASSERT(code != NULL && words != NULL);
    QR_ASSERT(n_out >= 0 && n_in >= 0 && n_in <= pitch);
    for (int64_t i = 0; i < n_in; i += INPUTS)
        for (int64_t o = 0; o < n_out; o += OUTPUTS)
            along_block(code + o * pitch + i, pitch, words + (in ? 0 : i / 8 * words_pitch) + 4 * o, words_pitch,
                        (int32_t)(n_out - o < OUTPUTS ? n_out - o : OUTPUTS), (int32_t)(n_in - i < INPUTS ? n_in - i : INPUTS),
                        in ? in + i : NULL);
}
#endif

const struct qr_stored_ops QR_ISA_NAME(stored_ops) = {
    .int4_errors = int4_errors,
    .along = along,
#ifndef QR_ISA_avx2
    .across = across,
#endif
};
