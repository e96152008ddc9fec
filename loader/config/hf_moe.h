/* hf_moe.h - inside loader/ only: what config.json says of experts, read and written. */
#ifndef QR_LOADER_CONFIG_HF_MOE_H
#define QR_LOADER_CONFIG_HF_MOE_H

#include "base/buf.h"
#include "loader/config/hf_field.h"
#include "loader/model_config.h"

/* Fills c->moe of an architecture that has experts, when the numbers of layers and of the feed-forward are known; else does nothing. */
int qr_hf_moe_read(const struct qr_hf_obj *o, struct qr_model_config *c);

/* The same as fields of an object, each with a comma behind it. */
void qr_hf_moe_write(struct qr_buf *out, const struct qr_model_config *c);

#endif
