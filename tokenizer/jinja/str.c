/* str.c - strings that know which of their bytes are trusted: ropes, slices, a builder, captures of output. A byte of
 * the output knows whether it was the template's own text, and no operation turns untrusted bytes into trusted ones.
 * Ropes are flattened when a flat text is needed. One thread per rendering. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/jinja/unicode.h"
#include "tokenizer/jinja/value.h"

#define SMALL_BYTES 96 /* concatenations up to here are copied, longer ones linked */

static size_t len_max(const struct qr_jctx *c)
{
    return c->lim->memory_max;
}

static int too_long(struct qr_jctx *c)
{
    return qr_jlimit(c, "a string is longer than %zu bytes", len_max(c));
}

int qr_jstr_new(struct qr_jctx *c, const char *data, size_t n, bool trusted, struct qr_jstr **out)
{
    QR_ASSERT(data != NULL || n == 0);
    struct qr_jstr *s = qr_jalloc(c, 1, sizeof *s);
    if (!s)
        return QR_E_TOO_LARGE;
    *s = (struct qr_jstr){.len = n, .u.flat.data = data ? data : "", .trust = trusted ? QR_JTRUST_ALL : QR_JTRUST_NONE};
    *out = s;
    return 0;
}

int qr_jlit(struct qr_jctx *c, const char *s, struct qr_jval *out)
{
    QR_ASSERT(s != NULL);
    struct qr_jstr *str;
    int rc = qr_jstr_new(c, s, strlen(s), true, &str);
    if (rc == 0)
        *out = qr_jstrv(str);
    return rc;
}

int qr_jkw_name(struct qr_jctx *c, const struct qr_jkw *kw, struct qr_jval *out)
{
    QR_ASSERT(kw != NULL && kw->name != NULL);
    struct qr_jstr *str;
    int rc = qr_jstr_new(c, kw->name, strlen(kw->name), !kw->untrusted, &str);
    if (rc == 0)
        *out = qr_jstrv(str);
    return rc;
}

int qr_jstr_walk(struct qr_jctx *c, const struct qr_jstr *s, int (*visit)(void *arg, const char *p, size_t n, bool trusted),
                 void *arg)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(visit != NULL);
    const struct qr_jstr **stack = NULL, *at = s;
    int32_t n = 0;
    int rc = qr_jcharge(c, s->rope_depth / 64);
    if (s->rope_depth > 0)
        stack = qr_alloc((size_t)s->rope_depth + 1, sizeof *stack);
    while (rc == 0 && at) {
        while (at->rope_depth > 0) {
            stack[n++] = at->u.cat.right;
            at = at->u.cat.left;
        }
        if (at->trust != QR_JTRUST_MIXED) {
            rc = at->len ? visit(arg, at->u.flat.data, at->len, at->trust == QR_JTRUST_ALL) : 0;
        } else {
            size_t from = 0;
            for (int32_t i = 0; rc == 0 && i < at->n_runs; i++) {
                const struct qr_jrun *r = &at->u.flat.run[i];
                rc = visit(arg, at->u.flat.data + from, r->end - from, r->trusted);
                from = r->end;
            }
        }
        at = n > 0 ? stack[--n] : NULL;
    }
    qr_free(stack);
    return rc;
}

static int put_piece(void *arg, const char *p, size_t n, bool trusted)
{
    struct qr_jsb *b = arg;
    qr_jsb_put(b, p, n, trusted);
    return b->rc;
}

int qr_jstr_flat(struct qr_jctx *c, struct qr_jstr *s)
{
    QR_ASSERT(s != NULL);
    if (s->rope_depth == 0)
        return 0;
    int rc = qr_jcharge_bytes(c, s->len);
    if (rc)
        return rc;
    struct qr_jsb b;
    struct qr_jstr *flat;
    qr_jsb_init(&b, c);
    b.data = qr_jalloc(c, s->len, 1);
    if (!b.data)
        return QR_E_TOO_LARGE;
    b.cap = s->len;
    qr_jstr_walk(c, s, put_piece, &b);
    rc = qr_jsb_done(&b, &flat);
    if (rc == 0) {
        flat->markup = s->markup;
        *s = *flat;
    }
    return rc;
}

static int cat_small(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, struct qr_jstr **out)
{
    struct qr_jsb sb;
    qr_jsb_init(&sb, c);
    qr_jsb_put_str(&sb, a);
    qr_jsb_put_str(&sb, b);
    return qr_jsb_done(&sb, out);
}

int qr_jstr_cat(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, struct qr_jstr **out)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(b != NULL);
    if (a->len == 0 || b->len == 0) {
        *out = a->len == 0 ? b : a;
        return 0;
    }
    if (a->len > len_max(c) || b->len > len_max(c) - a->len)
        return too_long(c);
    if (a->len + b->len <= SMALL_BYTES)
        return cat_small(c, a, b, out);
    struct qr_jstr *s = qr_jalloc(c, 1, sizeof *s);
    if (!s)
        return QR_E_TOO_LARGE;
    int32_t depth = a->rope_depth > b->rope_depth ? a->rope_depth : b->rope_depth;
    *s = (struct qr_jstr){.len = a->len + b->len, .rope_depth = depth + 1};
    s->u.cat.left = a;
    s->u.cat.right = b;
    s->trust = a->trust == b->trust ? a->trust : QR_JTRUST_MIXED;
    *out = s;
    return 0;
}

int qr_jstr_marked(struct qr_jctx *c, struct qr_jstr *s, bool markup, struct qr_jstr **out)
{
    QR_ASSERT(s != NULL);
    *out = s;
    if (s->markup == markup)
        return 0;
    struct qr_jstr *copy = qr_jalloc(c, 1, sizeof *copy);
    if (!copy)
        return QR_E_TOO_LARGE;
    *copy = *s;
    copy->markup = markup;
    *out = copy;
    return 0;
}

/* The run that holds byte `at` of a mixed flat string. */
static int32_t run_at(const struct qr_jstr *s, size_t at)
{
    int32_t lo = 0, hi = s->n_runs - 1;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (s->u.flat.run[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int qr_jstr_sub(struct qr_jctx *c, struct qr_jstr *s, size_t from, size_t to, struct qr_jstr **out)
{
    QR_ASSERT(s->rope_depth == 0);
    QR_ASSERT(from <= to && to <= s->len);
    if (from == 0 && to == s->len) {
        *out = s;
        return 0;
    }
    struct qr_jstr *sub;
    int rc = qr_jstr_new(c, s->u.flat.data + from, to - from, s->trust == QR_JTRUST_ALL, &sub);
    if (rc)
        return rc;
    sub->markup = s->markup;
    sub->ascii = s->ascii == 1 ? 1 : 0;
    *out = sub;
    if (s->trust != QR_JTRUST_MIXED || from == to)
        return 0;
    int32_t first = run_at(s, from), last = run_at(s, to - 1), n = last - first + 1;
    sub->trust = s->u.flat.run[first].trusted ? QR_JTRUST_ALL : QR_JTRUST_NONE;
    if (n == 1)
        return 0;
    struct qr_jrun *run = qr_jalloc(c, (size_t)n, sizeof *run);
    if (!run)
        return QR_E_TOO_LARGE;
    for (int32_t i = 0; i < n; i++) {
        run[i] = s->u.flat.run[first + i];
        run[i].end = (run[i].end < to ? run[i].end : to) - from;
    }
    sub->trust = QR_JTRUST_MIXED;
    sub->u.flat.run = run;
    sub->n_runs = n;
    return 0;
}

int qr_jstr_repeat(struct qr_jctx *c, struct qr_jstr *s, int64_t n, struct qr_jstr **out)
{
    QR_ASSERT(s != NULL);
    if (n <= 0 || s->len == 0)
        return qr_jstr_new(c, "", 0, true, out);
    if ((size_t)n > len_max(c) / s->len)
        return too_long(c);
    struct qr_jstr *result = NULL, *power = s;
    int rc = 0;
    for (; n > 0 && rc == 0; n >>= 1) { /* s n times as a balanced rope */
        if (n & 1)
            rc = result ? qr_jstr_cat(c, result, power, &result) : (result = power, 0);
        if (n > 1 && rc == 0)
            rc = qr_jstr_cat(c, power, power, &power);
    }
    *out = result;
    return rc;
}

int qr_jstr_eq(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, bool *out)
{
    *out = a == b;
    if (a == b || a->len != b->len)
        return 0;
    int rc = qr_jstr_flat(c, a);
    if (rc == 0)
        rc = qr_jstr_flat(c, b);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, a->len);
    if (rc == 0)
        *out = a->len == 0 || memcmp(a->u.flat.data, b->u.flat.data, a->len) == 0;
    return rc;
}

int qr_jstr_cmp(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, int *out)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int rc = qr_jstr_flat(c, a);
    if (rc == 0)
        rc = qr_jstr_flat(c, b);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, n);
    if (rc)
        return rc;
    int order = n ? memcmp(a->u.flat.data, b->u.flat.data, n) : 0; /* UTF-8 sorts as its code points do */
    *out = order ? (order > 0) - (order < 0) : (a->len > b->len) - (a->len < b->len);
    return 0;
}

bool qr_jstr_is(const struct qr_jstr *s, const char *text)
{
    QR_ASSERT(s->rope_depth == 0);
    size_t n = strlen(text);
    return s->len == n && memcmp(s->u.flat.data, text, n) == 0;
}

bool qr_jstr_ascii(struct qr_jstr *s)
{
    QR_ASSERT(s->rope_depth == 0);
    if (s->ascii == 0) {
        unsigned char all = 0;
        for (size_t i = 0; i < s->len; i++)
            all |= (unsigned char)s->u.flat.data[i];
        s->ascii = all < 0x80 ? 1 : 2;
    }
    return s->ascii == 1;
}

static bool is_start(char ch)
{
    return ((unsigned char)ch & 0xC0) != 0x80;
}

int qr_jstr_chars(struct qr_jctx *c, struct qr_jstr *s, int64_t *n)
{
    int rc = qr_jstr_flat(c, s);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, s->len);
    if (rc)
        return rc;
    *n = (int64_t)s->len;
    if (!qr_jstr_ascii(s)) {
        *n = 0;
        for (size_t i = 0; i < s->len; i++)
            *n += is_start(s->u.flat.data[i]);
    }
    return 0;
}

size_t qr_jstr_offset(struct qr_jstr *s, int64_t chars)
{
    QR_ASSERT(chars >= 0);
    if (qr_jstr_ascii(s))
        return (size_t)chars < s->len ? (size_t)chars : s->len;
    size_t at = 0;
    for (; chars > 0 && at < s->len; chars--) {
        do
            at++;
        while (at < s->len && !is_start(s->u.flat.data[at]));
    }
    return at;
}

int64_t qr_jstr_find(const struct qr_jstr *s, const struct qr_jstr *what, size_t from, size_t to)
{
    QR_ASSERT(s->rope_depth == 0 && what->rope_depth == 0);
    QR_ASSERT(to <= s->len);
    if (from > to)
        return -1;
    if (what->len == 0)
        return (int64_t)from;
    const char *p = memmem(s->u.flat.data + from, to - from, what->u.flat.data, what->len);
    return p ? (int64_t)(p - s->u.flat.data) : -1;
}

static void copy_reversed(char *to, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[n - 1 - i];
}

int64_t qr_jmem_rfind(const char *hay, size_t n, const char *what, size_t m)
{
    QR_ASSERT(m > 0);
    if (m > n)
        return -1;
    char *needle = qr_alloc(m, 1), *part = NULL;
    int64_t at = -1;
    copy_reversed(needle, what, m);
    /* Ever larger pieces of the end, turned around: the time is linear in how far back the answer lies, whatever the text. */
    for (size_t w = m * 4 < 256 ? 256 : m * 4;; w *= 2) {
        size_t len = w < n ? w : n;
        part = qr_realloc(part, len, 1);
        copy_reversed(part, hay + n - len, len);
        const char *p = memmem(part, len, needle, m);
        if (p)
            at = (int64_t)(n - (size_t)(p - part) - m);
        if (p || len == n)
            break;
    }
    qr_free(needle);
    qr_free(part);
    return at;
}

int64_t qr_jstr_rfind(const struct qr_jstr *s, const struct qr_jstr *what, size_t from, size_t to)
{
    QR_ASSERT(s->rope_depth == 0 && what->rope_depth == 0);
    QR_ASSERT(to <= s->len);
    if (from > to)
        return -1;
    if (what->len == 0)
        return (int64_t)to;
    int64_t at = qr_jmem_rfind(s->u.flat.data + from, to - from, what->u.flat.data, what->len);
    return at < 0 ? -1 : at + (int64_t)from;
}

/* ---- builder ---- */

void qr_jsb_init(struct qr_jsb *b, struct qr_jctx *c)
{
    QR_ASSERT(b != NULL && c != NULL);
    *b = (struct qr_jsb){.c = c};
}

static bool sb_reserve(struct qr_jsb *b, size_t n)
{
    if (n <= b->cap - b->len)
        return true;
    if (n > len_max(b->c) || b->len > len_max(b->c) - n) {
        b->rc = too_long(b->c);
        return false;
    }
    size_t cap = b->cap * 2 > 64 ? b->cap * 2 : 64;
    if (cap < b->len + n)
        cap = b->len + n;
    char *data = qr_jalloc(b->c, cap, 1);
    if (!data) {
        b->rc = QR_E_TOO_LARGE;
        return false;
    }
    if (b->len > 0)
        memcpy(data, b->data, b->len);
    b->data = data;
    b->cap = cap;
    return true;
}

static bool sb_run(struct qr_jsb *b, bool trusted)
{
    if (b->n_runs > 0 && b->run[b->n_runs - 1].trusted == trusted)
        return true;
    if (b->n_runs == b->cap_runs) {
        int32_t cap = b->cap_runs ? b->cap_runs * 2 : 4;
        struct qr_jrun *run = qr_jalloc(b->c, (size_t)cap, sizeof *run);
        if (!run) {
            b->rc = QR_E_TOO_LARGE;
            return false;
        }
        if (b->n_runs > 0)
            memcpy(run, b->run, (size_t)b->n_runs * sizeof *run);
        b->run = run;
        b->cap_runs = cap;
    }
    b->run[b->n_runs++].trusted = trusted;
    return true;
}

void qr_jsb_put(struct qr_jsb *b, const char *p, size_t n, bool trusted)
{
    QR_ASSERT(p != NULL || n == 0);
    if (b->rc || n == 0 || !sb_reserve(b, n) || !sb_run(b, trusted))
        return;
    memcpy(b->data + b->len, p, n);
    b->len += n;
    b->run[b->n_runs - 1].end = b->len;
}

void qr_jsb_puts(struct qr_jsb *b, const char *p)
{
    qr_jsb_put(b, p, strlen(p), true);
}

void qr_jsb_put_cp(struct qr_jsb *b, uint32_t cp, bool trusted)
{
    char utf8[4];
    int32_t n = qr_utf8_encode(cp, utf8);
    qr_jsb_put(b, utf8, (size_t)n, trusted);
}

void qr_jsb_put_range(struct qr_jsb *b, const struct qr_jstr *s, size_t from, size_t to)
{
    QR_ASSERT(s->rope_depth == 0);
    QR_ASSERT(from <= to && to <= s->len);
    if (from == to)
        return;
    if (s->trust != QR_JTRUST_MIXED) {
        qr_jsb_put(b, s->u.flat.data + from, to - from, s->trust == QR_JTRUST_ALL);
        return;
    }
    for (int32_t i = run_at(s, from); from < to; i++) {
        size_t end = s->u.flat.run[i].end < to ? s->u.flat.run[i].end : to;
        qr_jsb_put(b, s->u.flat.data + from, end - from, s->u.flat.run[i].trusted);
        from = end;
    }
}

void qr_jsb_put_str(struct qr_jsb *b, struct qr_jstr *s)
{
    QR_ASSERT(s != NULL);
    if (b->rc == 0)
        qr_jstr_walk(b->c, s, put_piece, b);
}

int qr_jsb_done(struct qr_jsb *b, struct qr_jstr **out)
{
    if (b->rc)
        return b->rc;
    bool first = b->n_runs == 0 || b->run[0].trusted;
    int rc = qr_jcharge_bytes(b->c, b->len);
    if (rc == 0)
        rc = qr_jstr_new(b->c, b->data, b->len, first, out);
    if (rc == 0 && b->n_runs > 1) {
        (*out)->trust = QR_JTRUST_MIXED;
        (*out)->u.flat.run = b->run;
        (*out)->n_runs = b->n_runs;
    }
    return rc;
}

int qr_jsb_done_as(struct qr_jsb *b, bool trusted, struct qr_jstr **out)
{
    if (b->rc)
        return b->rc;
    int rc = qr_jcharge_bytes(b->c, b->len);
    return rc ? rc : qr_jstr_new(b->c, b->data, b->len, trusted, out);
}

/* ---- output ---- */

void qr_jcapture_begin(struct qr_jctx *c, struct qr_jcapture *cap)
{
    QR_ASSERT(cap != NULL);
    cap->up = c->capture;
    cap->rope = NULL;
    qr_jsb_init(&cap->tail, c);
    c->capture = cap;
}

/* Links what was gathered behind what is already linked. */
static int capture_flush(struct qr_jctx *c, struct qr_jcapture *cap)
{
    struct qr_jstr *s;
    if (cap->tail.len == 0 && cap->tail.rc == 0)
        return 0;
    int rc = qr_jsb_done(&cap->tail, &s);
    qr_jsb_init(&cap->tail, c);
    if (rc)
        return rc;
    if (!cap->rope) {
        cap->rope = s;
        return 0;
    }
    return qr_jstr_cat(c, cap->rope, s, &cap->rope);
}

int qr_jcapture_end(struct qr_jctx *c, struct qr_jcapture *cap, struct qr_jval *out)
{
    QR_ASSERT(c->capture == cap);
    c->capture = cap->up;
    int rc = capture_flush(c, cap);
    if (rc == 0)
        rc = cap->rope ? qr_jstr_marked(c, cap->rope, false, &cap->rope) : qr_jstr_new(c, "", 0, true, &cap->rope);
    if (rc == 0)
        *out = qr_jstrv(cap->rope);
    return rc;
}

static int emit_out(void *arg, const char *p, size_t n, bool trusted)
{
    struct qr_jctx *c = arg;
    struct qr_rendered *r = c->out;
    if (n > c->lim->output_max - r->text.len)
        return qr_jlimit(c, "the output is longer than %zu bytes", c->lim->output_max);
    struct qr_segment *last = r->n_segments > 0 ? &r->segment[r->n_segments - 1] : NULL;
    if (!last || last->trusted != trusted) {
        if ((r->n_segments & (r->n_segments - 1)) == 0)
            r->segment = qr_realloc(r->segment, (size_t)(r->n_segments ? r->n_segments * 2 : 1), sizeof *r->segment);
        last = &r->segment[r->n_segments++];
        *last = (struct qr_segment){r->text.len, 0, trusted};
    }
    last->len += n;
    qr_buf_put(&r->text, p, n);
    return 0;
}

int qr_jemit(struct qr_jctx *c, struct qr_jstr *s)
{
    QR_ASSERT(s != NULL);
    struct qr_jcapture *cap = c->capture;
    if (s->len == 0)
        return 0;
    if (!cap)
        return qr_jstr_walk(c, s, emit_out, c);
    if (s->len <= SMALL_BYTES && cap->tail.len + s->len <= 4096) {
        qr_jsb_put_str(&cap->tail, s);
        return cap->tail.rc;
    }
    int rc = capture_flush(c, cap);
    if (rc == 0)
        rc = cap->rope ? qr_jstr_cat(c, cap->rope, s, &cap->rope) : (cap->rope = s, 0);
    return rc;
}
