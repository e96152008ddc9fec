/* dtype.h - element types of tensors. */
#ifndef QR_KERNELS_DTYPE_H
#define QR_KERNELS_DTYPE_H

#include <stddef.h>
#include <stdint.h>

enum qr_dtype { QR_F32, QR_F16, QR_BF16, QR_I8, QR_I32, QR_DTYPE_COUNT };

size_t qr_dtype_bytes(enum qr_dtype t);
const char *qr_dtype_name(enum qr_dtype t); /* "f32", "f16", "bf16", "i8", "i32" */

#endif
