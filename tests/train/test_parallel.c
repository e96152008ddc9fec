/* Several ranks: the same bytes as one, whatever is cut into parts; and what happens when one of them fails. */
#include "tests/train/ranks.h"

#include <sys/mman.h>

#include "base/map_file.h"

/* Pieces of 20 and 12 rows, so that micro-batches differ in size; 24 documents are 48 pieces, which no number of ranks here divides into batches. */
#define STEP "batch.micro=4", "batch.leaves=4", "batch.tokens=52", "data.sequence=20"

static const char *const shards[] = {"parallel.shard=none", "parallel.shard=optimizer", "parallel.shard=gradients", "parallel.shard=full"};

/* The world, with held-out data: the same documents again. */
static struct world with_eval(char eval[120])
{
    struct world w = world_new();
    snprintf(eval, 120, "data.eval=%s", w.data);
    return w;
}

static void check_dtype(const char *dtype)
{
    char eval[120];
    struct world w = with_eval(eval);
    const uint64_t one = ranks_of(&w, WITH(dtype, STEP, eval, "eval.every=1", shards[0]), 1, 0, 3);
    for (int i = 0; i < QR_COUNT(shards); i++)
        for (int32_t n = 1; n <= 4; n *= 2)
            cr_assert_eq(ranks_of(&w, WITH(dtype, STEP, eval, "eval.every=1", shards[i]), n, 0, 3), one, "%s, %s, %d ranks", dtype, shards[i], n);
    world_drop(&w);
}

Test(parallel, one_two_and_four_ranks_give_the_same_bytes_in_f32_however_parameters_are_cut)
{
    check_dtype("compute.dtype=f32");
}

Test(parallel, one_two_and_four_ranks_give_the_same_bytes_in_bf16_however_parameters_are_cut)
{
    check_dtype("compute.dtype=bf16");
}
