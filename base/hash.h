/* hash.h - XXH3 behind our own names (the only door to libxxhash). */
#ifndef QR_BASE_HASH_H
#define QR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct qr_hash128 {
    uint64_t lo, hi;
};

/* Not for adversarial input unless `seed` is secret. */
uint64_t qr_hash64(const void *bytes, size_t n, uint64_t seed);

/* The same with seed 0, of bytes that come one after the other. One owning thread. */
struct qr_hash_stream; /* opaque */
struct qr_hash_stream *qr_hash_stream_new(void);
void qr_hash_stream_put(struct qr_hash_stream *h, const void *bytes, size_t n);
uint64_t qr_hash_stream_take(struct qr_hash_stream *h); /* the hash of what was put; then nothing has been */
void qr_hash_stream_free(struct qr_hash_stream *h);     /* NULL is fine */

/* XXH3-128 of bytes: a checksum, against errors and not against intent. */
struct qr_hash128 qr_hash128_plain(const void *bytes, size_t n);

/* A 192-byte key for qr_hash128_keyed. Filled from the operating system's random source, or from a seed in tests. */
struct qr_hash_secret {
    uint8_t bytes[192];
};
void qr_hash_secret_random(struct qr_hash_secret *s);
void qr_hash_secret_seeded(struct qr_hash_secret *s, uint64_t seed);

/* XXH3-128 under a secret: collisions cannot be prepared without knowing it. */
struct qr_hash128 qr_hash128_keyed(const void *bytes, size_t n, const struct qr_hash_secret *s);

#endif
