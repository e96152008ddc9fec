/* methods.c - methods of strings, lists, tuples, dicts and the small helper objects. What changes a value is not here.
 * A method is a row of one table: type, name, arguments, function; a host object has none. Errors of a rendering are
 * values (value.c), so a template can never end the process. The arena is the rendering's own; one thread at a time. */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"

#define METHOD(fn) \
    static int fn(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw, \
                  struct qr_jval *out)

/* The method's own string, made flat. */
static int own(struct qr_jctx *c, const struct qr_jval *self, struct qr_jstr **s)
{
    QR_ASSERT(self->type == QR_J_STR);
    *s = self->u.s;
    return qr_jstr_flat(c, *s);
}

/* Methods of Markup give Markup. */
static int give(struct qr_jctx *c, int rc, struct qr_jstr *s, const struct qr_jval *self, struct qr_jval *out)
{
    if (rc == 0)
        rc = qr_jstr_marked(c, s, self->u.s->markup, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

static int strip(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, int sides, struct qr_jval *out)
{
    struct qr_jstr *s, *chars = NULL;
    int rc = own(c, self, &s);
    if (rc == 0 && arg[0].type != QR_J_ABSENT && arg[0].type != QR_J_NONE)
        rc = qr_jarg_str(c, &arg[0], "strip arg", &chars);
    if (rc == 0)
        rc = qr_jstrip(c, s, chars, sides, &s);
    return give(c, rc, s, self, out);
}

METHOD(m_strip)
{
    return strip(c, self, arg, 3, out);
}

METHOD(m_lstrip)
{
    return strip(c, self, arg, 1, out);
}

METHOD(m_rstrip)
{
    return strip(c, self, arg, 2, out);
}

/* The byte range that optional start and end arguments (in characters) select; false when it is empty beyond the end. */
static int span(struct qr_jctx *c, struct qr_jstr *s, const struct qr_jval *arg, size_t *from, size_t *to, bool *inside)
{
    int64_t n, a, b, step, count;
    struct qr_jval part[3] = {arg[0], arg[1], {0}};
    int rc = qr_jstr_chars(c, s, &n);
    if (rc)
        return rc;
    if (!qr_jindices(part, n, &a, &step, &count))
        return qr_jfail(c, "slice indices must be integers or None");
    *inside = !qr_jinteger(&arg[0], &b) || b <= n;
    *from = qr_jstr_offset(s, a);
    *to = qr_jstr_offset(s, a + count);
    return 0;
}

static bool affix(const struct qr_jstr *s, const struct qr_jstr *what, size_t from, size_t to, bool end)
{
    if (what->len > to - from)
        return false;
    return memcmp(s->u.flat.data + (end ? to - what->len : from), what->u.flat.data, what->len) == 0 || what->len == 0;
}

static int starts_ends(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, bool end, struct qr_jval *out)
{
    struct qr_jstr *s, *what;
    size_t from, to;
    bool inside, found = false;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = span(c, s, arg + 1, &from, &to, &inside);
    bool tuple = arg[0].type == QR_J_TUPLE;
    int64_t n = tuple ? arg[0].u.seq->n : 1;
    for (int64_t i = 0; i < n && !found && rc == 0; i++) {
        rc = qr_jarg_str(c, tuple ? &arg[0].u.seq->at[i] : &arg[0], end ? "endswith first arg" : "startswith first arg", &what);
        found = rc == 0 && inside && affix(s, what, from, to, end);
    }
    *out = qr_jbool(found);
    return rc;
}

METHOD(m_startswith)
{
    return starts_ends(c, self, arg, false, out);
}

METHOD(m_endswith)
{
    return starts_ends(c, self, arg, true, out);
}

/* find, rfind, index, rindex: a position in characters. */
static int find(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, bool right, bool must, struct qr_jval *out)
{
    struct qr_jstr *s, *what, *before;
    size_t from, to;
    bool inside;
    int64_t at = -1, pos = -1;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_str(c, &arg[0], "find argument", &what);
    if (rc == 0)
        rc = span(c, s, arg + 1, &from, &to, &inside);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, s->len);
    if (rc)
        return rc;
    if (inside)
        at = right ? qr_jstr_rfind(s, what, from, to) : qr_jstr_find(s, what, from, to);
    if (at < 0 && must)
        return qr_jfail(c, "substring not found");
    if (at >= 0) {
        rc = qr_jstr_sub(c, s, 0, (size_t)at, &before);
        if (rc == 0)
            rc = qr_jstr_chars(c, before, &pos);
    }
    *out = qr_jint(pos);
    return rc;
}

METHOD(m_find)
{
    return find(c, self, arg, false, false, out);
}

METHOD(m_rfind)
{
    return find(c, self, arg, true, false, out);
}

METHOD(m_index)
{
    return find(c, self, arg, false, true, out);
}

METHOD(m_rindex)
{
    return find(c, self, arg, true, true, out);
}

METHOD(m_count)
{
    struct qr_jstr *s, *what;
    size_t from, to;
    bool inside;
    int64_t n = 0;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_str(c, &arg[0], "count argument", &what);
    if (rc == 0)
        rc = span(c, s, arg + 1, &from, &to, &inside);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, s->len);
    if (rc)
        return rc;
    if (what->len == 0) {
        struct qr_jstr *part;
        rc = qr_jstr_sub(c, s, from, to, &part);
        if (rc == 0)
            rc = qr_jstr_chars(c, part, &n);
        *out = qr_jint(inside ? n + 1 : 0);
        return rc;
    }
    for (int64_t at; inside && (at = qr_jstr_find(s, what, from, to)) >= 0; n++)
        from = (size_t)at + what->len;
    *out = qr_jint(n);
    return 0;
}

METHOD(m_replace)
{
    struct qr_jstr *s, *old, *new;
    int64_t max;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_str(c, &arg[0], "replace() argument 1", &old);
    if (rc == 0)
        rc = qr_jarg_str(c, &arg[1], "replace() argument 2", &new);
    if (rc == 0 && s->markup)
        rc = qr_jescape(c, new, &new);
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[2], -1, &max);
    if (rc == 0)
        rc = qr_jreplace(c, s, old, new, max, &s);
    return give(c, rc, s, self, out);
}

/* ---- splitting and joining ---- */

static int push_part(struct qr_jctx *c, struct qr_jbag *b, struct qr_jstr *s, size_t from, size_t to)
{
    struct qr_jstr *part;
    int rc = qr_jstr_sub(c, s, from, to, &part);
    return rc ? rc : qr_jbag_push(c, b, qr_jstrv(part));
}

static size_t space_len(const struct qr_jstr *s, size_t i)
{
    uint32_t cp;
    int32_t len = qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
    return len > 0 && qr_jspace(cp) ? (size_t)len : 0;
}

/* split() without a separator: words between white space. */
static int split_words(struct qr_jctx *c, struct qr_jstr *s, int64_t max, struct qr_jbag *b)
{
    int rc = 0;
    size_t i = 0, n;
    while (rc == 0) {
        while (i < s->len && (n = space_len(s, i)) > 0)
            i += n;
        if (i >= s->len)
            break;
        size_t from = i, to;
        if (max-- == 0) {
            struct qr_jstr *rest;
            rc = qr_jstr_sub(c, s, from, s->len, &rest);
            if (rc == 0)
                rc = qr_jstrip(c, rest, NULL, 2, &rest);
            return rc ? rc : qr_jbag_push(c, b, qr_jstrv(rest));
        }
        for (to = from; to < s->len && space_len(s, to) == 0;)
            to++;
        rc = push_part(c, b, s, from, to);
        i = to;
    }
    return rc;
}

static int split_sep(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *sep, int64_t max, struct qr_jbag *b)
{
    size_t from = 0;
    int rc = 0;
    for (int64_t at; max != 0 && rc == 0 && (at = qr_jstr_find(s, sep, from, s->len)) >= 0; max--) {
        rc = push_part(c, b, s, from, (size_t)at);
        from = (size_t)at + sep->len;
    }
    return rc ? rc : push_part(c, b, s, from, s->len);
}

static void reverse(struct qr_jbag *b)
{
    for (int64_t i = 0; i < b->n / 2; i++) {
        struct qr_jval t = b->at[i];
        b->at[i] = b->at[b->n - 1 - i];
        b->at[b->n - 1 - i] = t;
    }
}

static int rsplit_words(struct qr_jctx *c, struct qr_jstr *s, int64_t max, struct qr_jbag *b)
{
    struct qr_jbag all = {0};
    if (max < 0)
        return split_words(c, s, max, b);
    int rc = split_words(c, s, -1, &all);
    if (rc || all.n == 0)
        return rc;
    int64_t keep = all.n - max; /* the words that stay together at the front */
    if (keep > 0) {
        const struct qr_jstr *last = all.at[keep - 1].u.s;
        size_t to = (size_t)(last->u.flat.data - s->u.flat.data) + last->len;
        rc = push_part(c, b, s, 0, to);
    }
    for (int64_t i = keep > 0 ? keep : 0; i < all.n && rc == 0; i++)
        rc = qr_jbag_push(c, b, all.at[i]);
    return rc;
}

static int rsplit_sep(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *sep, int64_t max, struct qr_jbag *b)
{
    size_t to = s->len;
    int rc = 0;
    for (int64_t at; max != 0 && rc == 0 && (at = qr_jstr_rfind(s, sep, 0, to)) >= 0; max--) {
        rc = push_part(c, b, s, (size_t)at + sep->len, to);
        to = (size_t)at;
    }
    if (rc == 0)
        rc = push_part(c, b, s, 0, to);
    reverse(b);
    return rc;
}

static int split(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, bool right, struct qr_jval *out)
{
    struct qr_jstr *s, *sep = NULL;
    struct qr_jbag b = {0};
    int64_t max;
    int rc = own(c, self, &s);
    if (rc == 0 && arg[0].type != QR_J_ABSENT && arg[0].type != QR_J_NONE)
        rc = qr_jarg_str(c, &arg[0], "split() separator", &sep);
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[1], -1, &max);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, s->len);
    if (rc == 0 && sep && sep->len == 0)
        rc = qr_jfail(c, "empty separator");
    if (rc)
        return rc;
    if (sep)
        rc = right ? rsplit_sep(c, s, sep, max, &b) : split_sep(c, s, sep, max, &b);
    else
        rc = right ? rsplit_words(c, s, max, &b) : split_words(c, s, max, &b);
    return rc ? rc : qr_jbag_list(c, &b, QR_J_LIST, out);
}

METHOD(m_split)
{
    return split(c, self, arg, false, out);
}

METHOD(m_rsplit)
{
    return split(c, self, arg, true, out);
}

METHOD(m_splitlines)
{
    struct qr_jstr *s;
    struct qr_jbag b = {0};
    bool keep = false;
    int rc = own(c, self, &s);
    if (rc == 0 && arg[0].type != QR_J_ABSENT)
        rc = qr_jtruth(c, &arg[0], &keep);
    if (rc == 0)
        rc = qr_jsplit_lines(c, s, keep, &b);
    return rc ? rc : qr_jbag_list(c, &b, QR_J_LIST, out);
}

static int partition(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, bool right, struct qr_jval *out)
{
    struct qr_jstr *s, *sep;
    struct qr_jbag b = {0};
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_str(c, &arg[0], "partition() separator", &sep);
    if (rc == 0 && sep->len == 0)
        rc = qr_jfail(c, "empty separator");
    if (rc)
        return rc;
    int64_t at = right ? qr_jstr_rfind(s, sep, 0, s->len) : qr_jstr_find(s, sep, 0, s->len);
    size_t a = at >= 0 ? (size_t)at : right ? 0 : s->len, z = at >= 0 ? a + sep->len : a;
    rc = push_part(c, &b, s, 0, a);
    if (rc == 0)
        rc = push_part(c, &b, s, a, z);
    if (rc == 0)
        rc = push_part(c, &b, s, z, s->len);
    return rc ? rc : qr_jbag_list(c, &b, QR_J_TUPLE, out);
}

METHOD(m_partition)
{
    return partition(c, self, arg, false, out);
}

METHOD(m_rpartition)
{
    return partition(c, self, arg, true, out);
}

METHOD(m_join)
{
    struct qr_jseq items;
    struct qr_jstr *sep = self->u.s, *all = NULL;
    int rc = qr_jitems(c, &arg[0], &items);
    for (int64_t i = 0; i < items.n && rc == 0; i++) {
        struct qr_jval *v = &items.at[i];
        struct qr_jstr *s = v->u.s;
        rc = qr_jcharge(c, 1);
        if (rc == 0 && v->type != QR_J_STR)
            rc = qr_jfail(c, "sequence item %lld: expected str instance, %s found", (long long)i, qr_jtype_name(v));
        if (rc == 0 && sep->markup)
            rc = qr_jescape(c, s, &s);
        if (rc == 0 && i > 0)
            rc = qr_jstr_cat(c, all, sep, &all);
        if (rc == 0)
            rc = i > 0 ? qr_jstr_cat(c, all, s, &all) : (all = s, 0);
    }
    if (rc == 0 && !all)
        rc = qr_jstr_new(c, "", 0, true, &all);
    return give(c, rc, all, self, out);
}

METHOD(m_format)
{
    return qr_jbraces(c, self->u.s, raw, out);
}

METHOD(m_format_map)
{
    if (arg[0].type != QR_J_DICT)
        return qr_jfail(c, "format_map() needs a mapping, not %s", qr_jtype_name(&arg[0]));
    const struct qr_jdict *d = arg[0].u.d;
    struct qr_jargs a = {0};
    a.kw = qr_jalloc(c, (size_t)d->n, sizeof *a.kw);
    if (!a.kw)
        return QR_E_TOO_LARGE;
    for (int32_t i = 0; i < d->n; i++) {
        struct qr_jstr *key;
        int rc = qr_jarg_str(c, &d->at[i].key, "a key of format_map()", &key);
        char *name = rc == 0 ? qr_jalloc(c, key->len + 1, 1) : NULL;
        if (!name)
            return rc ? rc : QR_E_TOO_LARGE;
        memcpy(name, key->u.flat.data, key->len);
        name[key->len] = 0;
        a.kw[a.n_kw++] = (struct qr_jkw){name, d->at[i].val, key->trust != QR_JTRUST_ALL};
    }
    return qr_jbraces(c, self->u.s, &a, out);
}

METHOD(m_removeprefix)
{
    struct qr_jstr *s, *what;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_str(c, &arg[0], "removeprefix() argument", &what);
    if (rc == 0 && affix(s, what, 0, s->len, false))
        rc = qr_jstr_sub(c, s, what->len, s->len, &s);
    return give(c, rc, s, self, out);
}

METHOD(m_removesuffix)
{
    struct qr_jstr *s, *what;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_str(c, &arg[0], "removesuffix() argument", &what);
    if (rc == 0 && affix(s, what, 0, s->len, true))
        rc = qr_jstr_sub(c, s, 0, s->len - what->len, &s);
    return give(c, rc, s, self, out);
}

/* ---- padding ---- */

static int justify(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, int side, struct qr_jval *out)
{
    struct qr_jstr *s, *fill;
    int64_t width, n;
    uint32_t cp = ' ';
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[0], 0, &width);
    if (rc == 0 && arg[1].type != QR_J_ABSENT) {
        rc = qr_jarg_str(c, &arg[1], "the fill character", &fill);
        if (rc == 0)
            rc = qr_jstr_chars(c, fill, &n);
        if (rc == 0 && n != 1)
            rc = qr_jfail(c, "The fill character must be exactly one character long");
        if (rc == 0)
            qr_utf8_decode(fill->u.flat.data, fill->len, &cp);
    }
    if (rc == 0)
        rc = qr_jcenter(c, s, width, cp, side, &s);
    return give(c, rc, s, self, out);
}

METHOD(m_ljust)
{
    return justify(c, self, arg, -1, out);
}

METHOD(m_rjust)
{
    return justify(c, self, arg, 1, out);
}

METHOD(m_center)
{
    return justify(c, self, arg, 0, out);
}

METHOD(m_zfill)
{
    struct qr_jstr *s, *sign, *rest;
    int64_t width;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[0], 0, &width);
    if (rc)
        return rc;
    size_t lead = s->len > 0 && (s->u.flat.data[0] == '-' || s->u.flat.data[0] == '+');
    rc = qr_jstr_sub(c, s, 0, lead, &sign);
    if (rc == 0)
        rc = qr_jstr_sub(c, s, lead, s->len, &rest);
    if (rc == 0)
        rc = qr_jcenter(c, rest, width - (int64_t)lead, '0', 1, &rest);
    if (rc == 0)
        rc = qr_jstr_cat(c, sign, rest, &s);
    return give(c, rc, s, self, out);
}

METHOD(m_expandtabs)
{
    struct qr_jstr *s;
    struct qr_jsb b;
    int64_t size, col = 0;
    int rc = own(c, self, &s);
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[0], 8, &size);
    if (rc == 0 && size > 1000)
        rc = qr_jlimit(c, "tabs of %lld columns are too wide", (long long)size);
    qr_jsb_init(&b, c);
    for (size_t i = 0; rc == 0 && i < s->len && b.rc == 0; i++) {
        char ch = s->u.flat.data[i];
        if (ch != '\t') {
            qr_jsb_put_range(&b, s, i, i + 1);
            col = ch == '\n' || ch == '\r' ? 0 : col + (((unsigned char)ch & 0xC0) != 0x80);
            continue;
        }
        for (int64_t n = size > 0 ? size - col % size : 0; n > 0; n--, col++)
            qr_jsb_put(&b, " ", 1, true);
    }
    if (rc == 0)
        rc = qr_jsb_done(&b, &s);
    return give(c, rc, s, self, out);
}

const struct qr_jbuiltin qr_jmethods_str[] = {
    {.name = "strip", .fn = m_strip, .param = {"chars"}},
    {.name = "lstrip", .fn = m_lstrip, .param = {"chars"}},
    {.name = "rstrip", .fn = m_rstrip, .param = {"chars"}},
    {.name = "split", .fn = m_split, .param = {"sep", "maxsplit"}},
    {.name = "rsplit", .fn = m_rsplit, .param = {"sep", "maxsplit"}},
    {.name = "splitlines", .fn = m_splitlines, .param = {"keepends"}},
    {.name = "partition", .fn = m_partition, .n_required = 1, .param = {"sep"}},
    {.name = "rpartition", .fn = m_rpartition, .n_required = 1, .param = {"sep"}},
    {.name = "startswith", .fn = m_startswith, .n_required = 1, .param = {"prefix", "start", "end"}},
    {.name = "endswith", .fn = m_endswith, .n_required = 1, .param = {"suffix", "start", "end"}},
    {.name = "find", .fn = m_find, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "rfind", .fn = m_rfind, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "index", .fn = m_index, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "rindex", .fn = m_rindex, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "count", .fn = m_count, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "replace", .fn = m_replace, .n_required = 2, .param = {"old", "new", "count"}},
    {.name = "join", .fn = m_join, .n_required = 1, .param = {"iterable"}},
    {.name = "format", .fn = m_format, .variadic = true},
    {.name = "format_map", .fn = m_format_map, .n_required = 1, .param = {"mapping"}},
    {.name = "removeprefix", .fn = m_removeprefix, .n_required = 1, .param = {"prefix"}},
    {.name = "removesuffix", .fn = m_removesuffix, .n_required = 1, .param = {"suffix"}},
    {.name = "ljust", .fn = m_ljust, .n_required = 1, .param = {"width", "fillchar"}},
    {.name = "rjust", .fn = m_rjust, .n_required = 1, .param = {"width", "fillchar"}},
    {.name = "center", .fn = m_center, .n_required = 1, .param = {"width", "fillchar"}},
    {.name = "zfill", .fn = m_zfill, .n_required = 1, .param = {"width"}},
    {.name = "expandtabs", .fn = m_expandtabs, .param = {"tabsize"}},
};
const int32_t qr_jmethods_str_n = QR_COUNT(qr_jmethods_str);
