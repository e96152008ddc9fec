/* exchange_parts.h - inside engine/ only: what the engine keeps of blocks from and for elsewhere. exchange.c holds requests and lets blocks land, lend.c copies
 * blocks out for peers and computes prompts for them. All of it is the engine thread's, but for what says otherwise. */
#ifndef QR_ENGINE_EXCHANGE_PARTS_H
#define QR_ENGINE_EXCHANGE_PARTS_H

#include "engine/exchange.h"
#include "engine/internal.h"

#define QR_LENDS_MAX 64

/* A request that waits for blocks, at the index of its choice 0. */
struct qr_hold {
    struct qr_request *req;       /* borrowed; NULL: none is held here */
    struct qr_fetch *fetch;       /* not ours, and not over; NULL: none is under way */
    struct qr_node arrived;       /* parcels in their order, ours until they landed */
    int32_t index, n;             /* blocks [first, n) are missing at first, */
    int32_t first, next;          /* and block `next` lands next */
    int32_t n_arrived;
    int64_t since_us, asked_us;   /* of all, and of this fetch */
    bool asked_files, asked_peers; /* each at most once, in this order */
    int64_t stopped_us;           /* since when no more is wanted: time is over, the request ends, or there is no place to land; 0: more is */
};

/* What a peer asks, while it is with the engine. */
struct qr_lending {
    struct qr_lend *lend;         /* borrowed; NULL: free */
    const struct qr_request *req; /* that computes what is asked, at the slot `index`, `shift` blocks on: an address to compare; NULL: none is known */
    uint64_t id;                  /* of it */
    int32_t index, shift;
    uint64_t searched;            /* how many requests had been admitted when one was looked for last */
    int64_t told_us;
    bool told_computing;
};

struct qr_outside {
    struct qr_exchange *peers;    /* owned; NULL: none ask or are asked */
    struct qr_file_tier *files;   /* owned; NULL: there is none */
    bool asks;                    /* some peer may be asked */
    struct qr_kv_name domain;     /* any thread's, constant */
    size_t block_bytes;
    struct qr_hold *hold;         /* owned [n_slots] */
    int32_t n_holds;
    struct qr_fetch *fetch;       /* owned [2 n_slots] */
    struct qr_node fetches;       /* those that are not under way */
    int32_t n_left;               /* fetches whose request has gone on without them; its names are theirs */
    struct qr_lending lending[QR_LENDS_MAX];
    int32_t n_lends;
    uint64_t n_admitted;          /* requests with names */
    struct qr_kv_name *written;   /* owned [n_written_max], a ring: blocks that came, for the file tier */
    uint32_t written_first, n_written, n_written_max; /* the last a power of two */
    double file_bytes_s;          /* of reading; 0: nothing was read */
    double peer_hope;             /* peers may be so many times as fast as they were */
};

/* Where the content of block b lies. */
uint8_t *qr_outside_block(const struct qr_engine *e, int32_t b);

/* lend.c. Takes what is asked; copies, tells and answers as far as *budget goes. */
void qr_lends_take(struct qr_engine *e, struct qr_node *asked);
void qr_lends_look(struct qr_engine *e, int64_t *budget, int64_t now);
void qr_lends_end(struct qr_engine *e); /* they are void: the exchange is about to close */

/* For qr_exchange_config.compute: any thread. */
int qr_lends_compute(void *engine, struct qr_lend *lend, struct qr_err *err);

#endif
