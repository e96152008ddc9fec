/* test_lark.c - Lark grammars as llguidance reads them: each construct, what is ignored between lexemes, whole grammars, and what is
 * refused with its place. */
#include "languages.h"

#include "base/buf.h"
#include "base/json.h"

#define EXPECT(...)                                                           \
    do {                                                                      \
        static const struct row rows[] = {__VA_ARGS__};                       \
        expect_rows(LARK, 0, rows, (int)(sizeof rows / sizeof rows[0]));      \
    } while (0)

#define EXPECT_REFUSED(...)                                                   \
    do {                                                                      \
        static const struct refused rows[] = {__VA_ARGS__};                   \
        expect_refused(LARK, rows, (int)(sizeof rows / sizeof rows[0]));      \
    } while (0)

Test(lark, texts_patterns_and_ranges)
{
    EXPECT({"start: \"abc\"", {"abc"}, {"", "ABC", "abcd"}}, {"start: \"aB\"i", {"ab", "AB", "aB"}, {"b"}},
           {"start: \"\\n\\t\\\\\\\"\\u00e4\\x41/\"", {"\n\t\\\"\xC3\xA4" "A/"}, {"n"}},
           {"start: /[a-c]+\\d/", {"abc1", "a0"}, {"1", "ab"}}, {"start: /a\\/b/", {"a/b"}, {"ab"}},
            {"start: /ab/i", {"AB", "ab"}, {"a"}}, {"start: /a.b/s", {"a\nb"}, {"ab"}},
           {"start: /a.b/", {"axb"}, {"a\nb"}}, {"start: /[#\"]/ \"//\"", {"#//", "\"//"}, {"//"}},
            {"start: \"a\"..\"c\" \"x\"", {"ax", "cx"}, {"dx", "x"}}, {"start: \"a\" .. \"c\"", {"b"}, {"a..c"}},
           {"start: \"\xC3\xA4\"..\"\xC3\xBC\"", {"\xC3\xB6"}, {"o"}}, {"start: \"\xC3\xA4\"i", {"\xC3\x84"}, {"a"}},
            {"start: \"\"", {""}, {"a"}}, {"start: /(?i)a/ \"b\"", {"Ab", "ab"}, {"aB"}});
}

Test(lark, repetition)
{
    EXPECT({"start: \"a\"?", {"", "a"}, {"aa"}}, {"start: \"a\"*", {"", "aaa"}, {"b"}},
           {"start: \"a\"+", {"a", "aa"}, {""}}, {"start: \"a\"~2", {"aa"}, {"a", "aaa"}},
           {"start: \"a\"~1..2", {"a", "aa"}, {"", "aaa"}}, {"start: \"a\" ~ 2..3 \"b\"", {"aab", "aaab"}, {"ab"}},
            {"start: \"a\"{2}", {"aa"}, {"a"}}, {"start: \"a\"{1,2}", {"a", "aa"}, {"aaa"}},
           {"start: \"a\"{2,}", {"aa", "aaaa"}, {"a"}}, {"start: \"a\"{,2}", {"", "aa"}, {"aaa"}},
            {"start: (\"a\" \"b\")+", {"ab", "abab"}, {"aab"}}, {"start: [\"a\"] \"b\"", {"b", "ab"}, {"a"}},
           {"start: [\"a\" | \"c\"] \"b\"", {"b", "ab", "cb"}, {"acb"}}, {"start: \"a\" * \"b\"", {"aab"}, {"a"}},
            {"start: x~3\nx: /[0-9]/", {"123"}, {"12"}});
}

Test(lark, rules_and_lines)
{
    EXPECT({"start: a b\na: \"x\"\nb: \"y\"\n", {"xy"}, {"x"}},
           {"// a comment\nstart: a // why\n  | \"c\" -> other\n# another\na: \"x\"", {"x", "c"}, {"xc"}},
           {"?start: (\n  \"a\"\n  | \"b\"\n)\n!x.2: \"c\"", {"a", "b"}, {"c"}},
            {"start:\n  \"a\"\n  | \"b\"", {"a", "b"}, {""}}, {"start: | \"a\"", {"", "a"}, {"b"}},
            {"start:\nx: \"a\"", {""}, {"a"}},
           {"start: \"a\" -> one\n  | \"b\" -> two\n", {"a", "b"}, {"ab"}},
            {"A.1: \"a\"\nB.-1: \"b\"\nstart: A B", {"ab"}, {"a"}}, {"start: a-b\na-b: \"x\"", {"x"}, {"a"}},
           {"start: a->b\na: \"x\"", {"x"}, {"y"}}, {"start: _x __Y\n_x: \"x\"\n__Y: \"y\"", {"xy"}, {"x"}},
            {"start: x\r\nx: \"a\"\r\n", {"a"}, {"b"}},
           {"%llguidance {\"a\": [1, \"}\"]}\nstart: \"a\"", {"a"}, {""}},
            {"start: \"a\"\n?x: \"b\"\n", {"a"}, {"b"}});
}

Test(lark, rules_hold_themselves_from_left_and_right)
{
    EXPECT({"start: \"(\" start \")\" | \"x\"", {"x", "((x))"}, {"(x", "()"}},
           {"start: start \"a\" | \"b\"", {"b", "baa"}, {"a"}}, {"start: \"a\" start | \"b\"", {"aab"}, {"a"}},
           {"start: x\nx: y \"a\" | \"c\"\ny: x \"b\" | \"d\"", {"c", "da", "cba"}, {"d"}});
}

Test(lark, terminals_join_cut_and_deny)
{
    EXPECT({"start: A\nA: \"a\" B \"c\"\nB: /b+/ | \"x\"~2", {"abbc", "axxc"}, {"ac", "axc"}},
           {"start: A\nA: /[a-z]+/ & ~\"foo\"", {"fo", "fooo", "bar"}, {"foo", ""}},
           {"start: A\nA: /[ab]+/ & /.{2,3}/ & ~/.*bb.*/", {"ab", "aba"}, {"a", "abba", "abb"}},
            {"start: A\nA: ~(\"a\" | \"b\")", {"", "c", "ab"}, {"a", "b"}},
           {"start: A\nA: \"x\" | /[ab]+/ & ~\"ab\"", {"x", "a", "ba"}, {"ab"}},
            {"start: A\nA: ~~\"a\"", {"a"}, {"b", ""}}, {"start: A\nA: \"a\" ~2", {"aa"}, {"a"}},
           {"start: A B\nA: /(?!ab)[ab]{2}/\nB: \"c\"i", {"aac", "bbC"}, {"abc"}});
}

Test(lark, ignored_text_stands_between_lexemes_not_in_terminals)
{
    EXPECT({"start: \"a\" \"b\"\n%ignore \" \"", {"ab", "a b", " a  b "}, {"a\nb", ""}},
           {"start: A\nA: \"a\" \"b\"\n%ignore \" \"", {"ab", " ab "}, {"a b"}},
           {"start: \"a\" B\nB: /b c/\n%ignore /[ \\t]+/ | \"#\"", {"ab c", "a # b c\t"}, {"a bc"}},
            {"%ignore WS\nstart: WORD+\n%import common.WORD\n%import common.WS", {"ab", " ab\n cd "}, {"", " ", "1"}},
           {"start: \"a\"*\n%ignore \" \"\n%ignore \";\"", {"", " ;", "a;a a"}, {"b"}},
            {"start: \"ab\" [\"c\"]\n%ignore \" \"", {"ab", "ab c"}, {"a b"}});
}

Test(lark, the_library_has_the_usual_terminals)
{
    EXPECT({"start: INT\n%import common.INT", {"0", "123"}, {"", "-1", "1.0"}},
           {"start: N\n%import common.SIGNED_NUMBER -> N", {"1", "-1.5e3", "+.5", "2."}, {"", ".", "e3", "--1"}},
           {"start: NUMBER\n%import common.NUMBER", {"1", "1.5", "1e5"}, {"-1", "x"}},
            {"start: FLOAT\n%import common.FLOAT", {"1.0", ".5", "1e-5"}, {"1", "-1.0"}},
           {"start: SIGNED_INT\n%import common.SIGNED_INT", {"-1", "+2", "3"}, {"1.0"}},
            {"start: CNAME\n%import common.CNAME", {"_a1", "b"}, {"1a", ""}},
           {"start: ESCAPED_STRING\n%import common.ESCAPED_STRING", {"\"\"", "\"a\\\"b\\\\\""},
            {"\"", "\"a\"b\"", "\"a\nb\""}}, {"start: WORD DIGIT\n%import common (WORD, DIGIT)", {"ab1"}, {"1", "a"}},
           {"start: HEXDIGIT LETTER LCASE_LETTER UCASE_LETTER\n%import common (HEXDIGIT, LETTER, LCASE_LETTER, UCASE_LETTER)", {"FzaA"}, {"gzaA", "FzAA"}},
           {"start: NEWLINE WS_INLINE CR LF\n%import common (NEWLINE, WS_INLINE, CR, LF)", {"\r\n\n \t\r\n"},
            {" \r\n"}}, {"start: DECIMAL\n%import common.DECIMAL", {"1.", "1.5", ".5"}, {"1", "."}},
           {"start: C_COMMENT\n%import common.C_COMMENT", {"/**/", "/* a * b **/"}, {"/*/", "/* */ */"}},
            {"start: CPP_COMMENT SH_COMMENT\n%import common (CPP_COMMENT, SH_COMMENT)", {"// a# b"}, {"/ a", "// a"}},
           {"start: SQL_COMMENT\n%import common.SQL_COMMENT", {"-- a"}, {"- a"}},
            {"start: SIGNED_FLOAT\n%import common.SIGNED_FLOAT", {"-1.5"}, {"1"}});
}

Test(lark, lazy_and_stop_end_at_the_first_place_where_they_may)
{
    EXPECT({"start: x \"!\"\nx[lazy]: /[ab]*b/", {"b!", "aab!"}, {"bb!", "ab b!", "a!"}},
           {"start: x \"!\"\nx[stop=\"END\"]: /(.|\\n)*/", {"END!", "a\nEND!"}, {"a!", "END END!", "ENDEND!"}},
           {"start: x\nx[suffix=/[.!]/]: /.*/", {"a.", "!", "a b!"}, {"a", "a.b.", ".."}},
            {"start: x\nx[stop=\"\"]: /[a-z]*/", {"", "ab"}, {"1"}},
            {"start: x y\nx[capture, stop=\"\\n\"]: /.*/\ny[capture=\"n\"]: \"b\"", {"a\nb", "\nb"}, {"ab"}},
           {"start: x\nx[stop=N, lazy]: /[^0-9]*/\nN: /[0-9]+/", {"a1", "1"}, {"a12", "a"}},
            {"start: A\nA[lazy]: \"a\"+", {"a"}, {"aa"}});
}

Test(lark, special_tokens_are_lexemes)
{
    static const struct row rows[] = {{"start: <x> \"a\" <y>", {"\xFF" "3;a\xFF" "4;"}, {"<x>a<y>", "a"}},
        {"start: (<[3]> | <[4]>) \"b\"\n%ignore \" \"", {"\xFF" "3; b", " \xFF" "4;b"}, {"b"}},
                                      {"start: <[3-4]>+", {"\xFF" "3;\xFF" "4;"}, {""}}};
    static const struct refused refused[] = {{"start: <z>", QR_E_INVALID,
        "line 1, column 8: the vocabulary has no special token <z>"}, {"start: A\nA: <x>", QR_E_UNSUPPORTED,
        "in rules, not in terminals"}};
    struct words w;
    struct qr_tokenizer *t = names_make(&w);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_row(&w, LARK, 0, &rows[i]);
    expect_refused_of(&w, LARK, refused, 2);
    words_free(&w);
    qr_tokenizer_close(t);
}

/* Takes {"const": text} only. */
static int read_const(int32_t *out, struct qr_exprs *x, const struct qr_json *schema, void *user, struct qr_err *err)
{
    size_t len;
    const char *text = qr_json_text(qr_json_find(schema, "const"), &len);
    ++*(int *)user;
    if (!text)
        return qr_err_at(err, QR_E_UNSUPPORTED, "$.other", "only const");
    *out = qr_expr_bytes(x, text, len);
    return 0;
}

Test(lark, schemas_are_compiled_by_the_caller)
{
    static const char good[] = "start: \"<\" %json {\"const\": \"a}b\"} \">\" "
                               "x\nx:\n  %json {\n  \"const\": \"c\" }\n%ignore \" \"",
                       bad[] = "start: %json {\"type\": \"string\"}";
    struct qr_exprs *x = qr_exprs_new(1 << 20);
    struct qr_grammar *g = NULL;
    struct qr_err err = {0};
    struct words w;
    int32_t root, n = 0;
    words_make(&w, NULL);
    cr_assert_eq(qr_lark_parse(&root, x, good, sizeof good - 1, w.vocab, read_const, &n, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_grammar_new(&g, x, root, w.vocab, 0, &err), 0, "%s", err.msg);
    cr_expect(n == 2 && takes(g, "<a}b>c") && takes(g, "< a}b > c ") && !takes(g, "<a}b>"));
    qr_grammar_unref(g);
    x = qr_exprs_new(1 << 20);
    cr_expect_eq(qr_lark_parse(&root, x, bad, sizeof bad - 1, w.vocab, read_const, &n, &err), QR_E_UNSUPPORTED);
    cr_expect(strcmp(err.param, "$.other") == 0 && strstr(err.msg, "line 1, column 8: only const"), "%s: %s",
        err.param, err.msg);
    qr_exprs_free(x);
    words_free(&w);
    EXPECT_REFUSED({"start: %json {}", QR_E_UNSUPPORTED, "%json is not supported here"},
                   {"start: %json {", QR_E_INVALID, "a schema in braces"},
                   {"start: %json \"a\"", QR_E_INVALID, "a schema in braces"},
                   {"start: A\nA: %json {}", QR_E_UNSUPPORTED, "not in terminals"});
}

static const char calculator[] = "?start: sum\n"
                                 "      | NAME \"=\" sum    -> assign\n"
                                 "?sum: product\n"
                                 "    | sum \"+\" product   -> add\n"
                                 "    | sum \"-\" product   -> sub\n"
                                 "?product: atom\n"
                                 "    | product \"*\" atom\n"
                                 "    | product \"/\" atom\n"
                                 "?atom: NUMBER -> number\n"
                                 "     | \"-\" atom\n"
                                 "     | NAME\n"
                                 "     | \"(\" sum \")\"\n"
                                 "%import common.CNAME -> NAME\n"
                                 "%import common.NUMBER\n"
                                 "%import common.WS_INLINE\n"
                                 "%ignore WS_INLINE\n";

static const char json[] = "start: value\n"
                           "?value: object | array | string\n"
                           "      | SIGNED_NUMBER | \"true\" | \"false\" | \"null\"\n"
                           "array  : \"[\" [value (\",\" value)*] \"]\"\n"
                           "object : \"{\" [pair (\",\" pair)*] \"}\"\n"
                           "pair   : string \":\" value\n"
                           "string : ESCAPED_STRING\n"
                           "%import common.ESCAPED_STRING\n%import common.SIGNED_NUMBER\n%import common.WS\n%ignore WS\n";

static const char query[] = "start: \"SELECT\"i columns \"FROM\"i NAME [\"WHERE\"i condition]\n"
                            "columns: \"*\" | NAME (\",\" NAME)*\n"
                            "condition: comparison ((\"AND\"i | \"OR\"i) comparison)*\n"
                            "comparison: NAME OPERATOR (NAME | /[0-9]+/ | /'[^']*'/)\n"
                            "OPERATOR: \"=\" | \"<\" \"=\"? | \">\" \"=\"?\n"
                            "NAME: /[a-z_][a-z0-9_]*/i & ~(\"select\"i | \"from\"i | \"where\"i)\n"
                            "%ignore /\\s+/\n";

Test(lark, whole_grammars)
{
    const struct row rows[] = {
        {calculator, {"1+2*3", "x = -(a - 4.5) / 2", "7"}, {"", "1 +", "x = y = 1", "(1"}},
        {json, {"{}", "[1, -2.5e3,\n \"x\"]", " {\"a\": {\"b\": [null, true]}}", "\"a\""},
         {"", "{", "[1,]", "{\"a\"}", "{a: 1}"}},
        {query, {"SELECT * FROM t", "select a, b from t where a >= 10 and b = 'x y'"},
         {"SELECT FROM t", "SELECT * FROM select", "SELECT a b FROM t", "SELECT * FROM t WHERE"}},
    };
    expect_rows(LARK, 0, rows, (int)(sizeof rows / sizeof rows[0]));
}

Test(lark, what_cannot_be_enforced_is_refused_by_name)
{
    EXPECT_REFUSED({"start[max_tokens=5]: /a/", QR_E_UNSUPPORTED, "line 1, column 7: the attribute max_tokens"},
                   {"start: x\nx[temperature=0.5]: /a/", QR_E_UNSUPPORTED,
                   "line 2, column 3: the attribute temperature"},
                   {"start: %regex {}", QR_E_UNSUPPORTED, "%regex"}, {"start: @other", QR_E_UNSUPPORTED, "'@'"},
                    {"start: x::1\nx: \"a\"", QR_E_UNSUPPORTED, "parameters"},
                   {"start: x{a, b}\nx: \"a\"", QR_E_UNSUPPORTED, "templates"},
                    {"x{a}: \"b\"\nstart: \"a\"", QR_E_UNSUPPORTED, "templates"},
                    {"%import python.X\nstart: \"a\"", QR_E_UNSUPPORTED, "line 1, column 9: only the library"},
                   {"%import .other.X\nstart: \"a\"", QR_E_UNSUPPORTED, "only the library"},
                    {"%import common.NOTHING\nstart: \"a\"", QR_E_UNSUPPORTED, "no terminal common.NOTHING"},
                    {"%declare X\nstart: X", QR_E_UNSUPPORTED, "%declare"},
                   {"start: \"a\" & \"b\"", QR_E_UNSUPPORTED, "'&' is supported in terminals only"},
                    {"start: ~\"a\"", QR_E_UNSUPPORTED, "terminals only"},
                    {"start: /a/m", QR_E_UNSUPPORTED, "column 11: the flag m"},
                   {"start: /(a)\\1/", QR_E_UNSUPPORTED,
                    "line 1, column 8: regular expression, character 4: back references"},
                    {"start: x\nx[lazy]: start", QR_E_INVALID, "terminals hold terminals only"});
}

Test(lark, errors_say_line_and_column_and_what_was_expected)
{
    EXPECT_REFUSED({"start: \"a\n\"", QR_E_INVALID, "line 1, column 8: the quote"},
                   {"start: /a\n/", QR_E_INVALID, "line 1, column 8: the pattern '/' is never closed"},
                   {"start: (\"a\"", QR_E_INVALID, "')' was expected, found the end"},
                   {"start: [\"a\")", QR_E_INVALID, "']' was expected, found ')'"},
                    {"start: \"a\")", QR_E_INVALID, "')' closes no group"},
                    {"a: \"a\"", QR_E_INVALID, "no rule named start"}, {"", QR_E_INVALID, "no rule named start"},
                   {"start \"a\"", QR_E_INVALID, "column 7: ':' was expected, found '\"'"},
                    {"start: a", QR_E_INVALID, "the rule a is named, but not defined"},
                    {"start: \"a\"\nstart: \"b\"", QR_E_INVALID, "line 2, column 1: the rule start is defined twice"},
                   {"start: *", QR_E_INVALID,
                    "a name, a text in quotes, a pattern or a group was expected, found '*'"},
                    {"start: \"a\"~3..1", QR_E_INVALID, "maximum below"},
                    {"start: \"a\"{100001}", QR_E_TOO_LARGE, "above 100000"},
                   {"start: \"b\"..\"a\"", QR_E_INVALID, "a range goes from one character"},
                    {"start: \"ab\"..\"c\"", QR_E_INVALID, "a range goes from one character"},
                    {"start: \"a\"..b", QR_E_INVALID, "a character in quotes"},
                   {"start: A\nA: \"a\" A", QR_E_INVALID, "the terminal A holds itself"},
                    {"start: A\nA: b\nb: \"x\"", QR_E_INVALID, "line 2, column 4: the terminal holds the rule b"},
                    {"start: /[/", QR_E_INVALID, "the class '[' is never closed"},
                   {"start: \"a\" -> ", QR_E_INVALID, "a name was expected"},
                    {"start: \"\\q\"", QR_E_INVALID, "the escape \\q"},
                    {"start: \"\xFF\"", QR_E_INVALID, "not valid UTF-8"},
                    {"%ignore", QR_E_INVALID, "no rule named start"},
                   {"x[lazy=1]: /a/\nstart: x", QR_E_INVALID, "was expected"},
                    {"x[stop]: /a/\nstart: x", QR_E_INVALID, "stop and suffix take"});
}

Test(lark, groups_nest_200_deep_and_no_deeper)
{
    struct words w;
    words_make(&w, NULL);
    for (int depth = 200; depth <= 201; depth++) {
        struct qr_buf text = {0};
        qr_buf_put_str(&text, "start: ");
        for (int i = 0; i < depth; i++)
            qr_buf_put_str(&text, i % 2 ? "[" : "(");
        qr_buf_put_str(&text, "\"a\"");
        for (int i = depth - 1; i >= 0; i--)
            qr_buf_put_str(&text, i % 2 ? "]" : ")");
        if (depth == 200) {
            struct qr_grammar *g = compile(&w, LARK, 0, text.data);
            cr_expect(takes(g, "a") && takes(g, ""));
            qr_grammar_unref(g);
        } else {
            const struct refused row = {text.data, QR_E_TOO_LARGE, "nested more than 200 deep"};
            expect_refused(LARK, &row, 1);
        }
        qr_buf_release(&text);
    }
    words_free(&w);
}
