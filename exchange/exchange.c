/* exchange.c - opening and closing, and what the engine thread calls: it puts into mailboxes and takes out of them, rings the bell, and never waits. */
#include "exchange/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "exchange/conn.h"

/* ---- opening ---- */

static int read_address(struct qr_wire_place *place, const struct qr_exchange_config *config, const char *flag, const char *text, struct qr_err *err)
{
    const int rc = qr_wire_parse(place, text, err);
    if (rc != 0)
        return qr_err_prefix(err, "%s: ", flag);
    if (!place->local && config->n_secret == 0)
        return qr_err_set(err, QR_E_USAGE,
                          "%s %s: without a secret peers are on this machine only; give all of them --peer-secret-file FILE with the same content, or write "
                          "unix:PATH or 127.0.0.1:PORT",
                          flag, place->text);
    return 0;
}

static int read_addresses(struct qr_exchange *x, struct qr_err *err)
{
    const struct qr_exchange_config *config = &x->config;
    int rc = 0;
    for (int32_t i = 0; i < config->n_peers && rc == 0; i++)
        rc = read_address(&x->peer[i].place, config, "--peer", config->peer[i], err);
    if (rc == 0 && config->listen)
        rc = read_address(&x->place, config, "--peer-listen", config->listen, err);
    return rc;
}

int qr_exchange_check(const struct qr_exchange_config *config, struct qr_err *err)
{
    QR_ASSERT(config != NULL && err != NULL);
    QR_ASSERT(config->n_peers >= 0 && config->n_peers <= QR_PEERS_MAX);
    struct qr_exchange *x = qr_alloc(1, sizeof *x);
    x->config = *config;
    const int rc = read_addresses(x, err);
    qr_free(x);
    return rc;
}

static int prepare_places(struct qr_exchange *x, struct qr_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i <= x->config.n_peers && rc == 0; i++) {
        struct qr_wire_place *place = i < x->config.n_peers ? &x->peer[i].place : &x->place;
        if (place->wire && place->wire->prepare)
            rc = place->wire->prepare(place, err);
    }
    return rc;
}

static int listen_to_peers(struct qr_exchange *x, struct qr_err *err)
{
    if (!x->config.listen)
        return 0;
    const int fd = x->place.wire->listen(&x->place, err);
    x->listener = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

/* Peers get a descriptor of memory that keeps its size and that no one but this process can write to, however it is opened again. */
static int share(struct qr_exchange *x, struct qr_err *err)
{
    char path[64];
    if (x->out.fd < 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", x->out.fd);
    if (fcntl(x->out.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
        x->shared = open(path, O_RDONLY | O_CLOEXEC);
    if (x->shared < 0)
        return qr_err_set(err, QR_E_IO, "the memory of blocks cannot be shared with peers at %s: %s; listen at 127.0.0.1:PORT", x->place.text, strerror(errno));
    return 0;
}

static int open_parcels(struct qr_exchange *x, struct qr_err *err)
{
    const struct qr_exchange_config *config = &x->config;
    int rc = qr_parcels_open(&x->in, config->n_parcels, config->block_bytes, false, err);
    if (rc == 0) {
        x->in.back = qr_exchange_ring;
        x->in.back_arg = x;
        rc = qr_parcels_open(&x->out, config->listen ? config->n_parcels : 1, config->block_bytes, config->listen && x->place.wire->passes_memory, err);
    }
    return rc ? rc : share(x, err);
}

static void open_mailboxes(struct qr_exchange *x)
{
    struct qr_mailbox *const in[] = {&x->fetches, &x->sent, &x->answered}, *const out[] = {&x->arrived, &x->over, &x->asked};
    for (int i = 0; i < QR_COUNT(in); i++)
        qr_mailbox_init(in[i], 1, qr_exchange_ring, x); /* what they carry is bounded elsewhere */
    for (int i = 0; i < QR_COUNT(out); i++)
        qr_mailbox_init(out[i], 1, x->config.wake, x->config.wake_arg);
}

static struct qr_exchange *new_exchange(const struct qr_exchange_config *config)
{
    struct qr_exchange *x = qr_alloc(1, sizeof *x);
    *x = (struct qr_exchange){.config = *config, .listener = -1, .shared = -1, .bell = -1};
    x->secret = qr_alloc(config->n_secret, 1);
    if (config->n_secret)
        memcpy(x->secret, config->secret, config->n_secret);
    pthread_mutex_init(&x->lock, NULL);
    qr_list_init(&x->guests);
    qr_list_init(&x->orphans);
    qr_list_init(&x->finds);
    open_mailboxes(x);
    return x;
}

int qr_exchange_prepare(struct qr_exchange **out, const struct qr_exchange_config *config, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && err != NULL);
    QR_ASSERT(config->n_peers >= 0 && config->n_peers <= QR_PEERS_MAX);
    QR_ASSERT(config->wake != NULL && config->n_parcels >= 1 && config->n_parcels <= QR_FRAME_SHARED_MAX);
    QR_ASSERT(config->block_bytes >= 1 && config->block_bytes <= QR_FRAME_BLOCK_BYTES_MAX);
    struct qr_exchange *x = new_exchange(config);
    int rc = read_addresses(x, err);
    if (rc == 0)
        rc = prepare_places(x, err);
    if (rc == 0)
        rc = open_parcels(x, err);
    if (rc == 0 && (x->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        rc = qr_err_set(err, QR_E_IO, "no descriptor is left for the exchange of blocks: %s; raise ulimit -n", strerror(errno));
    if (rc == 0)
        rc = listen_to_peers(x, err);
    if (rc != 0) {
        qr_exchange_close(x);
        return rc;
    }
    *out = x;
    return 0;
}

int qr_exchange_open(struct qr_exchange **out, const struct qr_exchange_config *config, struct qr_err *err)
{
    const int rc = qr_exchange_prepare(out, config, err);
    if (rc == 0)
        qr_exchange_start(*out);
    return rc;
}

/* ---- closing ---- */

static void forget_place(struct qr_wire_place *place)
{
    if (place->wire && place->wire->forget)
        place->wire->forget(place);
}

static void end_connections(struct qr_exchange *x)
{
    qr_asks_forget(x);
    for (int32_t i = 0; i < x->config.n_peers; i++) {
        if (x->peer[i].conn)
            qr_conn_free(x->peer[i].conn);
        forget_place(&x->peer[i].place);
    }
    while (!qr_list_empty(&x->guests)) {
        struct qr_conn *c = QR_CONTAINER(x->guests.next, struct qr_conn, link);
        qr_conn_break(c, "this process ends");
        qr_guest_lost(c);
    }
    qr_loans_end(x);
    if (x->listener >= 0)
        x->place.wire->unlisten(&x->place, x->listener);
    forget_place(&x->place);
}

static void empty(struct qr_mailbox *m)
{
    struct qr_node rest;
    qr_list_init(&rest);
    qr_mailbox_take(m, &rest);
    while (qr_list_pop_front(&rest)) {
    }
    qr_mailbox_release(m);
}

static void give_back_arrived(struct qr_exchange *x)
{
    struct qr_node arrived, *node;
    qr_list_init(&arrived);
    qr_mailbox_take(&x->arrived, &arrived);
    while ((node = qr_list_pop_front(&arrived)))
        qr_parcel_give_back(QR_CONTAINER(node, struct qr_parcel, link));
}

void qr_exchange_close(struct qr_exchange *x)
{
    if (!x)
        return;
    if (x->started) {
        atomic_store(&x->ending, true);
        qr_exchange_ring(x);
        pthread_join(x->thread, NULL);
    }
    x->in.back = NULL;
    end_connections(x);
    give_back_arrived(x);
    struct qr_mailbox *const box[] = {&x->fetches, &x->sent, &x->answered, &x->arrived, &x->over, &x->asked};
    for (int i = 0; i < QR_COUNT(box); i++)
        empty(box[i]);
    if (x->in.parcel)
        qr_parcels_close(&x->in);
    if (x->out.parcel)
        qr_parcels_close(&x->out);
    if (x->shared >= 0)
        close(x->shared);
    if (x->bell >= 0)
        close(x->bell);
    pthread_mutex_destroy(&x->lock);
    explicit_bzero(x->secret, x->config.n_secret);
    qr_free(x->secret);
    qr_free(x);
}

/* ---- any thread ---- */

int32_t qr_exchange_peer(struct qr_exchange *x, const char *address)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(address != NULL);
    int32_t found = -1;
    for (int32_t i = 0; i < x->config.n_peers && found < 0; i++)
        found = qr_wire_is(&x->peer[i].place, address) ? i : -1;
    pthread_mutex_lock(&x->lock);
    for (int32_t i = 0; i < x->config.n_peers && found < 0; i++)
        found = x->peer[i].numeric[0] && strcmp(x->peer[i].numeric, address) == 0 ? i : -1;
    pthread_mutex_unlock(&x->lock);
    return found;
}

const char *qr_exchange_address(const struct qr_exchange *x)
{
    QR_ASSERT(x != NULL);
    return x->listener >= 0 ? x->place.text : NULL;
}

void qr_exchange_stats(const struct qr_exchange *x, struct qr_exchange_stats *out)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(out != NULL);
    *out = (struct qr_exchange_stats){
        .n_fetches = atomic_load(&x->n_fetches),
        .n_lends = atomic_load(&x->n_lends),
        .blocks_in = atomic_load(&x->blocks_in),
        .blocks_out = atomic_load(&x->blocks_out),
        .bytes_in = atomic_load(&x->bytes_in),
        .bytes_out = atomic_load(&x->bytes_out),
        .n_refused = atomic_load(&x->n_refused),
        .n_bad_sum = atomic_load(&x->n_bad_sum),
        .n_bad_frame = atomic_load(&x->n_bad_frame),
        .n_lost = atomic_load(&x->n_lost),
        .n_connected = atomic_load(&x->n_connected),
        .bytes_per_second = (double)atomic_load(&x->bytes_per_second),
    };
}

/* ---- the engine thread ---- */

void qr_exchange_fetch(struct qr_exchange *x, struct qr_fetch *f)
{
    QR_ASSERT(x != NULL && f != NULL);
    QR_ASSERT(f->names != NULL && f->first >= 0 && f->first < f->n && f->n <= QR_EXCHANGE_NAMES_MAX);
    QR_ASSERT(f->peer >= -1 && f->peer < x->config.n_peers);
    qr_mailbox_push_urgent(&x->fetches, &f->link);
}

void qr_exchange_stop(struct qr_exchange *x, struct qr_fetch *f)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(f != NULL);
    atomic_store(&f->stopped, true);
    atomic_fetch_add(&x->n_stops, 1);
    qr_exchange_ring(x);
}

void qr_exchange_take(struct qr_exchange *x, struct qr_node *arrived, struct qr_node *over, struct qr_node *asked)
{
    QR_ASSERT(x != NULL && arrived != NULL);
    QR_ASSERT(over != NULL && asked != NULL);
    qr_mailbox_take(&x->over, over); /* first: blocks of these are among those that are taken next */
    qr_mailbox_take(&x->arrived, arrived);
    qr_mailbox_take(&x->asked, asked);
}

struct qr_parcel *qr_exchange_parcel(struct qr_exchange *x, struct qr_lend *lend)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(lend != NULL);
    const struct qr_loan *l = QR_CONTAINER(lend, struct qr_loan, lend);
    const int32_t n_lending = atomic_load(&x->n_lending), share_max = x->out.n / (n_lending > 0 ? n_lending : 1);
    const bool waited = atomic_exchange(&x->waiting, true); /* before it is looked for: one that comes back meanwhile wakes the engine */
    struct qr_parcel *p = qr_parcels_take(&x->out, atomic_load(&l->n_out) < (share_max > 0 ? share_max : 1) ? 0 : x->out.n / 2);
    if (p && !waited)
        atomic_store(&x->waiting, false);
    return p;
}

void qr_exchange_send(struct qr_exchange *x, struct qr_parcel *parcel)
{
    QR_ASSERT(x != NULL && parcel != NULL);
    QR_ASSERT(parcel->home == &x->out && parcel->lend != NULL);
    struct qr_loan *l = QR_CONTAINER(parcel->lend, struct qr_loan, lend);
    atomic_fetch_add(&l->n_out, 1);
    qr_mailbox_push_urgent(&x->sent, &parcel->link);
}

void qr_exchange_tell(struct qr_exchange *x, struct qr_lend *lend, int32_t n_there, bool computing)
{
    QR_ASSERT(x != NULL && lend != NULL);
    QR_ASSERT(n_there >= 0 && n_there <= lend->n);
    struct qr_loan *l = QR_CONTAINER(lend, struct qr_loan, lend);
    atomic_store(&l->told, 2 * n_there + computing);
    if (l->count) /* it wanted to know nothing else */
        atomic_store(&lend->gone, true);
    qr_exchange_ring(x);
}

void qr_exchange_answered(struct qr_exchange *x, struct qr_lend *lend)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(lend != NULL);
    qr_mailbox_push_urgent(&x->answered, &lend->link);
}
