/* fetch.h - files of a model on their way into the cache: each a sink of a GET (get.h) that writes blobs/HASH.incomplete under the blob's lock, hashes what
 * passes, and gives the blob its name when the hash is the one that the hub lists. One thread; another process that fetches the same blob is waited for.
 */
#ifndef QR_HUB_FETCH_H
#define QR_HUB_FETCH_H

#include "hub/cache.h"
#include "hub/digest.h"
#include "hub/get.h"

struct qr_hub_fetch {
    const struct qr_hub_cache *cache; /* borrowed, as the next three */
    const struct qr_hub_name *name;
    const char *commit;
    const struct qr_hub_file *file;
    char *url;                   /* owned */
    struct qr_hub_get get;       /* of url, into this */
    /* While it is open: */
    int lock, fd;                /* owned; -1 */
    struct qr_hub_digest digest; /* owned */
    int64_t got;                 /* bytes in the blob */
    int64_t kept;                /* of them, those that were there before */
    bool waits, done;            /* for another process; the blob is there */
};

/* Bytes of the file that are in the cache, whole or not. */
int64_t qr_hub_fetch_cached(const struct qr_hub_cache *c, const struct qr_hub_name *name, const struct qr_hub_file *file);

/* Text as part of a URL: what is no letter, digit or one of `plain` is written as %XX. */
void qr_hub_put_quoted(struct qr_buf *out, const char *text, const char *plain);

void qr_hub_fetch_init(struct qr_hub_fetch *f, const char *endpoint);
void qr_hub_fetch_release(struct qr_hub_fetch *f);

#endif
