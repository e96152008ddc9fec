/* What the engine thread counts: latencies, lengths, and the ledger of requests. */
#include <math.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/exchange.h"
#include "engine/internal.h"

#define BACKLOG_NS 100000000
#define REST_READS 16384 /* of a step's rows of prompts where peers compute prompts: four rows of what is left of 4,096 tokens */

void qr_count_end(struct qr_engine *e, const struct qr_slot *s, int64_t now)
{
    struct qr_stats *st = &e->stats;
    const struct qr_request *r = s->req;
    const enum qr_finish finish = s->out.finish;
    uint64_t *const ended = finish == QR_FINISH_ERROR ? &st->n_failed : finish == QR_FINISH_CANCEL ? &st->n_cancelled
                                                    : finish == QR_FINISH_STOP ? &st->n_done_stop : &st->n_done_length;
    ++*ended;
    st->n_late[r->late] += finish == QR_FINISH_ERROR;
    st->n_inside--;
    if (finish == QR_FINISH_STOP || finish == QR_FINISH_LENGTH)
        qr_backlog_answer(&e->backlog, r->n_output_most);
    qr_hist_add(&st->e2e, (double)(now - r->arrived_us) * 1e-6);
    qr_hist_add(&st->output_most, r->n_output_most);
    if (r->admitted_us > 0)
        qr_hist_add(&st->inference_time, (double)(now - r->admitted_us) * 1e-6);
    if (r->first_token_us > 0)
        qr_hist_add(&st->decode_time, (double)(now - r->first_token_us) * 1e-6);
    if (r->first_token_us > 0 && s->out.n_output > 1)
        qr_hist_add(&st->tpot, (double)(now - r->first_token_us) * 1e-6 / (s->out.n_output - 1));
}

void qr_count_token(struct qr_engine *e, struct qr_slot *s, int64_t now)
{
    struct qr_stats *st = &e->stats;
    struct qr_request *r = s->req;
    st->output_tokens++;
    if (r->first_token_us == 0) {
        r->first_token_us = now;
        qr_hist_add(&st->ttft, (double)(now - r->arrived_us) * 1e-6);
        qr_hist_add(&st->ttft_fine, (double)(now - r->arrived_us) * 1e-6);
    }
    if (s->last_token_us != 0) {
        qr_hist_add(&st->itl, (double)(now - s->last_token_us) * 1e-6);
        qr_hist_add(&st->itl_fine, (double)(now - s->last_token_us) * 1e-6);
    }
    s->last_token_us = now;
}

/* The prompt is in the cache: what the queue and the prefix cache did for this request (its first choice stands for all). */
void qr_count_prompt(struct qr_engine *e, struct qr_slot *s, const struct qr_seq *seq, int64_t now)
{
    struct qr_stats *st = &e->stats;
    struct qr_request *r = s->req;
    st->prompt_tokens += (uint64_t)seq->n_prompt;
    st->cached_tokens += (uint64_t)seq->n_cached;
    r->n_cached = seq->n_cached;
    qr_outside_count(e, r);
    r->admitted_us = seq->admitted_us;
    qr_hist_add(&st->computed_len, seq->n_prompt - seq->n_cached);
    qr_hist_add(&st->queue, (double)(seq->admitted_us - r->arrived_us) * 1e-6);
    qr_hist_add(&st->prefill_time, (double)(now - seq->admitted_us) * 1e-6);
}

struct qr_backlog_steps qr_engine_steps(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->limits.n_blocks > 0);
    return (struct qr_backlog_steps){.predict = &e->predict, .pace = &e->pace, .lately = e->lately, .running_max = e->config.running_max,
                                     .tokens_max = e->config.step_tokens_max, .kv_tokens = (int64_t)e->limits.n_blocks * e->limits.block_tokens};
}

void qr_limit_step(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->sched != NULL);
    const int32_t n_decode = qr_sched_n_decode(e->sched);
    qr_sched_limit_mixed(e->sched, qr_pace_tokens(&e->pace, &e->predict, &e->lately, n_decode, qr_sched_prompt_tokens(e->sched)));
    qr_sched_limit_reads(e->sched, qr_outside_is_fed(e) ? REST_READS : INT64_MAX);
    qr_sched_limit_chunk(e->sched, qr_engine_role(e) == QR_ROLE_PREFILL ? e->config.step_tokens_max : e->config.chunk_tokens_max);
    qr_sched_limit_running(e->sched, qr_pace_running(&e->pace, &e->predict, &e->lately, e->config.running_max));
}

void qr_count_step(struct qr_engine *e, const struct qr_step_size *size, int64_t started, int64_t now)
{
    const int32_t n_said = size->n_seqs + e->speculation.n_more; /* of a sequence that decodes: its draw, and more */
    const double us = (double)(now - started);
    struct qr_stats *st = &e->stats;
    st->n_steps++;
    st->step_us_total += (uint64_t)(now - started);
    qr_hist_add(&st->step_fine, us * 1e-6);
    qr_hist_add(&st->step_tokens, size->n_prompt + size->n_decode);
    atomic_store(&e->progress_us, now);
    e->told_prompt = size->n_prompt;
    e->told_decode = size->n_decode;
    qr_step_size_note(&e->lately, size);
    const double predicted = qr_predict_note(&e->predict, size, us);
    if (predicted > 0)
        qr_hist_add(&st->step_missed, fabs(predicted - us) / us);
    qr_backlog_said(&e->backlog, size->n_seqs, n_said);
    if (e->speculation.draft && size->n_prompt == 0)
        qr_draft_step(e->speculation.draft, size->n_decode, us - (double)e->speculation.model_us);
}

/* A walk over all sequences: ten times a second at most. */
static void estimate_backlog(struct qr_engine *e)
{
    if (e->stats.n_inside > 0 && e->marked_ns - e->backlog_ns < BACKLOG_NS)
        return;
    const struct qr_backlog_steps steps = qr_engine_steps(e);
    e->backlog_ns = e->marked_ns;
    qr_backlog_cache(&e->backlog, &e->stats.kv);
    e->stats.backlog_s = qr_backlog_look(&e->backlog, e->sched, &steps, NULL) * 1e-6;
    e->stats.prompt_token_s = qr_backlog_prompt_token_us(&steps, e->sched) * 1e-6;
}

void qr_publish_stats(struct qr_engine *e)
{
    qr_sched_stats(e->sched, &e->stats.sched);
    qr_kv_pool_stats(e->pool, &e->stats.kv);
    estimate_backlog(e);
    pthread_mutex_lock(&e->stats_lock);
    e->stats_out = e->stats;
    pthread_mutex_unlock(&e->stats_lock);
}
