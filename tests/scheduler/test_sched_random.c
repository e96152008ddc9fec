/* Random operations on the real scheduler and pool against the oracle of sched_world.h. */
#include <criterion/criterion.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/full.h"
#include "tests/scheduler/sched_world.h"
#include "tests/seed.h"

static uint32_t draw_rng(void *source, uint32_t n)
{
    return qr_rng_below(source, n);
}

Test(sched, keeps_every_invariant_under_a_million_random_operations)
{
    const uint64_t seed = test_seed();
    int64_t n_ops = (int64_t)(1.05e6 * test_scale()), began_us = qr_clock_us();
    static struct world w;
    int64_t ops = 0, steps = 0, rows = 0, copies = 0, preemptions = 0, finished = 0, cancelled = 0, hits = 0, refused = 0, in = 0, behind = 0;
    int64_t let_go = 0, landed = 0, no_place = 0, names = 0, pinned = 0, right = 0, wrong = 0, forced = 0;
    int64_t n_worlds = 0, n_colliding = 0, twins = 0, twin_hits = 0;
    for (; ops < n_ops; n_worlds++) {
        struct qr_rng rng = {.seed = seed, .pos = (uint64_t)n_worlds << 32};
        world_init(&w, draw_rng, &rng);
        w.reads_max = qr_rng_below(&rng, 2) ? INT32_MAX : 1 + (int32_t)qr_rng_below(&rng, 400);
        w.chunk_max += (int32_t)qr_rng_below(&rng, 2) * w.config.step_tokens_max;
        qr_sched_limit_reads(w.sched, w.reads_max < INT32_MAX ? w.reads_max : INT64_MAX);
        qr_sched_limit_chunk(w.sched, w.chunk_max);
        for (int i = 0; i < 2000 && w.broken[0] == '\0'; i++)
            world_op(&w);
        world_drain(&w);
        world_release(&w);
        cr_assert(w.broken[0] == '\0', "%s (QUIRE_TEST_SEED=%llu, world %lld, operation %lld)", w.broken,
                  (unsigned long long)seed, (long long)n_worlds, (long long)w.total.ops);
        ops += w.total.ops, steps += w.total.steps, rows += w.total.rows, copies += w.total.copies;
        preemptions += w.total.preemptions, finished += w.total.finished, cancelled += w.total.cancelled;
        hits += w.total.hit_tokens, refused += w.total.refused, in += w.total.in, behind += w.total.behind, n_colliding += w.total.forced_collisions;
        let_go += w.total.let_go, landed += w.total.landed, no_place += w.total.no_place, names += w.total.names;
        twins += w.total.behind * w.config.n_twins, twin_hits += w.config.n_twins > 0 ? w.total.hit_tokens : 0;
        pinned += w.total.pinned, right += w.total.right, wrong += w.total.wrong, forced += w.total.forced;
    }
    fprintf(stderr,
            "sched random: seed=%llu worlds=%lld (colliding hashes in %lld) ops=%lld steps=%lld rows=%lld finished=%lld "
            "cancelled=%lld refused=%lld preemptions=%lld copies=%lld hit_tokens=%lld back_from_second_tier=%lld behind=%lld twins_behind=%lld "
            "twin_hits=%lld pinned=%lld "
            "right=%lld wrong=%lld forced=%lld let_go=%lld landed=%lld no_place=%lld names=%lld in %.1f s\n",
            (unsigned long long)seed, (long long)n_worlds, (long long)n_colliding, (long long)ops, (long long)steps,
            (long long)rows, (long long)finished, (long long)cancelled, (long long)refused, (long long)preemptions,
            (long long)copies, (long long)hits, (long long)in, (long long)behind,
            (long long)twins, (long long)twin_hits, (long long)pinned, (long long)right, (long long)wrong, (long long)forced,
            (long long)let_go, (long long)landed, (long long)no_place, (long long)names,
            (double)(qr_clock_us() - began_us) / 1e6);
    const bool reached = preemptions > 1000 && copies > 1000 && hits > 10000 && in > 1000 && behind > 1000 && pinned > 1000 && n_colliding > 0;
    const bool had_twins = twins > 10000 && twin_hits > 10000;
    const bool was_held = let_go > 10000 && landed > 4000 && no_place > 1000 && names > 10000;
    cr_assert(test_scale() < 0.5 || (reached && had_twins && was_held && right > 10000 && wrong > 10000 && forced > 1000),
              "the random worlds do not reach the cases they are for");
}
