/* f8.h - rows of numbers as E4M3 codes and one scale: weights, and activations that meet them (kernels.h, linear: fp8), keys and values of an fp8 cache. Inside
 * kernels/ only; plain IEEE operations, so that everybody who rounds gets the same bits.
 *
 * A row becomes code * scale with scale = max|x| / 448 and code = x * (448 / max|x|) to the nearest E4M3 number, even on a tie. A row whose largest number is
 * below 2^-120 counts as zeros (scale 0); one with an infinity or NaN gets the scale NaN.
 * A row of weights that is made of E4M3 numbers and one scale already, as files hold them, keeps its codes (but for a power of two): its scale is the one of
 * max|w| / v, v the largest number with one of the eight mantissas, by which all of its weights are codes to within the precision that they came in. */
#ifndef QR_KERNELS_F8_H
#define QR_KERNELS_F8_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/e4m3.h"
#include "kernels/quant.h"

#define QR_F8_PIECE 256

/* codes of n numbers; a row without a finite largest number, or of zeros, has inverse 0. */
static inline void qr_f8_codes(uint8_t *code, const float *x, int64_t n, float inverse)
{
    for (int64_t i = 0; i < n; i++)
        code[i] = inverse == 0 ? 0 : qr_f32_to_e4m3(x[i] * inverse);
}

/* Codes of a row with this scale; false: some weight is no code times it, to within a factor 1 +- tolerance. */
static inline bool qr_f8_row_fits(uint8_t *code, const void *row, enum qr_dtype from, int64_t n_in, float scale, float inverse, float tolerance)
{
    for (int64_t at = 0; at < n_in; at += QR_F8_PIECE) {
        float x[QR_F8_PIECE];
        const int64_t n = n_in - at < QR_F8_PIECE ? n_in - at : QR_F8_PIECE;
        qr_quant_load(x, QR_F8_PIECE, row, from, at, n);
        qr_f8_codes(code + at, x, n, inverse);
        for (int64_t i = 0; i < n; i++)
            if (!(fabsf(x[i] - scale * qr_e4m3_to_f32(code[at + i])) <= tolerance * fabsf(x[i])))
                return false;
    }
    return true;
}

/* How far a weight may be from a code times the scale, relative to it: both it and the row's largest number were rounded. */
static inline float qr_f8_tolerance(enum qr_dtype from)
{
    return from == QR_F32 ? 0x1p-20f : from == QR_F16 ? 0x1p-9f : 0x1.1p-7f;
}

/* code [n_in] of a row of weights; returns its scale. cuda/pack_eights.cu has the same. */
static inline float qr_f8_row(uint8_t *code, const void *row, enum qr_dtype from, int64_t n_in)
{
    static const float top[] = {448, 416, 384, 352, 320, 288, 256, 240};
    const float tolerance = qr_f8_tolerance(from);
    const uint32_t most = qr_quant_row_max(row, from, n_in);
    float scale, inverse;
    for (int i = 0; i < (int)(sizeof top / sizeof *top); i++) {
        scale = qr_quant_scale(&inverse, most, top[i]);
        if (qr_f8_row_fits(code, row, from, n_in, scale, inverse, tolerance))
            return scale;
    }
    scale = qr_quant_scale(&inverse, most, QR_E4M3_MAX);
    for (int64_t at = 0; at < n_in; at += QR_F8_PIECE) {
        float x[QR_F8_PIECE];
        const int64_t n = n_in - at < QR_F8_PIECE ? n_in - at : QR_F8_PIECE;
        qr_quant_load(x, QR_F8_PIECE, row, from, at, n);
        qr_f8_codes(code + at, x, n, inverse);
    }
    return scale;
}

#endif
