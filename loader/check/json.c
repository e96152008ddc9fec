/* json.c - the report as one JSON object. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "loader/check/report.h"
#include "loader/config/hf_config.h"

static void put_str(struct qr_buf *out, const char *key, const char *value)
{
    qr_buf_printf(out, "\"%s\":", key);
    qr_json_put_str(out, value, strlen(value));
}

static void put_config(struct qr_buf *out, const struct qr_model_config *c)
{
    qr_buf_put_str(out, ",\"config\":");
    qr_hf_config_write(out, c);
    out->len--; /* its line feed */
    qr_buf_printf(out, ",\"ctx_limit\":%d", qr_model_ctx_limit(c));
}

static void put_hash(struct qr_buf *out, const uint64_t *hash, int32_t i)
{
    if (hash)
        qr_buf_printf(out, ",\"xxh3\":\"%016" PRIx64 "\"", hash[i]);
}

static void put_tensors(struct qr_buf *out, const struct qr_check_report *r)
{
    const struct qr_tensor_files *st = r->files;
    qr_buf_put_str(out, ",\"files\":[");
    for (int32_t i = 0; i < qr_tensor_files_n_shards(st); i++) {
        qr_buf_put_str(out, i ? ",{" : "{");
        put_str(out, "name", qr_tensor_files_shard_name(st, i));
        qr_buf_printf(out, ",\"bytes\":%" PRIu64, qr_tensor_files_shard_bytes(st, i));
        put_hash(out, r->file_hash, i);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_str(out, "],\"tensors\":[");
    for (int32_t i = 0; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        char shape[160];
        qr_buf_put_str(out, i ? ",{" : "{");
        put_str(out, "name", t->name);
        qr_buf_printf(out, ",\"dtype\":\"%s\",\"shape\":%s,\"file\":%d,\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64, t->type->name,
                      qr_shape_text(shape, sizeof shape, t->shape, t->n_dims), t->shard, t->offset, t->n_bytes);
        put_hash(out, r->tensor_hash, i);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_str(out, "]");
}

static void put_memory(struct qr_buf *out, const struct qr_check_report *r)
{
    qr_buf_printf(out, ",\"compute\":\"%s\",\"kernels\":\"%s\",\"kv_token_bytes\":%zu,\"weight_bytes\":{\"%s\":%zu", qr_dtype_name(r->compute), r->kernels,
                  r->kv_token_bytes, qr_dtype_name(r->compute), r->weight_bytes[r->compute]);
    for (int i = 0; i < QR_COUNT(qr_check_formats); i++)
        qr_buf_printf(out, ",\"%s\":%zu", qr_check_formats[i].name, r->weight_bytes[qr_check_formats[i].type]);
    qr_buf_put_byte(out, '}');
}

/* Names of one kind of files that nothing uses. */
static void put_names(struct qr_buf *out, const char *key, const struct qr_other_files *o, enum qr_other kind)
{
    qr_buf_printf(out, ",\"%s\":{\"n\":%d,\"first\":[", key, o->n[kind]);
    for (int32_t i = 0; i < o->n[kind] && i < QR_OTHER_SHOWN; i++) {
        qr_buf_put_str(out, i ? "," : "");
        qr_json_put_str(out, o->name[kind][i], strlen(o->name[kind][i]));
    }
    qr_buf_put_str(out, "]}");
}

static void put_adapter(struct qr_buf *out, const struct qr_lora_file *f)
{
    const struct qr_lora_about about = qr_lora_file_about(f);
    qr_buf_put_str(out, ",\"adapter\":{");
    put_str(out, about.arch ? "architecture" : "base_model", about.arch ? about.arch : about.base);
    qr_buf_printf(out, ",\"alpha\":%.9g,\"matrices\":%d,\"rank_min\":%d,\"rank_max\":%d", about.alpha, about.n_matrices, about.rank_min, about.rank_max);
    if (!about.arch)
        qr_buf_printf(out, ",\"rslora\":%s,\"alpha_patterns\":%d", about.rslora ? "true" : "false", about.n_patterns);
    qr_buf_put_byte(out, '}');
}

void qr_check_json(struct qr_buf *out, const struct qr_check_report *r)
{
    QR_ASSERT(out != NULL && r != NULL);
    const struct qr_check_tokenizer *t = &r->options->tokenizer;
    qr_buf_put_byte(out, '{');
    put_str(out, "path", r->path);
    if (r->has_config)
        put_config(out, &r->config);
    if (r->has_config) {
        static const char *const kind[] = {"null", "\"classifier\"", "\"yes-no\""};
        qr_buf_printf(out, ",\"scorer\":%s", kind[r->scorer.kind]);
    }
    if (r->adapter)
        put_adapter(out, r->adapter);
    if (r->is_model && t->n_ids > 0)
        qr_buf_printf(out, ",\"tokenizer\":{\"ids\":%d,\"chat_template\":%s}", t->n_ids, t->chat ? "true" : "false");
    if (r->files) {
        put_tensors(out, r);
        qr_buf_printf(out, ",\"parameters\":%" PRIu64 ",\"bytes\":%" PRIu64, r->n_parameters, r->n_bytes);
    }
    qr_buf_printf(out, ",\"unused_tensors\":%d", r->n_unused);
    put_names(out, "never_read", &r->other, QR_OTHER_PICKLE);
    put_names(out, "never_run", &r->other, QR_OTHER_CODE);
    put_names(out, "not_read", &r->other, QR_OTHER_GGUF);
    qr_buf_printf(out, ",\"auto_map\":%s,\"problems\":[", r->other.auto_map ? "true" : "false");
    for (int32_t i = 0; i < r->n_problems; i++) {
        if (i)
            qr_buf_put_byte(out, ',');
        qr_json_put_str(out, r->problem[i].msg, strlen(r->problem[i].msg));
    }
    qr_buf_printf(out, "],\"runs\":%s", r->n_problems && !r->generates ? "false" : r->is_model ? "true" : "null");
    if (r->is_model)
        qr_buf_printf(out, ",\"serves\":%s", r->n_problems ? "false" : "true");
    if (r->n_problems == 0 && r->is_model)
        put_memory(out, r);
    qr_buf_put_str(out, "}\n");
}
