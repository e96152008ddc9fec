/* trainer.c - a run begun, evaluated, saved and ended. Opening and planning are trainer_open.c's, steps
 * trainer_step.c's. Evaluation is the forward pass over held-out documents and changes nothing. A save brings the parts
 * of all ranks to rank 0 and is complete or not there (checkpoint.h). One owning thread, that of the backend's queue.
 */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/files/map_file.h"
#include "train/checkpoint_parts.h"
#include "train/trainer_parts.h"

/* ---- beginning ---- */

/* Of the data that positions count in. */
static int data_hash(uint64_t *out, const struct qr_trainer *t, struct qr_err *err)
{
    char path[4200];
    struct qr_map_file f;
    snprintf(path, sizeof path, "%s/data.json", t->c->data.train);
    int rc = qr_map_file_open(&f, path, SIZE_MAX, err);
    if (rc)
        return rc;
    *out = qr_hash64(f.data, f.n_bytes, (uint64_t)t->c->data.sequence);
    qr_map_file_close(&f);
    return 0;
}

static int resume(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    const struct qr_checkpoint_state fresh = t->state;
    char path[QR_PATH_MAX], at[400];
    int rc = qr_checkpoint_latest(c->save.out, path, err);
    rc = rc ? rc : qr_checkpoint_load(path, t->params, &t->optim, &t->state, err);
    if (rc)
        return qr_trainer_blame(c, "save.out", err);
    if (t->state.seed != fresh.seed)
        return qr_err_set(err, QR_E_INVALID, "%s: %llu, but the run in %s has seed %llu; a resumed run keeps it", qr_train_config_where(c, "seed", at),
                          (unsigned long long)fresh.seed, path, (unsigned long long)t->state.seed);
    if (t->state.data_hash && t->state.data_hash != fresh.data_hash)
        return qr_err_set(err, QR_E_INVALID, "%s: %s, with data.sequence %lld, is not what the run in %s learns from (hash %016llx, expected %016llx)",
                          qr_train_config_where(c, "data.train", at), c->data.train, (long long)c->data.sequence, path,
                          (unsigned long long)fresh.data_hash, (unsigned long long)t->state.data_hash);
    t->state.leaves = fresh.leaves; /* settings that name others get them */
    return 0;
}

/* Parameters in place of planned ones, with the same tensors frozen. */
static int fill_params(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    struct qr_params *planned = t->params, *p;
    struct qr_params_hold hold = qr_gather_hold(&t->par.gather);
    hold.progress = t->progress;
    if (c->model.from) {
        int rc = qr_params_open_held(&p, c->model.from, t->be, QR_F32, qr_trainer_compute(c), &hold, err);
        if (rc)
            return qr_trainer_blame(c, "model.from", err);
    } else
        qr_params_init_held(&p, &t->model, t->be, qr_trainer_compute(c), c->model.std, (uint64_t)c->seed, &hold);
    if (planned->n_params > p->n_params)
        qr_params_extend(p, planned->param + p->n_params, planned->n_params - p->n_params);
    QR_ASSERT(p->n_params == planned->n_params);
    p->hold.progress = NULL;
    for (int32_t k = 0; k < p->n_params; k++)
        p->param[k].frozen = planned->param[k].frozen;
    t->params = p;
    qr_params_close(planned);
    if (t->variant.fresh)
        t->variant.fresh(t->variant.user, p);
    return 0;
}

int qr_trainer_begin(struct qr_trainer *t, bool resumed, struct qr_err *err)
{
    QR_ASSERT(t != NULL && err != NULL);
    QR_ASSERT(t->params->planned);
    const struct qr_train_config *c = t->c;
    const struct qr_optim_config oc = {.kind = (enum qr_optimizer)c->optimizer.kind, .momentum = c->optimizer.momentum, .beta1 = c->optimizer.beta1,
                                       .beta2 = c->optimizer.beta2, .eps = c->optimizer.eps, .decay = c->optimizer.decay, .clip = c->optimizer.clip,
                                       .seed = (uint64_t)c->seed};
    int rc = fill_params(t, err);
    rc = rc ? rc : qr_tape_open(&t->tape, t->params, &t->tape_options, err);
    if (rc)
        return rc;
    qr_optim_init(&t->optim, t->params, &oc);
    qr_train_batch_init(&t->batch, t->tape_options.n_tokens_max, t->tape_options.n_seqs_max);
    t->losses = qr_alloc((size_t)t->tape_options.n_tokens_max, sizeof *t->losses);
    t->positions = qr_alloc((size_t)c->batch.micro + 1, sizeof *t->positions);
    qr_parallel_open(&t->par, t->params, t->tape, &t->optim, t->tape_options.n_tokens_max);
    t->state = (struct qr_checkpoint_state){.seed = (uint64_t)c->seed, .leaves = t->par.n_leaves, .best_step = -1, .best_loss = NAN};
    rc = data_hash(&t->state.data_hash, t, err);
    if (!rc && resumed)
        rc = resume(t, err);
    if (!rc && t->variant.begin)
        rc = t->variant.begin(t->variant.user, t->params, t->tape, err);
    return rc;
}

/* ---- evaluation and saving ---- */

struct held_out {
    double loss;
    int64_t n_targets, n_tokens, tokens_max;
};

/* Batches come in the order of the data, so the sum goes on from target to target, however many ranks there are. */
static void add_batch(void *user, const double *losses, int32_t n, int64_t n_tokens)
{
    struct held_out *h = user;
    if (h->tokens_max > 0 && h->n_tokens >= h->tokens_max)
        return;
    h->loss = qr_trainer_add_losses(h->loss, losses, n);
    h->n_targets += n;
    h->n_tokens += n_tokens;
}

/* A batch for each rank, as many as there are; a rank without one computes the round's first, because layers may be gathered by all ranks together. *n: how
 * many there were. */
static int evaluate_round(struct qr_trainer *t, int64_t *position, int32_t *n, struct held_out *h, struct qr_err *err)
{
    const int32_t rank = t->par.comm->rank;
    int64_t mine = *position;
    for (*n = 0; *n < t->par.comm->size; ++*n) {
        const int64_t begin = *position;
        if (qr_feed_skip(t->eval_feed, position) == 0)
            break;
        mine = *n == rank ? begin : mine;
    }
    if (*n == 0)
        return 0;
    const bool any = qr_feed_next(t->eval_feed, &mine, &t->batch);
    QR_ASSERT(any);
    qr_tape_evaluate(t->tape, &t->batch, t->losses);
    const bool counts = rank < *n;
    return qr_parallel_losses(&t->par, t->losses, counts ? t->batch.b.n_logits : 0, counts ? t->batch.b.n_tokens : 0, add_batch, h, err);
}

int qr_trainer_evaluate(struct qr_trainer *t, double *loss, int64_t *n_targets, struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->tape != NULL && t->eval_feed != NULL);
    QR_ASSERT(loss != NULL && n_targets != NULL && err != NULL);
    struct held_out h = {.tokens_max = t->c->eval.tokens};
    int64_t position = 0;
    int32_t n = 1;
    int rc = 0;
    while (rc == 0 && n > 0 && (h.tokens_max == 0 || h.n_tokens < h.tokens_max))
        rc = evaluate_round(t, &position, &n, &h, err);
    if (rc)
        return qr_trainer_give_up(t, rc, err);
    QR_ASSERT(h.n_targets > 0);
    *n_targets = h.n_targets;
    *loss = h.loss / (double)h.n_targets;
    if (!isfinite(*loss))
        return qr_err_set(err, QR_E_INVALID, "behind step %lld: the loss of held-out data is %g", (long long)t->optim.step, fabs(*loss));
    if (!(*loss >= t->state.best_loss)) { /* NaN: there is none yet */
        t->state.best_loss = *loss;
        t->state.best_step = t->optim.step;
    }
    return 0;
}

static int bring(void *user, const struct qr_part *part, int64_t first, int64_t n, void *out, struct qr_err *err)
{
    struct qr_trainer *t = user;
    qr_gather_range(&t->par.link, &t->par.shares, part->array, part->entry.dtype, part->first + first, part->first + first + n, out);
    return qr_link_error(&t->par.link, err);
}

/* The checkpoint's parts; the text is the caller's to release. */
static struct qr_checkpoint_source source_of(struct qr_trainer *t, struct qr_buf *text)
{
    qr_train_config_print(text, t->c);
    struct qr_checkpoint_source src = {.params = t->params, .optim = &t->optim, .tokenizer_dir = t->tokenizer_dir,
                                         .model_config = t->model_text.data, .config_text = text->data};
    if (t->par.shard != QR_SHARD_NONE && t->par.comm->size > 1) {
        src.bring = bring;
        src.user = t;
    }
    return src;
}

int qr_trainer_save(struct qr_trainer *t, char path[QR_PATH_MAX], struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->tape != NULL);
    QR_ASSERT(path != NULL && err != NULL);
    struct qr_buf text = {0};
    const struct qr_checkpoint_source src = source_of(t, &text);
    path[0] = '\0';
    int rc = t->par.comm->rank == 0 ? qr_checkpoint_save(t->c->save.out, &src, &t->state, (int32_t)t->c->save.keep, path, err)
                                    : qr_checkpoint_follow(&src, err);
    qr_buf_release(&text);
    return qr_trainer_give_up(t, rc, err);
}

int qr_trainer_export(struct qr_trainer *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->tape != NULL);
    QR_ASSERT(dir != NULL && err != NULL);
    struct qr_buf text = {0};
    struct qr_checkpoint_source src = source_of(t, &text);
    const bool first = t->par.comm->rank == 0;
    src.optim = NULL;
    int rc = first ? qr_model_export(dir, &src, true, err) : qr_checkpoint_follow(&src, err);
    qr_buf_release(&text);
    return qr_trainer_give_up(t, rc, err);
}

int qr_trainer_finish(struct qr_trainer *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    int rc = qr_trainer_export(t, dir, err);
    if (rc || t->par.comm->rank != 0 || !t->variant.finish)
        return rc;
    return qr_trainer_give_up(t, t->variant.finish(t->variant.user, t->params, t->c->save.out, err), err);
}
