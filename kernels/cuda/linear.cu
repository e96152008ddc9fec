/* Products with weights, and weights packed: rows as they are, dense.
 *
 * bf16: x is rounded to bf16 (behind its norm, where there is one) into scratch, and an output is one chain of mma.sync over steps of 16 inputs upwards from
 * 0. Block shapes differ for ..64 and more rows, and for codes, the chain does not, so a row is the same in any company. Up to 16 rows are few.cu's, with
 * the same chain: there what stands beside a product comes with it. Of large products with more rows plans.h decides whether cuBLASLt computes them. f32:
 * one chain of fused additions; for comparisons, not for speed. */
#include <stdlib.h>

#include "kernels/cuda/coded.h"
#include "kernels/cuda/codes.h"
#include "kernels/cuda/few.h"
#include "kernels/cuda/plans.h"
#include "kernels/cuda/widths.h"

#define ROW_THREADS 256
#define F32_TILE 16

/* What a stream's products keep: which kernels were given their shared memory. */
struct products {
    bool allowed[2 * QR_PRODUCT_KINDS], codes_allowed[2];
};

extern "C" void qr_cuda_products_free(struct qr_queue *q)
{
    free(q->products);
    q->products = NULL;
}

static struct products *products_of(struct qr_queue *q)
{
    if (!q->products)
        q->products = calloc(1, sizeof(struct products));
    QR_ASSERT(q->products != NULL);
    return (struct products *)q->products;
}

/* ---- packing ---- */

struct pack {
    void *to;
    const void *from;
    int64_t n;
};

template <enum qr_dtype TYPE> QR_DEVICE float number_of(const void *p, int64_t i)
{
    if (TYPE == QR_F32)
        return ((const float *)p)[i];
    const uint32_t h = ((const uint16_t *)p)[i];
    return TYPE == QR_BF16 ? qr_from_bf16(h) : qr_from_f16(h);
}

template <enum qr_dtype TO, enum qr_dtype FROM> QR_KERNEL(ROW_THREADS) pack_rows(struct pack a)
{
    const int64_t step = (int64_t)gridDim.x * ROW_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x; i < a.n; i += step) {
        if (TO == QR_F32)
            ((float *)a.to)[i] = number_of<FROM>(a.from, i);
        else if (FROM == QR_BF16)
            ((uint16_t *)a.to)[i] = ((const uint16_t *)a.from)[i];
        else
            ((uint16_t *)a.to)[i] = (uint16_t)qr_to_bf16(number_of<FROM>(a.from, i));
    }
}

extern "C" size_t qr_cuda_linear_packed_bytes(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    if (qr_coded_lies(to))
        return qr_coded_of(NULL, to, n_out, n_in).n_bytes;
    if (qr_dtype_is_coded(to)) /* not here: checkpoints of E4M3 numbers are bf16, or QR_F8; codes of 2 and 3 bits have 4 */
        return 0;
    QR_ASSERT(to == QR_F32 || to == QR_BF16);
    return (size_t)n_out * (size_t)n_in * qr_dtype_bytes(to);
}

extern "C" void qr_cuda_linear_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows,
                                    enum qr_dtype from, int64_t n_rows)
{
    QR_ASSERT(q != NULL && dst != NULL && row0 >= 0 && n_rows <= n_out - row0);
    QR_ASSERT((rows != NULL || n_rows == 0) && (to == QR_F32 || to == QR_BF16 || qr_coded_is(to)) && (from == QR_F32 || from == QR_F16 || from == QR_BF16));
    if (qr_coded_is(to) && n_rows > 0)
        qr_coded_pack(q, dst, to, n_out, n_in, row0, rows, from, n_rows);
    if (qr_coded_is(to))
        return;
    const struct pack a = {(char *)dst + (size_t)(row0 * n_in) * qr_dtype_bytes(to), rows, n_rows * n_in};
    if (a.n == 0)
        return;
    const unsigned int most = 32u * (unsigned int)q->n_sms, n = qr_blocks(a.n, ROW_THREADS), blocks = n < most ? n : most;
#define LAUNCH(t, f)                                                                        \
    if (to == t && from == f)                                                               \
    QR_LAUNCH((pack_rows<t, f>), blocks, ROW_THREADS, 0, q, a)
    LAUNCH(QR_F32, QR_F32);
    LAUNCH(QR_F32, QR_F16);
    LAUNCH(QR_F32, QR_BF16);
    LAUNCH(QR_BF16, QR_F32);
    LAUNCH(QR_BF16, QR_F16);
    LAUNCH(QR_BF16, QR_BF16);
#undef LAUNCH
}

/* ---- probes ---- */

QR_DEVICE uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

struct probe {
    uint16_t *to;
    const uint32_t *of;
    unsigned long long *sum;
    int64_t n;
    uint32_t seed;
};

/* Of both signs, sizes from 2^-15 to 1. */
QR_KERNEL(ROW_THREADS) fill_probe(struct probe a)
{
    const int64_t step = (int64_t)gridDim.x * ROW_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x; i < a.n; i += step) {
        const uint32_t r = mixed((uint32_t)i * 2654435761u + a.seed);
        if (a.seed == QR_PROBE_BYTES)
            a.to[i] = (uint16_t)((r & 0x8787u) | (r >> 1 & 0x3838u) | 0x0808u);
        else
            a.to[i] = (uint16_t)((r & 0x807fu) | (112 + (r >> 8 & 15)) << 7);
    }
}

QR_KERNEL(ROW_THREADS) sum_probe(struct probe a)
{
    const int64_t step = (int64_t)gridDim.x * ROW_THREADS;
    unsigned long long sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x; i < a.n; i += step)
        sum += (unsigned long long)mixed(a.of[i]) * (2 * (unsigned long long)i + 1);
    atomicAdd(a.sum, sum); /* of integers: in any order */
}

static unsigned int probe_blocks(const struct qr_queue *q, int64_t n)
{
    const unsigned int most = 32u * (unsigned int)q->n_sms, blocks = qr_blocks(n, ROW_THREADS);
    return blocks < most ? blocks : most;
}

void qr_cuda_probe_fill(struct qr_queue *q, uint16_t *to, int64_t n, uint32_t seed)
{
    QR_ASSERT(q != NULL && to != NULL && n > 0);
    const struct probe a = {to, NULL, NULL, n, seed};
    QR_LAUNCH(fill_probe, probe_blocks(q, n), ROW_THREADS, 0, q, a);
}

void qr_cuda_probe_sum(struct qr_queue *q, unsigned long long *sum, const float *of, int64_t n)
{
    QR_ASSERT(q != NULL && sum != NULL && of != NULL && n > 0);
    const struct probe a = {NULL, (const uint32_t *)of, sum, n, 0};
    QR_LAUNCH(sum_probe, probe_blocks(q, n), ROW_THREADS, 0, q, a);
}

/* ---- bf16 products ---- */

template <int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, int KIND> QR_KERNEL(WARPS_M * WARPS_N * QR_WARP) product_bf16(struct qr_product a)
{
    QR_SHARED(uint16_t, shared);
    const struct qr_product_place at = {(int32_t)blockIdx.y * BM, a.n_rows, (int32_t)blockIdx.x * BN, NULL, 1};
    qr_product_tile<BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND>(shared, a, at);
}

/* A shape's launch; `which` numbers them. */
#define SHAPE(which, BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND)                                                                          \
    do {                                                                                                                                  \
        const size_t bytes = QR_PRODUCT_SHARED(BM, BN, BK, STAGES);                                                                       \
        QR_FITS_EVERYWHERE(QR_PRODUCT_SHARED(BM, BN, BK, STAGES));                                                                        \
        if (!p->allowed[QR_PRODUCT_KINDS * which + KIND])                                                                                 \
            QR_SHARED_ALLOW((product_bf16<BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND>), bytes);                                           \
        p->allowed[QR_PRODUCT_KINDS * which + KIND] = true;                                                                               \
        const dim3 grid(qr_blocks(a->n_out, BN), qr_blocks(a->n_rows, BM));                                                               \
        QR_LAUNCH((product_bf16<BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND>), grid, WARPS_M * WARPS_N * QR_WARP, bytes, q, *a);    \
    } while (0)

/* ---- codes, up to 64 rows (codes.h) ---- */

template <int COLS> QR_KERNEL(QR_CODES_THREADS) product_codes(struct qr_product a)
{
    QR_SHARED(uint8_t, shared);
    const struct qr_product_place at = {0, a.n_rows, (int32_t)blockIdx.x * COLS, NULL, 1};
    qr_codes_tile<QR_CODES_ROWS, COLS>(shared, a, at);
}

template <int COLS> static void launch_codes(struct qr_queue *q, const struct qr_product *a)
{
    typedef struct qr_codes<QR_CODES_ROWS, COLS> of;
    bool *allowed = &products_of(q)->codes_allowed[COLS == 128];
    QR_FITS_EVERYWHERE(of::ALL);
    if (!*allowed)
        QR_SHARED_ALLOW(product_codes<COLS>, of::ALL);
    *allowed = true;
    QR_LAUNCH(product_codes<COLS>, qr_blocks(a->n_out, COLS), QR_CODES_THREADS, of::ALL, q, *a);
}

/* ---- whose product it is ---- */

static void multiply_bf16(struct qr_queue *q, const struct qr_product *a)
{
    struct products *p = products_of(q);
    if (a->n_rows <= QR_FEW_ROWS) {
        struct qr_few few = {};
        few.product = *a;
        qr_cuda_few(q, &few);
    } else if (a->n_rows <= QR_CODES_ROWS && qr_product_has_pieces(a)) {
        if (4 * (int64_t)qr_blocks(a->n_out, 128) >= 3 * (int64_t)q->n_sms) /* blocks for nearly all multiprocessors */
            launch_codes<128>(q, a);
        else
            launch_codes<64>(q, a);
    } else if (qr_product_kind(a) != QR_PRODUCT_ALIGNED) { /* with up to 64 rows: no width that models have */
        SHAPE(1, 128, 128, 64, 2, 4, 3, QR_PRODUCT_ANY);
    } else if (a->n_rows <= 64) {
        SHAPE(0, 64, 32, 128, 2, 2, 3, QR_PRODUCT_ALIGNED);
    } else {
        SHAPE(1, 128, 128, 64, 2, 4, 3, QR_PRODUCT_ALIGNED);
    }
}

/* As plans.h has it. */
static void multiply_own(struct qr_queue *q, const struct qr_plan_product *p)
{
    struct qr_product product = {p->out, (const uint16_t *)p->a, (const uint16_t *)p->b, p->bias, p->out_stride, p->a_stride, p->m, p->k, p->n, p->add, {},
                                 NULL};
    if (p->e4m3) {
        product.coded.form = QR_CODED_EIGHTS;
        product.coded.codes = (const uint8_t *)p->b;
        product.coded.scale = p->b_scale;
        product.coded.code_bytes = p->b_stride;
        product.x_scale = p->a_scale;
    }
    multiply_bf16(q, &product);
}

/* ---- f32 products ---- */

struct product_f32 {
    float *out;
    const float *x, *w, *bias;
    int64_t out_stride, x_stride;
    int32_t n_rows, n_in, n_out;
    bool add;
};

QR_KERNEL(F32_TILE *F32_TILE) multiply_f32(struct product_f32 a)
{
    QR_SHARED_ARRAY(float, xs, F32_TILE * (F32_TILE + 1));
    QR_SHARED_ARRAY(float, ws, F32_TILE * (F32_TILE + 1));
    const int c = threadIdx.x % F32_TILE, r = threadIdx.x / F32_TILE;
    const int32_t row = (int32_t)blockIdx.y * F32_TILE + r, col = (int32_t)blockIdx.x * F32_TILE + c, w_row = (int32_t)blockIdx.x * F32_TILE + r;
    float sum = 0;
    for (int32_t k0 = 0; k0 < a.n_in; k0 += F32_TILE) {
        const int32_t k = k0 + c;
        xs[r * (F32_TILE + 1) + c] = row < a.n_rows && k < a.n_in ? a.x[row * a.x_stride + k] : 0;
        ws[r * (F32_TILE + 1) + c] = w_row < a.n_out && k < a.n_in ? a.w[(int64_t)w_row * a.n_in + k] : 0;
        __syncthreads();
        const int n = a.n_in - k0 < F32_TILE ? a.n_in - k0 : F32_TILE;
        for (int i = 0; i < n; i++)
            sum = fmaf(xs[r * (F32_TILE + 1) + i], ws[c * (F32_TILE + 1) + i], sum);
        __syncthreads();
    }
    if (row >= a.n_rows || col >= a.n_out)
        return;
    float *out = a.out + row * a.out_stride + col;
    const float y = a.bias ? sum + a.bias[col] : sum;
    *out = a.add ? y + *out : y;
}

/* ---- linear ---- */

/* Where a piece of the rows is worked on: x as the product reads it, its scales and what they are made of, and with glu what the product gives. */
struct room {
    void *x;
    float *scale, *normed, *y;
    int64_t x_stride;
    int32_t rows; /* of a piece */
};

static size_t whole_16(size_t n)
{
    return (n + 15) / 16 * 16;
}

static struct room room_for(const struct qr_queue *q, const struct qr_linear_args *a)
{
    const enum qr_dtype w = a->w->packed_dtype;
    const bool eights = w == QR_F8, narrow = w != QR_F32 && !eights;
    struct room room = {q->scratch, NULL, NULL, NULL, narrow ? qr_whole_chunks(a->n_in) : eights ? (int64_t)whole_16((size_t)a->n_in) : a->n_in, 0};
    const size_t normed_bytes = a->norm_w && !narrow ? (size_t)a->n_in * sizeof(float) : 0;
    const size_t x_bytes = eights || narrow ? (size_t)room.x_stride * (eights ? 1 : sizeof(uint16_t)) : 0, scale_bytes = eights ? sizeof(float) : 0;
    const size_t y_bytes = a->glu ? (size_t)a->n_out * sizeof(float) : 0, per_row = x_bytes + scale_bytes + normed_bytes + y_bytes + 64;
    const size_t most = q->scratch_bytes / per_row;
    QR_ASSERT(most > 0);
    room.rows = most < (size_t)a->n_rows ? (int32_t)most : a->n_rows;
    const size_t n = (size_t)room.rows;
    room.scale = (float *)((char *)q->scratch + whole_16(x_bytes * n));
    room.normed = (float *)((char *)room.scale + whole_16(scale_bytes * n));
    room.y = (float *)((char *)room.normed + whole_16(normed_bytes * n));
    return room;
}

/* Rows of a product's x as it reads them, and where it writes. */
struct piece {
    const struct qr_linear_args *a;
    const struct room *room;
    const float *x;
    float *y;
    int64_t y_stride;
    int32_t n;
};

/* The rows as they are, or behind their norm: f32, *stride apart. */
static const float *normed_rows(struct qr_queue *q, const struct piece *p, int64_t *stride)
{
    const struct qr_linear_args *a = p->a;
    struct qr_norm_args norm = {};
    *stride = a->norm_w ? a->n_in : a->x_stride;
    if (!a->norm_w)
        return p->x;
    norm.out = p->room->normed, norm.x = p->x, norm.w = a->norm_w;
    norm.out_stride = a->n_in, norm.x_stride = a->x_stride, norm.n_rows = p->n, norm.n_cols = a->n_in, norm.eps = a->eps;
    qr_cuda_rms_norm(q, &norm);
    return norm.out;
}

static void multiply_numbers(struct qr_queue *q, const struct piece *p)
{
    int64_t stride;
    const struct qr_linear_args *a = p->a;
    const float *x = normed_rows(q, p, &stride);
    const struct product_f32 product = {p->y, x, (const float *)a->w->packed, a->bias, p->y_stride, stride, p->n, a->n_in, a->n_out, a->add};
    QR_LAUNCH(multiply_f32, dim3(qr_blocks(a->n_out, F32_TILE), qr_blocks(p->n, F32_TILE)), F32_TILE * F32_TILE, 0, q, product);
}

static void multiply_halves(struct qr_queue *q, const struct piece *p)
{
    const struct qr_linear_args *a = p->a;
    const struct qr_narrow narrow = {(uint16_t *)p->room->x, p->x, a->norm_w, p->room->x_stride, a->x_stride, p->n, a->n_in, a->eps};
    const struct qr_plan_product plan = {QR_PLAN_FORWARD, p->y, narrow.to, a->w->packed, a->bias, p->y_stride, p->room->x_stride, a->n_in, p->n, a->n_out,
                                         a->n_in, a->add, false, NULL, NULL};
    qr_plan_prepare(q, &plan, multiply_own);
    qr_cuda_narrow(q, &narrow);
    qr_plan_multiply(q, &plan, multiply_own);
}

static void multiply_integers(struct qr_queue *q, const struct piece *p)
{
    const struct qr_linear_args *a = p->a;
    const struct qr_narrow narrow = {(uint16_t *)p->room->x, p->x, a->norm_w, p->room->x_stride, a->x_stride, p->n, a->n_in, a->eps};
    struct qr_product product = {p->y, narrow.to, NULL, a->bias, p->y_stride, p->room->x_stride, p->n, a->n_in, a->n_out, a->add, {}, NULL};
    product.coded = qr_coded_of(a->w->packed, a->w->packed_dtype, a->n_out, a->n_in);
    qr_cuda_narrow(q, &narrow);
    multiply_bf16(q, &product);
}

/* x as E4M3 rows in the room. */
static void make_eights(struct qr_queue *q, const struct piece *p)
{
    int64_t stride;
    const float *x = normed_rows(q, p, &stride);
    const struct qr_eights rows = {(uint8_t *)p->room->x, p->room->scale, x, p->room->x_stride, stride, p->n, p->a->n_in};
    qr_cuda_round_rows(q, &rows);
}

static void multiply_eights(struct qr_queue *q, const struct piece *p)
{
    const struct qr_linear_args *a = p->a;
    const struct qr_coded w = qr_coded_of(a->w->packed, QR_F8, a->n_out, a->n_in);
    const struct qr_plan_product plan = {QR_PLAN_FORWARD, p->y, p->room->x, w.codes, a->bias, p->y_stride, p->room->x_stride, w.code_bytes, p->n, a->n_out,
                                         (int32_t)w.code_bytes, a->add, true, p->room->scale, w.scale};
    qr_plan_prepare(q, &plan, multiply_own);
    make_eights(q, p);
    qr_plan_multiply(q, &plan, multiply_own);
}

/* Rows [first, first + n). */
static void linear_piece(struct qr_queue *q, const struct qr_linear_args *a, const struct room *room, int32_t first, int32_t n)
{
    const enum qr_dtype w = a->w->packed_dtype;
    float *out = a->out + (int64_t)first * a->out_stride;
    const struct piece p = {a, room, a->x + (int64_t)first * a->x_stride, a->glu ? room->y : out, a->glu ? a->n_out : a->out_stride, n};
    if (w == QR_F32)
        multiply_numbers(q, &p);
    else if (w == QR_BF16)
        multiply_halves(q, &p);
    else if (w == QR_F8)
        multiply_eights(q, &p);
    else
        multiply_integers(q, &p);
    if (!a->glu)
        return;
    struct qr_glu_args glu = {};
    glu.out = out, glu.gate_up = p.y, glu.out_stride = a->out_stride, glu.gate_up_stride = p.y_stride, glu.n_rows = n, glu.n_cols = a->n_out / 2;
    glu.act = a->act, glu.clamp = a->clamp;
    qr_cuda_glu(q, &glu);
}

/* ---- few rows ---- */

/* What a product of few rows has beside its arguments: x that the one before it left as bf16 rows, rows for the one behind it, and the way to the cache. */
struct beside {
    const uint16_t *x;
    uint16_t *halves;
    int64_t x_stride, halves_stride;
    const struct qr_qkv_args *heads;
};

static bool is_few(const struct qr_linear_args *a)
{
    return a->n_rows > 0 && a->n_rows <= QR_FEW_ROWS && a->w->packed_dtype != QR_F32;
}

/* Where x comes from: bf16 rows that are there, or are made here; or each block makes them. */
static void set_rows(struct qr_queue *q, struct qr_few *f, const struct qr_linear_args *a, const struct beside *b)
{
    struct qr_linear_args rows_only = *a;
    rows_only.glu = false; /* no room for what leaves the product */
    const struct room room = room_for(q, &rows_only);
    const struct piece p = {a, &room, a->x, NULL, 0, a->n_rows};
    QR_ASSERT(room.rows == a->n_rows);
    if (a->w->packed_dtype == QR_F8) {
        make_eights(q, &p);
        f->product.x = (const uint16_t *)room.x, f->product.x_stride = room.x_stride, f->product.x_scale = room.scale;
        f->product.n_in = (int32_t)f->product.coded.code_bytes;
    } else if (b->x) {
        f->product.x = b->x, f->product.x_stride = b->x_stride;
    } else {
        f->floats = a->x, f->norm_w = a->norm_w, f->floats_stride = a->x_stride, f->eps = a->eps;
        if (qr_few_narrows(q, f))
            return;
        const struct qr_narrow narrow = {(uint16_t *)room.x, a->x, a->norm_w, room.x_stride, a->x_stride, a->n_rows, a->n_in, a->eps};
        qr_cuda_narrow(q, &narrow);
        f->floats = NULL, f->norm_w = NULL;
        f->product.x = narrow.to, f->product.x_stride = room.x_stride;
    }
}

static void check_linear(const struct qr_linear_args *a)
{
    QR_ASSERT(a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(a->w->packed_dtype == QR_BF16 || a->w->packed_dtype == QR_F32 || qr_coded_lies(a->w->packed_dtype));
    QR_ASSERT(a->stretches == NULL && !(a->add && a->glu));
}

static void linear_few(struct qr_queue *q, const struct qr_linear_args *a, const struct beside *b)
{
    check_linear(a);
    struct qr_few f = {};
    f.product.out = a->out, f.product.out_stride = a->out_stride, f.product.bias = a->bias, f.product.add = a->add;
    f.product.n_rows = a->n_rows, f.product.n_in = a->n_in, f.product.n_out = a->n_out;
    if (a->w->packed_dtype == QR_BF16)
        f.product.w = (const uint16_t *)a->w->packed;
    else
        f.product.coded = qr_coded_of(a->w->packed, a->w->packed_dtype, a->n_out, a->n_in);
    f.gated = a->glu, f.act = a->act, f.clamp = a->clamp;
    f.halves = b->halves, f.halves_stride = b->halves_stride, f.heads = b->heads;
    set_rows(q, &f, a, b);
    qr_cuda_few(q, &f);
}

extern "C" void qr_cuda_linear(struct qr_queue *q, const struct qr_linear_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
    check_linear(a);
    if (a->n_rows == 0)
        return;
    if (is_few(a)) {
        const struct beside nothing = {};
        linear_few(q, a, &nothing);
        return;
    }
    const struct room room = room_for(q, a);
    for (int32_t first = 0; first < a->n_rows; first += room.rows)
        linear_piece(q, a, &room, first, a->n_rows - first < room.rows ? a->n_rows - first : room.rows);
}

extern "C" void qr_cuda_linear_prepare(struct qr_queue *q, const struct qr_linear_args *a, int32_t rows_max)
{
    QR_ASSERT(q != NULL && a != NULL && a->w != NULL && a->w->packed != NULL);
    QR_ASSERT(rows_max >= 0);
    const bool eights = a->w->packed_dtype == QR_F8;
    struct qr_coded w = {};
    if (eights)
        w = qr_coded_of(a->w->packed, QR_F8, a->n_out, a->n_in);
    else if (a->w->packed_dtype != QR_BF16)
        return;
    for (int64_t rows = 1; rows < 2 * (int64_t)rows_max; rows *= 2) { /* some number in each bucket */
        const int32_t m = (int32_t)(rows < rows_max ? rows : rows_max);
        const struct qr_plan_product plan = {QR_PLAN_FORWARD, NULL, NULL, eights ? w.codes : a->w->packed, a->bias, 0, 0, eights ? w.code_bytes : a->n_in, m,
                                             a->n_out, eights ? (int32_t)w.code_bytes : a->n_in, a->add, eights, NULL, w.scale};
        qr_plan_prepare(q, &plan, multiply_own);
    }
}

/* Where rows for the next product are, behind what this one may have in scratch; NULL: they are not for it alone, it does not read them as bf16, or there is
 * no room. */
static uint16_t *hand_over(const struct qr_queue *q, const struct qr_linear_args *a, const struct qr_linear_args *next)
{
    const size_t at = (size_t)QR_FEW_ROWS * (size_t)qr_whole_chunks(a->n_in) * 8, n = (size_t)a->n_rows * (size_t)qr_whole_chunks(a->n_out / 2) * 2;
    if (!a->passing || !a->glu || next->x != a->out || next->norm_w || !is_few(next) || next->w->packed_dtype == QR_F8 || at + n > q->scratch_bytes)
        return NULL;
    return (uint16_t *)((char *)q->scratch + at);
}

extern "C" void qr_cuda_chain(struct qr_queue *q, const struct qr_chain_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->linear != NULL);
    QR_ASSERT(a->n >= 1 && a->n <= QR_CHAIN_MAX);
    struct beside b = {};
    bool heads_done = false;
    for (int32_t i = 0; i < a->n; i++) {
        const struct qr_linear_args *l = &a->linear[i];
        if (!is_few(l)) {
            qr_cuda_linear(q, l);
            continue;
        }
        b.halves = i + 1 < a->n && !b.x ? hand_over(q, l, l + 1) : NULL;
        b.halves_stride = qr_whole_chunks(l->n_out / 2);
        heads_done = i == a->n - 1 && a->heads && !l->add && !l->glu && qr_few_heads(a->heads);
        b.heads = heads_done ? a->heads : NULL;
        linear_few(q, l, &b);
        b.x = b.halves, b.x_stride = b.halves_stride;
    }
    if (a->heads && !heads_done && a->linear[0].n_rows > 0)
        qr_cuda_qkv(q, a->heads);
}
