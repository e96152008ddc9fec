/* dialect.c - a dialect as others see it. Immutable once made; any thread may read it. */
#include <stdio.h>

#include "answers/dialect/reader.h"

struct qr_dialect *qr_dialect_named(const char *name)
{
    QR_ASSERT(name != NULL);
    const struct qr_dialect *row = qr_family_find(name);
    if (!row)
        return NULL;
    struct qr_dialect *d = qr_alloc(1, sizeof *d);
    *d = *row;
    d->is_row = false;
    d->name = qr_dialect_keep(d, name, strlen(name));
    return d;
}

struct qr_dialect *qr_dialect_of_tags(const char *start, const char *end)
{
    QR_ASSERT(start != NULL && end != NULL);
    struct qr_dialect *d = qr_alloc(1, sizeof *d);
    size_t n = strlen(start);
    d->name = "tags";
    d->think_end = qr_dialect_keep(d, end, strlen(end));
    const char *close = strrchr(start, '>'); /* what stands behind the marker is a label */
    if (close && close[1]) {
        d->think_label = qr_dialect_keep(d, close + 1, strlen(close + 1));
        n = (size_t)(close - start) + 1;
    }
    d->think_start = qr_dialect_keep(d, start, n);
    d->think_open = qr_dialect_keep(d, start, strlen(start));
    return d;
}

void qr_dialect_free(struct qr_dialect *d)
{
    if (!d)
        return;
    for (int32_t i = 0; i < d->n_text; i++)
        qr_free(d->text[i]);
    qr_free(d->text);
    qr_free(d);
}

const char *qr_dialect_keep(struct qr_dialect *d, const char *s, size_t len)
{
    QR_ASSERT(d != NULL && s != NULL);
    char *copy = qr_alloc(len + 1, 1);
    memcpy(copy, s, len);
    d->text = qr_realloc(d->text, (size_t)d->n_text + 1, sizeof *d->text);
    d->text[d->n_text++] = copy;
    return copy;
}

const char *qr_dialect_name(const struct qr_dialect *d)
{
    QR_ASSERT(d != NULL);
    return qr_text_of(d->name);
}

bool qr_dialect_short_ids(const struct qr_dialect *d)
{
    QR_ASSERT(d != NULL);
    return d->short_ids;
}

bool qr_dialect_has_tools(const struct qr_dialect *d)
{
    QR_ASSERT(d != NULL);
    return d->shows_tools;
}

bool qr_dialect_has_reasoning(const struct qr_dialect *d)
{
    QR_ASSERT(d != NULL);
    return d->think_end && *d->think_end;
}

const char *qr_dialect_think_start(const struct qr_dialect *d)
{
    QR_ASSERT(d != NULL);
    return qr_text_of(d->think_start);
}

const char *qr_dialect_think_end(const struct qr_dialect *d)
{
    QR_ASSERT(d != NULL);
    return qr_text_of(d->think_end);
}

/* The last place of `text` in s[0..n) behind byte `from`, or -1. */
static int64_t last_of(const char *s, size_t n, size_t from, const char *text)
{
    const size_t len = strlen(text);
    for (size_t i = n >= len ? n - len + 1 : 0; len > 0 && i > from; i--)
        if (memcmp(s + i - 1, text, len) == 0)
            return (int64_t)i - 1;
    return -1;
}

bool qr_dialect_starts_inside(const struct qr_dialect *d, const char *prompt, size_t len)
{
    QR_ASSERT(d != NULL && (len == 0 || prompt != NULL));
    if (!qr_dialect_has_reasoning(d) || d->heads.start || !qr_text_of(d->think_start)[0])
        return false;
    const int64_t start = last_of(prompt, len, 0, d->think_start);
    if (start < 0)
        return false;
    size_t i = (size_t)start + strlen(d->think_start);
    const char *label = qr_text_of(d->think_label);
    if (*label && qr_match_exactly(prompt + i, len - i, label, strlen(label)) == QR_MATCH_FULL)
        i += strlen(label);
    i += qr_blanks(prompt + i, len - i);
    if (i == len)
        return true;
    /* Reasoning that a client begins for the model: it stands behind the turn's head, and is not closed. */
    const int64_t turn = d->turn && *d->turn ? last_of(prompt, len, 0, d->turn) : -1;
    return turn >= 0 && start > turn && last_of(prompt, len, (size_t)start, d->think_end) < 0;
}

bool qr_dialect_think_opened(const struct qr_dialect *d)
{
    QR_ASSERT(d != NULL);
    return d->think_opened;
}
