/* tensor.h - a view of memory as an array of numbers, and a weight: a tensor with what `linear` must know about it. */
#ifndef QR_KERNELS_TENSOR_H
#define QR_KERNELS_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"

#define QR_MAX_DIMS 4

/* Owns nothing. stride[] is in elements; the last dimension is contiguous (stride 1) in every tensor that kernels see. */
struct qr_tensor {
    void *data; /* borrowed */
    enum qr_dtype dtype;
    int32_t n_dims;
    int64_t shape[QR_MAX_DIMS], stride[QR_MAX_DIMS];
};

/* Dense row-major views. */
struct qr_tensor qr_tensor_1d(void *data, enum qr_dtype dtype, int64_t n0);
struct qr_tensor qr_tensor_2d(void *data, enum qr_dtype dtype, int64_t n0, int64_t n1);
struct qr_tensor qr_tensor_3d(void *data, enum qr_dtype dtype, int64_t n0, int64_t n1, int64_t n2);

/* Columns [first, first + n) of the last dimension of a 2-d tensor, as a view. */
struct qr_tensor qr_tensor_columns(const struct qr_tensor *t, int64_t first, int64_t n);

/* A 2-d [N, H*K] tensor seen as [N, H, K]; strides follow. */
struct qr_tensor qr_tensor_heads(const struct qr_tensor *t, int64_t n_heads, int64_t head_dim);

int64_t qr_tensor_count(const struct qr_tensor *t); /* elements */

enum qr_split { QR_SPLIT_NONE, QR_SPLIT_OUT, QR_SPLIT_IN }; /* how tensor parallelism cuts it */

/* Some outputs of a fused matrix (q, k, v; gate, up) whose pieces a file stores in different types: each part is packed as a matrix of its own. */
#define QR_WEIGHT_PARTS_MAX 3
struct qr_weight_part {
    enum qr_dtype packed_dtype;
    int64_t first, n_out;
    size_t at; /* bytes behind `packed` */
};

/* t is the logical matrix [n_out, n_in] (or a vector [n]). Matrices that `linear` reads also have `packed`, the layout that the
 * backend's linear_pack made; t.data is then NULL unless the rows themselves are needed too (embeddings). A stack [E, n_out, n_in] is E packed matrices,
 * stack_bytes from one to the next. */
struct qr_weight {
    struct qr_tensor t;
    enum qr_split split;
    struct qr_tensor inputs;      /* [n_in] of I32: which input of what is multiplied is input i of `packed`; data NULL: i. Kernels do not look at it: who
                                   * calls a product picks the columns first (pick_columns) */
    void *packed;                 /* owned by the model */
    enum qr_dtype packed_dtype;   /* QR_CODED: the parts' */
    size_t stack_bytes;           /* 0: no stack */
    struct qr_weight_part part[QR_WEIGHT_PARTS_MAX];
    int32_t n_parts;              /* 0: the matrix is one. Kernels take parts only */
};

/* Matrix i of a stack, as a weight of its own. */
struct qr_weight qr_weight_in_stack(const struct qr_weight *w, int32_t i);

/* Part i, likewise. */
struct qr_weight qr_weight_of_part(const struct qr_weight *w, int32_t i);

#endif
