/* cases.h - a fixed set of different requests to a conformance model, run one by one or all at once: for tests that the same request gives the same bytes. */
#ifndef TESTS_ENGINE_CASES_H
#define TESTS_ENGINE_CASES_H

#include <criterion/criterion.h>

#include "base/rng.h"
#include "tests/engine/harness.h"
#include "tests/levels.h"

#if defined(__SANITIZE_ADDRESS__) /* half of them have one of every kind */
#define N_CASES 16
#else
#define N_CASES 32
#endif
#define PROMPT_MAX 120

/* Some with a grammar, some with a thinking that is ended, some with both. */
static inline void guide_case(struct guided *g, int c)
{
    static const enum grammar_kind kind[] = {GRAMMAR_WORDS, GRAMMAR_CHOICE, GRAMMAR_NESTED};
    *g = (struct guided){.grammar = c % 7 == 2 ? kind[c / 7 % QR_COUNT(kind)] : c % 7 == 4 ? GRAMMAR_THOUGHT : GRAMMAR_NONE};
    if (c % 7 != 4 && c % 7 != 6)
        return;
    g->thinking = (struct qr_thinking){.n_end = QR_COUNT(thought_end), .n_start = QR_COUNT(thought_start), .budget = c % 13, .begun = c != 13};
    memcpy(g->thinking.end, thought_end, sizeof thought_end);
    memcpy(g->thinking.start, thought_start, sizeof thought_start);
}

/* A fixed set of different requests: greedy and seeded, with and without log-probabilities, stop strings, penalties, choices. */
struct kase {
    struct qr_sampling s;
    struct guided guided;
    int32_t prompt[PROMPT_MAX], n_prompt, n_choices;
};

static inline void make_cases(struct kase *k)
{
    static const struct qr_logit_bias more_of[] = {{2, 3}, {300, 2.5f}, {417, -100}};
    static const int32_t never[] = {1, 261, 2, 266, 268, 3, 266, 268, 270, 2, 403, 268, 1, 265}, only[] = {2, 260, 262, 265, 270, 281, 300, 351, 417, 417};
    struct qr_rng rng = {.seed = 4711};
    int32_t shared[PROMPT_MAX];
    for (int i = 0; i < PROMPT_MAX; i++)
        shared[i] = 3 + (int32_t)qr_rng_below(&rng, 500);
    for (int c = 0; c < N_CASES; c++) {
        struct qr_sampling *s = &k[c].s;
        qr_sampling_init(s);
        s->temperature = c % 3 == 0 ? 0 : 0.6f + 0.1f * (float)(c % 7);
        s->top_k = c % 5 == 1 ? 40 : 0;
        s->top_p = c % 4 == 2 ? 0.9f : 1;
        s->min_p = c % 7 == 3 ? 0.05f : 0;
        s->repetition = c % 6 == 5 ? 1.2f : 1;
        s->presence = c % 8 == 7 ? 0.5f : 0;
        s->frequency = c % 11 == 8 ? 0.3f : 0;
        s->seed = (uint64_t)c * 1000003;
        s->max_tokens = 5 + (int32_t)qr_rng_below(&rng, 60);
        s->n_logprobs = c % 2 ? 3 : -1;
        s->ignore_eos = c % 4 == 0;
        s->min_tokens = c % 5 == 3 ? 6 : 0;
        if (c % 7 == 5) {
            s->logit_bias = more_of;
            s->n_logit_bias = QR_COUNT(more_of);
        }
        if (c % 6 == 2) {
            s->bad = never;
            s->n_bad = QR_COUNT(never);
        }
        if (c % 8 == 1) {
            s->allowed = only;
            s->n_allowed = QR_COUNT(only);
        }
        if (c % 9 == 4)
            s->stop[s->n_stops++] = "the";
        guide_case(&k[c].guided, c);
        k[c].n_choices = c % 10 == 6 ? 3 : 1;
        k[c].n_prompt = 1 + (int32_t)qr_rng_below(&rng, PROMPT_MAX - 1);
        int32_t n_shared = c % 3 == 1 ? (int32_t)qr_rng_below(&rng, (uint32_t)k[c].n_prompt) : 0;
        for (int i = 0; i < k[c].n_prompt; i++)
            k[c].prompt[i] = i < n_shared ? shared[i] : 3 + (int32_t)qr_rng_below(&rng, 500);
    }
}

/* Every case alone, nothing cached: what all other ways must equal. */
static inline void run_alone(struct flight *want, const struct kase *k, const struct setup *setup)
{
    struct setup s = *setup;
    s.config.prefix_cache = false;
    struct world w;
    world_open(&w, &s);
    for (int c = 0; c < N_CASES; c++)
        ask_guided(&w, &want[c], &k[c].s, k[c].prompt, k[c].n_prompt, k[c].n_choices, &k[c].guided);
    world_close(&w);
}

/* What `want` says is known to the guesser. */
static inline void guesser_learn_all(struct guesser *g, const struct flight *want, const struct kase *k)
{
    for (int c = 0; c < N_CASES; c++)
        for (int32_t i = 0; i < k[c].n_choices; i++)
            guesser_learn(g, k[c].prompt, k[c].n_prompt, &want[c].answer[i]);
}

/* Afterwards a block can be pinned, and let go. */
static inline void check_pin(struct world *w, const struct kase *k, const struct setup *setup)
{
    const int32_t n = setup->config.block_tokens;
    struct flight f;
    struct qr_stats st;
    struct qr_err err = {0};
    while (k->n_prompt < n)
        k++;
    const int rc = flight_pin(w, &f, k->prompt, n, 0, &err);
    cr_assert_eq(rc, setup->config.prefix_cache ? 0 : QR_E_UNSUPPORTED, "%s", err.msg);
    if (rc != 0)
        return;
    flight_finish(w, &f);
    cr_assert(f.answer[0].finish == QR_FINISH_LENGTH && world_unpin(w, true) == 1, "%s", f.err.msg);
    world_settle(w, &st);
}

/* All cases together: they arrive at random moments, beside noise that is cancelled, and prompts that are pinned and unpinned, at random moments. */
static inline void run_together(struct flight *got, const struct kase *k, const struct setup *setup, uint64_t seed, struct qr_stats *st)
{
    struct world w;
    struct qr_rng rng = {.seed = seed};
    struct qr_err err;
    world_open(&w, setup);
    enum { NOISE = 6 };
    struct flight *noise = qr_alloc(NOISE, sizeof *noise);
    int next = 0, n_done = 0;
    while (n_done < N_CASES) {
        if (next < N_CASES && qr_rng_below(&rng, 3) > 0) {
            const struct kase *of = &k[next];
            cr_assert(flight_start_guided(&w, &got[next], &of->s, of->prompt, of->n_prompt, of->n_choices, 0, &of->guided, &err) == 0, "%s", err.msg);
            next++;
        }
        struct flight *f = &noise[qr_rng_below(&rng, NOISE)];
        const struct kase *any = &k[qr_rng_below(&rng, N_CASES)];
        if (f->req)
            qr_engine_cancel(w.engine, f->req);
        else if (qr_rng_below(&rng, 3) == 0)
            flight_pin(&w, f, any->prompt, any->n_prompt, qr_rng_below(&rng, 2) ? 20000 : 0, &err);
        else
            flight_start_guided(&w, f, &any->s, any->prompt, any->n_prompt, 1, 0, &any->guided, &err);
        world_pump(&w, qr_rng_below(&rng, 2000));
        if (qr_rng_below(&rng, 4) == 0)
            world_unpin(&w, false);
        n_done = 0;
        for (int c = 0; c < next; c++)
            n_done += got[c].done;
    }
    for (int i = 0; i < NOISE; i++)
        if (noise[i].req)
            qr_engine_cancel(w.engine, noise[i].req);
    for (int i = 0; i < NOISE; i++)
        if (noise[i].req)
            flight_finish(&w, &noise[i]);
    world_unpin(&w, true);
    world_settle(&w, st);
    check_pin(&w, k, setup);
    world_close(&w);
    qr_free(noise);
}

/* The same, where a pool of few blocks has to preempt: again if it did not, as those that run come to their ends where the test is stopped between requests. */
static inline void run_crowded(struct flight *got, const struct kase *k, const struct setup *setup, uint64_t seed, bool has_to, struct qr_stats *st)
{
    run_together(got, k, setup, seed, st);
    for (uint64_t tries = 1; has_to && tries < 10 && st->sched.n_preempted == 0; tries++)
        run_together(got, k, setup, seed + 1000 * tries, st);
}

/* A prompt whose blocks had to leave the cache for others is asked again: they come back from the host's memory, and so does the answer. */
static inline void check_second_tier(const struct setup *setup)
{
    enum { ASKED = 4 };
    const int32_t block = setup->config.block_tokens, n = 2 * block + block / 2;
    static struct flight f[ASKED];
    struct setup s = *setup;
    struct qr_sampling greedy;
    struct qr_stats st;
    struct world w;
    int32_t prompt[PROMPT_MAX];
    QR_ASSERT(n <= PROMPT_MAX);
    s.config.kv_tokens = s.config.ctx_max = 4 * block; /* a request takes three */
    s.config.step_tokens_max = 64;
    s.config.kv_host_bytes = 1 << 20;
    qr_sampling_init(&greedy);
    greedy.temperature = 0;
    greedy.max_tokens = 2;
    greedy.n_logprobs = 1;
    greedy.ignore_eos = true;
    world_open(&w, &s);
    for (int k = 0; k < ASKED; k++) { /* the last prompt is the first one */
        for (int i = 0; i < n; i++)
            prompt[i] = 3 + (17 * (k % (ASKED - 1)) + 5 * i) % 500;
        ask(&w, &f[k], &greedy, prompt, n, 1);
    }
    world_settle(&w, &st);
    world_close(&w);
    cr_assert_eq(f[0].n_cached, 0);
    cr_assert_eq(f[ASKED - 1].n_cached, 2 * block);
    cr_assert_eq(st.kv.n_in, 2, "%lld blocks came back", (long long)st.kv.n_in);
    cr_assert(st.kv.n_out >= 4 && st.kv.n_evicted == 0, "%lld blocks left", (long long)st.kv.n_out);
    cr_assert(answers_equal(&f[0].answer[0], &f[ASKED - 1].answer[0]));
}

static inline void compare(const struct flight *want, const struct flight *got, const struct kase *k, const char *how)
{
    for (int c = 0; c < N_CASES; c++)
        for (int32_t i = 0; i < k[c].n_choices; i++)
            cr_assert(answers_equal(&want[c].answer[i], &got[c].answer[i]), "%s: case %d choice %d differs (%d and %d tokens)", how, c, i,
                      want[c].answer[i].n, got[c].answer[i].n);
}

#endif
