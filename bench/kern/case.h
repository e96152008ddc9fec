/* case.h - what the files of `quire bench kern` share: one case of the processor's being measured, and the run on a
 * device. Inside bench/ only; one thread, which is worker 0 of the backend. */
#ifndef QR_BENCH_KERN_CASE_H
#define QR_BENCH_KERN_CASE_H

#include <string.h>

#include "bench/kern/rows.h"
#include "bench/kern/probe.h"

/* Whether --only, which may be NULL, leaves this part in. */
static inline bool qr_kern_wanted(const char *only, const char *part)
{
    return !only || strcmp(only, part) == 0;
}

struct qr_kern_case;
typedef void qr_kern_call(struct qr_kern_case *b, int32_t copy); /* runs the copy-th copy of the operands */

struct qr_kern_case {
    struct qr_backend *be;
    struct qr_kern_rows *rows; /* borrowed: where every report goes, too */
    int64_t time_us, memory_bytes;
    double read_gb_s, gflop_s[QR_PROBE_UNITS]; /* what the probes reached with these threads; 0 before they ran or where there are none */

    qr_kern_call *call;
    int32_t n_copies;
    const void *args; /* of the call */
    double bytes, flop; /* of one call */
    enum qr_probe_unit unit; /* what bounds its flop */
    bool probe;
};

/* Measures and prints a row, named as by printf; its share is of the nearer of the two limits. Returns GB/s. */
double qr_kern_report(struct qr_kern_case *b, const char *name, ...) __attribute__((format(printf, 2, 3)));

/* The entries of the kernel table besides linear and attention, for two published models' shapes.
 * x and out hold 512 * 16384 floats each; out is overwritten. */
void qr_kern_rest(struct qr_kern_case *b, const void *memory, const float *x, float *out);

/* The head's product with and without maxima of its stretches, and weights packed in linear's order. Arguments as
 * above. */
void qr_kern_head(struct qr_kern_case *b, const void *memory, const float *x, float *out);

/* Gradients of norms, rotations and gated units, with operands spread over `memory` (b->memory_bytes of it), which is overwritten with floats. */
void qr_kern_back(struct qr_kern_case *b, char *memory);

/* Of a device: measures and prints, each row also into `rows`. only: "linear", "attention", "rows", "back" or NULL.
 * small: everything cut down, for a device of tests. A kernel that the device does not have is left out, and said so.
 * Errors: those of opening the device. */
int qr_kern_device(struct qr_kern_rows *rows, const char *device, const char *only, int64_t time_us, bool small,
                   struct qr_err *err);

#endif
