/* Two arrays compared where they are: for checks of results that are too large to fetch. */
#include "kernels/backend.h"
#include "kernels/cuda/num.h"
#include "kernels/cuda/queue.h"

#define THREADS 256

struct comparison {
    unsigned long long *worst; /* the bits of the largest difference, and of the numbers with it the first one's place, counted down; then numbers compared */
    const float *got, *want;
    int64_t n;
};

QR_KERNEL(THREADS) compare_arrays(struct comparison a)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    unsigned long long worst = 0, compared = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += step) {
        const float d = fabsf(a.got[i] - a.want[i]);
        const uint32_t bits = d == d ? __float_as_uint(d) : 0x7f800000u; /* bits of numbers from 0 on are in order */
        const unsigned long long mine = (unsigned long long)bits << 32 | (0xffffffffu - (uint32_t)i);
        worst = bits > 0 && mine > worst ? mine : worst;
        compared++;
    }
    for (int32_t by = QR_WARP / 2; by > 0; by /= 2) {
        const unsigned long long other = __shfl_xor_sync(QR_ALL_LANES, worst, by);
        worst = other > worst ? other : worst;
        compared += __shfl_xor_sync(QR_ALL_LANES, compared, by);
    }
    if (threadIdx.x % QR_WARP == 0) {
        atomicMax(&a.worst[0], worst);
        atomicAdd(&a.worst[1], compared);
    }
}

extern "C" void qr_cuda_compare(struct qr_queue *q, struct qr_difference *out, const float *got, const float *want, int64_t n)
{
    QR_ASSERT(q != NULL && out != NULL && got != NULL && want != NULL);
    QR_ASSERT(n > 0 && n <= UINT32_MAX);
    unsigned long long found[2] = {0, 0};
    const struct comparison a = {(unsigned long long *)q->scratch, got, want, n};
    const unsigned int most = 32u * (unsigned int)q->n_sms, blocks = qr_blocks(n, THREADS);
    QR_CUDA_CHECK(cudaMemsetAsync(a.worst, 0, sizeof found, qr_queue_apart(q)));
    QR_LAUNCH(compare_arrays, blocks < most ? blocks : most, THREADS, 0, q, a);
    QR_CUDA_CHECK(cudaMemcpyAsync(found, a.worst, sizeof found, cudaMemcpyDeviceToHost, q->stream));
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
    const uint32_t bits = found[1] == (unsigned long long)n ? (uint32_t)(found[0] >> 32) : 0x7f800000u; /* too few comparisons say nothing */
    out->at = found[0] == 0 ? 0 : (int64_t)(0xffffffffu - (uint32_t)found[0]);
    memcpy(&out->worst, &bits, sizeof bits);
    QR_CUDA_CHECK(cudaMemcpyAsync(&out->got, got + out->at, sizeof *got, cudaMemcpyDeviceToHost, q->stream));
    QR_CUDA_CHECK(cudaMemcpyAsync(&out->want, want + out->at, sizeof *want, cudaMemcpyDeviceToHost, q->stream));
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
}
