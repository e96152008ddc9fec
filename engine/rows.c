#include "engine/rows.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define ITEM_LOGITS 65536  /* about 10 us of greedy sampling: less is not worth another worker's attention */
#define NARROW_LOGITS 2048 /* see cost_of */

void qr_rows_init(struct qr_rows *r, struct qr_backend *be, const struct qr_model_config *model, int32_t rows_max)
{
    QR_ASSERT(r != NULL && be != NULL && model != NULL);
    QR_ASSERT(rows_max > 0);
    *r = (struct qr_rows){.be = be, .model = model, .rows_max = rows_max};
    r->row = qr_alloc((size_t)rows_max, sizeof *r->row);
    r->scale = qr_alloc((size_t)rows_max, sizeof *r->scale);
    r->sampler = qr_alloc((size_t)be->n_threads, sizeof *r->sampler);
    for (int32_t i = 0; i < be->n_threads; i++)
        qr_sampler_init(&r->sampler[i], model->n_vocab);
}

void qr_rows_release(struct qr_rows *r)
{
    QR_ASSERT(r != NULL);
    for (int32_t i = 0; r->sampler && i < r->be->n_threads; i++)
        qr_sampler_release(&r->sampler[i]);
    qr_free(r->sampler);
    qr_free(r->row);
    qr_free(r->scale);
    *r = (struct qr_rows){0};
}

int32_t qr_row_end_ids(const struct qr_model_config *mc, const struct qr_sampling *p, int32_t out[QR_EOS_MAX + QR_STOP_IDS_MAX])
{
    QR_ASSERT(mc != NULL && mc->n_eos <= QR_EOS_MAX);
    QR_ASSERT(p != NULL && out != NULL);
    int32_t n = 0;
    for (int32_t i = 0; i < mc->n_eos && !p->ignore_eos; i++)
        out[n++] = mc->eos_ids[i];
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        out[n++] = p->stop_ids[i];
    return n;
}

static int32_t choose(struct qr_sampler *s, const struct qr_model_config *mc, const struct qr_row *row)
{
    const struct qr_sampling *p = &row->req->sampling;
    const struct qr_seq *seq = row->seq;
    int32_t end_ids[QR_EOS_MAX + QR_STOP_IDS_MAX] QR_UNINITIALIZED;
    const int32_t n_ids = row->pos + 1; /* those of the sequence may have one more by now, or guesses among these */
    if (row->mask)
        return row->only >= 0 ? row->only : qr_sample_masked(s, &row->logits, p, seq->ids, n_ids, seq->n_prompt, row->mask, row->choice);
    const int32_t n_end = qr_row_end_ids(mc, p, end_ids);
    return qr_sample(s, &row->logits, p, seq->ids, n_ids, seq->n_prompt, end_ids, n_end, row->choice);
}

/* Log-probabilities are the model's own: where the row is about to be changed they are taken from a copy. */
static void draw(struct qr_sampler *s, const struct qr_model_config *mc, struct qr_row *row)
{
    const struct qr_sampling *p = &row->req->sampling;
    struct qr_logits own = row->logits;
    const bool changes = row->mask ? row->only < 0 && qr_sampling_biases_logits(p) : qr_sampling_changes_logits(p, row->pos + 1 - row->seq->n_prompt);
    if (p->n_logprobs >= 0 && changes)
        own.x = memcpy(s->raw, row->logits.x, (size_t)mc->n_vocab * sizeof *s->raw);
    const int32_t id = choose(s, mc, row);
    row->finite = isfinite(row->logits.x[id]) && !row->failed;
    row->token.id = id;
    row->token.logprob = 0;
    row->token.rank = row->token.n_top = 0;
    if (p->n_logprobs >= 0 && row->finite)
        qr_token_logprob_fill(&row->token, &own, mc->n_vocab, id, p->n_logprobs);
}

float qr_row_scale(const struct qr_rows *r, const struct qr_row *row)
{
    QR_ASSERT(r != NULL && row != NULL);
    QR_ASSERT(row->req != NULL);
    const struct qr_sampling *p = &row->req->sampling;
    if (row->kind != QR_ROW_DRAW)
        return row->kind == QR_ROW_PROMPT ? 1 : 0;
    return row->req->grammar && p->n_logprobs < 0 ? 0 : qr_sampling_scale(p, r->model->n_vocab); /* of what a mask leaves nothing is known */
}

static void compute_row(const struct qr_rows *r, struct qr_row *row, int32_t worker)
{
    int32_t next = row->pos + 1;
    if (row->kind == QR_ROW_PROMPT)
        qr_token_logprob_fill(&row->req->prompt_logprobs[next], &row->logits, r->model->n_vocab, row->seq->ids[next],
                              row->req->sampling.n_prompt_logprobs);
    else if (row->kind == QR_ROW_DRAW)
        draw(&r->sampler[worker], r->model, row);
}

bool qr_row_narrow(const struct qr_row *row)
{
    QR_ASSERT(row != NULL);
    QR_ASSERT(row->req != NULL);
    const struct qr_sampling *p = &row->req->sampling;
    return row->kind == QR_ROW_END || row->kind == QR_ROW_HIDDEN || (p->n_logprobs < 0 && (p->temperature == 0 || (p->top_k > 0 && !row->req->grammar)));
}

/* About how many logits are read for a row. What lies apart is waited for: that takes as long as reading some NARROW_LOGITS in a row. */
static int64_t cost_of(const struct qr_rows *r, const struct qr_row *row)
{
    const bool nothing = row->kind == QR_ROW_END || row->kind == QR_ROW_HIDDEN, narrow = row->narrow && (nothing || row->logits.largest);
    const bool summed = row->kind == QR_ROW_DRAW && row->logits.sum && row->logits.scale > 0; /* most nuclei lie in a few stretches */
    const int64_t cost = narrow ? NARROW_LOGITS : summed ? 4 * NARROW_LOGITS : r->model->n_vocab;
    return cost < r->model->n_vocab ? cost : r->model->n_vocab;
}

/* So many that an item is worth a worker's attention, items are about even, and where there are more of them than workers each gets as many. */
static int32_t rows_per_item(const struct qr_rows *r)
{
    int64_t all = 0;
    for (int32_t i = 0; i < r->n; i++)
        all += cost_of(r, &r->row[i]);
    const int64_t n_threads = r->be->n_threads;
    int64_t n_items = 1 + all / ITEM_LOGITS;
    if (n_items > n_threads)
        n_items = (n_items + n_threads - 1) / n_threads * n_threads;
    return (int32_t)((r->n + n_items - 1) / n_items);
}

/* Rows in the order of a step, some an item. */
struct cut {
    const struct qr_rows *r;
    int32_t each;
};

static void compute_item(const void *arg, int32_t item, int32_t worker)
{
    const struct cut *c = arg;
    const int32_t first = item * c->each, end = first + c->each < c->r->n ? first + c->each : c->r->n;
    for (int32_t i = first; i < end; i++)
        compute_row(c->r, &c->r->row[i], worker);
}

void qr_rows_compute(struct qr_rows *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(r->n >= 0 && r->n <= r->rows_max);
    if (r->n == 0)
        return;
    const struct cut c = {r, rows_per_item(r)};
    qr_backend_run(r->be, compute_item, &c, (r->n + c.each - 1) / c.each);
}
