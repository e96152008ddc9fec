/* tune.c - the table: open addressing over a few hundred shapes at most, keys and values side by side. */
#include "kernels/tune.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define CAP_MIN 64 /* a power of two, as every capacity */

const int32_t qr_tune_bucket_rows[QR_TUNE_BUCKETS] = {1, 4, 16, 32, 128, INT32_MAX};

#define AT(field) #field, offsetof(struct qr_tunables, field)
#define ALL_PRODUCTS (QR_USE_VECTORS | QR_USE_INTEGERS | QR_USE_TILES | QR_USE_TILES_FEW)
const struct qr_tune_field qr_tune_fields[QR_TUNE_FIELDS] = {
    {AT(unit), 1, 2, QR_USE_EITHER, {1, 2}},
    {AT(block_rows), 1, 32, QR_USE_VECTORS | QR_USE_INTEGERS | QR_USE_TILES, {4, 6, 8, 16, 32}},
    {AT(items_per_thread), 1, 64, ALL_PRODUCTS | QR_USE_ATTENTION, {2, 3, 4, 6, 8, 12, 24}},
    {AT(item_panels), 1, 256, ALL_PRODUCTS, {4, 8, 16, 32, 64}},
    {AT(slice_steps), 1, 1024, QR_USE_TILES, {6, 9, 12, 18, 36}},
    {AT(ahead_lines), 1, 1024, QR_USE_INTEGERS | QR_USE_TILES_FEW, {32, 64, 96, 192, 256, 512}},
    {AT(chunk_rows), 16, 1024, QR_USE_TILES | QR_USE_INTEGERS, {128, 256, 512}},
    {AT(spread), 1, 2, ALL_PRODUCTS | QR_USE_ATTENTION, {1, 2}},
    {AT(pack_spread), 1, 2, ALL_PRODUCTS, {1, 2}},
    {AT(queries), 1, 256, QR_USE_ATTENTION, {32, 64, 96, 128, 256}},
    {AT(owned_rows), 1, 512, QR_USE_CHAIN, {1, 64, 96, 128, 192, 256, 512}},
    {AT(item_elements), 512, 262144, QR_USE_ATTENTION, {2048, 4096, 16384, 65536}},
};

struct entry {
    struct qr_tune_key key;
    bool used;
    struct qr_tunables value;
};

struct qr_tune {
    const char *level;
    struct entry *entry; /* owned [cap] */
    int32_t n_threads, n, cap;
};

int32_t qr_tune_bucket(int32_t n_rows)
{
    int32_t b = 0;
    while (n_rows > qr_tune_bucket_rows[b])
        b++;
    return b;
}

struct qr_tune *qr_tune_new(const char *level, int32_t n_threads)
{
    QR_ASSERT(level != NULL);
    QR_ASSERT(n_threads >= 1);
    struct qr_tune *t = qr_alloc(1, sizeof *t);
    *t = (struct qr_tune){.level = level, .n_threads = n_threads};
    return t;
}

void qr_tune_free(struct qr_tune *t)
{
    if (!t)
        return;
    qr_free(t->entry);
    qr_free(t);
}

const char *qr_tune_level(const struct qr_tune *t)
{
    QR_ASSERT(t != NULL);
    return t->level;
}

int32_t qr_tune_threads(const struct qr_tune *t)
{
    QR_ASSERT(t != NULL);
    return t->n_threads;
}

int32_t qr_tune_count(const struct qr_tune *t)
{
    return t ? t->n : 0;
}

bool qr_tune_same_key(const struct qr_tune_key *x, const struct qr_tune_key *y)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(y != NULL);
    return x->a == y->a && x->b == y->b && x->c == y->c && x->op == y->op && x->type == y->type && x->bucket == y->bucket;
}

static uint32_t hash_of(const struct qr_tune_key *k)
{
    uint64_t h = (uint32_t)k->a | (uint64_t)(uint32_t)k->b << 32;
    h = (h ^ (uint64_t)k->c << 13 ^ (uint64_t)k->bucket << 56 ^ (uint64_t)k->type << 24 ^ (uint64_t)k->op << 48) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

/* The key's entry, or the unused one where it would be. */
static struct entry *slot_of(const struct qr_tune *t, const struct qr_tune_key *key)
{
    QR_ASSERT(t->n < t->cap);
    uint32_t i = hash_of(key), mask = (uint32_t)t->cap - 1;
    while (t->entry[i & mask].used && !qr_tune_same_key(&t->entry[i & mask].key, key))
        i++;
    return &t->entry[i & mask];
}

const struct qr_tunables *qr_tune_find(const struct qr_tune *t, struct qr_tune_key key)
{
    static const struct qr_tunables none;
    if (!t || t->n == 0)
        return &none;
    const struct entry *e = slot_of(t, &key);
    return e->used ? &e->value : &none;
}

static void grow(struct qr_tune *t)
{
    struct entry *old = t->entry;
    const int32_t n = t->cap;
    t->cap = n ? 2 * n : CAP_MIN;
    t->entry = qr_alloc((size_t)t->cap, sizeof *t->entry);
    for (int32_t i = 0; i < n; i++)
        if (old[i].used)
            *slot_of(t, &old[i].key) = old[i];
    qr_free(old);
}

bool qr_tune_valid(const struct qr_tune_key *key, const struct qr_tunables *value)
{
    QR_ASSERT(key != NULL);
    QR_ASSERT(value != NULL);
    struct qr_tunables v = *value;
    for (int f = 0; f < QR_TUNE_FIELDS; f++) {
        const int32_t n = *qr_tune_value(&v, f);
        if (n != 0 && (n < qr_tune_fields[f].min || n > qr_tune_fields[f].max))
            return false;
    }
    if (key->bucket >= QR_TUNE_BUCKETS || key->type >= QR_DTYPE_COUNT || key->a <= 0 || key->b <= 0)
        return false;
    return key->op == QR_TUNE_LINEAR ? key->c == 0 : (key->op == QR_TUNE_ATTENTION || key->op == QR_TUNE_CHAIN) && key->c > 0;
}

bool qr_tune_set(struct qr_tune *t, struct qr_tune_key key, const struct qr_tunables *value)
{
    QR_ASSERT(t != NULL && value != NULL);
    QR_ASSERT(qr_tune_valid(&key, value));
    if (2 * (t->n + 1) > t->cap)
        grow(t);
    struct entry *e = slot_of(t, &key);
    if (!e->used && t->n == QR_TUNE_SHAPES_MAX)
        return false;
    t->n += !e->used;
    *e = (struct entry){.key = key, .used = true, .value = *value};
    return true;
}

void qr_tune_merge(struct qr_tune *t, const struct qr_tune *from)
{
    QR_ASSERT(t != NULL && from != NULL);
    QR_ASSERT(t != from);
    for (int32_t i = 0; i < from->cap; i++)
        if (from->entry[i].used)
            qr_tune_set(t, from->entry[i].key, &from->entry[i].value);
}

static bool key_before(const struct qr_tune_key *x, const struct qr_tune_key *y)
{
    const int64_t a[] = {x->op, x->type, x->a, x->b, x->c, x->bucket}, b[] = {y->op, y->type, y->a, y->b, y->c, y->bucket};
    for (int i = 0; i < QR_COUNT(a); i++)
        if (a[i] != b[i])
            return a[i] < b[i];
    return false;
}

static int compare_shapes(const void *x, const void *y)
{
    const struct qr_tune_shape *a = x, *b = y;
    return key_before(&a->key, &b->key) ? -1 : key_before(&b->key, &a->key);
}

struct qr_tune_shape *qr_tune_sorted(const struct qr_tune *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->n <= QR_TUNE_SHAPES_MAX);
    struct qr_tune_shape *all = qr_alloc((size_t)t->n, sizeof *all);
    int32_t n = 0;
    for (int32_t i = 0; i < t->cap; i++)
        if (t->entry[i].used)
            all[n++] = (struct qr_tune_shape){t->entry[i].key, t->entry[i].value};
    QR_ASSERT(n == t->n);
    qsort(all, (size_t)n, sizeof *all, compare_shapes);
    return all;
}

uint32_t qr_tune_uses(const struct qr_tune *t, struct qr_tune_key key)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(key.bucket < QR_TUNE_BUCKETS);
    const bool tiles = strcmp(t->level, "amx") == 0;
    if (!tiles && strcmp(t->level, "avx512") != 0 && strcmp(t->level, "avx2") != 0)
        return 0;
    if (key.op == QR_TUNE_ATTENTION)
        return QR_USE_ATTENTION;
    const enum qr_dtype type = (enum qr_dtype)key.type;
    if (key.op == QR_TUNE_CHAIN)
        return tiles && type != QR_F32 && qr_tune_bucket_rows[key.bucket] > 32 ? QR_USE_CHAIN : 0;
    const bool integers = qr_dtype_is_quantized(type);
    const uint32_t own_tiles = qr_tune_bucket_rows[key.bucket] <= 32 ? QR_USE_TILES_FEW : QR_USE_TILES;
    if (integers)
        return tiles ? QR_USE_EITHER | QR_USE_INTEGERS | own_tiles : QR_USE_INTEGERS;
    return tiles && type != QR_F32 ? own_tiles : QR_USE_VECTORS;
}
