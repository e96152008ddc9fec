/* gemm_parts.h - many rows times coded weights by integers (q16.h): what the blocks of products read and write,
 * whatever instructions they take. Without vectors. */
#ifndef QR_KERNELS_CPU_ISA_CODED_GEMM_PARTS_H
#define QR_KERNELS_CPU_ISA_CODED_GEMM_PARTS_H

#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/isa.h"

#define Q16_K 32                        /* inputs that share a unit */
#define GEMM_ROWS 6                       /* of a block */
#define GEMM_INPUTS QR_CODED_BLOCK_MAX    /* of a piece: whole blocks of codes */
#define GEMM_RUNS (GEMM_INPUTS / 16)
#define GEMM_PAIRS (Q16_K / 2)
#define GEMM_X (GEMM_PAIRS + 3)           /* numbers of 32 bits for 32 inputs of a row: pairs, unit, float(S) unit of each run (q16.h) */

/* A piece of one panel. */
struct gemm_piece {
    _Alignas(64) int16_t w[GEMM_INPUTS * QR_PANEL]; /* [k / 2][16][2], pairs in the order of struct q16_x */
    float scale[GEMM_RUNS][QR_PANEL], offset[GEMM_RUNS][QR_PANEL];
};

/* A block of rows and a piece. */
struct gemm_args {
    float *c;                /* [mr][QR_PANEL]: sums so far */
    const int32_t *x;        /* [n_units][GEMM_X][mr] */
    const struct gemm_piece *piece;
    const char *ahead;       /* weights to prefetch: ahead_lines of 64 bytes a unit */
    int32_t ahead_lines, n_units;
};
typedef void gemm_fn(const struct gemm_args *m);

/* Blocks of all sizes, [runs of 16 inputs, not 32][with offsets][rows - 1]. All ways give the same bits: their
 * integers are exact. */
struct gemm_ways {
    gemm_fn *block[2][2][GEMM_ROWS];
};
#define GEMM_WAYS(kind) {gemm_##kind##_1, gemm_##kind##_2, gemm_##kind##_3, gemm_##kind##_4, gemm_##kind##_5, gemm_##kind##_6}
#define GEMM_TABLE {.block = {{GEMM_WAYS(32), GEMM_WAYS(32_offset)}, {GEMM_WAYS(16), GEMM_WAYS(16_offset)}}}

/* The functions of such a table; `gemm_block(mr, run, offset, m)` is the includer's, TARGET what else it is compiled
 * for. */
#define GEMM_KIND(TARGET, kind, run, offset, mr)                              \
    TARGET static void gemm_##kind##_##mr(const struct gemm_args *m)          \
    {                                                                         \
        gemm_block(mr, run, offset, m);                                       \
    }
#define GEMM_BLOCK(TARGET, mr)                     \
    GEMM_KIND(TARGET, 32, 32, false, mr)           \
    GEMM_KIND(TARGET, 32_offset, 32, true, mr)     \
    GEMM_KIND(TARGET, 16, 16, false, mr)           \
    GEMM_KIND(TARGET, 16_offset, 16, true, mr)
#define GEMM_BLOCKS(TARGET) \
    GEMM_BLOCK(TARGET, 1)   \
    GEMM_BLOCK(TARGET, 2)   \
    GEMM_BLOCK(TARGET, 3)   \
    GEMM_BLOCK(TARGET, 4)   \
    GEMM_BLOCK(TARGET, 5)   \
    GEMM_BLOCK(TARGET, 6)

extern const struct gemm_ways qr_avx2_gemm_plain, qr_avx2_gemm_vnni; /* the latter where qr_avx2_has_vnni says so */

/* The best for this processor within AVX2, or, for level avx512, beyond it; NULL: nothing better. */
const struct gemm_ways *qr_avx2_gemm_ways(void);
const struct gemm_ways *qr_avx512_gemm_ways(void);

/* What a level brings to avx2's products: the blocks for Q16_ROWS_MIN rows and more, and its own order of the sum
 * for a norm of x. */
struct q16_way {
    const struct gemm_ways *gemm;
    float (*sum_of_squares)(const float *x, int64_t n);
};

/* linear for coded weights but E4M3 numbers. A gated product's halves are whole panels. */
void qr_avx2_linear_q16(struct qr_queue *q, const struct qr_linear_args *a, const struct q16_way *way);

#endif
