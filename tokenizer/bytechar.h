/* bytechar.h - the byte alphabet of byte-level BPE: every byte is written as one printable character, so that a vocabulary can
 * be stored as text. Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves as code points; the other 68 take
 * U+0100, U+0101, ... in order. Source: Radford et al. 2019 (GPT-2).
 */
#ifndef QR_TOKENIZER_BYTECHAR_H
#define QR_TOKENIZER_BYTECHAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QR_BYTECHAR_CODES 0x144 /* one more than the largest code point used */

struct qr_bytechar {
    uint8_t len[256];             /* UTF-8 length of a byte's character: 1 or 2 */
    char utf8[256][2];            /* and its UTF-8 form */
    int16_t byte_of[QR_BYTECHAR_CODES]; /* the byte of a code point, or -1 */
};

void qr_bytechar_init(struct qr_bytechar *b);

/* Writes the bytes that s stands for to out (room for n); returns their count, or -1 when a character is not of the alphabet. */
int32_t qr_bytechar_decode(const struct qr_bytechar *b, char *out, const char *s, size_t n);

#endif
