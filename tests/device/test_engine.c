/* An engine on a device whose memory the host cannot reach answers as one on the processor. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"
#include "tests/device/device.h"
#include "tests/engine/harness.h"

enum { N_CASES = 6, SEED = 11 };

/* Prompts that share beginnings, all at once, so that cached blocks and chunks of prompts are met beside decoding rows. */
static void run(struct flight *f, const struct setup *setup)
{
    struct world w;
    struct qr_rng rng = {.seed = SEED};
    struct qr_err err;
    int32_t prompt[90];
    for (int i = 0; i < QR_COUNT(prompt); i++)
        prompt[i] = 3 + (int32_t)qr_rng_below(&rng, 500);
    world_open(&w, setup);
    for (int c = 0; c < N_CASES; c++) {
        struct qr_sampling s;
        qr_sampling_init(&s);
        s.temperature = c % 2 ? 0.8f : 0;
        s.repetition = c % 3 == 2 ? 1.2f : 1;
        s.seed = (uint64_t)c;
        s.max_tokens = 20 + c;
        s.n_logprobs = c % 2 ? 3 : -1;
        s.ignore_eos = true;
        prompt[40 + c] = 3 + c;
        cr_assert_eq(flight_start(&w, &f[c], &s, prompt, 30 + 10 * c, c == 3 ? 3 : 1, &err), 0, "%s", err.msg);
    }
    for (int c = 0; c < N_CASES; c++)
        flight_finish(&w, &f[c]);
    world_close(&w);
}

static float bring_near(float got, float want)
{
    cr_assert(fabsf(got - want) <= 0x1p-17f, "a log-probability of %.7f, expected %.7f", (double)got, (double)want);
    return want;
}

/* The processor's kernels sum a row's exponentials within 2^-18 (kernels.h, stretches), those of a device are summed by the sampler: its log-probabilities,
 * numbers below 32 with a rounding of 2^-20, become the processor's. */
static void bring_logprobs_near(struct answer *got, const struct answer *want)
{
    for (int32_t i = 0; i < got->n && i < want->n; i++) {
        got->logprob[i] = bring_near(got->logprob[i], want->logprob[i]);
        got->top[i] = bring_near(got->top[i], want->top[i]);
    }
}

Test(engine, answers_on_a_device_as_on_the_processor)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    static struct flight want[N_CASES], got[N_CASES];
    struct setup s;
    use_discrete("ref", NULL);
    setup_init(&s, "models/stories260K");
    s.config.chunk_tokens_max = 24;
    s.isa = "ref";
    run(want, &s);
    s.isa = NULL;
    s.device = "cuda";
    run(got, &s);
    for (int c = 0; c < N_CASES; c++)
        for (int k = 0; k < (c == 3 ? 3 : 1); k++) {
            bring_logprobs_near(&got[c].answer[k], &want[c].answer[k]);
            cr_assert(answers_equal(&want[c].answer[k], &got[c].answer[k]), "case %d choice %d", c, k);
        }
}
