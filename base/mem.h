/* mem.h - host memory. Running out of it ends the process with the size named and status 5, so no function here returns NULL, but in one place: a thread that
 * works for a request is in that request's account (account.h), and there each of them may. Sizes that come from outside are bounded by the caller before they
 * get here.
 */
#ifndef QR_BASE_MEM_H
#define QR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An array that is written before it is read need not be cleared first (release builds clear automatic variables). */
#define QR_UNINITIALIZED __attribute__((uninitialized))

/* n * size zeroed bytes; free with qr_free. Overflow of the product aborts. n or size 0 gives a unique pointer. */
void *qr_alloc(size_t n, size_t size);

/* Grows or shrinks to n * size bytes; the added part is not initialised. p may be NULL. */
void *qr_realloc(void *p, size_t n, size_t size);

/* Zeroed, aligned to `align` (a power of two). Regions of 2 MiB and more are mapped: with huge pages where the system
 * has them, and a page costs nothing until it is touched. Free with qr_free_aligned. */
void *qr_alloc_aligned(size_t n_bytes, size_t align);
void qr_free_aligned(void *p);

/* Has the system provide the pages of [p, p + n_bytes) now, so that no later write faults. The content stays. Any thread may call it, also while others
 * use the memory. */
void qr_mem_populate(void *p, size_t n_bytes);

/* [p, p + n_bytes) becomes zeros; whole pages of it go back to the system and cost nothing until they are written again. */
void qr_mem_drop(void *p, size_t n_bytes);

/* Of a block of qr_alloc_aligned, n_bytes long, what lies before byte `at` will be kept and what lies behind it dropped, or the other way round: no huge
 * page will hold both. Before those bytes are touched. */
void qr_mem_cut(void *block, size_t n_bytes, size_t at);

/* Pages of [p, p + n_bytes) that are not there yet will be small ones: for memory of which only parts are ever touched. */
void qr_mem_small_pages(void *p, size_t n_bytes);

/* From now on memory that was needed once goes back to the system: one heap serves all threads but the first, which has its own, and large blocks are mapped
 * one by one. Before threads are started. */
void qr_mem_keep_little(void);

/* Has the system map all of the program's own code and constants now, which otherwise come page by page when they are first used. */
void qr_mem_populate_program(void);

/* Pages of [p, p + n_bytes) that are not there yet will come from these memory nodes in turn. False where the system refuses; nothing
 * is lost then but speed. p and n_bytes need not be whole pages. */
bool qr_mem_interleave(void *p, size_t n_bytes, const int16_t *node, int32_t n_nodes);

/* Bytes that could be allocated now without swapping, limits of control groups and of the process itself (ulimit -v, -d) considered. */
int64_t qr_memory_available(void);

/* Bytes of addresses that ulimit -v leaves: files that are mapped take of them, too. INT64_MAX without such a limit. */
int64_t qr_memory_addresses_left(void);

/* A figure of this process in /proc/self/status, such as "VmRSS" or "VmHWM" (the most that VmRSS was), in bytes; 0 when the system does not say. */
int64_t qr_memory_of_process(const char *figure);

/* Bytes that were allocated and not freed; what the allocator keeps beside them does not count. Where it does not tell: RssAnon. */
int64_t qr_memory_allocated(void);

void qr_free(void *p); /* NULL is fine */

/* For tests, NULL otherwise: asked before each allocation, on any thread; true makes it fail as if the system had no more. */
extern bool (*qr_mem_refuse)(size_t n_bytes);

/* Whether copying to `to` from `from` (addresses, or an offset in a file) by `rep movsb`, as systems and C libraries do with kilobytes, is many times slower
 * than elsewhere: where what is written lies 1 to 31 bytes ahead of what is read, in their pages. */
static inline bool qr_copies_slowly(uintptr_t to, uintptr_t from)
{
    const uintptr_t ahead = (to - from) % 4096;
    return ahead > 0 && ahead < 32;
}

/* memcpy of what may be kilobytes from any place to any other. */
void qr_copy(void *to, const void *from, size_t n_bytes);

char *qr_strdup(const char *s);         /* like these, by qr_alloc */
char *qr_strndup(const char *s, size_t n);

bool qr_ends_with(const char *s, const char *tail); /* and begins with something else */

/* *out = a * b or a + b; false (and *out untouched) when it does not fit. For sizes computed from a file. */
static inline bool qr_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool qr_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline size_t qr_align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

#endif
