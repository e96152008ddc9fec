/* quant.h - products with quantized weights: what quant.c (any level), linear.c and amx/ share. Inside kernels/cpu only.
 *
 * Packed weights, the same for every level: panels of 16 outputs; k is padded to 64 (padding meets zeros of x), missing outputs are zeros.
 *     16 scales (f32)
 *     with groups only: [k / 32][16] multiples, 8 bits each, padded to 64 bytes
 *     8 bits: [k / 4][16][4] bytes n + 128: 64 of k are a tile, 4 of k are a vector of AVX-512
 *     4 bits: [k / 8][16][4] bytes: low half n + 8 of k = 8 i + t, high half that of k = 8 i + 4 + t, for t = 0..3
 */
#ifndef QR_KERNELS_CPU_ISA_QUANT_QUANT_H
#define QR_KERNELS_CPU_ISA_QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/quant.h"

#define QR_QUANT_K 64           /* what k is padded to */
#define QR_QUANT_ROWS 32        /* rows of the largest block */
#define QR_QUANT_PANELS 2       /* panels of the largest block */
#define QR_QUANT_AHEAD 8192     /* prefetch distance in bytes for weights that stream from memory */

static inline int64_t qr_quant_k(int64_t n_in)
{
    return (n_in + QR_QUANT_K - 1) / QR_QUANT_K * QR_QUANT_K;
}

/* Bytes in front of a panel's weights, and of a panel. */
static inline int64_t qr_quant_head_bytes(enum qr_dtype to, int64_t n_in)
{
    const struct qr_quant_format f = qr_dtype_format(to);
    int64_t multiples = f.group ? qr_quant_k(n_in) / f.group * QR_PANEL : 0;
    return QR_PANEL * (int64_t)sizeof(float) + (multiples + 63) / 64 * 64;
}

static inline int64_t qr_quant_panel_bytes(enum qr_dtype to, int64_t n_in)
{
    return qr_quant_head_bytes(to, n_in) + qr_quant_k(n_in) * QR_PANEL * qr_dtype_format(to).bits / 8;
}

/* Where parts of a panel lie. */
static inline const float *qr_quant_scales(const uint8_t *panel)
{
    return (const float *)(const void *)panel;
}

static inline const uint8_t *qr_quant_multiples(const uint8_t *panel)
{
    return panel + QR_PANEL * sizeof(float);
}

/* Whether a product's gated unit is done where its sums are: the panels of gates and those of their ups lie side by side, one of each fits a
 * register block, and both fit scratch where they are unpacked. */
static inline bool qr_linear_pairs(const struct qr_linear_args *a)
{
    if (a->n_out % (2 * QR_PANEL) != 0)
        return false;
    if (qr_dtype_is_coded(a->w->packed_dtype)) /* as bf16 */
        return 2 * qr_quant_k(a->n_in) * QR_PANEL * 2 <= (int64_t)QR_WORKER_SCRATCH_BYTES;
    if (!qr_dtype_is_quantized(a->w->packed_dtype))
        return true;
    const int64_t unpacked = qr_dtype_format(a->w->packed_dtype).group > 0 ? qr_quant_k(a->n_in) * QR_PANEL : 0;
    return 2 * unpacked <= (int64_t)QR_WORKER_SCRATCH_BYTES;
}

/* Rows of x times panels of 8-bit weights: c[r][16 * panel + o] = sum of x[r][k] * w[k][o], plus 128 * the sum of x[r] where the block says
 * that it leaves that in. */
struct qr_quant_args {
    int32_t *c;          /* [n_rows][QR_QUANT_PANELS * 16] */
    const int8_t *x;     /* the first row */
    const int32_t *sum;  /* of each row's x */
    const uint8_t *w;    /* the first panel's weights + 128 */
    int64_t x_stride, w_panel;
    int64_t ahead;       /* prefetch distance of weights for few rows, in bytes */
    int32_t n_k, n_rows, n_panels;
};

struct qr_quant_block {
    void (*multiply)(const struct qr_quant_args *b);
    void (*begin)(void); /* before and after an item of work, or NULL */
    void (*end)(void);
    int32_t rows_max, panels_max;
    int32_t rows_read;   /* of x, whatever n_rows: scratch has room for a multiple of it */
    bool leaves_offset;
};

/* Rows of x, rounded, times panels with groups without unpacking them to memory first. NULL in qr_quant_ways: there is none. */
struct qr_quant4_args {
    int32_t *c;           /* [n_rows][QR_QUANT_PANELS * 16] */
    const int8_t *x;
    const int32_t *group; /* [n_rows][group_stride]: -8 * the sum of each group of x; at avx2 in 16 bits each, k % 4 < 2 below the others */
    const uint8_t *multiple, *w;
    int64_t x_stride, group_stride;
    int64_t ahead;        /* prefetch distance of weights, in bytes */
    int32_t n_k, n_rows;
};

/* How one level multiplies: few rows and many may differ, since integers give the same bits. avx2: where they do not, many go by pieces (pieces.h). */
struct qr_quant_ways {
    const struct qr_quant_block *few, *many;
    int32_t few_rows;                                    /* up to so many rows of a launch are few */
    void (*direct)(const struct qr_quant4_args *b);      /* int4 with few rows */
};

/* A row as a level's rms_norm leaves it. */
typedef void qr_quant_norm(float *out, const float *x, const float *w, int64_t n, float eps);

/* linear_quant: `norm` is that of the level that asks, whose order of a sum is its own. */
#define QR_QUANT_DECLARE(isa)                                                                                                        \
    qr_quant_norm qr_##isa##_quant_norm;                                                                                             \
    void qr_##isa##_linear_quant(struct qr_queue *q, const struct qr_linear_args *a, const struct qr_quant_ways *ways,               \
                                 qr_quant_norm *norm);                                                                               \
    size_t qr_##isa##_quant_packed_bytes(enum qr_dtype to, int64_t n_out, int64_t n_in);                                             \
    void qr_##isa##_quant_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,           \
                               const void *rows, enum qr_dtype from, int64_t n_rows);
QR_QUANT_DECLARE(avx2)
QR_QUANT_DECLARE(avx512)

/* The best this processor has for each table. */
const struct qr_quant_ways *qr_avx2_quant_ways(void);
const struct qr_quant_ways *qr_avx512_quant_ways(void); /* with AVX512-VNNI; without it NULL */
extern const struct qr_quant_block qr_avx2_quant_vnni;  /* of many rows, with AVX-VNNI */

#endif
