#include "engine/draft/history.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define TRIES_MAX 24 /* places that one look-up compares */

int64_t qr_history_bytes(uint32_t window)
{
    return 2 * (int64_t)window * (int64_t)sizeof(uint32_t);
}

/* Steps meet no page that the system has to provide first. */
static uint32_t *array_of(uint32_t n)
{
    uint32_t *array = qr_alloc_aligned((size_t)n * sizeof *array, 64);
    qr_mem_populate(array, (size_t)n * sizeof *array);
    return array;
}

void qr_history_init(struct qr_history *h, uint32_t window)
{
    QR_ASSERT(h != NULL);
    QR_ASSERT(window > 0 && (window & (window - 1)) == 0);
    *h = (struct qr_history){.window = window, .newest = array_of(window), .earlier = array_of(window)};
}

void qr_history_release(struct qr_history *h)
{
    QR_ASSERT(h != NULL);
    qr_free_aligned(h->newest);
    qr_free_aligned(h->earlier);
    *h = (struct qr_history){0};
}

static uint32_t slot_of(const struct qr_history *h, int32_t a, int32_t b, int32_t c, uint64_t seed)
{
    uint64_t x = seed ^ ((uint64_t)(uint32_t)a << 32 | (uint32_t)b);
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u + (uint32_t)c;
    x = (x ^ x >> 32) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32) & (h->window - 1);
}

void qr_history_note(struct qr_history *h, const struct qr_text *t, uint32_t place, uint64_t seed)
{
    QR_ASSERT(h != NULL && t != NULL);
    QR_ASSERT(t->end - place < INT32_MAX && (place >= QR_GRAM || t->mask != UINT32_MAX));
    const uint32_t slot = slot_of(h, t->id[(place - 3) & t->mask], t->id[(place - 2) & t->mask], t->id[(place - 1) & t->mask], seed);
    h->earlier[place & (h->window - 1)] = h->newest[slot];
    h->newest[slot] = place;
}

int32_t qr_history_equal(const struct qr_text *t, uint32_t place, const int32_t *last, uint32_t n)
{
    uint32_t most = n < QR_MATCH_MAX ? n : QR_MATCH_MAX, i = 0;
    if (t->mask == UINT32_MAX && place < most)
        most = place;
    while (i < most && t->id[(place - 1 - i) & t->mask] == last[-1 - (int64_t)i])
        i++;
    return (int32_t)i;
}

/* Whether the ids before the place are there, and the asker's. */
static bool readable(const struct qr_text *t, uint32_t place, const struct qr_hash128 *owner)
{
    if (t->end - place > t->mask || place == 0)
        return false;
    if (!t->owner)
        return true;
    const struct qr_hash128 *of = &t->owner[((place - 1) & t->mask) / QR_OWNED_IDS];
    return of->lo == owner->lo && of->hi == owner->hi;
}

void qr_history_find(const struct qr_history *h, const struct qr_text *t, const int32_t *last, uint32_t n, uint64_t seed, const struct qr_hash128 *owner,
                     struct qr_match *m)
{
    QR_ASSERT(h != NULL && t != NULL && last != NULL && m != NULL);
    QR_ASSERT(!t->owner || owner);
    m->n = m->n_equal = 0;
    if (n < QR_GRAM)
        return;
    uint32_t place = h->newest[slot_of(h, last[-3], last[-2], last[-1], seed)], before = t->end;
    for (int i = 0; i < TRIES_MAX && place != 0 && before - place - 1 < INT32_MAX && t->end - place <= t->mask; i++) {
        const int32_t n_equal = readable(t, place, owner) ? qr_history_equal(t, place, last, n) : 0;
        if (n_equal >= QR_GRAM && n_equal > m->n_equal) {
            m->n_equal = n_equal;
            m->n = 0;
        }
        if (n_equal >= QR_GRAM && n_equal == m->n_equal && m->n < QR_PLACES_MAX)
            m->at[m->n++] = place;
        if (m->n == QR_PLACES_MAX && m->n_equal == QR_MATCH_MAX)
            return;
        before = place;
        place = h->earlier[place & (h->window - 1)];
    }
}

/* The j-th id behind a place, ids[0..j) being guessed; -1: none. */
static int32_t next_id(const struct qr_text *t, uint32_t at, int32_t j, const int32_t *ids)
{
    const uint32_t place = at + (uint32_t)j, left = t->end - at;
    if (at < t->wall && place >= t->wall)
        return -1;
    return (uint32_t)j < left ? t->id[place & t->mask] : ids[(uint32_t)j - left];
}

int32_t qr_history_follow(const struct qr_text *t, const struct qr_match *m, int32_t *ids, float *share, int32_t n_max)
{
    QR_ASSERT(t != NULL && m != NULL);
    QR_ASSERT(m->n >= 0 && m->n <= QR_PLACES_MAX);
    uint32_t at[QR_PLACES_MAX];
    int32_t n_at = m->n, n = 0;
    memcpy(at, m->at, sizeof at);
    for (; n < n_max && n_at > 0; n++) {
        int32_t next[QR_PLACES_MAX], best = 0, votes = 0, kept = 0;
        for (int32_t i = 0; i < n_at; i++)
            next[i] = next_id(t, at[i], n, ids);
        for (int32_t i = 0; i < n_at; i++) {
            int32_t same = 0;
            for (int32_t j = i; j < n_at; j++)
                same += next[j] == next[i];
            if (same > votes) {
                votes = same;
                best = next[i];
            }
        }
        if (best < 0)
            break;
        ids[n] = best;
        share[n] = (float)votes / (float)n_at;
        for (int32_t i = 0; i < n_at; i++)
            if (next[i] == best)
                at[kept++] = at[i];
        n_at = kept;
    }
    return n;
}
