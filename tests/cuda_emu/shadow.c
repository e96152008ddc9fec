/* shadow.c - what threads did to memory: bounds, alignment, and races.
 *
 * In builds without a sanitizer the kernels are compiled with gcc's -fsanitize=thread, whose calls before each access end here instead of in its
 * runtime. A race is two accesses of one launch to the same byte by different threads, one of them a write, not both atomic, with nothing
 * that orders them. What orders is kept per warp, as vector clocks: a barrier lets its warps know of each other, __syncwarp ends an epoch of its warp.
 * Blocks are never ordered, but where both touched one atomic variable with a fence: "the last block adds up".
 * Under asan the compiler's own checks take the place of all this.
 *
 * Each word of 4 bytes remembers its last write and two reads by different threads; so a race may be missed where very different threads
 * mix, never invented. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"
#include "tests/cuda_emu/runtime.h"

#define WARPS_MAX QR_EMU_WARPS_MAX

struct access {
    uint16_t thread;
    uint8_t bytes; /* of the word, as a mask; 0: none yet */
    uint8_t kind;
    uint32_t clock; /* of its warp then */
    int32_t block;
    uint32_t pc;    /* from this file's code on: text is smaller than 4 GiB */
};

struct word {
    struct access write, read[2];
};

struct granule { /* 16 bytes of memory */
    uintptr_t key;
    uint64_t launch;
    struct word word[4];
};

struct meeting { /* a block's atomic operation with a fence around */
    const void *at;
    int32_t block;
};

struct shadow {
    struct granule *table;
    struct granule *last; /* in the table: the next access is often of the same one */
    size_t room, used;
    uint32_t *slot; /* those that are used, in the order of their first use */
    uint64_t launch;
    int32_t block, n_warps;
    bool fenced;
    struct meeting *meeting;
    size_t n_meetings, meetings_room;
    uint32_t known[WARPS_MAX][WARPS_MAX]; /* [w][v]: what w knows of v's clock; [w][w] its own */
    uint32_t fenced_async[QR_EMU_THREADS_MAX]; /* what a thread wrote before this clock of its warp may be read by the copy engine and by wgmma */
};

static struct shadow s;

static void forget_tables(void) __attribute__((destructor));
static void forget_tables(void)
{
    qr_free(s.table);
    qr_free(s.meeting);
    qr_free(s.slot);
    s.slot = NULL;
    s.table = NULL;
    s.meeting = NULL;
}

bool qr_emu_sees_races(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return false;
#else
    return true;
#endif
}

void qr_emu_shadow_launch(void)
{
    s.launch++;
    s.used = 0;
    s.n_meetings = 0;
}

void qr_emu_shadow_block(int64_t block, int32_t n_warps)
{
    QR_ASSERT(block >= 0 && block < INT32_MAX);
    QR_ASSERT(n_warps > 0 && n_warps <= WARPS_MAX);
    s.block = (int32_t)block;
    s.n_warps = n_warps;
    s.fenced = false;
    memset(s.known, 0, sizeof s.known);
    memset(s.fenced_async, 0, sizeof s.fenced_async);
    for (int32_t w = 0; w < n_warps; w++)
        s.known[w][w] = 1;
}

void qr_emu_shadow_join(uint32_t warps)
{
    uint32_t most[WARPS_MAX] = {0};
    for (int32_t w = 0; w < s.n_warps; w++) {
        if (!(warps >> w & 1))
            continue;
        s.known[w][w]++;
        for (int32_t v = 0; v < s.n_warps; v++)
            most[v] = s.known[w][v] > most[v] ? s.known[w][v] : most[v];
    }
    for (int32_t w = 0; w < s.n_warps; w++)
        if (warps >> w & 1)
            memcpy(s.known[w], most, sizeof most);
}

void qr_emu_shadow_fence(void)
{
    s.fenced = true;
}

void qr_emu_shadow_release(struct qr_emu_clock *c)
{
    QR_ASSERT(c != NULL && qr_emu_self != NULL);
    const int32_t w = qr_emu_self->warp;
    s.known[w][w]++;
    for (int32_t v = 0; v < s.n_warps; v++)
        c->of[v] = s.known[w][v] > c->of[v] ? s.known[w][v] : c->of[v];
}

void qr_emu_shadow_acquire(const struct qr_emu_clock *c)
{
    QR_ASSERT(c != NULL && qr_emu_self != NULL);
    uint32_t *known = s.known[qr_emu_self->warp];
    for (int32_t v = 0; v < s.n_warps; v++)
        known[v] = c->of[v] > known[v] ? c->of[v] : known[v];
}

void qr_emu_shadow_fence_async(void)
{
    const struct qr_emu_thread *t = qr_emu_self;
    QR_ASSERT(t != NULL);
    s.fenced_async[t->id] = ++s.known[t->warp][t->warp];
}

/* ---- the table ---- */

/* Sixteen neighbours lie side by side, as kernels meet them: alone, each would cost a miss of the cache and of the TLB. */
static size_t slot_of(uintptr_t key, size_t room)
{
    return ((size_t)(((uint64_t)(key >> 4) * 0x9e3779b97f4a7c15u) >> 20) << 4 | (key & 15)) & (room - 1);
}

static struct granule *look_up(struct granule *table, size_t room, uintptr_t key)
{
    size_t i = slot_of(key, room);
    while (table[i].launch == s.launch && table[i].key != key)
        i = (i + 1) & (room - 1);
    return &table[i];
}

static void grow(void)
{
    const size_t room = s.room ? 4 * s.room : 1 << 12;
    struct granule *bigger = qr_alloc(room, sizeof *bigger);
    uint32_t *slot = qr_alloc(room / 2, sizeof *slot);
    for (size_t i = 0; i < s.used; i++) {
        struct granule *to = look_up(bigger, room, s.table[s.slot[i]].key);
        *to = s.table[s.slot[i]];
        slot[i] = (uint32_t)(to - bigger);
    }
    qr_free(s.table);
    qr_free(s.slot);
    s.table = bigger;
    s.slot = slot;
    s.room = room;
}

static struct granule *granule_of(uintptr_t key)
{
    if (s.last && s.last->key == key && s.last->launch == s.launch)
        return s.last;
    if (2 * s.used >= s.room)
        grow();
    struct granule *g = look_up(s.table, s.room, key);
    if (g->launch != s.launch) {
        *g = (struct granule){.key = key, .launch = s.launch};
        s.slot[s.used++] = (uint32_t)(g - s.table);
    }
    s.last = g;
    return g;
}

void qr_emu_shadow_touched(void (*note)(uintptr_t key, uint32_t read, uint32_t written))
{
    QR_ASSERT(note != NULL);
    for (size_t i = 0; i < s.used; i++) {
        const struct granule *g = &s.table[s.slot[i]];
        uint32_t read = 0, written = 0;
        for (int32_t w = 0; w < 4; w++) {
            written |= (uint32_t)g->word[w].write.bytes << 4 * w;
            read |= (uint32_t)(g->word[w].read[0].bytes | g->word[w].read[1].bytes) << 4 * w;
        }
        note(g->key, read, written);
    }
}

/* ---- reports ---- */

/* "../kernels/cuda/rows.cu:41", or the address where there is no addr2line. */
void qr_emu_name_place(char *out, size_t room, const void *pc)
{
    Dl_info info;
    snprintf(out, room, "%p", pc);
    if (!dladdr(pc, &info) || !info.dli_fbase)
        return;
    const Elf64_Ehdr *elf = info.dli_fbase;
    const uintptr_t at = (uintptr_t)pc - 1 - (elf->e_type == ET_DYN ? (uintptr_t)info.dli_fbase : 0);
    char program[400] = "", command[600], line[400];
    if (info.dli_fname && *info.dli_fname == '/') /* a library that was opened by its path */
        snprintf(program, sizeof program, "%s", info.dli_fname);
    else if (readlink("/proc/self/exe", program, sizeof program - 1) <= 0)
        return;
    snprintf(command, sizeof command, "addr2line -e '%s' 0x%llx 2>/dev/null", program, (unsigned long long)at);
    FILE *f = popen(command, "r");
    if (!f)
        return;
    if (fgets(line, sizeof line, f) && line[0] != '?') {
        line[strcspn(line, "\n")] = 0;
        const char *in_repository = strstr(line, QUIRE_SOURCE_DIR);
        snprintf(out, room, "%s", in_repository ? in_repository + strlen(QUIRE_SOURCE_DIR) + 1 : line);
    }
    pclose(f);
}

static uint32_t pack_pc(const void *pc)
{
    return (uint32_t)((uintptr_t)pc - (uintptr_t)qr_emu_name_place);
}

static const void *unpack_pc(uint32_t pc)
{
    return (const void *)((uintptr_t)qr_emu_name_place + (uintptr_t)(int32_t)pc);
}

static const char *kind_name(int32_t kind)
{
    return kind == QR_EMU_READ ? "read" : kind == QR_EMU_WRITE ? "write" : kind == QR_EMU_COPIED ? "copy" : "atomic operation";
}

static void report_race(const struct access *o, const void *p, int32_t kind, const void *pc)
{
    char mine[300], other[300];
    qr_emu_name_place(mine, sizeof mine, pc);
    qr_emu_name_place(other, sizeof other, unpack_pc(o->pc));
    qr_emu_report("race in %s memory at %p: %s in %s, and %s by thread %d of block %d in %s, with no barrier between them",
                  qr_emu_is_shared(p, 1) ? "shared" : "global", p, kind_name(kind), mine, kind_name(o->kind), o->thread, o->block, other);
}

/* ---- accesses ---- */

static bool blocks_met(int32_t a, int32_t b)
{
    for (size_t i = 0; i < s.n_meetings; i++)
        for (size_t j = 0; s.meeting[i].block == a && j < s.n_meetings; j++)
            if (s.meeting[j].block == b && s.meeting[j].at == s.meeting[i].at)
                return true;
    return false;
}

/* Whether `o` comes before what thread t does now. */
static bool comes_before(const struct access *o, const struct qr_emu_thread *t, bool in_shared)
{
    if (o->block != s.block)
        return in_shared || blocks_met(o->block, s.block);
    return o->thread == t->id || s.known[t->warp][o->thread / QR_EMU_WARP] > o->clock;
}

static void meet_access(struct word *w, const struct qr_emu_thread *t, uintptr_t at, uint8_t bytes, int32_t kind, const void *pc, bool in_shared)
{
    struct access *old[3] = {&w->write, &w->read[0], &w->read[1]};
    for (int k = 0; k < (kind == QR_EMU_READ ? 1 : 3); k++)
        if ((old[k]->bytes & bytes) && !(kind == QR_EMU_ATOMIC && old[k]->kind == QR_EMU_ATOMIC) && !comes_before(old[k], t, in_shared)) {
            report_race(old[k], (const void *)at, kind, pc);
            return;
        }
    const struct access now = {(uint16_t)t->id, bytes, (uint8_t)kind, s.known[t->warp][t->warp], s.block, pack_pc(pc)};
    if (kind != QR_EMU_READ) {
        w->write = now;
        return;
    }
    struct access *r = &w->read[0];
    if (r->bytes && (r->thread != now.thread || r->block != now.block) && !comes_before(r, t, in_shared))
        r = &w->read[1];
    *r = now;
}

static void note_meeting(const void *p)
{
    if (s.n_meetings > 0 && s.meeting[s.n_meetings - 1].at == p && s.meeting[s.n_meetings - 1].block == s.block)
        return;
    if (s.n_meetings == s.meetings_room) {
        s.meetings_room = s.meetings_room ? 2 * s.meetings_room : 256;
        s.meeting = qr_realloc(s.meeting, s.meetings_room, sizeof *s.meeting);
    }
    s.meeting[s.n_meetings++] = (struct meeting){p, s.block};
}

static bool in_range(const void *p, const void *base, size_t n)
{
    return (const uint8_t *)p >= (const uint8_t *)base && (const uint8_t *)p < (const uint8_t *)base + n;
}

/* The program, or the library, that the kernels are part of: text and constants. */
struct code {
    const uint8_t *from, *to;
};

static int find_code(struct dl_phdr_info *info, size_t size, void *user)
{
    struct code found = {(const uint8_t *)UINTPTR_MAX, NULL}, *code = user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uint8_t *at = (const uint8_t *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), *end = at + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        found.from = at < found.from ? at : found.from;
        found.to = end > found.to ? end : found.to;
    }
    (void)size;
    const uint8_t *here = (const uint8_t *)(uintptr_t)find_code;
    if (here < found.from || here >= found.to)
        return 0;
    *code = found;
    return 1;
}

/* It stays where it was loaded: looked up once. */
static bool in_code(const void *p)
{
    static struct code code;
    if (!code.to)
        dl_iterate_phdr(find_code, &code);
    return (const uint8_t *)p >= code.from && (const uint8_t *)p < code.to;
}

/* Of memory that is not shared: NULL when a kernel may touch it. The program with its constants, and the arguments, are in the device's reach as well. */
static const char *what_is_wrong(const void *p, size_t n)
{
    if (qr_emu_is_between_shared(p))
        return "outside of the shared variables";
    if (qr_emu_is_eager() || qr_emu_memory_is_device(p))
        return qr_emu_memory_check(p, n);
    const struct qr_emu_launch *l = qr_emu_launched();
    if (qr_emu_memory_is_pinned(p, n) || in_range(p, l->closure, l->closure_bytes) || in_code(p))
        return NULL;
    return "memory of the host, which is not pinned";
}

/* Apart from what every access goes through, where room for a name would be cleared each time. */
static __attribute__((noinline, cold)) void report_access(const void *p, size_t n, int32_t kind, const void *pc, const char *wrong)
{
    char place[300];
    qr_emu_name_place(place, sizeof place, pc);
    qr_emu_report("%s of %zu bytes at %p in %s: %s", kind_name(kind), n, p, place, wrong);
}

static __attribute__((noinline, cold)) void report_held(int32_t kind, const void *pc, const char *held)
{
    char place[300];
    qr_emu_name_place(place, sizeof place, pc);
    qr_emu_report("%s in %s of %s", kind_name(kind), place, held);
}

void qr_emu_access(const void *p, size_t n, int32_t kind, const void *pc)
{
    const struct qr_emu_thread *t = qr_emu_self;
    if (!t)
        return;
    if (in_range(p, t->stack, QR_EMU_STACK_BYTES)) {
        const char *held = qr_emu_wgmma_holds(p, n);
        if (held)
            report_held(kind, pc, held);
        return;
    }
    const bool in_shared = qr_emu_is_shared(p, n);
    const char *wrong = in_shared ? NULL : what_is_wrong(p, n);
    if (wrong)
        report_access(p, n, kind, pc, wrong);
    if (!in_shared)
        qr_emu_flight_check(p, n, kind != QR_EMU_READ, pc);
    if (kind == QR_EMU_ATOMIC && s.fenced && !in_shared)
        note_meeting(p);
    if (!qr_emu_sees_races())
        return;
    for (uintptr_t at = (uintptr_t)p, end = at + n; at < end;) {
        struct granule *g = granule_of(at / 16);
        for (; at < end && at / 16 == g->key; at = (at / 4 + 1) * 4) {
            const uintptr_t last = at / 4 * 4 + 4 < end ? 4 : end - at / 4 * 4;
            meet_access(&g->word[at / 4 % 4], t, at, (uint8_t)((1u << last) - (1u << at % 4)), kind, pc, in_shared);
            if (qr_emu_failed())
                return;
        }
    }
}

/* What a thread wrote with ordinary stores, the copy engine and wgmma see only after its fence.proxy.async. */
static void check_fenced(const struct word *w, const void *p, const struct qr_emu_site *site)
{
    const struct access *o = &w->write;
    if (o->bytes && o->kind == QR_EMU_WRITE && o->block == s.block && o->clock >= s.fenced_async[o->thread]) {
        char other[300];
        qr_emu_name_place(other, sizeof other, unpack_pc(o->pc));
        qr_emu_report("%s in %s:%d meets shared memory at %p that thread %d wrote in %s with no fence.proxy.async since", site->what, site->file, site->line, p,
                      o->thread, other);
    }
}

void qr_emu_access_async(const void *p, size_t n, int32_t kind, const struct qr_emu_site *site)
{
    QR_ASSERT(qr_emu_self != NULL && site != NULL);
    QR_ASSERT((uintptr_t)p % 16 == 0 && n % 16 == 0);
    if (!qr_emu_is_shared(p, n))
        qr_emu_report("%s in %s:%d: %zu bytes at %p are no shared variable", site->what, site->file, site->line, n, p);
    if (!qr_emu_sees_races())
        return;
    for (uintptr_t at = (uintptr_t)p; at < (uintptr_t)p + n; at += 16) {
        struct granule *g = granule_of(at / 16);
        for (int32_t i = 0; i < 4 && !qr_emu_failed(); i++) {
            check_fenced(&g->word[i], (const void *)(at + 4 * (uintptr_t)i), site);
            meet_access(&g->word[i], qr_emu_self, at + 4 * (uintptr_t)i, 0xf, kind, __builtin_return_address(0), true);
        }
    }
}

/* ---- what instrumented code calls ---- */

#if !defined(__SANITIZE_ADDRESS__)

static void aligned(const void *p, size_t n, int32_t kind, const void *pc)
{
    if (!qr_emu_self)
        return;
    if ((uintptr_t)p % n != 0)
        report_access(p, n, kind, pc, "not aligned");
    qr_emu_access(p, n, kind, pc);
}

#define ENTRY(name, check, n, kind)        \
    void __tsan_##name(void *p);           \
    void __tsan_##name(void *p)            \
    {                                      \
        check(p, n, kind, __builtin_return_address(0)); \
    }
ENTRY(read1, aligned, 1, QR_EMU_READ)
ENTRY(read2, aligned, 2, QR_EMU_READ)
ENTRY(read4, aligned, 4, QR_EMU_READ)
ENTRY(read8, aligned, 8, QR_EMU_READ)
ENTRY(read16, aligned, 16, QR_EMU_READ)
ENTRY(write1, aligned, 1, QR_EMU_WRITE)
ENTRY(write2, aligned, 2, QR_EMU_WRITE)
ENTRY(write4, aligned, 4, QR_EMU_WRITE)
ENTRY(write8, aligned, 8, QR_EMU_WRITE)
ENTRY(write16, aligned, 16, QR_EMU_WRITE)
ENTRY(unaligned_read2, qr_emu_access, 2, QR_EMU_READ)
ENTRY(unaligned_read4, qr_emu_access, 4, QR_EMU_READ)
ENTRY(unaligned_read8, qr_emu_access, 8, QR_EMU_READ)
ENTRY(unaligned_read16, qr_emu_access, 16, QR_EMU_READ)
ENTRY(unaligned_write2, qr_emu_access, 2, QR_EMU_WRITE)
ENTRY(unaligned_write4, qr_emu_access, 4, QR_EMU_WRITE)
ENTRY(unaligned_write8, qr_emu_access, 8, QR_EMU_WRITE)
ENTRY(unaligned_write16, qr_emu_access, 16, QR_EMU_WRITE)

void __tsan_read_range(void *p, size_t n);
void __tsan_read_range(void *p, size_t n)
{
    qr_emu_access(p, n, QR_EMU_READ, __builtin_return_address(0));
}

void __tsan_write_range(void *p, size_t n);
void __tsan_write_range(void *p, size_t n)
{
    qr_emu_access(p, n, QR_EMU_WRITE, __builtin_return_address(0));
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    (void)pc;
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

#endif
