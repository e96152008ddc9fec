/* oracle.h - the reference kernels once more, in double. `oracle` is a kernel table whose activations are arrays of double behind the
 * float pointers of the arguments (see kernels/ref/ref.h); cmake/module.cmake says how they are compiled. */
#ifndef QR_TESTS_KERNELS_ORACLE_H
#define QR_TESTS_KERNELS_ORACLE_H

#define QR_REAL double
#include "kernels/ref/ref.h"

static const struct qr_kernels *const oracle = &qr_ref_f64_kernels;

#endif
