/* A tuned model: measuring fills the table with kinds of launches that are the model's, and no table, measured or random, changes a logit. */
#include "model/tune.h"

#include "tests/kernels/random_cuts.h"
#include "tests/model/rig.h"

#define N_TEXT 70
#define SEED 20261123

static float *logits_of(struct rig *r, const int32_t *ids, int32_t chunk)
{
    struct rig_seq s = rig_seq_new(r, 0, NULL);
    float *out = rig_prompt(r, &s, ids, N_TEXT, chunk);
    rig_seq_free(&s);
    return out;
}

static void expect_same(struct rig *r, const float *want, const int32_t *ids, int32_t chunk, const char *what)
{
    float *got = logits_of(r, ids, chunk);
    cr_assert_eq(memcmp(want, got, (size_t)N_TEXT * (size_t)rig_vocab(r) * sizeof *got), 0, "%s, %s weights, chunks of %d: %s changes logits",
                 r->be->k->name, qr_dtype_name(qr_model_weight_dtype(r->model)), chunk, what);
    qr_free(got);
}

Test(tune, random_cuts_of_every_launch_of_a_model_change_no_logit)
{
    static const enum qr_quantize formats[] = {QR_QUANTIZE_NONE, QR_QUANTIZE_INT8, QR_QUANTIZE_INT4, QR_QUANTIZE_W8A16};
    struct qr_rng rng = {.seed = SEED};
    const char *names[8];
    int32_t n_levels = levels_above_ref(names);
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3);
    struct temp_model t = temp_model_make(&c, QR_BF16);
    int32_t *ids = random_ids(&rng, N_TEXT, c.n_vocab);
    printf("seed %d\n", SEED);
    for (int32_t l = 1; l < n_levels; l++)
        for (int i = 0; i < QR_COUNT(formats); i++) {
            struct rig r;
            rig_open(&r, t.dir, (struct rig_options){.isa = names[l], .n_threads = 3, .quantize = formats[i]});
            float *want = logits_of(&r, ids, N_TEXT);
            for (int k = 0; k < 3; k++) {
                random_cuts(r.be->tune, &rng);
                expect_same(&r, want, ids, k == 0 ? N_TEXT : k == 1 ? 9 : 1, "a random table");
            }
            qr_free(want);
            rig_close(&r);
        }
    qr_free(ids);
    temp_model_remove(&t);
}

struct found {
    const struct qr_backend *be;
    enum qr_dtype type, kv;
    int32_t n, n_faster;
};

static void take(void *user, const struct qr_model_tuned *r)
{
    struct found *f = user;
    f->n++;
    f->n_faster += r->items > 0;
    cr_expect_eq(r->kind.type, r->kind.op == QR_TUNE_ATTENTION ? f->kv : f->type);
    cr_expect_eq(qr_tune_bucket(r->n_rows), r->kind.bucket);
    cr_expect_eq(qr_tune_find(f->be->tune, r->kind), r->items);
    cr_expect(r->own_s > 0 && r->best_s > 0 && r->own_s < 1);
    if (r->items == 0)
        cr_expect_eq(r->own_s, r->best_s);
    else
        cr_expect_gt(r->own_s, r->best_s, "what is kept is faster");
}

/* Two kinds of a step of one row and of one of four: attention, and products with small matrices. */
Test(tune, measuring_a_model_finds_its_kinds_and_changes_no_logit)
{
    struct qr_rng rng = {.seed = SEED + 1};
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp_model t = temp_model_make(&c, QR_BF16);
    int32_t *ids = random_ids(&rng, N_TEXT, c.n_vocab);
    for (int32_t l = 0; l < n_levels; l += n_levels - 1) { /* ref has no choice, the best level has */
        struct rig r;
        rig_open(&r, t.dir, (struct rig_options){.isa = names[l], .n_threads = 2});
        float *want = logits_of(&r, ids, N_TEXT);
        struct found f = {.be = r.be, .type = qr_model_weight_dtype(r.model), .kv = qr_model_kv_dtype(r.model)};
        qr_model_tune(r.model, r.be, 4, take, &f);
        cr_expect_eq(f.n, l == 0 ? 0 : 4, "%s: %d kinds", names[l], f.n);
        cr_expect_eq(qr_tune_count(r.be->tune), f.n_faster);
        expect_same(&r, want, ids, N_TEXT, "what was measured");
        expect_same(&r, want, ids, 1, "what was measured");
        qr_free(want);
        rig_close(&r);
        if (n_levels == 1)
            break;
    }
    qr_free(ids);
    temp_model_remove(&t);
}
