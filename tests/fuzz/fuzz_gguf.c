/* Any bytes as a GGUF file: a clean refusal, or keys and tensors that lie inside the bytes; and as a model: its configuration, vocabulary and weights. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/files/gguf.h"
#include "tests/fuzz/open_model.h"

#define ZEROS (64 << 10)

static unsigned char look_at_keys(const struct qr_gguf *g, const uint8_t *end)
{
    unsigned char seen = 0;
    for (int32_t i = 0; i < qr_gguf_n_keys(g); i++) {
        const struct qr_gguf_key *k = qr_gguf_key_at(g, i);
        const uint8_t *at = k->data;
        QR_ASSERT(at <= end);
        for (uint64_t n = 0; k->kind == QR_GGUF_ARRAY && k->of == QR_GGUF_STRING && n < k->count; n++) {
            struct qr_gguf_text t = qr_gguf_next_text(&at);
            QR_ASSERT(at <= end);
            seen = (unsigned char)(seen ^ (t.n ? t.at[t.n - 1] : 0));
        }
        if (k->kind == QR_GGUF_ARRAY && k->of == QR_GGUF_I32 && k->count > 0)
            seen = (unsigned char)(seen ^ qr_gguf_array_int(k, k->count - 1));
    }
    return seen;
}

/* With zeros behind it, so that the tensors of a header whose sizes were changed lie inside the file more often. */
static void as_a_model(const uint8_t *data, size_t size)
{
    char path[40];
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    QR_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size && ftruncate(fd, (off_t)size + ZEROS) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    open_model(path);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_gguf *g;
    struct qr_err err = {0};
    as_a_model(data, size);
    int rc = qr_gguf_open(&g, data, size, "fuzz", &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return 0;
    }
    volatile unsigned char seen = look_at_keys(g, data + size);
    uint64_t sum = 0;
    for (int32_t i = 0; i < qr_gguf_n_tensors(g); i++) {
        const struct qr_gguf_tensor *t = qr_gguf_tensor_at(g, i);
        QR_ASSERT(t->offset <= size && t->n_bytes <= size - t->offset && t->n_bytes > 0);
        seen = (unsigned char)(seen ^ data[t->offset] ^ data[t->offset + t->n_bytes - 1]);
        sum += t->n_bytes;
    }
    QR_ASSERT(sum <= size);
    qr_gguf_close(g);
    return 0;
}
