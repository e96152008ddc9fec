#include "engine/lower.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

void qr_lower_init(struct qr_lower *l, int32_t tokens_max, int32_t seqs_max, int32_t logits_max, int32_t ctx_max, int32_t block_tokens,
                   int32_t adapters_max, const struct qr_kv_twins *twins)
{
    QR_ASSERT(l != NULL && twins != NULL && adapters_max >= 0);
    QR_ASSERT(tokens_max > 0 && seqs_max > 0 && logits_max > 0 && ctx_max > 0 && block_tokens > 0);
    const int32_t stride = (ctx_max + block_tokens - 1) / block_tokens, n_parts = 1 + twins->n;
    *l = (struct qr_lower){
        .ids = qr_alloc((size_t)tokens_max, sizeof(int32_t)), .pos = qr_alloc((size_t)tokens_max, sizeof(int32_t)),
        .slot = qr_alloc((size_t)n_parts * (size_t)tokens_max, sizeof(int32_t)), .row_start = qr_alloc((size_t)seqs_max + 1, sizeof(int32_t)),
        .ctx_len = qr_alloc((size_t)seqs_max, sizeof(int32_t)), .logit_row = qr_alloc((size_t)logits_max, sizeof(int32_t)),
        .hidden_row = qr_alloc((size_t)logits_max, sizeof(int32_t)),
        .block_table = qr_alloc((size_t)n_parts * (size_t)seqs_max * (size_t)stride, sizeof(int32_t)), .twins = *twins,
        .table_part = (int64_t)seqs_max * stride, .known = qr_alloc((size_t)seqs_max, sizeof(struct qr_lower_row)),
        .group = qr_alloc((size_t)adapters_max, sizeof(struct qr_row_group)), .group_of = qr_alloc((size_t)adapters_max, sizeof(int32_t)),
        .group_row = adapters_max > 0 ? qr_alloc((size_t)tokens_max, sizeof(int32_t)) : NULL, .adapters_max = adapters_max,
        .tokens_max = tokens_max, .seqs_max = seqs_max, .logits_max = logits_max};
    l->batch = (struct qr_batch){.block_tokens = block_tokens, .table_stride = stride, .ids = l->ids, .pos = l->pos, .slot = l->slot,
                                 .row_start = l->row_start, .ctx_len = l->ctx_len, .block_table = l->block_table, .logit_row = l->logit_row,
                                 .hidden_row = l->hidden_row, .group = l->group};
}

void qr_lower_release(struct qr_lower *l)
{
    int32_t *const owned[] = {l->ids, l->pos, l->slot, l->row_start, l->ctx_len, l->block_table, l->logit_row, l->hidden_row, l->group_row, l->group_of};
    for (int i = 0; i < QR_COUNT(owned); i++)
        qr_free(owned[i]);
    qr_free(l->group);
    qr_free(l->known);
    *l = (struct qr_lower){0};
}

/* Row s of the block tables becomes the sequence's: as a rule all but a new block is there. */
static void lower_blocks(struct qr_lower *l, int32_t s, const struct qr_seq *seq)
{
    struct qr_lower_row *row = &l->known[s];
    const int32_t n = row->tenure == seq->tenure ? row->n_blocks : 0;
    QR_ASSERT(seq->tenure != 0 && seq->n_blocks > 0);
    QR_ASSERT(seq->n_blocks >= n && seq->n_blocks <= l->batch.table_stride);
    if (n == seq->n_blocks)
        return;
    for (int32_t part = 0; part <= l->twins.n; part++) {
        int32_t *to = l->block_table + (size_t)part * (size_t)l->table_part + (size_t)s * (size_t)l->batch.table_stride;
        memcpy(to + n, seq->blocks + part * l->twins.stride + n, (size_t)(seq->n_blocks - n) * sizeof(int32_t));
    }
    *row = (struct qr_lower_row){.tenure = seq->tenure, .n_blocks = seq->n_blocks, .last = seq->blocks[seq->n_blocks - 1]};
}

static void lower_item(struct qr_lower *l, const struct qr_plan_item *item, const struct qr_seq *seq)
{
    struct qr_batch *b = &l->batch;
    int32_t s = b->n_seqs++, row = b->n_tokens, shift = __builtin_ctz((unsigned)b->block_tokens), mask = b->block_tokens - 1;
    QR_ASSERT(item->first == seq->n_computed && item->first + item->n_tokens <= seq->n_ids + seq->n_draft);
    QR_ASSERT(row + item->n_tokens <= l->tokens_max && s < l->seqs_max);
    l->row_start[s] = row;
    l->row_start[s + 1] = row + item->n_tokens;
    l->ctx_len[s] = item->first + item->n_tokens;
    lower_blocks(l, s, seq);
    for (int32_t i = 0; i < item->n_tokens; i++) {
        const int32_t pos = item->first + i, nth = pos >> shift;
        QR_ASSERT(nth < seq->n_blocks);
        l->ids[row + i] = seq->ids[pos];
        l->pos[row + i] = pos;
        l->slot[row + i] = (nth == seq->n_blocks - 1 ? l->known[s].last : seq->blocks[nth]) * b->block_tokens + (pos & mask);
        for (int32_t part = 1; part <= l->twins.n; part++)
            l->slot[(int64_t)part * l->tokens_max + row + i] = seq->blocks[part * l->twins.stride + nth] * b->block_tokens + (pos & mask);
    }
    for (int32_t i = item->n_tokens - item->n_logits; i < item->n_tokens; i++) {
        if (seq->hidden)
            l->hidden_row[b->n_hidden++] = row + i;
        else
            l->logit_row[b->n_logits++] = row + i;
    }
    b->n_tokens += item->n_tokens;
}

/* The slot of an item's adapter, -1: none. */
static int32_t slot_of(const struct qr_lower *l, const struct qr_plan *plan, const struct qr_sched *sched, int32_t item)
{
    const int32_t slot = qr_sched_seq(sched, plan->item[item].seq)->adapter - 1;
    QR_ASSERT(slot >= -1);
    QR_ASSERT(slot < l->adapters_max);
    return slot;
}

/* Counts each slot's rows, gives those that have any a group and a stretch of group_row, and writes the rows there in their order. */
static void group_rows(struct qr_lower *l, const struct qr_plan *plan, const struct qr_sched *sched)
{
    const int32_t n_items = qr_plan_items(plan);
    struct qr_batch *b = &l->batch;
    memset(l->group_of, 0, (size_t)l->adapters_max * sizeof *l->group_of);
    for (int32_t i = 0, slot; i < n_items; i++)
        if ((slot = slot_of(l, plan, sched, i)) >= 0)
            l->group_of[slot] += plan->item[i].n_tokens;
    int32_t *row = l->group_row;
    for (int32_t slot = 0; slot < l->adapters_max; slot++) {
        const int32_t n = l->group_of[slot];
        l->group_of[slot] = b->n_groups;
        if (n > 0)
            l->group[b->n_groups++] = (struct qr_row_group){.row = row, .slot = slot};
        row += n;
    }
    for (int32_t i = 0, slot; i < n_items; i++) {
        if ((slot = slot_of(l, plan, sched, i)) < 0)
            continue;
        struct qr_row_group *g = &l->group[l->group_of[slot]];
        int32_t *to = l->group_row + (g->row - l->group_row) + g->n_rows;
        for (int32_t k = 0; k < plan->item[i].n_tokens; k++)
            to[k] = l->row_start[i] + k;
        g->n_rows += plan->item[i].n_tokens;
    }
}

const struct qr_batch *qr_lower(struct qr_lower *l, const struct qr_plan *plan, const struct qr_sched *sched)
{
    QR_ASSERT(plan->n_tokens <= l->tokens_max);
    QR_ASSERT(plan->n_logits <= l->logits_max);
    struct qr_batch *b = &l->batch;
    b->n_tokens = b->n_seqs = b->n_logits = b->n_hidden = b->n_groups = b->n_idle = 0;
    b->n_prefill_seqs = plan->n_prefill + plan->n_checked;
    const int32_t n_items = qr_plan_items(plan);
    for (int32_t i = 0; i < n_items; i++)
        lower_item(l, &plan->item[i], qr_sched_seq(sched, plan->item[i].seq));
    if (l->adapters_max > 0)
        group_rows(l, plan, sched);
    QR_ASSERT(b->n_tokens == plan->n_tokens && b->n_logits + b->n_hidden == plan->n_logits);
    return b;
}

static int32_t size_for(int32_t n)
{
    const int32_t step = n <= 64 ? 8 : 32;
    if (n > 4)
        return (n + step - 1) / step * step;
    return n == 3 ? 4 : n;
}

void qr_lower_fill_up(struct qr_lower *l)
{
    QR_ASSERT(l != NULL);
    struct qr_batch *b = &l->batch;
    QR_ASSERT(b->n_tokens == b->n_seqs && b->n_logits == b->n_seqs && b->n_idle == 0 && l->twins.n == 0);
    int32_t n = size_for(b->n_seqs);
    n = n < l->seqs_max ? n : l->seqs_max;
    n = n < l->tokens_max ? n : l->tokens_max;
    n = n < l->logits_max ? n : l->logits_max;
    for (int32_t s = b->n_seqs; s < n; s++) {
        l->ids[s] = l->pos[s] = 0;
        l->slot[s] = -1;
        l->row_start[s + 1] = s + 1;
        l->ctx_len[s] = 1;
        l->logit_row[s] = s;
        l->block_table[(size_t)s * (size_t)b->table_stride] = 0;
        l->known[s].tenure = 0;
        b->n_idle++;
    }
    b->n_tokens = b->n_seqs = b->n_logits = n > b->n_seqs ? n : b->n_seqs;
}
