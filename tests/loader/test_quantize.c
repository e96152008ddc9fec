/* A rounded model's file, read back: the very numbers that its rows were rounded to. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"
#include "loader/write/make_model.h"
#include "loader/write/quantize.h"
#include "loader/weights.h"
#include "tests/loader/quantized_dir.h"
#include "tests/temp.h"

#define MODEL QUIRE_SOURCE_DIR "/models/quire-tiny"
#define INPUTS_MAX 512

static float importance[INPUTS_MAX]; /* of every matrix' inputs */

static const float *inputs(void *user, int32_t layer, size_t at)
{
    const int *n_layers = user; /* of the last one nothing is known */
    return at == offsetof(struct qr_layer_weights, down) && layer + 1 < *n_layers ? importance : NULL;
}

/* Rows of a matrix as they should be read. */
static void expect_matrix(const struct qr_tensor_files *from, const struct qr_tensor_files *to, const char *name, const struct qr_quantize_options *o,
                          const float *weight, bool transposed)
{
    const struct qr_stored_tensor *a = qr_tensor_files_find(from, name), *b = qr_tensor_files_find(to, name);
    cr_assert(a && b && b->quantized && b->shape[0] == a->shape[transposed] && b->shape[1] == a->shape[!transposed], "%s", name);
    const int64_t n_out = b->shape[0], n = b->shape[1], group = qr_rounding_is_int4(o->type) ? o->group : n;
    float *was = qr_alloc((size_t)(n_out * n), sizeof *was), *is = qr_alloc((size_t)(n_out * n), sizeof *is);
    if (transposed)
        qr_tensor_files_decode_columns(from, a, was, 0, n_out);
    else
        qr_tensor_files_decode(from, a, was, 0, n_out);
    qr_tensor_files_decode(to, b, is, 0, n_out);
    for (int64_t r = 0; r < n_out; r++) {
        int8_t code[INPUTS_MAX], zero[INPUTS_MAX] = {0};
        uint16_t scale[INPUTS_MAX];
        cr_assert(qr_round_row(&(struct qr_rounded){code, scale, zero, NULL}, was + r * n, weight, n, group, o->type, true));
        for (int64_t i = 0; i < n; i++)
            cr_assert_eq(is[r * n + i], qr_bf16_to_f32(scale[i / group]) * (qr_rounded_value(code[i], o->type) - zero[i / group]), "%s [%d, %d]", name, (int)r,
                         (int)i);
    }
    qr_free(was);
    qr_free(is);
}

Test(quantize, a_file_that_is_written_reads_back_to_the_numbers_that_rows_were_rounded_to)
{
    static const struct {
        enum qr_rounding type;
        int64_t group;
    } way[] = {{QR_ROUNDING_INT8, 0}, {QR_ROUNDING_INT4, 32}, {QR_ROUNDING_INT4, 128}, {QR_ROUNDING_FP8, 0}, {QR_ROUNDING_INT4Z, 64}};
    struct qr_model_config c, again;
    struct qr_tensor_files *from, *to;
    struct qr_err err;
    cr_assert_eq(qr_model_config_read(&c, MODEL, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tensor_files_open(&from, MODEL, NULL, &err), 0, "%s", err.msg);
    for (int i = 0; i < INPUTS_MAX; i++)
        importance[i] = (float)(1 + i * 7 % 13);
#if defined(__SANITIZE_ADDRESS__)
    const int step = 4; /* the accesses of the first and the last */
#else
    const int step = 1;
#endif
    for (int k = 0; k < QR_COUNT(way); k += step) {
        struct qr_backend *be;
        const struct qr_backend_options bo = {.n_threads = 1 + k % 3, .step_rows_max = 1};
        cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
        const struct qr_quantize_options o = {.type = way[k].type, .group = way[k].group, .be = be, .smooth = true, .inputs = inputs, .user = &c.n_layers};
        struct qr_quantize_report report;
        char dir[64];
        temp_dir_make(dir, "quantize");
        quantized_dir_write(dir, from, &c, &o, &report);
        cr_assert(report.n_matrices == 7 * c.n_layers && report.n_calibrated == c.n_layers - 1 && report.n_smoothable == 0 && report.n_left_out == 0);
        cr_assert_eq(qr_model_config_read(&again, dir, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_quantize_admits(&again, NULL, &err), QR_E_UNSUPPORTED);
        cr_assert_eq(qr_tensor_files_open(&to, dir, &again.quant, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_weights_check(to, &again, &err), 0, "%s", err.msg);
        expect_matrix(from, to, "model.layers.0.self_attn.k_proj.weight", &o, NULL, false);
        expect_matrix(from, to, "model.layers.0.mlp.down_proj.weight", &o, importance, false);
        expect_matrix(from, to, "model.layers.4.mlp.down_proj.weight", &o, NULL, false);
        qr_tensor_files_close(to);
        qr_backend_close(be);
        cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
    }
    qr_tensor_files_close(from);
}

Test(quantize, matrices_that_are_stored_with_inputs_first_become_rows_of_outputs)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_GPT2), again;
    struct qr_tensor_files *from, *to;
    struct qr_quantize_report report;
    struct qr_err err;
    struct qr_backend *be;
    const struct qr_backend_options bo = {.n_threads = 2, .step_rows_max = 1};
    char in[64], out[64];
    temp_dir_make(in, "quantize");
    temp_dir_make(out, "quantize");
    cr_assert_eq(qr_model_make(in, &c, &(struct qr_make_options){.store = QR_BF16, .seed = 3, .std = 0.15}, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tensor_files_open(&from, in, NULL, &err), 0, "%s", err.msg);
    const struct qr_quantize_options o = {.type = QR_ROUNDING_INT8, .be = be};
    quantized_dir_write(out, from, &c, &o, &report);
    cr_assert_eq(qr_model_config_read(&again, out, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tensor_files_open(&to, out, &again.quant, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_weights_check(to, &again, &err), 0, "%s", err.msg);
    expect_matrix(from, to, "transformer.h.0.attn.c_attn.weight", &o, NULL, true);
    expect_matrix(from, to, "transformer.h.1.mlp.c_proj.weight", &o, NULL, true);
    qr_tensor_files_close(from);
    qr_tensor_files_close(to);
    qr_backend_close(be);
    cr_assert(qr_dir_remove(in, &err) == 0 && qr_dir_remove(out, &err) == 0, "%s", err.msg);
}

/* A bias of queries whose rows a GGUF converter has mixed, in halves. */
Test(quantize, a_mixed_vector_in_f16_is_written_as_the_numbers_it_has)
{
    static const char bias[] = "model.layers.0.self_attn.q_proj.bias";
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN2), again;
    struct qr_tensor_files *from, *to;
    struct qr_quantize_report report;
    struct qr_err err;
    struct qr_backend *be;
    const struct qr_backend_options bo = {.n_threads = 1, .step_rows_max = 1};
    char in[64], out[64];
    float was[INPUTS_MAX], is[INPUTS_MAX];
    temp_dir_make(in, "quantize");
    temp_dir_make(out, "quantize");
    cr_assert_eq(qr_model_make(in, &c, &(struct qr_make_options){.store = QR_F16, .seed = 3, .std = 0.15}, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tensor_files_open(&from, in, NULL, &err), 0, "%s", err.msg);
    struct qr_stored_tensor *t = (struct qr_stored_tensor *)qr_tensor_files_find(from, bias);
    cr_assert(t && t->n_dims == 1 && t->shape[0] <= INPUTS_MAX);
    t->heads = c.n_heads; /* as loader/stores/gguf_tensors.c has it */
    qr_tensor_files_decode(from, t, was, 0, t->shape[0]);
    quantized_dir_write(out, from, &c, &(struct qr_quantize_options){.type = QR_ROUNDING_INT8, .be = be}, &report);
    cr_assert_eq(qr_model_config_read(&again, out, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tensor_files_open(&to, out, &again.quant, &err), 0, "%s", err.msg);
    const struct qr_stored_tensor *made = qr_tensor_files_find(to, bias);
    cr_assert(made && made->shape[0] == t->shape[0]);
    qr_tensor_files_decode(to, made, is, 0, made->shape[0]);
    for (int64_t i = 0; i < made->shape[0]; i++)
        cr_assert(is[i] == was[i], "number %d: %g, expected %g", (int)i, (double)is[i], (double)was[i]);
    qr_tensor_files_close(from);
    qr_tensor_files_close(to);
    qr_backend_close(be);
    cr_assert(qr_dir_remove(in, &err) == 0 && qr_dir_remove(out, &err) == 0, "%s", err.msg);
}

Test(quantize, a_run_that_is_stopped_says_so)
{
    struct qr_model_config c;
    struct qr_tensor_files *st;
    struct qr_quantize_report report;
    struct qr_err err;
    char dir[64], path[QR_PATH_MAX];
    const _Atomic int stop = 2;
    const struct qr_quantize_options o = {.type = QR_ROUNDING_INT8, .stop = &stop};
    temp_dir_make(dir, "quantize");
    cr_assert_eq(qr_model_config_read(&c, MODEL, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tensor_files_open(&st, MODEL, NULL, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_path_join(path, dir, "m", &err), 0);
    cr_assert_eq(qr_quantize_write(path, st, &c, &o, &report, &err), QR_E_CLOSED);
    qr_tensor_files_close(st);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

Test(quantize, groups_are_the_largest_that_divide_every_matrix)
{
    struct qr_model_config c;
    struct qr_err err;
    int64_t group = 0;
    cr_assert_eq(qr_model_config_read(&c, MODEL, &err), 0, "%s", err.msg);
    cr_assert(qr_quantize_group(&group, &c, 0, &err) == 0 && group == 128);
    cr_assert(qr_quantize_group(&group, &c, 64, &err) == 0 && group == 64);
    c.n_ffn = 512 + 64;
    cr_assert(qr_quantize_group(&group, &c, 0, &err) == 0 && group == 64);
    cr_assert_eq(qr_quantize_group(&group, &c, 128, &err), QR_E_UNSUPPORTED);
    cr_assert(strstr(err.msg, "model.layers.0.mlp.down_proj.weight has 576 inputs") != NULL, "%s", err.msg);
    c.n_ffn = 512 + 16;
    cr_assert_eq(qr_quantize_group(&group, &c, 0, &err), QR_E_UNSUPPORTED);
}
