/* A tuned model: measuring fills the table with shapes that are its own, and no table, measured or random, changes a logit. */
#include "model/tune.h"

#include "tests/kernels/random_tunables.h"
#include "tests/model/rig.h"

#define N_TEXT 70
#define SEED 20261123

/* The shapes of the model's launches, one bucket after the other; returns their number. */
static int32_t list_keys(struct qr_tune_key out[64], const struct qr_model *m)
{
    const struct qr_model_config *c = qr_model_config(m);
    const int32_t heads = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const int32_t shape[][2] = {{c->n_embd, heads + 2 * kv}, {heads, c->n_embd}, {c->n_embd, 2 * c->n_ffn}, {c->n_ffn, c->n_embd}, {c->n_embd, c->n_vocab}};
    int32_t n = 0;
    for (int32_t b = 0; b < QR_TUNE_BUCKETS; b++) {
        for (int i = 0; i < QR_COUNT(shape); i++)
            out[n++] = (struct qr_tune_key){.op = QR_TUNE_LINEAR, .type = (uint8_t)qr_model_weight_dtype(m), .bucket = (uint8_t)b, .a = shape[i][0],
                                            .b = shape[i][1]};
        for (int32_t k = 1; k <= 3; k += 2)
            out[n++] = (struct qr_tune_key){.op = QR_TUNE_CHAIN, .type = (uint8_t)qr_model_weight_dtype(m), .bucket = (uint8_t)b, .a = shape[k / 3][0],
                                            .b = shape[k / 3][1], .c = k};
        out[n++] = (struct qr_tune_key){.op = QR_TUNE_ATTENTION, .type = (uint8_t)qr_model_kv_dtype(m), .bucket = (uint8_t)b, .a = c->n_heads,
                                        .b = c->n_kv_heads, .c = c->head_dim};
    }
    return n;
}

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

Test(tune, random_tunables_for_every_launch_of_a_model_change_no_logit)
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
            struct qr_tune_key key[64];
            const int32_t n = list_keys(key, r.model);
            float *want = logits_of(&r, ids, N_TEXT);
            for (int k = 0; k < 3; k++) {
                for (int32_t j = 0; j < n; j++) {
                    const struct qr_tunables v = random_tunables(&rng);
                    cr_assert(qr_tune_set(r.be->tune, key[j], &v));
                }
                expect_same(&r, want, ids, k == 0 ? N_TEXT : k == 1 ? 9 : 1, "a random table");
            }
            qr_free(want);
            rig_close(&r);
        }
    qr_free(ids);
    temp_model_remove(&t);
}

struct found {
    const struct qr_model *model;
    int32_t n, n_known;
};

static void take(void *user, const struct qr_model_tuned *r)
{
    static const struct qr_tunables own;
    struct found *f = user;
    struct qr_tune_key key[64];
    const int32_t n = list_keys(key, f->model);
    f->n++;
    for (int32_t i = 0; i < n; i++)
        f->n_known += qr_tune_same_key(&key[i], &r->key);
    cr_expect_eq(qr_tune_bucket(r->n_rows), r->key.bucket);
    cr_expect(r->own_s > 0 && r->best_s > 0 && r->own_s < 1);
    if (memcmp(&r->best, &own, sizeof own) == 0)
        cr_expect_eq(r->own_s, r->best_s);
    else
        cr_expect_gt(r->own_s, r->best_s, "what is kept is faster");
}

/* Six shapes of a step of one row and six of 32: q k v, out, gate and up, down, head, attention. */
Test(tune, measuring_a_model_finds_its_shapes_and_changes_no_logit)
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
        struct found f = {.model = r.model};
        const struct qr_model_tune_options o = {.rows_max = 64, .buckets = 1 | 8, .each = take, .user = &f};
        qr_model_tune(r.model, r.be, &o);
        cr_expect_eq(f.n, l == 0 ? 0 : 12, "%s: %d shapes", names[l], f.n);
        cr_expect_eq(f.n_known, f.n);
        cr_expect_eq(qr_tune_count(r.be->tune), f.n);
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
