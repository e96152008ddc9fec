#include "train/data/doc_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"

#define BLOCK_BYTES ((size_t)1 << 16)

bool qr_data_is_lines(enum qr_data_kind kind, const char *path)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(kind >= QR_DATA_AUTO && kind <= QR_DATA_JSONL);
    return kind == QR_DATA_JSONL ||
           (kind == QR_DATA_AUTO && (qr_ends_with(path, ".jsonl") || qr_ends_with(path, ".ndjson")));
}

static int fail(const struct qr_doc_reader *r, int number, struct qr_err *err)
{
    char text[128];
    return qr_err_set(err, number == ENOENT || number == ENOTDIR ? QR_E_NOT_FOUND : QR_E_IO, "%s: cannot be read: %s", r->path, qr_errno_text(text, number));
}

int qr_doc_reader_open(struct qr_doc_reader *r, const char *path, bool lines, const char *separator, struct qr_err *err)
{
    QR_ASSERT(r != NULL && path != NULL);
    QR_ASSERT(!lines || !separator);
    *r = (struct qr_doc_reader){.path = path, .separator = separator, .lines = lines, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (r->fd < 0)
        return fail(r, errno, err);
    r->block = qr_alloc(BLOCK_BYTES, 1);
    return 0;
}

void qr_doc_reader_close(struct qr_doc_reader *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(r->fd >= 0 || r->block == NULL);
    if (r->fd >= 0)
        close(r->fd);
    qr_free(r->block);
    qr_buf_release(&r->doc);
    r->fd = -1;
    r->block = NULL;
}

/* Fills the block. Nothing in it: the file has ended. */
static int fill(struct qr_doc_reader *r, struct qr_err *err)
{
    ssize_t n;
    do
        n = read(r->fd, r->block, BLOCK_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fail(r, errno, err);
    r->at = 0;
    r->n_block = (size_t)n;
    r->n_bytes += n;
    return 0;
}

/* Appends a line with its line break to the document. *n is its length, 0 at the end of the file. */
static int take_line(struct qr_doc_reader *r, int64_t doc_line, size_t *n, struct qr_err *err)
{
    const size_t before = r->doc.len;
    bool ended = false;
    while (!ended) {
        int rc = r->at == r->n_block ? fill(r, err) : 0;
        if (rc != 0)
            return rc;
        if (r->n_block == 0)
            break;
        const char *from = r->block + r->at, *end = memchr(from, '\n', r->n_block - r->at);
        const size_t len = end ? (size_t)(end - from) + 1 : r->n_block - r->at;
        if (len > QR_DOC_BYTES_MAX - r->doc.len)
            return qr_err_set(err, QR_E_TOO_LARGE, "%s:%" PRId64 ": the document that begins here has more than %zu MiB; %s", r->path, doc_line,
                              QR_DOC_BYTES_MAX >> 20, r->lines ? "a line holds one document" : "split the file at a line of your choice (--separator)");
        qr_buf_put(&r->doc, from, len);
        r->at += len;
        ended = end != NULL;
    }
    *n = r->doc.len - before;
    r->line += *n > 0;
    return 0;
}

/* The length of s[0..n) without the line break at its end. */
static size_t without_break(const char *s, size_t n)
{
    n -= n > 0 && s[n - 1] == '\n';
    return n - (n > 0 && s[n - 1] == '\r');
}

/* Reads up to the end of one document, which may be empty. *len is its length in r->doc. */
static int take_document(struct qr_doc_reader *r, int64_t doc_line, size_t *len, struct qr_err *err)
{
    size_t n = 0;
    r->doc.len = 0;
    for (;;) {
        const size_t before = r->doc.len;
        const int rc = take_line(r, doc_line, &n, err);
        if (rc != 0)
            return rc;
        if (n == 0) {
            r->ended = true;
            *len = r->doc.len;
            return 0;
        }
        const char *line = r->doc.data + before;
        const size_t n_line = without_break(line, n);
        if (r->lines) {
            *len = n_line;
            return 0;
        }
        if (r->separator && n_line == strlen(r->separator) && memcmp(line, r->separator, n_line) == 0) {
            *len = without_break(r->doc.data, before);
            return 0;
        }
    }
}

int qr_doc_reader_next(struct qr_doc_reader *r, struct qr_doc_text *out, struct qr_err *err)
{
    QR_ASSERT(r != NULL && r->fd >= 0);
    QR_ASSERT(out != NULL);
    *out = (struct qr_doc_text){0};
    while (!r->ended && out->len == 0) {
        out->line = r->line + 1;
        const int rc = take_document(r, out->line, &out->len, err);
        if (rc != 0)
            return rc;
    }
    out->text = r->doc.data;
    return 0;
}

int64_t qr_data_files_bytes(const char *const *files, int32_t n)
{
    QR_ASSERT(files != NULL);
    QR_ASSERT(n >= 0);
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        struct stat st;
        if (stat(files[i], &st) != 0 || !S_ISREG(st.st_mode))
            return 0;
        sum += st.st_size;
    }
    return sum;
}
