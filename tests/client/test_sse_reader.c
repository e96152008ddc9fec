/* The event-stream reader against the WHATWG rules and against recorded streams of a real server. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "client/chunk.h"
#include "client/session.h"
#include "client/sse_reader.h"

/* Events as one text: "|data|;" each, so that a whole stream is one comparison. */
static void note(void *arg, const char *data, size_t n)
{
    struct qr_buf *out = arg;
    cr_assert_eq(data[n], 0);
    qr_buf_put_byte(out, '|');
    qr_buf_put(out, data, n);
    qr_buf_put_str(out, "|;");
}

static void read_in_pieces(struct qr_buf *out, const char *s, size_t n, size_t piece)
{
    struct qr_sse_reader r;
    struct qr_err err;
    qr_sse_init(&r, 1 << 20, note, out);
    for (size_t at = 0; at < n; at += piece)
        cr_assert_eq(qr_sse_feed(&r, s + at, n - at < piece ? n - at : piece, &err), 0);
    qr_sse_release(&r);
}

struct rule {
    const char *stream, *events;
    size_t n; /* 0: strlen(stream) */
};

static const struct rule rules[] = {
    {"data: a\n\n", "|a|;", 0},
    {"data:a\n\n", "|a|;", 0},
    {"data:  a\n\n", "| a|;", 0},
    {"data: a\r\n\r\n", "|a|;", 0},
    {"data: a\r\rdata: b\r\r", "|a|;|b|;", 0},
    {"data: a\n\r\ndata: b\r\n\n", "|a|;|b|;", 0},
    {"data: a\ndata: b\n\n", "|a\nb|;", 0},
    {"data\n\n", "||;", 0},
    {"data\ndata\n\n", "|\n|;", 0},
    {"data:\n\n", "||;", 0},
    {": a comment\n\n", "", 0},
    {"event: x\n\n", "", 0},
    {"event: x\ndata: a\n\ndata: b\n\n", "|a|;|b|;", 0},
    {"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", "|a|;|b|;|c|;", 0},
    {"id: a\0b\ndata: x\n\n", "|x|;", 17},
    {"data: unfinished\n", "", 0},
    {"data: unfinished", "", 0},
    {"\xef\xbb\xbf" "data: a\n\n", "|a|;", 0},
    {"\xef\xbb\xbf\xef\xbb\xbf" "data: a\n\ndata: b\n\n", "|b|;", 0},
    {"\xef\xbb" "data: a\n\ndata: b\n\n", "|b|;", 0},
    {"\xef\ndata: b\n\n", "|b|;", 0},
    {" data: a\n\n", "", 0},
    {"Data: a\n\n", "", 0},
    {"data : a\n\n", "", 0},
    {"dat: a\nunknown: x\ndata: y:z\n\n", "|y:z|;", 0},
    {"data: a\xff" "b\n\n", "|a\xef\xbf\xbd" "b|;", 0},
    {"\n\n\n\ndata: a\n\n\n", "|a|;", 0},
    {"data: a\n\r\n", "|a|;", 0},
    {"retry: 10\ndata: a\n\n", "|a|;", 0},
    {"data: a\n\ndata: [DONE]\n\n", "|a|;|[DONE]|;", 0},
    {":\ndata: a\n:x\ndata: b\n\n", "|a\nb|;", 0},
};

Test(sse, follows_each_rule_of_the_standard_in_any_chunking)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        size_t n = rules[i].n != 0 ? rules[i].n : strlen(rules[i].stream);
        for (size_t piece = 1; piece <= n; piece++) {
            struct qr_buf got = {0};
            read_in_pieces(&got, rules[i].stream, n, piece);
            cr_expect_str_eq(qr_buf_text(&got), rules[i].events, "rule %zu, pieces of %zu", i, piece);
            qr_buf_release(&got);
        }
    }
}

Test(sse, keeps_nul_bytes_inside_data)
{
    struct qr_buf got = {0};
    read_in_pieces(&got, "data: a\0b\xff\n\n", 13, 1);
    cr_assert_eq(got.len, 1 + 6 + 2);
    cr_assert_eq(memcmp(got.data, "|a\0b\xef\xbf\xbd|;", got.len), 0);
    qr_buf_release(&got);
}

Test(sse, an_event_may_have_as_many_bytes_as_the_limit_and_not_one_more)
{
    for (size_t extra = 0; extra <= 1; extra++) {
        struct qr_sse_reader r;
        struct qr_err err;
        struct qr_buf out = {0}, text = {0};
        qr_sse_init(&r, 101, note, &out); /* the limit counts the data and one line end */
        qr_buf_put_str(&text, "data: ");
        for (size_t i = 0; i < 100 + extra; i++)
            qr_buf_put_byte(&text, 'x');
        qr_buf_put_str(&text, "\n\n");
        int rc = qr_sse_feed(&r, text.data, text.len, &err);
        cr_expect_eq(rc, extra == 0 ? 0 : QR_E_TOO_LARGE);
        qr_sse_release(&r);
        qr_buf_release(&out);
        qr_buf_release(&text);
    }
}

Test(sse, an_endless_line_is_refused_before_it_fills_memory)
{
    struct qr_sse_reader r;
    struct qr_err err;
    struct qr_buf out = {0};
    char block[1000];
    memset(block, 'x', sizeof block);
    qr_sse_init(&r, 10000, note, &out);
    int rc = 0;
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = qr_sse_feed(&r, block, sizeof block, &err);
    cr_assert_eq(rc, QR_E_TOO_LARGE);
    cr_assert(r.line.len <= 11000);
    qr_sse_release(&r);
}

Test(sse, nothing_comes_after_stop)
{
    struct qr_sse_reader r;
    struct qr_err err;
    struct qr_buf out = {0};
    qr_sse_init(&r, 1024, note, &out);
    qr_sse_stop(&r);
    qr_sse_feed(&r, "data: a\n\n", 9, &err);
    cr_expect_eq(out.len, 0);
    qr_sse_reset(&r);
    qr_sse_feed(&r, "data: a\n\n", 9, &err);
    cr_expect_str_eq(qr_buf_text(&out), "|a|;");
    qr_sse_release(&r);
    qr_buf_release(&out);
}

/* ---- recorded streams ---- */

static void add_event(void *arg, const char *data, size_t n)
{
    struct qr_chunk *a = arg;
    struct qr_chunk c;
    struct qr_err err;
    qr_chunk_init(&c);
    cr_assert_eq(qr_chunk_parse(&c, data, n, &err), 0, "%s", err.msg);
    cr_assert(!c.is_error);
    qr_chunk_add(a, &c);
    qr_chunk_release(&c);
}

static void same_text(const struct qr_json *expected, const struct qr_buf *got, const char *what)
{
    if (qr_json_is_null(expected))
        cr_expect(got->len == 0, "%s is null", what);
    else
        cr_expect_str_eq(qr_buf_text(got), qr_json_str(expected, NULL), "%s", what);
}

static void same_tools(const struct qr_json *expected, const struct qr_tool_calls *got)
{
    cr_expect_eq(qr_json_count(expected), got->n);
    const struct qr_json *e = qr_json_first(expected);
    for (int i = 0; i < got->n && e != NULL; i++, e = qr_json_after(e)) {
        cr_expect_eq(atoi(qr_json_key(e)), got->item[i].index);
        cr_expect_str_eq(qr_json_str(qr_json_find(e, "id"), NULL), qr_buf_text(&got->item[i].id));
        cr_expect_str_eq(qr_json_str(qr_json_find(e, "name"), NULL), qr_buf_text(&got->item[i].name));
        cr_expect_str_eq(qr_json_str(qr_json_find(e, "arguments"), NULL), qr_buf_text(&got->item[i].arguments));
    }
}

static void check_recording(const struct qr_json *expected, const struct qr_buf *stream, size_t piece)
{
    struct qr_chunk a;
    struct qr_sse_reader r;
    struct qr_err err;
    qr_chunk_init(&a);
    qr_sse_init(&r, 1 << 20, add_event, &a);
    for (size_t at = 0; at < stream->len; at += piece)
        cr_assert_eq(qr_sse_feed(&r, stream->data + at, stream->len - at < piece ? stream->len - at : piece, &err), 0);
    const struct qr_json *usage = qr_json_find(expected, "usage"), *choice = qr_json_first(qr_json_find(expected, "choices"));
    int64_t n;
    cr_expect(qr_json_i64(qr_json_find(expected, "chunks"), &n) && n == a.n_chunks, "%d chunks", a.n_chunks);
    cr_expect_eq(qr_json_bool(qr_json_find(expected, "done_marker")), a.done);
    cr_expect(qr_json_i64(qr_json_find(usage, "prompt_tokens"), &n) && n == a.usage.n_prompt);
    cr_expect(qr_json_i64(qr_json_find(usage, "completion_tokens"), &n) && n == a.usage.n_output);
    same_text(qr_json_find(choice, "role"), &a.role, "role");
    same_text(qr_json_find(choice, "content"), &a.text, "content");
    same_text(qr_json_find(choice, "refusal"), &a.refusal, "refusal");
    same_text(qr_json_find(choice, "finish_reason"), &a.finish, "finish_reason");
    same_tools(qr_json_find(choice, "tool_calls"), &a.tools);
    qr_sse_release(&r);
    qr_chunk_release(&a);
}

Test(sse, recorded_streams_end_in_what_the_server_meant_in_any_chunking)
{
    const char *data = getenv("QUIRE_DATA");
    char path[600];
    struct qr_buf text = {0};
    struct qr_err err;
    snprintf(path, sizeof path, "%s/openai-sse/expected.json", data != NULL ? data : "../shared/data");
    if (qr_file_read(&text, path, QR_FILE_ANY, 1 << 20, &err) != 0)
        cr_skip_test("no conformance data: %s", err.msg);
    struct qr_json *expected = NULL;
    cr_assert_eq(qr_json_parse(&expected, text.data, text.len, &qr_json_limits_file, &err), 0, "%s", err.msg);
    int n_files = 0;
    for (const struct qr_json *e = qr_json_first(expected); e != NULL; e = qr_json_after(e), n_files++) {
        struct qr_buf stream = {0};
        snprintf(path, sizeof path, "%s/openai-sse/%s", data != NULL ? data : "../shared/data", qr_json_key(e));
        cr_assert_eq(qr_file_read(&stream, path, QR_FILE_ANY, 1 << 20, &err), 0, "%s", err.msg);
        static const size_t pieces[] = {1, 2, 3, 7, 64, 1000, 1 << 20};
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
            check_recording(e, &stream, pieces[i]);
        qr_buf_release(&stream);
    }
    cr_expect_geq(n_files, 6);
    qr_json_free(expected);
    qr_buf_release(&text);
}

/* ---- chunks ---- */

Test(chunk, reads_errors_in_their_usual_shapes)
{
    static const struct {
        const char *json, *message, *code;
    } cases[] = {
        {"{\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}}", "m", "c"},
        {"{\"error\":{\"message\":\"m\",\"code\":404}}", "m", "404"},
        {"{\"error\":\"m\",\"error_type\":\"x\"}", "m", ""},
        {"{\"object\":\"error\",\"message\":\"m\",\"code\":null}", "m", ""},
        {"{\"detail\":\"m\"}", "m", ""},
    };
    struct qr_chunk c;
    struct qr_err err;
    qr_chunk_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(qr_chunk_parse(&c, cases[i].json, strlen(cases[i].json), &err), 0);
        cr_expect(c.is_error, "%s", cases[i].json);
        cr_expect_str_eq(qr_buf_text(&c.error_message), cases[i].message);
        cr_expect_str_eq(qr_buf_text(&c.error_code), cases[i].code);
    }
    qr_chunk_release(&c);
}

Test(chunk, refuses_what_is_no_chunk)
{
    static const char *const bad[] = {
        "", "x", "[]", "1", "{\"choices\":1}", "{\"choices\":[1]}", "{\"choices\":[{\"delta\":{\"content\":5}}]}",
        "{\"choices\":[{\"text\":[]}]}", "{\"choices\":[{\"index\":\"0\"}]}", "{\"usage\":{\"prompt_tokens\":-1}}",
        "{\"usage\":{\"prompt_tokens\":1.5}}", "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":64}]}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1}]}}]}", "{\"choices\":[]} x", "{\"choices\":[]",
    };
    struct qr_chunk c;
    qr_chunk_init(&c);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct qr_err err = {0};
        cr_expect_lt(qr_chunk_parse(&c, bad[i], strlen(bad[i]), &err), 0, "%s", bad[i]);
        cr_expect_neq(err.msg[0], '\0');
    }
    qr_chunk_release(&c);
}

Test(chunk, ignores_choices_other_than_the_first)
{
    struct qr_chunk c;
    struct qr_err err;
    const char *other = "{\"choices\":[{\"delta\":{\"content\":\"no\"},\"index\":1}]}";
    const char *two = "{\"choices\":[{\"delta\":{\"content\":\"yes\"},\"index\":0},{\"delta\":{\"content\":\"no\"},\"index\":1}]}";
    qr_chunk_init(&c);
    cr_assert_eq(qr_chunk_parse(&c, other, strlen(other), &err), 0);
    cr_expect(!qr_chunk_generates(&c));
    cr_assert_eq(qr_chunk_parse(&c, two, strlen(two), &err), 0);
    cr_expect_str_eq(qr_buf_text(&c.text), "yes");
    qr_chunk_release(&c);
}
