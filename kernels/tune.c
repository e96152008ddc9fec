/* tune.c - the table of measured cuts, and its file: a line that says for which processor, level and threads the table
 * is, and the table in another one, a letter for each kind of launch ('0': not measured, '1': one item, and so on).
 *
 * A file is taken as a whole, or not at all. A backend that measures has read the file before, so that saving replaces
 * it; of two processes that save at once the later one's table stays. A table is used by one thread at a time. */
#include "kernels/tune.h"

#include <cpuid.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define HEAD_BYTES 300
#define PROCESSOR_BYTES 64
#define LETTER '0' /* of 0 items; up to 'p' */

struct qr_tune {
    const char *level; /* borrowed */
    int32_t n_threads, n;
    uint8_t items[QR_TUNE_OPS][QR_DTYPE_COUNT][QR_TUNE_BUCKETS][QR_TUNE_SIZES]; /* for each thread; 0: not known */
};

int32_t qr_tune_bucket(int32_t n_rows)
{
    static const int32_t most[] = {1, 4, 16, 32, 128, INT32_MAX};
    int32_t b = 0;
    QR_ASSERT(QR_COUNT(most) == QR_TUNE_BUCKETS);
    while (n_rows > most[b])
        b++;
    return b;
}

struct qr_tune_kind qr_tune_linear(enum qr_dtype type, int32_t n_rows, int32_t n_in, int32_t n_out)
{
    const int64_t n = (int64_t)n_in * n_out;
    const int size = n <= 1 << 19 ? 0 : n <= 1 << 21 ? 1 : n <= 1 << 23 ? 2 : 3;
    return (struct qr_tune_kind){.op = QR_TUNE_LINEAR, .type = (uint8_t)type, .bucket = (uint8_t)qr_tune_bucket(n_rows), .size = (uint8_t)size};
}

struct qr_tune_kind qr_tune_attention(enum qr_dtype type, int32_t n_rows)
{
    return (struct qr_tune_kind){.op = QR_TUNE_ATTENTION, .type = (uint8_t)type, .bucket = (uint8_t)qr_tune_bucket(n_rows)};
}

struct qr_tune *qr_tune_new(const char *level, int32_t n_threads)
{
    QR_ASSERT(level != NULL);
    QR_ASSERT(n_threads >= 1);
    struct qr_tune *t = qr_alloc(1, sizeof *t);
    *t = (struct qr_tune){.level = level, .n_threads = n_threads};
    return t;
}

void qr_tune_free(struct qr_tune *t)
{
    qr_free(t);
}

int32_t qr_tune_count(const struct qr_tune *t)
{
    return t ? t->n : 0;
}

int32_t qr_tune_find(const struct qr_tune *t, struct qr_tune_kind k)
{
    return t && t->n > 0 ? t->items[k.op][k.type][k.bucket][k.size] : 0;
}

void qr_tune_set(struct qr_tune *t, struct qr_tune_kind k, int32_t items)
{
    QR_ASSERT(t != NULL && items >= 0 && items <= QR_TUNE_ITEMS_MAX);
    QR_ASSERT(k.op < QR_TUNE_OPS && k.type < QR_DTYPE_COUNT && k.bucket < QR_TUNE_BUCKETS && k.size < QR_TUNE_SIZES);
    uint8_t *at = &t->items[k.op][k.type][k.bucket][k.size];
    t->n += (items > 0) - (*at > 0);
    *at = (uint8_t)items;
}

/* ---- the file ---- */

/* The first line. The number of types is said because a kind's place depends on it. */
static size_t put_head(char out[HEAD_BYTES], const struct qr_tune *t, const char *processor)
{
    const int n = snprintf(out, HEAD_BYTES, "quire-tune 3: %d types, level %s, %d threads, %s\n", (int)QR_DTYPE_COUNT,
                           t->level, (int)t->n_threads, processor);
    QR_ASSERT(n > 0 && n < HEAD_BYTES);
    return (size_t)n;
}

void qr_tune_format(struct qr_buf *out, const struct qr_tune *t, const char *processor)
{
    QR_ASSERT(out != NULL && t != NULL);
    QR_ASSERT(processor != NULL && strchr(processor, '\n') == NULL);
    char head[HEAD_BYTES];
    const uint8_t *items = &t->items[0][0][0][0];
    qr_buf_put(out, head, put_head(head, t, processor));
    for (size_t i = 0; i < sizeof t->items; i++)
        qr_buf_put_byte(out, (char)(LETTER + items[i]));
    qr_buf_put_byte(out, '\n');
}

int qr_tune_parse(struct qr_tune *t, const char *text, size_t n_bytes, const char *processor, struct qr_err *err)
{
    QR_ASSERT(t != NULL && (text != NULL || n_bytes == 0));
    QR_ASSERT(processor != NULL && err != NULL);
    char head[HEAD_BYTES];
    struct qr_tune fresh = {.level = t->level, .n_threads = t->n_threads};
    const size_t at = put_head(head, t, processor), whole = at + sizeof fresh.items + 1;
    uint8_t *items = &fresh.items[0][0][0][0];
    if (n_bytes < at || memcmp(text, head, at) != 0) {
        const size_t most = n_bytes < HEAD_BYTES ? n_bytes : HEAD_BYTES;
        const char *end = most > 0 ? memchr(text, '\n', most) : NULL;
        return qr_err_set(err, end ? QR_E_UNSUPPORTED : QR_E_DAMAGED, "it begins with \"%.*s\", expected \"%.*s\"",
                          end ? (int)(end - text) : 0, text, (int)at - 1, head);
    }
    if (n_bytes != whole || text[whole - 1] != '\n')
        return qr_err_set(err, QR_E_DAMAGED, "it has %zu bytes, expected %zu and the end of a line", n_bytes, whole);
    for (size_t i = 0; i < sizeof fresh.items; i++) {
        const int v = text[at + i] - LETTER;
        if (v < 0 || v > QR_TUNE_ITEMS_MAX)
            return qr_err_set(err, QR_E_DAMAGED, "byte %zu is none of the letters from '0' to 'p'", at + i);
        items[i] = (uint8_t)v;
        fresh.n += v > 0;
    }
    *t = fresh;
    return 0;
}

/* Signature and name of the processor, in one line. */
static void describe_processor(char out[PROCESSOR_BYTES])
{
    unsigned a = 0, b, c, d, name[13] = {0};
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &name[4 * i], &name[4 * i + 1], &name[4 * i + 2], &name[4 * i + 3]);
    __get_cpuid(1, &a, &b, &c, &d);
    snprintf(out, PROCESSOR_BYTES, "%x %s", a & 0x0fff3fffu, (const char *)name);
    for (char *p = out; *p; p++) /* a supervisor may say anything */
        if (*p < ' ' || *p > '~')
            *p = '?';
}

bool qr_tune_dir(char *out, size_t size)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(size > 0);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/') /* others are to be ignored: XDG Base Directory Specification */
        n = snprintf(out, size, "%s/quire", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.cache/quire", home);
    return n > 0 && (size_t)n < size;
}

void qr_tune_path(char *out, size_t size, const char *dir, const struct qr_tune *t)
{
    QR_ASSERT(out != NULL && size > 0);
    QR_ASSERT(dir != NULL && t != NULL);
    char processor[PROCESSOR_BYTES];
    describe_processor(processor);
    snprintf(out, size, "%s/tune-%016" PRIx64 "-%s-%d.txt", dir, qr_hash64(processor, strlen(processor), 0), t->level, (int)t->n_threads);
}

int qr_tune_load(struct qr_tune *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_PATH_MAX], processor[PROCESSOR_BYTES];
    struct qr_buf text = {0};
    qr_tune_path(path, sizeof path, dir, t);
    describe_processor(processor);
    int rc = qr_file_read(&text, path, QR_FILE_OPTIONAL, FILE_BYTES_MAX, err);
    if (rc == 0 && text.data && (rc = qr_tune_parse(t, text.data, text.len, processor, err)) != 0)
        qr_err_prefix(err, "%s: ", path);
    qr_buf_release(&text);
    return rc;
}

int qr_tune_save(const struct qr_tune *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_PATH_MAX], processor[PROCESSOR_BYTES];
    struct qr_buf text = {0};
    int rc = qr_dir_make_all(dir, 0700, err); /* for this user alone where it is new */
    if (rc)
        return rc;
    qr_tune_path(path, sizeof path, dir, t);
    describe_processor(processor);
    qr_tune_format(&text, t, processor);
    rc = qr_file_replace(path, text.data, text.len, err);
    qr_buf_release(&text);
    return rc;
}
