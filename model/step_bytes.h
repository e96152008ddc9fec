/* step_bytes.h - inside model/ only: how much step arena a forward takes, found by running it with kernels that do nothing. */
#ifndef QR_MODEL_STEP_BYTES_H
#define QR_MODEL_STEP_BYTES_H

#include <stddef.h>

#include "model/model.h"

/* `run` is called once with an exec, unfused or not, and a batch of these sizes whose arrays are NULL; it must reach data through kernels only. k: the kernels
 * that will compute; the sizes of what they hand each other are theirs. */
size_t qr_step_bytes(const struct qr_model *m, const struct qr_kernels *k, bool unfused, int32_t n_tokens, int32_t n_logits,
                     struct qr_tensor (*run)(struct qr_exec *x, const struct qr_model *m));

#endif
