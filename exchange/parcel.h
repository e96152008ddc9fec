/* parcel.h - a buffer of one cache block, on its way between the engine thread and the exchange or the file tier. Ownership moves with it: it lies on one
 * list, or with one thread. All are made at start and given back to the pool they came from, so their number is the bound of what is in flight.
 */
#ifndef QR_EXCHANGE_PARCEL_H
#define QR_EXCHANGE_PARCEL_H

#include <pthread.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/list.h"
#include "kvcache/kv_name.h"

struct qr_fetch;
struct qr_lend;

struct qr_parcel {
    struct qr_node link;
    struct qr_parcels *home;    /* borrowed: where it goes back */
    uint8_t *bytes;             /* borrowed from home [block_bytes] */
    int32_t number;             /* of its home: where its bytes lie in the home's memory */
    struct qr_kv_name name;
    struct qr_hash128 sum;      /* qr_hash128_plain of the bytes */
    struct qr_fetch *fetch;     /* arrived for this one, as its block `index`; NULL */
    struct qr_lend *lend;       /* copied out for this one, as its block `index`; NULL */
    int32_t index;
};

/* n buffers of block_bytes each in one memory, which is a memfd when `shared`. */
struct qr_parcels {
    pthread_mutex_t lock;       /* guards the list of those that are here; any thread takes and gives back */
    struct qr_node here;
    int32_t n_here;
    void (*back)(void *);       /* called, outside the lock, when a parcel comes back to a pool that had none; set before it is used, may be NULL */
    void *back_arg;
    struct qr_parcel *parcel;   /* owned [n] */
    uint8_t *memory;            /* owned */
    int fd;                     /* of the memory where it is shared, else -1 */
    int32_t n;
    size_t block_bytes, stride; /* stride: block_bytes in whole pages */
};

/* QR_E_NO_ROOM, QR_E_IO. */
int qr_parcels_open(struct qr_parcels *p, int32_t n, size_t block_bytes, bool shared, struct qr_err *err);
void qr_parcels_close(struct qr_parcels *p);
struct qr_parcel *qr_parcels_take(struct qr_parcels *p, int32_t leave); /* NULL: no more than `leave` are here, the others are on their way */
void qr_parcel_give_back(struct qr_parcel *parcel);                     /* with fetch, lend NULL again */

#endif
