/* tune.c - the table of measured cuts, and its file:
 *
 *     quire-tune 2 1f0c9a7d5e3b2846           the format's version; XXH3 of everything below this line
 *     processor GenuineIntel 806f8 Intel(R) ...
 *     level amx threads 2
 *     linear bf16 size 1 rows 32 items 2      rows: the most of its bucket, 0 for the last
 *
 * A line is taken where it is, byte for byte, what would be written for what it says. A backend that measures has read the file before, so that saving
 * replaces it as a whole; of two processes that save at once the later one's table stays. A table is used by one thread at a time. */
#include "kernels/tune.h"

#include <cpuid.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/files/map_file.h"
#include "base/hash.h"
#include "base/mem.h"

#define HEAD "quire-tune 2 "
#define HEAD_BYTES (sizeof HEAD - 1 + 17) /* 16 digits and the end of the line */
#define SEED 0x71756972
#define FILE_BYTES_MAX ((size_t)1 << 20)
#define LINE_BYTES 100
#define PROCESSOR_BYTES 96

struct qr_tune {
    const char *level; /* borrowed */
    int32_t n_threads, n;
    uint8_t items[QR_TUNE_OPS][QR_DTYPE_COUNT][QR_TUNE_BUCKETS][QR_TUNE_SIZES]; /* for each thread; 0: not known */
};

static const int32_t bucket_rows[QR_TUNE_BUCKETS] = {1, 4, 16, 32, 128, INT32_MAX};

int32_t qr_tune_bucket(int32_t n_rows)
{
    int32_t b = 0;
    while (n_rows > bucket_rows[b])
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

/* ---- text ---- */

static const char *const op_names[] = {[QR_TUNE_LINEAR] = "linear", [QR_TUNE_ATTENTION] = "attention"};

void qr_tune_seal(struct qr_buf *out, const char *body, size_t n_bytes)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(body != NULL || n_bytes == 0);
    qr_buf_printf(out, HEAD "%016" PRIx64 "\n", qr_hash64(body, n_bytes, SEED));
    qr_buf_put(out, body, n_bytes);
}

static void put_head(struct qr_buf *out, const struct qr_tune *t, const char *processor)
{
    qr_buf_printf(out, "processor %s\nlevel %s threads %d\n", processor, t->level, (int)t->n_threads);
}

static void put_line(struct qr_buf *out, struct qr_tune_kind k, int32_t items)
{
    const int32_t rows = bucket_rows[k.bucket];
    qr_buf_printf(out, "%s %s size %d rows %d items %d\n", op_names[k.op], qr_dtype_name((enum qr_dtype)k.type), k.size, rows < INT32_MAX ? (int)rows : 0,
                  (int)items);
}

void qr_tune_format(struct qr_buf *out, const struct qr_tune *t, const char *processor)
{
    QR_ASSERT(out != NULL && t != NULL);
    QR_ASSERT(processor != NULL && strchr(processor, '\n') == NULL);
    struct qr_buf body = {0};
    put_head(&body, t, processor);
    for (size_t i = 0; i < sizeof t->items; i++) {
        const struct qr_tune_kind k = {.op = (uint8_t)(i / sizeof t->items[0]), .type = (uint8_t)(i / sizeof t->items[0][0] % QR_DTYPE_COUNT),
                                       .bucket = (uint8_t)(i / QR_TUNE_SIZES % QR_TUNE_BUCKETS), .size = (uint8_t)(i % QR_TUNE_SIZES)};
        const int32_t items = t->items[k.op][k.type][k.bucket][k.size];
        if (items > 0)
            put_line(&body, k, items);
    }
    qr_tune_seal(out, body.data, body.len);
    qr_buf_release(&body);
}

/* Sets what the line says that `text` begins with; the bytes it took, 0 where it is no line of ours. */
static size_t take_line(struct qr_tune *t, const char *text, size_t n_bytes)
{
    char line[LINE_BYTES] = "", op[16], type[16];
    int size, rows, items, o = 0, y = 0;
    const size_t n = n_bytes < sizeof line - 1 ? n_bytes : sizeof line - 1;
    memcpy(line, text, n);
    if (sscanf(line, "%15s %15s size %d rows %d items %d", op, type, &size, &rows, &items) != 5)
        return 0;
    while (o < QR_TUNE_OPS && strcmp(op, op_names[o]) != 0)
        o++;
    while (y < (int)QR_DTYPE_COUNT && (strcmp(type, qr_dtype_name((enum qr_dtype)y)) != 0 || (o == QR_TUNE_LINEAR && !qr_dtype_multiplies((enum qr_dtype)y))))
        y++; /* a cache's int8 and that of weights have one name */
    if (o == QR_TUNE_OPS || y == (int)QR_DTYPE_COUNT || size < 0 || size >= QR_TUNE_SIZES || items < 1 || items > QR_TUNE_ITEMS_MAX)
        return 0;
    const struct qr_tune_kind k = {.op = (uint8_t)o, .type = (uint8_t)y, .bucket = (uint8_t)qr_tune_bucket(rows ? rows : INT32_MAX), .size = (uint8_t)size};
    struct qr_buf again = {0};
    put_line(&again, k, items);
    const size_t taken = again.len <= n && memcmp(again.data, line, again.len) == 0 && qr_tune_find(t, k) == 0 ? again.len : 0;
    qr_buf_release(&again);
    if (taken)
        qr_tune_set(t, k, items);
    return taken;
}

/* Everything behind the first line into `fresh`. */
static int read_body(struct qr_tune *fresh, const char *text, size_t n_bytes, const char *processor, struct qr_err *err)
{
    struct qr_buf head = {0};
    put_head(&head, fresh, processor);
    size_t at = head.len;
    const bool ours = n_bytes >= at && memcmp(text, head.data, at) == 0;
    int rc = ours ? 0 : qr_err_set(err, QR_E_UNSUPPORTED, "it is for \"%.*s\", expected \"%.*s\"", (int)(n_bytes < 160 ? n_bytes : 160), text,
                                   (int)head.len, head.data);
    qr_buf_release(&head);
    while (rc == 0 && at < n_bytes) {
        const size_t n = take_line(fresh, text + at, n_bytes - at);
        if (n == 0)
            rc = qr_err_set(err, QR_E_DAMAGED, "byte %zu does not begin a line", at + HEAD_BYTES);
        at += n;
    }
    return rc;
}

int qr_tune_parse(struct qr_tune *t, const char *text, size_t n_bytes, const char *processor, struct qr_err *err)
{
    QR_ASSERT(t != NULL && (text != NULL || n_bytes == 0));
    QR_ASSERT(processor != NULL && err != NULL);
    char head[HEAD_BYTES + 1];
    if (n_bytes < HEAD_BYTES || memcmp(text, HEAD, sizeof HEAD - 1) != 0)
        return qr_err_set(err, n_bytes < HEAD_BYTES ? QR_E_DAMAGED : QR_E_UNSUPPORTED, "it does not begin with \"" HEAD "\" and a checksum");
    snprintf(head, sizeof head, HEAD "%016" PRIx64 "\n", qr_hash64(text + HEAD_BYTES, n_bytes - HEAD_BYTES, SEED));
    if (memcmp(text, head, HEAD_BYTES) != 0)
        return qr_err_set(err, QR_E_DAMAGED, "its checksum is not the one of its %zu bytes", n_bytes);
    struct qr_tune fresh = {.level = t->level, .n_threads = t->n_threads};
    const int rc = read_body(&fresh, text + HEAD_BYTES, n_bytes - HEAD_BYTES, processor, err);
    if (rc == 0)
        *t = fresh;
    return rc;
}

/* ---- the file ---- */

/* Vendor, signature and name of the processor, in one line. */
static void describe_processor(char out[PROCESSOR_BYTES])
{
    unsigned a = 0, b, c, d, name[13] = {0};
    char vendor[13] = "";
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        const unsigned order[3] = {b, d, c};
        memcpy(vendor, order, 12);
    }
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &name[4 * i], &name[4 * i + 1], &name[4 * i + 2], &name[4 * i + 3]);
    if (!__get_cpuid(1, &a, &b, &c, &d))
        a = 0;
    snprintf(out, PROCESSOR_BYTES, "%s %x %s", vendor, a & 0x0fff3fffu, (const char *)name);
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

bool qr_tune_make_dir(const char *dir)
{
    char path[QR_PATH_MAX];
    struct stat st;
    QR_ASSERT(dir != NULL);
    QR_ASSERT(dir[0] == '/');
    if ((size_t)snprintf(path, sizeof path, "%s", dir) >= sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *p = path + 1; *p; p++) /* for this user alone where they are new */
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0700);
            *p = '/';
        }
    mkdir(path, 0700);
    if (stat(path, &st) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode);
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
    struct qr_map_file f;
    struct qr_err found;
    qr_tune_path(path, sizeof path, dir, t);
    describe_processor(processor);
    int rc = qr_map_file_open(&f, path, FILE_BYTES_MAX, &found);
    if (rc) {
        if (rc != QR_E_NOT_FOUND)
            *err = found;
        return rc == QR_E_NOT_FOUND ? 0 : rc;
    }
    rc = qr_tune_parse(t, (const char *)f.data, f.n_bytes, processor, err);
    qr_map_file_close(&f);
    return rc ? qr_err_prefix(err, "%s: ", path) : 0;
}

int qr_tune_save(const struct qr_tune *t, const char *dir, struct qr_err *err)
{
    QR_ASSERT(t != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_PATH_MAX], processor[PROCESSOR_BYTES];
    struct qr_buf text = {0};
    if (!qr_tune_make_dir(dir))
        return qr_err_set(err, QR_E_IO, "%s: %s", dir, strerror(errno));
    qr_tune_path(path, sizeof path, dir, t);
    describe_processor(processor);
    qr_tune_format(&text, t, processor);
    const int rc = qr_file_replace(path, text.data, text.len, err);
    qr_buf_release(&text);
    return rc;
}
