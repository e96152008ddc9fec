/* open.c - all that the engine thread owns is made, and given back: backend, model, cache, scheduler, tables of a step, events. What does not fit is refused
 * before it is loaded. On several ranks this is rank 0's part (follow.c: the others'). Engine thread, at its beginning and end. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/exchange.h"
#include "engine/internal.h"
#include "engine/pooling.h"
#include "loader/pack/share.h"
#include "model/ranks.h"
#include "model/tune.h"

static void make_events(struct qr_engine *e)
{
    e->text_cap = qr_output_text_cap(e->tokenizer);
    e->events_per_choice = qr_engine_events_per_choice(e->text_cap);
    e->n_events = e->n_free_events = qr_engine_n_events(&e->config, e->text_cap);
    e->event = qr_alloc((size_t)e->n_events, sizeof *e->event);
    e->text = qr_alloc((size_t)e->n_slots * (size_t)e->text_cap, 1);
    e->slot = qr_alloc((size_t)e->n_slots, sizeof *e->slot);
    for (int32_t i = 0; i < e->n_events; i++)
        qr_list_push_back(&e->free_events, &e->event[i].link);
    qr_mem_populate(e->event, (size_t)e->n_events * sizeof *e->event);
    qr_mem_populate(e->text, (size_t)e->n_slots * (size_t)e->text_cap);
}

static int make_scheduler(struct qr_engine *e, struct qr_err *err)
{
    const struct qr_engine_config *c = &e->config;
    struct qr_hash_secret secret;
    if (c->hash_seed)
        qr_hash_secret_seeded(&secret, c->hash_seed);
    else
        qr_hash_secret_random(&secret);
    e->pool = qr_kv_pool_new_tiers(e->limits.n_blocks, e->limits.n_host_blocks, c->block_tokens, c->prefix_cache, &secret);
    qr_kv_pins_open(e->pool, e->limits.n_pinned_max);
    e->salt_secret = secret;
    const struct qr_model_config *m = qr_model_config(e->model);
    const int32_t window = e->limits.n_twins > 0 ? m->window : qr_model_window(m);
    struct qr_sched_config sc = {
        .running_max = c->running_max, .waiting_max = c->waiting_max, .step_tokens_max = c->step_tokens_max,
        .chunk_tokens_max = c->chunk_tokens_max, .logit_rows_max = c->logit_rows_max, .ctx_max = e->limits.ctx_max, .preempt_max = 4,
        .watermark_blocks = e->limits.n_blocks / 100, .policy = c->policy, .window = window < e->limits.ctx_max ? window : 0,
        .n_twins = e->limits.n_twins};
    int rc = qr_sched_new(&e->sched, &sc, e->pool, err);
    if (rc == 0)
        qr_plan_init(&e->plan, &sc);
    e->pace = (struct qr_pace){.goal_us = (double)c->itl_goal_us, .firm = c->ttft_goal_us > 0};
    qr_predict_init(&e->predict);
    qr_backlog_init(&e->backlog, e->n_slots);
    qr_deadlines_init(&e->deadlines, e->n_slots);
    return rc;
}

/* The thread that opens the engine reads the tokenizer meanwhile. */
static int await_tokenizer(struct qr_engine *e, struct qr_err *err)
{
    pthread_mutex_lock(&e->open_lock);
    while (!e->tokenizer_given)
        pthread_cond_wait(&e->given, &e->open_lock);
    pthread_mutex_unlock(&e->open_lock);
    return e->tokenizer ? 0 : qr_err_set(err, QR_E_CLOSED, "there is no tokenizer");
}

/* The step's memory and the cache's size, as all ranks will have them. */
static int plan_memory(struct qr_engine *e, size_t *act_bytes, struct qr_err *err)
{
    const struct qr_engine_config *c = &e->config;
    struct qr_comm *comm = qr_model_comm(e->model);
    struct qr_model_config mine = *qr_model_config(e->model);
    mine.n_kv_heads = qr_model_share(e->model)->own.n_kv_heads;
    int rc = comm ? qr_comm_barrier(comm, err) : 0; /* all weights are in */
    if (rc != 0)
        return rc;
    *act_bytes = qr_model_act_bytes(e->model, c->step_tokens_max, c->logit_rows_max);
    rc = qr_adapters_open(e, act_bytes, err);
    if (rc != 0)
        return rc;
    rc = qr_engine_plan(&e->limits, c, &mine, qr_model_kv_dtype(e->model), qr_model_weight_bytes(e->model) + c->draft.weight_bytes, (int64_t)*act_bytes,
                        qr_engine_available(c, e->be, qr_engine_sharing(e)), err);
    if (rc != 0)
        return rc;
    struct qr_engine_agreed a = {.n_blocks = e->limits.n_blocks, .n_host_blocks = e->limits.n_host_blocks, .block_tokens = c->block_tokens,
                                 .step_tokens = c->step_tokens_max, .logit_rows = c->logit_rows_max};
    e->limits.lora_bytes = qr_engine_lora_bytes(c, &qr_model_share(e->model)->own, qr_model_share(e->model)->size, qr_model_weight_dtype(e->model));
    e->limits.weight_dtype = qr_model_weight_dtype(e->model);
    e->limits.on_host = e->be->mem->host;
    e->limits.tuned_shapes = qr_tune_count(e->be->tune);
    e->limits.n_ranks = qr_model_share(e->model)->size;
    return qr_engine_agree(comm, &a, err);
}

/* What does not fit is refused before it is loaded. Of several ranks, some may have loaded their part by now: only this
 * one's is counted. */
static int foresee(void *user, const struct qr_model_plan *plan, struct qr_err *err)
{
    const struct qr_engine *e = user;
    struct qr_engine_limits limits;
    const int rc = qr_engine_host_room(&e->config, qr_engine_local_ranks(e->model_options->comm), err);
    struct qr_model_options options = *e->model_options;
    options.ctx_max = e->config.ctx_max;
    const struct qr_engine_opening of = {e->dir, e->be, &options};
    return rc ? rc : qr_engine_foresee_opening(&limits, &e->config, plan, &of, qr_engine_available(&e->config, e->be, 1), err);
}

int qr_engine_make(struct qr_engine *e, struct qr_err *err)
{
    QR_ASSERT(e != NULL && err != NULL);
    const struct qr_engine_config *c = &e->config;
    struct qr_backend_options options = *e->backend_options;
    options.step_rows_max = c->step_tokens_max;
    qr_comm_place(e->model_options->comm, &options.rank, &options.n_ranks);
    qr_engine_config_fit(&e->config);
    struct qr_model_options model_options = *e->model_options;
    model_options.ctx_max = c->ctx_max;
    model_options.admit = foresee;
    model_options.admit_user = e;
    model_options.plan_tokens = c->step_tokens_max;
    model_options.plan_logits = c->logit_rows_max;
    qr_pages_start(&e->pages); /* before the backend pins this thread */
    int rc = qr_backend_open(&e->be, &options, err);
    e->config.split = rc == 0 && qr_engine_may_split(c, e->be, options.n_ranks);
    rc = rc ? rc : qr_adapters_check(c, e->be, err);
    rc = rc ? rc : qr_engine_check_outside(c, options.n_ranks > 1 ? options.n_ranks : 1, err);
    if (rc == 0 && c->draft_model)
        rc = qr_draft_model_size(&e->config.draft, c, e->be, e->model_options, err);
    if (rc == 0)
        rc = qr_model_open(&e->model, e->dir, e->be, &model_options, err);
    if (rc == 0)
        rc = await_tokenizer(e, err);
    if (rc == 0 && c->draft_model)
        rc = qr_draft_model_open(&e->draft_model, c, e->be, e->model_options, e->tokenizer, err);
    if (rc != 0)
        return rc;
    qr_model_default_eos(e->model, qr_tokenizer_eos(e->tokenizer));
    if (options.tune == QR_TUNE_NOW)
        qr_model_tune_and_save(e->model, e->be, c->step_tokens_max);
    qr_model_prepare(e->model, e->be, c->step_tokens_max, c->logit_rows_max);
    size_t act_bytes = 0;
    rc = qr_engine_host_room(&e->config, qr_engine_local_ranks(qr_model_comm(e->model)), err); /* which weights have taken some of */
    if (rc == 0)
        rc = plan_memory(e, &act_bytes, err);
    if (rc == 0)
        rc = make_scheduler(e, err);
    if (rc != 0)
        return rc;
    e->kv = qr_model_kv_view(e->model, NULL, e->limits.n_blocks, c->block_tokens);
    qr_kv_split_of(&e->split, qr_model_config(e->model));
    e->kv.n_layers = e->limits.n_twins > 0 ? e->split.n_layers : e->kv.n_layers;
    const size_t kv_bytes = (size_t)e->limits.n_blocks * qr_kv_block_bytes(&e->kv);
    e->kv.base = e->kv_mem = e->be->mem->alloc(kv_bytes);
    e->act_mem = qr_model_act_alloc(e->model, e->be, act_bytes);
    qr_backend_spread(e->be, e->kv_mem, kv_bytes);
    qr_backend_populate(e->be);
    if (e->be->mem->host)
        qr_pages_watch(&e->pages, e->kv_mem, kv_bytes);
    else if (!qr_ahead_can(e->be, qr_model_config(e->model))) {
        e->logits = e->be->mem->host_alloc((size_t)c->logit_rows_max * (size_t)qr_model_config(e->model)->n_vocab * sizeof *e->logits);
        e->hidden = e->be->mem->host_alloc((size_t)c->logit_rows_max * (size_t)qr_model_config(e->model)->n_embd * sizeof *e->hidden);
    }
    qr_arena_init_fixed(&e->act, e->act_mem, act_bytes);
    qr_exec_init(&e->exec, e->model, e->be, &e->act, &e->kv);
    e->exec.lora = e->adapters.lora;
    e->exec.split = e->limits.n_twins > 0 ? &e->split : NULL;
    e->exec.beat_us = &e->progress_us;
    qr_tier_open(e);
    if (e->draft_model)
        qr_draft_model_begin(e->draft_model, &e->limits, e->n_slots);
    qr_exec_join(&e->exec);
    qr_lower_init(&e->lower, c->step_tokens_max, c->running_max, c->logit_rows_max, e->limits.ctx_max, c->block_tokens, c->lora_slots,
                  qr_kv_twins(e->pool));
    e->split.slot_part = e->lower.tokens_max;
    e->split.table_part = e->lower.table_part;
    qr_rows_init(&e->rows, e->be, qr_model_config(e->model), c->logit_rows_max);
    e->lower.batch.logit_scale = e->rows.scale;
    qr_masks_init(&e->masks, e->be, qr_model_config(e->model), qr_engine_draws_max(c));
    if (qr_ahead_can(e->be, qr_model_config(e->model)))
        qr_ahead_init(&e->ahead, e->be, qr_model_config(e->model), &e->masks, c->logit_rows_max);
    e->limits.no_embeddings = qr_pool_why_not(e->model);
    qr_speculate_open(e);
    make_events(e);
    e->limits.scratch_bytes = (int64_t)qr_backend_scratch_bytes(e->be);
    e->limits.table_bytes = qr_engine_table_bytes(&e->limits, c, e->tokenizer, e->be->n_threads);
    return qr_outside_open(e, err);
}

void qr_engine_unmake(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    qr_pages_stop(&e->pages);
    qr_outside_free(e);
    qr_backlog_release(&e->backlog);
    qr_deadlines_release(&e->deadlines);
    qr_ahead_release(&e->ahead);
    qr_speculate_close(e);
    qr_masks_release(&e->masks);
    qr_rows_release(&e->rows);
    qr_lower_release(&e->lower);
    qr_exec_release(&e->exec);
    if (e->sched) {
        qr_plan_release(&e->plan);
        qr_sched_free(e->sched);
    }
    if (e->pool)
        qr_kv_pool_free(e->pool);
    if (e->logits)
        e->be->mem->host_free(e->logits);
    if (e->hidden)
        e->be->mem->host_free(e->hidden);
    qr_tier_close(e);
    if (e->kv_mem)
        e->be->mem->free(e->kv_mem);
    qr_model_act_free(e->model, e->be, e->act_mem);
    qr_draft_model_close(e->draft_model);
    qr_free(e->slot);
    qr_free(e->text);
    qr_adapters_close(&e->adapters);
    qr_model_close(e->model);
    qr_backend_close(e->be);
}
