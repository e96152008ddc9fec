/* make_model.c - random models: tensors in the order of the weight table, each number a function of the seed, the tensor and
 * its place.
 *
 * Shards cut the list of tensors into runs of about equal bytes. Numbers are sums of uniform integers, which are exact.
 * Guarantee: the same configuration and seed give the same bytes on every machine, however many shards there are.
 * Thread: the caller's. */
#include "loader/write/make_model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "loader/config/hf_config.h"
#include "loader/families/family.h"
#include "loader/write/safetensors_write.h"
#include "loader/weight_table.h"

#define STD_DEFAULT 0.02
#define CHUNK 2048                /* elements drawn at once; even */
#define SHARDS_MAX 1000

struct maker {
    const char *dir;
    const struct qr_model_config *c;
    struct qr_make_options o;
    struct qr_err *err;
    uint64_t done, total; /* bytes of weights, for progress */
};

/* ---- numbers ---- */

/* Two numbers of mean 0 and deviation 1: sums of four 16-bit uniform ones each, so exact and alike on every machine. */
static void draw_pair(float out[2], uint64_t seed, uint64_t stream, uint64_t pos)
{
    uint32_t w[4];
    qr_rng_words(w, seed, stream, pos);
    for (int i = 0; i < 2; i++) {
        uint32_t sum = (w[2 * i] & 0xffffu) + (w[2 * i] >> 16) + (w[2 * i + 1] & 0xffffu) + (w[2 * i + 1] >> 16);
        out[i] = (float)(((double)sum - 131070.0) / 37837.22754); /* mean 4*65535/2; deviation sqrt(4*(65536^2-1)/12) */
    }
}

static size_t encode(uint8_t *out, const float *x, size_t n, enum qr_dtype to)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = to == QR_BF16 ? qr_f32_to_bf16(x[i]) : to == QR_F16 ? qr_f32_to_f16(x[i]) : 0;
        if (to == QR_F32)
            memcpy(out + 4 * i, &x[i], 4);
        else
            memcpy(out + 2 * i, &h, 2);
    }
    return n * qr_dtype_bytes(to);
}

/* ---- files ---- */

static int write_text(struct maker *m, const char *name, const struct qr_buf *text)
{
    char path[QR_PATH_MAX];
    const int rc = qr_path_join(path, m->dir, name, m->err);
    return rc ? rc : qr_file_write(path, text->data, text->len, false, m->err);
}

static uint64_t element_count(const struct qr_weight_walk *k)
{
    int64_t shape[2];
    int32_t n_dims = qr_weight_walk_shape(shape, k);
    return (uint64_t)shape[0] * (n_dims == 2 ? (uint64_t)shape[1] : 1);
}

/* Tensors in the order of the walk; a tied head is no tensor of its own. */
static bool next_tensor(struct qr_weight_walk *k)
{
    while (qr_weight_walk_next(k))
        if (k->row->when != QR_WHEN_TIED)
            return true;
    return false;
}

/* The shard of a tensor that begins after `at` of `total` bytes: equal shares, whole tensors. */
static int32_t shard_of(uint64_t at, uint64_t total, int32_t n_shards)
{
    return (int32_t)((double)at / (double)total * n_shards);
}

static const char *shard_name(char text[64], int32_t shard, int32_t n_shards)
{
    if (n_shards == 1)
        snprintf(text, 64, "model.safetensors");
    else
        snprintf(text, 64, "model-%05d-of-%05d.safetensors", shard + 1, n_shards);
    return text;
}

static uint64_t total_bytes(const struct maker *m)
{
    uint64_t n = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(m->c); next_tensor(&k);)
        n += element_count(&k) * qr_dtype_bytes(m->o.store);
    return n;
}

/* Each number is a function of the seed, the tensor and its place. */
static int write_tensor(struct maker *m, struct qr_st_out *out, const struct qr_weight_walk *k, uint64_t stream)
{
    const float mean = qr_weight_row_is_norm(k->row) ? 1 : 0, std = (float)m->o.std;
    const uint64_t n = element_count(k);
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < n; at += CHUNK) {
        const size_t count = n - at < CHUNK ? (size_t)(n - at) : CHUNK;
        uint8_t bytes[CHUNK * sizeof(float)];
        float x[CHUNK], pair[2];
        if (m->o.progress)
            qr_progress_show_bytes(m->o.progress, m->done, m->total);
        if (m->o.stopped && m->o.stopped())
            return qr_err_set(m->err, QR_E_CLOSED, "interrupted");
        for (size_t i = 0; i < count; i += 2) {
            draw_pair(pair, m->o.seed, stream, (at + i) / 2);
            x[i] = mean + std * pair[0];
            x[i + 1] = mean + std * pair[1];
        }
        rc = qr_st_out_put(out, bytes, encode(bytes, x, count, m->o.store), m->err);
        m->done += count * qr_dtype_bytes(m->o.store);
    }
    return rc;
}

/* The tensors of one shard; their names lie in `names`. */
static int32_t list_shard(struct maker *m, struct qr_st_entry *entry, char (*names)[QR_WEIGHT_NAME_MAX], int32_t shard, uint64_t total)
{
    int32_t n = 0;
    uint64_t at = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(m->c); next_tensor(&k);) {
        if (shard_of(at, total, m->o.n_shards) == shard) {
            entry[n] = (struct qr_st_entry){.name = qr_weight_walk_name(names[n], &k), .dtype = m->o.store};
            entry[n].n_dims = qr_weight_walk_shape(entry[n].shape, &k);
            n++;
        }
        at += element_count(&k) * qr_dtype_bytes(m->o.store);
    }
    return n;
}

static int fill_shard(struct maker *m, struct qr_st_out *out, int32_t shard, uint64_t total)
{
    uint64_t at = 0, stream = 0;
    int rc = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(m->c); !rc && next_tensor(&k); stream++) {
        if (shard_of(at, total, m->o.n_shards) == shard)
            rc = write_tensor(m, out, &k, stream);
        at += element_count(&k) * qr_dtype_bytes(m->o.store);
    }
    if (rc == 0)
        return qr_st_out_close(out, false, m->err);
    qr_st_out_abandon(out);
    return rc;
}

static int write_shard(struct maker *m, int32_t shard, uint64_t total)
{
    char file[64], path[QR_PATH_MAX];
    struct qr_st_out out;
    size_t n_all = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(m->c); next_tensor(&k);)
        n_all++;
    struct qr_st_entry *entry = qr_alloc(n_all, sizeof *entry);
    char(*names)[QR_WEIGHT_NAME_MAX] = qr_alloc(n_all, sizeof *names);
    const int32_t n = list_shard(m, entry, names, shard, total);
    int rc = qr_path_join(path, m->dir, shard_name(file, shard, m->o.n_shards), m->err);
    rc = rc ? rc : qr_st_out_open(&out, path, entry, n, NULL, 0, m->err);
    qr_free(entry);
    qr_free(names);
    return rc ? rc : fill_shard(m, &out, shard, total);
}

static int write_index(struct maker *m, uint64_t total)
{
    struct qr_buf out = {0};
    uint64_t at = 0;
    qr_buf_printf(&out, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{", total);
    for (struct qr_weight_walk k = qr_weight_walk_begin(m->c); next_tensor(&k);) {
        char name[QR_WEIGHT_NAME_MAX], file[64];
        qr_buf_printf(&out, "%s\n\"%s\":\"%s\"", at ? "," : "", qr_weight_walk_name(name, &k),
                      shard_name(file, shard_of(at, total, m->o.n_shards), m->o.n_shards));
        at += element_count(&k) * qr_dtype_bytes(m->o.store);
    }
    qr_buf_put_str(&out, "}}\n");
    int rc = write_text(m, "model.safetensors.index.json", &out);
    qr_buf_release(&out);
    return rc;
}

static int write_config(struct maker *m)
{
    struct qr_model_config c = *m->c;
    struct qr_buf out = {0};
    c.stored = m->o.store;
    qr_hf_config_write(&out, &c);
    int rc = write_text(m, "config.json", &out);
    qr_buf_release(&out);
    return rc;
}

int qr_model_make(const char *dir, const struct qr_model_config *config, const struct qr_make_options *options, struct qr_err *err)
{
    QR_ASSERT(dir != NULL && config != NULL && options != NULL && err != NULL);
    QR_ASSERT(options->store == QR_F32 || options->store == QR_F16 || options->store == QR_BF16);
    QR_ASSERT(options->n_shards >= 0 && options->n_shards <= SHARDS_MAX && options->std >= 0);
    struct maker m = {.dir = dir, .c = config, .o = *options, .err = err};
    if (m.o.std == 0)
        m.o.std = STD_DEFAULT;
    if (m.o.n_shards == 0)
        m.o.n_shards = 1;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return qr_err_set(err, QR_E_IO, "%s: %s", dir, strerror(errno));
    const uint64_t total = m.total = total_bytes(&m);
    int rc = write_config(&m);
    for (int32_t shard = 0; !rc && shard < m.o.n_shards; shard++)
        rc = write_shard(&m, shard, total);
    if (!rc && m.o.n_shards > 1)
        rc = write_index(&m, total);
    return rc;
}

struct qr_model_config qr_model_config_small(enum qr_arch arch)
{
    const struct qr_family *f = qr_family_of(arch);
    const struct qr_family_experts *e = f->experts;
    struct qr_model_config c = {
        .arch = arch,
        .n_layers = 2, .n_embd = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .n_ffn = 96, .n_vocab = 256, .ctx_max = 512,
        .norm_eps = 1e-5f,
        .qkv_bias = f->qkv_bias, .qk_norm = f->qk_norm, .norm_plus_one = f->norm_plus_one, .transposed = f->transposed,
        .moe = {.n_experts = e ? 8 : 0, .n_used = e ? 2 : 0, .n_ffn = e ? 32 : 0, .normalize = e &&
                e->normalized_in_gguf},
        .stored = QR_F32,
        .rope = {.type = QR_ROPE_DEFAULT, .theta = 10000, .factor = 1, .beta_fast = 32, .beta_slow = 1, .attn_factor = -1,
                 .truncate = true, .original_ctx = 512},
        .bos_id = 1, .eos_ids = {2}, .n_eos = 1,
    };
    qr_family_flags(&c, f);
    if (f->make_small)
        f->make_small(&c);
    qr_arch_name(arch, c.arch_name);
    return c;
}
