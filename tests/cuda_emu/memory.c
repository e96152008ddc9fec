/* memory.c - memory of the emulated device and pinned memory of the host.
 *
 * Device memory is one range of addresses that nobody may touch while the device does nothing: host code that follows a pointer of the device faults here
 * as it would there. Between allocations there are gaps that asan knows as poisoned; the instrumented build looks every access up.
 * Fresh memory is full of NaN. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"
#include "tests/cuda_emu/include/cuda_runtime.h"
#include "tests/cuda_emu/runtime.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define UNIT 256                       /* what cudaMalloc aligns to */
#define ADDRESSES ((size_t)64 << 30)   /* reserved, not used */
#define FILL_MAX ((size_t)256 << 10)   /* the first so many bytes of an allocation become NaN */
#define PIECES_MAX 65536
#define ZERO_PAGES_MIN ((size_t)1 << 20)

struct piece {
    uint8_t *at;
    size_t n_bytes;
    bool used;
};

struct memory {
    uint8_t *base;
    size_t top;         /* bytes of the range that were ever given away */
    size_t limit;
    struct piece *device, *pinned;
    int32_t n_device, n_pinned;
    int32_t opened;
};

static struct memory g = {.limit = (size_t)4 << 30};

static void forget(void) __attribute__((destructor));
static void forget(void)
{
    qr_free(g.device);
    qr_free(g.pinned);
    g.device = g.pinned = NULL;
}

void qr_emu_poison(void *p, size_t n)
{
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(p, n);
#endif
    (void)p, (void)n;
}

void qr_emu_unpoison(void *p, size_t n)
{
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(p, n);
#endif
    (void)p, (void)n;
}

/* QUIRE_EMU_GIB: another size than 4 GiB, of which little is ever touched. */
static void begin(void) __attribute__((constructor));
static void begin(void)
{
    const char *gib = getenv("QUIRE_EMU_GIB");
    if (gib && atoi(gib) > 0)
        g.limit = (size_t)atoi(gib) << 30;
}

static void reserve(void)
{
    if (g.base)
        return;
    g.base = mmap(NULL, ADDRESSES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (g.base == MAP_FAILED)
        qr_panic("emulator: no addresses for the memory of the device");
    madvise(g.base, ADDRESSES, MADV_NOHUGEPAGE); /* little of it is touched */
    g.device = qr_alloc(PIECES_MAX, sizeof *g.device);
    g.pinned = qr_alloc(PIECES_MAX, sizeof *g.pinned);
}

void qr_emu_memory_open(void)
{
    if (g.opened++ == 0 && g.top > 0 && mprotect(g.base, qr_align_up(g.top, 4096), PROT_READ | PROT_WRITE) != 0)
        qr_panic("emulator: mprotect failed");
}

void qr_emu_memory_close(void)
{
    QR_ASSERT(g.opened > 0);
    if (--g.opened == 0 && g.top > 0 && mprotect(g.base, qr_align_up(g.top, 4096), PROT_NONE) != 0)
        qr_panic("emulator: mprotect failed");
}

bool qr_emu_memory_is_device(const void *p)
{
    return g.base && (const uint8_t *)p >= g.base && (const uint8_t *)p < g.base + ADDRESSES;
}

/* Pieces lie in the order of their addresses, and none is ever moved: the last one that begins at or before p. */
static const struct piece *piece_of(const void *p)
{
    int32_t low = 0, high = g.n_device;
    while (low < high) {
        int32_t mid = (low + high) / 2;
        if (g.device[mid].at <= (const uint8_t *)p)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 ? &g.device[low - 1] : NULL;
}

const char *qr_emu_memory_check(const void *p, size_t n)
{
    if (!qr_emu_memory_is_device(p))
        return NULL;
    const struct piece *a = piece_of(p);
    if (!a)
        return "before all memory of the device";
    if (!a->used)
        return "device memory that was freed";
    return (const uint8_t *)p + n > a->at + a->n_bytes ? "beyond the end of its allocation" : NULL;
}

/* A freed piece that is large enough is taken again, else the range grows. */
static struct piece *find_room(size_t n)
{
    const size_t room = qr_align_up(n, UNIT) + UNIT;
    for (int32_t i = 0; i < g.n_device; i++) {
        const uint8_t *end = i + 1 < g.n_device ? g.device[i + 1].at : g.base + g.top;
        if (!g.device[i].used && g.device[i].at + room <= end)
            return &g.device[i];
    }
    if (g.n_device == PIECES_MAX || g.top + room > ADDRESSES)
        return NULL;
    g.device[g.n_device].at = g.base + g.top;
    g.top += room;
    return &g.device[g.n_device++];
}

cudaError_t cudaMalloc(void **out, size_t n)
{
    QR_ASSERT(out != NULL);
    qr_emu_unsafe("cudaMalloc");
    reserve();
    qr_emu_counted.mallocs++;
    if (n == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    struct piece *a = n <= g.limit && (size_t)qr_emu_counted.bytes_now + n <= g.limit ? find_room(n) : NULL;
    if (!a)
        return qr_emu_error(cudaErrorMemoryAllocation);
    a->n_bytes = n;
    a->used = true;
    qr_emu_counted.bytes_now += (int64_t)n;
    QR_ASSERT(g.opened == 0);
    qr_emu_memory_open();
    qr_emu_unpoison(a->at, n);
    memset(a->at, 0xff, n < FILL_MAX ? n : FILL_MAX);
    qr_emu_poison(a->at + n, qr_align_up(n, UNIT) + UNIT - n);
    qr_emu_memory_close();
    *out = a->at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    qr_emu_unsafe("cudaFree");
    qr_emu_counted.mallocs++;
    qr_emu_counted.syncs++;
    qr_emu_run_all();
    for (int32_t i = 0; i < g.n_device; i++)
        if (g.device[i].at == p && g.device[i].used) {
            g.device[i].used = false;
            qr_emu_counted.bytes_now -= (int64_t)g.device[i].n_bytes;
            qr_emu_memory_open();
            madvise((void *)qr_align_up((size_t)(uintptr_t)p, 4096), g.device[i].n_bytes / 4096 > 0 ? (g.device[i].n_bytes / 4096 - 1) * 4096 : 0,
                    MADV_DONTNEED);
            qr_emu_memory_close();
            qr_emu_poison(p, g.device[i].n_bytes);
            return cudaSuccess;
        }
    qr_emu_report("cudaFree(%p), which cudaMalloc did not give or which is free already", p);
    return cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void **out, size_t n, unsigned int flags)
{
    QR_ASSERT(out != NULL);
    (void)flags;
    qr_emu_unsafe("cudaHostAlloc");
    reserve();
    qr_emu_counted.mallocs++;
    int32_t i = 0;
    while (i < g.n_pinned && g.pinned[i].used)
        i++;
    if (i == PIECES_MAX)
        return qr_emu_error(cudaErrorMemoryAllocation);
    if (i == g.n_pinned)
        g.n_pinned++;
    *out = qr_alloc_aligned(n ? n : 1, 4096);
    g.pinned[i] = (struct piece){*out, n, true};
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t n)
{
    return cudaHostAlloc(out, n, 0);
}

cudaError_t cudaFreeHost(void *p)
{
    if (!p)
        return cudaSuccess;
    qr_emu_unsafe("cudaFreeHost");
    qr_emu_counted.mallocs++;
    qr_emu_run_all();
    for (int32_t i = 0; i < g.n_pinned; i++)
        if (g.pinned[i].used && g.pinned[i].at == p) {
            g.pinned[i].used = false;
            qr_free_aligned(p);
            return cudaSuccess;
        }
    qr_emu_report("cudaFreeHost(%p), which cudaMallocHost did not give or which is free already", p);
    return cudaErrorInvalidValue;
}

bool qr_emu_memory_is_pinned(const void *p, size_t n)
{
    for (int32_t i = 0; i < g.n_pinned; i++)
        if (g.pinned[i].used && (const uint8_t *)p >= g.pinned[i].at && (const uint8_t *)p + n <= g.pinned[i].at + g.pinned[i].n_bytes)
            return true;
    return false;
}

/* Large zeros cost no pages. */
void qr_emu_memory_zero(void *p, size_t n)
{
    uint8_t *from = (uint8_t *)qr_align_up((size_t)(uintptr_t)p, 4096), *to = (uint8_t *)((uintptr_t)((uint8_t *)p + n) / 4096 * 4096);
    if (n < ZERO_PAGES_MIN || !qr_emu_memory_is_device(p) || madvise(from, (size_t)(to - from), MADV_DONTNEED) != 0) {
        memset(p, 0, n);
        return;
    }
    memset(p, 0, (size_t)(from - (uint8_t *)p));
    memset(to, 0, (size_t)((uint8_t *)p + n - to));
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    QR_ASSERT(n_free != NULL && n_total != NULL);
    *n_total = g.limit;
    *n_free = g.limit - (size_t)qr_emu_counted.bytes_now;
    return cudaSuccess;
}

void qr_emu_memory_limit(size_t n_bytes)
{
    g.limit = n_bytes;
}
