/* optim.c - the optimizer: the norm of all gradients, clipping, AdamW or Muon, the learning rate. The norm is summed by
 * one tree over leaves of 4,096 elements at fixed places, and rounding is a function of (seed, step, index). So threads
 * and ranks do not show in a step. A value that is not finite refuses the step before anything has changed. The
 * trainer's thread; items on the pool. */
#include "train/optim.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"

#define CLIP_EPS 1e-6

/* First or second moments that there are; shares NULL: of a rank that has everything. */
static size_t n_moments(const struct qr_params *p, enum qr_optimizer kind, const struct qr_shares *shares, bool second)
{
    int64_t n = shares ? qr_shares_n_own(shares) : p->n;
    for (int32_t i = 0; i < p->n_params; i++) {
        const struct qr_param *t = &p->param[i];
        int64_t a = t->first, b = a + t->n;
        if (!t->frozen && !(second && kind == QR_OPTIMIZER_MUON && qr_param_is_layer_matrix(t)))
            continue;
        if (!shares || qr_shares_clip(shares, shares->rank, &a, &b))
            n -= b - a;
    }
    return (size_t)n;
}

size_t qr_optim_bytes(const struct qr_params *p, enum qr_optimizer kind, const struct qr_shares *shares)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n > 0);
    struct qr_shares s;
    qr_shares_init(&s, p, 0, 1);
    const int64_t n_leaves = s.leaf[s.n_units];
    qr_shares_release(&s);
    return (n_moments(p, kind, shares, false) + n_moments(p, kind, shares, true)) * qr_dtype_bytes(p->real) + 2 * (size_t)n_leaves * sizeof(double);
}

static void *moments_new(const struct qr_params *p, size_t n)
{
    const size_t n_bytes = (size_t)p->n * qr_dtype_bytes(p->real);
    void *m = p->be->mem->alloc(n_bytes);
    if (p->be->mem->host && n < (size_t)p->n) /* those that are not there lie between others: a huge page would hold both */
        qr_mem_small_pages(m, n_bytes);
    return m;
}

void qr_optim_init(struct qr_optim *o, struct qr_params *p, const struct qr_optim_config *c)
{
    QR_ASSERT(o != NULL && p != NULL && c != NULL);
    QR_ASSERT(c->beta1 >= 0 && c->beta1 < 1 && c->beta2 >= 0 && c->beta2 < 1);
    QR_ASSERT(c->momentum >= 0 && c->momentum < 1);
    QR_ASSERT(c->eps > 0 && c->decay >= 0 && c->clip >= 0);
    *o = (struct qr_optim){.c = *c, .params = p, .m = moments_new(p, n_moments(p, c->kind, NULL, false)),
                            .v = moments_new(p, n_moments(p, c->kind, NULL, true))};
    if (c->kind == QR_OPTIMIZER_MUON)
        qr_muon_init(&o->muon, p);
    qr_shares_init(&o->shares, p, 0, 1);
    o->leaf = p->be->mem->alloc((size_t)o->shares.leaf[o->shares.n_units] * sizeof *o->leaf);
    o->sums = qr_alloc((size_t)o->shares.leaf[o->shares.n_units], sizeof *o->sums);
}

void qr_optim_share(struct qr_optim *o, struct qr_comm *comm)
{
    QR_ASSERT(o != NULL && comm != NULL);
    QR_ASSERT(o->step == 0 && o->c.kind == QR_OPTIMIZER_ADAMW && o->params->real == QR_F32);
    qr_shares_release(&o->shares);
    qr_shares_init(&o->shares, o->params, comm->rank, comm->size);
    o->comm = comm;
    qr_shares_cut(&o->shares, o->m, sizeof(float));
    qr_shares_cut(&o->shares, o->v, sizeof(float));
}

void qr_optim_release(struct qr_optim *o)
{
    QR_ASSERT(o != NULL);
    QR_ASSERT(o->params != NULL);
    o->params->be->mem->free(o->m);
    o->params->be->mem->free(o->v);
    qr_muon_release(&o->muon);
    qr_shares_release(&o->shares);
    o->params->be->mem->free(o->leaf);
    qr_free(o->sums);
    *o = (struct qr_optim){0};
}

/* Element `first` of an array of the parameters' type. */
static void *at(const struct qr_params *p, void *base, int64_t first)
{
    return (char *)base + first * (int64_t)qr_dtype_bytes(p->real);
}

/* Leaves of elements [first, first + n). */
static void sum_leaves(const struct qr_optim *o, double *leaf, int64_t first, int64_t n)
{
    const struct qr_params *p = o->params;
    const struct qr_sum_squares_args a = {.leaf = leaf, .x = at(p, p->grad, first), .n = n};
    p->be->b->sum_squares(p->be->queue, &a);
}

static void get_leaves(const struct qr_optim *o, int64_t n)
{
    const struct qr_backend *be = o->params->be;
    be->mem->get(be->queue, o->sums, o->leaf, (size_t)n * sizeof *o->sums);
}

/* Every rank adds up the leaves of its parts; others' are 0, so that summing over ranks is putting them together. */
static int norm_of_all(struct qr_optim *o, double *norm, struct qr_err *err)
{
    const struct qr_shares *s = &o->shares;
    const struct qr_backend *be = o->params->be;
    const int64_t n_leaves = s->leaf[s->n_units];
    if (o->comm)
        be->mem->zero(be->queue, o->leaf, (size_t)n_leaves * sizeof *o->leaf);
    for (int32_t u = 0; u < s->n_units; u++) {
        const int64_t begin = qr_shares_begin(s, u, s->rank), end = qr_shares_begin(s, u, s->rank + 1);
        if (end > begin)
            sum_leaves(o, o->leaf + s->leaf[u] + (begin - s->first[u]) / QR_SUM_LEAF, begin, end - begin);
    }
    get_leaves(o, n_leaves);
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F64, .data = o->sums, .n = n_leaves};
    int rc = o->comm ? qr_comm_run(o->comm, &call, err) : 0;
    if (rc == 0)
        *norm = sqrt(qr_sum_tree(o->sums, n_leaves));
    return rc;
}

/* The first tensor of which this rank has a gradient that is not finite; their number when there is none. */
static int32_t first_bad(const struct qr_optim *o)
{
    const struct qr_params *p = o->params;
    for (int32_t i = 0; i < p->n_params; i++) {
        int64_t a = p->param[i].first, b = a + p->param[i].n;
        if (!qr_shares_clip(&o->shares, o->shares.rank, &a, &b))
            continue;
        sum_leaves(o, o->leaf, a, b - a);
        get_leaves(o, qr_sum_leaves(b - a));
        if (!isfinite(qr_sum_tree(o->sums, qr_sum_leaves(b - a))))
            return i;
    }
    return p->n_params;
}

static int refuse(const struct qr_optim *o, double norm, struct qr_err *err)
{
    const struct qr_params *p = o->params;
    double bad[QR_COMM_RANKS_MAX] = {0};
    int32_t first = p->n_params;
    bad[o->shares.rank] = first_bad(o);
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F64, .data = bad, .n = o->shares.size};
    int rc = o->comm ? qr_comm_run(o->comm, &call, err) : 0;
    if (rc)
        return rc;
    for (int32_t r = 0; r < o->shares.size; r++)
        first = (int32_t)bad[r] < first ? (int32_t)bad[r] : first;
    if (first < p->n_params)
        return qr_err_set(err, QR_E_INVALID, "step %lld: the gradient of %s is not finite; lower the learning rate or look at the data",
                          (long long)o->step + 1, p->param[first].name);
    return qr_err_set(err, QR_E_INVALID, "step %lld: the norm of all gradients is %g; lower the learning rate", (long long)o->step + 1, fabs(norm));
}

int qr_optim_begin(struct qr_optim *o, double lr, double *norm, struct qr_err *err)
{
    QR_ASSERT(o != NULL && norm != NULL && err != NULL);
    QR_ASSERT(lr >= 0);
    int rc = norm_of_all(o, norm, err);
    if (rc)
        return rc;
    if (!isfinite(*norm))
        return refuse(o, *norm, err);
    const double clip = o->c.clip > 0 ? o->c.clip / (*norm + CLIP_EPS) : 1;
    o->gscale = clip < 1 ? clip : 1;
    o->lr = lr;
    o->step++;
    return 0;
}

/* Elements [a, b) of tensor t. */
static void move_adamw(struct qr_optim *o, struct qr_param *t, int64_t a, int64_t b)
{
    struct qr_params *p = o->params;
    t->stale = !o->comm && !t->extra && b - a == t->n; /* where ranks add to each other's gradients, or no way back writes them, they are zeros */
    uint16_t *half = p->half && t->n_dims == 2 && !t->extra ? p->half + a : NULL; /* vectors are computed with as they are */
    const struct qr_adamw_args args = {.w = at(p, p->value, a), .m = at(p, o->m, a), .v = at(p, o->v, a), .g = at(p, p->grad, a), .half = half,
                                       .n = b - a, .first = a, .step = o->step, .lr = o->lr, .beta1 = o->c.beta1, .beta2 = o->c.beta2,
                                       .eps = o->c.eps, .decay = t->decays ? o->c.decay : 0, .gscale = o->gscale, .seed = o->c.seed,
                                       .leave_g = t->stale};
    p->be->b->adamw(p->be->queue, &args);
}

void qr_optim_move(struct qr_optim *o, int32_t unit)
{
    QR_ASSERT(o != NULL && o->step > 0);
    QR_ASSERT(unit >= 0 && unit < o->shares.n_units);
    struct qr_params *p = o->params;
    const struct qr_muon_step step = {o->lr, o->c.momentum, o->c.decay, o->gscale, o->step, o->c.seed};
    for (int32_t i = 0; i < p->n_params; i++) {
        struct qr_param *t = &p->param[i];
        int64_t a = t->first, b = a + t->n;
        if (t->frozen || a < o->shares.first[unit] || a >= o->shares.first[unit + 1] || !qr_shares_clip(&o->shares, o->shares.rank, &a, &b))
            continue;
        if (o->muon.region && qr_param_is_layer_matrix(t))
            qr_muon_move(&o->muon, p, t, at(p, o->m, t->first), &step);
        else
            move_adamw(o, t, a, b);
    }
}

int qr_optim_step(struct qr_optim *o, double lr, double *norm, struct qr_err *err)
{
    QR_ASSERT(o != NULL && !o->comm);
    QR_ASSERT(norm != NULL && err != NULL);
    int rc = qr_optim_begin(o, lr, norm, err);
    for (int32_t u = 0; rc == 0 && u < o->shares.n_units; u++)
        qr_optim_move(o, u);
    if (rc == 0)
        qr_params_pack(o->params);
    return rc;
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
