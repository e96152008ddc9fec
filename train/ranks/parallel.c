/* parallel.c - one rank's side of a step: its leaves, the sums over ranks, its share of the optimizer's step, values
 * handed on. Gradients are added along one binary tree over leaves, so a step has the same bits for any number of
 * ranks. Rank 0's wish to stop travels with the sums. An error ends the step; the caller then aborts the comm, and all
 * ranks end. One owning thread per rank. */
#include "train/ranks/parallel.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

enum { LOSS, N_TOKENS, FLOPS, N_SUMS };
enum { LOSSES_N, LOSSES_TOKENS, LOSSES /* the first */ };

static bool in_turn(const struct qr_parallel *par)
{
    return par->shard >= QR_SHARD_GRADIENTS;
}

static int32_t own_leaves(const struct qr_parallel *par)
{
    return par->n_leaves / par->comm->size;
}

/* ---- opening ---- */

void qr_parallel_init(struct qr_parallel *par, struct qr_comm *comm, enum qr_shard shard, int32_t n_leaves, int32_t n_micro, const struct qr_params *params)
{
    QR_ASSERT(par != NULL && params != NULL);
    QR_ASSERT(n_leaves > 0 && n_micro > 0 && (n_leaves & (n_leaves - 1)) == 0);
    *par = (struct qr_parallel){.comm = comm, .shard = shard, .n_leaves = n_leaves, .n_micro = n_micro};
    if (!comm) {
        qr_comm_open_single(&par->alone);
        par->comm = &par->alone;
    }
    QR_ASSERT(n_leaves % par->comm->size == 0);
    par->link.comm = par->comm;
    qr_shares_init(&par->shares, params, par->comm->rank, par->comm->size);
    par->gather.link = &par->link;
    par->gather.shares = &par->shares;
    par->gather.shard = shard;
}

static void layer_enters(void *user, int32_t layer, bool back)
{
    struct qr_parallel *par = user;
    if (back && layer == par->shares.n_layers - 1)
        qr_reduce_unit(&par->reduce, QR_UNIT_OUTSIDE); /* norm and head are behind all layers */
    qr_gather_enter(&par->gather, layer, back);
}

static void layer_leaves(void *user, int32_t layer, bool back)
{
    struct qr_parallel *par = user;
    qr_gather_leave(&par->gather, layer, back);
    if (back)
        qr_reduce_unit(&par->reduce, QR_UNIT_LAYER + layer);
}

void qr_parallel_open(struct qr_parallel *par, struct qr_params *params, struct qr_tape *tape, struct qr_optim *optim, int32_t n_tokens_max)
{
    QR_ASSERT(par != NULL && params != NULL && tape != NULL && optim != NULL);
    QR_ASSERT(par->shares.n_units > 0 && n_tokens_max > 0);
    const struct qr_tape_layers layers = {.enter = layer_enters, .leave = layer_leaves, .user = par};
    par->params = params;
    par->optim = optim;
    par->losses_max = n_tokens_max;
    par->losses = qr_alloc((size_t)(n_tokens_max + LOSSES) * (size_t)par->comm->size, sizeof *par->losses);
    par->sums = qr_alloc((size_t)par->n_leaves * N_SUMS + 1, sizeof *par->sums);
    qr_reduce_open(&par->reduce, &par->link, params, &par->shares, par->shard != QR_SHARD_NONE, in_turn(par), own_leaves(par));
    qr_gather_open(&par->gather, params);
    if (par->shard != QR_SHARD_NONE)
        qr_optim_share(optim, par->comm);
    qr_tape_set_layers(tape, &layers);
}

void qr_parallel_close(struct qr_parallel *par)
{
    QR_ASSERT(par != NULL);
    QR_ASSERT(!par->params || par->comm);
    if (par->params) {
        qr_reduce_micro_ends(&par->reduce);
        qr_gather_close(&par->gather);
        qr_reduce_close(&par->reduce);
    }
    qr_shares_release(&par->shares);
    if (par->comm == &par->alone)
        qr_comm_close(&par->alone);
    qr_free(par->sums);
    qr_free(par->losses);
    *par = (struct qr_parallel){0};
}

/* ---- the plan ---- */

/* Gradients that are here only while units are in flight: those that collect from the head's on, and the largest
 * neighbours in the order of the way back. *first: those of its first layer. */
static int64_t passing(const struct qr_parallel *par, const struct qr_params *p, int64_t *first)
{
    const struct qr_shares *s = &par->shares;
    const int64_t pinned = p->config.tied_head ? qr_shares_n_foreign(s, QR_UNIT_EMBED) : 0;
    int64_t most = 0, window[QR_REDUCE_FLIGHT + 1] = {0};
    for (int32_t i = 0; i < QR_UNIT_LAYER + s->n_layers; i++) {
        const int32_t u = i == 0 ? QR_UNIT_OUTSIDE : i <= s->n_layers ? QR_UNIT_LAYER + s->n_layers - i : QR_UNIT_EMBED;
        int64_t sum = pinned;
        window[i % (QR_REDUCE_FLIGHT + 1)] = u == QR_UNIT_EMBED && p->config.tied_head ? 0 : qr_shares_n_foreign(s, u);
        for (int k = 0; k <= QR_REDUCE_FLIGHT; k++)
            sum += window[k];
        most = sum > most ? sum : most;
        if (i == 1)
            *first = sum;
    }
    return most;
}

/* Others' parts of a layer that is computed with and of the one that comes. */
static int64_t visiting(const struct qr_parallel *par)
{
    const struct qr_shares *s = &par->shares;
    int64_t most = 0;
    for (int32_t l = 0; l < s->n_layers; l++) {
        const int64_t n = qr_shares_n_foreign(s, QR_UNIT_LAYER + l);
        most = n > most ? n : most;
    }
    return most * (s->n_layers < 2 ? 1 : 2);
}

/* Elements that are computed with, and bytes of packed matrices. A layer is packed on the way there; on the way back, where products are not computed again,
 * the last one alone still is, at a time when fewer gradients than later are in flight: `later` of them. */
static int64_t computed(const struct qr_parallel *par, const struct qr_params *p, size_t later, size_t *packed)
{
    size_t layer;
    int64_t n = p->n;
    later = par->gather.packs_again ? 0 : later;
    *packed = p->weights.region_bytes;
    if (par->shard != QR_SHARD_FULL)
        return n;
    for (int32_t l = 0; l < par->shares.n_layers; l++)
        n -= qr_shares_n_foreign(&par->shares, QR_UNIT_LAYER + l);
    qr_params_packed(p, -1, packed);
    qr_params_packed(p, 0, &layer);
    *packed += layer > later ? layer - later : 0;
    return n + visiting(par);
}

void qr_parallel_plan(struct qr_train_plan *plan, const struct qr_parallel *par, enum qr_optimizer kind, const struct qr_params *p)
{
    QR_ASSERT(plan != NULL && par != NULL);
    QR_ASSERT(p != NULL && par->shares.n_units > 0);
    const size_t size = qr_dtype_bytes(p->real);
    const int64_t mine = qr_shares_n_own(&par->shares);
    const bool drops = in_turn(par) && par->n_micro == 1;
    size_t packed;
    int64_t first = 0;
    const int64_t travels = drops ? passing(par, p, &first) : 0;
    const int64_t n = computed(par, p, (size_t)(travels - first) * size, &packed), masters = !p->half ? n : par->shard == QR_SHARD_NONE ? p->n : mine;
    int32_t n_levels = 0;
    while (1 << n_levels < own_leaves(par))
        n_levels++;
    qr_train_plan_add(plan, "parameters, f32 masters", (size_t)masters * size);
    qr_train_plan_add(plan, "gradients of parameters", (size_t)(drops ? mine + travels : p->n) * size);
    if (n_levels)
        qr_train_plan_add(plan, "sums of leaves that wait for others", (size_t)(in_turn(par) ? mine : p->n) * size * (size_t)n_levels);
    qr_train_plan_add(plan, "optimizer's moments", qr_optim_bytes(p, kind, par->shard == QR_SHARD_NONE ? NULL : &par->shares));
    if (p->half)
        qr_train_plan_add(plan, "parameters, rounded to bf16", (size_t)n * sizeof *p->half);
    if (p->seen)
        qr_train_plan_add(plan, "matrices as quantized products see them", (size_t)p->n * sizeof *p->seen);
    qr_train_plan_add(plan, "matrices packed for products", packed);
}

/* ---- a step ---- */

void qr_parallel_step(struct qr_parallel *par)
{
    QR_ASSERT(par != NULL);
    QR_ASSERT(par->sums != NULL);
    memset(par->sums, 0, ((size_t)par->n_leaves * N_SUMS + 1) * sizeof *par->sums);
    par->waited = par->comm->stats.waited;
}

int32_t qr_parallel_leaf(const struct qr_parallel *par, int32_t i)
{
    QR_ASSERT(par != NULL);
    QR_ASSERT(i >= 0 && i < own_leaves(par));
    return in_turn(par) ? i * par->comm->size + par->comm->rank : par->comm->rank * own_leaves(par) + i;
}

void qr_parallel_micro(struct qr_parallel *par, int32_t i, int32_t j)
{
    QR_ASSERT(par != NULL);
    QR_ASSERT(j >= 0 && j < par->n_micro);
    qr_reduce_micro(&par->reduce, i, j == par->n_micro - 1);
}

int qr_parallel_micro_ends(struct qr_parallel *par, int32_t i, double loss, int64_t n_tokens, double flops, struct qr_err *err)
{
    QR_ASSERT(par != NULL && err != NULL);
    double *sums = par->sums + (size_t)qr_parallel_leaf(par, i) * 1;
    sums[LOSS * par->n_leaves] = loss;
    sums[N_TOKENS * par->n_leaves] += (double)n_tokens;
    sums[FLOPS * par->n_leaves] += flops;
    qr_reduce_unit(&par->reduce, QR_UNIT_EMBED); /* the last of the way back */
    qr_reduce_micro_ends(&par->reduce);
    return qr_link_error(&par->link, err);
}

double qr_parallel_loss(const struct qr_parallel *par, int32_t i)
{
    QR_ASSERT(par != NULL);
    QR_ASSERT(par->sums != NULL);
    return par->sums[LOSS * par->n_leaves + qr_parallel_leaf(par, i)];
}

int qr_parallel_sum(struct qr_parallel *par, bool stop, struct qr_parallel_sums *out, struct qr_err *err)
{
    QR_ASSERT(par != NULL && out != NULL);
    QR_ASSERT(err != NULL && par->sums != NULL);
    double *s = par->sums, *const flag = s + (size_t)par->n_leaves * N_SUMS;
    *flag = stop && par->comm->rank == 0 ? 1 : 0;
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F64, .data = s, .n = (int64_t)par->n_leaves * N_SUMS + 1};
    if (par->comm->size > 1)
        qr_link_run(&par->link, &call); /* others' are 0: this puts them together */
    *out = (struct qr_parallel_sums){.stop = *flag != 0};
    out->loss = qr_sum_tree(s, par->n_leaves);
    out->n_tokens = (int64_t)qr_sum_tree(s + (size_t)par->n_leaves * N_TOKENS, par->n_leaves);
    out->flops = qr_sum_tree(s + (size_t)par->n_leaves * FLOPS, par->n_leaves);
    return qr_link_error(&par->link, err);
}

int qr_parallel_move(struct qr_parallel *par, double lr, double *norm, struct qr_err *err)
{
    QR_ASSERT(par != NULL && norm != NULL);
    QR_ASSERT(err != NULL && par->optim != NULL);
    if (par->shard == QR_SHARD_NONE)
        return qr_optim_step(par->optim, lr, norm, err);
    int rc = qr_optim_begin(par->optim, lr, norm, err);
    if (rc)
        return rc;
    for (int32_t u = 0; u < par->shares.n_units; u++) {
        qr_optim_move(par->optim, u);
        qr_gather_moved(&par->gather, u);
    }
    qr_gather_all_moved(&par->gather);
    return qr_link_error(&par->link, err);
}

int qr_parallel_losses(struct qr_parallel *par, const double *losses, int32_t n, int64_t n_tokens,
                       void (*fn)(void *user, const double *losses, int32_t n, int64_t n_tokens), void *user, struct qr_err *err)
{
    QR_ASSERT(par != NULL && losses != NULL && fn != NULL);
    QR_ASSERT(n >= 0 && n <= par->losses_max && err != NULL);
    const int64_t each = par->losses_max + LOSSES;
    int64_t part[QR_COMM_RANKS_MAX + 1];
    double *mine = par->losses + each * par->comm->rank;
    for (int32_t r = 0; r <= par->comm->size; r++)
        part[r] = each * r;
    mine[LOSSES_N] = n;
    mine[LOSSES_TOKENS] = (double)n_tokens;
    memcpy(mine + LOSSES, losses, (size_t)n * sizeof *losses);
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_GATHER, .dtype = QR_F64, .data = par->losses, .n = part[par->comm->size], .part = part};
    qr_link_run(&par->link, &call);
    for (int32_t r = 0; par->link.rc == 0 && r < par->comm->size; r++) {
        const double *of = par->losses + each * r;
        fn(user, of + LOSSES, (int32_t)of[LOSSES_N], (int64_t)of[LOSSES_TOKENS]);
    }
    return qr_link_error(&par->link, err);
}

double qr_parallel_waited(const struct qr_parallel *par)
{
    QR_ASSERT(par != NULL);
    QR_ASSERT(par->comm != NULL);
    return par->comm->stats.waited - par->waited;
}
