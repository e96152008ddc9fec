#include "train/reduce.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define ITEM 65536 /* elements of a worker at a time */

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
    (void)worker;
    for (int64_t i = 0; j->what == ADD && i < n; i++)
        to[i] += from[i];
    if (j->what == MOVE)
        memcpy(to, from, (size_t)n * sizeof *to);
    if (j->what != ADD)
        memset(j->what == MOVE ? from : to, 0, (size_t)n * sizeof *to);
}

static void run(const struct qr_reduce *r, enum what what, float *to, float *from, int64_t a, int64_t b)
{
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

static void start(struct qr_reduce *r, int32_t u)
{
    const int64_t first = r->shares->first[u];
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
    while (r->n_flight > 0)
        settle(r);
    r->closes = false; /* whoever walks back otherwise has his gradients where they are */
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
