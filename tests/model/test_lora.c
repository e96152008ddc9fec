/* Adapters beside a model: a row with one gets the same bits alone and among others, and rows without one get the model's own. */
#include "tests/model/rig.h"

#include "model/lora.h"
#include "tests/lora_make.h"

#define N_TEXT 60
#define SEED 1106
#define SLOTS 3
#define RANK_MAX 12

/* The sanitizers look for bad accesses, which half of the combinations show as well as all; they are ten times slower. */
#if defined(__SANITIZE_ADDRESS__)
#define STEP 2
#else
#define STEP 1
#endif

/* The parts of names are such that every family has them. */
static const struct lora_make makes[SLOTS] = {
    {.rank = 4, .alpha = 8, .seed = 1},
    {.rank = 12, .alpha = 6, .seed = 2, .only = "_proj", .dtype = QR_BF16},
    {.rank = 3, .alpha = 3, .seed = 3, .only = "attn"},
};

struct adapted {
    struct temp_model t;
    struct rig r;
    struct qr_lora *lora;
};

static int fill(struct qr_lora *l, int32_t slot, const char *dir, struct qr_err *err)
{
    struct qr_lora_file *f;
    int rc = qr_lora_file_open(&f, dir, NULL, qr_lora_file_max(l), err);
    if (rc == 0) {
        rc = qr_lora_fill(l, slot, f, err);
        qr_lora_file_close(f);
    }
    return rc;
}

static void remove_adapter(const char *dir)
{
    char path[200];
    snprintf(path, sizeof path, "%s/" QR_LORA_CONFIG, dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/" QR_LORA_WEIGHTS, dir);
    unlink(path);
    rmdir(dir);
}

static void adapted_open(struct adapted *a, const struct qr_model_config *c, struct rig_options o)
{
    struct qr_err err = {0};
    char dir[128];
    a->t = temp_model_make(c, QR_F32);
    o.rows_max = 256;
    rig_open(&a->r, a->t.dir, o);
    cr_assert_eq(qr_lora_new(&a->lora, a->r.model, a->r.be, SLOTS, RANK_MAX, 256, &err), 0, "%s", err.msg);
    a->r.exec.lora = a->lora;
    snprintf(dir, sizeof dir, "%s/adapter", a->t.dir);
    for (int32_t s = 0; s < SLOTS; s++) {
        lora_make(dir, c, &makes[s]);
        cr_assert_eq(fill(a->lora, s, dir, &err), 0, "%s", err.msg);
    }
    remove_adapter(dir);
}

static void adapted_close(struct adapted *a)
{
    cr_assert_leq(a->r.act.peak, qr_model_unfused_act_bytes(a->r.model, 256, 256)); /* steps with and without adapters of up to 256 rows, as planned */
    qr_lora_free(a->lora);
    rig_close(&a->r);
    temp_model_remove(&a->t);
}

static void expect_same(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            cr_assert_fail("%s: number %zu is %.9g, alone it is %.9g", what, i, (double)b[i], (double)a[i]);
}

/* Every position's logits with an adapter, in chunks. */
static float *run_alone(struct rig *r, const int32_t *ids, int32_t adapter, int32_t chunk)
{
    const size_t v = (size_t)rig_vocab(r);
    struct rig_seq s = rig_seq_new(r, 0, NULL);
    s.adapter = adapter;
    float *all = qr_alloc(N_TEXT * v, sizeof *all);
    for (int32_t at = 0; at < N_TEXT; at += chunk) {
        const int32_t n = N_TEXT - at < chunk ? N_TEXT - at : chunk;
        float *part = rig_step(r, &(struct rig_item){&s, ids + at, n, RIG_ALL}, 1);
        memcpy(all + (size_t)at * v, part, (size_t)n * v * sizeof *all);
        qr_free(part);
    }
    rig_seq_free(&s);
    return all;
}

/* Six sequences, two without an adapter, in steps of all of them with chunks of their own. */
static void check_batch(struct rig *r, const int32_t *ids, float *const alone[SLOTS + 1], const char *what)
{
    enum { N = 6 };
    static const int32_t adapter[N] = {2, 0, 1, 3, 0, 1}, chunk[N] = {7, 1, 30, 1, 13, 1};
    const size_t v = (size_t)rig_vocab(r);
    struct rig_seq s[N];
    for (int32_t i = 0; i < N; i++) {
        s[i] = rig_seq_new(r, i * 8, NULL);
        s[i].adapter = adapter[i];
    }
    for (int32_t left = 1; left > 0;) {
        struct rig_item item[N];
        int32_t n = 0, first[N];
        left = 0;
        for (int32_t i = 0; i < N; i++) {
            const int32_t rest = N_TEXT - s[i].n_done, m = rest < chunk[i] ? rest : chunk[i];
            first[n] = s[i].n_done;
            if (m > 0)
                item[n++] = (struct rig_item){&s[i], ids + s[i].n_done, m, RIG_ALL};
            left += rest - m;
        }
        float *got = rig_step(r, item, n), *at = got;
        for (int32_t i = 0; i < n; at += (size_t)item[i++].n * v)
            expect_same(alone[item[i].seq->adapter] + (size_t)first[i] * v, at, (size_t)item[i].n * v, what);
        qr_free(got);
    }
    for (int32_t i = 0; i < N; i++)
        rig_seq_free(&s[i]);
}

static void check(const struct qr_model_config *c, struct rig_options o, const char *what)
{
    struct adapted a;
    struct qr_rng rng = {.seed = SEED};
    int32_t *ids = random_ids(&rng, N_TEXT, c->n_vocab);
    float *alone[SLOTS + 1];
    adapted_open(&a, c, o);
    const size_t n = N_TEXT * (size_t)c->n_vocab;
    for (int32_t i = 0; i <= SLOTS; i++)
        alone[i] = run_alone(&a.r, ids, i, N_TEXT);
    for (int32_t i = 1; i <= SLOTS; i++) {
        cr_expect(memcmp(alone[i], alone[0], n * sizeof(float)) != 0, "%s: adapter %d changes nothing", what, i);
        float *cut = run_alone(&a.r, ids, i, 11);
        expect_same(alone[i], cut, n, "chunks of 11");
        qr_free(cut);
    }
    check_batch(&a.r, ids, alone, what);
    for (int32_t i = 0; i <= SLOTS; i++)
        qr_free(alone[i]);
    qr_free(ids);
    adapted_close(&a);
}

/* What families add to a layer: norms of what is added, LayerNorms, no gates, experts beside attention, matrices that are one in the file. */
static void check_families(const char *isa)
{
    static const enum qr_arch arch[] = {QR_ARCH_PHI3, QR_ARCH_GEMMA2, QR_ARCH_GEMMA3, QR_ARCH_STABLELM, QR_ARCH_GPT2, QR_ARCH_QWEN2_MOE,
                                        QR_ARCH_OLMO3, QR_ARCH_SEED_OSS};
    for (int i = 0; i < QR_COUNT(arch); i += STEP) {
        const struct qr_model_config c = qr_model_config_small(arch[i]);
        check(&c, (struct rig_options){.isa = isa, .compute = i % 2 ? QR_COMPUTE_F32 : QR_COMPUTE_BF16}, c.arch_name);
    }
}

Test(lora, adapters_in_one_batch_give_the_bits_that_each_gives_alone_and_other_rows_the_models)
{
    const char *names[8];
    struct qr_model_config odd = qr_model_config_small(QR_ARCH_LLAMA);
    const struct qr_model_config qwen = qr_model_config_small(QR_ARCH_QWEN3);
    odd.qkv_bias = odd.out_bias = odd.mlp_bias = odd.tied_head = true;
    odd.n_embd = 203, odd.n_heads = 3, odd.n_kv_heads = 1, odd.head_dim = 72, odd.n_ffn = 519, odd.n_vocab = 301;
    printf("seed %d\n", SEED);
    for (int32_t i = 0, n = levels(names); i < n; i++) {
        const struct rig_options o[] = {{.compute = QR_COMPUTE_F32}, {.compute = QR_COMPUTE_BF16}, {.quantize = QR_QUANTIZE_INT8}};
        for (int32_t k = i % STEP; k < QR_COUNT(o); k += STEP) {
            struct rig_options one = o[k];
            one.isa = names[i];
            one.n_threads = 1 + i % 2;
            check(k == 0 ? &odd : &qwen, one, names[i]);
        }
        if (i + 1 == n)
            check_families(names[i]);
    }
}

/* A slot that held another adapter holds nothing of it. */
Test(lora, a_slot_that_is_filled_again_is_what_a_fresh_one_is)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct adapted a;
    struct qr_err err = {0};
    struct qr_rng rng = {.seed = SEED};
    int32_t *ids = random_ids(&rng, N_TEXT, c.n_vocab);
    char dir[128];
    adapted_open(&a, &c, (struct rig_options){.n_threads = 1});
    float *third = run_alone(&a.r, ids, 3, N_TEXT);
    snprintf(dir, sizeof dir, "%s/adapter", a.t.dir);
    lora_make(dir, &c, &makes[2]);
    cr_assert_eq(fill(a.lora, 0, dir, &err), 0, "%s", err.msg);
    float *first = run_alone(&a.r, ids, 1, N_TEXT);
    expect_same(third, first, N_TEXT * (size_t)c.n_vocab, "filled again");
    remove_adapter(dir);
    qr_free(third), qr_free(first), qr_free(ids);
    adapted_close(&a);
}

static void expect_refused(struct qr_lora *l, const char *dir, const struct qr_model_config *c, struct lora_make m, enum qr_code code, const char *why)
{
    struct qr_err err = {0};
    lora_make(dir, c, &m);
    cr_expect_eq(fill(l, 0, dir, &err), (int)code, "%s", err.msg);
    cr_expect(strstr(err.msg, why), "'%s' does not say '%s'", err.msg, why);
}

Test(lora, adapters_that_do_not_fit_are_refused_with_tensor_found_and_expected)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct qr_model_config wide = c, deep = c;
    struct adapted a;
    char dir[128];
    wide.n_ffn += 16;
    deep.n_layers++;
    adapted_open(&a, &c, (struct rig_options){.n_threads = 1});
    snprintf(dir, sizeof dir, "%s/adapter", a.t.dir);
    expect_refused(a.lora, dir, &wide, makes[0], QR_E_DAMAGED, "mlp.gate_proj.lora_B.weight is [");
    expect_refused(a.lora, dir, &deep, makes[0], QR_E_DAMAGED, "model.layers.2.self_attn.q_proj.lora_A.weight belongs to no matrix of the model");
    expect_refused(a.lora, dir, &c, (struct lora_make){.rank = 13, .alpha = 1}, QR_E_TOO_LARGE, "has rank 13, expected at most 12 (--lora-rank-max)");
    expect_refused(a.lora, dir, &c, (struct lora_make){.rank = 4, .alpha = 1e300}, QR_E_DAMAGED, "expected a finite number");
    expect_refused(a.lora, dir, &c, (struct lora_make){.rank = 4, .alpha = 1, .only = "no such"}, QR_E_DAMAGED, "holds no tensor");
    expect_refused(a.lora, dir, &c, (struct lora_make){.rank = 4, .alpha = 1, .settings = ", \"use_dora\": true"}, QR_E_UNSUPPORTED, "use_dora is set");
    expect_refused(a.lora, dir, &c, (struct lora_make){.rank = 4, .alpha = 1, .settings = ", \"fan_in_fan_out\": true"}, QR_E_UNSUPPORTED,
                   "fan_in_fan_out is set, expected false for this model");
    remove_adapter(dir);
    adapted_close(&a);
}

/* rsLoRA's alpha / sqrt(r), and an alpha of one module's own, are scales that another configuration says plainly. */
Test(lora, rank_stabilized_and_per_module_alphas_are_the_scales_that_they_stand_for)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct adapted a;
    struct qr_err err = {0};
    struct qr_rng rng = {.seed = SEED};
    int32_t *ids = random_ids(&rng, N_TEXT, c.n_vocab);
    const struct lora_make same[3] = {{.rank = 4, .alpha = 8, .seed = 5, .only = "up_proj"},
                                      {.rank = 4, .alpha = 4, .seed = 5, .only = "up_proj", .settings = ", \"use_rslora\": true"},
                                      {.rank = 4, .alpha = 1, .seed = 5, .only = "up_proj",
                                       .settings = ", \"alpha_pattern\": {\"q_proj\": 3, \"mlp.up.proj\": 8}"}};
    float *got[3];
    char dir[128];
    adapted_open(&a, &c, (struct rig_options){.n_threads = 1});
    snprintf(dir, sizeof dir, "%s/adapter", a.t.dir);
    for (int i = 0; i < 3; i++) {
        lora_make(dir, &c, &same[i]);
        cr_assert_eq(fill(a.lora, 0, dir, &err), 0, "%s", err.msg);
        got[i] = run_alone(&a.r, ids, 1, N_TEXT);
        expect_same(got[0], got[i], N_TEXT * (size_t)c.n_vocab, "scale");
    }
    for (int i = 0; i < 3; i++)
        qr_free(got[i]);
    remove_adapter(dir);
    qr_free(ids);
    adapted_close(&a);
}
