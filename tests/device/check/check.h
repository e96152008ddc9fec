/* check.h - device_check: a device's kernels beside others that must give the same. Small cases beside the reference's
 * kernels (small.c); the shapes of models in the device's own ways (wgmma, cuBLASLt) beside its plain ones (large.c). It
 * needs no Criterion and no server, so that tools/gpu.sh can carry it to a machine with a GPU; test_check.c runs the same
 * command on devices of tests. One thread, which opens the device. */
#ifndef QR_TESTS_DEVICE_CHECK_H
#define QR_TESTS_DEVICE_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/command.h"

/* Exit status 7: something is wrong; 77: there was nothing to compare. */
extern const struct qr_command device_check_command;

struct check_options {
    const char *device, *only; /* only: one of check_parts, or NULL: all */
    const char *json;  /* of large cases: a file for one object a line and case; "-": stdout, and no text; NULL: text alone */
    int64_t scale;     /* of large cases: what sequences, rows, contexts, heads and widths are divided by */
    bool large;
};

/* Whether --only leaves this part in: "linear", "attention" or, of small cases, "rows". */
static inline bool check_wanted(const struct check_options *o, const char *part)
{
    return !o->only || strcmp(o->only, part) == 0;
}

/* Compares and prints a line for each case. *n_wrong: cases beyond their bounds; *n_compared: cases that had two ways.
 * Errors: those of opening the device, and of the file. */
int check_small(const struct check_options *o, int32_t *n_wrong, int32_t *n_compared, struct qr_err *err);
int check_large(const struct check_options *o, int32_t *n_wrong, int32_t *n_compared, struct qr_err *err);

#endif
