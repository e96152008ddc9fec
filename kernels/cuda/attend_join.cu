/* Joins the pieces of a context that several blocks had, whatever the cache holds, by the function that a block uses by itself. */
#include "kernels/cuda/attend.h"

#define JOIN_THREADS 128
#define AT_ONCE 4 /* pieces that are loaded together: with few rows nothing else hides the latency of memory */

/* Joins the pieces of rows whose context several blocks had: a warp a row. */
template <int D> QR_KERNEL(JOIN_THREADS) join(struct attention a, int32_t height)
{
    struct item it;
    qr_grid_next();
    qr_grid_wait();
    if (!find_item(&it, a, height, (int32_t)blockIdx.x, (int32_t)blockIdx.y, true))
        return;
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
    for (int32_t row = (int32_t)threadIdx.x / QR_WARP; row < height; row += JOIN_THREADS / QR_WARP) {
        const int32_t packed = it.tile * height + row;
        if (packed >= it.e.packed)
            break;
        float top = -INFINITY, sum = 0, out[D / 32] = {};
        const int32_t last = (it.end - 1) / PIECE;
#pragma unroll 1
        for (int32_t first = it.begin / PIECE; first <= last; first += AT_ONCE) {
            float piece_top[AT_ONCE], piece_sum[AT_ONCE], fresh[AT_ONCE][D / 32];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) { /* behind the last one: the last once more, and not joined */
                const float *x = partial_of(a, it, min(first + u, last), D);
                piece_top[u] = x[a.kept * D + row];
                piece_sum[u] = x[a.kept * (D + 1) + row];
#pragma unroll
                for (int i = 0; i < D / 32; i++)
                    fresh[u][i] = x[row * D + i * 32 + lane];
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                float scale_old, scale_fresh;
                if (first + u > last)
                    break;
                join_piece(&top, &sum, piece_top[u], piece_sum[u], &scale_old, &scale_fresh);
#pragma unroll
                for (int i = 0; i < D / 32; i++)
                    out[i] = fmaf(fresh[u][i], scale_fresh, out[i] * scale_old);
            }
        }
        float *to = out_of(a, it, packed);
        const float old = join_sink(a, head_of(a, it, packed), &top, &sum), inverse = old / sum;
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            if (i * 32 + lane < a.kv.head_dim)
                to[i * 32 + lane] = out[i] * inverse;
        if (lane == 0)
            put_lse(a, it, packed, top, sum);
    }
}

void attention_join(struct qr_queue *q, const struct attention *a, int32_t d, int32_t height, int64_t several)
{
    QR_ASSERT(q != NULL && a != NULL);
    QR_ASSERT(several >= 0 && (d == 64 || d == 128 || d == 256));
    const dim3 grid((unsigned int)several, (unsigned int)a->kv.n_kv_heads);
    if (several == 0)
        return;
    if (d == 64)
        QR_LAUNCH_NEXT(join<64>, grid, JOIN_THREADS, 0, q, *a, height);
    else if (d == 128)
        QR_LAUNCH_NEXT(join<128>, grid, JOIN_THREADS, 0, q, *a, height);
    else
        QR_LAUNCH_NEXT(join<256>, grid, JOIN_THREADS, 0, q, *a, height);
}
