#include "loader/pack/upload.h"

#include <string.h>

#include "base/assert.h"

#define ITEM_BYTES ((size_t)256 << 10) /* of a thread at a time */

struct upload {
    uint8_t *to;
    const uint8_t *from;
    size_t n_bytes;
};

static void upload_item(const void *arg, int32_t item, int32_t worker)
{
    const struct upload *u = arg;
    const size_t at = (size_t)item * ITEM_BYTES, n = u->n_bytes - at < ITEM_BYTES ? u->n_bytes - at : ITEM_BYTES;
    (void)worker;
    memcpy(u->to + at, u->from + at, n);
}

void qr_upload(struct qr_backend *be, void *to, const uint8_t *from, size_t n_bytes)
{
    QR_ASSERT(be != NULL && to != NULL);
    QR_ASSERT(from != NULL || n_bytes == 0);
    for (size_t at = 0; at < n_bytes; at += QR_UPLOAD_BYTES) {
        const size_t n = n_bytes - at < QR_UPLOAD_BYTES ? n_bytes - at : QR_UPLOAD_BYTES;
        const struct upload u = {.to = be->mem->stage(be->queue, n), .from = from + at, .n_bytes = n};
        qr_backend_run(be, upload_item, &u, (int32_t)((n + ITEM_BYTES - 1) / ITEM_BYTES));
        be->mem->put(be->queue, (uint8_t *)to + at, u.to, n);
    }
}
