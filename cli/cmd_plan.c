/* cmd_plan.c - the memory that serving a model takes, part by part, without loading it. What depends on the model and the settings alone is
 * computed by the code that allocates it; tokenizer, template and the program itself are measured on this very process; connections are an
 * estimate. */
#include <stdio.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "engine/adapters.h"
#include "engine/draft/model.h"
#include "engine/exchange.h"
#include "loader/config/scorer.h"
#include "model/lora.h"
#include "tokenizer/chat.h"
#ifdef QUIRE_SERVER
#include "server/keys.h"
#endif

/* What a call in flight holds, a connection's buffers and the answer, and two ids for each token that the cache can have; and what there is without any: stacks
 * of threads, the ends of two heaps. Measured with 16 and 64 calls of 9 to 400 ids. What a body is parsed to goes back as soon as it was read. */
#define HTTP_BYTES (640 << 10)
#define HTTP_BYTES_PER_CALL (8 << 10)
#define HTTP_BYTES_PER_TOKEN 8
/* One part in so many of what is free stays the system's: page tables, sockets, and the percent that the sum may be off by. A control group's limit counts
 * them, and ends a server that takes all of it (200 MiB: 3 MiB above the sum). */
#define SYSTEM_SHARE 64

struct plan_options {
    struct qr_cli_model m;
    struct qr_cli_engine e;
    struct qr_cli_lora l;
    struct qr_cli_outside out;
    int64_t requests_bytes, grammars_bytes, responses_bytes;
    bool json;
};

enum part { PART_WEIGHTS, PART_CACHE, PART_STEP, PART_LORA, PART_SCRATCH, PART_TABLES, PART_TOKENIZER, PART_HTTP, PART_PROGRAM, PART_COUNT };

static const char *const part_name[] = {"weight_bytes", "kv_bytes", "act_bytes", "lora_bytes", "scratch_bytes", "table_bytes", "tokenizer_bytes",
                                        "http_bytes", "program_bytes"};

struct memory_plan {
    struct qr_model_plan model;
    struct qr_engine_limits limits;
    const char *scores;  /* what makes scores of pairs of texts; NULL: nothing does */
    int64_t stage_bytes; /* of Dense stages behind the model, a part of its weights */
    int32_t n_threads, logit_rows, n_ranks;
    bool host_is_device; /* kernels' memory is the host's: the cache's second tier is a part of the total */
    int32_t n_sharing; /* of the ranks, one memory */
    int64_t part[PART_COUNT], total, available;
    int64_t requests_bytes; /* beside the total, while large requests are inside */
    int64_t grammars_bytes, responses_bytes; /* beside the total, once requests have used them */
    int64_t room_opened;   /* of what is available, while its files are mapped */
    int64_t blocks_max, kv_tokens_max; /* were all that is free given to the cache and its records, but for SYSTEM_SHARE */
};

static void print_json(const struct memory_plan *p)
{
    const struct qr_engine_limits *l = &p->limits;
    putchar('{');
    for (int i = 0; i < PART_COUNT; i++)
        printf("\"%s\":%lld,", part_name[i], (long long)p->part[i]);
    printf("\"draft_weight_bytes\":%lld,\"draft_token_bytes\":%lld,\"draft_act_bytes\":%lld,", (long long)l->draft.weight_bytes,
           (long long)l->draft.token_bytes, (long long)l->draft.act_bytes);
    printf("\"kv_token_bytes\":%lld,\"kv_blocks\":%d,\"block_tokens\":%d,\"ctx_max\":%d,\"kv_tokens_max\":%lld,\"total_bytes\":%lld,"
           "\"requests_bytes\":%lld,\"grammars_bytes\":%lld,\"available_bytes\":%lld,"
           "\"ranks\":%d,\"dtype\":\"%s\",\"kv_dtype\":\"%s\",\"kv_host_bytes\":%lld,\"kv_host_blocks\":%d,\"kv_pinned_blocks\":%d}\n",
           (long long)l->kv_token_bytes, l->n_blocks, l->block_tokens, l->ctx_max, (long long)p->kv_tokens_max, (long long)p->total,
           (long long)p->requests_bytes, (long long)p->grammars_bytes, (long long)p->available, p->n_ranks,
           qr_dtype_name(p->model.weight_dtype), qr_dtype_name(p->model.kv_dtype), (long long)l->kv_host_bytes, l->n_host_blocks, l->n_pinned_max);
}

static void print_text(const struct memory_plan *p)
{
    const struct qr_engine_limits *l = &p->limits;
    char t[PART_COUNT][QR_SIZE_TEXT], a[QR_SIZE_TEXT], b[QR_SIZE_TEXT], c[QR_SIZE_TEXT];
    for (int i = 0; i < PART_COUNT; i++)
        qr_size_text(t[i], p->part[i]);
    printf("weights    %s (%s)", t[PART_WEIGHTS], qr_dtype_name(p->model.weight_dtype));
    if (p->model.table_bytes)
        printf("; embedding rows %s of it stay in the file's pages", qr_size_text(a, (int64_t)p->model.table_bytes));
    if (p->stage_bytes)
        printf("; stages behind it, for embeddings, %s of it (f32)", qr_size_text(a, p->stage_bytes));
    printf("\ncache      %s = %d blocks of %d tokens, %s a token (%s)\n", t[PART_CACHE], l->n_blocks, l->block_tokens,
           qr_size_text(a, l->kv_token_bytes), qr_dtype_name(p->model.kv_dtype));
    if (l->draft.token_bytes > 0)
        printf("draft      %s of the weights, %s a token of the cache, %s of the step: the draft model's\n", qr_size_text(a, l->draft.weight_bytes),
               qr_size_text(b, l->draft.token_bytes), qr_size_text(c, l->draft.act_bytes));
    if (l->n_host_blocks > 0)
        printf("host tier  %s = %d blocks %s\n", qr_size_text(a, l->kv_host_bytes), l->n_host_blocks,
               p->host_is_device ? "of the same memory: of use on a GPU only" : p->n_ranks > 1 ? "of the host's memory, pinned, beside the rest, for each rank"
                                                                              : "of the host's memory, pinned, beside the rest");
    if (p->scores)
        printf("scores     %s (/v1/rerank, /v1/score)\n", p->scores);
    printf("step       %s for %d rows, %s of it logits of %d rows\n", t[PART_STEP], l->step_tokens_max,
           qr_size_text(a, (int64_t)p->logit_rows * l->vocab * (int64_t)sizeof(float)), p->logit_rows);
    if (l->lora_slots > 0)
        printf("adapters   %s: %d slots of %s for ranks up to %d (%s)\n", t[PART_LORA], l->lora_slots,
               qr_size_text(a, qr_lora_slot_bytes(&p->model.own, p->model.weight_dtype, l->lora_rank_max)), l->lora_rank_max,
               qr_dtype_name(qr_lora_dtype(p->model.weight_dtype)));
    printf("scratch    %s of the kernels, %d threads\n", t[PART_SCRATCH], p->n_threads);
    printf("tables     %s: records of blocks, queues, sampling, events\n", t[PART_TABLES]);
    printf("tokenizer  %s\n", t[PART_TOKENIZER]);
    printf("http       %s for %d calls in flight, about\n", t[PART_HTTP], l->running_max);
    printf("program    %s\n", t[PART_PROGRAM]);
    printf("total      %s of %s available; what is not used is not taken\n", qr_size_text(a, p->total), qr_size_text(b, p->available));
    printf("requests   up to %s more, what large ones hold while they are inside (--max-bodies-size)\n", qr_size_text(a, p->requests_bytes));
    printf("responses  up to %s more, what /v1/responses stores (--responses-size)\n", qr_size_text(a, p->responses_bytes));
    printf("grammars   up to %s more, what schemas and tools of requests are compiled to (--grammar-cache)\n", qr_size_text(a, p->grammars_bytes));
    if (p->total > p->available / p->n_sharing)
        printf("note       that is more than there is: a server may start with these settings, and be ended by the system once it has used them\n");
    if (p->n_ranks > 1)
        printf("ranks      %d, of which each takes so much, or less; they do not share it\n", p->n_ranks);
    const int64_t held = qr_engine_tokens_of(l, l->seq_blocks);
    printf("context    %d tokens a sequence; %.1f sequences of that length at once\n", l->ctx_max, qr_engine_contexts(l));
    if (held < l->ctx_max)
        printf("window     %d tokens in %s layers: a sequence holds the cache of at most %lld tokens\n", p->model.config.window,
               l->n_twins > 0 ? "some" : "all", (long long)held);
    const int64_t longest = p->kv_tokens_max < p->model.config.ctx_max ? p->kv_tokens_max : p->model.config.ctx_max;
    if (longest > 0)
        printf("largest    --kv-tokens %lld takes all that is available: %.1f sequences of %lld tokens\n", (long long)p->kv_tokens_max,
               longest == l->ctx_max ? (double)p->blocks_max / l->seq_blocks : (double)p->kv_tokens_max / (double)longest, (long long)longest);
    else
        printf("largest    nothing is left for a cache beside all the rest\n");
}

/* Bytes that the tokenizer, which the table of the engine's parts needs, and the chat template have allocated. *t: the caller's, also after an error. */
static int plan_text(struct memory_plan *p, struct qr_tokenizer **t, const char *dir, const struct qr_engine_config *ec, struct qr_err *err)
{
    struct qr_tokenizer *tokenizer = NULL;
    struct qr_chat *chat = NULL;
    const int64_t before = qr_memory_allocated();
    int rc = qr_tokenizer_open(&tokenizer, dir, err);
    *t = tokenizer;
    if (rc == 0)
        rc = qr_chat_open(&chat, dir, err);
    if (rc == 0) {
        p->part[PART_TOKENIZER] = qr_memory_allocated() - before;
        p->part[PART_TABLES] = qr_engine_table_bytes(&p->limits, ec, tokenizer, p->n_threads);
    }
    qr_chat_close(chat);
    return rc || !ec->draft_model ? rc : qr_draft_model_check(ec, tokenizer, err);
}

/* Adapters, and what is behind the model in embeddings. */
static int plan_beside(struct memory_plan *p, struct qr_engine_config *ec, const struct plan_options *o, struct qr_err *err)
{
    struct qr_source *source;
    struct qr_pooling_config pooling;
    struct qr_scorer scorer;
    int rc = qr_source_open(&source, o->m.model, err);
    if (rc)
        return rc;
    rc = qr_cli_lora_config(ec, &o->l, 0, source, err);
    qr_pooling_read(&pooling, source, QR_POOLING_NONE);
    p->stage_bytes = qr_pooling_bytes(&pooling);
    qr_pooling_release(&pooling);
    qr_scorer_find(&scorer, source, false);
    p->scores = qr_scorer_name(&scorer);
    qr_source_unref(source);
    return rc;
}

/* While a model is opened its files are mapped, which ulimit -v counts. */
static int64_t room_beside_files(int64_t available, const struct memory_plan *p)
{
    const int64_t left = qr_memory_addresses_left() - (int64_t)p->model.file_bytes;
    return p->host_is_device && left < available ? left : available;
}

static int plan_model(struct memory_plan *p, const struct plan_options *o, struct qr_engine_config *ec, struct qr_err *err)
{
    struct qr_model_options mo;
    struct qr_backend_options bo;
    struct qr_backend *be = NULL;
    qr_cli_model_options(&mo, &bo, &o->m);
    qr_cli_engine_config(ec, &o->e);
    qr_cli_outside_config(ec, &o->out);
    qr_engine_config_fit(ec);
    mo.ctx_max = ec->ctx_max;
    mo.embeds = true;
    bo.step_rows_max = ec->step_tokens_max;
    mo.n_ranks = bo.n_ranks = (int32_t)o->m.tensor_parallel;
    if (mo.n_ranks > 1 && bo.n_threads == 0) /* as ranks share the processors */
        bo.n_threads = qr_cpu_count() > mo.n_ranks ? (qr_cpu_count() + mo.n_ranks - 1) / mo.n_ranks : 1;
    p->logit_rows = ec->logit_rows_max;
    p->n_ranks = mo.n_ranks;
    int rc = qr_engine_check_outside(ec, mo.n_ranks, err);
    rc = rc ? rc : plan_beside(p, ec, o, err);
    rc = rc ? rc : qr_backend_open(&be, &bo, err);
    if (rc == 0 && ec->lora_slots > 0)
        rc = qr_lora_supports(be, err);
    rc = rc ? rc : qr_engine_host_room(ec, mo.n_ranks, err);
    if (rc == 0) {
        ec->split = qr_engine_may_split(ec, be, mo.n_ranks);
        p->host_is_device = be->mem->host;
        p->available = be->mem->available();
        p->n_sharing = be->mem->host ? mo.n_ranks : 1; /* or each rank has a device of its own */
    }
    if (rc == 0 && ec->draft_model)
        rc = qr_draft_model_size(&ec->draft, ec, be, &mo, err);
    if (rc == 0)
        rc = qr_model_plan(&p->model, o->m.model, be, &mo, ec->step_tokens_max, ec->logit_rows_max, err);
    if (rc == 0) {
        p->part[PART_LORA] = qr_engine_lora_bytes(ec, &p->model.own, p->model.n_ranks, p->model.weight_dtype);
        p->room_opened = room_beside_files(qr_engine_available(ec, be, p->n_sharing), p);
        const struct qr_engine_opening of = {o->m.model, be, &mo};
        rc = qr_engine_foresee_opening(&p->limits, ec, &p->model, &of, p->room_opened, err);
        p->n_threads = be->n_threads;
        p->part[PART_SCRATCH] = (int64_t)qr_backend_scratch_bytes(be);
    }
    qr_backend_close(be);
    return rc;
}

struct planning {
    struct memory_plan *p;
    const struct plan_options *o;
    struct qr_engine_config *ec;
    struct qr_err *err;
    int rc;
};

static void *plan_apart(void *arg)
{
    struct planning *w = arg;
    w->rc = plan_model(w->p, w->o, w->ec, w->err);
    return NULL;
}

/* On a thread of its own, as a model is opened: under ulimit -v its stack and the heap of the C library's that comes with it (64 MiB of addresses) are not
 * the model's. */
static int plan_as_opened(struct memory_plan *p, const struct plan_options *o, struct qr_engine_config *ec, struct qr_err *err)
{
    struct planning w = {.p = p, .o = o, .ec = ec, .err = err};
    pthread_t thread;
    qr_thread_start(&thread, plan_apart, &w, "planning");
    pthread_join(thread, NULL);
    return w.rc;
}

/* The pages of the program, and of the library that a server takes hashes from, that a server uses. */
static void use_program(void)
{
    qr_mem_populate_program();
#ifdef QUIRE_SERVER
    const struct qr_key_digest any = {{0}};
    qr_keys_salt(&any, NULL, 0);
#endif
}

/* The most blocks that, with their records, fit into what all the rest leaves, and that an engine being opened does not refuse. */
static int64_t blocks_that_fit(const struct memory_plan *p, const struct qr_engine_config *ec, const struct qr_tokenizer *tokenizer)
{
    const int64_t memory = p->available / p->n_sharing, block = qr_engine_block_bytes(&p->limits);
    const int64_t room = memory - memory / SYSTEM_SHARE - (p->total - p->part[PART_CACHE] - p->part[PART_TABLES]);
    const int64_t when_opened = p->room_opened - p->room_opened / SYSTEM_SHARE - p->limits.weight_bytes - p->limits.act_bytes - p->part[PART_LORA];
    const int64_t by_tokens = INT32_MAX / 2 / p->limits.block_tokens, by_blocks = INT32_MAX / 8 - p->limits.n_host_blocks;
    const int64_t most_ever = by_tokens < by_blocks ? by_tokens : by_blocks; /* that a pool can have */
    int64_t least = 0, most = room > 0 ? room / block : 0;                   /* the answer is one of these */
    if (most > most_ever)
        most = most_ever;
    if (most > when_opened / block)
        most = when_opened / block;
    while (least < most) {
        const int64_t n = (least + most + 1) / 2;
        struct qr_engine_limits l = p->limits;
        l.n_blocks = (int32_t)n;
        l.n_pinned_max = qr_engine_pinned_max(ec, &l);
        if (n * block + qr_engine_table_bytes(&l, ec, tokenizer, p->n_threads) <= room)
            least = n;
        else
            most = n - 1;
    }
    return least;
}

/* All that a start with these settings looks at before it reads weights; also what --check-config asks. */
static int foresee(struct memory_plan *p, struct qr_engine_config *ec, struct qr_tokenizer **t, const struct plan_options *o, struct qr_err *err)
{
    int rc = qr_cli_need_model(&o->m, err);
    rc = rc ? rc : plan_as_opened(p, o, ec, err);
    return rc ? rc : plan_text(p, t, o->m.model, ec, err);
}

int qr_cli_foresee(const struct qr_cli_model *m, const struct qr_cli_engine *e, const struct qr_cli_lora *l, const struct qr_cli_outside *out,
                   struct qr_err *err)
{
    QR_ASSERT(m != NULL && e != NULL);
    QR_ASSERT(l != NULL && out != NULL && err != NULL);
    struct memory_plan p = {.available = qr_memory_available()};
    struct qr_engine_config ec;
    struct qr_tokenizer *tokenizer = NULL;
    const int rc = foresee(&p, &ec, &tokenizer, &(struct plan_options){.m = *m, .e = *e, .l = *l, .out = *out}, err);
    qr_tokenizer_close(tokenizer);
    return rc;
}

static int plan(struct qr_command_run *r, struct qr_err *err)
{
    const struct plan_options *o = r->options;
    struct memory_plan p = {.available = qr_memory_available()};
    struct qr_engine_config ec;
    struct qr_tokenizer *tokenizer = NULL;
    use_program();
    p.part[PART_PROGRAM] = qr_memory_of_process("RssAnon");
    if (foresee(&p, &ec, &tokenizer, o, err) != 0) {
        qr_tokenizer_close(tokenizer);
        return err->code;
    }
    p.part[PART_PROGRAM] += qr_memory_of_process("RssFile"); /* libraries' pages, too, most of which have been used by now; the model's files are closed */
    p.part[PART_WEIGHTS] = p.limits.weight_bytes + p.stage_bytes;
    p.part[PART_CACHE] = p.limits.kv_bytes;
    p.part[PART_STEP] = p.limits.act_bytes;
    p.part[PART_HTTP] = HTTP_BYTES + (int64_t)p.limits.running_max * HTTP_BYTES_PER_CALL +
                         qr_engine_tokens_of(&p.limits, p.limits.n_blocks) * HTTP_BYTES_PER_TOKEN;
    p.total = p.host_is_device ? p.limits.kv_host_bytes : 0;
    for (int i = 0; i < PART_COUNT; i++)
        p.total += p.part[i];
    p.responses_bytes = o->responses_bytes;
    p.requests_bytes = qr_cli_requests_bytes(o->requests_bytes, p.available / p.n_sharing - p.total);
    p.grammars_bytes = qr_cli_grammars_bytes(o->grammars_bytes, p.available / p.n_sharing - p.total);
    p.blocks_max = blocks_that_fit(&p, &ec, tokenizer);
    p.kv_tokens_max = qr_engine_tokens_of(&p.limits, p.blocks_max);
    qr_tokenizer_close(tokenizer);
    if (o->json)
        print_json(&p);
    else
        print_text(&p);
    return 0;
}

static const struct qr_option table[] = {
    QR_CLI_MODEL_ROWS(struct plan_options, m), QR_CLI_ENGINE_ROWS(struct plan_options, e), QR_CLI_LORA_ROWS(struct plan_options, l),
    QR_CLI_OUTSIDE_ROWS(struct plan_options, out),
    {.name = "max-bodies-size", .type = QR_OPT_BYTES, .offset = offsetof(struct plan_options, requests_bytes), .builtin = "256MiB",
     .min = (double)QR_CLI_REQUESTS_MIN, .max = 64.0 * (1 << 30), .arg = "BYTES", .group = "Limits", .help = "As quire serve has it."},
    {.name = "responses-size", .type = QR_OPT_BYTES, .offset = offsetof(struct plan_options, responses_bytes), .builtin = "64MiB",
     .min = 65536, .max = 64.0 * (1 << 30), .arg = "BYTES", .group = "Limits", .help = "As quire serve has it."},
    {.name = "grammar-cache", .type = QR_OPT_BYTES, .offset = offsetof(struct plan_options, grammars_bytes), .builtin = "512MiB",
     .min = (double)QR_CLI_REQUESTS_MIN, .max = 64.0 * (1 << 30), .arg = "BYTES", .group = "Limits", .help = "As quire serve has it."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct plan_options, json), .builtin = "false", .group = "Output",
     .help = "One JSON object."}};

const struct qr_command qr_cmd_plan = {
    .name = "plan", .purpose = "memory plan of a model, without loading it",
    .usage = "quire plan MODEL [flags]",
    .examples = "quire plan models/quire-tiny\n"
                "quire plan llama-3.1-8b --quantize int4 --max-len 8ki",
    .text = "The memory that serving this model with these settings takes, part by part, without loading it.\n"
            "Exit status 5 when it does not fit.",
    .args = "model", .settle = qr_hub_settle,
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct plan_options), .run = plan,
};
