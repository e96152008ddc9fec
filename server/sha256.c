#define OPENSSL_SUPPRESS_DEPRECATED /* of SHA256_Init: in its place EVP_DigestInit allocates, and reads OpenSSL's configuration */
#include "server/sha256.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "base/assert.h"

void qr_sha256(uint8_t out[QR_SHA256_BYTES], const void *a, size_t n_a, const void *b, size_t n_b)
{
    SHA256_CTX ctx;
    QR_ASSERT(out != NULL);
    QR_ASSERT((a != NULL || n_a == 0) && (b != NULL || n_b == 0));
    if (SHA256_Init(&ctx) != 1 || SHA256_Update(&ctx, a, n_a) != 1 || SHA256_Update(&ctx, b, n_b) != 1 || SHA256_Final(out, &ctx) != 1)
        qr_panic("SHA-256 is not available from libcrypto");
}

void qr_sha256_base64(char out[QR_SHA256_BASE64], const void *bytes, size_t n)
{
    uint8_t sum[QR_SHA256_BYTES];
    QR_ASSERT(out != NULL);
    qr_sha256(sum, bytes, n, NULL, 0);
    const int len = EVP_EncodeBlock((unsigned char *)out, sum, sizeof sum);
    QR_ASSERT(len == QR_SHA256_BASE64 - 1);
}
