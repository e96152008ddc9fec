#include "bench/train.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "bench/command.h"
#include "bench/probe.h"
#include "bench/samples.h"
#include "bench/train_spy.h"
#include "loader/hf_config.h"
#include "loader/make_model.h"
#include "train/optim.h"
#include "train/tape.h"

struct train_options {
    const char *isa;
    int32_t dtype, recompute, optimizer;
    int64_t dim, layers, heads, kv_heads, ffn, vocab, batch, tokens, threads, steps;
    bool json, kern;
};

#define SIZE(what, value, low, high, text)                                                                                        \
    {.name = #what, .type = QR_OPT_INT, .offset = offsetof(struct train_options, what), .builtin = value, .min = low, .max = high, \
     .arg = "N", .help = text}

static const struct qr_option table[] = {
    SIZE(dim, "768", 8, 16384, "Width of the model."),
    SIZE(layers, "12", 1, 256, "Layers."),
    SIZE(heads, "12", 1, 256, "Query heads; the width of a head is dim / heads."),
    {.name = "kv-heads", .type = QR_OPT_INT, .offset = offsetof(struct train_options, kv_heads), .builtin = "0", .min = 0, .max = 256, .arg = "N",
     .help = "Heads of keys and values; 0 means as many as query heads."},
    SIZE(ffn, "2048", 1, 262144, "Width of the feed-forward."),
    SIZE(vocab, "50257", 2, 1000000, "Tokens of the vocabulary."),
    SIZE(batch, "4", 1, 4096, "Documents of a step."),
    SIZE(tokens, "64", 1, 65536, "Tokens of a document."),
    SIZE(steps, "5", 1, 100000, "Steps measured, behind one that is not; medians are shown."),
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
    {.name = "kern", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct train_options, kern), .builtin = "false",
     .help = "Also the time of each kind of kernel, against what the machine can do at most."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct train_options, json), .builtin = "false", .help = "One JSON object."}};

static int shape_of(struct qr_model_config *c, const struct train_options *o, struct qr_err *err)
{
    *c = qr_model_config_small(QR_ARCH_LLAMA);
    c->n_embd = (int32_t)o->dim;
    c->n_layers = (int32_t)o->layers;
    c->n_heads = (int32_t)o->heads;
    c->n_kv_heads = (int32_t)(o->kv_heads ? o->kv_heads : o->heads);
    c->n_ffn = (int32_t)o->ffn;
    c->n_vocab = (int32_t)o->vocab;
    c->ctx_max = c->rope.original_ctx = (int32_t)o->tokens;
    c->tied_head = true;
    if (o->dim % o->heads != 0 || o->dim / o->heads % 8 != 0 || o->dim / o->heads > QR_HEAD_DIM_MAX)
        return qr_err_set(err, QR_E_USAGE, "--dim %lld over --heads %lld: expected heads of 8 to %d numbers, a multiple of 8", (long long)o->dim,
                          (long long)o->heads, QR_HEAD_DIM_MAX);
    if (c->n_heads % c->n_kv_heads != 0)
        return qr_err_set(err, QR_E_USAGE, "--kv-heads %d: expected a divisor of --heads %d", c->n_kv_heads, c->n_heads);
    if (o->batch * o->tokens > 1 << 20)
        return qr_err_set(err, QR_E_USAGE, "--batch %lld times --tokens %lld: expected 1,048,576 tokens at most", (long long)o->batch, (long long)o->tokens);
    c->head_dim = (int32_t)(o->dim / o->heads);
    return 0;
}

/* Bytes that the parameters will take: masters, gradients, two moments, and what is computed with, as rows and packed. */
static double parameter_bytes(const struct qr_model_config *c, enum qr_dtype compute)
{
    const double d = c->n_embd, q = (double)c->n_heads * c->head_dim, kv = (double)c->n_kv_heads * c->head_dim;
    const double n = (double)c->n_vocab * d + c->n_layers * (d * (q + 2 * kv) + q * d + 3 * d * c->n_ffn + 2 * d) + d;
    return n * (compute == QR_BF16 ? 4 * 4 + 2 + 2 : 4 * 4 + 4);
}

static int check_room(const struct qr_model_config *c, enum qr_dtype compute, struct qr_err *err)
{
    const double need = parameter_bytes(c, compute), have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char t[2][QR_SIZE_TEXT];
    if (need > have)
        return qr_err_set(err, QR_E_NO_ROOM, "parameters, gradients and moments take %s, this machine has %s of memory",
                          qr_size_text(t[0], (int64_t)need), qr_size_text(t[1], (int64_t)have));
    return 0;
}

static double seconds(int64_t since_us)
{
    return (double)(qr_clock_us() - since_us) * 1e-6;
}

/* What is timed. */
enum { FORWARD, BACKWARD, OPTIMIZER, WHOLE, N_PARTS };

static int step(struct qr_params *p, struct qr_tape *t, struct qr_optim *optim, const struct qr_train_batch *b, double *took, double *loss, struct qr_err *err)
{
    double norm;
    const int64_t start = qr_clock_us();
    *loss = qr_tape_loss(t, b, 1.0f / (float)b->b.n_logits, NULL) / b->b.n_logits;
    took[FORWARD] = seconds(start);
    int64_t since = qr_clock_us();
    int rc = qr_tape_backward(t, err);
    took[BACKWARD] = seconds(since);
    since = qr_clock_us();
    rc = rc ? rc : qr_optim_step(optim, 1e-4, &norm, err);
    took[OPTIMIZER] = seconds(since);
    took[WHOLE] = seconds(start);
    return rc;
}

static void report(const struct train_options *o, const struct qr_params *p, const struct qr_tape *t, struct qr_samples *s, double loss)
{
    const struct qr_tape_memory *m = qr_tape_memory(t);
    const double n = (double)(o->batch * o->tokens), whole = qr_samples_percentile(&s[WHOLE], 50);
    const double part[3] = {qr_samples_percentile(&s[FORWARD], 50), qr_samples_percentile(&s[BACKWARD], 50), qr_samples_percentile(&s[OPTIMIZER], 50)};
    if (o->json) {
        printf("{\"isa\":\"%s\",\"threads\":%d,\"parameters\":%lld,\"tokens\":%.0f,\"tokens_per_s\":%.1f,\"step_s\":%.4f,\"forward_s\":%.4f,"
               "\"backward_s\":%.4f,\"optimizer_s\":%.4f,\"tape_bytes\":%zu,\"loss\":%.6f}\n", p->be->k->name, p->be->n_threads, (long long)p->n, n,
               n / whole, whole, part[0], part[1], part[2], m->total, loss);
        return;
    }
    printf("%s, %d threads: %.1f M parameters, %lld x %lld tokens a step, %s, recompute %s\n", p->be->k->name, p->be->n_threads, (double)p->n * 1e-6,
           (long long)o->batch, (long long)o->tokens, qr_dtype_name(p->compute), (const char *[]){"none", "selective", "full"}[o->recompute]);
    printf("  tape %.1f MiB: kept %.1f, layer %.1f, gradients %.1f, logits %.1f, cache %.1f\n", (double)m->total / 0x1p20, (double)m->keep / 0x1p20,
           (double)m->work / 0x1p20, (double)m->grad / 0x1p20, (double)m->logits / 0x1p20, (double)m->kv / 0x1p20);
    printf("  %.1f tokens/s   step %.1f ms: forward and loss %.1f, backward %.1f, optimizer and packing %.1f   loss %.4f\n", n / whole, whole * 1e3,
           part[0] * 1e3, part[1] * 1e3, part[2] * 1e3, loss);
}

static void fill(struct qr_train_batch *b, const struct train_options *o)
{
    struct qr_rng rng = {.seed = 1};
    int32_t *ids = qr_alloc((size_t)o->tokens + 1, sizeof *ids);
    qr_train_batch_init(b, (int32_t)(o->batch * o->tokens), (int32_t)o->batch);
    for (int64_t s = 0; s < o->batch; s++) {
        for (int64_t i = 0; i <= o->tokens; i++)
            ids[i] = (int32_t)qr_rng_below(&rng, (uint32_t)o->vocab);
        qr_train_batch_add(b, ids, (int32_t)o->tokens + 1, NULL);
    }
    qr_free(ids);
}

/* spy: NULL, or what looks on. The machine's limits are probed beside the steps. */
static void report_kernels(const struct train_options *o, const struct qr_spy *spy, struct qr_params *p, struct qr_samples *s)
{
    const struct qr_backend *be = spy->real;
    const enum qr_probe_unit unit = qr_probe_unit_of(p->compute);
    qr_spy_print(spy, o->steps, 1e9 * qr_samples_mean(&s[WHOLE]), qr_probe_ops_s(be->queue, be->n_threads, be->k->name, unit, 20),
                 qr_probe_bytes_s(be->queue, p->value, (size_t)p->n * sizeof(float), 3));
}

static int measure(const struct train_options *o, struct qr_params *p, struct qr_tape *t, struct qr_spy *spy, struct qr_err *err)
{
    const struct qr_optim_config oc = {.kind = (enum qr_optimizer)o->optimizer, .momentum = 0.95, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1,
                                       .clip = 1, .seed = 1};
    struct qr_samples s[N_PARTS] = {0};
    struct qr_train_batch b;
    struct qr_optim optim;
    double loss = 0, took[N_PARTS];
    int rc = 0;
    fill(&b, o);
    qr_optim_init(&optim, p, &oc);
    for (int64_t i = 0; i <= o->steps && rc == 0; i++) {
        if (spy && i == 1)
            memset(spy->row, 0, sizeof spy->row);
        rc = step(p, t, &optim, &b, took, &loss, err);
        for (int k = 0; i > 0 && k < N_PARTS; k++)
            qr_samples_add(&s[k], took[k]);
    }
    if (rc == 0)
        report(o, p, t, s, loss);
    if (rc == 0 && spy)
        report_kernels(o, spy, p, s);
    for (int k = 0; k < N_PARTS; k++)
        qr_samples_release(&s[k]);
    qr_optim_release(&optim);
    qr_train_batch_release(&b);
    return rc;
}

static int run(const void *options, int *status, struct qr_err *err)
{
    const struct train_options *o = options;
    (void)status;
    const struct qr_backend_options bo = {.isa = o->isa, .n_threads = (int32_t)o->threads};
    const struct qr_tape_options to = {.recompute = (enum qr_recompute)o->recompute, .n_tokens_max = (int32_t)(o->batch * o->tokens),
                                       .n_seqs_max = (int32_t)o->batch};
    const enum qr_dtype compute = o->dtype == 0 ? QR_F32 : QR_BF16;
    struct qr_model_config c;
    struct qr_backend *be = NULL;
    struct qr_params *p = NULL;
    struct qr_tape *t = NULL;
    struct qr_spy spy;
    int rc = shape_of(&c, o, err);
    rc = rc ? rc : check_room(&c, compute, err);
    rc = rc ? rc : qr_backend_open(&be, &bo, err);
    if (rc == 0) {
        qr_spy_init(&spy, be, c.n_vocab);
        qr_params_init(&p, &c, o->kern ? &spy.be : be, compute, 0.02, 1);
        rc = qr_tape_open(&t, p, &to, err);
    }
    rc = rc ? rc : measure(o, p, t, o->kern ? &spy : NULL, err);
    qr_tape_close(t);
    qr_params_close(p);
    qr_backend_close(be);
    return rc;
}

int qr_bench_train_main(int argc, char **argv)
{
    struct train_options o = {0};
    return qr_bench_command_main(&qr_bench_train_command, run, &o, argc, argv);
}

const struct qr_command qr_bench_train_command = {
    .name = "bench train", .purpose = "training steps of any shape: tokens/s, where the time goes",
    .usage = "quire bench train [flags]",
    .examples = "quire bench train --dim 256 --layers 4 --heads 4 --vocab 4096\n"
                "quire bench train --recompute selective --kern",
    .args = "", .table = table, .n_options = QR_COUNT(table), .main = qr_bench_train_main,
};
