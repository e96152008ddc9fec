/* What stands behind a window is of no matter: the scheduler gives such blocks to other sequences (scheduler/sched.h). */
#include "tests/model/rig.h"

enum { N = 300, CHUNK = 21, WINDOW = 40, P = 16, GARBAGE = 60 };

/* Blocks 60 and on hold another sequence's keys and values; every block wholly behind the window of the next row becomes one of them. */
static float *forgetful_prompt(struct rig *r, struct rig_seq *s, const int32_t *ids)
{
    const size_t v = (size_t)rig_vocab(r);
    float *all = qr_alloc(N * v, sizeof *all);
    for (int32_t at = 0, n; at < N; at += n) {
        n = N - at < CHUNK ? N - at : CHUNK;
        for (int32_t b = 0; (b + 1) * P <= at - WINDOW + 1; b++)
            s->table[b] = GARBAGE + b % 4;
        float *part = rig_step(r, &(struct rig_item){s, ids + at, n, RIG_ALL}, 1);
        memcpy(all + (size_t)at * v, part, (size_t)n * v * sizeof *all);
        qr_free(part);
    }
    return all;
}

Test(model, blocks_behind_the_window_may_hold_anything)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_MISTRAL);
    const char *names[8];
    struct qr_rng rng = {.seed = 5};
    c.window = WINDOW;
    struct temp_model t = temp_model_make(&c, QR_F32);
    int32_t *ids = random_ids(&rng, N, c.n_vocab), *others = random_ids(&rng, 4 * P, c.n_vocab);
    for (int32_t i = 0, n = levels(names); i < n; i++)
        for (enum qr_kv_cache kv = QR_KV_CACHE_F32; kv <= QR_KV_CACHE_INT8; kv++) {
            struct rig r;
            rig_open(&r, t.dir, (struct rig_options){.isa = names[i], .kv_cache = kv, .block_tokens = P});
            struct rig_seq s = rig_seq_new(&r, 0, NULL), other = rig_seq_new(&r, GARBAGE, NULL);
            qr_free(rig_prompt(&r, &other, others, 4 * P, P));
            float *want = rig_prompt(&r, &s, ids, N, N);
            s.n_done = 0;
            float *got = forgetful_prompt(&r, &s, ids);
            cr_expect_eq(memcmp(got, want, (size_t)N * (size_t)c.n_vocab * sizeof *got), 0, "%s, cache %d", names[i], (int)kv);
            qr_free(want);
            qr_free(got);
            rig_seq_free(&s);
            rig_seq_free(&other);
            rig_close(&r);
        }
    qr_free(ids);
    qr_free(others);
    temp_model_remove(&t);
}
