/* SmolLM3: some layers have no positions, and a window, where it is switched on, is for those. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

#define UNROTATED_EVERY 4

/* A list of 1 and 0 (no positions), or every so manieth layer has none. */
static int read_unrotated(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const struct qr_json *list = qr_json_find(o->v, "no_rope_layers");
    int32_t every = UNROTATED_EVERY, i = 0;
    int rc = qr_hf_i32(o, "no_rope_layer_interval", 1, QR_LAYERS_MAX, &every);
    if (rc || qr_json_is_null(list)) {
        qr_layers_every(c->unrotated, c->n_layers, every);
        return rc;
    }
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v), i++) {
        int64_t on;
        if (i == c->n_layers || !qr_json_i64(v, &on) || on < 0 || on > 1)
            break;
        c->unrotated[i / 64] |= (uint64_t)(on == 0) << (i % 64);
    }
    if (i != c->n_layers || i != qr_json_count(list))
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: no_rope_layers: entry %d, expected a 0 or 1 for each of %d layers",
                          o->file, i, c->n_layers);
    return 0;
}

/* A window, if it is switched on, is for those layers, unless the file lists others. */
static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    const int rc = read_unrotated(o, c);
    const bool listed = !qr_json_is_null(qr_json_find(o->v, "layer_types"));
    for (int32_t l = 0; c->window > 0 && !listed && l < c->n_layers; l++)
        c->unwindowed[l / 64] |= (~c->unrotated[l / 64] >> (l % 64) & 1) << (l % 64);
    return rc;
}

static void write_hf(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_put_str(out, "  \"no_rope_layers\": [");
    for (int32_t l = 0; l < c->n_layers; l++)
        qr_buf_printf(out, "%s%d", l ? ", " : "", (c->unrotated[l / 64] >> (l % 64) & 1) == 0);
    qr_buf_put_str(out, "],\n");
}

static int read_gguf(const struct qr_gguf_reader *r)
{
    qr_layers_every(r->c->unrotated, r->c->n_layers, UNROTATED_EVERY);
    return 0;
}

const struct qr_family qr_family_smollm3 = {
    .name = {{"SmolLM3ForCausalLM", "smollm3"}},
    .usual = {.n_kv_heads = 4, .ctx_max = 32768, .theta = 2000000, .tied = true},
    ATTENTION_BIAS,
    .mlp_bias_field = "mlp_bias",
    .window = QR_WINDOW_IF_NAMED,
    .window_switched = true,
    .window_layers = QR_WINDOW_LISTED,
    .window_list_written = true,
    .weights = qr_llama_rows,
    .gguf = "smollm3",
    .gguf_pairs = true,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .read_gguf = read_gguf,
};
