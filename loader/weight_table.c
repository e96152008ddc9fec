/* weight_table.c - what rows of weights mean for a configuration, and the walk over them. The rows are the
 * families' (loader/families/). */
#include "loader/weight_table.h"

#include <string.h>

#include "base/assert.h"
#include "loader/families/family.h"

int64_t qr_dim_value(const struct qr_model_config *c, enum qr_dim dim)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(dim >= 0 && dim < QR_DIM_COUNT);
    int64_t q = (int64_t)c->n_heads * c->head_dim, kv = (int64_t)c->n_kv_heads * c->head_dim;
    const int64_t value[QR_DIM_COUNT] = {0, c->n_embd, c->n_heads, q, kv, q + kv, q + 2 * kv, c->n_ffn, 2 * (int64_t)c->n_ffn, c->n_vocab,
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

bool qr_weight_row_transposed(const struct qr_weight_row *row, const struct qr_model_config *c)
{
    QR_ASSERT(row != NULL);
    QR_ASSERT(c != NULL);
    return c->transposed && row->kind == QR_KIND_MATRIX && row->per_layer;
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
    case QR_WHEN_CLASSIFIER: return c->classifier;
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
    for (k.table = qr_family_of(c->arch)->weights; k.table[k.n_rows].name;)
        k.n_rows++;
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

/* Files of a model without its head, as published embedding models are, leave the outermost name out. */
const char *qr_weight_alias(char text[QR_WEIGHT_NAME_MAX], enum qr_arch arch, const char *name, int32_t i)
{
    static const struct qr_family_rename usual[] = {{"model.", ""}, {NULL, NULL}};
    QR_ASSERT(text != NULL && name != NULL && text != name);
    QR_ASSERT(i >= 0);
    const struct qr_family *f = qr_family_of(arch);
    for (const struct qr_family_rename *r = f->prefixes ? f->prefixes : usual; r->from; r++) {
        const size_t n = strlen(r->from);
        if (strncmp(name, r->from, n) != 0 || i-- > 0)
            continue;
        QR_ASSERT(strlen(r->to) + strlen(name + n) < QR_WEIGHT_NAME_MAX);
        put_text(put_text(text, r->to, strlen(r->to)), name + n, strlen(name + n) + 1);
        return text;
    }
    return NULL;
}

int32_t qr_weight_walk_shape(int64_t shape[2], const struct qr_weight_walk *k)
{
    QR_ASSERT(shape != NULL && k != NULL);
    QR_ASSERT(k->row != NULL);
    const bool transposed = qr_weight_row_transposed(k->row, k->c);
    shape[transposed] = qr_dim_value(k->c, k->row->n_out);
    shape[!transposed] = qr_dim_value(k->c, k->row->n_in);
    return k->row->kind == QR_KIND_VECTOR ? 1 : 2;
}
