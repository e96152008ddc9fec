/* Weights rounded to integers, for products whose x stays bf16: packed on the host by kernels/quant.h's own functions, so that they are the integers that every
 * level has. Loading takes some 2 ns a weight for that. Layout: products.h. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/cuda/coded.h"
#include "kernels/cuda/queue.h"
#include "kernels/quant.h"

struct qr_coded qr_coded_of(const void *packed, enum qr_dtype t, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_coded_is(t));
    QR_ASSERT(n_out > 0 && n_in > 0);
    const struct qr_quant_format f = qr_dtype_format(t);
    const int64_t whole = (n_in + 7) / 8 * 8;
    struct qr_coded c = {.code_bytes = f.bits == 8 ? whole : whole / 2, .group = f.group ? f.group : INT32_MAX};
    c.n_groups = f.group ? (n_in + f.group - 1) / f.group : 0;
    const size_t codes = (size_t)(n_out * c.code_bytes + 15) / 16 * 16, multiples = (size_t)(n_out * c.n_groups + 15) / 16 * 16;
    c.codes = packed;
    c.multiples = (const uint8_t *)packed + codes;
    c.scale = (const float *)(const void *)((const uint8_t *)packed + codes + multiples);
    c.n_bytes = codes + multiples + (size_t)n_out * sizeof(float);
    return c;
}

/* One row as it lies on the device. */
static float code_row(uint8_t *codes, uint8_t *multiples, const struct qr_coded *c, enum qr_dtype to, int64_t n_in, const void *row, enum qr_dtype from)
{
    const struct qr_quant_format f = qr_dtype_format(to);
    const int64_t group = f.group ? f.group : QR_QUANT_GROUP;
    float x[QR_QUANT_GROUP_MAX], inverse;
    const float scale = qr_quant_scale(&inverse, qr_quant_row_max(row, from, n_in), qr_quant_largest(f));
    memset(codes, 0, (size_t)c->code_bytes);
    for (int64_t i = 0; i < n_in; i += group) {
        const int64_t n = n_in - i < group ? n_in - i : group;
        int8_t q[QR_QUANT_GROUP_MAX];
        qr_quant_load(x, group, row, from, i, n);
        if (f.group)
            multiples[i / group] = (uint8_t)qr_quant_group(q, x, f, inverse);
        else
            qr_quant_int8(q, x, n, inverse);
        for (int64_t j = 0; j < n; j++) {
            if (f.bits == 8)
                codes[i + j] = (uint8_t)q[j];
            else
                codes[(i + j) / 2] = (uint8_t)(codes[(i + j) / 2] | (q[j] & 15) << (i + j) % 2 * 4);
        }
    }
    return scale;
}

/* Part of the packed matrix, from host memory that may go at once. */
static void send(struct qr_queue *q, const void *to, const void *from, size_t n_bytes)
{
    if (n_bytes > 0)
        QR_CUDA_CHECK(cudaMemcpyAsync((void *)(uintptr_t)to, from, n_bytes, cudaMemcpyHostToDevice, q->stream));
}

void qr_coded_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows, enum qr_dtype from,
                   int64_t n_rows)
{
    QR_ASSERT(q != NULL && dst != NULL && rows != NULL);
    QR_ASSERT(row0 >= 0 && n_rows > 0 && n_rows <= n_out - row0);
    const struct qr_coded c = qr_coded_of(dst, to, n_out, n_in);
    const size_t row_bytes = (size_t)n_in * qr_dtype_bytes(from), n = (size_t)n_rows;
    uint8_t *host = malloc(n * row_bytes), *codes = malloc(n * (size_t)c.code_bytes), *multiples = malloc(n * (size_t)c.n_groups + 1);
    float *scale = malloc(n * sizeof *scale);
    QR_ASSERT(host && codes && multiples && scale);
    QR_CUDA_CHECK(cudaMemcpyAsync(host, rows, n * row_bytes, cudaMemcpyDeviceToHost, q->stream));
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
    for (size_t r = 0; r < n; r++)
        scale[r] = code_row(codes + r * (size_t)c.code_bytes, multiples + r * (size_t)c.n_groups, &c, to, n_in, host + r * row_bytes, from);
    send(q, c.codes + (size_t)row0 * (size_t)c.code_bytes, codes, n * (size_t)c.code_bytes);
    send(q, c.multiples + (size_t)row0 * (size_t)c.n_groups, multiples, n * (size_t)c.n_groups);
    send(q, c.scale + row0, scale, n * sizeof *scale);
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
    free(host), free(codes), free(multiples), free(scale);
}
