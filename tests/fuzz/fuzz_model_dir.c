/* Any bytes as a model directory: a clean refusal or a model that opens, and `quire check` says the same.
 *
 * A file begins with a line "@@ NAME"; what is before the first one does not count. Where a *.safetensors begins with "{", its text up to the last "}" is the
 * header, whose length is put in front, and zeros are put behind it up to the largest offset that it names, so that a mutation of the header leaves a file.
 * Behind a *.gguf are zeros, too.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "loader/adapters/lora.h"
#include "loader/config/pooling.h"
#include "loader/config/scorer.h"
#include "tests/fuzz/open_model.h"

#define FILES_MAX 12
#define NAME_MAX_LEN 60
#define TENSOR_BYTES_MAX ((size_t)256 << 10)
#define GGUF_ZEROS 16384
#define MARK "@@ "

struct model_dir {
    char path[64];
    char name[FILES_MAX][NAME_MAX_LEN + 1];
    int32_t n;
};

/* Letters and ".-_", in at most one directory, nothing hidden. */
static bool is_name(const char *s, size_t n)
{
    int32_t n_slashes = 0;
    if (n < 1 || n > NAME_MAX_LEN || s[n - 1] == '/')
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool first = i == 0 || s[i - 1] == '/';
        n_slashes += s[i] == '/';
        if (!memchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./", s[i], 66) || (first && (s[i] == '.' || s[i] == '/')))
            return false;
    }
    return n_slashes <= 1;
}

static bool ends_with(const char *s, const char *tail)
{
    return strlen(s) > strlen(tail) && strcmp(s + strlen(s) - strlen(tail), tail) == 0;
}

/* The largest number in pairs behind "data_offsets". */
static size_t largest_offset(const char *text)
{
    size_t most = 0;
    for (const char *at = text; (at = strstr(at, "\"data_offsets\":[")); at++) {
        const char *second = strchr(at, ',');
        const unsigned long long end = second ? strtoull(second + 1, NULL, 10) : 0;
        most = end > most ? (size_t)end : most;
    }
    return most < TENSOR_BYTES_MAX ? most : TENSOR_BYTES_MAX;
}

static void put_tensors(struct qr_buf *out, const char *bytes, size_t n)
{
    size_t end = n;
    while (end > 0 && bytes[end - 1] != '}')
        end--;
    char *text = qr_strndup(bytes, end);
    const uint64_t len = strlen(text);
    const size_t n_data = largest_offset(text), n_behind = n - end;
    qr_buf_put(out, &len, sizeof len);
    qr_buf_put(out, text, (size_t)len);
    qr_free(text);
    qr_buf_put(out, bytes + end, n_behind < n_data ? n_behind : n_data);
    for (size_t i = n_behind; i < n_data; i++)
        qr_buf_put_byte(out, 0);
}

static void put_file(struct model_dir *d, const char *name, size_t n_name, const char *bytes, size_t n)
{
    char path[200];
    struct qr_buf b = {0};
    if (d->n == FILES_MAX || !is_name(name, n_name))
        return;
    snprintf(d->name[d->n], sizeof d->name[0], "%.*s", (int)n_name, name);
    const char *slash = strchr(d->name[d->n], '/');
    snprintf(path, sizeof path, "%s/%.*s", d->path, slash ? (int)(slash - d->name[d->n]) : 0, d->name[d->n]);
    if (slash)
        mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s", d->path, d->name[d->n]);
    if (ends_with(path, ".safetensors") && n > 0 && bytes[0] == '{')
        put_tensors(&b, bytes, n);
    else
        qr_buf_put(&b, bytes, n);
    for (int i = 0; i < GGUF_ZEROS && ends_with(path, ".gguf"); i++)
        qr_buf_put_byte(&b, 0);
    FILE *f = fopen(path, "wb"); /* NULL: a directory has that name */
    if (f) {
        QR_ASSERT(fwrite(b.data ? b.data : "", 1, b.len, f) == b.len);
        fclose(f);
        d->n++;
    }
    qr_buf_release(&b);
}

static void put_files(struct model_dir *d, const char *data, size_t size)
{
    const char *end = data + size, *at = size > 0 ? memmem(data, size, MARK, strlen(MARK)) : NULL;
    while (at) {
        const char *name = at + strlen(MARK), *line = memchr(name, '\n', (size_t)(end - name));
        if (!line)
            return;
        at = memmem(line, (size_t)(end - line), "\n" MARK, strlen("\n" MARK));
        put_file(d, name, (size_t)(line - name), line + 1, at ? (at > line ? (size_t)(at - line - 1) : 0) : (size_t)(end - line - 1));
        at = at ? at + 1 : NULL;
    }
}

static void remove_all(const struct model_dir *d)
{
    char path[200];
    for (int32_t i = 0; i < d->n; i++) {
        snprintf(path, sizeof path, "%s/%s", d->path, d->name[i]);
        unlink(path);
    }
    for (int32_t i = 0; i < d->n; i++) {
        const char *slash = strchr(d->name[i], '/');
        snprintf(path, sizeof path, "%s/%.*s", d->path, slash ? (int)(slash - d->name[i]) : 0, d->name[i]);
        if (slash)
            rmdir(path);
    }
    rmdir(d->path);
}

/* What only some requests and options read. */
static void open_the_rest(const struct model_dir *d)
{
    static const int32_t words[QR_SCORER_WORDS] = {1, 2, 3, 4};
    struct qr_pooling_config pooling;
    struct qr_scorer scorer;
    struct qr_lora_file *adapter;
    struct qr_source *source;
    struct qr_err err = {0};
    char path[100];
    if (qr_source_open(&source, d->path, &err) == 0) {
        qr_pooling_read(&pooling, source, QR_POOLING_NONE);
        qr_scorer_find(&scorer, source, false);
        if (scorer.kind != QR_SCORER_NONE)
            qr_scorer_load(&scorer, source, words);
        qr_scorer_release(&scorer);
        qr_pooling_release(&pooling);
        qr_source_unref(source);
    }
    snprintf(path, sizeof path, "%s/adapter", d->path);
    err.msg[0] = 0;
    if (qr_lora_file_open(&adapter, path, d->path, (size_t)1 << 20, &err) == 0)
        qr_lora_file_close(adapter);
    else
        QR_ASSERT(err.msg[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_dir d = {.n = 0};
    snprintf(d.path, sizeof d.path, "%s/quire-fuzz-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    mkdir(d.path, 0700);
    put_files(&d, (const char *)data, size);
    open_model(d.path);
    open_the_rest(&d);
    remove_all(&d);
    return 0;
}
