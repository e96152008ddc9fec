/* weights.h - a model's tensors, checked against its configuration and laid out for computing.
 *
 * Matrices are packed by the backend straight from the mapped file (q, k, v into one matrix, gate and up into another), norm
 * weights and biases become f32, all in one region of the backend's memory. What a file stores in blocks is packed in the coded type that keeps it as it
 * is (a fused matrix: all of its pieces; a rank's columns: where no group is cut), unless another type was chosen or the device has no such kernels.
 * The embedding's rows are a tied head's where that is packed without loss (coded, f32, or bf16 from bf16) and not shared out to ranks; blocks are
 * packed as a matrix of their own; else they stay in the mapping, as a step touches few of them; to a device
 * that cannot read it they are copied. Pages of the file are given back whenever 8 MiB are packed; a huge page of the region is entered by one thread, before
 * any pack into it; threads go from one small matrix to the next without waiting (pack_matrix.h). On their way to a device, pieces of 8 MiB are read by all
 * threads while the piece before is copied and packed.
 * Immutable once loaded; any thread may read.
 */
#ifndef QR_LOADER_WEIGHTS_H
#define QR_LOADER_WEIGHTS_H

#include <stdint.h>

#include "base/err.h"
#include "base/files/map_file.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"
#include "loader/model_config.h"
#include "loader/stores/tensor_files.h"
#include "loader/pack/share.h"
#include "loader/weight_table.h"

/* A weight whose t.data and packed are both NULL is one that this model does not have. */
struct qr_layer_weights {
    struct qr_weight norm_attn, norm_attn_bias, qkv, qkv_bias, q_norm, k_norm, sinks, out, out_bias; /* attention */
    struct qr_weight norm_mlp, norm_mlp_bias, gate_up, gate_up_bias, down, down_bias;         /* feed-forward; without gates gate_up is [F, D] */
    struct qr_weight out_norm, down_norm;                                                     /* of what each half adds */
    struct qr_weight router, router_bias, experts_gate_up, experts_down;      /* or experts: the last two are stacks, */
    struct qr_weight experts_gate_up_bias, experts_down_bias;                 /* and these [E, 2F], [E, D] */
    struct qr_weight shared_gate, shared_gate_up, shared_down;                /* and one that is shared: stacks of one */
};

struct qr_weights {
    struct qr_weight embed, positions, norm, norm_bias, head;
    struct qr_weight score; /* of a classifier; what is computed with is read apart (config/scorer.h) */
    struct qr_layer_weights *layer; /* owned [n_layers] */
    int32_t n_layers;
    enum qr_dtype matrix_dtype;     /* of packed matrices: f32, bf16, QR_CODED, or quantized from what the file stores (to 4 bits: but the head to 8) */
    void *region;                   /* owned: packed matrices and vectors; inside `packed` where that is mapped */
    struct qr_map_file packed;      /* owned: a packed copy (--cache-packed), or zeros */
    void *table_copy;               /* owned: embedding rows that the file holds unaligned or of another type, or a device needs, else NULL */
    size_t region_bytes, table_bytes; /* table_bytes: the embedding's rows; 0: the head's */
    struct qr_tensor_files *files;   /* owned */
    const struct qr_mem_ops *mem;   /* borrowed: whose region it is */
};

/* Every tensor of the configuration is there with its shape and a type that can be loaded, and none contradicts the configuration (a
 * bias in a model that says it has none); their names are all of one kind. Errors name the tensors and what was expected. */
int qr_weights_check(const struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err);

/* The tensor of the row that the walk is at, or NULL; its usual name in text. */
const struct qr_stored_tensor *qr_weights_find(const struct qr_weight_walk *k, const struct qr_tensor_files *st, char text[QR_WEIGHT_NAME_MAX]);

/* The same for a usual name ("model.norm.weight"). */
const struct qr_stored_tensor *qr_weights_find_named(const struct qr_tensor_files *st, enum qr_arch arch, const char *name);

/* What only the tensors tell of a configuration: a model whose head is neither tied nor there, and whose tensors have names as without one, is headless.
 * As in transformers 5, a head that config.json calls tied and that is stored with other numbers than the embedding is not; where only the head is stored
 * (safetensors' save_model leaves one of two tensors that share memory), the embedding is found by its name, too. Before qr_weights_check. */
void qr_weights_fit(struct qr_model_config *c, struct qr_tensor_files *st);

/* Tensors that nothing uses; *first is the first of them or NULL. Rotary tables and the head of a tied model do not count. */
int32_t qr_weights_unused(const struct qr_tensor_files *st, const struct qr_model_config *c, const char **first);

/* The type in which a file's matrices are computed with by themselves: QR_CODED ("each as it is stored") where some are stored in blocks and these kernels
 * multiply such; else the type that loses nothing: f32 when a matrix is
 * stored in f32 or holds an f16 value that bf16 cannot, bf16 otherwise. Requires qr_weights_check. */
enum qr_dtype qr_weights_stored_dtype(const struct qr_tensor_files *st, const struct qr_share *share, const struct qr_kernels *k);

/* Inputs of the widest matrix. */
int64_t qr_weights_inputs_max(const struct qr_model_config *c);

/* Bytes of the region that qr_weights_load allocates for a format, and of the embedding's rows where they are not the head's. */
size_t qr_weights_bytes_as(struct qr_tensor_files *st, const struct qr_share *share, const struct qr_kernels *kernels, enum qr_dtype to);

struct qr_weights_options {
    const char *cache_dir; /* for a packed copy: used where it is there and fits, else kept there; NULL, and on a device: none */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes of files that are packed, after some MiB and at the end; or NULL */
    void *user;            /* borrowed */
    bool checked;          /* qr_weights_check has found nothing wrong */
};
/* Checks, packs the share's part of the matrices as `to` (qr_dtype_packs, or QR_CODED), and takes over `st` on success. Where a rank has some of a matrix's
 * inputs only (out, down), quantized rows are rounded by what it has of them: its own scale, never larger than the whole row's. options may be NULL.
 * Errors: those of qr_weights_check, QR_E_NO_ROOM. */
int qr_weights_load(struct qr_weights *w, struct qr_tensor_files *st, const struct qr_share *share, struct qr_backend *be, enum qr_dtype to,
                         const struct qr_weights_options *options, struct qr_err *err);
void qr_weights_release(struct qr_weights *w);

/* Shapes and places without memory behind them (packed and data point nowhere), for planning: takes over `st`, which passed
 * qr_weights_check. */
void qr_weights_outline(struct qr_weights *w, struct qr_tensor_files *st, const struct qr_share *share, const struct qr_kernels *k, enum qr_dtype to);

#endif
