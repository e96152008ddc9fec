/* account.c - budgets are counters; an account moves whole pieces of them, so that most allocations touch nothing that threads share. The blocks that a run has
 * allocated stand in a table of its thread (open addressing, linear probing, removal by shifting back): what is left in it when the run fails is freed. */
#include "base/account.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdlib.h>

#include "base/assert.h"

#define GRANT_BYTES (16 << 10) /* an account takes whole pieces of this size from the budget */
#define SPARE_BYTES (64 << 10) /* what an account may have too much of before it gives some back */
#define SLOTS_MIN 256

#define GUARDS_MAX 32

struct guard {
    void (*fn)(void *arg, size_t n);
    void *arg; /* borrowed */
    size_t n;
};

struct qr_account_scope {
    jmp_buf end;
    struct guard guard[GUARDS_MAX];
    int32_t n_guards;
    bool loose;  /* blocks are not remembered */
    void **slot; /* owned [n_slots]: blocks of the run, NULL where there is none */
    size_t n, n_slots;
};

static _Thread_local struct qr_account *current;

/* ---- the budget ---- */

void qr_account_init(struct qr_account *a, struct qr_budget *budget)
{
    QR_ASSERT(a != NULL);
    *a = (struct qr_account){.budget = budget};
}

static void give_back(struct qr_account *a, int64_t n)
{
    QR_ASSERT(n >= 0 && n <= a->granted_bytes);
    a->granted_bytes -= n;
    if (a->budget)
        atomic_fetch_sub_explicit(&a->budget->used_bytes, n, memory_order_relaxed);
}

void qr_account_close(struct qr_account *a)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(a != current && a->scope == NULL);
    give_back(a, a->granted_bytes);
    *a = (struct qr_account){0};
}

/* What has to be granted for n bytes in use. */
static int64_t due(const struct qr_account *a, int64_t n)
{
    const int64_t charged = n > a->kept_bytes ? n : a->kept_bytes;
    return charged > QR_ACCOUNT_FREE_BYTES ? (charged - QR_ACCOUNT_FREE_BYTES + GRANT_BYTES - 1) / GRANT_BYTES * GRANT_BYTES : 0;
}

/* Has the account granted at least n bytes, the budget being filled to most_bytes by it. */
static enum qr_account_failure grant(struct qr_account *a, int64_t n, int64_t most_bytes)
{
    const int64_t more = n - a->granted_bytes;
    if (more > 0 && a->budget) {
        int64_t used = atomic_load_explicit(&a->budget->used_bytes, memory_order_relaxed);
        do {
            if (n > most_bytes)
                return QR_ACCOUNT_TOO_LARGE;
            if (used + more > most_bytes)
                return QR_ACCOUNT_FULL;
        } while (!atomic_compare_exchange_weak_explicit(&a->budget->used_bytes, &used, used + more, memory_order_relaxed, memory_order_relaxed));
    }
    a->granted_bytes = more > 0 ? n : a->granted_bytes;
    return QR_ACCOUNT_OK;
}

bool qr_account_keep(struct qr_account *a, int64_t n_bytes, int64_t most_bytes)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(n_bytes >= 0);
    const int64_t before = a->kept_bytes;
    a->kept_bytes = n_bytes;
    if (grant(a, due(a, a->held_bytes), most_bytes) != QR_ACCOUNT_OK) {
        a->kept_bytes = before;
        return false;
    }
    give_back(a, a->granted_bytes - due(a, a->held_bytes));
    return true;
}

static bool charge(struct qr_account *a, int64_t n_bytes)
{
    const int64_t held = a->held_bytes + n_bytes, needed = due(a, held);
    if (n_bytes > 0 && a->failure != QR_ACCOUNT_OK)
        return false;
    if (needed > a->granted_bytes) {
        a->failure = grant(a, needed, a->budget ? a->budget->max_bytes : INT64_MAX);
        if (a->failure != QR_ACCOUNT_OK)
            return false;
    } else if (a->granted_bytes - needed > SPARE_BYTES) {
        give_back(a, a->granted_bytes - needed);
    }
    a->held_bytes = held;
    return true;
}

static int64_t block_bytes(const void *block)
{
    return block ? (int64_t)malloc_usable_size((void *)(uintptr_t)block) + (int64_t)sizeof(size_t) : 0;
}

/* ---- whose thread it is ---- */

struct qr_account *qr_account_enter(struct qr_account *a)
{
    struct qr_account *before = current;
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->scope == NULL);
    current = a;
    return before;
}

void qr_account_leave(struct qr_account *before)
{
    QR_ASSERT(current != NULL);
    current = before;
}

/* ---- blocks of a run ---- */

static size_t slot_of(const struct qr_account_scope *s, uintptr_t block)
{
    return (size_t)(block / 16 * 0x9E3779B97F4A7C15u >> 20) & (s->n_slots - 1);
}

/* The block's slot, or the empty one where it would be. */
static size_t find(const struct qr_account_scope *s, uintptr_t block)
{
    size_t i = slot_of(s, block);
    while (s->slot[i] && (uintptr_t)s->slot[i] != block)
        i = (i + 1) & (s->n_slots - 1);
    return i;
}

static void put(struct qr_account_scope *s, void *block)
{
    s->slot[find(s, (uintptr_t)block)] = block;
    s->n++;
}

static bool grow(struct qr_account *a, struct qr_account_scope *s)
{
    struct qr_account_scope more = {.n_slots = s->n_slots ? 2 * s->n_slots : SLOTS_MIN};
    if (!charge(a, (int64_t)((more.n_slots - s->n_slots) * sizeof *s->slot)))
        return false;
    more.slot = calloc(more.n_slots, sizeof *more.slot);
    if (!more.slot) {
        charge(a, -(int64_t)((more.n_slots - s->n_slots) * sizeof *s->slot));
        a->failure = QR_ACCOUNT_NO_MEMORY;
        return false;
    }
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slot[i])
            put(&more, s->slot[i]);
    free(s->slot);
    s->slot = more.slot;
    s->n_slots = more.n_slots;
    return true;
}

/* False: it is no block of this run. */
static bool forget(struct qr_account_scope *s, uintptr_t block)
{
    size_t i = s->n_slots ? find(s, block) : 0;
    if (s->n_slots == 0 || !s->slot[i])
        return false;
    s->n--;
    for (size_t j = (i + 1) & (s->n_slots - 1); s->slot[j]; j = (j + 1) & (s->n_slots - 1)) {
        const size_t home = slot_of(s, (uintptr_t)s->slot[j]);
        if (((j - home) & (s->n_slots - 1)) < ((j - i) & (s->n_slots - 1)))
            continue; /* its probing does not pass the gap */
        s->slot[i] = s->slot[j];
        i = j;
    }
    s->slot[i] = NULL;
    return true;
}

static void end_scope(struct qr_account *a, struct qr_account_scope *s)
{
    for (size_t i = 0; a->failure != QR_ACCOUNT_OK && i < s->n_slots; i++)
        if (s->slot[i]) {
            charge(a, -block_bytes(s->slot[i]));
            free(s->slot[i]);
        }
    charge(a, -(int64_t)(s->n_slots * sizeof *s->slot));
    free(s->slot);
    a->scope = NULL;
}

/* Apart from its caller, whose variables a jump leaves alone. */
static __attribute__((noinline)) void call(struct qr_account_scope *s, void (*fn)(void *arg), void *arg)
{
    if (setjmp(s->end) == 0)
        fn(arg);
}

bool qr_account_run(struct qr_account *a, void (*fn)(void *arg), void *arg)
{
    struct qr_account_scope s = {.n = 0};
    struct qr_account *before = current;
    QR_ASSERT(a != NULL && fn != NULL);
    QR_ASSERT(a->failure == QR_ACCOUNT_OK && a->scope == NULL);
    current = a;
    a->scope = &s;
    call(&s, fn, arg);
    current = before;
    end_scope(a, &s);
    return a->failure == QR_ACCOUNT_OK;
}

bool qr_account_try(void (*fn)(void *arg), void *arg)
{
    QR_ASSERT(fn != NULL);
    if (current && !current->scope)
        return current->failure == QR_ACCOUNT_OK && qr_account_run(current, fn, arg);
    fn(arg);
    return true;
}

void qr_account_give(struct qr_account *to, const void *block)
{
    const int64_t n = block_bytes(block);
    QR_ASSERT(to != NULL && to != current);
    if (current && block) {
        if (current->scope)
            forget(current->scope, (uintptr_t)block);
        charge(current, -n);
        give_back(current, current->granted_bytes - due(current, current->held_bytes));
    }
    to->held_bytes += n;
    const int64_t more = due(to, to->held_bytes) - to->granted_bytes;
    if (more > 0 && to->budget)
        atomic_fetch_add_explicit(&to->budget->used_bytes, more, memory_order_relaxed);
    to->granted_bytes += more > 0 ? more : 0;
}

void qr_account_guard(void (*fn)(void *arg, size_t n), void *arg, size_t n)
{
    struct qr_account_scope *s = current ? current->scope : NULL;
    QR_ASSERT(fn != NULL);
    if (!s)
        return;
    QR_ASSERT(s->n_guards < GUARDS_MAX);
    s->guard[s->n_guards++] = (struct guard){fn, arg, n};
}

void qr_account_unguard(const void *arg)
{
    struct qr_account_scope *s = current ? current->scope : NULL;
    int32_t i = s ? s->n_guards - 1 : -1;
    while (i >= 0 && s->guard[i].arg != arg)
        i--;
    if (i < 0)
        return;
    for (s->n_guards--; i < s->n_guards; i++)
        s->guard[i] = s->guard[i + 1];
}

void qr_account_loose(bool on)
{
    struct qr_account_scope *s = current ? current->scope : NULL;
    QR_ASSERT(!s || s->loose != on);
    if (s)
        s->loose = on;
}

/* ---- mem.c's side ---- */

int64_t qr_account_size(const void *block)
{
    return current ? block_bytes(block) : 0;
}

bool qr_account_charge(int64_t n_bytes)
{
    return !current || charge(current, n_bytes);
}

bool qr_account_take(void *block)
{
    struct qr_account *a = current;
    if (!a)
        return true;
    struct qr_account_scope *s = a->scope && !a->scope->loose ? a->scope : NULL;
    if (s && (s->n + 1) * 4 > s->n_slots * 3 && !grow(a, s))
        return false;
    if (!charge(a, block_bytes(block)))
        return false;
    if (s)
        put(s, block);
    return true;
}

void qr_account_drop(void *block)
{
    if (!current || !block)
        return;
    if (current->scope)
        forget(current->scope, (uintptr_t)block);
    charge(current, -block_bytes(block));
}

void qr_account_swap(uintptr_t before, void *after)
{
    if (current && current->scope && before != (uintptr_t)after && forget(current->scope, before))
        put(current->scope, after);
}

/* What guards point to may lie on the stack that the jump gives up. */
static _Noreturn void end_early(struct qr_account_scope *s)
{
    while (s->n_guards > 0) {
        const struct guard g = s->guard[--s->n_guards];
        g.fn(g.arg, g.n);
    }
    longjmp(s->end, 1);
}

bool qr_account_missing(bool by_system)
{
    struct qr_account *a = current;
    if (!a)
        return false;
    if (by_system && a->failure == QR_ACCOUNT_OK)
        a->failure = QR_ACCOUNT_NO_MEMORY;
    QR_ASSERT(a->failure != QR_ACCOUNT_OK);
    if (a->scope)
        end_early(a->scope);
    return true;
}

bool qr_account_is_open(void)
{
    return current != NULL;
}
