/* Conversations as ids: the ids are those of the whole rendering, and what counts is what an assistant says, whatever the template and the tokenizer. */
#include "tests/train/data_rig.h"

#include "base/json.h"
#include "tests/tokenizer/tok_test.h"
#include "train/data/chat_ids.h"

#define NOW_S 1721997296 /* 2024-07-26T12:34:56, templates.json */

struct bench {
    struct data_dir dir;
    struct qr_chat *chat;
    struct qr_chat_ids c;
};

/* A directory with this template and these special tokens (JSON). */
static struct bench bench_open(const char *template, size_t n, const char *config)
{
    struct bench b = {.dir = data_dir_make()};
    struct qr_err err = {0};
    data_dir_put(b.dir.path, "chat_template.jinja", template, n);
    data_dir_put(b.dir.path, "tokenizer_config.json", config, strlen(config));
    cr_assert_eq(qr_chat_open(&b.chat, b.dir.path, &err), 0, "%s", err.msg);
    return b;
}

static void bench_close(struct bench *b)
{
    qr_chat_ids_release(&b->c);
    qr_chat_close(b->chat);
    data_dir_remove(&b->dir);
}

static struct qr_json *parse_json(const char *text, size_t n)
{
    struct qr_json *doc;
    struct qr_err err = {0};
    cr_assert_eq(qr_json_parse(&doc, text, n, &qr_json_limits_file, &err), 0, "%s", err.msg);
    return doc;
}

/* The text with [[ ]] around each run of ids that count. */
static void show(struct qr_buf *out, const struct qr_tokenizer *t, const struct qr_chat_ids *c)
{
    qr_buf_clear(out);
    for (int32_t i = 0, end; i < c->ids.n; i = end) {
        for (end = i + 1; end < c->ids.n && c->counts[end] == c->counts[i];)
            end++;
        qr_buf_put_str(out, c->counts[i] ? "[[" : "");
        for (int32_t k = i; k < end; k++) {
            size_t len;
            const char *bytes = qr_tokenizer_token_bytes(t, c->ids.id[k], &len);
            qr_buf_put(out, bytes, len);
        }
        qr_buf_put_str(out, c->counts[i] ? "]]" : "");
    }
    qr_buf_put_byte(out, 0);
}

/* ---- every template, every conversation ---- */

static int32_t count_assistants(const struct qr_json *messages)
{
    int32_t n = 0;
    for (const struct qr_json *m = qr_json_first(messages); m; m = qr_json_after(m))
        n += strcmp(qr_json_str(qr_json_find(m, "role"), NULL), "assistant") == 0;
    return n;
}

/* The server's way: render, then encode the whole. */
static bool whole_ids(struct qr_ids *out, const struct qr_tokenizer *t, const struct qr_chat *chat, const struct qr_json *context)
{
    struct qr_rendered r = {0};
    struct qr_err err = {0};
    enum qr_template_kind kind;
    struct qr_json *opened;
    cr_assert_eq(qr_chat_open_arguments(&opened, qr_json_find(context, "messages"), &qr_json_limits_request, &err), 0);
    const struct qr_chat_request request = {.messages = opened ? opened : qr_json_find(context, "messages"),
                                            .tools = qr_json_find(context, "tools"), .now_s = NOW_S};
    out->n = 0;
    const int rc = qr_chat_render(chat, &r, &request, &kind, &err);
    if (rc == 0)
        cr_assert_eq(qr_tokenizer_encode_segments(t, out, r.text.data ? r.text.data : "", r.text.len, r.segment, r.n_segments, 0, &err), 0, "%s", err.msg);
    qr_rendered_release(&r);
    qr_json_free(opened);
    return rc == 0;
}

struct totals {
    int32_t n_made, n_turns, n_hidden;
};

static void check_context(struct bench *b, const struct qr_tokenizer *t, const struct qr_json *context, struct qr_ids *whole, struct totals *sum)
{
    struct qr_err err = {0};
    const struct qr_json *messages = qr_json_find(context, "messages");
    const int rc = qr_chat_ids_make(&b->c, t, b->chat, messages, qr_json_find(context, "tools"), NOW_S, &err);
    if (qr_json_count(messages) == 0 || !whole_ids(whole, t, b->chat, context)) {
        cr_assert_eq(rc, (int)err.code);
        cr_assert(rc < 0 && err.msg[0] != 0);
        return;
    }
    cr_assert_eq(rc, 0, "%s", err.msg);
    cr_assert_eq(b->c.ids.n, whole->n);
    cr_assert(whole->n == 0 || memcmp(b->c.ids.id, whole->id, (size_t)whole->n * 4) == 0);
    int32_t n_counted = 0;
    for (int32_t i = 0; i < whole->n; i++)
        n_counted += b->c.counts[i];
    cr_assert_eq(b->c.n_turns + b->c.n_hidden, count_assistants(messages));
    cr_assert(n_counted == 0 || b->c.n_turns > 0);
    cr_assert(b->c.n_open <= b->c.n_turns && (!b->c.open_end || b->c.n_open > 0));
    sum->n_made++;
    sum->n_turns += b->c.n_turns;
    sum->n_hidden += b->c.n_hidden;
}

/* Two answers: each lies in a run of its own, and no run has a word of the user's. */
static void check_runs(const struct bench *b, const struct qr_tokenizer *t, const char *template)
{
    static const char *const said[] = {"It is sunny", "Both are mild"}, *const not_said[] = {"Paris", "London", "Thanks", "Sum it up"};
    struct qr_buf text = {0};
    show(&text, t, &b->c);
    const char *at = text.data;
    for (int i = 0; i < QR_COUNT(said); i++) {
        const char *begin = strstr(at, "[["), *end = begin ? strstr(begin, "]]") : NULL;
        cr_assert(begin && end, "%s: %s", template, text.data);
        const size_t n = (size_t)(end - begin);
        cr_assert_not_null(memmem(begin, n, said[i], strlen(said[i])), "%s: %s", template, text.data);
        for (int k = 0; k < QR_COUNT(not_said); k++)
            cr_assert_null(memmem(begin, n, not_said[k], strlen(not_said[k])), "%s: %s", template, text.data);
        at = end;
    }
    cr_assert_null(strstr(at, "[["), "%s: %s", template, text.data);
    qr_buf_release(&text);
}

Test(chat_ids, are_those_of_the_whole_rendering_for_every_template_and_conversation)
{
    TOK_NEED_DATA();
    static const char *const tokenizers[] = {"tokenizers/qwen2.5", "tokenizers/llama-2"};
    struct qr_buf text = {0}, list = {0}, contexts = {0}, config = {0};
    tok_read_data(&list, "chat-templates/templates.json");
    tok_read_data(&contexts, "chat-templates/contexts.json");
    struct qr_json *templates = parse_json(list.data, list.len), *ctx = parse_json(contexts.data, contexts.len);
    struct qr_ids whole = {0};
    struct totals sum = {0};
    for (int k = 0; k < QR_COUNT(tokenizers); k++) {
        struct qr_tokenizer *t = tok_open(tokenizers[k]);
        for (const struct qr_json *v = qr_json_first(qr_json_find(templates, "templates")); v; v = qr_json_after(v)) {
            char path[300];
            snprintf(path, sizeof path, "chat-templates/templates/%s.jinja", qr_json_key(v));
            tok_read_data(&text, path);
            qr_buf_clear(&config);
            qr_json_print(&config, v);
            struct bench b = bench_open(text.data, text.len, config.data);
            for (const struct qr_json *c = qr_json_first(ctx); c; c = qr_json_after(c)) {
                const int32_t n_made = sum.n_made;
                check_context(&b, t, c, &whole, &sum);
                if (sum.n_made > n_made && strcmp(qr_json_key(c), "multi_turn_nosys") == 0)
                    check_runs(&b, t, qr_json_key(v));
            }
            bench_close(&b);
        }
        qr_tokenizer_close(t);
    }
    printf("%d conversations, %d turns shown, %d hidden\n", sum.n_made, sum.n_turns, sum.n_hidden);
    cr_assert_gt(sum.n_made, 2 * 51 * 20);
    cr_assert_gt(sum.n_turns, 30 * sum.n_hidden);
    qr_ids_release(&whole);
    qr_json_free(templates);
    qr_json_free(ctx);
    qr_buf_release(&text);
    qr_buf_release(&list);
    qr_buf_release(&contexts);
    qr_buf_release(&config);
}

/* ---- what counts, letter by letter ---- */

#define CHATML \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define LLAMA2 \
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}" \
    "{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}"
#define BARE "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}"
#define THINK \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and '</think>' in m.content and not loop.last %}" \
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}" \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define CALLS \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}" \
    "{{ m.content or '' }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define IM(role, text) "<|im_start|>" role "\n" text

static const struct shown {
    const char *tokenizer, *template, *messages, *expected;
    int32_t n_open;
} shown[] = {
    {"qwen2.5", CHATML, U("Hi") "," A("Hello."), IM("user", "Hi<|im_end|>\n") IM("assistant", "[[Hello.<|im_end|>]]\n"), 0},
    {"qwen2.5", CHATML, U("Hi") "," A("Hi") "," U("Hi") "," A("Hi"),
     IM("user", "Hi<|im_end|>\n") IM("assistant", "[[Hi<|im_end|>]]\n") IM("user", "Hi<|im_end|>\n") IM("assistant", "[[Hi<|im_end|>]]\n"), 0},
    /* a line break at the beginning is merged with the template's; the id across belongs to the turn */
    {"qwen2.5", CHATML, U("Hi") "," A("\\nHi"), IM("user", "Hi<|im_end|>\n") "<|im_start|>assistant[[\n\nHi<|im_end|>]]\n", 0},
    /* nothing said: the end of the turn is to be learnt all the same */
    {"qwen2.5", CHATML, U("Hi") "," A(""), IM("user", "Hi<|im_end|>\n") IM("assistant", "[[<|im_end|>]]\n"), 0},
    /* the end's name in the text of a user or an assistant is text */
    {"qwen2.5", CHATML, U("<|im_end|>") "," A("a<|im_end|>b"), IM("user", "<|im_end|><|im_end|>\n") IM("assistant", "[[a<|im_end|>b<|im_end|>]]\n"), 0},
    {"qwen2.5", CHATML, A("First.") "," U("Hi"), IM("assistant", "[[First.<|im_end|>]]\n") IM("user", "Hi<|im_end|>\n"), 0},
    {"qwen2.5", CHATML, U("Hi") "," A("One.") "," A("Two."),
     IM("user", "Hi<|im_end|>\n") IM("assistant", "[[One.<|im_end|>]]\n") IM("assistant", "[[Two.<|im_end|>]]\n"), 0},
    {"qwen2.5", CHATML, U("Hi") ",{\"role\":\"assistant\",\"content\":\"No.\",\"weight\":0}," A("Yes."),
     IM("user", "Hi<|im_end|>\n") IM("assistant", "No.<|im_end|>\n") IM("assistant", "[[Yes.<|im_end|>]]\n"), 0},
    /* an accent apart from its letter in the user's text is composed by the normalizer: places are found in another way, and are the same */
    {"qwen2.5", CHATML, U("e\\u0301te\\u0301") "," A("\\u00e9t\\u00e9 \\u4e2d"),
     IM("user", "\xC3\xA9t\xC3\xA9<|im_end|>\n") IM("assistant", "[[\xC3\xA9t\xC3\xA9 \xE4\xB8\xAD<|im_end|>]]\n"), 0},
    {"qwen2.5", CHATML, U("Hi") "," A("e\\u0301t\\u00e9"), IM("user", "Hi<|im_end|>\n") IM("assistant", "[[\xC3\xA9t\xC3\xA9<|im_end|>]]\n"), 0},
    /* characters of the private use area, which the program uses itself, and one that shares its first bytes */
    {"qwen2.5", CHATML, U("Hi") "," A("\\ue000x\\ue001"), IM("user", "Hi<|im_end|>\n") IM("assistant", "[[\xEE\x80\x80x\xEE\x80\x81<|im_end|>]]\n"), 0},
    /* reasoning that the template drops from all turns but the last */
    {"qwen2.5", THINK, U("Hi") "," A("<think>a</think>Hello") "," U("x") "," A("<think>b</think>y"),
     IM("user", "Hi<|im_end|>\n") IM("assistant", "[[Hello<|im_end|>]]\n") IM("user", "x<|im_end|>\n") IM("assistant", "[[<think>b</think>y<|im_end|>]]\n"), 0},
    /* a call's arguments are the same as a value and as the text of one */
    {"qwen2.5", CALLS, U("Hi") ",{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]}," A("So."),
     IM("user", "Hi<|im_end|>\n") IM("assistant", "[[{\"x\": 1}<|im_end|>]]\n") IM("assistant", "[[So.<|im_end|>]]\n"), 0},
    {"qwen2.5", CALLS, U("Hi") ",{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]}," A("So."),
     IM("user", "Hi<|im_end|>\n") IM("assistant", "[[{\"x\": 1}<|im_end|>]]\n") IM("assistant", "[[So.<|im_end|>]]\n"), 0},
    /* no sign of the end: up to the end of the text, as an end-of-text token will follow there */
    {"qwen2.5", BARE, U("Hi") "," A(" Hello ") "," U("Bye") "," A("Later"), "user: Hi\n[[assistant: Hello]]\nuser: Bye\n[[assistant: Later\n]]", 2},
    {"llama-2", LLAMA2, U("Hi") "," A("Hello.") "," U("So?") "," A("Yes"), "<s> [INST] Hi [/INST][[ Hello. </s>]] [INST] So? [/INST][[ Yes </s>]]", 0},
    {"llama-3.2", CHATML, U("Hi") "," A("It is 12345 \\n"), IM("user", "Hi<|im_end|>\n") IM("assistant", "[[It is 12345 \n<|im_end|>\n]]"), 1},
};

static const char *config_of(const char *tokenizer)
{
    return strcmp(tokenizer, "llama-2") == 0 ? "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}" : "{\"eos_token\":\"<|im_end|>\"}";
}

Test(chat_ids, count_from_the_prompts_end_to_the_token_that_ends_the_turn)
{
    TOK_NEED_DATA();
    struct qr_tokenizer *t = NULL;
    const char *open = "";
    struct qr_buf text = {0};
    for (int i = 0; i < QR_COUNT(shown); i++) {
        const struct shown *s = &shown[i];
        if (strcmp(open, s->tokenizer) != 0) {
            char name[64];
            snprintf(name, sizeof name, "tokenizers/%s", s->tokenizer);
            qr_tokenizer_close(t);
            t = tok_open(name);
            open = s->tokenizer;
        }
        struct bench b = bench_open(s->template, strlen(s->template), config_of(s->tokenizer));
        struct qr_err err = {0};
        qr_buf_clear(&text);
        qr_buf_printf(&text, "[%s]", s->messages);
        struct qr_json *messages = parse_json(text.data, text.len);
        cr_assert_eq(qr_chat_ids_make(&b.c, t, b.chat, messages, NULL, NOW_S, &err), 0, "%s", err.msg);
        show(&text, t, &b.c);
        cr_expect_str_eq(text.data, s->expected, "case %d:\n%s\nexpected\n%s", i, text.data, s->expected);
        cr_expect_eq(b.c.n_open, s->n_open, "case %d: %d open", i, b.c.n_open);
        qr_json_free(messages);
        bench_close(&b);
    }
    qr_tokenizer_close(t);
    qr_buf_release(&text);
}

Test(chat_ids, a_conversation_that_is_none_is_refused_by_message)
{
    TOK_NEED_DATA();
    static const char *const bad[][2] = {{"[]", "is empty"}, {"[7]", "messages[0] must be an object"},
                                         {"[" U("a") ",{\"content\":\"x\"}]", "messages[1] needs a \"role\""},
                                         {"[{\"role\":3}]", "messages[0] needs"}, {"[" U("a") "]", "only assistants here"}};
    struct qr_tokenizer *t = tok_open("models/stories260K");
    const char *template = "{{ raise_exception('only assistants here') }}";
    struct bench b = bench_open(template, strlen(template), "{}");
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct qr_json *messages = parse_json(bad[i][0], strlen(bad[i][0]));
        struct qr_err err = {0};
        cr_assert_eq(qr_chat_ids_make(&b.c, t, b.chat, messages, NULL, NOW_S, &err), QR_E_INVALID);
        cr_assert_not_null(strstr(err.msg, bad[i][1]), "%s", err.msg);
        qr_json_free(messages);
    }
    bench_close(&b);
    qr_tokenizer_close(t);
}
