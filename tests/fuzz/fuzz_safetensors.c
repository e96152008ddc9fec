/* Any bytes as a safetensors file: a clean refusal, or a set whose every tensor lies inside the bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "loader/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_safetensors *st;
    struct qr_err err = {0};
    int rc = qr_safetensors_open_memory(&st, data, size, "fuzz", &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return 0;
    }
    uint64_t sum = 0;
    unsigned char seen = 0;
    for (int32_t i = 0; i < qr_safetensors_count(st); i++) {
        const struct qr_st_tensor *t = qr_safetensors_at(st, i);
        const uint8_t *bytes = qr_safetensors_data(st, t);
        QR_ASSERT(qr_safetensors_find(st, t->name) == t);
        QR_ASSERT(t->offset <= size && t->n_bytes <= size - t->offset);
        if (t->n_bytes)
            seen = (unsigned char)(seen ^ bytes[0] ^ bytes[t->n_bytes - 1]);
        sum += t->n_bytes;
    }
    QR_ASSERT(sum <= size);
    qr_safetensors_close(st);
    volatile unsigned char sink = seen;
    (void)sink;
    return 0;
}
