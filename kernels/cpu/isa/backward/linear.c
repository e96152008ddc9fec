/* linear.c - dx += dy w and dw += dy^T x, both on the register blocks of micro.c that read rows as they lie (QR_PANEL_ROWS_*): w's rows
 * for dx, x's for dw. One chain per element over o, or over n, onto what is there; threads split columns of dx and rows of dw. */
#include "base/assert.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define ROWS_MAX QR_ISA_NAME(micro_rows_max)
#define BLOCK_ROWS 12      /* at least ROWS_MAX of every level */
#define PIECE 256          /* of a sum at a time: x of micro.c */
#define ITEM_COLS 128      /* columns of dx of an item of work: 256 rows of w of them stay in L2 */
#define ITEM_ROWS 48       /* rows of dw */

/* A piece of a sum for a block of rows: c[r][j] += sum_k x[r][k] w[k][j], j < n_cols. */
struct piece {
    float *c;
    int64_t c_stride;
    const float *x;        /* [mr][QR_X_ROW] */
    const char *w;         /* rows w_step bytes apart */
    int64_t w_step;
    int32_t mr, n_k, n_cols;
    bool bf16;             /* w's type */
};

/* The last columns, fewer than a panel: w copied beside zeros, c through a panel of its own. */
static void multiply_tail(const struct piece *p, int32_t first)
{
    float w[PIECE * QR_PANEL] QR_UNINITIALIZED, c[BLOCK_ROWS * QR_PANEL] QR_UNINITIALIZED;
    const int32_t n = p->n_cols - first;
    const size_t size = p->bf16 ? 2 : 4;
    for (int32_t k = 0; k < p->n_k; k++)
        for (int32_t j = 0; j < QR_PANEL; j += VF_LEN) {
            const int64_t len = n - j > 0 ? vf_min_len(n - j) : 0;
            vf v = len ? vf_load_as_n(p->w + k * p->w_step, p->bf16 ? QR_BF16 : QR_F32, (size_t)(first + j), len) : vf_zero();
            vf_store(w + k * QR_PANEL + j, v);
        }
    QR_ASSERT(n > 0 && n < QR_PANEL && size > 0);
    for (int32_t r = 0; r < p->mr; r++)
        for (int32_t j = 0; j < QR_PANEL; j++)
            c[r * QR_PANEL + j] = j < n ? p->c[r * p->c_stride + first + j] : 0;
    const struct qr_micro_args m = {.c = c, .x = p->x, .w = w, .c_stride = QR_PANEL, .w_panel = QR_PANEL * 4, .w_step = QR_PANEL * 4,
                                    .n_steps = p->n_k, .onto = true};
    QR_ISA_NAME(micro)(QR_PANEL_ROWS_F32, p->mr, 1, &m);
    for (int32_t r = 0; r < p->mr; r++)
        for (int32_t j = 0; j < n; j++)
            p->c[r * p->c_stride + first + j] = c[r * QR_PANEL + j];
}

static void multiply_piece(const struct piece *p)
{
    const int32_t n_panels = p->n_cols / QR_PANEL;
    const struct qr_micro_args m = {.c = p->c, .x = p->x, .w = p->w, .c_stride = p->c_stride, .w_panel = QR_PANEL * (p->bf16 ? 2 : 4),
                                    .w_step = (size_t)p->w_step, .n_steps = p->n_k, .onto = true};
    if (n_panels > 0)
        QR_ISA_NAME(micro)(p->bf16 ? QR_PANEL_ROWS_BF16 : QR_PANEL_ROWS_F32, p->mr, n_panels, &m);
    if (n_panels * QR_PANEL < p->n_cols)
        multiply_tail(p, n_panels * QR_PANEL);
}

/* ---- dx ---- */

static void dx_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct qr_linear_dx_args *a = arg;
    const bool bf16 = a->w->t.dtype == QR_BF16;
    const int32_t i0 = item * ITEM_COLS, size = bf16 ? 2 : 4;
    float x[BLOCK_ROWS * QR_X_ROW] QR_UNINITIALIZED;
    for (int32_t row = 0; a->fresh && row < a->n_rows; row++)
        memset(a->dx + row * a->dx_stride + i0, 0, (size_t)(a->n_in - i0 < ITEM_COLS ? a->n_in - i0 : ITEM_COLS) * sizeof(float));
    for (int32_t o = 0; o < a->n_out; o += PIECE)
        for (int32_t row = 0, mr; row < a->n_rows; row += mr) {
            const int32_t n_k = a->n_out - o < PIECE ? a->n_out - o : PIECE;
            mr = a->n_rows - row < ROWS_MAX ? a->n_rows - row : ROWS_MAX;
            for (int32_t r = 0; r < mr; r++)
                for (int32_t k = 0; k < n_k; k += VF_LEN) {
                    vf v = vf_load_n(a->dy + (row + r) * a->dy_stride + o + k, vf_min_len(n_k - k));
                    vf_store(x + r * QR_X_ROW + k, bf16 ? vf_round_bf16(v) : v);
                }
            const struct piece p = {.c = a->dx + row * a->dx_stride + i0, .c_stride = a->dx_stride, .x = x,
                                    .w = (const char *)a->w->t.data + ((int64_t)o * a->n_in + i0) * size, .w_step = (int64_t)a->n_in * size,
                                    .mr = mr, .n_k = n_k, .n_cols = a->n_in - i0 < ITEM_COLS ? a->n_in - i0 : ITEM_COLS, .bf16 = bf16};
            multiply_piece(&p);
        }
}

void QR_ISA_NAME(linear_dx)(struct qr_queue *q, const struct qr_linear_dx_args *a)
{
    QR_ASSERT(a != NULL && a->dx != NULL && a->dy != NULL);
    QR_ASSERT(a->w != NULL && a->w->t.data != NULL && (a->w->t.dtype == QR_F32 || a->w->t.dtype == QR_BF16));
    qr_queue_run(q, dx_item, a, (a->n_in + ITEM_COLS - 1) / ITEM_COLS);
}

/* ---- dw ---- */

/* Rows [row0, row0 + n_rows) of the batch. */
struct dw_chunk {
    const struct qr_linear_dw_args *a;
    uint16_t *half;      /* x rounded to bf16, rows half_stride apart, or NULL */
    int64_t half_stride;
    int32_t row0, n_rows;
};

static void round_item(const void *arg, int32_t row, int32_t worker)
{
    (void)worker;
    const struct dw_chunk *c = arg;
    const float *x = c->a->x + (c->row0 + row) * c->a->x_stride;
    for (int32_t i = 0; i < c->a->n_in; i += VF_LEN)
        vf_store_bf16_n(c->half + row * c->half_stride + i, vf_load_n(x + i, vf_min_len(c->a->n_in - i)), vf_min_len(c->a->n_in - i));
}

/* dy's columns [o, o + mr), rows from `row` on, as rows of x for micro.c. */
static void transpose_dy(float *x, const struct dw_chunk *c, int32_t o, int32_t mr, int32_t row, int32_t n_k)
{
    const struct qr_linear_dw_args *a = c->a;
    for (int32_t k = 0; k < n_k; k++) {
        const float *dy = a->dy + (c->row0 + row + k) * a->dy_stride + o;
        for (int32_t r = 0; r < mr; r++)
            x[r * QR_X_ROW + k] = dy[r];
    }
    for (int32_t r = 0; c->half && r < mr; r++)
        for (int32_t k = 0; k < n_k; k += VF_LEN)
            vf_store(x + r * QR_X_ROW + k, vf_round_bf16(vf_load_n(x + r * QR_X_ROW + k, vf_min_len(n_k - k))));
}

static void dw_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct dw_chunk *c = arg;
    const struct qr_linear_dw_args *a = c->a;
    const int32_t first = item * ITEM_ROWS, end = first + ITEM_ROWS < a->n_out ? first + ITEM_ROWS : a->n_out;
    float x[BLOCK_ROWS * QR_X_ROW] QR_UNINITIALIZED;
    if (a->fresh && c->row0 == 0)
        memset(a->dw + (int64_t)first * a->n_in, 0, (size_t)(end - first) * (size_t)a->n_in * sizeof(float));
    for (int32_t row = 0; row < c->n_rows; row += PIECE)
        for (int32_t o = first, mr; o < end; o += mr) {
            const int32_t n_k = c->n_rows - row < PIECE ? c->n_rows - row : PIECE;
            mr = end - o < ROWS_MAX ? end - o : ROWS_MAX;
            transpose_dy(x, c, o, mr, row, n_k);
            const struct piece p = {.c = a->dw + (int64_t)o * a->n_in, .c_stride = a->n_in, .x = x,
                                    .w = c->half ? (const char *)(c->half + row * c->half_stride) : (const char *)(a->x + (c->row0 + row) * a->x_stride),
                                    .w_step = c->half ? c->half_stride * 2 : a->x_stride * 4, .mr = mr, .n_k = n_k, .n_cols = a->n_in,
                                    .bf16 = c->half != NULL};
            multiply_piece(&p);
        }
    for (int32_t n = 0; a->dbias && n < c->n_rows; n++)
        for (int32_t o = first; o < end; o++)
            a->dbias[o] += a->dy[(c->row0 + n) * a->dy_stride + o];
}

void QR_ISA_NAME(linear_dw)(struct qr_queue *q, const struct qr_linear_dw_args *a)
{
    QR_ASSERT(a != NULL && a->dw != NULL && a->dy != NULL && a->x != NULL);
    QR_ASSERT(a->product == QR_F32 || a->product == QR_BF16);
    struct dw_chunk c = {.a = a, .half_stride = (a->n_in + QR_PANEL - 1) / QR_PANEL * QR_PANEL};
    int64_t rows_fit = a->n_rows;
    if (a->product == QR_BF16) {
        c.half = (uint16_t *)(void *)q->shared;
        rows_fit = (int64_t)q->shared_bytes / (c.half_stride * 2);
        QR_ASSERT(rows_fit >= 1);
    }
    for (; c.row0 < a->n_rows; c.row0 += c.n_rows) {
        c.n_rows = a->n_rows - c.row0 < rows_fit ? a->n_rows - c.row0 : (int32_t)rows_fit;
        if (c.half)
            qr_queue_run(q, round_item, &c, c.n_rows);
        qr_queue_run(q, dw_item, &c, (a->n_out + ITEM_ROWS - 1) / ITEM_ROWS);
    }
}
