/* stories260K: loss, gradients and five steps of AdamW against a golden that an independent program computed in float64.
 *
 * In f64 the golden's own digits bound what can be asked: losses and norms are printed in full (relative 1e-9 is asked), elements of gradients and
 * weights with 9 significant digits (relative 5e-9, plus 1e-12 for what is nearly zero). The weights are f32 in both.
 * In f32 a gradient passes 5 layers of products of at most 172 terms there and back, each with a relative error below gamma_172 = 1e-5 of the sum of
 * absolute values; errors of some 40 such products add like a random walk, so 1e-4 of a tensor's norm is asked for its norm and 1e-4 of the largest for
 * elements. AdamW divides by the root of the squares: in the first step it amounts to the gradient's sign, which may differ where the gradient is
 * within its error of zero; a weight then moves by 2 lr = 2e-3 too far. After five steps losses agree to 1e-3. */
#include "tests/train/rig.h"

#include "tests/kernels/wide_oracle.h"

struct golden_train {
    struct qr_map_file file;
    struct qr_json *v;
    struct qr_train_batch batch;
    char dir[1024];
};

static struct golden_train golden_open(void)
{
    struct golden_train g = {0};
    struct qr_err err = {0};
    char path[1100];
    snprintf(path, sizeof path, "%s/train/stories260K_train_golden.json", data_dir());
    snprintf(g.dir, sizeof g.dir, "%s/models/stories260K", data_dir());
    cr_assert_eq(qr_map_file_open(&g.file, path, SIZE_MAX, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_json_parse(&g.v, (const char *)g.file.data, g.file.n_bytes, &qr_json_limits_file, &err), 0, "%s", err.msg);
    qr_train_batch_init(&g.batch, 128, 2);
    for (const struct qr_json *s = qr_json_first(qr_json_find(g.v, "batch")); s; s = qr_json_after(s)) {
        int32_t n, *ids = json_ids(s, &n);
        cr_assert(qr_train_batch_add(&g.batch, ids, n, NULL));
        qr_free(ids);
    }
    return g;
}

static void golden_drop(struct golden_train *g)
{
    qr_json_free(g->v);
    qr_map_file_close(&g->file);
    qr_train_batch_release(&g->batch);
}

static double number(const struct qr_json *v, const char *name)
{
    const struct qr_json *x = qr_json_find(v, name);
    cr_assert_not_null(x, "no %s", name);
    return qr_json_f64(x);
}

static double element(const struct qr_params *p, const void *array, int64_t i)
{
    return p->real == QR_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static double norm_of(const struct qr_params *p, const void *array, const struct qr_param *t)
{
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++)
        sum += element(p, array, t->first + i) * element(p, array, t->first + i);
    return sqrt(sum);
}

/* Norm and named elements of each tensor of `want` against `array`; errors relative to the norm, elements to the largest of those named or 1e-12. */
static void check_tensors(const struct qr_params *p, const void *array, const struct qr_json *want, const char *what, double tolerance)
{
    int32_t n_seen = 0;
    for (int32_t k = 0; k < p->n_params; k++) {
        const struct qr_param *t = &p->param[k];
        const struct qr_json *g = qr_json_find(want, t->name);
        cr_assert_not_null(g, "the golden has no %s", t->name);
        n_seen++;
        const double l2 = number(g, "l2"), found = norm_of(p, array, t);
        cr_assert(fabs(found - l2) <= tolerance * l2, "%s of %s: norm %.15g, expected %.15g", what, t->name, found, l2);
        int32_t n, n_index = 0;
        const struct qr_json *index = qr_json_find(g, "flat_index");
        double *value = json_numbers(qr_json_find(g, index ? "value" : "first4"), &n), most = 0;
        int32_t *at = index ? json_ids(index, &n_index) : NULL;
        for (int32_t i = 0; i < n; i++)
            most = fmax(most, fabs(value[i]));
        for (int32_t i = 0; i < n; i++) {
            const double x = element(p, array, t->first + (at ? at[i] : i));
            cr_assert(fabs(x - value[i]) <= 5 * tolerance * most + 1e-12, "%s of %s, element %d: %.12g, expected %.12g", what, t->name,
                      at ? at[i] : i, x, value[i]);
        }
        qr_free(value);
        qr_free(at);
    }
    cr_assert_eq(n_seen, qr_json_count(want));
}

static struct qr_optim optimizer(const struct golden_train *g, struct qr_params *p)
{
    const struct qr_json *c = qr_json_find(g->v, "config"), *beta = qr_json_first(qr_json_find(c, "betas"));
    const struct qr_optim_config o = {.beta1 = qr_json_f64(beta), .beta2 = qr_json_f64(qr_json_after(beta)), .eps = number(c, "eps"),
                                      .decay = number(c, "wd"), .clip = number(c, "clip")};
    struct qr_optim out;
    qr_optim_init(&out, p, &o);
    return out;
}

/* Mean loss of the batch; with gradients. */
static double mean_loss(struct trainer *r, const struct qr_train_batch *b)
{
    qr_params_zero_grad(r->p);
    double loss = qr_tape_loss(r->t, b, 1.0f / (float)b->b.n_logits, NULL) / b->b.n_logits;
    walk_back(r->t);
    return loss;
}

/* exact: tolerance of the first loss and its gradients; after: of what comes of steps. */
static void check_training(struct trainer *r, struct golden_train *g, double exact, double after)
{
    struct qr_optim o = optimizer(g, r->p);
    struct qr_err err = {0};
    const double lr = number(qr_json_find(g->v, "config"), "lr");
    for (const struct qr_json *s = qr_json_first(qr_json_find(g->v, "steps")); s; s = qr_json_after(s)) {
        const double loss = mean_loss(r, &g->batch), want = number(s, "loss_before"), tolerance = o.step == 0 ? exact : after;
        double norm;
        if (o.step == 0)
            check_tensors(r->p, r->p->grad, qr_json_find(g->v, "grads"), "gradient", exact);
        cr_assert_eq(qr_optim_step(&o, lr, &norm, &err), 0, "%s", err.msg);
        printf("step %d: loss %.12f off by %.2g, norm off by %.2g\n", (int)o.step, loss, loss - want, norm - number(s, "grad_norm"));
        cr_assert(fabs(loss - want) <= tolerance * want, "step %d: loss %.15g, expected %.15g", (int)o.step, loss, want);
        cr_assert(fabs(norm - number(s, "grad_norm")) <= tolerance * norm, "step %d: norm %.15g", (int)o.step, norm);
    }
    const double loss = qr_tape_evaluate(r->t, &g->batch, NULL) / g->batch.b.n_logits, want = number(g->v, "loss_after");
    cr_assert(fabs(loss - want) <= after * want, "after: loss %.15g, expected %.15g", loss, want);
    check_tensors(r->p, r->p->value, qr_json_find(g->v, "weights_after"), "weights", after);
    qr_optim_release(&o);
}

Test(golden_train, in_double_loss_gradients_and_five_steps_equal_the_golden)
{
    struct golden_train g = golden_open();
    struct qr_backend be = {.name = "f64", .k = wide, .b = wide_back, .mem = &qr_host_mem, .n_threads = 1};
    struct trainer r = trainer_new(&be, g.dir, QR_F64, QR_F64, (struct qr_tape_options){.n_tokens_max = 128, .n_seqs_max = 2});
    check_training(&r, &g, 1e-9, 1e-9);
    trainer_drop(&r);
    golden_drop(&g);
}

Test(golden_train, in_single_precision_every_level_follows_the_golden)
{
    const char *names[8];
    int32_t n_levels = levels(names);
    struct golden_train g = golden_open();
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = open_backend(names[l], 2);
        struct trainer r = trainer_new(be, g.dir, QR_F32, QR_F32, (struct qr_tape_options){.n_tokens_max = 128, .n_seqs_max = 2});
        printf("%s\n", names[l]);
        check_training(&r, &g, 1e-4, 1e-3);
        trainer_drop(&r);
        qr_backend_close(be);
    }
    golden_drop(&g);
}
