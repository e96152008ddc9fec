/* back_linear.c - dx += dy w and dw += dy^T x with bf16 products on the tile registers.
 *
 * Both are C += A B: C is dx or dw where it lies, so sums never wait anywhere and the chain goes on from the old value. One side becomes tiles for the
 * whole launch, in shared scratch, the other strip by strip in the worker's own:
 *     dx   A = dy (rows of 32 o), shared        B = w (pairs of o, 16 columns), a strip of 32 columns and a slice of o
 *     dw   B = x (pairs of n, 16 columns), shared   A = dy^T (32 rows o of 32 n), a strip of 32 rows
 * Four tiles of C at a time. Groups of 32 links of the chain are what one tile instruction adds (tile.h); where they begin depends on the shape of a row or on
 * the first row of the call, never on the cut. Columns beyond the last whole panel go through a tile in the worker's scratch. */
#include "base/assert.h"
#include "kernels/cpu/amx/block.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define SLICE 24             /* tiles of a panel in a slice of o: 2 panels of them are 48 KiB and stay in L1 */
#define DX_COLS_MAX 256      /* of an item of dx */
#define DX_ROWS_MAX 512      /* at a time: more would send slices of dy past L2 */
#define DX_STRIP_BYTES (2 * SLICE * QR_TILE_BYTES)
#define AHEAD_ROWS 16
#define COLS 16              /* of a tile of C */

/* C[0..n_rows)[0..n_cols) += A B for n_rows, n_cols <= 32. */
struct corner {
    float *c;
    int64_t c_stride;
    const char *a[2], *b[2]; /* first tile of each row tile and panel; the next is QR_TILE_BYTES further */
    int32_t n_rows, n_cols, n_steps;
    float *spare;            /* [32][32] */
    const char *ahead;       /* memory to prefetch meanwhile: a line or two of each of some rows; beyond an array's end is fine */
    int64_t ahead_bytes;     /* from row to row */
    int32_t ahead_rows, ahead_lines;
    bool fresh, stream;      /* C = A B; past the caches */
};

/* Prefetches are spread over the steps, since each line takes its time. */
VF_FN const char *prefetch_rows(const struct corner *k, const char *at, int32_t rows)
{
    for (int32_t r = 0; r < rows; r++, at += k->ahead_bytes) {
        _mm_prefetch(at, _MM_HINT_T1);
        if (k->ahead_lines > 1)
            _mm_prefetch(at + 64, _MM_HINT_T1);
    }
    return at;
}

/* Sums to whole lines of memory that are not read first: by way of scratch, since tiles have no such store. */
static void stream_four(const struct corner *k, char *c)
{
    const char *from = (const char *)k->spare;
    qr_tile_store(0, from, 128);
    qr_tile_store(1, from + 64, 128);
    qr_tile_store(2, from + 16 * 128, 128);
    qr_tile_store(3, from + 16 * 128 + 64, 128);
    for (int32_t r = 0; r < k->n_rows; r++, from += 128, c += k->c_stride * (int64_t)sizeof(float)) {
        _mm512_stream_si512((__m512i *)(void *)c, _mm512_load_si512(from));
        _mm512_stream_si512((__m512i *)(void *)(c + 64), _mm512_load_si512(from + 64));
    }
}

/* 32 whole columns, two row tiles. */
static void corner_four(const struct corner *k)
{
    const int64_t below = k->c_stride * (int64_t)sizeof(float);
    char *c0 = (char *)k->c, *c1 = (char *)(k->c + QR_TILE_ROWS * k->c_stride);
    const char *a0 = k->a[0], *a1 = k->a[1], *b0 = k->b[0], *b1 = k->b[1], *ahead = k->ahead;
    const int32_t ahead_rows = (k->ahead_rows + k->n_steps - 1) / k->n_steps;
    if (k->fresh) {
        zero_sums();
    } else {
        qr_tile_load(0, c0, below);
        qr_tile_load(1, c0 + 64, below);
        qr_tile_load(2, c1, below);
        qr_tile_load(3, c1 + 64, below);
    }
    for (int32_t s = 0; s < k->n_steps; s++, a0 += QR_TILE_BYTES, a1 += QR_TILE_BYTES, b0 += QR_TILE_BYTES, b1 += QR_TILE_BYTES) {
        qr_tile_load_past(4, a0, 64);
        qr_tile_load(6, b0, 64);
        qr_tile_dp(0, 4, 6);
        qr_tile_load(7, b1, 64);
        qr_tile_dp(1, 4, 7);
        qr_tile_load_past(5, a1, 64);
        qr_tile_dp(2, 5, 6);
        qr_tile_dp(3, 5, 7);
        ahead = prefetch_rows(k, ahead, ahead_rows);
    }
    if (k->stream) {
        stream_four(k, c0);
        return;
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
    if (k->fresh) {
        qr_tile_zero(0);
        qr_tile_zero(2);
    } else if (second)
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

static __m256i rounded_line(const float *row, int64_t n)
{
    return (__m256i)_mm512_cvtneps_pbh(vf_load_n(row, n));
}

/* ---- dx ---- */

struct dx_job {
    const struct qr_linear_dx_args *a;
    struct qr_queue *q;
    char *tiles;                          /* dy's, [slice][row tile][step of the slice] */
    int32_t row0, n_rows, step0, n_steps; /* rows of the chunk, steps of the stretch */
    int32_t slice_steps, n_tiles;         /* n_tiles: row tiles */
    int32_t item_cols;
};

/* A slice lies in one piece: with all steps of a row tile in one piece, equal steps of many row tiles would meet in few sets of L2. */
static char *dy_tile_at(const struct dx_job *j, int32_t t, int32_t step)
{
    return j->tiles + (((int64_t)(step / j->slice_steps) * j->n_tiles + t) * j->slice_steps + step % j->slice_steps) * QR_TILE_BYTES;
}

static void dy_tile(const void *arg, int32_t t, int32_t worker)
{
    (void)worker;
    const struct dx_job *j = arg;
    const struct qr_linear_dx_args *a = j->a;
    const int32_t first = t * QR_TILE_ROWS, n = j->n_rows - first < QR_TILE_ROWS ? j->n_rows - first : QR_TILE_ROWS;
    for (int32_t slice = 0; slice < j->n_steps; slice += j->slice_steps) {
        char *tile = dy_tile_at(j, t, slice);
        const int32_t n_steps = j->n_steps - slice < j->slice_steps ? j->n_steps - slice : j->slice_steps;
        for (int32_t r = 0; r < n; r++)
            for (int32_t s = 0; s < n_steps; s++) {
                const int32_t o = (j->step0 + slice + s) * QR_TILE_K;
                line_of_f32(tile + (int64_t)s * QR_TILE_BYTES + r * QR_TILE_ROW_BYTES, a->dy + (j->row0 + first + r) * a->dy_stride + o,
                            a->n_out - o < QR_TILE_K ? a->n_out - o : QR_TILE_K);
            }
    }
}

/* Two rows of w, 32 columns of which n are there, side by side: a line of one panel and the same of the next. */
VF_FN void pairs_of_rows(char *dst, int64_t next_panel, __m512i first, __m512i second)
{
    const __m512i lo = _mm512_unpacklo_epi16(first, second), hi = _mm512_unpackhi_epi16(first, second); /* of each quarter its first and its last pairs */
    const __m512i early = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), late = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi64(lo, early, hi));
    _mm512_storeu_si512(dst + next_panel, _mm512_permutex2var_epi64(lo, late, hi));
}

/* w's rows [32 s, 32 s + 32), columns [i, i + n_cols) as tiles, those of a panel SLICE tiles behind those of the one before. Rows are prefetched before
 * they are read: they are too far apart for the processor to guess. */
static void w_tiles(char *dst, const struct qr_linear_dx_args *a, int32_t s, int32_t i, int32_t n_cols)
{
    const uint16_t *w = (const uint16_t *)a->w->t.data + i;
    for (int32_t o = 0; o < QR_TILE_K; o += 2, dst += QR_TILE_ROW_BYTES) {
        const int64_t at = (int64_t)s * QR_TILE_K + o;
        const uint16_t *first = w + at * a->n_in, *second = first + a->n_in;
        for (int32_t c = 0; c < n_cols; c += 2 * COLS) {
            const int32_t left = n_cols - c < 2 * COLS ? n_cols - c : 2 * COLS;
            const __mmask32 there = left < 2 * COLS ? (__mmask32)((1u << left) - 1) : (__mmask32)-1;
            _mm_prefetch((const char *)(first + c + AHEAD_ROWS * a->n_in), _MM_HINT_T0);
            _mm_prefetch((const char *)(second + c + AHEAD_ROWS * a->n_in), _MM_HINT_T0);
            pairs_of_rows(dst + (int64_t)(c / COLS) * SLICE * QR_TILE_BYTES, SLICE * QR_TILE_BYTES,
                          _mm512_maskz_loadu_epi16(at < a->n_out ? there : 0, first + c), _mm512_maskz_loadu_epi16(at + 1 < a->n_out ? there : 0, second + c));
        }
    }
}

/* 32 columns and a slice of n steps from s on, as tiles in the worker's scratch, against all rows. Meanwhile rows of `next`, columns or steps that come
 * after these, are prefetched. */
static void dx_slice(const struct dx_job *j, char *strip, int32_t i, int32_t n_cols, int32_t s, int32_t n, const uint16_t *next)
{
    const struct qr_linear_dx_args *a = j->a;
    const int32_t n_corners = (j->n_rows + 2 * QR_TILE_ROWS - 1) / (2 * QR_TILE_ROWS), ahead_rows = (n * QR_TILE_K + n_corners - 1) / n_corners;
    int32_t configured = 0;
    for (int32_t k = 0; k < n; k++)
        w_tiles(strip + (int64_t)k * QR_TILE_BYTES, a, j->step0 + s + k, i, n_cols);
    for (int32_t c = 0; c < n_corners; c++) {
        const int32_t row = c * 2 * QR_TILE_ROWS;
        const char *dy = dy_tile_at(j, row / QR_TILE_ROWS, s);
        const struct corner k = {.c = a->dx + (j->row0 + row) * a->dx_stride + i, .c_stride = a->dx_stride,
                                 .a = {dy, dy + (int64_t)j->slice_steps * QR_TILE_BYTES}, .b = {strip, strip + SLICE * QR_TILE_BYTES},
                                 .n_rows = j->n_rows - row < 2 * QR_TILE_ROWS ? j->n_rows - row : 2 * QR_TILE_ROWS,
                                 .n_cols = n_cols, .n_steps = n, .spare = (float *)(void *)(strip + DX_STRIP_BYTES),
                                 .ahead = (const char *)(next + (int64_t)c * ahead_rows * a->n_in), .ahead_bytes = a->n_in * 2,
                                 .ahead_rows = ahead_rows, .ahead_lines = 1, .fresh = a->fresh && j->step0 + s == 0};
        if (k.n_rows != configured)
            configure_rows(k.n_rows);
        configured = k.n_rows;
        corner_run(&k);
    }
}

static void dx_item(const void *arg, int32_t item, int32_t worker)
{
    const struct dx_job *j = arg;
    const struct qr_linear_dx_args *a = j->a;
    const int32_t first = item * j->item_cols, end = a->n_in - first < j->item_cols ? a->n_in : first + j->item_cols;
    const int32_t most = j->slice_steps;
    for (int32_t s = 0; s < j->n_steps; s += most)
        for (int32_t i = first; i < end; i += 2 * COLS) {
            const bool more = i + 2 * COLS < end;
            const uint16_t *w = (const uint16_t *)a->w->t.data + (int64_t)(j->step0 + s + (more ? 0 : most)) * QR_TILE_K * a->n_in;
            dx_slice(j, qr_queue_own(j->q, worker), i, end - i < 2 * COLS ? end - i : 2 * COLS, s, j->n_steps - s < most ? j->n_steps - s : most,
                     w + (more ? i + 2 * COLS : first));
        }
    qr_tile_release();
}

/* Columns of an item: several lines of each row, and some items for every thread. */
static int32_t dx_item_cols(const struct qr_queue *q, int32_t n_in)
{
    const int32_t fair = n_in / (3 * q->n_threads) / (2 * COLS) * (2 * COLS);
    return fair < 2 * COLS ? 2 * COLS : fair < DX_COLS_MAX ? fair : DX_COLS_MAX;
}

void qr_amx_linear_dx(struct qr_queue *q, const struct qr_linear_dx_args *a)
{
    QR_ASSERT(a != NULL && a->dx != NULL && a->dy != NULL);
    QR_ASSERT(a->w != NULL && a->w->t.data != NULL && a->n_in > 0 && a->n_out > 0);
    if (a->w->t.dtype != QR_BF16) {
        qr_avx512_linear_dx(q, a);
        return;
    }
    struct dx_job j = {.a = a, .q = q, .tiles = (char *)q->shared, .item_cols = dx_item_cols(q, a->n_in)};
    const int32_t n_steps = (a->n_out + QR_TILE_K - 1) / QR_TILE_K, n_slices = (n_steps + SLICE - 1) / SLICE;
    j.slice_steps = (n_steps + n_slices - 1) / n_slices;
    for (; j.row0 < a->n_rows; j.row0 += j.n_rows) {
        j.n_rows = a->n_rows - j.row0 < DX_ROWS_MAX ? a->n_rows - j.row0 : DX_ROWS_MAX;
        j.n_tiles = (j.n_rows + QR_TILE_ROWS - 1) / QR_TILE_ROWS;
        const int32_t fit = (int32_t)((int64_t)q->shared_bytes / ((int64_t)j.n_tiles * j.slice_steps * QR_TILE_BYTES)) * j.slice_steps;
        QR_ASSERT(fit >= 1);
        for (j.step0 = 0; j.step0 < n_steps; j.step0 += j.n_steps) {
            j.n_steps = n_steps - j.step0 < fit ? n_steps - j.step0 : fit;
            qr_queue_run(q, dy_tile, &j, j.n_tiles);
            qr_queue_run(q, dx_item, &j, (a->n_in + j.item_cols - 1) / j.item_cols);
        }
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
static void dy_transposed_tile(char *dst, const struct dw_job *j, int32_t o, int32_t n, int32_t s)
{
    const struct qr_linear_dw_args *a = j->a;
    QR_UNINITIALIZED vf low[VF_LEN], high[VF_LEN];
    for (int32_t k = 0; k < VF_LEN; k++) {
        const int32_t r = s * QR_TILE_K + k;
        const float *dy = a->dy + (j->row0 + r) * a->dy_stride + o;
        __builtin_prefetch(dy + QR_TILE_K * a->dy_stride); /* a line of each row: too far apart for the processor to guess */
        __builtin_prefetch(dy + (QR_TILE_K + VF_LEN) * a->dy_stride);
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
            dy_transposed_tile(strip + t * strip_bytes + (int64_t)s * QR_TILE_BYTES, j, o + t * QR_TILE_ROWS,
                           n_rows - t * QR_TILE_ROWS < QR_TILE_ROWS ? n_rows - t * QR_TILE_ROWS : QR_TILE_ROWS, s);
    const bool fresh = a->fresh && j->row0 == 0, stream = fresh && (uintptr_t)a->dw % 64 == 0 && a->n_in % COLS == 0;
    configure_rows(n_rows);
    for (int32_t i = 0; i < a->n_in; i += 2 * COLS) {
        const char *x = j->tiles + (int64_t)(i / COLS) * strip_bytes;
        const struct corner c = {.c = a->dw + (int64_t)o * a->n_in + i, .c_stride = a->n_in, .a = {strip, strip + strip_bytes},
                                 .b = {x, x + strip_bytes}, .n_rows = n_rows, .n_cols = a->n_in - i < 2 * COLS ? a->n_in - i : 2 * COLS,
                                 .n_steps = j->n_steps, .spare = (float *)(void *)(strip + 2 * strip_bytes),
                                 .ahead = (const char *)(a->dw + (int64_t)o * a->n_in + i + 2 * COLS), .ahead_bytes = a->n_in * 4,
                                 .ahead_rows = fresh ? 0 : 2 * QR_TILE_ROWS, .ahead_lines = 2, .fresh = fresh, .stream = stream};
        corner_run(&c);
    }
    qr_tile_release();
    _mm_sfence();
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
    const int64_t n_panels = (a->n_in + COLS - 1) / COLS, own = ((int64_t)q->own_bytes - 4 * QR_TILE_BYTES) / (2 * QR_TILE_BYTES);
    const int64_t shared = (int64_t)q->shared_bytes / (n_panels * QR_TILE_BYTES), fit = (own < shared ? own : shared) * QR_TILE_K;
    QR_ASSERT(fit >= QR_TILE_K);
    for (; j.row0 < a->n_rows; j.row0 += j.n_rows) {
        j.n_rows = a->n_rows - j.row0 < fit ? a->n_rows - j.row0 : (int32_t)fit;
        j.n_steps = (j.n_rows + QR_TILE_K - 1) / QR_TILE_K;
        qr_queue_run(q, x_panel, &j, n_panels);
        qr_queue_run(q, dw_item, &j, (a->n_out + 2 * QR_TILE_ROWS - 1) / (2 * QR_TILE_ROWS));
    }
}
