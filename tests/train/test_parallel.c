/* Several ranks: the same bytes as one, whatever is cut into parts; what each holds; and what happens when one of them fails. */
#include <stdatomic.h>
#include <sys/mman.h>

#include "tests/train/ranks.h"

/* Pieces of 20 and 12 rows, so that micro-batches differ in size; 24 documents are 48 pieces, which no number of ranks here divides into batches. */
#define STEP "batch.micro=4", "batch.leaves=4", "batch.tokens=52", "data.sequence=20"

static const char *const shards[] = {"parallel.shard=none", "parallel.shard=optimizer", "parallel.shard=gradients", "parallel.shard=full"};

#if defined(__SANITIZE_ADDRESS__) /* every cut and every number of ranks with one of the types */
#define EVERY 2
#else
#define EVERY 1
#endif

static void check_dtype(const char *dtype, int which)
{
    struct world w = world_new();
    char eval[120];
    snprintf(eval, sizeof eval, "data.eval=%s", w.data); /* the same documents again */
    const uint64_t seen = ranks_of(&w, WITH(dtype, STEP, eval, "eval.every=1", shards[0]), 1, 3, false), written = files_of(&w, 3);
    for (int i = 0; i < QR_COUNT(shards); i++)
        for (int32_t n = 1; n <= 4; n *= 2) {
            if ((i + n / 2 + which) % EVERY != 0)
                continue;
            cr_assert_eq(ranks_of(&w, WITH(dtype, STEP, eval, "eval.every=1", shards[i]), n, 3, false), seen, "%s, %s, %d ranks", dtype, shards[i], n);
            cr_assert_eq(files_of(&w, 3), written, "%s, %s, %d ranks", dtype, shards[i], n);
        }
    world_drop(&w);
}

Test(parallel, one_two_and_four_ranks_give_the_same_bytes_in_f32_however_parameters_are_cut)
{
    check_dtype("compute.dtype=f32", 0);
}

Test(parallel, one_two_and_four_ranks_give_the_same_bytes_in_bf16_however_parameters_are_cut)
{
    check_dtype("compute.dtype=bf16", 1);
}

#define LONG "batch.micro=8", "batch.tokens=52", "data.sequence=20", "data.shuffle=false", "compute.recompute=full"

Test(parallel, a_leaf_of_several_micro_batches_is_one_chain_and_leaves_are_a_tree)
{
    struct world w = world_new();
    const uint64_t tree = ranks_of(&w, WITH(LONG, "batch.leaves=4"), 1, 2, false);
    for (int i = 0; i < QR_COUNT(shards); i++)
        cr_assert_eq(ranks_of(&w, WITH(LONG, "batch.leaves=4", shards[i]), 2, 2, false), tree, "%s", shards[i]);
    cr_assert_eq(ranks_of(&w, WITH(LONG, "batch.leaves=0"), 2, 2, false), ranks_of(&w, WITH(LONG, "batch.leaves=2"), 1, 2, false), "a leaf for each rank");
    cr_assert_neq(ranks_of(&w, WITH(LONG, "batch.leaves=2"), 1, 2, false), tree, "leaves do not show: this test sees nothing");
    world_drop(&w);
}

Test(parallel, a_run_goes_on_with_another_number_of_ranks_and_other_parts)
{
    static const int32_t then[] = {1, 2, 4, 2};
    struct world w = world_new();
    ranks_of(&w, WITH(STEP), 1, 4, false);
    const uint64_t whole = files_of(&w, 4);
    for (int i = 0; i < QR_COUNT(shards); i++) {
        struct qr_err err = {0};
        char path[300];
        snprintf(path, sizeof path, "%s/step-%08d", w.out, 4);
        cr_assert_eq(qr_dir_remove(path, &err), 0, "%s", err.msg); /* else it would be the latest */
        ranks_of(&w, WITH(STEP, shards[i]), 4, 2, false);
        ranks_of(&w, WITH(STEP, shards[(i + 3) % 4]), then[i], 2, true);
        cr_assert_eq(files_of(&w, 4), whole, "%s on 4 ranks, then %s on %d", shards[i], shards[(i + 3) % 4], then[i]);
    }
    world_drop(&w);
}

Test(parallel, every_kind_of_training_shares_the_work)
{
    struct world w = world_new();
    char from[200], taught[200];
    snprintf(from, sizeof from, "model.from=%s/step-%08d", w.out, 1);
    snprintf(taught, sizeof taught, "teacher.model=%s/step-%08d", w.out, 1);
    const char *const kind[][3] = {{"optimizer.kind=muon"}, {"prune.kind=2:4"}, {"quantize.type=int8"}, {"model.config=", from, "lora.rank=4"}, {taught},
                                   {taught, "parallel.shard=full"}};
    ranks_of(&w, WITH(STEP), 1, 1, false);
    for (int i = 0; i < QR_COUNT(kind); i++) {
        const char *const *more = WITH(STEP, "save.keep=9", kind[i][0], kind[i][1], kind[i][2]);
        const uint64_t seen = ranks_of(&w, more, 1, 2, false), written = files_of(&w, 2);
        cr_assert_eq(ranks_of(&w, more, 2, 2, false), seen, "%s", kind[i][0]);
        cr_assert_eq(files_of(&w, 2), written, "%s", kind[i][0]);
    }
    world_drop(&w);
}

/* ---- what a rank holds ---- */

/* Bytes of [p, p + n) that have pages. */
static size_t resident(const void *p, size_t n)
{
    const uintptr_t page = 4096, first = (uintptr_t)p / page * page, end = qr_align_up((uintptr_t)p + n, page);
    unsigned char *there = qr_alloc((end - first) / page, 1);
    size_t sum = 0;
    cr_assert_eq(mincore((void *)first, end - first, there), 0);
    for (size_t i = 0; i < (end - first) / page; i++)
        sum += (there[i] & 1) * page;
    qr_free(there);
    return sum;
}

struct holding {
    size_t values, half, grad, m, v, packed, planned;
};

static struct holding held[RANKS_MAX];

static void note(struct rank *r)
{
    const struct qr_trainer *t = r->s.t;
    const size_t n = (size_t)t->params->n;
    struct holding *h = &held[r->comm.rank];
    *h = (struct holding){.values = resident(t->params->value, 4 * n), .half = resident(t->params->half, 2 * n), .grad = resident(t->params->grad, 4 * n),
                          .m = resident(t->optim.m, 4 * n), .v = resident(t->optim.v, 4 * n),
                          .packed = resident(t->params->weights.region, t->params->weights.region_bytes), .planned = t->plan.total};
}

/* A part's two ends may lie in pages that hold others' bytes, too. Vectors are whole everywhere, in pages of their own at most. */
static void check_held(size_t found, size_t expected, int32_t n_units, int32_t n_vectors, const char *what)
{
    const size_t slack = 4096 * (size_t)(2 * n_units + 2 * n_vectors);
    cr_assert(found <= expected + slack && found + slack >= expected, "%s: %zu bytes have pages, expected %zu and at most %zu more", what, found, expected,
              slack);
}

Test(parallel, a_rank_holds_its_part_and_no_more)
{
    struct world w = world_new();
    struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct qr_buf text = {0};
    c.n_embd = 128, c.n_ffn = 256, c.n_vocab = 512, c.n_layers = 6, c.tied_head = true;
    c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = 32;
    qr_hf_config_write(&text, &c);
    put_file(w.dir.path, "config.json", text.data);
    qr_buf_release(&text);
    size_t planned = SIZE_MAX;
    for (int i = 1; i < QR_COUNT(shards); i++) {
        struct rank rank[RANKS_MAX];
        const struct rank like = {.w = &w, .more = WITH(STEP, shards[i]), .n_steps = 1, .after = note};
        ranks_run(rank, 2, &like);
        for (int32_t r = 0; r < 2; r++) {
            cr_assert_eq(rank[r].rc, 0, "%s", rank[r].err.msg);
            /* Layers are equal: a half is a half but for leaves of the norm, of which a unit has 16 or more. */
            const struct holding *h = &held[r];
            const size_t n = 512 * 128 + 128 + (size_t)c.n_layers * (2 * 128 + 3 * 128 * 256 + 128 * (2 * 4 + 2 * 2) * 32), part = n / 2;
            const size_t layers = n - 512 * 128, leaf = 4 * QR_SUM_LEAF * 2;
            const int32_t n_units = QR_UNIT_LAYER + c.n_layers, n_vectors = 1 + 2 * c.n_layers;
            check_held(h->values, 4 * part, n_units + (int32_t)(leaf / 4096), n_vectors, "masters");
            check_held(h->m, 4 * part, n_units + (int32_t)(leaf / 4096), n_vectors, "first moments");
            check_held(h->v, 4 * part, n_units + (int32_t)(leaf / 4096), n_vectors, "second moments");
            check_held(h->grad, i >= QR_SHARD_GRADIENTS ? 4 * part : 4 * n, n_units + (int32_t)(leaf / 4096), n_vectors, "gradients");
            check_held(h->half, 2 * (i == QR_SHARD_FULL ? n - layers + layers / 2 : n), n_units + (int32_t)(leaf / 4096), n_vectors, "what is computed with");
            cr_assert(i < QR_SHARD_FULL || h->packed <= 2 * 512 * 128 + 4096 * (size_t)(c.n_layers + 2), "%zu bytes are packed between steps", h->packed);
            cr_assert(h->planned < planned, "%s is to take less than what cuts less: %zu", shards[i], h->planned);
        }
        planned = held[0].planned;
    }
    world_drop(&w);
}

/* ---- ends ---- */

static atomic_int asked_of_first, asked_of_others = 1;

static void ask(struct rank *r)
{
    if (r->n_taken == 1)
        atomic_store(&asked_of_first, 2);
    r->s.t->stop = r->comm.rank == 0 ? &asked_of_first : &asked_of_others;
}

Test(parallel, all_ranks_stop_behind_the_step_in_which_the_first_was_asked)
{
    struct world w = world_new();
    struct rank rank[RANKS_MAX];
    const struct rank like = {.w = &w, .more = WITH(STEP), .n_steps = 6, .before = ask};
    atomic_store(&asked_of_first, 0);
    ranks_run(rank, 4, &like);
    for (int32_t r = 0; r < 4; r++)
        cr_assert(rank[r].rc == 0 && rank[r].stopped && rank[r].n_taken == rank[0].n_taken && rank[r].n_taken <= 3, "rank %d: %d steps", r, rank[r].n_taken);
    world_drop(&w);
}

/* Rank 1's weights break before its second step. */
static void spoil(struct rank *r)
{
    if (r->comm.rank == 1 && r->n_taken == 1) {
        const struct qr_param *t = qr_params_find(r->s.t->params, "model.norm.weight");
        ((float *)r->s.t->params->value)[t->first] = NAN;
    }
}

Test(parallel, an_error_of_one_rank_ends_all_and_is_told_by_all)
{
    struct world w = world_new();
    for (int32_t n = 2; n <= 4; n *= 2)
        for (int i = 0; i < 3; i++) {
            struct rank rank[RANKS_MAX];
            const struct rank like = {.w = &w, .more = WITH(STEP, shards[i]), .n_steps = 4, .before = spoil};
            ranks_run(rank, n, &like);
            for (int32_t r = 0; r < n; r++) {
                cr_assert(rank[r].rc != 0 && rank[r].n_taken <= 1, "%s: rank %d of %d took %d steps", shards[i], r, n, rank[r].n_taken);
                cr_assert_not_null(strstr(rank[r].err.msg, "step 2: the loss is "), "rank %d: %s", r, rank[r].err.msg);
                cr_assert(r == 1 || strstr(rank[r].err.msg, "rank 1"), "rank %d: %s", r, rank[r].err.msg);
            }
        }
    world_drop(&w);
}

/* All ranks break alike: the gradient's norm is what tells, and which rank has the tensor must not matter. */
static void spoil_all(struct rank *r)
{
    float *grad = r->s.t->params->grad;
    const struct qr_param *t = qr_params_find(r->s.t->params, "model.layers.1.mlp.up_proj.weight");
    int64_t a = t->first, b = t->first + 1;
    if (r->n_taken == 1 && qr_shares_clip(&r->s.t->par.shares, r->comm.rank, &a, &b))
        grad[a] = INFINITY;
}

Test(parallel, a_gradient_that_is_not_finite_is_named_by_every_rank)
{
    struct world w = world_new();
    for (int i = 1; i < 3; i++) {
        struct rank rank[RANKS_MAX];
        const struct rank like = {.w = &w, .more = WITH(STEP, shards[i]), .n_steps = 4, .before = spoil_all};
        ranks_run(rank, 4, &like);
        for (int32_t r = 0; r < 4; r++)
            cr_assert_not_null(strstr(rank[r].err.msg, "step 2: the gradient of model.layers.1.mlp.up_proj.weight is not finite"), "rank %d: %s", r,
                               rank[r].err.msg);
    }
    world_drop(&w);
}

Test(parallel, settings_that_do_not_go_with_ranks_are_refused_by_name)
{
    struct world w = world_new();
    const struct {
        const char *const *more;
        int32_t n_ranks;
        const char *message;
    } bad[] = {
        {WITH("batch.leaves=3"), 1, "--set batch.leaves: 3, expected a power of two (or 0: one for each rank)"},
        {WITH("batch.micro=6", "batch.leaves=4"), 2, "--set batch.micro: 6, which 4 leaves (batch.leaves) do not divide"},
        {WITH("batch.micro=1"), 2, "--set batch.micro: 1, which 2 leaves (one for each rank) do not divide"},
        {WITH("batch.micro=4", "batch.leaves=2"), 4, "--set batch.leaves: 2 is no multiple of the 4 ranks"},
        {WITH("batch.micro=6"), 3, "3 ranks; expected a power of two"},
        {WITH(STEP, "optimizer.kind=muon", "parallel.shard=optimizer"), 2, "--set optimizer.kind: muon, which moves whole matrices; expected adamw with "
         "parallel.shard optimizer, or parallel.shard none"},
        {WITH(STEP, "prune.kind=2:4", "parallel.shard=gradients"), 2, "--set parallel.shard: gradients, but this kind of training (prune) needs whole tensors "
         "on every rank; expected none"},
        {WITH(STEP, "quantize.type=int8", "parallel.shard=full"), 2, "--set parallel.shard: full, but this kind of training (quantize) needs whole tensors"},
        {WITH(STEP, "sample.every=1", "sample.prompts=x", "parallel.shard=full"), 2, "--set sample.every: samples need a whole model on one rank"},
        {WITH("parallel.shard=most"), 1, "parallel.shard"},
    };
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct qr_comm comm = {.size = bad[i].n_ranks}; /* refused before anything is sent */
        struct session s;
        struct qr_err err = {0};
        cr_assert_neq(try_open_rank(&s, &w, bad[i].more, NULL, &comm, &err), 0, "%s", bad[i].message);
        cr_assert_not_null(strstr(err.msg, bad[i].message), "%s, expected: %s", err.msg, bad[i].message);
        session_drop(&s);
    }
    world_drop(&w);
}
