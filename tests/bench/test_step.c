/* The engine's own work per step, kernels computing nothing. On an idle machine 64 sequences take 20 us (greedy) and 41
 * us (mixed, 512 ids). The bounds here are wide enough for a loaded machine and for sanitizers, and still catch a walk
 * over everything in each step. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/step.h"

TestSuite(step, .timeout = 240);

static const char *model_dir(void)
{
    static char path[1024];
    const char *root = getenv("QUIRE_DATA");
    snprintf(path, sizeof path, "%s/models/stories260K", root ? root : "../shared/data");
    return access(path, R_OK) == 0 ? path : NULL;
}

static void check(enum qr_step_mix mix, double us_max)
{
    if (!model_dir())
        cr_skip_test("no conformance data (QUIRE_DATA): models/stories260K");
    struct qr_step_case c = {.model = model_dir(), .isa = "null", .n_threads = 2, .n_seqs = 64, .n_prompt = 32, .n_steps = 200, .mix = mix};
    struct qr_step_figures f;
    struct qr_err err = {0};
    cr_assert_eq(qr_bench_step(&f, &c, &err), 0, "%s", err.msg);
    printf("%s: plan %.1f lower %.1f sample %.1f output %.1f rest %.1f, own work %.1f us per step\n", mix == QR_STEP_GREEDY ? "greedy" : "mixed",
           f.part_us[QR_PART_PLAN], f.part_us[QR_PART_LOWER], f.part_us[QR_PART_SAMPLE], f.part_us[QR_PART_OUTPUT], f.part_us[QR_PART_REST], f.own_us);
    cr_assert(f.n_steps >= 50, "only %d steps had all sequences in them", (int)f.n_steps);
    cr_assert(f.own_us > 0 && f.own_us < us_max, "the engine's own work took %.1f us per step, expected less than %.1f", f.own_us, us_max);
}

Test(step, the_engine_s_own_work_for_64_greedy_sequences_is_small)
{
    check(QR_STEP_GREEDY, 2000);
}

Test(step, the_engine_s_own_work_for_64_mixed_sequences_is_small)
{
    check(QR_STEP_MIXED, 4000);
}

Test(step, a_context_that_is_too_short_is_explained)
{
    if (!model_dir())
        cr_skip_test("no conformance data (QUIRE_DATA): models/stories260K");
    struct qr_step_case c = {.model = model_dir(), .isa = "null", .n_threads = 1, .n_seqs = 2, .n_prompt = 32, .n_steps = 4000};
    struct qr_step_figures f;
    struct qr_err err = {0};
    cr_assert_eq(qr_bench_step(&f, &c, &err), QR_E_USAGE);
    cr_assert(err.msg[0] != 0);
}
