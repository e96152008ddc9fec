/* instructions.h - each instruction of ptx.h and ptx_hopper.h alone, beside what the manuals say of it. Tests run it on the emulated device; compiled by nvcc
 * alone, instructions.cu is a program that tells on a real one which of them is not as the kernels take it to be (tools/gpu.sh, step `instructions`). */
#ifndef QR_TESTS_CUDA_EMU_INSTRUCTIONS_H
#define QR_TESTS_CUDA_EMU_INSTRUCTIONS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INSTRUCTIONS 8

/* Number `which` of them: what it looks at. */
const char *instructions_name(int which);

/* Wrong numbers; `said` has the first of them, or what was measured. Below 0: this device, or this compilation, has no such instructions. */
int instructions_check(int which, char *said, size_t room);

/* The program: all of them in a process each, so that an instruction that the device refuses ends only its own; a line for each. How many were wrong, or 77
 * behind the line "no device: REASON", where neither the runtime nor its driver begins or no GPU is there. */
int instructions_main(void);

#ifdef __cplusplus
}
#endif
#endif
