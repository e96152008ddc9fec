/* both.h - small arithmetic that the host and CUDA kernels compute with the same operations, so that both get the same bits: plain IEEE steps, nothing fused.
 * Compiled by C, by nvcc and, for the emulated device, as C++. */
#ifndef QR_BASE_BOTH_H
#define QR_BASE_BOTH_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define QR_BOTH static __host__ __device__ __forceinline__
#else
#define QR_BOTH static inline
#endif

/* e^x for x <= 0 in f32, within 2 ulp; 0 below -87 and for NaN. It is p * 2^n with n = whole number of x / ln 2: range reduction to
 * |r| <= ln(2)/2 (Cody & Waite 1980) and a polynomial. engine/row_math.c does the same operations on vectors. */
QR_BOTH float qr_exp_below_one(float x)
{
    float y = x > -87.0f ? x : -87.0f, r, p;
    int32_t whole = (int32_t)(y * 1.44269504f - 0.5f), bits;
    float n = (float)whole;
    r = y - n * 0.693359375f + n * 2.12194440e-4f;
    p = 1.0f / 720 + r * (1.0f / 5040);
    p = 1.0f / 120 + r * p;
    p = 1.0f / 24 + r * p;
    p = 1.0f / 6 + r * p;
    p = 0.5f + r * p;
    p = 1.0f + r * (1.0f + r * p);
    memcpy(&bits, &p, sizeof bits);
    bits += whole * (1 << 23);
    memcpy(&p, &bits, sizeof p);
    return x > -87.0f ? p : 0;
}

/* Philox4x32 with ten rounds (Salmon et al. 2011): counter (pos, stream), key (seed). */
QR_BOTH void qr_philox(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t pos)
{
    uint32_t c0 = (uint32_t)pos, c1 = (uint32_t)(pos >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1): 53 bits of the words of (seed, stream, pos). */
QR_BOTH double qr_philox_unit(uint64_t seed, uint64_t stream, uint64_t pos)
{
    uint32_t w[4];
    qr_philox(w, seed, stream, pos);
    return (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53;
}

#endif
