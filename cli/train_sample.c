#include "cli/train_sample.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define CHUNK_TOKENS 64
#define BLOCK_TOKENS 16

static int read_prompts(struct qr_train_sampler *s, int32_t ctx_max, struct qr_err *err)
{
    const struct qr_train_config *c = s->c;
    char at[400];
    s->prompt = qr_alloc((size_t)c->sample.prompts.n, sizeof *s->prompt);
    for (int32_t i = 0; i < c->sample.prompts.n; i++) {
        struct qr_ids *ids = &s->prompt[i];
        const char *text = c->sample.prompts.item[i];
        int rc = qr_tokenizer_encode(s->tokenizer, ids, text, strlen(text), QR_ENCODE_PARSE_SPECIAL | QR_ENCODE_ADD_SPECIAL, err);
        if (rc)
            return rc;
        if (ids->n < 1 || ids->n >= ctx_max)
            return qr_err_set(err, QR_E_USAGE, "%s: number %d has %d tokens, expected 1 to %d (the model's context, less one to write)",
                              qr_train_config_where(c, "sample.prompts", at), i + 1, ids->n, ctx_max - 1);
        const int64_t want = ids->n + c->sample.tokens, longest = want < ctx_max ? want : ctx_max;
        s->ctx_max = longest > s->ctx_max ? (int32_t)longest : s->ctx_max;
    }
    return 0;
}

int qr_train_sampler_open(struct qr_train_sampler *s, struct qr_trainer *t, struct qr_err *err)
{
    QR_ASSERT(s != NULL && t != NULL);
    QR_ASSERT(err != NULL && t->params->planned);
    *s = (struct qr_train_sampler){.c = t->c, .mem = t->be->mem};
    if (t->c->sample.every == 0)
        return 0;
    struct qr_model *model;
    int rc = qr_tokenizer_open(&s->tokenizer, t->tokenizer_dir, err);
    rc = rc ? rc : read_prompts(s, t->model.ctx_max, err);
    rc = rc ? rc : qr_model_over(&model, &t->model, &t->params->weights, t->be, err);
    if (rc)
        return rc;
    const int32_t n_blocks = (s->ctx_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    s->kv = qr_model_kv_view(model, NULL, n_blocks, BLOCK_TOKENS);
    s->kv_bytes = (size_t)n_blocks * qr_kv_block_bytes(&s->kv);
    s->act_bytes = qr_model_act_bytes(model, CHUNK_TOKENS, 1);
    qr_model_close(model);
    qr_train_plan_add(&t->plan, "samples", s->kv_bytes + s->act_bytes);
    return 0;
}

int qr_train_sampler_begin(struct qr_train_sampler *s, const struct qr_trainer *t, struct qr_err *err)
{
    QR_ASSERT(s != NULL && t != NULL);
    QR_ASSERT(err != NULL && t->tape != NULL);
    if (!s->tokenizer)
        return 0;
    int rc = qr_model_over(&s->model, &t->model, &t->params->weights, t->be, err);
    if (rc)
        return rc;
    s->kv.base = s->kv_mem = s->mem->alloc(s->kv_bytes);
    s->act_mem = s->mem->alloc(s->act_bytes);
    qr_arena_init_fixed(&s->act, s->act_mem, s->act_bytes);
    qr_exec_init(&s->exec, s->model, t->be, &s->act, &s->kv);
    qr_sampler_init(&s->sampler, t->model.n_vocab);
    s->count = qr_alloc((size_t)s->ctx_max, sizeof *s->count);
    for (int32_t i = 0; i < s->ctx_max; i++)
        s->count[i] = i;
    return 0;
}

/* Rows ids[first .. first + n) of the sequence; logits behind the last. */
static float *compute(struct qr_train_sampler *s, const int32_t *ids, int32_t first, int32_t n)
{
    const int32_t row_start[2] = {0, n}, ctx_len = first + n, last = n - 1;
    const struct qr_batch b = {.n_tokens = n, .n_seqs = 1, .n_prefill_seqs = first == 0 || n > 1, .n_logits = 1, .block_tokens = BLOCK_TOKENS,
                               .table_stride = (s->ctx_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS, .ids = ids + first, .pos = s->count + first,
                               .slot = s->count + first, .row_start = row_start, .ctx_len = &ctx_len, .block_table = s->count, .logit_row = &last};
    const struct qr_tensor logits = qr_model_forward(&s->exec, &b);
    return logits.data;
}

static bool ends(const struct qr_train_sampler *s, int32_t id)
{
    const struct qr_model_config *c = qr_model_config(s->model);
    for (int32_t i = 0; i < c->n_eos; i++)
        if (c->eos_ids[i] == id)
            return true;
    return id == qr_tokenizer_eos(s->tokenizer);
}

void qr_train_sampler_write(struct qr_train_sampler *s, int32_t i, struct qr_buf *text)
{
    QR_ASSERT(s != NULL && s->model != NULL);
    QR_ASSERT(i >= 0 && i < s->c->sample.prompts.n && text != NULL);
    const struct qr_ids *prompt = &s->prompt[i];
    struct qr_sampling how;
    struct qr_detok detok;
    qr_sampling_init(&how);
    how.temperature = (float)s->c->sample.temperature;
    how.top_k = (int32_t)s->c->sample.top_k;
    how.seed = (uint64_t)s->c->seed;
    qr_detok_init(&detok, s->tokenizer, prompt->id, prompt->n, true);
    char *piece = qr_alloc(qr_detok_piece_max(s->tokenizer), 1);
    int32_t *ids = qr_alloc((size_t)s->ctx_max, sizeof *ids), n = prompt->n;
    memcpy(ids, prompt->id, (size_t)n * sizeof *ids);
    struct qr_logits row = {0};
    for (int32_t first = 0; first < n; first += CHUNK_TOKENS)
        row.x = compute(s, ids, first, n - first < CHUNK_TOKENS ? n - first : CHUNK_TOKENS);
    while (n < s->ctx_max && n - prompt->n < s->c->sample.tokens) {
        const int32_t id = qr_sample(&s->sampler, &row, &how, ids, n, prompt->n, NULL, 0, i);
        if (ends(s, id))
            break;
        qr_buf_put(text, piece, qr_detok_push(&detok, piece, id));
        ids[n++] = id;
        if (n < s->ctx_max)
            row.x = compute(s, ids, n - 1, 1);
    }
    qr_buf_put(text, piece, qr_detok_flush(&detok, piece));
    qr_free(piece);
    qr_free(ids);
}

void qr_train_sampler_close(struct qr_train_sampler *s)
{
    QR_ASSERT(s != NULL);
    for (int32_t i = 0; s->prompt && i < s->c->sample.prompts.n; i++)
        qr_ids_release(&s->prompt[i]);
    qr_free(s->prompt);
    if (s->model) {
        qr_exec_release(&s->exec);
        s->mem->free(s->kv_mem);
        s->mem->free(s->act_mem);
        qr_sampler_release(&s->sampler);
        qr_free(s->count);
        qr_model_close(s->model);
    }
    qr_tokenizer_close(s->tokenizer);
    *s = (struct qr_train_sampler){0};
}
