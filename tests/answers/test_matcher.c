/* test_matcher.c - expressions and matchers: what is matched, masks against trying every token, collections, bounds. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "answers/grammar/matcher.h"
#include "base/mem.h"
#include "base/rng.h"
#include "answers/grammar/forced.h"
#include "words.h"

static const char *const some_words[] = {
    "ab", "abc", "aba", "b\"", "\"", "\":", "\": \"", "{\"", "\"}", "},", "12", "1.", "00", " ", "  ", "\n ", "\xc3\xa4", "\xc3", "\xa4\"", "\\n", "\\u",
    "\\u00", "ae", "abab", "aaaa", "ab", "foo", "fo", "<", "</", "</t", ">", "t>", NULL};

struct rig {
    struct words words;
    struct qr_exprs *x;
};

static void rig_make(struct rig *r)
{
    words_make(&r->words, some_words);
    r->x = qr_exprs_new(1 << 24);
}

static struct qr_grammar *grammar(struct rig *r, int32_t root, size_t memo)
{
    struct qr_grammar *g = NULL;
    struct qr_err err = {0};
    const int rc = qr_grammar_new(&g, r->x, root, r->words.vocab, memo, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
    return g;
}

/* ---- languages ---- */

static int32_t digits(struct qr_exprs *x)
{
    return qr_expr_repeat(x, qr_expr_range(x, '0', '9'), 2, 3);
}

static int32_t sums(struct qr_exprs *x)
{
    const int32_t e = qr_expr_rule(x, "e"), in = qr_expr_cat(x, qr_expr_text(x, "("), qr_expr_cat(x, e, qr_expr_text(x, ")")));
    const int32_t t = qr_expr_or(x, qr_expr_range(x, '0', '9'), in);
    qr_expr_define(x, e, qr_expr_or(x, qr_expr_cat(x, e, qr_expr_cat(x, qr_expr_text(x, "+"), t)), t));
    return e;
}

static int32_t two_rules(struct qr_exprs *x)
{
    const int32_t s = qr_expr_rule(x, "s"), r = qr_expr_rule(x, "r");
    qr_expr_define(x, s, qr_expr_or(x, qr_expr_cat(x, r, qr_expr_text(x, "x")), qr_expr_text(x, "a")));
    qr_expr_define(x, r, qr_expr_or(x, qr_expr_cat(x, s, qr_expr_text(x, "y")), qr_expr_text(x, "b")));
    return s;
}

static int32_t string(struct qr_exprs *x, int32_t min, int32_t max)
{
    const int32_t q = qr_expr_text(x, "\"");
    return qr_expr_cat(x, q, qr_expr_cat(x, qr_expr_repeat(x, qr_expr_json_char(x), min, max), q));
}

static int32_t any_string(struct qr_exprs *x) { return string(x, 0, QR_REPEAT_FOREVER); }
static int32_t short_string(struct qr_exprs *x) { return string(x, 1, 3); }
static int32_t long_string(struct qr_exprs *x) { return string(x, 2, 5000); }

static int32_t words(struct qr_exprs *x)
{
    static const char *const word[] = {"aba", "abc", "ab", "b", "foo", "fob", "\xc3\xa4"};
    size_t len[7];
    for (int i = 0; i < 7; i++)
        len[i] = strlen(word[i]);
    return qr_expr_any_text(x, word, len, 7);
}

static int32_t other_names(struct qr_exprs *x)
{
    static const char *const name[] = {"ab", "abc", "foo"};
    int32_t part[3];
    for (int i = 0; i < 3; i++)
        part[i] = qr_expr_json_text(x, name[i], strlen(name[i]));
    const int32_t any = qr_expr_repeat(x, qr_expr_json_char(x), 0, QR_REPEAT_FOREVER);
    return qr_expr_cat(x, qr_expr_minus(x, any, qr_expr_any(x, part, 3)), qr_expr_text(x, "\""));
}

static int32_t until_tag(struct qr_exprs *x) { return qr_expr_until(x, qr_expr_text(x, "</t>")); }

static int32_t nested(struct qr_exprs *x)
{
    const int32_t v = qr_expr_rule(x, "v"), more = qr_expr_cat(x, qr_expr_text(x, ","), v);
    const int32_t list = qr_expr_cat(x, v, qr_expr_repeat(x, more, 0, 4));
    qr_expr_define(x, v, qr_expr_or(x, qr_expr_cat(x, qr_expr_text(x, "{\"ab\": "), qr_expr_cat(x, list, qr_expr_text(x, "}"))), any_string(x)));
    return v;
}

static int32_t after_token(struct qr_exprs *x) /* the second special token, or not; then digits */
{
    const int32_t id = 256 + (int32_t)(sizeof some_words / sizeof *some_words) - 1 + 1;
    return qr_expr_cat(x, qr_expr_maybe(x, qr_expr_token(x, id)), digits(x));
}

static int32_t text_with_tag(struct qr_exprs *x)
{
    return qr_expr_or(x, qr_expr_without(x, qr_expr_text(x, "</t>")), qr_expr_cat(x, until_tag(x), digits(x)));
}

static const struct language {
    int32_t (*make)(struct qr_exprs *x);
    const char *good[6], *bad[6];
} languages[] = {
    {digits, {"12", "123"}, {"", "1", "1234", "a1"}},
    {sums, {"1", "1+2", "(1+2)+3", "((4))"}, {"", "1+", "+1", "(1", "1)"}},
    {two_rules, {"a", "bx", "ayx", "bxyx"}, {"", "b", "ay", "ax"}},
    {any_string, {"\"\"", "\"ab\xc3\xa4\"", "\"\\u00e4\\n\\\"\"", "\"\\ud83d\\ude00\""}, {"\"", "\"\n\"", "\"\\ud83d\"", "\"\xc3\"", "\"\\x\""}},
    {short_string, {"\"a\"", "\"abc\"", "\"\\u00e4bc\"", "\"\\ud83d\\ude00ab\""}, {"\"\"", "\"abcd\""}},
    {long_string, {"\"ab\""}, {"\"a\"", "\"\""}},
    {words, {"ab", "aba", "foo", "\xc3\xa4"}, {"", "a", "abab", "fo", "\xc3"}},
    {other_names, {"\"", "a\"", "abcd\"", "fo\""}, {"ab\"", "abc\"", "foo\"", "a"}},
    {until_tag, {"</t>", "ab</t>", "<</t>"}, {"", "ab", "</t></t>", "</t>a"}},
    {nested, {"\"\"", "{\"ab\": \"\"}", "{\"ab\": \"a\",{\"ab\": \"b\"}}"}, {"", "{\"ab\": }", "{\"ab\": \"\""}},
    {after_token, {"12"}, {"1"}},
    {text_with_tag, {"", "abc", "ab</t>12"}, {"ab</t>", "ab</t>1"}},
};

Test(matcher, texts_of_a_language_are_taken_and_no_others)
{
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        struct rig r;
        rig_make(&r);
        struct qr_grammar *g = grammar(&r, languages[i].make(r.x), 0);
        for (int k = 0; k < 6 && languages[i].good[k]; k++)
            cr_expect(words_match(g, languages[i].good[k], strlen(languages[i].good[k])), "%zu: %s", i, languages[i].good[k]);
        for (int k = 0; k < 6 && languages[i].bad[k]; k++)
            cr_expect_not(words_match(g, languages[i].bad[k], strlen(languages[i].bad[k])), "%zu: %s", i, languages[i].bad[k]);
        qr_grammar_unref(g);
        words_free(&r.words);
    }
}

/* ---- masks ---- */

static bool bit(const uint32_t *mask, int32_t i) { return mask[i / 32] >> i % 32 & 1; }

/* What must come is what the mask allows: of one token that one, of a byte only tokens that begin with it. */
static void check_forced(struct qr_matcher *m, const uint32_t *mask, const struct words *w, const char *where)
{
    char byte;
    const int32_t only = qr_forced_only(m), n = qr_forced_bytes(m, &byte, 1);
    for (int32_t id = 0; id < w->n; id++) {
        size_t len;
        const char *text = qr_vocab_token(w->vocab, id, &len);
        cr_assert(only < 0 || bit(mask, id) == (id == only), "%s: token %d, and %d is said to be the only one", where, (int)id, (int)only);
        cr_assert(n == 0 || !bit(mask, id) || (len > 0 && text[0] == byte), "%s: token %d, byte %d", where, (int)id, byte);
    }
}

/* The mask is what trying every token gives. */
static void check_mask(struct qr_matcher *m, const struct words *w, const char *where)
{
    uint32_t mask[QR_MASK_WORDS(256 + WORDS_MAX)] = {0};
    struct qr_err err = {0};
    cr_assert_eq(qr_matcher_mask(m, mask, &err), 0, "%s: %s", where, err.msg);
    for (int32_t id = 0; id < w->n; id++) {
        struct qr_matcher copy = {0};
        qr_matcher_copy(&copy, m);
        const bool taken = qr_matcher_token(&copy, id);
        qr_matcher_release(&copy);
        cr_assert_eq(bit(mask, id), taken, "%s: token %d (%.*s)", where, (int)id, (int)w->len[id], w->text[id]);
    }
    check_forced(m, mask, w, where);
}

static int32_t pick(const struct words *w, struct qr_matcher *m, struct qr_rng *rng)
{
    uint32_t mask[QR_MASK_WORDS(256 + WORDS_MAX)] = {0};
    struct qr_err err = {0};
    int32_t n = 0, chosen = -1;
    qr_matcher_mask(m, mask, &err);
    for (int32_t id = 0; id < w->n; id++)
        if (bit(mask, id) && qr_rng_below(rng, (uint32_t)++n) == 0)
            chosen = id;
    return chosen;
}

static void walk_randomly(struct rig *r, struct qr_grammar *g, int n_walks, int n_tokens, struct qr_rng *rng, const char *where)
{
    for (int walk = 0; walk < n_walks; walk++) {
        struct qr_matcher m = {0};
        qr_matcher_init(&m, g);
        for (int k = 0; k < n_tokens; k++) {
            check_mask(&m, &r->words, where);
            const int32_t id = pick(&r->words, &m, rng);
            cr_assert_geq(id, 0, "%s", where);
            if (id == r->words.end)
                break;
            cr_assert(qr_matcher_token(&m, id), "%s", where);
        }
        char end[64];
        const int32_t n = qr_matcher_shortest(&m, end, sizeof end);
        cr_assert_geq(n, 0, "%s", where);
        cr_assert(qr_matcher_bytes(&m, end, (size_t)n, NULL) && qr_matcher_accepts(&m), "%s: %.*s", where, (int)n, end);
        qr_matcher_release(&m);
    }
}

Test(matcher, a_mask_is_what_trying_every_token_gives)
{
    struct qr_rng rng = {.seed = 26};
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        struct rig r;
        char where[32];
        rig_make(&r);
        snprintf(where, sizeof where, "language %zu", i);
        struct qr_grammar *g = grammar(&r, languages[i].make(r.x), 0);
        walk_randomly(&r, g, 12, 14, &rng, where);
        qr_grammar_unref(g);
        words_free(&r.words);
    }
}

Test(matcher, collections_change_nothing)
{
    struct rig r;
    rig_make(&r);
    const int32_t comma = qr_expr_text(r.x, ","), strings = string(r.x, 0, 100000);
    struct qr_grammar *g = grammar(&r, qr_expr_cat(r.x, strings, qr_expr_repeat(r.x, qr_expr_cat(r.x, comma, strings), 0, 9)), 1);
    struct qr_matcher m = {0}, held = {0};
    qr_matcher_init(&m, g);
    cr_assert(qr_matcher_bytes(&m, "\"abc\",\"12", 9, NULL));
    qr_matcher_copy(&held, &m); /* and stays where it is, whatever the other one does */
    for (int i = 0; i < 30000; i++)
        cr_assert(qr_matcher_bytes(&m, "ab", 2, NULL));
    struct qr_grammar_stats stats;
    qr_grammar_stats(g, &stats);
    cr_assert_gt(stats.n_collected, 2);
    check_mask(&m, &r.words, "after collections");
    check_mask(&held, &r.words, "held");
    cr_assert(qr_matcher_bytes(&held, "\"", 1, NULL) && qr_matcher_accepts(&held));
    for (int i = 0; i < 19999; i++) /* 60,002 characters are in: 39,998 are left */
        cr_assert(qr_matcher_bytes(&m, "ab", 2, NULL));
    cr_assert_not(qr_matcher_bytes(&m, "a", 1, NULL));
    cr_assert(qr_matcher_bytes(&m, "\"", 1, NULL));
    cr_assert(qr_matcher_accepts(&m));
    qr_matcher_release(&m);
    qr_matcher_release(&held);
    qr_grammar_unref(g);
    words_free(&r.words);
}

Test(matcher, a_refused_text_changes_nothing)
{
    struct rig r;
    size_t n = 0;
    rig_make(&r);
    struct qr_grammar *g = grammar(&r, digits(r.x), 0);
    struct qr_matcher m = {0};
    qr_matcher_init(&m, g);
    cr_assert(qr_matcher_bytes(&m, "1", 1, NULL));
    cr_assert_not(qr_matcher_bytes(&m, "23x", 3, &n));
    cr_assert_eq(n, 2);
    cr_assert(qr_matcher_bytes(&m, "23", 2, NULL));
    cr_assert(qr_matcher_done(&m));
    cr_assert(qr_matcher_token(&m, r.words.end));
    cr_assert_not(qr_matcher_token(&m, '1'));
    qr_matcher_release(&m);
    qr_grammar_unref(g);
    words_free(&r.words);
}

/* ---- bounds ---- */

static int open_code(struct rig *r, int32_t root, struct qr_err *err)
{
    struct qr_grammar *g = NULL;
    const int rc = qr_grammar_new(&g, r->x, root, r->words.vocab, 0, err);
    if (rc == 0)
        qr_grammar_unref(g);
    words_free(&r->words);
    return rc;
}

Test(matcher, what_has_no_text_is_refused)
{
    struct rig r;
    struct qr_err err = {0};
    rig_make(&r);
    const int32_t endless = qr_expr_rule(r.x, "endless");
    qr_expr_define(r.x, endless, qr_expr_cat(r.x, qr_expr_text(r.x, "a"), endless));
    cr_assert_eq(open_code(&r, endless, &err), QR_E_INVALID);
    rig_make(&r);
    const int32_t ab = qr_expr_repeat(r.x, qr_expr_text(r.x, "ab"), 1, QR_REPEAT_FOREVER), even = qr_expr_repeat(r.x, qr_expr_range(r.x, 0, 255), 3, 3);
    cr_assert_eq(open_code(&r, qr_expr_and(r.x, ab, even), &err), QR_E_INVALID);
}

Test(matcher, dead_ends_are_not_entered)
{
    struct rig r;
    rig_make(&r);
    const int32_t any = qr_expr_repeat(r.x, qr_expr_range(r.x, 'a', 'c'), 0, QR_REPEAT_FOREVER);
    const int32_t with_c = qr_expr_cat(r.x, any, qr_expr_cat(r.x, qr_expr_text(r.x, "c"), any));
    struct qr_grammar *g = grammar(&r, qr_expr_and(r.x, with_c, qr_expr_repeat(r.x, qr_expr_range(r.x, 'a', 'c'), 0, 3)), 0);
    struct qr_matcher m = {0};
    qr_matcher_init(&m, g);
    cr_assert(qr_matcher_bytes(&m, "ab", 2, NULL));
    cr_assert_not(qr_matcher_bytes(&m, "a", 1, NULL)); /* three letters without c: no way out */
    check_mask(&m, &r.words, "before the last letter");
    cr_assert(qr_matcher_bytes(&m, "c", 1, NULL));
    qr_matcher_release(&m);
    qr_grammar_unref(g);
    words_free(&r.words);
}

Test(matcher, rules_are_checked_by_name)
{
    struct rig r;
    struct qr_err err = {0};
    rig_make(&r);
    const int32_t missing = qr_expr_rule(r.x, "missing");
    cr_assert_eq(open_code(&r, missing, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "missing"));
    rig_make(&r);
    const int32_t hidden = qr_expr_rule(r.x, "hidden"), blank = qr_expr_maybe(r.x, qr_expr_text(r.x, " "));
    const int32_t again = qr_expr_cat(r.x, hidden, qr_expr_text(r.x, "a"));
    qr_expr_define(r.x, hidden, qr_expr_or(r.x, qr_expr_cat(r.x, blank, again), qr_expr_text(r.x, "b")));
    cr_assert_eq(open_code(&r, hidden, &err), QR_E_UNSUPPORTED);
    cr_assert_not_null(strstr(err.msg, "hidden"));
    rig_make(&r);
    const int32_t rec = qr_expr_rule(r.x, "rec");
    qr_expr_define(r.x, rec, qr_expr_cat(r.x, qr_expr_text(r.x, "a"), qr_expr_maybe(r.x, rec)));
    cr_assert_eq(open_code(&r, qr_expr_cat(r.x, rec, qr_expr_not(r.x, rec)), &err), QR_E_UNSUPPORTED);
}

Test(matcher, a_costly_grammar_ends_by_name_and_in_time)
{
    struct rig r;
    struct qr_err err = {0};
    rig_make(&r);
    const int32_t ab = qr_expr_range(r.x, 'a', 'b'), any = qr_expr_repeat(r.x, ab, 0, QR_REPEAT_FOREVER);
    struct qr_grammar *g = NULL;
    const int32_t bomb = qr_expr_cat(r.x, any, qr_expr_cat(r.x, qr_expr_text(r.x, "a"), qr_expr_repeat(r.x, ab, 60000, 60000)));
    cr_assert_eq(qr_grammar_new(&g, r.x, bomb, r.words.vocab, 0, &err), 0, "%s", err.msg);
    struct qr_matcher m = {0};
    qr_matcher_init(&m, g);
    bool taken = true;
    for (int i = 0; i < 20000 && taken; i++) /* one state more for each letter */
        taken = qr_matcher_bytes(&m, "a", 1, NULL);
    cr_assert_not(taken);
    qr_matcher_release(&m);
    qr_grammar_unref(g);
    words_free(&r.words);
}

Test(matcher, many_words_cost_no_more_than_one)
{
    enum { N = 5000 };
    struct rig r;
    rig_make(&r);
    static char text[N][24];
    static const char *word[N];
    static size_t len[N];
    for (int i = 0; i < N; i++) {
        len[i] = (size_t)snprintf(text[i], sizeof text[i], "word-%d-of-many", i * 7919);
        word[i] = text[i];
    }
    struct qr_grammar *g = grammar(&r, qr_expr_any_text(r.x, word, len, N), 0);
    for (int i = 0; i < N; i += 97)
        cr_assert(words_match(g, text[i], len[i]));
    cr_assert_not(words_match(g, "word-5-of-many", 14));
    struct qr_grammar_stats stats;
    qr_grammar_stats(g, &stats);
    cr_assert_lt(stats.memo_used, (size_t)8 << 20);
    qr_grammar_unref(g);
    words_free(&r.words);
}
