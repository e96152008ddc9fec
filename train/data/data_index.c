/* data_index.c - data.json, which says what the shards of a directory hold: read with every number bounded, and
 * written (shard_file.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/data/shard_file.h"

#define FORMAT "quire-data"
#define VERSION 1
#define COUNT_MAX (INT64_C(1) << 60)

struct reader {
    const char *name;
    struct qr_err *err;
};

void qr_shard_name(char name[QR_SHARD_NAME_MAX], int32_t shard)
{
    QR_ASSERT(name != NULL);
    QR_ASSERT(shard >= 0 && shard < QR_SHARD_COUNT_MAX);
    snprintf(name, QR_SHARD_NAME_MAX, "shard-%05d.bin", shard);
}

static int need_number(const struct reader *r, const struct qr_json *o, const char *key, int64_t min, int64_t max, int64_t *out)
{
    const struct qr_json *v = qr_json_find(o, key);
    if (v && qr_json_i64(v, out) && *out >= min && *out <= max)
        return 0;
    return qr_err_set(r->err, QR_E_DAMAGED, "%s: \"%s\" must be an integer from %" PRId64 " to %" PRId64 "%s", r->name, key, min, max,
                      v ? "" : ", but is missing");
}

/* 64 bits as 16 hexadecimal digits. */
static int need_hash(const struct reader *r, const struct qr_json *o, const char *key, uint64_t *out)
{
    const struct qr_json *v = qr_json_find(o, key);
    size_t len = 0;
    const char *s = v && qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, &len) : "";
    char *end;
    *out = strtoull(s, &end, 16);
    if (len == 16 && strspn(s, "0123456789abcdef") == 16 && *end == 0)
        return 0;
    return qr_err_set(r->err, QR_E_DAMAGED, "%s: \"%s\" must be a string of 16 hexadecimal digits%s", r->name, key, v ? "" : ", but is missing");
}

static int read_shard(const struct reader *r, const struct qr_json *v, struct qr_data_index *m)
{
    char expected[QR_SHARD_NAME_MAX];
    qr_shard_name(expected, m->n_shards);
    struct qr_data_shard *s = &m->shard[m->n_shards++];
    const struct qr_json *name = qr_json_find(v, "name");
    if (!name || qr_json_type(name) != QR_JSON_T_STRING || strcmp(qr_json_str(name, NULL), expected) != 0)
        return qr_err_set(r->err, QR_E_DAMAGED, "%s: the name of shard %d must be \"%s\"", r->name, m->n_shards - 1, expected);
    int rc = need_number(r, v, "bytes", QR_SHARD_HEADER_BYTES, COUNT_MAX, &s->n_bytes);
    rc = rc ? rc : need_number(r, v, "n_docs", 1, COUNT_MAX, &s->n_docs);
    rc = rc ? rc : need_number(r, v, "n_tokens", 1, COUNT_MAX, &s->n_tokens);
    return rc ? rc : need_hash(r, v, "xxh3", &s->hash);
}

static int read_shards(const struct reader *r, const struct qr_json *doc, struct qr_data_index *m)
{
    const struct qr_json *list = qr_json_find(doc, "shards");
    const int32_t n = list && qr_json_type(list) == QR_JSON_T_ARRAY ? qr_json_count(list) : 0;
    if (n < 1 || n > QR_SHARD_COUNT_MAX)
        return qr_err_set(r->err, QR_E_DAMAGED, "%s: \"shards\" must be an array of 1 to %d objects", r->name, QR_SHARD_COUNT_MAX);
    m->shard = qr_alloc((size_t)n, sizeof *m->shard);
    int64_t n_docs = 0, n_tokens = 0;
    int rc = 0;
    for (const struct qr_json *v = qr_json_first(list); v && rc == 0; v = qr_json_after(v)) {
        rc = read_shard(r, v, m);
        if (rc == 0 && (__builtin_add_overflow(n_docs, m->shard[m->n_shards - 1].n_docs, &n_docs) ||
                        __builtin_add_overflow(n_tokens, m->shard[m->n_shards - 1].n_tokens, &n_tokens)))
            rc = qr_err_set(r->err, QR_E_DAMAGED, "%s: the shards' numbers are too large", r->name);
    }
    if (rc == 0 && (n_docs != m->n_docs || n_tokens != m->n_tokens))
        return qr_err_set(r->err, QR_E_DAMAGED, "%s: %" PRId64 " documents and %" PRId64 " tokens are announced, the shards listed have %" PRId64
                          " and %" PRId64, r->name, m->n_docs, m->n_tokens, n_docs, n_tokens);
    return rc;
}

static int read_all(const struct reader *r, const struct qr_json *doc, struct qr_data_index *m)
{
    const struct qr_json *format = qr_json_find(doc, "format");
    int64_t version, vocab_size = 0;
    if (!format || qr_json_type(format) != QR_JSON_T_STRING || strcmp(qr_json_str(format, NULL), FORMAT) != 0)
        return qr_err_set(r->err, QR_E_DAMAGED, "%s: \"format\" must be \"%s\"", r->name, FORMAT);
    int rc = need_number(r, doc, "version", 0, COUNT_MAX, &version);
    if (rc == 0 && version != VERSION)
        return qr_err_set(r->err, QR_E_UNSUPPORTED, "%s: version %" PRId64 ", expected %d; prepare the data again with this program", r->name, version,
                          VERSION);
    rc = rc ? rc : need_hash(r, doc, "tokenizer", &m->tokenizer);
    rc = rc ? rc : need_number(r, doc, "vocab_size", 1, INT32_MAX, &vocab_size);
    rc = rc ? rc : need_number(r, doc, "n_docs", 1, COUNT_MAX, &m->n_docs);
    rc = rc ? rc : need_number(r, doc, "n_tokens", 1, COUNT_MAX, &m->n_tokens);
    rc = rc ? rc : need_number(r, doc, "n_targets", 0, COUNT_MAX, &m->n_targets);
    m->vocab_size = (int32_t)vocab_size;
    return rc == 0 ? read_shards(r, doc, m) : rc;
}

int qr_data_index_parse(struct qr_data_index *out, const char *text, size_t n, const char *name, struct qr_err *err)
{
    QR_ASSERT(out != NULL && name != NULL);
    QR_ASSERT(text != NULL || n == 0);
    struct qr_json *doc;
    int rc = qr_json_parse_file(&doc, text, n, &qr_json_limits_file, name, err);
    if (rc)
        return rc;
    struct qr_data_index m = {0};
    rc = read_all(&(struct reader){.name = name, .err = err}, doc, &m);
    qr_json_free(doc);
    if (rc == 0)
        *out = m;
    else
        qr_data_index_release(&m);
    return rc;
}

void qr_data_index_print(struct qr_buf *out, const struct qr_data_index *m)
{
    QR_ASSERT(out != NULL && m != NULL);
    QR_ASSERT(m->n_shards > 0);
    qr_buf_printf(out, "{\"format\":\"" FORMAT "\",\"version\":%d,\"tokenizer\":\"%016" PRIx64 "\",\"vocab_size\":%d,\"n_docs\":%" PRId64
                       ",\"n_tokens\":%" PRId64 ",\"n_targets\":%" PRId64 ",\n \"shards\":[",
                  VERSION, m->tokenizer, m->vocab_size, m->n_docs, m->n_tokens, m->n_targets);
    for (int32_t i = 0; i < m->n_shards; i++) {
        const struct qr_data_shard *s = &m->shard[i];
        char name[QR_SHARD_NAME_MAX];
        qr_shard_name(name, i);
        qr_buf_printf(out, "%s\n  {\"name\":\"%s\",\"bytes\":%" PRId64 ",\"n_docs\":%" PRId64 ",\"n_tokens\":%" PRId64 ",\"xxh3\":\"%016" PRIx64 "\"}",
                      i > 0 ? "," : "", name, s->n_bytes, s->n_docs, s->n_tokens, s->hash);
    }
    qr_buf_put_str(out, "]}\n");
}

void qr_data_index_release(struct qr_data_index *m)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(m->shard != NULL || m->n_shards == 0);
    qr_free(m->shard);
    *m = (struct qr_data_index){0};
}
