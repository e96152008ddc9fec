/* flight.c - kernels that begin before those in front of them have ended (kernels/cuda/launch.h, QR_LAUNCH_NEXT).
 *
 * Kernels run one after the other here. What those did that could still be running beside a kernel is kept, byte by byte: back to the last one that
 * itself began late. Before a thread has waited (qr_grid_wait), reading what they write is reported, and writing what they touch; and so is a thread that
 * leaves without having waited, since the kernel behind it takes its end for that of all before. What the copy engine reads of those kernels' results has to be
 * behind a fence of the thread that asks for the copy, too. In builds that see races (emu.h); copies are seen when they
 * are asked for. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"

struct touched { /* 16 bytes of memory */
    uintptr_t key; /* 0: none */
    uint16_t read, written;
};

struct flight {
    struct touched *table;
    size_t room, used;
    bool launched; /* what the last kernel touched is still to be found in shadow.c, and not here */
};

static struct flight f;

static void forget_table(void) __attribute__((destructor));
static void forget_table(void)
{
    qr_free(f.table);
    f.table = NULL;
}

static struct touched *look_up(struct touched *table, size_t room, uintptr_t key)
{
    size_t i = (size_t)(((uint64_t)key * 0x9e3779b97f4a7c15u) >> 20) & (room - 1);
    while (table[i].key != 0 && table[i].key != key)
        i = (i + 1) & (room - 1);
    return &table[i];
}

static void note(uintptr_t key, uint32_t read, uint32_t written)
{
    if (2 * f.used >= f.room) {
        const size_t room = f.room ? 4 * f.room : 1 << 12;
        struct touched *bigger = qr_alloc(room, sizeof *bigger);
        for (size_t i = 0; i < f.room; i++)
            if (f.table[i].key != 0)
                *look_up(bigger, room, f.table[i].key) = f.table[i];
        qr_free(f.table);
        f.table = bigger;
        f.room = room;
    }
    struct touched *t = look_up(f.table, f.room, key);
    f.used += t->key == 0;
    t->key = key;
    t->read |= (uint16_t)read;
    t->written |= (uint16_t)written;
}

void qr_emu_flight_settled(void)
{
    if (f.used > 0)
        memset(f.table, 0, f.room * sizeof *f.table);
    f.used = 0;
    f.launched = false;
}

void qr_emu_flight_begin(bool early)
{
    if (!early)
        qr_emu_flight_settled();
    else if (f.launched)
        qr_emu_shadow_touched(note);
    f.launched = true;
}

/* Bytes of [p, p + n) among the 16 of `key`. */
static uint32_t bytes_in(uintptr_t key, const void *p, size_t n)
{
    const uintptr_t from = (uintptr_t)p, to = from + n, begin = from > key * 16 ? from - key * 16 : 0, end = to < key * 16 + 16 ? to - key * 16 : 16;
    return ((1u << end) - 1) & ~((1u << begin) - 1);
}

void qr_emu_flight_note(const void *p, size_t n, bool writes)
{
    for (uintptr_t key = (uintptr_t)p / 16; n > 0 && key * 16 < (uintptr_t)p + n; key++)
        note(key, writes ? 0 : bytes_in(key, p, n), writes ? bytes_in(key, p, n) : 0);
    f.launched = false;
}

/* Whether kernels before this one have written bytes of [p, p + n), or read them and those are written; *written: the former. */
static bool is_touched(const void *p, size_t n, bool writes, bool *written)
{
    for (uintptr_t key = (uintptr_t)p / 16; f.used > 0 && n > 0 && key * 16 < (uintptr_t)p + n; key++) {
        const struct touched *o = look_up(f.table, f.room, key);
        *written = o->key != 0 && (bytes_in(key, p, n) & o->written) != 0;
        if (*written || (o->key != 0 && writes && (bytes_in(key, p, n) & o->read) != 0))
            return true;
    }
    return false;
}

void qr_emu_flight_check(const void *p, size_t n, bool writes, const void *pc)
{
    bool written;
    QR_ASSERT(qr_emu_self != NULL && qr_emu_launched() != NULL);
    if (!qr_emu_launched()->early || qr_emu_self->waited || !is_touched(p, n, writes, &written))
        return;
    char place[300];
    qr_emu_name_place(place, sizeof place, pc);
    qr_emu_report("%s at %p in %s before qr_grid_wait: a kernel that may still run %s it", writes ? "write" : "read", p, place, written ? "writes" : "reads");
}

void qr_emu_flight_check_copy(const struct qr_emu_site *site, const void *p, size_t n)
{
    bool written;
    QR_ASSERT(site != NULL && qr_emu_self != NULL);
    if (qr_emu_launched()->early && !qr_emu_self->fenced && is_touched(p, n, false, &written))
        qr_emu_report("%s in %s:%d reads %p, which a kernel before this one wrote, with no fence.proxy.async of all memory after qr_grid_wait", site->what,
                      site->file, site->line, p);
}

void qr_emu_flight_fence(void)
{
    QR_ASSERT(qr_emu_self != NULL);
    qr_emu_self->fenced = qr_emu_self->waited;
}

void qr_emu_grid_wait(void)
{
    QR_ASSERT(qr_emu_self != NULL);
    qr_emu_self->waited = true;
}
