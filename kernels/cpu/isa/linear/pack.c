/* pack.c - weights in the order in which micro.c and the tiles of amx/linear.c read them, and single rows of them read back.
 *
 * A panel holds 16 outputs: [n_in][16] floats, or [n_in / 2][16][2] bf16 (pairs of inputs side by side), where n_in is rounded up to
 * whole pairs, for tiles to 32. Missing outputs of the last panel and missing inputs are the zeros of dst. */
#include "base/assert.h"
#include "base/half.h"
#include "kernels/code_numbers.h"
#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/cpu/isa/quant/vectors.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#ifdef QR_ISA_amx
#define BF16_UNIT 32
#define QUANT_NAME(name) qr_avx512_quant_##name
#else
#define BF16_UNIT 2
#define QUANT_NAME(name) QR_ISA_NAME(quant_##name)
#endif

struct packing {
    char *dst;
    const char *rows;
    enum qr_dtype to, from;
    int64_t n_in, row0, n_rows;
    size_t panel_bytes;
};

static size_t panel_bytes_of(enum qr_dtype to, int64_t n_in)
{
    QR_ASSERT(to == QR_F32 || to == QR_BF16);
    QR_ASSERT(n_in >= 0);
    return to == QR_BF16 ? (size_t)((n_in + BF16_UNIT - 1) / BF16_UNIT * BF16_UNIT) * QR_PANEL * 2 : (size_t)n_in * QR_PANEL * 4;
}

size_t QR_ISA_NAME(linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(n_out >= 0);
    if (qr_dtype_is_quantized(to))
        return QUANT_NAME(packed_bytes)(to, n_out, n_in);
    if (qr_dtype_is_coded(to))
        return QR_CODED_NAME(coded_packed_bytes)(to, n_out, n_in);
    return (size_t)((n_out + QR_PANEL - 1) / QR_PANEL) * panel_bytes_of(to, n_in);
}

static float load_as_f32(const char *row, enum qr_dtype from, int64_t i)
{
    if (from == QR_F32)
        return ((const float *)row)[i];
    uint16_t h = ((const uint16_t *)row)[i];
    return from == QR_BF16 ? qr_bf16_to_f32(h) : qr_f16_to_f32(h);
}

static void pack_row_f32(float *dst, const char *row, enum qr_dtype from, int64_t n_in)
{
    for (int64_t i = 0; i < n_in; i++)
        dst[i * QR_PANEL] = load_as_f32(row, from, i);
}

static uint16_t load_as_bf16(const char *rows, enum qr_dtype from, int64_t i)
{
    return from == QR_BF16 ? ((const uint16_t *)rows)[i] : qr_f32_to_bf16(load_as_f32(rows, from, i));
}

static void pack_row_bf16(uint16_t *dst, const char *row, enum qr_dtype from, int64_t n_in)
{
    for (int64_t i = 0; i < n_in; i++)
        dst[i / 2 * QR_PANEL * 2 + (i & 1)] = load_as_bf16(row, from, i);
}

/* Squares of VF_LEN rows and VF_LEN lanes, a lane two inputs of bf16 or one of another type, become columns: pairs of inputs of
 * VF_LEN outputs. Returns how many inputs are done. */
VF_FN int64_t pack_squares(uint16_t *dst, const char *rows, const enum qr_dtype from, int64_t n_in)
{
    const int64_t in_square = from == QR_BF16 ? 2 * VF_LEN : VF_LEN, size = (int64_t)qr_dtype_bytes(from), end = n_in / in_square * in_square;
    for (int64_t i = 0; i < end; i += in_square)
        for (int r = 0; r < QR_PANEL; r += VF_LEN) {
            QR_UNINITIALIZED vf v[VF_LEN];
            for (int j = 0; j < VF_LEN; j++) {
                const char *x = rows + ((r + j) * n_in + i) * size;
                v[j] = from == QR_BF16 ? vf_load((const float *)(const void *)x) : vf_load_as_n(x, from, 0, VF_LEN);
            }
            vf_transpose(v);
            uint16_t *to = dst + i * QR_PANEL + 2 * r;
            for (int j = 0; from == QR_BF16 && j < VF_LEN; j++)
                VI_STORE(to + j * 2 * QR_PANEL, VI_OF_FLOATS(v[j]));
            for (int j = 0; from != QR_BF16 && j < VF_LEN; j += 2)
                VI_STORE(to + j * QR_PANEL, VI_OR(VI(srli_epi32)(vf_to_bf16_bits(v[j]), 16), vf_to_bf16_bits(v[j + 1])));
        }
    return end;
}

/* A panel of 16 rows: the last inputs one by one. */
static void pack_panel_bf16(uint16_t *dst, const char *rows, enum qr_dtype from, int64_t n_in)
{
    int64_t i = from == QR_BF16  ? pack_squares(dst, rows, QR_BF16, n_in)
                : from == QR_F32 ? pack_squares(dst, rows, QR_F32, n_in)
                                 : pack_squares(dst, rows, QR_F16, n_in);
    for (; i < n_in; i++)
        for (int32_t j = 0; j < QR_PANEL; j++)
            dst[i / 2 * QR_PANEL * 2 + j * 2 + (i & 1)] = load_as_bf16(rows, from, j * n_in + i);
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct packing *p = arg;
    int64_t panel = p->row0 / QR_PANEL + item, first = panel * QR_PANEL, end = first + QR_PANEL;
    first = first > p->row0 ? first : p->row0;
    end = end < p->row0 + p->n_rows ? end : p->row0 + p->n_rows;
    size_t row_bytes = (size_t)p->n_in * qr_dtype_bytes(p->from);
    char *dst = p->dst + (size_t)panel * p->panel_bytes;
    const char *rows = p->rows + (size_t)(first - p->row0) * row_bytes;
    if (end - first == QR_PANEL && p->to == QR_BF16) {
        pack_panel_bf16((uint16_t *)dst, rows, p->from, p->n_in);
        return;
    }
    for (int64_t o = first; o < end; o++, rows += row_bytes) {
        if (p->to == QR_BF16)
            pack_row_bf16((uint16_t *)dst + o % QR_PANEL * 2, rows, p->from, p->n_in);
        else
            pack_row_f32((float *)dst + o % QR_PANEL, rows, p->from, p->n_in);
    }
}

void QR_ISA_NAME(linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                              const void *rows, enum qr_dtype from, int64_t n_rows)
{
    QR_ASSERT(dst != NULL && rows != NULL);
    QR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= n_out);
    QR_ASSERT(from == QR_F32 || from == QR_F16 || from == QR_BF16);
    if (qr_dtype_is_quantized(to)) {
        QUANT_NAME(pack)(q, dst, to, n_out, n_in, row0, rows, from, n_rows);
        return;
    }
    if (qr_dtype_is_coded(to)) {
        const struct qr_numbers numbers = {rows, from, to, n_in};
        const struct qr_coded_source source = qr_numbers_source(&numbers);
        QR_CODED_NAME(linear_pack_coded)(q, dst, to, n_out, n_in, row0, &source, n_rows);
        return;
    }
    struct packing p = {dst, rows, to, from, n_in, row0, n_rows, panel_bytes_of(to, n_in)};
    if (n_rows > 0)
        qr_queue_run(q, pack_item, &p, (row0 + n_rows - 1) / QR_PANEL - row0 / QR_PANEL + 1);
}

/* ---- rows read back ---- */

/* Row `row` of 16 in a panel, times scale. Its numbers are a line apart from each other. */
static void unpack_row(float *out, const char *panel, enum qr_dtype dtype, int32_t row, int64_t n_in, float scale)
{
    if (dtype == QR_F32) {
        for (int64_t i = 0; i < n_in; i++)
            out[i] = scale * ((const float *)panel)[i * QR_PANEL + row];
        return;
    }
    const uint32_t *pair = (const uint32_t *)panel + row;
    for (int64_t i = 0; i < n_in; i += 2, pair += QR_PANEL) {
        out[i] = scale * qr_bf16_to_f32((uint16_t)*pair);
        if (i + 1 < n_in)
            out[i + 1] = scale * qr_bf16_to_f32((uint16_t)(*pair >> 16));
    }
}

static void embed_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_embed_args *a = arg;
    const int64_t n_in = a->table->shape[1], id = a->ids[item];
    QR_ASSERT(id >= 0 && id < a->table->shape[0]);
    if (qr_dtype_is_coded(a->table->dtype)) {
        const uint8_t *coded = (const uint8_t *)a->packed + QR_CODED_NAME(coded_packed_bytes)(a->table->dtype, id / QR_PANEL * QR_PANEL, n_in);
        QR_CODED_NAME(coded_row)(a->out + item * a->out_stride, a->table->dtype, coded, (int32_t)(id % QR_PANEL), n_in, a->scale);
        return;
    }
    const char *panel = (const char *)a->packed + (size_t)(id / QR_PANEL) * panel_bytes_of(a->table->dtype, n_in);
    unpack_row(a->out + item * a->out_stride, panel, a->table->dtype, (int32_t)(id % QR_PANEL), n_in, a->scale);
}

void QR_ISA_NAME(embed_packed)(struct qr_queue *q, const struct qr_embed_args *a)
{
    QR_ASSERT(a != NULL && a->packed != NULL && a->table != NULL);
    QR_ASSERT(a->table->data == NULL && a->table->n_dims == 2);
    qr_queue_run(q, embed_item, a, a->n_rows);
}

#ifdef QR_ISA_amx
void qr_amx_embed(struct qr_queue *q, const struct qr_embed_args *a)
{
    if (a->packed) /* panels are padded differently here */
        qr_amx_embed_packed(q, a);
    else
        qr_avx512_embed(q, a);
}
#endif
