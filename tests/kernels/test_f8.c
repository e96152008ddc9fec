/* fp8: weights, activations and caches of E4M3 numbers, on the emulated device beside ref, in double where sums are compared. */
#include "tests/kernels/util.h"

#include "base/e4m3.h"
#include "kernels/f8.h"
#include "tests/cuda_emu/emu.h"
#include "tests/kernels/attn_world.h"
#include "tests/kernels/oracle.h"

#define SEED 88

static bool there_is_no_device(void)
{
    const char *lib = getenv("QUIRE_CUDA_EMU_LIB");
    const bool none = !lib || access(lib, R_OK) != 0;
    if (none)
        cr_skip_test("no emulated device: no C++ compiler, or not run through ctest");
    return none;
}

Test(f8, rows_that_are_codes_times_a_scale_keep_what_they_stand_for)
{
    struct qr_rng r = {.seed = SEED};
    float x[200];
    uint16_t half[200];
    uint8_t code[200];
    for (int turn = 0; turn < 40; turn++) {
        const float scale = (1 + (float)qr_rng_below(&r, 1000) / 1000) * ldexpf(1, -(int)qr_rng_below(&r, 12));
        const uint32_t most = 20 + qr_rng_below(&r, 107); /* the largest code of the row, whatever it is */
        for (int i = 0; i < 200; i++) {
            const uint8_t c = (uint8_t)(qr_rng_below(&r, most + 1) | (qr_rng_below(&r, 2) << 7));
            x[i] = scale * qr_e4m3_to_f32(i == 7 ? (uint8_t)most : c);
            half[i] = qr_f32_to_bf16(x[i]);
        }
        const float found = qr_f8_row(code, x, QR_F32, 200);
        for (int i = 0; i < 200; i++)
            cr_assert(fabsf(found * qr_e4m3_to_f32(code[i]) - x[i]) <= 0x1p-20f * fabsf(x[i]), "turn %d, %d: %a %a", turn, i, (double)x[i], (double)found);
        const float near = qr_f8_row(code, half, QR_BF16, 200);
        for (int i = 0; i < 200; i++)
            cr_assert(fabsf(near * qr_e4m3_to_f32(code[i]) - x[i]) <= 0x1.ap-7f * fabsf(x[i]), "bf16: turn %d, %d", turn, i);
    }
}

Test(f8, rows_of_other_numbers_are_rounded_to_nearest_and_what_is_no_number_shows)
{
    struct qr_rng r = {.seed = SEED};
    float x[700];
    uint8_t code[700];
    for (int i = 0; i < 700; i++)
        x[i] = i == 3 ? 0 : random_float(&r);
    const float scale = qr_f8_row(code, x, QR_F32, 700);
    for (int i = 0; i < 700; i++) { /* half a step of a mantissa of four bits, or of 2^-9 */
        const float off = fabsf(x[i] - scale * qr_e4m3_to_f32(code[i]));
        cr_assert(off <= 0x1.01p-4f * fabsf(x[i]) || off <= 0x1.01p-10f * scale, "%a", (double)x[i]);
    }
    x[50] = NAN;
    cr_assert(isnan(qr_f8_row(code, x, QR_F32, 100)));
    memset(x, 0, sizeof x);
    cr_assert_eq(qr_f8_row(code, x, QR_F32, 100), 0);
    cr_assert_eq(code[50], 0);
}

/* Rows of every kind: no code's times a scale, with each mantissa as the largest, zeros, too small, infinite, NaN. */
static void packed_row(struct qr_rng *r, float *x, int32_t n, int32_t kind)
{
    const float scale = (1 + (float)qr_rng_below(r, 1000) / 1000) * ldexpf(1, -(int)qr_rng_below(r, 12));
    for (int32_t i = 0; i < n; i++)
        x[i] = kind < 2 ? random_float(r) : scale * qr_e4m3_to_f32((uint8_t)(qr_rng_below(r, i ? 80 : 1) | (qr_rng_below(r, 2) << 7)));
    if (kind >= 2)
        x[n / 2] = scale * qr_e4m3_to_f32((uint8_t)(80 + kind % 8));
    for (int32_t i = 0; kind >= 10 && i < n; i++)
        x[i] = kind == 10 ? 0 : kind == 11 ? 0x1p-125f : x[i];
    if (kind >= 12)
        x[n / 3] = kind == 12 ? -INFINITY : NAN;
}

Test(f8, the_device_packs_rows_of_each_type_to_the_host_s_bits)
{
    enum { N_OUT = 14, N_IN = 277, WIDE = 288 };
    static const enum qr_dtype types[] = {QR_F32, QR_BF16, QR_F16};
    if (there_is_no_device())
        return;
    struct qr_rng r = {.seed = SEED + 5};
    float *x = qr_alloc(N_OUT * N_IN, sizeof *x);
    uint16_t *half = qr_alloc(N_OUT * N_IN, sizeof *half);
    for (int32_t o = 0; o < N_OUT; o++)
        packed_row(&r, x + o * N_IN, N_IN, o);
    struct qr_backend *be = open_level("cuda", 1, 64);
    uint8_t *packed = qr_alloc_aligned(be->k->linear_packed_bytes(QR_F8, N_OUT, N_IN), 64), code[N_IN];
    const float *scale = (const float *)(const void *)(packed + N_OUT * WIDE);
    for (int t = 0; t < QR_COUNT(types); t++) {
        for (int32_t i = 0; i < N_OUT * N_IN; i++)
            half[i] = types[t] == QR_F16 ? qr_f32_to_f16(x[i]) : qr_f32_to_bf16(x[i]);
        const uint8_t *rows = types[t] == QR_F32 ? (const uint8_t *)x : (const uint8_t *)half;
        be->k->linear_pack(be->queue, packed, QR_F8, N_OUT, N_IN, 0, rows, types[t], N_OUT);
        for (int32_t o = 0; o < N_OUT; o++) {
            const float want = qr_f8_row(code, rows + (size_t)o * N_IN * qr_dtype_bytes(types[t]), types[t], N_IN);
            cr_assert(same_bits(&want, &scale[o], 1), "type %d, row %d: scale %a, %a expected", t, o, (double)scale[o], (double)want);
            cr_assert_eq(memcmp(code, packed + o * WIDE, N_IN), 0, "type %d, row %d", t, o);
            for (int32_t i = N_IN; i < WIDE; i++)
                cr_assert_eq(packed[o * WIDE + i], 0);
        }
    }
    qr_free_aligned(packed), qr_free(x), qr_free(half);
    qr_backend_close(be);
}

struct product {
    struct qr_backend *be;
    struct qr_weight w;
    float *x, *old, *bias;
    int32_t n_in, n_out;
};

static struct product product_new(struct qr_backend *be, int32_t n_rows, int32_t n_in, int32_t n_out, const float *w)
{
    struct qr_rng r = {.seed = SEED + 1};
    struct product p = {.be = be, .n_in = n_in, .n_out = n_out, .x = random_floats(&r, n_rows * n_in), .old = random_floats(&r, n_rows * n_out),
                        .bias = random_floats(&r, n_out)};
    p.w = (struct qr_weight){.packed_dtype = QR_F8, .packed = qr_alloc_aligned(be->k->linear_packed_bytes(QR_F8, n_out, n_in), 64)};
    be->k->linear_pack(be->queue, p.w.packed, QR_F8, n_out, n_in, 0, w, QR_F32, n_out / 3);
    be->k->linear_pack(be->queue, p.w.packed, QR_F8, n_out, n_in, n_out / 3, w + n_out / 3 * n_in, QR_F32, n_out - n_out / 3);
    return p;
}

static void product_drop(struct product *p)
{
    qr_free_aligned(p->w.packed), qr_free(p->x), qr_free(p->old), qr_free(p->bias);
    qr_backend_close(p->be);
}

static float *multiplied(struct product *p, int32_t first, int32_t n, bool bias, bool add)
{
    float *out = qr_alloc_aligned((size_t)(n * p->n_out) * sizeof *out, 64);
    memcpy(out, p->old + first * p->n_out, (size_t)(n * p->n_out) * sizeof *out);
    const struct qr_linear_args a = {.out = out, .x = p->x + first * p->n_in, .w = &p->w, .bias = bias ? p->bias : NULL, .out_stride = p->n_out,
                                     .x_stride = p->n_in, .n_rows = n, .n_in = p->n_in, .n_out = p->n_out, .add = add};
    p->be->k->linear(p->be->queue, &a);
    return out;
}

/* Both sides round x and w to the same codes and scales; products of two codes are exact, so sums differ by gamma of n_in + 4 roundings (the sum's, two of
 * scales, bias, old) of the terms' absolute values. */
static void check_product(int32_t n_rows, int32_t n_in, int32_t n_out, const char *lt_min)
{
    struct qr_rng r = {.seed = SEED + 2};
    float *w = random_floats(&r, n_out * n_in);
    setenv("QUIRE_CUDA_LT_MIN", lt_min, 1);
    struct product d = product_new(open_level("cuda", 3, 64), n_rows, n_in, n_out, w), h = product_new(open_level("ref", 1, 0), n_rows, n_in, n_out, w);
    const float *scale = h.w.packed;
    const uint8_t *codes = (const uint8_t *)(scale + n_out);
    for (int how = 0; how < 3; how++) {
        float *got = multiplied(&d, 0, n_rows, how == 1, how == 2), *want = multiplied(&h, 0, n_rows, how == 1, how == 2);
        for (int32_t n = 0; n < n_rows; n++) {
            float inverse;
            uint8_t q[512];
            const float b = qr_quant_scale(&inverse, qr_quant_max_bits(0, h.x + n * n_in, n_in), QR_E4M3_MAX);
            qr_f8_codes(q, h.x + n * n_in, n_in, inverse);
            for (int32_t o = 0; o < n_out; o++) {
                double size = 0;
                for (int32_t i = 0; i < n_in; i++)
                    size += fabs((double)qr_e4m3_to_f32(q[i]) * (double)qr_e4m3_to_f32(codes[o * n_in + i]));
                size = size * (double)(b * scale[o]) + fabs((double)d.bias[o]) + fabs((double)d.old[n * n_out + o]);
                const double error = fabs((double)got[n * n_out + o] - (double)want[n * n_out + o]);
                cr_assert_leq(error, 2 * gamma_n(n_in + 4) * size, "%d x %d -> %d, row %d, output %d, way %d", n_rows, n_in, n_out, n, o, how);
            }
        }
        for (int32_t n = 0; n < n_rows && strcmp(lt_min, "0") == 0; n += 7) {
            float *alone = multiplied(&d, n, 1, how == 1, how == 2);
            cr_assert(same_bits(alone, got + n * n_out, n_out), "row %d of %d alone", n, n_rows);
            qr_free_aligned(alone);
        }
        qr_free_aligned(got), qr_free_aligned(want);
    }
    if (strcmp(lt_min, "0") != 0) {
        char plans[1024];
        qr_backend_plans(d.be, plans, sizeof plans);
        cr_assert(strstr(plans, "forward fp8 ") && strstr(plans, "cuBLASLt, "), "%s", plans);
        const struct qr_backend_ways ways = qr_backend_ways(d.be);
        cr_assert(ways.fp8 > 0 && ways.fp8_own < ways.fp8, "%d of %d", (int)ways.fp8_own, (int)ways.fp8);
    }
    qr_free(w);
    product_drop(&d), product_drop(&h);
}

Test(f8, products_are_ref_s_within_the_bound_of_their_sums_and_a_row_is_the_same_in_any_batch)
{
    if (there_is_no_device())
        return;
    check_product(1, 33, 20, "0");
    check_product(16, 64, 35, "0");
    check_product(21, 100, 24, "0");
    check_product(70, 48, 33, "0");
}

Test(f8, products_by_cublaslt_are_ref_s_within_the_bound)
{
    if (there_is_no_device())
        return;
    check_product(20, 100, 32, "1");
    check_product(64, 48, 48, "1");
}

Test(f8, a_cublaslt_without_vectors_of_scales_is_not_asked)
{
    if (there_is_no_device())
        return;
    struct qr_rng r = {.seed = SEED + 6};
    char plans[1024];
    void (*set_version)(size_t v);
    *(void **)&set_version = emulated_function("qr_emu_set_lt_version");
    set_version(120800);
    setenv("QUIRE_CUDA_LT_MIN", "1", 1);
    float *w = random_floats(&r, 48 * 48);
    struct product p = product_new(open_level("cuda", 3, 64), 64, 48, 48, w);
    qr_free_aligned(multiplied(&p, 0, 64, false, false));
    qr_backend_plans(p.be, plans, sizeof plans);
    cr_assert_null(strstr(plans, "fp8"), "%s", plans);
    const struct qr_backend_ways ways = qr_backend_ways(p.be);
    cr_assert(ways.fp8 == 1 && ways.fp8_own == 1 && ways.by_library == 0, "that FP8 falls back is not counted");
    set_version(130000);
    qr_free(w);
    product_drop(&p);
}

/* Attention over it is test_attention's. */
Test(f8, keys_and_values_are_ref_s_to_the_bit)
{
    static const int32_t ctx[] = {60, 41, 9}, rows[] = {1, 5, 9};
    const struct qr_attention_case c = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 24, .kv = QR_E4M3};
    if (there_is_no_device())
        return;
    struct world w = world_new(c, 3, ctx, rows, SEED);
    int32_t first[WORLD_SEQS_MAX], count[WORLD_SEQS_MAX];
    for (int s = 0; s < 3; s++)
        first[s] = ctx[s] - rows[s], count[s] = rows[s];
    struct qr_backend *d = open_level("cuda", 3, 0), *h = open_level("ref", 1, 0);
    struct step st = step_new(&w, 16, first, count, SEED);
    struct qr_rng r = {.seed = SEED + 5};
    float *kv = random_floats(&r, 8 * 2 * 48);
    int32_t slot[8];
    uint8_t *base = st.kv.base, *copy = qr_alloc_aligned(st.kv.n_blocks * qr_kv_block_bytes(&st.kv), 64);
    kv[5] = 0, kv[48 + 3] = INFINITY;
    for (int i = 0; i < 8; i++)
        slot[i] = 5 * i;
    memcpy(copy, base, st.kv.n_blocks * qr_kv_block_bytes(&st.kv));
    struct qr_kv_view other = st.kv;
    other.base = copy;
    struct qr_kv_write_args a = {.kv = &st.kv, .k = kv, .v = kv + 8 * 48, .slot = slot, .k_stride = 48, .v_stride = 48, .layer = WORLD_LAYER, .n_rows = 8};
    struct qr_kv_write_args b = a;
    b.kv = &other;
    d->k->kv_write(d->queue, &a);
    h->k->kv_write(h->queue, &b);
    cr_assert_eq(memcmp(copy, base, st.kv.n_blocks * qr_kv_block_bytes(&st.kv)), 0);
    qr_free(kv), qr_free_aligned(copy);
    step_drop(&st), world_drop(&w);
    qr_backend_close(d), qr_backend_close(h);
}

Test(f8, the_processor_refuses_fp8_by_name)
{
    struct qr_err err;
    struct qr_backend *be = NULL;
    const struct qr_backend_options o = {.device = "cpu", .isa = "avx2", .n_threads = 1};
    if (qr_backend_open(&be, &o, &err) != 0)
        cr_skip_test("no avx2");
    cr_assert_eq(qr_backend_supports(be, QR_F8, 64, QR_BF16, 64, 16, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "fp8") && strstr(err.msg, "--quantize int8"), "%s", err.msg);
    cr_assert_eq(qr_backend_supports(be, QR_BF16, 64, QR_E4M3, 64, 16, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "--kv-cache-dtype int8"), "%s", err.msg);
    qr_backend_close(be);
}
