/* http_peer.h - the other end of a connection, as the system knows it. `stream` is a uv_stream_t *: libuv's type stays in .c files. */
#ifndef QR_SERVER_HTTP_PEER_H
#define QR_SERVER_HTTP_PEER_H

#include <stdbool.h>

#include "server/address.h"

/* Sets what every connection has: no delay, keep-alive, and an end when a peer acknowledges nothing for 30 s. Returns its address: a Unix socket's has none. */
struct qr_address qr_peer_open(void *stream);

/* Whether unread bytes wait: closing such a socket resets it. */
bool qr_peer_has_sent(const void *stream);

#endif
