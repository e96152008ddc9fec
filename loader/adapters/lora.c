/* lora.c - an adapter's files, checked: PEFT's directory or one GGUF file of llama.cpp becomes one set of tensors, in which
 * the pair of a matrix is found by the matrix' name.
 *
 * Settings that make an adapter more than a sum of low rank are refused by name; so is a tensor that no matrix has. Files that
 * are served are copied, not mapped, because others may change them while they are used.
 * Guarantee: what qr_lora_file_find returns has the shape that the model has, and a type that can be decoded.
 * Thread: one owner. */
#include "loader/adapters/lora.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/files/gguf_file.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/adapters/lora_gguf.h"
#include "loader/config/hf_field.h"

#define CONFIG_BYTES_MAX ((size_t)1 << 20)
#define PATTERNS_MAX 1024

/* A whole file. */
struct bytes {
    uint8_t *data; /* owned */
    size_t n;
};

/* "q_proj": 32 of alpha_pattern. */
struct pattern {
    char name[QR_WEIGHT_NAME_MAX];
    double alpha;
};

struct qr_lora_file {
    char config[QR_PATH_MAX], weights[QR_PATH_MAX]; /* for messages; of a GGUF file the same */
    bool is_gguf;
    struct qr_lora_gguf gguf;
    struct bytes config_text, weights_bytes;
    char *base;                   /* owned: base_model_name_or_path; NULL: not said */
    int64_t rank;
    double alpha;
    bool any_rank, rslora, transposed; /* any_rank: a rank_pattern; the tensors say it */
    struct pattern *pattern;     /* owned [n_patterns] */
    int32_t n_patterns;
    struct qr_tensor_files *st;   /* owned */
    bool *used;                  /* owned: of each tensor */
};

void qr_lora_name(char out[QR_WEIGHT_NAME_MAX], const char *matrix, const char *behind)
{
    QR_ASSERT(out != NULL && matrix != NULL && behind != NULL);
    QR_ASSERT(strlen(matrix) > strlen(".weight"));
    const int n = snprintf(out, QR_WEIGHT_NAME_MAX, QR_LORA_BEFORE "%.*s%s", (int)(strlen(matrix) - strlen(".weight")), matrix, behind);
    QR_ASSERT(n < QR_WEIGHT_NAME_MAX);
}

/* ---- bytes ---- */

/* The file that was opened, by whatever way, lies below `root`: asked of the open file, so that the answer cannot change in between. */
static int check_beneath(int fd, const char *root, const char *path, struct qr_err *err)
{
    char link[64], real[PATH_MAX], top[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, real, sizeof real - 1);
    if (n < 0 || !realpath(root, top))
        return qr_err_set(err, QR_E_IO, "%s: cannot find out where it lies: %s", n < 0 ? path : root, strerror(errno));
    real[n] = 0;
    const size_t m = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(real, top, m) != 0 || real[m] != '/')
        return qr_err_set(err, QR_E_DENIED, "%s: lies outside of the directory that adapters may come from", path);
    return 0;
}

static int read_fd(struct bytes *out, int fd, const char *path, size_t max, struct qr_err *err)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return qr_err_set(err, QR_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return qr_err_set(err, QR_E_IO, "%s: is %s, expected a regular file", path, S_ISDIR(s.st_mode) ? "a directory" : "a pipe or a device");
    if ((uint64_t)s.st_size > max)
        return qr_err_set(err, QR_E_TOO_LARGE, "%s: has %lld bytes, expected at most %zu", path, (long long)s.st_size, max);
    const size_t size = (size_t)s.st_size;
    *out = (struct bytes){.data = qr_realloc(NULL, size + 1, 1)};
    while (out->n < size) {
        const ssize_t n = read(fd, out->data + out->n, size - out->n);
        if (n <= 0)
            return qr_err_set(err, QR_E_IO, "%s: %s", path, n < 0 ? strerror(errno) : "became shorter while it was read");
        out->n += (size_t)n;
    }
    return 0;
}

static void close_file(void *fd, size_t n)
{
    close(*(int *)fd);
}

/* Copied, not mapped: who shortens a mapped file ends the program that reads it. On an error what was read is the caller's as well. */
static int read_file(struct bytes *out, const char *path, const char *root, size_t max, struct qr_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return qr_err_set(err, errno == ENOENT || errno == ENOTDIR ? QR_E_NOT_FOUND : QR_E_IO, "%s: %s", path, strerror(errno));
    qr_account_guard(close_file, &fd, 0);
    int rc = root ? check_beneath(fd, root, path, err) : 0;
    rc = rc ? rc : read_fd(out, fd, path, max, err);
    qr_account_unguard(&fd);
    close(fd);
    return rc;
}

/* ---- settings ---- */

/* Ways to begin that leave the model's own matrices as they were (others, such as PiSSA, subtract from them what the adapters begin with). */
static int check_start(const struct qr_lora_file *f, const struct qr_json *v, struct qr_err *err)
{
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
    const struct qr_json *x = qr_json_find(v, "init_lora_weights");
    if (qr_json_is_null(x) || qr_json_type(x) != QR_JSON_T_STRING)
        return 0;
    for (int i = 0; i < QR_COUNT(harmless); i++)
        if (strcmp(qr_json_str(x, NULL), harmless[i]) == 0)
            return 0;
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s: init_lora_weights is \"%.40s\", expected a boolean, \"gaussian\", \"eva\" or \"orthogonal\"", f->config,
                      qr_json_str(x, NULL));
}

/* Settings of PEFT that make adapters something else than this sum: absent, or this. */
static int check_kind(const struct qr_lora_file *f, const struct qr_json *v, struct qr_err *err)
{
    static const char *const must_be_false[] = {"use_dora", "lora_bias", "use_qalora"};
    static const char *const must_be_empty[] = {"modules_to_save", "layer_replication", "target_parameters", "trainable_token_indices",
                                                "alora_invocation_tokens", "use_bdlora", "kasa_config", "arrow_config"};
    for (int i = 0; i < QR_COUNT(must_be_false); i++) {
        const struct qr_json *x = qr_json_find(v, must_be_false[i]);
        if (!qr_json_is_null(x) && !(qr_json_type(x) == QR_JSON_T_BOOL && !qr_json_bool(x)))
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s is set, expected false", f->config, must_be_false[i]);
    }
    for (int i = 0; i < QR_COUNT(must_be_empty); i++) {
        const struct qr_json *x = qr_json_find(v, must_be_empty[i]);
        if (x && qr_json_count(x) > 0)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s is not empty, expected low-rank sums of the layers' matrices and nothing else", f->config,
                              must_be_empty[i]);
    }
    const struct qr_json *bias = qr_json_find(v, "bias");
    if (!qr_json_is_null(bias) && !(qr_json_type(bias) == QR_JSON_T_STRING && strcmp(qr_json_str(bias, NULL), "none") == 0))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: bias is set, expected \"none\"", f->config);
    return check_start(f, v, err);
}

/* PEFT's keys are regular expressions for the end of a name, from one of its dots on; taken are those that are such an end themselves. */
static int read_patterns(struct qr_lora_file *f, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *all = qr_json_find(v, "alpha_pattern"), *ranks = qr_json_find(v, "rank_pattern");
    f->any_rank = ranks && qr_json_count(ranks) > 0;
    if (qr_json_is_null(all) || qr_json_count(all) == 0)
        return 0;
    if (qr_json_type(all) != QR_JSON_T_OBJECT || qr_json_count(all) > PATTERNS_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "%s: alpha_pattern, expected an object with at most %d names", f->config, PATTERNS_MAX);
    f->pattern = qr_alloc((size_t)qr_json_count(all), sizeof *f->pattern);
    for (const struct qr_json *x = qr_json_first(all); x; x = qr_json_after(x)) {
        const char *key = qr_json_key(x);
        size_t n = strlen(key), plain = 0;
        while (isalnum((unsigned char)key[plain]) || key[plain] == '_' || key[plain] == '.')
            plain++;
        if (qr_json_type(x) != QR_JSON_T_NUMBER || plain < n || n == 0 || n >= QR_WEIGHT_NAME_MAX)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: alpha_pattern \"%.60s\", expected names such as q_proj or layers.3.mlp.up_proj with a number",
                              f->config, key);
        struct pattern *p = &f->pattern[f->n_patterns++];
        memcpy(p->name, key, n + 1);
        p->alpha = qr_json_f64(x);
    }
    return 0;
}

static int read_values(struct qr_lora_file *f, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_hf_obj o = {.v = v, .file = f->config, .prefix = "", .err = err};
    const struct qr_json *alpha = qr_json_find(v, "lora_alpha");
    const char *type = "";
    int32_t rank = 0;
    int rc = qr_hf_str(&o, "peft_type", &type);
    if (rc == 0 && strcmp(type, "LORA") != 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: peft_type is not \"LORA\"", f->config);
    rc = rc ? rc : qr_hf_need_i32(&o, "r", 1, QR_LORA_RANK_MAX, &rank);
    if (rc == 0 && (!alpha || qr_json_type(alpha) != QR_JSON_T_NUMBER))
        return qr_err_set(err, QR_E_DAMAGED, "%s: lora_alpha, expected a number", f->config);
    rc = rc ? rc : qr_hf_bool(&o, "use_rslora", &f->rslora);
    rc = rc ? rc : qr_hf_bool(&o, "fan_in_fan_out", &f->transposed);
    if (rc)
        return rc;
    f->rank = rank;
    f->alpha = qr_json_f64(alpha);
    rc = check_kind(f, v, err);
    return rc ? rc : read_patterns(f, v, err);
}

/* For people only: whatever would move a terminal's cursor is left out. */
static void read_base(struct qr_lora_file *f, const struct qr_json *v)
{
    const struct qr_json *base = qr_json_type(v) == QR_JSON_T_OBJECT ? qr_json_find(v, "base_model_name_or_path") : NULL;
    if (!base || qr_json_type(base) != QR_JSON_T_STRING)
        return;
    f->base = qr_strdup(qr_json_str(base, NULL));
    for (char *c = f->base; *c; c++)
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
}

static int read_config(struct qr_lora_file *f, struct qr_err *err)
{
    struct qr_json *v;
    int rc = qr_json_parse_file(&v, (const char *)f->config_text.data, f->config_text.n, &qr_json_limits_request, f->config, err);
    if (rc)
        return rc;
    read_base(f, v);
    rc = read_values(f, v, err);
    qr_json_free(v);
    return rc;
}

/* ---- the file ---- */

/* Both files' bytes are there. */
static int open_tensors(struct qr_lora_file *f, struct qr_err *err)
{
    int rc = qr_safetensors_open_memory(&f->st, f->weights_bytes.data, f->weights_bytes.n, f->weights, err);
    if (rc == 0)
        f->used = qr_alloc((size_t)qr_tensor_files_count(f->st) + 1, sizeof *f->used);
    return rc;
}

static struct bytes copy_of(const void *data, size_t n)
{
    struct bytes b = {.data = qr_realloc(NULL, n + 1, 1), .n = n};
    if (n > 0)
        memcpy(b.data, data, n);
    return b;
}

int qr_lora_file_open_memory(struct qr_lora_file **out, const void *config, size_t n_config, const void *weights, size_t n_weights, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT((config != NULL || n_config == 0) && (weights != NULL || n_weights == 0));
    struct qr_lora_file *f = qr_alloc(1, sizeof *f);
    snprintf(f->config, sizeof f->config, QR_LORA_CONFIG);
    snprintf(f->weights, sizeof f->weights, QR_LORA_WEIGHTS);
    f->config_text = copy_of(config, n_config);
    f->weights_bytes = copy_of(weights, n_weights);
    int rc = read_config(f, err);
    rc = rc ? rc : open_tensors(f, err);
    if (rc)
        qr_lora_file_close(f);
    else
        *out = f;
    return rc;
}

static int open_config(struct qr_lora_file *f, const char *dir, const char *root, struct qr_err *err)
{
    int rc = qr_path_join(f->config, dir, QR_LORA_CONFIG, err);
    rc = rc ? rc : qr_path_join(f->weights, dir, QR_LORA_WEIGHTS, err);
    rc = rc ? rc : read_file(&f->config_text, f->config, root, CONFIG_BYTES_MAX, err);
    return rc ? rc : read_config(f, err);
}

/* A path that is a file is one of GGUF. */
static bool is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && !S_ISDIR(s.st_mode);
}

/* All its bytes are there. */
static int open_gguf(struct qr_lora_file *f, struct qr_err *err)
{
    struct qr_gguf *g;
    if (!qr_gguf_is(f->weights_bytes.data, f->weights_bytes.n))
        return qr_err_set(err, QR_E_DAMAGED, "%s: is a file that does not begin with \"GGUF\", expected an adapter's directory with " QR_LORA_CONFIG " and "
                          QR_LORA_WEIGHTS ", or a GGUF file", f->weights);
    int rc = qr_gguf_open(&g, f->weights_bytes.data, f->weights_bytes.n, f->weights, err);
    if (rc)
        return rc;
    f->config_text = copy_of("", 0); /* in the hash */
    f->is_gguf = f->any_rank = true;
    f->rank = 1;
    f->st = qr_tensor_files_new();
    const int32_t shard = qr_tensor_files_add(f->st, f->weights, strlen(f->weights));
    f->st->shard[shard].map = (struct qr_map_file){.data = f->weights_bytes.data, .n_bytes = f->weights_bytes.n};
    f->st->borrowed = true;
    rc = qr_lora_gguf_read(&f->gguf, f->st, g, err);
    f->alpha = f->gguf.alpha;
    f->used = qr_alloc((size_t)qr_tensor_files_count(f->st) + 1, sizeof *f->used);
    qr_gguf_close(g);
    return rc;
}

/* The directory has no weights that are read: pickle is the usual reason. */
static int explain_weights(const char *dir, int rc, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_err other;
    if (rc != QR_E_NOT_FOUND || qr_path_join(path, dir, "adapter_model.bin", &other) != 0 || access(path, F_OK) != 0)
        return rc;
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s: is pickle, which can run code and is never read: save the adapter as " QR_LORA_WEIGHTS, path);
}

static int set_path(struct qr_lora_file *f, const char *path, struct qr_err *err)
{
    const size_t n = strlen(path);
    if (n >= sizeof f->weights)
        return qr_err_set(err, QR_E_TOO_LARGE, "%.100s...: the path has %zu bytes, expected less than %zu", path, n, sizeof f->weights);
    memcpy(f->config, path, n + 1);
    memcpy(f->weights, path, n + 1);
    return 0;
}

static int settle(struct qr_lora_file **out, struct qr_lora_file *f, int rc)
{
    if (rc)
        qr_lora_file_close(f);
    else
        *out = f;
    return rc;
}

int qr_lora_file_open(struct qr_lora_file **out, const char *path, const char *root, size_t weights_max, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(err != NULL && weights_max > 0);
    struct qr_lora_file *f = qr_alloc(1, sizeof *f);
    const bool file = is_file(path);
    int rc = file ? set_path(f, path, err) : open_config(f, path, root, err);
    rc = rc ? rc : explain_weights(path, read_file(&f->weights_bytes, f->weights, root, weights_max, err), err);
    rc = rc ? rc : file ? open_gguf(f, err) : open_tensors(f, err);
    return settle(out, f, rc);
}

void qr_lora_file_close(struct qr_lora_file *f)
{
    if (!f)
        return;
    qr_tensor_files_close(f->st);
    qr_free(f->config_text.data);
    qr_free(f->weights_bytes.data);
    qr_free(f->base);
    qr_free(f->pattern);
    qr_free(f->used);
    qr_free(f);
}

int qr_lora_file_fit(struct qr_lora_file *f, const struct qr_model_config *c, bool transposed, struct qr_err *err)
{
    QR_ASSERT(f != NULL && c != NULL);
    QR_ASSERT(err != NULL);
    if (f->is_gguf)
        return qr_lora_gguf_fit(&f->gguf, f->st, c, err);
    return transposed || !f->transposed ? 0 : qr_err_set(err, QR_E_UNSUPPORTED, "%s: fan_in_fan_out is set, expected false for this model", f->config);
}

struct qr_lora_about qr_lora_file_about(const struct qr_lora_file *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->st != NULL);
    struct qr_lora_about about = {.arch = f->is_gguf ? f->gguf.arch : NULL, .base = f->is_gguf ? NULL : f->base ? f->base : "", .alpha = f->alpha,
                                  .rslora = f->rslora, .n_patterns = f->n_patterns};
    for (int32_t i = 0; i < qr_tensor_files_count(f->st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(f->st, i);
        const int64_t rank = t->n_dims >= 2 ? t->shape[t->n_dims - 2] : INT64_MAX;
        if (!qr_ends_with(t->name, f->is_gguf ? ".lora_a" : QR_LORA_A) || rank > INT32_MAX)
            continue;
        about.rank_min = about.n_matrices == 0 || rank < about.rank_min ? (int32_t)rank : about.rank_min;
        about.rank_max = rank > about.rank_max ? (int32_t)rank : about.rank_max;
        about.n_matrices++;
    }
    return about;
}

int32_t qr_lora_file_rank(const struct qr_lora_file *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->rank >= 1);
    const int32_t said = f->any_rank ? 1 : (int32_t)f->rank, found = qr_lora_file_about(f).rank_max;
    return found > said && found <= QR_LORA_RANK_MAX ? found : said;
}

struct qr_hash128 qr_lora_file_hash(const struct qr_lora_file *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->config_text.data != NULL && f->weights_bytes.data != NULL);
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 0); /* the cache's own secret comes on top */
    const struct qr_hash128 both[2] = {qr_hash128_keyed(f->config_text.data, f->config_text.n, &secret),
                                       qr_hash128_keyed(f->weights_bytes.data, f->weights_bytes.n, &secret)};
    return qr_hash128_keyed(both, sizeof both, &secret);
}

/* ---- pairs ---- */

/* A dot of a regular expression is any character. */
static bool is_pattern(const char *pattern, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pattern[i] != '.' && pattern[i] != text[i])
            return false;
    return true;
}

static double alpha_of(const struct qr_lora_file *f, const char *matrix)
{
    const size_t n = strlen(matrix) - strlen(".weight");
    for (int32_t i = 0; i < f->n_patterns; i++) {
        const size_t m = strlen(f->pattern[i].name);
        if (m <= n && is_pattern(f->pattern[i].name, matrix + n - m, m) && (m == n || matrix[n - m - 1] == '.'))
            return f->pattern[i].alpha;
    }
    return f->alpha;
}

/* "[64, r] by the model": what a shape has to be. rows or cols 0: any rank. */
static const char *expected_text(char text[160], const struct qr_lora_file *f, int64_t rows, int64_t cols, const char *base)
{
    char a[24] = "r", b[24] = "r";
    if (rows > 0)
        snprintf(a, sizeof a, "%lld", (long long)rows);
    if (cols > 0)
        snprintf(b, sizeof b, "%lld", (long long)cols);
    snprintf(text, 160, "[%s, %s] by %.60s%s", a, b, base, f->is_gguf ? "" : " and r in " QR_LORA_CONFIG);
    return text;
}

/* The tensor of that name, its shape [rows, cols]; rows or cols 0: any rank. *out is NULL when there is none. */
static int find_tensor(struct qr_lora_file *f, const struct qr_stored_tensor **out, const char *name, int64_t rows, int64_t cols, const char *base,
                       struct qr_err *err)
{
    const struct qr_stored_tensor *t = qr_tensor_files_find(f->st, name);
    char found[160], expected[160];
    *out = NULL;
    if (!t)
        return 0;
    const bool shaped = t->n_dims == 2 && (rows ? t->shape[0] == rows : t->shape[0] >= 1 && t->shape[0] <= QR_LORA_RANK_MAX) &&
                        (cols ? t->shape[1] == cols : true);
    if (!shaped)
        return qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s is %s, expected %s", f->weights, t->name,
                          qr_shape_text(found, sizeof found, t->shape, t->n_dims), expected_text(expected, f, rows, cols, base));
    if (!t->type->computable)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: tensor %s is %s, expected F32, F16%s", f->weights, t->name, t->type->name,
                          f->is_gguf ? ", BF16 or blocks of 2 to 8 bits" : " or BF16");
    f->used[t - qr_tensor_files_at(f->st, 0)] = true; /* they lie side by side */
    *out = t;
    return 0;
}

int qr_lora_file_find(struct qr_lora_file *f, struct qr_lora_pair *out, const char *matrix, int64_t n_out, int64_t n_in, const char *base,
                      struct qr_err *err)
{
    QR_ASSERT(f != NULL && out != NULL && matrix != NULL);
    QR_ASSERT(n_out > 0 && n_in > 0 && base != NULL);
    char a[QR_WEIGHT_NAME_MAX], b[QR_WEIGHT_NAME_MAX];
    *out = (struct qr_lora_pair){0};
    qr_lora_name(a, matrix, QR_LORA_A);
    const char *rest = strchr(matrix, '.') + 1;
    if (!qr_tensor_files_find(f->st, a) && strchr(rest, '.')) { /* made for the model without its head, which leaves the first name out */
        qr_lora_name(b, rest, QR_LORA_A);
        matrix = qr_tensor_files_find(f->st, b) ? rest : matrix;
        qr_lora_name(a, matrix, QR_LORA_A);
    }
    qr_lora_name(b, matrix, QR_LORA_B);
    int rc = find_tensor(f, &out->a, a, f->any_rank ? 0 : f->rank, n_in, base, err);
    const int64_t rank = out->a ? out->a->shape[0] : f->rank;
    rc = rc ? rc : find_tensor(f, &out->b, b, n_out, rank, base, err);
    if (rc == 0 && !out->a != !out->b)
        rc = qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s is missing, expected it beside %s", f->weights, out->a ? b : a, out->a ? a : b);
    out->rank = (int32_t)rank;
    if (f->is_gguf && f->alpha == 0)
        out->scale = 1;
    else
        out->scale = (float)(alpha_of(f, matrix) / (f->rslora ? sqrt((double)rank) : (double)rank));
    return rc;
}

void qr_lora_file_decode(const struct qr_lora_file *f, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n)
{
    QR_ASSERT(f != NULL && t != NULL);
    QR_ASSERT(dst != NULL && first >= 0 && n >= 0 && first + n <= t->shape[0]);
    qr_tensor_files_decode(f->st, t, dst, first, n);
}

/* Of llama.cpp's names, those that are adapted there and not here. */
static int refuse_unused(const struct qr_lora_file *f, const char *name, const char *base, struct qr_err *err)
{
    static const struct {
        const char *part, *what;
    } rows[] = {{"token_embd.", "the embedding"}, {"output.", "the head"}, {"_exps.", "experts"}};
    for (int i = 0; i < QR_COUNT(rows); i++)
        if (f->is_gguf && strstr(name, rows[i].part))
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: tensor %s is of an adapter of %s, expected adapters of the layers' matrices that every token goes "
                              "through", f->weights, name, rows[i].what);
    if (f->is_gguf)
        return qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s belongs to no matrix of %s", f->weights, name, base);
    return qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s belongs to no matrix of %s, expected " QR_LORA_BEFORE "NAME" QR_LORA_A " or " QR_LORA_B " of one",
                      f->weights, name, base);
}

int qr_lora_file_check_used(const struct qr_lora_file *f, const char *base, struct qr_err *err)
{
    QR_ASSERT(f != NULL && base != NULL);
    QR_ASSERT(err != NULL);
    const int32_t n = qr_tensor_files_count(f->st);
    for (int32_t i = 0; i < n; i++)
        if (!f->used[i])
            return refuse_unused(f, qr_tensor_files_at(f->st, i)->name, base, err);
    if (n == 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: holds no tensor, expected adapters", f->weights);
    return 0;
}

/* ---- without a model ---- */

/* One tensor of a directory's file, and that the other half of the pair is there. */
static int check_half(const struct qr_lora_file *f, const struct qr_stored_tensor *t, struct qr_err *err)
{
    const bool a = qr_ends_with(t->name, QR_LORA_A);
    const size_t n = strlen(t->name), n_end = strlen(QR_LORA_A);
    char name[QR_STORED_NAME_MAX], found[160];
    if ((!a && !qr_ends_with(t->name, QR_LORA_B)) || strncmp(t->name, QR_LORA_BEFORE, strlen(QR_LORA_BEFORE)) != 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s, expected names as " QR_LORA_BEFORE "NAME" QR_LORA_A " and " QR_LORA_B, f->weights, t->name);
    snprintf(name, sizeof name, "%.*s%s", (int)(n - n_end), t->name, a ? QR_LORA_B : QR_LORA_A);
    const struct qr_stored_tensor *other = qr_tensor_files_find(f->st, name);
    if (!other)
        return qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s is missing, expected it beside %s", f->weights, name, t->name);
    if (t->n_dims != 2)
        return qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s is %s, expected two dimensions", f->weights, t->name,
                          qr_shape_text(found, sizeof found, t->shape, t->n_dims));
    const int64_t rank = t->shape[a ? 0 : 1], want = !f->any_rank ? f->rank : a || other->n_dims != 2 ? rank : other->shape[0];
    if (rank != want || rank < 1 || rank > QR_LORA_RANK_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "%s: tensor %s is %s, a rank of %lld, expected %lld as %s says", f->weights, t->name,
                          qr_shape_text(found, sizeof found, t->shape, t->n_dims), (long long)rank, (long long)want,
                          f->any_rank ? name : "r in " QR_LORA_CONFIG);
    if (!t->type->computable)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: tensor %s is %s, expected F32, F16 or BF16", f->weights, t->name, t->type->name);
    return 0;
}

int qr_lora_file_check_alone(const struct qr_lora_file *f, struct qr_err *err)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(err != NULL);
    const int32_t n = qr_tensor_files_count(f->st);
    if (n == 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: holds no tensor, expected adapters", f->weights);
    for (int32_t i = 0; i < n && !f->is_gguf; i++) { /* of a GGUF file halves were compared when it was read */
        const int rc = check_half(f, qr_tensor_files_at(f->st, i), err);
        if (rc)
            return rc;
    }
    return 0;
}
