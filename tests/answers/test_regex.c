/* test_regex.c - regular expressions of users: what each construct matches and does not, in a text and inside JSON strings, and what is
 * refused by name. */
#include "languages.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"

/* ---- whole texts, and the same inside JSON ---- */

/* The inside of a JSON string, with characters as they stand, or with all that are not ASCII as escapes. */
static void put_json(struct qr_buf *out, const char *text, bool ascii)
{
    struct qr_buf plain = {0};
    qr_json_put_str(&plain, text, strlen(text));
    qr_buf_clear(out);
    qr_buf_put_str(out, "");
    for (size_t i = 1; i + 1 < plain.len;) {
        uint32_t rune = 0;
        const int32_t n = qr_utf8_decode(plain.data + i, plain.len - i, &rune);
        if (rune < 0x80 || !ascii)
            qr_buf_put(out, plain.data + i, (size_t)n);
        else if (rune < 0x10000)
            qr_buf_printf(out, "\\u%04x", rune);
        else
            qr_buf_printf(out, "\\u%04x\\u%04X", 0xD800 + ((rune - 0x10000) >> 10),
                0xDC00 + ((rune - 0x10000) & 0x3FF));
        i += (size_t)n;
    }
    qr_buf_release(&plain);
}

static void expect_same_in_json(const struct words *w, struct qr_grammar *g, const char *pattern, const char *text,
    bool want)
{
    struct qr_buf json = {0};
    for (int ascii = 0; ascii < 2; ascii++) {
        put_json(&json, text, ascii);
        cr_expect_eq(takes(g, json.data), want, "%s inside JSON\nshould %s: %s", pattern, want ? "take" : "refuse",
            json.data);
    }
    qr_buf_release(&json);
}

static void expect_texts(int flags, const struct row *row, int n)
{
    struct words w;
    words_make(&w, NULL);
    expect_rows(TEXT, flags, row, n);
    for (int k = 0; k < n; k++) {
        struct qr_grammar *g = compile(&w, JSON_WHOLE, flags, row[k].grammar);
        for (int i = 0; row[k].yes[i]; i++)
            expect_same_in_json(&w, g, row[k].grammar, row[k].yes[i], true);
        for (int i = 0; row[k].no[i]; i++)
            expect_same_in_json(&w, g, row[k].grammar, row[k].no[i], false);
        qr_grammar_unref(g);
    }
    words_free(&w);
}

#define EXPECT_TEXTS(flags, ...)                                              \
    do {                                                                      \
        static const struct row rows[] = {__VA_ARGS__};                       \
        expect_texts(flags, rows, (int)(sizeof rows / sizeof rows[0]));       \
    } while (0)

Test(regex, literals_stand_for_themselves)
{
    EXPECT_TEXTS(0, {"", {""}, {"a", " "}}, {"abc", {"abc"}, {"", "ab", "abcd", "ABC"}},
                 {"a/b-c,d", {"a/b-c,d"}, {"a/b-c.d"}},
                 {"\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80", {"\xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80"},
                  {"\xC3\xA4", "\xE4\xB8\xAD"}},
                 {"a{b}c]", {"a{b}c]"}, {"ab"}}, {"{", {"{"}, {""}}, {"x{1,y}", {"x{1,y}"}, {"x"}},
                  {"\\{\\}\\.\\*\\/\\-\\_", {"{}.*/-_"}, {"{}a*/-_"}},
                 {"\"\\\\", {"\"\\"}, {"\\\""}});
}

Test(regex, alternatives_and_groups_nest)
{
    EXPECT_TEXTS(0, {"a|b|cd", {"a", "b", "cd"}, {"c", "d", "ab", ""}}, {"a|", {"a", ""}, {"b"}},
                 {"(a|b)c", {"ac", "bc"}, {"a", "abc"}},
                 {"(?:a(b|(c|d)e))f", {"abf", "acef", "adef"}, {"aef", "abcef"}},
                  {"(?<n>a)(?P<m>b)", {"ab"}, {"a", "b"}},
                 {"()", {""}, {"a"}}, {"a(?#a comment)b", {"ab"}, {"a"}},
                 {"one|two|three|four|five|six", {"one", "two", "three", "six"}, {"on", "fi", "sixx", "onetwo"}});
}

Test(regex, repetition_counts)
{
    EXPECT_TEXTS(0, {"a*", {"", "a", "aaaa"}, {"b", "ab"}}, {"a+", {"a", "aaa"}, {"", "b"}},
                 {"ab?", {"a", "ab"}, {"abb", "b"}},
                 {"a{3}", {"aaa"}, {"aa", "aaaa"}}, {"a{2,}", {"aa", "aaaaa"}, {"a", ""}},
                  {"a{1,3}", {"a", "aa", "aaa"}, {"", "aaaa"}},
                 {"a{0}", {""}, {"a"}}, {"a{0,0}b", {"b"}, {"ab"}}, {"(ab)*c", {"c", "abc", "ababc"}, {"ac", "abab"}},
                 {"(a|b)*c{3}", {"ccc", "abbaccc"}, {"cc", "cccc"}}, {"a*?b+?c??", {"b", "aabbc"}, {"a", "c"}},
                  {"(a*)*", {"", "aaa"}, {"b"}},
                 {"(a?){3}", {"", "a", "aaa"}, {"aaaa"}}, {"(?:)*a", {"a"}, {"", "aa"}},
                  {"a{1000}", {NULL}, {"aaa"}});
}

Test(regex, a_text_may_leave_out_the_least_count_where_no_json_is_matched)
{
    static const struct row text = {"a{,2}", {"", "a", "aa"}, {"aaa", "a{,2}"}},
        json = {"^a{,2}$", {"a{,2}"}, {"", "a", "aa"}};
    expect_rows(TEXT, 0, &text, 1);
    expect_rows(JSON, 0, &json, 1);
}

Test(regex, classes_hold_ranges_escapes_and_their_complements)
{
    EXPECT_TEXTS(0, {"[abc]", {"a", "b", "c"}, {"d", "", "ab"}}, {"[^abc]",
                 {"d", "\n", "\xC3\xA4", "\xF0\x9F\x98\x80"}, {"a", ""}},
                 {"[a-cx-z]+", {"abcxyz"}, {"d", "w"}}, {"[-a]", {"-", "a"}, {"b"}}, {"[a-]", {"-", "a"}, {"b"}},
                  {"[\\w-]", {"-", "a", "_"}, {"."}},
                 {"[A-Z0-9-_]+", {"A-_9"}, {"a", "."}}, {"[+--]", {"+", ",", "-"}, {".", "*"}},
                  {"[\\d-x]", {"-", "3", "x"}, {"a"}},
                 {"[\\]\\[\\\\^]", {"]", "[", "\\", "^"}, {"a"}}, {"[a^]", {"a", "^"}, {"b"}},
                  {"[.*+?(){}|$/]+", {".*+?(){}|$/"}, {"a"}},
                 {"[\\d\\s]", {"5", " ", "\t"}, {"a"}}, {"[^\\d\\s]", {"a", "-"}, {"5", " "}},
                  {"[\\D]", {"a"}, {"5"}}, {"[^\\D]", {"5"}, {"a"}},
                 {"[\\b]", {"\b"}, {"b"}}, {"[\xC3\xA4-\xC3\xBC]", {"\xC3\xA4", "\xC3\xBC"},
                  {"\xC3\xA3", "\xC3\xBD", "a"}},
                 {"[\\u{1F600}-\\u{1F64F}]", {"\xF0\x9F\x98\x80"}, {"\xF0\x9F\x9A\x80", "a"}},
                  {"[^\\x00-\\x7F]", {"\xC3\xA4"}, {"a"}},
                 {"[[a]", {"[", "a"}, {"b"}});
}

Test(regex, an_empty_class_is_ecmascripts_in_json_and_a_bracket_elsewhere)
{
    static const struct row text[] = {{"[]a]", {"]", "a"}, {"b"}}, {"[^]a]", {"b"}, {"]", "a"}}};
    static const struct row json[] = {{"^[^]$", {"a", "\\n"}, {"", "ab"}}, {"^[]|a$", {"a", "xa"}, {"", "b"}}};
    static const struct refused two[] = {{"[]a]", QR_E_UNSUPPORTED, "character 1: '[]' means two things"},
                                         {"x[^]a]", QR_E_UNSUPPORTED, "character 2: '[^]' means two things"}};
    expect_rows(TEXT, 0, text, 2);
    expect_rows(JSON, 0, json, 2);
    expect_refused(JSON, two, 2);
}

Test(regex, escapes_name_characters)
{
    EXPECT_TEXTS(0, {"\\n\\t\\r\\f\\v", {"\n\t\r\f\v"}, {"ntrfv"}}, {"\\x41\\u0042\\u{43}\\x{44}\\U00000045",
                 {"ABCDE"}, {"abcde"}},
                 {"\\cA\\cz", {"\x01\x1A"}, {"Az"}}, {"\\ud83d\\ude00", {"\xF0\x9F\x98\x80"}, {""}},
                  {"\\u00e4", {"\xC3\xA4"}, {"\xE4", "a"}},
                 {"a|\\ud83d", {"a"}, {"\xF0\x9F\x98\x80", ""}});
}

Test(regex, classes_of_ecmascript_know_ascii_and_all_blanks)
{
    EXPECT_TEXTS(0, {"\\d", {"0", "9"}, {"a", "\xD9\xA3"}}, {"\\D", {"a", "\xD9\xA3"}, {"0"}},
                 {"\\w+", {"aZ_09"}, {"-", "\xC3\xA4"}},
                 {"\\W", {"-", "\xC3\xA4", " "}, {"a", "_"}},
                 {"\\s", {" ", "\t", "\n", "\v", "\xC2\xA0", "\xE2\x80\x83", "\xE3\x80\x80", "\xEF\xBB\xBF"},
                  {"a", "\xE2\x80\x8B"}},
                 {"\\S", {"a", "\xE2\x80\x8B"}, {" ", "\xC2\xA0"}});
}

Test(regex, a_dot_is_any_character_but_a_line_end)
{
    static const struct row text = {"a.b", {"a.b", "a\xF0\x9F\x98\x80" "b", "a\rb"},
        {"a\nb", "ab", "a\xF0\x9F\x98" "b"}};
    static const struct row json = {"^a.b$", {"axb", "a\\\"b", "a\\\\b", "a\\u00e4b"},
        {"a\\nb", "a\\rb", "a\\u2028b", "a\xE2\x80\xA8" "b", "ab", "a\\b"}};
    expect_rows(TEXT, 0, &text, 1);
    expect_rows(JSON, 0, &json, 1);
    EXPECT_TEXTS(QR_REGEX_DOT_ALL, {"a.b", {"a\nb", "a\rb", "axb"}, {"ab"}});
    EXPECT_TEXTS(0, {"(?s)a.b", {"a\nb"}, {"ab"}}, {"(?s:a.)b.", {"a\nbc"}, {"a\nb\n"}},
                 {"(?s)(?-s:.).", {"a\n"}, {"\na"}});
}

Test(regex, properties_are_general_categories_and_scripts)
{
    EXPECT_TEXTS(0, {"\\p{Lu}+", {"A\xC3\x84\xCE\xA9"}, {"a", "1"}}, {"\\p{Letter}",
                 {"a", "\xC3\xA4", "\xE4\xB8\xAD"}, {"1", "_"}},
                 {"\\pL\\p{L}\\p{gc=L}\\p{General_Category=Letter}", {"abcd"}, {"abc1"}},
                  {"\\P{L}", {"1", " "}, {"a"}}, {"\\p{^L}", {"1"}, {"a"}},
                 {"\\p{Nd}", {"1", "\xD9\xA3"}, {"a"}}, {"[\\p{L}\\p{N}_]+", {"a1_\xC3\xA4"}, {"-"}},
                  {"[^\\p{P}]", {"a"}, {"."}},
                 {"\\p{Script=Greek}", {"\xCE\xA9"}, {"a"}}, {"\\p{sc=Han}", {"\xE4\xB8\xAD"}, {"\xE3\x81\x82"}},
                  {"\\p{Cyrillic}+", {"\xD0\x96\xD1\x8F"}, {"a"}},
                 {"\\p{ASCII}", {"a", "\x7F"}, {"\xC3\xA4"}}, {"\\p{Any}", {"a", "\xF0\x9F\x98\x80"}, {"", "ab"}},
                  {"\\p{uppercase letter}", {"A"}, {"a"}},
                 {"\\p{Lo}+", {"\xE4\xB8\x80\xF0\xA0\x80\x80\xEA\xB0\x80"}, {"a"}},
                  {"\\p{Cn}", {"\xF3\x90\x80\x80"}, {"a"}});
}

Test(regex, case_does_not_matter_where_a_flag_says_so)
{
    EXPECT_TEXTS(QR_REGEX_CASELESS, {"abc", {"abc", "ABC", "aBc"}, {"abd"}}, {"[a-c]", {"B"}, {"D"}},
                 {"[^a-c]", {"d", "D"}, {"B", "b"}},
                 {"\xC3\xA4", {"\xC3\xA4", "\xC3\x84"}, {"a"}}, {"\xCF\x83", {"\xCF\x83", "\xCE\xA3", "\xCF\x82"},
                  {"s"}},
                 {"k1", {"k1", "K1", "\xE2\x84\xAA" "1"}, {"k2"}}, {"\\p{Lu}", {"A", "a"}, {"1"}},
                  {"[\\u0410-\\u042f]", {"\xD0\xB0"}, {"a"}}, {"i", {"i", "I"}, {"\xC4\xB1", "\xC4\xB0"}});
    EXPECT_TEXTS(0, {"(?i)ab", {"AB", "ab"}, {"a"}}, {"a(?i:b)c", {"abc", "aBc"}, {"Abc", "abC"}},
                 {"a(?i)b", {"ab", "aB"}, {"Ab"}},
                 {"(?i:a(?-i)b)c", {"abc", "Abc"}, {"aBc", "abC"}}, {"(?i)\\x41", {"a", "A"}, {"b"}});
}

/* ---- anchors and searching ---- */

#define EXPECT_JSON(...)                                                      \
    do {                                                                      \
        static const struct row rows[] = {__VA_ARGS__};                       \
        expect_rows(JSON, 0, rows, (int)(sizeof rows / sizeof rows[0]));      \
    } while (0)

Test(regex, a_pattern_of_json_schema_is_found_anywhere)
{
    EXPECT_JSON({"a", {"a", "xa", "ax", "\\na\\\\", "\\u00e4a"}, {"", "x", "\\", "\na"}},
                {"", {"", "x"}, {"\"", "\\x"}}, {".*", {"", "\\n"}, {"\n"}},
                {"[0-9]{2,}", {"12", "x123y"}, {"1", "1a2"}}, {"f.*o", {"fo", "xfyyox"}, {"of", "f"}});
}

Test(regex, anchors_hold_for_each_alternative)
{
    EXPECT_JSON({"^a", {"a", "ab"}, {"ba", ""}}, {"a$", {"a", "ba"}, {"ab", ""}}, {"^a$", {"a"}, {"aa", ""}},
                {"^a|b$", {"a", "ax", "b", "xb", "axb"}, {"xa", "bx", ""}},
                {"^(a|b)$", {"a", "b"}, {"ab", "ax"}}, {"(^|x)a", {"a", "xa", "yxa"}, {"ya", "x"}},
                 {"a($|y)", {"a", "xa", "ayz"}, {"ax"}},
                {"^zip|tar$", {"zip", "zipx", "tar", "xtar"}, {"xzip", "tarx"}},
                 {"(^a)?b", {"ab", "b", "xab"}, {"a"}}, {"^^a$$", {"a"}, {"aa"}},
                {"^$", {""}, {"a"}}, {"x*^a", {"a", "ab"}, {"xa", ""}}, {"a$x*", {"a", "ba"}, {"ax"}},
                 {"a^b", {NULL}, {"ab", "", "b"}},
                {"$a", {NULL}, {"a", ""}}, {"\\Aab\\z", {"ab"}, {"xab", "abx"}},
                 {"(?:^|,)1(?:,|$)", {"1", "1,", "2,1", "3,1,2"}, {"11", "12", "21"}});
}

Test(regex, anchors_in_a_repetition_hold_at_its_ends)
{
    EXPECT_TEXTS(0, {"(\\d+(,|$))+", {"1", "1,22", "1,2,3", "1,"}, {",1", "1;2", ""}},
                 {"((^|,)\\d)+", {"1", "1,2", ",1"}, {"12", "1,"}},
                 {"(^a|b)*", {"", "a", "ab", "bb"}, {"ba", "aa"}}, {"(^|a){2}b", {"b", "ab", "aab"}, {"aaab"}},
                  {"(a|$){2}", {"a", "", "aa"}, {"aaa"}},
                 {"(a$|b){1,3}", {"a", "bba", "b"}, {"ab", "bbbb"}}, {"(?:^x)?y", {"xy", "y"}, {"xxy"}});
    EXPECT_JSON({"(^a|b){2}", {"ab", "bb", "xbb"}, {"aa", "xab", "b"}},
                {"(?:^|;)(x(;|$))+", {"x", "x;x", "y;x;"}, {"yx", "xy"}});
}

/* ---- looks ---- */

Test(regex, look_aheads_filter_what_follows)
{
    EXPECT_TEXTS(0, {"(?!foo).*", {"", "fo", "xfoo"}, {"foo", "foobar"}},
                 {"(?=.*\\d)(?=.*[a-z]).{2,4}", {"a1", "1ab", "xx1"}, {"aa", "11", "a", "abcd1"}},
                 {"(?!.*--)[a-z-]+", {"a-b", "-"}, {"a--b", ""}}, {"a(?=b)[a-c]", {"ab"}, {"ac", "a"}},
                  {"a(?!b)[a-c]", {"ac", "aa"}, {"ab"}},
                 {"(?!a$)[ab]+", {"b", "aa", "ab"}, {"a"}}, {"x(?=y|$)y?", {"x", "xy"}, {"y"}},
                  {"(a(?=b)|c)[bd]", {"ab", "cb", "cd"}, {"ad"}},
                 {"((?!foo).)*", {"", "fo", "barfo"}, {"foo", "xfoo", "foox"}},
                  {"(?:(?!ab)[ab])+", {"b", "a", "bba"}, {"ab", "bab", ""}},
                 {"(?:(?=a)[ab]){2}", {"aa"}, {"ab", "ba"}}, {"(?:(?!ab)aa|b)*", {"", "baa", "aab", "b"},
                  {"ab", "bab"}}, {"(?!)", {NULL}, {""}},
                 {"(?=(?!a)b|c)[abc]x", {"bx", "cx"}, {"ax"}}, {"(?!^a)[ab]", {"b"}, {"a"}},
                  {"(^|$)(?=a)ab", {"ab"}, {"b"}},
                 {"($|(?=b))^b", {"b"}, {"", "a"}});
    EXPECT_JSON({"^(?!.*\\bfoo\\b).*$", {"", "food", "a bar"}, {"foo", "a foo b"}},
                {"^(?!foo)", {"", "bar", "fo"}, {"foo", "foox"}}, {"(?!^)a", {"xa", "aa"}, {"a", "ax"}},
                {"a(?!b)", {"a", "ac", "abac"}, {"ab", "b"}},
                {"^(?!(x|\\n)).", {"a\\n"}, {"x", "\\n", ""}}, {"^(?=.{3}$)[ab]*$", {"aba"}, {"ab", "abab"}},
                 {"^(?!.*\\.\\.)[a-z.]+$", {"a.b"}, {"a..b"}});
}

/* Counts above the longest token are rounded for masks; not where they decide what is denied. */
Test(regex, counts_in_looks_are_exact)
{
    EXPECT_JSON({"0(?:^|-\\b(?!\\S{3}|\\S\\b))", {"0-b_", "x0-b_"}, {"0-bcd", "0-b"}},
                {"^(?!a{3}).*$", {"aab", "aa", ""}, {"aaa", "aaab"}}, {"^(?=.{5}$)a*b{2}$", {"aaabb"}, {"aabb", "aaaabb"}});
}

Test(regex, look_behinds_filter_what_precedes)
{
    EXPECT_TEXTS(0, {"[a-z-]+(?<!-)", {"a", "a-b"}, {"a-", "-"}}, {"(?!-)[a-z-]+(?<!-)", {"a", "a-b"}, {"a-", "-a"}},
                 {"[ab]+(?<=b)c", {"abc", "bc"}, {"ac", "c"}},
                 {"[ab](?<!a)c", {"bc"}, {"ac"}}, {"(?<!x)a", {"a"}, {"xa"}}, {"(?<=^a)b", {NULL}, {"b", "ab"}},
                  {"(x(?<=x)y)+", {"xy", "xyxy"}, {"x"}});
    EXPECT_JSON({"^(?=.{1,9}$)(?!-)[a-z-]{1,3}(?<!-)(\\.(?!-)[a-z-]{1,3}(?<!-))*$", {"a", "a-b.c", "abc.abc.d"},
                 {"", "-a", "a-", "a.-b", "a.b-", "abcd", "abc.abc.ab"}});
    EXPECT_JSON({"^.*\\bfoo\\b.*$", {"foo", "a foo!"}, {"food", "", "xfoo"}}, {"^(?!a)(?=.*b$)\\w+\\b", {"bb", "cb"}, {"ab", "cb a", "c"}});
    EXPECT_JSON({"(?<!x)a", {"a", "ya", "xaa"}, {"xa", "x"}}, {"(?<=x)a", {"xa", "yxa"}, {"a", "ya"}},
                {"^.*(?<!\\.)$", {"", "a"}, {"a.", "."}},
                {"(?<=^x)a", {"xa"}, {"yxa", "a"}});
}

Test(regex, word_boundaries_are_known_where_both_sides_are)
{
    EXPECT_JSON({"\\bfoo\\b", {"foo", "a foo b", "-foo-"}, {"foot", "xfoo", "fo"}},
                {"\\bfoo", {"foo", "x foot"}, {"xfoo"}}, {"^foo\\b", {"foo", "foo!", "foo bar"}, {"food", "x foo"}},
                {"^foo\\b.*", {"foo", "foo b"}, {"foob"}}, {"foo\\B", {"food"}, {"foo", "foo "}},
                 {"\\b", {"a", " a"}, {"", "- "}}, {"^\\w+\\b.$", {"ab.", "a-"}, {"ab", "."}},
                {"^(a\\b|ab)-?$", {"a", "a-", "ab", "ab-"}, {"b"}}, {"^(?!foo\\b)\\w+", {"food", "bar"},
                 {"foo", "foo x"}}, {"\\b\\d{3}\\b", {"123", "a 123."}, {"1234", "a123"}},
                {"^(a\\b.)*$", {"", "a-", "a-a "}, {"ab", "a"}});
}

/* ---- what is refused ---- */

Test(regex, what_is_not_regular_or_not_known_is_refused_by_name)
{
    static const struct refused rows[] = {
        {"(a)\\1", QR_E_UNSUPPORTED, "character 4: back references"}, {"(?P<n>a)(?P=n)", QR_E_UNSUPPORTED,
         "character 9: back references"},
        {"\\k<n>", QR_E_UNSUPPORTED, "back references"}, {"(?>a)", QR_E_UNSUPPORTED, "atomic groups"},
         {"a++", QR_E_UNSUPPORTED, "possessive"},
        {"(?(1)a|b)", QR_E_UNSUPPORTED, "conditions"}, {"(?R)", QR_E_UNSUPPORTED, "recursion"},
         {"(?m)^a", QR_E_UNSUPPORTED, "the flag m"},
        {"(?x) a", QR_E_UNSUPPORTED, "the flag x"}, {"[[:alpha:]]", QR_E_UNSUPPORTED, "character 2: POSIX classes"},
         {"[a&&b]", QR_E_UNSUPPORTED, "'&&'"},
        {"\\p{Emoji}", QR_E_UNSUPPORTED, "\\p{Emoji}"}, {"\\p{Script=Klingon}", QR_E_UNSUPPORTED, "Script=Klingon"},
         {"\\Q.\\E", QR_E_UNSUPPORTED, "\\Q"},
        {"\\y", QR_E_UNSUPPORTED, "\\y"}, {"\\012", QR_E_UNSUPPORTED, "octal"},
         {"\\N{DIGIT ONE}", QR_E_UNSUPPORTED, "\\N"}, {"(?=a)*", QR_E_UNSUPPORTED, "repeated look-ahead"},
        {"(?:a(?!b)|b)*", QR_E_UNSUPPORTED, "character 5: a look-ahead within a repetition"},
         {"(?:(?!ab).)*c", QR_E_UNSUPPORTED, "look-ahead within a repetition"},
         {"(a\\b)*", QR_E_UNSUPPORTED, "word boundary within a repetition"},
        {"x*(?:\\bfoo|b)", QR_E_UNSUPPORTED, "word boundary behind what is not known"},
         {"(?:a|(?<=xy)b)+", QR_E_UNSUPPORTED, "look-behind behind what is not known"},
        {"(?<=a(?=b))c", QR_E_UNSUPPORTED, "look-behind that looks ahead"},
    };
    expect_refused(TEXT, rows, (int)(sizeof rows / sizeof rows[0]));
}

Test(regex, errors_say_the_place_and_what_was_expected)
{
    static const struct refused rows[] = {
        {"a(b", QR_E_INVALID, "character 2: the group '(' is never closed"},
         {"a)b", QR_E_INVALID, "character 2: ')' closes no group"},
        {"\xC3\xA4[b", QR_E_INVALID, "character 2: the class '[' is never closed"},
         {"*a", QR_E_INVALID, "character 1: there is nothing to repeat"},
        {"a|{2}", QR_E_INVALID, "character 3: there is nothing to repeat"}, {"^*", QR_E_INVALID, "nothing to repeat"},
         {"a**", QR_E_INVALID, "character 3: a repetition of a repetition"},
        {"a{2}{3}", QR_E_INVALID, "needs a group"}, {"a{3,2}", QR_E_INVALID, "maximum below"},
         {"a{100001}", QR_E_TOO_LARGE, "above 100000"}, {"a{1,99999999999}", QR_E_TOO_LARGE, "above 100000"},
        {"[b-a]", QR_E_INVALID, "ends before its begin"}, {"\\", QR_E_INVALID, "behind a backslash"},
         {"\\x4", QR_E_INVALID, "2 hexadecimal digits"},
        {"\\u12", QR_E_INVALID, "4 hexadecimal digits"}, {"\\u{110000}", QR_E_INVALID, "hexadecimal digits"},
         {"\\p{L", QR_E_INVALID, "a property in braces"}, {"\\c1", QR_E_INVALID, "a letter"},
        {"(?<>a)", QR_E_INVALID, "a group's name"}, {"(?#a", QR_E_INVALID, "comment"},
         {"(?", QR_E_INVALID, "a kind of group"}, {"a\xFF", QR_E_INVALID,
         "character 2: the pattern is not valid UTF-8"},
    };
    expect_refused(TEXT, rows, (int)(sizeof rows / sizeof rows[0]));
}

static char *nested(int depth)
{
    char *text = calloc((size_t)depth * 2 + 2, 1);
    memset(text, '(', (size_t)depth);
    text[depth] = 'a';
    memset(text + depth + 1, ')', (size_t)depth);
    return text;
}

Test(regex, groups_nest_200_deep_and_no_deeper)
{
    struct words w;
    char *ok = nested(200), *deep = nested(201);
    const struct refused row = {deep, QR_E_TOO_LARGE, "nested more than 200 deep"};
    words_make(&w, NULL);
    struct qr_grammar *g = compile(&w, TEXT, 0, ok);
    cr_expect(takes(g, "a") && !takes(g, ""));
    qr_grammar_unref(g);
    words_free(&w);
    expect_refused(TEXT, &row, 1);
    free(ok);
    free(deep);
}

Test(regex, patterns_have_64_kib_and_no_more)
{
    struct words w;
    enum { MAX = 64 << 10 };
    char *text = calloc(MAX + 2, 1);
    memset(text, 'a', MAX);
    words_make(&w, NULL);
    struct qr_grammar *g = compile(&w, TEXT, 0, text);
    cr_expect(takes(g, text) && !takes(g, "a"));
    qr_grammar_unref(g);
    words_free(&w);
    text[MAX] = 'a';
    const struct refused row = {text, QR_E_TOO_LARGE, "at most 65536"};
    expect_refused(TEXT, &row, 1);
    free(text);
}

Test(regex, looks_that_multiply_are_refused_within_bounds)
{
    struct qr_buf text = {0};
    for (int i = 0; i < 20; i++)
        qr_buf_put_str(&text, "(?:");
    qr_buf_put_str(&text, "^a$|b");
    for (int i = 0; i < 20; i++)
        qr_buf_put_str(&text, ")*x");
    const struct refused row = {text.data, QR_E_TOO_LARGE, "nested too deep"};
    expect_refused(TEXT, &row, 1);
    qr_buf_release(&text);
}
