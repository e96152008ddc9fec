/* crew.h - a model shared out to ranks that are threads: the test is rank 0, the others follow. */
#ifndef QR_TESTS_MODEL_CREW_H
#define QR_TESTS_MODEL_CREW_H

#include <pthread.h>

#include "tests/comm/threads.h"
#include "tests/model/rig.h"

#define RANKS_MAX 4

struct follower {
    const char *dir;
    struct rig_options o;
    pthread_t thread;
    int rc;
};

struct crew {
    struct qr_comm comm[RANKS_MAX];
    struct follower f[RANKS_MAX];
    struct rig r; /* of rank 0 */
    int32_t n;
};

static inline void *crew_follow(void *arg)
{
    struct follower *f = arg;
    struct rig r;
    struct qr_err err;
    rig_open(&r, f->dir, f->o);
    f->rc = qr_exec_follow(&r.exec, &err);
    rig_close(&r);
    return NULL;
}

static inline void crew_open(struct crew *w, const char *dir, struct rig_options o, int32_t n)
{
    *w = (struct crew){.n = n};
    if (n > 1)
        open_threads(w->comm, n);
    for (int32_t i = 1; i < n; i++) {
        w->f[i] = (struct follower){.dir = dir, .o = o};
        w->f[i].o.comm = &w->comm[i];
        cr_assert_eq(pthread_create(&w->f[i].thread, NULL, crew_follow, &w->f[i]), 0);
    }
    o.comm = n > 1 ? &w->comm[0] : NULL;
    rig_open(&w->r, dir, o);
}

/* want: what the others end with. */
static inline void crew_close(struct crew *w, int want)
{
    rig_close(&w->r);
    for (int32_t i = 1; i < w->n; i++) {
        pthread_join(w->f[i].thread, NULL);
        cr_expect_eq(w->f[i].rc, want, "rank %d ended with %d", i, w->f[i].rc);
    }
    for (int32_t i = 0; w->n > 1 && i < w->n; i++) /* here, so that a test may have a rank give up at any time */
        qr_comm_close(&w->comm[i]);
}

/* An adapter into a slot of all ranks, in pieces of no particular length. */
static inline void crew_adapt(struct crew *w, int32_t slot, const char *dir)
{
    enum { PIECE = 1000 };
    struct qr_lora_file *f;
    struct qr_err err = {0};
    cr_assert_eq(qr_lora_file_open(&f, dir, NULL, qr_lora_file_max(w->r.lora), &err), 0, "%s", err.msg);
    cr_assert_eq(qr_lora_fill(w->r.lora, slot, f, &err), 0, "%s", err.msg);
    for (int32_t rank = 1; rank < w->n; rank++) {
        struct qr_lora_piece p = {.rank = rank, .slot = slot, .total = qr_lora_pack(w->r.lora, rank, f)};
        for (; p.first < p.total; p.first += p.n) {
            p.n = p.total - p.first < PIECE ? p.total - p.first : PIECE;
            qr_exec_send_piece(&w->r.exec, &p, qr_lora_packed(w->r.lora) + p.first);
        }
    }
    qr_lora_file_close(f);
}

/* Logits of every position of n_ids, computed by n ranks in chunks; with an adapter where there is a directory of one. */
static inline float *crew_adapted_logits(const char *dir, const char *adapter, struct rig_options o, int32_t n, const int32_t *ids, int32_t n_ids,
                                         int32_t chunk)
{
    struct crew w;
    o.slots = adapter ? 1 : 0;
    crew_open(&w, dir, o, n);
    struct rig_seq s = rig_seq_new(&w.r, 3, NULL);
    s.adapter = o.slots;
    if (adapter)
        crew_adapt(&w, 0, adapter);
    float *all = rig_prompt(&w.r, &s, ids, n_ids, chunk);
    rig_seq_free(&s);
    crew_close(&w, 0);
    return all;
}

static inline float *crew_logits(const char *dir, struct rig_options o, int32_t n, const int32_t *ids, int32_t n_ids, int32_t chunk)
{
    return crew_adapted_logits(dir, NULL, o, n, ids, n_ids, chunk);
}

static inline double furthest(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

#endif
