/* back_table.c - the entries of backward.h at amx: its own products, all else avx512's. */
#include "kernels/cpu/isa/backward/back.h"

const struct qr_backward qr_amx_backward = {
    .name = "amx",
    .linear_dx = qr_amx_linear_dx,
    .linear_dw = qr_amx_linear_dw,
    .rms_norm = qr_avx512_rms_norm_back,
    .head_norm = qr_avx512_head_norm_back,
    .rope = qr_avx512_rope_back,
    .attention = qr_avx512_attention_back,
    .glu = qr_avx512_glu_back,
    .embed = qr_avx512_embed_back,
    .scatter_rows = qr_avx512_scatter_rows,
    .cross_entropy = qr_avx512_cross_entropy,
    .adamw = qr_avx512_adamw,
    .sum_squares = qr_avx512_sum_squares,
    .momentum = qr_avx512_momentum,
    .scale = qr_avx512_scale,
    .turn = qr_avx512_turn,
    .move_by = qr_avx512_move_by,
};
