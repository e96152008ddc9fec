/* launch.h - how kernels are declared and launched, so that the same .cu is compiled by nvcc and, for the tests, as C++ for an emulated device
 * (tests/cuda_emu/). The rules that make this work:
 *
 *   - No <<<>>>, no __shared__, no __global__ elsewhere: QR_LAUNCH, QR_SHARED_ARRAY, QR_SHARED, QR_KERNEL. PTX: ptx.h, ptx_hopper.h.
 *   - No CUB, no cooperative groups, no textures, no inline new or virtual functions, no C++ library: plain C with templates on types and head sizes.
 *   - Blocks are whole warps. Every thread of a block stays until the last barrier; no block waits for another one.
 *   - What a warp writes to shared memory another lane reads only after __syncwarp, another warp after __syncthreads.
 *   - Arguments of kernels are plain data, passed by value.
 *   - Additions and products are rounded one by one (nvcc -fmad=false): a fused one is written fmaf.
 *   - A kernel of QR_LAUNCH_NEXT may begin before the kernels in front of it have ended. All its threads call qr_grid_wait (ptx.h), and before that touch
 *     nothing that such kernels write, and write nothing: of memory they read weights, which no kernel of QR_LAUNCH_NEXT writes. What stands in front of
 *     all these is a kernel of QR_LAUNCH or a copy, which has ended.
 *
 * Kernels and their launchers only; device memory, streams and tables are device.cu's. */
#ifndef QR_KERNELS_CUDA_LAUNCH_H
#define QR_KERNELS_CUDA_LAUNCH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cuda_runtime.h>

#include "base/assert.h"
#include "kernels/cuda/check.h"

#ifdef __cplusplus

/* QR_KERNEL(256) name(arguments) { ... }: a kernel for blocks of up to so many threads; template <...> may stand before it. */
#define QR_KERNEL(threads_max) static __global__ void __launch_bounds__(threads_max)

/* As QR_KERNEL, with no more registers than let `blocks` of them share a multiprocessor; 1: without it ptxas may spill
 * for a second block that never runs. */
#define QR_KERNEL_CAPPED(threads_max, blocks) static __global__ void __launch_bounds__(threads_max, blocks)
#define QR_DEVICE static __device__ __forceinline__
#define QR_HOST_DEVICE static __host__ __device__ __forceinline__

/* QR_LAUNCH(kernel, grid, block, bytes of QR_SHARED, queue or stream, arguments...); a template's instance in parentheses: (name<64, float>).
 * QR_LAUNCH_NEXT, of a queue: behind another one of these the kernel may begin early (on 9.0 and later), see above. */
#ifdef QR_CUDA_EMU
#define QR_LAUNCH(kernel, grid, block, shared_bytes, where, ...)                                                         \
    do {                                                                                                                 \
        qr_emu_launch_here(#kernel, grid, block, shared_bytes, qr_stream_of(where), kernel, ##__VA_ARGS__);              \
        QR_CUDA_CHECK(cudaGetLastError());                                                                               \
    } while (0)
#define QR_LAUNCH_NEXT(kernel, grid, block, shared_bytes, q, ...)                                                        \
    do {                                                                                                                 \
        qr_emu_next_is_early(qr_queue_follows(q));                                                                       \
        qr_emu_launch_here(#kernel, grid, block, shared_bytes, (q)->stream, kernel, ##__VA_ARGS__);                      \
        QR_CUDA_CHECK(cudaGetLastError());                                                                               \
    } while (0)
#else
#define QR_LAUNCH(kernel, grid, block, shared_bytes, where, ...)                                                         \
    do {                                                                                                                 \
        kernel<<<grid, block, shared_bytes, qr_stream_of(where)>>>(__VA_ARGS__);                                         \
        QR_CUDA_CHECK(cudaGetLastError());                                                                               \
    } while (0)
#define QR_LAUNCH_NEXT(kernel, grid, block, shared_bytes, q, ...)                                                        \
    do {                                                                                                                 \
        cudaLaunchAttribute early_;                                                                                      \
        const cudaLaunchConfig_t how_ = qr_launch_early(&early_, qr_queue_follows(q), grid, block, shared_bytes, (q)->stream); \
        QR_CUDA_CHECK(cudaLaunchKernelEx(&how_, kernel, ##__VA_ARGS__));                                                 \
    } while (0)

static inline cudaLaunchConfig_t qr_launch_early(cudaLaunchAttribute *a, bool early, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream)
{
    cudaLaunchConfig_t how = {};
    how.gridDim = grid, how.blockDim = block, how.dynamicSmemBytes = shared_bytes, how.stream = stream;
    a->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a->val.programmaticStreamSerializationAllowed = 1;
    how.attrs = a, how.numAttrs = early ? 1 : 0;
    return how;
}
#endif

static inline cudaStream_t qr_stream_of(cudaStream_t stream)
{
    return stream;
}

/* What a block may ask for on every device, statically and at launch together: without a word, and with QR_SHARED_ALLOW (8.6, 8.9 and 12.0 have no more).
 * Kernels that are made for one device may have what that one has. */
#define QR_SHARED_PLAIN (48 * 1024)
#define QR_SHARED_EVERYWHERE (99 * 1024)
#define QR_FITS_EVERYWHERE(bytes) static_assert((size_t)(bytes) <= QR_SHARED_EVERYWHERE, "more shared memory than 8.6, 8.9 and 12.0 have")
#define QR_FITS_PLAIN(bytes) static_assert((size_t)(bytes) <= QR_SHARED_PLAIN, "more shared memory than a kernel has that nobody gave any")

/* Lets a kernel have more dynamic shared memory than 48 KiB (up to 227 on sm_90, 99 on sm_86, 89 and 120, 163 on
 * sm_80), and its multiprocessors all that they can set apart for it: several blocks of such kernels want it, and
 * kernels that divide memory alike need not wait for each other to divide it anew. Once, before it is launched. */
#define QR_SHARED_ALLOW(kernel, bytes)                                                                                   \
    do {                                                                                                                 \
        QR_CUDA_CHECK(cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))); \
        QR_CUDA_CHECK(cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributePreferredSharedMemoryCarveout, 100));  \
    } while (0)

/* QR_SHARED_ARRAY(float, partial, 32): an array of the block, aligned to 16 whatever its type.  QR_SHARED(float, x): a pointer to the dynamic bytes of the
 * launch, aligned to 128.  QR_SHARED_1024: to 1024, where swizzled tiles begin. All hold anything at first. */
#ifdef QR_CUDA_EMU
#define QR_SHARED_ARRAY(type, name, n)                                                                                   \
    static const char qr_shared_tag_##name = 0;                                                                          \
    type(&name)[n] = *(type(*)[n])qr_emu_shared_static(&qr_shared_tag_##name, sizeof(type[n]), 16)
#define QR_SHARED(type, name) type *const name = (type *)qr_emu_shared_dynamic(128)
#define QR_SHARED_1024(type, name) type *const name = (type *)qr_emu_shared_dynamic(1024)
#else
#define QR_SHARED_ARRAY(type, name, n) __shared__ __align__(16) type name[n]
#define QR_SHARED(type, name)                                                                                            \
    extern __shared__ __align__(128) unsigned char qr_shared_bytes[];                                                    \
    type *const name = (type *)qr_shared_bytes
#define QR_SHARED_1024(type, name)                                                                                       \
    extern __shared__ __align__(1024) unsigned char qr_shared_bytes_1024[];                                              \
    type *const name = (type *)qr_shared_bytes_1024
#endif

#define QR_WARP 32
#define QR_ALL_LANES 0xffffffffu

/* Ends the launch when the condition does not hold: a bug, or an index from outside that was not checked. */
#define QR_DEVICE_ASSERT(cond)                                                                                           \
    do {                                                                                                                 \
        if (!(cond))                                                                                                     \
            QR_DEVICE_STOP(QR_STOP_HERE);                                                                                \
    } while (0)

/* This line as a number that is known when it is compiled, and the end of the launch, which tells it (stop.h). */
#define QR_STOP_HERE (QR_STOP_SAID | qr_stop_file(__FILE__) << QR_STOP_LINE_BITS | (__LINE__ & ((1u << QR_STOP_LINE_BITS) - 1)))
#ifdef QR_CUDA_EMU
#define QR_DEVICE_STOP(place)                                                                                            \
    do {                                                                                                                 \
        if (qr_stop_word)                                                                                                \
            qr_emu_write_host(qr_stop_word, (place), blockIdx.x << QR_STOP_THREAD_BITS | threadIdx.x);                   \
        __trap();                                                                                                        \
    } while (0)
#else
#define QR_DEVICE_STOP(place) qr_stop<(place)>()
#endif

static __device__ __attribute__((unused)) uint32_t *qr_stop_word; /* of this file's kernels; NULL: not set */

#ifndef QR_CUDA_EMU
/* In PTX, so that nothing of it is computed before it is needed, and takes a register there. */
template <uint32_t PLACE> QR_DEVICE void qr_stop()
{
    asm volatile("{\n .reg .u64 word;\n .reg .u32 place, where, thread;\n .reg .pred nobody;\n"
                 " ld.volatile.global.u64 word, [%0];\n setp.eq.u64 nobody, word, 0;\n"
                 " mov.u32 place, %1;\n mov.u32 where, %%ctaid.x;\n mov.u32 thread, %%tid.x;\n shl.b32 where, where, %2;\n or.b32 where, where, thread;\n"
                 " @!nobody st.volatile.global.v2.u32 [word], {place, where};\n membar.sys;\n trap;\n}" ::"l"(&qr_stop_word), "n"(PLACE),
                 "n"(QR_STOP_THREAD_BITS) : "memory");
}
#endif

/* QR_STOPS(rows), once in a file whose kernels may stop. */
#ifdef QR_CUDA_EMU
#define QR_STOP_SET(to) (qr_stop_word = (to), cudaSuccess)
#else
#define QR_STOP_SET(to) cudaMemcpyToSymbol(qr_stop_word, &(to), sizeof(to))
#endif
#define QR_STOPS(name)                                                                                                   \
    extern "C" int qr_cuda_stops_of_##name(uint32_t *word)                                                               \
    {                                                                                                                    \
        return (int)QR_STOP_SET(word);                                                                                   \
    }

static inline unsigned int qr_blocks(int64_t n, int64_t each)
{
    return (unsigned int)((n + each - 1) / each);
}

#endif
#endif
