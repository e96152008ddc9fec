/* micro.c - the register blocks of all matrix products: linear, q.k and p.v.
 *
 * c[r][j] = (onto ? c[r][j] : 0) + x[r][0] w[0][j] + x[r][1] w[1][j] + ...: for every element one chain of fused multiply-adds in the
 * order of k, whatever the shape of the block. A block is mr rows by nr panels of 16 columns, held in registers: with one row the
 * weights stream through once, with many rows each weight is used mr times and each x nr * 16 times.
 *
 * Panels (w), at step k:                                                  x of row r at k
 *     LINEAR_F32    16 floats                                             x[k * mr + r]
 *     LINEAR_BF16   16 pairs of bf16: columns' numbers at 2k and 2k + 1   x[k * mr + r]
 *     ROWS_F32      16 floats of row k (rows w_step bytes apart)          x[r * QR_X_ROW + k]
 *     ROWS_BF16     16 bf16 of row k                                      x[r * QR_X_ROW + k]
 */
#include "kernels/cpu/isa/linear/micro.h"

#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/simd.h"

#define PARTS (QR_PANEL / VF_LEN) /* vectors of a panel */

/* The vector at `w`, part of a panel; of pairs the first or the second numbers. */
VF_FN vf load_part(const int kind, const char *w, const int second)
{
    if (kind == QR_PANEL_LINEAR_BF16)
        return second ? vf_pairs_second(vf_load_pairs(w)) : vf_pairs_first(vf_load_pairs(w));
    return kind == QR_PANEL_ROWS_BF16 ? vf_load_bf16((const uint16_t *)w) : vf_load((const float *)w);
}

VF_FN const char *part_at(const int kind, const char *w, size_t w_panel, size_t w_pair, int j)
{
    const size_t part_bytes = kind == QR_PANEL_ROWS_BF16 ? VF_LEN * 2 : VF_LEN * 4;
    const int panel = j / PARTS;
    return w + (size_t)(panel / 2) * w_pair + (size_t)(panel % 2) * w_panel + (size_t)(j % PARTS) * part_bytes;
}

/* A step's k number `second`. Beside the sums registers hold the numbers of x or the vectors of weights, of which there are fewer. */
VF_FN void block_step(const int kind, const int mr, const int nv, vf *acc, const float *x, const char *w, size_t w_panel, size_t w_pair, const int second)
{
    const int x_row = kind == QR_PANEL_LINEAR_F32 || kind == QR_PANEL_LINEAR_BF16 ? 1 : QR_X_ROW;
    QR_UNINITIALIZED vf held[12];
    if (mr < nv) {
#pragma GCC unroll 12
        for (int r = 0; r < mr; r++)
            held[r] = vf_set1(x[second * mr + r * x_row]);
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) {
            const vf wv = load_part(kind, part_at(kind, w, w_panel, w_pair, j), second);
#pragma GCC unroll 12
            for (int r = 0; r < mr; r++)
                acc[r * nv + j] = vf_fma(held[r], wv, acc[r * nv + j]);
        }
        return;
    }
#pragma GCC unroll 8
    for (int j = 0; j < nv; j++)
        held[j] = load_part(kind, part_at(kind, w, w_panel, w_pair, j), second);
#pragma GCC unroll 12
    for (int r = 0; r < mr; r++) {
        const vf xv = vf_set1(x[second * mr + r * x_row]);
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            acc[r * nv + j] = vf_fma(xv, held[j], acc[r * nv + j]);
    }
}

VF_FN void block(const int kind, const int mr, const int nr, const struct qr_micro_args *m)
{
    const int nv = nr * PARTS, x_step = kind == QR_PANEL_LINEAR_F32 ? mr : kind == QR_PANEL_LINEAR_BF16 ? 2 * mr : 1;
    vf acc[24];
#pragma GCC unroll 24
    for (int i = 0; i < mr * nv; i++)
        acc[i] = m->onto ? vf_load(m->c + (i / nv) * m->c_stride + (i % nv) * VF_LEN) : vf_zero();
    const float *x = m->x;
    const char *w = m->w;
    const size_t w_panel = m->w_panel, w_pair = m->w_pair, w_step = m->w_step;
    for (int64_t k = m->n_steps; k > 0; k--) {
        block_step(kind, mr, nv, acc, x, w, w_panel, w_pair, 0);
        if (kind == QR_PANEL_LINEAR_BF16)
            block_step(kind, mr, nv, acc, x, w, w_panel, w_pair, 1);
        x += x_step;
        w += w_step;
    }
#pragma GCC unroll 24
    for (int i = 0; i < mr * nv; i++)
        vf_store(m->c + (i / nv) * m->c_stride + (i % nv) * VF_LEN, acc[i]);
}

#define BLOCK(kind, mr, nr)                                                                                            \
    static void block_##kind##_##mr##_##nr(const struct qr_micro_args *m)                                              \
    {                                                                                                                  \
        block(QR_PANEL_##kind, mr, nr, m);                                                                             \
    }
#define ROW_OF(kind, mr, nr) [QR_PANEL_##kind][mr][nr] = block_##kind##_##mr##_##nr,

/* Blocks by rows and panels: as many accumulators as registers allow, beside the weights and one x. */
#ifdef QR_ISA_avx512
#define ROWS_MAX 12
#define FOR_BLOCKS(DO, kind)                                                                                           \
    DO(kind, 1, 1) DO(kind, 1, 2) DO(kind, 1, 4) DO(kind, 2, 1) DO(kind, 2, 2) DO(kind, 2, 4) DO(kind, 3, 1)           \
    DO(kind, 3, 2) DO(kind, 3, 4) DO(kind, 4, 1) DO(kind, 4, 2) DO(kind, 4, 4) DO(kind, 5, 1) DO(kind, 5, 2)           \
    DO(kind, 5, 4) DO(kind, 6, 1) DO(kind, 6, 2) DO(kind, 6, 4) DO(kind, 7, 1) DO(kind, 7, 2) DO(kind, 8, 1)           \
    DO(kind, 8, 2) DO(kind, 9, 1) DO(kind, 9, 2) DO(kind, 10, 1) DO(kind, 10, 2) DO(kind, 11, 1) DO(kind, 11, 2)       \
    DO(kind, 12, 1) DO(kind, 12, 2)
static const uint8_t panels_of[ROWS_MAX + 1] = {0, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2};
#else
#define ROWS_MAX 6
#define FOR_BLOCKS(DO, kind)                                                                                           \
    DO(kind, 1, 1) DO(kind, 1, 2) DO(kind, 1, 4) DO(kind, 2, 1) DO(kind, 2, 2) DO(kind, 3, 1) DO(kind, 3, 2)           \
    DO(kind, 4, 1) DO(kind, 5, 1) DO(kind, 6, 1)
static const uint8_t panels_of[ROWS_MAX + 1] = {0, 4, 2, 2, 1, 1, 1};
#endif

FOR_BLOCKS(BLOCK, LINEAR_F32)
FOR_BLOCKS(BLOCK, LINEAR_BF16)
FOR_BLOCKS(BLOCK, ROWS_F32)
FOR_BLOCKS(BLOCK, ROWS_BF16)

static qr_micro_fn *const blocks[QR_PANEL_KINDS][ROWS_MAX + 1][5] = {
    FOR_BLOCKS(ROW_OF, LINEAR_F32) FOR_BLOCKS(ROW_OF, LINEAR_BF16) FOR_BLOCKS(ROW_OF, ROWS_F32)
    FOR_BLOCKS(ROW_OF, ROWS_BF16)
};

const int32_t QR_ISA_NAME(micro_rows_max) = ROWS_MAX;

int32_t QR_ISA_NAME(micro_panels)(int32_t mr)
{
    QR_ASSERT(mr >= 1 && mr <= ROWS_MAX);
    return panels_of[mr];
}

void QR_ISA_NAME(micro)(enum qr_panel_kind kind, int32_t mr, int32_t n_panels, const struct qr_micro_args *m)
{
    QR_ASSERT(mr >= 1 && mr <= ROWS_MAX);
    QR_ASSERT(n_panels >= 1 && m->n_steps >= 0);
    struct qr_micro_args part = *m;
    part.w_pair = m->w_pair ? m->w_pair : 2 * m->w_panel;
    for (int32_t nr = panels_of[mr], at = 0; at < n_panels; at += nr) {
        while (nr > n_panels - at)
            nr /= 2;
        part.w = part_at(kind, m->w, part.w_panel, part.w_pair, at * PARTS);
        part.c = m->c + at * QR_PANEL;
        blocks[kind][mr][nr](&part);
    }
}
