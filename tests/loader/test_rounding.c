/* Rows rounded to few bits: how far from what they were, and that what is chosen is never worse than what is not. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/e4m3.h"
#include "base/half.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "loader/write/rounding.h"

#define N 512
#define ROWS 40
#define SEED 20261121

/* Numbers of a row: mostly small, every 37th much larger. */
static void make_row(float *w, struct qr_rng *r, int row)
{
    for (int i = 0; i < N; i++)
        w[i] = ((float)qr_rng_next_unit(r) - 0.5f) * ((i + row) % 37 == 0 ? 8 : 1) * ldexpf(1, row % 9 - 4);
}

static double error_of(const int8_t *code, const uint16_t *scale, const float *w, const float *importance, int64_t group, enum qr_rounding type)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        const double off = (double)w[i] - (double)qr_bf16_to_f32(scale[i / group]) * (double)qr_rounded_value(code[i], type);
        sum += (importance ? (double)importance[i] : 1) * off * off;
    }
    return sum;
}

Test(rounding, integers_are_within_half_a_step_of_their_number)
{
    static const struct {
        enum qr_rounding type;
        int64_t group;
    } way[] = {{QR_ROUNDING_INT8, N}, {QR_ROUNDING_INT4, 32}, {QR_ROUNDING_INT4, 128}, {QR_ROUNDING_INT4, N}};
    struct qr_rng r = {.seed = SEED};
    for (int row = 0; row < ROWS; row++) {
        float w[N];
        int8_t code[N];
        uint16_t scale[N];
        make_row(w, &r, row);
        for (int k = 0; k < 4; k++) {
            cr_assert(qr_round_row(&(struct qr_rounded){.code = code, .scale = scale}, w, NULL, N, way[k].group, way[k].type, false));
            for (int i = 0; i < N; i++) {
                const float step = qr_bf16_to_f32(scale[i / way[k].group]);
                /* scale code is exact in f64; the quotient's rounding moves a number by at most 2^-24 of 127 steps */
                cr_assert(fabs((double)w[i] - (double)step * code[i]) <= (double)step * (0.5 + 127 * 0x1p-24), "seed %d row %d [%d]", SEED, row, i);
            }
        }
    }
}

Test(rounding, a_scale_that_is_chosen_is_never_worse_than_the_largest_numbers_and_sometimes_better)
{
    struct qr_rng r = {.seed = SEED + 1};
    int n_better = 0;
    for (int row = 0; row < ROWS; row++) {
        float w[N], importance[N];
        int8_t code[2][N];
        uint16_t scale[2][N];
        make_row(w, &r, row);
        for (int i = 0; i < N; i++)
            importance[i] = (float)qr_rng_next_unit(&r);
        for (int clip = 0; clip < 2; clip++)
            cr_assert(qr_round_row(&(struct qr_rounded){.code = code[clip], .scale = scale[clip]}, w, importance, N, 128, QR_ROUNDING_INT4, clip));
        const double without = error_of(code[0], scale[0], w, importance, 128, QR_ROUNDING_INT4);
        const double with = error_of(code[1], scale[1], w, importance, 128, QR_ROUNDING_INT4);
        cr_assert(with <= without, "seed %d row %d: %g, %g without", SEED, row, with, without);
        n_better += with < without;
    }
    cr_assert_gt(n_better, 0);
}

Test(rounding, numbers_of_eight_bits_are_the_nearest_that_there_are)
{
    struct qr_rng r = {.seed = SEED + 2};
    for (int byte = 0; byte < 256; byte++)
        cr_assert((byte & 0x7f) == 0x7f || qr_f32_to_e4m3(qr_e4m3_to_f32((uint8_t)byte)) == byte, "%d", byte);
    for (int i = 0; i < 4000; i++) {
        const float x = ((float)qr_rng_next_unit(&r) - 0.5f) * ldexpf(1, i % 24 - 14);
        const float off = fabsf(x - qr_e4m3_to_f32(qr_f32_to_e4m3(x)));
        for (int byte = 0; byte < 256; byte++)
            cr_assert((byte & 0x7f) == 0x7f || off <= fabsf(x - qr_e4m3_to_f32((uint8_t)byte)), "seed %d: %a", SEED, (double)x);
    }
    cr_assert_eq(qr_f32_to_e4m3(464), 0x7e, "the largest, and not NaN");
    cr_assert_eq(qr_f32_to_e4m3(-1e30f), 0xfe);
    cr_assert_eq(qr_f32_to_e4m3(1.0625f), qr_f32_to_e4m3(1), "a tie goes to the even one");
    cr_assert_eq(qr_f32_to_e4m3(1.1875f), qr_f32_to_e4m3(1.25f));
}

Test(rounding, zeros_stay_zeros_and_what_is_not_finite_is_refused)
{
    static const enum qr_rounding type[] = {QR_ROUNDING_INT8, QR_ROUNDING_INT4, QR_ROUNDING_FP8};
    for (int k = 0; k < 3; k++) {
        float w[N] = {0};
        int8_t code[N];
        uint16_t scale[N];
        cr_assert(qr_round_row(&(struct qr_rounded){.code = code, .scale = scale}, w, NULL, N, 128, type[k], true));
        cr_assert_eq(error_of(code, scale, w, NULL, 128, type[k]), 0);
        w[200] = NAN;
        cr_assert_not(qr_round_row(&(struct qr_rounded){.code = code, .scale = scale}, w, NULL, N, 128, type[k], true));
        w[200] = -INFINITY;
        cr_assert_not(qr_round_row(&(struct qr_rounded){.code = code, .scale = scale}, w, NULL, N, 128, type[k], true));
    }
}

Test(rounding, a_zero_of_its_own_is_never_worse_and_much_better_where_numbers_lie_on_one_side)
{
    struct qr_rng r = {.seed = SEED + 3};
    for (int row = 0; row < ROWS; row++) {
        float w[N];
        int8_t code[2][N], zero[N / 64];
        uint16_t scale[2][N];
        double error[2] = {0};
        make_row(w, &r, row);
        for (int i = 0; i < N; i++) /* odd rows: numbers from about -1 to 3 */
            w[i] = row % 2 ? (float)qr_rng_next_unit(&r) * 4 - 1 : w[i];
        cr_assert(qr_round_row(&(struct qr_rounded){.code = code[0], .scale = scale[0]}, w, NULL, N, 64, QR_ROUNDING_INT4, true));
        cr_assert(qr_round_row(&(struct qr_rounded){.code = code[1], .scale = scale[1], .zero = zero}, w, NULL, N, 64, QR_ROUNDING_INT4Z, true));
        for (int i = 0; i < N; i++)
            for (int k = 0; k < 2; k++) {
                cr_assert(code[k][i] >= -8 && code[k][i] <= 7 && zero[i / 64] >= -8 && zero[i / 64] <= 7);
                const double off = (double)w[i] - (double)qr_bf16_to_f32(scale[k][i / 64]) * (code[k][i] - (k ? zero[i / 64] : 0));
                error[k] += off * off;
            }
        /* Steps of 4 / 15 instead of 6 / 15 at least, errors are squares: 0.44; what clipping takes from either is little. */
        cr_assert(error[1] <= error[0] * (row % 2 ? 0.75 : 1 + 1e-12), "seed %d row %d: %g, %g without", SEED + 3, row, error[1], error[0]);
    }
}

Test(rounding, is_the_same_to_the_bit_with_the_loops_of_every_level)
{
    static const enum qr_rounding type[] = {QR_ROUNDING_INT8, QR_ROUNDING_INT4, QR_ROUNDING_FP8, QR_ROUNDING_INT4Z};
    static const int64_t group[] = {32, 64, 128, N, 2};
    const char *names[8];
    struct qr_rng r = {.seed = SEED + 4};
    for (int32_t l = 0, n_levels = qr_cpu_levels(names); l < n_levels; l++) {
        struct qr_err err = {0};
        struct qr_backend *be;
        cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = names[l], .n_threads = 1}, &err), 0, "%s", err.msg);
        for (int i = 0; i < ROWS; i++) {
            float w[N], importance[N];
            int8_t code[2][N] = {0}, zero[2][N] = {0};
            uint16_t scale[2][N] = {0};
            make_row(w, &r, i);
            for (int k = 0; k < N; k++)
                importance[k] = (float)qr_rng_next_unit(&r);
            for (int k = 0; k < 2; k++)
                cr_assert(qr_round_row(&(struct qr_rounded){code[k], scale[k], zero[k], k ? be->k->stored : NULL}, w, i % 3 ? importance : NULL, N,
                                       group[i % 5], type[i % 4], i % 7 != 0));
            cr_assert(memcmp(code[0], code[1], sizeof code[0]) == 0 && memcmp(scale[0], scale[1], sizeof scale[0]) == 0 &&
                      memcmp(zero[0], zero[1], sizeof zero[0]) == 0, "seed %d %s: row %d", SEED + 4, names[l], i);
        }
        qr_backend_close(be);
    }
}
