/* openai_parse.c - bodies of chat and completion calls: one table of fields with types, bounds and readers. An unknown
 * field is ignored; a field that would change the answer and cannot be honoured is refused by name. Errors carry the
 * JSON path, what was found and what was expected. Defaults come from the model. Pure; on libuv's pool, charged to the
 * request's account. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/disagg.h"

#define BOTH (QR_API_CHAT | QR_API_COMPLETIONS)
#define AT(field) offsetof(struct qr_params, field)
#define INT_TOP 2147483647.0
#define MEMBERS_MAX 16
#define IGNORED(field, apis) {field, apis, QR_FIELD_IGNORED, .offset = 0}
#define STRING .json = QR_JSON_T_STRING, .expected = "a string"
#define ARRAY .json = QR_JSON_T_ARRAY, .expected = "an array"
#define OBJECT .json = QR_JSON_T_OBJECT, .expected = "an object"
#define DEMAND(field) {field, BOTH, QR_FIELD_OTHER, .read = qr_read_demand}
#define RANK(field) {field, BOTH, QR_FIELD_INT, .offset = AT(disagg.rank), .min = 0, .max = 0} /* one process is one worker */
#define NO_BLANKS "patterns of white space are not taken; structured_outputs.disable_any_whitespace leaves none"

/* What a row of base/sampling.h is as a field of a request. */
#define FIELD(field, kind, key, flag, usual, offline, low, high, chat, config, letter, arg, reader, help) FIELD_##kind(field, key, low, high, reader)
#define FIELD_FLOAT(field, key, low, high, reader) {key, BOTH, QR_FIELD_FLOAT, .offset = AT(sampling.field), .min = low, .max = high},
#define FIELD_INT(field, key, low, high, reader) {key, BOTH, QR_FIELD_INT, .offset = AT(sampling.field), .min = low, .max = high},
#define FIELD_COUNT(field, key, low, high, reader) {key, BOTH, QR_FIELD_INT, .offset = AT(sampling.field), .min = low, .max_is_ctx = true},
#define FIELD_FLAG(field, key, low, high, reader) {key, BOTH, QR_FIELD_BOOL, .offset = AT(sampling.field)},
#define FIELD_SEED(field, key, low, high, reader) {key, BOTH, QR_FIELD_OTHER, .read = reader},
#define FIELD_LIST FIELD_SEED
#define FIELD_IDS FIELD_SEED
#define FIELD_LENGTH(field, key, low, high, reader)                                                                             \
    {key, QR_API_CHAT, QR_FIELD_INT, .offset = AT(max_tokens), .min = 1, .max_is_ctx = true},                                    \
    {"max_completion_tokens", QR_API_CHAT, QR_FIELD_INT, .offset = AT(max_tokens), .min = 1, .max_is_ctx = true}, /* comes later and wins */ \
    {key, QR_API_COMPLETIONS, QR_FIELD_INT, .offset = AT(max_tokens), .min = low, .max_is_ctx = true},

static const struct qr_field fields[] = {
    {"model", BOTH, QR_FIELD_OTHER, .offset = AT(model), STRING},
    {"messages", QR_API_CHAT, QR_FIELD_OTHER, .read = qr_read_messages},
    {"prompt", QR_API_COMPLETIONS, QR_FIELD_OTHER, .read = qr_read_prompt},
    QR_SAMPLING_ROWS(FIELD)
    {"n", BOTH, QR_FIELD_INT, .offset = AT(n), .min = 1, .max = QR_CHOICES_MAX},
    {"best_of", QR_API_COMPLETIONS, QR_FIELD_OTHER, .read = qr_read_best_of},
    {"stop_token_ids", BOTH, QR_FIELD_OTHER, .json = QR_JSON_T_ARRAY, .expected = "an array of token ids",
     .read = qr_read_stop_token_ids},
    {"logit_bias", BOTH, QR_FIELD_OTHER, .json = QR_JSON_T_OBJECT, .expected = "an object of token id to bias",
     .read = qr_read_logit_bias},
    {"logprobs", QR_API_CHAT, QR_FIELD_BOOL, .offset = AT(logprobs),
     .expected = "true or false (the number goes into top_logprobs)"},
    {"logprobs", QR_API_COMPLETIONS, QR_FIELD_OTHER, .min = 0, .max = QR_TOP_LOGPROBS_MAX,
     .read = qr_read_logprobs_completions},
    {"top_logprobs", QR_API_CHAT, QR_FIELD_INT, .offset = AT(top_logprobs), .min = 0, .max = QR_TOP_LOGPROBS_MAX},
    {"prompt_logprobs", BOTH, QR_FIELD_INT, .offset = AT(sampling.n_prompt_logprobs), .min = 0,
     .max = QR_TOP_LOGPROBS_MAX},
    {"priority", BOTH, QR_FIELD_INT, .offset = AT(priority), .min = -INT_TOP - 1, .max = INT_TOP},
    {"timeout", BOTH, QR_FIELD_OTHER, .read = qr_read_timeout},
    {"stream", BOTH, QR_FIELD_BOOL, .offset = AT(stream)},
    {"stream_options", BOTH, QR_FIELD_OTHER, OBJECT, .read = qr_read_stream_options},
    {"timings", BOTH, QR_FIELD_BOOL, .offset = AT(timings)},
    {"prediction", BOTH, QR_FIELD_OTHER, OBJECT, .read = qr_read_prediction},
    {"skip_special_tokens", BOTH, QR_FIELD_BOOL, .offset = AT(sampling.skip_special)},
    {"include_stop_str_in_output", BOTH, QR_FIELD_BOOL, .offset = AT(sampling.include_stop)},
    {"add_special_tokens", BOTH, QR_FIELD_BOOL, .offset = AT(add_special)},
    {"return_token_ids", BOTH, QR_FIELD_BOOL, .offset = AT(return_token_ids)},
    {"return_tokens_as_token_ids", BOTH, QR_FIELD_BOOL, .offset = AT(tokens_as_ids)},
    {"echo", QR_API_COMPLETIONS, QR_FIELD_BOOL, .offset = AT(echo)},
    {"add_generation_prompt", QR_API_CHAT, QR_FIELD_BOOL, .offset = AT(add_generation_prompt)},
    {"continue_final_message", QR_API_CHAT, QR_FIELD_BOOL, .offset = AT(continue_final)},
    {"user", BOTH, QR_FIELD_OTHER, .read = qr_read_user},
    {"cache_salt", BOTH, QR_FIELD_OTHER, STRING, .read = qr_read_cache_salt},
    {"tools", QR_API_CHAT, QR_FIELD_OTHER, ARRAY, .read = qr_read_tools},
    {"tool_choice", QR_API_CHAT, QR_FIELD_OTHER, .offset = AT(tools.choice)},
    {"parallel_tool_calls", QR_API_CHAT, QR_FIELD_BOOL, .offset = AT(tools.parallel)},
    {"enable_thinking", QR_API_CHAT, QR_FIELD_OTHER, .offset = AT(thinking.enable), .json = QR_JSON_T_BOOL, .expected = "true or false"},
    {"reasoning_effort", QR_API_CHAT, QR_FIELD_OTHER, .offset = AT(thinking.effort), STRING},
    {"thinking_token_budget", QR_API_CHAT, QR_FIELD_INT, .offset = AT(thinking.budget), .min = -1, .max = INT_TOP},
    {"thinking_budget_tokens", QR_API_CHAT, QR_FIELD_INT, .offset = AT(thinking.budget), .min = -1, .max = INT_TOP},
    {"separate_reasoning", QR_API_CHAT, QR_FIELD_BOOL, .offset = AT(thinking.separate)},
    {"include_reasoning", QR_API_CHAT, QR_FIELD_BOOL, .offset = AT(thinking.include)},
    {"reasoning_format", QR_API_CHAT, QR_FIELD_OTHER, STRING, .read = qr_read_reasoning_format},
    {"documents", QR_API_CHAT, QR_FIELD_OTHER, .offset = AT(documents), ARRAY},
    {"chat_template_kwargs", QR_API_CHAT, QR_FIELD_OTHER, OBJECT, .read = qr_read_template_kwargs},
    {"response_format", BOTH, QR_FIELD_OTHER, OBJECT, .read = qr_read_response_format},
    {"structured_outputs", BOTH, QR_FIELD_OTHER, OBJECT, .read = qr_read_structured_outputs},
    DEMAND("guided_json"), DEMAND("guided_regex"), DEMAND("guided_choice"), DEMAND("guided_grammar"), DEMAND("grammar"), DEMAND("json_schema"),
    DEMAND("regex"), DEMAND("ebnf"),
    {"modalities", QR_API_CHAT, QR_FIELD_OTHER, ARRAY, .read = qr_read_modalities},
    {"suffix", QR_API_COMPLETIONS, QR_FIELD_REFUSED, .why = "text after the gap is not supported; leave suffix out"},
    {"echo", QR_API_CHAT, QR_FIELD_REFUSED, .why = "echo belongs to /v1/completions; leave it out"},
    {"functions", QR_API_CHAT, QR_FIELD_REFUSED, .why = "functions was replaced by tools; use tools"},
    {"function_call", QR_API_CHAT, QR_FIELD_REFUSED,
     .why = "function_call was replaced by tool_choice; use tool_choice \"auto\" or \"none\""},
    {"audio", QR_API_CHAT, QR_FIELD_REFUSED, .why = "audio is not supported; this server answers with text"},
    {"web_search_options", QR_API_CHAT, QR_FIELD_REFUSED, .why = "this server does not search the web; leave it out"},
    {"chat_template", QR_API_CHAT, QR_FIELD_REFUSED,
     .why = "templates are not taken from requests; the model's own is used"},
    {"guided_whitespace_pattern", BOTH, QR_FIELD_REFUSED, .why = NO_BLANKS},
    {"use_beam_search", BOTH, QR_FIELD_REFUSED, .why = "beam search is not supported; use n with sampling"},
    {"prompt_embeds", BOTH, QR_FIELD_REFUSED, .why = "tensors are not taken from requests; send text or token ids"},
    {"kv_transfer_params", BOTH, QR_FIELD_OTHER, OBJECT, .read = qr_read_kv_transfer_params},
    {"bootstrap_host", BOTH, QR_FIELD_OTHER, .read = qr_read_bootstrap_host},
    {"bootstrap_port", BOTH, QR_FIELD_OTHER, .read = qr_read_bootstrap_port},
    {"bootstrap_room", BOTH, QR_FIELD_OTHER, .read = qr_read_bootstrap_room},
    RANK("routed_dp_rank"), RANK("disagg_prefill_dp_rank"), RANK("data_parallel_rank"),
    {"logits_processors", BOTH, QR_FIELD_REFUSED, .why = "code is not taken from requests; leave it out"},
    IGNORED("metadata", BOTH), IGNORED("store", BOTH),
    IGNORED("service_tier", BOTH), IGNORED("guided_decoding_backend", BOTH),
    IGNORED("prompt_cache_key", BOTH), IGNORED("prompt_cache_retention", BOTH), IGNORED("cache_control", BOTH),
    IGNORED("safety_identifier", BOTH),
    IGNORED("verbosity", QR_API_CHAT), IGNORED("stream_reasoning", QR_API_CHAT),
    IGNORED("spaces_between_special_tokens", BOTH), IGNORED("request_id", BOTH),
};

const struct qr_field *qr_fields(int32_t *n)
{
    QR_ASSERT(n != NULL);
    QR_ASSERT(fields[0].name != NULL);
    *n = QR_COUNT(fields);
    return fields;
}

const char *qr_json_excerpt(char out[72], const struct qr_json *v)
{
    QR_ASSERT(out != NULL && v != NULL);
    struct qr_buf b = {0};
    if (qr_json_type(v) == QR_JSON_T_ARRAY || qr_json_type(v) == QR_JSON_T_OBJECT)
        qr_buf_printf(&b, "%d elements", qr_json_count(v));
    else
        qr_json_print(&b, v);
    bool cut = b.len > 60;
    size_t n = cut ? 60 : b.len;
    while (cut && n > 0 && ((unsigned char)b.data[n] & 0xc0) == 0x80)
        n--; /* not within a character */
    snprintf(out, 72, "%.*s%s", (int)n, b.data ? b.data : "", cut ? "..." : "");
    qr_buf_release(&b);
    return out;
}

int qr_wrong_type(struct qr_err *err, const char *path, const char *expected, const struct qr_json *found)
{
    char excerpt[72];
    QR_ASSERT(err != NULL && path != NULL);
    QR_ASSERT(expected != NULL && found != NULL);
    const char *type = qr_json_type_name(qr_json_type(found));
    bool bare = qr_json_type(found) == QR_JSON_T_NULL;
    return qr_err_at(err, QR_E_INVALID, path, "%s must be %s, found %s %s%s%s", path, expected, strchr("aeiou", type[0]) ? "an" : "a",
                     type, bare ? "" : ": ", bare ? "" : qr_json_excerpt(excerpt, found));
}

int qr_body_parse(struct qr_json **doc, const char *body, size_t len, const char *const *wanted, struct qr_err *err)
{
    QR_ASSERT(doc != NULL && wanted != NULL);
    QR_ASSERT(body != NULL || len == 0);
    if (qr_json_parse_members(doc, body ? body : "", len, &qr_json_limits_request, wanted, err) != 0) {
        *doc = NULL;
        return qr_err_prefix(err, "the request body is not valid JSON: ");
    }
    if (qr_json_type(*doc) != QR_JSON_T_OBJECT)
        return qr_err_set(err, QR_E_INVALID, "the request body must be a JSON object, found %s",
                          qr_json_type_name(qr_json_type(*doc)));
    return 0;
}

int qr_members_read(struct qr_json **doc, const char *body, size_t len, const struct qr_member *member, int32_t n, struct qr_err *err)
{
    const char *wanted[MEMBERS_MAX + 1] = {NULL};
    QR_ASSERT(doc != NULL && err != NULL);
    QR_ASSERT(member != NULL && n >= 1 && n <= MEMBERS_MAX);
    for (int32_t i = 0; i < n; i++)
        wanted[i] = member[i].name;
    int rc = qr_body_parse(doc, body, len, wanted, err);
    for (int32_t i = 0; i < n && rc == 0; i++) {
        const struct qr_member *m = &member[i];
        const struct qr_json *v = qr_json_find(*doc, m->name);
        *m->value = qr_json_is_null(v) ? NULL : v;
        if (!*m->value && m->required)
            rc = qr_err_at(err, QR_E_INVALID, m->name, "%s is required: %s", m->name, m->expected);
        else if (*m->value && m->type != QR_JSON_T_NULL && qr_json_type(v) != m->type)
            rc = qr_wrong_type(err, m->name, m->expected, v);
    }
    return rc;
}

int qr_read_whole(int64_t *out, const struct qr_json *v, const char *name, int64_t min, int64_t max, struct qr_err *err)
{
    char excerpt[72];
    QR_ASSERT(out != NULL && v != NULL);
    QR_ASSERT(name != NULL && err != NULL);
    const bool number = qr_json_type(v) == QR_JSON_T_NUMBER, whole = number && qr_json_i64(v, out);
    if (!number || (!whole && fabs(qr_json_f64(v)) < 1e18))
        return qr_wrong_type(err, name, "an integer", v);
    if (!whole || *out < min || *out > max)
        return qr_err_at(err, QR_E_INVALID, name, "%s must be between %lld and %lld, found %s", name, (long long)min, (long long)max,
                         qr_json_excerpt(excerpt, v));
    return 0;
}

static int read_int(struct qr_params *p, const struct qr_field *f, const struct qr_json *v, int32_t max, struct qr_err *err)
{
    int64_t i;
    const int rc = qr_read_whole(&i, v, f->name, (int64_t)f->min, max, err);
    if (rc == 0)
        *(int32_t *)(void *)((char *)p + f->offset) = (int32_t)i;
    return rc;
}

static int read_float(struct qr_params *p, const struct qr_field *f, const struct qr_json *v, struct qr_err *err)
{
    char excerpt[72];
    if (qr_json_type(v) != QR_JSON_T_NUMBER)
        return qr_wrong_type(err, f->name, "a number", v);
    double d = qr_json_f64(v);
    if (!(d >= f->min && d <= f->max))
        return qr_err_at(err, QR_E_INVALID, f->name, "%s must be at least %g and at most %g, found %s", f->name, f->min, f->max,
                         qr_json_excerpt(excerpt, v));
    *(float *)(void *)((char *)p + f->offset) = (float)d;
    return 0;
}

static int read_other(struct qr_params *p, const struct qr_field *f, const struct qr_json *v,
                      const struct qr_params_context *context, struct qr_err *err)
{
    QR_ASSERT(p != NULL && v != NULL);
    QR_ASSERT(context != NULL && err != NULL);
    if (f->expected && qr_json_type(v) != f->json)
        return qr_wrong_type(err, f->name, f->expected, v);
    if (f->read)
        return f->read(p, v, context, err);
    *(const struct qr_json **)(void *)((char *)p + f->offset) = v;
    return 0;
}

static int read_field(struct qr_params *p, const struct qr_field *f, const struct qr_json *v, const struct qr_params_context *context,
                      struct qr_err *err)
{
    switch ((enum qr_field_type)f->type) {
    case QR_FIELD_BOOL:
        if (qr_json_type(v) != QR_JSON_T_BOOL)
            return qr_wrong_type(err, f->name, f->expected ? f->expected : "true or false", v);
        *(bool *)((char *)p + f->offset) = qr_json_bool(v);
        return 0;
    case QR_FIELD_INT: return read_int(p, f, v, f->max_is_ctx ? context->ctx_max : (int32_t)f->max, err);
    case QR_FIELD_FLOAT: return read_float(p, f, v, err);
    case QR_FIELD_OTHER: return read_other(p, f, v, context, err);
    case QR_FIELD_REFUSED:
        if ((qr_json_type(v) == QR_JSON_T_BOOL && !qr_json_bool(v)) || (qr_json_type(v) == QR_JSON_T_STRING && !*qr_json_str(v, NULL)) ||
            (qr_json_type(v) == QR_JSON_T_ARRAY && qr_json_count(v) == 0))
            return 0; /* false, "" and [] ask for nothing */
        return qr_err_at(err, QR_E_UNSUPPORTED, f->name, "%s: %s", f->name, f->why);
    case QR_FIELD_IGNORED: return 0;
    }
    return 0;
}

static void set_defaults(struct qr_params *p, enum qr_api api, const struct qr_model_config *m)
{
    *p = (struct qr_params){.max_tokens = -1, .n = 1, .add_generation_prompt = true, .add_special = api == QR_API_COMPLETIONS,
                            .tools.parallel = true, .thinking = {.budget = -1, .separate = true, .include = true}};
    qr_sampling_init(&p->sampling);
    if (!m)
        return;
    for (enum qr_sampling_param i = 0; i < QR_P_N; i++)
        if (m->gen[i].given)
            qr_sampling_put(&p->sampling, i, m->gen[i].value);
}

/* Fields that only mean something together. */
static int check_together(struct qr_params *p, enum qr_api api, struct qr_err *err)
{
    struct qr_sampling *s = &p->sampling;
    if (api == QR_API_CHAT && !p->messages)
        return qr_err_at(err, QR_E_INVALID, "messages", "messages is required: an array of at least one message");
    if (api == QR_API_COMPLETIONS && !p->prompt)
        return qr_err_at(err, QR_E_INVALID, "prompt", "prompt is required: a string, an array of strings, or token ids");
    if (p->top_logprobs > 0 && !p->logprobs)
        return qr_err_at(err, QR_E_INVALID, "top_logprobs", "top_logprobs needs logprobs: true, found %d without it", p->top_logprobs);
    if (p->logprobs && api == QR_API_CHAT)
        s->n_logprobs = p->top_logprobs;
    if ((p->include_usage || p->continuous_usage) && !p->stream)
        return qr_err_at(err, QR_E_INVALID, "stream_options", "stream_options needs stream: true");
    if (s->n_prompt_logprobs >= 0 && p->stream)
        return qr_err_at(err, QR_E_INVALID, "prompt_logprobs", "prompt_logprobs cannot be streamed; leave stream out");
    p->prompt_logprobs = s->n_prompt_logprobs >= 0;
    if (p->echo && p->logprobs && s->n_prompt_logprobs < s->n_logprobs)
        s->n_prompt_logprobs = s->n_logprobs;
    if (p->max_tokens >= 0 && s->min_tokens > p->max_tokens)
        return qr_err_at(err, QR_E_INVALID, "min_tokens", "min_tokens must be at most max_tokens (%d), found %d", p->max_tokens, s->min_tokens);
    if (p->continue_final && p->add_generation_prompt &&
        !qr_json_is_null(qr_json_find(p->doc, "add_generation_prompt")))
        return qr_err_at(err, QR_E_INVALID, "continue_final_message",
                         "continue_final_message and add_generation_prompt cannot both be true");
    if (p->continue_final)
        p->add_generation_prompt = false;
    qr_sampling_put(s, QR_P_top_p, (double)s->top_p); /* OpenAI allows 0: the most likely token only */
    qr_sampling_put(s, QR_P_top_k, s->top_k);
    if (s->truncate_prompt == 0 && !qr_json_is_null(qr_json_find(p->doc, "truncate_prompt_tokens")))
        return qr_err_at(err, QR_E_INVALID, "truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or at least 1, found 0");
    if (!p->has_seed)
        s->seed = qr_rng_seed_random();
    return 0;
}

/* Where a client wants its prompt kept is no part of what a template shows: of messages, their parts, tools and their functions. */
static void forget_wishes(const struct qr_json *doc)
{
    static const struct {
        const char *field;
        int32_t depth;
    } of[] = {{"messages", 3}, {"tools", 2}};
    for (int i = 0; i < QR_COUNT(of); i++)
        qr_json_forget((struct qr_json *)(uintptr_t)qr_json_find(doc, of[i].field), "cache_control", of[i].depth); /* the document is the parser's own */
}

int qr_params_parse(struct qr_params *p, enum qr_api api, const char *body, size_t len, const struct qr_params_context *context,
                    struct qr_err *err)
{
    QR_ASSERT(p != NULL && context != NULL && err != NULL);
    QR_ASSERT(body != NULL || len == 0);
    set_defaults(p, api, context->model);
    const char *wanted[QR_COUNT(fields) + 1] = {NULL}; /* what is ignored costs no memory */
    for (int i = 0, n = 0; i < QR_COUNT(fields); i++)
        if ((fields[i].apis & api) && fields[i].type != QR_FIELD_IGNORED)
            wanted[n++] = fields[i].name;
    int rc = qr_body_parse(&p->doc, body, len, wanted, err);
    if (rc == 0)
        forget_wishes(p->doc);
    for (int i = 0; i < QR_COUNT(fields) && rc == 0; i++) {
        const struct qr_json *v = (fields[i].apis & api) ? qr_json_find(p->doc, fields[i].name) : NULL;
        if (v && !qr_json_is_null(v))
            rc = read_field(p, &fields[i], v, context, err);
    }
    rc = rc ? rc : check_together(p, api, err);
    rc = rc ? rc : qr_tools_settle(p, err);
    rc = rc ? rc : qr_thinking_settle(p, err);
    rc = rc ? rc : qr_disagg_settle(p, err);
    if (rc != 0)
        qr_params_release(p);
    return rc;
}

void qr_params_release(struct qr_params *p)
{
    if (!p)
        return;
    qr_json_free(p->doc);
    qr_json_free(p->kwargs);
    qr_json_free(p->tools.functions);
    qr_json_free(p->tools.callable);
    qr_free(p->bias);
    qr_ids_release(&p->allowed);
    qr_ids_release(&p->bad);
    qr_ids_release(&p->prediction);
    p->doc = p->kwargs = p->tools.functions = p->tools.callable = NULL;
    p->bias = NULL;
}
