/* int8.h - what an int8 cache adds to a query tile: integers on their way to the products, and the scales that stay outside of them.
 * Included by attention.c and its ways to form products only.
 *
 * An integer of 8 bits is a number of f32, so staging loses nothing and the products are an f32 cache's. A key's scale (times what scores are
 * multiplied with) multiplies the finished sum, a value's the probability; both come from the two rows of scales that stage_scales leaves
 * in scratch. On tiles (amx/attn_bytes.h) the integers themselves are multiplied.
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_INT8_H
#define QR_KERNELS_CPU_ISA_ATTENTION_INT8_H

#include "kernels/cpu/isa/attention/tile.h"

static bool is_int8(const struct tile *t)
{
    return t->a->kv->dtype == QR_I8;
}

/* Scales of the block that holds position pos of the sequence, [P]. */
static const float *block_scales(const struct tile *t, int32_t which, int32_t pos)
{
    const char *plane = cache_row(t, which, pos & ~(t->a->kv->block_tokens - 1));
    return (const float *)(const void *)(plane + (size_t)t->a->kv->block_tokens * t->row_bytes);
}

/* key_scale, value_scale of positions [begin, end) of the piece at `base`. */
static void stage_scales(const struct tile *t, int32_t base, int32_t begin, int32_t end)
{
    struct scratch *s = t->s;
    const vf scale = vf_set1(t->a->softcap > 0 ? t->a->scale : t->factor);
    for (int32_t at = begin, run; at < end; at += run) {
        run = run_length(t, base + at, end - at);
        const int32_t row = (base + at) & (t->a->kv->block_tokens - 1);
        const float *k = block_scales(t, 0, base + at) + row, *v = block_scales(t, 1, base + at) + row;
        for (int32_t i = 0; i < run; i += VF_LEN) {
            int64_t n = vf_min_len(run - i);
            vf_store_n(s->key_scale + at + i, vf_mul(vf_load_n(k + i, n), scale), n);
            vf_store_n(s->value_scale + at + i, vf_load_n(v + i, n), n);
        }
    }
}

#endif
