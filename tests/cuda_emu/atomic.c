/* atomic.c - atomic operations. One thread runs at a time, so they are plain ones that the search for races knows as atomic. */
#include "base/assert.h"
#include "tests/cuda_emu/core.h"

static void touch(const void *p, size_t n, const void *pc)
{
    QR_ASSERT(p != NULL && qr_emu_self != NULL);
    if ((uintptr_t)p % n != 0)
        qr_emu_report("an atomic operation of %zu bytes at %p", n, p);
    qr_emu_access(p, n, QR_EMU_ATOMIC, pc);
}

float qr_emu_atomic_add_f32(float *p, float v)
{
    touch(p, sizeof *p, __builtin_return_address(0));
    const float old = *p;
    *p = old + v;
    return old;
}

uint32_t qr_emu_atomic_u32(uint32_t *p, uint32_t v, int32_t kind)
{
    touch(p, sizeof *p, __builtin_return_address(0));
    const uint32_t old = *p;
    *p = kind == QR_EMU_ADD ? old + v : kind == QR_EMU_MAX ? (old > v ? old : v) : kind == QR_EMU_MIN ? (old < v ? old : v)
       : kind == QR_EMU_AND ? (old & v) : (old | v);
    return old;
}

int32_t qr_emu_atomic_i32(int32_t *p, int32_t v, int32_t kind)
{
    touch(p, sizeof *p, __builtin_return_address(0));
    const int32_t old = *p;
    *p = kind == QR_EMU_ADD ? (int32_t)((uint32_t)old + (uint32_t)v) : kind == QR_EMU_MAX ? (old > v ? old : v) : kind == QR_EMU_MIN ? (old < v ? old : v)
       : kind == QR_EMU_AND ? (old & v) : (old | v);
    return old;
}

uint64_t qr_emu_atomic_u64(uint64_t *p, uint64_t v, int32_t kind)
{
    touch(p, sizeof *p, __builtin_return_address(0));
    const uint64_t old = *p;
    *p = kind == QR_EMU_ADD ? old + v : kind == QR_EMU_MAX ? (old > v ? old : v) : kind == QR_EMU_MIN ? (old < v ? old : v)
       : kind == QR_EMU_AND ? (old & v) : (old | v);
    return old;
}

uint32_t qr_emu_atomic_cas(uint32_t *p, uint32_t expected, uint32_t v)
{
    touch(p, sizeof *p, __builtin_return_address(0));
    const uint32_t old = *p;
    if (old == expected)
        *p = v;
    return old;
}

uint32_t qr_emu_atomic_exchange(uint32_t *p, uint32_t v)
{
    touch(p, sizeof *p, __builtin_return_address(0));
    const uint32_t old = *p;
    *p = v;
    return old;
}

void qr_emu_fence(void)
{
    QR_ASSERT(qr_emu_self != NULL);
    qr_emu_shadow_fence();
}
