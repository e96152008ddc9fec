/* fuzz_tune.c - any bytes, as they are and sealed with the right checksum behind the right head: refused as a whole, or taken and then the same after
 * being written and read again. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/tune.h"

#define PROCESSOR "P"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try(const char *text, size_t n)
{
    struct qr_tune *t = qr_tune_new("amx", 2), *back = qr_tune_new("amx", 2);
    struct qr_buf again = {0}, third = {0};
    struct qr_err err;
    if (qr_tune_parse(t, text, n, PROCESSOR, &err) == 0) {
        qr_tune_format(&again, t, PROCESSOR);
        QR_ASSERT(qr_tune_parse(back, again.data, again.len, PROCESSOR, &err) == 0);
        qr_tune_format(&third, back, PROCESSOR);
        QR_ASSERT(again.len == third.len && memcmp(again.data, third.data, again.len) == 0);
    } else {
        QR_ASSERT(qr_tune_count(t) == 0);
    }
    qr_buf_release(&again);
    qr_buf_release(&third);
    qr_tune_free(t);
    qr_tune_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_buf body = {0}, sealed = {0};
    try((const char *)data, size);
    qr_buf_put_str(&body, "processor " PROCESSOR "\nlevel amx threads 2\n");
    qr_buf_put(&body, data, size);
    qr_tune_seal(&sealed, body.data, body.len);
    try(sealed.data, sealed.len);
    qr_buf_release(&body);
    qr_buf_release(&sealed);
    return 0;
}
