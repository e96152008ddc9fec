/* product.h - a random product for the kernel tests: rows, packed weights, and every form in which `linear` takes them. */
#ifndef QR_TESTS_KERNELS_PRODUCT_H
#define QR_TESTS_KERNELS_PRODUCT_H

#include "tests/kernels/coded_source.h"

struct data {
    int32_t n_rows, n_in, n_out;
    float *x, *norm_w, *bias, *old;
    struct qr_weight w;
    int64_t x_stride, out_stride;
};

static inline struct data make(struct qr_backend *be, struct qr_rng *r, enum qr_dtype type, int32_t n_rows, int32_t n_in, int32_t n_out)
{
    struct data d = {.n_rows = n_rows, .n_in = n_in, .n_out = n_out, .x_stride = n_in + 5, .out_stride = n_out + 3};
    d.x = random_floats(r, n_rows * d.x_stride);
    d.norm_w = random_floats(r, n_in);
    d.bias = random_floats(r, n_out);
    d.old = random_floats(r, n_rows * d.out_stride);
    d.w = (struct qr_weight){.packed_dtype = type, .packed = qr_alloc_aligned(be->k->linear_packed_bytes(type, n_out, n_in), 64)};
    if (qr_dtype_is_coded(type)) {
        struct coded_source *rows = coded_source_new(r, type, n_out, n_in);
        be->k->linear_pack_coded(be->queue, d.w.packed, type, n_out, n_in, 0, &rows->source, n_out);
        coded_source_free(rows);
        return d;
    }
    float *rows = random_floats(r, (int64_t)n_out * n_in);
    be->k->linear_pack(be->queue, d.w.packed, type, n_out, n_in, 0, rows, QR_F32, n_out);
    qr_free(rows);
    return d;
}

static inline void drop(struct data *d)
{
    qr_free(d->x);
    qr_free(d->norm_w);
    qr_free(d->bias);
    qr_free(d->old);
    qr_free_aligned(d->w.packed);
}

struct form {
    bool norm, bias, add, glu;
    enum qr_act act;
};

static inline struct qr_linear_args args_of(const struct data *d, struct form f, float *out)
{
    return (struct qr_linear_args){.out = out, .x = d->x, .w = &d->w, .bias = f.bias ? d->bias : NULL, .norm_w = f.norm ? d->norm_w : NULL,
                                   .out_stride = d->out_stride, .x_stride = d->x_stride, .n_rows = d->n_rows, .n_in = d->n_in, .n_out = d->n_out,
                                   .add = f.add, .glu = f.glu, .act = f.act,
                                   .clamp = {.limit = 1.5f, .alpha = 1.702f}, .eps = 1e-5f};
}

/* Each step a launch of its own. out [n_rows, out_stride], NaN where nothing is written. */
static inline float *product_apart(struct qr_backend *be, const struct data *d, struct form f)
{
    const int64_t n = d->n_rows * d->out_stride;
    float *normed = poisoned((int64_t)d->n_rows * d->n_in), *y = poisoned(n), *out = f.add ? copy_floats(d->old, n) : poisoned(n);
    struct qr_linear_args a = args_of(d, f, y);
    const struct qr_norm_args norm = {.out = normed, .x = d->x, .w = d->norm_w, .out_stride = d->n_in, .x_stride = d->x_stride, .n_rows = d->n_rows,
                                      .n_cols = d->n_in, .eps = a.eps};
    const struct qr_glu_args glu = {.out = out, .gate_up = y, .out_stride = d->out_stride, .gate_up_stride = d->out_stride, .n_rows = d->n_rows,
                                    .n_cols = d->n_out / 2, .act = f.act, .clamp = a.clamp};
    const struct qr_add_args add = {.x = out, .delta = y, .x_stride = d->out_stride, .delta_stride = d->out_stride, .n_rows = d->n_rows,
                                    .n_cols = d->n_out};
    if (f.norm) {
        be->k->rms_norm(be->queue, &norm);
        a.x = normed;
        a.x_stride = d->n_in;
    }
    a.norm_w = NULL;
    a.add = a.glu = false;
    be->k->linear(be->queue, &a);
    if (f.glu)
        be->k->glu(be->queue, &glu);
    if (f.add)
        be->k->residual_add(be->queue, &add);
    qr_free(normed);
    if (f.glu || f.add) {
        qr_free(y);
        return out;
    }
    qr_free(out);
    return y;
}

#endif
