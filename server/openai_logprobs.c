/* openai_logprobs.c - log-probabilities in the two shapes that clients expect: chat's list of tokens with bytes,
 * completions' four parallel lists. Prompt log-probabilities have vLLM's shape. Entries are collected as events come
 * and written when the answer or chunk is. Text offsets count characters of the visible text. Appends to buffers of the
 * call; the call's thread. */
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/utf8.h"
#include "server/openai_write.h"

#define LOGPROB_FLOOR -9999.0f /* OpenAI's stand-in for minus infinity */

static void put_logprob(struct qr_buf *out, float v)
{
    if (v > LOGPROB_FLOOR)
        qr_json_put_f32(out, v > 0 ? 0 : v);
    else
        qr_buf_put_str(out, "-9999.0");
}

/* The token's text as a JSON string. Bytes that are no character of their own: U+FFFD in chat (the bytes stand beside it),
 * "bytes:\xe2\x96" in completions, where the text is also a key and must stay unique. */
static void put_token(struct qr_buf *out, const struct qr_call *call, int32_t id)
{
    size_t n;
    const char *s = qr_tokenizer_token_bytes(call->server->model.tokenizer, id, &n);
    if (call->params.tokens_as_ids) {
        qr_buf_put_str(out, "\"token_id:");
        qr_buf_put_i64(out, id);
        qr_buf_put_byte(out, '"');
    } else if (call->kind->api == QR_API_CHAT || qr_utf8_valid_prefix(s, n) == n) {
        qr_json_put_str(out, s, n);
    } else {
        qr_buf_put_str(out, "\"bytes:");
        for (size_t i = 0; i < n; i++)
            qr_buf_printf(out, "\\\\x%02x", (unsigned char)s[i]);
        qr_buf_put_byte(out, '"');
    }
}

static void put_bytes(struct qr_buf *out, const struct qr_call *call, int32_t id)
{
    size_t n;
    const char *s = qr_tokenizer_token_bytes(call->server->model.tokenizer, id, &n);
    qr_buf_put_byte(out, '[');
    for (size_t i = 0; i < n; i++) {
        qr_buf_put_comma(out);
        qr_buf_put_i64(out, (unsigned char)s[i]);
    }
    qr_buf_put_byte(out, ']');
}

static void put_chat_token(struct qr_buf *out, const struct qr_call *call, int32_t id, float logprob)
{
    qr_buf_put_str(out, "{\"token\":");
    put_token(out, call, id);
    qr_buf_put_str(out, ",\"logprob\":");
    put_logprob(out, logprob);
    qr_buf_put_str(out, ",\"bytes\":");
    put_bytes(out, call, id);
}

static void add_chat(const struct qr_call *call, struct qr_choice *choice, const struct qr_token_logprob *t)
{
    struct qr_buf *b = &choice->logprob[0];
    qr_buf_put_comma(b);
    put_chat_token(b, call, t->id, t->logprob);
    qr_buf_put_str(b, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < t->n_top; i++) {
        qr_buf_put_comma(b);
        put_chat_token(b, call, t->top_id[i], t->top_logprob[i]);
        qr_buf_put_byte(b, '}');
    }
    qr_buf_put_str(b, "]}");
}

/* Two ids may have the same text (a byte token and a character): the likelier one keeps the key. */
static bool text_seen(const struct qr_call *call, const struct qr_token_logprob *t, int32_t n, int32_t id)
{
    size_t len, other_len;
    const struct qr_tokenizer *tokenizer = call->server->model.tokenizer;
    const char *s = qr_tokenizer_token_bytes(tokenizer, id, &len);
    for (int32_t i = 0; i < n; i++) {
        const char *other = qr_tokenizer_token_bytes(tokenizer, t->top_id[i], &other_len);
        if (t->top_id[i] == id || (!call->params.tokens_as_ids && len == other_len && memcmp(s, other, len) == 0))
            return true;
    }
    return false;
}

static void put_top_object(struct qr_buf *b, const struct qr_call *call, const struct qr_token_logprob *t)
{
    qr_buf_put_byte(b, '{');
    for (int32_t i = 0; i <= t->n_top; i++) { /* the chosen token comes last, when it is not among the likeliest */
        int32_t id = i < t->n_top ? t->top_id[i] : t->id;
        if (text_seen(call, t, i, id))
            continue;
        qr_buf_put_comma(b);
        put_token(b, call, id);
        qr_buf_put_byte(b, ':');
        put_logprob(b, i < t->n_top ? t->top_logprob[i] : t->logprob);
    }
    qr_buf_put_byte(b, '}');
}

/* Characters that begin in these bytes: right also when a character is spread over several tokens. */
static int64_t count_characters(const char *s, size_t n)
{
    int64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

static int64_t visible_characters(const struct qr_call *call, const struct qr_tokenizer *tokenizer, int32_t id)
{
    size_t n;
    const char *s = qr_tokenizer_token_bytes(tokenizer, id, &n);
    bool hidden = call->params.sampling.skip_special && qr_tokenizer_is_special(tokenizer, id);
    return hidden ? 0 : count_characters(s, n);
}

static void add_completion(const struct qr_call *call, struct qr_choice *choice, const struct qr_token_logprob *t, bool present)
{
    struct qr_buf *b = choice->logprob;
    const struct qr_tokenizer *tokenizer = call->server->model.tokenizer;
    for (int k = 0; k < QR_LOGPROB_PARTS; k++)
        qr_buf_put_comma(&b[k]);
    put_token(&b[0], call, t->id);
    if (present) {
        put_logprob(&b[1], t->logprob);
        put_top_object(&b[2], call, t);
    } else {
        qr_buf_put_str(&b[1], "null");
        qr_buf_put_str(&b[2], "null");
    }
    qr_buf_put_i64(&b[3], choice->text_offset < 0 ? 0 : choice->text_offset);
    choice->text_offset += visible_characters(call, tokenizer, t->id);
}

/* A SentencePiece tokenizer gives the first word a space that the text does not have: offsets start one lower then. */
void qr_logprobs_begin_prompt(const struct qr_call *call, struct qr_choice *choice, const int32_t *ids, int32_t n)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(ids != NULL && n >= 1);
    const struct qr_buf *text = &choice->piece->prompt_text;
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += visible_characters(call, call->server->model.tokenizer, ids[i]);
    if (text->len > 0 && sum == count_characters(text->data, text->len) + 1)
        choice->text_offset = -1;
}

void qr_logprobs_add(struct qr_call *call, struct qr_choice *choice, const struct qr_token_logprob *t, bool present)
{
    QR_ASSERT(call != NULL && choice != NULL && t != NULL);
    QR_ASSERT(t->n_top >= 0 && t->n_top <= QR_TOP_LOGPROBS_MAX);
    if (call->kind->api == QR_API_CHAT)
        add_chat(call, choice, t);
    else
        add_completion(call, choice, t, present);
}

static void put_part(struct qr_buf *out, const char *name, struct qr_buf *part)
{
    qr_buf_put_str(out, name);
    qr_buf_put(out, part->data ? part->data : "", part->len);
    qr_buf_put_byte(out, ']');
    qr_buf_clear(part);
}

void qr_logprobs_put(struct qr_buf *out, const struct qr_call *call, struct qr_choice *choice)
{
    QR_ASSERT(out != NULL && call != NULL);
    QR_ASSERT(choice != NULL);
    if (call->kind->api == QR_API_CHAT) {
        put_part(out, "{\"content\":[", &choice->logprob[0]);
        qr_buf_put_str(out, ",\"refusal\":null}");
        return;
    }
    put_part(out, "{\"tokens\":[", &choice->logprob[0]);
    put_part(out, ",\"token_logprobs\":[", &choice->logprob[1]);
    put_part(out, ",\"top_logprobs\":[", &choice->logprob[2]);
    put_part(out, ",\"text_offset\":[", &choice->logprob[3]);
    qr_buf_put_byte(out, '}');
}

static void put_prompt_entry(struct qr_buf *out, const struct qr_call *call, int32_t id, float logprob, int32_t rank)
{
    size_t n;
    const char *s = qr_tokenizer_token_bytes(call->server->model.tokenizer, id, &n);
    qr_buf_printf(out, "\"%d\":{\"logprob\":", id);
    put_logprob(out, logprob);
    qr_buf_printf(out, ",\"rank\":%d,\"decoded_token\":", rank);
    qr_json_put_str(out, s, n);
    qr_buf_put_byte(out, '}');
}

void qr_prompt_logprobs_put(struct qr_buf *out, const struct qr_call *call, const struct qr_token_logprob *t, int32_t n)
{
    QR_ASSERT(out != NULL && call != NULL);
    QR_ASSERT(t != NULL && n >= 1);
    qr_buf_put_str(out, "[null");
    for (int32_t i = 1; i < n; i++) {
        bool chosen_is_top = false;
        qr_buf_put_str(out, ",{");
        for (int32_t k = 0; k < t[i].n_top; k++) {
            qr_buf_put_comma(out);
            put_prompt_entry(out, call, t[i].top_id[k], t[i].top_logprob[k], k + 1);
            chosen_is_top = chosen_is_top || t[i].top_id[k] == t[i].id;
        }
        if (!chosen_is_top) {
            qr_buf_put_comma(out);
            put_prompt_entry(out, call, t[i].id, t[i].logprob, t[i].rank);
        }
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_byte(out, ']');
}
