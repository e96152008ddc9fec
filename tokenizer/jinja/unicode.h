/* unicode.h - what Python's str knows about characters (utf8proc stays behind it). Internal to tokenizer/. */
#ifndef QR_TOKENIZER_JINJA_UNICODE_H
#define QR_TOKENIZER_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool qr_jspace(uint32_t cp);     /* str.isspace */
bool qr_jword(uint32_t cp);      /* \w */
bool qr_jprintable(uint32_t cp); /* str.isprintable */
bool qr_jalpha(uint32_t cp);
bool qr_jdecimal(uint32_t cp);
bool qr_jdigit(uint32_t cp);
bool qr_jnumeric(uint32_t cp);
bool qr_jupper(uint32_t cp);
bool qr_jlower(uint32_t cp);
bool qr_jtitlecase(uint32_t cp);

/* The length of the white space at the beginning, or at the end, of the text s[0..n); 0 when there is none. */
size_t qr_jspace_at(const char *s, size_t n);
size_t qr_jspace_before(const char *s, size_t n);

/* The full mappings: up to three code points; returns how many. */
int32_t qr_jto_upper(uint32_t cp, uint32_t out[3]);
int32_t qr_jto_lower(uint32_t cp, uint32_t out[3]);
int32_t qr_jto_title(uint32_t cp, uint32_t out[3]);

/* Whether a capital sigma at byte `at` of s[0..n) ends a word, so that its small form is the final one. */
bool qr_jsigma_final(const char *s, size_t n, size_t at);

#endif
