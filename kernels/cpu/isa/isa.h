/* isa.h - what the instruction-set levels have in common. Each file of this folder is compiled once per level with QR_ISA=<level>;
 * a name shared between its files goes through QR_ISA_NAME, everything else is static.
 */
#ifndef QR_KERNELS_CPU_ISA_H
#define QR_KERNELS_CPU_ISA_H

#include "kernels/kernels.h"

/* Scratch of one worker: a piece of keys and of values as f32, queries, scores and sums of a query tile (attention.c); sums of a product
 * that wait (amx/linear.c). */
#define QR_WORKER_SCRATCH_BYTES ((size_t)1408 << 10)

typedef void qr_linear_fn(struct qr_queue *q, const struct qr_linear_args *a);

#define QR_ISA_DECLARE(isa)                                                                                                          \
    extern const struct qr_kernels qr_##isa##_kernels;                                                                               \
    extern const struct qr_stored_ops qr_##isa##_stored_ops;                                                                         \
    void qr_##isa##_linear(struct qr_queue *q, const struct qr_linear_args *a);                                                      \
    size_t qr_##isa##_linear_packed_bytes(enum qr_dtype to, int64_t n_out, int64_t n_in);                                            \
    void qr_##isa##_linear_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,          \
                                const void *rows, enum qr_dtype from, int64_t n_rows);                                               \
    void qr_##isa##_embed_packed(struct qr_queue *q, const struct qr_embed_args *a);                                                 \
    void qr_##isa##_glu_apart(struct qr_queue *q, const struct qr_linear_args *a, qr_linear_fn *plain);                              \
    void qr_##isa##_rms_norm(struct qr_queue *q, const struct qr_norm_args *a);                                                      \
    void qr_##isa##_head_norm(struct qr_queue *q, const struct qr_head_norm_args *a);                                                \
    void qr_##isa##_residual_add(struct qr_queue *q, const struct qr_add_args *a);                                                   \
    void qr_##isa##_embed(struct qr_queue *q, const struct qr_embed_args *a);                                                        \
    void qr_##isa##_rope_table(struct qr_queue *q, const struct qr_rope_table_args *a);                                              \
    void qr_##isa##_rope(struct qr_queue *q, const struct qr_rope_args *a);                                                          \
    void qr_##isa##_kv_write(struct qr_queue *q, const struct qr_kv_write_args *a);                                                  \
    void qr_##isa##_qkv(struct qr_queue *q, const struct qr_qkv_args *a);                                                             \
    void qr_##isa##_qkv_rows(const struct qr_qkv_args *a, int64_t first, int64_t end);                                               \
    void qr_##isa##_chain(struct qr_queue *q, const struct qr_chain_args *a);                                                        \
    void qr_##isa##_kv_copy(struct qr_queue *q, const struct qr_kv_copy_args *a);                                                    \
    void qr_##isa##_attention(struct qr_queue *q, const struct qr_attention_args *a);                                                \
    void qr_##isa##_glu(struct qr_queue *q, const struct qr_glu_args *a);                                                            \
    void qr_##isa##_gather_rows(struct qr_queue *q, const struct qr_gather_args *a);                                                 \
    void qr_##isa##_adapt(struct qr_queue *q, const struct qr_adapt_args *a);                                                        \
    void qr_##isa##_route(struct qr_queue *q, const struct qr_route_args *a);                                                        \
    void qr_##isa##_experts(struct qr_queue *q, const struct qr_experts_args *a);                                                    \
    void qr_##isa##_layer_norm(struct qr_queue *q, const struct qr_layer_norm_args *a);                                              \
    void qr_##isa##_unit(struct qr_queue *q, const struct qr_unit_args *a);                                                          \
    void qr_##isa##_softcap(struct qr_queue *q, const struct qr_softcap_args *a);                                                    \
    void qr_##isa##_experts_by(struct qr_queue *q, const struct qr_experts_args *a, qr_linear_fn *product);

void qr_cpu_pick_columns(struct qr_queue *q, const struct qr_pick_args *a); /* of every level (kernels/cpu/pick.c) */

QR_ISA_DECLARE(avx2)
QR_ISA_DECLARE(avx512)
QR_ISA_DECLARE(amx) /* those in kernels/cpu/amx/; its table takes the others from avx512 */
int64_t qr_amx_passing_bytes(const struct qr_linear_args *a, const struct qr_weight *next);

#ifdef QR_ISA
#define QR_ISA_PASTE(isa, name) qr_##isa##_##name
#define QR_ISA_EXPAND(isa, name) QR_ISA_PASTE(isa, name)
#define QR_ISA_NAME(name) QR_ISA_EXPAND(QR_ISA, name)
#define QR_ISA_TEXT_OF(isa) #isa
#define QR_ISA_TEXT(isa) QR_ISA_TEXT_OF(isa)
#endif

#endif
