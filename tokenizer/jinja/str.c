/* str.c - strings that know which of their bytes are trusted: ropes, slices, a builder, captures of output. A byte of
 * the output knows whether it was the template's own text, and no operation turns untrusted bytes into trusted ones.
 * Ropes are flattened when a flat text is needed. An error leaves the rendering (value.h). One thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/jinja/value.h"

#define SMALL_BYTES 96 /* concatenations up to here are copied, longer ones linked */

/* Errors where a string of a + b bytes would be longer than all memory of the rendering. */
static void check_len(struct qr_jctx *c, size_t a, size_t b)
{
    const size_t max = c->lim->memory_max;
    if (a > max || b > max - a)
        qr_jlimit(c, "a string is longer than %zu bytes", max);
}

struct qr_jstr *qr_jstr_new(struct qr_jctx *c, const char *data, size_t n, bool trusted)
{
    QR_ASSERT(data != NULL || n == 0);
    struct qr_jstr *s = qr_jalloc(c, 1, sizeof *s);
    *s = (struct qr_jstr){
        .len = n, .u.flat.data = data ? data : "", .trust = trusted ? QR_JTRUST_ALL : QR_JTRUST_NONE};
    return s;
}

struct qr_jval qr_jlit(struct qr_jctx *c, const char *s)
{
    QR_ASSERT(s != NULL);
    return qr_jstrv(qr_jstr_new(c, s, strlen(s), true));
}

const char *qr_jstr_name(struct qr_jctx *c, const struct qr_jstr *s)
{
    QR_ASSERT(s->rope_depth == 0);
    char *name = qr_jalloc(c, s->len + 1, 1);
    memcpy(name, s->u.flat.data, s->len);
    name[s->len] = 0;
    return name;
}

void qr_jstr_walk(struct qr_jctx *c, const struct qr_jstr *s,
                  void (*visit)(void *arg, const char *p, size_t n, bool trusted), void *arg)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(visit != NULL);
    int32_t n = 0;
    qr_jcharge(c, s->rope_depth / 64);
    if (s->rope_depth > c->walk_cap) {
        c->walk_cap = s->rope_depth * 2;
        c->walk = qr_jalloc(c, (size_t)c->walk_cap, sizeof *c->walk);
    }
    for (const struct qr_jstr *at = s; at; at = n > 0 ? c->walk[--n] : NULL) {
        while (at->rope_depth > 0) {
            c->walk[n++] = at->u.cat.right;
            at = at->u.cat.left;
        }
        if (at->trust != QR_JTRUST_MIXED) {
            if (at->len)
                visit(arg, at->u.flat.data, at->len, at->trust == QR_JTRUST_ALL);
            continue;
        }
        size_t from = 0;
        for (int32_t i = 0; i < at->n_runs; i++) {
            const struct qr_jrun *r = &at->u.flat.run[i];
            visit(arg, at->u.flat.data + from, r->end - from, r->trusted);
            from = r->end;
        }
    }
}

static void put_piece(void *arg, const char *p, size_t n, bool trusted)
{
    qr_jsb_put(arg, p, n, trusted);
}

struct qr_jstr *qr_jstr_flat(struct qr_jctx *c, struct qr_jstr *s)
{
    QR_ASSERT(s != NULL);
    if (s->rope_depth == 0)
        return s;
    qr_jcharge_bytes(c, s->len);
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    b.data = qr_jalloc(c, s->len, 1);
    b.cap = s->len;
    qr_jstr_walk(c, s, put_piece, &b);
    struct qr_jstr *flat = qr_jsb_done(&b);
    flat->markup = s->markup;
    *s = *flat;
    return s;
}

static struct qr_jstr *cat_small(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b)
{
    struct qr_jsb sb;
    qr_jsb_init(&sb, c);
    qr_jsb_put_str(&sb, a);
    qr_jsb_put_str(&sb, b);
    return qr_jsb_done(&sb);
}

struct qr_jstr *qr_jstr_cat(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(b != NULL);
    if (a->len == 0 || b->len == 0)
        return a->len == 0 ? b : a;
    check_len(c, a->len, b->len);
    if (a->len + b->len <= SMALL_BYTES)
        return cat_small(c, a, b);
    struct qr_jstr *s = qr_jalloc(c, 1, sizeof *s);
    int32_t depth = a->rope_depth > b->rope_depth ? a->rope_depth : b->rope_depth;
    *s = (struct qr_jstr){.len = a->len + b->len, .rope_depth = depth + 1};
    s->u.cat.left = a;
    s->u.cat.right = b;
    s->trust = a->trust == b->trust ? a->trust : QR_JTRUST_MIXED;
    return s;
}

struct qr_jstr *qr_jstr_join(struct qr_jctx *c, struct qr_jstr *all, struct qr_jstr *s)
{
    return all ? qr_jstr_cat(c, all, s) : s;
}

struct qr_jstr *qr_jstr_marked(struct qr_jctx *c, struct qr_jstr *s, bool markup)
{
    QR_ASSERT(s != NULL);
    if (s->markup == markup)
        return s;
    struct qr_jstr *copy = qr_jalloc(c, 1, sizeof *copy);
    *copy = *s;
    copy->markup = markup;
    return copy;
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

struct qr_jstr *qr_jstr_sub(struct qr_jctx *c, struct qr_jstr *s, size_t from, size_t to)
{
    QR_ASSERT(s->rope_depth == 0);
    QR_ASSERT(from <= to && to <= s->len);
    if (from == 0 && to == s->len)
        return s;
    struct qr_jstr *sub = qr_jstr_new(c, s->u.flat.data + from, to - from, s->trust == QR_JTRUST_ALL);
    sub->markup = s->markup;
    sub->ascii = s->ascii == 1 ? 1 : 0;
    if (s->trust != QR_JTRUST_MIXED || from == to)
        return sub;
    int32_t first = run_at(s, from), last = run_at(s, to - 1), n = last - first + 1;
    sub->trust = s->u.flat.run[first].trusted ? QR_JTRUST_ALL : QR_JTRUST_NONE;
    if (n == 1)
        return sub;
    struct qr_jrun *run = qr_jalloc(c, (size_t)n, sizeof *run);
    for (int32_t i = 0; i < n; i++) {
        run[i] = s->u.flat.run[first + i];
        run[i].end = (run[i].end < to ? run[i].end : to) - from;
    }
    sub->trust = QR_JTRUST_MIXED;
    sub->u.flat.run = run;
    sub->n_runs = n;
    return sub;
}

struct qr_jstr *qr_jstr_repeat(struct qr_jctx *c, struct qr_jstr *s, int64_t n)
{
    QR_ASSERT(s != NULL);
    if (n <= 0 || s->len == 0)
        return qr_jstr_new(c, "", 0, true);
    size_t bytes;
    check_len(c, qr_mul_size((size_t)n, s->len, &bytes) ? bytes : SIZE_MAX, 0);
    struct qr_jstr *result = NULL, *power = s;
    for (; n > 0; n >>= 1) { /* s n times as a balanced rope */
        if (n & 1)
            result = qr_jstr_join(c, result, power);
        if (n > 1)
            power = qr_jstr_cat(c, power, power);
    }
    return result;
}

bool qr_jstr_eq(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b)
{
    return a == b || (a->len == b->len && qr_jstr_cmp(c, a, b) == 0);
}

int qr_jstr_cmp(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    qr_jstr_flat(c, a);
    qr_jstr_flat(c, b);
    qr_jcharge_bytes(c, n);
    int order = n ? memcmp(a->u.flat.data, b->u.flat.data, n) : 0; /* UTF-8 sorts as its code points do */
    return order ? (order > 0) - (order < 0) : (a->len > b->len) - (a->len < b->len);
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

int64_t qr_jstr_chars(struct qr_jctx *c, struct qr_jstr *s)
{
    qr_jstr_flat(c, s);
    qr_jcharge_bytes(c, s->len);
    if (qr_jstr_ascii(s))
        return (int64_t)s->len;
    int64_t n = 0;
    for (size_t i = 0; i < s->len; i++)
        n += is_start(s->u.flat.data[i]);
    return n;
}

size_t qr_jstr_next(const struct qr_jstr *s, size_t at)
{
    QR_ASSERT(at < s->len);
    do
        at++;
    while (at < s->len && !is_start(s->u.flat.data[at]));
    return at;
}

size_t qr_jstr_offset(struct qr_jstr *s, int64_t chars)
{
    QR_ASSERT(chars >= 0);
    if (qr_jstr_ascii(s))
        return (size_t)chars < s->len ? (size_t)chars : s->len;
    size_t at = 0;
    for (; chars > 0 && at < s->len; chars--)
        at = qr_jstr_next(s, at);
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
    /* Ever larger pieces of the end, turned around: linear in how far back the answer lies, whatever the text. */
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

static void sb_reserve(struct qr_jsb *b, size_t n)
{
    if (n <= b->cap - b->len)
        return;
    check_len(b->c, n, b->len);
    size_t cap = b->cap * 2 > 64 ? b->cap * 2 : 64;
    if (cap < b->len + n)
        cap = b->len + n;
    b->data = qr_jgrow(b->c, b->data, (int64_t)b->len, (int64_t)cap, 1);
    b->cap = cap;
}

static void sb_run(struct qr_jsb *b, bool trusted)
{
    if (b->n_runs > 0 && b->run[b->n_runs - 1].trusted == trusted)
        return;
    if (b->n_runs == b->cap_runs) {
        b->cap_runs = b->cap_runs ? b->cap_runs * 2 : 4;
        b->run = qr_jgrow(b->c, b->run, b->n_runs, b->cap_runs, sizeof *b->run);
    }
    b->run[b->n_runs++].trusted = trusted;
}

void qr_jsb_put(struct qr_jsb *b, const char *p, size_t n, bool trusted)
{
    QR_ASSERT(p != NULL || n == 0);
    if (n == 0)
        return;
    sb_reserve(b, n);
    sb_run(b, trusted);
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
    qr_jstr_walk(b->c, s, put_piece, b);
}

void qr_jsb_put_escaped(struct qr_jsb *b, struct qr_jstr *s, qr_jescape_fn *escape, const void *arg)
{
    QR_ASSERT(escape != NULL);
    const char *p = qr_jstr_flat(b->c, s)->u.flat.data;
    size_t from = 0;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        char esc[16];
        int32_t len = qr_utf8_decode(p + i, s->len - i, &cp);
        QR_ASSERT(len > 0);
        if (escape(cp, arg, esc)) {
            qr_jsb_put_range(b, s, from, i);
            qr_jsb_put(b, esc, strlen(esc), s->trust == QR_JTRUST_ALL);
            from = i + (size_t)len;
        }
        i += (size_t)len;
    }
    qr_jsb_put_range(b, s, from, s->len);
}

struct qr_jstr *qr_jsb_done_whole(struct qr_jsb *b)
{
    bool trusted = b->n_runs == 0 || (b->n_runs == 1 && b->run[0].trusted);
    qr_jcharge_bytes(b->c, b->len);
    return qr_jstr_new(b->c, b->data, b->len, trusted);
}

struct qr_jstr *qr_jsb_done(struct qr_jsb *b)
{
    struct qr_jstr *s = qr_jsb_done_whole(b);
    if (b->n_runs > 1) {
        s->trust = QR_JTRUST_MIXED;
        s->u.flat.run = b->run;
        s->n_runs = b->n_runs;
    }
    return s;
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
static void capture_flush(struct qr_jctx *c, struct qr_jcapture *cap)
{
    if (cap->tail.len == 0)
        return;
    cap->rope = qr_jstr_join(c, cap->rope, qr_jsb_done(&cap->tail));
    qr_jsb_init(&cap->tail, c);
}

struct qr_jval qr_jcapture_end(struct qr_jctx *c, struct qr_jcapture *cap)
{
    QR_ASSERT(c->capture == cap);
    c->capture = cap->up;
    capture_flush(c, cap);
    return cap->rope ? qr_jstrv(qr_jstr_marked(c, cap->rope, false)) : qr_jlit(c, "");
}

static void emit_out(void *arg, const char *p, size_t n, bool trusted)
{
    struct qr_jctx *c = arg;
    struct qr_rendered *r = c->out;
    if (n > c->lim->output_max - r->text.len)
        qr_jlimit(c, "the output is longer than %zu bytes", c->lim->output_max);
    struct qr_segment *last = r->n_segments > 0 ? &r->segment[r->n_segments - 1] : NULL;
    if (!last || last->trusted != trusted) {
        if ((r->n_segments & (r->n_segments - 1)) == 0)
            r->segment = qr_realloc(r->segment, (size_t)(r->n_segments ? r->n_segments * 2 : 1), sizeof *r->segment);
        last = &r->segment[r->n_segments++];
        *last = (struct qr_segment){r->text.len, 0, trusted};
    }
    last->len += n;
    qr_buf_put(&r->text, p, n);
}

void qr_jemit(struct qr_jctx *c, struct qr_jstr *s)
{
    QR_ASSERT(s != NULL);
    struct qr_jcapture *cap = c->capture;
    if (s->len == 0)
        return;
    if (!cap) {
        qr_jstr_walk(c, s, emit_out, c);
    } else if (s->len <= SMALL_BYTES && cap->tail.len + s->len <= 4096) {
        qr_jsb_put_str(&cap->tail, s);
    } else {
        capture_flush(c, cap);
        cap->rope = qr_jstr_join(c, cap->rope, s);
    }
}
