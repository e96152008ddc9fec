#include "model/blocks.h"

#include <math.h>

#include "base/assert.h"

const struct qr_weight *qr_weight_or_null(const struct qr_weight *w)
{
    QR_ASSERT(w != NULL);
    return w->t.data || w->packed ? w : NULL;
}

struct qr_attn_spec qr_attn_spec_of(const struct qr_model_config *c, int32_t layer)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(layer >= 0 && layer < c->n_layers);
    return (struct qr_attn_spec){
        .layer = layer,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .window = qr_layer_window(c, layer),
        .scale = c->attn_scale > 0 ? c->attn_scale : (float)(1 / sqrt((double)c->head_dim)),
        .softcap = c->attn_softcap,
        .local = c->local_theta > 0 && qr_layer_window(c, layer) > 0,
        .row_norms = c->qk_norm_rows,
        .unrotated = (c->unrotated[layer / 64] >> (layer % 64) & 1) != 0,
    };
}
