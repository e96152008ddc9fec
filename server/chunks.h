/* chunks.h - the framing of a chunked body: sizes, extensions, CR LF. Pure; no I/O. The trailers behind the last chunk are the gate's (gate.h).
 *
 * Extensions carry nothing that is read here, but what they may look like is checked: a reader that takes their end elsewhere sees another body.
 * What is found depends on the bytes only, never on how they were cut into reads.
 * Source: RFC 9112 section 7.1.
 */
#ifndef QR_SERVER_CHUNKS_H
#define QR_SERVER_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define QR_CHUNK_EXTENSIONS_MAX 4096 /* bytes, of one body */

enum qr_chunks_step { QR_CHUNKS_MORE, QR_CHUNKS_LAST, QR_CHUNKS_BAD }; /* LAST: the last chunk's line was used */

struct qr_chunks {
    int64_t left;         /* bytes of the chunk that are to come, those of its CR LF counted; 0: a size is next */
    size_t n_extension;
    int32_t status;       /* BAD: the HTTP status to answer with, and a sentence for the client */
    const char *why;      /* borrowed, static */
};

/* c is zeroed before the first call. Appends the data in bytes[0..n) to `body`, which holds body_max bytes at most.
 * *used: bytes from the front that are not to be given again. */
enum qr_chunks_step qr_chunks_read(struct qr_chunks *c, struct qr_buf *body, size_t *used, const char *bytes, size_t n, size_t body_max);

#endif
