/* conn.h - the inside of exchange/: the exchange's own state, its peers, its connections, what it asks and what it lends. Only this folder includes it.
 *
 * All of it belongs to the exchange's thread, but for what says otherwise. What the engine thread gives comes through mailboxes, and a descriptor (`bell`) ends
 * the thread's poll. A connection that has broken is marked, and goes at the end of the turn. */
#ifndef QR_EXCHANGE_CONN_H
#define QR_EXCHANGE_CONN_H

#include <pthread.h>

#include "base/buf.h"
#include "base/mailbox.h"
#include "base/reach.h"
#include "exchange/exchange.h"
#include "exchange/frame.h"
#include "exchange/wire.h"

enum {
    QR_CONN_ANSWER_US = 3 * 1000 * 1000,  /* connecting and both hellos */
    QR_CONN_PING_US = 1 * 1000 * 1000,    /* the asker says something at least this often */
    QR_CONN_SILENT_US = 5 * 1000 * 1000,  /* after so much silence the other side is dead */
    QR_CONN_GUESTS_MAX = 64,
};

enum qr_conn_stage { QR_CONN_CONNECTING, QR_CONN_HELLO, QR_CONN_PROOF, QR_CONN_OPEN };

/* A connection: to a peer that is asked, or of a guest that asks. */
struct qr_conn {
    struct qr_node link;           /* of x->guests; on no list where it is a peer's */
    struct qr_exchange *x;         /* borrowed */
    struct qr_peer *peer;          /* borrowed; NULL: a guest's */
    const struct qr_wire *wire;    /* borrowed */
    int fd;
    enum qr_conn_stage stage;
    const char *broken;            /* why it is to be closed; NULL: it is not */
    int64_t since_us, heard_us, said_us;
    struct qr_frame_hello mine, theirs;
    uint32_t next_id;              /* of asks that begin (peer's) */

    struct qr_buf in;              /* came and was not understood yet, from in_at on */
    size_t in_at;
    struct qr_parcel *filling;     /* owned: the block whose bytes come now, `filled` of them are there */
    size_t filled, skip;           /* skip: bytes of a block that is not wanted any more */
    bool starved;                  /* the next frame is a block, and no parcel is free */
    int memory;                    /* came with the proof; -1: none did */
    const uint8_t *window;         /* owned: the lender's parcels, mapped to be read; NULL: bytes come by the wire */

    struct qr_buf out;             /* frames to write, from out_at on; those before `out_first` go before the body, the others behind it */
    size_t out_at, out_first;
    struct qr_parcel *body;        /* owned: its bytes are being written, body_at of them are */
    size_t body_at;
    bool pass_memory;              /* with the next bytes */

    struct qr_node asks;           /* struct qr_ask.on */
    struct qr_node loans;          /* struct qr_loan.on; the first is the next to send a block */
    struct qr_node lent;           /* owned: parcels in shared memory that the guest is copying */
    int64_t rate_us, rate_bytes;   /* since when blocks come without a pause, and how much came */
    int64_t block_us;              /* when the last block came */
};

/* One of --peer. */
struct qr_peer {
    struct qr_wire_place place;
    struct qr_conn *conn;          /* owned; NULL: there is none now */
    int64_t retry_us, pause_us;    /* when to try again; how long the next pause is */
    const char *state, *said;      /* static texts; said: what was logged last, at said_us */
    int64_t said_us;
    char numeric[QR_REACH_TEXT];   /* its address, once it was connected. Under x->lock, as any thread reads it */
};

/* A question to one peer for one fetch. */
struct qr_ask {
    struct qr_node on;
    struct qr_fetch *f;            /* borrowed */
    struct qr_find *find;          /* borrowed; NULL: it is blocks that are wanted, not their number */
    uint32_t id;
    int32_t next, n_there;         /* next: the index in f->names of the block that comes next */
};

/* A fetch for whichever peer has most. */
struct qr_find {
    struct qr_node on;
    struct qr_fetch *f;            /* borrowed */
    int64_t until_us;              /* then it is decided with the answers that came, if any */
    int32_t n_open, best, best_n;
};

/* A lend, and what only the exchange knows of it. */
struct qr_loan {
    struct qr_lend lend;
    struct qr_node on;             /* of its connection, or of x->orphans */
    struct qr_exchange *x;         /* borrowed */
    struct qr_conn *conn;          /* borrowed; NULL: the guest has gone, or stopped it */
    uint32_t id;
    bool count, answered, ended;   /* count: only how many there are is wanted; ended: and the guest was told so */
    struct qr_node parcels;        /* owned: to be sent */
    int32_t said;                  /* what the guest heard last, as told; -1: nothing that is to be repeated */
    int64_t said_us;
    _Atomic int32_t told;          /* what qr_exchange_tell said, 2 n_there + computing; -1: nothing new. The engine's and ours */
    _Atomic int32_t n_out;         /* parcels on their way. The engine's and ours */
};

struct qr_exchange {
    struct qr_exchange_config config;
    uint8_t *secret;               /* owned */
    pthread_t thread;
    bool started;
    int bell;                      /* an eventfd */
    _Atomic bool rung, ending, waiting; /* waiting: the engine found no parcel free */
    _Atomic int64_t n_stops;       /* calls of qr_exchange_stop */
    struct qr_mailbox fetches, sent, answered; /* from the engine */
    struct qr_mailbox arrived, over, asked;    /* to it */
    struct qr_parcels in, out;
    int shared;                    /* out's memory, read-only, as peers get it; -1: it is not shared */

    pthread_mutex_t lock;          /* guards peer[].numeric */
    struct qr_peer peer[QR_PEERS_MAX];
    struct qr_wire_place place;    /* where it listens */
    int listener;                  /* -1: it does not */
    struct qr_node guests, orphans, finds;
    int32_t n_guests, n_loans;
    _Atomic int32_t n_lending;     /* n_loans, for the engine */
    int64_t stops_seen, accept_us, refused_us; /* accept_us: no sooner is a guest taken; refused_us: when one was logged */
    int64_t now_us;
    _Atomic int64_t n_fetches, n_lends, blocks_in, blocks_out, bytes_in, bytes_out, n_refused, n_bad_sum, n_bad_frame, n_lost, bytes_per_second;
    _Atomic int32_t n_connected;
};

/* ---- conn.c ---- */

struct qr_conn *qr_conn_new(struct qr_exchange *x, struct qr_peer *peer, const struct qr_wire *wire, int fd);
void qr_conn_free(struct qr_conn *c); /* asks and loans have been taken off */
void qr_conn_break(struct qr_conn *c, const char *why);
void qr_conn_say(struct qr_conn *c, const struct qr_frame *f);
short qr_conn_events(const struct qr_conn *c); /* for poll; 0: nothing is waited for */
void qr_conn_read(struct qr_conn *c);          /* what there is, and what was left when no parcel was free */
void qr_conn_write(struct qr_conn *c);         /* what there is to say */
int64_t qr_conn_tick(struct qr_conn *c);       /* pings, and the end of one that is silent; when to look again */
size_t qr_conn_unwritten(const struct qr_conn *c);

/* ---- hello.c ---- */

void qr_hello_begin(struct qr_conn *c);        /* the peer's side, connected */
void qr_hello_hello(struct qr_conn *c, const struct qr_frame *f);
void qr_hello_proof(struct qr_conn *c, const struct qr_frame *f);

/* ---- peer.c ---- */

int64_t qr_peer_tick(struct qr_exchange *x, struct qr_peer *p); /* connects; when to look again */
void qr_peer_connected(struct qr_peer *p);     /* both proofs were right */
void qr_peer_lost(struct qr_peer *p);          /* its connection is broken, and goes */
void qr_fetch_begin(struct qr_exchange *x, struct qr_fetch *f);
void qr_fetch_stop_all(struct qr_exchange *x); /* those that were stopped are over */
int64_t qr_find_tick(struct qr_exchange *x);
void qr_asks_forget(struct qr_exchange *x);    /* at the end: fetches are the engine's */
bool qr_ask_block(struct qr_conn *c, const struct qr_frame *f); /* false: no parcel is free, once more later */
void qr_ask_filled(struct qr_conn *c);         /* c->filling is full */
void qr_ask_state(struct qr_conn *c, const struct qr_frame *f);
void qr_ask_end(struct qr_conn *c, const struct qr_frame *f);

/* ---- lend.c ---- */

void qr_guests_accept(struct qr_exchange *x);
void qr_guest_lost(struct qr_conn *c);         /* as qr_peer_lost; c is freed */
void qr_loan_ask(struct qr_conn *c, const struct qr_frame *f);
void qr_loan_stop(struct qr_conn *c, const struct qr_frame *f);
void qr_loan_done(struct qr_conn *c, const struct qr_frame *f);
int64_t qr_loans_tick(struct qr_conn *c);      /* repeats what was said while the engine computes; until when it has time */
void qr_loan_next(struct qr_conn *c);          /* says what is to be said next, a block at most */
void qr_loan_sent(struct qr_parcel *parcel);   /* its bytes are written, or were copied, or are not wanted */
void qr_loan_take(struct qr_exchange *x);      /* what the engine has sent and answered */
void qr_loans_end(struct qr_exchange *x);

/* ---- exchange.c ---- */

int qr_exchange_prepare(struct qr_exchange **out, const struct qr_exchange_config *config, struct qr_err *err); /* all of open but the thread */

/* ---- loop.c ---- */

void qr_exchange_start(struct qr_exchange *x); /* the thread, which ends when x->ending and the bell say so */
void qr_exchange_ring(void *x);                /* any thread: the poll ends */

#endif
