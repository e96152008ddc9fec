/* hf_quant.c - quantization_config of a config.json: which of the layouts of quantized_tensors.h the files have. */
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/files/map_file.h"
#include "loader/stores/quantized_tensors.h"

#define FILE_BYTES_MAX ((size_t)4 << 20)
#define AS_IT_WAS "; or download the model as it was before, and use --quantize"
#define INSTEAD "expected GPTQ, AWQ, compressed-tensors (4 or 8 bits), FP8 or MXFP4" AS_IT_WAS

/* {member: object}, or an empty one. */
static struct qr_hf_obj member(const struct qr_hf_obj *o, const char *key, const char *prefix)
{
    return (struct qr_hf_obj){.v = qr_json_find(o->v, key), .file = o->file, .prefix = prefix, .err = o->err};
}

static int refuse(const struct qr_hf_obj *o, const char *key, const char *value, const char *expected)
{
    return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s%s is \"%.60s\"; %s", o->file, o->prefix, key, value, expected);
}

/* Two sizes of a block, outputs first. */
static int read_block(const struct qr_hf_obj *o, const char *key, struct qr_quant_scheme *s)
{
    const struct qr_json *v = qr_json_find(o->v, key), *first = qr_json_is_null(v) ? NULL : qr_json_first(v), *second = first ? qr_json_after(first) : NULL;
    int64_t rows = 0, cols = 0;
    if (qr_json_is_null(v))
        return 0;
    if (qr_json_count(v) != 2 || !qr_json_i64(first, &rows) || !qr_json_i64(second, &cols) || rows < 1 || cols < 1 || rows > 1 << 20 || cols > 1 << 20)
        return qr_hf_wrong_type(o, key, v, "two sizes of at least 1");
    s->block_out = (int32_t)rows;
    s->block_in = (int32_t)cols;
    return 0;
}

/* Groups of -1 are whole rows. */
static int read_group(const struct qr_hf_obj *o, const char *key, struct qr_quant_scheme *s)
{
    int32_t group = 0;
    int rc = qr_hf_i32(o, key, -1, 1 << 20, &group);
    s->group = group > 0 ? group : 0;
    return rc;
}

static int read_gptq(const struct qr_hf_obj *o, struct qr_quant_scheme *s)
{
    const char *format = "gptq";
    bool marlin = false;
    int rc = qr_hf_need_i32(o, "bits", 1, 16, &s->bits);
    rc = rc ? rc : read_group(o, "group_size", s);
    rc = rc ? rc : qr_hf_str(o, "checkpoint_format", &format);
    rc = rc ? rc : qr_hf_bool(o, "is_marlin_format", &marlin); /* how it was said before checkpoint_format */
    if (rc)
        return rc;
    format = marlin ? "marlin" : format;
    if (s->bits != 4 && s->bits != 8)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %sbits is %d; expected 4 or 8" AS_IT_WAS, o->file, o->prefix, s->bits);
    if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return refuse(o, "checkpoint_format", format, "expected gptq or gptq_v2" AS_IT_WAS);
    s->zeros_less_one = strcmp(format, "gptq") == 0;
    return 0;
}

static int read_awq(const struct qr_hf_obj *o, struct qr_quant_scheme *s)
{
    const char *version = "gemm";
    s->bits = 4;
    int rc = qr_hf_i32(o, "bits", 1, 16, &s->bits);
    rc = rc ? rc : qr_hf_i32(o, "w_bit", 1, 16, &s->bits);
    rc = rc ? rc : read_group(o, "group_size", s);
    rc = rc ? rc : qr_hf_str(o, "version", &version);
    if (rc)
        return rc;
    if (s->bits != 4)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %sbits is %d; expected 4" AS_IT_WAS, o->file, o->prefix, s->bits);
    if (strcasecmp(version, "gemm") != 0)
        return refuse(o, "version", version, "expected gemm" AS_IT_WAS);
    return 0;
}

static int read_fp8(const struct qr_hf_obj *o, struct qr_quant_scheme *s)
{
    const char *format = "e4m3";
    s->bits = 8;
    int rc = qr_hf_str(o, "fmt", &format);
    rc = rc ? rc : read_block(o, "weight_block_size", s);
    if (rc)
        return rc;
    return strcmp(format, "e4m3") == 0 ? 0 : refuse(o, "fmt", format, "expected e4m3" AS_IT_WAS);
}

/* Where layouts are mixed each group says its own; each matrix shows which it has. */
static int check_format(const struct qr_hf_obj *o)
{
    static const char *const formats[] = {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision"};
    const char *format = NULL;
    int rc = qr_hf_str(o, "format", &format), i = 0;
    if (rc || !format)
        return rc;
    while (i < QR_COUNT(formats) && strcmp(format, formats[i]) != 0)
        i++;
    return i < QR_COUNT(formats) ? 0 : refuse(o, "format", format, "expected pack-quantized, int-quantized, float-quantized, naive-quantized or mixed-precision"
                                              AS_IT_WAS);
}

/* One of compressed-tensors' groups of modules. What it says of activations is ignored: they are not quantized here, which is nearer to the model that
 * was quantized. */
static int read_module_group(const struct qr_hf_obj *o, struct qr_quant_scheme *s)
{
    const struct qr_hf_obj w = member(o, "weights", "quantization_config.config_groups.*.weights.");
    const char *type = "int";
    int32_t bits = 8;
    if (qr_json_is_null(w.v) && !qr_json_is_null(qr_json_find(o->v, "input_activations")))
        return 0; /* of attention */
    if (qr_json_is_null(w.v) || qr_json_type(w.v) != QR_JSON_T_OBJECT)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: quantization_config has a group of modules without weights; " INSTEAD, o->file);
    int rc = check_format(o);
    rc = rc ? rc : qr_hf_need_i32(&w, "num_bits", 1, 16, &bits);
    rc = rc ? rc : qr_hf_str(&w, "type", &type);
    rc = rc ? rc : read_group(&w, "group_size", s);
    rc = rc ? rc : read_block(&w, "block_structure", s);
    if (rc)
        return rc;
    if (!(strcmp(type, "int") == 0 && (bits == 4 || bits == 8)) && !(strcmp(type, "float") == 0 && bits == 8))
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: quantization_config has weights of %d bits, type \"%.40s\"; expected int of 4 or 8, or float of 8"
                          AS_IT_WAS, o->file, bits, type);
    s->bits = bits;
    return 0;
}

static int read_compressed(const struct qr_hf_obj *o, struct qr_quant_scheme *s)
{
    const struct qr_hf_obj sparse = member(o, "sparsity_config", "quantization_config.sparsity_config.");
    const struct qr_json *groups = qr_json_find(o->v, "config_groups");
    const char *sparsity = "dense";
    int rc = check_format(o);
    rc = rc || qr_json_is_null(sparse.v) ? rc : qr_hf_str(&sparse, "format", &sparsity);
    if (rc)
        return rc;
    if (strcmp(sparsity, "dense") != 0)
        return refuse(&sparse, "format", sparsity, "expected dense" AS_IT_WAS);
    if (!qr_json_is_null(qr_json_find(o->v, "transform_config")) && qr_json_count(qr_json_find(o->v, "transform_config")) > 0)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: quantization_config.transform_config turns activations; expected none", o->file);
    if (qr_json_is_null(groups) || qr_json_type(groups) != QR_JSON_T_OBJECT)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: quantization_config.config_groups is missing", o->file);
    for (const struct qr_json *g = qr_json_first(groups); g && !rc; g = qr_json_after(g)) {
        const struct qr_hf_obj group = {.v = g, .file = o->file, .prefix = "quantization_config.config_groups.*.", .err = o->err};
        rc = qr_json_type(g) == QR_JSON_T_OBJECT ? read_module_group(&group, s)
                                                 : qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: quantization_config.config_groups.%.60s names a preset; "
                                                              "expected its settings", o->file, qr_json_key(g));
    }
    return rc;
}

static const struct {
    const char *name;
    enum qr_quant_method method;
    int (*read)(const struct qr_hf_obj *o, struct qr_quant_scheme *s); /* NULL: the tensors show which matrices have it */
} methods[] = {{"gptq", QR_QUANT_GPTQ, read_gptq}, {"awq", QR_QUANT_AWQ, read_awq}, {"fp8", QR_QUANT_FP8, read_fp8}, {"fbgemm_fp8", QR_QUANT_FP8, read_fp8},
               {"compressed-tensors", QR_QUANT_COMPRESSED, read_compressed}, {"mxfp4", QR_QUANT_MXFP4, NULL}};

const char *qr_quant_method_name(enum qr_quant_method method)
{
    int i = 0;
    while (i < QR_COUNT(methods) && methods[i].method != method)
        i++;
    QR_ASSERT(i < QR_COUNT(methods));
    return methods[i].name;
}

/* o: the settings; what they are of unless they say it: method, or NULL. */
static int read_scheme(struct qr_quant_scheme *out, const struct qr_hf_obj *o, const char *method)
{
    int rc = qr_hf_str(o, "quant_method", &method);
    if (rc)
        return rc;
    if (!method)
        method = qr_json_find(o->v, "load_in_4bit") || qr_json_find(o->v, "load_in_8bit") ? "bitsandbytes" : "unnamed";
    for (int i = 0; i < QR_COUNT(methods); i++)
        if (strcmp(method, methods[i].name) == 0) {
            out->method = methods[i].method;
            return methods[i].read ? methods[i].read(o, out) : 0;
        }
    return refuse(o, "quant_method", method, INSTEAD);
}

int qr_hf_quant_read(struct qr_quant_scheme *out, const struct qr_hf_obj *config)
{
    QR_ASSERT(out != NULL && config != NULL);
    QR_ASSERT(config->v != NULL);
    const char *const key = qr_json_is_null(qr_json_find(config->v, "quantization_config")) ? "compression_config" : "quantization_config";
    const struct qr_hf_obj o = member(config, key, "quantization_config.");
    *out = (struct qr_quant_scheme){.method = QR_QUANT_NONE};
    if (qr_json_is_null(o.v))
        return 0;
    if (qr_json_type(o.v) != QR_JSON_T_OBJECT)
        return qr_hf_wrong_type(config, key, o.v, "an object");
    return read_scheme(out, &o, NULL);
}

/* ---- files of their own ---- */

/* Whether it is about weights' codes at all: transformers.js leaves a quantize_config.json of what it made of a model for ONNX. */
static bool is_ours(const struct qr_json *v)
{
    static const char *const keys[] = {"quant_method", "bits", "w_bit"};
    for (int i = 0; i < QR_COUNT(keys); i++)
        if (!qr_json_is_null(qr_json_find(v, keys[i])))
            return true;
    return false;
}

static int read_text(struct qr_quant_scheme *out, const struct qr_map_file *map, const char *file, const char *method, struct qr_err *err)
{
    struct qr_json *root;
    struct qr_hf_obj o = {.file = file, .prefix = "", .err = err};
    int rc = qr_json_parse_file(&root, (const char *)map->data, map->n_bytes, &qr_json_limits_request, file, err);
    if (rc)
        return rc;
    o.v = root;
    if (qr_json_type(root) != QR_JSON_T_OBJECT)
        rc = qr_err_set(err, QR_E_DAMAGED, "%s: expected an object", file);
    else if (is_ours(root))
        rc = read_scheme(out, &o, method);
    qr_json_free(root);
    return rc;
}

int qr_hf_quant_read_beside(struct qr_quant_scheme *out, const char *dir, struct qr_err *err)
{
    static const char *const files[][2] = {{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}};
    QR_ASSERT(out != NULL && dir != NULL && err != NULL);
    QR_ASSERT(out->method == QR_QUANT_NONE);
    int rc = 0;
    for (int i = 0; i < QR_COUNT(files) && !rc && out->method == QR_QUANT_NONE; i++) {
        char path[QR_PATH_MAX];
        struct qr_map_file map;
        struct qr_err why;
        rc = qr_path_join(path, dir, files[i][0], err);
        if (rc || (rc = qr_map_file_open(&map, path, FILE_BYTES_MAX, &why)) == QR_E_NOT_FOUND) {
            rc = rc == QR_E_NOT_FOUND ? 0 : rc;
            continue;
        }
        if (rc) {
            *err = why;
            return rc;
        }
        rc = read_text(out, &map, files[i][0], files[i][1], err);
        qr_map_file_close(&map);
        if (rc)
            qr_err_prefix(err, "%s/", dir);
    }
    return rc;
}
