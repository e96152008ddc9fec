/* olmo2.h - inside loader/families/ only: what OLMo 3 has of OLMo 2, whose name it has in GGUF files. */
#ifndef QR_LOADER_FAMILIES_OLMO2_H
#define QR_LOADER_FAMILIES_OLMO2_H

#include "loader/families/family.h"

extern const struct qr_weight_row qr_olmo2_rows[];
extern const struct qr_family_rename qr_olmo2_gguf_names[];

/* Makes an OLMo 3 of a configuration. */
int qr_olmo3_read_gguf(const struct qr_gguf_reader *r);

#endif
