/* filters_text.c - filters that make text. Trusted bytes stay trusted only where they are copied unchanged. Each
 * filter is a row: name, function, arguments; those that are methods of strings, too, stand in methods.c. An error
 * leaves the rendering (value.h). One thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"

static QR_JBUILTIN(f_replace)
{
    struct qr_jstr *s = qr_jtext_flat(c, self);
    struct qr_jstr *old = qr_jtext_flat(c, &arg[0]), *new = qr_jtext_flat(c, &arg[1]);
    int64_t max = arg[2].type == QR_J_NONE ? -1 : qr_jarg_int(c, &arg[2], -1);
    return qr_jstrv(qr_jstr_marked(c, qr_jreplace(c, s, old, new, max), false));
}

static QR_JBUILTIN(f_string)
{
    return qr_jstrv(qr_jtext(c, self));
}

static QR_JBUILTIN(f_safe)
{
    return qr_jstrv(qr_jstr_marked(c, qr_jtext(c, self), true));
}

/* escape, forceescape. how: whether Markup is escaped, too. */
static QR_JBUILTIN(f_escape)
{
    struct qr_jstr *s = qr_jtext(c, self);
    return qr_jstrv(qr_jescape(c, how ? qr_jstr_marked(c, s, false) : s));
}

/* n blanks, or the string that was given instead of a number. */
static struct qr_jstr *indention(struct qr_jctx *c, const struct qr_jval *v, int64_t absent)
{
    if (v->type == QR_J_STR)
        return qr_jstr_flat(c, v->u.s);
    int64_t n = qr_jarg_int(c, v, absent);
    return qr_jstr_flat(c, qr_jstr_repeat(c, qr_jstr_new(c, " ", 1, true), n));
}

static QR_JBUILTIN(f_indent)
{
    struct qr_jstr *s = qr_jarg_str(c, self, "indent's value"), *width = indention(c, &arg[0], 4);
    bool first = qr_jarg_flag(&arg[1]), blank = qr_jarg_flag(&arg[2]);
    struct qr_jbag lines = qr_jsplit_lines(c, s, false);
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    /* The reference splits the text with one newline behind it, so a newline at the end gives no empty last line; but
     * then the one added is a line of its own. */
    if (s->len == 0 || s->u.flat.data[s->len - 1] == '\n')
        qr_jbag_push(c, &lines, qr_jlit(c, ""));
    for (int64_t i = 0; i < lines.n; i++) {
        struct qr_jstr *line = lines.at[i].u.s;
        if (i > 0)
            qr_jsb_puts(&b, "\n");
        if (i == 0 ? first : blank || line->len > 0)
            qr_jsb_put_range(&b, width, 0, width->len);
        qr_jsb_put_range(&b, line, 0, line->len);
    }
    return qr_jstrv(qr_jstr_marked(c, qr_jsb_done(&b), s->markup));
}

static QR_JBUILTIN(f_format)
{
    struct qr_jstr *s = qr_jtext(c, self);
    struct qr_jval args;
    if (raw->n_pos > 0 && raw->n_kw > 0)
        qr_jfail(c, "can't handle positional and keyword arguments at the same time");
    if (raw->n_kw == 0) {
        args = qr_jseq_of(c, QR_J_TUPLE, raw->pos, raw->n_pos);
    } else {
        args = qr_jdictv(qr_jdict_new(c));
        qr_jdict_set_kw(c, args.u.d, raw);
    }
    return qr_jpercent(c, s, &args);
}

static QR_JBUILTIN(f_truncate)
{
    int64_t length = qr_jarg_int(c, &arg[0], 255);
    bool kill = qr_jarg_flag(&arg[1]);
    struct qr_jval dots = qr_jgiven(&arg[2]) ? arg[2] : qr_jlit(c, "...");
    struct qr_jstr *end = qr_jarg_str(c, &dots, "truncate's end");
    int64_t leeway = arg[3].type == QR_J_NONE ? 5 : qr_jarg_int(c, &arg[3], 5);
    int64_t n = qr_jlen(c, self), n_end = qr_jstr_chars(c, end);
    if (length < n_end || leeway < 0)
        qr_jfail(c, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway >= n || n - leeway <= length)
        return *self;
    struct qr_jstr *s = qr_jarg_str(c, self, "truncate's value");
    struct qr_jstr *kept = qr_jstr_sub(c, s, 0, qr_jstr_offset(s, length - n_end));
    const char *blank = kill || kept->len == 0 ? NULL : memrchr(kept->u.flat.data, ' ', kept->len);
    if (blank)
        kept = qr_jstr_sub(c, kept, 0, (size_t)(blank - kept->u.flat.data));
    return qr_jstrv(qr_jstr_marked(c, qr_jstr_cat(c, kept, end), false));
}

static QR_JBUILTIN(f_wordcount)
{
    struct qr_jstr *s = qr_jtext_flat(c, self);
    int64_t n = 0;
    bool inside = false;
    qr_jcharge_bytes(c, s->len);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        bool word = qr_jword(cp);
        n += word && !inside;
        inside = word;
    }
    return qr_jint(n);
}

static QR_JBUILTIN(f_join)
{
    struct qr_jseq items = qr_jitems(c, self);
    struct qr_jstr *sep = qr_jgiven(&arg[0]) ? qr_jtext(c, &arg[0]) : NULL, *all = NULL;
    for (int64_t i = 0; i < items.n; i++) {
        qr_jcharge(c, 1);
        struct qr_jval v = qr_jattr_path(c, &items.at[i], &arg[1], NULL);
        struct qr_jstr *s = qr_jtext(c, &v);
        if (i > 0 && sep)
            all = qr_jstr_cat(c, all, sep);
        all = qr_jstr_join(c, all, s);
    }
    return all ? qr_jstrv(qr_jstr_marked(c, all, false)) : qr_jlit(c, "");
}

/* The two separators of tojson(separators=(a, b)). */
static void separators(struct qr_jctx *c, const struct qr_jval *v, struct qr_jjson_opts *o)
{
    struct qr_jval default_pair[2] = {qr_jlit(c, o->indent ? "," : ", "), qr_jlit(c, ": ")};
    struct qr_jseq pair = {default_pair, 2, false};
    if (qr_jset(v))
        pair = qr_jitems(c, v);
    if (pair.n != 2)
        qr_jfail(c, "tojson: separators must be two strings");
    o->item = qr_jarg_str(c, &pair.at[0], "tojson: the item separator");
    o->key = qr_jarg_str(c, &pair.at[1], "tojson: the key separator");
}

static QR_JBUILTIN(f_tojson)
{
    struct qr_jjson_opts o = {.ascii = qr_jarg_flag(&arg[0])};
    if (qr_jset(&arg[1]))
        o.indent = indention(c, &arg[1], 0);
    separators(c, &arg[2], &o);
    o.sort = qr_jarg_flag(&arg[3]);
    return qr_jstrv(qr_jjson(c, self, &o));
}

static const struct qr_jbuiltin rows[] = {
    {.name = "tojson", .fn = f_tojson, .param = {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {.name = "trim", .fn = qr_jb_strip, .how = QR_JBOTH, .param = {"chars"}},
    {.name = "string", .fn = f_string},
    {.name = "join", .fn = f_join, .param = {"d", "attribute"}},
    {.name = "safe", .fn = f_safe},
    {.name = "upper", .fn = qr_jb_case, .how = QR_JCASE_UPPER},
    {.name = "lower", .fn = qr_jb_case, .how = QR_JCASE_LOWER},
    {.name = "capitalize", .fn = qr_jb_case, .how = QR_JCASE_CAPITALIZE},
    {.name = "title", .fn = qr_jb_case, .how = QR_JCASE_FILTER_TITLE},
    {.name = "replace", .fn = f_replace, .n_required = 2, .param = {"old", "new", "count"}},
    {.name = "e", .fn = f_escape},
    {.name = "escape", .fn = f_escape},
    {.name = "forceescape", .fn = f_escape, .how = 1},
    {.name = "indent", .fn = f_indent, .param = {"width", "first", "blank"}},
    {.name = "center", .fn = qr_jb_pad, .how = QR_JBOTH, .param = {"width"}},
    {.name = "format", .fn = f_format, .variadic = true},
    {.name = "truncate", .fn = f_truncate, .param = {"length", "killwords", "end", "leeway"}},
    {.name = "wordcount", .fn = f_wordcount},
};
const struct qr_jtable qr_jfilters_text = {rows, QR_COUNT(rows)};
