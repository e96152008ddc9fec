/* request.c - a request is made and freed (engine.h): one block holds it, its ids, stops and biases. Any thread. */
#include <string.h>

#include "answers/grammar/matcher.h"
#include "base/assert.h"
#include "base/mem.h"
#include "engine/engine.h"

/* One run: its length goes before its ids. Returns how many ids it has, or an error. */
static int add_run(struct qr_ids *out, const struct qr_tokenizer *tokenizer, const char *text, size_t len, struct qr_err *err)
{
    const int32_t at = out->n;
    qr_ids_push(out, 0);
    const int rc = qr_tokenizer_encode(tokenizer, out, text, len, QR_ENCODE_PARSE_SPECIAL, err);
    out->id[at] = out->n - at - 1;
    return rc ? rc : out->id[at];
}

int qr_bad_words_encode(struct qr_ids *out, const struct qr_tokenizer *tokenizer, const char *text, size_t len, struct qr_err *err)
{
    QR_ASSERT(out != NULL && tokenizer != NULL);
    QR_ASSERT(text != NULL && err != NULL);
    for (; len > 0 && strchr(" \t\n\v\f\r", *text); text++)
        len--;
    const int32_t bare = out->n, n = add_run(out, tokenizer, text, len, err);
    if (n <= 0)
        return n < 0 ? n : qr_err_set(err, QR_E_INVALID, "it has no token; leave it out");
    struct qr_buf behind = {0};
    qr_buf_put_byte(&behind, ' ');
    qr_buf_put(&behind, text, len);
    const int32_t at = out->n, n_behind = add_run(out, tokenizer, behind.data, behind.len, err);
    qr_buf_release(&behind);
    if (n_behind != n || out->id[at + 1] == out->id[bare + 1])
        out->n = at;
    return n_behind < 0 ? n_behind : 0;
}

/* What the ids of each choice begin with. */
struct ids {
    const int32_t *prompt, *prediction;
    int32_t n_prompt, n_prediction;
};

/* Bytes of everything a request carries besides its struct: ids, strings and their failure tables, biases, prompt log-probabilities. */
static size_t memory_bytes(const struct qr_sampling *s, const struct ids *ids, int32_t n_choices, int32_t n_pooled)
{
    const size_t n_ids = (size_t)ids->n_prediction + (size_t)ids->n_prompt + (size_t)s->max_tokens;
    size_t n = (size_t)n_pooled * sizeof(double) + (size_t)n_choices * n_ids * sizeof(int32_t);
    for (int32_t i = 0; i < s->n_stops; i++)
        n += qr_align_up(strlen(s->stop[i]) + 1, 8) + qr_align_up(strlen(s->stop[i]) * sizeof(uint16_t), 8);
    n += (size_t)s->n_logit_bias * sizeof *s->logit_bias + ((size_t)s->n_allowed + (size_t)s->n_bad) * sizeof(int32_t);
    if (s->n_prompt_logprobs >= 0)
        n += (size_t)ids->n_prompt * sizeof(struct qr_token_logprob);
    return n + 64;
}

/* fail[i]: length of the longest proper prefix of s that is also a suffix of s[0..i]. Knuth, Morris, Pratt 1977. */
static void fill_failures(uint16_t *fail, const char *s, size_t n)
{
    QR_ASSERT(n > 0 && n <= QR_STOP_BYTES_MAX);
    fail[0] = 0;
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k > 0 && s[i] != s[k])
            k = fail[k - 1];
        k += s[i] == s[k];
        fail[i] = (uint16_t)k;
    }
}

static void copy_stops(struct qr_request *r, uint8_t **at)
{
    for (int32_t i = 0; i < r->sampling.n_stops; i++) {
        const char *stop = r->sampling.stop[i];
        size_t n = strlen(stop);
        uint16_t *fail = (uint16_t *)*at;
        fill_failures(fail, stop, n);
        r->stop_fail[i] = fail;
        *at += qr_align_up(n * sizeof *fail, 8);
        r->sampling.stop[i] = memcpy(*at, stop, n + 1);
        *at += qr_align_up(n + 1, 8);
    }
}

static void *copy(uint8_t **at, const void *from, size_t bytes)
{
    void *to = *at;
    if (bytes > 0)
        memcpy(to, from, bytes);
    *at += bytes;
    return to;
}

static struct qr_request *request_new(const struct qr_sampling *sampling, const struct ids *ids, int32_t n_choices, int32_t n_pooled)
{
    QR_ASSERT(sampling != NULL && (ids->prompt != NULL || ids->n_prompt == 0) && (ids->prediction != NULL || ids->n_prediction == 0));
    QR_ASSERT(ids->n_prompt >= 0 && ids->n_prediction >= 0 && n_choices >= 1 && n_choices <= QR_CHOICES_MAX);
    QR_ASSERT(sampling->max_tokens >= 0 && sampling->n_stops <= QR_STOPS_MAX && sampling->n_logit_bias <= QR_LOGIT_BIAS_MAX);
    struct qr_request *r = qr_alloc(1, sizeof *r);
    uint8_t *at = qr_alloc(memory_bytes(sampling, ids, n_choices, n_pooled), 1);
    if (!r || !at) {
        qr_free(at);
        qr_free(r);
        return NULL;
    }
    r->memory = at;
    r->sampling = *sampling;
    r->n_prompt = ids->n_prompt;
    r->n_prediction = ids->n_prediction;
    r->n_choices = r->n_open = n_choices;
    r->peer = -1;
    qr_list_init(&r->link);
    if (n_pooled > 0) {
        r->pooled = (double *)at;
        r->n_pooled = n_pooled;
        at += (size_t)n_pooled * sizeof *r->pooled;
    }
    if (sampling->n_prompt_logprobs >= 0) {
        r->prompt_logprobs = (struct qr_token_logprob *)at;
        at += (size_t)ids->n_prompt * sizeof *r->prompt_logprobs;
    }
    r->sampling.logit_bias = copy(&at, sampling->logit_bias, (size_t)sampling->n_logit_bias * sizeof *sampling->logit_bias);
    copy_stops(r, &at);
    r->sampling.allowed = copy(&at, sampling->allowed, (size_t)sampling->n_allowed * sizeof *sampling->allowed);
    r->sampling.bad = copy(&at, sampling->bad, (size_t)sampling->n_bad * sizeof *sampling->bad);
    for (int32_t c = 0; c < n_choices; c++) {
        copy(&at, ids->prediction, (size_t)ids->n_prediction * sizeof(int32_t));
        r->ids[c] = copy(&at, ids->prompt, (size_t)ids->n_prompt * sizeof(int32_t));
        at += (size_t)sampling->max_tokens * sizeof(int32_t);
    }
    return r;
}

struct qr_request *qr_request_new(const struct qr_sampling *sampling, const int32_t *prompt, int32_t n_prompt, int32_t n_choices)
{
    return request_new(sampling, &(struct ids){.prompt = prompt, .n_prompt = n_prompt}, n_choices, 0);
}

struct qr_request *qr_request_new_predicted(const struct qr_sampling *sampling, const int32_t *prompt, int32_t n_prompt, int32_t n_choices,
                                            const int32_t *prediction, int32_t n_prediction)
{
    const struct ids ids = {.prompt = prompt, .n_prompt = n_prompt, .prediction = prediction, .n_prediction = n_prediction};
    return request_new(sampling, &ids, n_choices, 0);
}

struct qr_request *qr_request_new_embedding(const int32_t *prompt, int32_t n_prompt, enum qr_pooling pooling, int32_t width)
{
    QR_ASSERT(pooling != QR_POOLING_NONE);
    QR_ASSERT(width > 0);
    struct qr_sampling nothing;
    qr_sampling_init(&nothing);
    nothing.max_tokens = 0;
    struct qr_request *r = request_new(&nothing, &(struct ids){.prompt = prompt, .n_prompt = n_prompt}, 1, width);
    if (r)
        r->pooling = pooling;
    return r;
}

void qr_request_free(struct qr_request *r)
{
    if (!r)
        return;
    qr_grammar_unref(r->grammar);
    qr_free(r->names);
    qr_free(r->memory);
    qr_free(r);
}

int32_t qr_request_draws_min(const struct qr_request *r)
{
    QR_ASSERT(r != NULL);
    const struct qr_sampling *p = &r->sampling;
    QR_ASSERT(p->min_tokens >= 0);
    const bool stops = p->n_stops > 0 || p->n_stop_ids > 0 || r->grammar;
    return stops ? 0 : p->ignore_eos ? p->max_tokens : p->min_tokens;
}

const char *qr_finish_name(enum qr_finish finish)
{
    static const char *const name[] = {NULL, "stop", "length", "cancelled", "error"};
    QR_ASSERT((int)finish >= 0);
    QR_ASSERT((int)finish < QR_COUNT(name));
    return name[finish];
}

const char *qr_request_state_name(enum qr_request_state state)
{
    static const char *const name[] = {"waiting", "prefill", "decode"};
    QR_ASSERT((int)state >= 0);
    QR_ASSERT((int)state < QR_COUNT(name));
    return name[state];
}
