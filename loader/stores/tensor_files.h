/* tensor_files.h - a model's tensors: one safetensors file, those that a model.safetensors.index.json lists, or a GGUF file and its parts.
 *
 * A safetensors file is an 8-byte little-endian length, that many bytes of JSON (name -> dtype, shape, data_offsets), then the data. Every
 * count, offset, shape and type is checked before it is used: a reader of struct qr_stored_tensor may trust that data() has n_bytes
 * bytes and that they are the product of shape and type. The ranges of a file are contiguous, without overlap or hole, and
 * end where the file ends. Immutable once open; any thread may read.
 * Source: the format's README in huggingface/safetensors.
 */
#ifndef QR_LOADER_STORES_TENSOR_FILES_H
#define QR_LOADER_STORES_TENSOR_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/files/source.h"
#include "kernels/dtype.h"
#include "loader/model_config.h"

#define QR_STORED_DIMS_MAX 8
#define QR_SAFETENSORS_HEADER_MAX ((size_t)100 * 1000 * 1000) /* the format's own limit */
#define QR_STORED_TENSORS_MAX (1 << 18)
#define QR_STORED_NAME_MAX 512

/* An element type of the format. */
struct qr_stored_type {
    const char *name;    /* "BF16" */
    int32_t bits;        /* per element; some types are narrower than a byte */
    bool computable;     /* a matrix of this type can be loaded */
    enum qr_dtype dtype; /* when computable; blocks: what they become */
    bool blocks;         /* numbers share scales (GGUF, or quantized): `bits` says nothing, and only qr_tensor_files_decode reads them */
    uint32_t gguf;       /* blocks: their type in base/files/gguf.h */
};

struct qr_stored_tensor {
    const char *name;              /* borrowed from the file set, terminated */
    const struct qr_stored_type *type; /* constant */
    int32_t n_dims, shard;
    int64_t shape[QR_STORED_DIMS_MAX];
    uint64_t offset, n_bytes;      /* offset from the beginning of its file */
    int32_t heads;                 /* not 0: rows of that many heads, in each of which the halves that rotate with each other are mixed row by row (GGUF) */
    /* Not NULL: some of that tensor's numbers (expert_stacks.h). Column c of row r is number
     * row_first + r row_step + c col_step of the n_bytes at offset. */
    const struct qr_stored_tensor *part_of;
    int64_t row_first, row_step, col_step;
    const struct qr_quantized *quantized; /* not NULL: several tensors together (quantized_tensors.h); no bytes of its own, offset is that of its codes */
};

struct qr_tensor_files; /* opaque */

/* `path` is a .safetensors file, or a directory that holds model.safetensors or model.safetensors.index.json. */
int qr_safetensors_open(struct qr_tensor_files **out, const char *path, struct qr_err *err);

/* Of a source that is a GGUF file, or the first part of one that was split. Tensors are found by the names that the same model has in safetensors
 * files; their `name` is the file's own. */
int qr_gguf_tensors_open(struct qr_tensor_files **out, struct qr_source *source, struct qr_err *err);
bool qr_tensor_files_are_gguf(const struct qr_tensor_files *st);

/* Either of the two: GGUF where `model` is such a file, or a directory of one. The set keeps a reference to its source. quant: what config.json says
 * of quantized matrices, which are then found by the names of those they stand for; NULL leaves their parts alone. */
int qr_tensor_files_open(struct qr_tensor_files **out, const char *model, const struct qr_quant_scheme *quant, struct qr_err *err);
int qr_tensor_files_open_from(struct qr_tensor_files **out, struct qr_source *source, const struct qr_quant_scheme *quant, struct qr_err *err);

/* One file's bytes, borrowed for the set's life; `name` is what messages call it. */
int qr_safetensors_open_memory(struct qr_tensor_files **out, const void *bytes, size_t n_bytes, const char *name,
                               struct qr_err *err);
void qr_tensor_files_close(struct qr_tensor_files *st); /* NULL is fine */

/* From now on numbers are read with these loops where there are some: the same bits sooner. NULL: none. They outlive the set. */
struct qr_stored_ops;
void qr_tensor_files_use(struct qr_tensor_files *st, const struct qr_stored_ops *ops);

/* The files' tensors in the order of shard, then offset. */
int32_t qr_tensor_files_count(const struct qr_tensor_files *st);
const struct qr_stored_tensor *qr_tensor_files_at(const struct qr_tensor_files *st, int32_t i);
const struct qr_stored_tensor *qr_tensor_files_find(const struct qr_tensor_files *st, const char *name); /* NULL: not there */

/* Numbers of all tensors; of quantized matrices, what they stand for. */
uint64_t qr_tensor_files_n_parameters(const struct qr_tensor_files *st);

const void *qr_tensor_files_data(const struct qr_tensor_files *st, const struct qr_stored_tensor *t); /* NULL when it has no bytes */
bool qr_tensor_files_populate(const struct qr_tensor_files *st, const struct qr_stored_tensor *t);    /* map its pages now: as qr_map_file_populate */
void qr_tensor_files_drop(const struct qr_tensor_files *st, const struct qr_stored_tensor *t);        /* give its pages back */
void qr_tensor_files_drop_all(const struct qr_tensor_files *st);

int32_t qr_tensor_files_n_shards(const struct qr_tensor_files *st);
const char *qr_tensor_files_shard_name(const struct qr_tensor_files *st, int32_t shard); /* "model-00001-of-00002.safetensors" */
uint64_t qr_tensor_files_shard_bytes(const struct qr_tensor_files *st, int32_t shard);

/* Rows [first, first + n) of a matrix, or numbers of a vector (a row each), as f32, in the order in which safetensors files have them. Requires a computable
 * type. dst [n, columns]. */
void qr_tensor_files_decode(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n);

/* Columns [first, first + n) of a matrix as rows: dst [n, rows]. Not of blocks, nor of mixed rows. */
void qr_tensor_files_decode_columns(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n);

/* A row of a matrix, in the same order: as the file has it. */
const void *qr_tensor_files_row(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, int64_t row);

/* Whether rows lie in the file as kernels read them. */
static inline bool qr_stored_is_plain(const struct qr_stored_tensor *t)
{
    return !t->type->blocks && t->heads == 0 && !t->part_of;
}

/* Appends "[512, 64]" to a buffer of n characters; for messages. Returns text. */
const char *qr_shape_text(char *text, size_t n, const int64_t *shape, int32_t n_dims);

#endif
