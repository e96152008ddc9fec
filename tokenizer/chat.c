/* chat.c - finds a model's chat template, compiles it, and renders conversations to ids. At opening a few small
 * conversations are rendered, to see what the template reads: content as parts, null, a developer's role. Text that the
 * template writes may hold special tokens; text of a message may not, as the rendering knows where each byte came from
 * (template.h). Immutable once open; any thread may render. */
#include "tokenizer/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "tokenizer/chat_messages.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/jinja/render.h"
#include "tokenizer/jinja/unicode.h"
#include "tokenizer/jinja/value.h"

#define FILE_MAX_BYTES ((size_t)64 << 20)  /* tokenizer_config.json lists every added token */
#define STEPS_PER_MESSAGE 2000             /* a long conversation may take its time: measured templates need < 500 a message */

/* Names of special tokens as tokenizer_config.json and templates use them. */
static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
#define N_TOKENS QR_COUNT(token_names)

struct qr_chat {
    struct qr_template *plain;    /* owned; "default" */
    struct qr_template *tool_use; /* owned; NULL when the directory has none of that name */
    char *token[7];               /* owned; NULL: the model has no such token */
    struct qr_json *more_tokens;  /* owned; additional_special_tokens as an array of strings, or NULL */
    bool knows_developer;         /* a template speaks of the role developer */
    struct qr_chat_form form;     /* what messages are given in another form for, but for `join` */
};

bool qr_chat_is_reserved(const char *name)
{
    static const char *const names[] = {
        "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "additional_special_tokens",
        "extra_special_tokens", "chat_template", "conversation", "tokenize", "raise_exception", "strftime_now", "range", "dict",
        "namespace", "cycler", "joiner", "lipsum", "self", "loop", "caller", "varargs", "kwargs",
    };
    QR_ASSERT(name != NULL);
    for (int i = 0; i < QR_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    for (int i = 0; i < N_TOKENS; i++) {
        if (strcmp(token_names[i], name) == 0)
            return true;
    }
    return false;
}

/* ---- opening ---- */

/* Reads dir/name as JSON; *out is NULL when there is no such file. */
static int read_json(struct qr_json **out, const char *dir, const char *name, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_buf text = {0};
    *out = NULL;
    int rc = qr_path_join(path, dir, name, err);
    rc = rc ? rc : qr_file_read(&text, path, QR_FILE_OPTIONAL, FILE_MAX_BYTES, err);
    if (rc == 0 && text.data) {
        rc = qr_json_parse_file(out, text.data, text.len, &qr_json_limits_file, path, err);
        if (rc == 0 && qr_json_type(*out) != QR_JSON_T_OBJECT) {
            rc = qr_err_set(err, QR_E_DAMAGED, "%s: an object was expected, not %s", path, qr_json_type_name(qr_json_type(*out)));
            qr_json_free(*out);
            *out = NULL;
        }
    }
    qr_buf_release(&text);
    return rc;
}

/* tokenizer_config.json, or what a GGUF file has in its place. */
static int read_config(struct qr_json **out, const struct qr_source *source, struct qr_err *err)
{
    struct qr_buf text = {0};
    if (!qr_source_gguf(source))
        return read_json(out, qr_source_model(source), "tokenizer_config.json", err);
    *out = NULL;
    int rc = qr_gguf_tokenizer_config(&text, qr_source_gguf(source), err);
    rc = rc ? qr_err_prefix(err, "%s: ", qr_source_gguf_path(source))
            : qr_json_parse_file(out, text.data, text.len, &qr_json_limits_file, qr_source_gguf_path(source), err);
    qr_buf_release(&text);
    return rc;
}

/* Compiles a template of the file `where`; its faults are faults of the model's files. */
static int compile(struct qr_chat *c, struct qr_template **out, const char *text, size_t len, const char *where, struct qr_err *err)
{
    int rc = qr_template_compile(out, text, len, err);
    c->knows_developer = c->knows_developer || memmem(text, len, "'developer'", 11) || memmem(text, len, "\"developer\"", 11);
    if (rc == 0)
        return 0;
    err->code = QR_E_DAMAGED;
    return qr_err_prefix(err, "%s: ", where);
}

/* "chat_template": a string, or a list of {name, template}. Nothing happens when v is NULL or null. */
static int templates_from_json(struct qr_chat *c, const struct qr_json *v, const char *where, struct qr_err *err)
{
    size_t len;
    if (qr_json_is_null(v))
        return 0;
    if (qr_json_type(v) == QR_JSON_T_STRING) {
        const char *text = qr_json_str(v, &len);
        return compile(c, &c->plain, text, len, where, err);
    }
    if (qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_DAMAGED, "%s: chat_template is neither a string nor a list", where);
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e)) {
        const struct qr_json *name = qr_json_find(e, "name"), *text = qr_json_find(e, "template");
        const char *s = qr_json_text(text, &len);
        if (!s || !qr_json_text(name, NULL))
            return qr_err_set(err, QR_E_DAMAGED, "%s: an entry of chat_template lacks a name or a template", where);
        bool plain = qr_json_says(name, "default"), tool_use = qr_json_says(name, "tool_use");
        struct qr_template **slot = plain ? &c->plain : &c->tool_use;
        if ((!plain && !tool_use) || *slot)
            continue;
        int rc = compile(c, slot, s, len, where, err);
        if (rc)
            return rc;
    }
    if (!c->plain)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: chat_template names no template \"default\"", where);
    return 0;
}

static int template_from_file(struct qr_chat *c, struct qr_template **out, const char *dir, const char *name, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_buf text = {0};
    int rc = qr_path_join(path, dir, name, err);
    rc = rc ? rc : qr_file_read(&text, path, QR_FILE_OPTIONAL, FILE_MAX_BYTES, err);
    if (rc == 0 && text.data)
        rc = compile(c, out, text.data, text.len, name, err);
    qr_buf_release(&text);
    return rc;
}

/* The first of the three places that has a template gives it. */
static int find_templates(struct qr_chat *c, const char *dir, const struct qr_json *config, struct qr_err *err)
{
    int rc = template_from_file(c, &c->plain, dir, "chat_template.jinja", err);
    if (rc || c->plain)
        return rc ? rc : template_from_file(c, &c->tool_use, dir, "additional_chat_templates/tool_use.jinja", err);
    struct qr_json *doc;
    rc = read_json(&doc, dir, "chat_template.json", err);
    if (rc == 0 && doc)
        rc = templates_from_json(c, qr_json_find(doc, "chat_template"), "chat_template.json", err);
    qr_json_free(doc);
    if (rc || c->plain)
        return rc;
    return config ? templates_from_json(c, qr_json_find(config, "chat_template"), "tokenizer_config.json", err) : 0;
}

/* The text of a token written as "..." or {"content": "..."}; NULL when it is neither. */
static const char *token_text(const struct qr_json *v)
{
    if (v && qr_json_type(v) == QR_JSON_T_OBJECT)
        v = qr_json_find(v, "content");
    return qr_json_text(v, NULL);
}

static int more_tokens(struct qr_chat *c, const struct qr_json *list, struct qr_err *err)
{
    struct qr_buf b = {0};
    if (c->more_tokens || !list || qr_json_type(list) != QR_JSON_T_ARRAY)
        return 0;
    qr_buf_put_byte(&b, '[');
    for (const struct qr_json *e = qr_json_first(list); e; e = qr_json_after(e)) {
        const char *text = token_text(e);
        if (!text)
            continue;
        if (b.len > 1)
            qr_buf_put_byte(&b, ',');
        qr_json_put_str(&b, text, strlen(text));
    }
    qr_buf_put_byte(&b, ']');
    int rc = qr_json_parse(&c->more_tokens, b.data, b.len, &qr_json_limits_file, err);
    qr_buf_release(&b);
    return rc;
}

/* Special tokens of one file, for those that no earlier file gave. */
static int tokens_from(struct qr_chat *c, const struct qr_json *doc, struct qr_err *err)
{
    if (!doc)
        return 0;
    for (int i = 0; i < N_TOKENS; i++) {
        const char *text = token_text(qr_json_find(doc, token_names[i]));
        if (text && !c->token[i])
            c->token[i] = qr_strdup(text);
    }
    return more_tokens(c, qr_json_find(doc, "additional_special_tokens"), err);
}

/* ---- what the template does with a tool call ---- */

/* Renders a conversation, given as JSON. False when the template fails. */
static bool probe(const struct qr_template *t, struct qr_rendered *out, const char *messages)
{
    struct qr_buf b = {0};
    struct qr_json *doc;
    struct qr_err err;
    enum qr_template_kind kind;
    qr_buf_printf(&b,
                  "{\"messages\":[%s],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                  "\"probe\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}],\"documents\":null,"
                  "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}",
                  messages);
    int rc = qr_json_parse(&doc, b.data, b.len, &qr_json_limits_file, &err);
    QR_ASSERT(rc == 0);
    rc = qr_template_render(t, out, doc, NULL, 0, &qr_template_limits_default, &kind, &err);
    qr_json_free(doc);
    qr_buf_release(&b);
    return rc == 0;
}

/* A conversation with one tool call whose arguments are `arguments`, in a turn whose content is `content`, and the tool's answer behind it
 * (NULL: none); all three JSON. */
static bool probe_call(const struct qr_template *t, struct qr_rendered *out, const char *content, const char *arguments, const char *answer)
{
    struct qr_buf b = {0};
    qr_buf_printf(&b,
                  "{\"role\":\"user\",\"content\":\"hello\"},{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":[{\"id\":"
                  "\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"probe\",\"arguments\":%s}}]}",
                  content, arguments);
    if (answer)
        qr_buf_printf(&b, ",{\"role\":\"tool\",\"name\":\"probe\",\"tool_call_id\":\"abcdefghi\",\"content\":%s}", answer);
    const bool works = probe(t, out, b.data);
    qr_buf_release(&b);
    return works;
}

#define PROBE_TEXT "{\"probe_key\": \"v\"}"
#define PROBE_DONE "\"done\""
#define PROBE_QUOTED "\"{\\\"probe_key\\\": \\\"v\\\"}\""

static bool shows(const struct qr_rendered *r, const char *what)
{
    return r->text.data && strstr(r->text.data, what);
}

/* Clients send a tool call's arguments as JSON text. Most templates want the value and print it as JSON; some print what they get, and
 * the value would come out as Python writes it, or not at all. Trying both shows which; some show calls only where the content is null. */
static bool wants_text(const struct qr_template *t)
{
    static const char *const content[] = {"\"\"", "null"};
    struct qr_rendered r = {0};
    bool value_works = false, text_works = false;
    for (int i = 0; i < QR_COUNT(content) && !value_works && !text_works; i++) {
        value_works = probe_call(t, &r, content[i], PROBE_TEXT, PROBE_DONE) && shows(&r, "probe_key") && !shows(&r, "'probe_key'");
        text_works = !value_works && probe_call(t, &r, content[i], PROBE_QUOTED, PROBE_DONE) && shows(&r, PROBE_TEXT);
    }
    qr_rendered_release(&r);
    return text_works;
}

/* How often null was written, as Python or JSON do. */
static int32_t nulls(const struct qr_rendered *r)
{
    static const char *const word[] = {"None", "null"};
    int32_t n = 0;
    for (int i = 0; i < QR_COUNT(word); i++)
        for (const char *at = r->text.data; at && (at = strstr(at, word[i])); at++)
            n++;
    return n;
}

/* Clients send null content, or none, with a turn that only calls tools. Some templates tell such turns by that; some fail, or write it.
 * One that knows no answers of tools is asked without. */
static bool wants_empty(const struct qr_template *t, bool arguments_as_text)
{
    const char *arguments = arguments_as_text ? PROBE_QUOTED : PROBE_TEXT;
    struct qr_rendered r = {0};
    bool known = false, reads_null = true;
    for (int answer = 1; answer >= 0 && !known; answer--) {
        known = probe_call(t, &r, "\"\"", arguments, answer ? PROBE_DONE : NULL);
        const int32_t n = known ? nulls(&r) : 0;
        if (known)
            reads_null = probe_call(t, &r, "null", arguments, answer ? PROBE_DONE : NULL) && nulls(&r) <= n;
    }
    qr_rendered_release(&r);
    return !reads_null;
}

/* Of templates that read lists of parts, many do so for users only. Whether a message of `role` says the same as a list as it says as text. */
static bool reads_parts(const struct qr_template *t, const char *role, bool arguments_as_text)
{
    static const char *const form[] = {"\"probe_text\"", "[{\"type\":\"text\",\"text\":\"probe_text\"}]"};
    static const char user[] = "{\"role\":\"user\",\"content\":\"hello\"}";
    const bool assistant = strcmp(role, "assistant") == 0, tool = strcmp(role, "tool") == 0;
    struct qr_rendered r[2] = {0};
    bool works[2];
    for (int i = 0; i < 2; i++) {
        char messages[300];
        snprintf(messages, sizeof messages, "%s%s{\"role\":\"%s\",\"content\":%s},%s", assistant ? user : "", assistant ? "," : "", role, form[i], user);
        works[i] = tool ? probe_call(t, &r[i], "\"\"", arguments_as_text ? PROBE_QUOTED : PROBE_TEXT, form[i]) : probe(t, &r[i], messages);
    }
    bool same = !works[0] || !shows(&r[0], "probe_text") || (works[1] && strcmp(r[0].text.data, r[1].text.data) == 0);
    for (int i = 0; i < 2; i++)
        qr_rendered_release(&r[i]);
    return same;
}

static void find_form(struct qr_chat *c)
{
    const struct qr_template *t = c->tool_use ? c->tool_use : c->plain;
    struct qr_chat_form *f = &c->form;
    f->arguments_as_text = wants_text(t);
    f->empty_for_null = wants_empty(t, f->arguments_as_text);
    f->system_for_developer = !c->knows_developer;
    f->join_system = !reads_parts(t, "system", f->arguments_as_text);
    f->join_assistant = !reads_parts(t, "assistant", f->arguments_as_text);
    f->join_tool = !reads_parts(t, "tool", f->arguments_as_text);
}

int qr_chat_open_from(struct qr_chat **out, const struct qr_source *source, struct qr_err *err)
{
    QR_ASSERT(out != NULL && source != NULL);
    QR_ASSERT(err != NULL);
    const char *dir = qr_source_model(source);
    struct qr_json *config, *map = NULL;
    struct qr_chat *c = qr_alloc(1, sizeof *c);
    _Static_assert(N_TOKENS == sizeof c->token / sizeof c->token[0], "one slot per token name");
    *out = NULL;
    int rc = read_config(&config, source, err);
    if (rc == 0)
        rc = find_templates(c, dir, config, err);
    if (rc == 0 && c->plain)
        rc = read_json(&map, dir, "special_tokens_map.json", err);
    if (rc == 0 && c->plain)
        rc = tokens_from(c, config, err);
    if (rc == 0 && c->plain)
        rc = tokens_from(c, map, err);
    qr_json_free(config);
    qr_json_free(map);
    if (rc == 0 && c->plain) {
        find_form(c);
        *out = c;
    } else {
        qr_chat_close(c);
    }
    return rc;
}

int qr_chat_open(struct qr_chat **out, const char *model, struct qr_err *err)
{
    QR_ASSERT(out != NULL && model != NULL);
    struct qr_source *source;
    int rc = qr_source_open(&source, model, err);
    if (rc)
        return rc;
    rc = qr_chat_open_from(out, source, err);
    qr_source_unref(source);
    return rc;
}

int qr_chat_open_text(struct qr_chat **out, const char *text, size_t len, const char *where, struct qr_err *err)
{
    QR_ASSERT(out != NULL && where != NULL);
    QR_ASSERT(text != NULL || len == 0);
    struct qr_chat *c = qr_alloc(1, sizeof *c);
    *out = NULL;
    int rc = compile(c, &c->plain, text ? text : "", len, where, err);
    if (rc) {
        qr_chat_close(c);
        return rc;
    }
    for (int i = 0; i < N_TOKENS; i++)
        c->token[i] = qr_strdup("");
    find_form(c);
    *out = c;
    return 0;
}

void qr_chat_close(struct qr_chat *c)
{
    if (!c)
        return;
    qr_template_free(c->plain);
    qr_template_free(c->tool_use);
    for (int i = 0; i < N_TOKENS; i++)
        qr_free(c->token[i]);
    qr_json_free(c->more_tokens);
    qr_free(c);
}

/* ---- continue_final_message ---- */

/* Narrows s[*from..*to) to what is left without white space around it. */
static void strip(const char *s, size_t *from, size_t *to)
{
    for (size_t n; (n = qr_jspace_at(s + *from, *to - *from)) > 0;)
        *from += n;
    for (size_t n; (n = qr_jspace_before(s + *from, *to - *from)) > 0;)
        *to -= n;
}

/* The text that the last message leaves open: its content, or its last text part. NULL when there is none. */
static const char *final_text(const struct qr_json *messages, size_t *len, char param[static 64])
{
    const struct qr_json *last = qr_json_first(messages);
    int32_t n = 0;
    for (const struct qr_json *m = last; m; m = qr_json_after(m), n++)
        last = m;
    snprintf(param, 64, "messages[%d].content", n - 1);
    const struct qr_json *content = qr_json_find(last, "content");
    const char *text = qr_json_text(content, len);
    for (const struct qr_json *p = content ? qr_json_first(content) : NULL; p; p = qr_json_after(p)) {
        const char *part = qr_json_text(qr_json_find(p, "text"), len);
        text = part ? part : text;
    }
    return text;
}

static void cut_at(struct qr_rendered *r, size_t len)
{
    QR_ASSERT(len <= r->text.len);
    r->text.len = len;
    if (r->text.data)
        r->text.data[len] = 0;
    while (r->n_segments > 0 && r->segment[r->n_segments - 1].start >= len)
        r->n_segments--;
    if (r->n_segments > 0)
        r->segment[r->n_segments - 1].len = len - r->segment[r->n_segments - 1].start;
}

/* Ends the rendering with the final message's text, whose white space the template may have trimmed. */
static int leave_open(struct qr_rendered *r, const struct qr_json *messages, struct qr_err *err)
{
    char param[64];
    size_t len = 0, from = 0, to;
    const char *text = final_text(messages, &len, param);
    to = len;
    if (text)
        strip(text, &from, &to);
    if (!text || from == to)
        return qr_err_at(err, QR_E_INVALID, param,
                         "continue_final_message needs text in the last message; leave it out to begin a new answer");
    int64_t start = r->text.len ? qr_jmem_rfind(r->text.data, r->text.len, text + from, to - from) : -1;
    if (start < 0)
        return qr_err_at(err, QR_E_INVALID, param,
                         "continue_final_message: the chat template does not show the last message's text as it is");
    /* White space behind the text stays when the template kept it; as in transformers, only when there is none before it. */
    bool kept = from == 0 && len <= r->text.len - (size_t)start && memcmp(r->text.data + start, text, len) == 0;
    cut_at(r, (size_t)start + (kept ? len : to - from));
    return 0;
}

/* ---- rendering ---- */

static struct qr_template_var json_var(const char *name, const struct qr_json *v)
{
    return (struct qr_template_var){.name = name, .type = v ? QR_VAR_JSON : QR_VAR_NONE, .json = v};
}

static int check(const struct qr_chat_request *req, struct qr_err *err)
{
    if (req->add_generation_prompt && req->continue_final_message)
        return qr_err_at(err, QR_E_INVALID, "continue_final_message",
                         "continue_final_message and add_generation_prompt exclude each other");
    for (const struct qr_json *m = req->kwargs ? qr_json_first(req->kwargs) : NULL; m; m = qr_json_after(m)) {
        if (qr_chat_is_reserved(qr_json_key(m)))
            return qr_err_at(err, QR_E_INVALID, "chat_template_kwargs", "chat_template_kwargs cannot set '%.60s'", qr_json_key(m));
    }
    return 0;
}

static int render(const struct qr_chat *c, const struct qr_template *t, struct qr_rendered *out, const struct qr_chat_request *req,
                  const struct qr_json *messages, enum qr_template_kind *kind, struct qr_err *err)
{
    struct qr_template_limits limits = qr_template_limits_default;
    int32_t n = 0, n_kwargs = req->kwargs ? qr_json_count(req->kwargs) : 0;
    struct qr_template_var *var = qr_alloc((size_t)(N_TOKENS + 5 + n_kwargs), sizeof *var);
    limits.steps_max += (int64_t)qr_json_count(messages) * STEPS_PER_MESSAGE;
    for (const struct qr_json *m = req->kwargs ? qr_json_first(req->kwargs) : NULL; m; m = qr_json_after(m))
        var[n++] = json_var(qr_json_key(m), m);
    for (int i = 0; i < N_TOKENS; i++) {
        if (c->token[i])
            var[n++] = (struct qr_template_var){.name = token_names[i], .type = QR_VAR_TEXT, .trusted = true, .text = c->token[i]};
    }
    if (c->more_tokens) {
        var[n] = json_var("additional_special_tokens", c->more_tokens);
        var[n++].trusted = true;
    }
    var[n++] = json_var("messages", messages);
    var[n++] = json_var("tools", req->tools);
    var[n++] = json_var("documents", req->documents);
    var[n++] = (struct qr_template_var){.name = "add_generation_prompt", .type = QR_VAR_BOOL, .b = req->add_generation_prompt};
    int rc = qr_template_render_vars(t, out, var, n, req->now_s, &limits, kind, err);
    qr_free(var);
    return rc;
}

int qr_chat_render(const struct qr_chat *c, struct qr_rendered *out, const struct qr_chat_request *req,
                   enum qr_template_kind *kind, struct qr_err *err)
{
    QR_ASSERT(c != NULL && out != NULL && req != NULL);
    QR_ASSERT(req->messages != NULL && qr_json_type(req->messages) == QR_JSON_T_ARRAY);
    const struct qr_template *t = req->tools && c->tool_use ? c->tool_use : c->plain;
    struct qr_chat_form form = c->form;
    struct qr_json *flat = NULL;
    *kind = QR_TEMPLATE_RUNTIME;
    form.join = !qr_template_loops_content(t);
    int rc = check(req, err);
    if (rc == 0)
        rc = qr_chat_messages(&flat, req->messages, &form, err);
    const struct qr_json *messages = flat ? flat : req->messages;
    if (rc == 0)
        rc = render(c, t, out, req, messages, kind, err);
    if (rc == 0 && req->continue_final_message)
        rc = leave_open(out, messages, err);
    qr_json_free(flat);
    return rc;
}

int qr_chat_render_context(const struct qr_chat *c, struct qr_rendered *out, const struct qr_json *context, int64_t now_s,
                           enum qr_template_kind *kind, struct qr_err *err)
{
    QR_ASSERT(c != NULL && out != NULL);
    QR_ASSERT(context != NULL && qr_json_type(context) == QR_JSON_T_OBJECT);
    const struct qr_json *tools = qr_json_find(context, "tools");
    const struct qr_template *t = !qr_json_is_null(tools) && c->tool_use ? c->tool_use : c->plain;
    int32_t n = 0;
    struct qr_template_var *var = qr_alloc((size_t)(N_TOKENS + qr_json_count(context)), sizeof *var);
    for (int i = 0; i < N_TOKENS; i++) {
        if (c->token[i] && !qr_json_find(context, token_names[i]))
            var[n++] = (struct qr_template_var){.name = token_names[i], .type = QR_VAR_TEXT, .trusted = true, .text = c->token[i]};
    }
    for (const struct qr_json *m = qr_json_first(context); m; m = qr_json_after(m))
        var[n++] = json_var(qr_json_key(m), m);
    int rc = qr_template_render_vars(t, out, var, n, now_s, &qr_template_limits_default, kind, err);
    qr_free(var);
    return rc;
}
