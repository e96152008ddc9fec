#include <criterion/criterion.h>
#include <math.h>

#include "base/half.h"
#include "base/rng.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

Test(half, round_trips_every_bf16)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = qr_bf16_to_f32((uint16_t)h);
        uint16_t back = qr_f32_to_bf16(f);
        bool nan = (h & 0x7fff) > 0x7f80;
        cr_assert_eq(bits_of(f), h << 16);
        cr_assert_eq(back, nan ? h | 0x40 : h, "%04x came back as %04x", h, back); /* a signalling NaN comes back quiet */
    }
}

/* Of the two neighbours the nearer one; the even one when both are as near. */
Test(half, rounds_f32_to_the_nearest_bf16)
{
    for (uint64_t i = 0; i < 2000000; i++) {
        uint32_t w[4];
        qr_rng_words(w, 41, 0, i);
        uint32_t u = i % 4 == 0 ? (w[0] & 0xffff0000u) | 0x8000u : i % 4 == 1 ? (w[0] & 0xffff0000u) | (0x7fffu + w[1] % 3) : w[0];
        float f = float_of(u);
        if (!isfinite(f))
            continue;
        uint16_t down = (uint16_t)(u >> 16), got = qr_f32_to_bf16(f);
        uint32_t rest = u & 0xffffu;
        uint16_t want = rest < 0x8000u || (rest == 0x8000u && !(down & 1)) ? down : (uint16_t)(down + 1);
        cr_assert_eq(got, want, "%08x gave %04x, not %04x", u, got, want);
    }
    cr_assert_eq(qr_f32_to_bf16(3.4028235e38f), 0x7f80, "past the largest bf16 is infinity");
    cr_assert_eq(qr_f32_to_bf16(-INFINITY), 0xff80);
    cr_assert_eq(qr_f32_to_bf16(float_of(0x7f800001u)), 0x7fc0, "a NaN whose payload would be cut stays a NaN");
    cr_assert_eq(qr_f32_to_bf16(-0.0f), 0x8000);
}

/* The definition: (-1)^s * 2^(e-25) * (1024 + m), subnormals 2^-24 * m, by exact scaling in double. */
Test(half, converts_every_f16_exactly)
{
    for (uint32_t h = 0; h < 65536; h++) {
        int exp = (int)(h >> 10) & 31, man = (int)h & 1023;
        float f = qr_f16_to_f32((uint16_t)h);
        cr_assert_eq(!!signbit(f), h >> 15, "%04x", h);
        if (exp == 31) {
            cr_assert_eq(!!isnan(f), man != 0, "%04x", h);
            cr_assert_eq(!!isinf(f), man == 0, "%04x", h);
            continue;
        }
        double want = exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
        cr_assert_eq((double)fabsf(f), want, "%04x", h);
    }
}
