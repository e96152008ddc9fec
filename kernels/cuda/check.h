/* check.h - calls of the CUDA runtime that fail only when the device is lost or the program is wrong: such a failure ends the process. Inside kernels/cuda/
 * only, C and C++. */
#ifndef QR_KERNELS_CUDA_CHECK_H
#define QR_KERNELS_CUDA_CHECK_H

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/stop.h"

__attribute__((noreturn)) static inline void qr_cuda_check_failed(const char *file, int line, const char *what, const char *why)
{
    fprintf(stderr, "quire: cuda: %s:%d: %s: %s\n", file, line, what, why);
    if (qr_cuda_stop_tell)
        qr_cuda_stop_tell();
    abort();
}

#define QR_CUDA_CHECK(call)                                                                       \
    do {                                                                                          \
        const cudaError_t check_ = (call);                                                        \
        if (check_ != cudaSuccess)                                                                \
            qr_cuda_check_failed(__FILE__, __LINE__, #call, cudaGetErrorString(check_));          \
    } while (0)

#endif
