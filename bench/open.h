/* open.h - `quire bench open`: how fast a model (a directory, or a GGUF file) opens, beside the speed at which the system reads its files.
 *
 * In turn, several times: all threads read the files into small buffers; all threads read them into fresh memory; the model is opened. Packing
 * reads every byte, and writes every byte to fresh memory, so the second is what it can hope for.
 */
#ifndef QR_BENCH_OPEN_H
#define QR_BENCH_OPEN_H

#include "base/command.h"

/* argv[0] is the subcommand's name. Returns the exit status: 0, or that of the error (2 usage, 4 model, 5 memory). */
int qr_bench_open_main(int argc, char **argv);
extern const struct qr_command qr_bench_open_command;

#endif
