/* code_words.h - codes in words of 32 bits, as checkpoints have them, to a byte each. Inside loader/ only. Pure.
 */
#ifndef QR_LOADER_PACK_CODE_WORDS_H
#define QR_LOADER_PACK_CODE_WORDS_H

#include <stdint.h>
#include <string.h>

/* A word's eight codes of 4 bits as bytes, from the low bits up. */
static inline uint64_t bytes_of(uint32_t word)
{
    uint64_t x = word;
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

static inline uint32_t load_word(const uint8_t *p, int64_t i)
{
    uint32_t w;
    memcpy(&w, p + 4 * i, sizeof w);
    return w;
}

/* Byte i of number k and byte k of number i change places: blocks of four, of two, of one. */
static inline void turn(uint64_t x[8])
{
    static const uint64_t mask[] = {0x00000000ffffffffu, 0x0000ffff0000ffffu, 0x00ff00ff00ff00ffu};
    for (int step = 0, by = 4; by > 0; step++, by /= 2)
        for (int k = 0; k < 8; k++) {
            if (k & by)
                continue;
            const uint64_t t = (x[k] >> 8 * by ^ x[k + by]) & mask[step];
            x[k] ^= t << 8 * by;
            x[k + by] ^= t;
        }
}

/* Words of a row, one after the other `stride` words apart, as codes. The last may have more than there are. */
static inline void unpack_words(uint8_t *code, const uint8_t *p, int64_t first, int64_t stride, int32_t bits, int64_t n)
{
    const int64_t per = 32 / bits;
    for (int64_t i = 0; i < n; i += per, first += stride) {
        const uint32_t word = load_word(p, first);
        const uint64_t eight = bits == 4 ? bytes_of(word) : word;
        memcpy(code + i, &eight, (size_t)(n - i < per ? n - i : per));
    }
}

#endif
