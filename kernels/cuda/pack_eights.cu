/* Rows of weights become E4M3 codes and a scale each: kernels/f8.h's qr_f8_row, bit for bit, a block a row. On the device, since a model of 8B takes the
 * processor minutes. */
#include "kernels/cuda/coded.h"
#include "kernels/cuda/num.h"
#include "kernels/cuda/queue.h"

#define THREADS 256
#define WARPS (THREADS / QR_WARP)
#define TURNS 8 /* a scale is tried for each of the eight mantissas that the row's largest number may have had */

struct rows {
    uint8_t *codes;
    float *scale;
    const void *from;
    int64_t code_bytes;
    int32_t n_in;
    float tolerance;
};

template <enum qr_dtype FROM> QR_DEVICE float weight_at(const struct rows &a, int32_t i)
{
    const int64_t at = (int64_t)blockIdx.x * a.n_in + i;
    if (FROM == QR_F32)
        return ((const float *)a.from)[at];
    const uint32_t h = ((const uint16_t *)a.from)[at];
    return FROM == QR_BF16 ? qr_from_bf16(h) : qr_from_f16(h);
}

QR_DEVICE uint32_t code_of(float x, float inverse)
{
    return inverse == 0 ? 0 : qr_to_e4m3(x * inverse);
}

/* The largest magnitude of the row by its bits, infinity and NaN above all; the same for all threads. */
template <enum qr_dtype FROM> QR_DEVICE uint32_t largest_of(const struct rows &a)
{
    QR_SHARED_ARRAY(uint32_t, largest, WARPS);
    uint32_t most = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < a.n_in; i += THREADS)
        most = max(most, __float_as_uint(weight_at<FROM>(a, i)) & 0x7fffffffu);
    most = __reduce_max_sync(QR_ALL_LANES, most);
    if (threadIdx.x % QR_WARP == 0)
        largest[threadIdx.x / QR_WARP] = most;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        most = max(most, largest[i]);
    return most;
}

template <enum qr_dtype FROM> QR_KERNEL(THREADS) pack_eights(struct rows a)
{
    const uint32_t most = largest_of<FROM>(a);
    const float largest = __uint_as_float(most);
    float scale = 0, inverse = 0;
    for (int turn = 0; turn <= TURNS; turn++) { /* in the end that of the largest code, whether it fits or not */
        const float top = turn < TURNS - 1 ? 448.0f - 32.0f * turn : turn < TURNS ? 240.0f : 448.0f;
        bool strays = turn < TURNS && most >= 0x7f800000u;
        if (most >= 0x7f800000u)
            scale = __uint_as_float(0x7fc00000u);
        else if (most >= 0x03800000u)
            scale = largest / top, inverse = top / largest;
        for (int32_t i = (int32_t)threadIdx.x; turn < TURNS && !strays && i < a.n_in; i += THREADS) {
            const float x = weight_at<FROM>(a, i);
            strays = !(fabsf(x - scale * qr_from_e4m3(code_of(x, inverse))) <= a.tolerance * fabsf(x));
        }
        if (!__syncthreads_or(strays))
            break;
    }
    if (threadIdx.x == 0)
        a.scale[blockIdx.x] = scale;
    for (int32_t i = (int32_t)threadIdx.x; i < a.code_bytes; i += THREADS)
        a.codes[(int64_t)blockIdx.x * a.code_bytes + i] = (uint8_t)(i < a.n_in ? code_of(weight_at<FROM>(a, i), inverse) : 0);
}

extern "C" void qr_cuda_pack_eights(struct qr_queue *q, const struct qr_coded *c, int64_t row0, int64_t n_in, const void *rows, enum qr_dtype from,
                                    int64_t n_rows, float tolerance)
{
    QR_ASSERT(q != NULL && c != NULL && c->form == QR_CODED_EIGHTS && rows != NULL);
    QR_ASSERT(row0 >= 0 && n_rows > 0 && n_rows <= INT32_MAX && n_in > 0 && n_in <= c->code_bytes);
    const struct rows a = {(uint8_t *)(uintptr_t)c->codes + row0 * c->code_bytes, (float *)(uintptr_t)c->scale + row0, rows, c->code_bytes, (int32_t)n_in,
                           tolerance};
    if (from == QR_F32)
        QR_LAUNCH(pack_eights<QR_F32>, (unsigned int)n_rows, THREADS, 0, q, a);
    else if (from == QR_F16)
        QR_LAUNCH(pack_eights<QR_F16>, (unsigned int)n_rows, THREADS, 0, q, a);
    else
        QR_LAUNCH(pack_eights<QR_BF16>, (unsigned int)n_rows, THREADS, 0, q, a);
}
