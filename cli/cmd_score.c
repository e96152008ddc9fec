/* cmd_score.c - log-probabilities of given tokens, straight through the model. A prompt is cut into chunks of rows,
 * which changes no number. Output is one JSON line per input, in order. There is no engine, no cache sharing, no batch.
 * Main thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "engine/sampler.h"
#include "model/alone.h"
#include "model/lora.h"
#include "model/ranks.h"
#include "model/tune.h"

#define CHUNK_TOKENS 64
#define TOP_MAX 65536

struct score_options {
    struct qr_cli_model m;
    const char *lora;
    int64_t top;
    bool logits, add_special;
};

struct scorer {
    const struct score_options *o;
    struct qr_comm_team team;
    struct qr_tokenizer *tokenizer; /* NULL when the directory has none: only "ids" can be scored */
    struct qr_err no_tokenizer;     /* then: why */
    struct qr_backend *be;
    struct qr_model *model;
    struct qr_lora *lora;           /* or NULL */
    struct qr_alone alone;
    int32_t ctx_max, vocab;
    float *logits;  /* [CHUNK_TOKENS][vocab], from a device that the host cannot read; else NULL */
    struct pick {
        float logit;
        int32_t id;
    } *pick; /* [vocab] */
};

/* Larger logit first, then smaller id. */
static int by_logit(const void *a, const void *b)
{
    const struct pick *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void put_top(struct scorer *s, struct qr_buf *out, const float *row, double lse)
{
    int32_t n = s->o->top < s->vocab ? (int32_t)s->o->top : s->vocab;
    for (int32_t i = 0; i < s->vocab; i++)
        s->pick[i] = (struct pick){row[i], i};
    qsort(s->pick, (size_t)s->vocab, sizeof *s->pick, by_logit);
    qr_buf_put_byte(out, '[');
    for (int32_t i = 0; i < n; i++) {
        qr_buf_printf(out, "%s[%d,", i ? "," : "", s->pick[i].id);
        qr_json_put_f32(out, (float)((double)s->pick[i].logit - lse));
        qr_buf_put_byte(out, ']');
    }
    qr_buf_put_byte(out, ']');
}

/* What the result line is made of, filled while chunks are computed. */
struct result {
    struct qr_buf logprobs, top, logits;
};

/* The row behind position pos: log-probability of ids[pos + 1], the alternatives there, and for the last position the logits. */
static void use_row(struct scorer *s, struct result *r, const struct qr_logits *logits, const struct qr_ids *ids, int32_t pos)
{
    const double lse = qr_log_sum_exp(logits, s->vocab);
    const float *row = logits->x;
    bool last = pos + 1 == ids->n;
    if (!last) {
        qr_buf_put_byte(&r->logprobs, ',');
        qr_json_put_f32(&r->logprobs, (float)((double)row[ids->id[pos + 1]] - lse));
    }
    if (s->o->top > 0) {
        if (pos > 0)
            qr_buf_put_byte(&r->top, ',');
        put_top(s, &r->top, row, lse);
    }
    for (int32_t i = 0; last && s->o->logits && i < s->vocab; i++) {
        if (i > 0)
            qr_buf_put_byte(&r->logits, ',');
        qr_json_put_f32(&r->logits, row[i]);
    }
}

static int score_chunk(struct scorer *s, struct result *r, const struct qr_ids *ids, int32_t first, int32_t n, struct qr_err *err)
{
    const struct qr_tensor logits = qr_alone_step(&s->alone, ids->id, first, n);
    if (qr_exec_lost(&s->alone.exec, err))
        return err->code;
    qr_backend_read(s->be, s->logits, logits.data, (size_t)qr_tensor_count(&logits) * sizeof(float));
    for (int32_t i = 0; i < n; i++) {
        const struct qr_logits row = qr_logits_at(s->logits ? s->logits : logits.data, logits.stride[0], &s->alone.exec.stretches, i);
        use_row(s, r, &row, ids, first + i);
    }
    return 0;
}

static int input_ids(struct scorer *s, struct qr_ids *ids, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *prompt = qr_json_find(v, "prompt");
    if (!prompt)
        return qr_cli_ids(ids, qr_json_find(v, "ids"), "ids", err);
    if (qr_json_type(prompt) != QR_JSON_T_STRING)
        return qr_err_at(err, QR_E_INVALID, "prompt", "'prompt' must be a string");
    if (!s->tokenizer)
        return qr_err_at(err, s->no_tokenizer.code, "prompt", "%s; without a tokenizer give \"ids\"", s->no_tokenizer.msg);
    size_t len;
    const char *text = qr_json_str(prompt, &len);
    return qr_tokenizer_encode(s->tokenizer, ids, text, len, QR_ENCODE_PARSE_SPECIAL | (s->o->add_special ? QR_ENCODE_ADD_SPECIAL : 0u), err);
}

static int check_ids(const struct scorer *s, const struct qr_ids *ids, struct qr_err *err)
{
    if (ids->n < 1 || ids->n > s->ctx_max)
        return qr_err_at(err, QR_E_INVALID, "ids", "%d tokens; between 1 and %d can be scored", ids->n, s->ctx_max);
    for (int32_t i = 0; i < ids->n; i++)
        if (ids->id[i] < 0 || ids->id[i] >= s->vocab)
            return qr_err_at(err, QR_E_INVALID, "ids", "token id %d at position %d is outside the vocabulary of %d", ids->id[i], i, s->vocab);
    return 0;
}

static int score_line(void *user, const struct qr_json *v, struct qr_buf *out, struct qr_err *err)
{
    struct scorer *s = user;
    struct qr_ids ids = {0};
    struct result r = {0};
    int rc = input_ids(s, &ids, v, err);
    if (rc == 0)
        rc = check_ids(s, &ids, err);
    for (int32_t first = 0; rc == 0 && first < ids.n; first += CHUNK_TOKENS)
        rc = score_chunk(s, &r, &ids, first, ids.n - first < CHUNK_TOKENS ? ids.n - first : CHUNK_TOKENS, err);
    if (rc == 0) {
        qr_buf_put_str(out, "{\"ids\":");
        qr_buf_put_ids(out, ids.id, ids.n);
        qr_buf_printf(out, ",\"logprobs\":[null%s]", r.logprobs.data ? r.logprobs.data : "");
        if (s->o->top > 0)
            qr_buf_printf(out, ",\"top\":[%s]", r.top.data);
        if (s->o->logits)
            qr_buf_printf(out, ",\"logits\":[%s]", r.logits.data);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_release(&r.logprobs);
    qr_buf_release(&r.top);
    qr_buf_release(&r.logits);
    qr_ids_release(&ids);
    return rc;
}

static int open_scorer(struct scorer *s, struct qr_err *err)
{
    struct qr_model_options mo;
    struct qr_backend_options bo;
    qr_cli_model_options(&mo, &bo, &s->o->m);
    bo.step_rows_max = CHUNK_TOKENS;
    mo.comm = qr_comm_team_comm(&s->team);
    qr_comm_place(mo.comm, &bo.rank, &bo.n_ranks);
    const char *adapter = NULL;
    int rc = qr_source_open(&mo.source, s->o->m.model, err);
    if (rc != 0)
        return rc;
    if (s->o->lora && qr_cli_lora_one(&adapter, s->o->lora, mo.source, err) < 0) {
        qr_source_unref(mo.source);
        return err->code;
    }
    if (qr_tokenizer_open_from(&s->tokenizer, mo.source, &s->no_tokenizer) != 0)
        s->tokenizer = NULL;
    struct qr_progress progress;
    qr_cli_progress_begin(&progress, &mo);
    rc = qr_backend_open(&s->be, &bo, err);
    if (rc == 0)
        rc = qr_model_open(&s->model, s->o->m.model, s->be, &mo, err);
    qr_progress_end(&progress);
    qr_source_unref(mo.source);
    if (rc == 0 && adapter)
        rc = qr_lora_open(&s->lora, s->model, s->be, &adapter, 1, CHUNK_TOKENS, err);
    if (rc != 0)
        return rc;
    if (bo.tune == QR_TUNE_NOW)
        qr_model_tune_and_save(s->model, s->be, CHUNK_TOKENS);
    s->ctx_max = qr_model_config(s->model)->ctx_max;
    s->vocab = qr_model_config(s->model)->n_vocab;
    qr_alone_init(&s->alone, s->model, s->be, s->lora, s->ctx_max, CHUNK_TOKENS, CHUNK_TOKENS, false);
    s->pick = qr_alloc((size_t)s->vocab, sizeof *s->pick);
    if (!s->be->mem->host)
        s->logits = s->be->mem->host_alloc((size_t)CHUNK_TOKENS * (size_t)s->vocab * sizeof *s->logits);
    return 0;
}

static void close_scorer(struct scorer *s)
{
    qr_alone_release(&s->alone);
    qr_lora_free(s->lora);
    qr_free(s->pick);
    if (s->logits)
        s->be->mem->host_free(s->logits);
    qr_model_close(s->model);
    qr_backend_close(s->be);
    qr_tokenizer_close(s->tokenizer);
}

static const struct qr_option table[] = {
    QR_CLI_MODEL_ROWS(struct score_options, m), QR_CLI_MEETING_ROWS(struct score_options, m),
    {.name = "top", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct score_options, top), .builtin = "0", .min = 0, .max = TOP_MAX,
     .arg = "K", .group = "Output", .help = "Also the K most likely ids behind every position, with their log-probabilities."},
    {.name = "lora", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct score_options, lora), .arg = "PATH", .group = "Model",
     .help = "Score with the LoRA adapter in PATH (a directory of PEFT's or quire train's, or a GGUF file); NAME=PATH, as quire serve has it, is "
             "understood, too."},
    {.name = "logits", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct score_options, logits), .builtin = "false", .group = "Output",
     .help = "Also the raw logits behind the last position."},
    {.name = "add-special", .type = QR_OPT_FLAG, .offset = offsetof(struct score_options, add_special), .builtin = "true",
     .group = "Input", .help = "Let the tokenizer add its special tokens (BOS) to a \"prompt\"."}};

/* Other ranks than the first say nothing. */
static int score(struct qr_command_run *r, struct qr_err *err)
{
    const struct score_options *o = r->options;
    struct scorer s = {.o = o};
    int rc = qr_cli_need_model(&o->m, err);
    rc = rc ? rc : qr_cli_team_begin(&s.team, &o->m, err);
    const bool first = s.team.comm.rank == 0;
    rc = rc ? rc : open_scorer(&s, err);
    if (rc == 0)
        rc = first ? qr_cli_each_line(stdin, score_line, &s, err) : qr_exec_follow(&s.alone.exec, err);
    if (rc != 0 && s.team.comm.size > 1)
        qr_comm_abort(&s.team.comm, err->msg); /* before anything that others reach is freed */
    close_scorer(&s);
    rc = qr_comm_team_end(&s.team, rc, err);
    if (rc == 0 || first)
        return rc;
    r->status = qr_err_exit_status(err->code);
    return 0;
}

const struct qr_command qr_cmd_score = {
    .name = "score", .purpose = "log-probabilities of given tokens",
    .usage = "quire score MODEL [--top K] [--logits] [flags] < lines",
    .examples = "echo '{\"prompt\": \"Once upon a time\"}' | quire score models/quire-tiny\n"
                "quire score models/quire-tiny --top 5 < lines.jsonl",
    .text = "Reads JSON lines {\"ids\": [...]} or {\"prompt\": text} and writes per line {\"ids\", \"logprobs\"}: natural logs, null for\n"
            "the first token. \"top\"[i] is what the model expects after token i: [[id, logprob], ...].",
    .args = "model", .settle = qr_hub_settle,
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct score_options), .run = score,
};
