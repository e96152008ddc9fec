#include "exchange/file_index.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum { NONE = -1 };

struct qr_file_index *qr_file_index_new(int32_t n_max)
{
    QR_ASSERT(n_max >= 1 && n_max <= INT32_MAX / 4);
    uint64_t n_slots = 16;
    while (n_slots < 2 * (uint64_t)n_max)
        n_slots *= 2;
    struct qr_file_index *x = qr_alloc(1, sizeof *x);
    *x = (struct qr_file_index){.mask = n_slots - 1, .seed = qr_rng_seed_random(), .n_max = n_max, .free = NONE};
    pthread_mutex_init(&x->lock, NULL);
    x->entry = qr_alloc_aligned((size_t)n_max * sizeof *x->entry, 64); /* a page costs nothing until it is used */
    x->slot = qr_alloc_aligned((size_t)n_slots * sizeof *x->slot, 64);
    for (int i = 0; i < QR_FILE_EXTENTS_MAX; i++)
        x->chain[i] = NONE;
    return x;
}

void qr_file_index_free(struct qr_file_index *x)
{
    if (!x)
        return;
    pthread_mutex_destroy(&x->lock);
    qr_free_aligned(x->entry);
    qr_free_aligned(x->slot);
    qr_free(x);
}

static uint64_t home(const struct qr_file_index *x, const struct qr_kv_name *name)
{
    return qr_hash64(name->byte, sizeof name->byte, x->seed) & x->mask;
}

/* The slot with this name, or the empty one where it would be. */
static uint64_t slot_of(const struct qr_file_index *x, const struct qr_kv_name *name)
{
    uint64_t at = home(x, name);
    while (x->slot[at] != 0 && memcmp(&x->entry[x->slot[at] - 1].name, name, sizeof *name) != 0)
        at = (at + 1) & x->mask;
    return at;
}

bool qr_file_index_find(struct qr_file_index *x, struct qr_file_place *out, const struct qr_kv_name *name)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(name != NULL);
    pthread_mutex_lock(&x->lock);
    const int32_t found = x->slot[slot_of(x, name)];
    if (found && out)
        *out = x->entry[found - 1].at;
    pthread_mutex_unlock(&x->lock);
    return found != 0;
}

int32_t qr_file_index_count(struct qr_file_index *x)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(x->n_max >= 1);
    pthread_mutex_lock(&x->lock);
    const int32_t n = x->n;
    pthread_mutex_unlock(&x->lock);
    return n;
}

static int32_t take_entry(struct qr_file_index *x)
{
    const int32_t e = x->free;
    if (e != NONE) {
        x->free = x->entry[e].next;
        return e;
    }
    QR_ASSERT(x->n_touched < x->n_max);
    return x->n_touched++;
}

bool qr_file_index_add(struct qr_file_index *x, const struct qr_kv_name *name, struct qr_file_place at)
{
    QR_ASSERT(x != NULL && name != NULL);
    QR_ASSERT(at.extent >= 0 && at.extent < QR_FILE_EXTENTS_MAX);
    pthread_mutex_lock(&x->lock);
    const uint64_t slot = slot_of(x, name);
    const bool is_new = x->slot[slot] == 0;
    if (is_new) {
        const int32_t e = take_entry(x);
        x->entry[e] = (struct qr_file_entry){.name = *name, .at = at, .next = x->chain[at.extent]};
        x->chain[at.extent] = e;
        x->slot[slot] = e + 1;
        x->n++;
    }
    pthread_mutex_unlock(&x->lock);
    return is_new;
}

/* Empties a slot and moves up those behind it that would not be found any more. */
static void empty_slot(struct qr_file_index *x, uint64_t hole)
{
    for (uint64_t at = (hole + 1) & x->mask; x->slot[at] != 0; at = (at + 1) & x->mask) {
        const uint64_t wanted = home(x, &x->entry[x->slot[at] - 1].name);
        if (((at - wanted) & x->mask) < ((at - hole) & x->mask))
            continue; /* its home lies behind the hole */
        x->slot[hole] = x->slot[at];
        hole = at;
    }
    x->slot[hole] = 0;
    x->n--;
}

static void forget_locked(struct qr_file_index *x, const struct qr_kv_name *name, struct qr_file_place at)
{
    const uint64_t slot = slot_of(x, name);
    const int32_t e = x->slot[slot] - 1;
    if (e != NONE && x->entry[e].at.extent == at.extent && x->entry[e].at.record == at.record)
        empty_slot(x, slot);
}

void qr_file_index_forget(struct qr_file_index *x, const struct qr_kv_name *name, struct qr_file_place at)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(name != NULL);
    pthread_mutex_lock(&x->lock);
    forget_locked(x, name, at);
    pthread_mutex_unlock(&x->lock);
}

void qr_file_index_drop(struct qr_file_index *x, int32_t extent)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(extent >= 0 && extent < QR_FILE_EXTENTS_MAX);
    while (x->chain[extent] != NONE) {
        const int32_t e = x->chain[extent];
        pthread_mutex_lock(&x->lock);
        forget_locked(x, &x->entry[e].name, x->entry[e].at);
        x->chain[extent] = x->entry[e].next;
        x->entry[e].next = x->free;
        x->free = e;
        pthread_mutex_unlock(&x->lock);
    }
}
