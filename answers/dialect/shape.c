/* shape.c - the grammar of an answer, from the same description that its parser reads: reasoning, then text, or calls
 * as the family writes them. What is text cannot hold the marker that begins calls; so a call that was begun is a
 * call, and can be taken apart. Pure. */
#include <stdio.h>

#include "answers/dialect/shaping.h"

#define CALLS_MAX 128
#define BLANKS_MAX 4 /* white space behind reasoning */
#define ID_CHARS_MAX 40

/* ---- texts ---- */

/* The longest special token that s[0..n) begins with, or -1. */
static int32_t token_at(const struct qr_vocab *v, const char *s, size_t n, size_t *len)
{
    for (size_t k = n < 64 ? n : 64; v && k > 1; k--) {
        const int32_t id = qr_vocab_special(v, s, k);
        if (id >= 0) {
            *len = k;
            return id;
        }
    }
    return -1;
}

int32_t qr_shape_written_bytes(struct qr_shaping *b, const char *text, size_t len)
{
    int32_t e = QR_EXPR_EMPTY;
    for (size_t i = 0; i < len;) {
        size_t n = 1;
        const int32_t id = token_at(b->v, text + i, len - i, &n);
        e = qr_expr_cat(b->x, e, id >= 0 ? qr_expr_token(b->x, id) : qr_expr_bytes(b->x, text + i, 1));
        i += n;
    }
    return e;
}

int32_t qr_shape_written(struct qr_shaping *b, const char *text)
{
    return qr_shape_written_bytes(b, qr_text_of(text), strlen(qr_text_of(text)));
}

int32_t qr_shape_stop(struct qr_shaping *b, const char *text, size_t len)
{
    return qr_expr_or(b->x, qr_shape_written_bytes(b, text, len), qr_expr_bytes(b->x, text, len));
}

static int32_t blanks(struct qr_shaping *b, int32_t max)
{
    return qr_expr_repeat(b->x, qr_expr_or(b->x, qr_expr_text(b->x, " "), qr_expr_text(b->x, "\n")), 0, max);
}

static int32_t join(struct qr_shaping *b, const int32_t *part, int n)
{
    int32_t e = QR_EXPR_EMPTY;
    for (int i = n; i > 0; i--)
        e = qr_expr_cat(b->x, part[i - 1], e);
    return e;
}
#define JOIN(b, ...) join(b, (const int32_t[]){__VA_ARGS__}, QR_COUNT(((const int32_t[]){__VA_ARGS__})))

/* ---- calls ---- */

static const struct qr_json *function_of(const struct qr_json *tool)
{
    const struct qr_json *f = qr_json_find(tool, "function");
    return f ? f : tool;
}

static int32_t id_text(struct qr_shaping *b, int32_t min, int32_t max)
{
    const struct qr_rune_range word[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
    return qr_expr_repeat(b->x, qr_expr_runes(b->x, word, QR_COUNT(word)), min, max);
}

/* "key": with or without a space behind it. */
static int32_t member(struct qr_shaping *b, const char *key)
{
    return JOIN(b, qr_expr_text(b->x, "\""), qr_expr_json_text(b->x, key, strlen(key)), qr_expr_text(b->x, "\":"),
                qr_expr_maybe(b->x, qr_expr_text(b->x, " ")));
}

static int32_t object_call(struct qr_shaping *b, const struct qr_json *f, const char *name)
{
    const struct qr_call_form *c = b->r.form;
    const int32_t comma = qr_expr_cat(b->x, qr_expr_text(b->x, ","), qr_expr_maybe(b->x, qr_expr_text(b->x, " ")));
    const int32_t open = qr_expr_text(b->x, "{"), close = qr_expr_text(b->x, "}"), quote = qr_expr_text(b->x, "\"");
    const int32_t args = qr_shape_json_arguments(b, f);
    if (!*qr_text_of(c->name_key))
        return JOIN(b, open, member(b, name), args, close);
    const int32_t named = JOIN(b, member(b, c->name_key), quote, qr_expr_json_text(b->x, name, strlen(name)), quote);
    const int32_t with = JOIN(b, comma, member(b, c->args_key ? c->args_key : "arguments"), args);
    if (!*qr_text_of(c->id_key))
        return JOIN(b, open, named, with, close);
    const int32_t id = JOIN(b, member(b, c->id_key), quote, c->id_first ? id_text(b, 1, ID_CHARS_MAX) : id_text(b, 9, 9), quote);
    return c->id_first ? JOIN(b, open, id, comma, named, with, close) : JOIN(b, open, named, with, comma, id, close);
}

static int32_t named_call(struct qr_shaping *b, const struct qr_json *f, const char *name)
{
    const struct qr_call_form *c = b->r.form;
    int32_t head = qr_expr_text(b->x, name);
    if (*qr_text_of(c->id_prefix)) {
        const int32_t number = qr_expr_repeat(b->x, qr_expr_range(b->x, '0', '9'), 1, 4);
        head = JOIN(b, qr_shape_written(b, c->id_prefix), head, qr_expr_text(b->x, ":"), number);
    } else if (*qr_text_of(c->id_start)) {
        head = JOIN(b, head, qr_shape_written(b, c->id_start), id_text(b, 9, 9));
    }
    head = qr_expr_cat(b->x, head, qr_shape_written(b, c->name_end));
    QR_ASSERT(c->args != QR_ARGS_CODE); /* is read only */
    const int32_t args = c->args == QR_ARGS_JSON     ? qr_shape_json_arguments(b, f)
                         : c->args == QR_ARGS_TAGGED ? qr_shape_tagged_arguments(b, f)
                                                     : qr_shape_loose_arguments(b, f);
    return JOIN(b, head, qr_shape_written(b, c->args_start), args, qr_shape_written(b, c->args_end));
}

/* A call of any of the tools, as `write` writes one. */
static int32_t any_call(struct qr_shaping *b, int32_t (*write)(struct qr_shaping *b, const struct qr_json *f, const char *name))
{
    const int32_t n = qr_json_count(b->s->tools);
    int32_t *part = qr_alloc((size_t)n + 1, sizeof *part), k = 0;
    b->tool_number = 0;
    for (const struct qr_json *t = qr_json_first(b->s->tools); t && b->rc == 0; t = qr_json_after(t), b->tool_number++) {
        const char *name = qr_json_text(qr_json_find(function_of(t), "name"), NULL);
        if (name && part)
            part[k++] = write(b, function_of(t), name);
    }
    const int32_t e = part ? qr_expr_any(b->x, part, k) : QR_EXPR_NONE;
    qr_free(part);
    return e;
}

static int32_t write_call(struct qr_shaping *b, const struct qr_json *f, const char *name)
{
    return b->r.form->layout == QR_CALL_JSON ? object_call(b, f, name) : named_call(b, f, name);
}

static int32_t write_calls(struct qr_shaping *b)
{
    const struct qr_call_form *c = b->r.form;
    const int32_t one = JOIN(b, qr_shape_written(b, c->call_start), any_call(b, write_call), qr_shape_written(b, c->call_end));
    const int32_t next = qr_expr_cat(b->x, qr_shape_written(b, c->separator), one);
    const int32_t more = b->s->parallel ? qr_expr_repeat(b->x, next, 0, CALLS_MAX - 1) : QR_EXPR_EMPTY;
    const char *start = qr_text_of(c->section_start);
    start += qr_blanks(start, strlen(start)); /* white space before calls is optional */
    return JOIN(b, qr_shape_written(b, start), one, more, qr_shape_written(b, c->section_end));
}

/* ---- text ---- */

/* Texts that a reader would take for the beginning of calls that have no marker. */
static int32_t like_bare_call(struct qr_shaping *b)
{
    const struct qr_call_form *c = b->r.form;
    const int32_t white = qr_expr_repeat(b->x, qr_expr_or(b->x, qr_expr_text(b->x, " "), qr_expr_text(b->x, "\n")), 0, QR_REPEAT_FOREVER);
    const int32_t list = qr_expr_maybe(b->x, qr_expr_cat(b->x, qr_expr_text(b->x, "["), white)), all = qr_expr_anything(b->x);
    if (c->layout == QR_CALL_JSON)
        return JOIN(b, white, list, qr_expr_text(b->x, "{"), white, qr_expr_text(b->x, "\""), qr_expr_text(b->x, c->name_key ? c->name_key : "name"),
                    qr_expr_text(b->x, "\""), all);
    const struct qr_rune_range word[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}, {'-', '.'}};
    return JOIN(b, white, qr_expr_text(b->x, "["), white, qr_expr_repeat(b->x, qr_expr_runes(b->x, word, QR_COUNT(word)), 1, QR_REPEAT_FOREVER),
                qr_expr_text(b->x, qr_text_of(c->args_start)), all);
}

/* Any text that is no call, and that does not begin as reasoning where reasoning may come. */
static int32_t free_text(struct qr_shaping *b, bool calls)
{
    int32_t e = qr_expr_anything(b->x), stop = QR_EXPR_NONE;
    for (int32_t k = 0; calls && k < b->r.n_starts; k++)
        stop = qr_expr_or(b->x, stop, qr_shape_stop(b, b->r.starts[k], qr_first_marker(b->r.starts[k])));
    if (stop != QR_EXPR_NONE)
        e = qr_expr_without(b->x, stop);
    else if (calls && b->r.form)
        e = qr_expr_minus(b->x, e, like_bare_call(b));
    const char *think = qr_text_of(b->d->think_start);
    if (*think && b->s->may_think && !b->s->starts_inside)
        e = qr_expr_minus(b->x, e, JOIN(b, blanks(b, BLANKS_MAX), qr_shape_stop(b, think, strlen(think)), qr_expr_anything(b->x)));
    return e;
}

/* Content, in the markers that the family has for it or without them. */
static int32_t write_content(struct qr_shaping *b, int32_t content)
{
    const char *start = qr_text_of(b->d->content_start), *end = qr_text_of(b->d->content_end);
    if (!*start)
        return content;
    return qr_expr_or(b->x, content, JOIN(b, qr_shape_written(b, start), content, qr_shape_written(b, end)));
}

/* What comes behind reasoning. */
static int32_t write_body(struct qr_shaping *b)
{
    const bool may_call = b->s->tools && qr_json_count(b->s->tools) > 0 && b->s->choice != QR_CALL_NONE;
    const int32_t calls = may_call ? write_calls(b) : QR_EXPR_NONE;
    if (may_call && b->s->choice == QR_CALL_REQUIRED)
        return calls;
    if (b->s->content != QR_EXPR_NONE)
        return qr_expr_or(b->x, write_content(b, b->s->content), calls);
    const int32_t text = free_text(b, may_call);
    if (!may_call)
        return text;
    return *b->r.start ? qr_expr_cat(b->x, text, qr_expr_maybe(b->x, calls)) : qr_expr_or(b->x, text, calls);
}

/* Reasoning before `rest`. Where anything may follow, the answer may also end in it. */
static int32_t write_thinking(struct qr_shaping *b, int32_t rest)
{
    const struct qr_dialect *d = b->d;
    const char *end = qr_text_of(d->think_end);
    const bool demands = b->s->content != QR_EXPR_NONE || b->s->choice == QR_CALL_REQUIRED;
    if (!*end || (!b->s->starts_inside && !b->s->may_think))
        return rest;
    const int32_t stop = qr_shape_stop(b, end, strlen(end));
    int32_t inside = JOIN(b, qr_expr_until(b->x, stop), blanks(b, BLANKS_MAX), rest);
    if (!demands)
        inside = qr_expr_or(b->x, inside, qr_expr_without(b->x, stop));
    if (b->s->starts_inside)
        return inside;
    return qr_expr_or(b->x, rest, JOIN(b, blanks(b, BLANKS_MAX), qr_shape_written(b, d->think_start), inside));
}

/* ---- messages with heads ---- */

static int32_t write_headed_call(struct qr_shaping *b, const struct qr_json *f, const char *name)
{
    const struct qr_heads *h = &b->d->heads;
    return JOIN(b, qr_shape_written(b, h->call_head), qr_expr_text(b->x, name), qr_shape_written(b, h->call_middle), qr_shape_json_arguments(b, f));
}

/* head end, or the name of the content's kind alone where the prompt has written the mark that begins a head. */
static int32_t head(struct qr_shaping *b, const char *kind)
{
    const struct qr_heads *h = &b->d->heads;
    return JOIN(b, *h->recipient ? qr_shape_written(b, h->start) : QR_EXPR_EMPTY, qr_expr_text(b->x, kind), qr_shape_written(b, h->end));
}

static int32_t write_headed(struct qr_shaping *b)
{
    const struct qr_heads *h = &b->d->heads;
    const struct qr_answer_shape *s = b->s;
    const bool may_call = s->tools && qr_json_count(s->tools) > 0 && s->choice != QR_CALL_NONE;
    const int32_t end = qr_shape_stop(b, h->body_end[0], strlen(h->body_end[0])), turn = qr_shape_written(b, h->turn);
    const int32_t one = may_call ? any_call(b, write_headed_call) : QR_EXPR_NONE;
    int32_t calls = one, e;
    if (!*h->turn && s->parallel) /* the mark that begins a head is all that is between two */
        calls = qr_expr_cat(b->x, one, qr_expr_repeat(b->x, qr_expr_cat(b->x, qr_shape_written(b, h->start), one), 0, CALLS_MAX - 1));
    int32_t stop = QR_EXPR_NONE;
    for (int i = 0; i < QR_COUNT(h->body_end) && h->body_end[i]; i++)
        stop = qr_expr_or(b->x, stop, qr_shape_stop(b, h->body_end[i], strlen(h->body_end[i])));
    const int32_t text = s->content != QR_EXPR_NONE ? s->content : qr_expr_without(b->x, stop);
    if (may_call && s->choice == QR_CALL_REQUIRED)
        e = calls;
    else if (!*h->turn && may_call && s->content == QR_EXPR_NONE) /* text first, then calls */
        e = qr_expr_or(b->x, JOIN(b, head(b, h->content), text, qr_expr_maybe(b->x, qr_expr_cat(b->x, qr_shape_written(b, h->start), calls))), calls);
    else
        e = qr_expr_or(b->x, qr_expr_cat(b->x, head(b, h->content), text), calls);
    if (*h->thinking && s->may_think)
        e = qr_expr_or(b->x, e, JOIN(b, head(b, h->thinking), qr_expr_until(b->x, end), turn, e));
    return e;
}

int qr_dialect_shape(int32_t *out, struct qr_exprs *x, const struct qr_dialect *d, const struct qr_answer_shape *s, const struct qr_vocab *v,
                     struct qr_err *err)
{
    QR_ASSERT(out != NULL && x != NULL);
    QR_ASSERT(d != NULL && s != NULL);
    QR_ASSERT(d->n_forms > 0 || d->heads.start || !s->tools);
    struct qr_shaping b = {.x = x, .v = v, .d = d, .s = s, .err = err};
    if (d->n_forms)
        qr_reading_init(&b.r, &d->form[0]);
    *out = d->heads.start ? write_headed(&b) : write_thinking(&b, write_body(&b));
    if (d->n_forms)
        qr_reading_release(&b.r);
    return b.rc;
}
