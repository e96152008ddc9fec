#include "loader/adapters/lora_gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "loader/config/hf_config.h"
#include "loader/adapters/lora.h"

#define A ".lora_a"
#define B ".lora_b"
#define WEIGHT ".weight"

static bool is(struct qr_gguf_text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.at, s, (size_t)t.n) == 0;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* ---- keys ---- */

/* A text that has to be this one. */
static int expect_text(const struct qr_gguf *g, const char *key, const char *want, struct qr_err *err)
{
    struct qr_gguf_text t = {.at = "", .n = 0};
    bool found;
    int rc = qr_gguf_string(g, key, &t, &found, err);
    if (rc || (found && is(t, want)))
        return rc;
    if (!found)
        return qr_err_set(err, QR_E_DAMAGED, "key %s is missing, expected \"%s\" in an adapter's file", key, want);
    return qr_err_set(err, QR_E_DAMAGED, "key %s is \"%.*s\", expected \"%s\"", key, (int)(t.n < 40 ? t.n : 40), t.at, want);
}

static int read_keys(struct qr_lora_gguf *out, const struct qr_gguf *g, struct qr_err *err)
{
    static const char invocation[] = "adapter.alora.invocation_tokens";
    struct qr_gguf_text arch = {.at = "", .n = 0};
    int64_t n_parts = 1;
    int rc = expect_text(g, "general.type", "adapter", err);
    rc = rc ? rc : expect_text(g, "adapter.type", "lora", err);
    rc = rc ? rc : qr_gguf_string(g, "general.architecture", &arch, NULL, err);
    rc = rc ? rc : qr_gguf_real(g, "adapter.lora.alpha", &out->alpha, NULL, err);
    rc = rc ? rc : qr_gguf_int(g, "split.count", 0, UINT16_MAX, &n_parts, NULL, err);
    if (rc)
        return rc;
    if (arch.n == 0 || arch.n >= sizeof out->arch)
        return qr_err_set(err, QR_E_DAMAGED, "key general.architecture %s, expected that of the model which is adapted",
                          arch.n ? "is too long" : "is missing");
    memcpy(out->arch, arch.at, (size_t)arch.n);
    if (!isfinite(out->alpha))
        return qr_err_set(err, QR_E_DAMAGED, "key adapter.lora.alpha is %g, expected a finite number", out->alpha);
    if (n_parts > 1)
        return qr_err_set(err, QR_E_UNSUPPORTED, "key split.count is %" PRId64 ", expected an adapter in one file", n_parts);
    const struct qr_gguf_key *k = qr_gguf_find(g, invocation);
    if (k && k->count > 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "key %s is there: an adapter that is used only behind certain tokens (aLoRA), expected one that is used for "
                          "all", invocation);
    return 0;
}

/* ---- tensors ---- */

/* The name without what says which half it is; false where it is none. */
static bool matrix_of(char out[QR_STORED_NAME_MAX], const char *name)
{
    out[0] = 0;
    if (!ends_with(name, A) && !ends_with(name, B))
        return false;
    snprintf(out, QR_STORED_NAME_MAX, "%.*s", (int)(strlen(name) - strlen(A)), name);
    return true;
}

/* What a half is found by. */
static void key_of(char out[QR_STORED_NAME_MAX], const char *name, const char *arch)
{
    char matrix[QR_STORED_NAME_MAX], known[QR_STORED_NAME_MAX];
    known[0] = 0;
    if (matrix_of(matrix, name) && ends_with(matrix, WEIGHT))
        qr_gguf_tensor_name(known, matrix, qr_family_in_gguf(arch));
    if (known[0])
        qr_lora_name(out, known, ends_with(name, A) ? QR_LORA_A : QR_LORA_B);
    else
        snprintf(out, QR_STORED_NAME_MAX, "%s", name);
}

static int add_tensor(struct qr_tensor_files *st, const struct qr_gguf_tensor *from, const char *arch, struct qr_err *err)
{
    char key[QR_STORED_NAME_MAX], matrix[QR_STORED_NAME_MAX];
    struct qr_stored_tensor *t = qr_stored_list_add(&st->list);
    *t = (struct qr_stored_tensor){.name = qr_stored_list_name(&st->list, from->name.at, (size_t)from->name.n), .type = qr_gguf_stored_type(from->type),
                                   .n_dims = from->n_dims < 2 ? 2 : from->n_dims, .offset = from->offset, .n_bytes = from->n_bytes};
    for (int32_t i = 0; i < t->n_dims; i++) /* writers leave out a last one of 1, as A's of rank 1 */
        t->shape[i] = from->dim[t->n_dims - 1 - i];
    if (!matrix_of(matrix, t->name))
        return qr_err_set(err, QR_E_UNSUPPORTED, "byte %" PRIu64 ": tensor %s is neither NAME" A " nor NAME" B
                          ", expected low-rank sums of the layers' matrices and nothing else", t->offset, t->name);
    key_of(key, t->name, arch);
    if (!qr_map_add(&st->by_name, qr_stored_list_name(&st->list, key, strlen(key)), strlen(key), st->list.n - 1))
        return qr_err_set(err, QR_E_DAMAGED, "byte %" PRIu64 ": tensor %s is there twice", t->offset, t->name);
    return 0;
}

/* A stack of experts' has three dimensions, the rank in the same places. */
static int64_t rank_of(const struct qr_stored_tensor *t)
{
    return ends_with(t->name, A) ? t->shape[t->n_dims - 2] : t->shape[t->n_dims - 1];
}

static int check_half(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, const char *arch, struct qr_err *err)
{
    char other[QR_STORED_NAME_MAX], key[QR_STORED_NAME_MAX];
    const bool a = ends_with(t->name, A);
    snprintf(other, sizeof other, "%.*s%s", (int)(strlen(t->name) - strlen(A)), t->name, a ? B : A);
    key_of(key, other, arch);
    const struct qr_stored_tensor *o = qr_tensor_files_find(st, key);
    if (!o)
        return qr_err_set(err, QR_E_DAMAGED, "tensor %s is missing, expected it beside %s", other, t->name);
    const bool embeds = strncmp(t->name, "token_embd.", strlen("token_embd.")) == 0; /* whose halves lie the other way round; refused later */
    if (!a || embeds || rank_of(t) == rank_of(o))
        return 0;
    return qr_err_set(err, QR_E_DAMAGED, "tensor %s has rank %" PRId64 " and %s has %" PRId64 ", expected the same", t->name, rank_of(t), other, rank_of(o));
}

int qr_lora_gguf_read(struct qr_lora_gguf *out, struct qr_tensor_files *st, const struct qr_gguf *g, struct qr_err *err)
{
    QR_ASSERT(out != NULL && st != NULL && st->n_shards == 1);
    QR_ASSERT(g != NULL && err != NULL);
    const int32_t n = qr_gguf_n_tensors(g);
    *out = (struct qr_lora_gguf){0};
    int rc = read_keys(out, g, err);
    for (int32_t i = 0; rc == 0 && i < n; i++)
        rc = add_tensor(st, qr_gguf_tensor_at(g, i), out->arch, err);
    for (int32_t i = 0; rc == 0 && i < n; i++)
        rc = check_half(st, qr_tensor_files_at(st, i), out->arch, err);
    return rc ? qr_err_prefix(err, "%s: ", qr_tensor_files_shard_name(st, 0)) : 0;
}

int qr_lora_gguf_fit(const struct qr_lora_gguf *a, struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err)
{
    QR_ASSERT(a != NULL && st != NULL);
    QR_ASSERT(c != NULL && err != NULL);
    char matrix[QR_STORED_NAME_MAX], name[QR_STORED_NAME_MAX];
    const char *arch = qr_gguf_arch_name(c->arch);
    if (strcmp(a->arch, arch) != 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: key general.architecture is \"%s\", expected \"%s\", which the model is", qr_tensor_files_shard_name(st, 0),
                          a->arch, arch);
    for (int32_t i = 0; i < st->list.n; i++) {
        struct qr_stored_tensor *t = &st->list.item[i];
        const bool b = ends_with(t->name, B) && matrix_of(matrix, t->name) && ends_with(matrix, WEIGHT);
        const char which = b ? qr_gguf_tensor_name(name, matrix, qr_family_of(c->arch)) : 0;
        const int32_t heads = which == 'q' ? c->n_heads : which == 'k' ? c->n_kv_heads : 0;
        t->heads = heads > 0 && t->n_dims == 2 && t->shape[0] > 0 && t->shape[0] % ((int64_t)2 * heads) == 0 ? heads : 0; /* else its shape is refused */
    }
    return 0;
}
