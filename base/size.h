/* size.h - numbers of bytes as people read them. */
#ifndef QR_BASE_SIZE_H
#define QR_BASE_SIZE_H

#include <stdint.h>

#define QR_SIZE_TEXT 24

/* "9.1 TiB", "12.0 KiB", "17 B": in the largest unit of which there is one, at most TiB. */
const char *qr_size_text(char text[QR_SIZE_TEXT], int64_t n_bytes);

#endif
