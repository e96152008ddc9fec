/* quant_pack.c - rows of weights rounded to 8 or 4 bits into the panels of quant.h. */
#include "base/assert.h"
#include "kernels/cpu/isa/quant.h"
#include "kernels/cpu/pool.h"

struct packing {
    uint8_t *dst;
    const char *rows;
    enum qr_dtype from;
    struct qr_quant_format format;
    int64_t n_in, row0, n_rows, panel_bytes, head_bytes;
};

size_t QR_ISA_NAME(quant_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_dtype_is_quantized(to));
    QR_ASSERT(n_out >= 0 && n_in >= 0);
    return (size_t)((n_out + QR_PANEL - 1) / QR_PANEL) * (size_t)qr_quant_panel_bytes(to, n_in);
}

static void put_8(uint8_t *w, const int8_t *q, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        w[k / 4 * QR_PANEL * 4 + k % 4] = (uint8_t)(q[k] + 128);
}

/* n weights, a multiple of 8. */
static void put_4(uint8_t *w, const int8_t *q, int64_t n)
{
    for (int64_t i = 0; i < n / 8; i++)
        for (int t = 0; t < 4; t++)
            w[i * QR_PANEL * 4 + t] = (uint8_t)((q[8 * i + t] + 8) | (q[8 * i + 4 + t] + 8) << 4);
}

/* Output o (of the panel) from one stored row. */
static void pack_row(const struct packing *p, uint8_t *panel, int64_t o, const char *row)
{
    const struct qr_quant_format f = p->format;
    const int64_t group = f.group ? f.group : QR_QUANT_GROUP, n_k = qr_quant_k(p->n_in);
    float x[QR_QUANT_GROUP_MAX], inverse;
    int8_t q[QR_QUANT_GROUP_MAX];
    float scale = qr_quant_scale(&inverse, qr_quant_row_max(row, p->from, p->n_in), qr_quant_largest(f));
    memcpy(panel + o * (int64_t)sizeof scale, &scale, sizeof scale);
    uint8_t *multiple = panel + QR_PANEL * sizeof scale + o, *w = panel + p->head_bytes + o * 4;
    for (int64_t k = 0; k < p->n_in; k += group) {
        int64_t n = p->n_in - k < group ? p->n_in - k : group;
        qr_quant_load(x, group, row, p->from, k, n);
        if (f.group)
            multiple[k / group * QR_PANEL] = (uint8_t)qr_quant_group(q, x, f, inverse);
        else
            qr_quant_int8(q, x, n, inverse);
        if (f.bits == 4)
            put_4(w + k / 2 * QR_PANEL, q, n_k - k < group ? n_k - k : group);
        else
            put_8(w + k * QR_PANEL, q, n);
    }
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct packing *p = arg;
    int64_t panel = p->row0 / QR_PANEL + item, first = panel * QR_PANEL, end = first + QR_PANEL;
    first = first > p->row0 ? first : p->row0;
    end = end < p->row0 + p->n_rows ? end : p->row0 + p->n_rows;
    size_t row_bytes = (size_t)p->n_in * qr_dtype_bytes(p->from);
    for (int64_t o = first; o < end; o++)
        pack_row(p, p->dst + panel * p->panel_bytes, o % QR_PANEL, p->rows + (size_t)(o - p->row0) * row_bytes);
}

void QR_ISA_NAME(quant_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows,
                             enum qr_dtype from, int64_t n_rows)
{
    QR_ASSERT(dst != NULL && rows != NULL && qr_dtype_is_quantized(to));
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    QR_ASSERT(n_in > 0 && n_in <= QR_QUANT_INPUTS_MAX);
    struct packing p = {dst, rows, from, qr_dtype_format(to), n_in, row0, n_rows, qr_quant_panel_bytes(to, n_in), qr_quant_head_bytes(to, n_in)};
    if (n_rows > 0)
        qr_queue_run(q, pack_item, &p, (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1);
}
