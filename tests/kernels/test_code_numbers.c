/* Numbers that linear_pack rounds to codes: each group as close as its scale allows, the same at every level, and what round_trip says. */
#include "kernels/code_numbers.h"

#include "kernels/round_trip.h"
#include "tests/kernels/util.h"

#define SEED 4711
#define N_IN 200 /* the last group is a part of one */
#define N_OUT 35

static const enum qr_dtype types[] = {QR_C8_G32, QR_C4_G32, QR_C4_G64, QR_C4_G128};

/* Rows of bf16 of a wide range; row 3 is zeros, row 4 has a group of them and one of numbers that are nearly none. */
static void random_rows(float *w, uint16_t *half, struct qr_rng *r)
{
    for (int i = 0; i < N_OUT * N_IN; i++) {
        const int row = i / N_IN, group = i % N_IN / 32;
        float x = ((float)qr_rng_next_unit(r) * 2 - 1) * (i % 5 == 0 ? 0.02f : 1) * (row % 2 ? 0x1p-9f : 3);
        x = row == 3 || (row == 4 && group == 0) ? 0 : row == 4 && group == 1 ? 0x1p-125f : x;
        half[i] = qr_f32_to_bf16(x);
        w[i] = qr_bf16_to_f32(half[i]);
    }
}

/* The rows of a packed matrix as an embedding reads them. Owned by the caller. */
static float *rows_of(const char *level, enum qr_dtype to, const void *rows, enum qr_dtype from)
{
    struct qr_backend *be = open_level(level, 2, 0);
    int32_t ids[N_OUT];
    const struct qr_tensor table = qr_tensor_2d(NULL, to, N_OUT, N_IN);
    void *packed = qr_alloc_aligned(be->k->linear_packed_bytes(to, N_OUT, N_IN), 64);
    float *out = qr_alloc(N_OUT * N_IN, sizeof *out);
    for (int i = 0; i < N_OUT; i++)
        ids[i] = i;
    be->k->linear_pack(be->queue, packed, to, N_OUT, N_IN, 0, rows, from, N_OUT);
    const struct qr_embed_args a = {.out = out, .table = &table, .packed = packed, .ids = ids, .out_stride = N_IN, .n_rows = N_OUT, .scale = 1};
    be->k->embed(be->queue, &a);
    qr_free_aligned(packed);
    qr_backend_close(be);
    return out;
}

Test(code_numbers, every_level_packs_the_weights_that_round_trip_says)
{
    static float w[N_OUT * N_IN];
    static uint16_t half[N_OUT * N_IN], trip[N_OUT * N_IN];
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    struct qr_rng r = {.seed = SEED};
    random_rows(w, half, &r);
    for (int t = 0; t < QR_COUNT(types); t++) {
        qr_round_trip(trip, half, types[t], N_OUT, N_IN);
        for (int32_t l = 1; l < n_levels; l++) {
            float *out = rows_of(names[l], types[t], l % 2 ? (const void *)w : half, l % 2 ? QR_F32 : QR_BF16);
            for (int i = 0; i < N_OUT * N_IN; i++)
                cr_assert_eq(out[i], qr_bf16_to_f32(trip[i]), "%s %s: number %d of row %d", names[l], qr_dtype_name(types[t]), i % N_IN, i / N_IN);
            qr_free(out);
        }
    }
}

/* 8 bits: a weight is at most half a step from its level. 4 bits: with the extreme number at -8, half a step, or a step where there is no level for its
 * opposite; what is chosen has no larger sum of squares, which is at most the group's number times the square of a step. A scale is rounded to f16 (2^-11 of
 * it), its product to bf16 (2^-9). */
Test(code_numbers, a_weight_is_as_close_as_its_groups_scale_allows)
{
    static float w[N_OUT * N_IN];
    static uint16_t half[N_OUT * N_IN], trip[N_OUT * N_IN];
    struct qr_rng r = {.seed = SEED + 1};
    random_rows(w, half, &r);
    for (int t = 0; t < QR_COUNT(types); t++) {
        const struct qr_coded_format f = qr_dtype_coded(types[t]);
        qr_round_trip(trip, half, types[t], N_OUT, N_IN);
        for (int i = 0; i < N_OUT * N_IN; i++) {
            const int first = i / N_IN * N_IN + i % N_IN / f.group * f.group, end = (i / N_IN + 1) * N_IN;
            float largest = 0;
            for (int k = first; k < first + f.group && k < end; k++)
                largest = fmaxf(largest, fabsf(w[k]));
            const float step = f.bits == 8 ? largest / 254 : sqrtf(f.group) * largest / 8, got = qr_bf16_to_f32(trip[i]);
            if (largest < 0x1p-120f)
                cr_assert_eq(got, 0);
            else
                cr_assert_leq(fabsf(got - w[i]), step + fabsf(w[i]) * (0x1p-8f + 0x1p-10f), "%s: number %d of row %d", qr_dtype_name(types[t]), i % N_IN,
                              i / N_IN);
        }
    }
}

Test(code_numbers, an_infinity_makes_its_row_nan_and_no_other)
{
    static float w[N_OUT * N_IN];
    static uint16_t half[N_OUT * N_IN], trip[N_OUT * N_IN];
    struct qr_rng r = {.seed = SEED + 2};
    random_rows(w, half, &r);
    half[7 * N_IN + 150] = 0x7f80;
    for (int t = 0; t < QR_COUNT(types); t++) {
        qr_round_trip(trip, half, types[t], N_OUT, N_IN);
        for (int i = 0; i < N_OUT * N_IN; i++)
            cr_assert_eq(isnan(qr_bf16_to_f32(trip[i])) != 0, i / N_IN == 7, "%s: number %d", qr_dtype_name(types[t]), i);
    }
}
