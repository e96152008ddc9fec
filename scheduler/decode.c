/* decode.c - the decode part of a step: one row for every sequence whose prompt is computed and whose next token is known. */
#include "scheduler/sched_internal.h"

int32_t qr_decode_count(const struct qr_sched *s)
{
    QR_ASSERT(s != NULL);
    int32_t n = 0;
    for (int32_t i = 0; i < s->decode.n; i++)
        n += !qr_seq_idle(&s->slot[s->decode.seq[i]].seq);
    return n;
}

void qr_decode_plan(struct qr_sched *s, int32_t seq, struct qr_plan *plan)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT(x->seq.state == QR_SEQ_DECODE);
    QR_ASSERT(plan->n_decode < s->config.running_max);
    if (qr_seq_idle(&x->seq))
        return;
    int32_t first = x->seq.n_computed;
    if (qr_seq_grow(s, seq, first + 1, plan) <= first)
        return; /* keeps its blocks and waits: no sequence behind it had any to give */
    s->decode_item[plan->n_decode++] = (struct qr_plan_item){.seq = seq, .first = first, .n_tokens = 1, .n_logits = 1};
    plan->n_tokens++;
    plan->n_logits++;
}
