/* rig.h - parameters, a tape and batches for the tests of training; and a backend in which everything is f64. */
#ifndef QR_TESTS_TRAIN_RIG_H
#define QR_TESTS_TRAIN_RIG_H

#include "tests/model/rig.h"
#include "train/optim.h"
#include "train/params.h"
#include "train/tape.h"

struct trainer {
    struct qr_backend *be;
    struct qr_params *p;
    struct qr_tape *t;
};

static inline struct qr_backend *open_backend(const char *isa, int32_t n_threads)
{
    struct qr_err err = {0};
    struct qr_backend *be = NULL;
    const struct qr_backend_options o = {.isa = isa, .n_threads = n_threads};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    return be;
}

/* Opens a model directory for training on `be`, which stays the caller's. */
static inline struct trainer trainer_new(struct qr_backend *be, const char *dir, enum qr_dtype real, enum qr_dtype compute, struct qr_tape_options o)
{
    struct trainer r = {.be = be};
    struct qr_err err = {0};
    cr_assert_eq(qr_params_open(&r.p, dir, be, real, compute, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tape_open(&r.t, r.p, &o, &err), 0, "%s", err.msg);
    return r;
}

static inline void trainer_drop(struct trainer *r)
{
    qr_tape_close(r->t);
    qr_params_close(r->p);
}

/* Sequences of random ids and lengths around the borders of cache blocks. */
static inline struct qr_train_batch random_batch(int32_t n_vocab, int32_t n_seqs, uint64_t seed)
{
    static const int32_t length[] = {17, 2, 18, 33, 16, 50};
    struct qr_rng rng = {.seed = seed};
    struct qr_train_batch b;
    qr_train_batch_init(&b, 256, 8);
    for (int32_t s = 0; s < n_seqs; s++) {
        const int32_t n = length[s % 6];
        int32_t *ids = random_ids(&rng, n, n_vocab);
        cr_assert(qr_train_batch_add(&b, ids, n, NULL));
        qr_free(ids);
    }
    return b;
}

static inline void walk_back(struct qr_tape *t)
{
    struct qr_err err = {0};
    cr_assert_eq(qr_tape_backward(t, &err), 0, "%s", err.msg);
}

/* Each document served alone, in chunks of 7, against its rows of the trainer's logits. */
static inline void check_logits(struct rig *r, const struct qr_batch *b, const float *logits, const char *what)
{
    for (int32_t s = 0; s < b->n_seqs; s++) {
        struct rig_seq seq = rig_seq_new(r, 0, NULL);
        const int32_t row = b->row_start[s], n = b->row_start[s + 1] - row;
        float *served = rig_prompt(r, &seq, b->ids + row, n, 7);
        cr_assert(memcmp(served, logits + (int64_t)row * rig_vocab(r), (size_t)n * (size_t)rig_vocab(r) * sizeof(float)) == 0, "%s, %s, %s: document %d", what,
                  r->be->k->name, qr_dtype_name(qr_model_weight_dtype(r->model)), s);
        qr_free(served);
        rig_seq_free(&seq);
    }
}

#endif
