#include "kernels/round_trip.h"

#include "base/assert.h"
#include "base/half.h"
#include "kernels/quant.h"

void qr_round_trip(uint16_t *out, const uint16_t *rows, enum qr_dtype to, int64_t n_rows, int64_t n_in)
{
    QR_ASSERT(out != NULL && rows != NULL);
    QR_ASSERT(qr_dtype_is_quantized(to) && n_rows >= 0 && n_in > 0);
    for (int64_t o = 0; o < n_rows; o++) {
        uint16_t *row = out + o * n_in;
        int16_t *p = (int16_t *)row; /* the integers lie where the weights will: a group is read before it is written */
        const float scale = qr_quant_row(p, to, n_in, rows + o * n_in, QR_BF16);
        for (int64_t i = 0; i < n_in; i++)
            row[i] = qr_f32_to_bf16(scale * (float)p[i]);
    }
}
