/* test_gbnf.c - llama.cpp's grammars: each construct, whole grammars as people have them, and what is refused with its place. */
#include "languages.h"

#include "base/buf.h"

#define EXPECT(...)                                                           \
    do {                                                                      \
        static const struct row rows[] = {__VA_ARGS__};                       \
        expect_rows(GBNF, 0, rows, (int)(sizeof rows / sizeof rows[0]));      \
    } while (0)

#define EXPECT_REFUSED(...)                                                   \
    do {                                                                      \
        static const struct refused rows[] = {__VA_ARGS__};                   \
        expect_refused(GBNF, rows, (int)(sizeof rows / sizeof rows[0]));      \
    } while (0)

Test(gbnf, texts_alternatives_and_groups)
{
    EXPECT({"root ::= \"abc\"", {"abc"}, {"", "ab", "abcd"}}, {"root ::= \"a\" \"b\"", {"ab"}, {"a b", "a"}},
           {"root ::= \"a\" | \"b\" \"c\"", {"a", "bc"}, {"ac", "b"}},
           {"root ::= (\"a\" | \"b\") \"c\"", {"ac", "bc"}, {"a", "c"}}, {"root ::= \"a\" |", {"a", ""}, {"b"}},
            {"root ::= ", {""}, {"a"}}, {"root ::= \"\" \"a\"", {"a"}, {""}},
           {"root ::= ((((\"a\"))))", {"a"}, {""}}, {"root::=\"a\"|\"b\"", {"a", "b"}, {"ab"}},
            {"root ::= \"\xE4\xB8\xAD\"", {"\xE4\xB8\xAD"}, {"\xE4\xB8"}});
}

Test(gbnf, escapes_in_texts_and_classes)
{
    EXPECT({"root ::= \"\\n\\t\\r\\\\\\\"\\[\\]\"", {"\n\t\r\\\"[]"}, {"nt"}},
           {"root ::= \"\\x41\\u00e4\\U0001F600\"", {"A\xC3\xA4\xF0\x9F\x98\x80"}, {"A"}},
           {"root ::= \"\\xE9\"", {"\xC3\xA9"}, {"\xE9"}}, {"root ::= [\\]\\[\\\\\\n\\x41-\\x43]",
            {"]", "[", "\\", "\n", "B"}, {"D", "a"}},
           {"root ::= [\\u4e00-\\u9fff]", {"\xE4\xB8\xAD"}, {"a"}}, {"root ::= \"\\ud83d\\ude00\"",
            {"\xF0\x9F\x98\x80"}, {""}});
}

Test(gbnf, classes_are_of_code_points)
{
    EXPECT({"root ::= [a-c]", {"a", "c"}, {"d", ""}}, {"root ::= [^a-c]", {"d", "\n", "\xC3\xA4", "\xF0\x9F\x98\x80"},
           {"a", "", "\xC3"}}, {"root ::= [abc-]+", {"a-b"}, {"d"}},
           {"root ::= [-+*/]", {"-", "/"}, {","}}, {"root ::= [^\"\\\\\\x00-\\x1F]*", {"abc \xC3\xA4", ""},
            {"\"", "\\", "\n"}}, {"root ::= .", {"a", "\n", "\xF0\x9F\x98\x80"}, {"", "ab", "\xF0\x9F"}},
           {"root ::= .*", {"", "a\nb"}, {"\xFF"}}, {"root ::= [^\\n]", {"a"}, {"\n"}},
            {"root ::= [#]", {"#"}, {"a"}}, {"root ::= [\xC3\xA4-\xC3\xBC]", {"\xC3\xB6"}, {"\xC3\xA3", "o"}});
}

Test(gbnf, repetition)
{
    EXPECT({"root ::= \"a\"*", {"", "aaa"}, {"b"}}, {"root ::= \"a\"+", {"a", "aa"}, {""}},
           {"root ::= \"a\"? \"b\"", {"b", "ab"}, {"aab"}}, {"root ::= [ab]{2}", {"ab"}, {"a", "aba"}},
           {"root ::= \"ab\"{1,2}", {"ab", "abab"}, {"", "ababab"}}, {"root ::= \"a\"{2,}", {"aa", "aaaa"}, {"a"}},
            {"root ::= \"a\"{,2}", {"", "aa"}, {"aaa"}},
           {"root ::= \"a\"{ 1 , 2 }", {"a", "aa"}, {""}}, {"root ::= \"a\" * \"b\"", {"aab"}, {"a"}},
            {"root ::= (\"a\" \"b\"?)+", {"a", "aba"}, {"b"}}, {"root ::= \"a\"?*", {"", "aa"}, {"b"}},
           {"root ::= x{3}\nx ::= [0-9] \".\"?", {"123", "1.2.3"}, {"12", "1234"}},
            {"root ::= \"a\"{0}", {""}, {"a"}});
}

Test(gbnf, lines_and_comments)
{
    EXPECT({"# a comment\n\nroot ::= a # another \"one\"\n  b\n\na ::= \"x\"\r\nb ::= \"y\"  #", {"xy"}, {"x"}},
           {"root ::=\n  \"a\"\n  | \"b\"\n", {"a", "b"}, {"ab"}},
           {"root ::= (\n  \"a\" |\n  \"b\" # why\n)\n", {"a", "b"}, {""}},
            {"root ::= a b\na::=\"x\"\nb::=\"y\"", {"xy"}, {"x"}}, {"root ::= \"#\"", {"#"}, {""}},
           {"the-rule ::= \"a\"\nroot ::= the-rule rule2 r_3\nrule2 ::= \"2\"\nr_3 ::= \"3\"", {"a23"}, {"a"}});
}

Test(gbnf, rules_that_hold_themselves)
{
    EXPECT({"root ::= \"a\" root \"b\" | \"\"", {"", "ab", "aaabbb"}, {"aab", "ba"}},
           {"root ::= root \"a\" | \"b\"", {"b", "baa"}, {"a", "ab"}},
           {"root ::= \"a\" root | \"b\"", {"b", "aab"}, {"a"}},
            {"root ::= x\nx ::= y \"a\" | \"c\"\ny ::= x \"b\" | \"d\"", {"c", "da", "cba", "dababa"}, {"d", "cb"}},
           {"root ::= s\ns ::= \"(\" s \")\" s |", {"", "()", "(())()", "((()))"}, {"(", ")(", "(()"}},
            {"root ::= even\neven ::= \"a\" odd |\nodd ::= \"a\" even", {"", "aa", "aaaa"}, {"a", "aaa"}});
}

static const char arithmetic[] = "root ::= expr\n"
                                 "expr ::= expr [-+] term | term\n"
                                 "term ::= term [*/] factor | factor\n"
                                 "factor ::= number | \"(\" expr \")\" | \"-\" factor\n"
                                 "number ::= [0-9]+ (\".\" [0-9]+)?\n";

static const char json[] = "root   ::= ws value\n"
                           "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
                           "object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\" ws\n"
                           "pair   ::= string \":\" ws value\n"
                           "array  ::=\n  \"[\" ws (\n    value\n    (\",\" ws value)*\n  )? \"]\" ws\n"
                           "string ::= \"\\\"\" (\n  [^\"\\\\\\x7F\\x00-\\x1F] |\n"
                           "  \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n)* \"\\\"\" ws\n"
                           "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)? ws\n"
                           "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const char moves[] = "root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")*\n"
                            "move ::= (piece | pawn | castle) [+#]?\n"
                            "piece ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
                            "pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBQR])?\n"
                            "castle ::= \"O-O\" \"-O\"?\n";

static const char list[] = "root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n";

static const char program[] = "root ::= (declaration)*\n"
                              "declaration ::= type name \"(\" parameter? \")\" \"{\" statement* \"}\"\n"
                              "type ::= (\"int\" | \"float\" | \"char\") ws\n"
                              "name ::= [a-zA-Z_] [a-zA-Z_0-9]*\n"
                              "parameter ::= type name\n"
                              "statement ::= type name ws \"=\" ws sum \";\" | name ws \"=\" ws sum \";\" | name ws \"(\" arguments? \")\" \";\"\n"
                              "            | \"return\" ws sum \";\" | \"while\" \"(\" condition \")\" \"{\" statement* \"}\"\n"
                              "condition ::= sum (\"<=\" | \"<\" | \"==\" | \"!=\" | \">=\" | \">\") sum\n"
                              "sum ::= product ((\"+\" | \"-\") product)*\n"
                              "product ::= unit ((\"*\" | \"/\") unit)*\n"
                              "unit ::= name | [0-9]+ | unary | \"(\" sum \")\" | name \"(\" arguments? \")\"\n"
                              "unary ::= \"-\" unit\n"
                              "arguments ::= sum (\",\" ws sum)*\n"
                              "ws ::= [ \\t\\n]*\n";

Test(gbnf, whole_grammars)
{
    const struct row rows[] = {
        {arithmetic, {"1", "1+2*3", "(1-2)/-4.5", "((7))"}, {"", "1+", "(1", "1.", "1 + 2"}},
        {json, {"{}", "[1, 2.5e3,\n\t\"x\\n\\u00e4\"]", "{\"a\": {\"b\": [null, true]}, \"c\": -0.1}",
         " \"\xC3\xA4\""}, {"", "{", "{\"a\"}", "[1,]", "01", "\"\n\"", "{\"a\":1,}", "\"\\x\""}},
        {moves, {"1. e4 e5\n", "1. Nf3 d5\n2. exd5 Qxd5+\n", "1. O-O O-O-O\n", "1. e8=Q Nbd7#\n"},
         {"1. e4\n", "e4 e5\n", "1. e9 e5\n", "1. Kz1 e5\n"}},
        {list, {"- a\n", "- a b\n- \xC3\xA4\n"}, {"", "- \n", "- a", "a\n"}},
        {program, {"", "int f(){}", "int main(int n){int a=1+2*n;while(a<=10){a=a+f(a, 2);}return a;}"},
         {"int f()", "int f(){return;}", "int 1(){}"}},
    };
    expect_rows(GBNF, 0, rows, (int)(sizeof rows / sizeof rows[0]));
}

Test(gbnf, special_tokens_are_named_by_text_or_number)
{
    static const struct row rows[] = {
        {"root ::= <x> \"a\"", {"\xFF" "3;a"}, {"<x>a", "a", "\xFF" "4;a"}},
         {"root ::= <[4]>", {"\xFF" "4;"}, {"\xFF" "3;"}}, {"root ::= <[1]>", {"b"}, {"a", "\xFF" "1;"}},
        {"root ::= <[1-3,0]>", {"a", "b", "c", "\xFF" "3;"}, {"\xFF" "4;"}},
         {"root ::= !<x>* <x>", {"\xFF" "3;", "abc\xFF" "4;\xFF" "3;"}, {"abc", "\xFF" "3;\xFF" "3;"}}};
    static const struct refused refused[] = {
        {"root ::= <nothing>", QR_E_INVALID, "line 1, column 10: the vocabulary has no special token <nothing>"},
         {"root ::= <[9999]>", QR_E_INVALID, "no token 9999"},
        {"root ::= </s>", QR_E_UNSUPPORTED, "ends the answer"}, {"root ::= !<x> \"a\"", QR_E_UNSUPPORTED,
         "'*' or '+'"}, {"root ::= <a", QR_E_INVALID, "never closed"},
        {"root ::= <[a]>", QR_E_INVALID, "the number of a token"}, {"root ::= <[1", QR_E_INVALID, "']>'"},
         {"root ::= !\"a\"", QR_E_INVALID, "a token"},
        {"root ::= <[^1]>", QR_E_UNSUPPORTED, "any but some"}, {"root ::= <[*]>", QR_E_UNSUPPORTED, "any token"},
        {"root ::= <[2-1]>", QR_E_TOO_LARGE, "ends before its begin"}};
    struct words w;
    struct qr_tokenizer *t = names_make(&w);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_row(&w, GBNF, 0, &rows[i]);
    expect_refused_of(&w, GBNF, refused, (int)(sizeof refused / sizeof refused[0]));
    words_free(&w);
    qr_tokenizer_close(t);
}

Test(gbnf, without_a_vocabulary_there_are_no_tokens)
{
    struct qr_exprs *x = qr_exprs_new(1 << 20);
    struct qr_err err = {0};
    int32_t root;
    cr_expect_eq(qr_gbnf_parse(&root, x, "root ::= <special>", 18, NULL, &err), QR_E_INVALID);
    cr_expect(strstr(err.msg, "no special token"), "%s", err.msg);
    qr_exprs_free(x);
}

Test(gbnf, errors_say_line_and_column_and_what_was_expected)
{
    EXPECT_REFUSED({"root ::= \"a\n\"", QR_E_INVALID, "line 1, column 10: the quote '\"' is never closed"},
                   {"root ::= [a", QR_E_INVALID, "line 1, column 10: the class '['"},
                   {"root ::= (\"a\"", QR_E_INVALID, "')' was expected, found the end"},
                    {"root ::= \"a\")", QR_E_INVALID, "column 13: ')' closes no group"},
                   {"a ::= \"a\"", QR_E_INVALID, "no rule named root"}, {"", QR_E_INVALID, "no rule named root"},
                    {"root \"a\"", QR_E_INVALID, "column 6: '::=' was expected, found '\"'"},
                   {"root ::= a\n", QR_E_INVALID, "line 1, column 10: the rule a is named, but not defined"},
                    {"root ::= \"a\"\nb ::= c", QR_E_INVALID, "line 2, column 7: the rule c"},
                   {"root ::= \"a\"\nroot ::= \"b\"", QR_E_INVALID,
                    "line 2, column 1: the rule root is defined twice"},
                    {"root ::= *", QR_E_INVALID, "a rule's name, a text in quotes"},
                   {"root ::= \"a\"{", QR_E_INVALID, "a count was expected"},
                    {"root ::= \"a\"{2", QR_E_INVALID, "'}' was expected"},
                    {"root ::= \"a\"{3,1}", QR_E_INVALID, "maximum below"},
                   {"root ::= \"a\"{100001}", QR_E_TOO_LARGE, "above 100000"},
                    {"root ::= []", QR_E_INVALID, "a class without characters"},
                    {"root ::= [b-a]", QR_E_INVALID, "ends before its begin"},
                   {"root ::= \"\\q\"", QR_E_INVALID, "the escape \\q"},
                    {"root ::= \"\\x4\"", QR_E_INVALID, "2 hexadecimal digits"},
                    {"root ::= \"\\ud800\"", QR_E_INVALID, "half of a pair"},
                   {"root ::= \"\xFF\"", QR_E_INVALID, "column 11: the text is not valid UTF-8"},
                    {"| ::= \"a\"", QR_E_INVALID, "a rule's name was expected, found '|'"});
}

Test(gbnf, groups_nest_200_deep_and_no_deeper)
{
    struct words w;
    words_make(&w, NULL);
    for (int depth = 200; depth <= 201; depth++) {
        struct qr_buf text = {0};
        qr_buf_put_str(&text, "root ::= ");
        for (int i = 0; i < depth; i++)
            qr_buf_put_str(&text, "(");
        qr_buf_put_str(&text, "\"a\"");
        for (int i = 0; i < depth; i++)
            qr_buf_put_str(&text, ")");
        if (depth == 200) {
            struct qr_grammar *g = compile(&w, GBNF, 0, text.data);
            cr_expect(takes(g, "a") && !takes(g, ""));
            qr_grammar_unref(g);
        } else {
            const struct refused row = {text.data, QR_E_TOO_LARGE, "nested more than 200 deep"};
            expect_refused(GBNF, &row, 1);
        }
        qr_buf_release(&text);
    }
    words_free(&w);
}

Test(gbnf, a_thousand_rules_in_a_chain_are_taken)
{
    struct words w;
    struct qr_buf text = {0};
    words_make(&w, NULL);
    qr_buf_put_str(&text, "root ::= r0\n");
    for (int i = 0; i < 1000; i++)
        qr_buf_printf(&text, "r%d ::= \"(\" r%d \")\" | [a-c]\n", i, i + 1);
    qr_buf_put_str(&text, "r1000 ::= \"x\"\n");
    struct qr_grammar *g = compile(&w, GBNF, 0, text.data);
    cr_expect(takes(g, "a") && takes(g, "((b))") && !takes(g, "((b)") && !takes(g, "x"));
    qr_grammar_unref(g);
    qr_buf_release(&text);
    words_free(&w);
}

Test(gbnf, grammars_have_1_mib_and_no_more)
{
    enum { MAX = 1 << 20 };
    struct words w;
    char *text = calloc(MAX + 2, 1);
    memset(text, ' ', MAX + 1);
    memcpy(text, "root ::= \"a\"", 12);
    text[MAX] = 0;
    words_make(&w, NULL);
    struct qr_grammar *g = compile(&w, GBNF, 0, text);
    cr_expect(takes(g, "a"));
    qr_grammar_unref(g);
    words_free(&w);
    text[MAX] = ' ';
    const struct refused row = {text, QR_E_TOO_LARGE, "at most 1048576"};
    expect_refused(GBNF, &row, 1);
    free(text);
}
