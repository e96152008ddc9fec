/* shapes.h - published models' shapes by name, for benches that make weights of their own. Pure data. */
#ifndef QR_BENCH_SHAPES_H
#define QR_BENCH_SHAPES_H

#include "base/err.h"
#include "loader/model_config.h"

/* The names of all, for help texts. */
#define QR_SHAPE_NAMES \
    "110m, 124m, smollm2-135m, qwen2.5-0.5b, qwen2.5-1.5b, qwen3-0.6b, llama-3.2-1b, llama-3.1-8b, qwen3-8b, qwen1.5-moe-a2.7b, qwen3-30b-a3b or mixtral-8x7b"

/* QR_E_USAGE names the nearest shape where there is none of this name. */
int qr_shape_config(struct qr_model_config *out, const char *name, struct qr_err *err);

#endif
