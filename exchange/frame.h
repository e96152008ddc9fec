/* frame.h - what two peers say to each other, as bytes. Pure functions; any thread.
 *
 * The side that connected asks, the other one lends. A frame is a header of 12 bytes (kind, id, bytes of the body), and the body; behind a BLOCK
 * the block's bytes follow, where they do not lie in shared memory. Numbers are little-endian. What is decoded has lengths within the bounds below, which are
 * checked before the body has come.
 *
 *     asker                                          lender
 *     HELLO nonce, domain, block size        ->
 *                                            <-      HELLO the same, its own, and how its parcels lie in shared memory
 *     PROOF HMAC(secret, asker, both hellos) ->
 *                                            <-      PROOF HMAC(secret, lender, both hellos), with the memory where it shares
 *     ASK id, names, or with a prompt        ->
 *                                            <-      STATE id, how many there are, whether others are computed      any number of times
 *                                            <-      BLOCK id, index, name, sum                                     in order
 *     DONE number (shared memory: the block was copied) ->
 *     STOP id                                ->
 *                                            <-      END id, why                                                    unless it was stopped
 *     PING                                   ->
 *                                            <-      PONG
 *
 * A proof names its side, and both nonces are in it, so that neither a proof that was sent back nor one of another day is worth anything. */
#ifndef QR_EXCHANGE_FRAME_H
#define QR_EXCHANGE_FRAME_H

#include "base/buf.h"
#include "base/sha256.h"
#include "exchange/exchange.h"

#define QR_FRAME_VERSION 1
#define QR_FRAME_HEAD_BYTES 12
#define QR_FRAME_NONCE_BYTES 32
#define QR_FRAME_IDS_MAX (1 << 21)    /* of a prompt */
#define QR_FRAME_BLOCK_BYTES_MAX ((uint64_t)1 << 30)
#define QR_FRAME_SHARED_MAX (1 << 12) /* parcels in shared memory */

enum qr_frame_kind {
    QR_FRAME_HELLO,
    QR_FRAME_PROOF,
    QR_FRAME_ASK,
    QR_FRAME_STATE,
    QR_FRAME_BLOCK,
    QR_FRAME_END,
    QR_FRAME_STOP,
    QR_FRAME_DONE,
    QR_FRAME_PING,
    QR_FRAME_PONG,
    QR_FRAME_KINDS,
};

enum qr_frame_why { QR_END_ALL, QR_END_BUSY, QR_END_N }; /* no more follows, of any reason; too many ask */

struct qr_frame_hello {
    uint32_t version;
    bool lends;                  /* false: the side that connected */
    int32_t n_shared;            /* parcels of the lender in shared memory; 0: bytes follow their frames */
    uint64_t stride, block_bytes;
    uint8_t nonce[QR_FRAME_NONCE_BYTES];
    struct qr_kv_name domain;
};

struct qr_frame_ask {
    int32_t n, n_ids;
    const void *names;           /* borrowed [n] of QR_KV_NAME_BYTES, at any address */
    const void *ids;             /* borrowed [n_ids] of int32, at any address; n_ids 0: no prompt */
    bool expected, count;        /* count: only the number of those that are there is wanted */
    struct qr_hash128 salt, adapter;
};

struct qr_frame {
    enum qr_frame_kind kind;
    uint32_t id;
    union {
        struct qr_frame_hello hello;
        uint8_t proof[QR_SHA256_BYTES];
        struct qr_frame_ask ask;
        struct {
            int32_t n_there;
            bool computing;
        } state;
        struct {
            int32_t index, number; /* number: of the parcel in shared memory */
            struct qr_kv_name name;
            struct qr_hash128 sum;
        } block;
        enum qr_frame_why why;
        int32_t number;
    };
};

/* The frame at bytes[0 .. n) and its length. 0: its beginning, as far as it has come, is right; -1: it is none, or of a kind that is not among `kinds`
 * (1 << kind). What is borrowed is borrowed from bytes. */
int64_t qr_frame_decode(struct qr_frame *out, const uint8_t *bytes, size_t n, uint32_t kinds);

void qr_frame_encode(struct qr_buf *out, const struct qr_frame *f);

/* What the side `lender` (or the other one) shows to prove that it knows the secret, n_secret may be 0. */
void qr_frame_prove(uint8_t out[QR_SHA256_BYTES], const void *secret, size_t n_secret, bool lender, const struct qr_frame_hello *asks,
                    const struct qr_frame_hello *lends);

#endif
