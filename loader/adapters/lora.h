/* lora.h - low-rank adapters on disk, in PEFT's form: a directory with adapter_config.json, and with adapter_model.safetensors that holds
 * base_model.model.NAME.lora_A.weight [r, n_in] and .lora_B.weight [n_out, r] for the matrices NAME.weight that are adapted to W + scale B A (Hu et al.
 * 2021, arXiv:2106.09685); or in llama.cpp's, one GGUF file (loader/adapters/lora_gguf.h). Either is for a model from files of either kind. Read by serving
 * (model/lora.h) and by `quire lora merge`, written by train/variants/lora_files.c.
 *
 * Files are read as they are when they are opened: who changes them later changes nothing here. What is no such sum (DoRA, modules_to_save, biases, ...)
 * is refused by the name of its setting, tensors that belong to no adapted matrix by theirs. One owning thread.
 */
#ifndef QR_LOADER_ADAPTERS_LORA_H
#define QR_LOADER_ADAPTERS_LORA_H

#include "base/err.h"
#include "base/hash.h"
#include "loader/stores/tensor_files.h"
#include "loader/weight_table.h"

#define QR_LORA_CONFIG "adapter_config.json"
#define QR_LORA_WEIGHTS "adapter_model.safetensors"
#define QR_LORA_RANK_MAX 65536

/* The part of an adapter's matrix name behind that of the matrix which it adapts, and what is before it. */
#define QR_LORA_BEFORE "base_model.model."
#define QR_LORA_A ".lora_A.weight"
#define QR_LORA_B ".lora_B.weight"

/* "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" of "model.layers.0.self_attn.q_proj.weight"; behind: QR_LORA_A or QR_LORA_B. */
void qr_lora_name(char out[QR_WEIGHT_NAME_MAX], const char *matrix, const char *behind);

struct qr_lora_file; /* opaque */

/* path: the adapter's directory, or a GGUF file. root: a directory below which all files must really lie, wherever links and ".." lead; NULL: anywhere.
 * weights_max: the most bytes of the file with the matrices. Errors: QR_E_NOT_FOUND, QR_E_IO, QR_E_DENIED (outside of root), QR_E_TOO_LARGE, QR_E_DAMAGED;
 * QR_E_UNSUPPORTED for kinds of adapters that are no such sum. */
int qr_lora_file_open(struct qr_lora_file **out, const char *path, const char *root, size_t weights_max, struct qr_err *err);
/* The same of bytes that are copied. */
int qr_lora_file_open_memory(struct qr_lora_file **out, const void *config, size_t n_config, const void *weights, size_t n_weights, struct qr_err *err);
void qr_lora_file_close(struct qr_lora_file *f); /* NULL is fine */

/* Whether it can be for a model of c, once, before a pair is looked up; rows of B are in the model's order from then on.
 * transposed: the caller's matrices lie as [in, out], as fan_in_fan_out says. Errors: QR_E_UNSUPPORTED where that is set and they
 * do not; QR_E_DAMAGED where a GGUF file is for another architecture. */
int qr_lora_file_fit(struct qr_lora_file *f, const struct qr_model_config *c, bool transposed, struct qr_err *err);

/* The largest rank. */
int32_t qr_lora_file_rank(const struct qr_lora_file *f);
/* A number that says which adapters these are: two of the same have the same bytes in both files. */
struct qr_hash128 qr_lora_file_hash(const struct qr_lora_file *f);

/* What the file says of itself, without a model. */
struct qr_lora_about {
    const char *arch;                 /* borrowed: of a GGUF file; NULL: the settings of a directory, which say no architecture */
    const char *base;                 /* borrowed: the model that a directory's settings name, "" where they name none; NULL: a GGUF file */
    double alpha;                     /* 0 of a GGUF file: none is said */
    bool rslora;                      /* alpha is over the root of the rank */
    int32_t n_patterns;               /* matrices' names with an alpha of their own */
    int32_t n_matrices, rank_min, rank_max; /* ranks 0: no matrix */
};
struct qr_lora_about qr_lora_file_about(const struct qr_lora_file *f);

/* What can be seen without a model: tensors have names of adapters, two dimensions, one rank in both halves (r of the settings, where these say no others) and
 * a type that can be read; there is one. Errors name the tensor: QR_E_DAMAGED, QR_E_UNSUPPORTED. */
int qr_lora_file_check_alone(const struct qr_lora_file *f, struct qr_err *err);

/* What is added to one matrix. */
struct qr_lora_pair {
    const struct qr_stored_tensor *a, *b; /* borrowed; NULL: nothing */
    int32_t rank;
    float scale;                      /* alpha / r, with use_rslora alpha / sqrt(r); 1 where a GGUF file says no alpha */
};

/* The pair of `matrix` ("model.layers.0.self_attn.q_proj.weight", [n_out, n_in]), its shapes and types checked; `base` is what messages call the model.
 * Errors: QR_E_DAMAGED, QR_E_UNSUPPORTED. */
int qr_lora_file_find(struct qr_lora_file *f, struct qr_lora_pair *out, const char *matrix, int64_t n_out, int64_t n_in, const char *base,
                      struct qr_err *err);

/* Rows [first, first + n) of a pair's tensor as f32. */
void qr_lora_file_decode(const struct qr_lora_file *f, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n);

/* Every tensor was found by qr_lora_file_find, and there is one. QR_E_DAMAGED names one that was not. */
int qr_lora_file_check_used(const struct qr_lora_file *f, const char *base, struct qr_err *err);

#endif
