/* fused.h - part of `quire bench kern`: the kernels of a layer that do several things in one go, against the same things apart. */
#ifndef QR_BENCH_KERN_FUSED_H
#define QR_BENCH_KERN_FUSED_H

#include <stddef.h>
#include <stdint.h>

#include "bench/kern/rows.h"
#include "kernels/backend.h"

/* Layers of published shapes without their attention, 1 to 512 rows (as many as x holds): chains, their parts, and each op apart, taking turns for time_us
 * each. Prints a line for each part of a layer with ratios of the medians, and adds all to `rows`. Successive layers lie in other parts of memory.
 * x: n_x floats, 262,144 at least, which are overwritten. */
void qr_bench_fused(struct qr_backend *be, int64_t time_us, char *memory, size_t memory_bytes, float *x, size_t n_x, struct qr_kern_rows *rows);

#endif
