/* properties.c - the device that is pretended: an H200 with another name, and as many multiprocessors and as much memory as a test wants. */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/include/cuda_runtime.h"
#include "tests/cuda_emu/runtime.h"

#define VERSION 13000

/* Each process has one, whatever its number: QUIRE_EMU_DEVICES says how many there seem to be, or 0. */
static int n_devices(void)
{
    const char *n = getenv("QUIRE_EMU_DEVICES");
    return n && *n ? atoi(n) : 1;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    QR_ASSERT(n != NULL);
    *n = n_devices();
    return *n > 0 ? cudaSuccess : qr_emu_error(cudaErrorNoDevice);
}

/* A thread begins with device 0. That whoever works here chose last is the one on which things are. */
static _Thread_local int chosen_here;
static _Atomic int chosen;

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= n_devices())
        return qr_emu_error(cudaErrorInvalidDevice);
    chosen_here = chosen = device;
    return cudaSuccess;
}

void qr_emu_on_device(const char *call)
{
    if (chosen_here != chosen)
        qr_emu_report("%s by a thread that has device %d, for what is on device %d: each thread calls cudaSetDevice itself", call, chosen_here, chosen);
}

cudaError_t cudaGetDevice(int *device)
{
    QR_ASSERT(device != NULL);
    *device = chosen_here;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    QR_ASSERT(prop != NULL);
    if (device < 0 || device >= n_devices())
        return qr_emu_error(cudaErrorInvalidDevice);
    size_t n_free = 0;
    *prop = (struct cudaDeviceProp){.sharedMemPerBlock = QR_EMU_SHARED_PLAIN, .sharedMemPerBlockOptin = (size_t)qr_emu_shared_most(),
                                    .sharedMemPerMultiprocessor = 228 * 1024, .major = 9, .minor = 0, .multiProcessorCount = qr_emu_n_sms(),
                                    .maxThreadsPerBlock = QR_EMU_THREADS_MAX, .maxThreadsPerMultiProcessor = 2048, .regsPerMultiprocessor = 65536,
                                    .warpSize = QR_EMU_WARP, .memoryBusWidth = 6144, .l2CacheSize = 50 << 20};
    snprintf(prop->name, sizeof prop->name, "emulated device");
    return cudaMemGetInfo(&n_free, &prop->totalGlobalMem);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    QR_ASSERT(value != NULL);
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess)
        return e;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMemoryClockRate: *value = 3201000; break; /* kHz */
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    }
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    QR_ASSERT(version != NULL);
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    return cudaDriverGetVersion(version);
}

static const char *const words[][2] = {
    [cudaSuccess] = {"cudaSuccess", "no error"},
    [cudaErrorInvalidValue] = {"cudaErrorInvalidValue", "invalid argument"},
    [cudaErrorMemoryAllocation] = {"cudaErrorMemoryAllocation", "out of memory"},
    [cudaErrorInvalidDevice] = {"cudaErrorInvalidDevice", "invalid device ordinal"},
    [cudaErrorInvalidConfiguration] = {"cudaErrorInvalidConfiguration", "invalid configuration argument"},
    [cudaErrorLaunchOutOfResources] = {"cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    [cudaErrorStreamCaptureUnsupported] = {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    [cudaErrorNotReady] = {"cudaErrorNotReady", "device not ready"},
    [cudaErrorNoDevice] = {"cudaErrorNoDevice", "no CUDA-capable device is detected"},
    [cudaErrorInsufficientDriver] = {"cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    [cudaErrorLaunchFailure] = {"cudaErrorLaunchFailure", "unspecified launch failure"},
    [cudaErrorNoKernelImageForDevice] = {"cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
};

const char *cudaGetErrorName(cudaError_t e)
{
    QR_ASSERT((int)e >= 0 && (int)e < QR_COUNT(words));
    return words[e][0];
}

const char *cudaGetErrorString(cudaError_t e)
{
    QR_ASSERT((int)e >= 0 && (int)e < QR_COUNT(words));
    return words[e][1];
}
