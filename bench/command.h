/* command.h - what the smaller benches' main functions have in common: options in, one run, an exit status out. */
#ifndef QR_BENCH_COMMAND_H
#define QR_BENCH_COMMAND_H

#include "base/option.h"

struct qr_bench_command {
    const char *name;               /* "throughput": errors begin with "quire bench throughput: " */
    const char *usage;              /* the first line of --help */
    const struct qr_option *table;  /* borrowed [n_options] */
    int32_t n_options;
    /* Does the work. `options` is what the table fills; *status, 0 so far, is the exit status of a run without an error, and of one that was interrupted
     * (not 0 then). */
    int (*run)(const void *options, int *status, struct qr_err *err);
};

/* Reads argv into *options (zeroed by the caller), answers --help, --print-config and --check-config, or runs. Returns the exit status. */
int qr_bench_command_main(const struct qr_bench_command *c, void *options, int argc, char **argv);

#endif
