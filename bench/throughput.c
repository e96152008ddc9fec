/* throughput.c - cases of `quire bench throughput` that go straight through the model, and what each reaches of the probed limits. With --sequences the
 * engine does the batching instead (sequences.c). One thread, which owns the backend. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/files/source.h"
#include "bench/kern/probe.h"
#include "bench/samples.h"
#include "bench/sequences.h"
#include "bench/ways.h"
#include "comm/launch.h"
#include "hub/hub.h"
#include "kernels/cpu/pool.h"
#include "model/lora.h"
#include "model/ranks.h"

#define BLOCK_TOKENS 16
#define LIST_MAX 16
#define PROBE_BYTES ((size_t)512 << 20)
#define IN_CACHE 1.2 /* what is read so much faster than memory comes from a cache */

struct throughput_options {
    const char *model, *device, *isa, *prefill, *batch, *depth;
    struct qr_hub_options hub;
    int32_t dtype, quantize, kv_cache, tune;
    int64_t tensor_parallel, threads, steps, repeats, chunk, cache_bytes, sequences, running, prompt, generate;
    struct qr_str_list lora;
    bool json, probe, deterministic;
};

static const struct qr_option table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, model), .arg = "DIR",
     .help = "Model directory, GGUF file, or ORG/NAME[:FILE] of the hub."},
    QR_HUB_ROWS(struct throughput_options, hub, NULL),
    {.name = "dtype", .type = QR_OPT_ENUM, .offset = offsetof(struct throughput_options, dtype), .builtin = "auto", .choices = "auto|f32|bf16",
     .arg = "TYPE", .help = "Compute type of unquantized weights."},
    {.name = "quantize", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct throughput_options, quantize), .builtin = "none",
     .choices = QR_QUANTIZE_ALL_CHOICES, .arg = "TYPE", .help = "Round the matrices to integers while loading."},
    {.name = "kv-cache-dtype", .type = QR_OPT_ENUM, .offset = offsetof(struct throughput_options, kv_cache), .builtin = "auto",
     .choices = "auto|f32|bf16|int8|fp8", .arg = "TYPE", .help = "Type of cached keys and values."},
    {.name = "device", .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, device), .builtin = "auto", .arg = "NAME",
     .help = "Where to compute: cpu, cuda, cuda:N (several ranks: cuda:N,M), or auto: a GPU where there is one, else the processor."},
    {.name = "isa", .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, isa), .arg = "LEVEL",
     .help = "Instruction-set level; the best one otherwise."},
    {.name = "threads", .brief = true, .letter = 't', .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, threads), .builtin = "0",
     .min = 0, .max = 1024,
     .arg = "N", .help = "Worker threads; 0 means one per usable core."},
    {.name = "tensor-parallel", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, tensor_parallel), .builtin = "1", .min = 1,
     .max = QR_COMM_RANKS_MAX, .arg = "N", .help = "Share the model out to N processes, each with its part of the processors and threads of its own."},
    {.name = "prefill", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, prefill), .builtin = "128,512", .arg = "LIST",
     .help = "Prompt lengths."},
    {.name = "batch", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, batch), .builtin = "1,8,32", .arg = "LIST",
     .help = "Sequences decoded at once."},
    {.name = "depth", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct throughput_options, depth), .builtin = "0", .arg = "LIST",
     .help = "Tokens already in the cache of each sequence, for prompts and for decoding. Less, which is said, where the model's context ends before."},
    {.name = "steps", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, steps), .builtin = "16", .min = 1, .max = 100000, .arg = "N",
     .help = "Decode steps of one measurement."},
    {.name = "repeats", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, repeats), .builtin = "5", .min = 1, .max = 1000, .arg = "N",
     .help = "Measurements of each case; the median is shown."},
    {.name = "chunk", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, chunk), .builtin = "512", .min = 1, .max = 65536, .arg = "N",
     .help = "Rows of the largest step."},
    {.name = "cache", .type = QR_OPT_BYTES, .offset = offsetof(struct throughput_options, cache_bytes), .builtin = "4GiB", .min = 1 << 20,
     .max = 1e15, .arg = "BYTES", .help = "Keys and values at most; cases that need more are left out, and said so."},
    {.name = "sequences", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, sequences), .builtin = "0", .min = 0, .max = 65536,
     .arg = "N", .help = "Instead of these cases: so many requests at once through the engine, until the last one has ended. 0: none."},
    {.name = "running", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, running), .builtin = "0", .min = 0, .max = 65536, .arg = "N",
     .help = "Of these, computed at once, which the cache is made for; the others wait. 0: all."},
    {.name = "prompt", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, prompt), .builtin = "1024", .min = 1, .max = 1 << 20, .arg = "N",
     .help = "Prompt tokens of each, random ids."},
    {.name = "generate", .type = QR_OPT_INT, .offset = offsetof(struct throughput_options, generate), .builtin = "1024", .min = 1, .max = 1 << 20, .arg = "N",
     .help = "Tokens that each generates, the likeliest ones."},
    {.name = "probe", .type = QR_OPT_FLAG, .offset = offsetof(struct throughput_options, probe), .builtin = "true",
     .help = "Measure memory and multipliers first and show each case's share of what they allow."},
    {.name = "lora", .type = QR_OPT_LIST, .offset = offsetof(struct throughput_options, lora), .arg = "DIR",
     .help = "Every sequence with this adapter; of several, sequences take them in turn."},
    {.name = "tune", .type = QR_OPT_ENUM, .offset = offsetof(struct throughput_options, tune), .builtin = "cached", .choices = "off|cached",
     .arg = "WHEN", .help = "Whether to use what --tune now has measured."},
    {.name = "deterministic", .type = QR_OPT_FLAG, .offset = offsetof(struct throughput_options, deterministic), .builtin = "false",
     .help = "On a GPU: a row's bits do not depend on what is computed beside it, at what that costs."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct throughput_options, json), .builtin = "false",
     .help = "One JSON object per case; its keys: docs/operations.md."}};

struct int_list {
    int32_t v[LIST_MAX], n;
};

/* The host's thread while a device computes. As in the engine, a step is waited for once the next one is launched. launch_ns is the time in qr_model_forward,
 * which copies a batch's arrays and launches; the engine's own work and sampling are not in it (--sequences counts them). unfed_ns is the time from the end of
 * a wait to the end of the next, where that one found the device done (QR_WAITED_NS): the device had nothing to do for some part of that time. So it is an
 * upper bound, and 0 says that the device always had work. How long a case's first launch takes is not seen. */
struct host_share {
    int64_t n_steps, launch_ns, unfed_ns, all_ns, waited_ns; /* waited_ns: when the last wait ended */
};

/* The model, its memory, and the arrays of one batch. */
struct rig {
    const struct throughput_options *o;
    struct qr_backend *be;
    struct qr_comm *comm;               /* borrowed; NULL: one rank */
    double waited_share;                /* of the case at hand: time between ranks */
    struct qr_model *model;
    struct qr_arena act;
    struct qr_exec exec;
    struct qr_kv_view kv;
    void *act_mem, *kv_mem;
    struct qr_lora *lora;               /* owned, or NULL */
    struct qr_row_group *group;         /* owned [adapters] */
    int32_t *group_row;                 /* owned [rows_max] */
    struct host_share *share;           /* borrowed: of the case at hand; a device's */
    int32_t seqs_max, rows_max, stride; /* stride: blocks of a sequence in the case at hand */
    bool above;                         /* some case was faster than its limit */
    double read_s_byte, op_s;           /* the probes: seconds for a byte read and for an operation; 0 without */
    double weight_bytes, kv_token_bytes;
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

/* One case: n_rows new tokens, once for a prompt and `steps` times for decoding, behind `depth` in each of n_seqs sequences. */
struct bench_case {
    const char *what;
    int32_t n_seqs, depth, n_tokens; /* n_tokens: of the prompt, or decode steps */
};

/* All cases in the order of the table; returns their number. */
static int32_t list_cases(struct bench_case *out, const struct int_list *prefill, const struct int_list *batch, const struct int_list *depth,
                          int32_t n_steps)
{
    int32_t n = 0;
    for (int32_t d = 0; d < depth->n; d++)
        for (int32_t i = 0; i < prefill->n; i++)
            out[n++] = (struct bench_case){"prefill", 1, depth->v[d], prefill->v[i]};
    for (int32_t d = 0; d < depth->n; d++)
        for (int32_t i = 0; i < batch->n; i++)
            out[n++] = (struct bench_case){"decode", batch->v[i], depth->v[d], n_steps};
    return n;
}

static int32_t blocks_of_sequence(const struct bench_case *c)
{
    return (c->depth + c->n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static int32_t *ints(int32_t n)
{
    return qr_alloc((size_t)n, sizeof(int32_t));
}

/* Drops the cases that do not fit the cache, ends the others' depth where the context ends, returns how many are left; n_blocks: what
 * the largest needs. */
static int32_t fit_cases(const struct rig *r, struct bench_case *cases, int32_t n, int32_t *n_blocks)
{
    struct qr_kv_view one = qr_model_kv_view(r->model, NULL, 1, BLOCK_TOKENS);
    int64_t blocks_max = r->o->cache_bytes / (int64_t)qr_kv_block_bytes(&one), ctx_max = qr_model_config(r->model)->ctx_max;
    int32_t n_left = 0;
    *n_blocks = 1;
    for (int32_t i = 0; i < n; i++) {
        struct bench_case c = cases[i];
        if ((int64_t)c.depth + c.n_tokens > ctx_max)
            c.depth = c.n_tokens > ctx_max ? 0 : (int32_t)ctx_max - c.n_tokens;
        if (c.depth != cases[i].depth && c.n_tokens <= ctx_max)
            fprintf(stderr, "quire bench throughput: %s of %d at depth %d is measured at depth %d: the model's context ends at %d\n", c.what, c.n_seqs,
                    cases[i].depth, c.depth, (int)ctx_max);
        int64_t needed = (int64_t)c.n_seqs * blocks_of_sequence(&c);
        if (needed > blocks_max || c.n_tokens > ctx_max) {
            fprintf(stderr, "quire bench throughput: %s of %d at depth %d is left out: it needs %s\n", c.what, c.n_seqs, c.depth,
                    needed > blocks_max ? "a larger cache (--cache)" : "a longer context than the model's");
            continue;
        }
        *n_blocks = needed > *n_blocks ? (int32_t)needed : *n_blocks;
        cases[n_left++] = c;
    }
    return n_left;
}

/* What memory and multipliers allow; of a device, copying and its own largest product. */
static void run_probes(struct rig *r)
{
    struct qr_backend *be = r->be;
    const bool host = be->mem->host;
    const enum qr_probe_unit unit = qr_probe_unit_of(qr_model_weight_dtype(r->model));
    const size_t room = host ? 0 : qr_probe_device_room(be), n_bytes = room > PROBE_BYTES ? room : PROBE_BYTES;
    void *memory = be->mem->alloc(n_bytes);
    qr_probe_fill(be, memory, n_bytes);
    const double bytes_s = host ? qr_probe_bytes_s(be->queue, memory, n_bytes, 5)
                                : qr_probe_device_bytes_s(be, memory, n_bytes);
    const double ops_s = host ? qr_probe_ops_s(be->queue, be->n_threads, be->k->name, unit, 20)
                              : qr_probe_device_ops_s(be, memory, n_bytes);
    be->mem->free(memory);
    r->read_s_byte = 1 / bytes_s;
    r->op_s = ops_s > 0 ? 1 / ops_s : 0;
    const char *by = ops_s <= 0 ? "none" : host ? qr_probe_name(be->k->name, unit) : "its largest product";
    if (r->o->json)
        printf("{\"case\":\"probe\",\"bytes_s\":%.4g,\"ops_s\":%.4g,\"isa\":\"%s\",\"threads\":%d}\n", bytes_s, ops_s,
               be->k->name, be->n_threads);
    else
        printf("probes: %.1f GB/s, %.0f GFLOP/s (%s)\n", bytes_s * 1e-9, ops_s * 1e-9, by);
}

/* Of a layer with experts: numbers of all that a row goes through, and of all that some row goes through where each of `rows` rows chooses as if by lot. */
static void experts_numbers(const struct qr_model_config *m, double rows, double *of_row, double *read)
{
    const double expert = 3.0 * m->n_embd * m->moe.n_ffn, shared = 3.0 * m->n_embd * m->moe.n_ffn_shared, router = (double)m->n_embd * m->moe.n_experts;
    const double wanted = m->moe.n_experts * (1 - pow(1 - (double)m->moe.n_used / m->moe.n_experts, rows));
    *of_row = m->moe.n_used * expert + shared + router;
    *read = wanted * expert + shared + router;
}

/* Bytes of weights that a step of so many rows reads: all, but for experts that no row wants; wanted ones are counted
 * as if drawn by lot. */
static double step_weight_bytes(const struct rig *r, double rows)
{
    const struct qr_model_config *m = qr_model_config(r->model);
    const double heads = (double)m->n_heads * m->head_dim, kv_heads = (double)m->n_kv_heads * m->head_dim;
    double all = (double)m->n_vocab * m->n_embd, unread = 0;
    for (int32_t l = 0; l < m->n_layers; l++) {
        double of_row = 0, read = 3.0 * m->n_embd * m->n_ffn, experts = read;
        if (qr_layer_has_experts(m, l)) {
            experts_numbers(m, rows, &of_row, &read);
            experts_numbers(m, INFINITY, &of_row, &experts);
        }
        all += m->n_embd * (2 * heads + 2 * kv_heads) + experts;
        unread += experts - read;
    }
    return r->weight_bytes * (1 - unread / all);
}

/* Numbers of a layer that a row is multiplied with, on average. */
static double layer_numbers(const struct qr_model_config *m)
{
    const double heads = (double)m->n_heads * m->head_dim, kv_heads = (double)m->n_kv_heads * m->head_dim;
    double sum = 0;
    for (int32_t l = 0; l < m->n_layers; l++) {
        double of_row = 3.0 * m->n_embd * m->n_ffn, read;
        if (qr_layer_has_experts(m, l))
            experts_numbers(m, 1, &of_row, &read);
        sum += m->n_embd * (2 * heads + 2 * kv_heads) + of_row;
    }
    return sum / m->n_layers;
}

/* The least seconds of a case by the probes: each step reads the weights and what is cached, and multiplies; the longer of both counts. */
static double limit_s(const struct rig *r, const struct bench_case *c)
{
    const struct qr_model_config *m = qr_model_config(r->model);
    bool prefill = strcmp(c->what, "prefill") == 0;
    double heads = (double)m->n_heads * m->head_dim, layer = layer_numbers(m), head = (double)m->n_vocab * m->n_embd;
    double rows = (double)c->n_seqs * c->n_tokens, seen = rows * (c->depth + (c->n_tokens + 1) / 2.0); /* rows, and positions seen by all of them */
    double ops = 2 * rows * m->n_layers * layer + 2 * (prefill ? 1 : rows) * head + 4 * heads * m->n_layers * seen;
    double passes = prefill ? (double)((c->n_tokens + r->o->chunk - 1) / r->o->chunk) : c->n_tokens;
    double bytes = passes * step_weight_bytes(r, prefill ? rows / passes : c->n_seqs);
    bytes += r->kv_token_bytes * (prefill ? passes * (c->depth + c->n_tokens / 2.0) : seen);
    double t_bytes = bytes * r->read_s_byte, t_ops = ops * r->op_s;
    return t_bytes > t_ops ? t_bytes : t_ops;
}

static struct qr_backend_options backend_of(const struct throughput_options *o)
{
    return (struct qr_backend_options){.device = o->device, .isa = o->isa, .n_threads = (int32_t)o->threads, .pin = true, .step_rows_max = (int32_t)o->chunk,
                                       .tune = (enum qr_tune_mode)o->tune, .deterministic = o->deterministic};
}

static struct qr_model_options model_of(const struct throughput_options *o, struct qr_comm *comm)
{
    return (struct qr_model_options){.compute = (enum qr_compute)o->dtype, .quantize = (enum qr_quantize)o->quantize,
                                     .kv_cache = (enum qr_kv_cache)o->kv_cache, .comm = comm};
}

static int open_model(struct rig *r, const struct throughput_options *o, struct qr_comm *comm, int32_t seqs_max, struct qr_err *err)
{
    struct qr_backend_options bo = backend_of(o);
    struct qr_model_options mo = model_of(o, comm);
    struct qr_model_plan plan;
    *r = (struct rig){.o = o, .comm = comm, .seqs_max = seqs_max, .rows_max = (int32_t)o->chunk > seqs_max ? (int32_t)o->chunk : seqs_max};
    qr_comm_place(comm, &bo.rank, &bo.n_ranks);
    int rc = qr_backend_open(&r->be, &bo, err);
    if (rc == 0)
        rc = qr_model_plan(&plan, o->model, r->be, &mo, r->rows_max, seqs_max, err);
    if (rc != 0)
        return rc;
    r->weight_bytes = (double)plan.weight_bytes;
    r->kv_token_bytes = (double)plan.kv_token_bytes;
    rc = qr_model_open(&r->model, o->model, r->be, &mo, err);
    if (rc == 0)
        qr_model_prepare(r->model, r->be, r->rows_max, seqs_max);
    return rc;
}

static void make_room(struct rig *r, int32_t n_blocks)
{
    r->kv = qr_model_kv_view(r->model, NULL, n_blocks, BLOCK_TOKENS);
    r->kv.base = r->kv_mem = r->be->mem->alloc((size_t)r->kv.n_blocks * qr_kv_block_bytes(&r->kv));
    /* Pages never written are one page of zeros: no memory would be read. */
    r->be->mem->zero(r->be->queue, r->kv_mem, (size_t)r->kv.n_blocks * qr_kv_block_bytes(&r->kv));
    const size_t act_bytes = r->lora ? qr_model_unfused_act_bytes(r->model, r->rows_max, r->seqs_max)
                                     : qr_model_act_bytes(r->model, r->rows_max, r->seqs_max);
    r->act_mem = qr_model_act_alloc(r->model, r->be, act_bytes);
    qr_arena_init_fixed(&r->act, r->act_mem, act_bytes);
    qr_exec_init(&r->exec, r->model, r->be, &r->act, &r->kv);
    qr_exec_join(&r->exec);
    r->exec.lora = r->lora;
    r->group = qr_alloc((size_t)r->o->lora.n, sizeof *r->group);
    r->group_row = ints(r->rows_max);
    r->ids = ints(r->rows_max);
    r->pos = ints(r->rows_max);
    r->slot = ints(r->rows_max);
    r->row_start = ints(r->seqs_max + 1);
    r->ctx_len = ints(r->seqs_max);
    r->logit_row = ints(r->seqs_max);
    r->blocks = ints(r->kv.n_blocks);
    for (int32_t i = 0; i < r->kv.n_blocks; i++)
        r->blocks[i] = i;
}

static void close_rig(struct rig *r)
{
    int32_t *const owned[] = {r->ids, r->pos, r->slot, r->row_start, r->ctx_len, r->logit_row, r->blocks, r->group_row};
    for (int i = 0; i < QR_COUNT(owned); i++)
        qr_free(owned[i]);
    qr_free(r->group);
    qr_exec_release(&r->exec);
    qr_lora_free(r->lora);
    qr_model_act_free(r->model, r->be, r->act_mem);
    if (r->kv_mem)
        r->be->mem->free(r->kv_mem);
    qr_model_close(r->model);
    qr_backend_close(r->be);
}

/* Sequences take adapters in turn. Returns how many groups of rows there are. */
static int32_t group_rows(struct rig *r, int32_t n_seqs, int32_t n_rows)
{
    const int32_t n = r->o->lora.n < n_seqs ? r->o->lora.n : n_seqs;
    int32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        r->group[i] = (struct qr_row_group){.row = r->group_row + at, .slot = i};
        for (int32_t s = i; s < n_seqs; s += n)
            for (int32_t k = 0; k < n_rows; k++)
                r->group_row[at++] = s * n_rows + k;
        r->group[i].n_rows = (int32_t)(r->group_row + at - r->group[i].row);
    }
    return n;
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
                               .row_start = r->row_start, .ctx_len = r->ctx_len, .block_table = r->blocks, .logit_row = r->logit_row,
                               .group = r->group, .n_groups = group_rows(r, n_seqs, n_rows)};
    const int64_t began_ns = qr_clock_ns();
    qr_model_forward(&r->exec, &b);
    r->share->launch_ns += qr_clock_ns() - began_ns;
    r->share->n_steps++;
}

/* Behind step i of a case, on a device. */
static void await_last(struct rig *r, int32_t i)
{
    struct host_share *s = r->share;
    const int64_t began_ns = qr_clock_ns();
    r->be->mem->mark(r->be->queue, i % QR_MARKS);
    if (i > 0)
        r->be->mem->wait(r->be->queue, (i - 1) % QR_MARKS);
    const int64_t now_ns = qr_clock_ns();
    s->unfed_ns += i > 0 && now_ns - began_ns < QR_WAITED_NS ? now_ns - s->waited_ns : 0;
    s->waited_ns = now_ns;
}

/* Seconds of one case: a prompt in chunks, or decode steps. */
static double case_s(struct rig *r, const struct bench_case *c, struct qr_rng *rng)
{
    int32_t chunk = strcmp(c->what, "decode") == 0 ? 1 : (int32_t)r->o->chunk;
    int64_t t0 = qr_clock_ns();
    for (int32_t first = 0, i = 0; first < c->n_tokens; first += chunk, i++) {
        step(r, c->n_seqs, c->depth + first, c->n_tokens - first < chunk ? c->n_tokens - first : chunk, rng);
        if (!r->be->mem->host)
            await_last(r, i);
    }
    r->be->mem->sync(r->be->queue);
    const int64_t took_ns = qr_clock_ns() - t0;
    r->share->all_ns += took_ns;
    return (double)took_ns * 1e-9;
}

/* Why a case may be faster than its limit, which counts weights read from memory: as many bytes as the weights are read over and over again. */
static void explain_above(const struct rig *r)
{
    const size_t n_bytes = r->weight_bytes < (double)PROBE_BYTES ? (size_t)r->weight_bytes : PROBE_BYTES;
    char *memory = qr_alloc_aligned(n_bytes, 64);
    memset(memory, 1, n_bytes);
    const double bytes_s = qr_probe_bytes_s(r->be->queue, memory, n_bytes, 20);
    qr_free_aligned(memory);
    if (bytes_s * r->read_s_byte > IN_CACHE)
        printf("note: where the share is above 100 %%, the limit does not apply: it counts weights read from memory, but these %.1f MiB fit in the\n"
               "      processor's cache, which gives %.1f GB/s\n", r->weight_bytes / 0x1p20, bytes_s * 1e-9);
    else
        printf("note: a share above 100 %% means that the machine was busier during the probes than during the case; measure again\n");
}

static void report(struct rig *r, const struct bench_case *c, struct qr_samples *s, const struct host_share *h)
{
    double n = (double)c->n_seqs * c->n_tokens, median = qr_samples_percentile(s, 50), best = qr_samples_percentile(s, 0), limit = limit_s(r, c);
    const int32_t chunk = strcmp(c->what, "decode") == 0 ? 1 : (int32_t)r->o->chunk, n_steps = (c->n_tokens + chunk - 1) / chunk;
    const double host_us = (double)h->launch_ns * 1e-3 / (double)h->n_steps, idle = (double)h->unfed_ns / (double)h->all_ns;
    r->above |= limit > median;
    if (r->o->json) {
        printf("{\"case\":\"%s\",\"batch\":%d,\"depth\":%d,\"tokens\":%d,\"tok_s\":%.2f,\"best_tok_s\":%.2f,\"isa\":\"%s\",\"threads\":%d", c->what,
               c->n_seqs, c->depth, c->n_tokens, n / median, n / best, r->be->k->name, r->be->n_threads);
        if (limit > 0)
            printf(",\"limit_tok_s\":%.2f,\"share\":%.4f", n / limit, limit / median);
        if (r->comm)
            printf(",\"ranks\":%d,\"between_ranks\":%.4f", r->comm->size, r->waited_share);
        if (!r->be->mem->host)
            printf(",\"steps\":%d,\"step_us\":%.2f,\"host_us_per_step\":%.2f,\"device_idle_share\":%.5f", n_steps, 1e6 * median / n_steps, host_us, idle);
        printf("}\n");
    } else {
        printf("%-15s %6d %7d %7d %10.1f %10.1f", c->what, c->n_seqs, c->depth, c->n_tokens, n / median, n / best);
        if (limit > 0)
            printf(" %10.1f %5.0f %%", n / limit, 100 * limit / median);
        if (r->comm)
            printf("   %4.1f %% between ranks", 100 * r->waited_share);
        if (!r->be->mem->host)
            printf("   host %.0f us a step, device without work at most %.1f %%", host_us, 100 * idle);
        printf("\n");
    }
    fflush(stdout);
}

/* Measures one case as often as it is to be; the first round warms up. */
static void run_case(struct rig *r, const struct bench_case *c, struct qr_rng *rng)
{
    struct qr_samples s = {0};
    struct host_share share = {0}, warm_up = {0};
    r->stride = blocks_of_sequence(c);
    r->share = &warm_up;
    case_s(r, c, rng);
    r->share = &share;
    const double before = r->comm ? r->comm->stats.waited : 0;
    for (int64_t k = 0; k < r->o->repeats; k++)
        qr_samples_add(&s, case_s(r, c, rng));
    const double waited = r->comm ? r->comm->stats.waited - before : 0;
    r->waited_share = waited / ((double)share.all_ns * 1e-9);
    report(r, c, &s, &share);
    qr_samples_release(&s);
}

static int run_cases(struct rig *r, const struct bench_case *cases, int32_t n, struct qr_err *err)
{
    struct qr_rng rng = {.seed = 1};
    if (!r->o->json)
        printf("%s, %s, %d threads, %s weights of %.1f MiB, %s cache, %d shapes tuned\n", r->o->model, r->be->mem->host ? r->be->k->name : r->be->title,
               r->be->n_threads,
               qr_dtype_name(qr_model_weight_dtype(r->model)), (double)qr_model_weight_bytes(r->model) / 0x1p20, qr_dtype_name(r->kv.dtype),
               qr_tune_count(r->be->tune));
    if (r->comm)
        printf("%s", r->o->json ? "" : "each of several ranks has so much; probes would be one rank's, and are left out\n");
    else if (r->o->probe)
        run_probes(r);
    if (!r->o->json)
        printf("%-15s %6s %7s %7s %10s %10s%s\n", "case", "batch", "depth", "tokens", "tok/s", "best",
               r->o->probe && !r->comm ? "      limit   share" : "");
    for (int32_t i = 0; i < n; i++) {
        run_case(r, &cases[i], &rng);
        if (qr_exec_lost(&r->exec, err))
            return err->code;
    }
    if (r->above && r->be->mem->host && !r->o->json)
        explain_above(r);
    qr_bench_ways_print(r->be, r->o->json);
    return 0;
}

/* Rank 0, whose part is the largest, says how many blocks all have. */
static int agree(const struct rig *r, int32_t *n_blocks, struct qr_err *err)
{
    int64_t n = *n_blocks;
    int rc = qr_ranks_agree(r->comm, &n, 1, err);
    *n_blocks = (int32_t)n;
    return rc;
}

static int run_sequences(const struct throughput_options *o, struct qr_err *err)
{
    const struct qr_sequences_case c = {.model = o->model, .backend = backend_of(o), .options = model_of(o, NULL), .n = (int32_t)o->sequences,
                                        .running = (int32_t)o->running, .n_prompt = (int32_t)o->prompt, .n_generate = (int32_t)o->generate,
                                        .chunk = (int32_t)o->chunk};
    struct qr_sequences_figures f;
    if (o->lora.n > 0 || o->tensor_parallel > 1)
        return qr_err_set(err, QR_E_USAGE, "--lora and --tensor-parallel: not with --sequences %d", c.n);
    int rc = qr_source_find(o->model, err);
    rc = rc ? rc : qr_bench_sequences(&f, &c, err);
    if (rc == 0)
        qr_sequences_print(&f, &c, o->json);
    return rc;
}

static int run(struct qr_command_run *command, struct qr_err *err)
{
    const struct throughput_options *o = command->options;
    struct int_list prefill, batch, depth;
    struct bench_case cases[2 * LIST_MAX * LIST_MAX];
    struct rig r;
    if (!o->model)
        return qr_err_set(err, QR_E_USAGE, "no model named: add --model DIR (quire bench make-model makes one)");
    if (o->sequences > 0)
        return run_sequences(o, err);
    int rc = parse_list(&prefill, o->prefill, "prefill", 1, err);
    if (rc == 0)
        rc = parse_list(&batch, o->batch, "batch", 1, err);
    if (rc == 0)
        rc = parse_list(&depth, o->depth, "depth", 0, err);
    rc = rc ? rc : qr_source_find(o->model, err);
    if (rc != 0)
        return rc;
    int32_t n_cases = list_cases(cases, &prefill, &batch, &depth, (int32_t)o->steps), n_blocks, seqs_max = 1;
    for (int32_t i = 0; i < n_cases; i++)
        seqs_max = cases[i].n_seqs > seqs_max ? cases[i].n_seqs : seqs_max;
    struct qr_comm_team team;
    rc = qr_comm_team_begin(&team, &(struct qr_comm_launch_options){.n_ranks = (int32_t)o->tensor_parallel, .share_cpus = true}, err);
    if (rc != 0)
        return rc;
    rc = open_model(&r, o, qr_comm_team_comm(&team), seqs_max, err);
    if (rc == 0)
        n_cases = fit_cases(&r, cases, n_cases, &n_blocks);
    if (rc == 0 && o->lora.n > 0)
        rc = qr_lora_open(&r.lora, r.model, r.be, o->lora.item, o->lora.n, r.rows_max, err);
    rc = rc ? rc : agree(&r, &n_blocks, err);
    if (rc == 0) {
        make_room(&r, n_blocks);
        rc = team.comm.rank > 0 ? qr_exec_follow(&r.exec, err) : run_cases(&r, cases, n_cases, err);
    }
    if (rc != 0 && r.comm)
        qr_comm_abort(r.comm, err->msg);
    command->status = rc != 0 && team.comm.rank > 0 ? 1 : 0;
    close_rig(&r);
    rc = qr_comm_team_end(&team, rc, err);
    return command->status ? 0 : rc; /* other ranks than the first say nothing */
}

const struct qr_command qr_bench_throughput_command = {
    .name = "bench throughput", .purpose = "prompts and decode steps at batch sizes and depths",
    .usage = "quire bench throughput MODEL [flags]",
    .examples = "quire bench throughput models/quire-tiny\n"
                "quire bench throughput qwen --prefill 512 --batch 1,32 --quantize int8\n"
                "quire bench throughput qwen --sequences 256 --prompt 1024 --generate 1024 --chunk 4096 --json",
    .args = "model", .settle = qr_hub_settle, .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct throughput_options), .run = run,
};
