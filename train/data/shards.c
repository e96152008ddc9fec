#include "train/data/shards.h"

#include <inttypes.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/files/map_file.h"
#include "train/data/shard_file.h"

#define INDEX_BYTES_MAX ((size_t)64 << 20)
#define TOKENIZER_BYTES_MAX ((size_t)256 << 20)

struct open_shard {
    struct qr_map_file file;
    struct qr_shard s;
    int64_t first_doc; /* of all shards' documents */
};

struct qr_shards {
    struct qr_data_index m;
    struct open_shard *shard; /* owned [m.n_shards] */
};

static int open_index(struct qr_data_index *m, const char *dir, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_map_file f;
    int rc = qr_path_join(path, dir, "data.json", err);
    if (rc == 0)
        rc = qr_map_file_open(&f, path, INDEX_BYTES_MAX, err);
    if (rc == QR_E_NOT_FOUND)
        return qr_err_set(err, QR_E_NOT_FOUND, "'%s' holds no prepared data (no data.json); make it with: quire data prepare --model MODEL --out %s FILES", dir,
                          dir);
    if (rc != 0)
        return rc;
    rc = qr_data_index_parse(m, (const char *)f.data, f.n_bytes, path, err);
    qr_map_file_close(&f);
    return rc;
}

/* What data.json says about a shard is what the shard says. */
static int check_shard(const struct qr_data_index *m, int32_t i, const struct open_shard *o, const char *path, struct qr_err *err)
{
    const struct qr_data_shard *e = &m->shard[i];
    if (o->s.n_docs != e->n_docs || o->s.n_tokens != e->n_tokens)
        return qr_err_set(err, QR_E_DAMAGED, "%s: %" PRId64 " documents and %" PRId64 " tokens, data.json says %" PRId64 " and %" PRId64, path, o->s.n_docs,
                          o->s.n_tokens, e->n_docs, e->n_tokens);
    if (o->s.vocab_size != m->vocab_size || o->s.tokenizer != m->tokenizer)
        return qr_err_set(err, QR_E_DAMAGED, "%s: made with tokenizer %016" PRIx64 " of %d ids, data.json says %016" PRIx64 " of %d", path, o->s.tokenizer,
                          o->s.vocab_size, m->tokenizer, m->vocab_size);
    const uint64_t hash = qr_file_hash(o->file.data, o->file.n_bytes);
    if (hash != e->hash)
        return qr_err_set(err, QR_E_DAMAGED, "%s: its bytes have changed: xxh3 %016" PRIx64 ", data.json says %016" PRIx64 "; prepare the data again", path,
                          hash, e->hash);
    return 0;
}

static int open_shard(struct qr_shards *s, int32_t i, const char *dir, struct qr_err *err)
{
    struct open_shard *o = &s->shard[i];
    const int64_t expected = s->m.shard[i].n_bytes;
    char name[QR_SHARD_NAME_MAX], path[QR_PATH_MAX];
    qr_shard_name(name, i);
    int rc = qr_path_join(path, dir, name, err);
    if (rc == 0)
        rc = qr_map_file_open(&o->file, path, SIZE_MAX, err);
    if (rc == 0 && (int64_t)o->file.n_bytes != expected)
        rc = qr_err_set(err, QR_E_DAMAGED, "%s: has %zu bytes, data.json says %" PRId64, path, o->file.n_bytes, expected);
    if (rc == 0)
        rc = qr_shard_parse(&o->s, o->file.data, o->file.n_bytes, path, err);
    if (rc == 0)
        rc = check_shard(&s->m, i, o, path, err);
    return rc;
}

int qr_shards_open(struct qr_shards **out, const char *dir, struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    struct qr_data_index m;
    int rc = open_index(&m, dir, err);
    if (rc != 0)
        return rc;
    struct qr_shards *s = qr_alloc(1, sizeof *s);
    *s = (struct qr_shards){.m = m, .shard = qr_alloc((size_t)m.n_shards, sizeof *s->shard)};
    int64_t n_docs = 0, n_targets = 0;
    for (int32_t i = 0; i < m.n_shards && rc == 0; i++) {
        s->shard[i].first_doc = n_docs;
        rc = open_shard(s, i, dir, err);
        n_docs += s->shard[i].s.n_docs;
        n_targets += s->shard[i].s.n_targets;
    }
    if (rc == 0 && n_targets != m.n_targets)
        rc = qr_err_set(err, QR_E_DAMAGED, "%s/data.json: n_targets is %" PRId64 ", the shards have %" PRId64, dir, m.n_targets, n_targets);
    if (rc == 0)
        *out = s;
    else
        qr_shards_close(s);
    return rc;
}

void qr_shards_close(struct qr_shards *s)
{
    if (!s)
        return;
    for (int32_t i = 0; i < s->m.n_shards; i++)
        qr_map_file_close(&s->shard[i].file);
    qr_data_index_release(&s->m);
    qr_free(s->shard);
    qr_free(s);
}

const struct qr_data_index *qr_shards_index(const struct qr_shards *s)
{
    QR_ASSERT(s != NULL);
    return &s->m;
}

/* The shard that holds a document: the last whose first document is not above it. */
static const struct open_shard *find(const struct qr_shards *s, int64_t doc)
{
    int32_t low = 0, high = s->m.n_shards - 1;
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        if (s->shard[middle].first_doc <= doc)
            low = middle;
        else
            high = middle - 1;
    }
    return &s->shard[low];
}

int64_t qr_shards_doc_n(const struct qr_shards *s, int64_t doc)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(doc >= 0 && doc < s->m.n_docs);
    const struct open_shard *o = find(s, doc);
    const int64_t i = doc - o->first_doc;
    return qr_shard_offset(&o->s, i + 1) - qr_shard_offset(&o->s, i);
}

void qr_shards_read(const struct qr_shards *s, int64_t doc, int64_t first, int64_t n, int32_t *ids, bool *counts)
{
    QR_ASSERT(s != NULL && (ids != NULL || counts != NULL));
    QR_ASSERT(doc >= 0 && doc < s->m.n_docs);
    const struct open_shard *o = find(s, doc);
    const int64_t i = doc - o->first_doc, begin = qr_shard_offset(&o->s, i), length = qr_shard_offset(&o->s, i + 1) - begin;
    QR_ASSERT(first >= 0 && n >= 0 && first <= length && n <= length - first);
    for (int64_t k = 0; k < n; k++) {
        if (ids)
            ids[k] = qr_shard_id(&o->s, begin + first + k);
        if (counts)
            counts[k] = qr_shard_counts(&o->s, begin + first + k);
    }
}

int qr_data_tokenizer_hash(uint64_t *out, const char *dir, struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_PATH_MAX];
    struct qr_map_file f;
    int rc = qr_path_join(path, dir, "tokenizer.json", err);
    if (rc == 0)
        rc = qr_map_file_open(&f, path, TOKENIZER_BYTES_MAX, err);
    if (rc != 0)
        return rc;
    *out = qr_file_hash(f.data, f.n_bytes);
    qr_map_file_close(&f);
    return 0;
}
