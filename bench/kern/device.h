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

/* Every entry of the device's tables against the reference's on small cases, a line for each. only: "linear", "attention", "rows" or NULL. *n_wrong: cases
 * beyond their bounds. Errors: those of opening the device. */
int qr_bench_kern_check(const char *device, const char *only, int32_t *n_wrong, struct qr_err *err);

/* The device's own ways (wgmma and copy engine, a library's products) beside the plain ones at the shapes of models, compared by the device. */
struct qr_kern_large_options {
    const char *device, *only; /* only: "linear", "attention" or NULL */
    const char *json;          /* a file for one JSON object a line and case; "-": standard output, and no text; NULL: text alone */
    int32_t scale;             /* what sequences, rows, contexts, heads and widths are divided by: 1, or more for a slow device */
};
int qr_bench_kern_large(const struct qr_kern_large_options *o, int32_t *n_wrong, int32_t *n_compared, struct qr_err *err); /* compared: two ways there were */

#endif
