/* make_model.h - writes model directories with random weights, for tests and benches that need a shape which no file has:
 * sliding windows, long contexts, several shards, any size. The same configuration and seed give the same bytes on every machine.
 *
 * Matrices and biases are drawn with mean 0 and standard deviation `std` (0.02: the initializer_range that the four families publish; sums of
 * four uniform numbers stand for the normal distribution), norm weights with mean 1.
 */
#ifndef QR_LOADER_WRITE_MAKE_MODEL_H
#define QR_LOADER_WRITE_MAKE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"
#include "loader/model_config.h"

struct qr_make_options {
    enum qr_dtype store; /* f32, f16 or bf16 */
    uint64_t seed;
    int32_t n_shards;    /* 0 or 1: model.safetensors; more: shards and an index */
    double std;          /* 0: 0.02 */
    struct qr_progress *progress; /* borrowed; NULL: none */
    bool (*stopped)(void); /* asked now and then: true gives up with QR_E_CLOSED, and leaves what is written; NULL: never */
};

/* Makes `dir` if need be, and in it config.json and the weights. Existing files are not overwritten (QR_E_IO). */
int qr_model_make(const char *dir, const struct qr_model_config *config, const struct qr_make_options *options, struct qr_err *err);

/* A configuration of an architecture with everything else at its plainest, to be changed by the caller: 2 layers of width 64, 4 query and 2 kv
 * heads of 16, feed-forward 96, 256 tokens of vocabulary, context 512; where there are experts 8, of which 2 are used, of 96 (Mixtral) or 32, and 48 for
 * the shared one. */
struct qr_model_config qr_model_config_small(enum qr_arch arch);

#endif
