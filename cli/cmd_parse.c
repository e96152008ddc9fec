/* cmd_parse.c - parse: takes a model's answers apart, JSON lines in, JSON lines out, no weights needed: content,
 * reasoning and calls of tools, as the server does it. The dialect is derived from a template, or named. Every line
 * has one line of answer, in order. Main thread. */
#include <stdio.h>
#include <string.h>

#include "answers/dialect/dialect.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "tokenizer/chat.h"

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

struct parse_options {
    const char *template_file, *family;
};

struct parse_job {
    struct qr_chat *chat;       /* owned; NULL: no template */
    struct qr_dialect *dialect; /* owned; NULL: each line names a family */
    bool derived;               /* the prompt, rendered, says where the answer starts */
};

struct one_call {
    struct qr_buf name, arguments, id;
    bool has_id;
};

struct parsed {
    struct qr_buf content, reasoning;
    struct one_call *call; /* owned [n_calls] */
    int32_t n_calls;
};

static void hear(void *user, const struct qr_part_text *t)
{
    struct parsed *p = user;
    if (t->part == QR_PART_CONTENT)
        qr_buf_put(&p->content, t->text, t->len);
    if (t->part == QR_PART_REASONING)
        qr_buf_put(&p->reasoning, t->text, t->len);
    if (t->part == QR_PART_CALL) {
        p->call = qr_realloc(p->call, (size_t)p->n_calls + 1, sizeof *p->call);
        p->call[p->n_calls] = (struct one_call){0};
        qr_buf_put(&p->call[p->n_calls++].name, t->text, t->len);
    }
    struct one_call *last = p->n_calls ? &p->call[p->n_calls - 1] : NULL;
    if (t->part == QR_PART_ARGUMENTS)
        qr_buf_put(&last->arguments, t->text, t->len);
    if ((t->part == QR_PART_CALL || t->part == QR_PART_CALL_END) && t->id) {
        qr_buf_put_str(&last->id, t->id);
        last->has_id = true;
    }
}

static void put_str(struct qr_buf *out, const struct qr_buf *s)
{
    qr_json_put_str(out, s->data ? s->data : "", s->len);
}

static void put_parsed(struct qr_buf *out, const struct parsed *p, const struct qr_json *id)
{
    qr_buf_put_byte(out, '{');
    if (id) {
        qr_buf_put_str(out, "\"id\":");
        qr_json_print(out, id);
        qr_buf_put_byte(out, ',');
    }
    qr_buf_put_str(out, "\"content\":");
    put_str(out, &p->content);
    qr_buf_put_str(out, ",\"reasoning\":");
    put_str(out, &p->reasoning);
    qr_buf_put_str(out, ",\"calls\":[");
    for (int32_t i = 0; i < p->n_calls; i++) {
        qr_buf_put_str(out, i ? ",{\"id\":" : "{\"id\":");
        if (p->call[i].has_id)
            put_str(out, &p->call[i].id);
        else
            qr_buf_put_str(out, "null");
        qr_buf_put_str(out, ",\"name\":");
        put_str(out, &p->call[i].name);
        qr_buf_put_str(out, ",\"arguments\":");
        put_str(out, &p->call[i].arguments);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_str(out, "]}");
}

static void parsed_release(struct parsed *p)
{
    qr_buf_release(&p->content);
    qr_buf_release(&p->reasoning);
    for (int32_t i = 0; i < p->n_calls; i++) {
        qr_buf_release(&p->call[i].name);
        qr_buf_release(&p->call[i].arguments);
        qr_buf_release(&p->call[i].id);
    }
    qr_free(p->call);
}

/* options.key as a boolean; `missing` where it is none. */
static bool option(const struct qr_json *line, const char *key, bool missing)
{
    const struct qr_json *options = qr_json_find(line, "options"), *b = options ? qr_json_find(options, key) : NULL;
    return b && qr_json_type(b) == QR_JSON_T_BOOL ? qr_json_bool(b) : missing;
}

/* Whether the prompt that the template makes begins reasoning. Tools that it cannot show are left out. */
static bool prompt_starts_inside(const struct parse_job *job, const struct qr_dialect *d, const struct qr_json *line)
{
    static const char text[] = "[{\"role\":\"user\",\"content\":\"hello\"}]";
    const char *kwargs = option(line, "enable_thinking", true) ? "{\"enable_thinking\":true}" : "{\"enable_thinking\":false}";
    const struct qr_json *tools = qr_json_find(line, "tools");
    struct qr_json *messages = NULL, *k = NULL;
    struct qr_err err;
    enum qr_template_kind kind;
    bool inside = false, rendered = false;
    int rc = qr_json_parse(&messages, text, sizeof text - 1, &qr_json_limits_request, &err);
    rc = rc ? rc : qr_json_parse(&k, kwargs, strlen(kwargs), &qr_json_limits_request, &err);
    QR_ASSERT(rc == 0);
    for (int with_tools = tools && qr_json_count(tools) > 0; with_tools >= 0 && !rendered; with_tools--) {
        struct qr_chat_request req = {.messages = messages, .tools = with_tools ? tools : NULL, .kwargs = k, .add_generation_prompt = true,
                                      .now_s = qr_clock_wall_s()};
        struct qr_rendered r = {0};
        rendered = qr_chat_render(job->chat, &r, &req, &kind, &err) == 0;
        inside = rendered && qr_dialect_starts_inside(d, r.text.data, r.text.len);
        qr_rendered_release(&r);
    }
    qr_json_free(messages);
    qr_json_free(k);
    return inside;
}

/* The line's dialect: of its tags, the command's, or of the family that the line names. *owned: to be freed. */
static const struct qr_dialect *dialect_of(struct qr_dialect **owned, const struct parse_job *job, const struct qr_json *line, struct qr_err *err)
{
    const struct qr_json *tags = qr_json_find(line, "tags"), *start = tags ? qr_json_first(tags) : NULL, *end = start ? qr_json_after(start) : NULL;
    const char *family = qr_json_text(qr_json_find(line, "family"), NULL);
    *owned = NULL;
    if (qr_json_text(start, NULL) && qr_json_text(end, NULL) && *qr_json_text(end, NULL))
        return *owned = qr_dialect_of_tags(qr_json_text(start, NULL), qr_json_text(end, NULL));
    if (job->dialect)
        return job->dialect;
    *owned = qr_dialect_named(family ? family : "json");
    if (!*owned)
        qr_err_at(err, QR_E_INVALID, "family", "there is no family '%.60s' (quire parse --family help lists them)", family);
    return *owned;
}

/* The text, whole or in the pieces that the line has. */
static void feed(struct qr_answer_parser *p, struct parsed *out, const struct qr_json *text, const struct qr_json *chunks)
{
    size_t len;
    const struct qr_json *c = chunks ? qr_json_first(chunks) : NULL;
    for (; c; c = qr_json_after(c))
        if (qr_json_text(c, &len))
            qr_answer_parser_feed(p, qr_json_text(c, &len), len, false, hear, out);
    const char *s = chunks && qr_json_count(chunks) > 0 ? "" : qr_json_text(text, &len);
    qr_answer_parser_feed(p, s, *s ? len : 0, true, hear, out);
}

static int parse_line(void *user, const struct qr_json *v, struct qr_buf *out, struct qr_err *err)
{
    const struct parse_job *job = user;
    const struct qr_json *text = qr_json_find(v, "text"), *tools = qr_json_find(v, "tools"), *inside = qr_json_find(v, "starts_inside");
    const struct qr_json *options = qr_json_find(v, "options"), *chunks = qr_json_find(v, "chunks");
    struct qr_dialect *owned;
    struct parsed parsed = {0};
    const bool has_chunks = chunks && qr_json_type(chunks) == QR_JSON_T_ARRAY;
    if (!qr_json_text(text, NULL) && !has_chunks)
        return qr_err_at(err, QR_E_INVALID, "text", "expected an object with a string \"text\"");
    const struct qr_dialect *d = dialect_of(&owned, job, v, err);
    if (!d) { /* the other lines can be read */
        qr_buf_put_str(out, "{\"error\":");
        qr_json_put_str(out, err->msg, strlen(err->msg));
        qr_buf_put_byte(out, '}');
        return 0;
    }
    struct qr_answer_options o = {.parse_reasoning = !(options && qr_json_says(qr_json_find(options, "reasoning_format"), "none")),
                                  .single = !option(v, "parallel_tool_calls", true)};
    o.tools = tools && qr_json_type(tools) == QR_JSON_T_ARRAY && qr_json_count(tools) > 0 ? tools : NULL;
    o.calls_are_text = options && qr_json_says(qr_json_find(options, "tool_choice"), "none");
    if (inside && qr_json_type(inside) == QR_JSON_T_BOOL)
        o.starts_inside = qr_json_bool(inside);
    else if (job->chat && !owned)
        o.starts_inside = prompt_starts_inside(job, d, v);
    else
        o.starts_inside = qr_dialect_think_opened(d) && option(v, "enable_thinking", false);
    struct qr_answer_parser *p = qr_answer_parser_new(d, &o);
    feed(p, &parsed, text, has_chunks ? chunks : NULL);
    put_parsed(out, &parsed, qr_json_find(v, "id"));
    qr_answer_parser_free(p);
    qr_dialect_free(owned);
    parsed_release(&parsed);
    return 0;
}

static int open_chat(struct qr_chat **chat, const char *file, struct qr_err *err)
{
    struct qr_buf text = {0};
    int rc = qr_file_read(&text, file, QR_FILE_ANY, TEMPLATE_BYTES_MAX, err);
    rc = rc ? rc : qr_chat_open_text(chat, text.data, text.len, file, err);
    qr_buf_release(&text);
    return rc;
}

static int run_parse(struct qr_command_run *r, struct qr_err *err)
{
    const struct parse_options *o = r->options;
    struct parse_job job = {0};
    if (o->family && strcmp(o->family, "help") == 0) {
        for (int32_t i = 0; qr_dialect_name_at(i); i++)
            printf("%s\n", qr_dialect_name_at(i));
        return 0;
    }
    if (o->family && !(job.dialect = qr_dialect_named(o->family)))
        return qr_err_set(err, QR_E_USAGE, "--family: there is no family '%s' (--family help lists them)", o->family);
    int rc = o->template_file ? open_chat(&job.chat, o->template_file, err) : 0;
    if (rc == 0 && job.chat && !job.dialect)
        job.dialect = qr_dialect_derive(job.chat);
    rc = rc ? rc : qr_cli_each_line(stdin, parse_line, &job, err);
    qr_dialect_free(job.dialect);
    qr_chat_close(job.chat);
    return rc;
}

static const struct qr_option parse_table[] = {
    {.name = "template", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct parse_options, template_file), .arg = "FILE",
     .help = "A Jinja chat template: the dialect is derived from it, and its prompt says whether the answer begins inside reasoning."},
    {.name = "family", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct parse_options, family), .arg = "NAME",
     .help = "Take the dialect of this name instead; help lists the names. Without both options, each line has its \"family\"."}};

const struct qr_command qr_cmd_parse = {
    .name = "parse", .purpose = "take answers apart: reasoning, tool calls",
    .usage = "quire parse [--template FILE] [--family NAME] < lines",
    .examples = "echo '{\"text\": \"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}\\n</tool_call>\"}' |\n"
                "  quire parse --family hermes",
    .text = "Reads JSON lines {\"text\", \"tools\", \"options\", \"chunks\", \"family\"} and writes {\"content\", \"reasoning\",\n"
            "\"calls\": [{\"id\", \"name\", \"arguments\"}]} per line. Chunks are fed piece by piece, instead of the text.\n"
            "A line with \"tags\": [start, end] and \"starts_inside\" has reasoning alone.",
    .table = parse_table, .n_options = QR_COUNT(parse_table), .options_bytes = sizeof(struct parse_options), .run = run_parse,
};
