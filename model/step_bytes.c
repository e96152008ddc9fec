#include "model/step_bytes.h"

#include "base/assert.h"

#define NOTHING(name, type)                                       \
    static void name(struct qr_queue *q, const struct type *a)    \
    {                                                             \
        (void)q;                                                  \
        (void)a;                                                  \
    }
NOTHING(no_linear, qr_linear_args)
NOTHING(no_rms_norm, qr_norm_args)
NOTHING(no_head_norm, qr_head_norm_args)
NOTHING(no_residual_add, qr_add_args)
NOTHING(no_embed, qr_embed_args)
NOTHING(no_rope_table, qr_rope_table_args)
NOTHING(no_rope, qr_rope_args)
NOTHING(no_kv_write, qr_kv_write_args)
NOTHING(no_qkv, qr_qkv_args)
NOTHING(no_chain, qr_chain_args)
NOTHING(no_kv_copy, qr_kv_copy_args)
NOTHING(no_attention, qr_attention_args)
NOTHING(no_glu, qr_glu_args)
NOTHING(no_gather_rows, qr_gather_args)
NOTHING(no_pick_columns, qr_pick_args)
NOTHING(no_adapt, qr_adapt_args)
NOTHING(no_route, qr_route_args)
NOTHING(no_experts, qr_experts_args)
NOTHING(no_layer_norm, qr_layer_norm_args)
NOTHING(no_unit, qr_unit_args)
NOTHING(no_softcap, qr_softcap_args)

static const struct qr_kernels nothing = {
    .name = "nothing",
    .linear = no_linear,
    .rms_norm = no_rms_norm,
    .head_norm = no_head_norm,
    .residual_add = no_residual_add,
    .embed = no_embed,
    .rope_table = no_rope_table,
    .rope = no_rope,
    .kv_write = no_kv_write,
    .qkv = no_qkv,
    .chain = no_chain,
    .kv_copy = no_kv_copy,
    .attention = no_attention,
    .glu = no_glu,
    .gather_rows = no_gather_rows,
    .pick_columns = no_pick_columns,
    .adapt = no_adapt,
    .route = no_route,
    .experts = no_experts,
    .layer_norm = no_layer_norm,
    .unit = no_unit,
    .softcap = no_softcap,
};

size_t qr_step_bytes(const struct qr_model *m, const struct qr_kernels *k, bool unfused, int32_t n_tokens, int32_t n_logits,
                     struct qr_tensor (*run)(struct qr_exec *x, const struct qr_model *m))
{
    QR_ASSERT(m != NULL && k != NULL && run != NULL);
    QR_ASSERT(n_tokens > 0 && n_logits >= 0 && n_logits <= n_tokens);
    /* Addresses are handed out from a region that is never touched. */
    struct qr_arena act;
    qr_arena_init_fixed(&act, (void *)(uintptr_t)64, SIZE_MAX / 4);
    struct qr_kernels like = nothing;
    like.row_tiles = k->row_tiles;
    like.passing_bytes = k->passing_bytes;
    struct qr_backend be = {.name = "nothing", .k = &like, .mem = &qr_host_mem};
    const struct qr_kv_view kv = qr_model_kv_view(m, NULL, 0, 1);
    const struct qr_batch batch = {.n_tokens = n_tokens, .n_logits = n_logits};
    struct qr_exec x;
    qr_exec_init(&x, m, &be, &act, &kv);
    x.unfused = unfused;
    x.batch = &batch;
    run(&x, m);
    return act.peak;
}
