#include "engine/ask.h"

#include "base/assert.h"

#define LINE 64
#define FAR 6  /* rows ahead of the one that is used that are asked for */
#define NEAR 3 /* and what these point to */

void qr_ask_for_event(const struct qr_node *free_events)
{
    QR_ASSERT(free_events != NULL);
    QR_ASSERT(free_events->next != NULL);
    if (qr_list_empty(free_events))
        return;
    const struct qr_event *ev = QR_CONTAINER(free_events->next, struct qr_event, link);
    __builtin_prefetch(ev, 1);
    __builtin_prefetch((const char *)ev + LINE - 1, 1);
    __builtin_prefetch(&ev->token[0], 1);
}

/* What workers have written of row i, when it is there. */
static void ask_for_results(const struct qr_engine *e, int32_t i)
{
    if (i >= e->rows.n)
        return;
    __builtin_prefetch(&e->rows.row[i]);
    __builtin_prefetch(&e->rows.row[i].token);
}

/* Row i, when it is there: its slot, sequence, request and its token's entries in the tokenizer's tables. */
static void ask_for_row(const struct qr_engine *e, int32_t i)
{
    if (i >= e->rows.n)
        return;
    const struct qr_row *row = &e->rows.row[i];
    const struct qr_request *r = row->req;
    const struct qr_slot *slot = &e->slot[row->index];
    __builtin_prefetch(slot, 1);
    __builtin_prefetch((const char *)&slot->out.detok + LINE / 2, 1); /* of which the end is seldom looked at */
    __builtin_prefetch(row->seq, 1);
    __builtin_prefetch(&row->seq->n_blocks, 1);
    __builtin_prefetch(&r->n_prompt);
    __builtin_prefetch(&r->sampling.n_stops);
    if (row->kind == QR_ROW_DRAW)
        qr_detok_ask(e->tokenizer, row->token.id);
}

/* And what lies behind these: text and ids. */
static void ask_behind_row(const struct qr_engine *e, int32_t i)
{
    if (i >= e->rows.n || e->rows.row[i].kind != QR_ROW_DRAW)
        return;
    const struct qr_row *row = &e->rows.row[i];
    __builtin_prefetch(e->slot[row->index].out.text, 1);
    __builtin_prefetch(row->seq->ids + row->seq->n_ids, 1);
    qr_detok_ask_text(e->tokenizer, row->token.id);
}

void qr_ask_first(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->rows.n >= 0);
    for (int32_t i = 0; i < FAR; i++)
        ask_for_row(e, i);
}

void qr_ask_ahead(const struct qr_engine *e, int32_t i)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(i >= 0);
    ask_for_results(e, i + 2 * FAR);
    ask_for_row(e, i + FAR);
    ask_behind_row(e, i + NEAR);
}
