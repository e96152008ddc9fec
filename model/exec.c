/* What an op may reach, and the step's batch where kernels read it. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "model/model.h"

#define ALIGN 64 /* bytes between arrays: kernels load them in vectors */
#define N_ARRAYS 7

void qr_exec_init(struct qr_exec *x, const struct qr_model *m, struct qr_backend *be, struct qr_arena *act, const struct qr_kv_view *kv)
{
    QR_ASSERT(x != NULL && m != NULL);
    QR_ASSERT(be != NULL && act != NULL);
    *x = (struct qr_exec){.ops = &qr_ops_serve, .be = be, .act = act, .kv = kv, .model = m};
}

void qr_exec_release(struct qr_exec *x)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(x->arrays == NULL || x->be != NULL);
    if (x->arrays)
        x->be->mem->free(x->arrays);
    *x = (struct qr_exec){0};
}

/* Entries of each row of the block table that somebody uses. */
static int32_t table_width(const struct qr_batch *b)
{
    int32_t most = 1;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const int32_t n = (b->ctx_len[s] + b->block_tokens - 1) / b->block_tokens;
        most = n > most ? n : most;
    }
    QR_ASSERT(most <= b->table_stride);
    return most;
}

/* The arrays of a batch, one after the other. */
struct layout {
    const int32_t *from[N_ARRAYS];
    size_t at[N_ARRAYS], n[N_ARRAYS], total; /* bytes */
    int32_t width;                           /* of the block table, the last of them */
};

static struct layout lay_out(const struct qr_batch *b)
{
    const int32_t *const from[N_ARRAYS] = {b->ids, b->pos, b->slot, b->row_start, b->ctx_len, b->logit_row, b->block_table};
    struct layout l = {.width = table_width(b)};
    const int64_t count[N_ARRAYS] = {b->n_tokens, b->n_tokens, b->n_tokens, b->n_seqs + 1, b->n_seqs, b->n_logits, (int64_t)b->n_seqs * l.width};
    for (int i = 0; i < N_ARRAYS; i++) {
        l.from[i] = from[i];
        l.at[i] = l.total;
        l.n[i] = (size_t)count[i] * sizeof(int32_t);
        l.total += qr_align_up(l.n[i], ALIGN);
    }
    return l;
}

static void fill(uint8_t *to, const struct layout *l, const struct qr_batch *b)
{
    for (int i = 0; i < N_ARRAYS - 1; i++)
        memcpy(to + l->at[i], l->from[i], l->n[i]);
    const size_t row = (size_t)l->width * sizeof(int32_t);
    for (int32_t s = 0; s < b->n_seqs; s++) /* rows are shorter there, and what no sequence uses stays here */
        memcpy(to + l->at[N_ARRAYS - 1] + (size_t)s * row, b->block_table + (size_t)s * (size_t)b->table_stride, row);
}

void qr_exec_set_batch(struct qr_exec *x, const struct qr_batch *b)
{
    QR_ASSERT(x != NULL && b != NULL);
    QR_ASSERT(x->be != NULL && b->host == NULL);
    const struct qr_mem_ops *mem = x->be->mem;
    x->batch = b;
    if (mem->host)
        return;
    const struct layout l = lay_out(b);
    if (l.total > x->arrays_bytes) {
        mem->free(x->arrays);
        x->arrays_bytes = 2 * l.total;
        x->arrays = mem->alloc(x->arrays_bytes);
    }
    uint8_t *staged = mem->stage(x->be->queue, l.total);
    fill(staged, &l, b);
    mem->put(x->be->queue, x->arrays, staged, l.total);
    const int32_t *at[N_ARRAYS];
    for (int i = 0; i < N_ARRAYS; i++)
        at[i] = (const int32_t *)(const void *)((const uint8_t *)x->arrays + l.at[i]);
    x->placed = *b;
    x->placed.ids = at[0], x->placed.pos = at[1], x->placed.slot = at[2], x->placed.row_start = at[3], x->placed.ctx_len = at[4];
    x->placed.logit_row = at[5], x->placed.block_table = at[6], x->placed.table_stride = l.width;
    x->placed.host = b;
    x->batch = &x->placed;
}
