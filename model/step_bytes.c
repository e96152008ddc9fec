#include "model/step_bytes.h"

#include "base/assert.h"
#include "kernels/null.h"

static void no_linear(struct qr_queue *q, const struct qr_linear_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
}

static void no_chain(struct qr_queue *q, const struct qr_chain_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
}

static void no_softcap(struct qr_queue *q, const struct qr_softcap_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
}

size_t qr_step_bytes(const struct qr_model *m, const struct qr_kernels *k, bool unfused, int32_t n_tokens, int32_t n_logits,
                     struct qr_tensor (*run)(struct qr_exec *x, const struct qr_model *m))
{
    QR_ASSERT(m != NULL && k != NULL && run != NULL);
    QR_ASSERT(n_tokens > 0 && n_logits >= 0 && n_logits <= n_tokens);
    /* Addresses are handed out from a region that is never touched, and so is the queue. */
    struct qr_arena act;
    qr_arena_init_fixed(&act, (void *)(uintptr_t)64, SIZE_MAX / 4);
    struct qr_kernels like = qr_null_kernels; /* but for those that write likely logits */
    like.linear = no_linear;
    like.chain = no_chain;
    like.softcap = no_softcap;
    like.row_tiles = k->row_tiles;
    like.passing_bytes = k->passing_bytes;
    struct qr_backend be = {.name = "nothing", .k = &like, .mem = &qr_host_mem, .queue = (struct qr_queue *)(uintptr_t)64};
    const struct qr_kv_view kv = qr_model_kv_view(m, NULL, 0, 1);
    const struct qr_batch batch = {.n_tokens = n_tokens, .n_logits = n_logits};
    struct qr_exec x;
    qr_exec_init(&x, m, &be, &act, &kv);
    x.unfused = unfused;
    x.batch = &batch;
    run(&x, m);
    return act.peak;
}
