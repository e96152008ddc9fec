/* A model shared out to ranks: how far its logits are from those of one rank, and that they are the same bits whenever the number of ranks is the same.
 *
 * Bound, f32. What N ranks compute is what one computes but for the order in which two sums a layer are added: h + in w^T, cut into N stretches of inputs.
 * Instruction-set levels, too, differ in nothing but the order of additions (kernels.h), in every product and every norm. So `moved`, the largest difference of
 * any logit between the level under test and others, is a draw from the errors of more reordered sums than ranks reorder, and what ranks move is at most as
 * large a draw. Of two maxima over thousands of draws from one distribution either may be the larger; allowed is twice `moved`. Nothing in it comes from ranks.
 * A processor that has ref alone shows no other order: `moved` is there what order_moves() (tests/levels.h) makes of the distance of bf16.
 * With an adapter ranks cut A x by the inputs that they cut W x by, and what B makes of the parts joins the same sums: nothing else is added in another order,
 * so the bound is the same one.
 *
 * Bound, bf16. There few differences of order survive a rounding, and one that does is as large as the rounding: levels may all agree where ranks do not. So
 * the bound is that of quantized weights.
 *
 * Bound, quantized weights. A rank rounds its inputs' part of out and down with a scale of its own, no larger than that of the whole row, and what meets it
 * likewise; everything else is rounded as on one rank. So quantized ranks are the unrounded model plus rounding errors of steps that are nowhere larger than
 * those of one rank: |ranks - unrounded| is allowed twice max |one rank - unrounded|, as above.
 */
#include "base/clock.h"
#include "loader/pack/share.h"
#include "loader/weights.h"
#include "tests/lora_make.h"
#include "tests/model/crew.h"

#define N_TEXT 32
#define SEED 20261121
#define N_FAMILIES 13

#if defined(__SANITIZE_ADDRESS__)
#define STEP 3
#else
#define STEP 1
#endif

struct family {
    const char *name;
    struct qr_model_config c;
    int32_t ranks[3]; /* up to a 0 */
};

/* Shapes whose parts are alike, and such that are not: 3 key-value heads on 2 ranks, odd widths, a vocabulary of less than a stretch for each. */
static int32_t families(struct family out[N_FAMILIES])
{
    static const struct {
        const char *name;
        enum qr_arch arch;
        int32_t heads, kv_heads, ffn, vocab, ranks[3];
    } named[] = {{"llama with biases, tied", QR_ARCH_LLAMA, 8, 4, 160, 600, {2, 4}}, {"uneven llama", QR_ARCH_LLAMA, 9, 3, 519, 1203, {3, 2}},
                 {"phi3", QR_ARCH_PHI3, 4, 2, 172, 512, {2}},                        {"qwen3", QR_ARCH_QWEN3, 8, 4, 176, 517, {4}},
                 {"gemma", QR_ARCH_GEMMA, 6, 2, 144, 300, {2}},                      {"mistral", QR_ARCH_MISTRAL, 4, 4, 130, 2050, {4}},
                 {"gemma2, capped", QR_ARCH_GEMMA2, 4, 2, 150, 520, {2}},            {"gemma3", QR_ARCH_GEMMA3, 6, 3, 144, 300, {3}},
                 {"stablelm", QR_ARCH_STABLELM, 4, 2, 130, 300, {2}},                {"gpt2", QR_ARCH_GPT2, 5, 5, 170, 300, {2}},
                 {"mixtral", QR_ARCH_MIXTRAL, 4, 2, 88, 300, {2}},                   {"qwen2-moe", QR_ARCH_QWEN2_MOE, 8, 4, 88, 517, {3}},
                 {"gpt-oss", QR_ARCH_GPT_OSS, 12, 4, 88, 300, {3}}};
    _Static_assert(QR_COUNT(named) == N_FAMILIES, "all of them");
    for (int i = 0; i < QR_COUNT(named); i++) {
        out[i] = (struct family){.name = named[i].name, .c = qr_model_config_small(named[i].arch)};
        out[i].c.n_heads = named[i].heads;
        out[i].c.n_kv_heads = named[i].kv_heads;
        out[i].c.n_ffn = named[i].ffn;
        out[i].c.n_vocab = named[i].vocab;
        if (named[i].arch == QR_ARCH_MIXTRAL || named[i].arch == QR_ARCH_GPT_OSS)
            out[i].c.moe.n_ffn = named[i].ffn; /* one number of its config.json */
        memcpy(out[i].ranks, named[i].ranks, sizeof out[i].ranks);
    }
    out[0].c.qkv_bias = out[0].c.out_bias = out[0].c.mlp_bias = out[0].c.tied_head = true;
    out[5].c.window = 17;
    return QR_COUNT(named);
}

static void expect_same(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            cr_assert_fail("%s: number %zu is %.9g, before it was %.9g", what, i, (double)b[i], (double)a[i]);
}

/* ---- the same model ---- */

/* `moved` in f32, of which `one` are the logits at the best level. */
static double moved_by_order(const struct family *f, const char *dir, const char *adapter, const int32_t *ids, const float *one)
{
    const size_t n = (size_t)N_TEXT * (size_t)f->c.n_vocab;
    const char *levels[8];
    const int32_t n_levels = qr_cpu_levels(levels);
    double moved = 0;
    for (int32_t i = 0; i + 1 < n_levels; i++) {
        float *other = crew_adapted_logits(dir, adapter, (struct rig_options){.compute = QR_COMPUTE_F32, .isa = levels[i]}, 1, ids, N_TEXT, N_TEXT);
        moved = fmax(moved, furthest(other, one, n));
        qr_free(other);
    }
    if (n_levels == 1) {
        float *rounded = crew_adapted_logits(dir, adapter, (struct rig_options){.compute = QR_COMPUTE_BF16}, 1, ids, N_TEXT, N_TEXT);
        moved = order_moves(furthest(rounded, one, n), qr_weights_inputs_max(&f->c));
        qr_free(rounded);
    }
    return moved;
}

static void check_order(const struct family *f, const char *dir, const char *adapter, enum qr_compute compute)
{
    struct qr_rng rng = {.seed = SEED};
    const size_t n = (size_t)N_TEXT * (size_t)f->c.n_vocab;
    int32_t *ids = random_ids(&rng, N_TEXT, f->c.n_vocab);
    float *one = crew_adapted_logits(dir, adapter, (struct rig_options){.compute = compute}, 1, ids, N_TEXT, N_TEXT);
    float *exact = NULL;
    if (compute == QR_COMPUTE_BF16)
        exact = crew_adapted_logits(dir, adapter, (struct rig_options){.compute = QR_COMPUTE_F32}, 1, ids, N_TEXT, N_TEXT);
    const double moved = exact ? furthest(exact, one, n) : moved_by_order(f, dir, adapter, ids, one);
    cr_assert_gt(moved, 0);
    for (int i = 0; i < QR_COUNT(f->ranks) && f->ranks[i] > 0; i++) {
        const struct rig_options o = {.compute = compute}, threads = {.compute = compute, .n_threads = f->ranks[i] == 2 ? 2 : 1};
        float *some = crew_adapted_logits(dir, adapter, o, f->ranks[i], ids, N_TEXT, N_TEXT);
        float *again = crew_adapted_logits(dir, adapter, threads, f->ranks[i], ids, N_TEXT, 7);
        const double found = furthest(exact ? exact : one, some, n);
        printf("%s%s, %s, %d ranks: %.2g, %s %.2g (%.2g from one rank)\n", f->name, adapter ? " with an adapter" : "",
               compute == QR_COMPUTE_F32 ? "f32" : "bf16", f->ranks[i], found, exact ? "rounding" : "order", moved, furthest(one, some, n));
        cr_expect_leq(found, 2 * moved, "%s, %d ranks", f->name, f->ranks[i]);
        expect_same(some, again, n, f->name);
        qr_free(some);
        qr_free(again);
    }
    qr_free(exact);
    qr_free(one);
    qr_free(ids);
}

Test(ranks, logits_of_2_3_and_4_ranks_are_those_of_one_but_for_the_order_of_two_sums_and_the_same_bits_in_any_chunks)
{
    struct family f[N_FAMILIES];
    const int32_t n = families(f);
    for (int32_t i = STEP - 1; i < n; i += STEP) {
        struct temp_model t = temp_model_make(&f[i].c, QR_F32);
        check_order(&f[i], t.dir, NULL, QR_COMPUTE_F32);
        check_order(&f[i], t.dir, NULL, QR_COMPUTE_BF16);
        temp_model_remove(&t);
    }
}

/* Every way in which a family's matrices are cut, q, k and v or gate and up in one matrix of the file among them; norms of a half's sum, no gates, experts with
 * a router and a shared gate that all ranks have. */
Test(ranks, adapters_on_2_3_and_4_ranks_are_those_of_one_but_for_the_order_of_two_sums_and_the_same_bits_in_any_chunks)
{
    static const int32_t some[] = {0, 1, 2, 6, 8, 9, 11};
    struct family f[N_FAMILIES];
    families(f);
    for (int i = 0; i < QR_COUNT(some); i += STEP) {
        const struct family *one = &f[some[i]];
        struct temp_model t = temp_model_make(&one->c, QR_F32);
        const struct lora_make m = {.rank = 5, .alpha = 8, .seed = 3};
        char dir[100];
        struct qr_err err;
        snprintf(dir, sizeof dir, "%s/adapter", t.dir);
        lora_make(dir, &one->c, &m);
        check_order(one, t.dir, dir, QR_COMPUTE_F32);
        if (i % 2 == 0)
            check_order(one, t.dir, dir, QR_COMPUTE_BF16);
        cr_expect_eq(qr_dir_remove(dir, &err), 0);
        temp_model_remove(&t);
    }
}

/* Logits of all ids with the adapter in a slot; -1: with none. */
static float *one_alone(struct crew *w, const int32_t *ids, int32_t slot)
{
    struct rig_seq s = rig_seq_new(&w->r, 0, NULL);
    s.adapter = slot + 1;
    float *all = rig_prompt(&w->r, &s, ids, N_TEXT, N_TEXT);
    rig_seq_free(&s);
    return all;
}

/* Three sequences in one batch: the first without an adapter, the others with those of slots 1 and 0. */
static void check_beside(struct crew *w, const int32_t *ids, float *const alone[3], size_t v)
{
    struct rig_seq s[3];
    for (int32_t i = 0; i < 3; i++) {
        s[i] = rig_seq_new(&w->r, 8 * i, NULL);
        s[i].adapter = i == 0 ? 0 : 3 - i;
    }
    for (int32_t at = 0; at < N_TEXT; at += 4) {
        const struct rig_item item[3] = {{&s[0], ids + at, 4, RIG_ALL}, {&s[1], ids + at, 4, RIG_ALL}, {&s[2], ids + at, 4, RIG_ALL}};
        float *got = rig_step(&w->r, item, 3);
        for (int32_t i = 0; i < 3; i++)
            expect_same(alone[s[i].adapter] + (size_t)at * v, got + (size_t)(4 * i) * v, 4 * v, "beside others");
        qr_free(got);
    }
    for (int32_t i = 0; i < 3; i++)
        rig_seq_free(&s[i]);
}

Test(ranks, adapters_in_one_batch_are_what_each_is_alone_and_a_slot_that_is_filled_again_holds_nothing_of_before)
{
    struct qr_rng rng = {.seed = SEED};
    struct family f[N_FAMILIES];
    struct qr_err err;
    families(f);
    struct temp_model t = temp_model_make(&f[1].c, QR_BF16);
    int32_t *ids = random_ids(&rng, N_TEXT, f[1].c.n_vocab);
    const size_t v = (size_t)f[1].c.n_vocab;
    const struct lora_make m[] = {{.rank = 12, .alpha = 6, .seed = 2}, {.rank = 3, .alpha = 3, .seed = 4, .only = "attn", .dtype = QR_BF16}};
    char dir[2][100];
    struct crew w;
    crew_open(&w, t.dir, (struct rig_options){.slots = 2}, 3);
    for (int i = 0; i < 2; i++) {
        snprintf(dir[i], sizeof dir[i], "%s/adapter%d", t.dir, i);
        lora_make(dir[i], &f[1].c, &m[i]);
        crew_adapt(&w, i, dir[i]);
    }
    float *alone[3] = {one_alone(&w, ids, -1), one_alone(&w, ids, 0), one_alone(&w, ids, 1)};
    cr_expect(memcmp(alone[0], alone[1], v) != 0 && memcmp(alone[1], alone[2], v) != 0);
    check_beside(&w, ids, alone, v);
    crew_adapt(&w, 0, dir[1]);
    float *again = one_alone(&w, ids, 0);
    expect_same(alone[2], again, N_TEXT * v, "in a slot that held another one");
    crew_close(&w, 0);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(qr_dir_remove(dir[i], &err), 0);
    qr_free(alone[0]), qr_free(alone[1]), qr_free(alone[2]), qr_free(again), qr_free(ids);
    temp_model_remove(&t);
}

Test(ranks, quantized_ranks_are_no_further_from_the_unrounded_model_than_one_rank)
{
    static const enum qr_quantize formats[] = {QR_QUANTIZE_INT8, QR_QUANTIZE_INT8_G32, QR_QUANTIZE_INT4, QR_QUANTIZE_W8A16, QR_QUANTIZE_W4A16_G64};
    struct qr_rng rng = {.seed = SEED};
    struct family f[N_FAMILIES];
    families(f);
    const size_t n = (size_t)N_TEXT * (size_t)f[1].c.n_vocab;
    int32_t *ids = random_ids(&rng, N_TEXT, f[1].c.n_vocab);
    struct temp_model t = temp_model_make(&f[1].c, QR_BF16);
    float *exact = crew_logits(t.dir, (struct rig_options){.compute = QR_COMPUTE_F32}, 1, ids, N_TEXT, N_TEXT);
    for (int i = 0; i < QR_COUNT(formats); i += STEP) {
        const struct rig_options o = {.quantize = formats[i]};
        float *one = crew_logits(t.dir, o, 1, ids, N_TEXT, N_TEXT), *two = crew_logits(t.dir, o, 2, ids, N_TEXT, N_TEXT);
        float *again = crew_logits(t.dir, o, 2, ids, N_TEXT, 9);
        const double moved = furthest(exact, one, n), found = furthest(exact, two, n);
        printf("%s: one rank %.3g, two %.3g\n", qr_dtype_name(qr_quantize_dtype(formats[i])), moved, found);
        cr_expect_leq(found, 2 * moved);
        expect_same(two, again, n, "quantized");
        qr_free(one);
        qr_free(two);
        qr_free(again);
    }
    qr_free(exact);
    qr_free(ids);
    temp_model_remove(&t);
}

Test(ranks, an_int8_cache_shared_out_gives_the_bits_of_any_batch)
{
    struct qr_rng rng = {.seed = SEED};
    struct family f[N_FAMILIES];
    families(f);
    struct temp_model t = temp_model_make(&f[1].c, QR_BF16);
    int32_t *ids = random_ids(&rng, N_TEXT, f[1].c.n_vocab);
    const size_t v = (size_t)f[1].c.n_vocab;
    struct crew w;
    crew_open(&w, t.dir, (struct rig_options){.kv_cache = QR_KV_CACHE_INT8}, 2);
    struct rig_seq a = rig_seq_new(&w.r, 0, NULL), b = rig_seq_new(&w.r, 20, NULL);
    float *alone = rig_prompt(&w.r, &a, ids, N_TEXT, N_TEXT);
    a.n_done = 0;
    for (int32_t i = 0; i < 10; i++) { /* beside a neighbour; the block that it will need next came from another place */
        const struct rig_item item[] = {{&b, ids + 3 * i, 3, RIG_LAST}, {&a, ids + i, 1, RIG_LAST}};
        float *both = rig_step(&w.r, item, 2);
        expect_same(alone + (size_t)i * v, both + v, v, "beside a neighbour");
        qr_free(both);
    }
    qr_model_kv_copy(w.r.x, a.table[0], 40);
    a.table[0] = 40;
    for (int32_t i = 10; i < 14; i++) {
        float *one = rig_step(&w.r, &(struct rig_item){&a, ids + i, 1, RIG_LAST}, 1);
        expect_same(alone + (size_t)i * v, one, v, "from a copied block");
        qr_free(one);
    }
    rig_seq_free(&a);
    rig_seq_free(&b);
    crew_close(&w, 0);
    qr_free(alone);
    qr_free(ids);
    temp_model_remove(&t);
}

/* ---- shares ---- */

Test(ranks, every_row_and_column_belongs_to_exactly_one_rank_and_rank_0_has_the_most)
{
    struct family f[N_FAMILIES];
    const int32_t n = families(f);
    for (int32_t i = 0; i < n; i++)
        for (int32_t size = 1; size <= f[i].c.n_kv_heads; size++)
            for (int dim = QR_DIM_EMBD; dim < QR_DIM_COUNT; dim++) {
                if (dim == QR_DIM_Q_KV || dim == QR_DIM_EMBD || dim == QR_DIM_HEAD || dim == QR_DIM_ONE || dim == QR_DIM_EXPERTS || dim == QR_DIM_POSITIONS)
                    continue; /* the first is where v begins, the others are everybody's */
                const int64_t total = qr_dim_value(&f[i].c, (enum qr_dim)dim);
                int64_t n_first = 0;
                int32_t *owners = qr_alloc((size_t)total, sizeof *owners);
                for (int32_t r = 0; r < size; r++) {
                    struct qr_share s;
                    struct qr_span span[QR_SHARE_SPANS_MAX];
                    struct qr_err err;
                    cr_assert_eq(qr_share_make(&s, &f[i].c, r, size, &err), 0);
                    const int32_t n_spans = qr_share_spans(span, &s, (enum qr_dim)dim);
                    int64_t own = 0;
                    for (int32_t k = 0; k < n_spans; own += span[k++].n)
                        for (int64_t at = span[k].first; at < span[k].first + span[k].n; at++)
                            owners[at]++;
                    n_first = r == 0 ? own : n_first;
                    cr_expect_eq(own, qr_dim_value(&s.own, (enum qr_dim)dim));
                    cr_expect_leq(own, n_first);
                }
                for (int64_t at = 0; at < total; at++)
                    cr_assert_eq(owners[at], 1, "%s, %d ranks, dimension %d, row %d", f[i].name, size, dim, (int)at);
                qr_free(owners);
            }
}

Test(ranks, more_ranks_than_key_value_heads_are_refused_with_both_numbers)
{
    struct family f[N_FAMILIES];
    struct qr_share s;
    struct qr_err err = {0};
    families(f);
    cr_expect_eq(qr_share_make(&s, &f[0].c, 0, 5, &err), QR_E_UNSUPPORTED);
    cr_expect_str_eq(err.msg, "5 ranks, but the model has 4 key-value heads (num_key_value_heads), of which each rank needs one; use --tensor-parallel 4 or "
                     "less");
}

/* ---- a rank that is lost ---- */

Test(ranks, a_rank_that_gives_up_is_noticed_in_the_next_step_and_by_asking)
{
    struct family f[N_FAMILIES];
    families(f);
    struct temp_model t = temp_model_make(&f[1].c, QR_F32);
    for (int asks = 0; asks < 2; asks++) {
        struct crew w;
        struct qr_err err = {0};
        const int32_t ids[3] = {5, 6, 7};
        crew_open(&w, t.dir, (struct rig_options){0}, 3);
        struct rig_seq s = rig_seq_new(&w.r, 0, NULL);
        qr_free(rig_step(&w.r, &(struct rig_item){&s, ids, 2, RIG_LAST}, 1));
        cr_expect(!qr_exec_lost(&w.r.exec, &err));
        qr_comm_abort(&w.comm[2], "enough"); /* from outside, as a signal would */
        const int64_t began = qr_clock_us();
        if (asks)
            qr_exec_ping(&w.r.exec, 0);
        else
            qr_free(rig_step(&w.r, &(struct rig_item){&s, ids + 2, 1, RIG_LAST}, 1));
        cr_expect(qr_exec_lost(&w.r.exec, &err));
        cr_expect_str_eq(err.msg, "rank 2 gave up: enough");
        cr_expect_lt(qr_clock_us() - began, 15000000);
        rig_seq_free(&s);
        crew_close(&w, QR_E_CLOSED);
    }
    temp_model_remove(&t);
}

Test(ranks, norms_over_all_heads_of_q_and_k_are_refused_on_more_than_one)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_OLMO2);
    struct qr_share s;
    struct qr_err err = {0};
    cr_expect_eq(qr_share_make(&s, &c, 0, 1, &err), 0);
    cr_expect_eq(qr_share_make(&s, &c, 0, 2, &err), QR_E_UNSUPPORTED);
    cr_expect_str_eq(err.msg, "Olmo2ForCausalLM has norms over all heads of q and k, of which no rank has all; use --tensor-parallel 1");
}
