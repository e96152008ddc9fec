/* throughput.h - `quire bench throughput`: how fast a model runs offline: prompts, and decode steps of several sequences at given depths.
 * Straight through the model, without scheduler, sampling or HTTP: what the kernels allow.
 */
#ifndef QR_BENCH_THROUGHPUT_H
#define QR_BENCH_THROUGHPUT_H

#include "base/command.h"

/* argv[0] is the subcommand's name. Returns the exit status: 0, or that of the error (2 usage, 4 model, 5 memory). */
int qr_bench_throughput_main(int argc, char **argv);
extern const struct qr_command qr_bench_throughput_command;

#endif
