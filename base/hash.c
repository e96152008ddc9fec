#include "base/hash.h"

#include <sys/random.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/rng.h"

_Static_assert(sizeof(struct qr_hash_secret) >= XXH3_SECRET_SIZE_MIN, "XXH3 wants a longer secret");

uint64_t qr_hash64(const void *bytes, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, n, seed);
}

/* ---- streams ---- */

static XXH3_state_t *state_of(struct qr_hash_stream *h)
{
    QR_ASSERT(h != NULL);
    return (XXH3_state_t *)(void *)h;
}

struct qr_hash_stream *qr_hash_stream_new(void)
{
    XXH3_state_t *s = XXH3_createState();
    QR_ASSERT(s != NULL && XXH3_64bits_reset(s) == XXH_OK);
    return (struct qr_hash_stream *)(void *)s;
}

void qr_hash_stream_put(struct qr_hash_stream *h, const void *bytes, size_t n)
{
    QR_ASSERT(bytes != NULL || n == 0);
    if (n > 0)
        QR_ASSERT(XXH3_64bits_update(state_of(h), bytes, n) == XXH_OK);
}

uint64_t qr_hash_stream_take(struct qr_hash_stream *h)
{
    const uint64_t hash = XXH3_64bits_digest(state_of(h));
    QR_ASSERT(XXH3_64bits_reset(state_of(h)) == XXH_OK);
    return hash;
}

void qr_hash_stream_free(struct qr_hash_stream *h)
{
    XXH3_freeState((XXH3_state_t *)(void *)h);
}

struct qr_hash128 qr_hash128_plain(const void *bytes, size_t n)
{
    QR_ASSERT(bytes != NULL || n == 0);
    const XXH128_hash_t h = XXH3_128bits(bytes, n);
    return (struct qr_hash128){.lo = h.low64, .hi = h.high64};
}

/* ---- under a secret ---- */

void qr_hash_secret_random(struct qr_hash_secret *s)
{
    QR_ASSERT(s != NULL);
    size_t got = 0;
    while (got < sizeof s->bytes) {
        ssize_t n = getrandom(s->bytes + got, sizeof s->bytes - got, 0);
        if (n > 0)
            got += (size_t)n;
    }
}

void qr_hash_secret_seeded(struct qr_hash_secret *s, uint64_t seed)
{
    QR_ASSERT(s != NULL);
    for (size_t i = 0; i < sizeof s->bytes; i += 16) {
        uint32_t w[4];
        qr_rng_words(w, seed, 0x5ec7e7, i);
        for (size_t j = 0; j < 16; j++)
            s->bytes[i + j] = (uint8_t)(w[j / 4] >> (8 * (j % 4)));
    }
}

struct qr_hash128 qr_hash128_keyed(const void *bytes, size_t n, const struct qr_hash_secret *s)
{
    QR_ASSERT(s != NULL);
    XXH128_hash_t h = XXH3_128bits_withSecret(bytes, n, s->bytes, sizeof s->bytes);
    return (struct qr_hash128){.lo = h.low64, .hi = h.high64};
}
