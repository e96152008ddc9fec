/* chat_ids.c - a conversation's ids, and which of them an assistant has to produce. The whole conversation is rendered
 * and encoded once; turns are found by rendering it again with one turn changed, as chat_ids.h says. So any template
 * works that renders, and ids are the server's. Buffers are kept between conversations. One owning thread. */
#include "train/data/chat_ids.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MARKS_FIRST 0xE000u /* private use: no letter, no white space, nothing that a template or a normalizer treats in its own way */
#define MARKS_LAST 0xF8FFu

struct span {
    size_t begin, end; /* bytes of the rendering */
};

/* One conversation at work. */
struct maker {
    const struct qr_tokenizer *t;
    const struct qr_chat *chat;
    const struct qr_json *messages, *tools;
    int64_t now_s;
    struct qr_rendered whole;
    struct qr_chat_ids *out;
    int64_t *id_end;    /* owned [ids.n] when the ids' bytes are the rendering's: the byte at which each id ends; else NULL */
    char mark[5];       /* a character that is not in the rendering, terminated */
    struct qr_err *err;
};

void qr_chat_ids_release(struct qr_chat_ids *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->counts != NULL || c->counts_cap == 0);
    qr_ids_release(&c->ids);
    qr_free(c->counts);
    *c = (struct qr_chat_ids){0};
}

/* ---- rendering ---- */

static int render(const struct maker *m, struct qr_rendered *out, const struct qr_json *messages, bool prompt, struct qr_err *err)
{
    enum qr_template_kind kind;
    const struct qr_chat_request request = {.messages = messages, .tools = m->tools, .add_generation_prompt = prompt, .now_s = m->now_s};
    return qr_chat_render(m->chat, out, &request, &kind, err);
}

/* The conversation with message `at` replaced by one that says only the mark; bare: nothing of the message is kept but its role. n < 0: all messages,
 * else the first n, and nothing is replaced. */
static struct qr_json *variant(const struct maker *m, int32_t n, int32_t at, bool bare)
{
    struct qr_buf text = {0};
    struct qr_json *doc;
    struct qr_err err;
    int32_t i = 0;
    qr_buf_put_byte(&text, '[');
    for (const struct qr_json *v = qr_json_first(m->messages); v && (n < 0 || i < n); v = qr_json_after(v), i++) {
        qr_buf_put_str(&text, i > 0 ? "," : "");
        if (n >= 0 || i != at) {
            qr_json_print(&text, v);
            continue;
        }
        qr_buf_printf(&text, "{\"role\":\"assistant\",\"content\":\"%s\"", m->mark);
        for (const struct qr_json *k = bare ? NULL : qr_json_first(v); k; k = qr_json_after(k)) {
            if (strcmp(qr_json_key(k), "role") == 0 || strcmp(qr_json_key(k), "content") == 0)
                continue;
            qr_buf_put_byte(&text, ',');
            qr_json_put_str(&text, qr_json_key(k), strlen(qr_json_key(k)));
            qr_buf_put_byte(&text, ':');
            qr_json_print(&text, k);
        }
        qr_buf_put_byte(&text, '}');
    }
    qr_buf_put_byte(&text, ']');
    /* Parts of a document that was parsed: it may be a little longer than what it was read from, whose limits do not count here. */
    const struct qr_json_limits limits = {.bytes_max = SIZE_MAX, .values_max = INT64_MAX, .depth_max = QR_JSON_DEPTH_MAX, .nul_ok = true};
    const int rc = qr_json_parse(&doc, text.data, text.len, &limits, &err);
    QR_ASSERT(rc == 0);
    qr_buf_release(&text);
    return doc;
}

/* A character of the private use area that the rendering does not have. */
static bool choose_mark(struct maker *m)
{
    for (uint32_t cp = MARKS_FIRST; cp <= MARKS_LAST; cp++) {
        m->mark[qr_utf8_encode(cp, m->mark)] = 0;
        if (m->whole.text.len == 0 || !memmem(m->whole.text.data, m->whole.text.len, m->mark, strlen(m->mark)))
            return true;
    }
    return false;
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Where the whole parts from `other`, and where they come together again. False when they are the same. */
static bool differ(const struct qr_buf *whole, const struct qr_buf *other, struct span *out)
{
    const size_t n = whole->len < other->len ? whole->len : other->len;
    size_t head = 0, tail = 0;
    while (head < n && whole->data[head] == other->data[head])
        head++;
    if (head == whole->len && head == other->len)
        return false;
    while (head > 0 && head < whole->len && continues(whole->data[head])) /* bytes of a character that begins like the mark */
        head--;
    while (tail < n - head && whole->data[whole->len - 1 - tail] == other->data[other->len - 1 - tail])
        tail++;
    while (tail > 0 && continues(whole->data[whole->len - tail]))
        tail--;
    *out = (struct span){head, whole->len - tail};
    return true;
}

/* Finds the turn in the rendering by saying something else in it. */
static bool find_by_change(const struct maker *m, int32_t at, struct span *out)
{
    bool found = false;
    for (int bare = 1; bare >= 0 && !found; bare--) {
        struct qr_rendered other = {0};
        struct qr_err ignored;
        struct qr_json *changed = variant(m, -1, at, bare);
        if (render(m, &other, changed, false, &ignored) == 0)
            found = differ(&m->whole.text, &other.text, out) && other.text.len > 0 &&
                    memmem(other.text.data, other.text.len, m->mark, strlen(m->mark)) != NULL;
        qr_rendered_release(&other);
        qr_json_free(changed);
    }
    return found;
}

/* How long the rendering of the first n messages is, when the whole rendering begins with it; else 0. prompt: with the generation prompt. */
static size_t leading(const struct maker *m, int32_t n, bool prompt)
{
    struct qr_rendered r = {0};
    struct qr_err ignored;
    struct qr_json *first = variant(m, n, 0, false);
    size_t len = 0;
    if (render(m, &r, first, prompt, &ignored) == 0 && r.text.len > 0 && r.text.len <= m->whole.text.len &&
        memcmp(r.text.data, m->whole.text.data, r.text.len) == 0)
        len = r.text.len;
    qr_rendered_release(&r);
    qr_json_free(first);
    return len;
}

static bool find_turn(const struct maker *m, int32_t at, struct span *out)
{
    const size_t prompt = leading(m, at, true);
    if (find_by_change(m, at, out)) {
        if (prompt > 0 && prompt <= out->end)
            out->begin = prompt;
        return true;
    }
    /* Saying something else was refused: a tool's answer may need the call before it. What is said up to the turn and with it, then. */
    *out = (struct span){prompt, leading(m, at + 1, false)};
    while (out->end > out->begin && strchr(" \t\r\n", m->whole.text.data[out->end - 1]))
        out->end--;
    return out->begin > 0 && out->end > out->begin;
}

/* ---- bytes to ids ---- */

static int encode(const struct maker *m, struct qr_ids *out, size_t len, struct qr_err *err)
{
    struct qr_segment *segment = qr_alloc((size_t)m->whole.n_segments + 1, sizeof *segment);
    int32_t n = 0;
    for (; n < m->whole.n_segments && m->whole.segment[n].start < len; n++) {
        segment[n] = m->whole.segment[n];
        if (segment[n].len > len - segment[n].start)
            segment[n].len = len - segment[n].start;
    }
    out->n = 0;
    const int rc = qr_tokenizer_encode_segments(m->t, out, m->whole.text.data ? m->whole.text.data : "", len, segment, n, 0, err);
    qr_free(segment);
    return rc;
}

static int64_t bytes_of(const struct maker *m, int32_t id)
{
    size_t len;
    qr_tokenizer_token_bytes(m->t, id, &len);
    return (int64_t)len;
}

/* Most tokenizers cut the text and change nothing in it: then an id's place follows from the lengths before it. */
static void place_ids(struct maker *m)
{
    const struct qr_ids *ids = &m->out->ids;
    size_t at = 0;
    m->id_end = qr_alloc((size_t)ids->n + 1, sizeof *m->id_end);
    for (int32_t i = 0; i < ids->n; i++) {
        size_t len;
        const char *bytes = qr_tokenizer_token_bytes(m->t, ids->id[i], &len);
        if (len > m->whole.text.len - at || memcmp(m->whole.text.data + at, bytes, len) != 0)
            break;
        at += len;
        m->id_end[i] = (int64_t)at;
    }
    if (at == m->whole.text.len)
        return;
    qr_free(m->id_end);
    m->id_end = NULL;
}

/* Where the byte `at` of the rendering lies among the ids: *first is the first id that reaches past it; the result is whether that id also holds bytes
 * before it. Where the tokenizer changes text (a space in front, composed characters), the ids of the text before are compared: up to where they are the
 * same, and from there by length. */
static bool find_id(const struct maker *m, size_t at, int32_t *first)
{
    const struct qr_ids *ids = &m->out->ids;
    int32_t i = 0;
    if (m->id_end) {
        while (i < ids->n && m->id_end[i] <= (int64_t)at)
            i++;
        *first = i;
        return (i > 0 ? m->id_end[i - 1] : 0) != (int64_t)at;
    }
    struct qr_ids before = {0};
    struct qr_err err;
    const int rc = encode(m, &before, at, &err);
    QR_ASSERT(rc == 0); /* a part of what was encoded already */
    while (i < before.n && i < ids->n && before.id[i] == ids->id[i])
        i++;
    int64_t rest = 0;
    for (int32_t k = i; k < before.n; k++)
        rest += bytes_of(m, before.id[k]);
    for (; i < ids->n && rest > 0 && bytes_of(m, ids->id[i]) <= rest; i++)
        rest -= bytes_of(m, ids->id[i]);
    qr_ids_release(&before);
    *first = i;
    return rest > 0;
}

static bool is_space(const struct maker *m, int32_t id)
{
    size_t len;
    const char *bytes = qr_tokenizer_token_bytes(m->t, id, &len);
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r\n", bytes[i]) || bytes[i] == 0)
            return false;
    return len > 0;
}

/* Marks the ids of a turn. False when no special token ends it; `to_end`: then everything up to the end of the rendering is marked. */
static bool mark(struct maker *m, const struct span *span, bool to_end)
{
    const struct qr_ids *ids = &m->out->ids;
    int32_t first, end;
    find_id(m, span->begin, &first);
    if (find_id(m, span->end, &end) && end < ids->n)
        end++;
    int32_t stop = end;
    while (stop < ids->n && is_space(m, ids->id[stop]))
        stop++;
    const bool ended = (end > first && qr_tokenizer_is_special(m->t, ids->id[end - 1])) || (stop < ids->n && qr_tokenizer_is_special(m->t, ids->id[stop]));
    if (stop < ids->n && qr_tokenizer_is_special(m->t, ids->id[stop]))
        end = stop + 1;
    else if (to_end && !ended)
        end = ids->n;
    for (int32_t i = first; i < end; i++)
        m->out->counts[i] = true;
    return ended;
}

/* ---- a conversation ---- */

static int check(const struct qr_json *messages, struct qr_err *err)
{
    int32_t i = 0;
    for (const struct qr_json *v = qr_json_first(messages); v; v = qr_json_after(v), i++) {
        const struct qr_json *role = qr_json_find(v, "role");
        char param[64];
        snprintf(param, sizeof param, "messages[%d]", i);
        if (qr_json_type(v) != QR_JSON_T_OBJECT)
            return qr_err_at(err, QR_E_INVALID, param, "%s must be an object, found %s", param, qr_json_type_name(qr_json_type(v)));
        if (!role || qr_json_type(role) != QR_JSON_T_STRING)
            return qr_err_at(err, QR_E_INVALID, param, "%s needs a \"role\" that is a string", param);
    }
    return i > 0 ? 0 : qr_err_at(err, QR_E_INVALID, "messages", "\"messages\" is empty");
}

static bool wanted(const struct qr_json *message)
{
    const struct qr_json *weight = qr_json_find(message, "weight");
    return strcmp(qr_json_str(qr_json_find(message, "role"), NULL), "assistant") == 0 &&
           (!weight || qr_json_type(weight) != QR_JSON_T_NUMBER || qr_json_f64(weight) != 0);
}

static void mark_turns(struct maker *m)
{
    int32_t i = 0;
    for (const struct qr_json *v = qr_json_first(m->messages); v; v = qr_json_after(v), i++) {
        if (!wanted(v))
            continue;
        struct span span;
        if (!find_turn(m, i, &span)) {
            m->out->n_hidden++;
            continue;
        }
        m->out->n_turns++;
        if (!mark(m, &span, !qr_json_after(v))) {
            m->out->n_open++;
            m->out->open_end = !qr_json_after(v);
        }
    }
}

static int make(struct maker *m)
{
    struct qr_chat_ids *out = m->out;
    int rc = render(m, &m->whole, m->messages, false, m->err);
    if (rc != 0)
        return qr_err_prefix(m->err, "the chat template refuses the conversation: ");
    if ((rc = encode(m, &out->ids, m->whole.text.len, m->err)) != 0)
        return rc;
    if (!choose_mark(m))
        return qr_err_at(m->err, QR_E_INVALID, "messages", "the conversation uses every character of Unicode's private use area");
    if (out->ids.n > out->counts_cap) {
        out->counts_cap = out->ids.n;
        out->counts = qr_realloc(out->counts, (size_t)out->counts_cap, sizeof *out->counts);
    }
    if (out->ids.n > 0)
        memset(out->counts, 0, (size_t)out->ids.n * sizeof *out->counts);
    place_ids(m);
    mark_turns(m);
    return 0;
}

int qr_chat_ids_make(struct qr_chat_ids *out, const struct qr_tokenizer *t, const struct qr_chat *chat, const struct qr_json *messages,
                     const struct qr_json *tools, int64_t now_s, struct qr_err *err)
{
    QR_ASSERT(out != NULL && t != NULL && chat != NULL);
    QR_ASSERT(messages != NULL && qr_json_type(messages) == QR_JSON_T_ARRAY);
    struct maker m = {.t = t, .chat = chat, .messages = messages, .tools = tools, .now_s = now_s, .out = out, .err = err};
    out->ids.n = 0;
    out->n_turns = out->n_hidden = out->n_open = 0;
    out->open_end = false;
    struct qr_json *opened = NULL;
    int rc = check(messages, err);
    rc = rc ? rc : qr_chat_open_arguments(&opened, messages, &qr_json_limits_file, err);
    if (rc != 0)
        return rc;
    m.messages = opened ? opened : messages;
    rc = make(&m);
    qr_free(m.id_end);
    qr_rendered_release(&m.whole);
    qr_json_free(opened);
    return rc;
}
