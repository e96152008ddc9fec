#include "loader/weight_table.h"

#include <string.h>

#include "base/assert.h"
#include "loader/weights.h"

#define LAYER(field) offsetof(struct qr_layer_weights, field)
#define TOP(field) offsetof(struct qr_weights, field)
#define P "model.layers.%d."
#define GPT2_PREFIX "transformer."

/* A whole matrix or vector, and a piece of a fused one. */
#define WHOLE(name, kind, layer, out, in, when, split, at) \
    {name, QR_KIND_##kind, layer, QR_DIM_##out, QR_DIM_##in, QR_DIM_##out, QR_DIM_ZERO, QR_WHEN_##when, QR_SPLIT_##split, at, false, false}
#define PIECE(name, kind, out, in, total, first, when, split, at) \
    {name, QR_KIND_##kind, true, QR_DIM_##out, QR_DIM_##in, QR_DIM_##total, QR_DIM_##first, QR_WHEN_##when, QR_SPLIT_##split, at, false, false}
/* A matrix of each expert, and one of the expert that is shared. */
#define EXPERT(name, out, in, total, first, split, at) \
    {name, QR_KIND_MATRIX, true, QR_DIM_##out, QR_DIM_##in, QR_DIM_##total, QR_DIM_##first, QR_WHEN_EXPERTS, QR_SPLIT_##split, at, true, true}
#define SHARED(name, out, in, total, first, split, at) \
    {name, QR_KIND_MATRIX, true, QR_DIM_##out, QR_DIM_##in, QR_DIM_##total, QR_DIM_##first, QR_WHEN_SHARED, QR_SPLIT_##split, at, false, true}

/* What is before the feed-forward, and what is behind the layers, has the same names almost everywhere. */
#define ATTENTION_ROWS \
    WHOLE("model.embed_tokens.weight", TABLE, false, VOCAB, EMBD, ALWAYS, NONE, TOP(embed)), \
    WHOLE(P "input_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn)), \
    WHOLE(P "input_layernorm.bias", VECTOR, true, EMBD, ZERO, LAYER_NORM, NONE, LAYER(norm_attn_bias)), \
    PIECE(P "self_attn.q_proj.weight", MATRIX, Q, EMBD, QKV, ZERO, ALWAYS, OUT, LAYER(qkv)), \
    PIECE(P "self_attn.k_proj.weight", MATRIX, KV, EMBD, QKV, Q, ALWAYS, OUT, LAYER(qkv)), \
    PIECE(P "self_attn.v_proj.weight", MATRIX, KV, EMBD, QKV, Q_KV, ALWAYS, OUT, LAYER(qkv)), \
    PIECE(P "self_attn.q_proj.bias", VECTOR, Q, ZERO, QKV, ZERO, QKV_BIAS, OUT, LAYER(qkv_bias)), \
    PIECE(P "self_attn.k_proj.bias", VECTOR, KV, ZERO, QKV, Q, QKV_BIAS, OUT, LAYER(qkv_bias)), \
    PIECE(P "self_attn.v_proj.bias", VECTOR, KV, ZERO, QKV, Q_KV, QKV_BIAS, OUT, LAYER(qkv_bias)), \
    WHOLE(P "self_attn.q_norm.weight", VECTOR, true, HEAD, ZERO, QK_NORM, NONE, LAYER(q_norm)), \
    WHOLE(P "self_attn.k_norm.weight", VECTOR, true, HEAD, ZERO, QK_NORM, NONE, LAYER(k_norm)), \
    WHOLE(P "self_attn.o_proj.weight", MATRIX, true, EMBD, Q, ALWAYS, IN, LAYER(out)), \
    WHOLE(P "self_attn.o_proj.bias", VECTOR, true, EMBD, ZERO, OUT_BIAS, NONE, LAYER(out_bias)), \
    WHOLE(P "post_attention_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp)), \
    WHOLE(P "post_attention_layernorm.bias", VECTOR, true, EMBD, ZERO, LAYER_NORM, NONE, LAYER(norm_mlp_bias))
#define HEAD_ROWS \
    WHOLE("model.norm.weight", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm)), \
    WHOLE("model.norm.bias", VECTOR, false, EMBD, ZERO, LAYER_NORM, NONE, TOP(norm_bias)), \
    WHOLE("lm_head.weight", MATRIX, false, VOCAB, EMBD, UNTIED, OUT, TOP(head)), \
    WHOLE("model.embed_tokens.weight", MATRIX, false, VOCAB, EMBD, TIED, OUT, TOP(head))

/* Llama, Mistral, Qwen2, Qwen3, SmolLM3, Granite, Gemma and StableLM share their names; what they lack the configuration says. */
static const struct qr_weight_row llama_rows[] = {
    ATTENTION_ROWS,
    PIECE(P "mlp.gate_proj.weight", MATRIX, FFN, EMBD, 2FFN, ZERO, ALWAYS, OUT, LAYER(gate_up)),
    PIECE(P "mlp.up_proj.weight", MATRIX, FFN, EMBD, 2FFN, FFN, ALWAYS, OUT, LAYER(gate_up)),
    PIECE(P "mlp.gate_proj.bias", VECTOR, FFN, ZERO, 2FFN, ZERO, MLP_BIAS, OUT, LAYER(gate_up_bias)),
    PIECE(P "mlp.up_proj.bias", VECTOR, FFN, ZERO, 2FFN, FFN, MLP_BIAS, OUT, LAYER(gate_up_bias)),
    WHOLE(P "mlp.down_proj.weight", MATRIX, true, EMBD, FFN, ALWAYS, IN, LAYER(down)),
    WHOLE(P "mlp.down_proj.bias", VECTOR, true, EMBD, ZERO, MLP_BIAS, NONE, LAYER(down_bias)),
    HEAD_ROWS,
};

static const struct qr_weight_row mixtral_rows[] = {
    ATTENTION_ROWS,
    WHOLE(P "block_sparse_moe.gate.weight", MATRIX, true, EXPERTS, EMBD, EXPERTS, NONE, LAYER(router)),
    EXPERT(P "block_sparse_moe.experts.%d.w1.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, ZERO, OUT, LAYER(experts_gate_up)),
    EXPERT(P "block_sparse_moe.experts.%d.w3.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, EXPERT_FFN, OUT, LAYER(experts_gate_up)),
    EXPERT(P "block_sparse_moe.experts.%d.w2.weight", EMBD, EXPERT_FFN, EMBD, ZERO, IN, LAYER(experts_down)),
    HEAD_ROWS,
};

/* Qwen2-MoE and Qwen3-MoE, whose layers may be plain. */
static const struct qr_weight_row qwen_moe_rows[] = {
    ATTENTION_ROWS,
    PIECE(P "mlp.gate_proj.weight", MATRIX, FFN, EMBD, 2FFN, ZERO, DENSE, OUT, LAYER(gate_up)),
    PIECE(P "mlp.up_proj.weight", MATRIX, FFN, EMBD, 2FFN, FFN, DENSE, OUT, LAYER(gate_up)),
    WHOLE(P "mlp.down_proj.weight", MATRIX, true, EMBD, FFN, DENSE, IN, LAYER(down)),
    WHOLE(P "mlp.gate.weight", MATRIX, true, EXPERTS, EMBD, EXPERTS, NONE, LAYER(router)),
    EXPERT(P "mlp.experts.%d.gate_proj.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, ZERO, OUT, LAYER(experts_gate_up)),
    EXPERT(P "mlp.experts.%d.up_proj.weight", EXPERT_FFN, EMBD, 2EXPERT_FFN, EXPERT_FFN, OUT, LAYER(experts_gate_up)),
    EXPERT(P "mlp.experts.%d.down_proj.weight", EMBD, EXPERT_FFN, EMBD, ZERO, IN, LAYER(experts_down)),
    WHOLE(P "mlp.shared_expert_gate.weight", MATRIX, true, ONE, EMBD, SHARED, NONE, LAYER(shared_gate)),
    SHARED(P "mlp.shared_expert.gate_proj.weight", SHARED_FFN, EMBD, 2SHARED_FFN, ZERO, OUT, LAYER(shared_gate_up)),
    SHARED(P "mlp.shared_expert.up_proj.weight", SHARED_FFN, EMBD, 2SHARED_FFN, SHARED_FFN, OUT, LAYER(shared_gate_up)),
    SHARED(P "mlp.shared_expert.down_proj.weight", EMBD, SHARED_FFN, EMBD, ZERO, IN, LAYER(shared_down)),
    HEAD_ROWS,
};

/* q, k, v are one matrix in the file, gate and up another. */
static const struct qr_weight_row phi3_rows[] = {
    WHOLE("model.embed_tokens.weight", TABLE, false, VOCAB, EMBD, ALWAYS, NONE, TOP(embed)),
    WHOLE(P "input_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn)),
    WHOLE(P "self_attn.qkv_proj.weight", MATRIX, true, QKV, EMBD, ALWAYS, OUT, LAYER(qkv)),
    WHOLE(P "self_attn.o_proj.weight", MATRIX, true, EMBD, Q, ALWAYS, IN, LAYER(out)),
    WHOLE(P "post_attention_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp)),
    WHOLE(P "mlp.gate_up_proj.weight", MATRIX, true, 2FFN, EMBD, ALWAYS, OUT, LAYER(gate_up)),
    WHOLE(P "mlp.down_proj.weight", MATRIX, true, EMBD, FFN, ALWAYS, IN, LAYER(down)),
    WHOLE("model.norm.weight", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm)),
    WHOLE("lm_head.weight", MATRIX, false, VOCAB, EMBD, UNTIED, OUT, TOP(head)),
    WHOLE("model.embed_tokens.weight", MATRIX, false, VOCAB, EMBD, TIED, OUT, TOP(head)),
};

/* Norms before and behind each half. */
static const struct qr_weight_row gemma2_rows[] = {
    WHOLE("model.embed_tokens.weight", TABLE, false, VOCAB, EMBD, ALWAYS, NONE, TOP(embed)),
    WHOLE(P "input_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_attn)),
    PIECE(P "self_attn.q_proj.weight", MATRIX, Q, EMBD, QKV, ZERO, ALWAYS, OUT, LAYER(qkv)),
    PIECE(P "self_attn.k_proj.weight", MATRIX, KV, EMBD, QKV, Q, ALWAYS, OUT, LAYER(qkv)),
    PIECE(P "self_attn.v_proj.weight", MATRIX, KV, EMBD, QKV, Q_KV, ALWAYS, OUT, LAYER(qkv)),
    PIECE(P "self_attn.q_proj.bias", VECTOR, Q, ZERO, QKV, ZERO, QKV_BIAS, OUT, LAYER(qkv_bias)),
    PIECE(P "self_attn.k_proj.bias", VECTOR, KV, ZERO, QKV, Q, QKV_BIAS, OUT, LAYER(qkv_bias)),
    PIECE(P "self_attn.v_proj.bias", VECTOR, KV, ZERO, QKV, Q_KV, QKV_BIAS, OUT, LAYER(qkv_bias)),
    WHOLE(P "self_attn.q_norm.weight", VECTOR, true, HEAD, ZERO, QK_NORM, NONE, LAYER(q_norm)),
    WHOLE(P "self_attn.k_norm.weight", VECTOR, true, HEAD, ZERO, QK_NORM, NONE, LAYER(k_norm)),
    WHOLE(P "self_attn.o_proj.weight", MATRIX, true, EMBD, Q, ALWAYS, IN, LAYER(out)),
    WHOLE(P "self_attn.o_proj.bias", VECTOR, true, EMBD, ZERO, OUT_BIAS, NONE, LAYER(out_bias)),
    WHOLE(P "post_attention_layernorm.weight", VECTOR, true, EMBD, ZERO, POST_NORMS, NONE, LAYER(out_norm)),
    WHOLE(P "pre_feedforward_layernorm.weight", VECTOR, true, EMBD, ZERO, ALWAYS, NONE, LAYER(norm_mlp)),
    PIECE(P "mlp.gate_proj.weight", MATRIX, FFN, EMBD, 2FFN, ZERO, ALWAYS, OUT, LAYER(gate_up)),
    PIECE(P "mlp.up_proj.weight", MATRIX, FFN, EMBD, 2FFN, FFN, ALWAYS, OUT, LAYER(gate_up)),
    WHOLE(P "mlp.down_proj.weight", MATRIX, true, EMBD, FFN, ALWAYS, IN, LAYER(down)),
    WHOLE(P "post_feedforward_layernorm.weight", VECTOR, true, EMBD, ZERO, POST_NORMS, NONE, LAYER(down_norm)),
    WHOLE("model.norm.weight", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm)),
    WHOLE("lm_head.weight", MATRIX, false, VOCAB, EMBD, UNTIED, OUT, TOP(head)),
    WHOLE("model.embed_tokens.weight", MATRIX, false, VOCAB, EMBD, TIED, OUT, TOP(head)),
};

/* One matrix for q, k and v, biases everywhere, a table of positions; no gates. */
#define H GPT2_PREFIX "h.%d."
static const struct qr_weight_row gpt2_rows[] = {
    WHOLE(GPT2_PREFIX "wte.weight", TABLE, false, VOCAB, EMBD, ALWAYS, NONE, TOP(embed)),
    WHOLE(GPT2_PREFIX "wpe.weight", ROWS, false, POSITIONS, EMBD, ALWAYS, NONE, TOP(positions)),
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
    WHOLE(GPT2_PREFIX "ln_f.weight", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm)),
    WHOLE(GPT2_PREFIX "ln_f.bias", VECTOR, false, EMBD, ZERO, ALWAYS, NONE, TOP(norm_bias)),
    WHOLE("lm_head.weight", MATRIX, false, VOCAB, EMBD, UNTIED, OUT, TOP(head)),
    WHOLE(GPT2_PREFIX "wte.weight", MATRIX, false, VOCAB, EMBD, TIED, OUT, TOP(head)),
};

/* Of those that have not llama_rows. */
static const struct table_row {
    enum qr_arch arch;
    const struct qr_weight_row *rows;
    int32_t n;
} tables[] = {
    {QR_ARCH_PHI3, phi3_rows, QR_COUNT(phi3_rows)},
    {QR_ARCH_MIXTRAL, mixtral_rows, QR_COUNT(mixtral_rows)},
    {QR_ARCH_QWEN2_MOE, qwen_moe_rows, QR_COUNT(qwen_moe_rows)},
    {QR_ARCH_QWEN3_MOE, qwen_moe_rows, QR_COUNT(qwen_moe_rows)},
    {QR_ARCH_GEMMA2, gemma2_rows, QR_COUNT(gemma2_rows)},
    {QR_ARCH_GEMMA3, gemma2_rows, QR_COUNT(gemma2_rows)},
    {QR_ARCH_GPT2, gpt2_rows, QR_COUNT(gpt2_rows)},
};

const struct qr_weight_row *qr_weight_table(enum qr_arch arch, int32_t *n)
{
    QR_ASSERT(arch >= QR_ARCH_LLAMA && arch < QR_ARCH_COUNT);
    QR_ASSERT(n != NULL);
    for (int i = 0; i < QR_COUNT(tables); i++)
        if (tables[i].arch == arch) {
            *n = tables[i].n;
            return tables[i].rows;
        }
    *n = QR_COUNT(llama_rows);
    return llama_rows;
}

int64_t qr_dim_value(const struct qr_model_config *c, enum qr_dim dim)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(dim >= 0 && dim < QR_DIM_COUNT);
    int64_t q = (int64_t)c->n_heads * c->head_dim, kv = (int64_t)c->n_kv_heads * c->head_dim;
    const int64_t value[QR_DIM_COUNT] = {0, c->n_embd, q, kv, q + kv, q + 2 * kv, c->n_ffn, 2 * (int64_t)c->n_ffn, c->n_vocab,
                                         c->head_dim, c->moe.n_experts, c->moe.n_ffn, 2 * (int64_t)c->moe.n_ffn, c->moe.n_ffn_shared,
                                         2 * (int64_t)c->moe.n_ffn_shared, 1, c->n_positions};
    return value[dim];
}

enum qr_dtype qr_weight_row_packed_as(const struct qr_weight_row *row, enum qr_dtype to)
{
    QR_ASSERT(row != NULL);
    QR_ASSERT(row->kind != QR_KIND_VECTOR);
    if (qr_dtype_rounds(to) && (row->n_out == QR_DIM_EXPERTS || row->n_out == QR_DIM_ONE))
        return QR_BF16;
    if (!qr_dtype_rounds(to) || row->n_out != QR_DIM_VOCAB)
        return to;
    return to == QR_F8 ? QR_BF16 /* as in checkpoints of that kind */ : qr_dtype_is_coded(to) ? QR_C8_G32 : QR_Q8;
}

float qr_weight_row_factor(const struct qr_weight_row *row, const struct qr_model_config *c)
{
    QR_ASSERT(row != NULL);
    QR_ASSERT(c != NULL && c->logits_divisor >= 0);
    const bool last_norm = row->kind == QR_KIND_VECTOR && !row->per_layer;
    return last_norm && c->logits_divisor > 0 ? 1 / c->logits_divisor : 1;
}

float qr_weight_row_offset(const struct qr_weight_row *row, const struct qr_model_config *c)
{
    QR_ASSERT(row != NULL && row->name != NULL);
    QR_ASSERT(c != NULL);
    return c->norm_plus_one && qr_weight_row_is_norm(row) ? 1 : 0;
}

bool qr_weight_row_is_norm(const struct qr_weight_row *row)
{
    QR_ASSERT(row != NULL && row->name != NULL);
    const char *tail = strrchr(row->name, '.');
    QR_ASSERT(tail != NULL);
    return row->kind == QR_KIND_VECTOR && strcmp(tail, ".weight") == 0;
}

bool qr_weight_row_turned(const struct qr_weight_row *row, const struct qr_model_config *c)
{
    QR_ASSERT(row != NULL);
    QR_ASSERT(c != NULL);
    return c->turned && row->kind == QR_KIND_MATRIX && row->per_layer;
}

bool qr_weight_row_holds(const struct qr_weight_row *row, const struct qr_model_config *c, int32_t layer)
{
    QR_ASSERT(row != NULL);
    QR_ASSERT(c != NULL);
    switch (row->when) {
    case QR_WHEN_ALWAYS: return true;
    case QR_WHEN_QKV_BIAS: return c->qkv_bias;
    case QR_WHEN_OUT_BIAS: return c->out_bias;
    case QR_WHEN_MLP_BIAS: return c->mlp_bias;
    case QR_WHEN_QK_NORM: return c->qk_norm;
    case QR_WHEN_LAYER_NORM: return c->layer_norm;
    case QR_WHEN_POST_NORMS: return c->post_norms;
    case QR_WHEN_UNTIED: return !c->tied_head;
    case QR_WHEN_TIED: return c->tied_head;
    case QR_WHEN_DENSE: return layer >= 0 && !qr_layer_has_experts(c, layer);
    case QR_WHEN_EXPERTS: return layer >= 0 && qr_layer_has_experts(c, layer);
    case QR_WHEN_SHARED: return layer >= 0 && qr_layer_has_experts(c, layer) && c->moe.n_ffn_shared > 0;
    }
    return false;
}

struct qr_weight_walk qr_weight_walk_begin(const struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->n_layers > 0);
    struct qr_weight_walk k = {.c = c, .layer = -1};
    k.table = qr_weight_table(c->arch, &k.n_rows);
    return k;
}

/* Behind the last row of an expert: back to the first one's, for the next expert. */
static void next_expert(struct qr_weight_walk *k)
{
    const struct qr_weight_row *t = k->table;
    if (k->next == 0 || !t[k->next - 1].per_expert || (k->next < k->n_rows && t[k->next].per_expert))
        return;
    if (++k->expert >= k->c->moe.n_experts) {
        k->expert = 0;
        return;
    }
    while (k->next > 0 && t[k->next - 1].per_expert)
        k->next--;
}

bool qr_weight_walk_next(struct qr_weight_walk *k)
{
    QR_ASSERT(k != NULL);
    QR_ASSERT(k->next >= 0 && k->next <= k->n_rows);
    for (;;) {
        next_expert(k);
        if (k->next == k->n_rows) {
            k->next = 0;
            k->layer++;
        }
        if (k->layer >= k->c->n_layers)
            return false;
        k->row = &k->table[k->next++];
        if (k->row->per_layer == (k->layer >= 0) && (k->all || qr_weight_row_holds(k->row, k->c, k->layer)))
            return true;
    }
}

static char *put_text(char *to, const char *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

static char *put_number(char *to, int32_t x)
{
    char digit[12];
    size_t n = sizeof digit;
    QR_ASSERT(x >= 0);
    do
        digit[--n] = (char)('0' + x % 10);
    while (x /= 10);
    return put_text(to, digit + n, sizeof digit - n);
}

/* By hand: a model's opening writes thousands of them. */
const char *qr_weight_walk_name(char text[QR_WEIGHT_NAME_MAX], const struct qr_weight_walk *k)
{
    QR_ASSERT(text != NULL && k != NULL);
    QR_ASSERT(k->row != NULL);
    const char *name = k->row->name, *mark = strstr(name, "%d"), *number = mark ? strstr(mark + 2, "%d") : NULL, *rest = name;
    QR_ASSERT(k->row->per_layer == (mark != NULL) && k->row->per_expert == (number != NULL) && strlen(name) + 20 <= QR_WEIGHT_NAME_MAX);
    char *to = text;
    for (int i = 0; i < 2 && (i == 0 ? mark : number); i++) {
        const char *at = i == 0 ? mark : number;
        to = put_number(put_text(to, rest, (size_t)(at - rest)), i == 0 ? k->layer : k->expert);
        rest = at + 2;
    }
    put_text(to, rest, strlen(rest) + 1);
    return text;
}

/* Files of a model without its head, as published embedding models are, leave the outermost name out; the text part of a Gemma 3 that also sees has one
 * more. */
static const struct {
    enum qr_arch arch; /* QR_ARCH_COUNT: any */
    const char *from, *to;
} aliases[] = {
    {QR_ARCH_COUNT, "model.", ""},
    {QR_ARCH_GPT2, GPT2_PREFIX, ""},
    {QR_ARCH_GEMMA3, "model.", "model.language_model."},
    {QR_ARCH_GEMMA3, "model.", "language_model."},
    {QR_ARCH_GEMMA3, "", "language_model."},
};

const char *qr_weight_alias(char text[QR_WEIGHT_NAME_MAX], enum qr_arch arch, const char *name, int32_t i)
{
    QR_ASSERT(text != NULL && name != NULL && text != name);
    QR_ASSERT(arch < QR_ARCH_COUNT && i >= 0);
    for (int32_t a = 0; a < QR_COUNT(aliases); a++) {
        const size_t n = strlen(aliases[a].from);
        if ((aliases[a].arch != arch && aliases[a].arch != QR_ARCH_COUNT) || strncmp(name, aliases[a].from, n) != 0 || i-- > 0)
            continue;
        QR_ASSERT(strlen(aliases[a].to) + strlen(name + n) < QR_WEIGHT_NAME_MAX);
        put_text(put_text(text, aliases[a].to, strlen(aliases[a].to)), name + n, strlen(name + n) + 1);
        return text;
    }
    return NULL;
}

int32_t qr_weight_walk_shape(int64_t shape[2], const struct qr_weight_walk *k)
{
    QR_ASSERT(shape != NULL && k != NULL);
    QR_ASSERT(k->row != NULL);
    const bool turned = qr_weight_row_turned(k->row, k->c);
    shape[turned] = qr_dim_value(k->c, k->row->n_out);
    shape[!turned] = qr_dim_value(k->c, k->row->n_in);
    return k->row->kind == QR_KIND_VECTOR ? 1 : 2;
}
