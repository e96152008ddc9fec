/* text.c - the report as a screen of 80 columns. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/check/report.h"
#include "loader/config/hf_config.h"

#define COLUMNS 80
#define LABEL "%-14s"
#define TYPES_MAX 40

/* A label and a text of words, broken before the last column; what it is broken into stands under its beginning. */
static void put_words(struct qr_buf *out, const char *label, const char *text)
{
    const size_t room = COLUMNS - 14;
    for (size_t n = strlen(text); n > 0 || label[0]; n = strlen(text)) {
        size_t cut = n;
        for (cut = n > room ? room : n; n > room && cut > 0 && text[cut] != ' ';)
            cut--;
        if (cut == 0) /* a word longer than a line */
            cut = strcspn(text, " ");
        qr_buf_printf(out, LABEL "%.*s\n", label, (int)cut, text);
        label = "";
        text += cut;
        text += strspn(text, " ");
    }
}

static void put_line(struct qr_buf *out, const char *label, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void put_line(struct qr_buf *out, const char *label, const char *fmt, ...)
{
    char text[1400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    put_words(out, label, text);
}

/* ---- configuration ---- */

static const char *rope_name(const struct qr_rope_config *r)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
    return names[r->type];
}

static void put_context(struct qr_buf *out, const struct qr_model_config *c)
{
    char more[160] = "";
    if (c->n_positions > 0) {
        put_line(out, "context", "%d tokens, a table of %d positions", c->ctx_max, c->n_positions);
        return;
    }
    if (c->rope.type != QR_ROPE_DEFAULT)
        snprintf(more, sizeof more, ", factor %g", c->rope.factor);
    if (c->local_theta > 0)
        snprintf(more + strlen(more), sizeof more - strlen(more), "; %g in a window", c->local_theta);
    if (qr_model_ctx_limit(c) > qr_model_ctx_usual(c))
        snprintf(more + strlen(more), sizeof more - strlen(more), " (up to %d on request)", qr_model_ctx_limit(c));
    put_line(out, "context", "%d tokens, rope %s, theta %g%s", qr_model_ctx_usual(c), rope_name(&c->rope), c->rope.theta, more);
}

static void put_config(struct qr_buf *out, const struct qr_model_config *c)
{
    char more[160] = "";
    int32_t n_full = 0, n_dense = 0;
    put_line(out, "architecture", "%s", c->arch_name);
    put_line(out, "shape", "%d layers, width %d, feed-forward %d, vocabulary %d", c->n_layers, c->n_embd, c->n_ffn, c->n_vocab);
    for (int32_t l = 0; l < c->n_layers; l++)
        n_dense += !qr_layer_has_experts(c, l);
    if (c->moe.n_experts && n_dense)
        snprintf(more, sizeof more, "; none in %d of %d layers", n_dense, c->n_layers);
    if (c->moe.n_experts && c->moe.n_ffn_shared)
        put_line(out, "experts", "%d of %d, a token goes through %d and a shared one of %d%s", c->moe.n_experts, c->moe.n_ffn, c->moe.n_used,
                 c->moe.n_ffn_shared, more);
    else if (c->moe.n_experts)
        put_line(out, "experts", "%d of %d, a token goes through %d%s", c->moe.n_experts, c->moe.n_ffn, c->moe.n_used, more);
    more[0] = 0;
    for (int32_t l = c->window_first_layer; l < c->n_layers; l++)
        n_full += qr_layer_window(c, l) == 0;
    if (c->window && n_full)
        snprintf(more, sizeof more, ", window %d from layer %d on but in %d of them", c->window, c->window_first_layer, n_full);
    else if (c->window)
        snprintf(more, sizeof more, ", window %d from layer %d on", c->window, c->window_first_layer);
    put_line(out, "attention", "%d query heads, %d kv heads of %d%s%s%s", c->n_heads, c->n_kv_heads, c->head_dim, c->qk_norm ? ", q/k norm" : "",
             c->qkv_bias ? ", q/k/v bias" : "", more);
    if (c->layer_norm || c->post_norms)
        put_line(out, "norms", "%s", c->layer_norm ? "LayerNorm, with biases" : "before and behind each half of a layer");
    if (c->attn_softcap > 0 || c->logits_softcap > 0)
        put_line(out, "caps", "scores %g, logits %g (0: none)", (double)c->attn_softcap, (double)c->logits_softcap);
    put_context(out, c);
    if (c->headless)
        put_line(out, "head", "none: %s, no text", qr_headless_does(c));
    else
        put_line(out, "head", "%s", c->tied_head ? "tied to the embedding" : "of its own");
}

/* ---- tensors ---- */

/* How many tensors of each type, the most bytes first. */
static void put_types(struct qr_buf *out, const struct qr_tensor_files *st)
{
    struct {
        const char *name;
        int32_t n;
        uint64_t n_bytes;
    } type[TYPES_MAX] = {0}, t;
    int32_t n_types = 0;
    char text[1000] = "", size[24];
    size_t len = 0;
    for (int32_t i = 0, k; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *s = qr_tensor_files_at(st, i);
        for (k = 0; k < n_types && strcmp(type[k].name, s->type->name) != 0; k++)
            ;
        QR_ASSERT(k < TYPES_MAX);
        n_types += k == n_types;
        type[k].name = s->type->name;
        type[k].n++;
        type[k].n_bytes += s->n_bytes;
    }
    for (int32_t i = 1; i < n_types; i++)
        for (int32_t k = i; k > 0 && type[k].n_bytes > type[k - 1].n_bytes; k--) {
            t = type[k];
            type[k] = type[k - 1];
            type[k - 1] = t;
        }
    for (int32_t i = 0; i < n_types && len < sizeof text; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d %s (%s)", i ? ", " : "", type[i].n, type[i].name, qr_size_text(size, type[i].n_bytes));
    put_line(out, "types", "%s", text[0] ? text : "none");
}

static void put_files(struct qr_buf *out, const struct qr_check_report *r)
{
    const struct qr_tensor_files *st = r->files;
    for (int32_t i = 0; i < qr_tensor_files_n_shards(st); i++) {
        char size[24], hash[40] = "";
        if (r->file_hash)
            snprintf(hash, sizeof hash, "  xxh3 %016" PRIx64, r->file_hash[i]);
        qr_buf_printf(out, LABEL "%s  %s%s\n", i ? "" : "files", qr_tensor_files_shard_name(st, i),
                      qr_size_text(size, qr_tensor_files_shard_bytes(st, i)), hash);
    }
}

/* Everything of each tensor. */
static void put_each_tensor(struct qr_buf *out, const struct qr_check_report *r)
{
    const struct qr_tensor_files *st = r->files;
    qr_buf_printf(out, LABEL "%d\n", "tensors", qr_tensor_files_count(st));
    qr_buf_printf(out, "  %12s %11s  %-7s %-15s %s%s\n", "offset", "bytes", "type", "shape", r->tensor_hash ? "xxh3             " : "", "name");
    for (int32_t i = 0, shard = -1; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        char shape[160], hash[24] = "";
        if (t->shard != shard && qr_tensor_files_n_shards(st) > 1)
            qr_buf_printf(out, "  %s:\n", qr_tensor_files_shard_name(st, t->shard));
        shard = t->shard;
        if (r->tensor_hash)
            snprintf(hash, sizeof hash, "%016" PRIx64 " ", r->tensor_hash[i]);
        qr_buf_printf(out, "  %12" PRIu64 " %11" PRIu64 "  %-7s %-15s %s%s\n", t->offset, t->n_bytes, t->type->name,
                      qr_shape_text(shape, sizeof shape, t->shape, t->n_dims), hash, t->name);
    }
}

/* A name with each number between dots as '*'; out has QR_STORED_NAME_MAX bytes. */
static void general_name(char *out, const char *name)
{
    size_t n = 0;
    for (const char *s = name; *s && n < QR_STORED_NAME_MAX - 1;) {
        const size_t digits = strspn(s, "0123456789");
        if (digits > 0 && (s == name || s[-1] == '.') && s[digits] == '.') {
            out[n++] = '*';
            s += digits;
        } else {
            out[n++] = *s++;
        }
    }
    out[n] = 0;
}

/* Tensors of one name (but for numbers), type and shape are one kind. */
struct kind {
    char name[QR_STORED_NAME_MAX];
    const struct qr_stored_tensor *first;
    int32_t n;
};

static bool is_of(const struct kind *k, const char *name, const struct qr_stored_tensor *t)
{
    return k->first->type == t->type && k->first->n_dims == t->n_dims && strcmp(k->name, name) == 0 &&
           memcmp(k->first->shape, t->shape, (size_t)t->n_dims * sizeof *t->shape) == 0;
}

#define KINDS_MAX 200

static int32_t find_kinds(struct kind *kind, const struct qr_tensor_files *st, int32_t *n_left)
{
    char name[QR_STORED_NAME_MAX];
    int32_t n = 0, k;
    *n_left = 0;
    for (int32_t i = 0; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        general_name(name, t->name);
        for (k = 0; k < n && !is_of(&kind[k], name, t); k++)
            ;
        if (k == KINDS_MAX) {
            ++*n_left;
            continue;
        }
        if (k == n) {
            memcpy(kind[n].name, name, sizeof name);
            kind[n++].first = t;
        }
        kind[k].n++;
    }
    return n;
}

/* One line for each kind; those of layers under the beginning that their names share. */
static void put_kinds(struct qr_buf *out, const struct qr_tensor_files *st)
{
    struct kind *kind = qr_alloc(KINDS_MAX, sizeof *kind);
    int32_t n_left;
    const int32_t n = find_kinds(kind, st, &n_left);
    const char *group = "";
    size_t group_len = 0;
    put_line(out, "tensors", "%d of %d kinds (--all: each with its place)", qr_tensor_files_count(st), n);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n; i++) {
            const char *star = strstr(kind[i].name, "*.");
            const size_t len = star ? (size_t)(star + 2 - kind[i].name) : 0;
            char shape[160], size[24], times[16] = "";
            if ((len > 0) != (pass == 1))
                continue;
            if (len > 0 && (len != group_len || memcmp(group, kind[i].name, len) != 0)) {
                group = kind[i].name;
                group_len = len;
                qr_buf_printf(out, "  %.*s\n", (int)len - 1, group);
            }
            if (kind[i].n > 1)
                snprintf(times, sizeof times, "%d x", kind[i].n);
            qr_buf_printf(out, "%7s %-35s %-7s %-15s %10s\n", times, kind[i].name + len, kind[i].first->type->name,
                          qr_shape_text(shape, sizeof shape, kind[i].first->shape, kind[i].first->n_dims), qr_size_text(size, kind[i].first->n_bytes));
        }
    if (n_left)
        qr_buf_printf(out, "        and %d others\n", n_left);
    qr_free(kind);
}

/* ---- GGUF ---- */

static void put_value(struct qr_buf *out, const struct qr_gguf_key *k)
{
    const uint8_t *at = k->data;
    struct qr_gguf_text t;
    switch (k->kind) {
    case QR_GGUF_ARRAY:
        qr_buf_printf(out, "%" PRIu64 " values", k->count);
        break;
    case QR_GGUF_BOOL:
        qr_buf_put_str(out, *at ? "true" : "false");
        break;
    case QR_GGUF_STRING:
        t = qr_gguf_next_text(&at);
        qr_buf_put_byte(out, '"');
        for (uint64_t i = 0; i < t.n && i < 40; i++)
            qr_buf_put_byte(out, (uint8_t)t.at[i] < 0x20 || (uint8_t)t.at[i] > 0x7e ? '?' : t.at[i]);
        qr_buf_put_str(out, t.n > 40 ? "\"..." : "\"");
        break;
    default:
        qr_buf_printf(out, "%.9g", qr_gguf_key_number(k));
    }
}

static void put_gguf(struct qr_buf *out, const struct qr_check_report *r)
{
    const struct qr_gguf *g = qr_source_gguf(r->source);
    put_line(out, "format", "GGUF version %d, %d keys%s", qr_gguf_version(g), qr_gguf_n_keys(g), r->options->all ? "" : " (--all: their values)");
    for (int32_t i = 0; i < qr_gguf_n_keys(g) && r->options->all; i++) {
        const struct qr_gguf_key *k = qr_gguf_key_at(g, i);
        qr_buf_put_str(out, "  ");
        for (uint64_t n = 0; n < k->name.n && n < 64; n++)
            qr_buf_put_byte(out, (uint8_t)k->name.at[n] < 0x20 || (uint8_t)k->name.at[n] > 0x7e ? '?' : k->name.at[n]);
        qr_buf_put_str(out, " = ");
        put_value(out, k);
        qr_buf_put_byte(out, '\n');
    }
}

/* ---- the end of it ---- */

static void put_adapter(struct qr_buf *out, const struct qr_check_report *r)
{
    char scale[64], more[64] = "", what[300];
    if (!r->adapter)
        return;
    const struct qr_lora_about about = qr_lora_file_about(r->adapter);
    snprintf(scale, sizeof scale, about.arch && about.alpha == 0 ? "no alpha: as they are" : "alpha %g over the %srank", about.alpha,
             about.rslora ? "root of the " : "");
    if (about.n_patterns)
        snprintf(more, sizeof more, ", another for %d name%s of matrices", about.n_patterns, about.n_patterns == 1 ? "" : "s");
    if (about.arch)
        snprintf(what, sizeof what, "a model of architecture \"%s\"", about.arch);
    else if (about.base[0])
        snprintf(what, sizeof what, "the model %.200s", about.base);
    else
        snprintf(what, sizeof what, "a model that it does not name");
    put_line(out, "adapter", "LoRA for %s: %d matrices, ranks %d to %d, %s%s", what, about.n_matrices, about.rank_min, about.rank_max, scale, more);
}

static void put_other(struct qr_buf *out, const struct qr_other_files *o)
{
    char text[300];
    if (o->n[QR_OTHER_PICKLE])
        put_line(out, "never read", "%s: pickle, which can run code when it is read",
                 qr_other_files_text(text, sizeof text, o, QR_OTHER_PICKLE));
    if (o->n[QR_OTHER_GGUF])
        put_line(out, "not read", "%s: config.json is beside it; name the file to run it", qr_other_files_text(text, sizeof text, o, QR_OTHER_GGUF));
    if (o->n[QR_OTHER_CODE] || o->auto_map)
        put_line(out, "never run", "%s%s%s: code of the model's own", qr_other_files_text(text, sizeof text, o, QR_OTHER_CODE),
                 o->n[QR_OTHER_CODE] && o->auto_map ? ", and " : "", o->auto_map ? "what auto_map in config.json names" : "");
}

static void put_tokenizer(struct qr_buf *out, const struct qr_check_report *r)
{
    const struct qr_check_tokenizer *t = &r->options->tokenizer;
    if (!r->is_model || t->n_ids == 0)
        return;
    put_line(out, "tokenizer", "%d ids; %s", t->n_ids, t->err.code ? "a chat template that cannot be used" : t->chat ? "a chat template"
                                                                   : "no chat template: completions only");
    if (r->has_config && t->n_ids > r->config.n_vocab)
        put_line(out, "note", "the model knows %d ids: a request that has one of the others is refused", r->config.n_vocab);
}

static void put_memory(struct qr_buf *out, const struct qr_check_report *r)
{
    char text[1000], size[24], token[24];
    size_t len = (size_t)snprintf(text, sizeof text, "weights %s as %s and %s for each token kept; weights with --quantize",
                                  qr_size_text(size, r->weight_bytes[r->compute]), qr_dtype_name(r->compute), qr_size_text(token, r->kv_token_bytes));
    for (int i = 0; i < QR_COUNT(qr_check_formats) && len < sizeof text; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s %s %.1f", i == 0 ? "" : ",", qr_check_formats[i].name,
                                (double)r->weight_bytes[qr_check_formats[i].type] / 0x1p20);
    if (len < sizeof text)
        snprintf(text + len, sizeof text - len, " MiB (quire plan: all of it)");
    put_words(out, "memory", text);
}

/* A file of tensors alone. */
static void put_file_verdict(struct qr_buf *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + (slash == path) : 1;
    const char *dir = slash ? path : ".";
    char beside[QR_PATH_MAX];
    if (snprintf(beside, sizeof beside, "%.*s/config.json", n, dir) < (int)sizeof beside && access(beside, F_OK) == 0)
        put_line(out, "verdict", "the file is sound; with the config.json beside it: quire check %.*s", n, dir);
    else
        put_line(out, "verdict", "the file is sound; a model also needs a config.json beside it");
}

static void put_verdict(struct qr_buf *out, const struct qr_check_report *r)
{
    for (int32_t i = 0; i < r->n_problems; i++)
        qr_buf_printf(out, LABEL "%s\n", "problem", r->problem[i].msg); /* one line, as the log has it */
    if (r->n_problems == 0 && r->is_model)
        put_memory(out, r);
    if (r->n_problems && r->generates)
        put_line(out, "verdict", "quire generates with it, but would not serve it");
    else if (r->n_problems)
        put_line(out, "verdict", r->is_adapter ? "quire would not take it" : "quire would not run it");
    else if (r->is_adapter)
        put_line(out, "verdict", "the %s is sound; with its base model: --lora NAME=%s", r->source ? "file" : "adapter",
                 r->source ? qr_source_gguf_path(r->source) : r->path);
    else if (r->is_model)
        put_line(out, "verdict", "quire runs it, computing in %s (nothing is lost), on this machine with the kernels for %s",
                 r->compute == QR_CODED ? "the codes of the file" : qr_dtype_name(r->compute),
                 r->kernels);
    else
        put_file_verdict(out, r->path);
}

void qr_check_text(struct qr_buf *out, const struct qr_check_report *r)
{
    QR_ASSERT(out != NULL && r != NULL);
    qr_buf_printf(out, LABEL "%s\n", "path", r->path);
    if (r->source && qr_source_gguf(r->source))
        put_gguf(out, r);
    if (r->has_config)
        put_config(out, &r->config);
    if (qr_scorer_name(&r->scorer) || r->scorer.note[0])
        put_words(out, "scores", r->scorer.note[0] ? r->scorer.note : qr_scorer_name(&r->scorer));
    put_adapter(out, r);
    put_tokenizer(out, r);
    if (r->files) {
        char size[24];
        put_line(out, "weights", "%" PRIu64 " parameters, %" PRIu64 " bytes (%s), %d file%s", r->n_parameters, r->n_bytes, qr_size_text(size, r->n_bytes),
                 qr_tensor_files_n_shards(r->files), qr_tensor_files_n_shards(r->files) == 1 ? "" : "s");
        if (r->has_config && r->config.quant.method != QR_QUANT_NONE)
            put_line(out, "stored as", "%s", qr_quant_method_name(r->config.quant.method));
        put_types(out, r->files);
        put_files(out, r);
        if (r->options->all)
            put_each_tensor(out, r);
        else
            put_kinds(out, r->files);
    }
    if (r->n_unused)
        put_line(out, "unused", "%d tensors, the first is %s", r->n_unused, r->first_unused);
    put_other(out, &r->other);
    put_verdict(out, r);
}
