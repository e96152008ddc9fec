/* entries.h - the launchers of kernels/cuda/, one for each entry of kernels.h and backward.h that there is; table.c lists them. Plain C in both languages.
 * All pointers in arguments are the device's, but those to structs of arguments. A launcher returns when its kernels are in the queue's stream. */
#ifndef QR_KERNELS_CUDA_ENTRIES_H
#define QR_KERNELS_CUDA_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/backward.h" /* in C++ too these are C */
#include "kernels/kernels.h"

/* rows.cu */
void qr_cuda_rms_norm(struct qr_queue *q, const struct qr_norm_args *a);
void qr_cuda_residual_add(struct qr_queue *q, const struct qr_add_args *a);
void qr_cuda_embed(struct qr_queue *q, const struct qr_embed_args *a);
void qr_cuda_glu(struct qr_queue *q, const struct qr_glu_args *a);
void qr_cuda_gather_rows(struct qr_queue *q, const struct qr_gather_args *a);

/* Whether this library has code for the device that is in use: 0, or the runtime's word for why not. */
int qr_cuda_code_missing(void);

/* family.cu */
void qr_cuda_layer_norm(struct qr_queue *q, const struct qr_layer_norm_args *a);
void qr_cuda_unit(struct qr_queue *q, const struct qr_unit_args *a);
void qr_cuda_softcap(struct qr_queue *q, const struct qr_softcap_args *a);

/* sample.cu */
void qr_cuda_sample(struct qr_queue *q, const struct qr_sample_args *a);

/* linear.cu */
void qr_cuda_linear(struct qr_queue *q, const struct qr_linear_args *a);
void qr_cuda_linear_prepare(struct qr_queue *q, const struct qr_linear_args *a, int32_t rows_max); /* qr_backend_prepare */
void qr_cuda_chain(struct qr_queue *q, const struct qr_chain_args *a);
size_t qr_cuda_linear_packed_bytes(enum qr_dtype to, int64_t n_out, int64_t n_in);
void qr_cuda_linear_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows, enum qr_dtype from,
                         int64_t n_rows);

/* coded.c */
void qr_cuda_linear_pack_coded(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_source *rows,
                               int64_t n_rows);

/* adapt.cu */
void qr_cuda_adapt(struct qr_queue *q, const struct qr_adapt_args *a);

/* experts.cu */
void qr_cuda_route(struct qr_queue *q, const struct qr_route_args *a);
void qr_cuda_experts(struct qr_queue *q, const struct qr_experts_args *a);

/* heads.cu */
void qr_cuda_head_norm(struct qr_queue *q, const struct qr_head_norm_args *a);
void qr_cuda_rope_table(struct qr_queue *q, const struct qr_rope_table_args *a);
void qr_cuda_rope(struct qr_queue *q, const struct qr_rope_args *a);
void qr_cuda_kv_write(struct qr_queue *q, const struct qr_kv_write_args *a);
void qr_cuda_qkv(struct qr_queue *q, const struct qr_qkv_args *a);
void qr_cuda_kv_copy(struct qr_queue *q, const struct qr_kv_copy_args *a);

/* linear_back.cu */
void qr_cuda_linear_dx(struct qr_queue *q, const struct qr_linear_dx_args *a);
void qr_cuda_linear_dw(struct qr_queue *q, const struct qr_linear_dw_args *a);

/* attention.cu */
void qr_cuda_attention(struct qr_queue *q, const struct qr_attention_args *a);

/* attention_back.cu */
void qr_cuda_attention_back(struct qr_queue *q, const struct qr_attention_back_args *a);

/* back_rows.cu */
void qr_cuda_rms_norm_back(struct qr_queue *q, const struct qr_norm_back_args *a);
void qr_cuda_head_norm_back(struct qr_queue *q, const struct qr_head_norm_back_args *a);
void qr_cuda_rope_back(struct qr_queue *q, const struct qr_rope_args *a);
void qr_cuda_glu_back(struct qr_queue *q, const struct qr_glu_back_args *a);
void qr_cuda_embed_back(struct qr_queue *q, const struct qr_embed_back_args *a);
void qr_cuda_scatter_rows(struct qr_queue *q, const struct qr_scatter_args *a);
void qr_cuda_cross_entropy(struct qr_queue *q, const struct qr_cross_entropy_args *a);

/* optim.cu */
void qr_cuda_adamw(struct qr_queue *q, const struct qr_adamw_args *a);
void qr_cuda_sum_squares(struct qr_queue *q, const struct qr_sum_squares_args *a);
void qr_cuda_momentum(struct qr_queue *q, const struct qr_momentum_args *a);
void qr_cuda_turn(struct qr_queue *q, const struct qr_turn_args *a);
void qr_cuda_scale(struct qr_queue *q, const struct qr_scale_args *a);
void qr_cuda_move_by(struct qr_queue *q, const struct qr_move_args *a);

#ifdef __cplusplus
}
#endif
#endif
