/* mem.c - allocation for the whole program. Every size is multiplied with a check. A thread that works for a request
 * charges that request's account (account.h) and may get NULL; any other thread that finds no memory ends the process
 * with status 5. Large regions come from mmap: they are huge pages where the system has them, may be spread over memory
 * nodes, and can be dropped and read as zeros again. The figures of a process come from /proc. Any thread. */
#include "base/mem.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/cgroup.h"
#include "base/exhausted.h"
#include "base/size.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older headers lack it */
#endif
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static size_t product(size_t n, size_t size)
{
    size_t bytes;
    if (!qr_mul_size(n, size, &bytes))
        qr_panic("allocation of %zu x %zu bytes overflows", n, size);
    return bytes ? bytes : 1;
}

bool (*qr_mem_refuse)(size_t n_bytes);

static bool refused(size_t n_bytes)
{
    if (!qr_mem_refuse || !qr_mem_refuse(n_bytes))
        return false;
    errno = ENOMEM;
    return true;
}

/* The end of what the thread does for a request, or NULL to it; else of the process: small blocks are not planned, and are missing where nothing is left. */
static void *no_memory(size_t n, size_t size)
{
    if (!qr_account_missing(true))
        qr_exhausted("out of memory: the system gives no %zu x %zu bytes: %s; limits are ulimit -v and -d, vm.overcommit_memory=2, and the machine's memory", n,
                     size, strerror(errno));
    return NULL;
}

/* The account has no room. */
static void *no_room(void)
{
    const bool in_one = qr_account_missing(false);
    QR_ASSERT(in_one);
    return NULL;
}

void *qr_alloc(size_t n, size_t size)
{
    const size_t n_bytes = product(n, size);
    void *p = refused(n_bytes) ? NULL : calloc(1, n_bytes);
    if (!p)
        return no_memory(n, size);
    if (qr_account_take(p))
        return p;
    free(p);
    return no_room();
}

void *qr_realloc(void *p, size_t n, size_t size)
{
    const size_t n_bytes = product(n, size);
    const int64_t more = (int64_t)n_bytes - qr_account_size(p);
    uintptr_t before = (uintptr_t)p;
    __asm__("" : "+r"(before)); /* where it was, not the block itself: the table of a run is told when it moves */
    if (before && !qr_account_charge(more))
        return no_room();
    void *q = refused(n_bytes) ? NULL : realloc(p, n_bytes);
    if (!q && before)
        qr_account_charge(-more);
    if (!q)
        return no_memory(n, size);
    if (before) {
        qr_account_swap(before, q);
        qr_account_charge(qr_account_size(q) - (int64_t)n_bytes);
    } else if (!qr_account_take(q)) {
        free(q);
        return no_room();
    }
    return q;
}

/* Stands right before every aligned block. */
struct aligned_head {
    void *base;       /* what to give back */
    size_t n_mapped;  /* bytes of the mapping; 0: base came from qr_alloc */
};
_Static_assert(sizeof(struct aligned_head) <= 64, "the head fits in front of a 64-byte aligned block");

/* Weights, a cache, activations: what was planned. */
static void *map_memory(size_t n_bytes)
{
    void *p = refused(n_bytes) ? MAP_FAILED : mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char size[QR_SIZE_TEXT];
    if (p == MAP_FAILED)
        qr_exhausted("the system gives no %s of memory: %s; limits are ulimit -v, and vm.overcommit_memory=2", qr_size_text(size, (int64_t)n_bytes),
                     strerror(errno));
    return p;
}

void *qr_alloc_aligned(size_t n_bytes, size_t align)
{
    QR_ASSERT(align >= sizeof(void *) && (align & (align - 1)) == 0);
    bool huge = n_bytes >= HUGE_PAGE_BYTES && !qr_account_is_open(); /* a request's memory is malloc's */
    if (huge && align < HUGE_PAGE_BYTES)
        align = HUGE_PAGE_BYTES;
    size_t total;
    if (!qr_add_size(n_bytes, align + 64, &total))
        qr_panic("allocation of %zu bytes overflows", n_bytes);
    struct aligned_head head = {.n_mapped = huge ? total : 0};
    head.base = huge ? map_memory(total) : qr_alloc(total, 1);
    if (!head.base)
        return NULL;
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
        qr_free(head.base);
}

/* The whole pages that hold [p, p + n_bytes). */
static size_t page_range(uint8_t **first, void *p, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *first = (uint8_t *)((uintptr_t)p / page * page);
    return qr_align_up((size_t)((uint8_t *)p + n_bytes - *first), page);
}

void qr_mem_populate(void *p, size_t n_bytes)
{
    QR_ASSERT(p != NULL || n_bytes == 0);
    uint8_t *first;
    if (n_bytes == 0)
        return;
    size_t n = page_range(&first, p, n_bytes);
    if (madvise(first, n, MADV_POPULATE_WRITE) == 0)
        return;
    /* Before Linux 5.14: an addition of nothing touches a page and changes no byte, also while other threads write to
     * it. */
    for (size_t i = 0; i < n_bytes; i += 4096)
        __atomic_fetch_add((uint8_t *)p + i, 0, __ATOMIC_RELAXED);
    __atomic_fetch_add((uint8_t *)p + n_bytes - 1, 0, __ATOMIC_RELAXED);
}

void qr_mem_drop(void *p, size_t n_bytes)
{
    QR_ASSERT(p != NULL || n_bytes == 0);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *const begin = p, *const end = begin + n_bytes;
    uint8_t *const first = (uint8_t *)qr_align_up((uintptr_t)begin, page), *const last = (uint8_t *)((uintptr_t)end / page * page);
    /* MADV_REMOVE gives back memory that processes share, MADV_DONTNEED a process's own; neither changes the other
     * kind. */
    if (first >= last || (madvise(first, (size_t)(last - first), MADV_REMOVE) != 0 && madvise(first, (size_t)(last - first), MADV_DONTNEED) != 0)) {
        memset(begin, 0, n_bytes);
        return;
    }
    memset(begin, 0, (size_t)(first - begin));
    memset(last, 0, (size_t)(end - last));
}

void qr_mem_cut(void *block, size_t n_bytes, size_t at)
{
    QR_ASSERT(block != NULL);
    QR_ASSERT(at <= n_bytes);
    const size_t first = at / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES; /* blocks with huge pages begin at one */
    if (n_bytes < HUGE_PAGE_BYTES || first == at)
        return;
    const size_t n = n_bytes - first < HUGE_PAGE_BYTES ? n_bytes - first : HUGE_PAGE_BYTES;
    madvise((uint8_t *)block + first, n, MADV_NOHUGEPAGE); /* refused where there are no huge pages */
}

void qr_mem_small_pages(void *p, size_t n_bytes)
{
    QR_ASSERT(p != NULL || n_bytes == 0);
    uint8_t *first;
    if (n_bytes == 0)
        return;
    const size_t n = page_range(&first, p, n_bytes);
    madvise(first, n, MADV_NOHUGEPAGE); /* refused where there are none: they are small then */
}

void qr_mem_keep_little(void)
{
#ifdef M_ARENA_MAX /* glibc's; others have one heap */
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 512 << 10); /* else it grows with the largest block that was ever freed */
    mallopt(M_MXFAST, 0); /* the nodes of a long list of ids wait in no list of their own: the end of a heap that is not the first goes back only where a block
                           * is freed in front of it, not when free blocks are put together later (0.7 MiB of 16 prompts of 480 ids) */
#endif
}

bool qr_mem_interleave(void *p, size_t n_bytes, const int16_t *node, int32_t n_nodes)
{
    QR_ASSERT(p != NULL && node != NULL);
    QR_ASSERT(n_nodes >= 1);
    unsigned long mask[4] = {0}; /* 256 nodes */
    uint8_t *first;
    size_t n = page_range(&first, p, n_bytes);
    for (int32_t i = 0; i < n_nodes; i++)
        if (node[i] >= 0 && node[i] < 256)
            mask[node[i] / 64] |= 1ul << node[i] % 64;
    return syscall(SYS_mbind, first, n, MPOL_INTERLEAVE, mask, 256ul, 0u) == 0;
}

void qr_free(void *p)
{
    qr_account_drop(p);
    free(p);
}

/* A call of memcpy: for 2 KB that it knows of gcc writes `rep movsq` in its place, so n_bytes is kept from it. */
static void copy_piece(char *to, const char *from, size_t n_bytes)
{
    __asm__("" : "+r"(n_bytes));
    memcpy(to, from, n_bytes);
}

void qr_copy(void *to, const void *from, size_t n_bytes)
{
    enum { PIECE = 2048 }; /* glibc's memcpy takes other ways up to 2,111 bytes */
    QR_ASSERT(n_bytes == 0 || (to != NULL && from != NULL));
    size_t at = 0;
    for (; qr_copies_slowly((uintptr_t)to, (uintptr_t)from) && n_bytes - at > PIECE; at += PIECE)
        copy_piece((char *)to + at, (const char *)from + at, PIECE);
    if (n_bytes > 0)
        copy_piece((char *)to + at, (const char *)from + at, n_bytes - at);
}

bool qr_ends_with(const char *s, const char *tail)
{
    QR_ASSERT(s != NULL && tail != NULL);
    const size_t n = strlen(s), n_tail = strlen(tail);
    return n > n_tail && memcmp(s + n - n_tail, tail, n_tail) == 0;
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
    if (n && copy)
        memcpy(copy, s, n);
    return copy;
}

/* The number behind "NAME:" in a file of lines "NAME:  123 kB", in bytes, or -1. */
static int64_t figure_in(const char *path, const char *name)
{
    char line[128];
    long long kib = -1;
    const size_t len = strlen(name);
    FILE *f = fopen(path, "re");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, name, len) != 0 || line[len] != ':' || sscanf(line + len + 1, "%lld kB", &kib) != 1)
            kib = -1;
    if (f)
        fclose(f);
    return kib >= 0 ? (int64_t)kib * 1024 : -1;
}

int64_t qr_memory_of_process(const char *figure)
{
    QR_ASSERT(figure != NULL);
    const int64_t n = figure_in("/proc/self/status", figure);
    return n > 0 ? n : 0;
}

int64_t qr_memory_allocated(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 m = mallinfo2();
    return (int64_t)(m.uordblks + m.hblkhd);
#else
    return qr_memory_of_process("RssAnon");
#endif
}

/* What a limit on this process itself (ulimit) leaves, of which it has taken `figure`. */
static int64_t left_of(int limit, const char *figure)
{
    struct rlimit l;
    if (getrlimit(limit, &l) != 0 || l.rlim_cur > INT64_MAX)
        return INT64_MAX;
    const int64_t most = (int64_t)l.rlim_cur, taken = qr_memory_of_process(figure);
    return most > taken ? most - taken : 0;
}

int64_t qr_memory_addresses_left(void)
{
    return left_of(RLIMIT_AS, "VmSize");
}

int64_t qr_memory_available(void)
{
    int64_t n = figure_in("/proc/meminfo", "MemAvailable");
    if (n < 0)
        n = (int64_t)sysconf(_SC_PHYS_PAGES) / 2 * sysconf(_SC_PAGESIZE);
    const int64_t limit[] = {qr_cgroup_memory_left(""), qr_memory_addresses_left(), left_of(RLIMIT_DATA, "VmData")};
    for (size_t i = 0; i < sizeof limit / sizeof limit[0]; i++)
        n = limit[i] < n ? limit[i] : n;
    return n;
}
