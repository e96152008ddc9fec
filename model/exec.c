/* What an op may reach, and the step's batch where kernels read it. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "loader/pack/share.h"
#include "model/model.h"
#include "model/ranks.h"
#include "model/repeat.h"
#include "model/step_arrays.h"

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
    qr_ranks_release(x->ranks);
    if (x->n_repeats > 0)
        x->be->mem->sync(x->be->queue); /* where there are peers: what takes memory away waits for the device without looking after them */
    qr_repeats_release(x);
    if (x->arrays)
        x->be->mem->free(x->arrays);
    *x = (struct qr_exec){0};
}

int32_t qr_step_table_width(const struct qr_batch *b)
{
    QR_ASSERT(b != NULL);
    int32_t most = 1;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const int32_t n = (b->ctx_len[s] + b->block_tokens - 1) / b->block_tokens;
        most = n > most ? n : most;
    }
    QR_ASSERT(most <= b->table_stride);
    return most;
}

struct qr_step_layout qr_step_lay_out(const struct qr_batch *b, int32_t width)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(b->n_tokens >= 0 && b->n_seqs >= 0 && b->n_logits >= 0 && width > 0);
    struct qr_step_layout l = {.width = width};
    const struct qr_draws *d = &b->draws;
    const int64_t count[QR_STEP_ARRAYS] = {b->n_tokens, b->n_tokens, b->n_tokens, b->n_seqs + 1, b->n_seqs, b->n_logits, b->n_hidden,
                                           (int64_t)b->n_seqs * width, b->n_groups > 0 ? b->n_tokens : 0, d->n_rows, d->n_changes};
    for (int i = 0; i < QR_STEP_ARRAYS; i++) {
        l.at[i] = l.total;
        l.n[i] = (size_t)count[i] * (i == QR_STEP_ROWS ? sizeof *d->row : i == QR_STEP_CHANGES ? sizeof *d->change : sizeof(int32_t));
        l.total += qr_align_up(l.n[i], QR_STEP_ALIGN);
    }
    return l;
}

static void fill_adapters(int32_t *row_slot, const struct qr_batch *b)
{
    memset(row_slot, 0xff, (size_t)b->n_tokens * sizeof *row_slot); /* -1 */
    for (int32_t g = 0; g < b->n_groups; g++)
        for (int32_t i = 0; i < b->group[g].n_rows; i++)
            row_slot[b->group[g].row[i]] = b->group[g].slot;
}

void qr_step_fill(uint8_t *to, const struct qr_step_layout *l, const struct qr_batch *b)
{
    QR_ASSERT(to != NULL && l != NULL);
    QR_ASSERT(b != NULL);
    const void *const from[QR_STEP_ARRAYS] = {b->ids, b->pos, b->slot, b->row_start, b->ctx_len, b->logit_row, b->hidden_row, NULL, NULL,
                                              b->draws.row, b->draws.change};
    for (int i = 0; i < QR_STEP_ARRAYS; i++)
        if (i != QR_STEP_TABLE && i != QR_STEP_ADAPTERS && l->n[i] > 0)
            memcpy(to + l->at[i], from[i], l->n[i]);
    if (b->n_groups > 0)
        fill_adapters((int32_t *)(void *)(to + l->at[QR_STEP_ADAPTERS]), b);
    const size_t row = (size_t)l->width * sizeof(int32_t);
    for (int32_t s = 0; s < b->n_seqs; s++) /* what no sequence uses stays here */
        memcpy(to + l->at[QR_STEP_TABLE] + (size_t)s * row, b->block_table + (size_t)s * (size_t)b->table_stride, row);
}

void qr_step_place(struct qr_batch *b, const struct qr_step_layout *l, void *from)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(l != NULL && from != NULL);
    void *at[QR_STEP_ARRAYS];
    for (int i = 0; i < QR_STEP_ARRAYS; i++)
        at[i] = (uint8_t *)from + l->at[i];
    b->ids = at[QR_STEP_IDS], b->pos = at[QR_STEP_POS], b->slot = at[QR_STEP_SLOT], b->row_start = at[QR_STEP_ROW_START];
    b->ctx_len = at[QR_STEP_CTX_LEN], b->logit_row = at[QR_STEP_LOGIT_ROW], b->hidden_row = at[QR_STEP_HIDDEN_ROW];
    b->block_table = at[QR_STEP_TABLE], b->table_stride = l->width;
    b->row_slot = b->n_groups > 0 ? at[QR_STEP_ADAPTERS] : NULL;
    b->draws.row = at[QR_STEP_ROWS], b->draws.change = at[QR_STEP_CHANGES];
}

void qr_exec_set_batch(struct qr_exec *x, const struct qr_batch *b)
{
    QR_ASSERT(x != NULL && b != NULL);
    QR_ASSERT(x->be != NULL && b->host == NULL);
    const struct qr_mem_ops *mem = x->be->mem;
    x->batch = b;
    if (mem->host)
        return;
    QR_ASSERT(!x->split); /* what is copied are the first part's arrays */
    const struct qr_step_layout l = qr_step_lay_out(b, qr_repeats(x, b) ? qr_repeat_width(b) : qr_step_table_width(b));
    if (l.total > x->arrays_bytes) {
        mem->sync(x->be->queue); /* as in qr_exec_release */
        qr_repeats_release(x);   /* they know the old ones */
        mem->free(x->arrays);
        x->arrays_bytes = 2 * l.total;
        x->arrays = mem->alloc(x->arrays_bytes);
    }
    uint8_t *staged = mem->stage(x->be->queue, l.total);
    qr_step_fill(staged, &l, b);
    mem->put(x->be->queue, x->arrays, staged, l.total);
    x->placed = *b;
    qr_step_place(&x->placed, &l, x->arrays);
    if (!qr_repeats(x, b))
        x->placed.row_slot = NULL; /* kernels that know the groups read an adapter once for several rows */
    x->placed.host = b;
    x->batch = &x->placed;
}
