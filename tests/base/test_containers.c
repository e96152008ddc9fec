#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- arena ---- */

Test(arena, hands_out_aligned_pieces_that_do_not_overlap)
{
    struct qr_arena a;
    struct qr_rng r = {.seed = 51};
    uint8_t *piece[2000];
    size_t size[2000];
    qr_arena_init(&a, 64 << 20);
    for (int i = 0; i < 2000; i++) {
        size_t align = (size_t)1 << qr_rng_below(&r, 7);
        size[i] = qr_rng_below(&r, i % 100 == 0 ? 200000 : 500);
        piece[i] = qr_arena_alloc(&a, size[i], align);
        cr_assert_eq((uintptr_t)piece[i] % align, 0);
        memset(piece[i], i & 0xff, size[i]);
    }
    for (int i = 0; i < 2000; i++)
        for (size_t j = 0; j < size[i]; j++)
            cr_assert_eq(piece[i][j], i & 0xff, "piece %d was written over", i);
    qr_arena_release(&a);
}

Test(arena, says_no_at_its_limit_and_not_before)
{
    struct qr_arena a;
    qr_arena_init(&a, 1000);
    cr_assert_null(qr_arena_try(&a, 1001, 1));
    cr_assert_not_null(qr_arena_try(&a, 1000, 1));
    cr_assert_null(qr_arena_try(&a, 1, 1));
    cr_assert_leq(a.total, 1000);
    qr_arena_release(&a);
    qr_arena_init(&a, (size_t)1 << 20);
    size_t given = 0;
    while (qr_arena_try(&a, 999, 8))
        given += 999;
    cr_assert_leq(a.total, (size_t)1 << 20);
    cr_assert_gt(given, ((size_t)1 << 20) * 9 / 10);
    cr_assert_null(qr_arena_try(&a, SIZE_MAX, 1));
    cr_assert_null(qr_arena_try(&a, SIZE_MAX - 63, 64));
    qr_arena_release(&a);
}

Test(arena, gives_the_same_addresses_for_the_same_requests)
{
    _Alignas(64) static uint8_t memory[4096];
    struct qr_arena a;
    void *first[10];
    qr_arena_init_fixed(&a, memory, sizeof memory);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 10; i++) {
            void *p = qr_arena_alloc(&a, (size_t)(i * 13 + 1), 32);
            if (round == 0)
                first[i] = p;
            cr_assert_eq(p, first[i]);
        }
        qr_arena_rewind(&a, 0);
    }
    size_t mark = qr_arena_mark(&a);
    cr_assert_not_null(qr_arena_alloc(&a, 4096, 64));
    cr_assert_null(qr_arena_try(&a, 1, 1));
    cr_assert_eq(a.peak, 4096);
    qr_arena_rewind(&a, mark);
    cr_assert_eq(qr_arena_try(&a, 4097, 1), NULL);
    qr_arena_release(&a);
}

Test(arena, aborts_when_a_plan_is_overrun, .signal = SIGABRT)
{
    uint8_t memory[64];
    struct qr_arena a;
    qr_arena_init_fixed(&a, memory, sizeof memory);
    qr_arena_alloc(&a, 65, 1);
}

/* ---- buf ---- */

Test(buf, grows_and_stays_terminated)
{
    struct qr_buf b = {0};
    qr_buf_reserve(&b, 0);
    cr_assert_str_eq(b.data, "", "also before anything was put");
    char want[3000];
    size_t n = 0;
    for (int i = 0; i < 1000; i++) {
        qr_buf_put_byte(&b, (char)('a' + i % 26));
        want[n++] = (char)('a' + i % 26);
        cr_assert_eq(b.len, n);
        cr_assert_eq(b.data[n], 0);
    }
    cr_assert_eq(memcmp(b.data, want, n), 0);
    qr_buf_clear(&b);
    cr_assert_eq(b.len, 0);
    cr_assert_str_eq(b.data, "");
    qr_buf_put(&b, "a\0b", 3);
    qr_buf_put(&b, NULL, 0);
    qr_buf_put_str(&b, "c");
    cr_assert_eq(b.len, 4);
    cr_assert_eq(memcmp(b.data, "a\0bc", 5), 0);
    qr_buf_drop_front(&b, 3);
    cr_assert_str_eq(b.data, "c");
    qr_buf_drop_front(&b, 1);
    qr_buf_drop_front(&b, 0);
    cr_assert_eq(b.len, 0);
    qr_buf_release(&b);
}

Test(buf, formats_text_of_any_length)
{
    struct qr_buf b = {0};
    for (int n = 0; n < 700; n++) {
        qr_buf_clear(&b);
        qr_buf_printf(&b, "%*s|", n, "");
        cr_assert_eq(b.len, (size_t)n + 1);
        cr_assert_eq(b.data[n], '|');
        cr_assert_eq(b.data[n + 1], 0);
    }
    qr_buf_release(&b);
    qr_buf_printf(&b, "%s", "");
    cr_assert_str_eq(b.data, "", "a buffer is usable again after release");
    qr_buf_release(&b);
}

Test(buf, writes_integers_like_printf)
{
    static const int64_t edge[] = {0, 1, -1, 9, 10, -10, 99, 100, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_MIN + 1, 1000000000000000000};
    struct qr_buf b = {0};
    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++) {
        char want[32];
        snprintf(want, sizeof want, "%lld", (long long)edge[i]);
        qr_buf_clear(&b);
        qr_buf_put_i64(&b, edge[i]);
        cr_assert_str_eq(b.data, want);
    }
    qr_buf_release(&b);
}

Test(buf, control_characters_are_made_visible)
{
    struct qr_buf out = {0};
    qr_buf_put_visible(&out, "a\033[31m\r\b\0\177\n\t\xc2\x9b\xc3\xa9\xc2\xa0", 18);
    cr_expect_eq(strcmp(out.data, "a^[[31m^M^H^@^?\n\t\xef\xbf\xbd\xc3\xa9\xc2\xa0"), 0, "%s", out.data);
    qr_buf_release(&out);
}

/* ---- list ---- */

struct item {
    int value;
    struct qr_node node;
};

Test(list, keeps_its_order_through_every_operation)
{
    struct qr_node a, b;
    struct item item[6];
    qr_list_init(&a);
    qr_list_init(&b);
    cr_assert(qr_list_empty(&a));
    cr_assert_null(qr_list_pop_front(&a));
    for (int i = 0; i < 6; i++)
        item[i].value = i;
    qr_list_push_back(&a, &item[1].node);
    qr_list_push_back(&a, &item[2].node);
    qr_list_push_front(&a, &item[0].node);
    qr_list_push_back(&b, &item[3].node);
    qr_list_push_back(&b, &item[4].node);
    qr_list_push_back(&b, &item[5].node);
    qr_list_remove(&item[4].node);
    cr_assert(qr_list_empty(&item[4].node), "a node that is on no list points to itself");
    qr_list_splice_back(&a, &b);
    qr_list_splice_back(&a, &b);
    cr_assert(qr_list_empty(&b));
    static const int want[] = {0, 1, 2, 3, 5};
    for (int i = 0; i < 5; i++) {
        struct qr_node *n = qr_list_pop_front(&a);
        cr_assert_not_null(n);
        cr_assert_eq(QR_CONTAINER(n, struct item, node)->value, want[i]);
    }
    cr_assert(qr_list_empty(&a));
}

/* ---- map ---- */

Test(map, finds_what_was_added_and_nothing_else)
{
    enum { N = 50000 };
    struct qr_map m;
    char (*key)[16] = malloc(N * sizeof *key);
    qr_map_init(&m, 10);
    for (int i = 0; i < N; i++) {
        int len = snprintf(key[i], sizeof key[i], "key%d", i);
        cr_assert(qr_map_add(&m, key[i], (size_t)len, i));
        cr_assert(!qr_map_add(&m, key[i], (size_t)len, -i), "the same key twice");
    }
    cr_assert_eq(m.n, N);
    for (int i = 0; i < N; i++)
        cr_assert_eq(qr_map_find(&m, key[i], strlen(key[i]), -1), i);
    cr_assert_eq(qr_map_find(&m, "key", 3, -1), -1);
    cr_assert_eq(qr_map_find(&m, "key50000", 8, -7), -7);
    cr_assert_eq(qr_map_find(&m, "", 0, -1), -1);
    cr_assert(qr_map_add(&m, "", 0, 5));
    cr_assert_eq(qr_map_find(&m, "x", 0, -1), 5, "the empty key");
    cr_assert(qr_map_add(&m, "a\0b", 3, 6));
    cr_assert_eq(qr_map_find(&m, "a", 1, -1), -1, "keys are bytes, not strings");
    qr_map_release(&m);
    cr_assert_eq(qr_map_find(&m, "a", 1, -1), -1);
    free(key);
}

/* ---- hash ---- */

Test(hash, is_the_same_for_the_same_secret_only)
{
    struct qr_hash_secret a, b, c;
    qr_hash_secret_seeded(&a, 1);
    qr_hash_secret_seeded(&b, 1);
    qr_hash_secret_seeded(&c, 2);
    for (size_t n = 0; n < 600; n += 7) {
        char bytes[600];
        memset(bytes, 'x', sizeof bytes);
        struct qr_hash128 x = qr_hash128_keyed(bytes, n, &a), y = qr_hash128_keyed(bytes, n, &b), z = qr_hash128_keyed(bytes, n, &c);
        cr_assert(x.lo == y.lo && x.hi == y.hi);
        cr_assert(x.lo != z.lo && x.hi != z.hi, "%zu bytes", n);
        cr_assert_neq(qr_hash64(bytes, n, 1), qr_hash64(bytes, n, 2));
    }
    qr_hash_secret_random(&a);
    qr_hash_secret_random(&b);
    cr_assert_neq(memcmp(&a, &b, sizeof a), 0);
}

/* ---- mem ---- */

Test(mem, gives_zeroed_and_aligned_memory)
{
    static const size_t sizes[] = {0, 1, 63, 4096, 100000, ((size_t)2 << 20) - 1, (size_t)2 << 20, ((size_t)5 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t align = 8; align <= 4096; align *= 8) {
            uint8_t *p = qr_alloc_aligned(sizes[i], align);
            cr_assert_eq((uintptr_t)p % align, 0);
            for (size_t j = 0; j < sizes[i]; j++)
                cr_assert_eq(p[j], 0);
            memset(p, 0xff, sizes[i]);
            qr_free_aligned(p);
        }
    qr_free_aligned(NULL);
    uint8_t *p = qr_alloc(3, 5);
    for (int i = 0; i < 15; i++)
        cr_assert_eq(p[i], 0);
    qr_free(p);
    char *s = qr_strndup("abc", 2);
    cr_assert_str_eq(s, "ab");
    qr_free(s);
    s = qr_strdup("");
    cr_assert_str_eq(s, "");
    qr_free(s);
    qr_free(NULL);
}

Test(mem, checks_products_and_sums)
{
    size_t r = 7;
    cr_assert(!qr_mul_size(SIZE_MAX / 2, 3, &r));
    cr_assert(!qr_add_size(SIZE_MAX, 1, &r));
    cr_assert_eq(r, 7);
    cr_assert(qr_mul_size(SIZE_MAX / 2, 2, &r));
    cr_assert_eq(r, SIZE_MAX - 1);
    cr_assert(qr_add_size(SIZE_MAX - 1, 1, &r));
    cr_assert_eq(qr_align_up(0, 64), 0);
    cr_assert_eq(qr_align_up(1, 64), 64);
    cr_assert_eq(qr_align_up(64, 64), 64);
}

Test(mem, aborts_when_a_product_overflows, .signal = SIGABRT)
{
    qr_alloc(SIZE_MAX / 2, 3);
}
