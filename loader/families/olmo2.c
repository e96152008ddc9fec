/* OLMo 2: norms stand behind each half of a layer only, and those of q and k are over all heads of a row at once. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

const struct qr_weight_row qr_olmo2_rows[] = {
    EMBED_ROW,
    QKV_ROWS,
    WHOLE(P "self_attn.q_norm.weight", VECTOR, true, Q, ZERO, QK_NORM, NONE, LAYER(q_norm)),
    WHOLE(P "self_attn.k_norm.weight", VECTOR, true, KV, ZERO, QK_NORM, NONE, LAYER(k_norm)),
    OUT_ROWS,
    OUT_NORM_ROW,
    MLP_ROWS(ALWAYS),
    DOWN_NORM_ROW,
    HEAD_ROWS,
};

/* One with a window is an OLMo 3. */
static int read_gguf(const struct qr_gguf_reader *r)
{
    return r->c->window > 0 ? qr_olmo3_read_gguf(r) : 0;
}

const struct qr_family qr_family_olmo2 = {
    .name = {{"Olmo2ForCausalLM", "olmo2"}},
    .usual = {.ctx_max = 2048, .eps = 1e-5},
    .post_norms = true,
    .qk_norm = true,
    .qk_norm_rows = true,
    ATTENTION_BIAS,
    .weights = qr_olmo2_rows,
    .gguf = "olmo2",
    .read_gguf = read_gguf,
};
