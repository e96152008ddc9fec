/* access.h - the line of the access log that an answered request makes: its client and key, its route, what became of it, how long it took. No text of a
 * request or an answer is in it. Loop thread.
 */
#ifndef QR_SERVER_ACCESS_H
#define QR_SERVER_ACCESS_H

#include "server/http_conn.h"

/* Connection handler: what became of a request. */
void qr_access_answered(void *server, struct qr_conn *c, const struct qr_answered *a);

#endif
