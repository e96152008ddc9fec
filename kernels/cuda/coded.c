/* Weights as codes, for products whose x stays bf16: packed on the host by the functions of kernels/coded.h, so that they are what every level has. Loading
 * takes some 2 ns a weight for that. E4M3 numbers with a scale for each output are packed by the device (pack_eights.cu). Layout: coded.h. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/code_numbers.h"
#include "kernels/coded.h"
#include "kernels/cuda/coded.h"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/queue.h"
#include "kernels/f8.h"

/* The next n_bytes of what is packed, and what lies behind them. */
static const void *part(const uint8_t **at, size_t n_bytes)
{
    const void *begins = *at;
    *at += (n_bytes + 15) / 16 * 16;
    return begins;
}

static struct qr_coded stored_of(const uint8_t *packed, enum qr_dtype t, int64_t n_out, int64_t n_in)
{
    const struct qr_coded_format f = qr_dtype_coded(t);
    struct qr_coded c = {.form = QR_CODED_STORED, .zero = f.zero, .group = f.group, .unit = (int32_t)qr_coded_unit(f), .n_groups = qr_coded_n_groups(f, n_in),
                         .n_units = qr_coded_n_units(f, n_in), .code_bytes = f.bits == 4 ? (n_in + 7) / 8 * 4 : (n_in + 7) / 8 * 8};
    const size_t n = (size_t)n_out, halves = n * (size_t)c.n_units * sizeof(uint16_t), steps = n * (size_t)c.n_groups;
    const uint8_t *at = packed;
    c.codes = part(&at, n * (size_t)c.code_bytes);
    c.half = part(&at, halves);
    c.half_offset = f.offset ? part(&at, halves) : NULL;
    c.step = f.steps ? part(&at, steps) : NULL;
    c.offset_step = (f.steps && f.offset) || f.zero ? part(&at, steps) : NULL;
    c.factor = part(&at, n * sizeof(float));
    c.level = f.bits == 4 ? part(&at, (n + 15) / 16 * 16) : NULL;
    c.n_bytes = (size_t)(at - packed);
    return c;
}

struct qr_coded qr_coded_of(const void *packed, enum qr_dtype t, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_coded_lies(t));
    QR_ASSERT(n_out > 0 && n_in > 0);
    if (qr_dtype_is_coded(t))
        return stored_of(packed, t, n_out, n_in);
    struct qr_coded c = {.form = QR_CODED_EIGHTS, .code_bytes = (n_in + 15) / 16 * 16, .group = INT32_MAX, .unit = INT32_MAX};
    const uint8_t *at = packed;
    c.codes = part(&at, (size_t)(n_out * c.code_bytes));
    c.scale = part(&at, (size_t)n_out * sizeof(float));
    c.n_bytes = (size_t)(at - (const uint8_t *)packed);
    return c;
}

/* Part of the packed matrix, from host memory that may go at once. */
static void send(struct qr_queue *q, const void *to, const void *from, size_t n_bytes)
{
    if (n_bytes > 0)
        QR_CUDA_CHECK(cudaMemcpyAsync((void *)(uintptr_t)to, from, n_bytes, cudaMemcpyHostToDevice, qr_queue_apart(q)));
}

/* What up to 16 rows become, on their way to the device. */
struct stored {
    void *memory; /* owned: the source's numbers */
    uint8_t *codes;
    uint16_t *half, *half_offset;
    float factor[QR_CODED_ROWS_MAX];
};

static void code_stored_row(struct stored *s, const struct qr_coded *c, const struct qr_coded_rows *row, struct qr_coded_format f, int64_t n_in,
                            const uint8_t code_of[256], int64_t r)
{
    uint8_t *codes = s->codes + r * c->code_bytes;
    const float factor = s->factor[r] = qr_coded_factor(row, f, n_in);
    memset(codes, 0, (size_t)c->code_bytes);
    for (int64_t i = 0; i < n_in; i++) {
        if (f.bits > 4)
            codes[i] = (uint8_t)row->level[i];
        else
            codes[i / 2] = (uint8_t)(codes[i / 2] | code_of[(uint8_t)row->level[i]] << i % 2 * 4);
    }
    for (int64_t u = 0; u < c->n_units; u++) {
        s->half[r * c->n_units + u] = qr_coded_half(row->scale[u], factor);
        if (f.offset)
            s->half_offset[r * c->n_units + u] = qr_coded_half(row->offset[u], factor);
    }
}

/* Rows [first, first + n) of the packed matrix, which are rows `from` on of the source; they share their place, or a part of it. */
static void send_stored(struct qr_queue *q, const struct qr_coded *c, const struct stored *s, const struct qr_coded_rows *all, const int8_t levels[16],
                        int64_t first, int64_t n)
{
    const size_t at = (size_t)first, rows = (size_t)n, units = (size_t)c->n_units, groups = (size_t)c->n_groups;
    send(q, c->codes + at * (size_t)c->code_bytes, s->codes, rows * (size_t)c->code_bytes);
    send(q, c->half + at * units, s->half, rows * units * sizeof *s->half);
    if (c->half_offset)
        send(q, c->half_offset + at * units, s->half_offset, rows * units * sizeof *s->half);
    if (c->step)
        send(q, c->step + at * groups, all->step, rows * groups);
    if (c->offset_step)
        send(q, c->offset_step + at * groups, all->offset_step, rows * groups);
    if (c->level)
        send(q, c->level + at / 16 * 16, levels, 16);
    send(q, c->factor + at, s->factor, rows * sizeof *s->factor);
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
}

void qr_cuda_linear_pack_coded(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_source *rows,
                               int64_t n_rows)
{
    QR_ASSERT(q != NULL && dst != NULL && rows != NULL && qr_dtype_is_coded(to));
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && n_rows <= n_out - row0 && n_in > 0);
    const struct qr_coded_format f = qr_dtype_coded(to);
    const struct qr_coded c = qr_coded_of(dst, to, n_out, n_in);
    const size_t n_codes = QR_CODED_ROWS_MAX * (size_t)c.code_bytes, n_halves = QR_CODED_ROWS_MAX * (size_t)c.n_units;
    uint8_t code_of[256] = {0};
    struct stored s = {.memory = malloc((size_t)qr_coded_rows_bytes(f, n_in, QR_CODED_ROWS_MAX)), .codes = malloc(n_codes),
                       .half = malloc(2 * n_halves * sizeof(uint16_t))};
    QR_ASSERT(s.memory && s.codes && s.half);
    s.half_offset = s.half + n_halves;
    for (int i = 0; f.bits == 4 && i < 16; i++)
        code_of[(uint8_t)rows->levels[i]] = (uint8_t)i;
    for (int64_t o = 0, n; o < n_rows; o += n) { /* never across a border of sixteen */
        const int64_t room = QR_CODED_ROWS_MAX - (row0 + o) % QR_CODED_ROWS_MAX;
        n = n_rows - o < room ? n_rows - o : room;
        const struct qr_coded_rows all = qr_coded_rows_in(s.memory, f, n_in, n);
        rows->fill(rows->arg, &all, o, n);
        for (int64_t r = 0; r < n; r++) {
            const struct qr_coded_rows one = qr_coded_row(&all, f, n_in, r);
            code_stored_row(&s, &c, &one, f, n_in, code_of, r);
        }
        send_stored(q, &c, &s, &all, rows->levels, row0 + o, n);
    }
    free(s.memory), free(s.codes), free(s.half);
}

void qr_coded_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows, enum qr_dtype from,
                   int64_t n_rows)
{
    QR_ASSERT(q != NULL && dst != NULL && rows != NULL);
    QR_ASSERT(row0 >= 0 && n_rows > 0 && n_rows <= n_out - row0);
    if (to == QR_F8) {
        const struct qr_coded c = qr_coded_of(dst, to, n_out, n_in);
        qr_cuda_pack_eights(q, &c, row0, n_in, rows, from, n_rows, qr_f8_tolerance(from));
        return;
    }
    const size_t n_bytes = (size_t)n_rows * (size_t)n_in * qr_dtype_bytes(from);
    void *host = malloc(n_bytes);
    QR_ASSERT(host);
    QR_CUDA_CHECK(cudaMemcpyAsync(host, rows, n_bytes, cudaMemcpyDeviceToHost, qr_queue_apart(q)));
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
    const struct qr_numbers numbers = {host, from, to, n_in};
    const struct qr_coded_source source = qr_numbers_source(&numbers);
    qr_cuda_linear_pack_coded(q, dst, to, n_out, n_in, row0, &source, n_rows);
    free(host);
}
