/* Adapters on disk, in PEFT's form: written by a run, read to be merged. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/json.h"
#include "base/map_file.h"
#include "base/mem.h"
#include "loader/hf_config.h"
#include "loader/safetensors_write.h"
#include "loader/tensor_files.h"
#include "train/lora.h"

#define CONFIG_BYTES_MAX ((size_t)1 << 20)
#define RANK_MAX 65536

/* ---- writing ---- */

/* The last part but one of an adapter's name: "q_proj". */
static const char *module_of(char out[QR_WEIGHT_NAME_MAX], const char *adapter)
{
    snprintf(out, QR_WEIGHT_NAME_MAX, "%s", adapter);
    *strstr(out, ".lora_") = '\0';
    return strrchr(out, '.') + 1;
}

static void put_modules(struct qr_buf *out, const struct qr_params *p)
{
    char name[QR_WEIGHT_NAME_MAX], other[QR_WEIGHT_NAME_MAX];
    bool any = false;
    for (int32_t i = 0; i < p->n_params; i++) {
        bool seen = !p->param[i].extra;
        const char *module = seen ? NULL : module_of(name, p->param[i].name);
        for (int32_t k = 0; !seen && k < i; k++)
            seen = p->param[k].extra && strcmp(module, module_of(other, p->param[k].name)) == 0;
        if (seen)
            continue;
        qr_buf_put_str(out, any ? ", " : "");
        qr_json_put_str(out, module, strlen(module));
        any = true;
    }
}

static int write_config(const char *dir, const struct qr_params *p, const struct qr_train_config *c, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_buf text = {0};
    int rc = qr_path_join(path, dir, QR_LORA_CONFIG, err);
    if (rc)
        return rc;
    qr_buf_put_str(&text, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"base_model_name_or_path\": ");
    qr_json_put_str(&text, c->model.from, strlen(c->model.from));
    qr_buf_printf(&text, ",\n  \"r\": %lld,\n  \"lora_alpha\": ", (long long)c->lora.rank);
    qr_json_put_f64(&text, c->lora.alpha);
    qr_buf_put_str(&text, ",\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n  \"use_rslora\": false,\n  \"use_dora\": false,\n"
                          "  \"inference_mode\": true,\n  \"target_modules\": [");
    put_modules(&text, p);
    qr_buf_put_str(&text, "]\n}\n");
    rc = qr_file_write(path, text.data, text.len, true, err);
    qr_buf_release(&text);
    return rc;
}

static int write_weights(const char *dir, const struct qr_params *p, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_st_out out;
    struct qr_st_entry *entry = qr_alloc((size_t)p->n_params, sizeof *entry);
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_params; i++)
        if (p->param[i].extra)
            entry[n++] = (struct qr_st_entry){.name = p->param[i].name, .dtype = QR_F32, .n_dims = 2, .shape = {p->param[i].shape[0], p->param[i].shape[1]}};
    int rc = qr_path_join(path, dir, QR_LORA_WEIGHTS, err);
    rc = rc ? rc : qr_st_out_open(&out, path, entry, n, NULL, 0, err);
    qr_free(entry);
    if (rc)
        return rc;
    for (int32_t i = 0; rc == 0 && i < p->n_params; i++)
        if (p->param[i].extra)
            rc = qr_st_out_put(&out, (const float *)p->value + p->param[i].first, (size_t)p->param[i].n * sizeof(float), err);
    if (rc) {
        qr_st_out_abandon(&out);
        return rc;
    }
    return qr_st_out_close(&out, true, err);
}

int qr_lora_save(const char *run_dir, const struct qr_params *p, const struct qr_train_config *c, struct qr_err *err)
{
    QR_ASSERT(run_dir != NULL && p != NULL && c != NULL);
    QR_ASSERT(err != NULL && p->n_params > 0 && p->param[p->n_params - 1].extra);
    char path[QR_PATH_MAX], spare[QR_PATH_MAX], name[64];
    struct qr_err ignored;
    snprintf(name, sizeof name, ".saving-" QR_LORA_DIR ".%ld", (long)getpid()); /* as qr_checkpoint_clean knows them */
    int rc = qr_path_join(path, run_dir, QR_LORA_DIR, err);
    rc = rc ? rc : qr_path_join(spare, run_dir, name, err);
    rc = rc ? rc : qr_dir_make_fresh(spare, err);
    if (rc)
        return rc;
    rc = write_config(spare, p, c, err);
    rc = rc ? rc : write_weights(spare, p, err);
    rc = rc ? rc : qr_dir_sync(spare, err);
    rc = rc ? rc : qr_dir_publish(spare, path, true, err);
    if (rc || access(spare, F_OK) == 0)
        qr_dir_remove(spare, &ignored);
    return rc;
}

/* ---- reading ---- */

struct adapter {
    const char *base;            /* borrowed: directory, for messages */
    char config[QR_PATH_MAX], weights[QR_PATH_MAX];
    int64_t rank;
    float scale;
    struct qr_tensor_files *st;   /* owned */
    int32_t n_used;              /* tensors of st that belong to a matrix */
};

/* Ways to begin that leave the model's own matrices as they were (others, such as PiSSA, subtract from them what the adapters begin with). */
static int check_start(const struct adapter *a, const struct qr_json *v, struct qr_err *err)
{
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
    const struct qr_json *x = qr_json_find(v, "init_lora_weights");
    if (qr_json_is_null(x) || qr_json_type(x) != QR_JSON_T_STRING)
        return 0;
    for (int i = 0; i < QR_COUNT(harmless); i++)
        if (strcmp(qr_json_str(x, NULL), harmless[i]) == 0)
            return 0;
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s: init_lora_weights is \"%.40s\", expected a boolean, \"gaussian\", \"eva\" or \"orthogonal\"", a->config,
                      qr_json_str(x, NULL));
}

/* Settings of PEFT that make adapters something else than this sum: absent, or this. */
static int check_kind(const struct adapter *a, const struct qr_json *v, struct qr_err *err)
{
    static const char *const must_be_false[] = {"use_rslora", "use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"};
    static const char *const must_be_empty[] = {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication", "target_parameters",
                                                "trainable_token_indices", "alora_invocation_tokens", "use_bdlora", "kasa_config", "arrow_config"};
    for (int i = 0; i < QR_COUNT(must_be_false); i++) {
        const struct qr_json *x = qr_json_find(v, must_be_false[i]);
        if (!qr_json_is_null(x) && !(qr_json_type(x) == QR_JSON_T_BOOL && !qr_json_bool(x)))
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s is set, expected false", a->config, must_be_false[i]);
    }
    for (int i = 0; i < QR_COUNT(must_be_empty); i++) {
        const struct qr_json *x = qr_json_find(v, must_be_empty[i]);
        if (x && qr_json_count(x) > 0)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s is not empty, expected one rank and alpha for all matrices and nothing else", a->config,
                              must_be_empty[i]);
    }
    return check_start(a, v, err);
}

static int read_values(struct adapter *a, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *type = qr_json_find(v, "peft_type"), *alpha = qr_json_find(v, "lora_alpha"), *rank = qr_json_find(v, "r");
    if (!type || qr_json_type(type) != QR_JSON_T_STRING || strcmp(qr_json_str(type, NULL), "LORA") != 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: peft_type is not \"LORA\"", a->config);
    if (!rank || !qr_json_i64(rank, &a->rank) || a->rank < 1 || a->rank > RANK_MAX)
        return qr_err_set(err, QR_E_INVALID, "%s: r, expected a whole number from 1 to %d", a->config, RANK_MAX);
    if (!alpha || qr_json_type(alpha) != QR_JSON_T_NUMBER)
        return qr_err_set(err, QR_E_INVALID, "%s: lora_alpha, expected a number", a->config);
    a->scale = (float)(qr_json_f64(alpha) / (double)a->rank);
    return check_kind(a, v, err);
}

static int adapter_open(struct adapter *a, const char *dir, struct qr_err *err)
{
    struct qr_map_file f;
    struct qr_json *v;
    int rc = qr_path_join(a->config, dir, QR_LORA_CONFIG, err);
    rc = rc ? rc : qr_path_join(a->weights, dir, QR_LORA_WEIGHTS, err);
    rc = rc ? rc : qr_map_file_open(&f, a->config, CONFIG_BYTES_MAX, err);
    if (rc)
        return rc;
    rc = qr_json_parse(&v, (const char *)f.data, f.n_bytes, &qr_json_limits_request, err);
    qr_map_file_close(&f);
    if (rc)
        return qr_err_prefix(err, "%s: ", a->config);
    rc = read_values(a, v, err);
    qr_json_free(v);
    return rc ? rc : qr_safetensors_open(&a->st, a->weights, err);
}

/* One matrix as f32, to be freed; its shape checked. *out stays NULL when there is none of that name. */
static int read_matrix(float **out, struct adapter *a, const char *name, int64_t rows, int64_t cols, struct qr_err *err)
{
    const struct qr_stored_tensor *t = qr_tensor_files_find(a->st, name);
    const int64_t shape[] = {rows, cols};
    char found[160], expected[160];
    if (!t)
        return 0;
    if (t->n_dims != 2 || t->shape[0] != rows || t->shape[1] != cols)
        return qr_err_set(err, QR_E_INVALID, "%s: tensor %s is %s, expected %s by %s and r in " QR_LORA_CONFIG, a->weights, name,
                          qr_shape_text(found, sizeof found, t->shape, t->n_dims), qr_shape_text(expected, sizeof expected, shape, 2), a->base);
    if (!t->type->computable)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: tensor %s is %s, expected F32, F16 or BF16", a->weights, name, t->type->name);
    const uint8_t *src = qr_tensor_files_data(a->st, t);
    *out = qr_alloc((size_t)(rows * cols), sizeof **out);
    for (int64_t i = 0; i < rows * cols; i++) {
        uint16_t h;
        if (t->type->dtype == QR_F32) {
            memcpy(*out + i, src + 4 * i, sizeof **out);
            continue;
        }
        memcpy(&h, src + 2 * i, sizeof h);
        (*out)[i] = t->type->dtype == QR_BF16 ? qr_bf16_to_f32(h) : qr_f16_to_f32(h);
    }
    a->n_used++;
    return 0;
}

static int merge_matrix(struct adapter *ad, struct qr_params *p, const struct qr_param *w, struct qr_err *err)
{
    char name_a[QR_WEIGHT_NAME_MAX], name_b[QR_WEIGHT_NAME_MAX];
    float *a = NULL, *b = NULL;
    qr_lora_name(name_a, w->name, QR_LORA_A);
    qr_lora_name(name_b, w->name, QR_LORA_B);
    int rc = read_matrix(&a, ad, name_a, ad->rank, w->shape[1], err);
    rc = rc ? rc : read_matrix(&b, ad, name_b, w->shape[0], ad->rank, err);
    if (rc == 0 && !a != !b)
        rc = qr_err_set(err, QR_E_INVALID, "%s: tensor %s is missing, expected it beside %s", ad->weights, a ? name_b : name_a, a ? name_a : name_b);
    if (rc == 0 && a) {
        float *value = (float *)p->value + w->first, *sum = qr_alloc((size_t)w->shape[1], sizeof *sum);
        const struct qr_lora_product x = {.out = value, .sum = sum, .base = value, .a = a, .b = b, .scale = ad->scale, .n_out = w->shape[0],
                                          .n_in = w->shape[1], .rank = ad->rank};
        qr_lora_add(&x);
        qr_free(sum);
    }
    qr_free(a);
    qr_free(b);
    return rc;
}

/* Every tensor of the adapters has been used. */
static int check_used(const struct adapter *ad, const struct qr_params *p, struct qr_err *err)
{
    const int32_t n = qr_tensor_files_count(ad->st);
    for (int32_t i = 0; ad->n_used < n && i < n; i++) {
        const char *name = qr_tensor_files_at(ad->st, i)->name;
        char a[QR_WEIGHT_NAME_MAX], b[QR_WEIGHT_NAME_MAX];
        bool known = false;
        for (int32_t k = 0; !known && k < p->n_params; k++) {
            if (p->param[k].n_dims != 2)
                continue;
            qr_lora_name(a, p->param[k].name, QR_LORA_A);
            qr_lora_name(b, p->param[k].name, QR_LORA_B);
            known = strcmp(name, a) == 0 || strcmp(name, b) == 0;
        }
        if (!known)
            return qr_err_set(err, QR_E_INVALID, "%s: tensor %s belongs to no matrix of %s, expected " QR_LORA_BEFORE "NAME" QR_LORA_A " or " QR_LORA_B
                              " of one", ad->weights, name, ad->base);
    }
    if (n == 0)
        return qr_err_set(err, QR_E_INVALID, "%s: holds no tensor, expected adapters", ad->weights);
    return 0;
}

static int merge_into(struct qr_params *p, struct adapter *ad, struct qr_err *err)
{
    int rc = 0;
    for (int32_t k = 0; rc == 0 && k < p->n_params; k++)
        if (p->param[k].n_dims == 2)
            rc = merge_matrix(ad, p, &p->param[k], err);
    rc = rc ? rc : check_used(ad, p, err);
    if (rc == 0)
        qr_params_round(p);
    return rc;
}

static int merge_on(struct qr_backend *be, const char *base, struct adapter *ad, const char *out, struct qr_err *err)
{
    struct qr_model_config c;
    struct qr_params *p = NULL;
    int rc = qr_model_config_read(&c, base, err);
    rc = rc ? rc : qr_params_open(&p, base, be, QR_F32, c.stored == QR_BF16 ? QR_BF16 : QR_F32, err);
    rc = rc ? rc : merge_into(p, ad, err);
    if (rc == 0) {
        const struct qr_checkpoint_source src = {.params = p, .tokenizer_dir = base};
        rc = qr_model_export(out, &src, false, err);
    }
    qr_params_close(p);
    return rc;
}

int qr_lora_merge(const char *base, const char *adapter, const char *out, struct qr_err *err)
{
    QR_ASSERT(base != NULL && adapter != NULL);
    QR_ASSERT(out != NULL && err != NULL);
    struct adapter ad = {.base = base};
    const struct qr_backend_options o = {.n_threads = 1};
    struct qr_backend *be = NULL;
    int rc = adapter_open(&ad, adapter, err);
    rc = rc ? rc : qr_backend_open(&be, &o, err);
    rc = rc ? rc : merge_on(be, base, &ad, out, err);
    qr_tensor_files_close(ad.st);
    qr_backend_close(be);
    return rc;
}
