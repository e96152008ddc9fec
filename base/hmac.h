/* hmac.h - SHA-256 and HMAC-SHA256 of what is short and rare: how processes show each other that they know a secret. Plain C, so that programs without
 * OpenSSL have it. Pure; any thread. */
#ifndef QR_BASE_HMAC_H
#define QR_BASE_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QR_HMAC_BYTES 32

/* Under a key of n_key bytes, which may be 0 (RFC 2104). */
void qr_hmac_sha256(uint8_t out[QR_HMAC_BYTES], const void *key, size_t n_key, const void *text, size_t n);

/* Takes as long where they differ early as where they differ late. */
bool qr_hmac_equal(const uint8_t a[QR_HMAC_BYTES], const uint8_t b[QR_HMAC_BYTES]);

#endif
