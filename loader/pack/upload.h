/* upload.h - bytes of files to a device. */
#ifndef QR_LOADER_PACK_UPLOAD_H
#define QR_LOADER_PACK_UPLOAD_H

#include "kernels/backend.h"

#define QR_UPLOAD_BYTES ((size_t)8 << 20) /* on their way at a time; what a queue stages without allocating */

/* They are read into the memory that it copies from by all threads, while the piece before is on its way. */
void qr_upload(struct qr_backend *be, void *to, const uint8_t *from, size_t n_bytes);

#endif
