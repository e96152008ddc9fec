/* quantized_read.c - numbers and coded rows out of the tensors that make up a quantized matrix.
 *
 * Codes of any rows and inputs become bytes first (read_codes), by the loops of an instruction set where there are some; then
 * their scales and zeros make numbers of them, or go beside them as a coded row.
 * Guarantee: the bits are the same with every instruction set, and however a matrix is cut into rows.
 * Thread: any; nothing is written but the result. */
#include <string.h>

#include "base/assert.h"
#include "base/e4m3.h"
#include "base/half.h"
#include "base/mem.h"
#include "kernels/stored.h"
#include "loader/pack/gguf_blocks.h"
#include "loader/stores/quantized_parts.h"

#define CHUNK 256 /* inputs at a time */
#define ROWS 16   /* outputs at a time */
#define PICKED 64      /* outputs at a time */
#define PICKED_AHEAD 8 /* rows of their words */
#define SCALES 128 /* of outputs at a time */
#define ORDERED_GROUPS 512 /* whose scales are looked up all at once where inputs are in any order */

static float load_float(const uint8_t *p, enum qr_dtype type, int64_t i)
{
    float x;
    qr_stored_numbers(&x, p + (size_t)i * qr_dtype_bytes(type), type, 1);
    return x;
}

/* A word's eight codes of 4 bits as bytes, from the low bits up. */
static uint64_t bytes_of(uint32_t word)
{
    uint64_t x = word;
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

static uint32_t load_word(const uint8_t *p, int64_t i)
{
    uint32_t w;
    memcpy(&w, p + 4 * i, sizeof w);
    return w;
}

/* Byte i of number k and byte k of number i change places: blocks of four, of two, of one. */
static void transpose(uint64_t x[8])
{
    static const uint64_t mask[] = {0x00000000ffffffffu, 0x0000ffff0000ffffu, 0x00ff00ff00ff00ffu};
    for (int step = 0, by = 4; by > 0; step++, by /= 2)
        for (int k = 0; k < 8; k++) {
            if (k & by)
                continue;
            const uint64_t t = (x[k] >> 8 * by ^ x[k + by]) & mask[step];
            x[k] ^= t << 8 * by;
            x[k + by] ^= t;
        }
}

/* Words of a row, one after the other `stride` words apart, as codes. The last may have more than there are. */
static void unpack_words(uint8_t *code, const uint8_t *p, int64_t first, int64_t stride, int32_t bits, int64_t n)
{
    const int64_t per = 32 / bits;
    for (int64_t i = 0; i < n; i += per, first += stride) {
        const uint32_t word = load_word(p, first);
        const uint64_t eight = bits == 4 ? bytes_of(word) : word;
        memcpy(code + i, &eight, (size_t)(n - i < per ? n - i : per));
    }
}

static int32_t bits_of(const uint8_t *p, int64_t word, int32_t bits, int64_t place)
{
    return (int32_t)(load_word(p, word) >> (bits * (int32_t)place) & ((1u << bits) - 1));
}

/* Of words that eight outputs share, the n from `first` on that are wanted. */
static void unpack_shared(uint8_t code[ROWS][CHUNK], const struct qr_quantized *q, const uint8_t *p, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const int64_t row = q->n_out / 8;
    for (int64_t o = first / 8 * 8; o < first + n; o += 8)
        for (int64_t i = 0; i < n_in; i += 8) {
            uint64_t x[8] = {0};
            for (int64_t k = 0; k < 8 && i + k < n_in; k++)
                x[k] = bytes_of(load_word(p, (at + i + k) * row + o / 8));
            transpose(x);
            for (int64_t k = 0; k < 8; k++)
                if (o + k >= first && o + k < first + n)
                    memcpy(&code[o + k - first][i], &x[q->form->places[k]], (size_t)(n_in - i < 8 ? n_in - i : 8));
        }
}

struct reader {
    const struct qr_quantized *q;
    const struct qr_stored_ops *ops; /* or NULL */
    const uint8_t *codes, *scale, *zeros, *order;
    float number[256]; /* of decoding: what a code stands for, but for zero and scale */
};

static struct reader reader_of(const struct qr_tensor_files *st, const struct qr_quantized *q)
{
    return (struct reader){.q = q, .ops = st->ops, .codes = qr_tensor_files_data(st, q->codes), .scale = qr_tensor_files_data(st, q->scale),
                           .zeros = q->zeros ? qr_tensor_files_data(st, q->zeros) : NULL, .order = q->ordered ? qr_tensor_files_data(st, q->order) : NULL};
}

/* Codes of outputs [first, first + n) and inputs [at, at + n_in), n <= ROWS, n_in <= CHUNK; at is a multiple of 8. */
static void unpack(uint8_t code[ROWS][CHUNK], const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    QR_ASSERT(n <= ROWS && n_in <= CHUNK && at % 8 == 0);
    if (q->form->places)
        unpack_shared(code, q, r->codes, first, n, at, n_in);
    for (int64_t o = first; o < first + n && !q->form->places; o++)
        if (q->form->bytes)
            memcpy(code[o - first], r->codes + o * q->n_in + at, (size_t)n_in);
        else
            unpack_words(code[o - first], r->codes, q->code_first + o * q->code_out + at / (32 / q->bits) * q->code_in, q->code_in, q->bits, n_in);
}

/* The same by loops of an instruction set. False: there are none for this. */
static bool unpack_by_ops(uint8_t *to, int64_t pitch, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t outputs = 4 * q->n_out; /* bytes of a row of words that lie by outputs */
    if (!r->ops || q->bits != 4)
        return false;
    if (q->form->places && r->ops->across && first % 8 == 0 && n % 8 == 0) {
        r->ops->across(to, pitch, r->codes + at * (outputs / 8) + first / 8 * 4, outputs / 8, n / 8, n_in, q->form->places);
        return true;
    }
    if (!q->form->places && q->code_out == 1 && r->ops->along) {
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
    return q->scale_first + o / q->block_out * q->out_stride + g * q->in_stride;
}

static float scale_of(const struct reader *r, int64_t o, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const int64_t at = scale_at(q, o, g);
    return q->form->e8m0 ? qr_mxfp4_scale(r->scale[at]) : load_float(r->scale, q->scale->type->dtype, at);
}

static int32_t zero_of(const struct reader *r, int64_t o, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const int64_t per = 32 / q->bits;
    if (!r->zeros)
        return q->zero;
    if (q->form->bytes)
        return (int8_t)r->zeros[scale_at(q, o, g)];
    return bits_of(r->zeros, o / per * q->zero_out + g * q->zero_in, q->bits, q->form->places ? q->form->places[o % 8] : o % per) + q->zero_more;
}

static float number_of(const struct qr_quant_form *f, uint8_t code)
{
    return f->e4m3 ? qr_e4m3_to_f32(code) : f->level ? (float)f->level(code) : f->bytes ? (float)(int8_t)code : (float)code;
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
            const float scale = scale_of(r, first + k, g), zero = (float)zero_of(r, first + k, g);
            for (int64_t j = i; j < end; j++)
                dst[k * q->n_in + at + j] = scale * (r->number[code[k][j]] - zero);
        }
}

void qr_quantized_decode(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n)
{
    QR_ASSERT(st != NULL && t != NULL && dst != NULL);
    QR_ASSERT(t->quantized != NULL && first >= 0 && n <= t->shape[0] - first);
    const struct qr_quantized *q = t->quantized;
    struct reader r = reader_of(st, q);
    for (int32_t i = 0; i < (q->form->level ? 16 : 256); i++)
        r.number[i] = number_of(q->form, (uint8_t)i);
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
    const bool together = !q->form->e8m0 && q->block_out == 1 && q->out_stride == 1;
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

/* Zeros of the same: where eight lie in a word, a word at a time. */
static void zeros_of(const struct reader *r, int8_t *zero, int64_t first, int64_t n, int64_t g)
{
    const struct qr_quantized *q = r->q;
    const bool columns = r->zeros && q->bits == 4 && q->zero_out == 1 && first % 8 == 0;
    const uint64_t more = (uint64_t)q->zero_more * 0x0101010101010101u; /* to each, of which none is over 15 */
    int64_t i = 0;
    for (; columns && i + 8 <= n; i += 8) {
        const uint32_t word = load_word(r->zeros, g * q->zero_in + (first + i) / 8);
        const uint64_t eight = (q->form->places ? apart(word & 0xffff) | apart(word >> 16) << 8 : bytes_of(word)) + more;
        memcpy(zero + i, &eight, sizeof eight);
    }
    for (; i < n; i++)
        zero[i] = (int8_t)zero_of(r, first + i, g);
}

int32_t qr_quantized_together(const struct qr_stored_tensor *t)
{
    QR_ASSERT(t != NULL && t->quantized != NULL);
    return t->quantized->form->together;
}

bool qr_quantized_words(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    QR_ASSERT(st != NULL && t != NULL && t->quantized != NULL);
    const struct qr_quantized *q = t->quantized;
    const bool form = q->bits == 4 && !q->form->bytes && !q->form->level && st->ops;
    return form && (q->form->places ? st->ops->across_words && !q->inputs : st->ops->along_words && q->code_out == 1);
}

/* Codes of GPTQ's words of 4 bits where inputs are sorted by groups: at and n_in are places there. In the file the words of an
 * output lie a row apart, pages which no processor foresees, and L1 has room for few of: those of PICKED outputs come side by
 * side first. */
static void read_picked(const struct qr_coded_rows *to, const struct reader *r, int64_t first, int64_t n, int64_t at, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    const int64_t n_words = q->n_in / 8;
    uint32_t *words = qr_realloc(NULL, (size_t)(n_words * PICKED), sizeof *words);
    for (int64_t o = 0; o < n; o += PICKED) {
        const int64_t m = n - o < PICKED ? n - o : PICKED;
        const uint8_t *from = r->codes + 4 * (first + o);
        for (int64_t i = 0; i < n_words; i++, from += 4 * q->n_out) {
            for (int64_t line = 0; line < m; line += 16)
                __builtin_prefetch(from + 4 * (PICKED_AHEAD * q->n_out + line));
            memcpy(words + i * m, from, (size_t)m * sizeof *words);
        }
        const uint8_t *picked = (const uint8_t *)words;
        const int64_t pitch = m * (int64_t)sizeof *words;
        if (to->words)
            r->ops->along_words(to->words + o, to->words_pitch, picked, pitch, m, n_in, q->inputs + at);
        else
            r->ops->along((uint8_t *)to->level + o * n_in, n_in, picked, pitch, m, n_in, q->inputs + at);
    }
    qr_free(words);
}

/* The same of other words: a chunk of inputs of some rows is read as it lies, then each goes to its place. */
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

static void read_words(const struct qr_coded_rows *to, const struct reader *r, int64_t first, int64_t at, int64_t n, int64_t n_in)
{
    const struct qr_quantized *q = r->q;
    if (q->form->places)
        r->ops->across_words(to->words, to->words_pitch, r->codes + (at * q->n_out + first) / 8 * 4, q->n_out / 8 * 4, n / 8, n_in,
                             q->form->places);
    else
        r->ops->along_words(to->words, to->words_pitch, r->codes + (at / 8 * q->n_out + first) * 4, q->n_out * 4, n, n_in, NULL);
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
    const uint8_t middle = f.zero ? 0 : (uint8_t)q->zero;
    QR_ASSERT(!f.steps && !f.offset && at % f.group == 0);
    if (q->inputs && q->code_out == 1 && q->bits == 4 && r.ops && r.ops->along)
        read_picked(to, &r, first, n, at, n_in);
    else if (to->words)
        read_words(to, &r, first, at, n, n_in);
    else if (q->inputs)
        read_sorted((uint8_t *)to->level, &r, first, n, at, n_in);
    else
        read_codes((uint8_t *)to->level, n_in, &r, first, n, at, n_in);
    for (int64_t i = 0; middle && !to->words && i < n * n_in; i++)
        to->level[i] = (int8_t)((uint8_t)to->level[i] - middle);
    for (int64_t i = 0; q->form->level && i < n * n_in; i++)
        to->level[i] = q->form->level((uint8_t)to->level[i]);
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
