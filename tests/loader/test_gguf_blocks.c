/* Stored blocks of every type that is decoded, and the values that ggml's own conversion gives them (conformance data, gguf-quants). */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/pack/coded_rows.h"
#include "loader/pack/gguf_blocks.h"
#include "tests/model/rig.h"

static int digit(char c)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(set, c) : NULL;
    return at ? (int)(at - set) : -1;
}

/* Bytes of a base64 text; the caller frees. */
static uint8_t *bytes_of(const struct qr_json *text, size_t *n)
{
    size_t len;
    const char *s = qr_json_str(text, &len);
    uint8_t *out = qr_alloc(len, 1);
    *n = 0;
    uint32_t bits = 0;
    for (size_t i = 0, k = 0; i < len && s[i] != '='; i++) {
        cr_assert(digit(s[i]) >= 0);
        bits = bits << 6 | (uint32_t)digit(s[i]);
        if (++k % 4 != 1)
            out[(*n)++] = (uint8_t)(bits >> ((4 - k % 4) % 4 * 2));
    }
    return out;
}

static struct qr_json *golden(void)
{
    char path[1024];
    struct qr_map_file f;
    struct qr_json *root = NULL;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/gguf-quants/dequant_golden.json", data_dir());
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_json_parse(&root, (const char *)f.data, f.n_bytes, &qr_json_limits_file, &err), 0, "%s", err.msg);
    qr_map_file_close(&f);
    return root;
}

Test(gguf_blocks, every_type_is_decoded_to_the_very_values_of_the_golden)
{
    struct qr_json *root = golden();
    int32_t n_types = 0;
    for (const struct qr_json *t = qr_json_first(qr_json_find(root, "types")); t; t = qr_json_after(t), n_types++) {
        int64_t type;
        size_t n_blocks, n_values;
        cr_assert(qr_json_i64(qr_json_find(t, "ggml_type"), &type));
        uint8_t *blocks = bytes_of(qr_json_find(t, "blocks_base64"), &n_blocks), *values = bytes_of(qr_json_find(t, "values_f32_base64"), &n_values);
        const int64_t n = (int64_t)(n_values / sizeof(float));
        const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)type);
        cr_assert_eq((size_t)(n / l->elements * l->bytes), n_blocks, "%s", l->name);
        float *out = qr_alloc((size_t)n, sizeof *out);
        cr_assert(qr_gguf_decode((enum qr_gguf_type)type, out, blocks, n), "%s", l->name);
        for (int64_t i = 0; i < n; i++) {
            float want;
            memcpy(&want, values + (size_t)i * sizeof want, sizeof want);
            cr_assert(out[i] == want, "%s, number %lld: %.9g, expected %.9g", l->name, (long long)i, (double)out[i], (double)want);
        }
        qr_free(out);
        qr_free(blocks);
        qr_free(values);
    }
    cr_assert_eq(n_types, 14);
    qr_json_free(root);
}

Test(gguf_blocks, codes_of_four_bits_are_levels_of_their_type)
{
    static const enum qr_gguf_type four[] = {QR_GGUF_T_Q4_0, QR_GGUF_T_Q4_1, QR_GGUF_T_Q4_K, QR_GGUF_T_IQ4_NL, QR_GGUF_T_IQ4_XS, QR_GGUF_T_MXFP4};
    struct qr_rng rng = {.seed = 11};
    for (int k = 0; k < QR_COUNT(four); k++) {
        uint8_t block[256];
        int8_t code[QR_GGUF_BLOCK_MAX];
        struct qr_gguf_scales scales;
        const int8_t *level = qr_gguf_levels(four[k]);
        const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)four[k]);
        for (int i = 0; i < 256; i++)
            block[i] = (uint8_t)qr_rng_next(&rng);
        qr_gguf_unpack(four[k], code, &scales, block);
        cr_assert_eq(qr_dtype_coded(qr_gguf_coded(four[k])).bits, 4);
        for (int32_t i = 0; i < l->elements; i++)
            cr_assert(memchr(level, code[i], 16), "%s: %d", l->name, code[i]);
    }
    cr_assert_null(qr_gguf_levels(QR_GGUF_T_Q6_K));
}

/* Kernels of a device have no codes of 2 and 3 bits. */
Test(gguf_blocks, codes_of_two_and_three_bits_have_wider_types_that_keep_them)
{
    static const struct {
        enum qr_gguf_type type;
        enum qr_dtype own, wide;
    } cases[] = {{QR_GGUF_T_Q2_K, QR_C2_G16_SO, QR_C4_G16_SO}, {QR_GGUF_T_Q3_K, QR_C3_G16_S, QR_C4_G16_S}};
    for (int i = 0; i < QR_COUNT(cases); i++) {
        struct qr_stored_code c = {.type = qr_gguf_coded(cases[i].type), .levels = qr_gguf_levels(cases[i].type)};
        const struct qr_coded_format f = qr_dtype_coded(c.type);
        cr_expect_eq(c.type, cases[i].own, "case %d: %s", i, qr_dtype_name(c.type));
        qr_stored_code_widen(&c);
        cr_expect_eq(c.type, cases[i].wide, "case %d: %s", i, qr_dtype_name(c.type));
        for (int level = qr_coded_least(f); level < qr_coded_least(f) + (1 << f.bits); level++)
            cr_expect(memchr(c.levels, level, 16), "case %d, level %d", i, level);
    }
}

/* By hand, from the tables of OCP MX v1.0: codes 0 to 15 in the lower halves of bytes, 15 to 0 in the upper ones, times 2^(e - 127). */
Test(gguf_blocks, mxfp4_is_e2m1_numbers_times_a_power_of_two)
{
    static const float number[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    static const struct {
        uint8_t e;
        float scale;
    } cases[] = {{127, 1}, {128, 2}, {120, 0x1p-7f}, {1, 0x1p-126f}, {0, 0x1p-127f}, {2, 0x1p-125f}, {250, 0x1p123f}};
    float out[32];
    uint8_t block[17];
    for (int k = 0; k < QR_COUNT(cases); k++) {
        block[0] = cases[k].e;
        for (int i = 0; i < 16; i++)
            block[1 + i] = (uint8_t)(i | (15 - i) << 4);
        cr_assert(qr_gguf_decode(QR_GGUF_T_MXFP4, out, block, 32));
        for (int i = 0; i < 32; i++)
            cr_expect_eq(out[i], cases[k].scale * number[i < 16 ? i : 31 - i], "e %d, number %d is %g", cases[k].e, i, (double)out[i]);
    }
    block[0] = 255;
    cr_assert(qr_gguf_decode(QR_GGUF_T_MXFP4, out, block, 32) && isnan(out[0]) && isnan(out[31]));
}

Test(gguf_blocks, types_with_codebooks_are_known_by_size_and_not_decoded)
{
    static const enum qr_gguf_type not_here[] = {QR_GGUF_T_IQ2_XXS, QR_GGUF_T_IQ1_S, QR_GGUF_T_TQ2_0, QR_GGUF_T_Q8_1, QR_GGUF_T_I32};
    float out[QR_GGUF_BLOCK_MAX];
    uint8_t block[300] = {0};
    for (int k = 0; k < QR_COUNT(not_here); k++) {
        cr_assert_not_null(qr_gguf_layout((uint32_t)not_here[k]));
        cr_assert_not(qr_gguf_decode(not_here[k], out, block, QR_GGUF_BLOCK_MAX));
    }
    cr_assert_eq(qr_gguf_coded((enum qr_gguf_type)99), QR_CODED);
}
