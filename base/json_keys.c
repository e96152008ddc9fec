#include "base/json_keys.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define FEW 8 /* up to so many keys are compared one by one */

struct qr_json_key_slot {
    uint32_t generation, hash;
    size_t entry;
};

void qr_json_keys_release(struct qr_json_keys *k)
{
    QR_ASSERT(k != NULL);
    for (int i = 0; i < QR_JSON_DEPTH_MAX; i++)
        qr_free(k->table[i].slot);
    qr_free(k->entry);
    qr_buf_release(&k->unescaped);
    *k = (struct qr_json_keys){0};
}

struct qr_json_keys_mark qr_json_keys_open(const struct qr_json_keys *k)
{
    return (struct qr_json_keys_mark){.n = k->n, .unescaped = k->unescaped.len};
}

void qr_json_keys_close(struct qr_json_keys *k, struct qr_json_keys_mark mark)
{
    QR_ASSERT(mark.n <= k->n);
    QR_ASSERT(mark.unescaped <= k->unescaped.len);
    k->n = mark.n;
    k->unescaped.len = mark.unescaped;
}

static const char *text_of(const struct qr_json_keys *k, const struct qr_json_key_entry *e)
{
    return e->text ? e->text : k->unescaped.data + e->at;
}

static bool same(const struct qr_json_keys *k, const struct qr_json_key_entry *a, const struct qr_json_key_entry *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(text_of(k, a), text_of(k, b), a->len) == 0);
}

static uint32_t hash_of(const struct qr_json_keys *k, const struct qr_json_key_entry *e)
{
    return (uint32_t)qr_hash128_keyed(text_of(k, e), e->len, &k->secret).lo;
}

/* The slot with an equal key, or the empty slot where it belongs. */
static struct qr_json_key_slot *probe(const struct qr_json_keys *k, const struct qr_json_key_table *t,
                                      const struct qr_json_key_entry *e, uint32_t hash)
{
    uint32_t mask = t->cap - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        struct qr_json_key_slot *s = &t->slot[i];
        if (s->generation != t->generation || (s->hash == hash && same(k, &k->entry[s->entry], e)))
            return s;
    }
}

/* Makes the table at least twice as large as n keys need, keeping the keys of the current generation. */
static void grow(struct qr_json_key_table *t, size_t n)
{
    struct qr_json_key_table old = *t;
    QR_ASSERT(n < ((uint32_t)1 << 29));
    uint32_t cap = old.cap ? old.cap : 32;
    while (cap < 2 * n)
        cap *= 2;
    t->slot = qr_alloc(cap, sizeof *t->slot);
    t->cap = cap;
    t->generation = 1;
    for (uint32_t i = 0; i < old.cap; i++) {
        if (old.slot[i].generation != old.generation)
            continue;
        uint32_t at = old.slot[i].hash & (cap - 1);
        while (t->slot[at].generation == 1)
            at = (at + 1) & (cap - 1);
        t->slot[at] = old.slot[i];
        t->slot[at].generation = 1;
    }
    qr_free(old.slot);
}

static void begin_generation(struct qr_json_key_table *t)
{
    if (t->generation == UINT32_MAX) {
        memset(t->slot, 0, t->cap * sizeof *t->slot);
        t->generation = 0;
    }
    t->generation++;
}

/* The object's n keys are in entry[first..first+n); the last of them is the one that is asked about. */
static bool add_to_table(struct qr_json_keys *k, struct qr_json_key_table *t, size_t first, size_t n, size_t *same_as)
{
    size_t from = n - 1;
    if (n == FEW + 1) { /* the table is new to this object */
        if (!k->has_secret)
            qr_hash_secret_random(&k->secret);
        k->has_secret = true;
        begin_generation(t);
        from = 0;
    }
    if (t->cap < n + n / 2)
        grow(t, n);
    for (size_t i = from; i < n; i++) {
        const struct qr_json_key_entry *e = &k->entry[first + i];
        uint32_t hash = hash_of(k, e);
        struct qr_json_key_slot *s = probe(k, t, e, hash);
        if (s->generation == t->generation) {
            *same_as = s->entry;
            return false;
        }
        *s = (struct qr_json_key_slot){.generation = t->generation, .hash = hash, .entry = first + i};
    }
    return true;
}

bool qr_json_keys_add(struct qr_json_keys *k, struct qr_json_keys_mark mark, int32_t depth,
                      const struct qr_json_token *key, size_t *first_offset)
{
    QR_ASSERT(depth >= 0 && depth < QR_JSON_DEPTH_MAX);
    QR_ASSERT(mark.n <= k->n && first_offset != NULL);
    k->entry = QR_GROW(k->entry, k->n, k->cap);
    struct qr_json_key_entry *e = &k->entry[k->n++];
    *e = (struct qr_json_key_entry){.text = key->text, .len = key->len, .offset = key->offset};
    if (key->escaped) {
        e->text = NULL;
        e->at = k->unescaped.len;
        qr_json_unescape(&k->unescaped, key);
        e->len = k->unescaped.len - e->at;
    }
    size_t n = k->n - mark.n, same_as = 0;
    bool fresh = true;
    if (n > FEW)
        fresh = add_to_table(k, &k->table[depth], mark.n, n, &same_as);
    for (size_t i = mark.n; n <= FEW && fresh && i + 1 < k->n; i++)
        if (same(k, &k->entry[i], e)) {
            same_as = i;
            fresh = false;
        }
    if (!fresh)
        *first_offset = k->entry[same_as].offset;
    return fresh;
}
