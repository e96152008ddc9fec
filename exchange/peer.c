/* peer.c - the peers that this process asks: connecting to them, and fetches.
 *
 * A fetch is one question to one peer; where any will do, the peers are asked first how many of the blocks they have. A fetch is over when all came, when the
 * peer has no more, when the connection ends, or when it was stopped; what comes of it later is thrown away. No block reaches the engine whose name or sum is
 * not what it has to be. The exchange's thread. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange/conn.h"

enum {
    PAUSE_MIN_US = 50 * 1000,   /* between two attempts to connect, doubled each time */
    PAUSE_MAX_US = 1000 * 1000,
    QUIET_US = 1000 * 1000,     /* between two lines of the log about one peer */
    NAMES_US = 10 * 1000,       /* between two looks whether a name is found */
    FIND_US = 100 * 1000,       /* so long all peers may take to say what they have */
    RATE_PAUSE_US = 50 * 1000,  /* blocks that are further apart are no measure of the link */
    RATE_BLOCKS = 4,
};

/* ---- fetches ---- */

static void over(struct qr_exchange *x, struct qr_fetch *f, const char *why)
{
    f->why = why;
    qr_mailbox_push_urgent(&x->over, &f->link);
}

static void free_ask(struct qr_ask *a)
{
    qr_list_remove(&a->on);
    qr_free(a);
}

/* Bytes that still come for it are skipped. */
static void end_ask(struct qr_conn *c, struct qr_ask *a, const char *why)
{
    if (c->filling && c->filling->fetch == a->f) {
        c->skip = c->x->config.block_bytes - c->filled;
        qr_parcel_give_back(c->filling);
        c->filling = NULL;
    }
    if (!a->find)
        over(c->x, a->f, why);
    free_ask(a);
}

static void say_stop(struct qr_conn *c, const struct qr_ask *a)
{
    qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_STOP, .id = a->id});
}

static void begin_ask(struct qr_conn *c, struct qr_fetch *f, struct qr_find *find)
{
    struct qr_ask *a = qr_alloc(1, sizeof *a);
    const bool prompt = !find && f->prompt.ids && f->prompt.n_ids <= QR_FRAME_IDS_MAX;
    *a = (struct qr_ask){.f = f, .find = find, .id = c->next_id++, .next = f->first};
    qr_list_push_back(&c->asks, &a->on);
    const struct qr_frame_ask ask = {
        .n = f->n - f->first,
        .names = f->names + f->first,
        .n_ids = prompt ? f->prompt.n_ids : 0,
        .ids = prompt ? f->prompt.ids : NULL,
        .expected = f->expected,
        .count = find != NULL,
        .salt = f->prompt.salt,
        .adapter = f->prompt.adapter,
    };
    qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_ASK, .id = a->id, .ask = ask});
}

static struct qr_conn *open_conn(const struct qr_exchange *x, int32_t peer)
{
    struct qr_conn *c = peer >= 0 && peer < x->config.n_peers ? x->peer[peer].conn : NULL;
    return c && c->stage == QR_CONN_OPEN && !c->broken ? c : NULL;
}

static void ask_one(struct qr_exchange *x, int32_t peer, struct qr_fetch *f)
{
    struct qr_conn *c = open_conn(x, peer);
    if (c)
        begin_ask(c, f, NULL);
    else
        over(x, f, "the peer is not connected");
}

void qr_fetch_begin(struct qr_exchange *x, struct qr_fetch *f)
{
    int32_t n_open = 0, any = -1;
    QR_ASSERT(x != NULL && f != NULL);
    QR_ASSERT(f->first >= 0 && f->first < f->n && f->n <= QR_EXCHANGE_NAMES_MAX);
    atomic_fetch_add(&x->n_fetches, 1);
    for (int32_t i = x->config.n_peers - 1; i >= 0; i--) {
        if (open_conn(x, i)) {
            n_open++;
            any = i;
        }
    }
    if (f->peer >= 0 || n_open <= 1 || f->expected) {
        ask_one(x, f->peer >= 0 ? f->peer : any, f);
        return;
    }
    struct qr_find *find = qr_alloc(1, sizeof *find);
    *find = (struct qr_find){.f = f, .until_us = x->now_us + FIND_US, .best = any};
    qr_list_push_back(&x->finds, &find->on);
    for (int32_t i = 0; i < x->config.n_peers; i++) {
        struct qr_conn *c = open_conn(x, i);
        if (c) {
            begin_ask(c, f, find);
            find->n_open++;
        }
    }
}

/* ---- which peer has most ---- */

static void end_find(struct qr_exchange *x, struct qr_find *find)
{
    for (int32_t i = 0; i < x->config.n_peers; i++) {
        struct qr_conn *c = x->peer[i].conn;
        for (struct qr_node *at = c ? c->asks.next : NULL, *next; c && at != &c->asks; at = next) {
            struct qr_ask *a = QR_CONTAINER(at, struct qr_ask, on);
            next = at->next;
            if (a->find != find)
                continue;
            if (!c->broken)
                say_stop(c, a);
            free_ask(a);
        }
    }
    qr_list_remove(&find->on);
    qr_free(find);
}

static void decide(struct qr_exchange *x, struct qr_find *find)
{
    struct qr_fetch *f = find->f;
    const int32_t best = find->best;
    const bool none = find->best_n == 0 && !f->prompt.ids;
    end_find(x, find);
    if (none)
        over(x, f, "no peer has them");
    else
        ask_one(x, best, f);
}

/* The peer of c has said how many it has, in a->n_there, or says nothing more. a is freed. */
static void answer(struct qr_conn *c, struct qr_ask *a)
{
    struct qr_find *find = a->find;
    if (a->n_there > find->best_n) {
        find->best_n = a->n_there;
        find->best = (int32_t)(c->peer - c->x->peer);
    }
    free_ask(a);
    find->n_open--;
}

int64_t qr_find_tick(struct qr_exchange *x)
{
    int64_t until_us = INT64_MAX;
    for (struct qr_node *at = x->finds.next, *next; at != &x->finds; at = next) {
        struct qr_find *find = QR_CONTAINER(at, struct qr_find, on);
        next = at->next;
        if (find->n_open == 0 || (x->now_us >= find->until_us && find->best_n > 0))
            decide(x, find);
        else if (x->now_us < find->until_us && find->until_us < until_us)
            until_us = find->until_us;
    }
    return until_us;
}

/* ---- stopping ---- */

void qr_fetch_stop_all(struct qr_exchange *x)
{
    for (int32_t i = 0; i < x->config.n_peers; i++) {
        struct qr_conn *c = x->peer[i].conn;
        for (struct qr_node *at = c ? c->asks.next : NULL, *next; c && at != &c->asks; at = next) {
            struct qr_ask *a = QR_CONTAINER(at, struct qr_ask, on);
            next = at->next;
            if (a->find || !atomic_load(&a->f->stopped))
                continue;
            say_stop(c, a);
            end_ask(c, a, "it was stopped");
        }
    }
    for (struct qr_node *at = x->finds.next, *next; at != &x->finds; at = next) {
        struct qr_find *find = QR_CONTAINER(at, struct qr_find, on);
        next = at->next;
        if (atomic_load(&find->f->stopped)) {
            over(x, find->f, "it was stopped");
            end_find(x, find);
        }
    }
}

void qr_asks_forget(struct qr_exchange *x)
{
    while (!qr_list_empty(&x->finds))
        end_find(x, QR_CONTAINER(x->finds.next, struct qr_find, on));
    for (int32_t i = 0; i < x->config.n_peers; i++)
        while (x->peer[i].conn && !qr_list_empty(&x->peer[i].conn->asks))
            free_ask(QR_CONTAINER(x->peer[i].conn->asks.next, struct qr_ask, on));
}

/* ---- what peers answer ---- */

static void wrong(struct qr_conn *c, _Atomic int64_t *counter, const char *why)
{
    atomic_fetch_add(counter, 1);
    qr_conn_break(c, why);
}

/* The question that a frame answers; NULL: one that is over, or, then c is broken, none that ever was. */
static struct qr_ask *find_ask(struct qr_conn *c, const struct qr_frame *f)
{
    for (struct qr_node *at = c->asks.next; at != &c->asks; at = at->next) {
        struct qr_ask *a = QR_CONTAINER(at, struct qr_ask, on);
        if (a->id == f->id)
            return a;
    }
    if ((int32_t)(f->id - c->next_id) >= 0)
        wrong(c, &c->x->n_bad_frame, "the peer answered what was never asked");
    return NULL;
}

void qr_ask_state(struct qr_conn *c, const struct qr_frame *f)
{
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(f->kind == QR_FRAME_STATE);
    struct qr_ask *a = find_ask(c, f);
    if (!a)
        return;
    if (f->state.n_there > a->f->n - a->f->first) {
        wrong(c, &c->x->n_bad_frame, "the peer has more blocks than were wanted");
        return;
    }
    a->n_there = f->state.n_there;
    if (a->find)
        return;
    atomic_store(&a->f->heard_us, c->x->now_us);
    atomic_store(&a->f->n_there, a->n_there);
    atomic_store(&a->f->moved_us, c->block_us);
    atomic_store(&a->f->computing, f->state.computing);
}

void qr_ask_end(struct qr_conn *c, const struct qr_frame *f)
{
    static const char *const why[QR_END_N] = {[QR_END_ALL] = "the peer has no more of them", [QR_END_BUSY] = "the peer is asked by too many"};
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(f->kind == QR_FRAME_END);
    struct qr_ask *a = find_ask(c, f);
    if (a && a->find)
        answer(c, a);
    else if (a)
        end_ask(c, a, why[f->why]);
}

static void say_done(struct qr_conn *c, int32_t number)
{
    if (c->window)
        qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_DONE, .number = number});
}

/* By what the bytes of a block come: shared memory, at once, or the wire. They are copied before their sum is made, as the lender may change them meanwhile. */
static void fetch_bytes(struct qr_conn *c, struct qr_parcel *p, int32_t number)
{
    c->filling = p;
    c->filled = 0;
    if (!c->window)
        return;
    memcpy(p->bytes, c->window + (size_t)number * c->theirs.stride, c->x->config.block_bytes);
    c->filled = c->x->config.block_bytes;
    qr_ask_filled(c);
    say_done(c, number);
}

bool qr_ask_block(struct qr_conn *c, const struct qr_frame *f)
{
    struct qr_exchange *x = c->x;
    QR_ASSERT(c->filling == NULL && c->skip == 0);
    QR_ASSERT(f->kind == QR_FRAME_BLOCK);
    struct qr_ask *a = find_ask(c, f);
    if (c->broken)
        return true;
    if (c->window ? f->block.number >= c->theirs.n_shared : f->block.number != 0) {
        wrong(c, &x->n_bad_frame, "a block came that is none");
        return true;
    }
    if (!a || a->find) { /* that a block comes where only their number was wanted is odd, and harmless */
        c->skip = c->window ? 0 : x->config.block_bytes;
        say_done(c, f->block.number);
        return true;
    }
    if (f->block.index != a->next - a->f->first) {
        wrong(c, &x->n_bad_frame, "a block came out of its turn");
        return true;
    }
    if (memcmp(&f->block.name, &a->f->names[a->next], sizeof f->block.name) != 0) {
        wrong(c, &x->n_bad_sum, "a block has another name than the one that was wanted");
        return true;
    }
    struct qr_parcel *p = qr_parcels_take(&x->in, 0);
    if (!p)
        return false;
    p->fetch = a->f;
    p->index = a->next;
    p->name = f->block.name;
    p->sum = f->block.sum;
    fetch_bytes(c, p, f->block.number);
    return true;
}

/* How fast blocks come while they do so without a pause. */
static void measure(struct qr_conn *c)
{
    const int64_t now_us = qr_clock_us();
    if (now_us - c->block_us > RATE_PAUSE_US) {
        c->rate_us = now_us;
        c->rate_bytes = 0;
    } else {
        c->rate_bytes += (int64_t)c->x->config.block_bytes;
    }
    c->block_us = now_us;
    if (c->rate_bytes < RATE_BLOCKS * (int64_t)c->x->config.block_bytes || now_us <= c->rate_us)
        return;
    const int64_t rate = (int64_t)((double)c->rate_bytes * 1e6 / (double)(now_us - c->rate_us)), before = atomic_load(&c->x->bytes_per_second);
    atomic_store(&c->x->bytes_per_second, before ? before + (rate - before) / 4 : rate);
    c->rate_us = now_us;
    c->rate_bytes = 0;
}

void qr_ask_filled(struct qr_conn *c)
{
    struct qr_exchange *x = c->x;
    struct qr_parcel *p = c->filling;
    QR_ASSERT(p != NULL && p->fetch != NULL);
    QR_ASSERT(c->filled == x->config.block_bytes);
    const struct qr_hash128 sum = qr_hash128_plain(p->bytes, x->config.block_bytes);
    if (sum.lo != p->sum.lo || sum.hi != p->sum.hi) { /* freed with c */
        wrong(c, &x->n_bad_sum, "a block has another sum than its bytes");
        return;
    }
    struct qr_node *at = c->asks.next;
    while (QR_CONTAINER(at, struct qr_ask, on)->f != p->fetch || QR_CONTAINER(at, struct qr_ask, on)->find)
        at = at->next;
    struct qr_ask *a = QR_CONTAINER(at, struct qr_ask, on);
    a->next++;
    const int32_t n = a->next - a->f->first;
    if (n > atomic_load(&a->f->n_there))
        atomic_store(&a->f->n_there, n);
    atomic_fetch_add(&x->blocks_in, 1);
    atomic_fetch_add(&x->bytes_in, (int64_t)x->config.block_bytes);
    c->filling = NULL;
    atomic_store(&a->f->heard_us, x->now_us);
    qr_mailbox_push_urgent(&x->arrived, &p->link);
    measure(c);
    if (a->next == a->f->n)
        end_ask(c, a, NULL);
}

/* ---- connecting ---- */

/* A peer that comes and goes does not fill the log. */
static void say_state(const struct qr_exchange *x, struct qr_peer *p)
{
    if (p->state == p->said || (p->said && x->now_us - p->said_us < QUIET_US))
        return;
    qr_log(QR_LOG_INFO, "exchange", "peer=%s state=\"%s\"", p->place.text, p->state);
    p->said = p->state;
    p->said_us = x->now_us;
}

static void note(const struct qr_exchange *x, struct qr_peer *p, const char *state)
{
    p->state = state;
    say_state(x, p);
}

static void pause_after(struct qr_exchange *x, struct qr_peer *p, const char *why)
{
    note(x, p, why);
    p->pause_us = p->pause_us == 0 ? PAUSE_MIN_US : p->pause_us;
    p->retry_us = x->now_us + p->pause_us;
    p->pause_us = 2 * p->pause_us < PAUSE_MAX_US ? 2 * p->pause_us : PAUSE_MAX_US;
}

void qr_peer_connected(struct qr_peer *p)
{
    QR_ASSERT(p != NULL && p->conn != NULL);
    QR_ASSERT(p->conn->stage == QR_CONN_OPEN);
    struct qr_exchange *x = p->conn->x;
    char numeric[QR_REACH_TEXT];
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    if (getpeername(p->conn->fd, (struct sockaddr *)&sa, &len) == 0 && qr_reach_text(numeric, (struct sockaddr *)&sa)) {
        pthread_mutex_lock(&x->lock);
        memcpy(p->numeric, numeric, sizeof p->numeric);
        pthread_mutex_unlock(&x->lock);
    }
    atomic_fetch_add(&x->n_connected, 1);
    p->pause_us = 0;
    note(x, p, "connected");
}

void qr_peer_lost(struct qr_peer *p)
{
    struct qr_conn *c = p->conn;
    QR_ASSERT(c != NULL && c->broken != NULL);
    struct qr_exchange *x = c->x;
    if (c->stage == QR_CONN_OPEN)
        atomic_fetch_sub(&x->n_connected, 1);
    if (!qr_list_empty(&c->asks))
        atomic_fetch_add(&x->n_lost, 1);
    for (struct qr_node *at = c->asks.next, *next; at != &c->asks; at = next) {
        struct qr_ask *a = QR_CONTAINER(at, struct qr_ask, on);
        next = at->next;
        if (a->find) {
            a->n_there = 0;
            answer(c, a);
        } else {
            end_ask(c, a, c->broken);
        }
    }
    pause_after(x, p, c->broken);
    qr_conn_free(c);
    p->conn = NULL;
}

int64_t qr_peer_tick(struct qr_exchange *x, struct qr_peer *p)
{
    const char *why = NULL;
    QR_ASSERT(x != NULL && p != NULL);
    say_state(x, p);
    if (p->conn)
        return qr_conn_tick(p->conn);
    if (x->now_us < p->retry_us)
        return p->retry_us;
    const int fd = p->place.wire->connect(&p->place, &why);
    if (fd >= 0)
        p->conn = qr_conn_new(x, p, p->place.wire, fd);
    else if (fd == QR_WIRE_LATER)
        p->retry_us = x->now_us + NAMES_US;
    else
        pause_after(x, p, why);
    return p->conn ? qr_conn_tick(p->conn) : p->retry_us;
}
