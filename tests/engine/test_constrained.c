/* Answers that a grammar or a budget of thinking decides on: they are what these say, and end as they say. */
#include <criterion/criterion.h>
#include <ctype.h>

#include "engine/guide.h"
#include "tests/engine/cases.h"

#define MODEL "models/stories260K"
#define NEED_DATA()                                                                                                    \
    do {                                                                                                               \
        if (!data_path(MODEL))                                                                                         \
            cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);                         \
    } while (0)

static const int32_t prompt[] = {1, 403, 407, 261, 378};

static void open_world(struct world *w)
{
    struct setup s;
    setup_init(&s, MODEL);
    s.guesses = true;
    world_open(w, &s);
}

static struct guided with(enum grammar_kind kind)
{
    return (struct guided){.grammar = kind};
}

static void ask_for(struct world *w, struct flight *f, const struct qr_sampling *s, const struct guided *g)
{
    ask_guided(w, f, s, prompt, QR_COUNT(prompt), 1, g);
}

/* Whether the whole text, or where it was cut its beginning, is of the grammar. */
static void check_text(struct world *w, enum grammar_kind kind, const struct answer *a)
{
    struct qr_matcher m = {0};
    struct qr_grammar *g = world_grammar(w, kind);
    qr_matcher_init(&m, g);
    cr_assert(qr_matcher_bytes(&m, a->text, (size_t)a->text_len, NULL), "'%.*s'", a->text_len, a->text);
    cr_assert(a->finish == QR_FINISH_LENGTH || (a->finish == QR_FINISH_STOP && qr_matcher_accepts(&m)), "'%.*s' ends %d", a->text_len, a->text, a->finish);
    qr_matcher_release(&m);
    qr_grammar_unref(g);
}

Test(constrained, every_answer_is_of_its_grammar_and_what_is_complete_ends_with_an_end_token)
{
    NEED_DATA();
    struct world w;
    struct flight *f = qr_alloc(1, sizeof *f);
    int32_t n_stop[GRAMMAR_KINDS] = {0};
    open_world(&w);
    for (int kind = GRAMMAR_WORDS; kind < GRAMMAR_FIELDS; kind++)
        for (int c = 0; c < 12; c++) {
            struct qr_sampling s;
            const struct guided g = with((enum grammar_kind)kind);
            qr_sampling_init(&s);
            s.seed = (uint64_t)c;
            s.temperature = c % 3 == 0 ? 0 : 1.2f;
            s.top_k = c % 4 == 1 ? 30 : 0;
            s.max_tokens = 10 + 20 * c;
            s.n_logprobs = c % 2 ? 2 : -1;
            ask_for(&w, f, &s, &g);
            check_text(&w, g.grammar, &f->answer[0]);
            n_stop[kind] += f->answer[0].finish == QR_FINISH_STOP;
            cr_assert(f->answer[0].finish != QR_FINISH_STOP || f->answer[0].stop_id == qr_engine_model(w.engine)->eos_ids[0]);
        }
    cr_assert(n_stop[GRAMMAR_CHOICE] == 12 && n_stop[GRAMMAR_WORDS] > 0, "%d, %d", n_stop[GRAMMAR_CHOICE], n_stop[GRAMMAR_WORDS]);
    qr_free(f);
    world_close(&w);
}

Test(constrained, log_probabilities_are_the_models_own)
{
    NEED_DATA();
    struct world w;
    struct flight *f = qr_alloc(2, sizeof *f);
    struct qr_sampling s;
    const struct guided g = with(GRAMMAR_CHOICE);
    open_world(&w);
    qr_sampling_init(&s);
    s.temperature = 0;
    s.n_logprobs = 1;
    s.max_tokens = 60;
    ask_for(&w, &f[0], &s, &g);
    const struct answer *a = &f[0].answer[0];
    int32_t n_unlikely = 0;
    for (int32_t i = 0; i < a->n; i++) /* the likeliest token of all is often not one that may come */
        n_unlikely += a->logprob[i] < a->top[i];
    cr_assert(n_unlikely > 0 && a->n > 2);
    s.repetition = 1.1f; /* changed logits are put back */
    ask_for(&w, &f[1], &s, &g);
    cr_assert(memcmp(a->top, f[1].answer[0].top, sizeof a->top[0]) == 0);
    qr_free(f);
    world_close(&w);
}

Test(constrained, ignore_eos_goes_on_as_long_as_the_grammar_does_and_the_end_that_it_demands_wins_over_min_tokens)
{
    NEED_DATA();
    struct world w;
    struct flight *f = qr_alloc(1, sizeof *f);
    struct qr_sampling s;
    struct guided g = with(GRAMMAR_DIGITS);
    open_world(&w);
    qr_sampling_init(&s);
    s.ignore_eos = true;
    s.max_tokens = 50;
    ask_for(&w, f, &s, &g);
    cr_assert(f->answer[0].finish == QR_FINISH_LENGTH && f->answer[0].n == 50 && f->answer[0].text_len >= 50);
    g = with(GRAMMAR_CHOICE);
    ask_for(&w, f, &s, &g);
    cr_assert(f->answer[0].finish == QR_FINISH_STOP && f->answer[0].stop_id == qr_engine_model(w.engine)->eos_ids[0]);
    check_text(&w, GRAMMAR_CHOICE, &f->answer[0]);
    s.ignore_eos = false;
    s.min_tokens = 45;
    ask_for(&w, f, &s, &g);
    cr_assert(f->answer[0].finish == QR_FINISH_STOP && f->answer[0].n < 45);
    g = with(GRAMMAR_DIGITS);
    ask_for(&w, f, &s, &g);
    cr_assert(f->answer[0].n >= 45);
    qr_free(f);
    world_close(&w);
}

Test(constrained, what_the_request_forbids_is_forbidden_as_long_as_the_grammar_allows_anything_else)
{
    NEED_DATA();
    static const int32_t only[] = {417, 419}; /* no digits */
    struct world w;
    struct flight *f = qr_alloc(1, sizeof *f);
    struct qr_sampling s;
    const struct guided g = with(GRAMMAR_DIGITS);
    open_world(&w);
    qr_sampling_init(&s);
    s.temperature = 0;
    s.ignore_eos = true;
    s.max_tokens = 12;
    ask_for(&w, f, &s, &g);
    const int32_t bad[] = {1, f->answer[0].id[0]};
    s.bad = bad;
    s.n_bad = 2;
    ask_for(&w, f, &s, &g);
    for (int32_t i = 0; i < f->answer[0].n; i++)
        cr_assert_neq(f->answer[0].id[i], bad[1]);
    check_text(&w, GRAMMAR_DIGITS, &f->answer[0]);
    s.allowed = only;
    s.n_allowed = 2;
    ask_for(&w, f, &s, &g); /* nothing is left: the grammar wins */
    cr_assert_eq(f->answer[0].n, 12);
    check_text(&w, GRAMMAR_DIGITS, &f->answer[0]);
    const int32_t one[] = {bad[1], 417};
    s.allowed = one;
    s.n_bad = 0;
    ask_for(&w, f, &s, &g);
    for (int32_t i = 0; i < f->answer[0].n; i++)
        cr_assert_eq(f->answer[0].id[i], bad[1]);
    qr_free(f);
    world_close(&w);
}

/* a's ids at `at` are the end of thinking. */
static bool ends_at(const struct answer *a, int32_t at)
{
    return at >= 0 && at + QR_COUNT(thought_end) <= a->n && memcmp(a->id + at, thought_end, sizeof thought_end) == 0;
}

Test(constrained, thinking_ends_by_its_marker_when_the_budget_is_spent_and_is_counted)
{
    NEED_DATA();
    struct world w;
    struct flight *f = qr_alloc(1, sizeof *f);
    struct qr_sampling s;
    const struct answer *a = &f->answer[0];
    open_world(&w);
    for (int budget = -1; budget < 12; budget++)
        for (int begun = 0; begun < 2; begun++) {
            struct guided g;
            guide_case(&g, 6);
            g.thinking.budget = budget;
            g.thinking.begun = begun;
            qr_sampling_init(&s);
            s.temperature = 0;
            s.max_tokens = 40;
            s.ignore_eos = true;
            ask_for(&w, f, &s, &g);
            cr_assert_eq(a->n, 40);
            if (!begun || budget < 0) {
                cr_assert(!ends_at(a, budget) && a->n_reasoning == (begun ? 40 : 0), "budget %d: %d", budget, a->n_reasoning);
                continue;
            }
            cr_assert(ends_at(a, budget), "budget %d", budget);
            cr_assert_eq(a->n_reasoning, budget + QR_COUNT(thought_end));
        }
    qr_free(f);
    world_close(&w);
}

Test(constrained, a_thinking_that_the_answer_begins_itself_is_followed_from_its_marker_on)
{
    NEED_DATA();
    struct world w;
    struct flight *f = qr_alloc(1, sizeof *f);
    struct qr_sampling s;
    struct guided g;
    const struct answer *a = &f->answer[0];
    open_world(&w);
    guide_case(&g, 6);
    g.thinking.begun = false;
    g.thinking.budget = 3;
    qr_sampling_init(&s);
    s.temperature = 0;
    s.max_tokens = 20;
    ask_for(&w, f, &s, &g);
    cr_assert(a->n == 20 && a->n_reasoning == 0);
    memcpy(g.thinking.start, a->id + 4, 2 * sizeof a->id[0]); /* what it says there is the start */
    ask_for(&w, f, &s, &g);
    cr_assert(ends_at(a, 4 + 2 + 3));
    cr_assert_eq(a->n_reasoning, 2 + 3 + QR_COUNT(thought_end));
    qr_free(f);
    world_close(&w);
}

Test(constrained, a_grammar_begins_behind_the_end_of_thinking_that_the_budget_forces)
{
    NEED_DATA();
    struct world w;
    struct flight *f = qr_alloc(1, sizeof *f);
    struct qr_sampling s;
    struct guided g;
    const struct answer *a = &f->answer[0];
    open_world(&w);
    guide_case(&g, 4);
    g.thinking.budget = 5;
    qr_sampling_init(&s);
    s.temperature = 0;
    s.max_tokens = 60;
    ask_for(&w, f, &s, &g);
    cr_assert(ends_at(a, 5) && a->n_reasoning == 7 && a->finish == QR_FINISH_STOP);
    check_text(&w, GRAMMAR_THOUGHT, a);
    for (int32_t i = a->text_len - 1; i >= 0 && i >= a->text_len - (a->n - 8); i--)
        cr_assert(isdigit((unsigned char)a->text[i]), "'%.*s'", a->text_len, a->text);
    qr_free(f);
    world_close(&w);
}

/* A vocabulary without "d": behind "abc" no token goes on. Another request runs beside it. */
Test(constrained, where_no_token_goes_on_the_request_ends_with_the_matchers_error_and_no_other_is_disturbed)
{
    NEED_DATA();
    enum { V = 512 };
    static const char letters[] = "abcefghi";
    static const char *bytes[V];
    static size_t len[V];
    static bool special[V];
    struct world w;
    struct flight *f = qr_alloc(3, sizeof *f);
    struct qr_sampling s;
    struct qr_err err = {0};
    struct guided g = with(GRAMMAR_CHOICE);
    open_world(&w);
    for (int i = 0; i < V; i++)
        bytes[i] = letters + i % 8, len[i] = i > 2;
    w.vocab = qr_vocab_of(bytes, len, special, V, qr_engine_model(w.engine)->eos_ids, qr_engine_model(w.engine)->n_eos);
    struct qr_exprs *x = qr_exprs_new(1 << 20);
    cr_assert_eq(qr_grammar_new(&w.grammar[GRAMMAR_CHOICE], x, qr_expr_text(x, "abcd"), w.vocab, 0, &err), 0, "%s", err.msg);
    qr_sampling_init(&s);
    s.max_tokens = 30;
    s.n_logprobs = 1;
    ask(&w, &f[0], &s, prompt, QR_COUNT(prompt), 1);
    cr_assert_eq(flight_start(&w, &f[1], &s, prompt, QR_COUNT(prompt), 1, &err), 0);
    cr_assert_eq(flight_start_guided(&w, &f[2], &s, prompt, QR_COUNT(prompt), 2, 0, &g, &err), 0);
    flight_finish(&w, &f[1]);
    flight_finish(&w, &f[2]);
    for (int i = 0; i < 2; i++)
        cr_assert(f[2].answer[i].finish == QR_FINISH_ERROR && f[2].answer[i].n == 3, "%d tokens, end %d", f[2].answer[i].n, f[2].answer[i].finish);
    cr_assert(f[2].err.code == QR_E_INVALID && strstr(f[2].err.msg, "no token of the vocabulary"), "%s", f[2].err.msg);
    cr_assert(answers_equal(&f[0].answer[0], &f[1].answer[0]));
    qr_free(f);
    world_close(&w);
}

/* The mask had allowed it, so what is refused behind it has no room. */
Test(constrained, a_token_that_the_matcher_refuses_is_an_error_by_name_and_changes_nothing)
{
    NEED_DATA();
    struct world w;
    struct qr_guide guide;
    struct qr_request r = {0};
    struct qr_err err = {0};
    open_world(&w);
    r.grammar = world_grammar(&w, GRAMMAR_DIGITS);
    qr_guide_init(&guide, &r);
    for (int32_t id = 3; id < 300; id++) {
        size_t len;
        const char *text = qr_vocab_token(w.vocab, id, &len);
        const bool digits = len == 1 && isdigit((unsigned char)text[0]);
        const int rc = qr_guide_take(&guide, &r.thinking, &id, 1, false, &err);
        cr_assert(rc == (digits ? 0 : QR_E_TOO_LARGE), "'%.*s': %d", (int)len, text, rc);
    }
    cr_assert(qr_matcher_accepts(&guide.matcher) && strstr(err.msg, "does not fit"));
    qr_guide_release(&guide);
    qr_grammar_unref(r.grammar);
    r.thinking = (struct qr_thinking){.n_end = 1, .end = {512}};
    struct qr_sampling s;
    struct flight *f = qr_alloc(1, sizeof *f);
    qr_sampling_init(&s);
    const struct guided g = {.thinking = r.thinking};
    cr_assert_eq(flight_start_guided(&w, f, &s, prompt, 2, 1, 0, &g, &err), QR_E_INVALID);
    cr_assert_str_eq(err.param, "thinking_token_budget");
    qr_free(f);
    world_close(&w);
}

/* Of 8 choices each goes its own way, and the same one as when it is the only request. */
Test(constrained, choices_have_states_of_their_own)
{
    NEED_DATA();
    struct world w;
    struct flight *f = qr_alloc(2, sizeof *f);
    struct qr_sampling s;
    struct guided g;
    int32_t n_different = 0;
    open_world(&w);
    guide_case(&g, 4);
    g.thinking.budget = 4;
    qr_sampling_init(&s);
    s.temperature = 1.3f;
    s.max_tokens = 40;
    for (int i = 0; i < 2; i++)
        ask_guided(&w, &f[i], &s, prompt, QR_COUNT(prompt), QR_CHOICES_MAX, &g);
    for (int c = 0; c < QR_CHOICES_MAX; c++) {
        check_text(&w, GRAMMAR_THOUGHT, &f[0].answer[c]);
        cr_assert(answers_equal(&f[0].answer[c], &f[1].answer[c]));
        n_different += c > 0 && !answers_equal(&f[0].answer[c], &f[0].answer[0]);
        cr_assert_leq(f[0].answer[c].n_reasoning, 4 + QR_COUNT(thought_end));
    }
    cr_assert_gt(n_different, 0);
    qr_free(f);
    world_close(&w);
}
