/* sched.c - the scheduler's state and its calls: add, plan, commit, push a token, finish. The parts of a plan are made
 * by decode.c and prefill.c; plan.c writes them down. Every call is O(sequences that run), takes the time as an
 * argument, and allocates nothing. A plan changes nothing until it is committed. The caller's thread owns it, in a
 * server the engine thread. */
#include "scheduler/sched.h"

#include "base/mem.h"
#include "kvcache/kv_prefix.h"
#include "scheduler/sched_internal.h"

static int check_config(const struct qr_sched_config *c, const struct qr_kv_stats *pool, struct qr_err *err)
{
    const struct {
        const char *name;
        int32_t value, min;
    } at_least[] = {
        {"running_max", c->running_max, 1},
        {"waiting_max", c->waiting_max, 1},
        {"step_tokens_max", c->step_tokens_max, c->running_max},
        {"chunk_tokens_max", c->chunk_tokens_max, 1},
        {"logit_rows_max", c->logit_rows_max, c->running_max},
        {"ctx_max", c->ctx_max, 1},
        {"preempt_max", c->preempt_max, 0},
        {"watermark_blocks", c->watermark_blocks, 0},
        {"window", c->window, c->n_twins > 0},
        {"n_twins", c->n_twins, 0},
    };
    for (int i = 0; i < QR_COUNT(at_least); i++) {
        if (at_least[i].value < at_least[i].min)
            return qr_err_set(err, QR_E_USAGE, "%s is %d; with running_max %d it must be at least %d", at_least[i].name,
                              at_least[i].value, c->running_max, at_least[i].min);
    }
    if (c->waiting_max > INT32_MAX - c->running_max)
        return qr_err_set(err, QR_E_USAGE, "waiting_max %d and running_max %d together do not fit 31 bits", c->waiting_max,
                          c->running_max);
    if (c->watermark_blocks >= pool->n_blocks)
        return qr_err_set(err, QR_E_USAGE, "watermark_blocks is %d, but the cache has only %d blocks", c->watermark_blocks,
                          pool->n_blocks);
    if (c->policy != QR_SCHED_MIXED && c->policy != QR_SCHED_PREFILL_FIRST && c->policy != QR_SCHED_ALTERNATE)
        return qr_err_set(err, QR_E_USAGE, "policy %d is none of mixed, prefill-first, alternate", (int)c->policy);
    return 0;
}

static void alloc_queues(struct qr_sched *s, int32_t running_max)
{
    s->held.seq = qr_alloc((size_t)s->n_slots, sizeof *s->held.seq);
    s->waiting.seq = qr_alloc((size_t)s->n_slots, sizeof *s->waiting.seq);
    s->prefill.seq = qr_alloc((size_t)s->n_slots, sizeof *s->prefill.seq);
    s->decode.seq = qr_alloc((size_t)s->n_slots, sizeof *s->decode.seq);
    s->tables = qr_alloc((size_t)running_max * (size_t)qr_blocks_each(s) * (size_t)s->blocks_max, sizeof *s->tables);
    s->free_tables = qr_alloc((size_t)running_max, sizeof *s->free_tables);
    for (int32_t i = 0; i < running_max; i++)
        s->free_tables[s->n_free_tables++] = running_max - 1 - i;
    s->decode_item = qr_alloc((size_t)running_max, sizeof *s->decode_item);
    qr_fair_init(&s->fair, s->n_slots, QR_FAIR_IDLE_MAX);
    qr_fair_init(&s->ahead, s->n_slots, QR_FAIR_IDLE_MAX);
    s->order = qr_alloc((size_t)s->n_slots, sizeof *s->order);
}

int32_t qr_sched_window_blocks(int32_t window, int32_t step_tokens, int32_t block_tokens)
{
    QR_ASSERT(window >= 1 && step_tokens >= 1);
    QR_ASSERT(block_tokens >= 1);
    const int64_t n_rows = (int64_t)window - 1 + step_tokens; /* they may begin and end inside of a block, and the last full one is kept */
    return (int32_t)((n_rows + block_tokens - 1) / block_tokens) + 2;
}

int qr_sched_new(struct qr_sched **out, const struct qr_sched_config *config, struct qr_kv_pool *pool, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL);
    QR_ASSERT(pool != NULL && err != NULL);
    struct qr_kv_stats stats;
    qr_kv_pool_stats(pool, &stats);
    int rc = check_config(config, &stats, err);
    if (rc < 0)
        return rc;
    struct qr_sched *s = qr_alloc(1, sizeof *s);
    s->config = *config;
    s->mixed_max = s->running_limit = INT32_MAX;
    s->chunk_max = config->chunk_tokens_max;
    s->mixed_reads = INT64_MAX;
    s->pool = pool;
    s->block_tokens = qr_kv_pool_block_tokens(pool);
    int32_t ctx_blocks = config->ctx_max / s->block_tokens + (config->ctx_max % s->block_tokens != 0);
    s->blocks_max = config->window > 0 || ctx_blocks < stats.n_blocks ? ctx_blocks : stats.n_blocks;
    s->hold_max = config->window > 0 ? qr_sched_window_blocks(config->window, config->step_tokens_max, s->block_tokens) : INT32_MAX;
    const int32_t n_kept = (config->window + s->block_tokens - 2) / s->block_tokens;
    s->twins = (struct qr_kv_twins){.n = config->n_twins, .stride = s->blocks_max, .n_kept = n_kept > 1 ? n_kept : 1};
    if (config->n_twins > 0)
        qr_kv_twins_open(pool, &s->twins);
    s->n_slots = config->waiting_max + config->running_max;
    s->slot = qr_alloc_aligned((size_t)s->n_slots * sizeof *s->slot, 64);
    for (int32_t i = 0; i < s->n_slots; i++)
        s->slot[i].next_free = i + 1 < s->n_slots ? i + 1 : -1;
    alloc_queues(s, config->running_max);
    s->hashes = qr_alloc((size_t)s->blocks_max, sizeof *s->hashes);
    const int32_t n_table = qr_blocks_each(s) * s->blocks_max;
    s->count = qr_alloc((size_t)(stats.n_blocks > n_table ? stats.n_blocks : n_table), sizeof *s->count);
    *out = s;
    return 0;
}

void qr_sched_free(struct qr_sched *s)
{
    if (s == NULL)
        return;
    for (int32_t i = 0; i < s->n_slots; i++) { /* the pool outlives the scheduler: nothing may stay owned */
        if (s->slot[i].seq.state != QR_SEQ_FREE)
            qr_seq_release_blocks(s, &s->slot[i]);
    }
    qr_free(s->held.seq);
    qr_free(s->waiting.seq);
    qr_free(s->prefill.seq);
    qr_free(s->decode.seq);
    qr_free(s->tables);
    qr_free(s->free_tables);
    qr_free(s->decode_item);
    qr_fair_release(&s->fair);
    qr_fair_release(&s->ahead);
    qr_free(s->order);
    qr_free(s->hashes);
    qr_free(s->count);
    qr_free_aligned(s->slot);
    qr_free(s);
}

static int check_add(const struct qr_sched *s, const struct qr_seq *q, struct qr_err *err)
{
    struct qr_kv_stats stats;
    qr_kv_pool_stats(s->pool, &stats);
    const int32_t n_blocks = qr_blocks_more(s, q, qr_rows_max(q)), most = stats.n_blocks - stats.n_pinned_max; /* beside pins, whatever they hold */
    if (n_blocks > most)
        return qr_err_set(err, QR_E_NO_ROOM,
                          "%d prompt tokens and up to %d new ones need %d cache blocks of %d tokens; there are %d",
                          q->n_prompt, q->new_max, n_blocks, s->block_tokens, most);
    if (s->free_slot < 0)
        return qr_err_set(err, QR_E_BUSY, "the queue is full: %d sequences wait or run", s->n_slots);
    return 0;
}

int32_t qr_sched_add(struct qr_sched *s, const struct qr_sched_add *add, struct qr_err *err)
{
    QR_ASSERT(s != NULL && add != NULL && err != NULL);
    QR_ASSERT(add->ids != NULL && add->n_prompt >= 1 && add->new_max >= 0);
    QR_ASSERT(add->n_prompt <= s->config.ctx_max && add->new_max <= s->config.ctx_max - add->n_prompt);
    QR_ASSERT(add->group >= -1);
    struct qr_seq q = {
        .id = add->id,
        .state = add->held ? QR_SEQ_HELD : QR_SEQ_WAITING,
        .ids = add->ids,
        .n_ids = add->n_prompt,
        .n_prompt = add->n_prompt,
        .new_max = add->new_max,
        .group = add->group,
        .leader = add->leader,
        .prompt_logits = add->prompt_logits,
        .priority = add->priority,
        .arrived_us = add->now_us,
        .admitted_us = -1,
        .n_found = -1,
        .new_min = add->new_min,
        .salt = add->salt,
        .adapter = add->adapter,
        .about = add->about,
        .hidden = add->hidden,
        .owner = qr_kv_owner(s->pool, add->salt),
        .root = add->root,
    };
    int rc = check_add(s, &q, err);
    if (rc < 0)
        return rc;
    int32_t seq = s->free_slot;
    s->free_slot = s->slot[seq].next_free;
    s->slot[seq] = (struct qr_sched_slot){.seq = q, .serial = ++s->serial_last, .user = qr_fair_join(&s->fair, &add->client), .table = -1,
                                          .next_free = -1};
    qr_queue_insert(s, qr_queue_of(s, q.state), seq);
    return seq;
}

enum { PART_DECODE = 1, PART_PREFILL = 2 };

/* Running sequences in rank order over both queues: blocks are taken from the last ones, so no planned sequence is
 * undone. */
static void plan_running(struct qr_sched *s, struct qr_plan *plan, int parts, struct qr_sched_budget *left)
{
    int32_t i = 0, j = 0;
    while (i < s->prefill.n || j < s->decode.n) {
        bool prefill = j == s->decode.n || (i < s->prefill.n && qr_ranks_before(&s->slot[s->prefill.seq[i]],
                                                                               &s->slot[s->decode.seq[j]]));
        int32_t seq = prefill ? s->prefill.seq[i++] : s->decode.seq[j++];
        if (prefill && (parts & PART_PREFILL)) {
            left->n_behind = s->prefill.n - i;
            qr_prefill_plan(s, seq, plan, left);
        } else if (!prefill && (parts & PART_DECODE)) {
            qr_decode_plan(s, seq, plan, left);
        }
    }
    left->n_behind = 0;
}

static bool plan_parts(struct qr_sched *s, struct qr_plan *plan, int parts, int64_t now_us)
{
    int32_t n_decode = (parts & PART_DECODE) ? qr_decode_count(s) : 0;
    struct qr_sched_budget left = {
        .tokens = s->config.step_tokens_max - n_decode,
        .logits = s->config.logit_rows_max - n_decode,
    };
    left.prompt = n_decode > 0 && left.tokens > s->mixed_max ? s->mixed_max : left.tokens;
    left.reads = n_decode > 0 ? s->mixed_reads : INT64_MAX;
    plan_running(s, plan, parts, &left);
    if ((parts & PART_PREFILL) && plan->n_preempted == 0) /* while blocks are short nothing is admitted */
        qr_prefill_admit(s, plan, &left, now_us);
    if (s->mixed_reads < INT64_MAX)
        left.logits = plan->n_prompt < left.logits ? left.logits - plan->n_prompt : 0;
    qr_decode_plan_guesses(s, plan, &left);
    qr_decode_write(s, plan);
    return qr_plan_items(plan) > 0;
}

void qr_sched_limit_mixed(struct qr_sched *s, int32_t tokens)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(tokens >= 1); /* none at all would starve prompts for as long as anything decodes */
    s->mixed_max = tokens;
}

void qr_sched_limit_reads(struct qr_sched *s, int64_t reads)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(reads >= 1);
    s->mixed_reads = reads;
}

void qr_sched_limit_chunk(struct qr_sched *s, int32_t tokens)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(tokens >= 1);
    s->chunk_max = tokens > s->config.chunk_tokens_max ? tokens : s->config.chunk_tokens_max;
}

void qr_sched_limit_running(struct qr_sched *s, int32_t n)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(n >= 1); /* or nothing would begin again */
    s->running_limit = n;
}

int32_t qr_sched_n_decode(const struct qr_sched *s)
{
    QR_ASSERT(s != NULL);
    return qr_decode_count(s);
}

int64_t qr_sched_prompt_tokens(const struct qr_sched *s)
{
    QR_ASSERT(s != NULL);
    int64_t n = s->waiting_tokens;
    for (int32_t i = 0; i < s->prefill.n; i++)
        n += s->slot[s->prefill.seq[i]].seq.n_ids - s->slot[s->prefill.seq[i]].seq.n_computed;
    return n;
}

void qr_sched_draft(struct qr_sched *s, int32_t seq, const int32_t *ids, int32_t n)
{
    QR_ASSERT(s != NULL && (ids != NULL || n == 0));
    struct qr_seq *q = &qr_slot(s, seq)->seq;
    QR_ASSERT(q->state == QR_SEQ_DECODE && !q->planned);
    QR_ASSERT(n >= 0 && !qr_seq_idle(q));
    const int32_t room = qr_rows_max(q) - q->n_ids;
    q->n_draft = n < room ? n : room > 0 ? room : 0;
    for (int32_t i = 0; i < q->n_draft; i++)
        q->ids[q->n_ids + i] = ids[i];
}

/* Marks what is planned. Guesses that are not hold no longer. */
static void mark_planned(struct qr_sched *s, const struct qr_plan *plan)
{
    s->n_planned = qr_plan_items(plan);
    for (int32_t k = 0; k < s->n_planned; k++)
        s->slot[plan->item[k].seq].seq.planned = true;
    for (int32_t i = 0; i < s->decode.n; i++) {
        struct qr_seq *q = &s->slot[s->decode.seq[i]].seq;
        q->n_draft = q->planned ? q->n_draft : 0;
    }
}

bool qr_sched_plan(struct qr_sched *s, struct qr_plan *out, int64_t now_us)
{
    QR_ASSERT(s != NULL && out != NULL && out->item != NULL);
    QR_ASSERT(s->n_planned == 0);
    out->n_prefill = out->n_checked = out->n_decode = out->n_tokens = out->n_prompt = out->n_logits = out->n_copies = out->n_preempted = 0;
    s->plan_last++;
    int first = PART_DECODE | PART_PREFILL, second = 0;
    if (s->config.policy == QR_SCHED_PREFILL_FIRST || (s->config.policy == QR_SCHED_ALTERNATE && s->prefill_turn)) {
        first = PART_PREFILL;
        second = PART_DECODE;
    } else if (s->config.policy == QR_SCHED_ALTERNATE) {
        first = PART_DECODE;
        second = PART_PREFILL;
    }
    bool any = plan_parts(s, out, first, now_us);
    if (!any && second != 0)
        any = plan_parts(s, out, second, now_us);
    s->prefill_turn = out->n_prefill == 0;
    mark_planned(s, out);
    return any;
}

/* Rows from `first` on count as computed: the blocks they completed can be found by others from now on, and those behind the window are given back. */
static void publish(struct qr_sched *s, struct qr_sched_slot *x, int32_t first)
{
    const struct qr_seq *q = &x->seq;
    const int shift = __builtin_ctz((unsigned)s->block_tokens);
    for (int32_t i = first >> shift; i < q->n_computed >> shift && !qr_is_apart(s, q); i++) {
        const int32_t parent = i > 0 ? q->blocks[i - 1] : -1, *ids = q->ids + (size_t)i * (size_t)s->block_tokens;
        qr_kv_prefix_enter(s->pool, q->blocks[i], parent, q->salt, ids);
        qr_kv_name_enter(s->pool, q->blocks[i], parent, &q->root, ids, q->about);
        qr_kv_twins_enter(s->pool, q->blocks, i);
    }
    qr_seq_leave_behind(s, x);
}

/* Rows from `first` on were computed: those that had been before the sequence was preempted. */
static void count_again(struct qr_sched *s, const struct qr_sched_slot *x, int32_t first)
{
    const int32_t again = (x->seq.n_computed < x->computed_peak ? x->seq.n_computed : x->computed_peak) - first;
    s->n_recomputed += again > 0 ? again : 0;
}

static void note_logits(struct qr_sched_slot *x)
{
    const int32_t n_prompt_rows = x->seq.n_computed < x->seq.n_prompt ? x->seq.n_computed : x->seq.n_prompt;
    x->logits_done = x->logits_done > n_prompt_rows ? x->logits_done : n_prompt_rows;
}

void qr_sched_commit(struct qr_sched *s, const struct qr_plan *plan)
{
    QR_ASSERT(s != NULL && plan != NULL);
    QR_ASSERT(qr_plan_items(plan) == s->n_planned);
    for (int32_t k = 0; k < s->n_planned; k++) {
        const struct qr_plan_item *item = &plan->item[k];
        struct qr_sched_slot *x = qr_slot(s, item->seq);
        struct qr_seq *q = &x->seq;
        QR_ASSERT(q->planned && item->first == q->n_computed);
        q->n_computed += item->n_tokens - q->n_draft;
        q->planned = false;
        if (q->n_preempted > 0)
            count_again(s, x, item->first);
        if (item->first < q->n_prompt)
            note_logits(x);
        publish(s, x, item->first);
        if (q->state == QR_SEQ_PREFILL && q->n_computed == qr_rows_known(q))
            qr_seq_move(s, item->seq, QR_SEQ_DECODE);
    }
    s->n_planned = 0;
}

bool qr_sched_push(struct qr_sched *s, int32_t seq, int32_t token)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    struct qr_seq *q = &x->seq;
    QR_ASSERT(q->state == QR_SEQ_DECODE && !q->planned);
    QR_ASSERT(q->n_computed == q->n_ids);
    QR_ASSERT(q->n_ids < q->n_prompt + q->new_max);
    qr_fair_charge(&s->fair, x->user, QR_FAIR_OUT);
    if (q->n_draft > 0 && q->ids[q->n_ids] == token) {
        q->n_draft--;
        q->n_ids++;
        q->n_computed++;
        publish(s, x, q->n_computed - 1);
        return true;
    }
    q->n_draft = 0;
    q->ids[q->n_ids++] = token;
    return false;
}

void qr_sched_force(struct qr_sched *s, int32_t seq, int32_t token)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    struct qr_seq *q = &x->seq;
    QR_ASSERT(q->state == QR_SEQ_DECODE && !q->planned);
    QR_ASSERT(q->n_computed < q->n_ids && q->n_ids < q->n_prompt + q->new_max);
    q->n_draft = 0;
    q->ids[q->n_ids++] = token;
    qr_fair_charge(&s->fair, x->user, QR_FAIR_OUT);
}

void qr_sched_finish(struct qr_sched *s, int32_t seq)
{
    struct qr_sched_slot *x = qr_slot(s, seq);
    QR_ASSERT(!x->seq.planned);
    qr_queue_remove(s, qr_queue_of(s, x->seq.state), seq);
    qr_seq_release_blocks(s, x);
    qr_fair_leave(&s->fair, x->user);
    x->seq = (struct qr_seq){.state = QR_SEQ_FREE};
    x->next_free = s->free_slot;
    s->free_slot = seq;
}

const struct qr_seq *qr_sched_seq(const struct qr_sched *s, int32_t seq)
{
    QR_ASSERT(s != NULL);
    return &qr_slot(s, seq)->seq;
}

void qr_sched_stats(const struct qr_sched *s, struct qr_sched_stats *out)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(out != NULL);
    *out = (struct qr_sched_stats){
        .n_held = s->held.n,
        .n_waiting = s->waiting.n,
        .n_prefill = s->prefill.n,
        .n_decode = s->decode.n,
        .n_preempted = s->n_preempted,
        .n_recomputed = s->n_recomputed,
        .oldest_arrival_us = -1,
    };
    for (int32_t i = 0; i < s->held.n; i++) {
        const struct qr_seq *q = &s->slot[s->held.seq[i]].seq;
        out->held_tokens += q->n_prompt - (q->n_found > 0 ? q->n_found : 0);
    }
    for (int32_t i = 0; i < s->waiting.n; i++) {
        const struct qr_seq *q = &s->slot[s->waiting.seq[i]].seq;
        out->waiting_tokens += q->n_prompt;
        if (out->oldest_arrival_us < 0 || q->arrived_us < out->oldest_arrival_us)
            out->oldest_arrival_us = q->arrived_us;
    }
}

const int32_t *qr_sched_list(const struct qr_sched *s, enum qr_seq_state state, int32_t *n)
{
    QR_ASSERT(s != NULL && n != NULL);
    QR_ASSERT(state != QR_SEQ_FREE);
    const struct qr_sched_queue *const of[] = {[QR_SEQ_HELD] = &s->held, [QR_SEQ_WAITING] = &s->waiting, [QR_SEQ_PREFILL] = &s->prefill,
                                               [QR_SEQ_DECODE] = &s->decode};
    const struct qr_sched_queue *q = of[state];
    *n = q->n;
    return q->seq;
}
