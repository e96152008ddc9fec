/* kv_split.h - which block of a run of tokens has a layer's keys and values, where a model has layers with a window and layers without one.
 *
 * A run of block_tokens tokens has 1 + n_twins blocks then (kvcache/kv_twin.h), of n_layers layers each. Layers that see everything are in the first; layers
 * with a window are in twins, which are given back when it has passed. So the cache's view has n_layers layers, and kernels see no difference: they are given
 * a layer's number in its block, and that block's table. n_twins follows from the numbers of layers: blocks of all parts have nearly the same number. */
#ifndef QR_MODEL_KV_SPLIT_H
#define QR_MODEL_KV_SPLIT_H

#include <stdint.h>

#include "loader/model_config.h"

#define QR_TWINS_MAX 15

struct qr_kv_split {
    int32_t n_twins;  /* 0: there is nothing to split, all layers are in the same block */
    int32_t n_layers; /* of a block, of which the last twin may have fewer */
    int64_t slot_part, table_part; /* of the batches that are computed with it: from the slots, and the tables, of one part to the next's */
    struct {
        int16_t part, layer; /* 0 the block, k + 1 its twin k; and the number in it */
    } of[QR_LAYERS_MAX];
};

/* But for what batches say. */
void qr_kv_split_of(struct qr_kv_split *out, const struct qr_model_config *c);

#endif
