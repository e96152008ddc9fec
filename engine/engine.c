/* engine.c - the engine as its callers see it: open, submit, take events, cancel, drain, close. A request is checked
 * here against every limit, so the engine thread finds only what it can run. Places are reserved at submit: a full
 * queue is an answer at once. Requests and events cross in two mailboxes; nothing else of the engine is touched by a
 * caller but atomic counters. Any thread may call. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/internal.h"

/* Waits for the engine thread to say that the model is open, or why not. */
static int await_open(struct qr_engine *e)
{
    pthread_mutex_lock(&e->open_lock);
    while (e->open_state == 0)
        pthread_cond_wait(&e->opened, &e->open_lock);
    int state = e->open_state;
    pthread_mutex_unlock(&e->open_lock);
    return state;
}

struct qr_engine *qr_engine_begin(const char *dir, const struct qr_engine_config *config, const struct qr_backend_options *backend,
                                  const struct qr_model_options *model_options, void (*wake)(void *), void *wake_arg)
{
    QR_ASSERT(dir != NULL && config != NULL);
    QR_ASSERT(backend != NULL && model_options != NULL);
    struct qr_engine *e = qr_alloc(1, sizeof *e);
    e->config = *config;
    e->n_slots = config->running_max + config->waiting_max;
    e->dir = dir;
    e->backend_options = backend;
    e->model_options = model_options;
    e->wake = wake;
    e->reap_us = INT64_MAX;
    e->wake_arg = wake_arg;
    pthread_mutex_init(&e->open_lock, NULL);
    pthread_mutex_init(&e->stats_lock, NULL);
    pthread_mutex_init(&e->adapters.lock, NULL);
    pthread_cond_init(&e->adapters.sent, NULL);
    pthread_mutex_init(&e->pins.lock, NULL);
    e->pins.next_us = INT64_MAX;
    pthread_cond_init(&e->opened, NULL);
    pthread_cond_init(&e->given, NULL);
    qr_mailbox_init(&e->inbox, e->n_slots > 0 ? e->n_slots : 1, NULL, NULL);
    qr_mailbox_init(&e->outbox, INT32_MAX, wake, wake_arg);
    qr_mailbox_init(&e->recycled, INT32_MAX, NULL, NULL);
    qr_stats_init(&e->stats);
    qr_stats_init(&e->stats_out);
    e->view = qr_view_new();
    qr_thread_start(&e->thread, qr_engine_thread, e, "the engine");
    return e;
}

int qr_engine_finish(struct qr_engine *e, const struct qr_tokenizer *tokenizer, struct qr_err *err)
{
    QR_ASSERT(e != NULL && err != NULL);
    QR_ASSERT(e->tokenizer == NULL && !e->tokenizer_given);
    pthread_mutex_lock(&e->open_lock);
    e->tokenizer = tokenizer;
    e->tokenizer_given = true;
    pthread_mutex_unlock(&e->open_lock);
    pthread_cond_signal(&e->given);
    if (await_open(e) > 0)
        return 0;
    *err = e->open_err;
    qr_engine_close(e);
    return err->code;
}

int qr_engine_open(struct qr_engine **out, const char *dir, const struct qr_engine_config *config,
                   const struct qr_backend_options *backend, const struct qr_model_options *model_options,
                   const struct qr_tokenizer *tokenizer, void (*wake)(void *), void *wake_arg, struct qr_err *err)
{
    QR_ASSERT(out != NULL && tokenizer != NULL);
    struct qr_engine *e = qr_engine_begin(dir, config, backend, model_options, wake, wake_arg);
    int rc = qr_engine_finish(e, tokenizer, err);
    if (rc == 0)
        *out = e;
    return rc;
}

/* What was not taken: events, and the requests that a last event handed over. */
static void free_untaken(struct qr_engine *e)
{
    struct qr_node left, *node;
    qr_list_init(&left);
    qr_mailbox_take(&e->inbox, &left);
    while ((node = qr_list_pop_front(&left)))
        qr_request_free(QR_CONTAINER(node, struct qr_request, link));
    qr_mailbox_take(&e->outbox, &left);
    while ((node = qr_list_pop_front(&left))) {
        struct qr_event *ev = QR_CONTAINER(node, struct qr_event, link);
        if (ev->last)
            qr_request_free(ev->req);
    }
    qr_mailbox_take(&e->recycled, &left);
    while (qr_list_pop_front(&left))
        ;
}

void qr_engine_close(struct qr_engine *e)
{
    if (!e)
        return;
    atomic_store(&e->closing, true);
    qr_mailbox_close(&e->inbox);
    pthread_join(e->thread, NULL);
    free_untaken(e);
    qr_free(e->event);
    qr_view_free(e->view);
    qr_mailbox_release(&e->inbox);
    qr_mailbox_release(&e->outbox);
    qr_mailbox_release(&e->recycled);
    pthread_mutex_destroy(&e->open_lock);
    pthread_mutex_destroy(&e->stats_lock);
    pthread_mutex_destroy(&e->adapters.lock);
    pthread_cond_destroy(&e->adapters.sent);
    pthread_mutex_destroy(&e->pins.lock);
    pthread_cond_destroy(&e->opened);
    pthread_cond_destroy(&e->given);
    qr_free(e);
}

const struct qr_engine_limits *qr_engine_limits(const struct qr_engine *e)
{
    return &e->limits;
}

const struct qr_model_config *qr_engine_model(const struct qr_engine *e)
{
    return qr_model_config(e->model);
}

/* Takes n places if there are that many; the count never passes n_slots, so the scheduler's slab cannot overflow. An engine that was idle stands still
 * from now on, not since its last step. */
static bool reserve(struct qr_engine *e, int32_t n)
{
    int32_t now = atomic_load(&e->n_reserved);
    do {
        if (now + n > e->n_slots)
            return false;
        if (now == 0)
            atomic_store(&e->progress_us, qr_clock_us());
    } while (!atomic_compare_exchange_weak(&e->n_reserved, &now, now + n));
    return true;
}

static int check_id_list(const char *name, const int32_t *id, int32_t n, int32_t vocab, struct qr_err *err)
{
    for (int32_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= vocab)
            return qr_err_at(err, QR_E_INVALID, name, "token id %d is outside the vocabulary of %d", id[i], vocab);
    return 0;
}

static int check_ids(const struct qr_request *r, int32_t vocab, struct qr_err *err)
{
    const struct qr_sampling *p = &r->sampling;
    for (int32_t i = 0; i < r->n_prompt; i++)
        if (r->ids[0][i] < 0 || r->ids[0][i] >= vocab)
            return qr_err_at(err, QR_E_INVALID, "prompt", "token id %d at position %d is outside the vocabulary of %d", r->ids[0][i], i, vocab);
    int rc = check_id_list("stop_token_ids", p->stop_ids, p->n_stop_ids, vocab, err);
    if (rc == 0 && p->n_allowed > vocab)
        rc = qr_err_at(err, QR_E_INVALID, "allowed_token_ids", "%d ids are more than the vocabulary of %d has; name each once", p->n_allowed, vocab);
    rc = rc ? rc : check_id_list("allowed_token_ids", p->allowed, p->n_allowed, vocab, err);
    rc = rc ? rc : check_id_list("thinking_token_budget", r->thinking.end, r->thinking.n_end, vocab, err);
    for (int32_t i = 0; i < p->n_logit_bias && rc == 0; i++)
        rc = check_id_list("logit_bias", &p->logit_bias[i].id, 1, vocab, err);
    for (int32_t at = 0; at < p->n_bad && rc == 0; at += 1 + p->bad[at])
        rc = check_id_list("bad_words", p->bad + at + 1, p->bad[at], vocab, err);
    return rc;
}

static int check_request(const struct qr_engine *e, const struct qr_request *r, struct qr_err *err)
{
    const struct qr_engine_limits *lim = &e->limits;
    int64_t total = (int64_t)r->n_prompt + r->sampling.max_tokens;
    if (r->pooling == QR_POOLING_NONE && e->rows.model->headless)
        return qr_err_at(err, QR_E_UNSUPPORTED, "model", "this model has no head: %s, no text", qr_headless_does(e->rows.model));
    if (r->pooling != QR_POOLING_NONE && lim->no_embeddings)
        return qr_err_at(err, QR_E_UNSUPPORTED, "model", "no embeddings here: %s", lim->no_embeddings);
    QR_ASSERT(r->pooling == QR_POOLING_NONE || r->n_pooled == e->rows.model->n_embd);
    if (r->n_prompt < 1)
        return qr_err_at(err, QR_E_INVALID, "prompt", "the prompt is empty; at least one token is needed");
    if (r->n_prompt > lim->ctx_max || (r->n_prompt == lim->ctx_max && r->sampling.max_tokens > 0))
        return qr_err_at(err, QR_E_INVALID, "prompt", "the prompt has %d tokens, the context holds %d", r->n_prompt, lim->ctx_max);
    if (total > lim->ctx_max)
        return qr_err_at(err, QR_E_INVALID, "max_tokens", "%d prompt tokens and max_tokens %d make %lld, the context holds %d; ask for at most %d",
                         r->n_prompt, r->sampling.max_tokens, (long long)total, lim->ctx_max, lim->ctx_max - r->n_prompt);
    return check_ids(r, lim->vocab, err);
}

int qr_engine_submit(struct qr_engine *e, struct qr_request *r, struct qr_err *err)
{
    QR_ASSERT(e != NULL && r != NULL);
    QR_ASSERT(r->n_choices >= 1 && r->n_choices <= QR_CHOICES_MAX);
    if ((atomic_load(&e->draining) && !r->continues) || atomic_load(&e->closing))
        return qr_err_set(err, QR_E_CLOSED, "the server is shutting down");
    if (atomic_load(&e->lost))
        return qr_err_set(err, QR_E_CLOSED, QR_ENGINE_LOST_TEXT);
    int rc = check_request(e, r, err);
    rc = rc ? rc : qr_pins_check(e, r, err);
    if (rc != 0)
        return rc;
    if (!reserve(e, r->n_choices))
        return qr_err_set(err, QR_E_BUSY, "the queue is full: %d sequences running or waiting; try again later", e->n_slots);
    rc = qr_adapters_take(&e->adapters, r, err);
    if (rc == 0)
        qr_outside_name(e, r);
    if (rc == 0 && qr_mailbox_push(&e->inbox, &r->link))
        return 0;
    if (rc == 0) {
        qr_adapters_give_back(&e->adapters, r, 0, 0, false);
        rc = qr_err_set(err, QR_E_CLOSED, "the server is shutting down");
    }
    atomic_fetch_sub(&e->n_reserved, r->n_choices);
    return rc;
}

void qr_engine_cancel(struct qr_engine *e, struct qr_request *r)
{
    QR_ASSERT(e != NULL && r != NULL);
    atomic_store(&r->cancelled, true);
    atomic_store(&e->to_reap, true); /* last: a thread that sees this flag sees the request's, too */
}

int32_t qr_engine_take(struct qr_engine *e, struct qr_node *out)
{
    return qr_mailbox_take(&e->outbox, out);
}

int32_t qr_engine_wait(struct qr_engine *e, struct qr_node *out, int64_t timeout_us)
{
    return qr_mailbox_wait(&e->outbox, out, timeout_us);
}

void qr_engine_recycle(struct qr_engine *e, struct qr_event *event)
{
    QR_ASSERT(event >= e->event && event < e->event + e->n_events);
    event->req = NULL;
    qr_mailbox_push_urgent(&e->recycled, &event->link);
}

bool qr_engine_lost(const struct qr_engine *e, struct qr_err *err)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(err != NULL);
    if (!atomic_load(&e->lost))
        return false;
    *err = e->lost_err;
    return true;
}

void qr_engine_drain(struct qr_engine *e)
{
    atomic_store(&e->draining, true);
}

void qr_engine_stats(const struct qr_engine *e, struct qr_stats *out)
{
    struct qr_engine *own = (struct qr_engine *)(uintptr_t)e; /* a lock is no change that a reader could see */
    pthread_mutex_lock(&own->stats_lock);
    *out = own->stats_out;
    pthread_mutex_unlock(&own->stats_lock);
}

struct qr_view *qr_engine_view(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    return e->view;
}

void qr_engine_look(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    qr_view_ask(e->view);
    qr_mailbox_poke(&e->inbox);
}

int64_t qr_engine_progress_us(const struct qr_engine *e, bool *has_work)
{
    *has_work = atomic_load(&e->n_reserved) > 0;
    return atomic_load(&e->progress_us);
}
