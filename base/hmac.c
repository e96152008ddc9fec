#include "base/hmac.h"

#include <string.h>

#include "base/assert.h"

#define BLOCK 64

/* FIPS 180-4. */
struct sha {
    uint32_t h[8];
    uint8_t block[BLOCK];
    uint64_t n;
};

static uint32_t turned(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void add_block(struct sha *s)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74,
        0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d,
        0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e,
        0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
        0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 | (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t e = v[4], a = v[0];
        const uint32_t one = v[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        const uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
}

static void begin(struct sha *s)
{
    static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *s = (struct sha){0};
    memcpy(s->h, h, sizeof h);
}

static void put(struct sha *s, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s->block[s->n++ % BLOCK] = ((const uint8_t *)bytes)[i];
        if (s->n % BLOCK == 0)
            add_block(s);
    }
}

static void take(uint8_t out[QR_HMAC_BYTES], struct sha *s)
{
    const uint64_t n_bits = s->n * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(n_bits >> (56 - 8 * i));
    put(s, "\x80", 1);
    while (s->n % BLOCK != BLOCK - sizeof length)
        put(s, "", 1);
    put(s, length, sizeof length);
    for (int i = 0; i < QR_HMAC_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void qr_hmac_sha256(uint8_t out[QR_HMAC_BYTES], const void *key, size_t n_key, const void *text, size_t n)
{
    QR_ASSERT(out != NULL && (key != NULL || n_key == 0));
    QR_ASSERT(text != NULL || n == 0);
    struct sha s;
    uint8_t pad[BLOCK] = {0};
    if (n_key > BLOCK) {
        begin(&s);
        put(&s, key, n_key);
        take(pad, &s);
    } else if (n_key > 0) {
        memcpy(pad, key, n_key);
    }
    for (int i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36;
    begin(&s);
    put(&s, pad, sizeof pad);
    put(&s, text, n);
    take(out, &s);
    for (int i = 0; i < BLOCK; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    begin(&s);
    put(&s, pad, sizeof pad);
    put(&s, out, QR_HMAC_BYTES);
    take(out, &s);
}

bool qr_hmac_equal(const uint8_t a[QR_HMAC_BYTES], const uint8_t b[QR_HMAC_BYTES])
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(b != NULL);
    uint8_t differ = 0;
    for (int i = 0; i < QR_HMAC_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}
