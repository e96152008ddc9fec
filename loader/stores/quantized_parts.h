/* quantized_parts.h - inside loader/stores only: what quantized_tensors.c found of a matrix, for quantized_read.c. */
#ifndef QR_LOADER_STORES_QUANTIZED_PARTS_H
#define QR_LOADER_STORES_QUANTIZED_PARTS_H

#include <string.h>

#include "loader/stores/quantized_tensors.h"
#include "loader/stores/tensor_files_parts.h"

enum layout { GPTQ, AWQ, PACKED, INT8, FP8, MXFP4 };

/* scale[(o / block_out) out_stride + g in_stride]; zeros of bytes likewise. */
struct qr_quantized {
    enum layout layout;
    int32_t bits, zero_more;           /* what is added to a stored zero */
    int32_t zero;                      /* where none are stored */
    int64_t n_out, n_in, n_groups, group;
    int64_t block_out, out_stride, in_stride;
    int64_t row_first, row_step;       /* output o is row row_first + o row_step of what is stored: MXFP4 */
    const struct qr_stored_tensor *codes, *scale, *zeros, *order, *shape; /* zeros, order, shape: or NULL */
    bool ordered;                      /* and the order is not the inputs' own */
    const int32_t *inputs, *place;     /* of an order with groups of one size, [n_in]: inputs by their groups, and of each input the place there; or NULL */
    bool symmetric;                    /* all zeros are the middle of the codes */
};

/* Words of 32 bits that n codes take. */
static inline int64_t words(int64_t n, int32_t bits)
{
    return (n * bits + 31) / 32;
}

static inline int64_t load_i32(const uint8_t *p, int64_t i)
{
    int32_t v;
    memcpy(&v, p + 4 * i, sizeof v);
    return v;
}

#endif
