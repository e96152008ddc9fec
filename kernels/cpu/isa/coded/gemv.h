/* gemv.h - up to GEMV_ROWS rows times coded weights by integers (q16.h), for avx2. linear.c has the functions that
 * avx2/gemv_*.c make of it.
 *
 * A panel is read once: codes become pairs, or for one row bytes, in registers and meet all rows there. With several
 * rows a vector of eight outputs goes through the block's inputs before the other one does, so that sums, pairs and
 * scales are no more than 16 registers. */
#ifndef QR_KERNELS_CPU_ISA_CODED_GEMV_H
#define QR_KERNELS_CPU_ISA_CODED_GEMV_H

#include "kernels/cpu/isa/coded/q16.h"

#define GEMV_ROWS 4
#define GEMV_PANELS 4 /* in a call */

/* Rows and panels: sums[r][16 j + o], rows GEMV_PANELS * QR_PANEL apart, which begin as zeros. */
struct gemv_args {
    const struct qr_coded_shape *s;
    const uint8_t *panel[GEMV_PANELS];
    const struct q16_x *x;         /* of the first row; n_units from row to row */
    const struct q16_bytes *bytes; /* of a single row */
    float *sums;
    int32_t n_units, n_panels;
    int32_t n_skip;                  /* panels that lie between one and what is read behind it */
};
void qr_avx2_gemv_1(const struct gemv_args *a);
void qr_avx2_gemv_2(const struct gemv_args *a);
void qr_avx2_gemv_3(const struct gemv_args *a);
void qr_avx2_gemv_4(const struct gemv_args *a);

/* What gemv_vectors goes through: a block of one panel. */
struct gemv_block {
    const struct qr_coded_shape *s;
    const uint8_t *panel, *block;
    const struct q16_x *x;         /* of the block's first input and the first row */
    const struct q16_bytes *bytes; /* from there on, too, of a single row */
    int64_t x_row;                   /* units from row to row */
    int64_t ahead;                   /* bytes */
    int32_t n_units;                 /* that the rows have here */
};

/* How codes meet x. Those of 4 bits from 0 on meet a single row as bytes: X = 256 high + low with -128 <= high < 128
 * and 0 <= low < 256, and sums of codes times either stay below 2^15 and 2^16 in the two halves of a lane for 32
 * inputs (16 * 15 * 128, 16 * 15 * 255). They begin at 128 and -2^15, which in what they become are 2 * 256 * 128 and
 * -2 * 2^15, and make 0. Codes of 2 and 3 bits are so small, and their runs so short (16), that sums stay far from
 * these ends. */
#define GEMV_BYTES(bits, even, rows) ((bits) <= 4 && (even) && (rows) == 1)

/* Four bytes in every lane, straight from memory. */
VF_FN vi gemv_lane(const void *p)
{
    return VI_OF_FLOATS(_mm256_broadcast_ss((const float *)p));
}

/* The first and the second four inputs' codes of a vector's line of 2 to 4 bits, a byte each. */
VF_FN void gemv_codes(const int bits, vi code[2], const uint8_t *codes, const int i)
{
    const int mask = (1 << bits) - 1;
    if (bits == 2) {
        const vi c = VI_LOAD(codes + i / 2 * QR_CODED_LINE);
        code[0] = lines_moved(c, i % 2 * 2, mask);
        code[1] = lines_moved(c, i % 2 * 2 + 4, mask);
        return;
    }
    const vi c = bits == 3 && i == 3 ? lines_fourth(codes) : VI_LOAD(codes + (bits == 3 ? i * QR_CODED_LINE : 0));
    code[0] = lines_moved(c, 0, mask);
    code[1] = lines_moved(c, 4, mask);
}

/* v onto a sum, or, of the first of a run, onto what it begins with; there is nothing of that with fewer than 4 bits.
 * Three operands, as a sum that has to stay in its register costs a copy more. */
VF_FN void gemv_add(const int bits, const bool first, vi *sum, vi begin, vi v)
{
    if (first)
        *sum = bits == 4 ? VI(add_epi16)(v, begin) : v;
    else
        __asm__ volatile("vpaddw %2, %1, %0" : "=x"(*sum) : "x"(*sum), "x"(v));
}

/* A line of 16 outputs or 8 (n_v vectors): onto sum[v * rows + r], or as bytes onto sum[v] (of high) and low[v], which
 * begin with a run's first line. codes: of the first vector, and line i as in q16_line. x, bytes: from the line's
 * first input on. */
VF_FN void gemv_line(const int bits, const bool even, const int rows, const int n_v, vi *sum, vi *low, const uint8_t *codes, const int i,
                    const bool first, const int16_t *x, int64_t x_row, const uint8_t *bytes, const struct q16_levels *l)
{
    if (GEMV_BYTES(bits, even, rows)) {
        const vi high[2] = {gemv_lane(bytes), gemv_lane(bytes + 4)}, low_x[2] = {gemv_lane(bytes + Q16_K), gemv_lane(bytes + Q16_K + 4)};
#pragma GCC unroll 2
        for (int v = 0; v < n_v; v++) {
            vi code[2] QR_UNINITIALIZED;
            gemv_codes(bits, code, codes + v * VI_BYTES, i);
            gemv_add(bits, first, &sum[v], VI(set1_epi16)(128), VI(maddubs_epi16)(code[0], high[0]));
            gemv_add(bits, first, &low[v], VI(set1_epi16)(-0x8000), VI(maddubs_epi16)(low_x[0], code[0]));
            gemv_add(bits, false, &sum[v], VI(setzero_si256)(), VI(maddubs_epi16)(code[1], high[1]));
            gemv_add(bits, false, &low[v], VI(setzero_si256)(), VI(maddubs_epi16)(low_x[1], code[1]));
        }
        return;
    }
#pragma GCC unroll 2
    for (int v = 0; v < n_v; v++) {
        vi pairs[4] QR_UNINITIALIZED;
        q16_line(bits, even, pairs, codes + v * q16_line_bytes(bits) / 2, i, l);
#pragma GCC unroll 4
        for (int j = 0; j < q16_line_inputs(bits) / 2; j++)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                add_onto_32(&sum[v * rows + r], VI(madd_epi16)(pairs[j], gemv_lane(x + r * x_row * (int64_t)(sizeof(struct q16_x) / sizeof *x) + 2 * j)));
    }
}

VF_FN vi gemv_bytes_at(const int8_t *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* n_v vectors of eight outputs, from o on, and `rows` rows: acc[v * rows + r]. steps, offset, zero: whether the format
 * has them; with steps a block is a unit. shifted: whether codes and levels differ. */
VF_FN void gemv_vectors(const int bits, const bool even, const bool steps, const bool offset, const bool zero, const bool shifted,
                       const int run, const int rows, const int n_v, vf *acc, const struct gemv_block *b, const struct q16_levels *l, const int o)
{
    const struct qr_coded_shape *s = b->s;
    const int line_k = q16_line_inputs(bits), n_lines = run / line_k, n_runs = Q16_K / run;
    const bool as_bytes = GEMV_BYTES(bits, even, rows), share = q16_lines_share(bits);
    const vi shift = VI(set1_epi32)(l->shift);
    const uint8_t *codes = b->block + s->codes_at + o * q16_line_bytes(bits) / QR_PANEL, *bytes = (const uint8_t *)b->bytes;
    const uint16_t *unit = (const uint16_t *)(const void *)b->block + o;
    const int8_t *step = (const int8_t *)b->block + s->step_at + o;
    const int64_t offset_step = s->offset_step_at - s->step_at;
    const struct q16_x *x = b->x;
    vf factor[2] QR_UNINITIALIZED, scale[2] QR_UNINITIALIZED, offsets[2] QR_UNINITIALIZED;
#pragma GCC unroll 2
    for (int v = 0; v < n_v; v++) {
        factor[v] = vf_load((const float *)(const void *)b->panel + o + v * VF_LEN);
        scale[v] = vf_mul(vf_load_f16_n(unit + v * VF_LEN, VF_LEN), factor[v]);
        offsets[v] = offset && steps ? vf_mul(vf_load_f16_n(unit + s->offset_at / 2 + v * VF_LEN, VF_LEN), factor[v]) : vf_zero();
    }
    for (int32_t in = 0; in < b->n_units * Q16_K; in += Q16_K, x++)
#pragma GCC unroll 2
        for (int h = 0; h < n_runs; h++) {
            vi sum[2 * GEMV_ROWS] QR_UNINITIALIZED, low[2] QR_UNINITIALIZED;
#pragma GCC unroll 8
            for (int i = 0; i < n_v * rows; i++)
                if (!as_bytes)
                    sum[i] = VI(setzero_si256)();
#pragma GCC unroll 8
            for (int i = 0; i < n_lines; i++, codes += share ? 0 : q16_line_bytes(bits), bytes += as_bytes ? line_k : 0) {
                const int line = share ? h * n_lines + i : 0; /* of the 32 inputs */
                for (int at = line; o == 0 && at < (share ? bits : 1); at += LINES_32)
                    _mm_prefetch((const char *)codes + at * QR_CODED_LINE + b->ahead, _MM_HINT_T0);
                gemv_line(bits, even, rows, n_v, sum, low, codes, line, i == 0, x->x + h * run + i * line_k, b->x_row, bytes, l);
            }
            codes += share && h == n_runs - 1 ? bits * QR_CODED_LINE : 0;
            if (as_bytes && h == n_runs - 1)
                bytes += Q16_K;
#pragma GCC unroll 2
            for (int v = 0; v < n_v; v++) {
                vf own = scale[v], own_offset = offsets[v];
                vi zeros = VI(setzero_si256)();
                if (steps)
                    own = vf_mul(own, vf_load_i8_n(step + v * VF_LEN, VF_LEN));
                else
                    own = vf_mul(vf_load_f16_n(unit + (in >> s->unit_shift) * QR_PANEL + v * VF_LEN, VF_LEN), factor[v]);
                if (offset && steps)
                    own_offset = vf_mul(own_offset, vf_load_i8_n(step + offset_step + v * VF_LEN, VF_LEN));
                else if (offset)
                    own_offset = vf_mul(vf_load_f16_n(unit + s->offset_at / 2 + (in >> s->unit_shift) * QR_PANEL + v * VF_LEN, VF_LEN), factor[v]);
                if (zero)
                    zeros = gemv_bytes_at(step + offset_step + (in >> s->group_shift) * QR_PANEL + v * VF_LEN);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    const struct q16_x *xr = &x[r * b->x_row];
                    const int i = v * rows + r;
                    vi whole = sum[i];
                    if (as_bytes)
                        whole = VI(add_epi32)(VI(madd_epi16)(whole, VI(set1_epi16)(256)), VI(madd_epi16)(low[v], VI(set1_epi16)(1)));
                    const int32_t total = run == Q16_K ? xr->all : xr->sum[h];
                    if (shifted)
                        whole = VI(add_epi32)(whole, VI(mullo_epi32)(VI(set1_epi32)(total), shift));
                    if (zero)
                        whole = VI(sub_epi32)(whole, VI(mullo_epi32)(zeros, VI(set1_epi32)(total)));
                    acc[i] = q16_add(acc[i], whole, vf_set1(xr->unit), own);
                    if (offset)
                        acc[i] = q16_add_offset(acc[i], vf_set1(run == Q16_K ? xr->ones : xr->half_ones[h]), own_offset);
                }
            }
            step += steps ? QR_PANEL : 0;
        }
}

/* Panel j. next: where what is read behind it lies. */
VF_FN void gemv_blocks(const int bits, const bool even, const bool steps, const bool offset, const bool zero,
                      const bool shifted, const int run, const int rows, const struct gemv_args *a,
                      const struct q16_levels *l, int32_t j, const uint8_t *next)
{
    const struct qr_coded_shape *s = a->s;
    const int n_v = rows == 1 ? 2 : 1;
    const int32_t n_units = a->n_units, per_block = 1 << s->block_shift >> 5;
    const int32_t n_blocks = (n_units + per_block - 1) / per_block;
    struct gemv_block b = {.s = s, .x = a->x, .bytes = a->bytes, .x_row = a->n_units, .panel = a->panel[j]};
    b.block = b.panel + s->head_bytes;
    const uint8_t *const end = b.block + n_blocks * (int64_t)s->block_bytes;
    for (int32_t left = n_units; left > 0; left -= per_block, b.block += s->block_bytes, b.x += per_block, b.bytes += per_block) {
        b.n_units = left < per_block ? left : per_block;
        b.ahead = QR_QUANT_AHEAD + (end - b.block > QR_QUANT_AHEAD ? 0 : next - end);
        qr_coded_prefetch_scales(s, b.block, b.ahead);
#pragma GCC unroll 2
        for (int o = 0; o < QR_PANEL; o += n_v * VF_LEN) {
            vf acc[GEMV_ROWS] QR_UNINITIALIZED;
            float *to = a->sums + j * QR_PANEL + o;
#pragma GCC unroll 4
            for (int i = 0; i < n_v * rows; i++)
                acc[i] = vf_load(to + i % rows * GEMV_PANELS * QR_PANEL + i / rows * VF_LEN);
            gemv_vectors(bits, even, steps, offset, zero, shifted, run, rows, n_v, acc, &b, l, o);
#pragma GCC unroll 4
            for (int i = 0; i < n_v * rows; i++)
                vf_store(to + i % rows * GEMV_PANELS * QR_PANEL + i / rows * VF_LEN, acc[i]);
        }
    }
}

/* Panel by panel: one stream that is prefetched comes faster than four that take turns. */
VF_FN void gemv_panels(const int bits, const bool even, const bool steps, const bool offset, const bool zero,
                      const bool shifted, const int run, const int rows, const struct gemv_args *a,
                      const struct q16_levels l[GEMV_PANELS])
{
    const uint8_t *behind = a->panel[0] + (a->n_skip + 1) * a->s->panel_bytes;
    for (int32_t j = 0; j < a->n_panels; j++)
        gemv_blocks(bits, even, steps, offset, zero, shifted, run, rows, a, &l[j], j,
                   j + 1 < a->n_panels ? a->panel[j + 1] : behind);
}

/* Returns whether all of them are even, as codes have to be for products that look up nothing. */
static inline bool gemv_levels(struct q16_levels l[GEMV_PANELS], const struct gemv_args *a)
{
    bool even = true;
    for (int32_t j = 0; j < a->n_panels; j++) {
        l[j] = q16_levels_of(a->s->f, a->panel[j]);
        even = even && l[j].even;
    }
    for (int32_t j = 0; j < a->n_panels && !even; j++)
        l[j].shift = 0;
    return even;
}

/* Panels with what the format has known to the compiler: for a single row, where each branch and each addition of 0
 * would be one of some 150 operations for a run of 16 outputs; more rows, and sanitizers, as Q16_BY_FORMAT. */
VF_FN void gemv_formats(const int bits, const bool plain5, const bool even, const bool steps, const int run, const int rows, const struct gemv_args *a,
                       const struct q16_levels l[GEMV_PANELS])
{
    const struct qr_coded_format f = a->s->f;
    const bool may_shift = (bits == 4 && even) || bits == 3 || (bits == 5 && !plain5), zero = bits == 4 && f.zero;
    const bool offset = bits == 2 || plain5 || (bits == 4 && f.offset);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    const bool always = may_shift && bits != 4;
    bool shifted = always;
    for (int32_t j = 0; j < a->n_panels; j++)
        shifted = shifted || l[j].shift != 0;
    if (rows == 1) {
        if (bits == 4 && !steps && zero)
            gemv_panels(bits, even, steps, false, true, may_shift, run, rows, a, l);
        else if (offset && (always || (may_shift && shifted)))
            gemv_panels(bits, even, steps, true, false, may_shift, run, rows, a, l);
        else if (offset)
            gemv_panels(bits, even, steps, true, false, false, run, rows, a, l);
        else if (always || (may_shift && shifted))
            gemv_panels(bits, even, steps, false, false, true, run, rows, a, l);
        else
            gemv_panels(bits, even, steps, false, false, false, run, rows, a, l);
        return;
    }
#endif
    gemv_panels(bits, even, steps, offset, zero, may_shift, run, rows, a, l);
}

#define GEMV_OF(rows)                                                                               \
    void qr_avx2_gemv_##rows(const struct gemv_args *a)                                              \
    {                                                                                              \
        enum { ROWS = rows };                                                                      \
        struct q16_levels l[GEMV_PANELS] QR_UNINITIALIZED;                                        \
        const bool all_even = gemv_levels(l, a), steps = a->s->f.steps;                             \
        Q16_BY_FORMAT(a->s->f, all_even, GEMV_DO);                                      \
    }
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ /* as Q16_BY_FORMAT */
#define GEMV_DO(bits, plain5, even) gemv_formats(bits, plain5, even, steps, q16_run(a->s), ROWS, a, l)
#else
#define GEMV_DO(bits, plain5, even)                                                                     \
    do { /* codes of 2, 3 and 6 bits have steps of groups of 16, of 8 bits none, and others no such groups */ \
        if ((bits) < 4 || (bits) == 6)                                                                 \
            gemv_formats(bits, plain5, even, true, 16, ROWS, a, l);                                      \
        else if ((bits) != 8 && steps)                                                                 \
            gemv_formats(bits, plain5, even, true, Q16_K, ROWS, a, l);                                 \
        else                                                                                           \
            gemv_formats(bits, plain5, even, false, Q16_K, ROWS, a, l);                                \
    } while (0)
#endif

#endif
