/* The file tier under load: one thread does what the engine does, at random, while extents come and go and another reads the counters. What arrives is right
 * and in order, each fetch ends once, parcels are all back at the end. A plain program, so that the thread sanitizer can run it. */
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "tests/exchange/tier_rig.h"
#include "tests/full.h"
#include "tests/seed.h"
#include "tests/temp.h"

#define CHECK(cond)                                                            \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

enum { FETCHES = 5, NAMES = 30, RECENT = 60 };

struct question {
    struct qr_fetch fetch;
    struct qr_kv_name names[NAMES];
    int32_t expected; /* index of the block that arrives next */
    bool running;
};

struct load {
    struct qr_file_tier *tier;
    struct question question[FETCHES];
    struct qr_node kept; /* parcels that arrived and are not given back yet */
    struct qr_rng rng;
    int32_t n_given, n_arrived, n_whole, n_ended;
    _Atomic bool done;
};

static void *read_counters(void *arg)
{
    struct load *l = arg;
    for (int64_t before = 0; !atomic_load(&l->done); nap()) {
        struct qr_file_tier_stats s;
        qr_file_tier_stats(l->tier, &s);
        CHECK(s.blocks_written >= before && s.bytes <= 1000000 && s.n_failed == 0 && s.n_bad_sum == 0);
        before = s.blocks_written;
    }
    return NULL;
}

static void ask(struct load *l, struct question *q)
{
    const int32_t first = l->n_given > RECENT ? l->n_given - RECENT : 0, n = 1 + (int32_t)qr_rng_below(&l->rng, NAMES);
    const int32_t from = first + (int32_t)qr_rng_below(&l->rng, RECENT); /* some are not there yet, or any more */
    *q = (struct question){.fetch = {.names = q->names, .user = q}, .running = true};
    for (int32_t i = 0; i < n; i++)
        q->names[i] = name_of(from + i);
    q->fetch.n = qr_file_tier_find(l->tier, q->names, 0, n);
    q->fetch.first = (int32_t)qr_rng_below(&l->rng, (uint32_t)q->fetch.n + 1);
    q->expected = q->fetch.first;
    qr_file_tier_fetch(l->tier, &q->fetch);
}

static void give_back_some(struct load *l, uint32_t of_100)
{
    while (!qr_list_empty(&l->kept) && qr_rng_below(&l->rng, 100) < of_100)
        qr_parcel_give_back(QR_CONTAINER(qr_list_pop_front(&l->kept), struct qr_parcel, link));
}

static void take(struct load *l)
{
    struct qr_node arrived, over, *node;
    qr_list_init(&arrived);
    qr_list_init(&over);
    qr_file_tier_take(l->tier, &arrived, &over);
    while ((node = qr_list_pop_front(&arrived)) != NULL) {
        struct qr_parcel *p = QR_CONTAINER(node, struct qr_parcel, link);
        struct question *q = p->fetch->user;
        CHECK(q->running && p->index == q->expected && memcmp(&p->name, &q->names[p->index], sizeof p->name) == 0 && is_right(p));
        q->expected++;
        l->n_arrived++;
        qr_list_push_back(&l->kept, node);
    }
    while ((node = qr_list_pop_front(&over)) != NULL) {
        struct question *q = QR_CONTAINER(node, struct qr_fetch, link)->user;
        CHECK(q->running && (q->fetch.why != NULL || q->expected == q->fetch.n));
        q->running = false;
        l->n_ended++;
        l->n_whole += q->fetch.why == NULL;
    }
}

static void turn(struct load *l)
{
    const uint32_t what = qr_rng_below(&l->rng, 100);
    struct question *q = &l->question[qr_rng_below(&l->rng, FETCHES)];
    struct qr_parcel *p;
    if (what < 60 && (p = qr_file_tier_parcel(l->tier)) != NULL) {
        p->name = name_of(l->n_given++);
        fill(p->bytes, &p->name);
        qr_file_tier_write(l->tier, p);
    } else if (what < 75 && !q->running) {
        ask(l, q);
    } else if (what < 78 && q->running) {
        atomic_store(&q->fetch.stopped, true);
    }
    take(l);
    give_back_some(l, 80);
    if (what > 90)
        nap();
}

/* Of each kind of thing enough has happened; on a busy machine that takes more turns. */
static bool is_enough(const struct load *l, int32_t n_turns)
{
    return l->n_given > n_turns / 10 && l->n_arrived > n_turns / 10 && l->n_whole > n_turns / 200;
}

int main(void)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    static struct load l;
    l.rng = (struct qr_rng){.seed = test_seed()};
    qr_list_init(&l.kept);
    l.tier = tier_open(dir, 1000000, 1);
    pthread_t counters;
    qr_thread_start(&counters, read_counters, &l, "a test");
    const int32_t n_turns = test_cases(6000);
    for (int32_t i = 0; i < n_turns || (i < 50 * n_turns && !is_enough(&l, n_turns)); i++)
        turn(&l);
    for (int32_t n_running = 1; n_running > 0; nap()) {
        give_back_some(&l, 100);
        take(&l);
        n_running = 0;
        for (int32_t i = 0; i < FETCHES; i++)
            n_running += l.question[i].running;
    }
    give_back_some(&l, 100);
    atomic_store(&l.done, true);
    pthread_join(counters, NULL);
    qr_file_tier_close(l.tier);
    remove_dir(dir);
    printf("file tier: %d blocks written, %d read, %d fetches, %d of them to their end\n", l.n_given, l.n_arrived, l.n_ended, l.n_whole);
    CHECK(is_enough(&l, n_turns));
    return 0;
}
