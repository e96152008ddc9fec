/* trainer_step.c - one step of training: the micro-batches of all ranks, the gradients' norm, the move (trainer.h). The
 * same bits however many ranks share it. Thread: the trainer's. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "train/find_bad.h"
#include "train/trainer_parts.h"

/* Where the step's micro-batches begin, that of the next step last; how many targets they have. Data that is not shuffled begins anew at its end. */
static int64_t find_micros(struct qr_trainer *t)
{
    int64_t n = 0, position = t->state.position;
    for (int64_t m = 0; m < t->c->batch.micro; m++) {
        t->positions[m] = position;
        int32_t n_targets = qr_feed_skip(t->feed, &position);
        if (n_targets == 0) {
            t->positions[m] = position = 0;
            n_targets = qr_feed_skip(t->feed, &position);
        }
        n += n_targets;
    }
    t->positions[t->c->batch.micro] = position;
    return n;
}

/* Loss and gradients of the micro-batch in t->batch; losses of its targets in t->losses. */
static int micro_step(struct qr_trainer *t, float scale, struct qr_err *err)
{
    if (t->variant.loss)
        return t->variant.loss(t->variant.user, t->tape, &t->batch, scale, t->losses, err);
    qr_tape_loss(t->tape, &t->batch, scale, t->losses);
    return qr_tape_backward(t->tape, err);
}

double qr_trainer_add_losses(double sum, const double *losses, int32_t n)
{
    QR_ASSERT(losses != NULL);
    QR_ASSERT(n >= 0);
    for (int32_t i = 0; i < n; i++)
        sum += losses[i];
    return sum;
}

int qr_trainer_give_up(struct qr_trainer *t, int rc, const struct qr_err *err)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(err != NULL);
    if (rc && t->par.comm->size > 1)
        qr_comm_abort(t->par.comm, err->msg);
    return rc;
}

/* Where weights are in parts, one rank alone cannot compute the pass again that would tell the tensor. */
static int refuse_loss(struct qr_trainer *t, double loss, struct qr_err *err)
{
    char what[QR_FIND_BAD_TEXT] = "not looked for with parallel.shard full";
    if (t->par.shard != QR_SHARD_FULL)
        qr_train_find_bad(t->tape, t->params, &t->batch, what);
    return qr_err_set(err, QR_E_INVALID, "step %lld: the loss is %g; the first tensor that is not finite: %s. Lower optimizer.lr or look at the data",
                      (long long)t->optim.step + 1, fabs(loss), what); /* a NaN has a sign that says nothing */
}

/* Micro-batch j of this rank's leaf i. */
static int one_micro(struct qr_trainer *t, int32_t i, int32_t j, float scale, struct qr_err *err)
{
    const int64_t m = (int64_t)qr_parallel_leaf(&t->par, i) * t->par.n_micro + j;
    int64_t position = t->positions[m];
    const bool any = qr_feed_next(t->feed, &position, &t->batch);
    QR_ASSERT(any);
    qr_train_trace_begin(t->trace, "micro-batch", m);
    qr_parallel_micro(&t->par, i, j);
    qr_tape_micro(t->tape, j);
    int rc = micro_step(t, scale, err);
    if (rc == 0) {
        const double loss = qr_trainer_add_losses(qr_parallel_loss(&t->par, i), t->losses, t->batch.b.n_logits);
        rc = isfinite(loss) ? 0 : refuse_loss(t, loss, err);
        if (rc == 0)
            rc = qr_parallel_micro_ends(&t->par, i, loss, t->batch.b.n_tokens, 3 * qr_train_flops_batch(&t->flops, &t->batch.b), err);
    }
    qr_train_trace_end(t->trace);
    return rc;
}

/* This rank's micro-batches in order, then the numbers of all ranks. */
static int micro_steps(struct qr_trainer *t, struct qr_train_step *out, struct qr_err *err)
{
    struct qr_parallel_sums sums;
    int rc = 0;
    qr_parallel_step(&t->par);
    for (int32_t i = 0; i < t->par.reduce.n_leaves; i++)
        for (int32_t j = 0; rc == 0 && j < t->par.n_micro; j++)
            rc = one_micro(t, i, j, 1.0f / (float)out->n_targets, err);
    rc = rc ? rc : qr_parallel_sum(&t->par, t->stop && atomic_load(t->stop), &sums, err);
    if (rc)
        return rc;
    out->loss = sums.loss / (double)out->n_targets;
    out->n_tokens = sums.n_tokens;
    out->flops = sums.flops;
    out->stop = sums.stop;
    return 0;
}

static void drop_frozen_gradients(struct qr_params *p)
{
    const size_t size = qr_dtype_bytes(p->real);
    for (int32_t k = 0; k < p->n_params; k++)
        if (p->param[k].frozen)
            p->be->mem->zero(p->be->queue, (char *)p->grad + (size_t)p->param[k].first * size, (size_t)p->param[k].n * size);
}

/* Gradients become values. */
static int move(struct qr_trainer *t, struct qr_train_step *out, struct qr_err *err)
{
    if (t->variant.before_step)
        t->variant.before_step(t->variant.user, t->params);
    drop_frozen_gradients(t->params);
    int rc = qr_parallel_move(&t->par, out->lr, &out->norm, err);
    if (rc == 0 && t->variant.after_step)
        t->variant.after_step(t->variant.user, t->params);
    return rc;
}

int qr_trainer_step(struct qr_trainer *t, struct qr_train_step *out, struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->tape != NULL);
    QR_ASSERT(out != NULL && err != NULL);
    const struct qr_train_config *c = t->c;
    const int64_t began = qr_clock_ns();
    const struct qr_lr lr = {.schedule = (enum qr_schedule)c->optimizer.schedule, .peak = c->optimizer.lr, .last = c->optimizer.lr_last,
                             .warmup_steps = c->optimizer.warmup, .n_steps = t->n_steps};
    *out = (struct qr_train_step){.step = t->optim.step + 1, .lr = qr_lr_at(&lr, t->optim.step), .n_targets = find_micros(t)};
    qr_train_trace_begin(t->trace, "step", out->step);
    int rc = micro_steps(t, out, err);
    qr_train_trace_begin(t->trace, "optimizer", -1);
    rc = rc ? rc : move(t, out, err);
    qr_train_trace_end(t->trace);
    qr_train_trace_end(t->trace);
    if (rc) {
        qr_trainer_give_up(t, rc, err);
        qr_reduce_micro_ends(&t->par.reduce); /* nothing of it travels any more */
        qr_params_zero_grad(t->params); /* as the optimizer would have left them */
        return rc;
    }
    out->seconds = (double)(qr_clock_ns() - began) * 1e-9;
    out->waited = qr_parallel_waited(&t->par);
    t->state.step = t->optim.step;
    t->state.position = t->positions[c->batch.micro];
    t->state.n_tokens += out->n_tokens;
    t->state.seconds += out->seconds;
    return 0;
}
