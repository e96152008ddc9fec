/* product.c - rows on their way to tiles, sums on their way out of them (product.h). */
#include "kernels/cpu/amx/product.h"

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/cpu/amx/quant.h"
#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/cpu/isa/quant/vectors.h"
#include "kernels/cpu/isa/row.h"

/* Numbers of x as the product meets them: times what the norm says, where there is one. */
VF_FN vf load_x(const float *x, const float *norm_w, vf inverse, int64_t n)
{
    vf v = vf_load_n(x, n);
    return norm_w ? vf_mul(vf_mul(v, inverse), vf_load_n(norm_w, n)) : v;
}

/* 32 numbers from k on, of which n are there, as bf16. Denormal numbers become 0, as they would in the product. */
VF_FN void pack_line(char *dst, const float *x, const float *norm_w, vf inverse, int64_t n)
{
    vf low = load_x(x, norm_w, inverse, vf_min_len(n)), high = vf_zero();
    if (n > VF_LEN)
        high = load_x(x + VF_LEN, norm_w ? norm_w + VF_LEN : NULL, inverse, vf_min_len(n - VF_LEN));
    _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

void qr_amx_transpose_tile(const struct product *p, int32_t t)
{
    const int32_t n = tile_rows(p, t);
    vf pairs[QR_TILE_ROWS] QR_UNINITIALIZED;
    for (int32_t step = 0; n > 1 && step < p->n_steps; step++) {
        float *tile = (float *)(void *)tile_at(p, t, step);
        for (int32_t r = 0; r < QR_TILE_ROWS; r++)
            pairs[r] = r < n ? vf_load(tile + r * QR_PANEL) : vf_zero();
        vf_transpose(pairs);
        for (int32_t i = 0; i < QR_TILE_ROWS; i++)
            vf_store_n(tile + i * n, pairs[i], n);
    }
}

void qr_amx_pack_tile(const void *product, int32_t t, int32_t worker)
{
    const struct product *p = product;
    const int32_t n = tile_rows(p, t), n_in = p->a->n_in, row = t * QR_TILE_ROWS;
    const float *x = p->a->x + (p->row0 + row) * p->a->x_stride, *w = p->a->norm_w;
    if (p->a->x_tiles) { /* and they have to be transposed, else they are read where they lie */
        memcpy(tile_at(p, t, 0), p->a->x_tiles + (int64_t)(p->row0 + row) * n_in, (size_t)n * (size_t)n_in * sizeof *p->a->x_tiles);
        qr_amx_transpose_tile(p, t);
        return;
    }
    if (p->integers) {
        qr_amx_round_rows(tile_at(p, t, 0), p->scale + row, p->sum + row, p->a, p->row0 + row, n, qr_queue_own(p->q, worker));
        return;
    }
    for (int32_t r = 0; r < n; r++, x += p->a->x_stride) {
        char *dst = tile_at(p, t, 0) + r * QR_TILE_ROW_BYTES;
        const vf inverse = w ? row_inverse_rms(x, n_in, p->a->eps) : vf_zero();
        for (int32_t k = 0; k < n_in; k += QR_TILE_K, dst += n * QR_TILE_ROW_BYTES)
            pack_line(dst, x + k, w ? w + k : NULL, inverse, n_in - k < QR_TILE_K ? n_in - k : QR_TILE_K);
    }
    if (p->transposed)
        qr_amx_transpose_tile(p, t);
}

/* What is done to sums on their way out. Known when compiling for the usual ways, so that nothing is asked row by row. */
struct way {
    bool integers, bias, glu, add, next; /* next: results become tiles of the next product */
    bool largest;                       /* of stretches is kept */
    enum qr_act act;
    struct qr_clamp clamp;
};

/* Some rows of one panel in one row tile. */
struct piece {
    const struct product *p;
    const char *sums; /* rows 64 bytes apart; with a unit, the sums of ups lie a tile behind those of gates */
    char *out;        /* of the first row: floats, or half a line of a row tile */
    int64_t out_bytes; /* from row to row */
    float *most;       /* of the stretch at hand: a vector for each row of the chunk */
    int32_t row, n_rows, panel, n_cols; /* row: of the chunk */
};

/* What a panel's outputs have in common. */
struct scales {
    vf scale, bias;
};

VF_FN struct scales scales_of(const struct way y, const struct piece *e, int32_t panel)
{
    return (struct scales){y.integers ? vf_load((const float *)(const void *)panel_at(e->p, panel)) : vf_zero(),
                           y.bias ? vf_load_n(e->p->a->bias + panel * QR_PANEL, e->n_cols) : vf_zero()};
}

/* (sum * scales) + bias for row `row` of the chunk. */
VF_FN vf value_at(const struct way y, const struct product *p, const char *sums, int32_t row, const struct scales *s)
{
    vf v;
    if (y.integers)
        v = vf_mul(sums_at((const int32_t *)(const void *)sums, 128 * p->sum[row]), vf_mul(vf_set1(p->scale[row]), s->scale));
    else
        v = vf_load((const float *)(const void *)sums);
    return y.bias ? vf_add(v, s->bias) : v;
}

/* Takes note of v, a row's numbers in one panel of a stretch. */
VF_FN void note_largest(const struct piece *e, int32_t row, vf v)
{
    const struct product *p = e->p;
    const struct qr_stretches *s = p->a->stretches;
    const int32_t in = e->panel % (QR_LINEAR_STRETCH / QR_PANEL);
    const vf none = vf_set1(-INFINITY);
    float *most = e->most + row * VF_LEN;
    v = vf_pick_range(0, e->n_cols, v, none);
    v = vf_max(v, in == 0 ? none : vf_load(most)); /* what is no number comes first and is passed over */
    if (in == QR_LINEAR_STRETCH / QR_PANEL - 1 || e->panel == p->n_panels - 1)
        s->largest[(p->row0 + row) * s->stride + e->panel / (QR_LINEAR_STRETCH / QR_PANEL)] = vf_max_all(v);
    else
        vf_store(most, v);
}

VF_FN void finish_piece(const struct way y, const struct piece *e)
{
    const struct product *p = e->p;
    const struct scales scales = scales_of(y, e, e->panel), up = scales_of(y, e, e->panel + p->up);
    const char *sums = e->sums;
    char *out = e->out;
#pragma GCC unroll 4
    for (int32_t r = 0; r < e->n_rows; r++, sums += QR_TILE_ROW_BYTES, out += e->out_bytes) {
        vf v = value_at(y, p, sums, e->row + r, &scales);
        if (y.glu)
            v = row_glu(v, value_at(y, p, sums + QR_TILE_BYTES, e->row + r, &up), y.act, y.clamp);
        if (y.add)
            v = vf_add(v, vf_load_n((const float *)(const void *)out, e->n_cols));
        if (y.largest)
            note_largest(e, e->row + r, v);
        if (y.next)
            _mm256_storeu_si256((__m256i *)(void *)out, (__m256i)_mm512_cvtneps_pbh(v));
        else
            vf_store_n((float *)(void *)out, v, e->n_cols);
    }
}

static struct way way_of(const struct product *p)
{
    return (struct way){.integers = p->integers, .bias = p->a->bias, .glu = p->up > 0, .add = p->a->add, .next = p->next,
                        .largest = p->a->stretches, .act = p->a->act, .clamp = p->a->clamp};
}

static void finish_any(const struct piece *e)
{
    finish_piece(way_of(e->p), e);
}

#define USUAL(name, ...)                                     \
    static void name(const struct piece *e)                  \
    {                                                        \
        finish_piece((struct way){__VA_ARGS__}, e);          \
    }
USUAL(finish_unit, .glu = true, .act = QR_ACT_SILU)
USUAL(finish_unit_to_tiles, .glu = true, .next = true, .act = QR_ACT_SILU)
USUAL(finish_onto, .add = true)
USUAL(finish_head, .largest = true)
USUAL(finish_int8, .integers = true)
USUAL(finish_int8_head, .integers = true, .largest = true)
USUAL(finish_int8_unit, .integers = true, .glu = true, .act = QR_ACT_SILU)
USUAL(finish_int8_onto, .integers = true, .add = true)

/* The way out for this product: one of the usual, or any. */
static finish_fn *finish_of(const struct product *p)
{
    const struct way y = way_of(p);
    if (y.largest)
        return y.bias ? finish_any : y.integers ? finish_int8_head : finish_head;
    if (y.bias || (y.glu && y.act != QR_ACT_SILU) || (!y.integers && !y.glu && !y.add))
        return finish_any;
    if (y.integers)
        return y.glu ? y.next ? finish_any : finish_int8_unit : y.add ? finish_int8_onto : finish_int8;
    return y.glu ? y.next ? finish_unit_to_tiles : finish_unit : finish_onto;
}

void qr_amx_plan_finish(struct product *p)
{
    QR_ASSERT(p != NULL && p->a != NULL);
    p->finish = finish_of(p);
}

void qr_amx_finish_some(struct leaving *l, int32_t n)
{
    while (n > 0 && l->n_panels > 0) {
        const struct product *p = l->p;
        const struct qr_linear_args *a = p->a;
        const int32_t i = l->i, r = l->r, in_tile = r % QR_TILE_ROWS, t = (l->row + r) / QR_TILE_ROWS;
        const int32_t panel = l->panel + i, o = panel * QR_PANEL, n_cols = p->n_cols - o < QR_PANEL ? p->n_cols - o : QR_PANEL;
        int32_t most = QR_TILE_ROWS - in_tile < l->n_rows - r ? QR_TILE_ROWS - in_tile : l->n_rows - r;
        most = most < n ? most : n;
        struct piece e = {.p = p, .sums = l->sums + (int64_t)i * p->each * QR_TILE_BYTES + r / QR_TILE_ROWS * l->below + in_tile * QR_TILE_ROW_BYTES,
                          .most = l->most, .row = l->row + r, .n_rows = most, .panel = panel, .n_cols = n_cols};
        if (p->next) {
            e.out = tile_at(p->next, t, panel / 2) + in_tile * QR_TILE_ROW_BYTES + panel % 2 * (QR_TILE_ROW_BYTES / 2);
            e.out_bytes = QR_TILE_ROW_BYTES;
        } else {
            e.out = (char *)(a->out + (p->row0 + l->row + r) * a->out_stride + o);
            e.out_bytes = a->out_stride * (int64_t)sizeof(float);
        }
        p->finish(&e);
        n -= most;
        l->r += most;
        if (l->r < l->n_rows)
            continue;
        l->r = 0;
        if (++l->i == l->n_panels)
            l->n_panels = 0;
    }
}

void qr_amx_plan_product(struct product *p)
{
    const struct qr_linear_args *a = p->a;
    const enum qr_dtype type = p->type = a->w->packed_dtype;
    p->tile_k = QR_TILE_K;
    if (qr_dtype_is_quantized(type)) {
        const struct qr_quant_format f = qr_dtype_format(type);
        p->integers = true;
        p->unpack = f.group > 0;
        p->tile_k = 2 * QR_TILE_K;
        p->panel_bytes = qr_quant_panel_bytes(type, a->n_in);
        p->head_bytes = qr_quant_head_bytes(type, a->n_in);
        p->step_bytes = (int64_t)p->tile_k * QR_PANEL * f.bits / 8;
    }
    p->n_steps = (a->n_in + p->tile_k - 1) / p->tile_k;
    p->up = a->glu ? a->n_out / 2 / QR_PANEL : 0;
    p->each = p->up ? 2 : 1;
    p->n_cols = p->up ? a->n_out / 2 : a->n_out;
    p->n_panels = p->up ? p->up : (a->n_out + QR_PANEL - 1) / QR_PANEL;
    if (qr_dtype_is_coded(type)) {
        p->is_coded = p->unpack = true;
        p->coded = qr_coded_shape_of(type, a->n_in);
        p->panel_bytes = p->coded.panel_bytes;
    } else if (!p->integers) {
        p->panel_bytes = (int64_t)p->n_steps * QR_TILE_BYTES;
        p->step_bytes = QR_TILE_BYTES;
    }
    qr_amx_plan_finish(p);
}
