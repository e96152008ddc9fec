/* Tiny random models of every family against logits that transformers computed in double (tools/golden/families.py): another implementation's reading of the
 * configuration, of the tensors and of what is to be done with them.
 *
 * Tolerance: f32 sums of up to 96 products and three layers of them: the worst seen is 2.2e-6 for logits of size 1 to 5. The golden's rotary angles
 * are f32 as well. */
#include "tests/model/rig.h"

#include "loader/write/safetensors_write.h"

#include "tests/model/golden_families.h"
#include "tests/model/golden_values.h"

#define TOLERANCE 1e-5

static void put_values(struct qr_st_out *o, const char *name, int64_t n, double norms_around)
{
    const bool norm = strstr(name, "norm") != NULL || strstr(name, ".ln_") != NULL;
    struct qr_err err = {0};
    float *v = qr_alloc((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((norm ? norms_around : 0.0) + (golden_unit(golden_hash(name) + (uint64_t)i) - 0.5) * (norm ? 0.5 : 0.4));
    cr_assert_eq(qr_st_out_put(o, v, (size_t)n * sizeof *v, &err), 0, "%s", err.msg);
    qr_free(v);
}

static void make(const char *dir, const struct golden_family *g)
{
    struct qr_st_entry e[GOLDEN_TENSORS_MAX];
    struct qr_st_out o;
    struct qr_err err = {0};
    char path[128];
    int32_t n = 0;
    for (; n < GOLDEN_TENSORS_MAX && g->tensor[n].name; n++)
        e[n] = (struct qr_st_entry){.name = g->tensor[n].name, .dtype = QR_F32, .n_dims = g->tensor[n].shape[1] ? 2 : 1,
                                    .shape = {g->tensor[n].shape[0], g->tensor[n].shape[1]}};
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(g->config, f) >= 0 && fclose(f) == 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_st_out_open(&o, path, e, n, NULL, 0, &err), 0, "%s", err.msg);
    for (int32_t i = 0; i < n; i++)
        put_values(&o, e[i].name, qr_st_entry_count(&e[i]), strstr(g->config, "\"Gemma") ? 0 : 1);
    cr_assert_eq(qr_st_out_close(&o, false, &err), 0, "%s", err.msg);
}

static void clean(const char *dir)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[128];
    for (int i = 0; i < QR_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    cr_assert_eq(rmdir(dir), 0);
}

/* A prompt's greedy continuation is there if each of its ids is the likeliest behind the prompt and those before it. */
static void expect_follows(const struct golden_family *g, const float *rows, int32_t v, const char *isa)
{
    for (int32_t i = 0; i < GOLDEN_GREEDY; i++) {
        const float *row = rows + (size_t)i * (size_t)v;
        int32_t best = 0;
        for (int32_t t = 1; t < v; t++)
            best = row[t] > row[best] ? t : best;
        cr_expect_eq(best, g->follows[i], "%s, %s: greedy id %d is %d, expected %d", isa, g->name, i, best, g->follows[i]);
    }
}

/* The largest distance of a shown logit or log-sum-exp. */
static double worst_difference(const struct golden_family *g, int32_t which, const char *dir, const char *isa)
{
    struct rig r;
    int32_t ids[GOLDEN_IDS + GOLDEN_GREEDY - 1];
    double worst = 0;
    rig_open(&r, dir, (struct rig_options){.isa = isa, .compute = QR_COMPUTE_F32});
    const int32_t v = rig_vocab(&r);
    for (int32_t i = 0; i < GOLDEN_IDS; i++)
        ids[i] = (1 + 37 * i * (which + 1) + i * i) % v;
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    memcpy(ids + GOLDEN_IDS, g->follows, sizeof ids - GOLDEN_IDS * sizeof *ids);
    float *all = rig_prompt(&r, &s, ids, QR_COUNT(ids), 13);
    expect_follows(g, all + (size_t)(GOLDEN_IDS - 1) * (size_t)v, v, isa);
    for (int k = 0; k < 2; k++) {
        const float *row = all + (size_t)(k == 0 ? GOLDEN_IDS / 2 : GOLDEN_IDS - 1) * (size_t)v;
        worst = fmax(worst, fabs(log_sum_exp(row, v) - g->row[k].lse));
        for (int32_t i = 0; i < GOLDEN_SHOWN; i++)
            worst = fmax(worst, fabs((double)row[i * GOLDEN_STEP] - g->row[k].logit[i]));
    }
    qr_free(all);
    rig_seq_free(&s);
    rig_close(&r);
    return worst;
}

Test(golden_families, logits_and_greedy_ids_of_every_family_equal_those_of_transformers_on_every_level)
{
    const char *names[8];
    const int32_t n_levels = levels(names);
    for (int32_t i = 0; i < QR_COUNT(golden); i++) {
        char dir[64];
        temp_dir_make(dir, "family");
        make(dir, &golden[i]);
        for (int32_t l = 0; l < n_levels; l++) {
            const double worst = worst_difference(&golden[i], i, dir, names[l]);
            printf("%-7s %s: worst difference %.2e\n", names[l], golden[i].name, worst);
            cr_expect_leq(worst, TOLERANCE, "%s, %s: %.3e", names[l], golden[i].name, worst);
        }
        clean(dir);
    }
}
