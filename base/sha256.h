/* sha256.h - SHA-256 by functions that need no memory, which a request may lack, and read no configuration of OpenSSL. The door to libcrypto's hashes, which a
 * program built without its server has not: then they panic. Pure; any thread.
 */
#ifndef QR_BASE_SHA256_H
#define QR_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QR_SHA256_BYTES 32
#define QR_SHA256_BASE64 45 /* with its end */

/* Of a and, behind it, b; n_b may be 0. */
void qr_sha256(uint8_t out[QR_SHA256_BYTES], const void *a, size_t n_a, const void *b, size_t n_b);
void qr_sha256_base64(char out[QR_SHA256_BASE64], const void *bytes, size_t n);

/* HMAC (RFC 2104) of text under key. */
void qr_hmac_sha256(uint8_t out[QR_SHA256_BYTES], const void *key, size_t n_key, const void *text, size_t n);

/* In a time that does not depend on where they differ. */
bool qr_same_digest(const uint8_t a[QR_SHA256_BYTES], const uint8_t b[QR_SHA256_BYTES]);

#endif
