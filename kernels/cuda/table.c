#include "kernels/cuda/table.h"

#include <stdio.h>

#include "kernels/cuda/coded.h"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/hopper.h"

const struct qr_kernels qr_cuda_kernels = {
    .name = "cuda",
    .linear = qr_cuda_linear,
    .chain = qr_cuda_chain,
    .linear_packed_bytes = qr_cuda_linear_packed_bytes,
    .linear_pack = qr_cuda_linear_pack,
    .linear_pack_coded = qr_cuda_linear_pack_coded,
    .rms_norm = qr_cuda_rms_norm,
    .head_norm = qr_cuda_head_norm,
    .residual_add = qr_cuda_residual_add,
    .embed = qr_cuda_embed,
    .rope_table = qr_cuda_rope_table,
    .rope = qr_cuda_rope,
    .kv_write = qr_cuda_kv_write,
    .qkv = qr_cuda_qkv,
    .kv_copy = qr_cuda_kv_copy,
    .attention = qr_cuda_attention,
    .glu = qr_cuda_glu,
    .gather_rows = qr_cuda_gather_rows,
    .sample = qr_cuda_sample,
    .adapt = qr_cuda_adapt,
    .route = qr_cuda_route,
    .experts = qr_cuda_experts,
    .layer_norm = qr_cuda_layer_norm,
    .unit = qr_cuda_unit,
    .softcap = qr_cuda_softcap,
};

const struct qr_backward qr_cuda_backward = {
    .name = "cuda",
    .linear_dx = qr_cuda_linear_dx,
    .linear_dw = qr_cuda_linear_dw,
    .rms_norm = qr_cuda_rms_norm_back,
    .head_norm = qr_cuda_head_norm_back,
    .rope = qr_cuda_rope_back,
    .attention = qr_cuda_attention_back,
    .glu = qr_cuda_glu_back,
    .embed = qr_cuda_embed_back,
    .scatter_rows = qr_cuda_scatter_rows,
    .cross_entropy = qr_cuda_cross_entropy,
    .adamw = qr_cuda_adamw,
    .sum_squares = qr_cuda_sum_squares,
    .momentum = qr_cuda_momentum,
    .scale = qr_cuda_scale,
    .turn = qr_cuda_turn,
    .move_by = qr_cuda_move_by,
};

bool qr_cuda_supports(struct qr_queue *q, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim, int32_t block_tokens,
                      char message[QR_CUDA_MESSAGE])
{
    if (weights != QR_BF16 && weights != QR_F32 && weights != QR_CODED && !qr_coded_lies(weights)) {
        snprintf(message, QR_CUDA_MESSAGE, "CUDA kernels compute with bf16, f32, fp8, w8a16 and w4a16 weights and with coded checkpoints, not %s",
                 qr_dtype_name(weights));
        return false;
    }
    if (inputs_max > qr_linear_inputs_max(weights)) {
        snprintf(message, QR_CUDA_MESSAGE, "a matrix has %lld inputs, %d at most are computed with", (long long)inputs_max, (int)qr_linear_inputs_max(weights));
        return false;
    }
    if (kv != QR_BF16 && kv != QR_F32 && !qr_kv_has_scales(kv)) {
        snprintf(message, QR_CUDA_MESSAGE, "CUDA kernels keep keys and values as bf16, f32, int8 or fp8, not %s", qr_dtype_name(kv));
        return false;
    }
    if (head_dim < 8 || head_dim > 256 || head_dim % 8 != 0) {
        snprintf(message, QR_CUDA_MESSAGE, "attention heads of %d numbers: CUDA kernels have multiples of 8 up to 256", (int)head_dim);
        return false;
    }
    if (block_tokens < 1 || block_tokens > QR_BLOCK_TOKENS_MAX || (block_tokens & (block_tokens - 1)) != 0) {
        snprintf(message, QR_CUDA_MESSAGE, "cache blocks of %d tokens: expected a power of two from 1 to %d", (int)block_tokens, QR_BLOCK_TOKENS_MAX);
        return false;
    }
    if (kv == QR_BF16)
        (void)qr_cuda_hopper_ready(q, head_dim); /* tried now, as steps must not wait */
    return true;
}
