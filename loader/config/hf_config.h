/* hf_config.h - a Hugging Face model directory's config.json and generation_config.json -> struct qr_model_config.
 *
 * Field meanings and defaults are those of the transformers library for the supported architectures; sizes that a model cannot
 * do without are never guessed. Every number is checked against a bound, and errors (QR_E_DAMAGED) name the file, the field, the value
 * and the bound. What is meaningful but not computed here (quantization_config, ...) is refused by name
 * (QR_E_UNSUPPORTED); nothing in the directory is ever executed (auto_map is ignored).
 */
#ifndef QR_LOADER_CONFIG_HF_CONFIG_H
#define QR_LOADER_CONFIG_HF_CONFIG_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/files/source.h"
#include "loader/model_config.h"

/* Reads DIR/config.json and, when it is there, DIR/generation_config.json. */
int qr_hf_config_read(struct qr_model_config *out, const char *dir, struct qr_err *err);

/* From the metadata of a GGUF file (the first part of a split one); `path` is what messages call it. The head is tied where there is no output.weight;
 * biases and q/k norms are there where their tensors are. Errors name file and key. */
int qr_gguf_config_read(struct qr_model_config *out, const struct qr_gguf *g, const char *path, struct qr_err *err);

/* Either of the two: GGUF where `model` is such a file, or a directory of one (qr_gguf_find_file). */
int qr_model_config_read(struct qr_model_config *out, const char *model, struct qr_err *err);
int qr_model_config_from(struct qr_model_config *out, const struct qr_source *source, struct qr_err *err);

/* The same from texts in memory; generation may be NULL. */
int qr_hf_config_parse(struct qr_model_config *out, const char *config, size_t config_len, const char *generation,
                       size_t generation_len, struct qr_err *err);

/* Appends a config.json that reads back as c. */
void qr_hf_config_write(struct qr_buf *out, const struct qr_model_config *c);

/* The same with every other key of `source`, the config.json that the model came from (NULL: there is none), and with its own words where they mean c: only
 * types, sizes and ids that c has otherwise are replaced, quantization_config and auto_map are left out. A pad_token_id is an id of the model's, or null. */
int qr_hf_config_write_kept(struct qr_buf *out, const struct qr_model_config *c, const char *source, struct qr_err *err);

/* Appends the config.json of a model's directory; nothing for a GGUF file. The second, whose text may be NULL, reads it as
 * qr_model_config_read does, too. */
int qr_hf_config_text(struct qr_buf *out, const struct qr_source *source, struct qr_err *err);
int qr_model_config_read_text(struct qr_model_config *out, struct qr_buf *text, const char *model, struct qr_err *err);

/* The largest context that the rotary embedding of c is made for: ctx_max, or more where scaling stretches it (linear, dynamic, yarn). */
int32_t qr_model_ctx_limit(const struct qr_model_config *c);

/* The context of a model that is opened without one. YaRN's numbers are the same at every length, so it is all that it stretches to (max_position_embeddings
 * is often the length before that); the others stretch on request. */
int32_t qr_model_ctx_usual(const struct qr_model_config *c);

#endif
