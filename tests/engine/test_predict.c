/* What steps are predicted to take, of machines with known costs. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"
#include "engine/predict.h"

/* A step's us: as in sim.h, but up to `flat` rows cost what one does. */
struct machine {
    double base, row, flat, decode_context, prompt_context, noise;
};

static double cost(const struct machine *m, const struct qr_step_size *s, struct qr_rng *r)
{
    const double rows = (double)s->n_prompt + s->n_decode, us = m->base + m->row * (rows > m->flat ? rows - m->flat : 0);
    return (us + m->decode_context * s->context[0] + m->prompt_context * s->context[1]) * (1 + m->noise * (2 * qr_rng_next_unit(r) - 1));
}

static int32_t below(struct qr_rng *r, int32_t n)
{
    return (int32_t)(qr_rng_next_unit(r) * n);
}

/* A step as a server's: some sequences decode, at times a chunk of a prompt is beside them. */
static struct qr_step_size any_step(struct qr_rng *r)
{
    struct qr_step_size s = {.n_decode = 1 + below(r, 40), .n_prompt = below(r, 3) ? 0 : 16 + below(r, 240)};
    s.context[0] = s.n_decode * (0.2 + 3 * qr_rng_next_unit(r));
    s.context[1] = s.n_prompt * 3 * qr_rng_next_unit(r);
    return s;
}

static const struct machine machines[] = {{5000, 100, 0, 500, 5, 0.05}, {9000, 1500, 4, 1000, 50, 0.05}, {20000, 20, 64, 100, 1, 0.1}};

/* Noise is 5 or 10 %, even, so its mean is 2.5 or 5 %; what lies within a bucket is on a line but for the bend at `flat`. Twice the noise's mean, and 5 % for
 * the bend and means that wander. */
Test(predict, what_a_step_takes_is_foreseen_after_some_hundreds)
{
    for (int k = 0; k < 3; k++) {
        struct qr_rng r = {.seed = 5 + (uint64_t)k};
        struct qr_predict p;
        double missed = 0;
        qr_predict_init(&p);
        for (int i = 0; i < 4000; i++) {
            const struct qr_step_size s = any_step(&r);
            const double us = cost(&machines[k], &s, &r), predicted = qr_predict_note(&p, &s, us);
            missed += i >= 2000 ? fabs(predicted - us) / us / 2000 : 0;
        }
        cr_assert_lt(missed, machines[k].noise + 0.05, "machine %d: %.3f", k, missed);
    }
}

Test(predict, nothing_is_known_before_anything_was_measured)
{
    struct qr_predict p;
    qr_predict_init(&p);
    const struct qr_step_size none = {0}, one = {.n_decode = 1}, many = {.n_prompt = 512};
    cr_assert_eq(qr_predict_us(&p, &one), 0);
    cr_assert_eq(qr_predict_note(&p, &none, 100), 0);
    cr_assert_eq(qr_predict_note(&p, &one, 0), 0);
    cr_assert_eq(qr_predict_us(&p, &one), 0);
    cr_assert_eq(qr_predict_note(&p, &one, 1000), 0);
    cr_assert_eq(qr_predict_us(&p, &one), 1000);
    cr_assert_eq(qr_predict_us(&p, &many), 1000, "what was not measured is not feared");
    cr_assert_eq(qr_predict_us(&p, &none), 0);
}

Test(predict, an_interrupted_step_counts_twice_its_prediction_at_most)
{
    struct qr_predict p;
    qr_predict_init(&p);
    const struct qr_step_size s = {.n_decode = 8};
    for (int i = 0; i < 100; i++)
        qr_predict_note(&p, &s, 1000);
    cr_assert_eq(qr_predict_note(&p, &s, 1e7), 1000);
    cr_assert_leq(qr_predict_us(&p, &s), 1000 * 17.0 / 16);
    for (int i = 0; i < 200; i++) /* a machine that is slower from now on */
        qr_predict_note(&p, &s, 5000);
    cr_assert_gt(qr_predict_us(&p, &s), 4900);
}

Test(predict, times_of_no_pattern_give_finite_predictions)
{
    struct qr_rng r = {.seed = 77};
    struct qr_predict p;
    qr_predict_init(&p);
    for (int i = 0; i < 20000; i++) {
        const struct qr_step_size s = {.n_decode = below(&r, 70), .n_prompt = below(&r, 1 << below(&r, 22)),
                                       .context = {1e4 * qr_rng_next_unit(&r), 1e6 * qr_rng_next_unit(&r)}};
        qr_predict_note(&p, &s, pow(10, 10 * qr_rng_next_unit(&r)));
        const double us = qr_predict_us(&p, &s);
        cr_assert((s.n_decode + s.n_prompt == 0 || us > 0) && us < 1e15, "%g", us);
    }
}
