/* runtime.h - what stream.c, memory.c and device.c of the emulated device know of each other. */
#ifndef QR_TESTS_CUDA_EMU_RUNTIME_H
#define QR_TESTS_CUDA_EMU_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool qr_emu_memory_is_pinned(const void *p, size_t n);
void qr_emu_memory_zero(void *p, size_t n);
void qr_emu_memory_limit(size_t n_bytes);
int32_t qr_emu_n_sms(void);
int32_t qr_emu_shared_most(void);

#endif
