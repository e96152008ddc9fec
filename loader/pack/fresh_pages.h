/* fresh_pages.h - memory that nobody has written yet, entered by threads just before they write there. Two threads that write to the same fresh huge page both
 * clear it; so who comes to a page first enters it, and who comes meanwhile enters one that follows and that nobody has begun, instead of waiting.
 */
#ifndef QR_LOADER_PACK_FRESH_PAGES_H
#define QR_LOADER_PACK_FRESH_PAGES_H

#include <stdatomic.h>

#include "kernels/backend.h"

#define QR_FRESH_PAGE_BYTES ((size_t)2 << 20) /* a huge page */

struct qr_fresh_pages {
    uint8_t *begin;         /* borrowed; NULL: none are entered */
    size_t n_bytes;
    _Atomic uint8_t *state; /* owned: of each page */
    size_t n_ahead;         /* pages that follow, of which one is entered instead of waiting */
};

void qr_fresh_pages_init(struct qr_fresh_pages *e, void *begin, size_t n_bytes, size_t n_ahead);
void qr_fresh_pages_release(struct qr_fresh_pages *e);

/* Before [p, p + n_bytes) of them are written. Any thread. */
void qr_fresh_pages_enter(const struct qr_fresh_pages *e, const void *p, size_t n_bytes);

/* Likewise by all of be's threads, from the caller's one. */
void qr_fresh_pages_enter_by_all(const struct qr_fresh_pages *e, struct qr_backend *be, const void *p, size_t n_bytes);

#endif
