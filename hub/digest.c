#include "hub/digest.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "base/assert.h"

static void need(int ok)
{
    if (ok != 1)
        qr_panic("SHA-256 and SHA-1 are not available from libcrypto");
}

void qr_hub_digest_begin(struct qr_hub_digest *d, bool sha256, int64_t n_bytes)
{
    char head[32];
    QR_ASSERT(d != NULL);
    QR_ASSERT(n_bytes >= 0);
    if (!d->state)
        d->state = EVP_MD_CTX_new();
    need(d->state != NULL);
    need(EVP_DigestInit_ex(d->state, sha256 ? EVP_sha256() : EVP_sha1(), NULL));
    if (!sha256)
        need(EVP_DigestUpdate(d->state, head, (size_t)snprintf(head, sizeof head, "blob %lld", (long long)n_bytes) + 1)); /* with its zero */
}

void qr_hub_digest_put(struct qr_hub_digest *d, const void *bytes, size_t n)
{
    QR_ASSERT(d != NULL && d->state != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    need(EVP_DigestUpdate(d->state, bytes, n));
}

void qr_hub_digest_take(struct qr_hub_digest *d, char hex[QR_HUB_HASH_MAX])
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    QR_ASSERT(d != NULL && d->state != NULL);
    QR_ASSERT(hex != NULL);
    need(EVP_DigestFinal_ex(d->state, raw, &n));
    QR_ASSERT(2 * n < QR_HUB_HASH_MAX);
    for (unsigned i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", raw[i]);
    qr_hub_digest_release(d);
}

void qr_hub_digest_release(struct qr_hub_digest *d)
{
    QR_ASSERT(d != NULL);
    EVP_MD_CTX_free(d->state);
    d->state = NULL;
}
