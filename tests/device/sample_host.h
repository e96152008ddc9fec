/* sample_host.h - what kernels.h's `sample` must give, by the host's own sampler: the oracle of a device's kernels, and the discrete device's filling. Changes
 * of logits are made here, plainly; draws and ranks are engine/sampler.h's. All pointers are the host's. */
#ifndef QR_TESTS_DEVICE_SAMPLE_HOST_H
#define QR_TESTS_DEVICE_SAMPLE_HOST_H

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/sampler.h"

static inline void host_change(float *x, const struct qr_draw_row *row, int32_t id, int32_t n_output, bool seen, float bias, bool forbid)
{
    if (seen && row->repetition != 1.0f)
        x[id] = x[id] > 0 ? x[id] / row->repetition : x[id] * row->repetition;
    if (n_output > 0 && (row->presence != 0 || row->frequency != 0))
        x[id] -= row->presence + row->frequency * (float)n_output;
    x[id] = forbid ? -INFINITY : x[id] + bias;
}

static inline void host_changes(float *x, const struct qr_sample_args *a, const struct qr_draw_row *row)
{
    const int32_t newest = row->newest >= 0 ? a->drawn[row->newest].id : -1;
    bool met = newest < 0;
    for (int32_t i = 0; i < row->n_changes; i++) {
        const struct qr_logit_change *c = &a->draws->change[row->first_change + i];
        const bool again = c->id == newest;
        bool forbid = c->flags & QR_CHANGE_FORBID;
        if (c->flags & QR_CHANGE_AFTER)
            continue;
        for (int32_t k = c->after; k > 0; k = a->draws->change[row->first_change + k - 1].after)
            forbid = forbid || a->draws->change[row->first_change + k - 1].id == newest;
        host_change(x, row, c->id, c->n_output + again, again || (c->flags & QR_CHANGE_SEEN), c->bias, forbid);
        met = met || again;
    }
    if (!met)
        host_change(x, row, newest, 1, true, 0, false);
    for (int32_t i = 0; row->allowed >= 0 && i < a->n_vocab; i++)
        if (!(a->draws->allowed[row->allowed + i / 32] >> (i % 32) & 1))
            x[i] = -INFINITY;
}

static inline void host_detail(struct qr_drawn_detail *out, float *x, int32_t n_vocab, int32_t id, int32_t n_top)
{
    const struct qr_row_math *math = qr_row_math_best();
    const struct qr_logits row = {.x = x};
    struct qr_token_logprob told;
    float w[QR_STRETCH];
    qr_token_logprob_fill(&told, &row, n_vocab, id, n_top);
    *out = (struct qr_drawn_detail){.best = math->max(x, n_vocab, -INFINITY), .logit = x[id], .rank = told.rank, .n_top = told.n_top};
    for (int32_t i = 0; i < n_vocab; i += QR_STRETCH)
        out->sum += math->weigh(w, x + i, n_vocab - i < QR_STRETCH ? n_vocab - i : QR_STRETCH, out->best, 1);
    for (int32_t i = 0; i < told.n_top; i++) {
        out->top_id[i] = told.top_id[i];
        out->top[i] = x[told.top_id[i]];
    }
}

/* s: of so many ids. Unlike a device's, logits are left as they are. */
static inline void sample_host(struct qr_sampler *s, const struct qr_sample_args *a)
{
    QR_ASSERT(s != NULL && a != NULL && s->n_vocab == a->n_vocab);
    float *x = qr_alloc((size_t)a->n_vocab, sizeof *x);
    struct qr_drawn *drawn = qr_alloc((size_t)a->draws->n_rows + 1, sizeof *drawn); /* the old ones are read until the end */
    const int32_t none[1] = {0};
    for (int32_t r = 0; r < a->draws->n_rows; r++) {
        const struct qr_draw_row *row = &a->draws->row[r];
        if (row->at < 0)
            continue;
        float *raw = a->logits + row->at * a->stride;
        memcpy(x, raw, (size_t)a->n_vocab * sizeof *x);
        drawn[r].id = row->id;
        if (row->id < 0) {
            const struct qr_sampling p = {.temperature = row->temperature, .top_p = row->top_p, .min_p = row->min_p, .top_k = row->top_k, .repetition = 1,
                                          .seed = row->seed, .n_logprobs = -1};
            host_changes(x, a, row);
            drawn[r].id = qr_sample(s, &(struct qr_logits){.x = x}, &p, none, row->pos, 0, NULL, 0, row->choice);
        }
        drawn[r].logit = x[drawn[r].id];
        if (a->detail && row->n_top >= 0)
            host_detail(&a->detail[r], raw, a->n_vocab, drawn[r].id, row->n_top);
    }
    memcpy(a->drawn, drawn, (size_t)a->draws->n_rows * sizeof *drawn);
    qr_free(drawn);
    qr_free(x);
}

#endif
