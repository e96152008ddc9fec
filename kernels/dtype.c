#include "kernels/dtype.h"

#include "base/assert.h"

struct dtype_row {
    const char *name;
    size_t n_bytes;
    struct qr_quant_format format; /* bits 0: not quantized */
};

static const struct dtype_row row[QR_DTYPE_COUNT] = {
    [QR_F32] = {.name = "f32", .n_bytes = 4},
    [QR_F16] = {.name = "f16", .n_bytes = 2},
    [QR_BF16] = {.name = "bf16", .n_bytes = 2},
    [QR_I8] = {.name = "int8", .n_bytes = 1},
    [QR_I32] = {.name = "i32", .n_bytes = 4},
    [QR_F64] = {.name = "f64", .n_bytes = 8},
    [QR_Q8] = {"int8", 0, {8, 0, false}},
    [QR_Q8_G32] = {"int8-g32", 0, {8, 32, false}},
    [QR_Q8_G64] = {"int8-g64", 0, {8, 64, false}},
    [QR_Q8_G128] = {"int8-g128", 0, {8, 128, false}},
    [QR_Q4] = {"int4", 0, {4, 32, false}},
    [QR_Q4_G64] = {"int4-g64", 0, {4, 64, false}},
    [QR_Q4_G128] = {"int4-g128", 0, {4, 128, false}},
    [QR_W8] = {"w8a16", 0, {8, 0, true}},
    [QR_W4] = {"w4a16", 0, {4, 32, true}},
    [QR_W4_G64] = {"w4a16-g64", 0, {4, 64, true}},
    [QR_W4_G128] = {"w4a16-g128", 0, {4, 128, true}},
};

size_t qr_dtype_bytes(enum qr_dtype t)
{
    QR_ASSERT((int)t >= 0 && t < QR_DTYPE_COUNT);
    QR_ASSERT(row[t].n_bytes > 0);
    return row[t].n_bytes;
}

const char *qr_dtype_name(enum qr_dtype t)
{
    QR_ASSERT((int)t >= 0 && t < QR_DTYPE_COUNT);
    return row[t].name;
}

struct qr_quant_format qr_dtype_format(enum qr_dtype t)
{
    QR_ASSERT((int)t >= 0 && t < QR_DTYPE_COUNT);
    QR_ASSERT(row[t].format.bits > 0);
    return row[t].format;
}
