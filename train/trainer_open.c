/* trainer_open.c - everything before the first step: configuration, data, tokenizer, backend, ranks, the plan of
 * memory. What does not fit or does not belong together is refused here by name, before anything large is allocated.
 * The plan of `quire train --plan` is the same code. Errors say which setting would do. The trainer's thread; ranks are
 * launched before. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "loader/config/hf_config.h"
#include "base/files/map_file.h"
#include "tokenizer/tokenizer.h"
#include "train/trainer_parts.h"
#include "train/trains.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

/* ---- reading and checking ---- */

enum qr_dtype qr_trainer_compute(const struct qr_train_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->compute.dtype == 0 || c->compute.dtype == 1);
    return c->compute.dtype == 0 ? QR_F32 : QR_BF16;
}

static bool is_there(const char *dir, const char *file)
{
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return stat(path, &st) == 0;
}

int qr_trainer_blame(const struct qr_train_config *c, const char *name, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(name != NULL && err != NULL);
    char at[400];
    return qr_err_prefix(err, "%s: ", qr_train_config_where(c, name, at));
}

static int read_model_config(struct qr_trainer *t, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    struct qr_map_file f;
    int rc;
    if (c->model.from) {
        rc = qr_model_config_read_text(&t->model, &t->model_text, c->model.from, err);
        rc = rc ? rc : qr_train_takes(&t->model, err);
        return rc ? qr_trainer_blame(c, "model.from", err) : 0;
    }
    rc = qr_map_file_open(&f, c->model.config, CONFIG_BYTES_MAX, err);
    if (rc)
        return qr_trainer_blame(c, "model.config", err);
    qr_buf_put(&t->model_text, f.data, f.n_bytes);
    qr_map_file_close(&f);
    rc = qr_hf_config_parse(&t->model, t->model_text.data, t->model_text.len, NULL, 0, err);
    rc = rc ? rc : qr_train_takes(&t->model, err);
    if (rc) {
        qr_err_prefix(err, "%s: ", c->model.config);
        return qr_trainer_blame(c, "model.config", err);
    }
    return 0;
}

static int open_shards(struct qr_shards **out, const struct qr_trainer *t, const char *dir, const char *setting, struct qr_err *err)
{
    int rc = qr_shards_open(out, dir, err);
    if (rc)
        return qr_trainer_blame(t->c, setting, err);
    if (qr_shards_index(*out)->vocab_size <= t->model.n_vocab)
        return 0;
    qr_err_set(err, QR_E_INVALID, "%s has ids up to %d, the model's vocabulary (vocab_size) is %d; prepare the data with the model's tokenizer, or make a "
               "larger model", dir, qr_shards_index(*out)->vocab_size - 1, t->model.n_vocab);
    return qr_trainer_blame(t->c, setting, err);
}

/* Data are ids: they mean something to the tokenizer alone that they were made with. */
static int check_tokenizer(const struct qr_trainer *t, const struct qr_shards *s, const char *dir, const char *setting, struct qr_err *err)
{
    uint64_t want;
    int rc = qr_data_tokenizer_hash(&want, t->tokenizer_dir, err);
    if (rc || qr_shards_index(s)->tokenizer == want)
        return rc;
    qr_err_set(err, QR_E_INVALID,
               "%s was prepared with another tokenizer (data.json: hash %016llx) than %s/tokenizer.json (%016llx); "
               "prepare it again with --model %s",
               dir, (unsigned long long)qr_shards_index(s)->tokenizer, t->tokenizer_dir, (unsigned long long)want,
               t->tokenizer_dir);
    return qr_trainer_blame(t->c, setting, err);
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

/* The best model is that with the lowest held-out loss. */
static int check_best(const struct qr_trainer *t, struct qr_err *err)
{
    char at[400];
    if (!t->c->save.best || (t->eval_dir[0] && t->c->eval.every > 0))
        return 0;
    return qr_err_set(err, QR_E_USAGE, "%s: no held-out loss would say which model is the best: %s", qr_train_config_where(t->c, "save.best", at),
                      t->eval_dir[0] ? "set eval.every, the steps between evaluations"
                                     : "set data.eval, or prepare the data with --eval-fraction");
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
    rc = rc ? rc : check_best(t, err);
    if (rc || !t->eval_dir[0] || c->eval.every == 0)
        return rc;
    rc = open_shards(&t->eval_shards, t, t->eval_dir, "data.eval", err);
    return rc ? rc : check_tokenizer(t, t->eval_shards, t->eval_dir, "data.eval", err);
}

/* Pieces of a micro-batch of n tokens: twice as many as pieces of the average length need. */
static int32_t sequences_for(const struct qr_trainer *t, int64_t n_tokens)
{
    const int64_t n_docs = qr_shards_index(t->shards)->n_docs, longest = t->c->data.sequence;
    const int64_t average = n_docs > 0 ? qr_shards_index(t->shards)->n_tokens / n_docs : 1;
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
    return rc ? qr_trainer_blame(t->c, setting, err) : 0;
}

/* How long the run is. All pieces are read only where the run will do so, too. */
static void measure(struct qr_trainer *t)
{
    const struct qr_train_config *c = t->c;
    const double step = (double)c->batch.tokens * (double)c->batch.micro;
    t->n_steps = c->steps;
    if (c->epochs > 0 || (double)c->steps * step >= (double)qr_shards_index(t->shards)->n_tokens)
        t->epoch_steps = qr_feed_n_micros(t->feed) / (double)c->batch.micro;
    if (c->epochs > 0)
        t->n_steps = (int64_t)fmax(1, ceil(c->epochs * t->epoch_steps - 1e-9)); /* which may be off by its rounding */
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
    if (!rc)
        measure(t);
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
            return qr_trainer_blame(t->c, "model.freeze", err);
        }
    }
    return 0;
}

/* What needs the processor, whose memory the host computes in; NULL: nothing of this run does. */
static const char *needs_host(const struct qr_trainer *t)
{
    return t->variant.name ? t->variant.name : t->c->parallel.shard != QR_SHARD_NONE ? "what parallel.shard cuts into parts" : NULL;
}

/* The device that the settings name, if it can do what the run needs; "auto" takes the processor otherwise. */
static int open_backend(struct qr_trainer *t, struct qr_comm *comm, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    const bool any = strcmp(c->compute.device, "auto") == 0;
    const char *why = needs_host(t);
    struct qr_backend_options o = {.device = any && why ? "cpu" : c->compute.device, .isa = c->compute.isa, .cpus = c->compute.cpus,
                                   .n_threads = (int32_t)c->compute.threads, .pin = true, .step_rows_max = (int32_t)c->batch.tokens,
                                   .deterministic = c->compute.deterministic, .tune = QR_TUNE_CACHED};
    qr_comm_place(comm, &o.rank, &o.n_ranks);
    int rc = qr_backend_open(&t->be, &o, err);
    if (rc)
        return rc;
    rc = t->be->mem->host || !why ? 0 : qr_err_set(err, QR_E_UNSUPPORTED, "%s is computed on the processor only; use compute.device: cpu", why);
    rc = rc ? rc : qr_backend_trains(t->be, err);
    if (rc == 0 && !t->be->mem->host && comm && comm->size > 1) {
        rc = qr_device_comm_open(&t->devices, comm, t->be, err);
        return rc ? rc : qr_device_comm_share_choices(t->devices, t->be, err); /* those of earlier runs: others are made in the first step, by each rank */
    }
    if (rc == 0 || !any)
        return rc;
    qr_log(QR_LOG_INFO, "train", "device=cpu, no %s: %s", t->be->name, err->msg);
    qr_backend_close(t->be);
    t->be = NULL;
    o.device = "cpu";
    return qr_backend_open(&t->be, &o, err);
}

/* What wants whole tensors on every rank, or what they are not made for. */
static int check_shard(const struct qr_trainer *t, struct qr_err *err)
{
    static const char *const name[] = {"none", "optimizer", "gradients", "full"};
    const struct qr_train_config *c = t->c;
    const char *shard = name[c->parallel.shard];
    char at[400];
    if (c->parallel.shard == QR_SHARD_NONE)
        return 0;
    if (t->variant.name && !t->variant.parts)
        return qr_err_set(err, QR_E_USAGE, "%s: %s, but this kind of training (%s) needs whole tensors on every rank; expected none",
                          qr_train_config_where(c, "parallel.shard", at), shard, t->variant.name);
    if (c->optimizer.kind != QR_OPTIMIZER_ADAMW)
        return qr_err_set(err, QR_E_USAGE, "%s: muon, which moves whole matrices; expected adamw with parallel.shard %s, or parallel.shard none",
                          qr_train_config_where(c, "optimizer.kind", at), shard);
    if (c->parallel.shard == QR_SHARD_FULL && c->sample.every > 0)
        return qr_err_set(err, QR_E_USAGE, "%s: samples need a whole model on one rank; expected 0 with parallel.shard full",
                          qr_train_config_where(c, "sample.every", at));
    return 0;
}

static int64_t leaves_of(const struct qr_trainer *t, const struct qr_comm *comm)
{
    return t->c->batch.leaves ? t->c->batch.leaves : comm ? comm->size : 1;
}

/* What needs no more than the settings, before anything is opened. */
static int check_ranks(const struct qr_trainer *t, const struct qr_comm *comm, struct qr_err *err)
{
    const struct qr_train_config *c = t->c;
    const int64_t leaves = leaves_of(t, comm);
    const int32_t size = comm ? comm->size : 1;
    char at[400];
    if (size & (size - 1))
        return qr_err_set(err, QR_E_USAGE, "%d ranks; expected a power of two", size);
    if (c->batch.micro % leaves != 0)
        return qr_err_set(err, QR_E_USAGE, "%s: %lld, which %lld leaves (%s) do not divide; expected a multiple: every leaf has as many micro-batches",
                          qr_train_config_where(c, "batch.micro", at), (long long)c->batch.micro, (long long)leaves,
                          c->batch.leaves ? "batch.leaves" : "one for each rank");
    if (leaves % size != 0)
        return qr_err_set(err, QR_E_USAGE, "%s: %lld is no multiple of the %d ranks; expected a power of two that is: every rank has as many leaves",
                          qr_train_config_where(c, "batch.leaves", at), (long long)leaves, size);
    return check_shard(t, err);
}

static void plan_ranks(struct qr_trainer *t, struct qr_comm *comm)
{
    const int64_t leaves = leaves_of(t, comm);
    qr_parallel_init(&t->par, comm, (enum qr_shard)t->c->parallel.shard, (int32_t)leaves, (int32_t)(t->c->batch.micro / leaves), t->params);
    t->par.link.devices = t->devices;
    t->tape_options.n_micro = t->par.n_micro;
    t->par.gather.packs_again = t->tape_options.recompute == QR_RECOMPUTE_FULL;
    qr_parallel_plan(&t->plan, &t->par, (enum qr_optimizer)t->c->optimizer.kind, t->params);
}

static int plan(struct qr_trainer *t, struct qr_comm *comm, struct qr_err *err)
{
    qr_params_plan(&t->params, &t->model, t->be, QR_F32, qr_trainer_compute(t->c));
    t->flops = qr_train_flops_of(&t->model);
    int rc = freeze(t, err);
    if (!rc && t->variant.plan)
        rc = t->variant.plan(t->variant.user, t->params, &t->tape_options, &t->plan, err);
    if (!rc && t->c->optimizer.kind == QR_OPTIMIZER_MUON)
        qr_train_plan_add(&t->plan, "Muon's work area", qr_muon_bytes(t->params));
    if (rc)
        return rc;
    plan_ranks(t, comm);
    return qr_train_plan_tape(&t->plan, t->params, &t->tape_options, err);
}

int qr_trainer_open(struct qr_trainer **out, const struct qr_train_config *c, const struct qr_train_variant *variant, struct qr_comm *comm,
                    struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(err != NULL && c->set != NULL);
    struct qr_trainer *t = qr_alloc(1, sizeof *t);
    t->c = c;
    if (variant)
        t->variant = *variant;
    int rc = check_ranks(t, comm, err);
    rc = rc ? rc : open_backend(t, comm, err);
    rc = rc ? rc : read_model_config(t, err);
    rc = rc ? rc : open_data(t, err);
    rc = rc ? rc : adopt_eos(t, err);
    rc = rc ? rc : open_feeds(t, err);
    rc = rc ? rc : plan(t, comm, err);
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
    if (t->batch.n_tokens_max)
        qr_train_batch_release(&t->batch);
    qr_parallel_close(&t->par);
    if (t->optim.params)
        qr_optim_release(&t->optim);
    qr_tape_close(t->tape);
    qr_params_close(t->params);
    qr_feed_close(t->feed);
    qr_feed_close(t->eval_feed);
    qr_shards_close(t->shards);
    qr_shards_close(t->eval_shards);
    qr_device_comm_close(t->devices);
    qr_backend_close(t->be);
    qr_buf_release(&t->model_text);
    qr_free(t->losses);
    qr_free(t->positions);
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
    o.n_micro = (int32_t)(((int64_t)o.n_micro * t->c->batch.tokens + n_tokens - 1) / n_tokens);
    if (qr_tape_plan(&then, t->params, &o, &err) != 0)
        return SIZE_MAX;
    return t->plan.total - now.total + then.total;
}

static void put_advice(const struct qr_trainer *t, struct qr_buf *out, enum qr_recompute recompute, int64_t available)
{
    static const char *const name[] = {"none", "selective", "full"};
    char size[QR_SIZE_TEXT];
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
    if (n != t->c->batch.tokens) {
        const int64_t leaf = (t->c->batch.tokens * t->par.n_micro + n - 1) / n; /* micro-batches of a leaf */
        qr_buf_printf(out, "batch.tokens=%lld batch.micro=%lld ", (long long)n, (long long)(leaf * t->par.n_leaves));
    }
    qr_buf_printf(out, "(%s)", qr_size_text(size, (int64_t)total));
}

int qr_trainer_check_room(struct qr_trainer *t, int64_t available, struct qr_err *err)
{
    QR_ASSERT(t != NULL && err != NULL);
    QR_ASSERT(t->plan.total > 0 && t->params->planned);
    if ((int64_t)t->plan.total <= available)
        return 0;
    struct qr_buf advice = {0};
    char need[QR_SIZE_TEXT], have[QR_SIZE_TEXT];
    for (int r = t->c->compute.recompute; r <= (int)QR_RECOMPUTE_FULL; r++)
        put_advice(t, &advice, (enum qr_recompute)r, available);
    const char *none = "no setting would fit: parameters, gradients and moments are too large, a smaller "
                       "model is needed";
    int rc = qr_err_set(err, QR_E_NO_ROOM, "the run takes %s of memory, %s are available; %s%s",
                        qr_size_text(need, (int64_t)t->plan.total), qr_size_text(have, available > 0 ? available : 0),
                        advice.len ? "what would fit: " : "", advice.len ? advice.data : none);
    qr_buf_release(&advice);
    return rc;
}
