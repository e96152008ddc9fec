/* sched.h - which sequences run in the next step, and with how many tokens. Pure: (state, call, now) -> state; no
 * clock, no I/O, no threads, no allocation after qr_sched_new. The engine, the simulator and the property tests drive
 * this very code.
 *
 * Prefill and decode are separate queues and separate modules (prefill.c, decode.c); a plan carries both parts apart, decode
 * rows are planned first, prompt chunks fill the rest of the token budget. Guesses of what a sequence says next come last: they take
 * rows and blocks that nothing else wants, and are accepted or dropped one by one as tokens are pushed. Admission looks at a watermark of free blocks and
 * never reserves max_tokens; when blocks run out the sequence that was admitted last gives its blocks back and
 * is computed again later. After preempt_max times it is admitted only with its whole need reserved and never chosen again, so
 * it ends. The sequence that was admitted first therefore always advances, or waits for such protected ones only.
 *
 * Which client is admitted next is fair.h's matter. Inside one key a smaller priority is first, and the earlier arrival within it: among a user's sequences
 * that wait, and among all of the key that run, which share out the key's places in the order of admission. Where there is one client, as without keys,
 * all is by priority and arrival.
 */
#ifndef QR_SCHEDULER_SCHED_H
#define QR_SCHEDULER_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "kvcache/kv_name.h"
#include "kvcache/kv_twin.h"
#include "scheduler/fair.h"

enum qr_sched_policy {
    QR_SCHED_MIXED,         /* decode rows first, prompt chunks in the rest of the budget, one forward */
    QR_SCHED_PREFILL_FIRST, /* while prompts wait and blocks allow, a step is prompt chunks only */
    QR_SCHED_ALTERNATE,     /* a step is decode-only or prefill-only, in turn while both have work */
};

struct qr_sched_config {
    int32_t running_max;       /* sequences in prefill or decode at once */
    int32_t waiting_max;       /* sequences in the queue */
    int32_t step_tokens_max;   /* budget of one step, >= running_max */
    int32_t chunk_tokens_max;  /* the largest prompt chunk of one sequence in a step, but for qr_sched_limit_chunk */
    int32_t logit_rows_max;    /* rows of logits one step may ask for, >= running_max (prompt log-probabilities are cut to it) */
    int32_t ctx_max;           /* tokens of one sequence, prompt and output */
    int32_t preempt_max;       /* 4 */
    int32_t watermark_blocks;  /* kept available when a new sequence is admitted */
    int32_t window;            /* the row at position p reads no row before p - window + 1: blocks before it are given back. 0: rows read all */
    int32_t n_twins;           /* twins of each block (kvcache/kv_twin.h), which have the window then: rows read all the blocks themselves have. 0: none */
    enum qr_sched_policy policy;
};

enum qr_seq_state { QR_SEQ_FREE, QR_SEQ_HELD, QR_SEQ_WAITING, QR_SEQ_PREFILL, QR_SEQ_DECODE };

/* The scheduler's view of one sequence: a slab entry referred to by index. No sampling, no text: the engine keeps those beside it. What steps read of all
 * that run is one line of memory, the first. */
struct qr_seq {
    enum qr_seq_state state;
    int32_t n_ids, n_prompt;   /* n_ids - n_prompt tokens were generated */
    int32_t n_computed;        /* rows already in the cache, <= n_ids */
    int32_t new_max;
    int32_t n_blocks;
    int32_t *ids;              /* borrowed from the request, room for n_prompt + new_max */
    int32_t *blocks;           /* owned by the scheduler [1 + n_twins][blocks_max], as qr_kv_twins has them; only while running */
    uint64_t tenure;           /* of its table of blocks, never given twice: while it is the same, blocks that a plan saw stay and others follow. 0: none */
    int32_t adapter;           /* for engine/lower.c; nothing here depends on it */
    int32_t n_draft;           /* guesses behind the ids: ids[n_ids .. n_ids + n_draft) */
    bool hidden;               /* rows that want logits want hidden states instead; as of adapter */
    bool leader;               /* of its group */
    bool prompt_logits;        /* every prompt position wants logits, once: nothing is shared, chunks are cut to logit_rows_max */
    bool planned;              /* in a plan that is not committed */
    int32_t n_preempted;
    uint64_t id;               /* from here on beyond the line */
    int32_t n_cached;          /* rows found in the prefix cache at the first admission */
    int32_t n_found;           /* rows that qr_sched_find saw there; -1: it was not asked */
    int32_t new_min;           /* tokens that it draws in any case; for estimates */
    int32_t n_behind;          /* of its blocks, or of their twins where there are any, the first, which are behind the window: given back, their numbers are
                                * of blocks that were full */
    int32_t priority;          /* smaller runs first, of its key */
    int32_t group;             /* sequences of one request (n > 1) share it; one is its leader */
    int64_t arrived_us, admitted_us; /* admitted_us: first admission, or -1 */
    struct qr_hash128 salt;
    uint32_t owner;            /* qr_kv_owner of it */
    int32_t about;             /* for the notes of its blocks (kvcache/kv_name.h) */
    struct qr_kv_name root;    /* of the names of its blocks */
};
_Static_assert(offsetof(struct qr_seq, id) == 64, "what steps read is a line");

struct qr_sched_add {
    uint64_t id;
    int32_t *ids;
    int32_t n_prompt, new_max; /* new_max >= 0; n_prompt >= 1; n_prompt + new_max <= ctx_max */
    int32_t priority;
    int32_t group;             /* -1: on its own. Siblings (equal prompt, salt) wait until the leader's prompt is computed, then share
                                * its blocks; when the leader is gone before that, the next of them takes its part */
    bool leader;               /* added first */
    bool prompt_logits;
    int64_t now_us;
    struct qr_client client;
    struct qr_hash128 salt;
    int32_t adapter;           /* for engine/lower.c; nothing here depends on it */
    bool hidden;               /* rows that want logits want hidden states instead; the same holds of it */
    int32_t new_min;           /* <= new_max: tokens that it draws in any case. For estimates (engine/backlog.h) */
    struct qr_kv_name root;    /* of the names of its blocks, where the pool has names (kvcache/kv_name.h) */
    int32_t about;             /* for the notes of its blocks */
    bool held;                 /* it does not wait for its turn before qr_sched_let_go */
};

struct qr_plan_item {
    int32_t seq;
    int32_t first, n_tokens;   /* rows ids[first .. first + n_tokens) of the sequence enter the cache in this step */
    int32_t n_logits;          /* the last n_logits of those rows want logits: 0 inside a prompt, 1 at its end and in decode, one more for
                                * each guess, more for prompt_logits (each prompt row once, also when it is computed again) */
};

struct qr_plan_copy {
    int32_t src, dst;          /* copy-on-write: the engine copies these blocks before the forward, in order */
};

struct qr_plan {
    int32_t n_prefill, n_checked, n_decode; /* items, in this order: of prompts; of sequences that decode with guesses or several known ids; of those with
                                             * one row, n_tokens 1 and n_logits 1 */
    int32_t n_tokens, n_prompt, n_logits; /* rows, those of prompts, those that want logits */
    int32_t n_copies;
    struct qr_plan_item *item;   /* owned [running_max] */
    struct qr_plan_copy *copy;   /* owned [running_max] */
    int32_t n_preempted;         /* sequences that lost their blocks while this was planned */
};
static inline int32_t qr_plan_items(const struct qr_plan *p)
{
    return p->n_prefill + p->n_checked + p->n_decode;
}
void qr_plan_init(struct qr_plan *p, const struct qr_sched_config *config);
void qr_plan_release(struct qr_plan *p);

struct qr_sched; /* opaque */

/* Blocks that one sequence holds at most in steps of step_tokens, however long it is, where rows read `window` rows. */
int32_t qr_sched_window_blocks(int32_t window, int32_t step_tokens, int32_t block_tokens);

/* `pool` is borrowed. Errors: QR_E_USAGE naming the setting that contradicts another. */
int qr_sched_new(struct qr_sched **out, const struct qr_sched_config *config, struct qr_kv_pool *pool, struct qr_err *err);
void qr_sched_free(struct qr_sched *s);

/* A new sequence enters the queue. Returns its index, or QR_E_BUSY (queue full: waiting and running slots are one slab of
 * waiting_max + running_max), or QR_E_NO_ROOM (it could not run even alone: message gives tokens, blocks needed, blocks there are). */
int32_t qr_sched_add(struct qr_sched *s, const struct qr_sched_add *add, struct qr_err *err);

/* Prompt tokens that a step may carry beside decode rows from now on; INT32_MAX (the start): as many as fit. Steps without decode rows are not
 * limited, so PREFILL_FIRST and ALTERNATE do not see it. */
void qr_sched_limit_mixed(struct qr_sched *s, int32_t tokens);

/* Rows of the cache that rows of prompts may read in a step beside decode rows, but for the last such row; INT64_MAX (the start): as many as they do.
 * With such a limit these rows take the place of guesses, so that the step is about as long as one without them. */
void qr_sched_limit_reads(struct qr_sched *s, int64_t reads);

/* Rows of one prompt that a step may carry from now on, at least chunk_tokens_max (the start): more where the next prompt would not end in this step anyway.
 * So prompts are computed one after another, but for short ones that come by the way. */
void qr_sched_limit_chunk(struct qr_sched *s, int32_t tokens);

/* Sequences that may run from now on: none is begun while so many do. INT32_MAX (the start): running_max. */
void qr_sched_limit_running(struct qr_sched *s, int32_t n);

/* Looks up how many rows of a sequence that waits, or is held, the prefix cache has now: q->n_found. It may have fewer, or more, when the sequence begins.
 * What was found is the last to be evicted. */
void qr_sched_find(struct qr_sched *s, int32_t seq);

int32_t qr_sched_n_decode(const struct qr_sched *s); /* sequences that have a row to decode in the next step */

int64_t qr_sched_prompt_tokens(const struct qr_sched *s); /* of prompts, waiting or begun, that are still to be computed */

/* What a decoding sequence may say next, ids[0] first: as many as can be computed are kept, in place of earlier ones, for the next plan only, which may
 * have fewer. It has a row to compute, and is in no plan. */
void qr_sched_draft(struct qr_sched *s, int32_t seq, const int32_t *ids, int32_t n);

/* Decides the next step. False (and an empty plan) when nothing can run. Blocks for every planned row are allocated. */
bool qr_sched_plan(struct qr_sched *s, struct qr_plan *out, int64_t now_us);

/* The planned rows are in the cache now: full blocks enter the prefix index, prompts that are complete move to decode. Rows of guesses do not count yet. */
void qr_sched_commit(struct qr_sched *s, const struct qr_plan *plan);

/* A sampled token becomes the sequence's next id. After qr_sched_commit and before the next plan, once for each item that computed the sequence's last known
 * row. True: it is the next guess, whose row is in the cache and counts from now on, so that its draw is to be pushed, too. False: it is the next row to
 * compute, and guesses are dropped. The new_max-th token is never computed: then the sequence has to be finished. */
bool qr_sched_push(struct qr_sched *s, int32_t seq, int32_t token);

/* A token that is known without a draw, behind one that was pushed, whose row is not computed either: the next item has both, and one row of logits. */
void qr_sched_force(struct qr_sched *s, int32_t seq, int32_t token);

/* The sequence ends, for whatever reason, in whatever state: blocks are released at once, the index becomes free. Never called
 * for a sequence in a plan that is not committed yet. */
void qr_sched_finish(struct qr_sched *s, int32_t seq);

const struct qr_seq *qr_sched_seq(const struct qr_sched *s, int32_t seq); /* asserts that it is in use */

struct qr_sched_stats {
    int32_t n_held, n_waiting, n_prefill, n_decode;
    int64_t waiting_tokens;    /* prompt tokens in the queue */
    int64_t held_tokens;       /* of those that are held: prompt tokens that the cache was not found to have */
    int64_t n_preempted;       /* ever */
    int64_t n_recomputed;      /* tokens computed again because of preemption, ever */
    int64_t oldest_arrival_us; /* of those waiting, or -1 */
};
void qr_sched_stats(const struct qr_sched *s, struct qr_sched_stats *out);

/* Indexes of the sequences in this state (none in FREE), those that run in order of rank: [n], until the next call. */
const int32_t *qr_sched_list(const struct qr_sched *s, enum qr_seq_state state, int32_t *n);

/* Those that wait, as they would be begun if nothing came and nothing else were served: [n], until the next call. Changes nothing. */
const int32_t *qr_sched_order(struct qr_sched *s, int32_t *n);

/* ---- blocks that come from elsewhere, for a sequence that is held (land.c) ---- */

/* It waits for its turn from now on, in its place by arrival. Siblings are let go together, the leader first. */
void qr_sched_let_go(struct qr_sched *s, int32_t seq);

/* Blocks that could land now and would be there when those that run have what they are known to need, and the watermark is kept; <= 0: none. */
int32_t qr_sched_spare(const struct qr_sched *s);

enum { QR_PLACE_HAS = -1, QR_PLACE_NONE = -2 };

/* A block, the caller's alone, for the content of block `index` of the sequence's ids, index < (n_prompt - 1) / block_tokens, once those before it are cached.
 * QR_PLACE_HAS: this one is cached, too, go on with the next. QR_PLACE_NONE: an earlier one is not, or not any more, or there is no block to spare: the rest is
 * not to be had here. The caller works off the pool's moves, copies the content in and calls qr_sched_land, or gives it back with qr_kv_unref; before it calls
 * anything else here. */
int32_t qr_sched_place(struct qr_sched *s, int32_t seq, int32_t index);

/* The content is there: the block is cached from now on, as an entry like any other, without an owner. q->n_found counts it. */
void qr_sched_land(struct qr_sched *s, int32_t seq, int32_t block);

/* Checks every invariant of scheduler and pool, O(everything): NULL, or a sentence that says what is broken. */
const char *qr_sched_check(const struct qr_sched *s);

#endif
