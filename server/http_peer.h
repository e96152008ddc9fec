/* http_peer.h - the other end of a connection, as the system knows it. `stream` is a uv_stream_t *: libuv's type stays in .c files. */
#ifndef QR_SERVER_HTTP_PEER_H
#define QR_SERVER_HTTP_PEER_H

#include <stdbool.h>
#include <stdint.h>

struct qr_peer {
    uint8_t address[16]; /* of IPv4 the first four; 0 where the system does not say */
    bool loopback; /* of this machine: a Unix socket's too */
};

/* Reads the address, and sets what every connection has: no delay, keep-alive, and an end when a peer acknowledges nothing for 30 s. */
void qr_peer_open(struct qr_peer *p, void *stream);

/* Whether unread bytes wait: closing such a socket resets it. */
bool qr_peer_has_sent(const void *stream);

#endif
