#include "loader/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/source.h"
#include "kernels/backend.h"
#include "loader/hf_config.h"
#include "loader/tensor_files.h"
#include "loader/weights.h"

#define PROBLEMS_MAX 4
#define BLOCK_TOKENS 16

struct report {
    const char *path;
    bool is_model, has_config; /* is_model: more than a file of tensors */
    struct qr_model_config config;
    struct qr_tensor_files *files;          /* owned; NULL when they could not be read */
    struct qr_err problem[PROBLEMS_MAX];
    int32_t n_problems;
    enum qr_dtype compute;                 /* when nothing is wrong and it is a directory */
    size_t weight_bytes[QR_DTYPE_COUNT];   /* likewise: packed matrices and vectors as `compute` and as each quantized type, on this machine */
    int32_t n_unused;
    const char *first_unused;
    uint64_t n_parameters, n_bytes;
};

static struct qr_err *slot(struct report *r)
{
    QR_ASSERT(r->n_problems < PROBLEMS_MAX);
    return &r->problem[r->n_problems];
}

static void note(struct report *r, int rc)
{
    r->n_problems += rc != 0;
}

static int check_backend(struct report *r, struct qr_err *err)
{
    struct qr_backend *be;
    const struct qr_backend_options o = {.n_threads = 1, .step_rows_max = 1};
    int rc = qr_backend_open(&be, &o, err);
    if (rc)
        return rc;
    rc = qr_backend_supports(be, r->compute, qr_weights_inputs_max(&r->config), r->compute, r->config.head_dim, BLOCK_TOKENS, err);
    for (int t = 0; t < QR_DTYPE_COUNT; t++)
        if (t == (int)r->compute || qr_dtype_is_quantized((enum qr_dtype)t))
            r->weight_bytes[t] = qr_weights_region_bytes(&r->config, be->k, (enum qr_dtype)t);
    qr_backend_close(be);
    return rc;
}

static void examine(struct report *r)
{
    struct stat st;
    struct qr_source *source = NULL;
    note(r, qr_source_open(&source, r->path, slot(r)));
    if (!source)
        return;
    r->is_model = (stat(r->path, &st) == 0 && S_ISDIR(st.st_mode)) || qr_source_gguf(source);
    if (r->is_model) {
        int rc = qr_model_config_from(&r->config, source, slot(r));
        r->has_config = rc == 0;
        note(r, rc);
    }
    note(r, qr_tensor_files_open_from(&r->files, source, slot(r)));
    qr_source_unref(source);
    for (int32_t i = 0; r->files && i < qr_tensor_files_count(r->files); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(r->files, i);
        uint64_t n = 1;
        for (int32_t k = 0; k < t->n_dims; k++)
            n *= (uint64_t)t->shape[k];
        r->n_parameters += n;
        r->n_bytes += t->n_bytes;
    }
    if (!r->has_config || !r->files)
        return;
    note(r, qr_weights_check(r->files, &r->config, slot(r)));
    r->n_unused = qr_weights_unused(r->files, &r->config, &r->first_unused);
    if (r->n_problems == 0) {
        r->compute = qr_weights_lossless_dtype(r->files, &r->config);
        note(r, check_backend(r, slot(r)));
    }
}

/* ---- text ---- */

static const char *rope_name(const struct qr_rope_config *r)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
    return names[r->type];
}

static void text_config(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_printf(out, "architecture  %s\n", c->arch_name);
    qr_buf_printf(out, "shape         %d layers, width %d, feed-forward %d, vocabulary %d\n", c->n_layers, c->n_embd, c->n_ffn, c->n_vocab);
    if (c->moe.n_experts) {
        int32_t n_dense = 0;
        for (int32_t l = 0; l < c->n_layers; l++)
            n_dense += !qr_layer_has_experts(c, l);
        qr_buf_printf(out, "experts       %d of %d, a token goes through %d", c->moe.n_experts, c->moe.n_ffn, c->moe.n_used);
        if (c->moe.n_ffn_shared)
            qr_buf_printf(out, " and a shared one of %d", c->moe.n_ffn_shared);
        if (n_dense)
            qr_buf_printf(out, "; %d layers have none", n_dense);
        qr_buf_put_byte(out, '\n');
    }
    qr_buf_printf(out, "attention     %d query heads, %d kv heads of %d%s%s", c->n_heads, c->n_kv_heads, c->head_dim,
                  c->qk_norm ? ", q/k norm" : "", c->qkv_bias ? ", q/k/v bias" : "");
    int32_t n_full = 0;
    for (int32_t l = c->window_first_layer; l < c->n_layers; l++)
        n_full += qr_layer_window(c, l) == 0;
    if (c->window)
        qr_buf_printf(out, ", window %d from layer %d on", c->window, c->window_first_layer);
    if (c->window && n_full)
        qr_buf_printf(out, " but in %d of them", n_full);
    qr_buf_printf(out, "\ncontext       %d tokens, rope %s, theta %g", c->ctx_max, rope_name(&c->rope), c->rope.theta);
    if (c->rope.type != QR_ROPE_DEFAULT)
        qr_buf_printf(out, ", factor %g", c->rope.factor);
    if (qr_model_ctx_limit(c) > c->ctx_max)
        qr_buf_printf(out, " (up to %d on request)", qr_model_ctx_limit(c));
    qr_buf_printf(out, "\nhead          %s\n", c->tied_head ? "tied to the embedding" : "of its own");
}

static void text_tensors(struct qr_buf *out, const struct qr_tensor_files *st)
{
    qr_buf_printf(out, "tensors       %d\n", qr_tensor_files_count(st));
    qr_buf_printf(out, "  %12s %12s  %-8s %-18s %s\n", "offset", "bytes", "type", "shape", "name");
    for (int32_t i = 0, shard = -1; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        char shape[160];
        if (t->shard != shard) {
            shard = t->shard;
            qr_buf_printf(out, "  %s: %" PRIu64 " bytes\n", qr_tensor_files_shard_name(st, shard), qr_tensor_files_shard_bytes(st, shard));
        }
        qr_buf_printf(out, "  %12" PRIu64 " %12" PRIu64 "  %-8s %-18s %s\n", t->offset, t->n_bytes, t->type->name,
                      qr_shape_text(shape, sizeof shape, t->shape, t->n_dims), t->name);
    }
}

static void text_memory(struct qr_buf *out, const struct report *r)
{
    qr_buf_printf(out, "memory        %.1f MiB of weights as %s; with --quantize", (double)r->weight_bytes[r->compute] / 0x1p20, qr_dtype_name(r->compute));
    const char *before = " ";
    for (int t = QR_Q8; t <= QR_W4_G128; t++, before = ", ")
        qr_buf_printf(out, "%s%s %.1f", before, qr_dtype_name((enum qr_dtype)t), (double)r->weight_bytes[t] / 0x1p20);
    qr_buf_put_str(out, " MiB\n");
}

static void text_report(struct qr_buf *out, const struct report *r)
{
    qr_buf_printf(out, "path          %s\n", r->path);
    if (r->has_config)
        text_config(out, &r->config);
    if (r->files) {
        qr_buf_printf(out, "weights       %" PRIu64 " parameters, %" PRIu64 " bytes, %d file%s\n", r->n_parameters, r->n_bytes,
                      qr_tensor_files_n_shards(r->files), qr_tensor_files_n_shards(r->files) == 1 ? "" : "s");
        text_tensors(out, r->files);
    }
    if (r->n_unused)
        qr_buf_printf(out, "unused        %d tensors, the first is %s\n", r->n_unused, r->first_unused);
    for (int32_t i = 0; i < r->n_problems; i++)
        qr_buf_printf(out, "problem       %s\n", r->problem[i].msg);
    if (r->n_problems == 0 && r->is_model)
        text_memory(out, r);
    if (r->n_problems)
        qr_buf_put_str(out, "verdict       quire would not run it\n");
    else if (r->is_model)
        qr_buf_printf(out, "verdict       quire runs it, computing in %s (nothing is lost)\n", qr_dtype_name(r->compute));
    else
        qr_buf_put_str(out, "verdict       the file is sound; a model also needs a config.json beside it\n");
}

/* ---- JSON ---- */

static void json_str(struct qr_buf *out, const char *key, const char *value)
{
    qr_buf_printf(out, "\"%s\":", key);
    qr_json_put_str(out, value, strlen(value));
}

static void json_config(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_put_str(out, ",\"config\":");
    qr_hf_config_write(out, c);
    out->len--; /* its line feed */
    qr_buf_printf(out, ",\"ctx_limit\":%d", qr_model_ctx_limit(c));
}

static void json_tensors(struct qr_buf *out, const struct qr_tensor_files *st)
{
    qr_buf_put_str(out, ",\"files\":[");
    for (int32_t i = 0; i < qr_tensor_files_n_shards(st); i++) {
        qr_buf_put_str(out, i ? ",{" : "{");
        json_str(out, "name", qr_tensor_files_shard_name(st, i));
        qr_buf_printf(out, ",\"bytes\":%" PRIu64 "}", qr_tensor_files_shard_bytes(st, i));
    }
    qr_buf_put_str(out, "],\"tensors\":[");
    for (int32_t i = 0; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        char shape[160];
        qr_buf_put_str(out, i ? ",{" : "{");
        json_str(out, "name", t->name);
        qr_buf_printf(out, ",\"dtype\":\"%s\",\"shape\":%s,\"file\":%d,\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", t->type->name,
                      qr_shape_text(shape, sizeof shape, t->shape, t->n_dims), t->shard, t->offset, t->n_bytes);
    }
    qr_buf_put_str(out, "]");
}

static void json_memory(struct qr_buf *out, const struct report *r)
{
    qr_buf_printf(out, ",\"compute\":\"%s\",\"weight_bytes\":{\"%s\":%zu", qr_dtype_name(r->compute), qr_dtype_name(r->compute), r->weight_bytes[r->compute]);
    for (int t = QR_Q8; t <= QR_W4_G128; t++)
        qr_buf_printf(out, ",\"%s\":%zu", qr_dtype_name((enum qr_dtype)t), r->weight_bytes[t]);
    qr_buf_put_byte(out, '}');
}

static void json_report(struct qr_buf *out, const struct report *r)
{
    qr_buf_put_byte(out, '{');
    json_str(out, "path", r->path);
    if (r->has_config)
        json_config(out, &r->config);
    if (r->files) {
        json_tensors(out, r->files);
        qr_buf_printf(out, ",\"parameters\":%" PRIu64 ",\"bytes\":%" PRIu64, r->n_parameters, r->n_bytes);
    }
    qr_buf_printf(out, ",\"unused_tensors\":%d,\"problems\":[", r->n_unused);
    for (int32_t i = 0; i < r->n_problems; i++) {
        if (i)
            qr_buf_put_byte(out, ',');
        qr_json_put_str(out, r->problem[i].msg, strlen(r->problem[i].msg));
    }
    qr_buf_printf(out, "],\"runs\":%s", r->n_problems ? "false" : r->is_model ? "true" : "null");
    if (r->n_problems == 0 && r->is_model)
        json_memory(out, r);
    qr_buf_put_str(out, "}\n");
}

int qr_model_check(struct qr_buf *out, const char *path, bool json, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    struct report r = {.path = path};
    examine(&r);
    if (json)
        json_report(out, &r);
    else
        text_report(out, &r);
    qr_tensor_files_close(r.files);
    if (r.n_problems == 0)
        return 0;
    *err = r.problem[0];
    return err->code;
}
