/* Experts' matrices out of one tensor: which numbers they are, and which stacks are refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "loader/stores/expert_stacks.h"

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
