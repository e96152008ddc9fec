/* golden_bytes.h - bytes of goldens that were made by another program, as text in base64 (tools/golden/as_text.py): lines, a NULL behind the last. */
#ifndef QR_TESTS_GOLDEN_BYTES_H
#define QR_TESTS_GOLDEN_BYTES_H

#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

/* Appends what the lines stand for; each has whole groups of four characters. */
static inline void golden_bytes_put(struct qr_buf *out, const char *const *lines)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; *lines; lines++)
        for (const char *c = *lines; *c; c += 4) {
            uint32_t v = 0;
            int n = 3;
            for (int i = 0; i < 4; i++) {
                const char *at = c[i] ? strchr(digits, c[i]) : NULL;
                QR_ASSERT(at != NULL || (c[i] == '=' && i >= 2));
                n -= at == NULL;
                v = v << 6 | (at ? (uint32_t)(at - digits) : 0);
            }
            for (int i = 0; i < n; i++)
                qr_buf_put_byte(out, (char)(v >> (16 - 8 * i)));
        }
}

#endif
