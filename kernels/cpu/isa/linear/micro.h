/* micro.h - register blocks of a matrix product; see micro.c. Inside this folder only. */
#ifndef QR_KERNELS_CPU_ISA_LINEAR_MICRO_H
#define QR_KERNELS_CPU_ISA_LINEAR_MICRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"

/* How a weight or a cache row is laid out for micro.h. */
enum qr_panel_kind { QR_PANEL_LINEAR_F32, QR_PANEL_LINEAR_BF16, QR_PANEL_ROWS_F32, QR_PANEL_ROWS_BF16, QR_PANEL_KINDS };

#define QR_PANEL 16   /* columns of a panel, at every level */
_Static_assert(QR_PANEL == QR_LINEAR_PACKED_TOGETHER, "a panel is a packed matrix");
#define QR_X_ROW 272  /* floats from row to row of x for the QR_PANEL_ROWS kinds: a piece of 256 and a shift against cache aliasing */

/* Whether this processor has AVX-VNNI, which level avx2 then takes for many rows' integers (avx2/gemm_vnni.c); asked once. */
bool qr_avx2_has_vnni(void);

/* Panels of an item that would have n: whole stretches where something is asked of each. */
static inline int32_t qr_item_panels(const struct qr_linear_args *a, int32_t n)
{
    const int32_t stretch = QR_LINEAR_STRETCH / QR_PANEL;
    return !a->stretches ? n : n > stretch ? n / stretch * stretch : stretch;
}

/* n or a few panels more, so that qr_item_panels does not leave much out. */
static inline int32_t qr_nearly_stretches(const struct qr_linear_args *a, int32_t n)
{
    const int32_t stretch = QR_LINEAR_STRETCH / QR_PANEL;
    return !a->stretches ? n : (n + stretch / 2) / stretch * stretch;
}

/* A register block of the matrix product, see micro.h. */
struct qr_micro_args {
    float *c;           /* [mr][c_stride]: sums; read first when `onto` */
    const float *x;     /* mr rows */
    const void *w;      /* the first panel at the first k */
    int64_t c_stride;   /* floats */
    size_t w_panel;     /* bytes from one panel to the next */
    size_t w_pair;      /* bytes from one pair of panels to the next; 0: 2 w_panel */
    size_t w_step;      /* bytes from one k (a pair of k for QR_PANEL_LINEAR_BF16) to the next */
    int64_t n_steps;    /* k's, or pairs of k */
    bool onto;          /* add to c in its order of k, instead of starting from 0 */
};
typedef void qr_micro_fn(const struct qr_micro_args *m);

/* Rows of the largest register block, and panels that a block of mr rows takes at once (a power of two). */
extern const int32_t QR_ISA_NAME(micro_rows_max);
int32_t QR_ISA_NAME(micro_panels)(int32_t mr);

/* c[r][0 .. 16 * n_panels) for mr <= micro_rows_max rows. Walks the panels in register blocks. */
void QR_ISA_NAME(micro)(enum qr_panel_kind kind, int32_t mr, int32_t n_panels, const struct qr_micro_args *m);

#endif
