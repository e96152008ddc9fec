/* POST /v1/embeddings: each input is a request of the engine that ends with its rows pooled into a vector. Room for the
 * whole answer is reserved before the first input is submitted. At most 64 inputs are in the queue at a time; behind
 * the first accepted one the others wait, so a call is never refused halfway. Pooling happens in the engine; Dense
 * stages here, on libuv's pool. Loop thread otherwise. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/call.h"

#define INPUTS_MAX 2048     /* OpenAI's limit */
#define TEXT_BYTES 20       /* of a number as text, "-1.23456789e-10,", with some of its buffer's room */
#define PACKED_BYTES 10     /* the same in base64 */
#define SUBMITTED_MAX 64    /* of one call; the others wait outside, so that a large call leaves the queue to others */

/* ---- the request ---- */

/* Numbers of the model's rows. */
static int32_t n_embd(const struct qr_call *call)
{
    return qr_engine_model(call->server->model.engine)->n_embd;
}

/* What a body may say; NULL: it does not. `name`: what it calls the input. */
struct fields {
    const char *name;
    const struct qr_json *model, *input, *dimensions, *format, *cut, *add_special, *timeout;
};

static int read_fields(struct qr_call *call, const struct fields *f, struct qr_err *err)
{
    const int32_t width = qr_pooling_width(&call->server->model.pooling, n_embd(call));
    char excerpt[72];
    int64_t i = width;
    if (f->dimensions && qr_json_type(f->dimensions) == QR_JSON_T_NUMBER && !qr_json_is_integer_text(f->dimensions))
        return qr_wrong_type(err, "dimensions", "an integer", f->dimensions);
    int rc = f->dimensions ? qr_read_whole(&i, f->dimensions, "dimensions", 1, width, err) : 0;
    if (rc == 0 && f->timeout)
        rc = qr_read_timeout_us(&call->params.timeout_us, f->timeout, call->server->config.request_us, err);
    if (rc != 0)
        return rc;
    if (f->cut)
        return qr_err_at(err, QR_E_UNSUPPORTED, "truncate_prompt_tokens", "truncate_prompt_tokens is not supported; send inputs that fit");
    call->n_dimensions = (int32_t)i;
    call->base64 = f->format && strcmp(qr_json_str(f->format, NULL), "base64") == 0;
    if (f->format && !call->base64 && strcmp(qr_json_str(f->format, NULL), "float") != 0)
        return qr_err_at(err, QR_E_INVALID, "encoding_format",
                         "encoding_format must be \"float\" or \"base64\", found %s",
                         qr_json_excerpt(excerpt, f->format));
    return 0;
}

static int read_input(const struct qr_call *call, struct qr_ids *ids, const struct qr_json *v, const char *path, bool add_special, struct qr_err *err)
{
    int rc = 0;
    size_t n = 0;
    if (qr_json_type(v) == QR_JSON_T_STRING)
        qr_json_str(v, &n);
    if (n > 0)
        rc = qr_call_encode(call, ids, v, add_special, err);
    else if (qr_json_type(v) == QR_JSON_T_ARRAY)
        rc = qr_read_token_ids(ids, v, path, qr_engine_limits(call->server->model.engine)->vocab, err);
    else if (qr_json_type(v) != QR_JSON_T_STRING)
        rc = qr_wrong_type(err, path, "a string or an array of token ids", v);
    if (rc == 0 && ids->n == 0)
        rc = qr_err_at(err, QR_E_INVALID, path, "%s is empty; at least one token is needed", path);
    return rc;
}

/* Whether `input` is several: an array that begins with a string or an array; one of numbers is one input's ids. */
static bool is_many(const struct qr_json *input)
{
    return qr_json_type(input) == QR_JSON_T_ARRAY && qr_json_count(input) > 0 && qr_json_type(qr_json_first(input)) != QR_JSON_T_NUMBER;
}

static void too_long(struct qr_call *call, const char *path, int32_t n, int32_t most)
{
    qr_api_error_set(&call->error, 400, "context_length_exceeded", "This model's maximum context length is %d tokens; %s has %d.", most, path, n);
    snprintf(call->error.param, sizeof call->error.param, "%s", path);
}

static int set_inputs(struct qr_call *call, const struct fields *f, bool add_special, struct qr_err *err)
{
    const struct qr_json *input = f->input;
    const struct qr_server *s = call->server;
    const int32_t ctx = qr_engine_limits(s->model.engine)->ctx_max;
    const bool many = is_many(input);
    int rc = 0;
    const struct qr_json *v = many ? qr_json_first(input) : input;
    for (int32_t i = 0; rc == 0 && i < call->n_pieces; i++, v = qr_json_after(v)) {
        char path[32];
        snprintf(path, sizeof path, many ? "%s[%d]" : "%s", f->name, i);
        struct qr_piece *piece = &call->piece[i];
        rc = read_input(call, &piece->ids, v, path, add_special, err);
        piece->n_prompt = piece->ids.n;
        if (rc == 0 && piece->ids.n > ctx) {
            too_long(call, path, piece->ids.n, ctx);
            break;
        }
    }
    const int64_t text = (int64_t)call->n_dimensions * (call->base64 ? PACKED_BYTES : TEXT_BYTES), rows = n_embd(call) * (int64_t)sizeof(double);
    call->answer_bytes = call->n_pieces * (text > rows ? text : rows);
    return rc;
}

#define INPUT "a string, an array of strings, an array of token ids or an array of such arrays"

/* What can be refused before an input is read; *n: inputs. */
static int check(struct qr_call *call, const struct fields *f, int32_t *n, struct qr_err *err)
{
    if (qr_json_type(f->input) != QR_JSON_T_STRING && qr_json_type(f->input) != QR_JSON_T_ARRAY)
        return qr_wrong_type(err, f->name, INPUT, f->input);
    *n = is_many(f->input) ? qr_json_count(f->input) : 1;
    if (*n > INPUTS_MAX)
        return qr_err_at(err, QR_E_TOO_LARGE, f->name, "%s has %d elements; at most %d fit one request", f->name, *n, INPUTS_MAX);
    return read_fields(call, f, err);
}

/* Whether this server computes embeddings. */
static int check_server(const struct qr_server *s, struct qr_err *err)
{
    const char *why = qr_engine_limits(s->model.engine)->no_embeddings;
    if (qr_engine_model(s->model.engine)->classifier)
        why = "its model is a classifier, which scores pairs of texts (/v1/rerank, /v1/score)";
    if (!why && s->model.pooling.pooling == QR_POOLING_NONE && s->model.pooling.note[0])
        why = s->model.pooling.note;
    if (s->model.pooling.pooling != QR_POOLING_NONE && !why)
        return 0;
    return qr_err_at(err, QR_E_UNSUPPORTED, "model", "this server computes no embeddings%s%s", why ? ": " : "",
                     why ? why : "");
}

static void prepare_named(struct qr_call *call, const char *name, enum qr_json_type type, const char *what)
{
    struct fields f = {.name = name};
    const struct qr_member members[] = {
        {"model", QR_JSON_T_STRING, "a string", .value = &f.model},
        {name, type, what, .value = &f.input, .required = true},
        {"dimensions", QR_JSON_T_NULL, "an integer", .value = &f.dimensions},
        {"encoding_format", QR_JSON_T_STRING, "\"float\" or \"base64\"", .value = &f.format},
        {"truncate_prompt_tokens", QR_JSON_T_NULL, NULL, .value = &f.cut},
        {"add_special_tokens", QR_JSON_T_BOOL, "true or false", .value = &f.add_special},
        {"timeout", QR_JSON_T_NULL, NULL, .value = &f.timeout},
    };
    struct qr_err err = {0};
    int32_t n = 0;
    call->params.n = 1;
    int rc = check_server(call->server, &err);
    rc = rc ? rc : qr_call_read(&call->params.doc, call, members, QR_COUNT(members), &err);
    rc = rc ? rc : check(call, &f, &n, &err);
    if (rc == 0) {
        if (!qr_call_check_model(call, f.model) || !qr_call_make_pieces(call, n))
            return;
        rc = set_inputs(call, &f, !f.add_special || qr_json_bool(f.add_special), &err);
    }
    if (rc != 0)
        qr_call_fail(call, &err);
}

static void prepare(struct qr_call *call)
{
    prepare_named(call, "input", QR_JSON_T_NULL, INPUT);
}

static void prepare_prompt(struct qr_call *call)
{
    prepare_named(call, "prompt", QR_JSON_T_STRING, "a string");
}

/* ---- the answer ---- */

static void put_base64(struct qr_buf *out, const uint8_t *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t b = (uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) | (i + 2 < n ? (uint32_t)bytes[i + 2] : 0);
        const char text[4] = {digit[b >> 18], digit[b >> 12 & 63], i + 1 < n ? digit[b >> 6 & 63] : '=', i + 2 < n ? digit[b & 63] : '='};
        qr_buf_put(out, text, 4);
    }
}

/* As little-endian f32. */
static void put_packed(struct qr_buf *out, const float *x, int32_t n)
{
    uint8_t bytes[3 * sizeof(float)];
    size_t filled = 0;
    qr_buf_put_byte(out, '"');
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        for (int k = 0; k < 4; k++)
            bytes[filled++] = (uint8_t)(bits >> 8 * k);
        if (filled == sizeof bytes || i + 1 == n) {
            put_base64(out, bytes, filled);
            filled = 0;
        }
    }
    qr_buf_put_byte(out, '"');
}

static void put_numbers(struct qr_buf *out, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        qr_buf_put_byte(out, i > 0 ? ',' : '[');
        qr_json_put_f32(out, x[i]);
    }
    qr_buf_put_byte(out, ']');
}

static struct qr_request *make_request(struct qr_call *call, struct qr_piece *piece)
{
    const struct qr_server_model *m = &call->server->model;
    QR_ASSERT(piece->ids.n > 0);
    struct qr_request *r = qr_request_new_embedding(piece->ids.id, piece->ids.n, m->pooling.pooling, qr_engine_model(m->engine)->n_embd);
    if (!r)
        return NULL;
    qr_ids_release(&piece->ids);
    return r;
}

/* The rows wait as they were pooled: what becomes of them is for a thread of the pool. */
static void collect(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    QR_ASSERT(ev->last && ev->req->pooled != NULL);
    QR_ASSERT(ev->req->n_pooled == n_embd(call));
    qr_buf_put(&choice->text, ev->req->pooled, (size_t)ev->req->n_pooled * sizeof *ev->req->pooled);
}

/* Returns the tokens of all inputs. bare: the vectors alone, without objects around them. */
static int64_t put_vectors(struct qr_call *call, bool bare)
{
    struct qr_buf *b = &call->reply;
    int64_t n_tokens = 0;
    float *x = qr_alloc((size_t)call->n_dimensions, sizeof *x);
    bool finite = true;
    for (int32_t i = 0; i < call->n_pieces; i++) {
        struct qr_buf *rows = &call->choice[i].text;
        QR_ASSERT(rows->len == (size_t)n_embd(call) * sizeof(double));
        finite &= qr_pooling_finish(&call->server->model.pooling, x, call->n_dimensions, (const double *)(const void *)rows->data, n_embd(call));
        qr_buf_put_str(b, i > 0 ? "," : "");
        if (!bare)
            qr_buf_printf(b, "{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i);
        (call->base64 ? put_packed : put_numbers)(b, x, call->n_dimensions);
        qr_buf_put_str(b, bare ? "" : "}");
        qr_buf_release(rows);
        n_tokens += call->piece[i].n_prompt;
    }
    qr_free(x);
    if (!finite)
        qr_api_error_set(&call->error, 500, "internal_error", "a stage behind the model gives what is not a number");
    return n_tokens;
}

static void write_answer(struct qr_call *call)
{
    struct qr_buf *b = &call->reply;
    qr_buf_put_str(b, "{\"object\":\"list\",\"data\":[");
    const int64_t n_tokens = put_vectors(call, false);
    qr_buf_put_str(b, "],\"model\":");
    qr_json_put_str(b, call->model, strlen(call->model));
    qr_buf_printf(b, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", (long long)n_tokens, (long long)n_tokens);
}

/* In ollama's shape (api_ollama.c). */
static void write_embed(struct qr_call *call)
{
    struct qr_buf *b = &call->reply;
    qr_buf_put_str(b, "{\"model\":");
    qr_json_put_str(b, call->model, strlen(call->model));
    qr_buf_put_str(b, ",\"embeddings\":[");
    const int64_t n_tokens = put_vectors(call, true);
    qr_buf_printf(b, "],\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%lld}", (long long)(qr_clock_us() - call->arrived_us) * 1000,
                  (long long)n_tokens);
}

/* In the shape that ollama had before: one vector. */
static void write_embedding(struct qr_call *call)
{
    qr_buf_put_str(&call->reply, "{\"embedding\":");
    put_vectors(call, true);
    qr_buf_put_byte(&call->reply, '}');
}

const struct qr_call_kind qr_call_ollama_embeddings = {.counted = QR_COUNTED_EMBEDDINGS, .door = &qr_door_ollama, .prepare = prepare_prompt,
                                                       .collect = collect, .write = write_embedding, .make = make_request,
                                                       .submitted_max = SUBMITTED_MAX};
const struct qr_call_kind qr_call_ollama_embed = {.counted = QR_COUNTED_EMBEDDINGS, .door = &qr_door_ollama, .prepare = prepare,
                                                  .collect = collect, .write = write_embed, .make = make_request,
                                                  .submitted_max = SUBMITTED_MAX};
const struct qr_call_kind qr_call_embeddings = {.counted = QR_COUNTED_EMBEDDINGS, .prepare = prepare,
                                                .collect = collect, .write = write_answer, .make = make_request,
                                                .submitted_max = SUBMITTED_MAX};
