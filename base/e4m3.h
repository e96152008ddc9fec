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

/* Round to nearest, ties to even. What is larger than QR_E4M3_MAX becomes that. Not of NaN. */
static inline uint8_t qr_f32_to_e4m3(float x)
{
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    const float a = fabsf(x);
    int e = 0;
    if (!(a < QR_E4M3_MAX))
        return (uint8_t)(sign | 0x7e);
    (void)frexpf(a, &e);
    e = e - 1 < -6 ? -6 : e - 1; /* below 2^-6 steps are all 2^-9 */
    const int units = (int)rintf(ldexpf(a, 3 - e)); /* 16: the next exponent's 8, which is the next byte */
    return (uint8_t)(sign | (units < 8 ? units : ((e + 7) << 3) + units - 8));
}

#endif
