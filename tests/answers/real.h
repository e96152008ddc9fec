/* real.h - real schemas and their instances, for tests: the shared data's lines of JSON, and how an instance is written. */
#ifndef QR_TESTS_ANSWERS_REAL_H
#define QR_TESTS_ANSWERS_REAL_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "schemas.h"

/* The file, one JSON document a line; skips the test where the data is missing. */
static inline struct qr_buf read_lines(const char *name)
{
    char path[1024];
    struct qr_err err = {0};
    struct qr_buf text = {0};
    const char *root = getenv("QUIRE_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "", name);
    if (!root || qr_file_read(&text, path, QR_FILE_REGULAR, (size_t)64 << 20, &err) != 0)
        cr_skip_test("conformance data %s is missing (QUIRE_DATA)", name);
    return text;
}

/* The next line's document; NULL at the end. at: where to go on. */
static inline struct qr_json *next_line(const struct qr_buf *text, size_t *at)
{
    struct qr_json_limits limits = qr_json_limits_file;
    struct qr_json *doc = NULL;
    struct qr_err err = {0};
    limits.depth_max = 64;
    if (*at >= text->len)
        return NULL;
    const char *line = text->data + *at, *end = memchr(line, '\n', text->len - *at);
    const size_t n = end ? (size_t)(end - line) : text->len - *at;
    *at += n + 1;
    cr_assert_eq(qr_json_parse(&doc, line, n, &limits, &err), 0, "%s", err.msg);
    return doc;
}

/* v as json.dumps writes it: form 1 with its usual blanks, others without. */
static inline void dump(struct qr_buf *out, const struct qr_json *v, int form)
{
    const bool is_object = qr_json_type(v) == QR_JSON_T_OBJECT;
    if (!is_object && qr_json_type(v) != QR_JSON_T_ARRAY) {
        qr_json_print(out, v);
        return;
    }
    qr_buf_put_byte(out, is_object ? '{' : '[');
    for (const struct qr_json *m = qr_json_first(v); m; m = qr_json_after(m)) {
        if (is_object) {
            qr_json_put_str(out, qr_json_key(m), strlen(qr_json_key(m)));
            qr_buf_put_str(out, form == 1 ? ": " : ":");
        }
        dump(out, m, form);
        if (qr_json_after(m))
            qr_buf_put_str(out, form == 1 ? ", " : ",");
    }
    qr_buf_put_byte(out, is_object ? '}' : ']');
}

#endif
