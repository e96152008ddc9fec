/* gguf.h - a GGUF container: typed metadata and a table of tensors over one file's bytes.
 *
 * Versions 2 and 3, little-endian. Every count, length, type, offset and size is checked when the container is opened, so a reader of struct qr_gguf_tensor may
 * trust that its bytes lie inside the file, do not overlap another tensor's, and are what shape and type ask for. What keys and tensors mean is known to
 * loader/ and tokenizer/. Nothing is copied: the bytes are borrowed for the container's life. Immutable once open; any thread may read.
 * Source: the format's description in ggml/docs/gguf.md; block sizes of its types as published there.
 */
#ifndef QR_BASE_FILES_GGUF_H
#define QR_BASE_FILES_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define QR_GGUF_DIMS_MAX 4
#define QR_GGUF_NAME_MAX 256          /* bytes of a tensor's name; the format's own limit is 64 */
#define QR_GGUF_KEYS_MAX (1 << 16)
#define QR_GGUF_TENSORS_MAX (1 << 18)

enum qr_gguf_kind {
    QR_GGUF_U8, QR_GGUF_I8, QR_GGUF_U16, QR_GGUF_I16, QR_GGUF_U32, QR_GGUF_I32, QR_GGUF_F32, QR_GGUF_BOOL, QR_GGUF_STRING, QR_GGUF_ARRAY,
    QR_GGUF_U64, QR_GGUF_I64, QR_GGUF_F64, QR_GGUF_KIND_COUNT
};

/* Element types of tensors, numbered as in the file; holes are types that were withdrawn. */
enum qr_gguf_type {
    QR_GGUF_T_F32 = 0, QR_GGUF_T_F16 = 1, QR_GGUF_T_Q4_0 = 2, QR_GGUF_T_Q4_1 = 3, QR_GGUF_T_Q5_0 = 6, QR_GGUF_T_Q5_1 = 7, QR_GGUF_T_Q8_0 = 8,
    QR_GGUF_T_Q8_1 = 9, QR_GGUF_T_Q2_K = 10, QR_GGUF_T_Q3_K = 11, QR_GGUF_T_Q4_K = 12, QR_GGUF_T_Q5_K = 13, QR_GGUF_T_Q6_K = 14, QR_GGUF_T_Q8_K = 15,
    QR_GGUF_T_IQ2_XXS = 16, QR_GGUF_T_IQ2_XS = 17, QR_GGUF_T_IQ3_XXS = 18, QR_GGUF_T_IQ1_S = 19, QR_GGUF_T_IQ4_NL = 20, QR_GGUF_T_IQ3_S = 21,
    QR_GGUF_T_IQ2_S = 22, QR_GGUF_T_IQ4_XS = 23, QR_GGUF_T_I8 = 24, QR_GGUF_T_I16 = 25, QR_GGUF_T_I32 = 26, QR_GGUF_T_I64 = 27, QR_GGUF_T_F64 = 28,
    QR_GGUF_T_IQ1_M = 29, QR_GGUF_T_BF16 = 30, QR_GGUF_T_TQ1_0 = 34, QR_GGUF_T_TQ2_0 = 35, QR_GGUF_T_MXFP4 = 39,
    QR_GGUF_T_NVFP4 = 40, QR_GGUF_T_Q1_0 = 41, QR_GGUF_T_Q2_0 = 42
};

/* How a type stores numbers: `elements` neighbours of a row in `bytes`. */
struct qr_gguf_layout {
    const char *name; /* "Q4_K" */
    int32_t elements, bytes;
};
const struct qr_gguf_layout *qr_gguf_layout(uint32_t type); /* NULL: no such type */

struct qr_gguf_text {
    const char *at;   /* borrowed, not terminated */
    uint64_t n;
};
bool qr_gguf_text_is(struct qr_gguf_text t, const char *s);

struct qr_gguf_key {
    struct qr_gguf_text name;
    enum qr_gguf_kind kind;
    enum qr_gguf_kind of;  /* arrays: what they hold */
    uint64_t count;        /* arrays: how many; else 1 */
    const uint8_t *data;   /* its first byte */
    uint64_t offset;       /* of that byte in the file, for messages */
};

struct qr_gguf_tensor {
    struct qr_gguf_text name;
    const struct qr_gguf_layout *layout;
    uint32_t type;
    int32_t n_dims;
    int64_t dim[QR_GGUF_DIMS_MAX]; /* the first is the contiguous one; those behind n_dims are 1 */
    uint64_t offset, n_bytes;      /* offset from the beginning of the file */
};

struct qr_gguf; /* opaque */

/* `file` is what messages call it. Errors name file, byte, key or tensor, what was found and what was expected: QR_E_DAMAGED; QR_E_UNSUPPORTED for
 * version 1, big-endian files and unknown types; QR_E_TOO_LARGE. Memory: some 64 bytes for each key and tensor, whatever counts a file claims. */
int qr_gguf_open(struct qr_gguf **out, const void *bytes, size_t n_bytes, const char *file, struct qr_err *err);
void qr_gguf_close(struct qr_gguf *g); /* NULL is fine */

bool qr_gguf_is(const void *bytes, size_t n_bytes); /* begins like one */

int32_t qr_gguf_version(const struct qr_gguf *g);
int32_t qr_gguf_n_keys(const struct qr_gguf *g);
const struct qr_gguf_key *qr_gguf_key_at(const struct qr_gguf *g, int32_t i);
const struct qr_gguf_key *qr_gguf_find(const struct qr_gguf *g, const char *name); /* NULL: not there */
int32_t qr_gguf_n_tensors(const struct qr_gguf *g);
const struct qr_gguf_tensor *qr_gguf_tensor_at(const struct qr_gguf *g, int32_t i);                /* in the file's order */
const struct qr_gguf_tensor *qr_gguf_tensor_find(const struct qr_gguf *g, const char *name);       /* NULL: not there */

const void *qr_gguf_tensor_data(const struct qr_gguf *g, const struct qr_gguf_tensor *t);          /* its n_bytes bytes */

/* The value of a key as a type of C, *out untouched when the key is not there (then 0 is returned, and found, when not NULL, is false). Whole numbers of any
 * width are read as int64; real ones, and whole ones, as double. Errors: QR_E_DAMAGED names key, kind and value where it does not fit. */
int qr_gguf_int(const struct qr_gguf *g, const char *name, int64_t least, int64_t most, int64_t *out, bool *found, struct qr_err *err);
int qr_gguf_real(const struct qr_gguf *g, const char *name, double *out, bool *found, struct qr_err *err);

/* As qr_gguf_int, of a number or of an array of n_layers (0: of any length) that are all the same: QR_E_UNSUPPORTED where they differ. */
int qr_gguf_same_int(const struct qr_gguf *g, const char *name, int32_t n_layers, int64_t least, int64_t most, int64_t *out, bool *found,
                     struct qr_err *err);
int qr_gguf_bool(const struct qr_gguf *g, const char *name, bool *out, bool *found, struct qr_err *err);
int qr_gguf_string(const struct qr_gguf *g, const char *name, struct qr_gguf_text *out, bool *found, struct qr_err *err);

/* The value of a key of one number. Requires a kind that is one. */
double qr_gguf_key_number(const struct qr_gguf_key *k);

/* An array key of that kind: NULL with *err set when it is there and is none of that kind, NULL with err->code untouched when it is not there. */
const struct qr_gguf_key *qr_gguf_array(const struct qr_gguf *g, const char *name, enum qr_gguf_kind of, struct qr_err *err);

/* Elements of arrays of numbers. Requires i < count. */
int64_t qr_gguf_array_int(const struct qr_gguf_key *k, uint64_t i);
double qr_gguf_array_real(const struct qr_gguf_key *k, uint64_t i);

/* Walks an array of strings: *at begins at k->data and moves behind each text read. */
struct qr_gguf_text qr_gguf_next_text(const uint8_t **at);

#endif
