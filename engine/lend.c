/* lend.c - blocks for peers: copied out between steps, in order, as far as they are here; told of while a request inside computes them; and prompts that are
 * computed for no one else.
 *
 * A request computes what is asked when the wanted name is one of its prompt's and it has not come so far. One that waits for a peer itself does not count,
 * so two processes never wait for each other. What a lend is answered with is a copy: a block that is evicted meanwhile ends the answer, nothing else.
 *
 * Thread: the engine's, between steps, but for qr_lends_compute, which is the exchange's thread. */
#include <string.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/exchange_parts.h"

#define TELL_US 100000
#define TELL_BLOCKS 4096 /* so many are looked for at most, which a peer may have named */
#define EXPECT_US 500000 /* how long a request that the peer has been promised may take to come in */

void qr_lends_take(struct qr_engine *e, struct qr_node *asked)
{
    struct qr_outside *x = e->outside;
    struct qr_node *node;
    QR_ASSERT(x != NULL && asked != NULL);
    for (int32_t i = 0; (node = qr_list_pop_front(asked)) != NULL;) {
        QR_ASSERT(x->n_lends < QR_LENDS_MAX);
        while (x->lending[i].lend)
            i++;
        x->lending[i] = (struct qr_lending){.lend = QR_CONTAINER(node, struct qr_lend, link), .searched = UINT64_MAX};
        x->lending[i].lend->engine = &x->lending[i];
        x->n_lends++;
    }
}

void qr_lends_end(struct qr_engine *e)
{
    struct qr_outside *x = e->outside;
    QR_ASSERT(x != NULL);
    QR_ASSERT(x->n_lends >= 0);
    memset(x->lending, 0, sizeof x->lending);
    x->n_lends = 0;
}

/* ---- which request computes a block ---- */

static bool same(const struct qr_kv_name *a, const struct qr_kv_name *b)
{
    return memcmp(a->byte, b->byte, sizeof a->byte) == 0;
}

/* Whether the request at slot `index` will have computed block i of its prompt, and has not yet. */
static bool will_compute(const struct qr_engine *e, int32_t index, int32_t i)
{
    const struct qr_seq *q = qr_sched_seq(e->sched, index);
    const struct qr_hold *h = &e->outside->hold[index];
    return q->n_computed < (i + 1) * e->limits.block_tokens && !(h->req && h->asked_peers);
}

static bool is_inside(const struct qr_engine *e, const struct qr_lending *l)
{
    return l->req && e->slot[l->index].req == l->req && e->slot[l->index].choice == 0 && l->req->id == l->id;
}

/* Looks through all requests for the name of block `at`; their first blocks are tried at the same place first. */
static void find_request(struct qr_engine *e, struct qr_lending *l, int32_t at)
{
    const struct qr_kv_name *name = &l->lend->names[at];
    l->req = NULL;
    l->searched = e->outside->n_admitted;
    for (int32_t s = 0; s < e->n_slots && !l->req; s++) {
        const struct qr_request *r = e->slot[s].choice == 0 ? e->slot[s].req : NULL;
        for (int32_t i = 0; r && i < r->n_names; i++) {
            if (!same(&r->names[i], name))
                continue;
            if (will_compute(e, s, i)) {
                l->req = r;
                l->id = r->id;
                l->index = s;
                l->shift = i - at;
            }
            break;
        }
    }
}

/* Whether block `at`, the first that is not here, is being computed, or a request that is to compute it is about to come in. */
static bool is_computing(struct qr_engine *e, struct qr_lending *l, int32_t at, int64_t now)
{
    const struct qr_lend *lend = l->lend;
    const int32_t i = at + l->shift;
    if (is_inside(e, l) && i < l->req->n_names && same(&l->req->names[i], &lend->names[at]) && will_compute(e, l->index, i))
        return true;
    if (l->req || l->searched != e->outside->n_admitted) /* else nothing has come in since the last search */
        find_request(e, l, at);
    return l->req || (lend->expected && now - lend->since_us < EXPECT_US);
}

/* ---- answers ---- */

/* The prompt that was computed for this lend alone has no use any more. */
static void forget(struct qr_engine *e, const struct qr_lend *lend)
{
    for (int32_t s = 0; s < e->n_slots; s++) {
        struct qr_request *r = e->slot[s].req;
        if (!r || !r->internal || r->lend != lend)
            continue;
        r->lend = NULL;
        qr_engine_cancel(e, r);
    }
}

static void answer(struct qr_engine *e, struct qr_lending *l)
{
    struct qr_lend *lend = l->lend;
    forget(e, lend);
    *l = (struct qr_lending){0};
    e->outside->n_lends--;
    qr_exchange_answered(e->outside->peers, lend);
}

/* Copies what is here; false: it has to go on in another turn. */
static bool copy_out(struct qr_engine *e, struct qr_lend *lend, int64_t *budget)
{
    struct qr_outside *x = e->outside;
    while (lend->next < lend->n) {
        const int32_t b = qr_kv_name_find(e->pool, &lend->names[lend->next]);
        if (b < 0)
            return true;
        struct qr_parcel *p = *budget > 0 ? qr_exchange_parcel(x->peers, lend) : NULL;
        if (!p)
            return false;
        p->lend = lend;
        p->index = lend->next;
        p->name = lend->names[lend->next++];
        memcpy(p->bytes, qr_outside_block(e, b), x->block_bytes);
        *budget -= (int64_t)x->block_bytes;
        qr_exchange_send(x->peers, p);
    }
    return true;
}

/* The first block that is not here, of those that are looked for. */
static int32_t find_missing(const struct qr_engine *e, const struct qr_lend *lend)
{
    int32_t at = lend->next;
    while (at < lend->n && at < lend->next + TELL_BLOCKS && qr_kv_name_find(e->pool, &lend->names[at]) >= 0)
        at++;
    return at;
}

static void tell(struct qr_engine *e, struct qr_lending *l, bool computing, int64_t now)
{
    if (l->told_us > 0 && now - l->told_us < TELL_US && l->told_computing == computing)
        return;
    l->told_us = now;
    l->told_computing = computing;
    qr_exchange_tell(e->outside->peers, l->lend, find_missing(e, l->lend), computing);
}

/* Before any is copied: how many there are, and whether more will be. */
static void tell_first(struct qr_engine *e, struct qr_lending *l, int64_t now)
{
    const struct qr_lend *lend = l->lend;
    const int32_t at = find_missing(e, lend);
    tell(e, l, at < lend->n && (at == lend->next + TELL_BLOCKS || is_computing(e, l, at, now)), now);
}

static void serve(struct qr_engine *e, struct qr_lending *l, int64_t *budget, int64_t now)
{
    struct qr_lend *lend = l->lend;
    const bool early = l->told_us == 0 && lend->prompt.ids; /* the request for its prompt is inside by the next turn, and has to end with the answer */
    if (l->told_us == 0)
        tell_first(e, l, now);
    if (atomic_load(&lend->gone) && !early) {
        answer(e, l);
        return;
    }
    const bool all = copy_out(e, lend, budget), waits = all && lend->next < lend->n;
    const bool computing = waits && is_computing(e, l, lend->next, now), over = lend->next == lend->n || (waits && !computing);
    if (over && !early)
        answer(e, l);
    else if (!over)
        tell(e, l, computing || !all, now);
}

void qr_lends_look(struct qr_engine *e, int64_t *budget, int64_t now)
{
    struct qr_outside *x = e->outside;
    QR_ASSERT(x != NULL && x->n_lends >= 0);
    QR_ASSERT(budget != NULL);
    for (int32_t i = 0, left = x->n_lends; left > 0; i++) {
        QR_ASSERT(i < QR_LENDS_MAX);
        if (!x->lending[i].lend)
            continue;
        left--;
        serve(e, &x->lending[i], budget, now);
    }
}

/* ---- prompts that are computed for peers ---- */

int qr_lends_compute(void *engine, struct qr_lend *lend, struct qr_err *err)
{
    struct qr_engine *e = engine;
    QR_ASSERT(e != NULL && lend != NULL && err != NULL);
    QR_ASSERT(lend->prompt.ids != NULL && lend->prompt.n_ids >= 1);
    const struct qr_exchange_prompt *p = &lend->prompt;
    struct qr_account account;
    struct qr_sampling nothing;
    uint64_t adapter = 0;
    if ((p->adapter.lo | p->adapter.hi) && (adapter = qr_adapters_find_hash(&e->adapters, p->adapter)) == 0)
        return qr_err_set(err, QR_E_NOT_FOUND, "the prompt is for an adapter that is not loaded here");
    qr_sampling_init(&nothing);
    nothing.max_tokens = 0;
    qr_account_init(&account, NULL); /* a prompt that there is no memory for is refused */
    struct qr_account *before = qr_account_enter(&account);
    struct qr_request *r = qr_request_new(&nothing, p->ids, p->n_ids, 1);
    int rc = r ? 0 : qr_err_set(err, QR_E_BUSY, "there is no memory for the prompt");
    if (r) {
        r->internal = true;
        r->lend = lend;
        r->salt = p->salt;
        r->adapter = adapter;
        r->arrived_us = qr_clock_us();
        rc = qr_engine_submit(e, r, err);
    }
    if (rc != 0)
        qr_request_free(r);
    qr_account_leave(before);
    qr_account_close(&account);
    lend->expected |= rc == 0;
    return rc;
}
