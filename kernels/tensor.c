#include "kernels/tensor.h"

#include "base/assert.h"

static struct qr_tensor dense(void *data, enum qr_dtype dtype, int32_t n_dims, int64_t n0, int64_t n1, int64_t n2)
{
    QR_ASSERT(n_dims >= 1 && n_dims <= 3);
    QR_ASSERT(n0 >= 0 && n1 >= 0 && n2 >= 0);
    struct qr_tensor t = {.data = data, .dtype = dtype, .n_dims = n_dims, .shape = {n0, n1, n2, 0}};
    int64_t step = 1;
    for (int32_t i = n_dims - 1; i >= 0; i--) {
        t.stride[i] = step;
        step *= t.shape[i];
    }
    for (int32_t i = n_dims; i < QR_MAX_DIMS; i++)
        t.shape[i] = 0;
    return t;
}

struct qr_tensor qr_tensor_1d(void *data, enum qr_dtype dtype, int64_t n0)
{
    return dense(data, dtype, 1, n0, 0, 0);
}

struct qr_tensor qr_tensor_2d(void *data, enum qr_dtype dtype, int64_t n0, int64_t n1)
{
    return dense(data, dtype, 2, n0, n1, 0);
}

struct qr_tensor qr_tensor_3d(void *data, enum qr_dtype dtype, int64_t n0, int64_t n1, int64_t n2)
{
    return dense(data, dtype, 3, n0, n1, n2);
}

struct qr_tensor qr_tensor_columns(const struct qr_tensor *t, int64_t first, int64_t n)
{
    QR_ASSERT(t != NULL && t->n_dims == 2);
    QR_ASSERT(first >= 0 && n >= 0 && first <= t->shape[1] && n <= t->shape[1] - first);
    struct qr_tensor view = *t;
    view.shape[1] = n;
    if (t->data)
        view.data = (char *)t->data + (size_t)first * qr_dtype_bytes(t->dtype);
    return view;
}

struct qr_tensor qr_tensor_heads(const struct qr_tensor *t, int64_t n_heads, int64_t head_dim)
{
    QR_ASSERT(t != NULL && t->n_dims == 2);
    QR_ASSERT(n_heads > 0 && head_dim > 0 && t->shape[1] == n_heads * head_dim);
    struct qr_tensor view = *t;
    view.n_dims = 3;
    view.shape[1] = n_heads;
    view.shape[2] = head_dim;
    view.stride[1] = head_dim;
    view.stride[2] = 1;
    return view;
}

int64_t qr_tensor_count(const struct qr_tensor *t)
{
    QR_ASSERT(t != NULL && t->n_dims >= 0 && t->n_dims <= QR_MAX_DIMS);
    int64_t n = t->n_dims > 0 ? 1 : 0;
    for (int32_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

struct qr_weight qr_weight_in_stack(const struct qr_weight *w, int32_t i)
{
    QR_ASSERT(w != NULL && w->t.n_dims == 3 && w->stack_bytes > 0);
    QR_ASSERT(i >= 0 && i < w->t.shape[0]);
    struct qr_weight one = *w;
    one.t = qr_tensor_2d(NULL, w->t.dtype, w->t.shape[1], w->t.shape[2]);
    one.packed = (char *)w->packed + (size_t)i * w->stack_bytes;
    one.stack_bytes = 0;
    return one;
}

struct qr_weight qr_weight_of_part(const struct qr_weight *w, int32_t i)
{
    QR_ASSERT(w != NULL && w->t.n_dims == 2);
    QR_ASSERT(i >= 0 && i < w->n_parts && w->n_parts <= QR_WEIGHT_PARTS_MAX);
    const struct qr_weight_part *p = &w->part[i];
    struct qr_weight one = *w;
    one.t = qr_tensor_2d(NULL, p->packed_dtype, p->n_out, w->t.shape[1]);
    one.packed = (char *)w->packed + p->at;
    one.packed_dtype = p->packed_dtype;
    one.n_parts = 0;
    return one;
}
