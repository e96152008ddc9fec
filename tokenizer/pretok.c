#include "tokenizer/pretok.h"

#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

struct run {
    const struct qr_pretok *p;
    struct qr_pretok_work *w;
    struct qr_matcher *m;
    qr_piece_fn *fn;
    void *user;
    struct qr_err *err;
};

/* A run of text and whether it matched. */
struct item {
    size_t start, end;
    bool match;
};

/* One stage on one piece; `held` waits to learn whether the next item joins it. */
struct splitter {
    const struct run *r;
    int32_t stage;
    const char *text;
    bool first, holding, last_match;
    struct item held;
};

void qr_pretok_release(struct qr_pretok *p)
{
    for (int32_t i = 0; i < p->n; i++)
        qr_pattern_close(p->stage[i].pattern);
    p->n = 0;
}

void qr_pretok_work_release(struct qr_pretok_work *w)
{
    for (int i = 0; i < QR_PRETOK_STAGES_MAX; i++)
        qr_buf_release(&w->text[i]);
}

static int run_stage(const struct run *r, int32_t i, const char *text, size_t len, bool first);

static int put(const struct splitter *s, size_t start, size_t end)
{
    if (start == end)
        return 0;
    return run_stage(s->r, s->stage + 1, s->text + start, end - start, s->first && start == 0);
}

static int flush(struct splitter *s)
{
    bool holding = s->holding;
    s->holding = false;
    return holding ? put(s, s->held.start, s->held.end) : 0;
}

static bool joins(const struct splitter *s, enum qr_split_behavior behavior, const struct item *it)
{
    if (!s->holding)
        return false;
    if (behavior == QR_SPLIT_CONTIGUOUS)
        return it->match == s->last_match;
    if (behavior == QR_SPLIT_MERGED_PREVIOUS)
        return it->match && !s->last_match;
    return s->last_match && !it->match; /* MERGED_NEXT */
}

static int add(struct splitter *s, size_t start, size_t end, bool match)
{
    const struct qr_pretok_stage *stage = &s->r->p->stage[s->stage];
    struct item it = {start, end, match != stage->invert};
    if (stage->behavior == QR_SPLIT_ISOLATED)
        return put(s, start, end);
    if (stage->behavior == QR_SPLIT_REMOVED)
        return it.match ? 0 : put(s, start, end);
    if (joins(s, stage->behavior, &it)) {
        s->held.end = end;
    } else {
        int rc = flush(s);
        if (rc != 0)
            return rc;
        s->held = it;
        s->holding = true;
    }
    s->last_match = it.match;
    return 0;
}

static int split(const struct run *r, int32_t stage, const char *text, size_t len, bool first)
{
    struct splitter s = {.r = r, .stage = stage, .text = text, .first = first};
    size_t at = 0, from = 0, start, end;
    bool any = false;
    while (from <= len) {
        int rc = qr_pattern_find(r->p->stage[stage].pattern, r->m, text, len, from, &start, &end, r->err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        if (start > at && (rc = add(&s, at, start, false)) != 0)
            return rc;
        bool again = start == end && any && start == at; /* an empty match right behind another does not count */
        if (!again && (rc = add(&s, start, end, true)) != 0)
            return rc;
        at = end;
        from = end;
        any = true;
        if (start == end) { /* an empty match cuts, and the search goes on behind the next character */
            uint32_t cp;
            from += end < len ? (size_t)qr_utf8_decode(text + end, len - end, &cp) : 1;
        }
    }
    if (at < len) {
        int rc = add(&s, at, len, false);
        if (rc != 0)
            return rc;
    }
    return flush(&s);
}

/* The stage's buffer is free again once its piece has been handed on, so one buffer for each stage is enough. */
static int spaces(const struct run *r, int32_t stage, const char *text, size_t len, bool first)
{
    const struct qr_pretok_stage *s = &r->p->stage[stage];
    struct qr_buf *b = &r->w->text[stage];
    size_t n_mark = strlen(s->mark);
    bool marked = (len >= n_mark && memcmp(text, s->mark, n_mark) == 0) || (len > 0 && text[0] == ' ');
    bool prepend = !marked && (s->prepend == QR_PREPEND_ALWAYS || (s->prepend == QR_PREPEND_FIRST && first));
    bool replace = strcmp(s->mark, " ") != 0;
    if (!prepend && !(replace && memchr(text, ' ', len)))
        return run_stage(r, stage + 1, text, len, first);
    b->len = 0;
    qr_buf_reserve(b, len + n_mark);
    if (prepend)
        qr_buf_put(b, s->mark, n_mark);
    for (size_t i = 0; i < len;) {
        const char *space = replace ? memchr(text + i, ' ', len - i) : NULL;
        size_t end = space ? (size_t)(space - text) : len;
        qr_buf_put(b, text + i, end - i);
        if (space)
            qr_buf_put(b, s->mark, n_mark);
        i = end + (space != NULL);
    }
    return run_stage(r, stage + 1, b->data, b->len, first);
}

static int bytes(const struct run *r, int32_t stage, const char *text, size_t len, bool first)
{
    const struct qr_bytechar *c = &r->p->bytechar;
    struct qr_buf *b = &r->w->text[stage];
    b->len = 0;
    qr_buf_reserve(b, 2 * len);
    for (size_t i = 0; i < len; i++)
        qr_buf_put(b, c->utf8[(unsigned char)text[i]], c->len[(unsigned char)text[i]]);
    return run_stage(r, stage + 1, b->data, b->len, first);
}

static int run_stage(const struct run *r, int32_t i, const char *text, size_t len, bool first)
{
    if (i == r->p->n)
        return r->fn(r->user, text, len, r->err);
    switch (r->p->stage[i].kind) {
    case QR_PRETOK_SPLIT: return split(r, i, text, len, first);
    case QR_PRETOK_SPACES: return spaces(r, i, text, len, first);
    case QR_PRETOK_BYTES: return bytes(r, i, text, len, first);
    }
    return 0;
}

int qr_pretok_run(const struct qr_pretok *p, struct qr_pretok_work *w, struct qr_matcher *m, const char *text, size_t len,
                  bool first, qr_piece_fn *fn, void *user, struct qr_err *err)
{
    QR_ASSERT(p != NULL && w != NULL && m != NULL && fn != NULL);
    QR_ASSERT(text != NULL || len == 0);
    struct run r = {p, w, m, fn, user, err};
    return len > 0 ? run_stage(&r, 0, text, len, first) : 0;
}
