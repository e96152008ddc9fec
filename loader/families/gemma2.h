/* gemma2.h - inside loader/families/ only: what Gemma 3 reads as Gemma 2 does. */
#ifndef QR_LOADER_FAMILIES_GEMMA2_H
#define QR_LOADER_FAMILIES_GEMMA2_H

#include "loader/families/family.h"

/* Where the file names no cap it has attn_cap and logits_cap. */
int qr_gemma2_read_hf(const struct qr_hf_obj *o, struct qr_model_config *c, double attn_cap, double logits_cap);
void qr_gemma2_write_hf(struct qr_buf *out, const struct qr_model_config *c);

/* GGUF files do not say what scores are divided by: the largest model of a family, that of n_layers_largest, differs
 * from the others. */
void qr_gemma2_scale_gguf(struct qr_model_config *c, int32_t n_layers_largest);
void qr_gemma2_make_small(struct qr_model_config *c);

extern const struct qr_family_rename qr_gemma2_gguf_names[];

#endif
