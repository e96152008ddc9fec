/* A steady step allocates nothing: every allocation of any thread but this one is counted while 16 sequences decode. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    printf("SKIP stress_no_malloc: the sanitizer owns malloc\n0 passed, 0 failed, 1 skipped\n");
    return 0;
}
#else
static _Atomic bool counting;
static _Atomic int64_t n_calls;
static _Thread_local bool ours;

static void note(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed) && !ours)
        atomic_fetch_add(&n_calls, 1);
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    note();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    note();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    note();
    return __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    note();
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}

int main(void)
{
    enum { N = 16 };
    ours = true;
    if (!data_path("models/stories260K")) {
        printf("SKIP stress_no_malloc: no conformance data (QUIRE_DATA)\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    struct world w;
    struct setup setup;
    struct qr_err err;
    setup_init(&setup, "models/stories260K");
    world_open(&w, &setup);
    struct flight *f = qr_alloc(N, sizeof *f);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 400;
    s.ignore_eos = true;
    s.top_p = 0.95f;
    s.n_logprobs = 5;
    s.stop[s.n_stops++] = "never to be seen";
    int32_t prompt[40] = {1};
    for (int i = 0; i < N; i++) {
        s.seed = (uint64_t)i;
        if (flight_start(&w, &f[i], &s, prompt, 40, 1, &err) != 0)
            qr_panic("%s", err.msg);
    }
    for (int n = 0; n < N * 20;)
        n += world_pump(&w, 100000);
    atomic_store(&counting, true);
    struct qr_stats before, after;
    qr_engine_stats(w.engine, &before);
    for (int n = 0; n < N * 200;)
        n += world_pump(&w, 100000);
    qr_engine_stats(w.engine, &after);
    atomic_store(&counting, false);
    for (int i = 0; i < N; i++)
        flight_finish(&w, &f[i]);
    world_close(&w);
    qr_free(f);
    printf("%lld allocations in %llu steps\n", (long long)atomic_load(&n_calls), (unsigned long long)(after.n_steps - before.n_steps));
    bool good = atomic_load(&n_calls) == 0 && after.n_steps - before.n_steps >= 100;
    printf("%d passed, %d failed\n", good, !good);
    return good ? 0 : 1;
}
#endif
