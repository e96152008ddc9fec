/* make.h - `quire bench make-model`: a model directory with random weights in a published shape, so that anyone can repeat a
 * measurement without the model itself. The tokenizer is one token per byte and filler above: text round-trips, ids reach the whole vocabulary.
 */
#ifndef QR_BENCH_MAKE_H
#define QR_BENCH_MAKE_H

#include "base/command.h"

/* argv[0] is the subcommand's name. Returns the exit status: 0, 2 for usage, 4 when the directory cannot be written. */
int qr_bench_make_main(int argc, char **argv);
extern const struct qr_command qr_bench_make_command;

#endif
