/* Muon: the golden's steps, orthogonal results in every type, what is saved and resumed. */
#include "tests/train/run.h"

#include "tests/train/golden_muon.h"

/* The inputs of tools/golden/muon.py: exact in f32. */
static float number(uint64_t i, uint64_t seed)
{
    uint64_t h = ((i + seed * 1000003) * 2654435761u + 12345) & 0xffffffffu;
    h = (h ^ (h >> 15)) * 2246822519u & 0xffffffffu;
    return (float)(((double)(h >> 12) - 524288) / 524288);
}

static struct qr_optim_config muon_config(void)
{
    return (struct qr_optim_config){.kind = QR_OPTIMIZER_MUON, .momentum = 0.95, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = 0.01, .clip = 1, .seed = 5};
}

/* A run whose optimizer is Muon. */
static struct run muon_run(enum qr_dtype compute, uint64_t init)
{
    const struct qr_model_config c = tiny_config(QR_ARCH_QWEN3);
    const struct qr_optim_config oc = muon_config();
    struct run r = run_new(&c, compute, init);
    qr_optim_release(&r.o);
    qr_optim_init(&r.o, r.p, &oc);
    return r;
}

/* An error of 2^-24 of u / |u| grows in each of five rounds by the quintic's slope, 3.4445, at most: 485-fold, 2.9e-5; what the rounds add themselves grows
 * less often, and all together is less than as much again. A step moves w by lr 0.2 sqrt(40) u. */
Test(muon, three_steps_are_those_of_the_golden)
{
    const double tolerance = GOLDEN_STEPS * GOLDEN_LR * 0.2 * sqrt(40) * 2 * 2.9e-5;
    struct run r = muon_run(QR_F32, 1);
    for (int k = 0; k < QR_COUNT(golden); k++) {
        const int64_t n = (int64_t)golden[k].rows * golden[k].cols;
        const struct qr_param t = {.name = "model.layers.0.x", .n = n, .shape = {golden[k].rows, golden[k].cols}, .n_dims = 2};
        float *w = r.p->value, *g = r.p->grad, *m = r.o.m;
        double squares = 0;
        for (int64_t i = 0; i < n; i++)
            w[i] = number((uint64_t)i, 0), m[i] = 0;
        for (int s = 0; s < GOLDEN_STEPS; s++) {
            const struct qr_muon_step step = {GOLDEN_LR, GOLDEN_MOMENTUM, GOLDEN_DECAY, GOLDEN_GSCALE, s + 1, 1};
            for (int64_t i = 0; i < n; i++)
                g[i] = number((uint64_t)i, (uint64_t)s + 1);
            qr_muon_move(&r.o.muon, r.p, &t, m, &step);
        }
        for (int i = 0; i < GOLDEN_SAMPLES; i++) {
            const int64_t at = i * 7919 % n;
            cr_assert(fabs((double)w[at] - golden[k].w[i]) <= tolerance, "matrix %d: w[%ld] is %.9g, expected %.9g", k, (long)at, (double)w[at],
                      golden[k].w[i]);
            cr_assert(fabs((double)m[at] - golden[k].m[i]) <= 8 * 0x1p-24, "matrix %d: m[%ld] is %.9g, expected %.9g", k, (long)at, (double)m[at],
                      golden[k].m[i]);
        }
        for (int64_t i = 0; i < n; i++) {
            squares += (double)w[i] * (double)w[i];
            cr_assert_eq(g[i], 0);
        }
        cr_assert(fabs(squares - golden[k].squares) <= 2 * sqrt(squares * (double)n) * tolerance, "matrix %d: %.12g", k, squares);
    }
    run_drop(&r);
}

/* What products read is rounded to bf16: off by up to 2^-8 of itself, evenly, so by eta = 2^-8 0.72 / sqrt(3) = 0.0016 in the mean of squares (0.72: mean
 * of 1 / m over mantissas). In the last round, where singular values are 1 at most 1.2 and all parts of it are as large as they get, with |x| = sqrt(n):
 * a = x x' is off by sqrt(2) eta, a a by twice that and sqrt(2) eta, and (c1 a + c2 a a) x by (4.8 + 2 2.1) sqrt(2) + 2.1 sqrt(2) from these and (4.8 - 2.1)
 * sqrt(2) from its own two roundings, if all parts point the same way: 20 eta = 0.032 of the whole. An error in an earlier round meets the quintic's slope
 * near 1, between -1.6 and 1, in every later one, and rounds before the last three add next to nothing, since their a is small: (1 + 1.6 + 1.6^2) 0.032 =
 * 0.17 at most, were all roundings of one sign; with random ones the parts and rounds add as squares: 0.07. Cosine 1 - 0.07^2 / 2 = 0.9975. */
Test(muon, products_in_bf16_point_where_those_in_f32_point)
{
    static const int32_t shape[][2] = {{16, 64}, {64, 112}, {112, 64}, {64, 64}, {1, 64}, {64, 1}, {33, 65}};
    struct run a = muon_run(QR_F32, 1), b = muon_run(QR_BF16, 1);
    float *u = qr_alloc(112 * 64, sizeof *u);
    for (int k = 0; k < QR_COUNT(shape); k++) {
        const int64_t n = (int64_t)shape[k][0] * shape[k][1];
        double xy = 0, xx = 0, yy = 0;
        for (int64_t i = 0; i < n; i++)
            u[i] = number((uint64_t)i, 77);
        double fx, fy;
        const float *x = qr_muon_orthogonal(&a.o.muon, &fx, u, shape[k][0], shape[k][1]);
        const float *y = qr_muon_orthogonal(&b.o.muon, &fy, u, shape[k][0], shape[k][1]);
        for (int64_t i = 0; i < n; i++)
            xy += fx * fy * (double)x[i] * (double)y[i], xx += fx * fx * (double)x[i] * (double)x[i], yy += fy * fy * (double)y[i] * (double)y[i];
        const double cosine = xy / sqrt(xx * yy), side = shape[k][0] < shape[k][1] ? shape[k][0] : shape[k][1];
        printf("%d x %d: cosine %.5f, singular values %.3f in the mean\n", shape[k][0], shape[k][1], cosine, sqrt(xx / side));
        cr_assert_geq(cosine, 0.9975, "%d x %d: cosine %.4f", shape[k][0], shape[k][1], cosine);
        cr_assert(xx >= 0.6 * 0.6 * side && xx <= 1.3 * 1.3 * side, "%d x %d: singular values of %.3f in the mean", shape[k][0], shape[k][1], sqrt(xx / side));
    }
    qr_free(u);
    run_drop(&a), run_drop(&b);
}

Test(muon, a_matrix_without_gradient_only_decays)
{
    struct run r = muon_run(QR_F32, 1);
    const struct qr_param *t = qr_params_find(r.p, "model.layers.1.mlp.up_proj.weight");
    const float before = ((float *)r.p->value)[t->first + 3];
    struct qr_err err = {0};
    double norm;
    cr_assert_eq(qr_optim_step(&r.o, 0.1, &norm, &err), 0, "%s", err.msg);
    cr_assert_eq(((float *)r.p->value)[t->first + 3], before * (float)(1 - 0.1 * 0.01));
    run_drop(&r);
}

Test(muon, a_resumed_run_continues_bit_for_bit_and_the_loss_falls)
{
    for (int k = 0; k < 2; k++) {
        struct temp_dir d = temp_dir_new();
        struct run a = muon_run(k ? QR_BF16 : QR_F32, 1), b = muon_run(k ? QR_BF16 : QR_F32, 2), adam;
        char path[QR_PATH_MAX];
        struct qr_err err = {0};
        for (int i = 0; i < 3; i++)
            run_step(&a), run_step(&b);
        run_save(&a, d.path, 0);
        cr_assert_eq(qr_checkpoint_latest(d.path, path, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_checkpoint_load(path, b.p, &b.o, NULL, &err), 0, "%s", err.msg);
        for (int i = 0; i < 3; i++) {
            const double x = run_step(&a), y = run_step(&b);
            cr_assert_eq(x, y);
            cr_assert_eq(run_digest(&a), run_digest(&b));
        }
        adam = run_new(&a.p->config, a.p->compute, 3);
        cr_assert_eq(qr_checkpoint_load(path, adam.p, &adam.o, NULL, &err), QR_E_INVALID);
        cr_assert(strstr(err.msg, "trainer.json: optimizer is \"muon\", expected \"adamw\" by this run"), "%s", err.msg);
        run_drop(&a), run_drop(&b), run_drop(&adam);
        temp_dir_remove(&d);
    }
    struct run r = muon_run(QR_BF16, 1);
    double first = 0, last = 0, norm;
    struct qr_err err = {0};
    struct qr_train_batch batch = random_batch(r.p->config.n_vocab, 3, 9);
    for (int i = 0; i < 15; i++) {
        last = qr_tape_loss(r.t, &batch, 1.0f / (float)batch.b.n_logits, NULL) / batch.b.n_logits;
        first = i == 0 ? last : first;
        walk_back(r.t);
        cr_assert_eq(qr_optim_step(&r.o, 1e-2, &norm, &err), 0, "%s", err.msg);
    }
    cr_assert_lt(last, 0.8 * first, "15 steps on one batch: %g to %g", first, last);
    qr_train_batch_release(&batch);
    run_drop(&r);
}
