/* ptx_hopper.h - what compute capability 9.0a adds to ptx.h, and nothing but its instructions: mbarriers, copies by the copy engine, products of a
 * warpgroup, registers that warps hand over. For the emulated device each has a twin (tests/cuda_emu/copies.c, wgmma.c) that checks what hardware takes
 * for granted. Code that uses it stands between #if QR_HOPPER and #endif: for other architectures it is not compiled.
 *
 * A barrier is 8 bytes of shared memory. Waiting for a phase takes its parity: 0, 1, 0, ...; the phase before the first one counts as complete. */
#ifndef QR_KERNELS_CUDA_PTX_HOPPER_H
#define QR_KERNELS_CUDA_PTX_HOPPER_H

#include <cuda.h>

#include "kernels/cuda/ptx.h"

#if defined(QR_CUDA_EMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QR_HOPPER 1
#else
#define QR_HOPPER 0
#endif

/* A tensor map of the kernel's arguments, which the copy engine reads where they lie. */
#ifdef QR_CUDA_EMU
#define QR_GRID_CONSTANT
#else
#define QR_GRID_CONSTANT __grid_constant__
#endif

/* The manual's matrix descriptor of a tile in shared memory with 128-byte swizzling: rows of 128 bytes, in eights of 1024, where `start` is a multiple of
 * 1024 plus steps along k. leading: bytes from 64 numbers of n to the next 64, of operands that are stored with n side by side; else unused. */
QR_DEVICE uint64_t qr_tile_desc(uint32_t start, uint32_t leading)
{
    return (uint64_t)(start >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 | (uint64_t)(1024 >> 4) << 32 | UINT64_C(1) << 62;
}

#ifdef QR_CUDA_EMU

#define qr_emu_site_call(fn, name, ...)                                                             \
    do {                                                                                            \
        const qr_emu_site site_ = QR_EMU_SITE(name);                                                \
        fn(&site_, ##__VA_ARGS__);                                                                  \
    } while (0)

QR_DEVICE uint32_t qr_shared_address(const void *p)
{
    return qr_emu_shared_address(p);
}

/* (bar, count): phases of `count` arrivals each, and of as many bytes as were announced. One thread, before a fence and a barrier of the block. */
#define qr_mbar_init(...) qr_emu_site_call(qr_emu_mbarrier_init, "mbarrier.init", __VA_ARGS__)
#define qr_mbar_arrive(...) qr_emu_site_call(qr_emu_mbarrier_arrive, "mbarrier.arrive", __VA_ARGS__)

/* (bar, n_bytes): an arrival that announces so many bytes for this phase. */
#define qr_mbar_expect(...) qr_emu_site_call(qr_emu_mbarrier_expect, "mbarrier.arrive.expect_tx", __VA_ARGS__)

/* (bar, parity): until the phase of this parity is complete; a launch in which it takes seconds is ended. */
#define qr_mbar_wait(bar, parity, wait_ns) qr_emu_site_call(qr_emu_mbarrier_wait, "mbarrier.try_wait", bar, parity)

/* What this thread wrote to shared memory, mbarriers too, may be read and written by the copy engine and by wgmma once others know of it by a barrier. */
#define qr_fence_async() qr_emu_site_call(qr_emu_fence_async, "fence.proxy.async")

/* What kernels in front of this one wrote to global memory may be read by copies of this thread, which has called qr_grid_wait. */
#define qr_fence_async_kernels() qr_emu_flight_fence()

/* (to, from, n_bytes, bar): n_bytes of global memory (all multiples of 16), which then complete that many of the barrier's phase. */
#define qr_bulk(...) qr_emu_site_call(qr_emu_bulk, "cp.async.bulk", __VA_ARGS__)

/* The map's box from column x of row y on; zeros beyond the tensor. to: aligned to 128. */
#define qr_bulk_2d(to, map, x, y, bar)                                                              \
    do {                                                                                            \
        const int32_t at_[] = {x, y};                                                               \
        qr_emu_site_call(qr_emu_bulk_tensor, "cp.async.bulk.tensor.2d", to, map, at_, 2, bar);      \
    } while (0)

/* Registers of a thread from here on; whole warpgroups. */
template <int N> QR_DEVICE void qr_registers_less()
{
    qr_emu_site_call(qr_emu_registers, "setmaxnreg.dec", N, false);
}

template <int N> QR_DEVICE void qr_registers_more()
{
    qr_emu_site_call(qr_emu_registers, "setmaxnreg.inc", N, true);
}

/* Before the first product after sums or operands were touched as registers. */
#define qr_wgmma_fence() qr_emu_site_call(qr_emu_wgmma_fence, "wgmma.fence")
#define qr_wgmma_commit() qr_emu_site_call(qr_emu_wgmma_commit, "wgmma.commit_group")

/* All groups but the latest N are done; qr_wgmma_settle tells the compiler so of their sums. */
#define qr_wgmma_wait_n(n) qr_emu_site_call(qr_emu_wgmma_wait, "wgmma.wait_group", n)
#define qr_wgmma_wait(n) qr_wgmma_wait_n(n)
template <int N> QR_DEVICE void qr_wgmma_settle(float (&d)[N])
{
    (void)d;
}

/* d[64][2 N] (+)= a b^T: both in shared memory, k side by side. */
#define qr_wgmma_shared(d, a, ...) qr_emu_wgmma_here(QR_EMU_SITE("wgmma"), d, NULL, a, __VA_ARGS__, false)

/* d[64][2 N] (+)= a b: a in registers, b in shared memory with n side by side. */
#define qr_wgmma_turned(d, a, b, add) qr_emu_wgmma_here(QR_EMU_SITE("wgmma"), d, a, 0, b, add, true)

template <int N>
QR_DEVICE void qr_emu_wgmma_here(const qr_emu_site &site, float (&d)[N], const uint32_t *a, uint64_t a_desc, uint64_t b_desc, bool add, bool turned)
{
    const struct qr_emu_wgmma o = {d, 2 * N, a, a_desc, b_desc, add, turned};
    qr_emu_wgmma(&site, &o);
}

#elif QR_HOPPER

QR_DEVICE void qr_mbar_init(uint64_t *bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(qr_shared_address(bar)), "r"(count) : "memory");
}

QR_DEVICE void qr_mbar_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(qr_shared_address(bar)) : "memory");
}

QR_DEVICE void qr_mbar_expect(uint64_t *bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(qr_shared_address(bar)), "r"(n_bytes) : "memory");
}

QR_DEVICE bool qr_mbar_try(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    return done != 0;
}

QR_DEVICE uint64_t qr_nanoseconds()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* A wait of more than *wait_ns ends the launch. */
#define qr_mbar_wait(bar, parity, wait_ns) qr_mbar_wait_at<QR_STOP_HERE>(bar, parity, wait_ns)
template <uint32_t PLACE> QR_DEVICE void qr_mbar_wait_at(uint64_t *bar, uint32_t parity, const uint64_t *wait_ns)
{
    const uint32_t at = qr_shared_address(bar);
    if (qr_mbar_try(at, parity))
        return;
    const uint64_t began = qr_nanoseconds();
    while (!qr_mbar_try(at, parity))
        if (qr_nanoseconds() - began > *wait_ns)
            QR_DEVICE_STOP(PLACE);
}

QR_DEVICE void qr_fence_async()
{
    asm volatile("fence.mbarrier_init.release.cluster;\n fence.proxy.async.shared::cta;" ::: "memory");
}

QR_DEVICE void qr_fence_async_kernels()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

QR_DEVICE void qr_bulk(void *to, const void *from, uint32_t n_bytes, uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(qr_shared_address(to)), "l"(from),
                 "r"(n_bytes), "r"(qr_shared_address(bar)) : "memory");
}

QR_DEVICE void qr_bulk_2d(void *to, const CUtensorMap *map, int32_t x, int32_t y, uint64_t *bar)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(qr_shared_address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(qr_shared_address(bar)) : "memory");
}

template <int N> QR_DEVICE void qr_registers_less()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> QR_DEVICE void qr_registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

QR_DEVICE void qr_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

QR_DEVICE void qr_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

#define qr_wgmma_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")

template <int N> QR_DEVICE void qr_wgmma_settle(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* Operands of the sums, and their names in the instruction. */
#define QR_F8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define QR_F32(d, i) QR_F8(d, i), QR_F8(d, i + 8), QR_F8(d, i + 16), QR_F8(d, i + 24)
#define QR_SUMS_32                                                                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "   \
    "%27, %28, %29, %30, %31}"
#define QR_SUMS_64                                                                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "   \
    "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "    \
    "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

QR_DEVICE void qr_wgmma_shared(float (&d)[32], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " QR_SUMS_32
                 ", %32, %33, p, 1, 1, 0, 0;\n}" : QR_F32(d, 0) : "l"(a), "l"(b), "r"((int32_t)add) : "memory");
}

QR_DEVICE void qr_wgmma_shared(float (&d)[64], uint64_t a, uint64_t b, bool add)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " QR_SUMS_64
                 ", %64, %65, p, 1, 1, 0, 0;\n}" : QR_F32(d, 0), QR_F32(d, 32) : "l"(a), "l"(b), "r"((int32_t)add) : "memory");
}

QR_DEVICE void qr_wgmma_turned(float (&d)[32], const uint32_t *a, uint64_t b, bool add)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %37, 0;\n wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " QR_SUMS_32
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
                 : QR_F32(d, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int32_t)add) : "memory");
}

QR_DEVICE void qr_wgmma_turned(float (&d)[64], const uint32_t *a, uint64_t b, bool add)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " QR_SUMS_64
                 ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
                 : QR_F32(d, 0), QR_F32(d, 32) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int32_t)add) : "memory");
}

#endif
#endif
