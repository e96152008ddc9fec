/* hf_write.c - a config.json of a configuration. It reads back as the same one. */
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "loader/config/hf_config.h"
#include "loader/config/hf_parts.h"
#include "loader/families/family.h"

/* Where one number does not say which layers have a window. A list of which the first layers are full says more than
 * a number, too. */
static bool lists_layers(const struct qr_model_config *c, const struct qr_family *f)
{
    bool any = f->window_every > 0 || (f->window_list_written && c->window > 0) ||
               (f->window_layers == QR_WINDOW_LISTED && c->window_first_layer > 0);
    for (int i = 0; i < QR_COUNT(c->unwindowed); i++)
        any |= c->unwindowed[i] != 0;
    return any && f->window_layers != QR_WINDOW_ALL;
}

static void write_window(struct qr_buf *out, const struct qr_model_config *c, const struct qr_family *f)
{
    if (f->window == 0)
        return;
    qr_buf_printf(out, c->window ? "  \"sliding_window\": %d,\n" : "  \"sliding_window\": null,\n", c->window);
    if (lists_layers(c, f)) {
        for (int32_t l = 0; l < c->n_layers; l++)
            qr_buf_printf(out, "%s\"%s\"", l ? ", " : "  \"layer_types\": [",
                          qr_layer_window(c, l) ? "sliding_attention" : "full_attention");
        qr_buf_put_str(out, "],\n");
    }
    if (f->window_switched)
        qr_buf_printf(out, "  \"use_sliding_window\": %s,\n  \"max_window_layers\": %d,\n",
                      c->window ? "true" : "false", c->window_first_layer);
}

static void write_biases(struct qr_buf *out, const struct qr_model_config *c, const struct qr_family *f)
{
    const struct {
        const char *field;
        bool on;
    } rows[] = {{f->qkv_bias_field, c->qkv_bias}, {f->out_bias_field, c->out_bias}, {f->mlp_bias_field, c->mlp_bias}};
    const bool one = f->qkv_bias_field && f->out_bias_field && strcmp(f->qkv_bias_field, f->out_bias_field) == 0;
    for (int i = one; i < QR_COUNT(rows); i++)
        if (rows[i].field)
            qr_hf_write_bool(out, rows[i].field, rows[i].on);
}

/* All three: where the file is silent, transformers' classes take ids that a small vocabulary does not have. */
static void write_tokens(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_put_str(out, "  \"pad_token_id\": null,\n  \"bos_token_id\": ");
    qr_buf_printf(out, c->bos_id >= 0 ? "%d" : "null", c->bos_id);
    qr_buf_put_str(out, ",\n  \"eos_token_id\": ");
    for (int32_t i = 0; i < c->n_eos; i++)
        qr_buf_printf(out, "%s%d", i ? ", " : "[", c->eos_ids[i]);
    qr_buf_put_str(out, c->n_eos ? "],\n" : "null,\n");
}

void qr_hf_config_write(struct qr_buf *out, const struct qr_model_config *c)
{
    QR_ASSERT(out != NULL && c != NULL);
    const struct qr_family *f = qr_family_of(c->arch);
    const struct qr_family_fields field = qr_family_fields(f);
    const struct {
        const char *key;
        int32_t value;
    } sizes[] = {{field.width, c->n_embd}, {field.layers, c->n_layers}, {field.heads, c->n_heads},
                 {"num_key_value_heads", c->n_kv_heads}, {"head_dim", c->head_dim}, {field.ffn, c->n_ffn},
                 {"vocab_size", c->n_vocab},
                 {field.ctx, c->n_positions > 0 ? c->n_positions : c->ctx_max}};
    const enum qr_published as = c->classifier ? QR_WITH_CLASSIFIER : c->headless ? QR_WITHOUT_HEAD : QR_WITH_HEAD;
    char name[64];
    qr_buf_printf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n  \"%s\": \"%s\",\n",
                  qr_family_published_name(name, f, 0, as), f->name[0].model_type, field.act, f->activation[0] ? f->activation[0] : "silu");
    for (int i = 0; i < QR_COUNT(sizes); i++)
        qr_buf_printf(out, "  \"%s\": %d,\n", sizes[i].key, sizes[i].value);
    qr_hf_write_f32(out, field.eps, c->norm_eps);
    qr_hf_write_bool(out, "tie_word_embeddings", c->tied_head);
    write_biases(out, c, f);
    write_window(out, c, f);
    if (f->write_hf)
        f->write_hf(out, c);
    qr_hf_moe_write(out, c);
    write_tokens(out, c);
    qr_buf_printf(out, "  \"torch_dtype\": \"%s\",\n", qr_hf_dtype_name(c->stored));
    qr_hf_rope_write(out, c);
    qr_buf_put_str(out, "\n}\n");
}
