/* ref.h - the plainest form of every kernel: one loop nest per formula, one thread, the oracle of all others.
 *
 * Compiled twice. In the library `real` is float. Tests compile the same files with -DQR_REAL=double (see tests/kernels/oracle.h): then
 * activations (x, out, delta, q, k, v, cos_sin, gate_up, lse) are arrays of double behind the same pointers, while weights, norm
 * weights, biases and the cache keep their types, and roundings to bf16 that kernels.h demands still happen.
 */
#ifndef QR_KERNELS_REF_H
#define QR_KERNELS_REF_H

#include "base/half.h"
#include "kernels/kernels.h"

#ifdef QR_REAL
typedef QR_REAL real;
#define QR_REF(name) qr_ref_f64_##name
#define QR_REF_TABLE_NAME "ref-f64"
#else
typedef float real;
#define QR_REF(name) qr_ref_f32_##name
#define QR_REF_TABLE_NAME "ref"
#endif

extern const struct qr_kernels QR_REF(kernels);

void QR_REF(linear)(struct qr_queue *q, const struct qr_linear_args *a);
size_t QR_REF(linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in);
void QR_REF(linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                         const void *rows, enum qr_dtype from, int64_t n_rows);
void QR_REF(rms_norm)(struct qr_queue *q, const struct qr_norm_args *a);
void QR_REF(head_norm)(struct qr_queue *q, const struct qr_head_norm_args *a);
void QR_REF(residual_add)(struct qr_queue *q, const struct qr_add_args *a);
void QR_REF(embed)(struct qr_queue *q, const struct qr_embed_args *a);
void QR_REF(rope_table)(struct qr_queue *q, const struct qr_rope_table_args *a);
void QR_REF(rope)(struct qr_queue *q, const struct qr_rope_args *a);
void QR_REF(kv_write)(struct qr_queue *q, const struct qr_kv_write_args *a);
void QR_REF(kv_copy)(struct qr_queue *q, const struct qr_kv_copy_args *a);
void QR_REF(attention)(struct qr_queue *q, const struct qr_attention_args *a);
void QR_REF(glu)(struct qr_queue *q, const struct qr_glu_args *a);
void QR_REF(gather_rows)(struct qr_queue *q, const struct qr_gather_args *a);

/* What an activation becomes when it meets numbers of type t. */
static inline real qr_ref_meet(real x, enum qr_dtype t)
{
    return t == QR_BF16 ? (real)qr_bf16_to_f32(qr_f32_to_bf16((float)x)) : x;
}

/* Element i of an array of type t. */
static inline float qr_ref_load(const void *p, enum qr_dtype t, size_t i)
{
    if (t == QR_F32)
        return ((const float *)p)[i];
    return t == QR_BF16 ? qr_bf16_to_f32(((const uint16_t *)p)[i]) : qr_f16_to_f32(((const uint16_t *)p)[i]);
}

static inline void qr_ref_store(void *p, enum qr_dtype t, size_t i, float x)
{
    if (t == QR_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = qr_f32_to_bf16(x);
}

#endif
