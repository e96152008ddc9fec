#include "tests/mock_engine.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "answers/grammar/matcher.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/hash.h"
#include "engine/adapters.h"
#include "engine/pins.h"
#include "engine/view.h"

#define TEXT_KEPT 4096
#define SCRIPTS_MAX 64
#define SHORTEST_MAX 65536
static const char usual_script[] = "The quick brown fox jumps over the lazy dog, says \"the mock\". ";

struct voice { /* one choice of one request */
    struct qr_node link; /* waiting, running */
    struct qr_request *req;
    int32_t choice, n_done;
    int64_t due_us;
    struct qr_detok detok;
    bool started, admitted, thinks;
    const struct qr_ids *script; /* borrowed: the engine's, or own */
    struct qr_ids own;           /* owned */
    bool once;                   /* the script is said once */
    struct qr_matcher matcher;   /* of a request with a grammar */
    char tail[TEXT_KEPT];
    int32_t tail_len;
};

struct qr_engine {
    struct mock_options options;
    void (*wake)(void *);
    void *wake_arg;
    const struct qr_tokenizer *tokenizer;
    struct qr_engine_limits limits;
    struct qr_model_config model;
    struct qr_ids script[SCRIPTS_MAX]; /* owned */
    int32_t n_scripts;
    pthread_t thread;
    struct qr_mailbox inbox, outbox;
    pthread_mutex_t lock; /* pool, stats, draining, n_inside */
    pthread_cond_t changed;
    struct qr_node pool;
    struct qr_event *events;
    struct qr_node waiting, running; /* engine thread's */
    int32_t n_running, n_voices;     /* n_voices: under the lock */
    bool draining, closing;
    struct qr_pin pin[QR_PINS_MAX]; /* under the lock, as their number */
    int32_t n_pins;
    atomic_uint_fast64_t n_found;    /* adapters looked up */
    _Atomic int role;                /* enum qr_side */
    struct qr_stats stats;
    int64_t progress_us;
    int64_t recorded_us; /* engine thread's: when the last step that was recorded began */
    struct qr_view *view; /* owned */
};

void mock_options_init(struct mock_options *o)
{
    *o = (struct mock_options){.rate = 40, .event_tokens = 1, .running_max = 64, .waiting_max = 256, .ctx_max = 4096, .n_events = 4096, .n_blocks = 100};
}

static struct qr_event *get_event(struct qr_engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct qr_node *node = qr_list_pop_front(&e->pool);
    pthread_mutex_unlock(&e->lock);
    return node ? QR_CONTAINER(node, struct qr_event, link) : NULL;
}

static void fill_logprob(struct qr_token_logprob *t, int32_t id, int32_t n_top, int32_t vocab)
{
    t->id = id;
    t->logprob = -0.25f;
    t->rank = 1;
    t->n_top = n_top < 0 ? 0 : n_top;
    for (int32_t k = 0; k < t->n_top; k++) {
        t->top_id[k] = (id + k) % vocab;
        t->top_logprob[k] = -0.25f - (float)k;
    }
}

static void count_end(struct qr_engine *e, const struct qr_request *r, enum qr_finish finish)
{
    struct qr_stats *t = &e->stats;
    uint64_t *to[] = {NULL, &t->n_done_stop, &t->n_done_length, &t->n_cancelled, &t->n_failed};
    (*to[finish])++;
    t->n_inside--;
    qr_hist_add(&t->e2e, (double)(qr_clock_us() - r->arrived_us) * 1e-6);
}

static void voice_free(struct voice *v)
{
    qr_matcher_release(&v->matcher);
    qr_ids_release(&v->own);
    qr_free(v);
}

/* Under the lock. Blocks that pins share count twice here. */
static bool has_pin_room(const struct qr_engine *e, int32_t n_blocks)
{
    return e->n_pins < QR_PINS_MAX && n_blocks <= e->limits.n_pinned_max - e->stats.kv.n_pinned;
}

/* How a request ends that draws nothing. */
static enum qr_finish pin(struct qr_engine *e, struct qr_request *r)
{
    const int32_t n = r->n_prompt / e->limits.block_tokens;
    pthread_mutex_lock(&e->lock);
    const bool room = has_pin_room(e, n);
    if (!room)
        qr_err_set(&r->err, QR_E_NO_ROOM, "pins hold %d blocks of at most %d", e->stats.kv.n_pinned, e->limits.n_pinned_max);
    else {
        const int64_t now_s = qr_clock_wall_s();
        r->pin.n_blocks = n;
        r->pin.expires_s = r->pin.ttl_us > 0 ? now_s + r->pin.ttl_us / 1000000 : 0;
        e->pin[e->n_pins++] = (struct qr_pin){.id = r->id, .owner = (uint32_t)qr_hash64(&r->salt, sizeof r->salt, 1), .n_blocks = n,
                                              .n_tokens = n * e->limits.block_tokens, .made_s = now_s, .expires_s = r->pin.expires_s};
        e->stats.kv.n_pinned += n;
    }
    pthread_mutex_unlock(&e->lock);
    return room ? QR_FINISH_LENGTH : QR_FINISH_ERROR;
}

/* Finishes the event, and the voice when `finish` says so. */
static void send(struct qr_engine *e, struct voice *v, struct qr_event *ev, enum qr_finish finish)
{
    struct qr_request *r = v->req;
    ev->finish = finish;
    if (finish != QR_FINISH_NONE) {
        ev->last = --r->n_open == 0;
        qr_list_remove(&v->link);
        e->n_running -= v->admitted;
        pthread_mutex_lock(&e->lock);
        e->n_voices--;
        if (ev->last)
            count_end(e, r, finish);
        pthread_mutex_unlock(&e->lock);
        voice_free(v);
    }
    qr_mailbox_push_urgent(&e->outbox, &ev->link);
}

/* Once per request: when an earlier choice said why, the receiver may be reading it. */
static void say_why(struct qr_request *r, enum qr_code code, const char *why)
{
    if (r->err.code == QR_OK)
        qr_err_set(&r->err, code, "%s", why);
}

/* ---- grammars, thinking ---- */

/* Bytes as a matcher spells them: special tokens are 0xFF, their id, ';'. */
static void take_spelled(struct qr_ids *out, const struct qr_tokenizer *t, const char *s, int32_t n)
{
    struct qr_err err;
    for (int32_t i = 0, from = 0; i <= n; i++) {
        if (i < n && (unsigned char)s[i] != 0xFF)
            continue;
        qr_tokenizer_encode(t, out, s + from, (size_t)(i - from), 0, &err);
        int32_t id = 0;
        for (i++; i < n && s[i] != ';'; i++)
            id = id * 10 + (s[i] - '0');
        if (i < n)
            qr_ids_push(out, id);
        from = i + 1;
    }
}

static void choose_script(struct qr_engine *e, struct voice *v)
{
    const struct qr_request *r = v->req;
    const uint64_t seed = r->sampling.seed;
    v->script = &e->script[0];
    if (r->grammar)
        qr_matcher_init(&v->matcher, r->grammar);
    if (seed >= MOCK_SEED_SAY && seed < MOCK_SEED_SAY + (uint64_t)e->n_scripts) {
        v->script = &e->script[seed - MOCK_SEED_SAY];
        v->once = true;
    } else if (seed == MOCK_SEED_SHORTEST && r->grammar) {
        char *text = qr_alloc(SHORTEST_MAX, 1);
        take_spelled(&v->own, e->tokenizer, text, qr_matcher_shortest(&v->matcher, text, SHORTEST_MAX));
        qr_free(text);
        v->script = &v->own;
        v->once = true;
    }
}

static bool ends_with(const int32_t *ids, int32_t n, const int32_t *tail, int32_t n_tail)
{
    return n_tail > 0 && n >= n_tail && memcmp(ids + n - n_tail, tail, (size_t)n_tail * sizeof *ids) == 0;
}

/* The last token's part in thinking; markers count. */
static void count_thinking(struct voice *v)
{
    struct qr_request *r = v->req;
    const struct qr_thinking *t = &r->thinking;
    const int32_t *ids = r->ids[v->choice] + r->n_prompt;
    if (!v->thinks && ends_with(ids, v->n_done, t->start, t->n_start)) {
        v->thinks = true;
        r->n_reasoning[v->choice] += t->n_start - 1;
    }
    r->n_reasoning[v->choice] += v->thinks;
    v->thinks &= !ends_with(ids, v->n_done, t->end, t->n_end);
}

/* Whether the request's grammar takes the token, an end token included. */
static bool grammar_takes(struct voice *v, int32_t id)
{
    char why[100];
    if (!v->req->grammar || qr_matcher_token(&v->matcher, id))
        return true;
    snprintf(why, sizeof why, "the grammar does not take token %d, which is number %d", id, v->n_done);
    say_why(v->req, QR_E_INTERNAL, why);
    return false;
}

static enum qr_finish end_voice(struct qr_engine *e, struct voice *v, struct qr_event *ev)
{
    ev->stop_id = qr_tokenizer_eos(e->tokenizer);
    return grammar_takes(v, ev->stop_id) ? QR_FINISH_STOP : QR_FINISH_ERROR;
}

/* The mock guesses as the client predicts, without looking for what was predicted elsewhere. */
static void count_guess(const struct voice *v, int32_t place, int32_t id)
{
    struct qr_request *r = v->req;
    if (place < r->n_prediction)
        ++*(r->ids[v->choice][place - r->n_prediction] == id ? &r->n_accepted[v->choice] : &r->n_rejected[v->choice]);
}

static enum qr_finish add_token(struct qr_engine *e, struct voice *v, struct qr_event *ev)
{
    struct qr_request *r = v->req;
    const struct qr_sampling *s = &r->sampling;
    int64_t end_at = s->seed >= MOCK_SEED_END && s->seed < MOCK_SEED_END + 100000 ? (int64_t)(s->seed - MOCK_SEED_END) : INT64_MAX;
    if (v->n_done >= s->max_tokens)
        return r->pin.wanted ? pin(e, r) : QR_FINISH_LENGTH;
    if ((!s->ignore_eos && v->n_done >= end_at && v->n_done >= s->min_tokens) || (v->once && v->n_done >= v->script->n))
        return end_voice(e, v, ev);
    if (s->seed == MOCK_SEED_ERROR && v->n_done == 3) {
        say_why(r, QR_E_INTERNAL, "the mock was asked to fail");
        return QR_FINISH_ERROR;
    }
    if (s->seed == MOCK_SEED_FREEZE && v->n_done == 3)
        usleep(1500000);
    const int32_t id = v->script->id[(v->n_done + (v->once ? 0 : 13 * v->choice)) % v->script->n];
    if (!grammar_takes(v, id))
        return QR_FINISH_ERROR;
    fill_logprob(&ev->token[ev->n_tokens++], id, s->n_logprobs, e->limits.vocab);
    count_guess(v, v->n_done, id);
    if (r->first_token_us == 0) {
        r->admitted_us = r->arrived_us;
        r->first_token_us = qr_clock_us();
    }
    r->ids[v->choice][r->n_prompt + v->n_done++] = id;
    ev->n_output = v->n_done;
    count_thinking(v);
    ev->text_len += (int32_t)qr_detok_push(&v->detok, ev->text + ev->text_len, id);
    for (int32_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == id) {
            ev->stop_id = id;
            return QR_FINISH_STOP;
        }
    return v->n_done >= s->max_tokens ? QR_FINISH_LENGTH : QR_FINISH_NONE;
}

/* Stop strings over what the voice said so far; the mock says them late rather than holding text back. */
static enum qr_finish look_for_stop(struct voice *v, struct qr_event *ev)
{
    const struct qr_sampling *s = &v->req->sampling;
    if (v->tail_len + ev->text_len >= TEXT_KEPT)
        v->tail_len = 0;
    memcpy(v->tail + v->tail_len, ev->text, (size_t)ev->text_len);
    v->tail_len += ev->text_len;
    v->tail[v->tail_len] = 0;
    for (int32_t i = 0; i < s->n_stops; i++) {
        char *at = strstr(v->tail, s->stop[i]);
        if (!at)
            continue;
        int32_t keep = (int32_t)(at - v->tail) + (s->include_stop ? (int32_t)strlen(s->stop[i]) : 0) - (v->tail_len - ev->text_len);
        ev->text_len = keep < 0 ? 0 : keep;
        ev->stop_index = i;
        return QR_FINISH_STOP;
    }
    return QR_FINISH_NONE;
}

/* Number i of an embedding is its prompt's length, plus 1 when its id there (over and over) is i modulo the numbers there are. */
static void embed(const struct qr_request *r)
{
    for (int32_t i = 0; i < r->n_pooled; i++)
        r->pooled[i] = r->n_prompt + (r->ids[0][i % r->n_prompt] % r->n_pooled == i);
}

static void say(struct qr_engine *e, struct voice *v, struct qr_event *ev)
{
    struct qr_request *r = v->req;
    enum qr_finish finish = QR_FINISH_NONE;
    if (!v->started) {
        v->started = true;
        v->thinks = r->thinking.begun;
        choose_script(e, v);
        qr_detok_init(&v->detok, e->tokenizer, r->ids[v->choice], r->n_prompt, r->sampling.skip_special);
        if (v->choice == 0 && r->prompt_logprobs)
            for (int32_t i = 0; i < r->n_prompt; i++)
                fill_logprob(&r->prompt_logprobs[i], r->ids[0][i], r->sampling.n_prompt_logprobs, e->limits.vocab);
        if (v->choice == 0) /* the first to start: nobody reads it yet */
            r->n_cached = r->sampling.seed == MOCK_SEED_PEER ? 1 + r->peer + 100 * r->expected : r->n_prompt / 2;
        embed(r);
    }
    for (int32_t i = 0; i < e->options.event_tokens && finish == QR_FINISH_NONE; i++)
        finish = add_token(e, v, ev);
    if (finish == QR_FINISH_STOP || finish == QR_FINISH_LENGTH)
        ev->text_len += (int32_t)qr_detok_flush(&v->detok, ev->text + ev->text_len);
    if (r->sampling.n_stops > 0 && look_for_stop(v, ev) == QR_FINISH_STOP)
        finish = QR_FINISH_STOP;
    pthread_mutex_lock(&e->lock);
    e->stats.output_tokens += (uint64_t)ev->n_tokens;
    pthread_mutex_unlock(&e->lock);
    send(e, v, ev, finish);
}

static void admit(struct qr_engine *e, int64_t now_us)
{
    while (e->n_running < e->options.running_max && !qr_list_empty(&e->waiting)) {
        struct voice *v = QR_CONTAINER(qr_list_pop_front(&e->waiting), struct voice, link);
        v->admitted = v->req->begun = true;
        v->due_us = now_us + e->options.prefill_us;
        e->n_running++;
        qr_list_push_back(&e->running, &v->link);
    }
}

static void receive(struct qr_engine *e)
{
    struct qr_node inbox, *node;
    qr_list_init(&inbox);
    qr_mailbox_take(&e->inbox, &inbox);
    while ((node = qr_list_pop_front(&inbox)) != NULL) {
        struct qr_request *r = QR_CONTAINER(node, struct qr_request, link);
        r->n_open = r->n_choices;
        pthread_mutex_lock(&e->lock);
        qr_hist_add(&e->stats.prompt_len, r->n_prompt);
        pthread_mutex_unlock(&e->lock);
        for (int32_t c = 0; c < r->n_choices; c++) {
            struct voice *v = qr_alloc(1, sizeof *v);
            v->req = r;
            v->choice = c;
            qr_list_push_back(&e->waiting, &v->link);
        }
    }
}

/* One pass over a list: what is cancelled, late, broken or due speaks. Returns the next time something is due. */
static int64_t visit(struct qr_engine *e, struct qr_node *list, int64_t now_us, bool may_speak)
{
    int64_t next_us = INT64_MAX;
    for (struct qr_node *at = list->next, *after; at != list; at = after) {
        struct voice *v = QR_CONTAINER(at, struct voice, link);
        struct qr_request *r = v->req;
        after = at->next;
        if (!r->late && r->err.code == QR_OK && r->start_by_us != 0 && !r->begun && now_us > r->start_by_us)
            r->late = QR_LATE_QUEUE; /* once, before any choice says so: its receiver reads it */
        if (r->late == QR_LATE_NOT && r->sampling.seed >= MOCK_SEED_LATE && r->sampling.seed < MOCK_SEED_LATE + 3 && r->err.code == QR_OK) {
            r->late = (enum qr_late)(QR_LATE_REFUSED + (int)(r->sampling.seed - MOCK_SEED_LATE));
            r->retry_us = 6500000;
        }
        bool cancelled = atomic_load(&r->cancelled), late = r->late || (r->deadline_us != 0 && now_us > r->deadline_us);
        bool broken = r->sampling.seed == MOCK_SEED_ERROR_AT_ONCE;
        if (!cancelled && !late && !broken && (!may_speak || v->due_us > now_us)) {
            if (may_speak && v->due_us < next_us)
                next_us = v->due_us;
            continue;
        }
        struct qr_event *ev = get_event(e);
        if (!ev)
            return now_us; /* the receiver is behind: later, more at once */
        *ev = (struct qr_event){.req = r, .choice = v->choice, .stop_index = -1, .stop_id = -1, .n_output = v->n_done};
        if (!cancelled && late)
            say_why(r, QR_E_BUSY, r->late > QR_LATE_QUEUE ? "the mock was asked to be late"
                                  : r->late               ? "the request waited and was not begun"
                                                          : "the request was not finished within its time limit");
        else if (!cancelled && broken)
            say_why(r, QR_E_INTERNAL, "the mock was asked to fail at once");
        if (cancelled || late || broken) {
            send(e, v, ev, cancelled ? QR_FINISH_CANCEL : QR_FINISH_ERROR);
            continue;
        }
        v->due_us += e->options.rate > 0 ? (int64_t)(1e6 / e->options.rate) : 0;
        if (e->options.rate > 0 && v->due_us < next_us)
            next_us = v->due_us;
        if (e->options.rate <= 0)
            next_us = now_us;
        say(e, v, ev);
    }
    return next_us;
}

/* ---- onlookers ---- */

static void look_at(struct qr_engine *e, struct qr_look *l, struct qr_node *list, enum qr_request_state state)
{
    for (struct qr_node *at = list->next; at != list; at = at->next) {
        struct voice *v = QR_CONTAINER(at, struct voice, link);
        struct qr_request_look *r = &v->req->look;
        if (r->number != l->number)
            *r = (struct qr_request_look){.number = l->number, .owner = (uint32_t)qr_hash64(&v->req->salt, sizeof v->req->salt, 1)};
        r->state = state;
        r->n_output += v->n_done;
        r->n_done = state == QR_REQUEST_DECODE ? v->req->n_prompt : 0;
        if (state == QR_REQUEST_WAITING || l->n_used >= l->n_blocks)
            continue;
        r->n_blocks++;
        l->cell[l->n_used++] = (struct qr_look_cell){.use = QR_KV_USED, .owner = r->owner};
    }
}

/* Every choice that runs has one block. Those behind them are free; of more than 100 each second one is cached, 64 to an owner, so that no two are alike. */
static void answer_look(struct qr_engine *e)
{
    struct qr_look *l = qr_view_wanted(e->view);
    if (!l)
        return;
    *l = (struct qr_look){.number = l->number + 1, .taken_us = qr_clock_us(), .n_blocks = e->limits.n_blocks, .per_cell = 1, .n_cells = e->limits.n_blocks};
    look_at(e, l, &e->waiting, QR_REQUEST_WAITING);
    look_at(e, l, &e->running, QR_REQUEST_DECODE);
    for (int32_t i = l->n_used + 1; i < l->n_blocks && l->n_blocks > 100; i += 2) {
        l->cell[i] = (struct qr_look_cell){.use = QR_KV_CACHED, .owner = (uint32_t)(1 + i / 128)};
        l->n_cached++;
    }
    l->n_free = l->n_blocks - l->n_used - l->n_cached;
    qr_view_answer(e->view);
    if (e->wake)
        e->wake(e->wake_arg);
}

/* No two steps begin in the same microsecond, though the mock can do that: real ones take longer. */
static void record(struct qr_engine *e, int64_t begun_us, uint64_t n_before)
{
    begun_us = begun_us > e->recorded_us ? begun_us : e->recorded_us + 1;
    e->recorded_us = begun_us;
    const int64_t us = qr_clock_us() - begun_us;
    struct qr_step_record r = {.begun_us = begun_us, .us = us > 0 ? (int32_t)us : 0, .n_decode = (int32_t)(e->stats.output_tokens - n_before)};
    r.part_us[QR_PART_MODEL] = r.us / 2;
    r.part_us[QR_PART_SAMPLE] = r.us / 4;
    if (r.n_decode > 0)
        qr_view_note(e->view, &r);
}

/* The end: nobody takes events any more, so what is left goes without one. */
static void drop_all(struct qr_engine *e, struct qr_node *list)
{
    struct qr_node *node;
    while ((node = qr_list_pop_front(list)) != NULL) {
        struct voice *v = QR_CONTAINER(node, struct voice, link);
        struct qr_request *r = v->req;
        voice_free(v);
        if (--r->n_open == 0)
            qr_request_free(r);
    }
}

static void *engine_main(void *arg)
{
    struct qr_engine *e = arg;
    qr_thread_set_name("mock-engine");
    for (;;) {
        int64_t now_us = qr_clock_us();
        receive(e);
        pthread_mutex_lock(&e->lock);
        bool done = e->closing;
        pthread_mutex_unlock(&e->lock);
        if (done) {
            drop_all(e, &e->running);
            drop_all(e, &e->waiting);
            return NULL;
        }
        admit(e, now_us);
        answer_look(e);
        const uint64_t n_before = e->stats.output_tokens;
        int64_t next_us = visit(e, &e->running, now_us, true);
        visit(e, &e->waiting, now_us, false);
        record(e, now_us, n_before);
        pthread_mutex_lock(&e->lock);
        e->stats.sched.n_decode = e->n_running;
        e->stats.sched.n_waiting = e->n_voices - e->n_running;
        e->stats.sched.waiting_tokens = 0;
        e->stats.backlog_s = 2.5 * e->n_voices; /* as if each had so much left */
        e->stats.prompt_token_s = 1;
        for (struct qr_node *at = e->waiting.next; at != &e->waiting; at = at->next)
            e->stats.sched.waiting_tokens += QR_CONTAINER(at, struct voice, link)->req->n_prompt;
        e->stats.n_steps++;
        e->progress_us = now_us;
        int64_t wait_us = next_us == INT64_MAX ? 5000 : next_us - qr_clock_us();
        if (!e->closing && wait_us > 0) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            int64_t ns = until.tv_nsec + (wait_us > 5000 ? 5000 : wait_us) * 1000;
            until.tv_sec += ns / 1000000000;
            until.tv_nsec = ns % 1000000000;
            pthread_cond_timedwait(&e->changed, &e->lock, &until);
        }
        pthread_mutex_unlock(&e->lock);
    }
}

static int read_scripts(struct qr_engine *e, const struct qr_str_list *from, struct qr_err *err)
{
    int rc = 0;
    e->n_scripts = from->n > 0 ? from->n : 1;
    QR_ASSERT(e->n_scripts <= SCRIPTS_MAX);
    for (int32_t i = 0; i < e->n_scripts && rc == 0; i++) {
        const char *text = from->n > 0 ? from->item[i] : usual_script;
        rc = qr_tokenizer_encode(e->tokenizer, &e->script[i], text, strlen(text), QR_ENCODE_PARSE_SPECIAL, err);
    }
    return rc;
}

static void free_scripts(struct qr_engine *e)
{
    for (int32_t i = 0; i < e->n_scripts; i++)
        qr_ids_release(&e->script[i]);
}

int mock_engine_open(struct qr_engine **out, const struct mock_options *options, const struct qr_tokenizer *tokenizer,
                     void (*wake)(void *), void *wake_arg, struct qr_err *err)
{
    struct qr_engine *e = qr_alloc(1, sizeof *e);
    e->options = *options;
    e->wake = wake;
    e->wake_arg = wake_arg;
    e->view = qr_view_new();
    e->tokenizer = tokenizer;
    e->limits = (struct qr_engine_limits){.ctx_max = options->ctx_max, .vocab = qr_tokenizer_vocab_size(tokenizer), .n_blocks = options->n_blocks,
                                          .block_tokens = 16, .prefix_cache = true, .n_pinned_max = options->n_blocks / 4, .kv_token_bytes = 8,
                                          .seq_blocks = (options->ctx_max + 15) / 16,
                                          .running_max = options->running_max, .waiting_max = options->waiting_max};
    e->model = (struct qr_model_config){.n_eos = 1, .eos_ids = {qr_tokenizer_eos(tokenizer)}, .n_embd = MOCK_EMBD,
                                         .n_vocab = e->limits.vocab, .ctx_max = options->ctx_max};
    qr_stats_init(&e->stats);
    e->stats.kv.n_blocks = e->stats.kv.n_free = options->n_blocks;
    int rc = read_scripts(e, &options->scripts, err);
    if (rc != 0) {
        free_scripts(e);
        qr_view_free(e->view);
        qr_free(e);
        return rc;
    }
    qr_mailbox_init(&e->inbox, 1 << 20, NULL, NULL);
    qr_mailbox_init(&e->outbox, 1 << 20, wake, wake_arg);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    qr_list_init(&e->pool);
    qr_list_init(&e->waiting);
    qr_list_init(&e->running);
    e->events = qr_alloc((size_t)options->n_events, sizeof *e->events);
    for (int32_t i = 0; i < options->n_events; i++)
        qr_list_push_back(&e->pool, &e->events[i].link);
    if (pthread_create(&e->thread, NULL, engine_main, e) != 0)
        qr_panic("cannot start the mock engine's thread");
    *out = e;
    return 0;
}

/* ---- the rest of engine.h ---- */

void qr_engine_close(struct qr_engine *e)
{
    struct qr_node left, *node;
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->draining = e->closing = true;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    qr_list_init(&left);
    qr_mailbox_take(&e->outbox, &left);
    while ((node = qr_list_pop_front(&left)) != NULL) {
        struct qr_event *ev = QR_CONTAINER(node, struct qr_event, link);
        if (ev->last)
            qr_request_free(ev->req);
    }
    qr_mailbox_release(&e->inbox);
    qr_mailbox_release(&e->outbox);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free_scripts(e);
    qr_free(e->events);
    qr_view_free(e->view);
    qr_free(e);
}

const struct qr_engine_limits *qr_engine_limits(const struct qr_engine *e)
{
    return &e->limits;
}

const struct qr_model_config *qr_engine_model(const struct qr_engine *e)
{
    return &e->model;
}

int qr_engine_submit(struct qr_engine *e, struct qr_request *r, struct qr_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    if (e->draining && !r->continues)
        rc = qr_err_set(err, QR_E_CLOSED, "the server is shutting down");
    else if (r->adapter % 3 != 0) /* the third look is lucky */
        rc = qr_err_at(err, QR_E_NOT_FOUND, "model", "the adapter was unloaded");
    else if (r->pin.wanted && r->n_prompt / e->limits.block_tokens > e->limits.n_pinned_max)
        rc = qr_err_set(err, QR_E_NO_ROOM, "the prompt's blocks are more than the %d that pins may hold", e->limits.n_pinned_max);
    else if (e->n_voices + r->n_choices > e->options.running_max + e->options.waiting_max)
        rc = qr_err_set(err, QR_E_BUSY, "the queue is full: %d sequences running or waiting; try again later", e->n_voices);
    else {
        e->progress_us = e->n_voices == 0 ? qr_clock_us() : e->progress_us;
        e->n_voices += r->n_choices;
        e->stats.n_accepted++;
        e->stats.n_inside++;
        e->stats.prompt_tokens += (uint64_t)r->n_prompt;
        qr_mailbox_push_urgent(&e->inbox, &r->link);
        pthread_cond_signal(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

void qr_engine_cancel(struct qr_engine *e, struct qr_request *r)
{
    atomic_store(&r->cancelled, true);
    pthread_cond_signal(&e->changed);
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
    pthread_mutex_lock(&e->lock);
    qr_list_push_back(&e->pool, &event->link);
    pthread_mutex_unlock(&e->lock);
}

bool qr_engine_lost(const struct qr_engine *e, struct qr_err *err)
{
    (void)e, (void)err;
    return false;
}

void qr_engine_drain(struct qr_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    pthread_mutex_unlock(&e->lock);
}

void qr_engine_stats(const struct qr_engine *e, struct qr_stats *out)
{
    struct qr_engine *m = (struct qr_engine *)e; /* the lock is ours */
    pthread_mutex_lock(&m->lock);
    *out = e->stats;
    pthread_mutex_unlock(&m->lock);
}

struct qr_view *qr_engine_view(const struct qr_engine *e)
{
    return e->view;
}

void qr_engine_look(struct qr_engine *e)
{
    qr_view_ask(e->view);
    pthread_cond_signal(&e->changed);
}

int64_t qr_engine_progress_us(const struct qr_engine *e, bool *has_work)
{
    struct qr_engine *m = (struct qr_engine *)e;
    pthread_mutex_lock(&m->lock);
    *has_work = e->n_voices > 0;
    int64_t at = e->progress_us;
    pthread_mutex_unlock(&m->lock);
    return at;
}

/* It has no room for adapters. Two names are as if there were: "replaced", whose files are others each time somebody looks, and "removed", gone after one
 * look. */
int qr_engine_load_adapter(struct qr_engine *e, const struct qr_adapter_source *source, struct qr_err *err)
{
    QR_ASSERT(e != NULL && source != NULL);
    QR_ASSERT(err != NULL);
    return qr_err_set(err, QR_E_USAGE, "there is no room for adapters");
}

int qr_engine_unload_adapter(struct qr_engine *e, const char *name, struct qr_err *err)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(name != NULL && err != NULL);
    return qr_err_at(err, QR_E_NOT_FOUND, "lora_name", "there is no adapter '%.100s'", name);
}

uint64_t qr_engine_find_adapter(const struct qr_engine *e, const char *name)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(name != NULL);
    struct qr_engine *m = (struct qr_engine *)(uintptr_t)e;
    if (strcmp(name, "replaced") == 0)
        return ++m->n_found;
    return strcmp(name, "removed") == 0 && m->n_found++ == 0 ? 1 : 0;
}

int32_t qr_engine_adapters(const struct qr_engine *e, struct qr_adapter_info *out, int32_t n_max)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(out != NULL || n_max == 0);
    return 0;
}

int32_t qr_engine_pins(const struct qr_engine *e, struct qr_pin out[QR_PINS_MAX])
{
    struct qr_engine *m = (struct qr_engine *)(uintptr_t)e;
    pthread_mutex_lock(&m->lock);
    memcpy(out, e->pin, (size_t)e->n_pins * sizeof *out);
    const int32_t n = e->n_pins;
    pthread_mutex_unlock(&m->lock);
    return n;
}

bool qr_engine_unpin(struct qr_engine *e, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    int32_t i = 0;
    while (i < e->n_pins && e->pin[i].id != id)
        i++;
    const bool found = i < e->n_pins;
    if (found) {
        e->stats.kv.n_pinned -= e->pin[i].n_blocks;
        memmove(&e->pin[i], &e->pin[i + 1], (size_t)(--e->n_pins - i) * sizeof e->pin[0]);
    }
    pthread_mutex_unlock(&e->lock);
    return found;
}

_Atomic int *mock_engine_role(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    return &e->role;
}

bool mock_engine_is_deaf(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    return e->options.deaf;
}
