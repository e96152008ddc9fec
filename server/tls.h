/* tls.h - TLS under a connection: bytes of the wire on one side, what they say on the other. The only door to libssl, which is opened at first use, so that a
 * server without TLS starts without it. TLS 1.2 and 1.3, and HTTP/1.1 alone. Loop thread.
 */
#ifndef QR_SERVER_TLS_H
#define QR_SERVER_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct qr_tls;      /* the certificate */
struct qr_tls_conn; /* one connection's state */

/* Reads a chain of certificates, the server's own first, and its private key, both PEM. key_file NULL: the key is in cert_file. Paths are borrowed.
 * Errors: QR_E_UNSUPPORTED without libssl; QR_E_NOT_FOUND and QR_E_DAMAGED name the file and say what is the matter with it. */
int qr_tls_open(struct qr_tls **out, const char *cert_file, const char *key_file, struct qr_err *err);
void qr_tls_close(struct qr_tls *t); /* after its connections; NULL is fine */

/* The files are read again. Connections to come use what is in them now; where that is no certificate with its key the old one stays. */
int qr_tls_reload(struct qr_tls *t, struct qr_err *err);

struct qr_tls_conn *qr_tls_begin(struct qr_tls *t); /* NULL: there is no memory */
void qr_tls_end(struct qr_tls_conn *c);             /* NULL is fine */

/* Whether the first byte of a connection begins TLS: clients that speak plain HTTP to the port can be told so. */
bool qr_tls_begins(char first);

/* The handshake is over: qr_tls_write may be called. */
bool qr_tls_ready(const struct qr_tls_conn *c);

/* Takes n bytes from the wire. Appends what they say to plain, and what the peer must be answered to wire. False: the peer ends the connection, or has broken
 * the protocol; plain may hold more all the same. */
bool qr_tls_read(struct qr_tls_conn *c, struct qr_buf *plain, struct qr_buf *wire, const char *bytes, size_t n);

/* Appends to wire what says plain[0, n), n > 0. False: it cannot be said; the connection has to be closed. */
bool qr_tls_write(struct qr_tls_conn *c, struct qr_buf *wire, const char *plain, size_t n);

/* Appends to wire that nothing more will come. */
void qr_tls_shut(struct qr_tls_conn *c, struct qr_buf *wire);

#endif
