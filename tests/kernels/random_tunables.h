/* random_tunables.h - tunables to try: each field left to the kernel, at an end of its range, worth a try, or anywhere between. For tests. */
#ifndef QR_TESTS_KERNELS_RANDOM_TUNABLES_H
#define QR_TESTS_KERNELS_RANDOM_TUNABLES_H

#include "base/assert.h"
#include "base/rng.h"
#include "kernels/tune.h"

static inline struct qr_tunables random_tunables(struct qr_rng *r)
{
    struct qr_tunables t = {0};
    for (int f = 0; f < QR_TUNE_FIELDS; f++) {
        const struct qr_tune_field *field = &qr_tune_fields[f];
        const uint32_t kind = qr_rng_below(r, 8), width = (uint32_t)(field->max - field->min) + 1;
        int32_t *v = qr_tune_value(&t, f);
        if (kind == 0)
            *v = qr_rng_below(r, 2) ? field->min : field->max;
        else if (kind <= 3)
            *v = field->tries[qr_rng_below(r, QR_COUNT(field->tries))];
        else if (kind == 4)
            *v = field->min + (int32_t)qr_rng_below(r, width);
    }
    return t;
}

#endif
