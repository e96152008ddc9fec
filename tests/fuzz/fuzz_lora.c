/* Any bytes as an adapter, its settings up to the first NUL and its matrices behind it: a clean refusal, or pairs whose numbers can all be read. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "loader/write/make_model.h"
#include "tests/lora_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_lora_file *f;
    struct qr_err err = {0};
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - data) : size, rest = end ? size - n - 1 : 0;
    int rc = qr_lora_file_open_memory(&f, data, n, end ? end + 1 : NULL, rest, &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return 0;
    }
    QR_ASSERT(qr_lora_file_rank(f) >= 1);
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    rc = lora_read_all(f, &c, &err);
    QR_ASSERT(rc == 0 || err.msg[0] != 0);
    qr_lora_file_close(f);
    return 0;
}
