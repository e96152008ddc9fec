/* rendezvous.h - ranks of one or several machines find each other by TCP: rank 0 listens at an address that all know, the others connect, and every two
 * end up with a connection. It happens once, before there are threads, within a bounded time.
 *
 * Each side of a connection says the version, how many ranks there are, which it is, and a random number; then each shows by HMAC-SHA256 over both
 * numbers that it knows the secret. What does not fit is refused with the reason, on both sides. Messages have fixed lengths. */
#ifndef QR_COMM_RENDEZVOUS_H
#define QR_COMM_RENDEZVOUS_H

#include "comm/comm.h"

#define QR_RENDEZVOUS_PORT "29500"
#define QR_RENDEZVOUS_SECRET_MAX 4096

struct qr_rendezvous {
    int32_t rank, size;
    const char *at;      /* HOST or HOST:PORT of rank 0; an IPv6 address in brackets */
    const char *secret;  /* [n_secret]; 0: none */
    size_t n_secret;
    int64_t wait_us;     /* for the others */
};

/* link[size], but for this rank's own. Errors: QR_E_USAGE (an address that is none), QR_E_BIND (rank 0 cannot listen there, or is not found), QR_E_DENIED
 * (refused: another number of ranks, rank, version or secret), QR_E_CLOSED (not all came in time, naming them). */
int qr_rendezvous(struct qr_comm_link link[QR_COMM_RANKS_MAX], const struct qr_rendezvous *z, struct qr_err *err);

/* What a rank says first. */
struct qr_rendezvous_hello {
    char magic[8];
    uint32_t wire;
    int32_t rank, size, has_secret;
    uint32_t port;    /* where this rank listens for those behind it; 0: it does not */
    char version[28];
    uint8_t nonce[32];
};

/* Whether rank `self` of z may be connected to by who says h. Errors: QR_E_INVALID (no rank of quire's), QR_E_DENIED. */
int qr_rendezvous_check(const struct qr_rendezvous *z, const struct qr_rendezvous_hello *h, struct qr_err *err);

#endif
