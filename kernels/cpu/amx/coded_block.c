/* coded_block.c - the blocks of coded_block.h, one for each kind of weights and number of panels. */
#include "kernels/cpu/amx/coded_block.h"

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/cpu/amx/coded_table.h"
#include "kernels/cpu/amx/quant.h"

/* What is known when compiling. */
struct coded_way {
    int bits, nt;      /* panels */
    bool offset;       /* weights have offsets */
    bool half, many;   /* with 4 bits or less: groups are half a tile long; with 5 or less, and E4M3: several row tiles, one panel */
};

/* Tiles whose sums, 0 and 1, are columns: 16 outputs by the rows of x. The others take turns, as a tile is not loaded before the products that read it are
 * done: x is 4 and 5, weights are 6 and 7, then 2 and 3. */
void qr_amx_configure_turned(int32_t n_rows)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        const bool weights = t >= 6 || t == 2 || t == 3;
        c.row_bytes[t] = (uint16_t)(weights ? QR_TILE_ROW_BYTES : n_rows * (int32_t)sizeof(float));
        c.rows[t] = QR_TILE_ROWS;
    }
    qr_tile_configure(&c);
}

VF_FN struct coded_levels coded_block_levels(const struct coded_way y, const uint8_t *panel)
{
    return coded_bits_left(y.bits) ? coded_table_levels(y.bits, y.offset, panel) : coded_levels_of(y.bits, panel);
}

/* Where the tiles of nt panels at `step` wait: side by side, as a load that has the lower twelve bits of a store's address waits for it. */
VF_FN char *coded_room(const struct coded_block *b, int nt, int32_t step)
{
    return b->room + step % 2 * nt * QR_TILE_BYTES;
}

/* The tile of panel i of nt at `step`. */
VF_FN void coded_unpack_tile(const struct coded_way y, const struct coded_block *b, const struct coded_levels *levels, struct coded_tables *tables, int i,
                             int nt, int32_t step)
{
    const int64_t ahead = step < b->skip_step ? b->ahead : b->ahead + b->skip;
    const int32_t k = step * QR_TILE_K;
    uint8_t *dst = (uint8_t *)coded_room(b, nt, step) + i * QR_TILE_BYTES;
    if (coded_bits_left(y.bits))
        coded_rows_of_outputs(y.bits, y.half, y.offset, dst, tables, b->shape, b->panel[i], levels, k, b->n_steps * QR_TILE_K, ahead);
    else
        coded_unpack_32(y.bits, y.offset, dst, b->shape, b->panel[i], k, levels, ahead);
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

/* Sums of row tile `sum`. Rows that share lines, as less than 16 do, are loaded sooner from the first-level cache. */
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

#define CODED_MANY(weights)                              \
    do {                                                 \
        CODED_PAIR(weights, 4, 5);                       \
        if (b->n_tiles > 2)                              \
            CODED_BELOW(2, 4, weights);                  \
        if (b->n_tiles > 3)                              \
            CODED_BELOW(3, 5, weights);                  \
    } while (0)

VF_FN void coded_multiply_step(const struct coded_way y, const struct coded_block *b, int32_t step, const bool odd)
{
    const char *w = coded_room(b, y.nt, step);
    if (y.many) {
        if (odd && b->n_tiles == 2)
            CODED_PAIR(7, 2, 3);
        else if (odd)
            CODED_MANY(7);
        else
            CODED_MANY(6);
        finish_now_and_then(b->leaving);
        return;
    }
    if (coded_bits_left(y.bits)) {
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
static void coded_turn_sums(char *tile, int32_t n)
{
    float *sums = (float *)(void *)tile;
    vf v[QR_TILE_ROWS] QR_UNINITIALIZED;
    for (int32_t r = 0; r < QR_TILE_ROWS; r++)
        v[r] = vf_load(sums + r * QR_PANEL);
    vf_transpose(v);
    for (int32_t r = 0; r < n; r++)
        vf_store(sums + r * QR_PANEL, v[r]);
}

VF_FN void coded_block_of(const struct coded_way y, coded_unpack_fn *apart, const struct coded_block *b)
{
    struct coded_levels levels[PANELS_MAX] QR_UNINITIALIZED;
    struct coded_tables tables[PANELS_MAX] QR_UNINITIALIZED;
    const bool column = coded_bits_left(y.bits) && !y.many && b->n_rows == 1; /* of one row, which is a row already */
    const struct sums to = {b->sums, column ? (int64_t)sizeof(float) : QR_TILE_ROW_BYTES, y.many ? b->below : QR_TILE_BYTES, 0};
    const int32_t n_sums = y.many ? b->n_tiles : y.nt;
    for (int i = 0; i < y.nt; i++) {
        levels[i] = coded_block_levels(y, b->panel[i]);
        if (coded_bits_left(y.bits))
            coded_start(y.bits, y.half, y.offset, &tables[i], b->shape, b->panel[i], &levels[i], 0, b->n_steps * QR_TILE_K);
    }
    zero_sums();
    apart(b, tables, y.nt, 0);
    int32_t step = 1;
    for (; step + 1 < b->n_steps; step += 2) {
        coded_unpack_step(y, apart, b, levels, tables, step);
        coded_multiply_step(y, b, step - 1, false);
        coded_unpack_step(y, apart, b, levels, tables, step + 1);
        coded_multiply_step(y, b, step, true);
    }
    if (step < b->n_steps) {
        apart(b, tables, y.nt, step);
        coded_multiply_step(y, b, step - 1, false);
        step++;
    }
    coded_multiply_step(y, b, step - 1, step % 2 == 0);
    EACH_SUM(qr_tile_store, to, n_sums);
    for (int32_t i = 0; i < n_sums && coded_bits_left(y.bits) && !column; i++)
        coded_turn_sums(to.at + i * to.panel, y.many ? (int32_t)(b->x_step[i] / QR_TILE_ROW_BYTES) : b->n_rows);
}

typedef void coded_block_fn(const struct coded_block *b);
#define CODED_BLOCK(name, apart, ...)                                   \
    static void name(const struct coded_block *b)                       \
    {                                                                   \
        coded_block_of((struct coded_way){__VA_ARGS__}, apart, b);      \
    }
#define CODED_APART(name, ...)                                                                                                         \
    static __attribute__((noinline)) void name(const struct coded_block *b, struct coded_tables *tables, int nt, int32_t step)         \
    {                                                                                                                                  \
        coded_unpack_apart((struct coded_way){__VA_ARGS__}, b, tables, nt, step);                                                      \
    }
#define CODED_BLOCKS_LEFT(name, bits, half, offset)                         \
    CODED_APART(name##_apart, bits, 1, offset, half, false)                 \
    CODED_BLOCK(name##_1, name##_apart, bits, 1, offset, half, false)       \
    CODED_BLOCK(name##_2, name##_apart, bits, 2, offset, half, false)       \
    CODED_BLOCK(name##_many, name##_apart, bits, 1, offset, half, true)
#define CODED_BLOCKS(name, bits, offset)                                    \
    CODED_APART(name##_apart, bits, 1, offset, false, false)                \
    CODED_BLOCK(name##_1, name##_apart, bits, 1, offset, false, false)      \
    CODED_BLOCK(name##_2, name##_apart, bits, 2, offset, false, false)      \
    CODED_BLOCK(name##_4, name##_apart, bits, 4, offset, false, false)
CODED_BLOCKS_LEFT(coded_4, 4, false, false)
CODED_BLOCKS_LEFT(coded_4_offset, 4, false, true)
CODED_BLOCKS_LEFT(coded_4_half, 4, true, false)
CODED_BLOCKS_LEFT(coded_4_half_offset, 4, true, true)
CODED_BLOCKS_LEFT(coded_5, 5, false, false)
CODED_BLOCKS_LEFT(coded_5_offset, 5, false, true)
CODED_BLOCKS_LEFT(coded_e4m3, QR_CODED_E4M3, false, false)
CODED_BLOCKS_LEFT(coded_2_offset, 2, true, true)
CODED_BLOCKS_LEFT(coded_3, 3, true, false)
CODED_BLOCKS_LEFT(coded_3_offset, 3, true, true)
CODED_BLOCKS(coded_6, 6, false)
CODED_BLOCKS(coded_6_offset, 6, true)
CODED_BLOCKS(coded_8, 8, false)
CODED_BLOCKS(coded_8_offset, 8, true)

void qr_amx_coded_block(int32_t nt, const struct coded_block *b)
{
    static coded_block_fn *const blocks[][3] = {
        {coded_4_1, coded_4_2, coded_4_many},
        {coded_4_offset_1, coded_4_offset_2, coded_4_offset_many},
        {coded_4_half_1, coded_4_half_2, coded_4_half_many},
        {coded_4_half_offset_1, coded_4_half_offset_2, coded_4_half_offset_many},
        {coded_5_1, coded_5_2, coded_5_many},
        {coded_5_offset_1, coded_5_offset_2, coded_5_offset_many},
        {coded_6_1, coded_6_2, coded_6_4},
        {coded_6_offset_1, coded_6_offset_2, coded_6_offset_4},
        {coded_8_1, coded_8_2, coded_8_4},
        {coded_8_offset_1, coded_8_offset_2, coded_8_offset_4},
        {coded_e4m3_1, coded_e4m3_2, coded_e4m3_many},
        {NULL}, /* 2 bits without offsets */
        {coded_2_offset_1, coded_2_offset_2, coded_2_offset_many},
        {coded_3_1, coded_3_2, coded_3_many},
        {coded_3_offset_1, coded_3_offset_2, coded_3_offset_many},
    };
    static const int8_t first[] = {[2] = 11, [3] = 13, [4] = 0, [5] = 4, [6] = 6, [8] = 8, [QR_CODED_E4M3] = 10};
    const struct qr_coded_shape *s = b->shape;
    QR_ASSERT(nt == 1 || nt == 2 || (nt == PANELS_MAX && !coded_is_left(s)));
    QR_ASSERT(b->n_tiles == 1 || (b->n_tiles <= CODED_TILES_MAX && nt == 1 && coded_is_left(s)));
    blocks[first[s->f.e4m3 ? QR_CODED_E4M3 : s->f.bits] + (s->f.bits == 4 ? 2 * coded_is_half(s) : 0) + coded_has_offset(s)][b->n_tiles > 1 ? 2 : nt / 2](b);
}
