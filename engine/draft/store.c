#include "engine/draft/store.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

/* Ids of the largest ring within bytes_max: a power of two; 0 where an answer would not fit. */
static uint32_t ring_ids(int64_t bytes_max)
{
    uint32_t n = 2 * QR_STORED_MAX;
    const int64_t each = (int64_t)sizeof(int32_t) + qr_history_bytes(1), blocks = (int64_t)sizeof(struct qr_hash128);
    if ((int64_t)n * each + n / QR_OWNED_IDS * blocks > bytes_max)
        return 0;
    while (n < 1u << 30 && 2 * (int64_t)n * each + 2 * (int64_t)n / QR_OWNED_IDS * blocks <= bytes_max)
        n *= 2;
    return n;
}

int64_t qr_store_bytes(int64_t bytes_max)
{
    const uint32_t n = ring_ids(bytes_max);
    return n ? (int64_t)n * (int64_t)sizeof(int32_t) + qr_history_bytes(n) + n / QR_OWNED_IDS * (int64_t)sizeof(struct qr_hash128) : 0;
}

void qr_store_init(struct qr_store *s, int64_t bytes_max)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(bytes_max >= 0);
    const uint32_t n = ring_ids(bytes_max);
    *s = (struct qr_store){0};
    if (n == 0)
        return;
    s->id = qr_alloc_aligned((size_t)n * sizeof *s->id, 64);
    s->owner = qr_alloc_aligned((size_t)n / QR_OWNED_IDS * sizeof *s->owner, 64);
    qr_mem_populate(s->id, (size_t)n * sizeof *s->id);
    qr_mem_populate(s->owner, (size_t)n / QR_OWNED_IDS * sizeof *s->owner);
    s->text = (struct qr_text){.id = s->id, .mask = n - 1, .end = QR_OWNED_IDS, .owner = s->owner};
    s->id[QR_OWNED_IDS - 1] = -1;
    s->n_indexed = s->text.end;
    qr_history_init(&s->index, n);
}

void qr_store_release(struct qr_store *s)
{
    QR_ASSERT(s != NULL);
    if (s->id)
        qr_history_release(&s->index);
    qr_free_aligned(s->id);
    qr_free_aligned(s->owner);
    *s = (struct qr_store){0};
}

/* An answer begins with a block of its own and ends with at least one -1, so that no match and nothing that follows one leaves it. */
void qr_store_put(struct qr_store *s, const int32_t *ids, int32_t n, const struct qr_hash128 *salt)
{
    QR_ASSERT(s != NULL && ids != NULL && salt != NULL);
    QR_ASSERT(n >= 0);
    if (!s->id || n <= QR_GRAM)
        return;
    const int32_t kept = n < QR_STORED_MAX ? n : QR_STORED_MAX;
    const uint32_t taken = (uint32_t)qr_align_up((size_t)kept + 1, QR_OWNED_IDS), from = s->text.end;
    for (uint32_t i = 0; i < taken; i++)
        s->id[(from + i) & s->text.mask] = i < (uint32_t)kept ? ids[n - kept + (int32_t)i] : -1;
    for (uint32_t i = 0; i < taken; i += QR_OWNED_IDS)
        s->owner[((from + i) & s->text.mask) / QR_OWNED_IDS] = *salt;
    s->text.end = from + taken;
    if (s->text.end - s->n_indexed > s->text.mask)
        s->n_indexed = from;
}

static uint64_t seed_of(const struct qr_hash128 *salt)
{
    return salt->lo ^ (salt->hi << 1 | 1);
}

int32_t qr_store_index(struct qr_store *s, int32_t n_max)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(n_max >= 0);
    const struct qr_text *t = &s->text;
    int32_t n = 0;
    for (; s->id && n < n_max && s->n_indexed != t->end; n++) {
        const uint32_t place = s->n_indexed++;
        bool whole = true;
        for (uint32_t i = 0; i <= QR_GRAM; i++)
            whole = whole && s->id[(place - i) & t->mask] >= 0;
        if (whole)
            qr_history_note(&s->index, t, place, seed_of(&s->owner[(place & t->mask) / QR_OWNED_IDS]));
    }
    return n;
}

void qr_store_find(const struct qr_store *s, const int32_t *last, uint32_t n, const struct qr_hash128 *salt, struct qr_match *m)
{
    QR_ASSERT(s != NULL && salt != NULL);
    QR_ASSERT(m != NULL);
    m->n = m->n_equal = 0;
    if (s->id)
        qr_history_find(&s->index, &s->text, last, n, seed_of(salt), salt, m);
}
