/* tune_text.c - the table as text, and back.
 *
 *     quire-tune 1 1f0c9a7d5e3b2846                       the format's version; XXH3 of everything below this line
 *     processor GenuineIntel 6-143-8 ...
 *     level amx threads 2
 *     linear bf16 576 1536 0 rows 32 ahead_lines=64       type, a, b, c, the bucket's first row; what is not the kernel's own choice
 *
 * A reader wants every byte as it was written: the checksum covers all of it but the first line, which has one spelling. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "kernels/tune.h"

#define HEAD "quire-tune 1 "
#define HEAD_BYTES (sizeof HEAD - 1 + 17) /* 16 digits and the end of the line */
#define SEED 0x71756972
#define LINE_MAX_BYTES 512
#define WORDS_MAX (7 + QR_TUNE_FIELDS)

static const char *const op_names[] = {[QR_TUNE_LINEAR] = "linear", [QR_TUNE_ATTENTION] = "attention", [QR_TUNE_CHAIN] = "chain"};

static int32_t first_row(int32_t bucket)
{
    return bucket == 0 ? 1 : qr_tune_bucket_rows[bucket - 1] + 1;
}

void qr_tune_describe(char *out, size_t size, const struct qr_tunables *value)
{
    QR_ASSERT(out != NULL && size > 0);
    QR_ASSERT(value != NULL);
    struct qr_tunables v = *value;
    size_t n = 0;
    out[0] = '\0';
    for (int f = 0; f < QR_TUNE_FIELDS && n < size; f++)
        if (*qr_tune_value(&v, f))
            n += (size_t)snprintf(out + n, size - n, "%s%s=%d", n ? " " : "", qr_tune_fields[f].name, (int)*qr_tune_value(&v, f));
}

void qr_tune_seal(struct qr_buf *out, const char *body, size_t n_bytes)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(body != NULL || n_bytes == 0);
    qr_buf_printf(out, HEAD "%016" PRIx64 "\n", qr_hash64(body, n_bytes, SEED));
    qr_buf_put(out, body, n_bytes);
}

void qr_tune_format(struct qr_buf *out, const struct qr_tune *t, const char *processor)
{
    QR_ASSERT(out != NULL && t != NULL);
    QR_ASSERT(processor != NULL && strchr(processor, '\n') == NULL);
    struct qr_buf body = {0};
    struct qr_tune_shape *shape = qr_tune_sorted(t);
    qr_buf_printf(&body, "processor %s\nlevel %s threads %d\n", processor, qr_tune_level(t), (int)qr_tune_threads(t));
    for (int32_t i = 0; i < qr_tune_count(t); i++) {
        const struct qr_tune_key *k = &shape[i].key;
        char values[LINE_MAX_BYTES / 2];
        qr_tune_describe(values, sizeof values, &shape[i].value);
        qr_buf_printf(&body, "%s %s %d %d %d rows %d%s%s\n", op_names[k->op], qr_dtype_name((enum qr_dtype)k->type), (int)k->a, (int)k->b, (int)k->c,
                      (int)first_row(k->bucket), values[0] ? " " : "", values);
    }
    qr_tune_seal(out, body.data, body.len);
    qr_buf_release(&body);
    qr_free(shape);
}

/* Decimal digits without sign or leading zeros, within [0, INT32_MAX]. */
static bool read_number(int32_t *out, const char *s)
{
    int64_t v = 0;
    if (*s < '0' || *s > '9' || (*s == '0' && s[1] != '\0'))
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > INT32_MAX / 10)
            return false;
        v = v * 10 + (*s - '0');
    }
    *out = (int32_t)v;
    return v <= INT32_MAX;
}

static bool read_field(struct qr_tunables *value, char *word)
{
    char *equals = strchr(word, '=');
    if (!equals)
        return false;
    *equals = '\0';
    for (int f = 0; f < QR_TUNE_FIELDS; f++)
        if (strcmp(word, qr_tune_fields[f].name) == 0)
            return *qr_tune_value(value, f) == 0 && read_number(qr_tune_value(value, f), equals + 1);
    return false;
}

/* The type's number, or that of none. */
static uint8_t read_type(uint8_t op, const char *word)
{
    for (int i = 0; i < (int)QR_DTYPE_COUNT; i++)
        if (strcmp(word, qr_dtype_name((enum qr_dtype)i)) == 0 && (op == QR_TUNE_ATTENTION || qr_dtype_multiplies((enum qr_dtype)i)))
            return (uint8_t)i;
    return QR_DTYPE_COUNT;
}

/* A shape's line, which is cut into its words. */
static bool read_shape(struct qr_tune *t, char *line)
{
    char *word[WORDS_MAX + 1], *rest = NULL;
    int n = 0;
    for (char *w = strtok_r(line, " ", &rest); w && n <= WORDS_MAX; w = strtok_r(NULL, " ", &rest))
        word[n++] = w;
    if (n < 7 || n > WORDS_MAX || strcmp(word[5], "rows") != 0)
        return false;
    struct qr_tune_key key = {.op = QR_COUNT(op_names)};
    for (int i = 0; i < QR_COUNT(op_names); i++)
        if (strcmp(word[0], op_names[i]) == 0)
            key.op = (uint8_t)i;
    int32_t row;
    if (key.op == QR_COUNT(op_names) || !read_number(&key.a, word[2]) || !read_number(&key.b, word[3]) || !read_number(&key.c, word[4]) ||
        !read_number(&row, word[6]))
        return false;
    key.type = read_type(key.op, word[1]);
    key.bucket = QR_TUNE_BUCKETS;
    for (int32_t b = 0; b < QR_TUNE_BUCKETS; b++)
        if (row == first_row(b))
            key.bucket = (uint8_t)b;
    struct qr_tunables value = {0};
    for (int i = 7; i < n; i++)
        if (!read_field(&value, word[i]))
            return false;
    return qr_tune_valid(&key, &value) && qr_tune_set(t, key, &value);
}

/* One line into `line`, without its end; the bytes it took, 0 when there is no whole line of a sensible length. */
static size_t take_line(char line[LINE_MAX_BYTES], const char *text, size_t n_bytes)
{
    const char *end = n_bytes ? memchr(text, '\n', n_bytes) : NULL;
    if (!end || end - text >= LINE_MAX_BYTES || memchr(text, '\0', (size_t)(end - text)))
        return 0;
    memcpy(line, text, (size_t)(end - text));
    line[end - text] = '\0';
    return (size_t)(end - text) + 1;
}

/* The lines that say for whom the table is. */
static int read_head(size_t *taken, const struct qr_tune *t, const char *text, size_t n_bytes, const char *processor, struct qr_err *err)
{
    char line[LINE_MAX_BYTES], expected[LINE_MAX_BYTES];
    *taken = 0;
    for (int i = 0; i < 2; i++) {
        size_t n = take_line(line, text + *taken, n_bytes - *taken);
        if (n == 0)
            return qr_err_set(err, QR_E_DAMAGED, "it ends before it says for what it is");
        if (i == 0)
            snprintf(expected, sizeof expected, "processor %s", processor);
        else
            snprintf(expected, sizeof expected, "level %s threads %d", qr_tune_level(t), (int)qr_tune_threads(t));
        if (strcmp(line, expected) != 0)
            return qr_err_set(err, QR_E_UNSUPPORTED, "it is for \"%.100s\", expected \"%.100s\"", line, expected);
        *taken += n;
    }
    return 0;
}

int qr_tune_parse(struct qr_tune *t, const char *text, size_t n_bytes, const char *processor, struct qr_err *err)
{
    QR_ASSERT(t != NULL && (text != NULL || n_bytes == 0));
    QR_ASSERT(processor != NULL && err != NULL);
    char head[HEAD_BYTES + 1], line[LINE_MAX_BYTES];
    if (n_bytes < HEAD_BYTES || memcmp(text, HEAD, sizeof HEAD - 1) != 0)
        return qr_err_set(err, n_bytes < HEAD_BYTES ? QR_E_DAMAGED : QR_E_UNSUPPORTED, "it does not begin with \"" HEAD "\" and a checksum");
    snprintf(head, sizeof head, HEAD "%016" PRIx64 "\n", qr_hash64(text + HEAD_BYTES, n_bytes - HEAD_BYTES, SEED));
    if (memcmp(text, head, HEAD_BYTES) != 0)
        return qr_err_set(err, QR_E_DAMAGED, "its checksum is not the one of its %zu bytes", n_bytes);
    text += HEAD_BYTES;
    n_bytes -= HEAD_BYTES;
    size_t n;
    int rc = read_head(&n, t, text, n_bytes, processor, err);
    struct qr_tune *fresh = qr_tune_new(qr_tune_level(t), qr_tune_threads(t));
    for (size_t at = n; rc == 0 && at < n_bytes; at += n) {
        n = take_line(line, text + at, n_bytes - at);
        if (n == 0 || !read_shape(fresh, line))
            rc = qr_err_set(err, QR_E_DAMAGED, "byte %zu does not begin a shape", at + HEAD_BYTES);
    }
    if (rc == 0)
        qr_tune_merge(t, fresh);
    qr_tune_free(fresh);
    return rc;
}
