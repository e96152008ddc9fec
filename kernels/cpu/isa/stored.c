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

#define BLOCK 64      /* inputs at a time: a line of bytes, of which rows are written whole */
#define AHEAD BLOCK   /* inputs whose words come soon enough */

static int32_t at_most(int64_t n, int32_t most)
{
    return n < most ? (int32_t)n : most;
}

/* n words, a lane each, then zeros. */
VF_FN vi load_words(const uint8_t *words, int32_t n)
{
    return VI_OF_FLOATS(vf_load_n((const float *)(const void *)words, n));
}

/* Rows of words come into the cache: they lie pages apart, so that no processor foresees them. */
VF_FN void prefetch_rows(const uint8_t *words, int64_t words_pitch, int64_t n_rows, int64_t n_words)
{
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t o = 0; o < n_words; o += 64 / 4)
            __builtin_prefetch(words + i * words_pitch + 4 * o);
}

/* The four codes in the lower half of each lane as its bytes; the upper half is 0. */
VF_FN vi bytes_of(vi x)
{
    x = VI_AND(VI_OR(x, VI(slli_epi32)(x, 8)), VI(set1_epi32)(0x00ff00ff));
    return VI_AND(VI_OR(x, VI(slli_epi32)(x, 4)), VI(set1_epi32)(0x0f0f0f0f));
}

/* lane[i] has the bytes of inputs 4 i to 4 i + 3, an output a lane: lane[VF_LEN k + o] gets those that output o has in register k. */
VF_FN void transpose(vf lane[BLOCK / 4])
{
    for (int32_t i = 0; i < BLOCK / 4; i += VF_LEN)
        vf_transpose(lane + i);
}

/* n_in bytes of the output whose first register that is. */
VF_FN void put_row(uint8_t *code, const vf *lane, int32_t n_in)
{
    for (int32_t i = 0; i < n_in; i += VI_BYTES, lane += VF_LEN)
        if (n_in - i >= VI_BYTES)
            vf_store((float *)(void *)(code + i), *lane);
        else
            memcpy(code + i, lane, (size_t)(n_in - i));
}

/* x[i] has four bytes of each word of input i: to[j] has words j, 4 + j, .. of a quarter each, and of each byte's four inputs a lane. */
VF_FN void join_inputs(vf to[4], const vi x[4])
{
    const vi a = VI(unpacklo_epi8)(x[0], x[1]), b = VI(unpackhi_epi8)(x[0], x[1]);
    const vi c = VI(unpacklo_epi8)(x[2], x[3]), d = VI(unpackhi_epi8)(x[2], x[3]);
    to[0] = VI_AS_FLOATS(VI(unpacklo_epi16)(a, c));
    to[1] = VI_AS_FLOATS(VI(unpackhi_epi16)(a, c));
    to[2] = VI_AS_FLOATS(VI(unpacklo_epi16)(b, d));
    to[3] = VI_AS_FLOATS(VI(unpackhi_epi16)(b, d));
}

/* output[place]: the output that has this place in a word. */
static void across_block(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_words, int32_t n_in, const uint8_t output[8])
{
    const vi half = VI(set1_epi8)(15);
    QR_UNINITIALIZED vf lane[2][4][BLOCK / 4]; /* of even and odd places; [word % 4][input / 4] */
    for (int32_t i = 0; i < BLOCK; i += 4) {
        vi low[4], high[4];
        vf to[4];
        for (int32_t k = 0; k < 4; k++) {
            const vi x = load_words(words + (i + k) * words_pitch, i + k < n_in ? n_words : 0);
            low[k] = VI_AND(x, half);
            high[k] = VI_AND(VI(srli_epi16)(x, 4), half);
        }
        join_inputs(to, low);
        for (int32_t j = 0; j < 4; j++)
            lane[0][j][i / 4] = to[j];
        join_inputs(to, high);
        for (int32_t j = 0; j < 4; j++)
            lane[1][j][i / 4] = to[j];
    }
    for (int32_t odd = 0; odd < 2; odd++)
        for (int32_t j = 0; j < 4; j++) {
            transpose(lane[odd][j]);
            for (int32_t l = 0; l < VF_LEN; l++)
                if (l / 4 * 4 + j < n_words)
                    put_row(code + (8 * (l / 4 * 4 + j) + output[l % 4 * 2 + odd]) * pitch, &lane[odd][j][l], n_in);
        }
}

static void across(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_words, int64_t n_in, const uint8_t order[8])
{
    QR_ASSERT(code != NULL && words != NULL && order != NULL);
    QR_ASSERT(n_words >= 0 && n_in >= 0 && n_in <= pitch);
    uint8_t output[8];
    for (int32_t o = 0; o < 8; o++)
        output[order[o]] = (uint8_t)o;
    for (int64_t i = 0; i < n_in; i += BLOCK) {
        prefetch_rows(words + (i + AHEAD) * words_pitch, words_pitch, at_most(n_in - i - AHEAD, BLOCK), n_words);
        for (int64_t o = 0; o < n_words; o += VF_LEN)
            across_block(code + 8 * o * pitch + i, pitch, words + i * words_pitch + 4 * o, words_pitch, at_most(n_words - o, VF_LEN),
                         at_most(n_in - i, BLOCK), output);
    }
}

/* Where a block's inputs lie: bytes to their words, and bits in them. */
struct places {
    int64_t at[BLOCK];
    int32_t bits[BLOCK];
};

/* Of inputs in[n], and behind them of such that are 0. */
static void find_places(struct places *p, const int32_t *in, int64_t words_pitch, int32_t n)
{
    for (int32_t k = 0; k < BLOCK; k++) {
        p->at[k] = k < n ? in[k] / 8 * words_pitch : 0;
        p->bits[k] = k < n ? in[k] % 8 * 4 : 32;
    }
}

/* Of each output the bytes of four inputs from `first` on. */
VF_FN vi pick(const uint8_t *words, const struct places *p, int32_t n_out, int32_t first)
{
    vi four = VI_OF_FLOATS(vf_zero());
    for (int32_t k = first + 3; k >= first; k--) {
        const vi code = VI(srlv_epi32)(load_words(words + p->at[k], n_out), VI(set1_epi32)(p->bits[k])); /* and others above it */
        four = VI_OR(VI(slli_epi32)(four, 8), VI_AND(code, VI(set1_epi32)(15)));
    }
    return four;
}

/* At most VF_LEN outputs and BLOCK inputs: those of the words, or of places. */
static void along_block(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_out, int32_t n_in, const struct places *in)
{
    QR_UNINITIALIZED vf lane[BLOCK / 4];
    for (int32_t i = 0; in && i < BLOCK; i += 4)
        lane[i / 4] = VI_AS_FLOATS(pick(words, in, n_out, i));
    for (int32_t i = 0; !in && i < BLOCK; i += 8) {
        const vi x = load_words(words + i / 8 * words_pitch, i < n_in ? n_out : 0);
        lane[i / 4] = VI_AS_FLOATS(bytes_of(VI_AND(x, VI(set1_epi32)(0xffff))));
        lane[i / 4 + 1] = VI_AS_FLOATS(bytes_of(VI(srli_epi32)(x, 16)));
    }
    transpose(lane);
    for (int32_t o = 0; o < n_out; o++)
        put_row(code + o * pitch, &lane[o], n_in);
}

static void along(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_out, int64_t n_in, const int32_t *in)
{
    QR_ASSERT(code != NULL && words != NULL);
    QR_ASSERT(n_out >= 0 && n_in >= 0 && n_in <= pitch);
    QR_UNINITIALIZED struct places places;
    for (int64_t i = 0; i < n_in; i += BLOCK) {
        const int32_t n = at_most(n_in - i, BLOCK);
        if (in)
            find_places(&places, in + i, words_pitch, n);
        else
            prefetch_rows(words + (i + AHEAD) / 8 * words_pitch, words_pitch, at_most(n_in - i - AHEAD, BLOCK) / 8, n_out);
        for (int64_t o = 0; o < n_out; o += VF_LEN)
            along_block(code + o * pitch + i, pitch, words + (in ? 0 : i / 8 * words_pitch) + 4 * o, words_pitch, at_most(n_out - o, VF_LEN), n,
                        in ? &places : NULL);
    }
}

/* ---- as words of coded rows: inputs 0 4 1 5 2 6 3 7 from the low bits up ---- */

static const uint8_t row_of[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* where input i of eight lies */

/* Codes of 4 bits: row r, place p and row p, place r change places, lane by lane. */
VF_FN void transpose_codes(vi x[8])
{
    const vi mask[] = {VI(set1_epi32)(0x0000ffff), VI(set1_epi32)(0x00ff00ff), VI(set1_epi32)(0x0f0f0f0f)};
#pragma GCC unroll 8
    for (int32_t k = 0; k < 4; k++) {
        const vi t = VI_AND(VI_XOR(VI(srli_epi32)(x[k], 16), x[k + 4]), mask[0]);
        x[k] = VI_XOR(x[k], VI(slli_epi32)(t, 16));
        x[k + 4] = VI_XOR(x[k + 4], t);
    }
#pragma GCC unroll 8
    for (int32_t k = 0; k < 6; k++) {
        if (k & 2)
            continue;
        const vi t = VI_AND(VI_XOR(VI(srli_epi32)(x[k], 8), x[k + 2]), mask[1]);
        x[k] = VI_XOR(x[k], VI(slli_epi32)(t, 8));
        x[k + 2] = VI_XOR(x[k + 2], t);
    }
#pragma GCC unroll 8
    for (int32_t k = 0; k < 8; k += 2) {
        const vi t = VI_AND(VI_XOR(VI(srli_epi32)(x[k], 4), x[k + 1]), mask[2]);
        x[k] = VI_XOR(x[k], VI(slli_epi32)(t, 4));
        x[k + 1] = VI_XOR(x[k + 1], t);
    }
}

/* VF_LEN inputs of n_words words each. */
VF_FN void across_words_block(uint32_t *to, int64_t pitch, const uint8_t *words, int64_t words_pitch, int32_t n_words, const uint8_t output[8])
{
    QR_UNINITIALIZED vf lane[VF_LEN]; /* [input / 8][output], then of each word [input / 8][output] */
    for (int32_t i = 0; i < VF_LEN; i += 8) {
        QR_UNINITIALIZED vi x[8];
#pragma GCC unroll 8
        for (int32_t k = 0; k < 8; k++)
            x[row_of[k]] = load_words(words + (i + k) * words_pitch, n_words);
        transpose_codes(x);
        for (int32_t k = 0; k < 8; k++)
            lane[i + output[k]] = VI_AS_FLOATS(x[k]);
    }
    vf_transpose(lane);
    for (int32_t w = 0; w < n_words; w++)
        for (int32_t i = 0; i < VF_LEN; i += 8)
            memcpy(to + i / 8 * pitch + 8 * w, (const uint8_t *)&lane[w] + 4 * i, 32);
}

static void across_words(uint32_t *to, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_words, int64_t n_in, const uint8_t order[8])
{
    QR_ASSERT(to != NULL && words != NULL && order != NULL);
    QR_ASSERT(n_words >= 0 && n_in >= 0 && n_in % 32 == 0);
    uint8_t output[8];
    for (int32_t o = 0; o < 8; o++)
        output[order[o]] = (uint8_t)o;
    for (int64_t i = 0; i < n_in; i += VF_LEN) {
        prefetch_rows(words + (i + AHEAD / 2) * words_pitch, words_pitch, at_most(n_in - i - AHEAD / 2, VF_LEN), n_words);
        for (int64_t o = 0; o < n_words; o += VF_LEN)
            across_words_block(to + i / 8 * pitch + 8 * o, pitch, words + i * words_pitch + 4 * o, words_pitch, at_most(n_words - o, VF_LEN), output);
    }
}

/* Codes in the order of their bits, in that of a coded row's word. */
VF_FN vi in_rows_order(vi x)
{
    const vi byte = VI_AND(VI_XOR(x, VI(srli_epi32)(x, 8)), VI(set1_epi32)(0x0000ff00));
    x = VI_XOR(x, VI_XOR(byte, VI(slli_epi32)(byte, 8)));
    const vi half = VI_AND(VI_XOR(x, VI(srli_epi32)(x, 4)), VI(set1_epi32)(0x00f000f0));
    return VI_XOR(x, VI_XOR(half, VI(slli_epi32)(half, 4)));
}

/* A row of words of eight inputs in[i]. */
VF_FN void pick_words(uint32_t *to, const uint8_t *words, int64_t words_pitch, int64_t n_out, const int32_t *in)
{
    const uint8_t *from[8];
    vi bits[8];
    for (int32_t k = 0; k < 8; k++) {
        from[row_of[k]] = words + in[k] / 8 * words_pitch;
        bits[row_of[k]] = VI(set1_epi32)(in[k] % 8 * 4);
    }
    for (int64_t o = 0; o < n_out; o += VF_LEN) {
        const int32_t n = at_most(n_out - o, VF_LEN);
        vi eight = VI_OF_FLOATS(vf_zero());
        for (int32_t row = 7; row >= 0; row--) {
            const vi code = VI(srlv_epi32)(load_words(from[row] + 4 * o, n), bits[row]); /* and others above it */
            eight = VI_OR(VI(slli_epi32)(eight, 4), VI_AND(code, VI(set1_epi32)(15)));
        }
        vf_store_n((float *)(void *)(to + o), VI_AS_FLOATS(eight), n);
    }
}

static void along_words(uint32_t *to, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_out, int64_t n_in, const int32_t *in)
{
    QR_ASSERT(to != NULL && words != NULL);
    QR_ASSERT(n_out >= 0 && n_in >= 0 && n_in % 32 == 0);
    for (int64_t i = 0; i < n_in / 8; i++) {
        const uint8_t *row = words + i * words_pitch;
        if (!in && i + AHEAD / 8 < n_in / 8)
            prefetch_rows(row + AHEAD / 8 * words_pitch, words_pitch, 1, n_out);
        if (in)
            pick_words(to + i * pitch, words, words_pitch, n_out, in + 8 * i);
        for (int64_t o = 0; !in && o < n_out; o += VF_LEN) {
            const int32_t n = at_most(n_out - o, VF_LEN);
            vf_store_n((float *)(void *)(to + i * pitch + o), VI_AS_FLOATS(in_rows_order(load_words(row + 4 * o, n))), n);
        }
    }
}

const struct qr_stored_ops QR_ISA_NAME(stored_ops) = {
    .int4_errors = int4_errors, .along = along, .across = across, .across_words = across_words, .along_words = along_words};
