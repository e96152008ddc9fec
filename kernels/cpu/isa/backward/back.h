/* back.h - the gradient kernels of each instruction-set level; see isa.h for how names are made. Inside kernels/ only. */
#ifndef QR_KERNELS_CPU_ISA_BACKWARD_BACK_H
#define QR_KERNELS_CPU_ISA_BACKWARD_BACK_H

#include "kernels/backward.h"
#include "kernels/cpu/isa/isa.h"

#define QR_ISA_DECLARE_BACK(isa)                                                              \
    extern const struct qr_backward qr_##isa##_backward;                                      \
    void qr_##isa##_linear_dx(struct qr_queue *q, const struct qr_linear_dx_args *a);         \
    void qr_##isa##_linear_dw(struct qr_queue *q, const struct qr_linear_dw_args *a);         \
    void qr_##isa##_rms_norm_back(struct qr_queue *q, const struct qr_norm_back_args *a);     \
    void qr_##isa##_head_norm_back(struct qr_queue *q, const struct qr_head_norm_back_args *a); \
    void qr_##isa##_rope_back(struct qr_queue *q, const struct qr_rope_args *a);              \
    void qr_##isa##_attention_back(struct qr_queue *q, const struct qr_attention_back_args *a); \
    void qr_##isa##_glu_back(struct qr_queue *q, const struct qr_glu_back_args *a);           \
    void qr_##isa##_embed_back(struct qr_queue *q, const struct qr_embed_back_args *a);       \
    void qr_##isa##_scatter_rows(struct qr_queue *q, const struct qr_scatter_args *a);        \
    void qr_##isa##_cross_entropy(struct qr_queue *q, const struct qr_cross_entropy_args *a); \
    void qr_##isa##_adamw(struct qr_queue *q, const struct qr_adamw_args *a);                 \
    void qr_##isa##_sum_squares(struct qr_queue *q, const struct qr_sum_squares_args *a);     \
    void qr_##isa##_momentum(struct qr_queue *q, const struct qr_momentum_args *a);           \
    void qr_##isa##_scale(struct qr_queue *q, const struct qr_scale_args *a);                 \
    void qr_##isa##_turn(struct qr_queue *q, const struct qr_turn_args *a);                   \
    void qr_##isa##_move_by(struct qr_queue *q, const struct qr_move_args *a);

QR_ISA_DECLARE_BACK(avx2)
QR_ISA_DECLARE_BACK(avx512)
QR_ISA_DECLARE_BACK(amx) /* products of bf16; its table takes the others from avx512 */

#endif
