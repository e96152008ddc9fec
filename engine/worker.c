/* worker.c - the engine thread: receive, plan, lower, forward, sample, commit, output. Nothing here allocates once
 * open. A step is step_at_once, or step_ahead on a device that samples. Requests come from the inbox and are owned here
 * until their last event; a step starts only when the pool has events for all that it may say. Everything said goes out
 * under one lock with one wake. A lost rank or a failed device ends all requests with an error. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/internal.h"
#include "engine/pooling.h"
#include "model/ranks.h"

#define EVENTS_WAIT_US 50000  /* how long a step waits for the receiver to give events back before it looks around again */
#define PING_US 500000        /* without a step for so long, rank 0 asks whether the others are there */
#define STUCK_WAIT_US 10000   /* work, but nothing runnable: only a deadline or a cancel can change that */

/* ---- events ---- */

static void collect_recycled(struct qr_engine *e, int64_t wait_us)
{
    struct qr_node got;
    qr_list_init(&got);
    e->n_free_events += wait_us > 0 ? qr_mailbox_wait(&e->recycled, &got, wait_us) : qr_mailbox_take(&e->recycled, &got);
    qr_list_splice_back(&e->free_events, &got);
}

static struct qr_event *next_event(struct qr_engine *e, const struct qr_slot *s)
{
    QR_ASSERT(e->n_free_events > 0);
    e->n_free_events--;
    struct qr_event *ev = QR_CONTAINER(qr_list_pop_front(&e->free_events), struct qr_event, link);
    ev->req = s->req;
    ev->choice = s->choice;
    ev->last = false;
    ev->finish = QR_FINISH_NONE;
    ev->stop_index = ev->stop_id = -1;
    ev->n_tokens = 0;
    ev->n_output = s->out.n_output;
    ev->text_len = 0;
    return ev;
}

/* The choice has finished: its blocks go back, and after its event nothing here touches the request again. */
static void release_slot(struct qr_engine *e, int32_t index, struct qr_event *ev, int64_t now)
{
    struct qr_slot *s = &e->slot[index];
    struct qr_request *r = s->req;
    qr_speculate_end(e, index, s->out.finish != QR_FINISH_ERROR);
    qr_sched_finish(e->sched, index);
    qr_ahead_drop(&e->ahead, index);
    qr_hist_add(&e->stats.output_len, s->out.n_output);
    r->n_output_all += (uint64_t)s->out.n_output;
    r->n_output_most = s->out.n_output > r->n_output_most ? s->out.n_output : r->n_output_most;
    r->n_reasoning[s->choice] = s->guide.n_thought;
    r->n_accepted[s->choice] = s->n_accepted;
    r->n_rejected[s->choice] = s->n_rejected;
    qr_guide_release(&s->guide);
    if (--r->n_open == 0) {
        qr_count_end(e, s, now);
        const bool computed = r->first_token_us > 0 || s->out.finish == QR_FINISH_LENGTH; /* without a token: embeddings, scores of a prompt */
        qr_adapters_give_back(&e->adapters, r, computed ? (uint64_t)r->n_prompt : 0, r->n_output_all, qr_ahead_flies(&e->ahead));
    }
    ev->finish = s->out.finish;
    ev->stop_index = s->out.stop_index;
    ev->stop_id = s->out.stop_id;
    ev->last = r->n_open == 0;
    *s = (struct qr_slot){0};
    atomic_fetch_sub(&e->n_reserved, 1);
}

/* A request without a receiver. */
static void end_unheard(struct qr_engine *e, int32_t index, int64_t now)
{
    struct qr_request *r = e->slot[index].req;
    struct qr_event unheard QR_UNINITIALIZED;
    QR_ASSERT(r->n_open == 1 && e->slot[index].out.finish != QR_FINISH_NONE);
    release_slot(e, index, &unheard, now);
    qr_request_free(r);
}

/* Sends what the choice has to say: a token (may be NULL) and all certain text, in as many events as the text takes. */
static void say(struct qr_engine *e, int32_t index, const struct qr_token_logprob *token, int64_t now)
{
    struct qr_slot *s = &e->slot[index];
    if (s->req->internal) {
        end_unheard(e, index, now);
        return;
    }
    for (bool more = true; more;) {
        struct qr_event *ev = next_event(e, s);
        if (token)
            qr_token_logprob_copy(&ev->token[ev->n_tokens++], token);
        token = NULL;
        ev->text_len = qr_output_take(&s->out, ev->text, QR_EVENT_TEXT);
        more = s->out.n_certain > 0;
        if (!more && s->out.finish != QR_FINISH_NONE)
            release_slot(e, index, ev, now);
        qr_list_push_back(&e->said, &ev->link);
        e->n_said++;
    }
}

static void ring(void *arg)
{
    qr_mailbox_ring(arg);
}

/* Hands over what was said since the last time: one lock and one wake of the receiver for a whole step, a system call of 10 to 30 us: another thread's. */
static void tell(struct qr_engine *e)
{
    bool to_ring = false;
    if (e->n_said > 0 && !qr_mailbox_push_list(&e->outbox, &e->said, e->n_said, &to_ring))
        qr_panic("the outbox was closed under the engine");
    e->n_said = 0;
    if (to_ring)
        qr_backend_errand(e->be, ring, &e->outbox);
}

static void end_slot(struct qr_engine *e, int32_t index, enum qr_finish finish, int64_t now)
{
    QR_ASSERT(finish != QR_FINISH_ERROR || e->slot[index].req->err.code != QR_OK);
    if (qr_outside_keeps(e, index)) {
        atomic_store(&e->to_reap, true);
        return;
    }
    qr_outside_drop(e, index);
    qr_output_end(&e->slot[index].out, finish);
    say(e, index, NULL, now);
}

/* ---- receive ---- */

/* Whose prefix cache: an adapter's keys and values are its own, of its files, not of its name. */
static struct qr_hash128 chain_start(const struct qr_engine *e, const struct qr_request *r)
{
    const struct qr_hash128 both[2] = {r->salt, r->adapter_hash};
    return r->adapter_slot < 0 ? r->salt : qr_hash128_keyed(both, sizeof both, &e->salt_secret);
}

/* Puts one choice into the scheduler, and returns where. The place was reserved at submit, so only a prompt that can never run is refused. */
static int32_t admit_choice(struct qr_engine *e, struct qr_request *r, int32_t choice, int32_t group, bool held, int64_t now)
{
    const bool all_rows = r->pooling > QR_POOLING_LAST || (r->sampling.n_prompt_logprobs >= 0 && choice == 0);
    struct qr_sched_add add = {.id = r->id, .ids = r->ids[choice], .n_prompt = r->n_prompt, .new_max = r->sampling.max_tokens,
                               .priority = r->priority, .group = group, .leader = choice == 0,
                               .prompt_logits = all_rows, .now_us = now, .client = r->client, .salt = chain_start(e, r),
                               .adapter = r->adapter_slot + 1, .about = qr_note_about(r), .hidden = r->pooling != QR_POOLING_NONE,
                               .new_min = qr_request_draws_min(r), .root = r->root, .held = held};
    struct qr_err err;
    int32_t index = qr_sched_add(e->sched, &add, &err);
    if (index < 0)
        qr_panic("the scheduler refused a request that was checked: %s", err.msg);
    struct qr_slot *s = &e->slot[index];
    QR_ASSERT(s->req == NULL);
    *s = (struct qr_slot){.req = r, .choice = choice};
    qr_guide_init(&s->guide, r);
    qr_speculate_begin(e, index);
    qr_output_init(&s->out, e->text + (size_t)index * (size_t)e->text_cap, r, choice, e->tokenizer);
    return index;
}

static void admit(struct qr_engine *e, struct qr_request *r, int64_t now)
{
    qr_deadlines_note(e, r);
    if (atomic_load(&r->cancelled)) /* while it was in the inbox */
        atomic_store(&e->to_reap, true);
    int32_t group = r->n_choices > 1 ? e->next_group++ & INT32_MAX : -1;
    e->stats.n_accepted++;
    e->stats.n_inside++;
    qr_hist_add(&e->stats.prompt_len, r->n_prompt);
    qr_hist_add(&e->stats.choices, r->n_choices);
    qr_hist_add(&e->stats.asked_len, r->sampling.max_tokens);
    const bool held = qr_outside_enter(e, r);
    int32_t first = -1;
    for (int32_t c = 0; c < r->n_choices; c++) {
        const int32_t index = admit_choice(e, r, c, group, held, now);
        first = c == 0 ? index : first;
    }
    if (held)
        qr_outside_begin(e, r, first, now);
    else
        qr_deadlines_enter(e, r, now);
}

static void receive(struct qr_engine *e, int64_t wait_us)
{
    struct qr_node got, *node;
    qr_list_init(&got);
    if (wait_us != 0)
        qr_mailbox_wait(&e->inbox, &got, wait_us);
    else
        qr_mailbox_take(&e->inbox, &got);
    int64_t now = qr_clock_us();
    while ((node = qr_list_pop_front(&got)))
        admit(e, QR_CONTAINER(node, struct qr_request, link), now);
}

/* Ends choices whose request was cancelled or is past its deadline, and all when a rank is lost, as far as there are events to say so. Requests are
 * checked only when one of these may be. */
static void reap(struct qr_engine *e, int64_t now)
{
    int32_t i = 0;
    if (!atomic_load(&e->to_reap) && now <= e->reap_us && !atomic_load(&e->lost))
        return;
    atomic_store(&e->to_reap, false);
    e->reap_us = INT64_MAX;
    qr_deadlines_find_begun(e);
    for (; i < e->n_slots && e->n_free_events >= e->events_per_choice; i++) {
        struct qr_request *r = e->slot[i].req;
        if (!r)
            continue;
        if (atomic_load_explicit(&r->cancelled, memory_order_relaxed))
            end_slot(e, i, QR_FINISH_CANCEL, now);
        else if (atomic_load_explicit(&e->lost, memory_order_relaxed)) {
            if (r->err.code == QR_OK)
                qr_err_set(&r->err, QR_E_CLOSED, QR_ENGINE_LOST_TEXT);
            end_slot(e, i, QR_FINISH_ERROR, now);
        } else if (r->deadline_us != 0 && now > r->deadline_us) {
            if (r->err.code == QR_OK) /* set once: behind the first error event the receiver may read it */
                qr_err_set(&r->err, QR_E_BUSY, "the request was not finished within its time limit of %.1f s",
                           (double)(r->deadline_us - r->arrived_us) * 1e-6);
            end_slot(e, i, QR_FINISH_ERROR, now);
        } else if (qr_deadlines_is_late(r, now))
            end_slot(e, i, QR_FINISH_ERROR, now);
        else
            qr_deadlines_note(e, r);
    }
    if (i < e->n_slots)
        atomic_store(&e->to_reap, true);
}

/* ---- one step ---- */

/* To where the sampler may read and write them. */
static void bring(struct qr_engine *e, struct qr_tensor *rows, float *to)
{
    if (e->be->mem->host || !rows->data || rows->shape[0] == 0)
        return;
    QR_ASSERT(rows->stride[0] == rows->shape[1]);
    e->be->mem->get(e->be->queue, to, rows->data, (size_t)qr_tensor_count(rows) * sizeof *to);
    rows->data = to;
}

/* The drawn token goes into the choice's guide; an error: there is none, or the grammar cannot follow it. */
static int take_token(struct qr_engine *e, struct qr_slot *s, const struct qr_row *row, struct qr_err *err)
{
    const struct qr_sampling *p = &s->req->sampling;
    const struct qr_model_config *mc = e->rows.model;
    bool ends = false;
    if (row->failed)
        *err = *qr_masks_error(&e->masks, row);
    else if (!row->finite && (p->n_allowed > 0 || p->n_bad > 0))
        qr_err_at(err, QR_E_INVALID, p->n_allowed > 0 ? "allowed_token_ids" : "bad_words",
                  "no token is left to choose: allowed_token_ids, bad_words and min_tokens forbid them all");
    else if (!row->finite)
        qr_err_set(err, QR_E_INTERNAL, "the model's output is not a number");
    if (err->code != QR_OK)
        return err->code;
    for (int32_t i = 0; i < mc->n_eos; i++)
        ends = ends || mc->eos_ids[i] == row->token.id;
    return qr_guide_take(&s->guide, &s->req->thinking, s->req->ids[s->choice] + s->req->n_prompt, s->out.n_output + 1, ends, err);
}

/* Tells what was drawn: scheduler, text, event. */
static void use_token(struct qr_engine *e, const struct qr_row *row, int64_t now)
{
    struct qr_slot *s = &e->slot[row->index];
    const struct qr_model_config *mc = e->rows.model;
    struct qr_err why = {0};
    if (take_token(e, s, row, &why) != 0) {
        if (s->req->err.code == QR_OK) /* set once: behind the first error event the receiver may read it */
            s->req->err = why;
        end_slot(e, row->index, QR_FINISH_ERROR, now);
        return;
    }
    qr_count_token(e, s, now);
    qr_output_push(&s->out, s->req, row->token.id, mc->eos_ids, mc->n_eos, e->limits.ctx_max);
    if (s->req->grammar && mc->n_eos == 0 && s->out.finish == QR_FINISH_NONE && qr_matcher_done(&s->guide.matcher))
        qr_output_end(&s->out, QR_FINISH_STOP);
    say(e, row->index, &row->token, now);
}

/* The row joins its embedding, which ends with the prompt's last one. */
static void use_hidden(struct qr_engine *e, const struct qr_row *row, int64_t now)
{
    struct qr_request *r = e->slot[row->index].req;
    const int32_t n_prompt = row->seq->n_prompt;
    qr_pool_row(r, row->hidden, row->pos);
    if (row->pos + 1 < n_prompt)
        return;
    if (row->first)
        qr_count_prompt(e, &e->slot[row->index], row->seq, now);
    if (qr_pool_end(r)) {
        end_slot(e, row->index, QR_FINISH_LENGTH, now);
        return;
    }
    qr_err_set(&r->err, QR_E_INTERNAL, "the model's output is not a number");
    end_slot(e, row->index, QR_FINISH_ERROR, now);
}

static void use_row(struct qr_engine *e, const struct qr_row *row, int64_t now)
{
    if (row->kind == QR_ROW_HIDDEN)
        use_hidden(e, row, now);
    if (row->kind == QR_ROW_PROMPT || row->kind == QR_ROW_HIDDEN)
        return;
    if (row->first)
        qr_count_prompt(e, &e->slot[row->index], row->seq, now);
    if (row->kind == QR_ROW_DRAW)
        use_token(e, row, now);
    else
        end_slot(e, row->index, qr_pins_end(e, row->index, now), now);
}

/* Says what the choice must say next without logits: the same as a mask of one id would draw. */
static void use_forced(struct qr_engine *e, int32_t index, int64_t now)
{
    const struct qr_slot *s = &e->slot[index];
    struct qr_row row = {.index = index, .finite = true};
    for (int32_t n = 0; n < QR_FORCED_MAX && s->req && e->n_free_events >= e->events_per_choice; n++) {
        row.token.id = qr_forced_id(s->req, &e->slot[index].guide, s->req->ids[s->choice] + s->req->n_prompt, s->out.n_output);
        if (row.token.id < 0)
            return;
        qr_sched_force(e->sched, index, row.token.id);
        e->speculation.n_more++;
        use_token(e, &row, now);
    }
}

/* A step whose ids are all known. What comes behind a guess that was wrong, or behind the end of a choice, was computed in vain. */
static void use_rows(struct qr_engine *e, const struct qr_row *first, int32_t n, int64_t now)
{
    bool goes_on = false;
    for (const struct qr_row *row = first; row < first + n; row++) {
        if (row->kind == QR_ROW_DRAW && row->guess > 0 && !goes_on)
            continue;
        goes_on = row->kind == QR_ROW_DRAW && qr_speculate_push(e, row);
        use_row(e, row, now);
        goes_on = goes_on && e->slot[row->index].req;
    }
    for (int32_t i = 0; i < n && e->speculation.tokens_max > 0; i++)
        if (first[i].kind == QR_ROW_DRAW && first[i].guess == 0)
            use_forced(e, first[i].index, now);
    qr_speculate_done(e); /* before a receiver may have its grammars again */
    tell(e);
}

/* Time since the last mark, in ns, goes to `part`. */
static void mark(struct qr_engine *e, enum qr_step_part part)
{
    int64_t now_ns = qr_clock_ns();
    e->stats.part_ns[part] += now_ns - e->marked_ns;
    e->marked_ns = now_ns;
}

/* Whether a rank is gone: what was computed means nothing, and requests end when the engine looks around next. */
static bool lose(struct qr_engine *e)
{
    if (!qr_exec_lost(&e->exec, &e->lost_err))
        return false;
    atomic_store(&e->lost, true);
    qr_adapters_end(&e->adapters);
    qr_log_text(QR_LOG_ERROR, "engine", "a rank is lost, all requests end", "reason", e->lost_err.msg);
    if (e->wake)
        e->wake(e->wake_arg);
    return true;
}

/* Plans the next step; false: no sequence runs. */
static bool plan_step(struct qr_engine *e, int64_t now)
{
    qr_limit_step(e);
    const bool any = qr_sched_plan(e->sched, &e->plan, now);
    qr_tier_move(e);
    mark(e, QR_PART_PLAN);
    return any;
}

/* Copy-on-write, before the forward. */
static void copy_blocks(struct qr_engine *e)
{
    for (int32_t i = 0; i < e->plan.n_copies; i++)
        qr_model_kv_copy(&e->exec, e->plan.copy[i].src, e->plan.copy[i].dst);
    if (e->draft_model)
        qr_draft_model_follow(e->draft_model, &e->plan, e->sched);
}

static void fill_masks(struct qr_engine *e, struct qr_row *row, int32_t n, const bool *dropped)
{
    qr_masks_fill(&e->masks, row, n, dropped);
    mark(e, QR_PART_MASK);
}

/* The host samples: it reads logits when they are there. */
static bool step_at_once(struct qr_engine *e)
{
    const int64_t started = qr_clock_us();
    if (qr_speculate_ask(e))
        qr_speculate_plan(e);
    if (!plan_step(e, started)) {
        qr_speculate_done(e);
        return false;
    }
    const struct qr_batch *batch = qr_lower(&e->lower, &e->plan, e->sched);
    qr_want_rows(e);
    qr_masks_begin(&e->masks, e->rows.row, e->rows.n, false);
    mark(e, QR_PART_LOWER);
    copy_blocks(e);
    if (e->be->mem->host)
        qr_pages_used(&e->pages, (size_t)qr_kv_pool_ever_used(e->pool) * qr_kv_block_bytes(&e->kv));
    struct qr_tensor logits = qr_model_forward(&e->exec, batch);
    mark(e, QR_PART_MODEL);
    fill_masks(e, e->rows.row, e->rows.n, NULL);
    bring(e, &logits, e->logits);
    bring(e, &e->exec.hidden, e->hidden);
    mark(e, QR_PART_WAIT);
    if (lose(e)) {
        qr_sched_commit(e->sched, &e->plan);
        qr_speculate_done(e);
        return true;
    }
    qr_find_rows(e, &logits);
    qr_rows_compute(&e->rows);
    mark(e, QR_PART_SAMPLE);
    qr_sched_commit(e->sched, &e->plan);
    use_rows(e, e->rows.row, e->rows.n, qr_clock_us());
    mark(e, QR_PART_OUTPUT);
    const struct qr_step_size size = qr_step_size_of(&e->plan);
    qr_count_step(e, &size, started, qr_clock_us());
    return true;
}

/* ---- a device that draws: the next step is launched before the last one's ids are known (ahead.h) ---- */

static void swap_rows(struct qr_engine *e, struct qr_flight *f)
{
    struct qr_row *row = f->row;
    f->row = e->rows.row;
    f->n = e->rows.n;
    e->rows.row = row;
}

/* Launches the planned step's forward. False: its draws have to wait for masks, which want to know what the step before has drawn. */
static bool launch(struct qr_engine *e, int64_t now)
{
    struct qr_flight *f = &e->ahead.flight[e->ahead.next];
    (void)qr_lower(&e->lower, &e->plan, e->sched);
    if (e->plan.n_prefill + e->plan.n_checked == 0 && e->be->mem->record_begin)
        qr_lower_fill_up(&e->lower);
    qr_want_rows(e);
    swap_rows(e, f);
    f->size = qr_step_size_of(&e->plan);
    f->started_us = now;
    const bool masked = qr_masks_begin(&e->masks, f->row, f->n, true) > 0;
    qr_ahead_tell(&e->ahead, &e->lower.batch.draws);
    e->lower.batch.drawn = e->ahead.drawn;
    mark(e, QR_PART_LOWER);
    copy_blocks(e);
    const struct qr_tensor logits = qr_model_forward(&e->exec, &e->lower.batch);
    qr_ahead_fly(&e->ahead, &logits);
    if (!masked)
        qr_ahead_launch(&e->ahead, &e->exec);
    mark(e, QR_PART_MODEL);
    return !masked;
}

/* While the forward computes. */
static void launch_draws(struct qr_engine *e, struct qr_flight *f)
{
    fill_masks(e, f->row, f->n, f->dropped);
    qr_ahead_launch(&e->ahead, &e->exec);
    mark(e, QR_PART_MODEL);
}

/* The step that was launched is part of the scheduler's world, its tokens with names only: what row i of it draws is -1 - i. */
static void commit_launched(struct qr_engine *e, const struct qr_flight *f)
{
    qr_sched_commit(e->sched, &e->plan);
    for (int32_t i = 0; i < f->n; i++)
        if (f->row[i].kind == QR_ROW_DRAW)
            qr_sched_push(e->sched, f->row[i].index, -1 - i);
}

/* Ids take the place of their names. Blocks of ids are hashed later. */
static void name_ids(const struct qr_flight *f)
{
    for (int32_t i = 0; i < f->n; i++) {
        const struct qr_row *row = &f->row[i];
        if (f->dropped[i] || row->kind != QR_ROW_DRAW)
            continue;
        QR_ASSERT(row->req->ids[row->choice][row->pos + 1] == -1 - i);
        row->req->ids[row->choice][row->pos + 1] = row->token.id;
    }
}

/* What came of a step is told. A sequence that ends here may be in the step launched since: what that draws for it is dropped. */
static void use_landed(struct qr_engine *e, const struct qr_flight *f)
{
    const int64_t now = qr_clock_us();
    for (int32_t i = 0; i < f->n; i++)
        if (!f->dropped[i])
            use_row(e, &f->row[i], now);
    tell(e);
    qr_count_step(e, &f->size, f->started_us > e->ahead.landed_us ? f->started_us : e->ahead.landed_us, now);
    e->ahead.landed_us = now;
    mark(e, QR_PART_OUTPUT);
}

/* A device that is found done, though the next step is launched, has waited for that launch: at most since the last wait (qr_stats.unfed_ns). */
static void await(struct qr_engine *e, struct qr_flight *f, bool next_launched)
{
    const int64_t from_ns = e->marked_ns, started_ns = f->started_us * 1000;
    const int64_t since_ns = e->ahead.awaited_ns > started_ns ? e->ahead.awaited_ns : started_ns;
    qr_ahead_await(&e->ahead, f);
    mark(e, QR_PART_WAIT);
    if (next_launched && e->marked_ns - from_ns < QR_WAITED_NS)
        e->stats.unfed_ns += e->marked_ns - since_ns;
    e->ahead.awaited_ns = e->marked_ns;
}

/* The ids of the step in flight become known before another is planned. False: a rank is lost. */
static bool land_first(struct qr_engine *e, struct qr_flight *last)
{
    await(e, last, false);
    qr_adapters_landed(&e->adapters);
    if (lose(e))
        return false;
    qr_ahead_land(&e->ahead, last);
    mark(e, QR_PART_SAMPLE);
    name_ids(last);
    use_landed(e, last);
    return true;
}

/* The planned step has guesses: which of its rows count is not known before its ids are, so it is waited for. Nothing else is in flight. */
static void step_checked(struct qr_engine *e, struct qr_flight *f)
{
    const int64_t started = qr_clock_us();
    if (!launch(e, started))
        launch_draws(e, f);
    await(e, f, false);
    qr_adapters_landed(&e->adapters);
    if (lose(e)) {
        qr_sched_commit(e->sched, &e->plan);
        qr_speculate_done(e);
        return;
    }
    qr_ahead_land(&e->ahead, f);
    mark(e, QR_PART_SAMPLE);
    qr_sched_commit(e->sched, &e->plan);
    e->ahead.landed_us = qr_clock_us();
    use_rows(e, f->row, f->n, e->ahead.landed_us);
    qr_count_step(e, &f->size, started, qr_clock_us());
    mark(e, QR_PART_OUTPUT);
}

static bool step_ahead(struct qr_engine *e)
{
    const int64_t now = qr_clock_us();
    struct qr_flight *next = &e->ahead.flight[e->ahead.next], *last = &e->ahead.flight[(e->ahead.next + 1) % QR_MARKS];
    const bool guessed = qr_speculate_ask(e), first = guessed && last->launched;
    if (first && !land_first(e, last))
        return true;
    if (guessed)
        qr_speculate_plan(e);
    const bool any = plan_step(e, now), landing = last->launched;
    if (e->plan.n_checked > 0 && !landing) {
        step_checked(e, next);
        return true;
    }
    qr_speculate_done(e); /* the plan had no room for guesses */
    const bool late = any && !launch(e, now);
    if (landing) {
        await(e, last, any);
        qr_adapters_landed(&e->adapters); /* the step launched since does not know which sequences had ended */
    }
    if ((any || landing) && lose(e)) {
        if (any)
            qr_sched_commit(e->sched, &e->plan); /* ids have their names only, and are used no more */
        return true;
    }
    if (landing) {
        qr_ahead_land(&e->ahead, last);
        mark(e, QR_PART_SAMPLE);
        name_ids(last);
    }
    if (any)
        commit_launched(e, next);
    if (landing)
        use_landed(e, last);
    if (late)
        launch_draws(e, next);
    return any || landing || first;
}

/* For onlookers: what this turn did, which began when `before` was all that had been done. */
static void record(struct qr_engine *e, int64_t begun_ns, const int64_t before[QR_STEP_PARTS])
{
    struct qr_step_record r = {.begun_us = begun_ns / 1000, .us = (int32_t)((e->marked_ns - begun_ns) / 1000), .n_prompt = e->told_prompt,
                               .n_decode = e->told_decode};
    qr_sched_list(e->sched, QR_SEQ_WAITING, &r.n_waiting);
    for (int i = 0; i < QR_STEP_PARTS; i++)
        r.part_us[i] = (int32_t)((e->stats.part_ns[i] - before[i]) / 1000);
    qr_view_note(e->view, &r);
}

bool qr_engine_step(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    const int64_t begun_ns = e->marked_ns;
    int64_t before[QR_STEP_PARTS];
    memcpy(before, e->stats.part_ns, sizeof before);
    e->told_prompt = e->told_decode = 0;
    const bool ran = e->ahead.be ? step_ahead(e) : step_at_once(e);
    if (ran)
        record(e, begun_ns, before);
    return ran;
}

/* Waits for requests while there is nothing to run; wait_us 0: only looks. */
static void look_around(struct qr_engine *e, int64_t wait_us)
{
    mark(e, QR_PART_REST);
    receive(e, wait_us);
    if (wait_us != 0)
        mark(e, QR_PART_IDLE);
    collect_recycled(e, 0);
    const int64_t now = qr_clock_us();
    qr_deadlines_look(e, now);
    reap(e, now);
    qr_outside_look(e, now);
    qr_pins_release(e, now);
    tell(e);
    qr_backend_errand_end(e->be);
    mark(e, QR_PART_REST);
}

static void run(struct qr_engine *e)
{
    int64_t wait_us = 0;
    e->marked_ns = qr_clock_ns();
    while (!atomic_load(&e->closing)) {
        look_around(e, wait_us);
        qr_look_if_asked(e);
        wait_us = 0;
        const bool sent = qr_adapters_send(e);
        if (e->n_free_events < (qr_engine_draws_max(&e->config) + 1) * e->events_per_choice) {
            collect_recycled(e, EVENTS_WAIT_US);
            mark(e, QR_PART_IDLE);
        } else if (atomic_load(&e->lost) || !qr_engine_step(e)) {
            wait_us = sent ? 0 : e->stats.n_inside > 0 ? STUCK_WAIT_US : e->exec.ranks ? PING_US : qr_pins_wait_us(e);
            wait_us = qr_outside_wait_us(e, wait_us);
            qr_exec_ping(&e->exec, PING_US);
            if (!atomic_load(&e->lost) && lose(e))
                wait_us = 0;
        }
        qr_publish_stats(e);
    }
}

/* Closing: everything that is inside ends as cancelled. A request that no event is left for is freed here. */
static void cancel_all(struct qr_engine *e)
{
    receive(e, 0);
    collect_recycled(e, 0);
    int64_t now = qr_clock_us();
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct qr_request *r = e->slot[i].req;
        if (!r)
            continue;
        if (e->n_free_events >= e->events_per_choice) {
            end_slot(e, i, QR_FINISH_CANCEL, now);
            continue;
        }
        e->slot[i].req = NULL;
        qr_guide_release(&e->slot[i].guide);
        if (--r->n_open == 0)
            qr_request_free(r);
    }
    tell(e);
    qr_backend_errand_end(e->be);
}

void *qr_engine_thread(void *arg)
{
    struct qr_engine *e = arg;
    qr_thread_set_name("quire-engine");
    qr_list_init(&e->free_events);
    qr_list_init(&e->said);
    int rc = qr_engine_make(e, &e->open_err);
    if (rc != 0 && e->model_options->comm)
        qr_comm_abort(e->model_options->comm, e->open_err.msg);
    pthread_mutex_lock(&e->open_lock);
    e->open_state = rc == 0 ? 1 : -1;
    pthread_mutex_unlock(&e->open_lock);
    pthread_cond_signal(&e->opened);
    if (rc == 0) {
        atomic_store(&e->progress_us, qr_clock_us());
        run(e);
        qr_adapters_end(&e->adapters);
        qr_outside_end(e);
        cancel_all(e);
        qr_publish_stats(e);
    }
    qr_engine_unmake(e);
    return NULL;
}
