/* Four threads submit, cancel and read statistics while the engine runs: for the thread sanitizer. Every request ends exactly once, and
 * afterwards the ledger balances. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/rng.h"
#include "engine/view.h"
#include "harness.h"

enum { N_THREADS = 4, N_FLIGHTS = 24 };

struct shared {
    struct world w;
    pthread_mutex_t lock; /* over taking events and over the flights' `req`: cancel wants a request whose end was not taken */
    struct flight *flight[N_THREADS];
    _Atomic int64_t n_submitted, n_refused, n_looks, n_steps;
    uint64_t at; /* of the records of steps: worker 0's */
    int32_t n_rounds;
};

struct worker {
    struct shared *shared;
    int32_t index;
};

static void pump(struct shared *sh)
{
    pthread_mutex_lock(&sh->lock);
    world_pump(&sh->w, 200);
    pthread_mutex_unlock(&sh->lock);
}

/* One thread looks; the lock keeps the requests that the look met. */
static void look(struct shared *sh)
{
    struct qr_view *view = qr_engine_view(sh->w.engine);
    struct qr_step_record r[64];
    const struct qr_look *l;
    pthread_mutex_lock(&sh->lock);
    qr_engine_look(sh->w.engine);
    while (!(l = qr_view_take(view)))
        usleep(50);
    int32_t n[4] = {0}, n_blocks = 0;
    for (int32_t i = 0; i < l->n_cells; i++)
        n[l->cell[i].use]++;
    QR_ASSERT(n[QR_KV_FREE] == l->n_free && n[QR_KV_CACHED] == l->n_cached && n[QR_KV_USED] == l->n_used && n[QR_KV_SHARED] == l->n_shared);
    QR_ASSERT(l->n_free + l->n_cached + l->n_used + l->n_shared == l->n_blocks);
    for (int32_t t = 0; t < N_THREADS; t++)
        for (int32_t i = 0; i < N_FLIGHTS; i++)
            if (sh->flight[t][i].req && sh->flight[t][i].req->look.number == l->number)
                n_blocks += sh->flight[t][i].req->look.n_blocks;
    QR_ASSERT(n_blocks >= l->n_used + l->n_shared);
    qr_view_done(view);
    pthread_mutex_unlock(&sh->lock);
    atomic_fetch_add(&sh->n_looks, 1);
    const int32_t n_read = qr_view_steps(view, &sh->at, r, 64);
    for (int32_t i = 0; i < n_read; i++)
        QR_ASSERT(r[i].us >= 0 && r[i].part_us[QR_PART_MODEL] <= r[i].us && (i == 0 || r[i].begun_us >= r[i - 1].begun_us + r[i - 1].us));
    atomic_fetch_add(&sh->n_steps, n_read);
}

static void one_round(struct shared *sh, struct flight *f, struct qr_rng *rng)
{
    struct qr_sampling s;
    struct qr_err err;
    struct qr_stats st;
    int32_t prompt[40];
    pthread_mutex_lock(&sh->lock);
    if (f->req && qr_rng_below(rng, 2))
        qr_engine_cancel(sh->w.engine, f->req);
    bool free_now = !f->req;
    pthread_mutex_unlock(&sh->lock);
    if (!free_now) {
        pump(sh);
        return;
    }
    qr_sampling_init(&s);
    s.max_tokens = (int32_t)qr_rng_below(rng, 40);
    s.seed = rng->pos;
    s.n_logprobs = (int32_t)qr_rng_below(rng, 3) - 1;
    int32_t n = 1 + (int32_t)qr_rng_below(rng, 39);
    for (int32_t i = 0; i < n; i++)
        prompt[i] = 3 + (int32_t)qr_rng_below(rng, 500);
    pthread_mutex_lock(&sh->lock);
    const struct guided guided = {.grammar = qr_rng_below(rng, 2) ? (enum grammar_kind)qr_rng_below(rng, GRAMMAR_KINDS) : GRAMMAR_NONE};
    int rc = flight_start_guided(&sh->w, f, &s, prompt, n, 1 + (int32_t)qr_rng_below(rng, 3), 0, &guided, &err);
    pthread_mutex_unlock(&sh->lock);
    atomic_fetch_add(rc == 0 ? &sh->n_submitted : &sh->n_refused, 1);
    QR_ASSERT(rc == 0 || rc == QR_E_BUSY);
    qr_engine_stats(sh->w.engine, &st);
    QR_ASSERT(st.n_accepted == st.n_done_stop + st.n_done_length + st.n_cancelled + st.n_failed + st.n_inside);
    bool work;
    qr_engine_progress_us(sh->w.engine, &work);
    pump(sh);
}

static void *work(void *arg)
{
    struct worker *me = arg;
    struct qr_rng rng = {.seed = 1000 + (uint64_t)me->index};
    for (int32_t i = 0; i < me->shared->n_rounds; i++) {
        if (me->index == 0 && i % 16 == 0)
            look(me->shared);
        one_round(me->shared, &me->shared->flight[me->index][qr_rng_below(&rng, N_FLIGHTS)], &rng);
    }
    return NULL;
}

int main(void)
{
    if (!data_path("models/stories260K")) {
        printf("SKIP stress_engine: no conformance data (QUIRE_DATA)\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    struct shared sh = {.n_rounds = (int32_t)(2000 * test_scale())};
    struct setup setup;
    setup_init(&setup, "models/stories260K");
    setup.config.running_max = 8;
    setup.config.waiting_max = 16;
    setup.config.kv_tokens = 512;
    setup.config.ctx_max = 128;
    setup.config.draft_tokens = 7;
    pthread_mutex_init(&sh.lock, NULL);
    world_open(&sh.w, &setup);
    pthread_t thread[N_THREADS];
    struct worker worker[N_THREADS];
    for (int32_t i = 0; i < N_THREADS; i++)
        sh.flight[i] = qr_alloc(N_FLIGHTS, sizeof **sh.flight);
    for (int32_t i = 0; i < N_THREADS; i++) {
        worker[i] = (struct worker){.shared = &sh, .index = i};
        if (pthread_create(&thread[i], NULL, work, &worker[i]) != 0)
            qr_panic("cannot start a thread");
    }
    for (int32_t i = 0; i < N_THREADS; i++)
        pthread_join(thread[i], NULL);
    struct qr_stats st;
    world_settle(&sh.w, &st);
    for (int i = 0; i < 1000 && (int64_t)st.n_accepted < atomic_load(&sh.n_submitted); i++)
        world_settle(&sh.w, &st); /* counters are published behind the events */
    bool good = (int64_t)st.n_accepted == atomic_load(&sh.n_submitted) && st.n_accepted > 100 * test_scale() && sh.n_looks > 0 && sh.n_steps > 0;
    printf("%llu requests accepted, %lld refused, %lld preemptions, %lld looks, %lld steps read\n%d passed, %d failed\n", (unsigned long long)st.n_accepted,
           (long long)atomic_load(&sh.n_refused), (long long)st.sched.n_preempted, (long long)sh.n_looks, (long long)sh.n_steps, good, !good);
    world_close(&sh.w);
    for (int32_t i = 0; i < N_THREADS; i++)
        qr_free(sh.flight[i]);
    return good ? 0 : 1;
}
