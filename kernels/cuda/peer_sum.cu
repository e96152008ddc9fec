/* Sums over ranks, whose terms lie here (peers.c). */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/peers.h"

#define THREADS 256

/* Neighbours first, then neighbours of neighbours: ((0 + 1) + (2 + 3)) + ..., as comm/comm_tree.c cuts it. MAX: ranks that fit into registers. */
template <int MAX>
QR_KERNEL(THREADS) sum_terms(float *out, const float *own, const float *in, int64_t stride, int64_t n, int32_t rank, int32_t size)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        float term[MAX];
#pragma unroll
        for (int r = 0; r < MAX; r++)
            term[r] = r >= size ? 0.0f : r == rank ? own[i] : in[r * stride + i];
#pragma unroll
        for (int half = 1; half < MAX; half *= 2)
#pragma unroll
            for (int r = 0; r + half < MAX; r += 2 * half)
                term[r] = r + half < size ? term[r] + term[r + half] : term[r];
        out[i] = term[0];
    }
}

extern "C" void qr_cuda_peer_sum(cudaStream_t stream, float *out, const float *own, const float *in, int64_t stride, int64_t n, int32_t rank, int32_t size)
{
    QR_ASSERT(out != NULL && own != NULL && in != NULL);
    QR_ASSERT(n > 0 && size > 1 && size <= 64 && rank >= 0 && rank < size);
    const unsigned int blocks = qr_blocks(n, THREADS) < 1024 ? qr_blocks(n, THREADS) : 1024;
    if (size <= 8)
        QR_LAUNCH((sum_terms<8>), blocks, THREADS, 0, stream, out, own, in, stride, n, rank, size);
    else
        QR_LAUNCH((sum_terms<64>), blocks, THREADS, 0, stream, out, own, in, stride, n, rank, size);
}
