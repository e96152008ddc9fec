/* limits.c - every size of an engine, computed before anything is allocated: context, cache blocks, step tokens, rows
 * of logits, queues. What does not fit is refused with the settings that would. `quire plan`, the banner and the engine
 * itself ask the same functions, so they agree. Pure but for the question how much memory is free; runs at start. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/size.h"
#include "engine/draft/model.h"
#include "engine/exchange.h"
#include "engine/internal.h"
#include "model/kv_split.h"

void qr_engine_config_init(struct qr_engine_config *c)
{
    QR_ASSERT(c != NULL);
    *c = (struct qr_engine_config){.running_max = 64, .waiting_max = 256, .step_tokens_max = 512, .chunk_tokens_max = 256,
                                   .logit_rows_max = 64, .block_tokens = 16, .prefix_cache = true, .pinned_share = 0.25, .policy = QR_SCHED_MIXED,
                                   .sharing = 1, .itl_goal_us = 90000, .lora_rank_max = 16};
}

void qr_engine_config_fit(struct qr_engine_config *c)
{
    QR_ASSERT(c != NULL);
    if (c->logit_rows_max > c->step_tokens_max)
        c->logit_rows_max = c->step_tokens_max;
    if (c->logit_rows_max < c->running_max)
        c->logit_rows_max = c->running_max;
    if (c->chunk_tokens_max > c->step_tokens_max)
        c->chunk_tokens_max = c->step_tokens_max;
}

bool qr_engine_may_split(const struct qr_engine_config *c, const struct qr_backend *be, int32_t n_ranks)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(be != NULL);
    return be->mem->host && n_ranks <= 1 && c->kv_host_bytes == 0 && !c->draft_model && !qr_outside_named(c);
}

static int check_config(const struct qr_engine_config *c, struct qr_err *err)
{
    if (c->running_max < 1 || c->waiting_max < 1)
        return qr_err_set(err, QR_E_USAGE, "--max-running and --max-waiting must be at least 1, found %d and %d", c->running_max, c->waiting_max);
    if (c->step_tokens_max < c->running_max)
        return qr_err_set(err, QR_E_USAGE, "--max-step-tokens must be at least --max-running (%d), found %d", c->running_max, c->step_tokens_max);
    if (c->chunk_tokens_max < 1 || c->chunk_tokens_max > c->step_tokens_max)
        return qr_err_set(err, QR_E_USAGE, "--max-chunk-tokens must be from 1 to --max-step-tokens (%d), found %d", c->step_tokens_max,
                          c->chunk_tokens_max);
    if (c->block_tokens < 1 || c->block_tokens > 256 || (c->block_tokens & (c->block_tokens - 1)))
        return qr_err_set(err, QR_E_USAGE, "--block-tokens must be a power of two from 1 to 256, found %d", c->block_tokens);
    if (c->kv_host_bytes > 0 && !c->prefix_cache)
        return qr_err_set(err, QR_E_USAGE, "--kv-host-gib keeps blocks of the prefix cache, which is off (--no-prefix-cache): leave one of them out");
    return 0;
}

/* Bytes the cache may take: the configured size, or a quarter of what is left but `least` at any rate, and no more than
 * all running sequences could fill. */
static int64_t cache_bytes(const struct qr_engine_config *c, int32_t ctx, int64_t token_bytes, int64_t least, int64_t left)
{
    if (c->kv_bytes > 0)
        return c->kv_bytes;
    if (c->kv_tokens > 0)
        return c->kv_tokens * token_bytes;
    int64_t useful = (int64_t)c->running_max * (ctx + c->block_tokens) * token_bytes, share = left / 4 > least ? left / 4 : least;
    return share < useful ? share : useful;
}

/* How a cache is shaped: bytes of a block, which is of a run of tokens one of `each`; of those that have a window, a sequence holds so many at most. */
struct shape {
    int64_t token_bytes, block_bytes;
    int32_t each;
    int64_t windowed_max;
};

static struct shape shape_of(const struct qr_engine_config *c, const struct qr_model_config *model, enum qr_dtype kv_dtype)
{
    struct qr_kv_split split;
    qr_kv_split_of(&split, model);
    const bool splits = c->split && split.n_twins > 0 && model->window < (c->ctx_max > 0 ? c->ctx_max : model->ctx_max);
    const int32_t window = splits ? model->window : qr_model_window(model), each = splits ? 1 + split.n_twins : 1;
    const struct qr_kv_view token = {.dtype = kv_dtype, .n_layers = splits ? split.n_layers : model->n_layers, .n_kv_heads = model->n_kv_heads,
                                     .block_tokens = 1, .head_dim = model->head_dim};
    const int64_t bytes = (int64_t)qr_kv_block_bytes(&token) + c->draft.token_bytes;
    return (struct shape){.token_bytes = each * bytes, .block_bytes = c->block_tokens * bytes, .each = each,
                          .windowed_max = window > 0 ? qr_sched_window_blocks(window, c->step_tokens_max, c->block_tokens) : INT32_MAX};
}

/* Blocks that a sequence holds at once at most whose tokens fill n_whole runs. */
static int64_t held_blocks(const struct shape *s, int64_t n_whole)
{
    const int64_t windowed = s->windowed_max < n_whole ? s->windowed_max : n_whole;
    return s->each > 1 ? n_whole + (s->each - 1) * windowed : windowed;
}

/* The most runs of one sequence that n blocks hold, where they hold not all. */
static int64_t runs_in(const struct shape *s, int64_t n_blocks)
{
    const int64_t whole = n_blocks / s->each, behind = n_blocks - (s->each - 1) * s->windowed_max;
    return whole > behind ? whole : behind;
}

int32_t qr_engine_pinned_max(const struct qr_engine_config *c, const struct qr_engine_limits *l)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(l != NULL && l->block_tokens > 0);
    const int32_t beside = l->n_blocks - l->seq_blocks, share = (int32_t)(c->pinned_share * l->n_blocks);
    const int32_t most = share < beside ? share : beside;
    return c->prefix_cache && most > 0 ? most : 0;
}

/* Blocks of the second tier: as configured, and no more than the pool can have. */
static int32_t host_blocks(const struct qr_engine_config *c, int64_t block_bytes, int64_t n_blocks)
{
    const int64_t n = c->kv_host_bytes / block_bytes, most = INT32_MAX / 8 - n_blocks;
    return (int32_t)(n < most ? n : most > 0 ? most : 0);
}

/* There is memory enough, but the configured cache has not a block, or not the blocks of one sequence. */
static int fail_small(const struct qr_engine_config *c, int64_t n_blocks, int64_t needed_blocks, const struct shape *s, struct qr_err *err)
{
    const int64_t needed = (needed_blocks * c->block_tokens + s->each - 1) / s->each;
    return qr_err_set(err, QR_E_NO_ROOM, "does not fit: the cache that was asked for has %lld blocks of %d tokens; expected at least %lld tokens%s, which "
                      "are --kv-tokens %lld or --kv-bytes %lld", (long long)n_blocks, c->block_tokens, (long long)needed,
                      c->ctx_max > 0 ? ", those of one sequence (--max-len)" : "", (long long)needed, (long long)(needed_blocks * s->block_bytes));
}

/* What is named as missing is enough when it is read: whole MiB. */
static int64_t round_up(int64_t n_bytes)
{
    return (n_bytes + (1 << 20) - 1) >> 20 << 20;
}

/* Memory is too little for the configured cache, or for any. */
static int fail_cache(const struct qr_engine_config *c, const struct qr_engine_limits *of, const struct shape *s, int64_t kv, int64_t left, struct qr_err *err)
{
    const int64_t block = of->kv_token_bytes * c->block_tokens;
    char t[4][QR_SIZE_TEXT];
    int64_t most = left > 0 ? left / block * c->block_tokens : 0; /* whole blocks of it */
    most = most < INT32_MAX / 2 ? most : INT32_MAX / 2 / c->block_tokens * c->block_tokens;
    const int64_t longest = runs_in(s, most / c->block_tokens * s->each) * c->block_tokens;
    if (most == 0)
        return qr_err_set(err, QR_E_NO_ROOM, "does not fit: beside %s of weights and %s for a step no block of the cache has room; at least %s more must be "
                          "free, or a step or the weights must be smaller (--max-step-tokens, --max-running, --quantize)",
                          qr_size_text(t[0], of->weight_bytes), qr_size_text(t[1], of->act_bytes), qr_size_text(t[2], round_up(block - left)));
    return qr_err_set(err, QR_E_NO_ROOM, "does not fit: a sequence of %d tokens needs %s of cache, the plan has %s, and %s of memory are free beside %s of "
                      "weights; the largest settings that fit are --max-len %lld --kv-tokens %lld%s", of->ctx_max,
                      qr_size_text(t[0], of->seq_blocks * s->block_bytes), qr_size_text(t[1], kv), qr_size_text(t[2], left),
                      qr_size_text(t[3], of->weight_bytes), (long long)(longest < of->ctx_max ? longest : of->ctx_max), (long long)most,
                      of->kv_dtype == QR_I8 ? "" : "; more with --kv-cache-dtype int8");
}

int qr_engine_plan(struct qr_engine_limits *out, const struct qr_engine_config *config, const struct qr_model_config *model,
                   enum qr_dtype kv_dtype, int64_t weight_bytes, int64_t act_bytes, int64_t memory_available, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && model != NULL);
    int rc = check_config(config, err);
    if (rc != 0)
        return rc;
    if (config->ctx_max > model->ctx_max)
        return qr_err_set(err, QR_E_USAGE, "--max-len must be from 1 to %d (max_position_embeddings) or 0, found %d", model->ctx_max, config->ctx_max);
    int32_t ctx = config->ctx_max > 0 ? config->ctx_max : model->ctx_max;
    const struct shape s = shape_of(config, model, kv_dtype);
    act_bytes += config->draft.act_bytes;
    int64_t left = memory_available - act_bytes;
    const int64_t held = held_blocks(&s, ((int64_t)ctx + config->block_tokens - 1) / config->block_tokens), needed = config->ctx_max > 0 ? held : s.each;
    int64_t kv = cache_bytes(config, ctx, s.token_bytes, needed * s.block_bytes, left > 0 ? left : 0);
    if (kv > left && left > 0 && config->kv_bytes == 0 && config->kv_tokens == 0)
        kv = left;
    int64_t n_blocks = kv / s.block_bytes;
    if (n_blocks > INT32_MAX / 2 / config->block_tokens)
        n_blocks = INT32_MAX / 2 / config->block_tokens;
    if (kv <= left && n_blocks < needed && needed * s.block_bytes <= left)
        return fail_small(config, n_blocks, needed, &s, err);
    if (kv > left || n_blocks < needed) {
        const struct qr_engine_limits of = {.ctx_max = ctx, .seq_blocks = (int32_t)held, .kv_token_bytes = s.token_bytes, .kv_dtype = kv_dtype,
                                            .weight_bytes = weight_bytes, .act_bytes = act_bytes};
        return fail_cache(config, &of, &s, kv, left, err);
    }
    *out = (struct qr_engine_limits){
        .ctx_max = n_blocks < held ? (int32_t)(runs_in(&s, n_blocks) * config->block_tokens) : ctx, .vocab = model->n_vocab, .n_blocks = (int32_t)n_blocks,
        .seq_blocks = (int32_t)(n_blocks < held ? n_blocks : held), .n_twins = s.each - 1,
        .block_tokens = config->block_tokens, .running_max = config->running_max, .waiting_max = config->waiting_max, .draft_tokens = config->draft_tokens,
        .step_tokens_max = config->step_tokens_max, .lora_slots = config->lora_slots, .lora_rank_max = config->lora_rank_max,
        .kv_bytes = n_blocks * s.block_bytes, .kv_token_bytes = s.token_bytes, .kv_dtype = kv_dtype, .prefix_cache = config->prefix_cache,
        .weight_bytes = weight_bytes, .act_bytes = act_bytes, .draft = config->draft,
        .n_host_blocks = host_blocks(config, s.block_bytes, n_blocks)};
    out->n_pinned_max = qr_engine_pinned_max(config, out);
    out->kv_host_bytes = (int64_t)out->n_host_blocks * s.block_bytes;
    return 0;
}

/* A step that fits, where one of the configured size does not. */
struct step {
    int32_t rows, running; /* rows 0: none is known */
    bool less_cache;       /* beside a smaller cache than the configured one */
};

/* What would fit: other numbers of the weights, fewer rows in a step, or both. Beside the weights are a step, adapters, and one block of the cache. */
static void put_remedy(char text[240], const struct qr_engine_config *config, const struct qr_model_plan *plan, int64_t memory, int64_t step, int64_t block,
                       const struct step *fits)
{
    const int64_t beside = memory - block, with_step = beside - step;
    const int64_t as_is = (int64_t)(plan->weight_bytes + plan->table_bytes), int8 = (int64_t)plan->int8_bytes, int4 = (int64_t)plan->int4_bytes;
    const int64_t least = as_is < int4 ? as_is : int4;
    char rows[140], adapters[48] = "", more[QR_SIZE_TEXT];
    if (config->lora_slots > 0)
        snprintf(adapters, sizeof adapters, ", or fewer --lora-slots than %d", config->lora_slots);
    snprintf(rows, sizeof rows, "fewer --max-step-tokens than %d and fewer --max-running than %d%s", config->step_tokens_max, config->running_max, adapters);
    if (fits->rows > 0)
        snprintf(rows, sizeof rows, "--max-step-tokens %d --max-running %d%s", fits->rows, fits->running, fits->less_cache ? " with a smaller cache" : "");
    if (with_step >= int4)
        snprintf(text, 240, "what fits is %s%s%s", with_step >= int8 ? "--quantize int8 or int4" : "--quantize int4",
                 fits->rows > 0 ? ", or " : beside >= as_is ? "; what may fit is " : "", beside >= as_is ? rows : "");
    else if (beside >= least)
        snprintf(text, 240, "what %s is %s%s", fits->rows > 0 ? "fits" : "may fit", beside >= as_is ? "" : "--quantize int4 with ", rows);
    else
        snprintf(text, 240, "no format of it fits: %s more must be free%s, or the model must be smaller", qr_size_text(more, round_up(least - with_step)),
                 least < as_is ? ", for it as int4" : "");
}

/* What a plan comes to beside the cache. */
struct beside_cache {
    int64_t weights, act, adapters;
};

static struct beside_cache beside_cache_of(const struct qr_engine_config *config, const struct qr_model_plan *plan)
{
    const size_t act = config->lora_slots > 0 && plan->adapted_act_bytes > plan->act_bytes ? plan->adapted_act_bytes : plan->act_bytes;
    return (struct beside_cache){.weights = (int64_t)(plan->weight_bytes + plan->table_bytes), .act = (int64_t)act,
                                 .adapters = qr_engine_lora_bytes(config, &plan->own, plan->n_ranks, plan->weight_dtype)};
}

/* A block of the cache, its twins and a draft model's part of it included. */
static int64_t block_bytes(const struct qr_engine_config *config, const struct qr_model_plan *plan)
{
    return shape_of(config, &plan->config, plan->kv_dtype).token_bytes * config->block_tokens;
}

/* Whether all but the cache fits, and a block of it. memory: what a draft model leaves. */
static bool has_room(const struct qr_engine_config *config, const struct qr_model_plan *plan, int64_t memory)
{
    const struct beside_cache b = beside_cache_of(config, plan);
    return memory - b.weights - b.adapters - b.act >= block_bytes(config, plan);
}

static int fail_step(const struct qr_engine_config *config, const struct qr_model_plan *plan, int64_t memory, const struct step *fits, struct qr_err *err)
{
    const struct beside_cache b = beside_cache_of(config, plan);
    char remedy[240], t[6][QR_SIZE_TEXT];
    put_remedy(remedy, config, plan, memory, b.act + b.adapters, block_bytes(config, plan), fits);
    return qr_err_set(err, QR_E_NO_ROOM, "does not fit: the weights take %s as %s, a step %s and adapters %s, and %s of memory are "
                      "available; %s (weights of %s and %s as int8 and int4)", qr_size_text(t[0], b.weights), qr_dtype_name(plan->weight_dtype),
                      qr_size_text(t[1], b.act), qr_size_text(t[2], b.adapters), qr_size_text(t[3], memory), remedy,
                      qr_size_text(t[4], (int64_t)plan->int8_bytes), qr_size_text(t[5], (int64_t)plan->int4_bytes));
}

static int64_t beside_draft(const struct qr_engine_config *config, int64_t memory)
{
    return memory - config->draft.weight_bytes - config->draft.act_bytes;
}

int qr_engine_foresee(struct qr_engine_limits *out, const struct qr_engine_config *config, const struct qr_model_plan *plan, int64_t memory_available,
                      struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL);
    QR_ASSERT(plan != NULL && err != NULL);
    const struct step unknown = {0};
    const struct beside_cache b = beside_cache_of(config, plan);
    if (!has_room(config, plan, beside_draft(config, memory_available)))
        return fail_step(config, plan, beside_draft(config, memory_available), &unknown, err);
    const int64_t weights = b.weights + config->draft.weight_bytes;
    return qr_engine_plan(out, config, &plan->config, plan->kv_dtype, weights, b.act, memory_available - weights - b.adapters, err);
}

struct seeking {
    const struct qr_engine_config *config;
    const struct qr_engine_opening *of;
    int64_t memory;
};

/* Whether a step of so many rows fits, with the configured cache or any. */
static bool step_fits(const struct seeking *s, int32_t rows, bool any_cache)
{
    struct qr_engine_config c = *s->config;
    struct qr_model_plan plan;
    struct qr_engine_limits l;
    struct qr_err none;
    c.step_tokens_max = rows;
    c.running_max = c.running_max < rows ? c.running_max : rows;
    qr_engine_config_fit(&c);
    if (qr_model_plan(&plan, s->of->dir, s->of->be, s->of->options, c.step_tokens_max, c.logit_rows_max, &none) != 0)
        return false;
    return any_cache ? has_room(&c, &plan, beside_draft(&c, s->memory)) : qr_engine_foresee(&l, &c, &plan, s->memory, &none) == 0;
}

static struct step largest_step(const struct seeking *s, bool any_cache)
{
    int32_t least = 0, most = s->config->step_tokens_max - 1; /* the answer is one of these */
    while (least < most) {
        const int32_t n = least + (most - least + 1) / 2;
        if (step_fits(s, n, any_cache))
            least = n;
        else
            most = n - 1;
    }
    return (struct step){.rows = least, .running = s->config->running_max < least ? s->config->running_max : least, .less_cache = any_cache};
}

int qr_engine_foresee_opening(struct qr_engine_limits *out, const struct qr_engine_config *config, const struct qr_model_plan *plan,
                              const struct qr_engine_opening *of, int64_t memory_available, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && plan != NULL);
    QR_ASSERT(of != NULL && of->dir != NULL && of->be != NULL && of->options != NULL);
    const struct seeking s = {config, of, memory_available};
    const int rc = qr_engine_foresee(out, config, plan, memory_available, err);
    if (rc != QR_E_NO_ROOM || has_room(config, plan, beside_draft(config, memory_available)))
        return rc;
    struct step fits = {0};
    if (step_fits(&s, 1, true)) { /* else nothing is searched: a look at a model of 19,000 tensors takes 25 ms */
        fits = largest_step(&s, false);
        fits = fits.rows ? fits : largest_step(&s, true);
    }
    return fail_step(config, plan, beside_draft(config, memory_available), &fits, err);
}

int64_t qr_engine_table_bytes(const struct qr_engine_limits *l, const struct qr_engine_config *c, const struct qr_tokenizer *tokenizer,
                              int32_t n_threads)
{
    QR_ASSERT(l != NULL && c != NULL && tokenizer != NULL);
    QR_ASSERT(n_threads >= 1);
    const int64_t n_slots = (int64_t)l->running_max + l->waiting_max, stride = (l->ctx_max + l->block_tokens - 1) / l->block_tokens;
    const int64_t table = (1 + l->n_twins) * stride;
    int64_t n = (int64_t)qr_kv_pool_bytes(l->n_blocks, l->n_host_blocks, l->block_tokens, c->prefix_cache);
    n += (int64_t)qr_kv_pins_bytes(l->n_blocks, l->n_pinned_max);
    n += (l->n_blocks > table ? l->n_blocks : table) * (int64_t)sizeof(int32_t);                  /* the scheduler counts each block's readers */
    n += 2 * (int64_t)l->running_max * table * (int64_t)sizeof(int32_t);                          /* block tables: the scheduler's, the batch's */
    n += l->draft.token_bytes > 0 ? qr_draft_model_table_bytes(l) : 0;
    n += n_threads * (int64_t)qr_sampler_bytes(l->vocab) + qr_masks_bytes(l->vocab, qr_engine_draws_max(c), n_threads);
    n += qr_speculate_bytes(c, l->ctx_max);
    n += qr_engine_outside_bytes(c, l, (l->kv_token_bytes - l->draft.token_bytes) * l->block_tokens);
    n += n_slots * ((int64_t)sizeof(struct qr_slot) + qr_output_text_cap(tokenizer)) + (int64_t)qr_view_bytes();
    return n + (int64_t)qr_engine_n_events(c, qr_output_text_cap(tokenizer)) * (int64_t)sizeof(struct qr_event);
}
