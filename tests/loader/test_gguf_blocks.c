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
    static const enum qr_gguf_type four[] = {QR_GGUF_T_Q4_0, QR_GGUF_T_Q4_1, QR_GGUF_T_Q4_K, QR_GGUF_T_IQ4_NL, QR_GGUF_T_IQ4_XS};
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

/* Rows of blocks as a source for linear_pack_coded, the slow way and the short one. */
struct block_rows {
    const uint8_t *data;
    enum qr_gguf_type type;
    int64_t n_in;
};

static const uint8_t *block_row(const void *arg, int64_t i)
{
    const struct block_rows *r = arg;
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)r->type);
    return r->data + i * (r->n_in / l->elements) * l->bytes;
}

static void fill_rows(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct block_rows *r = arg;
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)r->type);
    const struct qr_coded_format f = qr_dtype_coded(qr_gguf_coded(r->type));
    const int64_t n_groups = l->elements / f.group;
    for (int64_t k = 0; k < n * (r->n_in / l->elements); k++) {
        struct qr_gguf_scales s;
        qr_gguf_unpack(r->type, to->level + k * l->elements, &s, block_row(r, first) + k * l->bytes);
        to->scale[k] = s.scale;
        if (f.offset)
            to->offset[k] = s.offset;
        for (int64_t g = 0; f.steps && g < n_groups; g++) {
            to->step[k * n_groups + g] = s.step[g];
            if (f.offset)
                to->offset_step[k * n_groups + g] = s.offset_step[g];
        }
    }
}

static uint8_t *random_blocks(struct qr_rng *rng, enum qr_gguf_type type, int64_t n_numbers, bool extreme)
{
    static const uint8_t extremes[] = {0, 0xff, 0x0f, 0xf0};
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)type);
    const int64_t n = n_numbers / l->elements;
    uint8_t *out = qr_alloc((size_t)(n * l->bytes), 1);
    for (int64_t i = 0; i < n * l->bytes; i++)
        out[i] = extreme ? extremes[qr_rng_next(rng) % QR_COUNT(extremes)] : (uint8_t)qr_rng_next(rng);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            const uint32_t dice = (uint32_t)qr_rng_next(rng);
            const uint16_t h = (uint16_t)(dice % 999 == 0 ? 0x7c00 + dice / 999 % 2 : dice % 9 == 0 ? 0 : (dice >> 8) % 0x7c00 | (dice & 0x8000));
            if (k == 0 || qr_dtype_coded(qr_gguf_coded(type)).offset)
                memcpy(out + i * l->bytes + qr_gguf_coded_blocks(type)->scale_at + 2 * k, &h, sizeof h);
        }
    return out;
}

static const enum qr_gguf_type coded_types[] = {QR_GGUF_T_Q8_0, QR_GGUF_T_Q4_0, QR_GGUF_T_Q4_1, QR_GGUF_T_Q5_0, QR_GGUF_T_Q5_1, QR_GGUF_T_IQ4_NL,
                                                QR_GGUF_T_Q2_K, QR_GGUF_T_Q3_K, QR_GGUF_T_Q4_K, QR_GGUF_T_Q5_K, QR_GGUF_T_Q6_K, QR_GGUF_T_IQ4_XS};
#define FIRST 7 /* rows below, of and above whole panels */
#define N_OUT 90
#define BEHIND 64 /* bytes that are not the matrix's */

/* Random rows of a type, about `width` inputs each: every level packs what it packs where only fill is told, and writes nothing behind. */
static void expect_same(struct qr_rng *rng, enum qr_gguf_type type, int64_t width, bool extreme)
{
    const enum qr_dtype as = qr_gguf_coded(type);
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)type);
    const char *names[8];
    struct block_rows rows = {.type = type, .n_in = (width + l->elements - 1) / l->elements * l->elements};
    uint8_t *data = random_blocks(rng, type, N_OUT * rows.n_in, extreme);
    rows.data = data;
    struct qr_coded_source slow = {.fill = fill_rows, .arg = &rows, .row = block_row, .together = 3 /* which makes no difference either */};
    for (int k = 0; k < 16; k++)
        slow.levels[k] = qr_gguf_levels(type) ? qr_gguf_levels(type)[k] : (int8_t)k;
    struct qr_coded_source brief = slow;
    brief.blocks = qr_gguf_coded_blocks(type);
    for (int32_t level = 1, n_levels = levels_above_ref(names); level < n_levels; level++) {
        struct qr_backend *be = NULL;
        struct qr_err err = {0};
        const struct qr_backend_options o = {.device = "cpu", .isa = names[level], .n_threads = 2};
        cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
        const size_t n = be->k->linear_packed_bytes(as, FIRST + N_OUT, rows.n_in);
        uint8_t *a = qr_alloc_aligned(n + BEHIND, 64), *b = qr_alloc_aligned(n + BEHIND, 64);
        memset(a + n, 0xa5, BEHIND);
        memset(b + n, 0xa5, BEHIND);
        be->k->linear_pack_coded(be->queue, a, as, FIRST + N_OUT, rows.n_in, FIRST, &brief, N_OUT);
        be->k->linear_pack_coded(be->queue, b, as, FIRST + N_OUT, rows.n_in, FIRST, &slow, N_OUT);
        cr_expect(memcmp(a, b, n + BEHIND) == 0, "%s, %s, %lld inputs", names[level], l->name, (long long)rows.n_in);
        qr_free_aligned(a);
        qr_free_aligned(b);
        qr_backend_close(be);
    }
    qr_free(data);
}

Test(gguf_blocks, a_level_that_takes_codes_from_the_file_packs_what_it_packs_of_unpacked_rows)
{
    static const int64_t widths[] = {32, 96, 256, 768, 2144}; /* the last in more than one strip of its panels */
    struct qr_rng rng = {.seed = 20261121};
    printf("seed 20261121\n");
    for (int i = 0; i < QR_COUNT(coded_types) * QR_COUNT(widths); i++) {
        expect_same(&rng, coded_types[i % QR_COUNT(coded_types)], widths[i / QR_COUNT(coded_types)], false);
    }
    cr_assert_null(qr_gguf_coded_blocks(QR_GGUF_T_F16));
}

Test(gguf_blocks, and_so_with_codes_and_steps_at_their_ends_in_rows_longer_than_a_strip)
{
    struct qr_rng rng = {.seed = 20261123};
    printf("seed 20261123\n");
    for (int i = 0; i < QR_COUNT(coded_types); i++)
        expect_same(&rng, coded_types[i], 1280, true);
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

Test(gguf_blocks, types_with_codebooks_are_known_by_size_and_not_decoded)
{
    static const enum qr_gguf_type not_here[] = {QR_GGUF_T_IQ2_XXS, QR_GGUF_T_IQ1_S, QR_GGUF_T_TQ2_0, QR_GGUF_T_MXFP4, QR_GGUF_T_Q8_1, QR_GGUF_T_I32};
    float out[QR_GGUF_BLOCK_MAX];
    uint8_t block[300] = {0};
    for (int k = 0; k < QR_COUNT(not_here); k++) {
        cr_assert_not_null(qr_gguf_layout((uint32_t)not_here[k]));
        cr_assert_not(qr_gguf_decode(not_here[k], out, block, QR_GGUF_BLOCK_MAX));
    }
    cr_assert_eq(qr_gguf_coded((enum qr_gguf_type)99), QR_CODED);
}
