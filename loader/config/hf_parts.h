/* hf_parts.h - inside loader/config/ only: the parts of config.json that have files of their own, read (behind sizes
 * and flags) and written. */
#ifndef QR_LOADER_CONFIG_HF_PARTS_H
#define QR_LOADER_CONFIG_HF_PARTS_H

#include "base/buf.h"
#include "loader/config/hf_field.h"
#include "loader/model_config.h"

/* Rotary embeddings. c->local_theta is what layers with a window rotate by where the file does not say it, 0: as all
 * others. */
int qr_hf_rope_read(const struct qr_hf_obj *o, struct qr_model_config *c);
void qr_hf_rope_write(struct qr_buf *out, const struct qr_model_config *c);

/* Experts; nothing where the family has none. */
int qr_hf_moe_read(const struct qr_hf_obj *o, struct qr_model_config *c);
void qr_hf_moe_write(struct qr_buf *out, const struct qr_model_config *c);

/* "float32", "float16" or "bfloat16". */
const char *qr_hf_dtype_name(enum qr_dtype t);

#endif
