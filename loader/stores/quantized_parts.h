/* quantized_parts.h - inside loader/stores only: checkpoint formats as data, and a matrix that was found in one of them. */
#ifndef QR_LOADER_STORES_QUANTIZED_PARTS_H
#define QR_LOADER_STORES_QUANTIZED_PARTS_H

#include <string.h>

#include "loader/stores/quantized_tensors.h"
#include "loader/stores/tensor_files_parts.h"

struct finder;

/* A checkpoint format: which tensors make up a matrix, and what their numbers mean. */
struct qr_quant_form {
    struct qr_stored_type stored;      /* what the made tensor is called by */
    enum qr_quant_method method;
    const char *codes, *type, *scale, *other_scale, *zeros, *order, *shape; /* ends of names; NULL: there is none */
    const char *made;                  /* end of the made tensor's name */
    int32_t bits;                      /* 0: as the configuration says */
    int (*fit)(const struct finder *f, struct qr_quantized *q); /* checks shapes, fills in sizes and strides */
    const uint8_t *places;             /* where output o of eight lies in a word; NULL: words hold inputs from the low bits up */
    int32_t together;                  /* how many times 16 rows are read best at once */
    /* A code is a number of 32 / bits in a word; or a byte, which may be E4M3 or a signed integer; or the index of a level. */
    bool bytes, e4m3;
    int8_t (*level)(uint8_t code);
    bool e8m0;                         /* scales are such bytes */
    enum qr_dtype coded;               /* that keeps it where groups are multiples of coded_group; 0: bits, groups and zeros say it */
    int32_t coded_group;
};

/* What was found of a matrix. The code of output o and input i is in word code_first + o code_out + i / (32 / bits) code_in, but where outputs share words
 * or codes are bytes; its scale is number scale_first + (o / block_out) out_stride + g in_stride, zeros of bytes lie in the same way, and others
 * in word o / (32 / bits) zero_out + g zero_in. */
struct qr_quantized {
    const struct qr_quant_form *form;
    int32_t bits, zero_more;           /* what is added to a stored zero */
    int32_t zero;                      /* where none are stored */
    int64_t n_matrices;                /* of a stack; 0: it is one matrix */
    int64_t n_out, n_in, n_groups, group;
    int64_t code_first, code_out, code_in, zero_out, zero_in;
    int64_t scale_first, block_out, out_stride, in_stride;
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
