/* Kernels for test_emu.c: what is right must give right results, and each mistake must be seen. */
#include "tests/cuda_emu/mistakes.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx_hopper.h"
#include "kernels/cuda/queue.h"

QR_DEVICE float warp_sum(float x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(QR_ALL_LANES, x, step);
    return x;
}

QR_DEVICE float block_sum(float x)
{
    QR_SHARED_ARRAY(float, partial, 32);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0)
        partial[warp] = x;
    __syncthreads();
    return warp_sum(lane < n_warps ? partial[lane] : 0.0f);
}

QR_KERNEL(256) block_sums(float *out, const float *x)
{
    const float sum = block_sum(x[blockIdx.x * 256 + threadIdx.x]);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

extern "C" void right_block_sums(cudaStream_t s, float *out, const float *x, int32_t n_blocks)
{
    QR_LAUNCH(block_sums, n_blocks, 256, 0, s, out, x);
}

QR_KERNEL(256) last_block_sum(float *out, float *partial, uint32_t *counter, const float *x)
{
    QR_SHARED_ARRAY(uint32_t, ticket, 1);
    const float sum = block_sum(x[blockIdx.x * 256 + threadIdx.x]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        ticket[0] = atomicAdd(counter, 1u);
    }
    __syncthreads();
    if (ticket[0] != gridDim.x - 1 || threadIdx.x != 0)
        return;
    __threadfence();
    float total = 0;
    for (unsigned int b = 0; b < gridDim.x; b++)
        total += partial[b];
    *out = total;
}

extern "C" void right_last_block_sum(cudaStream_t s, float *out, float *partial, uint32_t *counter, const float *x, int32_t n_blocks)
{
    QR_LAUNCH(last_block_sum, n_blocks, 256, 0, s, out, partial, counter, x);
}

/* a and b come by cp.async in two steps of 16, the second under way while the first is multiplied. */
QR_KERNEL(32) product(float *out, const uint16_t *a, const uint16_t *b)
{
    QR_SHARED_ARRAY(uint16_t, at, 2 * 16 * 16);
    QR_SHARED_ARRAY(uint16_t, bt, 2 * 16 * 8);
    const int lane = threadIdx.x;
    for (int step = 0; step < 2; step++) {
        qr_cp_async_16(&at[step * 256 + lane / 2 * 16 + lane % 2 * 8], a + lane / 2 * 32 + step * 16 + lane % 2 * 8);
        if (lane < 16)
            qr_cp_async_16(&bt[step * 128 + lane * 8], b + (step * 16 + lane) * 8);
        qr_cp_async_commit();
    }
    float d[4] = {0, 0, 0, 0};
    for (int step = 0; step < 2; step++) {
        if (step == 0)
            qr_cp_async_wait<1>();
        else
            qr_cp_async_wait<0>();
        __syncwarp();
        uint32_t ra[4], rb[2];
        qr_ldmatrix<4>(ra, &at[step * 256 + lane % 16 * 16 + lane / 16 * 8]);
        qr_ldmatrix_trans<2>(rb, &bt[step * 128 + lane % 16 * 8]);
        qr_mma_bf16(d, ra, rb);
    }
    for (int c = 0; c < 4; c++)
        out[(lane / 4 + c / 2 * 8) * 8 + lane % 4 * 2 + c % 2] = d[c];
}

extern "C" void right_product(cudaStream_t s, float *out, const uint16_t *a, const uint16_t *b)
{
    QR_LAUNCH(product, 1, 32, 0, s, out, a, b);
}

QR_KERNEL(32) product_s8(int32_t *out, const int8_t *a, const int8_t *b)
{
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t ra[4], rb[2];
    int32_t d[4] = {0, 0, 0, 0};
    for (int r = 0; r < 4; r++)
        ra[r] = *(const uint32_t *)(a + (g + r % 2 * 8) * 32 + t * 4 + r / 2 * 16);
    for (int r = 0; r < 2; r++)
        rb[r] = *(const uint32_t *)(b + g * 32 + t * 4 + r * 16);
    qr_mma_s8(d, ra, rb);
    for (int c = 0; c < 4; c++)
        out[(g + c / 2 * 8) * 8 + t * 2 + c % 2] = d[c];
}

extern "C" void right_product_s8(cudaStream_t s, int32_t *out, const int8_t *a, const int8_t *b)
{
    QR_LAUNCH(product_s8, 1, 32, 0, s, out, a, b);
}

QR_KERNEL(32) product_tf32(float *out, const float *a, const float *b)
{
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t ra[4], rb[2];
    float d[4] = {0, 0, 0, 0};
    for (int r = 0; r < 4; r++)
        ra[r] = __float_as_uint(a[(g + r % 2 * 8) * 8 + t + r / 2 * 4]);
    for (int r = 0; r < 2; r++)
        rb[r] = __float_as_uint(b[(t + r * 4) * 8 + g]);
    qr_mma_tf32(d, ra, rb);
    for (int c = 0; c < 4; c++)
        out[(g + c / 2 * 8) * 8 + t * 2 + c % 2] = d[c];
}

extern "C" void right_product_tf32(cudaStream_t s, float *out, const float *a, const float *b)
{
    QR_LAUNCH(product_tf32, 1, 32, 0, s, out, a, b);
}

QR_KERNEL(32) votes(uint32_t *out)
{
    const int lane = threadIdx.x;
    out[lane] = __ballot_sync(QR_ALL_LANES, lane % 3 == 0);
    out[32 + lane] = __match_any_sync(QR_ALL_LANES, lane / 5);
    out[64 + lane] = __shfl_sync(QR_ALL_LANES, lane, lane * 7, 8);
    out[96 + lane] = __shfl_up_sync(QR_ALL_LANES, lane, 3);
    out[128 + lane] = __shfl_down_sync(QR_ALL_LANES, lane, 3, 16);
    out[160 + lane] = (uint32_t)__reduce_max_sync(QR_ALL_LANES, -lane - 1) + (uint32_t)__syncthreads_count(lane > 9);
    uint32_t half = 0;
    if (lane < 16)
        half = __shfl_xor_sync(0xffffu, lane, 1);
    out[192 + lane] = half;
    out[224 + lane] = __any_sync(QR_ALL_LANES, lane == 40) ? 2 : __all_sync(QR_ALL_LANES, lane < 32);
}

extern "C" void right_votes(cudaStream_t s, uint32_t *out)
{
    QR_LAUNCH(votes, 1, 32, 0, s, out);
}

QR_KERNEL(64) atomics(int32_t *out)
{
    const int i = threadIdx.x;
    atomicAdd(&out[0], i);
    atomicMax(&out[1], i * 37 % 64);
    atomicMin(&out[2], -i);
    atomicAdd((float *)&out[3], 0.5f);
    if (atomicCAS(&out[4], 0, 1) == 0)
        out[5] = 7;
    atomicOr((uint32_t *)&out[6], 1u << i % 32);
}

extern "C" void right_atomics(cudaStream_t s, int32_t *out)
{
    QR_LAUNCH(atomics, 2, 64, 0, s, out);
}

QR_KERNEL(64) add(float *x, float by, int32_t n)
{
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n)
        x[i] += by;
}

extern "C" void right_add(cudaStream_t s, float *x, float by, int32_t n)
{
    QR_LAUNCH(add, qr_blocks(n, 64), 64, 0, s, x, by, n);
}

/* Two halves of a block, each with a barrier of its own; a producer that does not wait. */
QR_KERNEL(128) named_barriers(float *out, const float *x)
{
    QR_SHARED(float, half);
    const int i = threadIdx.x, mine = i / 64;
    half[i] = x[127 - i];
    qr_bar_sync(1 + mine, 64);
    const float got = half[mine * 64 + (i + 1) % 64];
    if (mine == 0)
        qr_bar_arrive(3, 128);
    else
        qr_bar_sync(3, 128);
    out[mine * 64 + (i + 1) % 64] = got + (mine == 1 ? 0.0f * half[i - 64] : 0.0f);
}

extern "C" void right_named_barriers(cudaStream_t s, float *out, const float *x)
{
    QR_LAUNCH(named_barriers, 1, 128, 128 * sizeof(float), s, out, x);
}

/* ---- mistakes ---- */

template <int WHICH> QR_KERNEL(64) wrong(float *out, const float *x, int32_t n)
{
    QR_SHARED(float, dynamic);
    QR_SHARED_ARRAY(float, fixed, 64);
    const int i = threadIdx.x, lane = i % 32;
    float v = x[i % n];
    fixed[i] = dynamic[i] = v;
    if (WHICH == WRONG_NO_WARP_BARRIER)
        v = fixed[i ^ 1];
    if (WHICH == WRONG_NO_BARRIER) {
        __syncwarp();
        v = fixed[63 - i];
    }
    if (WHICH == WRONG_OTHER_BARRIER) {
        if (i < 32)
            __syncthreads();
        else
            __syncthreads();
    }
    if (WHICH == WRONG_LEFT_BEFORE_BARRIER) {
        if (i == 5)
            return;
        __syncthreads();
    }
    if (WHICH == WRONG_BARRIER_NOBODY_ELSE && i == 5)
        __syncthreads();
    if (WHICH == WRONG_SHUFFLE_FULL_MASK && lane < 16)
        v = __shfl_xor_sync(QR_ALL_LANES, v, 1);
    if (WHICH == WRONG_SHUFFLE_NOT_NAMED)
        v = __shfl_xor_sync(0x0000ffffu, v, 1);
    if (WHICH == WRONG_SHUFFLE_FROM_OUTSIDE && lane < 16)
        v = __shfl_down_sync(0x0000ffffu, v, 8);
    if (WHICH == WRONG_NO_WAIT_NO_BARRIER) {
        __syncthreads();
        qr_cp_async_4(&fixed[i], &x[0]);
        qr_cp_async_commit();
        qr_cp_async_wait<0>();
        v = fixed[i ^ 32];
    }
    if (WHICH == WRONG_SHARED_WRITE && i == 63)
        fixed[i + n / 64] = v;
    if (WHICH == WRONG_DYNAMIC_READ && i == 63)
        v = dynamic[i + n / 64];
    if (WHICH == WRONG_GLOBAL_READ)
        v = x[i == 63 ? n : 0];
    if (WHICH == WRONG_ALIGNMENT)
        v = ((const float4 *)(x + 1))->x;
    if (WHICH == WRONG_LDMATRIX) {
        uint32_t r[4];
        qr_ldmatrix<4>(r, &fixed[lane]);
    }
    if (WHICH == WRONG_NAMED_BARRIER)
        qr_bar_sync(1, 128);
    out[WHICH == WRONG_TWO_BLOCKS ? i : blockIdx.x * 64 + i] = v;
}

#define ROW(which) [](cudaStream_t s, float *out, const float *x, int32_t n) { QR_LAUNCH((wrong<which>), 2, 64, 64 * sizeof(float), s, out, x, n); }

extern "C" void wrong_run(cudaStream_t s, enum wrong which, float *out, const float *x, int32_t n)
{
    static void (*const run[WRONG_COUNT])(cudaStream_t s, float *out, const float *x, int32_t n) = {
        ROW(WRONG_NO_BARRIER), ROW(WRONG_NO_WARP_BARRIER), ROW(WRONG_OTHER_BARRIER), ROW(WRONG_LEFT_BEFORE_BARRIER), ROW(WRONG_BARRIER_NOBODY_ELSE),
        ROW(WRONG_SHUFFLE_FULL_MASK), ROW(WRONG_SHUFFLE_NOT_NAMED), ROW(WRONG_SHUFFLE_FROM_OUTSIDE), ROW(WRONG_NO_WAIT_NO_BARRIER), ROW(WRONG_SHARED_WRITE),
        ROW(WRONG_DYNAMIC_READ), ROW(WRONG_GLOBAL_READ), ROW(WRONG_ALIGNMENT), ROW(WRONG_TWO_BLOCKS), ROW(WRONG_LDMATRIX), ROW(WRONG_NAMED_BARRIER)};
    run[which](s, out, x, n);
}

QR_KERNEL(32) no_wait(float *out, const float *x)
{
    QR_SHARED_ARRAY(float, mine, 32);
    qr_cp_async_4(&mine[threadIdx.x], x + threadIdx.x);
    qr_cp_async_commit();
    out[threadIdx.x] = mine[threadIdx.x];
}

extern "C" void wrong_no_wait(cudaStream_t s, float *out, const float *x)
{
    QR_LAUNCH(no_wait, 1, 32, 0, s, out, x);
}

QR_KERNEL(32) large(float *out)
{
    QR_SHARED(float, all);
    all[threadIdx.x] = 1;
    out[threadIdx.x] = all[threadIdx.x];
}

QR_KERNEL(32) of_both_kinds(float *out)
{
    QR_SHARED(float, all);
    QR_SHARED_ARRAY(float, fixed, 6 * 1024);
    all[threadIdx.x] = fixed[threadIdx.x] = 1;
    out[threadIdx.x] = all[threadIdx.x];
}

extern "C" void wrong_shared_of_both_kinds(cudaStream_t s, float *out)
{
    QR_LAUNCH(of_both_kinds, 1, 32, 32 * 1024, s, out);
}

extern "C" void wrong_too_much_shared(cudaStream_t s, float *out)
{
    qr_emu_launch_here("large", 1, 32, 64 * 1024, s, large, out);
}

QR_KERNEL(32) early_first(float *y, const float *x)
{
    qr_grid_wait();
    y[threadIdx.x] = 2 * x[threadIdx.x];
}

QR_KERNEL(32) early_nothing()
{
    qr_grid_wait();
}

/* y[thread] by way of the copy engine. */
QR_DEVICE float bulk_copied(const float *y, bool fenced)
{
    QR_SHARED_ARRAY(float, copied, 32);
    QR_SHARED_ARRAY(uint64_t, bar, 1);
    if (threadIdx.x == 0) {
        qr_mbar_init(bar, 1);
        qr_fence_async();
        if (fenced)
            qr_fence_async_kernels();
        qr_mbar_expect(bar, 32 * 4);
        qr_bulk(copied, y, 32 * 4, bar);
    }
    __syncwarp();
    qr_mbar_wait(bar, 0, NULL);
    return copied[threadIdx.x];
}

template <int WHICH> QR_KERNEL(32) early_second(float *out, float *y, float *x, const float *w)
{
    QR_SHARED_ARRAY(float, copied, 32);
    const int i = threadIdx.x;
    float sum = w[i];
    qr_grid_next();
    if (WHICH == EARLY_READS || WHICH == EARLY_READS_OF_TWO_BEFORE || WHICH == EARLY_APART)
        sum += y[i];
    if (WHICH == EARLY_COPIES)
        qr_cp_async_4(&copied[i], &y[i]);
    if (WHICH == EARLY_WRITES)
        x[i] = 0;
    if (WHICH != EARLY_LEAVES)
        qr_grid_wait();
    if (WHICH == EARLY_RIGHT)
        sum += y[i];
    if (WHICH == EARLY_BULK || WHICH == EARLY_BULK_UNFENCED)
        sum += bulk_copied(y, WHICH == EARLY_BULK);
    out[i] = sum;
}

extern "C" void early_run(cudaStream_t s, enum early which, float *out, float *y, float *x, const float *w)
{
    struct qr_queue queue = {}, *q = &queue;
    q->stream = s;
    q->overlaps = true;
    QR_LAUNCH(early_first, 1, 32, 0, q, y, x);
    if (which != EARLY_APART)
        QR_LAUNCH_NEXT(early_first, 1, 32, 0, q, y, x);
    if (which == EARLY_READS_OF_TWO_BEFORE)
        QR_LAUNCH_NEXT(early_nothing, 1, 32, 0, q);
#define SECOND(which_one)                                                                                                  \
    [](struct qr_queue *next, float *o, float *y2, float *x2, const float *w2) {                                           \
        QR_LAUNCH_NEXT((early_second<which_one>), 1, 32, 0, next, o, y2, x2, w2);                                          \
    }
    static void (*const launch[EARLY_COUNT])(struct qr_queue *q, float *out, float *y, float *x, const float *w) = {
        SECOND(EARLY_RIGHT), SECOND(EARLY_READS), SECOND(EARLY_READS_OF_TWO_BEFORE), SECOND(EARLY_COPIES), SECOND(EARLY_WRITES), SECOND(EARLY_LEAVES),
        SECOND(EARLY_APART), SECOND(EARLY_BULK), SECOND(EARLY_BULK_UNFENCED)};
    launch[which](q, out, y, x, w);
#undef SECOND
}
