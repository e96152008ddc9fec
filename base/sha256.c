#define OPENSSL_SUPPRESS_DEPRECATED /* of SHA256_Init: in its place EVP_DigestInit allocates, and reads OpenSSL's configuration */
#include "base/sha256.h"

#include <string.h>

#include "base/assert.h"

#ifdef QUIRE_SERVER
#include <openssl/evp.h>
#include <openssl/sha.h>

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

#else

void qr_sha256(uint8_t out[QR_SHA256_BYTES], const void *a, size_t n_a, const void *b, size_t n_b)
{
    (void)out, (void)a, (void)n_a, (void)b, (void)n_b;
    qr_panic("this program was built without its server (QUIRE_SERVER), and so without libcrypto's hashes");
}

#endif

#define HMAC_BLOCK 64

void qr_hmac_sha256(uint8_t out[QR_SHA256_BYTES], const void *key, size_t n_key, const void *text, size_t n)
{
    uint8_t k[HMAC_BLOCK] = {0}, pad[HMAC_BLOCK], inner[QR_SHA256_BYTES];
    QR_ASSERT(out != NULL && (key != NULL || n_key == 0));
    QR_ASSERT(text != NULL || n == 0);
    if (n_key > sizeof k)
        qr_sha256(k, key, n_key, NULL, 0);
    else if (n_key > 0)
        memcpy(k, key, n_key);
    for (int i = 0; i < HMAC_BLOCK; i++)
        pad[i] = k[i] ^ 0x36;
    qr_sha256(inner, pad, sizeof pad, text, n);
    for (int i = 0; i < HMAC_BLOCK; i++)
        pad[i] = k[i] ^ 0x5c;
    qr_sha256(out, pad, sizeof pad, inner, sizeof inner);
}

bool qr_same_digest(const uint8_t a[QR_SHA256_BYTES], const uint8_t b[QR_SHA256_BYTES])
{
    uint8_t differs = 0;
    QR_ASSERT(a != NULL && b != NULL);
    for (int i = 0; i < QR_SHA256_BYTES; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}
