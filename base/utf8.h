/* utf8.h - strict UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF). */
#ifndef QR_BASE_UTF8_H
#define QR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of the well-formed prefix of s[0..n). Equal to n when all of it is valid. */
size_t qr_utf8_valid_prefix(const char *s, size_t n);

/* Whether all of s[0..n) is well-formed. */
static inline bool qr_utf8_is_valid(const char *s, size_t n)
{
    return qr_utf8_valid_prefix(s, n) == n;
}

/* The value of a hexadecimal digit, or -1. */
int32_t qr_hex_digit(char c);

/* Decodes one code point at s (n >= 1 bytes there). Returns its length 1..4 and sets *cp; 0 when the bytes are malformed or cut. */
int32_t qr_utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Encodes cp (a scalar value) into out[4]; returns 1..4. */
int32_t qr_utf8_encode(uint32_t cp, char out[4]);

/* How many bytes at the end of s[0..n) are the beginning of a code point whose rest may still come (0..3). */
int32_t qr_utf8_incomplete_tail(const char *s, size_t n);

/* Appends s to out (cap n_out >= 3*n) with every maximal ill-formed subpart replaced by U+FFFD (Unicode 15, section 3.9:
 * what WHATWG decoders and Python's errors="replace" do). Returns the number of bytes written. */
size_t qr_utf8_lossy(char *out, const char *s, size_t n);

#endif
