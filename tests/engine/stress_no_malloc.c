/* A steady step allocates nothing and faults no page in: every allocation of any thread but this one, and every page fault of the engine's and the
 * workers' threads, is counted while 16 sequences decode, half of them with an adapter, and half with grammars, and an onlooker looks all the time. Blocks
 * have names, and go to a file tier. */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>

#include "engine/adapters.h"
#include "engine/view.h"
#include "harness.h"
#include "loader/config/hf_config.h"
#include "tests/lora_make.h"
#include "tests/temp.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    printf("SKIP stress_no_malloc: the sanitizer owns malloc\n0 passed, 0 failed, 1 skipped\n");
    return 0;
}
#else
#include "tests/count_mallocs.h"

/* Page faults so far of the threads that run steps (their names begin so): field 10, minor ones, of /proc/self/task/ID/stat. -1: not to be read. */
static int64_t step_faults(void)
{
    int64_t sum = -1;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], line[1024];
        long long n;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = isdigit((unsigned char)e->d_name[0]) ? fopen(path, "re") : NULL;
        const char *name = f && fgets(line, sizeof line, f) ? strchr(line, '(') : NULL, *end = name ? strrchr(line, ')') : NULL;
        if (f)
            fclose(f);
        if (!end || (strncmp(name, "(quire-engine", 13) != 0 && strncmp(name, "(qr-worker", 10) != 0))
            continue;
        if (sscanf(end, ") %*c %*d %*d %*d %*d %*d %*u %lld", &n) == 1)
            sum = (sum < 0 ? 0 : sum) + n;
    }
    if (d)
        closedir(d);
    return sum;
}

/* One for all matrices, from a directory that is gone again. */
static uint64_t load_adapter(struct world *w)
{
    char top[64], dir[100];
    struct qr_err err;
    struct qr_model_config c;
    temp_dir_make(top, "no-malloc");
    snprintf(dir, sizeof dir, "%s/a", top);
    if (qr_model_config_read(&c, data_path("models/stories260K"), &err) != 0)
        qr_panic("%s", err.msg);
    lora_make(dir, &c, &(struct lora_make){.rank = 8, .alpha = 8, .seed = 1, .size = 0.05});
    if (qr_engine_load_adapter(w->engine, &(struct qr_adapter_source){.name = "a", .dir = dir}, &err) != 0 || qr_dir_remove(dir, &err) != 0 ||
        rmdir(top) != 0)
        qr_panic("%s", err.msg);
    return qr_engine_find_adapter(w->engine, "a");
}

enum { N = 16, STEPS = 110 };

static void start(struct world *w, struct flight *f, uint64_t adapter)
{
    static const int32_t prompt[40] = {1};
    struct qr_sampling s;
    struct qr_err err;
    qr_sampling_init(&s);
    s.max_tokens = 400;
    s.ignore_eos = true;
    s.top_p = 0.95f;
    s.n_logprobs = 5;
    s.stop[s.n_stops++] = "never to be seen";
    for (int i = 0; i < N; i++) {
        s.seed = (uint64_t)i;
        const struct guided g = {.grammar = i % 4 == 2 ? GRAMMAR_DIGITS : i % 4 == 3 ? GRAMMAR_THOUGHT : GRAMMAR_NONE};
        if (flight_start_guided(w, &f[i], &s, prompt, 40, 1, i % 2 ? adapter : 0, &g, &err) != 0)
            qr_panic("%s", err.msg);
    }
    for (int n = 0; n < N * 20;)
        n += world_pump(w, 100000);
}

/* A stretch of steps: true when it had enough of them (the engine may have run ahead while this thread had no processor) and no page fault. */
static bool stretch(struct world *w)
{
    struct qr_stats before, after;
    struct qr_view *view = qr_engine_view(w->engine);
    struct qr_step_record r[8];
    uint64_t at = qr_view_n_steps(view);
    int64_t n_steps = 0;
    atomic_store(&counting, true);
    qr_engine_stats(w->engine, &before);
    const int64_t faults_before = step_faults();
    for (int n = 0; n < N * STEPS;) {
        qr_engine_look(w->engine);
        n += world_pump(w, 100000);
        if (qr_view_take(view))
            qr_view_done(view);
        n_steps += qr_view_steps(view, &at, r, 8);
    }
    qr_engine_stats(w->engine, &after);
    const int64_t n_faults = step_faults() - faults_before;
    atomic_store(&counting, false);
    printf("%lld allocations so far and %lld page faults in %llu steps\n", (long long)atomic_load(&n_calls), (long long)n_faults,
           (unsigned long long)(after.n_steps - before.n_steps));
    return faults_before > 0 && n_faults == 0 && n_steps > 0 && after.n_steps - before.n_steps >= STEPS / 2;
}

/* No stretch allocates. A fault may be the system's doing, which moves pages about and reads code in when it is first run: of three stretches one has none, in
 * one of five flights. */
int main(void)
{
    ours = true;
    if (!data_path("models/stories260K")) {
        printf("SKIP stress_no_malloc: no conformance data (QUIRE_DATA)\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    struct world w;
    struct setup setup;
    setup_init(&setup, "models/stories260K");
    setup.config.lora_slots = 1;
    setup.config.draft_tokens = 7;
    char files[64];
    struct qr_err err;
    temp_dir_make(files, "no-malloc-files");
    setup.config.outside.file_dir = files;
    setup.config.outside.file_bytes = (int64_t)64 << 20;
    world_open(&w, &setup);
    const uint64_t adapter = load_adapter(&w);
    struct flight *f = qr_alloc(N, sizeof *f);
    bool good = false;
    for (int tries = 0; tries < 5 && !good; tries++) {
        start(&w, f, adapter);
        for (int i = 0; i < 3; i++)
            good = stretch(&w) || good;
        for (int i = 0; i < N; i++)
            flight_finish(&w, &f[i]);
    }
    world_close(&w);
    qr_free(f);
    if (qr_dir_remove(files, &err) != 0)
        qr_panic("%s", err.msg);
    good = good && atomic_load(&n_calls) == 0;
    printf("%d passed, %d failed\n", good, !good);
    return good ? 0 : 1;
}
#endif
