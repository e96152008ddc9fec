/* quant.c - products with int8 and int4 weights on the tile registers (isa/quant.h: layout and contract; isa/quant.c drives).
 *
 * tdpbsud multiplies signed bytes of x by unsigned bytes w + 128, which leaves 128 * the sum of x in every sum. Exact, so a few rows may
 * go through vpdpbusd instead and give the same bits. */
#include "base/assert.h"
#include "kernels/cpu/amx/quant.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/quant.h"

#define C_BYTES (QR_QUANT_PANELS * QR_PANEL * 4)
#define FEW_ROWS 4

#define tile_dp_signed_unsigned(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

static void begin(void)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = QR_TILE_ROW_BYTES;
        c.rows[t] = QR_TILE_ROWS;
    }
    qr_tile_configure(&c);
}

static void end(void)
{
    qr_tile_release();
}

/* A tile's 16 lines. */
static inline void ask_ahead(const uint8_t *w)
{
    for (int i = 0; i < QR_TILE_BYTES; i += 64)
        __builtin_prefetch(w + QR_QUANT_AHEAD + i, 0, 2);
}

/* 16 rows, one or two panels. */
static inline __attribute__((always_inline)) void block_1(const int n_panels, const struct qr_quant_args *b)
{
    const int8_t *x = b->x;
    const uint8_t *w = b->w;
    qr_tile_zero(0);
    qr_tile_zero(1);
    for (int32_t k = 0; k < b->n_k; k += QR_QUANT_K, x += QR_TILE_ROW_BYTES, w += QR_TILE_BYTES) {
        qr_tile_load(4, x, b->x_stride);
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);
        tile_dp_signed_unsigned(0, 4, 6);
        if (n_panels > 1) {
            qr_tile_load(7, w + b->w_panel, QR_TILE_ROW_BYTES);
            tile_dp_signed_unsigned(1, 4, 7);
            ask_ahead(w + b->w_panel);
        }
        ask_ahead(w);
    }
    qr_tile_store(0, b->c, C_BYTES);
    if (n_panels > 1)
        qr_tile_store(1, b->c + QR_PANEL, C_BYTES);
}

/* 32 rows, one or two panels. */
static inline __attribute__((always_inline)) void block_2(const int n_panels, const struct qr_quant_args *b)
{
    const int8_t *x = b->x, *below = b->x + QR_TILE_ROWS * b->x_stride;
    const uint8_t *w = b->w;
    int32_t *c = b->c, *c_below = c + QR_TILE_ROWS * QR_QUANT_PANELS * QR_PANEL;
    qr_tile_zero(0);
    qr_tile_zero(1);
    qr_tile_zero(2);
    qr_tile_zero(3);
    for (int32_t k = 0; k < b->n_k; k += QR_QUANT_K, x += QR_TILE_ROW_BYTES, below += QR_TILE_ROW_BYTES, w += QR_TILE_BYTES) {
        qr_tile_load(6, w, QR_TILE_ROW_BYTES);
        qr_tile_load(4, x, b->x_stride);
        tile_dp_signed_unsigned(0, 4, 6);
        qr_tile_load(5, below, b->x_stride);
        tile_dp_signed_unsigned(2, 5, 6);
        if (n_panels > 1) {
            qr_tile_load(7, w + b->w_panel, QR_TILE_ROW_BYTES);
            tile_dp_signed_unsigned(1, 4, 7);
            tile_dp_signed_unsigned(3, 5, 7);
        }
    }
    qr_tile_store(0, c, C_BYTES);
    qr_tile_store(2, c_below, C_BYTES);
    if (n_panels > 1) {
        qr_tile_store(1, c + QR_PANEL, C_BYTES);
        qr_tile_store(3, c_below + QR_PANEL, C_BYTES);
    }
}

static void multiply(const struct qr_quant_args *b)
{
    QR_ASSERT(b->n_rows >= 1 && b->n_rows <= QR_QUANT_ROWS && b->n_k % QR_QUANT_K == 0);
    QR_ASSERT(b->n_panels == 1 || b->n_panels == 2);
    if (b->n_rows > QR_TILE_ROWS && b->n_panels > 1)
        block_2(2, b);
    else if (b->n_rows > QR_TILE_ROWS)
        block_2(1, b);
    else if (b->n_panels > 1)
        block_1(2, b);
    else
        block_1(1, b);
}

static const struct qr_quant_block tiles = {.multiply = multiply, .begin = begin, .end = end, .rows_max = QR_QUANT_ROWS,
                                            .panels_max = QR_QUANT_PANELS, .rows_read = QR_QUANT_ROWS, .leaves_offset = true};

void qr_amx_linear_quant(struct qr_queue *q, const struct qr_linear_args *a)
{
    const struct qr_quant_ways *vectors = qr_avx512_quant_ways();
    QR_ASSERT(a != NULL);
    QR_ASSERT(vectors != NULL); /* every processor with tiles has AVX512-VNNI */
    struct qr_quant_ways ways = *vectors;
    ways.few_rows = FEW_ROWS;
    ways.many = &tiles;
    qr_avx512_linear_quant(q, a, &ways);
}
