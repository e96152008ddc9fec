/* nfc.h - Unicode normalization forms in O(n log n) for any text, a megabyte of combining marks included. */
#ifndef QR_TOKENIZER_NFC_H
#define QR_TOKENIZER_NFC_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum qr_nf { QR_NFC, QR_NFD, QR_NFKC, QR_NFKD };

/* Appends the form of s[0..n), valid UTF-8. `points` is scratch space. Source: Unicode Standard Annex 15. */
void qr_unicode_form(enum qr_nf form, struct qr_buf *out, struct qr_buf *points, const char *s, size_t n);

static inline int32_t qr_utf8_length(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

#endif
