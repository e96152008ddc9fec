/* store.h - finished answers, in one ring over all keys: what one said may be guessed for another of the same salt. The latest are there, as many as fit; an
 * answer of one salt is found under no other (the hash begins from the salt, and the owner of each place is compared). Engine thread.
 */
#ifndef QR_ENGINE_DRAFT_STORE_H
#define QR_ENGINE_DRAFT_STORE_H

#include "engine/draft/history.h"

#define QR_STORED_MAX 16384 /* ids of one answer that are kept, its last */

struct qr_store {
    int32_t *id;              /* owned [text.mask + 1]; NULL: nothing is kept */
    struct qr_hash128 *owner; /* owned [(text.mask + 1) / QR_OWNED_IDS] */
    struct qr_text text;      /* of these */
    struct qr_history index;
    uint32_t n_indexed;       /* places before it are in the index */
};

int64_t qr_store_bytes(int64_t bytes_max);                 /* what a store within bytes_max takes: 0 where that is too little for one */
void qr_store_init(struct qr_store *s, int64_t bytes_max); /* without room for any, nothing is kept */
void qr_store_release(struct qr_store *s);

/* An answer ids[0..n), n >= 0; indexed by qr_store_index, at most n_max ids a call. Returns how many it did. */
void qr_store_put(struct qr_store *s, const int32_t *ids, int32_t n, const struct qr_hash128 *salt);
int32_t qr_store_index(struct qr_store *s, int32_t n_max);

/* The longest matches of the n ids before `last` in answers of this salt; m->n 0: there are none. */
void qr_store_find(const struct qr_store *s, const int32_t *last, uint32_t n, const struct qr_hash128 *salt, struct qr_match *m);

#endif
