/* Low-rank additions. Two launches for each adapter and part: numbers t = x a, a warp for each of them, four rows at a time so that a is read once for them;
 * then outputs, a thread each, whose b lies side by side. Lists of rows are the host's, so they travel as arguments, some at a time.
 *
 * Where a step is repeated (row_slot) two launches are all: each row looks up what its adapter has for this matrix, as many ranks and outputs as there can be
 * have threads, and those that find nothing leave. The sums are the same. */
#include "kernels/cuda/num.h"
#include "kernels/cuda/queue.h"

#define WARPS 8
#define THREADS (WARPS * QR_WARP)
#define ROWS 4        /* of a warp */
#define RUN 512       /* rows of a launch: 2 KiB of arguments */

struct adapt_run {
    float *out, *mid;      /* mid: of the first row, and of the part's first number */
    const float *x;
    const void *a, *b;
    int64_t out_stride, x_stride, mid_stride;
    int32_t n_rows, n_in, n_out, rank;
    float scale;
    int32_t row[RUN];
};

template <enum qr_dtype TYPE> QR_DEVICE float number(const void *p, int64_t i)
{
    return TYPE == QR_F32 ? ((const float *)p)[i] : qr_from_bf16(((const uint16_t *)p)[i]);
}

/* t[n, j]: a lane adds what is 32 inputs apart, one chain; then a tree. The same whatever the other rows are. */
template <enum qr_dtype TYPE> QR_KERNEL(THREADS) adapt_ranks(struct adapt_run a)
{
    const int lane = threadIdx.x % QR_WARP;
    const int32_t j = (int32_t)(blockIdx.x * WARPS + threadIdx.x / QR_WARP), first = (int32_t)blockIdx.y * ROWS;
    const float *x[ROWS];
    float sum[ROWS];
    if (j >= a.rank) /* whole warps, and there is no barrier */
        return;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        x[r] = a.x + a.row[first + r < a.n_rows ? first + r : a.n_rows - 1] * a.x_stride;
        sum[r] = 0;
    }
    for (int32_t i = lane; i < a.n_in; i += QR_WARP) {
        const float w = number<TYPE>(a.a, (int64_t)j * a.n_in + i);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sum[r] = fmaf(x[r][i], w, sum[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float t = qr_warp_sum(sum[r]);
        if (lane == 0 && first + r < a.n_rows)
            a.mid[(first + r) * a.mid_stride + j] = t;
    }
}

/* out + scale * sum_j t[j] b[o, j] */
template <enum qr_dtype TYPE> QR_DEVICE void add_output(float *out, const float *t, const void *b, int32_t o, int32_t rank, float scale)
{
    float sum = 0;
    for (int32_t j = 0; j < rank; j++)
        sum = fmaf(t[j], number<TYPE>(b, (int64_t)(o / QR_ADAPT_PANEL * rank + j) * QR_ADAPT_PANEL + o % QR_ADAPT_PANEL), sum);
    *out += scale * sum;
}

template <enum qr_dtype TYPE> QR_KERNEL(THREADS) adapt_outputs(struct adapt_run a)
{
    const int32_t o = (int32_t)(blockIdx.x * THREADS + threadIdx.x), n = (int32_t)blockIdx.y;
    const float *t = a.mid + n * a.mid_stride;
    if (o < a.n_out)
        add_output<TYPE>(a.out + a.row[n] * a.out_stride + o, t, a.b, o, a.rank, a.scale);
}

struct adapt_rows {
    float *out, *mid;
    const float *x;
    const int32_t *row_slot;
    const struct qr_adapt_parts *table;
    int64_t table_bytes, out_stride, x_stride, mid_stride;
    int32_t n_in, n_out;
};

/* The part that has number `at` of all ranks of a row, or of all outputs, side by side, and which one of its own that is; ranks before it. NULL: there are
 * not so many. */
template <bool OUTPUTS> QR_DEVICE const struct qr_adapt_part *part_of(const struct adapt_rows &a, int32_t row, int32_t *at, int32_t *before)
{
    const int32_t slot = a.row_slot[row];
    *before = 0;
    if (slot < 0)
        return NULL;
    const struct qr_adapt_parts *parts = (const struct qr_adapt_parts *)((const char *)a.table + slot * a.table_bytes);
    for (int32_t p = 0; p < parts->n; p++) {
        const struct qr_adapt_part *part = &parts->part[p];
        const int32_t n = OUTPUTS ? part->n_out : part->rank;
        if (*at < n)
            return part;
        *at -= n;
        *before += part->rank;
    }
    return NULL;
}

template <enum qr_dtype TYPE> QR_KERNEL(THREADS) adapt_row_ranks(struct adapt_rows a)
{
    const int lane = threadIdx.x % QR_WARP;
    const int32_t row = (int32_t)blockIdx.y;
    int32_t j = (int32_t)(blockIdx.x * WARPS + threadIdx.x / QR_WARP), before;
    const struct qr_adapt_part *p = part_of<false>(a, row, &j, &before);
    if (!p) /* whole warps, and there is no barrier */
        return;
    const float *x = a.x + row * a.x_stride;
    float sum = 0;
#pragma unroll 4
    for (int32_t i = lane; i < a.n_in; i += QR_WARP)
        sum = fmaf(x[i], number<TYPE>(p->a, (int64_t)j * a.n_in + i), sum);
    const float t = qr_warp_sum(sum);
    if (lane == 0)
        a.mid[row * a.mid_stride + before + j] = t;
}

template <enum qr_dtype TYPE> QR_KERNEL(THREADS) adapt_row_outputs(struct adapt_rows a)
{
    const int32_t row = (int32_t)blockIdx.y;
    int32_t o = (int32_t)(blockIdx.x * THREADS + threadIdx.x), before;
    const struct qr_adapt_part *p = part_of<true>(a, row, &o, &before);
    if (p)
        add_output<TYPE>(a.out + row * a.out_stride + p->first + o, a.mid + row * a.mid_stride + before, p->b, o, p->rank, p->scale);
}

static void launch_rows(struct qr_queue *q, const struct qr_adapt_args *a)
{
    const struct adapt_rows r = {a->out, a->mid, a->x, a->row_slot, a->table, a->table_bytes, a->out_stride, a->x_stride, a->mid_stride, a->n_in, a->n_out};
    const dim3 ranks(qr_blocks(a->mid_stride, WARPS), (unsigned int)a->n_rows), outputs(qr_blocks(a->n_out, THREADS), (unsigned int)a->n_rows);
    QR_ASSERT(a->table != NULL && a->n_rows <= 65535);
    if (a->dtype == QR_F32) {
        QR_LAUNCH(adapt_row_ranks<QR_F32>, ranks, THREADS, 0, q, r);
        QR_LAUNCH(adapt_row_outputs<QR_F32>, outputs, THREADS, 0, q, r);
    } else {
        QR_LAUNCH(adapt_row_ranks<QR_BF16>, ranks, THREADS, 0, q, r);
        QR_LAUNCH(adapt_row_outputs<QR_BF16>, outputs, THREADS, 0, q, r);
    }
}

static void launch(struct qr_queue *q, const struct adapt_run *r, enum qr_dtype type)
{
    const dim3 ranks(qr_blocks(r->rank, WARPS), qr_blocks(r->n_rows, ROWS)), outputs(qr_blocks(r->n_out, THREADS), (unsigned int)r->n_rows);
    if (type == QR_F32) {
        QR_LAUNCH(adapt_ranks<QR_F32>, ranks, THREADS, 0, q, *r);
        QR_LAUNCH(adapt_outputs<QR_F32>, outputs, THREADS, 0, q, *r);
    } else {
        QR_LAUNCH(adapt_ranks<QR_BF16>, ranks, THREADS, 0, q, *r);
        QR_LAUNCH(adapt_outputs<QR_BF16>, outputs, THREADS, 0, q, *r);
    }
}

/* One adapter's rows, which have mid from row `at` on. */
static void adapt_group(struct qr_queue *q, const struct qr_adapt_args *a, const struct qr_row_group *g, int64_t at)
{
    const struct qr_adapt_parts *parts = &a->parts[g->slot];
    for (int32_t first = 0; first < g->n_rows; first += RUN) {
        struct adapt_run r = {};
        float *mid = a->mid + (at + first) * a->mid_stride;
        r.n_rows = g->n_rows - first < RUN ? g->n_rows - first : RUN;
        r.x = a->x, r.x_stride = a->x_stride, r.out_stride = a->out_stride, r.mid_stride = a->mid_stride, r.n_in = a->n_in;
        memcpy(r.row, g->row + first, (size_t)r.n_rows * sizeof *r.row);
        for (int32_t p = 0; p < parts->n; p++) {
            const struct qr_adapt_part *part = &parts->part[p];
            QR_ASSERT(part->rank >= 1 && part->n_out >= 1);
            r.mid = mid, r.out = a->out + part->first, r.a = part->a, r.b = part->b;
            r.n_out = part->n_out, r.rank = part->rank, r.scale = part->scale;
            launch(q, &r, a->dtype);
            mid += part->rank;
        }
    }
}

extern "C" void qr_cuda_adapt(struct qr_queue *q, const struct qr_adapt_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->out != NULL && a->x != NULL && a->mid != NULL);
    QR_ASSERT(a->dtype == QR_F32 || a->dtype == QR_BF16);
    if (a->row_slot) {
        launch_rows(q, a);
        return;
    }
    int64_t at = 0;
    for (int32_t g = 0; g < a->n_groups; g++) {
        adapt_group(q, a, &a->group[g], at);
        at += a->group[g].n_rows;
    }
}
