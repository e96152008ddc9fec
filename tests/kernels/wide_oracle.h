/* wide_oracle.h - the reference kernels and their gradients with nothing but f64: activations, parameters, weights, cache. Every pointer of the
 * arguments that says float is an array of double. Instead of oracle.h. */
#ifndef QR_TESTS_KERNELS_WIDE_ORACLE_H
#define QR_TESTS_KERNELS_WIDE_ORACLE_H

#define QR_REAL double
#define QR_REF_PARAM double
#include "kernels/ref/ref.h"

static const struct qr_kernels *const wide = &qr_ref_wide_kernels;
static const struct qr_backward *const wide_back = &qr_ref_wide_backward;

#endif
