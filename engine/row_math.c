#include "engine/row_math.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <string.h>

#include "base/assert.h"
#include "base/both.h"
#include "base/mem.h"

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

/* Sixteen lanes as the compilers' vector types: whatever registers the level has, the same operations in the same order. Compilers' own
 * vectorizers unroll the loop over the lanes first, and then see none. Unaligned. Comparisons of vectors wider than the level's registers become one of
 * each number (GCC 12), 15 times as slow: level avx2 says the same in its own registers, below. */
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t masks __attribute__((vector_size(64)));
typedef float half_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t half_masks __attribute__((vector_size(32)));
typedef double sums __attribute__((vector_size(64)));

#define ALL(v) ((lanes){(v), (v), (v), (v), (v), (v), (v), (v), (v), (v), (v), (v), (v), (v), (v), (v)})
#define CHOOSE(mask, a, b) ((lanes)(((masks)(a) & (mask)) | ((masks)(b) & ~(mask))))

INLINE float max_body(const float *x, int32_t n, float least)
{
    lanes most = ALL(least);
    float best = least;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes v = *(const lanes *)(x + i);
        most = CHOOSE(v > most, v, most);
    }
    const half_lanes *half = (const half_lanes *)&most;
    const half_masks above = half[0] > half[1];
    const half_lanes both = (half_lanes)(((half_masks)half[0] & above) | ((half_masks)half[1] & ~above));
    for (int32_t k = 0; k < LANES / 2; k++)
        best = both[k] > best ? both[k] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

INLINE void exp_lanes(float *w, const float *x, float best, float inv_t)
{
    lanes v = (*(const lanes *)x - best) * inv_t, r, p;
    masks in = v > ALL(-87.0f);
    lanes y = CHOOSE(in, v, ALL(-87.0f));
    masks whole = __builtin_convertvector(y * 1.44269504f - 0.5f, masks);
    lanes n = __builtin_convertvector(whole, lanes);
    QR_EXP_STEPS(y, n, r, p)
    *(lanes *)w = (lanes)(((masks)p + whole * (1 << 23)) & in);
}

INLINE double weigh_body(float *restrict w, const float *restrict x, int32_t n, float best, float inv_t)
{
    sums low = {0}, high = {0};
    double sum = 0;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        exp_lanes(w + i, x + i, best, inv_t);
        low += __builtin_convertvector(*(const half_lanes *)(w + i), sums);
        high += __builtin_convertvector(*(const half_lanes *)(w + i + LANES / 2), sums);
    }
    for (int32_t k = 0; k < LANES / 2; k++)
        sum += low[k];
    for (int32_t k = 0; k < LANES / 2; k++)
        sum += high[k];
    for (; i < n; i++) {
        w[i] = qr_exp_below_one((x[i] - best) * inv_t);
        sum += (double)w[i];
    }
    return sum;
}

INLINE int32_t count_above_body(const float *x, int32_t n, float v)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += x[i] > v;
    return count;
}

INLINE int32_t find_rest(int32_t *at, const float *x, int32_t i, int32_t n, float v, int32_t n_found)
{
    for (; i < n; i++) {
        at[n_found] = i; /* overwritten when it is not one: no branch to guess */
        n_found += x[i] >= v;
    }
    return n_found;
}

static int32_t find_any(int32_t *at, const float *x, int32_t n, float v)
{
    return find_rest(at, x, 0, n, v, 0);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

/* The places that are set in a mask of those from i on. */
INLINE int32_t add_places(int32_t *at, int32_t n_found, uint32_t mask, int32_t i)
{
    for (; mask != 0; mask &= mask - 1)
        at[n_found++] = i + __builtin_ctz(mask);
    return n_found;
}

AVX2 static int32_t find_avx2(int32_t *at, const float *x, int32_t n, float v)
{
    int32_t n_found = 0, i = 0;
    for (; i + 8 <= n; i += 8)
        n_found = add_places(at, n_found, (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(v), _CMP_GE_OQ)), i);
    return find_rest(at, x, i, n, v, n_found);
}

/* max_body with eight lanes a register. What is no number loses to either operand's place in maxps. */
AVX2 static float max_avx2(const float *x, int32_t n, float least)
{
    __m256 low = _mm256_set1_ps(least), high = low;
    float best = least;
    float both[LANES / 2] QR_UNINITIALIZED;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        low = _mm256_max_ps(_mm256_loadu_ps(x + i), low);
        high = _mm256_max_ps(_mm256_loadu_ps(x + i + LANES / 2), high);
    }
    _mm256_storeu_ps(both, _mm256_max_ps(low, high));
    for (int32_t k = 0; k < LANES / 2; k++)
        best = both[k] > best ? both[k] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/* Half of exp_lanes. */
AVX2 INLINE __m256 exp_avx2(__m256 x, __m256 best, __m256 inv_t)
{
    const __m256 least = _mm256_set1_ps(-87.0f), v = (x - best) * inv_t, y = _mm256_max_ps(v, least);
    const __m256i whole = _mm256_cvttps_epi32(y * 1.44269504f - 0.5f);
    const __m256 n = _mm256_cvtepi32_ps(whole);
    __m256 r, p;
    QR_EXP_STEPS(y, n, r, p)
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(whole, 23));
    return _mm256_and_ps(_mm256_castsi256_ps(bits), _mm256_cmp_ps(v, least, _CMP_GT_OQ));
}

/* weigh_body: four sums of four instead of two of eight. */
AVX2 static double weigh_avx2(float *restrict w, const float *restrict x, int32_t n, float best, float inv_t)
{
    __m256d part[4] = {0};
    double sum = 0;
    double lane[LANES] QR_UNINITIALIZED;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int32_t h = 0; h < 2; h++) {
            const __m256 e = exp_avx2(_mm256_loadu_ps(x + i + h * LANES / 2), _mm256_set1_ps(best), _mm256_set1_ps(inv_t));
            _mm256_storeu_ps(w + i + h * LANES / 2, e);
            part[2 * h] += _mm256_cvtps_pd(_mm256_castps256_ps128(e));
            part[2 * h + 1] += _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1));
        }
    for (int32_t k = 0; k < 4; k++)
        _mm256_storeu_pd(lane + 4 * k, part[k]);
    for (int32_t k = 0; k < LANES; k++)
        sum += lane[k];
    for (; i < n; i++) {
        w[i] = qr_exp_below_one((x[i] - best) * inv_t);
        sum += (double)w[i];
    }
    return sum;
}

AVX2 static int32_t above_avx2(const float *x, int32_t n, float v)
{
    return count_above_body(x, n, v);
}

__attribute__((target("avx512f"))) static int32_t find_avx512(int32_t *at, const float *x, int32_t n, float v)
{
    int32_t n_found = 0, i = 0;
    for (; i + LANES <= n; i += LANES)
        n_found = add_places(at, n_found, _mm512_cmp_ps_mask(_mm512_loadu_ps(x + i), _mm512_set1_ps(v), _CMP_GE_OQ), i);
    return find_rest(at, x, i, n, v, n_found);
}
#endif

float qr_exp_nonpositive(float x)
{
    QR_ASSERT(!(x > 0));
    return qr_exp_below_one(x);
}

/* The same functions, compiled for a level. */
#define ROW_MATH(level, ...)                                                                                            \
    __VA_ARGS__ static float max_##level(const float *x, int32_t n, float least) { return max_body(x, n, least); }       \
    __VA_ARGS__ static double weigh_##level(float *w, const float *x, int32_t n, float best, float inv_t)                \
    {                                                                                                                   \
        return weigh_body(w, x, n, best, inv_t);                                                                        \
    }                                                                                                                   \
    __VA_ARGS__ static int32_t above_##level(const float *x, int32_t n, float v) { return count_above_body(x, n, v); }   \
    TABLE(level)
#define TABLE(level) static const struct qr_row_math math_##level = {#level, max_##level, weigh_##level, above_##level, find_##level};

ROW_MATH(any, )
#ifdef __x86_64__
TABLE(avx2)
ROW_MATH(avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))))
#endif

int32_t qr_row_math_all(const struct qr_row_math *out[4])
{
    QR_ASSERT(out != NULL);
    int32_t n = 0;
    out[n++] = &math_any;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        out[n++] = &math_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        out[n++] = &math_avx512;
#endif
    QR_ASSERT(n <= 4);
    return n;
}

const struct qr_row_math *qr_row_math_best(void)
{
    const struct qr_row_math *all[4];
    int32_t n = qr_row_math_all(all);
    QR_ASSERT(n >= 1);
    return all[n - 1];
}
