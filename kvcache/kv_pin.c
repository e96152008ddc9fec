#include "kvcache/kv_pin.h"

#include <string.h>

#include "base/mem.h"
#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"

#define LISTED_PER_BLOCK 4 /* prefixes that begin alike list the same blocks */

size_t qr_kv_pins_bytes(int32_t n_blocks, int32_t n_blocks_max)
{
    QR_ASSERT(n_blocks >= 1);
    QR_ASSERT(n_blocks_max >= 0 && n_blocks_max < n_blocks);
    return sizeof(struct qr_kv_pins) + (size_t)n_blocks + LISTED_PER_BLOCK * (size_t)n_blocks_max * sizeof(int32_t);
}

void qr_kv_pins_open(struct qr_kv_pool *p, int32_t n_blocks_max)
{
    QR_ASSERT(p != NULL && p->pins == NULL);
    QR_ASSERT(n_blocks_max >= 0 && n_blocks_max < p->n_blocks);
    struct qr_kv_pins *pins = qr_alloc(1, sizeof *pins);
    pins->n_blocks_max = n_blocks_max;
    pins->n_listed_max = LISTED_PER_BLOCK * n_blocks_max;
    pins->n_of = qr_alloc((size_t)p->n_blocks, sizeof *pins->n_of);
    pins->listed = qr_alloc((size_t)pins->n_listed_max, sizeof *pins->listed);
    p->pins = pins;
}

void qr_kv_pins_close(struct qr_kv_pins *pins)
{
    if (pins == NULL)
        return;
    qr_free(pins->n_of);
    qr_free(pins->listed);
    qr_free(pins);
}

/* The block of the first tier by which the content of `own` is found behind `parent` (-1: a first block). */
static int32_t findable(struct qr_kv_pool *p, int32_t own, int32_t parent, const int32_t *tokens, struct qr_hash128 salt,
                        const struct qr_kv_name *root, int32_t about)
{
    const uint64_t parent_uid = parent >= 0 ? qr_kv_at(p, parent)->uid : 0;
    const struct qr_hash128 hash = qr_kv_chain(p, parent >= 0 ? qr_kv_at(p, parent)->hash : salt, tokens);
    const int32_t found = qr_kv_index_find(p, hash, parent_uid, salt, tokens);
    if (found >= 0 && found < p->n_blocks)
        return found;
    if (qr_kv_at(p, own)->indexed) /* behind a parent that is gone: nothing finds it there */
        qr_kv_index_drop(p, own);
    const bool entered = qr_kv_prefix_enter(p, own, parent, salt, tokens);
    QR_ASSERT(entered);
    qr_kv_name_enter(p, own, parent, root, tokens, about);
    return own;
}

static int32_t free_pin(const struct qr_kv_pins *pins)
{
    int32_t pin = 0;
    while (pin < QR_KV_PINS_MAX && pins->n[pin] > 0)
        pin++;
    return pin < QR_KV_PINS_MAX ? pin : -1;
}

int32_t qr_kv_pin_blocks(const struct qr_kv_pool *p, int32_t n)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n >= 0);
    return n + p->twins.n * (n < p->twins.n_kept ? n : p->twins.n_kept);
}

int32_t qr_kv_pin(struct qr_kv_pool *p, const int32_t *blocks, int32_t n, const int32_t *tokens, struct qr_hash128 salt, const struct qr_kv_name *root,
                  int32_t about)
{
    QR_ASSERT(p != NULL && p->pins != NULL && p->prefix_cache);
    QR_ASSERT(blocks != NULL && tokens != NULL && n >= 1);
    struct qr_kv_pins *pins = p->pins;
    const int32_t pin = free_pin(pins), n_all = qr_kv_pin_blocks(p, n);
    if (pin < 0 || n_all > pins->n_listed_max - pins->n_listed)
        return -1;
    int32_t *list = pins->listed + pins->n_listed, ids[QR_KV_BLOCK_TOKENS_MAX], n_fresh = 0, at = n;
    for (int32_t i = 0; i < n; i++) {
        QR_ASSERT(qr_kv_refs(p, blocks[i]) > 0);
        list[i] = findable(p, blocks[i], i > 0 ? list[i - 1] : -1, tokens + (size_t)i * (size_t)p->block_tokens, salt, root, about);
        for (int32_t k = 0; k < p->twins.n && i >= n - p->twins.n_kept; k++)
            list[at++] = findable(p, blocks[(1 + k) * p->twins.stride + i], list[i], qr_kv_twin_ids(ids, k), salt, root, about);
    }
    QR_ASSERT(at == n_all);
    for (int32_t i = 0; i < n_all; i++)
        n_fresh += pins->n_of[list[i]] == 0;
    if (n_fresh > pins->n_blocks_max - pins->n_blocks)
        return -1;
    for (int32_t i = 0; i < n_all; i++) {
        qr_kv_hold(p, list[i]);
        pins->n_of[list[i]]++;
    }
    pins->n_blocks += n_fresh;
    pins->first[pin] = pins->n_listed;
    pins->n[pin] = n_all;
    pins->n_listed += n_all;
    return pin;
}

void qr_kv_unpin(struct qr_kv_pool *p, int32_t pin)
{
    QR_ASSERT(p != NULL && p->pins != NULL);
    QR_ASSERT(pin >= 0 && pin < QR_KV_PINS_MAX && p->pins->n[pin] > 0);
    struct qr_kv_pins *pins = p->pins;
    const int32_t first = pins->first[pin], n = pins->n[pin];
    for (int32_t i = first + n - 1; i >= first; i--) {
        pins->n_blocks -= --pins->n_of[pins->listed[i]] == 0;
        qr_kv_unref(p, pins->listed[i]);
    }
    pins->n_listed -= n;
    memmove(pins->listed + first, pins->listed + first + n, (size_t)(pins->n_listed - first) * sizeof *pins->listed);
    pins->n[pin] = 0;
    for (int32_t i = 0; i < QR_KV_PINS_MAX; i++)
        pins->first[i] -= pins->n[i] > 0 && pins->first[i] > first ? n : 0;
}

int32_t qr_kv_pins_of(const struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks);
    return p->pins ? p->pins->n_of[block] : 0;
}

const char *qr_kv_pins_check(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    const struct qr_kv_pins *pins = p->pins;
    int32_t n_listed = 0, n_held = 0, n_blocks = 0;
    if (pins == NULL)
        return NULL;
    for (int32_t i = 0; i < QR_KV_PINS_MAX; i++)
        n_listed += pins->n[i];
    for (int32_t b = 0; b < p->n_blocks; b++) {
        if (pins->n_of[b] > qr_kv_at(p, b)->refs)
            return "a block has more pins than references";
        n_held += pins->n_of[b];
        n_blocks += pins->n_of[b] > 0;
    }
    if (n_listed != pins->n_listed || n_held != n_listed)
        return "the blocks of all pins do not add up";
    return n_blocks == pins->n_blocks && n_blocks <= pins->n_blocks_max ? NULL : "pinned blocks are counted wrong, or too many";
}
