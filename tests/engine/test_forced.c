/* Tokens that a grammar or the end of a thinking forces are said without logits, and what else a grammar tells is guessed: nothing but time may show it. */
#include <criterion/criterion.h>

#include "tests/engine/cases.h"

#define MODEL "models/stories260K"
#define FORCED_CASES 24

static const int32_t prompt[] = {1, 403, 407, 261, 378};

/* Keys that are fixed, texts of which one is the longest, ends that only a budget brings; greedy and drawn, with penalties, stop strings and choices. */
static void make_case(struct kase *k, int c)
{
    static const enum grammar_kind kind[] = {GRAMMAR_FIELDS, GRAMMAR_CHOICE, GRAMMAR_FIELDS, GRAMMAR_THOUGHT, GRAMMAR_FIELDS, GRAMMAR_NONE};
    *k = (struct kase){.n_choices = c % 5 == 4 ? 3 : 1, .n_prompt = QR_COUNT(prompt)};
    memcpy(k->prompt, prompt, sizeof prompt);
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

/* All cases, one by one, with as many guesses as draft_tokens says. */
static void run_cases(struct flight *f, const char *device, int32_t draft_tokens, struct qr_stats *st)
{
    struct setup s;
    struct world w;
    setup_init(&s, MODEL);
    s.device = device;
    s.config.draft_tokens = draft_tokens;
    world_open(&w, &s);
    for (int c = 0; c < FORCED_CASES; c++) {
        struct kase k;
        make_case(&k, c);
        ask_guided(&w, &f[c], &k.s, k.prompt, k.n_prompt, k.n_choices, &k.guided);
    }
    world_settle(&w, st);
    world_close(&w);
}

Test(forced, answers_are_the_same_bytes_and_events_and_take_fewer_steps)
{
    if (!data_path(MODEL))
        cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);
    struct flight *off = qr_alloc(FORCED_CASES, sizeof *off), *on = qr_alloc(FORCED_CASES, sizeof *on);
    struct qr_stats st_off, st_on;
    run_cases(off, "cpu", 0, &st_off);
    run_cases(on, "cpu", 8, &st_on);
    for (int c = 0; c < FORCED_CASES; c++)
        for (int i = 0; i < 3; i++)
            cr_expect(answers_equal(&off[c].answer[i], &on[c].answer[i]) && off[c].answer[i].n_events == on[c].answer[i].n_events, "case %d, choice %d", c, i);
    cr_log_info("%lu tokens: %lu steps without, %lu with; %lu guesses, %lu right", (unsigned long)st_on.output_tokens, (unsigned long)st_off.n_steps,
                (unsigned long)st_on.n_steps, (unsigned long)st_on.n_draft_tokens, (unsigned long)st_on.n_accepted_tokens);
    cr_expect_eq(st_on.output_tokens, st_off.output_tokens);
    cr_expect_lt(st_on.n_steps, st_off.n_steps);
    qr_free(off);
    qr_free(on);
}
