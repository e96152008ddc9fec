/* report.h - inside loader/ only: what is found out about a model, between looking (check.c) and telling (text.c, json.c). */
#ifndef QR_LOADER_CHECK_REPORT_H
#define QR_LOADER_CHECK_REPORT_H

#include "base/files/source.h"
#include "kernels/dtype.h"
#include "loader/check/check.h"
#include "loader/adapters/lora.h"
#include "loader/config/scorer.h"
#include "loader/model_config.h"
#include "loader/stores/other_files.h"
#include "loader/stores/tensor_files.h"

#define QR_CHECK_PROBLEMS_MAX 8

/* Names of --quantize whose memory is told: one for each type that they stand for, of those that a processor has. */
static const struct {
    const char *name;
    enum qr_dtype type;
} qr_check_formats[] = {{"int8", QR_Q8}, {"int4", QR_Q4}, {"w8a16", QR_C8_G32}, {"w4a16", QR_C4_G32}, {"w4a16-g64", QR_C4_G64}, {"w4a16-g128", QR_C4_G128}};

struct qr_check_report {
    const char *path;
    const struct qr_check_options *options;
    bool is_model, has_config;             /* is_model: more than a file of tensors */
    struct qr_lora_file *adapter;          /* owned; not NULL: a GGUF file or a directory that is one and can be read */
    bool is_adapter;                       /* a GGUF file that says so, or a directory with an adapter's settings */
    struct qr_model_config config;
    struct qr_scorer scorer;               /* of pairs of texts, without its weights */
    struct qr_source *source;              /* owned; NULL when it could not be read */
    struct qr_tensor_files *files;         /* owned; NULL: not read */
    struct qr_other_files other;
    struct qr_err problem[QR_CHECK_PROBLEMS_MAX];
    int32_t n_problems;
    bool generates;                        /* nothing is wrong but with what a server alone needs */
    enum qr_dtype compute;                 /* when nothing is wrong and it is a model */
    char kernels[32];                      /* the instruction-set level */
    size_t weight_bytes[QR_DTYPE_COUNT];   /* weights, with the embedding's rows, as `compute` and as each of qr_check_formats, on this machine */
    size_t kv_token_bytes;                 /* cached keys and values of a token */
    int32_t n_unused;
    const char *first_unused;
    uint64_t n_parameters, n_bytes;
    uint64_t *tensor_hash, *file_hash;     /* owned; NULL: not wanted */
};

void qr_check_text(struct qr_buf *out, const struct qr_check_report *r);
void qr_check_json(struct qr_buf *out, const struct qr_check_report *r);

#endif
