/* tagged.c - arguments that stand each between markers of its own, as plain text: <parameter=a>1</parameter>. What a
 * value is its type in the tool's schema says; where that leaves a choice, or is not known, what reads as JSON is JSON
 * and the rest is text. Values that are text for certain are passed on as they come. */
#include "answers/dialect/reader.h"

#define JSON_VALUE_MAX ((size_t)16 << 10) /* of a value that is looked through for its end each time more comes */

static const struct qr_json_limits value_limits = {.bytes_max = 4 << 20, .values_max = 262144, .depth_max = 64};

static void say_key(struct qr_answer_parser *p, const char *key, size_t len)
{
    qr_buf_clear(&p->out);
    qr_buf_put_str(&p->out, p->first ? "{\"" : ", \"");
    qr_json_escape_text(&p->out, key, len);
    qr_buf_put_str(&p->out, "\": ");
    qr_say(p, QR_PART_ARGUMENTS, p->out.data, p->out.len);
    p->first = false;
}

/* The text that ends the key in s[0..n); it and *skip bytes of that text. */
static enum qr_match find_key(const struct qr_call_form *f, const char *s, size_t n, size_t *len, size_t *skip, bool *is_text)
{
    const char *ends[2] = {qr_text_of(f->key_end_text), qr_text_of(f->key_end)};
    for (size_t i = 0; i < n && i <= QR_CALL_NAME_MAX; i++) {
        bool part = false;
        for (int k = 0; k < 2; k++) {
            if (!*ends[k] || s[i] != *ends[k])
                continue;
            const enum qr_match m = qr_match_loosely(s + i, n - i, ends[k], skip);
            part = part || m == QR_MATCH_PART;
            if (m == QR_MATCH_FULL) {
                *len = i;
                *is_text = k == 0;
                return m;
            }
        }
        if (part)
            return QR_MATCH_PART;
    }
    return n > QR_CALL_NAME_MAX ? QR_MATCH_NO : QR_MATCH_PART;
}

static bool begin_value(struct qr_answer_parser *p, const char *key, size_t len, bool is_text)
{
    p->types = qr_tool_types(p->o.tools, p->name.data ? p->name.data : "", key, len);
    p->text_value = is_text || p->types == QR_TYPE_STRING;
    p->fresh = true;
    p->line_due = p->r->form->value_lines;
    p->seen = 0;
    p->state = QR_READ_VALUE;
    return true;
}

bool qr_step_tagged(struct qr_answer_parser *p)
{
    const struct qr_call_form *f = p->r->form;
    p->at += qr_blanks(qr_held(p), qr_held_len(p));
    const char *s = qr_held(p);
    const size_t n = qr_held_len(p);
    size_t start = 0, len = 0, skip = 0;
    bool is_text = false;
    if (n == 0)
        return false;
    enum qr_match m = qr_match_loosely(s, n, f->param_start, &start);
    if (m == QR_MATCH_FULL)
        m = find_key(f, s + start, n - start, &len, &skip, &is_text);
    if (m == QR_MATCH_PART)
        return false;
    if (m == QR_MATCH_NO) { /* the arguments' end, or what is none of them */
        if (!p->first)
            qr_say(p, QR_PART_ARGUMENTS, "}", 1);
        qr_call_end(p, false);
        return true;
    }
    say_key(p, s + start, len);
    begin_value(p, s + start, len, is_text);
    p->at += start + len + skip;
    return true;
}

/* ---- values ---- */

static void say_text(struct qr_answer_parser *p, const char *s, size_t n, bool begins, bool ends)
{
    qr_buf_clear(&p->out);
    if (begins)
        qr_buf_put_byte(&p->out, '"');
    qr_json_escape_text(&p->out, s, n);
    if (ends)
        qr_buf_put_byte(&p->out, '"');
    qr_say(p, QR_PART_ARGUMENTS, p->out.data, p->out.len);
}

/* True where s[0..n) is JSON of a type that the value may have. */
static bool is_json(const char *s, size_t n, uint32_t types)
{
    static const uint32_t of[] = {QR_TYPE_NULL, QR_TYPE_BOOLEAN, QR_TYPE_NUMBER | QR_TYPE_INTEGER, QR_TYPE_STRING, QR_TYPE_ARRAY, QR_TYPE_OBJECT};
    struct qr_json *v;
    struct qr_err err;
    if (n == 0 || qr_json_parse(&v, s, n, &value_limits, &err) != 0)
        return false;
    const bool fits = types == 0 || (of[qr_json_type(v)] & types) != 0;
    qr_json_free(v);
    return fits;
}

/* True, False and None, where the schema does not say text. */
static const char *python_word(const char *s, size_t n, uint32_t types)
{
    static const struct { const char *word, *json; uint32_t type; } words[] = {
        {"True", "true", QR_TYPE_BOOLEAN}, {"False", "false", QR_TYPE_BOOLEAN}, {"None", "null", QR_TYPE_NULL}};
    for (int i = 0; i < QR_COUNT(words); i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, s, n) == 0 && (types == 0 || (types & words[i].type)))
            return words[i].json;
    return NULL;
}

static void say_value(struct qr_answer_parser *p, const char *s, size_t n)
{
    const size_t from = qr_blanks(s, n);
    size_t to = n;
    while (to > from && qr_is_blank(s[to - 1]))
        to--;
    const char *t = s + from, *word = python_word(t, to - from, p->types);
    if (is_json(t, to - from, p->types)) {
        qr_say(p, QR_PART_ARGUMENTS, t, to - from);
        return;
    }
    if (word) {
        qr_say(p, QR_PART_ARGUMENTS, word, strlen(word));
        return;
    }
    qr_buf_clear(&p->out);
    if (to > from && (*t == '{' || *t == '[') && qr_loose_whole(&p->out, t, to - from))
        qr_say(p, QR_PART_ARGUMENTS, p->out.data, p->out.len);
    else
        say_text(p, s, p->types == 0 && from == n ? 0 : n, true, true);
}

/* The end marker behind a value that is JSON by its type: one inside of a string is a part of it. NO: the value does not begin so. */
static enum qr_match find_json_end(const struct qr_answer_parser *p, const char *s, size_t n, size_t *at)
{
    const char *end = p->r->form->value_end;
    size_t i = qr_blanks(s, n);
    if (i < n && s[i] != '{' && s[i] != '[' && s[i] != '"')
        return QR_MATCH_NO;
    enum qr_match m = i < n ? qr_json_skip_value(s, n, &i) : QR_MATCH_PART;
    if (m == QR_MATCH_FULL) {
        i += qr_blanks(s + i, n - i);
        m = i < n ? qr_match_exactly(s + i, n - i, end, strlen(end)) : QR_MATCH_PART;
    }
    *at = m == QR_MATCH_FULL ? i : 0;
    return m;
}

/* Where in s[0..n) the value's end marker is: FULL; or may be: PART, or n. */
static enum qr_match find_value_end(const struct qr_answer_parser *p, const char *s, size_t n, size_t *at)
{
    const char *end = p->r->form->value_end;
    const size_t len = strlen(end);
    for (size_t i = p->seen; i < n; i++) {
        const char *next = memchr(s + i, *end, n - i);
        if (!next)
            break;
        i = (size_t)(next - s);
        const enum qr_match m = qr_match_exactly(next, n - i, end, len);
        *at = i;
        if (m != QR_MATCH_NO)
            return m;
    }
    *at = n;
    return QR_MATCH_NO;
}

bool qr_step_value(struct qr_answer_parser *p)
{
    const struct qr_call_form *f = p->r->form;
    if (qr_held_len(p) == 0)
        return false;
    if (p->line_due && *qr_held(p) == '\n')
        p->at++;
    p->line_due = false;
    const char *s = qr_held(p);
    size_t n = qr_held_len(p), at;
    if (n == 0)
        return false;
    const bool json = p->types && !(p->types & QR_TYPE_STRING), long_value = n > JSON_VALUE_MAX;
    enum qr_match m = json ? find_json_end(p, s, long_value ? JSON_VALUE_MAX : n, &at) : QR_MATCH_NO;
    if (m == QR_MATCH_NO || (m == QR_MATCH_PART && (p->end || long_value)))
        m = find_value_end(p, s, n, &at);
    const bool found = m == QR_MATCH_FULL;
    size_t upto = at;
    if (f->value_lines && upto > 0 && s[upto - 1] == '\n' && (found || !p->end))
        upto--; /* one line end is the format's */
    p->seen = found ? 0 : at > 0 ? at - 1 : 0;
    if (p->text_value && (found || upto > 0 || p->end)) {
        say_text(p, s, upto, p->fresh, found);
        p->fresh = false;
        p->seen = 0;
        p->at += found ? 0 : upto;
    } else if (found) {
        say_value(p, s, upto);
    }
    if (!found) {
        p->at = p->end ? p->held.len : p->at;
        return false;
    }
    p->at += at + strlen(f->value_end);
    p->state = QR_READ_TAGGED;
    return true;
}
