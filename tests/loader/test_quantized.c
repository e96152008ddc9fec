/* Matrices of quantized Hugging Face checkpoints: packed by the libraries that define the layouts, read here to the very numbers; and wrong files. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/coded.h"
#include "loader/pack/coded_rows.h"
#include "loader/config/hf_config.h"
#include "loader/pack/pack_matrix.h"
#include "loader/stores/quantized_tensors.h"
#include "tests/loader/golden_quantized.h"
#include "tests/temp.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define BASE "model.layers.0.mlp.down_proj"

/* Of a tensor of the file, what differs from the golden's. */
struct change {
    const char *part; /* NULL: nothing */
    const char *type; /* NULL: as it is; "": the tensor is missing */
    int64_t shape[2]; /* 0: as it is */
    int32_t dims;     /* likewise */
    int64_t word;     /* this one becomes value, -1: none */
    uint32_t value;
};

static const struct change none = {.word = -1};

static size_t bytes_of(const char *type, int64_t n)
{
    const struct {
        const char *name;
        size_t bytes;
    } size[] = {{"I8", 1}, {"F8_E4M3", 1}, {"F16", 2}, {"BF16", 2}, {"I64", 8}};
    for (int i = 0; i < COUNT(size); i++)
        if (strcmp(size[i].name, type) == 0)
            return size[i].bytes * (size_t)n;
    return 4 * (size_t)n;
}

/* A safetensors file of the golden's tensors. */
static void write_file(struct qr_buf *out, const struct golden_quantized *g, const struct change *c)
{
    struct qr_buf header = {0}, data = {0};
    uint64_t at = 0;
    for (int i = 0; i < GOLDEN_PARTS && g->part[i].name; i++) {
        const struct golden_part *p = &g->part[i];
        const bool changed = c->part && strcmp(c->part, p->name) == 0;
        const char *type = changed && c->type ? c->type : p->type;
        const int32_t n_dims = changed && c->dims ? c->dims : p->n_dims;
        int64_t n = 1, shape[2] = {p->shape[0], p->shape[1]};
        if (!type[0])
            continue;
        for (int k = 0; k < 2 && changed; k++)
            shape[k] = c->shape[k] ? c->shape[k] : shape[k];
        qr_buf_printf(&header, "%s\"" BASE ".%s\":{\"dtype\":\"%s\",\"shape\":[", header.len ? "," : "{", p->name, type);
        for (int32_t k = 0; k < n_dims; k++, n *= shape[k - 1])
            qr_buf_printf(&header, "%s%lld", k ? "," : "", (long long)shape[k]);
        const size_t n_bytes = bytes_of(type, n), have = bytes_of(p->type, (p->n_dims > 0 ? p->shape[0] : 1) * (p->n_dims > 1 ? p->shape[1] : 1));
        qr_buf_printf(&header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)(at + n_bytes));
        for (size_t k = 0; k < n_bytes; k++) {
            const uint32_t word = k < have ? p->words[k / 4] : 0;
            const char byte = (char)((changed && c->word == (int64_t)k / 4 ? c->value : word) >> k % 4 * 8);
            qr_buf_put(&data, &byte, 1);
        }
        at += n_bytes;
    }
    qr_buf_put_str(&header, "}");
    const uint64_t n = header.len;
    qr_buf_put(out, &n, 8);
    qr_buf_put(out, header.data, header.len);
    qr_buf_put(out, data.data, data.len);
    qr_buf_release(&header);
    qr_buf_release(&data);
}

static int scheme_of(struct qr_quant_scheme *s, const char *config, struct qr_err *err)
{
    struct qr_buf text = {0};
    struct qr_json *root;
    qr_buf_printf(&text, "{\"%s\":%s}", strstr(config, "compressed") ? "compression_config" : "quantization_config", config);
    int rc = qr_json_parse(&root, text.data, text.len, &qr_json_limits_file, err);
    cr_assert_eq(rc, 0, "%s", err->msg);
    const struct qr_hf_obj o = {.v = root, .file = "config.json", .prefix = "", .err = err};
    rc = qr_hf_quant_read(s, &o);
    qr_json_free(root);
    qr_buf_release(&text);
    return rc;
}

static int open_golden(struct qr_tensor_files **st, struct qr_buf *file, const struct golden_quantized *g, const struct change *c, struct qr_err *err)
{
    struct qr_quant_scheme s;
    int rc = scheme_of(&s, g->config, err);
    cr_assert_eq(rc, 0, "%s: %s", g->name, err->msg);
    *file = (struct qr_buf){0};
    write_file(file, g, c);
    rc = qr_safetensors_open_memory(st, file->data, file->len, "file", err);
    cr_assert_eq(rc, 0, "%s: %s", g->name, err->msg);
    return qr_quantized_tensors_find(*st, &s, err);
}

Test(quantized, matrices_are_the_numbers_that_their_own_libraries_make_of_them)
{
    for (int i = 0; i < COUNT(golden_quantized); i++) {
        const struct golden_quantized *g = &golden_quantized[i];
        struct qr_tensor_files *st;
        struct qr_buf file;
        struct qr_err err;
        cr_assert_eq(open_golden(&st, &file, g, &none, &err), 0, "%s: %s", g->name, err.msg);
        const struct qr_stored_tensor *t = qr_tensor_files_find(st, BASE ".weight");
        cr_assert(t && t->quantized && t->type->computable && t->n_dims == 2 && t->shape[0] == GOLDEN_O && t->shape[1] == GOLDEN_I, "%s", g->name);
        float row[GOLDEN_O][GOLDEN_I];
        for (int64_t first = 0, n = 0; first < GOLDEN_O; first += n) {
            n = first % 3 == 0 ? 1 : GOLDEN_O - first; /* rows alone and many together are the same */
            qr_tensor_files_decode(st, t, row[first], first, n);
        }
        for (int o = 0; o < GOLDEN_O; o += GOLDEN_STEP)
            for (int k = 0; k < GOLDEN_I; k++)
                cr_assert_eq(row[o][k], ldexpf((float)g->weight[o / GOLDEN_STEP * GOLDEN_I + k], -g->unit), "%s: [%d, %d] is %g", g->name, o, k,
                             (double)row[o][k]);
        qr_tensor_files_close(st);
        qr_buf_release(&file);
    }
}

/* llm-compressor's groups of modules with widths and layouts of their own, one of attention without weights. */
Test(quantized, modules_of_several_widths_and_layouts_are_each_read_as_they_are)
{
    static const char config[] = "{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\",\"config_groups\":{"
                                 "\"a\":{\"format\":\"pack-quantized\",\"weights\":{\"num_bits\":%d,\"type\":\"int\"}},"
                                 "\"b\":{\"format\":\"pack-quantized\",\"weights\":{\"num_bits\":%d,\"type\":\"int\"}},"
                                 "\"c\":{\"weights\":null,\"input_activations\":{\"num_bits\":8}},"
                                 "\"d\":{\"format\":\"float-quantized\",\"weights\":{\"num_bits\":8,\"type\":\"float\"}}}}";
    int n = 0;
    for (int i = 0; i < 2 * COUNT(golden_quantized); i++) {
        struct golden_quantized g = golden_quantized[i / 2];
        struct qr_tensor_files *st;
        struct qr_buf file;
        struct qr_err err;
        char text[sizeof config];
        float row[GOLDEN_I];
        if (!strstr(g.config, "compressed-tensors") || strstr(g.config, "block"))
            continue;
        snprintf(text, sizeof text, config, i % 2 ? 4 : 8, i % 2 ? 8 : 4);
        g.config = text;
        cr_assert_eq(open_golden(&st, &file, &g, &none, &err), 0, "%s: %s", g.name, err.msg);
        for (int o = 0; o < GOLDEN_O; o += GOLDEN_STEP) {
            qr_tensor_files_decode(st, qr_tensor_files_find(st, BASE ".weight"), row, o, 1);
            for (int k = 0; k < GOLDEN_I; k++)
                cr_assert_eq(row[k], ldexpf((float)g.weight[o / GOLDEN_STEP * GOLDEN_I + k], -g.unit), "%s: [%d, %d]", g.name, o, k);
        }
        qr_tensor_files_close(st);
        qr_buf_release(&file);
        n++;
    }
    cr_assert_geq(n, 12, "%d", n);
}

static const struct golden_quantized *golden(const char *name)
{
    for (int i = 0; i < COUNT(golden_quantized); i++)
        if (strcmp(golden_quantized[i].name, name) == 0)
            return &golden_quantized[i];
    cr_assert_fail("no golden is called %s", name);
    return NULL;
}

#define SYMMETRIC_I 64

/* 4-bit GPTQ of 12 outputs, two groups of 32: every stored zero is 7, for a zero of 8, but the one at `odd` (-1: none), which is 8; the half word behind the
 * last outputs is anything. */
struct symmetric {
    uint32_t codes[SYMMETRIC_I / 8 * 12], zeros[4], scales[12];
};

static struct golden_quantized gptq_of_12(struct symmetric *s, int odd)
{
    for (int i = 0; i < COUNT(s->codes); i++)
        s->codes[i] = 0x9e3779b9u * (uint32_t)(i + 1);
    for (int i = 0; i < COUNT(s->scales); i++)
        s->scales[i] = 0x2c532a01u + (uint32_t)i * 0x00110003u; /* two of f16, with full mantissas */
    for (int i = 0; i < COUNT(s->zeros); i++)
        s->zeros[i] = i % 2 ? 0xfedc7777u : 0x77777777u;
    if (odd >= 0)
        s->zeros[odd / 12 * 2 + odd % 12 / 8] += 1u << odd % 12 % 8 * 4;
    return (struct golden_quantized){"gptq of 12", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}",
                                     {{"qweight", "I32", 2, {SYMMETRIC_I / 8, 12}, s->codes}, {"qzeros", "I32", 2, {2, 2}, s->zeros},
                                      {"scales", "F16", 2, {2, 12}, s->scales}}, NULL, 0};
}

/* The numbers of a coded row as they are packed. */
static void packed_numbers(uint16_t out[12][SYMMETRIC_I], const struct qr_tensor_files *st, const struct qr_stored_tensor *t, enum qr_dtype as)
{
    const struct qr_coded_format f = qr_dtype_coded(as);
    float memory[12 * (4 + 1 + SYMMETRIC_I / 4 + 4)];
    cr_assert_leq(qr_coded_rows_bytes(f, SYMMETRIC_I, 12), (int64_t)sizeof memory);
    const struct qr_coded_rows rows = qr_coded_rows_in(memory, f, SYMMETRIC_I, 12);
    qr_quantized_fill(st, t, as, &rows, 0, 12, 0, SYMMETRIC_I);
    for (int o = 0; o < 12; o++) {
        const struct qr_coded_rows row = qr_coded_row(&rows, f, SYMMETRIC_I, o);
        for (int i = 0; i < SYMMETRIC_I; i++)
            out[o][i] = qr_coded_weight(&row, f, qr_coded_factor(&row, f, SYMMETRIC_I), i);
    }
}

Test(quantized, four_bit_zeros_that_are_all_in_the_middle_are_not_kept_and_the_weights_are_the_same_to_the_bit)
{
    for (int odd = -1; odd < 24; odd++) {
        struct symmetric s;
        const struct golden_quantized g = gptq_of_12(&s, odd);
        struct qr_tensor_files *st;
        struct qr_buf file;
        struct qr_err err = {0};
        struct qr_stored_code code;
        uint16_t with[12][SYMMETRIC_I], without[12][SYMMETRIC_I];
        float number[12][SYMMETRIC_I];
        cr_assert_eq(open_golden(&st, &file, &g, &none, &err), 0, "%s", err.msg);
        const struct qr_stored_tensor *t = qr_tensor_files_find(st, BASE ".weight");
        cr_assert(t && qr_stored_code(&code, t));
        cr_expect_eq(code.type, odd < 0 ? QR_C4_G32 : QR_C4_G32_Z, "zero %d", odd);
        cr_expect(code.levels[0] == (odd < 0 ? -8 : 0) && code.levels[15] == (odd < 0 ? 7 : 15));
        packed_numbers(with, st, t, QR_C4_G32_Z);
        packed_numbers(without, st, t, code.type);
        cr_expect_eq(memcmp(with, without, sizeof with), 0, "zero %d", odd);
        qr_tensor_files_decode(st, t, number[0], 0, 12);
        for (int i = 0; i < 12 * SYMMETRIC_I; i++)
            cr_assert_eq(without[i / SYMMETRIC_I][i % SYMMETRIC_I], qr_f32_to_bf16(number[i / SYMMETRIC_I][i % SYMMETRIC_I]), "zero %d, number %d", odd, i);
        const struct qr_stored_rows rows = {.files = st, .t = t, .as = {QR_C4_G32_Z, code.levels}, .cols = {0, SYMMETRIC_I}};
        cr_expect_eq(qr_stored_source(&rows).levels[15], 15, "zero %d", odd);
        qr_tensor_files_close(st);
        qr_buf_release(&file);
    }
}

/* ---- in a file ---- */

#define LONG_I 4160 /* words of zeros and numbers of an order are more than are looked at at a time */
#define LONG_O 128
#define WIDE_O 512  /* whose codes, more than 1 MiB, all threads read, to one place or some inputs each */
#define LONG_ZEROS (LONG_I / 32 * LONG_O / 8)

struct long_matrix {
    uint32_t codes[LONG_I / 8 * WIDE_O], zeros[LONG_I / 32 * WIDE_O / 8], scales[LONG_I / 32 * WIDE_O / 2], order[LONG_I];
};

/* 4-bit GPTQ, groups of 32. Zeros are in the middle but for word `odd` of them, the order is the inputs' own but for input `moved` and the first (-1: none). */
static struct golden_quantized long_gptq(struct long_matrix *m, int n_out, int odd, int moved)
{
    for (int i = 0; i < COUNT(m->codes); i++)
        m->codes[i] = 0x9e3779b9u * (uint32_t)(i + 1);
    for (int i = 0; i < COUNT(m->scales); i++)
        m->scales[i] = 0x2c532a01u + (uint32_t)(i % 64) * 0x00110003u;
    for (int i = 0; i < COUNT(m->zeros); i++)
        m->zeros[i] = i == odd ? 0x77767777u : 0x77777777u;
    for (int i = 0; i < LONG_I; i++)
        m->order[i] = (uint32_t)i / 32;
    if (moved >= 0) {
        m->order[0] = (uint32_t)moved / 32;
        m->order[moved] = 0;
    }
    return (struct golden_quantized){"long gptq", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}",
                                     {{"qweight", "I32", 2, {LONG_I / 8, n_out}, m->codes}, {"qzeros", "I32", 2, {LONG_I / 32, n_out / 8}, m->zeros},
                                      {"scales", "F16", 2, {LONG_I / 32, n_out}, m->scales}, {"g_idx", "I32", 1, {LONG_I, 0}, m->order}}, NULL, 0};
}

/* The same with all inputs out of order. */
static struct golden_quantized shuffled_gptq(struct long_matrix *m, int n_out, int odd)
{
    const struct golden_quantized g = long_gptq(m, n_out, odd, -1);
    for (int i = 0; i < LONG_I; i++)
        m->order[i * 7 % LONG_I] = (uint32_t)i / 32; /* 7 does not divide it */
    return g;
}

/* The same numbers as AWQ's, asymmetric, zeros far from scales in the file. */
static struct golden_quantized long_awq(struct long_matrix *m, int n_out)
{
    struct golden_quantized g = long_gptq(m, n_out, 0, -1);
    g.config = "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"zero_point\":true,\"version\":\"gemm\"}";
    g.part[0] = g.part[1];
    g.part[1] = (struct golden_part){"qweight", "I32", 2, {LONG_I, n_out / 8}, m->codes};
    g.part[3] = (struct golden_part){0};
    return g;
}

/* As the loader packs it, its first rows and the others apart from each other (0: all at once). owned. failed: the file that could not be read, or -1. */
static uint8_t *packed_matrix(size_t *n_bytes, int32_t *failed, const struct qr_tensor_files *st, struct qr_backend *be, int64_t first)
{
    struct qr_stored_code code;
    const struct qr_stored_tensor *t = qr_tensor_files_find(st, BASE ".weight");
    cr_assert(t && qr_stored_code(&code, t));
    struct qr_weight w = {.packed_dtype = code.type, .t = qr_tensor_2d(NULL, code.type, t->shape[0], LONG_I)};
    *n_bytes = be->k->linear_packed_bytes(code.type, t->shape[0], LONG_I);
    uint8_t *packed = qr_alloc_aligned(*n_bytes, 64);
    w.packed = packed;
    struct qr_packer *p = qr_packer_new(be, st);
    for (int64_t row = 0, n = first > 0 ? first : t->shape[0]; row < t->shape[0]; row += n, n = t->shape[0] - row)
        qr_packer_matrix(p, &w, row, t, &(struct qr_cut){.rows = {row, n}, .cols = {0, LONG_I}, .coded = true});
    qr_packer_run(p);
    *failed = qr_packer_failed(p);
    qr_packer_free(p);
    return packed;
}

/* odd: every tensor begins at an odd place. */
static void put_file(const char *path, const struct qr_buf *file, bool odd)
{
    struct qr_err err = {0};
    struct qr_buf put = {0};
    uint64_t n_head;
    memcpy(&n_head, file->data, sizeof n_head);
    const uint64_t n_more = n_head + odd;
    qr_buf_put(&put, &n_more, sizeof n_more);
    qr_buf_put(&put, file->data + sizeof n_head, (size_t)n_head);
    qr_buf_put(&put, " ", odd);
    qr_buf_put(&put, file->data + sizeof n_head + n_head, file->len - sizeof n_head - (size_t)n_head);
    cr_assert_eq(qr_file_put(path, put.data, put.len, &err), 0, "%s", err.msg);
    qr_buf_release(&put);
}

static void see_and_pack(const char *isa)
{
    static const int odd[] = {-1, 0, 15, 16, 2047, 2048, 2063, 2064, LONG_ZEROS - 1}, moved[] = {-1, 32, 2047, 2048, LONG_I - 1};
    static struct long_matrix m;
    struct qr_backend *be;
    struct qr_err err = {0};
    struct qr_quant_scheme s;
    char dir[64], path[100];
    temp_dir_make(dir, "quantized");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = isa, .n_threads = 2}, &err), 0, "%s", err.msg);
    for (int i = 0; i < COUNT(odd) + COUNT(moved) + 6; i++) {
        const int more = i - COUNT(odd) - COUNT(moved), zero = more >= 0 ? (more > 0 ? 0 : -1) : i < COUNT(odd) ? odd[i] : -1;
        const bool wide = more >= 0, awq = more == 2, shuffled = more > 2;
        const int input = shuffled ? 0 : more >= 0 || i < COUNT(odd) ? -1 : moved[i - COUNT(odd)];
        const int some = more == 3 ? WIDE_O : more == 4 ? 48 : 40; /* more than 1 MiB, less, and no whole panels */
        const struct golden_quantized g = awq ? long_awq(&m, WIDE_O) : shuffled ? shuffled_gptq(&m, some, zero)
                                              : long_gptq(&m, wide ? WIDE_O : LONG_O, zero, input);
        int32_t failed;
        struct qr_tensor_files *st[2];
        struct qr_buf file;
        uint8_t *packed[2];
        size_t n[2];
        cr_assert_eq(open_golden(&st[0], &file, &g, &none, &err), 0, "%s", err.msg);
        cr_assert_eq(scheme_of(&s, g.config, &err), 0, "%s", err.msg);
        put_file(path, &file, i % 2);
        cr_assert_eq(qr_safetensors_open(&st[1], dir, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_quantized_tensors_find(st[1], &s, &err), 0, "%s", err.msg);
        for (int k = 0; k < 2; k++) {
            const struct qr_stored_tensor *t = qr_tensor_files_find(st[k], BASE ".weight");
            qr_tensor_files_use(st[k], be->k->stored);
            cr_expect_eq(qr_quantized_coded(t), zero < 0 ? QR_C4_G32 : QR_C4_G32_Z, "zero %d, input %d, file %d", zero, input, k);
            cr_expect_eq(qr_quantized_inputs(t) != NULL, input >= 0, "zero %d, input %d, file %d", zero, input, k);
            packed[k] = packed_matrix(&n[k], &failed, st[k], be, 0);
            cr_assert_eq(failed, -1);
        }
        cr_expect(n[0] == n[1] && memcmp(packed[0], packed[1], n[0]) == 0, "%s, zero %d, input %d", isa, zero, input);
        if (wide) { /* as for a rank */
            qr_free_aligned(packed[1]);
            packed[1] = packed_matrix(&n[1], &failed, st[1], be, 16);
            cr_expect(failed == -1 && memcmp(packed[0], packed[1], n[0]) == 0, "%s, in two parts, zero %d, input %d", isa, zero, input);
        }
        if (wide) { /* becomes shorter */
            cr_assert_eq(truncate(path, (off_t)file.len / 4), 0);
            qr_free_aligned(packed[1]);
            qr_free_aligned(packed_matrix(&n[1], &failed, st[1], be, 0));
            cr_expect_eq(failed, 0, "%s, case %d", isa, i);
            packed[1] = NULL;
        }
        for (int k = 0; k < 2; k++) {
            qr_free_aligned(packed[k]);
            qr_tensor_files_close(st[k]);
        }
        qr_buf_release(&file);
    }
    qr_backend_close(be);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* What is read of a file, a piece or a matrix with all that belongs to it, is what is looked at in memory. */
Test(quantized, an_odd_zero_or_input_is_seen_wherever_it_is_and_a_files_matrix_is_packed_as_one_in_memory)
{
    const char *names[8];
    for (int32_t l = 0, n_levels = qr_cpu_levels(names); l < n_levels; l++)
        see_and_pack(names[l]);
}

/* Codes are read from one file; scales and zeros are looked at where another one is mapped. */
Test(quantized, scales_whose_own_file_becomes_shorter_are_an_error_and_no_signal)
{
    static struct long_matrix m;
    static const char index[] = "{\"weight_map\":{\"" BASE ".qweight\":\"a.safetensors\",\"" BASE ".qzeros\":\"b.safetensors\",\"" BASE
                                ".scales\":\"b.safetensors\"}}";
    const struct golden_quantized all = long_gptq(&m, LONG_O, 0, -1);
    struct golden_quantized codes = all, rest = all;
    const struct golden_quantized *const file[] = {&codes, &rest};
    struct qr_quant_scheme s;
    struct qr_tensor_files *st;
    struct qr_backend *be;
    struct qr_err err = {0};
    char dir[64], path[100];
    int32_t failed;
    size_t n;
    codes.part[1] = (struct golden_part){0}; /* which ends them */
    rest.part[0] = all.part[2];
    rest.part[2] = (struct golden_part){0};
    temp_dir_make(dir, "quantized");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    cr_assert_eq(qr_file_put(path, index, strlen(index), &err), 0, "%s", err.msg);
    for (int i = 0; i < 2; i++) {
        struct qr_buf bytes = {0};
        write_file(&bytes, file[i], &none);
        snprintf(path, sizeof path, "%s/%c.safetensors", dir, 'a' + i);
        cr_assert_eq(qr_file_put(path, bytes.data, bytes.len, &err), 0, "%s", err.msg);
        qr_buf_release(&bytes);
    }
    cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.n_threads = 2}, &err), 0, "%s", err.msg);
    cr_assert_eq(scheme_of(&s, all.config, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_quantized_tensors_find(st, &s, &err), 0, "%s", err.msg);
    qr_free_aligned(packed_matrix(&n, &failed, st, be, 0));
    cr_expect_eq(failed, -1);
    cr_assert_eq(truncate(path, 8), 0); /* the second one */
    qr_free_aligned(packed_matrix(&n, &failed, st, be, 0));
    cr_assert_geq(failed, 0);
    cr_expect(strstr(qr_tensor_files_shard_name(st, failed), "b.safetensors") != NULL, "%s", qr_tensor_files_shard_name(st, failed));
    qr_tensor_files_close(st);
    qr_backend_close(be);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* A mixture of many experts has tens of thousands of matrices, each with the group of each of its inputs. */
Test(quantized, the_orders_of_many_matrices_take_what_memory_they_need)
{
    enum { MATRICES = 120, INPUTS = QR_LINEAR_INPUTS_MAX, GROUPS = INPUTS / 128, OUTPUTS = 8 };
    const struct { const char *name, *type; int64_t rows, cols; } part[] = {
        {"qweight", "I32", INPUTS / 8, OUTPUTS}, {"qzeros", "I32", GROUPS, OUTPUTS / 8}, {"scales", "F16", GROUPS, OUTPUTS}, {"g_idx", "I32", INPUTS, 0}};
    struct qr_buf file = {0};
    struct qr_err err = {0};
    struct qr_quant_scheme s;
    struct qr_tensor_files *st;
    char dir[64], path[100];
    uint64_t at = 0, n = 0;
    qr_buf_put(&file, &n, sizeof n);
    for (int i = 0; i < MATRICES * COUNT(part); i++) {
        const int k = i % COUNT(part);
        const uint64_t begin = at;
        at += bytes_of(part[k].type, part[k].rows * (part[k].cols ? part[k].cols : 1));
        qr_buf_printf(&file, "%s\"experts.%d.up_proj.%s\":{\"dtype\":\"%s\",\"shape\":[%lld", i ? "," : "{", i / COUNT(part), part[k].name, part[k].type,
                      (long long)part[k].rows);
        if (part[k].cols)
            qr_buf_printf(&file, ",%lld", (long long)part[k].cols);
        qr_buf_printf(&file, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin, (unsigned long long)at);
    }
    qr_buf_put_str(&file, "}");
    n = file.len - sizeof n;
    memcpy(file.data, &n, sizeof n);
    temp_dir_make(dir, "quantized");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_file_put(path, file.data, file.len, &err), 0, "%s", err.msg);
    cr_assert_eq(truncate(path, (off_t)(file.len + at)), 0); /* zeros that take no place on disk: all inputs are in the first group */
    cr_assert_eq(scheme_of(&s, "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"desc_act\":true}", &err), 0, "%s", err.msg);
    cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_quantized_tensors_find(st, &s, &err), 0, "%s", err.msg);
    const struct qr_stored_tensor *t = qr_tensor_files_find(st, "experts.119.up_proj.weight");
    cr_expect(t && t->quantized && t->shape[0] == OUTPUTS && t->shape[1] == INPUTS);
    qr_tensor_files_close(st);
    qr_buf_release(&file);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* ---- with the loops of a level, and without ---- */

#define MADE_O 40
#define MADE_I 288
#define SEED 20261123

/* A matrix of random codes. */
struct made {
    uint32_t codes[MADE_O * MADE_I / 4], zeros[MADE_O * MADE_I], scales[MADE_O * MADE_I / 4], order[MADE_I];
    char config[160];
};

/* The groups of inputs: as they come, of any sizes, or of one size and in any order. */
enum order { OWN, ANY, EVEN };

static uint32_t group_of(enum order order, int i, int n_in, int group, struct qr_rng *r)
{
    if (order == ANY)
        return (uint32_t)(qr_rng_next(r) >> 32) % (uint32_t)((n_in + group - 1) / group);
    return (uint32_t)((order == EVEN ? i * 7 % n_in : i) / group); /* 7 divides none of the sizes below */
}

static struct golden_quantized make_matrix(struct made *m, const char *method, int n_in, int group, enum order order, bool symmetric, struct qr_rng *r)
{
    const bool fp8 = strcmp(method, "fp8") == 0, awq = strcmp(method, "awq") == 0;
    const int groups = (n_in + group - 1) / group;
    for (int i = 0; i < COUNT(m->codes); i++)
        m->codes[i] = (uint32_t)qr_rng_next(r) & (fp8 ? 0xfefefefeu : UINT32_MAX); /* no NaN */
    for (int i = 0; i < COUNT(m->zeros); i++)
        m->zeros[i] = symmetric ? (awq ? 0x88888888u : 0x77777777u) : (uint32_t)qr_rng_next(r);
    for (int i = 0; i < COUNT(m->scales); i++)
        m->scales[i] = fp8 ? 0x3a000000u + ((uint32_t)qr_rng_next(r) >> 8) : 0x24002400u + ((uint32_t)qr_rng_next(r) & 0x0fff0fffu);
    for (int i = 0; i < n_in; i++)
        m->order[i] = group_of(order, i, n_in, group, r);
    if (fp8) {
        snprintf(m->config, sizeof m->config, "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":[%d,%d]}", 16, group);
        return (struct golden_quantized){"fp8", m->config, {{"weight", "F8_E4M3", 2, {MADE_O, n_in}, m->codes},
                                                           {"weight_scale_inv", "F32", 2, {(MADE_O + 15) / 16, groups}, m->scales}}, NULL, 0};
    }
    snprintf(m->config, sizeof m->config, "{\"quant_method\":\"%s\",\"bits\":4,\"group_size\":%d%s}", method, group,
             awq ? ",\"zero_point\":true,\"version\":\"gemm\"" : "");
    struct golden_quantized g = {method, m->config, {{"qweight", "I32", 2, {awq ? n_in : n_in / 8, awq ? MADE_O / 8 : MADE_O}, m->codes},
                                                     {"qzeros", "I32", 2, {groups, MADE_O / 8}, m->zeros},
                                                     {"scales", "F16", 2, {groups, MADE_O}, m->scales}}, NULL, 0};
    if (!awq)
        g.part[3] = (struct golden_part){"g_idx", "I32", 1, {n_in, 0}, m->order};
    return g;
}

/* As coded rows; all that is written, behind each other. */
static size_t coded_bytes(char *out, const struct qr_tensor_files *st, const struct qr_stored_tensor *t, enum qr_dtype as, int first, int n)
{
    const struct qr_coded_format f = qr_dtype_coded(as);
    const int64_t n_in = t->shape[1], n_groups = qr_coded_n_groups(f, n_in);
    float *memory = qr_alloc((size_t)qr_coded_rows_bytes(f, n_in, n) + 8, 1);
    const struct qr_coded_rows rows = qr_coded_rows_in(memory, f, n_in, n);
    qr_quantized_fill(st, t, as, &rows, first, n, 0, n_in);
    char *at = mempcpy(out, rows.level, (size_t)(n * n_in));
    at = mempcpy(at, rows.scale, (size_t)(n * n_groups) * sizeof *rows.scale);
    at = f.zero ? mempcpy(at, rows.offset_step, (size_t)(n * n_groups)) : at;
    qr_free(memory);
    return (size_t)(at - out);
}

/* E4M3 codes: the weights are what the row decodes to, rounded. */
static void expect_numbers(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, const float *decoded, int first, int n, const char *what)
{
    const struct qr_coded_format f = qr_dtype_coded(QR_C8_E4M3);
    const int64_t n_in = t->shape[1];
    float *memory = qr_alloc((size_t)qr_coded_rows_bytes(f, n_in, n), 1);
    const struct qr_coded_rows rows = qr_coded_rows_in(memory, f, n_in, n);
    qr_quantized_fill(st, t, QR_C8_E4M3, &rows, first, n, 0, n_in);
    for (int o = 0; o < n; o++) {
        const struct qr_coded_rows row = qr_coded_row(&rows, f, n_in, o);
        for (int64_t i = 0; i < n_in; i++)
            cr_assert_eq(qr_coded_weight(&row, f, 1, i), qr_f32_to_bf16(decoded[o * n_in + i]), "%s: row %d, number %d", what, o, (int)i);
    }
    qr_free(memory);
}

/* Coded rows whose inputs are sorted: each input once, of a group those that the file says, and the numbers are those that the row decodes to. */
static void expect_sorted(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, const uint32_t *group_of_input, int64_t group, const char *what)
{
    const enum qr_dtype as = qr_quantized_coded(t);
    const struct qr_coded_format f = qr_dtype_coded(as);
    const int32_t *inputs = qr_quantized_inputs(t);
    const int64_t n_in = t->shape[1], n_groups = qr_coded_n_groups(f, n_in);
    float decoded[MADE_O * MADE_I], *memory = qr_alloc((size_t)qr_coded_rows_bytes(f, n_in, MADE_O), 1);
    const struct qr_coded_rows rows = qr_coded_rows_in(memory, f, n_in, MADE_O);
    bool seen[MADE_I] = {false};
    for (int64_t i = 0; i < n_in; i++) {
        cr_assert(inputs[i] >= 0 && inputs[i] < n_in && !seen[inputs[i]], "%s: place %d", what, (int)i);
        cr_assert_eq(group_of_input[inputs[i]], (uint32_t)(i / group), "%s: place %d", what, (int)i);
        seen[inputs[i]] = true;
    }
    qr_tensor_files_decode(st, t, decoded, 0, MADE_O);
    qr_quantized_fill(st, t, as, &rows, 0, MADE_O, 0, n_in);
    for (int64_t k = 0; k < MADE_O * n_in; k++) {
        const int64_t o = k / n_in, i = k % n_in, g = o * n_groups + i / f.group;
        const float w = rows.scale[g] * (float)(rows.level[k] - (f.zero ? rows.offset_step[g] : 0));
        cr_assert_eq(w, decoded[o * n_in + inputs[i]], "%s: row %d, place %d", what, (int)o, (int)i);
    }
    qr_free(memory);
}

/* As words: each has the codes that the levels of `coded`, rows [0, n), are. */
static void expect_words(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, enum qr_dtype as, const char *coded, int first, int n,
                         const char *what)
{
    const struct qr_coded_format f = qr_dtype_coded(as);
    const int64_t n_in = t->shape[1], pitch = n + 3;
    float *memory = qr_alloc((size_t)qr_coded_rows_bytes(f, n_in, n), 1);
    static uint32_t words[MADE_I / 8 * (MADE_O + 3)];
    struct qr_coded_rows rows = qr_coded_rows_in(memory, f, n_in, n);
    rows.words = words;
    rows.words_pitch = pitch;
    qr_quantized_fill(st, t, as, &rows, first, n, 0, n_in);
    for (int64_t k = 0; k < n * n_in; k++) {
        const int64_t o = k / n_in, i = k % n_in;
        const int code = words[i / 8 * pitch + o] >> (i % 4 * 8 + i % 8 / 4 * 4) & 15;
        cr_assert_eq(code, coded[k] - qr_quantized_levels(t, as)[0], "%s: words, row %d, input %d", what, first + (int)o, (int)i);
    }
    qr_free(memory);
}

static void expect_the_same(struct qr_tensor_files *st, const struct qr_stored_tensor *t, const struct qr_stored_ops *ops, const char *what)
{
    static const int piece[][2] = {{0, 16}, {16, 24}, {0, 40}, {8, 8}, {3, 7}, {39, 1}};
    const enum qr_dtype as = qr_quantized_coded(t);
    const int n_in = (int)t->shape[1];
    float plain[MADE_O * MADE_I], by_ops[MADE_O * MADE_I];
    char coded[2][MADE_O * MADE_I * 2];
    for (int i = 0; i < COUNT(piece); i++) {
        const int first = piece[i][0], n = piece[i][1];
        const size_t n_bytes = (size_t)(n * n_in) * sizeof *plain;
        qr_tensor_files_use(st, NULL);
        qr_tensor_files_decode(st, t, plain, first, n);
        const size_t len = as == QR_CODED ? 0 : coded_bytes(coded[0], st, t, as, first, n);
        qr_tensor_files_use(st, ops);
        qr_tensor_files_decode(st, t, by_ops, first, n);
        cr_assert_eq(memcmp(plain, by_ops, n_bytes), 0, "%s: rows %d to %d", what, first, first + n);
        if (as != QR_CODED && n_in % 32 == 0 && first % 8 == 0 && n % 8 == 0 && qr_quantized_words(st, t))
            expect_words(st, t, as, coded[0], first, n, what);
        if (as == QR_C8_E4M3)
            expect_numbers(st, t, plain, first, n, what);
        cr_assert(as == QR_CODED || (coded_bytes(coded[1], st, t, as, first, n) == len && memcmp(coded[0], coded[1], len) == 0), "%s: coded rows", what);
    }
}

Test(quantized, are_the_same_to_the_bit_with_the_loops_of_every_level)
{
    static const struct {
        const char *method;
        int n_in, group;
        enum order order;
        bool symmetric;
    } cases[] = {{"gptq", 288, 32, OWN, false}, {"gptq", 128, 64, OWN, true}, {"gptq", 288, 96, ANY, false}, {"gptq", 72, 72, ANY, true},
                 {"gptq", 256, 128, OWN, false}, {"gptq", 288, 32, EVEN, false}, {"gptq", 256, 128, EVEN, true}, {"gptq", 288, 96, EVEN, false},
                 {"gptq", 128, 64, EVEN, true}, {"awq", 288, 32, OWN, false}, {"awq", 256, 128, OWN, false}, {"awq", 192, 64, OWN, true},
                 {"awq", 40, 8, OWN, false}, {"fp8", 256, 128, OWN, false}, {"fp8", 277, 64, OWN, false}, {"fp8", 30, 30, OWN, false},
                 {"fp8", 277, 128, OWN, false}};
    struct qr_rng r = {.seed = SEED};
    const char *names[8];
    for (int32_t l = 0, n_levels = qr_cpu_levels(names); l < n_levels; l++)
        for (int i = 0; i < COUNT(cases); i++) {
            struct made *m = qr_alloc(1, sizeof *m);
            const struct golden_quantized g = make_matrix(m, cases[i].method, cases[i].n_in, cases[i].group, cases[i].order, cases[i].symmetric, &r);
            struct qr_backend *be;
            struct qr_tensor_files *st;
            struct qr_buf file;
            struct qr_err err = {0};
            char what[80];
            snprintf(what, sizeof what, "seed %d, %s, %s of %d in groups of %d", SEED, names[l], g.name, cases[i].n_in, cases[i].group);
            cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = names[l], .n_threads = 1}, &err), 0, "%s", err.msg);
            cr_assert_eq(open_golden(&st, &file, &g, &none, &err), 0, "%s: %s", what, err.msg);
            const struct qr_stored_tensor *t = qr_tensor_files_find(st, BASE ".weight");
            expect_the_same(st, t, be->k->stored, what);
            cr_assert_eq(qr_quantized_inputs(t) != NULL, cases[i].order == EVEN, "%s", what);
            cr_assert(cases[i].order == OWN || (qr_quantized_coded(t) == QR_CODED) == (cases[i].order == ANY), "%s", what);
            if (cases[i].order == EVEN)
                expect_sorted(st, t, m->order, cases[i].group, what);
            qr_tensor_files_close(st);
            qr_buf_release(&file);
            qr_backend_close(be);
            qr_free(m);
        }
}

Test(quantized, parts_that_contradict_each_other_are_refused_by_name)
{
    const struct {
        const char *name;
        struct change change;
        const char *says;
    } row[] = {
        {"gptq, groups of 8", {"scales", "", {0}, 0, -1, 0}, "tensor " BASE ".scales is missing"},
        {"gptq, groups of 8", {"scales", "I32", {0}, 0, -1, 0}, "expected F32, F16 or BF16"},
        {"gptq, groups of 8", {"scales", NULL, {4, 31}, 0, -1, 0}, "a column for each output"},
        {"gptq, groups of 8", {"scales", NULL, {5, 0}, 0, -1, 0}, "as many groups and outputs as scales have"},
        {"gptq, one group", {"scales", NULL, {0, 32}, 1, -1, 0}, "a row for each group"},
        {"gptq, groups of 8", {"qzeros", "F32", {0}, 0, -1, 0}, "as many groups and outputs"},
        {"gptq, groups of 8", {"qzeros", NULL, {0, 5}, 0, -1, 0}, "as many groups and outputs"},
        {"gptq, groups of 8", {"qweight", NULL, {0}, 1, -1, 0}, "two dimensions"},
        {"gptq, act-order", {"g_idx", NULL, {31, 0}, 0, -1, 0}, "the group of each input"},
        {"gptq, act-order", {"g_idx", NULL, {0}, 0, 7, 8}, "input 7 is in group 8 of 8"},
        {"gptq, act-order", {"g_idx", NULL, {0}, 0, 31, 0xffffffffu}, "input 31 is in group -1 of 8"},
        {"awq, groups of 8", {"qzeros", "", {0}, 0, -1, 0}, "qzeros is missing"},
        {"awq, groups of 8", {"qweight", NULL, {0, 3}, 0, -1, 0}, "a column for each output"},
        {"fp8 in blocks", {"weight_scale_inv", NULL, {3, 0}, 0, -1, 0}, "one for each block"},
        {"fp8 in blocks", {"weight_scale_inv", "", {0}, 0, -1, 0}, "by which " BASE ".weight is multiplied"},
    };
    for (int i = 0; i < COUNT(row); i++) {
        struct qr_tensor_files *st;
        struct qr_buf file;
        struct qr_err err = {0};
        cr_assert_neq(open_golden(&st, &file, golden(row[i].name), &row[i].change, &err), 0, "%s: %s", row[i].name, row[i].says);
        cr_assert(err.code == QR_E_DAMAGED && strstr(err.msg, row[i].says), "%s: \"%s\" does not say \"%s\"", row[i].name, err.msg, row[i].says);
        qr_tensor_files_close(st);
        qr_buf_release(&file);
    }
}

/* Whatever a part's shape and type are said to be: refused, or read without a fault. */
Test(quantized, no_shape_and_no_type_of_a_part_reads_beyond_it)
{
    static const char *const type[] = {NULL, "I8", "I32", "F16", "F32", "F8_E4M3", "I64"};
    static const int64_t size[] = {0, 1, 2, 3, 4, 7, 8, 16, 31, 33, 64};
    int n_read = 0, n_refused = 0;
    for (int i = 0; i < COUNT(golden_quantized); i++)
        for (int p = 0; p < GOLDEN_PARTS && golden_quantized[i].part[p].name; p++)
            for (int s = 0; s < COUNT(size) * COUNT(type); s++) {
                const struct change c = {.part = golden_quantized[i].part[p].name, .type = type[s % COUNT(type)], .word = -1,
                                         .shape = {size[s / COUNT(type)], size[(s * 5 + p) % COUNT(size)]}};
                struct qr_tensor_files *st;
                struct qr_buf file;
                struct qr_err err;
                const int rc = open_golden(&st, &file, &golden_quantized[i], &c, &err);
                const struct qr_stored_tensor *t = rc ? NULL : qr_tensor_files_find(st, BASE ".weight");
                if (t && t->quantized) {
                    float *rows = qr_alloc((size_t)(t->shape[0] * t->shape[1]), sizeof *rows);
                    qr_tensor_files_decode(st, t, rows, 0, t->shape[0]);
                    qr_free(rows);
                }
                n_read += rc == 0;
                n_refused += rc != 0;
                qr_tensor_files_close(st);
                qr_buf_release(&file);
            }
    cr_assert(n_read > 100 && n_refused > 1000, "%d read, %d refused", n_read, n_refused);
}

Test(quantized, what_cannot_be_read_is_refused_by_name)
{
    static const char *const row[][2] = {
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}", "quantization_config.quant_method is \"bitsandbytes\"; expected GPTQ, AWQ"},
        {"{\"load_in_8bit\":true}", "bitsandbytes"},
        {"{\"quant_method\":\"hqq\"}", "\"hqq\"; expected GPTQ"},
        {"{}", "\"unnamed\""},
        {"[]", "expected an object"},
        {"{\"quant_method\":\"gptq\",\"bits\":3}", "bits is 3; expected 4 or 8"},
        {"{\"quant_method\":\"gptq\"}", "quantization_config.bits is missing"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"marlin\"}", "checkpoint_format is \"marlin\""},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}", "version is \"gemv\""},
        {"{\"quant_method\":\"awq\",\"bits\":8}", "bits is 8; expected 4"},
        {"{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", "fmt is \"e5m2\""},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", "two sizes"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\"}", "format is \"nvfp4-pack-quantized\""},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}", "config_groups is missing"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"W4A16\":[\"Linear\"]}}", "W4A16 names a preset"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":3}}}}", "3 bits"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":{}}}", "without weights"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4}},"
         "\"b\":{\"format\":\"nvfp4-pack-quantized\",\"weights\":{\"num_bits\":8}}}}", "config_groups.*.format is \"nvfp4-pack-quantized\""},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4}},"
         "\"b\":{\"weights\":{\"num_bits\":4,\"type\":\"float\"}}}}", "4 bits, type \"float\""},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"sparsity_config\":{\"format\":\"marlin-24\"}}", "marlin-24"},
    };
    for (int i = 0; i < COUNT(row); i++) {
        struct qr_quant_scheme s;
        struct qr_err err = {0};
        cr_assert_neq(scheme_of(&s, row[i][0], &err), 0, "%s", row[i][0]);
        cr_assert(strstr(err.msg, row[i][1]) && strstr(err.msg, "config.json"), "%s: \"%s\" does not say \"%s\"", row[i][0], err.msg, row[i][1]);
    }
}
