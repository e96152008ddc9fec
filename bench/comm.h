/* comm.h - `quire bench comm`: what sums and copies between ranks cost on this machine, beside the speed of memory. Ranks are threads, forked processes, or
 * those of mpirun (mpirun -n 2 quire bench comm).
 */
#ifndef QR_BENCH_COMM_H
#define QR_BENCH_COMM_H

#include "base/err.h"
#include "comm/comm.h"

struct qr_comm_case {
    int64_t n_bytes;   /* of a rank's array */
    int32_t n_rounds;  /* medians of so many */
};

/* The part of one rank; rank 0 prints. All ranks call it. */
int qr_bench_comm(struct qr_comm *c, const struct qr_comm_case *k, struct qr_err *err);

#endif
