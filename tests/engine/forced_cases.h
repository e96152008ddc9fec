/* forced_cases.h - requests whose grammars or budgets of thinking force tokens, for tests that nothing but time shows it. */
#ifndef TESTS_ENGINE_FORCED_CASES_H
#define TESTS_ENGINE_FORCED_CASES_H

#include "tests/engine/cases.h"

#if defined(__SANITIZE_ADDRESS__) /* half of them have one of every kind */
#define FORCED_CASES 12
#else
#define FORCED_CASES 24
#endif

static const int32_t forced_prompt[] = {1, 403, 407, 261, 378};

/* Keys that are fixed, texts of which one is the longest, ends that only a budget brings; greedy and drawn, with penalties, stop strings and choices. */
static inline void make_forced_case(struct kase *k, int c)
{
    static const enum grammar_kind kind[] = {GRAMMAR_FIELDS, GRAMMAR_CHOICE, GRAMMAR_FIELDS, GRAMMAR_THOUGHT, GRAMMAR_FIELDS, GRAMMAR_NONE};
    *k = (struct kase){.n_choices = c % 5 == 4 ? 3 : 1, .n_prompt = QR_COUNT(forced_prompt)};
    memcpy(k->prompt, forced_prompt, sizeof forced_prompt);
    qr_sampling_init(&k->s);
    k->s.temperature = c % 4 == 0 ? 0 : 1.1f;
    k->s.seed = (uint64_t)c;
    k->s.max_tokens = c % 7 == 6 ? 9 : 200;
    k->s.repetition = c % 3 == 1 ? 1.2f : 1;
    k->s.min_tokens = c % 8 == 3 ? 30 : 0;
    k->s.n_logprobs = c % 9 == 8 ? 2 : -1;
    if (c % 6 == 2)
        k->s.stop[k->s.n_stops++] = "girl\"";
    k->guided.grammar = kind[c % QR_COUNT(kind)];
    if (k->guided.grammar != GRAMMAR_THOUGHT && k->guided.grammar != GRAMMAR_NONE)
        return;
    k->guided.thinking = (struct qr_thinking){.n_end = QR_COUNT(thought_end), .budget = c % 7, .begun = true};
    memcpy(k->guided.thinking.end, thought_end, sizeof thought_end);
    k->s.max_tokens = 60;
}

/* All cases, one by one or at once. */
static inline void run_forced(struct flight *f, const struct setup *setup, bool at_once, struct qr_stats *st)
{
    struct world w;
    struct qr_err err;
    world_open(&w, setup);
    for (int c = 0; c < FORCED_CASES; c++) {
        struct kase k;
        make_forced_case(&k, c);
        cr_assert_eq(flight_start_guided(&w, &f[c], &k.s, k.prompt, k.n_prompt, k.n_choices, 0, &k.guided, &err), 0, "%s", err.msg);
        if (!at_once)
            flight_finish(&w, &f[c]);
    }
    for (int c = 0; c < FORCED_CASES; c++)
        flight_finish(&w, &f[c]);
    world_settle(&w, st);
    world_close(&w);
}

/* The same with guesses and without, then compared: bytes, and how many events told them. */
static inline void expect_forced_same(struct setup *setup, bool at_once, struct qr_stats *st_off, struct qr_stats *st_on)
{
    struct flight *off = qr_alloc(FORCED_CASES, sizeof *off), *on = qr_alloc(FORCED_CASES, sizeof *on);
    setup->config.draft_tokens = 0;
    run_forced(off, setup, at_once, st_off);
    setup->config.draft_tokens = 8;
    run_forced(on, setup, at_once, st_on);
    for (int c = 0; c < FORCED_CASES; c++)
        for (int i = 0; i < 3; i++)
            cr_expect(answers_equal(&off[c].answer[i], &on[c].answer[i]) && off[c].answer[i].n_events == on[c].answer[i].n_events, "case %d, choice %d", c, i);
    cr_log_info("%lu tokens: %lu steps without, %lu with; %lu guesses, %lu right", (unsigned long)st_on->output_tokens, (unsigned long)st_off->n_steps,
                (unsigned long)st_on->n_steps, (unsigned long)st_on->n_draft_tokens, (unsigned long)st_on->n_accepted_tokens);
    cr_expect_eq(st_on->output_tokens, st_off->output_tokens);
    qr_free(off);
    qr_free(on);
}

#endif
