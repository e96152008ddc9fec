/* Two engines that are each other's peer, one with a file tier: requests come to either at random, some are cancelled, roles change. Whatever comes from where,
 * an answer is the same each time. For the thread sanitizer, too. */
#include "base/file.h"
#include "engine/exchange.h"
#include "harness.h"
#include "tests/temp.h"

enum { N_PROMPTS = 24, N_FLIGHTS = 12, PROMPT_TOKENS = 96 };

struct sides {
    struct world w[2];
    struct flight *flight[2];   /* owned [N_FLIGHTS] each */
    int32_t kind[2][N_FLIGHTS]; /* which prompt */
    bool doomed[2][N_FLIGHTS];  /* it is cancelled when it is looked at next */
    struct answer *known;       /* owned [N_PROMPTS]; n 0: none yet */
    int32_t prompt[N_PROMPTS][PROMPT_TOKENS];
    int64_t n_same, n_wrong, n_cancelled;
};

static void make_prompts(struct sides *s)
{
    for (int32_t k = 0; k < N_PROMPTS; k++)
        for (int32_t i = 0; i < PROMPT_TOKENS; i++)
            s->prompt[k][i] = 3 + (i < 12 * (k % 4) ? 7 * i : 31 * k + 13 * i) % 480; /* some begin alike */
}

static void open_side(struct sides *s, int side, const char *dir, const char *path, const char *const *peer)
{
    struct setup setup;
    setup_init(&setup, "models/stories260K");
    setup.config.block_tokens = 4;
    setup.config.ctx_max = 160;
    setup.config.kv_tokens = 1024;
    setup.config.running_max = 6;
    setup.config.step_tokens_max = 64;
    setup.config.outside = (struct qr_engine_outside){.listen = path, .peer = peer, .n_peers = 1, .file_dir = side == 0 ? dir : NULL,
                                                      .file_bytes = (int64_t)32 << 20};
    setup.n_threads = 1;
    world_open(&s->w[side], &setup);
}

/* One that has ended is compared with what was answered before. */
static void settle_flight(struct sides *s, int side, int32_t i)
{
    struct flight *f = &s->flight[side][i];
    struct answer *known = &s->known[s->kind[side][i]];
    if (!f->done)
        return;
    f->done = false;
    if (f->answer[0].finish == QR_FINISH_CANCEL) {
        s->n_cancelled++;
        return;
    }
    if (known->n == 0)
        *known = f->answer[0];
    else if (answers_equal(known, &f->answer[0]))
        s->n_same++;
    else
        s->n_wrong++;
}

static void one_round(struct sides *s, struct qr_rng *rng)
{
    const int side = (int)qr_rng_below(rng, 2);
    const int32_t i = (int32_t)qr_rng_below(rng, N_FLIGHTS), k = (int32_t)qr_rng_below(rng, N_PROMPTS);
    struct flight *f = &s->flight[side][i];
    struct qr_sampling p;
    struct qr_err err;
    if (qr_rng_below(rng, 20) == 0)
        qr_engine_set_role(s->w[side].engine, (enum qr_side)qr_rng_below(rng, 3));
    if (f->req && s->doomed[side][i])
        qr_engine_cancel(s->w[side].engine, f->req);
    if (!f->req) {
        settle_flight(s, side, i);
        qr_sampling_init(&p);
        p.max_tokens = 6;
        p.seed = (uint64_t)k;
        p.n_logprobs = 1;
        s->kind[side][i] = k;
        s->doomed[side][i] = qr_rng_below(rng, 8) == 0;
        if (flight_start(&s->w[side], f, &p, s->prompt[k], PROMPT_TOKENS - k, 1, &err) != 0)
            qr_panic("%s", err.msg);
    }
    world_pump(&s->w[side], 1000);
    world_pump(&s->w[1 - side], 0);
}

static void end_all(struct sides *s)
{
    for (int side = 0; side < 2; side++)
        for (int32_t i = 0; i < N_FLIGHTS; i++) {
            while (s->flight[side][i].req) {
                world_pump(&s->w[side], 1000);
                world_pump(&s->w[1 - side], 0);
            }
            settle_flight(s, side, i);
        }
}

int main(void)
{
    struct sides s = {0};
    struct qr_rng rng = {.seed = 5};
    struct qr_err err;
    struct qr_stats st[2];
    char dir[64], files[80], path[2][QR_PEER_ADDRESS_MAX];
    if (!data_path("models/stories260K")) {
        printf("SKIP stress_exchange: no conformance data (QUIRE_DATA)\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    temp_dir_make(dir, "sides");
    snprintf(files, sizeof files, "%s/files", dir);
    const char *peer[2] = {path[1], path[0]};
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "unix:%s/%c", dir, 'a' + i);
    make_prompts(&s);
    s.known = qr_alloc(N_PROMPTS, sizeof *s.known);
    for (int i = 0; i < 2; i++) {
        s.flight[i] = qr_alloc(N_FLIGHTS, sizeof *s.flight[i]);
        open_side(&s, i, files, path[i], &peer[i]);
    }
    const int64_t n = (int64_t)(150 * test_scale());
    while (s.n_same + s.n_wrong < n)
        one_round(&s, &rng);
    end_all(&s);
    for (int i = 0; i < 2; i++)
        world_settle(&s.w[i], &st[i]);
    const bool good = s.n_wrong == 0 && st[0].n_from_peer + st[1].n_from_peer > 0;
    printf("%lld answers again, %lld of them other ones, %lld cancelled; tokens from peers %llu and %llu, from files %llu; prompts for peers %llu and %llu, "
           "given up %llu and %llu\n%d passed, %d failed\n", (long long)(s.n_same + s.n_wrong), (long long)s.n_wrong, (long long)s.n_cancelled,
           (unsigned long long)st[0].n_from_peer, (unsigned long long)st[1].n_from_peer, (unsigned long long)st[0].n_from_file,
           (unsigned long long)st[0].outside.n_for_peers, (unsigned long long)st[1].outside.n_for_peers, (unsigned long long)st[0].outside.n_given_up,
           (unsigned long long)st[1].outside.n_given_up, good, !good);
    for (int i = 0; i < 2; i++) {
        world_close(&s.w[i]);
        qr_free(s.flight[i]);
    }
    qr_free(s.known);
    if (qr_dir_remove(files, &err) != 0 || qr_dir_remove(dir, &err) != 0)
        qr_panic("%s", err.msg);
    return good ? 0 : 1;
}
