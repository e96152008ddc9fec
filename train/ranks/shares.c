#include "train/ranks/shares.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

static const char layers[] = "model.layers.";

/* The unit of a tensor of the model, or of one behind it. */
static int32_t unit_of(const struct qr_params *p, int32_t k)
{
    const struct qr_param *t = &p->param[k];
    if (t->extra)
        return QR_UNIT_LAYER + p->config.n_layers;
    if (strncmp(t->name, layers, sizeof layers - 1) == 0)
        return QR_UNIT_LAYER + (int32_t)strtol(t->name + sizeof layers - 1, NULL, 10);
    return k == 0 ? QR_UNIT_EMBED : QR_UNIT_OUTSIDE;
}

void qr_shares_init(struct qr_shares *s, const struct qr_params *p, int32_t rank, int32_t size)
{
    QR_ASSERT(s != NULL && p != NULL && p->n_params > 1);
    QR_ASSERT(rank >= 0 && rank < size);
    const int32_t n_units = unit_of(p, p->n_params - 1) + 1;
    *s = (struct qr_shares){.rank = rank, .size = size, .n_units = n_units, .n_layers = p->config.n_layers};
    s->first = qr_alloc((size_t)n_units + 1, sizeof *s->first);
    s->leaf = qr_alloc((size_t)n_units + 1, sizeof *s->leaf);
    for (int32_t k = 1, u = 0; k < p->n_params; k++) {
        const int32_t at = unit_of(p, k);
        QR_ASSERT(at == u || at == u + 1);
        if (at > u)
            s->first[u = at] = p->param[k].first;
    }
    s->first[n_units] = p->n;
    for (int32_t u = 0; u < n_units; u++)
        s->leaf[u + 1] = s->leaf[u] + qr_sum_leaves(s->first[u + 1] - s->first[u]);
}

void qr_shares_release(struct qr_shares *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->n_units == 0 || s->first != NULL);
    qr_free(s->first);
    qr_free(s->leaf);
    *s = (struct qr_shares){0};
}

int64_t qr_shares_begin(const struct qr_shares *s, int32_t u, int32_t rank)
{
    QR_ASSERT(s != NULL && u >= 0 && u < s->n_units);
    QR_ASSERT(rank >= 0 && rank <= s->size);
    const int64_t n_leaves = s->leaf[u + 1] - s->leaf[u];
    return rank == s->size ? s->first[u + 1] : s->first[u] + n_leaves * rank / s->size * QR_SUM_LEAF;
}

static int32_t unit_at(const struct qr_shares *s, int64_t element)
{
    int32_t u = 0;
    while (s->first[u + 1] <= element)
        u++;
    return u;
}

bool qr_shares_clip(const struct qr_shares *s, int32_t rank, int64_t *a, int64_t *b)
{
    QR_ASSERT(s != NULL && a != NULL && b != NULL);
    QR_ASSERT(*a >= 0 && *a <= *b && *b <= s->first[s->n_units]);
    if (*a == *b)
        return false;
    const int32_t u = unit_at(s, *a);
    QR_ASSERT(*b <= s->first[u + 1]);
    const int64_t begin = qr_shares_begin(s, u, rank), end = qr_shares_begin(s, u, rank + 1);
    *a = *a > begin ? *a : begin;
    *b = *b < end ? *b : end;
    *b = *b > *a ? *b : *a;
    return *b > *a;
}

int64_t qr_shares_n_foreign(const struct qr_shares *s, int32_t u)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(u >= 0 && u < s->n_units);
    return s->first[u + 1] - s->first[u] - (qr_shares_begin(s, u, s->rank + 1) - qr_shares_begin(s, u, s->rank));
}

int64_t qr_shares_n_own(const struct qr_shares *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->n_units > 0);
    int64_t n = s->first[s->n_units];
    for (int32_t u = 0; u < s->n_units; u++)
        n -= qr_shares_n_foreign(s, u);
    return n;
}

void qr_shares_cut(const struct qr_shares *s, void *array, size_t size)
{
    QR_ASSERT(s != NULL && array != NULL);
    QR_ASSERT(size > 0);
    const size_t n_bytes = (size_t)s->first[s->n_units] * size;
    for (int32_t u = 0; s->size > 1 && u < s->n_units; u++)
        for (int32_t end = 0; end < 2; end++)
            qr_mem_cut(array, n_bytes, (size_t)qr_shares_begin(s, u, s->rank + end) * size);
}

void qr_shares_drop_foreign(const struct qr_shares *s, void *array, size_t size, int64_t a, int64_t b)
{
    QR_ASSERT(s != NULL && array != NULL && size > 0);
    QR_ASSERT(a >= 0 && a <= b);
    int64_t begin = a, end = b;
    if (!qr_shares_clip(s, s->rank, &begin, &end))
        begin = end = b;
    qr_mem_drop((char *)array + (size_t)a * size, (size_t)(begin - a) * size);
    qr_mem_drop((char *)array + (size_t)end * size, (size_t)(b - end) * size);
}
