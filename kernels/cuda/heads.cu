/* Kernels that work head by head: norm, rotation, the cache. A head of up to 256 numbers is a warp's; a thread has numbers 4 l to 4 l + 3 and, of wide
 * heads, the same 128 further. What is fused is made of the same functions as what stands alone, so it gives the same bits. */
#include "kernels/cuda/cache.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/widths.h"

#define THREADS 256
#define WARPS (THREADS / QR_WARP)
#define HEAD_MAX QR_CACHE_HEAD_MAX
#define FOURS 2
#define STEP (4 * QR_WARP)

/* Where each kernel begins, behind those before it: the head of this warp, counted over all rows: n_rows * n_heads of them; and this thread's first number
 * in it. */
QR_DEVICE int64_t head_of_warp(int32_t *first)
{
    qr_grid_next();
    qr_grid_wait();
    *first = 4 * ((int32_t)threadIdx.x % QR_WARP);
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / QR_WARP;
}

template <bool VEC> QR_DEVICE void load_head(float4 v[FOURS], const float *x, int32_t first, int32_t n)
{
    for (int j = 0; j < FOURS; j++)
        v[j] = qr_load4<VEC>(x, first + j * STEP, n);
}

template <bool VEC> QR_DEVICE void store_head(float *x, const float4 v[FOURS], int32_t first, int32_t n)
{
    for (int j = 0; j < FOURS; j++)
        qr_store4<VEC>(x, first + j * STEP, n, v[j]);
}

/* v / rms * w. All of the warp call it. */
template <bool VEC> QR_DEVICE void norm_head(float4 v[FOURS], const float *w, int32_t first, int32_t n, float eps)
{
    const float r = qr_inverse_rms<FOURS, 1>(v, n, eps, NULL);
    for (int j = 0; j < FOURS; j++)
        v[j] = qr_mul4(qr_scale4(v[j], r), qr_load4<VEC>(w, first + j * STEP, n));
}

/* ---- head_norm ---- */

template <bool VEC> QR_KERNEL(THREADS) head_norm(struct qr_head_norm_args a)
{
    int32_t first;
    const int64_t head = head_of_warp(&first), row = head / a.n_heads;
    const int32_t n = row < a.n_rows ? a.head_dim : 0;
    float *x = a.x + row * a.stride + head % a.n_heads * a.head_dim;
    float4 v[FOURS];
    load_head<VEC>(v, x, first, n);
    const float r = qr_inverse_rms<FOURS, 1>(v, a.head_dim, a.eps, NULL);
    for (int j = 0; j < FOURS; j++)
        qr_store4<VEC>(x, first + j * STEP, n, qr_mul4(qr_scale4(v[j], r), qr_load4<VEC>(a.w, first + j * STEP, n)));
}

extern "C" void qr_cuda_head_norm(struct qr_queue *q, const struct qr_head_norm_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL && a->w != NULL);
    QR_ASSERT(a->head_dim > 0 && a->head_dim <= HEAD_MAX && a->n_heads > 0);
    if (a->n_rows == 0)
        return;
    const unsigned int blocks = qr_blocks((int64_t)a->n_rows * a->n_heads, WARPS);
    if (qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->w), a->stride | a->head_dim))
        QR_LAUNCH_NEXT(head_norm<true>, blocks, THREADS, 0, q, *a);
    else
        QR_LAUNCH_NEXT(head_norm<false>, blocks, THREADS, 0, q, *a);
}

/* ---- rope ---- */

QR_KERNEL(THREADS) rope_table(struct qr_rope_table_args a)
{
    qr_grid_next();
    qr_grid_wait();
    const int32_t half = a.n_rot / 2;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = at / half, i = at % half;
    if (row >= a.n_rows)
        return;
    const double angle = (double)a.pos[row] * a.inv_freq[i];
    float *out = a.cos_sin + row * a.n_rot + i;
    out[0] = (float)(cos(angle) * (double)a.attn_factor);
    out[half] = (float)(sin(angle) * (double)a.attn_factor);
}

extern "C" void qr_cuda_rope_table(struct qr_queue *q, const struct qr_rope_table_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->cos_sin != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0);
    if (a->n_rows > 0)
        QR_LAUNCH_NEXT(rope_table, qr_blocks((int64_t)a->n_rows * (a->n_rot / 2), THREADS), THREADS, 0, q, *a);
}

/* Four pairs of a thread; `direction` -1 turns back. */
template <bool VEC> QR_KERNEL(THREADS) rope(struct qr_rope_args a, float direction)
{
    qr_grid_next();
    qr_grid_wait();
    const int32_t half = a.n_rot / 2, fours = (half + 3) / 4;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, head = at / fours, row = head / a.n_heads;
    const int32_t i = 4 * (int32_t)(at % fours);
    if (row >= a.n_rows)
        return;
    float *x = a.x + row * a.stride + head % a.n_heads * a.head_dim;
    const float *table = a.cos_sin + row * a.n_rot;
    const float4 low = qr_load4<VEC>(x, i, half), high = qr_load4<VEC>(x + half, i, half);
    const float4 c = qr_load4<VEC>(table, i, half), s = qr_scale4(qr_load4<VEC>(table + half, i, half), direction);
    qr_store4<VEC>(x, i, half, make_float4(qr_turn_low(low.x, high.x, c.x, s.x), qr_turn_low(low.y, high.y, c.y, s.y), qr_turn_low(low.z, high.z, c.z, s.z),
                                           qr_turn_low(low.w, high.w, c.w, s.w)));
    qr_store4<VEC>(x + half, i, half, make_float4(qr_turn_high(low.x, high.x, c.x, s.x), qr_turn_high(low.y, high.y, c.y, s.y),
                                                  qr_turn_high(low.z, high.z, c.z, s.z), qr_turn_high(low.w, high.w, c.w, s.w)));
}

static void launch_rope(struct qr_queue *q, const struct qr_rope_args *a, float direction)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL);
    QR_ASSERT(a->n_rot > 0 && a->n_rot % 2 == 0 && a->n_rot <= a->head_dim);
    const int32_t half = a->n_rot / 2;
    const unsigned int blocks = qr_blocks((int64_t)a->n_rows * a->n_heads * ((half + 3) / 4), THREADS);
    if (blocks == 0)
        return;
    if (qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->cos_sin), a->stride | a->head_dim | half))
        QR_LAUNCH_NEXT(rope<true>, blocks, THREADS, 0, q, *a, direction);
    else
        QR_LAUNCH_NEXT(rope<false>, blocks, THREADS, 0, q, *a, direction);
}

extern "C" void qr_cuda_rope(struct qr_queue *q, const struct qr_rope_args *a)
{
    launch_rope(q, a, 1);
}

extern "C" void qr_cuda_rope_back(struct qr_queue *q, const struct qr_rope_args *a)
{
    launch_rope(q, a, -1);
}

/* ---- the cache ---- */

/* As qr_quant_round. */
QR_DEVICE int32_t round_near(float x)
{
    return __float_as_int(x + 0x1.8p23f) - 0x4b400000;
}

QR_DEVICE uint32_t larger_bits(uint32_t most, float x)
{
    return max(most, __float_as_uint(x) & 0x7fffffffu);
}

/* One head, of which this thread has v (nothing where n is 0), into its plane. All of the warp call it; n_head is the head's size whatever n. */
template <enum qr_dtype TYPE, bool VEC>
QR_DEVICE void write_head(uint8_t *plane, int32_t token, int32_t block_tokens, const float4 v[FOURS], int32_t first, int32_t n_head, bool mine)
{
    float scale = 0, inverse = 0;
    const float top = TYPE == QR_E4M3 ? 448.0f : 127.0f;
    if (TYPE == QR_I8 || TYPE == QR_E4M3) { /* qr_quant_scale: the largest magnitude by its bits, infinity and NaN above all */
        uint32_t most = 0;
        for (int j = 0; j < FOURS; j++)
            most = larger_bits(larger_bits(larger_bits(larger_bits(most, v[j].x), v[j].y), v[j].z), v[j].w);
        most = __reduce_max_sync(QR_ALL_LANES, most);
        const float largest = __uint_as_float(most);
        if (most >= 0x7f800000u)
            scale = __uint_as_float(0x7fc00000u);
        else if (most >= 0x03800000u)
            scale = largest / top, inverse = top / largest;
        if (mine && first == 0)
            ((float *)(plane + (int64_t)block_tokens * n_head))[token] = scale;
    }
    for (int j = 0; j < FOURS; j++) {
        const int32_t i = first + j * STEP;
        const float x[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
        if (!mine || i >= n_head)
            continue;
        const int64_t at = (int64_t)token * n_head + i; /* head sizes are multiples of 8 */
        uint32_t h[4] = {0, 0, 0, 0};
        for (int k = 0; k < 4; k++)
            h[k] = TYPE == QR_BF16   ? qr_to_bf16(x[k])
                   : inverse == 0    ? 0
                   : TYPE == QR_E4M3 ? qr_to_e4m3(x[k] * inverse)
                                     : (uint32_t)round_near(x[k] * inverse) & 0xffu;
        if (TYPE == QR_F32)
            qr_store4<VEC>((float *)plane + (int64_t)token * n_head, i, n_head, v[j]);
        else if (TYPE == QR_BF16)
            *(uint2 *)((uint16_t *)plane + at) = make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16);
        else
            *(uint32_t *)(plane + at) = h[0] | h[1] << 8 | h[2] << 16 | h[3] << 24;
    }
}

struct kv_rows {
    const float *k, *v;
    const int32_t *slot;
    int64_t k_stride, v_stride;
    int32_t n_rows;
};

template <enum qr_dtype TYPE, bool VEC> QR_KERNEL(THREADS) kv_write(struct qr_cache c, struct kv_rows a)
{
    int32_t first, token = 0;
    const int64_t head = head_of_warp(&first), row = head / (2 * c.n_kv_heads);
    const int32_t g = (int32_t)(head % (2 * c.n_kv_heads)), which = g / c.n_kv_heads, of = g % c.n_kv_heads;
    const bool mine = row < a.n_rows;
    float4 v[FOURS];
    load_head<VEC>(v, (which ? a.v + row * a.v_stride : a.k + row * a.k_stride) + of * c.head_dim, first, mine ? c.head_dim : 0);
    const bool kept = mine && a.slot[row] >= 0;
    uint8_t *plane = kept ? qr_cache_plane(c, a.slot[row], which, of, &token) : NULL;
    write_head<TYPE, VEC>(plane, token, c.block_tokens, v, first, c.head_dim, kept);
}

/* LAUNCH(type, vec) for the cache's type; a plane of f32 has its rows aligned to 16 bytes wherever the base has. */
#define FOR_CACHE(kv, vec, LAUNCH)                                                              \
    do {                                                                                        \
        QR_ASSERT((kv)->dtype == QR_F32 || (kv)->dtype == QR_BF16 || qr_kv_has_scales((kv)->dtype)); \
        if ((kv)->dtype == QR_F32 && (vec))                                                     \
            LAUNCH(QR_F32, true);                                                               \
        else if ((kv)->dtype == QR_F32)                                                         \
            LAUNCH(QR_F32, false);                                                              \
        else if ((kv)->dtype == QR_BF16 && (vec))                                               \
            LAUNCH(QR_BF16, true);                                                              \
        else if ((kv)->dtype == QR_BF16)                                                        \
            LAUNCH(QR_BF16, false);                                                             \
        else if ((kv)->dtype == QR_E4M3 && (vec))                                               \
            LAUNCH(QR_E4M3, true);                                                              \
        else if ((kv)->dtype == QR_E4M3)                                                        \
            LAUNCH(QR_E4M3, false);                                                             \
        else if (vec)                                                                           \
            LAUNCH(QR_I8, true);                                                                \
        else                                                                                    \
            LAUNCH(QR_I8, false);                                                               \
    } while (0)

extern "C" void qr_cuda_kv_write(struct qr_queue *q, const struct qr_kv_write_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->kv != NULL && a->k != NULL && a->v != NULL);
    QR_ASSERT(QR_ADDRESS(a->kv->base) % 16 == 0 && a->kv->head_dim % 8 == 0);
    if (a->n_rows == 0)
        return;
    const struct qr_cache c = qr_cache_of(a->kv, a->layer);
    const struct kv_rows rows = {a->k, a->v, a->slot, a->k_stride, a->v_stride, a->n_rows};
    const unsigned int blocks = qr_blocks((int64_t)a->n_rows * 2 * c.n_kv_heads, WARPS);
    const bool vec = qr_in_fours(QR_ADDRESS(a->k) | QR_ADDRESS(a->v), a->k_stride | a->v_stride);
#define LAUNCH(type, fours) QR_LAUNCH_NEXT((kv_write<type, fours>), blocks, THREADS, 0, q, c, rows)
    FOR_CACHE(a->kv, vec, LAUNCH);
#undef LAUNCH
}

extern "C" void qr_cuda_kv_copy(struct qr_queue *q, const struct qr_kv_copy_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->kv != NULL);
    QR_ASSERT(a->src >= 0 && a->src < a->kv->n_blocks && a->dst >= 0 && a->dst < a->kv->n_blocks && a->src != a->dst);
    const size_t n = qr_kv_block_bytes(a->kv);
    uint8_t *base = (uint8_t *)a->kv->base;
    QR_CUDA_CHECK(cudaMemcpyAsync(base + (size_t)a->dst * n, base + (size_t)a->src * n, n, cudaMemcpyDeviceToDevice, qr_stream_of(q)));
}

/* ---- qkv ---- */

struct qkv_rows {
    float *x;
    const float *q_norm, *k_norm, *cos_sin;
    const int32_t *slot;
    int64_t stride;
    int32_t n_rows, n_heads, n_rot;
    float eps;
};

/* Rotates a head that lies in `whole` (shared memory of this warp), of which this thread takes its numbers. */
QR_DEVICE void turn_head(float4 v[FOURS], const float *whole, const float *table, int32_t first, int32_t n, int32_t half)
{
    for (int j = 0; j < FOURS; j++) {
        float x[4];
        for (int k = 0; k < 4; k++) {
            const int32_t i = first + j * STEP + k;
            if (i >= n)
                x[k] = 0;
            else if (i < half)
                x[k] = qr_turn_low(whole[i], whole[i + half], table[i], table[half + i]);
            else if (i < 2 * half)
                x[k] = qr_turn_high(whole[i - half], whole[i], table[i - half], table[i]);
            else
                x[k] = whole[i];
        }
        v[j] = make_float4(x[0], x[1], x[2], x[3]);
    }
}

template <enum qr_dtype TYPE, bool VEC> QR_KERNEL(THREADS) qkv(struct qr_cache c, struct qkv_rows a)
{
    QR_SHARED_ARRAY(float, staged, WARPS * HEAD_MAX);
    int32_t first, token = 0;
    const int32_t n_all = a.n_heads + 2 * c.n_kv_heads;
    const int64_t at = head_of_warp(&first), row = at / n_all;
    const int32_t head = (int32_t)(at % n_all), g = head - a.n_heads, n = c.head_dim; /* g: among keys and values */
    const bool mine = row < a.n_rows;
    float *x = a.x + row * a.stride + head * n, *whole = staged + threadIdx.x / QR_WARP * HEAD_MAX;
    float4 v[FOURS];
    load_head<VEC>(v, x, first, mine ? n : 0);
    if (g < c.n_kv_heads) { /* q and k; the warp agrees */
        const float *w = g < 0 ? a.q_norm : a.k_norm;
        if (w)
            norm_head<VEC>(v, w, first, n, a.eps);
        store_head<true>(whole, v, first, HEAD_MAX);
        __syncwarp();
        turn_head(v, whole, a.cos_sin + (mine ? row : 0) * a.n_rot, first, n, a.n_rot / 2);
        store_head<VEC>(x, v, first, mine ? n : 0);
    }
    if (g < 0)
        return;
    const bool kept = mine && a.slot[row] >= 0;
    uint8_t *plane = kept ? qr_cache_plane(c, a.slot[row], g / c.n_kv_heads, g % c.n_kv_heads, &token) : NULL;
    write_head<TYPE, VEC>(plane, token, c.block_tokens, v, first, n, kept);
}

extern "C" void qr_cuda_qkv(struct qr_queue *q, const struct qr_qkv_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL && a->kv != NULL);
    QR_ASSERT(a->n_heads > 0 && a->n_rot <= a->kv->head_dim && QR_ADDRESS(a->kv->base) % 16 == 0 && a->kv->head_dim % 8 == 0);
    if (a->n_rows == 0)
        return;
    const struct qr_cache c = qr_cache_of(a->kv, a->layer);
    const struct qkv_rows rows = {a->x, a->q_norm, a->k_norm, a->cos_sin, a->slot, a->stride, a->n_rows, a->n_heads, a->n_rot, a->eps};
    const unsigned int blocks = qr_blocks((int64_t)a->n_rows * (a->n_heads + 2 * c.n_kv_heads), WARPS);
    const bool vec = qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->q_norm) | QR_ADDRESS(a->k_norm), a->stride);
#define LAUNCH(type, fours) QR_LAUNCH_NEXT((qkv<type, fours>), blocks, THREADS, 0, q, c, rows)
    FOR_CACHE(a->kv, vec, LAUNCH);
#undef LAUNCH
}

QR_STOPS(heads)
