/* half.h - bf16 and f16 to and from f32, one number at a time. Round to nearest, ties to even; NaN stays NaN. */
#ifndef QR_BASE_HALF_H
#define QR_BASE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float qr_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t qr_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float qr_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 1023u, u;
    if (exp == 31)
        u = sign | 0x7f800000u | (man << 13);
    else if (exp != 0)
        u = sign | ((exp + 112u) << 23) | (man << 13);
    else {
        float sub = (float)man * 0x1p-24f; /* exact: man < 2^10 */
        return sign ? -sub : sub;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* From 65,520 on: infinity. */
static inline uint16_t qr_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    const uint32_t sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) /* below 2^-14: a whole multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(f) * 0x1p24f));
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)(sign | ((u >> 13) - (112u << 10)));
}

#endif
