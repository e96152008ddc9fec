/* fuzz_tune.c - any bytes, as they are and in the place of the table behind the right head: refused as a whole, or taken
 * and then the same when written. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/tune.h"

#define PROCESSOR "P"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try(const char *text, size_t n)
{
    struct qr_tune *t = qr_tune_new("amx", 2);
    struct qr_buf again = {0};
    struct qr_err err;
    if (qr_tune_parse(t, text, n, PROCESSOR, &err) == 0) {
        qr_tune_format(&again, t, PROCESSOR);
        QR_ASSERT(again.len == n && memcmp(again.data, text, n) == 0);
    } else {
        QR_ASSERT(qr_tune_count(t) == 0);
    }
    qr_buf_release(&again);
    qr_tune_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_tune *none = qr_tune_new("amx", 2);
    struct qr_buf text = {0};
    try((const char *)data, size);
    qr_tune_format(&text, none, PROCESSOR);
    const size_t table = (size_t)(strchr(text.data, '\n') + 1 - text.data), room = text.len - table;
    memcpy(text.data + table, data, size < room ? size : room);
    try(text.data, text.len);
    qr_buf_release(&text);
    qr_tune_free(none);
    return 0;
}
