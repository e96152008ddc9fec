#include <criterion/criterion.h>
#include <stdio.h>

#include "answers/constraint.h"
#include "tests/answers/words.h"

static struct qr_grammar *compile_with(struct words *w, enum qr_constraint_kind kind, const char *text, struct qr_err *err)
{
    struct qr_grammar *g = NULL;
    const struct qr_constraint c = {.kind = kind, .text = text, .len = strlen(text)};
    *err = (struct qr_err){0};
    return qr_constraint_compile(&g, &c, w->vocab, err) == 0 ? g : NULL;
}

/* Whether `text` is in the language. */
static bool takes(enum qr_constraint_kind kind, const char *source, const char *text)
{
    struct words w;
    struct qr_err err;
    words_make(&w, NULL);
    struct qr_grammar *g = compile_with(&w, kind, source, &err);
    cr_assert_not_null(g, "%s: %s", source, err.msg);
    const bool ok = words_match(g, text, strlen(text));
    qr_grammar_unref(g);
    words_free(&w);
    return ok;
}

static const char *refused_at(enum qr_constraint_kind kind, const char *source)
{
    static char param[128];
    struct words w;
    struct qr_err err;
    words_make(&w, NULL);
    struct qr_grammar *g = compile_with(&w, kind, source, &err);
    cr_assert_null(g, "%s was taken", source);
    cr_assert(err.msg[0] != 0);
    snprintf(param, sizeof param, "%s", err.param);
    words_free(&w);
    return param;
}

Test(constraint, choices_are_the_texts_of_an_array)
{
    const char *colours = "[\"red\", \"blue\", \"blu\", \"\\u00e4\"]";
    cr_assert(takes(QR_CONSTRAINT_CHOICE, colours, "red"));
    cr_assert(takes(QR_CONSTRAINT_CHOICE, colours, "blu"));
    cr_assert(takes(QR_CONSTRAINT_CHOICE, colours, "\xc3\xa4"));
    cr_assert(!takes(QR_CONSTRAINT_CHOICE, colours, "bl"));
    cr_assert(!takes(QR_CONSTRAINT_CHOICE, colours, "reds"));
    cr_assert_str_eq(refused_at(QR_CONSTRAINT_CHOICE, "[\"a\", 5]"), "$[1]");
    cr_assert_str_eq(refused_at(QR_CONSTRAINT_CHOICE, "[]"), "$");
    refused_at(QR_CONSTRAINT_CHOICE, "[\"a\"");
}

Test(constraint, each_language_has_its_reader)
{
    cr_assert(takes(QR_CONSTRAINT_REGEX, "a+b", "aaab"));
    cr_assert(!takes(QR_CONSTRAINT_REGEX, "a+b", "aaabc"));
    cr_assert(takes(QR_CONSTRAINT_GBNF, "root ::= \"x\" [0-9]", "x7"));
    cr_assert(takes(QR_CONSTRAINT_LARK, "start: \"x\" /[0-9]/", "x7"));
    cr_assert(takes(QR_CONSTRAINT_SCHEMA, "{\"const\": 5}", "5"));
    cr_assert(!takes(QR_CONSTRAINT_SCHEMA, "{\"const\": 5}", "6"));
    cr_assert(takes(QR_CONSTRAINT_OBJECT, "", "{\"any\": [1, null]}"));
    cr_assert(!takes(QR_CONSTRAINT_OBJECT, "", "[1]"));
    refused_at(QR_CONSTRAINT_SCHEMA, "{");
}

Test(constraint, a_lark_schema_keeps_to_the_blanks_that_guidance_names)
{
    const char *usual = "start: %json {\"items\": {\"type\": \"null\"}, \"type\": \"array\", \"x-guidance\": {\"whitespace_flexible\": false, "
                        "\"item_separator\": \", \", \"key_separator\": \": \"}}";
    cr_assert(takes(QR_CONSTRAINT_LARK, usual, "[null, null]"));
    cr_assert(!takes(QR_CONSTRAINT_LARK, usual, "[null,null]"));
    cr_assert(!takes(QR_CONSTRAINT_LARK, usual, "[ null]"));
    cr_assert(!takes(QR_CONSTRAINT_LARK, usual, "[null,\n null]"));
    const char *loose = "start: %json {\"type\": \"array\", \"x-guidance\": {\"whitespace_flexible\": true}}";
    cr_assert(takes(QR_CONSTRAINT_LARK, loose, "[1,2]"));
    cr_assert(takes(QR_CONSTRAINT_LARK, loose, "[1,\n 2]"));
}

Test(constraint, the_first_rule_tells_gbnf_from_lark)
{
    cr_assert_eq(qr_constraint_guess("root ::= \"a\"", 12), QR_CONSTRAINT_GBNF);
    cr_assert_eq(qr_constraint_guess("# x: y\n// z\n  root\n ::= a", 25), QR_CONSTRAINT_GBNF);
    cr_assert_eq(qr_constraint_guess("start: \"::=\"", 12), QR_CONSTRAINT_LARK);
    cr_assert_eq(qr_constraint_guess("%llguidance {}\nstart: a", 22), QR_CONSTRAINT_LARK);
    cr_assert_eq(qr_constraint_guess("", 0), QR_CONSTRAINT_LARK);
    cr_assert_eq(qr_constraint_guess("a", 1), QR_CONSTRAINT_LARK);
    cr_assert_eq(qr_constraint_guess("a :", 3), QR_CONSTRAINT_LARK);
}

/* ---- structural tags ---- */

#define tags_refused_at(f) refused_at(QR_CONSTRAINT_TAGS, FORMAT f)

#define FORMAT(f) "{\"type\": \"structural_tag\", \"format\": " f "}"
#define NUMBER "{\"type\": \"regex\", \"pattern\": \"[0-9]+\"}"
#define TAG(begin, content, end) "{\"type\": \"tag\", \"begin\": \"" begin "\", \"content\": " content ", \"end\": \"" end "\"}"
#define TRIGGERED(more) FORMAT("{\"type\": \"triggered_tags\", \"triggers\": [\"<f=\"], \"tags\": [" TAG("<f=a>", NUMBER, "</f>") ", " \
                               TAG("<f=b>", "{\"type\": \"const_string\", \"value\": \"x\"}", "</f>") "]" more "}")

Test(tags, text_is_free_until_a_trigger_binds_it)
{
    cr_assert(takes(QR_CONSTRAINT_TAGS, TRIGGERED(""), ""));
    cr_assert(takes(QR_CONSTRAINT_TAGS, TRIGGERED(""), "any text, < and <f and </f>"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, TRIGGERED(""), "so <f=a>12</f> and <f=b>x</f>."));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, TRIGGERED(""), "so <f=a>1x</f>"));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, TRIGGERED(""), "so <f=c>1</f>"));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, TRIGGERED(""), "so <f=a>1"));
}

Test(tags, at_least_one_begins_with_a_tag_and_stop_after_first_ends_with_it)
{
    const char *least = TRIGGERED(", \"at_least_one\": true"), *stop = TRIGGERED(", \"stop_after_first\": true");
    cr_assert(!takes(QR_CONSTRAINT_TAGS, least, ""));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, least, "text <f=a>1</f>"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, least, "<f=a>1</f> text <f=a>2</f>"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, stop, "text <f=a>1</f>"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, stop, "text"));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, stop, "text <f=a>1</f> more"));
}

Test(tags, the_older_form_has_schemas)
{
    const char *old = "{\"type\": \"structural_tag\", \"structures\": "
                      "[{\"begin\": \"<f=a>\", \"schema\": {\"const\": 1}, \"end\": \"</f>\"}], \"triggers\": [\"<f=\"]}";
    cr_assert(takes(QR_CONSTRAINT_TAGS, old, "hm <f=a>1</f>!"));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, old, "hm <f=a>2</f>!"));
}

Test(tags, formats_are_put_together)
{
    const char *think = FORMAT("{\"type\": \"sequence\", \"elements\": [" TAG("<think>", "{\"type\": \"any_text\"}", "</think>")
                               ", {\"type\": \"or\", \"elements\": [" NUMBER
                               ", {\"type\": \"json_schema\", \"json_schema\": {\"const\": \"s\"}}]}]}");
    cr_assert(takes(QR_CONSTRAINT_TAGS, think, "<think>all <think> kinds</think>42"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, think, "<think></think>\"s\""));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, think, "<think>a</think>b</think>42"));
    const char *list = FORMAT("{\"type\": \"tags_with_separator\", \"separator\": \", \", \"tags\": [" TAG("[", NUMBER, "]") "]}");
    cr_assert(takes(QR_CONSTRAINT_TAGS, list, ""));
    cr_assert(takes(QR_CONSTRAINT_TAGS, list, "[1], [2], [33]"));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, list, "[1],[2]"));
    const char *twice = FORMAT("{\"type\": \"repeat\", \"min\": 2, \"max\": 3, \"content\": {\"type\": \"const_string\", \"value\": \"ab\"}}");
    cr_assert(!takes(QR_CONSTRAINT_TAGS, twice, "ab"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, twice, "ababab"));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, twice, "abababab"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, FORMAT("{\"type\": \"optional\", \"content\": " NUMBER "}"), ""));
    cr_assert(!takes(QR_CONSTRAINT_TAGS, FORMAT("{\"type\": \"any_text\", \"excludes\": [\"bad\", \"worse\"]}"), "so bad"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, FORMAT("{\"type\": \"any_text\", \"excludes\": [\"bad\", \"worse\"]}"), "so wors"));
    cr_assert(takes(QR_CONSTRAINT_TAGS, FORMAT("{\"type\": \"grammar\", \"grammar\": \"root ::= \\\"g\\\"\"}"), "g"));
}

Test(tags, what_is_wrong_is_told_with_its_path)
{
    cr_assert_str_eq(refused_at(QR_CONSTRAINT_TAGS, "{}"), "$.format");
    cr_assert_str_eq(tags_refused_at(("5")), "$.format");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"qwen_xml_parameter\"}")), "$.format.type");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"const_string\"}")), "$.format.value");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"sequence\", \"elements\": []}")), "$.format.elements");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"sequence\", \"elements\": [" NUMBER ", 5]}")), "$.format.elements[1]");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"json_schema\", \"json_schema\": {}, \"style\": \"qwen_xml\"}")), "$.format.style");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"tag\", \"begin\": \"a\", \"content\": " NUMBER "}")), "$.format.end");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"triggered_tags\", \"triggers\": [\"x\"], \"tags\": [" TAG("y", NUMBER, "z") "]}")),
                     "$.format.tags[0].begin");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"triggered_tags\", \"triggers\": [\"\"], \"tags\": [" TAG("y", NUMBER, "z") "]}")), "$.format.triggers");
    cr_assert_str_eq(tags_refused_at(("{\"type\": \"repeat\", \"min\": 3, \"max\": 2, \"content\": " NUMBER "}")), "$.format.max");
    cr_assert(strncmp(tags_refused_at((TAG("a", "{\"type\": \"json_schema\", \"json_schema\": {\"properties\": 5}}", "b"))),
                      "$.format.content.json_schema", 28) == 0);
}

/* ---- the store ---- */

Test(store, holds_what_was_added_until_others_need_the_room)
{
    struct words w;
    struct qr_err err;
    char text[32];
    words_make(&w, NULL);
    struct qr_grammar *g = compile_with(&w, QR_CONSTRAINT_CHOICE, "[\"a\"]", &err);
    const size_t one = qr_grammar_bytes(g);
    struct qr_grammar_store *s = qr_grammar_store_new(3 * one + one / 2);
    cr_assert_eq(qr_grammar_store_add(s, "a", 1, g, &err), 0);
    cr_assert_eq(qr_grammar_store_add(s, "a", 1, g, &err), 0);
    cr_assert_eq(qr_grammar_store_bytes(s), one, "a key has one grammar");
    cr_assert_null(qr_grammar_store_find(s, "b", 1));
    for (int i = 0; i < 5; i++) { /* a is in use, the others are not */
        snprintf(text, sizeof text, "[\"%d\"]", i);
        struct qr_grammar *other = compile_with(&w, QR_CONSTRAINT_CHOICE, text, &err);
        cr_assert_eq(qr_grammar_store_add(s, text, strlen(text), other, &err), 0, "%s", err.msg);
        qr_grammar_unref(other);
        cr_assert(qr_grammar_store_bytes(s) <= 3 * one + one / 2);
    }
    struct qr_grammar *again = qr_grammar_store_find(s, "a", 1);
    cr_assert_eq(again, g);
    cr_assert_null(qr_grammar_store_find(s, "[\"0\"]", 5), "the least recently used one left");
    qr_grammar_unref(again);
    qr_grammar_unref(g);
    qr_grammar_store_free(s);
    words_free(&w);
}

Test(store, says_so_where_there_is_no_room)
{
    struct words w;
    struct qr_err err;
    words_make(&w, NULL);
    struct qr_grammar *a = compile_with(&w, QR_CONSTRAINT_CHOICE, "[\"a\"]", &err), *b = compile_with(&w, QR_CONSTRAINT_CHOICE, "[\"b\"]", &err);
    struct qr_grammar_store *small = qr_grammar_store_new(qr_grammar_bytes(a) - 1), *s = qr_grammar_store_new(qr_grammar_bytes(a) * 3 / 2);
    cr_assert_eq(qr_grammar_store_add(small, "a", 1, a, &err), QR_E_TOO_LARGE);
    cr_assert_eq(qr_grammar_store_add(s, "a", 1, a, &err), 0);
    cr_assert_eq(qr_grammar_store_add(s, "b", 1, b, &err), QR_E_BUSY, "a is in use");
    qr_grammar_unref(a);
    cr_assert_eq(qr_grammar_store_add(s, "b", 1, b, &err), 0);
    qr_grammar_unref(b);
    qr_grammar_store_free(small);
    qr_grammar_store_free(s);
    words_free(&w);
}
