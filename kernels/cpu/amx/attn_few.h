/* attn_few.h - attention of single rows over few positions of a bf16 cache, on vectors, with the bits of tiles. Included by amx/attn_tiles.h only.
 *
 * Where a row sees few positions (decode behind short contexts, the last piece of any) what tiles cost is not their products: the unit has to
 * wake up twice, keys and values become tiles first (docs/kernels.md). A tile's sums are a chain of fused multiply-adds for the first and
 * one for the second number of each pair, and their sum onto the result, with denormal numbers as 0 (tile.h): here vectors do just that, with
 * the processor told to take denormal numbers for 0 meanwhile. Lanes are positions for scores, columns for values. What a tile has beside the positions
 * that are seen are zeros, which add nothing, so they are left out here.
 */
#ifndef QR_KERNELS_CPU_AMX_ATTN_FEW_H
#define QR_KERNELS_CPU_AMX_ATTN_FEW_H

#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/attention/tile.h"

#define FEW_AT_ONCE 4      /* queries whose chains find registers */
#define FEW_POSITIONS 32   /* with more, tiles are as fast */

/* f for the first of n queries, FEW_AT_ONCE at most, with their number known to the compiler. */
#define OF_FEW(n, f, ...)                                            \
    do {                                                             \
        if ((n) >= FEW_AT_ONCE)                                      \
            f(FEW_AT_ONCE, __VA_ARGS__);                             \
        else if ((n) == 3)                                           \
            f(3, __VA_ARGS__);                                       \
        else if ((n) == 2)                                           \
            f(2, __VA_ARGS__);                                       \
        else                                                         \
            f(1, __VA_ARGS__);                                       \
    } while (0)

_Static_assert(QR_TILE_ROWS * K_MAX <= (int)(sizeof(((struct scratch *)0)->lone_out) / sizeof(float)), "queries as floats");

/* Whether a tile that sees positions [begin, end) of a piece goes this way. Its one row sees them all. */
static bool sees_few(const struct tile *t, int32_t begin, int32_t end)
{
    return t->n_rows == 1 && t->n_queries <= QR_TILE_ROWS && t->k % QR_TILE_K == 0 && end - begin <= FEW_POSITIONS;
}

/* From here to the end denormal numbers are 0, as operands and as results. What lies between has to come from memory and go there. */
static uint32_t begin_few(void)
{
    uint32_t before, now;
    __asm__ volatile("stmxcsr %0" : "=m"(before)::"memory");
    now = before | 0x8040;
    __asm__ volatile("ldmxcsr %0" ::"m"(now) : "memory");
    return before;
}

static void end_few(uint32_t before)
{
    __asm__ volatile("ldmxcsr %0" ::"m"(before) : "memory");
}

VF_FN vf first_of_pairs(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

VF_FN vf second_of_pairs(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xffff0000)));
}

/* The tile's queries as floats: [query][K / 32][first, second of pairs][16]. */
static const float *few_queries(const struct tile *t)
{
    const int32_t n_k = t->k / QR_TILE_K, n = t->n_queries;
    const uint16_t *q = t->s->q_tiles + (int64_t)t->q0 * t->k;
    for (int32_t u = 0; u < n_k; u++)
        for (int32_t i = 0; i < n; i++, q += QR_TILE_K) {
            const __m512i pairs = _mm512_loadu_si512(q);
            float *to = t->s->lone_out + i * t->k + u * QR_TILE_K;
            vf_store(to, first_of_pairs(pairs));
            vf_store(to + VF_LEN, second_of_pairs(pairs));
        }
    return t->s->lone_out;
}

/* sums[i] += 32 numbers of n queries, `stride` apart, times those of 16 keys: pair j of all keys is keys[j]. */
VF_FN void few_scores(const int n, vf *sums, const float *q, int64_t stride, const vf *keys)
{
    vf first[FEW_AT_ONCE], second[FEW_AT_ONCE];
    for (int i = 0; i < n; i++)
        first[i] = second[i] = vf_zero();
#pragma GCC unroll 16
    for (int j = 0; j < VF_LEN; j++) {
        const __m512i pairs = _mm512_castps_si512(keys[j]);
        const vf a = first_of_pairs(pairs), b = second_of_pairs(pairs);
        for (int i = 0; i < n; i++) {
            first[i] = vf_fma(vf_set1(q[i * stride + j]), a, first[i]);
            second[i] = vf_fma(vf_set1(q[i * stride + VF_LEN + j]), b, second[i]);
        }
    }
    for (int i = 0; i < n; i++)
        sums[i] = vf_add(sums[i], vf_add(first[i], second[i]));
}

/* Scores of the tile's queries with positions [begin, end) of the piece at `base`, to where tiles would put them. Asks for the values. */
__attribute__((noinline)) static void score_few(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    const char *row[QR_PANEL] QR_UNINITIALIZED;
    vf keys[VF_LEN] QR_UNINITIALIZED, sums[QR_TILE_ROWS] QR_UNINITIALIZED;
    const float *q = few_queries(t);
    QR_ASSERT(begin >= 0 && begin < end && end <= PIECE);
    for (int32_t at = begin / QR_PANEL * QR_PANEL; at < end; at += QR_PANEL) {
        cache_rows(t, 0, row, QR_PANEL, base + at, base + begin, base + end);
        prefetch(t, 1, base + at);
        for (int32_t i = 0; i < t->n_queries; i++)
            sums[i] = vf_zero();
        for (int32_t k = 0; k < t->k; k += QR_TILE_K) {
            for (int i = 0; i < VF_LEN; i++)
                keys[i] = row[i] ? _mm512_castsi512_ps(_mm512_loadu_si512(row[i] + k * 2)) : vf_zero();
            vf_transpose(keys);
            for (int32_t i = 0; i < t->n_queries; i += FEW_AT_ONCE)
                OF_FEW(t->n_queries - i, few_scores, sums + i, q + i * t->k + k, t->k, keys);
        }
        for (int32_t i = 0; i < t->n_queries; i++)
            vf_store(t->s->p + (t->q0 + i) * QR_X_ROW + at, sums[i]);
    }
}

/* out of n queries, `stride` apart, in 32 columns: sums over positions [first, end) of 32, whose values are row[0 ..] from column k on. p: probabilities
 * as floats, 32 for each query. */
VF_FN void few_values(const int n, float *out, int64_t stride, const float *p, const char *const *row, int32_t k, int32_t first, int32_t end)
{
    vf sum[2][2][FEW_AT_ONCE]; /* of first and second positions of pairs, low and high columns */
    for (int i = 0; i < n; i++)
        sum[0][0][i] = sum[0][1][i] = sum[1][0][i] = sum[1][1][i] = vf_zero();
    for (int32_t at = first / 2 * 2; at < end; at += 2)
        for (int second = 0; second < 2; second++) {
            if (at + second < first || at + second >= end)
                continue;
            const __m512i line = _mm512_loadu_si512(row[at + second - first] + k * 2);
            const vf low = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(line)), 16));
            const vf high = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(line, 1)), 16));
            for (int i = 0; i < n; i++) {
                const vf weight = vf_set1(p[i * QR_TILE_K + at + second]);
                sum[second][0][i] = vf_fma(weight, low, sum[second][0][i]);
                sum[second][1][i] = vf_fma(weight, high, sum[second][1][i]);
            }
        }
    for (int i = 0; i < n; i++)
        for (int half = 0; half < 2; half++) {
            float *to = out + i * stride + half * VF_LEN;
            vf_store(to, vf_add(vf_load(to), vf_add(sum[0][half][i], sum[1][half][i])));
        }
}

/* out[queries][k] = p v over positions [begin, end) of the piece at `base`. */
__attribute__((noinline)) static void weigh_few(const struct tile *t, int32_t base, int32_t begin, int32_t end, float *out)
{
    const char *row[QR_TILE_K] QR_UNINITIALIZED;
    _Alignas(64) float p[QR_TILE_ROWS * QR_TILE_K] QR_UNINITIALIZED;
    memset(out, 0, (size_t)(t->n_queries * t->k_pad) * sizeof *out);
    for (int32_t at = begin / QR_TILE_K * QR_TILE_K; at < end; at += QR_TILE_K) {
        const int32_t first = begin > at ? begin - at : 0, last = end - at < QR_TILE_K ? end - at : QR_TILE_K;
        cache_rows(t, 1, row, last - first, base + at + first, base + begin, base + end);
        for (int32_t i = 0; i < t->n_queries; i++) {
            const __m512i line = _mm512_loadu_si512(t->s->p + (t->q0 + i) * QR_X_ROW + at);
            vf_store(p + i * QR_TILE_K, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(line)), 16)));
            vf_store(p + i * QR_TILE_K + VF_LEN, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(line, 1)), 16)));
        }
        for (int32_t k = 0; k < t->k; k += QR_TILE_K) {
            for (int32_t i = 0; i < t->n_queries; i += FEW_AT_ONCE)
                OF_FEW(t->n_queries - i, few_values, out + i * t->k_pad + k, t->k_pad, p + i * QR_TILE_K, row, k, first, last);
        }
    }
}

#endif
