/* filters_text.c - filters that make text. Trusted bytes stay trusted only where they are copied unchanged. Errors of a
 * rendering are values (value.c), so a template can never end the process. The arena is the rendering's own; one thread
 * at a time. */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"

#define FILTER(fn) \
    static int fn(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw, \
                  struct qr_jval *out)

/* str(value), flat. */
static int text_of(struct qr_jctx *c, const struct qr_jval *v, struct qr_jstr **s)
{
    int rc = qr_jtext(c, v, s);
    return rc ? rc : qr_jstr_flat(c, *s);
}

/* Filters built on str methods keep the reference's Markup. */
static int give(struct qr_jctx *c, int rc, struct qr_jstr *s, bool markup, struct qr_jval *out)
{
    if (rc == 0)
        rc = qr_jstr_marked(c, s, markup, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

static int change_case(struct qr_jctx *c, const struct qr_jval *self, enum qr_jcase how, struct qr_jval *out)
{
    struct qr_jstr *s;
    int rc = text_of(c, self, &s);
    bool markup = rc == 0 && s->markup && how != QR_JCASE_FILTER_TITLE;
    if (rc == 0)
        rc = qr_jcase(c, s, how, &s);
    return give(c, rc, s, markup, out);
}

FILTER(f_upper)
{
    return change_case(c, self, QR_JCASE_UPPER, out);
}

FILTER(f_lower)
{
    return change_case(c, self, QR_JCASE_LOWER, out);
}

FILTER(f_capitalize)
{
    return change_case(c, self, QR_JCASE_CAPITALIZE, out);
}

FILTER(f_title)
{
    return change_case(c, self, QR_JCASE_FILTER_TITLE, out);
}

FILTER(f_trim)
{
    struct qr_jstr *s, *chars = NULL;
    int rc = text_of(c, self, &s);
    bool markup = rc == 0 && s->markup;
    if (rc == 0 && arg[0].type != QR_J_ABSENT && arg[0].type != QR_J_NONE)
        rc = qr_jarg_str(c, &arg[0], "strip arg", &chars);
    if (rc == 0)
        rc = qr_jstrip(c, s, chars, 3, &s);
    return give(c, rc, s, markup, out);
}

FILTER(f_replace)
{
    struct qr_jstr *s, *old, *new;
    int64_t max = -1;
    int rc = text_of(c, self, &s);
    if (rc == 0)
        rc = text_of(c, &arg[0], &old);
    if (rc == 0)
        rc = text_of(c, &arg[1], &new);
    if (rc == 0 && arg[2].type != QR_J_NONE)
        rc = qr_jarg_int(c, &arg[2], -1, &max);
    if (rc == 0)
        rc = qr_jreplace(c, s, old, new, max, &s);
    return give(c, rc, s, false, out);
}

FILTER(f_string)
{
    struct qr_jstr *s;
    int rc = qr_jtext(c, self, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

FILTER(f_safe)
{
    struct qr_jstr *s;
    int rc = qr_jtext(c, self, &s);
    return give(c, rc, s, true, out);
}

FILTER(f_escape)
{
    struct qr_jstr *s;
    int rc = qr_jtext(c, self, &s);
    if (rc == 0)
        rc = qr_jescape(c, s, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

FILTER(f_forceescape)
{
    struct qr_jstr *s;
    int rc = qr_jtext(c, self, &s);
    if (rc == 0)
        rc = qr_jstr_marked(c, s, false, &s);
    if (rc == 0)
        rc = qr_jescape(c, s, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

/* n blanks, or the string that was given instead of a number. */
static int indention(struct qr_jctx *c, const struct qr_jval *v, int64_t absent, struct qr_jstr **out)
{
    int64_t n;
    struct qr_jstr *blank;
    if (v->type == QR_J_STR) {
        *out = v->u.s;
        return qr_jstr_flat(c, *out);
    }
    int rc = qr_jarg_int(c, v, absent, &n);
    if (rc == 0)
        rc = qr_jstr_new(c, " ", 1, true, &blank);
    if (rc == 0)
        rc = qr_jstr_repeat(c, blank, n, out);
    return rc ? rc : qr_jstr_flat(c, *out);
}

FILTER(f_indent)
{
    struct qr_jstr *s, *width;
    struct qr_jbag lines = {0};
    struct qr_jsb b;
    bool first = false, blank = false;
    int rc = qr_jarg_str(c, self, "indent's value", &s);
    bool markup = rc == 0 && s->markup;
    if (rc == 0)
        rc = indention(c, &arg[0], 4, &width);
    if (rc == 0 && arg[1].type != QR_J_ABSENT)
        rc = qr_jtruth(c, &arg[1], &first);
    if (rc == 0 && arg[2].type != QR_J_ABSENT)
        rc = qr_jtruth(c, &arg[2], &blank);
    if (rc == 0)
        rc = qr_jsplit_lines(c, s, false, &lines);
    qr_jsb_init(&b, c);
    /* The reference splits the text with one newline behind it, so a newline at the end gives no empty last line ... */
    bool ends_open = rc == 0 && s->len > 0 && s->u.flat.data[s->len - 1] == '\n';
    if (rc == 0 && (ends_open || s->len == 0)) { /* ... but then the one added is a line of its own */
        struct qr_jval empty;
        rc = qr_jlit(c, "", &empty);
        if (rc == 0)
            rc = qr_jbag_push(c, &lines, empty);
    }
    for (int64_t i = 0; i < lines.n && rc == 0 && b.rc == 0; i++) {
        struct qr_jstr *line = lines.at[i].u.s;
        if (i > 0)
            qr_jsb_puts(&b, "\n");
        if (i == 0 ? first : blank || line->len > 0)
            qr_jsb_put_range(&b, width, 0, width->len);
        qr_jsb_put_range(&b, line, 0, line->len);
    }
    if (rc == 0)
        rc = qr_jsb_done(&b, &s);
    return give(c, rc, s, markup, out);
}

FILTER(f_center)
{
    struct qr_jstr *s;
    int64_t width;
    int rc = text_of(c, self, &s);
    bool markup = rc == 0 && s->markup;
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[0], 80, &width);
    if (rc == 0)
        rc = qr_jcenter(c, s, width, ' ', 0, &s);
    return give(c, rc, s, markup, out);
}

FILTER(f_format)
{
    struct qr_jstr *s;
    struct qr_jval args;
    struct qr_jdict *d;
    int rc = qr_jtext(c, self, &s);
    if (rc == 0 && raw->n_pos > 0 && raw->n_kw > 0)
        rc = qr_jfail(c, "can't handle positional and keyword arguments at the same time");
    if (rc == 0 && raw->n_kw == 0) {
        struct qr_jbag b = {raw->pos, raw->n_pos, raw->n_pos};
        rc = qr_jbag_list(c, &b, QR_J_TUPLE, &args);
        return rc ? rc : qr_jpercent(c, s, &args, out);
    }
    if (rc == 0)
        rc = qr_jdict_new(c, &d);
    for (int32_t i = 0; i < raw->n_kw && rc == 0; i++) {
        struct qr_jval key;
        rc = qr_jkw_name(c, &raw->kw[i], &key);
        if (rc == 0)
            rc = qr_jdict_set(c, d, key, raw->kw[i].val);
    }
    args = (struct qr_jval){.type = QR_J_DICT, .u.d = d};
    return rc ? rc : qr_jpercent(c, s, &args, out);
}

FILTER(f_truncate)
{
    struct qr_jstr *s, *end, *kept;
    int64_t length, leeway, n, n_end = 3;
    bool kill = false;
    int rc = qr_jarg_int(c, &arg[0], 255, &length);
    if (rc == 0 && arg[1].type != QR_J_ABSENT)
        rc = qr_jtruth(c, &arg[1], &kill);
    if (rc == 0)
        rc = arg[2].type == QR_J_ABSENT ? qr_jstr_new(c, "...", 3, true, &end) : qr_jarg_str(c, &arg[2], "truncate's end", &end);
    if (rc == 0)
        rc = qr_jarg_int(c, arg[3].type == QR_J_NONE ? &(struct qr_jval){0} : &arg[3], 5, &leeway);
    if (rc == 0)
        rc = qr_jlen(c, self, &n);
    if (rc == 0)
        rc = qr_jstr_chars(c, end, &n_end);
    if (rc == 0 && (length < n_end || leeway < 0))
        rc = qr_jfail(c, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (rc == 0 && (leeway >= n || n - leeway <= length)) {
        *out = *self;
        return 0;
    }
    if (rc == 0)
        rc = qr_jarg_str(c, self, "truncate's value", &s);
    if (rc == 0)
        rc = qr_jstr_sub(c, s, 0, qr_jstr_offset(s, length - n_end), &kept);
    if (rc)
        return rc;
    const char *blank = kill || kept->len == 0 ? NULL : memrchr(kept->u.flat.data, ' ', kept->len);
    if (blank)
        rc = qr_jstr_sub(c, kept, 0, (size_t)(blank - kept->u.flat.data), &kept);
    if (rc == 0)
        rc = qr_jstr_cat(c, kept, end, &s);
    return give(c, rc, s, false, out);
}

FILTER(f_wordcount)
{
    struct qr_jstr *s;
    int64_t n = 0;
    bool inside = false;
    int rc = text_of(c, self, &s);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, s->len);
    for (size_t i = 0; rc == 0 && i < s->len;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        bool word = qr_jword(cp);
        n += word && !inside;
        inside = word;
    }
    *out = qr_jint(n);
    return rc;
}

FILTER(f_join)
{
    struct qr_jseq items;
    struct qr_jstr *sep = NULL, *all = NULL;
    int rc = qr_jitems(c, self, &items);
    if (rc == 0 && arg[0].type != QR_J_ABSENT)
        rc = qr_jtext(c, &arg[0], &sep);
    for (int64_t i = 0; i < items.n && rc == 0; i++) {
        struct qr_jval v;
        struct qr_jstr *s;
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jattr_path(c, &items.at[i], &arg[1], NULL, &v);
        if (rc == 0)
            rc = qr_jtext(c, &v, &s);
        if (rc == 0 && i > 0 && sep)
            rc = qr_jstr_cat(c, all, sep, &all);
        if (rc == 0)
            rc = i > 0 ? qr_jstr_cat(c, all, s, &all) : (all = s, 0);
    }
    if (rc == 0 && !all)
        rc = qr_jstr_new(c, "", 0, true, &all);
    return give(c, rc, all, false, out);
}

/* The two separators of tojson(separators=(a, b)). */
static int separators(struct qr_jctx *c, const struct qr_jval *v, struct qr_jjson_opts *o)
{
    struct qr_jval item, key;
    int rc = qr_jlit(c, o->pretty ? "," : ", ", &item);
    if (rc == 0)
        rc = qr_jlit(c, ": ", &key);
    if (rc == 0 && v->type != QR_J_ABSENT && v->type != QR_J_NONE) {
        struct qr_jseq pair;
        rc = qr_jitems(c, v, &pair);
        if (rc == 0 && pair.n != 2)
            rc = qr_jfail(c, "tojson: separators must be two strings");
        if (rc == 0) {
            item = pair.at[0];
            key = pair.at[1];
        }
    }
    if (rc == 0)
        rc = qr_jarg_str(c, &item, "tojson: the item separator", &o->item);
    return rc ? rc : qr_jarg_str(c, &key, "tojson: the key separator", &o->key);
}

FILTER(f_tojson)
{
    struct qr_jjson_opts o = {.indent = ""};
    struct qr_jstr *s, *width;
    int rc = 0;
    if (arg[0].type != QR_J_ABSENT)
        rc = qr_jtruth(c, &arg[0], &o.ascii);
    if (rc == 0 && arg[1].type != QR_J_ABSENT && arg[1].type != QR_J_NONE) {
        o.pretty = true;
        rc = indention(c, &arg[1], 0, &width);
        if (rc == 0) {
            o.indent = width->u.flat.data;
            o.indent_len = width->len;
        }
    }
    if (rc == 0)
        rc = separators(c, &arg[2], &o);
    if (rc == 0 && arg[3].type != QR_J_ABSENT)
        rc = qr_jtruth(c, &arg[3], &o.sort);
    if (rc == 0)
        rc = qr_jjson(c, self, &o, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

const struct qr_jbuiltin qr_jfilters_text[] = {
    {.name = "tojson", .fn = f_tojson, .param = {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {.name = "trim", .fn = f_trim, .param = {"chars"}},
    {.name = "string", .fn = f_string},
    {.name = "join", .fn = f_join, .param = {"d", "attribute"}},
    {.name = "safe", .fn = f_safe},
    {.name = "upper", .fn = f_upper},
    {.name = "lower", .fn = f_lower},
    {.name = "capitalize", .fn = f_capitalize},
    {.name = "title", .fn = f_title},
    {.name = "replace", .fn = f_replace, .n_required = 2, .param = {"old", "new", "count"}},
    {.name = "e", .fn = f_escape},
    {.name = "escape", .fn = f_escape},
    {.name = "forceescape", .fn = f_forceescape},
    {.name = "indent", .fn = f_indent, .param = {"width", "first", "blank"}},
    {.name = "center", .fn = f_center, .param = {"width"}},
    {.name = "format", .fn = f_format, .variadic = true},
    {.name = "truncate", .fn = f_truncate, .param = {"length", "killwords", "end", "leeway"}},
    {.name = "wordcount", .fn = f_wordcount},
};
const int32_t qr_jfilters_text_n = QR_COUNT(qr_jfilters_text);
