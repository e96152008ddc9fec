/* The emulated intrinsics of floats and the emulated tiles against what Intel's SDM says of each instruction, element by element. */
#include <signal.h>
#include <stdbool.h>

#include "kernels/cpu/amx/tile.h"
#include "tests/isa_emu/each.h"

/* A NaN is a NaN: which of two operands' it is does not matter to anybody. */
static bool same(uint32_t got, float want)
{
    const uint32_t w = bits_of(want);
    return got == w || ((got & 0x7fffffff) > 0x7f800000 && (w & 0x7fffffff) > 0x7f800000);
}

#define EACH_FLOAT(result, WANT)                                                                                      \
    for (int trial = 0; trial < TRIALS; trial++) {                                                                    \
        const union emu_v x = trial % 2 ? some() : some_floats(), y = trial % 2 ? some() : some_floats();             \
        const union emu_v z = trial % 2 ? some() : some_floats();                                                     \
        const uint64_t k = qr_rng_next(&rng);                                                                         \
        const union emu_v got = {.f = result};                                                                        \
        (void)y, (void)z, (void)k;                                                                                    \
        for (int i = 0; i < 16; i++)                                                                                  \
            cr_assert(same(got.u32[i], WANT), "%s: %08x %08x %08x became %08x, not %08x", #result, x.u32[i], y.u32[i], z.u32[i], got.u32[i], \
                      bits_of(WANT));                                                                                 \
    }
#define X x.f32[i]
#define Y y.f32[i]
#define Z z.f32[i]

Test(floats, are_computed_as_the_isa_says, .init = init)
{
    EACH_FLOAT(_mm512_add_ps(x.f, y.f), X + Y)
    EACH_FLOAT(_mm512_sub_ps(x.f, y.f), X - Y)
    EACH_FLOAT(_mm512_mul_ps(x.f, y.f), X * Y)
    EACH_FLOAT(_mm512_div_ps(x.f, y.f), X / Y)
    EACH_FLOAT(_mm512_max_ps(x.f, y.f), X > Y ? X : Y) /* the second one where either is a NaN, or both are 0 */
    EACH_FLOAT(_mm512_min_ps(x.f, y.f), X < Y ? X : Y)
    EACH_FLOAT(_mm512_fmadd_ps(x.f, y.f, z.f), fmaf(X, Y, Z))
    EACH_FLOAT(_mm512_fnmadd_ps(x.f, y.f, z.f), fmaf(-X, Y, Z))
    EACH_FLOAT(_mm512_abs_ps(x.f), fabsf(X))
    EACH_FLOAT(_mm512_mask_add_ps(z.f, (__mmask16)k, x.f, y.f), k >> i & 1 ? X + Y : Z)
    EACH_FLOAT(_mm512_mask_max_ps(z.f, (__mmask16)k, x.f, y.f), k >> i & 1 ? (X > Y ? X : Y) : Z)
    EACH_FLOAT(_mm512_maskz_mul_ps((__mmask16)k, x.f, y.f), k >> i & 1 ? X * Y : 0.0f)
    EACH_FLOAT(_mm512_maskz_div_ps((__mmask16)k, x.f, y.f), k >> i & 1 ? X / Y : 0.0f)
    EACH_FLOAT(_mm512_roundscale_ps(x.f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), rintf(X))
    EACH_FLOAT(_mm512_roundscale_ps(x.f, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), floorf(X))
    EACH_FLOAT(_mm512_reduce_ps(x.f, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), isinf(X) ? 0 : X == floorf(X) ? -0.0f : X - floorf(X))
    EACH_FLOAT(_mm512_reduce_ps(x.f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), isinf(X) || X == rintf(X) ? 0.0f : X - rintf(X))
    EACH_FLOAT(_mm512_cvtepi32_ps(x.i), (float)x.s32[i])
    EACH_FLOAT(_mm512_cvtph_ps(x.hi[0]), (float)(*(const _Float16 *)&x.u16[i]))
    INTS(s32, 16, _mm512_cvtps_epi32(x.f), fabsf(X) < 0x1p31f ? (int32_t)rintf(X) : INT32_MIN)
    for (int trial = 0; trial < TRIALS; trial++) {
        const union emu_v x = some(), y = some(), d = {.d = _mm512_cvtepi32_pd(x.hi[0])};
        const union emu_v sum = {.d = _mm512_add_pd(d.d, _mm512_set1_pd(0.5))}, product = {.d = _mm512_mul_pd(d.d, sum.d)};
        const union emu_v plus = {.d = _mm512_fmadd_pd(d.d, sum.d, product.d)}, minus = {.d = _mm512_fnmadd_pd(d.d, sum.d, product.d)};
        const union emu_v wide = {.d = _mm512_cvtps_pd(x.hf[0])};
        const union emu_v lower = {.hf = {_mm512_cvtpd_ps(plus.d), _mm256_setzero_ps()}};
        const uint32_t less = _mm512_cmp_ps_mask(x.f, y.f, _CMP_LT_OQ), equal = _mm512_cmp_ps_mask(x.f, y.f, _CMP_EQ_OQ);
        const uint32_t unordered = _mm512_cmp_ps_mask(x.f, y.f, _CMP_UNORD_Q);
        for (int i = 0; i < 8; i++) {
            const double a = x.s32[i], b = a + 0.5, c = a * b;
            cr_assert(d.f64[i] == a && sum.f64[i] == b && product.f64[i] == c && plus.f64[i] == fma(a, b, c) && minus.f64[i] == fma(-a, b, c));
            cr_assert(lower.f32[i] == (float)fma(a, b, c) && (isnan(X) ? isnan(wide.f64[i]) : wide.f64[i] == (double)X));
        }
        for (int i = 0; i < 16; i++) {
            cr_assert_eq(less >> i & 1, X < Y);
            cr_assert_eq(equal >> i & 1, X == Y);
            cr_assert_eq(unordered >> i & 1, isnan(X) || isnan(Y));
        }
    }
}

/* 2^floor(n) times a number, rounded once; what infinities and NaN do is the table in the SDM. */
Test(floats, are_scaled_by_powers_of_two_as_the_isa_says, .init = init)
{
    const float inf = INFINITY;
    const float table[][3] = {{NAN, 1, NAN}, {NAN, inf, inf}, {NAN, -inf, 0}, {inf, 3, inf}, {-inf, inf, -inf}, {inf, -inf, NAN}, {0, inf, NAN},
                              {-0.0f, -inf, -0.0f}, {-2, inf, -inf}, {-2, -inf, -0.0f}, {1, NAN, NAN}, {1.5f, 2.9f, 6}, {1.5f, -0.1f, 0.75f},
                              {0x1.000002p0f, -127, 0x1p-127f}, {0x1.8p0f, -149, 0x1p-148f}, {0x1p0f, -150, 0}, {0x1.8p0f, -150, 0x1p-149f},
                              {0x1p-149f, 200, 0x1p51f}, {1, 1e30f, inf}, {-1, -1e30f, -0.0f}, {0x1p-149f, 277, inf}, {0x1p-149f, 276, 0x1p127f}};
    for (size_t r = 0; r < sizeof(table) / sizeof(table[0]); r++) {
        const union emu_v got = {.f = _mm512_scalef_ps(_mm512_set1_ps(table[r][0]), _mm512_set1_ps(table[r][1]))};
        for (int i = 0; i < 16; i++)
            cr_assert(same(got.u32[i], table[r][2]), "%a 2^%a is %a", (double)table[r][0], (double)table[r][1], (double)got.f32[i]);
    }
    for (int trial = 0; trial < TRIALS; trial++) {
        const union emu_v x = some_floats(), n = some_floats(), got = {.f = _mm512_scalef_ps(x.f, _mm512_mul_ps(n.f, _mm512_set1_ps(8)))};
        for (int i = 0; i < 16; i++)
            cr_assert_eq(got.f32[i], (float)ldexp((double)X, (int)floorf(8 * n.f32[i])));
    }
}

Test(floats, become_bf16_and_f16_as_the_isa_says, .init = init)
{
    const uint32_t table[][2] = {{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x7f7fffff, 0x7f80}, {0x00000001, 0}, {0x807fffff, 0x8000},
                                 {0x00800000, 0x0080}, {0x7f800000, 0x7f80}, {0xff800001, 0xffc0}, {0x7fc12345, 0x7fc1}};
    for (size_t r = 0; r < sizeof(table) / sizeof(table[0]); r++) {
        const union emu_v got = {.i = (__m512i)_mm512_cvtne2ps_pbh(_mm512_castsi512_ps(_mm512_set1_epi32((int)table[r][0])), _mm512_set1_ps(2))};
        const __m256i one = (__m256i)_mm512_cvtneps_pbh(_mm512_castsi512_ps(_mm512_set1_epi32((int)table[r][0])));
        for (int i = 0; i < 16; i++) {
            cr_assert_eq(got.u16[i], 0x4000); /* the second operand comes first */
            cr_assert_eq(got.u16[16 + i], table[r][1], "%x became %x", table[r][0], got.u16[16 + i]);
        }
        cr_assert(memcmp(&one, &got.hi[1], 32) == 0);
    }
    for (int trial = 0; trial < TRIALS; trial++) {
        const union emu_v x = some_floats(), got = {.hi = {_mm512_cvtps_ph(x.f, _MM_FROUND_TO_NEAREST_INT), _mm256_setzero_si256()}};
        for (int i = 0; i < 16; i++) {
            const _Float16 want = (_Float16)X;
            cr_assert(memcmp(&want, &got.u16[i], 2) == 0);
        }
    }
    EACH("cvtepi32_epi16", _mm512_cvtepi32_epi16(x.i), hi[0], u16, 16, (uint16_t)x.u32[i])
    EACH("cvtepi32_epi8", _mm512_cvtepi32_epi8(x.i), q[0], u8, 16, (uint8_t)x.u32[i])
    INTS(s32, 16, _mm512_cvtepi8_epi32(x.q[0]), x.s8[i])
    INTS(s32, 16, _mm512_cvtepu8_epi32(x.q[0]), x.u8[i])
    INTS(s16, 32, _mm512_cvtepu8_epi16(x.hi[0]), x.u8[i])
    INTS(s32, 16, _mm512_cvtepu16_epi32(x.hi[0]), x.u16[i])
}

/* ---- tiles ---- */

static void configure(int rows, int k_bytes, int columns)
{
    struct qr_tile_config c = {.palette = 1};
    c.rows[0] = c.rows[1] = (uint8_t)rows;
    c.row_bytes[0] = c.row_bytes[2] = (uint16_t)(4 * columns);
    c.row_bytes[1] = (uint16_t)k_bytes;
    c.rows[2] = (uint8_t)(k_bytes / 4);
    qr_tile_configure(&c);
}

/* 0 for a denormal number. */
static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float bf16(uint16_t b)
{
    const uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, 4);
    return flushed(f);
}

/* Numbers of moderate size; whose products are near 2^-126, the end of normal numbers; any, to both ends and NaN. */
static uint16_t some_bf16(int kind)
{
    const uint32_t exponent = kind < 2 ? 120 + qr_rng_below(&rng, 12) : kind == 2 ? 55 + qr_rng_below(&rng, 12) : qr_rng_below(&rng, 256);
    return (uint16_t)(qr_rng_below(&rng, 2) << 15 | exponent << 7 | qr_rng_below(&rng, 128));
}

/* Sizes from full tiles down to one row, one pair and one column, in memory whose rows lie further apart. */
Test(tiles, multiply_as_the_isa_says, .init = init)
{
    static const int sizes[][3] = {{16, 64, 16}, {1, 64, 16}, {5, 12, 7}, {16, 4, 1}, {3, 64, 16}};
    for (int trial = 0; trial < 100; trial++) {
        const int *s = sizes[trial % 5], pairs = s[1] / 4;
        uint16_t a[16][40], b[16][40];
        float c[16][20], got[16][20];
        for (int i = 0; i < 16 * 40; i++) {
            a[i / 40][i % 40] = some_bf16(trial / 25);
            b[i / 40][i % 40] = some_bf16(trial / 25);
        }
        for (int i = 0; i < 16 * 20; i++)
            c[i / 20][i % 20] = ldexpf((float)qr_rng_next_unit(&rng) - 0.5f, trial < 50 ? 3 : (int)qr_rng_below(&rng, 250) - 140);
        memset(got, 0x77, sizeof(got));
        configure(s[0], s[1], s[2]);
        qr_tile_load(0, c, sizeof(c[0]));
        qr_tile_load(1, a, sizeof(a[0]));
        qr_tile_load_past(2, b, sizeof(b[0]));
        qr_tile_dp(0, 1, 2);
        qr_tile_store(0, got, sizeof(got[0]));
        qr_tile_release();
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 20; n++) {
                float first = 0, second = 0, want;
                uint32_t untouched = 0x77777777;
                for (int k = 0; k < pairs; k++) {
                    first = flushed(fmaf(bf16(a[m][2 * k]), bf16(b[k][2 * n]), first));
                    second = flushed(fmaf(bf16(a[m][2 * k + 1]), bf16(b[k][2 * n + 1]), second));
                }
                want = flushed(flushed(c[m][n]) + flushed(first + second));
                if (m >= s[0] || n >= s[2])
                    memcpy(&want, &untouched, 4);
                cr_assert(same(bits_of(got[m][n]), want), "trial %d row %d column %d: %a, not %a", trial, m, n, (double)got[m][n], (double)want);
            }
    }
}

Test(tiles, multiply_bytes_of_either_sign_exactly, .init = init)
{
    for (int trial = 0; trial < 90; trial++) {
        uint8_t a[16][64], b[16][64];
        uint32_t c[16][16], got[16][16];
        for (int i = 0; i < 1024; i++) {
            a[i / 64][i % 64] = (uint8_t)(trial < 3 ? 255 : qr_rng_next(&rng));
            b[i / 64][i % 64] = (uint8_t)(trial < 6 ? 128 : qr_rng_next(&rng));
        }
        for (int i = 0; i < 256; i++)
            c[i / 16][i % 16] = (uint32_t)qr_rng_next(&rng);
        configure(16, 64, 16);
        qr_tile_load(0, c, 64);
        qr_tile_load(1, a, 64);
        qr_tile_load(2, b, 64);
        if (trial % 3 == 0)
            qr_tile_dp_signed(0, 1, 2);
        else if (trial % 3 == 1)
            qr_tile_dp_unsigned(0, 1, 2);
        else
            qr_tile_dp_bytes(0, 1, 2);
        qr_tile_store(0, got, 64);
        qr_tile_release();
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 16; n++) {
                uint32_t want = c[m][n];
                for (int k = 0; k < 64; k++) {
                    const uint8_t x = a[m][k], y = b[k / 4][4 * n + k % 4];
                    want += (uint32_t)((trial % 3 == 1 ? x : (int8_t)x) * (trial % 3 == 2 ? y : (int8_t)y));
                }
                cr_assert_eq(got[m][n], want);
            }
    }
}

Test(tiles, zero_and_load_leave_nothing_of_what_was_there)
{
    float x[16][16], got[16][16];
    for (int i = 0; i < 256; i++)
        x[i / 16][i % 16] = (float)i;
    configure(16, 64, 16);
    qr_tile_load(0, x, 64);
    qr_tile_zero(0);
    qr_tile_store(0, got, 64);
    for (int i = 0; i < 256; i++)
        cr_assert_eq(got[i / 16][i % 16], 0.0f);
    qr_tile_release();
}

/* What the processor would not do ends the process. */
#define ENDS(name) Test(tiles, name, .signal = SIGABRT)

ENDS(without_a_configuration_end_the_process)
{
    qr_tile_zero(0);
}

ENDS(after_their_release_end_the_process)
{
    configure(16, 64, 16);
    qr_tile_release();
    qr_tile_zero(0);
}

ENDS(that_the_configuration_leaves_out_end_the_process)
{
    configure(16, 64, 16);
    qr_tile_zero(3);
}

ENDS(of_17_rows_end_the_process)
{
    struct qr_tile_config c = {.palette = 1, .rows = {17}, .row_bytes = {64}};
    qr_tile_configure(&c);
}

ENDS(of_65_bytes_a_row_end_the_process)
{
    struct qr_tile_config c = {.palette = 1, .rows = {16}, .row_bytes = {65}};
    qr_tile_configure(&c);
}

ENDS(with_a_ninth_tile_end_the_process)
{
    struct qr_tile_config c = {.palette = 1, .rows = {[8] = 16}, .row_bytes = {[8] = 64}};
    qr_tile_configure(&c);
}

ENDS(of_palette_2_end_the_process)
{
    struct qr_tile_config c = {.palette = 2, .rows = {16}, .row_bytes = {64}};
    qr_tile_configure(&c);
}

ENDS(whose_columns_and_rows_do_not_meet_end_the_process)
{
    struct qr_tile_config c = {.palette = 1, .rows = {16, 16, 15}, .row_bytes = {64, 64, 64}};
    qr_tile_configure(&c);
    qr_tile_dp(0, 1, 2);
}

ENDS(that_are_factor_and_sum_end_the_process)
{
    configure(16, 64, 16);
    qr_tile_dp(0, 0, 2);
}

ENDS(or_vectors_loaded_aligned_from_elsewhere_end_the_process)
{
    _Alignas(64) static char bytes[128];
    _mm512_storeu_si512(bytes, _mm512_load_si512(bytes + 8));
}
