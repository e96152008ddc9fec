#include "engine/follow.h"

#include "base/assert.h"
#include "base/mem.h"
#include "model/lora.h"
#include "model/ranks.h"

struct follower {
    struct qr_backend *be;
    struct qr_model *model;
    struct qr_lora *lora; /* NULL: there are no adapters */
    void *kv_mem, *act_mem;
    uint8_t *kv_host; /* the cache's second tier; NULL: there is none */
    struct qr_kv_view kv;
    struct qr_arena act;
    struct qr_exec exec;
};

int qr_engine_agree(struct qr_comm *comm, struct qr_engine_agreed *a, struct qr_err *err)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(err != NULL);
    int64_t values[] = {a->lora_slots, a->lora_rank_max, a->step_tokens, a->n_blocks, a->n_host_blocks, a->block_tokens, a->logit_rows};
    int rc = qr_ranks_agree(comm, values, QR_COUNT(values), err);
    if (rc == 0)
        *a = (struct qr_engine_agreed){.lora_slots = values[0], .lora_rank_max = values[1], .step_tokens = values[2], .n_blocks = values[3],
                                       .n_host_blocks = values[4], .block_tokens = values[5], .logit_rows = values[6]};
    return rc;
}

int32_t qr_engine_local_ranks(const struct qr_comm *comm)
{
    int32_t rank, size;
    qr_comm_place(comm, &rank, &size);
    QR_ASSERT(rank < size);
    QR_ASSERT(size > 0);
    return size;
}

/* Slots for adapters, as rank 0 has them. */
static int open_slots(struct follower *f, struct qr_comm *comm, struct qr_err *err)
{
    struct qr_engine_agreed a = {0};
    int rc = qr_engine_agree(comm, &a, err);
    if (rc || a.lora_slots == 0)
        return rc;
    rc = qr_lora_new(&f->lora, f->model, f->be, (int32_t)a.lora_slots, (int32_t)a.lora_rank_max, (int32_t)a.step_tokens, err);
    return rc ? rc : qr_comm_barrier(comm, err); /* rank 0 sees what is free */
}

static int open_share(struct follower *f, const char *dir, const struct qr_engine_config *config, const struct qr_backend_options *backend,
                      const struct qr_model_options *model_options, struct qr_err *err)
{
    struct qr_backend_options bo = *backend;
    struct qr_model_options mo = *model_options;
    struct qr_engine_agreed a = {0};
    bo.step_rows_max = config->step_tokens_max;
    mo.ctx_max = config->ctx_max;
    qr_comm_place(mo.comm, &bo.rank, &bo.n_ranks);
    int rc = qr_backend_open(&f->be, &bo, err);
    rc = rc ? rc : qr_model_open(&f->model, dir, f->be, &mo, err);
    rc = rc ? rc : qr_comm_barrier(mo.comm, err); /* the weights are in: rank 0 sees what is free */
    rc = rc ? rc : open_slots(f, mo.comm, err);
    rc = rc ? rc : qr_engine_agree(mo.comm, &a, err);
    if (rc)
        return rc;
    f->kv = qr_model_kv_view(f->model, NULL, (int32_t)a.n_blocks, (int32_t)a.block_tokens);
    const size_t kv_bytes = (size_t)a.n_blocks * qr_kv_block_bytes(&f->kv);
    size_t act_bytes = qr_model_act_bytes(f->model, (int32_t)a.step_tokens, (int32_t)a.logit_rows);
    const size_t adapted = f->lora ? qr_model_unfused_act_bytes(f->model, (int32_t)a.step_tokens, (int32_t)a.logit_rows) : 0;
    act_bytes = adapted > act_bytes ? adapted : act_bytes;
    f->kv.base = f->kv_mem = f->be->mem->alloc(kv_bytes);
    qr_backend_spread(f->be, f->kv_mem, kv_bytes);
    qr_backend_populate(f->be);
    f->act_mem = qr_model_act_alloc(f->model, f->be, act_bytes);
    qr_arena_init_fixed(&f->act, f->act_mem, act_bytes);
    qr_exec_init(&f->exec, f->model, f->be, &f->act, &f->kv);
    f->exec.lora = f->lora;
    if (a.n_host_blocks > 0)
        f->exec.kv_host = f->kv_host = f->be->mem->host_alloc((size_t)a.n_host_blocks * qr_kv_block_bytes(&f->kv));
    qr_exec_join(&f->exec);
    return 0;
}

int qr_engine_follow(const char *dir, const struct qr_engine_config *config, const struct qr_backend_options *backend,
                     const struct qr_model_options *model_options, struct qr_err *err)
{
    QR_ASSERT(dir != NULL && config != NULL && backend != NULL);
    QR_ASSERT(model_options != NULL && model_options->comm != NULL && model_options->comm->rank > 0);
    struct follower f = {0};
    int rc = open_share(&f, dir, config, backend, model_options, err);
    rc = rc ? rc : qr_exec_follow(&f.exec, err);
    if (rc)
        qr_comm_abort(model_options->comm, err->msg);
    qr_exec_release(&f.exec);
    if (f.kv_host) {
        f.be->mem->sync(f.be->queue); /* a copy may be in flight */
        f.be->mem->host_free(f.kv_host);
    }
    if (f.kv_mem)
        f.be->mem->free(f.kv_mem);
    qr_model_act_free(f.model, f.be, f.act_mem);
    qr_lora_free(f.lora);
    qr_model_close(f.model);
    qr_backend_close(f.be);
    return rc;
}
