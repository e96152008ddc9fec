/* zmq_door.h - libzmq, opened when KV events are wanted (with zmq_door.c its only door). The program does not link it, so that a start without events does not
 * load it, and one without the library runs. What is used of it is declared here: its interface is fixed, and building takes no package. Inside
 * exchange/events.c and tests only.
 */
#ifndef QR_EXCHANGE_ZMQ_DOOR_H
#define QR_EXCHANGE_ZMQ_DOOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { QR_ZMQ_PUB = 1, QR_ZMQ_SUB = 2, QR_ZMQ_DEALER = 5, QR_ZMQ_ROUTER = 6 };
enum { QR_ZMQ_SUBSCRIBE = 6, QR_ZMQ_LINGER = 17, QR_ZMQ_MAXMSGSIZE = 22, QR_ZMQ_SNDHWM = 23, QR_ZMQ_RCVHWM = 24, QR_ZMQ_LAST_ENDPOINT = 32, QR_ZMQ_IPV6 = 42 };
enum { QR_ZMQ_POLLIN = 1 };

struct qr_zmq_poll {
    void *socket; /* NULL: fd counts */
    int fd;
    short events, revents;
};

struct qr_zmq {
    void *(*ctx_new)(void);
    int (*ctx_term)(void *context);
    void *(*socket)(void *context, int type);
    int (*close)(void *socket);
    int (*setsockopt)(void *socket, int option, const void *value, size_t n);
    int (*getsockopt)(void *socket, int option, void *value, size_t *n);
    int (*bind)(void *socket, const char *endpoint);
    int (*connect)(void *socket, const char *endpoint);
    int (*send)(void *socket, const void *bytes, size_t n, int flags);
    int (*recv)(void *socket, void *bytes, size_t n, int flags);
    int (*poll)(struct qr_zmq_poll *item, int n, long timeout_ms);
    int (*last_errno)(void);
    const char *(*strerror)(int code);
};

/* Errors: QR_E_UNSUPPORTED with the package to install. It stays loaded. */
int qr_zmq_open(struct qr_zmq *z, struct qr_err *err);

/* n parts as one message. -1: the socket has no room, or no peer, for it. Never waits. */
struct qr_zmq_part {
    const void *bytes; /* borrowed */
    size_t n;
};
int qr_zmq_send(const struct qr_zmq *z, void *socket, const struct qr_zmq_part *part, int32_t n);

/* One message, without waiting: its parts lie behind each other at `to`, part_max bytes apart, and their lengths in `len`; of what is longer, or beyond n_max
 * parts, nothing but the length is told. The number of its parts; 0: there is none. */
int32_t qr_zmq_take(const struct qr_zmq *z, void *socket, char *to, int32_t *len, int32_t n_max, size_t part_max);

#endif
