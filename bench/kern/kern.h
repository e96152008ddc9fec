/* kern.h - `quire bench kern`: how fast the kernels of this machine are, by themselves: no model, no server.
 *
 * Walks the shapes of tests/ops_cases.h that are marked for speed, for each instruction-set level and thread count, and prints GB/s
 * beside what a plain read of memory reaches, GFLOP/s, and the time of a call (median).
 */
#ifndef QR_BENCH_KERN_KERN_H
#define QR_BENCH_KERN_KERN_H

#include "base/command.h"

/* argv[0] is the subcommand's name. Returns the exit status: 0; 2 usage; 4 no such baseline, or none of its kernels was
 * measured; 6 a kernel is slower than the baseline by more than the threshold. */
int qr_bench_kern_main(int argc, char **argv);
extern const struct qr_command qr_bench_kern_command;

#endif
