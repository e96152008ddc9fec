/* Twins in the index: a prefix is a hit so far as its last blocks have theirs, and a twin is found by way of its own block's entry alone. */
#include <criterion/criterion.h>
#include <string.h>

#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"

enum { P = 4, N = 8, TWINS = 2, KEPT = 3, PARTS = 1 + TWINS };

static const struct qr_hash128 salt = {.lo = 1, .hi = 1};

static struct qr_kv_pool *new_pool(int32_t n_blocks)
{
    struct qr_hash_secret secret;
    const struct qr_kv_twins twins = {.n = TWINS, .stride = N, .n_kept = KEPT};
    qr_hash_secret_seeded(&secret, 4);
    struct qr_kv_pool *p = qr_kv_pool_new(n_blocks, P, true, &secret);
    qr_kv_twins_open(p, &twins);
    return p;
}

/* N blocks with their twins, computed, entered and owned. */
static void compute(struct qr_kv_pool *p, int32_t table[PARTS * N], const int32_t *tokens)
{
    for (int32_t i = 0; i < N; i++) {
        for (int32_t part = 0; part < PARTS; part++)
            table[part * N + i] = qr_kv_alloc(p);
        qr_kv_prefix_enter(p, table[i], i > 0 ? table[i - 1] : -1, salt, tokens + i * P);
        qr_kv_twins_enter(p, table, i);
    }
}

static void let_go(struct qr_kv_pool *p, const int32_t *blocks, int32_t n)
{
    while (n > 0)
        qr_kv_unref(p, blocks[--n]);
}

static void take(struct qr_kv_pool *p, int32_t *blocks, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        cr_assert_geq(blocks[i] = qr_kv_alloc(p), 0);
}

/* Blocks of a hit, whose table is as it should be. want: numbers that it must have; NULL: any. */
static int32_t hit(struct qr_kv_pool *p, const int32_t *tokens, const int32_t *want)
{
    int32_t table[PARTS * N], n_hashed = 0;
    struct qr_hash128 hashes[N];
    const int32_t before = qr_kv_pool_available(p), n = qr_kv_prefix_find(p, table, N, tokens, N * P, salt, hashes, &n_hashed);
    const int32_t first = n > KEPT ? n - KEPT : 0;
    cr_assert_eq(qr_kv_pin_blocks(p, n), n + TWINS * (n - first));
    for (int32_t part = 0; part < PARTS; part++)
        for (int32_t i = 0; i < n; i++)
            cr_assert_eq(table[part * N + i], part > 0 && i < first ? table[part * N + first] : want ? want[part * N + i] : table[part * N + i]);
    for (int32_t part = PARTS - 1; part >= 0; part--)
        for (int32_t i = n - 1; i >= (part > 0 ? first : 0); i--)
            qr_kv_unref(p, table[part * N + i]);
    cr_assert_eq(qr_kv_pool_available(p), before, "a search holds what it found");
    const char *broken = qr_kv_pool_check(p);
    cr_assert_null(broken, "%s", broken);
    return n;
}

Test(kv_twin, a_hit_ends_where_the_blocks_before_its_end_have_twins)
{
    static const struct {
        int32_t missing[3], n; /* blocks whose second twin is given up; what is found */
    } cases[] = {{{-1, -1, -1}, 8}, {{0, -1, -1}, 8}, {{4, -1, -1}, 8}, {{5, -1, -1}, 5}, {{7, -1, -1}, 7}, {{7, 3, -1}, 7},
                 {{7, 4, -1}, 4},   {{6, 3, 0}, 0},   {{6, 2, 0}, 6},   {{5, 2, 0}, 0},   {{5, 2, 1}, 1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct qr_kv_pool *p = new_pool(PARTS * N);
        int32_t tokens[N * P], table[PARTS * N], none[3], n_missing = 0;
        for (int32_t i = 0; i < N * P; i++)
            tokens[i] = i;
        compute(p, table, tokens);
        for (; n_missing < 3 && cases[c].missing[n_missing] >= 0; n_missing++)
            qr_kv_unref(p, table[2 * N + cases[c].missing[n_missing]]); /* released first, so that they are the first to go */
        take(p, none, n_missing);
        let_go(p, none, n_missing);
        for (int32_t b = 0; b < PARTS * N; b++)
            if (qr_kv_refs(p, table[b]) > 0)
                qr_kv_unref(p, table[b]);
        cr_expect_eq(hit(p, tokens, table), cases[c].n, "case %zu: %d", c, hit(p, tokens, table));
        qr_kv_pool_free(p);
    }
}

/* The content comes again under another entry: the old twins, which are still cached, are not its. */
Test(kv_twin, twins_of_an_entry_that_was_given_up_are_not_found_again)
{
    struct qr_kv_pool *p = new_pool(PARTS * N + 1);
    int32_t tokens[N * P] = {0}, table[PARTS * N], fresh;
    compute(p, table, tokens);
    qr_kv_unref(p, table[0]);
    take(p, &fresh, 1); /* the free one; then the first block's entry goes */
    int32_t again = qr_kv_alloc(p);
    cr_assert_eq(again, table[0]);
    cr_assert(qr_kv_prefix_enter(p, fresh, -1, salt, tokens));
    qr_kv_unref(p, fresh);
    qr_kv_unref(p, again);
    let_go(p, table + 1, PARTS * N - 1);
    cr_expect_eq(hit(p, tokens, NULL), 0);
    qr_kv_pool_free(p);
}
