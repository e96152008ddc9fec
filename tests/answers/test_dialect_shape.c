/* The grammar of answers: what a family writes is in it, what its parser could not take apart is not, and every text
 * of it comes apart as calls of the tools. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "answers/grammar/matcher.h"
#include "tests/answers/said.h"

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
                                 "\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
                                 "\"o\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}},\"required\":[\"k\"],"
                                 "\"additionalProperties\":false}},\"required\":[\"a\",\"n\"],"
                                 "\"additionalProperties\":false}}},"
                                 "{\"type\":\"function\",\"function\":{\"name\":\"go_now\",\"parameters\":{\"type\":\"object\",\"properties\":{},"
                                 "\"additionalProperties\":false}}}]";

struct shaped {
    struct qr_dialect *d;
    struct qr_json *tools;
    struct qr_vocab *v;
    struct qr_grammar *g;
    struct qr_matcher m;
};

/* Bytes are tokens. */
static struct qr_vocab *vocab(void)
{
    static char bytes[256][1];
    const char *text[257];
    size_t len[257];
    bool special[257] = {[256] = true};
    const int32_t end = 256;
    for (int i = 0; i < 256; i++) {
        bytes[i][0] = (char)i;
        text[i] = bytes[i];
        len[i] = 1;
    }
    text[end] = "<end>";
    len[end] = 5;
    return qr_vocab_of(text, len, special, 257, &end, 1);
}

static int shape(struct shaped *t, const char *family, const char *tools, struct qr_answer_shape s, struct qr_err *err)
{
    struct qr_exprs *x = qr_exprs_new(64 << 20);
    int32_t root;
    memset(t, 0, sizeof *t);
    t->d = qr_dialect_named(family);
    cr_assert(t->d, "%s", family);
    cr_assert_eq(qr_json_parse(&t->tools, tools, strlen(tools), &qr_json_limits_request, err), 0);
    t->v = vocab();
    s.tools = t->tools;
    int rc = qr_dialect_shape(&root, x, t->d, &s, t->v, err);
    if (rc) {
        qr_exprs_free(x);
        return rc;
    }
    rc = qr_grammar_new(&t->g, x, root, t->v, 0, err);
    cr_assert_eq(rc, 0, "%s: %s", family, rc ? err->msg : "");
    qr_matcher_init(&t->m, t->g);
    return 0;
}

static void release(struct shaped *t)
{
    qr_matcher_release(&t->m);
    qr_grammar_unref(t->g);
    qr_vocab_free(t->v);
    qr_json_free(t->tools);
    qr_dialect_free(t->d);
}

static bool takes(const char *family, struct qr_answer_shape s, const char *text)
{
    struct shaped t;
    struct qr_err err;
    cr_assert_eq(shape(&t, family, tools_text, s, &err), 0);
    size_t n = 0;
    const bool went = qr_matcher_bytes(&t.m, text, strlen(text), &n), ok = went && qr_matcher_accepts(&t.m);
    release(&t);
    return ok;
}

static const struct qr_answer_shape required = {.choice = QR_CALL_REQUIRED, .parallel = true}, automatic = {.choice = QR_CALL_AUTO, .parallel = true};

static const struct {
    const char *family, *text; /* two calls */
} written[] = {
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\", \"n\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"go_now\", "
               "\"arguments\": {}}\n</tool_call>"},
    {"qwen3-coder",
     "<tool_call>\n<function=f>\n<parameter=a>\nx < y\n</parameter>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
     "<function=go_now>\n\n</function>\n</tool_call>"},
    {"llama-3.x", "{\"name\": \"f\", \"parameters\": {\"a\": \"x\", \"n\": 1}}; {\"name\": \"go_now\", \"parameters\": {}}"},
    {"pythonic", "[f(a=\"x\", n=1, o={\"k\": \"v\"}), go_now()]"},
    {"mistral-v3", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"x\", \"n\": 1}, \"id\": \"123456789\"}, {\"name\": \"go_now\", "
                   "\"arguments\": {}, \"id\": "
                   "\"abcdefghi\"}]"},
    {"mistral-v11", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": \"x\", \"n\": 1}[TOOL_CALLS]go_now[CALL_ID]abcdefghi[ARGS]{}"},
    {"deepseek-v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": \"x\", \"n\": 1}\n```<｜tool▁call▁end｜>\n"
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>go_now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek-v3.2", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">x</｜DSML｜parameter>\n"
                      "<｜DSML｜parameter name=\"n\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"go_now\">\n\n"
                      "</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {"kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": \"x\", \"n\": "
                "1}<|tool_call_end|><|tool_call_begin|>"
                "functions.go_now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
    {"glm-4.6", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</"
                "tool_call>\n<tool_call>go_now\n\n"
                "</tool_call>"},
    {"minimax-m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x</parameter>\n<parameter name=\"n\">1</parameter>\n</invoke>\n"
                   "<invoke name=\"go_now\">\n\n</invoke>\n</minimax:tool_call>"},
    {"gemma4", "<|tool_call>call:f{a:<|\"|>x<|\"|>,n:1}<tool_call|><|tool_call>call:go_now{}<tool_call|>"},
    {"command-r7b", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": \"x\", \"n\": 1}},\n    "
                    "{\"tool_call_id\": \"1\", \"tool_name\": \"go_now\", \"parameters\": {}}\n]<|END_ACTION|>"},
    {"apertus", "<|tools_prefix|>[{\"f\": {\"a\": \"x\", \"n\": 1}}, {\"go_now\": {}}]<|tools_suffix|>"},
    {"functionary-3.2", "f\n{\"a\": \"x\", \"n\": 1}>>>go_now\n{}"},
};

/* What the parser says of an answer with the tools known. */
static void said_of(struct said *s, const char *family, const char *tools_of, const char *text)
{
    struct qr_dialect *d = qr_dialect_named(family);
    struct qr_json *tools;
    struct qr_err err;
    cr_assert_eq(qr_json_parse(&tools, tools_of, strlen(tools_of), &qr_json_limits_request, &err), 0);
    said_feed(s, d, &(struct qr_answer_options){.tools = tools, .parse_reasoning = true}, text, strlen(text), NULL, false);
    qr_json_free(tools);
    qr_dialect_free(d);
}

Test(dialect_shape, what_a_family_writes_is_in_its_grammar_and_comes_apart)
{
    for (int i = 0; i < QR_COUNT(written); i++) {
        struct said s;
        cr_expect(takes(written[i].family, required, written[i].text), "%s, required", written[i].family);
        cr_expect(takes(written[i].family, automatic, written[i].text), "%s, auto", written[i].family);
        said_of(&s, written[i].family, tools_text, written[i].text);
        cr_expect_eq(s.n_calls, 2, "%s: %.*s", written[i].family, (int)s.text.len, s.text.data);
        cr_expect(!memmem(s.text.data, s.text.len, "[content]", 9), "%s: %.*s", written[i].family, (int)s.text.len, s.text.data);
        qr_buf_release(&s.text);
    }
}

Test(dialect_shape, one_call_is_one_where_calls_are_not_parallel)
{
    const struct qr_answer_shape one = {.choice = QR_CALL_REQUIRED};
    for (int i = 0; i < QR_COUNT(written); i++)
        cr_expect(!takes(written[i].family, one, written[i].text), "%s", written[i].family);
    cr_expect(takes("hermes", one, "<tool_call>\n{\"name\": \"go_now\", \"arguments\": {}}\n</tool_call>"));
}

Test(dialect_shape, required_is_a_call_and_auto_is_text_or_one)
{
    cr_expect(!takes("hermes", required, "hello"));
    cr_expect(takes("hermes", automatic, "hello"));
    cr_expect(takes("hermes", automatic, "hello <tool_call>\n{\"name\": \"go_now\", \"arguments\": {}}\n</tool_call>"));
    cr_expect(!takes("hermes", automatic, "hello <tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
    cr_expect(!takes("hermes", automatic, "hello <tool_call> there"));
    cr_expect(!takes("llama-3.x", automatic, "{\"name\": \"other\"}"));
    cr_expect(takes("llama-3.x", automatic, "{\"other\": 1}"));
    cr_expect(!takes("qwen3-coder", required, "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"),
              "n is required");
}

Test(dialect_shape, the_grammar_begins_behind_reasoning)
{
    const struct qr_answer_shape inside = {.choice = QR_CALL_REQUIRED, .starts_inside = true, .may_think = true};
    const struct qr_answer_shape may = {.choice = QR_CALL_REQUIRED, .may_think = true};
    const char call[] = "<tool_call>\n{\"name\": \"go_now\", \"arguments\": {}}\n</tool_call>";
    char text[300];
    snprintf(text, sizeof text, "I could call <tool_call> here.\n</think>\n\n%s", call);
    cr_expect(takes("hermes", inside, text));
    cr_expect(!takes("hermes", inside, call));
    snprintf(text, sizeof text, "<think>\nhm\n</think>\n\n%s", call);
    cr_expect(takes("hermes", may, text));
    cr_expect(takes("hermes", may, call));
    cr_expect(!takes("hermes", may, "<think>hm</think>text"));
}

Test(dialect_shape, what_cannot_be_enforced_is_refused_with_its_path)
{
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\","
        "\"properties\":{\"b\":{\"type\":\"array\",\"uniqueItems\":true}}}}}}}]";
    static const char *const families[] = {"hermes", "qwen3-coder", "pythonic"};
    for (int i = 0; i < QR_COUNT(families); i++) {
        struct shaped t;
        struct qr_err err = {0};
        const int rc = shape(&t, families[i], tools, required, &err);
        cr_expect_eq(rc, QR_E_UNSUPPORTED, "%s: %d", families[i], rc);
        cr_expect(strncmp(err.param, "tools[0].function.parameters.properties.a", 41) == 0, "%s: %s", families[i], err.param);
        if (t.g)
            qr_matcher_release(&t.m);
        qr_grammar_unref(t.g);
        qr_vocab_free(t.v);
        qr_json_free(t.tools);
        qr_dialect_free(t.d);
    }
}

Test(dialect_shape, the_shortest_answer_of_every_family_is_a_call)
{
    const char *name;
    for (int32_t i = 0; (name = qr_dialect_name_at(i)) != NULL; i++) {
        struct shaped t;
        struct qr_err err;
        char text[600];
        struct said s;
        if (strcmp(name, "gemma2") == 0)
            continue;
        cr_assert_eq(shape(&t, name, tools_text, required, &err), 0, "%s", name);
        const int32_t n = qr_matcher_shortest(&t.m, text, sizeof text - 1);
        cr_expect(n > 0, "%s", name);
        text[n > 0 ? n : 0] = 0;
        said_of(&s, name, tools_text, text);
        cr_expect_eq(s.n_calls, 1, "%s: %s: %.*s", name, text, (int)s.text.len, s.text.data);
        cr_expect(!memmem(s.text.data, s.text.len, "[content]", 9), "%s: %s", name, text);
        qr_buf_release(&s.text);
        release(&t);
    }
}
