/* harness.h - opening an engine on a conformance model, and running requests through it. For the engine's tests. */
#ifndef TESTS_ENGINE_HARNESS_H
#define TESTS_ENGINE_HARNESS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answers/grammar/matcher.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/draft/draft.h"
#include "engine/follow.h"
#include "engine/pins.h"
#include "tests/comm/threads.h"
#include "tests/full.h"

/* The path of shared data, or NULL when it is not there. Lives until the next call. */
static inline const char *data_path(const char *name)
{
    static char path[1024];
    const char *root = getenv("QUIRE_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/data", name);
    return access(path, R_OK) == 0 ? path : NULL;
}

#define RANKS_MAX 4

/* A rank that follows, as a thread. */
struct follower {
    const char *dir; /* of the world */
    struct qr_engine_config config;
    struct qr_backend_options bo;
    struct qr_model_options mo;
    struct qr_err err;
    pthread_t thread;
};

/* Grammars of tests, for any vocabulary. THOUGHT: anything up to the texts of thought_end, then digits. FIELDS: JSON whose keys are fixed. */
enum grammar_kind { GRAMMAR_NONE, GRAMMAR_WORDS, GRAMMAR_CHOICE, GRAMMAR_NESTED, GRAMMAR_THOUGHT, GRAMMAR_DIGITS, GRAMMAR_FIELDS, GRAMMAR_KINDS };
static const int32_t thought_start[2] = {261, 300}, thought_end[2] = {351, 265};

/* What a request's answer has to be. */
struct guided {
    enum grammar_kind grammar;
    struct qr_thinking thinking;
};

#define ANSWER_TOKENS 600
#define ANSWER_TEXT 8192

/* Everything a choice said. */
struct answer {
    int32_t n, finish, stop_index, stop_id, n_events, n_reasoning, n_accepted, n_rejected;
    int32_t id[ANSWER_TOKENS];
    float logprob[ANSWER_TOKENS], top[ANSWER_TOKENS];
    int32_t text_len;
    char text[ANSWER_TEXT];
};

/* Where guesses come from: nowhere, the engine's own sources, or from answers that are known: at random some, none or all of them right. */
enum guess_kind { GUESS_NONE, GUESS_OWN, GUESS_ANY, GUESS_WRONG, GUESS_RIGHT, GUESS_KINDS };

struct guesser {
    enum guess_kind kind;
    struct qr_rng rng;
    int32_t n_vocab, n_known;
    struct known {
        const int32_t *prompt;
        int32_t n_prompt;
        const struct answer *answer;
    } known[128];
};

struct world {
    struct qr_tokenizer *tokenizer;
    struct qr_engine *engine;
    struct qr_vocab *vocab;                        /* NULL until a grammar is made */
    struct qr_grammar *grammar[GRAMMAR_KINDS];     /* one of each kind, for all requests of this world */
    struct qr_comm comm[RANKS_MAX]; /* with several ranks, as the followers */
    struct follower follower[RANKS_MAX];
    int32_t n_ranks;
    bool guesses;                                  /* what is asked alone is asked again with guesses of each kind */
    struct guesser guesser;
    char dir[1024];
};

struct setup {
    const char *model, *isa, *device;
    const char *dir; /* of the model, when it is not shared data */
    struct qr_engine_config config;
    enum qr_compute compute;
    enum qr_kv_cache kv_cache;
    enum qr_quantize quantize;
    int32_t n_threads, n_ranks; /* n_ranks 0: one */
    bool guesses;               /* of the world */
    struct qr_comm *comm;       /* ranks that the test has made and ends; NULL: n_ranks threads */
};

static inline void setup_init(struct setup *s, const char *model)
{
    *s = (struct setup){.model = model, .device = "cpu", .n_threads = 2};
    qr_engine_config_init(&s->config);
    s->config.hash_seed = 7;
}

/* The answer that begins as the sequence does, or NULL. */
static inline const struct answer *guesser_find(const struct guesser *g, const struct qr_seq *q)
{
    const int32_t n_output = q->n_ids - q->n_prompt;
    for (int32_t i = 0; i < g->n_known; i++) {
        const struct known *k = &g->known[i];
        if (k->n_prompt == q->n_prompt && n_output <= k->answer->n && memcmp(k->prompt, q->ids, (size_t)q->n_prompt * sizeof *q->ids) == 0 &&
            memcmp(k->answer->id, q->ids + q->n_prompt, (size_t)n_output * sizeof *q->ids) == 0)
            return k->answer;
    }
    return NULL;
}

static inline int32_t guess_id(struct guesser *g, const struct answer *a, int32_t at, bool right)
{
    const bool known = a && at < a->n;
    if (right && known)
        return a->id[at];
    return known && g->kind == GUESS_WRONG ? (a->id[at] + 1) % g->n_vocab : (int32_t)qr_rng_below(&g->rng, (uint32_t)g->n_vocab);
}

static inline void guesser_fill(void *user, struct qr_draft_ask *ask, int32_t n)
{
    struct guesser *g = user;
    for (int32_t i = 0; i < n; i++) {
        const struct answer *a = guesser_find(g, ask[i].seq);
        const int32_t n_output = ask[i].seq->n_ids - ask[i].seq->n_prompt, room = ask[i].room;
        const int32_t n_right = g->kind == GUESS_RIGHT ? room : g->kind == GUESS_WRONG ? 0 : (int32_t)qr_rng_below(&g->rng, (uint32_t)room + 1);
        const int32_t n_left = a && a->n - n_output < room ? a->n - n_output : room;
        const int32_t n_any = g->kind == GUESS_ANY ? (int32_t)qr_rng_below(&g->rng, (uint32_t)room + 1) : room;
        ask[i].n = g->kind == GUESS_NONE ? 0 : g->kind == GUESS_RIGHT ? n_left : n_any;
        for (int32_t k = 0; k < ask[i].n; k++) {
            ask[i].ids[k] = guess_id(g, a, n_output + k, k < n_right);
            ask[i].p[k] = 1;
        }
    }
}

static inline void guesser_learn(struct guesser *g, const int32_t *prompt, int32_t n_prompt, const struct answer *answer)
{
    QR_ASSERT(g->n_known < QR_COUNT(g->known));
    g->known[g->n_known++] = (struct known){prompt, n_prompt, answer};
}

/* An engine that is opened with c gets guesses of this kind. */
static inline void guesser_set(struct guesser *g, enum guess_kind kind, struct qr_engine_config *c)
{
    g->kind = kind;
    g->n_vocab = 512;
    c->draft_tokens = kind == GUESS_NONE ? 0 : 7;
    c->draft_source = (struct qr_draft_source){kind > GUESS_OWN ? guesser_fill : NULL, g};
}

static inline void *follow(void *arg)
{
    struct follower *f = arg;
    qr_engine_follow(f->dir, &f->config, &f->bo, &f->mo, &f->err);
    return NULL;
}

static inline void world_follow(struct world *w, const struct setup *s, const struct qr_backend_options *bo, struct qr_model_options *mo)
{
    w->n_ranks = s->n_ranks > 1 ? s->n_ranks : 1;
    mo->comm = s->comm;
    QR_ASSERT(w->n_ranks <= RANKS_MAX);
    if (w->n_ranks == 1)
        return;
    open_threads(w->comm, w->n_ranks);
    for (int32_t r = 1; r < w->n_ranks; r++) {
        struct follower *f = &w->follower[r];
        *f = (struct follower){.dir = w->dir, .config = s->config, .bo = *bo, .mo = *mo};
        f->mo.comm = &w->comm[r];
        if (pthread_create(&f->thread, NULL, follow, f) != 0)
            qr_panic("no thread for rank %d", r);
    }
    mo->comm = &w->comm[0];
}

static inline void world_open(struct world *w, const struct setup *of)
{
    struct qr_err err = {0};
    struct setup with = *of;
    const struct setup *s = &with;
    w->guesses = of->guesses;
    w->guesser = (struct guesser){.rng = {.seed = 29}};
    if (w->guesses)
        guesser_set(&w->guesser, GUESS_ANY, &with.config);
    w->vocab = NULL;
    memset(w->grammar, 0, sizeof w->grammar);
    struct qr_backend_options bo = {.device = s->device, .isa = s->isa, .n_threads = s->n_threads};
    struct qr_model_options mo = {.compute = s->compute, .kv_cache = s->kv_cache, .quantize = s->quantize};
    const char *dir = w->dir;
    snprintf(w->dir, sizeof w->dir, "%s", s->dir ? s->dir : data_path(s->model));
    world_follow(w, s, &bo, &mo);
    if (qr_tokenizer_open(&w->tokenizer, dir, &err) != 0 ||
        qr_engine_open(&w->engine, dir, &s->config, &bo, &mo, w->tokenizer, NULL, NULL, &err) != 0)
        qr_panic("cannot open %s: %s", dir, err.msg);
}

static inline void world_close(struct world *w)
{
    qr_engine_close(w->engine);
    for (int i = 0; i < GRAMMAR_KINDS; i++)
        qr_grammar_unref(w->grammar[i]);
    qr_vocab_free(w->vocab);
    qr_tokenizer_close(w->tokenizer);
    for (int32_t r = 1; r < w->n_ranks; r++)
        pthread_join(w->follower[r].thread, NULL);
    for (int32_t r = 0; w->n_ranks > 1 && r < w->n_ranks; r++) /* here, so that a test may have a rank give up at any time */
        qr_comm_close(&w->comm[r]);
}

/* A request in flight and the answers to its choices. */
struct flight {
    struct qr_request *req; /* NULL once it has ended */
    struct answer answer[QR_CHOICES_MAX];
    double *pooled; /* borrowed [n_embd]: where its embedding goes; NULL: it is none */
    int32_t n_cached;
    struct qr_err err; /* of an answer that ended with one */
    bool done;
};

static inline int32_t make_thought(struct world *w, struct qr_exprs *x)
{
    int32_t stop = QR_EXPR_EMPTY;
    for (int i = 0; i < QR_COUNT(thought_end); i++) {
        size_t len;
        const char *text = qr_vocab_token(w->vocab, thought_end[i], &len);
        stop = qr_expr_cat(x, stop, qr_expr_bytes(x, text, len));
    }
    return qr_expr_cat(x, qr_expr_until(x, stop), qr_expr_repeat(x, qr_expr_range(x, '0', '9'), 1, 9));
}

static inline int32_t make_nested(struct qr_exprs *x)
{
    const int32_t value = qr_expr_rule(x, "value"), more = qr_expr_repeat(x, qr_expr_cat(x, qr_expr_text(x, ","), value), 0, QR_REPEAT_FOREVER);
    const int32_t text = qr_expr_cat(x, qr_expr_text(x, "\""), qr_expr_cat(x, qr_expr_repeat(x, qr_expr_json_char(x), 0, 12), qr_expr_text(x, "\"")));
    const int32_t list = qr_expr_cat(x, qr_expr_text(x, "["), qr_expr_cat(x, qr_expr_cat(x, value, more), qr_expr_text(x, "]")));
    qr_expr_define(x, value, qr_expr_or(x, text, list));
    return value;
}

/* [{"name": "...", "the girl": 12}, ...], as json.dumps writes it, or without blanks. */
static inline int32_t make_fields(struct qr_exprs *x)
{
    const int32_t blank = qr_expr_maybe(x, qr_expr_text(x, " ")), letters = qr_expr_repeat(x, qr_expr_range(x, 'a', 'z'), 1, 8);
    const int32_t digits = qr_expr_repeat(x, qr_expr_range(x, '0', '9'), 1, 2);
    const int32_t parts[] = {qr_expr_text(x, "{\"name\":"), blank, qr_expr_text(x, "\""), letters, qr_expr_text(x, "\","), blank,
                             qr_expr_text(x, "\"the girl\":"), blank, digits, qr_expr_text(x, "}")};
    int32_t item = QR_EXPR_EMPTY;
    for (int i = QR_COUNT(parts) - 1; i >= 0; i--)
        item = qr_expr_cat(x, parts[i], item);
    const int32_t more = qr_expr_cat(x, qr_expr_text(x, ","), qr_expr_cat(x, blank, item));
    return qr_expr_cat(x, qr_expr_text(x, "["), qr_expr_cat(x, item, qr_expr_cat(x, qr_expr_repeat(x, more, 1, 3), qr_expr_text(x, "]"))));
}

static inline int32_t make_expr(struct world *w, struct qr_exprs *x, enum grammar_kind kind)
{
    static const char *const choice[] = {"One day, a girl named Lily", "One day, a boy", "the end", "The", "a"};
    static const size_t len[] = {26, 14, 7, 3, 1};
    const int32_t letter = qr_expr_or(x, qr_expr_range(x, 'a', 'z'), qr_expr_text(x, " "));
    if (kind == GRAMMAR_WORDS)
        return qr_expr_repeat(x, letter, 20, 200);
    if (kind == GRAMMAR_DIGITS)
        return qr_expr_repeat(x, qr_expr_range(x, '0', '9'), 1, QR_REPEAT_FOREVER);
    if (kind == GRAMMAR_CHOICE)
        return qr_expr_any_text(x, choice, len, QR_COUNT(choice));
    if (kind == GRAMMAR_FIELDS)
        return make_fields(x);
    return kind == GRAMMAR_NESTED ? make_nested(x) : make_thought(w, x);
}

/* The world's grammar of this kind, made when it is first needed. */
static inline struct qr_grammar *world_grammar(struct world *w, enum grammar_kind kind)
{
    struct qr_err err = {0};
    const struct qr_model_config *mc = qr_engine_model(w->engine);
    if (kind == GRAMMAR_NONE)
        return NULL;
    if (!w->vocab)
        w->vocab = qr_vocab_new(w->tokenizer, mc->n_vocab, mc->eos_ids, mc->n_eos);
    if (!w->grammar[kind]) {
        struct qr_exprs *x = qr_exprs_new(1 << 20);
        if (qr_grammar_new(&w->grammar[kind], x, make_expr(w, x, kind), w->vocab, 0, &err) != 0)
            qr_panic("grammar %d: %s", (int)kind, err.msg);
    }
    return qr_grammar_ref(w->grammar[kind]);
}

/* guided NULL: free text. */
static inline int flight_start_guided(struct world *w, struct flight *f, const struct qr_sampling *s, const int32_t *prompt, int32_t n,
                                      int32_t n_choices, uint64_t adapter, const struct guided *guided, struct qr_err *err)
{
    memset(f, 0, sizeof *f);
    f->req = qr_request_new(s, prompt, n, n_choices);
    f->req->user = f;
    f->req->arrived_us = qr_clock_us();
    f->req->adapter = adapter;
    if (guided) {
        f->req->grammar = world_grammar(w, guided->grammar);
        f->req->thinking = guided->thinking;
    }
    int rc = qr_engine_submit(w->engine, f->req, err);
    if (rc != 0) {
        qr_request_free(f->req);
        f->req = NULL;
    }
    return rc;
}

static inline int flight_start_with(struct world *w, struct flight *f, const struct qr_sampling *s, const int32_t *prompt, int32_t n,
                                    int32_t n_choices, uint64_t adapter, struct qr_err *err)
{
    return flight_start_guided(w, f, s, prompt, n, n_choices, adapter, NULL, err);
}

static inline int flight_start(struct world *w, struct flight *f, const struct qr_sampling *s, const int32_t *prompt, int32_t n,
                               int32_t n_choices, struct qr_err *err)
{
    return flight_start_with(w, f, s, prompt, n, n_choices, 0, err);
}

static inline void flight_embed(struct world *w, struct flight *f, enum qr_pooling pooling, const int32_t *prompt, int32_t n, double *to)
{
    struct qr_err err = {0};
    *f = (struct flight){.pooled = to, .req = qr_request_new_embedding(prompt, n, pooling, qr_engine_model(w->engine)->n_embd)};
    f->req->user = f;
    f->req->arrived_us = qr_clock_us();
    if (qr_engine_submit(w->engine, f->req, &err) != 0)
        qr_panic("submit: %s", err.msg);
}

/* A prompt that is to be pinned; there may be no room for it. ttl_us 0: until it is unpinned. */
static inline int flight_pin(struct world *w, struct flight *f, const int32_t *prompt, int32_t n, int64_t ttl_us, struct qr_err *err)
{
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 0;
    memset(f, 0, sizeof *f);
    f->req = qr_request_new(&s, prompt, n, 1);
    f->req->user = f;
    f->req->id = (uint64_t)(uintptr_t)f->req;
    f->req->arrived_us = qr_clock_us();
    f->req->pin.wanted = true;
    f->req->pin.ttl_us = ttl_us;
    int rc = qr_engine_submit(w->engine, f->req, err);
    if (rc != 0) {
        qr_request_free(f->req);
        f->req = NULL;
    }
    return rc;
}

/* Takes the oldest pin away, or all. Returns how many there were. */
static inline int32_t world_unpin(struct world *w, bool all)
{
    struct qr_pin pin[QR_PINS_MAX];
    const int32_t n = qr_engine_pins(w->engine, pin);
    for (int32_t i = 0; i < (all ? n : n > 0); i++)
        qr_engine_unpin(w->engine, pin[i].id);
    return n;
}

static inline void flight_event(struct world *w, struct qr_event *ev)
{
    struct flight *f = ev->req->user;
    struct answer *a = &f->answer[ev->choice];
    a->n_events++;
    for (int32_t i = 0; i < ev->n_tokens; i++) {
        QR_ASSERT(a->n < ANSWER_TOKENS);
        a->id[a->n] = ev->token[i].id;
        a->logprob[a->n] = ev->token[i].logprob;
        a->top[a->n++] = ev->token[i].n_top > 0 ? ev->token[i].top_logprob[0] : 0;
    }
    QR_ASSERT(a->n == ev->n_output && ev->n_tokens <= 1);
    QR_ASSERT(a->text_len + ev->text_len < ANSWER_TEXT);
    memcpy(a->text + a->text_len, ev->text, (size_t)ev->text_len);
    a->text_len += ev->text_len;
    if (ev->finish != QR_FINISH_NONE) {
        QR_ASSERT(a->finish == QR_FINISH_NONE);
        a->finish = (int32_t)ev->finish;
        a->stop_index = ev->stop_index;
        a->stop_id = ev->stop_id;
        a->n_reasoning = ev->req->n_reasoning[ev->choice];
        a->n_accepted = ev->req->n_accepted[ev->choice];
        a->n_rejected = ev->req->n_rejected[ev->choice];
    }
    if (ev->last) {
        f->n_cached = ev->req->n_cached;
        f->err = ev->req->err;
        if (f->pooled && ev->finish == QR_FINISH_LENGTH)
            memcpy(f->pooled, ev->req->pooled, (size_t)ev->req->n_pooled * sizeof *f->pooled);
        f->done = true;
        qr_request_free(ev->req);
        f->req = NULL;
    }
    qr_engine_recycle(w->engine, ev);
}

/* Takes what has come; waits up to timeout_us for it. */
static inline int32_t world_pump(struct world *w, int64_t timeout_us)
{
    struct qr_node got, *node;
    qr_list_init(&got);
    int32_t n = qr_engine_wait(w->engine, &got, timeout_us);
    while ((node = qr_list_pop_front(&got)))
        flight_event(w, QR_CONTAINER(node, struct qr_event, link));
    return n;
}

/* Runs until f has ended; panics after 60 s without it. */
static inline void flight_finish(struct world *w, struct flight *f)
{
    int64_t until = qr_clock_us() + 60000000;
    while (!f->done) {
        world_pump(w, 100000);
        if (qr_clock_us() > until)
            qr_panic("a request did not end within 60 s");
    }
}

/* Same tokens, same log-probabilities to the bit, same text, same end. */
static inline bool answers_equal(const struct answer *a, const struct answer *b)
{
    return a->n == b->n && a->n_events == b->n_events && a->finish == b->finish &&
           a->n_reasoning == b->n_reasoning && a->stop_index == b->stop_index && a->stop_id == b->stop_id &&
           a->text_len == b->text_len && memcmp(a->id, b->id, (size_t)a->n * sizeof a->id[0]) == 0 &&
           memcmp(a->logprob, b->logprob, (size_t)a->n * sizeof a->logprob[0]) == 0 &&
           memcmp(a->top, b->top, (size_t)a->n * sizeof a->top[0]) == 0 && memcmp(a->text, b->text, (size_t)a->text_len) == 0;
}

static inline void ask_once(struct world *w, struct flight *f, const struct qr_sampling *s, const int32_t *prompt, int32_t n, int32_t n_choices,
                            const struct guided *guided)
{
    struct qr_err err = {0};
    if (flight_start_guided(w, f, s, prompt, n, n_choices, 0, guided, &err) != 0)
        qr_panic("submit: %s", err.msg);
    flight_finish(w, f);
}

#if defined(__SANITIZE_ADDRESS__) /* at random: some right, some wrong */
#define GUESSES_END (GUESS_ANY + 1)
#else
#define GUESSES_END GUESS_KINDS
#endif

/* With guesses the answers are the same, whatever they are. */
static inline void ask_guided(struct world *w, struct flight *f, const struct qr_sampling *s, const int32_t *prompt, int32_t n, int32_t n_choices,
                              const struct guided *guided)
{
    struct guesser *g = &w->guesser;
    g->kind = GUESS_NONE;
    ask_once(w, f, s, prompt, n, n_choices, guided);
    if (!w->guesses)
        return;
    struct flight *again = qr_alloc(1, sizeof *again);
    g->n_known = 0;
    for (int32_t c = 0; c < n_choices; c++)
        guesser_learn(g, prompt, n, &f->answer[c]);
    for (g->kind = GUESS_ANY; g->kind < GUESSES_END; g->kind++) {
        ask_once(w, again, s, prompt, n, n_choices, guided);
        for (int32_t c = 0; c < n_choices; c++)
            if (!answers_equal(&f->answer[c], &again->answer[c]))
                qr_panic("guesses of kind %d change choice %d, of %d tokens and %d", (int)g->kind, c, f->answer[c].n, again->answer[c].n);
    }
    qr_free(again);
}

static inline void ask(struct world *w, struct flight *f, const struct qr_sampling *s, const int32_t *prompt, int32_t n, int32_t n_choices)
{
    ask_guided(w, f, s, prompt, n, n_choices, NULL);
}

/* Waits until nothing is inside (the inbox included) and the counters have caught up, then checks the ledger and that no block is owned. */
static inline void world_settle(struct world *w, struct qr_stats *st)
{
    bool has_work = true;
    for (int i = 0; i < 6000; i++) {
        world_pump(w, 10000);
        qr_engine_progress_us(w->engine, &has_work);
        qr_engine_stats(w->engine, st);
        if (!has_work && st->n_inside == 0 && st->kv.n_owned == 0)
            break;
    }
    world_pump(w, 0);
    QR_ASSERT(!has_work && st->n_inside == 0);
    QR_ASSERT(st->n_accepted == st->n_done_stop + st->n_done_length + st->n_cancelled + st->n_failed);
    QR_ASSERT(st->kv.n_owned == 0);
    QR_ASSERT(st->kv.n_free + st->kv.n_cached == st->kv.n_blocks);
}

#endif
