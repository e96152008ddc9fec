/* arena.h - memory that is freed all at once.
 *
 * Two kinds behind one type. A *fixed* arena hands out pieces of one region that the caller planned; running past its
 * end is a bug and asserts (the step arena: an address is a pure function of what was asked before). A *growing* arena
 * chains chunks up to max_bytes, for parsers whose input comes from outside; qr_arena_try says NULL past the limit.
 * One owning thread.
 */
#ifndef QR_BASE_ARENA_H
#define QR_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct qr_arena_chunk;

struct qr_arena {
    uint8_t *base;                /* fixed: borrowed from the caller; growing: the current chunk's data */
    size_t size, used;            /* of the current region */
    size_t peak;                  /* fixed: the largest `used` seen */
    size_t total, max_bytes;      /* growing: bytes in all chunks, and their limit */
    struct qr_arena_chunk *chunk; /* owned; NULL in a fixed arena */
};

/* A fixed arena over mem[0..n_bytes). mem stays the caller's. */
void qr_arena_init_fixed(struct qr_arena *a, void *mem, size_t n_bytes);

/* A growing arena that never holds more than max_bytes. Nothing is allocated yet. */
void qr_arena_init(struct qr_arena *a, size_t max_bytes);

/* Frees the chunks of a growing arena; a fixed one just forgets its region. */
void qr_arena_release(struct qr_arena *a);

/* Uninitialised memory aligned to `align` (power of two, <= 64). Asserts that it fits. */
void *qr_arena_alloc(struct qr_arena *a, size_t n_bytes, size_t align);

/* The same, or NULL when the arena's limit would be passed. */
void *qr_arena_try(struct qr_arena *a, size_t n_bytes, size_t align);

/* Fixed arenas only: the current fill, and going back to it. */
size_t qr_arena_mark(const struct qr_arena *a);
void qr_arena_rewind(struct qr_arena *a, size_t mark);

#endif
