#include "model/repeat.h"

#include "base/assert.h"
#include "base/mem.h"

#define CTX_LEAST 512

typedef struct qr_tensor step_run(struct qr_exec *x, const struct qr_model *m);

bool qr_repeats(const struct qr_exec *x, const struct qr_batch *b)
{
    QR_ASSERT(x != NULL && x->be != NULL);
    QR_ASSERT(b != NULL);
    return x->be->mem->record_begin && b->n_tokens == b->n_seqs && b->n_logits == b->n_tokens;
}

/* The smallest power of two that no context of the batch is beyond. */
static int32_t bound_of(const struct qr_batch *b)
{
    int32_t bound = CTX_LEAST;
    for (int32_t s = 0; s < b->n_seqs; s++)
        while (bound < b->ctx_len[s])
            bound *= 2;
    return bound;
}

int32_t qr_repeat_width(const struct qr_batch *b)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(b->block_tokens > 0);
    const int32_t width = (bound_of(b) + b->block_tokens - 1) / b->block_tokens;
    return width < b->table_stride ? width : b->table_stride;
}

/* The entry of this kind of step, made when it is met first; NULL: there are too many. */
static struct qr_repeat *find(struct qr_exec *x, const struct qr_batch *b, bool *is_new)
{
    const int32_t ctx = bound_of(b);
    const struct qr_lora *lora = b->n_groups > 0 ? x->lora : NULL;
    *is_new = true;
    if (!x->repeat)
        x->repeat = qr_alloc(QR_REPEATS_MAX, sizeof *x->repeat);
    for (int32_t i = 0; i < x->n_repeats; i++)
        if (x->repeat[i].n_rows == b->n_tokens && x->repeat[i].ctx == ctx && x->repeat[i].lora == lora) {
            *is_new = false;
            return &x->repeat[i];
        }
    if (x->n_repeats == QR_REPEATS_MAX)
        return NULL;
    x->repeat[x->n_repeats] = (struct qr_repeat){.n_rows = b->n_tokens, .ctx = ctx, .lora = lora};
    return &x->repeat[x->n_repeats++];
}

/* Launches are planned for the bound of contexts, not for what they are today. */
static struct qr_tensor run_bound(struct qr_exec *x, int32_t ctx, const struct qr_batch *b, step_run *run)
{
    int32_t *ctx_len = qr_alloc((size_t)b->n_seqs, sizeof *ctx_len);
    struct qr_batch bound = *b;
    for (int32_t s = 0; s < b->n_seqs; s++)
        ctx_len[s] = ctx;
    bound.ctx_len = ctx_len;
    x->placed.host = &bound;
    const struct qr_tensor logits = run(x, x->model);
    x->placed.host = b;
    qr_free(ctx_len);
    return logits;
}

static void record(struct qr_exec *x, struct qr_repeat *r, const struct qr_batch *b, step_run *run)
{
    if (x->be->mem->record_begin(x->be->queue)) {
        r->logits = run_bound(x, r->ctx, b, run);
        r->record = x->be->mem->record_end(x->be->queue);
    }
    r->refused = r->record == NULL;
    qr_arena_rewind(x->act, 0);
}

/* The first step of a kind launches just what will be recorded: loading a kernel that is met first is not among what a device can do while it records. */
struct qr_tensor qr_repeat_step(struct qr_exec *x, const struct qr_batch *b, struct qr_tensor (*run)(struct qr_exec *x, const struct qr_model *m))
{
    QR_ASSERT(x != NULL && b != NULL && run != NULL);
    QR_ASSERT(x->batch == &x->placed && x->act->used == 0);
    bool is_new;
    struct qr_repeat *r = find(x, b, &is_new);
    if (r && is_new)
        return run_bound(x, r->ctx, b, run);
    if (r && !r->record && !r->refused)
        record(x, r, b, run);
    if (!r || !r->record)
        return run(x, x->model);
    x->be->mem->repeat(x->be->queue, r->record);
    return r->logits;
}

void qr_repeats_release(struct qr_exec *x)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(x->n_repeats == 0 || x->repeat != NULL);
    for (int32_t i = 0; i < x->n_repeats; i++)
        x->be->mem->record_free(x->repeat[i].record);
    qr_free(x->repeat);
    x->repeat = NULL;
    x->n_repeats = 0;
}
