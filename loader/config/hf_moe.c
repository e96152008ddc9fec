/* hf_moe.c - the fields of config.json that say which experts a model has. */
#include "loader/config/hf_parts.h"

#include "base/assert.h"
#include "loader/families/family.h"

/* Every so manieth layer has experts, but for those that are named. */
static int read_dense(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const struct qr_json *list = qr_json_find(o->v, "mlp_only_layers");
    int32_t step = 1;
    int rc = qr_hf_i32(o, "decoder_sparse_step", 1, QR_LAYERS_MAX, &step);
    if (rc)
        return rc;
    for (int32_t l = 0; l < c->n_layers; l++)
        c->moe.dense[l / 64] |= (uint64_t)((l + 1) % step != 0) << (l % 64);
    if (qr_json_is_null(list))
        return 0;
    if (qr_json_type(list) != QR_JSON_T_ARRAY)
        return qr_hf_wrong_type(o, "mlp_only_layers", list, "a list of layers");
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v)) {
        int64_t l;
        if (!qr_json_i64(v, &l) || l < 0 || l >= c->n_layers)
            return qr_hf_bad_value(o, "mlp_only_layers", v, "layers from 0 to", c->n_layers - 1);
        c->moe.dense[l / 64] |= (uint64_t)1 << (l % 64);
    }
    return 0;
}

int qr_hf_moe_read(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    QR_ASSERT(o != NULL && c != NULL);
    QR_ASSERT(c->n_layers > 0 && c->n_ffn > 0);
    const struct qr_family_experts *row = qr_family_of(c->arch)->experts;
    struct qr_moe_config *m = &c->moe;
    int rc;
    if (!row)
        return 0;
    *m = (struct qr_moe_config){.n_experts = row->n_experts, .n_used = row->n_used, .n_ffn = row->n_ffn ? row->n_ffn : c->n_ffn,
                                .n_ffn_shared = row->n_ffn_shared, .normalize = !row->normalize_field};
    if ((rc = qr_hf_i32(o, "num_experts", 1, QR_EXPERTS_MAX, &m->n_experts)) ||
        (rc = qr_hf_i32(o, "num_local_experts", 1, QR_EXPERTS_MAX, &m->n_experts)) || /* newer files of Qwen3-MoE have Mixtral's name of it */
        (rc = qr_hf_i32(o, "num_experts_per_tok", 1, m->n_experts, &m->n_used)) ||
        (row->n_ffn && (rc = qr_hf_i32(o, "moe_intermediate_size", 1, 1 << 22, &m->n_ffn))) ||
        (row->n_ffn_shared && (rc = qr_hf_i32(o, "shared_expert_intermediate_size", 1, 1 << 22, &m->n_ffn_shared))) ||
        (row->normalize_field && (rc = qr_hf_bool(o, "norm_topk_prob", &m->normalize))))
        return rc;
    if (m->n_used > m->n_experts)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: num_experts_per_tok is missing, and %d is more than %s %d",
                          o->file, m->n_used, row->count_field,
                          m->n_experts);
    return row->layers_differ ? read_dense(o, c) : 0;
}

void qr_hf_moe_write(struct qr_buf *out, const struct qr_model_config *c)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(c != NULL);
    const struct qr_family_experts *row = qr_family_of(c->arch)->experts;
    const struct qr_moe_config *m = &c->moe;
    if (!row)
        return;
    qr_buf_printf(out, "  \"%s\": %d,\n  \"num_experts_per_tok\": %d,\n", row->count_field, m->n_experts, m->n_used);
    if (row->n_ffn)
        qr_buf_printf(out, "  \"moe_intermediate_size\": %d,\n", m->n_ffn);
    if (row->n_ffn_shared)
        qr_buf_printf(out, "  \"shared_expert_intermediate_size\": %d,\n", m->n_ffn_shared);
    if (row->normalize_field)
        qr_buf_printf(out, "  \"norm_topk_prob\": %s,\n", m->normalize ? "true" : "false");
    if (!row->layers_differ)
        return;
    qr_buf_put_str(out, "  \"decoder_sparse_step\": 1,\n  \"mlp_only_layers\": [");
    const char *between = "";
    for (int32_t l = 0; l < c->n_layers; l++)
        if (!qr_layer_has_experts(c, l)) {
            qr_buf_printf(out, "%s%d", between, l);
            between = ", ";
        }
    qr_buf_put_str(out, "],\n");
}
