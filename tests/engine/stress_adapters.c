/* Two threads load and unload adapters of an engine on two ranks while sequences run with another one: for the thread sanitizer. What runs is not disturbed. */
#include <pthread.h>

#include "engine/adapters.h"
#include "harness.h"
#include "loader/config/hf_config.h"
#include "tests/lora_make.h"
#include "tests/temp.h"

enum { N_LOADERS = 2, N_STREAMS = 3, N_DIRS = 2 };

struct loader {
    struct qr_engine *engine;
    const char *dir;
    char name[16];
    int32_t n_rounds;
    pthread_t thread;
};

static void *come_and_go(void *arg)
{
    struct loader *l = arg;
    struct qr_err err = {0};
    const struct qr_adapter_source source = {.name = l->name, .dir = l->dir};
    for (int32_t i = 0; i < l->n_rounds; i++)
        if (qr_engine_load_adapter(l->engine, &source, &err) != 0 || qr_engine_find_adapter(l->engine, l->name) == 0 ||
            qr_engine_unload_adapter(l->engine, l->name, &err) != 0)
            qr_panic("round %d of %s: %s", i, l->name, err.msg);
    return NULL;
}

/* Streams with the adapter named "stays", the same each time. */
static void run_streams(struct world *w, struct flight *f)
{
    struct qr_sampling s;
    struct qr_err err;
    int32_t prompt[20];
    qr_sampling_init(&s);
    s.max_tokens = 60;
    s.ignore_eos = true;
    for (int32_t i = 0; i < N_STREAMS; i++) {
        for (int32_t k = 0; k < QR_COUNT(prompt); k++)
            prompt[k] = 3 + (i * 31 + k * 7) % 500;
        s.seed = (uint64_t)i;
        if (flight_start_with(w, &f[i], &s, prompt, QR_COUNT(prompt), 1, qr_engine_find_adapter(w->engine, "stays"), &err) != 0)
            qr_panic("submit: %s", err.msg);
    }
    for (int32_t i = 0; i < N_STREAMS; i++)
        flight_finish(w, &f[i]);
}

static bool same_streams(const struct flight *a, const struct flight *b)
{
    bool same = true;
    for (int32_t i = 0; i < N_STREAMS; i++)
        same = same && answers_equal(&a[i].answer[0], &b[i].answer[0]);
    return same;
}

/* Returns whether streams beside loads were what they are alone. */
static bool run(struct world *w, char dir[N_DIRS][100], int32_t n_rounds)
{
    static struct flight alone[N_STREAMS], beside[N_STREAMS];
    struct loader l[N_LOADERS];
    struct qr_err err = {0};
    struct qr_stats st;
    if (qr_engine_load_adapter(w->engine, &(struct qr_adapter_source){.name = "stays", .dir = dir[0]}, &err) != 0)
        qr_panic("%s", err.msg);
    run_streams(w, alone);
    for (int32_t i = 0; i < N_LOADERS; i++) {
        l[i] = (struct loader){.engine = w->engine, .dir = dir[i % N_DIRS], .n_rounds = n_rounds};
        snprintf(l[i].name, sizeof l[i].name, "l%d", i);
        if (pthread_create(&l[i].thread, NULL, come_and_go, &l[i]) != 0)
            qr_panic("cannot start a thread");
    }
    run_streams(w, beside);
    for (int32_t i = 0; i < N_LOADERS; i++)
        pthread_join(l[i].thread, NULL);
    world_settle(w, &st);
    struct qr_adapter_info info[4];
    return same_streams(alone, beside) && qr_engine_adapters(w->engine, info, QR_COUNT(info)) == 1;
}

int main(void)
{
    if (!data_path("models/stories260K")) {
        printf("SKIP stress_adapters: no conformance data (QUIRE_DATA)\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    struct qr_model_config c;
    struct qr_err err = {0};
    char top[64], dir[N_DIRS][100];
    struct setup setup;
    struct world w;
    if (qr_model_config_read(&c, data_path("models/stories260K"), &err) != 0)
        qr_panic("%s", err.msg);
    temp_dir_make(top, "adapters");
    for (int i = 0; i < N_DIRS; i++) {
        snprintf(dir[i], sizeof dir[i], "%s/%d", top, i);
        lora_make(dir[i], &c, &(struct lora_make){.rank = 3 + i, .alpha = 8, .seed = (uint64_t)i});
    }
    setup_init(&setup, "models/stories260K");
    setup.n_threads = 1;
    setup.n_ranks = 2;
    setup.config.kv_tokens = 1024;
    setup.config.lora_slots = 1 + N_LOADERS;
    setup.config.lora_rank_max = 4;
    world_open(&w, &setup);
    const bool good = run(&w, dir, 2 + (int32_t)(20 * test_scale()));
    world_close(&w);
    for (int i = 0; i < N_DIRS; i++)
        qr_dir_remove(dir[i], &err);
    rmdir(top);
    printf("%d passed, %d failed\n", good, !good);
    return good ? 0 : 1;
}
