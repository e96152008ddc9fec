/* ref_back_table.c - the plain entries of backward.h. */
#include "kernels/ref/ref.h"

const struct qr_backward QR_REF(backward) = {
    .name = QR_REF_TABLE_NAME,
    .linear_dx = QR_REF(linear_dx),
    .linear_dw = QR_REF(linear_dw),
    .rms_norm = QR_REF(rms_norm_back),
    .head_norm = QR_REF(head_norm_back),
    .rope = QR_REF(rope_back),
    .attention = QR_REF(attention_back),
    .glu = QR_REF(glu_back),
    .embed = QR_REF(embed_back),
    .scatter_rows = QR_REF(scatter_rows),
    .cross_entropy = QR_REF(cross_entropy),
    .adamw = QR_REF(adamw),
    .sum_squares = QR_REF(sum_squares),
    .momentum = QR_REF(momentum),
    .scale = QR_REF(scale),
    .turn = QR_REF(turn),
    .move_by = QR_REF(move_by),
};
