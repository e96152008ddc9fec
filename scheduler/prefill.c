/* prefill.c - the prompt part of a step: chunks of the prompts that run, then prompts from the queue while there is
 * room. The client whose turn it is (fair.h) has its next prompt admitted; none overtakes because it is small. A prompt is admitted
 * when its blocks are there above the watermark, and its cached prefix is taken first. Chunks are cut to the budget and
 * to the rows of logits that a step has. Pure, as all of scheduler/. */
#include <string.h>

#include "kvcache/kv_prefix.h"
#include "scheduler/sched_internal.h"

/* Rows [first, first + n) of x: how many of the last ones want logits. Prompt rows already delivered once are not again. */
static int32_t logits_of(const struct qr_sched_slot *x, int32_t first, int32_t n)
{
    int32_t end = first + n;
    if (x->seq.prompt_logits && x->logits_done < x->seq.n_prompt) {
        int32_t from = first > x->logits_done ? first : x->logits_done;
        return end > from ? end - from : 0;
    }
    return end == x->seq.n_ids ? 1 : 0;
}

/* Cuts n rows so that their logits fit. Prompts that come later in this plan keep one row each. */
static int32_t cut_to_logits(const struct qr_sched_slot *x, int32_t first, int32_t n, const struct qr_sched_budget *left)
{
    int32_t spare = left->logits - left->n_behind > 1 ? left->logits - left->n_behind : 1;
    int32_t allowed = left->logits > 0 ? spare : 0;
    int32_t over = logits_of(x, first, n) - allowed;
    return over > 0 ? n - over : n;
}

static bool may_admit(const struct qr_sched *s)
{
    return s->n_free_tables > 0 && qr_n_running(s) < s->running_limit;
}

/* The prompt that would have the rest of the step, behind the one that is planned; NULL: none. */
static const struct qr_seq *next_prompt(struct qr_sched *s, const struct qr_sched_budget *left)
{
    if (left->n_behind > 0)
        return &s->slot[s->prefill.seq[s->prefill.n - left->n_behind]].seq;
    const int32_t user = may_admit(s) ? qr_fair_next(&s->fair) : -1;
    return user < 0 ? NULL : &s->slot[s->waiting.seq[qr_waiting_of(s, user)]].seq;
}

/* Rows that a prompt may have of this step. It leaves some only to one that would end with them: of two that share steps both end late. */
static int32_t chunk_of(struct qr_sched *s, const struct qr_sched_budget *left)
{
    const int32_t least = s->config.chunk_tokens_max, rest = left->prompt - least;
    const struct qr_seq *next = s->chunk_max > least && rest > 0 ? next_prompt(s, left) : NULL;
    const int32_t found = next && next->state == QR_SEQ_WAITING && next->n_found > 0 ? next->n_found : 0;
    return next && qr_rows_known(next) - next->n_computed - found <= rest ? least : s->chunk_max;
}

/* Cuts n rows, each of which reads those before it, to what the step's rows of prompts may read still. One row may, as long as that is anything. */
static int32_t cut_to_reads(int32_t first, int32_t n, const struct qr_sched_budget *left)
{
    const int64_t fit = left->reads / (first + 1);
    return n < 1 || fit >= n ? n : fit > 1 ? (int32_t)fit : 1;
}

void qr_prefill_plan(struct qr_sched *s, int32_t seq, struct qr_plan *plan, struct qr_sched_budget *left)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT(x->seq.state == QR_SEQ_PREFILL);
    QR_ASSERT(plan->n_prefill < s->config.running_max);
    int32_t first = x->seq.n_computed, n = qr_rows_known(&x->seq) - first, chunk = chunk_of(s, left);
    n = n < chunk ? n : chunk;
    n = n < left->tokens ? n : left->tokens;
    n = n < left->prompt ? n : left->prompt;
    n = cut_to_logits(x, first, cut_to_reads(first, n, left), left);
    if (n <= 0)
        return;
    n = qr_seq_grow(s, seq, first + n, plan) - first;
    if (n <= 0)
        return;
    int32_t n_logits = logits_of(x, first, n);
    plan->item[plan->n_prefill++] = (struct qr_plan_item){.seq = seq, .first = first, .n_tokens = n, .n_logits = n_logits};
    plan->n_tokens += n;
    plan->n_prompt += n;
    plan->n_logits += n_logits;
    left->tokens -= n;
    left->reads -= left->reads < INT64_MAX ? (int64_t)n * (first + 1) : 0;
    left->prompt = left->reads > 0 ? left->prompt - n : 0;
    left->logits -= n_logits;
}

/* What a sequence in the queue can start from. */
struct start {
    bool blocked;    /* another member of its group is about to compute the same prompt: wait for it */
    int32_t donor;   /* a running member that has the whole prompt in the cache, or -1 */
};

static struct start find_start(const struct qr_sched *s, const struct qr_seq *q)
{
    struct start found = {.blocked = false, .donor = -1};
    if (q->group < 0 || q->prompt_logits || qr_is_apart(s, q))
        return found;
    for (int32_t i = 0; i < qr_n_running(s); i++) {
        int32_t other = i < s->prefill.n ? s->prefill.seq[i] : s->decode.seq[i - s->prefill.n];
        const struct qr_seq *o = &s->slot[other].seq;
        if (o->group != q->group || o->n_prompt != q->n_prompt || qr_is_apart(s, o) || o->n_behind > qr_blocks_behind(s, q->n_prompt - 1))
            continue;
        if (o->n_computed >= o->n_prompt)
            return (struct start){.blocked = false, .donor = other};
        found.blocked = !q->leader;
    }
    for (int32_t i = 0; i < s->waiting.n && !q->leader && !found.blocked; i++) {
        const struct qr_seq *o = &s->slot[s->waiting.seq[i]].seq;
        found.blocked = o != q && o->group == q->group && o->leader && o->n_prompt == q->n_prompt;
    }
    return found;
}

/* Takes references on the blocks the prefix cache has for x. At least the last known token stays to be computed. */
static void start_from_cache(struct qr_sched *s, struct qr_sched_slot *x)
{
    struct qr_seq *q = &x->seq;
    if (q->prompt_logits || qr_is_apart(s, q))
        return;
    if (s->hashed_serial != x->serial) {
        s->hashed_serial = x->serial;
        s->n_hashed = 0;
    }
    int32_t n_max = (qr_rows_known(q) - 1) / s->block_tokens;
    q->n_blocks = qr_kv_prefix_find(s->pool, q->blocks, n_max, q->ids, n_max * s->block_tokens, q->salt, s->hashes,
                                    &s->n_hashed);
    q->n_computed = q->n_blocks * s->block_tokens;
    q->n_behind = s->twins.n > 0 ? qr_blocks_behind(s, q->n_computed) : 0; /* references were taken on the last twins alone */
    qr_seq_leave_behind(s, x);
}

void qr_sched_find(struct qr_sched *s, int32_t seq)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT((x->seq.state == QR_SEQ_WAITING || x->seq.state == QR_SEQ_HELD) && x->table < 0);
    int32_t n_hashed = 0;
    const int32_t n_ids = x->seq.prompt_logits ? 1 : x->seq.n_ids, n_max = (n_ids - 1) / s->block_tokens, most = n_max < s->blocks_max ? n_max : s->blocks_max;
    s->hashed_serial = 0; /* no sequence's */
    const int32_t n = qr_kv_prefix_find(s->pool, s->count, most, x->seq.ids, most * s->block_tokens, x->seq.salt, s->hashes, &n_hashed);
    x->seq.n_found = n * s->block_tokens;
    x->tail = qr_kv_tail_of(s->pool, n > 0 ? s->count[n - 1] : -1);
    struct qr_seq found = {.blocks = s->count, .n_blocks = n, .n_behind = s->twins.n > 0 ? qr_blocks_behind(s, x->seq.n_found) : 0};
    qr_seq_drop_blocks(s, &found);
}

/* Shares the donor's blocks of the prompt. The block that holds the last prompt token is not shared: that row is computed
 * again, for the logits, so the caller copies what is before it. */
static void start_from_donor(struct qr_sched *s, struct qr_sched_slot *x, const struct qr_seq *donor)
{
    struct qr_seq *q = &x->seq;
    QR_ASSERT(donor->n_computed >= q->n_prompt);
    QR_ASSERT(donor->group == q->group);
    qr_seq_drop_blocks(s, q);
    q->n_computed = q->n_prompt - 1;
    q->n_behind = qr_blocks_behind(s, q->n_computed);
    q->n_blocks = (q->n_prompt - 1) / s->block_tokens;
    for (int32_t part = 0; part < qr_blocks_each(s); part++) {
        memcpy(qr_block_at(s, q, part, 0), qr_block_at(s, donor, part, 0), (size_t)q->n_blocks * sizeof *q->blocks);
        for (int32_t i = qr_part_first(s, q, part); i < q->n_blocks; i++)
            qr_kv_ref(s->pool, *qr_block_at(s, q, part, i));
    }
}

int32_t qr_blocks_promised(const struct qr_sched *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->prefill.n; i++) {
        const struct qr_sched_slot *x = &s->slot[s->prefill.seq[i]];
        int32_t missing = qr_blocks_more(s, &x->seq, qr_rows_known(&x->seq)) - x->reserve;
        n += missing > 0 ? missing : 0;
    }
    return n;
}

/* Blocks found that lie where they cannot be computed with. */
static int32_t blocks_afar(const struct qr_sched *s, const struct qr_seq *q)
{
    int32_t n = 0;
    for (int32_t i = q->n_behind; i < q->n_blocks; i++)
        n += qr_kv_is_host(s->pool, q->blocks[i]);
    return n;
}

/* Is there room for what x (whose found blocks are referenced already) still needs? Alone, it always fits. */
static bool has_room(const struct qr_sched *s, const struct qr_sched_slot *x)
{
    bool whole = qr_protected(s, &x->seq);
    int32_t n_rows = whole ? qr_rows_max(&x->seq) : qr_rows_known(&x->seq);
    int32_t need = qr_blocks_more(s, &x->seq, n_rows) + blocks_afar(s, &x->seq);
    int32_t room = qr_kv_pool_available(s->pool) - s->reserved - qr_blocks_promised(s); /* admission leaves these alone */
    bool alone = qr_n_running(s) == 0;
    QR_ASSERT(!alone || room >= need);
    return alone || room >= need + s->config.watermark_blocks;
}

static void note_admission(struct qr_sched *s, struct qr_sched_slot *x, bool from_donor, int64_t now_us)
{
    struct qr_seq *q = &x->seq;
    qr_seq_rank(s, x);
    qr_fair_take(&s->fair, x->user);
    if (qr_protected(s, q)) {
        x->reserve = qr_blocks_more(s, q, qr_rows_max(q));
        s->reserved += x->reserve;
    }
    if (q->admitted_us >= 0)
        return;
    q->admitted_us = now_us;
    qr_fair_charge(&s->fair, x->user, QR_FAIR_IN * (double)(q->n_ids - q->n_computed));
    q->n_cached = from_donor ? 0 : q->n_computed;
    if (!from_donor && !q->prompt_logits)
        qr_kv_prefix_count(s->pool, q->n_prompt, q->n_computed);
}

/* Found blocks of the second tier come to the first. Numbers behind the window are only to be some of the first, with content. */
static void bring_blocks(struct qr_sched *s, struct qr_seq *q)
{
    for (int32_t i = q->n_blocks - 1; i >= 0; i--) {
        if (!qr_kv_is_host(s->pool, q->blocks[i]))
            continue;
        q->blocks[i] = i >= q->n_behind ? qr_kv_bring(s->pool, q->blocks[i]) : q->blocks[i + 1];
    }
}

/* A block of its own for x in place of the donor's of that index, which is copied. */
static void copy_block(struct qr_sched *s, struct qr_sched_slot *x, const struct qr_seq *donor, struct qr_plan *plan)
{
    const int32_t i = x->seq.n_blocks;
    const bool taken = qr_seq_take_block(s, x);
    QR_ASSERT(taken && i < donor->n_blocks);
    for (int32_t part = 0; part < qr_blocks_each(s); part++)
        plan->copy[plan->n_copies++] = (struct qr_plan_copy){.src = *qr_block_at(s, donor, part, i), .dst = *qr_block_at(s, &x->seq, part, i)};
}

/* Moves a sequence from the queue to the running prompts, or leaves everything as it was. */
static bool admit(struct qr_sched *s, int32_t seq, int32_t donor, struct qr_plan *plan, int64_t now_us)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    struct qr_seq *q = &x->seq;
    qr_seq_take_table(s, x);
    if (donor < 0 || q->n_ids > q->n_prompt) /* generated blocks of a preempted sequence may still be cached */
        start_from_cache(s, x);
    bool from_donor = donor >= 0 && q->n_computed < q->n_prompt - 1;
    if (from_donor)
        start_from_donor(s, x, &s->slot[donor].seq);
    if (!has_room(s, x)) {
        qr_seq_release_blocks(s, x);
        q->n_computed = 0;
        return false;
    }
    bring_blocks(s, q);
    note_admission(s, x, from_donor, now_us);
    qr_seq_move(s, seq, QR_SEQ_PREFILL);
    if (from_donor && q->n_computed % s->block_tokens != 0)
        copy_block(s, x, &s->slot[donor].seq, plan);
    return true;
}

/* The first of the user's sequences that wait and can start, and from what; -1: all wait for siblings' prompts. */
static int32_t find_ready(struct qr_sched *s, int32_t user, int32_t *donor)
{
    for (int32_t k = qr_waiting_of(s, user); k < s->waiting.n; k++) {
        struct qr_sched_slot *x = &s->slot[s->waiting.seq[k]], *ahead = k > 0 ? &s->slot[s->waiting.seq[k - 1]] : NULL;
        if (x->user != user)
            break;
        if (x->stuck == s->plan_last)
            continue;
        const bool sibling = ahead && ahead->stuck == s->plan_last && x->seq.group >= 0 && ahead->seq.group == x->seq.group;
        if (sibling && !x->seq.leader && !x->seq.prompt_logits) { /* siblings stand together: one search answers for all of them */
            x->stuck = s->plan_last;
            continue;
        }
        const struct start start = find_start(s, &x->seq);
        *donor = start.donor;
        if (!start.blocked)
            return s->waiting.seq[k];
        x->stuck = s->plan_last;
    }
    return -1;
}

void qr_prefill_admit(struct qr_sched *s, struct qr_plan *plan, struct qr_sched_budget *left, int64_t now_us)
{
    QR_ASSERT(s != NULL && plan != NULL);
    QR_ASSERT(left->n_behind == 0);
    int32_t user, donor;
    qr_fair_begin(&s->fair);
    while (left->tokens > 0 && left->prompt > 0 && left->logits > 0 && may_admit(s) && (user = qr_fair_next(&s->fair)) >= 0) {
        const int32_t seq = find_ready(s, user, &donor);
        if (seq < 0) {
            qr_fair_pass(&s->fair, user);
            continue;
        }
        if (!admit(s, seq, donor, plan, now_us))
            return; /* whose turn it is waits for room: no prompt overtakes for being small */
        struct qr_seq *q = &s->slot[seq].seq;
        q->leader = q->leader || (q->group >= 0 && donor < 0);
        qr_prefill_plan(s, seq, plan, left);
    }
}
