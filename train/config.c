/* config.c - the settings of a training run as one table: names, types, defaults, ranges, help. The YAML file, --set,
 * the printed list and the copy in a checkpoint follow from it. Checks that need two settings stand here as well; those
 * that need the data or the model are trainer_open.c's. Errors name file and line, what was found and what was
 * expected. Main thread, at start. */
#include "train/config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "model/model.h"

#define AT(field) .offset = offsetof(struct qr_train_config, field)

static const struct qr_option table[] = {
    {.name = "model.from", .type = QR_OPT_STR, AT(model.from), .arg = "DIR", .group = "Model",
     .help = "A model directory whose weights to go on from. Either this or model.config."},
    {.name = "model.config", .type = QR_OPT_STR, AT(model.config), .arg = "FILE", .group = "Model",
     .help = "A config.json; the weights are drawn at random."},
    {.name = "model.std", .type = QR_OPT_FLOAT, AT(model.std), .builtin = "0.02", .min = 1e-6, .max = 10, .group = "Model",
     .help = "Standard deviation of random matrices; those that write to the residual stream get it divided by sqrt(2 layers)."},
    {.name = "model.tokenizer", .type = QR_OPT_STR, AT(model.tokenizer), .arg = "DIR", .group = "Model",
     .help = "Whose tokenizer files go into checkpoints; otherwise those of model.from, or of data.train."},
    {.name = "model.freeze", .type = QR_OPT_LIST, AT(model.freeze), .arg = "NAME", .group = "Model",
     .help = "Tensors that stay as they are: the beginnings of their names, such as model.embed_tokens."},
    {.name = "data.train", .type = QR_OPT_STR, AT(data.train), .arg = "DIR", .group = "Data",
     .help = "What to learn from: a directory made by `quire data prepare`."},
    {.name = "data.eval", .type = QR_OPT_STR, AT(data.eval), .arg = "DIR", .group = "Data",
     .help = "Held-out data; otherwise the directory `eval` in data.train, where there is one."},
    {.name = "data.sequence", .type = QR_OPT_INT, AT(data.sequence), .builtin = "256", .min = 1, .max = 1 << 20, .arg = "N", .group = "Data",
     .help = "Documents are cut into pieces of this many tokens."},
    {.name = "data.shuffle", .type = QR_OPT_FLAG, AT(data.shuffle), .builtin = "true", .group = "Data",
     .help = "Pieces come in another order in every epoch, which follows from the seed; otherwise as they lie in the data, again and again."},
    {.name = "batch.tokens", .type = QR_OPT_INT, AT(batch.tokens), .builtin = "2048", .min = 1, .max = 1 << 20, .arg = "N", .group = "Batch",
     .help = "Tokens of a micro-batch at most: what is in memory at once."},
    {.name = "batch.micro", .type = QR_OPT_INT, AT(batch.micro), .builtin = "1", .min = 1, .max = 65536, .arg = "N", .group = "Batch",
     .help = "Micro-batches whose gradients are added before the optimizer moves: a step learns from micro x tokens."},
    {.name = "batch.sequences", .type = QR_OPT_INT, AT(batch.sequences), .builtin = "0", .min = 0, .max = 1 << 20, .arg = "N", .group = "Batch",
     .help = "Pieces of a micro-batch at most; 0 means as many as the data's average asks for."},
    {.name = "batch.leaves", .type = QR_OPT_INT, AT(batch.leaves), .builtin = "0", .min = 0, .max = 65536, .arg = "N", .group = "Batch",
     .help = "A step's micro-batches are added up in so many groups, whose sums are added as a tree: runs with 1, 2, .. N ranks give the same bytes. A power "
             "of two that divides batch.micro; 0 means one for each rank."},
    {.name = "parallel.shard", .type = QR_OPT_ENUM, AT(parallel.shard), .builtin = "none", .choices = "none|optimizer|gradients|full", .arg = "WHAT",
     .group = "Several ranks",
     .help = "What each rank has its part of instead of all: the optimizer's moments and masters; gradients, too; the layers' weights, too, which are gathered "
             "when they are needed. Less memory, the same result."},
    {.name = "steps", .type = QR_OPT_INT, AT(steps), .builtin = "1000", .min = 0, .max = 1e12, .arg = "N", .group = "Run",
     .help = "Steps of the optimizer, those of the run that is resumed included."},
    {.name = "epochs", .type = QR_OPT_FLOAT, AT(epochs), .builtin = "0", .min = 0, .max = 1e6, .arg = "N", .group = "Run",
     .help = "How often all of the data is read, in place of steps; it may be a fraction. 0 means that steps says how long the run is."},
    {.name = "seed", .type = QR_OPT_INT, AT(seed), .builtin = "1", .min = 0, .max = 9e15, .arg = "N", .group = "Run",
     .help = "Of weights, order of the data, rounding and samples."},
    {.name = "compute.dtype", .type = QR_OPT_ENUM, AT(compute.dtype), .builtin = "bf16", .choices = "f32|bf16", .arg = "TYPE", .group = "Compute",
     .help = "What matrices are computed with and saved as; masters and moments are f32 either way."},
    {.name = "compute.recompute", .type = QR_OPT_ENUM, AT(compute.recompute), .builtin = "none", .choices = "none|selective|full", .arg = "WHAT",
     .group = "Compute", .help = "What is computed again on the way back instead of kept: less memory, the same result."},
    {.name = "compute.device", .type = QR_OPT_STR, AT(compute.device), .builtin = "auto", .arg = "NAME", .group = "Compute",
     .help = "Where to compute: cpu, cuda, cuda:N, or auto: the first GPU where there is one that trains, else the processor."},
    {.name = "compute.threads", .type = QR_OPT_INT, AT(compute.threads), .builtin = "0", .min = 0, .max = 1024, .arg = "N", .group = "Compute",
     .help = "Worker threads; 0 means one per usable core."},
    {.name = "compute.isa", .type = QR_OPT_STR, AT(compute.isa), .arg = "LEVEL", .group = "Compute",
     .help = "Instruction-set level (ref, avx2, avx512, amx); otherwise the best there is."},
    {.name = "compute.cpus", .type = QR_OPT_STR, AT(compute.cpus), .arg = "LIST", .group = "Compute",
     .help = "Processors for the worker threads, such as 0-3,8."},
    {.name = "compute.deterministic", .type = QR_OPT_FLAG, AT(compute.deterministic), .builtin = "false", .group = "Compute",
     .help = "On a GPU: gradients do not depend on how a step is cut into micro-batches, at what that costs. The processor's never do."},
    {.name = "optimizer.kind", .type = QR_OPT_ENUM, AT(optimizer.kind), .builtin = "adamw", .choices = "adamw|muon", .arg = "NAME", .group = "Optimizer",
     .help = "muon: for the matrices of layers, adamw for all else, at the same learning rate."},
    {.name = "optimizer.momentum", .type = QR_OPT_FLOAT, AT(optimizer.momentum), .builtin = "0.95", .min = 0, .max = 0.999999, .group = "Optimizer",
     .help = "Muon: how much of the momentum stays."},
    {.name = "optimizer.lr", .type = QR_OPT_FLOAT, AT(optimizer.lr), .builtin = "0.0003", .min = 0, .max = 100, .group = "Optimizer",
     .help = "Learning rate at its peak."},
    {.name = "optimizer.lr-last", .type = QR_OPT_FLOAT, AT(optimizer.lr_last), .builtin = "0.00003", .min = 0, .max = 100, .group = "Optimizer",
     .help = "Learning rate of the last step (linear, cosine)."},
    {.name = "optimizer.schedule", .type = QR_OPT_ENUM, AT(optimizer.schedule), .builtin = "cosine", .choices = "constant|linear|cosine", .arg = "NAME",
     .group = "Optimizer", .help = "How the rate falls behind the warm-up."},
    {.name = "optimizer.warmup", .type = QR_OPT_INT, AT(optimizer.warmup), .builtin = "100", .min = 0, .max = 1e12, .arg = "N", .group = "Optimizer",
     .help = "Steps in which the rate rises to its peak."},
    {.name = "optimizer.beta1", .type = QR_OPT_FLOAT, AT(optimizer.beta1), .builtin = "0.9", .min = 0, .max = 0.999999, .group = "Optimizer",
     .help = "AdamW: how much of the first moment stays."},
    {.name = "optimizer.beta2", .type = QR_OPT_FLOAT, AT(optimizer.beta2), .builtin = "0.95", .min = 0, .max = 0.999999, .group = "Optimizer",
     .help = "AdamW: how much of the second moment stays."},
    {.name = "optimizer.eps", .type = QR_OPT_FLOAT, AT(optimizer.eps), .builtin = "1e-8", .min = 1e-30, .max = 1, .group = "Optimizer",
     .help = "AdamW: added to the root of the second moment."},
    {.name = "optimizer.decay", .type = QR_OPT_FLOAT, AT(optimizer.decay), .builtin = "0.1", .min = 0, .max = 10, .group = "Optimizer",
     .help = "Weight decay of matrices and embeddings."},
    {.name = "optimizer.clip", .type = QR_OPT_FLOAT, AT(optimizer.clip), .builtin = "1", .min = 0, .max = 1e9, .group = "Optimizer",
     .help = "Largest norm of all gradients together; 0 means no limit."},
    {.name = "teacher.model", .type = QR_OPT_STR, AT(teacher.model), .arg = "DIR", .group = "Distillation",
     .help = "A model directory of the same vocabulary whose probabilities are learnt besides the text."},
    {.name = "teacher.weight", .type = QR_OPT_FLOAT, AT(teacher.weight), .builtin = "0.5", .min = 0, .max = 1, .group = "Distillation",
     .help = "The teacher's share of the loss: 1 learns from it alone, 0 from the text alone."},
    {.name = "teacher.temperature", .type = QR_OPT_FLOAT, AT(teacher.temperature), .builtin = "1", .min = 0.1, .max = 100, .group = "Distillation",
     .help = "Divides both models' logits before they are compared: larger shows more of what the teacher finds unlikely."},
    {.name = "quantize.type", .type = QR_OPT_ENUM, AT(quantize.type), .builtin = "none", .choices = QR_QUANTIZE_CHOICES, .arg = "TYPE",
     .group = "Quantization", .help = "Train the model that `quire serve --quantize TYPE` will compute: its matrices are rounded to integers in every step."},
    {.name = "prune.kind", .type = QR_OPT_ENUM, AT(prune.kind), .builtin = "none", .choices = "none|unstructured|2:4", .arg = "RULE", .group = "Pruning",
     .help = "Weights of the layers' matrices that are 0 from the beginning: the smallest of each matrix, or two of every four of a row."},
    {.name = "prune.fraction", .type = QR_OPT_FLOAT, AT(prune.fraction), .builtin = "0.5", .min = 0, .max = 0.999, .group = "Pruning",
     .help = "How many of a matrix's weights go (unstructured)."},
    {.name = "lora.rank", .type = QR_OPT_INT, AT(lora.rank), .builtin = "0", .min = 0, .max = 4096, .arg = "N", .group = "LoRA",
     .help = "Rank of adapters, which learn in place of the model's own matrices; 0 means none: everything learns."},
    {.name = "lora.alpha", .type = QR_OPT_FLOAT, AT(lora.alpha), .builtin = "16", .min = 1e-6, .max = 1e6, .group = "LoRA",
     .help = "What adapters add to a matrix is multiplied by alpha / rank."},
    {.name = "lora.targets", .type = QR_OPT_LIST, AT(lora.targets), .arg = "NAME", .group = "LoRA",
     .help = "Matrices of layers that get adapters, such as q_proj or down_proj; otherwise q_proj, k_proj, v_proj and o_proj."},
    {.name = "eval.every", .type = QR_OPT_INT, AT(eval.every), .builtin = "100", .min = 0, .max = 1e12, .arg = "N", .group = "Evaluation",
     .help = "Steps between evaluations on data.eval; there is one before the first and one behind the last step. 0 means none."},
    {.name = "eval.tokens", .type = QR_OPT_INT, AT(eval.tokens), .builtin = "0", .min = 0, .max = 1e12, .arg = "N", .group = "Evaluation",
     .help = "Evaluate on about this many tokens; 0 means all."},
    {.name = "sample.every", .type = QR_OPT_INT, AT(sample.every), .builtin = "0", .min = 0, .max = 1e12, .arg = "N", .group = "Samples",
     .help = "Steps between texts that the model writes; 0 means none."},
    {.name = "sample.prompts", .type = QR_OPT_LIST, AT(sample.prompts), .arg = "TEXT", .group = "Samples",
     .help = "What it goes on from; special tokens may be written in it."},
    {.name = "sample.tokens", .type = QR_OPT_INT, AT(sample.tokens), .builtin = "64", .min = 1, .max = 65536, .arg = "N", .group = "Samples",
     .help = "Tokens of a text at most."},
    {.name = "sample.temperature", .type = QR_OPT_FLOAT, AT(sample.temperature), .builtin = "0.8", .min = 0, .max = 100, .group = "Samples",
     .help = "0 takes the most likely token each time."},
    {.name = "sample.top-k", .type = QR_OPT_INT, AT(sample.top_k), .builtin = "40", .min = 0, .max = 1e6, .arg = "N", .group = "Samples",
     .help = "Only the k most likely tokens; 0 means all."},
    {.name = "save.out", .type = QR_OPT_STR, AT(save.out), .arg = "DIR", .group = "Saving",
     .help = "Directory of the run: checkpoints, log.csv, log.jsonl, loss.html."},
    {.name = "save.final", .type = QR_OPT_STR, AT(save.final), .arg = "DIR", .group = "Saving",
     .help = "Where the finished model goes, to be served; otherwise the directory `final` in save.out."},
    {.name = "save.every", .type = QR_OPT_INT, AT(save.every), .builtin = "500", .min = 0, .max = 1e12, .arg = "N", .group = "Saving",
     .help = "Steps between checkpoints; 0 means only when the run ends or is interrupted."},
    {.name = "save.keep", .type = QR_OPT_INT, AT(save.keep), .builtin = "2", .min = 1, .max = 1000000, .arg = "N", .group = "Saving",
     .help = "Checkpoints to keep; older ones are removed."},
    {.name = "save.best", .type = QR_OPT_FLAG, AT(save.best), .builtin = "false", .group = "Saving",
     .help = "Whenever the held-out loss is the lowest so far, the model goes to the directory `best` in save.out, to be served."},
    {.name = "log.every", .type = QR_OPT_INT, AT(log.every), .builtin = "1", .min = 1, .max = 1e12, .arg = "N", .group = "Log",
     .help = "Steps between lines on the screen; files get every step."},
    {.name = "log.plot-log", .type = QR_OPT_FLAG, AT(log.plot_log), .builtin = "false", .group = "Log",
     .help = "The plot's loss axis is logarithmic."},
};

const char *qr_train_config_where(const struct qr_train_config *c, const char *name, char text[400])
{
    QR_ASSERT(c != NULL && c->set != NULL);
    QR_ASSERT(name != NULL && text != NULL);
    switch (qr_options_source(c->set, name)) {
    case QR_FROM_BUILTIN: snprintf(text, 400, "%s", name); break;
    case QR_FROM_FLAG: snprintf(text, 400, "%s", qr_options_label(c->set, name)); break;
    default: snprintf(text, 400, "%s: %s", qr_options_label(c->set, name), name);
    }
    return text;
}

/* One of two settings says how long the run is. */
static int check_length(const struct qr_train_config *c, struct qr_err *err)
{
    char at[400], steps[400];
    if (c->epochs > 0 && c->steps > 0 && qr_options_source(c->set, "steps") != QR_FROM_BUILTIN)
        return qr_err_set(err, QR_E_USAGE, "%s: %g, but %s is %lld, too; expected one of the two (0 unsets the other)",
                          qr_train_config_where(c, "epochs", at), c->epochs, qr_train_config_where(c, "steps", steps), (long long)c->steps);
    if (c->epochs == 0 && c->steps == 0)
        return qr_err_set(err, QR_E_USAGE, "%s: 0 without epochs; expected at least 1", qr_train_config_where(c, "steps", at));
    return 0;
}

/* What no single row can say. */
static int check(const struct qr_train_config *c, struct qr_err *err)
{
    char at[400];
    if (!c->model.from && !c->model.config)
        return qr_err_set(err, QR_E_USAGE, "neither model.from nor model.config is set: name a model directory to go on from, or a config.json of a new model");
    if (c->model.from && c->model.config)
        return qr_err_set(err, QR_E_USAGE, "%s: model.from is set, too; expected one of the two", qr_train_config_where(c, "model.config", at));
    if (!c->data.train)
        return qr_err_set(err, QR_E_USAGE, "data.train is not set: expected a directory made by `quire data prepare`");
    if (!c->save.out)
        return qr_err_set(err, QR_E_USAGE, "save.out is not set: expected a directory for the run's files");
    if (c->data.sequence > c->batch.tokens)
        return qr_err_set(err, QR_E_USAGE, "%s: %lld is less than data.sequence, %lld: a piece would not fit", qr_train_config_where(c, "batch.tokens", at),
                          (long long)c->batch.tokens, (long long)c->data.sequence);
    if (c->batch.sequences > c->batch.tokens)
        return qr_err_set(err, QR_E_USAGE, "%s: %lld is more than batch.tokens, %lld", qr_train_config_where(c, "batch.sequences", at),
                          (long long)c->batch.sequences, (long long)c->batch.tokens);
    if (c->batch.leaves & (c->batch.leaves - 1))
        return qr_err_set(err, QR_E_USAGE, "%s: %lld, expected a power of two (or 0: one for each rank)", qr_train_config_where(c, "batch.leaves", at),
                          (long long)c->batch.leaves);
    if (c->sample.every > 0 && c->sample.prompts.n == 0)
        return qr_err_set(err, QR_E_USAGE, "%s: sample.prompts is empty; expected texts to go on from", qr_train_config_where(c, "sample.every", at));
    return check_length(c, err);
}

int qr_train_config_load(struct qr_train_config *c, const char *file, const char *const *pairs, int32_t n_pairs, struct qr_err *err)
{
    QR_ASSERT(c != NULL && err != NULL);
    QR_ASSERT(n_pairs == 0 || pairs != NULL);
    *c = (struct qr_train_config){0};
    c->set = qr_options_new(table, QR_COUNT(table), NULL, c);
    int rc = qr_options_read_settings(c->set, file, pairs, n_pairs, err);
    rc = rc ? rc : check(c, err);
    if (rc == 0 && c->epochs > 0)
        c->steps = 0; /* as the settings that are kept in checkpoints say it */
    return rc;
}

void qr_train_config_release(struct qr_train_config *c)
{
    QR_ASSERT(c != NULL);
    qr_options_free(c->set);
    *c = (struct qr_train_config){0};
}

void qr_train_config_print(struct qr_buf *out, const struct qr_train_config *c)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(c != NULL && c->set != NULL);
    qr_options_print(out, c->set);
}

void qr_train_config_help(struct qr_buf *out, int32_t columns)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(columns > 0);
    qr_options_help_settings(out, table, QR_COUNT(table), columns);
}

const struct qr_option *qr_train_config_table(int32_t *n)
{
    QR_ASSERT(n != NULL);
    *n = QR_COUNT(table);
    QR_ASSERT(*n > 0);
    return table;
}
