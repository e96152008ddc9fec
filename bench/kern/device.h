/* device.h - `quire bench kern --device cuda`: the kernels of a device at the shapes of models that it is made for. Inside bench/ only. */
#ifndef QR_BENCH_KERN_DEVICE_H
#define QR_BENCH_KERN_DEVICE_H

#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "bench/kern/rows.h"

/* Whether --only, which may be NULL, leaves this part in. */
static inline bool qr_kern_wanted(const char *only, const char *part)
{
    return !only || strcmp(only, part) == 0;
}

/* Measures and prints, each row also into `rows`. only: as of kern ("linear", "attention", "rows", "back") or NULL. small: everything cut down, for a device
 * of tests. A kernel that the device does not have is left out, and said so. Errors: those of opening the device. */
int qr_bench_kern_device(struct qr_kern_rows *rows, const char *device, const char *only, int64_t time_us, bool small, struct qr_err *err);

#endif
