/* dtype.h - element types of tensors. */
#ifndef QR_KERNELS_DTYPE_H
#define QR_KERNELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From Q8 on they exist only as the packed form of a weight (kernels.h, linear): integers with scales beside them. Q: activations are
 * rounded to 8 bits as well; of Q4, 32 weights share a multiple. C: coded weights, what a file that is quantized already holds, or a model is rounded to
 * (kernels.h, linear_pack_coded): 2 to 6 or 8 bits, G neighbours share a scale; O: and an offset; Z: and an integer zero; S: the scale is an
 * integer times one that 256 inputs share, O likewise; E4M3: codes are such numbers, 128 neighbours share a scale of f32. QR_CODED is no type of a matrix: it
 * stands for "each in the coded type of what the file stores".
 * F8: weights in E4M3 with a scale for each output, packed only, and E4M3: such numbers as elements of a cache; both on GPUs only (and in ref).
 * F64 exists only where the reference kernels are compiled in double (ref/ref.h). */
enum qr_dtype {
    QR_F32, QR_F16, QR_BF16, QR_I8, QR_I32, QR_F64,
    QR_Q8, QR_Q4,
    QR_C2_G16_SO, QR_C3_G16_S,
    QR_C4_G32, QR_C4_G64, QR_C4_G128, QR_C4_G32_Z, QR_C4_G64_Z, QR_C4_G128_Z, QR_C4_G32_O, QR_C4_G16_S, QR_C4_G32_S, QR_C4_G16_SO, QR_C4_G32_SO,
    QR_C5_G32, QR_C5_G32_O, QR_C5_G32_SO, QR_C6_G16_S, QR_C8_G32, QR_C8_E4M3,
    QR_CODED,
    QR_F8, QR_E4M3,
    QR_DTYPE_COUNT
};

size_t qr_dtype_bytes(enum qr_dtype t);     /* of an element; quantized ones have no such size */
const char *qr_dtype_name(enum qr_dtype t); /* "f32", "f16", "bf16", "int8", "i32", "int4", "c4-g32-so", "coded", "fp8" */

static inline bool qr_dtype_is_quantized(enum qr_dtype t)
{
    return t == QR_Q8 || t == QR_Q4;
}

/* How a quantized weight is stored. */
struct qr_quant_format {
    uint8_t bits;  /* of a stored weight: 8 or 4 */
    uint8_t group; /* neighbours that share an integer multiple; 0: there are no multiples */
};
struct qr_quant_format qr_dtype_format(enum qr_dtype t); /* requires qr_dtype_is_quantized */

/* Of a matrix. */
static inline bool qr_dtype_is_coded(enum qr_dtype t)
{
    return t >= QR_C2_G16_SO && t < QR_CODED;
}

/* How coded weights are stored. A unit is what has a scale as a float: a group, or 256 inputs with steps. */
struct qr_coded_format {
    uint8_t bits, group;
    bool steps, offset, zero;
    bool e4m3; /* codes are numbers (base/e4m3.h), scales are kept as f32 */
};
struct qr_coded_format qr_dtype_coded(enum qr_dtype t); /* requires qr_dtype_is_coded */

/* The least of the 2^bits levels that codes of all but 4 bits stand for: half of them are negative, but for 2 bits, and 5 with offsets, which count from 0. */
static inline int32_t qr_coded_least(struct qr_coded_format f)
{
    return f.bits == 2 || (f.bits == 5 && f.offset) ? 0 : -(1 << (f.bits - 1));
}

/* Whether numbers can be rounded to the coded type t (code_numbers.h): a group has a scale and nothing else. */
static inline bool qr_dtype_codes_numbers(enum qr_dtype t)
{
    return t == QR_C4_G32 || t == QR_C4_G64 || t == QR_C4_G128 || t == QR_C8_G32;
}

/* Whether weights lose something when numbers are packed as t. */
static inline bool qr_dtype_rounds(enum qr_dtype t)
{
    return t == QR_F8 || qr_dtype_is_quantized(t) || qr_dtype_codes_numbers(t);
}

/* Whether weights can be packed as t from numbers (linear_pack). */
static inline bool qr_dtype_packs(enum qr_dtype t)
{
    return t == QR_F32 || t == QR_BF16 || qr_dtype_rounds(t);
}

/* Whether a packed matrix can be of type t. */
static inline bool qr_dtype_multiplies(enum qr_dtype t)
{
    return qr_dtype_packs(t) || qr_dtype_is_coded(t);
}

#endif
