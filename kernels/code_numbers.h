/* code_numbers.h - numbers as coded rows: how weights are rounded to a coded type that a name of --quantize stands for (w8a16, w4a16-g64, ..). Each group has a
 * scale, which its number of largest magnitude decides: with 8 bits that becomes 127 or -127, with 4 bits -7, -8, -9 or -10 (-8 is the least that there is),
 * whichever leaves the least sum of squared errors. A group is rounded to the nearest level, even on a tie; one whose largest is below 2^-120 is zeros, one
 * with an infinity or NaN has the scale NaN.
 * Inside kernels/. Pure; any thread.
 */
#ifndef QR_KERNELS_CODE_NUMBERS_H
#define QR_KERNELS_CODE_NUMBERS_H

#include "kernels/kernels.h"

struct qr_numbers {
    const void *rows; /* borrowed: [n, n_in], one after the other */
    enum qr_dtype from; /* f32, f16 or bf16 */
    enum qr_dtype to;   /* qr_dtype_codes_numbers */
    int64_t n_in;
};

/* As a source for linear_pack_coded, which `numbers` outlives. */
struct qr_coded_source qr_numbers_source(const struct qr_numbers *numbers);

#endif
