#include "train/data/feed.h"

#include "base/assert.h"
#include "base/mem.h"
#include "train/data/permute.h"

#define STRIDE 64 /* documents between two entries of the table */

struct qr_feed {
    const struct qr_shards *s; /* borrowed */
    struct qr_feed_options o;
    int64_t n_docs, n_pieces;
    int64_t *before; /* owned [n_docs / STRIDE + 1]: pieces of the documents before i * STRIDE */
    int32_t *ids;    /* owned [sequence + 1] */
    bool *counts;    /* owned [sequence + 1] */
};

static int64_t pieces_of(const struct qr_feed *f, int64_t doc)
{
    const int64_t n_targets = qr_shards_doc_n(f->s, doc) - 1;
    return (n_targets + f->o.sequence - 1) / f->o.sequence;
}

int qr_feed_open(struct qr_feed **out, const struct qr_shards *s, const struct qr_feed_options *o, struct qr_err *err)
{
    QR_ASSERT(out != NULL && s != NULL && o != NULL);
    QR_ASSERT(o->sequence > 0 && o->micro_tokens >= o->sequence && o->n_seqs_max > 0);
    if (qr_shards_index(s)->n_targets == 0)
        return qr_err_set(err, QR_E_INVALID, "the data has nothing to learn: no id of its %lld documents counts as a target (a document needs two ids, "
                          "a chat an assistant's turn)", (long long)qr_shards_index(s)->n_docs);
    struct qr_feed *f = qr_alloc(1, sizeof *f);
    *f = (struct qr_feed){.s = s, .o = *o, .n_docs = qr_shards_index(s)->n_docs};
    f->before = qr_alloc((size_t)(f->n_docs / STRIDE + 1), sizeof *f->before);
    f->ids = qr_alloc((size_t)o->sequence + 1, sizeof *f->ids);
    f->counts = qr_alloc((size_t)o->sequence + 1, sizeof *f->counts);
    for (int64_t doc = 0; doc < f->n_docs; doc++) {
        if (doc % STRIDE == 0)
            f->before[doc / STRIDE] = f->n_pieces;
        f->n_pieces += pieces_of(f, doc);
    }
    *out = f;
    return 0;
}

void qr_feed_close(struct qr_feed *f)
{
    if (!f)
        return;
    qr_free(f->before);
    qr_free(f->ids);
    qr_free(f->counts);
    qr_free(f);
}

int64_t qr_feed_n_pieces(const struct qr_feed *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->n_pieces > 0);
    return f->n_pieces;
}

/* The last entry of the table that is not above `index`. */
static int64_t find_entry(const struct qr_feed *f, int64_t index)
{
    int64_t low = 0, high = (f->n_docs - 1) / STRIDE;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (f->before[middle] <= index)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct qr_piece qr_feed_piece(const struct qr_feed *f, int64_t position)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(position >= 0 && (f->o.shuffle || position < f->n_pieces));
    int64_t index = position % f->n_pieces;
    if (f->o.shuffle)
        index = qr_permute(index, f->n_pieces, f->o.seed, (uint64_t)(position / f->n_pieces));
    const int64_t entry = find_entry(f, index);
    int64_t doc = entry * STRIDE, left = index - f->before[entry];
    for (int64_t n; left >= (n = pieces_of(f, doc)); doc++)
        left -= n;
    const int64_t first = left * f->o.sequence, rest = qr_shards_doc_n(f->s, doc) - first;
    return (struct qr_piece){.doc = doc, .first = first, .n = (int32_t)(rest <= f->o.sequence ? rest : f->o.sequence + 1)};
}

static int32_t count(const bool *counts, int32_t n)
{
    int32_t sum = 0;
    for (int32_t i = 1; i < n; i++)
        sum += counts[i];
    return sum;
}

/* One micro-batch into b, or past it where that is NULL; its targets. */
static int32_t next(struct qr_feed *f, int64_t *position, struct qr_train_batch *b)
{
    int32_t n_rows = 0, n_seqs = 0, n_targets = 0;
    while (n_seqs < f->o.n_seqs_max && (f->o.shuffle || *position < f->n_pieces)) {
        const struct qr_piece p = qr_feed_piece(f, *position);
        if (p.n - 1 > f->o.micro_tokens - n_rows)
            break;
        qr_shards_read(f->s, p.doc, p.first, p.n, b ? f->ids : NULL, f->counts);
        ++*position;
        const int32_t n = count(f->counts, p.n);
        if (n == 0)
            continue;
        if (b)
            QR_ASSERT(qr_train_batch_add(b, f->ids, p.n, f->counts));
        n_targets += n;
        n_rows += p.n - 1;
        n_seqs++;
    }
    return n_targets;
}

bool qr_feed_next(struct qr_feed *f, int64_t *position, struct qr_train_batch *b)
{
    QR_ASSERT(f != NULL && position != NULL && *position >= 0);
    QR_ASSERT(!b || (b->n_tokens_max >= f->o.micro_tokens && b->n_seqs_max >= (f->o.n_seqs_max < f->o.micro_tokens ? f->o.n_seqs_max : f->o.micro_tokens)));
    if (b)
        qr_train_batch_clear(b);
    return next(f, position, b) > 0;
}

int32_t qr_feed_skip(struct qr_feed *f, int64_t *position)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(position != NULL && *position >= 0);
    return next(f, position, NULL);
}

double qr_feed_n_micros(struct qr_feed *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->n_pieces > 0);
    double n = 0;
    for (int64_t before = 0, position = 0; position < f->n_pieces; before = position) {
        if (next(f, &position, NULL) == 0)
            break; /* what is left has no target */
        n += position <= f->n_pieces ? 1 : (double)(f->n_pieces - before) / (double)(position - before);
    }
    return n;
}
