#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/full.h"

static const struct qr_json_limits loose = {.bytes_max = 1 << 20, .values_max = 1 << 20, .depth_max = 64, .nul_ok = true};
static const struct qr_json_limits strict = {.bytes_max = 1 << 20, .values_max = 1 << 20, .depth_max = 64, .nul_ok = false};

/* Scans to the end; the first code that is not 0. The text is copied into a block of its own size, so that the address
 * sanitizer sees a read behind it. */
static int scan(const char *text, size_t len, const struct qr_json_limits *limits, struct qr_err *err)
{
    char *exact = malloc(len ? len : 1);
    memcpy(exact, text, len);
    struct qr_json_scan *s = qr_json_scan_new(exact, len, limits);
    struct qr_json_token t;
    int rc;
    while ((rc = qr_json_next(s, &t, err)) == 0 && t.event != QR_JSON_DONE)
        ;
    struct qr_err again = {0};
    cr_assert_eq(qr_json_next(s, &t, &again), rc, "the scan stays where it is");
    cr_assert_eq(t.event, QR_JSON_DONE);
    if (rc)
        cr_assert_str_eq(again.msg, err->msg);
    qr_json_scan_free(s);
    free(exact);
    return rc;
}

static bool accepts(const char *text)
{
    struct qr_err err;
    return scan(text, strlen(text), &loose, &err) == 0;
}

Test(json_scan, gives_the_tokens_in_order)
{
    static const char text[] = " {\"a\" : [1, \"x\\n\", true ,false,null, -2.5e+1], \"\":{}} ";
    static const struct {
        enum qr_json_event event;
        const char *text;
        size_t offset;
    } want[] = {{QR_JSON_OBJECT_BEGIN, "{", 1}, {QR_JSON_KEY, "a", 2},       {QR_JSON_ARRAY_BEGIN, "[", 8}, {QR_JSON_NUMBER, "1", 9},
                {QR_JSON_STRING, "x\\n", 12},   {QR_JSON_TRUE, "true", 19},  {QR_JSON_FALSE, "false", 25},  {QR_JSON_NULL, "null", 31},
                {QR_JSON_NUMBER, "-2.5e+1", 37}, {QR_JSON_ARRAY_END, "]", 44}, {QR_JSON_KEY, "", 47},       {QR_JSON_OBJECT_BEGIN, "{", 50},
                {QR_JSON_OBJECT_END, "}", 51},  {QR_JSON_OBJECT_END, "}", 52}, {QR_JSON_DONE, "", 54}};
    struct qr_json_scan *s = qr_json_scan_new(text, strlen(text), &loose);
    struct qr_json_token t;
    struct qr_err err;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        cr_assert_eq(qr_json_next(s, &t, &err), 0);
        cr_assert_eq(t.event, want[i].event, "token %zu", i);
        cr_assert_eq(t.offset, want[i].offset, "token %zu at %zu", i, t.offset);
        cr_assert(t.len == strlen(want[i].text) && memcmp(t.text, want[i].text, t.len) == 0, "token %zu", i);
        cr_assert_eq(t.escaped, i == 4);
    }
    qr_json_scan_free(s);
}

Test(json_scan, accepts_what_the_grammar_allows)
{
    static const char *const good[] = {
        "0", "-0", "-0.0", "1e5", "1E+5", "1e-999", "123456789012345678901234567890", "0.1e1", "1.7976931348623157e308", "0e999999999999",
        "\"\"", "\" \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u00e9 \\uD83D\\uDE00 \"", "\"\\u0000\"", "\"\x7f\"", "\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"",
        "\"\xF4\x8F\xBF\xBF\"", "\"\\uFFFF\\uFDD0\"", "[]", "{}", "[[],{}]", "\t\r\n [ 1 , 2 ]\n", "{\"a\":{\"a\":{\"a\":1}},\"A\":2}", "true", "false", "null",
        "{\"a\":1,\"b\":{\"a\":1,\"b\":2}}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert(accepts(good[i]), "refused: %s", good[i]);
}

Test(json_scan, says_where_and_what_is_wrong)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "line 1, column 1: expected a JSON value in an empty text, found the end of the text"},
        {" \n ", "line 2, column 2: expected a value, found the end of the text"},
        {"{", "line 1, column 2: expected a key in double quotes or '}', found the end of the text"},
        {"[", "line 1, column 2: expected a value, found the end of the text"},
        {"[1,]", "line 1, column 4: expected a value (object, array, string, number, true, false or null), found ']'"},
        {"[,1]", "line 1, column 2: expected a value (object, array, string, number, true, false or null), found ','"},
        {"{\"a\":1,}", "line 1, column 8: expected a key in double quotes, found '}'"},
        {"{\n  'a': 1}", "line 2, column 3: expected a key in double quotes or '}', found '''"},
        {"{\"a\" 1}", "line 1, column 6: expected ':' after the key, found '1'"},
        {"{\"a\":}", "line 1, column 6: expected a value (object, array, string, number, true, false or null), found '}'"},
        {"[1 2]", "line 1, column 4: expected ',' or ']', found '2'"},
        {"{\"\xC3\xA9\":1 \x01", "line 1, column 8: expected ',' or '}', found byte 0x01"},
        {"[1}", "line 1, column 3: expected ',' or ']', found '}'"},
        {"{} {}", "line 1, column 4: expected the end of the text, found '{'"},
        {"1 //", "line 1, column 3: expected the end of the text, found '/'"},
        {"\xEF\xBB\xBF{}", "line 1, column 1: expected a value (object, array, string, number, true, false or null), found a byte order mark"},
        {"NaN", "line 1, column 1: expected a value (object, array, string, number, true, false or null), found 'N'"},
        {"-Infinity", "line 1, column 2: expected a digit after '-', found 'I'"},
        {"+1", "line 1, column 1: expected a value (object, array, string, number, true, false or null), found '+'"},
        {".5", "line 1, column 1: expected a value (object, array, string, number, true, false or null), found '.'"},
        {"01", "line 1, column 1: a number may not begin with a needless 0"},
        {"-00.5", "line 1, column 2: a number may not begin with a needless 0"},
        {"1.", "line 1, column 3: expected a digit after '.', found the end of the text"},
        {"1.e5", "line 1, column 3: expected a digit after '.', found 'e'"},
        {"1e", "line 1, column 3: expected a digit in the exponent, found the end of the text"},
        {"1e+", "line 1, column 4: expected a digit in the exponent, found the end of the text"},
        {"0x10", "line 1, column 2: expected the end of the text, found 'x'"},
        {"[1e999]", "line 1, column 2: the number 1e999 is too large for a double"},
        {"-1.8e308", "line 1, column 1: the number -1.8e308 is too large for a double"},
        {"tru", "line 1, column 1: expected a value (object, array, string, number, true, false or null), found 't'"},
        {"True", "line 1, column 1: expected a value (object, array, string, number, true, false or null), found 'T'"},
        {"nulll", "line 1, column 5: expected the end of the text, found 'l'"},
        {"\"abc", "line 1, column 1: the string that begins here is never closed"},
        {"\"abc\\", "line 1, column 6: expected one of \" \\ / b f n r t u after a backslash, found the end of the text"},
        {"\"a\nb\"", "line 1, column 3: control character 0x0A in a string: write it as an escape"},
        {"\"a\x1f\"", "line 1, column 3: control character 0x1F in a string: write it as an escape"},
        {"\"\\x41\"", "line 1, column 3: expected one of \" \\ / b f n r t u after a backslash, found 'x'"},
        {"\"\\u12g4\"", "line 1, column 2: expected four hexadecimal digits after \\u"},
        {"\"\\u12", "line 1, column 2: expected four hexadecimal digits after \\u"},
        {"\"\\ud800\"", "line 1, column 2: \\uD800 is one half of a surrogate pair without the other"},
        {"\"\\udc00\\ud800\"", "line 1, column 2: \\uDC00 is one half of a surrogate pair without the other"},
        {"\"\\ud800\\ud800\"", "line 1, column 2: \\uD800 is one half of a surrogate pair without the other"},
        {"\"\\ud800x\"", "line 1, column 2: \\uD800 is one half of a surrogate pair without the other"},
        {"\"\\ud800\\n\"", "line 1, column 2: \\uD800 is one half of a surrogate pair without the other"},
        {"\"\xC0\x80\"", "line 1, column 2: byte 0xC0 is not valid UTF-8 here"},
        {"\"\xED\xA0\x80\"", "line 1, column 2: byte 0xED is not valid UTF-8 here"},
        {"\"\xF4\x90\x80\x80\"", "line 1, column 2: byte 0xF4 is not valid UTF-8 here"},
        {"\"\xE2\x82\"", "line 1, column 2: byte 0xE2 is not valid UTF-8 here"},
        {"\"\xE2\x82", "line 1, column 2: byte 0xE2 is not valid UTF-8 here"},
        {"\"12345678\x80\"", "line 1, column 10: byte 0x80 is not valid UTF-8 here"},
        {"{\"a\":1,\n \"b\":2,\n \"a\":3}", "line 3, column 2: the key \"a\" stands twice in one object, first at line 1, column 2"},
        {"{\"\":1,\"\":3}", "line 1, column 7: the key \"\" stands twice in one object, first at line 1, column 2"},
        {"{\"ab\":1,\"\\u0061\\u0062\":3}", "line 1, column 9: the key \"\\u0061\\u0062\" stands twice in one object, first at line 1, column 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qr_err err = {0};
        cr_assert_eq(scan(bad[i].text, strlen(bad[i].text), &loose, &err), QR_E_INVALID, "%s", bad[i].text);
        cr_assert_eq(err.code, QR_E_INVALID);
        cr_assert_str_eq(err.param, "");
        cr_assert_str_eq(err.msg, bad[i].message);
    }
}

Test(json_scan, takes_a_nul_byte_for_no_end)
{
    struct qr_err err;
    cr_assert_eq(scan("[1]\0", 4, &loose, &err), QR_E_INVALID);
    cr_assert_str_eq(err.msg, "line 1, column 4: expected the end of the text, found byte 0x00");
    cr_assert_eq(scan("\"a\0b\"", 5, &loose, &err), QR_E_INVALID);
    cr_assert_str_eq(err.msg, "line 1, column 3: control character 0x00 in a string: write it as an escape");
    cr_assert_eq(scan("\"\\\0\"", 4, &loose, &err), QR_E_INVALID);
}

Test(json_scan, allows_escaped_nul_only_where_the_limits_do)
{
    struct qr_err err;
    cr_assert_eq(scan("[\"a\\u0000\"]", 11, &loose, &err), 0);
    cr_assert_eq(scan("[\"a\\u0000\"]", 11, &strict, &err), QR_E_INVALID);
    cr_assert_str_eq(err.msg, "line 1, column 4: the character U+0000 is not allowed in a string");
    cr_assert_eq(scan("{\"a\\u0000\":1}", 13, &strict, &err), QR_E_INVALID);
    cr_assert(!qr_json_limits_request.nul_ok);
    cr_assert(qr_json_limits_file.nul_ok);
}

/* depth brackets around nothing. */
static void nest(struct qr_buf *b, int32_t depth, bool objects)
{
    qr_buf_clear(b);
    for (int32_t i = 0; i < depth; i++)
        qr_buf_put_str(b, objects ? i + 1 < depth ? "{\"k\":" : "{" : "[");
    for (int32_t i = 0; i < depth; i++)
        qr_buf_put_byte(b, objects ? '}' : ']');
}

Test(json_scan, stops_one_beyond_the_depth_limit)
{
    struct qr_buf b = {0};
    for (int32_t depth = 1; depth <= QR_JSON_DEPTH_MAX; depth += 127 < depth ? 1 : depth) {
        for (int objects = 0; objects < 2; objects++) {
            struct qr_json_limits l = loose;
            struct qr_err err;
            l.depth_max = depth;
            nest(&b, depth, objects);
            cr_assert_eq(scan(b.data, b.len, &l, &err), 0, "depth %d", depth);
            nest(&b, depth + 1, objects);
            cr_assert_eq(scan(b.data, b.len, &l, &err), QR_E_TOO_LARGE, "depth %d", depth);
            cr_assert(strstr(err.msg, "arrays and objects are nested deeper than"));
        }
    }
    struct qr_json_limits scalars = loose;
    struct qr_err err;
    scalars.depth_max = 0;
    cr_assert_eq(scan("1", 1, &scalars, &err), 0);
    cr_assert_eq(scan("[]", 2, &scalars, &err), QR_E_TOO_LARGE);
    qr_buf_release(&b);
}

Test(json_scan, stops_one_beyond_the_limits_on_values_and_bytes)
{
    static const char text[] = "{\"a\":[1,\"x\",true,null],\"b\":{}}"; /* 7 values: 2 objects, 1 array, 4 scalars */
    size_t len = strlen(text);
    struct qr_json_limits l = loose;
    struct qr_err err;
    l.values_max = 7;
    l.bytes_max = len;
    cr_assert_eq(scan(text, len, &l, &err), 0);
    l.values_max = 6;
    cr_assert_eq(scan(text, len, &l, &err), QR_E_TOO_LARGE);
    cr_assert_str_eq(err.msg, "line 1, column 28: the text holds more than 6 values");
    l.values_max = 7;
    l.bytes_max = len - 1;
    cr_assert_eq(scan(text, len, &l, &err), QR_E_TOO_LARGE);
    cr_assert_str_eq(err.msg, "line 1, column 1: the text has 30 bytes, more than the limit of 29");
}

/* An object of n members; member `twin` (or none) repeats member 0 in another spelling. */
static void many_keys(struct qr_buf *b, int n, int twin)
{
    qr_buf_clear(b);
    qr_buf_put_byte(b, '{');
    for (int i = 0; i < n; i++) {
        if (i == twin)
            qr_buf_printf(b, "%s\"\\u006bey0\":{\"key0\":1}", i ? "," : "");
        else
            qr_buf_printf(b, "%s\"key%d\":{\"key0\":1}", i ? "," : "", i);
    }
    qr_buf_put_byte(b, '}');
}

Test(json_scan, refuses_duplicate_keys_in_objects_of_any_size)
{
    static const int sizes[] = {2, 3, 7, 8, 9, 10, 16, 17, 31, 32, 33, 100, 1000, 40000};
    struct qr_buf b = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int n = sizes[i], twins[] = {1, n / 2, n - 1};
        struct qr_err err;
        struct qr_json_limits l = qr_json_limits_file;
        many_keys(&b, n, -1);
        cr_assert_eq(scan(b.data, b.len, &l, &err), 0, "%d keys", n);
        for (int t = 0; t < 3; t++) {
            if (twins[t] == 0)
                continue;
            many_keys(&b, n, twins[t]);
            cr_assert_eq(scan(b.data, b.len, &l, &err), QR_E_INVALID, "%d keys, twin %d", n, twins[t]);
            cr_assert(strstr(err.msg, "the key \"\\u006bey0\" stands twice in one object, first at line 1, column 2"), "%s", err.msg);
        }
    }
    qr_buf_release(&b);
}

Test(json_scan, tells_objects_side_by_side_and_inside_each_other_apart)
{
    struct qr_buf b = {0};
    qr_buf_put_byte(&b, '[');
    for (int object = 0; object < 300; object++) { /* same keys again and again at one depth, sizes on both sides of 8 */
        qr_buf_put_str(&b, object ? ",{" : "{");
        for (int i = 0; i < object % 40; i++)
            qr_buf_printf(&b, "%s\"k\\u00%02x\":{\"k0\":0,\"k1\":{}}", i ? "," : "", 0x30 + i);
        qr_buf_put_byte(&b, '}');
    }
    qr_buf_put_byte(&b, ']');
    struct qr_err err = {0};
    cr_assert_eq(scan(b.data, b.len, &loose, &err), 0, "%s", err.msg);
    qr_buf_release(&b);
}

static struct qr_json_token string_token(struct qr_json_scan **s, const char *text)
{
    struct qr_json_token t;
    struct qr_err err;
    *s = qr_json_scan_new(text, strlen(text), &loose);
    cr_assert_eq(qr_json_next(*s, &t, &err), 0);
    return t;
}

Test(json_scan, unescapes_what_it_let_through)
{
    static const char text[] = "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\\u0000z\"";
    static const char want[] = "a\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\0z";
    struct qr_json_scan *s;
    struct qr_json_token t = string_token(&s, text);
    struct qr_buf b = {0};
    qr_json_unescape(&b, &t);
    cr_assert_eq(b.len, sizeof want - 1);
    cr_assert_eq(memcmp(b.data, want, b.len), 0);
    qr_json_scan_free(s);
    qr_buf_release(&b);
}

Test(json_scan, compares_strings_by_what_they_say)
{
    struct qr_json_scan *s;
    struct qr_json_token t = string_token(&s, "\"na\\u006De\"");
    cr_assert(qr_json_token_is(&t, "name"));
    cr_assert(!qr_json_token_is(&t, "nam"));
    cr_assert(!qr_json_token_is(&t, "names"));
    cr_assert(!qr_json_token_is(&t, "Name"));
    qr_json_scan_free(s);
    t = string_token(&s, "\"name\"");
    cr_assert(qr_json_token_is(&t, "name"));
    cr_assert(!qr_json_token_is(&t, "nam"));
    cr_assert(!qr_json_token_is(&t, "names"));
    qr_json_scan_free(s);
    t = string_token(&s, "\"a\\u0000\"");
    cr_assert(!qr_json_token_is(&t, "a"));
    qr_json_scan_free(s);
    t = string_token(&s, "true");
    cr_assert(!qr_json_token_is(&t, "true"), "a literal is no string");
    qr_json_scan_free(s);
}

Test(json_scan, reads_integers_exactly_or_not_at_all)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } row[] = {{"0", true, 0}, {"-0", true, 0}, {"-7", true, -7}, {"9007199254740993", true, 9007199254740993},
               {"9223372036854775807", true, INT64_MAX}, {"-9223372036854775808", true, INT64_MIN}, {"9223372036854775808", false, 0},
               {"-9223372036854775809", false, 0}, {"18446744073709551616", false, 0}, {"99999999999999999999999", false, 0},
               {"1.0", false, 0}, {"1e3", false, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct qr_json_scan *s;
        struct qr_json_token t = string_token(&s, row[i].text);
        int64_t v = 0;
        cr_assert_eq(qr_json_token_i64(&t, &v), row[i].ok, "%s", row[i].text);
        cr_assert_eq(v, row[i].value, "%s", row[i].text);
        qr_json_scan_free(s);
    }
}

Test(json_scan, reads_the_nearest_double)
{
    char text[64];
    const uint64_t n = (uint64_t)test_cases(300000);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t w[4];
        qr_rng_words(w, 20, 0, i);
        int style = (int)(w[3] % 4);
        if (style == 0)
            snprintf(text, sizeof text, "%u.%ue%d", w[0], w[1] % 1000, (int)(w[2] % 590) - 300);
        else if (style == 1)
            snprintf(text, sizeof text, "-%u%u", w[0] | 1, w[1]);
        else if (style == 2)
            snprintf(text, sizeof text, "0.%05u%u%u", w[0] % 100000, w[1], w[2]);
        else
            snprintf(text, sizeof text, "%ue%d", w[0] % 100000, (int)(w[2] % 50) - 25);
        struct qr_json_scan *s;
        struct qr_json_token t = string_token(&s, text);
        cr_assert_eq(t.event, QR_JSON_NUMBER);
        cr_assert_eq(qr_json_token_f64(&t), strtod(text, NULL), "%s", text);
        qr_json_scan_free(s);
    }
}

Test(json_scan, skips_whole_values)
{
    static const char text[] = "{\"a\":{\"x\":[1,{\"y\":[]}]},\"b\":7,\"c\":[[],[]],\"d\":\"end\"}";
    struct qr_json_scan *s = qr_json_scan_new(text, strlen(text), &loose);
    struct qr_json_token t;
    struct qr_err err;
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert(qr_json_token_is(&t, "a"));
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert_eq(qr_json_skip(s, &t, &err), 0, "an object");
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert(qr_json_token_is(&t, "b"));
    cr_assert_eq(qr_json_skip(s, &t, &err), 0, "a key: its scalar goes with it");
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert(qr_json_token_is(&t, "c"));
    cr_assert_eq(qr_json_skip(s, &t, &err), 0, "a key: its array goes with it");
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert(qr_json_token_is(&t, "d"));
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert_eq(qr_json_skip(s, &t, &err), 0, "a scalar: nothing to do");
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert_eq(t.event, QR_JSON_OBJECT_END);
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert_eq(t.event, QR_JSON_DONE);
    qr_json_scan_free(s);

    static const char broken[] = "[[1,[2,]],3]";
    s = qr_json_scan_new(broken, strlen(broken), &loose);
    cr_assert_eq(qr_json_next(s, &t, &err), 0);
    cr_assert_eq(qr_json_skip(s, &t, &err), QR_E_INVALID, "what is skipped is checked all the same");
    qr_json_scan_free(s);
}

Test(json_scan, refuses_every_truncation)
{
    static const char text[] = "{\"a\":[1.5e3,\"x\\u00e9\\ud83d\\ude00\xC3\xA9\",true,false,null],\"b\":{\"c\":-0}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        struct qr_err err;
        cr_assert_eq(scan(text, n, &loose, &err), QR_E_INVALID, "cut at %zu", n);
    }
}

/* ---- real files ---- */

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    cr_assert_eq(fread(text, 1, *n, f), *n);
    fclose(f);
    return text;
}

static int scan_files(const char *dir)
{
    DIR *d = opendir(dir);
    int n_files = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        size_t len = strlen(e->d_name), n;
        struct stat st;
        if (e->d_name[0] == '.' || stat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            n_files += scan_files(path);
            continue;
        }
        if (len < 5 || strcmp(e->d_name + len - 5, ".json") != 0)
            continue;
        char *text = read_file(path, &n);
        struct qr_err err = {0};
        cr_assert_eq(scan(text, n, &qr_json_limits_file, &err), 0, "%s: %s", path, err.msg);
        free(text);
        n_files++;
    }
    if (d)
        closedir(d);
    return n_files;
}

Test(json_scan, accepts_every_json_file_of_the_conformance_data)
{
    const char *data = getenv("QUIRE_DATA");
    if (!data || access(data, R_OK) != 0)
        cr_skip_test("no conformance data: set QUIRE_DATA");
    cr_assert_gt(scan_files(data), 0);
}

static int64_t processor_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Processor time per key must not grow with the number of keys: a hundred times the keys may take 1,500 times as long before this fails (linear
 * is 100, quadratic 10,000; the rest is room for caches that no longer hold the table, and for a busy machine). */
Test(json_scan, takes_linear_time_for_many_keys)
{
    struct qr_buf b = {0};
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    for (int size = 0; size < 2; size++) {
        many_keys(&b, size ? 200000 : 2000, -1);
        for (int repeat = 0; repeat < 3; repeat++) {
            struct qr_err err;
            int64_t start = processor_us();
            cr_assert_eq(scan(b.data, b.len, &qr_json_limits_file, &err), 0);
            int64_t took = processor_us() - start;
            best[size] = took < best[size] ? took : best[size];
        }
    }
    cr_assert_lt(best[1], 1500 * (best[0] + 1), "2,000 keys: %ld us, 200,000 keys: %ld us", (long)best[0], (long)best[1]);
    qr_buf_release(&b);
}
