#include "bench/throughput.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/rng.h"
#include "bench/samples.h"
#include "model/model.h"

#define BLOCK_TOKENS 16
#define LIST_MAX 16

struct throughput_options {
    const char *model, *isa, *prefill, *batch, *depth;
    int32_t dtype, quantize, kv_cache;
    int64_t threads, steps, repeats, chunk;
    bool json;
};

static const struct qr_option table[] = {
    {.name = "model", .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, model), .arg = "DIR", .help = "Model directory."},
    {.name = "dtype", .type = QR_OPT_ENUM, .offset = offsetof(struct throughput_options, dtype), .builtin = "auto", .choices = "auto|f32|bf16",
     .arg = "TYPE", .help = "Compute type of unquantized weights."},
    {.name = "quantize", .type = QR_OPT_ENUM, .offset = offsetof(struct throughput_options, quantize), .builtin = "none",
     .choices = QR_QUANTIZE_CHOICES, .arg = "TYPE", .help = "Round the matrices to integers while loading."},
    {.name = "kv-cache-dtype", .type = QR_OPT_ENUM, .offset = offsetof(struct throughput_options, kv_cache), .builtin = "auto",
     .choices = "auto|f32|bf16|int8", .arg = "TYPE", .help = "Type of cached keys and values."},
    {.name = "isa", .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, isa), .arg = "LEVEL",
     .help = "Instruction-set level; the best one otherwise."},
    {.name = "threads", .letter = 't', .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, threads), .builtin = "0", .min = 0, .max = 1024,
     .arg = "N", .help = "Worker threads; 0 means one per usable core."},
    {.name = "prefill", .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, prefill), .builtin = "128,512", .arg = "LIST",
     .help = "Prompt lengths."},
    {.name = "batch", .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, batch), .builtin = "1,8,32", .arg = "LIST",
     .help = "Sequences decoded at once."},
    {.name = "depth", .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, depth), .builtin = "0", .arg = "LIST",
     .help = "Tokens already in the cache of each sequence."},
    {.name = "steps", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, steps), .builtin = "16", .min = 1, .max = 100000, .arg = "N",
     .help = "Decode steps of one measurement."},
    {.name = "repeats", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, repeats), .builtin = "5", .min = 1, .max = 1000, .arg = "N",
     .help = "Measurements of each case; the median is shown."},
    {.name = "chunk", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, chunk), .builtin = "512", .min = 1, .max = 65536, .arg = "N",
     .help = "Rows of the largest step."},
    {.name = "json", .type = QR_OPT_FLAG, .offset = offsetof(struct throughput_options, json), .builtin = "false", .help = "One JSON object per case."}};

struct int_list {
    int32_t v[LIST_MAX], n;
};

/* The model, its memory, and the arrays of one batch. */
struct rig {
    const struct throughput_options *o;
    struct qr_backend *be;
    struct qr_model *model;
    struct qr_arena act;
    struct qr_exec exec;
    struct qr_kv_view kv;
    void *act_mem, *kv_mem;
    int32_t ctx, seqs_max, rows_max, stride;
    int32_t *ids, *pos, *slot, *row_start, *ctx_len, *blocks, *logit_row; /* owned */
};

static int parse_list(struct int_list *out, const char *text, const char *name, int32_t min, struct qr_err *err)
{
    out->n = 0;
    for (const char *at = text; *at;) {
        char *end;
        long v = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || v < min || v > 1 << 20 || out->n == LIST_MAX)
            return qr_err_set(err, QR_E_USAGE, "--%s wants up to %d numbers of at least %d like 1,8,32, given '%s'", name, LIST_MAX, min, text);
        out->v[out->n++] = (int32_t)v;
        at = *end ? end + 1 : end;
    }
    return 0;
}

static int32_t largest(const struct int_list *l)
{
    int32_t best = 0;
    for (int32_t i = 0; i < l->n; i++)
        best = l->v[i] > best ? l->v[i] : best;
    return best;
}

static int32_t *ints(int32_t n)
{
    return qr_alloc((size_t)n, sizeof(int32_t));
}

static int open_rig(struct rig *r, const struct throughput_options *o, int32_t ctx, int32_t seqs_max, struct qr_err *err)
{
    struct qr_backend_options bo = {.device = "cpu", .isa = o->isa, .n_threads = (int32_t)o->threads, .pin = true, .step_rows_max = (int32_t)o->chunk};
    struct qr_model_options mo = {.compute = (enum qr_compute)o->dtype, .quantize = (enum qr_quantize)o->quantize,
                                  .kv_cache = (enum qr_kv_cache)o->kv_cache};
    *r = (struct rig){.o = o, .ctx = ctx, .seqs_max = seqs_max, .rows_max = (int32_t)o->chunk > seqs_max ? (int32_t)o->chunk : seqs_max};
    int rc = qr_backend_open(&r->be, &bo, err);
    if (rc == 0)
        rc = qr_model_open(&r->model, o->model, r->be, &mo, err);
    if (rc != 0)
        return rc;
    if (ctx > qr_model_config(r->model)->ctx_max)
        return qr_err_set(err, QR_E_USAGE, "the cases need a context of %d tokens, the model has %d", ctx, qr_model_config(r->model)->ctx_max);
    r->stride = (ctx + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    r->kv = qr_model_kv_view(r->model, NULL, r->stride * seqs_max, BLOCK_TOKENS);
    r->kv.base = r->kv_mem = r->be->mem->alloc((size_t)r->kv.n_blocks * qr_kv_block_bytes(&r->kv));
    memset(r->kv_mem, 0, (size_t)r->kv.n_blocks * qr_kv_block_bytes(&r->kv)); /* pages never written are one page of zeros: no memory would be read */
    size_t act_bytes = qr_model_act_bytes(r->model, r->rows_max, seqs_max);
    r->act_mem = r->be->mem->alloc(act_bytes);
    qr_arena_init_fixed(&r->act, r->act_mem, act_bytes);
    qr_exec_init(&r->exec, r->model, r->be, &r->act, &r->kv);
    r->ids = ints(r->rows_max);
    r->pos = ints(r->rows_max);
    r->slot = ints(r->rows_max);
    r->row_start = ints(seqs_max + 1);
    r->ctx_len = ints(seqs_max);
    r->logit_row = ints(seqs_max);
    r->blocks = ints(r->kv.n_blocks);
    for (int32_t i = 0; i < r->kv.n_blocks; i++)
        r->blocks[i] = i;
    return 0;
}

static void close_rig(struct rig *r)
{
    int32_t *const owned[] = {r->ids, r->pos, r->slot, r->row_start, r->ctx_len, r->logit_row, r->blocks};
    for (int i = 0; i < QR_COUNT(owned); i++)
        qr_free(owned[i]);
    if (r->act_mem)
        r->be->mem->free(r->act_mem);
    if (r->kv_mem)
        r->be->mem->free(r->kv_mem);
    qr_model_close(r->model);
    qr_backend_close(r->be);
}

/* One step: n_rows new tokens at position `first` on in each of n_seqs sequences, logits of the last. */
static void step(struct rig *r, int32_t n_seqs, int32_t first, int32_t n_rows, struct qr_rng *rng)
{
    int32_t vocab = qr_model_config(r->model)->n_vocab, row = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        r->row_start[s] = row;
        for (int32_t i = 0; i < n_rows; i++, row++) {
            r->ids[row] = (int32_t)qr_rng_below(rng, (uint32_t)vocab);
            r->pos[row] = first + i;
            r->slot[row] = s * r->stride * BLOCK_TOKENS + first + i;
        }
        r->row_start[s + 1] = row;
        r->ctx_len[s] = first + n_rows;
        r->logit_row[s] = row - 1;
    }
    const struct qr_batch b = {.n_tokens = row, .n_seqs = n_seqs, .n_prefill_seqs = n_rows > 1 ? n_seqs : 0, .n_logits = n_seqs,
                               .block_tokens = BLOCK_TOKENS, .table_stride = r->stride, .ids = r->ids, .pos = r->pos, .slot = r->slot,
                               .row_start = r->row_start, .ctx_len = r->ctx_len, .block_table = r->blocks, .logit_row = r->logit_row};
    qr_model_forward(&r->exec, &b);
}

/* Seconds to compute n tokens of one prompt in chunks. */
static double prefill_s(struct rig *r, int32_t n, struct qr_rng *rng)
{
    int64_t t0 = qr_clock_ns();
    for (int32_t first = 0; first < n; first += (int32_t)r->o->chunk)
        step(r, 1, first, n - first < r->o->chunk ? n - first : (int32_t)r->o->chunk, rng);
    return (double)(qr_clock_ns() - t0) * 1e-9;
}

static double decode_s(struct rig *r, int32_t n_seqs, int32_t depth, struct qr_rng *rng)
{
    int64_t t0 = qr_clock_ns();
    for (int32_t i = 0; i < r->o->steps; i++)
        step(r, n_seqs, depth + i, 1, rng);
    return (double)(qr_clock_ns() - t0) * 1e-9;
}

static void report(const struct rig *r, const char *what, int32_t n_seqs, int32_t depth, int64_t n_tokens, struct qr_samples *s)
{
    double median = qr_samples_percentile(s, 50), best = qr_samples_percentile(s, 0);
    if (r->o->json)
        printf("{\"case\":\"%s\",\"batch\":%d,\"depth\":%d,\"tokens\":%lld,\"tok_s\":%.2f,\"best_tok_s\":%.2f,\"isa\":\"%s\",\"threads\":%d}\n", what,
               n_seqs, depth, (long long)n_tokens, (double)n_tokens / median, (double)n_tokens / best, r->be->k->name, r->be->n_threads);
    else
        printf("%-8s %6d %7d %10.1f %10.1f\n", what, n_seqs, depth, (double)n_tokens / median, (double)n_tokens / best);
    fflush(stdout);
}

static void run_cases(struct rig *r, const struct int_list *prefill, const struct int_list *batch, const struct int_list *depth)
{
    struct qr_rng rng = {.seed = 1};
    if (!r->o->json)
        printf("%s, %s, %d threads, %s weights of %.1f MiB, %s cache\n%-8s %6s %7s %10s %10s\n", r->o->model, r->be->k->name, r->be->n_threads,
               qr_dtype_name(qr_model_weight_dtype(r->model)), (double)qr_model_weight_bytes(r->model) / 0x1p20,
               qr_dtype_name(r->kv.dtype), "case", "batch", "tokens", "tok/s", "best");
    for (int32_t i = 0; i < prefill->n; i++) {
        struct qr_samples s = {0};
        prefill_s(r, prefill->v[i], &rng);
        for (int64_t k = 0; k < r->o->repeats; k++)
            qr_samples_add(&s, prefill_s(r, prefill->v[i], &rng));
        report(r, "prefill", 1, prefill->v[i], prefill->v[i], &s);
        qr_samples_release(&s);
    }
    for (int32_t d = 0; d < depth->n; d++)
        for (int32_t i = 0; i < batch->n; i++) {
            struct qr_samples s = {0};
            decode_s(r, batch->v[i], depth->v[d], &rng);
            for (int64_t k = 0; k < r->o->repeats; k++)
                qr_samples_add(&s, decode_s(r, batch->v[i], depth->v[d], &rng));
            report(r, "decode", batch->v[i], depth->v[d], r->o->steps * batch->v[i], &s);
            qr_samples_release(&s);
        }
}

static int run(const struct throughput_options *o, struct qr_err *err)
{
    struct int_list prefill, batch, depth;
    struct rig r;
    if (!o->model)
        return qr_err_set(err, QR_E_USAGE, "no model named: add --model DIR (quire bench make-model makes one)");
    int rc = parse_list(&prefill, o->prefill, "prefill", 1, err);
    if (rc == 0)
        rc = parse_list(&batch, o->batch, "batch", 1, err);
    if (rc == 0)
        rc = parse_list(&depth, o->depth, "depth", 0, err);
    if (rc != 0)
        return rc;
    int32_t deepest = largest(&depth) + (int32_t)o->steps, longest = largest(&prefill), seqs = largest(&batch);
    rc = open_rig(&r, o, deepest > longest ? deepest : longest, seqs > 0 ? seqs : 1, err);
    if (rc == 0)
        run_cases(&r, &prefill, &batch, &depth);
    close_rig(&r);
    return rc;
}

int qr_bench_throughput_main(int argc, char **argv)
{
    struct throughput_options o = {0};
    struct qr_err err;
    struct qr_buf text;
    struct qr_option_set *set = qr_options_new(table, QR_COUNT(table), &o);
    int rc = qr_options_read(set, argc, argv, &err), status = 0;
    qr_buf_init(&text);
    if (rc == 0 && qr_options_wants_help(set)) {
        qr_buf_put_str(&text, "quire bench throughput --model DIR\n\n");
        qr_options_help(&text, table, QR_COUNT(table), 100);
        fwrite(text.data, 1, text.len, stdout);
    } else if (rc != 0 || (rc = run(&o, &err)) != 0) {
        fprintf(stderr, "quire bench throughput: %s\n", err.msg);
        status = qr_err_exit_status((enum qr_code)rc);
    }
    qr_buf_release(&text);
    qr_options_free(set);
    return status;
}
