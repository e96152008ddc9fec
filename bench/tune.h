/* tune.h - `quire bench tune`: measures a model's shapes with the kernels' own choices and with others, prints what is faster, and keeps it for every
 * later start on this kind of processor (model/tune.h, kernels/tune.h).
 */
#ifndef QR_BENCH_TUNE_H
#define QR_BENCH_TUNE_H

#include "base/command.h"

/* argv[0] is the subcommand's name. Returns the exit status: 0, or that of the error (2 usage, 4 model or file, 5 memory). */
int qr_bench_tune_main(int argc, char **argv);
extern const struct qr_command qr_bench_tune_command;

#endif
