/* wide_oracle.h - the reference kernels and their gradients with nothing but f64: activations, parameters, weights, cache. Every pointer of the
 * arguments that says float is an array of double. Include it in one place of a test program, instead of oracle.h. */
#ifndef QR_TESTS_KERNELS_WIDE_ORACLE_H
#define QR_TESTS_KERNELS_WIDE_ORACLE_H

#define QR_REAL double
#define QR_REF_PARAM double
#include "kernels/ref/ref_adapt.c"
#include "kernels/ref/ref_attention.c"
#include "kernels/ref/ref_experts.c"
#include "kernels/ref/ref_back_attention.c"
#include "kernels/ref/ref_back_linear.c"
#include "kernels/ref/ref_back_rows.c"
#include "kernels/ref/ref_back_table.c"
#include "kernels/ref/ref_linear.c"
#include "kernels/ref/ref_optim.c"
#include "kernels/ref/ref_rows.c"
#include "kernels/ref/ref_table.c"
#undef PIECE
#undef K_MAX
#undef BACK_K_MAX

static const struct qr_kernels *const wide = &qr_ref_f64_kernels;
static const struct qr_backward *const wide_back = &qr_ref_f64_backward;

#endif
