/* expert_stacks.h - safetensors files that hold the matrices of a layer's experts in one tensor. Inside loader/ only. */
#ifndef QR_LOADER_STORES_EXPERT_STACKS_H
#define QR_LOADER_STORES_EXPERT_STACKS_H

#include "loader/stores/tensor_files.h"

/* Makes a tensor of each expert's matrices and biases, with the names that other families' files have:
 * "...experts.gate_up_proj" becomes "...experts.0.gate_proj.weight", "...experts.0.up_proj.weight", ... */
int qr_expert_stacks_find(struct qr_tensor_files *st, struct qr_err *err);

#endif
