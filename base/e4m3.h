/* e4m3.h - numbers of 8 bits to and from f32: a sign, four bits of exponent, three of mantissa; no infinities, NaN where all bits but the sign's are set.
 * Source: Micikevicius et al. 2022 (arXiv:2209.05433), table 1. */
#ifndef QR_BASE_E4M3_H
#define QR_BASE_E4M3_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define QR_E4M3_MAX 448.0f

/* No branches, and no denormal numbers of f32 on the way, for which processors stop: many at once become vectors. */
static inline float qr_e4m3_to_f32(uint8_t byte)
{
    const uint32_t m = byte & 0x7f, sign = (uint32_t)(byte & 0x80) << 24, normal = (m << 20) + (120u << 23);
    const float small = (float)(int32_t)m * 0x1p-9f; /* without an exponent */
    uint32_t u;
    float x;
    memcpy(&u, &small, sizeof u);
    u = m < 8 ? u : normal;
    u = (m == 0x7f ? 0x7fc00000u : u) | sign;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Round to nearest, ties to even. What is larger than QR_E4M3_MAX becomes that. Not of NaN. No branches and no calls. */
static inline uint8_t qr_f32_to_e4m3(float x)
{
    uint32_t u, units;
    memcpy(&u, &x, sizeof u);
    const uint32_t sign = u >> 24 & 0x80, a = u & 0x7fffffffu;
    const float small = fabsf(x) * 512 + 0x1.8p23f; /* below 2^-6 steps are all 2^-9: as a whole number, in the low bits */
    memcpy(&units, &small, sizeof units);
    const uint32_t normal = ((a + 0x7ffffu + (a >> 20 & 1)) >> 20) - (120u << 3);
    return (uint8_t)(sign | (a >= 0x43e00000u ? 0x7e : a < (121u << 23) ? units & 15 : normal));
}

#endif
