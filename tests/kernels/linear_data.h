/* linear_data.h - what a product of any kind of weights is tested with: rows, biases and old values that do not touch, and the product of some of the rows. */
#ifndef QR_TESTS_KERNELS_LINEAR_DATA_H
#define QR_TESTS_KERNELS_LINEAR_DATA_H

#include "tests/kernels/util.h"

#define X_GAP 3 /* rows of x and out do not touch */

struct shape {
    int32_t n_rows, n_in, n_out;
    bool bias, add;
};

struct linear_data {
    struct shape s;
    float *x, *old, *bias;
    int64_t x_stride, out_stride;
};

static struct linear_data linear_data_make(struct qr_rng *r, struct shape s)
{
    struct linear_data d = {.s = s, .x_stride = s.n_in + X_GAP, .out_stride = s.n_out + X_GAP};
    d.x = random_floats(r, s.n_rows * d.x_stride);
    d.old = random_floats(r, s.n_rows * d.out_stride);
    d.bias = random_floats(r, s.n_out);
    return d;
}

static void linear_data_drop(struct linear_data *d)
{
    qr_free(d->x);
    qr_free(d->old);
    qr_free(d->bias);
}

/* Rows [first, first + n) of the product. */
static float *product_of(struct qr_backend *be, const struct linear_data *d, const struct qr_weight *w, int32_t first, int32_t n)
{
    const struct shape *s = &d->s;
    float *out = s->add ? copy_floats(d->old + first * d->out_stride, n * d->out_stride) : poisoned(n * d->out_stride);
    struct qr_linear_args a = {.out = out, .x = d->x + first * d->x_stride, .w = w, .bias = s->bias ? d->bias : NULL, .out_stride = d->out_stride,
                               .x_stride = d->x_stride, .n_rows = n, .n_in = s->n_in, .n_out = s->n_out, .add = s->add};
    be->k->linear(be->queue, &a);
    return out;
}

static bool same_rows(const struct linear_data *d, const float *a, const float *b)
{
    for (int32_t n = 0; n < d->s.n_rows; n++)
        if (!same_bits(a + n * d->out_stride, b + n * d->out_stride, d->s.n_out))
            return false;
    return true;
}

#endif
