/* ranks.h - several trainers at work on one run, as threads of this process. Threads report; the test's own thread asserts. */
#ifndef QR_TESTS_TRAIN_RANKS_H
#define QR_TESTS_TRAIN_RANKS_H

#include <pthread.h>

#include "base/file.h"
#include "base/files/map_file.h"
#include "tests/comm/threads.h"
#include "tests/train/world.h"

#define RANKS_MAX 4

/* What every rank does, what it saw, and how it ended. */
struct rank {
    const struct world *w;
    const char *const *more;
    const struct qr_train_variant *variant; /* NULL: as the settings say */
    void (*before)(struct rank *r);         /* when the trainer has begun, and before each step; NULL: nothing */
    void (*after)(struct rank *r);          /* before the trainer is closed; NULL: nothing */
    struct qr_comm comm;
    struct session s;
    int n_steps, n_taken;
    bool resume, save;
    uint64_t digest;                        /* of losses and norms */
    bool stopped;
    int rc;
    struct qr_err err;
};

static inline int rank_steps(struct rank *r)
{
    struct qr_trainer *t = r->s.t;
    struct qr_train_step out;
    double held_out;
    int64_t n;
    int rc = 0;
    for (r->n_taken = 0; rc == 0 && r->n_taken < r->n_steps && !r->stopped; r->n_taken++) {
        if (r->before)
            r->before(r);
        if ((rc = qr_trainer_step(t, &out, &r->err)) != 0)
            break;
        const double seen[] = {out.loss, out.norm, (double)out.n_tokens, out.flops};
        r->digest = qr_hash64(seen, sizeof seen, r->digest);
        r->stopped = out.stop;
        if (t->eval_feed && (rc = qr_trainer_evaluate(t, &held_out, &n, &r->err)) == 0)
            r->digest = qr_hash64(&held_out, sizeof held_out, r->digest + (uint64_t)n);
    }
    return rc;
}

static inline void *rank_main(void *user)
{
    struct rank *r = user;
    char path[QR_PATH_MAX];
    r->rc = try_open_rank(&r->s, r->w, r->more, r->variant, &r->comm, &r->err);
    if (r->rc == 0)
        r->rc = qr_trainer_begin(r->s.t, r->resume, &r->err);
    if (r->rc == 0)
        r->rc = rank_steps(r);
    if (r->rc == 0 && r->save)
        r->rc = qr_trainer_save(r->s.t, path, &r->err);
    if (r->after && r->s.t)
        r->after(r);
    if (r->rc)
        qr_comm_abort(&r->comm, r->err.msg);
    session_drop(&r->s);
    qr_comm_close(&r->comm);
    return NULL;
}

/* All ranks, each a copy of `like`, to their ends. */
static inline void ranks_run(struct rank *rank, int32_t n, const struct rank *like)
{
    struct qr_comm comm[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    cr_assert(n <= RANKS_MAX);
    open_threads(comm, n);
    for (int32_t i = 0; i < n; i++) {
        rank[i] = *like;
        rank[i].comm = comm[i];
        cr_assert_eq(pthread_create(&thread[i], NULL, rank_main, &rank[i]), 0);
    }
    for (int32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

/* Of what a checkpoint's two files hold. */
static inline uint64_t files_of(const struct world *w, int step)
{
    static const char *const name[] = {"model.safetensors", "optimizer.safetensors"};
    uint64_t h = 0;
    for (int i = 0; i < QR_COUNT(name); i++) {
        char path[300];
        struct qr_map_file f;
        struct qr_err err = {0};
        snprintf(path, sizeof path, "%s/step-%08d/%s", w->out, step, name[i]);
        cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
        h = qr_hash64(f.data, f.n_bytes, h);
        qr_map_file_close(&f);
    }
    return h;
}

/* n ranks take steps, the first of a run or the next of the latest checkpoint, and save. What they saw, which is the same on all. */
static inline uint64_t ranks_of(const struct world *w, const char *const *more, int32_t n, int n_steps, bool resume)
{
    struct rank rank[RANKS_MAX];
    const struct rank like = {.w = w, .more = more, .n_steps = n_steps, .resume = resume, .save = true};
    ranks_run(rank, n, &like);
    for (int32_t i = 0; i < n; i++) {
        cr_assert_eq(rank[i].rc, 0, "rank %d of %d: %s", i, n, rank[i].err.msg);
        cr_assert_eq(rank[i].digest, rank[0].digest, "rank %d of %d has seen something else", i, n);
    }
    return rank[0].digest;
}

#endif
