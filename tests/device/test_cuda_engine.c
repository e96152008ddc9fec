/* The engine on CUDA's kernels and the emulated device: what a step asks of the runtime, and that nobody's answer depends on who runs beside it. */
#include <dlfcn.h>

#include "tests/cuda_emu/emu.h"
#include "tests/device/device.h"
#include "tests/device/requests.h"
#include "tests/engine/cases.h"

/* A small model on the emulated device, and how to open it; to be removed with small_model_remove. Skips the test where there is no tokenizer for it. */
static void setup_make(struct setup *s, struct temp_model *model)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    use_emulated();
    *model = small_model(1);
    setup_init(s, model->dir + 1);
    s->device = "cuda";
    s->compute = QR_COMPUTE_BF16;
}

Test(cuda_engine, a_step_is_one_graph_waits_once_for_the_step_before_it_and_allocates_nothing, .timeout = 240)
{
    static struct flight together[N_REQUESTS], alone, again, plain, guided;
    struct setup setup;
    struct temp_model model;
    struct world w;
    struct qr_err err;
    struct qr_stats before, after;
    int32_t prompt[N_PROMPT];
    setup_make(&setup, &model);
    setup.config.kv_tokens = 512;
    setup.config.prefix_cache = false;
    setup.config.step_tokens_max = setup.config.running_max = 16;
    world_open(&w, &setup);
    void *lib = dlopen(getenv("QUIRE_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
    struct qr_emu_counts (*counts)(void);
    *(void **)&counts = dlsym(lib, "qr_emu_counts");
    cr_assert_not_null(counts);
    for (int i = 0; i < N_REQUESTS; i++) {
        const struct qr_sampling s = sampling_of(i);
        const struct guided g = guided_of(i);
        prompt_of(i, prompt);
        cr_assert_eq(flight_start_guided(&w, &together[i], &s, prompt, N_PROMPT, 1, 0, &g, &err), 0, "%s", err.msg);
    }
    for (int i = 0; i < N_REQUESTS; i++)
        flight_finish(&w, &together[i]);
    world_settle(&w, &before);
    const struct qr_sampling s = sampling_of(2);
    prompt_of(2, prompt);
    ask(&w, &alone, &s, prompt, N_PROMPT, 1); /* from now on the device knows such steps */
    world_settle(&w, &before);
    const struct qr_emu_counts c0 = counts();
    ask(&w, &again, &s, prompt, N_PROMPT, 1);
    world_settle(&w, &after);
    const struct qr_emu_counts c1 = counts();
    const int64_t n_steps = (int64_t)(after.n_steps - before.n_steps);
    cr_assert(answers_equal(&alone.answer[0], &together[2].answer[0]));
    cr_assert(answers_equal(&again.answer[0], &together[2].answer[0]));
    cr_assert_eq(n_steps, again.answer[0].n);
    cr_assert_eq(c1.mallocs, c0.mallocs);
    cr_assert_eq(c1.syncs - c0.syncs, n_steps, "%lld waits in %lld steps", (long long)(c1.syncs - c0.syncs), (long long)n_steps);
    cr_assert_eq(c1.copies - c0.copies, 2 * n_steps, "one copy there and one back");
    cr_assert_eq(c1.graph_launches - c0.graph_launches, n_steps - 1, "all but the prompt's are repeated");
    const struct qr_sampling s1 = sampling_of(1);
    const struct guided g = guided_of(1);
    int32_t other[N_PROMPT];
    prompt_of(1, other);
    ask_guided(&w, &guided, &s1, other, N_PROMPT, 1, &g);
    world_settle(&w, &before);
    const struct qr_emu_counts c2 = counts();
    const int64_t n_masked = (int64_t)(before.n_steps - after.n_steps);
    cr_assert(answers_equal(&guided.answer[0], &together[1].answer[0]), "with a grammar");
    cr_assert_eq(c2.syncs - c1.syncs, n_masked, "a mask waits for the step before, as the next step does");
    cr_assert_eq(c2.copies - c1.copies, 3 * n_masked, "and is one copy more");
    dlclose(lib);
    world_close(&w);
    setenv("QUIRE_CUDA_GRAPHS", "0", 1);
    world_open(&w, &setup);
    ask(&w, &plain, &s, prompt, N_PROMPT, 1);
    world_close(&w);
    cr_assert(answers_equal(&plain.answer[0], &together[2].answer[0]), "launched one by one");
    small_model_remove(&model);
}

Test(cuda_engine, guesses_change_no_answer, .timeout = 240)
{
    static struct flight f;
    struct setup setup;
    struct temp_model model;
    struct world w;
    struct qr_stats st;
    int32_t prompt[N_PROMPT];
    struct qr_sampling s = sampling_of(1);
    const struct guided g = guided_of(1);
    setup_make(&setup, &model);
    setup.config.kv_tokens = 512;
    setup.config.step_tokens_max = setup.config.running_max = 16;
    setup.guesses = true;
    world_open(&w, &setup);
    prompt_of(1, prompt);
    s.max_tokens = 5;
    ask_guided(&w, &f, &s, prompt, N_PROMPT, 1, &g);
    world_settle(&w, &st);
    cr_assert(f.answer[0].n == 5 && st.n_accepted_tokens > 0);
    world_close(&w);
    small_model_remove(&model);
}

Test(cuda_engine, a_prompt_comes_back_from_pinned_memory, .timeout = 240)
{
    struct setup setup;
    struct temp_model model;
    setup_make(&setup, &model);
    setup.config.running_max = 4;
    setup.config.block_tokens = 4;
    check_second_tier(&setup);
    small_model_remove(&model);
}
