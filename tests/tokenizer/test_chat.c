/* A model directory's chat template: where it is found, what it is given, part lists, continue_final_message. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "tokenizer/chat.h"

#define NOW_S 1721997296 /* 2024-07-26T12:34:56 */
#define CHATML \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

/* A directory of its own for one test; its files go with drop(). */
struct dir {
    char path[64];
    const char *name[16];
    int n;
};

static void make(struct dir *d)
{
    memset(d, 0, sizeof *d);
    strcpy(d->path, "/tmp/quire-chat-XXXXXX");
    cr_assert(mkdtemp(d->path) != NULL);
}

static void put_n(struct dir *d, const char *name, const char *text, size_t n)
{
    char path[128];
    cr_assert(d->n < 16);
    d->name[d->n++] = name;
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    FILE *f = fopen(path, "wb");
    cr_assert(f != NULL);
    cr_assert(fwrite(text, 1, n, f) == n);
    fclose(f);
}

static void put(struct dir *d, const char *name, const char *text)
{
    put_n(d, name, text, strlen(text));
}

static void drop(struct dir *d)
{
    while (d->n > 0) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", d->path, d->name[--d->n]);
        unlink(path);
    }
    rmdir(d->path);
}

static struct qr_chat *open_chat(const struct dir *d)
{
    struct qr_chat *c;
    struct qr_err err;
    int rc = qr_chat_open(&c, d->path, &err);
    cr_assert(rc == 0, "%s", err.msg);
    return c;
}

static void expect_open_error(const struct dir *d, int code, const char *message)
{
    struct qr_chat *c;
    struct qr_err err;
    int rc = qr_chat_open(&c, d->path, &err);
    cr_assert(rc < 0, "the directory was opened");
    cr_expect(rc == code && (int)err.code == code, "code %d", rc);
    cr_expect(c == NULL);
    cr_expect(strstr(err.msg, message) != NULL, "'%s' lacks '%s'", err.msg, message);
}

static struct qr_json *parse(const char *text)
{
    struct qr_json *doc;
    struct qr_err err;
    int rc = qr_json_parse(&doc, text, strlen(text), &qr_json_limits_file, &err);
    cr_assert(rc == 0, "%s", err.msg);
    return doc;
}

/* A request written as one JSON object; bits of it may be missing. */
struct result {
    struct qr_rendered r;
    int rc;
    enum qr_template_kind kind;
    struct qr_err err;
};

static bool flag(const struct qr_json *doc, const char *name)
{
    const struct qr_json *v = qr_json_find(doc, name);
    return v && qr_json_bool(v);
}

static void chat(struct result *res, const struct qr_chat *c, const char *request)
{
    struct qr_json *doc = parse(request);
    struct qr_chat_request req = {
        .messages = qr_json_find(doc, "messages"),
        .tools = qr_json_find(doc, "tools"),
        .documents = qr_json_find(doc, "documents"),
        .kwargs = qr_json_find(doc, "kwargs"),
        .add_generation_prompt = flag(doc, "add"),
        .continue_final_message = flag(doc, "continue"),
        .now_s = NOW_S,
    };
    res->r = (struct qr_rendered){0};
    res->rc = qr_chat_render(c, &res->r, &req, &res->kind, &res->err);
    qr_json_free(doc);
}

static void expect(const struct qr_chat *c, const char *request, const char *want)
{
    struct result res;
    chat(&res, c, request);
    cr_expect(res.rc == 0, "%s: %s", request, res.err.msg);
    if (res.rc == 0) {
        const char *have = res.r.text.data ? res.r.text.data : "";
        cr_expect(res.r.text.len == strlen(want) && memcmp(have, want, res.r.text.len) == 0, "%s\n gave     %s\n expected %s",
                  request, have, want);
        size_t at = 0;
        for (int32_t i = 0; i < res.r.n_segments; at += res.r.segment[i++].len)
            cr_expect(res.r.segment[i].start == at);
        cr_expect(at == res.r.text.len, "segments end at %zu of %zu", at, res.r.text.len);
    }
    qr_rendered_release(&res.r);
}

static void expect_error(const struct qr_chat *c, const char *request, const char *param, const char *message)
{
    struct result res;
    chat(&res, c, request);
    cr_expect(res.rc < 0, "%s was rendered", request);
    if (res.rc < 0) {
        cr_expect_str_eq(res.err.param, param, "%s", request);
        cr_expect(strstr(res.err.msg, message) != NULL, "'%s' lacks '%s'", res.err.msg, message);
    }
    qr_rendered_release(&res.r);
}

Test(chat, finds_no_template_in_a_directory_without_one)
{
    struct dir d;
    make(&d);
    struct qr_chat *c = open_chat(&d);
    cr_expect(c == NULL);
    put(&d, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"chat_template\":null}");
    c = open_chat(&d);
    cr_expect(c == NULL);
    drop(&d);
}

Test(chat, takes_the_template_from_the_first_of_three_places)
{
    struct dir d;
    make(&d);
    put(&d, "tokenizer_config.json", "{\"chat_template\":\"config\"}");
    struct qr_chat *c = open_chat(&d);
    expect(c, "{\"messages\":[]}", "config");
    qr_chat_close(c);
    put(&d, "chat_template.json", "{\"chat_template\":\"json\"}");
    c = open_chat(&d);
    expect(c, "{\"messages\":[]}", "json");
    qr_chat_close(c);
    put(&d, "chat_template.jinja", "jinja");
    c = open_chat(&d);
    expect(c, "{\"messages\":[]}", "jinja");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, takes_the_tool_use_template_when_the_request_has_tools)
{
    struct dir d;
    make(&d);
    put(&d, "tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"},{\"name\":\"tool_use\",\"template\":\"t\"},"
        "{\"name\":\"default\",\"template\":\"d\"}]}");
    struct qr_chat *c = open_chat(&d);
    expect(c, "{\"messages\":[]}", "d");
    expect(c, "{\"messages\":[],\"tools\":[]}", "t");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, names_the_file_that_is_wrong)
{
    struct dir d;
    make(&d);
    put(&d, "tokenizer_config.json", "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"}]}");
    expect_open_error(&d, QR_E_UNSUPPORTED, "tokenizer_config.json: chat_template names no template \"default\"");
    put(&d, "tokenizer_config.json", "{\"chat_template\":[{\"name\":\"rag\"}]}");
    expect_open_error(&d, QR_E_DAMAGED, "lacks a name or a template");
    put(&d, "tokenizer_config.json", "{\"chat_template\":5}");
    expect_open_error(&d, QR_E_DAMAGED, "neither a string nor a list");
    put(&d, "tokenizer_config.json", "[]");
    expect_open_error(&d, QR_E_DAMAGED, "an object was expected");
    put(&d, "tokenizer_config.json", "{\"chat_template\":");
    expect_open_error(&d, QR_E_DAMAGED, "tokenizer_config.json: ");
    put(&d, "tokenizer_config.json", "{}");
    put(&d, "chat_template.jinja", "{% if %}");
    expect_open_error(&d, QR_E_DAMAGED, "chat_template.jinja: template line 1");
    drop(&d);
}

Test(chat, a_pipe_or_a_directory_in_place_of_a_file_is_refused_without_waiting)
{
    static const char *const name[] = {"tokenizer_config.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json"};
    for (int i = 0; i < QR_COUNT(name); i++) {
        struct dir d;
        char path[128], says[200];
        make(&d);
        put(&d, "tokenizer_config.json", i == 3 ? "{\"chat_template\": \"t\"}" : "{}"); /* the tokens' names are a template's */
        snprintf(path, sizeof path, "%s/%s", d.path, name[i]);
        unlink(path);
        cr_assert_eq(mkfifo(path, 0600), 0);
        snprintf(says, sizeof says, "%s: is a pipe or a device, expected a regular file", name[i]);
        expect_open_error(&d, QR_E_IO, says);
        cr_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
        snprintf(says, sizeof says, "%s: is a directory, expected a regular file", name[i]);
        expect_open_error(&d, QR_E_IO, says);
        rmdir(path);
        drop(&d);
    }
}

Test(chat, gives_special_tokens_to_the_template_and_trusts_them)
{
    struct dir d;
    make(&d);
    put(&d, "tokenizer_config.json", "{\"bos_token\":{\"content\":\"<s>\",\"lstrip\":false},\"eos_token\":\"</s>\",\"pad_token\":null}");
    put(&d, "special_tokens_map.json", "{\"eos_token\":\"<other>\",\"unk_token\":\"<unk>\",\"additional_special_tokens\":[\"<a>\",{\"content\":\"<b>\"}]}");
    put(&d, "chat_template.jinja",
        "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token is defined }}{{ additional_special_tokens | join }}{{ messages[0].content }}");
    struct qr_chat *c = open_chat(&d);
    struct result res;
    chat(&res, c, "{\"messages\":[{\"role\":\"user\",\"content\":\"<s>\"}]}");
    cr_assert(res.rc == 0, "%s", res.err.msg);
    cr_expect_str_eq(res.r.text.data, "<s></s><unk>False<a><b><s>");
    cr_assert_eq(res.r.n_segments, 2);
    cr_expect(res.r.segment[0].trusted && !res.r.segment[1].trusted);
    cr_expect_eq(res.r.segment[1].len, 3);
    qr_rendered_release(&res.r);
    qr_chat_close(c);
    drop(&d);
}

Test(chat, gives_none_for_tools_and_documents_that_are_not_there)
{
    struct dir d;
    make(&d);
    put(&d, "chat_template.jinja", "{{ tools }}|{{ documents }}|{{ add_generation_prompt }}|{{ thinking }}|{{ strftime_now('%d %b %Y') }}");
    struct qr_chat *c = open_chat(&d);
    expect(c, "{\"messages\":[]}", "None|None|False||26 Jul 2024");
    expect(c, "{\"messages\":[],\"tools\":[1],\"documents\":[{}],\"add\":true,\"kwargs\":{\"thinking\":true}}", "[1]|[{}]|True|True|26 Jul 2024");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, refuses_reserved_names_in_kwargs)
{
    struct dir d;
    make(&d);
    put(&d, "chat_template.jinja", "x");
    struct qr_chat *c = open_chat(&d);
    const char *const names[] = {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "raise_exception"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char request[200];
        cr_expect(qr_chat_is_reserved(names[i]), "%s", names[i]);
        snprintf(request, sizeof request, "{\"messages\":[],\"kwargs\":{\"%s\":1}}", names[i]);
        expect_error(c, request, "chat_template_kwargs", names[i]);
    }
    cr_expect(!qr_chat_is_reserved("enable_thinking"));
    qr_chat_close(c);
    drop(&d);
}

Test(chat, joins_text_parts_for_templates_that_do_not_loop_over_them)
{
    struct dir d;
    make(&d);
    put(&d, "chat_template.jinja", CHATML);
    struct qr_chat *c = open_chat(&d);
    expect(c,
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one \\\"1\\\"\"},{\"type\":\"text\",\"text\":\"two\"}]},"
           "{\"role\":\"user\",\"content\":\"s\"}]}",
           "<|im_start|>user\none \"1\"\ntwo<|im_end|>\n<|im_start|>user\ns<|im_end|>\n");
    qr_chat_close(c);
    put(&d, "chat_template.jinja", "{% for m in messages %}{% for p in m['content'] %}[{{ p.text }}]{% endfor %}{% endfor %}");
    c = open_chat(&d);
    expect(c, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},{\"type\":\"text\",\"text\":\"two\"}]}]}", "[one][two]");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, content_that_a_turn_of_tool_calls_lacks_is_empty_where_the_template_cannot_read_null)
{
    static const char turn[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",%s\"tool_calls\":["
                               "{\"id\":\"x\",\"function\":{\"name\":"
                               "\"f\",\"arguments\":{}}}]}]}";
    static const struct {
        const char *template, *of_null, *of_absent;
    } row[] = {
        {"{% for m in messages %}<{{ m.content }}>{% endfor %}", "<a><>", "<a><>"}, /* printed None */
        {"{% for m in messages %}<{{ m.content | tojson | replace('\\\"', '') }}>{% endfor %}", "<a><>", "<a><>"}, /* printed null */
        {"{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}", "<a><>", "<a><>"}, /* failed */
        {"{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}{{ '<' + m.content + '>' }}{% endfor %}", "<a><>",
         "<a><>"},
        {"{% for m in messages %}<{{ 'calls' if m.content is none else m.content }}>{% endfor %}", "<a><calls>", "<a><calls>"}, /* tells it by null */
    };
    for (int i = 0; i < QR_COUNT(row); i++) {
        struct dir d;
        char request[400];
        make(&d);
        put(&d, "chat_template.jinja", row[i].template);
        struct qr_chat *c = open_chat(&d);
        snprintf(request, sizeof request, turn, "\"content\":null,");
        expect(c, request, row[i].of_null);
        snprintf(request, sizeof request, turn, "");
        expect(c, request, row[i].of_absent);
        snprintf(request, sizeof request, turn, "\"content\":\"b\",");
        expect(c, request, "<a><b>");
        qr_chat_close(c);
        drop(&d);
    }
}

Test(chat, parts_are_joined_for_the_roles_whose_parts_the_template_does_not_read)
{
    static const char request[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"s\"}]},{\"role\":\"user\",\"content\":["
        "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"c\"}]},"
        "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"d\"},{\"type\":\"text\",\"text\":\"e\"}]}]}";
    struct dir d;
    make(&d);
    put(&d, "chat_template.jinja",
        "{% for m in messages %}{% if m.role == 'user' and m.content is not string %}{% for p in m.content %}[{{ p.text }}]{% endfor %}"
        "{% else %}<{{ m.content }}>{% endif %}{% endfor %}");
    struct qr_chat *c = open_chat(&d);
    expect(c, request, "<s>[a][b]<c><d\ne>");
    qr_chat_close(c);
    put(&d, "chat_template.jinja",
        "{% for m in messages %}{% if m.content is string %}[{{ m.content }}]{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}"
        "{% endfor %}");
    c = open_chat(&d);
    expect(c, request, "[s][a][b][c][d][e]");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, a_developer_is_the_system_where_the_template_does_not_know_one)
{
    static const char request[] = "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"},"
                                  "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}]}";
    struct dir d;
    make(&d);
    put(&d, "chat_template.jinja", "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
    struct qr_chat *c = open_chat(&d);
    expect(c, request, "system:a;user:b;");
    qr_chat_close(c);
    put(&d, "chat_template.jinja", "{% for m in messages %}{{ 'D' if m.role == 'developer' else m.role }}:{{ m.content }};{% endfor %}");
    c = open_chat(&d);
    expect(c, request, "D:a;user:b;");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, gives_arguments_of_tool_calls_in_the_form_the_template_prints)
{
    static const char request[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\","
                                  "\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1.0}}}]}]}";
    struct dir d;
    make(&d);
    put(&d, "chat_template.jinja",
        "{% for m in messages %}{% for t in m.tool_calls %}{{ t.function.name + '(' + t.function.arguments + ')' }}{% endfor %}{% endfor %}");
    struct qr_chat *c = open_chat(&d);
    expect(c, request, "f({\"a\":1.0})");
    qr_chat_close(c);
    put(&d, "chat_template.jinja", "{% for m in messages %}{% for t in m.tool_calls %}{{ t.function.arguments }}{% endfor %}{% endfor %}");
    c = open_chat(&d);
    expect(c, request, "{\"a\":1.0}");
    qr_chat_close(c);
    put(&d, "chat_template.jinja", "{% for m in messages %}{% for t in m.tool_calls %}{{ t | tojson }}{% endfor %}{% endfor %}");
    c = open_chat(&d);
    expect(c, request, "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1.0}}}");
    qr_chat_close(c);
    put(&d, "chat_template.jinja",
        "{% for m in messages %}{% for t in m.tool_calls %}{% for k, v in t.function.arguments.items() %}<{{ k }}>{{ v "
        "}}{% endfor %}{% endfor %}{% endfor %}");
    c = open_chat(&d);
    expect(c, request, "<a>1.0");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, leaves_the_final_message_open)
{
    struct dir d;
    make(&d);
    put(&d, "chat_template.jinja", CHATML);
    struct qr_chat *c = open_chat(&d);
    expect(c, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"The answer \"}],\"continue\":true}",
           "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nThe answer ");
    expect_error(c, "{\"messages\":[{\"role\":\"assistant\",\"content\":\" \"}],\"continue\":true}", "messages[0].content", "needs text");
    expect_error(c, "{\"messages\":[{\"role\":\"assistant\"}],\"continue\":true}", "messages[0].content", "needs text");
    expect_error(c, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}],\"continue\":true,\"add\":true}", "continue_final_message",
                 "exclude each other");
    qr_chat_close(c);
    put(&d, "chat_template.jinja", "{% for m in messages %}({{ m.content | trim }}){% endfor %}");
    c = open_chat(&d);
    expect(c, "{\"messages\":[{\"role\":\"user\",\"content\":\"The\"},{\"role\":\"assistant\",\"content\":\"The answer \"}],\"continue\":true}",
           "(The)(The answer");
    qr_chat_close(c);
    put(&d, "chat_template.jinja", "{% for m in messages %}({{ m.content | upper }}){% endfor %}");
    c = open_chat(&d);
    expect_error(c, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}],\"continue\":true}", "messages[0].content", "does not show");
    qr_chat_close(c);
    drop(&d);
}

Test(chat, renders_a_conversation_of_thousands_of_messages)
{
    struct dir d;
    struct qr_buf b = {0};
    struct result res;
    make(&d);
    put(&d, "chat_template.jinja", CHATML);
    struct qr_chat *c = open_chat(&d);
    qr_buf_put_str(&b, "{\"messages\":[");
    for (int i = 0; i < 20000; i++)
        qr_buf_printf(&b, "%s{\"role\":\"%s\",\"content\":\"message %d\"}", i ? "," : "", i % 2 ? "assistant" : "user", i);
    qr_buf_put_str(&b, "]}");
    chat(&res, c, b.data);
    cr_expect(res.rc == 0, "%s", res.err.msg);
    cr_expect_eq(res.r.n_segments, 20000 * 2 + 1); /* a content each between two of the template's own; the known roles are as good as its own */
    qr_rendered_release(&res.r);
    qr_buf_release(&b);
    qr_chat_close(c);
    drop(&d);
}

/* The published templates, opened as a model directory, give what the conformance file expects. */
Test(chat, opens_published_templates_as_model_directories, .timeout = 120)
{
    const char *root = getenv("QUIRE_DATA");
    char path[300];
    snprintf(path, sizeof path, "%s/chat-templates/cases.jsonl", root && *root ? root : QUIRE_SOURCE_DIR "/../shared/data");
    FILE *f = fopen(path, "rb");
    if (!f)
        cr_skip_test("conformance data %s is missing (QUIRE_DATA)", path);
    static char line[1 << 20], text[1 << 16];
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"}],\"add\":true}";
    int n = 0;
    while (fgets(line, sizeof line, f)) {
        struct qr_json *doc = parse(line);
        const char *name = qr_json_str(qr_json_find(doc, "template"), NULL);
        const struct qr_json *want = qr_json_find(doc, "expected");
        if (want && strcmp(qr_json_str(qr_json_find(doc, "context"), NULL), "user") == 0 && strstr(qr_json_str(want, NULL), "<|im_start|>")) {
            struct dir d;
            make(&d);
            snprintf(path, sizeof path, "%s/chat-templates/templates/%s.jinja", root && *root ? root : QUIRE_SOURCE_DIR "/../shared/data", name);
            FILE *t = fopen(path, "rb");
            cr_assert(t != NULL, "%s", path);
            put_n(&d, "chat_template.jinja", text, fread(text, 1, sizeof text, t));
            fclose(t);
            put(&d, "tokenizer_config.json", "{\"eos_token\":\"<|im_end|>\"}");
            struct qr_chat *c = open_chat(&d);
            struct result res;
            chat(&res, c, request);
            bool wants_tools = strstr(name, "tool_use") != NULL; /* loops over tools, which are none here */
            cr_expect(res.rc == 0 || wants_tools, "%s: %s", name, res.err.msg);
            cr_expect(res.rc || strstr(res.r.text.data, "What is the weather in Paris?"), "%s", name);
            n += res.rc == 0 && strcmp(res.r.text.data, qr_json_str(want, NULL)) == 0;
            qr_rendered_release(&res.r);
            qr_chat_close(c);
            drop(&d);
        }
        qr_json_free(doc);
    }
    fclose(f);
    cr_expect(n >= 5, "%d templates gave the expected text", n);
}
