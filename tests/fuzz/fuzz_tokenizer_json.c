/* tokenizer.json from arbitrary bytes: refused with a message, or opened and then able to encode, decode and stream. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct qr_tokenizer *t)
{
    static const char text[] = " Once  upon <s>a time,\n'll 123 \xE4\xB8\xAD\xF0\x9F\x98\x80" "e\xCC\x81\xFF </s> "
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    struct qr_segment segment[2] = {{0, 12, true}, {12, sizeof text - 1 - 12, false}};
    struct qr_ids ids = {0};
    struct qr_buf whole = {0};
    struct qr_detok d;
    struct qr_err err;
    if (qr_tokenizer_encode_segments(t, &ids, text, sizeof text - 1, segment, 2, QR_ENCODE_ADD_SPECIAL, &err) == 0 &&
        qr_tokenizer_encode(t, &ids, text, sizeof text - 1, QR_ENCODE_PARSE_SPECIAL, &err) == 0) {
        char *piece = malloc(qr_detok_piece_max(t));
        size_t n = 0;
        qr_tokenizer_decode(t, &whole, ids.id, ids.n, false);
        qr_detok_init(&d, t, NULL, 0, false);
        for (int32_t i = 0; i <= ids.n; i++) {
            size_t len = i < ids.n ? qr_detok_push(&d, piece, ids.id[i]) : qr_detok_flush(&d, piece);
            QR_ASSERT(len <= qr_detok_piece_max(t));
            QR_ASSERT(n + len <= whole.len && (len == 0 || memcmp(whole.data + n, piece, len) == 0));
            n += len;
        }
        QR_ASSERT(n == whole.len);
        QR_ASSERT(n == 0 || qr_utf8_valid_prefix(whole.data, n) == n);
        free(piece);
    }
    qr_ids_release(&ids);
    qr_buf_release(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_tokenizer *t;
    struct qr_err err = {0};
    int rc = qr_tokenizer_parse(&t, (const char *)data, size, NULL, 0, &err);
    if (rc != 0) {
        QR_ASSERT(rc == (int)err.code && err.msg[0] != 0);
        return 0;
    }
    use(t);
    qr_tokenizer_close(t);
    return 0;
}
