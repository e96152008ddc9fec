#include "train/checkpoint_parts.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/mem.h"

static void add(struct qr_part *list, int32_t *n, const char *prefix, const struct qr_param *t, enum qr_dtype dtype, void *data)
{
    struct qr_part *part = &list[(*n)++];
    *part = (struct qr_part){.entry = {.dtype = dtype, .n_dims = t->n_dims, .shape = {t->shape[0], t->shape[1]}}, .data = data};
    snprintf(part->name, sizeof part->name, "%s%s", prefix, t->name);
    part->entry.name = part->name;
}

/* A matrix that is computed with as a rounded copy of its master. */
static bool is_rounded(const struct qr_params *p, const struct qr_param *t)
{
    return p->half && t->n_dims == 2 && !t->extra;
}

int32_t qr_parts_of_model(struct qr_part **out, const struct qr_params *p)
{
    QR_ASSERT(out != NULL && p != NULL);
    QR_ASSERT(p->real == QR_F32);
    struct qr_part *list = qr_alloc((size_t)p->n_params, sizeof *list);
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_params; i++) {
        const struct qr_param *t = &p->param[i];
        if (t->extra)
            continue;
        if (is_rounded(p, t))
            add(list, &n, "", t, QR_BF16, p->half + t->first);
        else
            add(list, &n, "", t, QR_F32, (float *)p->value + t->first);
    }
    *out = list;
    return n;
}

int32_t qr_parts_of_optim(struct qr_part **out, const struct qr_params *p, const struct qr_optim *o)
{
    QR_ASSERT(out != NULL && p != NULL);
    QR_ASSERT(p->real == QR_F32 && (!o || o->params == p));
    struct qr_part *list = qr_alloc((size_t)p->n_params * 3, sizeof *list);
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_params; i++)
        if (is_rounded(p, &p->param[i]) || p->param[i].extra)
            add(list, &n, "master.", &p->param[i], QR_F32, (float *)p->value + p->param[i].first);
    for (int32_t i = 0; o && i < p->n_params; i++)
        if (!p->param[i].frozen)
            add(list, &n, "m.", &p->param[i], QR_F32, (float *)o->m + p->param[i].first);
    for (int32_t i = 0; o && i < p->n_params; i++)
        if (!p->param[i].frozen && !(o->muon.region && qr_param_is_layer_matrix(&p->param[i])))
            add(list, &n, "v.", &p->param[i], QR_F32, (float *)o->v + p->param[i].first);
    *out = list;
    return n;
}

const char *qr_optim_kind(const struct qr_optim *o)
{
    QR_ASSERT(o != NULL);
    QR_ASSERT(o->params != NULL);
    return o->c.kind == QR_OPTIMIZER_MUON ? "muon" : "adamw";
}
