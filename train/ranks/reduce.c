#include "train/ranks/reduce.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define ITEM 65536 /* elements of a worker at a time */
#define ROW 1024   /* elements of a row, where a device adds */

/* ---- arrays ---- */

enum what { ADD, MOVE, ZERO };

struct job {
    enum what what;
    float *to, *from;
    int64_t n;
};

static void job_item(const void *arg, int32_t item, int32_t worker)
{
    const struct job *j = arg;
    const int64_t first = (int64_t)item * ITEM, n = j->n - first < ITEM ? j->n - first : ITEM;
    float *restrict to = j->to + first, *restrict from = j->what == ZERO ? NULL : j->from + first;
    for (int64_t i = 0; j->what == ADD && i < n; i++)
        to[i] += from[i];
    if (j->what == MOVE)
        qr_copy(to, from, (size_t)n * sizeof *to);
    if (j->what != ADD)
        memset(j->what == MOVE ? from : to, 0, (size_t)n * sizeof *to);
}

/* The same on a device. */
static void run_there(const struct qr_backend *be, enum what what, float *to, float *from, int64_t n)
{
    const int64_t whole = n / ROW, rest = n % ROW;
    const size_t n_bytes = (size_t)n * sizeof *to;
    QR_ASSERT(whole <= INT32_MAX);
    const struct qr_add_args rows = {.x = to, .delta = from, .x_stride = ROW, .delta_stride = ROW, .n_rows = (int32_t)whole, .n_cols = ROW};
    const struct qr_add_args last = {.x = to + n - rest, .delta = from ? from + n - rest : NULL, .x_stride = rest, .delta_stride = rest, .n_rows = 1,
                                     .n_cols = (int32_t)rest};
    if (what == ADD && whole > 0)
        be->k->residual_add(be->queue, &rows);
    if (what == ADD && rest > 0)
        be->k->residual_add(be->queue, &last);
    if (what == MOVE)
        be->mem->copy(be->queue, to, n_bytes, from, n_bytes, n_bytes, 1);
    if (what != ADD)
        be->mem->zero(be->queue, what == MOVE ? from : to, n_bytes);
}

static void run(const struct qr_reduce *r, enum what what, float *to, float *from, int64_t a, int64_t b)
{
    if (b > a && !r->p->be->mem->host) {
        run_there(r->p->be, what, to + a, from ? from + a : NULL, b - a);
        return;
    }
    const struct job j = {what, to + a, from ? from + a : NULL, b - a};
    if (b > a)
        qr_backend_run(r->p->be, job_item, &j, (int32_t)((b - a + ITEM - 1) / ITEM));
}

/* The counter: a leaf behind k others closes as many pairs as k has ones at its end; what is then there waits for the next, the last sum stays. */
static void count_leaf(struct qr_reduce *r, int64_t a, int64_t b)
{
    float *grad = r->p->grad;
    int32_t level = 0;
    for (; r->leaf >> level & 1; level++)
        run(r, ADD, grad, r->level[level], a, b);
    if (r->leaf < r->n_leaves - 1)
        run(r, MOVE, r->level[level], grad, a, b);
}

/* ---- units ---- */

static void own(const struct qr_reduce *r, int32_t u, int64_t *a, int64_t *b)
{
    *a = qr_shares_begin(r->shares, u, r->shares->rank);
    *b = qr_shares_begin(r->shares, u, r->shares->rank + 1);
}

/* Beside what the queue is given from now on. */
static void start_there(struct qr_reduce *r, float *grad, int64_t n)
{
    const struct qr_device_comm *d = r->link->devices;
    QR_ASSERT(!r->parts);
    d->ops->aside(d->peers, true);
    d->ops->sum(d->peers, grad, n);
    d->ops->aside(d->peers, false);
}

static void start(struct qr_reduce *r, int32_t u)
{
    const int64_t first = r->shares->first[u];
    if (r->link->devices) {
        start_there(r, (float *)r->p->grad + first, r->shares->first[u + 1] - first);
        r->ticket[r->n_flight] = -1;
        r->flight[r->n_flight++] = u;
        return;
    }
    int64_t part[QR_COMM_RANKS_MAX + 1];
    for (int32_t k = 0; k <= r->shares->size; k++)
        part[k] = qr_shares_begin(r->shares, u, k) - first;
    const struct qr_comm_call call = {.kind = r->parts ? QR_COMM_REDUCE_SCATTER : QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = (float *)r->p->grad + first,
                                      .n = r->shares->first[u + 1] - first, .part = r->parts ? part : NULL};
    r->ticket[r->n_flight] = r->shares->size > 1 ? qr_link_start(r->link, &call) : -1;
    r->flight[r->n_flight++] = u;
}

/* The oldest unit has arrived. */
static void settle(struct qr_reduce *r)
{
    const int32_t u = r->flight[0];
    int64_t a, b;
    qr_link_wait(r->link, r->ticket[0]);
    r->n_flight--;
    memmove(r->flight, r->flight + 1, (size_t)r->n_flight * sizeof *r->flight);
    memmove(r->ticket, r->ticket + 1, (size_t)r->n_flight * sizeof *r->ticket);
    own(r, u, &a, &b);
    if (r->in_turn) {
        qr_shares_drop_foreign(r->shares, r->p->grad, sizeof(float), r->shares->first[u], r->shares->first[u + 1]);
        count_leaf(r, a, b);
    } else if (r->parts) {
        run(r, ZERO, r->p->grad, NULL, r->shares->first[u], a);
        run(r, ZERO, r->p->grad, NULL, b, r->shares->first[u + 1]);
    }
}

void qr_reduce_unit(struct qr_reduce *r, int32_t unit)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(unit >= 0 && unit < r->n_units);
    if (!r->closes)
        return;
    if (!r->in_turn)
        count_leaf(r, r->shares->first[unit], r->shares->first[unit + 1]);
    if (!r->in_turn && r->leaf < r->n_leaves - 1)
        return;
    start(r, unit);
    while (r->in_turn && r->n_flight > QR_REDUCE_FLIGHT)
        settle(r);
}

void qr_reduce_micro(struct qr_reduce *r, int32_t leaf, bool closes)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(leaf >= 0 && leaf < r->n_leaves && r->n_flight == 0);
    r->leaf = leaf;
    r->closes = closes;
}

void qr_reduce_micro_ends(struct qr_reduce *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(r->n_flight >= 0 && r->n_flight <= r->n_units);
    if (r->n_flight > 0 && r->link->devices) {
        const struct qr_device_comm *d = r->link->devices;
        d->ops->join(d->peers);
        r->p->be->mem->start(r->p->be->queue); /* ranks wait for each other next */
        qr_link_look(r->link);
    }
    while (r->n_flight > 0)
        settle(r);
    r->closes = false; /* any other backward pass has its gradients where they are */
}

/* ---- opening ---- */

void qr_reduce_open(struct qr_reduce *r, struct qr_link *link, struct qr_params *p, const struct qr_shares *shares, bool parts, bool in_turn,
                    int32_t n_leaves)
{
    QR_ASSERT(r != NULL && link != NULL && p != NULL && shares != NULL);
    QR_ASSERT(p->real == QR_F32 && n_leaves > 0 && (n_leaves & (n_leaves - 1)) == 0 && (parts || !in_turn));
    *r = (struct qr_reduce){.link = link, .p = p, .shares = shares, .parts = parts, .in_turn = in_turn, .n_leaves = n_leaves};
    r->n_units = QR_UNIT_LAYER + shares->n_layers;
    r->flight = qr_alloc((size_t)r->n_units, sizeof *r->flight);
    r->ticket = qr_alloc((size_t)r->n_units, sizeof *r->ticket);
    for (; 1 << r->n_levels < n_leaves; r->n_levels++) {
        QR_ASSERT(r->n_levels < QR_REDUCE_LEVELS_MAX);
        r->level[r->n_levels] = p->be->mem->alloc((size_t)p->n * sizeof(float));
        if (in_turn)
            qr_shares_cut(shares, r->level[r->n_levels], sizeof(float));
    }
}

void qr_reduce_close(struct qr_reduce *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(r->n_levels >= 0);
    for (int32_t i = 0; i < r->n_levels; i++)
        r->p->be->mem->free(r->level[i]);
    qr_free(r->flight);
    qr_free(r->ticket);
    *r = (struct qr_reduce){0};
}
