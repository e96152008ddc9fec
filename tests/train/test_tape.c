/* The tape: what it records is what is served, what comes back does not depend on how memory is saved, work is cut or threads are counted. */
#include "tests/train/rig.h"

#include "tests/kernels/wide_oracle.h"

#define SEED 60417

/* Models that use every verb and every kind of weight: biases, norms of heads, a window, an untied and a tied head, divided logits. */
static struct qr_model_config config_of(int which)
{
    static const enum qr_arch arch[] = {QR_ARCH_LLAMA, QR_ARCH_MISTRAL, QR_ARCH_QWEN2, QR_ARCH_QWEN3, QR_ARCH_GRANITE};
    struct qr_model_config c = qr_model_config_small(arch[which]);
    c.n_ffn = 112;
    c.tied_head = which == 0 || which == 3;
    c.window = which == 1 ? 13 : 0;
    c.logits_divisor = which == 4 ? 3 : 0;
    return c;
}

enum { N_CONFIGS = 5 };

static const struct qr_tape_options options = {.n_tokens_max = 256, .n_seqs_max = 8};

/* ---- recorded = served ---- */

#if defined(__SANITIZE_ADDRESS__) /* each level meets half of the models */
enum { SERVED_STEP = 2 };
#else
enum { SERVED_STEP = 1 };
#endif

static void check_served(const char *dir, const char *isa, enum qr_compute compute)
{
    struct rig r;
    rig_open(&r, dir, (struct rig_options){.isa = isa, .n_threads = 2, .compute = compute});
    struct qr_tape_options o = options;
    o.logits = true;
    struct trainer tr = trainer_new(r.be, dir, QR_F32, qr_model_weight_dtype(r.model), o);
    struct qr_train_batch b = random_batch(rig_vocab(&r), 6, SEED);
    struct qr_tensor grad, logits = qr_tape_logits(tr.t, &b.b, &grad);
    cr_assert_eq(logits.shape[0], b.b.n_logits);
    check_logits(&r, &b.b, logits.data, dir);
    qr_train_batch_release(&b);
    trainer_drop(&tr);
    rig_close(&r);
}

Test(tape, recorded_logits_are_served_logits_bit_for_bit_on_every_level_and_type)
{
    const char *names[8];
    int32_t n_levels = levels(names);
    printf("seed %d\n", SEED);
    for (int which = 0; which < N_CONFIGS; which++) {
        struct qr_model_config c = config_of(which);
        struct temp_model bf16 = temp_model_make(&c, QR_BF16), f32 = temp_model_make(&c, QR_F32);
        for (int32_t l = which % SERVED_STEP; l < n_levels; l += SERVED_STEP) {
            check_served(bf16.dir, names[l], QR_COMPUTE_AUTO);
            check_served(bf16.dir, names[l], QR_COMPUTE_F32);
            check_served(f32.dir, names[l], QR_COMPUTE_F32);
            check_served(f32.dir, names[l], QR_COMPUTE_BF16); /* everything is rounded, the embedding as well */
        }
        temp_model_remove(&bf16);
        temp_model_remove(&f32);
    }
}

static void check_not_trained(const struct qr_model_config *c, const char *says)
{
    struct qr_err err = {0};
    struct temp_model m = temp_model_make(c, QR_F32);
    struct trainer tr = {.be = open_backend("ref", 1)};
    cr_assert_eq(qr_params_open(&tr.p, m.dir, tr.be, QR_F32, QR_F32, &err), 0, "%s", err.msg);
    cr_expect_eq(qr_tape_open(&tr.t, tr.p, &options, &err), QR_E_UNSUPPORTED);
    cr_expect(strstr(err.msg, says) != NULL, "%s", err.msg);
    qr_params_close(tr.p);
    qr_backend_close(tr.be);
    temp_model_remove(&m);
}

Test(tape, a_model_whose_norms_add_one_or_that_has_experts_is_not_trained)
{
    struct qr_model_config gemma = qr_model_config_small(QR_ARCH_GEMMA);
    struct qr_model_config mixtral = qr_model_config_small(QR_ARCH_MIXTRAL);
    check_not_trained(&mixtral, "MixtralForCausalLM, a mixture of experts");
    check_not_trained(&gemma, "GemmaForCausalLM, whose norms multiply by 1 + w");
    for (enum qr_arch arch = QR_ARCH_GEMMA2; arch <= QR_ARCH_GPT2; arch++) {
        const struct qr_model_config c = qr_model_config_small(arch);
        check_not_trained(&c, "is served, not trained");
    }
    const struct qr_model_config olmo2 = qr_model_config_small(QR_ARCH_OLMO2);
    check_not_trained(&olmo2, "Olmo2ForCausalLM, which has norms behind its halves");
    const struct qr_model_config gpt_oss = qr_model_config_small(QR_ARCH_GPT_OSS);
    check_not_trained(&gpt_oss, "GptOssForCausalLM, a mixture of experts");
}

/* ---- gradients of whole models ---- */

/* The sanitizers see in a few parameters what they would in all; only release judges every one. */
#if defined(__SANITIZE_ADDRESS__)
enum { PARAM_STEP = 3, N_TRIES = 1 };
#else
enum { PARAM_STEP = 1, N_TRIES = 2 };
#endif

/* Five-point differences of the summed loss in double: see tests/kernels/test_backward.c. */
static double difference(struct trainer *r, const struct qr_train_batch *b, int64_t i)
{
    static const double at[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1}, h = 1e-3;
    double *x = (double *)r->p->value + i, old = *x, sum = 0;
    for (int k = 0; k < 4; k++) {
        *x = old + at[k] * h;
        qr_params_pack(r->p);
        sum += weight[k] * qr_tape_evaluate(r->t, b, NULL);
    }
    *x = old;
    qr_params_pack(r->p);
    return sum / (12 * h);
}

Test(tape, gradients_of_whole_models_are_what_finite_differences_say)
{
    struct qr_backend be = {.name = "f64", .k = wide, .b = wide_back, .mem = &qr_host_mem, .n_threads = 1};
    struct qr_rng rng = {.seed = SEED};
    printf("seed %d\n", SEED);
    for (int which = 0; which < N_CONFIGS; which++) {
        struct qr_model_config c = config_of(which);
        struct temp_model m = temp_model_make(&c, QR_F32);
        struct trainer r = trainer_new(&be, m.dir, QR_F64, QR_F64, options);
        struct qr_train_batch b = random_batch(c.n_vocab, 3, SEED);
        qr_tape_loss(r.t, &b, 1, NULL);
        walk_back(r.t);
        double largest = 0;
        for (int64_t i = 0; i < r.p->n; i++)
            largest = fmax(largest, fabs(((double *)r.p->grad)[i]));
        for (int32_t k = which % PARAM_STEP; k < r.p->n_params; k += PARAM_STEP)
            for (int try = 0; try < N_TRIES; try++) {
                const struct qr_param *t = &r.p->param[k];
                const int64_t i = t->first + (int64_t)qr_rng_below(&rng, (uint32_t)t->n);
                const double want = ((double *)r.p->grad)[i], found = difference(&r, &b, i);
                cr_assert(fabs(found - want) <= 1e-7 * largest, "%s of model %d, element %ld: the gradient says %.12g, differences %.12g", t->name,
                          which, (long)(i - t->first), want, found);
            }
        qr_train_batch_release(&b);
        trainer_drop(&r);
        temp_model_remove(&m);
    }
}

/* ---- what must not show ---- */

/* A training run: `n_steps` steps over batches of 4 documents, in micro-batches of `per_pass` documents. Values, half and the losses' sum come out. */
struct outcome {
    float *value, *grad;
    uint16_t *half;
    int64_t n;
    double loss;
    size_t memory;
};

static struct outcome train(const char *dir, const char *isa, int32_t n_threads, enum qr_dtype compute, enum qr_recompute recompute, int32_t per_pass)
{
    struct qr_backend *be = open_backend(isa, n_threads);
    struct qr_tape_options o = options;
    o.recompute = recompute;
    o.n_micro = 4 / per_pass;
    struct trainer r = trainer_new(be, dir, QR_F32, compute, o);
    struct qr_optim optim;
    const struct qr_optim_config oc = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = 0.01, .clip = 1, .seed = 5};
    struct qr_err err = {0};
    struct outcome out = {.n = r.p->n, .memory = qr_tape_memory(r.t)->total};
    double norm;
    out.value = qr_alloc((size_t)out.n, 4), out.grad = qr_alloc((size_t)out.n, 4), out.half = qr_alloc((size_t)out.n, 2);
    qr_optim_init(&optim, r.p, &oc);
    for (uint64_t step = 0; step < 2; step++) {
        struct qr_train_batch whole = random_batch(r.p->config.n_vocab, 4, SEED + step), part;
        qr_train_batch_init(&part, 256, 8);
        for (int32_t s = 0; s < 4; s += per_pass) {
            qr_train_batch_clear(&part);
            for (int32_t d = s; d < s + per_pass; d++) {
                const int32_t row = whole.b.row_start[d], n = whole.b.row_start[d + 1] - row;
                int32_t ids[64];
                memcpy(ids, whole.b.ids + row, (size_t)n * sizeof *ids);
                ids[n] = whole.target[row + n - 1]; /* every row has a target */
                cr_assert(qr_train_batch_add(&part, ids, n + 1, NULL));
            }
            qr_tape_micro(r.t, s / per_pass);
            out.loss += qr_tape_loss(r.t, &part, 1.0f / (float)whole.b.n_logits, NULL);
            walk_back(r.t);
        }
        memcpy(out.grad, r.p->grad, (size_t)out.n * 4);
        cr_assert_eq(qr_optim_step(&optim, 1e-3, &norm, &err), 0, "%s", err.msg);
        qr_train_batch_release(&whole);
        qr_train_batch_release(&part);
    }
    cr_assert_leq(qr_tape_peak(r.t).total, qr_tape_memory(r.t)->total);
    memcpy(out.value, r.p->value, (size_t)out.n * 4);
    if (r.p->half)
        memcpy(out.half, r.p->half, (size_t)out.n * 2);
    qr_optim_release(&optim);
    trainer_drop(&r);
    qr_backend_close(be);
    return out;
}

static void outcome_drop(struct outcome *o)
{
    qr_free(o->value), qr_free(o->grad), qr_free(o->half);
}

/* The losses of documents are added in another order when micro-batches are smaller; all else must be the same bits. */
static void assert_same(const struct outcome *a, const struct outcome *b, bool same_losses, const char *what, const char *isa)
{
    cr_assert(memcmp(a->grad, b->grad, (size_t)a->n * 4) == 0, "%s, %s: gradients", isa, what);
    cr_assert(memcmp(a->value, b->value, (size_t)a->n * 4) == 0, "%s, %s: values", isa, what);
    cr_assert(memcmp(a->half, b->half, (size_t)a->n * 2) == 0, "%s, %s: bf16 weights", isa, what);
    cr_assert(same_losses ? a->loss == b->loss : fabs(a->loss - b->loss) <= 1e-12 * a->loss, "%s, %s: loss %.17g and %.17g", isa, what, a->loss, b->loss);
}

Test(tape, training_twice_or_with_other_threads_or_recomputing_gives_the_same_bytes)
{
    const char *names[8];
    int32_t n_levels = levels(names);
    printf("seed %d\n", SEED);
    for (int which = 0; which < N_CONFIGS; which += 3)
        for (int32_t l = 0; l < n_levels; l++) {
            struct qr_model_config c = config_of(which);
            struct temp_model m = temp_model_make(&c, QR_BF16);
            const enum qr_dtype type = which ? QR_BF16 : QR_F32;
            struct outcome first = train(m.dir, names[l], 1, type, QR_RECOMPUTE_NONE, 4), again = train(m.dir, names[l], 1, type, QR_RECOMPUTE_NONE, 4),
                           threads = train(m.dir, names[l], 3, type, QR_RECOMPUTE_NONE, 4),
                           selective = train(m.dir, names[l], 1, type, QR_RECOMPUTE_SELECTIVE, 4),
                           full = train(m.dir, names[l], 2, type, QR_RECOMPUTE_FULL, 4);
            assert_same(&first, &again, true, "again", names[l]);
            assert_same(&first, &threads, true, "3 threads", names[l]);
            assert_same(&first, &selective, true, "norms and gates made again", names[l]);
            assert_same(&first, &full, true, "layers made again", names[l]);
            cr_assert(full.memory < selective.memory && selective.memory < first.memory, "%zu, %zu, %zu bytes", full.memory, selective.memory, first.memory);
            outcome_drop(&first), outcome_drop(&again), outcome_drop(&threads), outcome_drop(&selective), outcome_drop(&full);
            temp_model_remove(&m);
        }
}

Test(tape, four_micro_batches_give_the_bits_of_one_batch_of_four)
{
    const char *names[8];
    int32_t n_levels = levels(names);
    struct qr_model_config c = config_of(2);
    printf("seed %d\n", SEED);
    for (int tied = 0; tied < 2; tied++) {
        c.tied_head = tied;
        struct temp_model m = temp_model_make(&c, QR_F32);
        for (int32_t l = 0; l < n_levels; l++) {
            struct outcome whole = train(m.dir, names[l], 2, QR_F32, QR_RECOMPUTE_NONE, 4), halves = train(m.dir, names[l], 2, QR_F32, QR_RECOMPUTE_FULL, 2),
                           each = train(m.dir, names[l], 2, QR_F32, QR_RECOMPUTE_NONE, 1);
            assert_same(&whole, &halves, false, tied ? "tied, two by two" : "two by two", names[l]);
            assert_same(&whole, &each, false, tied ? "tied, one by one" : "one by one", names[l]);
            outcome_drop(&whole), outcome_drop(&halves), outcome_drop(&each);
        }
        temp_model_remove(&m);
    }
}

Test(tape, gradients_wait_for_the_last_micro_batch_where_that_is_no_more_than_the_embeddings_own_or_64_MiB)
{
    struct qr_model_config c = config_of(2);
    struct qr_backend *be = open_backend(NULL, 1);
    struct qr_err err = {0};
    struct qr_tape_memory none, most, over;
    struct qr_tape_options o = {.n_tokens_max = 256, .n_seqs_max = 8};
    struct qr_params *p;
    const int64_t rows = (int64_t)(QR_TAPE_LATER_BYTES / sizeof(float)) / c.n_embd;
    for (int tied = 0; tied < 2; tied++) {
        c.tied_head = tied;
        qr_params_plan(&p, &c, be, QR_F32, QR_F32);
        cr_assert_eq(qr_tape_plan(&none, p, &o, &err), 0, "%s", err.msg);
        o.n_micro = (int32_t)(rows / 256) + 1;
        cr_assert_eq(qr_tape_plan(&most, p, &o, &err), 0, "%s", err.msg);
        o.n_micro++;
        cr_assert_eq(qr_tape_plan(&over, p, &o, &err), 0, "%s", err.msg);
        cr_assert(none.later == 0 && over.later == 0);
        cr_assert_eq(most.later, tied ? qr_align_up((size_t)(rows / 256 * 256) * ((size_t)c.n_embd + 1) * 4, 64) : 0);
        cr_assert_eq(most.total - none.total, most.later);
        o.n_micro = 0;
        qr_params_close(p);
    }
    qr_backend_close(be);
}

/* ---- documents and targets ---- */

Test(tape, a_document_does_not_see_its_neighbours_and_targets_that_do_not_count_cost_nothing)
{
    struct qr_model_config c = config_of(0);
    struct temp_model m = temp_model_make(&c, QR_BF16);
    struct qr_backend *be = open_backend(NULL, 2);
    struct trainer r = trainer_new(be, m.dir, QR_F32, QR_BF16, options);
    struct qr_train_batch both, alone;
    struct qr_rng rng = {.seed = SEED};
    int32_t *a = random_ids(&rng, 21, c.n_vocab), *b = random_ids(&rng, 40, c.n_vocab);
    bool counts[40] = {false};
    double losses[60], only[39];
    counts[7] = counts[39] = true;
    qr_train_batch_init(&both, 59, 2);
    qr_train_batch_init(&alone, 59, 1);
    cr_assert(qr_train_batch_add(&both, a, 21, NULL) && qr_train_batch_add(&both, b, 40, counts));
    cr_assert_not(qr_train_batch_add(&both, a, 2, NULL), "three documents where two have room");
    cr_assert(qr_train_batch_add(&alone, b, 40, NULL));
    cr_assert_not(qr_train_batch_add(&alone, a, 21, NULL), "39 + 20 rows where 59 have room, but one document");
    cr_assert_eq(both.b.n_logits, 22);
    qr_tape_evaluate(r.t, &both, losses);
    qr_tape_evaluate(r.t, &alone, only);
    cr_assert_eq(losses[20], only[6]);
    cr_assert_eq(losses[21], only[38]);
    qr_free(a), qr_free(b);
    qr_train_batch_release(&both);
    qr_train_batch_release(&alone);
    trainer_drop(&r);
    qr_backend_close(be);
    temp_model_remove(&m);
}

/* ---- versions ---- */

Test(tape, a_saved_tensor_that_was_changed_in_place_is_an_error_naming_verb_tensor_and_culprit)
{
    struct qr_model_config c = config_of(0);
    struct temp_model m = temp_model_make(&c, QR_F32);
    struct qr_backend *be = open_backend(NULL, 1);
    struct qr_tape_options o = options;
    o.logits = true;
    struct trainer r = trainer_new(be, m.dir, QR_F32, QR_F32, o);
    struct qr_train_batch b = random_batch(c.n_vocab, 1, SEED);
    struct qr_tensor grad;
    struct qr_err err = {0};
    qr_tape_logits(r.t, &b.b, &grad); /* fills the rotary table */
    qr_tape_begin(r.t, &b.b);
    struct qr_exec *x = qr_tape_exec(r.t);
    const struct qr_layer_weights *w = &r.p->weights.layer[0];
    struct qr_tensor h = qr_tape_tensor(r.t, b.b.n_tokens, c.n_embd);
    memset(h.data, 0, (size_t)qr_tensor_count(&h) * sizeof(float));
    struct qr_tensor normed = x->ops->norm(x, &h, &w->norm_attn, c.norm_eps), heads = qr_tensor_heads(&h, c.n_heads, c.head_dim);
    cr_assert_eq(normed.shape[1], c.n_embd);
    x->ops->rope(x, &heads, false);
    cr_assert_eq(qr_tape_backward(r.t, &err), QR_E_INTERNAL);
    cr_assert_str_eq(err.msg, "backward of norm (node 0): its saved tensor x was changed in place by rope (node 1): version 0 was saved, 1 found");
    qr_train_batch_release(&b);
    trainer_drop(&r);
    qr_backend_close(be);
    temp_model_remove(&m);
}
