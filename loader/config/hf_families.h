/* hf_families.h - inside loader/ only: what config.json says in one family's words: the names of its fields, and fields that no other family has.
 */
#ifndef QR_LOADER_CONFIG_HF_FAMILIES_H
#define QR_LOADER_CONFIG_HF_FAMILIES_H

#include "base/buf.h"
#include "loader/config/hf_field.h"
#include "loader/model_config.h"

/* Names of what every family has. */
struct qr_hf_names {
    const char *layers, *width, *heads, *ffn, *ctx, *eps, *act;
    double eps_default;
    const char *activation[3]; /* names of the one activation that is computed; the first is written, and meant where the file is silent */
    enum qr_act means;
    int32_t heads_default, vocab_default; /* 0: the file must say it */
};
const struct qr_hf_names *qr_hf_names(enum qr_arch arch);

/* Fills in what only this family has, behind everything else, and refuses by name what is not computed. */
int qr_hf_read_family(const struct qr_hf_obj *o, struct qr_model_config *c);

/* Fields that read back so. */
void qr_hf_write_family(struct qr_buf *out, const struct qr_model_config *c);

#endif
