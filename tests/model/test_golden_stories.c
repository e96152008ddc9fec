/* stories260K, a trained model, against goldens computed by an independent implementation in float64.
 *
 * Tolerance: the issue asks for 1e-3 on logits. What f32 can do: the residual stream passes 5 layers of products of at most 172
 * terms; with unit roundoff 2^-24 and |logits| <= 20 the golden's own float32 twin differs by some 1e-5, so 1e-4 is asked of logits,
 * log-probabilities, log-sum-exp and hidden states here. Goldens are rounded to 6 or 7 digits, which is far below it.
 */
#include "tests/model/rig.h"

#define TOLERANCE 1e-4

static const char *golden_path(char *path, const char *name)
{
    snprintf(path, 1024, "%s/models/stories260K%s", data_dir(), name);
    return path;
}

/* The golden's twelve steps: the ten largest logits and the log-sum-exp. */
static double check_step(const struct qr_json *step, const float *logits, int32_t n_vocab)
{
    double worst = fabs(qr_json_f64(qr_json_find(step, "lse")) - log_sum_exp(logits, n_vocab));
    for (const struct qr_json *p = qr_json_first(qr_json_find(step, "top")); p; p = qr_json_after(p)) {
        const struct qr_json *id = qr_json_first(p);
        worst = fmax(worst, fabs(qr_json_f64(qr_json_after(id)) - (double)logits[(int32_t)qr_json_f64(id)]));
    }
    return worst;
}

static double check_prompt(const struct qr_json *want, const float *logits, const int32_t *ids, int32_t n, int32_t n_vocab)
{
    int32_t n_want;
    double worst = 0, *logprob = json_numbers(want, &n_want);
    cr_assert_eq(n_want, n);
    for (int32_t i = 1; i < n; i++) {
        const float *row = logits + (size_t)(i - 1) * (size_t)n_vocab;
        worst = fmax(worst, fabs(logprob[i] - ((double)row[ids[i]] - log_sum_exp(row, n_vocab))));
    }
    qr_free(logprob);
    return worst;
}

static void check_line(struct rig *r, const struct qr_json *v, double *worst)
{
    int32_t n, n_greedy, n_vocab = rig_vocab(r), last = 0;
    int32_t *ids = json_ids(qr_json_find(v, "prompt_ids"), &n), *greedy = json_ids(qr_json_find(v, "greedy_ids"), &n_greedy);
    struct rig_seq s = rig_seq_new(r, 0, NULL);
    float *all = rig_prompt(r, &s, ids, n, n);
    *worst = fmax(*worst, check_prompt(qr_json_find(v, "prompt_logprobs"), all, ids, n, n_vocab));
    float *row = qr_alloc((size_t)n_vocab, sizeof *row);
    memcpy(row, all + (size_t)(n - 1) * (size_t)n_vocab, (size_t)n_vocab * sizeof *row);
    const struct qr_json *full = qr_json_find(v, "last_logits"), *step = qr_json_first(qr_json_find(v, "steps"));
    if (full) {
        int32_t k;
        double *x = json_numbers(full, &k);
        for (int32_t i = 0; i < k; i++)
            *worst = fmax(*worst, fabs(x[i] - (double)row[i]));
        qr_free(x);
    }
    for (int32_t i = 0; i < n_greedy; i++) {
        if (step) {
            *worst = fmax(*worst, check_step(step, row, n_vocab));
            step = qr_json_after(step);
        }
        last = argmax(row, n_vocab);
        cr_assert_eq(last, greedy[i], "%s: token %d is %d, expected %d", qr_json_str(qr_json_find(v, "id"), NULL), i, last, greedy[i]);
        qr_free(row);
        row = rig_step(r, &(struct rig_item){&s, &last, 1, RIG_LAST}, 1);
    }
    qr_free(row);
    qr_free(all);
    qr_free(ids);
    qr_free(greedy);
    rig_seq_free(&s);
}

Test(golden_stories, f32_logits_and_greedy_ids_equal_the_golden_on_every_level)
{
    char dir[1024], path[1024];
    const char *names[8];
    int32_t n_levels = levels(names);
    golden_path(dir, "");
    golden_path(path, "/golden.jsonl");
    for (int32_t i = 0; i < n_levels; i++) {
        struct rig r;
        struct golden g = {0};
        double worst = 0;
        int32_t n = 0;
        rig_open(&r, dir, (struct rig_options){.isa = names[i], .n_threads = 2});
        for (; golden_next(&g, path); n++)
            check_line(&r, g.v, &worst);
        printf("stories260K f32 %s: %d prompts, worst difference %.2e\n", names[i], n, worst);
        cr_expect_leq(worst, TOLERANCE, "%s: worst difference %.3e", names[i], worst);
        cr_expect_eq(n, 12);
        rig_close(&r);
    }
}

/* ---- hidden states ---- */

struct tap {
    struct qr_exec exec; /* first: what the verbs get is this */
    struct qr_ops ops;
    float state[8][64];
    int32_t n;
};

static void tap_scope_end(struct qr_exec *x, struct qr_tensor *h, size_t mark)
{
    struct tap *t = (struct tap *)(void *)x;
    qr_ops_serve.scope_end(x, h, mark);
    memcpy(t->state[t->n++], (float *)h->data + (h->shape[0] - 1) * h->stride[0], sizeof t->state[0]);
}

static struct qr_tensor tap_embed(struct qr_exec *x, const struct qr_weight *w, float scale)
{
    struct tap *t = (struct tap *)(void *)x;
    struct qr_tensor out = qr_ops_serve.embed(x, w, scale);
    t->n = 0;
    memcpy(t->state[t->n++], (float *)out.data + (out.shape[0] - 1) * out.stride[0], sizeof t->state[0]);
    return out;
}

static struct qr_tensor tap_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w)
{
    struct tap *t = (struct tap *)(void *)x;
    memcpy(t->state[t->n++], (float *)h->data + (h->shape[0] - 1) * h->stride[0], sizeof t->state[0]);
    return plain_logits(x, h, w);
}

static double distance(const struct qr_json *want, const float *found)
{
    int32_t n;
    double worst = 0, *x = json_numbers(want, &n);
    cr_assert_eq(n, 64);
    for (int32_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(x[i] - (double)found[i]));
    qr_free(x);
    return worst;
}

Test(golden_stories, hidden_states_after_every_layer_equal_the_golden)
{
    char dir[1024], path[1024];
    struct rig r;
    struct golden g = {0};
    struct tap t = {.ops = plain_ops()};
    golden_path(dir, "");
    golden_path(path, "/golden.jsonl");
    rig_open(&r, dir, (struct rig_options){.isa = "ref"});
    cr_assert(golden_next(&g, path));
    const struct qr_json *trace = qr_json_find(g.v, "trace_last_position");
    int32_t id = 1, layer = 0;
    t.ops.embed = tap_embed;
    t.ops.scope_end = tap_scope_end;
    t.ops.logits = tap_logits;
    t.exec = r.exec;
    t.exec.ops = &t.ops;
    const int32_t zero = 0, one = 1, row_start[2] = {0, 1}, table[1] = {0};
    const struct qr_batch b = {.n_tokens = 1, .n_seqs = 1, .n_logits = 1, .block_tokens = 16, .table_stride = 1, .ids = &id, .pos = &zero,
                               .slot = &zero, .row_start = row_start, .ctx_len = &one, .block_table = table, .logit_row = &zero};
    qr_model_forward(&t.exec, &b);
    cr_assert_eq(t.n, 7);
    cr_expect_leq(distance(qr_json_find(trace, "embedding"), t.state[0]), TOLERANCE);
    for (const struct qr_json *v = qr_json_first(qr_json_find(trace, "after_layer")); v; v = qr_json_after(v), layer++)
        cr_expect_leq(distance(v, t.state[1 + layer]), TOLERANCE, "layer %d", layer);
    cr_expect_eq(layer, 5);
    cr_expect_leq(distance(qr_json_find(trace, "after_final_norm"), t.state[6]), TOLERANCE);
    while (golden_next(&g, path))
        ;
    rig_close(&r);
}
