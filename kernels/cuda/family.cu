/* What only some families of models have: LayerNorm, activations without gates, capped logits. A launch each, bound by bandwidth; a row is read from memory
 * once, and twice more from where it was cached, which keeps the number of kernels small. */
#include "kernels/cuda/queue.h"
#include "kernels/cuda/tiles.h"

#define NORM_WARPS 8
#define NORM_THREADS (NORM_WARPS * QR_WARP)
#define THREADS QR_TILE_THREADS
#define AT_ONCE QR_TILE_FOURS

/* ---- layer_norm ---- */

/* v - mean, zeros from number n of the row on. */
QR_DEVICE float4 minus4(float4 v, float mean, int32_t i, int32_t n)
{
    return make_float4(v.x - mean, i + 1 < n ? v.y - mean : 0, i + 2 < n ? v.z - mean : 0, i + 3 < n ? v.w - mean : 0);
}

/* A block a row. */
template <bool VEC> QR_KERNEL(NORM_THREADS) layer_norm(struct qr_layer_norm_args a)
{
    QR_SHARED_ARRAY(float, partial, 2 * NORM_WARPS);
    const int32_t first = 4 * (int32_t)threadIdx.x, step = 4 * NORM_THREADS, n = a.n_cols;
    const float *x = a.x + (int64_t)blockIdx.x * a.x_stride;
    float *out = a.out + (int64_t)blockIdx.x * a.out_stride;
    float sum = 0, squares = 0;
    for (int32_t i = first; i < n; i += step) {
        const float4 v = qr_load4<VEC>(x, i, n);
        sum += (v.x + v.y) + (v.z + v.w);
    }
    const float mean = qr_block_sum<NORM_WARPS>(sum, partial) / (float)n;
    for (int32_t i = first; i < n; i += step) {
        const float4 d = minus4(qr_load4<VEC>(x, i, n), mean, i, n);
        squares = qr_dot4(squares, d, d);
    }
    const float r = 1.0f / sqrtf(qr_block_sum<NORM_WARPS>(squares, partial + NORM_WARPS) / (float)n + a.eps);
    for (int32_t i = first; i < n; i += step) {
        const float4 y = qr_mul4(qr_scale4(minus4(qr_load4<VEC>(x, i, n), mean, i, n), r), qr_load4<VEC>(a.w, i, n));
        qr_store4<VEC>(out, i, n, a.bias ? qr_add4(y, qr_load4<VEC>(a.bias, i, n)) : y);
    }
}

extern "C" void qr_cuda_layer_norm(struct qr_queue *q, const struct qr_layer_norm_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL && a->out != NULL && a->w != NULL);
    QR_ASSERT(a->n_cols > 0 && a->n_rows >= 0);
    if (a->n_rows == 0)
        return;
    if (qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->out) | QR_ADDRESS(a->w) | QR_ADDRESS(a->bias), a->n_cols | a->x_stride | a->out_stride))
        QR_LAUNCH(layer_norm<true>, (unsigned int)a->n_rows, NORM_THREADS, 0, q, *a);
    else
        QR_LAUNCH(layer_norm<false>, (unsigned int)a->n_rows, NORM_THREADS, 0, q, *a);
}

/* ---- unit, softcap: every number by itself ---- */

struct bend {
    float *x;
    int64_t stride;
    int32_t n_rows, n_cols;
    float cap;
};

enum { BEND_SILU = QR_ACT_SILU, BEND_GELU = QR_ACT_GELU_TANH, BEND_CAP };

template <int HOW> QR_DEVICE float bent(float x, float cap)
{
    if (HOW == BEND_CAP)
        return cap * tanhf(x / cap);
    return qr_activate<(enum qr_act)(HOW == BEND_CAP ? BEND_SILU : HOW)>(x);
}

template <bool VEC, int HOW> QR_KERNEL(THREADS) bend(struct bend a, struct qr_tiles t)
{
    int32_t col;
    const int64_t row = qr_tile_row(t, &col);
    const int32_t n = row < a.n_rows ? a.n_cols : 0, step = 4 * t.lanes;
    float *x = a.x + row * a.stride;
    float4 v[AT_ONCE];
    for (int j = 0; j < AT_ONCE; j++)
        v[j] = qr_load4<VEC>(x, col + j * step, n);
    for (int j = 0; j < AT_ONCE; j++)
        qr_store4<VEC>(x, col + j * step, n,
                       make_float4(bent<HOW>(v[j].x, a.cap), bent<HOW>(v[j].y, a.cap), bent<HOW>(v[j].z, a.cap), bent<HOW>(v[j].w, a.cap)));
}

template <int HOW> static void launch_bend(struct qr_queue *q, const struct bend *a)
{
    const struct qr_tiles t = qr_tiles_of(a->n_rows, a->n_cols);
    if (qr_in_fours(QR_ADDRESS(a->x), a->n_cols | a->stride))
        QR_LAUNCH((bend<true, HOW>), qr_tile_blocks(t), THREADS, 0, q, *a, t);
    else
        QR_LAUNCH((bend<false, HOW>), qr_tile_blocks(t), THREADS, 0, q, *a, t);
}

extern "C" void qr_cuda_unit(struct qr_queue *q, const struct qr_unit_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL);
    QR_ASSERT((a->act == QR_ACT_SILU || a->act == QR_ACT_GELU_TANH) && a->n_cols > 0);
    const struct bend b = {a->x, a->stride, a->n_rows, a->n_cols, 0};
    if (a->n_rows == 0)
        return;
    if (a->act == QR_ACT_SILU)
        launch_bend<BEND_SILU>(q, &b);
    else
        launch_bend<BEND_GELU>(q, &b);
}

/* sample reads logits here, so nothing is said of stretches. */
extern "C" void qr_cuda_softcap(struct qr_queue *q, const struct qr_softcap_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL && a->stretches == NULL);
    QR_ASSERT(a->cap > 0 && a->n_cols > 0);
    const struct bend b = {a->x, a->stride, a->n_rows, a->n_cols, a->cap};
    if (a->n_rows > 0)
        launch_bend<BEND_CAP>(q, &b);
}
