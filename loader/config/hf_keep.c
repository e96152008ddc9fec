/* hf_keep.c - config.json of a model that is written from another: what the source's file says is kept, but for what
 * is no longer so (hf_config.h). */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/files/map_file.h"
#include "loader/config/hf_config.h"
#include "loader/families/family.h"

#define FILE_BYTES_MAX ((size_t)4 << 20)

/* What is not simply kept of the file that a model came from. IDS: ours where they differ; PAD: null where it is no id of the model's; MISSING: ours where the
 * file has none. */
static const struct rule {
    const char *key;
    enum { OURS, IDS, PAD, MISSING, DROPPED } what;
} rules[] = {
    {"torch_dtype", OURS}, {"dtype", OURS}, {"vocab_size", OURS}, {"tie_word_embeddings", OURS},
    {"bos_token_id", IDS}, {"eos_token_id", IDS}, {"pad_token_id", PAD},
    {"architectures", MISSING}, {"model_type", MISSING}, /* of a text_config */
    {"quantization_config", DROPPED}, {"compression_config", DROPPED}, /* the weights are numbers now */
    {"auto_map", DROPPED},                                             /* code, which is not copied */
};

static const struct rule *rule_of(const char *key)
{
    for (int i = 0; i < QR_COUNT(rules); i++)
        if (strcmp(rules[i].key, key) == 0)
            return &rules[i];
    return NULL;
}

/* Nothing, one id or a list of ids. */
static const struct qr_json *first_id(const struct qr_json *v)
{
    return qr_json_is_null(v) ? NULL : qr_json_type(v) == QR_JSON_T_ARRAY ? qr_json_first(v) : v;
}

static const struct qr_json *next_id(const struct qr_json *list, const struct qr_json *v)
{
    return qr_json_type(list) == QR_JSON_T_ARRAY ? qr_json_after(v) : NULL;
}

static bool same_ids(const struct qr_json *a, const struct qr_json *b)
{
    const struct qr_json *x = first_id(a), *y = first_id(b);
    int64_t i = 0, k = 0;
    for (; x && y && qr_json_i64(x, &i) && qr_json_i64(y, &k) && i == k; y = next_id(b, y))
        x = next_id(a, x);
    return !x && !y;
}

/* What takes the place of v, the source's value of `key`. */
static const struct qr_json *value_of(const char *key, const struct qr_json *v, const struct qr_json *ours, int32_t n_vocab)
{
    const struct rule *r = rule_of(key);
    const struct qr_json *own = qr_json_find(ours, strcmp(key, "dtype") == 0 ? "torch_dtype" : key);
    int64_t id;
    if (!r || r->what == MISSING)
        return v;
    if (r->what == IDS)
        return same_ids(v, own) ? v : own;
    if (r->what == PAD)
        return qr_json_i64(v, &id) && id >= 0 && id < n_vocab ? v : own;
    return r->what == OURS ? own : NULL;
}

static void put_member(struct qr_buf *out, const char *key, const struct qr_json *v)
{
    qr_buf_put_str(out, out->data[out->len - 1] == '{' ? "\n  " : ",\n  ");
    qr_json_put_str(out, key, strlen(key));
    qr_buf_put_str(out, ": ");
    qr_json_print(out, v);
}

static void put_members(struct qr_buf *out, const struct qr_json *source, const struct qr_json *ours, int32_t n_vocab)
{
    qr_buf_put_byte(out, '{');
    for (const struct qr_json *v = qr_json_first(source); v; v = qr_json_after(v)) {
        const struct qr_json *value = value_of(qr_json_key(v), v, ours, n_vocab);
        if (value)
            put_member(out, qr_json_key(v), value);
    }
    for (int i = 0; i < QR_COUNT(rules); i++) {
        const struct qr_json *own = qr_json_find(ours, rules[i].key);
        const bool twin = strcmp(rules[i].key, "torch_dtype") == 0 && qr_json_find(source, "dtype");
        if (own && !twin && !qr_json_find(source, rules[i].key))
            put_member(out, rules[i].key, own);
    }
    qr_buf_put_str(out, "\n}\n");
}

int qr_hf_config_write_kept(struct qr_buf *out, const struct qr_model_config *c, const char *source, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(err != NULL);
    struct qr_json *root = NULL, *ours = NULL;
    struct qr_buf told = {0};
    qr_hf_config_write(&told, c);
    int rc = source ? qr_json_parse(&root, source, strlen(source), &qr_json_limits_request, err) : 0;
    rc = rc ? rc : qr_json_parse(&ours, told.data, told.len, &qr_json_limits_request, err);
    if (rc == 0 && !source)
        qr_buf_put(out, told.data, told.len);
    if (rc == 0 && source) {
        const struct qr_json *text = qr_family_of(c->arch)->text_part ? qr_json_find(root, "text_config") : NULL;
        put_members(out, text && qr_json_type(text) == QR_JSON_T_OBJECT ? text : root, ours, c->n_vocab);
    }
    qr_json_free(ours);
    qr_json_free(root);
    qr_buf_release(&told);
    return rc;
}

int qr_hf_config_text(struct qr_buf *out, const struct qr_source *source, struct qr_err *err)
{
    QR_ASSERT(out != NULL && source != NULL);
    QR_ASSERT(err != NULL);
    char path[4096];
    struct qr_map_file f;
    if (qr_source_gguf(source))
        return 0;
    snprintf(path, sizeof path, "%s/config.json", qr_source_model(source));
    int rc = qr_map_file_open(&f, path, FILE_BYTES_MAX, err);
    if (rc)
        return rc;
    qr_buf_put(out, f.data, f.n_bytes);
    qr_map_file_close(&f);
    return 0;
}

int qr_model_config_read_text(struct qr_model_config *out, struct qr_buf *text, const char *model, struct qr_err *err)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(model != NULL && err != NULL);
    struct qr_source *source;
    int rc = qr_source_open(&source, model, err);
    if (rc)
        return rc;
    rc = qr_model_config_from(out, source, err);
    rc = rc || !text ? rc : qr_hf_config_text(text, source, err);
    qr_source_unref(source);
    return rc;
}
