#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rng.h"

#define BUCKETS 512    /* of scaled distance from the best logit, PER_UNIT to a factor e: the last is everything below exp(-32) */
#define PER_UNIT 16.0f
#define GREEDY_BELOW 1e-5f /* 1/temperature stays far from overflow; vLLM draws the same line */

void qr_sampler_init(struct qr_sampler *s, int32_t n_vocab)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(n_vocab > 0);
    s->n_vocab = n_vocab;
    s->count = qr_alloc((size_t)n_vocab, sizeof *s->count);
    s->raw = qr_alloc((size_t)n_vocab, sizeof *s->raw);
    s->heap = qr_alloc((size_t)n_vocab, sizeof *s->heap);
    s->kept = qr_alloc((size_t)n_vocab, sizeof *s->kept);
    s->weight = qr_alloc((size_t)n_vocab, sizeof *s->weight);
}

void qr_sampler_release(struct qr_sampler *s)
{
    qr_free(s->count);
    qr_free(s->raw);
    qr_free(s->heap);
    qr_free(s->kept);
    qr_free(s->weight);
    *s = (struct qr_sampler){0};
}

/* ---- over the whole vocabulary ----
 *
 * Lanes of 16 keep these loops in vector registers at the baseline, in an order of operations that is the same on every machine. */
#define LANES 16
#define STRETCH 1024

/* The largest of x and `least`; what is no number is passed over. */
static float max_from(const float *x, int32_t n, float least)
{
    float lane[LANES], best = least;
    int32_t i = 0;
    for (int32_t k = 0; k < LANES; k++)
        lane[k] = least;
    for (; i + LANES <= n; i += LANES)
        for (int32_t k = 0; k < LANES; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (int32_t k = 0; k < LANES; k++)
        best = lane[k] > best ? lane[k] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

static float max_of(const float *x, int32_t n)
{
    return max_from(x, n, x[0]);
}

/* The first of the largest: ties go to the smallest id. One pass over memory: the stretch that raised the maximum last holds it. Rows that
 * begin with what is no number give 0: the caller looks at what was chosen. */
static int32_t argmax(const float *x, int32_t n)
{
    float best = x[0];
    int32_t at = 0;
    for (int32_t i = 0; i < n; i += STRETCH) {
        float most = max_from(x + i, n - i < STRETCH ? n - i : STRETCH, best);
        if (most > best) {
            best = most;
            at = i;
        }
    }
    for (int32_t i = at; i < n; i++)
        if (x[i] == best)
            return i;
    return 0;
}

/* exp(x) for x <= 0, within 2 ulp; 0 below -87. Range reduction to |r| <= ln(2)/2 (Cody & Waite 1980), a polynomial, and the exponent. */
static inline float exp_nonpositive(float x)
{
    float y = x > -87.0f ? x : -87.0f; /* not a number takes the second way, too */
    float n = (float)(int32_t)(y * 1.44269504f - 0.5f), r = y - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.0f / 720 + r * (1.0f / 5040);
    p = 1.0f / 120 + r * p;
    p = 1.0f / 24 + r * p;
    p = 1.0f / 6 + r * p;
    p = 0.5f + r * p;
    p = 1.0f + r * (1.0f + r * p);
    int32_t bits;
    memcpy(&bits, &p, sizeof bits);
    bits += (int32_t)n * (1 << 23);
    memcpy(&p, &bits, sizeof p);
    return x > -87.0f ? p : 0;
}

/* Sum of w in double, lane by lane. */
static double sum_of(const float *w, int32_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int32_t k = 0; k < LANES; k++)
            lane[k] += (double)w[i + k];
    for (int32_t k = 0; k < LANES; k++)
        sum += lane[k];
    for (; i < n; i++)
        sum += (double)w[i];
    return sum;
}

/* w[i] = exp((x[i] - best) * inv_t); returns their sum. */
static double weigh(float *restrict w, const float *restrict x, int32_t n, float best, float inv_t)
{
    for (int32_t i = 0; i < n; i++)
        w[i] = exp_nonpositive((x[i] - best) * inv_t);
    return sum_of(w, n);
}

double qr_log_sum_exp(const float *logits, int32_t n_vocab)
{
    QR_ASSERT(logits != NULL && n_vocab > 0);
    float best = max_of(logits, n_vocab), w[256];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i += 256)
        sum += weigh(w, logits + i, n_vocab - i < 256 ? n_vocab - i : 256, best, 1);
    return (double)best + log(sum);
}

/* ---- log-probabilities ---- */

/* Inserts (id, v) into the descending list of at most n_max entries. Ids come in increasing order, so ties keep the smaller first. */
static void insert_top(struct qr_token_logprob *out, int32_t n_max, int32_t id, float v)
{
    if (out->n_top == n_max && !(v > out->top_logprob[n_max - 1]))
        return;
    int32_t i = out->n_top < n_max ? out->n_top++ : n_max - 1;
    for (; i > 0 && v > out->top_logprob[i - 1]; i--) {
        out->top_logprob[i] = out->top_logprob[i - 1];
        out->top_id[i] = out->top_id[i - 1];
    }
    out->top_logprob[i] = v;
    out->top_id[i] = id;
}

/* The n_top largest, in stretches: one that holds nothing larger than the last of the list is not looked at twice. */
static void find_top(struct qr_token_logprob *out, const float *logits, int32_t n_vocab, int32_t n_top)
{
    for (int32_t from = 0; from < n_vocab; from += STRETCH) {
        int32_t to = from + STRETCH < n_vocab ? from + STRETCH : n_vocab;
        if (out->n_top == n_top && !(max_of(logits + from, to - from) > out->top_logprob[n_top - 1]))
            continue;
        for (int32_t i = from; i < to; i++)
            insert_top(out, n_top, i, logits[i]);
    }
}

static int32_t rank_of(const float *logits, int32_t n_vocab, int32_t id)
{
    const float own = logits[id];
    int32_t n = 1;
    for (int32_t i = 0; i < id; i++)
        n += logits[i] >= own;
    for (int32_t i = id + 1; i < n_vocab; i++)
        n += logits[i] > own;
    return n;
}

void qr_token_logprob_fill(struct qr_token_logprob *out, const float *logits, int32_t n_vocab, int32_t id, int32_t n_top)
{
    QR_ASSERT(out != NULL && id >= 0 && id < n_vocab);
    QR_ASSERT(n_top >= 0 && n_top <= QR_TOP_LOGPROBS_MAX);
    double lse = qr_log_sum_exp(logits, n_vocab);
    *out = (struct qr_token_logprob){.id = id, .logprob = (float)((double)logits[id] - lse), .rank = rank_of(logits, n_vocab, id)};
    if (n_top > 0)
        find_top(out, logits, n_vocab, n_top);
    for (int32_t i = 0; i < out->n_top; i++)
        out->top_logprob[i] = (float)((double)out->top_logprob[i] - lse);
}

/* Repetition counts prompt and output (Keskar et al. 2019, arXiv:1909.05858); presence and frequency count the output only. */
static void apply_penalties(struct qr_sampler *s, float *logits, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids,
                            int32_t n_prompt)
{
    if (p->repetition != 1.0f) {
        for (int32_t i = 0; i < n_ids; i++)
            if (s->count[ids[i]]++ == 0)
                logits[ids[i]] = logits[ids[i]] > 0 ? logits[ids[i]] / p->repetition : logits[ids[i]] * p->repetition;
        for (int32_t i = 0; i < n_ids; i++)
            s->count[ids[i]] = 0;
    }
    if (p->presence == 0 && p->frequency == 0)
        return;
    for (int32_t i = n_prompt; i < n_ids; i++)
        s->count[ids[i]]++;
    for (int32_t i = n_prompt; i < n_ids; i++) {
        int32_t n = s->count[ids[i]];
        if (n > 0)
            logits[ids[i]] -= p->presence + p->frequency * (float)n;
        s->count[ids[i]] = 0;
    }
}

/* Order of candidates: larger logit first, then smaller id. */
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

/* Takes the best candidate off the heap, which shrinks by one. */
static struct qr_candidate pop_best(struct qr_candidate *heap, int32_t *n)
{
    struct qr_candidate best = heap[0];
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
    return best;
}

/* A heap of the ids whose logit is at least `from`. */
static int32_t gather(struct qr_candidate *heap, const float *logits, int32_t n_vocab, float from)
{
    int32_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++)
        if (logits[i] >= from)
            heap[n++] = (struct qr_candidate){logits[i], i};
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i);
    return n;
}

/* Pops candidates into s->kept, best first, until top_k, top_p or min_p says enough; `all` is the weight that top_p is a share of. Returns
 * their number, or -1 when the heap ran out before anything said enough. */
static int32_t keep_best(struct qr_sampler *s, int32_t n, const struct qr_sampling *p, float best, float inv_t, double all)
{
    double sum = 0;
    for (int32_t n_kept = 0;; n_kept++) {
        if (p->top_k > 0 && n_kept == p->top_k)
            return n_kept;
        if (n_kept > 0 && all > 0 && (double)p->top_p * all <= sum)
            return n_kept;
        if (n == 0)
            return -1 - n_kept;
        struct qr_candidate c = pop_best(s->heap, &n);
        float w = exp_nonpositive((c.logit - best) * inv_t);
        if (n_kept > 0 && (w < p->min_p || w == 0))
            return n_kept;
        s->kept[n_kept] = c;
        s->weight[n_kept] = w;
        sum += (double)w;
    }
}

/* Candidates and weight by scaled distance from the best logit. Buckets are in order: whatever lies in an earlier one is better. */
struct buckets {
    float best, inv_t;
    int32_t count[BUCKETS];
    double weight[BUCKETS]; /* zero when nobody asked for weights */
};

static int32_t bucket_of(const struct buckets *b, float logit)
{
    float d = (b->best - logit) * b->inv_t * PER_UNIT;
    return d < BUCKETS - 1 ? (int32_t)d : BUCKETS - 1; /* not a number: the last */
}

/* weight: of every id, or NULL. */
static void fill_buckets(struct buckets *b, const float *logits, const float *weight, int32_t n, float best, float inv_t)
{
    *b = (struct buckets){.best = best, .inv_t = inv_t};
    for (int32_t i = 0; i < n; i++) {
        int32_t k = bucket_of(b, logits[i]);
        b->count[k]++;
        b->weight[k] += weight ? (double)weight[i] : 0;
    }
}

/* A logit below which nothing is needed: buckets are added up until one limit is met. What rounding leaves out is caught by keep_best, which
 * then takes everything. s->weight holds the weights when all > 0. */
static float cut_of(const struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float best, float inv_t, double all)
{
    struct buckets b;
    double sum = 0;
    int32_t n = 0, k = 0;
    fill_buckets(&b, logits, all > 0 ? s->weight : NULL, s->n_vocab, best, inv_t);
    for (; k < BUCKETS - 1; k++) {
        n += b.count[k];
        sum += b.weight[k];
        bool enough = (p->top_k > 0 && n >= p->top_k) || (all > 0 && sum >= (double)p->top_p * all);
        if (enough || exp_nonpositive(-(float)(k + 1) / PER_UNIT) < p->min_p)
            break;
    }
    return k == BUCKETS - 1 ? -INFINITY : best - (float)(k + 1) / PER_UNIT / inv_t;
}

/* top_k, then top_p of what it left, then min_p; the kept ones lie in s->kept and s->weight, best first. Only candidates above a cut are
 * ordered; the tail of the vocabulary never is. */
static int32_t restrict_to(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float inv_t)
{
    float best = max_of(logits, s->n_vocab);
    bool by_k = p->top_k > 0 && p->top_k < s->n_vocab;
    struct qr_sampling limits = *p;
    limits.top_k = by_k ? p->top_k : 0;
    double all = by_k || p->top_p >= 1.0f ? 0 : weigh(s->weight, logits, s->n_vocab, best, inv_t);
    float cut = cut_of(s, logits, &limits, best, inv_t, all);
    int32_t n = keep_best(s, gather(s->heap, logits, s->n_vocab, cut), &limits, best, inv_t, all);
    if (n < 0)
        n = keep_best(s, gather(s->heap, logits, s->n_vocab, -INFINITY), &limits, best, inv_t, all);
    n = n < 0 ? -1 - n : n;
    if (!by_k || p->top_p >= 1.0f)
        return n;
    double sum = 0, left = sum_of(s->weight, n);
    for (int32_t i = 0; i < n; i++) {
        if (i > 0 && (double)p->top_p * left <= sum)
            return i;
        sum += (double)s->weight[i];
    }
    return n;
}

/* The candidates of one bucket in s->heap. */
static int32_t gather_bucket(struct qr_sampler *s, const struct buckets *b, const float *logits, int32_t k)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (bucket_of(b, logits[i]) == k)
            s->heap[n++] = (struct qr_candidate){logits[i], i};
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(s->heap, n, i);
    return n;
}

/* Takes candidates of bucket k, best first, until the weight of all that is better reaches `limit`; *sum counts on from what the buckets before
 * have. Returns the last one taken. */
static int32_t take_until(struct qr_sampler *s, const struct buckets *b, const float *logits, int32_t k, double limit, double *sum)
{
    int32_t n = gather_bucket(s, b, logits, k), last = -1;
    while (n > 0) {
        last = pop_best(s->heap, &n).id;
        *sum += (double)s->weight[last];
        if (*sum >= limit)
            break;
    }
    QR_ASSERT(last >= 0);
    return last;
}

/* The first bucket with which the weight reaches `limit`, or the last one with any weight; *before: the weight ahead of it. */
static int32_t bucket_at(const struct buckets *b, double limit, double *before)
{
    int32_t found = 0;
    double sum = 0;
    for (int32_t k = 0; k < BUCKETS; k++) {
        if (b->count[k] == 0)
            continue;
        found = k;
        *before = sum;
        sum += b->weight[k];
        if (sum >= limit)
            break;
    }
    return found;
}

/* top_p alone: the nucleus may have thousands of ids, but only two buckets decide, the one where it ends and the one that the draw falls
 * into, and only these are ordered. Both passes add the same weights in the same order, so a draw in the last bucket stops before its end. */
static int32_t draw_nucleus(struct qr_sampler *s, const float *logits, float top_p, float inv_t, double u)
{
    struct buckets b;
    float best = max_of(logits, s->n_vocab);
    double all = weigh(s->weight, logits, s->n_vocab, best, inv_t), kept = 0, sum = 0;
    fill_buckets(&b, logits, s->weight, s->n_vocab, best, inv_t);
    int32_t end = bucket_at(&b, (double)top_p * all, &kept);
    int32_t last = take_until(s, &b, logits, end, (double)top_p * all, &kept);
    int32_t k = bucket_at(&b, u * kept, &sum);
    return k > end ? last : take_until(s, &b, logits, k, u * kept, &sum);
}

static int32_t draw_restricted(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float inv_t, double u)
{
    int32_t n = restrict_to(s, logits, p, inv_t);
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double)s->weight[i];
    for (int32_t i = 0; i < n; i++) {
        sum += (double)s->weight[i];
        if (u * total < sum)
            return s->kept[i].id;
    }
    return s->kept[n - 1].id;
}

/* The whole vocabulary, in the order of ids. */
static int32_t draw_any(struct qr_sampler *s, const float *logits, float inv_t, double u)
{
    double total = weigh(s->weight, logits, s->n_vocab, max_of(logits, s->n_vocab), inv_t), sum = 0;
    int32_t last = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->weight[i] == 0)
            continue;
        sum += (double)s->weight[i];
        last = i;
        if (u * total < sum)
            return i;
    }
    return last;
}

bool qr_sampling_changes_logits(const struct qr_sampling *p, int32_t n_output)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_output >= 0);
    return p->repetition != 1.0f || p->presence != 0 || p->frequency != 0 || p->n_logit_bias > 0 || n_output < p->min_tokens;
}

int32_t qr_sample(struct qr_sampler *s, float *logits, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids,
                  int32_t n_prompt, const int32_t *end_ids, int32_t n_end, int32_t choice)
{
    QR_ASSERT(s != NULL && logits != NULL && p != NULL && ids != NULL);
    QR_ASSERT(n_ids >= n_prompt && choice >= 0);
    apply_penalties(s, logits, p, ids, n_ids, n_prompt);
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        logits[p->logit_bias[i].id] += p->logit_bias[i].bias;
    if (n_ids - n_prompt < p->min_tokens)
        for (int32_t i = 0; i < n_end; i++)
            if (end_ids[i] >= 0 && end_ids[i] < s->n_vocab)
                logits[end_ids[i]] = -INFINITY;
    if (p->temperature < GREEDY_BELOW)
        return argmax(logits, s->n_vocab);
    double u = qr_rng_unit(p->seed, (uint64_t)choice, (uint64_t)(n_ids - n_prompt));
    float inv_t = 1.0f / p->temperature;
    bool whole = (p->top_k <= 0 || p->top_k >= s->n_vocab) && p->top_p >= 1.0f && p->min_p <= 0;
    if (whole)
        return draw_any(s, logits, inv_t, u);
    bool nucleus = (p->top_k <= 0 || p->top_k >= s->n_vocab) && p->min_p <= 0;
    return nucleus ? draw_nucleus(s, logits, p->top_p, inv_t, u) : draw_restricted(s, logits, p, inv_t, u);
}
