/* file_index.h - which blocks the file tier has, and where: name -> extent, record. In memory, of a size that is fixed at start.
 *
 * Open addressing over numbers of entries; the hash has a random seed, so that names which collide cannot be prepared. Entries of one extent are a chain, by
 * which they leave together. Any thread may ask, one adds and drops; the lock is held for one name at a time. */
#ifndef QR_EXCHANGE_FILE_INDEX_H
#define QR_EXCHANGE_FILE_INDEX_H

#include <pthread.h>

#include "kvcache/kv_name.h"

#define QR_FILE_EXTENTS_MAX 64

struct qr_file_place {
    int32_t extent, record; /* extent: its place in the tier's table */
};

struct qr_file_entry {
    struct qr_kv_name name;
    struct qr_file_place at;
    int32_t next; /* of the same extent, or free */
};

struct qr_file_index {
    pthread_mutex_t lock;
    struct qr_file_entry *entry; /* owned [n_max] */
    int32_t *slot;               /* owned [mask + 1]: number of an entry, + 1; 0: empty */
    uint64_t mask, seed;
    int32_t n_max, n_touched, n; /* entries: there are, were ever used, are found */
    int32_t free;                /* chain of those that were used once */
    int32_t chain[QR_FILE_EXTENTS_MAX];
};

struct qr_file_index *qr_file_index_new(int32_t n_max);
void qr_file_index_free(struct qr_file_index *x); /* NULL is fine */

bool qr_file_index_find(struct qr_file_index *x, struct qr_file_place *out, const struct qr_kv_name *name);
int32_t qr_file_index_count(struct qr_file_index *x);

/* False: the name is there already. An extent has no more entries than records, and n_max is the number of all records. */
bool qr_file_index_add(struct qr_file_index *x, const struct qr_kv_name *name, struct qr_file_place at);

/* The name is not found any more, if this is where it was. Its entry stays its extent's. */
void qr_file_index_forget(struct qr_file_index *x, const struct qr_kv_name *name, struct qr_file_place at);

/* Nothing of this extent is found any more, and its entries are free. */
void qr_file_index_drop(struct qr_file_index *x, int32_t extent);

#endif
