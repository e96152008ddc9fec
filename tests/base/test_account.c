#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

static int64_t used(const struct qr_budget *b)
{
    return atomic_load(&((struct qr_budget *)(uintptr_t)b)->used_bytes);
}

Test(account, what_is_held_is_taken_from_the_budget_but_for_the_allowance_and_goes_back)
{
    struct qr_budget budget = {.max_bytes = 1 << 20};
    struct qr_account a;
    qr_account_init(&a, &budget);
    struct qr_account *before = qr_account_enter(&a);
    void *small = qr_alloc(QR_ACCOUNT_FREE_BYTES / 2, 1);
    cr_assert_eq(used(&budget), 0);
    void *p = qr_alloc(300000, 1);
    cr_assert_geq(used(&budget), 300000 - QR_ACCOUNT_FREE_BYTES);
    cr_assert_leq(used(&budget), 300000 + (32 << 10));
    p = qr_realloc(p, 600000, 1);
    cr_assert_geq(used(&budget), 600000 - QR_ACCOUNT_FREE_BYTES);
    qr_free(p);
    cr_assert_leq(used(&budget), 64 << 10);
    qr_free(small);
    cr_assert_eq(a.held_bytes, 0);
    qr_account_leave(before);
    qr_account_close(&a);
    cr_assert_eq(used(&budget), 0);
}

Test(account, without_room_there_is_no_block_and_the_reason_says_whether_others_have_it)
{
    struct qr_budget budget = {.max_bytes = 1 << 20};
    struct qr_account a, b, c;
    qr_account_init(&a, &budget);
    qr_account_init(&b, &budget);
    qr_account_init(&c, &budget);
    struct qr_account *before = qr_account_enter(&a);
    void *p = qr_alloc(600000, 1);
    qr_account_leave(before);
    before = qr_account_enter(&b);
    cr_assert_null(qr_alloc(600000, 1));
    cr_assert_eq(b.failure, QR_ACCOUNT_FULL);
    cr_assert_null(qr_alloc(1, 1), "the account stays failed");
    qr_account_leave(before);
    before = qr_account_enter(&c);
    cr_assert_null(qr_alloc(2 << 20, 1));
    cr_assert_eq(c.failure, QR_ACCOUNT_TOO_LARGE);
    qr_account_leave(before);
    qr_free(p);
    qr_account_close(&a);
    qr_account_close(&b);
    qr_account_close(&c);
    cr_assert_eq(used(&budget), 0);
}

Test(account, a_buffer_without_room_keeps_what_it_has)
{
    struct qr_budget budget = {.max_bytes = 64 << 10};
    struct qr_account a;
    struct qr_buf buf = {0};
    qr_account_init(&a, &budget);
    struct qr_account *before = qr_account_enter(&a);
    for (int i = 0; i < 200000; i++)
        qr_buf_printf(&buf, "%d,", i);
    qr_account_leave(before);
    cr_assert_eq(a.failure, QR_ACCOUNT_TOO_LARGE);
    cr_assert_gt(buf.len, 30000);
    cr_assert_eq(strlen(buf.data), buf.len);
    cr_assert_eq(buf.data[buf.len - 1], ',');
    qr_buf_release(&buf);
    qr_account_close(&a);
}

Test(account, a_block_that_moves_takes_its_share_along)
{
    struct qr_budget budget = {.max_bytes = 1 << 20};
    struct qr_account a, b;
    qr_account_init(&a, &budget);
    qr_account_init(&b, &budget);
    struct qr_account *before = qr_account_enter(&a);
    void *p = qr_alloc(500000, 1);
    const int64_t full = used(&budget);
    qr_account_give(&b, p);
    qr_account_leave(before);
    cr_assert_eq(used(&budget), full);
    cr_assert_eq(a.held_bytes, 0);
    qr_account_close(&a);
    cr_assert_geq(used(&budget), 480000, "the other's by now");
    before = qr_account_enter(&b);
    qr_free(p);
    qr_account_leave(before);
    qr_account_close(&b);
    cr_assert_eq(used(&budget), 0);
}

Test(account, what_is_kept_ahead_of_its_use_is_not_taken_twice)
{
    struct qr_budget budget = {.max_bytes = 1 << 20};
    struct qr_account a, b;
    qr_account_init(&a, &budget);
    qr_account_init(&b, &budget);
    cr_assert(qr_account_keep(&a, 500000, 512 << 10));
    const int64_t kept = used(&budget);
    cr_assert_not(qr_account_keep(&b, 100000, 512 << 10), "half of the budget is full");
    cr_assert(qr_account_keep(&b, 100000, 1 << 20));
    cr_assert(qr_account_keep(&b, 0, 1 << 20));
    cr_assert_eq(used(&budget), kept);
    struct qr_account *before = qr_account_enter(&a);
    void *p = qr_alloc(400000, 1);
    cr_assert_eq(used(&budget), kept);
    qr_free(p);
    qr_account_leave(before);
    cr_assert_eq(used(&budget), kept);
    qr_account_close(&a);
    qr_account_close(&b);
    cr_assert_eq(used(&budget), 0);
}

/* ---- runs ---- */

struct work {
    int32_t stop_at, n, undone;
    void *kept[2000];
    struct qr_rng rng;
};

static void undo(void *arg, size_t n)
{
    struct work *w = arg;
    w->undone += (int32_t)n;
}

/* Allocates, grows and frees at random. */
static void churn(void *arg)
{
    struct work *w = arg;
    qr_account_guard(undo, w, 1);
    for (int32_t i = 0; i < 4000; i++) {
        const uint32_t at = qr_rng_below(&w->rng, QR_COUNT(w->kept)), what = qr_rng_below(&w->rng, 3);
        if (what == 0) {
            qr_free(w->kept[at]);
            w->kept[at] = NULL;
        } else {
            w->kept[at] = qr_realloc(w->kept[at], 1 + qr_rng_below(&w->rng, 500), 1);
        }
        w->n++;
    }
    qr_account_unguard(w);
}

static int32_t n_left;

static bool refuse_the_last(size_t n_bytes)
{
    return n_left > 0 && --n_left == 0;
}

Test(account, a_run_without_memory_ends_there_leaves_nothing_and_undoes_what_it_guards)
{
    struct qr_budget budget = {.max_bytes = 8 << 20};
    const uint64_t seed = qr_rng_seed_random();
    const int64_t before = qr_memory_allocated();
    cr_log_info("seed %llu", (unsigned long long)seed);
    for (int32_t fail_at = 1; fail_at < 2400; fail_at += 97) {
        struct work w = {.n = 0};
        struct qr_account a;
        w.rng = (struct qr_rng){.seed = seed + (uint64_t)fail_at};
        qr_account_init(&a, &budget);
        qr_mem_refuse = refuse_the_last;
        n_left = fail_at;
        const bool done = qr_account_run(&a, churn, &w);
        qr_mem_refuse = NULL;
        cr_assert_eq(n_left, 0);
        cr_assert_not(done);
        cr_assert_eq(a.failure, QR_ACCOUNT_NO_MEMORY);
        cr_assert_eq(w.undone, 1);
        cr_assert_eq(a.held_bytes, 0);
        qr_account_close(&a);
        cr_assert_eq(used(&budget), 0);
    }
    cr_assert_leq(qr_memory_allocated(), before + (256 << 10), "what the heap keeps of freed blocks");
}

Test(account, a_run_that_ends_well_leaves_its_blocks_charged)
{
    struct qr_budget budget = {.max_bytes = 8 << 20};
    struct work w = {.n = 0};
    struct qr_account a;
    w.rng = (struct qr_rng){.seed = 7};
    qr_account_init(&a, &budget);
    cr_assert(qr_account_run(&a, churn, &w));
    cr_assert_eq(w.n, 4000);
    cr_assert_eq(w.undone, 0);
    struct qr_account *before = qr_account_enter(&a);
    for (int i = 0; i < QR_COUNT(w.kept); i++)
        qr_free(w.kept[i]);
    qr_account_leave(before);
    cr_assert_eq(a.held_bytes, 0);
    qr_account_close(&a);
}

struct text {
    const char *text;
    size_t n;
};

static void read_json(void *arg)
{
    const struct text *t = arg;
    struct qr_json *doc = NULL;
    struct qr_err err;
    cr_assert_eq(qr_json_parse(&doc, t->text, t->n, &qr_json_limits_request, &err), 0);
    qr_json_free(doc);
}

Test(account, a_tree_of_JSON_is_charged_and_a_budget_that_it_does_not_fit_ends_it)
{
    struct qr_buf text = {0};
    for (int i = 0; i < 30000; i++)
        qr_buf_put_str(&text, i > 0 ? ",1" : "[1");
    qr_buf_put_byte(&text, ']');
    struct qr_budget budget = {.max_bytes = 64 << 20};
    struct qr_account a;
    struct text t = {text.data, text.len};
    qr_account_init(&a, &budget);
    cr_assert(qr_account_run(&a, read_json, &t));
    qr_account_close(&a);
    budget.max_bytes = 1 << 20;
    qr_account_init(&a, &budget);
    cr_assert_not(qr_account_run(&a, read_json, &t));
    cr_assert_eq(a.failure, QR_ACCOUNT_TOO_LARGE);
    cr_assert_eq(a.held_bytes, 0);
    qr_account_close(&a);
    qr_buf_release(&text);
}

Test(account, a_tree_whose_nth_node_is_missing_leaves_nothing)
{
    static const char text[] = "{\"a\":[1,\"\\u00e9\",{\"b\":null,\"c\":[[],{}]}],\"a long name of a member\":[true,-1.5e3]}";
    struct text t = {text, sizeof text - 1};
    bool done = false;
    for (int32_t n = 1; !done; n++) {
        struct qr_account a;
        qr_account_init(&a, NULL);
        n_left = n;
        qr_mem_refuse = refuse_the_last;
        done = qr_account_run(&a, read_json, &t);
        qr_mem_refuse = NULL;
        cr_assert_eq(a.held_bytes, 0, "allocation %d", n);
        cr_assert(done == (n_left > 0) && n < 100);
        qr_account_close(&a);
    }
}
