/* msgpack.h - values in MessagePack's form, behind each other at the end of a buffer: what KV events are told in. A packer only. */
#ifndef QR_EXCHANGE_MSGPACK_H
#define QR_EXCHANGE_MSGPACK_H

#include "base/buf.h"

void qr_mp_nil(struct qr_buf *b);
void qr_mp_uint(struct qr_buf *b, uint32_t v); /* in as few bytes as it takes */
void qr_mp_f64(struct qr_buf *b, double v);
void qr_mp_str(struct qr_buf *b, const char *s); /* NULL: nil; less than 64 KiB */
void qr_mp_bin(struct qr_buf *b, const void *bytes, uint8_t n);
void qr_mp_array(struct qr_buf *b, uint32_t n); /* of the n values that follow */
void qr_mp_map(struct qr_buf *b, uint8_t n);    /* of the n < 16 pairs that follow */

/* An array whose length is told later: where it lies, for qr_mp_array_end. */
size_t qr_mp_array_begin(struct qr_buf *b);
void qr_mp_array_end(struct qr_buf *b, size_t at, uint32_t n);

#endif
