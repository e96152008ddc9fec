/* sched_internal.h - the scheduler's inside, shared by the files of this folder.
 *
 * Order. A sequence that was admitted has a rank, its place in the order of first admissions; those of a key that run share out their
 * ranks by (priority, serial of arrival). Running queues are sorted by rank, those of held and waiting ones by (user, priority, serial). Blocks are
 * handed out in rank order over both running queues, and a sequence may only take blocks from sequences that rank behind
 * it; so what is planned stays planned, and the first in rank waits for protected sequences only.
 *
 * Protection. A sequence that was preempted preempt_max times is admitted again only with its whole need reserved
 * (`reserve`, summed in `reserved`): it never fails to get a block, so it needs no victims, is never one, and ends. Therefore
 * a step with anything running plans something: the first in rank gets a block, or a protected one does, or the first in
 * rank is alone and fits by the check made when it was added.
 *
 * Windows. Where rows read a window of rows only, a sequence gives back the blocks wholly before it, and holds hold_max blocks
 * at most. A block that others hold as well frees nothing when it is given back, so a protected sequence with a window shares
 * none: it takes no prefix from the cache or a sibling, and enters no block. Then what it gives back it may reserve again.
 * Where blocks have twins, a block is taken with its twins or not at all, and twins alone are given back. All counts are of the pool's blocks.
 */
#ifndef QR_SCHEDULER_SCHED_INTERNAL_H
#define QR_SCHEDULER_SCHED_INTERNAL_H

#include "base/assert.h"
#include "kvcache/kv_land.h"
#include "scheduler/sched.h"

struct qr_sched_slot {
    _Alignas(64) uint64_t serial; /* order of arrival */
    uint64_t rank;         /* 0: not admitted yet. No other's */
    int32_t user;          /* its node in `fair` */
    int32_t table;         /* index of its block table, -1 while it has none */
    int32_t reserve;       /* blocks promised to it and not taken yet; only for protected sequences */
    int32_t computed_peak; /* rows computed at some time, before it was preempted */
    int32_t logits_done;   /* prompt rows whose logits were delivered (prompt_logits) */
    int32_t next_free;
    uint64_t stuck;        /* the plan that found it waiting for a sibling's prompt */
    struct qr_kv_tail tail; /* the last block of n_found, as it was found */
    _Alignas(64) struct qr_seq seq; /* what everybody sees */
};

struct qr_sched_queue {
    int32_t *seq; /* owned, sorted */
    int32_t n;
};

struct qr_sched {
    struct qr_sched_config config;
    struct qr_kv_pool *pool; /* borrowed */
    int32_t block_tokens, blocks_max, n_slots;
    int32_t hold_max;     /* of what has the window, blocks or each block's k-th twins: so many a sequence holds at most; INT32_MAX without a window */
    struct qr_kv_twins twins; /* as the pool has them; n_kept without twins, too */
    struct qr_sched_slot *slot; /* owned [n_slots] */
    int32_t free_slot;
    struct qr_sched_queue held, waiting, prefill, decode;
    struct qr_fair fair, ahead; /* ahead: order.c's */
    int32_t *order;       /* owned [n_slots]: order.c's */
    int64_t waiting_tokens; /* ids of those that wait, which stay as many until they run */
    int32_t *tables;      /* owned [running_max][1 + n_twins][blocks_max] */
    int32_t *free_tables; /* owned [running_max], a stack */
    int32_t n_free_tables;
    int32_t reserved;     /* sum of `reserve` */
    uint64_t serial_last, tenure_last, rank_last, plan_last;
    int32_t mixed_max;    /* prompt tokens beside decode rows, >= 1 */
    int64_t mixed_reads;  /* rows of the cache that these may read, >= 1 */
    int32_t chunk_max;    /* rows of one prompt in a step, >= chunk_tokens_max: prefill.c's chunk_of */
    int32_t running_limit; /* sequences that run while others begin, >= 1 */
    bool prefill_turn;    /* QR_SCHED_ALTERNATE */
    int32_t n_planned;    /* sequences in the plan that is not committed */
    int64_t n_preempted, n_recomputed;
    struct qr_plan_item *decode_item; /* owned [running_max]: of sequences that decode, until the prefill items are complete */
    struct qr_hash128 *hashes;        /* owned [blocks_max]: of the sequence `hashed_serial`, which waits for admission */
    int32_t n_hashed;
    uint64_t hashed_serial;
    int32_t *count;                   /* owned [n_blocks, and a table's]: qr_sched_check's, and where qr_sched_find finds */
};

/* What is left of a step while it is planned. */
struct qr_sched_budget {
    int32_t tokens;   /* beside one of each sequence that decodes */
    int32_t prompt;   /* of these, for prompt chunks, */
    int64_t reads;    /* which may read so many rows of the cache */
    int32_t logits;
    int32_t n_behind; /* running prompts that come later in this plan: each is left one row of logits */
};

static inline struct qr_sched_slot *qr_slot(const struct qr_sched *s, int32_t seq)
{
    QR_ASSERT(seq >= 0 && seq < s->n_slots);
    QR_ASSERT(s->slot[seq].seq.state != QR_SEQ_FREE);
    return &s->slot[seq];
}

static inline bool qr_ranks_before(const struct qr_sched_slot *a, const struct qr_sched_slot *b)
{
    return a->rank < b->rank;
}

/* Is a of one key before b of it? */
static inline bool qr_goes_before(const struct qr_sched_slot *a, const struct qr_sched_slot *b)
{
    return a->seq.priority != b->seq.priority ? a->seq.priority < b->seq.priority : a->serial < b->serial;
}

/* The running queues are sorted by rank, the others as their sequences wait. */
static inline bool qr_is_ranked(const struct qr_sched *s, const struct qr_sched_queue *q)
{
    return q == &s->prefill || q == &s->decode;
}

static inline bool qr_waits_before(const struct qr_sched_slot *a, const struct qr_sched_slot *b)
{
    return a->user != b->user ? a->user < b->user : qr_goes_before(a, b);
}

static inline bool qr_same_key(const struct qr_sched *s, const struct qr_sched_slot *a, const struct qr_sched_slot *b)
{
    return s->fair.node[a->user].parent == s->fair.node[b->user].parent;
}

/* Rows the sequence can ever need: the last token of all is sampled but never computed. */
static inline int32_t qr_rows_max(const struct qr_seq *q)
{
    return q->n_prompt + (q->new_max > 1 ? q->new_max - 1 : 0);
}

/* Rows known to be needed now. */
static inline int32_t qr_rows_known(const struct qr_seq *q)
{
    return q->n_ids < qr_rows_max(q) ? q->n_ids : qr_rows_max(q);
}

/* Nothing to compute: it waits for qr_sched_push or qr_sched_finish. */
static inline bool qr_seq_idle(const struct qr_seq *q)
{
    return q->n_computed >= qr_rows_known(q);
}

static inline int32_t qr_blocks_for(const struct qr_sched *s, int32_t n_rows)
{
    return (n_rows + s->block_tokens - 1) / s->block_tokens;
}

/* Blocks of a table that are taken together: one with its twins. */
static inline int32_t qr_blocks_each(const struct qr_sched *s)
{
    return 1 + s->twins.n;
}

static inline int32_t *qr_block_at(const struct qr_sched *s, const struct qr_seq *q, int32_t part, int32_t i)
{
    return &q->blocks[part * s->blocks_max + i];
}

/* The first of a part of its table, 0 the blocks and k + 1 their twins k, that the sequence holds. */
static inline int32_t qr_part_first(const struct qr_sched *s, const struct qr_seq *q, int32_t part)
{
    return part > 0 || s->twins.n == 0 ? q->n_behind : 0;
}

/* Blocks that a sequence will hold at once at most until it has n_rows rows, beyond those that it holds. */
static inline int32_t qr_blocks_more(const struct qr_sched *s, const struct qr_seq *q, int32_t n_rows)
{
    const int32_t n = qr_blocks_for(s, n_rows) - q->n_blocks, fit = s->hold_max - (q->n_blocks - q->n_behind), windowed = n < fit ? n : fit;
    return s->twins.n > 0 ? n + s->twins.n * windowed : windowed;
}

/* Blocks that no row reads from the beginning of pos' block on, but for the last full one: the next to be entered in the prefix index names it. So what a
 * sequence holds is what a hit of its full blocks needs. */
static inline int32_t qr_blocks_behind(const struct qr_sched *s, int32_t pos)
{
    const int32_t n = pos / s->block_tokens - s->twins.n_kept;
    return s->config.window > 0 && n > 0 ? n : 0;
}

static inline int32_t qr_n_running(const struct qr_sched *s)
{
    return s->prefill.n + s->decode.n;
}

static inline bool qr_protected(const struct qr_sched *s, const struct qr_seq *q)
{
    return q->n_preempted >= s->config.preempt_max;
}

/* A sequence whose blocks are its own alone. */
static inline bool qr_is_apart(const struct qr_sched *s, const struct qr_seq *q)
{
    return s->config.window > 0 && qr_protected(s, q);
}

/* seq.c */
void qr_queue_insert(struct qr_sched *s, struct qr_sched_queue *q, int32_t seq);
void qr_queue_remove(struct qr_sched *s, struct qr_sched_queue *q, int32_t seq);
struct qr_sched_queue *qr_queue_of(struct qr_sched *s, enum qr_seq_state state);
void qr_seq_move(struct qr_sched *s, int32_t seq, enum qr_seq_state to); /* to another queue */
void qr_seq_rank(struct qr_sched *s, struct qr_sched_slot *x); /* before x leaves the queue */
int32_t qr_waiting_of(const struct qr_sched *s, int32_t user); /* the place of its first in the queue */
void qr_seq_take_table(struct qr_sched *s, struct qr_sched_slot *x);
void qr_seq_release_blocks(struct qr_sched *s, struct qr_sched_slot *x); /* blocks last to first, reservation, table */
void qr_seq_leave_behind(struct qr_sched *s, struct qr_sched_slot *x);   /* blocks behind the window of its next row, last to first */
void qr_seq_drop_blocks(struct qr_sched *s, struct qr_seq *q);          /* those that it holds, last to first */
bool qr_seq_take_block(struct qr_sched *s, struct qr_sched_slot *x);     /* with its twins; false: too few that are not reserved for another */

/* Blocks for rows [0, n_rows). Takes what there is; preempts only while not even one new row has a place. Returns the rows that
 * have one. */
int32_t qr_seq_grow(struct qr_sched *s, int32_t seq, int32_t n_rows, struct qr_plan *plan);

/* decode.c: rows of known ids, then guesses, then all that in the plan's order. */
int32_t qr_decode_count(const struct qr_sched *s); /* sequences that have a row to compute */
void qr_decode_plan(struct qr_sched *s, int32_t seq, struct qr_plan *plan, struct qr_sched_budget *left);
void qr_decode_plan_guesses(struct qr_sched *s, struct qr_plan *plan, struct qr_sched_budget *left);
void qr_decode_write(struct qr_sched *s, struct qr_plan *plan);

/* prefill.c: chunks of prompts, and what leaves the queue. */
void qr_prefill_plan(struct qr_sched *s, int32_t seq, struct qr_plan *plan, struct qr_sched_budget *left);
void qr_prefill_admit(struct qr_sched *s, struct qr_plan *plan, struct qr_sched_budget *left, int64_t now_us);
int32_t qr_blocks_promised(const struct qr_sched *s); /* that running prompts will still take for what is known of them */

#endif
