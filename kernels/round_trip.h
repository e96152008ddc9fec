/* round_trip.h - rows of weights as a quantized product sees them: for gradients that go back through it. */
#ifndef QR_KERNELS_ROUND_TRIP_H
#define QR_KERNELS_ROUND_TRIP_H

#include <stdint.h>

#include "kernels/dtype.h"

/* out = scale times integer of each weight, rounded to bf16: what `linear` multiplies where linear_pack packed the same rows as `to` (kernels/quant.h,
 * kernels/code_numbers.h).
 * Shapes    out, rows [n_rows, n_in] bf16, apart or the same.    Requires  qr_dtype_rounds(to), but not to fp8.    Pure; a row does not depend on others. */
void qr_round_trip(uint16_t *out, const uint16_t *rows, enum qr_dtype to, int64_t n_rows, int64_t n_in);

#endif
