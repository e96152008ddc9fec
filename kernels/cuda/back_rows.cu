/* Gradients of the kernels of rows.cu and heads.cu that are not the same kernel backwards, and the loss. No atomics; sums over rows in an order that
 * depends on the rows' numbers alone (backward.h). */
#include "kernels/cuda/queue.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda/widths.h"

/* ---- norms ----
 *
 * A warp or block walks down GROUP rows and keeps what the weights' gradient gets from them in registers, so x and dy are read once. It goes to scratch
 * [groups, n_cols]; a second kernel adds GROUPS groups at a time from 0, and these sums to the gradient, one after the other. */

#define GROUP 16
#define GROUPS 16

struct norm_back {
    float *dx, *partial;
    const float *dy, *x, *w;
    int64_t dx_stride, dy_stride, x_stride, n_rows;
    int32_t n_heads, n_cols; /* row r is head r % n_heads of row r / n_heads; heads lie n_cols apart */
    float eps;
};

QR_DEVICE int64_t place(int64_t row, int64_t stride, struct norm_back a)
{
    return row / a.n_heads * stride + row % a.n_heads * a.n_cols;
}

/* What dx holds already is loaded together with the row; not where a block of 1,024 has no registers for it, or rows are
 * odd. */
#define ASKS_EARLY(warps, vec) ((vec) && (warps) < 32)
#define OLD_FOURS(fours, warps, vec) (ASKS_EARLY(warps, vec) ? (fours) : 1)

/* dx of one row, and its part of dw; x, dy and w times dy are this thread's numbers. */
template <int FOURS, int WARPS, bool VEC>
QR_DEVICE void back_row(struct norm_back a, int64_t row, int32_t n, int32_t first, const float4 x[FOURS], const float4 dy[FOURS],
                        const float4 old[OLD_FOURS(FOURS, WARPS, VEC)], float r, float pull, float4 dw[FOURS])
{
    const bool EARLY = ASKS_EARLY(WARPS, VEC);
    float *dx = a.dx + place(row, a.dx_stride, a);
    for (int j = 0; j < FOURS; j++) {
        const int32_t i = first + j * QR_ROW_STEP(WARPS);
        const float4 wdy = qr_mul4(qr_load4<VEC>(a.w, i, n), dy[j]);
        const float4 add = qr_scale4(qr_add4(wdy, qr_scale4(x[j], -pull)), r), sum = qr_add4(EARLY ? old[j] : qr_load4<VEC>(dx, i, n), add);
        qr_store4<VEC>(dx, i, n, sum);
        dw[j] = qr_add4(dw[j], qr_scale4(qr_mul4(dy[j], x[j]), r));
    }
}

template <int FOURS, int WARPS, bool VEC> QR_KERNEL_CAPPED(QR_ROW_THREADS_OF(WARPS), WARPS == 32 ? 1 : 0) norm_back(struct norm_back a)
{
    QR_SHARED_ARRAY(float, squares, 32);
    QR_SHARED_ARRAY(float, dots, 32);
    const int64_t group = qr_row_of_thread<WARPS>();
    const int32_t first = qr_col_of_thread<WARPS>();
    float4 dw[FOURS];
    for (int j = 0; j < FOURS; j++)
        dw[j] = make_float4(0, 0, 0, 0);
    for (int64_t row = group * GROUP; row < (group + 1) * GROUP; row++) {
        const int32_t n = row < a.n_rows ? a.n_cols : 0; /* a block has its group's rows in step: some warps' groups may be short, or none */
        float4 x[FOURS], dy[FOURS];
        float4 old[OLD_FOURS(FOURS, WARPS, VEC)];
        float dot = 0, sum = 0;
        for (int j = 0; j < FOURS; j++) {
            x[j] = qr_load4<VEC>(a.x + place(row, a.x_stride, a), first + j * QR_ROW_STEP(WARPS), n);
            dy[j] = qr_load4<VEC>(a.dy + place(row, a.dy_stride, a), first + j * QR_ROW_STEP(WARPS), n);
        }
        for (int j = 0; ASKS_EARLY(WARPS, VEC) && j < FOURS; j++)
            old[j] = qr_load4<true>(a.dx + place(row, a.dx_stride, a), first + j * QR_ROW_STEP(WARPS), n);
        for (int j = 0; j < FOURS; j++) {
            sum = qr_dot4(sum, x[j], x[j]);
            dot = qr_dot4(dot, qr_mul4(qr_load4<VEC>(a.w, first + j * QR_ROW_STEP(WARPS), n), dy[j]), x[j]);
        }
        sum = qr_block_sum<WARPS>(sum, squares);
        dot = qr_block_sum<WARPS>(dot, dots);
        const float r = 1.0f / sqrtf(sum / (float)a.n_cols + a.eps), pull = r * r * (dot / (float)a.n_cols);
        if (n > 0)
            back_row<FOURS, WARPS, VEC>(a, row, n, first, x, dy, old, r, pull, dw);
    }
    if (group * GROUP < a.n_rows)
        for (int j = 0; j < FOURS; j++)
            qr_store4<VEC>(a.partial + group * a.n_cols, first + j * QR_ROW_STEP(WARPS), a.n_cols, dw[j]);
}

/* 32 columns a block; a warp adds GROUPS groups at a time, the first warp adds the warps' sums in order: how many warps there are does not show. */
QR_KERNEL(1024) add_groups(float *dw, const float *partial, int64_t n_groups, int32_t n_cols)
{
    QR_SHARED_ARRAY(float, sums, 32 * 33);
    const int32_t lane = threadIdx.x % QR_WARP, warp = threadIdx.x / QR_WARP, col = (int32_t)blockIdx.x * QR_WARP + lane;
    const int32_t n_warps = blockDim.x / QR_WARP;
    const bool inside = col < n_cols;
    float total = warp == 0 && inside ? dw[col] : 0;
    for (int64_t base = 0; base < n_groups; base += n_warps * GROUPS) {
        const int64_t begin = base + warp * GROUPS;
        float sum = 0;
        for (int64_t g = begin; g < begin + GROUPS; g++)
            sum += g < n_groups && inside ? partial[g * n_cols + col] : 0;
        sums[warp * 33 + lane] = sum;
        __syncthreads();
        for (int w = 0; warp == 0 && w < n_warps && base + w * GROUPS < n_groups; w++)
            total += sums[w * 33 + lane];
        __syncthreads();
    }
    if (warp == 0 && inside)
        dw[col] = total;
}

static void launch_norm_back(struct qr_queue *q, struct norm_back a, float *dw, bool vec)
{
    const int64_t n_groups = (a.n_rows + GROUP - 1) / GROUP;
    QR_ASSERT(a.n_cols > 0 && a.n_cols <= QR_ROW_COLS_MAX);
    QR_ASSERT((size_t)n_groups * (size_t)a.n_cols * sizeof(float) <= q->scratch_bytes);
    if (a.n_rows == 0)
        return;
    a.partial = (float *)q->scratch;
#define LAUNCH(fours, warps, fast) QR_LAUNCH((norm_back<fours, warps, fast>), qr_row_blocks(n_groups, warps), QR_ROW_THREADS_OF(warps), 0, q, a)
#define LAUNCH_FOURS(fours, warps) LAUNCH(fours, warps, true)
    QR_FOR_ROWS(a.n_cols, vec, LAUNCH);
#undef LAUNCH_FOURS
#undef LAUNCH
    const unsigned int sums = qr_blocks(n_groups, GROUPS), warps_used = sums < 32 ? sums : 32;
    QR_LAUNCH(add_groups, qr_blocks(a.n_cols, QR_WARP), warps_used * QR_WARP, 0, q, dw, a.partial, n_groups, a.n_cols);
}

extern "C" void qr_cuda_rms_norm_back(struct qr_queue *q, const struct qr_norm_back_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->dx != NULL && a->dw != NULL);
    QR_ASSERT(a->n_cols > 0);
    const struct norm_back k = {a->dx, NULL, a->dy, a->x, a->w, a->dx_stride, a->dy_stride, a->x_stride, a->n_rows, 1, a->n_cols, a->eps};
    const bool vec = qr_in_fours(QR_ADDRESS(a->dx) | QR_ADDRESS(a->dy) | QR_ADDRESS(a->x) | QR_ADDRESS(a->w),
                                 a->n_cols | a->dx_stride | a->dy_stride | a->x_stride);
    launch_norm_back(q, k, a->dw, vec);
}

extern "C" void qr_cuda_head_norm_back(struct qr_queue *q, const struct qr_head_norm_back_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->dx != NULL && a->dw != NULL);
    QR_ASSERT(a->head_dim > 0 && a->n_heads > 0);
    const struct norm_back k = {a->dx, NULL, a->dy, a->x, a->w, a->dx_stride, a->dy_stride, a->x_stride,
                                (int64_t)a->n_rows * a->n_heads, a->n_heads, a->head_dim, a->eps};
    const bool vec = qr_in_fours(QR_ADDRESS(a->dx) | QR_ADDRESS(a->dy) | QR_ADDRESS(a->x) | QR_ADDRESS(a->w),
                                 a->head_dim | a->dx_stride | a->dy_stride | a->x_stride);
    launch_norm_back(q, k, a->dw, vec);
}

/* ---- glu ---- */

template <enum qr_act ACT> QR_DEVICE void back_one(float dout, float gate, float up, float *dgate, float *dup)
{
    float slope;
    const float y = qr_activate_slope<ACT>(gate, &slope);
    *dgate += dout * up * slope;
    *dup += dout * y;
}

template <bool VEC, enum qr_act ACT> QR_KERNEL(QR_TILE_THREADS) glu_back(struct qr_glu_back_args a, struct qr_tiles t)
{
    int32_t col;
    const int64_t row = qr_tile_row(t, &col);
    const int32_t n = row < a.n_rows ? a.n_cols : 0, n_old = a.fresh ? 0 : n;
    const float *gate = a.gate_up + row * a.gate_up_stride, *up = gate + a.n_cols, *dout = a.dout + row * a.dout_stride;
    float *dgate = a.dgate_up + row * a.dgate_up_stride, *dup = dgate + a.n_cols;
    for (int j = 0; j < QR_TILE_FOURS; j++) { /* five float4 a turn are enough in flight */
        const int32_t i = col + j * 4 * t.lanes;
        const float4 g = qr_load4<VEC>(gate, i, n), u = qr_load4<VEC>(up, i, n), d = qr_load4<VEC>(dout, i, n);
        float4 dg = qr_load4<VEC>(dgate, i, n_old), du = qr_load4<VEC>(dup, i, n_old);
        back_one<ACT>(d.x, g.x, u.x, &dg.x, &du.x);
        back_one<ACT>(d.y, g.y, u.y, &dg.y, &du.y);
        back_one<ACT>(d.z, g.z, u.z, &dg.z, &du.z);
        back_one<ACT>(d.w, g.w, u.w, &dg.w, &du.w);
        qr_store4<VEC>(dgate, i, n, dg);
        qr_store4<VEC>(dup, i, n, du);
    }
}

extern "C" void qr_cuda_glu_back(struct qr_queue *q, const struct qr_glu_back_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->dgate_up != NULL && a->gate_up != NULL && a->dout != NULL);
    QR_ASSERT((a->act == QR_ACT_SILU || a->act == QR_ACT_GELU_TANH) && a->n_cols > 0);
    if (a->n_rows == 0)
        return;
    const struct qr_tiles t = qr_tiles_of(a->n_rows, a->n_cols);
    const bool vec = qr_in_fours(QR_ADDRESS(a->dgate_up) | QR_ADDRESS(a->gate_up) | QR_ADDRESS(a->dout),
                                 a->n_cols | a->dgate_up_stride | a->gate_up_stride | a->dout_stride);
    if (a->act == QR_ACT_SILU && vec)
        QR_LAUNCH((glu_back<true, QR_ACT_SILU>), qr_tile_blocks(t), QR_TILE_THREADS, 0, q, *a, t);
    else if (a->act == QR_ACT_SILU)
        QR_LAUNCH((glu_back<false, QR_ACT_SILU>), qr_tile_blocks(t), QR_TILE_THREADS, 0, q, *a, t);
    else if (vec)
        QR_LAUNCH((glu_back<true, QR_ACT_GELU_TANH>), qr_tile_blocks(t), QR_TILE_THREADS, 0, q, *a, t);
    else
        QR_LAUNCH((glu_back<false, QR_ACT_GELU_TANH>), qr_tile_blocks(t), QR_TILE_THREADS, 0, q, *a, t);
}

/* ---- rows that were picked: to[index[i]] += scale * from[i], in the order of i ----
 *
 * The block of the first i with some index adds all rows with that index; the other blocks find an earlier one and leave. */

#define PICK_THREADS 256
#define PICK_WARPS (PICK_THREADS / QR_WARP)

struct picked {
    float *to;
    const float *from;
    const int32_t *index;
    int64_t to_stride, from_stride;
    int32_t n, n_cols, n_to; /* n_to: rows of `to`, or 0 where it is not known */
    float scale;
};

/* Those j of base .. base + 255 with the index, in order; their number is the same for all threads. */
QR_DEVICE int32_t find_all(struct picked a, int32_t base, int32_t index, int32_t *found, int32_t *of_warp)
{
    const int32_t j = base + (int32_t)threadIdx.x, warp = threadIdx.x / QR_WARP, lane = threadIdx.x % QR_WARP;
    const bool hit = j < a.n && a.index[j] == index;
    const uint32_t hits = __ballot_sync(QR_ALL_LANES, hit);
    if (lane == 0)
        of_warp[warp] = __popc(hits);
    __syncthreads();
    int32_t before = 0, all = 0;
    for (int w = 0; w < PICK_WARPS; w++) {
        before += w < warp ? of_warp[w] : 0;
        all += of_warp[w];
    }
    if (hit)
        found[before + __popc(hits & ((1u << lane) - 1u))] = j;
    __syncthreads();
    return all;
}

template <bool VEC> QR_KERNEL(PICK_THREADS) add_picked(struct picked a)
{
    QR_SHARED_ARRAY(int32_t, found, PICK_THREADS);
    QR_SHARED_ARRAY(int32_t, of_warp, PICK_WARPS);
    const int32_t i = (int32_t)blockIdx.x, index = a.index[i];
    QR_DEVICE_ASSERT(index >= 0 && (a.n_to == 0 || index < a.n_to));
    for (int32_t end = i; end > 0; end -= PICK_THREADS) { /* the nearest ones first */
        const int32_t j = end - 1 - (int32_t)threadIdx.x;
        if (__syncthreads_or(j >= 0 && a.index[j] == index))
            return;
    }
    float *to = a.to + index * a.to_stride;
    for (int32_t base = i; base < a.n; base += PICK_THREADS) {
        const int32_t n_found = find_all(a, base, index, found, of_warp);
        for (int32_t col = 4 * (int32_t)threadIdx.x; n_found > 0 && col < a.n_cols; col += 4 * PICK_THREADS) {
            float4 sum = qr_load4<VEC>(to, col, a.n_cols);
            for (int32_t k = 0; k < n_found; k++)
                sum = qr_add4(sum, qr_scale4(qr_load4<VEC>(a.from + found[k] * a.from_stride, col, a.n_cols), a.scale));
            qr_store4<VEC>(to, col, a.n_cols, sum);
        }
        __syncthreads();
    }
}

static void launch_picked(struct qr_queue *q, struct picked a)
{
    QR_ASSERT(a.to != NULL && a.n_cols > 0);
    QR_ASSERT(a.index != NULL || a.n == 0);
    if (a.n == 0)
        return;
    if (qr_in_fours(QR_ADDRESS(a.to) | QR_ADDRESS(a.from), a.n_cols | a.to_stride | a.from_stride))
        QR_LAUNCH(add_picked<true>, (unsigned int)a.n, PICK_THREADS, 0, q, a);
    else
        QR_LAUNCH(add_picked<false>, (unsigned int)a.n, PICK_THREADS, 0, q, a);
}

extern "C" void qr_cuda_embed_back(struct qr_queue *q, const struct qr_embed_back_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
    const struct picked k = {a->dtable, a->dout, a->ids, a->n_cols, a->dout_stride, a->n_rows, a->n_cols, a->n_vocab, a->scale};
    launch_picked(q, k);
}

extern "C" void qr_cuda_scatter_rows(struct qr_queue *q, const struct qr_scatter_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
    const struct picked k = {a->dx, a->dout, a->row, a->dx_stride, a->dout_stride, a->n_rows, a->n_cols, 0, 1};
    launch_picked(q, k);
}

/* ---- cross_entropy: a block walks along its row three times, for the maximum, the sum and the gradient; the last two find it in the cache ---- */

template <int WARPS> QR_DEVICE float block_max(float x, float *partial)
{
    x = qr_warp_max(x);
    const int lane = threadIdx.x % QR_WARP;
    if (lane == 0)
        partial[threadIdx.x / QR_WARP] = x;
    __syncthreads();
    return qr_warp_max(partial[lane % WARPS]);
}

QR_DEVICE float gradient(float x, float most, float sum, float scale, bool wanted)
{
    return scale * (expf(x - most) / sum - (wanted ? 1.0f : 0.0f));
}

template <int WARPS, bool VEC> QR_KERNEL(WARPS *QR_WARP) cross_entropy(struct qr_cross_entropy_args a)
{
    QR_SHARED_ARRAY(float, maxima, 32);
    QR_SHARED_ARRAY(float, partial, 32);
    const int32_t target = a.target[blockIdx.x], n = a.n_cols, first = 4 * (int32_t)threadIdx.x, step = 4 * WARPS * QR_WARP;
    float *row = a.logits + blockIdx.x * a.stride;
    QR_DEVICE_ASSERT(target < n);
    if (target < 0) {
        for (int32_t i = first; i < n; i += step)
            qr_store4<VEC>(row, i, n, make_float4(0, 0, 0, 0));
        if (threadIdx.x == 0)
            a.loss[blockIdx.x] = 0;
        return;
    }
    const float wanted = row[target];
    float most = -INFINITY, sum = 0;
    for (int32_t i = first; i < n; i += step) {
        const float4 v = qr_load4<VEC>(row, i, n); /* behind the end: zeros, which are no logits */
        most = fmaxf(most, v.x);
        most = i + 1 < n ? fmaxf(most, v.y) : most;
        most = i + 2 < n ? fmaxf(most, v.z) : most;
        most = i + 3 < n ? fmaxf(most, v.w) : most;
    }
    most = block_max<WARPS>(most, maxima);
    for (int32_t i = first; i < n; i += step) {
        const float4 v = qr_load4<VEC>(row, i, n);
        sum += expf(v.x - most);
        sum += i + 1 < n ? expf(v.y - most) : 0;
        sum += i + 2 < n ? expf(v.z - most) : 0;
        sum += i + 3 < n ? expf(v.w - most) : 0;
    }
    sum = qr_block_sum<WARPS>(sum, partial);
    if (threadIdx.x == 0)
        a.loss[blockIdx.x] = log((double)sum) + (double)most - (double)wanted;
    for (int32_t i = first; i < n; i += step) {
        const float4 v = qr_load4<VEC>(row, i, n);
        qr_store4<VEC>(row, i, n, make_float4(gradient(v.x, most, sum, a.scale, i == target), gradient(v.y, most, sum, a.scale, i + 1 == target),
                                              gradient(v.z, most, sum, a.scale, i + 2 == target), gradient(v.w, most, sum, a.scale, i + 3 == target)));
    }
}

extern "C" void qr_cuda_cross_entropy(struct qr_queue *q, const struct qr_cross_entropy_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->logits != NULL && a->loss != NULL);
    QR_ASSERT(a->n_cols > 0 && a->target != NULL);
    if (a->n_rows == 0)
        return;
    const bool vec = qr_in_fours(QR_ADDRESS(a->logits), a->n_cols | a->stride), wide = a->n_cols > 8192;
    if (wide && vec)
        QR_LAUNCH((cross_entropy<32, true>), (unsigned int)a->n_rows, 1024, 0, q, *a);
    else if (wide)
        QR_LAUNCH((cross_entropy<32, false>), (unsigned int)a->n_rows, 1024, 0, q, *a);
    else if (vec)
        QR_LAUNCH((cross_entropy<8, true>), (unsigned int)a->n_rows, 256, 0, q, *a);
    else
        QR_LAUNCH((cross_entropy<8, false>), (unsigned int)a->n_rows, 256, 0, q, *a);
}

QR_STOPS(back_rows)
