/* feed.h - from documents to micro-batches, in an order that one number describes.
 *
 * A document of n ids is cut into pieces of at most `sequence` + 1 ids; neighbours share one id, so every id but the first is a target once. Pieces
 * are numbered 0..n_pieces-1 in the order of the documents; epoch e gives them out in the permutation keyed by (seed, e), or as they are numbered.
 * The position, pieces given out since the beginning of time, is the whole state: epoch = position / n_pieces. What comes next is a function of
 * (data, options, position). A feed keeps 8 bytes for 64 documents. One owning thread; the shards may be shared.
 */
#ifndef QR_TRAIN_DATA_FEED_H
#define QR_TRAIN_DATA_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "train/batch.h"
#include "train/data/shards.h"

struct qr_feed_options {
    int32_t sequence;     /* rows of a piece at most, >= 1 */
    int32_t micro_tokens; /* rows of a micro-batch at most, >= sequence */
    int32_t n_seqs_max;   /* pieces of a micro-batch at most */
    uint64_t seed;
    bool shuffle;         /* false: as numbered, and the feed ends with the first epoch (evaluation) */
};

struct qr_feed; /* opaque */

/* The shards are borrowed for the feed's life. Errors: QR_E_INVALID for data without a single target: documents of one id, or chats of which nothing counts. */
int qr_feed_open(struct qr_feed **out, const struct qr_shards *s, const struct qr_feed_options *o, struct qr_err *err);
void qr_feed_close(struct qr_feed *f); /* NULL is fine */
int64_t qr_feed_n_pieces(const struct qr_feed *f);

/* Micro-batches of the first epoch; one that goes on into the second counts by its part. Looks at every piece. */
double qr_feed_n_micros(struct qr_feed *f);

/* Clears b and fills it with the next pieces, as many as fit into micro_tokens rows and n_seqs_max sequences; moves *position behind them. A piece of which
 * no target counts is skipped, so a batch always has something to learn from. b NULL: only the position moves.
 * False at the end of data that is not shuffled; b is then empty. Requires room in b for the feed's options. */
bool qr_feed_next(struct qr_feed *f, int64_t *position, struct qr_train_batch *b);

/* Moves *position behind the micro-batch that qr_feed_next would have given; how many targets it has. 0: the data is at its end. */
int32_t qr_feed_skip(struct qr_feed *f, int64_t *position);

/* The piece at a position: ids [first, first + n) of a document. */
struct qr_piece {
    int64_t doc, first;
    int32_t n;
};
struct qr_piece qr_feed_piece(const struct qr_feed *f, int64_t position);

#endif
