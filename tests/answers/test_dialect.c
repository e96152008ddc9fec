/* Dialects: what is found out from templates of each kind, and how answers come apart, whole and in every cut. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/answers/said.h"

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{"
                                 "\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
                                 "\"u\":{\"type\":[\"string\",\"number\"]},\"b\":{\"anyOf\":[{\"type\":\"boolean\"},{\"type\":\"null\"}]},\"o\":{\"$"
                                 "ref\":\"#/$defs/o\"},\"e\":{\"enum\":[\"1\"]}},"
                                 "\"$defs\":{\"o\":{\"type\":\"object\"}}}}}]";

/* The answer's parts, the same for each cut into two, byte by byte, and with the end told apart. */
static void parts(struct said *out, const struct qr_dialect *d, const char *text, struct qr_answer_options o, bool with_tools)
{
    struct qr_json *tools;
    struct qr_err err;
    const size_t len = strlen(text);
    uint8_t cut[512];
    cr_assert(len < sizeof cut * 8);
    cr_assert_eq(qr_json_parse(&tools, tools_text, sizeof tools_text - 1, &qr_json_limits_request, &err), 0);
    o.tools = with_tools ? tools : NULL;
    said_feed(out, d, &o, text, len, NULL, false);
    for (size_t i = 0; i <= len; i++) { /* i 0: byte by byte */
        struct said other;
        memset(cut, i == 0 ? 0xFF : 0, sizeof cut);
        if (i > 0)
            cut[i / 8] = (uint8_t)(1u << (i % 8));
        said_feed(&other, d, &o, text, len, cut, i % 2 == 0);
        cr_expect(other.text.len == out->text.len && (out->text.len == 0 || memcmp(other.text.data, out->text.data, out->text.len) == 0),
                  "cut at %zu: %s, whole: %s", i, other.text.data, out->text.data);
        qr_buf_release(&other.text);
    }
    qr_json_free(tools);
}

static void expect(const char *family, const char *text, const char *want)
{
    struct qr_dialect *d = qr_dialect_named(family);
    struct said s;
    cr_assert(d, "%s", family);
    parts(&s, d, text, (struct qr_answer_options){.parse_reasoning = true}, true);
    cr_expect_str_eq(s.text.data ? s.text.data : "", want, "%s", family);
    qr_buf_release(&s.text);
    qr_dialect_free(d);
}

/* ---- reading ---- */

Test(dialect, calls_of_each_kind_come_apart)
{
    expect("hermes",
           "so\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": "
           "\"a\"}}\n</tool_call>\n<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call> end",
           "\n[content]so\n[call]f\n[arguments]{\"s\": \"a\"}\n[end]\n[call]f\n[arguments]{}\n[end]\n[content]end");
    expect("mistral-v3", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}]", "\n[call]f\n[arguments]{}\n[end abcdefghi]");
    expect("mistral-v11", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"n\":1}[TOOL_CALLS]f[ARGS]{}",
           "\n[call abcdefghi]f\n[arguments]{\"n\":1}\n[end]\n[call]f\n[arguments]{}\n[end]");
    expect("kimi-k2",
           "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
           "\n[call functions.f:0]f\n[arguments]{}\n[end]");
    expect("pythonic", "[f(s='it\\'s', n=-1, b=None, o={'k': [True, (1, .5)]}), f()]",
           "\n[call]f\n[arguments]{\"s\": \"it's\", \"n\": -1, \"b\": null, \"o\": {\"k\": [true, [1, 0.5]]}}\n[end]\n[call]f\n[arguments]{}\n[end]");
    expect("gemma4", "<|tool_call>call:f{s:<|\"|>say \"x\"<|\"|>,o:{k:[1,true]}}<tool_call|>",
           "\n[call]f\n[arguments]{\"s\": \"say \\\"x\\\"\", \"o\": {\"k\": [1, true]}}\n[end]");
    expect("apertus", "<|tools_prefix|>[{\"f\": {\"n\": 1}}]<|tools_suffix|>", "\n[call]f\n[arguments]{\"n\": 1}\n[end]");
    expect("deepseek-v3.2",
           "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" string=\"true\">1</｜DSML｜parameter>\n"
           "<｜DSML｜parameter name=\"y\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
           "\n[call]f\n[arguments]{\"x\": \"1\", \"y\": 1}\n[end]");
    expect("functionary-3.2", "all\nhello\n>>>f\n{\"n\": 1}", "\n[content]hello\n[call]f\n[arguments]{\"n\": 1}\n[end]");
    expect("gpt-oss",
           "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
           "\n[reasoning]hm\n[call]f\n[arguments]{}\n[end]");
}

Test(dialect, markers_that_a_model_leaves_out_are_no_part_of_the_content)
{
    expect("qwen3-coder", "<tool_call>\n<function=f>\n</function>", "\n[call]f\n[arguments]{}\n[end]");
    expect("qwen3-coder", "<function=f>\n</tool_call>", "\n[call]f\n[arguments]{}\n[end]");
    expect("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "\n[call]f\n[arguments]{}\n[end]");
}

Test(dialect, a_program_is_the_code_of_a_call)
{
    struct qr_dialect *d = qr_dialect_named("llama-3.x");
    struct said s;
    parts(&s, d, "<|python_tag|>print(\"a\")\n<|eom_id|>", (struct qr_answer_options){.parse_reasoning = true}, false);
    cr_expect_str_eq(s.text.data, "\n[call]python\n[arguments]{\"code\": \"print(\\\"a\\\")\\n\"}\n[end]");
    qr_buf_release(&s.text);
    parts(&s, d, "<|python_tag|>print(1)", (struct qr_answer_options){.parse_reasoning = true}, true); /* no tool runs it */
    cr_expect_str_eq(s.text.data, "\n[content]<|python_tag|>print(1)");
    qr_buf_release(&s.text);
    qr_dialect_free(d);
    d = qr_dialect_named("functionary-3.2");
    parts(&s, d, "python\nprint(1)", (struct qr_answer_options){.parse_reasoning = true}, false);
    cr_expect_str_eq(s.text.data, "\n[call]python\n[arguments]{\"code\": \"print(1)\"}\n[end]");
    qr_buf_release(&s.text);
    qr_dialect_free(d);
}

Test(dialect, markers_inside_strings_are_text)
{
    expect("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\\\"}<tool_call>\"}}\n</tool_call>",
           "\n[call]f\n[arguments]{\"s\": \"</tool_call>\\\"}<tool_call>\"}\n[end]");
    expect("mistral-v13", "[TOOL_CALLS]f[ARGS]{\"s\": \"[TOOL_CALLS]g[ARGS]\"}", "\n[call]f\n[arguments]{\"s\": \"[TOOL_CALLS]g[ARGS]\"}\n[end]");
    expect("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=o>\n{\"k\": \"</parameter>\"}\n</parameter>\n</function>\n</tool_call>",
           "\n[call]f\n[arguments]{\"o\": {\"k\": \"</parameter>\"}}\n[end]");
}

Test(dialect, values_between_tags_have_the_type_of_the_schema)
{
#define VALUE(key, text) "<tool_call>\n<function=f>\n<parameter=" key ">\n" text "\n</parameter>\n</function>\n</tool_call>"
#define SAID(key, json) "\n[call]f\n[arguments]{\"" key "\": " json "}\n[end]"
    expect("qwen3-coder", VALUE("s", "123"), SAID("s", "\"123\""));
    expect("qwen3-coder", VALUE("s", "\n a \n"), SAID("s", "\"\\n a \\n\""));
    expect("qwen3-coder", VALUE("n", " 123 "), SAID("n", "123"));
    expect("qwen3-coder", VALUE("n", "many"), SAID("n", "\"many\""));
    expect("qwen3-coder", VALUE("u", "1.5"), SAID("u", "1.5"));
    expect("qwen3-coder", VALUE("u", "true"), SAID("u", "\"true\""));
    expect("qwen3-coder", VALUE("b", "True"), SAID("b", "true"));
    expect("qwen3-coder", VALUE("b", "null"), SAID("b", "null"));
    expect("qwen3-coder", VALUE("o", "{'a': None}"), SAID("o", "{\"a\": null}"));
    expect("qwen3-coder", VALUE("e", "1"), SAID("e", "\"1\""));
    expect("qwen3-coder", VALUE("other", "[1]"), SAID("other", "[1]"));
    expect("qwen3-coder", VALUE("other", "a < b & c"), SAID("other", "\"a < b & c\""));
}

Test(dialect, what_is_no_call_is_content)
{
    expect("hermes", "a <tool_call> b", "\n[content]a <tool_call> b");
    expect("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": wrong}\n</tool_call>",
           "\n[content]<tool_call>\n{\"name\": \"f\", \"arguments\": wrong}\n</tool_call>");
    expect("llama-3.x", "{\"name\": \"unknown\", \"parameters\": {}}", "\n[content]{\"name\": \"unknown\", \"parameters\": {}}");
    expect("llama-3.x", "{\"answer\": 42}", "\n[content]{\"answer\": 42}");
    expect("pythonic", "[1, 2]", "\n[content][1, 2]");
    expect("pythonic", "[f(1)]", "\n[content][f(1)]");
}

Test(dialect, a_call_that_was_cut_off_has_its_name_and_what_there_was_of_its_arguments)
{
    expect("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"ab", "\n[call]f\n[arguments]{\"s\": \"ab\n[end]");
    expect("hermes", "<tool_call>\n{\"name\": \"f\", \"argu", "\n[call]f\n[end]");
    expect("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=s>\nab", "\n[call]f\n[arguments]{\"s\": \"ab\n[end]");
    expect("pythonic", "[f(n=1, s=", "\n[call]f\n[arguments]{\"n\": 1, \"s\": \n[end]");
}

Test(dialect, reasoning_ends_at_its_marker_and_the_lines_around_it_are_the_formats)
{
    expect("hermes", "<think>\nhm\n\n</think>\n\nyes", "\n[reasoning]hm\n[content]yes");
    expect("hermes", "<think>\n\n</think>\n\nyes", "\n[content]yes");
    expect("hermes", "<think>\nhm", "\n[reasoning]hm");
    expect("hermes", "so <think> is a tag", "\n[content]so <think> is a tag");
    expect("mistral-v13", "a[THINK]b[/THINK]c", "\n[content]a\n[reasoning]b\n[content]c");
    expect("kimi-k2", "<think>hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
           "\n[reasoning]hm\n[call functions.f:0]f\n[arguments]{}\n[end]");
}

Test(dialect, options_keep_markers_in_the_content_and_drop_what_follows_a_single_call)
{
    struct qr_dialect *d = qr_dialect_named("qwen3");
    struct said s;
    parts(&s, d, "hm</think>yes", (struct qr_answer_options){.starts_inside = true}, false);
    cr_expect_str_eq(s.text.data, "\n[content]<think>\nhm</think>yes");
    qr_buf_release(&s.text);
    parts(&s, d, "hm</think>yes", (struct qr_answer_options){.starts_inside = true, .parse_reasoning = true}, false);
    cr_expect_str_eq(s.text.data, "\n[reasoning]hm\n[content]yes");
    qr_buf_release(&s.text);
    const char two[] = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>x";
    parts(&s, d, two, (struct qr_answer_options){.single = true}, true);
    cr_expect_str_eq(s.text.data, "\n[call]f\n[arguments]{}\n[end]");
    qr_buf_release(&s.text);
    parts(&s, d, two, (struct qr_answer_options){.calls_are_text = true}, true);
    cr_expect_eq(s.n_calls, 0);
    qr_buf_release(&s.text);
    qr_dialect_free(d);
}

Test(dialect, names_are_the_same_without_case_and_punctuation_and_with_more_behind_them)
{
    static const char *const names[] = {"Qwen3-Coder-30B-A3B", "qwen3_coder", "DEEPSEEK V3.1"};
    for (int i = 0; i < QR_COUNT(names); i++) {
        struct qr_dialect *d = qr_dialect_named(names[i]);
        cr_expect(d, "%s", names[i]);
        qr_dialect_free(d);
    }
    cr_expect_null(qr_dialect_named("no such family"));
    cr_expect_null(qr_dialect_named(""));
}

/* ---- deriving ---- */

#define TURNS(call, think)                                                                                                                           \
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|turn|>{{ m.role }}\n" think                                      \
    "{% if m.content %}{{ m.content }}{% endif %}" call "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
#define THINKS "{% if m.reasoning_content %}<hm>\n{{ m.reasoning_content }}\n</hm>\n\n{% endif %}"

static struct qr_dialect *derive(const char *template)
{
    struct qr_chat *chat;
    struct qr_err err;
    const int rc = qr_chat_open_text(&chat, template, strlen(template), "test", &err);
    cr_assert_eq(rc, 0, "%s", rc ? err.msg : "");
    struct qr_dialect *d = qr_dialect_derive(chat);
    qr_chat_close(chat);
    return d;
}

static const struct {
    const char *template, *text; /* a call of f with n 1, and one of g with s "x" */
} kinds[] = {
    {TURNS("{% for c in m.tool_calls or [] %}<call>\n{\"do\": \"{{ c.function.name }}\", \"with\": {{ c.function.arguments | tojson }}}\n</call>\n{% "
           "endfor %}",
           THINKS),
     "<call>\n{\"do\": \"f\", \"with\": {\"n\": 1}}\n</call>\n<call>\n{\"do\": \"g\", \"with\": {\"s\": \"x\"}}\n</call>"},
    {TURNS("{% if m.tool_calls %}@@[{% for c in m.tool_calls %}{\"{{ c.function.name }}\": {{ c.function.arguments | tojson }}}"
           "{{ ', ' if not loop.last }}{% endfor %}]@@{% endif %}",
           ""),
     "@@[{\"f\": {\"n\": 1}}, {\"g\": {\"s\": \"x\"}}]@@"},
    {TURNS("{% for c in m.tool_calls or [] %}<!do {{ c.function.name }}!>{{ c.function.arguments | tojson }}<!done!>{% endfor %}", ""),
     "<!do f!>{\"n\": 1}<!done!><!do g!>{\"s\": \"x\"}<!done!>"},
    {TURNS("{% if m.tool_calls %}<calls>{% for c in m.tool_calls %}<one fn=\"{{ c.function.name }}\">{% for k, v in c.function.arguments.items() %}"
           "<arg of=\"{{ k }}\">{{ v }}</arg>{% endfor %}</one>{% endfor %}</calls>{% endif %}",
           ""),
     "<calls><one fn=\"f\"><arg of=\"n\">1</arg></one><one fn=\"g\"><arg of=\"s\">x</arg></one></calls>"},
    {TURNS("{% if m.tool_calls %}<py>{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v | "
           "tojson }}"
           "{{ ', ' if not loop.last }}{% endfor %}){{ '; ' if not loop.last }}{% endfor %}</py>{% endif %}",
           ""),
     "<py>f(n=1); g(s=\"x\")</py>"},
};

Test(dialect, the_format_of_calls_is_found_in_the_template)
{
    for (int i = 0; i < QR_COUNT(kinds); i++) {
        struct qr_dialect *d = derive(kinds[i].template);
        struct said s;
        cr_expect(qr_dialect_has_tools(d), "%d", i);
        parts(&s, d, kinds[i].text, (struct qr_answer_options){.parse_reasoning = true}, false);
        const bool spaced = memmem(s.text.data, s.text.len, "{\"n\": 1}", 8) != NULL;
        cr_expect(spaced && memmem(s.text.data, s.text.len, "{\"s\": \"x\"}", 10) && s.n_calls == 2 &&
                      !memmem(s.text.data, s.text.len, "[content]", 9),
                  "%d (%s): %s", i, qr_dialect_name(d), s.text.data);
        qr_buf_release(&s.text);
        qr_dialect_free(d);
    }
}

Test(dialect, the_markers_of_reasoning_are_found_in_the_template)
{
    struct qr_dialect *d = derive(TURNS("", THINKS));
    cr_expect_str_eq(qr_dialect_think_start(d), "<hm>");
    cr_expect_str_eq(qr_dialect_think_end(d), "</hm>");
    qr_dialect_free(d);
    d = derive(TURNS("", ""));
    cr_expect(!qr_dialect_has_reasoning(d));
    qr_dialect_free(d);
    d = derive("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% if enable_thinking is "
               "defined and not "
               "enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{% endif %}");
    cr_expect_str_eq(qr_dialect_think_end(d), "</think>");
    cr_expect(qr_dialect_think_opened(d));
    qr_dialect_free(d);
}

Test(dialect, a_prompt_that_begins_reasoning_is_told_from_one_that_has_closed_it)
{
    struct qr_dialect *d = qr_dialect_named("hermes");
    static const struct {
        const char *prompt;
        bool inside;
    } prompts[] = {{"a\n<think>\n", true}, {"a\n<think>", true}, {"a <think>\n\n</think>\n\n", false},
                   {"a", false},           {"", false},          {"what is <think> for?\nassistant:", false}};
    for (int i = 0; i < QR_COUNT(prompts); i++)
        cr_expect_eq(qr_dialect_starts_inside(d, prompts[i].prompt, strlen(prompts[i].prompt)), prompts[i].inside, "%s", prompts[i].prompt);
    qr_dialect_free(d);
}

Test(dialect, a_template_that_fails_gives_a_dialect_of_text)
{
    static const char *const templates[] = {"{{ raise_exception('no') }}", "{{ messages[0].content.nothing.at.all }}", "", "plain"};
    for (int i = 0; i < QR_COUNT(templates); i++) {
        struct qr_dialect *d = derive(templates[i]);
        struct said s;
        parts(&s, d, "hello", (struct qr_answer_options){.parse_reasoning = true}, false);
        cr_expect_str_eq(s.text.data, "\n[content]hello");
        qr_buf_release(&s.text);
        qr_dialect_free(d);
    }
}
