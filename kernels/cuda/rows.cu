/* Kernels that treat rows one by one: norm, residual, embedding, gated unit, gathering. All are bound by bandwidth: what a thread moves is 16 bytes
 * wherever addresses allow it, and a row that needs a sum is read once and stays in registers. */
#include "kernels/cuda/product.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda/widths.h"

#define THREADS QR_TILE_THREADS
#define AT_ONCE QR_TILE_FOURS

/* Where each kernel begins: others may begin behind it, and those before it have ended. */
QR_DEVICE void begin()
{
    qr_grid_next();
    qr_grid_wait();
}

/* ---- rms_norm ---- */

template <int FOURS, int WARPS, bool VEC> QR_KERNEL(QR_ROW_THREADS_OF(WARPS)) norm(struct qr_norm_args a)
{
    QR_SHARED_ARRAY(float, partial, 32);
    begin();
    const int64_t row = qr_row_of_thread<WARPS>();
    const int32_t first = qr_col_of_thread<WARPS>(), n = row < a.n_rows ? a.n_cols : 0;
    const float *x = a.x + row * a.x_stride;
    float4 v[FOURS];
    for (int j = 0; j < FOURS; j++)
        v[j] = qr_load4<VEC>(x, first + j * QR_ROW_STEP(WARPS), n);
    const float r = qr_inverse_rms<FOURS, WARPS>(v, a.n_cols, a.eps, partial);
    for (int j = 0; j < FOURS; j++)
        v[j] = qr_mul4(qr_scale4(v[j], r), qr_load4<VEC>(a.w, first + j * QR_ROW_STEP(WARPS), n));
    for (int j = 0; j < FOURS; j++)
        qr_store4<VEC>(a.out + row * a.out_stride, first + j * QR_ROW_STEP(WARPS), n, v[j]);
}

extern "C" void qr_cuda_rms_norm(struct qr_queue *q, const struct qr_norm_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL && a->out != NULL && a->w != NULL);
    QR_ASSERT(a->n_cols > 0 && a->n_cols <= QR_ROW_COLS_MAX);
    if (a->n_rows == 0)
        return;
    const bool vec = qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->out) | QR_ADDRESS(a->w), a->n_cols | a->x_stride | a->out_stride);
#define LAUNCH(fours, warps, fast) QR_LAUNCH_NEXT((norm<fours, warps, fast>), qr_row_blocks(a->n_rows, warps), QR_ROW_THREADS_OF(warps), 0, q, *a)
#define LAUNCH_FOURS(fours, warps) LAUNCH(fours, warps, true)
    QR_FOR_ROWS(a->n_cols, vec, LAUNCH);
#undef LAUNCH_FOURS
#undef LAUNCH
}

extern "C" int qr_cuda_code_missing(void)
{
    struct cudaFuncAttributes found;
    const cudaError_t why = cudaFuncGetAttributes(&found, (const void *)norm<1, 1, true>);
    (void)cudaGetLastError();
    return (int)why;
}

/* ---- what needs no sum ---- */

template <bool VEC> QR_KERNEL(THREADS) add(struct qr_add_args a, struct qr_tiles t)
{
    int32_t col;
    begin();
    const int64_t row = qr_tile_row(t, &col);
    const int32_t n = row < a.n_rows ? a.n_cols : 0, step = 4 * t.lanes;
    float *x = a.x + row * a.x_stride;
    const float *delta = a.delta + row * a.delta_stride;
    float4 u[AT_ONCE], v[AT_ONCE];
    for (int j = 0; j < AT_ONCE; j++)
        u[j] = qr_load4<VEC>(x, col + j * step, n), v[j] = qr_load4<VEC>(delta, col + j * step, n);
    for (int j = 0; j < AT_ONCE; j++)
        qr_store4<VEC>(x, col + j * step, n, qr_add4(u[j], v[j]));
}

extern "C" void qr_cuda_residual_add(struct qr_queue *q, const struct qr_add_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL);
    QR_ASSERT(a->delta != NULL && a->n_cols > 0);
    if (a->n_rows == 0)
        return;
    const struct qr_tiles t = qr_tiles_of(a->n_rows, a->n_cols);
    if (qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->delta), a->n_cols | a->x_stride | a->delta_stride))
        QR_LAUNCH_NEXT(add<true>, qr_tile_blocks(t), THREADS, 0, q, *a, t);
    else
        QR_LAUNCH_NEXT(add<false>, qr_tile_blocks(t), THREADS, 0, q, *a, t);
}

template <bool VEC> QR_KERNEL(THREADS) gather(struct qr_gather_args a, struct qr_tiles t)
{
    int32_t col;
    begin();
    const int64_t row = qr_tile_row(t, &col);
    const int32_t n = row < a.n_rows ? a.n_cols : 0, step = 4 * t.lanes;
    if (n == 0)
        return;
    const float *x = a.x + a.row[row] * a.x_stride;
    float4 v[AT_ONCE];
    for (int j = 0; j < AT_ONCE; j++)
        v[j] = qr_load4<VEC>(x, col + j * step, n);
    for (int j = 0; j < AT_ONCE; j++)
        qr_store4<VEC>(a.out + row * a.out_stride, col + j * step, n, v[j]);
}

extern "C" void qr_cuda_gather_rows(struct qr_queue *q, const struct qr_gather_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->x != NULL && a->out != NULL);
    QR_ASSERT(a->row != NULL || a->n_rows == 0);
    if (a->n_rows == 0)
        return;
    const struct qr_tiles t = qr_tiles_of(a->n_rows, a->n_cols);
    if (qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->out), a->n_cols | a->x_stride | a->out_stride))
        QR_LAUNCH_NEXT(gather<true>, qr_tile_blocks(t), THREADS, 0, q, *a, t);
    else
        QR_LAUNCH_NEXT(gather<false>, qr_tile_blocks(t), THREADS, 0, q, *a, t);
}

/* ---- glu ---- */

template <enum qr_act ACT> QR_DEVICE float4 gate4(float4 g, float4 up, struct qr_clamp c)
{
    return make_float4(qr_gate<ACT>(g.x, up.x, c), qr_gate<ACT>(g.y, up.y, c), qr_gate<ACT>(g.z, up.z, c),
                       qr_gate<ACT>(g.w, up.w, c));
}

template <bool VEC, enum qr_act ACT> QR_KERNEL(THREADS) glu(struct qr_glu_args a, struct qr_tiles t)
{
    int32_t col;
    begin();
    const int64_t row = qr_tile_row(t, &col);
    const int32_t n = row < a.n_rows ? a.n_cols : 0, step = 4 * t.lanes;
    const float *gate = a.gate_up + row * a.gate_up_stride, *up = gate + a.n_cols;
    float4 g[AT_ONCE], u[AT_ONCE];
    for (int j = 0; j < AT_ONCE; j++)
        g[j] = qr_load4<VEC>(gate, col + j * step, n), u[j] = qr_load4<VEC>(up, col + j * step, n);
    for (int j = 0; j < AT_ONCE; j++)
        qr_store4<VEC>(a.out + row * a.out_stride, col + j * step, n, gate4<ACT>(g[j], u[j], a.clamp));
}

template <enum qr_act ACT> static void launch_glu(struct qr_queue *q, const struct qr_glu_args *a)
{
    const struct qr_tiles t = qr_tiles_of(a->n_rows, a->n_cols);
    if (qr_in_fours(QR_ADDRESS(a->gate_up) | QR_ADDRESS(a->out), a->n_cols | a->gate_up_stride | a->out_stride))
        QR_LAUNCH_NEXT((glu<true, ACT>), qr_tile_blocks(t), THREADS, 0, q, *a, t);
    else
        QR_LAUNCH_NEXT((glu<false, ACT>), qr_tile_blocks(t), THREADS, 0, q, *a, t);
}

extern "C" void qr_cuda_glu(struct qr_queue *q, const struct qr_glu_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->gate_up != NULL && a->out != NULL);
    QR_ASSERT((a->act != QR_ACT_CLAMPED || a->clamp.limit > 0) && a->n_cols > 0);
    if (a->n_rows == 0)
        return;
    if (a->act == QR_ACT_SILU)
        launch_glu<QR_ACT_SILU>(q, a);
    else if (a->act == QR_ACT_GELU_TANH)
        launch_glu<QR_ACT_GELU_TANH>(q, a);
    else
        launch_glu<QR_ACT_CLAMPED>(q, a);
}

/* ---- embed ---- */

struct table { /* the part of struct qr_embed_args that is the device's */
    float *out;
    const void *rows;
    const int32_t *ids;
    const struct qr_drawn *drawn;
    int64_t out_stride, row_stride;
    int32_t n_rows, n_cols, n_vocab;
    float scale;
};

template <enum qr_dtype TYPE> QR_DEVICE float load_number(const void *row, int32_t i)
{
    if (TYPE == QR_F32)
        return ((const float *)row)[i];
    const uint32_t h = ((const uint16_t *)row)[i];
    return TYPE == QR_BF16 ? qr_from_bf16(h) : qr_from_f16(h);
}

template <enum qr_dtype TYPE, bool VEC> QR_DEVICE float4 load_numbers(const void *row, int32_t i, int32_t n)
{
    if (TYPE == QR_F32)
        return qr_load4<VEC>((const float *)row, i, n);
    if (i >= n)
        return make_float4(0, 0, 0, 0);
    if (VEC) {
        const uint2 h = *(const uint2 *)((const uint16_t *)row + i);
        if (TYPE == QR_BF16)
            return make_float4(qr_from_bf16(h.x & 0xffffu), qr_from_bf16(h.x >> 16), qr_from_bf16(h.y & 0xffffu), qr_from_bf16(h.y >> 16));
        return make_float4(qr_from_f16(h.x & 0xffffu), qr_from_f16(h.x >> 16), qr_from_f16(h.y & 0xffffu), qr_from_f16(h.y >> 16));
    }
    return make_float4(load_number<TYPE>(row, i), i + 1 < n ? load_number<TYPE>(row, i + 1) : 0, i + 2 < n ? load_number<TYPE>(row, i + 2) : 0,
                       i + 3 < n ? load_number<TYPE>(row, i + 3) : 0);
}

template <enum qr_dtype TYPE, bool VEC> QR_KERNEL(THREADS) embed(struct table a, struct qr_tiles t)
{
    int32_t col;
    begin();
    const int64_t row = qr_tile_row(t, &col);
    const int32_t step = 4 * t.lanes;
    if (row >= a.n_rows)
        return;
    const int32_t given = a.ids[row], id = given < 0 && a.drawn ? a.drawn[-1 - given].id : given;
    QR_DEVICE_ASSERT(id >= 0 && id < a.n_vocab);
    const void *from = (const char *)a.rows + id * a.row_stride * (TYPE == QR_F32 ? 4 : 2);
    float4 v[AT_ONCE];
    for (int j = 0; j < AT_ONCE; j++)
        v[j] = load_numbers<TYPE, VEC>(from, col + j * step, a.n_cols);
    for (int j = 0; j < AT_ONCE; j++)
        qr_store4<VEC>(a.out + row * a.out_stride, col + j * step, a.n_cols, qr_scale4(v[j], a.scale));
}

/* Rows of a coded matrix, eight numbers a thread; so many blocks side by side in a row. */
QR_KERNEL(THREADS) embed_coded(struct table a, struct qr_coded c, int32_t per_row)
{
    begin();
    const int64_t row = (int64_t)blockIdx.x / per_row;
    const int32_t i = QR_CHUNK * ((int32_t)blockIdx.x % per_row * THREADS + (int32_t)threadIdx.x);
    const int32_t given = a.ids[row], id = given < 0 && a.drawn ? a.drawn[-1 - given].id : given;
    QR_DEVICE_ASSERT(id >= 0 && id < a.n_vocab);
    if (i >= a.n_cols)
        return;
    const uint4 v = qr_decode_chunk(c, id, i);
    const uint32_t h[4] = {v.x, v.y, v.z, v.w};
    float *out = a.out + row * a.out_stride + i;
#pragma unroll
    for (int k = 0; k < QR_CHUNK; k++)
        if (i + k < a.n_cols)
            out[k] = a.scale * qr_from_bf16(k % 2 ? h[k / 2] >> 16 : h[k / 2] & 0xffffu);
}

extern "C" void qr_cuda_embed(struct qr_queue *q, const struct qr_embed_args *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->table != NULL && (a->table->data != NULL) != (a->packed != NULL));
    const bool coded = a->packed && qr_dtype_is_coded(a->table->dtype);
    QR_ASSERT(a->table->n_dims == 2 && (coded || a->table->dtype == QR_F32 || a->table->dtype == QR_BF16 || a->table->dtype == QR_F16));
    if (a->n_rows == 0)
        return;
    const struct table k = {a->out, a->packed ? a->packed : a->table->data, a->ids, a->drawn, a->out_stride, a->table->stride[0], a->n_rows,
                            (int32_t)a->table->shape[1], (int32_t)a->table->shape[0], a->scale}; /* packed rows lie as the table's do */
    if (coded) {
        const int32_t per_row = (int32_t)qr_blocks(k.n_cols, QR_CHUNK * THREADS);
        QR_ASSERT(k.n_rows <= INT32_MAX / per_row);
        QR_LAUNCH_NEXT(embed_coded, (unsigned int)(k.n_rows * per_row), THREADS, 0, q, k, qr_coded_of(a->packed, a->table->dtype, k.n_vocab, k.n_cols),
                  per_row);
        return;
    }
    const struct qr_tiles t = qr_tiles_of(k.n_rows, k.n_cols);
    const bool vec = qr_in_fours(QR_ADDRESS(k.rows) | QR_ADDRESS(k.out), k.n_cols | k.out_stride | k.row_stride);
#define LAUNCH(type)                                                                         \
    do {                                                                                     \
        if (vec)                                                                             \
            QR_LAUNCH_NEXT((embed<type, true>), qr_tile_blocks(t), THREADS, 0, q, k, t);     \
        else                                                                                 \
            QR_LAUNCH_NEXT((embed<type, false>), qr_tile_blocks(t), THREADS, 0, q, k, t);    \
    } while (0)
    if (a->table->dtype == QR_F32)
        LAUNCH(QR_F32);
    else if (a->table->dtype == QR_BF16)
        LAUNCH(QR_BF16);
    else
        LAUNCH(QR_F16);
#undef LAUNCH
}

/* ---- x to bf16 ---- */

QR_DEVICE void put_narrow(const struct qr_narrow &a, int64_t row, int32_t i, float4 v)
{
    if (i >= a.to_stride) /* a multiple of 8: whole fours */
        return;
    uint2 h;
    h.x = qr_to_bf16(v.x) | qr_to_bf16(v.y) << 16;
    h.y = qr_to_bf16(v.z) | qr_to_bf16(v.w) << 16;
    *(uint2 *)(a.to + row * a.to_stride + i) = h;
}

template <int FOURS, int WARPS, bool VEC> QR_KERNEL(QR_ROW_THREADS_OF(WARPS)) norm_narrow(struct qr_narrow a)
{
    QR_SHARED_ARRAY(float, partial, 32);
    begin();
    const int64_t row = qr_row_of_thread<WARPS>();
    const int32_t first = qr_col_of_thread<WARPS>(), n = row < a.n_rows ? a.n_cols : 0;
    float4 v[FOURS];
    for (int j = 0; j < FOURS; j++)
        v[j] = qr_load4<VEC>(a.x + row * a.x_stride, first + j * QR_ROW_STEP(WARPS), n);
    const float r = qr_inverse_rms<FOURS, WARPS>(v, a.n_cols, a.eps, partial);
    for (int j = 0; j < FOURS; j++)
        v[j] = qr_mul4(qr_scale4(v[j], r), qr_load4<VEC>(a.norm_w, first + j * QR_ROW_STEP(WARPS), n));
    for (int j = 0; j < FOURS && n > 0; j++)
        put_narrow(a, row, first + j * QR_ROW_STEP(WARPS), v[j]);
}

template <bool VEC> QR_KERNEL(THREADS) narrow_rows(struct qr_narrow a)
{
    begin();
    const int64_t row = blockIdx.x;
    for (int32_t i0 = 4 * (int32_t)threadIdx.x; i0 < a.to_stride; i0 += 4 * THREADS * AT_ONCE) {
        float4 v[AT_ONCE];
        for (int j = 0; j < AT_ONCE; j++)
            v[j] = qr_load4<VEC>(a.x + row * a.x_stride, i0 + 4 * THREADS * j, a.n_cols);
        for (int j = 0; j < AT_ONCE; j++)
            put_narrow(a, row, i0 + 4 * THREADS * j, v[j]);
    }
}

void qr_cuda_narrow(struct qr_queue *q, const struct qr_narrow *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->to != NULL && a->x != NULL);
    QR_ASSERT(a->to_stride % QR_CHUNK == 0 && a->n_cols <= a->to_stride && a->n_rows > 0);
    const bool vec = qr_in_fours(QR_ADDRESS(a->x) | QR_ADDRESS(a->norm_w), a->n_cols | a->x_stride);
    if (!a->norm_w) {
        if (vec)
            QR_LAUNCH_NEXT(narrow_rows<true>, (unsigned int)a->n_rows, THREADS, 0, q, *a);
        else
            QR_LAUNCH_NEXT(narrow_rows<false>, (unsigned int)a->n_rows, THREADS, 0, q, *a);
        return;
    }
    QR_ASSERT(a->n_cols <= QR_ROW_COLS_MAX);
#define LAUNCH(fours, warps, fast) QR_LAUNCH_NEXT((norm_narrow<fours, warps, fast>), qr_row_blocks(a->n_rows, warps), QR_ROW_THREADS_OF(warps), 0, q, *a)
#define LAUNCH_FOURS(fours, warps) LAUNCH(fours, warps, true)
    QR_FOR_ROWS(a->n_cols, vec, LAUNCH);
#undef LAUNCH_FOURS
#undef LAUNCH
}

/* ---- x to E4M3 ---- */

/* A block a row, as kernels/f8.h has it. */
QR_KERNEL(THREADS) round_rows(struct qr_eights a)
{
    QR_SHARED_ARRAY(uint32_t, largest, THREADS / QR_WARP);
    begin();
    const int64_t row = blockIdx.x;
    const float *x = a.x + row * a.x_stride;
    uint32_t most = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < a.n_cols; i += THREADS)
        most = max(most, __float_as_uint(x[i]) & 0x7fffffffu);
    most = __reduce_max_sync(QR_ALL_LANES, most);
    if (threadIdx.x % QR_WARP == 0)
        largest[threadIdx.x / QR_WARP] = most;
    __syncthreads();
    for (int i = 0; i < THREADS / QR_WARP; i++)
        most = max(most, largest[i]);
    float scale = 0, inverse = 0;
    if (most >= 0x7f800000u)
        scale = __uint_as_float(0x7fc00000u);
    else if (most >= 0x03800000u)
        scale = __uint_as_float(most) / 448.0f, inverse = 448.0f / __uint_as_float(most);
    if (threadIdx.x == 0)
        a.scale[row] = scale;
    for (int32_t i = 4 * (int32_t)threadIdx.x; i < a.to_stride; i += 4 * THREADS) {
        uint32_t code = 0;
        for (int j = 0; j < 4; j++)
            if (i + j < a.n_cols && inverse != 0)
                code |= qr_to_e4m3(x[i + j] * inverse) << (8 * j);
        *(uint32_t *)(a.to + row * a.to_stride + i) = code;
    }
}

void qr_cuda_round_rows(struct qr_queue *q, const struct qr_eights *a)
{
    QR_ASSERT(q != NULL && a != NULL && a->to != NULL && a->scale != NULL && a->x != NULL);
    QR_ASSERT(a->to_stride % 16 == 0 && a->n_cols <= a->to_stride && a->n_rows > 0);
    QR_LAUNCH_NEXT(round_rows, (unsigned int)a->n_rows, THREADS, 0, q, *a);
}

QR_STOPS(rows)
