#include "bench/kern/scene.h"

#include "base/assert.h"
#include "base/mem.h"

/* Where each array begins: positions, slots, first rows, contexts, tables; and the end. */
struct places {
    int32_t pos, slot, start, ctx, table, end;
};

static struct places places_of(int32_t n_seqs, int32_t n_rows, int32_t ctx, int32_t block_tokens)
{
    QR_ASSERT(n_seqs > 0 && n_rows > 0 && n_rows <= ctx);
    QR_ASSERT(block_tokens > 0 && (int64_t)n_seqs * (ctx + block_tokens) <= INT32_MAX);
    const int32_t n = n_seqs * n_rows, n_blocks = n_seqs * ((ctx + block_tokens - 1) / block_tokens);
    return (struct places){0, n, 2 * n, 2 * n + n_seqs + 1, 2 * n + 2 * n_seqs + 1, 2 * n + 2 * n_seqs + 1 + n_blocks};
}

size_t qr_kern_scene_bytes(int32_t n_seqs, int32_t n_rows, int32_t ctx, int32_t block_tokens)
{
    return (size_t)places_of(n_seqs, n_rows, ctx, block_tokens).end * sizeof(int32_t);
}

void qr_kern_scene_make(struct qr_kern_scene *s, struct qr_backend *be, int32_t *room, int32_t n_seqs, int32_t n_rows, int32_t ctx, int32_t block_tokens,
                        int32_t step)
{
    QR_ASSERT(s != NULL && be != NULL && room != NULL);
    const struct places at = places_of(n_seqs, n_rows, ctx, block_tokens);
    const int32_t n = n_seqs * n_rows, stride = (ctx + block_tokens - 1) / block_tokens, n_blocks = n_seqs * stride;
    QR_ASSERT(step > 0 && (step == 1 || n_blocks % step != 0)); /* of a prime every block is another */
    int32_t *v = s->ints = qr_alloc((size_t)at.end, sizeof *v);
    for (int32_t i = 0; i < n_blocks; i++)
        v[at.table + i] = (int32_t)((int64_t)i * step % n_blocks);
    for (int32_t i = 0; i < n; i++) {
        const int32_t pos = ctx - n_rows + i % n_rows;
        v[at.pos + i] = pos;
        v[at.slot + i] = v[at.table + i / n_rows * stride + pos / block_tokens] * block_tokens + pos % block_tokens;
    }
    for (int32_t i = 0; i <= n_seqs; i++)
        v[at.start + i] = i * n_rows;
    for (int32_t i = 0; i < n_seqs; i++)
        v[at.ctx + i] = ctx;
    be->mem->put(be->queue, room, v, (size_t)at.end * sizeof *v);
    s->host = (struct qr_batch){.n_tokens = n, .n_seqs = n_seqs, .n_prefill_seqs = n_rows > 1 ? n_seqs : 0, .block_tokens = block_tokens,
                                .table_stride = stride, .ids = v, .pos = v + at.pos, .slot = v + at.slot, .row_start = v + at.start, .ctx_len = v + at.ctx,
                                .block_table = v + at.table};
    s->device = s->host;
    s->device.ids = s->device.pos = room + at.pos, s->device.slot = room + at.slot, s->device.row_start = room + at.start;
    s->device.ctx_len = room + at.ctx, s->device.block_table = room + at.table, s->device.host = &s->host;
}

void qr_kern_scene_release(struct qr_kern_scene *s)
{
    QR_ASSERT(s != NULL);
    qr_free(s->ints);
    *s = (struct qr_kern_scene){0};
}
