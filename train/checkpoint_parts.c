#include "train/checkpoint_parts.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/mem.h"

#define PIECE ((int64_t)(QR_PARTS_PIECE_BYTES / sizeof(float))) /* elements that ranks bring at once */

static void add(struct qr_part *list, int32_t *n, const char *prefix, const struct qr_param *t, enum qr_dtype dtype, void *array)
{
    struct qr_part *part = &list[(*n)++];
    *part = (struct qr_part){.entry = {.dtype = dtype, .n_dims = t->n_dims, .shape = {t->shape[0], t->shape[1]}}, .array = array, .first = t->first,
                             .data = (char *)array + (size_t)t->first * qr_dtype_bytes(dtype), .param = t};
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
            add(list, &n, "", t, QR_BF16, p->half);
        else
            add(list, &n, "", t, QR_F32, p->value);
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
            add(list, &n, "master.", &p->param[i], QR_F32, p->value);
    for (int32_t i = 0; o && i < p->n_params; i++)
        if (!p->param[i].frozen)
            add(list, &n, "m.", &p->param[i], QR_F32, o->m);
    for (int32_t i = 0; o && i < p->n_params; i++)
        if (!p->param[i].frozen && !(o->muon.region && qr_param_is_layer_matrix(&p->param[i])))
            add(list, &n, "v.", &p->param[i], QR_F32, o->v);
    *out = list;
    return n;
}

/* In pieces that all ranks bring together. */
static int walk_one(const struct qr_checkpoint_source *src, const struct qr_part *part, int (*put)(void *user, const void *bytes, size_t n, struct qr_err *err),
                    void *user, void *piece, struct qr_err *err)
{
    int rc = 0;
    for (int64_t i = 0, n; rc == 0 && i < part->param->n; i += n) {
        n = part->param->n - i < PIECE ? part->param->n - i : PIECE;
        rc = src->bring(src->user, part, i, n, piece, err);
        rc = rc ? rc : put(user, piece, (size_t)n * qr_dtype_bytes(part->entry.dtype), err);
    }
    return rc;
}

/* A whole tensor; through a piece of memory where the host cannot read it in place. */
static int put_part(const struct qr_backend *be, const struct qr_part *part, int (*put)(void *user, const void *bytes, size_t n, struct qr_err *err),
                    void *user, struct qr_err *err)
{
    const size_t total = qr_st_entry_bytes(&part->entry), piece = be->mem->host ? total : PIECE * sizeof(float);
    void *room = be->mem->host ? NULL : be->mem->host_alloc(piece);
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < total; at += piece) {
        const size_t n = total - at < piece ? total - at : piece;
        rc = put(user, qr_backend_read(be, room, (const char *)part->data + at, n), n, err);
    }
    be->mem->host_free(room);
    return rc;
}

int qr_parts_walk(const struct qr_checkpoint_source *src, const struct qr_part *part, int32_t n,
                  int (*put)(void *user, const void *bytes, size_t n, struct qr_err *err), void *user, struct qr_err *err)
{
    QR_ASSERT(src != NULL && put != NULL && err != NULL);
    QR_ASSERT(n == 0 || part != NULL);
    void *piece = src->bring ? qr_alloc(PIECE, sizeof(float)) : NULL;
    int rc = 0;
    for (int32_t i = 0; rc == 0 && i < n; i++)
        rc = piece ? walk_one(src, &part[i], put, user, piece, err) : put_part(src->params->be, &part[i], put, user, err);
    qr_free(piece);
    return rc;
}

const char *qr_optim_kind(const struct qr_optim *o)
{
    QR_ASSERT(o != NULL);
    QR_ASSERT(o->params != NULL);
    return o->c.kind == QR_OPTIMIZER_MUON ? "muon" : "adamw";
}
