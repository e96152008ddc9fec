#include "kernels/round_trip.h"

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernels/code_numbers.h"
#include "kernels/coded.h"

/* Rows of a coded type, one at a time. */
static void code_trip(uint16_t *out, const uint16_t *rows, enum qr_dtype to, int64_t n_rows, int64_t n_in)
{
    const struct qr_coded_format f = qr_dtype_coded(to);
    const struct qr_numbers numbers = {rows, QR_BF16, to, n_in};
    const struct qr_coded_source source = qr_numbers_source(&numbers);
    void *memory = qr_alloc((size_t)qr_coded_rows_bytes(f, n_in, 1), 1);
    const struct qr_coded_rows row = qr_coded_rows_in(memory, f, n_in, 1);
    for (int64_t o = 0; o < n_rows; o++) {
        source.fill(source.arg, &row, o, 1);
        const float factor = qr_coded_factor(&row, f, n_in);
        for (int64_t i = 0; i < n_in; i++)
            out[o * n_in + i] = qr_coded_weight(&row, f, factor, i);
    }
    qr_free(memory);
}

void qr_round_trip(uint16_t *out, const uint16_t *rows, enum qr_dtype to, int64_t n_rows, int64_t n_in)
{
    QR_ASSERT(out != NULL && rows != NULL);
    QR_ASSERT(qr_dtype_rounds(to) && to != QR_F8 && n_rows >= 0 && n_in > 0);
    if (qr_dtype_is_coded(to)) {
        code_trip(out, rows, to, n_rows, n_in);
        return;
    }
    for (int64_t o = 0; o < n_rows; o++) {
        uint16_t *row = out + o * n_in;
        int16_t *p = (int16_t *)row; /* the integers lie where the weights will: a group is read before it is written */
        const float scale = qr_quant_row(p, to, n_in, rows + o * n_in, QR_BF16);
        for (int64_t i = 0; i < n_in; i++)
            row[i] = qr_f32_to_bf16(scale * (float)p[i]);
    }
}
