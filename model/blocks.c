#include "model/blocks.h"

#include <math.h>

#include "base/assert.h"

const struct qr_weight *qr_weight_or_null(const struct qr_weight *w)
{
    QR_ASSERT(w != NULL);
    return w->t.data || w->packed ? w : NULL;
}

void qr_split_qkv(const struct qr_tensor *qkv, const struct qr_model_config *c, struct qr_tensor *q, struct qr_tensor *k,
                  struct qr_tensor *v)
{
    QR_ASSERT(qkv != NULL && c != NULL);
    QR_ASSERT(q != NULL && k != NULL && v != NULL);
    const int64_t n_q = (int64_t)c->n_heads * c->head_dim, n_kv = (int64_t)c->n_kv_heads * c->head_dim;
    QR_ASSERT(qkv->shape[1] == n_q + 2 * n_kv);
    const struct qr_tensor parts[3] = {qr_tensor_columns(qkv, 0, n_q), qr_tensor_columns(qkv, n_q, n_kv),
                                       qr_tensor_columns(qkv, n_q + n_kv, n_kv)};
    *q = qr_tensor_heads(&parts[0], c->n_heads, c->head_dim);
    *k = qr_tensor_heads(&parts[1], c->n_kv_heads, c->head_dim);
    *v = qr_tensor_heads(&parts[2], c->n_kv_heads, c->head_dim);
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
        .window = layer >= c->window_first_layer ? c->window : 0,
        .scale = (float)(1 / sqrt((double)c->head_dim)),
    };
}
