/* quantization_config as compressed-tensors has it, beside what a config.json says already. */
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "loader/write/quantize.h"
#include "loader/weight_table.h"

#define ACTIVATIONS "{\"num_bits\": 8, \"type\": \"%s\", \"symmetric\": true, \"strategy\": \"token\", \"dynamic\": true}"

/* Modules that stay as they are: the head, and what decides between experts. */
static void put_ignored(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_put_str(out, "[\"lm_head\"");
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        char name[QR_WEIGHT_NAME_MAX];
        if (k.row->kind != QR_KIND_MATRIX || !k.row->per_layer || (k.row->n_out != QR_DIM_EXPERTS && k.row->n_out != QR_DIM_ONE))
            continue;
        qr_buf_put_str(out, ", ");
        qr_weight_walk_name(name, &k);
        qr_json_put_str(out, name, strlen(name) - strlen(".weight"));
    }
    qr_buf_put_byte(out, ']');
}

static void put_scheme(struct qr_buf *out, const struct qr_model_config *c, const struct qr_quantize_options *o)
{
    static const char *const format[] = {[QR_ROUNDING_INT8] = "int-quantized", [QR_ROUNDING_INT4] = "pack-quantized", [QR_ROUNDING_FP8] = "float-quantized",
                                         [QR_ROUNDING_INT4Z] = "pack-quantized"};
    const bool four = qr_rounding_is_int4(o->type);
    const char *type = o->type == QR_ROUNDING_FP8 ? "float" : "int";
    qr_buf_printf(out, "  \"quantization_config\": {\n    \"quant_method\": \"compressed-tensors\",\n    \"format\": \"%s\",\n"
                  "    \"quantization_status\": \"compressed\",\n    \"ignore\": ", format[o->type]);
    put_ignored(out, c);
    qr_buf_printf(out, ",\n    \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"format\": \"%s\",\n      \"weights\": {\"num_bits\": %d, "
                  "\"type\": \"%s\", \"symmetric\": %s, \"dynamic\": false, \"strategy\": \"%s\"",
                  format[o->type], four ? 4 : 8, type, o->type == QR_ROUNDING_INT4Z ? "false" : "true", four ? "group" : "channel");
    if (four)
        qr_buf_printf(out, ", \"group_size\": %lld", (long long)o->group);
    qr_buf_put_str(out, "},\n      \"input_activations\": ");
    if (four)
        qr_buf_put_str(out, "null");
    else
        qr_buf_printf(out, ACTIVATIONS, type);
    qr_buf_put_str(out, "}}\n  }\n}\n");
}

int qr_quantize_config(struct qr_buf *out, const char *config, size_t len, const struct qr_model_config *c, const struct qr_quantize_options *o,
                       struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL);
    QR_ASSERT(c != NULL && o != NULL);
    struct qr_json *root;
    int rc = qr_json_parse_file(&root, config, len, &qr_json_limits_file, "config.json", err);
    if (rc)
        return rc;
    qr_buf_put_str(out, "{\n");
    for (const struct qr_json *v = qr_json_first(root); v; v = qr_json_after(v)) {
        if (strcmp(qr_json_key(v), "quantization_config") == 0)
            continue; /* null */
        qr_buf_put_str(out, "  ");
        qr_json_put_str(out, qr_json_key(v), strlen(qr_json_key(v)));
        qr_buf_put_str(out, ": ");
        qr_json_print(out, v);
        qr_buf_put_str(out, ",\n");
    }
    put_scheme(out, c, o);
    qr_json_free(root);
    return 0;
}
