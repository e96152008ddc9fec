/* The emulated intrinsics against what Intel's SDM says of each instruction, element by element: integers, bits, permutations, masks. */
#include "tests/isa_emu/each.h"

Test(isa_emu, integers_are_added_multiplied_and_compared_as_the_isa_says, .init = init)
{
    INTS(u8, 64, _mm512_add_epi8(x.i, y.i), (uint8_t)(x.u8[i] + y.u8[i]))
    INTS(u16, 32, _mm512_add_epi16(x.i, y.i), (uint16_t)(x.u16[i] + y.u16[i]))
    INTS(u32, 16, _mm512_add_epi32(x.i, y.i), x.u32[i] + y.u32[i])
    INTS(u64, 8, _mm512_add_epi64(x.i, y.i), x.u64[i] + y.u64[i])
    INTS(u8, 64, _mm512_sub_epi8(x.i, y.i), (uint8_t)(x.u8[i] - y.u8[i]))
    INTS(u16, 32, _mm512_sub_epi16(x.i, y.i), (uint16_t)(x.u16[i] - y.u16[i]))
    INTS(u32, 16, _mm512_sub_epi32(x.i, y.i), x.u32[i] - y.u32[i])
    INTS(u16, 32, _mm512_mullo_epi16(x.i, y.i), (uint16_t)((uint32_t)x.u16[i] * y.u16[i]))
    INTS(u64, 8, _mm512_mul_epu32(x.i, y.i), (uint64_t)x.u32[2 * i] * y.u32[2 * i])
    INTS(u8, 64, _mm512_max_epu8(x.i, y.i), x.u8[i] > y.u8[i] ? x.u8[i] : y.u8[i])
    INTS(u16, 32, _mm512_max_epu16(x.i, y.i), x.u16[i] > y.u16[i] ? x.u16[i] : y.u16[i])
    INTS(u32, 16, _mm512_max_epu32(x.i, y.i), x.u32[i] > y.u32[i] ? x.u32[i] : y.u32[i])
    INTS(s32, 16, _mm512_madd_epi16(x.i, y.i),
         (int32_t)((uint32_t)(x.s16[2 * i] * y.s16[2 * i]) + (uint32_t)(x.s16[2 * i + 1] * y.s16[2 * i + 1])))
#define SATURATED(v, least, most) ((v) < (least) ? (least) : (v) > (most) ? (most) : (v))
    INTS(s16, 32, _mm512_maddubs_epi16(x.i, y.i),
         SATURATED(x.u8[2 * i] * y.s8[2 * i] + x.u8[2 * i + 1] * y.s8[2 * i + 1], -32768, 32767))
    INTS(u32, 16, _mm512_dpbusd_epi32(z.i, x.i, y.i),
         z.u32[i] + (uint32_t)(x.u8[4 * i] * y.s8[4 * i] + x.u8[4 * i + 1] * y.s8[4 * i + 1] + x.u8[4 * i + 2] * y.s8[4 * i + 2] +
                               x.u8[4 * i + 3] * y.s8[4 * i + 3]))
    INTS(u32, 16, _mm512_dpwssd_epi32(z.i, x.i, y.i),
         z.u32[i] + (uint32_t)(x.s16[2 * i] * y.s16[2 * i]) + (uint32_t)(x.s16[2 * i + 1] * y.s16[2 * i + 1]))
    for (int trial = 0; trial < TRIALS; trial++) {
        const union emu_v x = some(), y = trial % 2 ? some() : x;
        uint32_t ge = 0, eq = 0, any = 0, sum = 0, most = 0;
        uint64_t same = 0;
        for (int i = 0; i < 16; i++) {
            ge |= (uint32_t)(x.u32[i] >= y.u32[i]) << i;
            sum += x.u32[i];
            most = x.u32[i] > most ? x.u32[i] : most;
        }
        for (int i = 0; i < 32; i++) {
            eq |= (uint32_t)(x.u16[i] == y.u16[i]) << i;
            any |= (uint32_t)((x.u16[i] & y.u16[i]) != 0) << i;
        }
        for (int i = 0; i < 64; i++)
            same |= (uint64_t)(x.u8[i] == y.u8[i]) << i;
        cr_assert_eq(_mm512_cmpeq_epi8_mask(x.i, y.i), same);
        cr_assert_eq(_mm512_cmpge_epu32_mask(x.i, y.i), ge);
        cr_assert_eq(_mm512_cmpeq_epi16_mask(x.i, y.i), eq);
        cr_assert_eq(_mm512_test_epi16_mask(x.i, y.i), any);
        cr_assert_eq(_mm512_testn_epi16_mask(x.i, y.i), ~any);
        cr_assert_eq((uint32_t)_mm512_reduce_add_epi32(x.i), sum);
        cr_assert_eq(_mm512_reduce_max_epu32(x.i), most);
    }
}

Test(isa_emu, bits_are_moved_as_the_isa_says, .init = init)
{
    INTS(u64, 8, _mm512_and_si512(x.i, y.i), x.u64[i] & y.u64[i])
    INTS(u64, 8, _mm512_or_si512(x.i, y.i), x.u64[i] | y.u64[i])
    INTS(u64, 8, _mm512_xor_si512(x.i, y.i), x.u64[i] ^ y.u64[i])
    INTS(u16, 32, _mm512_slli_epi16(x.i, 5), (uint16_t)(x.u16[i] << 5))
    INTS(u16, 32, _mm512_srli_epi16(x.i, 11), x.u16[i] >> 11)
    INTS(s16, 32, _mm512_srai_epi16(x.i, 3), x.s16[i] >> 3)
    INTS(u32, 16, _mm512_slli_epi32(x.i, 17), x.u32[i] << 17)
    INTS(u32, 16, _mm512_slli_epi32(x.i, 32), 0)
    INTS(u32, 16, _mm512_srli_epi32(x.i, 9), x.u32[i] >> 9)
    INTS(s32, 16, _mm512_srai_epi32(x.i, 24), x.s32[i] >> 24)
    INTS(u64, 8, _mm512_slli_epi64(x.i, 33), x.u64[i] << 33)
    INTS(u64, 8, _mm512_srli_epi64(x.i, 12), x.u64[i] >> 12)
    INTS(u32, 16, _mm512_srlv_epi32(x.i, y.i), y.u32[i] > 31 ? 0 : x.u32[i] >> y.u32[i])
    INTS(u64, 8, _mm512_ternarylogic_epi64(x.i, y.i, z.i, 0xe4), (x.u64[i] & z.u64[i]) | (y.u64[i] & ~z.u64[i]))
    INTS(u64, 8, _mm512_ternarylogic_epi32(x.i, y.i, z.i, 0x6a), (x.u64[i] & y.u64[i]) ^ z.u64[i])
    INTS(u64, 8, _mm512_ternarylogic_epi32(x.i, y.i, z.i, 0xf8), x.u64[i] | (y.u64[i] & z.u64[i]))
    INTS(u64, 8, _mm512_ternarylogic_epi64(x.i, y.i, z.i, 0xea), (x.u64[i] & y.u64[i]) | z.u64[i])
    EACH("mm256_ternarylogic", _mm256_ternarylogic_epi32(x.hi[0], y.hi[0], z.hi[0], 0xe4), hi[0], u64, 4, (x.u64[i] & z.u64[i]) | (y.u64[i] & ~z.u64[i]))
    EACH("mm256_rolv", _mm256_rolv_epi32(x.hi[0], y.hi[0]), hi[0], u32, 8,
         y.u32[i] % 32 ? x.u32[i] << y.u32[i] % 32 | x.u32[i] >> (32 - y.u32[i] % 32) : x.u32[i])
    for (int trial = 0; trial < TRIALS; trial++) { /* a byte is eight bits of its word, one by one */
        const union emu_v x = some(), y = some(), got = {.i = _mm512_multishift_epi64_epi8(x.i, y.i)};
        for (int i = 0; i < 64; i++)
            for (int bit = 0; bit < 8; bit++)
                cr_assert_eq(got.u8[i] >> bit & 1, y.u64[i / 8] >> ((x.u8[i] + bit) % 64) & 1);
    }
}

Test(isa_emu, elements_are_permuted_as_the_isa_says, .init = init)
{
    INTS(u8, 64, _mm512_shuffle_epi8(x.i, y.i), y.u8[i] & 128 ? 0 : x.u8[i / 16 * 16 + (y.u8[i] & 15)])
    INTS(u8, 64, _mm512_permutexvar_epi8(x.i, y.i), y.u8[x.u8[i] % 64])
    INTS(u16, 32, _mm512_permutexvar_epi16(x.i, y.i), y.u16[x.u16[i] % 32])
    INTS(u32, 16, _mm512_permutexvar_epi32(x.i, y.i), y.u32[x.u32[i] % 16])
    EACH("permutexvar_ps", _mm512_permutexvar_ps(x.i, y.f), f, u32, 16, y.u32[x.u32[i] % 16])
    INTS(u16, 32, _mm512_permutex2var_epi16(x.i, y.i, z.i), (y.u16[i] & 32 ? z : x).u16[y.u16[i] % 32])
    INTS(u64, 8, _mm512_permutex2var_epi64(x.i, y.i, z.i), (y.u64[i] & 8 ? z : x).u64[y.u64[i] % 8])
    INTS(u16, 32, _mm512_mask_permutexvar_epi16(z.i, (__mmask32)k, x.i, y.i), k >> i & 1 ? y.u16[x.u16[i] % 32] : z.u16[i])
    INTS(u16, 32, _mm512_maskz_permutexvar_epi16((__mmask32)k, x.i, y.i), k >> i & 1 ? y.u16[x.u16[i] % 32] : 0)
    INTS(u64, 8, _mm512_shuffle_i32x4(x.i, y.i, 0xb1), (i < 4 ? x : y).u64[(0xb1 >> i / 2 * 2 & 3) * 2 + i % 2])
    INTS(u64, 8, _mm512_shuffle_i64x2(x.i, y.i, 0x4e), (i < 4 ? x : y).u64[(0x4e >> i / 2 * 2 & 3) * 2 + i % 2])
    EACH("shuffle_f32x4", _mm512_shuffle_f32x4(x.f, y.f, 0x88), f, u64, 8, (i < 4 ? x : y).u64[(0x88 >> i / 2 * 2 & 3) * 2 + i % 2])
    EACH("shuffle_f64x2", _mm512_shuffle_f64x2(x.d, y.d, 0xdd), d, u64, 8, (i < 4 ? x : y).u64[(0xdd >> i / 2 * 2 & 3) * 2 + i % 2])
    EACH("shuffle_ps", _mm512_shuffle_ps(x.f, y.f, 0x8d), f, u32, 16, (i % 4 < 2 ? x : y).u32[i / 4 * 4 + (0x8d >> i % 4 * 2 & 3)])
    INTS(u8, 64, _mm512_unpacklo_epi8(x.i, y.i), (i % 2 ? y : x).u8[i / 16 * 16 + i % 16 / 2])
    INTS(u8, 64, _mm512_unpackhi_epi8(x.i, y.i), (i % 2 ? y : x).u8[i / 16 * 16 + i % 16 / 2 + 8])
    INTS(u16, 32, _mm512_unpacklo_epi16(x.i, y.i), (i % 2 ? y : x).u16[i / 8 * 8 + i % 8 / 2])
    INTS(u16, 32, _mm512_unpackhi_epi16(x.i, y.i), (i % 2 ? y : x).u16[i / 8 * 8 + i % 8 / 2 + 4])
    INTS(u32, 16, _mm512_unpacklo_epi32(x.i, y.i), (i % 2 ? y : x).u32[i / 4 * 4 + i % 4 / 2])
    INTS(u32, 16, _mm512_unpackhi_epi32(x.i, y.i), (i % 2 ? y : x).u32[i / 4 * 4 + i % 4 / 2 + 2])
    INTS(u64, 8, _mm512_unpacklo_epi64(x.i, y.i), (i % 2 ? y : x).u64[i / 2 * 2])
    INTS(u64, 8, _mm512_unpackhi_epi64(x.i, y.i), (i % 2 ? y : x).u64[i / 2 * 2 + 1])
    EACH("unpacklo_ps", _mm512_unpacklo_ps(x.f, y.f), f, u32, 16, (i % 2 ? y : x).u32[i / 4 * 4 + i % 4 / 2])
    EACH("unpackhi_ps", _mm512_unpackhi_ps(x.f, y.f), f, u32, 16, (i % 2 ? y : x).u32[i / 4 * 4 + i % 4 / 2 + 2])
    EACH("unpacklo_pd", _mm512_unpacklo_pd(x.d, y.d), d, u64, 8, (i % 2 ? y : x).u64[i / 2 * 2])
    EACH("unpackhi_pd", _mm512_unpackhi_pd(x.d, y.d), d, u64, 8, (i % 2 ? y : x).u64[i / 2 * 2 + 1])
    INTS(u8, 64, _mm512_packus_epi16(x.i, y.i), SATURATED((i % 16 < 8 ? x : y).s16[i / 16 * 8 + i % 8], 0, 255))
    INTS(u16, 32, _mm512_packus_epi32(x.i, y.i), SATURATED((i % 8 < 4 ? x : y).s32[i / 8 * 4 + i % 4], 0, 65535))
    INTS(u64, 8, _mm512_broadcast_i32x4(x.q[1]), x.u64[2 + i % 2])
    INTS(u64, 8, _mm512_broadcast_i64x4(x.hi[1]), x.u64[4 + i % 4])
    INTS(u64, 8, _mm512_inserti64x4(x.i, y.hi[0], 1), i < 4 ? x.u64[i] : y.u64[i - 4])
    INTS(u64, 8, _mm512_inserti32x4(x.i, y.q[0], 2), i / 2 == 2 ? y.u64[i - 4] : x.u64[i])
    EACH("insertf32x8", _mm512_insertf32x8(x.f, y.hf[0], 1), f, u64, 8, i < 4 ? x.u64[i] : y.u64[i - 4])
    EACH("insertf64x4", _mm512_insertf64x4(x.d, y.hd[0], 1), d, u64, 8, i < 4 ? x.u64[i] : y.u64[i - 4])
    EACH("extracti64x4", _mm512_extracti64x4_epi64(x.i, 1), hi[0], u64, 4, x.u64[4 + i])
    EACH("extractf32x8", _mm512_extractf32x8_ps(x.f, 1), hf[0], u64, 4, x.u64[4 + i])
    INTS(s32, 16, _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), i)
    INTS(s64, 8, _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), i)
    INTS(s64, 8, _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), i)
    INTS(s16, 32, _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), i)
}

Test(isa_emu, masks_choose_elements_and_nothing_else_of_memory_is_touched, .init = init)
{
    INTS(u8, 64, _mm512_mask_mov_epi8(x.i, k, y.i), k >> i & 1 ? y.u8[i] : x.u8[i])
    INTS(u16, 32, _mm512_mask_mov_epi16(x.i, (__mmask32)k, y.i), k >> i & 1 ? y.u16[i] : x.u16[i])
    INTS(u16, 32, _mm512_maskz_mov_epi16((__mmask32)k, y.i), k >> i & 1 ? y.u16[i] : 0)
    INTS(s16, 32, _mm512_maskz_set1_epi16((__mmask32)k, -7), k >> i & 1 ? -7 : 0)
    EACH("mm256_maskz_mov_epi8", _mm256_maskz_mov_epi8((__mmask32)k, x.hi[0]), hi[0], u8, 32, k >> i & 1 ? x.u8[i] : 0)
    EACH("mask_mov_ps", _mm512_mask_mov_ps(x.f, (__mmask16)k, y.f), f, u32, 16, k >> i & 1 ? y.u32[i] : x.u32[i])
    EACH("maskz_mov_ps", _mm512_maskz_mov_ps((__mmask16)k, y.f), f, u32, 16, k >> i & 1 ? y.u32[i] : 0)
    INTS(u32, 16, _mm512_mask_or_epi32(x.i, (__mmask16)k, y.i, z.i), k >> i & 1 ? y.u32[i] | z.u32[i] : x.u32[i])
    INTS(u8, 64, _mm512_maskz_loadu_epi8(k, x.u8), k >> i & 1 ? x.u8[i] : 0)
    INTS(u16, 32, _mm512_maskz_loadu_epi16((__mmask32)k, x.u8), k >> i & 1 ? x.u16[i] : 0)
    INTS(u32, 16, _mm512_maskz_loadu_epi32((__mmask16)k, x.u8), k >> i & 1 ? x.u32[i] : 0)
    EACH("mask_loadu_ps", _mm512_mask_loadu_ps(y.f, (__mmask16)k, x.u8), f, u32, 16, k >> i & 1 ? x.u32[i] : y.u32[i])
    EACH("maskz_loadu_ps", _mm512_maskz_loadu_ps((__mmask16)k, x.u8), f, u32, 16, k >> i & 1 ? x.u32[i] : 0)
    EACH("mm256_maskz_loadu_epi8", _mm256_maskz_loadu_epi8((__mmask32)k, x.u8), hi[0], u8, 32, k >> i & 1 ? x.u8[i] : 0)
    EACH("mm256_maskz_loadu_epi16", _mm256_maskz_loadu_epi16((__mmask16)k, x.u8), hi[0], u16, 16, k >> i & 1 ? x.u16[i] : 0)
    EACH("mm_maskz_loadu_epi8", _mm_maskz_loadu_epi8((__mmask16)k, x.u8), q[0], u8, 16, k >> i & 1 ? x.u8[i] : 0)
    for (int trial = 0; trial < TRIALS; trial++) {
        const union emu_v x = some(), y = some();
        const uint64_t k = qr_rng_next(&rng);
        union emu_v to = y;
        _mm512_mask_storeu_epi8(to.u8, k, x.i);
        for (int i = 0; i < 64; i++)
            cr_assert_eq(to.u8[i], k >> i & 1 ? x.u8[i] : y.u8[i]);
        to = y;
        _mm512_mask_storeu_epi16(to.u8, (__mmask32)k, x.i);
        for (int i = 0; i < 32; i++)
            cr_assert_eq(to.u16[i], k >> i & 1 ? x.u16[i] : y.u16[i]);
        to = y;
        _mm256_mask_storeu_epi16(to.u8, (__mmask16)k, x.hi[0]);
        for (int i = 0; i < 32; i++)
            cr_assert_eq(to.u16[i], i < 16 && (k >> i & 1) ? x.u16[i] : y.u16[i]);
        to = y;
        _mm512_mask_storeu_ps(to.u8, (__mmask16)k, x.f);
        for (int i = 0; i < 16; i++)
            cr_assert_eq(to.u32[i], k >> i & 1 ? x.u32[i] : y.u32[i]);
    }
}
