/* block.c - runs a grid: blocks one after the other, a block's threads as fibers; barriers, meetings of warps, shared memory, reports. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define STACK_BYTES QR_EMU_STACK_BYTES
#define GUARD_BYTES 4096
#define BARRIERS 16
#define STATICS_MAX 32
#define GAP 64                                                   /* bytes between shared variables that nobody may touch */
#define SHARED_ROOM (QR_EMU_SHARED_MAX + (STATICS_MAX + 2) * 2 * GAP + QR_EMU_SHARED_ALIGN)
#define REPORT_BYTES 2000

struct variable {
    const void *tag; /* NULL: the dynamic one */
    uint8_t *at;
    size_t n_bytes;
};

/* What runs now. One launch at a time, so there is one of it. */
struct machine {
    const struct qr_emu_launch *launch;
    int32_t n_threads, n_left;
    int32_t n_at[BARRIERS], sum_at[BARRIERS];
    uint32_t warps_at[BARRIERS];
    struct qr_emu_site first_at[BARRIERS];
    struct variable variable[STATICS_MAX + 1];
    int32_t n_variables, counted;
    size_t shared_used, shared_asked;
    void *free_stack[QR_EMU_THREADS_MAX];
    int32_t n_free_stacks;
    void *main_sp, *main_fake;
    const void *main_bottom;
    size_t main_bytes;
    enum qr_emu_order order;
    uint64_t seed;
    int32_t turn[QR_EMU_THREADS_MAX];
    uint32_t waits[QR_EMU_WARPS_MAX], left[QR_EMU_WARPS_MAX]; /* of each warp the lanes that wait at its meeting, and those that have left */
    bool expecting, failed, traps, trapped; /* traps: they lose the device, and have */
    char report[REPORT_BYTES];
};

static struct machine m;
static struct qr_emu_thread thread[QR_EMU_THREADS_MAX];
static struct qr_emu_async async_of[QR_EMU_THREADS_MAX][QR_EMU_ASYNC_MAX];
static uint8_t shared[SHARED_ROOM] __attribute__((aligned(QR_EMU_SHARED_ALIGN)));

struct qr_emu_thread *qr_emu_self;
struct qr_emu_dim3 qr_emu_block_idx, qr_emu_block_dim, qr_emu_grid_dim;

/* ---- fibers ---- */

/* Saves what the calling convention has a callee keep, and goes on where `to` was left. */
void qr_emu_switch(void **from, void *to);
__asm__(".text\n"
        ".globl qr_emu_switch\n"
        ".type qr_emu_switch, @function\n"
        "qr_emu_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n"
        ".size qr_emu_switch, . - qr_emu_switch\n");

static void to_main(bool for_good)
{
    struct qr_emu_thread *t = qr_emu_self;
#if SANITIZED
    __sanitizer_start_switch_fiber(for_good ? NULL : &t->fake_stack, m.main_bottom, m.main_bytes);
#endif
    qr_emu_switch(&t->sp, m.main_sp);
#if SANITIZED
    __sanitizer_finish_switch_fiber(t->fake_stack, &m.main_bottom, &m.main_bytes);
#endif
    (void)for_good;
}

static void leave(void)
{
    qr_emu_self->state = QR_EMU_LEFT;
    m.left[qr_emu_self->warp] |= 1u << qr_emu_self->lane;
}

static void begin_thread(void)
{
#if SANITIZED
    __sanitizer_finish_switch_fiber(NULL, &m.main_bottom, &m.main_bytes);
#endif
    m.launch->body(m.launch->closure);
    if (m.launch->early && !qr_emu_self->waited)
        qr_emu_report("a thread leaves without qr_grid_wait: the next kernel would take this one's end for that of those before it");
    leave();
    to_main(true);
    abort();
}

static void *take_stack(void)
{
    if (m.n_free_stacks > 0)
        return m.free_stack[--m.n_free_stacks];
    uint8_t *p = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE) != 0)
        qr_panic("emulator: no memory for the stack of a thread");
    return p + GUARD_BYTES;
}

/* A stack on which qr_emu_switch returns into begin_thread, aligned as after a call. */
static void prepare(struct qr_emu_thread *t)
{
    t->stack = take_stack();
    qr_emu_unpoison(t->stack, STACK_BYTES);
    void **top = (void **)(void *)((uint8_t *)t->stack + STACK_BYTES - 72);
    memset(top - 8, 0, 16 * sizeof *top);
    top[-1] = (void *)(uintptr_t)begin_thread;
    t->sp = top - 7;
}

static void resume(struct qr_emu_thread *t)
{
    if (t->state == QR_EMU_NEW)
        prepare(t);
    t->state = QR_EMU_READY;
    qr_emu_self = t;
#if SANITIZED
    __sanitizer_start_switch_fiber(&m.main_fake, t->stack, STACK_BYTES);
#endif
    qr_emu_switch(&m.main_sp, t->sp);
#if SANITIZED
    __sanitizer_finish_switch_fiber(m.main_fake, NULL, NULL);
#endif
    qr_emu_self = NULL;
    if (t->state != QR_EMU_LEFT)
        return;
    m.n_left++;
    m.free_stack[m.n_free_stacks++] = t->stack;
    t->stack = NULL;
}

/* ---- reports ---- */

/* Who waits where, threads that wait at the same place together. */
static void describe_waiting(char *out, size_t room)
{
    size_t n = 0;
    for (int32_t i = 0; i < m.n_threads && n < room; i++) {
        const struct qr_emu_thread *t = &thread[i];
        int32_t same = 0, first = i;
        for (int32_t j = m.n_threads - 1; j >= 0; j--) {
            const struct qr_emu_thread *o = &thread[j];
            if (o->state == t->state && (t->state == QR_EMU_LEFT || (o->site.file == t->site.file && o->site.line == t->site.line && o->mask == t->mask)))
                same++, first = j;
        }
        if (first < i)
            continue;
        if (t->state == QR_EMU_LEFT)
            n += (size_t)snprintf(out + n, room - n, "; %d threads from %d on have left", same, i);
        else if (t->state == QR_EMU_AT_WARP)
            n += (size_t)snprintf(out + n, room - n, "; %d threads from %d on wait at %s (mask %08x) in %s:%d", same, i, t->site.what, t->mask, t->site.file,
                                  t->site.line);
        else
            n += (size_t)snprintf(out + n, room - n, "; %d threads from %d on wait at %s in %s:%d", same, i, t->site.what, t->site.file, t->site.line);
    }
}

/* And everything behind it: nothing runs from then on. */
static void end_launch(void)
{
    m.failed = true;
    if (qr_emu_self) {
        leave();
        to_main(true);
    }
}

void qr_emu_report(const char *fmt, ...)
{
    char text[REPORT_BYTES - 300], where[200] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (m.launch && qr_emu_self)
        snprintf(where, sizeof where, "kernel %s, block %u,%u,%u, thread %u,%u,%u: ", m.launch->kernel, qr_emu_block_idx.x, qr_emu_block_idx.y,
                 qr_emu_block_idx.z, qr_emu_self->idx.x, qr_emu_self->idx.y, qr_emu_self->idx.z);
    else if (m.launch)
        snprintf(where, sizeof where, "kernel %s, block %u,%u,%u: ", m.launch->kernel, qr_emu_block_idx.x, qr_emu_block_idx.y, qr_emu_block_idx.z);
    if (!m.expecting) {
        fprintf(stderr, "emulated device: %s%s\n", where, text);
        abort();
    }
    if (!m.failed)
        snprintf(m.report, sizeof m.report, "%s%s", where, text);
    end_launch();
}

void qr_emu_set_traps(bool lose_the_device)
{
    m.traps = lose_the_device;
}

bool qr_emu_trapped(void)
{
    return m.trapped;
}

void qr_emu_trap(const char *file, int line)
{
    if (!m.traps)
        qr_emu_report("__trap in %s:%d", file, line);
    m.trapped = true;
    end_launch();
}

void qr_emu_write_host(uint32_t *pinned, uint32_t x, uint32_t y)
{
    pinned[0] = x;
    pinned[1] = y;
}

const struct qr_emu_launch *qr_emu_launched(void)
{
    return m.launch;
}

bool qr_emu_failed(void)
{
    return m.failed;
}

void qr_emu_expect_begin(void)
{
    m.expecting = true;
    m.failed = false;
    m.report[0] = 0;
}

const char *qr_emu_expect_end(void)
{
    qr_emu_run_all();
    m.expecting = m.failed = false;
    return m.report;
}

void qr_emu_set_order(enum qr_emu_order order, uint64_t seed)
{
    m.order = order;
    m.seed = seed;
}

/* ---- barriers and meetings ---- */

static void clear_barrier(int32_t b)
{
    m.n_at[b] = m.sum_at[b] = 0;
    m.warps_at[b] = 0;
}

/* All who wait at barrier b go on. */
static void open_barrier(int32_t b)
{
    qr_emu_shadow_join(m.warps_at[b]);
    if (b == 0)
        m.counted = m.sum_at[b];
    clear_barrier(b);
    for (int32_t i = 0; i < m.n_threads; i++)
        if (thread[i].state == QR_EMU_AT_BARRIER && thread[i].barrier == b)
            thread[i].state = QR_EMU_READY;
}

static void arrive(const struct qr_emu_site *site, int32_t b, int32_t n_threads, bool waits, int32_t value)
{
    struct qr_emu_thread *t = qr_emu_self;
    QR_ASSERT(t != NULL && b >= 0 && b < BARRIERS);
    QR_ASSERT(n_threads > 0 && n_threads % QR_EMU_WARP == 0);
    if (b == 0 && m.n_left > 0)
        qr_emu_report("%s in %s:%d is for all threads of the block, but %d of them have left", site->what, site->file, site->line, m.n_left);
    if (m.n_at[b] > 0 && b == 0 && (strcmp(m.first_at[b].file, site->file) != 0 || m.first_at[b].line != site->line))
        qr_emu_report("%s in %s:%d, while other threads of the block wait at %s in %s:%d", site->what, site->file, site->line, m.first_at[b].what,
                      m.first_at[b].file, m.first_at[b].line);
    if (m.n_at[b] == 0)
        m.first_at[b] = *site;
    m.n_at[b]++;
    m.sum_at[b] += value;
    m.warps_at[b] |= 1u << t->warp;
    if (m.n_at[b] == n_threads) {
        open_barrier(b);
        return;
    }
    if (!waits)
        return;
    t->state = QR_EMU_AT_BARRIER;
    t->barrier = b;
    t->mask = 0;
    t->site = *site;
    to_main(false);
}

void qr_emu_barrier(const struct qr_emu_site *site, int32_t number, int32_t n_threads, bool waits)
{
    QR_ASSERT(site != NULL);
    QR_ASSERT(number >= 0 && number < BARRIERS);
    if (n_threads > m.n_threads || n_threads % QR_EMU_WARP != 0)
        qr_emu_report("%s in %s:%d is for %d threads; the block has %d, and whole warps come", site->what, site->file, site->line, n_threads, m.n_threads);
    arrive(site, number, n_threads ? n_threads : m.n_threads, waits, 0);
}

int32_t qr_emu_barrier_count(const struct qr_emu_site *site, int predicate)
{
    arrive(site, 0, m.n_threads, true, predicate != 0);
    return m.counted; /* nobody reaches the next barrier before all of these went on */
}

void qr_emu_sleep(const struct qr_emu_site *site, const void *what)
{
    struct qr_emu_thread *t = qr_emu_self;
    QR_ASSERT(t != NULL && site != NULL);
    QR_ASSERT(what != NULL);
    t->state = QR_EMU_ASLEEP;
    t->waits_for = what;
    t->mask = 0;
    t->site = *site;
    to_main(false);
}

int32_t qr_emu_wake(const void *what)
{
    int32_t n = 0;
    QR_ASSERT(what != NULL);
    for (int32_t i = 0; i < m.n_threads; i++)
        if (thread[i].state == QR_EMU_ASLEEP && thread[i].waits_for == what) {
            thread[i].state = QR_EMU_READY;
            n++;
        }
    return n;
}

/* Whether every lane of `mask` has come to the same meeting. */
static bool all_here(const struct qr_emu_thread *t, uint32_t mask)
{
    const struct qr_emu_thread *warp = &thread[t->warp * QR_EMU_WARP];
    if (mask & ~(m.waits[t->warp] | 1u << t->lane)) /* most come when somebody is missing */
        return false;
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        if ((mask >> l & 1) && &warp[l] != t &&
            (warp[l].state != QR_EMU_AT_WARP || warp[l].mask != mask || strcmp(warp[l].site.what, t->site.what) != 0))
            return false;
    return true;
}

void qr_emu_meet(const struct qr_emu_site *site, uint32_t mask, void *mine, qr_emu_combine *combine)
{
    struct qr_emu_thread *t = qr_emu_self;
    QR_ASSERT(t != NULL && site != NULL);
    QR_ASSERT(combine != NULL);
    if (!(mask >> t->lane & 1))
        qr_emu_report("%s in %s:%d: the mask %08x does not name the calling lane %d", site->what, site->file, site->line, mask, t->lane);
    struct qr_emu_thread *warp = &thread[t->warp * QR_EMU_WARP];
    for (int32_t l = 0; (m.left[t->warp] & mask) && l < QR_EMU_WARP; l++)
        if ((mask >> l & 1) && warp[l].state == QR_EMU_LEFT)
            qr_emu_report("%s in %s:%d: the mask %08x names lane %d, which has left", site->what, site->file, site->line, mask, l);
    t->site = *site;
    t->mask = mask;
    t->mine = mine;
    if (!all_here(t, mask)) {
        t->state = QR_EMU_AT_WARP;
        m.waits[t->warp] |= 1u << t->lane;
        to_main(false);
        return;
    }
    void *of[QR_EMU_WARP] = {NULL};
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        if (mask >> l & 1)
            of[l] = warp[l].mine;
    combine(of, mask);
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        if ((mask >> l & 1) && &warp[l] != t)
            warp[l].state = QR_EMU_READY;
    m.waits[t->warp] &= ~mask;
}

/* ---- shared memory ---- */

static uint8_t *new_variable(const void *tag, size_t n_bytes, size_t align)
{
    size_t at = qr_align_up(m.shared_used + GAP, align > 16 ? align : 16);
    m.shared_asked += n_bytes;
    const size_t room = qr_emu_launched()->shared_room;
    if (m.n_variables > STATICS_MAX || at + n_bytes + GAP > sizeof shared || m.shared_asked > room)
        qr_emu_report("%zu bytes of shared memory; a block of this kernel has %zu", m.shared_asked, room);
    m.shared_used = at + n_bytes;
    uint8_t *p = shared + at;
    m.variable[m.n_variables++] = (struct variable){tag, p, n_bytes};
    qr_emu_unpoison(p, n_bytes);
    memset(p, 0xff, n_bytes); /* NaN, until somebody writes */
    return p;
}

void *qr_emu_shared_static(const void *tag, size_t n_bytes, size_t align)
{
    QR_ASSERT(tag != NULL && n_bytes > 0);
    QR_ASSERT(qr_emu_self != NULL);
    for (int32_t i = 1; i < m.n_variables; i++)
        if (m.variable[i].tag == tag)
            return m.variable[i].at;
    return new_variable(tag, n_bytes, align);
}

void *qr_emu_shared_dynamic(size_t align)
{
    QR_ASSERT(qr_emu_self != NULL && m.n_variables > 0);
    QR_ASSERT(align > 0 && QR_EMU_SHARED_ALIGN % align == 0);
    return m.variable[0].at;
}

uint32_t qr_emu_shared_address(const void *p)
{
    if (!qr_emu_is_shared(p, 1))
        qr_emu_report("%p is no address of a shared variable", p);
    return (uint32_t)((const uint8_t *)p - shared);
}

void *qr_emu_shared_at(uint32_t address)
{
    QR_ASSERT(address < sizeof shared);
    return shared + address;
}

bool qr_emu_is_shared(const void *p, size_t n)
{
    const uint8_t *b = p;
    if (b < shared || b >= shared + sizeof shared)
        return false;
    for (int32_t i = 0; i < m.n_variables; i++)
        if (b >= m.variable[i].at && b + n <= m.variable[i].at + m.variable[i].n_bytes)
            return true;
    return false;
}

bool qr_emu_is_between_shared(const void *p)
{
    return (const uint8_t *)p >= shared && (const uint8_t *)p < shared + sizeof shared && !qr_emu_is_shared(p, 1);
}

/* ---- the grid ---- */

static uint64_t next_random(void)
{
    m.seed = m.seed * 6364136223846793005u + 1442695040888963407u;
    return m.seed >> 33;
}

/* The order of one pass over the threads. */
static void choose_turns(bool again)
{
    const int32_t n = m.n_threads;
    for (int32_t i = 0; !again && i < n; i++)
        m.turn[i] = m.order == QR_EMU_BACKWARD ? n - 1 - i : i;
    for (int32_t i = n - 1; m.order == QR_EMU_SHUFFLED && i > 0; i--) {
        int32_t j = (int32_t)(next_random() % (uint64_t)(i + 1)), was = m.turn[i];
        m.turn[i] = m.turn[j];
        m.turn[j] = was;
    }
}

static void begin_block(const struct qr_emu_launch *l, int64_t number)
{
    const struct qr_emu_dim3 d = l->block;
    for (int32_t i = 0; i < m.n_threads; i++) {
        struct qr_emu_thread *t = &thread[i];
        const unsigned int u = (unsigned int)i;
        t->idx = (struct qr_emu_dim3){u % d.x, u / d.x % d.y, u / d.x / d.y};
        t->id = i, t->lane = i % QR_EMU_WARP, t->warp = i / QR_EMU_WARP;
        t->state = QR_EMU_NEW;
        t->async = async_of[i];
        t->n_async = t->async_group = 0;
        t->waited = t->fenced = false;
        t->mask = 0;
        t->fake_stack = NULL;
    }
    for (int32_t b = 0; b < BARRIERS; b++)
        clear_barrier(b);
    m.n_left = 0;
    memset(m.waits, 0, sizeof m.waits);
    memset(m.left, 0, sizeof m.left);
    m.n_variables = 0;
    m.shared_used = m.shared_asked = 0;
    qr_emu_poison(shared, sizeof shared);
    new_variable(NULL, l->shared_bytes, QR_EMU_SHARED_ALIGN);
    qr_emu_shadow_block(number, m.n_threads / QR_EMU_WARP);
    qr_emu_copies_begin();
    qr_emu_wgmma_begin();
}

static void run_block(void)
{
    choose_turns(false);
    while (m.n_left < m.n_threads) {
        bool moved = false;
        for (int32_t i = 0; i < m.n_threads; i++) {
            struct qr_emu_thread *t = &thread[m.turn[i]];
            if (t->state != QR_EMU_NEW && t->state != QR_EMU_READY)
                continue;
            moved = true;
            resume(t);
            if (m.failed)
                return;
        }
        if (qr_emu_copies_pending() && (!moved || (m.order == QR_EMU_SHUFFLED && next_random() % 4 == 0))) {
            qr_emu_copies_step(next_random());
            if (m.failed)
                return;
            moved = true;
        }
        if (!moved) {
            char text[REPORT_BYTES / 2];
            describe_waiting(text, sizeof text);
            qr_emu_report("nobody can go on%s", text);
            return;
        }
        choose_turns(true);
    }
    qr_emu_copies_end();
    qr_emu_wgmma_end();
}

/* Stacks that an ended launch left behind. */
static void collect_stacks(void)
{
    for (int32_t i = 0; i < m.n_threads; i++)
        if (thread[i].stack) {
            m.free_stack[m.n_free_stacks++] = thread[i].stack;
            thread[i].stack = NULL;
        }
}

void qr_emu_run(const struct qr_emu_launch *l)
{
    QR_ASSERT(l != NULL && l->body != NULL);
    QR_ASSERT(m.launch == NULL);
    m.launch = l;
    m.n_threads = (int32_t)(l->block.x * l->block.y * l->block.z);
    qr_emu_block_dim = l->block;
    qr_emu_grid_dim = l->grid;
    qr_emu_shadow_launch();
    const int64_t n_blocks = (int64_t)l->grid.x * l->grid.y * l->grid.z;
    for (int64_t b = 0; b < n_blocks && !m.failed; b++) {
        qr_emu_block_idx = (struct qr_emu_dim3){(unsigned int)(b % l->grid.x), (unsigned int)(b / l->grid.x % l->grid.y),
                                                (unsigned int)(b / l->grid.x / l->grid.y)};
        begin_block(l, b);
        if (!m.failed)
            run_block();
        collect_stacks();
    }
    qr_emu_unpoison(shared, sizeof shared);
    m.launch = NULL;
}
