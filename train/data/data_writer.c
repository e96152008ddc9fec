#include "train/data/data_writer.h"

#include "base/assert.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/files/map_file.h"
#include "train/data/shard_file.h"

struct qr_data_writer {
    struct qr_data_writer_options o; /* dir is owned here */
    struct qr_data_index m;
    struct qr_shard_writer shard;    /* open while shard.f is not NULL */
};

struct qr_data_writer *qr_data_writer_new(const struct qr_data_writer_options *o)
{
    QR_ASSERT(o != NULL && o->dir != NULL);
    QR_ASSERT(o->vocab_size > 0 && o->shard_tokens_max >= 0 && o->shard_docs_max >= 0);
    struct qr_data_writer *w = qr_alloc(1, sizeof *w);
    w->o = *o;
    w->o.dir = qr_strdup(o->dir);
    w->o.shard_tokens_max = o->shard_tokens_max ? o->shard_tokens_max : QR_SHARD_TOKENS_MAX;
    w->o.shard_docs_max = o->shard_docs_max ? o->shard_docs_max : QR_SHARD_DOCS_MAX;
    w->m.vocab_size = o->vocab_size;
    w->m.tokenizer = o->tokenizer;
    return w;
}

void qr_data_writer_free(struct qr_data_writer *w)
{
    if (!w)
        return;
    if (w->shard.f)
        qr_shard_abandon(&w->shard);
    qr_data_index_release(&w->m);
    qr_free((char *)(uintptr_t)w->o.dir);
    qr_free(w);
}

static int begin_shard(struct qr_data_writer *w, struct qr_err *err)
{
    if (w->m.n_shards == QR_SHARD_COUNT_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "'%s': more than %d shards", w->o.dir, QR_SHARD_COUNT_MAX);
    char name[QR_SHARD_NAME_MAX], path[QR_PATH_MAX];
    qr_shard_name(name, w->m.n_shards);
    const int rc = qr_path_join(path, w->o.dir, name, err);
    return rc == 0 ? qr_shard_begin(&w->shard, path, w->o.vocab_size, w->o.tokenizer, err) : rc;
}

/* The finished file is read once for its hash. */
static int end_shard(struct qr_data_writer *w, struct qr_err *err)
{
    struct qr_data_shard e = {.n_docs = w->shard.n_docs, .n_tokens = w->shard.n_tokens};
    char *path = qr_strdup(w->shard.path);
    struct qr_map_file f;
    int rc = qr_shard_end(&w->shard, err);
    if (rc == 0)
        rc = qr_map_file_open(&f, path, SIZE_MAX, err);
    if (rc == 0) {
        e.n_bytes = (int64_t)f.n_bytes;
        e.hash = qr_file_hash(f.data, f.n_bytes);
        qr_map_file_close(&f);
        w->m.shard = qr_realloc(w->m.shard, (size_t)w->m.n_shards + 1, sizeof *w->m.shard);
        w->m.shard[w->m.n_shards++] = e;
    }
    qr_free(path);
    return rc;
}

int qr_data_writer_add(struct qr_data_writer *w, const int32_t *ids, const bool *counts, int64_t n, struct qr_err *err)
{
    QR_ASSERT(w != NULL && ids != NULL);
    QR_ASSERT(n > 0);
    int rc = 0;
    if (w->shard.f && (w->shard.n_tokens >= w->o.shard_tokens_max || w->shard.n_docs >= w->o.shard_docs_max))
        rc = end_shard(w, err);
    if (rc == 0 && !w->shard.f)
        rc = begin_shard(w, err);
    if (rc == 0)
        rc = qr_shard_add(&w->shard, ids, counts, n, err);
    if (rc != 0)
        return rc;
    w->m.n_docs++;
    w->m.n_tokens += n;
    for (int64_t i = 1; i < n; i++)
        w->m.n_targets += !counts || counts[i];
    return 0;
}

const struct qr_data_index *qr_data_writer_index(const struct qr_data_writer *w)
{
    QR_ASSERT(w != NULL);
    return &w->m;
}

static int write_index(struct qr_data_writer *w, struct qr_err *err)
{
    struct qr_buf text = {0};
    qr_data_index_print(&text, &w->m);
    const int rc = qr_dir_write(w->o.dir, "data.json", text.data, text.len, true, err);
    qr_buf_release(&text);
    return rc;
}

int qr_data_writer_finish(struct qr_data_writer *w, struct qr_err *err)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(w->m.n_docs > 0);
    int rc = w->shard.f ? end_shard(w, err) : 0;
    return rc == 0 ? write_index(w, err) : rc;
}
