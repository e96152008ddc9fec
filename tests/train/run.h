/* run.h - a small training run whose every byte can be compared: a step's batch is a function of the step, a digest covers all that a resumed run needs. */
#ifndef QR_TESTS_TRAIN_RUN_H
#define QR_TESTS_TRAIN_RUN_H

#include <ftw.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "tests/train/rig.h"
#include "train/checkpoint.h"
#include "tests/temp.h"

struct temp_dir {
    char path[64];
};

static inline struct temp_dir temp_dir_new(void)
{
    struct temp_dir d;
    temp_template(d.path, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", "run"); /* in memory: not as slow as a disk may be */
    cr_assert_not_null(mkdtemp(d.path));
    return d;
}

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline void temp_dir_remove(const struct temp_dir *d)
{
    nftw(d->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct qr_model_config tiny_config(enum qr_arch arch)
{
    struct qr_model_config c = qr_model_config_small(arch);
    c.n_ffn = 112;
    c.tied_head = arch == QR_ARCH_LLAMA;
    return c;
}

struct run {
    struct qr_backend *be;
    struct qr_params *p;
    struct qr_tape *t;
    struct qr_optim o;
};

/* Parameters of their own seed: two runs of different seeds have no number in common until one loads what the other saved. */
static inline struct run run_new_on(struct qr_backend *be, const struct qr_model_config *c, enum qr_dtype compute, enum qr_recompute recompute,
                                    enum qr_optimizer kind, uint64_t init)
{
    struct run r = {.be = be};
    const struct qr_tape_options to = {.n_tokens_max = 256, .n_seqs_max = 8, .recompute = recompute};
    const struct qr_optim_config oc = {.kind = kind, .momentum = 0.95, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = 0.01, .clip = 1, .seed = 5};
    struct qr_err err = {0};
    qr_params_init(&r.p, c, r.be, compute, 0.05, init);
    cr_assert_eq(qr_tape_open(&r.t, r.p, &to, &err), 0, "%s", err.msg);
    qr_optim_init(&r.o, r.p, &oc);
    return r;
}

static inline struct run run_new(const struct qr_model_config *c, enum qr_dtype compute, uint64_t init)
{
    return run_new_on(open_backend(NULL, 1), c, compute, QR_RECOMPUTE_NONE, QR_OPTIMIZER_ADAMW, init);
}

static inline void run_drop(struct run *r)
{
    qr_optim_release(&r->o);
    qr_tape_close(r->t);
    qr_params_close(r->p);
    qr_backend_close(r->be);
}

/* The next step; its loss. */
static inline double run_step(struct run *r)
{
    struct qr_train_batch b = random_batch(r->p->config.n_vocab, 3, 1000 + (uint64_t)r->o.step);
    struct qr_err err = {0};
    double norm;
    const double loss = qr_tape_loss(r->t, &b, 1.0f / (float)b.b.n_logits, NULL);
    walk_back(r->t);
    cr_assert_eq(qr_optim_step(&r->o, 1e-2, &norm, &err), 0, "%s", err.msg);
    qr_train_batch_release(&b);
    return loss;
}

static inline uint64_t hash_of(const struct qr_backend *be, const void *x, size_t n_bytes, uint64_t h)
{
    void *room = qr_alloc(n_bytes, 1);
    h = qr_hash64(qr_backend_read(be, room, x, n_bytes), n_bytes, h);
    qr_free(room);
    return h;
}

/* Of values, moments, and the rounded matrices. */
static inline uint64_t run_digest(const struct run *r)
{
    uint64_t h = (uint64_t)r->o.step;
    for (int32_t i = 0; i < r->p->n_params; i++) {
        const struct qr_param *t = &r->p->param[i];
        const size_t n = (size_t)t->n;
        h = hash_of(r->p->be, (float *)r->p->value + t->first, n * 4, h);
        h = hash_of(r->p->be, (float *)r->o.m + t->first, n * 4, h);
        h = hash_of(r->p->be, (float *)r->o.v + t->first, n * 4, h);
        if (r->p->half && t->n_dims == 2)
            h = hash_of(r->p->be, r->p->half + t->first, n * 2, h);
    }
    return h;
}

static inline struct qr_checkpoint_state run_state(const struct run *r)
{
    return (struct qr_checkpoint_state){.step = r->o.step, .position = 3 * r->o.step, .seed = UINT64_MAX - 1, .data_hash = 0xfedcba9876543210u,
                                        .n_tokens = 100 * r->o.step, .best_step = -1, .best_loss = NAN, .seconds = 0.1};
}

static inline int run_try_save(const struct run *r, const char *dir, int32_t keep, char path[QR_PATH_MAX], struct qr_err *err)
{
    const struct qr_checkpoint_source src = {.params = r->p, .optim = &r->o, .config_text = "model: tiny\n"};
    const struct qr_checkpoint_state state = run_state(r);
    return qr_checkpoint_save(dir, &src, &state, keep, path, err);
}

static inline void run_save(const struct run *r, const char *dir, int32_t keep)
{
    char path[QR_PATH_MAX];
    struct qr_err err = {0};
    cr_assert_eq(run_try_save(r, dir, keep, path, &err), 0, "%s", err.msg);
}

#endif
