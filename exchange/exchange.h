/* exchange.h - blocks by name, from and to other processes. One verb: fetch these names from that peer; what does not come is computed.
 *
 * The exchange has a thread of its own: it listens to peers, speaks to them, and never touches the cache. The engine thread begins fetches, takes what arrived,
 * and copies blocks out for what peers ask. Each side gives the other messages whose number is bounded: fetches by the engine, lends by connections, parcels
 * by their pools. Content is checked before the engine sees it: the name that was wanted, and the sum of the bytes. A dead, slow or lying peer costs time
 * only; what it costs is the engine's to bound, by qr_exchange_stop.
 *
 * Nothing is owned across processes: a lend is an answer, not a lease. */
#ifndef QR_EXCHANGE_EXCHANGE_H
#define QR_EXCHANGE_EXCHANGE_H

#include <stdatomic.h>

#include "base/err.h"
#include "exchange/parcel.h"

#define QR_PEERS_MAX 16
#define QR_PEER_ADDRESS_MAX 256     /* unix:PATH, HOST:PORT, ucx:HOST:PORT, with its end */
#define QR_EXCHANGE_NAMES_MAX 65536 /* names of one fetch: a million tokens in blocks of 16 */

struct qr_exchange; /* opaque */

/* What a peer needs to compute a prompt itself: sent with a fetch that asks for that, in a fetch and in a lend. */
struct qr_exchange_prompt {
    const int32_t *ids;          /* borrowed; NULL: it is not to be computed */
    int32_t n_ids;
    struct qr_hash128 salt, adapter;
};

/* Blocks [first, n) of a prompt, in this order. The engine's; the exchange's from qr_exchange_fetch until it is in *over. */
struct qr_fetch {
    struct qr_node link;
    void *user;                  /* the engine's */
    const struct qr_kv_name *names; /* borrowed [n] */
    int32_t first, n, next;      /* next: of whom it is asked; the block that comes next */
    int32_t peer;                /* number of the peer that is asked; -1: the first that has most of them */
    bool expected;               /* the peer has been asked to compute this by another way (a router): it may come to know of it a little later */
    struct qr_exchange_prompt prompt;
    _Atomic bool stopped;        /* qr_exchange_stop */
    /* written by the exchange, readable by the engine at any time */
    _Atomic int32_t n_there;     /* blocks from `first` on that the peer said it has or had */
    _Atomic bool computing;      /* and that it computes the others */
    _Atomic int64_t heard_us;    /* when anything for it came last */
    _Atomic int64_t moved_us;    /* when a block came of the same peer, be it of another fetch, as of its last word about computing */
    const char *why;             /* once over: static; NULL: all came */
};

/* What a peer asks of this process. The exchange's; the engine's from *asked until qr_exchange_answered. */
struct qr_lend {
    struct qr_node link;
    struct qr_kv_name *names;    /* owned by the exchange [n] */
    int32_t n, next;             /* next: the engine's; the block that is to be copied next */
    bool expected;               /* as of a fetch */
    struct qr_exchange_prompt prompt; /* ids owned by the exchange */
    void *engine;                /* the engine's */
    int64_t since_us;            /* when it came in */
    _Atomic bool gone;           /* the peer does not want it any more: it is to be answered at once */
};

struct qr_exchange_config {
    const char *listen;          /* borrowed; NULL: no peer may ask */
    const char *peer[QR_PEERS_MAX]; /* borrowed */
    int32_t n_peers;
    const void *secret;          /* borrowed; NULL: only loopback and Unix sockets are allowed */
    size_t n_secret;
    struct qr_kv_name domain;    /* peers with another are refused, in their log and here */
    size_t block_bytes;
    int32_t n_parcels;           /* for each direction */
    int32_t lends_max;           /* questions at once; more are told to compute */
    int32_t prompt_max;          /* ids of a prompt that may be asked to be computed */
    void (*wake)(void *);        /* of the engine thread; any thread may be woken that is awake */
    void *wake_arg;
    /* Exchange thread: a prompt is to be computed for this lend. 0, or why not. NULL: this process computes for no peer. */
    int (*compute)(void *user, struct qr_lend *lend, struct qr_err *err);
    void *compute_user;
    const _Atomic int64_t *beat_us; /* borrowed: when the engine last did anything (qr_clock_us), while it computes; NULL: it is never stuck */
};

/* What opening would refuse of its addresses, without opening anything. QR_E_USAGE, QR_E_UNSUPPORTED. */
int qr_exchange_check(const struct qr_exchange_config *config, struct qr_err *err);

/* Listens, starts the thread, begins to connect; peers may be absent, and come and go. QR_E_USAGE for addresses and a missing secret, QR_E_IO. */
int qr_exchange_open(struct qr_exchange **out, const struct qr_exchange_config *config, struct qr_err *err);

/* Ends the thread, in less than a second. All that was the exchange's of fetches is the engine's again; lends with the engine are void; parcels that the engine
 * has are given back before. NULL is fine. */
void qr_exchange_close(struct qr_exchange *x);

/* Number of the peer with this address, as given, or as host and port, or as the numbers at which it was reached; -1: it is not one of --peer. Any thread. */
int32_t qr_exchange_peer(struct qr_exchange *x, const char *address);

/* Where it listens, as peers may write it, with the port that the system chose for port 0; NULL: it does not. Any thread. */
const char *qr_exchange_address(const struct qr_exchange *x);

/* ---- engine thread ---- */

void qr_exchange_fetch(struct qr_exchange *x, struct qr_fetch *f);
void qr_exchange_stop(struct qr_exchange *x, struct qr_fetch *f); /* no more is wanted; it comes over soon, parcels of it may come before */

/* What has come: parcels that arrived (of fetches, in order, checked), fetches that are over, lends that are asked. Appends to the lists; never waits. */
void qr_exchange_take(struct qr_exchange *x, struct qr_node *arrived, struct qr_node *over, struct qr_node *asked);

struct qr_parcel *qr_exchange_parcel(struct qr_exchange *x, struct qr_lend *lend); /* for a block of it; NULL: wait. The last half are for shares */
void qr_exchange_send(struct qr_exchange *x, struct qr_parcel *parcel);  /* with lend, index, name; its sum is made here or there */
void qr_exchange_tell(struct qr_exchange *x, struct qr_lend *lend, int32_t n_there, bool computing); /* for the peer; repeated while a step takes longer */
void qr_exchange_answered(struct qr_exchange *x, struct qr_lend *lend);  /* no block follows. It is the exchange's again */

/* ---- counters, any thread ---- */

struct qr_exchange_stats {
    int64_t n_fetches, n_lends, blocks_in, blocks_out, bytes_in, bytes_out;
    int64_t n_refused, n_bad_sum, n_bad_frame; /* hellos refused; blocks with a wrong sum or name; frames that are none */
    int64_t n_lost;                            /* connections that ended while something was asked */
    int32_t n_connected;
    double bytes_per_second;     /* of what came lately; 0: nothing did */
};
void qr_exchange_stats(const struct qr_exchange *x, struct qr_exchange_stats *out);

#endif
