/* Random-weight models of each family (biases, q/k norms, llama3 rotary scaling) against goldens computed in float64.
 *
 * Tolerance: the golden's makers ran a float32 twin and report its largest difference to float64 (float32_max_abs_diff, up to 3e-5
 * where logits reach 15). A different order of additions gives another draw of the same error, so ten times that is allowed, plus
 * the golden's own rounding to 6 digits.
 */
#include "tests/model/rig.h"

static const char *const models[] = {"rand-qwen2", "rand-qwen3", "rand-llama31"};

struct totals {
    double worst;
    int32_t n_prompts, n_positions;
};

static void check_line(struct rig *r, const struct qr_json *v, const char *what, struct totals *t)
{
    int32_t n, n_greedy, n_arg, n_last, n_vocab = rig_vocab(r), last = 0;
    int32_t *ids = json_ids(qr_json_find(v, "prompt_ids"), &n), *greedy = json_ids(qr_json_find(v, "greedy_ids"), &n_greedy);
    int32_t *best = json_ids(qr_json_find(v, "argmax_every_position"), &n_arg);
    double *want = json_numbers(qr_json_find(v, "last_logits"), &n_last), worst = 0;
    double tolerance = 10 * qr_json_f64(qr_json_find(v, "float32_max_abs_diff")) + 1e-6;
    struct rig_seq s = rig_seq_new(r, 3, NULL);
    float *all = rig_prompt(r, &s, ids, n, n), *row = qr_alloc((size_t)n_vocab, sizeof *row);
    cr_assert_eq(n_last, n_vocab);
    cr_assert_eq(n_arg, n);
    memcpy(row, all + (size_t)(n - 1) * (size_t)n_vocab, (size_t)n_vocab * sizeof *row);
    for (int32_t i = 0; i < n_vocab; i++)
        worst = fmax(worst, fabs(want[i] - (double)row[i]));
    cr_expect_leq(worst, tolerance, "%s prompt %d: difference %.2e, allowed %.2e", what, t->n_prompts, worst, tolerance);
    for (int32_t i = 0; i < n; i++)
        cr_expect_eq(argmax(all + (size_t)i * (size_t)n_vocab, n_vocab), best[i], "%s prompt %d position %d", what, t->n_prompts, i);
    for (int32_t i = 0; i < n_greedy; i++) {
        last = argmax(row, n_vocab);
        cr_expect_eq(last, greedy[i], "%s prompt %d token %d", what, t->n_prompts, i);
        last = greedy[i];
        qr_free(row);
        row = rig_step(r, &(struct rig_item){&s, &last, 1, RIG_LAST}, 1);
    }
    t->worst = fmax(t->worst, worst);
    t->n_prompts++;
    t->n_positions += n + n_greedy;
    qr_free(row);
    qr_free(all);
    qr_free(want);
    qr_free(best);
    qr_free(ids);
    qr_free(greedy);
    rig_seq_free(&s);
}

Test(golden_rand, f32_logits_argmax_and_greedy_ids_equal_the_golden_on_every_level)
{
    const char *names[8];
    int32_t n_levels = levels(names);
    for (int m = 0; m < QR_COUNT(models); m++) {
        char dir[1024], path[1100], what[64];
        snprintf(dir, sizeof dir, "%s/models/%s", data_dir(), models[m]);
        snprintf(path, sizeof path, "%s/golden.jsonl", dir);
        for (int32_t i = 0; i < n_levels; i++) {
            struct rig r;
            struct golden g = {0};
            struct totals t = {0};
            snprintf(what, sizeof what, "%s %s", models[m], names[i]);
            rig_open(&r, dir, (struct rig_options){.isa = names[i], .n_threads = 2, .compute = QR_COMPUTE_F32});
            while (golden_next(&g, path))
                check_line(&r, g.v, what, &t);
            printf("%s: %d prompts, %d positions, worst difference %.2e\n", what, t.n_prompts, t.n_positions, t.worst);
            cr_expect_eq(t.n_prompts, 5);
            rig_close(&r);
        }
    }
}

Test(golden_rand, auto_computes_in_the_type_that_is_stored)
{
    static const enum qr_dtype want[] = {QR_F32, QR_BF16, QR_F32};
    for (int m = 0; m < QR_COUNT(models); m++) {
        char dir[1024];
        struct rig r;
        snprintf(dir, sizeof dir, "%s/models/%s", data_dir(), models[m]);
        rig_open(&r, dir, (struct rig_options){.isa = "ref"});
        cr_expect_eq(qr_model_weight_dtype(r.model), want[m], "%s", models[m]);
        cr_expect_eq(qr_model_kv_dtype(r.model), want[m], "%s", models[m]);
        rig_close(&r);
    }
}
