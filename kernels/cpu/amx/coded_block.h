/* coded_block.h - one row tile times some panels of coded weights, from the first input to the last: while tiles are multiplied, the next become bf16,
 * which keeps other units busy, and sums stay in tile registers. Weights of 8 bits are the right operand, as bf16 ones are; weights of 4 bits, whose tiles
 * are rows of outputs, the left one: the rows come turned (product.h), and sums leave as columns. Included by linear.c only. */
#ifndef QR_KERNELS_CPU_AMX_CODED_BLOCK_H
#define QR_KERNELS_CPU_AMX_CODED_BLOCK_H

#include "base/mem.h"
#include "kernels/cpu/amx/block.h"
#include "kernels/cpu/amx/coded_table.h"

struct coded_block {
    const struct qr_coded_shape *shape;
    const char *x;                       /* the row tile */
    int64_t x_step;                      /* bytes from k to k */
    const uint8_t *panel[PANELS_MAX];
    char *room;                          /* two steps' tiles: a tile is read long after it was written, when it has left the store buffer */
    char *sums;                          /* tile after tile */
    int64_t ahead, skip;                 /* bytes: weights that far on are asked for, behind a panel's end `skip` further: the panels between are at hand */
    int32_t n_rows, n_steps, skip_step;  /* of x; tiles of k; from this step on */
};
#define CODED_ROOM_BYTES (2 * PANELS_MAX * QR_TILE_BYTES)

/* What is known when compiling. */
struct coded_way {
    int bits, nt;      /* panels */
    bool half, offset; /* with 4 bits: groups are half a tile long; weights have offsets */
};

/* Tiles whose sums, 0 and 1, are columns: 16 outputs by the rows of x. The others take turns, as a tile is not loaded before the products that read it are
 * done: x is 4 and 5, weights are 6 and 7, then 2 and 3. */
static void configure_turned(int32_t n_rows)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        const bool weights = t >= 6 || t == 2 || t == 3;
        c.row_bytes[t] = (uint16_t)(weights ? QR_TILE_ROW_BYTES : n_rows * (int32_t)sizeof(float));
        c.rows[t] = QR_TILE_ROWS;
    }
    qr_tile_configure(&c);
}

VF_FN void coded_unpack_step(const struct coded_way y, const struct coded_block *b, const struct coded_levels *levels, struct coded_tables *tables,
                             int32_t step)
{
    const int64_t ahead = step < b->skip_step ? b->ahead : b->ahead + b->skip;
    const int32_t k = step * QR_TILE_K;
#pragma GCC unroll 4
    for (int i = 0; i < y.nt; i++) {
        uint8_t *dst = (uint8_t *)b->room + (step % 2 * PANELS_MAX + i) * QR_TILE_BYTES;
        if (y.bits == 4)
            coded_tile(y.half, y.offset, dst, &tables[i], b->shape, b->panel[i], &levels[i], k, b->n_steps * QR_TILE_K, ahead);
        else
            coded_unpack_32(8, dst, b->shape, b->panel[i], k, &levels[i], ahead);
    }
}

#define CODED_LEFT(rows, first, second)                                                 \
    do {                                                                                \
        qr_tile_load(rows, b->x + step * b->x_step, b->n_rows * (int64_t)sizeof(float)); \
        qr_tile_load(first, w, QR_TILE_ROW_BYTES);                                      \
        qr_tile_dp(0, first, rows);                                                     \
        if (y.nt > 1) {                                                                 \
            qr_tile_load(second, w + QR_TILE_BYTES, QR_TILE_ROW_BYTES);                 \
            qr_tile_dp(1, second, rows);                                                \
        }                                                                               \
    } while (0)

VF_FN void coded_multiply_step(const struct coded_way y, const struct coded_block *b, int32_t step, const bool odd)
{
    const char *w = b->room + step % 2 * PANELS_MAX * QR_TILE_BYTES;
    if (y.bits == 4) {
        if (odd)
            CODED_LEFT(5, 2, 3);
        else
            CODED_LEFT(4, 6, 7);
        return;
    }
    qr_tile_load(4, b->x + step * b->x_step, QR_TILE_ROW_BYTES);
    qr_tile_load(6, w, QR_TILE_ROW_BYTES);
    qr_tile_dp(0, 4, 6);
    if (y.nt > 1) {
        qr_tile_load(7, w + QR_TILE_BYTES, QR_TILE_ROW_BYTES);
        qr_tile_dp(1, 4, 7);
    }
    if (y.nt > 2) {
        qr_tile_load(6, w + 2 * QR_TILE_BYTES, QR_TILE_ROW_BYTES);
        qr_tile_dp(2, 4, 6);
        qr_tile_load(7, w + 3 * QR_TILE_BYTES, QR_TILE_ROW_BYTES);
        qr_tile_dp(3, 4, 7);
    }
}

/* Columns of sums to rows, 64 bytes apart. One column is a row already. */
static void coded_turn_sums(const struct coded_block *b, int32_t nt)
{
    vf v[QR_TILE_ROWS] QR_UNINITIALIZED;
    for (int32_t i = 0; i < nt && b->n_rows > 1; i++) {
        float *sums = (float *)(void *)(b->sums + i * QR_TILE_BYTES);
        for (int32_t r = 0; r < QR_TILE_ROWS; r++)
            v[r] = vf_load(sums + r * QR_PANEL);
        vf_transpose(v);
        for (int32_t r = 0; r < b->n_rows; r++)
            vf_store(sums + r * QR_PANEL, v[r]);
    }
}

VF_FN void coded_block_of(const struct coded_way y, const struct coded_block *b)
{
    struct coded_levels levels[PANELS_MAX] QR_UNINITIALIZED;
    struct coded_tables tables[PANELS_MAX] QR_UNINITIALIZED;
    const bool column = y.bits == 4 && b->n_rows == 1;
    const struct sums to = {b->sums, column ? (int64_t)sizeof(float) : QR_TILE_ROW_BYTES, QR_TILE_BYTES, 0};
    for (int i = 0; i < y.nt; i++) {
        levels[i] = coded_levels_of(y.bits, b->panel[i]);
        if (y.bits == 4)
            coded_begin(y.half, y.offset, &tables[i], b->shape, b->panel[i], &levels[i], 0, b->n_steps * QR_TILE_K);
    }
    zero_sums();
    coded_unpack_step(y, b, levels, tables, 0);
    int32_t step = 1;
    for (; step + 1 < b->n_steps; step += 2) {
        coded_unpack_step(y, b, levels, tables, step);
        coded_multiply_step(y, b, step - 1, false);
        coded_unpack_step(y, b, levels, tables, step + 1);
        coded_multiply_step(y, b, step, true);
    }
    if (step < b->n_steps) {
        coded_unpack_step(y, b, levels, tables, step);
        coded_multiply_step(y, b, step - 1, false);
        step++;
    }
    coded_multiply_step(y, b, step - 1, step % 2 == 0);
    EACH_SUM(qr_tile_store, to, y.nt);
    if (y.bits == 4)
        coded_turn_sums(b, y.nt);
}

typedef void coded_block_fn(const struct coded_block *b);
#define CODED_BLOCK(name, bits, nt, half, offset)                              \
    static void name##_##nt(const struct coded_block *b)                       \
    {                                                                          \
        coded_block_of((struct coded_way){bits, nt, half, offset}, b);         \
    }
#define CODED_BLOCKS(name, bits, half, offset)   \
    CODED_BLOCK(name, bits, 1, half, offset)     \
    CODED_BLOCK(name, bits, 2, half, offset)
CODED_BLOCKS(coded_8, 8, false, false)
CODED_BLOCK(coded_8, 8, 4, false, false)
CODED_BLOCKS(coded_4, 4, false, false)
CODED_BLOCKS(coded_4_offset, 4, false, true)
CODED_BLOCKS(coded_4_half, 4, true, false)
CODED_BLOCKS(coded_4_half_offset, 4, true, true)

/* nt: panels, 1 or 2, with 8 bits PANELS_MAX as well. */
static void run_coded_block(int32_t nt, const struct coded_block *b)
{
    static coded_block_fn *const blocks[][3] = {
        {coded_4_1, coded_4_2, NULL},
        {coded_4_offset_1, coded_4_offset_2, NULL},
        {coded_4_half_1, coded_4_half_2, NULL},
        {coded_4_half_offset_1, coded_4_half_offset_2, NULL},
        {coded_8_1, coded_8_2, coded_8_4},
    };
    const struct qr_coded_shape *s = b->shape;
    QR_ASSERT(nt == 1 || nt == 2 || (nt == PANELS_MAX && s->f.bits == 8));
    QR_ASSERT(b->n_rows >= 1 && b->n_rows <= QR_TILE_ROWS);
    blocks[s->f.bits == 8 ? 4 : 2 * coded_is_half(s) + coded_has_offset(s)][nt / 2](b);
}

#endif
