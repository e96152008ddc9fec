/* prune.c - masks of the smallest weights, one bit each, made once from the starting values. Pruned weights are 0 in
 * masters, in rounded copies and in saved files, and their gradients are 0 before the norm is taken. Masks follow from
 * the settings and the starting model, so a resumed run has the same. Items of the pool own whole words of bits. The
 * trainer's thread. */
#include "train/variants/prune.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define GROUP 4       /* of a 2:4 pattern */
#define GROUP_PRUNED 2
#define INF_BITS 0x7f800000u
#define ITEM 65536     /* gradients of a worker at a time */

struct prune {
    const struct qr_train_config *c; /* borrowed */
    uint8_t *mask;                   /* owned [params' n / 8]: a bit for each element of the arrays; NULL until weights are there */
};

struct clear {
    const uint8_t *mask;
    float *grad;
    int64_t n;
};

bool qr_prune_wanted(const struct qr_train_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->prune.kind >= QR_PRUNE_NONE && c->prune.kind <= QR_PRUNE_2_4);
    return c->prune.kind != QR_PRUNE_NONE;
}

static bool takes(const struct qr_param *t)
{
    return !t->frozen && qr_param_is_layer_matrix(t);
}

/* ---- masks ---- */

/* Bits of non-negative floats are in the order of their values. */
static uint32_t magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

static int64_t count_below(const float *w, int64_t n, uint32_t limit)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += magnitude(w[i]) < limit;
    return count;
}

/* The largest magnitude that no more than n_pruned are below: halving of the interval of all floats. */
static uint32_t border(const float *w, int64_t n, int64_t n_pruned)
{
    uint32_t low = 0, high = INF_BITS + 1;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (count_below(w, n, middle) <= n_pruned)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void set(uint8_t *mask, int64_t i)
{
    mask[i / 8] = (uint8_t)(mask[i / 8] | 1u << (i % 8));
}

static bool is_set(const uint8_t *mask, int64_t i)
{
    return mask[i / 8] >> (i % 8) & 1;
}

void qr_prune_smallest(uint8_t *mask, int64_t first, const float *w, int64_t n, int64_t n_pruned)
{
    QR_ASSERT(mask != NULL && w != NULL);
    QR_ASSERT(first >= 0 && n_pruned >= 0 && n_pruned <= n);
    const uint32_t limit = border(w, n, n_pruned);
    int64_t equal = n_pruned - count_below(w, n, limit); /* so many of those at the border */
    for (int64_t i = 0; i < n; i++) {
        const uint32_t m = magnitude(w[i]);
        if (m < limit || (m == limit && equal-- > 0))
            set(mask, first + i);
    }
}

static void mask_tensor(struct prune *u, const struct qr_params *p, const struct qr_param *t)
{
    const float *w = (const float *)p->value + t->first;
    if (u->c->prune.kind == QR_PRUNE_UNSTRUCTURED) {
        qr_prune_smallest(u->mask, t->first, w, t->n, (int64_t)(u->c->prune.fraction * (double)t->n));
        return;
    }
    for (int64_t i = 0; i < t->n; i += GROUP)
        qr_prune_smallest(u->mask, t->first + i, w + i, GROUP, GROUP_PRUNED);
}

/* Zeroes what is pruned of a tensor; whether anything was not zero. */
static bool apply_tensor(const struct prune *u, struct qr_params *p, const struct qr_param *t)
{
    float *value = p->value;
    bool changed = false;
    for (int64_t i = t->first; i < t->first + t->n; i++) {
        if (!is_set(u->mask, i))
            continue;
        changed |= magnitude(value[i]) != 0 || (p->half && p->half[i] != 0);
        value[i] = 0;
        if (p->half)
            p->half[i] = 0;
    }
    return changed;
}

static bool apply(const struct prune *u, struct qr_params *p)
{
    bool changed = false;
    for (int32_t k = 0; k < p->n_params; k++)
        if (takes(&p->param[k]))
            changed |= apply_tensor(u, p, &p->param[k]);
    return changed;
}

/* ---- the variant ---- */

static int plan(void *user, struct qr_params *p, struct qr_tape_options *tape, struct qr_train_plan *plan, struct qr_err *err)
{
    const struct prune *u = user;
    int32_t n = 0;
    for (int32_t k = 0; k < p->n_params; k++) {
        const struct qr_param *t = &p->param[k];
        const int64_t unit = u->c->prune.kind == QR_PRUNE_2_4 ? GROUP : 1;
        n += takes(t);
        if (takes(t) && t->shape[1] % unit != 0)
            return qr_err_set(err, QR_E_USAGE, "prune.kind: %s has rows of %lld weights, expected a multiple of 4 by 2:4", t->name, (long long)t->shape[1]);
    }
    if (n == 0)
        return qr_err_set(err, QR_E_USAGE, "prune.kind: every matrix of the layers is frozen (model.freeze): nothing to prune");
    qr_train_plan_add(plan, "pruning masks", (size_t)p->n / 8);
    return 0;
}

/* Starting weights are there: they say what goes. */
static void fresh(void *user, struct qr_params *p)
{
    struct prune *u = user;
    QR_ASSERT(p->real == QR_F32 && p->n % 8 == 0);
    u->mask = qr_alloc((size_t)p->n / 8, 1);
    for (int32_t k = 0; k < p->n_params; k++)
        if (takes(&p->param[k]))
            mask_tensor(u, p, &p->param[k]);
    if (apply(u, p))
        qr_params_pack(p);
}

static int begin(void *user, struct qr_params *p, struct qr_tape *t, struct qr_err *err)
{
    if (apply(user, p))
        return qr_err_set(err, QR_E_INVALID, "the checkpoint has weights that are not 0 where this run prunes: prune.kind, prune.fraction, model.freeze and "
                          "the starting weights must be those that the run began with");
    return 0;
}

/* A stretch of gradients. Without branches: masks are as good as random. */
static void clear_item(const void *arg, int32_t item, int32_t worker)
{
    const struct clear *a = arg;
    const int64_t first = (int64_t)item * ITEM, end = a->n - first < ITEM ? a->n : first + ITEM;
    for (int64_t i = first; i < end; i += 8) {
        const uint32_t byte = a->mask[i / 8];
        uint32_t bits[8];
        if (byte == 0)
            continue;
        memcpy(bits, a->grad + i, sizeof bits);
        for (int k = 0; k < 8; k++)
            bits[k] &= (byte >> k & 1) - 1;
        memcpy(a->grad + i, bits, sizeof bits);
    }
}

static void before_step(void *user, struct qr_params *p)
{
    const struct prune *u = user;
    const struct clear a = {.mask = u->mask, .grad = p->grad, .n = p->n};
    QR_ASSERT(u->mask != NULL && p->n % 8 == 0);
    qr_backend_run(p->be, clear_item, &a, (int32_t)((p->n + ITEM - 1) / ITEM));
}

/* Only for Muon, whose step mixes the elements of a matrix: AdamW leaves a 0 without gradient and moments as it is. */
static void after_step(void *user, struct qr_params *p)
{
    if (apply(user, p))
        qr_params_pack(p);
}

static void end(void *user)
{
    struct prune *u = user;
    qr_free(u->mask);
    qr_free(u);
}

int qr_prune_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL && err != NULL);
    QR_ASSERT(qr_prune_wanted(c));
    char at[400];
    if (c->prune.kind == QR_PRUNE_2_4 && c->prune.fraction != 0.5) /* as written, or not at all */
        return qr_err_set(err, QR_E_USAGE, "%s: %g, but prune.kind 2:4 takes two weights of every four: 0.5",
                          qr_train_config_where(c, "prune.fraction", at), c->prune.fraction);
    struct prune *u = qr_alloc(1, sizeof *u);
    u->c = c;
    *out = (struct qr_train_variant){.name = "prune", .user = u, .plan = plan, .fresh = fresh, .begin = begin, .before_step = before_step,
                                     .after_step = c->optimizer.kind == QR_OPTIMIZER_MUON ? after_step : NULL, .end = end};
    return 0;
}
