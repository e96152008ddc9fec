/* GPT-2: LayerNorm, one matrix for q, k and v, biases everywhere, a table of positions, an MLP without gates; files
 * have matrices as [in, out]. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

#define T "transformer."
#define H T "h.%d."

static const struct qr_weight_row rows[] = {
    WHOLE(T "wte.weight", TABLE, false, VOCAB, EMBD, ALWAYS, NONE, TOP(embed)),
    WHOLE(T "wpe.weight", ROWS, false, POSITIONS, EMBD, ALWAYS, NONE, TOP(positions)),
    WHOLE(H "ln_1.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn)),
    WHOLE(H "ln_1.bias", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn_bias)),
    WHOLE(H "attn.c_attn.weight", MATRIX, true, QKV, EMBD, ALWAYS, OUT, LAYER(qkv)),
    WHOLE(H "attn.c_attn.bias", VECTOR, true, QKV, ZERO, ALWAYS, OUT, LAYER(qkv_bias)),
    WHOLE(H "attn.c_proj.weight", MATRIX, true, EMBD, Q, ALWAYS, IN, LAYER(out)),
    WHOLE(H "attn.c_proj.bias", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(out_bias)),
    WHOLE(H "ln_2.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp)),
    WHOLE(H "ln_2.bias", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp_bias)),
    WHOLE(H "mlp.c_fc.weight", MATRIX, true, FFN, EMBD, ALWAYS, OUT, LAYER(gate_up)),
    WHOLE(H "mlp.c_fc.bias", VECTOR, true, FFN, ZERO, ALWAYS, OUT, LAYER(gate_up_bias)),
    WHOLE(H "mlp.c_proj.weight", MATRIX, true, EMBD, FFN, ALWAYS, IN, LAYER(down)),
    WHOLE(H "mlp.c_proj.bias", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(down_bias)),
    WHOLE(T "ln_f.weight", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm)),
    WHOLE(T "ln_f.bias", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm_bias)),
    WHOLE("lm_head.weight", MATRIX, false, VOCAB, EMBD, UNTIED, OUT, TOP(head)),
    WHOLE(T "wte.weight", MATRIX, false, VOCAB, EMBD, TIED, OUT, TOP(head)),
    SCORE_ROW,
    {.name = NULL},
};

static const struct qr_family_rename prefixes[] = {{T, ""}, {NULL, NULL}};

static const struct qr_family_rename gguf_names[] = {
    {"token_embd", T "wte"},
    {"position_embd", T "wpe"},
    {"output_norm", T "ln_f"},
    {"attn_norm", "ln_1"},
    {"attn_qkv", "attn.c_attn"},
    {"attn_output", "attn.c_proj"},
    {"ffn_norm", "ln_2"},
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
    {NULL, NULL},
};

/* What the flags do not say: all matrices have biases, and no layer rotates. */
static void complete(struct qr_model_config *c, int32_t n_positions)
{
    c->qkv_bias = c->out_bias = c->mlp_bias = true;
    c->n_positions = n_positions;
    qr_layers_every(c->unrotated, c->n_layers, 1);
}

static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    int rc = qr_hf_refuse_if(o, "scale_attn_by_inverse_layer_idx", true);
    rc = rc ? rc : qr_hf_refuse_if(o, "scale_attn_weights", false);
    rc = rc ? rc : qr_hf_refuse_if(o, "add_cross_attention", true);
    complete(c, c->ctx_max);
    return rc;
}

static int read_gguf(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    const struct qr_gguf_tensor *t = qr_gguf_find_tensor(r, "position_embd.weight", NULL);
    if (!t || t->n_dims != 2 || t->dim[1] < 1 || t->dim[1] > 1 << 24)
        return qr_err_set(r->err, QR_E_DAMAGED, "there is no tensor position_embd.weight of two dimensions");
    complete(c, (int32_t)t->dim[1]);
    c->ctx_max = c->ctx_max < c->n_positions ? c->ctx_max : c->n_positions;
    return 0;
}

static void make_small(struct qr_model_config *c)
{
    c->n_kv_heads = c->n_heads;
    complete(c, c->ctx_max);
}

const struct qr_family qr_family_gpt2 = {
    .name = {{"GPT2LMHeadModel", "gpt2"}},
    .field = {.layers = "n_layer", .width = "n_embd", .heads = "n_head", .ffn = "n_inner", .ctx = "n_positions",
              .eps = "layer_norm_epsilon", .act = "activation_function"},
    .usual = {.n_ffn_widths = 4, .ctx_max = 1024, .eps = 1e-5, .tied = true},
    .activation = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"},
    .act = QR_ACT_GELU_TANH,
    .layer_norm = true,
    .ungated = true,
    .transposed = true,
    .weights = rows,
    .prefixes = prefixes,
    .gguf = "gpt2",
    .gguf_names = gguf_names,
    .gguf_layers = T "h.",
    .read_hf = read_hf,
    .read_gguf = read_gguf,
    .make_small = make_small,
};
