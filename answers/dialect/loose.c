/* loose.c - arguments as keywords with literals of Python, or as Gemma writes objects: f(a=1, b='x', c={'k': [True,
 * None]}), {a:1,b:<|"|>x<|"|>}. They become JSON while they come; a word that is no literal becomes text. What cannot
 * be read ends the arguments, with all that is open closed. */
#include <ctype.h>
#include <stdlib.h>

#include "answers/dialect/reader.h"

enum loose_end { LOOSE_MORE, LOOSE_DONE, LOOSE_FAULT };

struct loose_text {
    const char *s;
    size_t n, i;
    bool end, strict; /* strict: words that are no literals are faults */
    char assign, close; /* of the outermost */
    const char *mark;   /* the form's own quote, or "" */
    struct qr_buf *out;
};

static void begin_item(struct qr_loose *l, struct loose_text *t)
{
    if (l->comma)
        qr_buf_put_str(t->out, ", ");
    l->comma = false;
}

/* A quote at t->i; *quote: ' " or 'q'. */
static enum qr_match quote_at(const struct loose_text *t, char *quote, size_t *len)
{
    const char c = t->s[t->i];
    *len = 1;
    *quote = c;
    if (c == '"' || c == '\'')
        return QR_MATCH_FULL;
    *quote = 'q';
    *len = strlen(t->mark);
    return *len ? qr_match_exactly(t->s + t->i, t->n - t->i, t->mark, *len) : QR_MATCH_NO;
}

static void string_ends(struct qr_loose *l, struct loose_text *t)
{
    qr_buf_put_byte(t->out, '"');
    l->quote = 0;
    if (!l->key)
        l->comma = true;
}

/* A backslash of Python's or JSON's strings at t->i. False: it is cut off. */
static bool escape(struct loose_text *t)
{
    const char *s = t->s + t->i;
    const size_t n = t->n - t->i;
    struct qr_buf one = {0};
    size_t used = 2;
    if (n < 2 || ((s[1] == 'u' || s[1] == 'x') && n < 12 && !t->end))
        return false;
    if (s[1] == 'x' && n >= 4 && isxdigit((unsigned char)s[2]) && isxdigit((unsigned char)s[3])) {
        char hex[7] = {'\\', 'u', '0', '0', s[2], s[3], 0};
        qr_json_unescape_text(&one, hex, 6, true);
        used = 4;
    } else if (s[1] == 'u') {
        qr_json_unescape_text(&one, s, 6 < n ? 6 : n, true);
        used = n >= 6 ? 6 : n;
        if (n >= 12 && s[6] == '\\' && s[7] == 'u') { /* perhaps a pair */
            qr_buf_clear(&one);
            qr_json_unescape_text(&one, s, 12, true);
            used = 12;
        }
    } else if (s[1] == '\'') {
        qr_buf_put_byte(&one, '\'');
    } else if (s[1] != '\n') { /* that one joins two lines */
        qr_json_unescape_text(&one, s, 2, true);
    }
    qr_json_escape_text(t->out, one.data ? one.data : "", one.len);
    qr_buf_release(&one);
    t->i += used;
    return true;
}

/* Inside a string. False: more text is needed. */
static bool read_string(struct qr_loose *l, struct loose_text *t)
{
    const size_t mark_len = strlen(t->mark);
    for (; t->i < t->n; t->i++) {
        const char c = t->s[t->i];
        if (l->quote == 'q') {
            const enum qr_match m = c == *t->mark ? qr_match_exactly(t->s + t->i, t->n - t->i, t->mark, mark_len) : QR_MATCH_NO;
            if (m == QR_MATCH_PART && !t->end)
                return false;
            if (m == QR_MATCH_FULL) {
                t->i += mark_len;
                string_ends(l, t);
                return true;
            }
        } else if (c == l->quote) {
            t->i++;
            string_ends(l, t);
            return true;
        } else if (c == '\\') {
            if (!escape(t))
                return false;
            t->i--;
            continue;
        }
        qr_json_escape_text(t->out, &t->s[t->i], 1);
    }
    return false;
}

static bool is_number(const char *s, size_t n)
{
    struct qr_json *v;
    struct qr_err err;
    if (n == 0 || !(isdigit((unsigned char)*s) || *s == '-') || qr_json_parse(&v, s, n, &qr_json_limits_request, &err) != 0)
        return false;
    qr_json_free(v);
    return true;
}

/* A word as a value: a literal, a number, or text. */
static bool put_word(struct loose_text *t, const char *s, size_t n)
{
    static const char *const words[][2] = {{"true", "true"}, {"True", "true"}, {"false", "false"}, {"False", "false"}, {"null", "null"}, {"None", "null"}};
    for (int i = 0; i < QR_COUNT(words); i++)
        if (strlen(words[i][0]) == n && memcmp(words[i][0], s, n) == 0) {
            qr_buf_put_str(t->out, words[i][1]);
            return true;
        }
    if (is_number(s, n)) {
        qr_buf_put(t->out, s, n);
        return true;
    }
    char copy[64], *stop;
    if (n > 0 && n < sizeof copy && (isdigit((unsigned char)*s) || strchr("+-.", *s))) {
        memcpy(copy, s, n);
        copy[n] = 0;
        const double v = strtod(copy, &stop);
        if (!*stop && v - v == 0) {
            qr_json_put_f64(t->out, v);
            return true;
        }
    }
    if (t->strict || n == 0)
        return false;
    qr_buf_put_byte(t->out, '"');
    qr_json_escape_text(t->out, s, n);
    qr_buf_put_byte(t->out, '"');
    return true;
}

static char closer(char open) { return open == '{' ? '}' : open == '[' ? ']' : ')'; }

static enum loose_end read_word(struct qr_loose *l, struct loose_text *t)
{
    size_t k = t->i;
    while (k < t->n && !strchr(",]})", t->s[k]))
        k++;
    if (k == t->n && !(t->end && t->strict))
        return LOOSE_MORE;
    size_t to = k;
    while (to > t->i && qr_is_blank(t->s[to - 1]))
        to--;
    begin_item(l, t);
    if (!put_word(t, t->s + t->i, to - t->i))
        return LOOSE_FAULT;
    t->i = k;
    l->comma = true;
    l->want_value = false;
    return LOOSE_DONE;
}

static enum loose_end read_value(struct qr_loose *l, struct loose_text *t)
{
    char quote;
    size_t len;
    const char c = t->s[t->i];
    const enum qr_match m = quote_at(t, &quote, &len);
    if (m == QR_MATCH_PART && !t->end)
        return LOOSE_MORE;
    if (m == QR_MATCH_FULL) {
        begin_item(l, t);
        qr_buf_put_byte(t->out, '"');
        l->quote = quote;
        l->key = l->want_value = false;
        t->i += len;
        return LOOSE_DONE;
    }
    if (c != '{' && c != '[' && c != '(')
        return read_word(l, t);
    if (l->depth == QR_LOOSE_DEPTH_MAX)
        return LOOSE_FAULT;
    begin_item(l, t);
    qr_buf_put_byte(t->out, c == '{' ? '{' : '[');
    l->open[l->depth++] = c;
    l->want_key = c == '{';
    l->want_value = c != '{';
    t->i++;
    return LOOSE_DONE;
}

static enum loose_end read_key(struct qr_loose *l, struct loose_text *t)
{
    char quote;
    size_t len, k = t->i;
    const char assign = l->depth == 1 ? t->assign : ':';
    const enum qr_match m = quote_at(t, &quote, &len);
    if (m == QR_MATCH_PART && !t->end)
        return LOOSE_MORE;
    if (m == QR_MATCH_FULL) {
        begin_item(l, t);
        qr_buf_put_byte(t->out, '"');
        l->quote = quote;
        l->key = true;
        l->want_key = false;
        t->i += len;
        return LOOSE_DONE;
    }
    while (k < t->n && t->s[k] != assign && !strchr(",{}[]()\"'", t->s[k]))
        k++;
    if (k == t->n)
        return LOOSE_MORE;
    size_t to = k;
    while (to > t->i && qr_is_blank(t->s[to - 1]))
        to--;
    if (t->s[k] != assign || to == t->i)
        return LOOSE_FAULT;
    begin_item(l, t);
    qr_buf_put_byte(t->out, '"');
    qr_json_escape_text(t->out, t->s + t->i, to - t->i);
    qr_buf_put_str(t->out, "\": ");
    t->i = k + 1;
    l->want_key = false;
    l->want_value = true;
    return LOOSE_DONE;
}

/* Between items: a comma, or the end of what is open. DONE with depth 0: of all. */
static enum loose_end read_between(struct qr_loose *l, struct loose_text *t)
{
    const char c = t->s[t->i], top = l->open[l->depth - 1];
    if (c == (l->depth == 1 ? t->close : closer(top))) {
        qr_buf_put_byte(t->out, top == '{' ? '}' : ']');
        l->depth--;
        l->comma = true;
        l->want_key = l->want_value = false;
        t->i++;
        return LOOSE_DONE;
    }
    if (l->key) { /* behind a key in quotes */
        if (c != (l->depth == 1 ? t->assign : ':'))
            return LOOSE_FAULT;
        qr_buf_put_str(t->out, ": ");
        l->key = false;
        l->want_value = true;
        t->i++;
        return LOOSE_DONE;
    }
    if (c != ',')
        return LOOSE_FAULT;
    l->want_key = top == '{';
    l->want_value = top != '{';
    t->i++;
    return LOOSE_DONE;
}

static enum loose_end read_loose(struct qr_loose *l, struct loose_text *t)
{
    enum loose_end e = LOOSE_DONE;
    while (e == LOOSE_DONE && l->depth > 0) {
        if (l->quote) {
            if (!read_string(l, t))
                return LOOSE_MORE;
            continue;
        }
        t->i += qr_blanks(t->s + t->i, t->n - t->i);
        if (t->i == t->n)
            return LOOSE_MORE;
        const bool closes = (l->want_key || (l->want_value && l->open[l->depth - 1] != '{')) &&
                            t->s[t->i] == (l->depth == 1 ? t->close : closer(l->open[l->depth - 1]));
        e = closes ? read_between(l, t) : l->want_key ? read_key(l, t) : l->want_value ? read_value(l, t) : read_between(l, t);
    }
    return e;
}

bool qr_step_loose(struct qr_answer_parser *p)
{
    const struct qr_call_form *f = p->r->form;
    const size_t close_at = strlen(f->args_end);
    struct loose_text t = {.s = qr_held(p), .n = qr_held_len(p), .end = p->end, .assign = f->assign, .close = close_at ? f->args_end[0] : '}',
                           .mark = qr_text_of(f->quote), .out = &p->out};
    qr_buf_clear(&p->out);
    const enum loose_end e = read_loose(&p->loose, &t);
    if (e == LOOSE_FAULT) {
        if (p->loose.quote)
            qr_buf_put_byte(&p->out, '"');
        while (p->loose.depth > 0)
            qr_buf_put_byte(&p->out, p->loose.open[--p->loose.depth] == '{' ? '}' : ']');
    }
    qr_say(p, QR_PART_ARGUMENTS, p->out.data, p->out.len);
    p->at += t.i;
    if (e == LOOSE_MORE)
        return false;
    qr_call_end(p, false);
    return true;
}

bool qr_loose_whole(struct qr_buf *out, const char *s, size_t n)
{
    QR_ASSERT(out != NULL && n > 0);
    struct qr_loose l = {.open = {*s}, .depth = 1, .want_key = *s == '{', .want_value = *s != '{'};
    struct loose_text t = {.s = s, .n = n, .i = 1, .end = true, .strict = true, .assign = ':', .close = closer(*s), .mark = "", .out = out};
    qr_buf_put_byte(out, *s);
    return read_loose(&l, &t) == LOOSE_DONE && t.i == n;
}
