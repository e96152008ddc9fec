#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rng.h"

#define GREEDY_BELOW 1e-5f /* 1/temperature stays far from overflow; vLLM draws the same line */

void qr_sampler_init(struct qr_sampler *s, int32_t n_vocab)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(n_vocab > 0);
    s->n_vocab = n_vocab;
    s->count = qr_alloc((size_t)n_vocab, sizeof *s->count);
    s->raw = qr_alloc((size_t)n_vocab, sizeof *s->raw);
    s->heap = qr_alloc((size_t)n_vocab, sizeof *s->heap);
}

void qr_sampler_release(struct qr_sampler *s)
{
    qr_free(s->count);
    qr_free(s->raw);
    qr_free(s->heap);
    *s = (struct qr_sampler){0};
}

static float max_of(const float *x, int32_t n)
{
    float best = x[0];
    for (int32_t i = 1; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

double qr_log_sum_exp(const float *logits, int32_t n_vocab)
{
    QR_ASSERT(logits != NULL && n_vocab > 0);
    float best = max_of(logits, n_vocab);
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++)
        sum += (double)expf(logits[i] - best);
    return (double)best + log(sum);
}

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

void qr_token_logprob_fill(struct qr_token_logprob *out, const float *logits, int32_t n_vocab, int32_t id, int32_t n_top)
{
    QR_ASSERT(out != NULL && id >= 0 && id < n_vocab);
    QR_ASSERT(n_top >= 0 && n_top <= QR_TOP_LOGPROBS_MAX);
    double lse = qr_log_sum_exp(logits, n_vocab);
    *out = (struct qr_token_logprob){.id = id, .logprob = (float)((double)logits[id] - lse), .rank = 1};
    for (int32_t i = 0; i < n_vocab; i++)
        out->rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
    for (int32_t i = 0; n_top > 0 && i < n_vocab; i++)
        insert_top(out, n_top, i, logits[i]);
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

static int32_t argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
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

/* Moves the best candidate to the end of the heap's range and shrinks it: sorted candidates pile up at heap[n_vocab-1], -2, ... */
static struct qr_candidate pop_best(struct qr_candidate *heap, int32_t *n)
{
    struct qr_candidate best = heap[0];
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
    heap[*n] = best;
    return best;
}

/* How many of the best candidates top_k, top_p and min_p leave. They are popped to the end of the heap in order; *total is their
 * weight (exp of the logit's distance to the best, at temperature 1/inv_t). A heap instead of a sort: the tail is never ordered. */
static int32_t restrict_to(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float inv_t, double *total)
{
    int32_t n = s->n_vocab, n_kept = 0, n_max = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    float best = max_of(logits, n);
    double all = 0, kept = 0;
    for (int32_t i = 0; i < n; i++) {
        s->heap[i] = (struct qr_candidate){logits[i], i};
        all += (double)expf((logits[i] - best) * inv_t);
    }
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(s->heap, n, i);
    if (n_max < s->n_vocab) { /* top_p is a share of what top_k left */
        all = 0;
        for (int32_t i = 0, left = n; i < n_max; i++)
            all += (double)expf((pop_best(s->heap, &left).logit - best) * inv_t);
        n = n_max;
    }
    for (int32_t left = s->n_vocab; n_kept < n; n_kept++) {
        /* after top_k the order is there already; without it candidates are popped only as far as they are needed */
        struct qr_candidate c = n_max < s->n_vocab ? s->heap[s->n_vocab - 1 - n_kept] : pop_best(s->heap, &left);
        double w = (double)expf((c.logit - best) * inv_t);
        if (n_kept > 0 && ((double)p->top_p * all <= kept || w < (double)p->min_p || w == 0))
            break;
        kept += w;
    }
    *total = kept;
    return n_kept;
}

static int32_t draw_restricted(struct qr_sampler *s, const float *logits, const struct qr_sampling *p, float inv_t, double u)
{
    double total, sum = 0;
    int32_t n = restrict_to(s, logits, p, inv_t, &total), last = s->n_vocab - 1;
    float best = s->heap[last].logit;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)expf((s->heap[last - i].logit - best) * inv_t);
        if (u * total < sum)
            return s->heap[last - i].id;
    }
    return s->heap[last - (n - 1)].id;
}

/* The whole vocabulary, in the order of ids. */
static int32_t draw_any(const float *logits, int32_t n, float inv_t, double u)
{
    float best = max_of(logits, n);
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double)expf((logits[i] - best) * inv_t);
    int32_t last = 0;
    for (int32_t i = 0; i < n; i++) {
        double w = (double)expf((logits[i] - best) * inv_t);
        if (w == 0)
            continue;
        sum += w;
        last = i;
        if (u * total < sum)
            return i;
    }
    return last;
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
    return whole ? draw_any(logits, s->n_vocab, inv_t, u) : draw_restricted(s, logits, p, inv_t, u);
}
