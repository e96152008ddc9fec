/* strops.c - string operations that filters and methods share. Provenance is kept character by character. Results are
 * what Python's str gives, for any Unicode text. An error leaves the rendering (value.h). One thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"

struct qr_jstr *qr_jarg_str(struct qr_jctx *c, const struct qr_jval *v, const char *what)
{
    QR_ASSERT(v != NULL);
    if (v->type == QR_J_UNDEF)
        qr_jfail_undef(c, v);
    if (v->type != QR_J_STR)
        qr_jfail(c, "%s must be str, not %s", what, qr_jtype_name(v));
    return qr_jstr_flat(c, v->u.s);
}

int64_t qr_jarg_int(struct qr_jctx *c, const struct qr_jval *v, int64_t absent)
{
    QR_ASSERT(v != NULL);
    int64_t i = absent;
    if (qr_jgiven(v) && !qr_jinteger(v, &i)) {
        if (v->type == QR_J_UNDEF)
            qr_jfail_undef(c, v);
        qr_jfail(c, "'%s' object cannot be interpreted as an integer", qr_jtype_name(v));
    }
    return i;
}

/* Whether the character p[0..len) is stripped: one of chars, or white space when chars is NULL. */
static bool strippable(const char *p, size_t len, const struct qr_jstr *chars)
{
    if (!chars)
        return qr_jspace_at(p, len) > 0;
    return chars->len > 0 && memmem(chars->u.flat.data, chars->len, p, len) != NULL;
}

struct qr_jstr *qr_jstrip(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *chars, int sides)
{
    QR_ASSERT(s->rope_depth == 0);
    QR_ASSERT(!chars || chars->rope_depth == 0);
    size_t from = 0, to = s->len;
    const char *p = s->u.flat.data;
    for (size_t n; (sides & QR_JLEFT) && from < to; from += n) {
        n = qr_jstr_next(s, from) - from;
        if (!strippable(p + from, n, chars))
            break;
        qr_jcharge_bytes(c, chars ? chars->len : 1);
    }
    for (size_t n; (sides & QR_JRIGHT) && from < to; to -= n) {
        n = qr_utf8_last(p + from, to - from);
        if (!strippable(p + to - n, n, chars))
            break;
        qr_jcharge_bytes(c, chars ? chars->len : 1);
    }
    return qr_jstr_sub(c, s, from, to);
}

/* Python's replace with an empty pattern: the new text before every character and at the end. */
static struct qr_jstr *replace_empty(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *new, int64_t max)
{
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    for (size_t i = 0, next; i < s->len; i = next) {
        next = qr_jstr_next(s, i);
        if (max-- > 0)
            qr_jsb_put_str(&b, new);
        qr_jsb_put_range(&b, s, i, next);
    }
    if (max > 0)
        qr_jsb_put_str(&b, new);
    return qr_jsb_done(&b);
}

struct qr_jstr *qr_jreplace(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *old, struct qr_jstr *new, int64_t max)
{
    QR_ASSERT(s->rope_depth == 0 && old->rope_depth == 0 && new->rope_depth == 0);
    struct qr_jsb b;
    size_t from = 0;
    qr_jcharge_bytes(c, s->len);
    if (max < 0)
        max = INT64_MAX;
    if (old->len == 0)
        return replace_empty(c, s, new, max);
    qr_jsb_init(&b, c);
    for (; max > 0; max--) {
        int64_t at = qr_jstr_find(s, old, from, s->len);
        if (at < 0)
            break;
        qr_jsb_put_range(&b, s, from, (size_t)at);
        qr_jsb_put_range(&b, new, 0, new->len);
        from = (size_t)at + old->len;
    }
    if (from == 0)
        return s;
    qr_jsb_put_range(&b, s, from, s->len);
    return qr_jsb_done(&b);
}

/* The length of the line break at s[i], 0 when there is none. */
static size_t line_break(const struct qr_jstr *s, size_t i)
{
    uint32_t cp = 0;
    int32_t len = qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
    if (cp == '\r' && i + 1 < s->len && s->u.flat.data[i + 1] == '\n')
        return 2;
    bool is = (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
    return is ? (size_t)len : 0;
}

struct qr_jbag qr_jsplit_lines(struct qr_jctx *c, struct qr_jstr *s, bool keep_ends)
{
    QR_ASSERT(s->rope_depth == 0);
    struct qr_jbag lines = {0};
    qr_jcharge_bytes(c, s->len);
    for (size_t from = 0; from < s->len;) {
        size_t to = from, n = 0;
        for (; to < s->len && (n = line_break(s, to)) == 0;)
            to++; /* bytes inside a character decode as none, which is no break either */
        qr_jbag_push(c, &lines, qr_jstrv(qr_jstr_sub(c, s, from, keep_ends ? to + n : to)));
        from = to + n;
    }
    return lines;
}

struct qr_jstr *qr_jpad(struct qr_jctx *c, struct qr_jstr *s, int64_t width, uint32_t fill, int side)
{
    int64_t n = qr_jstr_chars(c, s);
    if (width <= n)
        return s;
    if ((uint64_t)(width - n) > c->lim->memory_max / 4)
        qr_jlimit(c, "a field of %lld characters is too wide", (long long)width);
    int64_t space = width - n;
    int64_t left = side == QR_JLEFT ? 0 : side == QR_JRIGHT ? space : space / 2 + (space & width & 1);
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    for (int64_t i = 0; i < left; i++)
        qr_jsb_put_cp(&b, fill, true);
    qr_jsb_put_range(&b, s, 0, s->len);
    for (int64_t i = 0; i < space - left; i++)
        qr_jsb_put_cp(&b, fill, true);
    return qr_jsb_done(&b);
}

/* ---- case ---- */

static bool cased(uint32_t cp)
{
    return qr_jupper(cp) || qr_jlower(cp) || qr_jtitlecase(cp);
}

/* Characters after which the title filter starts a new word. */
static bool splits_title(uint32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || qr_jspace(cp);
}

/* Which mapping a character takes: 'u'pper, 'l'ower, 't'itle. first: nothing before it in its word. */
static char mapping(enum qr_jcase how, uint32_t cp, bool first)
{
    switch (how) {
    case QR_JCASE_UPPER: return 'u';
    case QR_JCASE_LOWER: return 'l';
    case QR_JCASE_SWAP: return qr_jupper(cp) ? 'l' : qr_jlower(cp) ? 'u' : '=';
    case QR_JCASE_FILTER_TITLE: return first ? 'u' : 'l';
    default: return first ? 't' : 'l';
    }
}

struct qr_jstr *qr_jcase(struct qr_jctx *c, struct qr_jstr *s, enum qr_jcase how)
{
    QR_ASSERT(s->rope_depth == 0);
    struct qr_jsb b;
    bool first = true;
    int32_t run = 0;
    qr_jsb_init(&b, c);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp, to[3];
        int32_t len = qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp), n = 1;
        QR_ASSERT(len > 0);
        while (s->trust == QR_JTRUST_MIXED && s->u.flat.run[run].end <= i)
            run++;
        bool trusted = s->trust == QR_JTRUST_MIXED ? s->u.flat.run[run].trusted : s->trust == QR_JTRUST_ALL;
        char how_here = mapping(how, cp, first);
        to[0] = cp;
        if (how_here == 'l' && cp == 0x3A3)
            to[0] = qr_jsigma_final(s->u.flat.data, s->len, i) ? 0x3C2 : 0x3C3;
        else if (how_here == 'l')
            n = qr_jto_lower(cp, to);
        else if (how_here == 'u')
            n = qr_jto_upper(cp, to);
        else if (how_here == 't')
            n = qr_jto_title(cp, to);
        for (int32_t k = 0; k < n; k++)
            qr_jsb_put_cp(&b, to[k], trusted);
        first = how == QR_JCASE_TITLE ? !cased(cp) : how == QR_JCASE_FILTER_TITLE ? splits_title(cp) : false;
        i += (size_t)len;
    }
    return qr_jsb_done(&b);
}
