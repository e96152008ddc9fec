#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "loader/hf_config.h"
#include "loader/map_file.h"
#include "tokenizer/tokenizer.h"
#include "train/find_bad.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

/* ---- reading and checking ---- */

static enum qr_dtype compute_of(const struct qr_train_config *c)
{
    return c->compute.dtype == 0 ? QR_F32 : QR_BF16;
}

static bool is_there(const char *dir, const char *file)
{
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return stat(path, &st) == 0;
}

/* Puts the setting that led to an error in front of it. */
static int blame(const struct qr_train_config *c, const char *name, struct qr_err *err)
{
    char at[400];
    return qr_err_prefix(err, "%s: ", qr_train_config_where(c, name, at));
}

static int read_model_config(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    struct qr_map_file f;
    int rc;
    if (c->model.from) {
        rc = qr_hf_config_read(&t->model, c->model.from, err);
        return rc ? blame(c, "model.from", err) : 0;
    }
    rc = qr_map_file_open(&f, c->model.config, CONFIG_BYTES_MAX, err);
    if (rc)
        return blame(c, "model.config", err);
    rc = qr_hf_config_parse(&t->model, (const char *)f.data, f.n_bytes, NULL, 0, err);
    qr_map_file_close(&f);
    if (rc) {
        qr_err_prefix(err, "%s: ", c->model.config);
        return blame(c, "model.config", err);
    }
    return 0;
}

static int open_shards(struct qr_shards **out, const struct qr_trainer *t, const char *dir, const char *setting, struct qr_err *err)
{
    int rc = qr_shards_open(out, dir, err);
    if (rc)
        return blame(t->c, setting, err);
    if (qr_shards_vocab_size(*out) <= t->model.n_vocab)
        return 0;
    qr_err_set(err, QR_E_INVALID, "%s has ids up to %d, the model's vocabulary (vocab_size) is %d; prepare the data with the model's tokenizer, or make a "
               "larger model", dir, qr_shards_vocab_size(*out) - 1, t->model.n_vocab);
    return blame(t->c, setting, err);
}

/* Data are ids: they mean something to the tokenizer alone that they were made with. */
static int check_tokenizer(const struct qr_trainer *t, const struct qr_shards *s, const char *dir, const char *setting, struct qr_err *err)
{
    uint64_t want;
    int rc = qr_data_tokenizer_hash(&want, t->tokenizer_dir, err);
    if (rc || qr_shards_tokenizer_hash(s) == want)
        return rc;
    qr_err_set(err, QR_E_INVALID, "%s was prepared with another tokenizer (data.json: hash %016llx) than %s/tokenizer.json (%016llx); prepare it again "
               "with --model %s", dir, (unsigned long long)qr_shards_tokenizer_hash(s), t->tokenizer_dir, (unsigned long long)want, t->tokenizer_dir);
    return blame(t->c, setting, err);
}

/* A model drawn at random ends its texts with the tokenizer's end token, unless its config.json says otherwise. */
static int adopt_eos(struct qr_trainer *t, struct qr_err *err)
{
    struct qr_tokenizer *tokenizer;
    if (t->model.n_eos > 0)
        return 0;
    int rc = qr_tokenizer_open(&tokenizer, t->tokenizer_dir, err);
    if (rc)
        return rc;
    const int32_t id = qr_tokenizer_eos(tokenizer);
    if (id >= 0 && id < t->model.n_vocab)
        t->model.eos_ids[t->model.n_eos++] = id;
    qr_tokenizer_close(tokenizer);
    return 0;
}

static int open_data(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    t->tokenizer_dir = c->model.tokenizer ? c->model.tokenizer : c->model.from && is_there(c->model.from, "tokenizer.json") ? c->model.from : c->data.train;
    if (c->data.eval)
        snprintf(t->eval_dir, sizeof t->eval_dir, "%s", c->data.eval);
    else if (is_there(c->data.train, "eval/data.json"))
        snprintf(t->eval_dir, sizeof t->eval_dir, "%s/eval", c->data.train);
    int rc = open_shards(&t->shards, t, c->data.train, "data.train", err);
    rc = rc ? rc : check_tokenizer(t, t->shards, c->data.train, "data.train", err);
    if (rc || !t->eval_dir[0] || c->eval.every == 0)
        return rc;
    rc = open_shards(&t->eval_shards, t, t->eval_dir, "data.eval", err);
    return rc ? rc : check_tokenizer(t, t->eval_shards, t->eval_dir, "data.eval", err);
}

/* Pieces of a micro-batch of n tokens: twice as many as pieces of the average length need. */
static int32_t sequences_for(const struct qr_trainer *t, int64_t n_tokens)
{
    const int64_t n_docs = qr_shards_n_docs(t->shards), longest = t->c->data.sequence;
    const int64_t average = n_docs > 0 ? qr_shards_n_tokens(t->shards) / n_docs : 1;
    const int64_t length = average < 2 ? 1 : average < longest ? average : longest, n = 2 * (n_tokens / length) + 2;
    if (t->c->batch.sequences)
        return (int32_t)(t->c->batch.sequences < n_tokens ? t->c->batch.sequences : n_tokens);
    return (int32_t)(n < n_tokens ? n : n_tokens);
}

static int open_feed(struct qr_feed **out, const struct qr_trainer *t, const struct qr_shards *s, bool shuffle, const char *setting, struct qr_err *err)
{
    const struct qr_feed_options o = {.sequence = (int32_t)t->c->data.sequence, .micro_tokens = t->tape_options.n_tokens_max,
                                      .n_seqs_max = t->tape_options.n_seqs_max, .seed = (uint64_t)t->c->seed, .shuffle = shuffle};
    int rc = qr_feed_open(out, s, &o, err);
    return rc ? blame(t->c, setting, err) : 0;
}

static int open_feeds(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    char at[400];
    if (c->data.sequence > t->model.ctx_max)
        return qr_err_set(err, QR_E_USAGE, "%s: %lld is more than the model's context, %d (max_position_embeddings)",
                          qr_train_config_where(c, "data.sequence", at), (long long)c->data.sequence, t->model.ctx_max);
    t->tape_options = (struct qr_tape_options){.recompute = (enum qr_recompute)c->compute.recompute, .n_tokens_max = (int32_t)c->batch.tokens,
                                               .n_seqs_max = sequences_for(t, c->batch.tokens)};
    int rc = open_feed(&t->feed, t, t->shards, c->data.shuffle, "data.train", err);
    if (!rc && t->eval_shards)
        rc = open_feed(&t->eval_feed, t, t->eval_shards, false, "data.eval", err);
    return rc;
}

/* Marks what model.freeze names. */
static int freeze(const struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_str_list *names = &t->c->model.freeze;
    for (int32_t i = 0; i < names->n; i++) {
        int32_t n = 0;
        for (int32_t k = 0; k < t->params->n_params; k++)
            if (strncmp(t->params->param[k].name, names->item[i], strlen(names->item[i])) == 0) {
                t->params->param[k].frozen = true;
                n++;
            }
        if (n == 0) {
            qr_err_set(err, QR_E_USAGE, "'%s' is the beginning of no tensor's name; the first is '%s'", names->item[i], t->params->param[0].name);
            return blame(t->c, "model.freeze", err);
        }
    }
    return 0;
}

static int open_backend(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    const struct qr_backend_options o = {.isa = c->compute.isa, .cpus = c->compute.cpus, .n_threads = (int32_t)c->compute.threads, .pin = true,
                                         .step_rows_max = (int32_t)c->batch.tokens};
    return qr_backend_open(&t->be, &o, err);
}

static int plan(struct qr_trainer *t, struct qr_err *err)
{
    qr_params_plan(&t->params, &t->model, t->be, QR_F32, compute_of(t->c));
    t->flops = qr_train_flops_of(&t->model);
    int rc = freeze(t, err);
    if (!rc && t->variant.plan)
        rc = t->variant.plan(t->variant.user, t->params, &t->tape_options, &t->plan, err);
    if (!rc && t->c->optimizer.kind == QR_OPTIMIZER_MUON)
        qr_train_plan_add(&t->plan, "Muon's work area", qr_muon_bytes(t->params));
    return rc ? rc : qr_train_plan_model(&t->plan, t->params, (enum qr_optimizer)t->c->optimizer.kind, &t->tape_options, err);
}

int qr_trainer_open(struct qr_trainer **out, const struct qr_train_config *c, const struct qr_train_variant *variant, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(err != NULL && c->set != NULL);
    struct qr_trainer *t = qr_alloc(1, sizeof *t);
    t->c = c;
    if (variant)
        t->variant = *variant;
    int rc = open_backend(t, err);
    rc = rc ? rc : read_model_config(t, err);
    rc = rc ? rc : open_data(t, err);
    rc = rc ? rc : adopt_eos(t, err);
    rc = rc ? rc : open_feeds(t, err);
    rc = rc ? rc : plan(t, err);
    if (rc) {
        qr_trainer_close(t);
        t = NULL;
    }
    *out = t;
    return rc;
}

void qr_trainer_close(struct qr_trainer *t)
{
    if (!t)
        return;
    if (t->variant.end)
        t->variant.end(t->variant.user);
    if (t->optim.params)
        qr_optim_release(&t->optim);
    if (t->batch.n_tokens_max)
        qr_train_batch_release(&t->batch);
    qr_tape_close(t->tape);
    qr_params_close(t->params);
    qr_feed_close(t->feed);
    qr_feed_close(t->eval_feed);
    qr_shards_close(t->shards);
    qr_shards_close(t->eval_shards);
    qr_backend_close(t->be);
    qr_free(t->losses);
    qr_free(t);
}

/* ---- room ---- */

/* What the run would take with other settings. */
static size_t total_with(const struct qr_trainer *t, enum qr_recompute recompute, int32_t n_tokens)
{
    struct qr_tape_options o = t->tape_options;
    struct qr_tape_memory now, then;
    struct qr_err err;
    if (qr_tape_plan(&now, t->params, &o, &err) != 0)
        return SIZE_MAX;
    o.recompute = recompute;
    o.n_tokens_max = n_tokens;
    o.n_seqs_max = sequences_for(t, n_tokens);
    if (qr_tape_plan(&then, t->params, &o, &err) != 0)
        return SIZE_MAX;
    return t->plan.total - now.total + then.total;
}

static void put_advice(const struct qr_trainer *t, struct qr_buf *out, enum qr_recompute recompute, int64_t available)
{
    static const char *const name[] = {"none", "selective", "full"};
    int64_t n = t->c->batch.tokens, least = t->c->data.sequence;
    size_t total = total_with(t, recompute, (int32_t)n);
    while (total > (size_t)available && n > least) {
        n = n / 2 > least ? n / 2 : least;
        total = total_with(t, recompute, (int32_t)n);
    }
    if (total > (size_t)available)
        return;
    qr_buf_put_str(out, out->len ? ", or " : "");
    if ((int)recompute != t->c->compute.recompute)
        qr_buf_printf(out, "compute.recompute=%s ", name[recompute]);
    if (n != t->c->batch.tokens)
        qr_buf_printf(out, "batch.tokens=%lld batch.micro=%lld ", (long long)n, (long long)((t->c->batch.tokens * t->c->batch.micro + n - 1) / n));
    qr_buf_put_byte(out, '(');
    qr_train_put_bytes(out, total);
    qr_buf_put_byte(out, ')');
}

int qr_trainer_check_room(struct qr_trainer *t, int64_t available, struct qr_err *err)
{
    QR_ASSERT(t != NULL && err != NULL);
    QR_ASSERT(t->plan.total > 0 && t->params->planned);
    if ((int64_t)t->plan.total <= available)
        return 0;
    struct qr_buf need = {0}, have = {0}, advice = {0};
    qr_train_put_bytes(&need, t->plan.total);
    qr_train_put_bytes(&have, available > 0 ? (size_t)available : 0);
    for (int r = t->c->compute.recompute; r <= (int)QR_RECOMPUTE_FULL; r++)
        put_advice(t, &advice, (enum qr_recompute)r, available);
    int rc = qr_err_set(err, QR_E_NO_ROOM, "the run takes %s of memory, %s are available; %s%s", need.data, have.data, advice.len ? "what would fit: " : "",
                        advice.len ? advice.data : "no setting would fit: parameters, gradients and moments are too large, a smaller model is needed");
    qr_buf_release(&need);
    qr_buf_release(&have);
    qr_buf_release(&advice);
    return rc;
}

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
        return blame(c, "save.out", err);
    if (t->state.seed != fresh.seed)
        return qr_err_set(err, QR_E_INVALID, "%s: %llu, but the run in %s has seed %llu; a resumed run keeps it", qr_train_config_where(c, "seed", at),
                          (unsigned long long)fresh.seed, path, (unsigned long long)t->state.seed);
    if (t->state.data_hash && t->state.data_hash != fresh.data_hash)
        return qr_err_set(err, QR_E_INVALID, "%s: %s, with data.sequence %lld, is not what the run in %s learns from (hash %016llx, expected %016llx)",
                          qr_train_config_where(c, "data.train", at), c->data.train, (long long)c->data.sequence, path,
                          (unsigned long long)fresh.data_hash, (unsigned long long)t->state.data_hash);
    return 0;
}

/* Parameters in place of planned ones, with the same tensors frozen. */
static int fill_params(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    struct qr_params *planned = t->params, *p;
    if (c->model.from) {
        int rc = qr_params_open(&p, c->model.from, t->be, QR_F32, compute_of(c), err);
        if (rc)
            return blame(c, "model.from", err);
    } else
        qr_params_init(&p, &t->model, t->be, compute_of(c), c->model.std, (uint64_t)c->seed);
    if (planned->n_params > p->n_params)
        qr_params_extend(p, planned->param + p->n_params, planned->n_params - p->n_params);
    QR_ASSERT(p->n_params == planned->n_params);
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
    t->state = (struct qr_checkpoint_state){.seed = (uint64_t)c->seed, .best_step = -1, .best_loss = NAN};
    rc = data_hash(&t->state.data_hash, t, err);
    if (!rc && resumed)
        rc = resume(t, err);
    if (!rc && t->variant.begin)
        rc = t->variant.begin(t->variant.user, t->params, t->tape, err);
    return rc;
}

/* ---- a step ---- */

/* The next micro-batch into t->batch. Data that is not shuffled begins anew at its end. */
static void next_batch(struct qr_trainer *t, int64_t *position)
{
    if (qr_feed_next(t->feed, position, &t->batch))
        return;
    *position = 0;
    const bool any = qr_feed_next(t->feed, position, &t->batch);
    QR_ASSERT(any);
}

/* Targets of the micro-batches of the step that begins at `position`. */
static int64_t count_targets(struct qr_trainer *t, int64_t position)
{
    int64_t n = 0;
    for (int64_t m = 0; m < t->c->batch.micro; m++) {
        next_batch(t, &position);
        n += t->batch.b.n_logits;
    }
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

/* The sum goes on from target to target, so that it does not show how they were cut into micro-batches. */
static double add_losses(double sum, const double *losses, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        sum += losses[i];
    return sum;
}

static int refuse_loss(struct qr_trainer *t, double loss, struct qr_err *err)
{
    char what[QR_FIND_BAD_TEXT];
    qr_train_find_bad(t->tape, t->params, &t->batch, t->tape_options.logits, what);
    return qr_err_set(err, QR_E_INVALID, "step %lld: the loss is %g; the first tensor that is not finite: %s. Lower optimizer.lr or look at the data",
                      (long long)t->optim.step + 1, loss, what);
}

/* Micro-batches in order, from *position on; loss is summed. */
static int micro_steps(struct qr_trainer *t, int64_t *position, struct qr_train_step *out, struct qr_err *err)
{
    const float scale = 1.0f / (float)out->n_targets;
    for (int64_t m = 0; m < t->c->batch.micro; m++) {
        next_batch(t, position);
        qr_train_trace_begin(t->trace, "micro-batch", m);
        int rc = micro_step(t, scale, err);
        qr_train_trace_end(t->trace);
        if (rc)
            return rc;
        out->loss = add_losses(out->loss, t->losses, t->batch.b.n_logits);
        if (!isfinite(out->loss))
            return refuse_loss(t, out->loss, err);
        out->n_tokens += t->batch.b.n_tokens;
        out->flops += 3 * qr_train_flops_batch(&t->flops, &t->batch.b);
    }
    return 0;
}

static void drop_frozen_gradients(struct qr_params *p)
{
    const size_t size = qr_dtype_bytes(p->real);
    for (int32_t k = 0; k < p->n_params; k++)
        if (p->param[k].frozen)
            memset((char *)p->grad + (size_t)p->param[k].first * size, 0, (size_t)p->param[k].n * size);
}

/* Gradients become values. */
static int move(struct qr_trainer *t, struct qr_train_step *out, struct qr_err *err)
{
    if (t->variant.before_step)
        t->variant.before_step(t->variant.user, t->params);
    drop_frozen_gradients(t->params);
    int rc = qr_optim_step(&t->optim, out->lr, &out->norm, err);
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
                             .warmup_steps = c->optimizer.warmup, .n_steps = c->steps};
    int64_t position = t->state.position;
    *out = (struct qr_train_step){.step = t->optim.step + 1, .lr = qr_lr_at(&lr, t->optim.step), .n_targets = count_targets(t, position)};
    qr_train_trace_begin(t->trace, "step", out->step);
    int rc = micro_steps(t, &position, out, err);
    out->loss /= (double)out->n_targets;
    qr_train_trace_begin(t->trace, "optimizer", -1);
    rc = rc ? rc : move(t, out, err);
    qr_train_trace_end(t->trace);
    qr_train_trace_end(t->trace);
    if (rc) {
        qr_params_zero_grad(t->params); /* as the optimizer would have left them */
        return rc;
    }
    out->seconds = (double)(qr_clock_ns() - began) * 1e-9;
    t->state.step = t->optim.step;
    t->state.position = position;
    t->state.n_tokens += out->n_tokens;
    t->state.seconds += out->seconds;
    return 0;
}

/* ---- evaluation and saving ---- */

int qr_trainer_evaluate(struct qr_trainer *t, double *loss, int64_t *n_targets, struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->tape != NULL && t->eval_feed != NULL);
    QR_ASSERT(loss != NULL && n_targets != NULL && err != NULL);
    const int64_t most = t->c->eval.tokens;
    int64_t position = 0, n = 0;
    *loss = 0;
    *n_targets = 0;
    while ((most == 0 || n < most) && qr_feed_next(t->eval_feed, &position, &t->batch)) {
        qr_tape_evaluate(t->tape, &t->batch, t->losses);
        *loss = add_losses(*loss, t->losses, t->batch.b.n_logits);
        *n_targets += t->batch.b.n_logits;
        n += t->batch.b.n_tokens;
    }
    QR_ASSERT(*n_targets > 0);
    *loss /= (double)*n_targets;
    if (!isfinite(*loss))
        return qr_err_set(err, QR_E_INVALID, "behind step %lld: the loss of held-out data is %g", (long long)t->optim.step, *loss);
    if (!(*loss >= t->state.best_loss)) { /* NaN: there is none yet */
        t->state.best_loss = *loss;
        t->state.best_step = t->optim.step;
    }
    return 0;
}

/* The checkpoint's parts; the text is the caller's to release. */
static struct qr_checkpoint_source source_of(const struct qr_trainer *t, struct qr_buf *text)
{
    qr_train_config_print(text, t->c);
    return (struct qr_checkpoint_source){.params = t->params, .optim = &t->optim, .tokenizer_dir = t->tokenizer_dir, .config_text = text->data};
}

int qr_trainer_save(struct qr_trainer *t, char path[QR_PATH_MAX], struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->tape != NULL);
    QR_ASSERT(path != NULL && err != NULL);
    struct qr_buf text = {0};
    const struct qr_checkpoint_source src = source_of(t, &text);
    int rc = qr_checkpoint_save(t->c->save.out, &src, &t->state, (int32_t)t->c->save.keep, path, err);
    qr_buf_release(&text);
    return rc;
}

int qr_trainer_export(struct qr_trainer *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->tape != NULL);
    QR_ASSERT(dir != NULL && err != NULL);
    struct qr_buf text = {0};
    struct qr_checkpoint_source src = source_of(t, &text);
    src.optim = NULL;
    int rc = qr_model_export(dir, &src, true, err);
    qr_buf_release(&text);
    if (rc == 0 && t->variant.finish)
        rc = t->variant.finish(t->variant.user, t->params, t->c->save.out, err);
    return rc;
}
