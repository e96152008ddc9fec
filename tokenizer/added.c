#include "tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/normalize.h"

void qr_added_push(struct qr_added_set *s, const struct qr_added *token)
{
    QR_ASSERT(s != NULL && token != NULL);
    QR_ASSERT(token->text != NULL && token->len > 0);
    s->token = QR_GROW(s->token, s->n, s->cap);
    s->token[s->n] = *token;
    char *text = qr_alloc(token->len, 1);
    memcpy(text, token->text, token->len);
    s->token[s->n++].text = text;
}

static int by_text(const void *x, const void *y)
{
    const struct qr_added *a = x, *b = y;
    int order = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    if (order != 0)
        return order;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

void qr_added_sort(struct qr_added_set *s)
{
    QR_ASSERT(s != NULL);
    if (s->n > 0)
        qsort(s->token, (size_t)s->n, sizeof *s->token, by_text);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        struct qr_added *t = &s->token[i];
        if (n > 0 && s->token[n - 1].len == t->len && memcmp(s->token[n - 1].text, t->text, t->len) == 0) {
            qr_free((char *)t->text);
            continue;
        }
        s->n_special += t->special;
        s->token[n++] = *t;
    }
    s->n = n;
    int32_t at = 0;
    for (int32_t c = 0; c < 256; c++) {
        s->first[c] = at;
        while (at < n && (unsigned char)s->token[at].text[0] == c)
            at++;
    }
    s->first[256] = n;
}

void qr_added_release(struct qr_added_set *s)
{
    for (int32_t i = 0; i < s->n; i++)
        qr_free((char *)s->token[i].text);
    qr_free(s->token);
    *s = (struct qr_added_set){0};
}

static bool is_trusted(const struct qr_trust *t, size_t start, size_t end)
{
    if (t->all)
        return true;
    if (t->byte)
        return !memchr(t->byte + start, 0, end - start);
    int32_t lo = 0, hi = t->n_ranges; /* the last range that begins at or before start */
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->range[mid].start <= start)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && end <= t->range[lo - 1].end;
}

/* The first token in [lo, hi) whose byte at `depth` is >= c. All of them are longer than depth and share what is before it. */
static int32_t lower(const struct qr_added_set *s, int32_t lo, int32_t hi, size_t depth, int c)
{
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)s->token[mid].text[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token at `at` that may be there, or -1. */
static int32_t match_here(const struct qr_added_set *s, const char *text, size_t len, size_t at, const struct qr_trust *trust)
{
    unsigned char c = (unsigned char)text[at];
    int32_t lo = s->first[c], hi = s->first[c + 1], best = -1;
    for (size_t depth = 1; lo < hi; depth++) {
        const struct qr_added *t = &s->token[lo];
        if (t->len == depth) {
            if (!t->special || is_trusted(trust, at, at + depth))
                best = lo;
            lo++;
        }
        if (at + depth >= len)
            break;
        int next = (unsigned char)text[at + depth];
        lo = lower(s, lo, hi, depth, next);
        hi = lower(s, lo, hi, depth, next + 1);
    }
    return best;
}

static size_t char_before(const char *text, size_t at, uint32_t *cp)
{
    size_t n = qr_utf8_last(text, at);
    QR_ASSERT(qr_utf8_decode(text + at - n, n, cp) > 0);
    return at - n;
}

static bool stands_alone(const char *text, size_t len, size_t start, size_t end)
{
    uint32_t cp;
    if (start > 0 && (char_before(text, start, &cp), qr_is_word(cp)))
        return false;
    return end == len || (qr_utf8_decode(text + end, len - end, &cp), !qr_is_word(cp));
}

static void take_space(const struct qr_added *t, const char *text, size_t len, size_t from, struct qr_added_match *m)
{
    uint32_t cp;
    while (t->lstrip && m->start > from) {
        size_t before = char_before(text, m->start, &cp);
        if (before < from || !qr_is_space(cp))
            break;
        m->start = before;
    }
    while (t->rstrip && m->end < len) {
        int32_t n = qr_utf8_decode(text + m->end, len - m->end, &cp);
        if (!qr_is_space(cp))
            break;
        m->end += (size_t)n;
    }
}

bool qr_added_find(const struct qr_added_set *s, const char *text, size_t len, size_t from, const struct qr_trust *trust,
                   struct qr_added_match *out)
{
    QR_ASSERT(s != NULL && trust != NULL && out != NULL);
    QR_ASSERT(from <= len);
    if (s->n == 0 || (s->n == s->n_special && !trust->all && !trust->byte && trust->n_ranges == 0))
        return false;
    for (size_t at = from; at < len; at++) {
        unsigned char c = (unsigned char)text[at];
        if (s->first[c] == s->first[c + 1])
            continue;
        int32_t i = match_here(s, text, len, at, trust);
        if (i < 0)
            continue;
        const struct qr_added *t = &s->token[i];
        if (t->single_word && !stands_alone(text, len, at, at + t->len)) {
            at += t->len - 1; /* the reference passes over what it discards */
            continue;
        }
        *out = (struct qr_added_match){at, at + t->len, t->id};
        take_space(t, text, len, from, out);
        return true;
    }
    return false;
}
