/* text.c - strings: patterns and formats as expressions, and whether a given name matches one. For the latter, and to see that two patterns have no
 * string in common, a pattern is read once more into a small pool of its own, in which it is derived by the bytes of the name. Owned by one build. */
#include <stdio.h>
#include <string.h>

#include "answers/grammar/exprs.h"
#include "answers/grammar/syntax.h"
#include "answers/schema/format.h"
#include "answers/schema/normal.h"
#include "base/assert.h"
#include "base/mem.h"

#define SCRATCH_BYTES ((size_t)4 << 20)
#define MATCH_LEN_MAX 4096
#define COUNT_MAX 10000 /* of a pattern */

struct qr_sc_regex { /* one pattern or format */
    struct qr_exprs *scratch; /* owned; NULL: no name has been matched yet */
    int32_t root;             /* in scratch */
    int32_t expr;             /* in the build's pool; -1: not yet */
};

bool qr_sc_format_known(const char *name, size_t len) { return qr_format_find(name, len) != NULL; }

/* The pattern inside a JSON string in pool x. */
static int read_pattern(int32_t *out, struct qr_exprs *x, const char *text, size_t len, bool is_format, struct qr_err *err)
{
    if (!is_format)
        return qr_regex_parse(out, x, text, len, QR_REGEX_JSON, 0, err);
    const struct qr_format *f = qr_format_find(text, len);
    QR_ASSERT(f != NULL);
    return qr_regex_parse(out, x, f->pattern, strlen(f->pattern), QR_REGEX_JSON_WHOLE, 0, err);
}

/* The keeper of a pattern; NULL after an error. */
static struct qr_sc_regex *regex_of(struct qr_sc *sc, const char *text, size_t len, bool is_format)
{
    char small[256], *key = len < sizeof small ? small : qr_sc_alloc(sc, len + 1, 1);
    if (!key)
        return NULL;
    memcpy(key, text, len);
    key[len] = is_format ? 'f' : 'p';
    const int32_t at = qr_map_find(&sc->regex_map, key, len + 1, -1);
    if (at >= 0)
        return sc->regexes[at];
    struct qr_sc_regex *r = qr_sc_alloc(sc, 1, sizeof *r);
    char *kept = qr_sc_alloc(sc, len + 1, 1);
    if (!r || !kept)
        return NULL;
    memcpy(kept, key, len + 1);
    r->expr = -1;
    sc->regexes = QR_GROW(sc->regexes, sc->n_regexes, sc->regexes_cap);
    sc->regexes[sc->n_regexes] = r;
    qr_map_add(&sc->regex_map, kept, len + 1, sc->n_regexes++);
    return r;
}

static bool fail_as(struct qr_sc *sc, const struct qr_json *at, const struct qr_err *err)
{
    return qr_sc_fail(sc, err->code, at, "%s", err->msg);
}

int32_t qr_sc_pattern_expr(struct qr_sc *sc, const struct qr_json *at, const char *pattern, size_t len, bool is_format)
{
    QR_ASSERT(pattern != NULL);
    struct qr_err err = {0};
    struct qr_sc_regex *r = regex_of(sc, pattern, len, is_format);
    if (!r)
        return QR_EXPR_NONE;
    if (r->expr < 0 && read_pattern(&r->expr, sc->x, pattern, len, is_format, &err) != 0) {
        fail_as(sc, at, &err);
        r->expr = QR_EXPR_NONE;
    }
    return r->expr;
}

/* ---- names ---- */

/* Makes the pool in which the pattern is matched. */
static bool make_scratch(struct qr_sc *sc, struct qr_sc_regex *r, const struct qr_json *at, const char *pattern, size_t len, bool is_format)
{
    struct qr_err err = {0};
    struct qr_exprs *x = qr_exprs_new(SCRATCH_BYTES);
    if (!x)
        return qr_sc_fail(sc, QR_E_NO_ROOM, at, "there is no memory for a pattern");
    int rc = read_pattern(&r->root, x, pattern, len, is_format, &err);
    if (rc == 0)
        rc = qr_exprs_finish(x, r->root, &err);
    if (rc != 0) {
        qr_exprs_free(x);
        return fail_as(sc, at, &err);
    }
    r->scratch = x;
    return true;
}

bool qr_sc_matches(struct qr_sc *sc, const struct qr_json *at, const char *pattern, size_t pattern_len, bool is_format, const char *text, size_t len)
{
    QR_ASSERT(pattern != NULL && text != NULL);
    struct qr_buf inside = {0};
    struct qr_sc_regex *r = regex_of(sc, pattern, pattern_len, is_format);
    if (!r || !qr_sc_step(sc, at, 2 + (int32_t)(len < MATCH_LEN_MAX ? len : MATCH_LEN_MAX) / 8))
        return false;
    if (len > MATCH_LEN_MAX)
        return qr_sc_fail(sc, QR_E_TOO_LARGE, at, "a text of more than %d bytes is to be matched with a pattern", MATCH_LEN_MAX);
    if (!r->scratch && !make_scratch(sc, r, at, pattern, pattern_len, is_format))
        return false;
    qr_json_put_str(&inside, text, len);
    int32_t e = r->root;
    for (size_t i = 1; i + 1 < inside.len && e != QR_EXPR_NONE; i++)
        e = qr_expr_derive(r->scratch, e, r->scratch->cls[(uint8_t)inside.data[i]]);
    const bool ok = qr_expr_nullable(r->scratch, e);
    qr_buf_release(&inside);
    if (qr_exprs_failed(r->scratch))
        return qr_sc_fail(sc, QR_E_TOO_LARGE, at, "the pattern is too large");
    return ok;
}

/* ---- whole strings ---- */

/* The length of one character class at s, 0 where there is none: "[...]", "." or an escape of a class. */
static size_t class_length(const char *s, size_t len)
{
    if (len >= 2 && s[0] == '\\' && strchr("dDwWsS", s[1]))
        return 2;
    if (len == 0 || s[0] != '[')
        return len > 0 && s[0] == '.';
    for (size_t i = 1; i < len; i++) {
        if (s[i] == ']')
            return i > 2 || (i == 2 && s[1] != '^') ? i + 1 : 0;
        i += s[i] == '\\';
    }
    return 0;
}

/* A pattern that is one class repeated, between its anchors, becomes the same with the string's own counts: no intersection is needed then, which
 * costs a search for texts when the grammar is finished. False: it is another one. */
static bool with_counts(struct qr_buf *out, const struct qr_sc_test *t, int32_t min, int32_t max)
{
    char counts[64];
    const char *s = t->text;
    if (t->is_format || t->negated || t->len < 4 || s[0] != '^' || s[t->len - 1] != '$' || max > COUNT_MAX)
        return false;
    const size_t n = class_length(s + 1, t->len - 2), n_behind = t->len - 2 - n;
    if (n == 0 || n_behind != 1 || !strchr("*+", s[1 + n]))
        return false;
    const int32_t least = s[1 + n] == '+' && min == 0 ? 1 : min;
    if (least > max)
        return false;
    snprintf(counts, sizeof counts, "{%d,%d}$", (int)least, (int)max);
    qr_buf_put(out, s, 1 + n);
    qr_buf_put_str(out, counts);
    return out->data != NULL;
}

/* Strings without the ends of lines: all of them, or at the end alone. Readers of patterns differ in what "." and "$" say of these, so they are left out
 * where a pattern must not match. */
int32_t qr_sc_unbroken(struct qr_exprs *x, bool anywhere)
{
    static const struct qr_rune_range others[] = {{0, '\n' - 1}, {'\n' + 1, '\r' - 1}, {'\r' + 1, 0x2027}, {0x202A, QR_RUNE_MAX}};
    const int32_t one = qr_expr_json_runes(x, others, QR_COUNT(others));
    if (anywhere)
        return qr_expr_repeat(x, one, 0, QR_REPEAT_FOREVER);
    return qr_expr_maybe(x, qr_expr_cat(x, qr_expr_repeat(x, qr_expr_json_char(x), 0, QR_REPEAT_FOREVER), one));
}

static int32_t test_expr(struct qr_sc *sc, struct qr_exprs *x, const struct qr_sc_test *t, const char *text, size_t len)
{
    struct qr_err err = {0};
    int32_t e = QR_EXPR_NONE;
    if (x == sc->x)
        return qr_sc_pattern_expr(sc, t->at, text, len, t->is_format);
    if (read_pattern(&e, x, text, len, t->is_format, &err) != 0)
        fail_as(sc, t->at, &err);
    return e;
}

/* The inside of a string by the shape's length and tests, in any pool. */
static int32_t inside(struct qr_sc *sc, struct qr_exprs *x, const struct qr_sc_shape *s)
{
    struct qr_buf counted = {0};
    int32_t e = -1, min = s->length_min; /* -1: any characters; a pattern is inside a string already */
    const bool limited = s->length_min > 0 || s->length_max != QR_REPEAT_FOREVER;
    if (limited && s->test && !s->test->next && with_counts(&counted, s->test, s->length_min, s->length_max)) {
        e = test_expr(sc, x, s->test, counted.data, counted.len);
        qr_buf_release(&counted);
        return e;
    }
    for (const struct qr_sc_test *t = s->test; t && sc->code == 0; t = t->next) {
        const int32_t one = test_expr(sc, x, t, t->text, t->len);
        const int32_t before = e < 0 && t->negated ? qr_sc_unbroken(x, false) : e;
        e = t->negated ? qr_expr_minus(x, before, one) : e < 0 ? one : qr_expr_and(x, e, one);
    }
    if (min == 1 && e >= 0 && !qr_expr_nullable(x, e))
        min = 0; /* the tests say it */
    if (e >= 0 && min == 0 && s->length_max == QR_REPEAT_FOREVER)
        return e;
    const int32_t counts = qr_expr_repeat(x, qr_expr_json_char(x), min, s->length_max);
    return e < 0 ? counts : qr_expr_and(x, counts, e);
}

bool qr_sc_strings_dead(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(s != NULL);
    struct qr_err err = {0};
    if (!s->test || !qr_sc_step(sc, s->test->at, 200))
        return false;
    struct qr_exprs *x = qr_exprs_new(SCRATCH_BYTES);
    if (!x)
        return false;
    const int32_t e = inside(sc, x, s);
    const bool dead = sc->code == 0 && qr_exprs_finish(x, e, &err) == 0 && !qr_expr_alive(x, e) && !qr_exprs_failed(x);
    qr_exprs_free(x);
    return dead;
}

bool qr_sc_patterns_meet(struct qr_sc *sc, const struct qr_json *a, const struct qr_json *b)
{
    const struct qr_sc_test second = {.text = qr_json_key(b), .len = strlen(qr_json_key(b)), .at = b};
    const struct qr_sc_test first = {.next = &second, .text = qr_json_key(a), .len = strlen(qr_json_key(a)), .at = a};
    struct qr_sc_shape s;
    qr_sc_shape_init(&s);
    s.test = &first;
    return !qr_sc_strings_dead(sc, &s);
}

/* The strings that are excluded one by one. */
static int32_t without_excluded(struct qr_sc *sc, const struct qr_sc_shape *s, int32_t e)
{
    for (const struct qr_sc_values *x = s->excluded; x; x = x->next) {
        const int32_t n = x->is_list ? qr_json_count(x->json) : 1;
        int32_t *part = qr_sc_alloc(sc, (size_t)n + 1, sizeof *part), n_parts = 0;
        size_t len;
        for (const struct qr_json *v = x->is_list ? qr_json_first(x->json) : x->json; v && part; v = x->is_list ? qr_json_after(v) : NULL) {
            const char *text = qr_json_text(v, &len);
            if (text)
                part[n_parts++] = qr_sc_write_chars(sc, text, len, QR_EXPR_EMPTY);
        }
        if (n_parts > 0)
            e = qr_expr_minus(sc->x, e, qr_expr_any(sc->x, part, n_parts));
    }
    return e;
}

int32_t qr_sc_write_inside(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(sc != NULL && s != NULL);
    if (s->length_min >= 1 << 20 && s->length_min <= s->length_max)
        qr_sc_fail(sc, QR_E_TOO_LARGE, s->test ? s->test->at : NULL, "minLength is more than %d", (1 << 20) - 1);
    if (s->length_min > s->length_max || sc->code != 0)
        return QR_EXPR_NONE;
    return without_excluded(sc, s, inside(sc, sc->x, s));
}

int32_t qr_sc_write_string(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    return qr_sc_cat3(sc, sc->words->quote, qr_sc_write_inside(sc, s), sc->words->quote);
}

void qr_sc_texts_release(struct qr_sc *sc)
{
    for (int32_t i = 0; i < sc->n_regexes; i++)
        qr_exprs_free(sc->regexes[i]->scratch);
    qr_free(sc->regexes);
    qr_map_release(&sc->regex_map);
}
