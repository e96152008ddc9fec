/* coded_block.c - the blocks of coded_block.h, one for each kind of weights and number of panels. */
#include "kernels/cpu/amx/coded_block.h"

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/cpu/amx/coded_table.h"
#include "kernels/cpu/amx/quant.h"

/* What is known when compiling: also where everything lies in a panel, as a step that had to find out would take half as long again. */
struct coded_way {
    int bits, group;   /* of the type's format */
    bool steps, offset, zero, e4m3; /* of the format, too */
    int nt;            /* panels */
    bool tiles;        /* several row tiles, one panel */
};

/* Field by field: of a copied format the compiler would no longer know all. */
VF_FN struct qr_coded_shape coded_shape(const struct coded_way y)
{
    const struct qr_coded_format f = {.bits = (uint8_t)y.bits, .group = (uint8_t)y.group, .steps = y.steps, .offset = y.offset, .zero = y.zero, .e4m3 = y.e4m3};
    struct qr_coded_shape s = qr_coded_shape_of_format(f);
    s.f.steps = y.steps;
    s.f.offset = y.offset;
    s.f.zero = y.zero;
    s.f.e4m3 = y.e4m3;
    return s;
}

VF_FN int coded_bits(const struct coded_way y)
{
    return y.e4m3 ? QR_CODED_E4M3 : y.bits;
}

/* Weights have offsets. */
VF_FN bool coded_adds(const struct coded_way y)
{
    return y.offset || y.zero;
}

/* Tiles whose sums, 0 and 1, are columns: 16 outputs by the rows of x. The others take turns, as a tile is not loaded before the products that read it are
 * done: x is 4 and 5, weights are 6 and 7, then 2 and 3. */
void qr_amx_configure_transposed(int32_t n_rows)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        const bool weights = t >= 6 || t == 2 || t == 3;
        c.row_bytes[t] = (uint16_t)(weights ? QR_TILE_ROW_BYTES : n_rows * (int32_t)sizeof(float));
        c.rows[t] = QR_TILE_ROWS;
    }
    qr_tile_configure(&c);
}

void qr_amx_configure_below(int32_t n_tiles, int32_t last_rows)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = QR_TILE_ROW_BYTES;
        c.rows[t] = (uint8_t)(t == n_tiles - 1 || t == 5 ? last_rows : QR_TILE_ROWS);
    }
    qr_tile_configure(&c);
}

VF_FN struct coded_levels coded_block_levels(const struct coded_way y, const uint8_t *panel)
{
    return coded_levels_of(coded_bits(y), coded_adds(y), panel);
}

/* Steps that products are behind unpacking: what is loaded before it has left the store buffer is waited for. Where each step computes tables of weights
 * one is enough. */
VF_FN int32_t coded_behind(const struct coded_way y)
{
    return coded_bits(y) == 4 && y.group > QR_TILE_K ? 2 : 1;
}

/* Where the tiles of nt panels at `step` wait: side by side, as a load that has the lower twelve bits of a store's address waits for it. */
VF_FN char *coded_room(const struct coded_way y, const struct coded_block *b, int nt, int32_t step)
{
    return b->room + step % (2 * coded_behind(y)) * nt * QR_TILE_BYTES;
}

/* The tile of panel i of nt at `step`. */
VF_FN void coded_unpack_tile(const struct coded_way y, const struct coded_block *b, const struct coded_levels *levels, struct coded_tables *tables, int i,
                             int nt, int32_t step)
{
    const int64_t ahead = step < b->skip_step ? b->ahead : b->ahead + b->skip;
    const int32_t k = step * QR_TILE_K;
    const struct qr_coded_shape s = coded_shape(y);
    uint8_t *dst = (uint8_t *)coded_room(y, b, nt, step) + i * QR_TILE_BYTES;
    if (coded_bits_left(coded_bits(y)))
        coded_rows_of_outputs(coded_bits(y), coded_adds(y), dst, tables, &s, b->panel[i], levels, k, b->n_steps * QR_TILE_K, ahead);
    else
        coded_unpack_32(coded_bits(y), dst, &s, b->panel[i], k, ahead);
}

/* The tiles of nt panels, of the first and the last step, by a function of their own: unpacking is most of a block's code. */
typedef void coded_unpack_fn(const struct coded_block *b, struct coded_tables *tables, int nt, int32_t step);

VF_FN void coded_unpack_apart(const struct coded_way y, const struct coded_block *b, struct coded_tables *tables, int nt, int32_t step)
{
    for (int i = 0; i < nt; i++) {
        const struct coded_levels levels = coded_block_levels(y, b->panel[i]);
        coded_unpack_tile(y, b, &levels, &tables[i], i, nt, step);
    }
}

/* Sanitizers take a second over each copy of it, so with them there is only that one. */
VF_FN void coded_unpack_step(const struct coded_way y, coded_unpack_fn *apart, const struct coded_block *b, const struct coded_levels *levels,
                             struct coded_tables *tables, int32_t step)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    apart(b, tables, y.nt, step);
#else
    for (int i = 0; i < y.nt; i++)
        coded_unpack_tile(y, b, &levels[i], &tables[i], i, y.nt, step);
#endif
}

#define CODED_LEFT(rows, first, second)                                                 \
    do {                                                                                \
        qr_tile_load(rows, b->x[0] + step * b->x_step[0], b->n_rows * (int64_t)sizeof(float)); \
        qr_tile_load(first, w, QR_TILE_ROW_BYTES);                                      \
        qr_tile_dp(0, first, rows);                                                     \
        if (y.nt > 1) {                                                                 \
            qr_tile_load(second, w + QR_TILE_BYTES, QR_TILE_ROW_BYTES);                 \
            qr_tile_dp(1, second, rows);                                                \
        }                                                                               \
    } while (0)

/* Sums of row tile `sum`. Rows that share lines, as less than 16 do, are loaded sooner from L1. */
#define CODED_BELOW(sum, rows, weights)                                                            \
    do {                                                                                           \
        const char *x = b->x[sum] + step * b->x_step[sum];                                         \
        if (b->x_step[sum] == QR_TILE_BYTES)                                                       \
            qr_tile_load_past(rows, x, QR_TILE_ROW_BYTES);                                         \
        else                                                                                       \
            qr_tile_load(rows, x, b->x_step[sum] / QR_TILE_ROWS);                                  \
        qr_tile_dp(sum, weights, rows);                                                            \
    } while (0)

#define CODED_PAIR(weights, rows0, rows1)                \
    do {                                                 \
        qr_tile_load(weights, w, QR_TILE_ROW_BYTES);     \
        CODED_BELOW(0, rows0, weights);                  \
        CODED_BELOW(1, rows1, weights);                  \
    } while (0)

#define CODED_TILES(weights)                              \
    do {                                                 \
        CODED_PAIR(weights, 4, 5);                       \
        if (b->n_tiles > 2)                              \
            CODED_BELOW(2, 4, weights);                  \
        if (b->n_tiles > 3)                              \
            CODED_BELOW(3, 5, weights);                  \
    } while (0)

/* The same of weights that are the right operand: tile 5 has as many rows as the last row tile. */
#define CODED_RIGHT(sum, rows, weights)                                                            \
    do {                                                                                           \
        qr_tile_load_past(rows, b->x[sum] + step * b->x_step[sum], QR_TILE_ROW_BYTES);             \
        qr_tile_dp(sum, rows, weights);                                                            \
    } while (0)

#define CODED_RIGHT_TILES(weights)                        \
    do {                                                 \
        qr_tile_load(weights, w, QR_TILE_ROW_BYTES);     \
        CODED_RIGHT(0, 4, weights);                      \
        if (b->n_tiles == 2) {                           \
            CODED_RIGHT(1, 5, weights);                  \
        } else if (b->n_tiles == 3) {                    \
            CODED_RIGHT(1, 3, weights);                  \
            CODED_RIGHT(2, 5, weights);                  \
        } else {                                         \
            CODED_RIGHT(1, 4, weights);                  \
            CODED_RIGHT(2, 4, weights);                  \
            CODED_RIGHT(3, 5, weights);                  \
        }                                                \
    } while (0)

VF_FN void coded_multiply_step(const struct coded_way y, const struct coded_block *b, int32_t step, const bool odd)
{
    const char *w = coded_room(y, b, y.nt, step);
    if (y.tiles && !coded_bits_left(coded_bits(y))) {
        if (odd)
            CODED_RIGHT_TILES(7);
        else
            CODED_RIGHT_TILES(6);
        finish_now_and_then(b->leaving);
        return;
    }
    if (y.tiles) {
        if (odd && b->n_tiles == 2)
            CODED_PAIR(7, 2, 3);
        else if (odd)
            CODED_TILES(7);
        else
            CODED_TILES(6);
        finish_now_and_then(b->leaving);
        return;
    }
    if (coded_bits_left(coded_bits(y))) {
        if (odd)
            CODED_LEFT(5, 2, 3);
        else
            CODED_LEFT(4, 6, 7);
        return;
    }
    qr_tile_load(4, b->x[0] + step * b->x_step[0], QR_TILE_ROW_BYTES);
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

/* Columns of a tile of sums to n rows, 64 bytes apart. */
static void coded_transpose_sums(char *tile, int32_t n)
{
    float *sums = (float *)(void *)tile;
    vf v[QR_TILE_ROWS] QR_UNINITIALIZED;
    for (int32_t r = 0; r < QR_TILE_ROWS; r++)
        v[r] = vf_load(sums + r * QR_PANEL);
    vf_transpose(v);
    for (int32_t r = 0; r < n; r++)
        vf_store(sums + r * QR_PANEL, v[r]);
}

VF_FN void coded_block_of(const struct coded_way y, coded_unpack_fn *apart, const struct coded_block *block)
{
    struct coded_levels levels[PANELS_MAX] QR_UNINITIALIZED;
    struct coded_tables tables[PANELS_MAX] QR_UNINITIALIZED;
    const struct coded_block own = *block, *b = &own; /* which what is stored to cannot be */
    const struct qr_coded_shape s = coded_shape(y);
    const bool left = coded_bits_left(coded_bits(y)), column = left && !y.tiles && b->n_rows == 1; /* of one row, which is a row already */
    const struct sums to = {b->sums, column ? (int64_t)sizeof(float) : QR_TILE_ROW_BYTES, y.tiles ? b->below : QR_TILE_BYTES, 0};
    const int32_t n_sums = y.tiles ? b->n_tiles : y.nt;
    QR_ASSERT(block->shape->block_bytes == s.block_bytes && block->shape->codes_at == s.codes_at && block->shape->group_shift == s.group_shift);
    for (int i = 0; i < y.nt; i++) {
        levels[i] = coded_block_levels(y, b->panel[i]);
        if (left)
            coded_start(coded_bits(y), coded_adds(y), &tables[i], &s, b->panel[i], &levels[i], 0, b->n_steps * QR_TILE_K);
    }
    zero_sums();
    const int32_t behind = coded_behind(y);
    int32_t made = 0, pair = 0; /* steps that are unpacked; those that are multiplied, in twos: so the compiler knows their lowest bits */
    for (; made < behind && made < b->n_steps; made++)
        apart(block, tables, y.nt, made);
    for (; 2 * pair + 1 + behind < b->n_steps; pair++) {
        coded_unpack_step(y, apart, b, levels, tables, 2 * pair + behind);
        coded_multiply_step(y, b, 2 * pair, false);
        coded_unpack_step(y, apart, b, levels, tables, 2 * pair + 1 + behind);
        coded_multiply_step(y, b, 2 * pair + 1, true);
    }
    made += 2 * pair;
    for (int32_t step = 2 * pair; step < b->n_steps; step++) {
        if (made < b->n_steps)
            apart(block, tables, y.nt, made++);
        if (step % 2 == 0)
            coded_multiply_step(y, b, step, false);
        else
            coded_multiply_step(y, b, step, true);
    }
    EACH_SUM(qr_tile_store, to, n_sums);
    for (int32_t i = 0; i < n_sums && left && !column; i++)
        coded_transpose_sums(to.at + i * to.panel, y.tiles ? (int32_t)(b->x_step[i] / QR_TILE_ROW_BYTES) : b->n_rows);
}

typedef void coded_block_fn(const struct coded_block *b);
#define CODED_BLOCK(name, apart, panels, several, ...)                                                                                        \
    static void name(const struct coded_block *b)                                                                                      \
    {                                                                                                                                  \
        coded_block_of((struct coded_way){.nt = panels, .tiles = several, __VA_ARGS__}, apart, b);                                             \
    }
#define CODED_APART(name, ...)                                                                                                         \
    static __attribute__((noinline)) void name(const struct coded_block *b, struct coded_tables *tables, int nt, int32_t step)         \
    {                                                                                                                                  \
        coded_unpack_apart((struct coded_way){.nt = 1, __VA_ARGS__}, b, tables, nt, step);                              \
    }
/* One panel, two, several row tiles, and with 6 and 8 bits four panels. */
#define CODED_BLOCKS_LEFT(type, ...)                                         \
    CODED_APART(apart_##type, __VA_ARGS__)                                   \
    CODED_BLOCK(one_##type, apart_##type, 1, false, __VA_ARGS__)             \
    CODED_BLOCK(two_##type, apart_##type, 2, false, __VA_ARGS__)             \
    CODED_BLOCK(more_##type, apart_##type, 1, true, __VA_ARGS__)
#define CODED_BLOCKS_RIGHT(type, ...)                                        \
    CODED_APART(apart_##type, __VA_ARGS__)                                   \
    CODED_BLOCK(one_##type, apart_##type, 1, false, __VA_ARGS__)             \
    CODED_BLOCK(two_##type, apart_##type, 2, false, __VA_ARGS__)             \
    CODED_BLOCK(more_##type, apart_##type, PANELS_MAX, false, __VA_ARGS__)   \
    CODED_BLOCK(below_##type, apart_##type, 1, true, __VA_ARGS__)
#define CODED_TYPES_LEFT(DO)                                                 \
    DO(QR_C2_G16_SO, .bits = 2, .group = 16, .steps = true, .offset = true)  \
    DO(QR_C3_G16_S, .bits = 3, .group = 16, .steps = true)                   \
    DO(QR_C4_G32, .bits = 4, .group = 32)                                    \
    DO(QR_C4_G64, .bits = 4, .group = 64)                                    \
    DO(QR_C4_G128, .bits = 4, .group = 128)                                  \
    DO(QR_C4_G32_Z, .bits = 4, .group = 32, .zero = true)                    \
    DO(QR_C4_G64_Z, .bits = 4, .group = 64, .zero = true)                    \
    DO(QR_C4_G128_Z, .bits = 4, .group = 128, .zero = true)                  \
    DO(QR_C4_G32_O, .bits = 4, .group = 32, .offset = true)                  \
    DO(QR_C4_G32_S, .bits = 4, .group = 32, .steps = true)                   \
    DO(QR_C4_G32_SO, .bits = 4, .group = 32, .steps = true, .offset = true)  \
    DO(QR_C5_G32, .bits = 5, .group = 32)                                    \
    DO(QR_C5_G32_O, .bits = 5, .group = 32, .offset = true)                  \
    DO(QR_C5_G32_SO, .bits = 5, .group = 32, .steps = true, .offset = true)  \
    DO(QR_C8_E4M3, .bits = 8, .group = 128, .e4m3 = true)
#define CODED_TYPES_RIGHT(DO)                                                \
    DO(QR_C6_G16_S, .bits = 6, .group = 16, .steps = true)                   \
    DO(QR_C8_G32, .bits = 8, .group = 32)
CODED_TYPES_LEFT(CODED_BLOCKS_LEFT)
CODED_TYPES_RIGHT(CODED_BLOCKS_RIGHT)

void qr_amx_coded_block(int32_t nt, const struct coded_block *b)
{
#define CODED_ENTRY(type, ...) [type] = {one_##type, two_##type, more_##type},
#define CODED_ENTRY_RIGHT(type, ...) [type] = {one_##type, two_##type, more_##type, below_##type},
    static coded_block_fn *const blocks[QR_DTYPE_COUNT][4] = {CODED_TYPES_LEFT(CODED_ENTRY) CODED_TYPES_RIGHT(CODED_ENTRY_RIGHT)};
#undef CODED_ENTRY
#undef CODED_ENTRY_RIGHT
    QR_ASSERT(nt == 1 || nt == 2 || (nt == PANELS_MAX && !coded_is_left(b->shape)));
    QR_ASSERT(b->n_tiles == 1 || (b->n_tiles <= CODED_TILES_MAX && nt == 1));
    const int32_t way = b->n_tiles == 1 ? nt / 2 : coded_is_left(b->shape) ? 2 : 3;
    QR_ASSERT(qr_dtype_is_coded(b->type) && blocks[b->type][0] != NULL);
    blocks[b->type][way](b);
}
