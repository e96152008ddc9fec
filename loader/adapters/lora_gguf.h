/* lora_gguf.h - inside loader/ only: llama.cpp's form of an adapter, one GGUF file, as the set of tensors of PEFT's form (lora.h).
 *
 * general.type is "adapter", adapter.type "lora", adapter.lora.alpha what sums are scaled by (over their rank), general.architecture the model's; tensors are
 * NAME.lora_a [r, n_in] and NAME.lora_b [n_out, r] for the model's tensor NAME. Rows of B lie as those of NAME do, which of some architectures are mixed.
 * Sources: llama.cpp's convert_lora_to_gguf.py, and src/llama-adapter.cpp, which says what is computed where a file is silent.
 */
#ifndef QR_LOADER_ADAPTERS_LORA_GGUF_H
#define QR_LOADER_ADAPTERS_LORA_GGUF_H

#include "base/files/gguf.h"
#include "loader/stores/tensor_files_parts.h"

struct qr_lora_gguf {
    char arch[32];
    double alpha; /* 0: none is said, and sums are as they are */
};

/* g's tensors become those of `st`, whose one file g's bytes are: found by PEFT's names where their matrices have one (qr_lora_name), else by their own, which
 * `name` is everywhere. Each has its other half, of the same rank. Errors name the key or the tensor: QR_E_DAMAGED, QR_E_UNSUPPORTED. */
int qr_lora_gguf_read(struct qr_lora_gguf *out, struct qr_tensor_files *st, const struct qr_gguf *g, struct qr_err *err);

/* For a model of c: its rows of q and k are put in order when they are read. QR_E_DAMAGED where the architecture is another one. */
int qr_lora_gguf_fit(const struct qr_lora_gguf *a, struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err);

#endif
