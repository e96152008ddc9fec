/* The JSON gate on arbitrary bytes. Besides not crashing: scan and tree accept the same texts, strings that were accepted
 * unescape to valid UTF-8, and printing is a fixed point: print(parse(x)) parses, and prints as itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct qr_json_limits limits[] = {{.bytes_max = 1 << 16, .values_max = 5000, .depth_max = 16, .nul_ok = true},
                                               {.bytes_max = 1 << 16, .values_max = 5000, .depth_max = 16, .nul_ok = false}};

static int scan_all(const char *text, size_t len, const struct qr_json_limits *l, struct qr_err *err)
{
    struct qr_json_scan *s = qr_json_scan_new(text, len, l);
    struct qr_json_token t;
    struct qr_buf b = {0};
    int rc;
    while ((rc = qr_json_next(s, &t, err)) == 0 && t.event != QR_JSON_DONE) {
        QR_ASSERT(t.text >= text && t.text + t.len <= text + len);
        int64_t i64;
        if (t.event == QR_JSON_NUMBER && qr_json_token_i64(&t, &i64))
            QR_ASSERT(qr_json_token_f64(&t) == (double)i64);
        if (t.event != QR_JSON_KEY && t.event != QR_JSON_STRING)
            continue;
        qr_buf_clear(&b);
        qr_json_unescape(&b, &t);
        QR_ASSERT(qr_utf8_valid_prefix(b.data, b.len) == b.len);
        if (!memchr(b.data, 0, b.len))
            QR_ASSERT(qr_json_token_is(&t, b.data));
    }
    qr_json_scan_free(s);
    qr_buf_release(&b);
    return rc;
}

/* Every member is found under its own name, unless U+0000 hides the rest of the name. */
static void look_up(const struct qr_json *v, bool nul_ok)
{
    int32_t n = 0;
    for (const struct qr_json *m = qr_json_first(v); m; m = qr_json_after(m), n++) {
        const char *key = qr_json_key(m);
        QR_ASSERT((key != NULL) == (qr_json_type(v) == QR_JSON_T_OBJECT));
        QR_ASSERT(!key || nul_ok || qr_json_find(v, key) == m);
        look_up(m, nul_ok);
    }
    QR_ASSERT(qr_json_count(v) == n);
}

static void check(const char *text, size_t len, const struct qr_json_limits *l)
{
    struct qr_err scan_err = {0}, doc_err = {0};
    struct qr_json *doc = NULL, *again = NULL;
    int rc = scan_all(text, len, l, &scan_err);
    QR_ASSERT(qr_json_parse(&doc, text, len, l, &doc_err) == rc);
    if (rc) {
        QR_ASSERT(doc == NULL && strcmp(scan_err.msg, doc_err.msg) == 0);
        return;
    }
    struct qr_buf once = {0}, twice = {0};
    look_up(doc, l->nul_ok);
    qr_json_print(&once, doc);
    struct qr_json_limits wide = *l;
    wide.bytes_max *= 6; /* printing may lengthen: U+0001 as one escape each */
    QR_ASSERT(qr_json_parse(&again, once.data, once.len, &wide, &doc_err) == 0);
    qr_json_print(&twice, again);
    QR_ASSERT(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    qr_json_free(doc);
    qr_json_free(again);
    qr_buf_release(&once);
    qr_buf_release(&twice);
}

/* Any bytes as a string, any double: what we write we read. */
static void check_writing(const uint8_t *data, size_t size)
{
    struct qr_buf b = {0};
    struct qr_json *v;
    struct qr_err err;
    qr_json_put_str(&b, (const char *)data, size);
    QR_ASSERT(qr_json_parse(&v, b.data, b.len, &qr_json_limits_file, &err) == 0);
    size_t len;
    const char *s = qr_json_str(v, &len);
    if (qr_utf8_valid_prefix((const char *)data, size) == size)
        QR_ASSERT(len == size && (size == 0 || memcmp(s, data, size) == 0));
    qr_json_free(v);
    double d;
    if (size >= sizeof d) {
        memcpy(&d, data, sizeof d);
        qr_buf_clear(&b);
        qr_json_put_f64(&b, d);
        QR_ASSERT(qr_json_parse(&v, b.data, b.len, &qr_json_limits_file, &err) == 0);
        if (!qr_json_is_null(v))
            QR_ASSERT(qr_json_f64(v) == d);
        qr_json_free(v);
    }
    qr_buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1); /* exactly as large, so that a read behind it is seen */
    if (size)
        memcpy(text, data, size);
    check(text, size, &limits[0]);
    check(text, size, &limits[1]);
    check_writing(data, size);
    free(text);
    return 0;
}
