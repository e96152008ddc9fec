/* weight_table.h - which tensors a model of these architectures is made of: one row per tensor, read by the loader, by
 * `quire check` and by the maker of random models. A row names the tensor in the file, its shape, when it is there, and where it
 * goes: several rows may fill one matrix (q, k and v; gate and up), each from its own first row on. A row for each expert fills a stack of matrices.
 */
#ifndef QR_LOADER_WEIGHT_TABLE_H
#define QR_LOADER_WEIGHT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/tensor.h"
#include "loader/model_config.h"

/* A size that follows from the configuration. */
enum qr_dim {
    QR_DIM_ZERO,
    QR_DIM_EMBD,   /* D */
    QR_DIM_HEADS,  /* H */
    QR_DIM_Q,      /* H*K */
    QR_DIM_KV,     /* G*K */
    QR_DIM_Q_KV,   /* H*K + G*K */
    QR_DIM_QKV,    /* H*K + 2*G*K */
    QR_DIM_FFN,    /* F */
    QR_DIM_2FFN,   /* 2*F */
    QR_DIM_VOCAB,  /* V */
    QR_DIM_HEAD,   /* K */
    QR_DIM_EXPERTS,     /* E */
    QR_DIM_EXPERT_FFN,  /* F of an expert */
    QR_DIM_2EXPERT_FFN,
    QR_DIM_SHARED_FFN,  /* and of the shared one */
    QR_DIM_2SHARED_FFN,
    QR_DIM_ONE,
    QR_DIM_POSITIONS, /* rows of the table of positions */
    QR_DIM_COUNT
};
int64_t qr_dim_value(const struct qr_model_config *c, enum qr_dim dim);

enum qr_weight_kind {
    QR_KIND_MATRIX, /* read by linear: packed */
    QR_KIND_VECTOR, /* norm weights and biases: f32 */
    QR_KIND_TABLE,  /* embedding: rows as stored */
    QR_KIND_ROWS,   /* a table of f32 rows */
};

enum qr_weight_when {
    QR_WHEN_ALWAYS, QR_WHEN_QKV_BIAS, QR_WHEN_OUT_BIAS, QR_WHEN_MLP_BIAS, QR_WHEN_QK_NORM,
    QR_WHEN_LAYER_NORM, QR_WHEN_POST_NORMS,
    QR_WHEN_UNTIED, /* lm_head.weight */
    QR_WHEN_TIED,   /* the head, from the embedding's rows */
    QR_WHEN_CLASSIFIER,
    QR_WHEN_DENSE,  /* the layer has one plain feed-forward */
    QR_WHEN_EXPERTS, QR_WHEN_SHARED, /* it has experts, and one that is shared */
};

struct qr_weight_row {
    const char *name;            /* "model.layers.%d.mlp.up_proj.weight": %d is the layer, a second one the expert */
    enum qr_weight_kind kind;
    bool per_layer;
    enum qr_dim n_out, n_in;     /* shape [n_out, n_in]; vectors: [n_out] */
    enum qr_dim total, first;    /* the whole it is a piece of has `total` rows; this piece begins at `first` */
    enum qr_weight_when when;
    enum qr_split split;
    size_t at;                   /* offset of its struct qr_weight in struct qr_layer_weights (per layer) or struct qr_weights */
    bool per_expert;             /* of a stack: the matrix or vector, or the piece of it, of one expert. Such rows stand together,
                                  * those of vectors behind those of matrices and a row that is of no expert */
    bool stacked;                /* lies in a stack: per_expert, or a stack of one */
};

/* What a matrix is packed as in a model of type `to`: the head, which decides between tokens, keeps 8 bits where others have 4; routers, which decide between
 * experts, are never rounded below bf16. */
enum qr_dtype qr_weight_row_packed_as(const struct qr_weight_row *row, enum qr_dtype to);

/* What the file's vector is multiplied by to be the one that is computed with: 1, or 1 / logits_divisor for the last norm. */
float qr_weight_row_factor(const struct qr_weight_row *row, const struct qr_model_config *c);

/* Whether it is what a norm multiplies by: a vector, and no bias. */
bool qr_weight_row_is_norm(const struct qr_weight_row *row);

/* Whether the file has the matrix as [n_in, n_out]. */
bool qr_weight_row_transposed(const struct qr_weight_row *row, const struct qr_model_config *c);

/* And then added to it: 1 for every norm where norm_plus_one, else 0. */
float qr_weight_row_offset(const struct qr_weight_row *row, const struct qr_model_config *c);

/* Whether there is such a tensor in a layer; outside of layers that number says nothing. */
bool qr_weight_row_holds(const struct qr_weight_row *row, const struct qr_model_config *c, int32_t layer);

/* Walks all rows that hold for a configuration: first those outside the layers, then layer by layer, experts one after the other.
 *     for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) ... k.row, k.layer (-1 outside), k.expert */
struct qr_weight_walk {
    const struct qr_model_config *c; /* borrowed */
    const struct qr_weight_row *table, *row;
    int32_t n_rows, next, layer, expert;
    bool all;                        /* set after begin: also the rows that do not hold */
};
struct qr_weight_walk qr_weight_walk_begin(const struct qr_model_config *c);
bool qr_weight_walk_next(struct qr_weight_walk *k);

/* The name of the tensor that the walk is at. Returns text. */
#define QR_WEIGHT_NAME_MAX 96
const char *qr_weight_walk_name(char text[QR_WEIGHT_NAME_MAX], const struct qr_weight_walk *k);

/* Other names that files of the architecture have for the tensor that is usually called `name`: number i = 0, 1, ... in text, or NULL when there are no more.
 * Number 0 leaves out what names of a model begin with that has a head beside them ("model."), where `name` does. */
const char *qr_weight_alias(char text[QR_WEIGHT_NAME_MAX], enum qr_arch arch, const char *name, int32_t i);

/* Its shape in the file, [n_out, n_in], [n_in, n_out] or [n_out]; returns the number of dimensions. */
int32_t qr_weight_walk_shape(int64_t shape[2], const struct qr_weight_walk *k);

#endif
