/* many_parts.h - many rows times coded weights by integers (whole.h): what the blocks of products read and write,
 * whatever instructions they take. Without vectors. */
#ifndef QR_KERNELS_CPU_ISA_CODED_MANY_PARTS_H
#define QR_KERNELS_CPU_ISA_CODED_MANY_PARTS_H

#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/isa.h"

#define WHOLE_K 32                        /* inputs that share a unit */
#define MANY_ROWS 6                       /* of a block */
#define MANY_INPUTS QR_CODED_BLOCK_MAX    /* of a piece: whole blocks of codes */
#define MANY_RUNS (MANY_INPUTS / 16)
#define MANY_PAIRS (WHOLE_K / 2)
#define MANY_X (MANY_PAIRS + 3)           /* numbers of 32 bits for 32 inputs of a row: pairs, unit, float(S) unit of each run (whole.h) */

/* A piece of one panel. */
struct many_piece {
    _Alignas(64) int16_t w[MANY_INPUTS * QR_PANEL]; /* [k / 2][16][2], pairs in the order of struct whole_x */
    float scale[MANY_RUNS][QR_PANEL], offset[MANY_RUNS][QR_PANEL];
};

/* A block of rows and a piece. */
struct many_args {
    float *c;                /* [mr][QR_PANEL]: sums so far */
    const int32_t *x;        /* [n_units][MANY_X][mr] */
    const struct many_piece *piece;
    const char *ahead;       /* weights to prefetch: ahead_lines of 64 bytes a unit */
    int32_t ahead_lines, n_units;
};
typedef void many_fn(const struct many_args *m);

/* Blocks of all sizes, [runs of 16 inputs, not 32][with offsets][rows - 1]. All ways give the same bits: their
 * integers are exact. */
struct many_ways {
    many_fn *block[2][2][MANY_ROWS];
};
#define MANY_WAYS(kind) {many_##kind##_1, many_##kind##_2, many_##kind##_3, many_##kind##_4, many_##kind##_5, many_##kind##_6}
#define MANY_TABLE {.block = {{MANY_WAYS(32), MANY_WAYS(32_offset)}, {MANY_WAYS(16), MANY_WAYS(16_offset)}}}

/* The functions of such a table; `many_block(mr, run, offset, m)` is the includer's, TARGET what else it is compiled
 * for. */
#define MANY_KIND(TARGET, kind, run, offset, mr)                              \
    TARGET static void many_##kind##_##mr(const struct many_args *m)          \
    {                                                                         \
        many_block(mr, run, offset, m);                                       \
    }
#define MANY_BLOCK(TARGET, mr)                     \
    MANY_KIND(TARGET, 32, 32, false, mr)           \
    MANY_KIND(TARGET, 32_offset, 32, true, mr)     \
    MANY_KIND(TARGET, 16, 16, false, mr)           \
    MANY_KIND(TARGET, 16_offset, 16, true, mr)
#define MANY_BLOCKS(TARGET) \
    MANY_BLOCK(TARGET, 1)   \
    MANY_BLOCK(TARGET, 2)   \
    MANY_BLOCK(TARGET, 3)   \
    MANY_BLOCK(TARGET, 4)   \
    MANY_BLOCK(TARGET, 5)   \
    MANY_BLOCK(TARGET, 6)

extern const struct many_ways qr_avx2_many_plain, qr_avx2_many_vnni; /* the latter where qr_avx2_has_vnni says so */

/* The best for this processor within AVX2, or, for level avx512, beyond it; NULL: nothing better. */
const struct many_ways *qr_avx2_many_ways(void);
const struct many_ways *qr_avx512_many_ways(void);

/* What a level brings to avx2's products: the blocks for WHOLE_ROWS_MIN rows and more, and its own order of the sum
 * for a norm of x. */
struct whole_way {
    const struct many_ways *many;
    float (*sum_of_squares)(const float *x, int64_t n);
};

/* linear for coded weights but E4M3 numbers. A gated product's halves are whole panels. */
void qr_avx2_linear_whole(struct qr_queue *q, const struct qr_linear_args *a, const struct whole_way *way);

#endif
