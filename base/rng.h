/* rng.h - a counter-based generator: a draw is a function of (seed, stream, position) and nothing else, so a sampled token
 * does not depend on the batch, the thread or how often a request was preempted. Philox4x32-10.
 * Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
 */
#ifndef QR_BASE_RNG_H
#define QR_BASE_RNG_H

#include <stdint.h>

/* Four independent 32-bit words for (seed, stream, pos). */
void qr_rng_words(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t pos);

/* Uniform in [0, 1): 53 random bits. */
double qr_rng_unit(uint64_t seed, uint64_t stream, uint64_t pos);

/* A seed from the operating system, for requests that bring none. */
uint64_t qr_rng_seed_random(void);

/* A small stateful wrapper for tests and load generators. */
struct qr_rng {
    uint64_t seed, pos;
};
uint64_t qr_rng_next(struct qr_rng *r);
uint32_t qr_rng_below(struct qr_rng *r, uint32_t n); /* uniform in [0, n), n > 0 */
double qr_rng_next_unit(struct qr_rng *r);

#endif
