/* share.h - what one of several ranks has of a model (tensor parallel): whole heads with their keys and values, a stretch of the feed-forward's width or
 * of each expert's, a stretch of the vocabulary; norms, embedding, routers and what is added behind a product of all ranks everybody has. A rank
 * computes its share like a model of its own, so a share is a configuration, and where its rows and columns lie in those of the whole. Plain data.
 */
#ifndef QR_LOADER_PACK_SHARE_H
#define QR_LOADER_PACK_SHARE_H

#include "base/err.h"
#include "loader/weight_table.h"

struct qr_share {
    int32_t rank, size;
    struct qr_model_config whole, own; /* own: n_heads, n_kv_heads, n_vocab and all widths of feed-forwards are the rank's */
    int32_t first_kv_head, first_ffn, first_expert_ffn, first_shared_ffn, first_vocab;
    bool whole_stretches; /* vocabularies begin where the head's product begins a new stretch of logits (kernels.h) */
};

/* Of one rank: everything. */
void qr_share_whole(struct qr_share *s, const struct qr_model_config *c);

/* Rank 0 has no less of anything than another. Errors: QR_E_UNSUPPORTED, with the numbers, when ranks are more than key-value heads (then they would have
 * to hold copies) or more than columns of a feed-forward or rows of the vocabulary. */
int qr_share_make(struct qr_share *s, const struct qr_model_config *c, int32_t rank, int32_t size, struct qr_err *err);

/* The rank's rows of a tensor with `dim` rows (or its columns), in the order that they have in a matrix of its own. Returns how many spans that are. */
#define QR_SHARE_SPANS_MAX 3
struct qr_span {
    int64_t first, n;
};
int32_t qr_share_spans(struct qr_span out[QR_SHARE_SPANS_MAX], const struct qr_share *s, enum qr_dim dim);

#endif
