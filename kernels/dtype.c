#include "kernels/dtype.h"

#include "base/assert.h"

struct dtype_row {
    const char *name;
    size_t n_bytes;
    struct qr_quant_format format; /* bits 0: not quantized */
    struct qr_coded_format coded;  /* likewise: not coded */
};

static const struct dtype_row row[QR_DTYPE_COUNT] = {
    [QR_F32] = {.name = "f32", .n_bytes = 4},
    [QR_F16] = {.name = "f16", .n_bytes = 2},
    [QR_BF16] = {.name = "bf16", .n_bytes = 2},
    [QR_I8] = {.name = "int8", .n_bytes = 1},
    [QR_I32] = {.name = "i32", .n_bytes = 4},
    [QR_F64] = {.name = "f64", .n_bytes = 8},
    [QR_Q8] = {.name = "int8", .format = {8, 0}},
    [QR_Q4] = {.name = "int4", .format = {4, 32}},
    [QR_C2_G16_SO] = {.name = "c2-g16-so", .coded = {.bits = 2, .group = 16, .steps = true, .offset = true}},
    [QR_C3_G16_S] = {.name = "c3-g16-s", .coded = {.bits = 3, .group = 16, .steps = true}},
    [QR_C4_G32] = {.name = "c4-g32", .coded = {.bits = 4, .group = 32}},
    [QR_C4_G64] = {.name = "c4-g64", .coded = {.bits = 4, .group = 64}},
    [QR_C4_G128] = {.name = "c4-g128", .coded = {.bits = 4, .group = 128}},
    [QR_C4_G32_Z] = {.name = "c4-g32-z", .coded = {.bits = 4, .group = 32, .zero = true}},
    [QR_C4_G64_Z] = {.name = "c4-g64-z", .coded = {.bits = 4, .group = 64, .zero = true}},
    [QR_C4_G128_Z] = {.name = "c4-g128-z", .coded = {.bits = 4, .group = 128, .zero = true}},
    [QR_C4_G32_O] = {.name = "c4-g32-o", .coded = {.bits = 4, .group = 32, .offset = true}},
    [QR_C4_G16_S] = {.name = "c4-g16-s", .coded = {.bits = 4, .group = 16, .steps = true}},
    [QR_C4_G32_S] = {.name = "c4-g32-s", .coded = {.bits = 4, .group = 32, .steps = true}},
    [QR_C4_G16_SO] = {.name = "c4-g16-so", .coded = {.bits = 4, .group = 16, .steps = true, .offset = true}},
    [QR_C4_G32_SO] = {.name = "c4-g32-so", .coded = {.bits = 4, .group = 32, .steps = true, .offset = true}},
    [QR_C5_G32] = {.name = "c5-g32", .coded = {.bits = 5, .group = 32}},
    [QR_C5_G32_O] = {.name = "c5-g32-o", .coded = {.bits = 5, .group = 32, .offset = true}},
    [QR_C5_G32_SO] = {.name = "c5-g32-so", .coded = {.bits = 5, .group = 32, .steps = true, .offset = true}},
    [QR_C6_G16_S] = {.name = "c6-g16-s", .coded = {.bits = 6, .group = 16, .steps = true}},
    [QR_C8_G32] = {.name = "c8-g32", .coded = {.bits = 8, .group = 32}},
    [QR_C8_E4M3] = {.name = "c8-e4m3", .coded = {.bits = 8, .group = 128, .e4m3 = true}},
    [QR_CODED] = {.name = "coded"},
    [QR_F8] = {.name = "fp8"},
    [QR_E4M3] = {.name = "fp8", .n_bytes = 1},
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

struct qr_coded_format qr_dtype_coded(enum qr_dtype t)
{
    QR_ASSERT((int)t >= 0 && t < QR_DTYPE_COUNT);
    QR_ASSERT(row[t].coded.bits > 0);
    return row[t].coded;
}
