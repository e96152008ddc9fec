/* calls.c - where a call begins, its head (name, id, what is before the arguments), and what may stand behind it. A
 * head is read from its first byte each time more text comes, until it is certain: it is short, and longer ones are
 * text. */
#include <ctype.h>
#include <stdio.h>

#include "answers/dialect/reader.h"

/* ---- readings ---- */

static char *trimmed(const char *a, const char *b)
{
    struct qr_buf t = {0};
    qr_buf_put_str(&t, qr_text_of(a));
    qr_buf_put_str(&t, qr_text_of(b));
    const size_t from = qr_blanks(t.data ? t.data : "", t.len);
    size_t to = t.len;
    while (to > from && qr_is_blank(t.data[to - 1]))
        to--;
    char *out = qr_alloc(to - from + 1, 1);
    if (to > from)
        memcpy(out, t.data + from, to - from);
    qr_buf_release(&t);
    return out;
}

size_t qr_first_marker(const char *s)
{
    const size_t n = strcspn(s, " \n\t\r");
    const char *close = memchr(s, '>', n);
    return *s == '<' && close && close[1] == '<' ? (size_t)(close - s) + 1 : n;
}

/* Where reading may begin in a start: at its beginning, and at each later marker. */
static void find_starts(struct qr_reading *r)
{
    const char *s = r->start;
    if (*s)
        r->starts[r->n_starts++] = s;
    for (const char *at = s; (at = strchr(at, '<')) != NULL; at++) {
        const char *before = at;
        while (before > s && qr_is_blank(before[-1]))
            before--;
        if (at > s && before > s && before[-1] == '>' && strlen(at) > 5 && r->n_starts < QR_STARTS_MAX)
            r->starts[r->n_starts++] = at;
    }
}

void qr_reading_init(struct qr_reading *r, const struct qr_call_form *form)
{
    QR_ASSERT(r != NULL && form != NULL);
    char *section = trimmed(form->section_start, "");
    const size_t n = strlen(section);
    r->form = form;
    r->bracket = n > 0 && section[n - 1] == '[';
    if (r->bracket)
        section[n - 1] = 0;
    r->start = trimmed(section, form->call_start);
    r->section_end = trimmed(form->section_end, "");
    if (r->bracket && *r->section_end == ']')
        memmove(r->section_end, r->section_end + 1, strlen(r->section_end));
    qr_free(section);
    find_starts(r);
}

void qr_reading_release(struct qr_reading *r)
{
    qr_free(r->start);
    qr_free(r->section_end);
}

/* ---- saying ---- */

void qr_call_say(struct qr_answer_parser *p, const char *name, size_t name_len)
{
    QR_ASSERT(p != NULL && !p->in_call);
    const struct qr_part_text t = {.part = QR_PART_CALL, .call = p->n_calls++, .text = name, .len = name_len, .id = p->id.len ? p->id.data : NULL};
    p->in_call = true;
    p->said_arguments = p->late_id = false;
    p->said(p->user, &t);
}

void qr_call_end(struct qr_answer_parser *p, bool cut)
{
    QR_ASSERT(p != NULL && p->in_call);
    if (!p->said_arguments && !cut)
        qr_say(p, QR_PART_ARGUMENTS, "{}", 2);
    const struct qr_part_text t = {.part = QR_PART_CALL_END, .call = p->n_calls - 1, .text = "", .id = p->late_id ? p->id.data : NULL};
    p->in_call = p->thought = false;
    p->said(p->user, &t);
    p->state = p->o.single ? QR_READ_NOTHING : p->d->heads.start ? QR_READ_BODY : QR_READ_AFTER;
}

void qr_arguments_begin(struct qr_answer_parser *p, enum qr_args_kind kind)
{
    p->first = true;
    p->seen = 0;
    p->pass = (struct qr_json_pass){0};
    if (kind == QR_ARGS_LOOSE) {
        p->loose = (struct qr_loose){.open = {'{'}, .depth = 1, .want_key = true};
        qr_say(p, QR_PART_ARGUMENTS, "{", 1);
    }
    static const enum qr_read_state states[] = {
        [QR_ARGS_JSON] = QR_READ_JSON, [QR_ARGS_TAGGED] = QR_READ_TAGGED, [QR_ARGS_CODE] = QR_READ_CODE, [QR_ARGS_LOOSE] = QR_READ_LOOSE};
    p->state = states[kind];
}

/* ---- a call that is one JSON object ---- */

/* The text in which a head is looked for, `from` bytes behind `at`. end: nothing follows it. */
struct window {
    const char *s;
    size_t n, from;
    bool end;
};

static struct window behind(struct window w, size_t n)
{
    QR_ASSERT(n <= w.n);
    return (struct window){.s = w.s + n, .n = w.n - n, .from = w.from + n, .end = w.end};
}

struct object_head {
    struct qr_buf *name, *id;
    bool named, whole;       /* whole: the object's end was seen */
    size_t args, args_end;   /* where the arguments begin; args_end: 0, or where they end: the name stands behind them */
    size_t end;              /* behind the object */
};

static bool key_is(const char *s, size_t n, const char *key)
{
    return key && strlen(key) == n && memcmp(s, key, n) == 0;
}

static bool is_name_key(const struct qr_call_form *f, const char *s, size_t n)
{
    return key_is(s, n, f->name_key) || key_is(s, n, "name") || key_is(s, n, "tool_name");
}

static bool is_args_key(const struct qr_call_form *f, const char *s, size_t n)
{
    return key_is(s, n, f->args_key) || key_is(s, n, "arguments") || key_is(s, n, "parameters");
}

static bool is_id_key(const struct qr_call_form *f, const char *s, size_t n)
{
    return key_is(s, n, f->id_key) || key_is(s, n, "id") || key_is(s, n, "tool_call_id");
}

/* A string or another scalar as text. */
static void take_scalar(struct qr_buf *out, const char *s, size_t n)
{
    qr_buf_clear(out);
    if (n >= 2 && *s == '"')
        qr_json_unescape_text(out, s + 1, n - 2, true);
    else
        qr_buf_put(out, s, n);
}

/* The member that begins with s[*i] == '"'. *key: its name without quotes. PART: more is needed; value_at is where its value begins, or 0. */
static enum qr_match member_key(const char *s, size_t n, size_t *i, size_t *key, size_t *key_len)
{
    const size_t from = *i;
    enum qr_match m = *i < n && s[*i] == '"' ? qr_json_skip_value(s, n, i) : *i < n ? QR_MATCH_NO : QR_MATCH_PART;
    if (m != QR_MATCH_FULL)
        return m;
    *key = from + 1;
    *key_len = *i - from - 2;
    *i += qr_blanks(s + *i, n - *i);
    if (*i == n)
        return QR_MATCH_PART;
    if (s[*i] != ':')
        return QR_MATCH_NO;
    ++*i;
    *i += qr_blanks(s + *i, n - *i);
    return *i < n ? QR_MATCH_FULL : QR_MATCH_PART;
}

/* Arguments that can be passed on: an object that begins well, text that holds one, null. */
static enum qr_match arguments_begin_well(const char *s, size_t n)
{
    if (*s == '"' || *s == 'n')
        return QR_MATCH_FULL;
    if (*s != '{')
        return QR_MATCH_NO;
    const size_t i = 1 + qr_blanks(s + 1, n - 1);
    return i == n ? QR_MATCH_PART : s[i] == '"' || s[i] == '}' ? QR_MATCH_FULL : QR_MATCH_NO;
}

/* One member of a call's object. FULL with h->args: the head is complete. */
static enum qr_match read_member(struct object_head *h, const struct qr_reading *r, const char *s, size_t n, size_t *i)
{
    const struct qr_call_form *f = r->form;
    size_t key, key_len;
    enum qr_match m = member_key(s, n, i, &key, &key_len);
    if (m != QR_MATCH_FULL)
        return m;
    const size_t at = *i;
    const bool name_as_key = f->name_key && !*f->name_key && !h->named && !is_name_key(f, s + key, key_len);
    if (name_as_key) {
        take_scalar(h->name, s + key - 1, key_len + 2);
        h->named = true;
    }
    if (name_as_key || is_args_key(f, s + key, key_len)) {
        if ((m = arguments_begin_well(s + at, n - at)) != QR_MATCH_FULL)
            return m;
        h->args = at;
        if (h->named)
            return QR_MATCH_FULL;
        m = qr_json_skip_value(s, n, i);
        h->args_end = *i;
        return m;
    }
    m = qr_json_skip_value(s, n, i);
    if (m != QR_MATCH_FULL)
        return m;
    if (is_name_key(f, s + key, key_len)) {
        take_scalar(h->name, s + at, *i - at);
        h->named = s[at] == '"' && h->name->len > 0;
        return h->named ? QR_MATCH_FULL : QR_MATCH_NO;
    }
    if (is_id_key(f, s + key, key_len))
        take_scalar(h->id, s + at, *i - at);
    else if (!*r->start && !key_is(s + key, key_len, "type")) /* a bare object of another kind */
        return QR_MATCH_NO;
    return QR_MATCH_FULL;
}

/* The object that begins at s[0], as far as is needed to know the call. */
static enum qr_match read_object_head(struct object_head *h, const struct qr_reading *r, const char *s, size_t n)
{
    size_t i = 1;
    for (bool first = true;; first = false) {
        i += qr_blanks(s + i, n - i);
        if (i == n)
            return QR_MATCH_PART;
        if (s[i] == '}') {
            h->whole = true;
            h->end = i + 1;
            return h->named && (*r->start || h->args_end) ? QR_MATCH_FULL : QR_MATCH_NO;
        }
        if (!first && s[i++] != ',')
            return QR_MATCH_NO;
        i += qr_blanks(s + i, n - i);
        const enum qr_match m = read_member(h, r, s, n, &i);
        if (m != QR_MATCH_FULL)
            return m;
        if (h->named && h->args && !h->args_end)
            return QR_MATCH_FULL;
    }
}

/* A call that is an object at `from`; text that was cut off in a head gives the call where its name is known. */
static enum qr_match begin_object(struct qr_answer_parser *p, const struct qr_reading *r, struct window w)
{
    const char *s = w.s;
    const size_t n = w.n;
    if (*s != '{')
        return QR_MATCH_NO;
    struct object_head h = {.name = &p->name, .id = &p->id};
    qr_buf_clear(&p->name);
    qr_buf_clear(&p->id);
    enum qr_match m = read_object_head(&h, r, s, n);
    const bool cut = m == QR_MATCH_PART && w.end;
    if (cut && h.named && *r->start)
        m = QR_MATCH_FULL;
    if (m == QR_MATCH_FULL && !*r->start && p->o.tools && !qr_tool_known(p->o.tools, p->name.data, p->name.len))
        m = QR_MATCH_NO;
    if (m != QR_MATCH_FULL)
        return m;
    p->r = r;
    qr_call_say(p, p->name.data, p->name.len);
    qr_arguments_begin(p, QR_ARGS_JSON);
    if (h.args_end)
        qr_say(p, QR_PART_ARGUMENTS, s + h.args, h.args_end - h.args);
    p->at += w.from + (h.whole ? h.end : h.args_end ? n : h.args && !cut ? h.args : n);
    if (h.whole)
        qr_call_end(p, false);
    return QR_MATCH_FULL;
}

/* ---- a call whose name is text ---- */

/* Length of the piece of `text` that stands before white space. */
static size_t piece_len(const char *text)
{
    return strcspn(text, " \n\t\r");
}

/* What may end a name: the form's own texts, and what begins the arguments. */
static int32_t name_ends(const char *out[8], const struct qr_reading *r)
{
    const struct qr_call_form *f = r->form;
    const char *name_end = qr_text_of(f->name_end);
    int32_t n = 0;
    name_end += qr_blanks(name_end, strlen(name_end));
    const char *all[] = {name_end, qr_text_of(f->id_start), f->args == QR_ARGS_JSON ? "{" : "", f->args == QR_ARGS_TAGGED ? qr_text_of(f->param_start) : "",
                         qr_text_of(f->args_start), qr_text_of(f->call_end), !*name_end && f->args == QR_ARGS_TAGGED ? "\n" : ""};
    for (int k = 0; k < QR_COUNT(all); k++) {
        const char *t = all[k];
        t += *t == '\n' && !t[1] ? 0 : qr_blanks(t, strlen(t));
        if (*t)
            out[n++] = t;
    }
    return n;
}

/* The end of the name that begins at s[0]: FULL and *len. */
static enum qr_match find_name(const struct qr_reading *r, const char *s, size_t n, bool end, size_t *len)
{
    const char *ends[8];
    const int32_t n_ends = name_ends(ends, r);
    bool line_ended = false; /* nothing but white space is before the end then */
    for (size_t i = 0; i < n && i <= QR_CALL_NAME_MAX; i++) {
        for (int32_t k = 0; k < n_ends; k++) {
            const size_t piece = *ends[k] == '\n' ? 1 : piece_len(ends[k]);
            const enum qr_match m = qr_match_exactly(s + i, n - i, ends[k], piece);
            if (m == QR_MATCH_FULL) {
                *len = i;
                return i > 0 ? QR_MATCH_FULL : QR_MATCH_NO;
            }
            if (m == QR_MATCH_PART && !end)
                return QR_MATCH_PART;
        }
        line_ended = line_ended || s[i] == '\n';
        if (strchr("<>{}\"[]()=", s[i]) || (line_ended && !qr_is_blank(s[i])) || ((unsigned char)s[i] < ' ' && s[i] != '\n'))
            return QR_MATCH_NO;
    }
    return n > QR_CALL_NAME_MAX ? QR_MATCH_NO : QR_MATCH_PART;
}

static bool is_identifier(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(isalnum((unsigned char)s[i]) || (s[i] && strchr("_.-", s[i]))))
            return false;
    return n > 0 && !isdigit((unsigned char)*s);
}

/* The id between the name and the arguments; *i moves behind it. */
static enum qr_match read_id(struct qr_answer_parser *p, const struct qr_call_form *f, const char *s, size_t n, size_t *i)
{
    size_t len;
    const char *start = qr_text_of(f->id_start);
    if (!*start)
        return QR_MATCH_FULL;
    enum qr_match m = qr_match_loosely(s + *i, n - *i, start, &len);
    if (m != QR_MATCH_FULL)
        return m == QR_MATCH_NO ? QR_MATCH_FULL : m;
    *i += len;
    const size_t from = *i;
    while (*i < n && (isalnum((unsigned char)s[*i]) || s[*i] == '_' || s[*i] == '-'))
        ++*i;
    if (*i == n)
        return QR_MATCH_PART;
    qr_buf_put(&p->id, s + from, *i - from);
    return QR_MATCH_FULL;
}

/* Of "functions.f:0" the name is f, and the whole is the id. */
static void split_id(struct qr_answer_parser *p, const char *prefix, const char **name, size_t *len)
{
    qr_buf_put(&p->id, *name, *len);
    const size_t skip = strlen(prefix);
    if (*len > skip && memcmp(*name, prefix, skip) == 0) {
        *name += skip;
        *len -= skip;
    }
    size_t n = *len;
    while (n > 0 && isdigit((unsigned char)(*name)[n - 1]))
        n--;
    if (n > 1 && n < *len && (*name)[n - 1] == ':')
        *len = n - 1;
}

/* Whether arguments follow at s[i] as the form has them. */
static enum qr_match arguments_follow(const struct qr_reading *r, const char *s, size_t n, size_t *i, bool end)
{
    const struct qr_call_form *f = r->form;
    size_t len;
    if (f->args == QR_ARGS_TAGGED)
        return QR_MATCH_FULL;
    *i += qr_blanks(s + *i, n - *i);
    if (f->args == QR_ARGS_LOOSE) {
        const enum qr_match m = qr_match_loosely(s + *i, n - *i, f->args_start, &len);
        if (m != QR_MATCH_FULL)
            return m;
        *i += len;
        size_t k = *i + qr_blanks(s + *i, n - *i), word = k;
        while (k < n && (isalnum((unsigned char)s[k]) || s[k] == '_' || s[k] == '-' || (unsigned char)s[k] >= 0x80))
            k++;
        const bool named = k > word;
        k += qr_blanks(s + k, n - k);
        if (k == n && f->assign != ':')
            return QR_MATCH_PART;
        return f->assign == ':' || s[k] == (named ? f->assign : ')') ? QR_MATCH_FULL : QR_MATCH_NO;
    }
    if (*i == n)
        return QR_MATCH_PART;
    const enum qr_match none = qr_match_loosely(s + *i, n - *i, qr_text_of(f->call_end), &len);
    if (none == QR_MATCH_PART || (none == QR_MATCH_FULL && len > 0))
        return none; /* none at all */
    return arguments_begin_well(s + *i, n - *i);
}

static enum qr_match begin_named(struct qr_answer_parser *p, const struct qr_reading *r, struct window w)
{
    const struct qr_call_form *f = r->form;
    const char *s = w.s, *name = s;
    size_t n = w.n, len = 0, skip = 0;
    enum qr_match m = find_name(r, s, n, w.end, &len);
    if (m != QR_MATCH_FULL)
        return m;
    size_t i = len;
    while (len > 0 && qr_is_blank(s[len - 1]))
        len--;
    qr_buf_clear(&p->id);
    m = len > 0 ? read_id(p, f, s, n, &i) : QR_MATCH_NO;
    const enum qr_match ends = m == QR_MATCH_FULL ? qr_match_loosely(s + i, n - i, qr_text_of(f->name_end), &skip) : QR_MATCH_NO;
    i += ends == QR_MATCH_FULL ? skip : 0;
    if (ends == QR_MATCH_PART)
        m = ends;
    if (m == QR_MATCH_FULL)
        m = arguments_follow(r, s, n, &i, w.end);
    if (!*r->start && (!is_identifier(s, len) || (m == QR_MATCH_FULL && p->o.tools && !qr_tool_known(p->o.tools, s, len))))
        return QR_MATCH_NO;
    const bool cut = m == QR_MATCH_PART && w.end;
    if (m != QR_MATCH_FULL && !cut)
        return m;
    if (f->id_prefix && *f->id_prefix)
        split_id(p, f->id_prefix, &name, &len);
    qr_buf_clear(&p->name);
    qr_buf_put(&p->name, name, len);
    p->r = r;
    qr_call_say(p, p->name.data, p->name.len);
    p->at += w.from + i;
    qr_arguments_begin(p, f->args);
    return QR_MATCH_FULL;
}

/* A program, with nothing before it. */
static enum qr_match begin_code(struct qr_answer_parser *p, const struct qr_reading *r, struct window w)
{
    const char *name = qr_tool_of_code(p->o.tools);
    if (!name)
        return QR_MATCH_NO;
    p->r = r;
    qr_buf_clear(&p->id);
    qr_call_say(p, name, strlen(name));
    p->at += w.from;
    qr_arguments_begin(p, QR_ARGS_CODE);
    return QR_MATCH_FULL;
}

/* ---- where calls begin ---- */

/* The call whose markers are `start`; NULL: it has none, or they were read. */
static enum qr_match begin_with(struct qr_answer_parser *p, const struct qr_reading *r, const char *start, struct window w)
{
    const bool json = r->form->layout == QR_CALL_JSON, was_list = p->in_list;
    size_t i = 0;
    enum qr_match m = start ? qr_match_loosely(w.s, w.n, start, &i) : QR_MATCH_FULL;
    if (m != QR_MATCH_FULL)
        return m;
    w = behind(w, i + qr_blanks(w.s + i, w.n - i));
    const bool list = w.n > 0 && *w.s == '[' && (r->bracket || json);
    if (list)
        w = behind(w, 1 + qr_blanks(w.s + 1, w.n - 1));
    if (w.n == 0)
        return QR_MATCH_PART;
    if (r->bracket && !*r->start && !was_list && !json && !list)
        return QR_MATCH_NO;
    m = json ? begin_object(p, r, w) : r->form->args == QR_ARGS_CODE ? begin_code(p, r, w) : begin_named(p, r, w);
    if (m == QR_MATCH_FULL)
        p->in_list = list || was_list;
    return m;
}

enum qr_match qr_call_begin(struct qr_answer_parser *p, size_t from, bool bare)
{
    QR_ASSERT(p != NULL && from <= qr_held_len(p));
    struct window w = {.s = qr_held(p) + from, .n = qr_held_len(p) - from, .from = from, .end = p->end};
    if (w.n > QR_CALL_HEAD_MAX) { /* the same for every cut of the text */
        w.n = QR_CALL_HEAD_MAX;
        w.end = false;
    }
    p->in_list = false;
    for (int32_t i = 0; i < p->n_forms; i++) {
        const struct qr_reading *r = &p->form[i];
        for (int32_t k = 0; k < (bare ? !*r->start : r->n_starts); k++) {
            const enum qr_match m = bare || *r->starts[k] == *w.s ? begin_with(p, r, bare ? NULL : r->starts[k], w) : QR_MATCH_NO;
            if (m == QR_MATCH_FULL || (m == QR_MATCH_PART && !w.end && w.n < QR_CALL_HEAD_MAX))
                return m;
        }
    }
    return QR_MATCH_NO;
}

/* ---- behind a call ---- */

/* Behind the arguments, to the end of the call's object: an id may stand there. */
bool qr_step_rest(struct qr_answer_parser *p)
{
    const char *s = qr_held(p);
    const size_t n = qr_held_len(p);
    size_t i = qr_blanks(s, n), key, key_len;
    if (i == n)
        return false;
    if (s[i] == '}') {
        p->at += i + 1;
        qr_call_end(p, false);
        return true;
    }
    bool cut = false;
    if (s[i++] == ',') {
        i += qr_blanks(s + i, n - i);
        enum qr_match m = member_key(s, n, &i, &key, &key_len);
        const size_t value = i;
        m = m == QR_MATCH_FULL ? qr_json_skip_value(s, n, &i) : m;
        if (m == QR_MATCH_FULL && is_id_key(p->r->form, s + key, key_len)) {
            take_scalar(&p->id, s + value, i - value);
            p->late_id = p->id.len > 0;
        }
        cut = m == QR_MATCH_PART;
        if (cut && !p->end)
            return false;
        if (m == QR_MATCH_FULL) {
            p->at += i;
            return true;
        }
    }
    qr_call_end(p, cut);
    return true;
}

/* What may stand behind a call, in the order in which it is looked for. */
enum behind { BEHIND_TAIL, BEHIND_SECTION_END, BEHIND_LIST_END, N_BEHIND };

/* The form's markers in a row; models leave some of them out. FULL: at least one stands at s, and *len bytes are all that do. */
static enum qr_match match_tail(const char *s, size_t n, const char *text, bool end, size_t *len)
{
    char piece[128];
    size_t i = 0;
    while (*text) {
        size_t k = 1 + strcspn(text + 1, "<"), used = 0;
        snprintf(piece, sizeof piece, "%.*s", (int)k, text);
        text += k;
        const enum qr_match m = piece[qr_blanks(piece, strlen(piece))] ? qr_match_loosely(s + i, n - i, piece, &used) : QR_MATCH_NO;
        if (m == QR_MATCH_PART && !end)
            return m;
        i += m == QR_MATCH_FULL ? used : m == QR_MATCH_PART ? n - i : 0; /* a marker that the text's end cuts off is no content */
    }
    *len = i;
    return i > 0 ? QR_MATCH_FULL : QR_MATCH_NO;
}

/* Ends of the call, its section and its list: they are taken where they stand. FULL: one was taken. */
static enum qr_match take_behind(struct qr_answer_parser *p, const char *s, size_t n)
{
    const struct qr_call_form *f = p->r->form;
    const char *text[N_BEHIND] = {qr_text_of(f->call_end), p->r->section_end, p->in_list ? "]" : ""};
    char both[512];
    size_t len;
    snprintf(both, sizeof both, "%s%s", f->args == QR_ARGS_LOOSE ? "" : qr_text_of(f->args_end), text[BEHIND_TAIL]);
    text[BEHIND_TAIL] = both;
    for (int k = 0; k < N_BEHIND; k++) {
        const enum qr_match m = match_tail(s, n, text[k], p->end, &len);
        if (m == QR_MATCH_PART && !p->end)
            return m;
        if (m != QR_MATCH_FULL)
            continue;
        p->at += len;
        p->in_list = p->in_list && k != BEHIND_LIST_END;
        return QR_MATCH_FULL;
    }
    return QR_MATCH_NO;
}

/* The next call of a list, or of the same section: behind a separator or directly. */
static enum qr_match take_next(struct qr_answer_parser *p, const char *s, size_t n)
{
    const struct qr_reading *r = p->r;
    const char *between = qr_text_of(r->form->separator), *start = qr_text_of(r->form->call_start);
    struct window w = {.s = s, .n = n, .end = p->end};
    size_t len = 0;
    between += qr_blanks(between, strlen(between));
    const char *comma = *between ? between : p->in_list ? "," : "";
    if (*comma) {
        const enum qr_match m = qr_match_loosely(s, n, comma, &len);
        if (m != QR_MATCH_FULL)
            return m;
    } else if (!*start && !p->in_list) {
        if (r->form->layout == QR_CALL_JSON || !*r->section_end || !*r->start)
            return QR_MATCH_NO; /* text, or a call with markers of its own */
    }
    w.from = len;
    w.s += len;
    w.n -= len;
    if (w.n > QR_CALL_HEAD_MAX) {
        w.n = QR_CALL_HEAD_MAX;
        w.end = false;
    }
    const bool list = p->in_list;
    const enum qr_match m = begin_with(p, r, *start ? start + qr_blanks(start, strlen(start)) : NULL, w);
    p->in_list = m == QR_MATCH_FULL ? p->in_list || list : list;
    return m == QR_MATCH_PART && (w.end || w.n == QR_CALL_HEAD_MAX) ? QR_MATCH_NO : m;
}

bool qr_step_call_after(struct qr_answer_parser *p)
{
    p->at += qr_blanks(qr_held(p), qr_held_len(p));
    const char *s = qr_held(p);
    const size_t n = qr_held_len(p);
    if (n == 0)
        return false;
    enum qr_match m = take_behind(p, s, n);
    if (m == QR_MATCH_NO)
        m = take_next(p, s, n);
    if (m == QR_MATCH_PART && !p->end)
        return false;
    if (m == QR_MATCH_NO || m == QR_MATCH_PART) {
        p->in_list = false;
        qr_read_text_from(p);
    }
    return true;
}
