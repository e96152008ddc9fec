#include "base/files/source.h"

#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/files/gguf_file.h"
#include "base/mem.h"

struct qr_source {
    char *model;              /* owned */
    char *path;               /* owned: the GGUF file; NULL: there is none */
    struct qr_gguf_file file; /* owned, with path */
    atomic_int n_refs;
};

int qr_source_open(struct qr_source **out, const char *model, struct qr_err *err)
{
    QR_ASSERT(out != NULL && model != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_GGUF_PATH_MAX];
    struct qr_gguf_file file = {0};
    const bool is_gguf = qr_gguf_find_file(path, model);
    int rc = is_gguf ? qr_gguf_file_open(&file, path, err) : 0;
    if (rc)
        return rc;
    struct qr_source *s = qr_alloc(1, sizeof *s);
    s->model = qr_strdup(model);
    s->path = is_gguf ? qr_strdup(path) : NULL;
    s->file = file;
    atomic_init(&s->n_refs, 1);
    *out = s;
    return 0;
}

struct qr_source *qr_source_ref(struct qr_source *s)
{
    QR_ASSERT(s != NULL);
    int before = atomic_fetch_add(&s->n_refs, 1);
    QR_ASSERT(before > 0);
    return s;
}

void qr_source_unref(struct qr_source *s)
{
    if (!s || atomic_fetch_sub(&s->n_refs, 1) > 1)
        return;
    if (s->path)
        qr_gguf_file_close(&s->file);
    qr_free(s->path);
    qr_free(s->model);
    qr_free(s);
}

const char *qr_source_model(const struct qr_source *s)
{
    QR_ASSERT(s != NULL);
    return s->model;
}

const struct qr_gguf *qr_source_gguf(const struct qr_source *s)
{
    QR_ASSERT(s != NULL);
    return s->file.g;
}

const char *qr_source_gguf_path(const struct qr_source *s)
{
    QR_ASSERT(s != NULL && s->path != NULL);
    return s->path;
}

struct qr_map_file qr_source_gguf_map(const struct qr_source *s)
{
    QR_ASSERT(s != NULL && s->path != NULL);
    return s->file.map;
}

int qr_source_blame(struct qr_err *err, const char *path)
{
    QR_ASSERT(err != NULL && err->code < 0);
    QR_ASSERT(path != NULL);
    const size_t n = strlen(path);
    return strncmp(err->msg, path, n) == 0 && err->msg[n] == ':' ? (int)err->code : qr_err_prefix(err, "%s: ", path);
}
