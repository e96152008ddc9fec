/* The optimizer's module: schedules, groups, and what it says about gradients that are no numbers. */
#include "tests/train/rig.h"

Test(schedule, rises_to_the_peak_and_falls_to_the_last)
{
    const struct qr_lr cosine = {QR_SCHEDULE_COSINE, 1.0, 0.1, 4, 25}, linear = {QR_SCHEDULE_LINEAR, 1.0, 0.1, 4, 25};
    const struct qr_lr flat = {QR_SCHEDULE_CONSTANT, 1.0, 0, 4, 25};
    const struct qr_lr *const all[] = {&cosine, &linear, &flat};
    for (int k = 0; k < 3; k++) {
        for (int64_t s = 0; s < 4; s++)
            cr_assert_eq(qr_lr_at(all[k], s), (double)(s + 1) / 5);
        cr_assert_eq(qr_lr_at(all[k], 4), 1.0);
        for (int64_t s = 5; s < 60; s++)
            cr_assert_leq(qr_lr_at(all[k], s), qr_lr_at(all[k], s - 1));
    }
    cr_assert_float_eq(qr_lr_at(&cosine, 14), 0.55, 1e-12); /* half way */
    cr_assert_float_eq(qr_lr_at(&linear, 14), 0.55, 1e-12);
    cr_assert_float_eq(qr_lr_at(&cosine, 24), 0.1, 1e-12);
    cr_assert_float_eq(qr_lr_at(&linear, 1000), 0.1, 1e-12);
    cr_assert_eq(qr_lr_at(&flat, 1000), 1.0);
    const struct qr_lr one = {QR_SCHEDULE_COSINE, 1.0, 0.1, 0, 1}, only_warmup = {QR_SCHEDULE_LINEAR, 1.0, 0.1, 8, 8};
    cr_assert_eq(qr_lr_at(&one, 0), 0.1);
    cr_assert_lt(qr_lr_at(&only_warmup, 7), 1.0);
}

struct fixture {
    struct qr_backend *be;
    struct qr_params *p;
    struct qr_optim o;
};

static struct fixture fixture_of(int32_t n_threads, double decay, double clip)
{
    struct fixture f = {.be = open_backend(NULL, n_threads)};
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN2);
    const struct qr_optim_config oc = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = decay, .clip = clip, .seed = 1};
    qr_params_init(&f.p, &c, f.be, QR_F32, 0.02, 3);
    qr_optim_init(&f.o, f.p, &oc);
    return f;
}

static struct fixture fixture_new(double decay, double clip)
{
    return fixture_of(1, decay, clip);
}

static void fixture_drop(struct fixture *f)
{
    qr_optim_release(&f->o);
    qr_params_close(f->p);
    qr_backend_close(f->be);
}

/* Without gradients a step is the decay alone: w - (lr decay) w, with 1 - lr decay rounded to f32. */
Test(optim, decays_matrices_and_embeddings_but_neither_norms_nor_biases)
{
    struct fixture f = fixture_new(0.5, 1);
    struct qr_err err = {0};
    double norm;
    float *old = qr_alloc((size_t)f.p->n, sizeof *old), *value = f.p->value;
    memcpy(old, value, (size_t)f.p->n * sizeof *old);
    qr_params_zero_grad(f.p);
    cr_assert_eq(qr_optim_step(&f.o, 0.1, &norm, &err), 0, "%s", err.msg);
    cr_assert_eq(norm, 0);
    for (int32_t k = 0; k < f.p->n_params; k++) {
        const struct qr_param *t = &f.p->param[k];
        const bool matrix = t->n_dims == 2;
        for (int64_t i = t->first; i < t->first + t->n; i++)
            cr_assert_eq(value[i], matrix ? old[i] * (float)0.95 : old[i], "%s", t->name);
    }
    qr_free(old);
    fixture_drop(&f);
}

/* One element has a gradient of 3 and the limit is 1: m = 0.1 * 3 / (3 + 1e-6). */
Test(optim, clips_by_the_norm_of_all_gradients)
{
    struct fixture f = fixture_new(0, 1);
    struct qr_err err = {0};
    const struct qr_param *t = qr_params_find(f.p, "model.layers.1.mlp.down_proj.weight");
    double norm;
    qr_params_zero_grad(f.p);
    ((float *)f.p->grad)[t->first + 5] = 3;
    cr_assert_eq(qr_optim_step(&f.o, 0.1, &norm, &err), 0, "%s", err.msg);
    cr_assert_eq(norm, 3);
    cr_assert(t->stale, "gradients count as zero behind a step");
    qr_params_settle(f.p);
    cr_assert_eq(((float *)f.p->grad)[t->first + 5], 0, "and are zero when the next ones have been added");
    cr_assert_float_eq(((float *)f.o.m)[t->first + 5], 0.1 / (1 + 1e-6 / 3), 1e-7);
    fixture_drop(&f);
}

Test(optim, names_the_first_tensor_whose_gradient_is_not_finite_and_changes_nothing)
{
    struct fixture f = fixture_new(0.1, 1);
    struct qr_err err = {0};
    const struct qr_param *t = qr_params_find(f.p, "model.layers.1.self_attn.k_proj.bias");
    const float before = ((float *)f.p->value)[0];
    double norm;
    qr_params_zero_grad(f.p);
    ((float *)f.p->grad)[t->first + 2] = NAN;
    ((float *)f.p->grad)[f.p->n - 1] = INFINITY;
    cr_assert_eq(qr_optim_step(&f.o, 0.1, &norm, &err), QR_E_INVALID);
    cr_assert_str_eq(err.msg, "step 1: the gradient of model.layers.1.self_attn.k_proj.bias is not finite; lower the learning rate or look at the data");
    cr_assert_eq(f.o.step, 0);
    cr_assert_eq(((float *)f.p->value)[0], before);
    fixture_drop(&f);
}

/* The mean of n numbers of deviation s has deviation s / sqrt(n), their mean square s^2 one of s^2 sqrt(2 / n): five of each are allowed. */
Test(params, start_with_the_deviation_asked_for_and_the_same_numbers_for_the_same_seed_whatever_the_threads)
{
    struct fixture a = fixture_of(1, 0, 0), b = fixture_of(3, 0, 0);
    cr_assert(memcmp(a.p->value, b.p->value, (size_t)a.p->n * sizeof(float)) == 0);
    for (int32_t k = 0; k < a.p->n_params; k++) {
        const struct qr_param *t = &a.p->param[k];
        const float *x = (float *)a.p->value + t->first;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < t->n; i++)
            sum += (double)x[i], squares += (double)x[i] * (double)x[i];
        if (t->n_dims == 1) {
            const bool is_norm = strstr(t->name, "norm.weight") != NULL;
            cr_assert_eq(sum, is_norm ? (double)t->n : 0, "%s", t->name);
            continue;
        }
        const double n = (double)t->n, s = strstr(t->name, "o_proj") || strstr(t->name, "down_proj") ? 0.02 / 2 : 0.02; /* 2 layers */
        cr_assert(fabs(sum / n) <= 5 * s / sqrt(n) && fabs(squares / n - s * s) <= 5 * s * s * sqrt(2 / n), "%s: mean %g, mean square %g", t->name,
                  sum / n, squares / n);
    }
    fixture_drop(&a), fixture_drop(&b);
}
