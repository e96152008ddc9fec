/* comm_tree.h - the one order in which ranks are added: a range of ranks is cut behind the largest power of two that is smaller than it, and what is left
 * of the cut is added to what is right of it. Element by element in its own type, so that cutting an array anywhere changes nothing.
 */
#ifndef QR_COMM_COMM_TREE_H
#define QR_COMM_COMM_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"

/* Bytes of scratch memory that a sum needs. */
size_t qr_comm_tree_scratch(void);

/* out[0][i] = the sum of in[0..n_ranks)[i] along the tree, i < n; then copied to out[1..n_outs). f32 and f64.
 * Any out may be any in; arrays do not overlap otherwise. */
void qr_comm_tree_sum(void *const *out, int32_t n_outs, const void *const *in, int32_t n_ranks, enum qr_dtype t, int64_t n, void *scratch);

#endif
