/* Experts' matrices out of one tensor: which numbers they are, and which stacks are refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "loader/pack/coded_rows.h"
#include "loader/stores/expert_stacks.h"
#include "loader/stores/quantized_tensors.h"

#define PREFIX "model.layers.7.mlp.experts."

/* A file of one F32 tensor, whose numbers are 0, 1, 2, ... */
static struct qr_tensor_files *open_stack(struct qr_buf *file, const char *name, const char *shape, int32_t n, int code,
                                          struct qr_err *err)
{
    struct qr_tensor_files *st;
    char header[512];
    snprintf(header, sizeof header, "{\"" PREFIX "%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,%d]}}", name, shape, 4 * n);
    const uint64_t len = strlen(header);
    qr_buf_put(file, &len, sizeof len);
    qr_buf_put_str(file, header);
    for (int32_t i = 0; i < n; i++) {
        const float x = (float)i;
        qr_buf_put(file, &x, sizeof x);
    }
    cr_assert_eq(qr_safetensors_open_memory(&st, file->data, file->len, "file", err), 0, "%s", err->msg);
    cr_assert_eq(qr_expert_stacks_find(st, err), code, "%s", err->msg);
    return st;
}

Test(expert_stacks, gates_and_ups_take_turns_among_the_outputs_which_lie_behind_the_inputs)
{
    static const float gate_row[3] = {12 + 2, 16 + 2, 20 + 2}, up_rows[2][3] = {{13, 17, 21}, {15, 19, 23}};
    struct qr_buf file = {0};
    struct qr_err err;
    struct qr_tensor_files *st = open_stack(&file, "gate_up_proj", "[2,3,4]", 24, 0, &err);
    const struct qr_stored_tensor *gate = qr_tensor_files_find(st, PREFIX "1.gate_proj.weight");
    const struct qr_stored_tensor *up = qr_tensor_files_find(st, PREFIX "1.up_proj.weight");
    float got[2][3];
    cr_assert(gate && up && gate->n_dims == 2 && gate->shape[0] == 2 && gate->shape[1] == 3 && !qr_stored_is_plain(gate));
    qr_tensor_files_decode(st, gate, got[0], 1, 1);
    cr_expect_arr_eq(got[0], gate_row, sizeof gate_row);
    qr_tensor_files_decode(st, up, got[0], 0, 2);
    cr_expect_arr_eq(got, up_rows, sizeof up_rows);
    cr_expect_null(qr_tensor_files_find(st, PREFIX "2.up_proj.weight"));
    cr_expect_eq(qr_tensor_files_n_parameters(st), 24);
    qr_tensor_files_close(st);
    qr_buf_release(&file);
}

Test(expert_stacks, biases_are_vectors)
{
    static const float down[3] = {3, 4, 5};
    struct qr_buf file = {0};
    struct qr_err err;
    struct qr_tensor_files *st = open_stack(&file, "down_proj_bias", "[2,3]", 6, 0, &err);
    const struct qr_stored_tensor *t = qr_tensor_files_find(st, PREFIX "1.down_proj.bias");
    float got[3];
    cr_assert(t && t->n_dims == 1 && t->shape[0] == 3);
    qr_tensor_files_decode(st, t, got, 0, 3);
    cr_expect_arr_eq(got, down, sizeof down);
    qr_tensor_files_close(st);
    qr_buf_release(&file);
}

Test(expert_stacks, an_odd_number_of_gates_and_ups_and_no_experts_are_refused_by_name)
{
    static const char *const shape[] = {"[2,3,3]", "[0,3,4]"};
    static const int32_t n[] = {18, 0};
    for (int i = 0; i < 2; i++) {
        struct qr_buf file = {0};
        struct qr_err err = {0};
        qr_tensor_files_close(open_stack(&file, "gate_up_proj", shape[i], n[i], QR_E_DAMAGED, &err));
        cr_expect(strstr(err.msg, "file: byte ") && strstr(err.msg, PREFIX "gate_up_proj holds "), "%s", err.msg);
        qr_buf_release(&file);
    }
}

/* ---- MXFP4 ---- */

#define E2M1(code) ((const float[16]){0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6}[code]) /* OCP MX v1.0, table 5 */

/* Two experts of four outputs and 64 inputs in the file's order: byte k of block b is k + 7 b + 1, scales are 2^(b % 5 - 2). */
static uint8_t block_byte(int block, int k)
{
    return (uint8_t)(k + 7 * block + 1);
}

static struct qr_tensor_files *open_mxfp4(struct qr_buf *file, const char *scales_type, const char *scales_shape, int code, struct qr_err *err)
{
    const struct qr_quant_scheme scheme = {.method = QR_QUANT_MXFP4, .bits = 4};
    struct qr_tensor_files *st;
    char header[512];
    snprintf(header, sizeof header, "{\"" PREFIX "gate_up_proj_blocks\":{\"dtype\":\"U8\",\"shape\":[2,4,2,16],\"data_offsets\":[0,256]},"
             "\"" PREFIX "gate_up_proj_scales\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[256,272]}}", scales_type, scales_shape);
    const uint64_t len = strlen(header);
    qr_buf_put(file, &len, sizeof len);
    qr_buf_put_str(file, header);
    for (int i = 0; i < 256 + 16; i++) {
        const uint8_t byte = (uint8_t)(i < 256 ? block_byte(i / 16, i % 16) : 127 + (i - 256) % 5 - 2);
        qr_buf_put(file, &byte, 1);
    }
    cr_assert_eq(qr_safetensors_open_memory(&st, file->data, file->len, "file", err), 0, "%s", err->msg);
    const int rc = qr_quantized_tensors_find(st, &scheme, err);
    cr_assert_eq(rc ? rc : qr_expert_stacks_find(st, err), code, "%s", err->msg);
    return st;
}

static float mxfp4_number(int row, int i)
{
    const int block = 2 * row + i / 32, byte = block_byte(block, i % 32 / 2);
    return E2M1(i % 2 ? byte >> 4 : byte & 15) * (float)(1 << block % 5) / 4;
}

Test(expert_stacks, mxfp4_is_two_codes_in_a_byte_the_lower_first_times_a_power_of_two)
{
    struct qr_buf file = {0};
    struct qr_err err;
    struct qr_tensor_files *st = open_mxfp4(&file, "U8", "[2,4,2]", 0, &err);
    cr_expect_eq(qr_tensor_files_n_parameters(st), 2 * 4 * 64);
    for (int e = 0; e < 2; e++)
        for (int up = 0; up < 2; up++) {
            char name[96];
            float got[2][64], scale[4];
            int8_t level[2][64];
            struct qr_stored_code code;
            snprintf(name, sizeof name, PREFIX "%d.%s_proj.weight", e, up ? "up" : "gate");
            const struct qr_stored_tensor *t = qr_tensor_files_find(st, name);
            cr_assert(t && t->n_dims == 2 && t->shape[0] == 2 && t->shape[1] == 64 && qr_stored_code(&code, t));
            cr_expect(code.type == QR_C4_G32 && !code.inputs);
            qr_tensor_files_decode(st, t, got[0], 0, 2);
            qr_quantized_fill(st, t, QR_C4_G32, &(struct qr_coded_rows){.level = level[0], .scale = scale}, 0, 2, 0, 64);
            for (int o = 0; o < 2; o++)
                for (int i = 0; i < 64; i++) {
                    const float want = mxfp4_number(4 * e + 2 * o + up, i);
                    cr_expect_eq(got[o][i], want, "%s: output %d, input %d: %g, not %g", name, o, i, (double)got[o][i], (double)want);
                    cr_expect_eq((float)level[o][i] * scale[2 * o + i / 32], want, "%s: output %d, input %d as a code", name, o, i);
                }
        }
    qr_tensor_files_close(st);
    qr_buf_release(&file);
}

Test(expert_stacks, scales_of_mxfp4_that_do_not_fit_their_blocks_are_refused_by_name)
{
    static const char *const scales[][2] = {{"I8", "[2,4,2]"}, {"U8", "[4,2,2]"}, {"U8", "[16]"}};
    for (int i = 0; i < 3; i++) {
        struct qr_buf file = {0};
        struct qr_err err = {0};
        qr_tensor_files_close(open_mxfp4(&file, scales[i][0], scales[i][1], QR_E_DAMAGED, &err));
        cr_expect(strstr(err.msg, PREFIX "gate_up_proj_scales is ") && strstr(err.msg, "expected a byte for each block"), "%s", err.msg);
        qr_buf_release(&file);
    }
}
