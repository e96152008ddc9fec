/* table.c - the entries of backward.h at avx2 and avx512. */
#include "kernels/cpu/isa/backward/back.h"

const struct qr_backward QR_ISA_NAME(backward) = {
    .name = QR_ISA_TEXT(QR_ISA),
    .linear_dx = QR_ISA_NAME(linear_dx),
    .linear_dw = QR_ISA_NAME(linear_dw),
    .rms_norm = QR_ISA_NAME(rms_norm_back),
    .head_norm = QR_ISA_NAME(head_norm_back),
    .rope = QR_ISA_NAME(rope_back),
    .attention = QR_ISA_NAME(attention_back),
    .glu = QR_ISA_NAME(glu_back),
    .embed = QR_ISA_NAME(embed_back),
    .scatter_rows = QR_ISA_NAME(scatter_rows),
    .cross_entropy = QR_ISA_NAME(cross_entropy),
    .adamw = QR_ISA_NAME(adamw),
    .sum_squares = QR_ISA_NAME(sum_squares),
    .momentum = QR_ISA_NAME(momentum),
    .scale = QR_ISA_NAME(scale),
    .turn = QR_ISA_NAME(turn),
    .move_by = QR_ISA_NAME(move_by),
};
