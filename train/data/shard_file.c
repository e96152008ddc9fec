/* shard_file.c - a shard of prepared data written and parsed. Parsing checks header, size, every id, every offset and
 * the mask, once; a reader of an open shard trusts them. Writing goes front to back through one file object and is
 * abandoned as a whole on error. Little-endian, as shard_file.h has the table. One thread per object; an open shard is
 * immutable. */
#include "train/data/shard_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"

#define MAGIC "quiredat"
#define VERSION 1
#define TOKENS_MAX (INT64_C(1) << 40)
#define WIDE_VOCAB 65536
#define FLAG_MASK 1u
#define PIECE 4096 /* ids written at once */

struct header {
    char magic[8];
    uint32_t version, id_bytes;
    uint64_t n_tokens, n_docs;
    uint32_t vocab_size, flags;
    uint64_t tokenizer, zero[2];
};
_Static_assert(sizeof(struct header) == QR_SHARD_HEADER_BYTES, "the header is read and written as it lies in memory");

static uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

int32_t qr_shard_id(const struct qr_shard *s, int64_t t)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(t >= 0 && t < s->n_tokens);
    uint16_t narrow;
    int32_t wide;
    if (s->id_bytes == 2) {
        memcpy(&narrow, s->ids + 2 * t, 2);
        return narrow;
    }
    memcpy(&wide, s->ids + 4 * t, 4);
    return wide;
}

int64_t qr_shard_offset(const struct qr_shard *s, int64_t doc)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(doc >= 0 && doc <= s->n_docs);
    return (int64_t)load_u64(s->offsets + 8 * doc);
}

bool qr_shard_counts(const struct qr_shard *s, int64_t t)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(t >= 0 && t < s->n_tokens);
    return !s->mask || (s->mask[t / 8] >> (t % 8) & 1);
}

/* ---- reading ---- */

static int check_header(const struct header *h, const char *name, struct qr_err *err)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: does not begin with \"%s\": no shard of prepared data", name, MAGIC);
    if (h->version != VERSION)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: byte 8: version %" PRIu32 ", expected %d; prepare the data again with this program", name, h->version,
                          VERSION);
    if (h->vocab_size < 1 || h->vocab_size > INT32_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte 32: vocabulary of %" PRIu32 ", expected 1 to %d", name, h->vocab_size, INT32_MAX);
    if (h->id_bytes != (h->vocab_size <= WIDE_VOCAB ? 2u : 4u))
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte 12: %" PRIu32 " bytes an id, expected %d for a vocabulary of %" PRIu32, name, h->id_bytes,
                          h->vocab_size <= WIDE_VOCAB ? 2 : 4, h->vocab_size);
    if (h->n_tokens < 1 || h->n_tokens > TOKENS_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte 16: %" PRIu64 " tokens, expected 1 to %" PRId64, name, h->n_tokens, TOKENS_MAX);
    if (h->n_docs < 1 || h->n_docs > h->n_tokens)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte 24: %" PRIu64 " documents, expected 1 to the number of tokens, %" PRIu64, name, h->n_docs, h->n_tokens);
    if (h->flags > FLAG_MASK || h->zero[0] != 0 || h->zero[1] != 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %d: unknown flags", name, h->flags > FLAG_MASK ? 36 : 48);
    return 0;
}

/* Counts come from a checked header: all sums are far below 2^63. */
static int check_size(const struct header *h, size_t n, const char *name, struct qr_err *err)
{
    const uint64_t ids = qr_align_up((size_t)h->n_tokens * h->id_bytes, 8), mask = h->flags & FLAG_MASK ? (h->n_tokens + 63) / 64 * 8 : 0;
    const uint64_t expected = sizeof *h + ids + 8 * (h->n_docs + 1) + mask;
    if (n != expected)
        return qr_err_set(err, QR_E_DAMAGED, "%s: has %zu bytes, its header asks for %" PRIu64 ": %s", name, n, expected,
                          n < expected ? "it was cut" : "something was appended");
    return 0;
}

static int check_ids(const struct qr_shard *s, const char *name, struct qr_err *err)
{
    int64_t t = 0;
    uint32_t worst = 0; /* of a stretch, so that the common case has no branch; an id of 4 bytes may be negative: large as unsigned */
    while (t < s->n_tokens && worst < (uint32_t)s->vocab_size) {
        const int64_t end = t + PIECE < s->n_tokens ? t + PIECE : s->n_tokens;
        for (worst = 0; t < end; t++) {
            const uint32_t id = (uint32_t)qr_shard_id(s, t);
            worst = id > worst ? id : worst;
        }
    }
    if (worst < (uint32_t)s->vocab_size)
        return 0;
    for (t = t > PIECE ? t - PIECE : 0; (uint32_t)qr_shard_id(s, t) < (uint32_t)s->vocab_size;)
        t++;
    return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRId64 ": id %" PRIu32 ", the vocabulary has %d", name, QR_SHARD_HEADER_BYTES + t * s->id_bytes,
                      (uint32_t)qr_shard_id(s, t), s->vocab_size);
}

static int check_offsets(const struct qr_shard *s, const char *name, struct qr_err *err)
{
    uint64_t last = 0;
    for (int64_t d = 0; d <= s->n_docs; d++) {
        const uint64_t at = load_u64(s->offsets + 8 * d);
        const bool good = d == 0 ? at == 0 : at > last && (d < s->n_docs ? at < (uint64_t)s->n_tokens : at == (uint64_t)s->n_tokens);
        if (!good)
            return qr_err_set(err, QR_E_DAMAGED, "%s: byte %td: document %" PRId64 " is said to begin at token %" PRIu64 ", expected %s", name,
                              s->offsets - s->ids + QR_SHARD_HEADER_BYTES + 8 * d, d, at, d == 0 ? "0" : d == s->n_docs ? "the number of tokens"
                                                                                                      : "more than the one before, less than the end");
        last = at;
    }
    return 0;
}

static int check_mask(const struct qr_shard *s, const char *name, struct qr_err *err)
{
    const int64_t n_bits = (s->n_tokens + 63) / 64 * 64;
    for (int64_t t = s->n_tokens; s->mask && t < n_bits; t++)
        if (s->mask[t / 8] >> (t % 8) & 1)
            return qr_err_set(err, QR_E_DAMAGED, "%s: the mask goes on behind the last token", name);
    return 0;
}

static int64_t count_targets(const struct qr_shard *s)
{
    if (!s->mask)
        return s->n_tokens - s->n_docs;
    int64_t n = 0;
    for (int64_t i = 0; i < (s->n_tokens + 63) / 64; i++)
        n += __builtin_popcountll(load_u64(s->mask + 8 * i));
    for (int64_t d = 0; d < s->n_docs; d++)
        n -= qr_shard_counts(s, qr_shard_offset(s, d));
    return n;
}

int qr_shard_parse(struct qr_shard *out, const uint8_t *bytes, size_t n, const char *name, struct qr_err *err)
{
    QR_ASSERT(out != NULL && name != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    struct header h;
    if (n < sizeof h)
        return qr_err_set(err, QR_E_DAMAGED, "%s: has %zu bytes, a shard's header alone has %zu", name, n, sizeof h);
    memcpy(&h, bytes, sizeof h);
    int rc = check_header(&h, name, err);
    if (rc == 0)
        rc = check_size(&h, n, name, err);
    if (rc != 0)
        return rc;
    struct qr_shard s = {.ids = bytes + sizeof h, .n_tokens = (int64_t)h.n_tokens, .n_docs = (int64_t)h.n_docs, .id_bytes = (int32_t)h.id_bytes,
                         .vocab_size = (int32_t)h.vocab_size, .tokenizer = h.tokenizer};
    s.offsets = s.ids + qr_align_up((size_t)h.n_tokens * h.id_bytes, 8);
    s.mask = h.flags & FLAG_MASK ? s.offsets + 8 * (h.n_docs + 1) : NULL;
    rc = check_ids(&s, name, err);
    if (rc == 0)
        rc = check_offsets(&s, name, err);
    if (rc == 0)
        rc = check_mask(&s, name, err);
    if (rc != 0)
        return rc;
    s.n_targets = count_targets(&s);
    *out = s;
    return 0;
}

/* ---- writing ---- */

static int fail_write(struct qr_shard_writer *w, struct qr_err *err)
{
    const int number = errno;
    char text[128];
    return qr_err_set(err, QR_E_IO, "cannot write '%s': %s", w->path, qr_errno_text(text, number));
}

static bool put(struct qr_shard_writer *w, const void *bytes, size_t n)
{
    return n == 0 || fwrite(bytes, 1, n, w->f) == n;
}

int qr_shard_begin(struct qr_shard_writer *w, const char *path, int32_t vocab_size, uint64_t tokenizer, struct qr_err *err)
{
    QR_ASSERT(w != NULL && path != NULL);
    QR_ASSERT(vocab_size > 0);
    static const struct header none;
    *w = (struct qr_shard_writer){.path = qr_strdup(path), .vocab_size = vocab_size, .tokenizer = tokenizer};
    w->f = fopen(path, "wbxe");
    if (w->f && put(w, &none, sizeof none))
        return 0;
    fail_write(w, err);
    qr_shard_abandon(w);
    return err->code;
}

/* The first mask is preceded by that of the ids before it: all count. */
static void add_mask(struct qr_shard_writer *w, const bool *counts, int64_t n)
{
    const int64_t first = w->mask.len == 0 ? -w->n_tokens : 0;
    for (int64_t i = first, t = w->n_tokens + first; i < n; i++, t++) {
        if (t % 64 == 0)
            qr_buf_put(&w->mask, &(uint64_t){0}, 8);
        if (i < 0 || !counts || counts[i])
            w->mask.data[t / 8] = (char)((uint8_t)w->mask.data[t / 8] | 1u << (t % 8));
    }
}

int qr_shard_add(struct qr_shard_writer *w, const int32_t *ids, const bool *counts, int64_t n, struct qr_err *err)
{
    QR_ASSERT(w != NULL && w->f != NULL && ids != NULL);
    QR_ASSERT(n > 0);
    if (n > TOKENS_MAX - w->n_tokens)
        return qr_err_set(err, QR_E_TOO_LARGE, "'%s': more than %" PRId64 " tokens", w->path, TOKENS_MAX);
    qr_buf_put(&w->offsets, &w->n_tokens, 8);
    if (counts || w->mask.len > 0)
        add_mask(w, counts, n);
    for (int64_t i = 0; i < n;) {
        uint16_t narrow[PIECE];
        const int64_t first = i, end = i + PIECE < n ? i + PIECE : n;
        for (; i < end; i++) {
            QR_ASSERT(ids[i] >= 0 && ids[i] < w->vocab_size);
            narrow[i - first] = (uint16_t)ids[i];
        }
        if (w->vocab_size <= WIDE_VOCAB ? !put(w, narrow, 2 * (size_t)(end - first)) : !put(w, ids + first, 4 * (size_t)(end - first)))
            return fail_write(w, err);
    }
    w->n_tokens += n;
    w->n_docs++;
    return 0;
}

int qr_shard_end(struct qr_shard_writer *w, struct qr_err *err)
{
    QR_ASSERT(w != NULL && w->f != NULL);
    QR_ASSERT(w->n_docs > 0);
    struct header h = {.version = VERSION, .id_bytes = w->vocab_size <= WIDE_VOCAB ? 2 : 4, .n_tokens = (uint64_t)w->n_tokens,
                       .n_docs = (uint64_t)w->n_docs, .vocab_size = (uint32_t)w->vocab_size, .flags = w->mask.len > 0 ? FLAG_MASK : 0,
                       .tokenizer = w->tokenizer};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    const size_t n_bytes = (size_t)w->n_tokens * h.id_bytes;
    static const char zero[8];
    qr_buf_put(&w->offsets, &w->n_tokens, 8);
    const bool good = put(w, zero, qr_align_up(n_bytes, 8) - n_bytes) && put(w, w->offsets.data, w->offsets.len) && put(w, w->mask.data, w->mask.len) &&
                      fseek(w->f, 0, SEEK_SET) == 0 && put(w, &h, sizeof h) && fflush(w->f) == 0 && fsync(fileno(w->f)) == 0;
    const int rc = good ? 0 : fail_write(w, err);
    qr_shard_abandon(w);
    return rc;
}

void qr_shard_abandon(struct qr_shard_writer *w)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(w->path != NULL || w->f == NULL);
    if (w->f)
        fclose(w->f);
    qr_free(w->path);
    qr_buf_release(&w->offsets);
    qr_buf_release(&w->mask);
    *w = (struct qr_shard_writer){0};
}
