/* isa.h - what the instruction-set levels have in common. Each file of this folder is compiled once per level with QR_ISA=<level>;
 * a name shared between its files goes through QR_ISA_NAME, everything else is static.
 */
#ifndef QR_KERNELS_CPU_ISA_H
#define QR_KERNELS_CPU_ISA_H

#include "kernels/kernels.h"

extern const struct qr_kernels qr_avx2_kernels;
extern const struct qr_kernels qr_avx512_kernels;

/* Scratch of one worker: a piece of keys and of values as f32, queries, scores and sums of a query tile (attention.c). */
#define QR_WORKER_SCRATCH_BYTES ((size_t)1 << 20)

#ifdef QR_ISA
#define QR_ISA_PASTE(isa, name) qr_##isa##_##name
#define QR_ISA_EXPAND(isa, name) QR_ISA_PASTE(isa, name)
#define QR_ISA_NAME(name) QR_ISA_EXPAND(QR_ISA, name)
#define QR_ISA_TEXT_OF(isa) #isa
#define QR_ISA_TEXT(isa) QR_ISA_TEXT_OF(isa)

void QR_ISA_NAME(linear)(struct qr_queue *q, const struct qr_linear_args *a);
size_t QR_ISA_NAME(linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in);
void QR_ISA_NAME(linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                              const void *rows, enum qr_dtype from, int64_t n_rows);
void QR_ISA_NAME(rms_norm)(struct qr_queue *q, const struct qr_norm_args *a);
void QR_ISA_NAME(head_norm)(struct qr_queue *q, const struct qr_head_norm_args *a);
void QR_ISA_NAME(residual_add)(struct qr_queue *q, const struct qr_add_args *a);
void QR_ISA_NAME(embed)(struct qr_queue *q, const struct qr_embed_args *a);
void QR_ISA_NAME(rope_table)(struct qr_queue *q, const struct qr_rope_table_args *a);
void QR_ISA_NAME(rope)(struct qr_queue *q, const struct qr_rope_args *a);
void QR_ISA_NAME(kv_write)(struct qr_queue *q, const struct qr_kv_write_args *a);
void QR_ISA_NAME(kv_copy)(struct qr_queue *q, const struct qr_kv_copy_args *a);
void QR_ISA_NAME(attention)(struct qr_queue *q, const struct qr_attention_args *a);
void QR_ISA_NAME(glu)(struct qr_queue *q, const struct qr_glu_args *a);
void QR_ISA_NAME(gather_rows)(struct qr_queue *q, const struct qr_gather_args *a);
#endif

#endif
