#include <criterion/criterion.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"
#include "tests/seed.h"

enum { P = 4, MAX = 64 };

static const struct qr_hash128 salt_a = {.lo = 1, .hi = 1}, salt_b = {.lo = 2, .hi = 1};

static struct qr_kv_pool *new_pool(int32_t n_blocks, bool prefix_cache)
{
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 4);
    return qr_kv_pool_new(n_blocks, P, prefix_cache, &secret);
}

static void expect(const struct qr_kv_pool *p, int32_t n_free, int32_t n_cached, int32_t n_owned)
{
    struct qr_kv_stats s;
    qr_kv_pool_stats(p, &s);
    const char *broken = qr_kv_pool_check(p);
    cr_assert_null(broken, "%s", broken);
    cr_assert(s.n_free == n_free && s.n_cached == n_cached && s.n_owned == n_owned, "free %d cached %d owned %d", s.n_free,
              s.n_cached, s.n_owned);
    cr_assert_eq(qr_kv_pool_available(p), n_free + n_cached);
}

/* Computes n_blocks full blocks of tokens: allocated, entered in order, ids to blocks[]. Returns how many were entered as new. */
static int32_t compute(struct qr_kv_pool *p, int32_t *blocks, const int32_t *tokens, int32_t n_blocks, struct qr_hash128 salt)
{
    int32_t n_entered = 0;
    for (int32_t i = 0; i < n_blocks; i++) {
        blocks[i] = qr_kv_alloc(p);
        cr_assert_geq(blocks[i], 0);
        n_entered += qr_kv_prefix_enter(p, blocks[i], i > 0 ? blocks[i - 1] : -1, salt, tokens + i * P);
    }
    return n_entered;
}

static void release(struct qr_kv_pool *p, const int32_t *blocks, int32_t n_blocks)
{
    for (int32_t i = n_blocks - 1; i >= 0; i--)
        qr_kv_unref(p, blocks[i]);
}

/* The number of blocks found; the references are given back. */
static int32_t found(struct qr_kv_pool *p, const int32_t *tokens, int32_t n_tokens, struct qr_hash128 salt)
{
    int32_t blocks[MAX], n_hashed = 0;
    struct qr_hash128 hashes[MAX];
    int32_t n = qr_kv_prefix_find(p, blocks, MAX, tokens, n_tokens, salt, hashes, &n_hashed);
    for (int32_t i = 0; i < n; i++)
        cr_assert_eq(memcmp(qr_kv_prefix_tokens(p, blocks[i]), tokens + i * P, P * sizeof *tokens), 0);
    release(p, blocks, n);
    return n;
}

static void count_up(int32_t *tokens, int32_t n, int32_t from)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = from + i;
}

Test(kv_pool, hands_out_every_block_once_and_then_none)
{
    struct qr_kv_pool *p = new_pool(5, true);
    bool seen[5] = {false};
    for (int i = 0; i < 5; i++) {
        int32_t b = qr_kv_alloc(p);
        cr_assert(b >= 0 && b < 5 && !seen[b]);
        cr_assert_eq(qr_kv_refs(p, b), 1);
        seen[b] = true;
        expect(p, 4 - i, 0, i + 1);
    }
    cr_assert_eq(qr_kv_alloc(p), -1);
    for (int32_t b = 0; b < 5; b++)
        qr_kv_unref(p, b);
    expect(p, 5, 0, 0);
    qr_kv_pool_free(p);
}

Test(kv_pool, keeps_a_block_until_its_last_owner_lets_go)
{
    struct qr_kv_pool *p = new_pool(2, true);
    int32_t b = qr_kv_alloc(p);
    qr_kv_ref(p, b);
    qr_kv_unref(p, b);
    expect(p, 1, 0, 1);
    qr_kv_unref(p, b);
    expect(p, 2, 0, 0);
    qr_kv_pool_free(p);
}

Test(kv_pool, takes_free_blocks_first_then_the_least_recent_tail)
{
    struct qr_kv_pool *p = new_pool(6, true);
    int32_t old_tokens[2 * P], new_tokens[2 * P], old_blocks[2], new_blocks[2], taken[6];
    count_up(old_tokens, 2 * P, 0);
    count_up(new_tokens, 2 * P, 100);
    cr_assert_eq(compute(p, old_blocks, old_tokens, 2, salt_a), 2);
    cr_assert_eq(compute(p, new_blocks, new_tokens, 2, salt_a), 2);
    release(p, old_blocks, 2);
    release(p, new_blocks, 2);
    expect(p, 2, 4, 0);
    for (int i = 0; i < 6; i++)
        taken[i] = qr_kv_alloc(p);
    cr_assert(taken[2] == old_blocks[1] && taken[3] == old_blocks[0] && taken[4] == new_blocks[1] && taken[5] == new_blocks[0]);
    expect(p, 0, 0, 6);
    struct qr_kv_stats s;
    qr_kv_pool_stats(p, &s);
    cr_assert_eq(s.n_evicted, 4);
    qr_kv_pool_free(p);
}

Test(kv_pool, forgets_what_was_used_least_recently)
{
    struct qr_kv_pool *p = new_pool(3, true);
    int32_t tokens[3][P], block;
    for (int k = 0; k < 3; k++) {
        count_up(tokens[k], P, 10 * k);
        compute(p, &block, tokens[k], 1, salt_a);
        release(p, &block, 1);
    }
    cr_assert_eq(found(p, tokens[0], P, salt_a), 1); /* used again: now the most recent */
    block = qr_kv_alloc(p);
    cr_assert_eq(found(p, tokens[1], P, salt_a), 0);
    cr_assert_eq(found(p, tokens[0], P, salt_a), 1);
    cr_assert_eq(found(p, tokens[2], P, salt_a), 1);
    qr_kv_pool_free(p);
}

Test(kv_pool, keeps_nothing_when_the_prefix_cache_is_off)
{
    struct qr_kv_pool *p = new_pool(4, false);
    int32_t tokens[2 * P], blocks[2];
    count_up(tokens, 2 * P, 0);
    cr_assert_eq(compute(p, blocks, tokens, 2, salt_a), 0);
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 0);
    release(p, blocks, 2);
    expect(p, 4, 0, 0);
    qr_kv_pool_free(p);
}

Test(kv_prefix, finds_the_longest_run_of_full_blocks)
{
    struct qr_kv_pool *p = new_pool(8, true);
    int32_t tokens[5 * P], blocks[3];
    count_up(tokens, 5 * P, 0);
    compute(p, blocks, tokens, 3, salt_a);
    cr_assert_eq(found(p, tokens, 5 * P, salt_a), 3);
    cr_assert_eq(found(p, tokens, 3 * P, salt_a), 3);
    cr_assert_eq(found(p, tokens, 3 * P - 1, salt_a), 2);
    cr_assert_eq(found(p, tokens, P - 1, salt_a), 0);
    tokens[P] = -1; /* the first token of the second block */
    cr_assert_eq(found(p, tokens, 5 * P, salt_a), 1);
    cr_assert_eq(found(p, tokens + P, 4 * P, salt_a), 0); /* the same tokens as a later block are another prefix */
    release(p, blocks, 3);
    expect(p, 5, 3, 0);
    qr_kv_pool_free(p);
}

Test(kv_prefix, takes_references_and_leaves_hashes_for_the_next_time)
{
    struct qr_kv_pool *p = new_pool(MAX, true);
    int32_t tokens[MAX * P], blocks[MAX], again[MAX], n_hashed = 0;
    struct qr_hash128 hashes[MAX];
    count_up(tokens, MAX * P, 0);
    compute(p, blocks, tokens, 40, salt_a);
    release(p, blocks, 40);
    expect(p, MAX - 40, 40, 0);
    cr_assert_eq(qr_kv_prefix_find(p, again, 33, tokens, MAX * P, salt_a, hashes, &n_hashed), 33);
    expect(p, MAX - 40, 7, 33);
    cr_assert(n_hashed >= 33 && n_hashed <= MAX);
    struct qr_hash128 h = salt_a;
    for (int32_t i = 0; i < n_hashed; i++) {
        h = qr_kv_chain(p, h, tokens + i * P);
        cr_assert(h.lo == hashes[i].lo && h.hi == hashes[i].hi);
    }
    cr_assert_eq(memcmp(again, blocks, 33 * sizeof *blocks), 0);
    cr_assert_eq(qr_kv_prefix_find(p, again, MAX, tokens, MAX * P, salt_a, hashes, &n_hashed), 40);
    cr_assert_eq(qr_kv_refs(p, blocks[0]), 2);
    cr_assert_eq(qr_kv_refs(p, blocks[39]), 1);
    release(p, again, 40);
    release(p, again, 33);
    expect(p, MAX - 40, 40, 0);
    qr_kv_pool_free(p);
}

Test(kv_prefix, keeps_tenants_apart_by_salt)
{
    struct qr_kv_pool *p = new_pool(4, true);
    int32_t tokens[P] = {1, 2, 3, 4}, block;
    compute(p, &block, tokens, 1, salt_a);
    cr_assert_eq(found(p, tokens, P, salt_b), 0);
    cr_assert_eq(found(p, tokens, P, salt_a), 1);
    cr_assert_eq(compute(p, &block, tokens, 1, salt_b), 1);
    cr_assert_eq(found(p, tokens, P, salt_b), 1);
    qr_kv_pool_free(p);
}

Test(kv_prefix, lets_a_private_copy_be_a_parent)
{
    struct qr_kv_pool *p = new_pool(6, true);
    int32_t tokens[2 * P], first[1], second[2];
    count_up(tokens, 2 * P, 0);
    cr_assert_eq(compute(p, first, tokens, 1, salt_a), 1);
    cr_assert_eq(compute(p, second, tokens, 2, salt_a), 1); /* its first block is there already, its second is new */
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 2);
    release(p, second, 2);
    release(p, first, 1);
    expect(p, 4, 2, 0); /* the private copy is free, not cached */
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 2);
    qr_kv_pool_free(p);
}

Test(kv_prefix, never_finds_a_child_whose_parent_entry_is_gone)
{
    struct qr_kv_pool *p = new_pool(4, true);
    int32_t tokens[2 * P], first[1], second[2], other;
    count_up(tokens, 2 * P, 0);
    compute(p, first, tokens, 1, salt_a);
    compute(p, second, tokens, 2, salt_a);
    release(p, first, 1);
    other = qr_kv_alloc(p); /* the last free block */
    cr_assert_eq(qr_kv_alloc(p), first[0]); /* the entry of the first block goes, its child stays owned */
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 0);
    const int32_t *unrelated = tokens + P;
    cr_assert(qr_kv_prefix_enter(p, other, -1, salt_a, unrelated));
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 0);
    cr_assert_null(qr_kv_pool_check(p));
    qr_kv_pool_free(p);
}

Test(kv_prefix, tells_prefixes_apart_when_all_hashes_are_equal)
{
    struct qr_kv_pool *p = new_pool(MAX, true);
    p->hash_keep = 0; /* every hash is 0 */
    int32_t tokens[8][3 * P], blocks[8][3];
    for (int32_t k = 0; k < 8; k++) {
        for (int32_t i = 0; i < 3 * P; i++)
            tokens[k][i] = i < P ? k : 5; /* the second and third blocks of all eight hold the same tokens */
        cr_assert_eq(compute(p, blocks[k], tokens[k], 3, salt_a), 3);
    }
    cr_assert_null(qr_kv_pool_check(p));
    for (int32_t k = 0; k < 8; k++) {
        int32_t got[3], n_hashed = 0;
        struct qr_hash128 hashes[3];
        cr_assert_eq(qr_kv_prefix_find(p, got, 3, tokens[k], 3 * P, salt_a, hashes, &n_hashed), 3);
        cr_assert_eq(memcmp(got, blocks[k], sizeof got), 0, "prompt %d got another prompt's blocks", k);
        release(p, got, 3);
        cr_assert_eq(found(p, tokens[k], 3 * P, salt_b), 0, "equal hashes made two tenants one");
    }
    int32_t unseen[3 * P] = {9, 9, 9, 9, 5, 5, 5, 5, 5, 5, 5, 5};
    cr_assert_eq(found(p, unseen, 3 * P, salt_a), 0);
    qr_kv_pool_free(p);
}

Test(kv_prefix, does_not_believe_a_block_that_left_the_index)
{
    struct qr_kv_pool *p = new_pool(2, true);
    int32_t tokens[3 * P], blocks[3], other[2];
    count_up(tokens, 3 * P, 0);
    compute(p, blocks, tokens, 2, salt_a);
    release(p, blocks, 2);
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 2);
    cr_assert_eq(qr_kv_alloc(p), blocks[1]); /* evicted; what it held is still in its memory */
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 1);
    cr_assert_null(qr_kv_pool_check(p));
    qr_kv_unref(p, blocks[1]);
    qr_kv_pool_free(p);

    p = new_pool(3, true);
    compute(p, blocks, tokens, 2, salt_a);
    int32_t continued[2 * P]; /* the same first block, another second one */
    memcpy(continued, tokens, sizeof continued);
    continued[P] = 99;
    other[1] = qr_kv_alloc(p);
    cr_assert(qr_kv_prefix_enter(p, other[1], blocks[0], salt_a, continued + P));
    qr_kv_unref(p, blocks[1]);
    cr_assert_eq(qr_kv_alloc(p), blocks[1]);
    cr_assert_not(qr_kv_prefix_enter(p, blocks[1], blocks[0], salt_a, continued + P), "a private copy over what was an entry");
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 1);
    cr_assert_eq(found(p, continued, 2 * P, salt_a), 2);
    cr_assert_null(qr_kv_pool_check(p));
    qr_kv_pool_free(p);
}

Test(kv_prefix, finds_every_branch_of_a_shared_beginning)
{
    enum { BRANCHES = 5, DEPTH = 20 };
    struct qr_kv_pool *p = new_pool(BRANCHES * DEPTH, true);
    int32_t tokens[BRANCHES][DEPTH * P], blocks[BRANCHES][DEPTH], got[DEPTH];
    for (int32_t k = 0; k < BRANCHES; k++) { /* branch k leaves the first one in the block 3 k, and the last to enter is guessed */
        count_up(tokens[k], DEPTH * P, 0);
        for (int32_t i = 3 * k * P; k > 0 && i < DEPTH * P; i++)
            tokens[k][i] = 1000 * k + i;
        int32_t n = found(p, tokens[k], DEPTH * P, salt_a), n_hashed = 0;
        struct qr_hash128 hashes[DEPTH];
        cr_assert_eq(n, 3 * k);
        qr_kv_prefix_find(p, blocks[k], n, tokens[k], DEPTH * P, salt_a, hashes, &n_hashed);
        for (int32_t i = n; i < DEPTH; i++) {
            blocks[k][i] = qr_kv_alloc(p);
            cr_assert(qr_kv_prefix_enter(p, blocks[k][i], i > 0 ? blocks[k][i - 1] : -1, salt_a, tokens[k] + i * P));
        }
    }
    for (int32_t k = 0; k < BRANCHES; k++) {
        struct qr_hash128 hashes[DEPTH];
        int32_t n_hashed = 0;
        cr_assert_eq(qr_kv_prefix_find(p, got, DEPTH, tokens[k], DEPTH * P, salt_a, hashes, &n_hashed), DEPTH);
        cr_assert_eq(memcmp(got, blocks[k], sizeof got), 0, "branch %d", k);
    }
    cr_assert_null(qr_kv_pool_check(p));
    qr_kv_pool_free(p);
}

Test(kv_prefix, forgets_everything_when_cleared)
{
    struct qr_kv_pool *p = new_pool(8, true);
    int32_t tokens[3 * P], blocks[3];
    count_up(tokens, 3 * P, 0);
    compute(p, blocks, tokens, 3, salt_a);
    qr_kv_unref(p, blocks[2]);
    qr_kv_prefix_clear(p);
    expect(p, 6, 0, 2);
    cr_assert_eq(found(p, tokens, 3 * P, salt_a), 0);
    int32_t next = qr_kv_alloc(p); /* its parent's content is unknown now: nothing can be entered behind it */
    cr_assert_not(qr_kv_prefix_enter(p, next, blocks[1], salt_a, tokens + 2 * P));
    int32_t again[2], copy[2]; /* nor behind a private copy of what is gone */
    compute(p, again, tokens, 1, salt_b);
    cr_assert_eq(compute(p, copy, tokens, 1, salt_b), 0);
    qr_kv_prefix_clear(p);
    copy[1] = qr_kv_alloc(p);
    cr_assert_not(qr_kv_prefix_enter(p, copy[1], copy[0], salt_b, tokens + P));
    cr_assert_null(qr_kv_pool_check(p));
    qr_kv_pool_free(p);
}

Test(kv_prefix, counts_what_it_is_told)
{
    struct qr_kv_pool *p = new_pool(2, true);
    struct qr_kv_stats s;
    qr_kv_prefix_count(p, 100, 64);
    qr_kv_prefix_count(p, 10, 0);
    qr_kv_pool_stats(p, &s);
    cr_assert(s.query_tokens == 110 && s.hit_tokens == 64);
    qr_kv_pool_free(p);
}

/* Chains drawn from a tiny alphabet, entered, released, evicted at random; what is found is compared with a list of all prefixes
 * that the blocks' own histories spell. */
Test(kv_prefix, agrees_with_a_plain_list_of_prefixes)
{
    enum { N = 60, DEPTH = 12, HELD = 8 }; /* deeper than a group */
    struct qr_rng rng = {.seed = test_seed()};
    cr_log_info("seed %llu", (unsigned long long)rng.seed);
    struct qr_kv_pool *p = new_pool(N, true);
    int32_t history[N][DEPTH * P], held[HELD][DEPTH], n_held[HELD] = {0};
    for (int op = 0; op < 20000; op++) {
        int32_t k = (int32_t)qr_rng_below(&rng, HELD), tokens[DEPTH * P], n_hashed = 0;
        struct qr_hash128 hashes[DEPTH];
        release(p, held[k], n_held[k]);
        for (int i = 0; i < DEPTH * P; i++)
            tokens[i] = i % P == 0 ? (int32_t)qr_rng_below(&rng, 12) / 10 : 7;
        int32_t n = qr_kv_prefix_find(p, held[k], DEPTH, tokens, DEPTH * P, salt_a, hashes, &n_hashed);
        for (int32_t i = 0; i < n; i++)
            cr_assert_eq(memcmp(history[held[k][i]], tokens, (size_t)(i + 1) * P * sizeof *tokens), 0, "seed %llu op %d: a wrong block",
                         (unsigned long long)rng.seed, op);
        for (; n < DEPTH && qr_rng_below(&rng, 12) > 0; n++) {
            int32_t b = qr_kv_alloc(p);
            if (b < 0)
                break;
            held[k][n] = b;
            memset(history[b], 255, sizeof history[b]);
            if (qr_rng_below(&rng, 8) == 0) { /* computed in part: held, never entered */
                n++;
                break;
            }
            memcpy(history[b], tokens, (size_t)(n + 1) * P * sizeof *tokens);
            qr_kv_prefix_enter(p, b, n > 0 ? held[k][n - 1] : -1, salt_a, tokens + n * P);
            cr_assert_geq(found(p, tokens, (n + 1) * P, salt_a), n, "seed %llu op %d: a prefix just computed is lost",
                          (unsigned long long)rng.seed, op);
        }
        n_held[k] = n;
        const char *broken = qr_kv_pool_check(p);
        cr_assert_null(broken, "seed %llu op %d: %s", (unsigned long long)rng.seed, op, broken);
    }
    qr_kv_pool_free(p);
}

/* ---- two tiers ---- */

static struct qr_kv_pool *new_tiers(int32_t n_blocks, int32_t n_host)
{
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 4);
    return qr_kv_pool_new_tiers(n_blocks, n_host, P, true, &secret);
}

Test(kv_tiers, an_evicted_block_goes_to_the_second_tier_and_comes_back)
{
    struct qr_kv_pool *p = new_tiers(2, 3);
    int32_t tokens[2 * P], blocks[2], taken[2], got[2], n = 0, n_hashed = 0;
    struct qr_hash128 hashes[2];
    struct qr_kv_stats s;
    count_up(tokens, 2 * P, 0);
    compute(p, blocks, tokens, 2, salt_a);
    release(p, blocks, 2);
    for (int i = 0; i < 2; i++)
        taken[i] = qr_kv_alloc(p);
    const struct qr_kv_move *move = qr_kv_moves(p, &n);
    cr_assert_eq(n, 2);
    cr_assert(move[0].from == blocks[1] && move[1].from == blocks[0], "tails before heads");
    cr_assert(qr_kv_is_host(p, move[0].to) && qr_kv_is_host(p, move[1].to) && move[0].to != move[1].to);
    const int32_t there[2] = {move[1].to, move[0].to};
    qr_kv_moved(p);
    expect(p, 0, 0, 2);
    release(p, taken, 2);
    cr_assert_eq(qr_kv_prefix_find(p, got, 2, tokens, 2 * P, salt_a, hashes, &n_hashed), 2);
    cr_assert_eq(memcmp(got, there, sizeof got), 0);
    for (int i = 0; i < 2; i++)
        got[i] = qr_kv_bring(p, got[i]);
    move = qr_kv_moves(p, &n);
    cr_assert(n == 2 && move[0].from == there[0] && move[0].to == got[0] && move[1].from == there[1] && move[1].to == got[1]);
    qr_kv_moved(p);
    expect(p, 0, 0, 2);
    cr_assert_eq(found(p, tokens, 2 * P, salt_a), 2);
    release(p, got, 2);
    qr_kv_pool_stats(p, &s);
    cr_assert(s.n_host == 3 && s.n_host_cached == 0 && s.n_out == 2 && s.n_in == 2 && s.n_evicted == 0);
    qr_kv_pool_free(p);
}

Test(kv_tiers, the_least_recent_of_both_tiers_is_given_up_and_who_is_held_is_not)
{
    struct qr_kv_pool *p = new_tiers(1, 2);
    int32_t tokens[5][P], block, held, n_hashed = 0;
    struct qr_hash128 hash;
    struct qr_kv_stats s;
    for (int k = 0; k < 4; k++) {
        count_up(tokens[k], P, 10 * k);
        compute(p, &block, tokens[k], 1, salt_a);
        release(p, &block, 1);
        qr_kv_moved(p);
    }
    cr_assert_eq(found(p, tokens[0], P, salt_a), 0, "three blocks hold three contents");
    for (int k = 1; k < 4; k++)
        cr_assert_eq(found(p, tokens[k], P, salt_a), 1);
    qr_kv_pool_stats(p, &s);
    cr_assert(s.n_evicted == 1 && s.n_out == 3);
    cr_assert_eq(qr_kv_prefix_find(p, &held, 1, tokens[1], P, salt_a, &hash, &n_hashed), 1);
    for (int k = 4; k < 8; k++) { /* whatever comes, what is held stays */
        count_up(tokens[4], P, 10 * k);
        compute(p, &block, tokens[4], 1, salt_a);
        release(p, &block, 1);
        qr_kv_moved(p);
    }
    cr_assert(qr_kv_is_host(p, held));
    cr_assert_eq(found(p, tokens[1], P, salt_a), 1);
    cr_assert_null(qr_kv_pool_check(p));
    qr_kv_unref(p, held);
    qr_kv_pool_free(p);
}

Test(kv_tiers, what_is_computed_again_takes_the_place_of_its_slower_copy)
{
    struct qr_kv_pool *p = new_tiers(2, 2);
    int32_t tokens[2 * P], blocks[2], again[2];
    struct qr_kv_stats s;
    count_up(tokens, 2 * P, 0);
    compute(p, blocks, tokens, 2, salt_a);
    release(p, blocks, 2);
    for (int i = 0; i < 2; i++)
        again[i] = qr_kv_alloc(p);
    for (int i = 0; i < 2; i++)
        cr_assert(qr_kv_prefix_enter(p, again[i], i > 0 ? again[i - 1] : -1, salt_a, tokens + i * P));
    expect(p, 0, 0, 2);
    qr_kv_pool_stats(p, &s);
    cr_assert(s.n_host_cached == 0 && s.n_out == 2 && s.n_in == 0);
    qr_kv_prefix_clear(p);
    cr_assert_eq(found(p, tokens, P, salt_a), 0);
    cr_assert_null(qr_kv_pool_check(p));
    qr_kv_pool_free(p);
}

/* Contents are simulated: a block of either tier holds the digest of its prefix, moves carry it. Whatever is found holds the digest that its tokens spell. */
Test(kv_tiers, blocks_found_hold_what_their_prefix_spells_wherever_they_were)
{
    enum { N = 20, HOST = 25, DEPTH = 12, HELD = 3 };
    struct qr_rng rng = {.seed = test_seed()};
    cr_log_info("seed %llu", (unsigned long long)rng.seed);
    struct qr_kv_pool *p = new_tiers(N, HOST);
    int64_t content[N + HOST] = {0};
    int32_t held[HELD][DEPTH], n_held[HELD] = {0};
    struct qr_kv_stats s;
    for (int op = 0; op < 5000; op++) {
        int32_t k = (int32_t)qr_rng_below(&rng, HELD), tokens[DEPTH * P], n_hashed = 0, n_moves = 0;
        int64_t spelt[DEPTH], digest = 1;
        struct qr_hash128 hashes[DEPTH];
        release(p, held[k], n_held[k]);
        for (int i = 0; i < DEPTH * P; i++)
            tokens[i] = i % P == 0 ? (int32_t)qr_rng_below(&rng, 12) / 9 : 7;
        for (int i = 0; i < DEPTH; i++)
            spelt[i] = digest = 3 * digest + tokens[i * P];
        int32_t n = qr_kv_prefix_find(p, held[k], DEPTH, tokens, DEPTH * P, salt_a, hashes, &n_hashed), n_found = 0;
        while (n_found < n && (!qr_kv_is_host(p, held[k][n_found]) || qr_kv_pool_available(p) > 0)) {
            if (qr_kv_is_host(p, held[k][n_found]))
                held[k][n_found] = qr_kv_bring(p, held[k][n_found]);
            n_found++;
        }
        release(p, held[k] + n_found, n - n_found);
        for (n = n_found; n < DEPTH && qr_kv_pool_available(p) > 0 && qr_rng_below(&rng, 12) > 0; n++)
            held[k][n] = qr_kv_alloc(p);
        const struct qr_kv_move *move = qr_kv_moves(p, &n_moves);
        for (int32_t i = 0; i < n_moves; i++) {
            content[move[i].to] = content[move[i].from];
            content[move[i].from] = -1;
        }
        qr_kv_moved(p);
        for (int32_t i = 0; i < n_found; i++)
            cr_assert_eq(content[held[k][i]], spelt[i], "seed %llu op %d: block %d of %d", (unsigned long long)rng.seed, op, i, n_found);
        for (int32_t i = n_found; i < n; i++) {
            content[held[k][i]] = spelt[i];
            qr_kv_prefix_enter(p, held[k][i], i > 0 ? held[k][i - 1] : -1, salt_a, tokens + i * P);
        }
        n_held[k] = n;
        const char *broken = qr_kv_pool_check(p);
        cr_assert_null(broken, "seed %llu op %d: %s", (unsigned long long)rng.seed, op, broken);
    }
    qr_kv_pool_stats(p, &s);
    cr_assert(s.n_out > 100 && s.n_in > 100 && s.n_evicted > 0, "%lld out, %lld in", (long long)s.n_out, (long long)s.n_in);
    qr_kv_pool_free(p);
}
