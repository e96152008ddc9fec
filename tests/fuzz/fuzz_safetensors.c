/* Any bytes as a safetensors file: a clean refusal, or a set whose every tensor lies inside the bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "loader/stores/tensor_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    int rc = qr_safetensors_open_memory(&st, data, size, "fuzz", &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return 0;
    }
    uint64_t sum = 0;
    unsigned char seen = 0;
    for (int32_t i = 0; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        const uint8_t *bytes = qr_tensor_files_data(st, t);
        QR_ASSERT(qr_tensor_files_find(st, t->name) == t);
        QR_ASSERT(t->offset <= size && t->n_bytes <= size - t->offset);
        if (t->n_bytes)
            seen = (unsigned char)(seen ^ bytes[0] ^ bytes[t->n_bytes - 1]);
        sum += t->n_bytes;
    }
    QR_ASSERT(sum <= size);
    qr_tensor_files_close(st);
    volatile unsigned char sink = seen;
    (void)sink;
    return 0;
}
