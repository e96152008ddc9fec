/* product.h - bf16 products by tiles of mma.sync: an output is one chain over steps of 16 inputs upwards from 0, whatever the tile. One matrix (linear.cu),
 * or a matrix of a stack for each share of rows (experts.cu). For .cu files. */
#ifndef QR_KERNELS_CUDA_PRODUCT_H
#define QR_KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/coded.h"
#include "kernels/cuda/products.h"

/* How weights lie: bf16 rows aligned to 16 bytes, which go to shared memory by themselves; or rows that are not, and codes, which become bf16 on the way. */
enum { QR_PRODUCT_ALIGNED, QR_PRODUCT_ANY, QR_PRODUCT_KINDS };

/* Rows by the matrix that they are for. Lists are the device's. Tile t is rows first[t] .. end[t] - 1, at most BM, of matrix[t]. */
struct qr_product_shares {
    const int32_t *n_tiles, *matrix, *first, *end;
    const int32_t *x_row;   /* where in x a row's numbers are, times per_row; NULL: row r is row r of x */
    int32_t per_row;
    int64_t stack_bytes;    /* from one matrix to the next */
};

struct qr_product {
    float *out;
    const uint16_t *x, *w;
    const float *bias;
    int64_t out_stride, x_stride; /* x rows end in zeros at a multiple of 8 */
    int32_t n_rows, n_in, n_out;
    bool add;
    struct qr_coded coded;        /* instead of w, where weights are codes */
    const float *x_scale;         /* [n_rows], or NULL; x is E4M3 bytes then, whose rows end in zeros at a multiple of 16 */
};

#define QR_PRODUCT_SHARED(BM, BN, BK, STAGES) ((size_t)((BM) + (BN)) * (BK) * (STAGES) * sizeof(uint16_t))

static inline int qr_product_kind(const struct qr_product *a)
{
    return a->coded.form == QR_CODED_NONE && a->n_in % QR_CHUNK == 0 && QR_ADDRESS(a->w) % 16 == 0 ? QR_PRODUCT_ALIGNED : QR_PRODUCT_ANY;
}

/* Whether weights are codes that can go to shared memory as they are, in pieces of 16 bytes. */
static inline bool qr_product_has_pieces(const struct qr_product *a)
{
    return a->coded.form != QR_CODED_NONE && a->coded.code_bytes % 16 == 0 && QR_ADDRESS(a->coded.codes) % 16 == 0;
}

/* ---- codes become bf16 ---- */

/* What four codes of 4 bits stand for, a byte each. */
QR_DEVICE uint32_t qr_levels_of(uint4 level, uint32_t codes)
{
    const uint32_t which = codes & 0x7777u, upper = __byte_perm(0, 0xffffffffu, (codes >> 3 & 0x1111u) * 4);
    return (__byte_perm(level.x, level.y, which) & ~upper) | (__byte_perm(level.z, level.w, which) & upper);
}

/* Scales and offsets as kernels/coded.h has them: single operations. Codes of 4 bits are in v.x. */
QR_DEVICE uint4 qr_decode_stored(const struct qr_coded &c, int64_t o, int32_t unit, int32_t group, uint2 v)
{
    const int64_t u = o * c.n_units + unit, g = o * c.n_groups + group;
    const float factor = c.factor[o];
    float scale = qr_from_f16(c.half[u]) * factor, offset = c.half_offset ? qr_from_f16(c.half_offset[u]) * factor : 0;
    if (c.step) {
        scale *= (float)c.step[g];
        offset *= c.half_offset ? (float)c.offset_step[g] : 0;
    }
    if (c.zero)
        offset = -(scale * (float)c.offset_step[g]);
    if (c.level) {
        const uint4 level = *(const uint4 *)(c.level + o / 16 * 16);
        const uint32_t codes = v.x;
        v.x = qr_levels_of(level, codes);
        v.y = qr_levels_of(level, codes >> 16);
    }
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t two = (i < 2 ? v.x : v.y) >> (16 * (i % 2));
        h[i] = qr_bf16x2(fmaf(scale, (float)(int8_t)(two & 0xffu), offset), fmaf(scale, (float)(int8_t)(two >> 8 & 0xffu), offset));
    }
    return make_uint4(h[0], h[1], h[2], h[3]);
}

/* Eight E4M3 numbers, which bf16 holds exactly. */
QR_DEVICE uint4 qr_decode_eights(uint2 v)
{
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t two = (i < 2 ? v.x : v.y) >> (16 * (i % 2)), t = (two & 0xffu) << 8 | (two & 0xff00u) << 16;
        h[i] = qr_mul_bf16x2((t & 0x80008000u) | (t >> 4 & 0x07f007f0u), 0x7b807b80u); /* 2^120: the exponent was that much too small */
    }
    return make_uint4(h[0], h[1], h[2], h[3]);
}

/* The same matrix, `by` bytes further on: another one of a stack. */
template <class T> QR_DEVICE const T *qr_moved(const T *p, int64_t by)
{
    return p ? (const T *)((const char *)p + by) : p;
}

QR_DEVICE struct qr_coded qr_coded_moved(struct qr_coded c, int64_t by)
{
    c.codes = qr_moved(c.codes, by), c.scale = qr_moved(c.scale, by);
    c.half = qr_moved(c.half, by), c.half_offset = qr_moved(c.half_offset, by), c.factor = qr_moved(c.factor, by);
    c.step = qr_moved(c.step, by), c.offset_step = qr_moved(c.offset_step, by), c.level = qr_moved(c.level, by);
    return c;
}

/* Whether two codes are in a byte. */
QR_HOST_DEVICE bool qr_coded_halves(const struct qr_coded &c)
{
    return c.form == QR_CODED_STORED && c.level;
}

/* Eight weights of output o, of this unit and group of inputs, whose codes are v (in v.x those of 4 bits): as bf16, to be multiplied by c.scale[o] where there
 * is a scale. */
QR_DEVICE uint4 qr_decode(const struct qr_coded &c, int64_t o, int32_t unit, int32_t group, uint2 v)
{
    return c.form == QR_CODED_EIGHTS ? qr_decode_eights(v) : qr_decode_stored(c, o, unit, group, v);
}

/* Those from input k on, a multiple of 8. */
QR_DEVICE uint4 qr_decode_chunk(const struct qr_coded &c, int64_t o, int32_t k)
{
    const uint8_t *at = c.codes + o * c.code_bytes + (qr_coded_halves(c) ? k / 2 : k);
    const int32_t unit = c.form == QR_CODED_STORED ? k / c.unit : 0, group = c.form == QR_CODED_STORED ? k / c.group : 0;
    return qr_decode(c, o, unit, group, qr_coded_halves(c) ? make_uint2(*(const uint32_t *)at, 0) : *(const uint2 *)at);
}

/* ---- tiles ---- */

/* Where a block works: rows [row0, end), and x's row of each. */
struct qr_product_place {
    int32_t row0, end, col0;
    const int32_t *x_row;
    int32_t per_row;
};

QR_DEVICE const uint16_t *qr_product_x(const struct qr_product &a, const struct qr_product_place &at, int32_t row)
{
    return a.x + (at.x_row ? at.x_row[row] / at.per_row : row) * a.x_stride;
}

/* Inputs [k0, k0 + BK) of the block's rows of x, copied to a stage. */
template <int BM, int BK, int THREADS, int KIND>
QR_DEVICE void qr_product_fetch_rows(uint16_t *stage, const struct qr_product &a, const struct qr_product_place &at, int32_t k0)
{
    const int per_row = BK / QR_CHUNK;
    for (int i = (int)threadIdx.x; i < BM * per_row; i += THREADS) {
        const int r = i / per_row, c = i % per_row;
        const bool there = at.row0 + r < at.end && k0 + c * QR_CHUNK < a.n_in;
        if (KIND == QR_PRODUCT_ANY && a.x_scale) {
            const uint8_t *from = (const uint8_t *)a.x + (at.row0 + r) * a.x_stride + k0 + c * QR_CHUNK;
            *(uint4 *)qr_chunk_of<BK>(stage, r, c) = there ? qr_decode_eights(*(const uint2 *)from) : make_uint4(0, 0, 0, 0);
            continue;
        }
        qr_cp_async_16(qr_chunk_of<BK>(stage, r, c), there ? qr_product_x(a, at, at.row0 + r) + k0 + c * QR_CHUNK : a.x, there ? 16 : 0);
    }
}

/* Eight weights of output o from input k on, copied to `to`; zeros, where they are not there. */
template <int KIND> QR_DEVICE void qr_product_fetch_weights(uint16_t *to, const struct qr_product &a, int32_t o, int32_t k, bool there)
{
    if (KIND == QR_PRODUCT_ANY && a.coded.form != QR_CODED_NONE) {
        *(uint4 *)to = there ? qr_decode_chunk(a.coded, o, k) : make_uint4(0, 0, 0, 0);
        return;
    }
    const uint16_t *from = there ? a.w + (int64_t)o * a.n_in + k : a.w;
    if (KIND == QR_PRODUCT_ALIGNED)
        qr_cp_async_16(to, from, there ? 16 : 0);
    else
        qr_copy_chunk(to, from, there ? a.n_in - k : 0);
}

template <int BM, int BN, int BK, int THREADS, int KIND>
QR_DEVICE void qr_product_fetch(uint16_t *stage, const struct qr_product &a, const struct qr_product_place &at, int32_t k0)
{
    const int per_row = BK / QR_CHUNK;
    qr_product_fetch_rows<BM, BK, THREADS, KIND>(stage, a, at, k0);
    for (int i = (int)threadIdx.x; i < BN * per_row; i += THREADS) {
        const int r = i / per_row, c = i % per_row;
        qr_product_fetch_weights<KIND>(qr_chunk_of<BK>(stage + BM * BK, r, c), a, at.col0 + r, k0 + c * QR_CHUNK,
                                       at.col0 + r < a.n_out && k0 + c * QR_CHUNK < a.n_in);
    }
}

/* What a sum becomes: scaled where weights or rows are, with its bias. */
template <int KIND> QR_DEVICE float qr_product_result(const struct qr_product &a, int32_t r, int32_t c, float sum)
{
    if (KIND == QR_PRODUCT_ANY && a.coded.scale)
        sum *= a.x_scale ? a.x_scale[r] * a.coded.scale[c] : a.coded.scale[c];
    return a.bias ? sum + a.bias[c] : sum;
}

/* Sums of the block's tile, from 0 over all inputs. */
template <int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, int KIND, int M, int N>
QR_DEVICE void qr_product_sums(float (&sum)[M][N][4], uint16_t *shared, const struct qr_product &a, const struct qr_product_place &at)
{
    const int THREADS = WARPS_M * WARPS_N * QR_WARP, STAGE = (BM + BN) * BK;
    const int lane = threadIdx.x % QR_WARP, warp = threadIdx.x / QR_WARP;
    const int m0 = warp / WARPS_N * M * 16, n0 = warp % WARPS_N * N * 8;
    const int32_t n_steps = (a.n_in + BK - 1) / BK;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[m][n][i] = 0;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < n_steps)
            qr_product_fetch<BM, BN, BK, THREADS, KIND>(shared + s * STAGE, a, at, s * BK);
        qr_cp_async_commit();
    }
    for (int32_t step = 0; step < n_steps; step++) {
        qr_cp_async_wait<STAGES - 2>();
        __syncthreads();
        const int32_t next = step + STAGES - 1;
        if (next < n_steps)
            qr_product_fetch<BM, BN, BK, THREADS, KIND>(shared + next % STAGES * STAGE, a, at, next * BK);
        qr_cp_async_commit();
        uint16_t *x = shared + step % STAGES * STAGE, *w = x + BM * BK;
#pragma unroll
        for (int k = 0; k < BK / 16; k++) {
            uint32_t xa[M][4], wb[N][2];
#pragma unroll
            for (int m = 0; m < M; m++)
                qr_ldmatrix<4>(xa[m], qr_chunk_of<BK>(x, m0 + m * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int n = 0; n < N; n++)
                qr_ldmatrix<2>(wb[n], qr_chunk_of<BK>(w, n0 + n * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
                    qr_mma_bf16(sum[m][n], xa[m], wb[n]);
        }
    }
}

/* A warp's sums, from row m0 and column n0 of the block's tile on, written to `out`. */
template <int KIND, int M, int N>
QR_DEVICE void qr_product_put(const struct qr_product &a, const struct qr_product_place &at, int m0, int n0, const float (&sum)[M][N][4])
{
    const int lane = threadIdx.x % QR_WARP;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int32_t r = at.row0 + m0 + m * 16 + lane / 4 + (i / 2) * 8, c = at.col0 + n0 + n * 8 + 2 * (lane % 4) + i % 2;
                if (r >= at.end || c >= a.n_out)
                    continue;
                float *out = a.out + r * a.out_stride + c;
                const float y = qr_product_result<KIND>(a, r, c, sum[m][n][i]);
                *out = a.add ? y + *out : y;
            }
}

/* Blocks of BM rows and BN outputs, of WARPS_M by WARPS_N warps; BK inputs in each of STAGES stages. */
template <int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, int KIND>
QR_DEVICE void qr_product_tile(uint16_t *shared, const struct qr_product &a, const struct qr_product_place &at)
{
    const int M = BM / WARPS_M / 16, N = BN / WARPS_N / 8;
    const int warp = threadIdx.x / QR_WARP;
    float sum[M][N][4];
    qr_product_sums<BM, BN, BK, WARPS_M, WARPS_N, STAGES, KIND, M, N>(sum, shared, a, at);
    qr_product_put<KIND>(a, at, warp / WARPS_N * M * 16, warp % WARPS_N * N * 8, sum);
}

#endif
