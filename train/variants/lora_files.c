/* Adapters on disk, in PEFT's form: written by a run, read to be merged. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"
#include "loader/write/safetensors_write.h"
#include "train/variants/lora.h"

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
    struct qr_buf text = {0};
    qr_buf_put_str(&text, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"base_model_name_or_path\": ");
    qr_json_put_str(&text, c->model.from, strlen(c->model.from));
    qr_buf_printf(&text, ",\n  \"r\": %lld,\n  \"lora_alpha\": ", (long long)c->lora.rank);
    qr_json_put_f64(&text, c->lora.alpha);
    qr_buf_put_str(&text, ",\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n  \"use_rslora\": false,\n  \"use_dora\": false,\n"
                          "  \"inference_mode\": true,\n  \"target_modules\": [");
    put_modules(&text, p);
    qr_buf_put_str(&text, "]\n}\n");
    const int rc = qr_dir_write(dir, QR_LORA_CONFIG, text.data, text.len, true, err);
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

/* ---- merging ---- */

static int merge_matrix(struct qr_lora_file *f, struct qr_params *p, const struct qr_param *w, const char *base, struct qr_err *err)
{
    struct qr_lora_pair pair;
    int rc = qr_lora_file_find(f, &pair, w->name, w->shape[0], w->shape[1], base, err);
    if (rc || !pair.a)
        return rc;
    const int64_t n_out = w->shape[0], n_in = w->shape[1], rank = pair.rank;
    float *value = (float *)p->value + w->first, *a = qr_alloc((size_t)(rank * n_in), sizeof *a), *b = qr_alloc((size_t)(n_out * rank), sizeof *b);
    float *sum = qr_alloc((size_t)n_in, sizeof *sum);
    qr_lora_file_decode(f, pair.a, a, 0, rank);
    qr_lora_file_decode(f, pair.b, b, 0, n_out);
    const struct qr_lora_product x = {.out = value, .sum = sum, .base = value, .a = a, .b = b, .scale = pair.scale, .n_out = n_out, .n_in = n_in,
                                      .rank = rank};
    qr_lora_add(&x);
    qr_free(sum);
    qr_free(a);
    qr_free(b);
    return 0;
}

/* The next part of the work, with a pace of its own. */
static void begin_part(struct qr_progress *progress, const char *what)
{
    if (!progress)
        return;
    qr_progress_end(progress);
    qr_progress_open(progress, what);
}

static int merge_into(struct qr_params *p, struct qr_lora_file *f, const char *base, struct qr_progress *progress, struct qr_err *err)
{
    int rc = qr_lora_file_fit(f, &p->config, false, err);
    for (int32_t k = 0; rc == 0 && k < p->n_params; k++) {
        if (p->param[k].n_dims == 2)
            rc = merge_matrix(f, p, &p->param[k], base, err);
        if (progress) /* tensors, not numbers: the largest one, the embedding, has no adapter */
            qr_progress_show(progress, (uint64_t)k + 1, (uint64_t)p->n_params);
    }
    rc = rc ? rc : qr_lora_file_check_used(f, base, err);
    if (rc == 0)
        qr_params_round(p);
    return rc;
}

static int merge_on(struct qr_backend *be, const char *base, struct qr_lora_file *f, const char *out, struct qr_progress *progress, struct qr_err *err)
{
    struct qr_model_config c;
    struct qr_params *p = NULL;
    struct qr_buf text = {0};
    int rc = qr_model_config_read_text(&c, &text, base, err);
    const struct qr_params_hold hold = {.progress = progress};
    begin_part(progress, "reading");
    rc = rc ? rc : qr_params_open_held(&p, base, be, QR_F32, c.stored == QR_BF16 ? QR_BF16 : QR_F32, &hold, err);
    begin_part(progress, "merging");
    rc = rc ? rc : merge_into(p, f, base, progress, err);
    if (rc == 0 && progress && qr_progress_due(progress))
        qr_progress_say(progress, "writing %s", out);
    if (rc == 0) {
        const struct qr_checkpoint_source src = {.params = p, .tokenizer_dir = base, .model_config = text.data};
        rc = qr_model_export(out, &src, false, err);
    }
    qr_params_close(p);
    qr_buf_release(&text);
    return rc;
}

int qr_lora_merge(const char *base, const char *adapter, const char *out, struct qr_progress *progress, struct qr_err *err)
{
    QR_ASSERT(base != NULL && adapter != NULL);
    QR_ASSERT(out != NULL && err != NULL);
    struct qr_lora_file *f = NULL;
    const struct qr_backend_options o = {.n_threads = 1};
    struct qr_backend *be = NULL;
    int rc = qr_lora_file_open(&f, adapter, NULL, SIZE_MAX, err);
    rc = rc ? rc : qr_backend_open(&be, &o, err);
    rc = rc ? rc : merge_on(be, base, f, out, progress, err);
    qr_lora_file_close(f);
    qr_backend_close(be);
    return rc;
}
