/* kern_fused.h - part of `quire bench kern`: the kernels of a layer that do several things in one go, against the same things apart. */
#ifndef QR_BENCH_KERN_FUSED_H
#define QR_BENCH_KERN_FUSED_H

#include <stddef.h>
#include <stdint.h>

#include "bench/kern_rows.h"
#include "kernels/backend.h"

/* Layers of published shapes without their attention, 1, 8 and 32 rows, fused and apart taking turns for time_us each; prints a line for each part
 * of a layer with the ratio of the medians, and adds both to `rows`. Successive layers lie in other parts of memory. x: 512 * 16384 floats. */
void qr_bench_fused(struct qr_backend *be, int64_t time_us, char *memory, size_t memory_bytes, float *x, struct qr_kern_rows *rows);

#endif
