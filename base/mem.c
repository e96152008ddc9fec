#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static size_t product(size_t n, size_t size)
{
    size_t bytes;
    if (!qr_mul_size(n, size, &bytes))
        qr_panic("allocation of %zu x %zu bytes overflows", n, size);
    return bytes ? bytes : 1;
}

void *qr_alloc(size_t n, size_t size)
{
    void *p = calloc(1, product(n, size));
    if (!p)
        qr_panic("out of memory: %zu x %zu bytes", n, size);
    return p;
}

void *qr_realloc(void *p, size_t n, size_t size)
{
    void *q = realloc(p, product(n, size));
    if (!q)
        qr_panic("out of memory: %zu x %zu bytes", n, size);
    return q;
}

void *qr_alloc_aligned(size_t n_bytes, size_t align)
{
    QR_ASSERT(align >= sizeof(void *) && (align & (align - 1)) == 0);
    bool huge = n_bytes >= HUGE_PAGE_BYTES;
    if (huge && align < HUGE_PAGE_BYTES)
        align = HUGE_PAGE_BYTES;
    void *p = NULL;
    size_t rounded = qr_align_up(n_bytes ? n_bytes : 1, align);
    if (posix_memalign(&p, align, rounded) != 0)
        qr_panic("out of memory: %zu bytes aligned to %zu", n_bytes, align);
    if (huge)
        madvise(p, rounded, MADV_HUGEPAGE);
    memset(p, 0, rounded);
    return p;
}

void qr_free_aligned(void *p)
{
    free(p);
}

void qr_free(void *p)
{
    free(p);
}

char *qr_strdup(const char *s)
{
    QR_ASSERT(s != NULL);
    return qr_strndup(s, strlen(s));
}

char *qr_strndup(const char *s, size_t n)
{
    QR_ASSERT(s != NULL || n == 0);
    char *copy = qr_alloc(n + 1, 1);
    if (n)
        memcpy(copy, s, n);
    return copy;
}
