/* The parts of the pipeline one by one: added tokens' flags, splits, expressions, normal forms. */
#include "tok_test.h"

#include <time.h>

#include "base/assert.h"
#include "tokenizer/added.h"
#include "tokenizer/nfc.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pattern.h"
#include "tokenizer/pretok.h"

/* ---- added tokens ---- */

static void find_all(const struct qr_added_set *s, const char *text, char *out)
{
    struct qr_trust trust = {.all = true};
    struct qr_added_match m;
    size_t at = 0, n = strlen(text);
    *out = 0;
    while (qr_added_find(s, text, n, at, &trust, &m)) {
        out += sprintf(out, "%d[%zu,%zu) ", m.id, m.start, m.end);
        at = m.end;
    }
}

static void expect_added(const struct qr_added *token, int n, const char *text, const char *want)
{
    struct qr_added_set s = {0};
    char got[400];
    for (int i = 0; i < n; i++)
        qr_added_push(&s, &token[i]);
    qr_added_sort(&s);
    find_all(&s, text, got);
    cr_expect_str_eq(got, want, "\"%s\" gives %s, expected %s", text, got, want);
    qr_added_release(&s);
}

Test(parts, added_tokens_match_leftmost_and_longest)
{
    struct qr_added t[] = {{.text = "ab", .len = 2, .id = 1}, {.text = "abcd", .len = 4, .id = 2}, {.text = "b", .len = 1, .id = 3},
                           {.text = "  ", .len = 2, .id = 4}, {.text = "    ", .len = 4, .id = 5}};
    expect_added(t, 5, "xabcdabcb", "2[1,5) 1[5,7) 3[8,9) ");
    expect_added(t, 5, "abc", "1[0,2) ");
    expect_added(t, 5, "       ", "5[0,4) 4[4,6) ");
    expect_added(t, 5, "", "");
}

Test(parts, added_tokens_take_white_space_where_their_flags_say)
{
    struct qr_added l = {.text = "<m>", .len = 3, .id = 1, .lstrip = true}, r = {.text = "<m>", .len = 3, .id = 1, .rstrip = true};
    expect_added(&l, 1, "a \t\xE3\x80\x80<m> b", "1[1,9) ");
    expect_added(&r, 1, "a <m> \n<m>", "1[2,7) 1[7,10) ");
    expect_added(&l, 1, "<m> <m>", "1[0,3) 1[3,7) ");
}

Test(parts, single_words_stand_alone)
{
    struct qr_added t = {.text = "foo", .len = 3, .id = 1, .single_word = true};
    expect_added(&t, 1, "foo foot xfoo foo_ \xC3\xA9" "foo (foo)foo", "1[0,3) 1[26,29) 1[30,33) ");
}

/* ---- splits ---- */

static int collect(void *user, const char *piece, size_t n, struct qr_err *err)
{
    struct qr_buf *out = user;
    qr_buf_put_byte(out, '(');
    qr_buf_put(out, piece, n);
    qr_buf_put_byte(out, ')');
    return 0;
}

static void expect_split(const struct qr_pretok *p, const char *text, const char *want)
{
    struct qr_pretok_work w = {0};
    struct qr_matcher *m = qr_matcher_new();
    struct qr_buf out = {0};
    struct qr_err err;
    qr_buf_reserve(&out, 1);
    out.data[0] = 0;
    cr_assert(qr_pretok_run(p, &w, m, text, strlen(text), true, collect, &out, &err) == 0);
    cr_expect_str_eq(out.data, want, "\"%s\" splits into %s, expected %s", text, out.data, want);
    qr_buf_release(&out);
    qr_pretok_work_release(&w);
    qr_matcher_free(m);
}

static void expect_behavior(const char *regex, enum qr_split_behavior b, bool invert, const char *text, const char *want)
{
    struct qr_err err;
    struct qr_pretok p = {.n = 1, .stage[0] = {.kind = QR_PRETOK_SPLIT, .behavior = b, .invert = invert}};
    int rc = qr_pattern_open(&p.stage[0].pattern, regex, strlen(regex), &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
    expect_split(&p, text, want);
    qr_pretok_release(&p);
}

/* The expected lists are those of the reference's documentation of SplitDelimiterBehavior. */
Test(parts, every_split_behavior_cuts_as_documented)
{
    static const char text[] = "the-final--countdown";
    expect_behavior("-", QR_SPLIT_REMOVED, false, text, "(the)(final)(countdown)");
    expect_behavior("-", QR_SPLIT_ISOLATED, false, text, "(the)(-)(final)(-)(-)(countdown)");
    expect_behavior("-", QR_SPLIT_MERGED_PREVIOUS, false, text, "(the-)(final-)(-)(countdown)");
    expect_behavior("-", QR_SPLIT_MERGED_NEXT, false, text, "(the)(-final)(-)(-countdown)");
    expect_behavior("-", QR_SPLIT_CONTIGUOUS, false, text, "(the)(-)(final)(--)(countdown)");
    expect_behavior("[a-z]+", QR_SPLIT_REMOVED, true, text, "(the)(final)(countdown)");
    expect_behavior("(?=-)", QR_SPLIT_ISOLATED, false, "a-b-c", "(a)(-b)(-c)");
    expect_behavior("-", QR_SPLIT_MERGED_NEXT, false, "a-", "(a)(-)");
    expect_behavior("-", QR_SPLIT_MERGED_PREVIOUS, false, "-a", "(-)(a)");
}

Test(parts, metaspace_marks_the_beginning_by_its_scheme)
{
    struct qr_pretok p = {.n = 2,
                          .stage[0] = {.kind = QR_PRETOK_SPACES, .prepend = QR_PREPEND_ALWAYS, .mark = "_"},
                          .stage[1] = {.kind = QR_PRETOK_SPLIT, .behavior = QR_SPLIT_MERGED_NEXT}};
    p.stage[1].pattern = qr_pattern_literal("_", 1);
    expect_split(&p, "Hey  friend", "(_Hey)(_)(_friend)");
    expect_split(&p, " Hey", "(_Hey)");
    p.stage[0].prepend = QR_PREPEND_NEVER;
    expect_split(&p, "Hey you ", "(Hey)(_you)(_)");
    qr_pretok_release(&p);
}

/* ---- expressions ---- */

static void expect_refused(const char *regex, enum qr_code code, const char *says)
{
    struct qr_pattern *p = NULL;
    struct qr_err err = {0};
    int rc = qr_pattern_open(&p, regex, strlen(regex), &err);
    cr_expect(rc == (int)code && strstr(err.msg, says), "%s: code %d, \"%s\"; expected %d, \"%s\"", regex, rc, err.msg, (int)code, says);
    qr_pattern_close(rc == 0 ? p : NULL);
}

Test(parts, expressions_that_would_mean_something_else_are_refused)
{
    expect_refused("[\\p{L}&&[^\\p{Han}]]+", QR_E_UNSUPPORTED, "&&");
    expect_refused("[a[bc]]", QR_E_UNSUPPORTED, "class inside");
    expect_refused("[[:alpha:]]", QR_E_UNSUPPORTED, "class inside");
    expect_refused("a{1,3}+", QR_E_UNSUPPORTED, "possessive interval");
    expect_refused("a{,3}", QR_E_UNSUPPORTED, "lower bound");
    expect_refused("\\bword", QR_E_UNSUPPORTED, "\\b");
    expect_refused("\\h+", QR_E_UNSUPPORTED, "\\h");
    expect_refused("(a)\\1", QR_E_UNSUPPORTED, "\\1");
    expect_refused("(?s)a", QR_E_UNSUPPORTED, "group");
    expect_refused("(*LIMIT_MATCH=9)a", QR_E_UNSUPPORTED, "(*");
    expect_refused("a(?i)b", QR_E_UNSUPPORTED, "group");
    expect_refused("(a", QR_E_DAMAGED, "parenthes");
    expect_refused("[a", QR_E_UNSUPPORTED, "closing bracket");
    expect_refused("\\p{Klingon}", QR_E_DAMAGED, "Klingon");
    expect_refused("a\\", QR_E_UNSUPPORTED, "backslash");
}

static void expect_match(const char *regex, const char *text, bool want)
{
    struct qr_pattern *p;
    struct qr_err err;
    size_t start, end;
    struct qr_matcher *m = qr_matcher_new();
    int rc = qr_pattern_open(&p, regex, strlen(regex), &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
    cr_expect(qr_pattern_find(p, m, text, strlen(text), 0, &start, &end, &err) == want, "%s on \"%s\"", regex, text);
    qr_pattern_close(p);
    qr_matcher_free(m);
}

Test(parts, classes_mean_what_oniguruma_means)
{
    expect_match("\\s", "\xE1\xA0\x8E", false);  /* U+180E is white space to PCRE2's \s alone */
    expect_match("\\s", "\xC2\x85", true);       /* U+0085 */
    expect_match("[^\\s]", "\xE3\x80\x80", false);
    expect_match("\\w", "\xCC\x81", true);       /* a mark */
    expect_match("\\w", "\xE2\x80\xBF", true);   /* a connector */
    expect_match("\\W", "_", false);
    expect_match("\\p{Han}", "\xE3\x80\x82", false); /* a full stop by script extensions only */
    expect_match("\\v", "\n", false);
    expect_match("[\\u4e00-\\u9fff]", "\xE4\xB8\xAD", true);
    expect_match("(?i:'S)", "'s", true);
    expect_match("^b", "a\nb", true); /* anchors are at lines */
    expect_match("\\p{^L}", "a", false);
}

Test(parts, a_search_that_explodes_is_an_error_and_no_hang)
{
    struct qr_pattern *p;
    struct qr_err err;
    size_t start, end;
    struct qr_matcher *m = qr_matcher_new();
    char text[4001];
    memset(text, 'a', 4000);
    text[4000] = 'b';
    cr_assert(qr_pattern_open(&p, "(?:a+)+(?=c)", 12, &err) == 0);
    int rc = qr_pattern_find(p, m, text, sizeof text, 0, &start, &end, &err);
    cr_expect(rc == QR_E_TOO_LARGE || rc == 0, "%d", rc);
    qr_pattern_close(p);
    qr_matcher_free(m);
}

/* ---- normal forms ---- */

static void expect_form(enum qr_nf form, const char *text, const char *want)
{
    struct qr_buf out = {0}, points = {0};
    qr_unicode_form(form, &out, &points, text, strlen(text));
    cr_expect(out.len == strlen(want) && memcmp(out.data, want, out.len) == 0, "\"%s\" becomes \"%.*s\", expected \"%s\"", text,
              (int)out.len, out.data, want);
    qr_buf_release(&out);
    qr_buf_release(&points);
}

Test(parts, normal_forms_follow_the_standard)
{
    expect_form(QR_NFC, "e\xCC\x81", "\xC3\xA9");
    expect_form(QR_NFD, "\xC3\xA9", "e\xCC\x81");
    expect_form(QR_NFC, "q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87");                   /* marks in canonical order */
    expect_form(QR_NFC, "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81");     /* jamo */
    expect_form(QR_NFD, "\xEA\xB0\x81", "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8");
    expect_form(QR_NFC, "\xE2\x84\xAB", "\xC3\x85");                                 /* Angstrom sign */
    expect_form(QR_NFC, "\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");                 /* excluded from composition */
    expect_form(QR_NFC, "\xEF\xAC\x81", "\xEF\xAC\x81");
    expect_form(QR_NFKC, "\xEF\xAC\x81", "fi");
    expect_form(QR_NFKD, "\xC2\xBD", "1\xE2\x81\x84" "2");
}

static void normalize_marks(size_t n)
{
    struct qr_normalizer z = {.n = 1, .step[0] = {.kind = QR_NORM_NFC}};
    struct qr_norm_work w = {0};
    struct qr_text out;
    struct qr_err err;
    char *text = malloc(n);
    for (size_t i = 0; i + 4 <= n; i += 4)
        memcpy(text + i, "\xCC\x81\xCC\xA3", 4); /* classes 230 and 220, so all of them have to move */
    cr_assert(qr_normalize(&z, &w, NULL, (struct qr_text){.data = text, .len = n}, &out, &err) == 0);
    cr_expect(out.len == n && memcmp(out.data, "\xCC\xA3\xCC\xA3", 4) == 0);
    qr_norm_work_release(&w);
    free(text);
}

Test(parts, a_megabyte_of_marks_is_sorted_in_linear_time, .timeout = 120)
{
    clock_t start = clock();
    normalize_marks(1000000);
    double s = (double)(clock() - start) / CLOCKS_PER_SEC;
    cr_expect(s < 2, "%.2f s", s);
}

Test(parts, strip_and_replace_edit_the_text)
{
    struct qr_normalizer z = {.n = 2, .step[0] = {.kind = QR_NORM_STRIP, .left = true, .right = true}, .step[1] = {.kind = QR_NORM_REPLACE}};
    struct qr_norm_work w = {0};
    struct qr_text out;
    struct qr_err err;
    struct qr_matcher *m = qr_matcher_new();
    z.step[1].text = qr_strdup("<>");
    z.step[1].n_text = 2;
    cr_assert(qr_pattern_open(&z.step[1].pattern, "b*", 2, &err) == 0);
    cr_assert(qr_normalize(&z, &w, m, (struct qr_text){.data = "\xE3\x80\x80 abbc \n", .len = 9}, &out, &err) == 0);
    cr_expect(out.len == 8 && memcmp(out.data, "<>a<>c<>", 8) == 0, "%.*s", (int)out.len, out.data);
    cr_assert(qr_normalize(&z, &w, m, (struct qr_text){.data = "  ", .len = 2}, &out, &err) == 0);
    qr_normalizer_release(&z);
    qr_norm_work_release(&w);
    qr_matcher_free(m);
}
