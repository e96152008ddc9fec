/* quantized_read.c - numbers and coded rows out of the tensors that make up a quantized matrix.
 *
 * Codes of any rows and inputs become bytes first (read_codes), by the loops of an instruction set where there are some; then
 * their scales and zeros make numbers of them, or go beside them as a coded row.
 * Guarantee: the bits are the same with every instruction set, and however a matrix is cut into rows.
 * Thread: any; nothing is written but what is asked for. */
#include <string.h>

#include "base/assert.h"
#include "base/e4m3.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernels/stored.h"
#include "loader/pack/code_words.h"
#include "loader/pack/gguf_blocks.h"
#include "loader/stores/quantized_parts.h"

#define CHUNK 256 /* inputs at a time */
#define ROWS 16   /* outputs at a time */
#define SCALES 128 /* of outputs at a time */
#define ORDERED_GROUPS 512 /* whose scales are looked up all at once where inputs are in any order */

static float load_float(const uint8_t *p, enum qr_dtype type, int64_t i)
{
    float x;
    qr_stored_numbers(&x, p + (size_t)i * qr_dtype_bytes(type), type, 1);
    return x;
}

static int32_t bits_of(const uint8_t *p, int64_t word, int32_t bits, int64_t place)
{
    return (int32_t)((uint32_t)load_i32(p, word) >> (bits * (int32_t)place) & ((1u << bits) - 1));
}

/* Where output o of eight lies in a word of AWQ's. */
static const uint8_t awq_places[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static int32_t awq_place(int64_t o)
{
    return awq_places[o % 8];
}

/* AWQ's, eight outputs in a word, of which n from `first` on are wanted. */
static void unpack_awq(uint8_t code[ROWS][CHUNK], const struct qr_quantized *q, const uint8_t *p, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const int64_t row = q->n_out / 8;
    for (int64_t o = first / 8 * 8; o < first + n; o += 8)
        for (int64_t i = 0; i < n_in; i += 8) {
            uint64_t x[8] = {0};
            for (int64_t k = 0; k < 8 && i + k < n_in; k++)
                x[k] = bytes_of(load_word(p, (at + i + k) * row + o / 8));
            turn(x);
            for (int64_t k = 0; k < 8; k++)
                if (o + k >= first && o + k < first + n)
                    memcpy(&code[o + k - first][i], &x[awq_place(k)], (size_t)(n_in - i < 8 ? n_in - i : 8));
        }
}

struct reader {
    const struct qr_quantized *q;
    const struct qr_stored_ops *ops; /* or NULL */
    const uint8_t *codes, *scale, *zeros, *order;
};

static struct reader reader_of(const struct qr_tensor_files *st, const struct qr_quantized *q)
{
    return (struct reader){.q = q, .ops = st->ops, .codes = qr_tensor_files_data(st, q->codes), .scale = qr_tensor_files_data(st, q->scale),
                           .zeros = q->zeros ? qr_tensor_files_data(st, q->zeros) : NULL, .order = q->ordered ? qr_tensor_files_data(st, q->order) : NULL};
}

/* Codes of outputs [first, first + n) and inputs [at, at + n_in), n <= ROWS, n_in <= CHUNK; at is a multiple of 8. INT8's are signed. */
static void unpack(uint8_t code[ROWS][CHUNK], const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t per = 32 / q->bits, row = words(q->n_in, q->bits);
    QR_ASSERT(n <= ROWS && n_in <= CHUNK && at % 8 == 0);
    if (q->layout == AWQ)
        unpack_awq(code, q, r->codes, first, n, at, n_in);
    for (int64_t o = first; o < first + n && q->layout != AWQ; o++)
        if (q->layout == GPTQ)
            unpack_words(code[o - first], r->codes, at / per * q->n_out + o, q->n_out, q->bits, n_in);
        else if (q->layout == MXFP4)
            unpack_words(code[o - first], r->codes, (q->row_first + o * q->row_step) * row + at / per, 1, q->bits, n_in);
        else if (q->layout == PACKED)
            unpack_words(code[o - first], r->codes, o * row + at / per, 1, q->bits, n_in);
        else
            memcpy(code[o - first], r->codes + o * q->n_in + at, (size_t)n_in);
}

/* The same by loops of an instruction set. False: there are none for this. */
static bool unpack_by_ops(uint8_t *to, int64_t pitch, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t outputs = 4 * q->n_out; /* bytes of a row of words that lie by outputs */
    if (!r->ops || q->bits != 4)
        return false;
    if (q->layout == AWQ && r->ops->across && first % 8 == 0 && n % 8 == 0) {
        r->ops->across(to, pitch, r->codes + at * (outputs / 8) + first / 8 * 4, outputs / 8, n / 8, n_in, awq_places);
        return true;
    }
    if (q->layout == GPTQ && r->ops->along) {
        r->ops->along(to, pitch, r->codes + at / 8 * outputs + first * 4, outputs, n, n_in, NULL);
        return true;
    }
    return false;
}

/* Codes of any rows and inputs as bytes, rows `pitch` apart; at is a multiple of 8. */
static void read_codes(uint8_t *to, int64_t pitch, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    QR_UNINITIALIZED uint8_t code[ROWS][CHUNK];
    QR_ASSERT(at % 8 == 0 && n_in <= pitch);
    if (unpack_by_ops(to, pitch, r, first, n, at, n_in))
        return;
    for (int64_t row = 0; row < n; row += ROWS)
        for (int64_t c = 0; c < n_in; c += CHUNK) {
            const int64_t m = n_in - c < CHUNK ? n_in - c : CHUNK, rows = n - row < ROWS ? n - row : ROWS;
            unpack(code, r, first + row, rows, at + c, m);
            for (int64_t k = 0; k < rows; k++)
                memcpy(to + (row + k) * pitch + c, code[k], (size_t)m);
        }
}

static int64_t scale_at(const struct qr_quantized *q, int64_t o, int64_t g)
{
    return o / q->block_out * q->out_stride + g * q->in_stride;
}

static float scale_of(const struct reader *r, int64_t o, int64_t g)
{
    const struct qr_quantized *q = r->q;
    if (q->layout == MXFP4)
        return qr_mxfp4_scale(r->scale[scale_at(q, q->row_first + o * q->row_step, g)]);
    return load_float(r->scale, q->scale->type->dtype, scale_at(q, o, g));
}

static int32_t zero_of(const struct reader *r, int64_t o, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const int64_t per = 32 / q->bits;
    if (!r->zeros)
        return q->zero;
    if (q->layout == INT8)
        return (int8_t)r->zeros[scale_at(q, o, g)];
    if (q->layout == PACKED)
        return bits_of(r->zeros, o / per * q->n_groups + g, q->bits, o % per);
    const int64_t word = g * words(q->n_out, q->bits) + o / per;
    return bits_of(r->zeros, word, q->bits, q->layout == AWQ ? awq_place(o) : o % per) + q->zero_more;
}

/* Codes that share a scale. */
static void decode_run(float *dst, const uint8_t *code, int64_t n, enum layout layout, float scale, int32_t zero)
{
    if (layout == FP8)
        for (int64_t i = 0; i < n; i++)
            dst[i] = scale * qr_e4m3_to_f32(code[i]);
    else if (layout == INT8)
        for (int64_t i = 0; i < n; i++)
            dst[i] = scale * (float)((int8_t)code[i] - zero);
    else if (layout == MXFP4)
        for (int64_t i = 0; i < n; i++)
            dst[i] = scale * (float)qr_mxfp4_level(code[i]);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = scale * (float)(code[i] - zero);
}

/* One row's codes where inputs are in any order: by their groups' scales and zeros. */
static void decode_ordered(const struct reader *r, float *dst, const uint8_t *code, int64_t row, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    QR_UNINITIALIZED float scale[ORDERED_GROUPS], zero[ORDERED_GROUPS];
    const bool all = q->n_groups <= ORDERED_GROUPS;
    for (int64_t g = 0; all && g < q->n_groups; g++) {
        scale[g] = scale_of(r, row, g);
        zero[g] = (float)zero_of(r, row, g);
    }
    for (int64_t i = 0; i < n_in; i++) {
        const int64_t g = load_i32(r->order, at + i);
        const float by = all ? scale[g] : scale_of(r, row, g);
        dst[i] = by * ((float)code[i] - (all ? zero[g] : (float)zero_of(r, row, g)));
    }
}

static void decode_chunk(const struct reader *r, float *dst, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    QR_UNINITIALIZED uint8_t code[ROWS][CHUNK];
    read_codes(code[0], CHUNK, r, first, n, at, n_in);
    for (int64_t k = 0; k < n && r->order; k++)
        decode_ordered(r, dst + k * q->n_in + at, code[k], first + k, at, n_in);
    for (int64_t k = 0; k < n && !r->order; k++)
        for (int64_t i = 0, end; i < n_in; i = end) {
            const int64_t g = (at + i) / q->group;
            end = (g + 1) * q->group - at < n_in ? (g + 1) * q->group - at : n_in;
            const float scale = scale_of(r, first + k, g);
            decode_run(dst + k * q->n_in + at + i, code[k] + i, end - i, q->layout, scale, q->layout == FP8 ? 0 : zero_of(r, first + k, g));
        }
}

/* E4M3 numbers of inputs [at, at + n_in) of rows [first, first + n), which lie in one group and one block and so have one
 * scale. */
static void put_halves(const struct reader *r, uint16_t *dst, int64_t pitch, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const float scale = load_float(r->scale, q->scale->type->dtype, scale_at(q, first, at / q->group));
    const uint8_t *code = r->codes + first * q->n_in + at;
    uint16_t number[256];
    for (int32_t i = 0; i < 256; i++)
        number[i] = qr_f32_to_bf16(scale * qr_e4m3_to_f32((uint8_t)i));
    for (int64_t row = 0; row < n; row++)
        for (int64_t i = 0; i < n_in; i++)
            dst[row * pitch + i] = number[code[row * q->n_in + i]];
}

bool qr_quantized_halves(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, uint16_t *dst, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    QR_ASSERT(st != NULL && t != NULL && t->quantized != NULL && dst != NULL);
    QR_ASSERT(first >= 0 && n <= t->shape[0] - first && at >= 0 && n_in <= t->shape[1] - at);
    const struct qr_quantized *q = t->quantized;
    const struct reader r = reader_of(st, q);
    if (q->layout != FP8)
        return false;
    const int64_t block = q->out_stride ? q->block_out : n; /* rows that share their scales */
    for (int64_t row = 0, rows; row < n; row += rows) {
        rows = q->out_stride ? block - (first + row) % block : n;
        rows = rows < n - row ? rows : n - row;
        for (int64_t i = 0, m; i < n_in; i += m) {
            m = q->group - (at + i) % q->group;
            m = m < n_in - i ? m : n_in - i;
            put_halves(&r, dst + row * n_in + i, n_in, first + row, rows, at + i, m);
        }
    }
    return true;
}

void qr_quantized_decode(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n)
{
    QR_ASSERT(st != NULL && t != NULL && dst != NULL);
    QR_ASSERT(t->quantized != NULL && first >= 0 && n <= t->shape[0] - first);
    const struct qr_quantized *q = t->quantized;
    const struct reader r = reader_of(st, q);
    for (int64_t row = 0; row < n; row += ROWS)
        for (int64_t at = 0; at < q->n_in; at += CHUNK)
            decode_chunk(&r, dst + row * q->n_in, first + row, n - row < ROWS ? n - row : ROWS, at, q->n_in - at < CHUNK ? q->n_in - at : CHUNK);
}

/* ---- as coded rows ---- */

/* Of outputs [first, first + n) and one group: where scales lie by outputs, all at once. */
static void scales_of(const struct reader *r, float *scale, int64_t first, int64_t n, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const enum qr_dtype type = q->scale->type->dtype;
    const uint8_t *at = r->scale + (size_t)scale_at(q, first, g) * qr_dtype_bytes(type);
    const bool together = q->layout != MXFP4 && q->block_out == 1 && q->out_stride == 1;
    if (together)
        qr_stored_numbers(scale, at, type, n);
    for (int64_t i = 0; !together && i < n; i++)
        scale[i] = scale_of(r, first + i, g);
}

/* Four codes of 4 bits, each in a byte and a byte of zeros above it: AWQ's order has 0 2 4 6 in a word's lower half. */
static uint64_t apart(uint64_t four)
{
    four = (four | four << 24) & 0x000000ff000000ffu;
    return (four | four << 12) & 0x000f000f000f000fu;
}

/* Likewise zeros: where eight lie in a word, a word at a time. */
static void zeros_of(const struct reader *r, int8_t *zero, int64_t first, int64_t n, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const bool columns = r->zeros && q->bits == 4 && (q->layout == AWQ || q->layout == GPTQ) && first % 8 == 0;
    const uint64_t more = (uint64_t)q->zero_more * 0x0101010101010101u; /* to each, of which none is over 15 */
    int64_t i = 0;
    for (; columns && i + 8 <= n; i += 8) {
        const uint32_t word = load_word(r->zeros, g * words(q->n_out, 4) + (first + i) / 8);
        const uint64_t eight = (q->layout == AWQ ? apart(word & 0xffff) | apart(word >> 16) << 8 : bytes_of(word)) + more;
        memcpy(zero + i, &eight, sizeof eight);
    }
    for (; i < n; i++)
        zero[i] = (int8_t)zero_of(r, first + i, g);
}

int32_t qr_quantized_together(const struct qr_stored_tensor *t)
{
    QR_ASSERT(t != NULL && t->quantized != NULL);
    return t->quantized->layout == AWQ ? 8 : t->quantized->layout == GPTQ ? 4 : 1;
}

/* Codes of GPTQ's words of 4 bits where inputs are sorted by groups: at and n_in are places there. In the file the words of an
 * output lie a row apart, which L1 has room for few of: those of all n outputs come side by side first. */
static void read_picked(uint8_t *to, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t n_words = q->n_in / 8;
    uint32_t *words = qr_alloc((size_t)(n_words * n), sizeof *words);
    for (int64_t i = 0; i < n_words; i++)
        memcpy(words + i * n, r->codes + 4 * (i * q->n_out + first), (size_t)n * sizeof *words);
    r->ops->along(to, n_in, (const uint8_t *)words, n * (int64_t)sizeof *words, n, n_in, q->inputs + at);
    qr_free(words);
}

/* Likewise of other words: a chunk of inputs of some rows is read as it lies, then each goes to its place. */
static void read_sorted(uint8_t *to, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    QR_UNINITIALIZED uint8_t code[ROWS][CHUNK];
    for (int64_t row = 0; row < n; row += ROWS)
        for (int64_t c = 0; c < q->n_in; c += CHUNK) {
            const int64_t m = q->n_in - c < CHUNK ? q->n_in - c : CHUNK, rows = n - row < ROWS ? n - row : ROWS;
            read_codes(code[0], CHUNK, r, first + row, rows, c, m);
            for (int64_t i = 0; i < m; i++) {
                const int64_t place = q->place[c + i] - at;
                for (int64_t k = 0; k < rows && place >= 0 && place < n_in; k++)
                    to[(row + k) * n_in + place] = code[k][i];
            }
        }
}

void qr_quantized_fill(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, enum qr_dtype as, const struct qr_coded_rows *to, int64_t first,
                       int64_t n, int64_t at, int64_t n_in)
{
    QR_ASSERT(st != NULL && t != NULL && t->quantized != NULL && to != NULL);
    QR_ASSERT(first >= 0 && n <= t->shape[0] - first && at >= 0 && n_in <= t->shape[1] - at);
    const struct qr_quantized *q = t->quantized;
    const struct reader r = reader_of(st, q);
    const struct qr_coded_format f = qr_dtype_coded(as);
    const int64_t n_groups = (n_in + f.group - 1) / f.group;
    const uint8_t middle = (uint8_t)(f.zero || q->layout == INT8 || q->layout == MXFP4 || f.e4m3 ? 0 : 1 << (q->bits - 1));
    QR_ASSERT(!f.steps && !f.offset && at % f.group == 0);
    if (q->inputs && q->layout == GPTQ && q->bits == 4 && r.ops && r.ops->along)
        read_picked((uint8_t *)to->level, &r, first, n, at, n_in);
    else if (q->inputs)
        read_sorted((uint8_t *)to->level, &r, first, n, at, n_in);
    else
        read_codes((uint8_t *)to->level, n_in, &r, first, n, at, n_in);
    for (int64_t i = 0; middle && i < n * n_in; i++)
        to->level[i] = (int8_t)((uint8_t)to->level[i] - middle);
    for (int64_t i = 0; q->layout == MXFP4 && i < n * n_in; i++)
        to->level[i] = qr_mxfp4_level((uint8_t)to->level[i]);
    for (int64_t k = 0; k < n; k += SCALES)
        for (int64_t g = 0; g < n_groups; g++) {
            const int64_t stored = (at + g * f.group) / q->group, m = n - k < SCALES ? n - k : SCALES;
            QR_UNINITIALIZED float scale[SCALES];
            QR_UNINITIALIZED int8_t zero[SCALES];
            scales_of(&r, scale, first + k, m, stored);
            for (int64_t i = 0; i < m; i++)
                to->scale[(k + i) * n_groups + g] = scale[i];
            if (!f.zero)
                continue;
            zeros_of(&r, zero, first + k, m, stored);
            for (int64_t i = 0; i < m; i++)
                to->offset_step[(k + i) * n_groups + g] = zero[i];
        }
}
