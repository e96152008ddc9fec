/* oracle.h - the reference kernels once more, in double. `oracle` is a kernel table whose activations are arrays of double behind the
 * float pointers of the arguments (see kernels/ref/ref.h). Include it in one place of a test program. */
#ifndef QR_TESTS_KERNELS_ORACLE_H
#define QR_TESTS_KERNELS_ORACLE_H

#define QR_REAL double
#include "kernels/ref/ref_adapt.c"
#include "kernels/ref/ref_attention.c"
#include "kernels/ref/ref_experts.c"
#include "kernels/ref/ref_linear.c"
#include "kernels/ref/ref_rows.c"
#include "kernels/ref/ref_table.c"
#undef PIECE
#undef K_MAX

static const struct qr_kernels *const oracle = &qr_ref_f64_kernels;

#endif
