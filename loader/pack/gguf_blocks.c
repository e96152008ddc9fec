/* gguf_blocks.c - GGUF's stored types: a row of `types` has the coded type that keeps one, the levels of its codes, and the
 * function that unpacks a block.
 *
 * Loops are written so that compilers make vectors of them: one pass for each half of a byte, sub-scales a word at a time.
 * Guarantee: codes, scales and offsets are those of the file without loss; decoding is one product and one sum in f32.
 * Thread: any; nothing is kept. */
#include "loader/pack/gguf_blocks.h"

#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "loader/stores/tensor_files_parts.h"

/* The uneven steps of IQ4_NL and IQ4_XS. */
static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* Even ones, which need no table on the way: unpacking is written so that compilers make vectors of it. */
static const int8_t signed_steps[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
static const int8_t plain_steps[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* E2M1 numbers times two, in the order of their codes. Code 8, the other zero, is unpacked as the first; its place holds a number that none is. */
static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, -16, -1, -2, -3, -4, -6, -8, -12};

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return qr_f16_to_f32(h);
}

/* n bytes of two codes each: the lower halves are the first n numbers. What each is less than its code by is `minus`. */
static inline void even_nibbles(int8_t *code, const uint8_t *q, int32_t n, int32_t minus)
{
    for (int32_t i = 0; i < n; i++)
        code[i] = (int8_t)((q[i] & 15) - minus);
    for (int32_t i = 0; i < n; i++)
        code[i + n] = (int8_t)((q[i] >> 4) - minus);
}

static void uneven_nibbles(int8_t *code, const uint8_t *q)
{
    for (int32_t i = 0; i < 16; i++) {
        code[i] = uneven[q[i] & 15];
        code[i + 16] = uneven[q[i] >> 4];
    }
}

/* ---- blocks of 32 ---- */

static void q4_0(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    even_nibbles(code, b + 2, 16, 8);
}

static void q4_1(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    s->offset = half_at(b + 2);
    even_nibbles(code, b + 4, 16, 0);
}

/* Four bits of a code in q, the fifth in high. */
static void five_bits(int8_t *code, const uint8_t *high, const uint8_t *q, int32_t minus)
{
    uint32_t h;
    memcpy(&h, high, sizeof h);
    for (int32_t i = 0; i < 16; i++) {
        code[i] = (int8_t)(((q[i] & 15) | (int32_t)(h >> i & 1) << 4) - minus);
        code[i + 16] = (int8_t)(((q[i] >> 4) | (int32_t)(h >> (i + 16) & 1) << 4) - minus);
    }
}

static void q5_0(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    five_bits(code, b + 2, b + 6, 16);
}

static void q5_1(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    s->offset = half_at(b + 2);
    five_bits(code, b + 4, b + 8, 0);
}

static void q8_0(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    memcpy(code, b + 2, 32);
}

static void iq4_nl(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    uneven_nibbles(code, b + 2);
}

float qr_mxfp4_scale(uint8_t e)
{
    const uint32_t bits = e == 255 ? 0x7fc00000u : e > 1 ? (uint32_t)(e - 1) << 23 : e == 1 ? 0x00400000u : 0x00200000u;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

int8_t qr_mxfp4_level(uint8_t code)
{
    QR_ASSERT(code < 16);
    return e2m1[code == 8 ? 0 : code];
}

static void mxfp4(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = qr_mxfp4_scale(b[0]);
    for (int32_t i = 0; i < 16; i++) {
        code[i] = qr_mxfp4_level(b[1 + i] & 15);
        code[i + 16] = qr_mxfp4_level(b[1 + i] >> 4);
    }
}

/* ---- blocks of 256 ---- */

/* 16 bytes of scale and offset (4 bits each), 64 of codes (2 bits: four runs of 32 numbers in each 32 bytes), then the scales' scales. */
static void q2_k(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b + 80);
    s->offset = -half_at(b + 82);
    for (int32_t g = 0; g < 16; g++) {
        s->step[g] = (int8_t)(b[g] & 15);
        s->offset_step[g] = (int8_t)(b[g] >> 4);
    }
    for (int32_t run = 0; run < 8; run++)
        for (int32_t i = 0; i < 32; i++)
            code[32 * run + i] = (int8_t)(b[16 + run / 4 * 32 + i] >> (run % 4 * 2) & 3);
}

static uint32_t word_at(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* 16 scales of 6 bits, 32 above what they are: four lower bits each in eight bytes, those of the first eight below the others', then two upper ones in four. A
 * word holds four. */
static inline void sixteen_steps(int8_t *step, const uint8_t *b)
{
    const uint32_t high = word_at(b + 8), four = 0x0f0f0f0f, two = 0x03030303;
    for (int32_t g = 0; g < 4; g++) {
        const uint32_t six = (word_at(b + g % 2 * 4) >> g / 2 * 4 & four) | (high >> 2 * g & two) << 4;
        const uint32_t less = (six + 0x60606060u) ^ 0x80808080u; /* by 32, each in its byte */
        memcpy(step + 4 * g, &less, sizeof less);
    }
}

/* 32 bytes with a third bit each (clear: minus 4), 64 of codes as above, 12 of 16 scales of 6 bits. */
static void q3_k(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b + 108);
    sixteen_steps(s->step, b + 96);
    for (int32_t run = 0; run < 8; run++)
        for (int32_t i = 0; i < 32; i++) {
            const int32_t two = b[32 + run / 4 * 32 + i] >> (run % 4 * 2) & 3, third = b[i] >> run & 1;
            code[32 * run + i] = (int8_t)(two + 4 * third - 4);
        }
}

/* Eight scales and eight offsets of 6 bits in 12 bytes: of the first four the lower bits of bytes 0 to 7, of the others 4 bits in bytes 8 to 11 and the two
 * upper bits of bytes 0 to 7. A word holds four. */
static inline void six_bit_steps(int8_t *step, int8_t *offset_step, const uint8_t *b)
{
    const uint32_t x = word_at(b + 4), y = word_at(b + 8), z = word_at(b + 12), six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
    const uint32_t s[2] = {x & six, (z & four) | (x >> 2 & two)}, o[2] = {y & six, (z >> 4 & four) | (y >> 2 & two)};
    memcpy(step, s, sizeof s);
    memcpy(offset_step, o, sizeof o);
}

/* The scales' scale and the offsets', then these. */
static void six_bit_pairs(struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    s->offset = -half_at(b + 2);
    six_bit_steps(s->step, s->offset_step, b);
}

static void q4_k(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    six_bit_pairs(s, b);
    for (int32_t i = 0; i < 4; i++)
        even_nibbles(code + 64 * i, b + 16 + 32 * i, 32, 0);
}

static void q5_k(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    six_bit_pairs(s, b);
    for (int32_t run = 0; run < 8; run++)
        for (int32_t i = 0; i < 32; i++)
            code[32 * run + i] = (int8_t)((b[48 + run / 2 * 32 + i] >> (run % 2 * 4) & 15) | (b[16 + i] >> run & 1) << 4);
}

/* 32 codes: four bits each, from bit `down` of low on, and two, from bit `up` of high on. */
static inline void six_bits(int8_t *code, const uint8_t *low, const uint8_t *high, const int down, const int up)
{
    for (int32_t i = 0; i < 32; i++)
        code[i] = (int8_t)(((low[i] >> down & 15) | (high[i] >> up & 3) << 4) - 32);
}

/* 128 bytes of lower halves, 64 of two upper bits, 16 scales of 8 bits. */
static void q6_k(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b + 208);
    memcpy(s->step, b + 192, 16);
    for (int32_t half = 0; half < 2; half++, code += 128) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        six_bits(code, low, high, 0, 0);
        six_bits(code + 32, low + 32, high, 0, 2);
        six_bits(code + 64, low, high, 4, 4);
        six_bits(code + 96, low + 32, high, 4, 6);
    }
}

/* Eight scales of 6 bits, 32 above what they are: two upper bits each in two bytes, then four lower ones each in four. A word holds eight. */
static inline void xs_steps(int8_t *step, const uint8_t *b)
{
    uint64_t low = word_at(b + 4), high = (uint64_t)(b[2] | b[3] << 8);
    low = (low | low << 16) & 0x0000ffff0000ffffu;
    low = (low | low << 8) & 0x00ff00ff00ff00ffu;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
    high = (high | high << 24) & 0x000000ff000000ffu;
    high = (high | high << 12) & 0x000f000f000f000fu;
    high = (high | high << 6) & 0x0303030303030303u;
    const uint64_t less = ((low | high << 4) + 0x6060606060606060u) ^ 0x8080808080808080u; /* by 32, each in its byte */
    memcpy(step, &less, sizeof less);
}

static void iq4_xs(int8_t *code, struct qr_gguf_scales *s, const uint8_t *b)
{
    s->scale = half_at(b);
    xs_steps(s->step, b);
    for (int32_t g = 0; g < 8; g++)
        uneven_nibbles(code + 32 * g, b + 8 + 16 * g);
}

static const struct {
    enum qr_dtype coded;
    const int8_t *levels;
    void (*unpack)(int8_t *code, struct qr_gguf_scales *s, const uint8_t *block);
} types[] = {
    [QR_GGUF_T_Q4_0] = {QR_C4_G32, signed_steps, q4_0},     [QR_GGUF_T_Q4_1] = {QR_C4_G32_O, plain_steps, q4_1},
    [QR_GGUF_T_Q5_0] = {QR_C5_G32, NULL, q5_0},             [QR_GGUF_T_Q5_1] = {QR_C5_G32_O, NULL, q5_1},
    [QR_GGUF_T_Q8_0] = {QR_C8_G32, NULL, q8_0},             [QR_GGUF_T_IQ4_NL] = {QR_C4_G32, uneven, iq4_nl},
    [QR_GGUF_T_Q2_K] = {QR_C2_G16_SO, NULL, q2_k},          [QR_GGUF_T_Q3_K] = {QR_C3_G16_S, NULL, q3_k},
    [QR_GGUF_T_Q4_K] = {QR_C4_G32_SO, plain_steps, q4_k},   [QR_GGUF_T_Q5_K] = {QR_C5_G32_SO, NULL, q5_k},
    [QR_GGUF_T_Q6_K] = {QR_C6_G16_S, NULL, q6_k},           [QR_GGUF_T_IQ4_XS] = {QR_C4_G32_S, uneven, iq4_xs},
    [QR_GGUF_T_MXFP4] = {QR_C4_G32, e2m1, mxfp4},
};

enum qr_dtype qr_gguf_coded(enum qr_gguf_type type)
{
    return (uint32_t)type < (uint32_t)QR_COUNT(types) && types[type].unpack ? types[type].coded : QR_CODED;
}

const int8_t *qr_gguf_levels(enum qr_gguf_type type)
{
    return (uint32_t)type < (uint32_t)QR_COUNT(types) ? types[type].levels : NULL;
}

void qr_gguf_unpack(enum qr_gguf_type type, int8_t *code, struct qr_gguf_scales *scales, const void *block)
{
    QR_ASSERT(qr_gguf_coded(type) != QR_CODED && code != NULL);
    QR_ASSERT(scales != NULL && block != NULL);
    *scales = (struct qr_gguf_scales){0};
    types[type].unpack(code, scales, block);
}

void qr_gguf_unpack_row(enum qr_gguf_type type, const struct qr_coded_rows *row, const void *blocks, int64_t n)
{
    QR_ASSERT(qr_gguf_coded(type) != QR_CODED && row != NULL);
    QR_ASSERT(blocks != NULL && n >= 0);
    const struct qr_gguf_layout l = *qr_gguf_layout((uint32_t)type);
    const struct qr_coded_rows to = *row; /* what is written by bytes could else be any of these */
    void (*const unpack)(int8_t *code, struct qr_gguf_scales *s, const uint8_t *block) = types[type].unpack;
    const size_t n_groups = (size_t)l.elements / qr_dtype_coded(types[type].coded).group;
    const uint8_t *b = blocks;
    struct qr_gguf_scales s = {0};
    for (int64_t k = 0; type == QR_GGUF_T_Q8_0 && k < n; k++) { /* blocks so small that a call of each is half of the time */
        to.scale[k] = half_at(b + 34 * k);
        memcpy(to.level + 32 * k, b + 34 * k + 2, 32);
    }
    for (int64_t k = 0; type != QR_GGUF_T_Q8_0 && k < n; k++, b += l.bytes) {
        unpack(to.level + k * l.elements, &s, b);
        to.scale[k] = s.scale;
        if (to.offset)
            to.offset[k] = s.offset;
        if (to.step)
            memcpy(to.step + (size_t)k * n_groups, s.step, n_groups);
        if (to.offset_step)
            memcpy(to.offset_step + (size_t)k * n_groups, s.offset_step, n_groups);
    }
}

bool qr_gguf_decode(enum qr_gguf_type type, float *out, const void *blocks, int64_t n)
{
    QR_ASSERT(out != NULL && blocks != NULL && n >= 0);
    const bool halves = type == QR_GGUF_T_F16 || type == QR_GGUF_T_BF16;
    if (halves || type == QR_GGUF_T_F32) {
        qr_stored_numbers(out, blocks, !halves ? QR_F32 : type == QR_GGUF_T_F16 ? QR_F16 : QR_BF16, n);
        return true;
    }
    if (qr_gguf_coded(type) == QR_CODED)
        return false;
    const struct qr_gguf_layout *l = qr_gguf_layout((uint32_t)type);
    const struct qr_coded_format f = qr_dtype_coded(types[type].coded);
    const uint8_t *b = blocks;
    QR_ASSERT(n % l->elements == 0 && l->elements <= QR_GGUF_BLOCK_MAX);
    for (int64_t i = 0; i < n; i += l->elements, b += l->bytes) {
        int8_t code[QR_GGUF_BLOCK_MAX];
        struct qr_gguf_scales s;
        qr_gguf_unpack(type, code, &s, b);
        for (int32_t g = 0; g < l->elements / f.group; g++) {
            const float scale = f.steps ? s.scale * (float)s.step[g] : s.scale, offset = f.steps ? s.offset * (float)s.offset_step[g] : s.offset;
            for (int32_t k = g * f.group; k < (g + 1) * f.group; k++)
                out[i + k] = scale * (float)code[k] + offset;
        }
    }
    return true;
}
