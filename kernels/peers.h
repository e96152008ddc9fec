/* peers.h - devices of several ranks that reach each other: sums and copies in order with what is launched on a rank's queue. CUDA: NCCL (cuda/peers.c).
 *
 * A rank is a process with one device. All ranks start the same calls in the same order; a call returns when it is queued, and may be recorded between
 * record_begin and record_end like a kernel (backend.h). Sums are the bits of comm/comm.h: element i is added along one binary tree over ranks,
 * ((0 + 1) + (2 + 3)) + ..., wherever it lies and however many come with it.
 *
 * A rank that dies leaves the others' devices waiting for it. So whoever waits for a queue that has peers asks meanwhile whether all are well; when not, what
 * is queued between ranks is given up: waits return, numbers mean nothing, and `failed` says why from then on.
 * One owning thread: that of the queue.
 */
#ifndef QR_KERNELS_PEERS_H
#define QR_KERNELS_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qr_queue;
struct qr_peers; /* one rank's; opaque */

#define QR_PEERS_ID_BYTES 128
#define QR_PEERS_MESSAGE 400

struct qr_peers_options {
    const uint8_t *id; /* of QR_PEERS_ID_BYTES, the same on all ranks */
    int32_t rank, size;
    bool (*lost)(void *user, char message[QR_PEERS_MESSAGE]); /* asked while somebody waits: whether a rank is known to be gone, and which */
    void *user;        /* borrowed */
};

struct qr_peer_ops {
    /* Rank 0: names a group that is about to be opened. False: `message` says what is missing, as it does of open. */
    bool (*id)(uint8_t id[QR_PEERS_ID_BYTES], char message[QR_PEERS_MESSAGE]);
    /* Returns when all ranks have come, or one is lost. Until it is closed the queue's waits look after these peers. */
    bool (*open)(struct qr_peers **out, struct qr_queue *q, const struct qr_peers_options *o, char message[QR_PEERS_MESSAGE]);

    /* data [n] f32 becomes the sum over ranks, on every rank. */
    void (*sum)(struct qr_peers *p, float *data, int64_t n);
    /* Rank r's part of data, [part[r], part[r + 1]), becomes the sum of that part; others may hold anything afterwards. */
    void (*sum_parts)(struct qr_peers *p, float *data, const int64_t *part);
    /* Rank r's part of data, bytes [part[r], part[r + 1]), becomes that part on every rank. */
    void (*share_parts)(struct qr_peers *p, void *data, const int64_t *part);
    /* n_bytes of rank 0 become everybody's. */
    void (*broadcast)(struct qr_peers *p, void *data, size_t n_bytes);
    /* Rank 0 gets what rank r has at `from`, part[r + 1] - part[r] bytes, at to + part[r], for every other rank r. */
    void (*gather)(struct qr_peers *p, void *to, const void *from, const int64_t *part);

    /* Calls between aside(p, true) and aside(p, false) begin when what was launched before the first of the two is done, and run beside what is launched
     * later; behind join what is launched comes after all of them. */
    void (*aside)(struct qr_peers *p, bool begins);
    void (*join)(struct qr_peers *p);

    /* Whether a rank is lost; asks no more than needs no waiting. */
    bool (*failed)(struct qr_peers *p, char message[QR_PEERS_MESSAGE]);
    void (*close)(struct qr_peers *p); /* behind records that have such calls; waits for the others unless one is lost. NULL is fine */
};

#endif
