/* digest.h - the hashes that name a hub's files: SHA-256 of large ones, git's SHA-1 of a blob for others (a door to libcrypto). One owner. */
#ifndef QR_HUB_DIGEST_H
#define QR_HUB_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hub/name.h"

struct qr_hub_digest {
    void *state; /* owned; NULL: none was begun */
};

/* Of a file of n_bytes; sha256: else git's. Begins anew where one was begun. */
void qr_hub_digest_begin(struct qr_hub_digest *d, bool sha256, int64_t n_bytes);
void qr_hub_digest_put(struct qr_hub_digest *d, const void *bytes, size_t n);
void qr_hub_digest_take(struct qr_hub_digest *d, char hex[QR_HUB_HASH_MAX]); /* of what was put; then it is released */
void qr_hub_digest_release(struct qr_hub_digest *d);

#endif
