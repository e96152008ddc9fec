#include <criterion/criterion.h>

#include "kvcache/kv_internal.h"
#include "kvcache/kv_pin.h"
#include "kvcache/kv_prefix.h"

enum { P = 4, MAX = 64 };

static const struct qr_hash128 salt = {.lo = 1, .hi = 1}, other = {.lo = 2, .hi = 1};

static const struct qr_kv_name no_root;

static struct qr_kv_pool *new_pool(int32_t n_blocks, int32_t n_host, int32_t n_pinned_max)
{
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 4);
    struct qr_kv_pool *p = qr_kv_pool_new_tiers(n_blocks, n_host, P, true, &secret);
    qr_kv_pins_open(p, n_pinned_max);
    return p;
}

static void count_up(int32_t *tokens, int32_t n, int32_t from)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = from + i;
}

static void compute(struct qr_kv_pool *p, int32_t *blocks, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        blocks[i] = qr_kv_alloc(p);
        cr_assert_geq(blocks[i], 0);
        qr_kv_prefix_enter(p, blocks[i], i > 0 ? blocks[i - 1] : -1, salt, tokens + i * P);
    }
}

static void release(struct qr_kv_pool *p, const int32_t *blocks, int32_t n)
{
    for (int32_t i = n - 1; i >= 0; i--)
        qr_kv_unref(p, blocks[i]);
}

static int32_t found(struct qr_kv_pool *p, const int32_t *tokens, int32_t n, struct qr_hash128 of)
{
    int32_t blocks[MAX], n_hashed = 0;
    struct qr_hash128 hashes[MAX];
    const int32_t n_found = qr_kv_prefix_find(p, blocks, MAX, tokens, n * P, of, hashes, &n_hashed);
    release(p, blocks, n_found);
    return n_found;
}

/* Every block that can be given out is, once, and comes back with another content. */
static void flood(struct qr_kv_pool *p)
{
    int32_t blocks[MAX], tokens[P], n = qr_kv_pool_available(p);
    for (int32_t i = 0; i < n; i++) {
        count_up(tokens, P, 1000 + i * P);
        compute(p, &blocks[i], tokens, 1);
    }
    release(p, blocks, n);
}

static void expect(const struct qr_kv_pool *p, int32_t n_pinned, int32_t n_owned)
{
    struct qr_kv_stats s;
    qr_kv_pool_stats(p, &s);
    const char *broken = qr_kv_pool_check(p);
    cr_assert_null(broken, "%s", broken);
    cr_assert(s.n_pinned == n_pinned && s.n_owned == n_owned, "pinned %d owned %d", s.n_pinned, s.n_owned);
}

static int32_t pin(struct qr_kv_pool *p, const int32_t *tokens, int32_t n)
{
    int32_t blocks[MAX];
    compute(p, blocks, tokens, n);
    const int32_t pinned = qr_kv_pin(p, blocks, n, tokens, salt, &no_root, 0);
    release(p, blocks, n);
    return pinned;
}

Test(kv_pin, keeps_a_prefix_through_a_flood_until_it_is_unpinned)
{
    struct qr_kv_pool *p = new_pool(10, 0, 5);
    int32_t tokens[3 * P];
    count_up(tokens, 3 * P, 0);
    const int32_t a = pin(p, tokens, 3);
    cr_assert_eq(a, 0);
    expect(p, 3, 3);
    flood(p);
    cr_assert_eq(found(p, tokens, 3, salt), 3);
    cr_assert_eq(found(p, tokens, 3, other), 0);
    cr_assert_eq(qr_kv_pool_available(p), 7);
    qr_kv_unpin(p, a);
    expect(p, 0, 0);
    cr_assert_eq(found(p, tokens, 3, salt), 3);
    flood(p);
    cr_assert_eq(found(p, tokens, 3, salt), 0);
    qr_kv_pool_free(p);
}

Test(kv_pin, counts_blocks_of_several_pins_once_and_holds_no_more_than_it_may)
{
    struct qr_kv_pool *p = new_pool(16, 0, 5);
    int32_t a[4 * P], b[4 * P];
    count_up(a, 4 * P, 0);
    count_up(b, 4 * P, 0);
    b[3 * P] = -1; /* the last block differs */
    const int32_t first = pin(p, a, 4), second = pin(p, b, 4);
    cr_assert(first >= 0 && second >= 0 && first != second);
    expect(p, 5, 5);
    b[2 * P] = -1;
    cr_assert_eq(pin(p, b, 4), -1);
    expect(p, 5, 5);
    qr_kv_unpin(p, first);
    expect(p, 4, 4);
    flood(p);
    cr_assert_eq(found(p, a, 4, salt), 3);
    qr_kv_unpin(p, second);
    expect(p, 0, 0);
    qr_kv_pool_free(p);
}

Test(kv_pin, allows_so_many_pins_and_no_more)
{
    struct qr_kv_pool *p = new_pool(QR_KV_PINS_MAX + 8, 0, QR_KV_PINS_MAX + 4);
    int32_t tokens[P];
    for (int32_t i = 0; i < QR_KV_PINS_MAX; i++) {
        count_up(tokens, P, i * P);
        cr_assert_eq(pin(p, tokens, 1), i);
    }
    count_up(tokens, P, -P);
    cr_assert_eq(pin(p, tokens, 1), -1);
    qr_kv_unpin(p, 7);
    cr_assert_eq(pin(p, tokens, 1), 7);
    expect(p, QR_KV_PINS_MAX, QR_KV_PINS_MAX);
    qr_kv_pool_free(p);
}

Test(kv_pin, holds_what_others_find_and_not_a_private_copy)
{
    struct qr_kv_pool *p = new_pool(12, 0, 6);
    int32_t tokens[2 * P], one[2], two[2];
    count_up(tokens, 2 * P, 0);
    compute(p, one, tokens, 2);
    compute(p, two, tokens, 2);
    cr_assert_geq(qr_kv_pin(p, two, 2, tokens, salt, &no_root, 0), 0);
    release(p, two, 2);
    release(p, one, 2);
    expect(p, 2, 2);
    cr_assert(qr_kv_pins_of(p, one[0]) == 1 && qr_kv_pins_of(p, two[0]) == 0);
    flood(p);
    cr_assert_eq(found(p, tokens, 2, salt), 2);
    qr_kv_pool_free(p);
}

Test(kv_pin, makes_a_prefix_whole_whose_beginning_was_evicted_or_has_moved)
{
    for (int32_t n_host = 0; n_host <= 12; n_host += 12) {
        struct qr_kv_pool *p = new_pool(4, n_host, 3);
        int32_t tokens[2 * P], one[1], two[2];
        count_up(tokens, 2 * P, 0);
        compute(p, one, tokens, 1);
        compute(p, two, tokens, 2); /* the first is a private copy of one's, the second an entry behind that */
        release(p, one, 1);
        flood(p);
        flood(p);
        qr_kv_moved(p);
        cr_assert_eq(found(p, tokens, 2, salt), n_host > 0 ? 2 : 0);
        cr_assert_geq(qr_kv_pin(p, two, 2, tokens, salt, &no_root, 0), 0);
        release(p, two, 2);
        expect(p, 2, 2);
        flood(p);
        qr_kv_moved(p);
        cr_assert_eq(found(p, tokens, 2, salt), 2);
        qr_kv_pool_free(p);
    }
}

Test(kv_pin, outlives_a_cleared_index_as_blocks_that_nothing_finds)
{
    struct qr_kv_pool *p = new_pool(8, 0, 4);
    int32_t tokens[2 * P];
    count_up(tokens, 2 * P, 0);
    const int32_t a = pin(p, tokens, 2);
    qr_kv_prefix_clear(p);
    expect(p, 2, 2);
    cr_assert_eq(found(p, tokens, 2, salt), 0);
    cr_assert_geq(pin(p, tokens, 2), 0);
    cr_assert_eq(found(p, tokens, 2, salt), 2);
    expect(p, 4, 4);
    qr_kv_unpin(p, a);
    expect(p, 2, 2);
    qr_kv_pool_free(p);
}
