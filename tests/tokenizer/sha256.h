/* sha256.h - SHA-256 for comparing with published digests. Source: FIPS 180-4. */
#ifndef TESTS_TOKENIZER_SHA256_H
#define TESTS_TOKENIZER_SHA256_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline uint32_t sha256_turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* The constants are the fractional parts of the roots of the first primes; long double has bits to spare for 32 of them. */
static inline void sha256_constants(uint32_t h[8], uint32_t k[64])
{
    int n = 0;
    for (int p = 2; n < 64; p++) {
        int prime = 1;
        for (int q = 2; q * q <= p; q++)
            prime &= p % q != 0;
        if (!prime)
            continue;
        long double square = sqrtl(p), cube = cbrtl(p);
        if (n < 8)
            h[n] = (uint32_t)((square - floorl(square)) * 4294967296.0L);
        k[n++] = (uint32_t)((cube - floorl(cube)) * 4294967296.0L);
    }
}

static inline void sha256_block(uint32_t h[8], const uint32_t k[64], const uint8_t *block)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (sha256_turn(a, 7) ^ sha256_turn(a, 18) ^ a >> 3) + w[i - 7] +
               (sha256_turn(b, 17) ^ sha256_turn(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t1 = v[7] + (sha256_turn(e, 6) ^ sha256_turn(e, 11) ^ sha256_turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t t2 = (sha256_turn(a, 2) ^ sha256_turn(a, 13) ^ sha256_turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

static inline void sha256_hex(const void *bytes, size_t n, char out[65])
{
    uint32_t h[8], k[64];
    uint8_t last[128] = {0};
    size_t whole = n / 64 * 64, left = n - whole, n_last = left + 9 <= 64 ? 64 : 128;
    sha256_constants(h, k);
    for (size_t i = 0; i < whole; i += 64)
        sha256_block(h, k, (const uint8_t *)bytes + i);
    if (left > 0)
        memcpy(last, (const uint8_t *)bytes + whole, left);
    last[left] = 0x80;
    for (int i = 0; i < 8; i++)
        last[n_last - 1 - (size_t)i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    for (size_t i = 0; i < n_last; i += 64)
        sha256_block(h, k, last + i);
    for (int i = 0; i < 8; i++)
        snprintf(out + 8 * i, 9, "%08x", h[i]);
}

#endif
