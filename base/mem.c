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

/* Stands right before every aligned block. */
struct aligned_head {
    void *base;       /* what to give back */
    size_t n_mapped;  /* bytes of the mapping; 0: base came from calloc */
};
_Static_assert(sizeof(struct aligned_head) <= 64, "the head fits in front of a 64-byte aligned block");

void *qr_alloc_aligned(size_t n_bytes, size_t align)
{
    QR_ASSERT(align >= sizeof(void *) && (align & (align - 1)) == 0);
    bool huge = n_bytes >= HUGE_PAGE_BYTES;
    if (huge && align < HUGE_PAGE_BYTES)
        align = HUGE_PAGE_BYTES;
    size_t total;
    if (!qr_add_size(n_bytes, align + 64, &total))
        qr_panic("allocation of %zu bytes overflows", n_bytes);
    struct aligned_head head = {.n_mapped = huge ? total : 0};
    head.base = huge ? mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : calloc(1, total);
    if (!head.base || head.base == MAP_FAILED)
        qr_panic("out of memory: %zu bytes aligned to %zu", n_bytes, align);
    uint8_t *p = (uint8_t *)qr_align_up((uintptr_t)head.base + 64, align);
    if (huge)
        madvise(p, n_bytes, MADV_HUGEPAGE);
    memcpy(p - sizeof head, &head, sizeof head);
    return p;
}

void qr_free_aligned(void *p)
{
    if (!p)
        return;
    struct aligned_head head;
    memcpy(&head, (uint8_t *)p - sizeof head, sizeof head);
    if (head.n_mapped)
        munmap(head.base, head.n_mapped);
    else
        free(head.base);
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
