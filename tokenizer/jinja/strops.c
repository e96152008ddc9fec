/* strops.c - string operations that filters and methods share. Provenance is kept character by character. Results are
 * what Python's str gives, for any Unicode text. Errors of a rendering are values (value.c), so a template can never
 * end the process. The arena is the rendering's own; one thread at a time. */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"

int qr_jarg_str(struct qr_jctx *c, const struct qr_jval *v, const char *what, struct qr_jstr **out)
{
    QR_ASSERT(v != NULL);
    if (v->type == QR_J_UNDEF)
        return qr_jfail_undef(c, v);
    if (v->type != QR_J_STR)
        return qr_jfail(c, "%s must be str, not %s", what, qr_jtype_name(v));
    *out = v->u.s;
    return qr_jstr_flat(c, v->u.s);
}

int qr_jarg_int(struct qr_jctx *c, const struct qr_jval *v, int64_t absent, int64_t *out)
{
    QR_ASSERT(v != NULL && out != NULL);
    *out = absent;
    if (v->type == QR_J_ABSENT || qr_jinteger(v, out))
        return 0;
    if (v->type == QR_J_UNDEF)
        return qr_jfail_undef(c, v);
    return qr_jfail(c, "'%s' object cannot be interpreted as an integer", qr_jtype_name(v));
}

/* Whether the code point in p[0..len) is stripped: one of chars, or white space when chars is NULL. */
static bool strippable(const char *p, int32_t len, uint32_t cp, const struct qr_jstr *chars)
{
    if (!chars)
        return qr_jspace(cp);
    return chars->len > 0 && memmem(chars->u.flat.data, chars->len, p, (size_t)len) != NULL;
}

int qr_jstrip(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *chars, int sides, struct qr_jstr **out)
{
    QR_ASSERT(s->rope_depth == 0);
    QR_ASSERT(!chars || chars->rope_depth == 0);
    size_t from = 0, to = s->len;
    const char *p = s->u.flat.data;
    size_t cost = chars ? chars->len : 1;
    int rc = 0;
    uint32_t cp;
    while ((sides & 1) && from < to && rc == 0) {
        int32_t len = qr_utf8_decode(p + from, to - from, &cp);
        if (len <= 0 || !strippable(p + from, len, cp, chars))
            break;
        from += (size_t)len;
        rc = qr_jcharge_bytes(c, cost);
    }
    while ((sides & 2) && to > from && rc == 0) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)p[at] & 0xC0) == 0x80)
            at--;
        int32_t len = qr_utf8_decode(p + at, to - at, &cp);
        if (len <= 0 || !strippable(p + at, len, cp, chars))
            break;
        to = at;
        rc = qr_jcharge_bytes(c, cost);
    }
    return rc ? rc : qr_jstr_sub(c, s, from, to, out);
}

/* Python's replace with an empty pattern: the new text before every character and at the end. */
static int replace_empty(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *new, int64_t max, struct qr_jstr **out)
{
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    for (size_t i = 0; i < s->len && b.rc == 0;) {
        size_t next = i + 1;
        while (next < s->len && ((unsigned char)s->u.flat.data[next] & 0xC0) == 0x80)
            next++;
        if (max-- > 0)
            qr_jsb_put_str(&b, new);
        qr_jsb_put_range(&b, s, i, next);
        i = next;
    }
    if (max > 0)
        qr_jsb_put_str(&b, new);
    return qr_jsb_done(&b, out);
}

int qr_jreplace(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *old, struct qr_jstr *new, int64_t max, struct qr_jstr **out)
{
    QR_ASSERT(s->rope_depth == 0 && old->rope_depth == 0 && new->rope_depth == 0);
    struct qr_jsb b;
    size_t from = 0;
    int rc = qr_jcharge_bytes(c, s->len);
    if (rc)
        return rc;
    if (max < 0)
        max = INT64_MAX;
    if (old->len == 0)
        return replace_empty(c, s, new, max, out);
    qr_jsb_init(&b, c);
    *out = s;
    for (; max > 0; max--) {
        int64_t at = qr_jstr_find(s, old, from, s->len);
        if (at < 0)
            break;
        qr_jsb_put_range(&b, s, from, (size_t)at);
        qr_jsb_put_range(&b, new, 0, new->len);
        from = (size_t)at + old->len;
    }
    if (from == 0 && b.rc == 0)
        return 0;
    if (b.rc == 0)
        qr_jsb_put_range(&b, s, from, s->len);
    return qr_jsb_done(&b, out);
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

int qr_jsplit_lines(struct qr_jctx *c, struct qr_jstr *s, bool keep_ends, struct qr_jbag *out)
{
    QR_ASSERT(s->rope_depth == 0);
    int rc = qr_jcharge_bytes(c, s->len);
    for (size_t from = 0; from < s->len && rc == 0;) {
        size_t to = from, n = 0;
        for (; to < s->len && (n = line_break(s, to)) == 0;)
            to++; /* bytes inside a character decode as none, which is no break either */
        struct qr_jstr *line;
        rc = qr_jstr_sub(c, s, from, keep_ends ? to + n : to, &line);
        if (rc == 0)
            rc = qr_jbag_push(c, out, qr_jstrv(line));
        from = to + n;
    }
    return rc;
}

int qr_jcenter(struct qr_jctx *c, struct qr_jstr *s, int64_t width, uint32_t fill, int side, struct qr_jstr **out)
{
    int64_t n;
    int rc = qr_jstr_chars(c, s, &n);
    *out = s;
    if (rc || width <= n)
        return rc;
    if ((uint64_t)(width - n) > c->lim->memory_max / 4)
        return qr_jlimit(c, "a field of %lld characters is too wide", (long long)width);
    int64_t space = width - n, left = side < 0 ? 0 : side > 0 ? space : space / 2 + (space & width & 1);
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    for (int64_t i = 0; i < left; i++)
        qr_jsb_put_cp(&b, fill, true);
    qr_jsb_put_range(&b, s, 0, s->len);
    for (int64_t i = 0; i < space - left; i++)
        qr_jsb_put_cp(&b, fill, true);
    return qr_jsb_done(&b, out);
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

int qr_jcase(struct qr_jctx *c, struct qr_jstr *s, enum qr_jcase how, struct qr_jstr **out)
{
    QR_ASSERT(s->rope_depth == 0);
    struct qr_jsb b;
    bool first = true;
    int32_t run = 0;
    qr_jsb_init(&b, c);
    for (size_t i = 0; i < s->len && b.rc == 0;) {
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
    return qr_jsb_done(&b, out);
}

int qr_jcase_test(struct qr_jctx *c, const struct qr_jval *v, bool upper, bool *out)
{
    struct qr_jstr *s;
    int rc = qr_jtext(c, v, &s);
    if (rc == 0)
        rc = qr_jstr_flat(c, s);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, s->len);
    if (rc)
        return rc;
    bool any = false;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        if (qr_jtitlecase(cp) || (upper ? qr_jlower(cp) : qr_jupper(cp))) {
            *out = false;
            return 0;
        }
        any = any || (upper ? qr_jupper(cp) : qr_jlower(cp));
    }
    *out = any;
    return 0;
}
