/* The price of a prefix look-up: 12,000 tokens, 750 blocks of 16, hashes known.
 *
 * Nanoseconds differ between machines and hours, so none is demanded: the yardstick is the least that any look-up must do, done next to it in turns on this
 * very machine: a walk from block to block in random order that compares each block's tokens and counts a reference (struct stop). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"

enum { TOKENS = 12000, P = 16, BLOCKS = TOKENS / P, PROMPTS = 64, POOL = BLOCKS * PROMPTS };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIMED 0
#else
#define TIMED 1
#endif

struct bench {
    struct qr_kv_pool *pool;
    int32_t *tokens;            /* owned [PROMPTS][TOKENS] */
    struct qr_hash128 *hashes;  /* owned [PROMPTS][BLOCKS] */
    int32_t blocks[BLOCKS];
};

/* Blocks are handed out in random order, as in a server that has run for a while. */
static void shuffle_free_blocks(struct qr_kv_pool *pool, struct qr_rng *rng)
{
    int32_t *order = qr_alloc(POOL, sizeof *order);
    for (int32_t i = 0; i < POOL; i++)
        order[i] = qr_kv_alloc(pool);
    for (int32_t i = POOL - 1; i > 0; i--) {
        int32_t j = (int32_t)qr_rng_below(rng, (uint32_t)i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int32_t i = 0; i < POOL; i++)
        qr_kv_unref(pool, order[i]);
    qr_free(order);
}

static void fill(struct bench *b)
{
    struct qr_rng rng = {.seed = 20};
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 21);
    b->pool = qr_kv_pool_new(POOL, P, true, &secret);
    b->tokens = qr_alloc((size_t)PROMPTS * TOKENS, sizeof *b->tokens);
    b->hashes = qr_alloc((size_t)PROMPTS * BLOCKS, sizeof *b->hashes);
    shuffle_free_blocks(b->pool, &rng);
    for (int32_t k = 0; k < PROMPTS; k++) {
        int32_t *tokens = b->tokens + (size_t)k * TOKENS;
        for (int32_t i = 0; i < TOKENS; i++)
            tokens[i] = (int32_t)qr_rng_below(&rng, 128000);
        for (int32_t i = 0; i < BLOCKS; i++) {
            b->blocks[i] = qr_kv_alloc(b->pool);
            qr_kv_prefix_enter(b->pool, b->blocks[i], i > 0 ? b->blocks[i - 1] : -1, (struct qr_hash128){0}, tokens + i * P);
        }
        for (int32_t i = BLOCKS - 1; i >= 0; i--)
            qr_kv_unref(b->pool, b->blocks[i]);
    }
}

static void empty(struct bench *b)
{
    qr_kv_pool_free(b->pool);
    qr_free(b->tokens);
    qr_free(b->hashes);
}

/* Nanoseconds of one look-up of prompt k; the references are given back outside the clock. */
static int64_t look_up(struct bench *b, int32_t k, int32_t n_hashed, int32_t n_expected)
{
    const int32_t *tokens = b->tokens + (size_t)k * TOKENS;
    int64_t began = qr_clock_ns();
    int32_t n = qr_kv_prefix_find(b->pool, b->blocks, BLOCKS, tokens, TOKENS, (struct qr_hash128){0},
                                  b->hashes + (size_t)k * BLOCKS, &n_hashed);
    int64_t took = qr_clock_ns() - began;
    cr_assert_eq(n, n_expected);
    for (int32_t i = n - 1; i >= 0; i--)
        qr_kv_unref(b->pool, b->blocks[i]);
    return took;
}

/* One place of the walk: like a block's record and its tokens, two lines of the cache. */
struct stop {
    int32_t next, refs, unused[14];
    int32_t tokens[P];
};
_Static_assert(sizeof(struct stop) == 128, "as long as a block's record with its tokens");

struct yard {
    struct stop *stop; /* owned [POOL]; for each prompt BLOCKS of them, far apart, are a ring */
    int32_t first[PROMPTS]; /* where its ring begins */
    const int32_t *tokens; /* borrowed [PROMPTS][TOKENS]: what the rings' stops hold */
};

static void yard_begin(struct yard *y, const int32_t *tokens)
{
    struct qr_rng rng = {.seed = 22};
    int32_t *order = qr_alloc(POOL, sizeof *order);
    y->stop = qr_alloc_aligned(POOL * sizeof *y->stop, 64);
    y->tokens = tokens;
    memset(y->stop, 0, POOL * sizeof *y->stop);
    for (int32_t i = 0; i < POOL; i++) {
        int32_t j = (int32_t)qr_rng_below(&rng, (uint32_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int32_t i = 0; i < POOL; i++) {
        const int32_t k = i / BLOCKS;
        y->first[k] = order[k * BLOCKS];
        y->stop[order[i]].next = i + 1 < (k + 1) * BLOCKS ? order[i + 1] : y->first[k];
        memcpy(y->stop[order[i]].tokens, tokens + (size_t)i * P, sizeof y->stop->tokens);
    }
    qr_free(order);
}

/* Nanoseconds of one walk over the ring of prompt k. */
static int64_t walk(struct yard *y, int32_t k)
{
    const int32_t *tokens = y->tokens + (size_t)k * TOKENS;
    int64_t began = qr_clock_ns();
    int32_t at = y->first[k], n_same = 0;
    for (int32_t i = 0; i < BLOCKS; i++) {
        struct stop *x = &y->stop[at];
        n_same += memcmp(x->tokens, tokens + i * P, sizeof x->tokens) == 0;
        x->refs++;
        at = x->next;
    }
    int64_t took = qr_clock_ns() - began;
    cr_assert_eq(n_same, BLOCKS);
    cr_assert_eq(at, y->first[k]);
    return took;
}

enum { ROUNDS = TIMED ? 40 : 1, TURNS = 2 * PROMPTS };

struct piece {
    const char *what;
    int64_t (*work)(struct bench *b, int32_t k); /* nanoseconds of one piece of work on prompt k */
    int32_t first, n; /* prompts first .. first + n - 1 in turn */
    double max_walks;
};

/* A piece of work in walks: the best of TURNS over the best walk between them. Whoever disturbs only one of them makes a round useless, so that there are up
 * to 40 rounds over some seconds, until one is within max_walks. */
static void check_walks(const struct piece *p, struct bench *b, struct yard *y)
{
    double lowest = 1e9;
    for (int round = 0; round < ROUNDS && lowest > p->max_walks; round++) {
        int64_t best[2] = {INT64_MAX, INT64_MAX};
        if (round > 0)
            usleep(50000);
        for (int i = 0; i < 2 * TURNS; i++) {
            const int32_t k = p->first + i / 2 % p->n;
            int64_t took = i % 2 ? walk(y, k) : p->work(b, k);
            best[i % 2] = took < best[i % 2] ? took : best[i % 2];
        }
        double ratio = (double)best[0] / (double)best[1];
        lowest = ratio < lowest ? ratio : lowest;
        fprintf(stderr, "%s: best %.2f us, %.2f walks of %.2f us (round %d)\n", p->what, (double)best[0] / 1e3, ratio, (double)best[1] / 1e3, round);
    }
    if (TIMED)
        cr_assert_leq(lowest, p->max_walks);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median(int64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof *ns, by_value);
    return ns[n / 2];
}

static int64_t found(struct bench *b, int32_t k)
{
    return look_up(b, k, BLOCKS, BLOCKS);
}

/* Usual are 1.5 walks, and 0.9 to 1.3 for prompts in turn. Blocks that are hashed again take 3 walks and more. */
Test(kv_speed, finds_750_blocks_in_less_than_two_walks_over_750_blocks)
{
    static const struct piece pieces[] = {{"look-up of the same prompt again", found, 5, 1, 2}, {"look-ups of 64 prompts in turn", found, 0, PROMPTS, 2}};
    static struct bench b;
    static int64_t ns[1000];
    static struct yard y;
    fill(&b);
    yard_begin(&y, b.tokens);
    for (int32_t k = 0; k < PROMPTS; k++)
        look_up(&b, k, 0, BLOCKS); /* hashes every prompt */
    for (int i = 0; i < 2; i++)
        check_walks(&pieces[i], &b, &y);
    for (int i = 0; i < 1000; i++)
        ns[i] = look_up(&b, 5, BLOCKS, BLOCKS);
    int64_t same = median(ns, 1000);
    for (int i = 0; i < 1000; i++)
        ns[i] = look_up(&b, i % PROMPTS, BLOCKS, BLOCKS);
    int64_t rotating = median(ns, 1000);
    for (int i = 0; i < 1000; i++)
        ns[i] = look_up(&b, i % PROMPTS, 0, BLOCKS);
    int64_t hashing = median(ns, 1000);
    static char sweep[64 << 20]; /* what a forward pass does to the caches between two look-ups */
    for (int i = 0; i < 20; i++) {
        memset(sweep, i, sizeof sweep);
        ns[i] = look_up(&b, i % PROMPTS, BLOCKS, BLOCKS);
    }
    int64_t cold = median(ns, 20);
    fprintf(stderr,
            "prefix look-up of %d tokens, all %d blocks found: median %.2f us (same prompt again), %.2f us "
            "(64 prompts in turn: out of the near caches), %.2f us (the same, hashing included), %.2f us (after sweeping 64 MiB)\n",
            TOKENS, BLOCKS, (double)same / 1e3, (double)rotating / 1e3, (double)hashing / 1e3, (double)cold / 1e3);
    qr_free_aligned(y.stop);
    empty(&b);
}

/* Looks up what is not there, and enters four blocks as a step's commit does for each block that it completes, eviction included. */
static int64_t misses_and_enters(struct bench *b, int32_t k)
{
    (void)k;
    b->tokens[0]++; /* a first block that is in no index */
    int64_t took = look_up(b, 0, 0, 0);
    for (int i = 0; i < 4; i++) {
        int32_t block = qr_kv_alloc(b->pool);
        b->tokens[0]++;
        int64_t began = qr_clock_ns();
        cr_assert(qr_kv_prefix_enter(b->pool, block, -1, (struct qr_hash128){0}, b->tokens));
        took += qr_clock_ns() - began;
        qr_kv_unref(b->pool, block);
    }
    return took;
}

/* A step takes a millisecond at least and completes at most its tokens / 16 + its sequences' blocks: 64 decode rows complete 4 on average. One prompt and 4
 * blocks in one walk (10 us at most, usually) are within 1 % of it. Usual are 0.2 walks; a miss that hashes the whole prompt takes 3. */
Test(kv_speed, costs_next_to_nothing_when_nothing_is_found)
{
    static const struct piece piece = {"a prompt without hits and four blocks entered", misses_and_enters, 5, 1, 1};
    static struct bench b;
    static struct yard y;
    fill(&b);
    yard_begin(&y, b.tokens);
    b.tokens[0] = 200000; /* beyond all others */
    check_walks(&piece, &b, &y);
    qr_free_aligned(y.stop);
    empty(&b);
}
