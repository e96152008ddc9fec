/* draw.c - draws a token from one row of logits. Maxima of runs of 256 logits bound what can be chosen, so only those
 * runs are read; nothing sorts the vocabulary. top_k keeps a heap, top_p orders two buckets of its nucleus. Sums go in
 * a fixed order, so a row's token does not depend on the batch or the thread. On a worker of the kernel pool, with that
 * worker's scratch. */
#include "engine/draw.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define BUCKETS 512    /* of scaled distance from the best logit, PER_UNIT to a factor e: the last is everything below exp(-32) */
#define PER_UNIT 16.0f
#define NEAR 8.0f        /* most nuclei end within this many units below the best logit, */
#define FAR 16.0f        /* and nearly all of the others within so many */
#define FAR_WEIGHT 4e-4f /* more than the weight of anything further away than NEAR: exp(-8) = 3.4e-4 */
#define SURELY (1 + 1e-9) /* sums of the same weights in different orders are less than this apart */

/* ---- passes over the row ---- */

static int32_t stretch_len(const struct qr_sampler *s, int32_t i)
{
    int32_t from = i * QR_STRETCH;
    return s->n_row - from < QR_STRETCH ? s->n_row - from : QR_STRETCH;
}

static float largest_of(const struct qr_sampler *s)
{
    return s->math->max(s->most, s->n_stretches, -INFINITY);
}

/* s->sum of every stretch beside the best logit instead of its own; returns the sum of all. s->weight is scratch. */
static double share_sums(struct qr_sampler *s, float best, float inv_t)
{
    const float *restrict weight = s->weight;
    double *restrict sum = s->sum, all = 0;
    const int32_t n = s->n_stretches;
    s->math->weigh(s->weight, s->most, n, best, inv_t);
    for (int32_t i = 0; i < n; i++)
        sum[i] *= (double)weight[i];
    for (int32_t i = 0; i < n; i++)
        all += sum[i];
    return all;
}

/* s->weight of the n candidates. Returns their sum, added up in the order of ids. */
static double weigh_candidates(struct qr_sampler *s, int32_t n, float best, float inv_t)
{
    double sum = 0;
    int32_t whole = n;
    while (whole % QR_SAMPLER_ROOM != 0)
        s->logit[whole++] = -INFINITY;
    if (n > 0)
        s->math->weigh(s->weight, s->logit, whole, best, inv_t);
    for (int32_t i = 0; i < n; i++)
        sum += (double)s->weight[i];
    return sum;
}

/* s->logit and s->id of all whose logit is at least `from`, in the order of ids; stretches without one are not read. Returns their number. */
static int32_t collect(struct qr_sampler *s, const float *logits, float from)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_stretches; i += QR_STRETCH) {
        int32_t which[QR_STRETCH] QR_UNINITIALIZED;
        const int32_t left = s->n_stretches - i, n_which = s->math->find(which, s->most + i, left < QR_STRETCH ? left : QR_STRETCH, from);
        for (int32_t k = 0; k < n_which; k++) {
            const int32_t first = (i + which[k]) * QR_STRETCH;
            n += s->math->gather(s->logit + n, s->id + n, logits + first, stretch_len(s, i + which[k]), from, first);
        }
    }
    return n;
}

/* ---- a heap of candidates: larger logit first, then smaller id ---- */

static bool before(struct qr_candidate a, struct qr_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct qr_candidate *heap, int32_t n, int32_t i)
{
    struct qr_candidate x = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], x))
            break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void make_heap(struct qr_candidate *heap, int32_t n)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i);
}

/* Takes the best candidate off the heap, which shrinks by one. */
static struct qr_candidate pop_best(struct qr_candidate *heap, int32_t *n)
{
    struct qr_candidate best = heap[0];
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
    return best;
}

/* ---- the whole vocabulary ---- */

/* The id in stretch i, whose largest is `most`, at `share` of its weight. */
static int32_t draw_within(struct qr_sampler *s, const float *logits, int32_t i, float most, float inv_t, double share)
{
    const int32_t from = i * QR_STRETCH, n = stretch_len(s, i);
    double limit = share * s->math->weigh(s->weight, logits + from, n, most, inv_t), sum = 0;
    int32_t last = 0;
    for (int32_t k = 0; k < n; k++) {
        if (s->weight[k] == 0)
            continue;
        sum += (double)s->weight[k];
        last = k;
        if (limit < sum)
            break;
    }
    return from + last;
}

/* In the order of ids: the stretch that the draw falls into, then the id in it. */
static int32_t draw_any(struct qr_sampler *s, const float *logits, float inv_t, double u)
{
    float best = largest_of(s);
    double all = share_sums(s, best, inv_t), limit = u * all, sum = 0, before = 0;
    int32_t at = 0;
    if (!(all > 0)) /* infinite or NaN: the logit of the returned id says so */
        return collect(s, logits, best) > 0 ? s->id[0] : 0;
    for (int32_t i = 0; i < s->n_stretches; i++) {
        if (s->sum[i] == 0)
            continue;
        before = sum;
        sum += s->sum[i];
        at = i;
        if (limit < sum)
            break;
    }
    return draw_within(s, logits, at, s->most[at], inv_t, (limit - before) / s->sum[at]);
}

/* ---- top_k ---- */

/* The k best into s->id and s->weight, best first, less what min_p drops and what lies behind top_p of their weight. Returns their number. */
static int32_t keep_top(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float inv_t)
{
    float best = largest_of(s);
    int32_t n = collect(s, logits, qr_reached_by(s->math, s->most, s->n_stretches, p->top_k, best)), n_kept = 0;
    double all = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        s->heap[i] = (struct qr_candidate){s->logit[i], s->id[i]};
    make_heap(s->heap, n);
    while (n > 0 && n_kept < p->top_k) {
        struct qr_candidate c = pop_best(s->heap, &n);
        float w = qr_exp_nonpositive((c.logit - best) * inv_t);
        if (n_kept > 0 && (w < p->min_p || w == 0))
            break;
        s->id[n_kept] = c.id;
        s->weight[n_kept++] = w;
        all += (double)w;
    }
    for (int32_t i = 0; i < n_kept; i++) {
        if (i > 0 && p->top_p < 1.0f && (double)p->top_p * all <= sum)
            return i;
        sum += (double)s->weight[i];
    }
    return n_kept;
}

static int32_t draw_top(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float inv_t, double u)
{
    int32_t n = keep_top(s, logits, p, inv_t);
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double)s->weight[i];
    for (int32_t i = 0; i < n; i++) {
        sum += (double)s->weight[i];
        if (u * total < sum)
            return s->id[i];
    }
    return n > 0 ? s->id[n - 1] : 0;
}

/* ---- top_p and min_p ---- */

/* Candidates by scaled distance from the best logit. Whatever lies in an earlier bucket is better. */
struct buckets {
    int32_t n;
    uint64_t used[BUCKETS / 64]; /* bit k % 64 of word k / 64: bucket k has candidates, and a weight */
    double weight[BUCKETS];
};

/* Drops what min_p forbids, finds out the others' buckets and adds them up; returns the weight of all. The best stays. */
static double fill_buckets(struct qr_sampler *s, struct buckets *b, int32_t n, float min_p, float best, float inv_t)
{
    double sum = 0;
    b->n = 0;
    memset(b->used, 0, sizeof b->used);
    for (int32_t i = 0; i < n; i++) {
        const float logit = s->logit[i], w = s->weight[i], d = (best - logit) * inv_t * PER_UNIT;
        const int32_t k = d < BUCKETS - 1 ? (int32_t)d : BUCKETS - 1; /* not a number: the last */
        if (w < min_p && logit < best)
            continue;
        const uint64_t bit = (uint64_t)1 << k % 64;
        s->logit[b->n] = logit;
        s->id[b->n] = s->id[i];
        s->weight[b->n] = w;
        s->bucket[b->n++] = (uint16_t)k;
        b->weight[k] = (b->used[k / 64] & bit ? b->weight[k] : 0) + (double)w;
        b->used[k / 64] |= bit;
        sum += (double)w;
    }
    return sum;
}

/* Takes candidates of bucket k, best first, until the weight of all that is better reaches `limit`; *sum counts on from what the buckets before
 * have. Returns the last one taken. The heap knows them by their places, which are in the order of ids. */
static int32_t take_until(struct qr_sampler *s, const struct buckets *b, int32_t k, double limit, double *sum)
{
    int32_t n = 0, last = 0;
    for (int32_t i = 0; i < b->n; i++)
        if (s->bucket[i] == k)
            s->heap[n++] = (struct qr_candidate){s->logit[i], i};
    QR_ASSERT(n > 0);
    make_heap(s->heap, n);
    while (n > 0) {
        last = pop_best(s->heap, &n).id;
        *sum += (double)s->weight[last];
        if (*sum >= limit)
            break;
    }
    return s->id[last];
}

/* The first bucket with which the weight reaches `limit`, or the last one that is not empty; *before: the weight ahead of it. */
static int32_t bucket_at(const struct buckets *b, double limit, double *before)
{
    int32_t found = 0;
    double sum = 0;
    for (int32_t i = 0; i < BUCKETS / 64; i++)
        for (uint64_t left = b->used[i]; left != 0; left &= left - 1) {
            found = i * 64 + __builtin_ctzll(left);
            *before = sum;
            sum += b->weight[found];
            if (sum >= limit)
                return found;
        }
    return found;
}

/* What is near the best: a little more than where min_p cuts, or where most nuclei end. */
static float near_of(float min_p, float best, float inv_t)
{
    return best - (min_p > FAR_WEIGHT ? 0.01f - logf(min_p) : NEAR) / inv_t;
}

/* What the nucleus lies in is collected and weighed: all near the best when that is enough for top_p or min_p, and so on. Which of
 * these it is cannot be seen in what is drawn: buckets and weights from the best down to where top_p ends are the same in each.
 * Returns the number of candidates. */
static int32_t collect_nucleus(struct qr_sampler *s, const float *logits, double limit, float min_p, float best, float inv_t)
{
    int32_t n = collect(s, logits, near_of(min_p, best, inv_t));
    if (weigh_candidates(s, n, best, inv_t) > limit || min_p > FAR_WEIGHT)
        return n;
    n = min_p > 0 ? 0 : collect(s, logits, best - FAR / inv_t);
    if (weigh_candidates(s, n, best, inv_t) > limit * SURELY)
        return n;
    n = collect(s, logits, -INFINITY);
    weigh_candidates(s, n, best, inv_t);
    return n;
}

/* A nucleus may have thousands of ids, but only two buckets decide, the one where it ends and the one that the draw falls into, and only these
 * are ordered. Both passes add the same weights in the same order, so a draw in the last bucket stops before its end. */
static int32_t draw_nucleus(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float inv_t, double u)
{
    const float best = largest_of(s);
    const double limit = (double)p->top_p * share_sums(s, best, inv_t);
    double kept = 0, sum = 0;
    struct buckets b QR_UNINITIALIZED;
    int32_t n = collect_nucleus(s, logits, limit, p->min_p, best, inv_t);
    if (n == 0)
        return 0; /* only NaNs in the row */
    double there = fill_buckets(s, &b, n, p->min_p, best, inv_t);
    int32_t end = bucket_at(&b, limit < there ? limit : there, &kept);
    int32_t last = take_until(s, &b, end, limit < there ? limit : INFINITY, &kept);
    int32_t k = bucket_at(&b, u * kept, &sum);
    return k > end ? last : take_until(s, &b, k, u * kept, &sum);
}

static bool restricts_number(const struct qr_sampling *p, int32_t n_vocab)
{
    return p->top_k > 0 && p->top_k < n_vocab;
}

bool qr_draw_needs_sums(const struct qr_sampling *p, int32_t n_vocab)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_vocab > 0);
    return !restricts_number(p, n_vocab);
}

static bool is_nucleus(const struct qr_sampling *p)
{
    return p->top_p < 1.0f || p->min_p > 0;
}

int32_t qr_draw(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, double u)
{
    QR_ASSERT(s != NULL && logits != NULL && p != NULL);
    QR_ASSERT(p->temperature > 0 && u >= 0 && u < 1);
    float inv_t = 1.0f / p->temperature;
    if (restricts_number(p, s->n_vocab))
        return draw_top(s, logits, p, inv_t, u);
    if (!is_nucleus(p))
        return draw_any(s, logits, inv_t, u);
    return draw_nucleus(s, logits, p, inv_t, u);
}
