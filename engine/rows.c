#include "engine/rows.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define ITEM_LOGITS 65536 /* about 10 us of greedy sampling: less is not worth another worker's attention */

void qr_rows_init(struct qr_rows *r, struct qr_backend *be, const struct qr_model_config *model, int32_t rows_max)
{
    QR_ASSERT(r != NULL && be != NULL && model != NULL);
    QR_ASSERT(rows_max > 0);
    *r = (struct qr_rows){.be = be, .model = model, .rows_max = rows_max};
    r->row = qr_alloc((size_t)rows_max, sizeof *r->row);
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
    *r = (struct qr_rows){0};
}

static int32_t end_ids_of(const struct qr_model_config *mc, const struct qr_sampling *p, int32_t *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < mc->n_eos && !p->ignore_eos; i++)
        out[n++] = mc->eos_ids[i];
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        out[n++] = p->stop_ids[i];
    return n;
}

/* Log-probabilities are the model's own: where the row is about to be changed they are taken from a copy. */
static void draw(struct qr_sampler *s, const struct qr_model_config *mc, struct qr_row *row)
{
    const struct qr_sampling *p = &row->req->sampling;
    const struct qr_seq *seq = row->seq;
    int32_t end_ids[QR_EOS_MAX + QR_STOP_IDS_MAX], n_end = end_ids_of(mc, p, end_ids);
    const float *own = row->logits;
    if (p->n_logprobs >= 0 && qr_sampling_changes_logits(p, seq->n_ids - seq->n_prompt))
        own = memcpy(s->raw, row->logits, (size_t)mc->n_vocab * sizeof *s->raw);
    int32_t id = qr_sample(s, row->logits, p, seq->ids, seq->n_ids, seq->n_prompt, end_ids, n_end, row->choice);
    row->finite = isfinite(row->logits[id]);
    if (p->n_logprobs >= 0 && row->finite)
        qr_token_logprob_fill(&row->token, own, mc->n_vocab, id, p->n_logprobs);
    else
        row->token = (struct qr_token_logprob){.id = id};
}

static void compute_row(const struct qr_rows *r, struct qr_row *row, int32_t worker)
{
    int32_t next = row->pos + 1;
    if (row->kind == QR_ROW_PROMPT)
        qr_token_logprob_fill(&row->req->prompt_logprobs[next], row->logits, r->model->n_vocab, row->seq->ids[next],
                              row->req->sampling.n_prompt_logprobs);
    else if (row->kind == QR_ROW_DRAW)
        draw(&r->sampler[worker], r->model, row);
}

static int32_t rows_per_item(const struct qr_rows *r)
{
    return 1 + ITEM_LOGITS / r->model->n_vocab;
}

static void compute_item(const void *arg, int32_t item, int32_t worker)
{
    const struct qr_rows *r = arg;
    int32_t n = rows_per_item(r), end = (item + 1) * n < r->n ? (item + 1) * n : r->n;
    for (int32_t i = item * n; i < end; i++)
        compute_row(r, &r->row[i], worker);
}

void qr_rows_compute(struct qr_rows *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(r->n >= 0 && r->n <= r->rows_max);
    int32_t n = rows_per_item(r);
    qr_backend_run(r->be, compute_item, r, (r->n + n - 1) / n);
}
