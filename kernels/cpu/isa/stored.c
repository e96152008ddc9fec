/* stored.c - kernels/stored.h at a level. */
#include "kernels/stored.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/quant/vectors.h"

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

/* ---- codes of 4 bits ---- */

#define BLOCK (4 * VF_LEN) /* inputs of a register of bytes */

static int32_t at_most(int64_t n, int32_t most)
{
    return n < most ? (int32_t)n : most;
}

/* n words, a lane each, then zeros. */
VF_FN vi load_words(const uint8_t *words, int32_t n)
{
    return VI_OF_FLOATS(vf_load_n((const float *)(const void *)words, n));
}

/* The four codes in the lower half of each lane as its bytes; the upper half is 0. */
VF_FN vi bytes_of(vi x)
{
    x = VI_AND(VI_OR(x, VI(slli_epi32)(x, 8)), VI(set1_epi32)(0x00ff00ff));
    return VI_AND(VI_OR(x, VI(slli_epi32)(x, 4)), VI(set1_epi32)(0x0f0f0f0f));
}

/* lane[i] has the bytes of inputs 4 i to 4 i + 3, an output a lane: n_in bytes of each output to a row of code. */
VF_FN void put_rows(uint8_t *code, int64_t pitch, vf lane[VF_LEN], int32_t n_out, int32_t n_in)
{
    vf_transpose(lane);
    for (int32_t o = 0; o < n_out; o++)
        if (n_in == BLOCK)
            vf_store((float *)(void *)(code + o * pitch), lane[o]);
        else
            memcpy(code + o * pitch, &lane[o], (size_t)n_in);
}

static void across_block(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_words, int32_t n_in, const uint8_t order[8])
{
    for (int32_t o = 0; o < 8; o++) {
        QR_UNINITIALIZED vf lane[VF_LEN];
        const vi place = VI(set1_epi32)(4 * order[o]), one = VI(set1_epi32)(15);
        for (int32_t i = 0; i < BLOCK; i += 4) {
            vi four = VI_OF_FLOATS(vf_zero());
            for (int32_t k = i + 3; k >= i; k--)
                four = VI_OR(VI(slli_epi32)(four, 8), VI_AND(VI(srlv_epi32)(load_words(words + k * words_pitch, k < n_in ? n_words : 0), place), one));
            lane[i / 4] = VI_AS_FLOATS(four);
        }
        put_rows(code + o * pitch, 8 * pitch, lane, n_words, n_in);
    }
}

static void across(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_words, int64_t n_in, const uint8_t order[8])
{
    QR_ASSERT(code != NULL && words != NULL && order != NULL);
    QR_ASSERT(n_words >= 0 && n_in >= 0 && n_in <= pitch);
    for (int64_t o = 0; o < n_words; o += VF_LEN)
        for (int64_t i = 0; i < n_in; i += BLOCK)
            across_block(code + 8 * o * pitch + i, pitch, words + i * words_pitch + 4 * o, words_pitch, at_most(n_words - o, VF_LEN),
                         at_most(n_in - i, BLOCK), order);
}

/* Of each output one word of the inputs in[n]. */
VF_FN vi pick(const uint8_t *words, int64_t words_pitch, int32_t n_out, const int32_t *in, int32_t n)
{
    vi word = VI_OF_FLOATS(vf_zero());
    for (int32_t k = 0; k < n; k++) {
        const vi code = VI(srlv_epi32)(load_words(words + in[k] / 8 * words_pitch, n_out), VI(set1_epi32)(in[k] % 8 * 4)); /* and others above it */
        word = VI_OR(VI(srli_epi32)(word, 4), VI(slli_epi32)(code, 28));
    }
    return n == 8 ? word : VI(srlv_epi32)(word, VI(set1_epi32)(32 - 4 * n));
}

/* At most VF_LEN outputs and BLOCK inputs: those of the words, or in[n_in]. */
static void along_block(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_out, int32_t n_in, const int32_t *in)
{
    QR_UNINITIALIZED vf lane[VF_LEN];
    for (int32_t r = 0; r < VF_LEN / 2; r++) {
        const int32_t left = n_in - 8 * r;
        const vi x = in && left > 0 ? pick(words, words_pitch, n_out, in + 8 * r, at_most(left, 8)) : load_words(words + r * words_pitch, left > 0 ? n_out : 0);
        lane[2 * r] = VI_AS_FLOATS(bytes_of(VI_AND(x, VI(set1_epi32)(0xffff))));
        lane[2 * r + 1] = VI_AS_FLOATS(bytes_of(VI(srli_epi32)(x, 16)));
    }
    put_rows(code, pitch, lane, n_out, n_in);
}

static void along(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_out, int64_t n_in, const int32_t *in)
{
    QR_ASSERT(code != NULL && words != NULL);
    QR_ASSERT(n_out >= 0 && n_in >= 0 && n_in <= pitch);
    for (int64_t i = 0; i < n_in; i += BLOCK)
        for (int64_t o = 0; o < n_out; o += VF_LEN)
            along_block(code + o * pitch + i, pitch, words + (in ? 0 : i / 8 * words_pitch) + 4 * o, words_pitch, at_most(n_out - o, VF_LEN),
                        at_most(n_in - i, BLOCK), in ? in + i : NULL);
}

const struct qr_stored_ops QR_ISA_NAME(stored_ops) = {.int4_errors = int4_errors, .along = along, .across = across};
