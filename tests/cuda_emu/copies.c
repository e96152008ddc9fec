/* copies.c - mbarriers, and copies by the device's copy engine (cp.async.bulk, cp.async.bulk.tensor) that complete on them. What is written from:
 * PTX manual, "mbarrier" (phases, pending arrivals, tx-count; test_wait.parity), "Asynchronous copy: bulk", "Tensors: tiled mode, out-of-boundary access,
 * swizzling modes", "Async proxy" (fence.proxy.async); driver manual, cuTensorMapEncodeTiled.
 *
 * A copy is done as late as it may be: when no thread of the block can go on, and now and then earlier, in no order. Until then its destination is NaN. To
 * the search for races its writes are the issuing thread's, known to those who waited for the barrier's phase that they complete. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"
#include "tests/cuda_emu/include/cuda.h"
#include "tests/cuda_emu/include/cuda_runtime.h"

#define BARRIERS_MAX 64
#define COPIES_MAX 4096
#define ARRIVALS_MAX ((1 << 20) - 1)
#define TX_MAX ((1 << 20) - 1)
#define MAP_MAGIC UINT64_C(0x70616d20726f736e)

struct mbarrier {
    uint64_t *at;
    int32_t count, pending, tx, owner; /* owner: the thread that made it */
    uint32_t phase;                    /* completed ones */
    uint32_t seen;                     /* threads that wait and were told of the last phase but did not look yet */
    bool fenced;                       /* the copy engine sees it */
    struct qr_emu_clock arrived, completed;
};

struct copy {
    uint8_t *to;
    const uint8_t *from; /* bulk; else of `map`: */
    CUtensorMap map;
    int32_t at[QR_EMU_MAP_DIMS];
    int32_t n_bytes;
    struct mbarrier *bar;
    struct qr_emu_clock clock;
};

struct copies {
    struct mbarrier bar[BARRIERS_MAX];
    int32_t n_bars, n_copies;
    struct copy copy[COPIES_MAX];
};

static struct copies c;
static enum qr_emu_wrong wrong;
static uint64_t n_boxes; /* that came */

void qr_emu_set_wrong(enum qr_emu_wrong what)
{
    wrong = what;
}

bool qr_emu_is_wrong(int what)
{
    return (int)wrong == what;
}

void qr_emu_copies_begin(void)
{
    c.n_bars = c.n_copies = 0;
}

bool qr_emu_copies_pending(void)
{
    return c.n_copies > 0;
}

void qr_emu_copies_end(void)
{
    if (c.n_copies > 0)
        qr_emu_report("a block ends with %d bulk copies under way", c.n_copies);
}

/* ---- mbarriers ---- */

static struct mbarrier *find(const uint64_t *at)
{
    for (int32_t i = 0; i < c.n_bars; i++)
        if (c.bar[i].at == at)
            return &c.bar[i];
    return NULL;
}

static struct mbarrier *used(const struct qr_emu_site *site, uint64_t *at)
{
    QR_ASSERT(site != NULL && qr_emu_self != NULL);
    struct mbarrier *b = find(at);
    if (!b)
        qr_emu_report("%s in %s:%d: no mbarrier was made at %p", site->what, site->file, site->line, (void *)at);
    qr_emu_access(at, sizeof *at, QR_EMU_ATOMIC, __builtin_return_address(0));
    return b;
}

void qr_emu_mbarrier_init(const struct qr_emu_site *site, uint64_t *at, int32_t count)
{
    QR_ASSERT(site != NULL && qr_emu_self != NULL);
    if ((uintptr_t)at % 8 != 0 || !qr_emu_is_shared(at, 8) || count < 1 || count > ARRIVALS_MAX)
        qr_emu_report("%s in %s:%d: %p for %d arrivals: 8 aligned bytes of shared memory and 1 to 2^20 - 1 arrivals", site->what, site->file, site->line,
                      (void *)at, count);
    struct mbarrier *b = find(at);
    if (!b && c.n_bars == BARRIERS_MAX)
        qr_emu_report("more than %d mbarriers in a block", BARRIERS_MAX);
    if (!b)
        b = &c.bar[c.n_bars++];
    qr_emu_access(at, sizeof *at, QR_EMU_WRITE, __builtin_return_address(0));
    *b = (struct mbarrier){.at = at, .count = count, .pending = count, .owner = qr_emu_self->id};
}

/* The phase ends once everybody arrived and all announced bytes came. */
static void look(struct mbarrier *b)
{
    if (b->pending > 0 || b->tx != 0)
        return;
    if (b->seen > 0)
        qr_emu_report("an mbarrier completes two phases before %u threads that wait for the first look at it again", b->seen);
    b->phase++;
    b->pending = b->count;
    b->completed = b->arrived;
    b->seen = (uint32_t)qr_emu_wake(b);
}

static void arrive(const struct qr_emu_site *site, struct mbarrier *b)
{
    if (b->pending == 0)
        qr_emu_report("%s in %s:%d: more arrivals in a phase than the %d of the mbarrier", site->what, site->file, site->line, b->count);
    qr_emu_shadow_release(&b->arrived);
    b->pending--;
    look(b);
}

void qr_emu_mbarrier_arrive(const struct qr_emu_site *site, uint64_t *at)
{
    arrive(site, used(site, at));
}

void qr_emu_mbarrier_expect(const struct qr_emu_site *site, uint64_t *at, int32_t n_bytes)
{
    struct mbarrier *b = used(site, at);
    b->tx += n_bytes;
    if (n_bytes < 0 || b->tx > TX_MAX)
        qr_emu_report("%s in %s:%d: %d bytes expected; a barrier counts to 2^20 - 1", site->what, site->file, site->line, b->tx);
    arrive(site, b);
}

/* mbarrier.try_wait.parity in a loop: until the phase of that parity, which is the current or the last one, is complete. */
void qr_emu_mbarrier_wait(const struct qr_emu_site *site, uint64_t *at, uint32_t parity)
{
    struct mbarrier *b = used(site, at);
    if (parity > 1)
        qr_emu_report("%s in %s:%d: parity %u", site->what, site->file, site->line, parity);
    if ((b->phase & 1u) == parity) {
        qr_emu_sleep(site, b);
        b->seen--;
    }
    qr_emu_shadow_acquire(&b->completed);
}

void qr_emu_fence_async(const struct qr_emu_site *site)
{
    QR_ASSERT(site != NULL && qr_emu_self != NULL);
    qr_emu_shadow_fence_async();
    for (int32_t i = 0; i < c.n_bars; i++)
        c.bar[i].fenced = c.bar[i].fenced || c.bar[i].owner == qr_emu_self->id;
}

/* ---- copies ---- */

static struct copy *new_copy(const struct qr_emu_site *site, void *to, int32_t n_bytes, uint64_t *at)
{
    struct mbarrier *b = used(site, at);
    if (!b->fenced)
        qr_emu_report("%s in %s:%d: the copy engine does not see the mbarrier: no fence after its init", site->what, site->file, site->line);
    if (c.n_copies == COPIES_MAX)
        qr_emu_report("more than %d bulk copies under way", COPIES_MAX);
    qr_emu_access_async(to, (size_t)n_bytes, QR_EMU_COPIED, site);
    memset(to, 0xff, (size_t)n_bytes);
    struct copy *o = &c.copy[c.n_copies++];
    o->to = to;
    o->n_bytes = n_bytes;
    o->bar = b;
    memset(&o->clock, 0, sizeof o->clock);
    qr_emu_shadow_release(&o->clock);
    return o;
}

void qr_emu_bulk(const struct qr_emu_site *site, void *to, const void *from, int32_t n_bytes, uint64_t *at)
{
    QR_ASSERT(site != NULL);
    if (n_bytes <= 0 || n_bytes % 16 != 0 || (uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0)
        qr_emu_report("%s in %s:%d: %d bytes from %p to %p: all must be multiples of 16", site->what, site->file, site->line, n_bytes, from, to);
    qr_emu_access(from, (size_t)n_bytes, QR_EMU_READ, __builtin_return_address(0));
    qr_emu_flight_check_copy(site, from, (size_t)n_bytes);
    new_copy(site, to, n_bytes, at)->from = from;
}

/* Calls `row` for each stretch of the box's innermost dimension: its address in the tensor (NULL: outside) and the offset in the box. */
static void walk_box(const CUtensorMap *map, const int32_t *at, void (*row)(const uint8_t *from, size_t n_inside, size_t offset, void *user), void *user)
{
    const size_t element = map->stride[0], width = map->box[0] * element;
    size_t n_rows = 1;
    for (int32_t i = 1; i < map->n_dims; i++)
        n_rows *= map->box[i];
    for (size_t r = 0; r < n_rows; r++) {
        size_t rest = r;
        int64_t offset = 0;
        bool inside = true;
        for (int32_t i = 1; i < map->n_dims; i++) {
            const int64_t x = at[i] + (int64_t)(rest % map->box[i]);
            rest /= map->box[i];
            inside = inside && x >= 0 && (uint64_t)x < map->dim[i];
            offset += x * (int64_t)map->stride[i];
        }
        inside = inside && at[0] >= 0 && (uint64_t)at[0] < map->dim[0]; /* boxes that begin before a row are not needed here */
        const uint64_t left = inside ? map->dim[0] - (uint64_t)at[0] : 0;
        row(inside ? map->base + offset + at[0] * (int64_t)element : NULL, (left < map->box[0] ? left : map->box[0]) * element, r * width, user);
    }
}

static void touch_row(const uint8_t *from, size_t n_inside, size_t offset, void *user)
{
    (void)offset;
    if (n_inside == 0)
        return;
    qr_emu_access(from, n_inside, QR_EMU_READ, __builtin_return_address(0));
    qr_emu_flight_check_copy(user, from, n_inside);
}

void qr_emu_bulk_tensor(const struct qr_emu_site *site, void *to, const CUtensorMap *map, const int32_t *where, int32_t n_dims, uint64_t *at)
{
    QR_ASSERT(site != NULL && map != NULL && where != NULL);
    if (map->magic != MAP_MAGIC || map->n_dims != n_dims)
        qr_emu_report("%s in %s:%d: %p is no map of a tensor of %d dimensions", site->what, site->file, site->line, (const void *)map, n_dims);
    if ((uintptr_t)to % 128 != 0)
        qr_emu_report("%s in %s:%d: to %p, which is not aligned to 128 bytes", site->what, site->file, site->line, to);
    size_t n_bytes = map->stride[0];
    for (int32_t i = 0; i < n_dims; i++)
        n_bytes *= map->box[i];
    walk_box(map, where, touch_row, (void *)(uintptr_t)site);
    struct copy *o = new_copy(site, to, (int32_t)n_bytes, at);
    o->from = NULL;
    o->map = *map;
    memcpy(o->at, where, (size_t)n_dims * sizeof *where);
}

/* Bits of a shared address that change places: 128-byte swizzling turns bits 4 to 6 by bits 7 to 9, 64-byte 4 and 5 by 7 and 8, 32-byte 4 by 7. */
static uintptr_t swizzled(uintptr_t at, int32_t swizzle_bytes)
{
    return swizzle_bytes == 0 ? at : at ^ ((at >> 7 & (uintptr_t)(swizzle_bytes / 16 - 1)) << 4);
}

static void copy_row(const uint8_t *from, size_t n_inside, size_t offset, void *user)
{
    const struct copy *o = user;
    const size_t width = o->map.box[0] * o->map.stride[0];
    for (size_t i = 0; i < width; i += 16) {
        uint8_t *to = (uint8_t *)swizzled((uintptr_t)o->to + offset + i, o->map.swizzle_bytes);
        const size_t n = i >= n_inside ? 0 : n_inside - i < 16 ? n_inside - i : 16;
        if (n > 0)
            memcpy(to, from + i, n);
        memset(to + n, 0, 16 - n);
    }
}

bool qr_emu_copies_step(uint64_t random)
{
    if (c.n_copies == 0)
        return false;
    const int32_t which = (int32_t)(random % (uint64_t)c.n_copies);
    struct copy o = c.copy[which];
    c.copy[which] = c.copy[--c.n_copies];
    if (o.from)
        memcpy(o.to, o.from, (size_t)o.n_bytes);
    else
        walk_box(&o.map, o.at, copy_row, &o);
    if (!o.from && n_boxes++ % 64 == 63 && qr_emu_is_wrong(QR_EMU_WRONG_BOXES))
        memset(o.to, 0, (size_t)o.n_bytes);
    for (int32_t w = 0; w < QR_EMU_WARPS_MAX; w++)
        o.bar->arrived.of[w] = o.clock.of[w] > o.bar->arrived.of[w] ? o.clock.of[w] : o.bar->arrived.of[w];
    o.bar->tx -= o.n_bytes;
    if (o.bar->tx < -TX_MAX)
        qr_emu_report("an mbarrier gets %d bytes more than were announced", -o.bar->tx);
    look(o.bar);
    return true;
}

/* ---- tensor maps ---- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    QR_ASSERT(name != NULL && fn != NULL && found != NULL);
    (void)version, (void)flags;
    const bool there = strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *found = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    *fn = there ? (void *)(uintptr_t)cuTensorMapEncodeTiled : NULL;
    return cudaSuccess;
}

/* The driver's conditions on tiled maps without interleaving and with elements side by side. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dim, const cuuint64_t *stride,
                                const cuuint32_t *box, const cuuint32_t *element_stride, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    QR_ASSERT(map != NULL && dim != NULL && box != NULL && element_stride != NULL);
    (void)promotion;
    const uint64_t element = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
    const int32_t swizzle_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16 << swizzle;
    if ((uintptr_t)map % 64 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    bool right = rank >= 1 && rank <= QR_EMU_MAP_DIMS && (uintptr_t)base % 16 == 0 && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                 fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && box[0] * element % 16 == 0 && (swizzle_bytes == 0 || box[0] * element <= (uint64_t)swizzle_bytes);
    *map = (CUtensorMap){.base = base, .n_dims = (int32_t)rank, .swizzle_bytes = swizzle_bytes};
    for (uint32_t i = 0; right && i < rank; i++) {
        map->dim[i] = dim[i];
        map->stride[i] = i == 0 ? element : stride[i - 1];
        map->box[i] = box[i];
        right = dim[i] >= 1 && dim[i] <= UINT64_C(1) << 32 && box[i] >= 1 && box[i] <= 256 && element_stride[i] == 1 &&
                (i == 0 || (stride[i - 1] % 16 == 0 && stride[i - 1] < UINT64_C(1) << 40));
    }
    map->magic = right ? MAP_MAGIC : 0;
    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
