/* decode.c - the decode part of a step: every sequence whose prompt is computed has a row for its next token, and more where several are known or guessed. */
#include "scheduler/sched_internal.h"

int32_t qr_decode_count(const struct qr_sched *s)
{
    QR_ASSERT(s != NULL);
    int32_t n = 0;
    for (int32_t i = 0; i < s->decode.n; i++)
        n += !qr_seq_idle(&s->slot[s->decode.seq[i]].seq);
    return n;
}

/* One row has its place in the step; others that are known take what is left of it. */
void qr_decode_plan(struct qr_sched *s, int32_t seq, struct qr_plan *plan, struct qr_sched_budget *left)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT(x->seq.state == QR_SEQ_DECODE && left->tokens >= 0);
    QR_ASSERT(plan->n_decode < s->config.running_max);
    if (qr_seq_idle(&x->seq))
        return;
    const int32_t first = x->seq.n_computed, known = qr_rows_known(&x->seq) - first;
    const int32_t n = qr_seq_grow(s, seq, first + (known - 1 < left->tokens ? known : 1 + left->tokens), plan) - first;
    if (n <= 0)
        return; /* keeps its blocks and waits: no sequence behind it had any to give */
    const int32_t n_logits = n == known;
    s->decode_item[plan->n_decode++] = (struct qr_plan_item){.seq = seq, .first = first, .n_tokens = n, .n_logits = n_logits};
    plan->n_tokens += n;
    plan->n_logits += n_logits;
    left->tokens -= n - 1;
}

/* Rows that have a block, or get one of those that are left above the watermark when every sequence that runs has one more. */
static int32_t place_guesses(struct qr_sched *s, struct qr_sched_slot *x, int32_t n_rows)
{
    while (x->seq.n_blocks * s->block_tokens < n_rows) {
        const int32_t spare = qr_kv_pool_available(s->pool) - s->reserved - (1 + qr_n_running(s)) * qr_blocks_each(s);
        if (x->reserve == 0 && spare < s->config.watermark_blocks)
            break;
        qr_seq_take_block(s, x);
    }
    return x->seq.n_blocks * s->block_tokens < n_rows ? x->seq.n_blocks * s->block_tokens : n_rows;
}

void qr_decode_plan_guesses(struct qr_sched *s, struct qr_plan *plan, struct qr_sched_budget *left)
{
    QR_ASSERT(s != NULL && plan != NULL);
    QR_ASSERT(left->tokens >= 0 && left->logits >= 0);
    for (int32_t k = 0; k < plan->n_decode; k++) {
        struct qr_plan_item *item = &s->decode_item[k];
        struct qr_sched_slot *x = qr_slot(s, item->seq);
        const int32_t room = left->tokens < left->logits ? left->tokens : left->logits, end = x->seq.n_ids;
        int32_t n = item->n_logits == 0 || plan->n_preempted > 0 ? 0 : x->seq.n_draft < room ? x->seq.n_draft : room;
        n = n > 0 ? place_guesses(s, x, end + n) - end : 0;
        x->seq.n_draft = n;
        item->n_tokens += n;
        item->n_logits += n;
        plan->n_tokens += n;
        plan->n_logits += n;
        left->tokens -= n;
        left->logits -= n;
    }
}

static bool is_plain(const struct qr_plan_item *item)
{
    return item->n_tokens == 1 && item->n_logits == 1;
}

void qr_decode_write(struct qr_sched *s, struct qr_plan *plan)
{
    QR_ASSERT(s != NULL && plan != NULL);
    QR_ASSERT(plan->n_checked == 0 && plan->n_prefill + plan->n_decode <= s->config.running_max);
    struct qr_plan_item *to = plan->item + plan->n_prefill;
    const int32_t n = plan->n_decode;
    for (int32_t k = 0; k < n; k++)
        if (!is_plain(&s->decode_item[k]))
            to[plan->n_checked++] = s->decode_item[k];
    plan->n_decode = 0;
    for (int32_t k = 0; k < n; k++)
        if (is_plain(&s->decode_item[k]))
            to[plan->n_checked + plan->n_decode++] = s->decode_item[k];
}
