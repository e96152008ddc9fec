/* weights_check.c - a model's tensors by name: finding them, whatever their files call them, and checking them against the configuration. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/stores/tensor_files_parts.h"
#include "loader/weight_table.h"
#include "loader/weights.h"

#define NAMES_SHOWN 5

/* ---- names ---- */

#define USUAL (-1) /* naming: the usual one; else an alias' number */

/* The tensor that is usually called `name`, and which of its names it has. */
static const struct qr_stored_tensor *find_from(int32_t *naming, const struct qr_tensor_files *st, enum qr_arch arch, const char *name, int32_t first)
{
    char other[QR_WEIGHT_NAME_MAX];
    const struct qr_stored_tensor *t = first == USUAL ? qr_tensor_files_find(st, name) : NULL;
    *naming = USUAL;
    for (int32_t i = first == USUAL ? 0 : first; !t && qr_weight_alias(other, arch, name, i); i++) {
        t = qr_tensor_files_find(st, other);
        *naming = i;
    }
    return t;
}

const struct qr_stored_tensor *qr_weights_find_named(const struct qr_tensor_files *st, enum qr_arch arch, const char *name)
{
    int32_t naming;
    QR_ASSERT(st != NULL);
    QR_ASSERT(name != NULL);
    return find_from(&naming, st, arch, name, USUAL);
}

const struct qr_stored_tensor *qr_weights_find(const struct qr_weight_walk *k, const struct qr_tensor_files *st, char text[QR_WEIGHT_NAME_MAX])
{
    QR_ASSERT(k != NULL && st != NULL);
    QR_ASSERT(text != NULL);
    return qr_weights_find_named(st, k->c->arch, qr_weight_walk_name(text, k));
}

/* Tensors that say what the configuration says already: rotary frequencies, and GPT-2's masks. In a quantized checkpoint also what activations and cached keys
 * and values would be rounded by, which is not done here. */
static bool is_known(const char *name, const struct qr_model_config *c)
{
    static const char *const parts[] = {"rotary_emb.inv_freq", "rope_freqs.weight", "rope_factors_", ".attn_rot_embd."};
    static const char *const tails[] = {".attn.bias", ".attn.masked_bias"};
    static const char *const rounding[] = {".input_scale", ".input_scale_ub", ".input_zero_point", ".input_global_scale", ".output_scale",
                                           ".output_zero_point", ".q_scale", ".k_scale", ".v_scale", ".k_zero_point", ".v_zero_point"};
    for (int i = 0; i < QR_COUNT(parts); i++)
        if (strstr(name, parts[i]))
            return true;
    for (int i = 0; i < QR_COUNT(tails); i++)
        if (qr_ends_with(name, tails[i]))
            return true;
    for (int i = 0; i < QR_COUNT(rounding) && c->quant.method != QR_QUANT_NONE; i++)
        if (qr_ends_with(name, rounding[i]))
            return true;
    return false;
}

static void mark(bool *used, const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    for (int p = 0; t && p < (t->quantized ? QR_QUANTIZED_PARTS : 1); p++) {
        const struct qr_stored_tensor *part = t->quantized ? qr_quantized_part(t, p) : t;
        if (part)
            used[(part->part_of ? part->part_of : part) - qr_tensor_files_at(st, 0)] = true;
    }
}

/* All of a file's tensors have names of one kind, and none is there under two: else some would be left out of the computation without a word. */
static int check_naming(const struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err)
{
    char name[QR_WEIGHT_NAME_MAX];
    int32_t naming, other, before = 0;
    const struct qr_stored_tensor *const head = qr_weights_find_named(st, c->arch, "lm_head.weight"), *twin, *first = NULL;
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        const struct qr_stored_tensor *t = find_from(&naming, st, c->arch, qr_weight_walk_name(name, &k), USUAL);
        const bool outside = k.row->when == QR_WHEN_UNTIED || k.row->when == QR_WHEN_CLASSIFIER || t == head; /* also where the head is the embedding */
        if (outside || !t)
            continue;
        if ((twin = find_from(&other, st, c->arch, name, naming + 1)) != NULL)
            return qr_err_set(err, QR_E_DAMAGED, "%s is there twice, as %s and as %s; expected one of them", name, t->name, twin->name);
        if (first && naming != before)
            return qr_err_set(err, QR_E_DAMAGED, "names of two kinds are mixed, as %s and %s have them; expected one kind for all tensors", first->name,
                              t->name);
        first = t;
        before = naming;
    }
    return 0;
}

#define COMPARED_ROWS 256

/* Whether two tables of the model's size hold other numbers: by some of their rows, the first and the last among them, as training moves all of a head. */
static bool differ(const struct qr_tensor_files *st, const struct qr_model_config *c, const struct qr_stored_tensor *a, const struct qr_stored_tensor *b)
{
    const struct qr_stored_tensor *const both[2] = {a, b};
    for (int i = 0; i < 2; i++)
        if (!qr_stored_is_plain(both[i]) || !both[i]->type->computable || both[i]->n_dims != 2 || both[i]->shape[0] != c->n_vocab ||
            both[i]->shape[1] != c->n_embd || !qr_tensor_files_there(st, both[i]))
            return false;
    const int64_t n = c->n_vocab < COMPARED_ROWS ? c->n_vocab : COMPARED_ROWS;
    float *row = qr_alloc(2 * (size_t)c->n_embd, sizeof *row);
    bool same = true;
    for (int64_t i = 0; same && i < n; i++) {
        for (int k = 0; k < 2; k++)
            qr_tensor_files_decode(st, both[k], row + (size_t)k * (size_t)c->n_embd, n > 1 ? i * (c->n_vocab - 1) / (n - 1) : 0, 1);
        same = memcmp(row, row + c->n_embd, (size_t)c->n_embd * sizeof *row) == 0;
    }
    qr_free(row);
    return !same;
}

void qr_weights_fit(struct qr_model_config *c, struct qr_tensor_files *st)
{
    int32_t naming = USUAL;
    QR_ASSERT(c != NULL);
    QR_ASSERT(st != NULL);
    struct qr_weight_walk k = qr_weight_walk_begin(c);
    if (!qr_weight_walk_next(&k))
        return;
    const struct qr_stored_tensor *table = find_from(&naming, st, c->arch, k.row->name, USUAL), *head = qr_weights_find_named(st, c->arch, "lm_head.weight");
    if (head && c->tied_head && !c->headless && !qr_tensor_files_are_gguf(st)) {
        if (table)
            c->tied_head = !differ(st, c, table, head);
        else if (!head->quantized)
            qr_map_add(&st->by_name, k.row->name, strlen(k.row->name), (int32_t)(head - qr_tensor_files_at(st, 0)));
    }
    if (table && !head && !c->tied_head && naming == 0)
        c->headless = c->tied_head = true;
}

/* ---- checking ---- */

static int check_present(const struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err)
{
    char name[QR_WEIGHT_NAME_MAX], shown[420] = "";
    int32_t n_missing = 0;
    size_t len = 0;
    if (c->n_layers > qr_tensor_files_count(st)) /* absurd numbers are not walked through */
        return qr_err_set(err, QR_E_DAMAGED, "%d layers by its configuration, but only %d tensors in the files", c->n_layers, qr_tensor_files_count(st));
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        if (k.row->when == QR_WHEN_TIED || qr_weights_find(&k, st, name)) /* a tied head is the embedding, which has a row already */
            continue;
        if (n_missing++ < NAMES_SHOWN && len < sizeof shown)
            len += (size_t)snprintf(shown + len, sizeof shown - len, "%s%s", len ? ", " : "", name);
    }
    if (n_missing == 0)
        return 0;
    return qr_err_set(err, QR_E_DAMAGED, "%d tensor%s missing: %s%s", n_missing, n_missing == 1 ? " is" : "s are", shown,
                      n_missing > NAMES_SHOWN ? ", ..." : "");
}

static int check_tensor(const struct qr_weight_walk *k, const struct qr_tensor_files *st, const struct qr_stored_tensor *t, struct qr_err *err)
{
    const char *file = qr_tensor_files_shard_name(st, t->shard);
    int64_t want[2];
    int32_t n_dims = qr_weight_walk_shape(want, k);
    if (t->quantized && qr_weight_row_transposed(k->row, k->c)) { /* which is a row of codes for each output, in any model */
        const int64_t n_in = want[0];
        want[0] = want[1];
        want[1] = n_in;
    }
    bool same = t->n_dims == n_dims && t->shape[0] == want[0] && (n_dims == 1 || t->shape[1] == want[1]);
    char found[160], expected[160];
    if (!same)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s has shape %s, expected %s%s", file,
                          t->offset, t->name, qr_shape_text(found, sizeof found, t->shape, t->n_dims), qr_shape_text(expected, sizeof expected, want, n_dims),
                          k->row->when == QR_WHEN_CLASSIFIER ? ": a classifier of one label" : " by the configuration");
    if (!t->type->computable)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: byte %" PRIu64 ": tensor %s is stored as %s, expected F32, F16 or BF16%s", file, t->offset, t->name,
                          t->type->name, t->type->blocks ? ", or blocks of Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4" : "");
    if (t->type->blocks && n_dims == 1)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: byte %" PRIu64 ": vector %s is stored as %s, expected F32, F16 or BF16", file, t->offset, t->name,
                          t->type->name);
    return 0;
}

/* AutoGPTQ and others leave a bias of zeros beside every matrix of a model that has none. */
static bool is_bias_of_zeros(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    float some[256];
    bool zeros = qr_ends_with(t->name, ".bias") && t->n_dims == 1 && qr_stored_is_plain(t) && t->type->computable &&
                 qr_tensor_files_there(st, t);
    for (int64_t at = 0; zeros && at < t->shape[0]; at += QR_COUNT(some)) {
        const int64_t n_some = t->shape[0] - at < QR_COUNT(some) ? t->shape[0] - at : QR_COUNT(some);
        qr_tensor_files_decode(st, t, some, at, n_some);
        for (int64_t i = 0; zeros && i < n_some; i++)
            zeros = some[i] == 0;
    }
    return zeros;
}

/* A tensor that the configuration says does not exist would be left out of the computation without a word. */
static int check_contradictions(const struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err)
{
    char name[QR_WEIGHT_NAME_MAX];
    struct qr_weight_walk k = qr_weight_walk_begin(c);
    for (k.all = true; qr_weight_walk_next(&k);) {
        const bool head = k.row->when == QR_WHEN_UNTIED || k.row->when == QR_WHEN_TIED || k.row->when == QR_WHEN_CLASSIFIER;
        const struct qr_stored_tensor *t = head || qr_weight_row_holds(k.row, c, k.layer) ? NULL : qr_weights_find(&k, st, name);
        if (!t || is_bias_of_zeros(st, t))
            continue;
        return qr_err_set(err, QR_E_DAMAGED, "the weights hold %s, but config.json says that %s has no such tensor (see "
                          "attention_bias and mlp_bias)", name, c->arch_name);
    }
    return 0;
}

/* The first of *n tensors without a place in the model; NULL: there is none. images: also those of what sees images. */
static const struct qr_stored_tensor *find_unplaced(int32_t *n, const struct qr_tensor_files *st, const struct qr_model_config *c, bool images)
{
    const struct qr_stored_tensor *first = NULL;
    bool *used = qr_alloc((size_t)qr_tensor_files_count(st) + 1, sizeof *used);
    char name[QR_WEIGHT_NAME_MAX];
    struct qr_weight_walk k = qr_weight_walk_begin(c);
    for (k.all = true; qr_weight_walk_next(&k);)
        mark(used, st, qr_weights_find(&k, st, name));
    *n = 0;
    for (int32_t i = 0; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        if (used[i] || is_known(t->name, c) || (!images && (strncmp(t->name, "v.", 2) == 0 || strncmp(t->name, "mm.", 3) == 0)))
            continue;
        first = first ? first : t;
        ++*n;
    }
    qr_free(used);
    return first;
}

int32_t qr_weights_unused(const struct qr_tensor_files *st, const struct qr_model_config *c, const char **first)
{
    QR_ASSERT(st != NULL && c != NULL);
    QR_ASSERT(first != NULL);
    int32_t n;
    const struct qr_stored_tensor *t = find_unplaced(&n, st, c, true);
    *first = t ? t->name : NULL;
    return n;
}

/* Converters to GGUF write nothing that is not computed with, and what a tensor without a place would change goes unseen: a head's bias, scales beside a
 * matrix, sinks. Only what sees images, which some files have beside the text's, changes nothing. */
static int check_places(const struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err)
{
    int32_t n;
    const struct qr_stored_tensor *t = qr_tensor_files_are_gguf(st) ? find_unplaced(&n, st, c, false) : NULL;
    if (!t)
        return 0;
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s: byte %" PRIu64 ": tensor %s has no place in what is computed for %s here, and without it the model "
                      "would say something else", qr_tensor_files_shard_name(st, t->shard), t->offset, t->name, c->arch_name);
}

int qr_weights_check(const struct qr_tensor_files *st, const struct qr_model_config *c, struct qr_err *err)
{
    QR_ASSERT(st != NULL && c != NULL);
    QR_ASSERT(err != NULL);
    char name[QR_WEIGHT_NAME_MAX];
    int rc = check_present(st, c, err);
    rc = rc ? rc : check_naming(st, c, err);
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); !rc && qr_weight_walk_next(&k);)
        rc = check_tensor(&k, st, qr_weights_find(&k, st, name), err);
    rc = rc ? rc : check_contradictions(st, c, err);
    return rc ? rc : check_places(st, c, err);
}
