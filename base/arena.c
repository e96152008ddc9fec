#include "base/arena.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define CHUNK_MIN_BYTES ((size_t)16 << 10)
#define ALIGN_MAX 64

struct qr_arena_chunk {
    struct qr_arena_chunk *prev; /* owned */
    _Alignas(ALIGN_MAX) uint8_t data[];
};

void qr_arena_init_fixed(struct qr_arena *a, void *mem, size_t n_bytes)
{
    QR_ASSERT(a != NULL && (mem != NULL || n_bytes == 0));
    *a = (struct qr_arena){.base = mem, .size = n_bytes};
}

void qr_arena_init(struct qr_arena *a, size_t max_bytes)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(max_bytes > 0);
    *a = (struct qr_arena){.max_bytes = max_bytes};
}

void qr_arena_release(struct qr_arena *a)
{
    QR_ASSERT(a != NULL);
    struct qr_arena_chunk *chunk = a->chunk;
    while (chunk) {
        struct qr_arena_chunk *prev = chunk->prev;
        qr_free_aligned(chunk);
        chunk = prev;
    }
    *a = (struct qr_arena){0};
}

/* Starts a chunk that holds at least n_bytes: each twice the last, within the limit. */
static int grow(struct qr_arena *a, size_t n_bytes)
{
    size_t size = a->size * 2 > CHUNK_MIN_BYTES ? a->size * 2 : CHUNK_MIN_BYTES, left = a->max_bytes - a->total;
    if (n_bytes > left)
        return -1;
    if (size < n_bytes)
        size = n_bytes;
    if (size > left)
        size = left;
    struct qr_arena_chunk *chunk = qr_alloc_aligned(sizeof *chunk + size, ALIGN_MAX);
    chunk->prev = a->chunk;
    a->chunk = chunk;
    a->base = chunk->data;
    a->size = size;
    a->used = 0;
    a->total += size;
    return 0;
}

void *qr_arena_try(struct qr_arena *a, size_t n_bytes, size_t align)
{
    QR_ASSERT(align > 0 && align <= ALIGN_MAX && (align & (align - 1)) == 0);
    size_t start = qr_align_up(a->used, align);
    if (start > a->size || n_bytes > a->size - start) {
        if (a->max_bytes == 0 || grow(a, n_bytes) != 0)
            return NULL;
        start = 0;
    }
    a->used = start + n_bytes;
    if (a->used > a->peak)
        a->peak = a->used;
    return a->base + start;
}

void *qr_arena_alloc(struct qr_arena *a, size_t n_bytes, size_t align)
{
    void *p = qr_arena_try(a, n_bytes, align);
    QR_ASSERT(p != NULL);
    return p;
}

size_t qr_arena_mark(const struct qr_arena *a)
{
    QR_ASSERT(a->chunk == NULL);
    return a->used;
}

void qr_arena_rewind(struct qr_arena *a, size_t mark)
{
    QR_ASSERT(a->chunk == NULL);
    QR_ASSERT(mark <= a->used);
    a->used = mark;
}
