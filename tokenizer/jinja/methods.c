/* methods.c - methods of strings, lists, tuples, dicts and the small helper objects. What changes a value is not here.
 * A method is a row of its type's table: name, function, arguments; a host object has none. Some rows are filters or
 * tests, too. Strings keep Markup. An error leaves the rendering (value.h). One thread per rendering. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"

/* The method's own string, made flat. */
static struct qr_jstr *own(struct qr_jctx *c, const struct qr_jval *self)
{
    QR_ASSERT(self->type == QR_J_STR);
    return qr_jstr_flat(c, self->u.s);
}

/* Methods of Markup give Markup. */
static struct qr_jval give(struct qr_jctx *c, struct qr_jstr *s, const struct qr_jstr *of)
{
    return qr_jstrv(qr_jstr_marked(c, s, of->markup));
}

/* ---- of str(self): filters and tests, too ---- */

QR_JBUILTIN(qr_jb_case)
{
    struct qr_jstr *s = qr_jtext_flat(c, self), *changed = qr_jcase(c, s, (enum qr_jcase)how);
    return how == QR_JCASE_FILTER_TITLE ? qr_jstrv(changed) : give(c, changed, s);
}

QR_JBUILTIN(qr_jb_is_case)
{
    struct qr_jstr *s = qr_jtext_flat(c, self);
    bool upper = how == QR_JCASE_UPPER, any = false;
    qr_jcharge_bytes(c, s->len);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        if (qr_jtitlecase(cp) || (upper ? qr_jlower(cp) : qr_jupper(cp)))
            return qr_jbool(false);
        any = any || (upper ? qr_jupper(cp) : qr_jlower(cp));
    }
    return qr_jbool(any);
}

QR_JBUILTIN(qr_jb_strip)
{
    struct qr_jstr *s = qr_jtext_flat(c, self);
    struct qr_jstr *chars = qr_jset(&arg[0]) ? qr_jarg_str(c, &arg[0], "strip arg") : NULL;
    return give(c, qr_jstrip(c, s, chars, how), s);
}

QR_JBUILTIN(qr_jb_pad)
{
    struct qr_jstr *s = qr_jtext_flat(c, self);
    int64_t width = qr_jarg_int(c, &arg[0], 80);
    uint32_t fill = ' ';
    if (qr_jgiven(&arg[1])) {
        struct qr_jstr *given = qr_jarg_str(c, &arg[1], "the fill character");
        if (qr_jstr_chars(c, given) != 1)
            qr_jfail(c, "The fill character must be exactly one character long");
        qr_utf8_decode(given->u.flat.data, given->len, &fill);
    }
    return give(c, qr_jpad(c, s, width, fill, how), s);
}

/* ---- finding in a string ---- */

/* The bytes that optional start and end arguments (in characters) select; not `inside`: they begin beyond the end. */
struct span {
    size_t from, to;
    bool inside;
};

static struct span span_of(struct qr_jctx *c, struct qr_jstr *s, const struct qr_jval *arg)
{
    int64_t a, b, step, count, n = qr_jstr_chars(c, s);
    struct qr_jval part[3] = {arg[0], arg[1], {0}};
    if (!qr_jindices(part, n, &a, &step, &count))
        qr_jfail(c, "slice indices must be integers or None");
    return (struct span){qr_jstr_offset(s, a), qr_jstr_offset(s, a + count), !qr_jinteger(&arg[0], &b) || b <= n};
}

/* The first or last place of `what` in the span, -1 when there is none. */
static int64_t place(const struct qr_jstr *s, const struct qr_jstr *what, struct span in, bool right)
{
    return right ? qr_jstr_rfind(s, what, in.from, in.to) : qr_jstr_find(s, what, in.from, in.to);
}

static bool affix(const struct qr_jstr *s, const struct qr_jstr *what, struct span in, int side)
{
    if (what->len > in.to - in.from)
        return false;
    const char *at = s->u.flat.data + (side == QR_JRIGHT ? in.to - what->len : in.from);
    return memcmp(at, what->u.flat.data, what->len) == 0 || what->len == 0;
}

/* startswith, endswith. how: the side. */
static QR_JBUILTIN(m_has_affix)
{
    struct qr_jstr *s = own(c, self);
    struct span in = span_of(c, s, arg + 1);
    bool tuple = arg[0].type == QR_J_TUPLE, found = false;
    int64_t n = tuple ? arg[0].u.seq->n : 1;
    for (int64_t i = 0; i < n && !found; i++) {
        const struct qr_jval *v = tuple ? &arg[0].u.seq->at[i] : &arg[0];
        struct qr_jstr *what = qr_jarg_str(c, v, how == QR_JRIGHT ? "endswith first arg" : "startswith first arg");
        found = in.inside && affix(s, what, in, how);
    }
    return qr_jbool(found);
}

/* removeprefix, removesuffix. how: the side. */
static QR_JBUILTIN(m_remove_affix)
{
    struct qr_jstr *s = own(c, self);
    struct qr_jstr *what =
        qr_jarg_str(c, &arg[0], how == QR_JRIGHT ? "removesuffix() argument" : "removeprefix() argument");
    if (!affix(s, what, (struct span){0, s->len, true}, how))
        return qr_jstrv(s);
    size_t from = how == QR_JRIGHT ? 0 : what->len;
    return give(c, qr_jstr_sub(c, s, from, from + s->len - what->len), s);
}

enum { FIND_RIGHT = 1, FIND_MUST = 2 };

/* find, rfind, index, rindex: a position in characters. */
static QR_JBUILTIN(m_find)
{
    struct qr_jstr *s = own(c, self), *what = qr_jarg_str(c, &arg[0], "find argument");
    struct span in = span_of(c, s, arg + 1);
    qr_jcharge_bytes(c, s->len);
    int64_t at = in.inside ? place(s, what, in, how & FIND_RIGHT) : -1;
    if (at < 0 && (how & FIND_MUST))
        qr_jfail(c, "substring not found");
    return qr_jint(at < 0 ? -1 : qr_jstr_chars(c, qr_jstr_sub(c, s, 0, (size_t)at)));
}

static QR_JBUILTIN(m_count)
{
    struct qr_jstr *s = own(c, self), *what = qr_jarg_str(c, &arg[0], "count argument");
    struct span in = span_of(c, s, arg + 1);
    int64_t n = 0;
    qr_jcharge_bytes(c, s->len);
    if (what->len == 0) {
        n = qr_jstr_chars(c, qr_jstr_sub(c, s, in.from, in.to));
        return qr_jint(in.inside ? n + 1 : 0);
    }
    for (int64_t at; in.inside && (at = place(s, what, in, false)) >= 0; n++)
        in.from = (size_t)at + what->len;
    return qr_jint(n);
}

static QR_JBUILTIN(m_replace)
{
    struct qr_jstr *s = own(c, self);
    struct qr_jstr *old = qr_jarg_str(c, &arg[0], "replace() argument 1");
    struct qr_jstr *new = qr_jarg_str(c, &arg[1], "replace() argument 2");
    if (s->markup)
        new = qr_jescape(c, new);
    return give(c, qr_jreplace(c, s, old, new, qr_jarg_int(c, &arg[2], -1)), s);
}

/* ---- splitting and joining ---- */

static void push_part(struct qr_jctx *c, struct qr_jbag *b, struct qr_jstr *s, size_t from, size_t to)
{
    qr_jbag_push(c, b, qr_jstrv(qr_jstr_sub(c, s, from, to)));
}

/* split() without a separator: words between white space, the rest behind `max` of them as one. */
static struct qr_jbag split_words(struct qr_jctx *c, struct qr_jstr *s, int64_t max)
{
    struct qr_jbag words = {0};
    const char *p = s->u.flat.data;
    for (size_t i = 0, n, to;; i = to) {
        while ((n = qr_jspace_at(p + i, s->len - i)) > 0)
            i += n;
        if (i >= s->len)
            return words;
        if (max-- == 0) {
            qr_jbag_push(c, &words, qr_jstrv(qr_jstrip(c, qr_jstr_sub(c, s, i, s->len), NULL, QR_JRIGHT)));
            return words;
        }
        for (to = i; to < s->len && qr_jspace_at(p + to, s->len - to) == 0;)
            to++;
        push_part(c, &words, s, i, to);
    }
}

/* rsplit(): the words in front of the last `max` stay together. */
static struct qr_jbag rsplit_words(struct qr_jctx *c, struct qr_jstr *s, int64_t max)
{
    struct qr_jbag all = split_words(c, s, -1), b = {0};
    int64_t together = max < 0 ? 0 : all.n - max;
    if (together <= 0)
        return all;
    const struct qr_jstr *last = all.at[together - 1].u.s;
    push_part(c, &b, s, 0, (size_t)(last->u.flat.data - s->u.flat.data) + last->len);
    for (int64_t i = together; i < all.n; i++)
        qr_jbag_push(c, &b, all.at[i]);
    return b;
}

static struct qr_jbag split_at(struct qr_jctx *c, struct qr_jstr *s, const struct qr_jstr *sep, int64_t max, bool right)
{
    struct qr_jbag b = {0};
    struct span left = {0, s->len, true};
    if (sep->len == 0)
        qr_jfail(c, "empty separator");
    for (int64_t at; max != 0 && (at = place(s, sep, left, right)) >= 0; max--) {
        size_t behind = (size_t)at + sep->len;
        push_part(c, &b, s, right ? behind : left.from, right ? left.to : (size_t)at);
        if (right)
            left.to = (size_t)at;
        else
            left.from = behind;
    }
    push_part(c, &b, s, left.from, left.to);
    for (int64_t i = 0; right && i < b.n / 2; i++) {
        struct qr_jval t = b.at[i];
        b.at[i] = b.at[b.n - 1 - i];
        b.at[b.n - 1 - i] = t;
    }
    return b;
}

static QR_JBUILTIN(m_split)
{
    struct qr_jstr *s = own(c, self);
    const struct qr_jstr *sep = qr_jset(&arg[0]) ? qr_jarg_str(c, &arg[0], "split() separator") : NULL;
    int64_t max = qr_jarg_int(c, &arg[1], -1);
    bool right = how == QR_JRIGHT;
    qr_jcharge_bytes(c, s->len);
    struct qr_jbag b = sep     ? split_at(c, s, sep, max, right)
                       : right ? rsplit_words(c, s, max)
                               : split_words(c, s, max);
    return qr_jseq_of(c, QR_J_LIST, b.at, b.n);
}

static QR_JBUILTIN(m_splitlines)
{
    struct qr_jbag b = qr_jsplit_lines(c, own(c, self), qr_jarg_flag(&arg[0]));
    return qr_jseq_of(c, QR_J_LIST, b.at, b.n);
}

static QR_JBUILTIN(m_partition)
{
    struct qr_jstr *s = own(c, self), *sep = qr_jarg_str(c, &arg[0], "partition() separator");
    bool right = how == QR_JRIGHT;
    if (sep->len == 0)
        qr_jfail(c, "empty separator");
    int64_t at = place(s, sep, (struct span){0, s->len, true}, right);
    size_t a = at >= 0 ? (size_t)at : right ? 0 : s->len, z = at >= 0 ? a + sep->len : a;
    struct qr_jbag b = {0};
    push_part(c, &b, s, 0, a);
    push_part(c, &b, s, a, z);
    push_part(c, &b, s, z, s->len);
    return qr_jseq_of(c, QR_J_TUPLE, b.at, b.n);
}

static QR_JBUILTIN(m_join)
{
    struct qr_jseq items = qr_jitems(c, &arg[0]);
    struct qr_jstr *sep = self->u.s, *all = NULL;
    for (int64_t i = 0; i < items.n; i++) {
        const struct qr_jval *v = &items.at[i];
        qr_jcharge(c, 1);
        if (v->type != QR_J_STR)
            qr_jfail(c, "sequence item %lld: expected str instance, %s found", (long long)i, qr_jtype_name(v));
        struct qr_jstr *s = sep->markup ? qr_jescape(c, v->u.s) : v->u.s;
        all = i > 0 ? qr_jstr_cat(c, qr_jstr_cat(c, all, sep), s) : s;
    }
    return give(c, all ? all : qr_jstr_new(c, "", 0, true), sep);
}

static QR_JBUILTIN(m_format)
{
    return qr_jbraces(c, self->u.s, raw);
}

static QR_JBUILTIN(m_format_map)
{
    if (arg[0].type != QR_J_DICT)
        qr_jfail(c, "format_map() needs a mapping, not %s", qr_jtype_name(&arg[0]));
    const struct qr_jdict *d = arg[0].u.d;
    struct qr_jkw *kw = qr_jalloc(c, (size_t)d->n, sizeof *kw);
    return qr_jbraces(c, self->u.s,
                      &(struct qr_jargs){.kw = qr_jkw_of(c, d, kw, "a key of format_map()"), .n_kw = d->n});
}

/* ---- padding ---- */

static QR_JBUILTIN(m_zfill)
{
    struct qr_jstr *s = own(c, self);
    int64_t width = qr_jarg_int(c, &arg[0], 0);
    size_t lead = s->len > 0 && (s->u.flat.data[0] == '-' || s->u.flat.data[0] == '+');
    struct qr_jstr *sign = qr_jstr_sub(c, s, 0, lead), *rest = qr_jstr_sub(c, s, lead, s->len);
    return give(c, qr_jstr_cat(c, sign, qr_jpad(c, rest, width - (int64_t)lead, '0', QR_JRIGHT)), s);
}

static QR_JBUILTIN(m_expandtabs)
{
    struct qr_jstr *s = own(c, self);
    struct qr_jsb b;
    int64_t size = qr_jarg_int(c, &arg[0], 8), col = 0;
    if (size > 1000)
        qr_jlimit(c, "tabs of %lld columns are too wide", (long long)size);
    qr_jsb_init(&b, c);
    for (size_t i = 0; i < s->len; i++) {
        char ch = s->u.flat.data[i];
        if (ch != '\t') {
            qr_jsb_put_range(&b, s, i, i + 1);
            col = ch == '\n' || ch == '\r' ? 0 : col + (((unsigned char)ch & 0xC0) != 0x80);
            continue;
        }
        for (int64_t n = size > 0 ? size - col % size : 0; n > 0; n--, col++)
            qr_jsb_put(&b, " ", 1, true);
    }
    return give(c, qr_jsb_done(&b), s);
}

/* ---- looking at characters ---- */

static bool alnum(uint32_t cp)
{
    return qr_jalpha(cp) || qr_jnumeric(cp);
}

static bool ascii(uint32_t cp)
{
    return cp < 0x80;
}

/* Whether all characters are of a kind; the last two are true of the empty string. */
enum { DIGIT, DECIMAL, NUMERIC, ALPHA, ALNUM, SPACE, WORD, ASCII, PRINTABLE };
static bool (*const kinds[])(uint32_t cp) = {
    qr_jdigit, qr_jdecimal, qr_jnumeric, qr_jalpha, alnum, qr_jspace, qr_jword, ascii, qr_jprintable,
};

static QR_JBUILTIN(m_all)
{
    struct qr_jstr *s = own(c, self);
    qr_jcharge_bytes(c, s->len);
    bool good = s->len > 0 || how >= ASCII;
    for (size_t i = 0; i < s->len && good;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        good = kinds[how](cp);
    }
    return qr_jbool(good);
}

static QR_JBUILTIN(m_isidentifier)
{
    struct qr_jval word = m_all(c, WORD, self, arg, raw);
    const struct qr_jstr *s = self->u.s;
    uint32_t cp = 0;
    if (word.u.b)
        qr_utf8_decode(s->u.flat.data, s->len, &cp);
    return qr_jbool(word.u.b && (cp == '_' || qr_jalpha(cp)));
}

static QR_JBUILTIN(m_istitle)
{
    struct qr_jstr *s = own(c, self);
    bool inside = false, good = true, any = false;
    for (size_t i = 0; i < s->len && good;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        bool up = qr_jupper(cp) || qr_jtitlecase(cp), low = qr_jlower(cp);
        good = !(up && inside) && !(low && !inside);
        inside = up || low;
        any = any || inside;
    }
    return qr_jbool(good && any);
}

static const struct qr_jbuiltin of_str[] = {
    {.name = "strip", .fn = qr_jb_strip, .how = QR_JBOTH, .param = {"chars"}},
    {.name = "lstrip", .fn = qr_jb_strip, .how = QR_JLEFT, .param = {"chars"}},
    {.name = "rstrip", .fn = qr_jb_strip, .how = QR_JRIGHT, .param = {"chars"}},
    {.name = "split", .fn = m_split, .how = QR_JLEFT, .param = {"sep", "maxsplit"}},
    {.name = "rsplit", .fn = m_split, .how = QR_JRIGHT, .param = {"sep", "maxsplit"}},
    {.name = "splitlines", .fn = m_splitlines, .param = {"keepends"}},
    {.name = "partition", .fn = m_partition, .how = QR_JLEFT, .n_required = 1, .param = {"sep"}},
    {.name = "rpartition", .fn = m_partition, .how = QR_JRIGHT, .n_required = 1, .param = {"sep"}},
    {.name = "startswith", .fn = m_has_affix, .how = QR_JLEFT, .n_required = 1, .param = {"prefix", "start", "end"}},
    {.name = "endswith", .fn = m_has_affix, .how = QR_JRIGHT, .n_required = 1, .param = {"suffix", "start", "end"}},
    {.name = "find", .fn = m_find, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "rfind", .fn = m_find, .how = FIND_RIGHT, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "index", .fn = m_find, .how = FIND_MUST, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "rindex", .fn = m_find, .how = FIND_MUST | FIND_RIGHT, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "count", .fn = m_count, .n_required = 1, .param = {"sub", "start", "end"}},
    {.name = "replace", .fn = m_replace, .n_required = 2, .param = {"old", "new", "count"}},
    {.name = "join", .fn = m_join, .n_required = 1, .param = {"iterable"}},
    {.name = "format", .fn = m_format, .variadic = true},
    {.name = "format_map", .fn = m_format_map, .n_required = 1, .param = {"mapping"}},
    {.name = "removeprefix", .fn = m_remove_affix, .how = QR_JLEFT, .n_required = 1, .param = {"prefix"}},
    {.name = "removesuffix", .fn = m_remove_affix, .how = QR_JRIGHT, .n_required = 1, .param = {"suffix"}},
    {.name = "ljust", .fn = qr_jb_pad, .how = QR_JLEFT, .n_required = 1, .param = {"width", "fillchar"}},
    {.name = "rjust", .fn = qr_jb_pad, .how = QR_JRIGHT, .n_required = 1, .param = {"width", "fillchar"}},
    {.name = "center", .fn = qr_jb_pad, .how = QR_JBOTH, .n_required = 1, .param = {"width", "fillchar"}},
    {.name = "zfill", .fn = m_zfill, .n_required = 1, .param = {"width"}},
    {.name = "expandtabs", .fn = m_expandtabs, .param = {"tabsize"}},
    {.name = "upper", .fn = qr_jb_case, .how = QR_JCASE_UPPER},
    {.name = "lower", .fn = qr_jb_case, .how = QR_JCASE_LOWER},
    {.name = "title", .fn = qr_jb_case, .how = QR_JCASE_TITLE},
    {.name = "capitalize", .fn = qr_jb_case, .how = QR_JCASE_CAPITALIZE},
    {.name = "swapcase", .fn = qr_jb_case, .how = QR_JCASE_SWAP},
    {.name = "casefold", .fn = qr_jb_case, .how = QR_JCASE_LOWER},
    {.name = "isupper", .fn = qr_jb_is_case, .how = QR_JCASE_UPPER},
    {.name = "islower", .fn = qr_jb_is_case, .how = QR_JCASE_LOWER},
    {.name = "isdigit", .fn = m_all, .how = DIGIT},
    {.name = "isdecimal", .fn = m_all, .how = DECIMAL},
    {.name = "isnumeric", .fn = m_all, .how = NUMERIC},
    {.name = "isalpha", .fn = m_all, .how = ALPHA},
    {.name = "isalnum", .fn = m_all, .how = ALNUM},
    {.name = "isspace", .fn = m_all, .how = SPACE},
    {.name = "isascii", .fn = m_all, .how = ASCII},
    {.name = "isprintable", .fn = m_all, .how = PRINTABLE},
    {.name = "istitle", .fn = m_istitle},
    {.name = "isidentifier", .fn = m_isidentifier},
};

/* ---- dicts ---- */

/* keys, values, items. how: the view. */
static QR_JBUILTIN(m_view)
{
    QR_ASSERT(self->type == QR_J_DICT);
    return (struct qr_jval){.type = QR_J_VIEW, .view = (uint8_t)how, .u.d = self->u.d};
}

static QR_JBUILTIN(m_get)
{
    struct qr_jval v = qr_jdict_get(c, self->u.d, arg[0]);
    if (qr_jgiven(&v))
        return v;
    return qr_jgiven(&arg[1]) ? arg[1] : qr_jnone();
}

static QR_JBUILTIN(m_copy) /* nothing changes a value, so it is its own copy */
{
    return *self;
}

static const struct qr_jbuiltin of_dict[] = {
    {.name = "items", .fn = m_view, .how = QR_JVIEW_ITEMS},
    {.name = "keys", .fn = m_view, .how = QR_JVIEW_KEYS},
    {.name = "values", .fn = m_view, .how = QR_JVIEW_VALUES},
    {.name = "get", .fn = m_get, .n_required = 1, .param = {"key", "default"}},
    {.name = "copy", .fn = m_copy},
};

/* ---- lists and tuples ---- */

static QR_JBUILTIN(m_seq_count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < self->u.seq->n; i++) {
        qr_jcharge(c, 1);
        n += qr_jequal(c, &self->u.seq->at[i], &arg[0]);
    }
    return qr_jint(n);
}

static QR_JBUILTIN(m_seq_index)
{
    int64_t from, step, n;
    struct qr_jval part[3] = {arg[1], arg[2], {0}};
    if (!qr_jindices(part, self->u.seq->n, &from, &step, &n))
        qr_jfail(c, "slice indices must be integers or None");
    for (int64_t i = from; i < from + n; i++) {
        qr_jcharge(c, 1);
        if (qr_jequal(c, &self->u.seq->at[i], &arg[0]))
            return qr_jint(i);
    }
    qr_jfail(c, "%s.index(x): x not in %s", qr_jtype_name(self), qr_jtype_name(self));
}

static const struct qr_jbuiltin of_list[] = {
    {.name = "count", .fn = m_seq_count, .n_required = 1, .param = {"value"}},
    {.name = "index", .fn = m_seq_index, .n_required = 1, .param = {"value", "start", "stop"}},
    {.name = "copy", .fn = m_copy},
};

/* ---- floats, loops, cyclers ---- */

static QR_JBUILTIN(m_is_integer)
{
    return qr_jbool(self->u.f == floor(self->u.f) && !isinf(self->u.f));
}

static const struct qr_jbuiltin of_float[] = {{.name = "is_integer", .fn = m_is_integer}};

static QR_JBUILTIN(m_cycle)
{
    if (raw->n_pos == 0)
        qr_jfail(c, "no items for cycling given");
    return raw->pos[self->u.loop->i % raw->n_pos];
}

static QR_JBUILTIN(m_changed)
{
    struct qr_jloop *loop = self->u.loop;
    struct qr_jval now = qr_jseq_of(c, QR_J_TUPLE, raw->pos, raw->n_pos);
    bool same = qr_jgiven(&loop->changed) && qr_jequal(c, &loop->changed, &now);
    if (!same)
        loop->changed = now;
    return qr_jbool(!same);
}

static const struct qr_jbuiltin of_loop[] = {
    {.name = "cycle", .fn = m_cycle, .variadic = true},
    {.name = "changed", .fn = m_changed, .variadic = true},
};

static QR_JBUILTIN(m_next)
{
    struct qr_jcycler *cy = self->u.cycler;
    struct qr_jval item = cy->items.at[cy->pos];
    cy->pos = (cy->pos + 1) % cy->items.n;
    return item;
}

static QR_JBUILTIN(m_reset)
{
    self->u.cycler->pos = 0;
    return qr_jnone();
}

static const struct qr_jbuiltin of_cycler[] = {{.name = "next", .fn = m_next}, {.name = "reset", .fn = m_reset}};

const struct qr_jbuiltin *qr_jmethod_find(enum qr_jtype type, const char *name, size_t len)
{
    static const struct qr_jtable of[QR_J_TYPES] = {
        [QR_J_STR] = {of_str, QR_COUNT(of_str)},       [QR_J_DICT] = {of_dict, QR_COUNT(of_dict)},
        [QR_J_LIST] = {of_list, QR_COUNT(of_list)},    [QR_J_TUPLE] = {of_list, 2},
        [QR_J_FLOAT] = {of_float, QR_COUNT(of_float)}, [QR_J_LOOP] = {of_loop, QR_COUNT(of_loop)},
        [QR_J_CYCLER] = {of_cycler, QR_COUNT(of_cycler)},
    };
    QR_ASSERT(type < QR_J_TYPES);
    return qr_jtable_find(&of[type], name, len);
}
