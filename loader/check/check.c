/* check.c - `quire check`: every reader of a model is run over its files, and what each found is collected.
 *
 * A problem does not end the check: readers that do not depend on what failed still run, and two readers that say the same
 * are one problem. Hashes are taken in one pass, of which a few MiB are mapped at a time.
 * Guarantee: nothing is computed or packed; a model without problems opens on this machine.
 * Thread: the caller's. */
#include "loader/check/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/files/gguf_file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/batch.h"
#include "loader/check/report.h"
#include "loader/config/hf_config.h"
#include "loader/stores/tensor_files_parts.h"
#include "loader/weights.h"

#define BLOCK_TOKENS 16
#define PIECE_BYTES ((uint64_t)4 << 20) /* hashed at a time */
#define PAGE_BYTES 4096

static struct qr_err *slot(struct qr_check_report *r)
{
    QR_ASSERT(r->n_problems < QR_CHECK_PROBLEMS_MAX);
    return &r->problem[r->n_problems];
}

/* What two readers of one file have found is one problem. */
static void note(struct qr_check_report *r, int rc)
{
    bool said = false;
    for (int32_t i = 0; rc && i < r->n_problems && !said; i++)
        said = strcmp(r->problem[i].msg, r->problem[r->n_problems].msg) == 0;
    r->n_problems += rc != 0 && !said;
}

static int check_backend(struct qr_check_report *r, struct qr_err *err)
{
    struct qr_backend *be;
    const struct qr_backend_options o = {.device = "cpu", .n_threads = 1, .step_rows_max = 1};
    const struct qr_model_config *c = &r->config;
    int rc = qr_backend_open(&be, &o, err);
    if (rc)
        return rc;
    struct qr_share share;
    qr_share_whole(&share, c);
    r->compute = qr_weights_stored_dtype(r->files, &share, be->k);
    const enum qr_dtype kv = r->compute == QR_F32 ? QR_F32 : QR_BF16;
    rc = qr_backend_supports(be, r->compute, qr_weights_inputs_max(c), kv, c->head_dim, BLOCK_TOKENS, err);
    r->weight_bytes[r->compute] = qr_weights_bytes_as(r->files, &share, be->k, r->compute);
    for (int i = 0; i < QR_COUNT(qr_check_formats); i++)
        r->weight_bytes[qr_check_formats[i].type] = qr_weights_bytes_as(r->files, &share, be->k, qr_check_formats[i].type);
    const struct qr_kv_view token = {.dtype = kv, .n_layers = c->n_layers, .n_kv_heads = c->n_kv_heads, .block_tokens = 1, .head_dim = c->head_dim};
    r->kv_token_bytes = qr_kv_block_bytes(&token);
    snprintf(r->kernels, sizeof r->kernels, "%s", be->k->name);
    qr_backend_close(be);
    return rc;
}

static void sum_up(struct qr_check_report *r)
{
    for (int32_t i = 0; i < qr_tensor_files_count(r->files); i++)
        r->n_bytes += qr_tensor_files_at(r->files, i)->n_bytes;
    r->n_parameters = qr_tensor_files_n_parameters(r->files);
}

/* Bytes [at, end) of a file become part of its hash and of a tensor's (NULL: not of that). No more than a piece of the file is mapped at a time: the page in
 * which one ends is given back with the next. */
static void sweep(const struct qr_map_file *f, uint64_t at, uint64_t end, struct qr_hash_stream *file, struct qr_hash_stream *tensor)
{
    for (uint64_t n; at < end; at += n) {
        const uint64_t in_page = at % PAGE_BYTES;
        n = end - at < PIECE_BYTES ? end - at : PIECE_BYTES;
        (void)qr_map_file_populate(f, (size_t)at, (size_t)n);
        if (file)
            qr_hash_stream_put(file, f->data + at, (size_t)n);
        if (tensor)
            qr_hash_stream_put(tensor, f->data + at, (size_t)n);
        qr_map_file_drop(f, (size_t)(at - in_page), (size_t)(n + in_page));
    }
}

/* Reads everything once, in the order of the files; a tensor that does not lie behind the one before it, a second time. */
static void hash_all(struct qr_check_report *r)
{
    const struct qr_tensor_files *st = r->files;
    const int32_t n = qr_tensor_files_count(st);
    struct qr_hash_stream *file = qr_hash_stream_new(), *tensor = qr_hash_stream_new();
    QR_ASSERT(!st->borrowed);
    r->tensor_hash = qr_alloc((size_t)n + 1, sizeof *r->tensor_hash);
    r->file_hash = qr_alloc((size_t)st->n_shards + 1, sizeof *r->file_hash);
    for (int32_t s = 0, i = 0; s < st->n_shards; s++) {
        const struct qr_map_file *f = &st->shard[s].map;
        uint64_t at = 0;
        for (; i < n && qr_tensor_files_at(st, i)->shard == s; i++) {
            const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
            if (t->offset >= at) {
                sweep(f, at, t->offset, file, NULL);
                sweep(f, t->offset, t->offset + t->n_bytes, file, tensor);
                at = t->offset + t->n_bytes;
            } else {
                sweep(f, t->offset, t->offset + t->n_bytes, NULL, tensor);
            }
            r->tensor_hash[i] = qr_hash_stream_take(tensor);
        }
        sweep(f, at, f->n_bytes, file, NULL);
        r->file_hash[s] = qr_hash_stream_take(file);
    }
    qr_hash_stream_free(tensor);
    qr_hash_stream_free(file);
}

static void check_tokenizer(struct qr_check_report *r)
{
    const struct qr_check_tokenizer *t = &r->options->tokenizer;
    if (!r->is_model || !t->err.code)
        return;
    *slot(r) = t->err;
    note(r, t->err.code);
}

/* A directory with an adapter's settings and nothing that a model would be read from. */
static bool is_adapter_directory(const char *dir)
{
    char path[QR_PATH_MAX], gguf[QR_GGUF_PATH_MAX];
    struct qr_err err;
    const bool adapter = qr_path_join(path, dir, QR_LORA_CONFIG, &err) == 0 && access(path, F_OK) == 0;
    return adapter && qr_path_join(path, dir, "config.json", &err) == 0 && access(path, F_OK) != 0 && !qr_gguf_find_file(gguf, dir);
}

/* Its tensors are explained also where its settings are not what is read here. */
static void examine_adapter(struct qr_check_report *r)
{
    char path[QR_PATH_MAX];
    int rc = qr_path_join(path, r->path, QR_LORA_WEIGHTS, slot(r));
    rc = rc ? rc : qr_safetensors_open(&r->files, path, slot(r));
    note(r, rc);
    rc = qr_lora_file_open(&r->adapter, r->path, NULL, SIZE_MAX, slot(r));
    note(r, rc ? rc : qr_lora_file_check_alone(r->adapter, slot(r)));
    if (r->files)
        sum_up(r);
    if (r->files && r->options->hash)
        hash_all(r);
}

static void examine(struct qr_check_report *r)
{
    struct stat st;
    qr_other_files_find(&r->other, r->path);
    r->is_adapter = is_adapter_directory(r->path);
    if (r->is_adapter) {
        examine_adapter(r);
        return;
    }
    int rc = qr_source_find(r->path, slot(r));
    rc = rc ? rc : qr_source_explain(r->path, slot(r));
    rc = rc ? rc : qr_source_open(&r->source, r->path, slot(r));
    note(r, rc);
    if (rc)
        return;
    r->is_adapter = qr_source_gguf(r->source) && qr_gguf_is_adapter(qr_source_gguf(r->source));
    r->is_model = !r->is_adapter && ((stat(r->path, &st) == 0 && S_ISDIR(st.st_mode)) || qr_source_gguf(r->source));
    if (r->is_adapter)
        note(r, qr_lora_file_open(&r->adapter, qr_source_gguf_path(r->source), NULL, SIZE_MAX, slot(r)));
    if (r->is_model) {
        rc = qr_model_config_from(&r->config, r->source, slot(r));
        r->has_config = rc == 0;
        note(r, rc);
    }
    note(r, qr_tensor_files_open_from(&r->files, r->source, r->has_config ? &r->config.quant : NULL, slot(r)));
    if (r->files)
        sum_up(r);
    if (r->files && r->options->hash)
        hash_all(r);
    if (r->has_config && r->files) {
        qr_weights_fit(&r->config, r->files);
        qr_scorer_find(&r->scorer, r->source, false);
        note(r, qr_weights_check(r->files, &r->config, slot(r)));
        r->n_unused = qr_weights_unused(r->files, &r->config, &r->first_unused);
    }
    const int32_t n_before = r->n_problems;
    check_tokenizer(r);
    if (r->has_config && r->files && n_before == 0)
        note(r, check_backend(r, slot(r)));
    r->generates = r->is_model && r->n_problems == (r->options->tokenizer.n_ids > 0 && r->options->tokenizer.err.code);
}

int qr_model_check(struct qr_buf *out, const char *path, const struct qr_check_options *options, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(options != NULL && err != NULL);
    struct qr_check_report r = {.path = path, .options = options};
    examine(&r);
    if (options->json)
        qr_check_json(out, &r);
    else
        qr_check_text(out, &r);
    qr_free(r.tensor_hash);
    qr_free(r.file_hash);
    qr_lora_file_close(r.adapter);
    qr_tensor_files_close(r.files);
    qr_source_unref(r.source);
    if (r.n_problems == 0)
        return 0;
    *err = r.problem[0];
    return err->code;
}
