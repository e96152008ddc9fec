#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"

static struct qr_json *parse(const char *text)
{
    struct qr_json *root = NULL;
    struct qr_err err = {0};
    cr_assert_eq(qr_json_parse(&root, text, strlen(text), &qr_json_limits_file, &err), 0, "%s: %s", text, err.msg);
    return root;
}

static void prints_as(const char *text, const char *want)
{
    struct qr_json *root = parse(text);
    struct qr_buf b = {0};
    qr_json_print(&b, root);
    cr_assert_str_eq(b.data, want);
    qr_buf_release(&b);
    qr_json_free(root);
}

Test(json, walks_objects_and_arrays_in_order)
{
    struct qr_json *root = parse("{\"a\":1,\"B\":[true,\"x\",null,{}],\"b\":false}");
    cr_assert_eq(qr_json_type(root), QR_JSON_T_OBJECT);
    cr_assert_eq(qr_json_count(root), 3);
    cr_assert_null(qr_json_key(root));
    const struct qr_json *m = qr_json_first(root);
    cr_assert_str_eq(qr_json_key(m), "a");
    cr_assert_eq(qr_json_type(m), QR_JSON_T_NUMBER);
    m = qr_json_after(m);
    cr_assert_str_eq(qr_json_key(m), "B");
    cr_assert_eq(qr_json_count(m), 4);
    const struct qr_json *e = qr_json_first(m);
    cr_assert(qr_json_bool(e));
    cr_assert_null(qr_json_key(e));
    e = qr_json_after(e);
    size_t len;
    cr_assert_str_eq(qr_json_str(e, &len), "x");
    cr_assert_eq(len, 1);
    e = qr_json_after(e);
    cr_assert(qr_json_is_null(e));
    e = qr_json_after(e);
    cr_assert_eq(qr_json_count(e), 0);
    cr_assert_null(qr_json_first(e));
    cr_assert_null(qr_json_after(e));
    cr_assert_eq(m = qr_json_after(m), qr_json_find(root, "b"));
    cr_assert(!qr_json_bool(m));
    cr_assert_null(qr_json_after(m));
    cr_assert_null(qr_json_after(root));
    qr_json_free(root);
    qr_json_free(NULL);
}

Test(json, finds_members_case_sensitively_and_whole)
{
    struct qr_json *root = parse("{\"Name\":1,\"name\":2,\"names\":3,\"n\\u0000\":4,\"\":5,\"\\u006d\":6}");
    int64_t v = 0;
    cr_assert(qr_json_i64(qr_json_find(root, "name"), &v) && v == 2);
    cr_assert(qr_json_i64(qr_json_find(root, "Name"), &v) && v == 1);
    cr_assert(qr_json_i64(qr_json_find(root, ""), &v) && v == 5);
    cr_assert(qr_json_i64(qr_json_find(root, "m"), &v) && v == 6);
    cr_assert_null(qr_json_find(root, "NAME"));
    cr_assert_null(qr_json_find(root, "n"), "a name that goes on after U+0000 is another name");
    cr_assert_null(qr_json_find(qr_json_find(root, "name"), "x"), "a number has no members");
    cr_assert_null(qr_json_find(NULL, "x"));
    cr_assert(qr_json_is_null(NULL));
    qr_json_free(root);
}

Test(json, keeps_strings_with_nul_whole)
{
    struct qr_json *root = parse("[\"a\\u0000b\",\"\"]");
    size_t len;
    const char *s = qr_json_str(qr_json_first(root), &len);
    cr_assert_eq(len, 3);
    cr_assert_eq(memcmp(s, "a\0b", 4), 0);
    s = qr_json_str(qr_json_after(qr_json_first(root)), &len);
    cr_assert_eq(len, 0);
    cr_assert_str_eq(s, "");
    qr_json_free(root);
}

Test(json, text_is_what_a_string_has_and_nothing_else)
{
    static const char text[] = "[\"a\\u0000b\", 1, null]";
    struct qr_err err;
    struct qr_json *root;
    size_t len = 7;
    cr_assert_eq(qr_json_parse(&root, text, sizeof text - 1, &qr_json_limits_file, &err), 0);
    const struct qr_json *s = qr_json_first(root), *number = qr_json_after(s);
    cr_expect(qr_json_text(s, &len) == qr_json_str(s, NULL) && len == 3);
    cr_expect(!qr_json_says(s, "a") && !qr_json_says(number, "1") && !qr_json_says(NULL, ""));
    cr_expect(qr_json_text(number, NULL) == NULL && qr_json_text(qr_json_after(number), NULL) == NULL);
    cr_expect(qr_json_text(NULL, NULL) == NULL);
    qr_json_free(root);
}

Test(json, reads_integers_however_they_are_written)
{
    static const struct {
        const char *text;
        bool ok, is_integer_text;
        int64_t value;
    } row[] = {{"0", true, true, 0},
               {"-0", true, true, 0},
               {"-0.0", true, false, 0},
               {"0e99", true, false, 0},
               {"1.0", true, false, 1},
               {"1e3", true, false, 1000},
               {"2.50e1", true, false, 25},
               {"1000e-3", true, false, 1},
               {"9007199254740993", true, true, 9007199254740993},
               {"9007199254740993.0", true, false, 9007199254740993},
               {"9223372036854775807", true, true, INT64_MAX},
               {"922337203685477580.7e1", true, false, INT64_MAX},
               {"-9223372036854775808", true, true, INT64_MIN},
               {"-9223372036854775808.000000000000000000000000", true, false, INT64_MIN},
               {"9223372036854775808", false, true, 0},
               {"-9223372036854775809", false, true, 0},
               {"1e18", true, false, 1000000000000000000},
               {"1e19", false, false, 0},
               {"1e300", false, false, 0},
               {"0.5", false, false, 0},
               {"1e-1", false, false, 0},
               {"10000000000000000000000.5", false, false, 0},
               {"1.00000000000000000000000000000001", false, false, 0},
               {"0.00000000000000000000000000000000000000001e41", true, false, 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct qr_json *root = parse(row[i].text);
        int64_t v = 0;
        cr_assert_eq(qr_json_i64(root, &v), row[i].ok, "%s", row[i].text);
        cr_assert_eq(v, row[i].value, "%s gave %lld", row[i].text, (long long)v);
        cr_assert_eq(qr_json_is_integer_text(root), row[i].is_integer_text, "%s", row[i].text);
        cr_assert_eq(qr_json_f64(root), strtod(row[i].text, NULL), "%s", row[i].text);
        qr_json_free(root);
    }
    struct qr_json *root = parse("\"1\"");
    int64_t v;
    cr_assert(!qr_json_i64(root, &v), "a string is no number");
    cr_assert(!qr_json_is_integer_text(root));
    qr_json_free(root);
}

Test(json, prints_numbers_as_they_were_written)
{
    prints_as(" [ 1.0 , -0,1E+2 , 12345678901234567890123, 0.10 ] ", "[1.0,-0,1E+2,12345678901234567890123,0.10]");
}

Test(json, prints_compactly_and_escapes_what_it_must)
{
    prints_as("{ \"a\\\"\" : [ ] , \"b\" : { } , \"c\" : \"\\u0001\\n\\/\\u00e9\\ud83d\\ude00\\u007f\", \"\\u0000\": [ {}, [ null ] ] }",
              "{\"a\\\"\":[],\"b\":{},\"c\":\"\\u0001\\n/\xC3\xA9\xF0\x9F\x98\x80\x7f\",\"\\u0000\":[{},[null]]}");
    prints_as("true", "true");
    prints_as("null", "null");
}

Test(json, names_its_types)
{
    cr_assert_str_eq(qr_json_type_name(QR_JSON_T_NULL), "null");
    cr_assert_str_eq(qr_json_type_name(QR_JSON_T_BOOL), "boolean");
    cr_assert_str_eq(qr_json_type_name(QR_JSON_T_NUMBER), "number");
    cr_assert_str_eq(qr_json_type_name(QR_JSON_T_STRING), "string");
    cr_assert_str_eq(qr_json_type_name(QR_JSON_T_ARRAY), "array");
    cr_assert_str_eq(qr_json_type_name(QR_JSON_T_OBJECT), "object");
}

Test(json, leaves_the_result_alone_when_it_refuses)
{
    static const char *const bad[] = {"", "[1,2", "{\"a\":[{\"b\":\"c\"}],\"a\":1}", "[1] 2", "\"\xff\"", "[\"\\u0000\"]", "1e999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qr_json *root = NULL;
        struct qr_err err = {0};
        cr_assert_eq(qr_json_parse(&root, bad[i], strlen(bad[i]), &qr_json_limits_request, &err), QR_E_INVALID, "%s", bad[i]);
        cr_assert_null(root);
        cr_assert_eq(strncmp(err.msg, "line 1, column ", 15), 0, "%s", err.msg);
    }
}

Test(json, outlives_its_text)
{
    char text[] = "{\"key\":\"value\",\"n\":12.5}";
    struct qr_json *root = parse(text);
    memset(text, 'x', sizeof text - 1);
    cr_assert_str_eq(qr_json_str(qr_json_find(root, "key"), NULL), "value");
    cr_assert_eq(qr_json_f64(qr_json_find(root, "n")), 12.5);
    qr_json_free(root);
}

/* The last line of defence against a request made of brackets: the limits that every request is read with. */
Test(json, refuses_a_request_beyond_its_limits)
{
    struct qr_json *root = NULL;
    struct qr_err err;
    struct qr_buf b = {0};
    for (int i = 0; i < 33; i++)
        qr_buf_put_byte(&b, '[');
    cr_assert_eq(qr_json_parse(&root, b.data, b.len, &qr_json_limits_request, &err), QR_E_TOO_LARGE);
    qr_buf_clear(&b);
    qr_buf_put_byte(&b, '[');
    for (int i = 0; i < 262143; i++)
        qr_buf_put_str(&b, i ? ",1" : "1");
    qr_buf_put_byte(&b, ']');
    cr_assert_eq(qr_json_parse(&root, b.data, b.len, &qr_json_limits_request, &err), 0, "262,144 values");
    cr_assert_eq(qr_json_count(root), 262143);
    qr_json_free(root);
    b.len--;
    qr_buf_put_str(&b, ",1]");
    cr_assert_eq(qr_json_parse(&root, b.data, b.len, &qr_json_limits_request, &err), QR_E_TOO_LARGE, "262,145 values");
    qr_buf_clear(&b);
    qr_buf_put_byte(&b, '"');
    while (b.len < ((size_t)4 << 20) - 1)
        qr_buf_put_byte(&b, 'x');
    qr_buf_put_byte(&b, '"');
    cr_assert_eq(qr_json_parse(&root, b.data, b.len, &qr_json_limits_request, &err), 0, "4 MiB");
    qr_json_free(root);
    qr_buf_put_byte(&b, ' ');
    cr_assert_eq(qr_json_parse(&root, b.data, b.len, &qr_json_limits_request, &err), QR_E_TOO_LARGE, "4 MiB and a byte");
    qr_buf_release(&b);
}

/* Recorded JSON lines that nobody here wrote: printing what was read and reading it again changes nothing. */
static int round_trip_lines(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *line = NULL;
    size_t cap = 0;
    int n_lines = 0;
    struct qr_buf once = {0}, twice = {0};
    for (ssize_t n; f && (n = getline(&line, &cap, f)) > 0; n_lines++) {
        struct qr_json *root, *again;
        struct qr_err err = {0};
        cr_assert_eq(qr_json_parse(&root, line, (size_t)n, &qr_json_limits_file, &err), 0, "%s:%d: %s", path, n_lines + 1, err.msg);
        qr_buf_clear(&once);
        qr_buf_clear(&twice);
        qr_json_print(&once, root);
        cr_assert_eq(qr_json_parse(&again, once.data, once.len, &qr_json_limits_file, &err), 0, "%s", err.msg);
        qr_json_print(&twice, again);
        cr_assert_str_eq(once.data, twice.data);
        qr_json_free(root);
        qr_json_free(again);
    }
    qr_buf_release(&once);
    qr_buf_release(&twice);
    free(line);
    if (f)
        fclose(f);
    return n_lines;
}

static const char three[] = "{\"a\":[1,[2]],\"b\":{\"a\":3},\"c\":\"x\"}";

/* Which members are named, and what of `three` is left then. */
static const struct {
    const char *names[4], *left;
} some[] = {{{"a", "b", "c"}, three},
            {{"c", "none", "a"}, "{\"a\":[1,[2]],\"c\":\"x\"}"},
            {{"b"}, "{\"b\":{\"a\":3}}"},
            {{"A", "aa", ""}, "{}"},
            {{NULL}, "{}"}};

Test(json, members_that_are_not_retained_leave_the_others)
{
    for (int i = 0; i < QR_COUNT(some); i++) {
        struct qr_json *root = parse(three);
        struct qr_buf b = {0};
        qr_json_retain(root, some[i].names);
        qr_json_print(&b, root);
        cr_expect_str_eq(b.data, some[i].left);
        cr_expect_eq(qr_json_count(root), i == 0 ? 3 : i == 1 ? 2 : i == 2);
        qr_buf_release(&b);
        qr_json_free(root);
    }
}

Test(json, a_forgotten_name_is_gone_down_to_its_depth)
{
    static const char text[] = "[{\"a\":1,\"b\":{\"a\":[2],\"c\":[{\"a\":3,\"d\":4}]}},\"a\"]";
    static const char *const left[] = {text, "[{\"b\":{\"a\":[2],\"c\":[{\"a\":3,\"d\":4}]}},\"a\"]", "[{\"b\":{\"c\":[{\"a\":3,\"d\":4}]}},\"a\"]",
                                       "[{\"b\":{\"c\":[{\"a\":3,\"d\":4}]}},\"a\"]", "[{\"b\":{\"c\":[{\"d\":4}]}},\"a\"]"};
    for (int32_t depth = 0; depth < QR_COUNT(left); depth++) {
        struct qr_json *root = parse(text);
        struct qr_buf b = {0};
        qr_json_forget(root, "a", depth);
        qr_json_print(&b, root);
        cr_expect_str_eq(b.data, left[depth], "depth %d: %s", depth, b.data);
        cr_expect_eq(qr_json_count(qr_json_first(root)), depth > 0 ? 1 : 2);
        qr_buf_release(&b);
        qr_json_free(root);
    }
    qr_json_forget(NULL, "a", 1);
}

Test(json, members_that_are_not_wanted_are_checked_but_not_kept)
{
    struct qr_err err = {0};
    struct qr_json *root;
    for (int i = 0; i < QR_COUNT(some); i++) {
        struct qr_buf b = {0};
        cr_assert_eq(qr_json_parse_members(&root, three, sizeof three - 1, &qr_json_limits_file, some[i].names, &err), 0, "%s", err.msg);
        qr_json_print(&b, root);
        cr_expect_str_eq(b.data, some[i].left);
        qr_buf_release(&b);
        qr_json_free(root);
    }
    static const char *const none[] = {NULL};
    static const char *const bad[] = {"{\"x\":[1,}", "{\"x\":\"\\ud800\"}", "{\"x\":1,\"x\":2}", "{\"x\":[{}]]}"};
    for (int i = 0; i < QR_COUNT(bad); i++)
        cr_expect_lt(qr_json_parse_members(&root, bad[i], strlen(bad[i]), &qr_json_limits_request, none, &err), 0, "%s", bad[i]);
    static const char array[] = "[{\"x\":1}]";
    cr_assert_eq(qr_json_parse_members(&root, array, sizeof array - 1, &qr_json_limits_file, none, &err), 0);
    cr_expect_eq(qr_json_count(qr_json_first(root)), 1, "only members of a root that is an object are looked at");
    qr_json_free(root);
}

Test(json, round_trips_recorded_lines)
{
    static const char *const files[] = {"json-schema/real_schemas.jsonl", "json-schema/test_suite_2020-12.jsonl",
                                        "chat-templates/cases.jsonl", "chat-templates/micro.jsonl"};
    const char *data = getenv("QUIRE_DATA");
    char path[4096];
    int n_lines = 0;
    for (size_t i = 0; data && i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", data, files[i]);
        n_lines += round_trip_lines(path);
    }
    if (n_lines == 0)
        cr_skip_test("no conformance data: set QUIRE_DATA");
}

Test(json, whatever_is_wrong_with_a_file_is_damage_that_begins_with_its_name)
{
    static const struct qr_json_limits flat = {.bytes_max = 100, .depth_max = 1, .values_max = 10};
    static const char *const bad[] = {"", "{", "[[1]]", "[1,2,3,4,5,6,7,8,9,10,11]"};
    struct qr_json *v;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qr_err err = {0};
        cr_expect_eq(qr_json_parse_file(&v, bad[i][0] ? bad[i] : NULL, strlen(bad[i]), &flat, "d/f.json", &err), QR_E_DAMAGED);
        cr_expect(err.code == QR_E_DAMAGED && strncmp(err.msg, "d/f.json: ", 10) == 0, "%s", err.msg);
    }
}
