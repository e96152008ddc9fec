/* count_mallocs.h - replaces malloc and its like in one program so that allocations can be counted. Include once, in the file with main; not with sanitizers,
 * which replace them as well.
 */
#ifndef QR_TESTS_COUNT_MALLOCS_H
#define QR_TESTS_COUNT_MALLOCS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static _Atomic bool counting;     /* while it is true */
static _Thread_local bool ours;   /* calls of threads that set it are not counted */
static _Atomic int64_t n_calls;
static _Thread_local int64_t n_own_calls; /* those of this thread */

static void note(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed) && !ours) {
        atomic_fetch_add(&n_calls, 1);
        n_own_calls++;
    }
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    note();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    note();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    note();
    return __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    note();
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}

#endif
