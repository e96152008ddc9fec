/* fuzz_key_line.c - any bytes as a line of a key file: refused without a byte of it in the message, or read, with every limit in its range. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "server/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_key_line line;
    struct qr_err err = {0};
    const char *text = (const char *)data;
    if (qr_key_line_parse(&line, text, size, &err) != 0) {
        QR_ASSERT(err.code == QR_E_USAGE && err.msg[0]);
        return 0;
    }
    const struct qr_key_terms *t = &line.terms;
    QR_ASSERT(line.len <= 512 && line.name_len <= QR_KEY_NAME_MAX);
    QR_ASSERT(line.len == 0 || (line.key >= text && line.key + line.len <= text + size));
    QR_ASSERT(t->rpm >= 0 && t->tpm >= 0 && t->concurrent >= 0 && t->weight == (line.len > 0 ? t->weight : 0));
    QR_ASSERT(line.len == 0 || t->weight >= 1);
    return 0;
}
