/* lend.c - what other processes ask of this one: guests, their questions, and the blocks that the engine thread copies out for them.
 *
 * A lend is with the engine from the question to qr_exchange_answered, whatever becomes of the guest. Where the guest has gone the lend has no connection any
 * more, and its blocks go back where they came from. Blocks of several lends go out in turn. The exchange's thread. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange/conn.h"

enum {
    ACCEPT_PAUSE_US = 100 * 1000, /* where the process has no descriptor left */
    REPEAT_US = 100 * 1000,
    STUCK_US = 2000 * 1000,       /* an engine that computes has done a layer of a step in it */
};

/* ---- guests ---- */

/* Where all places are taken, the guest that has not proved itself for the longest time has to go. */
static bool make_room(struct qr_exchange *x)
{
    if (x->n_guests < QR_CONN_GUESTS_MAX)
        return true;
    atomic_fetch_add(&x->n_refused, 1);
    for (struct qr_node *at = x->guests.next; at != &x->guests; at = at->next) {
        struct qr_conn *c = QR_CONTAINER(at, struct qr_conn, link);
        if (c->stage == QR_CONN_OPEN)
            continue;
        qr_conn_break(c, "others want its place");
        qr_guest_lost(c);
        return true;
    }
    return false;
}

void qr_guests_accept(struct qr_exchange *x)
{
    QR_ASSERT(x != NULL && x->listener >= 0);
    for (int i = 0; i < QR_CONN_GUESTS_MAX; i++) { /* the others in the next turn */
        const int fd = x->place.wire->accept(x->listener);
        if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED)
            x->accept_us = x->now_us + ACCEPT_PAUSE_US;
        if (fd < 0)
            return;
        if (!make_room(x)) {
            x->place.wire->close(fd);
            continue;
        }
        qr_list_push_back(&x->guests, &qr_conn_new(x, NULL, x->place.wire, fd)->link);
        x->n_guests++;
    }
}

/* ---- lends ---- */

static void give_back(struct qr_exchange *x, struct qr_parcel *parcel)
{
    qr_parcel_give_back(parcel);
    if (atomic_exchange(&x->waiting, false))
        x->config.wake(x->config.wake_arg);
}

void qr_loan_sent(struct qr_parcel *parcel)
{
    QR_ASSERT(parcel != NULL);
    QR_ASSERT(parcel->lend != NULL);
    struct qr_loan *l = QR_CONTAINER(parcel->lend, struct qr_loan, lend);
    atomic_fetch_sub(&l->n_out, 1);
    give_back(l->x, parcel);
}

static void drop_parcels(struct qr_loan *l)
{
    struct qr_node *node;
    while ((node = qr_list_pop_front(&l->parcels)))
        qr_loan_sent(QR_CONTAINER(node, struct qr_parcel, link));
}

static void free_loan(struct qr_loan *l)
{
    struct qr_exchange *x = l->x;
    QR_ASSERT(qr_list_empty(&l->parcels));
    qr_list_remove(&l->on);
    qr_free(l->lend.names);
    qr_free((void *)l->lend.prompt.ids);
    qr_free(l);
    atomic_store(&x->n_lending, --x->n_loans);
}

/* No guest wants it any more; the engine is to answer it. Where it has done so already, it goes. */
static void orphan(struct qr_loan *l)
{
    struct qr_exchange *x = l->x;
    drop_parcels(l);
    l->conn = NULL;
    qr_list_remove(&l->on);
    qr_list_push_back(&x->orphans, &l->on);
    atomic_store(&l->lend.gone, true);
    if (!l->answered)
        x->config.wake(x->config.wake_arg);
    else if (atomic_load(&l->n_out) == 0)
        free_loan(l);
}

void qr_guest_lost(struct qr_conn *c)
{
    QR_ASSERT(c != NULL && c->peer == NULL);
    QR_ASSERT(c->broken != NULL);
    struct qr_exchange *x = c->x;
    struct qr_node loans;
    qr_list_init(&loans);
    qr_list_splice_back(&loans, &c->loans);
    bool lost = false;
    for (struct qr_node *at = loans.next; at != &loans; at = at->next)
        lost |= !QR_CONTAINER(at, struct qr_loan, on)->ended;
    if (lost)
        atomic_fetch_add(&x->n_lost, 1);
    qr_conn_free(c); /* parcels that were on their way go back first */
    x->n_guests--;
    while (!qr_list_empty(&loans))
        orphan(QR_CONTAINER(loans.next, struct qr_loan, on));
}

static struct qr_loan *new_loan(struct qr_conn *c, const struct qr_frame *f)
{
    const struct qr_frame_ask *ask = &f->ask;
    struct qr_exchange *x = c->x;
    struct qr_loan *l = qr_alloc(1, sizeof *l);
    *l = (struct qr_loan){.x = x, .conn = c, .id = f->id, .count = ask->count};
    l->lend.names = qr_alloc((size_t)ask->n, sizeof *l->lend.names);
    memcpy(l->lend.names, ask->names, (size_t)ask->n * sizeof *l->lend.names);
    l->lend.n = ask->n;
    l->lend.expected = ask->expected;
    l->lend.since_us = x->now_us;
    l->lend.prompt.salt = ask->salt;
    l->lend.prompt.adapter = ask->adapter;
    if (ask->n_ids > 0 && ask->n_ids <= x->config.prompt_max && x->config.compute) {
        int32_t *ids = qr_alloc((size_t)ask->n_ids, sizeof *ids);
        memcpy(ids, ask->ids, (size_t)ask->n_ids * sizeof *ids);
        l->lend.prompt.ids = ids;
        l->lend.prompt.n_ids = ask->n_ids;
    }
    l->said = l->lend.prompt.ids || ask->expected ? 1 : -1; /* the engine may be in a step: until it has looked, so it is */
    l->said_us = x->now_us;
    atomic_store(&l->told, -1);
    qr_list_init(&l->parcels);
    qr_list_init(&l->lend.link);
    qr_list_push_back(&c->loans, &l->on);
    atomic_store(&x->n_lending, ++x->n_loans);
    return l;
}

/* Has this process compute the prompt, if it will; otherwise the lend is of what is there. */
static void compute(struct qr_exchange *x, struct qr_loan *l)
{
    struct qr_err err;
    if (!l->lend.prompt.ids || x->config.compute(x->config.compute_user, &l->lend, &err) == 0)
        return;
    qr_log(QR_LOG_DEBUG, "exchange", "a peer's prompt of %d ids is not computed: %s", (int)l->lend.prompt.n_ids, err.msg);
    qr_free((void *)l->lend.prompt.ids);
    l->lend.prompt.ids = NULL;
    l->lend.prompt.n_ids = 0;
    l->said = l->lend.expected ? l->said : -1;
}

static void say_end(struct qr_conn *c, uint32_t id, enum qr_frame_why why)
{
    qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_END, .id = id, .why = why});
}

static struct qr_loan *find_loan(const struct qr_conn *c, uint32_t id)
{
    for (struct qr_node *at = c->loans.next; at != &c->loans; at = at->next) {
        struct qr_loan *l = QR_CONTAINER(at, struct qr_loan, on);
        if (l->id == id)
            return l;
    }
    return NULL;
}

static void bad_frame(struct qr_conn *c, const char *why)
{
    atomic_fetch_add(&c->x->n_bad_frame, 1);
    qr_conn_break(c, why);
}

void qr_loan_ask(struct qr_conn *c, const struct qr_frame *f)
{
    struct qr_exchange *x = c->x;
    QR_ASSERT(c->peer == NULL && f->kind == QR_FRAME_ASK);
    QR_ASSERT(f->ask.n >= 1);
    if (find_loan(c, f->id)) {
        bad_frame(c, "a question has the number of another one");
        return;
    }
    if (x->n_loans >= x->config.lends_max) {
        say_end(c, f->id, QR_END_BUSY);
        return;
    }
    struct qr_loan *l = new_loan(c, f);
    atomic_fetch_add(&x->n_lends, 1);
    compute(x, l);
    qr_mailbox_push_urgent(&x->asked, &l->lend.link);
}

void qr_loan_stop(struct qr_conn *c, const struct qr_frame *f)
{
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(f->kind == QR_FRAME_STOP);
    struct qr_loan *l = find_loan(c, f->id);
    if (l) /* otherwise its end and this have crossed */
        orphan(l);
}

void qr_loan_done(struct qr_conn *c, const struct qr_frame *f)
{
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(f->kind == QR_FRAME_DONE);
    for (struct qr_node *at = c->lent.next; at != &c->lent; at = at->next) {
        struct qr_parcel *p = QR_CONTAINER(at, struct qr_parcel, link);
        if (p->number != f->number)
            continue;
        qr_list_remove(at);
        qr_loan_sent(p);
        return;
    }
    bad_frame(c, "a block was given back that was not lent");
}

/* ---- what is said ---- */

static void say(struct qr_conn *c, struct qr_loan *l, int32_t told)
{
    qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_STATE, .id = l->id, .state = {.n_there = told >> 1, .computing = told & 1}});
    l->said = told;
    l->said_us = c->x->now_us;
}

static void say_state(struct qr_conn *c, struct qr_loan *l)
{
    const int32_t told = atomic_exchange(&l->told, -1);
    if (told >= 0)
        say(c, l, told);
}

/* The engine tells between its steps; what it told still holds while it is in one, unless it is stuck. */
int64_t qr_loans_tick(struct qr_conn *c)
{
    struct qr_exchange *x = c->x;
    QR_ASSERT(c->peer == NULL);
    QR_ASSERT(x->now_us > 0);
    const int64_t beat_us = x->config.beat_us ? atomic_load(x->config.beat_us) : x->now_us;
    int64_t until_us = INT64_MAX;
    for (struct qr_node *at = c->loans.next; at != &c->loans; at = at->next) {
        struct qr_loan *l = QR_CONTAINER(at, struct qr_loan, on);
        const int64_t alive_us = beat_us > l->lend.since_us ? beat_us : l->lend.since_us;
        if (l->answered || l->said < 0 || (l->said & 1) == 0 || x->now_us - alive_us > STUCK_US)
            continue;
        if (x->now_us - l->said_us >= REPEAT_US)
            say(c, l, l->said);
        until_us = l->said_us + REPEAT_US < until_us ? l->said_us + REPEAT_US : until_us;
    }
    return until_us;
}

static void say_block(struct qr_conn *c, struct qr_loan *l)
{
    struct qr_exchange *x = c->x;
    struct qr_parcel *p = QR_CONTAINER(qr_list_pop_front(&l->parcels), struct qr_parcel, link);
    struct qr_frame f = {.kind = QR_FRAME_BLOCK, .id = l->id, .block = {.index = p->index, .name = p->name}};
    const bool shared = c->mine.n_shared > 0;
    f.block.number = shared ? p->number : 0;
    f.block.sum = qr_hash128_plain(p->bytes, x->config.block_bytes);
    qr_conn_say(c, &f);
    atomic_fetch_add(&x->blocks_out, 1);
    atomic_fetch_add(&x->bytes_out, (int64_t)x->config.block_bytes);
    if (shared) {
        qr_list_push_back(&c->lent, &p->link);
        return;
    }
    c->out_first = c->out.len;
    c->body = p;
    c->body_at = 0;
}

void qr_loan_next(struct qr_conn *c)
{
    QR_ASSERT(c != NULL && c->peer == NULL);
    QR_ASSERT(c->body == NULL);
    for (struct qr_node *at = c->loans.next, *next; at != &c->loans; at = next) {
        struct qr_loan *l = QR_CONTAINER(at, struct qr_loan, on);
        next = at->next;
        say_state(c, l);
        if (!qr_list_empty(&l->parcels)) {
            say_block(c, l);
            qr_list_remove(at); /* the others first, now */
            qr_list_push_back(&c->loans, at);
            return;
        }
        if (l->answered && !l->ended) {
            say_end(c, l->id, QR_END_ALL);
            l->ended = true;
        }
        if (l->ended && atomic_load(&l->n_out) == 0)
            free_loan(l);
    }
}

/* ---- what the engine has done ---- */

static void send_parcel(struct qr_exchange *x, struct qr_parcel *p)
{
    struct qr_loan *l = QR_CONTAINER(p->lend, struct qr_loan, lend);
    QR_ASSERT(p->home == &x->out && p->index >= 0 && p->index < l->lend.n);
    if (l->conn && !l->count)
        qr_list_push_back(&l->parcels, &p->link);
    else
        qr_loan_sent(p);
}

void qr_loan_take(struct qr_exchange *x)
{
    struct qr_node answered, sent, *node;
    QR_ASSERT(x != NULL);
    qr_list_init(&answered);
    qr_list_init(&sent);
    qr_mailbox_take(&x->answered, &answered); /* first: blocks of these are among those that are taken next */
    qr_mailbox_take(&x->sent, &sent);
    while ((node = qr_list_pop_front(&sent)))
        send_parcel(x, QR_CONTAINER(node, struct qr_parcel, link));
    while ((node = qr_list_pop_front(&answered))) {
        struct qr_loan *l = QR_CONTAINER(QR_CONTAINER(node, struct qr_lend, link), struct qr_loan, lend);
        l->answered = true;
        if (!l->conn && atomic_load(&l->n_out) == 0)
            free_loan(l);
    }
    for (struct qr_node *at = x->orphans.next, *next; at != &x->orphans; at = next) { /* whose last blocks have come back */
        struct qr_loan *l = QR_CONTAINER(at, struct qr_loan, on);
        next = at->next;
        if (l->answered && atomic_load(&l->n_out) == 0)
            free_loan(l);
    }
}

void qr_loans_end(struct qr_exchange *x)
{
    struct qr_node *node, asked;
    QR_ASSERT(x != NULL && x->n_guests == 0);
    qr_list_init(&asked);
    qr_loan_take(x);
    qr_mailbox_take(&x->asked, &asked);
    while ((node = qr_list_pop_front(&asked))) { /* so that no lend is on a list when it is freed */
    }
    while ((node = x->orphans.next) != &x->orphans)
        free_loan(QR_CONTAINER(node, struct qr_loan, on));
}
