/* sched_world.h - a model-free oracle around the real scheduler and pool, for the property test and the fuzz target.
 *
 * The cache is simulated: for every row it keeps which token was written, at which position, and a digest of everything the
 * row's sequence saw before it, read back from the cache itself as a model would. Before a row is computed, every earlier
 * position, or those in the row's window, is read through the block table and compared with the sequence's own history; so a block that is shared
 * wrongly, copied late, evicted too early or written by two shows up as a wrong history. All choices come from `draw`.
 */
#ifndef QR_TESTS_SCHED_WORLD_H
#define QR_TESTS_SCHED_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"
#include "scheduler/sched_internal.h"

#define WORLD_CTX_MAX 72
#define WORLD_SEQS_MAX 64
#define WORLD_SLOTS_MAX 1280
#define WORLD_VOCAB 3 /* few tokens: many prefixes are equal by chance */

struct world_row {
    int32_t token, pos, part;
    uint64_t digest;
};

struct world_seq {
    bool alive, zombie, held; /* zombie: ended, but the driver has not called finish yet */
    int32_t group;
    uint64_t id;
    int32_t *ids;                       /* borrowed: world.tokens[row] */
    int32_t row;
    uint64_t digest[WORLD_CTX_MAX + 1]; /* digest[i]: of ids[0..i] and the salt */
    uint64_t salt;
    int32_t n_ids, n_prompt, new_max, computed_peak;
    bool prompt_logits;
    int32_t n_logits[WORLD_CTX_MAX + 1]; /* how often row i gave logits */
};

/* What a pin of the pool holds: a sequence's first blocks, as it ended. */
struct world_pin {
    int32_t n_blocks; /* 0: none */
    bool cleared;     /* the index was, since: nothing finds it */
    uint64_t salt;
    int32_t ids[WORLD_CTX_MAX + 1];
};

struct world {
    uint32_t (*draw)(void *source, uint32_t n); /* uniform in [0, n) */
    void *source;
    struct qr_sched_config config;
    int32_t n_blocks, n_host, block_tokens;
    bool prefix_cache, zombies_ok, guesses;
    int32_t mixed_max, reads_max, chunk_max; /* beside decode rows prompt tokens, and rows that they read; tokens of one prompt in a step */
    int32_t n_keys, n_users;
    struct qr_kv_pool *pool;
    struct qr_sched *sched;
    struct qr_plan plan;
    struct world_row kv[WORLD_SLOTS_MAX]; /* the second tier's blocks behind the others */
    struct world_seq seq[WORLD_SEQS_MAX]; /* by the scheduler's index */
    int32_t tokens[WORLD_SEQS_MAX][WORLD_CTX_MAX + 1];
    bool row_used[WORLD_SEQS_MAX];
    struct world_pin pin[QR_KV_PINS_MAX];
    int32_t n_alive, n_zombies, n_held, next_group; /* alive: held ones, too */
    int64_t now_us, n_preempted_gone, n_recomputed;
    uint64_t next_id;
    struct {
        int64_t ops, steps, rows, copies, preemptions, finished, cancelled, refused, hit_tokens, forced_collisions, out, in, behind, pinned;
        int64_t let_go, landed, no_place, names;
        int64_t right, wrong, forced; /* guesses that were accepted, and that were dropped after they were computed; ids known without a draw */
    } total;
    char broken[160]; /* empty while all is well */
};

static inline uint32_t world_below(struct world *w, uint32_t n)
{
    return n <= 1 ? 0 : w->draw(w->source, n);
}

static inline void world_fail(struct world *w, const char *what)
{
    if (w->broken[0] == '\0')
        snprintf(w->broken, sizeof w->broken, "%s", what);
}

static inline uint64_t world_mix(uint64_t digest, int32_t token)
{
    uint64_t x = (digest ^ (uint64_t)(uint32_t)token) * 0x9e3779b97f4a7c15u;
    return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + 1;
}

static inline void world_check(struct world *w)
{
    const char *broken = qr_sched_check(w->sched);
    if (broken != NULL)
        world_fail(w, broken);
    struct qr_sched_stats stats;
    qr_sched_stats(w->sched, &stats);
    if (stats.n_recomputed != w->n_recomputed)
        world_fail(w, "the rows computed again do not add up");
    if (stats.n_held != w->n_held || stats.n_held + stats.n_waiting + stats.n_prefill + stats.n_decode != w->n_alive + w->n_zombies)
        world_fail(w, "the scheduler holds other sequences than were added");
}

/* ---- beginning and end ---- */

static inline void world_draw_config(struct world *w)
{
    static const int32_t block_tokens[] = {1, 2, 4, 8, 16};
    struct qr_sched_config *c = &w->config;
    w->block_tokens = block_tokens[world_below(w, 5)];
    const int32_t window = world_below(w, 2) ? 0 : 1 + (int32_t)world_below(w, world_below(w, 2) ? 6 : WORLD_CTX_MAX);
    const int32_t n_twins = window > 0 && world_below(w, 2) ? 1 + (int32_t)world_below(w, 2) : 0, few = window > 0 && world_below(w, 2) ? 8 : 24;
    w->n_blocks = (1 + n_twins) * (2 + (int32_t)world_below(w, few == 24 && w->block_tokens == 1 ? 100 : (uint32_t)few)); /* few: preemptions */
    w->prefix_cache = world_below(w, 4) != 0;
    w->zombies_ok = world_below(w, 4) == 0;
    w->guesses = world_below(w, 4) != 0;
    w->n_host = w->prefix_cache && n_twins == 0 && world_below(w, 2) ? 1 + (int32_t)world_below(w, 2 * (uint32_t)w->n_blocks) : 0;
    *c = (struct qr_sched_config){
        .running_max = 1 + (int32_t)world_below(w, 8),
        .waiting_max = 1 + (int32_t)world_below(w, 16),
        .chunk_tokens_max = 1 + (int32_t)world_below(w, world_below(w, 2) ? 64 : 6),
        .ctx_max = 2 + (int32_t)world_below(w, WORLD_CTX_MAX - 1),
        .preempt_max = (int32_t)world_below(w, 5),
        .watermark_blocks = (int32_t)world_below(w, (uint32_t)(w->n_blocks < 5 ? w->n_blocks : 5)),
        .policy = (enum qr_sched_policy)world_below(w, 3),
        .window = window,
        .n_twins = n_twins,
    };
    c->step_tokens_max = c->running_max + (int32_t)world_below(w, world_below(w, 2) ? 64 : 4);
    c->logit_rows_max = c->running_max + (int32_t)world_below(w, 8);
}

static inline void world_init(struct world *w, uint32_t (*draw)(void *, uint32_t), void *source)
{
    memset(w, 0, sizeof *w);
    w->draw = draw;
    w->source = source;
    world_draw_config(w);
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, world_below(w, 1000));
    w->pool = qr_kv_pool_new_tiers(w->n_blocks, w->n_host, w->block_tokens, w->prefix_cache, &secret);
    if (world_below(w, 4) == 0) { /* 0 to 3 bits of hash: prefixes collide all the time */
        w->pool->hash_keep = world_below(w, 2) ? 0 : world_below(w, 8);
        w->total.forced_collisions = 1;
    }
    qr_kv_pins_open(w->pool, world_below(w, 2) ? (int32_t)world_below(w, (uint32_t)w->n_blocks) : 0);
    if (w->prefix_cache && w->config.n_twins == 0 && world_below(w, 2))
        qr_kv_names_open(w->pool, 16);
    struct qr_err err;
    int rc = qr_sched_new(&w->sched, &w->config, w->pool, &err);
    QR_ASSERT(rc == 0);
    qr_plan_init(&w->plan, &w->config);
    w->mixed_max = w->reads_max = INT32_MAX, w->chunk_max = w->config.chunk_tokens_max;
    w->n_keys = 1 + (int32_t)world_below(w, 4);
    w->n_users = 1 + (int32_t)world_below(w, 3);
}

static inline void world_release(struct world *w)
{
    struct qr_kv_stats stats;
    qr_kv_pool_stats(w->pool, &stats);
    w->total.hit_tokens += stats.hit_tokens;
    w->total.out += stats.n_out;
    w->total.in += stats.n_in;
    qr_plan_release(&w->plan);
    qr_sched_free(w->sched);
    qr_kv_pool_stats(w->pool, &stats);
    if (stats.n_owned != stats.n_pinned)
        world_fail(w, "a block is still owned after the scheduler was freed");
    qr_kv_pool_free(w->pool);
}

/* ---- operations ---- */

static inline void world_draw_prompt(struct world *w, struct world_seq *x, int32_t *ids)
{
    int32_t n_max = w->config.ctx_max;
    x->n_prompt = 1 + (int32_t)world_below(w, (uint32_t)n_max);
    x->new_max = (int32_t)world_below(w, (uint32_t)(n_max - x->n_prompt + 1));
    x->salt = world_below(w, 4) == 0;
    x->prompt_logits = world_below(w, 8) == 0;
    /* One token throughout, with a change at one place: long equal prefixes. */
    int32_t token = (int32_t)world_below(w, 2), change_at = (int32_t)world_below(w, (uint32_t)x->n_prompt * 2);
    for (int32_t i = 0; i < x->n_prompt; i++)
        ids[i] = i == change_at ? WORLD_VOCAB - 1 : token;
}

/* The token row of a sequence that is not there yet; the scheduler's index is known only afterwards. */
static inline int32_t world_free_row(const struct world *w)
{
    for (int32_t row = 0; row < WORLD_SEQS_MAX; row++) {
        if (!w->row_used[row])
            return row;
    }
    return -1;
}

static inline void world_note_add(struct world *w, int32_t seq, const struct world_seq *like, uint64_t id, int32_t row, bool prompt_logits)
{
    struct world_seq *x = &w->seq[seq];
    if (seq >= WORLD_SEQS_MAX || x->alive || x->zombie) {
        world_fail(w, "add gave an index that is in use");
        return;
    }
    *x = *like;
    x->alive = true;
    x->id = id;
    x->row = row;
    x->ids = w->tokens[row];
    x->n_ids = x->n_prompt;
    x->prompt_logits = prompt_logits;
    uint64_t digest = world_mix(x->salt, -1);
    for (int32_t i = 0; i < x->n_prompt; i++)
        x->digest[i] = digest = world_mix(digest, x->ids[i]);
    w->row_used[row] = true;
    w->n_alive++;
    w->n_held += x->held;
}

static inline void world_add_one(struct world *w, const struct world_seq *like, const int32_t *ids, struct qr_client client, int32_t priority,
                                 int32_t group, bool leader)
{
    int32_t row = world_free_row(w);
    if (row < 0)
        return;
    memcpy(w->tokens[row], ids, (size_t)like->n_prompt * sizeof *ids);
    struct qr_sched_add add = {
        .id = ++w->next_id,
        .ids = w->tokens[row],
        .n_prompt = like->n_prompt,
        .new_max = like->new_max,
        .priority = priority,
        .group = group,
        .leader = leader,
        .prompt_logits = like->prompt_logits && (leader || group < 0 || world_below(w, 2)),
        .now_us = w->now_us,
        .client = client,
        .salt = {.lo = like->salt, .hi = 7},
        .root = {{(uint8_t)like->salt}},
        .held = like->held,
    };
    struct qr_err err;
    int32_t seq = qr_sched_add(w->sched, &add, &err);
    if (seq >= 0)
        world_note_add(w, seq, like, add.id, row, add.prompt_logits);
    else if (seq != QR_E_BUSY && seq != QR_E_NO_ROOM)
        world_fail(w, "add failed with a code that it does not promise");
    w->total.refused += seq < 0;
}

static inline void world_add(struct world *w)
{
    struct world_seq like = {0};
    int32_t ids[WORLD_CTX_MAX];
    world_draw_prompt(w, &like, ids);
    int32_t n = world_below(w, 3) == 0 ? 2 + (int32_t)world_below(w, 3) : 1;
    int32_t priority = (int32_t)world_below(w, 3) - 1;
    int32_t group = n > 1 ? w->next_group++ : -1;
    struct qr_client client = {.key = world_below(w, (uint32_t)w->n_keys), .user = world_below(w, (uint32_t)w->n_users)};
    client.weight = 1 + 2 * (int32_t)client.key;
    like.held = world_below(w, 4) == 0;
    like.group = group;
    for (int32_t i = 0; i < n; i++)
        world_add_one(w, &like, ids, client, world_below(w, 16) ? priority : 0, group, i == 0);
}

/* A pinned prefix is in the first tier, whole. */
static inline void world_check_pin(struct world *w, const struct world_pin *pin)
{
    int32_t blocks[3 * WORLD_CTX_MAX], n_hashed = 0, n_slow = 0;
    struct qr_hash128 hashes[WORLD_CTX_MAX + 1];
    const int32_t n = qr_kv_prefix_find(w->pool, blocks, pin->n_blocks, pin->ids, pin->n_blocks * w->block_tokens,
                                        (struct qr_hash128){.lo = pin->salt, .hi = 7}, hashes, &n_hashed);
    for (int32_t i = n - 1; i >= 0; i--)
        n_slow += qr_kv_is_host(w->pool, blocks[i]);
    struct qr_seq found = {.blocks = blocks, .n_blocks = n, .n_behind = w->config.n_twins > 0 ? qr_blocks_behind(w->sched, n * w->block_tokens) : 0};
    qr_seq_drop_blocks(w->sched, &found);
    if (n < pin->n_blocks || n_slow > 0)
        world_fail(w, "a pinned prefix is not found");
}

/* What a sequence that is about to end has computed is pinned, if pins have room for it. */
static inline void world_pin(struct world *w, int32_t seq)
{
    const struct qr_seq *q = qr_sched_seq(w->sched, seq);
    const int32_t n = q->n_computed / w->block_tokens;
    if (n == 0 || !w->prefix_cache || (q->n_behind > 0 && w->config.n_twins == 0)) /* given back blocks are not its own */
        return;
    const int32_t pin = qr_kv_pin(w->pool, q->blocks, n, q->ids, q->salt, &q->root, q->adapter);
    if (pin < 0)
        return;
    if (w->pin[pin].n_blocks != 0)
        world_fail(w, "a pin has a number that is in use");
    w->pin[pin] = (struct world_pin){.n_blocks = n, .salt = w->seq[seq].salt};
    memcpy(w->pin[pin].ids, q->ids, (size_t)(n * w->block_tokens) * sizeof *q->ids);
    world_check_pin(w, &w->pin[pin]);
    w->total.pinned++;
}

static inline void world_unpin(struct world *w)
{
    const uint32_t at = world_below(w, QR_KV_PINS_MAX);
    for (uint32_t i = 0; i < QR_KV_PINS_MAX; i++) {
        const uint32_t pin = (at + i) % QR_KV_PINS_MAX;
        if (w->pin[pin].n_blocks == 0)
            continue;
        if (!w->pin[pin].cleared)
            world_check_pin(w, &w->pin[pin]);
        qr_kv_unpin(w->pool, (int32_t)pin);
        w->pin[pin].n_blocks = 0;
        return;
    }
}

static inline void world_clear(struct world *w)
{
    qr_kv_prefix_clear(w->pool);
    for (int i = 0; i < QR_KV_PINS_MAX; i++)
        w->pin[i].cleared = true;
}

static inline void world_end(struct world *w, int32_t seq)
{
    struct world_seq *x = &w->seq[seq];
    if (world_below(w, 8) == 0)
        world_pin(w, seq);
    w->n_preempted_gone += qr_sched_seq(w->sched, seq)->n_preempted;
    qr_sched_finish(w->sched, seq);
    w->n_alive -= x->alive;
    w->n_zombies -= x->zombie;
    w->n_held -= x->held;
    x->alive = x->zombie = x->held = false;
    w->row_used[x->row] = false;
}

static inline void world_cancel(struct world *w)
{
    uint32_t at = world_below(w, WORLD_SEQS_MAX);
    for (uint32_t i = 0; i < WORLD_SEQS_MAX; i++) {
        uint32_t seq = (at + i) % WORLD_SEQS_MAX;
        if (w->seq[seq].alive || w->seq[seq].zombie) {
            world_end(w, (int32_t)seq);
            w->total.cancelled++;
            return;
        }
    }
}

/* ---- a step ---- */

/* The layers of a part, 0 the blocks and k + 1 their twins k: earlier rows are read back through its table, new rows are written, with their part as well. */
static inline void world_compute_part(struct world *w, const struct qr_plan_item *item, int32_t part)
{
    const struct qr_seq *q = qr_sched_seq(w->sched, item->seq);
    const struct world_seq *x = &w->seq[item->seq];
    const int32_t *blocks = qr_block_at(w->sched, q, part, 0), size = w->block_tokens;
    const int32_t window = part > 0 || w->config.n_twins == 0 ? w->config.window : 0, unread = window && item->first >= window ? item->first - window + 1 : 0;
    uint64_t digest = item->first > 0 ? x->digest[item->first - 1] : world_mix(x->salt, -1);
    for (int32_t pos = 0; pos < item->first; pos++) {
        const int32_t b = blocks[pos / size];
        const struct world_row *row = b >= 0 && b < w->n_blocks ? &w->kv[b * size + pos % size] : NULL;
        if (!row)
            world_fail(w, "a number is none of a block that a kernel may touch");
        else if (pos >= unread && (row->pos != pos || row->token != x->ids[pos] || row->part != part || row->digest != x->digest[pos]))
            world_fail(w, "a sequence reads a row that is not its own history");
    }
    for (int32_t pos = item->first; pos < item->first + item->n_tokens; pos++) {
        if (qr_kv_refs(w->pool, blocks[pos / size]) != 1)
            world_fail(w, "a shared block is written");
        digest = world_mix(digest, x->ids[pos]);
        w->kv[blocks[pos / size] * size + pos % size] = (struct world_row){.token = x->ids[pos], .pos = pos, .part = part, .digest = digest};
    }
}

static inline void world_compute(struct world *w, const struct qr_plan_item *item)
{
    const struct qr_seq *q = qr_sched_seq(w->sched, item->seq);
    struct world_seq *x = &w->seq[item->seq];
    for (int32_t part = 0; part <= w->config.n_twins; part++)
        world_compute_part(w, item, part);
    for (int32_t pos = item->first; pos < item->first + item->n_tokens; pos++) {
        x->n_logits[pos] += pos >= item->first + item->n_tokens - item->n_logits;
        w->n_recomputed += pos < x->computed_peak;
    }
    const int32_t n_known = item->n_tokens - q->n_draft;
    if (x->computed_peak < item->first + n_known)
        x->computed_peak = item->first + n_known;
    w->total.rows += item->n_tokens;
}

enum world_part { WORLD_PREFILL, WORLD_CHECKED, WORLD_DECODE };

static inline void world_check_item(struct world *w, const struct qr_plan_item *item, enum world_part part)
{
    const struct qr_seq *q = qr_sched_seq(w->sched, item->seq);
    struct world_seq *x = &w->seq[item->seq];
    const bool decode = part != WORLD_PREFILL;
    int32_t end = item->first + item->n_tokens - q->n_draft;
    if (!x->alive || x->held || q->id != x->id)
        world_fail(w, "a sequence that ended is planned");
    if (q->state != (decode ? QR_SEQ_DECODE : QR_SEQ_PREFILL))
        world_fail(w, "an item stands in the wrong part of the plan");
    if (item->n_tokens < 1 || item->first != q->n_computed || end > q->n_ids || end > q->n_blocks * w->block_tokens)
        world_fail(w, "an item's rows do not continue the sequence, or have no block");
    if (!decode && item->n_tokens > w->chunk_max)
        world_fail(w, "a chunk is too long");
    if (decode && (item->n_tokens == 1 && item->n_logits == 1) != (part == WORLD_DECODE))
        world_fail(w, "an item with one row for its next token stands among those with guesses, or the other way round");
    if (q->n_draft > 0 && (end != q->n_ids || end + q->n_draft > q->n_blocks * w->block_tokens || end + q->n_draft >= q->n_prompt + q->new_max))
        world_fail(w, "a guess has no block, or can never be drawn, or what comes before it is not computed");
    if (q->n_draft > 0 && w->plan.n_preempted > 0)
        world_fail(w, "a guess is computed in a step that takes blocks from a sequence");
    const int32_t n_ahead = w->guesses ? w->config.step_tokens_max : item->n_tokens; /* guesses that were wrong have left blocks */
    if (w->config.window > 0 && q->n_blocks - q->n_behind > qr_sched_window_blocks(w->config.window, n_ahead, w->block_tokens))
        world_fail(w, "a sequence holds more blocks than its window and its step need");
    w->total.behind += q->n_behind;
    if (end == q->n_ids && item->n_logits < 1)
        world_fail(w, "the last known row gives no logits");
    if ((!q->prompt_logits || item->first >= q->n_prompt) && item->n_logits - q->n_draft != (end == q->n_ids))
        world_fail(w, "rows inside a prompt give logits that nobody wants");
    if (q->n_ids > q->n_prompt && item->n_logits - q->n_draft > 1)
        world_fail(w, "rows computed again give logits again");
    for (int32_t pos = 0; q->prompt_logits && pos < end && pos < q->n_prompt; pos++) {
        int32_t n = x->n_logits[pos] + (pos >= end - item->n_logits + q->n_draft);
        if (n == 0 || (n > 1 && pos < q->n_prompt - 1))
            world_fail(w, "a prompt row's logits are missing or come twice");
    }
}

/* The first in rank of those that run must be in the plan, unless protected sequences hold everything. */
static inline void world_check_progress(struct world *w, bool any)
{
    if (w->n_zombies > 0)
        return;
    if (any != (w->n_alive > w->n_held))
        world_fail(w, any ? "a plan without sequences" : "nothing is planned although a sequence is there");
    int32_t top = -1;
    bool planned = false, protected_runs = false;
    for (int32_t i = 0; i < WORLD_SEQS_MAX; i++) {
        if (!w->seq[i].alive)
            continue;
        const struct qr_seq *q = qr_sched_seq(w->sched, i), *t = top < 0 ? NULL : qr_sched_seq(w->sched, top);
        if (q->state == QR_SEQ_WAITING || q->state == QR_SEQ_HELD)
            continue;
        protected_runs = protected_runs || q->n_preempted >= w->config.preempt_max;
        if (t == NULL || (w->n_keys == 1 ? q->priority < t->priority || (q->priority == t->priority && q->id < t->id)
                                         : qr_ranks_before(qr_slot(w->sched, i), qr_slot(w->sched, top))))
            top = i;
    }
    for (int32_t k = 0; k < qr_plan_items(&w->plan); k++)
        planned = planned || w->plan.item[k].seq == top;
    if (w->config.policy == QR_SCHED_MIXED && any && !planned && !protected_runs)
        world_fail(w, "the first in rank does not advance");
}

static inline void world_check_plan(struct world *w, bool any)
{
    const struct qr_plan *p = &w->plan;
    int32_t n = qr_plan_items(p), n_tokens = 0, n_logits = 0, n_prompt = 0, n_reads = 0;
    bool seen[WORLD_SEQS_MAX] = {false};
    if (any != (n > 0) || n > w->config.running_max || p->n_copies > w->config.running_max * (1 + w->config.n_twins) || (n == 0 && p->n_copies > 0))
        world_fail(w, "the plan's counts contradict each other");
    for (int32_t k = 0; k < n; k++) {
        world_check_item(w, &p->item[k], k < p->n_prefill ? WORLD_PREFILL : k < p->n_prefill + p->n_checked ? WORLD_CHECKED : WORLD_DECODE);
        n_prompt += k < p->n_prefill ? p->item[k].n_tokens : 0;
        n_reads += k < p->n_prefill ? p->item[k].n_tokens * (p->item[k].first + 1) : 0;
        if (seen[p->item[k].seq])
            world_fail(w, "a sequence is planned twice");
        seen[p->item[k].seq] = true;
        n_tokens += p->item[k].n_tokens, n_logits += p->item[k].n_logits;
    }
    if (n_tokens != p->n_tokens || n_prompt != p->n_prompt || n_tokens > w->config.step_tokens_max)
        world_fail(w, "the plan's tokens do not add up or pass the budget");
    if (n_logits != p->n_logits || n_logits > w->config.logit_rows_max)
        world_fail(w, "the plan's rows of logits do not add up or pass the budget");
    if (p->n_checked + p->n_decode > 0 && (n_prompt > w->mixed_max || (n_prompt > 1 && n_reads - p->item[p->n_prefill - 1].first > w->reads_max)))
        world_fail(w, "a step carries more prompt tokens beside decode rows, or these read more of the cache, than they may");
    if (w->config.policy != QR_SCHED_MIXED && p->n_prefill > 0 && p->n_checked + p->n_decode > 0)
        world_fail(w, "a step mixes what its policy keeps apart");
    for (int32_t k = 0; k < p->n_copies; k++) {
        if (qr_kv_refs(w->pool, p->copy[k].dst) != 1 || p->copy[k].src == p->copy[k].dst)
            world_fail(w, "a copy goes to a block that is not one sequence's own");
    }
    world_check_progress(w, any);
}

static inline int32_t world_next(uint64_t digest)
{
    return (int32_t)((digest >> 20) % WORLD_VOCAB);
}

/* Guesses for a sequence: the first of them right, the rest any. */
static inline void world_guess(struct world *w, int32_t seq)
{
    const struct world_seq *x = &w->seq[seq];
    int32_t ids[WORLD_CTX_MAX], n = (int32_t)world_below(w, world_below(w, 8) ? 6 : WORLD_CTX_MAX), n_right = (int32_t)world_below(w, (uint32_t)n + 1);
    uint64_t digest = x->digest[x->n_ids - 1];
    for (int32_t i = 0; i < n; i++) {
        ids[i] = i < n_right ? world_next(digest) : (int32_t)world_below(w, WORLD_VOCAB);
        digest = world_mix(digest, ids[i]);
    }
    qr_sched_draft(w->sched, seq, ids, n);
}

static inline void world_guess_some(struct world *w)
{
    for (int32_t i = 0; i < WORLD_SEQS_MAX; i++) {
        if (!w->seq[i].alive || world_below(w, 4) == 0)
            continue;
        const struct qr_seq *q = qr_sched_seq(w->sched, i);
        if (q->state == QR_SEQ_DECODE && q->n_computed < q->n_ids)
            world_guess(w, i);
    }
}

/* The next id becomes known, with its draw or without. Returns whether its row was computed before. */
static inline bool world_append(struct world *w, int32_t seq, bool drawn)
{
    struct world_seq *x = &w->seq[seq];
    const struct qr_seq *q = qr_sched_seq(w->sched, seq);
    const int32_t token = world_next(x->digest[x->n_ids - 1]);
    const bool right = drawn && q->n_draft > 0 && x->ids[x->n_ids] == token;
    if (drawn && qr_sched_push(w->sched, seq, token) != right)
        world_fail(w, "push accepts another token than the guess, or not the guess");
    if (!drawn)
        qr_sched_force(w->sched, seq, token);
    if (x->ids[x->n_ids] != token || q->n_ids != x->n_ids + 1 || (right ? q->n_computed != q->n_ids : q->n_computed >= q->n_ids || q->n_draft != 0))
        world_fail(w, "push did not append the token");
    x->digest[x->n_ids] = world_mix(x->digest[x->n_ids - 1], token);
    x->n_ids++;
    if (right && x->computed_peak < x->n_ids)
        x->computed_peak = x->n_ids;
    return right;
}

static inline bool world_is_full(const struct world_seq *x)
{
    return x->n_ids == x->n_prompt + x->new_max;
}

/* The draws of an item's rows, as far as they count, and sometimes ids behind them that need none. */
static inline void world_sample(struct world *w, const struct qr_plan_item *item)
{
    const struct qr_seq *q = qr_sched_seq(w->sched, item->seq);
    struct world_seq *x = &w->seq[item->seq];
    const int32_t n_draft = q->n_draft;
    int32_t n_right = 0;
    bool ended = false, goes_on = true;
    if (item->n_logits == 0 || q->n_computed < q->n_ids)
        return;
    while (goes_on && !(ended = world_is_full(x) || world_below(w, 32) == 0)) { /* the end token is not pushed */
        goes_on = world_append(w, item->seq, true);
        n_right += goes_on;
    }
    for (uint32_t n = world_below(w, 8) == 0 ? world_below(w, 6) : 0; n > 0 && !ended && !world_is_full(x); n--, w->total.forced++)
        world_append(w, item->seq, false);
    w->total.right += n_right;
    w->total.wrong += n_draft - n_right;
    if (!ended && !world_is_full(x))
        return;
    w->total.finished++;
    const bool computed = q->n_computed == q->n_ids || q->n_computed + 1 == x->n_prompt + x->new_max; /* else the next plan would have it */
    if (w->zombies_ok && computed && world_below(w, 2)) {
        x->alive = false;
        x->zombie = true;
        w->n_alive--;
        w->n_zombies++;
    } else {
        world_end(w, item->seq);
    }
}

static inline void world_copy(struct world *w, int32_t from, int32_t to)
{
    QR_ASSERT((to + 1) * w->block_tokens <= WORLD_SLOTS_MAX);
    memcpy(&w->kv[to * w->block_tokens], &w->kv[from * w->block_tokens], (size_t)w->block_tokens * sizeof w->kv[0]);
}

/* Blocks change the tier; what they leave behind is nobody's. */
static inline void world_move(struct world *w)
{
    int32_t n = 0;
    const struct qr_kv_move *move = qr_kv_moves(w->pool, &n);
    for (int32_t i = 0; i < n; i++) {
        if (qr_kv_is_host(w->pool, move[i].from) == qr_kv_is_host(w->pool, move[i].to))
            world_fail(w, "a move stays in its tier");
        world_copy(w, move[i].from, move[i].to);
        memset(&w->kv[move[i].from * w->block_tokens], 0xee, (size_t)w->block_tokens * sizeof w->kv[0]);
    }
    qr_kv_moved(w->pool);
}

/* What estimates ask: those that wait, each once, and how much of one the cache has. */
static inline void world_look(struct world *w)
{
    int32_t n, n_waiting;
    const int32_t *order = qr_sched_order(w->sched, &n), *waiting = qr_sched_list(w->sched, QR_SEQ_WAITING, &n_waiting);
    int64_t sum = 0, sum_waiting = 0;
    for (int32_t i = 0; i < n && n == n_waiting; i++) {
        sum += (int64_t)(order[i] + 1) * (order[i] + 1);
        sum_waiting += (int64_t)(waiting[i] + 1) * (waiting[i] + 1);
    }
    if (n != n_waiting || sum != sum_waiting)
        world_fail(w, "the order is not of those that wait");
    if (n == 0)
        return;
    const int32_t seq = waiting[world_below(w, (uint32_t)n)];
    qr_sched_find(w->sched, seq);
    const struct qr_seq *q = qr_sched_seq(w->sched, seq);
    if (q->n_found < 0 || q->n_found >= q->n_ids || q->n_found % w->block_tokens != 0)
        world_fail(w, "more was found than there is");
}

/* The names of full blocks of those that run are what their ids spell. */
static inline void world_look_at_names(struct world *w)
{
    struct qr_kv_name name[WORLD_CTX_MAX + 1];
    for (int32_t k = 0; k < WORLD_SEQS_MAX && qr_kv_has_names(w->pool); k++) {
        const struct qr_seq *q = w->seq[k].alive ? qr_sched_seq(w->sched, k) : NULL;
        if (!q || q->state < QR_SEQ_PREFILL || qr_is_apart(w->sched, q))
            continue;
        qr_kv_name_all(name, &q->root, q->ids, q->n_computed, w->block_tokens);
        for (int32_t i = q->n_behind; i < q->n_computed / w->block_tokens; i++, w->total.names++) {
            if (memcmp(&w->pool->names->of[q->blocks[i]], &name[i], sizeof *name) != 0)
                world_fail(w, "a block has another name than its ids spell");
        }
    }
}

static inline void world_step(struct world *w)
{
    w->now_us += 1000;
    if (world_below(w, 16) == 0)
        world_look_at_names(w);
    if (world_below(w, 4) == 0) {
        w->mixed_max = world_below(w, 2) ? INT32_MAX : 1 + (int32_t)world_below(w, (uint32_t)w->config.step_tokens_max);
        qr_sched_limit_mixed(w->sched, w->mixed_max);
    }
    if (world_below(w, 16) == 0)
        qr_sched_limit_running(w->sched, world_below(w, 2) ? INT32_MAX : 1 + (int32_t)world_below(w, (uint32_t)w->config.running_max));
    if (world_below(w, 16) == 0)
        world_look(w);
    if (w->guesses)
        world_guess_some(w);
    bool any = qr_sched_plan(w->sched, &w->plan, w->now_us);
    world_move(w);
    world_check(w);
    world_check_plan(w, any);
    if (w->broken[0] != '\0' || !any)
        return;
    for (int32_t k = 0; k < w->plan.n_copies; k++)
        world_copy(w, w->plan.copy[k].src, w->plan.copy[k].dst);
    for (int32_t k = 0; k < qr_plan_items(&w->plan); k++)
        world_compute(w, &w->plan.item[k]);
    qr_sched_commit(w->sched, &w->plan);
    world_check(w);
    for (int32_t k = 0; k < qr_plan_items(&w->plan); k++)
        world_sample(w, &w->plan.item[k]);
    w->total.steps++;
    w->total.copies += w->plan.n_copies;
    w->total.preemptions += w->plan.n_preempted;
}

/* ---- held sequences ---- */

static inline int32_t world_any_held(struct world *w)
{
    const uint32_t at = world_below(w, WORLD_SEQS_MAX);
    for (uint32_t i = 0; i < WORLD_SEQS_MAX; i++)
        if (w->seq[(at + i) % WORLD_SEQS_MAX].held)
            return (int32_t)((at + i) % WORLD_SEQS_MAX);
    return -1;
}

/* With its siblings, in the order of their indexes, which need not be that of their arrival. */
static inline void world_let_go(struct world *w, int32_t seq)
{
    const int32_t group = w->seq[seq].group;
    for (int32_t i = 0; i < WORLD_SEQS_MAX; i++) {
        struct world_seq *x = &w->seq[i];
        if (!x->held || (i != seq && (group < 0 || x->group != group)))
            continue;
        qr_sched_let_go(w->sched, i);
        x->held = false;
        w->n_held--;
        w->total.let_go++;
    }
}

/* Content that was computed elsewhere comes for the next blocks of a sequence, or from further on; some of it does not come to its end. */
static inline void world_land(struct world *w, int32_t seq)
{
    const struct qr_seq *q = qr_sched_seq(w->sched, seq);
    const struct world_seq *x = &w->seq[seq];
    const int32_t end = (q->n_prompt - 1) / w->block_tokens, found = q->n_found < 0 ? 0 : q->n_found / w->block_tokens;
    int32_t index = world_below(w, 4) ? found : (int32_t)world_below(w, (uint32_t)end + 1), block = QR_PLACE_HAS;
    const bool can = !q->prompt_logits && w->prefix_cache && w->config.n_twins == 0;
    for (uint32_t n = world_below(w, 8); can && n > 0 && index < end && block != QR_PLACE_NONE; n--, index++) {
        const int32_t available = qr_kv_pool_available(w->pool), spare = qr_sched_spare(w->sched);
        int32_t n_moves;
        block = qr_sched_place(w->sched, seq, index);
        (void)qr_kv_moves(w->pool, &n_moves);
        if (block < 0 && n_moves > 0)
            world_fail(w, "blocks make room for one that is not placed");
        world_move(w);
        w->total.no_place += block == QR_PLACE_NONE;
        if (block >= 0 && (spare <= 0 || qr_kv_refs(w->pool, block) != 1))
            world_fail(w, "a block lands where none is to spare, or on another's");
        for (int32_t i = 0; block >= 0 && i < w->block_tokens; i++) {
            const int32_t pos = index * w->block_tokens + i;
            w->kv[block * w->block_tokens + i] = (struct world_row){.token = x->ids[pos], .pos = pos, .digest = x->digest[pos]};
        }
        if (block >= 0 && world_below(w, 16) == 0) {
            qr_kv_unref(w->pool, block);
            block = QR_PLACE_NONE;
        }
        if (block >= 0)
            qr_sched_land(w->sched, seq, block);
        w->total.landed += block >= 0;
        if (qr_kv_pool_available(w->pool) != available)
            world_fail(w, "what landed is held");
        world_check(w);
    }
}

static inline void world_held(struct world *w)
{
    const int32_t seq = world_any_held(w);
    if (seq >= 0 && world_below(w, 4))
        world_land(w, seq);
    else if (seq >= 0)
        world_let_go(w, seq);
}

static inline void world_end_zombies(struct world *w)
{
    for (int32_t i = 0; i < WORLD_SEQS_MAX; i++) {
        if (w->seq[i].zombie)
            world_end(w, i);
    }
}

/* Nothing new arrives: everything has to end. A sequence computes at most ctx_max rows (preempt_max + 1) times, one row a step at
 * worst, and every step advances someone. */
static inline void world_drain(struct world *w)
{
    if (w->broken[0] != '\0')
        return;
    world_end_zombies(w);
    for (int32_t seq; (seq = world_any_held(w)) >= 0;)
        world_let_go(w, seq);
    bool zombies_ok = w->zombies_ok;
    w->zombies_ok = false;
    int64_t n_steps_max = (int64_t)w->n_alive * w->config.ctx_max * (w->config.preempt_max + 1);
    for (int64_t k = 0; w->n_alive > 0 && w->broken[0] == '\0'; k++) {
        if (k > n_steps_max)
            world_fail(w, "a sequence starves");
        world_step(w);
    }
    w->zombies_ok = zombies_ok;
    struct qr_kv_stats stats;
    qr_kv_pool_stats(w->pool, &stats);
    if (w->n_alive == 0 && stats.n_owned != stats.n_pinned)
        world_fail(w, "a block is owned although no sequence is there");
    struct qr_sched_stats sched;
    qr_sched_stats(w->sched, &sched);
    if (w->n_alive == 0 && sched.n_preempted != w->n_preempted_gone)
        world_fail(w, "the preemptions of all sequences do not add up");
}

static inline void world_op(struct world *w)
{
    uint32_t kind = world_below(w, 64);
    w->total.ops++;
    if (kind < 16)
        world_add(w);
    else if (kind < 22)
        world_held(w);
    else if (kind < 58)
        world_step(w);
    else if (kind < 61)
        world_cancel(w);
    else if (kind < 62)
        world_unpin(w);
    else if (kind == 62)
        world_end_zombies(w);
    else if (world_below(w, 4) == 0)
        world_clear(w);
    else if (world_below(w, 16) == 0)
        world_drain(w);
    if (w->broken[0] == '\0')
        world_check(w);
}

#endif
