/* row_math.c - passes over a row of logits: maxima, exponentials, sums, first position of a value. Lanes of 16 and
 * plain operations in a fixed order, in C and with AVX2, so bits are the same on every processor. The table is chosen
 * once per call of qr_row_math_best. Pure; any thread. */
#include "engine/row_math.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/both.h"
#include "base/mem.h"

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

static float max_any(const float *x, int32_t n, float least)
{
    float most[LANES], best = least;
    int32_t i = 0;
    for (int32_t k = 0; k < LANES; k++)
        most[k] = least;
    for (; i + LANES <= n; i += LANES)
        for (int32_t k = 0; k < LANES; k++)
            most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
    for (int32_t k = 0; k < LANES / 2; k++) {
        const float both = most[k] > most[k + LANES / 2] ? most[k] : most[k + LANES / 2];
        best = both > best ? both : best;
    }
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

static double weigh_any(float *restrict w, const float *restrict x, int32_t n, float best, float inv_t)
{
    double lane[LANES] = {0}, sum = 0;
    const int32_t n_lanes = n / LANES * LANES;
    for (int32_t i = 0; i < n; i++)
        w[i] = qr_exp_below_one((x[i] - best) * inv_t);
    for (int32_t i = 0; i < n_lanes; i++)
        lane[i % LANES] += (double)w[i];
    for (int32_t k = 0; k < LANES; k++)
        sum += lane[k];
    for (int32_t i = n_lanes; i < n; i++)
        sum += (double)w[i];
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

INLINE int32_t first_rest(const float *x, int32_t i, int32_t n, float v)
{
    while (i < n && !(x[i] >= v))
        i++;
    return i;
}

INLINE int32_t gather_rest(float *out, int32_t *id, const float *x, int32_t i, int32_t n, float v, int32_t from, int32_t n_found)
{
    for (; i < n; i++) { /* as find_rest */
        out[n_found] = x[i];
        id[n_found] = from + i;
        n_found += x[i] >= v;
    }
    return n_found;
}

INLINE void allow_rest(float *out, const float *x, const uint32_t *mask, int32_t i, int32_t n)
{
    for (; i < n; i++)
        out[i] = mask[i / 32] >> (i % 32) & 1 ? x[i] : -INFINITY;
}

static void allow_any(float *out, const float *x, const uint32_t *mask, int32_t n)
{
    allow_rest(out, x, mask, 0, n);
}

static int32_t above_any(const float *x, int32_t n, float v)
{
    return count_above_body(x, n, v);
}

static int32_t find_any(int32_t *at, const float *x, int32_t n, float v)
{
    return find_rest(at, x, 0, n, v, 0);
}

static int32_t first_any(const float *x, int32_t n, float v)
{
    return first_rest(x, 0, n, v);
}

static int32_t gather_any(float *out, int32_t *id, const float *x, int32_t n, float v, int32_t from)
{
    return gather_rest(out, id, x, 0, n, v, from, 0);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

/* The lanes that are set in a mask of eight, in their order, a byte each: matches move to the front without a branch,
 * which would be mispredicted. */
#define LANE(m, b) ((uint64_t)((m) >> (b)&1) * (b) << 8 * __builtin_popcount((m) & ((1 << (b)) - 1)))
#define FRONT(m) LANE(m, 0) | LANE(m, 1) | LANE(m, 2) | LANE(m, 3) | LANE(m, 4) | LANE(m, 5) | LANE(m, 6) | LANE(m, 7)
#define FRONT4(m) FRONT((m)), FRONT((m) + 1), FRONT((m) + 2), FRONT((m) + 3)
#define FRONT16(m) FRONT4((m)), FRONT4((m) + 4), FRONT4((m) + 8), FRONT4((m) + 12)
#define FRONT64(m) FRONT16((m)), FRONT16((m) + 16), FRONT16((m) + 32), FRONT16((m) + 48)
static const uint64_t front[256] = {FRONT64(0), FRONT64(64), FRONT64(128), FRONT64(192)};

AVX2 INLINE __m256i front_of(uint32_t mask)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)&front[mask]));
}

AVX2 INLINE __m256 at_least(const float *x, float v)
{
    return _mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_set1_ps(v), _CMP_GE_OQ);
}

#define GROUP 32 /* numbers that are skipped together when none of them matches, as a rule */

/* The places of what is at least v in x[0..GROUP), one bit each. */
AVX2 INLINE uint32_t group_mask(const float *x, float v)
{
    const __m256 a = at_least(x, v), b = at_least(x + 8, v), c = at_least(x + 16, v), d = at_least(x + 24, v);
    if (_mm256_movemask_ps(_mm256_or_ps(_mm256_or_ps(a, b), _mm256_or_ps(c, d))) == 0)
        return 0;
    return (uint32_t)_mm256_movemask_ps(a) | (uint32_t)_mm256_movemask_ps(b) << 8 | (uint32_t)_mm256_movemask_ps(c) << 16 |
           (uint32_t)_mm256_movemask_ps(d) << 24;
}

/* Lanes written behind the last match are overwritten by the next store: there is room, as there are no more matches
 * than numbers read. */
AVX2 static int32_t find_avx2(int32_t *at, const float *x, int32_t n, float v)
{
    int32_t n_found = 0, i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        const uint32_t mask = group_mask(x + i, v);
        for (int32_t k = 0; mask != 0 && k < GROUP; k += 8) {
            const uint32_t eight = mask >> k & 255;
            _mm256_storeu_si256((__m256i *)(void *)(at + n_found), _mm256_add_epi32(front_of(eight), _mm256_set1_epi32(i + k)));
            n_found += __builtin_popcount(eight);
        }
    }
    return find_rest(at, x, i, n, v, n_found);
}

AVX2 static int32_t gather_avx2(float *out, int32_t *id, const float *x, int32_t n, float v, int32_t from)
{
    int32_t n_found = 0, i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        const uint32_t mask = group_mask(x + i, v);
        for (int32_t k = 0; mask != 0 && k < GROUP; k += 8) {
            const uint32_t eight = mask >> k & 255;
            const __m256i places = front_of(eight);
            _mm256_storeu_ps(out + n_found, _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + i + k), places));
            _mm256_storeu_si256((__m256i *)(void *)(id + n_found), _mm256_add_epi32(places, _mm256_set1_epi32(from + i + k)));
            n_found += __builtin_popcount(eight);
        }
    }
    return gather_rest(out, id, x, i, n, v, from, n_found);
}

AVX2 static int32_t first_avx2(const float *x, int32_t n, float v)
{
    int32_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        const uint32_t mask = group_mask(x + i, v);
        if (mask != 0)
            return i + __builtin_ctz(mask);
    }
    return first_rest(x, i, n, v);
}

/* max_any with eight lanes a register. NaN loses to either operand's place in maxps. */
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

/* qr_exp_below_one of 16 lanes, its steps for one half beside those for the other: either alone is a chain in which each waits for the one before. */
AVX2 INLINE void exp_avx2(__m256 e[2], const float *x, __m256 best, __m256 inv_t)
{
    const __m256 least = _mm256_set1_ps(-87.0f);
    __m256 v[2] QR_UNINITIALIZED, y[2] QR_UNINITIALIZED, n[2] QR_UNINITIALIZED, r[2] QR_UNINITIALIZED, p[2] QR_UNINITIALIZED;
    __m256i whole[2] QR_UNINITIALIZED;
    for (int32_t h = 0; h < 2; h++) {
        v[h] = (_mm256_loadu_ps(x + h * LANES / 2) - best) * inv_t;
        y[h] = _mm256_max_ps(v[h], least);
        whole[h] = _mm256_cvttps_epi32(y[h] * 1.44269504f - 0.5f);
        n[h] = _mm256_cvtepi32_ps(whole[h]);
    }
#define BOTH(step)                    \
    for (int32_t h = 0; h < 2; h++)   \
        step;
    BOTH(r[h] = y[h] - n[h] * 0.693359375f + n[h] * 2.12194440e-4f)
    BOTH(p[h] = 1.0f / 720 + r[h] * (1.0f / 5040))
    BOTH(p[h] = 1.0f / 120 + r[h] * p[h])
    BOTH(p[h] = 1.0f / 24 + r[h] * p[h])
    BOTH(p[h] = 1.0f / 6 + r[h] * p[h])
    BOTH(p[h] = 0.5f + r[h] * p[h])
    BOTH(p[h] = 1.0f + r[h] * p[h])
    BOTH(p[h] = 1.0f + r[h] * p[h])
#undef BOTH
    for (int32_t h = 0; h < 2; h++) {
        const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p[h]), _mm256_slli_epi32(whole[h], 23));
        e[h] = _mm256_and_ps(_mm256_castsi256_ps(bits), _mm256_cmp_ps(v[h], least, _CMP_GT_OQ));
    }
}

/* weigh_any: four sums of four. */
AVX2 static double weigh_avx2(float *restrict w, const float *restrict x, int32_t n, float best, float inv_t)
{
    __m256d part[4] = {0};
    double sum = 0;
    double lane[LANES] QR_UNINITIALIZED;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 e[2] QR_UNINITIALIZED;
        exp_avx2(e, x + i, _mm256_set1_ps(best), _mm256_set1_ps(inv_t));
        for (int32_t h = 0; h < 2; h++) {
            _mm256_storeu_ps(w + i + h * LANES / 2, e[h]);
            part[2 * h] += _mm256_cvtps_pd(_mm256_castps256_ps128(e[h]));
            part[2 * h + 1] += _mm256_cvtps_pd(_mm256_extractf128_ps(e[h], 1));
        }
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

AVX2 static void allow_avx2(float *out, const float *x, const uint32_t *mask, int32_t n)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i bits = _mm256_set1_epi32((int32_t)(mask[i / 32] >> (i % 32)));
        const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(bits, bit), bit);
        _mm256_storeu_ps(out + i, _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_loadu_ps(x + i), _mm256_castsi256_ps(set)));
    }
    allow_rest(out, x, mask, i, n);
}

AVX2 static int32_t above_avx2(const float *x, int32_t n, float v)
{
    return count_above_body(x, n, v);
}
#endif

float qr_exp_nonpositive(float x)
{
    QR_ASSERT(!(x > 0));
    return qr_exp_below_one(x);
}

#define REACH_FIRST 8.0f /* how far from the best is looked first, then twice as far and so on */
#define REACH_LAST 4096.0f
#define REACH_HALVINGS 5

float qr_reached_by(const struct qr_row_math *math, const float *x, int32_t n, int32_t k, float best)
{
    QR_ASSERT(math != NULL && x != NULL);
    QR_ASSERT(n > 0 && k >= 1);
    float near = 0, far = REACH_FIRST; /* fewer are nearer than the one, so many are nearer than the other */
    while (math->count_above(x, n, best - far) < k) {
        near = far;
        far *= 2;
        if (far > REACH_LAST)
            return -INFINITY;
    }
    for (int32_t i = 0; i < REACH_HALVINGS; i++) {
        const float mid = near + (far - near) / 2;
        if (math->count_above(x, n, best - mid) >= k)
            far = mid;
        else
            near = mid;
    }
    return best - far;
}

static const struct qr_row_math math_any = {.name = "any", .max = max_any, .weigh = weigh_any, .count_above = above_any, .find = find_any,
                                            .first = first_any, .gather = gather_any, .allow = allow_any};
#ifdef __x86_64__
static const struct qr_row_math math_avx2 = {.name = "avx2", .max = max_avx2, .weigh = weigh_avx2, .count_above = above_avx2, .find = find_avx2,
                                             .first = first_avx2, .gather = gather_avx2, .allow = allow_avx2};
#endif

int32_t qr_row_math_all(const struct qr_row_math *out[2])
{
    QR_ASSERT(out != NULL);
    int32_t n = 0;
    out[n++] = &math_any;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        out[n++] = &math_avx2;
#endif
    QR_ASSERT(n <= 2);
    return n;
}

const struct qr_row_math *qr_row_math_best(void)
{
    const struct qr_row_math *all[2];
    int32_t n = qr_row_math_all(all);
    QR_ASSERT(n >= 1);
    return all[n - 1];
}
