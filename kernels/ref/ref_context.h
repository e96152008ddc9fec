/* ref_context.h - what a query of the plain attention sees of the cache; tests that derive bounds look at it in the same way. */
#ifndef QR_KERNELS_REF_CONTEXT_H
#define QR_KERNELS_REF_CONTEXT_H

#include "kernels/ref/ref.h"

/* One query's view of the cache: layer and head fixed, its sequence's blocks in order. */
struct context {
    const struct qr_attention_args *a;
    const int32_t *blocks;
    int32_t head;
};

/* Where the key (which 0) or value (which 1) at position t begins. */
static inline size_t cached_at(const struct context *c, int32_t which, int32_t t)
{
    const struct qr_kv_view *kv = c->a->kv;
    return qr_kv_offset(kv, c->blocks[t / kv->block_tokens], c->a->layer, which, c->head) + (size_t)(t % kv->block_tokens) * (size_t)kv->head_dim;
}

/* An element of the cache; of an int8 one the integer. */
static inline real cached(const struct context *c, size_t at)
{
    return (real)qr_ref_load(c->a->kv->base, c->a->kv->dtype, at);
}

/* The whole key or value. */
static inline void cached_row(real *out, const struct context *c, int32_t which, int32_t t)
{
    qr_ref_load_row(out, c->a->kv->base, c->a->kv->dtype, cached_at(c, which, t), c->a->kv->head_dim);
}

/* What the integers of the key or value at position t stand for; 1 for other types. */
static inline real scale_of(const struct context *c, int32_t which, int32_t t)
{
    const struct qr_kv_view *kv = c->a->kv;
    if (!qr_kv_has_scales(kv->dtype))
        return 1;
    return (real)qr_kv_scales(kv, c->blocks[t / kv->block_tokens], c->a->layer, which, c->head)[t % kv->block_tokens];
}

#endif
