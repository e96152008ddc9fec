/* num.h - numbers on the device: four at a time, 16-bit types, sums of a warp or block in a fixed order, activations. For .cu files. */
#ifndef QR_KERNELS_CUDA_NUM_H
#define QR_KERNELS_CUDA_NUM_H

#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.h"

/* ---- four numbers ----
 *
 * A thread owns numbers 4 i to 4 i + 3 of a row, whether it can move them as one (VEC) or not: so alignment shows in no sum. */

/* Whether arrays can be read as float4: all of `addresses` (or'ed) are aligned to 16 bytes, all of `counts` (strides, widths; or'ed) are multiples of 4. */
static inline bool qr_in_fours(uintptr_t addresses, int64_t counts)
{
    return addresses % 16 == 0 && counts % 4 == 0;
}

#define QR_ADDRESS(p) ((uintptr_t)(p))

/* Numbers i to i + 3 of a row of n; zeros from n on. */
template <bool VEC> QR_DEVICE float4 qr_load4(const float *row, int32_t i, int32_t n)
{
    if (i >= n)
        return make_float4(0, 0, 0, 0);
    if (VEC)
        return *(const float4 *)(row + i);
    return make_float4(row[i], i + 1 < n ? row[i + 1] : 0, i + 2 < n ? row[i + 2] : 0, i + 3 < n ? row[i + 3] : 0);
}

template <bool VEC> QR_DEVICE void qr_store4(float *row, int32_t i, int32_t n, float4 v)
{
    if (i >= n)
        return;
    if (VEC) {
        *(float4 *)(row + i) = v;
        return;
    }
    row[i] = v.x;
    if (i + 1 < n)
        row[i + 1] = v.y;
    if (i + 2 < n)
        row[i + 2] = v.z;
    if (i + 3 < n)
        row[i + 3] = v.w;
}

QR_DEVICE float4 qr_add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

QR_DEVICE float4 qr_mul4(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

QR_DEVICE float4 qr_scale4(float4 a, float b)
{
    return make_float4(a.x * b, a.y * b, a.z * b, a.w * b);
}

/* sum + a.b, in the order of the components. */
QR_DEVICE float qr_dot4(float sum, float4 a, float4 b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* ---- 16-bit numbers, as base/half.h converts them ---- */

QR_DEVICE float qr_from_bf16(uint32_t h)
{
    return __uint_as_float(h << 16);
}

QR_DEVICE uint32_t qr_to_bf16(float f)
{
    const uint32_t u = __float_as_uint(f);
    return (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 | 0x0040u) : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

/* E4M3 of |x| < 480, and of nothing else: to nearest, even on a tie; 448 where that would be more (base/e4m3.h has the same bits). */
QR_DEVICE uint32_t qr_to_e4m3(float x)
{
    const uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    if (!(fabsf(x) < 448.0f))
        return sign | 0x7eu;
    if (a < 0x3c800000u) /* 2^-6: below, steps are all 2^-9 */
        return sign | (uint32_t)rintf(fabsf(x) * 512.0f);
    return sign | (((a + 0x7ffffu + (a >> 20 & 1u)) >> 20) - (120u << 3));
}

QR_DEVICE float qr_from_e4m3(uint32_t byte)
{
    return __uint_as_float((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f; /* the exponent is 120 too small */
}

QR_DEVICE float qr_from_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 1023u;
    if (exponent == 0) {
        const float small = (float)fraction * 0x1p-24f;
        return __uint_as_float(__float_as_uint(small) | sign);
    }
    return __uint_as_float(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | fraction << 13);
}

/* ---- sums: a tree whose shape depends on nothing but the number of warps ---- */

QR_DEVICE float qr_warp_sum(float x)
{
    for (int step = QR_WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(QR_ALL_LANES, x, step);
    return x;
}

QR_DEVICE float qr_warp_max(float x)
{
    for (int step = QR_WARP / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(QR_ALL_LANES, x, step));
    return x;
}

/* Of a block of WARPS warps, the same for all its threads; 1: of each warp by itself. partial: WARPS numbers of shared memory, free again when every
 * thread has passed the next barrier. */
template <int WARPS> QR_DEVICE float qr_block_sum(float x, float *partial)
{
    x = qr_warp_sum(x);
    if (WARPS == 1)
        return x;
    const int lane = threadIdx.x % QR_WARP;
    if (lane == 0)
        partial[threadIdx.x / QR_WARP] = x;
    __syncthreads();
    return qr_warp_sum(lane < WARPS ? partial[lane] : 0.0f);
}

/* ---- activations ---- */

/* Within 1 ulp of e^x (expf), one of the sum, the quotient and the product each. */
template <enum qr_act ACT> QR_DEVICE float qr_activate(float x)
{
    if (ACT == QR_ACT_SILU)
        return x / (1.0f + expf(-x));
    const float t = tanhf(0.79788456080286535588f * fmaf(0.044715f * x * x, x, x));
    return 0.5f * x * (1.0f + t);
}

/* A gated unit (kernels.h, enum qr_act). Comparisons, so that what is no number stays that. */
template <enum qr_act ACT> QR_DEVICE float qr_gate(float gate, float up, struct qr_clamp c)
{
    if (ACT != QR_ACT_CLAMPED)
        return qr_activate<ACT == QR_ACT_CLAMPED ? QR_ACT_SILU : ACT>(gate) * up;
    const float g = gate > c.limit ? c.limit : gate, u = up > c.limit ? c.limit : up < -c.limit ? -c.limit : up;
    return g / (1.0f + expf(-c.alpha * g)) * (u + 1.0f);
}

/* act(x) and its derivative. */
template <enum qr_act ACT> QR_DEVICE float qr_activate_slope(float x, float *slope)
{
    if (ACT == QR_ACT_SILU) {
        const float sigmoid = 1.0f / (1.0f + expf(-x));
        *slope = sigmoid * fmaf(x, 1.0f - sigmoid, 1.0f);
        return x / (1.0f + expf(-x));
    }
    const float c = 0.79788456080286535588f, t = tanhf(c * fmaf(0.044715f * x * x, x, x));
    *slope = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * c * fmaf(3.0f * 0.044715f * x, x, 1.0f);
    return 0.5f * x * (1.0f + t);
}

#endif
