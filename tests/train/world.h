/* world.h - a directory with a configuration and data of its own, and trainers opened on it. */
#ifndef QR_TESTS_TRAIN_WORLD_H
#define QR_TESTS_TRAIN_WORLD_H

#include "tests/train/run.h"

#include "base/buf.h"
#include "loader/config/hf_config.h"
#include "train/data/data_writer.h"
#include "train/trainer.h"
#include "train/variants/variants.h"

#define PIECE 32 /* rows of a document */
#define N_DOCS 24
#define PAIRS_MAX 24

/* A directory with a configuration (and one with a tied head, tied.json) and data: documents of PIECE + 1 ids, each id three more than the last, which a
 * model learns at once. */
struct world {
    struct temp_dir dir;
    char config[100], data[100], out[100];
};

static inline void put_file(const char *dir, const char *name, const char *text)
{
    char path[300];
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    cr_assert_eq(qr_file_replace(path, text, strlen(text), &err), 0, "%s", err.msg);
}

static inline void make_data(const char *dir, int32_t vocab_size, const char *tokenizer)
{
    struct qr_err err = {0};
    uint64_t hash;
    cr_assert_eq(mkdir(dir, 0777), 0);
    put_file(dir, "tokenizer.json", tokenizer);
    cr_assert_eq(qr_data_tokenizer_hash(&hash, dir, &err), 0, "%s", err.msg);
    struct qr_data_writer *w = qr_data_writer_new(&(struct qr_data_writer_options){.dir = dir, .vocab_size = vocab_size, .tokenizer = hash});
    for (int32_t d = 0; d < N_DOCS; d++) {
        int32_t ids[PIECE + 1];
        for (int32_t i = 0; i <= PIECE; i++)
            ids[i] = (5 * d + 3 * i) % 100;
        cr_assert_eq(qr_data_writer_add(w, ids, NULL, PIECE + 1, &err), 0, "%s", err.msg);
    }
    cr_assert_eq(qr_data_writer_finish(w, &err), 0, "%s", err.msg);
    qr_data_writer_free(w);
}

static inline struct world world_new(void)
{
    struct world w = {.dir = temp_dir_new()};
    struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    c.tied_head = false;
    struct qr_buf text = {0};
    snprintf(w.config, sizeof w.config, "%s/config.json", w.dir.path);
    snprintf(w.data, sizeof w.data, "%s/data", w.dir.path);
    snprintf(w.out, sizeof w.out, "%s/out", w.dir.path);
    qr_hf_config_write(&text, &c);
    put_file(w.dir.path, "config.json", text.data);
    c.tied_head = true;
    qr_buf_clear(&text);
    qr_hf_config_write(&text, &c);
    put_file(w.dir.path, "tied.json", text.data);
    qr_buf_release(&text);
    make_data(w.data, 100, "{}");
    cr_assert_eq(mkdir(w.out, 0777), 0);
    return w;
}

static inline void world_drop(struct world *w)
{
    temp_dir_remove(&w->dir);
}

struct session {
    struct qr_train_config *c; /* owned: the trainer keeps its address */
    struct qr_trainer *t;
};

/* The world's settings, then `more` (up to NULL), the last word of each being what counts. */
static inline int try_open_rank(struct session *s, const struct world *w, const char *const *more, const struct qr_train_variant *variant, struct qr_comm *comm,
                                struct qr_err *err)
{
    static const char *const fixed[] = {"data.sequence=32", "batch.tokens=128", "batch.sequences=4", "steps=12", "optimizer.lr=0.01", "optimizer.warmup=2",
                                        "compute.threads=1", "eval.every=0", "model.std=0.1"};
    char config[120], data[120], out[120];
    const char *pair[PAIRS_MAX] = {config, data, out};
    int32_t n = 3;
    snprintf(config, sizeof config, "model.config=%s", w->config);
    snprintf(data, sizeof data, "data.train=%s", w->data);
    snprintf(out, sizeof out, "save.out=%s", w->out);
    for (int i = 0; i < QR_COUNT(fixed); i++)
        pair[n++] = fixed[i];
    for (; more && *more; more++)
        pair[n++] = *more;
    *s = (struct session){.c = qr_alloc(1, sizeof *s->c)};
    struct qr_train_variant chosen = {0};
    int rc = qr_train_config_load(s->c, NULL, pair, n, err);
    rc = rc || variant ? rc : qr_train_variant_choose(&chosen, s->c, err);
    return rc ? rc : qr_trainer_open(&s->t, s->c, variant ? variant : &chosen, comm, err);
}

static inline int try_open(struct session *s, const struct world *w, const char *const *more, const struct qr_train_variant *variant, struct qr_err *err)
{
    return try_open_rank(s, w, more, variant, NULL, err);
}

static inline struct session session_new(const struct world *w, bool resume, const char *const *more, const struct qr_train_variant *variant)
{
    struct session s;
    struct qr_err err = {0};
    cr_assert_eq(try_open(&s, w, more, variant, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_trainer_begin(s.t, resume, &err), 0, "%s", err.msg);
    return s;
}

static inline void session_drop(struct session *s)
{
    qr_trainer_close(s->t);
    qr_train_config_release(s->c);
    qr_free(s->c);
}

static inline double step(struct session *s)
{
    struct qr_train_step out;
    struct qr_err err = {0};
    cr_assert_eq(qr_trainer_step(s->t, &out, &err), 0, "%s", err.msg);
    return out.loss;
}

/* Takes n steps; everything that a resumed run needs, and every loss, as one number. */
static inline uint64_t steps(struct session *s, int n)
{
    uint64_t h = 0;
    for (int i = 0; i < n; i++) {
        const double loss = step(s);
        h = qr_hash64(&loss, sizeof loss, h);
    }
    const struct run r = {.p = s->t->params, .o = s->t->optim};
    return h ^ run_digest(&r);
}

static inline uint64_t run_of(const struct world *w, const char *const *more, const struct qr_train_variant *variant, int n)
{
    struct session s = session_new(w, false, more, variant);
    const uint64_t h = steps(&s, n);
    session_drop(&s);
    return h;
}

#define WITH(...) (const char *const[]){__VA_ARGS__, NULL}

#endif
