/* runes.c - sets of characters as sorted ranges, and the other cases of what they hold. Only characters that have another case cost
 * time; a set of letters of ASCII needs no table. One owning thread. */
#include "answers/grammar/runes.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/categories.h"

#define KELVIN 0x212A  /* folds to k */
#define LONG_S 0x17F   /* folds to s */
#define SINGLE_MAX 512 /* a set of fewer characters is folded one by one */

void qr_runes_release(struct qr_runes *r)
{
    qr_free(r->range);
    *r = (struct qr_runes){0};
}

void qr_runes_add(struct qr_runes *r, int32_t first, int32_t last)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(first >= 0 && last <= QR_RUNE_MAX);
    if (first > last)
        return;
    if (r->n > 0 && first >= r->range[r->n - 1].first && first <= r->range[r->n - 1].last + 1) { /* in order, as most are */
        if (last > r->range[r->n - 1].last)
            r->range[r->n - 1].last = last;
        return;
    }
    r->range = QR_GROW(r->range, r->n, r->cap);
    r->range[r->n++] = (struct qr_rune_range){first, last};
}

void qr_runes_add_all(struct qr_runes *r, const struct qr_rune_range *range, int32_t n)
{
    QR_ASSERT(range != NULL || n == 0);
    for (int32_t i = 0; i < n; i++)
        qr_runes_add(r, range[i].first, range[i].last);
}

static int by_first(const void *a, const void *b)
{
    const struct qr_rune_range *p = a, *q = b;
    return (p->first > q->first) - (p->first < q->first);
}

void qr_runes_settle(struct qr_runes *r)
{
    QR_ASSERT(r != NULL);
    int32_t n = 0;
    if (r->n > 1)
        qsort(r->range, (size_t)r->n, sizeof *r->range, by_first);
    for (int32_t i = 0; i < r->n; i++) {
        if (n > 0 && r->range[i].first <= r->range[n - 1].last + 1)
            r->range[n - 1].last = r->range[i].last > r->range[n - 1].last ? r->range[i].last : r->range[n - 1].last;
        else
            r->range[n++] = r->range[i];
    }
    r->n = n;
}

void qr_runes_invert(struct qr_runes *r)
{
    struct qr_runes out = {0};
    int32_t from = 0;
    QR_ASSERT(r != NULL);
    for (int32_t i = 0; i < r->n; i++) {
        QR_ASSERT(r->range[i].first >= from);
        qr_runes_add(&out, from, r->range[i].first - 1);
        from = r->range[i].last + 1;
    }
    qr_runes_add(&out, from, QR_RUNE_MAX);
    qr_runes_release(r);
    *r = out;
}

bool qr_runes_hold(const struct qr_runes *r, int32_t rune)
{
    int32_t low = 0, high = r->n;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (r->range[mid].last < rune)
            low = mid + 1;
        else
            high = mid;
    }
    return low < r->n && r->range[low].first <= rune;
}

/* ---- case ---- */

void qr_folds_release(struct qr_folds *f)
{
    qr_free(f->pair);
    *f = (struct qr_folds){0};
}

static int by_fold(const void *a, const void *b)
{
    const struct qr_case_pair *p = a, *q = b;
    return p->fold != q->fold ? (p->fold > q->fold) - (p->fold < q->fold) : (p->rune > q->rune) - (p->rune < q->rune);
}

static void make_folds(struct qr_folds *f)
{
    int32_t cap = 0;
    for (int32_t c = 0; c <= QR_CASED_MAX; c++) {
        const int32_t fold = qr_case_fold(c);
        if (fold == c)
            continue;
        f->pair = QR_GROW(f->pair, f->n, cap);
        f->pair[f->n++] = (struct qr_case_pair){fold, c};
    }
    if (f->n > 0)
        qsort(f->pair, (size_t)f->n, sizeof *f->pair, by_fold);
}

/* The first pair with this fold, or f->n. */
static int32_t find_fold(const struct qr_folds *f, int32_t fold)
{
    int32_t low = 0, high = f->n;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (f->pair[mid].fold < fold)
            low = mid + 1;
        else
            high = mid;
    }
    return low < f->n && f->pair[low].fold == fold ? low : f->n;
}

static void fold_ascii(struct qr_runes *out, int32_t c)
{
    const int32_t lower = c | 0x20;
    if (lower < 'a' || lower > 'z')
        return;
    qr_runes_add(out, c ^ 0x20, c ^ 0x20);
    if (lower == 'k' || lower == 's')
        qr_runes_add(out, lower == 'k' ? KELVIN : LONG_S, lower == 'k' ? KELVIN : LONG_S);
}

static void fold_one(struct qr_runes *out, struct qr_folds *f, int32_t c)
{
    if (c < 0x80) {
        fold_ascii(out, c);
        return;
    }
    if (c > QR_CASED_MAX)
        return;
    if (f->n == 0)
        make_folds(f);
    const int32_t fold = qr_case_fold(c);
    qr_runes_add(out, fold, fold);
    for (int32_t i = find_fold(f, fold); i < f->n && f->pair[i].fold == fold; i++)
        qr_runes_add(out, f->pair[i].rune, f->pair[i].rune);
}

/* All groups of characters that are one but for case: where r holds one of them, all are added. */
static void fold_groups(struct qr_runes *out, const struct qr_runes *r, struct qr_folds *f)
{
    if (f->n == 0)
        make_folds(f);
    for (int32_t i = 0, end; i < f->n; i = end) {
        const int32_t fold = f->pair[i].fold;
        bool holds = qr_runes_hold(r, fold);
        for (end = i; end < f->n && f->pair[end].fold == fold; end++)
            holds |= qr_runes_hold(r, f->pair[end].rune);
        if (!holds)
            continue;
        qr_runes_add(out, fold, fold);
        for (int32_t k = i; k < end; k++)
            qr_runes_add(out, f->pair[k].rune, f->pair[k].rune);
    }
}

void qr_runes_fold(struct qr_runes *r, struct qr_folds *f)
{
    struct qr_runes more = {0};
    int64_t size = 0;
    QR_ASSERT(r != NULL && f != NULL);
    for (int32_t i = 0; i < r->n; i++)
        size += r->range[i].last - r->range[i].first + 1;
    if (size > SINGLE_MAX)
        fold_groups(&more, r, f);
    else
        for (int32_t i = 0; i < r->n; i++)
            for (int32_t c = r->range[i].first; c <= r->range[i].last; c++)
                fold_one(&more, f, c);
    qr_runes_add_all(r, more.range, more.n);
    qr_runes_release(&more);
    qr_runes_settle(r);
}
