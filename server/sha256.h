/* sha256.h - SHA-256 by functions that need no memory, which a request may lack, and read no configuration of OpenSSL. The server's door to libcrypto's hashes.
 * Pure; any thread.
 */
#ifndef QR_SERVER_SHA256_H
#define QR_SERVER_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define QR_SHA256_BYTES 32
#define QR_SHA256_BASE64 45 /* with its end */

/* Of a and, behind it, b; n_b may be 0. */
void qr_sha256(uint8_t out[QR_SHA256_BYTES], const void *a, size_t n_a, const void *b, size_t n_b);
void qr_sha256_base64(char out[QR_SHA256_BASE64], const void *bytes, size_t n);

#endif
