/* Gradients of products. bf16: both sides are rounded to bf16 into scratch, and a gradient's element is one chain of mma.sync onto the old value, over outputs
 * (dx) or rows (dw) upwards in links of 16: pieces of the rows that are multiples of 16 continue the same chain. Where plans.h gives a large product to
 * cuBLASLt, it is a sum from 0 that is added to the old value. f32: one chain of fused additions. */
#include "kernels/cuda/plans.h"
#include "kernels/cuda/products.h"

#define BM 64
#define BN 64
#define BK 64
#define STAGES 3
#define THREADS 128
#define F32_TILE 16
#define LINK 16

/* c[M, N] (+)= a b over K.  TRANS: a lies as [K, M], else [M, K];  b lies as [K, N]. Rows of a and of b are a_stride and b_stride apart. */
struct sum {
    float *c;
    const uint16_t *a, *b;
    int64_t c_stride, a_stride, b_stride;
    int32_t m, n, k;
    bool fresh;
};

/* Copies a tile of 64 rows of 64 numbers: rows [row0, ..) of n_rows, columns [col0, ..) of n_cols. Aligned: rows are
 * whole chunks. */
template <bool ALIGNED>
QR_DEVICE void fetch_tile(uint16_t *tile, const uint16_t *from, int64_t stride, int32_t row0, int32_t n_rows, int32_t col0, int32_t n_cols)
{
    for (int i = (int)threadIdx.x; i < 64 * 8; i += THREADS) {
        const int r = i / 8, c = i % 8;
        const int32_t col = col0 + c * QR_CHUNK;
        const bool there = row0 + r < n_rows && col < n_cols;
        const uint16_t *at = there ? from + (int64_t)(row0 + r) * stride + col : from;
        if (ALIGNED)
            qr_cp_async_16(qr_chunk_of<64>(tile, r, c), at, there ? 16 : 0);
        else
            qr_copy_chunk(qr_chunk_of<64>(tile, r, c), at, there ? n_cols - col : 0);
    }
}

template <bool TRANS, bool ALIGNED> QR_DEVICE void fetch(uint16_t *stage, const struct sum &a, int32_t m0, int32_t n0, int32_t k0)
{
    if (TRANS)
        fetch_tile<true>(stage, a.a, a.a_stride, k0, a.k, m0, a.m);
    else
        fetch_tile<true>(stage, a.a, a.a_stride, m0, a.m, k0, a.k);
    fetch_tile<ALIGNED>(stage + BM * BK, a.b, a.b_stride, k0, a.k, n0, a.n);
}

/* Four warps, each 32 by 32. */
template <bool TRANS> QR_DEVICE void multiply_stage(float sum[2][4][4], uint16_t *stage, int m0, int n0)
{
    const int lane = threadIdx.x % QR_WARP;
    uint16_t *b = stage + BM * BK;
#pragma unroll
    for (int k = 0; k < BK / 16; k++) {
        uint32_t af[2][4], bf[4][2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            if (TRANS) /* matrices: (k, m), (k, m + 8), (k + 8, m), (k + 8, m + 8) */
                qr_ldmatrix_trans<4>(af[m], qr_chunk_of<64>(stage, 16 * k + lane / 16 * 8 + lane % 8, (m0 + 16 * m) / 8 + lane / 8 % 2));
            else
                qr_ldmatrix<4>(af[m], qr_chunk_of<64>(stage, m0 + 16 * m + lane % 16, 2 * k + lane / 16));
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
            qr_ldmatrix_trans<2>(bf[n], qr_chunk_of<64>(b, 16 * k + lane % 16, n0 / 8 + n));
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                qr_mma_bf16(sum[m][n], af[m], bf[n]);
    }
}

/* Where element i of tile (m, n) of this lane stands; NULL: outside. */
QR_DEVICE float *element_of(const struct sum &a, int32_t row0, int32_t col0, int m, int n, int i)
{
    const int lane = threadIdx.x % QR_WARP;
    const int32_t r = row0 + 16 * m + lane / 4 + i / 2 * 8, c = col0 + 8 * n + 2 * (lane % 4) + i % 2;
    return r < a.m && c < a.n ? a.c + r * a.c_stride + c : NULL;
}

template <bool TRANS, bool ALIGNED> QR_KERNEL(THREADS) multiply_onto(struct sum a)
{
    QR_SHARED(uint16_t, shared);
    const int warp = threadIdx.x / QR_WARP, m0 = warp / 2 * 32, n0 = warp % 2 * 32, STAGE = (BM + BN) * BK;
    const int32_t row0 = (int32_t)blockIdx.y * BM, col0 = (int32_t)blockIdx.x * BN, n_steps = (a.k + BK - 1) / BK;
    float sum[2][4][4];
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < n_steps)
            fetch<TRANS, ALIGNED>(shared + s * STAGE, a, row0, col0, s * BK);
        qr_cp_async_commit();
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const float *at = element_of(a, row0 + m0, col0 + n0, i / 16, i / 4 % 4, i % 4);
        sum[i / 16][i / 4 % 4][i % 4] = at && !a.fresh ? *at : 0;
    }
    for (int32_t step = 0; step < n_steps; step++) {
        qr_cp_async_wait<STAGES - 2>();
        __syncthreads();
        const int32_t next = step + STAGES - 1;
        if (next < n_steps)
            fetch<TRANS, ALIGNED>(shared + next % STAGES * STAGE, a, row0, col0, next * BK);
        qr_cp_async_commit();
        multiply_stage<TRANS>(sum, shared + step % STAGES * STAGE, m0, n0);
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float *at = element_of(a, row0 + m0, col0 + n0, i / 16, i / 4 % 4, i % 4);
        if (at)
            *at = sum[i / 16][i / 4 % 4][i % 4];
    }
}

static void multiply(struct qr_queue *q, const struct sum *a, bool trans)
{
    const dim3 grid(qr_blocks(a->n, BN), qr_blocks(a->m, BM));
    const size_t bytes = (size_t)STAGES * (BM + BN) * BK * sizeof(uint16_t);
    QR_FITS_PLAIN(STAGES * (BM + BN) * BK * sizeof(uint16_t));
    const bool aligned = a->b_stride % QR_CHUNK == 0 && QR_ADDRESS(a->b) % 16 == 0;
    if (trans && aligned)
        QR_LAUNCH((multiply_onto<true, true>), grid, THREADS, bytes, q, *a);
    else if (trans)
        QR_LAUNCH((multiply_onto<true, false>), grid, THREADS, bytes, q, *a);
    else if (aligned)
        QR_LAUNCH((multiply_onto<false, true>), grid, THREADS, bytes, q, *a);
    else
        QR_LAUNCH((multiply_onto<false, false>), grid, THREADS, bytes, q, *a);
}

/* As plans.h has it. */
static void multiply_own(struct qr_queue *q, const struct qr_plan_product *p)
{
    const struct sum s = {p->out, (const uint16_t *)p->a, (const uint16_t *)p->b, p->out_stride, p->a_stride, p->b_stride, p->m, p->n, p->k, !p->add};
    multiply(q, &s, p->op == QR_PLAN_DW);
}

/* ---- f32 ---- */

/* The same with f32 on both sides: a[m, k] is at m a_row + k a_col. */
struct sum_f32 {
    float *c;
    const float *a, *b;
    int64_t c_stride, a_row, a_col, b_stride;
    int32_t m, n, k;
    bool fresh;
};

QR_KERNEL(F32_TILE *F32_TILE) multiply_onto_f32(struct sum_f32 s)
{
    QR_SHARED_ARRAY(float, at, F32_TILE * (F32_TILE + 1));
    QR_SHARED_ARRAY(float, bt, F32_TILE * (F32_TILE + 1));
    const int c = threadIdx.x % F32_TILE, r = threadIdx.x / F32_TILE;
    const int32_t row = (int32_t)blockIdx.y * F32_TILE + r, col = (int32_t)blockIdx.x * F32_TILE + c;
    float *to = row < s.m && col < s.n ? s.c + row * s.c_stride + col : NULL;
    float sum = to && !s.fresh ? *to : 0;
    for (int32_t k0 = 0; k0 < s.k; k0 += F32_TILE) {
        at[r * (F32_TILE + 1) + c] = row < s.m && k0 + c < s.k ? s.a[row * s.a_row + (k0 + c) * s.a_col] : 0;
        bt[r * (F32_TILE + 1) + c] = k0 + r < s.k && col < s.n ? s.b[(k0 + r) * s.b_stride + col] : 0;
        __syncthreads();
        const int n = s.k - k0 < F32_TILE ? s.k - k0 : F32_TILE;
        for (int i = 0; i < n; i++)
            sum = fmaf(at[r * (F32_TILE + 1) + i], bt[i * (F32_TILE + 1) + c], sum);
        __syncthreads();
    }
    if (to)
        *to = sum;
}

static void multiply_f32(struct qr_queue *q, const struct sum_f32 *s)
{
    QR_LAUNCH(multiply_onto_f32, dim3(qr_blocks(s->n, F32_TILE), qr_blocks(s->m, F32_TILE)), F32_TILE * F32_TILE, 0, q, *s);
}

/* ---- entries ---- */

/* Rows of a piece for which scratch has room; whole links but for the last piece. */
static int32_t piece_rows(const struct qr_queue *q, int64_t numbers_a_row, int32_t n_rows)
{
    const size_t most = q->scratch_bytes / (size_t)(numbers_a_row * (int64_t)sizeof(uint16_t)) / LINK * LINK;
    QR_ASSERT(most > 0);
    return most < (size_t)n_rows ? (int32_t)most : n_rows;
}

extern "C" void qr_cuda_linear_dx(struct qr_queue *q, const struct qr_linear_dx_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->dx != NULL && a->dy != NULL);
    QR_ASSERT(a->w != NULL && a->w->t.data != NULL && (a->w->t.dtype == QR_F32 || a->w->t.dtype == QR_BF16));
    if (a->n_rows == 0)
        return;
    if (a->w->t.dtype == QR_F32) {
        const struct sum_f32 s = {a->dx, a->dy, (const float *)a->w->t.data, a->dx_stride, a->dy_stride, 1, a->n_in, a->n_rows, a->n_in, a->n_out, a->fresh};
        multiply_f32(q, &s);
        return;
    }
    const int64_t width = qr_whole_chunks(a->n_out);
    const int32_t piece = piece_rows(q, width, a->n_rows);
    for (int32_t first = 0; first < a->n_rows; first += piece) {
        const int32_t n = a->n_rows - first < piece ? a->n_rows - first : piece;
        const struct qr_narrow narrow = {(uint16_t *)q->scratch, a->dy + first * a->dy_stride, NULL, width, a->dy_stride, n, a->n_out, 0};
        const struct qr_plan_product p = {QR_PLAN_DX, a->dx + first * a->dx_stride, narrow.to, (const uint16_t *)a->w->t.data, NULL, a->dx_stride, width,
                                          a->n_in, n, a->n_in, a->n_out, !a->fresh, false, NULL, NULL};
        qr_plan_prepare(q, &p, multiply_own);
        qr_cuda_narrow(q, &narrow);
        qr_plan_multiply(q, &p, multiply_own);
    }
}

struct columns {
    float *to;
    const float *from;
    int64_t stride;
    int32_t n_rows, n_cols;
};

/* to[c] += the column's rows, one after the other. */
QR_KERNEL(THREADS) add_columns(struct columns a)
{
    const int32_t c = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    if (c >= a.n_cols)
        return;
    float sum = a.to[c];
    for (int32_t r = 0; r < a.n_rows; r++)
        sum += a.from[r * a.stride + c];
    a.to[c] = sum;
}

extern "C" void qr_cuda_linear_dw(struct qr_queue *q, const struct qr_linear_dw_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->dw != NULL && a->dy != NULL && a->x != NULL);
    QR_ASSERT(a->product == QR_F32 || a->product == QR_BF16);
    const struct columns bias = {a->dbias, a->dy, a->dy_stride, a->n_rows, a->n_out};
    if (a->dbias && a->n_rows > 0)
        QR_LAUNCH(add_columns, qr_blocks(a->n_out, THREADS), THREADS, 0, q, bias);
    if (a->product == QR_F32 || a->n_rows == 0) { /* no rows: a fresh gradient is zeros */
        const struct sum_f32 s = {a->dw, a->dy, a->x, a->n_in, 1, a->dy_stride, a->x_stride, a->n_out, a->n_in, a->n_rows, a->fresh};
        multiply_f32(q, &s);
        return;
    }
    const int64_t dy_width = qr_whole_chunks(a->n_out), x_width = qr_whole_chunks(a->n_in);
    const int32_t piece = piece_rows(q, dy_width + x_width, a->n_rows);
    for (int32_t first = 0; first < a->n_rows; first += piece) {
        const int32_t n = a->n_rows - first < piece ? a->n_rows - first : piece;
        const struct qr_narrow dy = {(uint16_t *)q->scratch, a->dy + first * a->dy_stride, NULL, dy_width, a->dy_stride, n, a->n_out, 0};
        const struct qr_narrow x = {dy.to + n * dy_width, a->x + first * a->x_stride, NULL, x_width, a->x_stride, n, a->n_in, 0};
        const struct qr_plan_product p = {QR_PLAN_DW, a->dw, dy.to, x.to, NULL, a->n_in, dy_width, x_width, a->n_out, a->n_in, n, !(a->fresh && first == 0),
                                          false, NULL, NULL};
        qr_plan_prepare(q, &p, multiply_own);
        qr_cuda_narrow(q, &dy);
        qr_cuda_narrow(q, &x);
        qr_plan_multiply(q, &p, multiply_own);
    }
}
