#include "train/optim.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"

#define CLIP_EPS 1e-6

size_t qr_optim_bytes(const struct qr_params *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n > 0);
    int64_t n = p->n;
    for (int32_t i = 0; i < p->n_params; i++)
        n -= p->param[i].frozen ? p->param[i].n : 0;
    return 2 * (size_t)n * qr_dtype_bytes(p->real) + ((size_t)qr_sum_leaves(p->n) + 1) * sizeof(double);
}

void qr_optim_init(struct qr_optim *o, struct qr_params *p, const struct qr_optim_config *c)
{
    QR_ASSERT(o != NULL && p != NULL && c != NULL);
    QR_ASSERT(c->beta1 >= 0 && c->beta1 < 1 && c->beta2 >= 0 && c->beta2 < 1);
    QR_ASSERT(c->momentum >= 0 && c->momentum < 1);
    QR_ASSERT(c->eps > 0 && c->decay >= 0 && c->clip >= 0);
    const size_t n_bytes = (size_t)p->n * qr_dtype_bytes(p->real);
    *o = (struct qr_optim){.c = *c, .params = p, .m = p->be->mem->alloc(n_bytes), .v = p->be->mem->alloc(n_bytes)};
    if (c->kind == QR_OPTIMIZER_MUON)
        qr_muon_init(&o->muon, p);
    o->leaf = qr_alloc((size_t)qr_sum_leaves(p->n) + 1, sizeof *o->leaf);
}

void qr_optim_release(struct qr_optim *o)
{
    QR_ASSERT(o != NULL);
    QR_ASSERT(o->params != NULL);
    o->params->be->mem->free(o->m);
    o->params->be->mem->free(o->v);
    qr_muon_release(&o->muon);
    qr_free(o->leaf);
    *o = (struct qr_optim){0};
}

/* Element `first` of an array of the parameters' type. */
static void *at(const struct qr_params *p, void *base, int64_t first)
{
    return (char *)base + first * (int64_t)qr_dtype_bytes(p->real);
}

static double norm_of(const struct qr_optim *o, int64_t first, int64_t n)
{
    const struct qr_params *p = o->params;
    double sum;
    const struct qr_sum_squares_args a = {.sum = &sum, .leaf = o->leaf, .x = at(p, p->grad, first), .n = n};
    p->be->b->sum_squares(p->be->queue, &a);
    return sqrt(sum);
}

static int refuse(const struct qr_optim *o, double norm, struct qr_err *err)
{
    const struct qr_params *p = o->params;
    for (int32_t i = 0; i < p->n_params; i++)
        if (!isfinite(norm_of(o, p->param[i].first, p->param[i].n)))
            return qr_err_set(err, QR_E_INVALID, "step %lld: the gradient of %s is not finite; lower the learning rate or look at the data",
                              (long long)o->step + 1, p->param[i].name);
    return qr_err_set(err, QR_E_INVALID, "step %lld: the norm of all gradients is %g; lower the learning rate", (long long)o->step + 1, norm);
}

int qr_optim_step(struct qr_optim *o, double lr, double *norm, struct qr_err *err)
{
    QR_ASSERT(o != NULL && norm != NULL && err != NULL);
    QR_ASSERT(lr >= 0);
    struct qr_params *p = o->params;
    *norm = norm_of(o, 0, p->n);
    if (!isfinite(*norm))
        return refuse(o, *norm, err);
    const double clip = o->c.clip > 0 ? o->c.clip / (*norm + CLIP_EPS) : 1, gscale = clip < 1 ? clip : 1;
    o->step++;
    for (int32_t i = 0; i < p->n_params; i++) {
        const struct qr_param *t = &p->param[i];
        const struct qr_muon_step step = {lr, o->c.momentum, o->c.decay, gscale, o->step, o->c.seed};
        if (t->frozen)
            continue;
        if (o->muon.region && qr_param_is_layer_matrix(t)) {
            qr_muon_move(&o->muon, p, t, at(p, o->m, t->first), &step);
            continue;
        }
        uint16_t *half = p->half && t->n_dims == 2 && !t->extra ? p->half + t->first : NULL; /* vectors are computed with as they are */
        const struct qr_adamw_args a = {.w = at(p, p->value, t->first), .m = at(p, o->m, t->first), .v = at(p, o->v, t->first),
                                        .g = at(p, p->grad, t->first), .half = half, .n = t->n, .first = t->first, .step = o->step, .lr = lr,
                                        .beta1 = o->c.beta1, .beta2 = o->c.beta2, .eps = o->c.eps, .decay = t->decays ? o->c.decay : 0,
                                        .gscale = gscale, .seed = o->c.seed};
        p->be->b->adamw(p->be->queue, &a);
    }
    qr_params_pack(p);
    return 0;
}

double qr_lr_at(const struct qr_lr *lr, int64_t step)
{
    QR_ASSERT(lr != NULL && step >= 0);
    QR_ASSERT(lr->warmup_steps >= 0 && lr->n_steps > 0);
    if (step < lr->warmup_steps)
        return lr->peak * (double)(step + 1) / (double)(lr->warmup_steps + 1);
    const double span = (double)(lr->n_steps - 1 - lr->warmup_steps), gone = (double)(step - lr->warmup_steps);
    const double share = span <= 0 || gone >= span ? 1 : gone / span;
    switch (lr->schedule) {
    case QR_SCHEDULE_CONSTANT: return lr->peak;
    case QR_SCHEDULE_LINEAR: return lr->peak + (lr->last - lr->peak) * share;
    case QR_SCHEDULE_COSINE: return lr->last + (lr->peak - lr->last) * 0.5 * (1 + cos(3.14159265358979323846 * share));
    }
    return lr->peak;
}
