/* cmd_bench.c - the table of measurements. */
#include "base/assert.h"
#include "bench/bench.h"
#ifdef QUIRE_SERVER
#include "bench/load/load.h"
#endif
#include "cli/cli.h"

static const struct qr_command *const sub[] = {
#ifdef QUIRE_SERVER
    &qr_bench_load_command,
#endif
    &qr_bench_kern_command, &qr_bench_throughput_command, &qr_bench_step_command, &qr_bench_train_command,
    &qr_bench_comm_command, &qr_bench_open_command, &qr_bench_make_command,
};

const struct qr_command qr_cmd_bench = {
    .name = "bench", .purpose = "measure: load, kern, throughput, ..; make models to measure",
    .usage = "quire bench COMMAND ...",
    .sub = sub, .n_sub = QR_COUNT(sub),
};
