/* safetensors_header.h - inside loader/ only: the header of one safetensors file, parsed and checked. */
#ifndef QR_LOADER_STORES_SAFETENSORS_HEADER_H
#define QR_LOADER_STORES_SAFETENSORS_HEADER_H

#include "loader/stores/tensor_files_parts.h"

/* Appends the tensors of one file, sorted by offset, all with `shard`. On an error the list may hold unchecked entries and is
 * to be thrown away. `file` is what messages call it. */
int qr_safetensors_header_parse(struct qr_stored_list *list, const uint8_t *bytes, size_t n_bytes, int32_t shard, const char *file,
                       struct qr_err *err);

#endif
