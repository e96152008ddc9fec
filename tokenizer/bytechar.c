#include "tokenizer/bytechar.h"

#include "base/assert.h"
#include "base/utf8.h"

static bool stands_for_itself(int32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

void qr_bytechar_init(struct qr_bytechar *b)
{
    QR_ASSERT(b != NULL);
    for (int32_t c = 0; c < QR_BYTECHAR_CODES; c++)
        b->byte_of[c] = -1;
    uint32_t next = 0x100;
    for (int32_t byte = 0; byte < 256; byte++) {
        uint32_t code = stands_for_itself(byte) ? (uint32_t)byte : next++;
        char utf8[4];
        int32_t len = qr_utf8_encode(code, utf8);
        b->len[byte] = (uint8_t)len;
        b->utf8[byte][0] = utf8[0];
        b->utf8[byte][1] = len > 1 ? utf8[1] : 0;
        b->byte_of[code] = (int16_t)byte;
    }
    QR_ASSERT(next == QR_BYTECHAR_CODES);
}

int32_t qr_bytechar_decode(const struct qr_bytechar *b, char *out, const char *s, size_t n)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(n <= INT32_MAX);
    int32_t n_out = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int32_t len = qr_utf8_decode(s + i, n - i, &cp);
        if (len == 0 || cp >= QR_BYTECHAR_CODES || b->byte_of[cp] < 0)
            return -1;
        out[n_out++] = (char)b->byte_of[cp];
        i += (size_t)len;
    }
    return n_out;
}
