#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/draw.h"

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
    s->n_stretches = (n_vocab + QR_STRETCH - 1) / QR_STRETCH;
    s->most = qr_alloc((size_t)s->n_stretches, sizeof *s->most);
    s->sum = qr_alloc((size_t)s->n_stretches, sizeof *s->sum);
    s->math = qr_row_math_best();
}

size_t qr_sampler_bytes(int32_t n_vocab)
{
    QR_ASSERT(n_vocab > 0);
    const struct qr_sampler *s = NULL;
    const size_t n_stretches = ((size_t)n_vocab + QR_STRETCH - 1) / QR_STRETCH;
    return (size_t)n_vocab * (sizeof *s->count + sizeof *s->raw + sizeof *s->heap + sizeof *s->kept + sizeof *s->weight) +
           n_stretches * (sizeof *s->most + sizeof *s->sum);
}

void qr_sampler_release(struct qr_sampler *s)
{
    qr_free(s->count);
    qr_free(s->raw);
    qr_free(s->heap);
    qr_free(s->kept);
    qr_free(s->weight);
    qr_free(s->most);
    qr_free(s->sum);
    *s = (struct qr_sampler){0};
}

/* The first of the largest: ties go to the smallest id. One pass over memory: the stretch that raised the maximum last holds it. Rows that
 * begin with what is no number give 0: the caller looks at what was chosen. */
static int32_t argmax(const struct qr_row_math *math, const float *x, int32_t n)
{
    float best = x[0];
    int32_t at = 0;
    for (int32_t i = 0; i < n; i += QR_STRETCH) {
        float most = math->max(x + i, n - i < QR_STRETCH ? n - i : QR_STRETCH, best);
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

double qr_log_sum_exp(const float *logits, int32_t n_vocab)
{
    QR_ASSERT(logits != NULL && n_vocab > 0);
    const struct qr_row_math *math = qr_row_math_best();
    float best = math->max(logits, n_vocab, logits[0]), w[QR_STRETCH];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i += QR_STRETCH)
        sum += math->weigh(w, logits + i, n_vocab - i < QR_STRETCH ? n_vocab - i : QR_STRETCH, best, 1);
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
static void find_top(struct qr_token_logprob *out, const struct qr_row_math *math, const float *logits, int32_t n_vocab, int32_t n_top)
{
    for (int32_t from = 0; from < n_vocab; from += QR_STRETCH) {
        int32_t to = from + QR_STRETCH < n_vocab ? from + QR_STRETCH : n_vocab;
        if (out->n_top == n_top && !(math->max(logits + from, to - from, logits[from]) > out->top_logprob[n_top - 1]))
            continue;
        for (int32_t i = from; i < to; i++)
            insert_top(out, n_top, i, logits[i]);
    }
}

/* 1 + how many are larger, or equal with a smaller id. */
static int32_t rank_of(const struct qr_row_math *math, const float *logits, int32_t n_vocab, int32_t id)
{
    int32_t n = 1 + math->count_above(logits, n_vocab, logits[id]);
    for (int32_t i = 0; i < id; i++)
        n += logits[i] == logits[id];
    return n;
}

void qr_token_logprob_fill(struct qr_token_logprob *out, const float *logits, int32_t n_vocab, int32_t id, int32_t n_top)
{
    QR_ASSERT(out != NULL && id >= 0 && id < n_vocab);
    QR_ASSERT(n_top >= 0 && n_top <= QR_TOP_LOGPROBS_MAX);
    const struct qr_row_math *math = qr_row_math_best();
    double lse = qr_log_sum_exp(logits, n_vocab);
    *out = (struct qr_token_logprob){.id = id, .logprob = (float)((double)logits[id] - lse), .rank = rank_of(math, logits, n_vocab, id)};
    if (n_top > 0)
        find_top(out, math, logits, n_vocab, n_top);
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
        return argmax(s->math, logits, s->n_vocab);
    double u = qr_rng_unit(p->seed, (uint64_t)choice, (uint64_t)(n_ids - n_prompt));
    return qr_draw(s, logits, p, u);
}
