/* ways.h - how a device that has several ways to compute did so in a run, for readers of the run's numbers. Inside
 * bench/ only. */
#ifndef QR_BENCH_WAYS_H
#define QR_BENCH_WAYS_H

#include "kernels/backend.h"

/* A line for each thing that is slower than the device could be, or not the same in any batch; json: one object, {"case":"ways",..}. Of the processor
 * nothing. */
void qr_bench_ways_print(const struct qr_backend *be, bool json);

#endif
