/* gpt-oss: heads with sinks, a window in every other layer, YaRN without rounding of its bounds, experts with clamped
 * gates and biases. Its safetensors files hold the experts of a layer in one tensor (stores/expert_stacks.c). */
#include "loader/families/family.h"
#include "loader/families/rows.h"

#define WINDOW_EVERY 2

#define EXPERT_BIAS(title, out, whole, from, split, place) \
    ROW(title, VECTOR, true, out, ZERO, whole, from, EXPERTS, split, place, .per_expert = true, .stacked = true)
#define E P "mlp.experts.%d."

static const struct qr_weight_row rows[] = {
    ATTENTION_ROWS,
    WHOLE(P "self_attn.sinks", VECTOR, true, HEADS, ZERO, ALWAYS, OUT, LAYER(sinks)),
    WHOLE(P "mlp.router.weight", MATRIX, true, EXPERTS, EMBD, EXPERTS, NONE, LAYER(router)),
    EXPERT(E "gate_proj.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, ZERO, OUT, LAYER(experts_gate_up)),
    EXPERT(E "up_proj.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, EXPERT_FFN, OUT, LAYER(experts_gate_up)),
    EXPERT(E "down_proj.weight", EMBD, EXPERT_FFN, EMBD, ZERO, IN, LAYER(experts_down)),
    WHOLE(P "mlp.router.bias", VECTOR, true, EXPERTS, ZERO, EXPERTS, NONE, LAYER(router_bias)),
    EXPERT_BIAS(E "gate_proj.bias", EXPERT_FFN, 2EXPERT_FFN, ZERO, OUT, LAYER(experts_gate_up_bias)),
    EXPERT_BIAS(E "up_proj.bias", EXPERT_FFN, 2EXPERT_FFN, EXPERT_FFN, OUT, LAYER(experts_gate_up_bias)),
    EXPERT_BIAS(E "down_proj.bias", EMBD, EMBD, ZERO, NONE, LAYER(experts_down_bias)),
    HEAD_ROWS,
};

static const struct qr_family_experts experts = {
    .count_field = "num_local_experts",
    .n_experts = 128,
    .n_used = 4,
    .normalized_in_gguf = true,
};

static const struct qr_family_rename gguf_names[] = {
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_gate_inp", "mlp.router"},
    {NULL, NULL},
};

/* A file that is silent means the published models' YaRN. */
static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    struct qr_rope_config *r = &c->rope;
    if (!qr_json_find(o->v, "rope_parameters") && !qr_json_find(o->v, "rope_scaling")) {
        r->type = QR_ROPE_YARN;
        r->factor = 32;
        r->original_ctx = 4096;
        r->truncate = false;
    }
    c->out_bias = c->qkv_bias; /* attention_bias, also where the file is silent */
    const int rc = qr_hf_f32(o, "swiglu_limit", 1e-3f, 1e6f, &c->clamp.limit);
    return rc ? rc : qr_hf_f32(o, "swiglu_alpha", 1e-3f, 1e3f, &c->clamp.alpha);
}

static void write_hf(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_hf_write_f32(out, "swiglu_limit", c->clamp.limit);
    qr_hf_write_f32(out, "swiglu_alpha", c->clamp.alpha);
}

/* Files do not say that YaRN's bounds are not rounded. */
static int read_gguf(const struct qr_gguf_reader *r)
{
    r->c->rope.truncate = false;
    return qr_gguf_read_windows(r, WINDOW_EVERY);
}

static void make_small(struct qr_model_config *c)
{
    c->moe.n_ffn = c->n_ffn;
    c->qkv_bias = c->out_bias = true;
    c->rope.type = QR_ROPE_YARN;
    c->rope.factor = 4;
    c->rope.original_ctx = 128;
    c->rope.truncate = false;
    c->window = 37;
    c->unwindowed[0] = 2;
}

const struct qr_family qr_family_gpt_oss = {
    .name = {{"GptOssForCausalLM", "gpt_oss"}},
    .usual = {.n_heads = 64, .n_kv_heads = 8, .head_dim = 64, .n_vocab = 201088, .ctx_max = 131072, .eps = 1e-5,
              .theta = 150000},
    .act = QR_ACT_CLAMPED,
    .clamp = {.limit = 7, .alpha = 1.702f},
    .sinks = true,
    .qkv_bias = true,
    ATTENTION_BIAS,
    .window = 128,
    .window_every = WINDOW_EVERY,
    .window_layers = QR_WINDOW_LISTED,
    .experts = &experts,
    .weights = rows,
    .gguf = "gpt-oss",
    .gguf_names = gguf_names,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .read_gguf = read_gguf,
    .make_small = make_small,
};
