/* Whose turn it is: counters alone, and the scheduler with clients that always have sequences waiting. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/rng.h"
#include "scheduler/sched_internal.h"
#include "tests/seed.h"

static struct qr_client client(uint64_t key, uint64_t user, int32_t weight)
{
    return (struct qr_client){.key = key, .user = user, .weight = weight};
}

/* ---- counters ---- */

static const struct qr_fair_node *key_of(const struct qr_fair *f, int32_t user)
{
    return &f->node[f->node[user].parent];
}

/* A sequence of the client comes and waits. */
static int32_t come(struct qr_fair *f, struct qr_client c)
{
    const int32_t user = qr_fair_join(f, &c);
    qr_fair_wait(f, user);
    return user;
}

/* Whose turn it is has a sequence served. */
static int32_t serve(struct qr_fair *f, double service)
{
    qr_fair_begin(f);
    const int32_t user = qr_fair_next(f);
    cr_assert_geq(user, 0);
    qr_fair_take(f, user);
    qr_fair_charge(f, user, service);
    qr_fair_unwait(f, user);
    return user;
}

Test(fair, the_key_with_the_smallest_counter_is_next_and_equals_go_in_order)
{
    struct qr_fair f;
    qr_fair_init(&f, 16, 4);
    int32_t light = -1, heavy = -1, n_heavy = 0;
    for (int i = 0; i < 6; i++)
        light = come(&f, client(1, 0, 1)), heavy = come(&f, client(2, 0, 2));
    cr_assert_neq(light, heavy);
    cr_assert_eq(serve(&f, 10), light);
    for (int i = 0; i < 6; i++)
        n_heavy += serve(&f, 10) == heavy;
    cr_assert_eq(n_heavy, 4, "of six turns the key of twice the weight has four, and had %d", n_heavy);
    cr_assert_null(qr_fair_check(&f, 20));
    qr_fair_release(&f);
}

Test(fair, a_key_that_comes_back_from_idle_gains_nothing)
{
    struct qr_fair f;
    qr_fair_init(&f, 16, 4);
    const int32_t busy = come(&f, client(1, 0, 1)), idle = come(&f, client(2, 0, 1));
    serve(&f, 1), serve(&f, 1);
    qr_fair_leave(&f, idle);
    for (int i = 0; i < 6; i++)
        come(&f, client(1, 0, 1)), serve(&f, 100), qr_fair_leave(&f, busy); /* alone: it is nobody's debt */
    cr_assert_eq(come(&f, client(2, 0, 1)), idle);
    come(&f, client(1, 0, 1));
    cr_assert_eq(key_of(&f, idle)->counter, key_of(&f, busy)->counter);
    cr_assert_eq(key_of(&f, busy)->counter, 601);
    cr_assert_eq(serve(&f, 1), idle);
    cr_assert_eq(serve(&f, 1), busy);
    qr_fair_release(&f);
}

Test(fair, going_away_does_not_pay_off_what_was_served)
{
    struct qr_fair f;
    qr_fair_init(&f, 16, 4);
    const int32_t greedy = come(&f, client(1, 0, 1)), modest = come(&f, client(2, 0, 1));
    cr_assert_eq(serve(&f, 1000), greedy);
    qr_fair_leave(&f, greedy);
    cr_assert_eq(come(&f, client(1, 0, 1)), greedy);
    for (int i = 0; i < 11; i++) { /* equals go in order: it has waited longer */
        come(&f, client(2, 0, 1));
        cr_assert_eq(serve(&f, 100), modest);
    }
    cr_assert_eq(serve(&f, 100), greedy);
    qr_fair_release(&f);
}

Test(fair, users_share_their_keys_turns_only)
{
    struct qr_fair f;
    qr_fair_init(&f, 64, 4);
    int32_t n[4] = {0}, user[4];
    for (int i = 0; i < 12; i++) {
        for (uint64_t u = 0; u < 3; u++)
            user[u] = come(&f, client(1, u, 1));
        user[3] = come(&f, client(2, 0, 1));
    }
    for (int i = 0; i < 18; i++) {
        const int32_t served = serve(&f, 1);
        for (int u = 0; u < 4; u++)
            n[u] += served == user[u];
    }
    cr_assert(n[0] == 3 && n[1] == 3 && n[2] == 3 && n[3] == 9, "%d %d %d %d", n[0], n[1], n[2], n[3]);
    qr_fair_release(&f);
}

Test(fair, who_is_passed_waits_no_longer_and_gains_nothing)
{
    struct qr_fair f;
    qr_fair_init(&f, 16, 4);
    const int32_t stuck = come(&f, client(1, 0, 1)), other = come(&f, client(2, 0, 1));
    for (int i = 0; i < 5; i++) {
        come(&f, client(2, 0, 1));
        qr_fair_begin(&f);
        for (int32_t user; (user = qr_fair_next(&f)) != other;) {
            cr_assert_eq(user, stuck);
            qr_fair_pass(&f, user);
        }
        qr_fair_take(&f, other);
        qr_fair_charge(&f, other, 50);
        qr_fair_unwait(&f, other);
    }
    cr_assert_eq(key_of(&f, stuck)->counter, 200);
    cr_assert_eq(key_of(&f, other)->counter, 250);
    qr_fair_pass(&f, stuck), qr_fair_pass(&f, other);
    cr_assert_eq(qr_fair_next(&f), -1);
    qr_fair_release(&f);
}

/* Four wait always. Were new names at the smallest counter, one that comes back would wait until the table is full. */
Test(fair, who_comes_back_is_not_passed_by_names_that_were_never_heard_of)
{
    struct qr_fair f;
    qr_fair_init(&f, 256, 128);
    uint64_t name = 1;
    int32_t known = come(&f, client(1, 0, 1)), n = 0;
    for (int i = 0; i < 4; i++)
        come(&f, client(1, name++, 1));
    cr_assert_eq(serve(&f, 100), known);
    qr_fair_leave(&f, known);
    cr_assert_eq(come(&f, client(1, 0, 1)), known);
    for (int32_t user = -1; user != known && n < 100; n++) {
        user = serve(&f, 100);
        qr_fair_leave(&f, user);
        come(&f, client(1, name++, 1));
    }
    cr_assert_leq(n, 6, "its turn came after %d of others", n);
    cr_assert_null(qr_fair_check(&f, 100));
    qr_fair_release(&f);
}

/* Thousands of names in a table of a few places: a counter that is forgotten is no smaller when its owner is back. */
Test(fair, being_forgotten_helps_nobody_and_the_table_does_not_grow)
{
    enum { USERS = 2000, INSIDE = 6 };
    static double counter[USERS];
    struct qr_rng rng = {.seed = test_seed()};
    struct qr_fair f;
    qr_fair_init(&f, INSIDE, 8);
    int32_t inside[INSIDE], n_inside = 0, n_forgotten = 0;
    uint64_t id[INSIDE];
    for (int i = 0; i < 20000; i++) {
        if (n_inside < INSIDE && qr_rng_below(&rng, 2)) {
            const uint64_t u = qr_rng_below(&rng, qr_rng_below(&rng, 2) ? 4 : USERS);
            const int32_t user = come(&f, client(7, u, 1));
            n_forgotten += f.node[user].used == f.turn - 1 && f.node[user].n_inside == 1 && counter[u] > 0 && f.node[user].counter != counter[u];
            cr_assert_geq(f.node[user].counter, counter[u], "user %llu", (unsigned long long)u);
            inside[n_inside] = user;
            id[n_inside++] = u;
        } else if (n_inside > 0) {
            const int32_t at = (int32_t)qr_rng_below(&rng, (uint32_t)n_inside), user = inside[at];
            qr_fair_charge(&f, user, qr_rng_below(&rng, 100));
            counter[id[at]] = f.node[user].counter;
            qr_fair_unwait(&f, user);
            qr_fair_leave(&f, user);
            inside[at] = inside[--n_inside];
            id[at] = id[n_inside];
        }
    }
    cr_assert_gt(n_forgotten, 100);
    cr_assert_leq(f.n, 1 + 2 * INSIDE + 8);
    qr_fair_release(&f);
}

/* ---- the scheduler, every client with more waiting than it may run ---- */

enum { CLIENTS_MAX = 6, CTX = 64, PROMPT = 24, ANSWER = 40, PLACES = 64 };

struct bench {
    struct qr_sched_config config;
    struct qr_kv_pool *pool;
    struct qr_sched *sched;
    struct qr_plan plan;
    struct qr_rng rng;
    struct qr_client client[CLIENTS_MAX];
    int32_t n_clients;
    double served[CLIENTS_MAX];
    int32_t ids[PLACES][CTX], of[PLACES], n_waiting[CLIENTS_MAX];
    bool begun[PLACES], used[PLACES];
    int32_t *row[PLACES];
};

static void bench_init(struct bench *b, uint64_t seed, int32_t running_max, int32_t n_blocks)
{
    struct qr_hash_secret secret;
    struct qr_err err;
    *b = (struct bench){.rng = {.seed = seed}};
    b->config = (struct qr_sched_config){.running_max = running_max, .waiting_max = PLACES - running_max, .step_tokens_max = 32, .chunk_tokens_max = 16,
                                         .logit_rows_max = running_max, .ctx_max = CTX, .preempt_max = 4, .watermark_blocks = 1};
    qr_hash_secret_seeded(&secret, 1);
    b->pool = qr_kv_pool_new(n_blocks, 4, false, &secret);
    cr_assert_eq(qr_sched_new(&b->sched, &b->config, b->pool, &err), 0);
    qr_plan_init(&b->plan, &b->config);
}

static void bench_release(struct bench *b)
{
    qr_plan_release(&b->plan);
    qr_sched_free(b->sched);
    qr_kv_pool_free(b->pool);
}

static int32_t *free_ids(struct bench *b)
{
    for (int i = 0; i < PLACES; i++) {
        if (!b->used[i]) {
            b->used[i] = true;
            return b->ids[i];
        }
    }
    cr_assert_fail("no place");
    return NULL;
}

static int32_t add(struct bench *b, int32_t c, int32_t n_prompt, int32_t n_new, int32_t priority)
{
    struct qr_err err;
    struct qr_sched_add a = {.ids = free_ids(b), .n_prompt = n_prompt, .new_max = n_new, .priority = priority, .group = -1, .client = b->client[c]};
    for (int32_t i = 0; i < n_prompt; i++)
        a.ids[i] = (int32_t)qr_rng_below(&b->rng, 1000);
    const int32_t seq = qr_sched_add(b->sched, &a, &err);
    cr_assert_geq(seq, 0);
    b->of[seq] = c;
    b->begun[seq] = false;
    b->row[seq] = a.ids;
    b->n_waiting[c]++;
    return seq;
}

static void end(struct bench *b, int32_t seq)
{
    b->used[(b->row[seq] - b->ids[0]) / CTX] = false;
    qr_sched_finish(b->sched, seq);
}

/* One step: what it serves whom is counted from the plan, as the client sees it. */
static void step(struct bench *b)
{
    cr_assert(qr_sched_plan(b->sched, &b->plan, 0));
    const int32_t n = b->plan.n_prefill + b->plan.n_decode;
    for (int32_t k = 0; k < n; k++) {
        const int32_t seq = b->plan.item[k].seq;
        if (b->begun[seq])
            continue;
        b->begun[seq] = true;
        b->n_waiting[b->of[seq]]--;
        b->served[b->of[seq]] += qr_sched_seq(b->sched, seq)->n_prompt;
    }
    qr_sched_commit(b->sched, &b->plan);
    for (int32_t k = 0; k < n; k++) {
        const int32_t seq = b->plan.item[k].seq;
        const struct qr_seq *q = qr_sched_seq(b->sched, seq);
        if (q->n_computed < q->n_ids)
            continue;
        b->served[b->of[seq]] += 2;
        qr_sched_push(b->sched, seq, 1);
        if (q->n_ids == q->n_prompt + q->new_max)
            end(b, seq);
    }
    const char *broken = qr_sched_check(b->sched);
    cr_assert_null(broken, "%s", broken);
}

/* Keeps all clients waiting; the widest that the services of two of them, by `share`, go apart over any part of the run. */
static double widest(struct bench *b, const double *share, int n_steps)
{
    double least[CLIENTS_MAX][CLIENTS_MAX] = {{0}}, most[CLIENTS_MAX][CLIENTS_MAX] = {{0}}, found = 0;
    for (int i = 0; i < n_steps; i++) {
        for (int32_t c = 0; c < b->n_clients; c++) /* each has a kind of its own: small ones and large ones, and now and then the other kind */
            while (b->n_waiting[c] <= b->config.running_max) /* as many as one step may admit, and one more */
                add(b, c, 1 + (int32_t)qr_rng_below(&b->rng, c % 2 ? PROMPT : 4), 1 + (int32_t)qr_rng_below(&b->rng, qr_rng_below(&b->rng, 8) ? 4 : ANSWER), 0);
        step(b);
        for (int32_t x = 0; x < b->n_clients; x++) {
            for (int32_t y = 0; y < x; y++) {
                const double apart = b->served[x] / share[x] - b->served[y] / share[y];
                least[x][y] = apart < least[x][y] ? apart : least[x][y];
                most[x][y] = apart > most[x][y] ? apart : most[x][y];
                found = most[x][y] - least[x][y] > found ? most[x][y] - least[x][y] : found;
            }
        }
    }
    return found;
}

static double bound(int32_t running_max)
{
    return 2.0 * QR_FAIR_OUT * running_max * (PROMPT + ANSWER);
}

Test(fair, keys_that_always_wait_are_served_by_weight_within_the_bound)
{
    static const double share[3] = {1, 2, 5};
    static const int32_t running[4] = {1, 2, 4, 12};
    for (int i = 0; i < 8; i++) { /* the second half with blocks for two sequences: many are preempted */
        static struct bench b;
        bench_init(&b, test_seed() + (uint64_t)i, running[i % 4], i < 4 ? 400 : 20);
        b.n_clients = 3;
        for (int32_t c = 0; c < 3; c++)
            b.client[c] = client((uint64_t)c, 0, (int32_t)share[c]);
        const double apart = widest(&b, share, 4000);
        struct qr_sched_stats stats;
        qr_sched_stats(b.sched, &stats);
        fprintf(stderr, "%d run, %lld preempted: served %.0f %.0f %.0f, apart by %.0f at most of %.0f\n", running[i % 4], (long long)stats.n_preempted,
                b.served[0], b.served[1], b.served[2], apart, bound(running[i % 4]));
        cr_assert_leq(apart, bound(running[i % 4]));
        cr_assert(i % 4 < 2 || (stats.n_preempted > 0) == (i >= 4));
        bench_release(&b);
    }
}

Test(fair, users_of_a_key_are_served_alike_beside_another_key)
{
    static const double share[4] = {1, 1, 1, 3};
    static struct bench b;
    bench_init(&b, test_seed(), 4, 400);
    b.n_clients = 4;
    for (int32_t c = 0; c < 4; c++)
        b.client[c] = client(c < 3 ? 1 : 2, c < 3 ? (uint64_t)c : 0, 1);
    const double apart = widest(&b, share, 8000);
    fprintf(stderr, "served %.0f %.0f %.0f and %.0f, apart by %.0f at most\n", b.served[0], b.served[1], b.served[2], b.served[3], apart);
    cr_assert_leq(apart, 2 * bound(4)); /* users of a key within the bound, and its keys */
    bench_release(&b);
}

Test(fair, a_key_that_holds_every_place_is_waited_for_and_pays_for_it)
{
    static struct bench b;
    bench_init(&b, 1, 2, 400);
    b.client[0] = client(1, 0, 1), b.client[1] = client(2, 0, 1);
    for (int i = 0; i < 6; i++)
        add(&b, 0, 4, ANSWER, 0);
    step(&b);
    for (int i = 0; i < 20; i++)
        add(&b, 1, 4, 4, 0);
    while (b.served[1] == 0)
        step(&b);
    cr_assert_geq(b.served[0], 2 * (4 + 2 * ANSWER), "both of the first were preempted or ended early");
    for (const double before = b.served[0]; b.served[1] < before / 2; step(&b))
        cr_assert_eq(b.served[0], before, "the first key is served while the other has its share to catch up with");
    bench_release(&b);
}

Test(fair, priority_orders_inside_one_key_only)
{
    static struct bench b;
    bench_init(&b, 1, 1, 400);
    b.client[0] = client(1, 0, 1), b.client[1] = client(2, 0, 1);
    add(&b, 0, 4, 2, 0);
    step(&b);
    const int32_t late = add(&b, 1, 4, 2, 5), urgent = add(&b, 0, 4, 2, -5), plain = add(&b, 0, 4, 2, 0);
    static const char *const why = "in order of the keys' counters, and of priority inside them";
    while (!b.begun[late] && !b.begun[urgent] && !b.begun[plain])
        step(&b);
    cr_assert(b.begun[late], "%s", why);
    while (!b.begun[urgent] && !b.begun[plain])
        step(&b);
    cr_assert(b.begun[urgent] && !b.begun[plain], "%s", why);
    bench_release(&b);
}

/* Places in rank are shared out inside a key: when blocks run out the other key's sequence, admitted between, keeps its place. */
Test(fair, a_sequence_goes_ahead_of_its_own_keys_running_ones_and_of_no_others)
{
    static struct bench b;
    bench_init(&b, 1, 3, 400);
    b.client[0] = client(1, 0, 1), b.client[1] = client(2, 0, 1);
    const int32_t low = add(&b, 0, 2, 30, 3);
    step(&b);
    const int32_t other = add(&b, 1, 2, 30, 9);
    step(&b);
    const int32_t high = add(&b, 0, 2, 30, -3);
    step(&b);
    int32_t n;
    const int32_t *seq = qr_sched_list(b.sched, QR_SEQ_DECODE, &n);
    cr_assert(n == 3 && seq[0] == high && seq[1] == other && seq[2] == low, "%d run: %d %d %d", n, seq[0], seq[1], seq[2]);
    bench_release(&b);
}
