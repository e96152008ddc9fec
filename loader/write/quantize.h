/* quantize.h - a model's weights written rounded to few bits, in the layout of compressed-tensors (quantized_tensors.h reads it).
 *
 * Matrices of layers are rounded (rounding.h), but those that decide between experts; the head, embeddings and vectors are copied. What is known of a matrix'
 * inputs, from text, is used twice:
 *     int4        numbers that meet large inputs count more when a group's scale, and its zero where it has one, is chosen
 *     smoothing   where an RMSNorm feeds matrices (q, k, v; gate and up), its output j is divided by s_j and columns j are multiplied by it, so that
 *                 columns that meet large inputs are rounded more finely: s_j = x_j^a / w_j^(1 - a), x_j the root of the mean square of the input, w_j the
 *                 column's largest number, as a power of two: what the unrounded model computes stays the same, bit for bit but for overflow and numbers
 *                 below the normal ones. a is the one of none, 0.25, 0.5, 0.75 with the least sum of x_j^2 (w - rounded)^2, none unless that is a percent less.
 * Rows are streamed through all threads: in f32 there are 16 of them for each at a time. One owning thread, the backend's worker 0.
 * Sources: Xiao et al. 2022 (arXiv:2211.10438), Lin et al. 2023 (arXiv:2306.00978).
 */
#ifndef QR_LOADER_WRITE_QUANTIZE_H
#define QR_LOADER_WRITE_QUANTIZE_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/buf.h"
#include "kernels/backend.h"
#include "loader/model_config.h"
#include "loader/write/rounding.h"
#include "loader/stores/tensor_files.h"

struct qr_quantize_options {
    enum qr_rounding type;
    int64_t group;                    /* of int4; it divides every matrix' inputs (qr_quantize_group) */
    struct qr_backend *be;            /* borrowed: whose threads round; NULL: the caller's alone */
    bool smooth;
    bool rename;                      /* of a GGUF file (qr_quantize_fit): tensors get the names and norms the numbers that Hugging Face's files have */
    /* Mean squares [n_in] of the inputs of a layer's matrix, named by its place in struct qr_layer_weights; NULL: nothing is known. NULL: of none. */
    const float *(*inputs)(void *user, int32_t layer, size_t at);
    void *user;
    const _Atomic int *stop;          /* not 0: give up; or NULL */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* of numbers to go through, after each matrix; or NULL */
    void *progress_user;              /* borrowed */
};

/* Matrices that stay as they are. */
enum qr_kept { QR_KEPT_EMBEDDING, QR_KEPT_HEAD, QR_KEPT_ROUTER, QR_KEPT_COUNT };

struct qr_quantize_report {
    int32_t n_matrices, n_calibrated;      /* rounded; of these, with known inputs */
    int32_t n_smoothed, n_smoothable;      /* norms */
    int32_t n_left_out;                    /* tensors of the files that nothing uses */
    int32_t n_kept[QR_KEPT_COUNT];
    uint64_t kept_bytes;
    uint64_t bytes;                        /* of the file */
};

/* The largest of 128, 64 and 32 that divides all inputs, or `asked` (not 0) where it does. Errors: QR_E_UNSUPPORTED names the matrix. */
int qr_quantize_group(int64_t *out, const struct qr_model_config *c, int64_t asked, struct qr_err *err);

/* Whether an RMSNorm's weights can take up what smoothing divides by; else the reason. */
const char *qr_quantize_unsmoothable(const struct qr_model_config *c);

/* The configuration of a GGUF file becomes that of the directory which is written: Gemma's converter has added 1 to the norms' weights, which is taken back. */
void qr_quantize_fit(struct qr_model_config *c);

/* What cannot be quantized, by name: what is quantized already; of a GGUF file (st not NULL), matrices of fewer than 8 bits. */
int qr_quantize_admits(const struct qr_model_config *c, const struct qr_tensor_files *gguf, struct qr_err *err);

/* Writes the file. Requires qr_quantize_admits. Errors: those of qr_weights_check; QR_E_CLOSED: stopped; QR_E_DAMAGED: numbers that are not finite;
 * QR_E_UNSUPPORTED: a norm from which 1 cannot be taken without rounding. What is written when it fails is left to the caller to remove. */
int qr_quantize_write(const char *path, const struct qr_tensor_files *st, const struct qr_model_config *c, const struct qr_quantize_options *o,
                      struct qr_quantize_report *report, struct qr_err *err);

/* Appends `config` (config.json's text) with quantization_config. Errors: those of parsing. */
int qr_quantize_config(struct qr_buf *out, const char *config, size_t len, const struct qr_model_config *c, const struct qr_quantize_options *o,
                       struct qr_err *err);

#endif
