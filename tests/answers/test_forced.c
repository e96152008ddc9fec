/* test_forced.c - what a grammar leaves no choice about: the same as its masks say, and as real answers go on. */
#include <time.h>

#include "answers/grammar/forced.h"
#include "real.h"

#define GUESSES 8

/* ---- small vocabularies ---- */

static struct qr_grammar *make_grammar(const struct words *w, int32_t (*make)(struct qr_exprs *x))
{
    struct qr_grammar *g = NULL;
    struct qr_err err = {0};
    struct qr_exprs *x = qr_exprs_new(1 << 20);
    cr_assert_eq(qr_grammar_new(&g, x, make(x), w->vocab, 0, &err), 0, "%s", err.msg);
    return g;
}

/* {"name":...,"nick":1} with blanks behind separators, then a special token. */
static int32_t make_object(struct qr_exprs *x)
{
    const int32_t blank = qr_expr_maybe(x, qr_expr_text(x, " "));
    const int32_t letters = qr_expr_repeat(x, qr_expr_range(x, 'a', 'z'), 1, QR_REPEAT_FOREVER);
    const int32_t parts[] = {qr_expr_text(x, "{\"name\":"), blank, qr_expr_text(x, "\""), letters, qr_expr_text(x, "\","), blank,
                             qr_expr_text(x, "\"nick\":"), blank, qr_expr_text(x, "1}"), qr_expr_token(x, 256 + 10)};
    int32_t e = QR_EXPR_EMPTY;
    for (int i = QR_COUNT(parts) - 1; i >= 0; i--)
        e = qr_expr_cat(x, parts[i], e);
    return e;
}

/* In the order in which an encoder has learnt them; the fourth is the byte again. */
static const char *const object_words[] = {"na", "me", "name", "\"", "{\"", "\":", " \"", "ni", "ck", "nick", NULL};

static void expect_guesses(struct qr_grammar *g, const struct words *w, const char *said, const char *expected)
{
    struct qr_matcher m = {0};
    struct qr_buf text = {0};
    int32_t id[GUESSES], output[64], n_output = 0;
    bool sure[GUESSES];
    qr_matcher_init(&m, g);
    cr_assert(qr_matcher_bytes(&m, said, strlen(said), NULL), "%s", said);
    for (; said[n_output]; n_output++)
        output[n_output] = (uint8_t)said[n_output];
    const int32_t n = qr_forced_tokens(&m, output, n_output, id, sure, GUESSES);
    for (int32_t i = 0; i < n; i++) {
        if (w->special[id[i]])
            qr_buf_put_str(&text, "<special>");
        else
            qr_buf_put(&text, w->text[id[i]], w->len[id[i]]);
        qr_buf_put_byte(&text, sure[i] ? '|' : '?');
        cr_expect_neq(id[i], '"', "a byte that is a token twice is guessed as a character");
    }
    qr_buf_put_byte(&text, 0);
    cr_expect_str_eq(text.data, expected, "behind %s: %s", said, text.data);
    qr_matcher_release(&m);
    qr_buf_release(&text);
}

Test(forced, guesses_stop_where_a_choice_begins_and_blanks_follow_the_last_example)
{
    struct words w;
    words_make(&w, object_words);
    struct qr_grammar *g = make_grammar(&w, make_object);
    expect_guesses(g, &w, "", "{\"|name|\":|");
    expect_guesses(g, &w, "{\"n", "a|me|\":|");
    expect_guesses(g, &w, "{\"name\":", "");
    expect_guesses(g, &w, "{\"name\": ", "\"|");
    expect_guesses(g, &w, "{\"name\":\"a", "");
    expect_guesses(g, &w, "{\"name\": \"a\",", "");               /* no example of a comma */
    expect_guesses(g, &w, "{\"name\": \"a\",\"", "nick|\":| |1|}|<special>|"); /* a colon's is known */
    expect_guesses(g, &w, "{\"name\":\"a\",\"", "nick|\":|1|}|<special>|");
    expect_guesses(g, &w, "{\"name\":\"a\",\"nick\":1}", "<special>|");
    qr_grammar_unref(g);
    words_free(&w);
}

static int32_t only_behind(struct qr_grammar *g, const char *said)
{
    struct qr_matcher m = {0};
    qr_matcher_init(&m, g);
    cr_assert(qr_matcher_bytes(&m, said, strlen(said), NULL), "%s", said);
    const int32_t only = qr_forced_only(&m);
    qr_matcher_release(&m);
    return only;
}

Test(forced, the_only_token_is_seen_where_no_other_one_begins_or_ends_there)
{
    struct words w;
    words_make(&w, object_words);
    struct qr_grammar *g = make_grammar(&w, make_object);
    cr_expect_eq(only_behind(g, ""), -1);
    cr_expect_eq(only_behind(g, "{\"n"), 'a');
    cr_expect_eq(only_behind(g, "{\"na"), -1, "m, or me");
    cr_expect_eq(only_behind(g, "{\"nam"), 'e');
    cr_expect_eq(only_behind(g, "{\"name\":\""), -1);
    cr_expect_eq(only_behind(g, "{\"name\":\"a\",\"nick\":1"), '}');
    cr_expect_eq(only_behind(g, "{\"name\":\"a\",\"nick\":1}"), w.first_special);
    cr_expect_eq(only_behind(g, "{\"name\":\"a\",\"nick\":1}\xff" "266;"), w.end);
    qr_grammar_unref(g);
    words_free(&w);
}

/* ---- a real vocabulary, real schemas and their instances ---- */

/* How guesses fare on texts as an encoder cuts them, when they are checked as an engine checks them. */
struct fare {
    int64_t n_bytes, n_forced, n_tokens, n_draws, n_guessed, n_right, n_sure, n_sure_right, n_only;
    double us;
};

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* The text goes on with the bytes that it must go on with. */
static void count_bytes(struct fare *f, struct qr_matcher *m, const struct qr_buf *text)
{
    char out[QR_FORCED_BYTES];
    for (size_t i = 0; i < text->len;) {
        const int32_t n = qr_forced_bytes(m, out, sizeof out);
        const size_t step = n > 0 ? (size_t)n : 1;
        cr_assert(i + step <= text->len && memcmp(text->data + i, out, (size_t)n) == 0, "%.*s", (int)text->len, text->data);
        cr_assert(qr_matcher_bytes(m, text->data + i, step, NULL));
        f->n_forced += n;
        i += step;
    }
    f->n_bytes += (int64_t)text->len;
}

/* Guesses at one place; returns how many of them are right. */
static int32_t count_guesses(struct fare *f, struct qr_matcher *m, const struct qr_ids *ids, int32_t at)
{
    int32_t id[GUESSES], n_right = 0;
    bool sure[GUESSES];
    const int32_t only = qr_forced_only(m);
    cr_assert(only < 0 || only == ids->id[at]);
    f->n_only += only >= 0;
    f->n_draws -= only >= 0;
    const double from = cpu_us();
    const int32_t n = qr_forced_tokens(m, ids->id, at, id, sure, GUESSES);
    f->us += cpu_us() - from;
    while (n_right < n && at + n_right < ids->n && id[n_right] == ids->id[at + n_right])
        n_right++;
    for (int32_t i = 0; i < n; i++) {
        f->n_sure += sure[i];
        f->n_sure_right += sure[i] && i < n_right;
    }
    f->n_guessed += n;
    f->n_right += n_right;
    return n_right;
}

static void count_tokens(struct fare *f, const struct qr_vocab *v, struct qr_matcher *m, const struct qr_ids *ids)
{
    for (int32_t at = 0; at < ids->n; f->n_draws++) {
        const int32_t n = count_guesses(f, m, ids, at) + 1;
        for (int32_t i = 0; i < n && at < ids->n; i++, at++)
            cr_assert(qr_matcher_token(m, ids->id[at]));
    }
    const int32_t only = qr_forced_only(m); /* the end token, or more of a number */
    cr_assert(only < 0 || qr_vocab_is_end(v, only));
    f->n_only += only >= 0;
    f->n_tokens += ids->n + 1;
    f->n_draws += only < 0;
}

static void count_instance(struct fare *f, const struct qr_tokenizer *t, const struct qr_vocab *v, struct qr_grammar *g, const struct qr_json *data)
{
    struct qr_buf text = {0};
    struct qr_ids ids = {0};
    struct qr_err err = {0};
    struct qr_matcher m = {0};
    dump(&text, data, 1);
    if (words_match(g, text.data, text.len)) {
        qr_matcher_init(&m, g);
        count_bytes(f, &m, &text);
        qr_matcher_release(&m);
        cr_assert_eq(qr_tokenizer_encode(t, &ids, text.data, text.len, 0, &err), 0);
        qr_matcher_init(&m, g);
        count_tokens(f, v, &m, &ids);
        qr_matcher_release(&m);
    }
    qr_ids_release(&ids);
    qr_buf_release(&text);
}

static void count_schemas(struct fare *f, const struct qr_tokenizer *t, const struct qr_vocab *v, int every)
{
    struct qr_buf text = read_lines("answers/schemas.jsonl");
    size_t at = 0;
    int n = 0;
    for (struct qr_json *doc; (doc = next_line(&text, &at));) {
        struct qr_grammar *g = NULL;
        struct qr_err err = {0};
        if (n++ % every == 0 && build_schema(&g, v, qr_json_find(doc, "schema"), &(struct qr_schema_options){0}, &err) == 0)
            for (const struct qr_json *test = qr_json_first(qr_json_find(doc, "tests")); test; test = qr_json_after(test))
                if (qr_json_bool(qr_json_find(test, "valid")))
                    count_instance(f, t, v, g, qr_json_find(test, "data"));
        qr_grammar_unref(g);
        qr_json_free(doc);
    }
    qr_buf_release(&text);
}

Test(forced, of_tokens_that_are_sure_99_of_100_are_what_an_encoder_writes)
{
    char path[1024];
    struct qr_err err = {0};
    struct qr_tokenizer *t;
    struct fare f = {0};
    const char *root = getenv("QUIRE_DATA");
    snprintf(path, sizeof path, "%s/tokenizers/llama-3.2", root ? root : "");
    if (!root || qr_tokenizer_open(&t, path, &err) != 0)
        cr_skip_test("conformance data tokenizers/llama-3.2 is missing (QUIRE_DATA)");
    const int32_t end = qr_tokenizer_eos(t);
    struct qr_vocab *v = qr_vocab_new(t, qr_tokenizer_vocab_size(t), &end, end >= 0);
    count_schemas(&f, t, v, 4);
    cr_log_info("%ld bytes, %ld forced; %ld tokens in %ld draws, %ld of them the only ones; %.1f us each", (long)f.n_bytes, (long)f.n_forced, (long)f.n_tokens,
                (long)f.n_draws, (long)f.n_only, f.us / (double)f.n_draws);
    cr_log_info("%ld guessed, %ld right; %ld sure, %ld right", (long)f.n_guessed, (long)f.n_right, (long)f.n_sure, (long)f.n_sure_right);
    cr_expect_gt(f.n_forced * 4, f.n_bytes);
    cr_expect_geq(f.n_sure_right * 100, f.n_sure * 99);
    cr_expect_geq(f.n_right * 10, f.n_guessed * 8);
    cr_expect_leq(f.n_draws * 4, f.n_tokens * 3);
    cr_expect_lt(f.us / (double)f.n_draws, 100);
    qr_vocab_free(v);
    qr_tokenizer_close(t);
}
