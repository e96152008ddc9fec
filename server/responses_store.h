/* responses_store.h - responses that clients may ask for later, each with the conversation that it ends: bounded in number, bytes and age; the oldest leave
 * first. One is found under the key alone that made it. Its memory is in no request's account. Any thread, one at a time: a lock of its own.
 */
#ifndef QR_SERVER_RESPONSES_STORE_H
#define QR_SERVER_RESPONSES_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/keys.h"

struct qr_responses; /* opaque */

#define QR_RESPONSE_ID_MAX 47

/* What is stored of one: the response as JSON, the items that it was given and those that it said, comma-separated. */
enum qr_response_part { QR_RESPONSE_BODY, QR_RESPONSE_INPUT, QR_RESPONSE_OUTPUT, QR_RESPONSE_PARTS };
struct qr_response_text {
    const char *data; /* borrowed; NULL where n is 0 */
    size_t n;
};

/* n_max 0: nothing is kept. */
struct qr_responses *qr_responses_new(int64_t n_max, int64_t bytes_max, int64_t ttl_us);
void qr_responses_free(struct qr_responses *r); /* NULL is fine */

/* Keeps copies; one that alone is above bytes_max, or for which there is no memory, is not kept. id is no longer than QR_RESPONSE_ID_MAX. */
void qr_responses_put(struct qr_responses *r, const struct qr_key_digest *owner, const char *id, const struct qr_response_text part[QR_RESPONSE_PARTS]);

/* Appends a part, in the thread's account. False: there is no such response of this owner, or the memory is missing. */
bool qr_responses_get(struct qr_responses *r, const struct qr_key_digest *owner, const char *id, enum qr_response_part part, struct qr_buf *out);

/* False: there was none. */
bool qr_responses_delete(struct qr_responses *r, const struct qr_key_digest *owner, const char *id);

int64_t qr_responses_count(struct qr_responses *r, int64_t *n_bytes); /* n_bytes may be NULL */

#endif
