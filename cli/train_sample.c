#include "cli/train_sample.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define CHUNK_TOKENS 64

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
    *s = (struct qr_train_sampler){.c = t->c};
    if (t->c->sample.every == 0)
        return 0;
    struct qr_model *model;
    int rc = qr_tokenizer_open(&s->tokenizer, t->tokenizer_dir, err);
    rc = rc ? rc : read_prompts(s, t->model.ctx_max, err);
    rc = rc ? rc : qr_model_over(&model, &t->model, &t->params->weights, t->be, err);
    if (rc)
        return rc;
    qr_train_plan_add(&t->plan, "samples", qr_alone_bytes(model, s->ctx_max, CHUNK_TOKENS, 1));
    qr_model_close(model);
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
    qr_alone_init(&s->alone, s->model, t->be, NULL, s->ctx_max, CHUNK_TOKENS, 1, false);
    qr_sampler_init(&s->sampler, t->model.n_vocab);
    return 0;
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
        row.x = qr_alone_step(&s->alone, ids, first, n - first < CHUNK_TOKENS ? n - first : CHUNK_TOKENS).data;
    while (n < s->ctx_max && n - prompt->n < s->c->sample.tokens) {
        const int32_t id = qr_sample(&s->sampler, &row, &how, ids, n, prompt->n, NULL, 0, i);
        if (ends(s, id))
            break;
        qr_buf_put(text, piece, qr_detok_push(&detok, piece, id));
        ids[n++] = id;
        if (n < s->ctx_max)
            row.x = qr_alone_step(&s->alone, ids, n - 1, 1).data;
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
        qr_alone_release(&s->alone);
        qr_sampler_release(&s->sampler);
        qr_model_close(s->model);
    }
    qr_tokenizer_close(s->tokenizer);
    *s = (struct qr_train_sampler){0};
}
