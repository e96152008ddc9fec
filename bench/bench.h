/* bench.h - the commands of `quire bench` that need no server. Each .c says what its command measures. Exit status: 0, or that of the
 * error (2 usage, 4 model or file, 5 memory); `kern` also 6, slower than the baseline. */
#ifndef QR_BENCH_BENCH_H
#define QR_BENCH_BENCH_H

#include "base/command.h"

extern const struct qr_command qr_bench_comm_command, qr_bench_kern_command, qr_bench_make_command, qr_bench_open_command, qr_bench_step_command,
    qr_bench_throughput_command, qr_bench_train_command;

#endif
