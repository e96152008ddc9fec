/* train.h - `quire bench train`: how fast a training step is: a Llama of given shape with random weights, random documents, and where the time goes.
 */
#ifndef QR_BENCH_TRAIN_H
#define QR_BENCH_TRAIN_H

#include "base/command.h"

/* argv[0] is the subcommand's name. Returns the exit status: 0, or that of the error (2 usage, 5 memory). */
int qr_bench_train_main(int argc, char **argv);
extern const struct qr_command qr_bench_train_command;

#endif
