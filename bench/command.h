/* command.h - what the smaller benches' main functions have in common: options in, one run, an exit status out. */
#ifndef QR_BENCH_COMMAND_H
#define QR_BENCH_COMMAND_H

#include "base/command.h"

/* Reads argv into *options (zeroed by the caller), and answers or runs. `run` does the work: *status, 0 so far, is the exit status of a run without an
 * error, and of one that was interrupted (not 0 then). Returns the exit status. */
int qr_bench_command_main(const struct qr_command *c, int (*run)(const void *options, int *status, struct qr_err *err), void *options, int argc,
                          char **argv);

#endif
