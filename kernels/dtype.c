#include "kernels/dtype.h"

#include "base/assert.h"

struct dtype_row {
    const char *name;
    size_t n_bytes;
};

static const struct dtype_row row[QR_DTYPE_COUNT] = {
    [QR_F32] = {"f32", 4}, [QR_F16] = {"f16", 2}, [QR_BF16] = {"bf16", 2}, [QR_I8] = {"int8", 1}, [QR_I32] = {"i32", 4},
    [QR_Q8] = {"int8", 0},  [QR_Q4] = {"int4", 0},  [QR_F64] = {"f64", 8},
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
