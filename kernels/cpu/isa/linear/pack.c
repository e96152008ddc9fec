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
#include "kernels/cpu/isa/quant/quant.h"
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

static void pack_row_bf16(uint16_t *dst, const char *row, enum qr_dtype from, int64_t n_in)
{
    for (int64_t i = 0; i < n_in; i++)
        dst[i / 2 * QR_PANEL * 2 + (i & 1)] = from == QR_BF16 ? ((const uint16_t *)row)[i] : qr_f32_to_bf16(load_as_f32(row, from, i));
}

static uint16_t load_as_bf16(const char *rows, enum qr_dtype from, int64_t i)
{
    return from == QR_BF16 ? ((const uint16_t *)rows)[i] : qr_f32_to_bf16(((const float *)rows)[i]);
}

/* Inputs from `first` on for all 16 rows of a panel, so that whole cache lines are written. From bf16 or f32. */
static void pack_panel_rest(uint16_t *dst, const char *rows, enum qr_dtype from, int64_t first, int64_t n_in)
{
    for (int64_t i = first; i < n_in; i += 2)
        for (int32_t j = 0; j < QR_PANEL; j++) {
            dst[i * QR_PANEL + j * 2] = load_as_bf16(rows, from, j * n_in + i);
            if (i + 1 < n_in)
                dst[i * QR_PANEL + j * 2 + 1] = load_as_bf16(rows, from, j * n_in + i + 1);
        }
}

/* How far ahead of byte `at` of a row of row_bytes the kernel asks for bytes; behind the row's end for the same row's of the next panel, which may lie where a
 * file is mapped, and in nobody's cache. */
VF_FN int64_t ask_ahead(int64_t at, int64_t row_bytes)
{
    const int64_t ahead = 1024;
    return ahead + (at + ahead) / row_bytes * (QR_PANEL - 1) * row_bytes;
}

#ifdef __AVX512F__
/* v[r][c] -> v[c][r]: in four rounds, which exchange 4-byte, 8-byte, 16-byte and 32-byte neighbours. */
VF_FN void transpose_16x16(__m512i v[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 16; i += 8)
        for (int k = 0; k < 4; k++) {
            t[i + k] = _mm512_shuffle_i32x4(v[i + k], v[i + 4 + k], 0x88);
            t[i + 4 + k] = _mm512_shuffle_i32x4(v[i + k], v[i + 4 + k], 0xdd);
        }
    for (int k = 0; k < 8; k++) {
        v[k] = _mm512_shuffle_i32x4(t[k], t[8 + k], 0x88);
        v[8 + k] = _mm512_shuffle_i32x4(t[k], t[8 + k], 0xdd);
    }
}

/* 32 numbers as bf16, for whole panels from bf16 or f32. */
VF_FN __m512i load_32(const char *p, bool f32)
{
    if (!f32)
        return _mm512_loadu_si512(p);
    const __m512i low = _mm512_srli_epi32(vf_to_bf16_bits(vf_load((const float *)(const void *)p)), 16);
    const __m512i high = _mm512_srli_epi32(vf_to_bf16_bits(vf_load((const float *)(const void *)p + VF_LEN)), 16);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low)), _mm512_cvtepi32_epi16(high), 1);
}

/* 16 outputs by 16 pairs of inputs at a time; returns how many inputs are done. Not past the caches: a loading model's pages have just been cleared there. */
VF_FN int64_t pack_squares(uint16_t *dst, const char *rows, int64_t n_in, bool f32)
{
    const int64_t size = f32 ? 4 : 2;
    int64_t i = 0;
    for (; i + 32 <= n_in; i += 32) {
        __m512i v[16];
        const int64_t ahead = ask_ahead(i * size, n_in * size);
        for (int j = 0; j < QR_PANEL; j++) {
            const char *x = rows + (j * n_in + i) * size;
            v[j] = load_32(x, f32);
            _mm_prefetch((const char *)((uintptr_t)x + (uintptr_t)ahead), _MM_HINT_T0); /* 16 streams are more than the processor follows */
        }
        transpose_16x16(v);
        for (int j = 0; j < 16; j++)
            _mm512_storeu_si512(dst + (i + 2 * j) * QR_PANEL, v[j]);
    }
    return i;
}

#else
/* 8 rows' 8 pairs of inputs, whole panels from bf16 or f32, as 8 pairs of 8 rows. */
VF_FN void load_square(vf v[VF_LEN], const char *rows, int64_t stride, bool f32)
{
    for (int j = 0; j < VF_LEN; j++) {
        const char *x = rows + j * stride;
        if (!f32) {
            v[j] = vf_load((const float *)(const void *)x);
            continue;
        }
        const __m256i low = _mm256_srli_epi32(vf_to_bf16_bits(vf_load((const float *)(const void *)x)), 16);
        const __m256i high = _mm256_srli_epi32(vf_to_bf16_bits(vf_load((const float *)(const void *)x + VF_LEN)), 16);
        v[j] = _mm256_castsi256_ps(_mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0)));
    }
    vf_transpose(v);
}

/* 16 outputs by 8 pairs of inputs at a time; returns how many inputs are done. Stored as above. */
VF_FN int64_t pack_squares(uint16_t *dst, const char *rows, int64_t n_in, bool f32)
{
    const int64_t size = f32 ? 4 : 2, stride = n_in * size;
    int64_t i = 0;
    for (; i + 2 * VF_LEN <= n_in; i += 2 * VF_LEN) {
        vf v[VF_LEN], w[VF_LEN];
        const char *x = rows + i * size;
        const int64_t ahead = i * size % 64 == 0 ? ask_ahead(i * size, stride) : 0;
        for (int j = 0; j < QR_PANEL && ahead; j++) /* 16 streams are more than the processor follows */
            _mm_prefetch((const char *)((uintptr_t)x + (uintptr_t)(j * stride + ahead)), _MM_HINT_T0);
        load_square(v, x, stride, f32);
        load_square(w, x + VF_LEN * stride, stride, f32);
        for (int j = 0; j < VF_LEN; j++) {
            float *to = (float *)(void *)(dst + (i + 2 * j) * QR_PANEL);
            vf_store(to, v[j]);
            vf_store(to + VF_LEN, w[j]);
        }
    }
    return i;
}
#endif

static int64_t pack_from_bf16(uint16_t *dst, const char *rows, int64_t n_in)
{
    return pack_squares(dst, rows, n_in, false);
}

static int64_t pack_from_f32(uint16_t *dst, const char *rows, int64_t n_in)
{
    return pack_squares(dst, rows, n_in, true);
}

/* The common cases. */
static void pack_panel_bf16(uint16_t *dst, const char *rows, enum qr_dtype from, int64_t n_in)
{
    pack_panel_rest(dst, rows, from, from == QR_F32 ? pack_from_f32(dst, rows, n_in) : pack_from_bf16(dst, rows, n_in), n_in);
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
    if (end - first == QR_PANEL && p->from != QR_F16 && p->to == QR_BF16) {
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
