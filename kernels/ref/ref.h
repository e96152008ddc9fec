/* ref.h - the plainest form of every kernel: one loop nest per formula, one thread, the oracle of all others.
 *
 * Compiled twice. In the library `real` is float. Tests compile the same files with -DQR_REAL=double (see tests/kernels/oracle.c): then
 * activations (x, out, delta, q, k, v, cos_sin, gate_up, lse) are arrays of double behind the same pointers, while weights, norm
 * weights, biases and the cache keep their types, and roundings to bf16 that kernels.h demands still happen. Weights and caches may then be
 * f64 as well; with -DQR_REF_PARAM=double so are norm weights, biases, parameters and their gradients, and nothing is f32 any more.
 */
#ifndef QR_KERNELS_REF_H
#define QR_KERNELS_REF_H

#include <math.h>

#include "base/e4m3.h"
#include "base/half.h"
#include "kernels/backward.h"
#include "kernels/kernels.h"

#ifdef QR_REAL
typedef QR_REAL real;
#define QR_REF_TABLE_NAME "ref-f64"
#else
typedef float real;
#define QR_REF_TABLE_NAME "ref"
#endif
#ifdef QR_REF_PARAM
typedef QR_REF_PARAM param;
#define QR_REF(name) qr_ref_wide_##name
#elif defined(QR_REAL)
typedef float param;
#define QR_REF(name) qr_ref_f64_##name
#else
typedef float param;
#define QR_REF(name) qr_ref_f32_##name
#endif

extern const struct qr_kernels QR_REF(kernels);
extern const struct qr_backward QR_REF(backward);

void QR_REF(linear)(struct qr_queue *q, const struct qr_linear_args *a);
size_t QR_REF(linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in);
void QR_REF(linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                         const void *rows, enum qr_dtype from, int64_t n_rows);
void QR_REF(linear_pack_coded)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                               const struct qr_coded_source *rows, int64_t n_rows);
void QR_REF(rms_norm)(struct qr_queue *q, const struct qr_norm_args *a);
void QR_REF(head_norm)(struct qr_queue *q, const struct qr_head_norm_args *a);
void QR_REF(residual_add)(struct qr_queue *q, const struct qr_add_args *a);
void QR_REF(embed)(struct qr_queue *q, const struct qr_embed_args *a);
void QR_REF(rope_table)(struct qr_queue *q, const struct qr_rope_table_args *a);
void QR_REF(rope)(struct qr_queue *q, const struct qr_rope_args *a);
void QR_REF(kv_write)(struct qr_queue *q, const struct qr_kv_write_args *a);
void QR_REF(qkv)(struct qr_queue *q, const struct qr_qkv_args *a);
void QR_REF(chain)(struct qr_queue *q, const struct qr_chain_args *a);
void QR_REF(kv_copy)(struct qr_queue *q, const struct qr_kv_copy_args *a);
void QR_REF(attention)(struct qr_queue *q, const struct qr_attention_args *a);
void QR_REF(glu)(struct qr_queue *q, const struct qr_glu_args *a);
void QR_REF(gather_rows)(struct qr_queue *q, const struct qr_gather_args *a);
void QR_REF(pick_columns)(struct qr_queue *q, const struct qr_pick_args *a);
void QR_REF(adapt)(struct qr_queue *q, const struct qr_adapt_args *a);
void QR_REF(route)(struct qr_queue *q, const struct qr_route_args *a);
void QR_REF(experts)(struct qr_queue *q, const struct qr_experts_args *a);
void QR_REF(layer_norm)(struct qr_queue *q, const struct qr_layer_norm_args *a);
void QR_REF(unit)(struct qr_queue *q, const struct qr_unit_args *a);
void QR_REF(softcap)(struct qr_queue *q, const struct qr_softcap_args *a);
void QR_REF(stretches)(const struct qr_stretches *s, int64_t row, const real *out, int32_t n_out); /* those of one row */

void QR_REF(linear_dx)(struct qr_queue *q, const struct qr_linear_dx_args *a);
void QR_REF(linear_dw)(struct qr_queue *q, const struct qr_linear_dw_args *a);
void QR_REF(rms_norm_back)(struct qr_queue *q, const struct qr_norm_back_args *a);
void QR_REF(head_norm_back)(struct qr_queue *q, const struct qr_head_norm_back_args *a);
void QR_REF(rope_back)(struct qr_queue *q, const struct qr_rope_args *a);
void QR_REF(attention_back)(struct qr_queue *q, const struct qr_attention_back_args *a);
void QR_REF(glu_back)(struct qr_queue *q, const struct qr_glu_back_args *a);
void QR_REF(embed_back)(struct qr_queue *q, const struct qr_embed_back_args *a);
void QR_REF(scatter_rows)(struct qr_queue *q, const struct qr_scatter_args *a);
void QR_REF(cross_entropy)(struct qr_queue *q, const struct qr_cross_entropy_args *a);
void QR_REF(adamw)(struct qr_queue *q, const struct qr_adamw_args *a);
void QR_REF(sum_squares)(struct qr_queue *q, const struct qr_sum_squares_args *a);
void QR_REF(momentum)(struct qr_queue *q, const struct qr_momentum_args *a);
void QR_REF(turn)(struct qr_queue *q, const struct qr_turn_args *a);
void QR_REF(scale)(struct qr_queue *q, const struct qr_scale_args *a);
void QR_REF(move_by)(struct qr_queue *q, const struct qr_move_args *a);

/* What packed numbers of a type are here. */
static inline enum qr_dtype qr_ref_packed(enum qr_dtype t)
{
    return qr_dtype_is_coded(t) ? QR_BF16 : t;
}

/* What an activation becomes when it meets numbers of type t; E4M3: keys and values, which devices alone have. */
static inline real qr_ref_meet(real x, enum qr_dtype t)
{
    return t == QR_BF16 || t == QR_E4M3 ? (real)qr_bf16_to_f32(qr_f32_to_bf16((float)x)) : x;
}

/* sqrt(mean(x^2) + eps) of a row. */
static inline real qr_ref_rms(const real *x, int32_t n, float eps)
{
    real sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return (real)sqrt((double)(sum / (real)n + (real)eps));
}

static inline real qr_ref_act(real x, enum qr_act kind)
{
    if (kind == QR_ACT_SILU)
        return x / (1 + (real)exp(-(double)x));
    const double sqrt_2_over_pi = 0.79788456080286535588;
    return (real)0.5 * x * (1 + (real)tanh(sqrt_2_over_pi * ((double)x + 0.044715 * (double)x * (double)x * (double)x)));
}

/* What a gated unit makes of a gate and its up. */
static inline real qr_ref_glu(real gate, real up, enum qr_act kind, const struct qr_clamp *c)
{
    if (kind != QR_ACT_CLAMPED)
        return qr_ref_act(gate, kind) * up;
    const real limit = (real)c->limit, g = gate > limit ? limit : gate;
    const real u = up > limit ? limit : up < -limit ? -limit : up;
    return g / (1 + (real)exp(-(double)((real)c->alpha * g))) * (u + 1);
}

/* Element i of an array of type t. */
static inline real qr_ref_load(const void *p, enum qr_dtype t, size_t i)
{
    if (t == QR_F64)
        return (real)((const double *)p)[i];
    if (t == QR_F32)
        return ((const float *)p)[i];
    if (t == QR_I8)
        return (float)((const int8_t *)p)[i];
    if (t == QR_E4M3)
        return qr_e4m3_to_f32(((const uint8_t *)p)[i]);
    return t == QR_BF16 ? qr_bf16_to_f32(((const uint16_t *)p)[i]) : qr_f16_to_f32(((const uint16_t *)p)[i]);
}

/* Elements [i, i + n) of it. The type is tested once: of a cache each row is read by every query. */
static inline void qr_ref_load_row(real *out, const void *p, enum qr_dtype t, size_t i, int32_t n)
{
    if (t == QR_F64)
        for (int32_t j = 0; j < n; j++)
            out[j] = (real)((const double *)p)[i + (size_t)j];
    else if (t == QR_F32)
        for (int32_t j = 0; j < n; j++)
            out[j] = ((const float *)p)[i + (size_t)j];
    else if (t == QR_BF16)
        for (int32_t j = 0; j < n; j++)
            out[j] = qr_bf16_to_f32(((const uint16_t *)p)[i + (size_t)j]);
    else
        for (int32_t j = 0; j < n; j++)
            out[j] = qr_ref_load(p, t, i + (size_t)j);
}

/* What a row of activations becomes when it meets numbers of type t. */
static inline void qr_ref_meet_row(real *out, const real *x, int32_t n, enum qr_dtype t)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = qr_ref_meet(x[i], t);
}

static inline void qr_ref_store(void *p, enum qr_dtype t, size_t i, real x)
{
    if (t == QR_F64)
        ((double *)p)[i] = (double)x;
    else if (t == QR_F32)
        ((float *)p)[i] = (float)x;
    else
        ((uint16_t *)p)[i] = qr_f32_to_bf16((float)x);
}

/* Attention's scale. An argument holds it in f32; where everything is f64, the usual one is meant as the number that it is. */
static inline real qr_ref_scale(float scale, const struct qr_kv_view *kv)
{
    double usual = 1 / sqrt((double)kv->head_dim);
    return kv->dtype == QR_F64 && scale == (float)usual ? (real)usual : (real)scale;
}

#endif
