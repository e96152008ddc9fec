/* wire.h - how bytes reach another process: a table with a row for each kind of address, and its verbs. What is a frame, or who a peer is, is not known here.
 *
 * No verb but `listen` waits. A connection is a descriptor that poll() understands. The exchange's thread calls all but `parse` and `listen`. */
#ifndef QR_EXCHANGE_WIRE_H
#define QR_EXCHANGE_WIRE_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"
#include "exchange/exchange.h"

#define QR_WIRE_LATER (-2) /* of connect: the name is still being looked up */

struct qr_wire;

/* An address, read. */
struct qr_wire_place {
    const struct qr_wire *wire;          /* borrowed: its row */
    char text[QR_PEER_ADDRESS_MAX];      /* as it was given; of a listener, as peers reach it */
    char host[QR_PEER_ADDRESS_MAX], port[8]; /* host: in small letters; or the path */
    bool local;                          /* nothing outside this machine reaches it: it needs no secret */
    struct qr_wire_names *names;         /* owned by wire_tcp.c: addresses of the host, looked up */
    struct qr_ucx *ucx;                  /* owned by wire_ucx.c */
};

struct qr_wire {
    const char *prefix;                  /* of its addresses; "": of those without one */
    bool passes_memory;                  /* write and read can carry a descriptor of memory */
    int (*parse)(struct qr_wire_place *place, const char *text, struct qr_err *err); /* text: behind the prefix. Any thread */
    int (*prepare)(struct qr_wire_place *place, struct qr_err *err); /* before it is used; NULL: nothing is to be done. QR_E_UNSUPPORTED */
    int (*listen)(struct qr_wire_place *place, struct qr_err *err); /* a descriptor, or QR_E_ */
    void (*unlisten)(struct qr_wire_place *place, int fd);
    int (*accept)(int listener);         /* a descriptor; -1 and errno */
    int (*connect)(struct qr_wire_place *place, const char **why); /* a descriptor; -1 and why, QR_WIRE_LATER */
    int (*connected)(int fd);            /* once it can be written: 0, or its errno */
    void (*forget)(struct qr_wire_place *place); /* what connect has kept; may be NULL */
    ssize_t (*read)(int fd, void *to, size_t n, int *memory); /* as recv; *memory (NULL: none is wanted): what came with it, or unchanged */
    ssize_t (*write)(int fd, const struct iovec *part, int n_parts, int memory); /* as writev; memory: -1, or what goes with it */
    void (*close)(int fd);
};

extern const struct qr_wire qr_wire_tcp, qr_wire_unix, qr_wire_ucx;

/* What rows whose addresses are HOST:PORT share: reading one; the address to listen at; the next one to be tried (0, -1 and why, QR_WIRE_LATER). */
struct qr_wire_address {
    struct sockaddr_storage sa;
    socklen_t len;
};
int qr_wire_parse_host(struct qr_wire_place *place, const char *text, struct qr_err *err);
int qr_wire_own_address(struct qr_wire_address *out, const struct qr_wire_place *place, struct qr_err *err);
void qr_wire_bound(struct qr_wire_place *place, const struct sockaddr *sa); /* its text becomes the address at which peers reach it */
int qr_wire_next_address(struct qr_wire_address *out, struct qr_wire_place *place, const char **why);
void qr_wire_forget_names(struct qr_wire_place *place);

/* Verbs that the rows of sockets share. */
int qr_wire_socket_connected(int fd);
ssize_t qr_wire_socket_read(int fd, void *to, size_t n, int *memory);
ssize_t qr_wire_socket_write(int fd, const struct iovec *part, int n_parts, int memory);
void qr_wire_socket_close(int fd);

/* QR_E_USAGE: it is no address, QR_E_UNSUPPORTED. */
int qr_wire_parse(struct qr_wire_place *place, const char *text, struct qr_err *err);

/* Whether text, read, is this place. */
bool qr_wire_is(const struct qr_wire_place *place, const char *text);

#endif
