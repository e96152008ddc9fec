/* Readers of request fields that are more than one number or truth value. Each reader checks type and bounds, and an
 * error names the JSON path, what was found and what was expected. Arrays are bounded before memory is taken, which is
 * charged to the request's account. Pure; on libuv's pool. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/openai.h"
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

int qr_read_messages(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    p->messages = v;
    return qr_messages_check(v, err);
}

/* ---- prompt: "text" | ["text", ...] | [1, 2, ...] | [[1, 2], ...] ---- */

int qr_read_token_ids(struct qr_ids *ids, const struct qr_json *array, const char *path, int32_t vocab, struct qr_err *err)
{
    char excerpt[72], at[96];
    int32_t i = 0;
    QR_ASSERT(array != NULL && path != NULL);
    QR_ASSERT(vocab > 0 && err != NULL);
    for (const struct qr_json *v = qr_json_first(array); v; v = qr_json_after(v), i++) {
        int64_t id;
        snprintf(at, sizeof at, "%s[%d]", path, i);
        if (qr_json_type(v) != QR_JSON_T_NUMBER)
            return qr_wrong_type(err, at, "a token id", v);
        if (!qr_json_i64(v, &id) || id < 0 || id >= vocab)
            return qr_err_at(err, QR_E_INVALID, at, "%s must be one of this model's token ids, between 0 and %d, found %s", at, vocab - 1,
                             qr_json_excerpt(excerpt, v));
        if (ids)
            qr_ids_push(ids, (int32_t)id);
    }
    return 0;
}

int qr_read_prompt(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    static const char expected[] = "a string, an array of strings, an array of token ids, or an array of such arrays";
    p->prompt = v;
    if (qr_json_type(v) == QR_JSON_T_STRING)
        return 0;
    const struct qr_json *first = qr_json_first(v);
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "prompt", expected, v);
    if (!first)
        return qr_err_at(err, QR_E_INVALID, "prompt", "prompt must not be an empty array");
    enum qr_json_type kind = qr_json_type(first);
    if (kind == QR_JSON_T_NUMBER)
        return qr_read_token_ids(NULL, v, "prompt", context->vocab, err);
    if (kind != QR_JSON_T_STRING && kind != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "prompt[0]", "a string, a token id or an array of token ids", first);
    if (qr_json_count(v) > QR_PROMPTS_MAX)
        return qr_err_at(err, QR_E_INVALID, "prompt", "prompt must have at most %d elements, found %d", QR_PROMPTS_MAX, qr_json_count(v));
    int32_t i = 0;
    for (const struct qr_json *e = first; e; e = qr_json_after(e), i++) {
        char at[64];
        snprintf(at, sizeof at, "prompt[%d]", i);
        if (qr_json_type(e) != kind)
            return qr_wrong_type(err, at, kind == QR_JSON_T_STRING ? "a string like the first" : "an array like the first", e);
        int rc = kind == QR_JSON_T_ARRAY ? qr_read_token_ids(NULL, e, at, context->vocab, err) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- texts ---- */

typedef int add_text(struct qr_params *p, const char *text, size_t n, const struct qr_params_context *context,
                     struct qr_err *err);

static int read_text(struct qr_params *p, const struct qr_json *v, const char *path, add_text *add,
                     const struct qr_params_context *context, struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_STRING)
        return qr_wrong_type(err, path, "a string", v);
    size_t n;
    const char *text = qr_json_str(v, &n);
    if (n < 1 || n > QR_STOP_BYTES_MAX)
        return qr_err_at(err, QR_E_INVALID, path, "%s must be between 1 and %d bytes long, found %zu", path, QR_STOP_BYTES_MAX, n);
    if (add(p, text, n, context, err) == 0)
        return 0;
    snprintf(err->param, sizeof err->param, "%s", path);
    return qr_err_prefix(err, "%s: ", path);
}

/* An array of at most so many texts. */
static int read_texts(struct qr_params *p, const struct qr_json *v, const char *name, int32_t most, add_text *add,
                      const struct qr_params_context *context, struct qr_err *err)
{
    if (qr_json_count(v) > most)
        return qr_err_at(err, QR_E_INVALID, name, "%s must have at most %d strings, found %d", name, most,
                         qr_json_count(v));
    int rc = 0, i = 0;
    for (const struct qr_json *e = qr_json_first(v); e && rc == 0; e = qr_json_after(e), i++) {
        char at[32];
        snprintf(at, sizeof at, "%s[%d]", name, i);
        rc = read_text(p, e, at, add, context, err);
    }
    return rc;
}

static int add_stop(struct qr_params *p, const char *text, size_t n, const struct qr_params_context *context,
                    struct qr_err *err)
{
    p->sampling.stop[p->sampling.n_stops++] = text;
    return 0;
}

int qr_read_stop(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    if (qr_json_type(v) == QR_JSON_T_STRING)
        return read_text(p, v, "stop", add_stop, context, err);
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "stop", "a string or an array of strings", v);
    return read_texts(p, v, "stop", QR_STOPS_MAX, add_stop, context, err);
}

static int add_bad_word(struct qr_params *p, const char *text, size_t n, const struct qr_params_context *context,
                        struct qr_err *err)
{
    return context->tokenizer ? qr_bad_words_encode(&p->bad, context->tokenizer, text, n, err) : 0;
}

int qr_read_bad_words(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context,
                      struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "bad_words", "an array of strings", v);
    const int rc = read_texts(p, v, "bad_words", QR_BAD_WORDS_MAX, add_bad_word, context, err);
    p->sampling.bad = p->bad.id;
    p->sampling.n_bad = p->bad.n;
    return rc;
}

/* ---- ids ---- */

int qr_read_stop_token_ids(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    if (qr_json_count(v) > QR_STOP_IDS_MAX)
        return qr_err_at(err, QR_E_INVALID, "stop_token_ids", "stop_token_ids must have at most %d ids, found %d", QR_STOP_IDS_MAX,
                         qr_json_count(v));
    int rc = qr_read_token_ids(NULL, v, "stop_token_ids", context->vocab, err);
    for (const struct qr_json *e = qr_json_first(v); e && rc == 0; e = qr_json_after(e)) {
        int64_t id = 0;
        qr_json_i64(e, &id);
        p->sampling.stop_ids[p->sampling.n_stop_ids++] = (int32_t)id;
    }
    return rc;
}

int qr_read_allowed_token_ids(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, "allowed_token_ids", "an array of token ids", v);
    const int32_t n = qr_json_count(v);
    if (n < 1 || n > context->vocab)
        return qr_err_at(err, QR_E_INVALID, "allowed_token_ids", "allowed_token_ids must have between 1 and %d ids, found %d", context->vocab, n);
    int rc = qr_read_token_ids(&p->allowed, v, "allowed_token_ids", context->vocab, err);
    p->sampling.allowed = p->allowed.id;
    p->sampling.n_allowed = p->allowed.n;
    return rc;
}

/* ---- how to choose ---- */

int qr_read_seed(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    int64_t i;
    const int rc = qr_read_whole(&i, v, "seed", INT64_MIN, INT64_MAX, err);
    p->has_seed = rc == 0;
    p->sampling.seed = rc == 0 ? (uint64_t)i : 0;
    return rc;
}

int qr_read_best_of(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    int64_t i;
    char excerpt[72];
    const int rc = qr_read_whole(&i, v, "best_of", INT64_MIN, INT64_MAX, err);
    if (rc != 0)
        return rc;
    if (i < p->n) /* n was read before */
        return qr_err_at(err, QR_E_INVALID, "best_of", "best_of must be at least n (%d), found %s", p->n, qr_json_excerpt(excerpt, v));
    if (i > p->n) /* as many as are answered with need no choosing */
        return qr_err_at(err, QR_E_UNSUPPORTED, "best_of", "best_of must be n, found %s; use n and choose among the answers",
                         qr_json_excerpt(excerpt, v));
    return 0;
}

static int read_bias(struct qr_logit_bias *out, const struct qr_json *v, int32_t vocab, struct qr_err *err)
{
    char at[96], excerpt[72];
    const char *key = qr_json_key(v);
    int64_t id = 0;
    size_t n = strlen(key);
    bool digits = n > 0 && n <= 10;
    for (size_t i = 0; i < n && digits; i++) {
        digits = key[i] >= '0' && key[i] <= '9';
        id = id * 10 + (key[i] - '0');
    }
    snprintf(at, sizeof at, "logit_bias.%.40s", key);
    if (!digits || id >= vocab)
        return qr_err_at(err, QR_E_INVALID, at, "logit_bias: keys must be token ids between 0 and %d, found \"%.40s\"", vocab - 1, key);
    if (qr_json_type(v) != QR_JSON_T_NUMBER)
        return qr_wrong_type(err, at, "a number", v);
    double bias = qr_json_f64(v);
    if (!(bias >= -100 && bias <= 100))
        return qr_err_at(err, QR_E_INVALID, at, "%s must be between -100 and 100, found %s", at, qr_json_excerpt(excerpt, v));
    *out = (struct qr_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    return 0;
}

int qr_read_logit_bias(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    int32_t n = qr_json_count(v);
    if (n > QR_LOGIT_BIAS_MAX)
        return qr_err_at(err, QR_E_INVALID, "logit_bias", "logit_bias must have at most %d entries, found %d", QR_LOGIT_BIAS_MAX, n);
    if (n == 0)
        return 0;
    p->bias = qr_alloc((size_t)n, sizeof *p->bias);
    p->sampling.logit_bias = p->bias;
    int rc = 0;
    for (const struct qr_json *e = qr_json_first(v); e && rc == 0; e = qr_json_after(e))
        rc = read_bias(&p->bias[p->sampling.n_logit_bias++], e, context->vocab, err);
    return rc;
}

int qr_read_logprobs_completions(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    int64_t i;
    if (qr_json_type(v) == QR_JSON_T_BOOL && !qr_json_bool(v))
        return 0;
    const int rc = qr_read_whole(&i, v, "logprobs", 0, QR_TOP_LOGPROBS_MAX, err);
    p->logprobs = rc == 0;
    p->sampling.n_logprobs = rc == 0 ? (int32_t)i : -1;
    return rc;
}

/* ---- how to answer ---- */

int qr_read_timeout_us(int64_t *out_us, const struct qr_json *v, int64_t max_us, struct qr_err *err)
{
    char excerpt[72];
    QR_ASSERT(out_us != NULL && v != NULL);
    QR_ASSERT(max_us > 0 && err != NULL);
    if (qr_json_type(v) != QR_JSON_T_NUMBER)
        return qr_wrong_type(err, "timeout", "a number of seconds", v);
    const double s = qr_json_f64(v);
    if (!(s >= 0.1 && s * 1e6 <= (double)max_us))
        return qr_err_at(err, QR_E_INVALID, "timeout", "timeout must be between 0.1 and %g seconds (--request-timeout), found %s", (double)max_us * 1e-6,
                         qr_json_excerpt(excerpt, v));
    *out_us = (int64_t)(s * 1e6);
    return 0;
}

int qr_read_timeout(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    return qr_read_timeout_us(&p->timeout_us, v, context->timeout_max_us ? context->timeout_max_us : INT64_MAX / 2, err);
}

int qr_read_stream_options(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    struct {
        const char *name, *path;
        bool *to;
    } known[] = {
        {"include_usage", "stream_options.include_usage", &p->include_usage},
        {"continuous_usage_stats", "stream_options.continuous_usage_stats", &p->continuous_usage},
    };
    for (int i = 0; i < QR_COUNT(known); i++) {
        const struct qr_json *e = qr_json_find(v, known[i].name);
        if (qr_json_is_null(e))
            continue;
        if (qr_json_type(e) != QR_JSON_T_BOOL)
            return qr_wrong_type(err, known[i].path, "true or false", e);
        *known[i].to = qr_json_bool(e);
    }
    return 0;
}

#define PREDICTION_ID_BYTES 16 /* of a prediction is read what is so many bytes for each token of the context: it is used as far as the context goes */

int qr_read_prediction(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    const struct qr_json *type = qr_json_find(v, "type"), *content = qr_json_find(v, "content");
    char excerpt[72];
    if (!type)
        return qr_err_at(err, QR_E_INVALID, "prediction.type", "prediction.type is required: \"content\"");
    if (!qr_json_says(type, "content"))
        return qr_err_at(err, QR_E_INVALID, "prediction.type", "prediction.type must be \"content\", found %s", qr_json_excerpt(excerpt, type));
    int rc = qr_content_check(content, "prediction.content", err);
    if (rc != 0 || !context->tokenizer)
        return rc;
    struct qr_buf text = {0};
    const bool parts = qr_json_type(content) == QR_JSON_T_ARRAY;
    for (const struct qr_json *part = parts ? qr_json_first(content) : content; part; part = parts ? qr_json_after(part) : NULL) {
        size_t len, most = (size_t)context->ctx_max * PREDICTION_ID_BYTES - text.len;
        const char *s = qr_json_str(parts ? qr_json_find(part, "text") : part, &len);
        qr_buf_put(&text, s, len <= most ? len : qr_utf8_valid_prefix(s, most));
    }
    rc = qr_tokenizer_encode(context->tokenizer, &p->prediction, text.data ? text.data : "", text.len, 0, err);
    if (rc != 0)
        snprintf(err->param, sizeof err->param, "prediction.content");
    p->prediction.n = p->prediction.n < context->ctx_max ? p->prediction.n : context->ctx_max;
    qr_buf_release(&text);
    return rc;
}

int qr_read_modalities(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e))
        if (qr_json_type(e) != QR_JSON_T_STRING || strcmp(qr_json_str(e, NULL), "text") != 0)
            return qr_err_at(err, QR_E_UNSUPPORTED, "modalities", "modalities must be [\"text\"]; this server answers with text");
    return 0;
}

int qr_read_cache_salt(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    p->cache_salt = qr_json_str(v, &p->cache_salt_len);
    if (p->cache_salt_len < 1 || p->cache_salt_len > QR_CACHE_SALT_MAX)
        return qr_err_at(err, QR_E_INVALID, "cache_salt", "cache_salt must be between 1 and %d bytes long, found %zu", QR_CACHE_SALT_MAX,
                         p->cache_salt_len);
    return 0;
}

/* Other servers do not look at it, so nothing is wrong with what is no name. */
int qr_read_user(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    size_t n = 0;
    const char *name = qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, &n) : NULL;
    p->user = n > 0 ? qr_hash64(name, n, 0) : 0;
    return 0;
}

/* ---- what the chat template sees ---- */

int qr_read_template_kwargs(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err)
{
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e)) {
        char at[96];
        snprintf(at, sizeof at, "chat_template_kwargs.%.60s", qr_json_key(e));
        if (qr_chat_is_reserved(qr_json_key(e)))
            return qr_err_at(err, QR_E_INVALID, at, "%s must not be set by a request", at);
        if (qr_json_type(e) == QR_JSON_T_ARRAY || qr_json_type(e) == QR_JSON_T_OBJECT)
            return qr_wrong_type(err, at, "a string, a number, a truth value or null", e);
    }
    p->template_kwargs = v;
    return 0;
}
