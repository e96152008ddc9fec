/* address.h - addresses of clients, networks, and what proxies say of a client's address. Nothing that a client sends is believed: a proxy's word is, where the
 * proxy's own address is in a network that the operator named. Pure; any thread.
 *
 * Each proxy on the way puts the address that it saw behind those that it was told. So they are read from the last one on, for as long as the address that said
 * so is trusted. X-Forwarded-For counts where it is there, else Forwarded (RFC 7239).
 */
#ifndef QR_SERVER_ADDRESS_H
#define QR_SERVER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/option.h"
#include "server/http_parser.h"

struct qr_address {
    uint8_t bytes[16]; /* in network order; IPv4 in IPv6 (::ffff:1.2.3.4) is IPv4 */
    uint8_t n_bytes;   /* 4, 16; 0: it is not known */
};

#define QR_ADDRESS_TEXT 48
const char *qr_address_text(char out[QR_ADDRESS_TEXT], const struct qr_address *a); /* "10.0.0.1", "2001:db8::1"; "" of one that is not known */

/* Of 4 or 16 bytes. */
struct qr_address qr_address_of(const void *bytes, size_t n_bytes);
bool qr_address_parse(struct qr_address *out, const char *text, size_t n); /* false: it is none */
bool qr_address_is_loopback(const struct qr_address *a);
bool qr_address_equal(const struct qr_address *a, const struct qr_address *b);

struct qr_network {
    struct qr_address address;
    int32_t n_bits; /* of it that count */
};
struct qr_networks {
    struct qr_network *net; /* owned [n] */
    int32_t n;
};

/* "ADDRESS" or "ADDRESS/BITS" each. Errors: QR_E_USAGE that begins with `what`. */
int qr_networks_parse(struct qr_networks *out, const struct qr_str_list *list, const char *what, struct qr_err *err);
void qr_networks_release(struct qr_networks *n);
bool qr_networks_have(const struct qr_networks *n, const struct qr_address *a);

/* The client of a request that came from `peer`. */
struct qr_address qr_client_address(const struct qr_address *peer, const struct qr_http_forwarded *said, const struct qr_networks *trusted);

#endif
