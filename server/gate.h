/* gate.h - the header gate: what a request's head must look like before the HTTP parser may see it. Pure; no I/O, no allocation.
 *
 * llhttp 8.1.0 (Debian 12) lets through heads that other parsers read differently: a lone CR as a line end (CVE-2023-30589,
 * CVE-2025-23167), folded lines, no or two Host fields, chunked bodies in HTTP/1.0, bytes >= 0x80 in the target. The gate
 * takes the head line by line and refuses everything that two readers could disagree about, a byte that no line may have before its line ends. Its verdict
 * depends on the bytes only, never on how they were cut into reads. The trailers of a chunked body pass it too; what they say counts for nothing.
 * Source: RFC 9112 sections 2.2, 3, 5, 6; RFC 9110 section 5.
 */
#ifndef QR_SERVER_GATE_H
#define QR_SERVER_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qr_gate_limits {
    size_t head_bytes_max;  /* request line and fields together, line ends included */
    int32_t fields_max;
};
#define QR_GATE_LINE_MAX 8192 /* one line */

enum qr_gate_verdict { QR_GATE_MORE, QR_GATE_PASS, QR_GATE_REFUSE };

struct qr_gate {
    size_t line, seen;      /* offsets of the line that is not complete yet, and of the first byte that was not read */
    size_t head_len;        /* PASS: bytes of the head, the empty line included */
    int32_t n_lines, n_fields, n_host, n_length, n_transfer;
    bool http10, trailers;  /* trailers, set before: no request line, and no field has a meaning */
    int32_t status;         /* REFUSE: the HTTP status to answer with, and a sentence for the client */
    const char *why;        /* borrowed, static */
};

/* g is zeroed before the first call, but for `trailers`. bytes[0..n) is everything received of this head so far, the same
 * start at every call until the verdict is PASS or REFUSE. */
enum qr_gate_verdict qr_gate_scan(struct qr_gate *g, const char *bytes, size_t n, const struct qr_gate_limits *limits);

/* A target with a scheme is "http://" AUTHORITY [path] ["?" query]: bytes before and of the authority; 0 and 0 for every other target. */
size_t qr_gate_authority(const char *target, size_t n, size_t *authority_len);

bool qr_is_token_byte(unsigned char c); /* RFC 9110, section 5.6.2 */

#endif
