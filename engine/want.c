/* want.c - what a step's rows of logits are for, and where they lie. */
#include "base/assert.h"
#include "engine/internal.h"

static struct qr_row *next_row(struct qr_engine *e, int32_t index, int32_t pos, int32_t at, enum qr_row_kind kind)
{
    struct qr_slot *s = &e->slot[index];
    const struct qr_seq *seq = qr_sched_seq(e->sched, index);
    QR_ASSERT(e->rows.n < e->rows.rows_max);
    struct qr_row *row = &e->rows.row[e->rows.n++];
    row->kind = kind;
    row->index = index;
    row->choice = s->choice;
    row->at = at;
    row->tenure = 0;
    row->guess = 0;
    row->req = s->req;
    row->guide = &s->guide;
    row->seq = seq;
    row->pos = pos;
    row->narrow = qr_row_narrow(row);
    row->first = s->choice == 0 && pos + 1 == seq->n_prompt; /* once: with its token it is no longer the last */
    return row;
}

/* Row `at` of logits, of position pos: the log-probability of the next prompt token, or the next token itself. */
static void want_row(struct qr_engine *e, int32_t index, int32_t pos, int32_t at)
{
    const struct qr_slot *s = &e->slot[index];
    const struct qr_seq *seq = qr_sched_seq(e->sched, index);
    bool prompt = pos + 1 < seq->n_prompt && s->req->prompt_logprobs;
    e->rows.scale[at] = 0;
    if (!prompt && pos + 1 != seq->n_ids)
        return;
    const enum qr_row_kind kind = prompt ? QR_ROW_PROMPT : s->req->sampling.max_tokens > 0 ? QR_ROW_DRAW : QR_ROW_END;
    struct qr_row *row = next_row(e, index, pos, at, kind);
    e->rows.scale[at] = row->scale = qr_row_scale(&e->rows, row);
}

/* The row of a sequence that decodes: as a rule the one that stood there before, a position on. */
static void want_decoded(struct qr_engine *e, const struct qr_plan_item *item, int32_t at)
{
    const struct qr_seq *seq = qr_sched_seq(e->sched, item->seq);
    struct qr_row *row = &e->rows.row[e->rows.n];
    QR_ASSERT(e->rows.n < e->rows.rows_max);
    QR_ASSERT(item->first + 1 == seq->n_ids && item->first >= seq->n_prompt);
    if (row->tenure != seq->tenure) {
        want_row(e, item->seq, item->first, at);
        row->tenure = seq->tenure;
        return;
    }
    QR_ASSERT(row->kind == QR_ROW_DRAW && row->seq == seq);
    row->pos = item->first;
    row->at = at;
    row->first = false;
    e->rows.scale[at] = row->scale;
    e->rows.n++;
}

/* The last known row of a sequence that decodes, and those of its guesses. */
static void want_checked(struct qr_engine *e, const struct qr_plan_item *item, int32_t at)
{
    const int32_t first = item->first + item->n_tokens - item->n_logits;
    for (int32_t k = 0; k < item->n_logits; k++) {
        struct qr_row *row = next_row(e, item->seq, first + k, at + k, QR_ROW_DRAW);
        row->guess = k;
        row->guide = qr_speculate_guide(e, item->seq, k);
        e->rows.scale[at + k] = row->scale = qr_row_scale(&e->rows, row);
    }
}

void qr_want_rows(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->plan.n_logits <= e->rows.rows_max);
    int32_t n_logits = 0, n_hidden = 0;
    e->rows.n = 0;
    for (int32_t i = 0; i < qr_plan_items(&e->plan); i++) {
        const struct qr_plan_item *item = &e->plan.item[i];
        if (i >= e->plan.n_prefill) {
            (i < e->plan.n_prefill + e->plan.n_checked ? want_checked : want_decoded)(e, item, n_logits);
            n_logits += item->n_logits;
            continue;
        }
        const bool hidden = qr_sched_seq(e->sched, item->seq)->hidden;
        for (int32_t k = item->n_tokens - item->n_logits; k < item->n_tokens; k++) {
            if (hidden)
                next_row(e, item->seq, item->first + k, n_hidden++, QR_ROW_HIDDEN);
            else
                want_row(e, item->seq, item->first + k, n_logits++);
        }
    }
}

void qr_find_rows(struct qr_engine *e, const struct qr_tensor *logits)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(logits != NULL);
    for (int32_t i = 0; i < e->rows.n; i++) {
        struct qr_row *row = &e->rows.row[i];
        const int64_t at = row->at;
        if (row->kind == QR_ROW_HIDDEN) {
            row->hidden = (const float *)e->exec.hidden.data + at * e->exec.hidden.stride[0];
            continue;
        }
        row->logits = qr_logits_at(logits->data, logits->stride[0], &e->exec.stretches, at);
    }
}
