#include "model/alone.h"

#include "base/assert.h"
#include "base/mem.h"
#include "model/lora.h"
#include "model/ranks.h"

#define BLOCK_TOKENS 16

static int32_t n_blocks_of(int32_t ctx_max)
{
    return (ctx_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

size_t qr_alone_bytes(const struct qr_model *m, int32_t ctx_max, int32_t rows_max, int32_t logits_max)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(ctx_max > 0 && rows_max > 0);
    const struct qr_kv_view kv = qr_model_kv_view(m, NULL, n_blocks_of(ctx_max), BLOCK_TOKENS);
    return (size_t)n_blocks_of(ctx_max) * qr_kv_block_bytes(&kv) + qr_model_act_bytes(m, rows_max, logits_max);
}

void qr_alone_init(struct qr_alone *a, struct qr_model *m, struct qr_backend *be, const struct qr_lora *lora, int32_t ctx_max, int32_t rows_max,
                   int32_t logits_max, bool watched)
{
    QR_ASSERT(a != NULL && m != NULL && be != NULL);
    QR_ASSERT(ctx_max > 0 && rows_max > 0 && logits_max > 0 && logits_max <= rows_max);
    const int32_t n_blocks = n_blocks_of(ctx_max);
    *a = (struct qr_alone){.model = m, .be = be, .ctx_max = ctx_max, .rows_max = rows_max, .logits_max = logits_max};
    a->kv = qr_model_kv_view(m, NULL, n_blocks, BLOCK_TOKENS);
    a->kv.base = a->kv_mem = be->mem->alloc((size_t)n_blocks * qr_kv_block_bytes(&a->kv));
    size_t act_bytes = qr_model_act_bytes(m, rows_max, logits_max);
    const size_t unfused = lora || watched ? qr_model_unfused_act_bytes(m, rows_max, logits_max) : 0;
    act_bytes = unfused > act_bytes ? unfused : act_bytes;
    a->act_mem = qr_model_act_alloc(m, be, act_bytes);
    qr_arena_init_fixed(&a->act, a->act_mem, act_bytes);
    qr_exec_init(&a->exec, m, be, &a->act, &a->kv);
    qr_exec_join(&a->exec);
    a->exec.lora = lora;
    a->table = qr_alloc((size_t)n_blocks, sizeof *a->table);
    a->pos = qr_alloc((size_t)rows_max, sizeof *a->pos);
    a->row = qr_alloc((size_t)rows_max, sizeof *a->row);
    for (int32_t i = 0; i < n_blocks; i++)
        a->table[i] = i;
    a->scale = qr_alloc((size_t)rows_max, sizeof *a->scale);
    for (int32_t i = 0; i < rows_max; i++) {
        a->row[i] = i;
        a->scale[i] = 1;
    }
}

void qr_alone_release(struct qr_alone *a)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->model != NULL || a->kv_mem == NULL);
    qr_exec_release(&a->exec);
    qr_free(a->table);
    qr_free(a->pos);
    qr_free(a->row);
    qr_free(a->scale);
    qr_model_act_free(a->model, a->be, a->act_mem);
    if (a->kv_mem)
        a->be->mem->free(a->kv_mem);
}

struct qr_tensor qr_alone_step(struct qr_alone *a, const int32_t *ids, int32_t first, int32_t n)
{
    QR_ASSERT(a != NULL && ids != NULL);
    QR_ASSERT(n > 0 && n <= a->rows_max && first >= 0 && first <= a->ctx_max - n);
    const int32_t row_start[2] = {0, n}, ctx_len = first + n, n_logits = n < a->logits_max ? n : a->logits_max;
    for (int32_t i = 0; i < n; i++)
        a->pos[i] = first + i;
    const struct qr_row_group all = {.row = a->row, .n_rows = n};
    const struct qr_batch b = {.n_tokens = n, .n_seqs = 1, .n_prefill_seqs = 1, .n_logits = n_logits,
                               .block_tokens = BLOCK_TOKENS, .table_stride = n_blocks_of(a->ctx_max),
                               .ids = ids + first, .pos = a->pos, .slot = a->pos, .row_start = row_start,
                               .ctx_len = &ctx_len, .block_table = a->table, .logit_row = a->row + n - n_logits,
                               .logit_scale = a->scale, .group = &all, .n_groups = a->exec.lora ? 1 : 0};
    return qr_model_forward(&a->exec, &b);
}
