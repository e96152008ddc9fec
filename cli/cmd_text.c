/* cmd_text.c - tokenize, detokenize, template: JSON lines in, JSON lines out, no weights needed. Every line has one
 * line of answer, in order; an error names its line and ends the command. The code that encodes is the server's. Main
 * thread. */
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "tokenizer/chat.h"
#include "tokenizer/template.h"
#include "tokenizer/tokenizer.h"

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

struct text_options {
    struct qr_cli_model m;
    const char *template_file, *now;
};

static bool bool_member(const struct qr_json *v, const char *key, bool missing)
{
    const struct qr_json *b = qr_json_find(v, key);
    return b && qr_json_type(b) == QR_JSON_T_BOOL ? qr_json_bool(b) : missing;
}

static int tokenize_line(void *user, const struct qr_json *v, struct qr_buf *out, struct qr_err *err)
{
    const struct qr_json *text = qr_json_find(v, "text");
    if (!text || qr_json_type(text) != QR_JSON_T_STRING)
        return qr_err_at(err, QR_E_INVALID, "text", "expected an object with a string \"text\"");
    struct qr_ids ids = {0};
    size_t len;
    const char *s = qr_json_str(text, &len);
    unsigned flags = QR_ENCODE_PARSE_SPECIAL | (bool_member(v, "add_special_tokens", true) ? QR_ENCODE_ADD_SPECIAL : 0u);
    int rc = qr_tokenizer_encode(user, &ids, s, len, flags, err);
    if (rc == 0) {
        qr_buf_put_str(out, "{\"ids\":");
        qr_buf_put_ids(out, ids.id, ids.n);
        qr_buf_put_byte(out, '}');
    }
    qr_ids_release(&ids);
    return rc;
}

static int detokenize_line(void *user, const struct qr_json *v, struct qr_buf *out, struct qr_err *err)
{
    struct qr_ids ids = {0};
    const int32_t vocab = qr_tokenizer_vocab_size(user);
    int rc = qr_cli_ids(&ids, qr_json_find(v, "ids"), "ids", err);
    for (int32_t i = 0; i < ids.n && rc == 0; i++)
        if (ids.id[i] < 0 || ids.id[i] >= vocab)
            rc = qr_err_at(err, QR_E_INVALID, "ids", "token id %d at position %d is outside the vocabulary of %d", ids.id[i], i, vocab);
    if (rc == 0) {
        struct qr_buf text = {0};
        qr_tokenizer_decode(user, &text, ids.id, ids.n, bool_member(v, "skip_special_tokens", false));
        qr_buf_put_str(out, "{\"text\":");
        qr_json_put_str(out, text.data, text.len);
        qr_buf_put_byte(out, '}');
        qr_buf_release(&text);
    }
    qr_ids_release(&ids);
    return rc;
}

static const struct qr_option tokenizer_table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct text_options, m.model), .arg = "DIR",
     .help = "Directory with tokenizer.json (and tokenizer_config.json), or ORG/NAME of the hub."},
    QR_HUB_ROWS(struct text_options, m.hub, NULL)};

static int each_with_tokenizer(const struct text_options *o, int (*each)(void *, const struct qr_json *, struct qr_buf *, struct qr_err *),
                               struct qr_err *err)
{
    struct qr_tokenizer *t = NULL;
    int rc = qr_cli_need_model(&o->m, err);
    rc = rc ? rc : qr_tokenizer_open(&t, o->m.model, err);
    rc = rc ? rc : qr_cli_each_line(stdin, each, t, err);
    qr_tokenizer_close(t);
    return rc;
}

static int tokenize(struct qr_command_run *r, struct qr_err *err)
{
    return each_with_tokenizer(r->options, tokenize_line, err);
}

const struct qr_command qr_cmd_tokenize = {
    .name = "tokenize", .purpose = "text to token ids",
    .usage = "quire tokenize MODEL < lines",
    .examples = "echo '{\"text\": \"Hello\"}' | quire tokenize models/quire-tiny",
    .text = "Reads JSON lines {\"text\": ..., \"add_special_tokens\": true|false} and writes {\"ids\": [...]} per line.",
    .args = "model", .settle = qr_hub_settle,
    .table = tokenizer_table, .n_options = QR_COUNT(tokenizer_table), .options_bytes = sizeof(struct text_options), .run = tokenize,
};

static int detokenize(struct qr_command_run *r, struct qr_err *err)
{
    return each_with_tokenizer(r->options, detokenize_line, err);
}

const struct qr_command qr_cmd_detokenize = {
    .name = "detokenize", .purpose = "token ids to text",
    .usage = "quire detokenize MODEL < lines",
    .examples = "echo '{\"ids\": [1, 2, 3]}' | quire detokenize models/quire-tiny",
    .text = "Reads JSON lines {\"ids\": [...], \"skip_special_tokens\": true|false} and writes {\"text\": ...} per line.",
    .args = "model", .settle = qr_hub_settle,
    .table = tokenizer_table, .n_options = QR_COUNT(tokenizer_table), .options_bytes = sizeof(struct text_options), .run = detokenize,
};

struct template_job {
    const struct qr_template *template;
    const struct qr_chat *chat;
    int64_t now_s;
};

static const char *const trusted_names[] = {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token", NULL};

static int template_line(void *user, const struct qr_json *v, struct qr_buf *out, struct qr_err *err)
{
    const struct template_job *job = user;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_set(err, QR_E_INVALID, "expected an object: the template's context");
    struct qr_rendered r = {0};
    enum qr_template_kind kind;
    struct qr_err why;
    int rc = job->chat ? qr_chat_render_context(job->chat, &r, v, job->now_s, &kind, &why)
                       : qr_template_render(job->template, &r, v, trusted_names, job->now_s, &qr_template_limits_default, &kind, &why);
    if (rc == 0) {
        qr_buf_put_str(out, "{\"text\":");
        qr_json_put_str(out, r.text.data, r.text.len);
    } else {
        qr_buf_put_str(out, "{\"error\":");
        qr_json_put_str(out, why.msg, strlen(why.msg));
        qr_buf_printf(out, ",\"kind\":\"%s\"", qr_template_kind_name(kind));
    }
    qr_buf_put_byte(out, '}');
    qr_rendered_release(&r);
    return 0;
}

/* "2024-07-26T12:34:56" read as UTC. */
static int parse_now(int64_t *out, const char *text, struct qr_err *err)
{
    *out = qr_clock_wall_s();
    if (!text)
        return 0;
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end || *end)
        return qr_err_set(err, QR_E_USAGE, "--now wants a time like 2024-07-26T12:34:56, given '%s'", text);
    *out = (int64_t)timegm(&tm);
    return 0;
}

static int open_template(struct qr_template **t, struct qr_chat **chat, const struct text_options *o, struct qr_err *err)
{
    if (!o->template_file == !o->m.model)
        return qr_err_set(err, QR_E_USAGE, "name one of --template FILE.jinja and --model DIR");
    if (o->m.model) {
        int rc = qr_chat_open(chat, o->m.model, err);
        return rc == 0 && !*chat ? qr_err_set(err, QR_E_NOT_FOUND, "'%s' has no chat template", o->m.model) : rc;
    }
    struct qr_buf text = {0};
    int rc = qr_file_read(&text, o->template_file, QR_FILE_ANY, TEMPLATE_BYTES_MAX, err);
    if (rc == 0 && (rc = qr_template_compile(t, text.data ? text.data : "", text.len, err)) != 0)
        qr_err_prefix(err, "%s: ", o->template_file);
    qr_buf_release(&text);
    return rc;
}

static const struct qr_option template_table[] = {
    {.name = "template", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct text_options, template_file), .arg = "FILE",
     .help = "A Jinja chat template."},
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct text_options, m.model), .arg = "DIR",
     .help = "Take the template and the special tokens of this model directory, or of ORG/NAME of the hub."},
    QR_HUB_ROWS(struct text_options, m.hub, NULL),
    {.name = "now", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct text_options, now), .arg = "TIME",
     .help = "What strftime_now sees, as 2024-07-26T12:34:56; the clock otherwise."}};

static int template(struct qr_command_run *r, struct qr_err *err)
{
    const struct text_options *o = r->options;
    struct qr_template *t = NULL;
    struct qr_chat *chat = NULL;
    struct template_job job;
    int rc = parse_now(&job.now_s, o->now, err);
    rc = rc ? rc : open_template(&t, &chat, o, err);
    job.template = t;
    job.chat = chat;
    rc = rc ? rc : qr_cli_each_line(stdin, template_line, &job, err);
    qr_template_free(t);
    qr_chat_close(chat);
    return rc;
}

const struct qr_command qr_cmd_template = {
    .name = "template", .purpose = "render a chat template",
    .usage = "quire template MODEL [--now TIME] < lines\nquire template --template FILE.jinja [--now TIME] < lines",
    .examples = "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}' |\n"
                "  quire template models/quire-tiny",
    .text = "Reads JSON lines, each the whole context (messages, tools, add_generation_prompt, bos_token, ...), and writes\n"
            "{\"text\": ...} or {\"error\": message, \"kind\": \"raised\"|\"runtime\"|\"limit\"} per line.",
    .args = "model", .settle = qr_hub_settle,
    .table = template_table, .n_options = QR_COUNT(template_table), .options_bytes = sizeof(struct text_options), .run = template,
};
