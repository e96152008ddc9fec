/* back_linear.c - dx += dy w and dw += dy^T x with bf16 products on the tile registers.
 *
 * Both are C += A B: C is dx or dw where it lies, so sums never wait anywhere and the chain goes on from the old value. One side becomes tiles for the
 * whole launch, in shared scratch, the other strip by strip in the worker's own:
 *     dx   A = dy (rows of 32 o), shared        B = w (pairs of o, 16 columns), a strip of 32 columns and a slice of o
 *     dw   B = x (pairs of n, 16 columns), shared   A = dy^T (32 rows o of 32 n), a strip of 32 rows
 * Four tiles of C at a time. Groups of 32 links of the chain are what one tile instruction adds (tile.h); where they begin depends on the shape of a row or on
 * the first row of the call, never on the cut. Columns beyond the last whole panel go through a tile in the worker's scratch. */
#include "base/assert.h"
#include "kernels/cpu/amx/tile.h"
#include "kernels/cpu/isa/back.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define SLICE 24             /* tiles of a strip in a slice of o: 2 panels of them are 48 KiB */
#define COLS 16              /* of a tile of C */

/* C[0..n_rows)[0..n_cols) += A B for n_rows, n_cols <= 32. */
struct corner {
    float *c;
    int64_t c_stride;
    const char *a[2], *b[2]; /* first tile of each row tile and panel; the next is QR_TILE_BYTES further */
    int32_t n_rows, n_cols, n_steps;
    float *spare;            /* [16][16] */
};

static void configure(int32_t rows0, int32_t rows1)
{
    struct qr_tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = QR_TILE_ROW_BYTES;
        c.rows[t] = (uint8_t)(t >= 6 ? QR_TILE_ROWS : t == 2 || t == 3 || t == 5 ? rows1 : rows0);
    }
    qr_tile_configure(&c);
}

/* 32 whole columns, two row tiles. */
static void corner_four(const struct corner *k)
{
    const int64_t below = k->c_stride * (int64_t)sizeof(float);
    char *c0 = (char *)k->c, *c1 = (char *)(k->c + QR_TILE_ROWS * k->c_stride);
    const char *a0 = k->a[0], *a1 = k->a[1], *b0 = k->b[0], *b1 = k->b[1];
    qr_tile_load(0, c0, below);
    qr_tile_load(1, c0 + 64, below);
    qr_tile_load(2, c1, below);
    qr_tile_load(3, c1 + 64, below);
    for (int32_t s = 0; s < k->n_steps; s++, a0 += QR_TILE_BYTES, a1 += QR_TILE_BYTES, b0 += QR_TILE_BYTES, b1 += QR_TILE_BYTES) {
        qr_tile_load(4, a0, 64);
        qr_tile_load(6, b0, 64);
        qr_tile_dp(0, 4, 6);
        qr_tile_load(7, b1, 64);
        qr_tile_dp(1, 4, 7);
        qr_tile_load(5, a1, 64);
        qr_tile_dp(2, 5, 6);
        qr_tile_dp(3, 5, 7);
    }
    qr_tile_store(0, c0, below);
    qr_tile_store(1, c0 + 64, below);
    qr_tile_store(2, c1, below);
    qr_tile_store(3, c1 + 64, below);
}

/* One tile of C, n_cols <= 16; second: it belongs to the second row tile. */
static void corner_one(const struct corner *k, bool second, int32_t panel, int32_t n_rows, int32_t n_cols)
{
    float *c = k->c + (second ? QR_TILE_ROWS * k->c_stride : 0) + panel * COLS, *at = n_cols < COLS ? k->spare : c;
    const int64_t below = (n_cols < COLS ? COLS : k->c_stride) * (int64_t)sizeof(float);
    const char *a = k->a[second], *b = k->b[panel];
    for (int32_t r = 0; n_cols < COLS && r < n_rows; r++)
        vf_store(at + r * COLS, vf_load_n(c + r * k->c_stride, n_cols));
    if (second)
        qr_tile_load(2, at, below);
    else
        qr_tile_load(0, at, below);
    for (int32_t s = 0; s < k->n_steps; s++, a += QR_TILE_BYTES, b += QR_TILE_BYTES) {
        qr_tile_load(6, b, 64);
        if (second) {
            qr_tile_load(5, a, 64);
            qr_tile_dp(2, 5, 6);
        } else {
            qr_tile_load(4, a, 64);
            qr_tile_dp(0, 4, 6);
        }
    }
    if (second)
        qr_tile_store(2, at, below);
    else
        qr_tile_store(0, at, below);
    for (int32_t r = 0; n_cols < COLS && r < n_rows; r++)
        vf_store_n(c + r * k->c_stride, vf_load(at + r * COLS), n_cols);
}

static void corner_run(const struct corner *k)
{
    const int32_t rows1 = k->n_rows - QR_TILE_ROWS;
    if (rows1 > 0 && k->n_cols == 2 * COLS) {
        corner_four(k);
        return;
    }
    for (int32_t panel = 0; panel * COLS < k->n_cols; panel++) {
        const int32_t n_cols = k->n_cols - panel * COLS < COLS ? k->n_cols - panel * COLS : COLS;
        corner_one(k, false, panel, k->n_rows < QR_TILE_ROWS ? k->n_rows : QR_TILE_ROWS, n_cols);
        if (rows1 > 0)
            corner_one(k, true, panel, rows1, n_cols);
    }
}

/* How many rows each of two row tiles has. */
static void configure_rows(int32_t n_rows)
{
    const int32_t rows1 = n_rows - QR_TILE_ROWS;
    configure(n_rows < QR_TILE_ROWS ? n_rows : QR_TILE_ROWS, rows1 > 0 ? rows1 : 1);
}

/* A line of a tile: 32 numbers of which n are there. */
static void line_of_f32(char *dst, const float *x, int64_t n)
{
    vf low = n > 0 ? vf_load_n(x, vf_min_len(n)) : vf_zero(), high = n > VF_LEN ? vf_load_n(x + VF_LEN, vf_min_len(n - VF_LEN)) : vf_zero();
    _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Numbers of two rows side by side: 16 pairs, of which n are there. */
static void line_of_pairs(char *dst, __m256i first, __m256i second)
{
    const __m512i lo = _mm512_cvtepu16_epi32(first), hi = _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16);
    _mm512_storeu_si512(dst, _mm512_or_si512(lo, hi));
}

static __m256i half_line(const uint16_t *row, int64_t n)
{
    return _mm256_maskz_loadu_epi16(vf_mask(n), row);
}

static __m256i rounded_line(const float *row, int64_t n)
{
    return (__m256i)_mm512_cvtneps_pbh(vf_load_n(row, n));
}

/* ---- dx ---- */

struct dx_job {
    const struct qr_linear_dx_args *a;
    struct qr_queue *q;
    char *tiles;             /* dy's, [row tile][step] */
    int32_t row0, n_rows, n_steps;
};

static void dy_tile(const void *arg, int32_t t, int32_t worker)
{
    (void)worker;
    const struct dx_job *j = arg;
    const struct qr_linear_dx_args *a = j->a;
    const int32_t first = t * QR_TILE_ROWS, n = j->n_rows - first < QR_TILE_ROWS ? j->n_rows - first : QR_TILE_ROWS;
    char *tile = j->tiles + (int64_t)t * j->n_steps * QR_TILE_BYTES;
    for (int32_t s = 0; s < j->n_steps; s++)
        for (int32_t r = 0; r < n; r++)
            line_of_f32(tile + (int64_t)s * QR_TILE_BYTES + r * QR_TILE_ROW_BYTES, a->dy + (j->row0 + first + r) * a->dy_stride + s * QR_TILE_K,
                        a->n_out - s * QR_TILE_K < QR_TILE_K ? a->n_out - s * QR_TILE_K : QR_TILE_K);
}

/* w's rows [32 s, 32 s + 32), columns [i, i + n) as one tile. */
static void w_tile(char *dst, const struct qr_linear_dx_args *a, int32_t s, int32_t i, int32_t n)
{
    const uint16_t *w = (const uint16_t *)a->w->t.data + i;
    for (int32_t o = 0; o < QR_TILE_K; o += 2) {
        const int64_t at = (int64_t)s * QR_TILE_K + o;
        const __m256i first = at < a->n_out ? half_line(w + at * a->n_in, n) : _mm256_setzero_si256();
        line_of_pairs(dst + o / 2 * QR_TILE_ROW_BYTES, first, at + 1 < a->n_out ? half_line(w + (at + 1) * a->n_in, n) : _mm256_setzero_si256());
    }
}

static void dx_item(const void *arg, int32_t item, int32_t worker)
{
    const struct dx_job *j = arg;
    const struct qr_linear_dx_args *a = j->a;
    char *strip = qr_queue_own(j->q, worker);
    const int32_t i = item * 2 * COLS, n_cols = a->n_in - i < 2 * COLS ? a->n_in - i : 2 * COLS;
    int32_t configured = 0;
    for (int32_t s = 0; s < j->n_steps; s += SLICE) {
        const int32_t n = j->n_steps - s < SLICE ? j->n_steps - s : SLICE;
        for (int32_t panel = 0; panel * COLS < n_cols; panel++)
            for (int32_t k = 0; k < n; k++)
                w_tile(strip + (int64_t)(panel * SLICE + k) * QR_TILE_BYTES, a, s + k, i + panel * COLS,
                       n_cols - panel * COLS < COLS ? n_cols - panel * COLS : COLS);
        for (int32_t row = 0; row < j->n_rows; row += 2 * QR_TILE_ROWS) {
            const char *dy = j->tiles + ((int64_t)(row / QR_TILE_ROWS) * j->n_steps + s) * QR_TILE_BYTES;
            const struct corner c = {.c = a->dx + (j->row0 + row) * a->dx_stride + i, .c_stride = a->dx_stride,
                                     .a = {dy, dy + (int64_t)j->n_steps * QR_TILE_BYTES}, .b = {strip, strip + SLICE * QR_TILE_BYTES},
                                     .n_rows = j->n_rows - row < 2 * QR_TILE_ROWS ? j->n_rows - row : 2 * QR_TILE_ROWS, .n_cols = n_cols,
                                     .n_steps = n, .spare = (float *)(void *)(strip + 2 * SLICE * QR_TILE_BYTES)};
            if (c.n_rows != configured)
                configure_rows(c.n_rows);
            configured = c.n_rows;
            corner_run(&c);
        }
    }
    qr_tile_release();
}

void qr_amx_linear_dx(struct qr_queue *q, const struct qr_linear_dx_args *a)
{
    QR_ASSERT(a != NULL && a->dx != NULL && a->dy != NULL);
    QR_ASSERT(a->w != NULL && a->w->t.data != NULL && a->n_in > 0 && a->n_out > 0);
    if (a->w->t.dtype != QR_BF16) {
        qr_avx512_linear_dx(q, a);
        return;
    }
    struct dx_job j = {.a = a, .q = q, .tiles = (char *)q->shared, .n_steps = (a->n_out + QR_TILE_K - 1) / QR_TILE_K};
    const int64_t fit = (int64_t)q->shared_bytes / ((int64_t)j.n_steps * QR_TILE_BYTES) * QR_TILE_ROWS;
    QR_ASSERT(fit >= QR_TILE_ROWS);
    for (; j.row0 < a->n_rows; j.row0 += j.n_rows) {
        j.n_rows = a->n_rows - j.row0 < fit ? a->n_rows - j.row0 : (int32_t)fit;
        qr_queue_run(q, dy_tile, &j, (j.n_rows + QR_TILE_ROWS - 1) / QR_TILE_ROWS);
        qr_queue_run(q, dx_item, &j, (a->n_in + 2 * COLS - 1) / (2 * COLS));
    }
}

/* ---- dw ---- */

struct dw_job {
    const struct qr_linear_dw_args *a;
    struct qr_queue *q;
    char *tiles;             /* x's, [panel][step] */
    int32_t row0, n_rows, n_steps;
};

static void x_panel(const void *arg, int32_t panel, int32_t worker)
{
    (void)worker;
    const struct dw_job *j = arg;
    const struct qr_linear_dw_args *a = j->a;
    const int32_t i = panel * COLS, n = a->n_in - i < COLS ? a->n_in - i : COLS;
    char *dst = j->tiles + (int64_t)panel * j->n_steps * QR_TILE_BYTES;
    for (int32_t r = 0; r < j->n_steps * QR_TILE_K; r += 2, dst += QR_TILE_ROW_BYTES) {
        const float *x = a->x + (j->row0 + r) * a->x_stride + i;
        line_of_pairs(dst, r < j->n_rows ? rounded_line(x, n) : _mm256_setzero_si256(),
                      r + 1 < j->n_rows ? rounded_line(x + a->x_stride, n) : _mm256_setzero_si256());
    }
}

/* dy's columns [o, o + n) of rows [32 s, 32 s + 32) as one tile of n rows. */
static void dy_turned_tile(char *dst, const struct dw_job *j, int32_t o, int32_t n, int32_t s)
{
    const struct qr_linear_dw_args *a = j->a;
    vf low[VF_LEN], high[VF_LEN];
    for (int32_t k = 0; k < VF_LEN; k++) {
        const int32_t r = s * QR_TILE_K + k;
        const float *dy = a->dy + (j->row0 + r) * a->dy_stride + o;
        low[k] = r < j->n_rows ? vf_load_n(dy, n) : vf_zero();
        high[k] = r + VF_LEN < j->n_rows ? vf_load_n(dy + VF_LEN * a->dy_stride, n) : vf_zero();
    }
    vf_transpose(low);
    vf_transpose(high);
    for (int32_t r = 0; r < QR_TILE_ROWS; r++)
        _mm512_storeu_si512(dst + r * QR_TILE_ROW_BYTES, (__m512i)_mm512_cvtne2ps_pbh(high[r], low[r]));
}

/* 32 rows of dw. */
static void dw_item(const void *arg, int32_t item, int32_t worker)
{
    const struct dw_job *j = arg;
    const struct qr_linear_dw_args *a = j->a;
    char *strip = qr_queue_own(j->q, worker);
    const int64_t strip_bytes = (int64_t)j->n_steps * QR_TILE_BYTES;
    const int32_t o = item * 2 * QR_TILE_ROWS, n_rows = a->n_out - o < 2 * QR_TILE_ROWS ? a->n_out - o : 2 * QR_TILE_ROWS;
    for (int32_t t = 0; t * QR_TILE_ROWS < n_rows; t++)
        for (int32_t s = 0; s < j->n_steps; s++)
            dy_turned_tile(strip + t * strip_bytes + (int64_t)s * QR_TILE_BYTES, j, o + t * QR_TILE_ROWS,
                           n_rows - t * QR_TILE_ROWS < QR_TILE_ROWS ? n_rows - t * QR_TILE_ROWS : QR_TILE_ROWS, s);
    configure_rows(n_rows);
    for (int32_t i = 0; i < a->n_in; i += 2 * COLS) {
        const char *x = j->tiles + (int64_t)(i / COLS) * strip_bytes;
        const struct corner c = {.c = a->dw + (int64_t)o * a->n_in + i, .c_stride = a->n_in, .a = {strip, strip + strip_bytes},
                                 .b = {x, x + strip_bytes}, .n_rows = n_rows, .n_cols = a->n_in - i < 2 * COLS ? a->n_in - i : 2 * COLS,
                                 .n_steps = j->n_steps, .spare = (float *)(void *)(strip + 2 * strip_bytes)};
        corner_run(&c);
    }
    qr_tile_release();
    for (int32_t n = 0; a->dbias && n < j->n_rows; n++)
        for (int32_t r = o; r < o + n_rows; r++)
            a->dbias[r] += a->dy[(j->row0 + n) * a->dy_stride + r];
}

void qr_amx_linear_dw(struct qr_queue *q, const struct qr_linear_dw_args *a)
{
    QR_ASSERT(a != NULL && a->dw != NULL && a->dy != NULL && a->x != NULL);
    QR_ASSERT(a->n_in > 0 && a->n_out > 0);
    if (a->product != QR_BF16) {
        qr_avx512_linear_dw(q, a);
        return;
    }
    struct dw_job j = {.a = a, .q = q, .tiles = (char *)q->shared};
    const int64_t n_panels = (a->n_in + COLS - 1) / COLS, own = ((int64_t)q->own_bytes - QR_TILE_BYTES) / (2 * QR_TILE_BYTES);
    const int64_t shared = (int64_t)q->shared_bytes / (n_panels * QR_TILE_BYTES), fit = (own < shared ? own : shared) * QR_TILE_K;
    QR_ASSERT(fit >= QR_TILE_K);
    for (; j.row0 < a->n_rows; j.row0 += j.n_rows) {
        j.n_rows = a->n_rows - j.row0 < fit ? a->n_rows - j.row0 : (int32_t)fit;
        j.n_steps = (j.n_rows + QR_TILE_K - 1) / QR_TILE_K;
        qr_queue_run(q, x_panel, &j, n_panels);
        qr_queue_run(q, dw_item, &j, (a->n_out + 2 * QR_TILE_ROWS - 1) / (2 * QR_TILE_ROWS));
    }
}
