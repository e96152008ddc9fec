/* arch.h - inside model/ only: the forward passes. A forward is written in the verbs of ops.h and nothing else. */
#ifndef QR_MODEL_ARCH_H
#define QR_MODEL_ARCH_H

#include "loader/model_config.h"
#include "loader/weights.h"
#include "model/ops.h"

/* Llama, Mistral, Qwen2, Qwen3, Phi-3, SmolLM3, Granite, Gemma, Mixtral, Qwen2-MoE, Qwen3-MoE: returns logits [n_logits, V] of the batch that x points to. */
struct qr_tensor qr_llama_forward(struct qr_exec *x, const struct qr_model_config *c, const struct qr_weights *w);

#endif
