/* probe_device.c - what a device can do at most (probe.h): bytes copied in its memory, products by its own kernels. What
 * is timed ends when the device has done it; memory is filled with random numbers before. */
#include <stddef.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/kern/probe.h"

#define ROUNDS 5
#define CALLS 4 /* launched together: the device does not wait between them */
#define ROWS 4096
#define SIDE 8192
#define PIECE_BYTES ((size_t)4 << 20)

double qr_probe_device_s(const struct qr_backend *be, void (*call)(void *arg), void *arg, int32_t n_calls)
{
    QR_ASSERT(be != NULL && call != NULL);
    QR_ASSERT(n_calls > 0);
    be->mem->sync(be->queue);
    const int64_t began = qr_clock_ns();
    for (int32_t i = 0; i < n_calls; i++)
        call(arg);
    be->mem->sync(be->queue);
    return (double)(qr_clock_ns() - began) * 1e-9 / n_calls;
}

void qr_probe_fill(struct qr_backend *be, void *memory, size_t n_bytes)
{
    QR_ASSERT(be != NULL && memory != NULL);
    QR_ASSERT(n_bytes > 0);
    struct qr_rng rng = {.seed = 7};
    const size_t piece = n_bytes < PIECE_BYTES ? n_bytes : PIECE_BYTES;
    uint16_t *pattern = qr_alloc(PIECE_BYTES / sizeof *pattern, sizeof *pattern);
    for (size_t i = 0; i < PIECE_BYTES / sizeof *pattern; i++)
        pattern[i] = (uint16_t)(0x3c00u + (qr_rng_next(&rng) & 0x83ffu)); /* 0.008 to 2, either sign */
    be->mem->put(be->queue, memory, pattern, piece);
    for (size_t n = piece; n < n_bytes; n *= 2) {
        const size_t more = n_bytes - n < n ? n_bytes - n : n;
        be->mem->copy(be->queue, (char *)memory + n, more, memory, more, more, 1);
    }
    qr_free(pattern);
}

struct copies {
    struct qr_backend *be;
    char *memory;
    size_t half;
};

static void copy_half(void *arg)
{
    const struct copies *c = arg;
    c->be->mem->copy(c->be->queue, c->memory + c->half, c->half, c->memory, c->half, c->half, 1);
}

double qr_probe_device_bytes_s(struct qr_backend *be, void *memory, size_t n_bytes)
{
    QR_ASSERT(be != NULL && memory != NULL);
    QR_ASSERT(n_bytes >= 128);
    struct copies c = {.be = be, .memory = memory, .half = n_bytes / 128 * 64};
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const double s = qr_probe_device_s(be, copy_half, &c, CALLS), bytes_s = 2.0 * (double)c.half / s;
        best = bytes_s > best ? bytes_s : best;
    }
    return best;
}

struct product {
    struct qr_backend *be;
    struct qr_linear_args a;
};

static void multiply(void *arg)
{
    const struct product *p = arg;
    p->be->k->linear(p->be->queue, &p->a);
}

size_t qr_probe_device_room(const struct qr_backend *be)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(be->k->linear_packed_bytes != NULL);
    return be->k->linear_packed_bytes(QR_BF16, SIDE, SIDE) + 2 * sizeof(float) * ROWS * SIDE;
}

double qr_probe_device_ops_s(struct qr_backend *be, void *memory, size_t n_bytes)
{
    QR_ASSERT(be != NULL && memory != NULL);
    QR_ASSERT(n_bytes >= qr_probe_device_room(be));
    float *x = memory, *out = x + (size_t)ROWS * SIDE;
    const struct qr_weight w = {.t = {.dtype = QR_BF16, .n_dims = 2, .shape = {SIDE, SIDE}, .stride = {SIDE, 1}}, .packed = out + (size_t)ROWS * SIDE,
                                .packed_dtype = QR_BF16};
    struct product p = {.be = be, .a = {.out = out, .x = x, .w = &w, .out_stride = SIDE, .x_stride = SIDE, .n_rows = ROWS, .n_in = SIDE, .n_out = SIDE}};
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const double ops_s = 2.0 * ROWS * SIDE * SIDE / qr_probe_device_s(be, multiply, &p, CALLS);
        best = ops_s > best ? ops_s : best;
    }
    return best;
}
