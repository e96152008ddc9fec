/* device.h - the discrete device of tests (discrete.c) as the program's "cuda". */
#ifndef QR_TESTS_DEVICE_DEVICE_H
#define QR_TESTS_DEVICE_DEVICE_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

/* From now on in this process "cuda" is that device, with kernels of this level; fault NULL: it works. */
static inline void use_discrete(const char *isa, const char *fault)
{
    const char *lib = getenv("QUIRE_DISCRETE_LIB");
    cr_assert(lib && access(lib, R_OK) == 0, "QUIRE_DISCRETE_LIB names no library: run through ctest");
    setenv("QUIRE_CUDA_LIB", lib, 1);
    setenv("QUIRE_DISCRETE_ISA", isa, 1);
    if (fault)
        setenv("QUIRE_DISCRETE_FAULT", fault, 1);
}

/* From now on in this process "cuda" is the CUDA library on the emulated device (tests/cuda_emu). */
static inline void use_emulated(void)
{
    const char *lib = getenv("QUIRE_CUDA_EMU_LIB");
    if (!lib || access(lib, R_OK) != 0)
        cr_skip_test("QUIRE_CUDA_EMU_LIB names no library: there was no C++ compiler to build the emulated device with, or this is not run by ctest");
    setenv("QUIRE_CUDA_LIB", lib, 1);
    setenv("QUIRE_NCCL_LIB", lib, 1); /* it has one of its own (tests/cuda_emu/nccl.c) */
}

#endif
