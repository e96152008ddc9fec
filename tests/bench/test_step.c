/* The engine's own work per step, kernels computing nothing. On an idle machine 64 sequences take 20 us (greedy) and 41
 * us (mixed, 512 ids). The bounds here are wide enough for a loaded machine and for sanitizers, and still catch a walk
 * over everything in each step. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "tests/run_main.h"

TestSuite(step, .timeout = 240);

static const char *model_dir(void)
{
    static char path[700];
    const char *root = getenv("QUIRE_DATA");
    snprintf(path, sizeof path, "%s/models/stories260K", root ? root : "../shared/data");
    return access(path, R_OK) == 0 ? path : NULL;
}

static void check(const char *mix, double us_max)
{
    struct qr_buf text = {0};
    char words[900];
    int n_steps = 0;
    double own_us = 0;
    if (!model_dir())
        cr_skip_test("no conformance data (QUIRE_DATA): models/stories260K");
    snprintf(words, sizeof words, "step --model %s --threads 2 --seqs 64 --steps 200 --mix %s", model_dir(), mix);
    cr_assert_eq(run_main(&qr_bench_step_command, words, &text), 0, "%s", text.data);
    printf("%s", text.data);
    const char *counted = strstr(text.data, mix), *own = strstr(text.data, "\nown ");
    cr_assert(counted && sscanf(counted + strlen(mix), ", %d steps counted", &n_steps) == 1 && n_steps >= 50,
              "too few steps had all sequences in them");
    cr_assert(own && sscanf(own, " own %lf", &own_us) == 1 && own_us > 0 && own_us < us_max,
              "the engine's own work: expected less than %.1f us", us_max);
    qr_buf_release(&text);
}

Test(step, the_engine_s_own_work_for_64_greedy_sequences_is_small)
{
    check("greedy", 2000);
}

Test(step, the_engine_s_own_work_for_64_mixed_sequences_is_small)
{
    check("mixed", 4000);
}

Test(step, a_context_that_is_too_short_is_refused)
{
    char words[900];
    if (!model_dir())
        cr_skip_test("no conformance data (QUIRE_DATA): models/stories260K");
    snprintf(words, sizeof words, "step --model %s --threads 1 --seqs 2 --steps 4000", model_dir());
    cr_assert_eq(run_main(&qr_bench_step_command, words, NULL), 2);
}
