/* sampler.c - one row of logits: penalties, biases and forbidden ids, then the draw (draw.c) or the largest, then
 * log-probabilities. Changed logits are put back afterwards where the model's own are wanted. Greedy rows without
 * changes read one run of 256 logits. Pure: a function of the row, the parameters and (seed, choice, position). On a
 * worker of the kernel pool; scratch is planned once per thread. */
#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/draw.h"

static size_t room_for(int32_t n_vocab)
{
    return ((size_t)n_vocab + QR_SAMPLER_ROOM - 1) / QR_SAMPLER_ROOM * QR_SAMPLER_ROOM;
}

void qr_sampler_init(struct qr_sampler *s, int32_t n_vocab)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(n_vocab > 0);
    s->n_vocab = n_vocab;
    s->count = qr_alloc((size_t)n_vocab, sizeof *s->count);
    s->raw = qr_alloc((size_t)n_vocab, sizeof *s->raw);
    s->heap = qr_alloc((size_t)n_vocab, sizeof *s->heap);
    const size_t room = room_for(n_vocab);
    s->logit = qr_alloc(room, sizeof *s->logit);
    s->id = qr_alloc(room, sizeof *s->id);
    s->weight = qr_alloc(room, sizeof *s->weight);
    s->bucket = qr_alloc(room, sizeof *s->bucket);
    s->row = qr_alloc((size_t)n_vocab, sizeof *s->row);
    s->n_row = n_vocab;
    s->n_stretches = (n_vocab + QR_STRETCH - 1) / QR_STRETCH;
    s->from = qr_alloc((size_t)s->n_stretches, sizeof *s->from);
    s->most = qr_alloc((size_t)s->n_stretches, sizeof *s->most);
    s->sum = qr_alloc((size_t)s->n_stretches, sizeof *s->sum);
    s->stale = qr_alloc((size_t)s->n_stretches, sizeof *s->stale);
    s->math = qr_row_math_best();
}

size_t qr_sampler_bytes(int32_t n_vocab)
{
    QR_ASSERT(n_vocab > 0);
    const struct qr_sampler *s = NULL;
    const size_t n_stretches = ((size_t)n_vocab + QR_STRETCH - 1) / QR_STRETCH;
    return (size_t)n_vocab * (sizeof *s->count + sizeof *s->raw + sizeof *s->heap + sizeof *s->row) +
           room_for(n_vocab) * (sizeof *s->logit + sizeof *s->id + sizeof *s->weight + sizeof *s->bucket) +
           n_stretches * (sizeof *s->most + sizeof *s->sum + sizeof *s->stale + sizeof *s->from);
}

void qr_sampler_release(struct qr_sampler *s)
{
    qr_free(s->count);
    qr_free(s->raw);
    qr_free(s->heap);
    qr_free(s->logit);
    qr_free(s->id);
    qr_free(s->weight);
    qr_free(s->bucket);
    qr_free(s->row);
    qr_free(s->from);
    qr_free(s->most);
    qr_free(s->sum);
    qr_free(s->stale);
    *s = (struct qr_sampler){0};
}

static int32_t stretch_len(int32_t n_vocab, int32_t i)
{
    return n_vocab - i * QR_STRETCH < QR_STRETCH ? n_vocab - i * QR_STRETCH : QR_STRETCH;
}

/* ---- log-probabilities ---- */

struct qr_logits qr_logits_at(float *logits, int64_t stride, const struct qr_stretches *known, int64_t row)
{
    QR_ASSERT(logits != NULL && known != NULL);
    QR_ASSERT(stride > 0 && row >= 0);
    return (struct qr_logits){.x = logits + row * stride, .largest = known->largest ? known->largest + row * known->stride : NULL,
                              .sum = known->sum ? known->sum + row * known->stride : NULL, .scale = known->sum ? known->scale[row] : 0};
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

static double log_sum_of_all(const struct qr_row_math *math, const float *logits, int32_t n_vocab)
{
    float best = math->max(logits, n_vocab, logits[0]), w[QR_STRETCH] QR_UNINITIALIZED;
    double sum = 0;
    for (int32_t i = 0; i * QR_STRETCH < n_vocab; i++)
        sum += math->weigh(w, logits + i * QR_STRETCH, stretch_len(n_vocab, i), best, 1);
    return (double)best + log(sum);
}

double qr_log_sum_exp(const struct qr_logits *row, int32_t n_vocab)
{
    QR_ASSERT(row != NULL && row->x != NULL);
    QR_ASSERT(n_vocab > 0);
    const struct qr_row_math *math = qr_row_math_best();
    const int32_t n = (n_vocab + QR_STRETCH - 1) / QR_STRETCH;
    if (!row->largest || !row->sum || row->scale != 1.0f)
        return log_sum_of_all(math, row->x, n_vocab);
    const float best = math->max(row->largest, n, -INFINITY);
    double sum = 0;
    for (int32_t i = 0; i < n; i += QR_STRETCH) {
        float weight[QR_STRETCH] QR_UNINITIALIZED;
        const int32_t n_some = n - i < QR_STRETCH ? n - i : QR_STRETCH;
        math->weigh(weight, row->largest + i, n_some, best, 1);
        for (int32_t k = 0; k < n_some; k++)
            sum += (double)row->sum[i + k] * (double)weight[k];
    }
    return (double)best + log(sum);
}

/* What at least n of the row's numbers reach, as so many stretches have a largest that does; -infinity where that is not known. */
static float reached_by(const struct qr_row_math *math, const struct qr_logits *row, int32_t n_vocab, int32_t n)
{
    const int32_t n_stretches = (n_vocab + QR_STRETCH - 1) / QR_STRETCH;
    return row->largest ? qr_reached_by(math, row->largest, n_stretches, n, math->max(row->largest, n_stretches, -INFINITY)) : -INFINITY;
}

/* The n_top largest among those of stretch i that are at least `least`. */
static void find_top_within(struct qr_token_logprob *out, const struct qr_row_math *math, const struct qr_logits *row, int32_t n_vocab, int32_t n_top,
                            int32_t i, float least)
{
    const int32_t from = i * QR_STRETCH;
    int32_t at[QR_STRETCH] QR_UNINITIALIZED;
    const float last = out->n_top == n_top ? out->top_logprob[n_top - 1] : least;
    const int32_t n = math->find(at, row->x + from, stretch_len(n_vocab, i), last > least ? last : least);
    for (int32_t k = 0; k < n; k++)
        insert_top(out, n_top, from + at[k], row->x[from + at[k]]);
}

/* The first stretch from number i on that holds a number of at least v; the number of stretches: there is none. */
static int32_t next_stretch(const struct qr_row_math *math, const struct qr_logits *row, int32_t n_vocab, int32_t i,
                            float v)
{
    const int32_t n = (n_vocab + QR_STRETCH - 1) / QR_STRETCH;
    if (row->largest)
        return i < n ? i + math->first(row->largest + i, n - i, v) : n;
    while (i < n && !(math->max(row->x + i * QR_STRETCH, stretch_len(n_vocab, i), -INFINITY) >= v))
        i++;
    return i;
}

/* The n_top largest, in stretches: one that holds nothing as large as the last of the list is not read. */
static void find_top(struct qr_token_logprob *out, const struct qr_row_math *math, const struct qr_logits *row, int32_t n_vocab, int32_t n_top)
{
    const float least = reached_by(math, row, n_vocab, n_top);
    float last = least;
    for (int32_t i = 0; (i = next_stretch(math, row, n_vocab, i, last)) * QR_STRETCH < n_vocab; i++) {
        find_top_within(out, math, row, n_vocab, n_top, i, least);
        last = out->n_top == n_top && out->top_logprob[n_top - 1] > least ? out->top_logprob[n_top - 1] : least;
    }
}

/* How many of stretch i are larger than v, or equal with a smaller id. */
static int32_t rank_within(const struct qr_row_math *math, const struct qr_logits *row, int32_t n_vocab, int32_t i, int32_t id, float v)
{
    const int32_t from = i * QR_STRETCH, len = stretch_len(n_vocab, i), end = id < from + len ? id : from + len;
    int32_t n = math->count_above(row->x + from, len, v);
    for (int32_t k = from; k < end; k++)
        n += row->x[k] == v;
    return n;
}

/* 1 + how many are larger, or equal with a smaller id. */
static int32_t rank_of(const struct qr_row_math *math, const struct qr_logits *row, int32_t n_vocab, int32_t id)
{
    const float v = row->x[id];
    int32_t rank = 1;
    for (int32_t i = 0; (i = next_stretch(math, row, n_vocab, i, v)) * QR_STRETCH < n_vocab; i++)
        rank += rank_within(math, row, n_vocab, i, id, v);
    return rank;
}

void qr_token_logprob_fill(struct qr_token_logprob *out, const struct qr_logits *row, int32_t n_vocab, int32_t id, int32_t n_top)
{
    QR_ASSERT(out != NULL && row != NULL && id >= 0 && id < n_vocab);
    QR_ASSERT(n_top >= 0 && n_top <= QR_TOP_LOGPROBS_MAX);
    const struct qr_row_math *math = qr_row_math_best();
    double lse = qr_log_sum_exp(row, n_vocab);
    *out = (struct qr_token_logprob){.id = id, .logprob = (float)((double)row->x[id] - lse), .rank = rank_of(math, row, n_vocab, id)};
    if (n_top > 0)
        find_top(out, math, row, n_vocab, n_top);
    for (int32_t i = 0; i < out->n_top; i++)
        out->top_logprob[i] = (float)((double)out->top_logprob[i] - lse);
}

void qr_token_logprob_copy(struct qr_token_logprob *to, const struct qr_token_logprob *from)
{
    QR_ASSERT(to != NULL && from != NULL);
    QR_ASSERT(from->n_top >= 0 && from->n_top <= QR_TOP_LOGPROBS_MAX);
    memcpy(to, from, offsetof(struct qr_token_logprob, top_id));
    memcpy(to->top_id, from->top_id, (size_t)from->n_top * sizeof *to->top_id);
    memcpy(to->top_logprob, from->top_logprob, (size_t)from->n_top * sizeof *to->top_logprob);
}

/* ---- changes to a row ---- */

/* The logit of `id` is about to change. */
static float *change(struct qr_sampler *s, float *logits, int32_t id)
{
    s->stale[id / QR_STRETCH] = s->any_stale = true;
    return &logits[id];
}

/* Repetition counts prompt and output (Keskar et al. 2019, arXiv:1909.05858); presence and frequency count the output only. */
static void apply_penalties(struct qr_sampler *s, float *logits, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids,
                            int32_t n_prompt)
{
    if (p->repetition != 1.0f) {
        for (int32_t i = 0; i < n_ids; i++) {
            if (s->count[ids[i]]++ == 0) {
                float *x = change(s, logits, ids[i]);
                *x = *x > 0 ? *x / p->repetition : *x * p->repetition;
            }
        }
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
            *change(s, logits, ids[i]) -= p->presence + p->frequency * (float)n;
        s->count[ids[i]] = 0;
    }
}

static void bias(struct qr_sampler *s, float *logits, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids, int32_t n_prompt)
{
    apply_penalties(s, logits, p, ids, n_ids, n_prompt);
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        *change(s, logits, p->logit_bias[i].id) += p->logit_bias[i].bias;
}

bool qr_bad_word_ends(const int32_t *run, const int32_t *output, int32_t n_output)
{
    QR_ASSERT(run != NULL && run[0] >= 1);
    QR_ASSERT(n_output >= 0);
    const int32_t n = run[0] - 1;
    return n <= n_output && (n == 0 || memcmp(output + n_output - n, run + 1, (size_t)n * sizeof *run) == 0);
}

/* Every id but the allowed ones. s->logit is scratch. */
static void forbid_others(struct qr_sampler *s, float *logits, const int32_t *allowed, int32_t n_allowed)
{
    QR_ASSERT(n_allowed <= s->n_vocab);
    for (int32_t i = 0; i < n_allowed; i++)
        s->logit[i] = logits[allowed[i]];
    for (int32_t i = 0; i < s->n_vocab; i++)
        logits[i] = -INFINITY;
    for (int32_t i = 0; i < n_allowed; i++)
        logits[allowed[i]] = s->logit[i];
    memset(s->stale, true, (size_t)s->n_stretches * sizeof *s->stale);
    s->any_stale = true;
}

static void forbid(struct qr_sampler *s, float *logits, const struct qr_sampling *p, const int32_t *output, int32_t n_output, const int32_t *end_ids,
                   int32_t n_end)
{
    for (int32_t i = 0; n_output < p->min_tokens && i < n_end; i++)
        if (end_ids[i] >= 0 && end_ids[i] < s->n_vocab)
            *change(s, logits, end_ids[i]) = -INFINITY;
    for (int32_t at = 0; at < p->n_bad; at += 1 + p->bad[at])
        if (qr_bad_word_ends(p->bad + at, output, n_output))
            *change(s, logits, p->bad[at + p->bad[at]]) = -INFINITY;
    if (p->n_allowed > 0)
        forbid_others(s, logits, p->allowed, p->n_allowed);
}

bool qr_sampling_biases_logits(const struct qr_sampling *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n_logit_bias >= 0);
    return p->repetition != 1.0f || p->presence != 0 || p->frequency != 0 || p->n_logit_bias > 0;
}

bool qr_sampling_changes_logits(const struct qr_sampling *p, int32_t n_output)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_output >= 0);
    return qr_sampling_biases_logits(p) || n_output < p->min_tokens || p->n_bad > 0 || p->n_allowed > 0;
}

/* ---- the choice ---- */

/* s->most and, with inv_t, s->sum of every stretch: as the head's product left them, or from the row where that is not known or no longer true. */
static void know_stretches(struct qr_sampler *s, const struct qr_logits *row, float inv_t)
{
    const bool known = row->largest && (inv_t == 0 || (row->sum && row->scale == inv_t));
    const float *restrict from = known ? row->sum : NULL;
    double *restrict sum = s->sum;
    if (known)
        memcpy(s->most, row->largest, (size_t)s->n_stretches * sizeof *s->most);
    for (int32_t i = 0, n = known && inv_t > 0 ? s->n_stretches : 0; i < n; i++)
        sum[i] = (double)from[i];
    for (int32_t i = 0; (!known || s->any_stale) && i < s->n_stretches; i++) {
        const float *x = row->x + i * QR_STRETCH;
        const int32_t n = stretch_len(s->n_vocab, i);
        if (known && !s->stale[i])
            continue;
        s->most[i] = s->math->max(x, n, -INFINITY);
        s->sum[i] = inv_t > 0 ? s->math->weigh(s->weight, x, n, s->most[i], inv_t) : 0;
        s->stale[i] = false;
    }
    s->any_stale = false;
}

/* The first stretch with the largest of all; n_stretches: there is none. */
static int32_t first_best(const struct qr_row_math *math, const float *most, int32_t n_stretches)
{
    return math->first(most, n_stretches, math->max(most, n_stretches, -INFINITY));
}

/* The first of the largest, which stretch i holds: ties go to the smallest id. Rows that begin with what is no number give 0: the caller looks at what was
 * chosen. */
static int32_t first_largest(const struct qr_sampler *s, const float *x, int32_t i, float best)
{
    if (isnan(x[0]) || i == s->n_stretches)
        return 0;
    const int32_t n = stretch_len(s->n_vocab, i), at = s->math->first(x + i * QR_STRETCH, n, best);
    return at < n ? i * QR_STRETCH + at : 0;
}

static bool is_greedy(const struct qr_sampling *p)
{
    return p->temperature < QR_DRAW_GREEDY_BELOW;
}

float qr_sampling_scale(const struct qr_sampling *p, int32_t n_vocab)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_vocab > 0);
    if (p->n_logprobs >= 0)
        return 1;
    return is_greedy(p) || !qr_draw_needs_sums(p, n_vocab) ? 0 : 1.0f / p->temperature;
}

static double share_of(const struct qr_sampling *p, int32_t choice, int32_t n_output)
{
    return qr_rng_unit(p->seed, (uint64_t)choice, (uint64_t)n_output);
}

int32_t qr_sample(struct qr_sampler *s, const struct qr_logits *row, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids,
                  int32_t n_prompt, const int32_t *end_ids, int32_t n_end, int32_t choice)
{
    QR_ASSERT(s != NULL && row != NULL && row->x != NULL && p != NULL && ids != NULL);
    QR_ASSERT(n_ids >= n_prompt && choice >= 0);
    const bool greedy = is_greedy(p);
    bias(s, row->x, p, ids, n_ids, n_prompt);
    forbid(s, row->x, p, ids + n_prompt, n_ids - n_prompt, end_ids, n_end);
    const double u = greedy ? 0 : share_of(p, choice, n_ids - n_prompt);
    know_stretches(s, row, greedy || !qr_draw_needs_sums(p, s->n_vocab) ? 0 : 1.0f / p->temperature);
    if (greedy) {
        const int32_t i = first_best(s->math, s->most, s->n_stretches);
        return first_largest(s, row->x, i, i < s->n_stretches ? s->most[i] : 0);
    }
    return qr_draw(s, row->x, p, u);
}

/* ---- the choice among the ids of a mask ---- */

#define WORD_BITS 32

/* Whether the mask allows anything in stretch i. */
static bool allows_any(const uint32_t *mask, int32_t n_vocab, int32_t i)
{
    const int32_t first = i * (QR_STRETCH / WORD_BITS), n = (stretch_len(n_vocab, i) + WORD_BITS - 1) / WORD_BITS;
    uint32_t any = 0;
    for (int32_t k = 0; k < n; k++)
        any |= mask[first + k];
    return any != 0;
}

/* to[0..) = stretch i of x, -infinity where the mask does not allow the id. Returns how many there are. */
static int32_t lay_out(const struct qr_sampler *s, float *to, const float *x, const uint32_t *mask, int32_t i)
{
    const int32_t n = stretch_len(s->n_vocab, i);
    s->math->allow(to, x + (int64_t)i * QR_STRETCH, mask + i * (QR_STRETCH / WORD_BITS), n);
    return n;
}

static int32_t first_allowed(const uint32_t *mask)
{
    int32_t i = 0;
    while (mask[i] == 0)
        i++;
    return i * WORD_BITS + __builtin_ctz(mask[i]);
}

/* The first of the largest; -1 where nothing allowed is more than -infinity. */
static int32_t first_largest_of_mask(const struct qr_sampler *s, const struct qr_logits *row, const uint32_t *mask)
{
    float best = -INFINITY, x[QR_STRETCH] QR_UNINITIALIZED;
    int32_t id = -1;
    if ((mask[0] & 1) && isnan(row->x[0]))
        return 0;
    for (int32_t i = 0; i < s->n_stretches; i++) {
        if (!allows_any(mask, s->n_vocab, i) || (row->largest && !s->stale[i] && row->largest[i] <= best))
            continue;
        const int32_t n = lay_out(s, x, row->x, mask, i);
        const float most = s->math->max(x, n, best);
        if (most > best)
            id = i * QR_STRETCH + s->math->first(x, n, most);
        best = most;
    }
    return id;
}

/* s->row of the stretches that hold something allowed, and of the first in any case; with inv_t their sums. A stretch left out would be of no weight. */
static void gather_mask(struct qr_sampler *s, const float *x, const uint32_t *mask, float inv_t)
{
    const int32_t n_all = s->n_stretches;
    s->n_stretches = s->n_row = 0;
    for (int32_t i = 0; i < n_all; i++) {
        if (i > 0 && !allows_any(mask, s->n_vocab, i))
            continue;
        float *to = s->row + s->n_row;
        const int32_t k = s->n_stretches++, n = lay_out(s, to, x, mask, i);
        s->from[k] = i;
        s->most[k] = s->math->max(to, n, -INFINITY);
        s->sum[k] = inv_t > 0 ? s->math->weigh(s->weight, to, n, s->most[k], inv_t) : 0;
        s->n_row += n;
    }
}

int32_t qr_sample_masked(struct qr_sampler *s, const struct qr_logits *row, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids,
                         int32_t n_prompt, const uint32_t *mask, int32_t choice)
{
    QR_ASSERT(s != NULL && row != NULL && row->x != NULL && p != NULL && ids != NULL);
    QR_ASSERT(n_ids >= n_prompt && choice >= 0 && mask != NULL);
    bias(s, row->x, p, ids, n_ids, n_prompt);
    int32_t id;
    if (is_greedy(p))
        id = first_largest_of_mask(s, row, mask);
    else {
        const int32_t n_all = s->n_stretches;
        gather_mask(s, row->x, mask, qr_draw_needs_sums(p, s->n_vocab) ? 1.0f / p->temperature : 0);
        id = qr_draw(s, s->row, p, share_of(p, choice, n_ids - n_prompt));
        id = isfinite(s->row[id]) ? s->from[id / QR_STRETCH] * QR_STRETCH + id % QR_STRETCH : -1;
        s->n_stretches = n_all;
        s->n_row = s->n_vocab;
    }
    if (s->any_stale)
        memset(s->stale, false, (size_t)s->n_stretches * sizeof *s->stale);
    s->any_stale = false;
    return id >= 0 ? id : first_allowed(mask); /* whose logit is no number */
}
