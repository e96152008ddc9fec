/* cmd_bench.c - the table of measurements. */
#include "base/assert.h"
#include "bench/comm.h"
#include "bench/kern.h"
#include "bench/make.h"
#include "bench/open.h"
#include "bench/step.h"
#include "bench/throughput.h"
#include "bench/train.h"
#include "bench/tune.h"
#ifdef QUIRE_SERVER
#include "bench/load.h"
#endif
#include "cli/cli.h"

static const struct qr_cli_command benches[] = {
#ifdef QUIRE_SERVER
    {"load", qr_bench_load_main, "drive a server over HTTP: latencies, throughput, errors"},
#endif
    {"kern", qr_bench_kern_main, "time the kernels against the machine's limits"},
    {"throughput", qr_bench_throughput_main, "prompts and decode steps offline, at batch sizes and depths"},
    {"step", qr_bench_step_main, "the engine's own work per step, with kernels that compute nothing"},
    {"train", qr_bench_train_main, "training steps of a model of any shape: tokens per second and where the time goes"},
    {"tune", qr_bench_tune_main, "measure how a model's work is cut best here, and keep it"},
    {"comm", qr_bench_comm_main, "sums and copies between ranks: threads, processes, mpirun"},
    {"open", qr_bench_open_main, "open a model directory, against the speed of reading its files"},
    {"make-model", qr_bench_make_main, "a random-weight model directory of a published shape"},
};

int qr_cmd_bench(int argc, char **argv)
{
    return qr_cli_group(benches, QR_COUNT(benches), argc, argv);
}
