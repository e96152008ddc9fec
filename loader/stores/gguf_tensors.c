/* gguf_tensors.c - the tensors of a GGUF file under the names that the same model has in safetensors files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/files/gguf_file.h"
#include "base/mem.h"
#include "kernels/kernels.h"
#include "loader/families/family.h"
#include "loader/stores/tensor_files_parts.h"

#define PARTS_MAX 4096
#define BLOCK(type) {#type, 0, true, QR_F32, true, QR_GGUF_T_##type}
#define STORED(type) {#type, 0, false, 0, true, QR_GGUF_T_##type}

static const struct qr_stored_type types[] = {
    {"F32", 32, true, QR_F32, false, QR_GGUF_T_F32}, {"F16", 16, true, QR_F16, false, QR_GGUF_T_F16}, {"BF16", 16, true, QR_BF16, false, QR_GGUF_T_BF16},
    {"F64", 64, false, 0, false, QR_GGUF_T_F64}, {"I8", 8, false, 0, false, QR_GGUF_T_I8}, {"I16", 16, false, 0, false, QR_GGUF_T_I16},
    {"I32", 32, false, 0, false, QR_GGUF_T_I32}, {"I64", 64, false, 0, false, QR_GGUF_T_I64},
    BLOCK(Q4_0), BLOCK(Q4_1), BLOCK(Q5_0), BLOCK(Q5_1), BLOCK(Q8_0), BLOCK(Q2_K), BLOCK(Q3_K), BLOCK(Q4_K), BLOCK(Q5_K), BLOCK(Q6_K), BLOCK(IQ4_NL),
    BLOCK(IQ4_XS), BLOCK(MXFP4),
    STORED(Q8_1), STORED(Q8_K), STORED(IQ2_XXS), STORED(IQ2_XS), STORED(IQ2_S), STORED(IQ3_XXS), STORED(IQ3_S), STORED(IQ1_S), STORED(IQ1_M), STORED(TQ1_0),
    STORED(TQ2_0), STORED(NVFP4), STORED(Q1_0), STORED(Q2_0),
};

/* Names of a file's tensors without "blk.N." and ".weight" or ".bias", and of the same in safetensors files. */
static const struct {
    const char *gguf, *name;
    bool per_layer, q, k; /* q, k: rows in the rotary order of the llama architecture */
} names[] = {
    {"token_embd", "model.embed_tokens", false, false, false},
    {"output_norm", "model.norm", false, false, false},
    {"output", "lm_head", false, false, false},
    {"attn_norm", "input_layernorm", true, false, false},
    {"attn_q", "self_attn.q_proj", true, true, false},
    {"attn_k", "self_attn.k_proj", true, false, true},
    {"attn_v", "self_attn.v_proj", true, false, false},
    {"attn_q_norm", "self_attn.q_norm", true, false, false},
    {"attn_k_norm", "self_attn.k_norm", true, false, false},
    {"attn_output", "self_attn.o_proj", true, false, false},
    {"ffn_norm", "post_attention_layernorm", true, false, false},
    {"post_attention_norm", "post_attention_layernorm", true, false, false},
    {"post_ffw_norm", "post_feedforward_layernorm", true, false, false},
    {"ffn_gate", "mlp.gate_proj", true, false, false},
    {"ffn_up", "mlp.up_proj", true, false, false},
    {"ffn_down", "mlp.down_proj", true, false, false},
};

const struct qr_stored_type *qr_gguf_stored_type(uint32_t gguf)
{
    for (int i = 0; i < QR_COUNT(types); i++)
        if (types[i].gguf == gguf)
            return &types[i];
    QR_ASSERT(false);
    return NULL;
}

/* "blk.3." -> 3; how many characters it has, or 0. */
static int layer_of(const char *name, int *layer)
{
    char *end;
    const long n = strtol(name + 4, &end, 10);
    *layer = (int)n;
    return end > name + 4 && *end == '.' && n >= 0 && n < 1000000 ? (int)(end - name) + 1 : 0;
}

/* "blk.3.attn_q.weight" -> layer 3, stem "attn_q", tail ".weight". False where it is none of such a form. */
static bool split_name(const char *name, int32_t *layer, char stem[64], const char **tail)
{
    int used = 0, n = 0;
    *layer = -1;
    if (strncmp(name, "blk.", 4) == 0 && (used = layer_of(name, &n)) == 0)
        return false;
    if (used > 0)
        *layer = n;
    name += used;
    *tail = strrchr(name, '.');
    if (!*tail || (strcmp(*tail, ".weight") != 0 && strcmp(*tail, ".bias") != 0) || *tail - name >= 64)
        return false;
    memcpy(stem, name, (size_t)(*tail - name));
    stem[*tail - name] = 0;
    return true;
}

/* What is known of the whole file: its family, NULL: none that is known, and its numbers of heads. */
struct mixing {
    const struct qr_family *family;
    int32_t heads, kv_heads;
};

/* `layers` and `name` are of the tables here, a tail is as short. */
static void put_name(char out[QR_STORED_NAME_MAX], const char *layers, int32_t layer, const char *name, const char *tail)
{
    char number[16];
    if (layer >= 0) {
        snprintf(number, sizeof number, "%d.", layer);
        out = stpcpy(stpcpy(out, layers), number);
    }
    stpcpy(stpcpy(out, name), tail);
}

/* Another name than the usual one, in one family; NULL: there is none. */
static const char *own_name(const struct qr_family *f, const char *stem)
{
    for (const struct qr_family_rename *r = f ? f->gguf_names : NULL; r && r->from; r++)
        if (strcmp(r->from, stem) == 0)
            return r->to;
    return NULL;
}

char qr_gguf_tensor_name(char out[QR_STORED_NAME_MAX], const char *name, const struct qr_family *f)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(name != NULL);
    int32_t layer;
    char stem[64], which = 0;
    const char *tail;
    out[0] = 0;
    if (!split_name(name, &layer, stem, &tail))
        return 0;
    for (int i = 0; i < QR_COUNT(names); i++) {
        if (strcmp(names[i].gguf, stem) != 0 || names[i].per_layer != (layer >= 0))
            continue;
        which = names[i].q ? 'q' : names[i].k ? 'k' : 0;
        put_name(out, "model.layers.", layer, names[i].name, tail);
    }
    const char *own = own_name(f, tail - strlen(stem)); /* its tail included, which there is none of then */
    tail = own ? "" : tail;
    own = own ? own : own_name(f, stem);
    if (own)
        put_name(out, f->gguf_layers ? f->gguf_layers : "model.layers.", layer, own, tail);
    return which && f && f->gguf_pairs ? which : 0;
}

/* The name to be found by; "" for tensors that have no counterpart. */
static void translate(char out[QR_STORED_NAME_MAX], struct qr_stored_tensor *t, const struct mixing *mix)
{
    const char which = qr_gguf_tensor_name(out, t->name, mix->family);
    t->heads = which == 'q' ? mix->heads : which == 'k' ? mix->kv_heads : 0;
}

/* "model.layers.3.mlp.experts.%d.gate_proj.weight" for a stack: its layer, and what comes before and behind the number of an expert. */
struct stack {
    int32_t layer;
    const char *before, *behind, *tail;
};

static bool find_stack(struct stack *s, const char *name, const struct mixing *mix)
{
    char stem[64];
    if (!split_name(name, &s->layer, stem, &s->tail) || s->layer < 0)
        return false;
    s->behind = qr_family_expert_name(mix->family, stem, &s->before);
    return s->behind != NULL;
}

static int keep_key(struct qr_tensor_files *st, const struct qr_stored_tensor *t, const char *key, struct qr_err *err)
{
    if (qr_map_add(&st->by_name, key, strlen(key), st->list.n - 1))
        return 0;
    return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s is there twice", st->shard[t->shard].name, t->offset, t->name);
}

static struct qr_stored_tensor *new_tensor(struct qr_tensor_files *st, int32_t shard, struct qr_err *err)
{
    if (st->list.n < QR_STORED_TENSORS_MAX)
        return qr_stored_list_add(&st->list);
    qr_err_set(err, QR_E_TOO_LARGE, "%s: more than %d tensors", st->shard[shard].name, QR_STORED_TENSORS_MAX);
    return NULL;
}

/* Some rows of `whole` as a tensor: `part` is what messages put behind its name, `key` what it is found by. */
static int add_part(struct qr_tensor_files *st, const struct qr_stored_tensor *part, const char *title, const char *key, struct qr_err *err)
{
    char name[QR_STORED_NAME_MAX];
    struct qr_stored_tensor *t = new_tensor(st, part->shard, err);
    if (!t)
        return (int)err->code;
    *t = *part;
    snprintf(name, sizeof name, "%.200s[%s]", part->name, title);
    t->name = qr_stored_list_name(&st->list, name, strlen(name));
    return keep_key(st, t, qr_stored_list_name(&st->list, key, strlen(key)), err);
}

/* Its matrices as tensors of their own: rows of one after those of the other. */
static int add_stack(struct qr_tensor_files *st, const struct qr_stored_tensor *whole, const struct stack *s, struct qr_err *err)
{
    int rc = 0;
    const int64_t n = whole->shape[0];
    if (n < 1 || n > QR_EXPERTS_MAX || whole->n_bytes % (uint64_t)n != 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s holds %" PRId64 " experts, expected 1 to %d", st->shard[whole->shard].name,
                          whole->offset, whole->name, n, QR_EXPERTS_MAX);
    for (int32_t e = 0; e < n && !rc; e++) {
        char title[16], key[QR_STORED_NAME_MAX];
        struct qr_stored_tensor t = *whole;
        t.n_dims = whole->n_dims - 1;
        t.shape[0] = whole->shape[1], t.shape[1] = whole->shape[2], t.shape[2] = 0;
        t.n_bytes = whole->n_bytes / (uint64_t)n;
        t.offset = whole->offset + (uint64_t)e * t.n_bytes;
        snprintf(title, sizeof title, "%d", e);
        snprintf(key, sizeof key, "model.layers.%d.%s.%d.%s%s", s->layer, s->before, e, s->behind, s->tail);
        rc = add_part(st, &t, title, key, err);
    }
    return rc;
}

/* "blk.3.attn_qkv" of an architecture whose q, k and v are three in safetensors files: rows of one after those of the other, as `convert --fuse-qkv` leaves
 * them. */
static bool is_fused(int32_t *layer, const char **tail, const char *name, const struct mixing *mix)
{
    char stem[64];
    if (!split_name(name, layer, stem, tail) || *layer < 0 || strcmp(stem, "attn_qkv") != 0)
        return false;
    return own_name(mix->family, stem) == NULL;
}

static int add_fused(struct qr_tensor_files *st, const struct qr_stored_tensor *whole, int32_t layer, const char *tail, const struct mixing *mix,
                     struct qr_err *err)
{
    const int64_t heads[3] = {mix->heads, mix->kv_heads, mix->kv_heads}, n_heads = heads[0] + heads[1] + heads[2];
    int64_t row = 0;
    int rc = 0;
    if (n_heads == 0 || whole->shape[0] < n_heads || whole->shape[0] % n_heads != 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s has %" PRId64 " rows, expected a multiple of the %" PRId64 " heads of q, k and v",
                          st->shard[whole->shard].name, whole->offset, whole->name, whole->shape[0], n_heads);
    const uint64_t row_bytes = whole->n_bytes / (uint64_t)whole->shape[0];
    for (int i = 0; i < 3 && !rc; i++) {
        const char title[2] = {"qkv"[i], 0};
        char key[QR_STORED_NAME_MAX];
        struct qr_stored_tensor t = *whole;
        t.shape[0] = whole->shape[0] / n_heads * heads[i];
        t.n_bytes = row_bytes * (uint64_t)t.shape[0];
        t.offset = whole->offset + row_bytes * (uint64_t)row;
        t.heads = mix->family && mix->family->gguf_pairs && i < 2 ? (int32_t)heads[i] : 0;
        row += t.shape[0];
        snprintf(key, sizeof key, "model.layers.%d.self_attn.%s_proj%s", layer, title, tail);
        rc = add_part(st, &t, title, key, err);
    }
    return rc;
}

/* Files of early Mixtral have a tensor for each expert: "blk.3.ffn_gate.5.weight". */
static bool early_expert(char out[QR_STORED_NAME_MAX], const char *name, const struct mixing *mix)
{
    int layer = 0, expert = 0, used = 0, n_points = 0;
    char which[8], stem[32];
    for (const char *c = name; *c; c++)
        n_points += *c == '.';
    if (n_points != 4) /* sscanf would be what takes longest of a tensor's name */
        return false;
    if (sscanf(name, "blk.%6d.ffn_%4[a-z].%6d.weight%n", &layer, which, &expert, &used) != 3 || name[used] || used == 0)
        return false;
    snprintf(stem, sizeof stem, "ffn_%s_exps", which);
    const char *before, *to = qr_family_expert_name(mix->family, stem, &before);
    if (to)
        snprintf(out, QR_STORED_NAME_MAX, "model.layers.%d.%s.%d.%s.weight", layer, before, expert, to);
    return to != NULL;
}

static int add_tensor(struct qr_tensor_files *st, const struct qr_gguf_tensor *from, int32_t shard, const struct mixing *mix, struct qr_err *err)
{
    char name[QR_STORED_NAME_MAX];
    struct stack stack;
    int32_t layer;
    const char *tail;
    struct qr_stored_tensor new = {.name = qr_stored_list_name(&st->list, from->name.at, (size_t)from->name.n), .type = qr_gguf_stored_type(from->type),
                                    .n_dims = from->n_dims, .shard = shard, .offset = from->offset, .n_bytes = from->n_bytes};
    for (int32_t i = 0; i < from->n_dims; i++)
        new.shape[i] = from->dim[from->n_dims - 1 - i];
    if (new.n_dims >= 2 && find_stack(&stack, new.name, mix) && new.n_dims == (strcmp(stack.tail, ".bias") == 0 ? 2 : 3))
        return add_stack(st, &new, &stack, err);
    if (new.n_dims <= 2 && is_fused(&layer, &tail, new.name, mix))
        return add_fused(st, &new, layer, tail, mix, err);
    struct qr_stored_tensor *t = new_tensor(st, shard, err);
    if (!t)
        return (int)err->code;
    *t = new;
    if (!early_expert(name, t->name, mix))
        translate(name, t, mix);
    if (strstr(name, "shared_expert_gate") && t->n_dims == 1) { /* one output */
        t->n_dims = 2;
        t->shape[1] = t->shape[0], t->shape[0] = 1;
    }
    if (t->heads && (t->shape[0] % ((int64_t)2 * t->heads) != 0))
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s has %" PRId64 " rows, expected pairs for each of %d heads", st->shard[shard].name,
                          t->offset, t->name, t->shape[0], t->heads);
    return keep_key(st, t, name[0] ? qr_stored_list_name(&st->list, name, strlen(name)) : t->name, err);
}

/* Of families that share a name the one with experts has the names of all. */
static int read_mixing(struct mixing *mix, const struct qr_gguf *g, struct qr_err *err)
{
    struct qr_gguf_text arch = {0};
    int64_t heads = 0, kv_heads = 0;
    char name[32], key[64];
    *mix = (struct mixing){0};
    int rc = qr_gguf_string(g, "general.architecture", &arch, NULL, err);
    if (rc || arch.n >= sizeof name)
        return rc;
    snprintf(name, sizeof name, "%.*s", (int)arch.n, arch.at);
    mix->family = qr_family_in_gguf(name);
    snprintf(key, sizeof key, "%s.attention.head_count", name);
    rc = qr_gguf_same_int(g, key, 0, 1, 1 << 16, &heads, NULL, err);
    kv_heads = heads;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", name);
    rc = rc ? rc : qr_gguf_same_int(g, key, 0, 1, 1 << 16, &kv_heads, NULL, err);
    mix->heads = (int32_t)heads;
    mix->kv_heads = (int32_t)kv_heads;
    return rc;
}

static int add_tensors(struct qr_tensor_files *st, const struct qr_gguf *g, int32_t shard, const struct mixing *mix, struct qr_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < qr_gguf_n_tensors(g) && !rc; i++)
        rc = add_tensor(st, qr_gguf_tensor_at(g, i), shard, mix, err);
    return rc;
}

static int32_t add_shard(struct qr_tensor_files *st, const char *path, struct qr_map_file map)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const int32_t shard = qr_tensor_files_add(st, name, strlen(name));
    st->shard[shard].map = map;
    return shard;
}

/* A later part. */
static int take_part(struct qr_tensor_files *st, const char *path, const struct mixing *mix, struct qr_err *err)
{
    struct qr_gguf_file f;
    int rc = qr_gguf_file_open(&f, path, err);
    if (rc)
        return rc;
    if (st->n_shards >= QR_TENSOR_FILES_READERS)
        qr_map_file_stop_reading(&f.map);
    rc = add_tensors(st, f.g, add_shard(st, path, f.map), mix, err);
    qr_gguf_close(f.g); /* the mapping is the set's */
    return rc;
}

static int take_parts(struct qr_tensor_files *st, const char *path, const struct qr_gguf *g, struct qr_err *err)
{
    struct mixing mix;
    int64_t n_parts = 1;
    char part[QR_GGUF_PATH_MAX];
    int rc = read_mixing(&mix, g, err);
    rc = rc ? rc : qr_gguf_int(g, "split.count", 0, PARTS_MAX, &n_parts, NULL, err);
    rc = rc ? rc : add_tensors(st, g, 0, &mix, err);
    if (!rc && n_parts > 1 && (!qr_gguf_part_path(part, path, 0, (int32_t)n_parts) || strcmp(part, path) != 0))
        rc = qr_err_set(err, QR_E_USAGE, "%s: is one of %" PRId64 " parts; name the first, NAME-00001-of-%05" PRId64 ".gguf", path, n_parts, n_parts);
    for (int32_t i = 1; i < n_parts && !rc; i++) {
        qr_gguf_part_path(part, path, i, (int32_t)n_parts);
        rc = take_part(st, part, &mix, err);
        if (rc == QR_E_NOT_FOUND)
            rc = qr_err_set(err, rc, "%s: is the first of %" PRId64 " parts, and %s is missing: download it into the same directory", path, n_parts, part);
    }
    return rc;
}

int qr_gguf_tensors_open(struct qr_tensor_files **out, struct qr_source *source, struct qr_err *err)
{
    QR_ASSERT(out != NULL && source != NULL);
    QR_ASSERT(err != NULL && qr_source_gguf(source) != NULL);
    struct qr_tensor_files *st = qr_tensor_files_new();
    st->source = qr_source_ref(source);
    add_shard(st, qr_source_gguf_path(source), qr_source_gguf_map(source));
    int rc = take_parts(st, qr_source_gguf_path(source), qr_source_gguf(source), err);
    if (rc) {
        qr_tensor_files_close(st);
        st = NULL;
    } else {
        qr_tensor_files_place(st, qr_source_gguf_path(source));
    }
    *out = st;
    return rc;
}

bool qr_tensor_files_are_gguf(const struct qr_tensor_files *st)
{
    QR_ASSERT(st != NULL);
    return st->source && qr_source_gguf(st->source);
}
