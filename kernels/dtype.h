/* dtype.h - element types of tensors. */
#ifndef QR_KERNELS_DTYPE_H
#define QR_KERNELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Q8 and Q4 exist only as the packed form of a weight (kernels.h, linear): integers with scales beside them. F64 exists only where the reference
 * kernels are compiled in double (ref/ref.h). */
enum qr_dtype { QR_F32, QR_F16, QR_BF16, QR_I8, QR_I32, QR_Q8, QR_Q4, QR_F64, QR_DTYPE_COUNT };

size_t qr_dtype_bytes(enum qr_dtype t);     /* of an element; Q8 and Q4 have no such size */
const char *qr_dtype_name(enum qr_dtype t); /* "f32", "f16", "bf16", "int8", "i32", "int8", "int4", "f64" */

static inline bool qr_dtype_is_quantized(enum qr_dtype t)
{
    return t == QR_Q8 || t == QR_Q4;
}

/* Whether weights can be packed as t. */
static inline bool qr_dtype_packs(enum qr_dtype t)
{
    return t == QR_F32 || t == QR_BF16 || qr_dtype_is_quantized(t);
}

#endif
