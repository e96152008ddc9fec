#include "base/map.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

static uint32_t hash_of(const struct qr_map *m, const char *key, size_t len)
{
    return (uint32_t)qr_hash64(key, len, m->seed);
}

/* The slot that holds the key, or the empty slot where it belongs. */
static struct qr_map_slot *probe(const struct qr_map *m, const char *key, size_t len, uint32_t hash)
{
    for (uint32_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct qr_map_slot *s = &m->slot[i];
        if (!s->key || (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0))
            return s;
    }
}

static void resize(struct qr_map *m, uint32_t cap)
{
    struct qr_map old = *m;
    m->slot = qr_alloc(cap, sizeof *m->slot);
    m->cap = cap;
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.slot[i].key)
            *probe(m, old.slot[i].key, old.slot[i].len, old.slot[i].hash) = old.slot[i];
    qr_free(old.slot);
}

void qr_map_init(struct qr_map *m, size_t n_expected)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(n_expected < (1u << 29));
    *m = (struct qr_map){.seed = qr_rng_seed_random()};
    uint32_t cap = 16;
    while (cap < n_expected + n_expected / 2)
        cap *= 2;
    resize(m, cap);
}

void qr_map_release(struct qr_map *m)
{
    qr_free(m->slot);
    *m = (struct qr_map){0};
}

bool qr_map_add(struct qr_map *m, const char *key, size_t len, int32_t value)
{
    QR_ASSERT(key != NULL);
    QR_ASSERT(len < UINT32_MAX);
    if (m->n + m->n / 2 >= m->cap)
        resize(m, m->cap * 2);
    uint32_t hash = hash_of(m, key, len);
    struct qr_map_slot *s = probe(m, key, len, hash);
    if (s->key)
        return false;
    *s = (struct qr_map_slot){.key = key, .len = (uint32_t)len, .hash = hash, .value = value};
    m->n++;
    return true;
}

int32_t qr_map_find(const struct qr_map *m, const char *key, size_t len, int32_t missing)
{
    QR_ASSERT(key != NULL);
    if (m->n == 0)
        return missing;
    const struct qr_map_slot *s = probe(m, key, len, hash_of(m, key, len));
    return s->key ? s->value : missing;
}
