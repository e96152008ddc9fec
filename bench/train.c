/* train.c - `quire bench train`: steps of the trainer's own parts (parameters, tape, optimizer) in one process, each part timed by itself: a device is waited
 * for between them, which takes some ten microseconds of a step. One thread, which owns the backend. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "bench/samples.h"
#include "bench/shapes.h"
#include "train/optim.h"
#include "train/tape.h"

struct train_options {
    const char *device, *isa, *like;
    int32_t dtype, recompute, optimizer;
    int64_t dim, layers, heads, kv_heads, ffn, vocab, batch, tokens, threads, steps;
    bool json;
};

#define SIZE(what, value, low, high, text)                                                                                        \
    {.name = #what, .type = QR_OPT_INT, .offset = offsetof(struct train_options, what), .builtin = value, .min = low, .max = high, \
     .arg = "N", .help = text}

static const struct qr_option table[] = {
    {.name = "like", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct train_options, like), .builtin = "124m", .arg = "NAME",
     .help = "A published shape, as quire bench make-model names them; what follows changes it (0: as it is there)."},
    SIZE(dim, "0", 0, 16384, "Width of the model."),
    SIZE(layers, "0", 0, 256, "Layers."),
    SIZE(heads, "0", 0, 256, "Query heads; the width of a head is then dim / heads."),
    {.name = "kv-heads", .type = QR_OPT_INT, .offset = offsetof(struct train_options, kv_heads), .builtin = "0", .min = 0, .max = 256, .arg = "N",
     .help = "Heads of keys and values; with --heads, 0 means as many."},
    SIZE(ffn, "0", 0, 262144, "Width of the feed-forward."),
    SIZE(vocab, "0", 0, 1000000, "Tokens of the vocabulary."),
    SIZE(batch, "4", 1, 4096, "Documents of a step."),
    SIZE(tokens, "64", 1, 65536, "Tokens of a document."),
    SIZE(steps, "5", 1, 100000, "Steps measured, after one that is not; medians are shown."),
    {.name = "device", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct train_options, device), .builtin = "auto", .arg = "NAME",
     .help = "Where to compute: cpu, cuda, cuda:N, or auto: a GPU where there is one, else the processor."},
    {.name = "dtype", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct train_options, dtype), .builtin = "bf16", .choices = "f32|bf16",
     .arg = "TYPE",
     .help = "What matrices are computed with; masters and moments are f32."},
    {.name = "recompute", .brief = true, .type = QR_OPT_ENUM,
     .offset = offsetof(struct train_options, recompute), .builtin = "none", .choices = "none|selective|full",
     .arg = "WHAT", .help = "What is computed again on the way back instead of kept."},
    {.name = "optimizer", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct train_options, optimizer), .builtin = "adamw", .choices = "adamw|muon",
     .arg = "NAME",
     .help = "Muon moves the matrices of layers, AdamW the rest."},
    {.name = "isa", .type = QR_OPT_STR, .offset = offsetof(struct train_options, isa), .arg = "LEVEL",
     .help = "Instruction-set level; the best one otherwise."},
    {.name = "threads", .brief = true, .letter = 't', .type = QR_OPT_INT, .offset = offsetof(struct train_options, threads), .builtin = "0",
     .min = 0, .max = 1024,
     .arg = "N", .help = "Worker threads; 0 means one per usable core."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct train_options, json), .builtin = "false",
     .help = "One JSON object; its keys: docs/operations.md."}};

static void change(int32_t *value, int64_t wanted)
{
    *value = wanted > 0 ? (int32_t)wanted : *value;
}

static int shape_of(struct qr_model_config *c, const struct train_options *o, struct qr_err *err)
{
    int rc = qr_shape_config(c, o->like, err);
    if (rc)
        return rc;
    if (c->moe.n_experts > 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "--like %s has experts, which are not trained here; expected a model without", o->like);
    change(&c->n_embd, o->dim);
    change(&c->n_layers, o->layers);
    change(&c->n_heads, o->heads);
    change(&c->n_kv_heads, o->kv_heads > 0 ? o->kv_heads : o->heads);
    change(&c->n_ffn, o->ffn);
    change(&c->n_vocab, o->vocab);
    c->ctx_max = c->rope.original_ctx = (int32_t)o->tokens;
    if (o->dim > 0 || o->heads > 0) {
        if (c->n_embd % c->n_heads != 0 || c->n_embd / c->n_heads % 8 != 0 || c->n_embd / c->n_heads > QR_HEAD_DIM_MAX)
            return qr_err_set(err, QR_E_USAGE, "--dim %d over --heads %d: expected heads of 8 to %d numbers, a multiple of 8", c->n_embd, c->n_heads,
                              QR_HEAD_DIM_MAX);
        c->head_dim = c->n_embd / c->n_heads;
    }
    if (c->n_heads % c->n_kv_heads != 0)
        return qr_err_set(err, QR_E_USAGE, "--kv-heads %d: expected a divisor of --heads %d", c->n_kv_heads, c->n_heads);
    if (o->batch * o->tokens > 1 << 20)
        return qr_err_set(err, QR_E_USAGE, "--batch %lld times --tokens %lld: expected 1,048,576 tokens at most", (long long)o->batch, (long long)o->tokens);
    return 0;
}

/* A run: what is measured, and the memory of kernels that it takes. */
struct run {
    const struct train_options *o;
    struct qr_model_config config;
    struct qr_tape_options tape_options;
    struct qr_backend *be;  /* owned */
    struct qr_params *p;    /* owned */
    struct qr_tape *t;      /* owned */
    int64_t planned_bytes;  /* parameters, gradients, moments, tape, kernels' scratch */
    int64_t free_bytes;     /* of the device, before any of it was taken */
};

static enum qr_dtype compute_of(const struct train_options *o)
{
    return o->dtype == 0 ? QR_F32 : QR_BF16;
}

static int check_room(struct run *r, struct qr_err *err)
{
    const enum qr_optimizer kind = (enum qr_optimizer)r->o->optimizer;
    struct qr_tape_memory tape;
    struct qr_params *p;
    char t[2][QR_SIZE_TEXT];
    qr_params_plan(&p, &r->config, r->be, QR_F32, compute_of(r->o));
    const int rc = qr_tape_plan(&tape, p, &r->tape_options, err);
    const size_t muon = kind == QR_OPTIMIZER_MUON ? qr_muon_bytes(p) : 0;
    const int64_t need = rc ? 0 : (int64_t)(qr_params_bytes(p) + qr_optim_bytes(p, kind, NULL) + muon + tape.total);
    qr_params_close(p);
    r->free_bytes = r->be->mem->host ? qr_memory_available() : r->be->mem->available();
    r->planned_bytes = need + (int64_t)qr_backend_scratch_bytes(r->be);
    if (rc == 0 && need > r->free_bytes)
        return qr_err_set(err, QR_E_NO_ROOM, "parameters, gradients, moments and what a step keeps take %s, there are %s of memory; expected a smaller model, "
                          "a smaller --batch, or --recompute", qr_size_text(t[0], need), qr_size_text(t[1], r->free_bytes));
    return rc;
}

/* The most that was in use: of a device, what all its programs have taken since this one began (no step allocates); otherwise this process's memory. */
static int64_t peak_bytes(const struct run *r)
{
    if (r->be->mem->host)
        return qr_memory_of_process("VmHWM");
    return r->free_bytes - r->be->mem->available() + (int64_t)qr_backend_scratch_bytes(r->be);
}

static double seconds(int64_t since_us)
{
    return (double)(qr_clock_us() - since_us) * 1e-6;
}

/* What is timed. */
enum { FORWARD, BACKWARD, OPTIMIZER, WHOLE, N_PARTS };

static const char *const recompute_name[] = {"none", "selective", "full"}, *const optimizer_name[] = {"adamw", "muon"};

static int step(struct run *r, struct qr_optim *optim, const struct qr_train_batch *b, double *took, double *loss, struct qr_err *err)
{
    double norm;
    const int64_t start = qr_clock_us();
    *loss = qr_tape_loss(r->t, b, 1.0f / (float)b->b.n_logits, NULL) / b->b.n_logits; /* read by the host: all of it is done */
    took[FORWARD] = seconds(start);
    int64_t since = qr_clock_us();
    int rc = qr_tape_backward(r->t, err);
    r->be->mem->sync(r->be->queue);
    took[BACKWARD] = seconds(since);
    since = qr_clock_us();
    rc = rc ? rc : qr_optim_step(optim, 1e-4, &norm, err);
    r->be->mem->sync(r->be->queue);
    took[OPTIMIZER] = seconds(since);
    took[WHOLE] = seconds(start);
    return rc;
}

static void report_json(const struct run *r, const double *ms, double loss)
{
    const struct train_options *o = r->o;
    const struct qr_backend *be = r->be;
    struct qr_buf device = {0};
    qr_json_put_str(&device, be->title, strlen(be->title));
    printf("{\"like\":\"%s\",\"device\":%s,\"isa\":\"%s\",\"threads\":%d,\"parameters\":%lld,\"dtype\":\"%s\",\"recompute\":\"%s\",\"optimizer\":\"%s\","
           "\"batch\":%lld,\"sequence\":%lld,\"tokens\":%lld,\"steps\":%lld,", o->like, device.data, be->k->name, be->n_threads, (long long)r->p->n,
           qr_dtype_name(r->p->compute), recompute_name[o->recompute], optimizer_name[o->optimizer], (long long)o->batch, (long long)o->tokens,
           (long long)(o->batch * o->tokens), (long long)o->steps);
    printf("\"tokens_per_s\":%.1f,\"step_ms\":%.3f,\"forward_ms\":%.3f,\"backward_ms\":%.3f,\"optimizer_ms\":%.3f,\"tape_bytes\":%zu,"
           "\"memory_planned_bytes\":%lld,\"memory_peak_bytes\":%lld,\"loss\":%.6f}\n", (double)(o->batch * o->tokens) / ms[WHOLE] * 1e3, ms[WHOLE],
           ms[FORWARD], ms[BACKWARD], ms[OPTIMIZER], qr_tape_memory(r->t)->total, (long long)r->planned_bytes, (long long)peak_bytes(r), loss);
    qr_buf_release(&device);
}

static void report(const struct run *r, struct qr_samples *s, double loss)
{
    const struct train_options *o = r->o;
    const struct qr_tape_memory *m = qr_tape_memory(r->t);
    double ms[N_PARTS];
    for (int k = 0; k < N_PARTS; k++)
        ms[k] = 1e3 * qr_samples_percentile(&s[k], 50);
    if (o->json) {
        report_json(r, ms, loss);
        return;
    }
    if (r->be->mem->host)
        printf("%s, %d threads: ", r->be->k->name, r->be->n_threads);
    else
        printf("%s: ", r->be->title);
    printf("%.1f M parameters, %lld x %lld tokens a step, %s, recompute %s\n", (double)r->p->n * 1e-6, (long long)o->batch, (long long)o->tokens,
           qr_dtype_name(r->p->compute), recompute_name[o->recompute]);
    printf("  memory: %.1f MiB planned, %.1f at most in use\n", (double)r->planned_bytes / 0x1p20, (double)peak_bytes(r) / 0x1p20);
    printf("  tape %.1f MiB: kept %.1f, layer %.1f, gradients %.1f, logits %.1f, cache %.1f\n", (double)m->total / 0x1p20, (double)m->keep / 0x1p20,
           (double)m->work / 0x1p20, (double)m->grad / 0x1p20, (double)m->logits / 0x1p20, (double)m->kv / 0x1p20);
    printf("  %.1f tokens/s   step %.1f ms: forward and loss %.1f, backward %.1f, optimizer and packing %.1f   loss %.4f\n",
           (double)(o->batch * o->tokens) / ms[WHOLE] * 1e3, ms[WHOLE], ms[FORWARD], ms[BACKWARD], ms[OPTIMIZER], loss);
}

static void fill(struct qr_train_batch *b, const struct train_options *o, int32_t n_vocab)
{
    struct qr_rng rng = {.seed = 1};
    int32_t *ids = qr_alloc((size_t)o->tokens + 1, sizeof *ids);
    qr_train_batch_init(b, (int32_t)(o->batch * o->tokens), (int32_t)o->batch);
    for (int64_t s = 0; s < o->batch; s++) {
        for (int64_t i = 0; i <= o->tokens; i++)
            ids[i] = (int32_t)qr_rng_below(&rng, (uint32_t)n_vocab);
        qr_train_batch_add(b, ids, (int32_t)o->tokens + 1, NULL);
    }
    qr_free(ids);
}

static int measure(struct run *r, struct qr_err *err)
{
    const struct train_options *o = r->o;
    const struct qr_optim_config oc = {.kind = (enum qr_optimizer)o->optimizer, .momentum = 0.95, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1,
                                       .clip = 1, .seed = 1};
    struct qr_samples s[N_PARTS] = {0};
    struct qr_train_batch b;
    struct qr_optim optim;
    double loss = 0, took[N_PARTS];
    int rc = 0;
    fill(&b, o, r->config.n_vocab);
    qr_optim_init(&optim, r->p, &oc);
    for (int64_t i = 0; i <= o->steps && rc == 0; i++) {
        rc = step(r, &optim, &b, took, &loss, err);
        for (int k = 0; i > 0 && k < N_PARTS; k++)
            qr_samples_add(&s[k], took[k]);
    }
    if (rc == 0)
        report(r, s, loss);
    for (int k = 0; k < N_PARTS; k++)
        qr_samples_release(&s[k]);
    qr_optim_release(&optim);
    qr_train_batch_release(&b);
    return rc;
}

static int open_backend(struct run *r, struct qr_err *err)
{
    const struct train_options *o = r->o;
    const struct qr_backend_options bo = {.device = o->device, .isa = o->isa, .n_threads = (int32_t)o->threads, .tune = QR_TUNE_CACHED,
                                          .step_rows_max = r->tape_options.n_tokens_max};
    int rc = qr_backend_open(&r->be, &bo, err);
    return rc ? rc : qr_backend_trains(r->be, err);
}

static int run(struct qr_command_run *command, struct qr_err *err)
{
    const struct train_options *o = command->options;
    struct run r = {.o = o, .tape_options = {.recompute = (enum qr_recompute)o->recompute, .n_tokens_max = (int32_t)(o->batch * o->tokens),
                                             .n_seqs_max = (int32_t)o->batch}};
    int rc = shape_of(&r.config, o, err);
    rc = rc ? rc : open_backend(&r, err);
    rc = rc ? rc : check_room(&r, err);
    if (rc == 0) {
        qr_params_init(&r.p, &r.config, r.be, compute_of(o), 0.02, 1);
        rc = qr_tape_open(&r.t, r.p, &r.tape_options, err);
    }
    rc = rc ? rc : measure(&r, err);
    qr_tape_close(r.t);
    qr_params_close(r.p);
    qr_backend_close(r.be);
    return rc;
}

const struct qr_command qr_bench_train_command = {
    .name = "bench train", .purpose = "training steps of any shape: tokens/s, where the time goes",
    .usage = "quire bench train [flags]",
    .examples = "quire bench train --like qwen2.5-0.5b --batch 8 --tokens 1024 --json\n"
                "quire bench train --dim 256 --layers 4 --heads 4 --vocab 4096\n"
                "quire bench train --recompute selective",
    .args = "", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct train_options), .run = run,
};
