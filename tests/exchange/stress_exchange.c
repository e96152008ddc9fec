/* Random fetches of one side from another, directly and through a proxy that flips bits, cuts and stalls; fetches are stopped at random, and the lender is
 * closed and opened again. No wrong byte arrives, every fetch is over, and all parcels are back at the end. A plain program, for the thread sanitizer. */
#include <stdio.h>

#include "tests/exchange/flaky.h"
#include "tests/exchange/rig.h"
#include "tests/seed.h"

#define CHECK(c) ((c) ? (void)0 : (fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #c), exit(1)))

enum { N_FETCHES = 24, STOP_US = 150 * 1000, RUN_US_MAX = 30 * 1000 * 1000, N_BLOCKS = 300, N_REOPENED = 3 };

struct world {
    sem_t bell;
    struct rig side[2];
    struct flaky flaky;
    struct rig_fetch f[N_FETCHES];
    int64_t since_us[N_FETCHES];
    struct qr_rng rng;
    char address[QR_PEER_ADDRESS_MAX], through[QR_PEER_ADDRESS_MAX];
    int64_t n_over, n_arrived, n_whole, n_wrong, n_bad_order;
};

static void open_side(struct world *w, int i, const char *listen, const char *peer)
{
    struct qr_err err = {0};
    struct qr_exchange_config config = rig_config(&w->bell);
    config.listen = listen;
    config.peer[0] = peer;
    config.n_peers = peer != NULL;
    config.secret = "a secret";
    config.n_secret = 8;
    for (int n = 0; rig_open(&w->side[i], &config, &err) != 0; n++) { /* the port may still be in use by a connection that ends */
        CHECK(n < 100);
        usleep(20000);
    }
    w->side[i].n_has = 100000;
}

static void close_side(struct world *w, int i)
{
    w->n_wrong += w->side[i].n_wrong;
    w->n_bad_order += w->side[i].n_bad_order;
    rig_close(&w->side[i]);
}

static void turn(struct world *w)
{
    rig_step(&w->side[0]);
    rig_step(&w->side[1]);
    const int64_t now_us = qr_clock_us();
    for (int i = 0; i < N_FETCHES; i++) {
        struct rig_fetch *f = &w->f[i];
        if (f->over || w->since_us[i] == 0) {
            if (rig_stats(&w->side[1]).n_connected == 0 && qr_rng_below(&w->rng, 1000) > 0) /* these are over at once: a few will do */
                continue;
            w->n_over += f->over;
            w->n_whole += f->over && !f->fetch.why;
            w->n_arrived += f->n_arrived;
            rig_ask(&w->side[1], f, (int32_t)qr_rng_below(&w->rng, 1000), 1 + (int32_t)qr_rng_below(&w->rng, 40), 0);
            w->since_us[i] = now_us;
        } else if (now_us - w->since_us[i] > STOP_US + (f->arrived_us ? f->arrived_us - w->since_us[i] : 0) || qr_rng_below(&w->rng, 500) == 0) {
            qr_exchange_stop(w->side[1].x, &f->fetch);
        }
    }
    rig_wait(&w->bell, 1000);
}

static bool all_over(const struct world *w)
{
    for (int i = 0; i < N_FETCHES; i++)
        if (!w->f[i].over && w->since_us[i])
            return false;
    return true;
}

static void finish(struct world *w)
{
    for (int i = 0; i < N_FETCHES; i++)
        if (w->since_us[i] && !w->f[i].over)
            qr_exchange_stop(w->side[1].x, &w->f[i].fetch);
    CHECK(RIG_UNTIL(&w->bell, w->side, 2, all_over(w)));
}

static void run(const char *what, const char *listen, uint64_t seed, uint32_t bytes_between)
{
    static struct world w;
    w = (struct world){.rng = {.seed = seed}};
    sem_init(&w.bell, 0, 0);
    open_side(&w, 0, listen, NULL);
    snprintf(w.address, sizeof w.address, "%s", qr_exchange_address(w.side[0].x));
    if (bytes_between)
        flaky_open(&w.flaky, w.address, seed, bytes_between);
    snprintf(w.through, sizeof w.through, "%s", bytes_between ? w.flaky.from.text : w.address);
    open_side(&w, 1, NULL, w.through);
    const int64_t until_us = qr_clock_us() + RUN_US_MAX;
    for (int n = 0; n < N_REOPENED; n++) {
        for (const int64_t n_blocks = w.n_arrived + N_BLOCKS / (bytes_between ? 10 : 1); w.n_arrived < n_blocks && qr_clock_us() < until_us;)
            turn(&w);
        close_side(&w, 0); /* the lender goes, and comes back */
        open_side(&w, 0, w.address, NULL);
    }
    finish(&w);
    const struct qr_exchange_stats in = rig_stats(&w.side[1]);
    printf("%s: seed %llu, %lld fetches over, %lld whole, %lld blocks, %lld lost, %lld bad sums, %lld bad frames;", what, (unsigned long long)seed,
           (long long)w.n_over, (long long)w.n_whole, (long long)w.n_arrived, (long long)in.n_lost, (long long)in.n_bad_sum, (long long)in.n_bad_frame);
    printf(" %d connections, %d flips, %d cuts, %d stalls\n", atomic_load(&w.flaky.n_connections), atomic_load(&w.flaky.n_flips), atomic_load(&w.flaky.n_cuts),
           atomic_load(&w.flaky.n_stalls));
    close_side(&w, 1);
    close_side(&w, 0);
    CHECK(w.n_wrong == 0 && w.n_bad_order == 0);
    CHECK(qr_clock_us() < until_us);
    CHECK(bytes_between > 0 || w.n_whole > 0);
    CHECK(bytes_between == 0 || atomic_load(&w.flaky.n_flips) + atomic_load(&w.flaky.n_cuts) > 0);
    if (bytes_between)
        flaky_close(&w.flaky);
    sem_destroy(&w.bell);
}

int main(void)
{
    char path[64];
    const uint64_t seed = test_seed();
    snprintf(path, sizeof path, "unix:/tmp/quire-stress-%d", (int)getpid());
    run("TCP", "127.0.0.1:0", seed, 0);
    run("a Unix socket", path, seed + 1, 0);
    run("TCP through a proxy with faults", "127.0.0.1:0", seed + 2, 300000);
    run("TCP through a proxy with many", "127.0.0.1:0", seed + 3, 60000);
    return 0;
}
