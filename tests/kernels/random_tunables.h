/* random_tunables.h - tunables to try: each field left to the kernel, at an end of its range, worth a try, or anywhere between. For tests. */
#ifndef QR_TESTS_KERNELS_RANDOM_TUNABLES_H
#define QR_TESTS_KERNELS_RANDOM_TUNABLES_H

#include "base/assert.h"
#include "base/rng.h"
#include "kernels/kernels.h"
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

/* Has what a chain and its products look up be `v`, for each anew when v is NULL. */
static inline void set_chain(struct qr_tune *t, const struct qr_chain_args *c, const struct qr_tunables *v, struct qr_rng *r)
{
    for (int32_t i = 0; i <= c->n; i++) {
        const struct qr_linear_args *a = &c->linear[i % c->n];
        struct qr_tune_key key = {.op = QR_TUNE_LINEAR, .type = (uint8_t)a->w->packed_dtype, .bucket = (uint8_t)qr_tune_bucket(a->n_rows), .a = a->n_in,
                                  .b = a->n_out};
        if (i == c->n) {
            key.op = QR_TUNE_CHAIN;
            key.c = c->n;
        }
        const struct qr_tunables own = v ? *v : random_tunables(r);
        qr_tune_set(t, key, &own);
    }
}

#endif
